/*
 * frames_superpage.h - what is known of one superpage of a zone of frames, and its transitions: pure functions on one plain struct.
 *
 * Nothing here locks, calls out or knows the zone. The caller holds the lock that guards the superpage (frames.h) and has made sure of what a
 * transition asks for. Superpages of fewer than 512 frames use the first bits; the others count as allocated for ever, and are in no count.
 *
 * Invariant: free = frames - popcount(allocated) (of the first `frames` bits); used[0..2] + captured_frames = popcount(allocated); heads and captured
 * are parts of allocated, and apart; no frame that follows a free or a captured one is allocated without being a head or captured.
 */
#ifndef STRATA_PAGE_FRAMES_SUPERPAGE_H
#define STRATA_PAGE_FRAMES_SUPERPAGE_H

#include "page/bitfield.h"
#include "page/frames.h"

#define FRAMES_WORDS 8u
#define FRAMES_SUPERPAGE_MAX (FRAMES_WORDS * 64)
/* Classes of the largest free block that is aligned to its size: none, or 1 + its order (0..9). */
#define FRAMES_CLASSES 11u
/* How full it is: in six steps, 0 the fullest. */
#define FRAMES_FILLS 6u
#define FRAMES_LISTS (FRAMES_FILLS * (FRAMES_CLASSES - 1)) /* numbered fill * 10 + order: they fit the bits of a word */
#define FRAMES_NO_LIST 0xffu

struct frames_superpage {
    uint64_t allocated[FRAMES_WORDS]; /* also what captures hold */
    uint64_t heads[FRAMES_WORDS];     /* first frames of blocks, none of which goes on over the end of a superpage */
    uint64_t captured[FRAMES_WORDS];
    uint16_t free;
    uint16_t used[FRAMES_MOBILITIES];
    uint16_t captured_frames;
    uint16_t pinned;     /* frames with pins */
    uint16_t noted;      /* frames with a note that is not 0 */
    uint16_t moving;     /* isolated blocks that begin here */
    uint32_t slot;       /* atomic: who has reserved it; FRAMES_NO_SLOT */
    uint32_t next, prev; /* in its list */
    uint32_t capture;    /* that wants frames of it, plus 1; 0: none */
    uint8_t group;       /* enum frames_mobility; of no meaning while all of it is free */
    uint8_t list;        /* FRAMES_NO_LIST: in none */
    uint8_t set;         /* of lists, that this one is of: frames_set_of when it was put there */
    uint8_t largest;     /* class of the largest free aligned block; exact where no slot has it */
    bool partition;
    bool droppable; /* its bit in zone->droppable */
} STRATA_ALIGNED(64);
#define FRAMES_NO_SLOT UINT32_MAX
#define FRAMES_NO_SUPERPAGE UINT32_MAX

STRATA_INLINE bool frames_bit(const uint64_t *bits, unsigned i) { return (bits[i / 64] >> i % 64 & 1) != 0; }
STRATA_INLINE void frames_bit_set(uint64_t *bits, unsigned i) { bits[i / 64] |= UINT64_C(1) << i % 64; }
STRATA_INLINE void frames_bit_clear(uint64_t *bits, unsigned i) { bits[i / 64] &= ~(UINT64_C(1) << i % 64); }

/* The same of ranges; count is above 0. */
void frames_bits_set(uint64_t *bits, unsigned first, unsigned count);
void frames_bits_clear(uint64_t *bits, unsigned first, unsigned count);
unsigned frames_bits_count(const uint64_t *bits, unsigned first, unsigned count);
/* The first bit at or after `from`, before `end`, that is set (or clear); `end` where there is none. */
unsigned frames_bits_next_set(const uint64_t *bits, unsigned from, unsigned end);
unsigned frames_bits_next_clear(const uint64_t *bits, unsigned from, unsigned end);
/* The last set bit at or before `from`; BITFIELD_NONE where there is none. */
unsigned frames_bits_last_set(const uint64_t *bits, unsigned from);

/* A superpage all of whose `frames` are free. */
void frames_superpage_init(struct frames_superpage *superpage, unsigned frames);
/* Where `count` free frames lie, aligned to `align` (a power of two): the lowest place; FRAMES_SUPERPAGE_MAX: none. */
unsigned frames_superpage_find(const struct frames_superpage *superpage, unsigned count, unsigned align);
/* The class of the largest free block that is aligned to its size. */
unsigned frames_superpage_largest(const struct frames_superpage *superpage);
/* The list it belongs in by its counts; not of one that is full, nor wholly free. */
STRATA_INLINE unsigned frames_superpage_list(const struct frames_superpage *superpage, unsigned frames) {
    return (superpage->free * FRAMES_FILLS - 1) / frames * (FRAMES_CLASSES - 1) + superpage->largest - 1;
}

/* Free frames become a block, or the part of one that goes on from the superpage before (head false). */
STRATA_INLINE void frames_superpage_take(struct frames_superpage *superpage, unsigned first, unsigned count, enum frames_mobility mobility) {
    if (count == 1)
        frames_bit_set(superpage->allocated, first);
    else
        frames_bits_set(superpage->allocated, first, count);
    frames_bit_set(superpage->heads, first);
    superpage->free = (uint16_t)(superpage->free - count);
    superpage->used[mobility] = (uint16_t)(superpage->used[mobility] + count);
}
/* Frames of one mobility, whose blocks end here and begin anew where they go on, become free. */
STRATA_INLINE void frames_superpage_give(struct frames_superpage *superpage, unsigned first, unsigned count, enum frames_mobility mobility) {
    if (count == 1) {
        frames_bit_clear(superpage->allocated, first);
        frames_bit_clear(superpage->heads, first);
    } else {
        frames_bits_clear(superpage->allocated, first, count);
        frames_bits_clear(superpage->heads, first, count);
    }
    superpage->free = (uint16_t)(superpage->free + count);
    superpage->used[mobility] = (uint16_t)(superpage->used[mobility] - count);
}
/* The same, but they are a capture's, in the same step. */
void frames_superpage_give_captured(struct frames_superpage *superpage, unsigned first, unsigned count, enum frames_mobility mobility);
/* Free frames become a capture's; what it holds becomes free again, or a block's. */
void frames_superpage_hold(struct frames_superpage *superpage, unsigned first, unsigned count);
void frames_superpage_unhold(struct frames_superpage *superpage, unsigned first, unsigned count);
void frames_superpage_settle(struct frames_superpage *superpage, unsigned first, unsigned count, enum frames_mobility mobility);
/* NULL, or what does not agree with itself. */
const char *frames_superpage_check(const struct frames_superpage *superpage, unsigned frames);

#endif
