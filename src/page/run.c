/*
 * run.c - runs of granules cut from superpages: placement by mobility, fullest first, and the marks that follow.
 *
 * Placement (contiguity paper, section 2): a superpage serves one mobility group; within a group the search goes from the
 * superpages whose longest free run is shortest to those where it is longest, and prefers pages that are present. A group
 * without room takes a fresh superpage; where there is none it steals from the superpage with the longest free run in another
 * group, and may take that one over (groups.h). Lock: LOCK_RANK_ZONE.
 */
#include "page/zone_internal.h"

#include "base/check.h"
#include "page/groups.h"

/* How many superpages of one bucket are looked at for the fullest; for the one with the longest free run, which is wanted rarely. */
#define BUCKET_LOOKS 8
#define STEAL_LOOKS 64
/* From this size on a block's run gets what is absent of it from idle pages elsewhere. */
#define LONG_RUN_GRANULES 16
/* Other runs, of which nothing is present, get so many with those that follow: where a target is opened, more costs little. */
#define AHEAD_GRANULES 64
#define AHEAD_HEAP_GRANULES (16 * MIB / GRANULE_BYTES)
/* Pages are populated ahead up to this share of the heap, and not for less than four: a call costs about as much as two faults. */
#define POPULATE_SHARE 128
#define POPULATE_GRANULES_MIN 4

/* From so much idle on a search for it is worth its time. Small processes never have it, and never come to place.c. */
#define SEARCHED_IDLE_GRANULES 32

static bool seeks_most_present(const struct zone *zone, unsigned granules) { return granules > 1 && zone->counters.idle >= SEARCHED_IDLE_GRANULES; }
static bool seeks_present(const struct zone *zone, enum mobility mobility, unsigned granules) {
    return mobility == MOBILITY_MOVABLE && granules >= LONG_RUN_GRANULES && zone->counters.idle >= SEARCHED_IDLE_GRANULES;
}

void zone_superpage_relink(struct zone *zone, struct superpage *superpage, unsigned idle_before) {
    struct zone_counters *counters = &zone->counters;
    zone_present_relink(zone, superpage, superpage->idle > idle_before);
    counters->idle += superpage->idle;
    counters->idle -= idle_before;
    counters->idle_huge += superpage_kept_idle(superpage, superpage->idle);
    counters->idle_huge -= superpage_kept_idle(superpage, idle_before);
    counters->idle_low = min_u64(counters->idle_low, counters->idle - counters->idle_huge);
    const uint8_t wanted = superpage_idle_list(superpage);
    if (wanted != superpage->linked) {
        if (superpage->linked != IDLE_NONE) list_remove(&superpage->idle_link);
        if (wanted != IDLE_NONE) list_push_back(&zone->idle[wanted], &superpage->idle_link);
        superpage->linked = wanted;
    }
    if (superpage->state != SUPERPAGE_RUNS) return;
    list_remove(&superpage->bucket);
    if (superpage->largest_free != 0 && !superpage->apart)
        list_push_front(&zone->buckets[superpage->mobility][bit_highest(superpage->largest_free)], &superpage->bucket);
}

unsigned zone_mark_allocated(struct zone *zone, struct superpage *superpage, unsigned start, unsigned granules, bool *zeroed) {
    unsigned idle_before = superpage->idle, fresh;
    if (granules == SUPERPAGE_GRANULES) {
        fresh = SUPERPAGE_GRANULES - superpage->idle;
        *zeroed = superpage_set_all_allocated(superpage);
    } else {
        fresh = granules - bits_count_range(superpage->populated, start, granules);
        *zeroed = bits_count_range(superpage->dirty, start, granules) == 0;
        superpage_set_allocated(superpage, start, granules);
        bits_set(superpage->populated, start, granules);
        bits_set(superpage->dirty, start, granules);
    }
    zone->counters.allocated += granules;
    COUNTER_ADD(zone->counters.populated, fresh);
    zone->counters.populated_total += fresh;
    zone_superpage_relink(zone, superpage, idle_before);
    return fresh;
}

void zone_mark_free(struct zone *zone, struct superpage *superpage, unsigned start, unsigned granules) {
    unsigned idle_before = superpage->idle;
    if (granules == SUPERPAGE_GRANULES)
        superpage_set_all_free(superpage);
    else
        superpage_set_free(superpage, start, granules);
    zone->counters.allocated -= granules;
    zone_superpage_relink(zone, superpage, idle_before);
}

