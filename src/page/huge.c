/*
 * huge.c - for which superpages transparent huge pages are asked, by the policy `thp`.
 *
 * By `auto` the heap asks where it is large enough that a superpage more or less is a small share of it, and where a huge page costs less
 * than the base pages in its place. That is measured, because it differs by thirty: 0.2 ms where the system has one at hand, 7 ms in a virtual
 * machine whose host has taken the memory back, or where memory must be compacted first (docs/decisions.md, 19 and 20). So the first page of a fresh
 * superpage is touched here, with a look at the clock; after two dear ones the next superpages go without, more of them each time, until one is cheap
 * again. A superpage that is taken again with nothing present is decided on again. Above the soft limit there is none, by any policy: idle pages would
 * come with it that may not stay.
 *
 * Lock: LOCK_RANK_ZONE, held during the touch for blocks, which need an answer for their next superpage; slabs are touched without it.
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

static void set_advice(struct zone *zone, struct superpage *superpage, bool on) {
    if (!zone_mappings_left(zone) || !platform_advise_huge(superpage_address(zone, superpage), SUPERPAGE_BYTES, on)) return;
    superpage->huge = on;
    /* Neighbours with the same advice share a mapping. */
    bool before = superpage > zone->superpages && superpage[-1].huge;
    if (before != on) zone->counters.mappings++;
}

static bool within_soft_limit(const struct zone *zone, size_t more) {
    return zone->counters.allocated + max_u64(more, SUPERPAGE_GRANULES) <= zone->config.soft_limit_bytes >> GRANULE_SHIFT;
}

bool zone_decide_huge(struct zone *zone, struct superpage *superpage, size_t more) {
    if (zone->config.thp == ZONE_THP_NEVER) return false;
    if (!within_soft_limit(zone, more)) {
        if (superpage->huge) set_advice(zone, superpage, false);
        return false;
    }
    if (zone->config.thp == ZONE_THP_ALWAYS) {
        if (!superpage->huge) set_advice(zone, superpage, true);
        return superpage->huge;
    }
    if (bits_count(superpage->populated) != 0) return false; /* a huge page would not come by the next touch */
    bool wanted = superpage->mobility != MOBILITY_RECLAIMABLE && zone->counters.allocated + more >= HUGE_HEAP_GRANULES; /* our own are few */
    if (wanted && zone->huge.pause_left != 0) {
        zone->huge.pause_left--;
        wanted = false;
    }
    if (wanted != superpage->huge) set_advice(zone, superpage, wanted);
    return superpage->huge;
}

/* The first touch of a superpage with advice. Returns whether it was known to be dear or cheap. */
static bool touch(void *address, bool *dear) {
    uint64_t before_ns = platform_precise_ns();
    if (!platform_populate(address, platform_info()->page_bytes)) return false;
    *dear = platform_precise_ns() - before_ns > HUGE_DEAR_NS;
    return true;
}

static void note(struct huge_policy *huge, bool dear) {
    if (!dear) {
        *huge = (struct huge_policy){.trust = HUGE_TRUST};
    } else if (huge->pause_left == 0) { /* several threads at once are one */
        huge->pause_left = huge->pause; /* none after the first one, which may have been bad luck */
        huge->pause = huge->pause == 0 ? HUGE_PAUSE_MIN : (uint32_t)min_u64(huge->pause * 2, HUGE_PAUSE_MAX);
        huge->trust = 0;
    }
}

void zone_measure_huge(struct zone *zone, void *address) {
    bool dear;
    if (zone->config.thp != ZONE_THP_AUTO || !touch(address, &dear)) return;
    platform_lock_acquire(&zone->lock);
    note(&zone->huge, dear);
    platform_lock_release(&zone->lock);
}

void zone_decide_huge_block(struct zone *zone, struct superpage *first, size_t from, size_t to, size_t more) {
    for (size_t i = from; i < to; i++) {
        bool dear;
        if (!zone_decide_huge(zone, &first[i], more) || zone->config.thp != ZONE_THP_AUTO) continue;
        if (zone->huge.trust != 0)
            zone->huge.trust--;
        else if (touch(superpage_address(zone, &first[i]), &dear))
            note(&zone->huge, dear);
    }
}
