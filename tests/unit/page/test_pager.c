/*
 * test_pager.c - the decisions of the pager, without kernel or file: what its tables say after any sequence of changes, which pages the clock lets
 * go, and which sequences of faults make it read ahead.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "page/pager_policy.h"

#define PAGES 200

static struct frames frames;
static uint32_t of_page[PAGES];
static struct frame array[PAGES];

static void new_frames(void) {
    memset(of_page, 0, sizeof of_page);
    memset(array, 0, sizeof array);
    frames_init(&frames, of_page, array, PAGES);
}
static struct frame *put(uint32_t page, enum frame_state state) {
    struct frame *frame = frames_enter(&frames, page);
    frames_set_state(&frames, frame, state);
    return frame;
}

static uint64_t seed = 4711;
static uint32_t random_below(uint32_t bound) {
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(seed >> 33) % bound;
}

/* What each page should be, kept in the simplest way. */
struct naive {
    bool there, failed, dirty, writing;
    enum frame_state state;
    uint64_t dirty_since;
};

static uint32_t naive_oldest(const struct naive *pages) {
    uint32_t oldest = FRAME_NIL;
    for (uint32_t i = 0; i < PAGES; i++)
        if (pages[i].dirty && (oldest == FRAME_NIL || pages[i].dirty_since < pages[oldest].dirty_since)) oldest = i;
    return oldest;
}

static void change(struct naive *naive, uint32_t page, uint64_t now) {
    struct frame *frame = frames_find(&frames, page);
    unsigned kind = random_below(6);
    if (frame == NULL && naive->failed) {
        frames_set_failed(&frames, page, false);
        naive->failed = false;
    } else if (frame == NULL && kind == 0) {
        frames_set_failed(&frames, page, true);
        naive->failed = true;
    } else if (frame == NULL) {
        frames_enter(&frames, page);
        *naive = (struct naive){.there = true, .state = FRAME_LOADING};
    } else if (frame->state == FRAME_LOADING || kind == 0) {
        naive->state = random_below(2) ? FRAME_HELD : FRAME_MAPPED;
        frames_set_state(&frames, frame, naive->state);
    } else if (kind == 1 && !frame->dirty) {
        frames_set_dirty(&frames, frame);
        naive->dirty = true;
        naive->dirty_since = now;
    } else if (kind == 2 && frame->dirty && !frame->writing) {
        frames_begin_writing(&frames, frame);
        naive->dirty = false;
        naive->writing = true;
    } else if (kind == 3 && frame->writing) {
        bool failed = random_below(2);
        frames_end_writing(&frames, frame, failed);
        naive->writing = false;
        if (failed && !naive->dirty) naive->dirty_since = now;
        naive->dirty |= failed;
    } else if (kind == 4 && !frame->dirty && !frame->writing) {
        frames_leave(&frames, frame);
        *naive = (struct naive){0};
    }
}

static void test_any_changes_as_the_naive_table(void **unused) {
    (void)unused;
    static struct naive pages[PAGES];
    memset(pages, 0, sizeof pages);
    new_frames();
    for (uint64_t now = 1; now <= 100000; now++) {
        uint32_t page = random_below(PAGES);
        change(&pages[page], page, now);
        const struct frame *frame = frames_find(&frames, page);
        assert_int_equal(frame != NULL, pages[page].there);
        assert_int_equal(frames_failed(&frames, page), pages[page].failed);
        if (frame != NULL) {
            assert_int_equal(frame->state, pages[page].state);
            assert_int_equal(frame->dirty, pages[page].dirty);
            assert_int_equal(frame->writing, pages[page].writing);
        }
        if (now % 50 != 0) continue;
        assert_null(frames_check(&frames));
        uint32_t oldest = naive_oldest(pages);
        if (oldest == FRAME_NIL)
            assert_int_equal(frames.dirty_first, FRAME_NIL);
        else
            assert_int_equal(array[frames.dirty_first].page, oldest);
    }
}

static void test_check_sees_what_is_broken(void **unused) {
    (void)unused;
    new_frames();
    frames_set_dirty(&frames, put(3, FRAME_HELD));
    assert_null(frames_check(&frames));
    frames.resident++;
    assert_string_equal(frames_check(&frames), "frames: a count of pages is wrong");
    frames.resident--;
    array[0].dirty = false;
    assert_string_equal(frames_check(&frames), "frames: the list of dirty ones is broken");
    array[0].dirty = true;
    array[0].page = 4;
    assert_string_equal(frames_check(&frames), "frames: a page has no frame");
}

static void test_stretches_of_dirty_pages(void **unused) {
    (void)unused;
    uint32_t first = 0;
    new_frames();
    for (uint32_t page = 10; page < 20; page++) frames_set_dirty(&frames, put(page, FRAME_MAPPED));
    put(20, FRAME_MAPPED);
    assert_int_equal(frames_dirty_stretch(&frames, frames_find(&frames, 20), 8, &first), 0);
    assert_int_equal(frames_dirty_stretch(&frames, frames_find(&frames, 15), 100, &first), 10);
    assert_int_equal(first, 10);
    assert_int_equal(frames_dirty_stretch(&frames, frames_find(&frames, 18), 4, &first), 4);
    assert_int_equal(first, 16);
    frames_begin_writing(&frames, frames_find(&frames, 13));
    assert_int_equal(frames_dirty_stretch(&frames, frames_find(&frames, 15), 100, &first), 6);
    assert_int_equal(first, 14);
}

