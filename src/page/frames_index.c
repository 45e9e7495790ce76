/*
 * frames_index.c - free blocks by order and the indices over them (contiguity paper, section 7.2 and 7.3). Pure.
 *
 * Within a superpage blocks are counted by folding: aligned[j] is how many aligned groups of 2^j frames are free as a whole, and those that are not
 * halves of a larger one number aligned[j] - 2 * aligned[j + 1]. Superpages that are free as a whole are joined into runs, which are cut at the
 * multiples of powers of two that they contain.
 */
#include "page/frames_index.h"

/* The lowest of each two, four, ... bits. */
static const uint64_t fold_masks[] = {UINT64_C(0x5555555555555555), UINT64_C(0x1111111111111111), UINT64_C(0x0101010101010101),
                                      UINT64_C(0x0001000100010001), UINT64_C(0x0000000100000001), UINT64_C(0x0000000000000001)};
#define WORD_ORDERS 6u /* below a whole word */

void frames_free_count_run(struct frames_free *free, uint64_t start, uint64_t frames) {
    while (frames != 0) {
        unsigned order = bit_highest(frames);
        if (start != 0 && bit_lowest(start) < order) order = bit_lowest(start);
        if (order >= FRAMES_INDEX_ORDERS) order = FRAMES_INDEX_ORDERS - 1;
        free->blocks[order]++;
        start += UINT64_C(1) << order;
        frames -= UINT64_C(1) << order;
    }
}

static void count_run(struct frames_free_scan *scan) {
    frames_free_count_run(&scan->free, scan->run_start * scan->superpage_frames, (scan->run_next - scan->run_start) * scan->superpage_frames);
    scan->run_start = scan->run_next = 0;
}

/* Blocks inside of one word of at most 64 frames that is not free as a whole. */
static void count_word(struct frames_free *free, uint64_t word) {
    uint64_t aligned = bit_count(word);
    for (unsigned order = 0; order < WORD_ORDERS; order++) {
        word = word & word >> (1u << order) & fold_masks[order];
        uint64_t larger = bit_count(word);
        free->blocks[order] += aligned - 2 * larger;
        aligned = larger;
    }
    free->blocks[WORD_ORDERS] += aligned;
}

void frames_free_count_superpage(struct frames_free_scan *scan, uint64_t superpage, const uint64_t *free) {
    unsigned frames = scan->superpage_frames, words = frames / 64;
    uint64_t whole_words = 0; /* a bit a word */
    if (words == 0) {
        uint64_t all = (UINT64_C(1) << frames) - 1;
        whole_words = (free[0] & all) == all;
        if (whole_words == 0) count_word(&scan->free, free[0] & all);
        words = 1;
    } else {
        struct frames_free pairs = {{0}};
        for (unsigned i = 0; i < words; i++) {
            if (free[i] == UINT64_MAX)
                whole_words |= UINT64_C(1) << i;
            else if (free[i] != 0)
                count_word(&scan->free, free[i]);
        }
        if (whole_words != (UINT64_C(1) << words) - 1) {
            count_word(&pairs, whole_words);
            for (unsigned order = 0; order <= WORD_ORDERS; order++) scan->free.blocks[order + WORD_ORDERS] += pairs.blocks[order];
        }
    }
    if (whole_words != (UINT64_C(1) << words) - 1) return;
    if (scan->run_next != superpage) {
        count_run(scan);
        scan->run_start = superpage;
    }
    scan->run_next = superpage + 1;
}

void frames_free_end(struct frames_free_scan *scan) { count_run(scan); }

/* ------------------------------------------------------------------ indices */

/* Free frames in blocks of at least this order. */
static uint64_t frames_from(const struct frames_free *free, unsigned order) {
    uint64_t frames = 0;
    for (unsigned i = order; i < FRAMES_INDEX_ORDERS; i++) frames += free->blocks[i] << i;
    return frames;
}

uint64_t frames_free_total(const struct frames_free *free) { return frames_from(free, 0); }

bool frames_free_suffices(const struct frames_free *free, unsigned order) { return frames_from(free, order) != 0; }

double frames_fragmentation_index(const struct frames_free *free, unsigned order) {
    uint64_t blocks = 0;
    for (unsigned i = 0; i < FRAMES_INDEX_ORDERS; i++) blocks += free->blocks[i];
    if (blocks == 0) return 0;
    return 1 - (double)frames_free_total(free) / (double)(UINT64_C(1) << order) / (double)blocks;
}

double frames_unusable_index(const struct frames_free *free, unsigned order) {
    uint64_t total = frames_free_total(free);
    return total == 0 ? 1 : (double)(total - frames_from(free, order)) / (double)total;
}
