/*
 * cache.c - the slow path of the object caches: between CPU layer, depot and slabs.
 *
 * Rounds in transit are in a local array or in a magazine that the thread owns, never in two places: a thread that is
 * preempted here holds them alone. No lock is held across two layers' calls. See cache.h.
 */
#include "cache/cache_internal.h"

#include "base/check.h"

static unsigned slabs_alloc(void *context, unsigned cache, unsigned home, bool apart, void **objects, unsigned count) {
    return slab_alloc_home(context, cache, home, apart, objects, count);
}
static unsigned slabs_home(void *context, unsigned cache, const void *object) { return slab_home_of(context, cache, object); }
static unsigned slabs_sort(void *context, unsigned cache, unsigned home, void **objects, unsigned count) {
    return slab_sort_by_home(context, cache, home, objects, count);
}
static void slabs_free(void *context, unsigned cache, void *const *objects, unsigned count) { slab_free_batch(context, cache, objects, count); }
static uint64_t slabs_total(void *context, unsigned cache) {
    const struct slab_layer *slabs = context;
    return __atomic_load_n(&slabs->caches[cache].total, __ATOMIC_RELAXED);
}
static const struct cache_backend slabs_backend = {
    .alloc = slabs_alloc, .free = slabs_free, .home = slabs_home, .sort = slabs_sort, .total = slabs_total};

bool cache_init(struct cache_layer *caches, struct slab_layer *slabs, unsigned magazine_max) {
    caches->slabs = slabs;
    caches->backend = &slabs_backend;
    caches->backend_context = slabs;
    caches->main = caches;
    caches->first = SLAB_CACHE_FIRST;
    caches->end = SLAB_CACHE_MAGAZINES;
    caches->closed = magazine_max == 0;
    caches->drain_lock = (struct platform_lock)PLATFORM_LOCK_INIT(LOCK_RANK_DRAIN);
    /* Slots below hold the headers, one for every tag, so that a free of any tag finds one; and the words of thread mode. */
    caches->next_slot = SLAB_CACHE_END + CPU_AREA_WORDS;
    unsigned slots = caches->next_slot;
    for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_MAGAZINES; cache++) {
        struct depot *depot = &caches->depots[cache];
        depot_init(depot, slabs->caches[cache].object_bytes, magazine_max, DEPOT_KEEPS_BURSTS);
        slots += depot->rounds_max;
    }
    CHECK(slots <= CPU_AREA_SLOTS);
    return cpu_layer_init(caches, NULL);
}

void cache_put_rounds(struct cache_layer *caches, unsigned cache, void **rounds, unsigned count) {
    if (count == 0) return;
    unsigned put = cpu_push_batch_in(&caches->areas_at, cache, rounds, count);
    if (put < count) depot_give_odd(caches, cache, rounds + put, count - put);
}

/* The rounds of a magazine out of the depot: one is returned, the others go into this CPU's array. */
static void *spend(struct cache_layer *caches, unsigned cache, struct magazine *magazine) {
    void *object = magazine->rounds[--magazine->count];
    cache_put_rounds(caches, cache, magazine->rounds, magazine->count);
    depot_give_empty(caches, &caches->depots[cache], magazine);
    return object;
}

void *cache_alloc_slow(struct cache_layer *caches, unsigned cache) {
    struct depot *depot = &caches->depots[cache];
    void *object;
    if (!cpu_layer_open(caches, cache)) return backend_alloc(caches, cache, &object, 1) == 1 ? object : NULL;

    const unsigned wanted = __atomic_load_n(&depot->rounds, __ATOMIC_RELAXED) / 2u;
    if (wanted <= DEPOT_FEW) {
        void *few[DEPOT_FEW];
        unsigned count = depot_take_few(caches, depot, few);
        if (count != 0) {
            cache_put_rounds(caches, cache, few, count - 1);
            return few[count - 1];
        }
    }
    struct magazine *magazine = depot_take_full(caches, depot);
    if (magazine != NULL) return spend(caches, cache, magazine);
    void *rounds[CACHE_TRANSFER_MAX];
    unsigned got = backend_alloc(caches, cache, rounds, wanted != 0 ? wanted : 1);
    if (STRATA_UNLIKELY(got == 0)) return (magazine = depot_take_odd(caches, depot)) != NULL ? spend(caches, cache, magazine) : NULL;
    object = rounds[got - 1];
    cache_put_rounds(caches, cache, rounds, got - 1);
    return object;
}

