/*
 * strata/zone_compact.h - compaction of zones (strata/zone.h): movable blocks go to the end of the zone, so that what is free lies together.
 *
 * It happens by itself where a request fails although enough is free (strata_zone_set_effort), in advance by a thread of the zone's
 * (strata_zone_compactor_start), or when the program says so (strata_zone_compact). Blocks move whose owner has a function for that, and those of
 * which windows show every frame; pinned ones never, nor those that are larger than a superpage. What a window shows moves only where userfaultfd
 * serves faults of system calls (strata/zone.h), which takes a privilege. The design follows Gorman, Whitcroft, "Supporting the
 * Allocation of Large Contiguous Regions of Memory" (2007), section 7.
 *
 * Valid in C11 and C++. For all functions: threads: any. Signals: not for signal handlers. errno stays as it was. fork: as the zone, also in the
 * middle of a pass; a child has no compactor, and can have one. A null pointer to a zone, or for a result where it is not said to be allowed, is
 * STRATA_ZONE_BAD_ARGUMENT; of what else is wrong strata_zone_explain tells more; what fails has changed nothing.
 */
#ifndef STRATA_ZONE_COMPACT_H
#define STRATA_ZONE_COMPACT_H

#include <strata/zone.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How fragmented what is free is, for blocks of 2^order frames. (Section 7.2 and 7.3.) */
struct strata_zone_indices {
    /* Why a request fails: towards 0 for want of memory, towards 1 as it is in pieces. Below 0: a block of the order is free. 0 where nothing is. */
    double fragmentation;
    double movable_fragmentation; /* the same of movable superpages alone: what compaction could do something about */
    /* Which part of what is free is of no use to such a request, 0 to 1. 1 where nothing is free. */
    double unusable;
};
/* strata_zone_indices_get - order: below STRATA_ZONE_ORDERS. Cost: linear in superpages, some 0.1 us each. */
STRATA_API enum strata_zone_status strata_zone_indices_get(struct strata_zone *zone, unsigned order,
                                                           struct strata_zone_indices *indices) STRATA_NOEXCEPT;

/* What passes did. Blocks, where nothing else is said. */
struct strata_zone_compact_counts {
    uint64_t passes, done, met; /* passes; those that had the request that they were made for; that ended because the scanners met */
    uint64_t moved, moved_frames;
    uint64_t windows;          /* of the wanted size, emptied */
    uint64_t failed_pinned;    /* left where they are: for these reasons */
    uint64_t failed_busy;      /* being moved or reclaimed by somebody else */
    uint64_t failed_unmovable; /* nobody can be asked, and no windows show all of it; or the owner has said STRATA_ZONE_NEVER */
    uint64_t failed_later;     /* the owner said so; or a window shows it, and the system can't hold writes back (strata/zone.h) */
    uint64_t failed_room;      /* nothing suitable was free above */
    uint64_t gone;             /* freed before they could be moved */
    uint64_t races_lost;       /* ranges that were emptied for a request while nothing was held, and others took some of (strata_zone_set_effort) */
    uint64_t deferred;         /* requests without a pass, as the last ones were in vain */
};
/*
 * strata_zone_compact - a pass over the whole zone, on this thread, which asks owners to move their blocks.
 *
 * order: blocks of 2^order frames are wanted free, up to a superpage; groups of frames in which something can't be moved are left alone. counts: of
 * this pass; may be NULL. Returns STRATA_ZONE_OK; STRATA_ZONE_BAD_ARGUMENT; STRATA_ZONE_NO_MEMORY; STRATA_ZONE_BUSY: called by a function of the
 * program that this zone's compaction has called; or another thread's pass is under way, and stands still in one, or this is called by one that
 * strata has called for another zone. Else it waits for that pass to end (strata_zone_set_effort has the bounds). Cost: linear in superpages, and of
 * what is moved: for each block some 0.3 us, the copy and the owner's function.
 */
STRATA_API enum strata_zone_status strata_zone_compact(struct strata_zone *zone, unsigned order, struct strata_zone_compact_counts *counts);

/* What strata_zone_compactor_start wants to know. Zero takes what is in brackets. */
struct strata_zone_compactor_config {
    unsigned order;       /* blocks of 2^order frames are wanted, up to a superpage [3] */
    double unusable;      /* a pass is made while the index is above this, 0 to 1 [0.75] */
    uint64_t interval_ns; /* between two looks, at least 1 ms, at most 2^56; up to 64 times as long after passes that moved nothing [1 s] */
};
/*
 * strata_zone_compactor_start - a thread that compacts the zone in advance: when the unusable-free-space index is above the limit, when a request had
 * to go to a superpage of another group, and when reclaim has freed enough.
 *
 * config: NULL: all defaults. Returns STRATA_ZONE_OK; STRATA_ZONE_BUSY: there is one; STRATA_ZONE_BAD_ARGUMENT; STRATA_ZONE_NO_MEMORY: also where
 * there is no thread to be had. Cost: a thread; each look at the index is as strata_zone_indices_get, each pass as strata_zone_compact, and an
 * allocation that fell back wakes the thread. (Section 7.3.)
 */
STRATA_API enum strata_zone_status strata_zone_compactor_start(struct strata_zone *zone, const struct strata_zone_compactor_config *config);
/*
 * strata_zone_compactor_stop - ends it, and waits for that: the caller must not be at odds with an owner's functions over a lock. STRATA_ZONE_OK also
 * where there is none, and in a forked child. STRATA_ZONE_BUSY: there is one, and a function of the program called this that strata has called, for
 * this zone or another; it goes on. strata_zone_destroy stops it, too.
 */
STRATA_API enum strata_zone_status strata_zone_compactor_stop(struct strata_zone *zone);
/* strata_zone_compactor_wake - it makes a pass soon, whatever the index is; nothing where there is none. Cost: constant. */
STRATA_API enum strata_zone_status strata_zone_compactor_wake(struct strata_zone *zone) STRATA_NOEXCEPT;

struct strata_zone_compact_stats {
    struct strata_zone_compact_counts counts; /* of all passes, whoever made them */
    bool compactor;                           /* there is one */
    uint64_t looks, wakes, fallbacks;         /* of it: at the index; that it was woken; that requests fell back to another group */
    uint64_t compactor_passes, successes;     /* a success brings the index from above the limit to below it */
    double unusable_before, unusable_after;   /* of its last pass */
};
/* strata_zone_compact_stats_get - since the zone was created. Cost: constant. */
STRATA_API enum strata_zone_status strata_zone_compact_stats_get(struct strata_zone *zone, struct strata_zone_compact_stats *stats) STRATA_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
