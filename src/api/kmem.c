/*
 * kmem.c - kmem's forms of malloc (strata/kmem.h): the caller says the size, or by a cookie the size class.
 *
 * The fast paths are those of malloc.c without what is known already: cookies skip the table of classes, frees skip the tags. So nothing there looks
 * at the address; verify() does, wherever the slow path is taken, and in builds with STRATA_DEBUG each time. Past that, slab/ verifies what comes
 * back to it. heap.kmem_trusts tells of which classes that may be: see heap.h. A cookie is the version of the class map above 16 bits of
 * class, so that one subtraction and one comparison find both a foreign version and a class that there is none of.
 */
#include <errno.h>
#include <string.h>

#include "api/heap.h"
#include "base/check.h"
#include "slab/debug.h"
#include "strata/kmem.h"
#include "strata/malloc.h"

#define COOKIE_FIRST ((strata_kmem_cookie)STRATA_KMEM_MAP << 16)

_Static_assert(STRATA_KMEM_COOKIE_MAX == SIZE_CLASS_MAX_BYTES, "every size of a class has a cookie");
_Static_assert(STRATA_KMEM_COOKIE(1) == COOKIE_FIRST, "the first class has the first cookie");
_Static_assert(STRATA_KMEM_COOKIE(SIZE_CLASS_MAX_BYTES) == COOKIE_FIRST + SIZE_CLASS_COUNT - 1, "the last class has the last cookie");

#ifdef STRATA_DEBUG
#define VERIFIED_ALWAYS true
#else
#define VERIFIED_ALWAYS false
#endif

/* ------------------------------------------------------------------ what a block is */

/* Who frees. One pointer, so that the way to the slow path is as short as can be. */
struct kmem_form {
    const char *function;
    bool by_cookie;
};
static const struct kmem_form free_by_size = {"strata_kmem_free", false}, free_by_cookie = {"strata_kmem_cookie_free", true};

static bool is_dying(void) { return __atomic_load_n(&heap.dying, __ATOMIC_RELAXED); }

/* What a block of that tag would have been freed with, for messages. */
static STRATA_COLD _Noreturn void wrong_size(const char *function, const void *p, size_t size, unsigned tag) {
    if (slab_is_cache(tag)) fatal("%s(): %p: size is %zu, but this is a block of cache %s", function, p, size, heap.slabs.caches[tag].name);
    fatal("%s(): %p: size is %zu, but this is a block of %zu bytes", function, p, size, zone_block_bytes(&heap.zone, p));
}

/*
 * Ends the process where p is not a block that strata_kmem_alloc(size) may have given. Not seen: that it is free already. A debugged buffer knows
 * what was asked for, and what is wrong with it is the debugger's to say. False: that was done, and it stays as it is.
 */
static bool verify(const struct kmem_form *form, const void *p, size_t size) {
    const char *function = form->function;
    enum debug_claim claim = heap_is_debugged() ? debug_heap_claim_sized(function, p, size, form->by_cookie) : DEBUG_FOREIGN;
    if (claim != DEBUG_FOREIGN) return claim == DEBUG_LIVE;
    if (!zone_contains(&heap.zone, p) || ((uintptr_t)p & 15) != 0) fatal("%s(): %p: not a pointer of this heap", function, p);
    unsigned tag = (uint8_t)heap.zone.tags[zone_granule_of(&heap.zone, p)];
    unsigned wanted = size <= SIZE_CLASS_MAX_BYTES ? slab_class_of_size(&heap.slabs, size) : TAG_BLOCK;
    if (tag >= SLAB_CACHE_FIRST && tag < SLAB_CACHE_MAGAZINES) {
        if (!slab_is_object(&heap.slabs, tag, p)) fatal("%s(): %p: not the start of an object (cache %s)", function, p, heap.slabs.caches[tag].name);
        if (tag != wanted) wrong_size(function, p, size, tag);
        return true;
    }
    size_t bytes = tag == TAG_BLOCK ? zone_block_bytes(&heap.zone, p) : 0;
    if (bytes == 0) heap_bad_block(function, p);
    size_t unit = max_u64(GRANULE_BYTES, platform_info()->page_bytes);
    if (wanted != TAG_BLOCK || size > bytes || bytes - size >= unit) wrong_size(function, p, size, tag);
    return true;
}

/* ------------------------------------------------------------------ by size */

/* Memory is short; it may be there later, or mtbf has refused it, which spares who can't go on without. NULL: never. */
static STRATA_COLD void *alloc_asleep(size_t size, bool zero, int saved_errno) {
    if (size > HEAP_BYTES_MAX) return NULL;
    bool before = debug_spare(true);
    void *p;
    for (uint64_t interval = HEAP_DOZE_MIN_NS; (p = zero ? strata_calloc(1, size) : strata_malloc(size)) == NULL;) interval = heap_doze(interval);
    debug_spare(before);
    errno = saved_errno;
    return p;
}

static STRATA_COLD _Noreturn void bad_flags(const char *function, unsigned flags) {
    heap_init(); /* it may be the first call of the process: then for the message */
    fatal("%s(): flags are 0x%x: allowed are 0 and 1", function, flags);
}
STRATA_INLINE bool are_flags(unsigned flags) { return STRATA_LIKELY(flags <= STRATA_KMEM_SLEEP); }

