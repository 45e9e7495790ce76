/*
 * test_zone_reclaim_meanwhile.c - what others do while a zone reclaims for a request, by the public functions, on a zone without memory: allocators
 * that race for the frames, owners that change their mind, and the compactor, which is woken once enough is free.
 *
 * 8 superpages of 512 frames, all movable and with an owner that drops them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "platform/sim/sim.h"
#include "strata/zone_compact.h"
#include "strata/zone_reclaim.h"

#define SUPERPAGES 8u
#define PER_SUPERPAGE 512u
#define FRAMES (SUPERPAGES * PER_SUPERPAGE)
#define MEANWHILE_AT 10u /* the drop during which something else happens: nine blocks of the area are gone by then */

static struct strata_zone *zone;
static unsigned owner, drops;
static enum strata_zone_answer answer;
static bool only_threes; /* blocks of one frame stay */
static void (*meanwhile)(void);

static enum strata_zone_answer drop(struct strata_zone *its_zone, uint64_t frame, uint64_t frames, uint64_t token, bool dirty, void *context) {
    (void)its_zone, (void)frame, (void)token, (void)dirty, (void)context;
    if (only_threes) return frames == 3 ? STRATA_ZONE_YES : STRATA_ZONE_LATER;
    assert_int_equal(frames, 1);
    if (answer != STRATA_ZONE_YES) return answer;
    if (++drops == MEANWHILE_AT && meanwhile != NULL) {
        meanwhile();
        meanwhile = NULL;
    }
    return STRATA_ZONE_YES;
}

/* effort: as zones are at first, where it is negative. */
static void begin(uint64_t frames, const struct strata_zone_reclaim_config *reclaim, void (*then)(void), int effort) {
    const struct strata_zone_config config = {
        .name = "test", .backend = STRATA_ZONE_SIM, .bytes = SUPERPAGES * STRATA_ZONE_SUPERPAGE_BYTES, .frame_bytes = 4096, .cpus = 1};
    const struct strata_zone_owner program = {.name = "program", .reclaim = drop};
    sim_reset(NULL);
    drops = 0;
    answer = STRATA_ZONE_YES;
    meanwhile = then;
    assert_int_equal(strata_zone_create(&config, &zone), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_owner_add(zone, &program, &owner), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_reclaim_start(zone, reclaim), STRATA_ZONE_OK);
    if (effort >= 0) assert_int_equal(strata_zone_set_effort(zone, (unsigned)effort), STRATA_ZONE_OK);
    for (uint64_t i = 0; i < frames; i++) {
        const struct strata_zone_request request = {.frames = 1, .mobility = STRATA_ZONE_MOVABLE, .owner = owner, .flags = STRATA_ZONE_NO_EFFORT};
        uint64_t frame;
        assert_int_equal(strata_zone_alloc_as(zone, &request, &frame), STRATA_ZONE_OK);
    }
}

static int end(void **state) {
    (void)state;
    assert_null(strata_zone_check(zone));
    assert_null(strata_zone_reclaim_check(zone));
    assert_int_equal(strata_zone_destroy(zone), STRATA_ZONE_OK);
    return 0;
}

static struct strata_zone_reclaim_stats reclaim_stats(void) {
    struct strata_zone_reclaim_stats now;
    assert_int_equal(strata_zone_reclaim_stats_get(zone, &now), STRATA_ZONE_OK);
    return now;
}
static struct strata_zone_stats zone_stats(void) {
    struct strata_zone_stats now;
    assert_int_equal(strata_zone_stats_get(zone, &now), STRATA_ZONE_OK);
    return now;
}
static struct strata_zone_compact_stats compact_stats(void) {
    struct strata_zone_compact_stats now;
    assert_int_equal(strata_zone_compact_stats_get(zone, &now), STRATA_ZONE_OK);
    return now;
}

/* ------------------------------------------------------------------ races */

static const struct strata_zone_reclaim_config by_area = {.policy = STRATA_ZONE_RECLAIM_AREA, .high_frames = 1};

static unsigned races;
static void take_what_there_is(void) {
    const struct strata_zone_request request = {.frames = 1, .flags = STRATA_ZONE_NO_EFFORT};
    uint64_t frame;
    for (races = 0; strata_zone_alloc_as(zone, &request, &frame) == STRATA_ZONE_OK;) races++;
}

static enum strata_zone_status want_a_superpage(void) {
    uint64_t frame;
    return strata_zone_alloc(zone, PER_SUPERPAGE, STRATA_ZONE_UNMOVABLE, &frame);
}

