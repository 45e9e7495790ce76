/*
 * strata/malloc.h - the malloc family under names of its own, for programs that link strata without replacing malloc.
 *
 * Each strata_NAME is what NAME is in a program that runs under strata: same heap, same options, same behaviour. A block may be
 * allocated by one and freed by another of these functions, and by their plain namesakes where strata is the process's malloc (gcc
 * warns of that, as it can't know which malloc that will be); never by those of another malloc. Valid in C11 and C++.
 *
 * For all of them:
 *   - threads: any thread may call, and may free what another allocated; also before main and after exit handlers have run;
 *   - fork: a child of fork may call them at once, also where the parent had other threads;
 *   - signals: not for signal handlers, as elsewhere;
 *   - blocks are aligned to 16 bytes at least; their contents are undefined unless the function says so;
 *   - size 0 is a block of its own, with a pointer that is not NULL and may be freed;
 *   - on failure they return NULL and set errno to ENOMEM: sizes above PTRDIFF_MAX always fail, others where the system has
 *     no memory, or the option hard_limit forbids more. On success, and in every way of freeing, errno stays as it was;
 *   - a pointer that is not the start of a live block ends the process with one line on standard error, "strata: free(): ...";
 *   - cost: up to 32 KiB or so some nanoseconds from a cache of the CPU, without a lock; above that a microsecond or so, and pages that the
 *     heap does not have yet cost what the system takes for them.
 */
#ifndef STRATA_MALLOC_H
#define STRATA_MALLOC_H

#include <stddef.h>
#include <stdio.h>

#include <strata/strata.h>

/* For the compiler: n-th argument is the size; two arguments multiply; the n-th is the alignment; the result matters. */
#if defined(__GNUC__)
#define STRATA_ALLOC_SIZE(n) __attribute__((alloc_size(n)))
#define STRATA_ALLOC_SIZE2(n, m) __attribute__((alloc_size(n, m)))
#define STRATA_ALLOC_ALIGN(n) __attribute__((alloc_align(n)))
#define STRATA_NODISCARD __attribute__((warn_unused_result))
#else
#define STRATA_ALLOC_SIZE(n)
#define STRATA_ALLOC_SIZE2(n, m)
#define STRATA_ALLOC_ALIGN(n)
#define STRATA_NODISCARD
#endif
/* What every function has that returns a new block: nothing else points to it. gcc is also told who frees it, and warns of others. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
#define STRATA_ALLOCATOR STRATA_NODISCARD __attribute__((malloc, malloc(strata_free, 1)))
#elif defined(__GNUC__)
#define STRATA_ALLOCATOR STRATA_NODISCARD __attribute__((malloc))
#else
#define STRATA_ALLOCATOR
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ giving back */

/*
 * strata_free - gives a block back. NULL: does nothing. errno stays as it was.
 *
 * p: what one of the allocating functions below returned, not freed since. Its contents are undefined from now on.
 */
STRATA_API void strata_free(void *p) STRATA_NOEXCEPT;

/*
 * strata_free_sized - strata_free for a block whose size the caller knows (C23).
 *
 * size: what was asked of strata_malloc, strata_calloc (the product), strata_realloc or strata_reallocarray (the product); another size is an
 * error of the caller, which is not always seen. Not for blocks of the functions that take an alignment.
 */
STRATA_API void strata_free_sized(void *p, size_t size) STRATA_NOEXCEPT;

/*
 * strata_free_aligned_sized - strata_free for a block of strata_aligned_alloc (C23), with the alignment and size that were asked for.
 */
STRATA_API void strata_free_aligned_sized(void *p, size_t alignment, size_t size) STRATA_NOEXCEPT;

/* ------------------------------------------------------------------ allocating */

/* strata_malloc - a block of `size` bytes. NULL and ENOMEM on failure. */
STRATA_API void *strata_malloc(size_t size) STRATA_NOEXCEPT STRATA_ALLOCATOR STRATA_ALLOC_SIZE(1);

/*
 * strata_calloc - a block for `count` elements of `size` bytes, all zero. NULL and ENOMEM on failure, also where the product overflows.
 *
 * Pages that are known to be zero, such as those fresh from the system, are not written again.
 */
STRATA_API void *strata_calloc(size_t count, size_t size) STRATA_NOEXCEPT STRATA_ALLOCATOR STRATA_ALLOC_SIZE2(1, 2);

/*
 * strata_realloc - changes the size of a block, keeping its contents up to the smaller of both sizes.
 *
 * p: a block, or NULL, which makes it strata_malloc(size). size: 0 with a block frees it and returns NULL.
 * Returns the block's new address, which may be the old one; then `p` is no longer valid. NULL and ENOMEM on failure: the block stays as it is.
 * An alignment that was asked for at allocation is not kept where the block moves. Large blocks grow in place or move by their page
 * tables where that is cheaper than copying.
 */
STRATA_API void *strata_realloc(void *p, size_t size) STRATA_NOEXCEPT STRATA_NODISCARD STRATA_ALLOC_SIZE(2);

/*
 * strata_reallocarray - strata_realloc to `count` elements of `size` bytes. Where the product overflows: NULL and ENOMEM, the block stays as it is.
 */
