/*
 * superpage.h - pure functions on the bitfields of one superpage: find a run, set, clear, count. Private to page/.
 *
 * Nothing here locks, calls out, or knows the zone: the caller holds the zone's lock and updates its counters.
 */
#ifndef STRATA_PAGE_SUPERPAGE_H
#define STRATA_PAGE_SUPERPAGE_H

#include "page/bitfield.h"
#include "page/page.h"

STRATA_INLINE void bits_set(uint64_t bits[SUPERPAGE_WORDS], unsigned start, unsigned granules) { bitfield_set(bits, start, start + granules); }
STRATA_INLINE void bits_clear(uint64_t bits[SUPERPAGE_WORDS], unsigned start, unsigned granules) { bitfield_clear(bits, start, start + granules); }
/* How many bits are set: of a range, of all. */
unsigned bits_count_range(const uint64_t bits[SUPERPAGE_WORDS], unsigned start, unsigned granules);
unsigned bits_count(const uint64_t bits[SUPERPAGE_WORDS]);

/* The first bit at or after `from` that is set (or clear, with invert all ones); 512 where there is none. */
STRATA_INLINE unsigned bits_next(const uint64_t bits[SUPERPAGE_WORDS], unsigned from, uint64_t invert) {
    return bitfield_next(bits, from, SUPERPAGE_GRANULES, invert);
}

/* The first run of clear bits in [from, end): its first bit, and in *stop the one behind its last; both `end` where there is none. */
STRATA_INLINE unsigned bits_next_gap(const uint64_t bits[SUPERPAGE_WORDS], unsigned from, unsigned end, unsigned *stop) {
    const unsigned first = bitfield_next(bits, from, end, ~UINT64_C(0));
    *stop = bitfield_next(bits, first, end, 0);
    return first;
}

/* The first bit of the run of clear bits (or set ones, with invert all ones) that ends before `before`; `before` itself where there is none. */
unsigned bits_run_from(const uint64_t bits[SUPERPAGE_WORDS], unsigned before, uint64_t invert);

/* The lowest start of `granules` set bits, at a multiple of `align`; 512 where there is none. */
unsigned bits_find_run(const uint64_t bits[SUPERPAGE_WORDS], unsigned granules, unsigned align);
/* The length of the longest run of clear bits. */
unsigned bits_longest_clear(const uint64_t bits[SUPERPAGE_WORDS]);
/* The length of the longest run of granules that are idle, which idle_run is a bound of. */
unsigned superpage_longest_idle(const struct superpage *superpage);
/* The lowest place for a run whose granules are all present; 512 where there is none. */
unsigned superpage_find_present(const struct superpage *superpage, unsigned granules, unsigned align);
/* Where a run fits best: the lowest place whose granules are all present, else the lowest at all; 512 where there is none. */
unsigned superpage_find_run(const struct superpage *superpage, unsigned granules, unsigned align);

/* A superpage of huge pages that is in use is broken up only when this much of it is idle. */
#define HUGE_IDLE_GRANULES (SUPERPAGE_GRANULES * 3 / 4)

/* How many of `idle` granules the superpage keeps in order not to break up its huge page. */
STRATA_INLINE unsigned superpage_kept_idle(const struct superpage *superpage, unsigned idle) {
    return superpage->huge && superpage->state == SUPERPAGE_RUNS && idle < HUGE_IDLE_GRANULES ? idle : 0;
}

/* Where its counts say that it is. */
STRATA_INLINE uint8_t superpage_idle_list(const struct superpage *superpage) {
    if (superpage->state != SUPERPAGE_FREE) return superpage->idle != 0 ? IDLE_HOLES : IDLE_NONE;
    return superpage->idle != 0 ? IDLE_FREE : superpage->described ? IDLE_BARE : IDLE_NONE;
}

/* Granules [start, start + granules), all free, become allocated: the bits, and the counts that follow from them. */
void superpage_set_allocated(struct superpage *superpage, unsigned start, unsigned granules);
/* The way back. */
void superpage_set_free(struct superpage *superpage, unsigned start, unsigned granules);
/* Of a superpage that is wholly free: it is wholly allocated, populated and dirty. True: it was zeros, so far as known. */
bool superpage_set_all_allocated(struct superpage *superpage);
/* Of one that is wholly allocated. */
void superpage_set_all_free(struct superpage *superpage);
/* Recomputes the counts that follow from the bitfields. */
void superpage_recount(struct superpage *superpage);
/* The same of idle alone, where what is allocated is as it was. */
void superpage_recount_idle(struct superpage *superpage);

#endif
