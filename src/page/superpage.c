/*
 * superpage.c - the functions of superpage.h that are too long to be copied into their callers. Pure: no lock, no call out.
 */
#include "page/superpage.h"

unsigned bits_count_range(const uint64_t bits[SUPERPAGE_WORDS], unsigned start, unsigned granules) {
    return bitfield_count(bits, start, start + granules);
}

unsigned bits_count(const uint64_t bits[SUPERPAGE_WORDS]) {
    unsigned count = 0;
    for (unsigned w = 0; w < SUPERPAGE_WORDS; w++) count += bit_count(bits[w]);
    return count;
}

unsigned bits_run_from(const uint64_t bits[SUPERPAGE_WORDS], unsigned before, uint64_t invert) {
    return before == 0 ? 0 : bitfield_last(bits, before - 1, invert) + 1; /* BITFIELD_NONE + 1 is 0 */
}

/* Behind the words as many of zeros, and one more, so that nobody need ask where they end. */
#define STARTS_WORDS (2 * SUPERPAGE_WORDS + 1)

/* Of bits that stay are those that have another one `distance` further on, below 512; false: none is left. */
STRATA_INLINE bool keep_followed(uint64_t bits[STARTS_WORDS], unsigned distance) {
    const unsigned words = distance / 64, shift = distance % 64;
    uint64_t any = 0;
    for (unsigned w = 0; w < SUPERPAGE_WORDS; w++) any |= bits[w] &= bits[w + words] >> shift | bits[w + words + 1] << 1 << (63 - shift);
    return any != 0;
}

/*
 * Without a branch on what the bits are, which nobody could guess, but for one after each step: where a run of length n begins, one of n + m does if
 * one of m begins n further on.
 */
unsigned bits_find_run(const uint64_t bits[SUPERPAGE_WORDS], unsigned granules, unsigned align) {
    uint64_t starts[STARTS_WORDS] = {0};
    __builtin_memcpy(starts, bits, SUPERPAGE_WORDS * sizeof starts[0]);
    for (unsigned length = 1, more; length < granules; length += more) {
        more = granules - length < length ? granules - length : length;
        if (!keep_followed(starts, more)) return SUPERPAGE_GRANULES;
    }
    unsigned at = 0, aligned = 0;
    do {
        at = bits_next(starts, aligned, 0);
        aligned = (unsigned)align_up(at, align);
    } while (aligned != at && aligned < SUPERPAGE_GRANULES);
    return aligned == at ? at : SUPERPAGE_GRANULES;
}

unsigned bits_longest_clear(const uint64_t bits[SUPERPAGE_WORDS]) {
    unsigned longest = 0;
    unsigned start = bits_next(bits, 0, ~UINT64_C(0));
    while (start + longest < SUPERPAGE_GRANULES) {
        unsigned end = bits_next(bits, start, 0);
        if (end - start > longest) longest = end - start;
        start = bits_next(bits, end, ~UINT64_C(0));
    }
    return longest;
}

unsigned superpage_longest_idle(const struct superpage *superpage) {
    uint64_t others[SUPERPAGE_WORDS];
    for (unsigned w = 0; w < SUPERPAGE_WORDS; w++) others[w] = ~superpage->populated[w] | superpage->allocated[w];
    return bits_longest_clear(others);
}

unsigned superpage_find_present(const struct superpage *superpage, unsigned granules, unsigned align) {
    uint64_t candidates[SUPERPAGE_WORDS];
    if (superpage->idle_run < granules) return SUPERPAGE_GRANULES;
    for (unsigned w = 0; w < SUPERPAGE_WORDS; w++) candidates[w] = superpage->populated[w] & ~superpage->allocated[w];
    return bits_find_run(candidates, granules, align);
}

unsigned superpage_find_run(const struct superpage *superpage, unsigned granules, unsigned align) {
    uint64_t candidates[SUPERPAGE_WORDS];
    unsigned present = superpage_find_present(superpage, granules, align);
    if (present < SUPERPAGE_GRANULES) return present;
    for (unsigned w = 0; w < SUPERPAGE_WORDS; w++) candidates[w] = ~superpage->allocated[w];
    return bits_find_run(candidates, granules, align);
}

void superpage_set_allocated(struct superpage *superpage, unsigned start, unsigned granules) {
    unsigned first = bits_run_from(superpage->allocated, start, 0), end = bits_next(superpage->allocated, start + granules, 0), run = end - first;
    superpage->free = (uint16_t)(superpage->free - granules);
    superpage->idle = (uint16_t)(superpage->idle - bits_count_range(superpage->populated, start, granules));
    if (superpage->idle_run > superpage->idle) superpage->idle_run = superpage->idle;
    bits_set(superpage->allocated, start, granules);
    if (run != superpage->largest_free) return;
    /* What is left of the run is the longest, still, if it is half of all that is free. */
    unsigned longest = start - first > end - (start + granules) ? start - first : end - (start + granules);
    superpage->largest_free = (uint16_t)(2 * longest >= superpage->free ? longest : bits_longest_clear(superpage->allocated));
}

void superpage_set_free(struct superpage *superpage, unsigned start, unsigned granules) {
    unsigned first = bits_run_from(superpage->allocated, start, 0), end = bits_next(superpage->allocated, start + granules, 0), run = end - first;
    const unsigned present = bits_count_range(superpage->populated, start, granules);
    superpage->free = (uint16_t)(superpage->free + granules);
    superpage->idle = (uint16_t)(superpage->idle + present);
    bits_clear(superpage->allocated, start, granules);
    if (run > superpage->largest_free) superpage->largest_free = (uint16_t)run;
    if (present == granules) { /* else the free run will do as a bound */
        first = (unsigned)max_u64(first, bits_run_from(superpage->populated, start, ~UINT64_C(0)));
        end = (unsigned)min_u64(end, bits_next(superpage->populated, start + granules, ~UINT64_C(0)));
    }
    superpage->idle_run = (uint16_t)max_u64(superpage->idle_run, min_u64(end - first, superpage->idle));
}

bool superpage_set_all_allocated(struct superpage *superpage) {
    uint64_t dirty = 0;
    for (unsigned w = 0; w < SUPERPAGE_WORDS; w++) {
        dirty |= superpage->dirty[w];
        superpage->allocated[w] = superpage->populated[w] = superpage->dirty[w] = ~UINT64_C(0);
    }
    superpage->free = superpage->largest_free = superpage->idle = superpage->idle_run = 0;
    return dirty == 0;
}

/* What is allocated counts as populated. */
void superpage_set_all_free(struct superpage *superpage) {
    for (unsigned w = 0; w < SUPERPAGE_WORDS; w++) superpage->allocated[w] = 0;
    superpage->free = superpage->largest_free = superpage->idle = superpage->idle_run = SUPERPAGE_GRANULES;
}

void superpage_recount_idle(struct superpage *superpage) {
    unsigned idle = 0;
    for (unsigned w = 0; w < SUPERPAGE_WORDS; w++) {
        uint64_t word = superpage->populated[w] & ~superpage->allocated[w];
        idle += word == 0 ? 0 : word == ~UINT64_C(0) ? 64 : bit_count(word); /* most are one of the first two */
    }
    superpage->idle = superpage->idle_run = (uint16_t)idle;
}

void superpage_recount(struct superpage *superpage) {
    superpage_recount_idle(superpage);
    superpage->free = (uint16_t)(SUPERPAGE_GRANULES - bits_count(superpage->allocated));
    superpage->largest_free = (uint16_t)bits_longest_clear(superpage->allocated);
}
