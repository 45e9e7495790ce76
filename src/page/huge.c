/*
 * huge.c - for which superpages transparent huge pages are asked, by the policy `thp`.
 *
 * By `auto` the heap asks where it is large enough that a superpage more or less is a small share of it, and where a huge page costs less
 * than the base pages in its place. That is measured, because it differs by thirty: 0.2 ms where the system has one at hand, 7 ms in a virtual
 * machine whose host has taken the memory back, or where memory must be compacted first (docs/decisions.md, 19 and 20). So the first page of a fresh
 * superpage is touched here, with a look at the clock; after two dear ones the next superpages go without, more of them each time, until one is cheap
 * again. Lock: LOCK_RANK_ZONE, but for the touch.
 */
#include "page/zone_internal.h"

/* From this heap size on. */
#define HUGE_HEAP_GRANULES (32 * MIB / GRANULE_BYTES)
/* What 512 base pages cost, in batches, where a fault is slow: a huge page that costs more is dear. */
#define HUGE_DEAR_NS 1000000
/* After the second dear one so many go without, twice as many after each further one. */
#define HUGE_PAUSE_MIN 8
#define HUGE_PAUSE_MAX 256
/* After a cheap one so many superpages of blocks are trusted: a measurement touches a block that its owner may never touch. */
#define HUGE_TRUST 16

bool zone_wants_huge(struct zone *zone) {
    if (zone->config.thp != ZONE_THP_AUTO) return zone->config.thp == ZONE_THP_ALWAYS;
    if (zone->counters.allocated < HUGE_HEAP_GRANULES) return false;
    if (zone->huge_pause_left == 0) return true;
    zone->huge_pause_left--;
    return false;
}

void zone_advise_huge(struct zone *zone, struct superpage *superpage) {
    if (superpage->huge) return;
    if (zone->config.thp == ZONE_THP_AUTO) {
        if (superpage->mobility == MOBILITY_RECLAIMABLE) return; /* our own structures are few */
        if (bits_count(superpage->populated) != 0) return;       /* a huge page would not come by the next touch */
    }
    if (!zone_mappings_left(zone)) return;
    if (!platform_advise_huge(superpage_address(zone, superpage), SUPERPAGE_BYTES, true)) return;
    superpage->huge = true;
    /* Neighbours with the same advice share a mapping. */
    bool before = superpage > zone->superpages && superpage[-1].huge;
    if (!before) zone->counters.mappings++;
}

bool zone_trusts_huge(struct zone *zone, size_t superpages) {
    if (zone->config.thp != ZONE_THP_AUTO) return true;
    bool trusted = zone->huge_trust != 0;
    zone->huge_trust = zone->huge_trust > superpages ? (uint32_t)(zone->huge_trust - superpages) : 0;
    return trusted;
}

void zone_measure_huge(struct zone *zone, void *address) {
    if (zone->config.thp != ZONE_THP_AUTO) return;
    uint64_t before_ns = platform_precise_ns();
    if (!platform_populate(address, platform_info()->page_bytes)) return; /* not known */
    bool dear = platform_precise_ns() - before_ns > HUGE_DEAR_NS;
    platform_lock_acquire(&zone->lock);
    if (!dear) {
        zone->huge_pause = zone->huge_pause_left = 0;
        zone->huge_trust = HUGE_TRUST;
    } else {
        zone->huge_pause_left = zone->huge_pause; /* none after the first one, which may have been bad luck */
        zone->huge_pause = zone->huge_pause == 0 ? HUGE_PAUSE_MIN : (uint32_t)min_u64(zone->huge_pause * 2, HUGE_PAUSE_MAX);
        zone->huge_trust = 0;
    }
    platform_lock_release(&zone->lock);
}
