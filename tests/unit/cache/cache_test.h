/*
 * cache_test.h - what the unit tests of cache/ share beside cache_stack.h: cmocka, and assertions on the whole stack.
 */
#ifndef STRATA_TESTS_UNIT_CACHE_CACHE_TEST_H
#define STRATA_TESTS_UNIT_CACHE_CACHE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/cache/cache_stack.h"

#define SMALL_ARENA_BYTES (512 * (uint64_t)MIB)

/* A machine with so many CPUs, and an address space that is quickly made anew. */
static inline void build(unsigned cpus, unsigned magazine_max) {
    const struct sim_config sim = {.cpus = cpus, .arena_bytes = SMALL_ARENA_BYTES};
    assert_true(stack_build(&sim, magazine_max, UINT64_MAX));
}

#define ASSERT_SOUND()                                                   \
    do {                                                                 \
        const char *unsound = stack_check();                             \
        if (unsound != NULL) fail_msg("line %d: %s", __LINE__, unsound); \
    } while (0)
/* The test has given everything back, and all of it can be won back from the caches. */
#define ASSERT_NOTHING_LEFT()                                                             \
    do {                                                                                  \
        const char *unsound = stack_check_drained();                                      \
        if (unsound != NULL) fail_msg("line %d: %s", __LINE__, unsound);                  \
        for (unsigned c = 0; c < SLAB_CACHE_MAGAZINES; c++) assert_int_equal(held[c], 0); \
    } while (0)

static inline void *must_take(unsigned cache) {
    void *object = take(cache);
    assert_non_null(object);
    return object;
}
static inline void take_all(unsigned cache, void **objects, unsigned count) {
    for (unsigned i = 0; i < count; i++) objects[i] = must_take(cache);
}
static inline void give_all(unsigned cache, void *const *objects, unsigned count) {
    for (unsigned i = 0; i < count; i++) give(cache, objects[i]);
}

/* Held, and never in an array on the way. */
static inline void hold_from_slabs(unsigned cache, void **objects, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(slab_alloc_batch(&slabs, cache, &objects[i], 1), 1);
        *(uint64_t *)objects[i] = STACK_STAMP;
    }
    held[cache] += count;
}

static inline struct cache_stats stats_of(unsigned cache) {
    struct cache_stats stats;
    cache_stats_get(&caches, cache, &stats);
    return stats;
}
static inline struct slab_stats slab_stats_of(unsigned cache) {
    struct slab_stats stats;
    slab_stats_get(&slabs, cache, &stats);
    return stats;
}
/* Of the depot and of all its shelves; these count from tick to tick. */
static inline uint64_t visits_of(unsigned cache) {
    uint64_t visits = caches.depots[cache].visits;
    for (unsigned list = 0; list < DEPOT_HOMES && caches.depots[cache].shelved; list++) visits += shelf_at(cache, list)->visits;
    return visits;
}
static inline uint64_t slab_allocs_of(unsigned cache) { return slab_stats_of(cache).allocs; }

static inline struct depot *build_depot(unsigned *cache, size_t bytes) {
    build(2, 256);
    *cache = cache_of(bytes);
    return &caches.depots[*cache];
}

/* Every CPU has rounds of two caches; returns the first. CPU 0 goes on. */
static inline unsigned fill_cpus(unsigned cpus, unsigned *second) {
    build(cpus, 256);
    unsigned cache = cache_of(64);
    *second = cache_of(3000);
    for (unsigned cpu = 0; cpu < cpus; cpu++) {
        sim_cpu_set(cpu);
        give(cache, must_take(cache));
        give(*second, must_take(*second));
        assert_true(rounds_in(cpu, cache) != 0 && rounds_in(cpu, *second) != 0);
    }
    sim_cpu_set(0);
    return cache;
}

/* Visits by two threads, which leave nothing: from then on more may wait, until a tick has seen an interval without such. */
static inline void share_depot(unsigned cache) {
    for (unsigned cpu = 2; cpu-- != 0;) {
        sim_cpu_set(cpu);
        depot_give_empty(&caches, &caches.depots[cache], depot_take_empty(&caches, &caches.depots[cache]));
    }
    assert_true(caches.depots[cache].shared);
}

/* A magazine of m/2 fresh rounds goes into the depot; false where it takes no more, and then all is as it was. */
static inline bool stock_depot(unsigned cache) {
    struct depot *depot = &caches.depots[cache];
    unsigned count = depot->rounds / 2u != 0 ? depot->rounds / 2u : 1;
    struct magazine *magazine = depot_take_empty(&caches, depot);
    assert_non_null(magazine);
    while (magazine->count < count) {
        unsigned got = slab_alloc_batch(&slabs, cache, magazine->rounds + magazine->count, count - magazine->count);
        assert_true(got != 0);
        magazine->count += got;
    }
    for (unsigned i = 0; i < count; i++) *(uint64_t *)magazine->rounds[i] = 0;
    if (depot_give_full(&caches, depot, magazine)) return true;
    slab_free_batch(&slabs, cache, magazine->rounds, magazine->count);
    depot_give_empty(&caches, depot, magazine);
    return false;
}

/* Same numbers every run. */
static inline uint64_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

#endif
