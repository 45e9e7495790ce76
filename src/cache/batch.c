/*
 * batch.c - many objects of one cache at once: what the CPU array has, then whole groups past it.
 *
 * A group is a full magazine of the depot, or as many objects from or to the slabs as are taken under one lock; it goes between the caller's array
 * and there without a stop in the CPU array. What is less than half an array goes the usual way, so that the array is in use again
 * afterwards. So n objects cost n/256 locks or so, whatever m is. No lock is held across two layers' calls.
 */
#include "cache/cache_internal.h"

/* Objects to and from slabs under one lock: who else wants it waits for some microseconds. */
#define GROUP_MAX 256

static unsigned transfer_of(const struct depot *depot) {
    unsigned half = __atomic_load_n(&depot->rounds, __ATOMIC_RELAXED) / 2u;
    return half != 0 ? half : 1;
}

/* A magazine's rounds, those that were to be popped first in front. What finds no room, as m was larger when it was filled, goes to the slabs. */
static unsigned take_magazine(struct cache_layer *caches, unsigned cache, void **objects, unsigned count) {
    struct depot *depot = &caches->depots[cache];
    struct magazine *magazine = depot_take_full(caches, depot);
    if (magazine == NULL) return 0;
    unsigned taken = 0;
    while (taken < count && magazine->count != 0) objects[taken++] = magazine->rounds[--magazine->count];
    if (magazine->count != 0) backend_free(caches, cache, magazine->rounds, magazine->count);
    depot_give_empty(caches, depot, magazine);
    return taken;
}

unsigned cache_alloc_batch(struct cache_layer *caches, unsigned cache, void **objects, unsigned count) {
    unsigned got = 0;
    while (got < count) {
        unsigned left = count - got, some = cpu_pop_batch_in(&caches->areas_at, cache, objects + got, left);
        if (some == 0 && left < transfer_of(&caches->depots[cache])) {
            objects[got] = cache_alloc_slow(caches, cache);
            some = objects[got] != NULL;
        } else if (some == 0) {
            some = take_magazine(caches, cache, objects + got, left);
            if (some == 0) {
                some = backend_alloc(caches, cache, objects + got, (unsigned)min_u64(left, GROUP_MAX));
                rounds_reverse(objects + got, some);
            }
            if (some == 0) some = (objects[got] = cache_alloc_slow(caches, cache)) != NULL; /* which knows where else to look */
        }
        if (some == 0) break;
        got += some;
    }
    return got;
}

/* A magazine full of the first objects, for the depot. 0: it has enough, or there is no magazine. */
static unsigned give_magazine(struct cache_layer *caches, unsigned cache, void *const *objects, unsigned count) {
    struct depot *depot = &caches->depots[cache];
    struct magazine *magazine = depot_take_empty(caches, depot);
    if (magazine == NULL) return 0;
    unsigned given = (unsigned)min_u64(count, magazine_capacity(magazine));
    for (unsigned i = 0; i < given; i++) magazine->rounds[given - 1 - i] = objects[i];
    magazine->count = given;
    if (depot_give_full(caches, depot, magazine)) return given;
    magazine->count = 0;
    depot_give_empty(caches, depot, magazine);
    return 0;
}

void cache_free_batch(struct cache_layer *caches, unsigned cache, void *const *objects, unsigned count) {
    unsigned done = cpu_push_batch_in(&caches->areas_at, cache, objects, count), transfer = transfer_of(&caches->depots[cache]);
    bool depot = done < count && cpu_layer_open(caches, cache), arrays = depot;
    while (done < count) {
        unsigned left = count - done, some = 0;
        if (arrays) some = cpu_push_batch_in(&caches->areas_at, cache, objects + done, left);
        if (some == 0 && arrays && left < transfer) {
            cache_free_slow(caches, cache, objects[done]);
            some = 1;
        }
        if (some == 0 && depot) {
            some = give_magazine(caches, cache, objects + done, (unsigned)min_u64(left, transfer));
            depot = some != 0;
        }
        if (some == 0) {
            some = (unsigned)min_u64(left, GROUP_MAX);
            backend_free(caches, cache, objects + done, some);
        }
        done += some;
    }
}
