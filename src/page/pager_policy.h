/*
 * pager_policy.h - which page leaves next, and which are read ahead. Pure: decisions on numbers, carried out by the pager.
 *
 * A processor keeps its marks of use from us, so use is sampled: the pager takes a page out of the program's reach while it stays in memory (HELD),
 * and the fault that brings it back, which needs no file, is the mark. The clock has two hands at a fixed distance: the first one samples, the second
 * evicts what was not used in between. Guarded by the pager's lock.
 */
#ifndef STRATA_PAGE_PAGER_POLICY_H
#define STRATA_PAGE_PAGER_POLICY_H

#include "page/pager_frames.h"

enum pager_action {
    PAGER_NOTHING, /* no page can leave now */
    PAGER_SAMPLE,  /* hold this page: a fault will tell whether it is used */
    PAGER_EVICT,
};

/* The functions of the program that replace the clock; NULL: not of interest. */
struct pager_policy {
    void (*enter)(uint64_t page, void *argument);
    void (*touch)(uint64_t page, void *argument);
    void (*leave)(uint64_t page, void *argument);
    enum pager_action (*next)(uint64_t *page, void *argument);
    void *argument;
};

struct pager_clock {
    uint32_t hand;     /* the one that evicts: a frame */
    uint32_t distance; /* of the one that samples, ahead of it */
    bool sampled;      /* the other hand has done its step */
    uint64_t steps;    /* since a page was evicted */
};
#define PAGER_CLOCK_DISTANCE_MAX 4096

STRATA_INLINE void pager_clock_init(struct pager_clock *clock, uint32_t limit_pages) {
    *clock = (struct pager_clock){.distance = (uint32_t)min_u64(max_u64(limit_pages / 4, 1), PAGER_CLOCK_DISTANCE_MAX)};
}
/*
 * What is to be done next, from where the hands are. After two rounds in vain, any page
 * that isn't busy; PAGER_NOTHING after three.
 */
enum pager_action pager_clock_next(struct pager_clock *clock, const struct frames *frames, uint32_t *page);

/* Faults that follow each other: a few at a time, as a merge reads from many places. */
#define PAGER_STREAMS 8
struct pager_streams {
    struct pager_stream {
        uint32_t expected; /* the page behind the last fault; 0: none yet */
        uint32_t end;      /* pages below are asked for */
    } streams[PAGER_STREAMS];
    unsigned oldest;
};
/* A fault. Returns how many pages from *first on should be read ahead: none unless it follows another one. */
uint32_t pager_streams_note(struct pager_streams *streams, uint32_t page, uint32_t window_pages, uint32_t pages, uint32_t *first);

#endif
