/*
 * batch_groups.c - many elements at once: objects of one class in groups, and windows of elements of every kind, sorted by class.
 *
 * A window holds up to WINDOW elements, as pointers into the caller's. Its frees come first, so that allocations find what they gave back; then
 * what is resized, one by one; then allocations. Frees and allocations of small objects are sorted by class (a counting sort), so that each class
 * is asked once. No lock of its own.
 */
#include "api/batch_groups.h"

#include <errno.h>
#include <string.h>

#include "strata/malloc.h"

/* Objects between two looks at the clock and at how much the heap has grown. */
#define GROUP_MAX 512

/* ------------------------------------------------------------------ one class */

size_t batch_alloc_small(unsigned cache, void **objects, size_t count, unsigned flags) {
    size_t bytes = heap.slabs.caches[cache].object_bytes;
    size_t got = cpu_pop_batch(cache, objects, (unsigned)min_u64(count, GROUP_MAX));
    bool released = false;
    while (got < count) {
        unsigned wanted = (unsigned)min_u64(count - got, GROUP_MAX);
        unsigned some = cache_alloc_batch(&heap.caches, cache, objects + got, wanted);
        got += some;
        if ((flags & STRATA_BATCH_CONSTANT_TIME) == 0) maintenance_slow_call(true);
        if (some == wanted) continue;
        if (released) {
            if ((flags & STRATA_BATCH_CONSTANT_TIME) == 0) reclaim_later(bytes);
            break;
        }
        (void)heap_release(0); /* also in vain: the last objects may have come out of other CPUs' arrays, as malloc's do (heap.c) */
        released = true;
    }
    if ((flags & STRATA_BATCH_ZERO) != 0)
        for (size_t i = 0; i < got; i++) memset(objects[i], 0, bytes);
    return got;
}

void batch_free_small(unsigned cache, void *const *objects, size_t count, unsigned flags) {
    size_t done = cpu_push_batch(cache, objects, (unsigned)min_u64(count, GROUP_MAX));
    while (done < count) {
        unsigned some = (unsigned)min_u64(count - done, GROUP_MAX);
        cache_free_batch(&heap.caches, cache, objects + done, some);
        done += some;
        if ((flags & STRATA_BATCH_CONSTANT_TIME) == 0) maintenance_slow_call(false);
    }
}

/* ------------------------------------------------------------------ windows */

static void report(struct batch_window *window, unsigned i, int error) {
    if (window->errors[i] != NULL) *window->errors[i] = error;
    window->succeeded += error == 0;
}

/* Elements of one kind, each with its class; `order` has them by class when sorted. */
struct sorting {
    unsigned count;
    uint8_t cache[BATCH_WINDOW], element[BATCH_WINDOW], order[BATCH_WINDOW];
};
_Static_assert(BATCH_WINDOW <= UINT8_MAX && SLAB_CACHE_MAGAZINES <= UINT8_MAX, "numbers of elements and classes fit a byte");

static void add(struct sorting *sorting, unsigned element, unsigned cache) {
    sorting->cache[sorting->count] = (uint8_t)cache;
    sorting->element[sorting->count++] = (uint8_t)element;
}

static void sort(struct sorting *sorting) {
    uint8_t start[SLAB_CACHE_MAGAZINES + 1] = {0};
    for (unsigned i = 0; i < sorting->count; i++) start[sorting->cache[i] + 1]++;
    for (unsigned cache = 1; cache <= SLAB_CACHE_MAGAZINES; cache++) start[cache] = (uint8_t)(start[cache] + start[cache - 1]);
    for (unsigned i = 0; i < sorting->count; i++) sorting->order[start[sorting->cache[i]]++] = (uint8_t)i;
}

/* How many from `at` on in the order are of the class of that one. */
static unsigned group_at(const struct sorting *sorting, unsigned at) {
    unsigned end = at + 1, cache = sorting->cache[sorting->order[at]];
    while (end < sorting->count && sorting->cache[sorting->order[end]] == cache) end++;
    return end - at;
}

static void free_sorted(struct batch_window *window, struct sorting *sorting) {
    void *objects[BATCH_WINDOW];
    sort(sorting);
    for (unsigned at = 0, length; at < sorting->count; at += length) {
        length = group_at(sorting, at);
        for (unsigned i = 0; i < length; i++) {
            unsigned element = sorting->element[sorting->order[at + i]];
            objects[i] = *window->addresses[element];
            *window->addresses[element] = NULL;
            report(window, element, 0);
        }
        batch_free_small(sorting->cache[sorting->order[at]], objects, length, window->flags);
    }
}

static void received(struct batch_window *window, unsigned element, size_t usable, size_t capacity) {
    *window->sizes[element] = usable;
    if (window->reserves[element] != NULL) *window->reserves[element] = capacity;
}

static void alloc_sorted(struct batch_window *window, struct sorting *sorting) {
    void *objects[BATCH_WINDOW];
    sort(sorting);
    for (unsigned at = 0, length; at < sorting->count; at += length) {
        length = group_at(sorting, at);
        unsigned cache = sorting->cache[sorting->order[at]];
        size_t bytes = heap.slabs.caches[cache].object_bytes;
        size_t got = batch_alloc_small(cache, objects, length, window->flags);
        for (unsigned i = 0; i < length; i++) {
            unsigned element = sorting->element[sorting->order[at + i]];
            if (i < got) {
                if ((window->requests[element].flags & STRATA_BATCH_ZERO) != 0) memset(objects[i], 0, bytes);
                *window->addresses[element] = objects[i];
                received(window, element, bytes, bytes);
            }
            report(window, element, i < got ? 0 : ENOMEM);
        }
    }
}

