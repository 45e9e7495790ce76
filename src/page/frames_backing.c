/*
 * frames_backing.c - blocks to the files of their owners, and back. See frames_backing.h.
 *
 * The place of a block is its token, in frames. On a zone without memory a frame's contents are a word, which is at the beginning of its place. The
 * file may be closed or replaced by a program that closes what it does not know: each call looks, and nothing is ever written to another file.
 */
#include "page/frames_backing.h"

#include "page/frames_internal.h"
#include "page/frames_reclaim_internal.h"

static uint64_t offset_of(const struct frame_zone *zone, uint64_t token) { return token << zone->frame_shift; }

const struct frames_owner *frames_owner_get(const struct frame_zone *zone, unsigned owner) {
    return owner != 0 && owner <= __atomic_load_n(&zone->owner_count, __ATOMIC_ACQUIRE) ? &zone->owners[owner] : NULL;
}

enum frames_status frames_backing_open(struct frame_zone *zone, unsigned owner, const struct frames_backing_config *config, int *error) {
    size_t bytes = align_up(sizeof(struct frames_backing), platform_info()->page_bytes);
    void *none = NULL;
    if (frames_backing_of(&zone->owners[owner]) != NULL) return FRAMES_BUSY;
    struct frames_backing *backing = platform_reserve(NULL, bytes, platform_info()->page_bytes);
    if (backing == NULL) return FRAMES_NO_MEMORY;
    enum frames_status status = platform_commit(backing, bytes) ? FRAMES_OK : FRAMES_NO_MEMORY;
    *error = status == FRAMES_OK ? platform_store_open(&backing->store, config->path, config->file, config->bytes) : 0;
    if (*error != 0) status = FRAMES_FILE_ERROR;
    if (status == FRAMES_OK) {
        backing->config = *config;
        backing->config.path = NULL;
        backing->process = platform_process_id();
        backing->footprint_bytes = bytes;
        if (__atomic_compare_exchange_n(&zone->owners[owner].backing, &none, (void *)backing, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return FRAMES_OK;
        platform_store_close(&backing->store); /* another thread was first */
        status = FRAMES_BUSY;
    }
    platform_unreserve(backing, bytes);
    return status;
}

void frames_backings_close(struct frame_zone *zone) {
    for (unsigned i = 1; i <= zone->owner_count; i++) {
        struct frames_backing *backing = frames_backing_of(&zone->owners[i]);
        if (backing == NULL) continue;
        platform_store_close(&backing->store);
        platform_unreserve(backing, backing->footprint_bytes);
    }
}

bool frames_backing_has_place(const struct frame_zone *zone, const struct frames_backing *backing, uint64_t frames, uint64_t token) {
    uint64_t places = backing->config.bytes >> zone->frame_shift;
    return token < places && frames <= places - token;
}

/* ------------------------------------------------------------------ contents */

static int write_frames(struct frame_zone *zone, struct frames_backing *backing, uint64_t frame, uint64_t frames, uint64_t token) {
    if (zone->base != NULL)
        return platform_store_write(&backing->store, frames_address(zone, frame), frames << zone->frame_shift, offset_of(zone, token));
    int error = 0;
    for (uint64_t i = 0; i < frames && error == 0; i++) {
        uint64_t word = __atomic_load_n(&zone->words[frame + i], __ATOMIC_RELAXED);
        error = platform_store_write(&backing->store, &word, sizeof word, offset_of(zone, token + i));
    }
    return error;
}

/* Clean afterwards, where writes are told: frames_used.c. */
static int read_frames(struct frame_zone *zone, struct frames_backing *backing, uint64_t frame, uint64_t frames, uint64_t token) {
    if (zone->base != NULL)
        return platform_store_read(&backing->store, frames_address(zone, frame), frames << zone->frame_shift, offset_of(zone, token));
    int error = 0;
    for (uint64_t i = 0; i < frames && error == 0; i++) {
        uint64_t word;
        error = platform_store_read(&backing->store, &word, sizeof word, offset_of(zone, token + i));
        if (error == 0) frames_poke(zone, frame + i, word);
    }
    if (error == 0) {
        frames_used_forget(zone, frame, frames);
        for (uint64_t i = 0; i < frames; i++) frames_touch(zone, frame + i, false);
    }
    return error;
}

enum frames_answer frames_backing_write(struct frame_zone *zone, const struct frames_block *block) {
    const struct frames_owner *owner = &zone->owners[note_owner(block->note)];
    struct frames_backing *backing = frames_backing_of(owner);
    if (backing == NULL) return FRAMES_LATER;
    int error = PLATFORM_STORE_NO_DATA; /* there is no place for it */
    bool writes = frames_used_dirty(zone, block->first, block->frames);
    if (!writes)
        error = 0;
    else if (backing->process != platform_process_id() || !frames_backing_has_place(zone, backing, block->frames, block->token))
        __atomic_fetch_add(&backing->counts.without_place, 1, __ATOMIC_RELAXED);
    else if ((error = write_frames(zone, backing, block->first, block->frames, block->token)) != 0)
        __atomic_fetch_add(&backing->counts.write_errors, 1, __ATOMIC_RELAXED);
    else
        __atomic_fetch_add(&backing->counts.written, block->frames, __ATOMIC_RELAXED);
    if (backing->config.written != NULL) backing->config.written(zone, owner, block->first, block->frames, block->token, error);
    return error != 0 ? FRAMES_LATER : writes ? FRAMES_WROTE : FRAMES_YES;
}

int frames_backing_read(struct frame_zone *zone, struct frames_backing *backing, uint64_t frame, uint64_t frames, uint64_t token) {
    int error = read_frames(zone, backing, frame, frames, token);
    if (error == 0)
        __atomic_fetch_add(&backing->counts.read, frames, __ATOMIC_RELAXED);
    else
        __atomic_fetch_add(&backing->counts.read_errors, 1, __ATOMIC_RELAXED);
    return error;
}

void frames_backing_counts_get(const struct frames_backing *backing, struct frames_backing_counts *counts) {
    const uint64_t *from = &backing->counts.written;
    uint64_t *to = &counts->written;
    for (size_t i = 0; i < sizeof *counts / sizeof *to; i++) to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
}
