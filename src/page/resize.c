/*
 * resize.c - blocks that change their size: in place where they can, else by giving their pages a new address (UMPA, section 2).
 *
 * What lies behind a block of superpages costs address space only, so growth goes there first. A block that must move gets twice what it asked for,
 * so that a sequence of n growing steps moves its pages O(log n) times, and each move changes page tables instead of copying; but for steps that
 * leave more present pages behind where they copy (prefers_copy). Lock: LOCK_RANK_ZONE.
 */
#include "base/check.h"
#include "page/block_internal.h"
#include "page/cost.h"

/* Granules from `granules` on are no longer the block's. Where they are most of it, all that can be learned of it has been. */
static void settle_tail(struct zone *zone, char *address, struct block_desc *block, size_t granules) {
    size_t tail = block->granules - granules;
    if (block->holes || tail >= HOLES_GRANULES_MIN) zone_settle_holes(zone, block, address + (granules << GRANULE_SHIFT), tail);
    if (granules < block->granules / 2) block->fresh = 0;
}

/* A run that shrinks, or grows into the free granules behind it. *fresh: as of resize_in_place, as is the next. */
static bool resize_run(struct zone *zone, char *address, struct block_desc *block, size_t granules, uint64_t *fresh) {
    struct superpage *superpage = superpage_of(zone, address);
    size_t start = zone_granule_of(zone, address) % SUPERPAGE_GRANULES;
    if (granules < block->granules) {
        zone_mark_free(zone, superpage, (unsigned)(start + granules), (unsigned)(block->granules - granules));
        if (STRATA_UNLIKELY(zone_may_lack_pages(block))) settle_tail(zone, address, block, granules);
        return true;
    }
    if (superpage->apart) return false; /* it is being emptied, and what is free of it is kept from everybody */
    unsigned more = (unsigned)(granules - block->granules);
    zone_wake_blocks(zone); /* one that rests may be what lies behind */
    if (start + granules > SUPERPAGE_GRANULES || bits_count_range(superpage->allocated, (unsigned)(start + block->granules), more) != 0) return false;
    bool zeroed;
    zone_fill_from_idle(zone, superpage, start + block->granules, start + granules,
                        FILL_BLOCK); /* dearer would be to give them back, one in, one out */
    *fresh = zone_mark_allocated(zone, superpage, (unsigned)(start + block->granules), more, &zeroed);
    zone_note_fresh(zone, block, *fresh);
    return true;
}

bool block_resize_space(struct zone *zone, const char *address, uint64_t old, uint64_t superpages) {
    return arena_resize(&zone->addresses, (uintptr_t)address, old << SUPERPAGE_SHIFT, superpages << SUPERPAGE_SHIFT) == ARENA_OK;
}

enum zone_status zone_block_extend(struct zone *zone, char *address, uint64_t wanted) {
    struct block_desc *block = block_of(zone, address);
    struct superpage *first = superpage_of(zone, address);
    bool ok = block_resize_space(zone, address, block->superpages, wanted);
    if (!ok && zone_wake_runs(zone)) ok = block_resize_space(zone, address, block->superpages, wanted); /* they may be all that lies behind */
    if (!ok) return ZONE_NO_ROOM;
    if (!zone_superpages_commit(zone, first, wanted, true)) {
        CHECK(block_resize_space(zone, address, wanted, block->superpages));
        return ZONE_NO_MEMORY;
    }
    zone_litter_clear(zone, first + block->superpages, wanted - block->superpages);
    block_adopt(zone, first, block->superpages, wanted, (enum mobility)block->mobility);
    block->superpages = wanted;
    return ZONE_OK;
}

/* What a block of superpages grows by, before it is its own: huge pages where the program asked for them, else what is present elsewhere. */
static void fill_growth(struct zone *zone, struct superpage *first, const struct block_desc *block, size_t from, size_t to) {
    if (block->huge) {
        zone_ask_huge(zone, first + from / SUPERPAGE_GRANULES, (to - from) / SUPERPAGE_GRANULES);
        return;
    }
    zone_fill_from_idle(zone, first, from, to, FILL_GROWTH);                 /* dearer would be to give them back, one in, one out */
    block_decide_huge(zone, first, block_superpages(from), to, false, NULL); /* a measurement would cost more than all else */
}

