/*
 * test_calloc.c - which pages of a fresh calloc are present: where there may be other threads, as here, all of a block below 1 MiB, so that none is
 * read as the system's page of zeros first; none of a larger one, and none ahead of need where the program wants that.
 */
#include "strata/malloc.h"
#include "unit/api/api_support.h"

static uint64_t present_of_fresh(const char *options, void *(*take)(size_t bytes), size_t bytes) {
    new_process(NULL, options);
    unsigned char *block = take(bytes);
    assert_non_null(block);
    uint64_t present = sim_populated_pages(block, align_up(bytes, GRANULE_BYTES));
    for (size_t i = 0; take != strata_malloc && i < bytes; i += 511) assert_int_equal(block[i], 0);
    strata_free(block);
    assert_null(heap_check());
    return present;
}

static void *zeros(size_t bytes) { return strata_calloc(1, bytes); }

static void fresh_pages_of_small_blocks_are_present(void **state) {
    (void)state;
    const size_t page = GRANULE_BYTES; /* of the simulated system, too */
    assert_int_equal(present_of_fresh(NULL, zeros, 300000), align_up(300000, page) / page);
    assert_int_equal(present_of_fresh(NULL, zeros, 1 * MIB - 1), 1 * MIB / page);
    assert_int_equal(present_of_fresh(NULL, zeros, 1 * MIB), 0);
    assert_int_equal(present_of_fresh(NULL, strata_malloc, 300000), 0);
    assert_int_equal(present_of_fresh("populate_pages:1", zeros, 300000), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(fresh_pages_of_small_blocks_are_present)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