STRATA_RARE void zone_mark_released(struct zone *zone, struct superpage *superpage, unsigned start, unsigned granules) {
    unsigned idle_before = superpage->idle;
    unsigned present = bits_count_range(superpage->populated, start, granules);
    bits_clear(superpage->populated, start, granules);
    bits_clear(superpage->dirty, start, granules);
    superpage_recount(superpage);
    COUNTER_SUB(zone->counters.populated, present);
    zone->counters.released_total += present;
    zone_superpage_relink(zone, superpage, idle_before);
}

/* In one bucket: a superpage where the run fits, those with present pages first, then the fullest. */
static struct superpage *search_bucket(struct list *bucket, unsigned granules, unsigned align, unsigned *start) {
    struct superpage *best = NULL;
    unsigned looks = 0;
    LIST_FOR_EACH(bucket, node) {
        if (looks++ == BUCKET_LOOKS) break;
        struct superpage *superpage = CONTAINER_OF(node, struct superpage, bucket);
        if (superpage->largest_free < granules) continue;
        if (best != NULL) {
            bool present = superpage->idle >= granules, best_present = best->idle >= granules;
            if (present != best_present ? best_present : superpage->free >= best->free) continue;
        }
        unsigned at = superpage_find_run(superpage, granules, align);
        if (at == SUPERPAGE_GRANULES) continue;
        best = superpage;
        *start = at;
    }
    return best;
}

struct superpage *zone_group_find(struct zone *zone, enum mobility mobility, unsigned granules, unsigned align, unsigned *start) {
    for (unsigned b = bit_highest(granules); b < ZONE_BUCKETS; b++) {
        struct superpage *superpage = search_bucket(&zone->buckets[mobility][b], granules, align, start);
        if (superpage != NULL) return superpage;
    }
    return NULL;
}

static struct superpage *take_fresh(struct zone *zone) {
    return zone->counters.idle >= SEARCHED_IDLE_GRANULES ? zone_superpages_take_present(zone, 1, 1, 0, SUPERPAGE_GRANULES)
                                                         : zone_superpages_take(zone, 1, 1);
}

/*
 * A superpage that was taken for a run of this group; NULL: none was. place->fresh_huge: how many granules will be present with the first touch,
 * beside those that are touched; touches->measure: the caller shall touch it, without the lock, by zone_measure_huge.
 */
static STRATA_NOINLINE struct superpage *begin_runs(struct zone *zone, struct superpage *superpage, enum mobility group, unsigned granules,
                                                    enum run_pages pages, struct run_place *place, struct run_touches *touches) {
    if (superpage == NULL) return NULL;
    if (group != MOBILITY_MOVABLE || !zone_is_sparse(zone, false) || zone->config.thp == ZONE_THP_ALWAYS) zone_litter_clear(zone, superpage, 1);
    list_init(&superpage->bucket);
    superpage->state = SUPERPAGE_RUNS;
    superpage->mobility = (uint8_t)group;
    if (!superpage->described) zone->counters.described++;
    superpage->described = true;
    bool huge = zone_decide_huge(zone, superpage, granules, pages != RUN_PAGES_LAZY && pages != RUN_PAGES_MOVED);
    zone->counters.idle_huge += superpage_kept_idle(superpage, superpage->idle);
    unsigned idle_before = superpage->idle;
    if (superpage->huge && pages != RUN_PAGES_MOVED) {
        /* The first touch of any of its pages brings them all. */
        unsigned absent = SUPERPAGE_GRANULES - bits_count(superpage->populated);
        bits_set(superpage->populated, 0, SUPERPAGE_GRANULES);
        COUNTER_ADD(zone->counters.populated, absent);
        zone->counters.populated_total += absent;
        place->fresh_huge = absent;
        touches->measure = huge && absent == SUPERPAGE_GRANULES;
    }
    superpage_recount(superpage);
    zone_superpage_relink(zone, superpage, idle_before);
    return superpage;
}

/* In one bucket: the longest free run in which this one fits. */
static STRATA_COLD struct superpage *search_longest(struct list *bucket, unsigned granules, unsigned align, unsigned *start) {
    struct superpage *best = NULL;
    unsigned looks = 0;
    LIST_FOR_EACH(bucket, node) {
        if (looks++ == STEAL_LOOKS) break;
        struct superpage *superpage = CONTAINER_OF(node, struct superpage, bucket);
        if (superpage->largest_free < granules || (best != NULL && superpage->largest_free <= best->largest_free)) continue;
        unsigned at = superpage_find_run(superpage, granules, align);
        if (at == SUPERPAGE_GRANULES) continue;
        best = superpage;
        *start = at;
    }
    return best;
}

