/*
 * test_zone_compact.c - the public functions of compaction: what is refused, the figures that they tell, and what a capture asks of owners.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "platform/sim/sim.h"
#include "strata/zone_compact.h"

#define ERRNO_BEFORE 4711
enum { FRAMES = 4 * 512 };

static struct strata_zone *zone;
static unsigned owner;
static uint64_t frames[FRAMES]; /* by token */
static enum strata_zone_status within;
static enum strata_zone_answer moving, dropping; /* what the owner of stubborn blocks says */
static unsigned moves, drops;                    /* that it was asked for */

static enum strata_zone_answer migrate(struct strata_zone *from_zone, uint64_t from, uint64_t to, uint64_t count, uint64_t token, void *context) {
    (void)context;
    if (frames[token] != from || strata_zone_copy(from_zone, from, to, count) != STRATA_ZONE_OK) return STRATA_ZONE_NEVER;
    frames[token] = to;
    within = strata_zone_compact(from_zone, 0, NULL);
    return STRATA_ZONE_YES;
}

static enum strata_zone_answer migrate_stubborn(struct strata_zone *of, uint64_t from, uint64_t to, uint64_t count, uint64_t token, void *context) {
    (void)context, (void)token;
    moves++;
    if (moving == STRATA_ZONE_YES) assert_int_equal(strata_zone_copy(of, from, to, count), STRATA_ZONE_OK);
    return moving;
}
static enum strata_zone_answer drop_stubborn(struct strata_zone *of, uint64_t frame, uint64_t count, uint64_t token, bool dirty, void *context) {
    (void)of, (void)frame, (void)count, (void)token, (void)dirty, (void)context;
    drops++;
    return dropping;
}

static int setup(void **state) {
    (void)state;
    const struct strata_zone_config config = {
        .name = "test", .backend = STRATA_ZONE_SIM, .bytes = 4 * STRATA_ZONE_SUPERPAGE_BYTES, .frame_bytes = 4096, .cpus = 1};
    const struct strata_zone_owner description = {.name = "owner", .migrate = migrate};
    sim_reset(NULL);
    errno = ERRNO_BEFORE;
    if (strata_zone_create(&config, &zone) != STRATA_ZONE_OK || strata_zone_owner_add(zone, &description, &owner) != STRATA_ZONE_OK) return -1;
    for (uint64_t i = 0; i < FRAMES; i++) {
        const struct strata_zone_request request = {.frames = 1, .mobility = STRATA_ZONE_MOVABLE, .owner = owner, .token = i};
        if (strata_zone_alloc_as(zone, &request, &frames[i]) != STRATA_ZONE_OK) return -1;
        strata_zone_poke(zone, frames[i], i + 1);
    }
    for (uint64_t i = 0; i < FRAMES; i++)
        if (i % 4 != 0 && strata_zone_free(zone, frames[i], 1) != STRATA_ZONE_OK) return -1;
    return 0;
}
static int teardown(void **state) {
    (void)state;
    assert_int_equal(errno, ERRNO_BEFORE);
    assert_null(strata_zone_check(zone));
    return strata_zone_destroy(zone) == STRATA_ZONE_OK ? 0 : -1;
}

static void what_is_refused(void **state) {
    (void)state;
    struct strata_zone_indices indices;
    struct strata_zone_compact_stats stats;
    assert_int_equal(strata_zone_compact(NULL, 0, NULL), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_compact(zone, 10, NULL), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_compact(zone, UINT32_MAX, NULL), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_indices_get(NULL, 0, &indices), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_indices_get(zone, 0, NULL), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_indices_get(zone, STRATA_ZONE_ORDERS, &indices), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_compact_stats_get(NULL, &stats), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_compact_stats_get(zone, NULL), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_compactor_stop(NULL), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_compactor_wake(NULL), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_compactor_start(NULL, NULL), STRATA_ZONE_BAD_ARGUMENT);
    const struct strata_zone_compactor_config wrong[] = {{.order = 10},           {.unusable = -0.1},
                                                         {.unusable = 1.1},       {.unusable = __builtin_nan("")},
                                                         {.interval_ns = 999999}, {.interval_ns = (UINT64_C(1) << 56) + 1}};
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) assert_int_equal(strata_zone_compactor_start(zone, &wrong[i]), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(sim_threads_alive(), 0);
    const struct strata_zone_compactor_config longest = {.interval_ns = UINT64_C(1) << 56};
    assert_int_equal(strata_zone_compactor_start(zone, &longest), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_compactor_stop(zone), STRATA_ZONE_OK);
}

static void a_pass_and_its_figures(void **state) {
    (void)state;
    struct strata_zone_indices indices;
    struct strata_zone_compact_counts counts;
    struct strata_zone_compact_stats stats;
    assert_int_equal(strata_zone_indices_get(zone, 9, &indices), STRATA_ZONE_OK);
    assert_true(indices.unusable == 1 && indices.fragmentation > 0.9 && indices.movable_fragmentation > 0.9);
    assert_int_equal(strata_zone_compact(zone, 9, &counts), STRATA_ZONE_OK);
    assert_int_equal(within, STRATA_ZONE_BUSY);
    assert_true(counts.passes == 1 && counts.met == 1 && counts.moved == counts.moved_frames && counts.windows == 3);
    assert_int_equal(strata_zone_indices_get(zone, 9, &indices), STRATA_ZONE_OK);
    assert_true(indices.unusable < 0.01 && indices.fragmentation < 0);
    for (uint64_t i = 0; i < FRAMES; i += 4) assert_int_equal(strata_zone_peek(zone, frames[i]), i + 1);
    assert_int_equal(strata_zone_compact_stats_get(zone, &stats), STRATA_ZONE_OK);
    assert_int_equal(stats.counts.moved, counts.moved);
    assert_false(stats.compactor);
}

