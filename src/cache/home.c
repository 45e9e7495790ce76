/*
 * home.c - rounds that go home: which rounds of an array that runs over make a magazine, where several threads use the cache.
 *
 * Threads that work for themselves share cache lines all the same once their objects lie in one slab: a magazine that one CPU gave and another took,
 * or a slab from which both were refilled, mixes them, and nothing takes them apart again. One line in forty was enough for a fifth of the time of
 * two such threads. So a slab belongs to the CPU that takes objects out of it (slab.h), and what leaves an array goes back to its owner: the purity
 * of a pool is that of what is freed into it (kmem paper, 5.5).
 *   - Of the caller's own rounds a magazine is made, which the caller takes again before all others. Others' among them go to their slabs.
 *   - Where threads end what others made, lines are shared as it is, and magazines that anyone takes save both sides the slabs. So who finds others'
 *     rounds again and again in a cache lets it be for a while.
 * Not sorted are batches of a program's own, and the depot's bucket. CPUs stand for threads here: two threads on one CPU share what they share by
 * time. No locks, but those of backend and depot.
 */
#include "cache/cache_internal.h"

/* So many of an array's rounds are looked at to tell whether a thread ends what it made itself. */
#define SAMPLES 4
/*
 * A look that finds others' adds so much to depot->passed, up to an end, and one without takes one away; so nothing is sorted where more than one
 * look in three finds some. A tick begins anew (depot.c), because what mixed the rounds may have been two threads that changed places.
 */
#define PASSED_STEP 2
#define PASSED_MAX (2 * HOME_PASSED)

/*
 * To sort rounds is to look up the slab of each, which is what a visit of the depot costs once more. Where nothing else's was found as they were
 * sorted, the next looks of that kind are taken at their word: one the first time, then three, at most seven, until a sort finds some again.
 */
#define TRUST_MAX 7

static unsigned home_of(const struct cache_layer *caches, unsigned cache, const void *round) {
    return caches->backend->home(caches->backend_context, cache, round);
}

static bool all_own(const struct cache_layer *caches, unsigned cache, unsigned own, void *const *rounds, unsigned count) {
    for (unsigned i = 0; i < SAMPLES; i++)
        if (home_of(caches, cache, rounds[i * (count - 1) / (SAMPLES - 1)]) != own) return false;
    return true;
}

/* Without the lock: a note that is lost, as two come at once, is one of many. */
static void note_homes(struct cache_layer *caches, unsigned cache, bool own) {
    uint8_t *passed = &caches->depots[cache].passed, was = __atomic_load_n(passed, __ATOMIC_RELAXED);
    const uint8_t now = (uint8_t)(!own ? min_u64(was + PASSED_STEP, PASSED_MAX) : was != 0 ? was - 1u : 0);
    if (now != was) __atomic_store_n(passed, now, __ATOMIC_RELAXED); /* the line is one that all look at */
}

/*
 * Sorts rounds: the caller's own in front, in their order, the others behind them; returns how many are its own. In their place, as a thread's stack
 * may be all that it has: a thousand sleeping threads keep each page that was reached once.
 */
static unsigned sort_rounds(const struct cache_layer *caches, unsigned cache, unsigned own, void **rounds, unsigned count) {
    return caches->backend->sort(caches->backend_context, cache, own, rounds, count);
}

/* Whether a look that found the caller's own alone is enough this time. Noted on the caller's shelf, likewise; NULL: it has none yet. */
static bool is_trusted(struct shelf *shelf) {
    if (shelf == NULL) return false;
    const uint8_t trusted = __atomic_load_n(&shelf->trusted, __ATOMIC_RELAXED);
    const bool enough = trusted < __atomic_load_n(&shelf->trust, __ATOMIC_RELAXED);
    __atomic_store_n(&shelf->trusted, enough ? (uint8_t)(trusted + 1) : 0, __ATOMIC_RELAXED);
    return enough;
}
static void note_sorted(struct shelf *shelf, bool own) {
    if (shelf == NULL) return;
    const uint8_t trust = __atomic_load_n(&shelf->trust, __ATOMIC_RELAXED);
    __atomic_store_n(&shelf->trust, own ? (uint8_t)min_u64(2u * trust + 1, TRUST_MAX) : 0, __ATOMIC_RELAXED);
}

unsigned home_pop(struct cache_layer *caches, unsigned cache, void **rounds, unsigned wanted, unsigned *home) {
    const unsigned own = cache_home();
    unsigned count = cpu_pop_upper_in(&caches->areas_at, cache, rounds, wanted), kept = 0;
    *home = 0;
    if (count == 0) return 0;
    const bool apart = cache_keeps_apart(caches, cache), few = apart && count <= SAMPLES; /* then sorting them tells as much */
    if (few) kept = sort_rounds(caches, cache, own, rounds, count);
    const bool own_seen = few ? kept == count : all_own(caches, cache, own, rounds, count);
    note_homes(caches, cache, own_seen);
    if (!apart || !cache_keeps_apart(caches, cache)) return count;
    if (!few) {
        struct shelf *shelf = depot_shelf(caches, &caches->depots[cache]) != 0 ? shelf_at(cache, shelf_number(own)) : NULL;
        const bool trusted = own_seen && is_trusted(shelf);
        kept = trusted ? count : sort_rounds(caches, cache, own, rounds, count);
        if (!trusted) note_sorted(shelf, kept == count);
    }
    if (kept < count) {
        backend_free(caches, cache, rounds + kept, count - kept);
        count = kept;
        /* What is missing comes from deeper in the array: a visit for every few rounds would be dearer than this one. */
        if (kept >= wanted / 2) {
            count += cpu_pop_upper_in(&caches->areas_at, cache, rounds + kept, wanted - kept);
            kept += sort_rounds(caches, cache, own, rounds + kept, count - kept);
            if (kept < count) backend_free(caches, cache, rounds + kept, count - kept);
            count = kept;
        }
        if (count < wanted) {
            cache_put_rounds(caches, cache, rounds, count);
            return 0;
        }
    }
    *home = own;
    return count;
}
