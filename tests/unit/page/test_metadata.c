/*
 * test_metadata.c - the allocator of the zone's own structures: zeroed, aligned, apart, used again, and refused when commits are.
 */
#include "unit/page/page_support.h"

static void memory_is_zeroed_aligned_and_apart(void **state) {
    (void)state;
    static char *memory[40 * 14];
    unsigned n = 0;
    uint64_t before = zone.metadata.bytes;
    for (unsigned round = 0; round < 40; round++)
        for (size_t bytes = 1 + round; bytes <= 8192; bytes = bytes * 2 + 3) {
            size_t rounded = 16;
            while (rounded < bytes) rounded *= 2;
            char *got = zone_metadata_alloc(&zone, bytes);
            assert_non_null(got);
            assert_int_equal((uintptr_t)got % min_u64(rounded, 4096), 0);
            assert_true(is_zero(got, rounded));
            assert_false(zone_contains(&zone, got));
            memset(got, (int)(n % 255) + 1, rounded);
            if (n != ARRAY_LENGTH(memory)) memory[n++] = got;
        }
    n = 0;
    for (unsigned round = 0; round < 40; round++)
        for (size_t bytes = 1 + round; bytes <= 8192; bytes = bytes * 2 + 3) {
            if (n == ARRAY_LENGTH(memory)) break;
            for (size_t i = 0; i < bytes; i++) assert_int_equal((unsigned char)memory[n][i], n % 255 + 1);
            zone_metadata_free(&zone, memory[n++], bytes);
        }
    assert_int_equal(zone.metadata.bytes, before);
    ASSERT_SOUND();
}

static void what_came_back_is_used_first_and_zeroed_again(void **state) {
    (void)state;
    for (size_t bytes = 16; bytes <= 64 * KIB; bytes *= 2) {
        char *first = zone_metadata_alloc(&zone, bytes), *second = zone_metadata_alloc(&zone, bytes - 1);
        memset(first, 0xa5, bytes);
        memset(second, 0xa5, bytes);
        char *next = zone.metadata.next;
        zone_metadata_free(&zone, first, bytes);
        zone_metadata_free(&zone, second, bytes - 1);
        char *again = zone_metadata_alloc(&zone, bytes - 3), *other = zone_metadata_alloc(&zone, bytes);
        assert_true((again == first && other == second) || (again == second && other == first));
        assert_true(is_zero(first, bytes) && is_zero(second, bytes));
        assert_ptr_equal(zone.metadata.next, next);
    }
}

static void it_ends_where_its_space_ends(void **state) {
    (void)state;
    uint64_t got = 0, before = zone.metadata.bytes;
    while (zone_metadata_alloc(&zone, 4096) != NULL) got += 4096;
    assert_in_range(got, 900 * KIB, 1 * MIB); /* a 256th of the heap, at least a mebibyte */
    assert_int_equal(zone.metadata.bytes, before + got);
    assert_null(zone_metadata_alloc(&zone, 64 * KIB));
    assert_null(zone_metadata_alloc(&zone, 4 * GIB));
    assert_null(zone_metadata_alloc(&zone, (size_t)1 << 62));
    assert_true(zone.metadata.committed <= zone.metadata.end && zone.metadata.next <= zone.metadata.committed);
}

static void a_refused_commit_changes_nothing(void **state) {
    (void)state;
    sim_fail_only(UINT64_C(1) << SIM_COMMIT);
    sim_fail_call(1, SIM_FOREVER);
    unsigned n = 0;
    while (zone_metadata_alloc(&zone, 512) != NULL) n++;
    assert_true(n < 64 * KIB / 512 + 1);
    struct metadata before = zone.metadata;
    assert_null(zone_metadata_alloc(&zone, 128 * KIB));
    assert_memory_equal(&before, &zone.metadata, sizeof before);
    sim_fail_call(0, 0);
    char *memory = zone_metadata_alloc(&zone, 128 * KIB);
    assert_non_null(memory);
    assert_true(is_zero(memory, 128 * KIB));
    ASSERT_SOUND();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(memory_is_zeroed_aligned_and_apart, plain_zone),
        cmocka_unit_test_setup(what_came_back_is_used_first_and_zeroed_again, plain_zone),
        cmocka_unit_test_setup(it_ends_where_its_space_ends, plain_zone),
        cmocka_unit_test_setup(a_refused_commit_changes_nothing, plain_zone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