static STRATA_NOINLINE void *alloc_slow(const char *function, size_t size, unsigned flags, bool zero) {
    if (STRATA_UNLIKELY(!are_flags(flags))) bad_flags(function, flags);
    int saved = errno;
    void *p = zero ? strata_calloc(1, size) : strata_malloc(size);
    return STRATA_LIKELY(p != NULL) || (flags & STRATA_KMEM_SLEEP) == 0 ? p : alloc_asleep(size, zero, saved);
}

void *strata_kmem_alloc(size_t size, unsigned flags) {
    if (STRATA_LIKELY(size < heap_small_end()) && are_flags(flags)) {
        void *object = cpu_pop(slab_class_of_size(&heap.slabs, size));
        if (STRATA_LIKELY(object != NULL)) return object;
    }
    return alloc_slow("strata_kmem_alloc", size, flags, false);
}

void *strata_kmem_zalloc(size_t size, unsigned flags) {
    if (STRATA_LIKELY(size < heap_small_end()) && are_flags(flags)) {
        void *object = cpu_pop(slab_class_of_size(&heap.slabs, size));
        if (STRATA_LIKELY(object != NULL)) return memset(object, 0, size);
    }
    return alloc_slow("strata_kmem_zalloc", size, flags, true);
}

/* Where callers aren't believed: whether it lies where blocks of this size do, and has gone into the array. */
static bool free_by_tag(void *p, size_t size) {
    if (VERIFIED_ALWAYS || size > SIZE_CLASS_MAX_BYTES) return false;
    unsigned class = slab_class_of_size(&heap.slabs, size);
    if (heap_kmem_trusts(class) || !zone_contains(&heap.zone, p) || ((uintptr_t)p & 15) != 0) return false;
    return (uint8_t)heap.zone.tags[zone_granule_of(&heap.zone, p)] == class && cpu_push(class, p);
}

static STRATA_NOINLINE void free_slow(const struct kmem_form *form, void *p, size_t size) {
    if (p == NULL || is_dying() || free_by_tag(p, size)) return;
    heap_init();                               /* it may be the first call of the process: then for the message */
    if (verify(form, p, size)) strata_free(p); /* by its address, which has just been found good */
}

void strata_kmem_free(void *p, size_t size) {
    if (STRATA_LIKELY(size <= SIZE_CLASS_MAX_BYTES)) {
        unsigned class = slab_class_of_size(&heap.slabs, size);
        if (STRATA_LIKELY(heap_kmem_trusts(class)) && STRATA_LIKELY(p != NULL)) {
            if (VERIFIED_ALWAYS && !verify(&free_by_size, p, size)) return;
            if (STRATA_LIKELY(cpu_push(class, p))) return;
        }
    }
    free_slow(&free_by_size, p, size);
}

/* ------------------------------------------------------------------ by cookie */

strata_kmem_cookie strata_kmem_cookie_of(size_t size) {
    if (size == 0 || size > SIZE_CLASS_MAX_BYTES) return 0;
    return STRATA_KMEM_COOKIE_OF_(size);
}

/* The size of the class of a cookie that is one. */
static STRATA_COLD size_t bytes_of(const char *function, strata_kmem_cookie cookie) {
    if (cookie - COOKIE_FIRST < SIZE_CLASS_COUNT) return size_class_bytes(cookie - COOKIE_FIRST);
    heap_init(); /* it may be the first call of the process: then for the message */
    if (cookie >> 16 == STRATA_KMEM_MAP || cookie == 0) fatal("%s(): cookie is 0x%x, which is none of STRATA_KMEM_COOKIE", function, cookie);
    fatal("%s(): cookie is 0x%x, of version %u of the class map; this library has version %d: compile the program anew", function, cookie,
          cookie >> 16, STRATA_KMEM_MAP);
}

STRATA_INLINE unsigned cache_of(strata_kmem_cookie cookie) { return SLAB_CACHE_FIRST + (cookie - COOKIE_FIRST); }
/* Whether the class is one of the heap's. */
STRATA_INLINE bool is_cookie(strata_kmem_cookie cookie) { return STRATA_LIKELY(cookie - COOKIE_FIRST < SIZE_CLASS_COUNT); }

static STRATA_NOINLINE void *cookie_alloc_slow(strata_kmem_cookie cookie, unsigned flags) {
    void *p = alloc_slow("strata_kmem_cookie_alloc", bytes_of("strata_kmem_cookie_alloc", cookie), flags, false);
    if (heap_is_debugged() && p != NULL) debug_heap_set_of_class(p);
    return p;
}

void *strata_kmem_cookie_alloc(strata_kmem_cookie cookie, unsigned flags) {
    if (is_cookie(cookie) && STRATA_LIKELY(heap_small_end() != 0) && are_flags(flags)) {
        void *object = cpu_pop(cache_of(cookie));
        if (STRATA_LIKELY(object != NULL)) return object;
    }
    return cookie_alloc_slow(cookie, flags);
}

void strata_kmem_cookie_free(strata_kmem_cookie cookie, void *p) {
    if (is_cookie(cookie) && STRATA_LIKELY(heap_kmem_trusts(cache_of(cookie))) && STRATA_LIKELY(p != NULL)) {
        if (VERIFIED_ALWAYS && !verify(&free_by_cookie, p, bytes_of("strata_kmem_cookie_free", cookie))) return;
        if (STRATA_LIKELY(cpu_push(cache_of(cookie), p))) return;
    }
    free_slow(&free_by_cookie, p, bytes_of("strata_kmem_cookie_free", cookie));
}
