/*
 * frames_free.c - the way back: runs of frames become free, or go to the capture that wants them, in one step under the superpage's lock.
 *
 * A run is looked at as a whole before anything changes. What is left of a block that is cut stays a block, with its owner and token. A block that is
 * being moved (NOTE_MOVING) is only marked (NOTE_DEAD): whoever has isolated it frees it. Locks: see frames.h; a run of several superpages holds
 * the zone's, with all of them in no slot.
 */
#include "page/frames_internal.h"

void frames_block_at(const struct frame_zone *zone, const struct frames_superpage *superpage, unsigned offset, unsigned *first, unsigned *count) {
    unsigned end = zone->superpage_frames, head = frames_bits_last_set(superpage->heads, offset);
    unsigned stop = frames_bits_next_set(superpage->heads, offset + 1, end);
    stop = frames_bits_next_clear(superpage->allocated, offset, stop);
    if (superpage->captured_frames != 0) stop = frames_bits_next_set(superpage->captured, offset, stop);
    *first = head;
    *count = stop - head;
}

/* ------------------------------------------------------------------ what may be freed */

/*
 * Whether frames [first, first + count) of a superpage are allocated, and by their notes may go. *at: the first that may not. dead: the run is one
 * block that is being moved.
 */
static STRATA_NOINLINE enum frames_status look_closer(const struct frame_zone *zone, const struct frames_superpage *superpage, unsigned first,
                                                      unsigned count, unsigned *at, bool *dead) {
    *dead = false;
    *at = frames_bits_next_clear(superpage->allocated, first, first + count);
    if (STRATA_UNLIKELY(superpage->captured_frames != 0)) *at = frames_bits_next_set(superpage->captured, first, *at);
    if (*at != first + count) return FRAMES_NOT_ALLOCATED;
    if (superpage->noted == 0) return FRAMES_OK;
    const uint32_t *notes = &zone->notes[frames_first_of(zone, superpage)];
    if (superpage->moving != 0) {
        for (unsigned i = first; i < first + count;) {
            unsigned head, frames;
            frames_block_at(zone, superpage, i, &head, &frames);
            *at = i;
            if ((notes[head] & NOTE_DEAD) != 0) return FRAMES_NOT_ALLOCATED;
            if ((notes[head] & NOTE_MOVING) != 0) {
                if (head != first || frames != count) return FRAMES_BUSY;
                *dead = true;
                return FRAMES_OK;
            }
            i = head + frames;
        }
    }
    *at = first;
    /* Ends with the last note there is: of a superpage that is one block it is mostly the first frame's. */
    for (unsigned left = superpage->noted; left != 0 && *at < first + count; ++*at) {
        if ((notes[*at] & NOTE_PINS) != 0) return FRAMES_PINNED;
        if ((notes[*at] & NOTE_MAPPED) != 0) return FRAMES_MAPPED;
        left -= notes[*at] != 0;
    }
    return FRAMES_OK;
}

/* The same; mostly there is nothing to look at but bits, and the note of a frame or superpage that is one block. */
STRATA_INLINE enum frames_status look(const struct frame_zone *zone, const struct frames_superpage *superpage, unsigned first, unsigned count,
                                      unsigned *at, bool *dead) {
    *dead = false;
    bool plain = superpage->noted == 0 && superpage->captured_frames == 0;
    if (STRATA_LIKELY(plain && (count == 1 ? frames_bit(superpage->allocated, first) : superpage->free == 0))) return FRAMES_OK;
    if (superpage->captured_frames == 0 && superpage->moving == 0) { /* so its notes are those of blocks that rest, and of pins and windows */
        uint32_t note = zone->notes[frames_first_of(zone, superpage) + first];
        bool stays = (note & (NOTE_PINS | NOTE_MAPPED)) != 0, only = superpage->noted == (note != 0);
        if (STRATA_LIKELY(!stays && (count == 1 ? frames_bit(superpage->allocated, first) : superpage->free == 0 && only))) return FRAMES_OK;
    }
    return look_closer(zone, superpage, first, count, at, dead);
}

