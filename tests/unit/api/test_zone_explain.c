/*
 * test_zone_explain.c - each status that says that a call failed comes with an explanation of that call, whatever was said before; what merely is not
 * done yet explains nothing.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "platform/sim/sim.h"
#include "strata/handle.h"
#include "strata/zone_backing.h"
#include "strata/zone_compact.h"
#include "strata/zone_reclaim.h"

enum { SUPERPAGE = 512 };

static struct strata_zone *zone;
static struct strata_zone_capture *capture;
static struct strata_zone_capture_request of_capture;
static uint64_t frame;

static struct strata_zone *create(enum strata_zone_backend backend) {
    const struct strata_zone_config config = {
        .name = "test", .backend = backend, .bytes = 2 * STRATA_ZONE_SUPERPAGE_BYTES, .frame_bytes = 4096, .cpus = 1};
    struct strata_zone *made = NULL;
    assert_int_equal(strata_zone_create(&config, &made), STRATA_ZONE_OK);
    return made;
}
static int setup(void **state) {
    (void)state;
    sim_reset(NULL);
    zone = create(STRATA_ZONE_SIM);
    assert_int_equal(strata_zone_alloc(zone, 1, STRATA_ZONE_UNMOVABLE, &frame), STRATA_ZONE_OK);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    assert_null(strata_zone_check(zone));
    assert_int_equal(strata_zone_destroy(zone), STRATA_ZONE_OK);
    return 0;
}

/* Something else is said before. */
static void forget(struct strata_zone *of) { assert_int_equal(strata_zone_pin(of, UINT64_MAX, 1), STRATA_ZONE_BAD_ARGUMENT); }

/* The call has failed in this way, and the explanation is "call: ...". */
static void expect(const char *call, int got, int status) {
    char said[300], function[64] = "";
    size_t length = strcspn(call, "(");
    memcpy(function, call, length);
    (void)strata_zone_explain(zone, said, sizeof said);
    if (got != status) fail_msg("%s: status %d", call, got);
    if (strncmp(said, function, length) != 0 || said[length] != ':') fail_msg("%s: explained by \"%s\"", call, said);
}
#define FAILS(status, ...) (forget(zone), expect(#__VA_ARGS__, (int)(__VA_ARGS__), (int)(status)))

static void null_arguments(void **state) {
    (void)state;
    const struct strata_zone_owner nameless = {.name = NULL}, named = {.name = "owner"};
    const struct strata_zone_request request = {.frames = 1};
    unsigned number;
    FAILS(STRATA_ZONE_BAD_ARGUMENT, strata_zone_owner_add(zone, NULL, &number));
    FAILS(STRATA_ZONE_BAD_ARGUMENT, strata_zone_owner_add(zone, &named, NULL));
    FAILS(STRATA_ZONE_BAD_ARGUMENT, strata_zone_owner_add(zone, &nameless, &number));
    FAILS(STRATA_ZONE_BAD_ARGUMENT, strata_zone_alloc(zone, 1, STRATA_ZONE_UNMOVABLE, NULL));
    FAILS(STRATA_ZONE_BAD_ARGUMENT, strata_zone_alloc_as(zone, &request, NULL));
    FAILS(STRATA_ZONE_BAD_ARGUMENT, strata_zone_alloc_as(zone, NULL, &frame));
    FAILS(STRATA_ZONE_BAD_ARGUMENT, strata_zone_query(zone, frame, NULL));
    FAILS(STRATA_ZONE_BAD_ARGUMENT, strata_zone_window_open(zone, 4096, NULL));
    FAILS(STRATA_ZONE_BAD_ARGUMENT, strata_zone_frame_at(zone, &frame, NULL));
    FAILS(STRATA_ZONE_BAD_ARGUMENT, strata_zone_pin_at(zone, &frame, NULL));
    FAILS(STRATA_ZONE_BAD_ARGUMENT, strata_zone_capture_run(zone, NULL, &frame));
    FAILS(STRATA_ZONE_BAD_ARGUMENT, strata_zone_capture_begin(zone, &of_capture, NULL));
    FAILS(STRATA_ZONE_BAD_ARGUMENT, strata_zone_stats_get(zone, NULL));
    FAILS(STRATA_ZONE_BAD_ARGUMENT, strata_zone_map_get(zone, 0, 1, NULL));
    FAILS(STRATA_ZONE_BAD_ARGUMENT, strata_zone_indices_get(zone, 0, NULL));
    FAILS(STRATA_ZONE_BAD_ARGUMENT, strata_zone_compact_stats_get(zone, NULL));
    FAILS(STRATA_ZONE_BAD_ARGUMENT, strata_zone_reclaim_start(zone, NULL));
    FAILS(STRATA_ZONE_BAD_ARGUMENT, strata_zone_reclaim_stats_get(zone, NULL));
    FAILS(STRATA_ZONE_BAD_ARGUMENT, strata_zone_backing_open(zone, 1, NULL));
    FAILS(STRATA_ZONE_BAD_ARGUMENT, strata_zone_backing_stats_get(zone, 1, NULL));
    FAILS(STRATA_HANDLE_BAD_ARGUMENT, strata_handles_create(zone, 0, NULL));
}

