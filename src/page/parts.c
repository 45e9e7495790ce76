/*
 * parts.c - blocks cut in two, joined, given room to grow in place, and looked up by any address inside.
 *
 * A block of whole superpages is cut at a multiple of theirs, so that every superpage keeps one owner and each part is freed for itself; a run
 * is cut anywhere. No page changes its address, its contents or its presence by what is done here. Lock: LOCK_RANK_ZONE.
 */
#include "base/check.h"
#include "page/zone_internal.h"

/* Under the lock: the start of the block that the address is in; NULL: in none. */
static char *start_of(struct zone *zone, const char *address) {
    if (!zone_contains(zone, address)) return NULL;
    const struct superpage *superpage = superpage_of(zone, address);
    size_t granule = zone_granule_of(zone, address);
    if (superpage->state == SUPERPAGE_RUNS) {
        size_t lowest = granule - granule % SUPERPAGE_GRANULES;
        while (zone_tag_of(zone, granule) != TAG_BLOCK) {
            if (granule == lowest || zone_tag_of(zone, granule) != TAG_NONE) return NULL; /* a slab's, or nobody's */
            granule--;
        }
        char *start = zone_address_of(zone, granule);
        return zone_is_block(zone, start) ? start : NULL;
    }
    /* The first superpage of a block has its tag, also where a CPU keeps it; one that rests has none. */
    for (granule -= granule % SUPERPAGE_GRANULES; superpage->state == SUPERPAGE_BLOCK; superpage--, granule -= SUPERPAGE_GRANULES) {
        char *start = zone_address_of(zone, granule);
        if (zone_tag_of(zone, granule) == TAG_BLOCK) return zone_is_block(zone, start) ? start : NULL;
        if (granule == 0) break;
    }
    return NULL;
}

static size_t unit_of(const struct zone *zone, const struct block_desc *block) {
    return block->superpages != 0 ? SUPERPAGE_BYTES : (size_t)zone->page_granules << GRANULE_SHIFT;
}

/* Under the lock. */
static enum zone_status find(struct zone *zone, const void *address, size_t bytes, struct zone_block_info *info) {
    enum zone_status status = ZONE_NO_BLOCK;
    if (!zone_is_block(zone, address)) zone_mark_growth(zone); /* the start of a block is known by its tag, addresses inside by marks */
    char *start = start_of(zone, address);
    if (start != NULL) {
        const struct block_desc *block = block_of(zone, start);
        size_t offset = (size_t)((const char *)address - start), size = block_asked(block) << GRANULE_SHIFT;
        *info = (struct zone_block_info){.start = start,
                                         .bytes = size,
                                         .capacity_bytes = block->superpages != 0 ? (size_t)block->superpages << SUPERPAGE_SHIFT
                                                                                  : (size_t)block->granules << GRANULE_SHIFT,
                                         .unit_bytes = unit_of(zone, block),
                                         .mobility = (enum mobility)block->mobility,
                                         .align = block->align_shift == 0 ? 0 : (size_t)1 << block->align_shift,
                                         .fixed = block->fixed,
                                         .huge = block->huge,
                                         .move = block->move,
                                         .argument = block->argument};
        if (offset < size && bytes <= size - offset) status = ZONE_OK;
    }
    return status;
}

enum zone_status zone_block_find(struct zone *zone, const void *address, size_t bytes, struct zone_block_info *info) {
    platform_lock_acquire(&zone->lock);
    enum zone_status status = find(zone, address, bytes, info);
    platform_lock_release(&zone->lock);
    return status;
}

STRATA_COLD bool zone_block_try_find(struct zone *zone, const void *address, struct zone_block_info *info, enum zone_status *status) {
    if (!platform_lock_try(&zone->lock)) return false;
    *status = find(zone, address, 1, info);
    platform_lock_release(&zone->lock);
    return true;
}

enum zone_status zone_block_set_move(struct zone *zone, void *address, zone_block_move *move, void *argument) {
    enum zone_status status = ZONE_NO_BLOCK;
    zone_lock(zone);
    if (zone_is_block(zone, address)) {
        struct block_desc *block = block_of(zone, address);
        status = block->fixed && move != NULL ? ZONE_BAD_RANGE : ZONE_OK;
        if (status == ZONE_OK) {
            block->move = move;
            block->argument = argument;
        }
    }
    platform_lock_release(&zone->lock);
    return status;
}

static uint64_t space_bytes(uint64_t superpages) { return superpages << SUPERPAGE_SHIFT; }

