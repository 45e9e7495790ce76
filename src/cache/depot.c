/*
 * depot.c - magazines between CPUs: the lists of full and empty ones, their working sets, and how many may wait.
 *
 * The fewest magazines that a list held during an interval were not needed in it (magazines paper, 3.7): they go at its end.
 * How many full ones may wait at all is bounded by a share of the cache's objects (but for those that were constructed: enum depot_keeps), because
 * what waits here can't empty a slab; unless the objects come back again and again. What several threads' CPUs keep for themselves is on shelves
 * (shelf.c), which together may have as much again.
 * m begins small and grows where visits are frequent: depot_rounds.c.
 *
 * Lists of other sizes than m/2 come from idle CPUs, and from threads that change CPUs half-way. Taken as they are they would cost the next one more
 * visits than one in m/2 operations; so they are regrouped (kmem paper, 3.3.2): poured into one magazine, the bucket, which joins the full ones when
 * it is full. Before that it is touched only where memory has ended. A bucket that nothing came to during an interval goes to the slabs at its end,
 * and what comes while nobody visits the depot goes there at once. Lock: LOCK_RANK_DEPOT; magazines are allocated and freed, and rounds given to
 * slabs, without it.
 */
#include "cache/cache_internal.h"

/* Rounds behind the 16 bytes of struct magazine, in lines of their own: of two neighbours each may be another CPU's. */
#define MAGAZINE_BYTES(kind) ((16 + MAGAZINE_ROUNDS(kind) * 8 + CACHE_LINE_BYTES - 1) / CACHE_LINE_BYTES * CACHE_LINE_BYTES)
const uint32_t cache_magazine_bytes[SLAB_MAGAZINE_CACHES] = {MAGAZINE_BYTES(0), MAGAZINE_BYTES(1), MAGAZINE_BYTES(2),
                                                             MAGAZINE_BYTES(3), MAGAZINE_BYTES(4), MAGAZINE_BYTES(5)};
_Static_assert(2 * MAGAZINE_ROUNDS(SLAB_MAGAZINE_CACHES - 1) == CACHE_ROUNDS_MAX, "the last kind holds half of the largest array");
_Static_assert(sizeof(struct magazine) == 16, "cache_magazine_bytes counts on it");

/*
 * An array begins with about so many bytes of objects at most, between 2 rounds and half of CACHE_ROUNDS_MAX: fewer of large objects, as there are
 * many classes of them. It grows by misses, where objects cycle (both below) and by contention (magazines paper, 3.4): a visit of the depot moves
 * half of its rounds, which are few of large objects.
 */
#define ARRAY_BYTES_MAX (64 * KIB)
#define ARRAY_BYTES_START_LARGE (32 * KIB)
#define ARRAY_BYTES_MAX_LARGE (256 * KIB)
#define ARRAY_ROUNDS_MAX_LARGE 64 /* what has room in the slots of an area, and near the other arrays there */
#define LARGE_OBJECT_BYTES 512
/* From this size on an object has lines enough of its own: it doesn't matter which others come out of a magazine beside it. */
#define ALONE_OBJECT_BYTES (2 * CACHE_LINE_BYTES)
/*
 * Full magazines wait up to this many bytes, or this share of the cache's objects. More bytes where threads pass them to each other, which saves both
 * the slabs; of one thread's own objects a slab hands out neighbours, which a magazine doesn't, and may become empty.
 */
#define DEPOT_BYTES_MIN (16 * KIB)
#define DEPOT_BYTES_MIN_SHARED (32 * KIB)
#define DEPOT_SHARE 16
/*
 * More where objects go to the slabs and come back again and again, so many bytes of them since the last tick: programs that work in bursts do so.
 * Then up to so many bytes may wait; all objects of a class so small that they lie in the cache of a processor together, or of two where several
 * threads use them, however scattered they come back; and all of ALONE_OBJECT_BYTES or more. Of these more must have come back first where several
 * threads use them: what waits here is in addition to an array of each CPU.
 */
#define DEPOT_BYTES_MIN_CYCLES (64 * KIB)
#define DEPOT_CLASS_NEAR MIB
#define DEPOT_CLASS_NEAR_SHARED (2 * MIB)
#define CYCLED_BYTES MIB
#define CYCLED_BYTES_ALONE_SHARED (4 * MIB)
/* And four times as many after each reap that ended it, up to this power of two: else the heap grows, is reaped and grows again. */
#define CYCLE_REAPS_MAX 6
/*
 * Empty ones, which cost up to a quarter of what they could hold: enough for a burst of visits, and as many as there may be full ones. Another one
 * comes from its slab for less than a ns a round.
 */
