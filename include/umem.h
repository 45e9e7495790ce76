/*
 * umem.h - the names of illumos's libumem, for programs that were written for it: libstrata-umem, on strata's caches.
 *
 * Source-compatible with the manual pages umem_alloc(3MALLOC), umem_cache_create(3MALLOC), umem_setmtbf(3MALLOC) and umem_debug(3MALLOC): same names,
 * types and values of flags. Valid in C99, C11 and C++. As libumem does, the library makes strata the malloc of the program. New programs rather use
 * <strata/kmem.h> and <strata/cache.h>.
 *
 * The environment: UMEM_DEBUG and UMEM_LOGGING are read at the start, and become features and logs of <strata/debug.h>, for all caches; where they
 * are not set, what the program's functions _umem_debug_init and _umem_logging_init return (const char *, no arguments) takes their place. What can't
 * be used there, and what has no effect here of UMEM_OPTIONS, is one warning on standard error each. libstrata-umem(3) has the lists.
 *
 * For all functions, where nothing else is said: any thread may call them, also before main, and may free what another allocated; fork: as
 * <strata/malloc.h> says; not for signal handlers; cost: that of what they stand on, named with each.
 */
#ifndef STRATA_UMEM_H
#define STRATA_UMEM_H

#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/vmem.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of an allocation. */
#define UMEM_DEFAULT 0x0000 /* NULL where there is no memory */
#define UMEM_NOFAIL 0x0100  /* the callback decides: see umem_nofail_callback */
#define UMEM_FLAGS 0xffff

/*
 * umem_alloc - a block of `size` bytes, aligned to 16. NULL for size 0, and with UMEM_DEFAULT where there is no memory (errno ENOMEM).
 * On strata_kmem_alloc.
 */
extern void *umem_alloc(size_t size, int flags);
/* umem_zalloc - the same, all zero. */
extern void *umem_zalloc(size_t size, int flags);
/*
 * umem_free - gives a block back. size: as it was asked for; another one is found as <strata/kmem.h> says. Of a block of up to 32 KiB: with
 * UMEM_DEBUG every other size, at once; else one of another class, in time. Of a larger block: one that takes another number of pages, at once
 * with UMEM_DEBUG, and without where it is above 32 KiB itself; one of as many pages never. NULL: does nothing.
 */
extern void umem_free(void *buf, size_t size);
/* umem_alloc_align - a block at a multiple of align, a power of two; 0: 16; any other: NULL, errno EINVAL. For umem_free_align only. */
extern void *umem_alloc_align(size_t size, size_t align, int flags);
extern void umem_free_align(void *buf, size_t size);

/* What the callback returns: try again, or exit(status). */
#define UMEM_CALLBACK_RETRY 0
#define UMEM_CALLBACK_EXIT(status) (0x100 | ((status) & 0xff))
typedef int umem_nofail_callback_t(void);
/*
 * umem_nofail_callback - sets the function that is called where an allocation with UMEM_NOFAIL finds nothing; NULL: exit(255), as without one.
 *
 * It runs on the thread that allocates, with no lock held, several at a time; it may longjmp, or end its thread. What it returns beside the two
 * values above counts as UMEM_CALLBACK_EXIT(255), with one line on standard error. One thread calls exit; others that want to wait for ever.
 */
extern void umem_nofail_callback(umem_nofail_callback_t *callback);

/* ------------------------------------------------------------------ object caches */

/* Of a cache. Other bits mean nothing, and are no mistake, as there; so for those of an allocation. */
#define UMC_NOTOUCH 0x00010000    /* nothing is written into free objects: never is, and UMEM_DEBUG leaves the cache alone */
#define UMC_NODEBUG 0x00020000    /* UMEM_DEBUG leaves the cache alone */
#define UMC_NOMAGAZINE 0x00040000 /* nothing is kept constructed */
#define UMC_NOHASH 0x00080000     /* of libumem's structures: means nothing here */

