/*
 * kmem_purity.c - experiment: section 5.5 of the kmem paper. Simulates the model of its figure 10: how much of the memory in caches is close to the
 * CPU that it is cached for, when memory is not as close to one as to another?
 *
 *     kmem_purity separate|shared CPUS MISS_RATE FREED_PURITY STEPS
 *
 * Each CPU has a cache, a bag of blocks of which each knows the CPU that it is close to; and there are global pools: one for each CPU (separate),
 * which is what the paper's equations describe, or one that all of them use (shared), which is what its allocator has. In each step one CPU allocates
 * a block from its cache and frees one, close to it with probability FREED_PURITY; with probability MISS_RATE a block goes from the pool to the cache
 * and another back, and then, again with that probability, one close to this CPU comes from the coalescing layer to the pool and another goes there.
 * One thread, no locks.
 */
#include <stdio.h>

#include "load.h"

#define CPUS_MAX 64
#define BAG_BLOCKS 256
#define SEED 1

/* The CPU that each block is close to. */
struct bag {
    unsigned char home[BAG_BLOCKS];
};

static unsigned cpus;
static struct rng rng;
static struct bag caches[CPUS_MAX], pools[CPUS_MAX];

static int chance(double probability) { return (double)(rng_next(&rng) >> 11) < probability * (double)(UINT64_C(1) << 53); }

static unsigned char *any(struct bag *bag) { return &bag->home[rng_below(&rng, BAG_BLOCKS)]; }

static unsigned char freed_home(unsigned cpu, double purity) {
    if (cpus == 1 || chance(purity)) return (unsigned char)cpu;
    return (unsigned char)((cpu + 1 + rng_below(&rng, cpus - 1)) % cpus);
}

int main(int argc, char **argv) {
    int separate = argc == 6 && !strcmp(argv[1], "separate");
    cpus = argc == 6 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
    double miss_rate = argc == 6 ? strtod(argv[3], NULL) : 0, purity = argc == 6 ? strtod(argv[4], NULL) : 0;
    uint64_t steps = argc == 6 ? strtoull(argv[5], NULL, 10) : 0;
    if (!cpus || cpus > CPUS_MAX || !steps || !(miss_rate > 0 && miss_rate <= 1) || !(purity >= 0 && purity <= 1) ||
        (!separate && strcmp(argv[1], "shared")))
        load_fail("usage: kmem_purity separate|shared CPUS MISS_RATE FREED_PURITY STEPS");
    rng = rng_seed(SEED);
    for (unsigned cpu = 0; cpu < cpus; cpu++)
        for (unsigned i = 0; i < BAG_BLOCKS; i++) caches[cpu].home[i] = pools[cpu].home[i] = (unsigned char)(i % cpus);

    /* What was pure of what left the caches and the pools, in the second half: by then they have forgotten what they began with. */
    uint64_t allocated = 0, allocated_pure = 0, taken = 0, taken_pure = 0;
    for (uint64_t step = 0; step < steps; step++) {
        unsigned cpu = (unsigned)rng_below(&rng, cpus);
        struct bag *cache = &caches[cpu], *pool = &pools[separate ? cpu : 0];
        int counts = step >= steps / 2;
        unsigned char *block = any(cache);
        allocated += (unsigned)counts;
        allocated_pure += counts && *block == cpu;
        *block = freed_home(cpu, purity);
        if (!chance(miss_rate)) continue;
        unsigned char *up = any(cache), *down = any(pool), home = *up;
        taken += (unsigned)counts;
        taken_pure += counts && *down == cpu;
        *up = *down;
        *down = home;
        if (chance(miss_rate)) *any(pool) = (unsigned char)cpu;
    }
    if (!taken) load_fail("too few steps");
    printf("{\"cache_purity\": %.5f, \"pool_purity\": %.5f, \"taken\": %llu}\n", (double)allocated_pure / (double)allocated,
           (double)taken_pure / (double)taken, (unsigned long long)taken);
    return fflush(stdout) ? 2 : 0;
}
