/*
 * sparse_support.h - a zone whose blocks are hardly used, for the tests of what that changes.
 */
#ifndef STRATA_TESTS_SPARSE_SUPPORT_H
#define STRATA_TESTS_SPARSE_SUPPORT_H

#include "unit/page/page_support.h"

static inline char *fresh_block(size_t granules) {
    char *block = zone_block_alloc(&zone, granules << GRANULE_SHIFT, 1, NULL);
    assert_non_null(block);
    return block;
}
static inline void touch(char *block, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) memset(block + (i << GRANULE_SHIFT), 1, 8);
}
static inline void use_and_drop(size_t granules, size_t from, size_t to) {
    char *block = fresh_block(granules);
    touch(block, from, to);
    drop_block(block);
    (void)counters(); /* nothing rests any more */
}

static char *large;
/* A heap that is worth a look; blocks of two sizes in turn, as one of the same size would be taken as it rested. */
static inline void become_sparse(size_t granules) {
    large = fresh_block((size_t)16 * MIB / GRANULE_BYTES);
    touch(large, 0, (size_t)16 * MIB / GRANULE_BYTES);
    for (unsigned i = 0; !zone_is_sparse(&zone, granules > SUPERPAGE_GRANULES) && i < 40; i++) use_and_drop(granules + i % 2, 0, 3);
    assert_true(zone_is_sparse(&zone, granules > SUPERPAGE_GRANULES));
}
static inline void end_sparse(void) {
    drop_block(large);
    assert_empty();
}

#endif
