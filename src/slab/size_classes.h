/*
 * size_classes.h - the one description of the malloc size classes. Private to slab/, but for what slab.h re-exports.
 *
 * Multiples of 16 up to 128, then eight classes to each doubling, so that a class is at most 12.5 % above the one before
 * and all are multiples of 16, those above 1,024 of 128. The lookup is then one of two table reads: by 16 up to 1,024, by 128
 * above.
 */
#ifndef STRATA_SLAB_SIZE_CLASSES_H
#define STRATA_SLAB_SIZE_CLASSES_H

#include "base/base.h"

#define SIZE_CLASS_MAX_BYTES (32 * KIB)
#define SIZE_CLASS_LINEAR_BYTES 128                                            /* multiples of 16 up to here */
#define SIZE_CLASS_STEPS 8                                                     /* to each doubling above */
#define SIZE_CLASS_FINE_BYTES 1024                                             /* looked up by 16 up to here, by 128 above */
#define SIZE_CLASS_COUNT (SIZE_CLASS_LINEAR_BYTES / 16 + 8 * SIZE_CLASS_STEPS) /* eight doublings from 128 B to 32 KiB */

#define SIZE_CLASS_TABLE_ENTRIES (SIZE_CLASS_FINE_BYTES / 16 + (SIZE_CLASS_MAX_BYTES - SIZE_CLASS_FINE_BYTES) / 128 + 1)

/* Where a size (0..SIZE_CLASS_MAX_BYTES) stands in the lookup table. */
STRATA_INLINE size_t size_class_index(size_t bytes) {
    if (STRATA_LIKELY(bytes <= SIZE_CLASS_FINE_BYTES)) return (bytes + 15) >> 4;
    return ((bytes + 127) >> 7) + SIZE_CLASS_FINE_BYTES / 16 - SIZE_CLASS_FINE_BYTES / 128;
}

/* The size of class `n`, 0 <= n < SIZE_CLASS_COUNT. */
STRATA_INLINE size_t size_class_bytes(unsigned n) {
    const unsigned linear = SIZE_CLASS_LINEAR_BYTES / 16;
    if (n < linear) return (size_t)(n + 1) * 16;
    unsigned doubling = (n - linear) / SIZE_CLASS_STEPS, step = (n - linear) % SIZE_CLASS_STEPS;
    size_t base = (size_t)SIZE_CLASS_LINEAR_BYTES << doubling;
    return base + base / SIZE_CLASS_STEPS * (step + 1);
}

#endif
