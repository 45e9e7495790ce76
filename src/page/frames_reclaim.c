/*
 * frames_reclaim.c - which blocks go: by age, by address, or by the area of the oldest (contiguity paper, section 3).
 *
 * By age is the second chance of two lists: the oldest of the active list that was not used since the last look becomes inactive, the oldest of the
 * inactive one is dropped, or becomes active again where it was used. While the active list is the longer one, each look at the other is preceded by
 * one at it. By address, areas (2^order frames, or whole superpages) are emptied in turn, whatever is in them. By area of the oldest, the same is
 * done to the one that the oldest inactive block lies in; and where the active list is the longer one, all of the area of its oldest block becomes
 * inactive first. In a large zone where hardly any block is in an area that can be emptied, it is one of those, whose ever it is. An area that is
 * unfit is noted as such for the rest of the look, so that its other blocks cost no more than their turn. The paper reclaims what it can of an area;
 * here one that holds something that can't go (pinned, unmovable, without a reclaiming owner) is left alone, and its block goes to the young end:
 * half an area serves nobody. No lock is held while owners are asked; an area that a request captures meanwhile is kept from all others (section 8).
 * Where it captures nothing, what is dropped for it stays isolated until the last block was asked about: frames that go one by one are what
 * allocations like best, as they are in the fullest superpage with room.
 */
#include "page/frames_reclaim_internal.h"

/* What a request for one frame drops at least: it will not be the last. */
#define CLUSTER_FRAMES 32u
/* Looks, for each block, before it is given up: one that is used is seen as inactive, as active, and again, and others that stay stand between. */
#define LOOKS_A_BLOCK 4u
/* In vain, before it is asked whether there is any whole superpage to be had at all, which costs no more than they did. */
#define VAIN_LOOKS 64u
/* In a large zone, in vain, before it is the area that was found instead of that of the oldest: there are few, and what is not in one is in the way.
 */
#define RARE_LOOKS 1024u
/* Through a part of an area whose blocks go together, until one finds nothing new. */
#define WALKS_A_PART 4u

/* ------------------------------------------------------------------ who reclaims */