/* A block of superpages that shrinks, or grows within its address space or into what is free behind it. */
static enum zone_status resize_superpages(struct zone *zone, char *address, struct block_desc *block, size_t granules, uint64_t *fresh) {
    struct superpage *first = superpage_of(zone, address);
    size_t needed = block_superpages(granules), owned = block->superpages;
    if (needed > owned) {
        enum zone_status status = zone_block_extend(zone, address, needed);
        if (status != ZONE_OK) return status;
    }
    if (granules < block->granules) {
        block_mark_free(zone, first, granules, block->granules);
        if (STRATA_UNLIKELY(zone_may_lack_pages(block))) settle_tail(zone, address, block, granules);
    } else {
        bool zeroed;
        zone_wake_blocks(zone);
        zone_litter_clear(zone, first + block->granules / SUPERPAGE_GRANULES, needed - block->granules / SUPERPAGE_GRANULES);
        fill_growth(zone, first, block, block->granules, granules);
        *fresh = block_mark_allocated(zone, first, block->granules, granules, &zeroed);
        zone_note_fresh(zone, block, *fresh);
    }
    if (needed < owned / 4 && !block->reserved && granules < block->granules && block_resize_space(zone, address, owned, needed)) {
        for (size_t i = needed; i < owned; i++) {
            first[i].state = SUPERPAGE_FREE;
            zone_superpage_relink(zone, &first[i], first[i].idle);
        }
        block->superpages = needed;
    }
    return ZONE_OK;
}

/* A run that has its superpage to itself, and grows beyond it into what is free behind, becomes a block of whole superpages where it is. */
static enum zone_status grow_out_of_run(struct zone *zone, char *address, struct block_desc *block, size_t granules, uint64_t *fresh) {
    struct superpage *superpage = superpage_of(zone, address);
    bool alone = (uintptr_t)address == (uintptr_t)superpage_address(zone, superpage) && superpage->free == SUPERPAGE_GRANULES - block->granules &&
                 !superpage->apart;
    size_t needed = block_superpages(granules);
    if (!alone || needed == 1) return ZONE_NO_ROOM;
    block->superpages = 1;
    enum zone_status status = zone_block_extend(zone, address, needed);
    if (status != ZONE_OK) {
        block->superpages = 0;
        return status;
    }
    zone_litter_clear(zone, superpage, 1);
    list_remove(&superpage->bucket);
    list_init(&superpage->bucket);
    zone->counters.idle_huge -= superpage_kept_idle(superpage, superpage->idle);
    superpage->state = SUPERPAGE_BLOCK;
    zone_present_relink(zone, superpage, false);
    return resize_superpages(zone, address, block, granules, fresh);
}

/* Whether a copy costs less than a new address, to where as much is idle (cost.h). What may be absent of the block, the system is asked for. */
static bool prefers_copy(struct zone *zone, const char *address, const struct block_desc *block, size_t granules) {
    const size_t old = block_asked(block);
    if (old < COST_GROW_GRANULES_MIN || granules > COST_COPY_GRANULES_MAX || granules - old < old / COST_COPY_STEP_SHARE) return false;
    if (block->move != NULL || zone->counters.idle - zone->counters.idle_huge < granules || !zone_within_limit(zone, granules)) return false;
    if (!zone_may_lack_pages(block)) return true;
    size_t absent;
    return !platform_is_filtered() && zone_count_absent(zone, address, old, &absent) && absent <= old / COST_COPY_ABSENT_SHARE;
}

/* The pages of a block get a new address with room to grow. Under the lock; NULL: copy instead. */
static void *move_block(struct zone *zone, char *address, const struct block_desc *block, size_t granules) {
    if (block->granules < COST_GROW_GRANULES_MIN || !cost_prefers_tables(block->granules, zone->counters.idle < granules)) return NULL;
    if (!zone_can_move(zone) || block->align_shift > SUPERPAGE_SHIFT) return NULL;
    struct block_desc moved = *block;
    size_t needed = block_superpages(granules);
    moved.superpages = zone->growing ? needed : needed * 2;
    struct superpage *first = zone_superpages_take_moved(zone, moved.superpages, block->granules, granules);
    if (first == NULL) first = zone_superpages_take_moved(zone, moved.superpages = needed, block->granules, granules);
    if (first == NULL) return NULL;
    char *target = superpage_address(zone, first);
    zone_litter_clear(zone, first, moved.superpages);
    block_adopt(zone, first, 0, moved.superpages, (enum mobility)moved.mobility);
    size_t old = moved.granules, kept_bytes;
    zone_clear_way(zone, first, old, moved.superpages);
    zone_end_watches(zone, block, address, old << GRANULE_SHIFT);
    if (!zone_move(zone, address, target, old << GRANULE_SHIFT, &kept_bytes)) {
        block_give_up(zone, first, 0, moved.superpages);
        return NULL;
    }
    block_end_moved(zone, address);
    zone_wake_blocks(zone); /* what rests serves the growth */
    zone_moved_pages(zone, address, target, old, kept_bytes);
    fill_growth(zone, first, &moved, old, granules);
    bool zeroed;
    uint64_t fresh = block_mark_allocated(zone, first, 0, granules, &zeroed);
    moved.granules = granules;
    moved.longer = 0;
    zone_note_fresh(zone, &moved, fresh);
    block_begin(zone, target, moved);
    if (fresh != 0) zone_make_room(zone, fresh);
    return target;
}

