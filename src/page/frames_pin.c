/*
 * frames_pin.c - pins, and what is known of a frame. A pin is counted in the note of its frame: the block that the frame is in stays where it is.
 * What maps and unmaps frames holds them by a mark of its own, so that a program that unpins what it has not pinned takes nothing from it.
 *
 * Locks: see frames.h. A run of several superpages holds the zone's, with all of them in no slot, so that it is pinned as a whole or not at all.
 */
#include "base/check.h"
#include "page/frames_internal.h"

typedef enum frames_status (*visit_function)(struct frame_zone *zone, struct frames_superpage *superpage, unsigned offset, bool change);

/* Each frame of a run is looked at, then, if none objects, changed. */
static enum frames_status visit_run(struct frame_zone *zone, uint64_t frame, uint64_t frames, uint64_t *at, visit_function visit) {
    enum frames_status status = FRAMES_OK;
    uint64_t end = frame + frames, first = frame >> zone->superpage_shift, last = (end - 1) >> zone->superpage_shift;
    struct frames_slot *slot = NULL;
    if (first == last)
        slot = frames_lock(zone, &zone->superpages[first]);
    else
        frames_lock_range(zone, first, last);
    for (unsigned pass = 0; pass < 2 && status == FRAMES_OK; pass++) {
        for (uint64_t i = frame; i < end && status == FRAMES_OK; i++) {
            status = visit(zone, frames_superpage_of(zone, i), frames_offset_of(zone, i), pass == 1);
            if (status != FRAMES_OK) *at = i;
        }
    }
    frames_unlock(zone, slot);
    return status;
}

/* Allocated, and nobody is moving it. */
static enum frames_status settled(const struct frame_zone *zone, const struct frames_superpage *superpage, unsigned offset) {
    unsigned head, count;
    if (!frames_bit(superpage->allocated, offset) || frames_bit(superpage->captured, offset)) return FRAMES_NOT_ALLOCATED;
    if (superpage->moving == 0) return FRAMES_OK;
    frames_block_at(zone, superpage, offset, &head, &count);
    uint32_t note = zone->notes[frames_first_of(zone, superpage) + head];
    if ((note & NOTE_DEAD) != 0) return FRAMES_NOT_ALLOCATED;
    return (note & NOTE_MOVING) != 0 ? FRAMES_BUSY : FRAMES_OK;
}

static enum frames_status pin(struct frame_zone *zone, struct frames_superpage *superpage, unsigned offset, bool change) {
    uint64_t frame = frames_first_of(zone, superpage) + offset;
    enum frames_status status = settled(zone, superpage, offset);
    if (status != FRAMES_OK) return status;
    uint32_t note = zone->notes[frame];
    if (note_pins(note) == FRAMES_PINS_MAX) return FRAMES_PINNED;
    if (!change) return FRAMES_OK;
    if (!note_is_pinned(note)) superpage->pinned++;
    frames_note_set(zone, superpage, frame, note + NOTE_PIN);
    return FRAMES_OK;
}

static enum frames_status hold(struct frame_zone *zone, struct frames_superpage *superpage, unsigned offset, bool change) {
    uint64_t frame = frames_first_of(zone, superpage) + offset;
    enum frames_status status = settled(zone, superpage, offset);
    if (status != FRAMES_OK || !change) return status;
    uint32_t note = zone->notes[frame];
    if (!note_is_pinned(note)) superpage->pinned++;
    frames_note_set(zone, superpage, frame, note | NOTE_HELD);
    return FRAMES_OK;
}

static void set_unpinned(struct frame_zone *zone, struct frames_superpage *superpage, uint64_t frame, uint32_t note) {
    if (!note_is_pinned(note)) superpage->pinned--;
    frames_note_set(zone, superpage, frame, note);
}

static enum frames_status unpin(struct frame_zone *zone, struct frames_superpage *superpage, unsigned offset, bool change) {
    uint64_t frame = frames_first_of(zone, superpage) + offset;
    enum frames_status status = settled(zone, superpage, offset);
    if (status == FRAMES_BUSY) return FRAMES_NOT_PINNED; /* nobody moves what is pinned */
    if (status != FRAMES_OK) return status;
    uint32_t note = zone->notes[frame];
    if (note_pins(note) == 0) return FRAMES_NOT_PINNED;
    if (!change) return FRAMES_OK;
    set_unpinned(zone, superpage, frame, note - NOTE_PIN);
    return FRAMES_OK;
}

static enum frames_status unhold(struct frame_zone *zone, struct frames_superpage *superpage, unsigned offset, bool change) {
    uint64_t frame = frames_first_of(zone, superpage) + offset;
    uint32_t note = zone->notes[frame];
    if ((note & NOTE_HELD) == 0) return FRAMES_NOT_PINNED;
    if (change) set_unpinned(zone, superpage, frame, note & ~NOTE_HELD);
    return FRAMES_OK;
}

static enum frames_status check(struct frame_zone *zone, struct frames_superpage *superpage, unsigned offset, bool change) {
    (void)change;
    return settled(zone, superpage, offset);
}

