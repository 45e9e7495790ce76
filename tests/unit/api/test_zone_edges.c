/*
 * test_zone_edges.c - zones at the edges of what their functions allow: numbers that overflow, areas that end with the zone, calls from within an
 * owner's function, captures that have ended, runs above a superpage. By the public functions, on a zone without memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "platform/sim/sim.h"
#include "strata/zone_compact.h"
#include "strata/zone_reclaim.h"

enum { SUPERPAGE = 512 };

static struct strata_zone *zone;
static unsigned owner;

static enum strata_zone_answer drop(struct strata_zone *of, uint64_t frame, uint64_t frames, uint64_t token, bool dirty, void *context) {
    (void)of, (void)frame, (void)frames, (void)token, (void)dirty, (void)context;
    return STRATA_ZONE_YES;
}

static void open_zone(uint64_t superpages, uint64_t partition, unsigned flags) {
    const struct strata_zone_config config = {.name = "test",
                                              .backend = STRATA_ZONE_SIM,
                                              .bytes = superpages * STRATA_ZONE_SUPERPAGE_BYTES,
                                              .partition_bytes = partition * STRATA_ZONE_SUPERPAGE_BYTES,
                                              .frame_bytes = 4096,
                                              .cpus = 1,
                                              .flags = flags};
    const struct strata_zone_owner cache = {.name = "cache", .reclaim = drop};
    sim_reset(NULL);
    assert_int_equal(strata_zone_create(&config, &zone), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_owner_add(zone, &cache, &owner), STRATA_ZONE_OK);
}
static int close_zone(void **state) {
    (void)state;
    assert_null(strata_zone_check(zone));
    assert_int_equal(strata_zone_destroy(zone), STRATA_ZONE_OK);
    assert_int_equal(sim_locks_held(), 0);
    return 0;
}
static uint64_t alloc_as(struct strata_zone_request request) {
    uint64_t frame;
    return strata_zone_alloc_as(zone, &request, &frame) == STRATA_ZONE_OK ? frame : UINT64_MAX;
}
static struct strata_zone_stats stats_now(void) {
    struct strata_zone_stats stats;
    assert_int_equal(strata_zone_stats_get(zone, &stats), STRATA_ZONE_OK);
    return stats;
}
static void expect_said(const char *text) {
    char said[200] = "";
    (void)strata_zone_explain(zone, said, sizeof said);
    assert_string_equal(said, text);
}

/* ------------------------------------------------------------------ settings */

