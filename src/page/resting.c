/*
 * resting.c - large blocks that were freed a moment ago and wait whole for one of the same size, so that what is freed and allocated in turn
 * costs the same whatever its size (UMPA, figures 5 to 8).
 *
 * A block that rests has its superpages and its marks as if it were in use; only the zone's counters, by which limits go, no longer have it. Who
 * needs idle pages, address space or true marks calls zone_wake_blocks first: then all that rests is freed as other blocks are.
 * Invariant: a resting block has no tag, holes or reserve; at most RESTING_BLOCKS rest, the latest last. Lock: LOCK_RANK_ZONE.
 */
#include "page/zone_internal.h"

bool zone_block_rest(struct zone *zone, char *address, const struct block_desc *block) {
    struct resting *resting = &zone->resting;
    if (block->holes || block->reserved || zone->counters.populated > zone->config.soft_limit_bytes >> GRANULE_SHIFT) return false;
    if (resting->count == RESTING_BLOCKS) {
        zone_block_dissolve(zone, resting->blocks[0].address, resting->blocks[0].granules, resting->blocks[0].superpages);
        for (unsigned i = 1; i < RESTING_BLOCKS; i++) resting->blocks[i - 1] = resting->blocks[i];
        resting->count--;
    }
    resting->blocks[resting->count++] = (struct resting_block){
        .address = address, .granules = block->granules, .superpages = (uint32_t)block->superpages, .mobility = (enum mobility)block->mobility};
    zone->counters.allocated -= block->granules;
    return true;
}

char *zone_block_rouse(struct zone *zone, size_t granules, size_t superpages, size_t align, enum mobility mobility) {
    struct resting *resting = &zone->resting;
    for (unsigned i = resting->count; i-- != 0;) {
        struct resting_block block = resting->blocks[i];
        if (block.granules != granules || block.superpages != superpages || block.mobility != mobility ||
            ((uintptr_t)block.address & ((align << SUPERPAGE_SHIFT) - 1)) != 0)
            continue;
        for (resting->count--; i < resting->count; i++) resting->blocks[i] = resting->blocks[i + 1];
        zone->counters.allocated += granules;
        return block.address;
    }
    return NULL;
}

STRATA_COLD void zone_wake_blocks_slow(struct zone *zone) {
    struct resting *resting = &zone->resting;
    while (resting->count != 0) {
        struct resting_block block = resting->blocks[--resting->count];
        zone_block_dissolve(zone, block.address, block.granules, block.superpages);
    }
}
