/*
 * run_cache.c - each CPU's cache of the runs that blocks have just left, as the kernel has lists of pages for each CPU in front of its zones.
 *
 * Buffers of 32 KiB to 1 MiB come and go in the same few sizes, in threads that have nothing to do with each other. By the zone each would cost a
 * search and marks under one lock, whose lines go from CPU to CPU with every call; from here a run is handed on as it is, under a lock that other
 * CPUs leave alone. For the zone it stays a block, allocated, counted and tagged (tags of neighbours share lines), but its descriptor says that it is
 * nobody's, so that a second free is seen at once. What a cache keeps beyond its room goes to the zone, the longest there first, several by one hold
 * of its lock. Who asks for less gets it, too (struct longer_runs), the shortest that will do.
 *
 * Where blocks are hardly used, so that most of their pages were never touched, those of superpages are kept, too. Such a block is worth what is
 * there of it, and serves who wants half of it, as the rest is address space: whoever gets it is likely to touch the pages that are there, at its
 * start, and without a search, a system call or a fault. One in some is asked for a page that varies, and where it is there for all of them, so that
 * a program which begins to use its blocks is noticed.
 *
 * Nobody is to miss what waits here: before a page is touched for the first time caches give up what is used, in pieces until there is enough; before
 * limits refuse anything, with each tick and whenever the zone is looked at, all they have (zone_wake_runs). Invariant: a cached run has no holes,
 * owner, watch or address to keep: its descriptor says nothing but how long it is and how much of it was absent. Lock: a cache's own,
 * LOCK_RANK_RUN_CACHE, under the zone's or alone.
 */
#include "page/block_internal.h"
#include "platform/cpu_ops.h"

/* Longer ones lie alone in their superpages, where the zone finds them as fast: resting.c. */
#define CACHED_GRANULES_MAX (SUPERPAGE_GRANULES / 2)
/*
 * Of what is used a cache keeps all that it has places for. Of what is hardly used so much at least, or its part of this share of what is present, as
 * many as there is room for: what a block that goes had is touched anew by the next one, at another place, and of such a heap most that counts as
 * present is not.
 */
#define SPARSE_GRANULES_MIN 768
#define SPARSE_SHARE 32
#define KEEPERS_MIN 2
/*
 * So many leave a cache by one hold of its lock, and so many are looked at for one that fits: the latest, a few at a time, until one is hardly longer
 * than what is asked for.
 */
#define PIECE 16
#define TAKE_LOOKS 48
#define TAKE_LOOKS_PIECE 8
#define HARDLY_LONGER_SHARE 8
_Static_assert(RUN_CACHE_RUNS <= UINT16_MAX, "the number of a run");
/* Blocks may have so much too much before the bound becomes narrow, or this share of what is present. */
#define LONGER_GRANULES_MIN 256
#define LONGER_SHARE 64
/*
 * Of so many hardly used blocks one is asked for a page: a system call. Of twice as many after each one that was hardly used indeed, up to 2^this;
 * but of very long ones no fewer, as what some of these have is much.
 */
#define LOOK_EACH 16
#define LOOK_SHIFT_MAX 3

static unsigned own_number(void) { return cpu_current_id() % RUN_CACHES; }

/* The first run comes to this CPU. */
static STRATA_NOINLINE bool begin(struct zone *zone, unsigned number) {
    if (platform_fork_is_mine()) return false; /* one of this moment would not be locked for the child */
    zone_lock(zone);
    unsigned used = zone->run_caches_used;
    for (; used <= number; used++)
        zone->run_caches[used] = (struct run_cache){.lock = PLATFORM_LOCK_INIT(LOCK_RANK_RUN_CACHE), .runs = zone->cached_runs[used]};
    __atomic_store_n(&zone->run_caches_used, used, __ATOMIC_RELEASE); /* who reads that finds locks */
    platform_lock_release(&zone->lock);
    return true;
}

static unsigned caches_used(const struct zone *zone) { return __atomic_load_n(&zone->run_caches_used, __ATOMIC_ACQUIRE); }

