/*
 * superpage.h - pure functions on the bitfields of one superpage: find a run, set, clear, count. Private to page/.
 *
 * Nothing here locks, calls out, or knows the zone: the caller holds the zone's lock and updates its counters.
 */
#ifndef STRATA_PAGE_SUPERPAGE_H
#define STRATA_PAGE_SUPERPAGE_H

#include "page/page.h"

/* Bits [first, first + count) of word `word`, of the 512-bit range [start, start + granules). */
STRATA_INLINE uint64_t range_mask(unsigned word, unsigned start, unsigned granules) {
    unsigned low = word * 64, high = low + 64;
    unsigned from = start > low ? start : low;
    unsigned to = start + granules < high ? start + granules : high;
    if (from >= to) return 0;
    unsigned count = to - from;
    return (count == 64 ? ~UINT64_C(0) : (UINT64_C(1) << count) - 1) << (from - low);
}

STRATA_INLINE void bits_set(uint64_t bits[SUPERPAGE_WORDS], unsigned start, unsigned granules) {
    for (unsigned w = start / 64; w <= (start + granules - 1) / 64; w++) bits[w] |= range_mask(w, start, granules);
}
STRATA_INLINE void bits_clear(uint64_t bits[SUPERPAGE_WORDS], unsigned start, unsigned granules) {
    for (unsigned w = start / 64; w <= (start + granules - 1) / 64; w++) bits[w] &= ~range_mask(w, start, granules);
}
/* How many bits are set: of a range, of all. */
unsigned bits_count_range(const uint64_t bits[SUPERPAGE_WORDS], unsigned start, unsigned granules);
unsigned bits_count(const uint64_t bits[SUPERPAGE_WORDS]);

/* The first bit at or after `from` that is set (or clear, with invert all ones); 512 where there is none. */
STRATA_INLINE unsigned bits_next(const uint64_t bits[SUPERPAGE_WORDS], unsigned from, uint64_t invert) {
    if (from >= SUPERPAGE_GRANULES) return SUPERPAGE_GRANULES;
    unsigned w = from / 64;
    uint64_t word = (bits[w] ^ invert) & (~UINT64_C(0) << (from % 64));
    while (word == 0) {
        if (++w == SUPERPAGE_WORDS) return SUPERPAGE_GRANULES;
        word = bits[w] ^ invert;
    }
    return w * 64 + bit_lowest(word);
}

/* The first bit of the run of clear bits that ends before `before`; `before` itself where the bit in front of it is set. */
STRATA_INLINE unsigned bits_clear_from(const uint64_t bits[SUPERPAGE_WORDS], unsigned before) {
    if (before == 0) return 0;
    unsigned w = (before - 1) / 64;
    uint64_t word = bits[w] & (~UINT64_C(0) >> (63 - (before - 1) % 64));
    while (word == 0) {
        if (w == 0) return 0;
        word = bits[--w];
    }
    return w * 64 + bit_highest(word) + 1;
}

/* The lowest start of `granules` set bits, at a multiple of `align`; 512 where there is none. */
unsigned bits_find_run(const uint64_t bits[SUPERPAGE_WORDS], unsigned granules, unsigned align);
/* The length of the longest run of clear bits. */
unsigned bits_longest_clear(const uint64_t bits[SUPERPAGE_WORDS]);
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

#endif
