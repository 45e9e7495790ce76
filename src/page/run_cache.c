/*
 * run_cache.c - each CPU's cache of the runs that blocks have just left, as the kernel has lists of pages for each CPU in front of its zones.
 *
 * Buffers of 32 KiB to 1 MiB come and go in the same few sizes, in threads that have nothing to do with each other. By the zone each would cost a
 * search and marks under one lock, whose lines go from CPU to CPU with every call; from here a run is handed on as it is, under a lock that other
 * CPUs leave alone. For the zone it stays a block, allocated, counted and tagged (tags of neighbours share lines), but its descriptor says that it is
 * nobody's, so that a second free is seen at once. What a cache keeps beyond its room goes to the zone, the longest there first, several by one hold
 * of its lock.
 *
 * Nobody is to miss what waits here: before a page is touched for the first time, before limits refuse anything, with each tick and whenever the zone
 * is looked at, all caches are emptied (zone_wake_runs). Invariant: a cached run has no holes, owner, watch or address to keep: its descriptor says
 * nothing but how long it is and how much of it was absent. Lock: a cache's own, LOCK_RANK_RUN_CACHE, under the zone's or alone.
 */
#include "page/block_internal.h"
#include "platform/cpu_ops.h"

/* Longer ones lie alone in their superpages, where the zone finds them as fast: resting.c. */
#define CACHED_GRANULES_MAX (SUPERPAGE_GRANULES / 2)
/* A cache keeps so much, or its part of this share of what is present; or one run that is longer. */
#define KEPT_GRANULES_MIN 96
#define KEPT_SHARE 8
#define KEEPERS_MIN 2

static unsigned own_number(void) { return cpu_current_id() % RUN_CACHES; }

/* The first run comes to this CPU. */
static STRATA_COLD bool begin(struct zone *zone, unsigned number) {
    if (platform_fork_is_mine()) return false; /* one of this moment would not be locked for the child */
    zone_lock(zone);
    unsigned used = zone->run_caches_used;
    for (; used <= number; used++) zone->run_caches[used] = (struct run_cache){.lock = PLATFORM_LOCK_INIT(LOCK_RANK_RUN_CACHE)};
    __atomic_store_n(&zone->run_caches_used, used, __ATOMIC_RELEASE); /* who reads that finds locks */
    platform_lock_release(&zone->lock);
    return true;
}

static unsigned caches_used(const struct zone *zone) { return __atomic_load_n(&zone->run_caches_used, __ATOMIC_ACQUIRE); }

static bool has_runs(const struct run_cache *cache) { return __atomic_load_n(&cache->count, __ATOMIC_RELAXED) != 0; }

static bool is_plain(const struct block_desc *block) {
    return block->superpages == 0 && block->granules <= CACHED_GRANULES_MAX && block->mobility == MOBILITY_MOVABLE && block->move == NULL &&
           !(block->fixed | block->reserved | block->holes | block->watched | block->huge | block->grouped);
}

/* Under the cache's lock, as is the next. */
static void insert_run(struct run_cache *cache, struct cached_run run) {
    cache->runs[cache->count] = run;
    __atomic_store_n(&cache->granules, cache->granules + run.granules, __ATOMIC_RELAXED);
    __atomic_store_n(&cache->count, cache->count + 1, __ATOMIC_RELAXED);
}
static struct cached_run remove_run(struct run_cache *cache, unsigned i) {
    const struct cached_run run = cache->runs[i];
    const unsigned count = cache->count - 1;
    for (; i < count; i++) cache->runs[i] = cache->runs[i + 1];
    __atomic_store_n(&cache->granules, cache->granules - run.granules, __ATOMIC_RELAXED);
    __atomic_store_n(&cache->count, count, __ATOMIC_RELAXED);
    return run;
}

/* Under the zone's lock: its granules are idle now. */
static void dissolve(struct zone *zone, struct cached_run run) {
    char *address = zone_address_of(zone, run.at);
    const struct block_desc block = *block_of(zone, address);
    block_uncount(zone, address, &block);
    zone_block_dissolve(zone, address, &block);
}

/*
 * The longest there make room. Under the zone's lock from before they leave the cache until they are idle: who looks for memory under that lock, or
 * forks, finds all runs but those that threads are about to give or take.
 */
static STRATA_RARE void make_room(struct zone *zone, struct run_cache *cache, struct cached_run run, uint64_t most) {
    struct cached_run over[RUN_CACHE_RUNS];
    unsigned overs = 0;
    zone_lock(zone);
    platform_lock_acquire_here(&cache->lock);
    while (cache->count > RUN_CACHE_RUNS / 2 || (cache->count != 0 && cache->granules + run.granules > most)) over[overs++] = remove_run(cache, 0);
    insert_run(cache, run);
    platform_lock_release_here(&cache->lock);
    for (unsigned i = 0; i < overs; i++) dissolve(zone, over[i]);
    zone_trim_to_limit(zone);
    platform_lock_release(&zone->lock);
}

