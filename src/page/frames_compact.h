/*
 * frames_compact.h - compaction of a zone of frames (contiguity paper, section 7): passes, and the thread that makes them. With frames.h
 * a facade of page/.
 *
 * A pass has two scanners. The migration scanner goes up from the first superpage, window by window (2^order frames that the goal wants free), the
 * free scanner down from the last; movable blocks of a window that can be emptied go to free frames of movable superpages at the top. Invariants: no
 * block is moved twice in a pass, as all targets are above `lowest_target` and all sources below; a pinned one never, as it can't be isolated; a pass
 * ends when the scanners meet. One pass runs in a zone at a time; no lock is held between its steps, so that everything else goes on.
 *
 * Locks: none of its own. compaction->passing is a futex: the number of the thread that has the pass, so that a function of the program which
 * allocates in the middle of one is not made to wait for itself. Who finds another's pass under way waits for its end, but not as for a lock: the
 * pass calls functions of the program, which may want what the waiter has. So a waiter goes its way once the pass has stood still for
 * FRAMES_STILL_NS, and one that is in a function of the program does not wait at all: two zones whose owners allocate in each other would wait in a
 * circle.
 */
#ifndef STRATA_PAGE_FRAMES_COMPACT_H
#define STRATA_PAGE_FRAMES_COMPACT_H

#include "page/frames.h"
#include "page/frames_index.h"

/* Far above what a pass that goes on stands still for on a busy machine, and bearable where it is waited for in vain. */
#define FRAMES_STILL_NS UINT64_C(300000000)

struct frames_compact_goal {
    const struct frames_request *request; /* has the first range that was emptied, and the pass ends then; NULL: until the scanners meet */
    unsigned order;                       /* of windows; at most a superpage's. Of a request: the least that it fits in */
    bool movable_only;                    /* only superpages of the movable group; else movable blocks leave those of other groups, too */
    uint64_t superpages;                  /* only windows in the first so many, as the request may have no others; 0: all */
    bool no_hold;                         /* for comparison: others may take frames of a range while it is emptied for the request */
};

/* What passes did: of one, or summed up. Blocks, where nothing else is said. */
struct frames_compact_counts {
    uint64_t passes, done, met; /* passes that were made; that had their request; that ended because the scanners met */
    uint64_t moved, moved_frames;
    uint64_t windows;          /* emptied */
    uint64_t failed_pinned;    /* windows left alone, or blocks: for these reasons */
    uint64_t failed_busy;      /* isolated by somebody else */
    uint64_t failed_unmovable; /* nobody can be asked, or its owner said NEVER */
    uint64_t failed_later;     /* its owner said so, or the copy was given up */
    uint64_t failed_room;      /* no free frames above */
    uint64_t gone;             /* freed before they could be isolated: as good as moved */
    uint64_t races_lost;       /* ranges that were emptied for a request, and others took frames of: of 64 captures at a time all are held */
    uint64_t deferred;         /* requests that made no pass, as the last ones were in vain */
};

enum frames_compact_end {
    FRAMES_COMPACT_DONE,   /* *frame is the request's */
    FRAMES_COMPACT_MET,    /* nothing more can be moved */
    FRAMES_COMPACT_OTHER,  /* another thread's pass was under way, and has ended now: try again */
    FRAMES_COMPACT_BUSY,   /* and has not: it stands still in a function of the program, or this thread is in one, of any zone. Nothing was done */
    FRAMES_COMPACT_WITHIN, /* called from within a pass: nothing was done */
    FRAMES_COMPACT_NO_MEMORY,
};
/* No lock held. counts (unless NULL): of this pass. frame: for goal->request. */
enum frames_compact_end frames_compact(struct frame_zone *zone, const struct frames_compact_goal *goal, struct frames_compact_counts *counts,
                                       uint64_t *frame);
/* All passes of the zone. */
void frames_compact_counts_get(struct frame_zone *zone, struct frames_compact_counts *counts);
/*
 * Free blocks now: of the first `superpages` (0: all), or of those of them that are movable or wholly free. Linear in superpages, some 50 ns each; a
 * lock at a time, so that the sum is of no one moment.
 */
void frames_free_get(struct frame_zone *zone, uint64_t superpages, bool movable_only, struct frames_free *free);
/* The same of each `step`-th of the first `superpages`, from `first` on. No block of a sample (step above 1) is larger than a superpage. */
void frames_free_sample(struct frame_zone *zone, uint64_t superpages, uint64_t first, uint64_t step, bool movable_only, struct frames_free *free);

/*
 * frames_direct.c: what frames_alloc_hard does when compaction has not helped, or memory is short (figure 10, step 11). reclaim: frees frames with
 * `request` in mind, and returns how many; *frame: the run, where the request has it by that alone, else FRAMES_NONE. Set by reclaim's start; NULL:
 * nobody reclaims. False: no memory.
 */
typedef uint64_t frames_reclaim_function(struct frame_zone *zone, const struct frames_request *request, uint64_t *frame);
bool frames_direct_set_reclaim(struct frame_zone *zone, frames_reclaim_function *reclaim);

/* frames_compactor.c: a thread that makes passes when the unusable-free-space index is above `unusable`, when an allocation fell back to another
 * group, and when it is woken. */
struct frames_compactor_config {
    unsigned order; /* of the index, and of the windows */
    double unusable;
    uint64_t interval_ns; /* between two looks; longer after passes in vain */
};
/* FRAMES_BUSY: there is one; FRAMES_NO_MEMORY: no thread. */
enum frames_status frames_compactor_start(struct frame_zone *zone, const struct frames_compactor_config *config);
/* Waits for its end. Not from a function of the program that any zone calls: FRAMES_BUSY. FRAMES_OK also where there is none. */
enum frames_status frames_compactor_stop(struct frame_zone *zone);
/* It makes a pass soon, whatever the index is. Nothing where there is none. Any thread, also with locks held. */
void frames_compaction_wake(struct frame_zone *zone);
struct frames_compactor_counts {
    bool running;
    uint64_t looks, wakes, fallbacks;       /* at the index; by frames_compaction_wake; by allocations that fell back */
    uint64_t passes, successes;             /* a success: the index was above the limit, and is not afterwards */
    double unusable_before, unusable_after; /* of the last pass */
};
void frames_compactor_counts_get(struct frame_zone *zone, struct frames_compactor_counts *counts);

/* Whether this thread makes a pass, so that it is a function of the program which asks; whether the zone's own thread is there. */
bool frames_compaction_is_within(struct frame_zone *zone);
bool frames_compactor_runs(struct frame_zone *zone);
/* Whether a pass is under way that is not of that thread. */
bool frames_compaction_is_callers(struct frame_zone *zone);
/* The zone goes, after frames_compactor_stop: what compaction remembers is given back. */
void frames_compaction_end(struct frame_zone *zone);

#endif