/*
 * So many rounds at most go past a depot that has enough at once. The slabs look each object up: half a large array would take a free a microsecond,
 * and with bulk frees one in some hundred is such a free. In smaller pieces than these, one in a hundred would be.
 */
#define OVERFLOW_PIECE 16
/* Where several threads come by, each visit waits for cache lines of the one before, which costs as much as some tens of objects. */
#define OVERFLOW_PIECE_SHARED 64

/* Without the lock: notes that are lost, as two come at once, are some of many. */
static void note_past(struct depot *depot, unsigned count) {
    __atomic_store_n(&depot->went_past, __atomic_load_n(&depot->went_past, __ATOMIC_RELAXED) + count, __ATOMIC_RELAXED);
}

/*
 * Rounds off this CPU's array, the topmost last (but for what took the place of others': home.c); how many, and whose they are, as far as that counts
 * here. One for all callers, as a sequence takes room.
 */
static STRATA_NOINLINE unsigned pop_rounds(struct cache_layer *caches, unsigned cache, void **rounds, unsigned wanted, unsigned *home) {
    if (STRATA_UNLIKELY(home != NULL && cache_has_homes(caches, cache))) return home_pop(caches, cache, rounds, wanted, home);
    return cpu_pop_upper_in(&caches->areas_at, cache, rounds, wanted);
}

/* Half an array for which there is no magazine: to the slabs. Apart, for the stack that it takes. */
static STRATA_COLD STRATA_NOINLINE void overflow_half(struct cache_layer *caches, unsigned cache, unsigned wanted) {
    void *rounds[CACHE_TRANSFER_MAX];
    const unsigned count = pop_rounds(caches, cache, rounds, wanted, NULL);
    if (count != 0) backend_free(caches, cache, rounds, count);
}

/* To the slabs, past a depot that has enough. Not in place, for the stack that it takes. */
static STRATA_NOINLINE void overflow_to_slabs(struct cache_layer *caches, unsigned cache, unsigned wanted) {
    void *rounds[OVERFLOW_PIECE_SHARED];
    const unsigned piece = __atomic_load_n(&caches->depots[cache].shared, __ATOMIC_RELAXED) ? OVERFLOW_PIECE_SHARED : OVERFLOW_PIECE;
    const unsigned count = pop_rounds(caches, cache, rounds, (unsigned)min_u64(wanted, piece), NULL);
    if (count != 0) backend_free(caches, cache, rounds, count);
    note_past(&caches->depots[cache], count);
}

/* What was popped, in the order of a magazine's, for which there is none yet: it becomes one; or goes to the slabs. */
static STRATA_COLD STRATA_NOINLINE void put_rounds_by(struct cache_layer *caches, unsigned cache, void *const *rounds, unsigned count,
                                                      unsigned home) {
    struct depot *depot = &caches->depots[cache];
    struct magazine *magazine = depot_take_empty(caches, depot);
    if (magazine == NULL || magazine_capacity(magazine) < count) {
        if (magazine != NULL) depot_give_empty(caches, depot, magazine);
        backend_free(caches, cache, rounds, count);
        return;
    }
    magazine_fill(magazine, rounds, count);
    magazine->home = (uint16_t)home;
    if (depot_give_full(caches, depot, magazine)) return;
    note_past(depot, count);
    backend_free(caches, cache, rounds, count);
    depot_give_empty(caches, depot, magazine);
}

