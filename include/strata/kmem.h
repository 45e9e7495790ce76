/*
 * strata/kmem.h - malloc as kernels have it: who frees says the size, and a size that is known when the program is compiled costs no look-up.
 *
 * Blocks are those of strata_malloc, from the same caches and in the same statistics; what differs is who knows their size. free finds it out from
 * the address, by two loads that depend on each other. strata_kmem_free is told it. A cookie goes further: it names the cache itself, and the macro
 * STRATA_KMEM_COOKIE makes it out of a constant size, so that neither allocating nor freeing looks anything up.
 *
 * That the caller knows the size is a promise. A block that is freed with another size, or with a cookie of another, ends up in the wrong cache, and
 * so does a pointer that is no block at all. It is seen, and ends the process (SIGABRT) with one line on standard error, where the free takes the
 * slow path, when the block leaves the arrays of the CPU for its slab, and at once where the size that is said is above STRATA_KMEM_COOKIE_MAX; until
 * then it may be handed out again, for the wrong size. A size of the same class, or of the same number of pages, is as good as the right one, and is
 * not seen. A library that was built for debugging (CMake's build type Debug) looks at every free, and so does any other with the option
 * magazine_max:0. So does a free that says a size whose class is debugged (<strata/debug.h>). A debugged block knows what was asked for: any other
 * size, or for one that a cookie asked for any other than those of its class, is reported there as other errors of debugged buffers are, and
 * STRATA_DEBUG_CONTINUE lets the process go on, the block as it was. One that is freed by the size of a class that isn't debugged is seen no sooner
 * than others. Blocks above STRATA_KMEM_COOKIE_MAX are never debugged.
 *
 * For all functions, where nothing else is said:
 *   - sizes are in bytes; alignment, threads, fork, signals and cost are those of strata_malloc and strata_free (<strata/malloc.h>), each without the
 * look-up of a class by its size or by its address. Debugging of some size classes costs the frees of others nothing;
 *   - size 0 is a block of its own, that has to be freed with size 0;
 *   - strata_free and the other functions of <strata/malloc.h> take these blocks too, and strata_kmem_free those of strata_malloc and strata_calloc
 * (the product) with the size that was asked for. Blocks of strata_realloc and of functions with an alignment are for strata_free alone;
 *   - on failure they return NULL and set errno to ENOMEM; otherwise errno stays as it was.
 * Valid in C11 and C++11.
 *
 * The design follows McKenney, Slingwine, Krueger, "Experience With an Efficient Parallel Kernel Memory Allocator", sections 3.3.5 (cookies) and 4.1;
 * section 5.4 says why a kernel did without them: each call is larger than one of the plain function, and pays for it with misses of the cache for
 * instructions. Here both are calls, of equal size.
 */
#ifndef STRATA_KMEM_H
#define STRATA_KMEM_H

#include <stddef.h>
#include <stdint.h>

#include <strata/strata.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How an allocation goes on where there is no memory. Any other bit ends the process (SIGABRT), with one line on standard error. */
enum strata_kmem_flags {
    STRATA_KMEM_NO_SLEEP = 0, /* it fails */
    STRATA_KMEM_SLEEP = 1,    /* it tries again, at intervals of 1 to 64 ms, until there is some: NULL for sizes above PTRDIFF_MAX only */
};

/*
 * strata_kmem_alloc - a block of `size` bytes, whose contents are undefined.
 *
 * flags: enum strata_kmem_flags. Returns its start; NULL and ENOMEM on failure. (Section 3.2.)
 */
STRATA_API void *strata_kmem_alloc(size_t size, unsigned flags) STRATA_NOEXCEPT;

/*
 * strata_kmem_zalloc - the same, all zero. Cost: also linear in the bytes that have to be cleared; as for strata_calloc, pages known to be zero are
 * not written.
 */
STRATA_API void *strata_kmem_zalloc(size_t size, unsigned flags) STRATA_NOEXCEPT;

/*
 * strata_kmem_free - gives a block back. NULL: does nothing, whatever the size.
 *
 * p: a live block. size: as it was asked for; see above for what happens with another.
 */
STRATA_API void strata_kmem_free(void *p, size_t size) STRATA_NOEXCEPT;

/* ------------------------------------------------------------------ cookies */

/* Names the cache that serves a size. 0 names none. */
typedef uint32_t strata_kmem_cookie;

