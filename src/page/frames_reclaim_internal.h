/*
 * frames_reclaim_internal.h - what frames_reclaim.c (policies), frames_reclaimer.c (life, the thread), frames_told.c (blocks that come
 * and go) and frames_used.c (what was used) share.
 */
#ifndef STRATA_PAGE_FRAMES_RECLAIM_INTERNAL_H
#define STRATA_PAGE_FRAMES_RECLAIM_INTERNAL_H

#include "page/frames_internal.h"
#include "page/frames_lru.h"
#include "page/frames_reclaim.h"

#define COUNT(reclaim, what, by) __atomic_fetch_add(&(reclaim)->counts.what, by, __ATOMIC_RELAXED)

enum frames_reclaimer_state { RECLAIMER_NONE, RECLAIMER_RUNS, RECLAIMER_STOPS };

struct frames_reclaim {
    struct frames_lru lru;
    struct frames_reclaim_config config;      /* immutable, but for the policy, which is atomic */
    struct frames_reclaim_counts counts;      /* atomic */
    uint32_t callers[FRAMES_RECLAIM_CALLERS]; /* atomic: the numbers of threads that reclaim right now */
    uint64_t cursor;                          /* atomic: where linear reclaim goes on */
    uint32_t *judged;                         /* a superpage each, atomic: the last look for areas that passed over the one that begins there */
    uint32_t looks;                           /* atomic: of these */
    uint32_t order;                           /* atomic: the largest that requests have wanted since the thread's last round */

    struct platform_faults faults; /* immutable: of shared memory, so that no neighbours are mapped along; or closed */

    /* the thread */
    struct platform_event event;
    struct frame_zone *zone; /* immutable */
    uint32_t state;          /* enum frames_reclaimer_state; a futex */
    uint32_t thread;         /* atomic: its number, from before it reclaims first */
    uint32_t wanted;         /* atomic: it shall begin */
    uint32_t process;        /* whose it is, and who the callers are: a forked child has neither */
    size_t bytes;            /* of this record, with all behind it */
};

/* NULL: not started. */
STRATA_INLINE struct frames_reclaim *frames_reclaim_of(const struct frame_zone *zone) {
    return (struct frames_reclaim *)__atomic_load_n(&zone->reclaim, __ATOMIC_ACQUIRE);
}

/* frames_used.c: whether frames of a block were used since the last look, which is forgotten. */
bool frames_used_take(struct frame_zone *zone, uint64_t first, uint64_t frames);
/* They are nobody's, or anew: neither used nor dirty. */
void frames_used_forget(struct frame_zone *zone, uint64_t first, uint64_t frames);
/* What was noted of one run is noted of another. */
void frames_used_move(struct frame_zone *zone, uint64_t from, uint64_t to, uint64_t frames);

/* frames_told.c: the lists are told of blocks from now on, or no more. */
void frames_told_set(struct frame_zone *zone, bool on);
/* Of all that waits in slots, so that the lists are what they should be at some moment of the call. No lock held. */
void frames_settle_all(struct frame_zone *zone);
/* Where a frame waits, of all in its slot; false: it does not. No lock held. */
bool frames_settle_at(struct frame_zone *zone, uint64_t frame);
/* Whether a block with such a note at its first frame belongs in a list. */
bool frames_can_be_dropped(const struct frame_zone *zone, uint32_t note);
/* NULL, or what does not agree; nobody else is in a call. */
const char *frames_told_check(struct frame_zone *zone);

/* frames_reclaim.c: what is wanted, until it is had or all was looked at. */
struct frames_reclaim_wish {
    uint64_t goal;                        /* so many frames dropped, */
    uint64_t free_goal;                   /* and so many free */
    uint64_t area;                        /* frames that shall lie together: a power of two, or whole superpages; 1: anywhere */
    uint64_t align;                       /* of areas beyond that, a power of two; 0: none */
    uint64_t end;                         /* of areas: those behind it serve nobody */
    bool one_area;                        /* one area is all that is wanted */
    const struct frames_request *request; /* and is captured for it; NULL: not so */
};
/* The caller is one of `callers`. Returns how many frames were dropped; *frame: of the captured run. */
uint64_t frames_reclaim_by_policy(struct frame_zone *zone, const struct frames_reclaim_wish *wish, uint64_t *frame);
/* The area in which a request for so many frames can be met. */
uint64_t frames_reclaim_area(const struct frame_zone *zone, uint64_t frames);
/* For a request that failed: dropped frames; *frame: of the run, where it was had by capture, else FRAMES_NONE. */
uint64_t frames_reclaim_for(struct frame_zone *zone, const struct frames_request *request, uint64_t *frame);
/* False: this thread is within an owner's function already, or too many are. */
bool frames_reclaim_enter(struct frames_reclaim *reclaim);
void frames_reclaim_leave(struct frames_reclaim *reclaim);

#endif
