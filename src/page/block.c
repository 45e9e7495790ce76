/*
 * block.c - large allocations: a run where half a superpage suffices, else whole superpages, that grow in place or by moving pages.
 *
 * A block of whole superpages owns `superpages` of address space, of which the first `granules` are allocated. What lies
 * behind costs address space only; growth goes there first. A block that must move gets twice what it asked for, so that a
 * sequence of n growing steps moves its pages O(log n) times, and each move changes page tables instead of copying.
 * Lock: LOCK_RANK_ZONE.
 */
#include "page/cost.h"
#include "page/zone_internal.h"

#include "base/check.h"

/* Beyond this a block gets superpages of its own: address space is cheaper than holes between long runs. */
#define RUN_GRANULES_MAX (SUPERPAGE_GRANULES / 2)
/* Huge pages for blocks of at least this many superpages. */
#define DENSE_SUPERPAGES 4

static size_t granules_of(const struct zone *zone, size_t bytes) {
    return align_up((bytes >> GRANULE_SHIFT) + ((bytes & (GRANULE_BYTES - 1)) != 0), zone->page_granules);
}
static size_t superpages_of(size_t granules) { return (granules + SUPERPAGE_GRANULES - 1) / SUPERPAGE_GRANULES; }

/* Marks granules [from, to) of a block of whole superpages allocated. Returns how many were not present. */
static uint64_t mark_block_allocated(struct zone *zone, struct superpage *first, size_t from, size_t to, bool *zeroed) {
    uint64_t fresh = 0;
    *zeroed = true;
    for (size_t at = from; at < to;) {
        unsigned start = (unsigned)(at % SUPERPAGE_GRANULES);
        unsigned count = (unsigned)min_u64(SUPERPAGE_GRANULES - start, to - at);
        bool zero;
        fresh += zone_mark_allocated(zone, &first[at / SUPERPAGE_GRANULES], start, count, &zero);
        *zeroed &= zero;
        at += count;
    }
    return fresh;
}

static void mark_block_free(struct zone *zone, struct superpage *first, size_t from, size_t to) {
    for (size_t at = from; at < to;) {
        unsigned start = (unsigned)(at % SUPERPAGE_GRANULES);
        unsigned count = (unsigned)min_u64(SUPERPAGE_GRANULES - start, to - at);
        zone_mark_free(zone, &first[at / SUPERPAGE_GRANULES], start, count);
        at += count;
    }
}

/* The lines of one that is a few ahead: they are in no cache when a large block comes by. */
STRATA_INLINE void prefetch_superpage(const struct superpage *superpage) {
    for (size_t line = 0; line < sizeof *superpage; line += CACHE_LINE_BYTES) __builtin_prefetch((const char *)superpage + line, 1);
}
#define PREFETCH_AHEAD 8

/* Superpages [from, to) become part of a block. */
static void adopt(struct zone *zone, struct superpage *first, size_t from, size_t to, enum mobility mobility) {
    for (size_t i = from; i < to; i++) {
        struct superpage *superpage = &first[i];
        if (i + PREFETCH_AHEAD < to) prefetch_superpage(&first[i + PREFETCH_AHEAD]);
        list_init(&superpage->bucket);
        superpage->state = SUPERPAGE_BLOCK;
        superpage->mobility = (uint8_t)mobility;
        superpage->free = superpage->largest_free = SUPERPAGE_GRANULES;
        if (superpage->linked != IDLE_NONE)
            zone_superpage_relink(zone, superpage, superpage->idle);
        else
            superpage->idle = 0; /* counts of superpages in the arena are right only where they are listed */
    }
}

static void give_up(struct zone *zone, struct superpage *first, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) {
        first[i].state = SUPERPAGE_FREE;
        zone_superpage_relink(zone, &first[i], first[i].idle);
    }
    if (from != to) zone_superpages_give(zone, first + from, to - from);
}

