/*
 * zone_compact_api.c - the public functions of compaction (strata/zone_compact.h) over page/. Arguments are looked at here, and what was wrong is
 * kept with the zone for strata_zone_explain. No lock of its own.
 */
#include "strata/zone_compact.h"

#include "api/zone_public.h"
#include "page/frames_compact.h"

#define DEFAULT_ORDER 3u
#define DEFAULT_UNUSABLE 0.75
#define DEFAULT_INTERVAL_NS UINT64_C(1000000000)
#define INTERVAL_NS_MIN UINT64_C(1000000)
#define INTERVAL_NS_MAX (UINT64_C(1) << 56)
#define START "strata_zone_compactor_start"

_Static_assert(STRATA_ZONE_ORDERS <= FRAMES_INDEX_ORDERS, "the index knows all orders");

static bool is_within_superpage(struct strata_zone *zone, unsigned order) {
    return order < STRATA_ZONE_ORDERS && frames_frame_bytes(zone_of(zone)) << order <= STRATA_ZONE_SUPERPAGE_BYTES;
}

enum strata_zone_status strata_zone_indices_get(struct strata_zone *zone, unsigned order, struct strata_zone_indices *indices) {
    if (zone == NULL || indices == NULL) return zone_null(zone, "strata_zone_indices_get", "indices");
    if (order >= STRATA_ZONE_ORDERS) return zone_bad(zone_of(zone), "strata_zone_indices_get", "order", order, "below STRATA_ZONE_ORDERS, 31");
    struct frames_free free, movable;
    frames_free_get(zone_of(zone), 0, false, &free);
    frames_free_get(zone_of(zone), 0, true, &movable);
    *indices = (struct strata_zone_indices){.fragmentation = frames_fragmentation_index(&free, order),
                                            .movable_fragmentation = frames_fragmentation_index(&movable, order),
                                            .unusable = frames_unusable_index(&free, order)};
    return STRATA_ZONE_OK;
}

/* A page or two, once a zone. */
static enum strata_zone_status no_memory(struct strata_zone *zone, const char *function) {
    return zone_failed(zone_of(zone), function, FRAMES_NO_MEMORY, "passes", 0, "with memory for what is remembered of them, and a thread");
}

static void tell_counts(struct strata_zone_compact_counts *told, const struct frames_compact_counts *counts) {
    *told = (struct strata_zone_compact_counts){.passes = counts->passes,
                                                .done = counts->done,
                                                .met = counts->met,
                                                .moved = counts->moved,
                                                .moved_frames = counts->moved_frames,
                                                .windows = counts->windows,
                                                .failed_pinned = counts->failed_pinned,
                                                .failed_busy = counts->failed_busy,
                                                .failed_unmovable = counts->failed_unmovable,
                                                .failed_later = counts->failed_later,
                                                .failed_room = counts->failed_room,
                                                .gone = counts->gone,
                                                .races_lost = counts->races_lost,
                                                .deferred = counts->deferred};
}

enum strata_zone_status strata_zone_compact(struct strata_zone *zone, unsigned order, struct strata_zone_compact_counts *told) {
    if (zone == NULL) return STRATA_ZONE_BAD_ARGUMENT;
    if (!is_within_superpage(zone, order)) return zone_bad(zone_of(zone), "strata_zone_compact", "order", order, "at most that of a superpage");
    const struct frames_compact_goal goal = {.order = order};
    struct frames_compact_counts counts;
    enum frames_compact_end end;
    while ((end = frames_compact(zone_of(zone), &goal, &counts, NULL)) == FRAMES_COMPACT_OTHER) continue;
    if (end == FRAMES_COMPACT_WITHIN || end == FRAMES_COMPACT_BUSY) {
        const char *allowed = end == FRAMES_COMPACT_WITHIN
                                  ? "outside the functions that a pass of the zone calls"
                                  : "while no other thread's pass stands still in a function of the program, or waits for this";
        return zone_failed(zone_of(zone), "strata_zone_compact", FRAMES_BUSY, "order", order, allowed);
    }
    if (end == FRAMES_COMPACT_NO_MEMORY) return no_memory(zone, "strata_zone_compact");
    if (told != NULL) tell_counts(told, &counts);
    return STRATA_ZONE_OK;
}

