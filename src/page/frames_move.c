/*
 * frames_move.c - blocks that are isolated, and what becomes of them: moved, dropped, or put back.
 *
 * An isolated block (NOTE_MOVING in the note of its first frame) is allocated, and nobody's but whose who isolated it: no pin, free, map or second
 * isolation gets at it. So owners are asked, and contents copied, with no lock held. A free that comes meanwhile leaves a mark (NOTE_DEAD), which the
 * one who ends the isolation acts upon. A move ends in three steps, each under one lock: `to` learns what it is, still isolated; `from` is released;
 * `to` is everybody's. Locks: see frames.h.
 */
#include "page/frames_backing.h"
#include "page/frames_internal.h"
#include "page/frames_window_move.h"

static void note_ended(struct frame_zone *zone, struct frames_superpage *superpage) {
    superpage->moving--;
    __atomic_fetch_sub(&zone->moving, 1, __ATOMIC_RELAXED);
}

/* Under the slot's lock, if any: reclaim goes by how long its lists are, so what it drops leaves them at once. */
static void settle_now(struct frame_zone *zone, struct frames_slot *slot) {
    if (slot != NULL && slot->waiting != 0) frames_settle(zone, slot);
}

/* ------------------------------------------------------------------ isolation */

static enum frames_status isolate(struct frame_zone *zone, struct frames_superpage *superpage, struct frames_slot *slot, unsigned offset,
                                  struct frames_block *block) {
    unsigned head, count;
    if (!frames_bit(superpage->allocated, offset) || frames_bit(superpage->captured, offset)) return FRAMES_NOT_ALLOCATED;
    frames_block_at(zone, superpage, offset, &head, &count);
    uint64_t first = frames_first_of(zone, superpage) + head;
    uint32_t note = zone->notes[first];
    *block = (struct frames_block){.first = first, .frames = count, .note = note & (NOTE_OF_HEAD & ~(NOTE_MOVING | NOTE_DEAD))};
    if ((note & NOTE_MOVING) != 0) return FRAMES_BUSY;
    if (note_mobility(note) == FRAMES_UNMOVABLE || (note & (NOTE_NEVER | NOTE_RUN)) != 0) return FRAMES_UNSUPPORTED;
    for (unsigned i = 0; i < count; i++) {
        if (note_is_pinned(zone->notes[first + i])) return FRAMES_PINNED;
        if ((zone->notes[first + i] & NOTE_MAPPED) != 0 && block->address == 0) block->address = zone->addresses[first + i];
    }
    if (note_owner(note) == 0 && !frames_all_shown(zone, first, count)) return FRAMES_UNSUPPORTED;
    if (note_owner(note) != 0) block->token = zone->tokens[first];
    settle_now(zone, slot); /* it takes its place in the lists along, where it moves */
    frames_note_set(zone, superpage, first, note | NOTE_MOVING);
    frames_note_isolated(zone, superpage);
    return FRAMES_OK;
}

enum frames_status frames_isolate(struct frame_zone *zone, uint64_t frame, struct frames_block *block) {
    struct frames_superpage *superpage = frames_superpage_of(zone, frame);
    struct frames_slot *slot = frames_lock(zone, superpage);
    enum frames_status status = isolate(zone, superpage, slot, frames_offset_of(zone, frame), block);
    frames_unlock(zone, slot);
    return status;
}

/* The end of an isolation; free: whatever was said meanwhile. */
static void end(struct frame_zone *zone, uint64_t first, uint64_t frames, bool never, bool free) {
    struct frames_superpage *superpage = frames_superpage_of(zone, first);
    struct frames_slot *slot = frames_lock(zone, superpage);
    uint32_t note = zone->notes[first];
    bool dead = (note & NOTE_DEAD) != 0 || free;
    frames_note_set(zone, superpage, first, (note & ~(NOTE_MOVING | NOTE_DEAD)) | (never ? NOTE_NEVER : 0));
    note_ended(zone, superpage);
    if (dead) frames_release(zone, superpage, slot, frames_offset_of(zone, first), (unsigned)frames);
    settle_now(zone, slot);
    frames_unlock(zone, slot);
}

void frames_put_back(struct frame_zone *zone, const struct frames_block *block, bool never) { end(zone, block->first, block->frames, never, false); }

void frames_drop(struct frame_zone *zone, const struct frames_block *block) { end(zone, block->first, block->frames, false, true); }

void frames_drop_all(struct frame_zone *zone, uint64_t number, const uint64_t *heads) {
    struct frames_superpage *superpage = &zone->superpages[number];
    struct frames_slot *slot = frames_lock(zone, superpage);
    for (unsigned head = 0, count; (head = frames_bits_next_set(heads, head, zone->superpage_frames)) < zone->superpage_frames; head += count) {
        uint64_t first = frames_first_of(zone, superpage) + head;
        unsigned found;
        frames_block_at(zone, superpage, head, &found, &count);
        frames_note_set(zone, superpage, first, zone->notes[first] & ~(NOTE_MOVING | NOTE_DEAD));
        note_ended(zone, superpage);
        frames_release(zone, superpage, slot, head, count);
    }
    settle_now(zone, slot);
    frames_unlock(zone, slot);
}

/* ------------------------------------------------------------------ moving */

