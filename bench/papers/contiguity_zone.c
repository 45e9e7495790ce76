/*
 * contiguity_zone.c - zones of strata/zone.h for the loads: one owner for all frames with a page, whose answers come from the load. See
 * contiguity_zone.h.
 *
 * No locks: one thread.
 */
#include "contiguity_zone.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strata/zone.h>
#include <strata/zone_compact.h>
#include <strata/zone_reclaim.h>

#include "load.h"

/* Of the zone's frames: below LOW the background reclaims up to HIGH, a request that finds nothing up to MIN, which is what the reserve has (section
 * 2.1), so that memory is had back before it is touched. */
#define PERCENT_MIN 2
#define PERCENT_LOW 3
#define PERCENT_HIGH 4
/* Calls of place_balance between two looks of the compaction thread. Beyond LOOKS_AS_OFTEN frames they are as far apart in the load's time as they
 * are there, some 10 ms, and not ever closer: it is one thread. */
#define FALLBACK_LOOKS 64u
#define LOOKS_AS_OFTEN (UINT64_C(1) << 24)

struct place {
    struct strata_zone *zone;
    struct place_events events;
    void *context;
    unsigned owner;
    struct place_config config;
    uint64_t used; /* frames: allocated and not given back, by anybody */
    uint64_t fallbacks;
    uint64_t fallbacks_left; /* calls of place_balance until it looks at them again */
};

static void must(struct place *place, enum strata_zone_status status, const char *what) {
    if (status == STRATA_ZONE_OK) return;
    char text[256] = "";
    strata_zone_explain(place->zone, text, sizeof text);
    fprintf(stderr, "%s: %s (last said: %s)\n", what, strata_zone_status_text(status), text);
    load_fail("the zone refused what it should allow");
}

static enum strata_zone_answer migrate(struct strata_zone *zone, uint64_t from, uint64_t to, uint64_t frames, uint64_t token, void *context) {
    struct place *place = context;
    must(place, strata_zone_copy(zone, from, to, frames), "strata_zone_copy");
    return place->events.move(place->context, token, from, to) ? STRATA_ZONE_YES : STRATA_ZONE_LATER;
}

static enum strata_zone_answer reclaim(struct strata_zone *zone, uint64_t frame, uint64_t frames, uint64_t token, bool dirty, void *context) {
    (void)zone, (void)dirty;
    struct place *place = context;
    enum place_answer answer = place->events.reclaim(place->context, token, frame);
    if (answer == PLACE_BUSY) return STRATA_ZONE_LATER;
    place->used -= frames;
    return answer == PLACE_WRITTEN ? STRATA_ZONE_WROTE : STRATA_ZONE_YES;
}

struct place *place_open(const struct place_config *config, const struct place_events *events, void *context) {
    struct place *place = calloc(1, sizeof *place);
    if (!place) load_fail("no memory");
    *place = (struct place){.events = *events, .context = context, .config = *config};
    const struct strata_zone_config zone = {
        .name = "highalloc",
        .backend = strcmp(config->backend, "memfd") == 0 ? STRATA_ZONE_MEMFD : STRATA_ZONE_SIM,
        .bytes = config->frames * PLACE_FRAME_BYTES,
        .frame_bytes = PLACE_FRAME_BYTES,
        .reserve_bytes = config->reserve_superpages * STRATA_ZONE_SUPERPAGE_BYTES,
        .cpus = 1,
        .flags = config->grouping ? 0 : STRATA_ZONE_NO_GROUPING | STRATA_ZONE_SCATTER,
    };
    enum strata_zone_status status = strata_zone_create(&zone, &place->zone);
    if (status != STRATA_ZONE_OK) {
        fprintf(stderr, "strata_zone_create: %s\n", strata_zone_status_text(status));
        load_fail("no zone");
    }
    unsigned effort = STRATA_ZONE_RECLAIM | (config->compaction ? STRATA_ZONE_COMPACT : 0) | (config->capture ? STRATA_ZONE_RECLAIM_CAPTURES : 0);
    must(place, strata_zone_set_effort(place->zone, effort), "strata_zone_set_effort");
    const struct strata_zone_owner owner = {"load", migrate, reclaim, place};
    must(place, strata_zone_owner_add(place->zone, &owner, &place->owner), "strata_zone_owner_add");
    static const enum strata_zone_reclaim_policy policies[PLACE_RECLAIMS] = {STRATA_ZONE_RECLAIM_LRU, STRATA_ZONE_RECLAIM_LINEAR,
                                                                             STRATA_ZONE_RECLAIM_AREA};
    const struct strata_zone_reclaim_config reclaims = {.policy = policies[config->reclaim],
                                                        .min_frames = config->frames * PERCENT_MIN / 100,
                                                        .low_frames = config->frames * PERCENT_LOW / 100,
                                                        .high_frames = config->frames * PERCENT_HIGH / 100};
    must(place, strata_zone_reclaim_start(place->zone, &reclaims), "strata_zone_reclaim_start");
    return place;
}

void place_close(struct place *place) {
    must(place, strata_zone_destroy(place->zone), "strata_zone_destroy");
    free(place);
}

static const enum strata_zone_mobility mobilities[PLACE_MOBILITIES] = {STRATA_ZONE_UNMOVABLE, STRATA_ZONE_RECLAIMABLE, STRATA_ZONE_MOVABLE};

