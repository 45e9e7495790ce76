/*
 * huge.c - for which superpages transparent huge pages are asked, by the policy `thp`.
 *
 * By `auto` the heap asks where it is large enough that a superpage more or less is a small share of it (of what is in memory of it, for slabs), and
 * where a huge page costs less than the base pages in its place. That is measured, because it differs by thirty: 0.2 ms where the system has one at
 * hand, 7 ms in a virtual machine whose host has taken the memory back, or where memory must be compacted first (docs/decisions.md, 19 and 20). So
 * the first page of a fresh superpage is touched here, with a look at the clock; while their mean is too dear the next superpages go without after
 * each dear one, more of them each time, until one is cheap again. A superpage that is taken again with nothing present is decided on again. Above
 * the soft limit there is none, by any policy: idle pages would come with it that may not stay.
 *
 * Superpages of slabs get them, but for those that are taken for objects of several pages, and large blocks, as long as blocks are used: smaller ones
 * come and go, and what they leave behind serves the next ones, which costs less than any fresh page. What a slab's superpage is measured by will be
 * used at once. Not so a block, of which nobody may ever touch a page: where nothing is known, its first superpage alone is measured, and answers for
 * HUGE_TRUST more, of this block and of others.
 *
 * Lock: LOCK_RANK_ZONE, never held during a touch.
 */
#include "page/zone_internal.h"

/* What 512 base pages cost, in batches, where a fault is slow: a huge page that costs more is dear. */
#define HUGE_DEAR_NS 1000000
/* One that took longer, as the machine was busy, counts as this much. */
#define HUGE_COST_MAX_NS 8000000
/* After a dear one so many go without, twice as many after each further one. */
#define HUGE_PAUSE_MIN 8
#define HUGE_PAUSE_MAX 256
/* After a cheap one so many superpages of blocks are trusted: of blocks that are never touched, one part in so many is present. */
#define HUGE_TRUST 256

static bool is_empty(const struct superpage *superpage) { return bits_count(superpage->populated) == 0; }

STRATA_RARE void zone_note_advice(struct zone *zone, struct superpage *first, size_t count, bool on) {
    if (first->huge == on) return;
    size_t at = (size_t)(first - zone->superpages), end = zone->extent_bytes >> SUPERPAGE_SHIFT;
    bool before = at != 0 && first[-1].huge, behind = at + count < end && first[count].huge;
    zone->counters.mappings += (uint64_t)(before != on) + (behind != on);
    zone->counters.mappings -= (uint64_t)(before == on) + (behind == on); /* borders that were there, as the advice was the other */
    for (size_t i = 0; i < count; i++) first[i].huge = on;
}

/* For superpages [from, to), which have the other advice, by one call. */
static void advise_range(struct zone *zone, struct superpage *first, size_t from, size_t to, bool on) {
    if (on) zone_want_limit(zone); /* pages that nobody has asked for come with them */
    if (!zone_mappings_left(zone) || !platform_advise_huge(superpage_address(zone, &first[from]), (to - from) << SUPERPAGE_SHIFT, on)) return;
    zone_note_advice(zone, &first[from], to - from, on);
}

static void set_advice(struct zone *zone, struct superpage *superpage, bool on) { advise_range(zone, superpage, 0, 1, on); }

static bool within_soft_limit(const struct zone *zone, size_t more) {
    return zone->counters.allocated + max_u64(more, SUPERPAGE_GRANULES) <= zone->config.soft_limit_bytes >> GRANULE_SHIFT;
}

static bool heap_is_large(const struct zone *zone, size_t more) { return zone->counters.allocated + more >= zone->config.huge_heap_granules; }

/*
 * Whether what is allocated is there, too, for the most part: of a large block nobody may ever touch a page, and then two superpages of slabs are the
 * heap. The system is asked anew once the heap has become an eighth larger or smaller; where it says nothing, all counts as touched.
 */
static bool is_mostly_there(struct zone *zone) {
    struct huge_policy *huge = &zone->huge;
    const uint64_t allocated = zone->counters.allocated, large = zone->config.huge_heap_granules;
    if (allocated - min_u64(allocated, zone->counters.block_granules) >= large) return true;
    if (huge->asked_at < allocated - allocated / 8 || huge->asked_at > allocated + allocated / 8) {
        huge->asked_at = allocated;
        huge->resident = platform_is_filtered() ? 0 : platform_resident_bytes() >> GRANULE_SHIFT;
    }
    return huge->resident == 0 || huge->resident >= large - large / 4;
}

bool zone_decide_huge(struct zone *zone, struct superpage *superpage, size_t more, bool used) {
    if (zone->config.thp == ZONE_THP_NEVER) return false;
    if (!within_soft_limit(zone, more)) {
        if (superpage->huge) set_advice(zone, superpage, false);
        return false;
    }
    if (zone->config.thp == ZONE_THP_ALWAYS) {
        if (!superpage->huge) set_advice(zone, superpage, true);
        return superpage->huge;
    }
    if (!is_empty(superpage)) return false; /* a huge page would not come by the next touch */
    bool wanted = used && superpage->mobility == MOBILITY_UNMOVABLE && heap_is_large(zone, more) && is_mostly_there(zone); /* blocks come and go */
    if (wanted && zone->huge.pause_left != 0) {
        zone->huge.pause_left--;
        wanted = false;
    }
    if (wanted != superpage->huge) set_advice(zone, superpage, wanted);
    return superpage->huge;
}