/* The upper half of this CPU's array goes to the depot; or past it to the slabs, in pieces. */
static void overflow(struct cache_layer *caches, unsigned cache) {
    struct depot *depot = &caches->depots[cache];
    const unsigned half = __atomic_load_n(&depot->rounds, __ATOMIC_RELAXED) / 2u;
    unsigned wanted = half != 0 ? half : 1, home = 0;
    void *few[DEPOT_FEW];
    struct magazine *magazine = NULL;
    if (!depot_has_room(caches, depot)) {
        overflow_to_slabs(caches, cache, wanted);
        return;
    }
    if (wanted > DEPOT_FEW && (magazine = depot_take_empty(caches, depot)) == NULL) {
        overflow_half(caches, cache, wanted);
        return;
    }
    if (magazine == NULL) { /* few are popped without one, as the depot may have it */
        const unsigned count = pop_rounds(caches, cache, few, wanted, &home);
        if (count < wanted)
            depot_give_odd(caches, cache, few, count);
        else if (!depot_give_few(caches, depot, home, few, count))
            put_rounds_by(caches, cache, few, count, home);
        return;
    }
    wanted = (unsigned)min_u64(wanted, magazine_capacity(magazine)); /* m may have gone down since it was read */
    magazine->count = pop_rounds(caches, cache, magazine->rounds, wanted, &home);
    magazine->home = (uint16_t)home;
    if (magazine->count == wanted && depot_give_full(caches, depot, magazine)) return;
    if (magazine->count == wanted) {
        note_past(depot, wanted);
        backend_free(caches, cache, magazine->rounds, wanted);
    } else {
        depot_give_odd(caches, cache, magazine->rounds, magazine->count);
    }
    depot_give_empty(caches, depot, magazine);
}

/*
 * Whether an object that comes to an array that was closed, as its first one, is of another CPU's slab. It would be the next one out, and who then
 * writes to it would share the line with what that CPU still has beside it (passive false sharing: Berger et al., Hoard, section 2.2).
 */
static bool is_others(const struct cache_layer *caches, unsigned cache, const void *object) {
    if (caches->backend->home == NULL || !cpu_layer_is_empty(caches, cache)) return false;
    const unsigned home = caches->backend->home(caches->backend_context, cache, object);
    return home != 0 && home != cache_home();
}

void cache_free_slow(struct cache_layer *caches, unsigned cache, void *object) {
    const bool full = cpu_layer_is_full(caches, cache);
    if (STRATA_LIKELY(full) || (cpu_layer_open_to_free(caches, cache) && !is_others(caches, cache, object))) {
        if (!full && cpu_push_in(&caches->areas_at, cache, object)) return; /* it was only closed, or has grown */
        overflow(caches, cache);
        if (cpu_push_in(&caches->areas_at, cache, object)) return;
    }
    backend_free(caches, cache, &object, 1);
}

STRATA_SELDOM bool cache_shut(struct cache_layer *caches, unsigned cache) {
    bool emptied = cpu_layer_shut(caches, cache);
    depot_tick(caches, cache, true);
    return emptied;
}
STRATA_SELDOM void cache_open(struct cache_layer *caches, unsigned cache) { cpu_layer_unshut(caches, cache); }

void cache_tick(struct cache_layer *caches) {
    if (caches->closed) return;
    cpu_layer_drain(caches, true);
    for (unsigned cache = caches->first; cache < caches->end; cache++) depot_tick(caches, cache, false);
}

void cache_reap(struct cache_layer *caches) {
    if (!caches->closed) {
        cpu_layer_drain_own(caches);
        for (unsigned cache = caches->first; cache < caches->end; cache++) depot_tick(caches, cache, true);
    }
    slab_reap(caches->slabs);
}