static void what_is_there_already(void **state) {
    (void)state;
    const struct strata_zone_reclaim_config reclaim = {.policy = STRATA_ZONE_RECLAIM_LRU};
    const struct strata_zone_backing_config file = {.path = "pages", .bytes = 4096};
    const struct strata_zone_owner description = {.name = "owner"};
    unsigned number;
    assert_int_equal(strata_zone_compactor_start(zone, NULL), STRATA_ZONE_OK);
    FAILS(STRATA_ZONE_BUSY, strata_zone_compactor_start(zone, NULL));
    assert_int_equal(strata_zone_compactor_stop(zone), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_reclaim_start(zone, &reclaim), STRATA_ZONE_OK);
    FAILS(STRATA_ZONE_BUSY, strata_zone_reclaim_start(zone, &reclaim));
    FAILS(STRATA_ZONE_NO_FRAMES, strata_zone_reclaim(zone, 1, 0, NULL));
    assert_int_equal(strata_zone_reclaim_stop(zone), STRATA_ZONE_OK);
    for (unsigned i = 0; i < STRATA_ZONE_OWNERS_MAX; i++) assert_int_equal(strata_zone_owner_add(zone, &description, &number), STRATA_ZONE_OK);
    FAILS(STRATA_ZONE_NO_MEMORY, strata_zone_owner_add(zone, &description, &number));
    assert_int_equal(strata_zone_backing_open(zone, number, &file), STRATA_ZONE_OK);
    FAILS(STRATA_ZONE_BUSY, strata_zone_backing_open(zone, number, &file));
}

static void what_the_system_refuses(void **state) {
    (void)state;
    const struct strata_zone_reclaim_config reclaim = {.thread = true};
    const struct strata_zone_backing_config file = {.path = "pages", .bytes = 4096};
    const struct strata_zone_owner description = {.name = "owner"};
    struct strata_handles *handles;
    unsigned number;
    assert_int_equal(strata_zone_owner_add(zone, &description, &number), STRATA_ZONE_OK);
    sim_fail_only(UINT64_C(1) << SIM_RESERVE | UINT64_C(1) << SIM_COMMIT | UINT64_C(1) << SIM_THREAD_START);
    sim_fail_call(1, UINT64_MAX);
    FAILS(STRATA_ZONE_NO_MEMORY, strata_zone_compact(zone, 0, NULL));
    FAILS(STRATA_ZONE_NO_MEMORY, strata_zone_compactor_start(zone, NULL));
    FAILS(STRATA_ZONE_NO_MEMORY, strata_zone_reclaim_start(zone, &reclaim));
    FAILS(STRATA_ZONE_NO_MEMORY, strata_zone_backing_open(zone, number, &file));
    sim_fail_only(UINT64_C(1) << SIM_STORE_OPEN | UINT64_C(1) << SIM_STORE_SYNC);
    errno = 0;
    FAILS(STRATA_ZONE_FILE_ERROR, strata_zone_backing_open(zone, number, &file));
    assert_int_not_equal(errno, 0);
    sim_fail_call(0, 0);
    assert_int_equal(strata_zone_backing_open(zone, number, &file), STRATA_ZONE_OK);
    sim_fail_call(1, 1);
    FAILS(STRATA_ZONE_FILE_ERROR, strata_zone_backing_sync(zone, number));
    sim_fail_call(0, 0);
    FAILS(STRATA_HANDLE_UNSUPPORTED, strata_handles_create(zone, 0, &handles));
}