/* ------------------------------------------------------------------ giving */

/* Frames of one mobility, whose notes are gone, in a superpage that a capture wants frames of: to the capture, or free. */
static STRATA_NOINLINE void give_wanted(struct frame_zone *zone, struct frames_superpage *superpage, unsigned first, unsigned count,
                                        enum frames_mobility mobility) {
    struct frames_capture *capture = &zone->captures[superpage->capture - 1];
    uint64_t base = frames_first_of(zone, superpage), from = max_u64(base + first, capture->first);
    uint64_t to = min_u64(base + first + count, capture->first + capture->frames);
    if ((capture->flags & FRAMES_CAPTURE_NO_HOLD) != 0 || from >= to) {
        frames_superpage_give(superpage, first, count, mobility);
        return;
    }
    unsigned inner = (unsigned)(from - base), end = (unsigned)(to - base);
    if (inner > first) frames_superpage_give(superpage, first, inner - first, mobility);
    frames_superpage_give_captured(superpage, inner, end - inner, mobility);
    if (end < first + count) frames_superpage_give(superpage, end, first + count - end, mobility);
    __atomic_fetch_add(&capture->held, end - inner, __ATOMIC_RELEASE);
}

STRATA_INLINE void give(struct frame_zone *zone, struct frames_superpage *superpage, unsigned first, unsigned count, enum frames_mobility mobility) {
    if (STRATA_LIKELY(superpage->capture == 0))
        frames_superpage_give(superpage, first, count, mobility);
    else
        give_wanted(zone, superpage, first, count, mobility);
}

/* A part of one block. */
STRATA_INLINE void release_part(struct frame_zone *zone, struct frames_superpage *superpage, unsigned head, unsigned frames, unsigned first,
                                unsigned count) {
    uint64_t base = frames_first_of(zone, superpage);
    uint32_t note = zone->notes[base + head] & NOTE_OF_HEAD;
    bool owned = note_owner(note) != 0;
    if (owned && zone->hooks.leaving != NULL && !frames_waits(zone, base + head)) zone->hooks.leaving(zone, base + head, frames, note);
    if (first == head) frames_note_set(zone, superpage, base + head, 0); /* before the next is told of, with which this one may be settled */
    unsigned rest = first + count, rest_frames = head + frames - rest;
    if (first != head && owned && zone->hooks.placed != NULL) zone->hooks.placed(zone, base + head, first - head, note);
    if (rest_frames != 0) { /* what follows begins a block now */
        frames_bit_set(superpage->heads, rest);
        frames_note_set(zone, superpage, base + rest,
                        (zone->notes[base + rest] & ~NOTE_OF_HEAD) | (note & ~(NOTE_MOVING | NOTE_DEAD | NOTE_GOES_ON)));
        if (owned) zone->tokens[base + rest] = zone->tokens[base + head];
        if (owned && zone->hooks.placed != NULL) zone->hooks.placed(zone, base + rest, rest_frames, note);
    }
    if (owned && zone->hooks.freed != NULL && frames_may_be_used(zone, base + first, count)) zone->hooks.freed(zone, base + first, count);
    give(zone, superpage, first, count, note_mobility(note));
}

void frames_release(struct frame_zone *zone, struct frames_superpage *superpage, struct frames_slot *slot, unsigned first, unsigned count) {
    unsigned free = superpage->free;
    for (unsigned i = first, end = first + count; i < end;) {
        unsigned head, frames;
        frames_block_at(zone, superpage, i, &head, &frames);
        unsigned part = head + frames < end ? head + frames - i : end - i;
        release_part(zone, superpage, head, frames, i, part);
        i += part;
    }
    frames_superpage_changed(zone, superpage, slot, free);
}

