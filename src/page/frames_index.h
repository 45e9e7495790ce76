/*
 * frames_index.h - how fragmented free frames are: blocks by order, and the two indices of the contiguity paper, section 7. Pure.
 *
 * A block of order j is 2^j free frames that begin at a multiple of 2^j and are not part of a larger one: what a buddy allocator would keep in its
 * lists, counted from bitfields. So each free frame is in one block, and the sum of blocks times their sizes is the number of free frames. Blocks end
 * with FRAMES_INDEX_ORDERS - 1; what is larger counts as several.
 * No lock: the caller has the numbers to himself.
 */
#ifndef STRATA_PAGE_FRAMES_INDEX_H
#define STRATA_PAGE_FRAMES_INDEX_H

#include "base/base.h"

#define FRAMES_INDEX_ORDERS 31u /* of 4 KiB frames: 4 TiB */
#define FRAMES_INDEX_WORDS 8u   /* of a superpage of 512 frames; smaller ones use less */

struct frames_free {
    uint64_t blocks[FRAMES_INDEX_ORDERS];
};

/* frames_free_count_superpage, frames_free_end: superpages in the order of their addresses. Zero-initialised but for superpage_frames. */
struct frames_free_scan {
    struct frames_free free;
    unsigned superpage_frames;    /* a power of two of at most 64 * FRAMES_INDEX_WORDS */
    uint64_t run_start, run_next; /* superpages that are free as a whole and not counted yet: [run_start, run_next) */
};
/* free: a bit a frame, set where it is free; those beyond the superpage are ignored. A superpage left out counts as taken. Cost: some 20 ns. */
void frames_free_count_superpage(struct frames_free_scan *scan, uint64_t superpage, const uint64_t *free);
void frames_free_end(struct frames_free_scan *scan);
/* A block of frames that is free as a whole and aligned however: cut into blocks. */
void frames_free_count_run(struct frames_free *free, uint64_t start, uint64_t frames);

uint64_t frames_free_total(const struct frames_free *free);
/* Whether a block of the order, or a larger one, is there. */
bool frames_free_suffices(const struct frames_free *free, unsigned order);

/*
 * Why an allocation of 2^order frames failed: 1 - (free / 2^order) / blocks, 0 without blocks. Towards 0: for lack of memory; towards 1: memory is
 * there, in pieces. Only of use after a failure: below 0 where an allocation would succeed.
 */
double frames_fragmentation_index(const struct frames_free *free, unsigned order);
/* The part of the free frames that an allocation of 2^order frames can't use: (free - sum of blocks that are large enough) / free, 1 without any. */
double frames_unusable_index(const struct frames_free *free, unsigned order);

#endif