static bool has_runs(const struct run_cache *cache) { return __atomic_load_n(&cache->count, __ATOMIC_RELAXED) != 0; }
static unsigned count_of(const struct run_cache *cache, bool sparse) { return __atomic_load_n(&cache->kinds[sparse].count, __ATOMIC_RELAXED); }

/* How many granules are there, of a block that was freed: all, or nearly; or fewer where it got absent ones, and those of its kind leave most so. */
static STRATA_RARE uint32_t expect_some(const struct zone *zone, const struct block_desc *block) {
    const uint64_t fresh = min_u64(block->fresh, block->granules),
                   present = block->granules - fresh + zone_expect_touched(zone, block->superpages != 0, fresh - 1) + 1;
    return (uint32_t)(present > block->granules - block->granules / 4 ? block->granules : present);
}
static uint32_t expect_present(const struct zone *zone, const struct block_desc *block) {
    if (block->granules > UINT32_MAX) return UINT32_MAX;
    return block->fresh != 0 && zone_is_sparse(zone, block->superpages != 0) ? expect_some(zone, block) : (uint32_t)block->granules;
}
static bool is_sparse(const struct cached_run *run) { return run->present < run->granules; }

static bool is_plain(const struct block_desc *block) {
    return block->mobility == MOBILITY_MOVABLE && block->move == NULL &&
           !(block->fixed | block->reserved | block->holes | block->watched | block->huge | block->grouped);
}

/* Under the cache's lock, as are the next. */
STRATA_INLINE void insert_run(struct run_cache *cache, struct cached_run run) {
    cache->runs[cache->count] = run;
    struct cached_kind *kind = &cache->kinds[is_sparse(&run)];
    __atomic_store_n(&kind->present, kind->present + run.present, __ATOMIC_RELAXED);
    __atomic_store_n(&kind->count, kind->count + 1, __ATOMIC_RELAXED);
    __atomic_store_n(&cache->count, cache->count + 1, __ATOMIC_RELAXED);
}
static void uncount(struct run_cache *cache, const struct cached_run *run) {
    struct cached_kind *kind = &cache->kinds[is_sparse(run)];
    __atomic_store_n(&kind->present, kind->present - run->present, __ATOMIC_RELAXED);
    __atomic_store_n(&kind->count, kind->count - 1, __ATOMIC_RELAXED);
    __atomic_store_n(&cache->count, cache->count - 1, __ATOMIC_RELAXED);
}
static struct cached_run remove_run(struct run_cache *cache, unsigned i) {
    const struct cached_run run = cache->runs[i];
    uncount(cache, &run);
    __builtin_memmove(&cache->runs[i], &cache->runs[i + 1], (cache->count - i) * sizeof run);
    return run;
}

/* Whether one more does: of the hardly used ones, which may have `most` together, one that has more does alone. */
static bool fits(const struct run_cache *cache, const struct cached_run *run, uint64_t most) {
    const struct cached_kind *kind = &cache->kinds[is_sparse(run)];
    if (!is_sparse(run)) return kind->count < RUN_CACHE_USED_RUNS && cache->count < RUN_CACHE_RUNS;
    return cache->count < RUN_CACHE_RUNS && (kind->count == 0 || kind->present + run->present <= most);
}

/* The longest there of these kinds leave: several; or with `coming` as many as it takes for that to fit. How many. */
static unsigned take_oldest(struct run_cache *cache, bool used, bool sparse, const struct cached_run *coming, uint64_t most,
                            struct cached_run taken[PIECE]) {
    const unsigned had = cache->count;
    unsigned count = 0, kept = 0, i = 0;
    for (; i < had && count < PIECE && (coming == NULL || !fits(cache, coming, most)); i++) {
        if (is_sparse(&cache->runs[i]) ? sparse : used) {
            taken[count++] = cache->runs[i];
            uncount(cache, &cache->runs[i]);
        } else {
            cache->runs[kept++] = cache->runs[i];
        }
    }
    __builtin_memmove(&cache->runs[kept], &cache->runs[i], (had - i) * sizeof taken[0]);
    return count;
}

