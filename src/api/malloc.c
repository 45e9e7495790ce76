/*
 * malloc.c - the malloc family: fast paths, semantics of C, POSIX and glibc. strata_X is the function; X is an alias of it.
 *
 * malloc: size -> class by one table, then one pop of the CPU's array. free: one unsigned comparison tells whether the
 * address is a multiple of 16 inside the heap, one load finds its class, then one push. Tags that are no size class have no
 * open array in any CPU area, so that the push itself sends them to the slow path.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "api/also_as.h"
#include "api/heap.h"
#include "base/check.h"
#include "strata/malloc.h"

/* The smallest alignment of every block: that of max_align_t on the machines that we serve. */
#define NATURAL_ALIGN 16
/* A block that shrinks to a smaller class stays where it is down to this share. */
#define SHRINK_SHARE 2
/* An object that outgrows its class grows by at least one part in so many: who grows in small steps will grow again. */
#define GROWTH_SHARE 4

STRATA_INLINE void *alloc(size_t size) {
    size_t cache;
    if (STRATA_LIKELY(size < heap_fine_end()))
        cache = slab_class_of_fine(&heap.slabs, size);
    else if (STRATA_LIKELY(size < heap_small_end()))
        cache = slab_class_of_size(&heap.slabs, size);
    else
        return heap_alloc_slow(size, NATURAL_ALIGN, NULL);
    void *object = cpu_pop((unsigned)cache);
    return STRATA_LIKELY(object != NULL) ? object : heap_alloc_small_slow(size, (unsigned)cache);
}

/* Where p is in the heap, in units of 16 bytes; beyond its end for any address that is not in it, or not a multiple of 16. */
STRATA_INLINE uintptr_t units_of(const void *p) {
    uintptr_t offset = (uintptr_t)p - heap.zone.base;
    /* Rotating the low four bits to the top makes every misaligned offset a huge one. */
    return offset >> 4 | offset << 60;
}
/* Relaxed: whoever handed p to this thread handed over with it that the heap reaches there. */
STRATA_INLINE bool in_heap(uintptr_t units) { return units < __atomic_load_n(&heap.zone.extent_units, __ATOMIC_RELAXED); }
/* The lower byte of the tag alone. */
STRATA_INLINE unsigned tag_at(uintptr_t units) { return *(const uint8_t *)&heap.zone.tags[units >> (GRANULE_SHIFT - 4)]; }

STRATA_INLINE bool is_size_class(unsigned tag) { return tag >= SLAB_CACHE_FIRST && tag < SLAB_CACHE_MAGAZINES; }

STRATA_INLINE void release(enum heap_function function, void *p) {
    uintptr_t units = units_of(p);
    if (STRATA_LIKELY(in_heap(units))) {
        unsigned tag = tag_at(units);
        if (STRATA_LIKELY(cpu_push(tag, p))) return;
        heap_free_slow(function, tag, p);
        return;
    }
    heap_free_odd(function, p);
}

/* Where they begin in a line of code is a tenth of the time of a pair: so it is said, and no change elsewhere moves them. */
STRATA_ALIGNED(64) void *strata_malloc(size_t size) { return alloc(size); }
ALSO_AS(malloc, strata_malloc)
ALSO_AS_LIBC(__libc_malloc, strata_malloc)

STRATA_ALIGNED(64) void strata_free(void *p) { release(HEAP_FREE, p); }
ALSO_AS(free, strata_free)
ALSO_AS_LIBC(__libc_free, strata_free)
ALSO_AS(cfree, strata_free)

static STRATA_NOINLINE void release_sized_slow(enum heap_function function, void *p, size_t size) {
    if (heap_debug_allows(function, p, size)) release(function, p);
}

/* The size is a promise of the caller that we don't need, as the tag says more; debugged buffers, whose tag has no array, hold him to it. */
STRATA_INLINE void release_sized(enum heap_function function, void *p, size_t size) {
    uintptr_t units = units_of(p);
    if (STRATA_LIKELY(in_heap(units)) && STRATA_LIKELY(cpu_push(tag_at(units), p))) return;
    release_sized_slow(function, p, size);
}

void strata_free_sized(void *p, size_t size) { release_sized(HEAP_FREE_SIZED, p, size); }

void strata_free_aligned_sized(void *p, size_t alignment, size_t size) {
    (void)alignment;
    release_sized(HEAP_FREE_ALIGNED_SIZED, p, size);
}

