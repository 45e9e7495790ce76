/*
 * cache_internal.h - what the files of cache/ share. Private to this folder.
 */
#ifndef STRATA_CACHE_INTERNAL_H
#define STRATA_CACHE_INTERNAL_H

#include "cache/cache.h"

/* The CPU of this moment, as slabs number it. */
STRATA_INLINE unsigned cache_home(void) { return slab_home_of_cpu(cpu_current_id()); }
/* Several threads use the cache, and its rounds have homes. A look without the lock. */
STRATA_INLINE bool cache_has_homes(const struct cache_layer *caches, unsigned cache) {
    return __atomic_load_n(&caches->depots[cache].shared, __ATOMIC_RELAXED) && caches->backend->home != NULL;
}
/* Beyond this rounds are not sorted by their homes: see home.c. */
#define HOME_PASSED 32
/* Whether they are to go there. */
STRATA_INLINE bool cache_keeps_apart(const struct cache_layer *caches, unsigned cache) {
    return cache_has_homes(caches, cache) && __atomic_load_n(&caches->depots[cache].passed, __ATOMIC_RELAXED) < HOME_PASSED;
}

STRATA_INLINE unsigned backend_alloc(struct cache_layer *caches, unsigned cache, void **objects, unsigned count) {
    return caches->backend->alloc(caches->backend_context, cache, cache_home(), cache_keeps_apart(caches, cache), objects, count);
}
STRATA_INLINE void backend_free(struct cache_layer *caches, unsigned cache, void *const *objects, unsigned count) {
    caches->backend->free(caches->backend_context, cache, objects, count);
}

/* Into the order of an array, whose last round is used first, or out of it. */
STRATA_INLINE void rounds_reverse(void **rounds, unsigned count) {
    for (unsigned i = 0; i < count / 2; i++) {
        void *round = rounds[i];
        rounds[i] = rounds[count - 1 - i];
        rounds[count - 1 - i] = round;
    }
}

/* Behind the headers of an area, in front of its arrays: see cpu_threads.c. */
#define CPU_AREA_WORDS 2

STRATA_INLINE unsigned magazine_capacity(const struct magazine *magazine) { return MAGAZINE_ROUNDS(magazine->kind); }

/* The last one in is the first out, as its lines are near. */
STRATA_INLINE void magazine_push(struct magazine_list *list, struct magazine *magazine) {
    magazine->next = list->first;
    list->first = magazine;
    COUNTER_ADD(list->count, 1);
}
/* `link` leads to one on the list; NULL, or a link to NULL: there is none. */
STRATA_INLINE struct magazine *magazine_unlink(struct magazine_list *list, struct magazine **link) {
    struct magazine *magazine = link != NULL ? *link : NULL;
    if (magazine == NULL) return NULL;
    *link = magazine->next;
    COUNTER_SUB(list->count, 1);
    if (list->count < list->low) list->low = list->count;
    return magazine;
}
STRATA_INLINE struct magazine *magazine_pop(struct magazine_list *list) { return magazine_unlink(list, &list->first); }

/* How many were not needed since the last call, or with `all` how many there are; from now on they count anew. */
STRATA_INLINE unsigned magazine_unneeded(struct magazine_list *list, bool all) {
    const unsigned count = all ? list->count : list->low;
    list->low = list->count;
    return count;
}

/* Puts rounds into this CPU's array; what finds no room, because the thread has changed CPUs meanwhile, goes to the depot after all. */
void cache_put_rounds(struct cache_layer *caches, unsigned cache, void **rounds, unsigned count);

/*
 * Pops up to `wanted` rounds off this CPU's array; returns how many, and whose they are, 0: anyone's. Those of other CPUs among the caller's own go
 * to their slabs at once; where too few of its own are left then, they go back into the array, and the result is 0. home.c says why.
 */
unsigned home_pop(struct cache_layer *caches, unsigned cache, void **rounds, unsigned wanted, unsigned *home);

/* The home whose shelf serves the caller; 0: none does, it goes to the lists of all. */
STRATA_INLINE unsigned depot_shelf(const struct cache_layer *caches, const struct depot *depot) {
    if (STRATA_LIKELY(!__atomic_load_n(&depot->shelved, __ATOMIC_ACQUIRE))) return 0;
    return cache_keeps_apart(caches, (unsigned)(depot - caches->depots)) ? cache_home() : 0;
}
/* The depot's lock, tried first: a failure is what tells that m is too small (magazines paper, 3.4). Not in place, for the room that takes. */
void depot_lock(struct depot *depot);
void depot_unlock(struct depot *depot);
/* Magazines of so many rounds come from this magazine cache. */
STRATA_INLINE unsigned magazine_kind(unsigned rounds) { return rounds <= MAGAZINE_ROUNDS(0) ? 0 : bit_highest(rounds - 1) - 1; }
/* How many objects the cache has, in use or not: a look. */
STRATA_INLINE uint64_t depot_objects(const struct cache_layer *caches, const struct depot *depot) {
    return caches->backend->total(caches->backend_context, (unsigned)(depot - caches->depots));
}
/*
 * m: depot_rounds.c. Under the depot's lock; who changes m sets the limit of full magazines anew. cycle, stop_cycling: objects come back again and
 * again, or do so no more. grow: after so many misses, of rounds that the same CPU gave or of any (own); whether m is another one. outlast_reaps: who
 * cycles does so after a reap. adapt: a tick.
 */
