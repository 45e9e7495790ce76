/*
 * latency.h - how long single calls of malloc and free take, for loads that stand for servers.
 *
 * About one call in sixteen is timed, at random distances: at even ones the samples would meet a cache's refills always or never. Durations go into a
 * histogram with sixteen buckets to a doubling, so a quantile is right to within 7 %; what reading the clock costs, some 10 to 30 ns, is in each
 * sample, the same for every allocator. load_report prints the quantiles.
 *
 * Invariants: a sampler belongs to one thread; the histograms are shared, and their counts are added to without order. No locks.
 */
#ifndef STRATA_BENCH_LATENCY_H
#define STRATA_BENCH_LATENCY_H

#include "load.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#define LATENCY_GAP_MASK 31

enum latency_call { LATENCY_MALLOC, LATENCY_FREE, LATENCY_CALLS };

struct latency_sampler {
    struct rng rng;
    unsigned left;
};

/* Counts one call that took `ticks` of latency_ticks. */
void latency_note(enum latency_call call, uint64_t ticks);

/* A clock that is read in the order of the program; its unit is learnt from the clock of the system between the first call and the report. */
static inline uint64_t latency_ticks(void) {
#if defined(__x86_64__)
    unsigned core;
    uint64_t ticks = __rdtscp(&core);
    _mm_lfence();
    return ticks;
#else
    return load_clock_ns();
#endif
}

/* A sampler for the calling thread. */
struct latency_sampler latency_sampler(uint64_t seed);

/* Adds the quantiles to the report: load_report calls it. Nothing where no call was timed. */
void latency_report(void);

static inline int latency_is_due(struct latency_sampler *sampler) {
    if (sampler->left--) return 0;
    sampler->left = (unsigned)(rng_next(&sampler->rng) >> 40) & LATENCY_GAP_MASK;
    return 1;
}

static inline struct block block_take_timed(struct latency_sampler *sampler, size_t size_bytes, uint64_t tag) {
    if (!latency_is_due(sampler)) return block_take(size_bytes, tag);
    uint64_t start = latency_ticks();
    void *memory = malloc(size_bytes);
    latency_note(LATENCY_MALLOC, latency_ticks() - start);
    if (!memory) load_fail("malloc returned NULL");
    block_write(memory, size_bytes, tag);
    return (struct block){memory, size_bytes, tag};
}

static inline void block_drop_timed(struct latency_sampler *sampler, struct block *block, struct tally *tally) {
    if (!latency_is_due(sampler)) {
        block_drop(block, tally);
        return;
    }
    tally->operations++;
    tally->checksum += block_read(block->memory, block->size_bytes, block->tag) ^ block->size_bytes;
    uint64_t start = latency_ticks();
    free(block->memory);
    latency_note(LATENCY_FREE, latency_ticks() - start);
    block->memory = NULL;
}

#endif
