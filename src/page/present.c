/*
 * present.c - superpages by their longest run of idle granules, for who wants a run whose pages are present: a first touch costs more than a place in
 * a superpage that is not the fullest, and at the peak of the heap other pages have to go for it.
 *
 * The length is a bound: runs that are taken leave it as it is, and frees raise it by what they join. Who has looked in vain corrects it, so that
 * each superpage is looked at in vain once for what was taken of it. Of all that may have the run the one with the shortest free run serves, so that
 * long ones stay whole. Lock: LOCK_RANK_ZONE. (What came of looking through the superpages by what is free of them, present or not:
 * docs/decisions.md, 190.)
 */
#include "page/superpage.h"
#include "page/zone_internal.h"

/* So many of each list are looked at, the latest; and so many are asked in vain, under the lock. */
#define PRESENT_LOOKS 8
#define PRESENT_VAIN_LOOKS 8

void zone_present_init(struct zone *zone) {
    for (unsigned i = 0; i < ARRAY_LENGTH(zone->present); i++) list_init(&zone->present[i]);
}

/* Four lengths for each power of two, as blocks of buffers are of like sizes, and a run that is too long is to stay whole. */
STRATA_INLINE unsigned length_of(unsigned granules) {
    granules = (unsigned)min_u64(granules, SUPERPAGE_GRANULES - 1); /* all are idle for a moment, before the superpage is nobody's */
    const unsigned high = bit_highest(granules | 4);
    return granules < 8 ? granules : 4 * high - 4 + (granules >> (high - 2) & 3);
}
_Static_assert(ZONE_PRESENT_LISTS == 4 * 8 - 4 + 3 + 1 && SUPERPAGE_GRANULES == 512, "one for each length");

unsigned zone_present_list_of(const struct superpage *superpage) {
    if (superpage->state != SUPERPAGE_RUNS || superpage->apart || superpage->idle_run == 0) return 0;
    return superpage->mobility * ZONE_PRESENT_LISTS + length_of(superpage->idle_run);
}

/* A list that becomes empty keeps its bit until somebody looks. */
void zone_present_relink(struct zone *zone, struct superpage *superpage, bool recent) {
    const unsigned list = zone_present_list_of(superpage);
    if (list == superpage->present_list && !recent) return;
    if (superpage->present_list != 0) list_remove(&superpage->present_link);
    superpage->present_list = (uint8_t)list;
    if (list == 0) return;
    list_push_front(&zone->present[list], &superpage->present_link);
    zone->present_any[list / ZONE_PRESENT_LISTS] |= UINT32_C(1) << list % ZONE_PRESENT_LISTS;
}

/* In one list: of those that may have it the one with the shortest free run. */
static struct superpage *tightest(const struct list *head, unsigned granules) {
    struct superpage *best = NULL;
    unsigned looks = 0;
    for (struct list *node = head->next; node != head && looks < PRESENT_LOOKS; node = node->next, looks++) {
        struct superpage *superpage = CONTAINER_OF(node, struct superpage, present_link);
        if (superpage->idle_run >= granules && (best == NULL || superpage->largest_free < best->largest_free)) best = superpage;
    }
    return best;
}

static struct superpage *tightest_of_all(struct zone *zone, enum mobility mobility, unsigned granules) {
    uint32_t *const any = &zone->present_any[mobility];
    struct superpage *best = NULL;
    for (uint32_t left = *any & ~UINT32_C(0) << length_of(granules); left != 0; left &= left - 1) {
        const unsigned length = bit_lowest(left);
        const struct list *head = &zone->present[mobility * ZONE_PRESENT_LISTS + length];
        struct superpage *found = tightest(head, granules);
        if (found != NULL && (best == NULL || found->largest_free < best->largest_free)) best = found;
        if (list_empty(head)) *any &= ~(UINT32_C(1) << length);
    }
    return best;
}

/* What is longer by the alignment has it for sure. */
struct superpage *zone_present_find(struct zone *zone, enum mobility mobility, unsigned granules, unsigned align, unsigned *start) {
    const unsigned length = granules + (align > zone->page_granules ? align - zone->page_granules : 0);
    for (unsigned vain = 0; vain < PRESENT_VAIN_LOOKS && length < SUPERPAGE_GRANULES; vain++) {
        struct superpage *superpage = tightest_of_all(zone, mobility, length);
        if (superpage == NULL) return NULL;
        *start = superpage_find_present(superpage, granules, align);
        if (*start < SUPERPAGE_GRANULES) return superpage;
        superpage->idle_run = (uint16_t)superpage_longest_idle(superpage); /* shorter than was known */
        zone_present_relink(zone, superpage, false);
    }
    return NULL;
}
