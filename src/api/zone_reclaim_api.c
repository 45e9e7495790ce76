/*
 * zone_reclaim_api.c - the public functions of reclaim (strata/zone_reclaim.h) over page/frames_reclaim.h. Arguments are looked at here, and what was
 * wrong is kept with the zone for strata_zone_explain. No lock of its own.
 */
#include "strata/zone_reclaim.h"

#include "api/zone_public.h"
#include "page/frames_reclaim.h"

#define SAME(a, b) _Static_assert((int)(a) == (int)(b), "the same numbers")
SAME(STRATA_ZONE_RECLAIM_LRU, FRAMES_RECLAIM_LRU);
SAME(STRATA_ZONE_RECLAIM_LINEAR, FRAMES_RECLAIM_LINEAR);
SAME(STRATA_ZONE_RECLAIM_AREA, FRAMES_RECLAIM_AREA);
SAME(STRATA_ZONE_RECLAIM_POLICIES, FRAMES_RECLAIM_POLICIES);

static enum strata_zone_status not_started(struct strata_zone *zone, const char *function) {
    return zone_bad(zone_of(zone), function, "reclaim", 0, "started: strata_zone_reclaim_start");
}

enum strata_zone_status strata_zone_reclaim_start(struct strata_zone *zone, const struct strata_zone_reclaim_config *config) {
    static const char *const name = "strata_zone_reclaim_start";
    if (zone == NULL || config == NULL) return zone_null(zone, name, "config");
    struct frames_complaint complaint;
    struct frames_reclaim_config wanted = {.policy = (enum frames_reclaim_policy)config->policy,
                                           .min_frames = config->min_frames,
                                           .low_frames = config->low_frames,
                                           .high_frames = config->high_frames,
                                           .thread = config->thread};
    if (frames_reclaim_config_check(zone_of(zone), &wanted, &complaint) != FRAMES_OK)
        return zone_bad(zone_of(zone), name, complaint.argument, complaint.value, complaint.allowed);
    enum frames_status status = frames_reclaim_start(zone_of(zone), &wanted);
    if (status == FRAMES_OK) return STRATA_ZONE_OK;
    bool before = status == FRAMES_BUSY;
    return zone_failed(zone_of(zone), name, status, "reclaim", before ? 1 : 0,
                       before ? "not started before" : "with memory for its lists, and a thread");
}

enum strata_zone_status strata_zone_reclaim_stop(struct strata_zone *zone) {
    if (zone == NULL) return STRATA_ZONE_BAD_ARGUMENT;
    enum frames_status status = frames_reclaim_stop(zone_of(zone));
    if (status == FRAMES_OK) return STRATA_ZONE_OK;
    return zone_failed(zone_of(zone), "strata_zone_reclaim_stop", status, "threads that reclaim, or are in an owner's function", 1, "0");
}

enum strata_zone_status strata_zone_reclaim_set_policy(struct strata_zone *zone, enum strata_zone_reclaim_policy policy) {
    if (zone == NULL) return STRATA_ZONE_BAD_ARGUMENT;
    if ((unsigned)policy >= STRATA_ZONE_RECLAIM_POLICIES)
        return zone_bad(zone_of(zone), "strata_zone_reclaim_set_policy", "policy", policy, "0 lru, 1 linear, 2 area");
    if (!frames_reclaim_set_policy(zone_of(zone), (enum frames_reclaim_policy)policy)) return not_started(zone, "strata_zone_reclaim_set_policy");
    return STRATA_ZONE_OK;
}

/* The end of a call that reclaims. */
static enum strata_zone_status reclaimed_or_busy(struct strata_zone *zone, const char *function, enum frames_status status, uint64_t dropped) {
    if (status == FRAMES_OK) return STRATA_ZONE_OK;
    if (status != FRAMES_BUSY) return zone_failed(zone_of(zone), function, status, "reclaimed", dropped, "as many as are wanted; the rest stays");
    bool within = frames_reclaim_is_within(zone_of(zone));
    const struct frames_complaint complaint = {within ? "calls within an owner's function" : "threads that reclaim", within ? "0" : "below 16",
                                               within ? 1 : FRAMES_RECLAIM_CALLERS};
    frames_complain(zone_of(zone), function, &complaint);
    return STRATA_ZONE_BUSY;
}

