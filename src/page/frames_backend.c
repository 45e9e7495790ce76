/*
 * frames_backend.c - the memory behind the frames of a zone: shared with a file number, of ordinary or huge pages; private, of its own or lent; or
 * none, but a word a frame.
 *
 * No locks: whoever copies or discards frames has them to himself.
 */
#include <string.h>

#include "page/frames_internal.h"

static struct platform_shared shared_of(const struct frame_zone *zone) {
    return (struct platform_shared){
        .base = zone->base, .bytes = zone->frames << zone->frame_shift, .file = zone->file, .device = zone->file_device, .inode = zone->file_inode};
}

/* ------------------------------------------------------------------ shared memory */

static enum frames_status open_shared(struct frame_zone *zone, unsigned node, bool huge) {
    static const enum frames_status statuses[] = {[PLATFORM_SHARED_OK] = FRAMES_OK,
                                                  [PLATFORM_SHARED_NO_MEMORY] = FRAMES_NO_MEMORY,
                                                  [PLATFORM_SHARED_NO_HUGE] = FRAMES_NO_HUGE_PAGES,
                                                  [PLATFORM_SHARED_UNSUPPORTED] = FRAMES_UNSUPPORTED};
    struct platform_shared shared;
    enum platform_shared_status status = platform_shared_open(&shared, zone->frames << zone->frame_shift, huge, zone->name);
    if (status != PLATFORM_SHARED_OK) return statuses[status];
    zone->base = shared.base;
    zone->file = shared.file;
    zone->file_device = shared.device;
    zone->file_inode = shared.inode;
    if ((zone->flags & FRAMES_ON_NODE) == 0 || platform_bind_node(shared.base, shared.bytes, node)) return FRAMES_OK;
    platform_shared_close(&shared);
    return FRAMES_UNSUPPORTED;
}
static enum frames_status open_memfd(struct frame_zone *zone, unsigned node) { return open_shared(zone, node, false); }
static enum frames_status open_hugetlb(struct frame_zone *zone, unsigned node) { return open_shared(zone, node, true); }
static void close_shared(struct frame_zone *zone) {
    struct platform_shared shared = shared_of(zone);
    platform_shared_close(&shared);
}

static void copy_memory(struct frame_zone *zone, uint64_t from, uint64_t to, uint64_t frames) {
    memcpy(zone->base + (to << zone->frame_shift), zone->base + (from << zone->frame_shift), frames << zone->frame_shift);
}
static bool populate_shared(struct frame_zone *zone, uint64_t frame, uint64_t frames) {
    struct platform_shared shared = shared_of(zone);
    return platform_shared_populate(&shared, frame << zone->frame_shift, frames << zone->frame_shift);
}
static bool discard_shared(struct frame_zone *zone, uint64_t frame, uint64_t frames) {
    struct platform_shared shared = shared_of(zone);
    return platform_shared_discard(&shared, frame << zone->frame_shift, frames << zone->frame_shift);
}
static bool show_shared(struct frame_zone *zone, uint64_t frame, uint64_t frames, char *address) {
    struct platform_shared shared = shared_of(zone);
    return platform_shared_show(&shared, frame << zone->frame_shift, frames << zone->frame_shift, address);
}
/* Huge pages are given back whole; parts are cleared. One that was given back, and that others have, is zeros, and to touch it would be the end. */
static bool discard_huge(struct frame_zone *zone, uint64_t frame, uint64_t frames) {
    if (((frame | frames) & (zone->superpage_frames - 1)) == 0) return discard_shared(zone, frame, frames);
    for (uint64_t end = frame + frames, next; frame < end; frame = next) {
        uint64_t first = align_down(frame, zone->superpage_frames);
        next = min_u64(first + zone->superpage_frames, end);
        if (populate_shared(zone, first, zone->superpage_frames))
            memset(zone->base + (frame << zone->frame_shift), 0, (next - frame) << zone->frame_shift);
    }
    return true;
}

const struct frames_backend frames_backend_memfd = {
    .open = open_memfd, .close = close_shared, .copy = copy_memory, .populate = populate_shared, .discard = discard_shared, .show = show_shared};
const struct frames_backend frames_backend_hugetlb = {
    .open = open_hugetlb, .close = close_shared, .copy = copy_memory, .populate = populate_shared, .discard = discard_huge, .show = show_shared};

/* ------------------------------------------------------------------ private memory */

static enum frames_status open_anon(struct frame_zone *zone, unsigned node) {
    size_t bytes = zone->frames << zone->frame_shift;
    zone->base = platform_reserve(NULL, bytes, FRAMES_SUPERPAGE_BYTES);
    if (zone->base == NULL) return FRAMES_NO_MEMORY;
    bool committed = platform_commit(zone->base, bytes);
    if (committed && ((zone->flags & FRAMES_ON_NODE) == 0 || platform_bind_node(zone->base, bytes, node))) return FRAMES_OK;
    platform_unreserve(zone->base, bytes);
    return committed ? FRAMES_UNSUPPORTED : FRAMES_NO_MEMORY;
}
static void close_anon(struct frame_zone *zone) { platform_unreserve(zone->base, zone->frames << zone->frame_shift); }
static bool populate_anon(struct frame_zone *zone, uint64_t frame, uint64_t frames) {
    return platform_populate(zone->base + (frame << zone->frame_shift), frames << zone->frame_shift);
}
static bool discard_anon(struct frame_zone *zone, uint64_t frame, uint64_t frames) {
    return platform_release(zone->base + (frame << zone->frame_shift), frames << zone->frame_shift);
}
const struct frames_backend frames_backend_anon = {
    .open = open_anon, .close = close_anon, .copy = copy_memory, .populate = populate_anon, .discard = discard_anon};