enum frames_status frames_pin(struct frame_zone *zone, uint64_t frame, uint64_t frames, uint64_t *at) {
    return visit_run(zone, frame, frames, at, pin);
}
enum frames_status frames_unpin(struct frame_zone *zone, uint64_t frame, uint64_t frames, uint64_t *at) {
    return visit_run(zone, frame, frames, at, unpin);
}
enum frames_status frames_hold(struct frame_zone *zone, uint64_t frame, uint64_t frames) {
    uint64_t at;
    return visit_run(zone, frame, frames, &at, hold);
}
void frames_unhold(struct frame_zone *zone, uint64_t frame, uint64_t frames) {
    uint64_t at;
    CHECK(visit_run(zone, frame, frames, &at, unhold) == FRAMES_OK);
}
/* Looked at and pinned under one lock: a frame that has been left meanwhile may be a stranger's, who frees it and is not to find a pin there. */
enum frames_status frames_pin_shown(struct frame_zone *zone, uint64_t frame, const void *address, bool holds) {
    struct frames_superpage *superpage = frames_superpage_of(zone, frame);
    struct frames_slot *slot = frames_lock(zone, superpage);
    bool mapped = (zone->notes[frame] & NOTE_MAPPED) != 0;
    enum frames_status status = FRAMES_NOT_MAPPED;
    if (mapped && zone->addresses[frame] >> zone->frame_shift == (uintptr_t)address >> zone->frame_shift)
        status = (holds ? hold : pin)(zone, superpage, frames_offset_of(zone, frame), true);
    frames_unlock(zone, slot);
    return status;
}
enum frames_status frames_check_run(struct frame_zone *zone, uint64_t frame, uint64_t frames, uint64_t *at) {
    return visit_run(zone, frame, frames, at, check);
}

bool frames_all_allocated(struct frame_zone *zone, uint64_t frame, uint64_t frames, uint64_t *at) {
    for (uint64_t end = frame + frames, next; frame < end; frame = next) {
        struct frames_superpage *superpage = frames_superpage_of(zone, frame);
        uint64_t base = frames_first_of(zone, superpage);
        unsigned from = (unsigned)(frame - base), to = (unsigned)min_u64(zone->superpage_frames, end - base);
        next = base + to;
        struct frames_slot *slot = frames_lock(zone, superpage);
        unsigned wrong = frames_bits_next_clear(superpage->allocated, from, to);
        if (superpage->captured_frames != 0) wrong = frames_bits_next_set(superpage->captured, from, wrong);
        frames_unlock(zone, slot);
        *at = base + wrong;
        if (wrong != to) return false;
    }
    return true;
}

/* The part of a run that is at the end of a superpage, or (from its begin) at its begin: false where there is none that goes on. One lock at a time.
 */
static bool part_at(struct frame_zone *zone, uint64_t frame, uint64_t *first, uint64_t *frames, bool *goes_on) {
    struct frames_superpage *superpage = frames_superpage_of(zone, frame);
    unsigned offset = frames_offset_of(zone, frame), head, count;
    struct frames_slot *slot = frames_lock(zone, superpage);
    bool there = frames_bit(superpage->allocated, offset) && !frames_bit(superpage->captured, offset);
    if (there) {
        frames_block_at(zone, superpage, offset, &head, &count);
        uint32_t note = zone->notes[frames_first_of(zone, superpage) + head];
        there = (note & NOTE_RUN) != 0;
        *goes_on = (note & NOTE_GOES_ON) != 0;
        *first = frames_first_of(zone, superpage) + head;
        *frames = count;
    }
    frames_unlock(zone, slot);
    return there;
}

/* A run of several superpages is a block in each: the bounds of all that belong to the one that was found. */
static void join_parts(struct frame_zone *zone, bool goes_on, struct frames_info *info) {
    uint64_t first, frames;
    bool more;
    while (goes_on && info->first != 0 && part_at(zone, info->first - 1, &first, &frames, &goes_on)) {
        info->first = first;
        info->frames += frames;
    }
    for (uint64_t end; (end = info->first + info->frames) < zone->frames && frames_offset_of(zone, end) == 0; info->frames += frames)
        if (!part_at(zone, end, &first, &frames, &more) || !more) return;
}

enum frames_status frames_query(struct frame_zone *zone, uint64_t frame, struct frames_info *info) {
    if (frame >= zone->frames) return FRAMES_BAD_ARGUMENT;
    struct frames_superpage *superpage = frames_superpage_of(zone, frame);
    unsigned offset = frames_offset_of(zone, frame), head = offset, count = 1;
    struct frames_slot *slot = frames_lock(zone, superpage);
    *info = (struct frames_info){.first = frame, .frames = 1, .group = FRAMES_MOBILITIES};
    if (superpage->free != zone->superpage_frames) info->group = (enum frames_mobility)superpage->group;
    info->captured = frames_bit(superpage->captured, offset);
    info->allocated = frames_bit(superpage->allocated, offset) && !info->captured;
    uint32_t first = 0;
    if (info->allocated) {
        frames_block_at(zone, superpage, offset, &head, &count);
        uint32_t note = zone->notes[frame];
        first = zone->notes[frame - offset + head];
        info->first = frame - offset + head;
        info->frames = count;
        info->mobility = note_mobility(first);
        info->owner = note_owner(first);
        info->token = info->owner != 0 ? zone->tokens[info->first] : 0;
        info->moving = (first & NOTE_MOVING) != 0;
        info->pins = note_pins(note);
        info->pinned = note_is_pinned(note);
        info->mapped = (note & NOTE_MAPPED) != 0;
    }
    frames_unlock(zone, slot);
    if ((first & NOTE_RUN) != 0) join_parts(zone, (first & NOTE_GOES_ON) != 0, info);
    return FRAMES_OK;
}
