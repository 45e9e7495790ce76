/*
 * bitfield.h - ranges of a bitfield of whole words: set, clear, count, search. Pure, and shared by the two engines that keep superpages: the heap's
 * zone (superpage.h) and zones of frames (frames_superpage.h), each of which gives them its own names and bounds. A search over bits that are set is
 * one over bits that are clear with `invert` all ones.
 */
#ifndef STRATA_PAGE_BITFIELD_H
#define STRATA_PAGE_BITFIELD_H

#include <limits.h>

#include "base/base.h"

#define BITFIELD_NONE UINT_MAX

/* Bits [first, first + count) of a word; count is 1..64. */
STRATA_INLINE uint64_t bitfield_mask(unsigned first, unsigned count) { return (count == 64 ? ~UINT64_C(0) : (UINT64_C(1) << count) - 1) << first; }
/* The part of the range [from, to) that is in word `word`; it must have one. */
STRATA_INLINE uint64_t bitfield_part(unsigned word, unsigned from, unsigned to) {
    unsigned low = word * 64, first = from > low ? from : low, end = to < low + 64 ? to : low + 64;
    return bitfield_mask(first - low, end - first);
}

/* The range [from, to), which is not empty. */
STRATA_INLINE void bitfield_set(uint64_t *bits, unsigned from, unsigned to) {
    for (unsigned w = from / 64; w <= (to - 1) / 64; w++) bits[w] |= bitfield_part(w, from, to);
}
STRATA_INLINE void bitfield_clear(uint64_t *bits, unsigned from, unsigned to) {
    for (unsigned w = from / 64; w <= (to - 1) / 64; w++) bits[w] &= ~bitfield_part(w, from, to);
}
STRATA_INLINE unsigned bitfield_count(const uint64_t *bits, unsigned from, unsigned to) {
    unsigned set = 0;
    for (unsigned w = from / 64; w <= (to - 1) / 64; w++) set += bit_count(bits[w] & bitfield_part(w, from, to));
    return set;
}

/* The first bit at or after `from`, before `end`, that is set; `end` where there is none. */
STRATA_INLINE unsigned bitfield_next(const uint64_t *bits, unsigned from, unsigned end, uint64_t invert) {
    if (from >= end) return end;
    unsigned w = from / 64, words = (end + 63) / 64;
    uint64_t word = (bits[w] ^ invert) & ~UINT64_C(0) << from % 64;
    while (word == 0) {
        if (++w == words) return end;
        word = bits[w] ^ invert;
    }
    unsigned found = w * 64 + bit_lowest(word);
    if (__builtin_constant_p(end) && end % 64 == 0) return found; /* none behind the end is in the last word */
    return found < end ? found : end;
}

/* The last bit at or before `from` that is set; BITFIELD_NONE where there is none. */
STRATA_INLINE unsigned bitfield_last(const uint64_t *bits, unsigned from, uint64_t invert) {
    unsigned w = from / 64;
    uint64_t word = (bits[w] ^ invert) & ~UINT64_C(0) >> (63 - from % 64);
    while (word == 0) {
        if (w == 0) return BITFIELD_NONE;
        word = bits[--w] ^ invert;
    }
    return w * 64 + bit_highest(word);
}

/* Where `count` set bits lie, from a multiple of `align` (a power of two) on: the lowest place; `end` where there is none. */
STRATA_INLINE unsigned bitfield_find(const uint64_t *bits, unsigned count, unsigned align, unsigned end, uint64_t invert) {
    for (unsigned start = bitfield_next(bits, 0, end, invert); start < end;) {
        unsigned stop = bitfield_next(bits, start, end, ~invert), aligned = (unsigned)align_up(start, align);
        if (aligned + count <= stop) return aligned;
        start = bitfield_next(bits, stop, end, invert);
    }
    return end;
}

#endif
