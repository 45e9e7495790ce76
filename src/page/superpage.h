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
STRATA_INLINE unsigned bits_count_range(const uint64_t bits[SUPERPAGE_WORDS], unsigned start, unsigned granules) {
    unsigned count = 0;
    for (unsigned w = start / 64; w <= (start + granules - 1) / 64; w++) count += bit_count(bits[w] & range_mask(w, start, granules));
    return count;
}
STRATA_INLINE unsigned bits_count(const uint64_t bits[SUPERPAGE_WORDS]) {
    unsigned count = 0;
    for (unsigned w = 0; w < SUPERPAGE_WORDS; w++) count += bit_count(bits[w]);
    return count;
}

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
static inline unsigned bits_find_run(const uint64_t bits[SUPERPAGE_WORDS], unsigned granules, unsigned align) {
    unsigned start = bits_next(bits, 0, 0);
    while (start < SUPERPAGE_GRANULES) {
        unsigned end = bits_next(bits, start, ~UINT64_C(0));
        unsigned aligned = (unsigned)align_up(start, align);
        if (aligned + granules <= end) return aligned;
        start = bits_next(bits, end, 0);
    }
    return SUPERPAGE_GRANULES;
}

/* The length of the longest run of clear bits. */
static inline unsigned bits_longest_clear(const uint64_t bits[SUPERPAGE_WORDS]) {
    unsigned longest = 0;
    unsigned start = bits_next(bits, 0, ~UINT64_C(0));
    while (start + longest < SUPERPAGE_GRANULES) {
        unsigned end = bits_next(bits, start, 0);
        if (end - start > longest) longest = end - start;
        start = bits_next(bits, end, ~UINT64_C(0));
    }
    return longest;
}

/* The lowest place for a run whose granules are all present; 512 where there is none. */
static inline unsigned superpage_find_present(const struct superpage *superpage, unsigned granules, unsigned align) {
    uint64_t candidates[SUPERPAGE_WORDS];
    if (superpage->idle < granules) return SUPERPAGE_GRANULES;
    for (unsigned w = 0; w < SUPERPAGE_WORDS; w++) candidates[w] = superpage->populated[w] & ~superpage->allocated[w];
    return bits_find_run(candidates, granules, align);
}

/* Where a run fits best: the lowest place whose granules are all present, else the lowest at all; 512 where there is none. */
static inline unsigned superpage_find_run(const struct superpage *superpage, unsigned granules, unsigned align) {
    uint64_t candidates[SUPERPAGE_WORDS];
    unsigned present = superpage_find_present(superpage, granules, align);
    if (present < SUPERPAGE_GRANULES) return present;
    for (unsigned w = 0; w < SUPERPAGE_WORDS; w++) candidates[w] = ~superpage->allocated[w];
    return bits_find_run(candidates, granules, align);
}

/* A superpage of huge pages that is in use is broken up only when this much of it is idle. */
#define HUGE_IDLE_GRANULES (SUPERPAGE_GRANULES * 3 / 4)

/* How many of `idle` granules the superpage keeps in order not to break up its huge page. */
STRATA_INLINE unsigned superpage_kept_idle(const struct superpage *superpage, unsigned idle) {
    return superpage->huge && superpage->state == SUPERPAGE_RUNS && idle < HUGE_IDLE_GRANULES ? idle : 0;
}

/* Granules [start, start + granules), all free, become allocated: the bits, and the counts that follow from them. */
static inline void superpage_set_allocated(struct superpage *superpage, unsigned start, unsigned granules) {
    unsigned run = bits_next(superpage->allocated, start + granules, 0) - bits_clear_from(superpage->allocated, start);
    superpage->free = (uint16_t)(superpage->free - granules);
    superpage->idle = (uint16_t)(superpage->idle - bits_count_range(superpage->populated, start, granules));
    bits_set(superpage->allocated, start, granules);
    if (run == superpage->largest_free) superpage->largest_free = (uint16_t)bits_longest_clear(superpage->allocated);
}

/* The way back. */
static inline void superpage_set_free(struct superpage *superpage, unsigned start, unsigned granules) {
    unsigned run = bits_next(superpage->allocated, start + granules, 0) - bits_clear_from(superpage->allocated, start);
    superpage->free = (uint16_t)(superpage->free + granules);
    superpage->idle = (uint16_t)(superpage->idle + bits_count_range(superpage->populated, start, granules));
    bits_clear(superpage->allocated, start, granules);
    if (run > superpage->largest_free) superpage->largest_free = (uint16_t)run;
}

/* Recomputes the counts that follow from the bitfields. */
static inline void superpage_recount(struct superpage *superpage) {
    unsigned idle = 0;
    for (unsigned w = 0; w < SUPERPAGE_WORDS; w++) idle += bit_count(superpage->populated[w] & ~superpage->allocated[w]);
    superpage->idle = (uint16_t)idle;
    superpage->free = (uint16_t)(SUPERPAGE_GRANULES - bits_count(superpage->allocated));
    superpage->largest_free = (uint16_t)bits_longest_clear(superpage->allocated);
}

#endif