/* NULL: the caller copies. */
static void *move_elsewhere(struct zone *zone, char *address, const struct block_desc *block, size_t granules, size_t align) {
    if (prefers_copy(zone, address, block, granules)) return NULL;
    void *moved = move_block(zone, address, block, granules);
    return moved != NULL ? moved : block_move_run(zone, address, block, granules, align);
}

/*
 * In place; its own figures are not changed yet, so the lock is kept: the child of a fork would have granules that are in use, and no block's.
 * *fresh: how many were absent, for which room is to be made once the figures are.
 */
static enum zone_status resize_in_place(struct zone *zone, char *address, struct block_desc *block, size_t granules, uint64_t *fresh) {
    if (block->superpages != 0) return resize_superpages(zone, address, block, granules, fresh);
    return resize_run(zone, address, block, granules, fresh) ? ZONE_OK : grow_out_of_run(zone, address, block, granules, fresh);
}

enum zone_status zone_block_resize_at(struct zone *zone, void **at, size_t bytes, bool may_move, size_t align) {
    size_t granules = block_granules(zone, bytes == 0 ? 1 : bytes);
    char *address = *at;
    enum zone_status status;
    platform_lock_acquire(&zone->lock);
    uint64_t heap_before = zone->heap_bytes;
    if (STRATA_UNLIKELY(block_of(zone, address)->huge)) granules = align_up(granules, SUPERPAGE_GRANULES);
    if (zone_block_grow_unmarked(zone, address, granules)) {
        zone_grow_ahead(zone, address + (granules << GRANULE_SHIFT), heap_before);
        platform_lock_release(&zone->lock);
        return ZONE_OK;
    }
    zone_mark_growth(zone);
    struct block_desc *block = block_of(zone, address);
    size_t old = block->granules;
    const size_t asked = block_asked(block);
    if (granules > asked && STRATA_UNLIKELY(address == zone->compaction.from)) {
        /* Where it is asked to go there is no room for more, and its owner copies no more. */
        platform_lock_release(&zone->lock);
        return ZONE_NO_ROOM;
    }
    if (granules <= old && granules != asked) zone_end_watches(zone, block, address, old << GRANULE_SHIFT); /* of growth once nothing can refuse it */
    if (granules == old || (granules > asked && granules < old && block->superpages == 0)) {
        block_forget_longer(zone, block); /* who grows step by step finds the rest there */
        block->longer = (uint32_t)(old - granules);
        zone->longer_granules += block->longer;
        status = ZONE_OK;
    } else if (granules > old && !zone_within_limit(zone, granules - old)) {
        status = ZONE_NO_MEMORY;
    } else {
        uint64_t fresh = 0;
        status = resize_in_place(zone, address, block, granules, &fresh);
        if (status == ZONE_OK) {
            if (granules > old) zone_end_watches(zone, block, address, old << GRANULE_SHIFT);
            block->granules = granules;
            block_forget_longer(zone, block);
            zone->counters.block_granules += granules;
            zone->counters.block_granules -= old;
            if (fresh != 0) zone_make_room(zone, fresh);
            zone_trim_to_limit(zone);
            if (granules > old && granules >= SUPERPAGE_GRANULES) zone_grow_ahead(zone, address + (granules << GRANULE_SHIFT), heap_before);
        } else if (may_move && !block->fixed && granules > old) {
            void *moved = move_elsewhere(zone, address, block, granules, align);
            if (moved != NULL) {
                *at = moved;
                status = ZONE_OK;
                if (granules >= SUPERPAGE_GRANULES) zone_grow_ahead(zone, (char *)moved + (granules << GRANULE_SHIFT), heap_before);
            }
        }
    }
    platform_lock_release(&zone->lock);
    return status;
}

void *zone_block_resize(struct zone *zone, void *address, size_t bytes, bool may_move) {
    return zone_block_resize_at(zone, &address, bytes, may_move, 1) == ZONE_OK ? address : NULL;
}