STRATA_API void *strata_reallocarray(void *p, size_t count, size_t size) STRATA_NOEXCEPT STRATA_NODISCARD STRATA_ALLOC_SIZE2(2, 3);

/*
 * strata_aligned_alloc - a block of `size` bytes whose address is a multiple of `alignment`.
 *
 * alignment: a power of two; any other gives NULL and EINVAL. size need not be a multiple of it. NULL and ENOMEM where there is no memory.
 */
STRATA_API void *strata_aligned_alloc(size_t alignment, size_t size) STRATA_NOEXCEPT STRATA_ALLOCATOR STRATA_ALLOC_ALIGN(1) STRATA_ALLOC_SIZE(2);

/*
 * strata_memalign - as strata_aligned_alloc, but an alignment that is no power of two counts as the next one.
 *
 * NULL and EINVAL where there is no such power in a size_t.
 */
STRATA_API void *strata_memalign(size_t alignment, size_t size) STRATA_NOEXCEPT STRATA_ALLOCATOR STRATA_ALLOC_SIZE(2);

/*
 * strata_posix_memalign - stores a block of `size` bytes at a multiple of `alignment` in *out.
 *
 * alignment: a power of two and a multiple of sizeof(void *).
 * Returns 0, or EINVAL (alignment) or ENOMEM; then *out is as it was. errno stays as it was in every case.
 */
STRATA_API int strata_posix_memalign(void **out, size_t alignment, size_t size) STRATA_NOEXCEPT STRATA_NODISCARD;

/* strata_valloc - a block of `size` bytes at the start of a page. NULL and ENOMEM on failure. Superseded by strata_aligned_alloc. */
STRATA_API void *strata_valloc(size_t size) STRATA_NOEXCEPT STRATA_ALLOCATOR STRATA_ALLOC_SIZE(1);

/* strata_pvalloc - strata_valloc with the size rounded up to whole pages, one page at least. */
STRATA_API void *strata_pvalloc(size_t size) STRATA_NOEXCEPT STRATA_ALLOCATOR;

/*
 * strata_malloc_usable_size - how many bytes of the block may be used: what was asked for, or more. 0 for NULL.
 *
 * Using more than was asked for is allowed here, but compilers may rely on the size in the call; strata_realloc first is the clean way.
 */
STRATA_API size_t strata_malloc_usable_size(void *p) STRATA_NOEXCEPT;

/* ------------------------------------------------------------------ the heap as a whole */

/*
 * strata_malloc_trim - hands idle memory back to the system: strata_release(pad) of <strata/strata.h>, with malloc_trim's result.
 *
 * pad: bytes of idle memory that may stay. Returns 1 where memory went back, else 0.
 */
STRATA_API int strata_malloc_trim(size_t pad) STRATA_NOEXCEPT;

/*
 * The figures of mallinfo2, with the layout that glibc gives them. What describes mechanisms that strata doesn't have is 0.
 * All in bytes but hblks, ordblks and smblks, which are counts.
 */
struct strata_mallinfo2 {
    size_t arena;    /* populated memory without large blocks */
    size_t ordblks;  /* free objects in slabs */
    size_t smblks;   /* free objects in CPU caches and depots */
    size_t hblks;    /* large blocks */
    size_t hblkhd;   /* bytes in them */
    size_t usmblks;  /* 0 */
    size_t fsmblks;  /* bytes in CPU caches and depots */
    size_t uordblks; /* bytes in use, large blocks not counted */
    size_t fordblks; /* bytes free: the rest of `arena` */
    size_t keepcost; /* bytes that strata_malloc_trim(0) could hand back now: idle populated pages */
};

/* The same in int, as mallinfo has it: a figure above INT_MAX is INT_MAX. */
struct strata_mallinfo {
    int arena;
    int ordblks;
    int smblks;
    int hblks;
    int hblkhd;
    int usmblks;
    int fsmblks;
    int uordblks;
    int fordblks;
    int keepcost;
};

/*
 * strata_mallinfo2, strata_mallinfo - figures of the heap in one struct. Never fail. The figures are read while other threads run and may be
 * some operations apart. Cost: microseconds, the lock of each cache in turn.
 */
STRATA_API struct strata_mallinfo2 strata_mallinfo2(void) STRATA_NOEXCEPT;
STRATA_API struct strata_mallinfo strata_mallinfo(void) STRATA_NOEXCEPT;

/*
 * strata_malloc_info - writes the state of the heap as an XML document, <malloc version="strata-1">, with the elements of glibc's.
 *
 * options: 0; any other value gives -1 and EINVAL. stream: open for writing; its own locking applies.
 * Returns 0, or -1 with the stream's error in errno where it did not take all of the text.
 * A thread may be cancelled in it, as in other output to a stream.
 */
STRATA_API int strata_malloc_info(int options, FILE *stream);

/* strata_malloc_stats - writes the table of strata_stats_table to standard error. */
STRATA_API void strata_malloc_stats(void);

/*
 * strata_mallopt - accepts the parameters that <malloc.h> names, without effect: they tune mechanisms that strata doesn't have. Its own
 * options are those of STRATA_CONF.
 *
 * Returns 1 for a parameter that is known, else 0.
 */
STRATA_API int strata_mallopt(int parameter, int value) STRATA_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
