/*
 * litter.c - pages that hardly used blocks leave behind, unasked.
 *
 * Where programs take large blocks and touch a few pages of each, as buffers for all cases, to find out which pages those were and to give them back
 * costs several times what the program does with them. So the pages of most of these blocks count as absent, unasked, but not as zeros: their
 * superpages are littered. Blocks of superpages that leave more than a few are settled as others are, as the next one is to have that at its start.
 * Of one in a few blocks the system is asked for one page; if that is there, and of one in many, all are looked at, from which follows how much the
 * others leave. Once that is more than a small share of the heap, and with each tick, all littered superpages go back to the system, by one call for
 * neighbours.
 *
 * Who takes a littered superpage for another block of the kind leaves its pages to that; for anything else they go back first, as nobody else expects
 * pages where none are counted. Within superpages that are cut into runs, and behind the end of a block in its last one, they are what may hold
 * something and counts as absent; pages do not move there meanwhile. Invariant (zone_check): littered superpages are no block's to their end, as
 * many as litter.superpages, and in [litter.from, litter.to). Lock: LOCK_RANK_ZONE.
 */
#include "page/zone_internal.h"

/* Of one block in so many a page is asked for, and of one in so many all. */
#define SAMPLE_EACH 4
#define LOOK_EACH 64
/* Blocks that had pages before they were used, more than this share of them, leave no litter. */
#define RUN_PAGES_SHARE 4
#define BLOCK_PAGES_SHARE 16
/* So much is left at most: of a heap this share, and so many granules at least. */
#define LITTER_SHARE 128
#define LITTER_GRANULES_MIN 128

/* Granules of one superpage, none of which is allocated; what the marks have of their pages is left, too. */
static void litter_superpage(struct zone *zone, struct superpage *superpage, unsigned start, unsigned granules) {
    struct litter *litter = &zone->litter;
    const size_t at = (size_t)(superpage - zone->superpages);
    const unsigned idle_before = superpage->idle, present = bits_count_range(superpage->populated, start, granules);
    bits_clear(superpage->populated, start, granules);
    superpage_recount_idle(superpage);
    COUNTER_SUB(zone->counters.populated, present);
    zone->counters.released_total += present; /* as absent pages count */
    zone_superpage_relink(zone, superpage, idle_before);
    if (superpage->littered) return;
    superpage->littered = true;
    litter->superpages++;
    litter->from = litter->to == 0 ? at : min_u64(litter->from, at);
    litter->to = max_u64(litter->to, at + 1);
}

static void litter_all(struct zone *zone, struct superpage *superpage, unsigned start, size_t granules) {
    for (; granules != 0; superpage++, start = 0) {
        const unsigned here = (unsigned)min_u64(SUPERPAGE_GRANULES - start, granules);
        litter_superpage(zone, superpage, start, here);
        granules -= here;
    }
}

/* Of littered superpages one is no more. What it is expected to have left is what all have on average. */
static void unlitter(struct zone *zone, struct superpage *superpage) {
    struct litter *litter = &zone->litter;
    superpage->littered = false;
    litter->granules -= litter->granules / litter->superpages;
    if (--litter->superpages == 0) litter->from = litter->to = litter->granules = 0;
}

/* Huge pages are present as a whole, where a few touches look like many. */
static bool is_littering(const struct zone *zone, const struct superpage *first, size_t granules, bool superpages) {
    if (!zone_is_sparse(zone, superpages)) return false;
    for (size_t i = 0; i * SUPERPAGE_GRANULES < granules; i++)
        if (first[i].huge) return false;
    return true;
}

bool zone_has_some_page(const struct zone *zone, const char *address, size_t granules, uint32_t number) {
    const uint64_t spread = (uint32_t)(number * UINT32_C(0x9e3779b9)); /* of 2^32, as evenly as can be (Knuth, 6.4) */
    uint8_t resident;
    const size_t granule = align_down((size_t)(spread * granules >> 32), zone->page_granules);
    return !platform_resident(address + (granule << GRANULE_SHIFT), platform_info()->page_bytes, &resident) || resident != 0;
}

/* Of a block that was chosen by nothing that it has: one that was found by a page is likely to have more than others. */
static void learn_share(struct litter_kind *kind, uint32_t share) {
    kind->share = kind->share == 0 ? share : kind->share - kind->share / 4 + share / 4;
}

