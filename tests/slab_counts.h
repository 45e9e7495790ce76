/*
 * slab_counts.h - what a cache of slab/ has in use, for tests of any layer: the sum over its shards.
 */
#ifndef STRATA_TESTS_SLAB_COUNTS_H
#define STRATA_TESTS_SLAB_COUNTS_H

#include "slab/slab.h"

static inline uint64_t slab_in_use(struct slab_layer *of, unsigned cache) {
    struct slab_stats stats;
    slab_stats_get(of, cache, &stats);
    return stats.in_use;
}

static inline uint64_t slab_allocs(struct slab_layer *of, unsigned cache) {
    struct slab_stats stats;
    slab_stats_get(of, cache, &stats);
    return stats.allocs;
}

#endif