void rounds_cycle(struct cache_layer *caches, struct depot *depot);
bool rounds_outlast_reaps(const struct cache_layer *caches, const struct depot *depot);
void rounds_stop_cycling(struct cache_layer *caches, struct depot *depot);
bool rounds_grow(struct cache_layer *caches, struct depot *depot, bool own);
void rounds_adapt(struct cache_layer *caches, struct depot *depot);
/* So many arrays that were found empty are the time to ask whether m may be doubled; what a shelf has counted asks so. */
#define DEPOT_GROWTH_MISSES 32
void depot_grow(struct cache_layer *caches, struct depot *depot);
/* A full magazine, or NULL, off the caller's shelf or from under the depot's lock; the magazine is the caller's. */
struct magazine *depot_take_full(struct cache_layer *caches, struct depot *depot);
/* Hands a full magazine over. False: the depot has enough, its rounds belong into the slabs. */
bool depot_give_full(struct cache_layer *caches, struct depot *depot, struct magazine *magazine);
/*
 * The same for so many rounds at most, which come and go without their magazine: it stays where it is, so that one visit does what else takes two.
 * take: how many there were, 0 also where the first magazine has more; give: false also where there is no empty magazine for them; home: whose they
 * are.
 */
#define DEPOT_FEW 16
unsigned depot_take_few(struct cache_layer *caches, struct depot *depot, void **rounds);
bool depot_give_few(struct cache_layer *caches, struct depot *depot, unsigned home, void *const *rounds, unsigned count);
/* The rounds of a magazine that has few; how many. */
STRATA_INLINE unsigned magazine_take(struct magazine *magazine, void **rounds) {
    const unsigned count = magazine->count;
    for (unsigned i = 0; i < count; i++) rounds[i] = magazine->rounds[i];
    magazine->count = 0;
    return count;
}
/* Into an empty one, which has room. */
STRATA_INLINE void magazine_fill(struct magazine *magazine, void *const *rounds, unsigned count) {
    for (unsigned i = 0; i < count; i++) magazine->rounds[i] = rounds[i];
    magazine->count = count;
}
/* Whether it would take one of the caller's now: a look without the lock. */
bool depot_has_room(const struct cache_layer *caches, const struct depot *depot);
/* An empty magazine with room for m/2 rounds: the depot's, else a new one; NULL: no memory. */
struct magazine *depot_take_empty(struct cache_layer *caches, struct depot *depot);
/* Back to the depot, or to its cache when it no longer fits m. */
void depot_give_empty(struct cache_layer *caches, struct depot *depot, struct magazine *magazine);
/*
 * Regroups rounds that are no magazine: they fill up the bucket, and full buckets become full magazines. Where nobody visited the depot since the
 * last tick, or it has enough, or there is no memory for a bucket, they go to the slabs.
 */
void depot_give_odd(struct cache_layer *caches, unsigned cache, void *const *rounds, unsigned count);
/* The bucket as it is, else a full magazine, whoever's; NULL: there is none. For who finds nothing else, at the end of memory. It is the caller's. */
struct magazine *depot_take_odd(struct cache_layer *caches, struct depot *depot);
/* The rounds of a magazine that nobody has any more go to the slabs, and it to its cache. */
void depot_put_away(struct cache_layer *caches, const struct depot *depot, struct magazine *magazine);
/* Periodic: working sets, m. With `all`: everything goes to the slabs. */
void depot_tick(struct cache_layer *caches, unsigned cache, bool all);
void depot_init(struct depot *depot, size_t object_bytes, unsigned magazine_max, enum depot_keeps keeps);
/* The first slot of the arrays of this cache; the first call decides on it. */
unsigned depot_place(struct cache_layer *caches, struct depot *depot);