enum strata_zone_status strata_zone_compactor_start(struct strata_zone *zone, const struct strata_zone_compactor_config *config) {
    struct frames_compactor_config inner_config = {.order = DEFAULT_ORDER, .unusable = DEFAULT_UNUSABLE, .interval_ns = DEFAULT_INTERVAL_NS};
    if (config != NULL && config->order != 0) inner_config.order = config->order;
    if (config != NULL && config->unusable != 0) inner_config.unusable = config->unusable;
    if (config != NULL && config->interval_ns != 0) inner_config.interval_ns = config->interval_ns;
    if (zone == NULL) return STRATA_ZONE_BAD_ARGUMENT;
    if (!is_within_superpage(zone, inner_config.order))
        return zone_bad(zone_of(zone), START, "order", inner_config.order, "at most that of a superpage");
    /* The interval may double six times; what is no number is not inside of these either. Complaints have whole numbers. */
    if (!(inner_config.unusable > 0 && inner_config.unusable <= 1)) {
        bool is_whole = inner_config.unusable >= 0 && inner_config.unusable < (double)UINT64_MAX;
        return zone_bad(zone_of(zone), START, "unusable", is_whole ? (uint64_t)inner_config.unusable : 0, "a number above 0, at most 1");
    }
    if (inner_config.interval_ns < INTERVAL_NS_MIN || inner_config.interval_ns > INTERVAL_NS_MAX)
        return zone_bad(zone_of(zone), START, "interval_ns", inner_config.interval_ns, "1 ms at least, 2^56 ns at most");
    enum frames_status status = frames_compactor_start(zone_of(zone), &inner_config);
    if (status == FRAMES_NO_MEMORY) return no_memory(zone, START);
    return status == FRAMES_OK ? STRATA_ZONE_OK : zone_failed(zone_of(zone), START, status, "compactors", 1, "none before");
}

enum strata_zone_status strata_zone_compactor_stop(struct strata_zone *zone) {
    if (zone == NULL) return STRATA_ZONE_BAD_ARGUMENT;
    enum frames_status status = frames_compactor_stop(zone_of(zone));
    if (status == FRAMES_OK) return STRATA_ZONE_OK;
    return zone_failed(zone_of(zone), "strata_zone_compactor_stop", status, "calls within an owner's function", 1, "0");
}

enum strata_zone_status strata_zone_compactor_wake(struct strata_zone *zone) {
    if (zone == NULL) return STRATA_ZONE_BAD_ARGUMENT;
    frames_compaction_wake(zone_of(zone));
    return STRATA_ZONE_OK;
}

enum strata_zone_status strata_zone_compact_stats_get(struct strata_zone *zone, struct strata_zone_compact_stats *stats) {
    if (zone == NULL || stats == NULL) return zone_null(zone, "strata_zone_compact_stats_get", "stats");
    struct frames_compact_counts counts;
    struct frames_compactor_counts compactor;
    frames_compact_counts_get(zone_of(zone), &counts);
    frames_compactor_counts_get(zone_of(zone), &compactor);
    *stats = (struct strata_zone_compact_stats){.compactor = compactor.running,
                                                .looks = compactor.looks,
                                                .wakes = compactor.wakes,
                                                .fallbacks = compactor.fallbacks,
                                                .compactor_passes = compactor.passes,
                                                .successes = compactor.successes,
                                                .unusable_before = compactor.unusable_before,
                                                .unusable_after = compactor.unusable_after};
    tell_counts(&stats->counts, &counts);
    return STRATA_ZONE_OK;
}