enum zone_status zone_block_reserve(struct zone *zone, void *address, size_t bytes) {
    enum zone_status status = ZONE_NO_BLOCK;
    zone_lock(zone);
    if (zone_is_block(zone, address)) {
        struct block_desc *block = block_of(zone, address);
        uint64_t wanted = (bytes >> SUPERPAGE_SHIFT) + ((bytes & (SUPERPAGE_BYTES - 1)) != 0), owned = block->superpages;
        if (owned == 0)
            status = bytes <= block->granules << GRANULE_SHIFT ? ZONE_OK : ZONE_NO_ROOM;
        else if (wanted <= owned)
            status = ZONE_OK;
        else
            status = zone_block_extend(zone, address, wanted);
        if (status == ZONE_OK) block->reserved = true;
    }
    platform_lock_release(&zone->lock);
    return status;
}

enum zone_status zone_block_split(struct zone *zone, void *address, size_t bytes) {
    enum zone_status status = ZONE_NO_BLOCK;
    size_t first_granules = bytes >> GRANULE_SHIFT;
    zone_lock(zone);
    if (zone_is_block(zone, address)) {
        struct block_desc *block = block_of(zone, address), rest = *block;
        uint64_t first_superpages = block->superpages != 0 ? bytes >> SUPERPAGE_SHIFT : 0;
        status = bytes == 0 || bytes % unit_of(zone, block) != 0 || first_granules >= block_asked(block) ? ZONE_BAD_RANGE : ZONE_OK;
        if (status == ZONE_OK && block->superpages != 0 &&
            arena_split(&zone->addresses, (uintptr_t)address, space_bytes(block->superpages), space_bytes(first_superpages)) != ARENA_OK)
            status = ZONE_NO_MEMORY;
        if (status == ZONE_OK) {
            char *second = (char *)address + bytes;
            block->longer = 0; /* what nobody asked for lies behind the second part */
            rest.align_shift = 0;
            rest.granules -= first_granules;
            rest.superpages -= first_superpages;
            block->reserved = false; /* what was reserved lies behind the second part */
            block->granules = first_granules;
            block->superpages = first_superpages;
            *block_of(zone, second) = rest;
            zone_tag_run(zone, second, 1, TAG_BLOCK);
            zone->counters.blocks++;
        }
    }
    platform_lock_release(&zone->lock);
    return status;
}

/* Under the lock, both being blocks: whether all that is between the starts is the first block's, and both are of one kind. */
static bool are_neighbours(struct zone *zone, const char *address, const char *next) {
    const struct block_desc *block = block_of(zone, address), *behind = block_of(zone, next);
    if ((block->superpages == 0) != (behind->superpages == 0) || address + (block_asked(block) << GRANULE_SHIFT) != next) return false;
    return block->superpages != 0 || superpage_of(zone, address) == superpage_of(zone, next);
}

/* Under the lock: by `join`, or `check`, of the arena, where the blocks have superpages of their own. */
static enum zone_status join_addresses(struct zone *zone, void *address, void *next,
                                       enum arena_status (*join)(struct arena *, uint64_t, uint64_t, uint64_t)) {
    if (!zone_is_block(zone, address) || !zone_is_block(zone, next)) return ZONE_NO_BLOCK;
    const struct block_desc *block = block_of(zone, address), *behind = block_of(zone, next);
    const char *moving = zone->compaction.from; /* its target has no room for more */
    if (!are_neighbours(zone, address, next) || address == moving || next == moving) return ZONE_BAD_RANGE;
    if (block->superpages == 0) return ZONE_OK;
    bool joined = join(&zone->addresses, (uintptr_t)address, space_bytes(block->superpages), space_bytes(behind->superpages)) == ARENA_OK;
    return joined ? ZONE_OK : ZONE_BAD_RANGE;
}

enum zone_status zone_block_join(struct zone *zone, void *address, void *next) {
    zone_lock(zone);
    enum zone_status status = join_addresses(zone, address, next, arena_join);
    if (status == ZONE_OK) {
        struct block_desc *block = block_of(zone, address), behind = *block_of(zone, next);
        zone_tag_run(zone, next, 1, TAG_NONE);
        block->longer = behind.longer;
        block->granules += behind.granules;
        block->superpages += behind.superpages;
        block->holes |= behind.holes;
        block->fresh = (uint32_t)min_u64((uint64_t)block->fresh + behind.fresh, UINT32_MAX);
        block->watched |= behind.watched;
        block->fixed |= behind.fixed;
        block->reserved |= behind.reserved;
        block->huge &= behind.huge;
        if (behind.move != block->move || behind.argument != block->argument) block->move = NULL; /* their owners know of two */
        zone->counters.blocks--;
    }
    platform_lock_release(&zone->lock);
    return status;
}

enum zone_status zone_block_join_check(struct zone *zone, void *address, void *next) {
    zone_lock(zone);
    enum zone_status status = join_addresses(zone, address, next, arena_join_check);
    platform_lock_release(&zone->lock);
    return status;
}
