/*
 * batch_api.c - the public functions of batches (strata/batch.h): arguments, promises, and the ways of elements that are all of one size.
 *
 * Elements of one size are served where they stand in the caller's array: stretches without an address take objects of their class in groups, and
 * stretches of addresses of one class are freed in groups. All else goes through windows (batch_groups.c), which sort by class. No lock of its own.
 */
#include <errno.h>
#include <string.h>

#include "api/batch_groups.h"
#include "base/check.h"
#include "strata/malloc.h"

#define PROMISES (STRATA_BATCH_ALL_ALLOC | STRATA_BATCH_ALL_REALLOC | STRATA_BATCH_ALL_FREE)
/* A stretch of frees that is shorter than this goes through a window, with what comes behind it. */
#define STRETCH_MIN 16

/* ------------------------------------------------------------------ promises */

static bool contradict(uintmax_t flags) {
    uintmax_t promises = flags & PROMISES;
    return (promises & (promises - 1)) != 0;
}

#ifdef STRATA_LOCK_DEBUG
static void check_promise(const char *function, size_t number, uintmax_t promise, const void *address, size_t bytes) {
    if ((promise & STRATA_BATCH_ALL_ALLOC) != 0 && address != NULL)
        fatal("%s(): element %zu has an address (ptr = %p; STRATA_BATCH_ALL_ALLOC promises NULL)", function, number, address);
    if ((promise & (STRATA_BATCH_ALL_REALLOC | STRATA_BATCH_ALL_FREE)) != 0 && address == NULL)
        fatal("%s(): element %zu has no address (ptr = NULL; %s promises a block)", function, number,
              (promise & STRATA_BATCH_ALL_FREE) != 0 ? "STRATA_BATCH_ALL_FREE" : "STRATA_BATCH_ALL_REALLOC");
    if ((promise & STRATA_BATCH_ALL_REALLOC) != 0 && bytes == 0)
        fatal("%s(): element %zu has no size (size = 0; STRATA_BATCH_ALL_REALLOC promises one)", function, number);
    if ((promise & STRATA_BATCH_ALL_FREE) != 0 && bytes != 0)
        fatal("%s(): element %zu has a size (size = %zu; STRATA_BATCH_ALL_FREE promises 0)", function, number, bytes);
}
#else
static void check_promise(const char *function, size_t number, uintmax_t promise, const void *address, size_t bytes) {
    (void)function, (void)number, (void)promise, (void)address, (void)bytes;
}
#endif

/* ------------------------------------------------------------------ windows */

static struct batch_window *begin_window(struct batch_window *window, unsigned flags) {
    window->count = 0;
    window->flags = flags & STRATA_BATCH_CONSTANT_TIME;
    window->succeeded = 0;
    return window;
}

static void add(struct batch_window *window, const struct batch_request *request, void **address, size_t *size, size_t *reserve, int *error) {
    unsigned i = window->count++;
    window->requests[i] = *request;
    window->addresses[i] = address;
    window->sizes[i] = size;
    window->reserves[i] = reserve;
    window->errors[i] = error;
    if (window->count == BATCH_WINDOW) batch_window_serve(window);
}

static size_t end_window(struct batch_window *window) {
    batch_window_serve(window);
    return window->succeeded;
}

static void report_all(int *errnos, size_t count, int error) {
    for (size_t i = 0; errnos != NULL && i < count; i++) errnos[i] = error;
}

/* ------------------------------------------------------------------ elements of one size */

/* How many addresses from the first on are of the small class of that one; 0: it is of none. */
static size_t stretch_of_class(void *const *addresses, size_t count, unsigned *tag) {
    size_t length = 1;
    *tag = batch_tag(addresses[0]);
    if (!batch_tag_is_small(*tag)) return 0;
    while (length < count && batch_tag(addresses[length]) == *tag) length++;
    return length;
}

static size_t free_all(int *errnos, void **addresses, size_t count, unsigned flags) {
    const struct batch_request request = {.flags = flags};
    struct batch_window window;
    size_t freed = 0;
    begin_window(&window, flags);
    for (size_t at = 0, length; at < count; at += length) {
        unsigned tag;
        length = stretch_of_class(addresses + at, count - at, &tag);
        bool last = length != 0 && at + length == count;
        if ((length >= STRETCH_MIN || last) && !batch_singly()) {
            batch_free_small(tag, addresses + at, length, flags);
            memset(addresses + at, 0, length * sizeof *addresses);
            report_all(errnos != NULL ? errnos + at : NULL, length, 0);
            freed += length;
            continue;
        }
        if (length == 0) length = 1;
        for (size_t i = at; i < at + length; i++) add(&window, &request, &addresses[i], NULL, NULL, errnos != NULL ? &errnos[i] : NULL);
    }
    return freed + end_window(&window);
}

