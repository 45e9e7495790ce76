/*
 * latency.c - the histograms of latency.h, and their quantiles in the report.
 *
 * A few sets of histograms, so that threads seldom meet in one; no more, because they are memory too. No locks.
 */
#include "latency.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

#define SETS 4
#define SUB_SHIFT 4
#define SUBS (1u << SUB_SHIFT)
#define BUCKETS (40 * SUBS)

static _Atomic uint32_t counts[SETS][LATENCY_CALLS][BUCKETS];
static _Atomic unsigned samplers;
static _Thread_local unsigned set;
static uint64_t first_ticks, first_ns;

struct latency_sampler latency_sampler(uint64_t seed) {
    unsigned number = atomic_fetch_add(&samplers, 1);
    if (number == 0) {
        first_ns = load_clock_ns();
        first_ticks = latency_ticks();
    }
    set = number % SETS;
    return (struct latency_sampler){.rng = rng_seed(seed), .left = (unsigned)number & LATENCY_GAP_MASK};
}

/* Exact below SUBS; from there on the top SUB_SHIFT + 1 bits say which. */
static unsigned bucket_of(uint64_t ticks) {
    if (ticks < SUBS) return (unsigned)ticks;
    unsigned shift = 63 - (unsigned)__builtin_clzll(ticks) - SUB_SHIFT;
    unsigned bucket = shift * SUBS + (unsigned)(ticks >> shift);
    return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

/* The middle of a bucket. */
static double ticks_of(unsigned bucket) {
    if (bucket < SUBS) return bucket;
    unsigned shift = bucket / SUBS - 1;
    return ((double)(bucket % SUBS + SUBS) + 0.5) * (double)((uint64_t)1 << shift);
}

void latency_note(enum latency_call call, uint64_t ticks) {
    atomic_fetch_add_explicit(&counts[set][call][bucket_of(ticks)], 1, memory_order_relaxed);
}

static double quantile_ns(enum latency_call call, uint64_t total, double share, double ns_per_tick) {
    uint64_t wanted = (uint64_t)(share * (double)total), seen = 0;
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++) {
        for (unsigned s = 0; s < SETS; s++) seen += counts[s][call][bucket];
        if (seen > wanted) return ticks_of(bucket) * ns_per_tick;
    }
    return 0;
}

void latency_report(void) {
    static const char *const names[LATENCY_CALLS] = {"malloc", "free"};
    uint64_t ticks = latency_ticks() - first_ticks;
    double ns_per_tick = ticks ? (double)(load_clock_ns() - first_ns) / (double)ticks : 0;

    if (!samplers) return;
    printf(", \"latency\": {");
    for (unsigned call = 0; call < LATENCY_CALLS; call++) {
        uint64_t total = 0;
        for (unsigned s = 0; s < SETS; s++)
            for (unsigned bucket = 0; bucket < BUCKETS; bucket++) total += counts[s][call][bucket];
        printf("%s\"%s\": {\"samples\": %" PRIu64 ", \"p50_ns\": %.1f, \"p99_ns\": %.1f, \"p99_9_ns\": %.1f}", call ? ", " : "", names[call], total,
               quantile_ns(call, total, 0.5, ns_per_tick), quantile_ns(call, total, 0.99, ns_per_tick), quantile_ns(call, total, 0.999, ns_per_tick));
    }
    printf("}");
}