static STRATA_COLD struct superpage *steal(struct zone *zone, enum mobility mobility, unsigned granules, unsigned align, unsigned *start) {
    struct superpage *best = NULL;
    for (unsigned m = 0; m < MOBILITY_GROUPS; m++) {
        if (m == mobility) continue;
        for (unsigned b = ZONE_BUCKETS; b-- > bit_highest(granules);) {
            unsigned at;
            struct superpage *superpage = search_longest(&zone->buckets[m][b], granules, align, &at);
            if (superpage == NULL) continue;
            if (best == NULL || superpage->largest_free > best->largest_free) {
                best = superpage;
                *start = at;
            }
            break;
        }
    }
    if (best != NULL && group_changes(best->free, SUPERPAGE_GRANULES, mobility == MOBILITY_MOVABLE))
        best->mobility = (uint8_t)mobility; /* relinked by the mark that follows */
    return best;
}

/*
 * Fresh pages come one fault at a time at 2 to 3 us each, or in one call at 1 us each. So a slab's pages are made present with
 * those that follow them up to the end of an aligned window, which wait in the lookaside for the next slab. The window grows
 * with the heap, so that a small program has no page that it doesn't need. Returns how many granules from `start` to populate.
 */
static unsigned populate_ahead(struct zone *zone, struct superpage *superpage, unsigned start, unsigned granules) {
    if (superpage->huge) return 0; /* one fault brings all of it */
    unsigned window = (unsigned)min_u64(zone->config.populate_granules, zone->counters.populated / POPULATE_SHARE);
    if (window < POPULATE_GRANULES_MIN) return 0;
    window = 1u << bit_highest(window);
    unsigned end = (unsigned)min_u64(align_up(start + granules, window), SUPERPAGE_GRANULES), at = start + granules;
    while (at < end && (superpage->allocated[at / 64] >> (at % 64) & 1) == 0 && (superpage->populated[at / 64] >> (at % 64) & 1) == 0) at++;
    at = (unsigned)align_down(at, zone->page_granules);
    uint64_t limit = zone->config.soft_limit_bytes >> GRANULE_SHIFT;
    if (zone->counters.populated + (at - start - granules) > limit) at = start + granules; /* none would be let stay */
    if (at - start < POPULATE_GRANULES_MIN) return 0;
    unsigned ahead = at - (start + granules);
    if (ahead != 0) {
        unsigned idle_before = superpage->idle;
        bits_set(superpage->populated, start + granules, ahead);
        superpage_recount(superpage);
        COUNTER_ADD(zone->counters.populated, ahead);
        zone->counters.populated_total += ahead;
        zone_superpage_relink(zone, superpage, idle_before);
    }
    return at - start;
}

/* The end of granules from `start` on, up to `most`, that are neither present nor in use; the first `granules` are known not to be in use. */
static unsigned absent_end(const struct superpage *superpage, unsigned start, unsigned granules, unsigned most) {
    unsigned present = bits_next(superpage->populated, start, 0), used = bits_next(superpage->allocated, start + granules, 0);
    return (unsigned)min_u64(min_u64(present, used), start + most);
}

/*
 * Pages that are absent where the run is to be come from where they are idle. What is left over is idle here then, for the runs that follow. A huge
 * page comes by the first touch, which costs less.
 */
static void fill_run(struct zone *zone, struct superpage *superpage, unsigned start, unsigned granules, enum mobility mobility, bool used) {
    if (seeks_present(zone, mobility, granules)) {
        zone_fill_from_idle(zone, superpage, start, start + granules, FILL_BLOCK);
    } else if (used && zone->counters.idle - superpage->idle >= AHEAD_GRANULES && zone->counters.populated >= AHEAD_HEAP_GRANULES &&
               !superpage->huge) {
        unsigned end = absent_end(superpage, start, granules, AHEAD_GRANULES);
        if (end >= start + granules) zone_fill_from_idle(zone, superpage, start, end, FILL_AHEAD);
    }
}

