/*
 * swap.h - two ranges of memory that change their contents by a copy, where page tables can't be changed or aren't worth it. No state, no lock.
 */
#ifndef STRATA_BASE_SWAP_H
#define STRATA_BASE_SWAP_H

#include "base/base.h"

#define SWAP_COPY_BYTES 512 /* little enough for the stack of a signal handler, enough for the copies to be wide */

/* The ranges don't overlap; `bytes` is a multiple of SWAP_COPY_BYTES. Whoever calls has both for itself. */
STRATA_INLINE void swap_by_copy(char *a, char *b, size_t bytes) {
    char buffer[SWAP_COPY_BYTES];
    for (size_t at = 0; at < bytes; at += sizeof buffer) {
        __builtin_memcpy(buffer, a + at, sizeof buffer);
        __builtin_memcpy(a + at, b + at, sizeof buffer);
        __builtin_memcpy(b + at, buffer, sizeof buffer);
    }
}

#endif