#define DEPOT_EMPTY_MIN 8
void depot_lock(struct depot *depot) {
    if (STRATA_LIKELY(platform_lock_try_here(&depot->lock))) return;
    platform_lock_acquire(&depot->lock);
    depot->contended++;
    depot->contention++;
}
void depot_unlock(struct depot *depot) { platform_lock_release_here(&depot->lock); }

/* How many full magazines may wait where the cache has so many objects. */
static uint32_t full_limit(const struct depot *depot, uint64_t objects) {
    if (depot->keeps == DEPOT_KEEPS_ALL) return UINT32_MAX;
    uint64_t transfer = max_u64(depot->rounds / 2u, 1);
    uint64_t share = objects / DEPOT_SHARE / transfer;
    const uint64_t near = depot->shared ? DEPOT_CLASS_NEAR_SHARED : DEPOT_CLASS_NEAR;
    if (depot->cycles && (depot->object_bytes >= ALONE_OBJECT_BYTES || objects * depot->object_bytes <= near)) share = objects / transfer;
    uint64_t bytes = depot->cycles ? DEPOT_BYTES_MIN_CYCLES : depot->shared ? DEPOT_BYTES_MIN_SHARED : DEPOT_BYTES_MIN;
    return (uint32_t)max_u64(share, bytes / (depot->object_bytes * transfer) + 1);
}

static void set_full_limit(const struct cache_layer *caches, struct depot *depot) {
    __atomic_store_n(&depot->full_max, full_limit(depot, depot_objects(caches, depot)), __ATOMIC_RELAXED);
}

/*
 * Under the lock: an array was empty once more. Who comes by that often would come by half as often if m were twice what it is.
 */
static void note_miss(struct cache_layer *caches, struct depot *depot) {
    if (STRATA_UNLIKELY(++depot->misses % DEPOT_GROWTH_MISSES == 0) && rounds_grow(caches, depot, !depot->shared)) set_full_limit(caches, depot);
}

/* Under the lock. */
static void note_visit(const struct cache_layer *caches, struct depot *depot) {
    uint32_t visitor = platform_thread_token(), last = depot->visitor;
    depot->visits++;
    if (STRATA_LIKELY(visitor == last)) return;
    depot->visitor = visitor;
    if (last == 0) return;
    depot->changed_hands = true;
    if (depot->shared) return;
    __atomic_store_n(&depot->shared, true, __ATOMIC_RELAXED);
    set_full_limit(caches, depot);
}

/*
 * Under the lock: there is no magazine for the caller, and what it takes from the slabs may be what went past the depot to them. Who cycles has more
 * objects than when it was looked at last, or gave too many away: to fetch them costs more than a look.
 */
static void note_empty(struct cache_layer *caches, struct depot *depot) {
    const uint32_t went = __atomic_load_n(&depot->went_past, __ATOMIC_RELAXED), back = (uint32_t)min_u64(went, depot->rounds / 2u);
    __atomic_store_n(&depot->went_past, went - back, __ATOMIC_RELAXED); /* some that went just now are lost: it is a rule of thumb */
    depot->came_back += back;
    const uint64_t wanted = depot->shared && depot->object_bytes >= ALONE_OBJECT_BYTES ? CYCLED_BYTES_ALONE_SHARED : CYCLED_BYTES;
    const bool begins = depot->keeps == DEPOT_KEEPS_BURSTS && (uint64_t)depot->came_back * depot->object_bytes >= wanted << depot->reaps;
    if (!depot->cycles && !begins) return;
    rounds_cycle(caches, depot);
    set_full_limit(caches, depot);
}

/* The most rounds of an object's size in so many bytes: a power of two, 2 at least. */
static unsigned rounds_in(size_t object_bytes, uint32_t bytes) { return 1u << bit_highest(bytes / (uint32_t)object_bytes | 2); }

