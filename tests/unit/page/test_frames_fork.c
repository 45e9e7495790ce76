/*
 * test_frames_fork.c - what the child of a fork makes of a place that a block was on its way to when the thread that moved it was lost.
 */
#include "page/frames_compact_internal.h"
#include "unit/page/frames_support.h"

/* One frame is taken for a block to go to, in a thread that the child of a fork does not have. Then the child has it allocated, or free. */
static bool is_free_in_child(uint32_t steps_before, uint32_t steps_later) {
    uint64_t to;
    open_with(2, 0, 0, 0);
    assert_true(frames_take_in(zone, 1, 1, 1, &to));
    zone->steps = steps_before;
    frames_fork_settle(zone);
    frames_fork_prepare(zone);
    zone->steps += steps_later;
    sim_fork_child();
    frames_fork_child(zone);
    uint64_t free = frames_free_now(zone);
    assert_int_equal(zone->steps, 0);
    close_zone();
    return free == (uint64_t)2 * SUPERPAGE;
}

static void a_place_that_no_step_was_under_way_for_is_free(void **unused) {
    (void)unused;
    assert_true(is_free_in_child(0, 0));
}
/* A thread that has counted itself, and has yet to see that it must wait for the fork. */
static void who_is_about_to_wait_for_the_fork_does_not_count(void **unused) {
    (void)unused;
    assert_true(is_free_in_child(0, 1));
}
/* A step that the fork has waited for in vain: the block may be at either place. */
static void a_place_that_a_block_may_have_come_to_stays(void **unused) {
    (void)unused;
    assert_false(is_free_in_child(1, 0));
}

/* An owner's function has asked for frames, for which another one is asked, and that one forks: in the child both return. */
static void steps_within_each_other_end_in_the_child(void **unused) {
    (void)unused;
    open_with(2, 0, 0, 0);
    struct frames_compaction *compaction = frames_compaction_get(zone);
    assert_non_null(compaction);
    compaction->passing = platform_thread_self();
    frames_step_begin(zone);
    frames_step_begin(zone);
    frames_fork_settle(zone);
    frames_fork_prepare(zone);
    sim_fork_child();
    frames_fork_child(zone);
    frames_step_end(zone);
    frames_step_end(zone);
    assert_int_equal(zone->steps, 0);
    compaction->passing = 0;
    frames_fork_settle(zone);
    assert_true(zone->fork_settled); /* another fork waits for nobody */
    zone->gate = 0;
    close_zone();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_place_that_no_step_was_under_way_for_is_free),
        cmocka_unit_test(who_is_about_to_wait_for_the_fork_does_not_count),
        cmocka_unit_test(a_place_that_a_block_may_have_come_to_stays),
        cmocka_unit_test(steps_within_each_other_end_in_the_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