/* Unless a zone is told otherwise, what is freed for a request is kept for it. */
static void what_is_reclaimed_for_a_request_is_nobody_elses(void **state) {
    (void)state;
    begin(FRAMES, &by_area, take_what_there_is, -1);
    races = UINT32_MAX;
    assert_int_equal(want_a_superpage(), STRATA_ZONE_OK);
    assert_int_equal(races, 0); /* it was tried */
    assert_int_equal(drops, PER_SUPERPAGE);
    assert_int_equal(reclaim_stats().captured, 1);
    assert_int_equal(zone_stats().races_lost, 0);
}

/* Whatever is tried for one, a call is a call, and has failed or not. */
static void statistics_count_calls(void **state) {
    (void)state;
    uint64_t frame;
    begin(FRAMES, &by_area, NULL, STRATA_ZONE_COMPACT | STRATA_ZONE_RECLAIM);
    assert_true(zone_stats().allocs == FRAMES && zone_stats().failures == 0);
    assert_int_equal(want_a_superpage(), STRATA_ZONE_OK);
    assert_true(zone_stats().allocs == FRAMES + 1 && zone_stats().failures == 0);
    answer = STRATA_ZONE_LATER;
    assert_int_equal(want_a_superpage(), STRATA_ZONE_NO_FRAMES);
    assert_true(zone_stats().allocs == FRAMES + 2 && zone_stats().failures == 1);
    const struct strata_zone_capture_request captured = {.frames = PER_SUPERPAGE};
    assert_int_equal(strata_zone_capture_run(zone, &captured, &frame), STRATA_ZONE_NO_FRAMES);
    assert_true(zone_stats().allocs == FRAMES + 2 && zone_stats().failures == 1);
}

/* Without capture, too, nobody gets what was dropped of an area before all of it is free. */
static void what_is_dropped_of_an_area_goes_together(void **state) {
    (void)state;
    begin(FRAMES, &by_area, take_what_there_is, STRATA_ZONE_RECLAIM);
    races = UINT32_MAX;
    assert_int_equal(want_a_superpage(), STRATA_ZONE_OK);
    assert_int_equal(races, 0);
    assert_int_equal(drops, PER_SUPERPAGE);
    assert_int_equal(reclaim_stats().captured, 0);
    assert_int_equal(zone_stats().races_lost, 0);
}

/* The area of the oldest block, the highest superpage, is asked about from FREE on: what is in front is free, so that a race can be lost there. */
enum { FREE = 5, OLDEST_AREA = FRAMES - PER_SUPERPAGE };
static void begin_with_free_frames(void (*then)(void)) {
    begin(FRAMES, &by_area, then, STRATA_ZONE_RECLAIM);
    assert_int_equal(strata_zone_free(zone, OLDEST_AREA, FREE), STRATA_ZONE_OK);
}

static void without_capture_races_are_lost_and_counted(void **state) {
    (void)state;
    begin_with_free_frames(take_what_there_is);
    assert_int_equal(want_a_superpage(), STRATA_ZONE_OK);
    assert_int_equal(races, FREE);
    assert_int_equal(drops, 2 * PER_SUPERPAGE - FREE); /* the first area went for nothing: frames that stay have come to it */
    assert_int_equal(reclaim_stats().captured, 0);
    struct strata_zone_stats now = zone_stats();
    assert_true(now.races_lost > 0 && now.races_lost <= FREE);
    assert_int_equal(now.free, PER_SUPERPAGE - FREE); /* of the first area */
}

/* Blocks that can be dropped are, and cost the area only that. */
static void take_movable_ones(void) {
    const struct strata_zone_request request = {.frames = 1, .mobility = STRATA_ZONE_MOVABLE, .owner = owner, .flags = STRATA_ZONE_NO_EFFORT};
    uint64_t frame;
    for (races = 0; strata_zone_alloc_as(zone, &request, &frame) == STRATA_ZONE_OK;) {
        assert_true(frame >= OLDEST_AREA && frame < OLDEST_AREA + FREE);
        races++;
    }
}
static void what_comes_to_an_area_goes_with_it(void **state) {
    (void)state;
    begin_with_free_frames(take_movable_ones);
    assert_int_equal(want_a_superpage(), STRATA_ZONE_OK);
    assert_int_equal(races, FREE);
    assert_int_equal(drops, PER_SUPERPAGE);
    struct strata_zone_stats now = zone_stats();
    assert_int_equal(now.races_lost, FREE);
    assert_int_equal(now.free, 0);
}

