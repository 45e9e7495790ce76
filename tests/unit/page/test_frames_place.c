/*
 * test_frames_place.c - where frames of a zone come from, on the simulated platform: groups by mobility, the reserve, the partition, what is taken
 * from another group, adjacency; and captures, which nobody else gets frames of. The reference for all else is tests/model/model_frames.c.
 */
#include "unit/page/frames_support.h"

static uint64_t superpage(uint64_t frame) { return frame / SUPERPAGE; }
static struct frames_stats stats_now(void) {
    struct frames_stats stats;
    frames_stats_get(zone, &stats);
    return stats;
}

/* ------------------------------------------------------------------ groups */

static void mobilities_do_not_share_superpages(void **state) {
    (void)state;
    open_with(8, 0, 0, 0);
    for (unsigned i = 0; i < 300; i++)
        for (unsigned m = 0; m < FRAMES_MOBILITIES; m++) assert_int_not_equal(alloc(1, (enum frames_mobility)m), FRAMES_NONE);
    struct frames_stats stats = stats_now();
    assert_int_equal(stats.mixed_superpages, 0);
    assert_int_equal(stats.free_superpages, 5);
    assert_int_equal(stats.fallbacks, 0);
    close_zone();
}

static void without_groups_they_do(void **state) {
    (void)state;
    open_with(8, 0, 0, FRAMES_NO_GROUPING);
    for (unsigned i = 0; i < 100; i++)
        for (unsigned m = 0; m < FRAMES_MOBILITIES; m++) assert_int_not_equal(alloc(1, (enum frames_mobility)m), FRAMES_NONE);
    struct frames_stats stats = stats_now();
    assert_int_equal(stats.mixed_superpages, 1);
    assert_int_equal(stats.free_superpages, 7);
    close_zone();
}

static void unmovable_frames_lie_low_and_movable_ones_high(void **state) {
    (void)state;
    open_with(8, 0, 0, 0);
    assert_int_equal(superpage(alloc(1, FRAMES_UNMOVABLE)), 0);
    assert_int_equal(superpage(alloc(1, FRAMES_MOVABLE)), 7);
    assert_int_equal(superpage(alloc(1, FRAMES_RECLAIMABLE)), 1);
    close_zone();
}

/* Of two superpages of a group, the fuller one serves first, so that the other can empty. */
static void the_fullest_superpage_comes_first(void **state) {
    (void)state;
    open_with(4, 0, 0, 0);
    uint64_t first = alloc(256, FRAMES_UNMOVABLE), second = alloc(256, FRAMES_UNMOVABLE), third = alloc(128, FRAMES_UNMOVABLE);
    assert_int_equal(superpage(first), superpage(second));
    assert_int_not_equal(superpage(first), superpage(third));
    release(first, 8);
    frames_slots_drain(zone);
    assert_int_equal(superpage(alloc(1, FRAMES_UNMOVABLE)), superpage(first));
    close_zone();
}

/* What is aligned to a superpage lies where one begins, also in those that are partly used; beyond that only in whole ones. */
static void a_run_that_is_aligned_to_a_superpage(void **state) {
    (void)state;
    open_with(4, 0, 0, 0);
    uint64_t all = alloc(4 * SUPERPAGE, FRAMES_UNMOVABLE), frame, other;
    struct frames_request request = {.frames = 4, .align = SUPERPAGE, .mobility = FRAMES_MOVABLE};
    release(all + 8, 8);
    assert_int_equal(frames_alloc(zone, &request, &frame), FRAMES_NO_FRAMES);
    release(all + 2 * SUPERPAGE, 8);
    request.align = 2 * SUPERPAGE;
    assert_int_equal(frames_alloc(zone, &request, &frame), FRAMES_NO_FRAMES);
    request.align = SUPERPAGE;
    request.flags = FRAMES_NO_FALLBACK;
    assert_int_equal(frames_alloc(zone, &request, &frame), FRAMES_NO_FRAMES);
    request.flags = 0;
    assert_int_equal(frames_alloc(zone, &request, &frame), FRAMES_OK);
    assert_int_equal(frame, all + 2 * SUPERPAGE);
    assert_int_equal(frames_alloc(zone, &request, &other), FRAMES_NO_FRAMES);
    close_zone();
}

/* ------------------------------------------------------------------ fallback */

