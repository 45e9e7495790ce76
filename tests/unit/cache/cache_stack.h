/*
 * cache_stack.h - cache/ on slabs on a zone on a simulated machine, and the equation that must hold between them: for every cache
 *     objects that slabs gave out = objects in CPU arrays and depot + objects that the test holds,
 * and the same for the magazines themselves. No object may be held twice: held objects carry a stamp.
 *
 * What goes wrong is kept in stack_wrong, the first thing only, so that preemption hooks and simulated threads can use all of this. For unit
 * tests, explorations and the model alike. Not thread-safe, like the simulation.
 */
#ifndef STRATA_TESTS_UNIT_CACHE_CACHE_STACK_H
#define STRATA_TESTS_UNIT_CACHE_CACHE_STACK_H

#include <stdio.h>
#include <string.h>

#include "../../slab_counts.h"
#include "cache/cache_internal.h"
#include "platform/sim/sim.h"

static struct zone zone;
static struct slab_layer slabs;
static struct cache_layer caches;

static const char *stack_wrong;             /* NULL: nothing yet */
static uint64_t held[SLAB_CACHE_MAGAZINES]; /* objects that the test holds, by cache */

static inline void stack_fail(const char *what) {
    if (stack_wrong == NULL) stack_wrong = what;
}

/* The full magazines of a cache: of each shelf, and, last, those that are anyone's. */
#define STACK_LISTS (DEPOT_HOMES + 1)
static inline struct magazine *stack_list(unsigned cache, unsigned list) {
    if (list == DEPOT_HOMES) return caches.depots[cache].full.first;
    return caches.depots[cache].shelved ? shelf_at(cache, list)->full.first : NULL;
}
static inline unsigned stack_full_count(unsigned cache) {
    unsigned count = 0;
    for (unsigned list = 0; list < STACK_LISTS; list++)
        for (const struct magazine *magazine = stack_list(cache, list); magazine != NULL; magazine = magazine->next) count++;
    return count;
}

/* ------------------------------------------------------------------ the machine */

static inline void stack_thread_ended(uint32_t id) { cache_thread_exit(&caches, id); }

/* Zone and slabs only. False: no memory, which only tests of failures expect, here and below. */
static inline bool stack_build_slabs(const struct sim_config *sim, uint64_t hard_limit_bytes) {
    struct zone_config config = {.reserve_bytes = 64 * MIB,
                                 .thp = ZONE_THP_NEVER,
                                 .populate_granules = 1,
                                 .hard_limit_bytes = hard_limit_bytes,
                                 .soft_limit_bytes = UINT64_MAX};
    sim_reset(sim);
    zone = (struct zone){0};
    memset(&slabs, 0, sizeof slabs);
    memset(&caches, 0, sizeof caches);
    memset(held, 0, sizeof held);
    stack_wrong = NULL;
    if (!zone_init(&zone, &config)) return false;
    slab_init(&slabs, &zone, cache_magazine_bytes);
    return true;
}

static inline bool stack_build_caches(unsigned magazine_max) {
    if (!cache_init(&caches, &slabs, magazine_max)) return false;
    platform_on_thread_exit(stack_thread_ended);
    return true;
}

static inline bool stack_build(const struct sim_config *sim, unsigned magazine_max, uint64_t hard_limit_bytes) {
    return stack_build_slabs(sim, hard_limit_bytes) && stack_build_caches(magazine_max);
}

/* The cache of objects of a size. */
static inline unsigned cache_of(size_t bytes) { return slab_class_of_size(&slabs, bytes); }
static inline unsigned rounds_of(unsigned cache) { return caches.depots[cache].rounds; }

/* Makes arrays of a cache begin with `rounds` and grow to at most rounds_max: explorations want them short. Before the first use. */
static inline void stack_set_rounds(unsigned cache, unsigned rounds, unsigned rounds_max) {
    struct depot *depot = &caches.depots[cache];
    depot->rounds = depot->rounds_start = (uint16_t)rounds;
    depot->rounds_max = (uint16_t)min_u64(rounds_max, depot->rounds_max);
    depot->kind = 0;
    while (MAGAZINE_ROUNDS(depot->kind) < rounds / 2) depot->kind++;
}

/* Arrays have grown by all that they may: from now on only contention and cycles change m. */
static inline void stack_stop_growth(void) {
    caches.grown_bytes = UINT64_C(1) << 40;
    if (caches.areas_used == 0) caches.areas_used = 1;
}

/* The next tick finds the depot contended, and doubles m. */
static inline void stack_contend(unsigned cache) { caches.depots[cache].contended = 1000; }

/* ------------------------------------------------------------------ objects */

#define STACK_STAMP UINT64_C(0x48454c44206e6f77)

static inline void *take(unsigned cache) {
    uint64_t *object = cache_alloc(&caches, cache);
    if (object == NULL) return NULL;
    if (*object == STACK_STAMP) stack_fail("an object was handed out twice");
    if (!slab_is_object(&slabs, cache, object)) stack_fail("what was handed out is no object of the cache");
    *object = STACK_STAMP;
    held[cache]++;
    return object;
}

