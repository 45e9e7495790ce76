/*
 * frames_check.c - the invariants of a zone of frames as equations (frames.h). With nobody in a call on the zone; holds no lock but the zone's.
 */
#include "page/frames_internal.h"

/* Whether the superpage in front of this one ends with a part of a run. */
static bool run_ends_before(const struct frame_zone *zone, const struct frames_superpage *superpage) {
    if (superpage == zone->superpages) return false;
    const struct frames_superpage *before = superpage - 1;
    unsigned last = zone->superpage_frames - 1;
    if (!frames_bit(before->allocated, last) || frames_bit(before->captured, last)) return false;
    return (zone->notes[frames_first_of(zone, before) + frames_bits_last_set(before->heads, last)] & NOTE_RUN) != 0;
}

/* Notes against the superpage's counts and bits. */
static const char *check_notes(const struct frame_zone *zone, const struct frames_superpage *superpage, uint64_t *moving) {
    const uint32_t *notes = &zone->notes[frames_first_of(zone, superpage)];
    unsigned used[FRAMES_MOBILITIES] = {0}, noted = 0, pinned = 0, moves = 0;
    if (superpage->noted == 0 && superpage->used[FRAMES_RECLAIMABLE] == 0 && superpage->used[FRAMES_MOVABLE] == 0)
        return superpage->pinned == 0 && superpage->moving == 0 ? NULL : "frames: a superpage without notes has pinned or moving frames";
    uint32_t head = 0;
    for (unsigned i = 0; i < zone->superpage_frames; i++) {
        bool in_block = frames_bit(superpage->allocated, i) && !frames_bit(superpage->captured, i), is_head = frames_bit(superpage->heads, i);
        if (is_head) head = notes[i];
        if (in_block) used[note_mobility(head)]++;
        if (!in_block && notes[i] != 0) return "frames: a frame that is free has a note";
        if (in_block && !is_head && (notes[i] & NOTE_OF_HEAD) != 0) return "frames: a frame inside a block has a note of a first one";
        if (is_head && note_owner(notes[i]) > zone->owner_count) return "frames: a block has an owner that is none";
        if ((notes[i] & NOTE_DEAD) != 0 && (notes[i] & NOTE_MOVING) == 0) return "frames: a block that was freed is still there";
        if ((notes[i] & NOTE_GOES_ON) != 0 && (i != 0 || (notes[i] & NOTE_RUN) == 0 || !run_ends_before(zone, superpage)))
            return "frames: a part of a run goes on from nothing";
        noted += notes[i] != 0;
        pinned += note_is_pinned(notes[i]);
        moves += (notes[i] & NOTE_MOVING) != 0;
    }
    for (unsigned m = 0; m < FRAMES_MOBILITIES; m++)
        if (used[m] != superpage->used[m]) return "frames: the frames of a mobility in a superpage are miscounted";
    if (noted != superpage->noted) return "frames: the notes of a superpage are miscounted";
    if (pinned != superpage->pinned) return "frames: the pinned frames of a superpage are miscounted";
    if (moves != superpage->moving) return "frames: the isolated blocks of a superpage are miscounted";
    *moving += moves;
    return NULL;
}

/* Where a superpage stands. */
static const char *check_place(const struct frame_zone *zone, const struct frames_superpage *superpage) {
    uint64_t number = (uint64_t)(superpage - zone->superpages);
    bool whole = superpage->free == zone->superpage_frames, marked = (zone->free_map[number / 64] >> number % 64 & 1) != 0;
    bool summed = (zone->free_summary[number / 4096] >> number / 64 % 64 & 1) != 0;
    if (superpage->droppable != frames_is_droppable(zone, superpage) ||
        superpage->droppable != ((zone->droppable[number / 64] >> number % 64 & 1) != 0))
        return "frames: whether reclaim might empty a superpage is noted wrong";
    if (superpage->partition != (number >= zone->partition_first)) return "frames: a superpage does not know that it is in the partition, or not";
    if (superpage->partition && superpage->used[FRAMES_UNMOVABLE] != 0 && (zone->flags & FRAMES_HUGE_IN_PARTITION) == 0)
        return "frames: unmovable frames are in the partition";
    if ((zone->free_map[number / 64] != 0) != summed) return "frames: the map of free superpages does not agree with its summary";
    if (superpage->slot != FRAMES_NO_SLOT) {
        if (superpage->slot >= zone->slot_count) return "frames: a superpage is reserved by a slot that is none";
        bool has = false;
        for (unsigned i = 0; i < FRAMES_MOBILITIES + 1; i++) has |= zone->slots[superpage->slot].reserved[i] == number;
        if (!has) return "frames: a superpage is reserved by a slot that does not know it";
        return superpage->list == FRAMES_NO_LIST && !marked ? NULL : "frames: a reserved superpage is in a list";
    }
    if (marked != whole) return "frames: the map of free superpages is wrong";
    if (whole || superpage->free == 0) return superpage->list == FRAMES_NO_LIST ? NULL : "frames: a full or free superpage is in a list";
    if (superpage->largest != frames_superpage_largest(superpage)) return "frames: a superpage's largest free block has another order";
    unsigned list = frames_superpage_list(superpage, zone->superpage_frames);
    if ((zone->flags & FRAMES_SCATTER) != 0) list %= FRAMES_CLASSES - 1;
    if (superpage->list != list) return "frames: a superpage is in a list that its counts don't say";
    return superpage->set == frames_set_of(zone, superpage->group, superpage->partition) ? NULL : "frames: a superpage is in another group's list";
}

