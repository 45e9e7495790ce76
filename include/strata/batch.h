/*
 * strata/batch.h - many blocks by one call: allocated, resized and freed, and what of that worked; and resizing that does not move.
 *
 * A container that knows how many nodes it is about to make, or to end, says so: blocks of one size come and go in groups of hundreds, for which
 * each layer of the heap is asked once. Blocks are those of malloc: what was allocated here may be freed and resized by strata_free and
 * strata_realloc, and the other way round.
 *
 *     void *nodes[1000] = {NULL};
 *     size_t count = 1000, bytes = sizeof(struct node);
 *     strata_batch_alloc1(NULL, nodes, &count, &bytes, 0, 0, STRATA_BATCH_ALL_ALLOC);       // count: how many there are
 *     count = 1000;
 *     strata_batch_alloc1(NULL, nodes, &count, NULL, 0, 0, 0);                              // and free them
 *
 * An element of a batch is an address and a size. What becomes of it follows from which of the two are set:
 *
 *     address  size
 *     NULL     above 0   a block is allocated
 *     set      above 0   the block is resized; its contents stay, up to the smaller of both sizes
 *     set      0         the block is freed, the address becomes NULL
 *     NULL     0         nothing, which always succeeds
 *
 * Each element succeeds or fails by itself: one that fails is as it was, address, size and contents, and the others are served all the same.
 * They are served in no particular order. What errors are, per element (0: success):
 *   - ENOMEM: the system, or a limit of the heap, has no memory for it; sizes above PTRDIFF_MAX always;
 *   - ENOSPC: it may not move, and can't have this size or alignment where it is;
 *   - EINVAL: an alignment that is no power of two, flags that are none or contradict each other, a reserve beyond PTRDIFF_MAX; or the address is
 *     none of a live block, as far as that can be seen at once: strata_free would end the process for it. (A small block that is free already,
 *     or an address inside one, is found out later where it is freed, as in strata_free: the process ends.)
 *
 * Valid in C11 and C++. For all functions:
 *   - sizes and alignments are in bytes. alignment: a power of two, or 0 for what strata_malloc gives (16);
 *   - reserve: a hint, up to which size the block will grow. Where it is above 1 MiB, address space for that is set aside, which costs no memory, but
 * a superpage of addresses (2 MiB) at least; growth up to there then happens in place. Smaller ones, and those that can't be had, are not an error,
 * and have no effect;
 *   - one batch belongs to one thread; blocks to whoever has them, as in strata_malloc. Threads may run batches at the same time;
 *   - fork: as strata_malloc. signals: not async-signal-safe;
 *   - errno stays as it was, but where it says so;
 *   - cost: blocks of up to 32 KiB: some ns each; arrays of the CPU are used up (or filled) first, then one lock is taken for each half an array or
 * 256 objects. Frees, and in batches of many sizes allocations too, are sorted by size class, 64 elements at a time. Larger blocks one by one, as in
 *     strata_malloc and strata_free. Resizing: as strata_realloc, which does not fail where a block shrinks.
 *
 * The interface and its semantics follow Douglas, N1527, "Latency Reducing Memory Allocation in the C standard library" (2010), for which
 * strata/n1527.h has the proposal's own names; the use in containers is from his "User Mode Memory Page Allocation" (2011), section 2.
 */
#ifndef STRATA_BATCH_H
#define STRATA_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <strata/strata.h>