enum strata_zone_status strata_zone_reclaim(struct strata_zone *zone, uint64_t frames, unsigned order, uint64_t *reclaimed) {
    uint64_t dropped = 0;
    if (reclaimed != NULL) *reclaimed = 0;
    if (zone == NULL) return STRATA_ZONE_BAD_ARGUMENT;
    if (frames == 0) return zone_bad(zone_of(zone), "strata_zone_reclaim", "frames", frames, "above 0");
    if (order >= STRATA_ZONE_ORDERS || strata_zone_frame_bytes(zone) << order > STRATA_ZONE_SUPERPAGE_BYTES)
        return zone_bad(zone_of(zone), "strata_zone_reclaim", "order", order, "at most that of a superpage");
    if (!frames_reclaim_is_started(zone_of(zone))) return not_started(zone, "strata_zone_reclaim");
    enum frames_status status = frames_reclaim(zone_of(zone), frames, order, &dropped);
    if (reclaimed != NULL) *reclaimed = dropped;
    return reclaimed_or_busy(zone, "strata_zone_reclaim", status, dropped);
}

enum strata_zone_status strata_zone_reclaim_balance(struct strata_zone *zone, uint64_t *reclaimed) {
    uint64_t dropped = 0;
    if (reclaimed != NULL) *reclaimed = 0;
    if (zone == NULL) return STRATA_ZONE_BAD_ARGUMENT;
    if (!frames_reclaim_is_started(zone_of(zone))) return not_started(zone, "strata_zone_reclaim_balance");
    enum frames_status status = frames_reclaim_balance(zone_of(zone), &dropped);
    if (reclaimed != NULL) *reclaimed = dropped;
    return reclaimed_or_busy(zone, "strata_zone_reclaim_balance", status, dropped);
}

enum strata_zone_status strata_zone_reclaim_stats_get(struct strata_zone *zone, struct strata_zone_reclaim_stats *stats) {
    struct frames_reclaim_info info;
    if (zone == NULL || stats == NULL) return zone_null(zone, "strata_zone_reclaim_stats_get", "stats");
    frames_reclaim_info_get(zone_of(zone), &info);
    const struct frames_reclaim_counts *counts = &info.counts;
    *stats = (struct strata_zone_reclaim_stats){.policy = (enum strata_zone_reclaim_policy)info.config.policy,
                                                .running = info.running,
                                                .thread = info.thread,
                                                .min_frames = info.config.min_frames,
                                                .low_frames = info.config.low_frames,
                                                .high_frames = info.config.high_frames,
                                                .active = info.active,
                                                .inactive = info.inactive,
                                                .scanned = counts->scanned,
                                                .unmapped = counts->unmapped,
                                                .written = counts->written,
                                                .activated = counts->activated,
                                                .deactivated = counts->deactivated,
                                                .kept = counts->kept,
                                                .refused_later = counts->refused_later,
                                                .refused_never = counts->refused_never,
                                                .refused_busy = counts->refused_busy,
                                                .areas_tried = counts->areas_tried,
                                                .areas_emptied = counts->areas_emptied,
                                                .areas_unfit = counts->areas_unfit,
                                                .captured = counts->captured,
                                                .direct = counts->direct,
                                                .wakes = counts->wakes,
                                                .cost = frames_reclaim_cost(counts)};
    return STRATA_ZONE_OK;
}

const char *strata_zone_reclaim_check(struct strata_zone *zone) { return zone != NULL ? frames_reclaim_check(zone_of(zone)) : "reclaim: no zone"; }