/* Where no superpage is left: of another group; or what CPUs keep, for its address space. */
static STRATA_COLD struct superpage *find_last(struct zone *zone, enum mobility group, unsigned granules, unsigned align, enum run_pages pages,
                                               unsigned *start, struct run_place *place, struct run_touches *touches) {
    struct superpage *superpage = steal(zone, group, granules, align, start);
    if (superpage != NULL || !zone_wake_runs(zone)) return superpage;
    superpage = zone_group_find(zone, group, granules, align, start);
    if (superpage == NULL) superpage = begin_runs(zone, take_fresh(zone), group, granules, pages, place, touches);
    return superpage != NULL ? superpage : steal(zone, group, granules, align, start); /* what was kept may lie with another group */
}

bool zone_run_find(struct zone *zone, unsigned granules, unsigned align, enum mobility mobility, bool grouped, enum run_pages pages,
                   struct run_place *place, struct run_touches *touches) {
    struct superpage *superpage = NULL;
    unsigned start = 0;
    *place = (struct run_place){0};
    *touches = (struct run_touches){0};
    if (!zone_within_limit(zone, granules)) return false;
    const bool fresh = pages != RUN_PAGES_PRESENT; /* of what others keep enough is given up before a page is touched for the first time */
    while (zone->counters.idle < granules && zone_wake_used_piece(zone, fresh)) continue;
    if (zone->counters.idle < granules && fresh && zone->resting.count != 0) zone_wake_resting(zone);
    const uint64_t from = zone->config.grouped_granules;
    grouped = zone->populated_peak >= from || (grouped && from != UINT64_MAX);
    enum mobility group = grouped ? mobility : MOBILITY_UNMOVABLE;
    if (zone->counters.idle >= granules) superpage = zone_present_find(zone, group, granules, align, &start);
    /* A block begins a superpage whose pages are there rather than to have them moved, one by one, to one that is in use. */
    if (superpage == NULL && pages != RUN_PAGES_MOVED && seeks_present(zone, mobility, granules) && !zone->growing && !zone_is_sparse(zone, false))
        superpage = begin_runs(zone, zone_superpage_take_run(zone, granules, align), group, granules, pages, place, touches);
    /* What rests may have them, before any page is touched for the first time; then what CPUs keep. */
    if (superpage == NULL && zone->resting.count != 0) {
        zone_wake_resting_runs(zone);
        superpage = zone_present_find(zone, group, granules, align, &start);
    }
    while (superpage == NULL && zone_wake_used_piece(zone, fresh)) superpage = zone_present_find(zone, group, granules, align, &start);
    if (superpage == NULL && !fresh) return false;
    if (superpage == NULL && seeks_most_present(zone, granules)) superpage = zone_find_most_present(zone, group, granules, align, &start);
    if (superpage == NULL) superpage = zone_group_find(zone, group, granules, align, &start);
    if (superpage == NULL) superpage = begin_runs(zone, take_fresh(zone), group, granules, pages, place, touches);
    if (superpage == NULL) superpage = find_last(zone, group, granules, align, pages, &start, place, touches);
    if (superpage == NULL) return false;
    if (superpage->free == SUPERPAGE_GRANULES) start = superpage_find_run(superpage, granules, align);
    place->superpage = superpage;
    place->start = start;
    return true;
}

STRATA_RARE void zone_run_leave(struct zone *zone, const struct run_place *place) {
    zone_superpage_relink(zone, place->superpage, place->superpage->idle); /* it may be of another group now */
    zone_superpage_settle(zone, place->superpage);
}

void zone_run_occupy(struct zone *zone, const struct run_place *place, unsigned granules, enum mobility mobility, enum run_pages pages,
                     struct zone_run *run) {
    run->address = superpage_address(zone, place->superpage) + ((size_t)place->start << GRANULE_SHIFT);
    run->granules = granules;
    fill_run(zone, place->superpage, place->start, granules, mobility, pages != RUN_PAGES_LAZY);
    run->fresh = zone_mark_allocated(zone, place->superpage, place->start, granules, &run->zeroed);
    run->huge = place->superpage->huge;
}

void zone_run_make_room(struct zone *zone, const struct run_place *place, enum mobility mobility, const struct zone_run *run) {
    if (run->fresh + place->fresh_huge == 0) return;
    const bool long_block = mobility == MOBILITY_MOVABLE && run->granules >= LONG_RUN_GRANULES;
    const bool young = place->fresh_huge != 0;
    place->superpage->young = young; /* what is not there yet can't be handed back */
    zone->young += young;
    zone_make_room(zone, (long_block ? zone_expect_touched(zone, false, run->fresh) : run->fresh) + place->fresh_huge);
    place->superpage->young = false;
    zone->young -= young;
}

