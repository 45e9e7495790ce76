/*
 * strata/malloc.h - the malloc family under names of its own, for programs that call strata whatever their malloc is.
 *
 * Each strata_NAME is what NAME is in a program whose malloc is strata's: same heap, same options, same behaviour. libstrata has both
 * names; libstrata-only has just these, and leaves the program's malloc alone. A block may be allocated by one and freed by another of these
 * functions, and by their plain namesakes where strata is the process's malloc (gcc warns of that, as it can't know which malloc that will be);
 * never by those of another malloc. Valid in C11 and C++.
 *
 * For all of them, where nothing else is said:
 *   - sizes and alignments are in bytes;
 *   - threads: any thread may call, and may free what another allocated; also before main and after exit handlers have run. Two threads must
 *     not free or resize one block at a time;
 *   - fork: a child of fork may call them at once, also where the parent had other threads, and has its own copy of every block. One that is made
 *     without the handlers of fork (_Fork, the system calls fork and clone) may where the parent had one thread; strata's own counts, which runs
 *     beside a heap that has passed 64 MiB (docs/options.md, background): else a lock may be held in the child by a thread that it doesn't have;
 *   - signals: not async-signal-safe, as POSIX has it for malloc. Where restartable sequences are in use, a handler may interrupt the fast path of
 *     strata_malloc and strata_free at any instruction and call both. But a handler that interrupts a slow path which holds a lock can deadlock
 *     when its own call needs that lock. With per-thread caches not even the fast path may be interrupted so;
 *   - blocks are aligned to 16 bytes at least; their contents are undefined unless the function says so;
 *   - size 0 is a block of its own, with a pointer that is not NULL and may be freed;
 *   - on failure they return NULL and set errno to ENOMEM: sizes above PTRDIFF_MAX always fail, others where the system has
 *     no memory, or the option hard_limit forbids more. On success, and in every way of freeing, errno stays as it was;
 *   - a pointer that is not the start of a live block ends the process (SIGABRT) with one line on standard error, "strata: free(): ...". At once
 *     where the pointer is outside the heap, no multiple of 16, or in memory where no small object is, as when a large block is freed again. For
 *     a small object, a second free and a pointer to its inside are found out when they leave the caches and reach the object's slab, which may
 *     be later, in another thread, or never where the process ends before. strata_malloc_usable_size finds the inside at once, strata_realloc
 *     where it moves the block;
 *   - cost: small blocks, up to 32 KiB: constant. The fast path takes a block from the array of the CPU (or thread) or puts it there, without a
 *     lock; one call in half an array's rounds moves that many to or from the depot or the slabs, under the lock of the size class. Large
 *     blocks: one lock for the heap, constant up to 1 MiB, above that linear in the size in units of 2 MiB. Pages that the heap doesn't have
 *     yet cost what the system takes for them, at the first touch or before. Now and then a slow path also does maintenance:
 *     linear in the number of size classes and of object caches, and in what it gives back.
 *
 * The design follows, for the arrays and the depot: Bonwick, Adams, "Magazines and Vmem" (2001), section 3, with transfers of half an array after
 * Vee, Hsu, "A Scalable and Efficient Storage Allocator on Shared-Memory Multiprocessors", Theorem 2.5; for slabs: Bonwick, "The Slab Allocator"
 * (1994), with the order of McKenney, Slingwine, Krueger, "Experience With an Efficient Parallel Kernel Memory Allocator", section 3.3.3;
 * for the address space: "Magazines and Vmem", section 4; for present pages and remapping: Douglas, "User Mode Memory Page
 * Allocation"; for the placement of pages: Gorman, Whitcroft, "Supporting the Allocation of Large Contiguous Regions of Memory".
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
 * Cost: as above; a large block also costs the system call that hands it back where the heap is over the option soft_limit, else none.
 */
STRATA_API void strata_free(void *p) STRATA_NOEXCEPT;

/*
 * strata_free_sized - strata_free for a block whose size the caller knows (C23).
 *
 * p: as for strata_free, NULL included.
 * size: bytes; what was asked of strata_malloc, strata_calloc (the product), strata_realloc or strata_reallocarray (the product); another size is an
 * error of the caller, which strata doesn't look for but in debugged buffers (<strata/debug.h>). Not for blocks of the functions that take an
 * alignment. Cost: that of strata_free.
 */