static void most_of_a_stolen_superpage_changes_its_group(void **state) {
    (void)state;
    open_with(2, 0, 0, 0);
    assert_int_not_equal(alloc(SUPERPAGE, FRAMES_UNMOVABLE), FRAMES_NONE);
    uint64_t movable = alloc(100, FRAMES_MOVABLE);
    assert_int_equal(alloc_flags(1, FRAMES_UNMOVABLE, FRAMES_NO_FALLBACK), FRAMES_NONE);
    assert_int_equal(stats_now().fallbacks, 0);
    uint64_t stolen = alloc(1, FRAMES_UNMOVABLE);
    assert_int_equal(superpage(stolen), superpage(movable));
    struct frames_stats stats = stats_now();
    assert_int_equal(stats.fallbacks, 1);
    assert_int_equal(stats.retypes, 1);
    assert_int_equal(stats.group_superpages[FRAMES_UNMOVABLE], 2);
    close_zone();
}

/* Movable frames are guests: the superpage stays its group's, which finds its room there when they have gone. */
static void movable_frames_change_no_group(void **state) {
    (void)state;
    open_with(2, 0, 0, 0);
    assert_int_not_equal(alloc(SUPERPAGE, FRAMES_MOVABLE), FRAMES_NONE);
    uint64_t unmovable = alloc(100, FRAMES_UNMOVABLE), guest = alloc(1, FRAMES_MOVABLE);
    assert_int_equal(superpage(guest), superpage(unmovable));
    struct frames_stats stats = stats_now();
    assert_int_equal(stats.fallbacks, 1);
    assert_int_equal(stats.retypes, 0);
    assert_int_equal(stats.group_superpages[FRAMES_UNMOVABLE], 1);
    assert_int_equal(stats.mixed_superpages, 1);
    uint64_t next = alloc_flags(1, FRAMES_UNMOVABLE, FRAMES_NO_FALLBACK);
    assert_int_not_equal(next, FRAMES_NONE);
    assert_int_equal(superpage(next), superpage(unmovable));
    close_zone();
}

static void little_of_one_does_not(void **state) {
    (void)state;
    open_with(2, 0, 0, 0);
    assert_int_not_equal(alloc(SUPERPAGE, FRAMES_UNMOVABLE), FRAMES_NONE);
    assert_int_not_equal(alloc(300, FRAMES_MOVABLE), FRAMES_NONE);
    assert_int_not_equal(alloc(1, FRAMES_UNMOVABLE), FRAMES_NONE);
    struct frames_stats stats = stats_now();
    assert_int_equal(stats.fallbacks, 1);
    assert_int_equal(stats.retypes, 0);
    assert_int_equal(stats.group_superpages[FRAMES_MOVABLE], 1);
    assert_int_equal(stats.mixed_superpages, 1);
    close_zone();
}

static void the_largest_free_area_is_stolen(void **state) {
    (void)state;
    open_with(3, 0, 0, 0);
    assert_int_not_equal(alloc(SUPERPAGE, FRAMES_UNMOVABLE), FRAMES_NONE);
    uint64_t movable = alloc(400, FRAMES_MOVABLE), reclaimable = alloc(200, FRAMES_RECLAIMABLE);
    assert_int_not_equal(movable, FRAMES_NONE);
    assert_int_equal(superpage(alloc(1, FRAMES_UNMOVABLE)), superpage(reclaimable));
    close_zone();
}

static unsigned told;
static void note_told(struct frame_zone *of) {
    assert_ptr_equal(of, zone);
    assert_int_equal(sim_locks_held(), 0);
    told++;
}
static void a_fallback_is_told(void **state) {
    (void)state;
    open_with(1, 0, 0, 0);
    zone->hooks.fell_back = note_told;
    told = 0;
    assert_int_not_equal(alloc(1, FRAMES_MOVABLE), FRAMES_NONE);
    assert_int_equal(told, 0);
    assert_int_not_equal(alloc(1, FRAMES_UNMOVABLE), FRAMES_NONE);
    assert_int_equal(told, 1);
    close_zone();
}

/* ------------------------------------------------------------------ reserve, partition, runs */

