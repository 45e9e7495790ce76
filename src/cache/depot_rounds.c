/*
 * depot_rounds.c - m, the size of the arrays of one cache: half of it goes between an array and the depot in a visit.
 *
 * It begins small, and grows
 *   - where arrays are found empty again and again, so long as all arrays together stay within a small share of the heap (decisions 135, 198);
 *   - where CPUs find the depot's lock taken (magazines paper, 3.4);
 *   - where objects go to the slabs and come back, at once (depot.c tells when).
 * It is as at the start again when nobody came for a while, when objects cycle no more, and by halves when all arrays have too much together. An
 * array that holds more than m then goes on as it is until it runs empty, or is drained. All under the depot's lock.
 */
#include "cache/cache_internal.h"

/*
 * Arrays that are found empty again and again (DEPOT_GROWTH_MISSES) double m, as long as all arrays together have grown by no more than so many
 * bytes, or this share of the heap. By more bytes where few CPUs have any, and the rounds are those that the same CPU gave: what one thread allocates
 * and another frees goes through both arrays, however large they are.
 */
#define GROWTH_BYTES_MIN (256 * KIB)
#define GROWTH_BYTES_MIN_OWN (4 * MIB)
#define GROWTH_SHARE 32
/*
 * With arrays on so few CPUs. A thread leaves those of one CPU behind as it goes to another, where no reap takes what they hold: among many CPUs that
 * makes the heap grow, be reaped, and grow again.
 */
#define FEW_AREAS DEPOT_HOMES
/* Who cycles still comes by at least so often between two ticks, or less often by as much as m has grown. */
#define CYCLE_VISITS 256
/*
 * More lock misses than this in an interval double m; so many double it at once, as much is lost until an interval ends; so many intervals without a
 * visit return it to its start.
 */
#define CONTENDED_MAX 8
#define CONTENDED_NOW 64
#define IDLE_TICKS 20

/*
 * What this cache's arrays have grown by, as it counts for all: m may be less than at the start where magazine_max is no power of two, and who cycles
 * has the memory as it is.
 */
static uint64_t grown_bytes(const struct depot *depot) {
    return depot->cycles || depot->rounds < depot->rounds_start ? 0 : (uint64_t)(depot->rounds - depot->rounds_start) * depot->object_bytes;
}

/* Others read m and the kind without the lock. */
static STRATA_NOINLINE void set_rounds(struct cache_layer *caches, struct depot *depot, unsigned rounds, bool cycles) {
    const uint64_t before = grown_bytes(depot);
    depot->cycles = cycles;
    __atomic_store_n(&depot->rounds, (uint16_t)rounds, __ATOMIC_RELAXED);
    __atomic_store_n(&depot->kind, (uint16_t)magazine_kind(rounds / 2u), __ATOMIC_RELAXED);
    const uint64_t more = grown_bytes(depot) - before;                                     /* modulo 2^64 where it is less */
    if (more != 0) __atomic_fetch_add(&caches->main->grown_bytes, more, __ATOMIC_RELAXED); /* of all layers */
}

/* How many areas may have arrays: of CPUs that have ever had any, or of threads that are there. */
static uint64_t areas_in_use(const struct cache_layer *caches) {
    if (!caches->thread_mode) return __atomic_load_n(&caches->areas_used, __ATOMIC_RELAXED);
    return __atomic_load_n(&caches->main->ids_made, __ATOMIC_RELAXED) - __atomic_load_n(&caches->main->spare_count, __ATOMIC_RELAXED);
}

/*
 * Who cycles has arrays as large as they may be, as long as those of all CPUs together have room for no more than the cache's
 * objects: it visits the depot for what they can't hold. Looked at anew with each tick, as CPUs come and objects go.
 */
