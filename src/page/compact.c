/*
 * compact.c - superpages that are emptied because somebody wants them whole: blocks in them move, where their owners let them (contiguity paper,
 * section 7.2).
 *
 * Only where the arena of addresses has none left: under a limit of address space, or once the heap has come to the end of its own. Then the
 * superpages to be emptied are known exactly: adjacent ones that are free, or hold nothing but blocks that may move, with the fewest granules in use,
 * where the other superpages of movable blocks have room for these. The paper's indices answer the same from less knowledge. They are set apart,
 * which captures them (section 8): in no bucket, kept from the arena when the last block has gone, and closed to growth in place, so that nobody else
 * gets a part of them. The room that blocks go to is not: what others take of it while an owner is asked is counted (races_lost), where it is
 * missing in the end.
 *
 * Blocks go to the fullest superpages that have room, lowest first out of those apart, each by a call of its owner without the lock. One thread at a
 * time does that (compaction->thread), and knows of one block at a time.
 * Invariant: superpages [at, at + count) and no others are apart; the arena counts them as allocated. Lock: LOCK_RANK_ZONE.
 */
#include "base/check.h"
#include "page/block_internal.h"

/* The lowest block of a superpage that is cut into runs; NULL: what is left is not a block. */
static char *lowest_block(struct zone *zone, const struct superpage *superpage) {
    size_t first = (size_t)(superpage - zone->superpages) * SUPERPAGE_GRANULES;
    for (unsigned at = bits_next(superpage->allocated, 0, 0); at < SUPERPAGE_GRANULES; at = bits_next(superpage->allocated, at + 1, 0))
        if (zone_tag_of(zone, first + at) == TAG_BLOCK) return zone_address_of(zone, first + at);
    return NULL;
}

/* Whether all that is allocated in it are blocks that may move. */
static bool can_be_emptied(struct zone *zone, const struct superpage *superpage) {
    size_t first = (size_t)(superpage - zone->superpages) * SUPERPAGE_GRANULES;
    if (superpage->mobility != MOBILITY_MOVABLE) return false;
    for (unsigned at = bits_next(superpage->allocated, 0, 0); at < SUPERPAGE_GRANULES;) {
        const struct block_desc *block = block_of(zone, zone_address_of(zone, first + at));
        if (zone_tag_of(zone, first + at) != TAG_BLOCK || block->move == NULL) return false;
        at = bits_next(superpage->allocated, at + (unsigned)block->granules, 0);
    }
    return true;
}

static unsigned granules_in(const struct superpage *superpage) {
    return superpage->state == SUPERPAGE_FREE ? 0 : SUPERPAGE_GRANULES - superpage->free;
}
static unsigned room_in(const struct superpage *superpage) {
    return superpage->state == SUPERPAGE_RUNS && superpage->mobility == MOBILITY_MOVABLE ? superpage->free : 0;
}

static bool is_whole_and_free(struct zone *zone, const struct superpage *superpage) {
    return superpage->state == SUPERPAGE_FREE && arena_contains(&zone->addresses, (uintptr_t)superpage_address(zone, superpage), SUPERPAGE_BYTES);
}

/* Room for blocks outside of what is apart. Linear in the heap. */
static uint64_t room_elsewhere(struct zone *zone) {
    uint64_t room = 0;
    for (size_t i = 0; i < zone->extent_bytes >> SUPERPAGE_SHIFT; i++) {
        const struct superpage *superpage = &zone->superpages[i];
        if (!superpage->apart) room += is_whole_and_free(zone, superpage) ? SUPERPAGE_GRANULES : room_in(superpage);
    }
    return room;
}

