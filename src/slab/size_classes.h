/*
 * size_classes.h - the one description of the malloc size classes. Private to slab/, but for what slab.h re-exports.
 *
 * Multiples of 16 up to 128, then eight classes to each doubling, so that a class is at most 12.5 % above the one before. From
 * 256 on there is one more a little above each power of two, because programs that think in powers of two put a header before it: 8
 * bytes more (SQLite counts the bytes of each block so), or up to a thirteenth more before a page of 4 KiB and above (SQLite's
 * page cache: 4,368 bytes). All are multiples of 16, those above 2,048 of 64; so the lookup is one of two table reads.
 *
 * Programs are compiled with this map in them (STRATA_KMEM_COOKIE of strata/kmem.h): whoever changes a class changes STRATA_KMEM_MAP, and its macro.
 */
#ifndef STRATA_SLAB_SIZE_CLASSES_H
#define STRATA_SLAB_SIZE_CLASSES_H

#include "base/base.h"

#define SIZE_CLASS_MAX_BYTES (32 * KIB)
#define SIZE_CLASS_LINEAR_BYTES 128 /* multiples of 16 up to here */
#define SIZE_CLASS_HEADER_BYTES 256 /* from here on each doubling has the class for a power of two and a header */
#define SIZE_CLASS_STEPS 8          /* to each doubling above SIZE_CLASS_LINEAR_BYTES, beside that */
#define SIZE_CLASS_FINE_BYTES 2048  /* looked up by 16 up to here, by 64 above */
/* 128 to 256 bytes is one doubling, 256 bytes to 32 KiB are seven. */
#define SIZE_CLASS_COUNT (SIZE_CLASS_LINEAR_BYTES / 16 + SIZE_CLASS_STEPS + 7 * (SIZE_CLASS_STEPS + 1))

#define SIZE_CLASS_TABLE_ENTRIES (SIZE_CLASS_FINE_BYTES / 16 + (SIZE_CLASS_MAX_BYTES - SIZE_CLASS_FINE_BYTES) / 64 + 1)

/* Where a size (0..SIZE_CLASS_MAX_BYTES) stands in the lookup table; _fine_: one up to SIZE_CLASS_FINE_BYTES. */
STRATA_INLINE size_t size_class_fine_index(size_t bytes) { return (bytes + 15) >> 4; }
STRATA_INLINE size_t size_class_index(size_t bytes) {
    if (STRATA_LIKELY(bytes <= SIZE_CLASS_FINE_BYTES)) return size_class_fine_index(bytes);
    return ((bytes + 63) >> 6) + SIZE_CLASS_FINE_BYTES / 16 - SIZE_CLASS_FINE_BYTES / 64;
}

/* The size of class `n`, 0 <= n < SIZE_CLASS_COUNT. */
STRATA_INLINE size_t size_class_bytes(unsigned n) {
    const unsigned linear = SIZE_CLASS_LINEAR_BYTES / 16, plain = linear + SIZE_CLASS_STEPS;
    if (n < linear) return (size_t)(n + 1) * 16;
    if (n < plain) return SIZE_CLASS_LINEAR_BYTES + SIZE_CLASS_LINEAR_BYTES / SIZE_CLASS_STEPS * (n - linear + 1);
    unsigned step = (n - plain) % (SIZE_CLASS_STEPS + 1);
    size_t base = (size_t)SIZE_CLASS_HEADER_BYTES << (n - plain) / (SIZE_CLASS_STEPS + 1);
    if (step != 0) return base + base / SIZE_CLASS_STEPS * step;
    return base < SIZE_CLASS_FINE_BYTES ? base + 16 : align_down(base + base / 64 * 5, 64);
}

#endif