void depot_init(struct depot *depot, size_t object_bytes, unsigned magazine_max, enum depot_keeps keeps) {
    const bool large = object_bytes > LARGE_OBJECT_BYTES;
    unsigned rounds = rounds_in(object_bytes, large ? ARRAY_BYTES_MAX_LARGE : ARRAY_BYTES_MAX);
    rounds = (unsigned)min_u64(rounds, large ? ARRAY_ROUNDS_MAX_LARGE : CACHE_ROUNDS_MAX);
    unsigned start = large ? rounds_in(object_bytes, ARRAY_BYTES_START_LARGE) : rounds / 2;
    rounds = (unsigned)min_u64(rounds, magazine_max);
    start = (unsigned)min_u64(start, magazine_max);
    depot->lock = (struct platform_lock)PLATFORM_LOCK_INIT(LOCK_RANK_DEPOT);
    depot->rounds_max = (uint16_t)rounds;
    depot->rounds = depot->rounds_start = (uint16_t)start;
    depot->object_bytes = (uint32_t)object_bytes;
    depot->keeps = (uint8_t)keeps;
    __atomic_store_n(&depot->leaving, false, __ATOMIC_RELAXED);
    __atomic_store_n(&depot->shut, 0, __ATOMIC_RELAXED);
    depot->bottom = 0; /* cache_init may run twice */
    depot->kind = (uint16_t)magazine_kind(start / 2);
    depot->shared = depot->changed_hands = depot->cycles = depot->contends = false;
    depot->passed = 0;
    depot->went_past = depot->came_back = 0;
    depot->reaps = 0;
    depot->giving = 0;
    depot->visitor = 0;
    depot->shelved = false;
    depot->shelves_used = depot->shelf_visits = 0;
    depot->full_max = full_limit(depot, 0);
}

unsigned depot_place(struct cache_layer *caches, struct depot *depot) {
    unsigned bottom = __atomic_load_n(&depot->bottom, __ATOMIC_RELAXED);
    if (STRATA_LIKELY(bottom != 0)) return bottom;
    platform_lock_acquire(&depot->lock);
    bottom = depot->bottom;
    if (bottom == 0) {
        bottom = __atomic_fetch_add(&caches->next_slot, depot->rounds_max, __ATOMIC_RELAXED);
        /* Pairs with the acquire in who reads a header that was opened since: there the array has its place. */
        __atomic_store_n(&depot->bottom, (uint16_t)bottom, __ATOMIC_RELEASE);
    }
    platform_lock_release(&depot->lock);
    return bottom;
}

static void free_magazine(struct cache_layer *caches, struct magazine *magazine) {
    void *object = magazine;
    slab_free_batch(caches->slabs, SLAB_CACHE_MAGAZINES + magazine->kind, &object, 1);
}

static struct magazine *new_magazine(struct cache_layer *caches, unsigned kind) {
    void *memory;
    if (slab_alloc_batch(caches->slabs, SLAB_CACHE_MAGAZINES + kind, &memory, 1) == 0) return NULL;
    struct magazine *magazine = memory;
    *magazine = (struct magazine){.kind = (uint16_t)kind};
    return magazine;
}

STRATA_COLD void depot_grow(struct cache_layer *caches, struct depot *depot) {
    if (__atomic_load_n(&depot->rounds, __ATOMIC_RELAXED) >= depot->rounds_max) return; /* a tick looks at what has outgrown its share */
    platform_lock_acquire(&depot->lock);
    if (rounds_grow(caches, depot, true)) set_full_limit(caches, depot);
    platform_lock_release(&depot->lock);
}

struct magazine *depot_take_full(struct cache_layer *caches, struct depot *depot) {
    const unsigned home = depot_shelf(caches, depot);
    struct magazine *magazine = home != 0 ? shelf_take_full(caches, depot, home) : NULL;
    if (magazine != NULL) return magazine;
    depot_lock(depot);
    note_visit(caches, depot);
    magazine = magazine_pop(&depot->full);
    /* Of who shares the shelf; or what came there while threads worked for themselves. */
    const bool elsewhere = magazine == NULL && depot->shelved && shelves_have_any(caches, depot, home);
    if (magazine != NULL)
        depot->allocs += magazine->count;
    else if (!elsewhere)
        note_empty(caches, depot);
    note_miss(caches, depot);
    depot_unlock(depot);
    return STRATA_LIKELY(!elsewhere) ? magazine : shelf_take_any(caches, depot, home);
}

/* Under the lock. False: it is of another m, or there are enough. */
static bool link_empty(struct depot *depot, struct magazine *magazine) {
    if (magazine->kind != depot->kind || depot->empty.count >= max_u64(DEPOT_EMPTY_MIN, depot->full_max)) return false;
    magazine_push(&depot->empty, magazine);
    return true;
}

