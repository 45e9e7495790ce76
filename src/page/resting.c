/*
 * resting.c - blocks that were freed a moment ago and wait whole for one of the same size, so that what is freed and allocated in turn costs the same
 * whatever its size (UMPA, figures 5 to 8).
 *
 * A block that rests has its granules, or superpages, and their marks as if it were in use; only the zone's counters, by which limits go, no longer
 * have it. Who needs idle pages, room, address space or true marks calls zone_wake_blocks first: then all that rests is freed as other blocks are.
 * While superpages are being emptied (compact.c) nothing rests, as every block there has an owner to be asked. Invariant: a resting block has no tag,
 * holes or reserve; at most RESTING_BLOCKS rest, the latest last. Lock: LOCK_RANK_ZONE.
 */
#include "page/zone_internal.h"

/* Of runs that no CPU keeps (run_cache.c): shorter ones rest where nothing else is in their superpage: elsewhere the place that fits best for the
 * next one packs them denser. */
#define RESTING_GRANULES_MIN 128

/* Its granules are idle now. */
static void dissolve(struct zone *zone, const struct resting_block *resting) {
    const struct block_desc block = {.granules = resting->granules, .superpages = resting->superpages, .fresh = resting->fresh};
    zone->counters.allocated += block.granules; /* the marks take them away again */
    zone_block_dissolve(zone, resting->address, &block);
}

bool zone_block_rest(struct zone *zone, char *address, const struct block_desc *block) {
    struct resting *resting = &zone->resting;
    bool alone = block->superpages != 0 || superpage_of(zone, address)->free == SUPERPAGE_GRANULES - block->granules;
    if (!alone && block->granules < RESTING_GRANULES_MIN) return false;
    if (block->holes || block->used || block->reserved || zone_over_soft_limit(zone) != 0) return false;
    if (zone_exchange_meets(zone, address, block->granules << GRANULE_SHIFT)) return false; /* idle at once, to be put back */
    if (__atomic_load_n(&zone->compaction.thread, __ATOMIC_RELAXED) != 0) return false;
    if (resting->count == RESTING_BLOCKS) {
        dissolve(zone, &resting->blocks[0]);
        for (unsigned i = 1; i < RESTING_BLOCKS; i++) resting->blocks[i - 1] = resting->blocks[i];
        resting->count--;
    }
    resting->blocks[resting->count++] = (struct resting_block){.address = address,
                                                               .granules = block->granules,
                                                               .superpages = (uint32_t)block->superpages,
                                                               .mobility = (enum mobility)block->mobility,
                                                               .fresh = block->fresh};
    zone->counters.allocated -= block->granules;
    return true;
}

char *zone_block_rouse(struct zone *zone, struct block_desc *like, size_t align_bytes) {
    struct resting *resting = &zone->resting;
    for (unsigned i = resting->count; i-- != 0;) {
        struct resting_block block = resting->blocks[i];
        if (block.granules != like->granules || block.superpages != like->superpages || (uint32_t)block.mobility != like->mobility ||
            ((uintptr_t)block.address & (align_bytes - 1)) != 0)
            continue;
        for (resting->count--; i < resting->count; i++) resting->blocks[i] = resting->blocks[i + 1];
        zone->counters.allocated += block.granules;
        like->fresh = block.fresh;
        return block.address;
    }
    return NULL;
}

void zone_wake_resting(struct zone *zone) {
    struct resting *resting = &zone->resting;
    while (resting->count != 0) {
        struct resting_block block = resting->blocks[--resting->count];
        dissolve(zone, &block);
    }
}

void zone_wake_resting_runs(struct zone *zone) {
    struct resting *resting = &zone->resting;
    unsigned kept = 0;
    for (unsigned i = 0; i < resting->count; i++) {
        if (resting->blocks[i].superpages == 0)
            dissolve(zone, &resting->blocks[i]);
        else
            resting->blocks[kept++] = resting->blocks[i];
    }
    resting->count = kept;
}