#ifdef __cplusplus
extern "C" {
#endif

enum strata_batch_flags {
    /* What is allocated, or added by growth to what could be used before (strata_malloc_usable_size), reads as zeros: all that may be used. */
    STRATA_BATCH_ZERO = 1,
    STRATA_BATCH_NO_MOVE = 2,             /* a block that is resized keeps its address, or it fails with ENOSPC */
    STRATA_BATCH_CONSTANT_TIME = 4,       /* no housekeeping in this call: no maintenance, and no small block is copied to become smaller */
    STRATA_BATCH_RESERVE_IS_MULTIPLE = 8, /* reserve counts in sizes of the element */
    /*
     * Promises about the whole batch: that every element is of one kind. More than one, or one that the arguments themselves contradict, is EINVAL
     * for all elements. In debug builds of strata (STRATA_LOCK_DEBUG) each element is looked at, and one that breaks the promise ends the
     * process; in others the blocks of a batch that was to allocate only may be lost.
     */
    STRATA_BATCH_ALL_ALLOC = 16,   /* all addresses are NULL */
    STRATA_BATCH_ALL_REALLOC = 32, /* all addresses and all sizes are set */
    STRATA_BATCH_ALL_FREE = 64,    /* all addresses are set, and all sizes are 0 */
};

/* Elements of strata_batch_alloc2 and strata_batch_alloc5. */
struct strata_batch_element2 {
    void *ptr;   /* receives where the block is then */
    size_t size; /* receives how many bytes may be used */
};
struct strata_batch_element5 {
    void *ptr;        /* as above */
    size_t size;      /* as above */
    size_t alignment; /* as the argument of the others */
    size_t reserve;   /* likewise; receives up to which size the block can grow in place now */
    uintmax_t flags;  /* enum strata_batch_flags, joined by | */
};

/*
 * strata_batch_alloc1 - elements that are all of one size.
 *
 * errnos: NULL, or an array of *count that receives each element's error. ptrs: the addresses; NULL: an array of *count addresses is allocated
 * for the caller, all NULL before the batch, and is freed by strata_free. count: receives how many elements succeeded. size: NULL or 0: the elements
 * are freed; else receives the smallest usable size of those that were allocated or resized, and stays where none was. flags: enum
 * strata_batch_flags, joined by |.
 * Returns ptrs, or the array that was allocated; NULL and ENOMEM in errno where there is no memory for that, NULL and EINVAL where count is NULL,
 * or for ptrs NULL with arguments that are EINVAL for every element: then nothing was done, and *count is 0. (N1527, 7.22.3.3.)
 */
STRATA_API void **strata_batch_alloc1(int *errnos, void **ptrs, size_t *count, size_t *size, size_t alignment, size_t reserve,
                                      uintmax_t flags) STRATA_NOEXCEPT;

/*
 * strata_batch_alloc2 - elements with a size of each.
 *
 * errnos, count, alignment, reserve, flags: as for strata_batch_alloc1. elements: *count pointers, of which those that are NULL are nothing to do.
 * Returns whether all succeeded. false and EINVAL in errno: count is NULL, or elements is and *count is above 0; nothing was done, and *count is 0.
 * (N1527, 7.22.3.4.)
 */
STRATA_API bool strata_batch_alloc2(int *errnos, struct strata_batch_element2 **elements, size_t *count, size_t alignment, size_t reserve,
                                    uintmax_t flags) STRATA_NOEXCEPT;

/*
 * strata_batch_alloc5 - elements with all of it of each. As strata_batch_alloc2; a promise counts in the first element that is not NULL, for the
 * whole batch. (N1527, 7.22.3.5.)
 */
STRATA_API bool strata_batch_alloc5(int *errnos, struct strata_batch_element5 **elements, size_t *count) STRATA_NOEXCEPT;

/* ------------------------------------------------------------------ one block */

/*
 * strata_try_realloc - another size where the block is; strata_aligned_realloc - another size, at a multiple of `alignment`, if need be elsewhere;
 * strata_try_aligned_realloc - another size where the block is, if that is a multiple of `alignment`.
 *
 * p: a block; NULL allocates one, as strata_aligned_alloc does. size: 0 frees the block.
 * Each is a batch of one element, and returns its address; NULL where it was freed (or nothing), or failed: then errno is ENOMEM, ENOSPC
 * or EINVAL, as above, and the block is as it was. (N1527, 7.22.3.2, 7.22.3.11 and 7.22.3.12.)
 */
STRATA_API void *strata_try_realloc(void *p, size_t size) STRATA_NOEXCEPT;
STRATA_API void *strata_aligned_realloc(void *p, size_t alignment, size_t size) STRATA_NOEXCEPT;
STRATA_API void *strata_try_aligned_realloc(void *p, size_t alignment, size_t size) STRATA_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
