/*
 * block.c - large allocations: a run where half a superpage suffices, else whole superpages. How they change their size is in resize.c.
 *
 * A block of whole superpages owns `superpages` of address space, of which the first `granules` are allocated; what lies behind costs address space
 * only. Lock: LOCK_RANK_ZONE.
 */
#include "page/block_internal.h"

#include "base/check.h"
#include "page/cost.h"

uint64_t block_mark_allocated(struct zone *zone, struct superpage *first, size_t from, size_t to, bool *zeroed) {
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

void block_mark_free(struct zone *zone, struct superpage *first, size_t from, size_t to) {
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

STRATA_RARE void block_adopt(struct zone *zone, struct superpage *first, size_t from, size_t to, enum mobility mobility) {
    zone_join_absent(zone, first + from, to - from);
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

STRATA_RARE void block_give_up(struct zone *zone, struct superpage *first, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) {
        first[i].state = SUPERPAGE_FREE;
        zone_superpage_relink(zone, &first[i], first[i].idle);
    }
    if (from != to) zone_superpages_give(zone, first + from, to - from);
}

void block_decide_huge(struct zone *zone, struct superpage *first, size_t from, size_t granules, bool alike, struct huge_question *question) {
    size_t whole = granules / SUPERPAGE_GRANULES, least = zone->config.thp == ZONE_THP_AUTO ? zone->config.huge_block_superpages : 1;
    if (whole >= least && from < whole) zone_decide_huge_block(zone, first, from, whole, granules, alike, question);
}

void block_begin(struct zone *zone, char *address, struct block_desc block) {
    *block_of(zone, address) = block;
    zone->counters.blocks++;
    zone->counters.block_granules += block.granules;
    zone->longer_granules += block.longer;
    zone_tag_run(zone, address, 1, TAG_BLOCK);
}

/* Whether a block is to be of one mapping, though pages are present elsewhere. */
static bool stays_whole(const struct zone *zone, const struct zone_block_config *config, size_t granules) {
    return config->whole && granules >= COST_WHOLE_SUPERPAGES * SUPERPAGE_GRANULES && zone->counters.idle < granules / 2;
}

/* malloc's blocks are not grouped, and may lose their alignment when they are resized. */
static uint8_t kept_align_shift(const struct zone_block_config *config) {
    return config->grouped && config->align > GRANULE_BYTES ? (uint8_t)__builtin_ctzl(config->align) : 0;
}

static STRATA_RARE void *create_superpages(struct zone *zone, const struct zone_block_config *config, size_t granules, size_t align, bool *zeroed) {
    size_t capacity = block_superpages(granules), reserve = block_superpages(block_granules(zone, config->reserve_bytes));
    if (config->huge) granules = capacity * SUPERPAGE_GRANULES;
    if (reserve > capacity) capacity = reserve;
    zone_lock(zone);
    struct block_desc block = {.granules = granules,
                               .superpages = capacity,
                               .mobility = config->mobility,
                               .fixed = config->fixed,
                               .reserved = reserve != 0,
                               .huge = config->huge,
                               .align_shift = kept_align_shift(config)};
    bool within = zone_within_limit(zone, granules);
    char *rested = within && !config->huge && reserve == 0 ? zone_block_rouse(zone, &block, align << SUPERPAGE_SHIFT) : NULL;
    if (rested != NULL) {
        *zeroed = false;
        block_begin(zone, rested, block);
        platform_lock_release(&zone->lock);
        return rested;
    }
    zone_wake_pages(zone);
    const size_t head = config->huge ? granules : zone_expect_head(zone, granules);
    struct superpage *first = within ? zone_superpages_take_present(zone, capacity, align, 0, head) : NULL;
    if (first == NULL && within && zone_wake_runs(zone)) first = zone_superpages_take_present(zone, capacity, align, 0, head);
    if (first == NULL && within && config->compact) {
        first = zone_superpages_compact(zone, capacity, align);
        if (first != NULL && !zone_within_limit(zone, granules)) { /* others have allocated while blocks moved */
            zone_superpages_give(zone, first, capacity);
            first = NULL;
        }
    }
    if (first == NULL) {
        platform_lock_release(&zone->lock);
        return NULL;
    }
    char *address = superpage_address(zone, first);
    struct huge_question question = {0};
    bool whole = stays_whole(zone, config, granules);
    if (!config->huge && !whole && head == granules && zone_is_sparse(zone, true)) /* no pages go where some may be there already */
        zone_litter_keep(zone, first, granules / SUPERPAGE_GRANULES);              /* behind its end it stays litter */
    else
        zone_litter_clear(zone, first, capacity);
    block_adopt(zone, first, 0, capacity, config->mobility);
    if (config->huge) {
        zone_ask_huge(zone, first, granules / SUPERPAGE_GRANULES);
    } else {
        if (whole)
            zone_join_cut(zone, first, capacity);
        else
            zone_fill_from_idle(zone, first, 0, head, head < granules ? FILL_HEAD : FILL_BLOCK);
        block_decide_huge(zone, first, 0, granules, whole, &question);
    }
    uint64_t fresh = block_mark_allocated(zone, first, 0, granules, zeroed);
    zone_note_fresh(zone, &block, fresh);
    block_begin(zone, address, block);
    if (fresh != 0) zone_make_room(zone, zone_expect_touched(zone, true, fresh));
    platform_lock_release(&zone->lock);
    zone_answer_huge(zone, &question);
    return address;
}

static size_t wanted_granules(const struct zone *zone, size_t bytes) { return block_granules(zone, bytes == 0 ? 1 : bytes); }

/* Not out of what CPUs keep. */
static void *create(struct zone *zone, const struct zone_block_config *config, bool *zeroed) {
    bool ignored;
    if (zeroed == NULL) zeroed = &ignored;
    size_t granules = wanted_granules(zone, config->bytes);
    size_t align_granules = config->align <= GRANULE_BYTES ? 1 : config->align >> GRANULE_SHIFT;
    if (granules > RUN_GRANULES_MAX || align_granules > RUN_GRANULES_MAX || config->huge || config->reserve_bytes > config->bytes)
        return create_superpages(zone, config, granules, config->align > SUPERPAGE_BYTES ? config->align >> SUPERPAGE_SHIFT : 1, zeroed);
    struct block_desc block = {.granules = granules,
                               .mobility = config->mobility,
                               .fixed = config->fixed,
                               .grouped = config->grouped,
                               .align_shift = kept_align_shift(config)};
    zone_lock(zone);
    const bool rests = zone->resting.count != 0 && zone_within_limit(zone, granules);
    char *rested = rests ? zone_block_rouse(zone, &block, align_granules << GRANULE_SHIFT) : NULL;
    struct zone_run run = {.address = rested};
    struct run_touches touches = {0};
    if (rested == NULL) {
        const bool grouped = config->grouped || granules > BLOCK_GROUPED_GRANULES;
        if (rests) zone_wake_resting_runs(zone); /* their pages serve before others do */
        if (!zone_run_take(zone, (unsigned)granules, (unsigned)align_granules, config->mobility, grouped, RUN_PAGES_AHEAD, &run, &touches)) {
            platform_lock_release(&zone->lock);
            return NULL;
        }
        block.granules = run.granules;
        zone_note_fresh(zone, &block, run.fresh);
        zone_litter_taken(zone, superpage_of(zone, run.address), run.fresh);
    }
    block_begin(zone, run.address, block);
    platform_lock_release(&zone->lock);
    zone_run_touch(zone, &run, &touches);
    *zeroed = run.zeroed;
    return run.address;
}

void *zone_block_create(struct zone *zone, const struct zone_block_config *config, bool *zeroed) {
    const bool plain =
        config->mobility == MOBILITY_MOVABLE && config->reserve_bytes <= config->bytes && !(config->fixed | config->grouped | config->huge);
    char *cached = plain ? zone_run_cache_take(zone, wanted_granules(zone, config->bytes), config->align, false, zeroed == NULL) : NULL;
    if (cached == NULL) return create(zone, config, zeroed);
    if (zeroed != NULL) *zeroed = false;
    return cached;
}

void *zone_block_cached(struct zone *zone, size_t bytes, size_t align, bool zeros) {
    return zone_run_cache_take(zone, wanted_granules(zone, bytes), align, true, !zeros);
}

void *zone_block_alloc(struct zone *zone, size_t bytes, size_t align, bool *zeroed) {
    const struct zone_block_config config = {.bytes = bytes, .align = align, .mobility = MOBILITY_MOVABLE};
    return create(zone, &config, zeroed);
}

void zone_block_dissolve(struct zone *zone, char *address, const struct block_desc *block) {
    struct superpage *first = superpage_of(zone, address);
    if (block->superpages == 0)
        zone_mark_free(zone, first, (unsigned)(zone_granule_of(zone, address) % SUPERPAGE_GRANULES), (unsigned)block->granules);
    else
        block_mark_free(zone, first, 0, block->granules);
    if (zone_may_lack_pages(block) && !zone_litter_leave(zone, block, address, block->granules))
        zone_settle_holes(zone, block, address, block->granules);
    if (block->superpages == 0)
        zone_superpage_settle(zone, first);
    else
        block_give_up(zone, first, 0, block->superpages);
}

void block_uncount(struct zone *zone, char *address, const struct block_desc *block) {
    zone_tag_run(zone, address, 1, TAG_NONE);
    zone->counters.blocks--;
    zone->counters.block_granules -= block->granules;
}

void block_end(struct zone *zone, void *address) {
    struct block_desc block = *block_of(zone, address);
    zone_end_watches(zone, &block, address, block.granules << GRANULE_SHIFT);
    block_forget_longer(zone, &block);
    block_uncount(zone, address, &block);
    if (!zone_block_rest(zone, address, &block)) zone_block_dissolve(zone, address, &block);
}

void block_end_moved(struct zone *zone, char *address) {
    struct block_desc block = *block_of(zone, address);
    block.holes = false; /* what is absent there is what has moved */
    block.fresh = 0;
    block_forget_longer(zone, &block);
    block_uncount(zone, address, &block);
    zone_block_dissolve(zone, address, &block);
}

bool zone_block_free(struct zone *zone, void *address) {
    if (zone_run_cache_give(zone, address)) return true;
    if (STRATA_LIKELY(zone_contains(zone, address))) { /* what is read under the lock is on its way before it */
        __builtin_prefetch(block_of(zone, address));
        prefetch_superpage(superpage_of(zone, address));
    }
    zone_lock(zone);
    bool ok = zone_is_block(zone, address), moving = address == zone->compaction.from;
    if (ok && STRATA_UNLIKELY(moving)) {
        ok = !zone->compaction.freed;
        zone->compaction.freed = true; /* ends when its owner has answered */
    } else if (ok) {
        block_end(zone, address);
        zone_exchanges_settle(zone);
        zone_trim_to_limit(zone);
    }
    platform_lock_release(&zone->lock);
    return ok;
}

size_t zone_block_bytes(struct zone *zone, const void *address) {
    /* The owner asks for its own block, which nobody else changes: no lock. */
    return zone_is_block(zone, address) ? block_asked(block_of(zone, address)) << GRANULE_SHIFT : 0;
}

unsigned zone_block_ties(struct zone *zone, const void *address) {
    if (!zone_is_block(zone, address)) return 0;
    const struct block_desc *block = block_of(zone, address);
    return block->fixed * (unsigned)ZONE_FIXED | block->watched * (unsigned)ZONE_WATCHED;
}
