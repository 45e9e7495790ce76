/*
 * growth.c - large blocks that grow again and again into superpages that were never used: a step costs the same whatever its size.
 *
 * The marks of a superpage are four cache lines, and those of a GiB 32 pages, which a first growth would make present and write to before anybody
 * looks at them. So they are put off: the block's descriptor, the counters and the arena of addresses are true at once, the marks as soon as anyone
 * takes the lock for them (zone_lock), but for growth itself. What grows on in between is marked by one pass at the end.
 *
 * Invariant: the granules [unmarked.from, unmarked.to) are one block's, from a multiple of a superpage on to its end, and lie in superpages whose
 * marks are zeros: never used, no page present, in no list, without advice. Lock: LOCK_RANK_ZONE.
 */
#include "base/check.h"
#include "page/block_internal.h"

/* Fewer superpages are marked at once. */
#define UNMARKED_SUPERPAGES_MIN 8

STRATA_COLD void zone_mark_growth(struct zone *zone) {
    struct unmarked unmarked = zone->unmarked;
    if (unmarked.to == 0) return;
    zone->unmarked = (struct unmarked){0};
    size_t from = unmarked.from / SUPERPAGE_GRANULES, end = block_superpages(unmarked.to);
    zone_populate_marks(zone, from, end);
    block_adopt(zone, &zone->superpages[from], 0, end - from, unmarked.mobility);
    for (size_t i = from; i < end; i++) { /* the counters have them */
        struct superpage *superpage = &zone->superpages[i];
        unsigned granules = (unsigned)min_u64(SUPERPAGE_GRANULES, unmarked.to - i * SUPERPAGE_GRANULES);
        superpage_set_allocated(superpage, 0, granules);
        bits_set(superpage->populated, 0, granules);
        bits_set(superpage->dirty, 0, granules);
    }
}

/* What a block that is wholly used, and the last one of all that were ever used, may have without a look at marks. */
static bool can_grow_unmarked(struct zone *zone, const struct block_desc *block, size_t end_superpage, size_t granules) {
    const struct unmarked *unmarked = &zone->unmarked;
    if (block->superpages == 0 || block->granules != block->superpages * SUPERPAGE_GRANULES || block->watched || block->huge) return false;
    if (block_superpages(granules) < block->superpages + UNMARKED_SUPERPAGES_MIN || end_superpage < zone->used_superpages) return false;
    if (unmarked->to != 0 && unmarked->to != end_superpage * SUPERPAGE_GRANULES) return false;
    /* Huge pages are decided on by what is present, and are noted in the marks. */
    if (zone->config.thp == ZONE_THP_ALWAYS || zone->huge.trust != 0 || zone->huge.pause_left != 0) return false;
    if (zone->counters.idle - zone->counters.idle_huge >= SUPERPAGE_GRANULES) return false; /* they go there, by their marks */
    return zone_within_limit(zone, granules - block->granules);
}

bool zone_block_grow_unmarked(struct zone *zone, char *address, size_t granules) {
    struct block_desc *block = block_of(zone, address);
    struct superpage *first = superpage_of(zone, address);
    size_t owned = block->superpages, needed = block_superpages(granules), at = zone_granule_of(zone, address), more = granules - block->granules;
    if (granules <= block->granules || address == zone->compaction.from) return false;
    if (!can_grow_unmarked(zone, block, (size_t)(first - zone->superpages) + owned, granules)) return false;
    if (!block_resize_space(zone, address, owned, needed)) return false;
    if (!zone_superpages_commit(zone, first, needed, false)) {
        CHECK(block_resize_space(zone, address, needed, owned));
        return false;
    }
    if (zone->unmarked.to == 0) zone->unmarked = (struct unmarked){.from = at + block->granules, .mobility = (enum mobility)block->mobility};
    zone->unmarked.to = at + granules;
    block->superpages = needed;
    block->granules = granules;
    block_forget_longer(zone, block);
    zone_note_fresh(zone, block, more);
    zone->counters.block_granules += more;
    zone->counters.allocated += more;
    COUNTER_ADD(zone->counters.populated, more);
    zone->counters.populated_total += more;
    zone_make_room(zone, more);
    return true;
}