static void a_compactor_by_default(void **state) {
    (void)state;
    struct strata_zone_compact_stats stats;
    assert_int_equal(strata_zone_compactor_start(zone, NULL), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_compactor_start(zone, NULL), STRATA_ZONE_BUSY);
    (void)sim_run_threads_for(UINT64_C(1500000000)); /* it looks each second, and finds all unusable */
    assert_int_equal(strata_zone_compact_stats_get(zone, &stats), STRATA_ZONE_OK);
    assert_true(stats.compactor && stats.compactor_passes == 1 && stats.successes == 1);
    assert_true(stats.unusable_before > 0.75 && stats.unusable_after < 0.25);
    assert_int_equal(strata_zone_compactor_wake(zone), STRATA_ZONE_OK);
    (void)sim_run_threads_for(1000000);
    assert_int_equal(strata_zone_compact_stats_get(zone, &stats), STRATA_ZONE_OK);
    assert_true(stats.wakes == 1 && stats.compactor_passes == 2);
    assert_int_equal(strata_zone_compactor_stop(zone), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_compactor_stop(zone), STRATA_ZONE_OK);
    assert_int_equal(sim_threads_alive(), 0);
}

static void no_memory_and_no_thread(void **state) {
    (void)state;
    sim_fail_only(UINT64_C(1) << SIM_RESERVE | UINT64_C(1) << SIM_COMMIT | UINT64_C(1) << SIM_THREAD_START);
    for (unsigned n = 1; n <= 3; n++) {
        sim_fail_call(n, 1);
        assert_int_equal(strata_zone_compactor_start(zone, NULL), STRATA_ZONE_NO_MEMORY);
        assert_int_equal(sim_failures(), 1);
    }
    sim_fail_call(0, 0);
    assert_int_equal(strata_zone_compactor_start(zone, NULL), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_compactor_stop(zone), STRATA_ZONE_OK);
}

/* What a capture asks the owner of the one block in its range, and what comes of it. */
static void a_capture_asks_until_never(void **state) {
    (void)state;
    static const struct {
        enum strata_zone_answer moving, dropping;
        unsigned moves, drops;
        enum strata_zone_status poll;
        bool again; /* the next capture asks again */
    } cases[] = {
        {STRATA_ZONE_YES, STRATA_ZONE_YES, 1, 0, STRATA_ZONE_OK, false},
        {STRATA_ZONE_LATER, STRATA_ZONE_YES, 1, 1, STRATA_ZONE_OK, false},
        {STRATA_ZONE_LATER, STRATA_ZONE_LATER, 1, 1, STRATA_ZONE_NOT_DONE, true},
        {STRATA_ZONE_LATER, STRATA_ZONE_NEVER, 1, 1, STRATA_ZONE_GONE, false},
        {STRATA_ZONE_NEVER, STRATA_ZONE_YES, 1, 0, STRATA_ZONE_GONE, false},
    };
    const struct strata_zone_owner description = {.name = "stubborn", .migrate = migrate_stubborn, .reclaim = drop_stubborn};
    unsigned stubborn;
    assert_int_equal(strata_zone_owner_add(zone, &description, &stubborn), STRATA_ZONE_OK);
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        const struct strata_zone_request request = {.frames = 1, .mobility = STRATA_ZONE_MOVABLE, .owner = stubborn};
        uint64_t frame, left, run;
        assert_int_equal(strata_zone_alloc_as(zone, &request, &frame), STRATA_ZONE_OK);
        const struct strata_zone_capture_request wanted = {.frames = 1, .flags = STRATA_ZONE_CAPTURE_AT, .at = frame};
        struct strata_zone_capture *capture;
        moves = drops = 0;
        moving = cases[i].moving;
        dropping = cases[i].dropping;
        assert_int_equal(strata_zone_capture_begin(zone, &wanted, &capture), STRATA_ZONE_OK);
        (void)strata_zone_capture_push(capture, UINT64_MAX);
        assert_int_equal(moves, cases[i].moves);
        assert_int_equal(drops, cases[i].drops);
        assert_int_equal(strata_zone_capture_poll(capture, NULL, &left), cases[i].poll);
        assert_int_equal(left, cases[i].poll == STRATA_ZONE_OK ? 0 : 1);
        if (cases[i].poll == STRATA_ZONE_OK) {
            assert_int_equal(strata_zone_capture_end(capture, &run), STRATA_ZONE_OK);
            assert_int_equal(run, frame);
            assert_int_equal(strata_zone_free(zone, run, 1), STRATA_ZONE_OK);
            continue;
        }
        (void)strata_zone_capture_push(capture, UINT64_MAX);
        assert_int_equal(moves, cases[i].again ? 2 : cases[i].moves);
        assert_int_equal(drops, cases[i].again ? 2 : cases[i].drops);
        strata_zone_capture_give_up(capture);
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_is_refused),         TEST(a_pass_and_its_figures),     TEST(a_compactor_by_default),
        TEST(no_memory_and_no_thread), TEST(a_capture_asks_until_never),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