#ifndef STRATA_NO_OVERRIDE
/* As in the C library, what these free is the process's free's: that of a program which has its own, but not these. Only ours has a use for the size.
 */
STRATA_INLINE bool free_is_ours(void) { return bound_is((uintptr_t)bound_free, (uintptr_t)strata_free); }
extern __typeof__(strata_free_sized) free_sized;
STRATA_EXPORT STRATA_SELDOM void free_sized(void *p, size_t size) {
    if (free_is_ours())
        strata_free_sized(p, size);
    else
        bound_free(p);
}
extern __typeof__(strata_free_aligned_sized) free_aligned_sized;
STRATA_EXPORT STRATA_SELDOM void free_aligned_sized(void *p, size_t alignment, size_t size) {
    if (free_is_ours())
        strata_free_aligned_sized(p, alignment, size);
    else
        bound_free(p);
}
#endif

/* From here on calloc clears what is present, and no more: of less, nearly all will be. */
#define CALLOC_BY_PAGES_BYTES (1 * MIB)

/* Where no other processor is to be told, what is more than such a share of the heap waits for its touches: tables may be sparse. */
#define CALLOC_AHEAD_SHARE 16

/*
 * Pages of a smaller one are made present even if they read as zeros: who reads them before writing, as hash tables do, would get the system's one
 * page of zeros by a fault, and its own by another, for which all other processors that run the program are told.
 */
static bool calloc_is_ahead(size_t bytes) {
    if (bytes >= CALLOC_BY_PAGES_BYTES || heap.options.populate_pages <= 1) return false;
    const uint64_t populated = __atomic_load_n(&heap.zone.counters.populated, __ATOMIC_RELAXED) << GRANULE_SHIFT;
    return bytes <= populated / CALLOC_AHEAD_SHARE || !platform_thread_is_alone();
}

static STRATA_NOINLINE void *calloc_block(size_t bytes) {
    bool zeroed;
    void *block = heap_alloc_slow(bytes, NATURAL_ALIGN, &zeroed);
    if (block == NULL) return NULL;
    size_t page = platform_info()->page_bytes;
    if (!zeroed) {
        bool whole_pages = ((uintptr_t)block & (page - 1)) == 0 && !__atomic_load_n(&heap.dying, __ATOMIC_RELAXED); /* a dying process' are not */
        if (bytes < CALLOC_BY_PAGES_BYTES || !whole_pages) return memset(block, 0, bytes);
        platform_zero(block, align_up(bytes, page)); /* the last page is the block's to its end */
    } else if (calloc_is_ahead(bytes)) {
        platform_populate(block, align_up(bytes, page));
    }
    return block;
}

/* *bytes: of count elements of `size`. False: more than there can be; errno is ENOMEM. */
STRATA_INLINE bool array_fits(size_t count, size_t size, size_t *bytes) {
    if (STRATA_LIKELY(!__builtin_mul_overflow(count, size, bytes))) return true;
    errno = ENOMEM;
    return false;
}

void *strata_calloc(size_t count, size_t size) {
    size_t bytes;
    if (STRATA_UNLIKELY(!array_fits(count, size, &bytes))) return NULL;
    if (STRATA_UNLIKELY(bytes >= heap_small_end())) return calloc_block(bytes);
    void *object = alloc(bytes);
    return STRATA_LIKELY(object != NULL) ? memset(object, 0, bytes) : NULL;
}
ALSO_AS(calloc, strata_calloc)
ALSO_AS_LIBC(__libc_calloc, strata_calloc)

/*
 * The size of the object of a size class that starts at p; 0: none does. Small ones without a detour: redis asks for each block that it gets and
 * gives back. An object of a class is never a debugged one, and what a dying process has got last is not in the heap.
 */
STRATA_INLINE size_t object_bytes(const void *p) {
    uintptr_t offset = (uintptr_t)p - heap.zone.base;
    if (STRATA_UNLIKELY(!in_heap(offset >> 4))) return 0;
    granule_tag tag = heap.zone.tags[offset >> GRANULE_SHIFT];
    return STRATA_LIKELY(is_size_class(tag & 0xff)) ? slab_bytes_of(&heap.slabs, tag, offset) : 0;
}