STRATA_API void strata_free_sized(void *p, size_t size) STRATA_NOEXCEPT;

/*
 * strata_free_aligned_sized - strata_free for a block of strata_aligned_alloc (C23).
 *
 * p: as for strata_free, NULL included. alignment, size: bytes; what was asked of strata_aligned_alloc; others are an error of the caller, which
 * strata doesn't look for but in debugged buffers, and there for the size. Cost: that of strata_free.
 */
STRATA_API void strata_free_aligned_sized(void *p, size_t alignment, size_t size) STRATA_NOEXCEPT;

/* ------------------------------------------------------------------ allocating */

/*
 * strata_malloc - a block of `size` bytes.
 *
 * Returns its start; NULL and ENOMEM on failure. Cost: as above. ("Magazines and Vmem", section 3.1, for the way through the layers.)
 */
STRATA_API void *strata_malloc(size_t size) STRATA_NOEXCEPT STRATA_ALLOCATOR STRATA_ALLOC_SIZE(1);

/*
 * strata_calloc - a block for `count` elements of `size` bytes, all zero. NULL and ENOMEM on failure, also where the product overflows.
 *
 * Cost: that of strata_malloc, and linear in the bytes that have to be cleared. Of blocks above 32 KiB those that consist of pages known to be zero,
 * such as those fresh from the system, are not written. (Douglas, section 2: no clearing without need.)
 */
STRATA_API void *strata_calloc(size_t count, size_t size) STRATA_NOEXCEPT STRATA_ALLOCATOR STRATA_ALLOC_SIZE2(1, 2);

/*
 * strata_realloc - changes the size of a block, keeping its contents up to the smaller of both sizes.
 *
 * p: a block, or NULL, which makes it strata_malloc(size). size: bytes; 0 with a block frees it and returns NULL.
 * Returns the block's new address, which may be the old one; then `p` is no longer valid. NULL and ENOMEM on failure: the block stays as it is.
 * An alignment that was asked for at allocation is not kept where the block moves. A block that shrinks does not fail for want of memory: where there
 * is none for a smaller one, the old one serves (but for debugged buffers, which always move).
 * Cost: constant where a small block stays in its size class, or shrinks to half of it at most. Large blocks shrink in place, and grow in place
 * where what lies behind is free; else they get a new address by their page tables: linear in the pages, but without reading them. Up to 2 MiB only
 * where a copy would have to touch fresh pages: to present ones they are copied, as is what is left: linear in the smaller of both sizes. (Douglas,
 * section 3.2: block resizing.)
 */
STRATA_API void *strata_realloc(void *p, size_t size) STRATA_NOEXCEPT STRATA_NODISCARD STRATA_ALLOC_SIZE(2);

/*
 * strata_reallocarray - strata_realloc to `count` elements of `size` bytes. Where the product overflows: NULL and ENOMEM, the block stays as it is.
 *
 * p, result and cost: those of strata_realloc; a product of 0 frees the block.
 */
STRATA_API void *strata_reallocarray(void *p, size_t count, size_t size) STRATA_NOEXCEPT STRATA_NODISCARD STRATA_ALLOC_SIZE2(2, 3);

/*
 * strata_aligned_alloc - a block of `size` bytes whose address is a multiple of `alignment`.
 *
 * alignment: bytes, a power of two; any other gives NULL and EINVAL. size: bytes; need not be a multiple of it. NULL and ENOMEM where there is no
 * memory. Cost: that of strata_malloc, and a search of at most all size classes where the alignment is above 16; above 4 KiB it is a large
 * block, whatever the size. ("Magazines and Vmem", section 4.3.2, for constrained allocation of addresses.)
 */
STRATA_API void *strata_aligned_alloc(size_t alignment, size_t size) STRATA_NOEXCEPT STRATA_ALLOCATOR STRATA_ALLOC_ALIGN(1) STRATA_ALLOC_SIZE(2);

/*
 * strata_memalign - as strata_aligned_alloc, but an alignment that is no power of two counts as the next one.
 *
 * alignment, size: bytes. NULL and EINVAL where there is no such power in a size_t; NULL and ENOMEM where there is no memory. Cost: that of
 * strata_aligned_alloc.
 */
