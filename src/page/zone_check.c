/*
 * zone_check.c - the zone's statistics, and its invariants verified as equations. Linear in the heap; lock: LOCK_RANK_ZONE.
 */
#include "page/zone_internal.h"

void zone_counters_get(struct zone *zone, struct zone_counters *counters) {
    zone_lock(zone);
    zone_wake_blocks(zone);
    *counters = zone->counters;
    platform_lock_release(&zone->lock);
}

size_t zone_metadata_bytes(struct zone *zone) {
    zone_lock(zone);
    size_t superpages = zone->extent_bytes >> SUPERPAGE_SHIFT;
    size_t bytes = superpages * (sizeof(struct superpage) + SUPERPAGE_GRANULES * sizeof(granule_tag)) +
                   zone->counters.described * offsetof(struct head_area, units) +
                   __atomic_load_n(&zone->head_units, __ATOMIC_RELAXED) * HEAD_UNIT_BYTES + zone->counters.blocks * sizeof(struct granule_desc);
    platform_lock_release(&zone->lock);
    platform_lock_acquire(&zone->metadata.lock);
    bytes += zone->metadata.bytes;
    platform_lock_release(&zone->metadata.lock);
    return bytes;
}

void zone_group_stats_get(struct zone *zone, struct zone_group_stats stats[MOBILITY_GROUPS]) {
    __builtin_memset(stats, 0, sizeof(struct zone_group_stats) * MOBILITY_GROUPS);
    zone_lock(zone);
    zone_wake_blocks(zone);
    for (size_t i = 0; i < zone->extent_bytes >> SUPERPAGE_SHIFT; i++) {
        const struct superpage *superpage = &zone->superpages[i];
        if (superpage->state == SUPERPAGE_FREE) continue;
        struct zone_group_stats *group = &stats[superpage->mobility];
        group->superpages++;
        group->allocated += bits_count(superpage->allocated);
        group->populated += bits_count(superpage->populated);
        group->idle += superpage->idle;
        if (superpage->free != 0) group->partial_superpages++;
        if (superpage->huge) group->huge_superpages++;
    }
    platform_lock_release(&zone->lock);
}

void zone_free_stats_get(struct zone *zone, struct zone_free_stats *stats) {
    struct frames_free_scan all = {.superpage_frames = SUPERPAGE_GRANULES}, groups[MOBILITY_GROUPS];
    for (unsigned m = 0; m < MOBILITY_GROUPS; m++) groups[m] = all;
    zone_lock(zone);
    zone_wake_blocks(zone);
    for (size_t i = 0; i < zone->extent_bytes >> SUPERPAGE_SHIFT; i++) {
        const struct superpage *superpage = &zone->superpages[i];
        uint64_t free[SUPERPAGE_WORDS];
        bool runs = superpage->state == SUPERPAGE_RUNS;
        if (!runs && superpage->linked != IDLE_FREE) continue;
        for (unsigned w = 0; w < SUPERPAGE_WORDS; w++) free[w] = ~superpage->allocated[w];
        frames_free_count_superpage(&all, i, free);
        if (runs) frames_free_count_superpage(&groups[superpage->mobility], i, free);
    }
    platform_lock_release(&zone->lock);
    frames_free_end(&all);
    stats->all = all.free;
    for (unsigned m = 0; m < MOBILITY_GROUPS; m++) {
        frames_free_end(&groups[m]);
        stats->groups[m] = groups[m].free;
    }
}

static bool is_linked(const struct list *head, const struct list *node) {
    LIST_FOR_EACH(head, at)
        if (at == node) return true;
    return false;
}

static const char *check_present(const struct zone *zone, const struct superpage *superpage) {
    const unsigned list = zone_present_list_of(superpage);
    if (superpage->linked != IDLE_NONE && superpage_longest_idle(superpage) > superpage->idle_run)
        return "superpage: a run of idle granules is longer than is known";
    if (superpage->present_list != list) return "superpage: on another list of present runs than its own";
    if (list == 0) return NULL;
    if ((zone->present_any[superpage->mobility] >> list % ZONE_PRESENT_LISTS & 1) == 0) return "zone: a list of present runs is not to be looked at";
    return is_linked(&zone->present[list], &superpage->present_link) ? NULL : "superpage: says it is on a list of present runs, and is not";
}

