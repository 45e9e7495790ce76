/*
 * test_interleave_handles.c - handles that are freed and destroyed while another CPU compacts their zone, in every order that few switches allow
 * around locks: nobody asks an owner that is no more, or looks into a table that is gone.
 */
#include "unit/api/handles_support.h"

enum { FRAME = 64 * 1024, SUPERPAGE_FRAMES = 32, ORDER = 5, HANDLES = 3, RUNS_MIN = 300 };
#define RUN_NS UINT64_C(1000000000)

static strata_handle held[HANDLES];
static const char *wrong;
static uint64_t moved;

static void compact(void *unused) {
    (void)unused;
    if (strata_zone_compact(zone, ORDER, NULL) != STRATA_ZONE_OK) wrong = "no compaction";
}
static void end(void *unused) {
    (void)unused;
    struct strata_handles_stats stats;
    for (unsigned i = 0; i < HANDLES; i++)
        if (strata_handle_free(handles, held[i]) != STRATA_HANDLE_OK) wrong = "a handle can't be freed";
    if (strata_handles_stats_get(handles, &stats) == STRATA_HANDLE_OK) moved += stats.moves;
    if (strata_handles_destroy(handles) != STRATA_HANDLE_OK) wrong = "the handles can't be destroyed";
}

static const char *run(void *unused) {
    (void)unused;
    const struct strata_zone_config config = {
        .name = "test", .backend = STRATA_ZONE_ANON, .bytes = 4 * STRATA_ZONE_SUPERPAGE_BYTES, .frame_bytes = FRAME, .cpus = 2};
    sim_reset(NULL);
    wrong = NULL;
    if (strata_zone_create(&config, &zone) != STRATA_ZONE_OK || strata_handles_create(zone, HANDLES, &handles) != STRATA_HANDLE_OK) return "no zone";
    /* A superpage of frames without an owner, which stay, fills up first; then there is room in it again, for those in the next one. */
    uint64_t stays[SUPERPAGE_FRAMES - 1];
    for (unsigned i = 0; i < SUPERPAGE_FRAMES - 1; i++)
        if (strata_zone_alloc(zone, 1, STRATA_ZONE_MOVABLE, &stays[i]) != STRATA_ZONE_OK) return "no frame";
    for (unsigned i = 0; i < HANDLES; i++)
        if (strata_handle_alloc(handles, FRAME, &held[i]) != STRATA_HANDLE_OK) return "no frame";
    for (unsigned i = 0; i < HANDLES; i++)
        if (strata_zone_free(zone, stays[i], 1) != STRATA_ZONE_OK) return "a frame can't be freed";
    sim_thread_start(0, compact, NULL);
    sim_thread_start(1, end, NULL);
    if (!sim_run_threads_for(RUN_NS)) wrong = "a thread waits for ever"; /* some nap */
    sim_explore_ignore(true);
    if (wrong == NULL) wrong = strata_zone_check(zone);
    if (strata_zone_destroy(zone) != STRATA_ZONE_OK && wrong == NULL) wrong = "the zone can't be destroyed";
    return wrong;
}

static void handles_end_beside_a_pass(void **state) {
    (void)state;
    struct sim_exploration exploration = {.scenario = run, .deviations = 2};
    if (!sim_explore(&exploration)) fail_msg("%s", exploration.failure);
    if (exploration.runs < RUNS_MIN) fail_msg("%llu runs only", (unsigned long long)exploration.runs);
    assert_true(moved != 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(handles_end_beside_a_pass)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
