/*
 * strata/n1527.h - strata/batch.h under the names of the proposal N1527, for programs that are written to it.
 *
 *     void **batch_alloc1(int *errnos, void **ptrs, size_t *count, size_t *size, size_t alignment, size_t reserve, uintmax_t flags);
 *     _Bool batch_alloc2(int *errnos, struct mallocation2 **elements, size_t *count, size_t alignment, size_t reserve, uintmax_t flags);
 *     _Bool batch_alloc5(int *errnos, struct mallocation5 **elements, size_t *count);
 *     void *aligned_realloc(void *ptr, size_t alignment, size_t size);
 *     void *try_realloc(void *ptr, size_t size);
 *     void *try_aligned_realloc(void *ptr, size_t alignment, size_t size);
 *     size_t malloc_usable_size(void *ptr);
 *
 * and the flags M2_... . The functions are static and inline, so that they define nothing in the program; the structures are other names of
 * those of batch.h. Where the proposal leaves something to the implementation, batch.h says what happens. No flag of users is taken
 * (M2_USERFLAGS_FIRST to M2_USERFLAGS_LAST): one that is set is an error (EINVAL).
 *
 * The functions work on strata's heap, whose blocks malloc and free have too where strata is the process's malloc; a program that links
 * libstrata-only uses strata_malloc and strata_free with them. malloc_usable_size is a macro here, for these blocks. Valid in C11 and C++.
 */
#ifndef STRATA_N1527_H
#define STRATA_N1527_H

#include <stddef.h>
#include <stdint.h>

#include <strata/batch.h>
#include <strata/malloc.h>

#if defined(MALLOCATION2_DEFINED) || defined(MALLOCATION5_DEFINED)
#error "struct mallocation2 or mallocation5 is declared already, by another header than strata/n1527.h"
#endif
#define MALLOCATION2_DEFINED
#define MALLOCATION5_DEFINED
#define mallocation2 strata_batch_element2
#define mallocation5 strata_batch_element5

#define M2_ZERO_MEMORY STRATA_BATCH_ZERO
#define M2_PREVENT_MOVE STRATA_BATCH_NO_MOVE
#define M2_CONSTANT_TIME STRATA_BATCH_CONSTANT_TIME
#define M2_RESERVE_IS_MULT STRATA_BATCH_RESERVE_IS_MULTIPLE
#define M2_BATCH_IS_ALL_ALLOC STRATA_BATCH_ALL_ALLOC
#define M2_BATCH_IS_ALL_REALLOC STRATA_BATCH_ALL_REALLOC
#define M2_BATCH_IS_ALL_FREE STRATA_BATCH_ALL_FREE
#define M2_USERFLAGS_FIRST (UINTMAX_C(1) << 16)
#define M2_USERFLAGS_LAST (UINTMAX_C(1) << 31)

static inline void **batch_alloc1(int *errnos, void **ptrs, size_t *count, size_t *size, size_t alignment, size_t reserve, uintmax_t flags) {
    return strata_batch_alloc1(errnos, ptrs, count, size, alignment, reserve, flags);
}
static inline bool batch_alloc2(int *errnos, struct mallocation2 **elements, size_t *count, size_t alignment, size_t reserve, uintmax_t flags) {
    return strata_batch_alloc2(errnos, elements, count, alignment, reserve, flags);
}
static inline bool batch_alloc5(int *errnos, struct mallocation5 **elements, size_t *count) { return strata_batch_alloc5(errnos, elements, count); }

static inline void *try_realloc(void *ptr, size_t size) { return strata_try_realloc(ptr, size); }
static inline void *aligned_realloc(void *ptr, size_t alignment, size_t size) { return strata_aligned_realloc(ptr, alignment, size); }
static inline void *try_aligned_realloc(void *ptr, size_t alignment, size_t size) { return strata_try_aligned_realloc(ptr, alignment, size); }

/* Declared by the C library too, in <malloc.h>, whether that comes before or after this header: a macro is in nobody's way. */
#include <malloc.h>
#define malloc_usable_size(ptr) strata_malloc_usable_size(ptr)

#endif