/* Objects for elements without an address. */
static size_t alloc_stretch(int *errnos, void **addresses, size_t count, unsigned cache, const struct batch_request *request) {
    size_t got = batch_alloc_small(cache, addresses, count, request->flags);
    if (errnos != NULL) {
        report_all(errnos, got, 0);
        report_all(errnos + got, count - got, ENOMEM);
    }
    memset(addresses + got, 0, (count - got) * sizeof *addresses);
    return got;
}

/* All allocated or resized; *least: the smallest usable size, SIZE_MAX where nothing succeeded. */
static size_t serve_all(int *errnos, void **addresses, size_t count, const struct batch_request *request, size_t *least) {
    bool all = (request->flags & STRATA_BATCH_ALL_ALLOC) != 0, singly = batch_singly();
    unsigned cache = singly ? 0 : batch_class(request);
    size_t sizes[BATCH_WINDOW], done = 0;
    struct batch_window window;
    *least = SIZE_MAX;
    for (size_t at = 0, length; at < count; at += length) {
        length = 0;
        if (cache != 0)
            while (at + length < count && (all || addresses[at + length] == NULL)) length++;
        if (length != 0) {
            size_t got = alloc_stretch(errnos != NULL ? errnos + at : NULL, addresses + at, length, cache, request);
            if (got != 0) *least = min_u64(*least, heap.slabs.caches[cache].object_bytes);
            done += got;
            continue;
        }
        begin_window(&window, request->flags);
        while (length < BATCH_WINDOW - 1 && at + length < count && (cache == 0 || addresses[at + length] != NULL)) {
            sizes[length] = SIZE_MAX; /* stays so where it fails */
            add(&window, request, &addresses[at + length], &sizes[length], NULL, errnos != NULL ? &errnos[at + length] : NULL);
            length++;
        }
        done += end_window(&window);
        for (size_t i = 0; i < length; i++) *least = min_u64(*least, sizes[i]);
    }
    return done;
}

/* What is nothing to do succeeds even so. */
static int error_without_heap(const void *address, size_t bytes) { return bytes != 0 ? ENOMEM : address != NULL ? EINVAL : 0; }

static size_t without_heap(int *errnos, void *const *addresses, size_t count, size_t bytes) {
    size_t done = 0;
    for (size_t i = 0; i < count; i++) {
        int error = error_without_heap(addresses[i], bytes);
        if (errnos != NULL) errnos[i] = error;
        done += error == 0;
    }
    return done;
}

/* The array that the caller wants; its elements are NULL. */
static void **alloc_addresses(size_t count) {
    size_t bytes;
    return __builtin_mul_overflow(count, sizeof(void *), &bytes) ? NULL : strata_calloc(count != 0 ? count : 1, sizeof(void *));
}

static void **refuse(size_t *count, int error) {
    if (count != NULL) *count = 0;
    errno = error;
    return NULL;
}

void **strata_batch_alloc1(int *errnos, void **ptrs, size_t *count, size_t *size, size_t alignment, size_t reserve, uintmax_t flags) {
    struct batch_request request;
    if (count == NULL) return refuse(NULL, EINVAL);
    size_t all = *count, bytes = size != NULL ? *size : 0, least = SIZE_MAX;
    int saved = errno, error = batch_check(bytes, alignment, reserve, flags, &request);
    uintmax_t of_blocks = STRATA_BATCH_ALL_REALLOC | STRATA_BATCH_ALL_FREE;
    uintmax_t excluded = bytes != 0 ? STRATA_BATCH_ALL_FREE : STRATA_BATCH_ALL_ALLOC | STRATA_BATCH_ALL_REALLOC;
    if (ptrs == NULL) excluded |= of_blocks;
    if (contradict(flags) || (flags & excluded) != 0) error = EINVAL;
    if (error != 0) {
        report_all(errnos, all, error);
        *count = 0;
        return ptrs != NULL ? ptrs : refuse(count, error);
    }
    for (size_t i = 0; i < all && ptrs != NULL && (flags & PROMISES) != 0; i++) check_promise("strata_batch_alloc1", i, flags, ptrs[i], bytes);
    if (ptrs == NULL && (ptrs = alloc_addresses(all)) == NULL) {
        report_all(errnos, all, ENOMEM);
        return refuse(count, ENOMEM);
    }
    if (!heap_init())
        *count = without_heap(errnos, ptrs, all, bytes);
    else
        *count = bytes != 0 ? serve_all(errnos, ptrs, all, &request, &least) : free_all(errnos, ptrs, all, request.flags);
    if (least != SIZE_MAX) *size = least;
    errno = saved;
    return ptrs;
}