/* The adjacent superpages that are emptied with the fewest moves; NULL: none. Linear in the heap. */
static struct superpage *choose(struct zone *zone, size_t count, size_t align) {
    struct superpage *best = NULL;
    size_t superpages = zone->extent_bytes >> SUPERPAGE_SHIFT, first = 0;
    uint64_t room = 0, room_inside = 0, granules = 0, fewest = UINT64_MAX;
    for (size_t i = 0; i < superpages; i++) room += room_in(&zone->superpages[i]);
    for (size_t i = 0; i < superpages; i++) {
        struct superpage *superpage = &zone->superpages[i];
        uintptr_t address = (uintptr_t)superpage_address(zone, superpage);
        if (!is_whole_and_free(zone, superpage) && (superpage->state != SUPERPAGE_RUNS || !can_be_emptied(zone, superpage))) {
            first = i + 1;
            granules = room_inside = 0;
            continue;
        }
        granules += granules_in(superpage);
        room_inside += room_in(superpage);
        if (i - first + 1 > count) {
            granules -= granules_in(&zone->superpages[first]);
            room_inside -= room_in(&zone->superpages[first]);
            first++;
        }
        if (i - first + 1 < count || granules >= fewest || granules > room - room_inside) continue;
        address -= (count - 1) << SUPERPAGE_SHIFT;
        if ((address & ((align << SUPERPAGE_SHIFT) - 1)) != 0) continue;
        best = &zone->superpages[first];
        fewest = granules;
    }
    return best;
}

/* What is apart stands again where it belongs. */
static void put_back(struct zone *zone) {
    struct compaction *compaction = &zone->compaction;
    for (size_t i = compaction->at; i < compaction->at + compaction->count; i++) {
        struct superpage *superpage = &zone->superpages[i];
        superpage->apart = false;
        if (superpage->state == SUPERPAGE_FREE)
            zone_superpages_give(zone, superpage, 1);
        else
            zone_superpage_relink(zone, superpage, superpage->idle);
    }
    compaction->count = 0;
}

static bool set_apart(struct zone *zone, struct superpage *first, size_t count) {
    struct compaction *compaction = &zone->compaction;
    compaction->at = (size_t)(first - zone->superpages);
    for (compaction->count = 0; compaction->count < count; compaction->count++) {
        struct superpage *superpage = &first[compaction->count];
        if (superpage->state == SUPERPAGE_FREE && !zone_superpages_take_at(zone, superpage, 1)) {
            put_back(zone);
            return false;
        }
        superpage->apart = true;
        if (superpage->state == SUPERPAGE_RUNS) list_remove(&superpage->bucket);
        zone_present_relink(zone, superpage, false);
    }
    return true;
}

/* A block like the one at `from`, in another superpage; NULL: there is no place, or the limit is reached. */
static char *place_for(struct zone *zone, const char *from, uint64_t *fresh) {
    struct block_desc block = *block_of(zone, from);
    unsigned granules = (unsigned)block.granules, start;
    if (!zone_within_limit(zone, granules)) return NULL;
    const unsigned align = (unsigned)max_u64(zone->page_granules, ((uint64_t)1 << block.align_shift) >> GRANULE_SHIFT);
    struct superpage *target = zone_group_find(zone, MOBILITY_MOVABLE, granules, align, &start);
    if (target == NULL) { /* room was known, and the lock let go since: others took some, or it lies in pieces */
        uint64_t room = room_elsewhere(zone);
        if (room < zone->compaction.room) zone->counters.races_lost += zone->compaction.room - room;
        return NULL;
    }
    zone->compaction.room -= granules;
    bool zeroed;
    char *to = superpage_address(zone, target) + ((size_t)start << GRANULE_SHIFT);
    *fresh = zone_mark_allocated(zone, target, start, granules, &zeroed);
    block.watched = false;
    block.fresh = 0;                 /* its owner writes all of it, */
    block.holes = block.longer != 0; /* but for what nobody asked for */
    block_begin(zone, to, block);
    return to;
}