/* Which shelf is the home's. */
STRATA_INLINE unsigned shelf_number(unsigned home) { return home % DEPOT_HOMES; }
/* A shelf of a cache that has some; see shelf.c. */
struct shelf *shelf_at(unsigned cache, unsigned number);
/* As of depots, on the shelf of a home; NULL, or false: there are no shelves, it has none of this home's, or it has enough. */
struct magazine *shelf_take_full(struct cache_layer *caches, struct depot *depot, unsigned home);
bool shelf_give_full(const struct cache_layer *caches, struct depot *depot, struct magazine *magazine);
bool shelf_has_room(const struct cache_layer *caches, const struct depot *depot, unsigned home);
struct magazine *shelf_take_empty(const struct cache_layer *caches, struct depot *depot, unsigned home);
bool shelf_give_empty(const struct cache_layer *caches, struct depot *depot, struct magazine *magazine, unsigned home);
/* Few rounds, as of depots; give also returns false where there is no empty magazine. */
unsigned shelf_take(struct cache_layer *caches, struct depot *depot, unsigned home, void **rounds);
bool shelf_give(const struct cache_layer *caches, struct depot *depot, unsigned home, void *const *rounds, unsigned count);
/* Of a depot that has shelves: a full magazine of the shelf of a home, or, with 0, of any, whoever's it is. have_any: a look without a lock. */
bool shelves_have_any(const struct cache_layer *caches, const struct depot *depot, unsigned home);
struct magazine *shelf_take_any(const struct cache_layer *caches, struct depot *depot, unsigned home);
/* What went on on all shelves since the last look. */
struct shelf_activity {
    uint32_t visits, contended;
    bool changed_hands; /* by several threads */
};
struct shelf_activity shelves_look(const struct cache_layer *caches, struct depot *depot);
/* What was not needed since the last time goes, or with `all` everything. */
void shelves_trim(struct cache_layer *caches, struct depot *depot, bool all);
void shelves_stats_add(const struct cache_layer *caches, const struct depot *depot, struct cache_stats *stats);
const char *shelves_check(const struct cache_layer *caches, const struct depot *depot);
/* Around fork, with the depot's lock. */
void shelves_hold(const struct cache_layer *caches, const struct depot *depot);
void shelves_unhold(const struct cache_layer *caches, const struct depot *depot);

/* Makes the array of `cache` on this CPU usable, or larger where m has grown. False: the cache has no arrays, this CPU has no area, or it is closed.
 */
bool cpu_layer_open(struct cache_layer *caches, unsigned cache);
/*
 * Thread mode: whether a free of the calling thread's, which has no array, is to go past arrays. The C library frees blocks of its own when a thread
 * is all but gone, and of an id that is taken then nobody would hear that it is free again (cpu_threads.c).
 */
bool cpu_thread_frees_late(void);
/* The same as cpu_layer_open for an object that comes back. */
STRATA_INLINE bool cpu_layer_open_to_free(struct cache_layer *caches, unsigned cache) {
    return !(STRATA_UNLIKELY(caches->thread_mode) && cpu_thread_frees_late()) && cpu_layer_open(caches, cache);
}
/* Whether the array of `cache` on this CPU is in use, and full at the size that it is to have. A look: it may be otherwise at once. */
STRATA_INLINE bool cpu_layer_is_full(const struct cache_layer *caches, unsigned cache) {
    const uint64_t header = cpu_header_read(&caches->areas_at, cache);
    const uint32_t upper = (uint32_t)(header >> 32), top = (uint32_t)header, limit = upper >> 16, bottom = upper & 0xffff;
    return cpu_upper_open(upper) && top == limit && limit - bottom == __atomic_load_n(&caches->depots[cache].rounds, __ATOMIC_RELAXED);
}
/* Of an open array: nothing is in it. */
STRATA_INLINE bool cpu_layer_is_empty(const struct cache_layer *caches, unsigned cache) {
    const uint64_t header = cpu_header_read(&caches->areas_at, cache);
    return (uint32_t)header == ((uint32_t)(header >> 32) & 0xffff);
}
/* A later layer, with `main` set, gets its areas and is from now on one of those that new ids of threads are made for. False: no memory. */
bool cache_layer_join(struct cache_layer *caches);
/* Areas for all CPUs or threads; `first`: the layer whose ids a later one shares; NULL: it is the first. */
bool cpu_layer_init(struct cache_layer *caches, const struct cache_layer *first);
/* Drains areas: all, or with `idle_only` those whose tops did not change since the last call. */
void cpu_layer_drain(struct cache_layer *caches, bool idle_only);
/* Of one cache, which the caller has pinned. */
void cpu_layer_drain_of(struct cache_layer *caches, unsigned cache);
/* This CPU's own arrays, by ordinary pops: works in every mode. of: that of one cache, which the caller has pinned. */
void cpu_layer_drain_own(struct cache_layer *caches);
void cpu_layer_drain_own_of(struct cache_layer *caches, unsigned cache);
/*
 * Empties the arrays of one cache in all areas, in every mode, and makes them unused. For a cache that nobody uses any more: without a fence,
 * as the caller knows that no sequence on it is under way.
 */
void cpu_layer_retire(struct cache_layer *caches, unsigned cache);
/* In the child of a fork: opens what a drain has closed and not come to, as nobody else would. Nobody is in a sequence. Under drain_lock. */
void cpu_layer_reopen(struct cache_layer *caches);
/*
 * Closes the arrays of one cache in all areas and empties them, while others use it; or lets their owners open them again. False: there is no fence,
 * and they keep what they have.
 */
bool cpu_layer_shut(struct cache_layer *caches, unsigned cache);
void cpu_layer_unshut(struct cache_layer *caches, unsigned cache);
uint64_t cpu_layer_rounds(const struct cache_layer *caches, unsigned cache);
const char *cpu_layer_check(struct cache_layer *caches);

#endif