typedef struct umem_cache umem_cache_t;
/*
 * Makes an object of raw memory. flags: to be passed on; UMEM_DEFAULT, whatever the allocation has: it sees to UMEM_NOFAIL itself. Returns 0, or
 * something else where it can't: then it has undone what it did.
 */
typedef int umem_constructor_t(void *buf, void *callback_data, int flags);
typedef void umem_destructor_t(void *buf, void *callback_data);
/*
 * Asks the program to free objects that it can do without: as `reclaim` in <strata/cache.h> says, and in umem_reap. So it may run on a thread that is
 * in umem_cache_alloc, of this cache or another. That of a cache of objects of more than STRATA_CACHE_OBJECT_MAX is a handler of <strata/pressure.h>
 * instead, on strata's own thread. Runs once at a time for each cache; may use all caches, but must not destroy its own: one line on standard error
 * and abort().
 */
typedef void umem_reclaim_t(void *callback_data);

/*
 * umem_cache_create - a cache of objects that stay constructed while nobody uses them.
 *
 * debug_name: for messages and statistics, copied. bufsize: bytes; objects of more than STRATA_CACHE_OBJECT_MAX are constructed each time. align: a
 * power of two up to the system's page; 0: 16. source: an arena that slabs come from; NULL: the heap. Where it was created with VMC_IDENTIFIER,
 * UMC_NOTOUCH is meant; a program whose arena holds integers that are no memory, and doesn't say so there, has to pass it. cflags: 0, or UMC_ flags.
 * Returns the cache; NULL and errno EINVAL (debug_name NULL, bufsize 0, align), EAGAIN (no memory for the cache) or ENOMEM (bufsize above
 * PTRDIFF_MAX). On strata_cache_create.
 */
extern umem_cache_t *umem_cache_create(const char *debug_name, size_t bufsize, size_t align, umem_constructor_t *constructor,
                                       umem_destructor_t *destructor, umem_reclaim_t *reclaim, void *callback_data, vmem_t *source, int cflags);
/*
 * umem_cache_destroy - ends a cache. How many objects were not freed is said in one line on standard error; their memory is gone. NULL: does nothing.
 * Waits for its reclaim function where that runs. A cache that was destroyed: one line on standard error and abort(), as long as its memory is nobody
 * else's; so for alloc and free, and there for NULL.
 */
extern void umem_cache_destroy(umem_cache_t *cache);
/*
 * umem_cache_alloc - an object, constructed. NULL, with UMEM_DEFAULT, where there is no memory or the constructor refused; with UMEM_NOFAIL the
 * callback decides in both cases, and runs outside of the constructor. Several objects may be constructed for one that is wanted: one that succeeds
 * serves.
 */
extern void *umem_cache_alloc(umem_cache_t *cache, int flags);
/*
 * umem_cache_free - gives an object back, in its constructed state. NULL: does nothing. What is no object of the cache, or free already, ends the
 * process with one line: at once above STRATA_CACHE_OBJECT_MAX, below it as <strata/cache.h> says.
 */
extern void umem_cache_free(umem_cache_t *cache, void *buf);

/*
 * umem_reap - calls the reclaim functions of all caches, destructs what is cached then, and gives idle memory back to the system.
 *
 * They run on this thread, with no lock of the library's held; those that are running already, on whatever thread, are left out, and where it is
 * called by one of them, all are. A cache that is destroyed meanwhile waits for its own to return. On strata_cache_reap and strata_release.
 */
extern void umem_reap(void);

/*
 * umem_setmtbf - from now on one allocation in about `threshold` fails, of malloc, too; 1: all; 0: none. Only where UMEM_DEBUG has switched something
 * on. Not those with UMEM_NOFAIL, nor from caches that debugging leaves alone, nor what this library has for itself: caches and arenas are created.
 * On strata_debug_set.
 */
extern void umem_setmtbf(uint32_t threshold);

#ifdef __cplusplus
}
#endif

#endif