static void sizes_that_overflow_are_refused(void **state) {
    (void)state;
    open_zone(6, 2, 0);
    assert_int_equal(strata_zone_set_reserve(zone, STRATA_ZONE_SUPERPAGE_BYTES + 1), STRATA_ZONE_OK);
    for (uint64_t less = 0; less < STRATA_ZONE_SUPERPAGE_BYTES; less = 2 * less + 1) {
        assert_int_equal(strata_zone_partition_resize(zone, UINT64_MAX - less), STRATA_ZONE_BAD_ARGUMENT);
        assert_int_equal(strata_zone_set_reserve(zone, UINT64_MAX - less), STRATA_ZONE_BAD_ARGUMENT);
    }
    assert_int_equal(strata_zone_partition_resize(zone, 6 * STRATA_ZONE_SUPERPAGE_BYTES + 1), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(stats_now().partition_superpages, 2);
    assert_int_equal(stats_now().reserve_superpages, 2);
}

/* To move the partition's border costs by the superpages that change sides, not by those of the zone, as statistics do. A clock tells, with much to
 * spare. */
static void a_partition_is_resized_at_its_border(void **state) {
    enum { SUPERPAGES = 65536, TIMES = 1024 };
    (void)state;
    open_zone(SUPERPAGES, 2, 0);
    const clock_t start = clock();
    for (unsigned i = 0; i < 4; i++) assert_int_equal(stats_now().partition_superpages, 2);
    const clock_t looked = clock();
    for (uint64_t i = 0; i < TIMES; i++) assert_int_equal(strata_zone_partition_resize(zone, (i % 4) * STRATA_ZONE_SUPERPAGE_BYTES), STRATA_ZONE_OK);
    assert_true(clock() - looked <= looked - start);
    assert_null(strata_zone_check(zone));
}

/* ------------------------------------------------------------------ alignment */

/* The zone is full: one unmovable frame at its begin, all else can be dropped. */
static void fill_for_reclaim(uint64_t superpages, enum strata_zone_reclaim_policy policy, unsigned effort) {
    const struct strata_zone_reclaim_config config = {.policy = policy};
    const struct strata_zone_request block = {.frames = 1, .mobility = STRATA_ZONE_RECLAIMABLE, .owner = owner, .flags = STRATA_ZONE_NO_EFFORT};
    assert_int_equal(strata_zone_reclaim_start(zone, &config), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_set_effort(zone, effort), STRATA_ZONE_OK);
    assert_int_equal(alloc_as((struct strata_zone_request){.frames = 1, .mobility = STRATA_ZONE_UNMOVABLE}), 0);
    for (uint64_t i = 1; i < superpages * SUPERPAGE; i++) assert_int_not_equal(alloc_as(block), UINT64_MAX);
}

/* The last two superpages can be emptied, but don't begin at a multiple of two; then there are some that do. */
static void reclaimed_areas_are_aligned(void **state) {
    static const unsigned efforts[] = {STRATA_ZONE_RECLAIM, STRATA_ZONE_RECLAIM | STRATA_ZONE_RECLAIM_CAPTURES};
    const struct strata_zone_request two = {.frames = 2 * SUPERPAGE, .align_frames = 2 * SUPERPAGE, .mobility = STRATA_ZONE_MOVABLE};
    const struct strata_zone_request three = {.frames = 3 * SUPERPAGE, .align_frames = 2 * SUPERPAGE, .mobility = STRATA_ZONE_MOVABLE};
    for (unsigned e = 0; e < 2; e++) {
        for (enum strata_zone_reclaim_policy policy = 0; policy < STRATA_ZONE_RECLAIM_POLICIES; policy++) {
            open_zone(3, 0, 0);
            fill_for_reclaim(3, policy, efforts[e]);
            assert_int_equal(alloc_as(two), UINT64_MAX);
            (void)close_zone(state);
            open_zone(5, 0, 0);
            fill_for_reclaim(5, policy, efforts[e]);
            assert_int_equal(alloc_as(three), 2 * SUPERPAGE);
            (void)close_zone(state);
        }
    }
}

/* To be aligned as a superpage does not make a frame one: nothing unmovable gets into the partition by that. */
static void what_is_only_aligned_is_no_superpage(void **state) {
    const struct strata_zone_request frame = {.frames = 1, .align_frames = 2 * SUPERPAGE, .mobility = STRATA_ZONE_UNMOVABLE};
    (void)state;
    open_zone(6, 6, STRATA_ZONE_HUGE_IN_PARTITION);
    assert_int_equal(alloc_as(frame), UINT64_MAX);
    assert_int_equal(alloc_as((struct strata_zone_request){.frames = SUPERPAGE - 1, .align_frames = SUPERPAGE}), UINT64_MAX);
    assert_int_equal(strata_zone_partition_resize(zone, 5 * STRATA_ZONE_SUPERPAGE_BYTES), STRATA_ZONE_OK);
    assert_int_equal(alloc_as(frame), 0);
    assert_int_not_equal(alloc_as((struct strata_zone_request){.frames = SUPERPAGE + 1, .align_frames = 2 * SUPERPAGE}), UINT64_MAX);
}

static void captures_lie_where_they_are_aligned(void **state) {
    (void)state;
    struct strata_zone_capture *capture;
    uint64_t frame = 4711;
    open_zone(4, 0, 0);
    struct strata_zone_capture_request request = {.frames = 4, .align_frames = 4, .at = 1, .flags = STRATA_ZONE_CAPTURE_AT};
    assert_int_equal(strata_zone_capture_run(zone, &request, &frame), STRATA_ZONE_BAD_ARGUMENT);
    expect_said("strata_zone_capture_run: at = 1 (a multiple of align_frames)");
    request = (struct strata_zone_capture_request){
        .frames = 2 * SUPERPAGE, .align_frames = 2 * SUPERPAGE, .at = SUPERPAGE, .flags = STRATA_ZONE_CAPTURE_AT};
    assert_int_equal(strata_zone_capture_begin(zone, &request, &capture), STRATA_ZONE_BAD_ARGUMENT);
    expect_said("strata_zone_capture_begin: at = 512 (a multiple of align_frames)");
    assert_int_equal(frame, 4711);
    request.at = 2 * SUPERPAGE;
    assert_int_equal(strata_zone_capture_run(zone, &request, &frame), STRATA_ZONE_OK);
    assert_int_equal(frame, 2 * SUPERPAGE);
    request = (struct strata_zone_capture_request){.frames = 4, .at = 1, .flags = STRATA_ZONE_CAPTURE_AT}; /* asks for no alignment */
    assert_int_equal(strata_zone_capture_run(zone, &request, &frame), STRATA_ZONE_OK);
    assert_int_equal(frame, 1);
}

/* ------------------------------------------------------------------ destroy within an owner's function */

static unsigned refusals; /* of strata_zone_destroy */

static void try_to_destroy(struct strata_zone *of) {
    struct strata_zone_reclaim_stats reclaim;
    assert_int_equal(strata_zone_destroy(of), STRATA_ZONE_BUSY);
    assert_int_equal(strata_zone_reclaim_stats_get(of, &reclaim), STRATA_ZONE_OK);
    assert_true(reclaim.running); /* nothing has ended */
    refusals++;
}
static enum strata_zone_answer move_and_destroy(struct strata_zone *of, uint64_t from, uint64_t to, uint64_t frames, uint64_t token, void *context) {
    (void)token, (void)context;
    try_to_destroy(of);
    return strata_zone_copy(of, from, to, frames) == STRATA_ZONE_OK ? STRATA_ZONE_YES : STRATA_ZONE_NEVER;
}
static enum strata_zone_answer drop_and_destroy(struct strata_zone *of, uint64_t frame, uint64_t frames, uint64_t token, bool dirty, void *context) {
    (void)frame, (void)frames, (void)token, (void)dirty, (void)context;
    uint64_t reclaimed;
    assert_int_equal(strata_zone_reclaim(of, 1, 0, &reclaimed), STRATA_ZONE_BUSY);
    expect_said("strata_zone_reclaim: calls within an owner's function = 1 (0)");
    try_to_destroy(of);
    return STRATA_ZONE_YES;
}

static void destroy_within_an_owners_function_changes_nothing(void **state) {
    const struct strata_zone_owner suicidal = {.name = "suicidal", .migrate = move_and_destroy, .reclaim = drop_and_destroy};
    const struct strata_zone_reclaim_config lists = {.policy = STRATA_ZONE_RECLAIM_LRU};
    const struct strata_zone_capture_request range = {.frames = SUPERPAGE, .at = 0, .flags = STRATA_ZONE_CAPTURE_AT};
    struct strata_zone_compact_counts counts;
    uint64_t frames[2 * SUPERPAGE], reclaimed, frame;
    unsigned number;
    (void)state;
    open_zone(2, 0, 0);
    assert_int_equal(strata_zone_owner_add(zone, &suicidal, &number), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_reclaim_start(zone, &lists), STRATA_ZONE_OK);
    const struct strata_zone_request block = {.frames = 1, .mobility = STRATA_ZONE_MOVABLE, .owner = number, .flags = STRATA_ZONE_NO_EFFORT};
    for (unsigned i = 0; i < 2 * SUPERPAGE; i++) frames[i] = alloc_as(block);
    for (unsigned i = 0; i < 2 * SUPERPAGE; i++)
        if (i % 4 != 0) assert_int_equal(strata_zone_free(zone, frames[i], 1), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_compact(zone, 3, &counts), STRATA_ZONE_OK);
    assert_true(counts.moved > 0);
    assert_int_equal(refusals, counts.moved);
    expect_said("strata_zone_destroy: calls within an owner's function = 1 (0)");
    assert_int_equal(strata_zone_reclaim(zone, 4, 0, &reclaimed), STRATA_ZONE_OK);
    assert_int_equal(refusals, counts.moved + reclaimed);
    assert_int_equal(strata_zone_capture_run(zone, &range, &frame), STRATA_ZONE_OK);
    assert_null(strata_zone_reclaim_check(zone));
}

/* ------------------------------------------------------------------ what is read and written */

static void copies_are_of_allocated_frames(void **state) {
    const struct strata_zone_request eight = {.frames = 8, .mobility = STRATA_ZONE_UNMOVABLE};
    (void)state;
    open_zone(3, 0, 0);
    uint64_t from = alloc_as(eight), to = alloc_as(eight), run = alloc_as((struct strata_zone_request){.frames = SUPERPAGE + 8});
    assert_true(from == 0 && to == 8 && run == SUPERPAGE);
    strata_zone_poke(zone, from + 7, 4711);
    assert_int_equal(strata_zone_copy(zone, from, 16, 8), STRATA_ZONE_NOT_ALLOCATED);
    expect_said("strata_zone_copy: frame = 16 (free; must be allocated)");
    assert_int_equal(strata_zone_copy(zone, from + 4, to, 8), STRATA_ZONE_BAD_ARGUMENT); /* they overlap */
    assert_int_equal(strata_zone_copy(zone, run + SUPERPAGE, from, 9), STRATA_ZONE_NOT_ALLOCATED);
    expect_said("strata_zone_copy: frame = 1032 (free; must be allocated)");
    assert_int_equal(strata_zone_peek(zone, from + 7), 4711);
    const struct strata_zone_capture_request rest = {.frames = 8, .at = 2 * SUPERPAGE + 16, .flags = STRATA_ZONE_CAPTURE_AT};
    struct strata_zone_capture *capture;
    assert_int_equal(strata_zone_capture_begin(zone, &rest, &capture), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_copy(zone, from, 2 * SUPERPAGE + 16, 8), STRATA_ZONE_NOT_ALLOCATED);
    strata_zone_capture_give_up(capture);
    assert_int_equal(strata_zone_copy(zone, from, to, 8), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_peek(zone, to + 7), 4711);
}

static void a_map_beyond_the_end_is_not_begun(void **state) {
    struct strata_zone_superpage map[4] = {{.free = 4711}, {.free = 4711}};
    (void)state;
    open_zone(3, 0, 0);
    assert_int_equal(strata_zone_map_get(zone, 2, 2, map), STRATA_ZONE_BAD_ARGUMENT);
    expect_said("strata_zone_map_get: count = 2 (up to the last superpage)");
    assert_int_equal(strata_zone_map_get(zone, UINT64_MAX, 2, map), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_map_get(zone, 1, UINT64_MAX, map), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(map[0].free, 4711);
    assert_int_equal(strata_zone_map_get(zone, 3, 0, map), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_map_get(zone, 2, 1, map), STRATA_ZONE_OK);
    assert_true(map[0].free == SUPERPAGE && map[1].free == 4711);
}

static void expect_block(uint64_t frame, uint64_t first, uint64_t frames) {
    struct strata_zone_frame_info info;
    assert_int_equal(strata_zone_query(zone, frame, &info), STRATA_ZONE_OK);
    assert_true(info.allocated);
    assert_int_equal(info.first, first);
    assert_int_equal(info.frames, frames);
}

/* Runs side by side, of which the first ends with a superpage; and what is left of one. */
static void blocks_of_several_superpages_are_told_as_a_whole(void **state) {
    const struct strata_zone_request two = {.frames = 2 * SUPERPAGE}, three = {.frames = 2 * SUPERPAGE + 88};
    (void)state;
    open_zone(12, 0, 0);
    assert_true(alloc_as(two) == 0 && alloc_as(two) == 2 * SUPERPAGE && alloc_as(three) == 4 * SUPERPAGE);
    for (uint64_t frame = 0; frame < 4 * SUPERPAGE; frame += 100) expect_block(frame, frame / 1024 * 1024, 1024);
    expect_block(4 * SUPERPAGE + 600, 4 * SUPERPAGE, 1112);
    expect_block(6 * SUPERPAGE + 87, 4 * SUPERPAGE, 1112);
    const struct strata_zone_capture_request capture = {.frames = 1536, .at = 7 * SUPERPAGE, .flags = STRATA_ZONE_CAPTURE_AT};
    uint64_t frame;
    assert_int_equal(strata_zone_capture_run(zone, &capture, &frame), STRATA_ZONE_OK);
    expect_block(9 * SUPERPAGE + 1, 7 * SUPERPAGE, 1536);
    /* The middle superpage is another's: the rest are blocks. */
    assert_int_equal(strata_zone_free(zone, 5 * SUPERPAGE, SUPERPAGE), STRATA_ZONE_OK);
    assert_null(strata_zone_check(zone));
    expect_block(4 * SUPERPAGE, 4 * SUPERPAGE, 512);
    expect_block(6 * SUPERPAGE, 6 * SUPERPAGE, 88);
    assert_int_equal(strata_zone_free(zone, 4 * SUPERPAGE, SUPERPAGE), STRATA_ZONE_OK);
    assert_int_equal(alloc_as(two), 4 * SUPERPAGE);
    expect_block(5 * SUPERPAGE, 4 * SUPERPAGE, 1024);
    expect_block(6 * SUPERPAGE, 6 * SUPERPAGE, 88);
    /* Cut inside a superpage: of the first one's end, of the second one's begin. */
    assert_int_equal(strata_zone_free(zone, SUPERPAGE - 4, 4), STRATA_ZONE_OK);
    expect_block(0, 0, 508);
    expect_block(SUPERPAGE, SUPERPAGE, 512);
    assert_int_equal(strata_zone_free(zone, 3 * SUPERPAGE, 4), STRATA_ZONE_OK);
    expect_block(2 * SUPERPAGE, 2 * SUPERPAGE, 512);
    expect_block(3 * SUPERPAGE + 4, 3 * SUPERPAGE + 4, 508);
    assert_null(strata_zone_check(zone));
}

/* ------------------------------------------------------------------ captures that have ended */

#define RANGE(frame) ((struct strata_zone_capture_request){.frames = SUPERPAGE, .at = (frame), .flags = STRATA_ZONE_CAPTURE_AT})

static struct strata_zone_capture *begin_capture(struct strata_zone_capture_request request) {
    struct strata_zone_capture *capture;
    assert_int_equal(strata_zone_capture_begin(zone, &request, &capture), STRATA_ZONE_OK);
    return capture;
}
static void expect_ended(struct strata_zone_capture *capture) {
    const struct strata_zone_stats before = stats_now();
    char said[200];
    uint64_t frame = 4711;
    assert_int_equal(strata_zone_capture_end(capture, &frame), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_capture_push(capture, UINT64_MAX), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_capture_poll(capture, &frame, NULL), STRATA_ZONE_BAD_ARGUMENT);
    strata_zone_capture_give_up(capture);
    (void)snprintf(said, sizeof said, "strata_zone_capture_give_up: capture = 0x%llx (under way: neither had nor given up)",
                   (unsigned long long)(uintptr_t)capture);
    expect_said(said);
    assert_int_equal(frame, 4711);
    assert_int_equal(stats_now().captures, before.captures);
    assert_int_equal(stats_now().captures_given_up, before.captures_given_up);
    assert_int_equal(stats_now().captured, before.captured);
}

static void a_capture_that_has_ended_is_recognised(void **state) {
    (void)state;
    uint64_t frame;
    open_zone(4, 0, 0);
    struct strata_zone_capture *had = begin_capture(RANGE(0)), *given_up = begin_capture(RANGE(SUPERPAGE));
    assert_int_equal(strata_zone_capture_end(had, &frame), STRATA_ZONE_OK);
    strata_zone_capture_give_up(given_up);
    expect_ended(had);
    expect_ended(given_up);
    /* Others in the same place, many times. */
    for (unsigned i = 0; i < 200 * STRATA_ZONE_CAPTURES_MAX; i++) {
        struct strata_zone_capture *next = begin_capture(RANGE(SUPERPAGE));
        assert_ptr_not_equal(next, had);
        assert_ptr_not_equal(next, given_up);
        strata_zone_capture_give_up(given_up);
        assert_int_equal(strata_zone_capture_poll(next, NULL, NULL), STRATA_ZONE_OK);
        strata_zone_capture_give_up(next);
    }
    assert_int_equal(stats_now().captured, 0);
}

static void captures_that_are_too_many_are_explained(void **state) {
    struct strata_zone_capture *captures[STRATA_ZONE_CAPTURES_MAX], *one_more;
    const struct strata_zone_capture_request any = {.frames = SUPERPAGE}, taken = RANGE(0);
    uint64_t frame;
    (void)state;
    open_zone(STRATA_ZONE_CAPTURES_MAX + 1, 0, 0);
    for (unsigned i = 0; i < STRATA_ZONE_CAPTURES_MAX; i++) captures[i] = begin_capture(RANGE(i * SUPERPAGE));
    assert_int_equal(strata_zone_capture_begin(zone, &any, &one_more), STRATA_ZONE_NO_MEMORY);
    expect_said("strata_zone_capture_begin: captures = 64 (below 64 under way)");
    assert_int_equal(strata_zone_capture_run(zone, &any, &frame), STRATA_ZONE_NO_MEMORY);
    expect_said("strata_zone_capture_run: captures = 64 (below 64 under way)");
    strata_zone_capture_give_up(captures[63]);
    assert_int_equal(strata_zone_capture_run(zone, &taken, &frame), STRATA_ZONE_BUSY);
    expect_said("strata_zone_capture_run: at = 0 (in superpages of which no other capture wants frames)");
    for (unsigned i = 0; i < 63; i++) strata_zone_capture_give_up(captures[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(sizes_that_overflow_are_refused, close_zone),
        cmocka_unit_test_teardown(a_partition_is_resized_at_its_border, close_zone),
        cmocka_unit_test(reclaimed_areas_are_aligned),
        cmocka_unit_test_teardown(what_is_only_aligned_is_no_superpage, close_zone),
        cmocka_unit_test_teardown(captures_lie_where_they_are_aligned, close_zone),
        cmocka_unit_test_teardown(destroy_within_an_owners_function_changes_nothing, close_zone),
        cmocka_unit_test_teardown(copies_are_of_allocated_frames, close_zone),
        cmocka_unit_test_teardown(a_map_beyond_the_end_is_not_begun, close_zone),
        cmocka_unit_test_teardown(blocks_of_several_superpages_are_told_as_a_whole, close_zone),
        cmocka_unit_test_teardown(a_capture_that_has_ended_is_recognised, close_zone),
        cmocka_unit_test_teardown(captures_that_are_too_many_are_explained, close_zone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