static void the_reserve_is_taken_last(void **state) {
    (void)state;
    open_with(4, 2, 0, 0);
    assert_int_not_equal(alloc(SUPERPAGE, FRAMES_UNMOVABLE), FRAMES_NONE);
    assert_int_not_equal(alloc(1, FRAMES_MOVABLE), FRAMES_NONE);
    /* Another group's superpage before one of the reserve; and no large run at all, where it is told so. */
    assert_int_not_equal(alloc(1, FRAMES_UNMOVABLE), FRAMES_NONE);
    assert_int_equal(stats_now().reserve_uses, 0);
    assert_int_equal(stats_now().free_superpages, 2);
    assert_int_equal(alloc_flags(SUPERPAGE, FRAMES_UNMOVABLE, FRAMES_NO_RESERVE), FRAMES_NONE);
    assert_int_not_equal(alloc(SUPERPAGE, FRAMES_UNMOVABLE), FRAMES_NONE);
    assert_int_equal(stats_now().reserve_uses, 1);
    /* Nor a frame of it. */
    while (alloc_flags(1, FRAMES_UNMOVABLE, FRAMES_NO_RESERVE) != FRAMES_NONE) continue;
    assert_true(stats_now().reserve_uses == 1 && stats_now().free_superpages == 1);
    assert_int_not_equal(alloc(1, FRAMES_UNMOVABLE), FRAMES_NONE);
    assert_true(stats_now().reserve_uses == 2 && stats_now().free_superpages == 0);
    close_zone();
    open_with(4, 3, 0, 0);
    assert_int_not_equal(alloc(3 * SUPERPAGE, FRAMES_UNMOVABLE), FRAMES_NONE); /* of which one is beyond it */
    assert_int_equal(stats_now().reserve_uses, 2);
    close_zone();
}

static void nothing_unmovable_gets_into_the_partition(void **state) {
    (void)state;
    open_with(4, 0, 2, 0);
    assert_int_not_equal(alloc(2 * SUPERPAGE, FRAMES_UNMOVABLE), FRAMES_NONE);
    assert_int_equal(alloc(1, FRAMES_UNMOVABLE), FRAMES_NONE);
    assert_int_equal(alloc(SUPERPAGE, FRAMES_UNMOVABLE), FRAMES_NONE);
    uint64_t movable = alloc(1, FRAMES_MOVABLE), reclaimable = alloc(1, FRAMES_RECLAIMABLE);
    assert_true(superpage(movable) >= 2 && superpage(reclaimable) >= 2);
    assert_int_equal(alloc(1, FRAMES_UNMOVABLE), FRAMES_NONE);
    close_zone();
}

static void whole_superpages_may_where_the_zone_says_so(void **state) {
    (void)state;
    open_with(3, 0, 2, FRAMES_HUGE_IN_PARTITION);
    for (unsigned i = 0; i < 3; i++) assert_int_not_equal(alloc(SUPERPAGE, FRAMES_UNMOVABLE), FRAMES_NONE);
    close_zone();
}

static void the_partition_grows_over_what_is_not_unmovable(void **state) {
    (void)state;
    open_with(4, 0, 0, 0);
    uint64_t unmovable = alloc(1, FRAMES_UNMOVABLE);
    assert_int_equal(superpage(unmovable), 0);
    assert_int_equal(frames_partition_resize(zone, 3 * FRAMES_SUPERPAGE_BYTES), FRAMES_OK);
    assert_int_equal(frames_partition_resize(zone, 4 * FRAMES_SUPERPAGE_BYTES), FRAMES_BUSY);
    assert_int_equal(frames_partition_resize(zone, 5 * FRAMES_SUPERPAGE_BYTES), FRAMES_BAD_ARGUMENT);
    assert_int_equal(stats_now().partition_superpages, 3);
    assert_int_equal(alloc(SUPERPAGE, FRAMES_UNMOVABLE), FRAMES_NONE);
    assert_int_equal(frames_partition_resize(zone, 0), FRAMES_OK);
    assert_int_not_equal(alloc(SUPERPAGE, FRAMES_UNMOVABLE), FRAMES_NONE);
    close_zone();
}