/* The largest size that there are cookies for; the smallest is 1. */
#define STRATA_KMEM_COOKIE_MAX 32768
/*
 * The version of the map from sizes to caches that STRATA_KMEM_COOKIE follows. It changes where the map does. A cookie says which it is of, and the
 * library takes its own only: a program that was compiled for another is ended at its first cookie, with one line that names both versions.
 */
#define STRATA_KMEM_MAP 1

/*
 * Of the map: multiples of 16 up to 256; from there on nine caches to each doubling (d of them lie below): one a little above the power of two, then
 * eight equal steps.
 */
#define STRATA_KMEM_DOUBLINGS_(size) (((size) > 512) + ((size) > 1024) + ((size) > 2048) + ((size) > 4096) + ((size) > 8192) + ((size) > 16384))
#define STRATA_KMEM_LITTLE_(d) ((d) < 3 ? 16u : (20u << (d)) & ~63u)
#define STRATA_KMEM_STEP_(above, d) ((above) <= STRATA_KMEM_LITTLE_(d) ? 0u : ((above) + (32u << (d)) - 1u) >> (5 + (d)))
#define STRATA_KMEM_LARGE_CLASS_(size, d) (16u + 9u * (unsigned)(d) + STRATA_KMEM_STEP_((unsigned)(size) - (256u << (d)), d))
#define STRATA_KMEM_CLASS_(size) ((size) <= 256 ? ((unsigned)(size) + 15u) / 16u - 1u : STRATA_KMEM_LARGE_CLASS_(size, STRATA_KMEM_DOUBLINGS_(size)))
#define STRATA_KMEM_COOKIE_OF_(size) ((strata_kmem_cookie)((uint32_t)STRATA_KMEM_MAP << 16 | STRATA_KMEM_CLASS_(size)))
#define STRATA_KMEM_HAS_COOKIE_(size) ((size) >= 1 && (size) <= STRATA_KMEM_COOKIE_MAX)

/*
 * STRATA_KMEM_COOKIE(size) - the cookie of a size, as a constant expression: for static tables and initialisers too.
 *
 * size: a constant expression, 1 to STRATA_KMEM_COOKIE_MAX; with any other the program doesn't compile. (Section 3.3.5.)
 */
#ifdef __cplusplus
extern "C++" {
template <unsigned long long size> struct strata_kmem_cookie_of_size {
    static_assert(STRATA_KMEM_HAS_COOKIE_(size), "STRATA_KMEM_COOKIE is for sizes of 1 to STRATA_KMEM_COOKIE_MAX");
    enum : strata_kmem_cookie { value = STRATA_KMEM_COOKIE_OF_(size) };
};
}
#define STRATA_KMEM_COOKIE(size) (static_cast<strata_kmem_cookie>(strata_kmem_cookie_of_size<(size)>::value))
#else
#define STRATA_KMEM_COOKIE(size)                         \
    ((strata_kmem_cookie)(STRATA_KMEM_COOKIE_OF_(size) + \
                          0 * sizeof(struct { int size_is_a_constant_from_1_to_STRATA_KMEM_COOKIE_MAX : STRATA_KMEM_HAS_COOKIE_(size) ? 1 : -1; })))
#endif

/*
 * strata_kmem_cookie_of - the same for a size that is known at run time only, to be asked once and kept. 0 where there is none: for size 0 and above
 * STRATA_KMEM_COOKIE_MAX. Cost: constant. (Section 3.3.5: kmem_alloc_get_cookie.)
 */
STRATA_API strata_kmem_cookie strata_kmem_cookie_of(size_t size) STRATA_NOEXCEPT;

/*
 * strata_kmem_cookie_alloc - strata_kmem_alloc for the largest size that has this cookie: 112 bytes where the cookie was made of 100.
 *
 * cookie: one of a size; any other ends the process (SIGABRT) with one line. flags, result: as there. (Section 3.3.5.)
 */
STRATA_API void *strata_kmem_cookie_alloc(strata_kmem_cookie cookie, unsigned flags) STRATA_NOEXCEPT;

/*
 * strata_kmem_cookie_free - strata_kmem_free for a block of strata_kmem_cookie_alloc with the same cookie, or of strata_kmem_alloc with a size that
 * has it. cookie: as there, for NULL too, which does nothing else. (Section 3.3.5.)
 */
STRATA_API void strata_kmem_cookie_free(strata_kmem_cookie cookie, void *p) STRATA_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