static void windows_where_there_are_none(void **state) {
    (void)state;
    void *address;
    FAILS(STRATA_ZONE_UNSUPPORTED, strata_zone_window_open(zone, 4096, &address));
    FAILS(STRATA_ZONE_UNSUPPORTED, strata_zone_map(zone, frame, 1, &frame));
    char said[300];
    (void)strata_zone_explain(zone, said, sizeof said);
    assert_non_null(strstr(said, "a zone whose frames can be shown elsewhere"));
    FAILS(STRATA_ZONE_UNSUPPORTED, strata_zone_unmap(zone, &frame, 4096));
}

static void frames_that_are_not_to_be_had(void **state) {
    (void)state;
    uint64_t got, left;
    of_capture = (struct strata_zone_capture_request){.frames = SUPERPAGE, .at = 0, .flags = STRATA_ZONE_CAPTURE_AT};
    FAILS(STRATA_ZONE_NO_FRAMES, strata_zone_alloc(zone, (uint64_t)2 * SUPERPAGE, STRATA_ZONE_UNMOVABLE, &got));
    FAILS(STRATA_ZONE_NO_FRAMES, strata_zone_capture_run(zone, &of_capture, &got));
    assert_int_equal(strata_zone_capture_begin(zone, &of_capture, &capture), STRATA_ZONE_OK);
    forget(zone);
    assert_int_equal(strata_zone_capture_poll(capture, &got, &left), STRATA_ZONE_NOT_DONE);
    assert_int_equal(strata_zone_capture_end(capture, &got), STRATA_ZONE_NOT_DONE);
    char said[300];
    (void)strata_zone_explain(zone, said, sizeof said);
    assert_non_null(strstr(said, "strata_zone_pin:"));
    FAILS(STRATA_ZONE_GONE, strata_zone_capture_push(capture, 1));
    FAILS(STRATA_ZONE_GONE, strata_zone_capture_poll(capture, &got, &left));
    FAILS(STRATA_ZONE_GONE, strata_zone_capture_end(capture, &got));
    FAILS(STRATA_ZONE_BAD_ARGUMENT, strata_zone_capture_end(capture, NULL));
    FAILS(STRATA_ZONE_BUSY, strata_zone_destroy(zone));
    strata_zone_capture_give_up(capture);
}

/* What handles say of themselves is the zone's to tell. */
static void handles_that_are_not_to_be_had(void **state) {
    (void)state;
    struct strata_zone *other = zone;
    struct strata_handles *handles;
    strata_handle handle, more;
    zone = create(STRATA_ZONE_ANON);
    assert_int_equal(strata_handles_create(zone, 1, &handles), STRATA_HANDLE_OK);
    FAILS(STRATA_HANDLE_BAD_ARGUMENT, strata_handle_alloc(handles, 4096, NULL));
    uint64_t all;
    assert_int_equal(strata_zone_alloc(zone, (uint64_t)2 * SUPERPAGE, STRATA_ZONE_UNMOVABLE, &all), STRATA_ZONE_OK);
    FAILS(STRATA_HANDLE_NO_MEMORY, strata_handle_alloc(handles, 4096, &handle));
    assert_int_equal(strata_zone_free(zone, all, (uint64_t)2 * SUPERPAGE), STRATA_ZONE_OK);
    assert_int_equal(strata_handle_alloc(handles, 4096, &handle), STRATA_HANDLE_OK);
    FAILS(STRATA_HANDLE_TOO_OFTEN, strata_handle_alloc(handles, 4096, &more));
    FAILS(STRATA_HANDLE_BAD_ARGUMENT, strata_handle_read(handles, handle, NULL));
    FAILS(STRATA_HANDLE_BAD_ARGUMENT, strata_handle_write(handles, handle, NULL));
    FAILS(STRATA_HANDLE_BAD_ARGUMENT, strata_handle_query(handles, handle, NULL));
    FAILS(STRATA_HANDLE_BAD_ARGUMENT, strata_handles_stats_get(handles, NULL));
    assert_int_equal(strata_handle_lock(handles, handle, NULL), STRATA_HANDLE_OK);
    FAILS(STRATA_HANDLE_IN_USE, strata_handles_destroy(handles));
    assert_int_equal(strata_handle_unlock(handles, handle), STRATA_HANDLE_OK);
    assert_int_equal(strata_handles_destroy(handles), STRATA_HANDLE_OK);
    assert_int_equal(strata_zone_destroy(zone), STRATA_ZONE_OK);
    zone = other;
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(null_arguments),
        TEST(what_is_there_already),
        TEST(what_the_system_refuses),
        TEST(windows_where_there_are_none),
        TEST(frames_that_are_not_to_be_had),
        TEST(handles_that_are_not_to_be_had),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
