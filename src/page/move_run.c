/*
 * move_run.c - a block that is a run and outgrows its place takes its pages along to the next one (UMPA, section 2).
 *
 * A copy into pages that are absent pays a first touch for each, and leaves as many idle behind, which at the peak of the heap go back to the system
 * for them: a program whose buffers grow by realloc would do both at each step. Here the pages themselves go, one by one, so that a run stays a run
 * and no mapping is cut; the new one lies where any other would. Where it would lie among present pages, or threads take turns, a copy is the cheaper
 * way (cost.h, move.c), and the caller's affair. Lock: LOCK_RANK_ZONE.
 */
#include "page/block_internal.h"
#include "page/cost.h"

/* How many of granules [start, start + count) are absent in gaps that are worth a call. */
static STRATA_RARE unsigned count_absent(const struct superpage *superpage, unsigned start, unsigned count) {
    unsigned absent = 0;
    for (unsigned at = start, end = start + count; at < end;) {
        const unsigned gap = bits_next_gap(superpage->populated, at, end, &at);
        if (at - gap >= COST_FILL_PAGES_MIN) absent += at - gap;
    }
    return absent;
}

/*
 * The pages of `from` go to the gaps of a place, whose target is open: who touched it now would wait for ever. What the system won't move stays.
 * Which granules came, by their bits.
 */
static STRATA_RARE void move_gaps(struct zone *zone, char *from, struct superpage *superpage, unsigned start, unsigned count,
                                  uint64_t came[SUPERPAGE_WORDS]) {
    char *to = superpage_address(zone, superpage) + ((size_t)start << GRANULE_SHIFT);
    const size_t page = (size_t)zone->page_granules << GRANULE_SHIFT;
    for (unsigned at = start, end = start + count; at < end;) {
        const unsigned gap = bits_next_gap(superpage->populated, at, end, &at);
        if (at - gap < COST_FILL_PAGES_MIN) continue;
        const size_t offset = (size_t)(gap - start) << GRANULE_SHIFT;
        const size_t bytes = zone_target_move(zone, from + offset, to + offset, (size_t)(at - gap) << GRANULE_SHIFT, page);
        const unsigned moved = (unsigned)(bytes >> GRANULE_SHIFT);
        if (moved != 0) {
            bits_set(came, gap, moved);
            zone_moved_pages(zone, from + offset, to + offset, moved, 0);
            at = gap + moved; /* to a border of mappings, perhaps */
        }
        if (zone->mover.pause_left != 0) return; /* the system refuses: each further question would make the pause longer */
    }
}

/* The rest is copied: to what is present there, or because it would not move. Once the new run has its pages, so that nothing comes over it. */
static STRATA_RARE void copy_rest(const char *from, char *to, unsigned start, unsigned count, const uint64_t came[SUPERPAGE_WORDS]) {
    for (unsigned at = start, end = start + count; at < end;) {
        const unsigned rest = bits_next_gap(came, at, end, &at);
        const size_t offset = (size_t)(rest - start) << GRANULE_SHIFT;
        __builtin_memcpy(to + offset, from + offset, (size_t)(at - rest) << GRANULE_SHIFT);
    }
}

/* The block that was there ends. What came is absent by the marks, what was copied is there; of a tail that nobody knew of the system can tell. */
static STRATA_RARE void end_old(struct zone *zone, char *address) {
    const struct block_desc *old = block_of(zone, address);
    if (old->fresh != 0 && old->longer >= HOLES_GRANULES_MIN && !platform_is_filtered())
        (void)zone_mark_holes(zone, address + (block_asked(old) << GRANULE_SHIFT), old->longer);
    block_end_moved(zone, address);
}

STRATA_RARE void *block_move_run(struct zone *zone, char *address, const struct block_desc *block, size_t granules, size_t align) {
    struct block_desc moved = *block;
    struct run_place place;
    struct run_touches touches;
    struct zone_run run;
    const unsigned old = (unsigned)block_asked(block), wanted = (unsigned)granules;
    align = max_u64(max_u64(align, (size_t)1 << block->align_shift) >> GRANULE_SHIFT, zone->page_granules);
    if (block->superpages != 0 || block->holes || block->move != NULL || granules > RUN_GRANULES_MAX || align > RUN_GRANULES_MAX) return NULL;
    if (superpage_of(zone, address)->huge) return NULL; /* which moves would break up */
    if (!cost_prefers_faults(old, 1, true) || !zone_one_thread_moves(zone) || !zone_target_ready(zone)) return NULL;
    const bool grouped = moved.grouped || granules > BLOCK_GROUPED_GRANULES;
    if (!zone_run_find(zone, wanted, (unsigned)align, (enum mobility)moved.mobility, grouped, RUN_PAGES_MOVED, &place, &touches)) return NULL;
    struct superpage *superpage = place.superpage;
    const unsigned absent = count_absent(superpage, place.start, old);
    char *to = superpage_address(zone, superpage) + ((size_t)place.start << GRANULE_SHIFT);
    const bool better = absent >= old / 2 && cost_prefers_faults(absent, 1, true) && !superpage->huge && !superpage->littered;
    if (!better || !zone_target_open(zone, to, (size_t)old << GRANULE_SHIFT)) {
        zone_run_leave(zone, &place);
        return NULL;
    }
    zone_end_watches(zone, block, address, (size_t)moved.granules << GRANULE_SHIFT);
    uint64_t came[SUPERPAGE_WORDS] = {0};
    move_gaps(zone, address, superpage, place.start, old, came);
    zone_target_close(zone, to, (size_t)old << GRANULE_SHIFT);
    zone_run_occupy(zone, &place, wanted, (enum mobility)moved.mobility, RUN_PAGES_MOVED, &run);
    copy_rest(address, to, place.start, old, came);
    end_old(zone, address);
    moved.granules = run.granules;
    moved.longer = 0;
    moved.watched = false;
    zone_note_fresh(zone, &moved, run.fresh);
    block_begin(zone, run.address, moved);
    zone_run_make_room(zone, &place, (enum mobility)moved.mobility, &run);
    return run.address;
}
