/*
 * strata/zone_reclaim.h - reclaim in zones (strata/zone.h): frames that were not used for long are had back from their owners.
 *
 * Once it is started for a zone, every reclaimable or movable block whose owner has a function `reclaim` stands in one of two lists, active and
 * inactive, by the time since it was last used. Who wants memory takes from the old end of the inactive list, or, for a large run, empties the area
 * round the oldest block; a block that was used since somebody looked stays. It happens where a request fails (strata_zone_set_effort), in advance by
 * a thread of the zone's between two watermarks, or when the program says so (strata_zone_reclaim). An area that is emptied for a request is captured
 * for it, or, where the zone was told not to (strata_zone_set_effort), becomes free superpage by superpage, once all in one were dropped.
 *
 *     const struct strata_zone_reclaim_config config = {.policy = STRATA_ZONE_RECLAIM_AREA, .low_frames = 4096, .high_frames = 8192, .thread = true};
 *     if (strata_zone_reclaim_start(zone, &config) != STRATA_ZONE_OK) ...
 *
 * Used or not: on STRATA_ZONE_SIM each strata_zone_peek, _poke, _touch and _copy counts, exactly. On STRATA_ZONE_MEMFD frames are taken out of the
 * page tables when they are looked at, at strata_zone_address, and have been used if they are there at the next look. That is the page of the access;
 * where the system forbids userfaultfd, which strata_zone_reclaim_start asks for, also up to 15 neighbours of one that is read. Uses by
 * another mapping, a device, or another process are not seen: strata_zone_touch tells of them, and a pin keeps a block from being asked about. What a
 * window shows is not dropped, whatever its use. On STRATA_ZONE_ANON, _HEAP and _HUGETLB nothing is seen: only strata_zone_touch counts there.
 * All of this is of how long ago a block was used. Memory counts as dirty whatever its use; see `reclaim` of struct strata_zone_owner.
 *
 * Valid in C11 and C++. Threads, statuses, fork and signals: as strata/zone.h says. A forked child has no thread of the zone's:
 * strata_zone_reclaim_stop, then _start, gives it one.
 *
 * The design follows Gorman, Whitcroft, "Supporting the Allocation of Large Contiguous Regions of Memory" (2007), sections 3 and 5.4.
 */
#ifndef STRATA_ZONE_RECLAIM_H
#define STRATA_ZONE_RECLAIM_H

#include <strata/zone.h>

