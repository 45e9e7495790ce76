/*
 * place.c - where large blocks go: where pages are present already, as first touches cost more than any other place is worth.
 *
 * Best fit alone knows addresses, not pages: what a block leaves behind when it ends waits in its superpages, and the next one of nearly that size
 * would be given others, and have the pages moved there or handed back. Looks at a bounded number of places, so that the cost does not grow with the
 * heap. Lock: LOCK_RANK_ZONE.
 */
#include "page/cost.h"
#include "page/zone_internal.h"

/* So many superpages are looked at as the first one of a block; of a longer block so many count. So many of each bucket for a run. */
#define PLACES 32
#define WEIGHED_SUPERPAGES 16
#define BUCKET_PLACES 8
/* Present granules that make up for a place that is not the best fit. */
#define PLACE_GAIN_GRANULES 32
/* So many more places are looked at for a block that moves, where pages would be dropped at the first one. */
#define MOVE_PLACES 3

/* What a block wants: superpages, and among the first ones granules [from, to) to be present; what is in front of these would be lost. */
struct wish {
    size_t count, align, from, to;
};

static size_t count_present(const struct superpage *superpage, size_t at, size_t from, size_t to) {
    from = max_u64(from, at);
    to = min_u64(to, at + SUPERPAGE_GRANULES);
    if (superpage->idle == 0 || from >= to) return 0;
    return to - from == SUPERPAGE_GRANULES ? superpage->idle : bits_count_range(superpage->populated, (unsigned)(from - at), (unsigned)(to - from));
}

/* How many more are where a block would begin at `first` than would be lost; 0 also where not all of it is free. */
static size_t present_granules(const struct zone *zone, const struct superpage *first, const struct wish *wish) {
    size_t present = 0, lost = 0;
    if ((size_t)(first - zone->superpages) + wish->count > zone->extent_bytes >> SUPERPAGE_SHIFT) return 0;
    for (size_t i = 0; i < wish->count; i++) {
        if (first[i].state != SUPERPAGE_FREE) return 0;
        present += count_present(&first[i], i * SUPERPAGE_GRANULES, wish->from, wish->to);
        lost += count_present(&first[i], i * SUPERPAGE_GRANULES, 0, wish->from);
    }
    return present > lost ? present - lost : 0;
}

/* A place with more than `least`. */
static struct superpage *find_present(struct zone *zone, const struct wish *wish, size_t least) {
    struct superpage *best = NULL;
    unsigned looks = 0;
    LIST_FOR_EACH(&zone->idle[IDLE_FREE], node) {
        struct superpage *first = CONTAINER_OF(node, struct superpage, idle_link);
        if (((uintptr_t)superpage_address(zone, first) & ((wish->align << SUPERPAGE_SHIFT) - 1)) == 0) {
            size_t present = present_granules(zone, first, wish);
            if (present > least) {
                least = present;
                best = first;
            }
        }
        if (least == wish->to - wish->from || ++looks == PLACES) break;
    }
    return best;
}

struct superpage *zone_superpages_take_present(struct zone *zone, size_t count, size_t align, size_t from, size_t to) {
    struct superpage *first = zone_superpages_take(zone, count, align);
    to = min_u64(to, from + WEIGHED_SUPERPAGES * SUPERPAGE_GRANULES);
    if (first == NULL || from >= to || list_empty(&zone->idle[IDLE_FREE])) return first;
    const struct wish wish = {.count = count, .align = align, .from = from, .to = to};
    struct superpage *better = find_present(zone, &wish, present_granules(zone, first, &wish) + PLACE_GAIN_GRANULES);
    if (better == NULL) return first;
    zone_superpages_give(zone, first, count);
    return zone_superpages_take_at(zone, better, count) ? better : zone_superpages_take(zone, count, align);
}

struct superpage *zone_superpage_take_run(struct zone *zone, unsigned granules, unsigned align) {
    unsigned looks = 0;
    LIST_FOR_EACH(&zone->idle[IDLE_FREE], node) {
        struct superpage *superpage = CONTAINER_OF(node, struct superpage, idle_link);
        if (!superpage->apart && superpage_find_present(superpage, granules, align) < SUPERPAGE_GRANULES)
            return zone_superpages_take_at(zone, superpage, 1) ? superpage : NULL;
        if (++looks == PLACES) break;
    }
    return NULL;
}