/* Usable bytes of what is at p, which is no object of a size class; ends the process where there is nothing. The tag says what it is. */
static size_t odd_bytes(enum heap_function function, void *p, unsigned *tag) {
    uintptr_t units = units_of(p);
    size_t bytes = 0, asked;
    *tag = in_heap(units) ? tag_at(units) : 0;
    if (STRATA_UNLIKELY(__atomic_load_n(&heap.dying, __ATOMIC_RELAXED)) && (bytes = emergency_bytes(p)) != 0) {
        *tag = 0;
        return bytes;
    }
    if (heap_debug_usable(function, p, &asked)) {
        *tag = TAG_DEBUG;
        return asked;
    }
    if (*tag == TAG_BLOCK) bytes = zone_block_bytes(&heap.zone, p);
    if (bytes == 0) heap_bad_address(function, p);
    return bytes;
}

static STRATA_NOINLINE void *move_to_new(void *p, size_t old, size_t size, bool watched) {
    void *fresh = alloc(size);
    if (fresh == NULL) return NULL;
    if (STRATA_UNLIKELY(watched)) zone_block_unwatch(&heap.zone, p);
    memcpy(fresh, p, old < size ? old : size);
    release(HEAP_REALLOC, p);
    return fresh;
}

/* Whether an object of `old` bytes may go on to serve `size`. */
STRATA_INLINE bool serves(size_t old, size_t size) { return size <= old && (size >= old / SHRINK_SHARE || old <= 2 * NATURAL_ALIGN); }

/* Always elsewhere, so that what was asked for is what is watched. A pointer that is none has been reported, and is left alone. */
static STRATA_COLD void *realloc_debugged(void *p, size_t old, size_t size) {
    if (old == SIZE_MAX) {
        errno = EINVAL;
        return NULL;
    }
    if (size != 0) return move_to_new(p, old, size, false);
    release(HEAP_REALLOC, p);
    return NULL;
}

/* There is no memory for a smaller one: the old one serves, and what it has behind goes back, if it is a block. */
static STRATA_COLD void *shrink_in_place(void *p, unsigned tag, size_t size, int saved_errno) {
    errno = saved_errno;
    void *resized = tag == TAG_BLOCK ? zone_block_resize(&heap.zone, p, size, true) : NULL;
    return resized != NULL ? resized : p;
}

static STRATA_NOINLINE void *realloc_elsewhere(void *p, size_t size) {
    unsigned tag = TAG_SLAB;
    const int saved = errno;
    size_t old = object_bytes(p);
    if (old == 0) old = odd_bytes(HEAP_REALLOC, p, &tag);
    if (STRATA_UNLIKELY(tag == TAG_DEBUG)) return realloc_debugged(p, old, size);
    if (size == 0) {
        release(HEAP_REALLOC, p);
        return NULL;
    }
    void *moved = NULL;
    unsigned ties = 0; /* strata_page_alloc's may have */
    if (tag != TAG_BLOCK) {
        if (serves(old, size)) return p;
        size_t least = heap_is_debugged() ? size : old + old / GROWTH_SHARE; /* what is watched is what was asked for */
        if (size > old && size < least) moved = move_to_new(p, old, least, false);
        if (moved != NULL) return moved;
        errno = saved;
    } else {
        /* The same pages, as who appends often asks for: the difference is huge where size is more. Smaller ones become objects. */
        if (old - size < (size_t)heap.zone.page_granules << GRANULE_SHIFT && size > SIZE_CLASS_MAX_BYTES) return p;
        if (STRATA_UNLIKELY(size > HEAP_BYTES_MAX)) return heap_alloc_slow(size, NATURAL_ALIGN, NULL); /* which fails */
        if (size > old && heap_is_debugged() && debug_heap_refuses(size)) {
            errno = ENOMEM;
            return NULL;
        }
        ties = zone_block_ties(&heap.zone, p);
        if (size > SIZE_CLASS_MAX_BYTES || (ties & ZONE_FIXED) != 0) {
            void *resized = zone_block_resize(&heap.zone, p, size, true);
            maintenance_slow_call(true);
            maintenance_large_call();
            if (resized != NULL) return resized;
            if (size <= old) return p;
        }
        if (STRATA_UNLIKELY((ties & ZONE_FIXED) != 0)) {
            errno = ENOMEM;
            return NULL;
        }
    }
    moved = move_to_new(p, old, size, (ties & ZONE_WATCHED) != 0);
    return STRATA_LIKELY(moved != NULL) || size > old ? moved : shrink_in_place(p, tag, size, saved);
}

