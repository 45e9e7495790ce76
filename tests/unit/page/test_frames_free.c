/*
 * test_frames_free.c - frees of frames of a zone, on the simulated platform: what may not go stays and is named, and what is left of a block that is
 * cut is a block. The reference for all else is tests/model/model_frames.c.
 */
#include "unit/page/frames_support.h"

/* A pin is found wherever it is in a block, and whatever else is noted of the superpage. */
static void pinned_frames_are_found(void **state) {
    (void)state;
    static const unsigned pinned_at[] = {0, 1, SUPERPAGE / 2, SUPERPAGE - 1};
    open_with(2, 0, 0, 0);
    for (unsigned m = 0; m < FRAMES_MOBILITIES; m++) {
        for (unsigned halves = 1; halves <= 2; halves++) {
            uint64_t first = alloc(SUPERPAGE / halves, (enum frames_mobility)m), at;
            if (halves == 2) assert_int_equal(alloc(SUPERPAGE / 2, (enum frames_mobility)m), first + SUPERPAGE / 2);
            for (unsigned i = 0; i < ARRAY_LENGTH(pinned_at); i++) {
                uint64_t frame = first + pinned_at[i];
                assert_int_equal(frames_pin(zone, frame, 1, &at), FRAMES_OK);
                assert_int_equal(frames_free(zone, first, SUPERPAGE, &at), FRAMES_PINNED);
                assert_int_equal(at, frame);
                assert_int_equal(frames_free(zone, frame, 1, &at), FRAMES_PINNED);
                assert_int_equal(frames_unpin(zone, frame, 1, &at), FRAMES_OK);
            }
            release(first, SUPERPAGE);
            assert_int_equal(frames_free(zone, first, SUPERPAGE, &at), FRAMES_NOT_ALLOCATED);
            assert_int_equal(at, first);
        }
    }
    close_zone();
}

static uint64_t block_of(uint64_t frame, uint64_t *frames) {
    struct frames_info info;
    assert_int_equal(frames_query(zone, frame, &info), FRAMES_OK);
    assert_true(info.allocated);
    *frames = info.frames;
    return info.first;
}

/* Single frames of a block are freed from its front, its end and its middle: what is left are blocks, each as long as it is. */
static void frames_leave_blocks_one_by_one(void **state) {
    (void)state;
    open_with(2, 0, 0, 0);
    for (unsigned m = 0; m < FRAMES_MOBILITIES; m++) {
        uint64_t first = alloc(8, (enum frames_mobility)m), after = alloc(1, (enum frames_mobility)m), frames;
        assert_int_equal(after, first + 8);
        release(first, 1);
        assert_int_equal(block_of(first + 1, &frames), first + 1);
        assert_int_equal(frames, 7);
        release(first + 7, 1);
        assert_int_equal(block_of(first + 6, &frames), first + 1);
        assert_int_equal(frames, 6);
        release(first + 3, 1);
        assert_int_equal(block_of(first + 2, &frames), first + 1);
        assert_int_equal(frames, 2);
        assert_int_equal(block_of(first + 6, &frames), first + 4);
        assert_int_equal(frames, 3);
        assert_null(frames_zone_check(zone));
        release(after, 1);
        release(first + 1, 2);
        release(first + 4, 3);
        assert_null(frames_zone_check(zone));
    }
    /* The last frame of a superpage, behind which nothing of it can go on. */
    uint64_t whole = alloc(SUPERPAGE, FRAMES_MOVABLE);
    release(whole, SUPERPAGE - 1);
    release(whole + SUPERPAGE - 1, 1);
    close_zone();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pinned_frames_are_found),
        cmocka_unit_test(frames_leave_blocks_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