/* Superpages of which pages in the way of others would be dropped, as nothing behind them is free of present ones (zone_clear_way). */
static size_t superpages_lost(const struct superpage *first, size_t count, size_t to) {
    size_t head = (to + SUPERPAGE_GRANULES - 1) / SUPERPAGE_GRANULES, in_the_way = 0, room = 0;
    for (size_t i = 0; i < head; i++) in_the_way += count_present(&first[i], i * SUPERPAGE_GRANULES, 0, to) >= COST_CLEAR_GRANULES_MIN;
    for (size_t i = head; i < count && room < in_the_way; i++) room += bits_count(first[i].populated) == 0;
    return in_the_way - room;
}

/*
 * Another place: of those that were used before, at last one that never was, as long as the heap has at most twice the superpages that its peak takes
 * (else what blocks leave behind would have them move on for ever). NULL: none.
 */
static struct superpage *take_another(struct zone *zone, size_t count, bool unused) {
    uint64_t used = zone->base + ((uint64_t)zone->used_superpages << SUPERPAGE_SHIFT), bytes = (uint64_t)count << SUPERPAGE_SHIFT, address;
    uint64_t end = zone->base + ((2 * (zone->populated_peak / SUPERPAGE_GRANULES) + 2 * count) << SUPERPAGE_SHIFT);
    enum arena_status status = arena_xalloc(&zone->addresses, bytes, 0, 0, 0, unused ? used : 0, unused ? end : used, ARENA_BEST_FIT, &address);
    struct superpage *first = status == ARENA_OK ? superpage_of(zone, (char *)(uintptr_t)address) : NULL;
    if (first == NULL || zone_superpages_commit(zone, first, count, true)) return first;
    zone_superpages_give(zone, first, count);
    return NULL;
}

struct superpage *zone_superpages_take_moved(struct zone *zone, size_t count, size_t from, size_t to) {
    struct superpage *best = zone_superpages_take_present(zone, count, 1, from, to), *others[MOVE_PLACES];
    if (best == NULL || list_empty(&zone->idle[IDLE_FREE])) return best;
    unsigned held = 0;
    size_t lost = superpages_lost(best, count, from);
    for (unsigned tries = 0; lost != 0 && tries < MOVE_PLACES; tries++) {
        struct superpage *next = take_another(zone, count, tries == MOVE_PLACES - 1);
        if (next == NULL) continue;
        size_t next_lost = superpages_lost(next, count, from);
        others[held++] = next_lost < lost ? best : next; /* held until the end, so that the arena has another one */
        if (next_lost >= lost) continue;
        best = next;
        lost = next_lost;
    }
    while (held-- != 0) zone_superpages_give(zone, others[held], count);
    return best;
}

/* The place for a run in one superpage with the most present granules, of those that begin or end where free or present ones do. */
static unsigned most_present_run(const struct superpage *superpage, unsigned granules, unsigned align, unsigned *start) {
    unsigned most = 0;
    for (unsigned from = bits_next(superpage->allocated, 0, ~UINT64_C(0)); from < SUPERPAGE_GRANULES;) {
        unsigned end = bits_next(superpage->allocated, from, 0);
        for (unsigned at = from; at < end;) {
            unsigned place = (unsigned)align_up(at, align);
            if (place + granules > end && end - from >= granules) place = (unsigned)align_down(end - granules, align);
            if (place < from || place + granules > end) break;
            unsigned present = bits_count_range(superpage->populated, place, granules);
            if (present > most) {
                most = present;
                *start = place;
            }
            at = bits_next(superpage->populated, bits_next(superpage->populated, at, ~UINT64_C(0)), 0);
        }
        from = bits_next(superpage->allocated, end, ~UINT64_C(0));
    }
    return most;
}

struct superpage *zone_find_most_present(struct zone *zone, enum mobility mobility, unsigned granules, unsigned align, unsigned *start) {
    struct superpage *best = NULL;
    unsigned most = 0;
    for (unsigned b = bit_highest(granules); b < ZONE_BUCKETS; b++) {
        unsigned looks = 0;
        LIST_FOR_EACH(&zone->buckets[mobility][b], node) {
            struct superpage *superpage = CONTAINER_OF(node, struct superpage, bucket);
            if (looks++ == BUCKET_PLACES || most == granules) break;
            if (superpage->largest_free < granules || superpage->idle <= most) continue;
            unsigned at = 0, present = most_present_run(superpage, granules, align, &at);
            if (present <= most) continue;
            most = present;
            best = superpage;
            *start = at;
        }
    }
    return best;
}