/* Whether the next block is to have what one leaves: of superpages, more than a few. */
static bool is_worth_knowing(bool superpages, size_t granules, uint64_t left) {
    return superpages && left >= HOLES_GRANULES_MIN && left > granules / BLOCK_PAGES_SHARE;
}

bool zone_litter_leave(struct zone *zone, const struct block_desc *block, char *address, size_t granules) {
    struct superpage *superpage = superpage_of(zone, address);
    const bool superpages = block->superpages != 0;
    struct litter_kind *kind = &zone->litter.kinds[superpages];
    /* Of one that grew, or got pages, what was there before is likely to be present: that is worth a look. */
    if (block->holes || block->fresh < granules - granules / (superpages ? BLOCK_PAGES_SHARE : RUN_PAGES_SHARE) ||
        !is_littering(zone, superpage, granules, superpages))
        return false;
    if (platform_is_filtered()) return false; /* to ask may be the end of the program, and nothing is left that is never asked for */
    const uint32_t number = kind->blocks++;
    uint64_t left = zone_litter_expected(&zone->litter, superpages, granules);
    if (number % LOOK_EACH != 0 && is_worth_knowing(superpages, granules, left)) return false;
    if (number % LOOK_EACH == 0 || block->used || (number % SAMPLE_EACH == 0 && zone_has_some_page(zone, address, granules, number))) {
        const size_t absent = zone_mark_holes(zone, address, granules);
        left = granules - absent;
        if (number % LOOK_EACH == 0) learn_share(kind, (uint32_t)(left * LITTER_WHOLE / granules));
        zone_learn_untouched(zone, block, granules, absent);
        if (!zone_is_sparse(zone, superpages) || is_worth_knowing(superpages, granules, left)) return true; /* what is there counts from now on */
    }
    litter_all(zone, superpage, (unsigned)(zone_granule_of(zone, address) % SUPERPAGE_GRANULES), granules);
    zone->litter.granules += left;
    const uint64_t most = max_u64(LITTER_GRANULES_MIN, zone->counters.populated / LITTER_SHARE);
    if (zone->litter.granules > most) zone_litter_sweep(zone);
    return true;
}

void zone_litter_keep_slow(struct zone *zone, struct superpage *first, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (first[i].littered) unlitter(zone, &first[i]);
}

/* What a superpage in use, or a free one, may have left: it holds something, so far as known, and counts as absent. */
static void find_left(const struct superpage *superpage, uint64_t left[SUPERPAGE_WORDS]) {
    for (unsigned w = 0; w < SUPERPAGE_WORDS; w++) left[w] = superpage->dirty[w] & ~superpage->populated[w];
}

static bool release_left(const struct zone *zone, const struct superpage *superpage) {
    uint64_t left[SUPERPAGE_WORDS];
    find_left(superpage, left);
    return zone_release_picked(zone, superpage, left);
}

/* It has gone back; or the system refused, and all that may be there counts as present from now on. */
static void end_litter(struct zone *zone, struct superpage *superpage, bool released) {
    const unsigned idle_before = superpage->idle;
    uint64_t left[SUPERPAGE_WORDS];
    unlitter(zone, superpage);
    find_left(superpage, left);
    for (unsigned w = 0; w < SUPERPAGE_WORDS; w++) {
        if (released)
            superpage->dirty[w] &= ~left[w];
        else
            superpage->populated[w] |= left[w];
    }
    if (released) return;
    superpage_recount(superpage);
    COUNTER_ADD(zone->counters.populated, bits_count(left));
    zone->counters.populated_total += bits_count(left);
    zone_superpage_relink(zone, superpage, idle_before);
}

/* All of it may go, by one call with its neighbours. */
static bool goes_whole(const struct superpage *superpage) {
    return superpage->littered && superpage->state == SUPERPAGE_FREE && superpage->idle == 0;
}

void zone_litter_clear_slow(struct zone *zone, struct superpage *first, size_t count) {
    for (size_t i = 0, end; i < count; i = end) {
        for (end = i; end < count && goes_whole(&first[end]); end++) continue;
        const bool ok = end == i || platform_release(superpage_address(zone, &first[i]), (end - i) * SUPERPAGE_BYTES);
        for (size_t at = i; at < end; at++) end_litter(zone, &first[at], ok);
        if (end != i) continue;
        if (first[i].littered) end_litter(zone, &first[i], release_left(zone, &first[i]));
        end = i + 1;
    }
}