static inline void give(unsigned cache, void *object) {
    if (object == NULL) return;
    if (*(uint64_t *)object != STACK_STAMP) stack_fail("an object changed while it was held");
    *(uint64_t *)object = 0;
    held[cache]--;
    cache_free(&caches, cache, object);
}

/* ------------------------------------------------------------------ looking inside */

static inline struct cpu_header header_of(unsigned area, unsigned cache) { return *cpu_area_header(cpu_area_at(area), cache); }
static inline uint64_t header_word_of(unsigned area, unsigned cache) { return cpu_header_word(cpu_area_header(cpu_area_at(area), cache)); }
static inline bool header_is_open(unsigned area, unsigned cache) { return cpu_upper_open(cpu_header_upper(header_of(area, cache))); }
/* The slot below which others have taken the rounds; 0: none have. */
static inline unsigned taken_in(unsigned area, unsigned cache) { return cpu_upper_taken(cpu_header_upper(header_of(area, cache))); }
static inline unsigned rounds_in(unsigned area, unsigned cache) {
    unsigned top = header_of(area, cache).top, taken = taken_in(area, cache), bottom = taken != 0 ? taken : caches.depots[cache].bottom;
    return top > bottom ? top - bottom : 0;
}
static inline bool is_used(unsigned area) { return (caches.used[area / 64] >> area % 64 & 1) != 0; }

/* The areas that memory stands behind: the test reads them all. */
static inline unsigned areas_there(void) { return caches.thread_mode ? caches.ids_made : caches.areas; }

/* Every area with an open or filled array is marked, or no drain would ever come there. */
static inline const char *unmarked_area(void) {
    for (unsigned area = 0; area < areas_there(); area++) {
        if (is_used(area)) continue;
        for (unsigned cache = 0; cache < SLAB_CACHE_END; cache++)
            if (header_word_of(area, cache) != 0) return "a CPU area is in use, and not marked";
    }
    return NULL;
}

static inline const char *unbalanced_cache(unsigned cache) {
    struct cache_stats cached;
    struct slab_stats below;
    cache_stats_get(&caches, cache, &cached);
    slab_stats_get(&slabs, cache, &below);
    if (below.in_use > cached.cached + held[cache]) return "objects are lost";
    return below.in_use < cached.cached + held[cache] ? "an object is in two places" : NULL;
}

static inline const char *unbalanced_magazines(void) {
    uint64_t of_kind[SLAB_MAGAZINE_CACHES] = {0};
    for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_MAGAZINES; cache++) {
        for (unsigned list = 0; list < STACK_LISTS; list++)
            for (const struct magazine *magazine = stack_list(cache, list); magazine != NULL; magazine = magazine->next) of_kind[magazine->kind]++;
        if (caches.depots[cache].bucket != NULL) of_kind[caches.depots[cache].bucket->kind]++;
        for (const struct magazine *magazine = caches.depots[cache].empty.first; magazine != NULL; magazine = magazine->next)
            of_kind[magazine->kind]++;
        for (unsigned list = 0; list < DEPOT_HOMES && caches.depots[cache].shelved; list++)
            for (const struct magazine *magazine = shelf_at(cache, list)->empty.first; magazine != NULL; magazine = magazine->next)
                of_kind[magazine->kind]++;
    }
    for (unsigned kind = 0; kind < SLAB_MAGAZINE_CACHES; kind++)
        if (of_kind[kind] != slab_in_use(&slabs, SLAB_CACHE_MAGAZINES + kind)) return "magazines are lost, or in two places";
    return NULL;
}

/* What is wrong now, while no operation is under way; NULL: nothing. */
static inline const char *stack_check(void) {
    if (stack_wrong == NULL && sim_locks_held() != 0) stack_fail("a lock is held");
    if (stack_wrong == NULL) stack_wrong = cache_check(&caches);
    if (stack_wrong == NULL) stack_wrong = slab_check(&slabs);
    if (stack_wrong == NULL) stack_wrong = unmarked_area();
    if (stack_wrong == NULL) stack_wrong = unbalanced_magazines();
    for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_MAGAZINES && stack_wrong == NULL; cache++)
        if (held[cache] != 0 || slabs.caches[cache].slabs != 0) stack_wrong = unbalanced_cache(cache);
    return stack_wrong;
}

/* The last check: whatever is cached can be won back, and then slabs have given out just what the test holds. */
static inline const char *stack_check_drained(void) {
    if (stack_check() != NULL) return stack_wrong;
    cache_drain(&caches);
    for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_END; cache++)
        if (slab_in_use(&slabs, cache) != (cache < SLAB_CACHE_MAGAZINES ? held[cache] : 0)) stack_fail("a drain leaves something behind");
    return stack_check();
}

#endif
