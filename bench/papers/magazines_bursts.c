/*
 * magazines_bursts.c - experiment: section 3.2 of the magazines paper. Does a cache construct its objects once, however large they are and however
 * many are in use together?
 *
 *     magazines_bursts ROUNDS PAIRS
 *
 * For sizes of 64 bytes to 32 KiB, and 1 to 1,024 objects that are allocated together and freed in another order: an object cache with a constructor
 * beside malloc with the same construction after each allocation, in rounds of at least PAIRS pairs that take turns. Printed are the medians in ns a
 * pair, and how many constructions each allocation of the cache took, but for those of the first round. One thread, in a process that has more.
 */
#include <stdio.h>

#include <strata/cache.h>

#include "load.h"
#include "timing.h"

#define ROUNDS_MAX 1001
#define HELD_MAX 1024
#define SEED 12
#define CONSTRUCTION_STEPS 64 /* each wants the result of the one before */

static const size_t sizes[] = {64, 1000, 4000, 8192, 32768};
static const unsigned counts[] = {1, 16, 64, 256, HELD_MAX};

static void *held[HELD_MAX];
static unsigned order[HELD_MAX]; /* in which the first `count` are freed */
static uint64_t constructions;

static void construct(void *object) {
    uint64_t value = (uintptr_t)object;
    for (unsigned i = 0; i < CONSTRUCTION_STEPS; i++) value = value * 25214903917u + 11;
    *(uint64_t *)object = value;
}
static int construct_one(void *object, void *argument) {
    (void)argument;
    construct(object);
    constructions++;
    return 0;
}

static void mix_order(unsigned count) {
    struct rng rng = rng_seed(SEED);
    for (unsigned i = 0; i < count; i++) order[i] = i;
    for (unsigned i = count; i-- > 1;) {
        unsigned j = (unsigned)(rng_next(&rng) % (i + 1)), swapped = order[i];
        order[i] = order[j];
        order[j] = swapped;
    }
}

static uint64_t pairs_of_cache(struct strata_cache *cache, unsigned count, uint64_t bursts) {
    uint64_t begin = timing_ticks();
    for (uint64_t burst = 0; burst < bursts; burst++) {
        for (unsigned i = 0; i < count; i++)
            if (!(held[i] = strata_cache_alloc(cache, 0))) load_fail("no memory");
        for (unsigned i = 0; i < count; i++) strata_cache_free(cache, held[order[i]]);
    }
    return timing_ticks() - begin;
}
static uint64_t pairs_of_malloc(size_t bytes, unsigned count, uint64_t bursts) {
    uint64_t begin = timing_ticks();
    for (uint64_t burst = 0; burst < bursts; burst++) {
        for (unsigned i = 0; i < count; i++) {
            if (!(held[i] = malloc(bytes))) load_fail("no memory");
            construct(held[i]);
        }
        for (unsigned i = 0; i < count; i++) free(held[order[i]]);
    }
    return timing_ticks() - begin;
}

static int by_value(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}
static double median(double *values, uint64_t count) {
    qsort(values, count, sizeof *values, by_value);
    return values[count / 2];
}

static void measure(const struct timing_scale *scale, size_t bytes, unsigned count, uint64_t rounds, uint64_t pairs) {
    static double cache_ns[ROUNDS_MAX], malloc_ns[ROUNDS_MAX];
    struct strata_cache *cache;
    const struct strata_cache_config config = {.size = bytes, .constructor = construct_one};
    const uint64_t bursts = (pairs + count - 1) / count;
    if (strata_cache_create("bursts", &config, &cache) != STRATA_CACHE_OK) load_fail("strata_cache_create");
    mix_order(count);
    for (uint64_t round = 0; round <= rounds; round++) {
        if (round == 1) constructions = 0; /* the round before was for memory, and arrays that grow */
        uint64_t of_cache = pairs_of_cache(cache, count, bursts), of_malloc = pairs_of_malloc(bytes, count, bursts);
        if (round == 0) continue;
        cache_ns[round - 1] = timing_mean_ns(scale, of_cache, 1) / (double)(bursts * count);
        malloc_ns[round - 1] = timing_mean_ns(scale, of_malloc, 1) / (double)(bursts * count);
    }
    printf("{\"bytes\": %zu, \"held\": %u, \"cache_ns\": %.2f, \"malloc_ns\": %.2f, \"constructed\": %.5f}", bytes, count, median(cache_ns, rounds),
           median(malloc_ns, rounds), (double)constructions / (double)(rounds * bursts * count));
    strata_cache_destroy(cache);
}

int main(int argc, char **argv) {
    uint64_t rounds = argc == 3 ? strtoull(argv[1], NULL, 10) : 0, pairs = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
    if (!rounds || rounds > ROUNDS_MAX || !pairs) load_fail("usage: magazines_bursts ROUNDS PAIRS");
    timing_be_parallel();
    timing_pin(0);
    struct timing_scale scale = timing_measure();
    printf("{\"bursts\": [");
    for (size_t size = 0; size < sizeof sizes / sizeof sizes[0]; size++)
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            if (size + i != 0) printf(", ");
            measure(&scale, sizes[size], counts[i], rounds, pairs);
        }
    printf("]}\n");
    return fflush(stdout) ? 2 : 0;
}
