/*
 * test_frames_used.c - what a look at shared memory tells of its uses, and who is dirty: memory always, as it can be written to in ways that no look
 * tells, by windows, the system, devices and other processes; frames without memory when they were written to.
 */
#include "page/frames_reclaim.h"
#include "page/frames_reclaim_internal.h"
#include "unit/page/frames_compact_support.h"

static unsigned clean, dirty; /* how often the owner was told so */

static enum frames_answer keep(struct frame_zone *of, const struct frames_owner *self, uint64_t frame, uint64_t frames, uint64_t token,
                               bool is_dirty) {
    (void)of, (void)self, (void)frame, (void)frames, (void)token;
    clean += !is_dirty;
    dirty += is_dirty;
    return FRAMES_LATER;
}

static uint64_t begin(enum frames_backend_kind backend) {
    const struct frames_config config = {.name = "test", .backend = backend, .bytes = 2 * FRAMES_SUPERPAGE_BYTES, .frame_bytes = 64 << 10};
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

static void what_is_present_was_used(void **state) {
    (void)state;
    uint64_t frame = begin(FRAMES_MEMFD);
    assert_false(frames_used_take(zone, frame, 2));
    sim_touch(zone->base + ((frame + 1) << zone->frame_shift), 4096);
    assert_true(frames_used_take(zone, frame, 2));
    assert_false(frames_used_take(zone, frame, 2)); /* not since then */
    sim_touch(zone->base + (frame << zone->frame_shift), 4096);
    sim_fail_only(UINT64_C(1) << SIM_PRESENCE);
    sim_fail_call(1, SIM_FOREVER);
    assert_false(frames_used_take(zone, frame, 2)); /* or nothing would ever be old */
    sim_fail_call(0, 0);
}

/* Used or not, present or not, whoever is asked: for a block that was written to through a window looks like one that was never used. */
static void memory_is_dirty(void **state) {
    (void)state;
    for (unsigned kind = FRAMES_MEMFD; kind <= FRAMES_ANON; kind++) {
        if (kind == FRAMES_HUGETLB) continue; /* not simulated */
        uint64_t frame = begin((enum frames_backend_kind)kind), reclaimed;
        assert_true(frames_used_dirty(zone, frame, 2));
        frames_touch(zone, frame, false);
        (void)frames_used_take(zone, frame, 2);
        assert_true(frames_used_dirty(zone, frame, 2));
        clean = dirty = 0;
        (void)frames_reclaim(zone, 2, 0, &reclaimed);
        assert_true(dirty != 0 && clean == 0);
    }
}

static void without_memory_writes_are_told(void **state) {
    (void)state;
    uint64_t frame = begin(FRAMES_SIM);
    assert_false(frames_used_dirty(zone, frame, 2));
    (void)frames_peek(zone, frame);
    assert_false(frames_used_dirty(zone, frame, 2));
    frames_poke(zone, frame, 1);
    assert_true(frames_used_dirty(zone, frame, 2));
    assert_false(frames_used_dirty(zone, frame + 1, 1));
    assert_true(frames_used_take(zone, frame, 2)); /* which is another question */
    assert_true(frames_used_dirty(zone, frame, 2));
    frames_used_forget(zone, frame, 2);
    assert_false(frames_used_dirty(zone, frame, 2));
    assert_int_equal(frames_discard(zone, frame, 1), FRAMES_OK); /* zeros, where a file may have something else */
    assert_true(frames_used_dirty(zone, frame, 2));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_present_was_used),
        cmocka_unit_test(memory_is_dirty),
        cmocka_unit_test(without_memory_writes_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