/* Huge pages for the superpages from `from` on of which a large block uses all; nobody has touched them yet. */
static void decide_huge(struct zone *zone, struct superpage *first, size_t from, size_t granules, struct huge_question *question) {
    size_t whole = granules / SUPERPAGE_GRANULES;
    if (whole >= DENSE_SUPERPAGES && from < whole) zone_decide_huge_block(zone, first, from, whole, granules, question);
}

/* Under the lock: what has its granules becomes a block. */
static void begin_block(struct zone *zone, char *address, struct block_desc block) {
    *block_of(zone, address) = block;
    zone->counters.blocks++;
    zone->counters.block_granules += block.granules;
    zone_tag_run(zone, address, 1, TAG_BLOCK);
}

static void *create_superpages(struct zone *zone, const struct zone_block_config *config, size_t granules, size_t align, bool *zeroed) {
    size_t capacity = superpages_of(granules), reserve = superpages_of(granules_of(zone, config->reserve_bytes));
    if (config->huge) granules = capacity * SUPERPAGE_GRANULES;
    if (reserve > capacity) capacity = reserve;
    platform_lock_acquire(&zone->lock);
    struct block_desc block = {
        .granules = granules, .superpages = capacity, .mobility = config->mobility, .fixed = config->fixed, .reserved = reserve != 0};
    bool within = zone_within_limit(zone, granules);
    char *rested = within && !config->huge && reserve == 0 ? zone_block_rouse(zone, granules, capacity, align, config->mobility) : NULL;
    if (rested != NULL) {
        *zeroed = false;
        begin_block(zone, rested, block);
        platform_lock_release(&zone->lock);
        return rested;
    }
    zone_wake_blocks(zone);
    struct superpage *first = within ? zone_superpages_take(zone, capacity, align) : NULL;
    if (first == NULL) {
        platform_lock_release(&zone->lock);
        return NULL;
    }
    char *address = superpage_address(zone, first);
    struct huge_question question = {0};
    adopt(zone, first, 0, capacity, config->mobility);
    if (config->huge) {
        zone_ask_huge(zone, first, granules / SUPERPAGE_GRANULES);
    } else {
        for (size_t at = 0; at < granules; at += SUPERPAGE_GRANULES)
            zone_fill_from_idle(zone, &first[at / SUPERPAGE_GRANULES], 0, (unsigned)min_u64(SUPERPAGE_GRANULES, granules - at));
        decide_huge(zone, first, 0, granules, &question);
    }
    uint64_t fresh = mark_block_allocated(zone, first, 0, granules, zeroed);
    begin_block(zone, address, block);
    if (fresh != 0) zone_make_room(zone, fresh);
    platform_lock_release(&zone->lock);
    zone_answer_huge(zone, &question);
    return address;
}

void *zone_block_create(struct zone *zone, const struct zone_block_config *config, bool *zeroed) {
    bool ignored;
    if (zeroed == NULL) zeroed = &ignored;
    size_t granules = granules_of(zone, config->bytes == 0 ? 1 : config->bytes);
    size_t align_granules = config->align <= GRANULE_BYTES ? 1 : config->align >> GRANULE_SHIFT;
    if (granules > RUN_GRANULES_MAX || align_granules > RUN_GRANULES_MAX || config->huge || config->reserve_bytes > config->bytes)
        return create_superpages(zone, config, granules, config->align > SUPERPAGE_BYTES ? config->align >> SUPERPAGE_SHIFT : 1, zeroed);
    struct zone_run run;
    if (!zone_run_alloc(zone, (unsigned)granules, (unsigned)align_granules, config->mobility, &run)) return NULL;
    platform_lock_acquire(&zone->lock);
    begin_block(zone, run.address, (struct block_desc){.granules = run.granules, .mobility = config->mobility, .fixed = config->fixed});
    platform_lock_release(&zone->lock);
    *zeroed = run.zeroed;
    return run.address;
}