unsigned depot_take_few(struct cache_layer *caches, struct depot *depot, void **rounds) {
    const unsigned home = depot_shelf(caches, depot);
    unsigned count = home != 0 ? shelf_take(caches, depot, home, rounds) : 0;
    if (count != 0) return count;
    depot_lock(depot);
    struct magazine *magazine = depot->full.first;
    if (magazine != NULL && magazine->count <= DEPOT_FEW) { /* else the caller looks for one, and finds out what else there is */
        note_visit(caches, depot);
        magazine = magazine_pop(&depot->full);
        count = magazine_take(magazine, rounds);
        depot->allocs += count;
        if (link_empty(depot, magazine)) magazine = NULL;
        note_miss(caches, depot);
    } else {
        magazine = NULL;
    }
    depot_unlock(depot);
    if (STRATA_UNLIKELY(magazine != NULL)) free_magazine(caches, magazine); /* of another m, or one too many */
    return count;
}

bool depot_give_few(struct cache_layer *caches, struct depot *depot, unsigned home, void *const *rounds, unsigned count) {
    if (home != 0) return shelf_give(caches, depot, home, rounds, count);
    struct magazine *magazine = NULL;
    depot_lock(depot);
    note_visit(caches, depot);
    if (depot->full.count < depot->full_max && depot->empty.first != NULL && magazine_capacity(depot->empty.first) >= count) {
        magazine = magazine_pop(&depot->empty);
        magazine_fill(magazine, rounds, count);
        magazine_push(&depot->full, magazine);
        depot->frees += count;
    }
    depot_unlock(depot);
    return magazine != NULL;
}

bool depot_has_room(const struct cache_layer *caches, const struct depot *depot) {
    const unsigned home = depot_shelf(caches, depot);
    if (home != 0) return shelf_has_room(caches, depot, home);
    return __atomic_load_n(&depot->full.count, __ATOMIC_RELAXED) < __atomic_load_n(&depot->full_max, __ATOMIC_RELAXED);
}

bool depot_give_full(struct cache_layer *caches, struct depot *depot, struct magazine *magazine) {
    if (magazine->home != 0) return shelf_give_full(caches, depot, magazine);
    depot_lock(depot);
    bool room = depot->full.count < depot->full_max;
    if (room) {
        magazine_push(&depot->full, magazine);
        depot->frees += magazine->count;
    }
    depot_unlock(depot);
    return room;
}

struct magazine *depot_take_empty(struct cache_layer *caches, struct depot *depot) {
    const unsigned home = depot_shelf(caches, depot), kind = __atomic_load_n(&depot->kind, __ATOMIC_RELAXED);
    struct magazine *magazine = home != 0 ? shelf_take_empty(caches, depot, home) : NULL;
    if (home == 0) {
        depot_lock(depot);
        magazine = magazine_pop(&depot->empty);
        note_visit(caches, depot);
        depot_unlock(depot);
    }
    if (magazine != NULL && magazine->kind == kind) return magazine;
    if (magazine != NULL) free_magazine(caches, magazine); /* m has changed since */
    return new_magazine(caches, kind);
}

void depot_give_empty(struct cache_layer *caches, struct depot *depot, struct magazine *magazine) {
    const unsigned home = depot_shelf(caches, depot);
    bool room;
    magazine->count = 0;
    magazine->home = 0;
    if (home != 0) {
        room = shelf_give_empty(caches, depot, magazine, home);
    } else {
        depot_lock(depot);
        room = link_empty(depot, magazine);
        depot_unlock(depot);
    }
    if (!room) free_magazine(caches, magazine);
}

void depot_put_away(struct cache_layer *caches, const struct depot *depot, struct magazine *magazine) {
    if (magazine->count != 0) backend_free(caches, (unsigned)(depot - caches->depots), magazine->rounds, magazine->count);
    free_magazine(caches, magazine);
}

/* ------------------------------------------------------------------ regrouping */

/*
 * Moves rounds into the bucket; returns how many found room. One that is full joins the full magazines, or is the caller's, in *over, where these are
 * enough. Under the lock.
 */
static unsigned pour(struct depot *depot, void *const *rounds, unsigned count, struct magazine **over) {
    struct magazine *bucket = depot->bucket;
    unsigned full = (unsigned)min_u64(magazine_capacity(bucket), max_u64(depot->rounds / 2u, 1));
    unsigned room = full > bucket->count ? full - bucket->count : 0; /* m may have gone down since */
    unsigned moved = (unsigned)min_u64(room, count);
    for (unsigned i = 0; i < moved; i++) bucket->rounds[bucket->count++] = rounds[i];
    depot->bucket_touched = true;
    if (bucket->count < full) return moved;
    depot->bucket = NULL;
    if (depot->full.count < depot->full_max) {
        magazine_push(&depot->full, bucket);
        depot->frees += bucket->count;
    } else {
        *over = bucket;
    }
    return moved;
}