STRATA_API void *strata_memalign(size_t alignment, size_t size) STRATA_NOEXCEPT STRATA_ALLOCATOR STRATA_ALLOC_SIZE(2);

/*
 * strata_posix_memalign - stores a block of `size` bytes at a multiple of `alignment` in *out.
 *
 * alignment: bytes, a power of two and a multiple of sizeof(void *). size: bytes.
 * Returns 0, or EINVAL (alignment) or ENOMEM; then *out is as it was. errno stays as it was in every case. Cost: that of strata_aligned_alloc.
 */
STRATA_API int strata_posix_memalign(void **out, size_t alignment, size_t size) STRATA_NOEXCEPT STRATA_NODISCARD;

/*
 * strata_valloc - a block of `size` bytes at the start of a page of the system. NULL and ENOMEM on failure. Superseded by strata_aligned_alloc,
 * whose cost it has.
 */
STRATA_API void *strata_valloc(size_t size) STRATA_NOEXCEPT STRATA_ALLOCATOR STRATA_ALLOC_SIZE(1);

/* strata_pvalloc - strata_valloc with the size (bytes) rounded up to whole pages, one page at least. NULL and ENOMEM on failure. */
STRATA_API void *strata_pvalloc(size_t size) STRATA_NOEXCEPT STRATA_ALLOCATOR;

/*
 * strata_malloc_usable_size - how many bytes of the block may be used: what was asked for, or more. 0 for NULL.
 *
 * Using more than was asked for is allowed here, but compilers may rely on the size in the call; strata_realloc first is the clean way.
 * p: a block or NULL. Returns bytes. Cost: constant, no lock for small blocks and large ones.
 */
STRATA_API size_t strata_malloc_usable_size(void *p) STRATA_NOEXCEPT;

/* ------------------------------------------------------------------ the heap as a whole */

/*
 * strata_malloc_trim - hands idle memory back to the system: strata_release(pad) of <strata/strata.h>, with malloc_trim's result.
 *
 * pad: bytes of idle memory that may stay. Returns 1 where memory went back, else 0. With per-thread caches: see there.
 * Cost: that of strata_release.
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
    size_t uordblks; /* bytes in use, object caches' among them, large blocks not counted; all memory of fixed pools is in use */
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
 * strata_mallinfo2, strata_mallinfo - figures of the heap in one struct; all zero where there is no heap. Never fail; errno stays as it was.
 *
 * The figures are read while other threads run and may be some operations apart. Cost: linear in the number of size classes and object caches times
 * that of CPUs (with per-thread caches: threads), and in the magazines that wait in depots; the locks of each class are taken in turn.
 */
#if defined(__cplusplus) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow" /* the functions have the names of their structs, as in <malloc.h> */
#endif
STRATA_API struct strata_mallinfo2 strata_mallinfo2(void) STRATA_NOEXCEPT;
STRATA_API struct strata_mallinfo strata_mallinfo(void) STRATA_NOEXCEPT;
#if defined(__cplusplus) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

/*
 * strata_malloc_info - writes the state of the heap as an XML document, <malloc version="strata-1">, with the elements of glibc's, and
 * <superpages> with <group> and <free>: the heap's superpages by group, what compaction did and lost to others, and free blocks by order.
 *
 * options: 0. stream: open for writing; its own locking applies.
 * Returns 0; EINVAL for other options, with errno as it was; or -1 with the stream's error in errno where it did not take all of the text. No
 * cancellation point. Cost: that of strata_stats_json, and of the stream.
 */
STRATA_API int strata_malloc_info(int options, FILE *stream);

/* strata_malloc_stats - writes the table of strata_stats_table to standard error, whatever becomes of it there. Cost: that of strata_stats_table. */
STRATA_API void strata_malloc_stats(void);

/*
 * strata_mallopt - accepts the parameters that <malloc.h> names, without effect: they tune mechanisms that strata doesn't have. Its own
 * options are those of STRATA_CONF.
 *
 * parameter: an M_ constant of <malloc.h>. value: looked at for M_MXFAST alone, where glibc takes 0 to 20 * sizeof(size_t). Returns 1 for a
 * parameter that is known and a value that it may have, else 0. Cost: constant.
 */
STRATA_API int strata_mallopt(int parameter, int value) STRATA_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
