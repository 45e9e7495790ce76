/*
 * frames_compact_internal.h - what frames_compact.c (a pass), frames_compactor.c (the thread) and frames_direct.c (allocation by all means) share.
 *
 * One record a zone, made when any of them is first used, and given back with the zone. All of it is atomic, but what only the thread uses, or
 * whose pass it is.
 */
#ifndef STRATA_PAGE_FRAMES_COMPACT_INTERNAL_H
#define STRATA_PAGE_FRAMES_COMPACT_INTERNAL_H

#include "page/frames_compact.h"
#include "page/frames_internal.h"

/* After `shift` passes in vain in a row for requests of an order, 2^shift of these are refused without one. */
struct frames_deferral {
    uint32_t shift, left;
};
#define FRAMES_DEFERRAL_MAX 6u

/* Where the scanners of a pass for a request were when it had what it wanted: the next one goes on there. */
struct frames_resume {
    uint64_t source, target;
};

struct frames_compaction {
    uint32_t passing;  /* the thread whose pass is under way; 0: none. A futex */
    uint32_t progress; /* atomic: steps that passes have done; stands still while a function of the program runs */
    struct frames_compact_counts counts;
    struct frames_deferral deferrals[FRAMES_INDEX_ORDERS];
    frames_reclaim_function *reclaim;
    uint64_t samples; /* of the index of a large zone */

    /* Of a large zone, by order; [0]: of sweeps through sparse superpages. Whose pass it is. (frames_compact.c) */
    struct frames_resume resumes[FRAMES_INDEX_ORDERS][2];
    struct frames_deferral sparse; /* sweeps through these in vain, and passes that go without */

    /* frames_window_move.c, under the zone's lock */
    enum { FRAMES_FAULTS_NONE, FRAMES_FAULTS_OPEN, FRAMES_FAULTS_FORBIDDEN } faults_state;
    struct platform_faults faults; /* immutable once it is open */
    char *spare;                   /* a mapping that can be done without; NULL: none */

    /* the thread */
    struct platform_event event;
    uint32_t state;   /* enum frames_compactor_state; a futex */
    uint32_t wanted;  /* a pass, whatever the index is */
    uint32_t thread;  /* its number */
    uint32_t process; /* whose it is: a forked child has none */
    uint64_t looks, wakes, fallbacks, passes, successes;
    uint64_t unusable_before, unusable_after; /* the bits of a double */
    struct frames_compactor_config config;    /* of the thread; written before it starts */
};
enum frames_compactor_state { COMPACTOR_NONE, COMPACTOR_RUNS, COMPACTOR_STOPS };

/* NULL: no memory. */
struct frames_compaction *frames_compaction_get(struct frame_zone *zone);
/* NULL: there is none. */
STRATA_INLINE struct frames_compaction *frames_compaction_peek(struct frame_zone *zone) {
    return __atomic_load_n(&zone->compaction, __ATOMIC_ACQUIRE);
}

#endif