/* Whether a block begins at a frame and ends with it, so that nobody has to search for its ends. False also where a capture holds the next. */
STRATA_INLINE bool is_all_of_block(const struct frame_zone *zone, const struct frames_superpage *superpage, unsigned offset) {
    unsigned next = offset + 1;
    if (!frames_bit(superpage->heads, offset)) return false;
    return next == zone->superpage_frames || !frames_bit(superpage->allocated, next) || frames_bit(superpage->heads, next);
}

/* The same of frames [first, first + count) of which nothing is noted: all of them unmovable. */
STRATA_INLINE void release_plain(struct frame_zone *zone, struct frames_superpage *superpage, struct frames_slot *slot, unsigned first,
                                 unsigned count) {
    unsigned free = superpage->free, rest = first + count;
    if (rest < zone->superpage_frames && frames_bit(superpage->allocated, rest) && !frames_bit(superpage->captured, rest))
        frames_bit_set(superpage->heads, rest);
    give(zone, superpage, first, count, FRAMES_UNMOVABLE);
    frames_superpage_changed(zone, superpage, slot, free);
}

STRATA_INLINE void release_or_mark(struct frame_zone *zone, struct frames_superpage *superpage, struct frames_slot *slot, unsigned first,
                                   unsigned count, bool dead) {
    uint64_t frame = frames_first_of(zone, superpage) + first;
    if (dead)
        zone->notes[frame] |= NOTE_DEAD;
    else if (STRATA_LIKELY(superpage->noted == 0))
        release_plain(zone, superpage, slot, first, count);
    else if (STRATA_LIKELY(count == 1 && is_all_of_block(zone, superpage, first))) {
        unsigned free = superpage->free;
        release_part(zone, superpage, first, 1, first, 1);
        frames_superpage_changed(zone, superpage, slot, free);
    } else
        frames_release(zone, superpage, slot, first, count);
}

/* ------------------------------------------------------------------ free */

/* Under the zone's lock: what follows a freed run of superpages begins a block, if it went on from there. */
static void begin_anew(struct frame_zone *zone, uint64_t frame) {
    if (frame == zone->frames || frames_offset_of(zone, frame) != 0) return;
    struct frames_superpage *superpage = frames_superpage_of(zone, frame);
    if (superpage->noted != 0 && (zone->notes[frame] & NOTE_GOES_ON) != 0)
        frames_note_set(zone, superpage, frame, zone->notes[frame] & ~NOTE_GOES_ON);
}

/* A run that touches several superpages: all of it is looked at before any of it changes. */
static STRATA_NOINLINE enum frames_status free_long(struct frame_zone *zone, uint64_t frame, uint64_t frames, uint64_t *at) {
    enum frames_status status = FRAMES_OK;
    uint64_t end = frame + frames, first = frame >> zone->superpage_shift, last = (end - 1) >> zone->superpage_shift;
    frames_lock_range(zone, first, end == zone->frames ? last : end >> zone->superpage_shift);
    for (unsigned pass = 0; pass < 2 && status == FRAMES_OK; pass++) {
        for (uint64_t i = first; i <= last && status == FRAMES_OK; i++) {
            struct frames_superpage *superpage = &zone->superpages[i];
            uint64_t base = i << zone->superpage_shift, from = max_u64(base, frame), to = min_u64(base + zone->superpage_frames, end);
            unsigned wrong;
            bool dead;
            status = look(zone, superpage, (unsigned)(from - base), (unsigned)(to - from), &wrong, &dead);
            if (status != FRAMES_OK)
                *at = base + wrong;
            else if (pass == 1)
                release_or_mark(zone, superpage, NULL, (unsigned)(from - base), (unsigned)(to - from), dead);
        }
    }
    if (status == FRAMES_OK) begin_anew(zone, end);
    platform_lock_release(&zone->lock);
    return status;
}

/* Under the lock: whether the end of a superpage is freed from which a run may go on. */
static bool cuts_run(const struct frame_zone *zone, const struct frames_superpage *superpage, unsigned end) {
    if (superpage->noted == 0 || end != zone->superpage_frames) return false;
    unsigned head = frames_bits_last_set(superpage->heads, end - 1);
    return head < end && (zone->notes[frames_first_of(zone, superpage) + head] & NOTE_RUN) != 0;
}