STRATA_COLD void rounds_cycle(struct cache_layer *caches, struct depot *depot) {
    const uint64_t objects = depot_objects(caches, depot), areas = areas_in_use(caches);
    unsigned rounds = depot->rounds_max;
    while (rounds / 2 >= depot->rounds_start && rounds * areas > objects) rounds /= 2;
    if (depot->contends) rounds = (unsigned)max_u64(rounds, depot->rounds);
    set_rounds(caches, depot, rounds, true);
}
/* What a reap takes the next burst wants back: no reason to stop where arrays hold no more than there is. */
STRATA_RARE bool rounds_outlast_reaps(const struct cache_layer *caches, const struct depot *depot) {
    const uint64_t areas = areas_in_use(caches);
    return areas <= FEW_AREAS && depot->rounds * areas <= depot_objects(caches, depot);
}
void rounds_stop_cycling(struct cache_layer *caches, struct depot *depot) {
    depot->contends = false;
    set_rounds(caches, depot, depot->rounds_start, false);
}

/* Whether all arrays may have grown by what they have, and so many bytes more, on each CPU: see GROWTH_BYTES_MIN. */
static bool may_have_grown(const struct cache_layer *caches, uint64_t more, bool own) {
    const uint64_t heap = __atomic_load_n(&caches->slabs->zone->counters.populated, __ATOMIC_RELAXED) << GRANULE_SHIFT;
    const uint64_t areas = areas_in_use(caches), least = own && areas <= FEW_AREAS ? GROWTH_BYTES_MIN_OWN : GROWTH_BYTES_MIN;
    return (__atomic_load_n(&caches->main->grown_bytes, __ATOMIC_RELAXED) + more) * areas <= max_u64(least, heap / GROWTH_SHARE);
}
/* Half of what has grown by misses, where arrays are in use on more CPUs than then, or the heap has shrunk. */
static STRATA_RARE bool halve_outgrown(struct cache_layer *caches, struct depot *depot) {
    if (grown_bytes(depot) == 0 || depot->contends || may_have_grown(caches, 0, true)) return false;
    set_rounds(caches, depot, (unsigned)max_u64(depot->rounds / 2u, depot->rounds_start), false);
    return true;
}

/* That others wait at the depot is worse than the memory: this growth has no other bound. */
static STRATA_RARE void grow_contended(struct cache_layer *caches, struct depot *depot) {
    depot->contends = true;
    depot->contended = 0;
    set_rounds(caches, depot, (unsigned)min_u64(depot->rounds * 2u, depot->rounds_max), depot->cycles);
}

STRATA_COLD bool rounds_grow(struct cache_layer *caches, struct depot *depot, bool own) {
    if (depot->contended >= CONTENDED_NOW && depot->rounds < depot->rounds_max) {
        grow_contended(caches, depot);
        return true;
    }
    if (depot->keeps == DEPOT_KEEPS_FEW || depot->cycles) return false;
    if (halve_outgrown(caches, depot)) return true;
    const unsigned rounds = (unsigned)min_u64(depot->rounds * 2u, depot->rounds_max);
    if (rounds == depot->rounds || !may_have_grown(caches, (uint64_t)(rounds - depot->rounds) * depot->object_bytes, own)) return false;
    set_rounds(caches, depot, rounds, false);
    return true;
}

static STRATA_COLD STRATA_NOINLINE void look_at_cycle(struct cache_layer *caches, struct depot *depot) {
    if ((depot->visits - depot->visits_seen) * depot->rounds < CYCLE_VISITS * (uint64_t)depot->rounds_start)
        rounds_stop_cycling(caches, depot);
    else
        rounds_cycle(caches, depot);
}

void rounds_adapt(struct cache_layer *caches, struct depot *depot) {
    if (depot->cycles) look_at_cycle(caches, depot);
    if (depot->contended > CONTENDED_MAX && depot->rounds < depot->rounds_max) {
        grow_contended(caches, depot);
    } else if (depot->rounds > depot->rounds_start && !halve_outgrown(caches, depot) && depot->visits == depot->visits_seen &&
               ++depot->ticks_idle >= IDLE_TICKS) {
        rounds_stop_cycling(caches, depot);
    }
    if (depot->visits != depot->visits_seen) depot->ticks_idle = 0;
    depot->visits_seen = depot->visits;
    depot->contended = 0;
    depot->misses = 0;
}