static void long_runs_are_adjacent_and_give_back_what_is_left(void **state) {
    (void)state;
    open_with(1024, 0, 0, 0);
    uint64_t small = alloc(1, FRAMES_UNMOVABLE), run = alloc(3 * SUPERPAGE + 5, FRAMES_UNMOVABLE);
    assert_int_equal(superpage(small), 0);
    assert_int_equal(run, SUPERPAGE);
    assert_int_equal(stats_now().free, 1024 * SUPERPAGE - 3 * SUPERPAGE - 6);
    /* A whole GiB, aligned to itself. */
    const struct frames_request gib = {.frames = 512 * SUPERPAGE, .align = 512 * SUPERPAGE, .mobility = FRAMES_UNMOVABLE};
    uint64_t frame;
    assert_int_equal(frames_alloc(zone, &gib, &frame), FRAMES_OK);
    assert_int_equal(frame, 512 * SUPERPAGE);
    assert_int_equal(frames_alloc(zone, &gib, &frame), FRAMES_NO_FRAMES);
    release(run, 3 * SUPERPAGE + 5);
    release(frame, 512 * SUPERPAGE);
    close_zone();
}

/* Nothing of a run is freed where one frame of it can't be. */
static void a_long_free_that_fails_changes_nothing(void **state) {
    (void)state;
    open_with(4, 0, 0, 0);
    uint64_t run = alloc(3 * SUPERPAGE, FRAMES_UNMOVABLE), at;
    assert_int_equal(frames_pin(zone, run + 1500, 1, &at), FRAMES_OK);
    assert_int_equal(frames_free(zone, run, 3 * SUPERPAGE, &at), FRAMES_PINNED);
    assert_int_equal(at, run + 1500);
    assert_int_equal(stats_now().free, SUPERPAGE);
    assert_int_equal(frames_zone_destroy(zone), FRAMES_PINNED);
    assert_int_equal(frames_unpin(zone, run + 1500, 1, &at), FRAMES_OK);
    release(run, 3 * SUPERPAGE);
    close_zone();
}

static void cpus_keep_superpages_of_their_own(void **state) {
    (void)state;
    open_with(8, 0, 0, 0);
    sim_cpu_set(0);
    uint64_t first = alloc(1, FRAMES_UNMOVABLE);
    sim_cpu_set(1);
    uint64_t second = alloc(1, FRAMES_UNMOVABLE);
    assert_int_not_equal(superpage(first), superpage(second));
    /* But what one has reserved, another gets before the request fails. */
    for (unsigned i = 0; i < 8 * SUPERPAGE - 2; i++) assert_int_not_equal(alloc(1, FRAMES_UNMOVABLE), FRAMES_NONE);
    assert_int_equal(alloc(1, FRAMES_UNMOVABLE), FRAMES_NONE);
    assert_int_equal(stats_now().failures, 1);
    close_zone();
}

/* ------------------------------------------------------------------ captures */

static bool intruder_gets_in;
static uint64_t intruder;
static enum frames_answer drop(struct frame_zone *of, const struct frames_owner *self, uint64_t frame, uint64_t frames, uint64_t token, bool dirty) {
    (void)of;
    (void)self;
    (void)frame;
    (void)frames;
    (void)token;
    (void)dirty;
    /* Others allocate while the range is being emptied, and there is nothing else left. */
    intruder = alloc(1, FRAMES_MOVABLE);
    intruder_gets_in |= intruder != FRAMES_NONE;
    return FRAMES_YES;
}

static enum frames_status capture_full_zone(unsigned flags, uint64_t *frame) {
    const struct frames_owner program = {.name = "cache", .reclaim = drop};
    unsigned owner;
    open_with(2, 0, 0, 0);
    assert_int_equal(frames_owner_add(zone, &program, &owner), FRAMES_OK);
    assert_int_not_equal(alloc(SUPERPAGE, FRAMES_UNMOVABLE), FRAMES_NONE);
    for (unsigned i = 0; i < SUPERPAGE; i++) {
        const struct frames_request request = {.frames = 1, .mobility = FRAMES_RECLAIMABLE, .owner = owner, .token = i};
        uint64_t ignored;
        assert_int_equal(frames_alloc(zone, &request, &ignored), FRAMES_OK);
    }
    intruder_gets_in = false;
    const struct frames_capture_request request = {.frames = SUPERPAGE, .mobility = FRAMES_UNMOVABLE, .flags = flags};
    return frames_capture_run(zone, &request, frame);
}

static void a_capture_loses_no_race(void **state) {
    (void)state;
    uint64_t frame = FRAMES_NONE;
    assert_int_equal(capture_full_zone(0, &frame), FRAMES_OK);
    assert_false(intruder_gets_in);
    assert_int_equal(stats_now().races_lost, 0);
    assert_int_equal(stats_now().captures_done, 1);
    release(frame, SUPERPAGE);
    close_zone();
}

