/*
 * object_cache_reclaim.c - asking programs to free objects where memory is short (magazines paper, 5.2, with what it calls a future enhancement:
 * the amount that is wanted, and how badly).
 *
 * A reclaim function runs once at a time for each cache: its `running` names the thread, and whoever finds it taken goes on without. So it can't
 * be entered again through an allocation that it makes itself. The cache is pinned meanwhile, by the caller's use of it or by object_pin_next.
 * What it gave back is measured as bytes of objects that the program has fewer afterwards; what other threads allocate meanwhile counts
 * against it.
 */
#include "cache/object_internal.h"

#include "cache/object_debug.h"

/* While a thread forks that is in a callback. */
#define FORKS (UINT32_C(1) << 31)

bool object_reclaimer_add(struct object_cache *cache, const struct object_cache_config *config) {
    cache->reclaimer = zone_metadata_alloc(cache->slabs.zone, sizeof *cache->reclaimer);
    if (cache->reclaimer == NULL) return false;
    *cache->reclaimer = (struct object_reclaimer){.reclaim = config->reclaim, .call = config->call_reclaim};
    return true;
}

static uint64_t held_bytes(struct object_cache *cache) {
    struct object_cache_stats stats;
    object_cache_stats_get(cache, &stats);
    return (stats.slabs.in_use - min_u64(stats.cache.cached, stats.slabs.in_use)) * cache->slabs.stride;
}

/* Of all its slabs, those of debugged objects included. */
static uint64_t memory_of(const struct object_cache *cache) {
    return __atomic_load_n(&cache->slabs.slabs, __ATOMIC_RELAXED) * cache->slabs.slab_bytes + object_debug_figures(cache).memory_bytes;
}

bool object_cache_reclaim(struct object_cache *cache, const struct object_need *need) {
    struct object_reclaimer *reclaimer = cache->reclaimer;
    uint32_t none = 0;
    if (reclaimer == NULL) return false;
    uint64_t memory = memory_of(cache);
    if (memory == 0) return false;
    if (!__atomic_compare_exchange_n(&reclaimer->running, &none, platform_thread_self(), false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return false;
    uint64_t wanted = need->bytes != 0 ? need->bytes : max_u64(memory >> need->shift, cache->slabs.slab_bytes);
    uint64_t before = held_bytes(cache);
    reclaimer->call(reclaimer->reclaim, cache->argument, wanted, need->need);
    uint64_t after = held_bytes(cache);
    __atomic_fetch_add(&reclaimer->calls, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&reclaimer->bytes, before > after ? before - after : 0, __ATOMIC_RELAXED);
    __atomic_store_n(&reclaimer->running, 0, __ATOMIC_RELEASE);
    return true;
}

static bool has_reclaimer(const struct object_cache *cache) { return cache->reclaimer != NULL; }

unsigned object_caches_reclaim(struct object_caches *objects, const struct object_cache *except, const struct object_need *need) {
    struct object_place place = {0};
    struct object_cache *cache;
    unsigned called = 0;
    while ((cache = object_pin_next(objects, &place, has_reclaimer)) != NULL) {
        if (cache != except) called += object_cache_reclaim(cache, need);
        object_unpin(objects, cache);
    }
    return called;
}

void object_reclaimer_stats(const struct object_cache *cache, struct object_cache_stats *stats) {
    const struct object_reclaimer *reclaimer = cache->reclaimer;
    stats->reclaims = reclaimer != NULL ? __atomic_load_n(&reclaimer->calls, __ATOMIC_RELAXED) : 0;
    stats->reclaimed_bytes = reclaimer != NULL ? __atomic_load_n(&reclaimer->bytes, __ATOMIC_RELAXED) : 0;
}

/* ------------------------------------------------------------------ whose callbacks run, and fork */

const char *object_cache_callback(const struct object_caches *objects, const struct object_cache *cache) {
    uint32_t reclaiming = cache->reclaimer != NULL ? __atomic_load_n(&cache->reclaimer->running, __ATOMIC_RELAXED) : 0;
    uint32_t moving = cache->mover != NULL ? __atomic_load_n(&objects->mover, __ATOMIC_RELAXED) : 0;
    if (reclaiming == 0 && moving == 0) return NULL;
    uint32_t self = platform_thread_self();
    if (reclaiming == self) return "reclaim";
    return moving == self && cache->slabs.apart != NULL ? "move" : NULL; /* only the mover writes it */
}

static void mark_own(uint32_t *thread) {
    uint32_t number = __atomic_load_n(thread, __ATOMIC_RELAXED);
    if (number != 0 && number == platform_thread_self()) __atomic_store_n(thread, number | FORKS, __ATOMIC_RELAXED);
}
static void unmark_own(uint32_t *thread) {
    uint32_t number = __atomic_load_n(thread, __ATOMIC_RELAXED);
    if ((number & FORKS) != 0) __atomic_store_n(thread, number & ~FORKS, __ATOMIC_RELAXED);
}
/* Whether it was the thread that forked. */
static bool rename_own(uint32_t *thread) {
    bool own = (*thread & FORKS) != 0;
    __atomic_store_n(thread, own ? platform_thread_self() : 0, __ATOMIC_RELAXED);
    return own;
}

void object_callbacks_fork_prepare(struct object_caches *objects) {
    mark_own(&objects->mover);
    LIST_FOR_EACH(&objects->all, node) {
        struct object_reclaimer *reclaimer = CONTAINER_OF(node, struct object_cache, link)->reclaimer;
        if (reclaimer != NULL) mark_own(&reclaimer->running);
    }
}

void object_callbacks_fork_parent(struct object_caches *objects) {
    unmark_own(&objects->mover);
    LIST_FOR_EACH(&objects->all, node) {
        struct object_reclaimer *reclaimer = CONTAINER_OF(node, struct object_cache, link)->reclaimer;
        if (reclaimer != NULL) unmark_own(&reclaimer->running);
    }
}

void object_callbacks_fork_child(struct object_caches *objects) {
    bool moving = rename_own(&objects->mover);
    LIST_FOR_EACH(&objects->all, node) {
        struct object_cache *cache = CONTAINER_OF(node, struct object_cache, link);
        if (cache->reclaimer != NULL) rename_own(&cache->reclaimer->running);
        if (!moving && cache->slabs.apart != NULL) object_slabs_rejoin_child(&cache->slabs);
    }
}