/* What the first touch of a superpage with advice took, in ns. The page at `address` is the caller's alone. */
static uint64_t time_touch(void *address) {
    uint64_t before_ns = platform_precise_ns();
    if (!platform_populate(address, platform_info()->page_bytes)) {
        volatile char *first = address; /* a system without that call */
        *first = *first;
    }
    return platform_precise_ns() - before_ns;
}

/*
 * Asked for while their mean, of which the last one makes a quarter, is below what base pages cost. A cheap one is followed by the next look at
 * once, which costs nothing while they are cheap; a dear one that leaves the mean above begins a pause. Returns whether the mean is above.
 */
static bool note(struct huge_policy *huge, uint64_t cost_ns) {
    uint32_t cost = (uint32_t)min_u64(cost_ns, HUGE_COST_MAX_NS);
    huge->mean_ns = huge->mean_ns - huge->mean_ns / 4 + cost / 4;
    bool dear = huge->mean_ns > HUGE_DEAR_NS;
    if (!dear) {
        huge->pause = 0;
        huge->trust = HUGE_TRUST;
    } else {
        huge->trust = 0;
        if (cost > HUGE_DEAR_NS && huge->pause_left == 0) /* several threads at once are one */
            huge->pause_left = huge->pause = huge->pause == 0 ? HUGE_PAUSE_MIN : (uint32_t)min_u64(huge->pause * 2, HUGE_PAUSE_MAX);
    }
    return dear;
}

STRATA_COLD void zone_measure_huge(struct zone *zone, void *address) {
    if (zone->config.thp != ZONE_THP_AUTO) return;
    uint64_t cost_ns = time_touch(address);
    zone_lock(zone);
    (void)note(&zone->huge, cost_ns);
    platform_lock_release(&zone->lock);
}

/* Superpages [from, to) with nothing present, or all of them where `all`, get this advice. */
static void advise_block(struct zone *zone, struct superpage *first, size_t from, size_t to, bool on, bool all) {
    for (size_t i = from, end; i < to; i = end) {
        for (end = i; end < to && first[end].huge != on && (all || is_empty(&first[end])); end++) continue;
        if (end != i)
            advise_range(zone, first, i, end, on);
        else
            end = i + 1;
    }
}

STRATA_COLD void zone_decide_huge_block(struct zone *zone, struct superpage *first, size_t from, size_t to, size_t more, bool alike,
                                        struct huge_question *question) {
    struct huge_policy *huge = &zone->huge;
    if (zone->config.thp == ZONE_THP_NEVER) return;
    bool always = zone->config.thp == ZONE_THP_ALWAYS, fits = within_soft_limit(zone, more);
    bool wanted = fits && (always || (heap_is_large(zone, more) && !zone_is_sparse(zone, true)));
    size_t paused = always || !wanted ? 0 : min_u64(huge->pause_left, to - from);
    huge->pause_left -= (uint32_t)paused;
    if (alike && paused != 0) paused = to - from;
    advise_block(zone, first, from, wanted ? from + paused : to, false, !fits || alike);
    from = wanted ? from + paused : to;
    size_t start = from;
    while (!always && huge->trust == 0 && from < to && !is_empty(&first[from])) from++;
    if (from == to) return;
    if (always || huge->trust != 0) {
        advise_block(zone, first, alike ? start : from, to, true, always || alike);
        huge->trust -= (uint32_t)min_u64(huge->trust, to - from);
    } else if (question != NULL) {
        size_t end = from + 1;
        while (end < to && (alike || is_empty(&first[end]))) end++;
        advise_block(zone, first, from, from + 1, true, false);
        if (first[from].huge)
            *question = (struct huge_question){.superpage = &first[from], .others = end - from - 1, .before = alike ? from - start : 0};
    }
}

STRATA_COLD void zone_ask_huge(struct zone *zone, struct superpage *first, size_t count) {
    if (zone->config.thp == ZONE_THP_NEVER) return;
    for (size_t i = 0; i < count; i++) {
        if (first[i].huge || is_empty(&first[i])) continue;
        /* Base pages that are there would keep a huge page away. */
        if (platform_release(superpage_address(zone, &first[i]), SUPERPAGE_BYTES)) zone_mark_released(zone, &first[i], 0, SUPERPAGE_GRANULES);
    }
    advise_block(zone, first, 0, count, true, true);
}

STRATA_COLD void zone_answer_huge(struct zone *zone, const struct huge_question *question) {
    struct superpage *superpage = question->superpage;
    if (superpage == NULL) return;
    uint64_t cost_ns = time_touch(superpage_address(zone, superpage));
    zone_lock(zone);
    bool dear = note(&zone->huge, cost_ns);
    uint32_t *left = dear ? &zone->huge.pause_left : &zone->huge.trust;
    *left -= (uint32_t)min_u64(*left, question->others);
    if (question->before != 0) advise_block(zone, superpage - question->before, 0, question->before, !dear, true);
    advise_block(zone, superpage, 1, 1 + question->others, !dear, true); /* empty when it was asked: nobody has touched them since */
    platform_lock_release(&zone->lock);
}