/* The experiment of figure 11: without it, whoever comes first has the frames. */
static void without_holding_it_does(void **state) {
    (void)state;
    uint64_t frame = FRAMES_NONE;
    assert_int_equal(capture_full_zone(FRAMES_CAPTURE_NO_HOLD, &frame), FRAMES_NO_FRAMES);
    assert_true(intruder_gets_in);
    assert_true(stats_now().races_lost > 0);
    assert_true(stats_now().captures_lost > 0);
    close_zone();
}

static void a_capture_waits_for_frees_and_can_be_given_up(void **state) {
    (void)state;
    struct frames_capture *capture, *second;
    uint64_t first, left, frame;
    open_with(2, 0, 0, 0);
    uint64_t busy = alloc(8, FRAMES_UNMOVABLE);
    const struct frames_capture_request request = {.frames = SUPERPAGE, .mobility = FRAMES_UNMOVABLE, .flags = FRAMES_CAPTURE_AT, .at = 0};
    assert_int_equal(frames_capture_begin(zone, &request, &capture), FRAMES_OK);
    assert_int_equal(frames_capture_begin(zone, &request, &second), FRAMES_BUSY);
    assert_int_equal(frames_capture_poll(capture, &first, &left), FRAMES_NOT_DONE);
    assert_int_equal(first, 0);
    assert_int_equal(left, 8);
    assert_int_equal(frames_capture_end(capture, &frame), FRAMES_NOT_DONE);
    assert_int_equal(frames_zone_destroy(zone), FRAMES_BUSY);
    release(busy, 4);
    assert_int_equal(superpage(alloc(1, FRAMES_UNMOVABLE)), 1);
    assert_int_equal(stats_now().captured, SUPERPAGE - 4);
    assert_null(frames_zone_check(zone));
    frames_capture_give_up(capture);
    assert_int_equal(stats_now().captured, 0);

    assert_int_equal(frames_capture_begin(zone, &request, &capture), FRAMES_OK);
    release(busy + 4, 4);
    assert_int_equal(frames_capture_poll(capture, NULL, NULL), FRAMES_OK);
    assert_int_equal(frames_capture_end(capture, &frame), FRAMES_OK);
    assert_int_equal(frame, 0);
    assert_int_equal(stats_now().used[FRAMES_UNMOVABLE], SUPERPAGE + 1);
    close_zone();
}

static void what_is_pinned_or_unmovable_is_not_chosen(void **state) {
    (void)state;
    uint64_t frame, at;
    open_with(2, 0, 0, 0);
    uint64_t low = alloc(1, FRAMES_UNMOVABLE), high = alloc(1, FRAMES_MOVABLE);
    assert_int_equal(frames_pin(zone, high, 1, &at), FRAMES_OK);
    const struct frames_capture_request request = {.frames = SUPERPAGE, .mobility = FRAMES_UNMOVABLE};
    assert_int_equal(frames_capture_run(zone, &request, &frame), FRAMES_NO_FRAMES);
    assert_int_equal(frames_unpin(zone, high, 1, &at), FRAMES_OK);
    release(low, 1);
    assert_int_equal(frames_capture_run(zone, &request, &frame), FRAMES_OK);
    assert_int_equal(frame, 0);
    close_zone();
}

/* ------------------------------------------------------------------ failures */

static void a_zone_that_gets_no_memory_leaves_nothing(void **state) {
    (void)state;
    for (uint64_t n = 1; n <= 2; n++) {
        const struct frames_config config = {.name = "test", .backend = FRAMES_SIM, .bytes = FRAMES_SUPERPAGE_BYTES};
        sim_reset(NULL);
        sim_fail_call(n, 1);
        assert_int_equal(frames_zone_create(&config, &zone), FRAMES_NO_MEMORY);
        assert_int_equal(sim_failures(), 1);
        assert_int_equal(sim_reserved_bytes(), 0);
    }
    const struct frames_config shared = {.name = "test", .backend = FRAMES_MEMFD, .bytes = FRAMES_SUPERPAGE_BYTES};
    sim_reset(NULL);
    assert_int_equal(frames_zone_create(&shared, &zone), FRAMES_UNSUPPORTED);
    assert_int_equal(sim_reserved_bytes(), 0);
}

/*
 * In a zone with more superpages than a search looks at behind its first find, each search begins where the last one ended: what is far away is not
 * looked for, but comes next, and one in front of the beginning is found as well.
 */