static const char *check_lists(const struct frame_zone *zone, uint64_t listed) {
    uint64_t found = 0;
    for (unsigned set = 0; set < FRAMES_SETS; set++) {
        for (unsigned list = 0; list < FRAMES_LISTS; list++) {
            uint32_t before = FRAMES_NO_SUPERPAGE;
            if ((zone->lists[set][list] != FRAMES_NO_SUPERPAGE) != ((zone->nonempty[set] >> list & 1) != 0)) return "frames: a list is empty, or not";
            for (uint32_t i = zone->lists[set][list]; i != FRAMES_NO_SUPERPAGE; before = i, i = zone->superpages[i].next) {
                const struct frames_superpage *superpage = &zone->superpages[i];
                if (superpage->prev != before || superpage->list != list || superpage->set != set) return "frames: the links of a list are wrong";
                if (found++ > zone->superpage_count) return "frames: a list goes round";
            }
        }
    }
    return found == listed ? NULL : "frames: superpages in lists are miscounted";
}

/* What captures hold, and which superpages they want. */
static const char *check_captures(const struct frame_zone *zone, uint64_t captured) {
    uint64_t held = 0;
    for (unsigned c = 0; c < FRAMES_CAPTURES_MAX; c++) {
        const struct frames_capture *capture = &zone->captures[c];
        if (capture->frames == 0) continue;
        held += capture->held;
        for (uint64_t i = capture->first >> zone->superpage_shift; i <= (capture->first + capture->frames - 1) >> zone->superpage_shift; i++)
            if (zone->superpages[i].capture != c + 1) return "frames: a superpage does not know the capture that wants it";
    }
    return held == captured ? NULL : "frames: what captures hold is miscounted";
}

static const char *check(struct frame_zone *zone) {
    uint64_t free[2] = {0}, whole = 0, listed = 0, moving = 0, captured = 0;
    for (uint64_t i = 0; i < zone->superpage_count; i++) {
        const struct frames_superpage *superpage = &zone->superpages[i];
        const char *wrong = frames_superpage_check(superpage, zone->superpage_frames);
        if (wrong == NULL) wrong = check_notes(zone, superpage, &moving);
        if (wrong == NULL) wrong = check_place(zone, superpage);
        if (wrong != NULL) return wrong;
        bool in_slot = superpage->slot != FRAMES_NO_SLOT;
        free[in_slot] += superpage->free;
        whole += !in_slot && superpage->free == zone->superpage_frames;
        listed += superpage->list != FRAMES_NO_LIST;
        captured += superpage->captured_frames;
    }
    int64_t in_slots = 0;
    for (unsigned s = 0; s < zone->slot_count; s++) in_slots += zone->slots[s].free;
    if (free[0] != zone->free_frames || (int64_t)free[1] != in_slots) return "frames: free frames are miscounted";
    if (whole != zone->free_superpages) return "frames: free superpages are miscounted";
    if (moving != zone->moving) return "frames: isolated blocks are miscounted";
    if (zone->slots_closed != 0) return "frames: slots are closed, and nobody has closed them";
    const char *wrong = check_lists(zone, listed);
    return wrong != NULL ? wrong : check_captures(zone, captured);
}

const char *frames_zone_check(struct frame_zone *zone) {
    platform_lock_acquire(&zone->lock);
    const char *wrong = check(zone);
    uint64_t shown = 0;
    for (const struct frames_window *window = zone->windows; window != NULL && wrong == NULL; window = window->next) {
        shown += window->shown;
        for (size_t i = 0; i < window->bytes >> zone->frame_shift; i++) {
            if (window->frames[i] == 0) continue;
            uint64_t frame = window->frames[i] - 1;
            if ((zone->notes[frame] & NOTE_MAPPED) == 0 || zone->addresses[frame] != (uintptr_t)window->address + (i << zone->frame_shift))
                wrong = "frames: a page of a window and its frame don't agree";
        }
    }
    if (wrong == NULL && shown != zone->mapped) wrong = "frames: frames in windows are miscounted";
    platform_lock_release(&zone->lock);
    return wrong;
}