/* ------------------------------------------------------------------ elements with a size of each */

/* One element, before its window: what is wrong with it stops here. */
static void take(struct batch_window *window, const struct strata_batch_element5 *asked, void **address, size_t *size, size_t *reserve, int *error) {
    struct batch_request request;
    int wrong = contradict(asked->flags) ? EINVAL : batch_check(asked->size, asked->alignment, asked->reserve, asked->flags, &request);
    bool serves = wrong == 0 && heap_init();
    if (wrong == 0 && !serves) wrong = error_without_heap(*address, asked->size);
    if (serves) {
        add(window, &request, address, size, reserve, error);
    } else {
        window->succeeded += wrong == 0;
        if (error != NULL) *error = wrong;
    }
}

/* An element that is not there. */
static void take_nothing(struct batch_window *window, int *error) {
    window->succeeded++;
    if (error != NULL) *error = 0;
}

static bool finish(size_t *count, size_t succeeded, int saved) {
    bool all = succeeded == *count;
    *count = succeeded;
    errno = saved;
    return all;
}

bool strata_batch_alloc2(int *errnos, struct strata_batch_element2 **elements, size_t *count, size_t alignment, size_t reserve, uintmax_t flags) {
    struct batch_window window;
    if (count == NULL || (elements == NULL && *count != 0)) return refuse(count, EINVAL) != NULL;
    int saved = errno;
    begin_window(&window, (unsigned)flags);
    for (size_t i = 0; i < *count; i++) {
        struct strata_batch_element2 *element = elements[i];
        int *error = errnos != NULL ? &errnos[i] : NULL;
        if (element == NULL) {
            take_nothing(&window, error);
            continue;
        }
        struct strata_batch_element5 asked = {.size = element->size, .alignment = alignment, .reserve = reserve, .flags = flags};
        if (!contradict(flags)) check_promise("strata_batch_alloc2", i, flags, element->ptr, element->size);
        take(&window, &asked, &element->ptr, &element->size, NULL, error);
    }
    return finish(count, end_window(&window), saved);
}

/* The promises of the first element that is there, which are the batch's; and the flags that all have. */
static uintmax_t promise_of(struct strata_batch_element5 *const *elements, size_t count, uintmax_t *common) {
    uintmax_t promise = 0;
    bool first = true;
    *common = ~(uintmax_t)0;
    for (size_t i = 0; i < count; i++) {
        if (elements[i] == NULL) continue;
        if (first) promise = elements[i]->flags & PROMISES;
        first = false;
        *common &= elements[i]->flags;
    }
    return promise;
}

bool strata_batch_alloc5(int *errnos, struct strata_batch_element5 **elements, size_t *count) {
    struct batch_window window;
    uintmax_t common;
    if (count == NULL || (elements == NULL && *count != 0)) return refuse(count, EINVAL) != NULL;
    int saved = errno;
    uintmax_t promise = promise_of(elements, *count, &common);
    begin_window(&window, (unsigned)common);
    for (size_t i = 0; i < *count; i++) {
        struct strata_batch_element5 *element = elements[i];
        int *error = errnos != NULL ? &errnos[i] : NULL;
        if (element == NULL) {
            take_nothing(&window, error);
            continue;
        }
        if (!contradict(promise)) check_promise("strata_batch_alloc5", i, promise, element->ptr, element->size);
        struct strata_batch_element5 asked = *element;
        if (contradict(promise)) asked.flags |= promise; /* it is of no use for any of them */
        take(&window, &asked, &element->ptr, &element->size, &element->reserve, error);
    }
    return finish(count, end_window(&window), saved);
}

/* ------------------------------------------------------------------ one block */

static void *one(void *p, size_t size, size_t alignment, uintmax_t flags) {
    size_t count = 1;
    int error;
    strata_batch_alloc1(&error, &p, &count, &size, alignment, 0, flags);
    if (error == 0) return p;
    errno = error;
    return NULL;
}

void *strata_try_realloc(void *p, size_t size) { return one(p, size, 0, STRATA_BATCH_NO_MOVE); }
void *strata_aligned_realloc(void *p, size_t alignment, size_t size) { return one(p, size, alignment, 0); }
void *strata_try_aligned_realloc(void *p, size_t alignment, size_t size) { return one(p, size, alignment, STRATA_BATCH_NO_MOVE); }
