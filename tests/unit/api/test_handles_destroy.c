/*
 * test_handles_destroy.c - the end of handles on the simulated platform: nothing goes where something has to stay, and their owner's number is the
 * zone's again, unless somebody has it still.
 */
#include "unit/api/handles_support.h"

static int setup(void **state) {
    (void)state;
    const struct strata_zone_config config = {
        .name = "test", .backend = STRATA_ZONE_ANON, .bytes = 8 * STRATA_ZONE_SUPERPAGE_BYTES, .frame_bytes = PAGE, .cpus = 2};
    sim_reset(NULL);
    assert_int_equal(strata_zone_create(&config, &zone), STRATA_ZONE_OK);
    assert_int_equal(strata_handles_create(zone, 0, &handles), STRATA_HANDLE_OK);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    end_handles_and_zone();
    return 0;
}

static uint64_t frame_of(struct strata_handles *of, strata_handle handle) {
    struct strata_handle_info info;
    assert_int_equal(strata_handle_query(of, handle, &info), STRATA_HANDLE_OK);
    return info.frame;
}

/* Frames that the program has pinned by their numbers: nothing goes, and the zone goes on to ask an owner that is there. */
static void destroy_leaves_pinned_frames_alone(void **state) {
    (void)state;
    strata_handle blocks[64];
    struct strata_zone_compact_counts counts;
    for (unsigned i = 0; i < 64; i++) blocks[i] = filled(PAGE, (int)i);
    uint64_t frame = frame_of(handles, blocks[40]);
    assert_int_equal(strata_zone_pin(zone, frame, 1), STRATA_ZONE_OK);
    assert_int_equal(strata_handles_destroy(handles), STRATA_HANDLE_IN_USE);
    assert_null(strata_handles_check(handles));
    assert_int_equal(strata_zone_unpin(zone, frame, 1), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_compact(zone, 9, &counts), STRATA_ZONE_OK);
    for (unsigned i = 0; i < 64; i++) expect(blocks[i], PAGE, (int)i);
}

/* Twice as many as a zone has owners at a time, one after the other; and what others have with the number keeps it from being given again. */
static void numbers_of_owners_come_back(void **state) {
    (void)state;
    struct strata_handles *others;
    for (unsigned i = 0; i < 2 * STRATA_ZONE_OWNERS_MAX; i++) {
        strata_handle handle;
        assert_int_equal(strata_handles_create(zone, 8, &others), STRATA_HANDLE_OK);
        assert_int_equal(strata_handle_alloc(others, PAGE, &handle), STRATA_HANDLE_OK);
        assert_int_equal(strata_handles_destroy(others), STRATA_HANDLE_OK);
    }
    strata_handle handle;
    struct strata_zone_frame_info info;
    struct strata_zone_compact_counts counts;
    assert_int_equal(strata_handles_create(zone, 8, &others), STRATA_HANDLE_OK);
    assert_int_equal(strata_handle_alloc(others, PAGE, &handle), STRATA_HANDLE_OK);
    assert_int_equal(strata_zone_query(zone, frame_of(others, handle), &info), STRATA_ZONE_OK);
    const struct strata_zone_request request = {.frames = 1, .mobility = STRATA_ZONE_MOVABLE, .owner = info.owner};
    uint64_t foreign, refused;
    assert_int_equal(strata_zone_alloc_as(zone, &request, &foreign), STRATA_ZONE_OK);
    assert_int_equal(strata_handles_destroy(others), STRATA_HANDLE_OK);
    assert_int_equal(strata_zone_alloc_as(zone, &request, &refused), STRATA_ZONE_BAD_ARGUMENT);
    const struct strata_zone_owner next = {.name = "next"};
    unsigned number;
    assert_int_equal(strata_zone_owner_add(zone, &next, &number), STRATA_ZONE_OK);
    assert_int_not_equal(number, info.owner);
    assert_int_equal(strata_zone_compact(zone, 9, &counts), STRATA_ZONE_OK); /* nobody is asked about it */
    assert_int_equal(strata_zone_free(zone, foreign, 1), STRATA_ZONE_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(destroy_leaves_pinned_frames_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(numbers_of_owners_come_back, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
