/*
 * test_zone_waits.c - who wants superpages while another thread's pass is in a function of the program: it is waited for as long as it goes on, not
 * where it stands still, and not at all from within such a function. By the public functions, on zones without memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "page/frames_compact.h"
#include "platform/platform.h"
#include "platform/sim/sim.h"
#include "strata/zone_compact.h"
#include "strata/zone_reclaim.h"

enum { SUPERPAGES = 4, SUPERPAGE = 512, FRAMES = SUPERPAGES * SUPERPAGE };

/* A zone in pieces: a third of its frames is the owner's, here and there. */
static struct of_zone {
    struct strata_zone *zone;
    unsigned owner;
    uint64_t frames[FRAMES]; /* by token */
    bool asked;
} zones[2];
static void (*within)(struct of_zone *of); /* in migrate */
static struct platform_event go_on;
static enum strata_zone_status had[2], stopped, nested;
static unsigned ended;

static enum strata_zone_answer migrate(struct strata_zone *zone, uint64_t from, uint64_t to, uint64_t frames, uint64_t token, void *context) {
    struct of_zone *of = context;
    if (of->frames[token] != from) return STRATA_ZONE_LATER;
    assert_int_equal(strata_zone_copy(zone, from, to, frames), STRATA_ZONE_OK);
    of->frames[token] = to;
    if (within != NULL) within(of);
    of->asked = true;
    return STRATA_ZONE_YES;
}

static int setup(void **state) {
    (void)state;
    const struct strata_zone_config config = {
        .name = "test", .backend = STRATA_ZONE_SIM, .bytes = SUPERPAGES * STRATA_ZONE_SUPERPAGE_BYTES, .frame_bytes = 4096, .cpus = 2};
    sim_reset(NULL);
    within = NULL;
    ended = 0;
    go_on = (struct platform_event){0};
    for (unsigned z = 0; z < 2; z++) {
        struct of_zone *of = &zones[z];
        const struct strata_zone_owner description = {.name = "owner", .migrate = migrate, .context = of};
        *of = (struct of_zone){.zone = NULL};
        assert_int_equal(strata_zone_create(&config, &of->zone), STRATA_ZONE_OK);
        assert_int_equal(strata_zone_owner_add(of->zone, &description, &of->owner), STRATA_ZONE_OK);
        for (uint64_t i = 0; i < FRAMES; i++) {
            const struct strata_zone_request request = {.frames = 1, .mobility = STRATA_ZONE_MOVABLE, .owner = of->owner, .token = i};
            assert_int_equal(strata_zone_alloc_as(of->zone, &request, &of->frames[i]), STRATA_ZONE_OK);
        }
        for (uint64_t i = 0; i < FRAMES; i++)
            if (i % 3 != 0) assert_int_equal(strata_zone_free(of->zone, of->frames[i], 1), STRATA_ZONE_OK);
    }
    return 0;
}
static int teardown(void **state) {
    (void)state;
    for (unsigned z = 0; z < 2; z++) {
        assert_null(strata_zone_check(zones[z].zone));
        assert_int_equal(strata_zone_destroy(zones[z].zone), STRATA_ZONE_OK);
    }
    assert_int_equal(sim_threads_alive(), 0);
    return 0;
}

static void make_pass(void *zone) {
    assert_int_equal(strata_zone_compact(zone, 9, NULL), STRATA_ZONE_OK);
    ended++;
}
static void want_superpage(void *argument) {
    struct of_zone *of = argument;
    uint64_t frame;
    had[of - zones] = strata_zone_alloc(of->zone, SUPERPAGE, STRATA_ZONE_UNMOVABLE, &frame);
    ended++;
}
static void want_pass(void *zone) {
    nested = strata_zone_compact(zone, 9, NULL);
    ended++;
}

/* ------------------------------------------------------------------ a pass that stands still */

static void stand_still(struct of_zone *of) {
    if (!of->asked) (void)platform_event_wait(&go_on, UINT64_MAX);
}

/* As where the owner's function waits for a lock that the one who allocates has. */
static void a_pass_that_stands_still_is_not_waited_for(void **state) {
    (void)state;
    within = stand_still;
    uint64_t begin_ns = platform_now_ns();
    sim_thread_start(0, make_pass, zones[0].zone);
    sim_thread_start(1, want_superpage, &zones[0]);
    sim_thread_start(1, want_pass, zones[0].zone);
    (void)sim_run_threads_for(10 * FRAMES_STILL_NS);
    assert_int_equal(ended, 2);
    assert_int_equal(had[0], STRATA_ZONE_NO_FRAMES);
    assert_int_equal(nested, STRATA_ZONE_BUSY);
    assert_true(platform_now_ns() - begin_ns >= FRAMES_STILL_NS);
    platform_event_wake(&go_on);
    assert_true(sim_run_threads());
    assert_int_equal(ended, 3);
    assert_int_equal(strata_zone_compact(zones[0].zone, 9, NULL), STRATA_ZONE_OK);
}

static void be_slow(struct of_zone *of) {
    struct platform_event nobody = {0};
    (void)of;
    (void)platform_event_wait(&nobody, FRAMES_STILL_NS / 2);
}