STRATA_COLD void depot_give_odd(struct cache_layer *caches, unsigned cache, void *const *rounds, unsigned count) {
    struct depot *depot = &caches->depots[cache];
    struct magazine *fresh = NULL; /* an empty one, for when there is no bucket */
    bool wanted = true;
    while (count != 0 && wanted) {
        struct magazine *over = NULL;
        platform_lock_acquire(&depot->lock);
        unsigned kind = depot->kind, moved = 0;
        wanted = depot->visits != depot->visits_seen || depot->shelf_visits != 0;
        if (wanted && depot->bucket == NULL) {
            depot->bucket = fresh;
            fresh = NULL;
        }
        if (wanted && depot->bucket != NULL) moved = pour(depot, rounds, count, &over);
        bool lacks_bucket = wanted && moved < count && depot->bucket == NULL && over == NULL;
        platform_lock_release(&depot->lock);
        rounds += moved;
        count -= moved;
        if (over != NULL) { /* the depot has enough: the rest will find the same */
            backend_free(caches, cache, over->rounds, over->count);
            free_magazine(caches, over);
            break;
        }
        if (lacks_bucket && fresh == NULL && (fresh = new_magazine(caches, kind)) == NULL) break;
    }
    if (count != 0) backend_free(caches, cache, rounds, count);
    if (fresh != NULL) free_magazine(caches, fresh);
}

STRATA_COLD struct magazine *depot_take_odd(struct cache_layer *caches, struct depot *depot) {
    depot_lock(depot);
    struct magazine *magazine = depot->bucket;
    depot->visits++;
    if (magazine != NULL) { /* it came and goes */
        depot->bucket = NULL;
        depot->frees += magazine->count;
    } else {
        magazine = magazine_pop(&depot->full);
    }
    if (magazine != NULL) depot->allocs += magazine->count;
    depot_unlock(depot);
    return magazine != NULL ? magazine : shelf_take_any(caches, depot, 0);
}

/* ------------------------------------------------------------------ over time */

/* One at a time, so that a fork at this moment costs the child one magazine's rounds at most. The list may have become shorter by now. */
static void put_away_some(struct cache_layer *caches, struct depot *depot, struct magazine_list *list, unsigned count) {
    while (count-- != 0) {
        platform_lock_acquire(&depot->lock);
        struct magazine *magazine = magazine_pop(list);
        platform_lock_release(&depot->lock);
        if (magazine == NULL) break;
        depot_put_away(caches, depot, magazine);
    }
}

void depot_tick(struct cache_layer *caches, unsigned cache, bool all) {
    struct depot *depot = &caches->depots[cache];
    const bool shelved = __atomic_load_n(&depot->shelved, __ATOMIC_ACQUIRE); /* so that most programs don't come to the code of shelves */
    const struct shelf_activity activity = shelved && !all ? shelves_look(caches, depot) : (struct shelf_activity){0};
    platform_lock_acquire(&depot->lock);
    const unsigned full_cut = magazine_unneeded(&depot->full, all), empty_cut = magazine_unneeded(&depot->empty, all);
    if (!all) { /* by time, which a reap says nothing about */
        depot->visits += activity.visits;
        depot->shelf_visits = activity.visits;
        depot->contended += activity.contended;
        depot->contention += activity.contended;
        __atomic_store_n(&depot->shared, depot->changed_hands || activity.changed_hands, __ATOMIC_RELAXED);
        depot->changed_hands = false;
        __atomic_store_n(&depot->passed, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&depot->went_past, __atomic_load_n(&depot->went_past, __ATOMIC_RELAXED) / 2, __ATOMIC_RELAXED); /* it ages */
        if (depot->visits == depot->visits_seen) depot->reaps = 0;
        rounds_adapt(caches, depot);
    } else if (depot->cycles && !rounds_outlast_reaps(caches, depot)) {
        /* Memory is wanted: who cycles must show that anew, and better each time, or it is the heap that goes to and fro. */
        rounds_stop_cycling(caches, depot);
        if (depot->reaps < CYCLE_REAPS_MAX) depot->reaps += 2;
    }
    depot->came_back = 0;
    set_full_limit(caches, depot);
    struct magazine *magazine = all || !depot->bucket_touched ? depot->bucket : NULL;
    if (magazine != NULL) depot->bucket = NULL;
    if (!all) depot->bucket_touched = false;
    platform_lock_release(&depot->lock);

    if (magazine != NULL) depot_put_away(caches, depot, magazine);
    put_away_some(caches, depot, &depot->full, full_cut);
    put_away_some(caches, depot, &depot->empty, empty_cut);
    if (shelved) shelves_trim(caches, depot, all);
}
