/*
 * frames_superpage.c - the transitions of frames_superpage.h that are too long to be copied into their callers. Pure: no lock, no call out.
 */
#include "page/frames_superpage.h"

/* ------------------------------------------------------------------ bits */

/* Of a whole superpage by words, which is what most ranges of more than one frame are. */
void frames_bits_set(uint64_t *bits, unsigned first, unsigned count) {
    if (count == FRAMES_SUPERPAGE_MAX)
        for (unsigned w = 0; w < FRAMES_WORDS; w++) bits[w] = ~UINT64_C(0);
    else
        bitfield_set(bits, first, first + count);
}
void frames_bits_clear(uint64_t *bits, unsigned first, unsigned count) {
    if (count == FRAMES_SUPERPAGE_MAX)
        for (unsigned w = 0; w < FRAMES_WORDS; w++) bits[w] = 0;
    else
        bitfield_clear(bits, first, first + count);
}
unsigned frames_bits_count(const uint64_t *bits, unsigned first, unsigned count) { return bitfield_count(bits, first, first + count); }
unsigned frames_bits_next_set(const uint64_t *bits, unsigned from, unsigned end) { return bitfield_next(bits, from, end, 0); }
unsigned frames_bits_next_clear(const uint64_t *bits, unsigned from, unsigned end) { return bitfield_next(bits, from, end, ~UINT64_C(0)); }
unsigned frames_bits_last_set(const uint64_t *bits, unsigned from) { return bitfield_last(bits, from, 0); }

/* ------------------------------------------------------------------ free areas */

void frames_superpage_init(struct frames_superpage *superpage, unsigned frames) {
    *superpage = (struct frames_superpage){.free = (uint16_t)frames,
                                           .slot = FRAMES_NO_SLOT,
                                           .next = FRAMES_NO_SUPERPAGE,
                                           .prev = FRAMES_NO_SUPERPAGE,
                                           .list = FRAMES_NO_LIST,
                                           .largest = (uint8_t)(bit_highest(frames) + 1)};
    if (frames < FRAMES_SUPERPAGE_MAX) frames_bits_set(superpage->allocated, frames, FRAMES_SUPERPAGE_MAX - frames);
}

/* Of the bits of a word that begin free blocks of one order, those that begin blocks of the next. */
static uint64_t pair(uint64_t blocks, unsigned order) {
    static const uint64_t starts[] = {UINT64_C(0x5555555555555555), UINT64_C(0x1111111111111111), UINT64_C(0x0101010101010101),
                                      UINT64_C(0x0001000100010001), UINT64_C(0x0000000100000001), UINT64_C(1)};
    return blocks & blocks >> (1u << order) & starts[order];
}

unsigned frames_superpage_largest(const struct frames_superpage *superpage) {
    uint64_t blocks[FRAMES_WORDS], any = 0;
    for (unsigned w = 0; w < FRAMES_WORDS; w++) any |= blocks[w] = ~superpage->allocated[w];
    unsigned class = 0;
    for (unsigned order = 0; any != 0; order++) {
        class = order + 1;
        any = 0;
        if (order < 6)
            for (unsigned w = 0; w < FRAMES_WORDS; w++) any |= blocks[w] = pair(blocks[w], order);
        else /* whole words: pairs, fours, eights of them */
            for (unsigned step = 1u << (order - 6), w = 0; w + step < FRAMES_WORDS; w += 2 * step) any |= blocks[w] &= blocks[w + step];
        if (order == 6 + 3) break;
    }
    return class;
}

/* Blocks aligned to their size, of at most a word. */
static unsigned find_block(const struct frames_superpage *superpage, unsigned order) {
    for (unsigned w = 0; w < FRAMES_WORDS; w++) {
        uint64_t blocks = ~superpage->allocated[w];
        for (unsigned o = 0; o < order && blocks != 0; o++) blocks = pair(blocks, o);
        if (blocks != 0) return w * 64 + bit_lowest(blocks);
    }
    return FRAMES_SUPERPAGE_MAX;
}

unsigned frames_superpage_find(const struct frames_superpage *superpage, unsigned count, unsigned align) {
    if (superpage->free == FRAMES_SUPERPAGE_MAX) return 0;
    if (count == align && count <= 64) return find_block(superpage, bit_lowest(count));
    return bitfield_find(superpage->allocated, count, align, FRAMES_SUPERPAGE_MAX, ~UINT64_C(0));
}

/* ------------------------------------------------------------------ captures */

void frames_superpage_give_captured(struct frames_superpage *superpage, unsigned first, unsigned count, enum frames_mobility mobility) {
    frames_bits_clear(superpage->heads, first, count);
    frames_bits_set(superpage->captured, first, count);
    superpage->used[mobility] = (uint16_t)(superpage->used[mobility] - count);
    superpage->captured_frames = (uint16_t)(superpage->captured_frames + count);
}
void frames_superpage_hold(struct frames_superpage *superpage, unsigned first, unsigned count) {
    frames_bits_set(superpage->allocated, first, count);
    frames_bits_set(superpage->captured, first, count);
    superpage->free = (uint16_t)(superpage->free - count);
    superpage->captured_frames = (uint16_t)(superpage->captured_frames + count);
}
void frames_superpage_unhold(struct frames_superpage *superpage, unsigned first, unsigned count) {
    frames_bits_clear(superpage->allocated, first, count);
    frames_bits_clear(superpage->captured, first, count);
    superpage->free = (uint16_t)(superpage->free + count);
    superpage->captured_frames = (uint16_t)(superpage->captured_frames - count);
}
void frames_superpage_settle(struct frames_superpage *superpage, unsigned first, unsigned count, enum frames_mobility mobility) {
    frames_bits_clear(superpage->captured, first, count);
    frames_bit_set(superpage->heads, first);
    superpage->captured_frames = (uint16_t)(superpage->captured_frames - count);
    superpage->used[mobility] = (uint16_t)(superpage->used[mobility] + count);
}

/* ------------------------------------------------------------------ check */

const char *frames_superpage_check(const struct frames_superpage *superpage, unsigned frames) {
    unsigned allocated = frames_bits_count(superpage->allocated, 0, frames), used = 0;
    if (superpage->free != frames - allocated) return "frames: a superpage's free frames are not those whose bits are clear";
    if (frames < FRAMES_SUPERPAGE_MAX && frames_bits_next_clear(superpage->allocated, frames, FRAMES_SUPERPAGE_MAX) != FRAMES_SUPERPAGE_MAX)
        return "frames: a frame behind the end of a superpage is free";
    for (unsigned m = 0; m < FRAMES_MOBILITIES; m++) used += superpage->used[m];
    if (used + superpage->captured_frames != allocated) return "frames: used and captured frames of a superpage are not all that is allocated";
    if (superpage->captured_frames != frames_bits_count(superpage->captured, 0, FRAMES_SUPERPAGE_MAX))
        return "frames: the captured frames of a superpage are miscounted";
    bool block = false;
    for (unsigned i = 0; i < frames; i++) {
        bool is_allocated = frames_bit(superpage->allocated, i), head = frames_bit(superpage->heads, i), held = frames_bit(superpage->captured, i);
        if ((head || held) && !is_allocated) return "frames: a frame that is free begins a block, or is captured";
        if (head && held) return "frames: a captured frame begins a block";
        if (is_allocated && !held && !head && !block) return "frames: an allocated frame is in no block";
        block = is_allocated && !held;
    }
    return NULL;
}