/* Under the zone's lock: its granules are idle now. */
static void dissolve(struct zone *zone, struct cached_run run) {
    char *address = zone_address_of(zone, run.at);
    const struct block_desc block = *block_of(zone, address);
    block_uncount(zone, address, &block);
    zone_block_dissolve(zone, address, &block);
}

/*
 * Under the zone's lock from before they leave the cache until they are idle: who looks for memory under that lock, or forks, finds all runs but
 * those that threads are about to give or take.
 */
static STRATA_RARE void make_room(struct zone *zone, struct run_cache *cache, struct cached_run run, uint64_t most) {
    const bool sparse = is_sparse(&run);
    struct cached_run over[PIECE];
    zone_lock(zone);
    for (bool room = false; !room;) {
        platform_lock_acquire_here(&cache->lock);
        const bool full = cache->count == RUN_CACHE_RUNS;
        const unsigned overs = take_oldest(cache, full || !sparse, full || sparse, full || !sparse ? NULL : &run, most, over);
        room = fits(cache, &run, most);
        if (room) insert_run(cache, run);
        platform_lock_release_here(&cache->lock);
        for (unsigned i = 0; i < overs; i++) dissolve(zone, over[i]);
    }
    zone_trim_to_limit(zone);
    platform_lock_release(&zone->lock);
}

/* Exchanged pages go home, superpages are being emptied, memory is short: these want what is freed idle at once. */
static bool is_wanted(const struct zone *zone, uint64_t present) {
    return __atomic_load_n(&zone->exchanges.count, __ATOMIC_RELAXED) != 0 || __atomic_load_n(&zone->compaction.thread, __ATOMIC_RELAXED) != 0 ||
           present > __atomic_load_n(&zone->config.soft_limit_bytes, __ATOMIC_RELAXED) >> GRANULE_SHIFT;
}

/*
 * Of hardly used blocks one in some, if it may be asked for anything: a page that varies, and where that is there, all of them; those of a very long
 * one are the zone's to look at.
 */
static STRATA_RARE bool is_used_after_all(const struct zone *zone, struct run_cache *cache, const char *address, size_t granules) {
    const bool is_long = granules > SUPERPAGE_GRANULES;
    const uint32_t number = __atomic_load_n(&cache->looks, __ATOMIC_RELAXED), shift = __atomic_load_n(&cache->look_shift, __ATOMIC_RELAXED);
    size_t absent;
    __atomic_store_n(&cache->looks, number + 1, __ATOMIC_RELAXED); /* what is lost to another thread does not matter, here and below */
    if (number % (is_long ? LOOK_EACH : LOOK_EACH << shift) != 0) return false;
    const bool used =
        platform_is_filtered() || (zone_has_some_page(zone, address, granules, number / LOOK_EACH) &&
                                   (is_long || !zone_count_absent(zone, address, granules, &absent) || absent < granules - granules / 4));
    __atomic_store_n(&cache->look_shift, used ? 0 : (uint32_t)min_u64(shift + 1, LOOK_SHIFT_MAX), __ATOMIC_RELAXED);
    return used;
}

/* Of two that free a block at once one finds it gone. Who is alone has looked, and spares what waits for all that the program wrote to it. */
static bool claim(struct block_desc *block) {
    if (!platform_thread_is_alone()) return !__atomic_exchange_n(&block->cached, true, __ATOMIC_RELAXED);
    __atomic_store_n(&block->cached, true, __ATOMIC_RELAXED);
    return true;
}

