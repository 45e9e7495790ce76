/*
 * frames_reclaim.h - reclaim in a zone of frames (contiguity paper, section 3): policies, watermarks and the thread. For api/ and page/.
 *
 * One record a zone, from start to stop; see frames_lru.h for its lists. No lock is held while owners are asked. Several threads may reclaim at a
 * time; a block goes to the young end as soon as one of them has picked it, so that the next picks another.
 */
#ifndef STRATA_PAGE_FRAMES_RECLAIM_H
#define STRATA_PAGE_FRAMES_RECLAIM_H

#include "page/frames.h"

#define FRAMES_RECLAIM_CALLERS 16 /* threads that reclaim at a time; more wait for none, and have nothing */
enum frames_reclaim_policy { FRAMES_RECLAIM_LRU, FRAMES_RECLAIM_LINEAR, FRAMES_RECLAIM_AREA, FRAMES_RECLAIM_POLICIES };
struct frames_reclaim_config {
    enum frames_reclaim_policy policy;
    uint64_t min_frames, low_frames, high_frames;
    bool thread;
};
/* FRAMES_OK, or what is wrong with it; 0 in all watermarks becomes what is usual. */
enum frames_status frames_reclaim_config_check(struct frame_zone *zone, struct frames_reclaim_config *config, struct frames_complaint *complaint);
/* FRAMES_BUSY: it is started; FRAMES_NO_MEMORY. */
enum frames_status frames_reclaim_start(struct frame_zone *zone, const struct frames_reclaim_config *config);
/* FRAMES_BUSY: somebody reclaims. */
enum frames_status frames_reclaim_stop(struct frame_zone *zone);
/* False: not started. */
bool frames_reclaim_set_policy(struct frame_zone *zone, enum frames_reclaim_policy policy);
bool frames_reclaim_is_started(const struct frame_zone *zone);
/* Whether this thread reclaims, so that it is a function of the program which asks; whether the zone's own thread is there. */
bool frames_reclaim_is_within(const struct frame_zone *zone);
bool frames_reclaim_runs(const struct frame_zone *zone);

/* At least `frames` frames, by areas of 2^order, where that can be; FRAMES_NO_FRAMES: fewer. FRAMES_BUSY: within an owner's function. */
enum frames_status frames_reclaim(struct frame_zone *zone, uint64_t frames, unsigned order, uint64_t *reclaimed);
/* What the thread does when it is woken, on this one: below the low watermark it reclaims up to the high one. FRAMES_NO_FRAMES: not so far; BUSY. */
enum frames_status frames_reclaim_balance(struct frame_zone *zone, uint64_t *dropped);

struct frames_reclaim_counts {
    uint64_t scanned, unmapped, written;                                               /* frames */
    uint64_t activated, deactivated, kept, refused_later, refused_never, refused_busy; /* blocks */
    uint64_t areas_tried, areas_emptied, areas_unfit, captured, direct, wakes;
};
struct frames_reclaim_info {
    struct frames_reclaim_config config;
    struct frames_reclaim_counts counts;
    bool running, thread;
    uint64_t active, inactive;
};
void frames_reclaim_info_get(struct frame_zone *zone, struct frames_reclaim_info *info);
/* What was done, as the paper weighs it: log10(scanned + 1000 unmapped + 1000000 written); 0 for nothing. (Section 5.4.) */
double frames_reclaim_cost(const struct frames_reclaim_counts *counts);
const char *frames_reclaim_check(struct frame_zone *zone);

#endif