static const char *check_superpage(struct zone *zone, const struct superpage *superpage) {
    struct superpage fresh = *superpage;
    superpage_recount(&fresh);
    if (superpage->state == SUPERPAGE_FREE && bits_count(superpage->allocated) != 0) return "a free superpage has allocated granules";
    if (superpage->littered && superpage->state == SUPERPAGE_BLOCK && superpage->free == 0) return "superpage: littered, but a block's to its end";
    if (superpage->state != SUPERPAGE_FREE || superpage->linked != IDLE_NONE) {
        if (fresh.idle != superpage->idle) return "superpage: idle differs from its bitfields";
        if (fresh.free != superpage->free) return "superpage: free differs from its bitfield";
        if (fresh.largest_free != superpage->largest_free) return "superpage: largest_free differs from its bitfield";
    }
    for (unsigned w = 0; w < SUPERPAGE_WORDS; w++)
        if ((superpage->allocated[w] & ~superpage->populated[w]) != 0) return "superpage: allocated but not counted as populated";
    const unsigned wanted = superpage_idle_list(&fresh);
    if (superpage->linked != wanted) return "superpage: on an idle list where it does not belong, or not where it does";
    if (wanted != IDLE_NONE && !is_linked(&zone->idle[wanted], &superpage->idle_link)) return "superpage: says it is on an idle list, and is not";
    if (superpage->state == SUPERPAGE_RUNS) {
        if (superpage->free == SUPERPAGE_GRANULES) return "superpage: wholly free but not given back";
        if (superpage->largest_free != 0 && !superpage->apart &&
            !is_linked(&zone->buckets[superpage->mobility][bit_highest(superpage->largest_free)], &superpage->bucket))
            return "superpage: not in the bucket of its longest run";
    }
    return check_present(zone, superpage);
}

const char *zone_check(struct zone *zone) {
    const char *broken = NULL;
    uint64_t allocated = 0, populated = 0, idle = 0, idle_huge = 0, taken = 0, described = 0, littered = 0;
    zone_lock(zone);
    zone_wake_blocks(zone);
    for (size_t i = 0; i < zone->extent_bytes >> SUPERPAGE_SHIFT && broken == NULL; i++) {
        const struct superpage *superpage = &zone->superpages[i];
        broken = check_superpage(zone, superpage);
        allocated += bits_count(superpage->allocated);
        populated += bits_count(superpage->populated);
        if (superpage->linked != IDLE_NONE) {
            idle += superpage->idle;
            idle_huge += superpage_kept_idle(superpage, superpage->idle);
        }
        described += superpage->described;
        littered += superpage->littered;
        if (superpage->littered && (i < zone->litter.from || i >= zone->litter.to)) broken = "zone: litter outside of where it is looked for";
        if (superpage->state == SUPERPAGE_FREE && superpage->described)
            for (unsigned w = 0; w < ARRAY_LENGTH(zone->heads[i].taken); w++)
                if (zone->heads[i].taken[w] != 0) broken = "superpage: heads without runs";
        taken += superpage->state != SUPERPAGE_FREE || superpage->apart;
        if (superpage->apart && !list_empty(&superpage->bucket) && superpage->state == SUPERPAGE_RUNS) broken = "superpage: apart, but in a bucket";
    }
    if (broken == NULL) {
        const struct zone_counters *counters = &zone->counters;
        if (!zone->growing && zone->heap_bytes < zone->extent_bytes)
            broken = "zone: the heap is not committed as far as it is used";
        else if (allocated != counters->allocated)
            broken = "zone: allocated differs from the sum over superpages";
        else if (populated != counters->populated)
            broken = "zone: populated differs from the sum over superpages";
        else if (idle != counters->idle)
            broken = "zone: idle differs from the sum over superpages";
        else if (idle_huge != counters->idle_huge)
            broken = "zone: idle_huge differs from the sum over superpages";
        else if (described != counters->described)
            broken = "zone: described differs from the number of such superpages";
        else if (littered != zone->litter.superpages)
            broken = "zone: littered superpages differ from their count";
        else if (counters->allocated + counters->idle != counters->populated)
            broken = "zone: allocated + idle differs from populated";
        else if (taken << SUPERPAGE_SHIFT != arena_size(&zone->addresses, ARENA_ALLOCATED))
            broken = "zone: superpages in use differ from the arena of addresses";
    }
    platform_lock_release(&zone->lock);
    return broken != NULL ? broken : arena_check(&zone->addresses);
}