bool zone_run_cache_give(struct zone *zone, char *address) {
    if (!zone_is_block(zone, address)) return false;
    struct block_desc *block = block_of(zone, address);
    const size_t at = zone_granule_of(zone, address);
    const uint64_t present = __atomic_load_n(&zone->counters.populated, __ATOMIC_RELAXED);
    const struct cached_run run = {.at = (uint32_t)at, .granules = (uint32_t)block->granules, .present = expect_present(zone, block)};
    if (!is_plain(block) || at > UINT32_MAX || is_wanted(zone, present)) return false;
    if (!is_sparse(&run) && (block->superpages != 0 || run.granules > CACHED_GRANULES_MAX)) return false;
    const unsigned number = own_number();
    if (STRATA_UNLIKELY(number >= caches_used(zone)) && !begin(zone, number)) return false;
    struct run_cache *cache = &zone->run_caches[number];
    uint64_t most = 0;
    if (is_sparse(&run)) {
        most = max_u64(SPARSE_GRANULES_MIN, present / SPARSE_SHARE / max_u64(caches_used(zone), KEEPERS_MIN));
        if (run.present > most) return false;
        if (zone->growing) return false; /* of a limited address space */
        block->used = is_used_after_all(zone, cache, address, run.granules);
        if (block->used) return false;
    } else if (zone_limit_counts(zone, present, __atomic_load_n(&cache->kinds[false].present, __ATOMIC_RELAXED))) {
        return false; /* so that the zone has what it is asked for about */
    }
    if (!claim(block)) return false;

    platform_lock_acquire_here(&cache->lock);
    __atomic_store_n(&cache->longer, cache->longer - block->longer, __ATOMIC_RELAXED);
    const bool room = fits(cache, &run, most);
    if (STRATA_LIKELY(room)) insert_run(cache, run);
    platform_lock_release_here(&cache->lock);
    if (STRATA_UNLIKELY(!room)) make_room(zone, cache, run, most);
    return true;
}

char *zone_run_cache_take(struct zone *zone, size_t granules, size_t align, bool longer, bool sparse) {
    const unsigned number = own_number();
    struct run_cache *cache = &zone->run_caches[number];
    if (number >= caches_used(zone) || !has_runs(cache)) return NULL;
    if (granules > CACHED_GRANULES_MAX && count_of(cache, true) == 0) return NULL;
    /* It may be longer by less than these, which is what its number comes behind: the least is the best. No branch, as sizes come in no order. */
    const uint8_t shift = __atomic_load_n(&zone->longer.shift, __ATOMIC_RELAXED);
    const uint64_t end = 1 + (longer ? granules >> shift : 0);
    const uint64_t end_sparse = sparse ? 1 + (longer ? granules : 0) : 0;
    const uintptr_t low_bits = max_u64(align, 1) - 1;
    struct cached_run run = {0};
    uint64_t best = UINT64_MAX;
    platform_lock_acquire_here(&cache->lock);
    for (unsigned i = cache->count, looks = 0; i-- != 0 && looks++ != TAKE_LOOKS;) {
        const struct cached_run *at = &cache->runs[i];
        if (STRATA_UNLIKELY(((uintptr_t)zone_address_of(zone, at->at) & low_bits) != 0)) continue;
        const uint64_t more = (uint64_t)at->granules - granules;
        const uint64_t unfit = more >= (is_sparse(at) ? end_sparse : end);
        best = min_u64(best, more << 16 | (UINT16_MAX - i) | -unfit); /* of equals the latest */
        if (best <= UINT16_MAX || (looks % TAKE_LOOKS_PIECE == 0 && best >> 16 <= granules / HARDLY_LONGER_SHARE)) break;
    }
    if (best != UINT64_MAX) {
        run = remove_run(cache, UINT16_MAX - (best & UINT16_MAX));
        const uint32_t more = cache->longer + run.granules - (uint32_t)granules;
        __atomic_store_n(&cache->longer, more, __ATOMIC_RELAXED);
        if (STRATA_UNLIKELY((int32_t)more > LONGER_GRANULES_MIN && shift == zone->longer.wide))
            __atomic_store_n(&zone->longer.shift, zone->longer.narrow, __ATOMIC_RELAXED);
    }
    platform_lock_release(&cache->lock); /* not in place, for the room in usual code */
    if (best == UINT64_MAX) return NULL;
    char *address = zone_address_of(zone, run.at);
    struct block_desc *block = block_of(zone, address);
    block->longer = run.granules - (uint32_t)granules;
    __atomic_store_n(&block->cached, false, __ATOMIC_RELAXED);
    return address;
}