bool zone_run_take(struct zone *zone, unsigned granules, unsigned align, enum mobility mobility, bool grouped, enum run_pages pages,
                   struct zone_run *run, struct run_touches *touches) {
    struct run_place place;
    granules = (unsigned)align_up(granules, zone->page_granules);
    if (align < zone->page_granules) align = zone->page_granules;
    if (!zone_run_find(zone, granules, align, mobility, grouped, pages, &place, touches)) return false;
    zone_run_occupy(zone, &place, granules, mobility, pages, run);
    zone_run_make_room(zone, &place, mobility, run);
    /* After room was made: pages that are marked ahead must not be handed back before they are there. */
    if (run->fresh == granules && mobility != MOBILITY_MOVABLE && pages == RUN_PAGES_AHEAD)
        touches->populate = populate_ahead(zone, place.superpage, place.start, granules);
    return true;
}

/* Of runs that are no blocks'; under the lock. */
static void note_runs(struct zone *zone, uint64_t granules) {
    __atomic_store_n(&zone->runs.granules, granules, __ATOMIC_RELAXED);
    if (granules > zone->runs.most) __atomic_store_n(&zone->runs.most, granules, __ATOMIC_RELAXED);
}
uint64_t zone_runs_granules(const struct zone *zone) { return __atomic_load_n(&zone->runs.granules, __ATOMIC_RELAXED); }
uint64_t zone_runs_fewer(const struct zone *zone) {
    const uint64_t most = __atomic_load_n(&zone->runs.most, __ATOMIC_RELAXED);
    return most - min_u64(most, zone_runs_granules(zone));
}
void zone_runs_restart(struct zone *zone) {
    platform_lock_acquire(&zone->lock);
    __atomic_store_n(&zone->runs.most, zone->runs.granules, __ATOMIC_RELAXED);
    platform_lock_release(&zone->lock);
}

static bool run_alloc(struct zone *zone, unsigned granules, unsigned align, enum mobility mobility, enum run_pages pages, struct zone_run *run) {
    struct run_touches touches;
    zone_lock(zone);
    const bool ok = zone_run_take(zone, granules, align, mobility, false, pages, run, &touches);
    if (ok) note_runs(zone, zone->runs.granules + run->granules);
    platform_lock_release(&zone->lock);
    if (ok) zone_run_touch(zone, run, &touches);
    return ok;
}
bool zone_run_alloc(struct zone *zone, unsigned granules, unsigned align, enum mobility mobility, struct zone_run *run) {
    return run_alloc(zone, granules, align, mobility, RUN_PAGES_AHEAD, run);
}
bool zone_run_alloc_lazy(struct zone *zone, unsigned granules, unsigned align, enum mobility mobility, struct zone_run *run) {
    return run_alloc(zone, granules, align, mobility, RUN_PAGES_LAZY, run);
}
bool zone_run_alloc_present(struct zone *zone, unsigned granules, unsigned align, enum mobility mobility, struct zone_run *run) {
    return run_alloc(zone, granules, align, mobility, RUN_PAGES_PRESENT, run);
}

void zone_run_free(struct zone *zone, void *address, unsigned granules) {
    granules = (unsigned)align_up(granules, zone->page_granules);
    zone_lock(zone);
    struct superpage *superpage = superpage_of(zone, address);
    zone_mark_free(zone, superpage, (unsigned)(zone_granule_of(zone, address) % SUPERPAGE_GRANULES), granules);
    note_runs(zone, zone->runs.granules - granules);
    zone_superpage_settle(zone, superpage);
    zone_trim_to_limit(zone);
    platform_lock_release(&zone->lock);
}

void zone_superpage_settle(struct zone *zone, struct superpage *superpage) {
    if (superpage->state != SUPERPAGE_RUNS || superpage->free != SUPERPAGE_GRANULES) return;
    zone->counters.idle_huge -= superpage_kept_idle(superpage, superpage->idle);
    superpage->state = SUPERPAGE_FREE;
    list_remove(&superpage->bucket);
    zone_superpage_relink(zone, superpage, superpage->idle);
    if (!superpage->apart) zone_superpages_give(zone, superpage, 1);
}