#ifdef __cplusplus
extern "C" {
#endif

enum strata_zone_reclaim_policy {
    STRATA_ZONE_RECLAIM_LRU,    /* the oldest first, wherever they lie: regular reclaim */
    STRATA_ZONE_RECLAIM_LINEAR, /* areas in the order of their addresses, whatever their age (section 3.1) */
    STRATA_ZONE_RECLAIM_AREA,   /* the area of the oldest block that can be emptied (section 3.2); above 2 GiB any, where hardly a block is in one */
    STRATA_ZONE_RECLAIM_POLICIES,
};

/* Zero in what isn't needed. */
struct strata_zone_reclaim_config {
    enum strata_zone_reclaim_policy policy;
    /*
     * Free frames of the zone. Below `low` the thread begins, and goes on up to `high`; a request that reclaims for itself goes on up to `min`.
     * min <= low <= high <= the zone's frames; all 0: min is the zone's reserve at that time or 1/128 of them, whichever is more, and 1/128 lies
     * between any two. Free frames of the reserve count, so that a `low` which is not above it has small runs go to other groups' superpages in
     * place of reclaim, and these mixed.
     */
    uint64_t min_frames, low_frames, high_frames;
    bool thread;
};
/*
 * strata_zone_reclaim_start - from now on uses are told, lists kept, and requests reclaim.
 *
 * Returns STRATA_ZONE_OK; STRATA_ZONE_BUSY: it was started already; STRATA_ZONE_NO_MEMORY: for the lists, or no thread; STRATA_ZONE_BAD_ARGUMENT.
 * Blocks that are there already stand in the lists in the order of their addresses. Cost: linear in superpages and blocks; 8 bytes for each frame
 * that begins a block with an owner. An allocation and a free of such a block hardly cost more than without reclaim (up to 15 ns), also where CPUs do
 * so at the same time: what comes and goes in a CPU's own superpages is entered in the lists some 200 blocks at a time, fewer where frames are large,
 * and before anything is reclaimed.
 */
STRATA_API enum strata_zone_status strata_zone_reclaim_start(struct strata_zone *zone,
                                                             const struct strata_zone_reclaim_config *config) STRATA_NOEXCEPT;
/* strata_zone_reclaim_stop - no more of it: the thread ends, the lists are forgotten. STRATA_ZONE_BUSY: another thread, or a function of the
 * program's that called this, is reclaiming; or it has a thread, and strata has called the function that calls this, for whatever zone. Not started:
 * nothing. No other thread may be in a call on the zone. strata_zone_destroy does it, too. */
STRATA_API enum strata_zone_status strata_zone_reclaim_stop(struct strata_zone *zone) STRATA_NOEXCEPT;
/* strata_zone_reclaim_set_policy - from the next reclaim on. STRATA_ZONE_BAD_ARGUMENT: not started, or no policy. */
STRATA_API enum strata_zone_status strata_zone_reclaim_set_policy(struct strata_zone *zone, enum strata_zone_reclaim_policy policy) STRATA_NOEXCEPT;

/*
 * strata_zone_reclaim - reclaims on this thread, by the policy, until `frames` frames have been dropped; by areas of 2^order frames.
 *
 * reclaimed: receives how many were, also where it fails; may be NULL. Returns STRATA_ZONE_OK; STRATA_ZONE_NO_FRAMES: all were looked at, and fewer
 * could be dropped; STRATA_ZONE_BAD_ARGUMENT: not started, frames 0, or an order above that of a superpage; STRATA_ZONE_BUSY, and nothing was done:
 * within an owner's function, or 16 threads reclaim. Calls owners' functions. Cost: that of the blocks looked at, each some 0.2 us
 * (STRATA_ZONE_MEMFD: 10 us), and of what owners do.
 */
STRATA_API enum strata_zone_status strata_zone_reclaim(struct strata_zone *zone, uint64_t frames, unsigned order, uint64_t *reclaimed);

/*
 * strata_zone_reclaim_balance - what the zone's thread does when it is woken, on this thread: where fewer frames are free than the low watermark,
 * reclaims up to the high one, by areas as large as the requests that reclaimed since the last time have wanted (section 3.2). For programs that have
 * a thread of their own for such work, and call it now and then.
 *
 * reclaimed: receives how many frames were dropped, also where it fails; may be NULL. Returns STRATA_ZONE_OK, also where nothing had to be done;
 * STRATA_ZONE_NO_FRAMES: all were looked at, and fewer are free; STRATA_ZONE_BAD_ARGUMENT: not started; STRATA_ZONE_BUSY: within an owner's function,
 * or 16 threads reclaim. Calls owners' functions. Cost: as strata_zone_reclaim; where nothing has to be done, a look at each CPU's counts.
 */
STRATA_API enum strata_zone_status strata_zone_reclaim_balance(struct strata_zone *zone, uint64_t *reclaimed);

struct strata_zone_reclaim_stats {
    enum strata_zone_reclaim_policy policy;
    bool running, thread;                             /* started; its thread is there */
    uint64_t min_frames, low_frames, high_frames;     /* watermarks */
    uint64_t active, inactive;                        /* blocks in the lists now */
    uint64_t scanned, unmapped, written;              /* frames: looked at; taken from their owners; of these, written first */
    uint64_t activated, deactivated, kept;            /* blocks: used, and so made active; active, not used for long; active and used */
    uint64_t refused_later, refused_never;            /* blocks: by their owners */
    uint64_t refused_busy;                            /* pinned, isolated, or freed meanwhile */
    uint64_t areas_tried, areas_emptied, areas_unfit; /* unfit: something in it is pinned, unmovable or nobody's to drop */
    uint64_t captured;                                /* requests that had their area by capture */
    uint64_t direct, wakes;                           /* requests that reclaimed for themselves; times that the thread began */
    double cost;                                      /* log10(scanned + 1000 unmapped + 1000000 written), 0 where nothing was done (section 5.4) */
};
/* strata_zone_reclaim_stats_get - since the start. STRATA_ZONE_OK; STRATA_ZONE_BAD_ARGUMENT. */
STRATA_API enum strata_zone_status strata_zone_reclaim_stats_get(struct strata_zone *zone, struct strata_zone_reclaim_stats *stats) STRATA_NOEXCEPT;

/* strata_zone_reclaim_check - NULL, or what of the lists does not agree with itself or the zone. As strata_zone_check; linear in blocks. */
STRATA_API const char *strata_zone_reclaim_check(struct strata_zone *zone) STRATA_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