bool frames_reclaim_enter(struct frames_reclaim *reclaim) {
    uint32_t self = platform_thread_self();
    for (unsigned i = 0; i < FRAMES_RECLAIM_CALLERS; i++)
        if (__atomic_load_n(&reclaim->callers[i], __ATOMIC_RELAXED) == self) return false;
    for (unsigned i = 0; i < FRAMES_RECLAIM_CALLERS; i++) {
        uint32_t none = 0;
        if (__atomic_compare_exchange_n(&reclaim->callers[i], &none, self, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return true;
    }
    return false;
}

void frames_reclaim_leave(struct frames_reclaim *reclaim) {
    uint32_t self = platform_thread_self();
    for (unsigned i = 0; i < FRAMES_RECLAIM_CALLERS; i++)
        if (__atomic_load_n(&reclaim->callers[i], __ATOMIC_RELAXED) == self) __atomic_store_n(&reclaim->callers[i], 0, __ATOMIC_RELEASE);
}

/* ------------------------------------------------------------------ one block */

/* The block that begins at a frame; 0: none does. */
static uint64_t frames_of(struct frame_zone *zone, uint64_t frame) {
    struct frames_superpage *superpage = frames_superpage_of(zone, frame);
    unsigned offset = frames_offset_of(zone, frame), first, count = 0;
    struct frames_slot *slot = frames_lock(zone, superpage);
    if (frames_bit(superpage->heads, offset)) frames_block_at(zone, superpage, offset, &first, &count);
    frames_unlock(zone, slot);
    return count;
}

enum outcome { GONE, USED, STAYS, DROPPED };

/* Nobody can drop the block, as its owner said NEVER, to a move perhaps. Under the lock it is what it is: since then it may be another's, who lists
 * it. */
static void unlist(struct frame_zone *zone, struct frames_reclaim *reclaim, uint64_t frame) {
    struct frames_slot *slot = frames_lock(zone, frames_superpage_of(zone, frame));
    if (!frames_can_be_dropped(zone, zone->notes[frame])) (void)frames_lru_remove(&reclaim->lru, frame);
    frames_unlock(zone, slot);
}

/* Asks the owner of a block, unless it was used (whatever the use, with force). Adds what is dropped to *dropped; later: frames_drop_all frees it. */
static enum outcome try_to_drop(struct frame_zone *zone, struct frames_reclaim *reclaim, uint64_t frame, bool force, bool later, uint64_t *dropped) {
    struct frames_block block;
    uint64_t frames = frames_of(zone, frame);
    if (frames == 0) return GONE;
    COUNT(reclaim, scanned, frames);
    bool used = frames_used_take(zone, frame, frames);
    if (used && !force) return USED;
    enum frames_status status = frames_isolate(zone, frame, &block);
    if (status == FRAMES_UNSUPPORTED) unlist(zone, reclaim, frame);
    if (status != FRAMES_OK) {
        COUNT(reclaim, refused_busy, 1);
        return STAYS;
    }
    if (block.first != frame || note_owner(block.note) == 0) { /* freed, and taken by another, since it was picked */
        frames_put_back(zone, &block, false);
        return GONE;
    }
    enum frames_answer answer = frames_reclaim_block(zone, &block, later);
    if (answer == FRAMES_YES || answer == FRAMES_WROTE) {
        COUNT(reclaim, unmapped, block.frames);
        if (answer == FRAMES_WROTE) COUNT(reclaim, written, block.frames);
        *dropped += block.frames;
        return DROPPED;
    }
    if (answer == FRAMES_NEVER) {
        COUNT(reclaim, refused_never, 1);
        (void)frames_lru_remove(&reclaim->lru, frame);
    } else if (answer == FRAMES_NOBODY) {
        COUNT(reclaim, refused_busy, 1);
    } else {
        COUNT(reclaim, refused_later, 1);
    }
    frames_put_back(zone, &block, answer == FRAMES_NEVER);
    return STAYS;
}

/* ------------------------------------------------------------------ areas */

/* From one area to the next; where they are no multiple of their alignment, they overlap. */
static uint64_t area_step(const struct frames_reclaim_wish *wish) {
    uint64_t align = max_u64(wish->align, 1);
    return wish->area % align == 0 ? wish->area : align;
}

/* The area that a frame lies in. FRAMES_NONE: none that is aligned, as the zone ends before. */
static uint64_t area_of(const struct frame_zone *zone, const struct frames_reclaim_wish *wish, uint64_t frame) {
    uint64_t step = area_step(wish), first = frame / step * step;
    if (wish->area <= zone->frames - first) return first;
    first = align_down(zone->frames - wish->area, max_u64(wish->align, 1)); /* those of several superpages may not end with the zone */
    return frame < first + wish->area ? first : FRAMES_NONE;
}
/* Whether such an area is of use to the request. */
static bool serves(const struct frames_reclaim_wish *wish, uint64_t first) { return first != FRAMES_NONE && first + wish->area <= wish->end; }

/* Calls visit for the part of each superpage that lies in an area, under its lock, until it returns false. */
static bool each_part(struct frame_zone *zone, uint64_t first, uint64_t frames,
                      bool (*visit)(struct frame_zone *zone, const struct frames_superpage *superpage, unsigned from, unsigned to)) {
    for (uint64_t at = first, end = first + frames, next; at < end; at = next) {
        struct frames_superpage *superpage = frames_superpage_of(zone, at);
        uint64_t base = frames_first_of(zone, superpage);
        next = min_u64(base + zone->superpage_frames, end);
        struct frames_slot *slot = frames_lock(zone, superpage);
        bool going = visit(zone, superpage, (unsigned)(at - base), (unsigned)(next - base));
        frames_unlock(zone, slot);
        if (!going) return false;
    }
    return true;
}

static bool part_is_free(struct frame_zone *zone, const struct frames_superpage *superpage, unsigned from, unsigned to) {
    (void)zone;
    return frames_bits_next_set(superpage->allocated, from, to) == to;
}

static bool can_go(const struct frame_zone *zone, uint32_t note) { return (note & NOTE_MOVING) == 0 && frames_can_be_dropped(zone, note); }

static bool part_can_be_emptied(struct frame_zone *zone, const struct frames_superpage *superpage, unsigned from, unsigned to) {
    const uint32_t *notes = &zone->notes[frames_first_of(zone, superpage)];
    if (superpage->captured_frames != 0 || superpage->capture != 0) return false; /* a part of it is somebody's */
    if (to - from == zone->superpage_frames && (superpage->used[FRAMES_UNMOVABLE] != 0 || superpage->pinned != 0)) return false;
    for (unsigned at = frames_bits_next_set(superpage->allocated, from, to); at < to;) {
        unsigned first, count;
        frames_block_at(zone, superpage, at, &first, &count);
        if (!can_go(zone, notes[first])) return false;
        for (unsigned i = 0; i < count; i++)
            if ((notes[first + i] & (NOTE_PINS | NOTE_MAPPED)) != 0) return false;
        at = first + count < to ? frames_bits_next_set(superpage->allocated, first + count, to) : to;
    }
    return true;
}

/* The first block at or behind a frame that reaches into [at, end): its first frame, and where the next may begin. */
static uint64_t next_block(struct frame_zone *zone, uint64_t at, uint64_t end, uint64_t *next) {
    while (at < end) {
        struct frames_superpage *superpage = frames_superpage_of(zone, at);
        uint64_t base = frames_first_of(zone, superpage);
        unsigned to = (unsigned)min_u64(zone->superpage_frames, end - base), first, count;
        struct frames_slot *slot = frames_lock(zone, superpage);
        unsigned found = frames_bits_next_set(superpage->allocated, (unsigned)(at - base), to);
        if (found < to && superpage->captured_frames != 0 && frames_bit(superpage->captured, found)) {
            frames_unlock(zone, slot);
            at = base + found + 1;
            continue;
        }
        if (found < to) frames_block_at(zone, superpage, found, &first, &count);
        frames_unlock(zone, slot);
        if (found < to) {
            *next = base + first + count;
            return base + first;
        }
        at = base + to;
    }
    return FRAMES_NONE;
}

/* How an area is emptied, and what has come of it. */
struct emptying {
    bool together;          /* what is dropped of a superpage becomes free in one step, the last one; else each block at once */
    bool stays;             /* a block did, which ends it */
    uint64_t from, to;      /* the frames that are wanted of it */
    uint64_t dropped, came; /* frames; frames of blocks that came while it was emptied */
    uint64_t dropped_wanted;
};

static void note_dropped(struct emptying *emptying, uint64_t first, uint64_t frames) {
    uint64_t from = max_u64(first, emptying->from), to = min_u64(first + frames, emptying->to);
    emptying->dropped += frames;
    if (from < to) emptying->dropped_wanted += to - from;
}

/*
 * The part of an area in one superpage. Together: blocks that come to what was free of it are found by another walk. So nobody gets a frame that was
 * dropped for the request, without anything being held for it: who loses a frame of the free ones drops what came there.
 */
static void empty_part(struct frame_zone *zone, struct frames_reclaim *reclaim, uint64_t first, uint64_t end, struct emptying *emptying) {
    uint64_t heads[FRAMES_SUPERPAGE_MAX / 64] = {0}; /* of blocks that are to become free */
    bool found = true;
    frames_lru_prefetch(&reclaim->lru, first, end - first);
    for (unsigned walk = 0; walk < (emptying->together ? WALKS_A_PART : 1) && found && !emptying->stays; walk++) {
        found = false;
        for (uint64_t at = first, next = 0; at < end && !emptying->stays; at = next) {
            uint64_t block = next_block(zone, at, end, &next), dropped = 0;
            if (block == FRAMES_NONE) break;
            unsigned head = frames_offset_of(zone, block);
            if (frames_bit(heads, head)) continue;
            enum outcome outcome = try_to_drop(zone, reclaim, block, true, emptying->together, &dropped);
            found = true;
            emptying->stays = outcome == STAYS;
            note_dropped(emptying, block, dropped);
            if (walk != 0) emptying->came += outcome == DROPPED ? dropped : frames_of(zone, block);
            if (emptying->together && outcome == DROPPED) frames_bit_set(heads, head);
        }
    }
    if (emptying->together) frames_drop_all(zone, first >> zone->superpage_shift, heads);
}

/* Drops all blocks of an area, superpage by superpage; the first that stays ends it. */
static void empty_area(struct frame_zone *zone, struct frames_reclaim *reclaim, uint64_t first, uint64_t frames, struct emptying *emptying) {
    for (uint64_t at = first, end = first + frames, next; at < end && !emptying->stays; at = next) {
        next = min_u64(align_down(at, zone->superpage_frames) + zone->superpage_frames, end);
        empty_part(zone, reclaim, at, next, emptying);
    }
}

static uint64_t held_by(struct frames_capture *capture) {
    uint64_t left;
    (void)frames_capture_poll(capture, NULL, &left);
    return capture->frames - left;
}

/*
 * Frames that were wanted of an area, for a request, and went to somebody else. With a capture, which was not done: what was held at the start, or
 * was dropped since, and is not held now. Without: what came while it was emptied and, where nobody refused, all that is somebody's now.
 */
static uint64_t lost_of(struct frame_zone *zone, struct frames_capture *capture, const struct emptying *emptying, uint64_t held_first, bool done) {
    if (capture == NULL) return emptying->came + (done || emptying->stays ? 0 : frames_taken_of(zone, emptying->from, emptying->to - emptying->from));
    uint64_t least = held_first + emptying->dropped_wanted, held = done ? least : held_by(capture);
    return least > held ? least - held : 0;
}

/* An area that was chosen; with capture where the request wants that. True: it is free now, or *frame the request's. */
static bool take_area(struct frame_zone *zone, struct frames_reclaim *reclaim, const struct frames_reclaim_wish *wish, uint64_t first,
                      uint64_t *dropped, uint64_t *frame) {
    struct frames_capture *capture = NULL;
    uint64_t held_first = 0;
    COUNT(reclaim, areas_tried, 1);
    if (wish->request != NULL) {
        const struct frames_request *request = wish->request;
        const struct frames_capture_request wanted = {.frames = request->frames,
                                                      .align = request->align,
                                                      .at = first,
                                                      .mobility = request->mobility,
                                                      .owner = request->owner,
                                                      .flags = FRAMES_CAPTURE_AT | FRAMES_CAPTURE_NO_RECLAIM | FRAMES_CAPTURE_OF_CALL,
                                                      .token = request->token};
        if (frames_capture_begin(zone, &wanted, &capture) != FRAMES_OK) return false;
        held_first = held_by(capture);
    }
    struct emptying emptying = {.together = wish->one_area && capture == NULL, /* memory as such is wanted at once */
                                .from = capture != NULL ? capture->first : first,
                                .to = capture != NULL ? capture->first + capture->frames : first + wish->area};
    empty_area(zone, reclaim, first, wish->area, &emptying);
    *dropped += emptying.dropped;
    bool done = capture != NULL ? frames_capture_end(capture, frame) == FRAMES_OK : each_part(zone, first, wish->area, part_is_free);
    uint64_t lost = wish->one_area ? lost_of(zone, capture, &emptying, held_first, done) : 0; /* of memory as such any frame will do */
    if (lost != 0) __atomic_fetch_add(&zone->races_lost, lost, __ATOMIC_RELAXED);
    if (done && capture != NULL) COUNT(reclaim, captured, 1);
    if (!done && capture != NULL) frames_capture_give_up(capture);
    if (done) COUNT(reclaim, areas_emptied, 1);
    return done;
}

/* ------------------------------------------------------------------ policies */

static bool is_done(const struct frame_zone *zone, const struct frames_reclaim_wish *wish, uint64_t dropped) {
    return !wish->one_area && dropped >= wish->goal && (wish->free_goal == 0 || frames_free_now(zone) >= wish->free_goal);
}

/*
 * What is known of a block stands in a dozen lines of memory, and of a large zone in no cache. From one block of a list to the next it is in no
 * order, so those of the next are asked for while this one is looked at.
 */
static void prefetch(const struct frame_zone *zone, uint64_t frame) {
    const struct frames_superpage *superpage = frames_superpage_of(zone, frame);
    __builtin_prefetch(superpage->allocated);
    __builtin_prefetch(superpage->heads);
    __builtin_prefetch(superpage->captured);
    __builtin_prefetch(&superpage->free);
    __builtin_prefetch(&zone->notes[frame]);
    __builtin_prefetch(&zone->tokens[frame]);
    __builtin_prefetch(frames_used_word(zone->referenced, frame));
    if (zone->words != NULL) __builtin_prefetch(&zone->words[frame]);
}

/* The oldest block of a list, which goes to its young end. LRU_NONE: there is none, or another one has come to its place since. */
static uint64_t pick_oldest(struct frame_zone *zone, struct frames_lru *lru, enum frames_lru_list list) {
    uint64_t next, frame = frames_lru_turn(lru, list, &next);
    if (next != LRU_NONE) prefetch(zone, next);
    return frame != LRU_NONE && frames_settle_at(zone, frame) ? LRU_NONE : frame;
}

/*
 * The oldest active block, where that list is the longer one, or all of the other has been looked at in vain since the last drop: pinned blocks would
 * hold it up for ever. Used, it stays there. Its whole area becomes inactive with it, where areas count (areas: NULL where they don't).
 */
static void age_active(struct frame_zone *zone, struct frames_reclaim *reclaim, const struct frames_reclaim_wish *areas, uint64_t in_vain) {
    struct frames_lru *lru = &reclaim->lru;
    uint64_t inactive = frames_lru_count(lru, LRU_INACTIVE);
    if (frames_lru_count(lru, LRU_ACTIVE) <= inactive && in_vain < inactive) return;
    uint64_t frame = pick_oldest(zone, lru, LRU_ACTIVE), frames = frame != LRU_NONE ? frames_of(zone, frame) : 0;
    if (frames == 0) return;
    COUNT(reclaim, scanned, frames);
    if (frames_used_take(zone, frame, frames)) {
        COUNT(reclaim, kept, 1);
        return;
    }
    uint64_t first = areas != NULL ? area_of(zone, areas, frame) : FRAMES_NONE, end = first != FRAMES_NONE ? first + areas->area : frame + 1,
             next = 0;
    if (first == FRAMES_NONE) first = frame;
    for (uint64_t at = first; at < end; at = next) {
        uint64_t block = next_block(zone, at, end, &next);
        if (block == FRAMES_NONE) break;
        if (frames_lru_where(lru, block) == LRU_ACTIVE && frames_lru_renew(lru, block, LRU_INACTIVE)) COUNT(reclaim, deactivated, 1);
    }
}

static uint64_t looks_in(struct frames_lru *lru) {
    return LOOKS_A_BLOCK * (frames_lru_count(lru, LRU_ACTIVE) + frames_lru_count(lru, LRU_INACTIVE)) + 1;
}

static uint64_t by_age(struct frame_zone *zone, struct frames_reclaim *reclaim, const struct frames_reclaim_wish *wish, uint64_t dropped) {
    struct frames_lru *lru = &reclaim->lru;
    uint64_t in_vain = 0;
    for (uint64_t looks = looks_in(lru); looks != 0 && !is_done(zone, wish, dropped); looks--) {
        age_active(zone, reclaim, NULL, in_vain);
        uint64_t frame = pick_oldest(zone, lru, LRU_INACTIVE);
        if (frame == LRU_NONE) continue;
        enum outcome outcome = try_to_drop(zone, reclaim, frame, false, false, &dropped);
        if (outcome == USED && frames_lru_renew(lru, frame, LRU_ACTIVE)) COUNT(reclaim, activated, 1);
        in_vain = outcome == DROPPED ? 0 : in_vain + 1;
        if (outcome != DROPPED || !wish->one_area) continue;
        uint64_t first = area_of(zone, wish, frame);
        if (first != FRAMES_NONE && each_part(zone, first, wish->area, part_is_free)) break;
    }
    return dropped;
}

static uint64_t by_address(struct frame_zone *zone, struct frames_reclaim *reclaim, const struct frames_reclaim_wish *wish, uint64_t *frame) {
    uint64_t dropped = 0, step = area_step(wish);
    for (uint64_t areas = (zone->frames + step - 1) / step; areas != 0 && !is_done(zone, wish, dropped); areas--) {
        uint64_t at = __atomic_fetch_add(&reclaim->cursor, step, __ATOMIC_RELAXED) % zone->frames, first = area_of(zone, wish, at);
        if (!serves(wish, first) || each_part(zone, first, wish->area, part_is_free)) continue;
        if (!each_part(zone, first, wish->area, part_can_be_emptied)) {
            COUNT(reclaim, areas_unfit, 1);
            COUNT(reclaim, scanned, wish->area);
            continue;
        }
        if (take_area(zone, reclaim, wish, first, &dropped, frame) && wish->one_area) break;
    }
    return dropped;
}

/* Of whole superpages it is noted which a look has passed over; of parts of one it is found out again, which is cheap. */
static uint32_t *verdict_on(const struct frame_zone *zone, const struct frames_reclaim *reclaim, const struct frames_reclaim_wish *wish,
                            uint64_t first) {
    return wish->area >= zone->superpage_frames ? &reclaim->judged[first >> zone->superpage_shift] : NULL;
}
static bool is_judged(const uint32_t *verdict, uint32_t look) { return verdict != NULL && __atomic_load_n(verdict, __ATOMIC_RELAXED) == look; }

static bool can_be_emptied(struct frame_zone *zone, const struct frames_reclaim_wish *wish, uint64_t first) {
    return each_part(zone, first, wish->area, part_can_be_emptied) && !each_part(zone, first, wish->area, part_is_free);
}

/*
 * An area that could be emptied, and was not found unfit; FRAMES_NONE: there is none. Whole superpages are looked at only where their counts say that
 * they might be, and what is found unfit is noted, so that the next time it costs less. In a large zone each look begins elsewhere.
 */
static uint64_t any_area(struct frame_zone *zone, const struct frames_reclaim *reclaim, const struct frames_reclaim_wish *wish, uint32_t look) {
    if (wish->area < zone->superpage_frames) {
        for (uint64_t at = 0; at < wish->end; at += area_step(wish)) {
            uint64_t first = area_of(zone, wish, at);
            if (serves(wish, first) && can_be_emptied(zone, wish, first)) return first;
        }
        return FRAMES_NONE;
    }
    uint64_t words = (zone->superpage_count - 1) / 64 + 1, begin = frames_is_large(zone) ? look * UINT64_C(0x9e3779b1) % words : 0;
    for (uint64_t i = 0; i < words; i++) {
        uint64_t w = begin + i < words ? begin + i : begin + i - words;
        for (uint64_t word = __atomic_load_n(&zone->droppable[w], __ATOMIC_RELAXED); word != 0; word &= word - 1) {
            uint64_t first = area_of(zone, wish, (w * 64 + bit_lowest(word)) << zone->superpage_shift);
            if (!serves(wish, first)) continue;
            uint32_t *verdict = verdict_on(zone, reclaim, wish, first);
            if (is_judged(verdict, look)) continue;
            if (can_be_emptied(zone, wish, first)) return first;
            __atomic_store_n(verdict, look, __ATOMIC_RELAXED);
        }
    }
    return FRAMES_NONE;
}

static uint64_t by_area_of_oldest(struct frame_zone *zone, struct frames_reclaim *reclaim, const struct frames_reclaim_wish *wish, uint64_t *frame) {
    struct frames_lru *lru = &reclaim->lru;
    const uint64_t areas = min_u64(zone->frames / area_step(wish) + 1, wish->area >= zone->superpage_frames ? VAIN_LOOKS : UINT64_MAX);
    uint32_t look = __atomic_add_fetch(&reclaim->looks, 1, __ATOMIC_RELAXED);
    uint64_t dropped = 0, in_vain = 0, patience = areas;
    for (uint64_t looks = looks_in(lru); looks != 0 && !is_done(zone, wish, dropped); looks--) {
        if (in_vain == patience) { /* before all blocks are turned for nothing */
            uint64_t first = any_area(zone, reclaim, wish, look);
            if (first == FRAMES_NONE) break;
            patience *= 2;
            if (frames_is_large(zone) && wish->area >= zone->superpage_frames && in_vain >= RARE_LOOKS) { /* or nearly all, to find this one */
                __atomic_store_n(verdict_on(zone, reclaim, wish, first), look, __ATOMIC_RELAXED);
                in_vain = 0;
                patience = areas;
                if (take_area(zone, reclaim, wish, first, &dropped, frame) && wish->one_area) return dropped;
                continue; /* it may have been all that was wanted */
            }
        }
        age_active(zone, reclaim, wish, in_vain++);
        uint64_t oldest = pick_oldest(zone, lru, LRU_INACTIVE), frames = oldest != LRU_NONE ? frames_of(zone, oldest) : 0;
        if (frames == 0) continue;
        if (frames_used_take(zone, oldest, frames)) {
            COUNT(reclaim, scanned, frames);
            if (frames_lru_renew(lru, oldest, LRU_ACTIVE)) COUNT(reclaim, activated, 1);
            continue;
        }
        uint64_t first = area_of(zone, wish, oldest);
        uint32_t *verdict = first != FRAMES_NONE ? verdict_on(zone, reclaim, wish, first) : NULL;
        COUNT(reclaim, scanned, frames);
        if (is_judged(verdict, look)) continue;
        if (!serves(wish, first) || !each_part(zone, first, wish->area, part_can_be_emptied)) {
            if (verdict != NULL) __atomic_store_n(verdict, look, __ATOMIC_RELAXED);
            COUNT(reclaim, areas_unfit, 1);
            continue;
        }
        in_vain = 0;
        patience = areas;
        if (take_area(zone, reclaim, wish, first, &dropped, frame) && wish->one_area) return dropped;
    }
    return is_done(zone, wish, dropped) || wish->one_area ? dropped : by_age(zone, reclaim, wish, dropped);
}

uint64_t frames_reclaim_by_policy(struct frame_zone *zone, const struct frames_reclaim_wish *wish, uint64_t *frame) {
    struct frames_reclaim *reclaim = frames_reclaim_of(zone);
    enum frames_reclaim_policy policy = __atomic_load_n(&reclaim->config.policy, __ATOMIC_RELAXED);
    frames_settle_all(zone);
    if (policy == FRAMES_RECLAIM_LINEAR) return by_address(zone, reclaim, wish, frame);
    if (policy == FRAMES_RECLAIM_AREA && wish->area > 1) return by_area_of_oldest(zone, reclaim, wish, frame);
    return by_age(zone, reclaim, wish, 0);
}

/* ------------------------------------------------------------------ for whom */

uint64_t frames_reclaim_area(const struct frame_zone *zone, uint64_t frames) {
    uint64_t area = UINT64_C(1) << (frames == 1 ? 0 : bit_highest(frames - 1) + 1);
    return min_u64(area <= zone->superpage_frames ? area : align_up(frames, zone->superpage_frames), zone->frames);
}

uint64_t frames_reclaim_for(struct frame_zone *zone, const struct frames_request *request, uint64_t *frame) {
    struct frames_reclaim *reclaim = frames_reclaim_of(zone);
    *frame = FRAMES_NONE;
    if (reclaim == NULL || !frames_reclaim_enter(reclaim)) return 0;
    struct frames_reclaim_wish wish = {.goal = CLUSTER_FRAMES, .free_goal = reclaim->config.min_frames, .end = zone->frames};
    wish.area = max_u64(frames_reclaim_area(zone, request->frames), request->align);
    wish.align = request->align;
    wish.one_area = wish.area > 1;
    bool whole = request->frames >= zone->superpage_frames && (zone->flags & FRAMES_HUGE_IN_PARTITION) != 0;
    if (request->mobility == FRAMES_UNMOVABLE && !whole)
        wish.end = __atomic_load_n(&zone->partition_first, __ATOMIC_RELAXED) << zone->superpage_shift;
    if (wish.one_area && (__atomic_load_n(&zone->effort, __ATOMIC_RELAXED) & FRAMES_RECLAIM_CAPTURES) != 0) wish.request = request;
    COUNT(reclaim, direct, 1);
    uint32_t order = bit_highest(wish.area), before = __atomic_load_n(&reclaim->order, __ATOMIC_RELAXED);
    while (before < order && !__atomic_compare_exchange_n(&reclaim->order, &before, order, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) continue;
    uint64_t dropped = frames_reclaim_by_policy(zone, &wish, frame);
    frames_reclaim_leave(reclaim);
    return dropped;
}

enum frames_status frames_reclaim(struct frame_zone *zone, uint64_t frames, unsigned order, uint64_t *reclaimed) {
    struct frames_reclaim *reclaim = frames_reclaim_of(zone);
    const struct frames_reclaim_wish wish = {.goal = frames, .area = UINT64_C(1) << order, .end = zone->frames};
    uint64_t ignored = FRAMES_NONE;
    *reclaimed = 0;
    if (!frames_reclaim_enter(reclaim)) return FRAMES_BUSY;
    *reclaimed = frames_reclaim_by_policy(zone, &wish, &ignored);
    frames_reclaim_leave(reclaim);
    return *reclaimed >= frames ? FRAMES_OK : FRAMES_NO_FRAMES;
}