enum frames_status frames_free(struct frame_zone *zone, uint64_t frame, uint64_t frames, uint64_t *at) {
    unsigned offset = frames_offset_of(zone, frame), wrong;
    bool dead;
    if (offset + frames > zone->superpage_frames) return free_long(zone, frame, frames, at);
    struct frames_superpage *superpage = frames_superpage_of(zone, frame);
    struct frames_slot *slot = frames_lock_here(zone, superpage);
    if (STRATA_UNLIKELY(cuts_run(zone, superpage, offset + (unsigned)frames))) {
        frames_unlock(zone, slot);
        return free_long(zone, frame, frames, at);
    }
    enum frames_status status = look(zone, superpage, offset, (unsigned)frames, &wrong, &dead);
    if (STRATA_LIKELY(status == FRAMES_OK))
        release_or_mark(zone, superpage, slot, offset, (unsigned)frames, dead);
    else
        *at = frames_first_of(zone, superpage) + wrong;
    frames_unlock_here(zone, slot);
    return status;
}

enum frames_status frames_may_free(struct frame_zone *zone, uint64_t frame, uint64_t frames) {
    enum frames_status status = FRAMES_OK;
    for (uint64_t end = frame + frames, next; frame < end && status == FRAMES_OK; frame = next) {
        struct frames_superpage *superpage = frames_superpage_of(zone, frame);
        uint64_t base = frames_first_of(zone, superpage);
        unsigned wrong;
        bool dead;
        next = min_u64(base + zone->superpage_frames, end);
        struct frames_slot *slot = frames_lock(zone, superpage);
        status = look(zone, superpage, (unsigned)(frame - base), (unsigned)(next - frame), &wrong, &dead);
        frames_unlock(zone, slot);
    }
    return status;
}

/* ------------------------------------------------------------------ frames of a superpage for who moves blocks */

uint64_t frames_taken_of(struct frame_zone *zone, uint64_t first, uint64_t frames) {
    uint64_t taken = 0;
    for (uint64_t at = first, end = first + frames, next; at < end; at = next) {
        struct frames_superpage *superpage = frames_superpage_of(zone, at);
        uint64_t base = frames_first_of(zone, superpage);
        next = min_u64(base + zone->superpage_frames, end);
        struct frames_slot *slot = frames_lock(zone, superpage);
        taken += frames_bits_count(superpage->allocated, (unsigned)(at - base), (unsigned)(next - at));
        frames_unlock(zone, slot);
    }
    return taken;
}

bool frames_take_in(struct frame_zone *zone, uint64_t number, uint64_t frames, uint64_t align, uint64_t *frame) {
    struct frames_superpage *superpage = &zone->superpages[number];
    if (frames > zone->superpage_frames || align > zone->superpage_frames) return false;
    struct frames_slot *slot = frames_lock(zone, superpage);
    unsigned free = superpage->free, offset = FRAMES_SUPERPAGE_MAX;
    if (free >= frames) offset = frames_superpage_find(superpage, (unsigned)frames, (unsigned)align);
    if (offset != FRAMES_SUPERPAGE_MAX) {
        *frame = frames_first_of(zone, superpage) + offset;
        if (free == zone->superpage_frames) superpage->group = FRAMES_MOVABLE;
        frames_superpage_take(superpage, offset, (unsigned)frames, FRAMES_MOVABLE);
        frames_note_set(zone, superpage, *frame, FRAMES_MOVABLE | NOTE_MOVING);
        frames_note_isolated(zone, superpage);
        frames_superpage_changed(zone, superpage, slot, free);
    }
    frames_unlock(zone, slot);
    return offset != FRAMES_SUPERPAGE_MAX;
}

void frames_give_back(struct frame_zone *zone, uint64_t frame, uint64_t frames) {
    const struct frames_block block = {.first = frame, .frames = frames, .note = FRAMES_MOVABLE};
    frames_drop(zone, &block);
}