/* Exchanged pages go home, superpages are being emptied, memory is short: these want what is freed idle at once. */
static bool is_wanted(const struct zone *zone, uint64_t present) {
    return __atomic_load_n(&zone->exchanges.count, __ATOMIC_RELAXED) != 0 || __atomic_load_n(&zone->compaction.thread, __ATOMIC_RELAXED) != 0 ||
           present > __atomic_load_n(&zone->config.soft_limit_bytes, __ATOMIC_RELAXED) >> GRANULE_SHIFT;
}

bool zone_run_cache_give(struct zone *zone, char *address) {
    if (!zone_is_block(zone, address)) return false;
    struct block_desc *block = block_of(zone, address);
    const size_t at = zone_granule_of(zone, address);
    const uint64_t present = __atomic_load_n(&zone->counters.populated, __ATOMIC_RELAXED);
    if (!is_plain(block) || at > UINT32_MAX || is_wanted(zone, present)) return false;
    const unsigned number = own_number();
    if (STRATA_UNLIKELY(number >= caches_used(zone)) && !begin(zone, number)) return false;
    struct run_cache *cache = &zone->run_caches[number];
    const struct cached_run run = {.at = (uint32_t)at, .granules = (uint32_t)block->granules};
    const uint64_t most = max_u64(KEPT_GRANULES_MIN, present / KEPT_SHARE / max_u64(caches_used(zone), KEEPERS_MIN));
    if (run.granules > most && has_runs(cache)) return false;                      /* a long one alone, for who has no others */
    if (__atomic_exchange_n(&block->cached, true, __ATOMIC_RELAXED)) return false; /* of two that free it at once one finds it gone */

    platform_lock_acquire_here(&cache->lock);
    const bool room = cache->count == 0 || (cache->count < RUN_CACHE_RUNS && cache->granules + run.granules <= most);
    if (STRATA_LIKELY(room)) insert_run(cache, run);
    platform_lock_release_here(&cache->lock);
    if (STRATA_UNLIKELY(!room)) make_room(zone, cache, run, most);
    return true;
}

char *zone_run_cache_take(struct zone *zone, size_t granules, size_t align, bool longer) {
    if (granules > CACHED_GRANULES_MAX) return NULL;
    const size_t most = longer ? granules + granules / ZONE_LONGER_SHARE : granules;
    const unsigned number = own_number();
    struct run_cache *cache = &zone->run_caches[number];
    if (number >= caches_used(zone) || !has_runs(cache)) return NULL;
    struct cached_run run = {0};
    unsigned best = RUN_CACHE_RUNS;
    size_t best_granules = most + 1;
    platform_lock_acquire_here(&cache->lock);
    for (unsigned i = cache->count; i-- != 0;) {
        const struct cached_run *at = &cache->runs[i];
        if (at->granules < granules || at->granules >= best_granules) continue;
        if (((uintptr_t)zone_address_of(zone, at->at) & (max_u64(align, 1) - 1)) != 0) continue;
        best = i;
        best_granules = at->granules;
        if (best_granules == granules) break;
    }
    if (best != RUN_CACHE_RUNS) run = remove_run(cache, best);
    platform_lock_release_here(&cache->lock);
    if (best == RUN_CACHE_RUNS) return NULL;
    char *address = zone_address_of(zone, run.at);
    struct block_desc *block = block_of(zone, address);
    block->longer = run.granules - (uint32_t)granules;
    __atomic_store_n(&block->cached, false, __ATOMIC_RELAXED);
    return address;
}

static STRATA_RARE bool wake(struct zone *zone, struct run_cache *cache) {
    struct cached_run runs[RUN_CACHE_RUNS];
    platform_lock_acquire_here(&cache->lock);
    const unsigned count = cache->count;
    for (unsigned i = 0; i < count; i++) runs[i] = cache->runs[i];
    __atomic_store_n(&cache->granules, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&cache->count, 0, __ATOMIC_RELAXED);
    platform_lock_release_here(&cache->lock);
    for (unsigned i = 0; i < count; i++) dissolve(zone, runs[i]);
    return count != 0;
}

bool zone_wake_own_runs(struct zone *zone) {
    const unsigned number = own_number();
    return number < zone->run_caches_used && has_runs(&zone->run_caches[number]) && wake(zone, &zone->run_caches[number]);
}

bool zone_wake_runs(struct zone *zone) {
    bool any = false;
    for (unsigned i = 0; i < zone->run_caches_used; i++)
        if (has_runs(&zone->run_caches[i])) any |= wake(zone, &zone->run_caches[i]);
    return any;
}

uint64_t zone_cached_granules(const struct zone *zone) {
    uint64_t granules = 0;
    for (unsigned i = 0; i < zone->run_caches_used; i++) granules += __atomic_load_n(&zone->run_caches[i].granules, __ATOMIC_RELAXED);
    return granules;
}

STRATA_COLD void zone_run_caches_hold(struct zone *zone) {
    for (unsigned i = 0; i < zone->run_caches_used; i++) platform_lock_hold(&zone->run_caches[i].lock);
}
STRATA_COLD void zone_run_caches_unhold(struct zone *zone) {
    for (unsigned i = 0; i < zone->run_caches_used; i++) platform_lock_unhold(&zone->run_caches[i].lock);
}