/* The process is being ended because of misuse, and only a handler of SIGABRT can be here: see emergency.c. */
static void serve_dying(struct batch_window *window) {
    for (unsigned i = 0; i < window->count; i++) {
        const struct batch_request *request = &window->requests[i];
        bool frees = request->bytes == 0, resizes = !frees && *window->addresses[i] != NULL;
        void *block = frees || resizes || request->bytes > HEAP_BYTES_MAX ? NULL : emergency_alloc(request->bytes, request->align);
        if (frees || block != NULL) *window->addresses[i] = block;
        if (block != NULL) received(window, i, emergency_bytes(block), emergency_bytes(block));
        report(window, i, frees || block != NULL ? 0 : ENOMEM);
    }
    window->count = 0;
}

/* Debugged buffers are made and known by malloc's slow paths. What is not one of them is resized as it always is. */
static STRATA_COLD int serve_debugged(const struct batch_request *request, void **address, size_t *usable, size_t *capacity) {
    void *old = *address, *fresh;
    bool owned = old != NULL && debug_heap_owns(old), zeroed;
    if (old != NULL && !owned && request->bytes != 0) return batch_resize(request, address, usable, capacity);
    if (request->bytes == 0) {
        unsigned tag = owned ? TAG_NONE : batch_tag(old);
        if (!owned && !batch_tag_is_small(tag)) return batch_free_block(tag, old, request->flags);
        strata_free(old);
        return 0;
    }
    size_t kept = old != NULL ? strata_malloc_usable_size(old) : 0;
    if (old != NULL && (kept == 0 || kept == SIZE_MAX)) return EINVAL; /* it has been reported */
    if ((request->flags & STRATA_BATCH_NO_MOVE) != 0 && old != NULL) {
        *usable = kept;
        if (request->bytes > HEAP_BYTES_MAX) return ENOMEM;
        return request->bytes <= kept && ((uintptr_t)old & (request->align - 1)) == 0 ? 0 : ENOSPC;
    }
    if (request->bytes > HEAP_BYTES_MAX || (fresh = heap_alloc_slow(request->bytes, request->align, &zeroed)) == NULL) return ENOMEM;
    *usable = strata_malloc_usable_size(fresh);
    if (kept > *usable) kept = *usable;
    if (old != NULL) memcpy(fresh, old, kept);
    if ((request->flags & STRATA_BATCH_ZERO) != 0 && !zeroed) batch_clear(fresh, kept, *usable);
    strata_free(old);
    *address = fresh;
    return 0;
}

static STRATA_COLD void serve_all_debugged(struct batch_window *window) {
    for (unsigned i = 0; i < window->count; i++) {
        size_t usable = 0, capacity = 0, bytes = window->requests[i].bytes;
        void **address = window->addresses[i];
        int error = *address == NULL && bytes == 0 ? 0 : serve_debugged(&window->requests[i], address, &usable, &capacity);
        if (error == 0 && bytes == 0) *address = NULL;
        if (error == 0 && bytes != 0) received(window, i, usable, capacity > usable ? capacity : usable);
        report(window, i, error);
    }
    window->count = 0;
}

static void serve_one(struct batch_window *window, unsigned i, bool resize) {
    size_t usable = 0, capacity = 0, *capacity_to = window->reserves[i] != NULL ? &capacity : NULL;
    int error = resize ? batch_resize(&window->requests[i], window->addresses[i], &usable, capacity_to)
                       : batch_alloc_block(&window->requests[i], window->addresses[i], &usable, capacity_to);
    if (error == 0) received(window, i, usable, capacity);
    report(window, i, error);
}

void batch_window_serve(struct batch_window *window) {
    struct sorting frees, allocs;
    uint8_t resizes[BATCH_WINDOW], blocks[BATCH_WINDOW];
    unsigned resize_count = 0, block_count = 0;
    if (STRATA_UNLIKELY(batch_singly())) {
        if (__atomic_load_n(&heap.dying, __ATOMIC_RELAXED))
            serve_dying(window);
        else
            serve_all_debugged(window);
        return;
    }
    frees.count = allocs.count = 0;
    for (unsigned i = 0; i < window->count; i++) {
        const struct batch_request *request = &window->requests[i];
        void *address = *window->addresses[i];
        if (address == NULL && request->bytes == 0) {
            report(window, i, 0);
        } else if (address == NULL) {
            unsigned cache = batch_class(request);
            if (cache != 0)
                add(&allocs, i, cache);
            else
                blocks[block_count++] = (uint8_t)i;
        } else if (request->bytes != 0) {
            resizes[resize_count++] = (uint8_t)i;
        } else {
            unsigned tag = batch_tag(address);
            int error = batch_tag_is_small(tag) ? -1 : batch_free_block(tag, address, request->flags);
            if (error == 0) *window->addresses[i] = NULL;
            if (error < 0)
                add(&frees, i, tag);
            else
                report(window, i, error);
        }
    }
    if (frees.count != 0) free_sorted(window, &frees);
    for (unsigned i = 0; i < resize_count; i++) serve_one(window, resizes[i], true);
    if (allocs.count != 0) alloc_sorted(window, &allocs);
    for (unsigned i = 0; i < block_count; i++) serve_one(window, blocks[i], false);
    window->count = 0;
}