/* Each block takes long, and all of them a hundred times what is waited for one: the request has what the pass brings about. */
static void a_pass_that_goes_on_is_waited_for(void **state) {
    (void)state;
    within = be_slow;
    sim_thread_start(0, make_pass, zones[0].zone);
    sim_thread_start(1, want_superpage, &zones[0]);
    (void)sim_run_threads_for(FRAMES * FRAMES_STILL_NS);
    assert_int_equal(ended, 2);
    assert_int_equal(had[0], STRATA_ZONE_OK);
}

/* ------------------------------------------------------------------ from within the program's functions */

static void want_of_other(struct of_zone *of) {
    struct of_zone *other = &zones[1 - (of - zones)];
    struct platform_event nobody = {0};
    uint64_t frame;
    of->asked = true;
    while (!other->asked) (void)platform_event_wait(&nobody, 1000); /* until both are in the middle of a pass */
    if (strata_zone_alloc(other->zone, SUPERPAGE, STRATA_ZONE_UNMOVABLE, &frame) == STRATA_ZONE_OK)
        assert_int_equal(strata_zone_free(other->zone, frame, SUPERPAGE), STRATA_ZONE_OK);
}

/* Neither may wait for the other's pass, which is in a function of the program for as long as this one is. */
static void owners_that_allocate_in_each_others_zones(void **state) {
    (void)state;
    within = want_of_other;
    for (unsigned z = 0; z < 2; z++) sim_thread_start(z, want_superpage, &zones[z]);
    (void)sim_run_threads_for(FRAMES_STILL_NS / 2);
    assert_int_equal(ended, 2);
    for (unsigned z = 0; z < 2; z++) assert_int_equal(had[z], STRATA_ZONE_OK);
}

static void stop(struct of_zone *of) {
    if (of->asked) return;
    assert_int_equal(strata_zone_compactor_wake(of->zone), STRATA_ZONE_OK);
    for (unsigned i = 0; i < 1000; i++) sim_yield(); /* until it waits for this pass */
    stopped = strata_zone_compactor_stop(of->zone);
    nested = strata_zone_destroy(of->zone);
}

static void a_compactor_is_not_stopped_from_within(void **state) {
    (void)state;
    const struct strata_zone_compactor_config config = {.interval_ns = UINT64_C(3600000000000)};
    within = stop;
    assert_int_equal(strata_zone_compactor_start(zones[0].zone, &config), STRATA_ZONE_OK);
    sim_thread_start(1, make_pass, zones[0].zone);
    (void)sim_run_threads_for(FRAMES_STILL_NS);
    assert_int_equal(ended, 1);
    assert_int_equal(stopped, STRATA_ZONE_BUSY);
    assert_int_equal(nested, STRATA_ZONE_BUSY);
    assert_int_equal(strata_zone_compactor_stop(zones[0].zone), STRATA_ZONE_OK);
}

static void stop_other(struct of_zone *of) {
    if (of != &zones[0] || of->asked) return;
    stopped = strata_zone_compactor_stop(zones[1].zone);
    nested = strata_zone_destroy(zones[1].zone);
    had[1] = strata_zone_reclaim_stop(zones[1].zone);
}

/* Nor that of another zone, whose owner may be about to stop ours. Where there is none there is nothing to wait for. */
static void nor_are_another_zones_threads(void **state) {
    (void)state;
    const struct strata_zone_reclaim_config reclaim = {.thread = true};
    within = stop_other;
    assert_int_equal(strata_zone_compactor_start(zones[1].zone, NULL), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_reclaim_start(zones[1].zone, &reclaim), STRATA_ZONE_OK);
    make_pass(zones[0].zone);
    assert_int_equal(stopped, STRATA_ZONE_BUSY);
    assert_int_equal(nested, STRATA_ZONE_BUSY);
    assert_int_equal(had[1], STRATA_ZONE_BUSY);
    assert_int_equal(strata_zone_reclaim_stop(zones[1].zone), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_compactor_stop(zones[1].zone), STRATA_ZONE_OK);
}

/* ------------------------------------------------------------------ starts and stops */

static void start_compactor(void *zone) {
    const struct strata_zone_compactor_config config = {.interval_ns = UINT64_C(3600000000000)};
    assert_int_equal(strata_zone_compactor_start(zone, &config), STRATA_ZONE_OK);
}
static void stop_compactor(void *zone) {
    assert_int_equal(strata_zone_compactor_stop(zone), STRATA_ZONE_OK);
    ended++;
}

static const char *start_and_stop(void *unused) {
    (void)unused;
    sim_explore_ignore(true);
    (void)setup(NULL);
    sim_explore_ignore(false);
    sim_thread_start(0, start_compactor, zones[0].zone);
    sim_thread_start(1, stop_compactor, zones[0].zone);
    (void)sim_run_threads();
    sim_explore_ignore(true);
    if (ended != 1) return "stop waits for ever";
    stop_compactor(zones[0].zone);
    return teardown(NULL) == 0 ? NULL : "a zone is left";
}

/* A stop in the middle of a start, too, ends what it has found. */
static void a_stop_against_a_start(void **state) {
    (void)state;
    struct sim_exploration exploration = {.scenario = start_and_stop, .deviations = 3};
    if (!sim_explore(&exploration)) fail_msg("%s", exploration.failure);
    assert_true(exploration.runs > 10);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_pass_that_stands_still_is_not_waited_for), TEST(a_pass_that_goes_on_is_waited_for), TEST(owners_that_allocate_in_each_others_zones),
        TEST(a_compactor_is_not_stopped_from_within),     TEST(nor_are_another_zones_threads),     cmocka_unit_test(a_stop_against_a_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