/* ------------------------------------------------------------------ the clock */

/* Evicts one page as the pager would, with the program's `used` ones touched again each time that they are sampled. */
static uint32_t evict_one(struct pager_clock *clock, const bool *used) {
    for (;;) {
        uint32_t page = FRAME_NIL;
        switch (pager_clock_next(clock, &frames, &page)) {
        case PAGER_SAMPLE:
            assert_int_equal(frames_find(&frames, page)->state, FRAME_MAPPED);
            frames_set_state(&frames, frames_find(&frames, page), used[page] ? FRAME_MAPPED : FRAME_HELD);
            break;
        case PAGER_EVICT: return page;
        default: return FRAME_NIL;
        }
    }
}

static void test_pages_in_use_stay(void **unused) {
    (void)unused;
    bool used[PAGES] = {false};
    struct pager_clock clock;
    new_frames();
    pager_clock_init(&clock, 64);
    for (uint32_t page = 0; page < 64; page++) {
        put(page, FRAME_MAPPED);
        used[page] = page % 4 == 0;
    }
    for (unsigned i = 0; i < 48; i++) {
        uint32_t page = evict_one(&clock, used);
        assert_int_not_equal(page, FRAME_NIL);
        assert_int_not_equal(page % 4, 0);
        frames_leave(&frames, frames_find(&frames, page));
    }
    /* Only used ones are left: one of them must go all the same. */
    assert_int_equal(evict_one(&clock, used) % 4, 0);
}

static void test_busy_pages_stay(void **unused) {
    (void)unused;
    bool used[PAGES] = {false};
    struct pager_clock clock;
    new_frames();
    pager_clock_init(&clock, 32);
    uint32_t none;
    assert_int_equal(pager_clock_next(&clock, &frames, &none), PAGER_NOTHING);
    for (uint32_t page = 0; page < 32; page++) {
        struct frame *frame = put(page, page % 2 == 0 ? FRAME_LOADING : FRAME_HELD);
        if (page % 2 == 0) continue;
        frames_set_dirty(&frames, frame);
        frames_begin_writing(&frames, frame);
    }
    assert_int_equal(evict_one(&clock, used), FRAME_NIL);
    frames_end_writing(&frames, frames_find(&frames, 7), false);
    assert_int_equal(evict_one(&clock, used), 7);
}

/* ------------------------------------------------------------------ sequences */

static void test_sequences_are_read_ahead(void **unused) {
    (void)unused;
    struct pager_streams streams = {0};
    uint32_t first = 0;
    assert_int_equal(pager_streams_note(&streams, 100, 8, 1000, &first), 0);
    assert_int_equal(pager_streams_note(&streams, 101, 8, 1000, &first), 8);
    assert_int_equal(first, 102);
    /* In the first half of what was asked for, nothing; then what is missing of a window. */
    for (uint32_t page = 102; page < 105; page++) assert_int_equal(pager_streams_note(&streams, page, 8, 1000, &first), 0);
    assert_int_equal(pager_streams_note(&streams, 105, 8, 1000, &first), 4);
    assert_int_equal(first, 110);
    /* Up to the end of the block. */
    assert_int_equal(pager_streams_note(&streams, 996, 8, 1000, &first), 0);
    assert_int_equal(pager_streams_note(&streams, 997, 8, 1000, &first), 2);
    assert_int_equal(first, 998);
    assert_int_equal(pager_streams_note(&streams, 999, 8, 1000, &first), 0);
}

static void test_random_faults_and_no_window_read_nothing(void **unused) {
    (void)unused;
    struct pager_streams streams = {0};
    uint32_t first = 0;
    for (uint32_t i = 0; i < 1000; i++) assert_int_equal(pager_streams_note(&streams, i * 7919 % 100003 * 3, 8, 1000000, &first), 0);
    for (uint32_t page = 0; page < 100; page++) assert_int_equal(pager_streams_note(&streams, page, 0, 1000, &first), 0);
}

static void test_several_sequences_at_a_time(void **unused) {
    (void)unused;
    struct pager_streams streams = {0};
    uint32_t first = 0, asked = 0;
    for (uint32_t step = 0; step < 100; step++)
        for (uint32_t stream = 0; stream < PAGER_STREAMS; stream++) asked += pager_streams_note(&streams, stream * 10000 + step, 16, 100000, &first);
    /* Each has asked for what it came to and no more than a window beyond. */
    assert_in_range(asked, PAGER_STREAMS * 98, PAGER_STREAMS * (98 + 16));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_changes_as_the_naive_table),
        cmocka_unit_test(test_check_sees_what_is_broken),
        cmocka_unit_test(test_stretches_of_dirty_pages),
        cmocka_unit_test(test_pages_in_use_stay),
        cmocka_unit_test(test_busy_pages_stay),
        cmocka_unit_test(test_sequences_are_read_ahead),
        cmocka_unit_test(test_random_faults_and_no_window_read_nothing),
        cmocka_unit_test(test_several_sequences_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