static void searches_for_captures_go_round(void **state) {
    (void)state;
    enum { SUPERPAGES = 5000 };
    static const uint64_t fit[] = {100, 200, 4000};
    const struct frames_owner program = {.name = "cache", .reclaim = drop};
    const struct frames_capture_request capture = {.frames = SUPERPAGE, .mobility = FRAMES_UNMOVABLE};
    unsigned owner;
    uint64_t frame;
    open_with(SUPERPAGES, 0, 0, 0);
    assert_int_equal(frames_owner_add(zone, &program, &owner), FRAMES_OK);
    for (unsigned i = 0; i < SUPERPAGES; i++) assert_int_not_equal(alloc(SUPERPAGE, FRAMES_UNMOVABLE), FRAMES_NONE);
    for (unsigned i = 0; i < ARRAY_LENGTH(fit); i++) {
        const struct frames_request block = {.frames = SUPERPAGE / 2, .mobility = FRAMES_RECLAIMABLE, .owner = owner};
        release(fit[i] * SUPERPAGE, SUPERPAGE);
        for (unsigned half = 0; half < 2; half++) assert_int_equal(frames_alloc(zone, &block, &frame), FRAMES_OK);
        assert_int_equal(superpage(frame), fit[i]);
    }
    assert_int_equal(frames_capture_run(zone, &capture, &frame), FRAMES_OK);
    assert_int_equal(superpage(frame), 100); /* all cost the same: the first */
    assert_int_equal(frames_capture_run(zone, &capture, &frame), FRAMES_OK);
    assert_int_equal(superpage(frame), 4000); /* the search went on behind the 1124th */
    assert_int_equal(frames_capture_run(zone, &capture, &frame), FRAMES_OK);
    assert_int_equal(superpage(frame), 200); /* and round */
    assert_int_equal(frames_capture_run(zone, &capture, &frame), FRAMES_NO_FRAMES);
    close_zone();
}

/* A terabyte takes memory for what is used of it. */
static void a_terabyte_is_a_zone(void **state) {
    (void)state;
    open_with(UINT64_C(1) << 19, 0, 0, 0);
    uint64_t frame = alloc(512 * 512, FRAMES_MOVABLE), one = alloc(1, FRAMES_MOVABLE);
    assert_int_equal(frame, (UINT64_C(1) << 28) - 512 * 512);
    frames_poke(zone, one, 4711);
    assert_int_equal(frames_peek(zone, one), 4711);
    release(frame, 512 * 512);
    release(one, 1);
    assert_int_equal(frames_free_now(zone), UINT64_C(1) << 28);
    assert_int_equal(frames_zone_destroy(zone), FRAMES_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mobilities_do_not_share_superpages),
        cmocka_unit_test(without_groups_they_do),
        cmocka_unit_test(unmovable_frames_lie_low_and_movable_ones_high),
        cmocka_unit_test(the_fullest_superpage_comes_first),
        cmocka_unit_test(a_run_that_is_aligned_to_a_superpage),
        cmocka_unit_test(most_of_a_stolen_superpage_changes_its_group),
        cmocka_unit_test(movable_frames_change_no_group),
        cmocka_unit_test(little_of_one_does_not),
        cmocka_unit_test(the_largest_free_area_is_stolen),
        cmocka_unit_test(a_fallback_is_told),
        cmocka_unit_test(the_reserve_is_taken_last),
        cmocka_unit_test(nothing_unmovable_gets_into_the_partition),
        cmocka_unit_test(whole_superpages_may_where_the_zone_says_so),
        cmocka_unit_test(the_partition_grows_over_what_is_not_unmovable),
        cmocka_unit_test(long_runs_are_adjacent_and_give_back_what_is_left),
        cmocka_unit_test(a_long_free_that_fails_changes_nothing),
        cmocka_unit_test(cpus_keep_superpages_of_their_own),
        cmocka_unit_test(a_capture_loses_no_race),
        cmocka_unit_test(without_holding_it_does),
        cmocka_unit_test(a_capture_waits_for_frees_and_can_be_given_up),
        cmocka_unit_test(what_is_pinned_or_unmovable_is_not_chosen),
        cmocka_unit_test(searches_for_captures_go_round),
        cmocka_unit_test(a_zone_that_gets_no_memory_leaves_nothing),
        cmocka_unit_test(a_terabyte_is_a_zone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
