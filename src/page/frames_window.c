/*
 * frames_window.c - windows: address space of which each page shows a frame that the program chooses.
 *
 * A window has a table with the frame of each of its pages, a frame that is shown has NOTE_MAPPED and the address in zone->addresses. Both change
 * under the lock of the frame's superpage and then the zone's. Invariant: the two agree, but while the frame is being moved. A run is shown or hidden
 * as a whole: to hide one, its frames are held first, so that nothing is moved meanwhile, and all of it by one call to the system, which may have
 * no mappings left. One run is shown or hidden at a time (zone->hiding), so that who comes second finds that the pages show nothing.
 */
#include "page/frames_internal.h"

static size_t frame_bytes(const struct frame_zone *zone) { return (size_t)1 << zone->frame_shift; }

/* Under the zone's lock: the window that [address, address + bytes) lies in; NULL: none. */
static struct frames_window *window_of(const struct frame_zone *zone, const char *address, size_t bytes) {
    for (struct frames_window *window = zone->windows; window != NULL; window = window->next) {
        size_t offset = (uintptr_t)address - (uintptr_t)window->address;
        if (offset < window->bytes && bytes <= window->bytes - offset) return window;
    }
    return NULL;
}
static uint32_t *entry_of(const struct frame_zone *zone, const struct frames_window *window, const char *address) {
    return &window->frames[(size_t)(address - window->address) >> zone->frame_shift];
}

/* ------------------------------------------------------------------ life */

static size_t table_bytes(const struct frame_zone *zone, size_t bytes) {
    return align_up(sizeof(struct frames_window) + (bytes >> zone->frame_shift) * sizeof(uint32_t), platform_info()->page_bytes);
}

enum frames_status frames_window_open(struct frame_zone *zone, size_t bytes, void **address) {
    size_t unit = zone->kind == FRAMES_HUGETLB ? FRAMES_SUPERPAGE_BYTES : frame_bytes(zone);
    if (zone->backend->show == NULL) return FRAMES_UNSUPPORTED;
    if (bytes == 0 || bytes % unit != 0 || bytes > (size_t)PTRDIFF_MAX) return FRAMES_BAD_ARGUMENT;
    size_t table = table_bytes(zone, bytes);
    char *space = platform_reserve(NULL, bytes, FRAMES_SUPERPAGE_BYTES), *memory = platform_reserve(NULL, table, platform_info()->page_bytes);
    if (space == NULL || memory == NULL || !platform_commit(memory, table)) {
        if (space != NULL) platform_unreserve(space, bytes);
        if (memory != NULL) platform_unreserve(memory, table);
        return FRAMES_NO_MEMORY;
    }
    struct frames_window *window = (struct frames_window *)(void *)memory;
    *window = (struct frames_window){.address = space, .bytes = bytes, .frames = (uint32_t *)(void *)(window + 1)};
    platform_lock_acquire(&zone->lock);
    window->next = zone->windows;
    zone->windows = window;
    platform_lock_release(&zone->lock);
    *address = space;
    return FRAMES_OK;
}

static void destroy(const struct frame_zone *zone, struct frames_window *window) {
    char *space = window->address;
    size_t bytes = window->bytes;
    platform_unreserve(window, table_bytes(zone, bytes));
    platform_unreserve(space, bytes);
}

enum frames_status frames_window_close(struct frame_zone *zone, void *address) {
    enum frames_status status = FRAMES_BAD_ARGUMENT;
    struct frames_window *found = NULL;
    platform_lock_acquire(&zone->lock);
    for (struct frames_window **link = &zone->windows; *link != NULL; link = &(*link)->next) {
        if ((*link)->address != address) continue;
        status = (*link)->shown == 0 ? FRAMES_OK : FRAMES_MAPPED;
        if (status == FRAMES_OK) {
            found = *link;
            *link = found->next;
        }
        break;
    }
    platform_lock_release(&zone->lock);
    if (found != NULL) destroy(zone, found);
    return status;
}

void frames_windows_close(struct frame_zone *zone) {
    while (zone->windows != NULL) {
        struct frames_window *window = zone->windows;
        zone->windows = window->next;
        destroy(zone, window);
    }
}

/* ------------------------------------------------------------------ showing */

/* Under the zone's lock, and that of the superpages that the run is in. */
static enum frames_status show(struct frame_zone *zone, uint64_t frame, uint64_t frames, char *address) {
    struct frames_window *window = window_of(zone, address, frames << zone->frame_shift);
    if (window == NULL) return FRAMES_BAD_ARGUMENT;
    uint32_t *entries = entry_of(zone, window, address);
    for (uint64_t i = 0; i < frames; i++)
        if (entries[i] != 0 || (zone->notes[frame + i] & NOTE_MAPPED) != 0) return FRAMES_MAPPED;
    if (!zone->backend->show(zone, frame, frames, address)) return FRAMES_NO_MEMORY;
    for (uint64_t i = 0; i < frames; i++) {
        entries[i] = (uint32_t)(frame + i) + 1;
        zone->addresses[frame + i] = (uintptr_t)address + (i << zone->frame_shift);
        frames_note_set(zone, frames_superpage_of(zone, frame + i), frame + i, zone->notes[frame + i] | NOTE_MAPPED);
    }
    window->shown += frames;
    zone->mapped += frames;
    return FRAMES_OK;
}