/* all: hardly used ones, too. How many; PIECE: there may be more. */
static STRATA_NOINLINE unsigned wake_piece(struct zone *zone, struct run_cache *cache, bool all) {
    struct cached_run runs[PIECE];
    platform_lock_acquire_here(&cache->lock);
    const unsigned count = take_oldest(cache, true, all, NULL, 0, runs);
    platform_lock_release_here(&cache->lock);
    for (unsigned i = 0; i < count; i++) dissolve(zone, runs[i]);
    return count;
}
static bool wake(struct zone *zone, struct run_cache *cache, bool all) {
    unsigned count, woken = 0;
    do {
        count = wake_piece(zone, cache, all);
        woken += count;
    } while (count == PIECE && woken < RUN_CACHE_RUNS); /* its CPU may give more meanwhile */
    return woken != 0;
}

static bool wake_used_piece(struct zone *zone, unsigned number) {
    return count_of(&zone->run_caches[number], false) != 0 && wake_piece(zone, &zone->run_caches[number], false) != 0;
}
bool zone_wake_used_piece(struct zone *zone, bool others) {
    const unsigned own = own_number();
    if (own < zone->run_caches_used && wake_used_piece(zone, own)) return true;
    for (unsigned i = 0; others && i < zone->run_caches_used; i++)
        if (wake_used_piece(zone, i)) return true;
    return false;
}

void zone_wake_used_runs(struct zone *zone) {
    for (unsigned i = 0; i < zone->run_caches_used; i++)
        if (count_of(&zone->run_caches[i], false) != 0) (void)wake(zone, &zone->run_caches[i], false);
}

bool zone_wake_runs(struct zone *zone) {
    bool any = false;
    for (unsigned i = 0; i < zone->run_caches_used; i++)
        if (has_runs(&zone->run_caches[i])) any |= wake(zone, &zone->run_caches[i], true);
    return any;
}

bool zone_wake_some_runs(struct zone *zone) {
    for (unsigned i = 0; i < zone->run_caches_used; i++)
        if (has_runs(&zone->run_caches[i])) return wake_piece(zone, &zone->run_caches[i], true) != 0;
    return false;
}

uint64_t zone_cached_granules(const struct zone *zone) {
    uint64_t granules = 0;
    for (unsigned i = 0; i < zone->run_caches_used; i++)
        for (unsigned k = 0; k < ARRAY_LENGTH(zone->run_caches[i].kinds); k++)
            granules += __atomic_load_n(&zone->run_caches[i].kinds[k].present, __ATOMIC_RELAXED);
    return granules;
}

/* While others give and take it is one of the figures of these moments, below 0 where it saw only what came back. */
STRATA_INLINE uint32_t longer_granules(const struct zone *zone) {
    uint32_t granules = zone->longer_granules;
    for (unsigned i = 0; i < zone->run_caches_used; i++) granules += __atomic_load_n(&zone->run_caches[i].longer, __ATOMIC_RELAXED);
    return granules;
}
STRATA_COLD uint32_t zone_longer_granules(const struct zone *zone) { return longer_granules(zone); }

void zone_longer_init(struct zone *zone, bool limited) {
    zone->longer = limited ? (struct longer_runs){.shift = 3, .wide = 3, .narrow = 5} : (struct longer_runs){.shift = 0, .wide = 0, .narrow = 2};
}
void zone_longer_judge(struct zone *zone) {
    const int32_t longer = (int32_t)longer_granules(zone);
    const uint64_t present = zone->counters.populated;
    const bool many =
        longer > (int64_t)max_u64(LONGER_GRANULES_MIN, present / LONGER_SHARE) || present > zone->config.soft_limit_bytes >> GRANULE_SHIFT >> 1;
    const uint8_t shift = many ? zone->longer.narrow : zone->longer.wide;
    if (__atomic_load_n(&zone->longer.shift, __ATOMIC_RELAXED) != shift) __atomic_store_n(&zone->longer.shift, shift, __ATOMIC_RELAXED);
}

STRATA_COLD void zone_run_caches_hold(struct zone *zone) {
    for (unsigned i = 0; i < zone->run_caches_used; i++) platform_lock_hold(&zone->run_caches[i].lock);
}
STRATA_COLD void zone_run_caches_unhold(struct zone *zone) {
    for (unsigned i = 0; i < zone->run_caches_used; i++) platform_lock_unhold(&zone->run_caches[i].lock);
}