/* Where the object has room already, its tag alone says so: the address is looked at closer only when it is about to be let go. */
void *strata_realloc(void *p, size_t size) {
    if (p == NULL) return alloc(size);
    uintptr_t units = units_of(p);
    if (STRATA_LIKELY(in_heap(units) && size != 0)) {
        unsigned tag = tag_at(units);
        if (STRATA_LIKELY(is_size_class(tag)) && serves(slab_object_bytes(&heap.slabs, tag), size)) return p;
    }
    return realloc_elsewhere(p, size);
}
ALSO_AS(realloc, strata_realloc)
ALSO_AS_LIBC(__libc_realloc, strata_realloc)

STRATA_SELDOM void *strata_reallocarray(void *p, size_t count, size_t size) {
    size_t bytes;
    if (STRATA_UNLIKELY(!array_fits(count, size, &bytes))) return NULL;
    return strata_realloc(p, bytes);
}

#ifndef STRATA_NO_OVERRIDE
/* As in the C library, what it resizes is the process's realloc's: a program that has its own, and libraries that call this, are served by that. */
extern void *bound_realloc(void *p, size_t bytes) __asm__("realloc");
extern __typeof__(strata_reallocarray) reallocarray;
STRATA_EXPORT void *reallocarray(void *p, size_t count, size_t size) {
    size_t bytes;
    if (STRATA_UNLIKELY(!array_fits(count, size, &bytes))) return NULL;
    return bound_realloc(p, bytes);
}
#endif

/* An object of this CPU's array, aligned to a power of two. NULL, errno as it was: there is none, or it is no object. */
STRATA_INLINE void *pop_aligned(size_t alignment, size_t size) {
    if (STRATA_UNLIKELY(size >= heap_small_end() || alignment > GRANULE_BYTES)) return NULL;
    return cpu_pop(slab_class_of_aligned(&heap.slabs, size, alignment));
}

static void *alloc_aligned(size_t alignment, size_t size) {
    void *object = pop_aligned(alignment, size);
    return STRATA_LIKELY(object != NULL) ? object : heap_alloc_slow(size, alignment, NULL);
}

void *strata_aligned_alloc(size_t alignment, size_t size) {
    if (!is_power_of_two(alignment)) {
        errno = EINVAL;
        return NULL;
    }
    return alloc_aligned(alignment, size);
}
ALSO_AS(aligned_alloc, strata_aligned_alloc)

STRATA_SELDOM void *strata_memalign(size_t alignment, size_t size) {
    if (alignment > (SIZE_MAX >> 1) + 1) {
        errno = EINVAL;
        return NULL;
    }
    size_t power = NATURAL_ALIGN;
    while (power < alignment) power *= 2;
    return alloc_aligned(power, size);
}
ALSO_AS(memalign, strata_memalign)
ALSO_AS_LIBC(__libc_memalign, strata_memalign)

int strata_posix_memalign(void **out, size_t alignment, size_t size) {
    if (!is_power_of_two(alignment) || alignment % sizeof(void *) != 0) return EINVAL;
    void *p = pop_aligned(alignment, size);
    if (STRATA_UNLIKELY(p == NULL)) {
        const int saved = errno;
        p = heap_alloc_slow(size, alignment, NULL);
        errno = saved;
        if (p == NULL) return ENOMEM;
    }
    *out = p;
    return 0;
}
ALSO_AS(posix_memalign, strata_posix_memalign)
ALSO_AS_LIBC(__posix_memalign, strata_posix_memalign)

static size_t page_bytes(void) { return heap_init() ? platform_info()->page_bytes : GRANULE_BYTES; }

STRATA_COLD void *strata_valloc(size_t size) { return alloc_aligned(page_bytes(), size); }
ALSO_AS(valloc, strata_valloc)
ALSO_AS_LIBC(__libc_valloc, strata_valloc)

STRATA_COLD void *strata_pvalloc(size_t size) {
    size_t page = page_bytes();
    if (size > HEAP_BYTES_MAX - page) {
        errno = ENOMEM;
        return NULL;
    }
    return alloc_aligned(page, size == 0 ? page : align_up(size, page));
}
ALSO_AS(pvalloc, strata_pvalloc)
ALSO_AS_LIBC(__libc_pvalloc, strata_pvalloc)

static STRATA_NOINLINE size_t odd_usable_size(void *p) {
    unsigned tag;
    size_t bytes = p == NULL ? 0 : odd_bytes(HEAP_USABLE_SIZE, p, &tag);
    return bytes != SIZE_MAX ? bytes : 0;
}

size_t strata_malloc_usable_size(void *p) {
    size_t bytes = object_bytes(p);
    return STRATA_LIKELY(bytes != 0) ? bytes : odd_usable_size(p);
}
ALSO_AS(malloc_usable_size, strata_malloc_usable_size)
