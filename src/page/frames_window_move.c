/*
 * frames_window_move.c - the addresses of a block that moves: protected against writes, copied, switched (contiguity paper, section 7.1; the steps
 * are those of page migration in Linux).
 *
 * Protection is userfaultfd's: whoever writes waits in the kernel until the page is opened or another one is in its place, and then writes there. No
 * thread serves these faults; who moves the block wakes whoever waits. A mapping is registered for one move only, as the switch is a new mapping, of
 * which the file knows nothing. Where the system has no userfaultfd, or not for this memory, blocks in windows don't move.
 * The block is isolated: its mappings are nobody else's to change. Locks: the zone's, for the table of a window; the superpage's, for notes.
 */
#include "page/frames_window_move.h"

#include "page/frames_compact_internal.h"

static size_t frame_bytes(const struct frame_zone *zone) { return (size_t)1 << zone->frame_shift; }

/* Opened once; the zone's lock orders those who want it first. NULL: forbidden. */
static struct platform_faults *faults_of(struct frame_zone *zone) {
    struct frames_compaction *compaction = frames_compaction_get(zone);
    if (compaction == NULL) return NULL;
    platform_lock_acquire(&zone->lock);
    if (compaction->faults_state == FRAMES_FAULTS_NONE)
        compaction->faults_state =
            platform_faults_open(&compaction->faults, PLATFORM_FAULTS_PROTECT) == PLATFORM_FAULTS_OK ? FRAMES_FAULTS_OPEN : FRAMES_FAULTS_FORBIDDEN;
    bool open = compaction->faults_state == FRAMES_FAULTS_OPEN;
    platform_lock_release(&zone->lock);
    return open ? &compaction->faults : NULL;
}

/* The address that shows a frame of the block; NULL: none. It stays, but others may mark the block as freed. */
static char *shown_at(struct frame_zone *zone, uint64_t frame) {
    struct frames_slot *slot = frames_lock(zone, frames_superpage_of(zone, frame));
    char *address = (zone->notes[frame] & NOTE_MAPPED) != 0 ? (char *)(uintptr_t)zone->addresses[frame] : NULL;
    frames_unlock(zone, slot);
    return address;
}

/* The first `frames` of the block are opened again, and are no more the file's affair. */
static void open_frames(struct frame_zone *zone, struct platform_faults *faults, const struct frames_block *block, uint64_t frames) {
    for (uint64_t i = 0; i < frames; i++) {
        char *address = shown_at(zone, block->first + i);
        if (address != NULL) (void)platform_faults_unregister(faults, address, frame_bytes(zone));
    }
}

bool frames_window_hold(struct frame_zone *zone, const struct frames_block *block) {
    struct platform_faults *faults = faults_of(zone);
    if (faults == NULL || zone->backend->show == NULL) return false;
    for (uint64_t i = 0; i < block->frames; i++) {
        char *address = shown_at(zone, block->first + i);
        if (address == NULL) continue;
        if (platform_faults_register(faults, address, frame_bytes(zone), false, true) != PLATFORM_FAULTS_OK) {
            open_frames(zone, faults, block, i);
            return false;
        }
        if (platform_faults_protect(faults, address, frame_bytes(zone), true) != PLATFORM_FAULTS_OK) {
            open_frames(zone, faults, block, i + 1);
            return false;
        }
    }
    return true;
}

void frames_window_let_go(struct frame_zone *zone, const struct frames_block *block) {
    struct platform_faults *faults = faults_of(zone);
    if (faults != NULL) open_frames(zone, faults, block, block->frames);
}

/* Who looks for the frame of this page finds the new one, isolated as the old one is. */
static void note_switched(struct frame_zone *zone, uint64_t from, uint64_t to, char *address) {
    struct frames_superpage *superpage = frames_superpage_of(zone, to);
    struct frames_slot *slot = frames_lock(zone, superpage);
    frames_note_set(zone, superpage, to, zone->notes[to] | NOTE_MAPPED);
    zone->addresses[to] = (uintptr_t)address;
    frames_unlock(zone, slot);

    platform_lock_acquire(&zone->lock);
    for (struct frames_window *window = zone->windows; window != NULL; window = window->next)
        if (address >= window->address && address < window->address + window->bytes)
            window->frames[(size_t)(address - window->address) >> zone->frame_shift] = (uint32_t)to + 1;
    platform_lock_release(&zone->lock);

    superpage = frames_superpage_of(zone, from);
    slot = frames_lock(zone, superpage);
    frames_note_set(zone, superpage, from, zone->notes[from] & ~NOTE_MAPPED);
    frames_unlock(zone, slot);
}

/* Frames from `first` on, at most `frames`, that are shown side by side; *address: where. */
static uint64_t shown_together(struct frame_zone *zone, uint64_t first, uint64_t frames, char **address) {
    uint64_t count = 1;
    *address = shown_at(zone, first);
    while (*address != NULL && count < frames && shown_at(zone, first + count) == *address + (count << zone->frame_shift)) count++;
    return count;
}

bool frames_window_switch(struct frame_zone *zone, const struct frames_block *block, uint64_t to) {
    struct platform_faults *faults = faults_of(zone);
    bool switched = false;
    for (uint64_t i = 0, count; i < block->frames; i += count) {
        char *address;
        count = shown_together(zone, block->first + i, block->frames - i, &address);
        if (address == NULL) continue;
        if (!zone->backend->show(zone, to + i, count, address)) {
            if (!switched) return false;
            fatal("zone \"%s\": page %p can't show another frame: the process has no mappings left", zone->name, (void *)address);
        }
        switched = true;
        platform_faults_wake(faults, address, count << zone->frame_shift);
        for (uint64_t j = 0; j < count; j++) note_switched(zone, block->first + i + j, to + i + j, address + (j << zone->frame_shift));
    }
    return true;
}
