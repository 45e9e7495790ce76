/*
 * slab_support.h - what the tests of slab/ share: size-class caches on one zone of a fresh simulated machine, and objects with stamps.
 *
 * take() and give() move batches between the test and a cache: what comes must be objects of the cache that nobody holds, what goes must
 * carry the stamp that it got. ASSERT_SOUND is slab_check, zone_check, and the sum over both: the granules of all slabs = those the zone has
 * given out.
 */
#ifndef STRATA_TESTS_SLAB_SUPPORT_H
#define STRATA_TESTS_SLAB_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "platform/sim/sim.h"
#include "slab/slab_internal.h"

static struct zone zone;
static struct slab_layer slabs;

static const uint32_t magazine_bytes[SLAB_MAGAZINE_CACHES] = {64, 96, 160, 288, 544, 1056};

static inline struct zone_config plain_config(void) {
    return (struct zone_config){
        .reserve_bytes = 64 * MIB, .thp = ZONE_THP_NEVER, .populate_granules = 1, .hard_limit_bytes = UINT64_MAX, .soft_limit_bytes = UINT64_MAX};
}

static inline void begin(const struct sim_config *sim, struct zone_config config) {
    sim_reset(sim);
    memset(&slabs, 0, sizeof slabs);
    memset(slab_homes, 0, sizeof slab_homes);
    assert_true(zone_init(&zone, &config));
    slab_init(&slabs, &zone, magazine_bytes);
}

static int __attribute__((unused)) plain_slabs(void **state) {
    (void)state;
    begin(NULL, plain_config());
    return 0;
}

static inline unsigned cache_of(size_t bytes) { return slab_class_of_size(&slabs, bytes); }

static inline struct slab_stats stats_of(unsigned cache) {
    struct slab_stats stats;
    slab_stats_get(&slabs, cache, &stats);
    return stats;
}

/* The first granule of the slab of an object: its number, so that tests can tell slabs apart. */
static inline size_t slab_of(const void *object) {
    size_t granule = zone_granule_of(&zone, object);
    return granule - (zone.tags[granule] >> 8);
}

/* Objects in a slab of the smallest size. */
static inline unsigned capacity_min(unsigned cache) {
    return (unsigned)(((size_t)slabs.caches[cache].granules_min << GRANULE_SHIFT) / slabs.caches[cache].object_bytes);
}

#define STAMP UINT64_C(0x736c61622074616b)

static inline void stamp(unsigned cache, void *object) {
    uint64_t *words = object;
    size_t last = slabs.caches[cache].object_bytes / 8 - 1;
    assert_true(words[0] != (STAMP ^ (uintptr_t)object) || words[last] != (uintptr_t)object); /* nobody holds it */
    words[0] = STAMP ^ (uintptr_t)object;
    words[last] = (uintptr_t)object;
}

static inline void unstamp(unsigned cache, void *object) {
    uint64_t *words = object;
    size_t last = slabs.caches[cache].object_bytes / 8 - 1;
    assert_true(words[0] == (STAMP ^ (uintptr_t)object) && words[last] == (uintptr_t)object);
    words[0] = words[last] = 0;
}

/* One batch, which may be cut short; the number of objects in it. */
static inline unsigned take_batch(unsigned cache, void **objects, unsigned count) {
    unsigned taken = slab_alloc_batch(&slabs, cache, objects, count);
    assert_true(taken <= count);
    for (unsigned i = 0; i < taken; i++) {
        assert_true(slab_is_object(&slabs, cache, objects[i]));
        if (i != 0 && slab_of(objects[i]) == slab_of(objects[i - 1])) assert_true(objects[i] < objects[i - 1]);
        stamp(cache, objects[i]);
    }
    return taken;
}

/* As many as wanted; there must be memory for them. */
static inline void take(unsigned cache, void **objects, unsigned count) {
    for (unsigned taken = 0, some; taken < count; taken += some) {
        some = take_batch(cache, objects + taken, count - taken);
        assert_true(some != 0);
    }
}

static inline void give(unsigned cache, void *const *objects, unsigned count) {
    for (unsigned i = 0; i < count; i++) unstamp(cache, objects[i]);
    slab_free_batch(&slabs, cache, objects, count);
}

/* NULL, or what does not hold. */
static inline const char *unsound(void) {
    const char *wrong = slab_check(&slabs);
    if (wrong == NULL) wrong = zone_check(&zone);
    if (wrong != NULL) return wrong;
    uint64_t granules = 0;
    struct zone_counters counters;
    for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_END; cache++) granules += stats_of(cache).memory_bytes >> GRANULE_SHIFT;
    zone_counters_get(&zone, &counters);
    if (granules != counters.allocated) return "the granules of all slabs are not those that the zone gave out";
    return sim_locks_held() == 0 ? NULL : "a lock is held";
}

#define ASSERT_SOUND()                                                         \
    do {                                                                       \
        const char *wrong_ = unsound();                                        \
        if (wrong_ != NULL) fail_msg("%s:%d: %s", __FILE__, __LINE__, wrong_); \
    } while (0)

/* Nothing is in use, and all of it can be had back. */
static inline void assert_empty(void) {
    ASSERT_SOUND();
    for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_END; cache++) {
        struct slab_stats stats = stats_of(cache);
        assert_int_equal(stats.in_use, 0);
        assert_int_equal(stats.allocs, stats.frees);
    }
    slab_reap(&slabs);
    ASSERT_SOUND();
    struct zone_counters counters;
    zone_counters_get(&zone, &counters);
    assert_int_equal(counters.allocated, 0);
}

/* Same numbers every run. */
static inline uint64_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

#endif