/* Of an owner who drops nothing: the area is given up for another one, and they can move as before. */
static enum strata_zone_answer move(struct strata_zone *its_zone, uint64_t from, uint64_t to, uint64_t frames, uint64_t token, void *context) {
    (void)token, (void)context;
    return strata_zone_copy(its_zone, from, to, frames) == STRATA_ZONE_OK ? STRATA_ZONE_YES : STRATA_ZONE_LATER;
}
static void take_ones_that_only_move(void) {
    const struct strata_zone_owner mover = {.name = "mover", .migrate = move};
    assert_int_equal(strata_zone_owner_add(zone, &mover, &owner), STRATA_ZONE_OK);
    take_movable_ones();
}
static void blocks_that_only_move_go_on_to(void **state) {
    (void)state;
    begin_with_free_frames(take_ones_that_only_move);
    const struct strata_zone_request wanted = {.frames = PER_SUPERPAGE};
    const struct strata_zone_capture_request area = {.frames = PER_SUPERPAGE, .at = OLDEST_AREA, .flags = STRATA_ZONE_CAPTURE_AT};
    uint64_t frame;
    assert_int_equal(strata_zone_alloc_as(zone, &wanted, &frame), STRATA_ZONE_OK);
    assert_int_equal(races, FREE);
    assert_int_equal(strata_zone_free(zone, frame, PER_SUPERPAGE), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_capture_run(zone, &area, &frame), STRATA_ZONE_OK);
}

/* What was dropped, and is kept for the rest of its area, is no more its owner's. */
static void free_and_pin_the_first_one(void) {
    struct strata_zone_frame_info info;
    assert_int_equal(strata_zone_free(zone, OLDEST_AREA, 1), STRATA_ZONE_NOT_ALLOCATED);
    assert_int_equal(strata_zone_pin(zone, OLDEST_AREA, 1), STRATA_ZONE_NOT_ALLOCATED);
    assert_int_equal(strata_zone_query(zone, OLDEST_AREA, &info), STRATA_ZONE_OK);
    assert_true(info.moving);
    assert_null(strata_zone_check(zone));
}
static void what_was_dropped_is_nobodys(void **state) {
    (void)state;
    begin(FRAMES, &by_area, free_and_pin_the_first_one, STRATA_ZONE_RECLAIM);
    assert_int_equal(want_a_superpage(), STRATA_ZONE_OK);
    assert_null(meanwhile);
    assert_int_equal(drops, PER_SUPERPAGE);
}

/* Frames of an area that was given up, as an owner refused, are anybody's: no race. */
static void refuse(void) { answer = STRATA_ZONE_LATER; }
static void an_area_that_is_refused_is_no_lost_race(void **state) {
    (void)state;
    for (int captures = 0; captures < 2; captures++) {
        begin(FRAMES, &by_area, refuse, STRATA_ZONE_RECLAIM | (captures ? STRATA_ZONE_RECLAIM_CAPTURES : 0));
        assert_int_equal(want_a_superpage(), STRATA_ZONE_NO_FRAMES);
        struct strata_zone_stats now = zone_stats();
        assert_true(drops == MEANWHILE_AT && now.free == MEANWHILE_AT && now.captured == 0 && now.races_lost == 0);
        assert_int_equal(now.captures_given_up != 0, captures);
        if (captures == 0) assert_int_equal(end(NULL), 0);
    }
}

/* ------------------------------------------------------------------ compaction (section 7.3) */

/* All the way: an allocation wakes the thread, which reclaims up to the high watermark and wakes the compactor, which nothing else would. */
static void once_enough_is_free_compaction_is_woken(void **state) {
    (void)state;
    const struct strata_zone_reclaim_config watermarks = {
        .policy = STRATA_ZONE_RECLAIM_LRU, .min_frames = 50, .low_frames = 100, .high_frames = 300, .thread = true};
    const struct strata_zone_compactor_config never = {.order = 9, .unusable = 1, .interval_ns = UINT64_C(1000000000000)};
    uint64_t frame;
    begin(FRAMES - 100, &watermarks, NULL, -1);
    const struct strata_zone_request one = {.frames = 1, .mobility = STRATA_ZONE_MOVABLE, .owner = owner, .flags = STRATA_ZONE_NO_EFFORT};
    assert_int_equal(strata_zone_compactor_start(zone, &never), STRATA_ZONE_OK);
    (void)sim_run_threads_for(1000000);
    assert_int_equal(reclaim_stats().wakes, 0);
    assert_int_equal(compact_stats().wakes, 0);
    assert_int_equal(strata_zone_alloc_as(zone, &one, &frame), STRATA_ZONE_OK); /* 99 are free */
    (void)sim_run_threads_for(1000000);
    assert_int_equal(reclaim_stats().wakes, 1);
    assert_int_equal(reclaim_stats().unmapped, 201);
    struct strata_zone_compact_stats compacted = compact_stats();
    assert_true(compacted.wakes == 1 && compacted.compactor_passes == 1 && compacted.fallbacks == 0);
    assert_int_equal(strata_zone_compactor_stop(zone), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_reclaim_stop(zone), STRATA_ZONE_OK);
    assert_int_equal(sim_threads_alive(), 0);
    assert_int_equal(strata_zone_reclaim_start(zone, &by_area), STRATA_ZONE_OK); /* for the check */
}