enum frames_status frames_map(struct frame_zone *zone, uint64_t frame, uint64_t frames, void *address) {
    uint64_t last = frame + frames - 1;
    size_t unit = zone->kind == FRAMES_HUGETLB ? FRAMES_SUPERPAGE_BYTES : frame_bytes(zone);
    if (zone->backend->show == NULL) return FRAMES_UNSUPPORTED;
    if ((uintptr_t)address % unit != 0 || (frame << zone->frame_shift) % unit != 0 || (frames << zone->frame_shift) % unit != 0)
        return FRAMES_BAD_ARGUMENT;
    /* Held while it is looked at and shown, so that it is allocated and stays where it is. */
    platform_lock_acquire(&zone->hiding); /* so that a fork finds nothing held, and no two hold the same */
    enum frames_status status = frames_hold(zone, frame, frames);
    if (status == FRAMES_OK) {
        frames_lock_range(zone, frame >> zone->superpage_shift, last >> zone->superpage_shift);
        status = show(zone, frame, frames, address);
        platform_lock_release(&zone->lock);
        frames_unhold(zone, frame, frames);
    }
    platform_lock_release(&zone->hiding);
    return status;
}

/* ------------------------------------------------------------------ looking, and hiding */

/* Under the zone's lock: what a page shows; FRAMES_NONE. */
static uint64_t shown_by(const struct frame_zone *zone, const char *address) {
    const struct frames_window *window = window_of(zone, address, 1);
    return window == NULL ? FRAMES_NONE : (uint64_t)*entry_of(zone, window, address) - 1; /* of 0: FRAMES_NONE */
}

/* What is done to the frame that a page shows: none of it, or to that very frame. */
enum take { LOOK, PIN, HOLD };

static enum frames_status take_at(struct frame_zone *zone, const void *address, enum take how, uint64_t *frame) {
    enum frames_status status;
    do {
        platform_lock_acquire(&zone->lock);
        *frame = shown_by(zone, address);
        platform_lock_release(&zone->lock);
        if (*frame == FRAMES_NONE) return FRAMES_NOT_MAPPED;
        status = how == LOOK ? FRAMES_OK : frames_pin_shown(zone, *frame, address, how == HOLD);
    } while (status == FRAMES_NOT_MAPPED); /* it has moved, or was hidden, since the look */
    return status;
}

enum frames_status frames_at(struct frame_zone *zone, const void *address, bool pin, uint64_t *frame) {
    return take_at(zone, address, pin ? PIN : LOOK, frame);
}

/* Pages from `address` on, all of them held and hidden: as many as showed frames side by side of one superpage. Returns how many bytes that were.
 */
static size_t forget(struct frame_zone *zone, char *address, size_t bytes) {
    platform_lock_acquire(&zone->lock);
    uint64_t first = shown_by(zone, address), frames = 1;
    struct frames_window *window = window_of(zone, address, bytes);
    uint32_t *entries = entry_of(zone, window, address);
    uint64_t room = min_u64(bytes >> zone->frame_shift, zone->superpage_frames - frames_offset_of(zone, first));
    while (frames < room && entries[frames] == entries[0] + frames) frames++;
    platform_lock_release(&zone->lock);

    struct frames_superpage *superpage = frames_superpage_of(zone, first);
    struct frames_slot *slot = frames_lock(zone, superpage);
    if (slot != NULL) platform_lock_acquire(&zone->lock);
    for (uint64_t i = 0; i < frames; i++) {
        entries[i] = 0;
        zone->addresses[first + i] = 0;
        frames_note_set(zone, superpage, first + i, zone->notes[first + i] & ~NOTE_MAPPED);
    }
    window->shown -= frames;
    zone->mapped -= frames;
    if (slot != NULL) platform_lock_release(&zone->lock);
    frames_unlock(zone, slot);
    frames_unhold(zone, first, frames);
    return frames << zone->frame_shift;
}

/* The frames of the pages from `address` on can move again. */
static void unhold_shown(struct frame_zone *zone, char *address, size_t bytes) {
    for (size_t done = 0; done < bytes; done += frame_bytes(zone)) {
        uint64_t frame;
        CHECK(take_at(zone, address + done, LOOK, &frame) == FRAMES_OK);
        frames_unhold(zone, frame, 1);
    }
}

/* Under zone->hiding. */
static enum frames_status unmap(struct frame_zone *zone, char *address, size_t bytes) {
    size_t unit = zone->kind == FRAMES_HUGETLB ? FRAMES_SUPERPAGE_BYTES : frame_bytes(zone), done = 0;
    enum frames_status status = FRAMES_OK;
    uint64_t frame;
    platform_lock_acquire(&zone->lock);
    bool known = bytes != 0 && ((uintptr_t)address | bytes) % unit == 0 && window_of(zone, address, bytes) != NULL;
    platform_lock_release(&zone->lock);
    if (!known) return FRAMES_BAD_ARGUMENT;
    while (done < bytes && (status = take_at(zone, address + done, HOLD, &frame)) == FRAMES_OK) done += frame_bytes(zone);
    if (status == FRAMES_OK && !platform_shared_hide(address, bytes)) status = FRAMES_NO_MEMORY;
    if (status != FRAMES_OK) {
        unhold_shown(zone, address, done);
        return status;
    }
    for (done = 0; done < bytes;) done += forget(zone, address + done, bytes - done);
    return FRAMES_OK;
}

enum frames_status frames_unmap(struct frame_zone *zone, char *address, size_t bytes) {
    if (zone->backend->show == NULL) return FRAMES_UNSUPPORTED;
    platform_lock_acquire(&zone->hiding);
    enum frames_status status = unmap(zone, address, bytes);
    platform_lock_release(&zone->hiding);
    return status;
}
