/*
 * frames_window_move.c - the addresses of a block that moves: protected against writes, copied, switched (contiguity paper, section 7.1; the steps
 * are those of page migration in Linux).
 *
 * Protection is userfaultfd's: whoever writes waits in the kernel until the page is opened or another one is in its place, and then writes there. No
 * thread serves these faults; who moves the block wakes whoever waits. A mapping is registered for one move only, as the switch is a new mapping, of
 * which the file knows nothing. Where the system has no userfaultfd, or not for this memory, blocks in windows don't move. Nor where it is for faults
 * of the program alone, as mostly without privilege: a read(2) into a page that is protected would fail with EFAULT there, and nothing else that a
 * process may use holds the kernel's writes back: access rights fail them in the same way, and a copy without protection may miss one.
 *
 * A switch needs no mapping more than there are, as it replaces whole ones. But a process that has used up its mappings, as far as one above their
 * limit, is not even let replace one. So one is kept that can be spared, and without it nothing is begun.
 * The block is isolated: its mappings are nobody else's to change. Locks: the zone's, for the table of a window; the superpage's, for notes.
 */
#include "page/frames_window_move.h"

#include "page/frames_compact_internal.h"

#define NEEDED (PLATFORM_FAULTS_PROTECT | PLATFORM_FAULTS_IN_KERNEL)

/* What a window shows at least, and a mapping has: of huge pages a whole one, also where less is asked for. */
static size_t spare_bytes(const struct frame_zone *zone) {
    return zone->kind == FRAMES_HUGETLB ? FRAMES_SUPERPAGE_BYTES : (size_t)1 << zone->frame_shift;
}

/* Opened once; the zone's lock orders those who want it first. NULL: forbidden, or it can't be had now. */
static struct platform_faults *faults_of(struct frame_zone *zone) {
    struct frames_compaction *compaction = frames_compaction_get(zone);
    if (compaction == NULL) return NULL;
    platform_lock_acquire(&zone->lock);
    if (compaction->faults_state == FRAMES_FAULTS_NONE) {
        enum platform_faults_status status = platform_faults_open(&compaction->faults, NEEDED);
        if (status == PLATFORM_FAULTS_OK)
            compaction->faults_state = FRAMES_FAULTS_OPEN;
        else if (status != PLATFORM_FAULTS_NO_MEMORY) /* of files, too, which there may be later */
            compaction->faults_state = FRAMES_FAULTS_FORBIDDEN;
    }
    bool open = compaction->faults_state == FRAMES_FAULTS_OPEN;
    platform_lock_release(&zone->lock);
    return open ? &compaction->faults : NULL;
}

/* Of the zone's memory, so that it is no neighbour's part. */
static bool has_spare(struct frame_zone *zone) {
    struct frames_compaction *compaction = frames_compaction_peek(zone);
    size_t bytes = spare_bytes(zone);
    platform_lock_acquire(&zone->lock);
    if (compaction->spare == NULL && (compaction->spare = platform_reserve(NULL, bytes, bytes)) != NULL &&
        !zone->backend->show(zone, 0, bytes >> zone->frame_shift, compaction->spare)) {
        platform_unreserve(compaction->spare, bytes);
        compaction->spare = NULL;
    }
    bool has = compaction->spare != NULL;
    platform_lock_release(&zone->lock);
    return has;
}

void frames_window_drop_spare(struct frame_zone *zone) {
    struct frames_compaction *compaction = frames_compaction_peek(zone);
    platform_lock_acquire(&zone->lock);
    char *spare = compaction->spare;
    compaction->spare = NULL;
    platform_lock_release(&zone->lock);
    if (spare != NULL) platform_unreserve(spare, spare_bytes(zone));
}

/* The address that shows a frame of the block; NULL: none. It stays, but others may mark the block as freed. */
static char *shown_at(struct frame_zone *zone, uint64_t frame) {
    struct frames_slot *slot = frames_lock(zone, frames_superpage_of(zone, frame));
    char *address = (zone->notes[frame] & NOTE_MAPPED) != 0 ? (char *)(uintptr_t)zone->addresses[frame] : NULL;
    frames_unlock(zone, slot);
    return address;
}

/*
 * Of the first `frames` of the block, from *at on: the next pages that show frames of it side by side, which are held and switched as one mapping,
 * and how many. NULL: none.
 */
static char *next_pages(struct frame_zone *zone, const struct frames_block *block, uint64_t frames, uint64_t *at, uint64_t *count) {
    char *address = NULL;
    for (; *at < frames && (address = shown_at(zone, block->first + *at)) == NULL; ++*at) continue;
    for (*count = 1; *at + *count < frames && shown_at(zone, block->first + *at + *count) == address + (*count << zone->frame_shift); ++*count)
        continue;
    return address;
}

/* The first `frames` of the block are opened again, and are no more the file's affair. */
static void open_frames(struct frame_zone *zone, struct platform_faults *faults, const struct frames_block *block, uint64_t frames) {
    char *address;
    for (uint64_t at = 0, count; (address = next_pages(zone, block, frames, &at, &count)) != NULL; at += count)
        (void)platform_faults_unregister(faults, address, count << zone->frame_shift, true);
}

bool frames_window_hold(struct frame_zone *zone, const struct frames_block *block) {
    struct platform_faults *faults = faults_of(zone);
    char *address;
    if (faults == NULL || zone->backend->show == NULL || !has_spare(zone)) return false;
    for (uint64_t at = 0, count; (address = next_pages(zone, block, block->frames, &at, &count)) != NULL; at += count) {
        size_t bytes = count << zone->frame_shift;
        bool registered = platform_faults_register(faults, address, bytes, false, true) == PLATFORM_FAULTS_OK;
        if (registered && platform_faults_protect(faults, address, bytes, true) == PLATFORM_FAULTS_OK) continue;
        open_frames(zone, faults, block, at + (registered ? count : 0));
        return false;
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

static bool show_in_place(struct frame_zone *zone, uint64_t frame, uint64_t frames, char *address) {
    if (zone->backend->show(zone, frame, frames, address)) return true;
    frames_window_drop_spare(zone);
    return zone->backend->show(zone, frame, frames, address);
}

bool frames_window_switch(struct frame_zone *zone, const struct frames_block *block, uint64_t to) {
    struct platform_faults *faults = faults_of(zone);
    char *address;
    bool begun = false;
    for (uint64_t at = 0, count; (address = next_pages(zone, block, block->frames, &at, &count)) != NULL; at += count) {
        if (!show_in_place(zone, to + at, count, address)) {
            if (!begun) return false;
            fatal("zone \"%s\": page %p can't show another frame: the process has no mappings left", zone->name, (void *)address);
        }
        begun = true;
        platform_faults_wake(faults, address, count << zone->frame_shift);
        for (uint64_t i = 0; i < count; i++) note_switched(zone, block->first + at + i, to + at + i, address + (i << zone->frame_shift));
    }
    return true;
}