/* False: the block stays where it is. Drops and retakes the lock. */
static bool move_block(struct zone *zone, char *from) {
    struct compaction *compaction = &zone->compaction;
    uint64_t fresh;
    zone_block_move *move = block_of(zone, from)->move;
    char *to = move != NULL ? place_for(zone, from, &fresh) : NULL;
    if (to == NULL) return false;
    void *argument = block_of(zone, to)->argument;
    uint64_t granules = block_of(zone, to)->granules;
    size_t bytes = block_asked(block_of(zone, to)) << GRANULE_SHIFT;
    compaction->from = from;
    compaction->to = to;
    compaction->freed = false;
    if (fresh != 0) zone_make_room(zone, fresh);
    platform_lock_release(&zone->lock);
    bool moved = move(from, to, bytes, argument);
    zone_lock(zone);
    bool freed = compaction->freed;
    compaction->from = compaction->to = NULL;
    if (!moved) {
        block_end(zone, to);
        compaction->room += granules;
    }
    if (moved || freed) block_end(zone, from);
    zone->counters.block_moves += moved;
    zone_trim_to_limit(zone);
    return moved || freed;
}

/* False: something is left in the superpages that are apart. */
static bool empty_all(struct zone *zone) {
    const struct compaction *compaction = &zone->compaction;
    for (size_t i = compaction->at; i < compaction->at + compaction->count; i++)
        while (zone->superpages[i].state != SUPERPAGE_FREE) {
            char *block = lowest_block(zone, &zone->superpages[i]);
            if (block == NULL || !move_block(zone, block)) return false;
        }
    return true;
}

/* Without the lock. False: it is this thread already, in a function that it has called. */
static bool become_compactor(struct compaction *compaction) {
    uint32_t self = platform_thread_self();
    for (;;) {
        uint32_t other = 0;
        if (__atomic_compare_exchange_n(&compaction->thread, &other, self, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return true;
        if (other == self) return false;
        platform_word_wait(&compaction->thread, other);
    }
}

struct superpage *zone_superpages_compact(struct zone *zone, size_t count, size_t align) {
    struct compaction *compaction = &zone->compaction;
    platform_lock_release(&zone->lock);
    bool ours = become_compactor(compaction);
    zone_lock(zone);
    if (!ours) return NULL;
    zone_wake_blocks(zone);                                             /* every block has an owner from now on */
    struct superpage *taken = zone_superpages_take(zone, count, align); /* while another thread was at it */
    struct superpage *first = taken == NULL ? choose(zone, count, align) : NULL;
    if (taken == NULL && first == NULL && zone_wake_runs(zone)) first = choose(zone, count, align); /* who had begun to keep one before */
    if (first != NULL && set_apart(zone, first, count)) {
        compaction->room = room_elsewhere(zone);
        bool emptied = empty_all(zone);
        put_back(zone);
        if (emptied && zone_superpages_take_at(zone, first, count)) {
            taken = first;
            zone->counters.compactions++;
        }
    }
    __atomic_store_n(&compaction->thread, 0, __ATOMIC_RELEASE);
    platform_word_wake(&compaction->thread);
    return taken;
}

STRATA_COLD void zone_compact_fork_prepare(struct zone *zone) {
    uint32_t thread = __atomic_load_n(&zone->compaction.thread, __ATOMIC_RELAXED);
    zone->compaction.forks = thread != 0 && thread == platform_thread_self();
}

void zone_compact_fork_child(struct zone *zone) {
    struct compaction *compaction = &zone->compaction;
    if (compaction->thread == 0) return;
    if (compaction->forks) { /* what it does goes on here, when the owner's function returns, as a thread of another number */
        compaction->thread = platform_thread_self();
        return;
    }
    zone_lock(zone);
    if (compaction->from != NULL) {
        /* Its owner has answered nothing that this process knows of: what the program finds at either address it may use, or free. */
        if (compaction->freed) block_end(zone, compaction->from);
        compaction->from = compaction->to = NULL;
    }
    put_back(zone);
    platform_lock_release(&zone->lock);
    compaction->thread = 0;
}