/* ------------------------------------------------------------------ private memory of somebody else's */

static enum frames_status open_heap(struct frame_zone *zone, unsigned node) {
    (void)node;
    if ((zone->flags & FRAMES_ON_NODE) != 0) return FRAMES_UNSUPPORTED; /* its neighbours in the heap's mapping are not to be bound */
    zone->base = zone->lender->lend(zone->frames << zone->frame_shift);
    return zone->base != NULL ? FRAMES_OK : FRAMES_NO_MEMORY;
}
static void close_heap(struct frame_zone *zone) { zone->lender->take_back(zone->base); }
static bool discard_heap(struct frame_zone *zone, uint64_t frame, uint64_t frames) {
    return zone->lender->discard(zone->base + (frame << zone->frame_shift), frames << zone->frame_shift);
}
const struct frames_backend frames_backend_heap = {
    .open = open_heap, .close = close_heap, .copy = copy_memory, .populate = populate_anon, .discard = discard_heap};

/* ------------------------------------------------------------------ no memory */

static enum frames_status open_sim(struct frame_zone *zone, unsigned node) {
    return (zone->flags & FRAMES_ON_NODE) == 0 || node == 0 ? FRAMES_OK : FRAMES_UNSUPPORTED;
}
static void close_sim(struct frame_zone *zone) { (void)zone; }
/* Words that are 0 anyway take no memory by being copied over others that are. */
static void set_word(struct frame_zone *zone, uint64_t frame, uint64_t word) {
    if (__atomic_load_n(&zone->words[frame], __ATOMIC_RELAXED) != word) __atomic_store_n(&zone->words[frame], word, __ATOMIC_RELAXED);
}
static void copy_sim(struct frame_zone *zone, uint64_t from, uint64_t to, uint64_t frames) {
    for (uint64_t i = 0; i < frames; i++) {
        set_word(zone, to + i, __atomic_load_n(&zone->words[from + i], __ATOMIC_RELAXED));
        frames_touch(zone, from + i, false);
        frames_touch(zone, to + i, true);
    }
}
static bool populate_sim(struct frame_zone *zone, uint64_t frame, uint64_t frames) {
    (void)zone;
    (void)frame;
    (void)frames;
    return true;
}
static bool discard_sim(struct frame_zone *zone, uint64_t frame, uint64_t frames) {
    for (uint64_t i = 0; i < frames; i++) {
        set_word(zone, frame + i, 0);
        frames_touch(zone, frame + i, true); /* zeros are not what a file may have */
    }
    return true;
}
const struct frames_backend frames_backend_sim = {
    .open = open_sim, .close = close_sim, .copy = copy_sim, .populate = populate_sim, .discard = discard_sim};

/* ------------------------------------------------------------------ contents */

void *frames_address(const struct frame_zone *zone, uint64_t frame) {
    return zone->base != NULL && frame < zone->frames ? zone->base + (frame << zone->frame_shift) : NULL;
}
int frames_file(const struct frame_zone *zone) { return zone->file; }
size_t frames_frame_bytes(const struct frame_zone *zone) { return (size_t)1 << zone->frame_shift; }
uint64_t frames_count(const struct frame_zone *zone) { return zone->frames; }

void frames_copy(struct frame_zone *zone, uint64_t from, uint64_t to, uint64_t frames) { zone->backend->copy(zone, from, to, frames); }

static void set_bit(uint64_t *bits, uint64_t frame) {
    uint64_t bit = UINT64_C(1) << frame % 64, *word = frames_used_word(bits, frame);
    if ((__atomic_load_n(word, __ATOMIC_RELAXED) & bit) == 0) __atomic_fetch_or(word, bit, __ATOMIC_RELAXED);
}
void frames_touch(struct frame_zone *zone, uint64_t frame, bool write) {
    set_bit(zone->referenced, frame);
    if (write && zone->kind == FRAMES_SIM) set_bit(zone->dirty, frame);
}
static uint64_t *word_of(struct frame_zone *zone, uint64_t frame) {
    return zone->words != NULL ? &zone->words[frame] : (uint64_t *)(void *)(zone->base + (frame << zone->frame_shift));
}
uint64_t frames_peek(struct frame_zone *zone, uint64_t frame) {
    if (zone->words != NULL) frames_touch(zone, frame, false);
    return __atomic_load_n(word_of(zone, frame), __ATOMIC_RELAXED);
}
void frames_poke(struct frame_zone *zone, uint64_t frame, uint64_t word) {
    if (zone->words != NULL) frames_touch(zone, frame, true);
    __atomic_store_n(word_of(zone, frame), word, __ATOMIC_RELAXED);
}
enum frames_status frames_populate(struct frame_zone *zone, uint64_t frame, uint64_t frames) {
    return zone->backend->populate(zone, frame, frames) ? FRAMES_OK : FRAMES_NO_MEMORY;
}
enum frames_status frames_discard(struct frame_zone *zone, uint64_t frame, uint64_t frames) {
    return zone->backend->discard(zone, frame, frames) ? FRAMES_OK : FRAMES_UNSUPPORTED;
}