/* Another thread's request reclaims: what it uses does not go, whether the zone has a thread of its own or not. */
static bool own_thread;
static void stop_as_another(void) {
    sim_thread_become(7);
    assert_int_equal(strata_zone_reclaim_stop(zone), STRATA_ZONE_BUSY);
    sim_thread_become(0);
    assert_true(reclaim_stats().running && reclaim_stats().thread == own_thread);
}
static void reclaim_is_not_stopped_while_another_thread_reclaims(void **state) {
    for (unsigned threads = 0; threads < 2; threads++) {
        struct strata_zone_reclaim_config config = by_area;
        config.thread = own_thread = threads != 0;
        begin(FRAMES, &config, stop_as_another, -1);
        (void)sim_run_threads_for(1000000);
        assert_int_equal(want_a_superpage(), STRATA_ZONE_OK);
        assert_null(meanwhile);
        if (threads == 0) assert_int_equal(end(state), 0);
    }
}

/* Nor does the zone, nor its compactor with it: where it can't be destroyed it is as it was. */
static void destroy_as_another(void) {
    sim_thread_become(7);
    assert_int_equal(strata_zone_destroy(zone), STRATA_ZONE_BUSY);
    sim_thread_become(0);
    assert_true(reclaim_stats().running && reclaim_stats().thread == own_thread);
    assert_true(compact_stats().compactor);
}
static void a_zone_that_stays_keeps_its_threads(void **state) {
    const struct strata_zone_compactor_config never = {.order = 9, .unusable = 1, .interval_ns = UINT64_C(1000000000000)};
    for (unsigned threads = 0; threads < 2; threads++) {
        struct strata_zone_reclaim_config config = by_area;
        config.thread = own_thread = threads != 0;
        begin(FRAMES, &config, destroy_as_another, STRATA_ZONE_RECLAIM); /* a capture would say no, too */
        assert_int_equal(strata_zone_compactor_start(zone, &never), STRATA_ZONE_OK);
        (void)sim_run_threads_for(1000000);
        assert_int_equal(want_a_superpage(), STRATA_ZONE_OK);
        assert_null(meanwhile);
        if (threads == 0) assert_int_equal(end(state), 0);
    }
}

/* Blocks of three frames reach out of the areas of four that are emptied of them, and their neighbours refuse: nobody takes anything. */
static void nobody_races_with_blocks_that_reach_out(void **state) {
    (void)state;
    begin(0, &by_area, NULL, -1);
    only_threes = true;
    uint64_t frame;
    for (unsigned i = 0;; i++) {
        struct strata_zone_request request = {
            .frames = i % 4 == 2 ? 3 : 1, .mobility = STRATA_ZONE_MOVABLE, .owner = owner, .flags = STRATA_ZONE_NO_EFFORT};
        if (strata_zone_alloc_as(zone, &request, &frame) == STRATA_ZONE_OK) continue;
        request.frames = 1;
        if (strata_zone_alloc_as(zone, &request, &frame) != STRATA_ZONE_OK) break;
    }
    assert_int_equal(strata_zone_alloc(zone, 4, STRATA_ZONE_UNMOVABLE, &frame), STRATA_ZONE_NO_FRAMES);
    only_threes = false;
    assert_true(reclaim_stats().unmapped != 0);
    assert_int_equal(zone_stats().races_lost, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(what_is_reclaimed_for_a_request_is_nobody_elses, end),
        cmocka_unit_test_teardown(statistics_count_calls, end),
        cmocka_unit_test_teardown(what_is_dropped_of_an_area_goes_together, end),
        cmocka_unit_test_teardown(what_comes_to_an_area_goes_with_it, end),
        cmocka_unit_test_teardown(blocks_that_only_move_go_on_to, end),
        cmocka_unit_test_teardown(what_was_dropped_is_nobodys, end),
        cmocka_unit_test_teardown(without_capture_races_are_lost_and_counted, end),
        cmocka_unit_test_teardown(an_area_that_is_refused_is_no_lost_race, end),
        cmocka_unit_test_teardown(once_enough_is_free_compaction_is_woken, end),
        cmocka_unit_test_teardown(nobody_races_with_blocks_that_reach_out, end),
        cmocka_unit_test_teardown(reclaim_is_not_stopped_while_another_thread_reclaims, end),
        cmocka_unit_test_teardown(a_zone_that_stays_keeps_its_threads, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
