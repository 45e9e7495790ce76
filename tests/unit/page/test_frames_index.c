/*
 * test_frames_index.c - blocks by order and the two indices, against the definitions computed frame by frame.
 */
#include "page/frames_index.h"
#include "unit/page/page_support.h"

static bool near(double a, double b) { return a - b < 1e-12 && b - a < 1e-12; }

enum { SUPERPAGES = 24, FRAMES_MAX = SUPERPAGES * 512 };

/* A byte a frame. Superpages that are free or taken as a whole are as frequent as mixed ones. */
static void random_frames(uint8_t *free, unsigned superpage_frames, uint64_t *seed) {
    for (unsigned superpage = 0; superpage < SUPERPAGES; superpage++) {
        uint8_t *frames = free + superpage * superpage_frames;
        unsigned kind = (unsigned)(next_random(seed) % 6), stay = 1u << next_random(seed) % 7;
        for (unsigned i = 0, bit = 0; i < superpage_frames; i++) {
            if (next_random(seed) % stay == 0) bit = next_random(seed) & 1;
            frames[i] = kind < 3 || (kind > 3 && bit != 0);
        }
        if (kind == 2) frames[next_random(seed) % superpage_frames] = 0; /* all but one */
    }
}

static bool free_whole(const uint8_t *free, uint64_t frames, uint64_t start, unsigned order) {
    uint64_t bytes = UINT64_C(1) << order;
    if (start + bytes > frames) return false;
    for (uint64_t i = start; i < start + bytes; i++)
        if (!free[i]) return false;
    return true;
}

/* What isn't part of a larger one. */
static uint64_t naive_blocks(const uint8_t *free, uint64_t frames, unsigned order) {
    uint64_t blocks = 0, bytes = UINT64_C(1) << order;
    for (uint64_t start = 0; start < frames; start += bytes)
        if (free_whole(free, frames, start, order) && !free_whole(free, frames, start & ~(2 * bytes - 1), order + 1)) blocks++;
    return blocks;
}

static void pack(const uint8_t *free, unsigned superpage_frames, unsigned superpage, uint64_t bits[FRAMES_INDEX_WORDS]) {
    memset(bits, 0, FRAMES_INDEX_WORDS * sizeof *bits);
    for (unsigned i = 0; i < superpage_frames; i++)
        if (free[superpage * superpage_frames + i]) bits[i / 64] |= UINT64_C(1) << i % 64;
    if (superpage_frames < 64) bits[0] |= UINT64_MAX << superpage_frames; /* to be ignored */
}

static void count(const uint8_t *free, unsigned superpage_frames, struct frames_free *counted) {
    struct frames_free_scan scan = {.superpage_frames = superpage_frames};
    for (unsigned superpage = 0; superpage < SUPERPAGES; superpage++) {
        uint64_t bits[FRAMES_INDEX_WORDS];
        pack(free, superpage_frames, superpage, bits);
        frames_free_count_superpage(&scan, superpage, bits);
    }
    frames_free_end(&scan);
    *counted = scan.free;
}

static void blocks_by_order_are_those_of_a_buddy_allocator(void **state) {
    (void)state;
    static uint8_t free[FRAMES_MAX];
    uint64_t seed = 11;
    static const unsigned sizes[] = {512, 128, 64, 32};
    for (unsigned round = 0; round < 120; round++) {
        unsigned superpage_frames = sizes[round % 4];
        uint64_t frames = SUPERPAGES * superpage_frames, total = 0;
        struct frames_free counted;
        random_frames(free, superpage_frames, &seed);
        count(free, superpage_frames, &counted);
        for (unsigned order = 0; order < FRAMES_INDEX_ORDERS; order++) assert_int_equal(counted.blocks[order], naive_blocks(free, frames, order));
        for (uint64_t i = 0; i < frames; i++) total += free[i];
        assert_int_equal(frames_free_total(&counted), total);
    }
}

static void indices_are_their_definitions(void **state) {
    (void)state;
    static uint8_t free[FRAMES_MAX];
    uint64_t seed = 12;
    for (unsigned round = 0; round < 60; round++) {
        struct frames_free counted;
        random_frames(free, 512, &seed);
        count(free, 512, &counted);
        double total = 0, areas = 0;
        for (uint64_t i = 0; i < FRAMES_MAX; i++) total += free[i];
        for (unsigned order = 0; order < 16; order++) areas += (double)naive_blocks(free, FRAMES_MAX, order);
        for (unsigned order = 0; order < 12; order++) {
            /* Usable: what lies in an aligned group of that size which is free as a whole. */
            double usable = 0;
            for (uint64_t start = 0; start < FRAMES_MAX; start += UINT64_C(1) << order)
                if (free_whole(free, FRAMES_MAX, start, order)) usable += (double)(1u << order);
            assert_true(near(frames_unusable_index(&counted, order), (total - usable) / total));
            assert_true(near(frames_fragmentation_index(&counted, order), 1 - total / (double)(1u << order) / areas));
            assert_int_equal(frames_free_suffices(&counted, order), usable != 0);
            if (usable != 0) continue;
            assert_true(frames_fragmentation_index(&counted, order) >= 0 && frames_fragmentation_index(&counted, order) < 1);
            assert_true(frames_unusable_index(&counted, order) == 1);
        }
    }
}

static void without_anything_free(void **state) {
    (void)state;
    struct frames_free none = {{0}};
    assert_true(frames_fragmentation_index(&none, 9) == 0);
    assert_true(frames_unusable_index(&none, 0) == 1);
    assert_int_equal(frames_free_total(&none), 0);
    assert_false(frames_free_suffices(&none, 0));
}

/* The ends of the scale: one piece short of a superpage is lack of memory, the same frames apart is fragmentation. */
static void the_index_tells_want_of_memory_from_pieces(void **state) {
    (void)state;
    struct frames_free pieces = {{[0] = 4096}}, little = {{[8] = 1}};
    assert_true(frames_fragmentation_index(&pieces, 9) > 0.99);
    assert_true(near(frames_fragmentation_index(&little, 9), 0.5));
    struct frames_free scarce = {{[0] = 1}};
    assert_true(frames_fragmentation_index(&scarce, 9) > 0.99); /* the paper's index can't tell one frame from thousands: see the callers */
}

static void runs_larger_than_all_orders_are_cut(void **state) {
    (void)state;
    struct frames_free free = {{0}};
    frames_free_count_run(&free, 0, UINT64_C(3) << (FRAMES_INDEX_ORDERS - 1));
    assert_int_equal(free.blocks[FRAMES_INDEX_ORDERS - 1], 3);
    memset(&free, 0, sizeof free);
    frames_free_count_run(&free, 5, 11); /* 5, 6-7, 8-15 */
    assert_int_equal(free.blocks[0], 1);
    assert_int_equal(free.blocks[1], 1);
    assert_int_equal(free.blocks[3], 1);
    assert_int_equal(frames_free_total(&free), 11);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_by_order_are_those_of_a_buddy_allocator),
        cmocka_unit_test(indices_are_their_definitions),
        cmocka_unit_test(without_anything_free),
        cmocka_unit_test(the_index_tells_want_of_memory_from_pieces),
        cmocka_unit_test(runs_larger_than_all_orders_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
