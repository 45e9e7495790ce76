/*
 * frames_backing.h - files that blocks of an owner go to when they are dropped dirty, over the same layer of files as user-mode paging (pager_io.c).
 *
 * An owner that answers FRAMES_WRITE has put the block out of its users' reach, and hands the write to the zone: the block stays isolated until its
 * contents are in the file, at its token's place, and is free then. The owner is told of either end before anybody else can have the frames.
 * One file an owner, from frames_backing_open to the zone's end. No locks: the pointer is published once, counters are atomic.
 */
#ifndef STRATA_PAGE_FRAMES_BACKING_H
#define STRATA_PAGE_FRAMES_BACKING_H

#include "page/frames.h"

struct frames_block;

struct frames_backing_config {
    const char *path; /* NULL: `file` */
    int file;
    uint64_t bytes;
    /* error: 0, or as platform_store_write answers it. NULL: nobody is told. */
    void (*written)(struct frame_zone *zone, const struct frames_owner *owner, uint64_t frame, uint64_t frames, uint64_t token, int error);
    void (*program_written)(void); /* api/'s, as those of struct frames_owner */
    void *context;
};
struct frames_backing_counts {
    uint64_t written, read; /* frames */
    uint64_t write_errors, read_errors, without_place;
};
struct frames_backing {
    struct frames_backing_config config; /* immutable; path: gone */
    struct platform_store store;
    uint32_t process;                    /* that writes: a forked child does not */
    struct frames_backing_counts counts; /* atomic each */
    size_t footprint_bytes;
};

/* FRAMES_BUSY: the owner has one; FRAMES_NO_MEMORY; FRAMES_FILE_ERROR, and *error. */
enum frames_status frames_backing_open(struct frame_zone *zone, unsigned owner, const struct frames_backing_config *config, int *error);
/* NULL: none. */
STRATA_INLINE struct frames_backing *frames_backing_of(const struct frames_owner *owner) {
    return (struct frames_backing *)__atomic_load_n(&owner->backing, __ATOMIC_ACQUIRE);
}
const struct frames_owner *frames_owner_get(const struct frame_zone *zone, unsigned owner);
/* Whether the file has a place for a block with this token. */
bool frames_backing_has_place(const struct frame_zone *zone, const struct frames_backing *backing, uint64_t frames, uint64_t token);
/*
 * The contents of an isolated block to the file, unless it is clean, as its users had it up to now. FRAMES_YES: it is; FRAMES_WROTE; FRAMES_LATER: it
 * stays. Its owner knows then. No lock held.
 */
enum frames_answer frames_backing_write(struct frame_zone *zone, const struct frames_block *block);
/* The other way, into frames of the caller's. 0, or an error as platform_store_read answers it. */
int frames_backing_read(struct frame_zone *zone, struct frames_backing *backing, uint64_t frame, uint64_t frames, uint64_t token);
void frames_backing_counts_get(const struct frames_backing *backing, struct frames_backing_counts *counts);
/* All of the zone, which goes. */
void frames_backings_close(struct frame_zone *zone);

#endif