/* `to` is as `block` was, and isolated still. */
static void hand_over(struct frame_zone *zone, const struct frames_block *block, uint64_t to) {
    struct frames_superpage *superpage = frames_superpage_of(zone, to);
    enum frames_mobility mobility = note_mobility(block->note);
    struct frames_slot *slot = frames_lock(zone, superpage);
    uint32_t kept = zone->notes[to] & ~(uint32_t)NOTE_OF_HEAD, marks = zone->notes[to] & (NOTE_MOVING | NOTE_DEAD);
    frames_note_set(zone, superpage, to, kept | marks | block->note);
    superpage->used[FRAMES_MOVABLE] = (uint16_t)(superpage->used[FRAMES_MOVABLE] - block->frames);
    superpage->used[mobility] = (uint16_t)(superpage->used[mobility] + block->frames);
    if (note_owner(block->note) != 0) {
        zone->tokens[to] = block->token;
        if (zone->hooks.moved != NULL) zone->hooks.moved(zone, block->first, to, block->frames);
    }
    frames_unlock(zone, slot);
}

/* The old place, which is no owner's any more. True: the block was freed there meanwhile. */
static bool leave(struct frame_zone *zone, const struct frames_block *block) {
    struct frames_superpage *superpage = frames_superpage_of(zone, block->first);
    struct frames_slot *slot = frames_lock(zone, superpage);
    uint32_t note = zone->notes[block->first];
    frames_note_set(zone, superpage, block->first, note & ~(NOTE_MOVING | NOTE_DEAD | NOTE_OWNER));
    note_ended(zone, superpage);
    frames_release(zone, superpage, slot, frames_offset_of(zone, block->first), (unsigned)block->frames);
    frames_unlock(zone, slot);
    return (note & NOTE_DEAD) != 0;
}

/* Of huge pages that were discarded others may have what was behind them: to look there, or write, would be the end. */
static bool has_memory(struct frame_zone *zone, uint64_t frame, uint64_t frames) {
    return zone->kind != FRAMES_HUGETLB || frames_populate(zone, frame, frames) == FRAMES_OK;
}

/* Contents and addresses: YES, or nothing has changed. */
static enum frames_answer transfer(struct frame_zone *zone, const struct frames_block *block, uint64_t to) {
    unsigned number = note_owner(block->note);
    const struct frames_owner *owner = &zone->owners[number];
    bool mapped = block->address != 0;
    if (number != 0 && owner->migrate == NULL) return FRAMES_NOBODY;
    if (mapped && !frames_window_hold(zone, block)) return FRAMES_LATER;
    enum frames_answer answer = FRAMES_YES;
    if (number != 0)
        answer = owner->migrate(zone, owner, block->first, to, block->frames, block->token);
    else if (has_memory(zone, block->first, block->frames) && has_memory(zone, to, block->frames))
        frames_copy(zone, block->first, to, block->frames);
    else
        answer = FRAMES_LATER;
    if (answer == FRAMES_WROTE || answer == FRAMES_WRITE) answer = FRAMES_LATER; /* no answers to this question */
    if (mapped && answer == FRAMES_YES && !frames_window_switch(zone, block, to)) {
        if (number != 0)
            fatal("zone \"%s\": frame %llu has moved, and no window can show it: the process has no mappings left", zone->name,
                  (unsigned long long)to);
        answer = FRAMES_LATER;
    }
    if (mapped && answer != FRAMES_YES) frames_window_let_go(zone, block);
    return answer;
}

enum frames_answer frames_move(struct frame_zone *zone, struct frames_block *block, uint64_t to) {
    frames_step_begin(zone);
    enum frames_answer answer = transfer(zone, block, to);
    if (answer == FRAMES_YES) {
        hand_over(zone, block, to);
        bool dead = leave(zone, block);
        end(zone, to, block->frames, false, dead);
    }
    frames_step_end(zone);
    return answer;
}

/* ------------------------------------------------------------------ dropping */

/* Under nobody's hands from now on, but isolated: a second free of it is told from the first. */
static void mark_dead(struct frame_zone *zone, const struct frames_block *block) {
    struct frames_superpage *superpage = frames_superpage_of(zone, block->first);
    struct frames_slot *slot = frames_lock(zone, superpage);
    zone->notes[block->first] |= NOTE_DEAD;
    frames_unlock(zone, slot);
}

enum frames_answer frames_reclaim_block(struct frame_zone *zone, struct frames_block *block, bool later) {
    unsigned number = note_owner(block->note);
    const struct frames_owner *owner = &zone->owners[number];
    if (number == 0 || owner->reclaim == NULL) return FRAMES_NOBODY;
    if (block->address != 0) return FRAMES_LATER; /* somebody looks at it */
    frames_step_begin(zone);
    enum frames_answer answer =
        owner->reclaim(zone, owner, block->first, block->frames, block->token, frames_used_dirty(zone, block->first, block->frames));
    if (answer == FRAMES_WRITE) answer = frames_backing_write(zone, block);
    if (answer == FRAMES_YES || answer == FRAMES_WROTE) {
        if (later)
            mark_dead(zone, block);
        else
            frames_drop(zone, block);
    }
    frames_step_end(zone);
    return answer;
}
