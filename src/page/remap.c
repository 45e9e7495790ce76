/*
 * remap.c - pages that change their address by page-table operations: no copy, no fault, no clearing (UMPA, section 2).
 *
 * Two uses: a block that grows beyond its address space takes its pages along; and a new block gets the present pages of
 * superpages that are wholly free, wherever these are, before it would fault in fresh ones. A move costs some 6 us for any
 * range inside one superpage, a fault 2 to 3 us for each page and 0.2 to 7 ms for a huge page, so that moves pay from a
 * few pages on. What they cost is mappings: a moved range can't merge with its neighbours until it is reset.
 * Lock: LOCK_RANK_ZONE.
 */
#include "page/zone_internal.h"

#include "base/check.h"

/* Fewer absent granules than this are left to faults: the split of mappings is not worth it. */
#define FILL_GRANULES_MIN 64

/* Granules [at, at + count) of `source` have moved to [to_at, ...) of `target`: the marks follow the pages, those of the source read as zeros. */
static void marks_follow(struct zone *zone, struct superpage *source, unsigned at, struct superpage *target, unsigned to_at, unsigned count) {
    unsigned source_idle = source->idle, target_idle = target->idle;
    uint64_t dropped = bits_count_range(target->populated, to_at, count);
    for (unsigned i = 0; i < count; i++) {
        unsigned from = at + i, to = to_at + i;
        uint64_t from_bit = UINT64_C(1) << (from % 64), to_bit = UINT64_C(1) << (to % 64);
        target->populated[to / 64] = (target->populated[to / 64] & ~to_bit) | ((source->populated[from / 64] & from_bit) != 0 ? to_bit : 0);
        target->dirty[to / 64] = (target->dirty[to / 64] & ~to_bit) | ((source->dirty[from / 64] & from_bit) != 0 ? to_bit : 0);
    }
    bits_clear(source->populated, at, count);
    bits_clear(source->dirty, at, count);
    COUNTER_SUB(zone->counters.populated, dropped);
    zone->counters.released_total += dropped;
    superpage_recount(source);
    superpage_recount(target);
    zone_superpage_relink(zone, source, source_idle);
    zone_superpage_relink(zone, target, target_idle);
    source->moved = target->moved = true;
}

static void note_end(struct zone *zone, size_t granule) {
    struct superpage *superpage = &zone->superpages[granule / SUPERPAGE_GRANULES];
    if (superpage->splits == UINT8_MAX) return;
    superpage->splits++;
    zone->counters.mappings++;
}

void zone_note_ends(struct zone *zone, const char *address, size_t granules) {
    size_t at = zone_granule_of(zone, address);
    note_end(zone, at);
    note_end(zone, at + granules - 1);
}

void zone_moved_pages(struct zone *zone, char *from, char *to, size_t granules) {
    size_t at = zone_granule_of(zone, from), to_at = zone_granule_of(zone, to);
    for (size_t done = 0; done < granules;) {
        unsigned source_at = (unsigned)((at + done) % SUPERPAGE_GRANULES), target_at = (unsigned)((to_at + done) % SUPERPAGE_GRANULES);
        unsigned count = (unsigned)min_u64(granules - done, SUPERPAGE_GRANULES - (source_at > target_at ? source_at : target_at));
        marks_follow(zone, &zone->superpages[(at + done) / SUPERPAGE_GRANULES], source_at, &zone->superpages[(to_at + done) / SUPERPAGE_GRANULES],
                     target_at, count);
        done += count;
    }
    zone->counters.moves++;
    zone_note_ends(zone, to, granules);
}

/* The longest run of present granules of a wholly free superpage, at most `wanted` long. */
static unsigned longest_present(const struct superpage *superpage, unsigned wanted, unsigned *at) {
    unsigned longest = 0;
    for (unsigned start = bits_next(superpage->populated, 0, 0); start < SUPERPAGE_GRANULES && longest < wanted;) {
        unsigned end = bits_next(superpage->populated, start, ~UINT64_C(0));
        if (end - start > longest) {
            longest = end - start;
            *at = start;
        }
        start = bits_next(superpage->populated, end, 0);
    }
    return longest < wanted ? longest : wanted;
}

/* The best source for `wanted` granules among the first few: one that has them all, else the one with the longest run. */
static struct superpage *find_source(struct zone *zone, unsigned wanted, unsigned *at, unsigned *count) {
    struct superpage *best = NULL;
    unsigned looks = 0;
    *count = FILL_GRANULES_MIN - 1;
    LIST_FOR_EACH(&zone->idle_free, node) {
        struct superpage *superpage = CONTAINER_OF(node, struct superpage, idle_link);
        unsigned start = 0, length = superpage->idle > *count ? longest_present(superpage, wanted, &start) : 0;
        if (length > *count) {
            best = superpage;
            *at = start;
            *count = length;
        }
        if (*count == wanted || ++looks == 16) break;
    }
    return best;
}

static bool fill(struct zone *zone, struct superpage *target, unsigned start, unsigned granules) {
    while (granules >= FILL_GRANULES_MIN) {
        unsigned at = 0, count;
        if (list_empty(&zone->idle_free) || !zone_mappings_left(zone)) return false;
        struct superpage *source = find_source(zone, granules, &at, &count);
        if (source == NULL) return false;
        bool whole = count == SUPERPAGE_GRANULES, huge = source->huge;
        char *from = superpage_address(zone, source) + ((size_t)at << GRANULE_SHIFT);
        char *to = superpage_address(zone, target) + ((size_t)start << GRANULE_SHIFT);
        if (!platform_move(from, to, (size_t)count << GRANULE_SHIFT)) return false;
        zone_moved_pages(zone, from, to, count);
        if (whole) zone_note_advice(zone, target, 1, huge); /* the advice belongs to the mapping, which moved */
        start += count;
        granules -= count;
    }
    return true;
}

void zone_fill_from_idle(struct zone *zone, struct superpage *target, unsigned start, unsigned granules) {
    unsigned end = start + granules;
    while (start < end) {
        unsigned absent = bits_next(target->populated, start, ~UINT64_C(0));
        if (absent >= end) return;
        unsigned present = (unsigned)min_u64(bits_next(target->populated, absent, 0), end);
        if (present - absent >= FILL_GRANULES_MIN && !fill(zone, target, absent, present - absent)) return;
        start = present;
    }
}