void *zone_block_alloc(struct zone *zone, size_t bytes, size_t align, bool *zeroed) {
    const struct zone_block_config config = {.bytes = bytes, .align = align, .mobility = MOBILITY_MOVABLE};
    return zone_block_create(zone, &config, zeroed);
}

void zone_block_dissolve(struct zone *zone, char *address, uint64_t granules, uint64_t superpages) {
    struct superpage *first = superpage_of(zone, address);
    zone->counters.allocated += granules; /* the marks take them away again */
    mark_block_free(zone, first, 0, granules);
    give_up(zone, first, 0, superpages);
}

/* Under the lock: the block goes; its tag first, so that a second free is seen. */
static void free_block(struct zone *zone, void *address) {
    struct block_desc block = *block_of(zone, address);
    struct superpage *first = superpage_of(zone, address);
    zone_end_watches(zone, &block, address, block.granules << GRANULE_SHIFT);
    zone_tag_run(zone, address, 1, TAG_NONE);
    zone->counters.blocks--;
    zone->counters.block_granules -= block.granules;
    if (block.superpages == 0) {
        zone_mark_free(zone, first, (unsigned)(zone_granule_of(zone, address) % SUPERPAGE_GRANULES), (unsigned)block.granules);
        if (STRATA_UNLIKELY(block.holes)) zone_settle_holes(zone, address, block.granules);
        zone_superpage_settle(zone, first);
    } else if (!zone_block_rest(zone, address, &block)) {
        mark_block_free(zone, first, 0, block.granules);
        if (STRATA_UNLIKELY(block.holes)) zone_settle_holes(zone, address, block.granules);
        give_up(zone, first, 0, block.superpages);
    }
}

bool zone_block_free(struct zone *zone, void *address) {
    platform_lock_acquire(&zone->lock);
    bool ok = zone_is_block(zone, address);
    if (ok) {
        free_block(zone, address);
        zone_trim_to_limit(zone);
    }
    platform_lock_release(&zone->lock);
    return ok;
}

size_t zone_block_bytes(struct zone *zone, const void *address) {
    /* The owner asks for its own block, which nobody else changes: no lock. */
    return zone_is_block(zone, address) ? block_of(zone, address)->granules << GRANULE_SHIFT : 0;
}

/* A run that shrinks, or grows into the free granules behind it. */
static bool resize_run(struct zone *zone, char *address, struct block_desc *block, size_t granules) {
    struct superpage *superpage = superpage_of(zone, address);
    size_t start = zone_granule_of(zone, address) % SUPERPAGE_GRANULES;
    if (granules < block->granules) {
        zone_mark_free(zone, superpage, (unsigned)(start + granules), (unsigned)(block->granules - granules));
        if (STRATA_UNLIKELY(block->holes)) zone_settle_holes(zone, address + (granules << GRANULE_SHIFT), block->granules - granules);
        return true;
    }
    unsigned more = (unsigned)(granules - block->granules);
    if (start + granules > SUPERPAGE_GRANULES || bits_count_range(superpage->allocated, (unsigned)(start + block->granules), more) != 0) return false;
    bool zeroed;
    unsigned fresh = zone_mark_allocated(zone, superpage, (unsigned)(start + block->granules), more, &zeroed);
    if (fresh != 0) zone_make_room(zone, fresh);
    return true;
}

static bool resize_space(struct zone *zone, const char *address, uint64_t old, uint64_t superpages) {
    return arena_resize(&zone->addresses, (uintptr_t)address, old << SUPERPAGE_SHIFT, superpages << SUPERPAGE_SHIFT) == ARENA_OK;
}

bool zone_block_extend(struct zone *zone, char *address, uint64_t wanted) {
    struct block_desc *block = block_of(zone, address);
    struct superpage *first = superpage_of(zone, address);
    if (!resize_space(zone, address, block->superpages, wanted)) return false;
    if (!zone_superpages_commit(zone, first, wanted)) {
        CHECK(resize_space(zone, address, wanted, block->superpages));
        return false;
    }
    adopt(zone, first, block->superpages, wanted, (enum mobility)block->mobility);
    block->superpages = wanted;
    return true;
}

