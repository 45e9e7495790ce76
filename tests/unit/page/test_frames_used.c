/*
 * test_frames_used.c - what a look at shared memory tells of its uses, and that what can't be looked at is taken to be dirty: it would go without
 * being written. And that a look never takes away the pages of who has the frame next, in every order that few switches allow.
 */
#include "page/frames_reclaim.h"
#include "page/frames_reclaim_internal.h"
#include "unit/page/frames_compact_support.h"

static enum frames_answer keep(struct frame_zone *of, const struct frames_owner *self, uint64_t frame, uint64_t frames, uint64_t token, bool dirty) {
    (void)of, (void)self, (void)frame, (void)frames, (void)token, (void)dirty;
    return FRAMES_LATER;
}

static uint64_t begin_shared(void) {
    const struct frames_config config = {.name = "test", .backend = FRAMES_MEMFD, .bytes = 2 * FRAMES_SUPERPAGE_BYTES, .frame_bytes = 64 << 10};
    const struct frames_owner program = {.name = "pages", .reclaim = keep};
    const struct frames_reclaim_config how = {.policy = FRAMES_RECLAIM_LRU};
    unsigned number;
    uint64_t frame;
    sim_reset(NULL);
    sim_shared_offer(true);
    assert_int_equal(frames_zone_create(&config, &zone), FRAMES_OK);
    assert_int_equal(frames_owner_add(zone, &program, &number), FRAMES_OK);
    assert_int_equal(frames_reclaim_start(zone, &how), FRAMES_OK);
    const struct frames_request request = {.frames = 2, .mobility = FRAMES_MOVABLE, .owner = number};
    assert_int_equal(frames_alloc(zone, &request, &frame), FRAMES_OK);
    frames_used_forget(zone, frame, 2);
    return frame;
}

static void what_is_present_was_used_and_may_be_dirty(void **state) {
    (void)state;
    bool dirty;
    uint64_t frame = begin_shared();
    assert_false(frames_used_take(zone, frame, 2, &dirty));
    assert_false(dirty);
    sim_touch(zone->base + ((frame + 1) << zone->frame_shift), 4096);
    assert_true(frames_used_take(zone, frame, 2, &dirty));
    assert_true(dirty);
    assert_false(frames_used_take(zone, frame, 2, &dirty)); /* not since then, and not written yet */
    assert_true(dirty);
    frames_used_forget(zone, frame, 2);
    assert_false(frames_used_take(zone, frame, 2, &dirty));
    assert_false(dirty);
}

static void what_cannot_be_looked_at_is_dirty(void **state) {
    (void)state;
    bool dirty;
    uint64_t frame = begin_shared();
    sim_fail_only(UINT64_C(1) << SIM_PRESENCE);
    sim_fail_call(1, SIM_FOREVER);
    assert_false(frames_used_take(zone, frame, 2, &dirty)); /* or nothing would ever be old */
    assert_true(dirty);
    sim_fail_call(0, 0);
    bool other;
    assert_false(frames_used_take(zone, frame + 2, 2, &other)); /* and nothing else is */
    assert_false(other);
}

/* ------------------------------------------------------------------ a frame that changes its user */

static uint64_t looked_at;

static void look(void *unused) {
    (void)unused;
    bool dirty;
    (void)frames_used_take(zone, looked_at, 2, &dirty);
}

/* The block is freed, and its frames are somebody's who writes to them: the next look has to tell of that. */
static void pass_on(void *unused) {
    (void)unused;
    uint64_t at, frame = looked_at + 1;
    bool dirty;
    const struct frames_request request = {.frames = 2, .mobility = FRAMES_MOVABLE, .owner = 1};
    if (frames_free(zone, looked_at, 2, &at) != FRAMES_OK) wrong = "the block can't be freed";
    while (frame != looked_at && wrong == NULL)
        if (frames_alloc(zone, &request, &frame) != FRAMES_OK) wrong = "the block's frames went to nobody";
    sim_touch(zone->base + (looked_at << zone->frame_shift), 4096);
    sim_yield();
    (void)frames_used_take(zone, looked_at, 2, &dirty);
    if (!dirty && wrong == NULL) wrong = "a write that nobody knows of";
}

static const char *run(void *unused) {
    (void)unused;
    sim_explore_ignore(true);
    wrong = NULL;
    looked_at = begin_shared();
    sim_touch(zone->base + (looked_at << zone->frame_shift), 4096);
    sim_explore_ignore(false);
    sim_thread_start(0, look, NULL);
    sim_thread_start(1, pass_on, NULL);
    if (!sim_run_threads()) wrong = "a thread waits for ever";
    sim_explore_ignore(true);
    return wrong;
}

static void a_look_spares_the_next_user(void **state) {
    (void)state;
    struct sim_exploration exploration = {.scenario = run, .deviations = 3};
    if (!sim_explore(&exploration)) fail_msg("%s", exploration.failure);
    assert_true(exploration.runs >= 50);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_present_was_used_and_may_be_dirty),
        cmocka_unit_test(what_cannot_be_looked_at_is_dirty),
        cmocka_unit_test(a_look_spares_the_next_user),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