STRATA_COLD void cache_drain(struct cache_layer *caches) {
    if (!caches->closed) cpu_layer_drain(caches, false);
    cache_reap(caches);
}

STRATA_SELDOM void cache_stats_get(struct cache_layer *caches, unsigned cache, struct cache_stats *stats) {
    struct depot *depot = &caches->depots[cache];
    platform_lock_acquire(&depot->lock);
    *stats = (struct cache_stats){.depot_allocs = depot->allocs,
                                  .depot_frees = depot->frees,
                                  .contention = depot->contention,
                                  .rounds = depot->rounds,
                                  .depot_magazines = depot->full.count};
    for (const struct magazine *magazine = depot->full.first; magazine != NULL; magazine = magazine->next) stats->cached += magazine->count;
    if (depot->bucket != NULL) stats->cached += depot->bucket->count;
    platform_lock_release(&depot->lock);
    shelves_stats_add(caches, depot, stats);
    stats->cached += cpu_layer_rounds(caches, cache);
}

STRATA_SELDOM const char *cache_check(struct cache_layer *caches) {
    for (unsigned cache = caches->first; cache < caches->end; cache++) {
        struct depot *depot = &caches->depots[cache];
        uint32_t full = 0, empty = 0;
        const char *broken = NULL;
        platform_lock_acquire(&depot->lock);
        for (const struct magazine *magazine = depot->full.first; magazine != NULL; magazine = magazine->next, full++) {
            if (magazine->count == 0 || magazine->count > magazine_capacity(magazine))
                broken = "depot: a full magazine with too few or too many rounds";
            if (magazine->home != 0) broken = "depot: a CPU's own magazine among those that are anyone's";
        }
        if (depot->full.low > full) broken = "depot: more magazines unneeded than there are";
        for (const struct magazine *magazine = depot->empty.first; magazine != NULL; magazine = magazine->next, empty++)
            if (magazine->count != 0) broken = "depot: a full magazine among the empty ones";
        if (depot->bucket != NULL && (depot->bucket->count == 0 || depot->bucket->count >= magazine_capacity(depot->bucket)))
            broken = "depot: a bucket that is empty or full";
        if (full != depot->full.count || empty != depot->empty.count) broken = "depot: a count differs from its list";
        if (depot->empty.low > empty) broken = "depot: more magazines unneeded than there are";
        if (depot->rounds > depot->rounds_max) broken = "depot: arrays larger than allowed";
        platform_lock_release(&depot->lock);
        if (broken == NULL) broken = shelves_check(caches, depot);
        if (broken != NULL) return broken;
    }
    return cpu_layer_check(caches);
}

STRATA_COLD void cache_fork_prepare(struct cache_layer *caches) {
    platform_lock_hold(&caches->drain_lock);
    for (unsigned cache = caches->first; cache < caches->end; cache++) {
        platform_lock_hold(&caches->depots[cache].lock);
        shelves_hold(caches, &caches->depots[cache]);
    }
}
STRATA_COLD void cache_fork_parent(struct cache_layer *caches) {
    for (unsigned cache = caches->end; cache-- > caches->first;) {
        shelves_unhold(caches, &caches->depots[cache]);
        platform_lock_unhold(&caches->depots[cache].lock);
    }
    platform_lock_unhold(&caches->drain_lock);
}
/*
 * The child has one thread. Areas keep their rounds: with rseq any CPU may come to use them, and the drain reaches all.
 * Thread mode: the areas of threads that are gone keep theirs, too; cache_fork_child_settle.
 */
STRATA_COLD void cache_fork_child(struct cache_layer *caches) {
    bool drains = false;
    for (unsigned cache = caches->first; cache < caches->end; cache++) {
        drains |= caches->depots[cache].giving != 0;
        caches->depots[cache].giving = 0; /* what others did so is lost with them */
    }
    if (drains) cpu_layer_reopen(caches);
    cache_fork_parent(caches);
}