static uint32_t alloc(struct place *place, const struct strata_zone_request *request) {
    uint64_t frame;
    enum strata_zone_status status = strata_zone_alloc_as(place->zone, request, &frame);
    if (status == STRATA_ZONE_NO_FRAMES) return PLACE_NONE;
    must(place, status, "strata_zone_alloc_as");
    place->used += request->frames;
    return (uint32_t)frame;
}

uint32_t place_alloc(struct place *place, unsigned order, enum place_mobility mobility, uint64_t page, bool wait) {
    return alloc(place, &(struct strata_zone_request){.frames = UINT64_C(1) << order,
                                                      .mobility = mobilities[mobility],
                                                      .owner = mobility == PLACE_UNMOVABLE ? 0 : place->owner,
                                                      .flags = wait ? 0 : STRATA_ZONE_NO_EFFORT,
                                                      .token = page});
}

void place_free(struct place *place, uint32_t frame, unsigned order) {
    must(place, strata_zone_free(place->zone, frame, UINT64_C(1) << order), "strata_zone_free");
    place->used -= UINT64_C(1) << order;
}

uint32_t place_alloc_superpage(struct place *place) {
    return alloc(place, &(struct strata_zone_request){.frames = PLACE_SUPERPAGE_FRAMES, .mobility = STRATA_ZONE_UNMOVABLE});
}

uint64_t place_free_frames(const struct place *place) { return place->config.frames - place->used; }

void place_balance(struct place *place) {
    enum strata_zone_status reclaimed = strata_zone_reclaim_balance(place->zone, NULL);
    if (reclaimed != STRATA_ZONE_NO_FRAMES && reclaimed != STRATA_ZONE_BUSY) must(place, reclaimed, "strata_zone_reclaim_balance");
    if (!place->config.compaction || place->fallbacks_left-- != 0) return;
    /* What the compaction thread does when allocations fell back to another group (section 7.3), as often as it would look. */
    place->fallbacks_left = FALLBACK_LOOKS * (place->config.frames > LOOKS_AS_OFTEN ? place->config.frames / LOOKS_AS_OFTEN : 1);
    struct strata_zone_stats stats;
    must(place, strata_zone_stats_get(place->zone, &stats), "strata_zone_stats_get");
    if (stats.fallbacks == place->fallbacks) return;
    place->fallbacks = stats.fallbacks;
    enum strata_zone_status status = strata_zone_compact(place->zone, PLACE_SUPERPAGE_ORDER, NULL);
    if (status != STRATA_ZONE_BUSY) must(place, status, "strata_zone_compact");
}

void place_write(struct place *place, uint32_t frame, uint64_t word) { strata_zone_poke(place->zone, frame, word); }
uint64_t place_read(struct place *place, uint32_t frame) { return strata_zone_peek(place->zone, frame); }
bool place_holds(struct place *place, uint32_t frame, uint64_t word) { return strata_zone_peek(place->zone, frame) == word; }

struct place_counters place_count(struct place *place) {
    struct strata_zone_stats stats;
    must(place, strata_zone_stats_get(place->zone, &stats), "strata_zone_stats_get");
    struct strata_zone_reclaim_stats reclaim;
    must(place, strata_zone_reclaim_stats_get(place->zone, &reclaim), "strata_zone_reclaim_stats_get");
    struct strata_zone_compact_stats compact;
    must(place, strata_zone_compact_stats_get(place->zone, &compact), "strata_zone_compact_stats_get");
    struct strata_zone_indices order_3, order_9;
    must(place, strata_zone_indices_get(place->zone, 3, &order_3), "strata_zone_indices_get");
    must(place, strata_zone_indices_get(place->zone, PLACE_SUPERPAGE_ORDER, &order_9), "strata_zone_indices_get");
    const struct strata_zone_compact_counts *counts = &compact.counts;
    return (struct place_counters){.free_frames = stats.free,
                                   .scanned = reclaim.scanned,
                                   .unmapped = reclaim.unmapped,
                                   .written = reclaim.written,
                                   .moved = counts->moved,
                                   .move_failed = counts->failed_pinned + counts->failed_busy + counts->failed_unmovable + counts->failed_later,
                                   .fallbacks = stats.fallbacks,
                                   .retyped = stats.retypes,
                                   .captured = stats.captures_done,
                                   .races_lost = stats.races_lost,
                                   .unusable_order_3 = order_3.unusable,
                                   .unusable_order_9 = order_9.unusable};
}

struct place_mix place_superpage(struct place *place, uint64_t superpage) {
    struct strata_zone_superpage found;
    must(place, strata_zone_map_get(place->zone, superpage, 1, &found), "strata_zone_map_get");
    struct place_mix mix = {.free = found.free, .group = (uint8_t)found.group};
    for (unsigned i = 0; i < PLACE_MOBILITIES; i++) mix.allocated[i] = found.used[mobilities[i]];
    return mix;
}

void place_check(struct place *place) {
    const char *wrong = strata_zone_check(place->zone);
    if (!wrong) wrong = strata_zone_reclaim_check(place->zone);
    if (!wrong) return;
    fprintf(stderr, "strata_zone_check: %s\n", wrong);
    load_fail("the zone is not sound");
}