/* A block of superpages that shrinks, or grows within its address space or into what is free behind it. */
static bool resize_superpages(struct zone *zone, char *address, struct block_desc *block, size_t granules) {
    struct superpage *first = superpage_of(zone, address);
    size_t needed = superpages_of(granules), owned = block->superpages;
    if (needed > owned) {
        if (!zone_block_extend(zone, address, needed)) return false;
        decide_huge(zone, first, owned, granules, NULL); /* a measurement would cost more than all else */
    }
    if (granules < block->granules) {
        mark_block_free(zone, first, granules, block->granules);
        if (STRATA_UNLIKELY(block->holes)) zone_settle_holes(zone, address + (granules << GRANULE_SHIFT), block->granules - granules);
    } else {
        bool zeroed;
        uint64_t fresh = mark_block_allocated(zone, first, block->granules, granules, &zeroed);
        if (fresh != 0) zone_make_room(zone, fresh);
    }
    if (needed < owned / 4 && !block->reserved && granules < block->granules && resize_space(zone, address, owned, needed)) {
        for (size_t i = needed; i < owned; i++) {
            first[i].state = SUPERPAGE_FREE;
            zone_superpage_relink(zone, &first[i], first[i].idle);
        }
        block->superpages = needed;
    }
    return true;
}

/* The pages of a block get a new address with room to grow. Under the lock; NULL: copy instead. */
static void *move_block(struct zone *zone, char *address, const struct block_desc *block, size_t granules) {
    if (block->granules < ZONE_MOVE_GRANULES_MIN || !zone_mappings_left(zone)) return NULL;
    struct block_desc moved = *block;
    size_t needed = superpages_of(granules);
    moved.superpages = zone->growing ? needed : needed * 2;
    struct superpage *first = zone_superpages_take(zone, moved.superpages, 1);
    if (first == NULL) first = zone_superpages_take(zone, moved.superpages = needed, 1);
    if (first == NULL) return NULL;
    char *target = superpage_address(zone, first);
    adopt(zone, first, 0, moved.superpages, (enum mobility)moved.mobility);
    size_t old = moved.granules;
    if (!platform_move(address, target, old << GRANULE_SHIFT)) {
        give_up(zone, first, 0, moved.superpages);
        return NULL;
    }
    block_of(zone, address)->holes = false; /* what is absent there is what has moved */
    free_block(zone, address);
    zone_wake_blocks(zone); /* it shall not rest: its pages are gone */
    zone_moved_pages(zone, address, target, old);
    bool zeroed;
    uint64_t fresh = mark_block_allocated(zone, first, 0, granules, &zeroed);
    moved.granules = granules;
    begin_block(zone, target, moved);
    if (fresh != 0) zone_make_room(zone, fresh);
    return target;
}

void *zone_block_resize(struct zone *zone, void *address, size_t bytes, bool may_move) {
    size_t granules = granules_of(zone, bytes == 0 ? 1 : bytes);
    void *result = NULL;
    platform_lock_acquire(&zone->lock);
    struct block_desc *block = block_of(zone, address);
    size_t old = block->granules;
    if (granules != old) zone_end_watches(zone, block, address, old << GRANULE_SHIFT);
    if (granules == old) {
        result = address;
    } else if (granules < old || zone_within_limit(zone, granules - old)) {
        bool in_place = block->superpages == 0 ? resize_run(zone, address, block, granules) : resize_superpages(zone, address, block, granules);
        if (in_place) {
            block->granules = granules;
            zone->counters.block_granules += granules;
            zone->counters.block_granules -= old;
            result = address;
            zone_trim_to_limit(zone);
        } else if (may_move && !block->fixed && granules > old) {
            result = move_block(zone, address, block, granules);
        }
    }
    platform_lock_release(&zone->lock);
    return result;
}
