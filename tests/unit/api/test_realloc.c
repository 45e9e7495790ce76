/*
 * test_realloc.c - realloc of blocks of pages: who asks for a size that the block's pages have room for gets it without a lock, as those who append
 * ask so for every few bytes; and any other size changes the block, so that nothing that is kept is too much or too little.
 */
#include "api/heap.h"
#include "strata/malloc.h"
#include "unit/api/api_support.h"

#define PAGE ((size_t)GRANULE_BYTES) /* of the simulated system, too */

static void within_its_pages_no_lock_is_taken(void **state) {
    (void)state;
    new_process(NULL, NULL);
    unsigned char *block = strata_malloc(10 * PAGE);
    assert_non_null(block);
    memset(block, 0x5a, 10 * PAGE);
    const uint64_t locks = sim_calls(SIM_LOCK_ACQUIRE);
    const uint32_t slow_calls = maintenance_slow_calls();
    assert_ptr_equal(strata_realloc(block, 9 * PAGE + 1), block);
    assert_ptr_equal(strata_realloc(block, 10 * PAGE - 7), block);
    assert_ptr_equal(strata_realloc(block, 10 * PAGE), block);
    assert_int_equal(sim_calls(SIM_LOCK_ACQUIRE), locks);
    assert_int_equal(maintenance_slow_calls(), slow_calls);
    assert_int_equal(strata_malloc_usable_size(block), 10 * PAGE);
    assert_ptr_equal(strata_realloc(block, 10 * PAGE + 1), block); /* that does take one */
    assert_true(sim_calls(SIM_LOCK_ACQUIRE) > locks && maintenance_slow_calls() > slow_calls);
    for (size_t i = 0; i < 10 * PAGE; i++) assert_int_equal(block[i], 0x5a);
    strata_free(block);
    assert_null(heap_check());
}

static void another_number_of_pages_changes_the_block(void **state) {
    (void)state;
    new_process(NULL, NULL);
    unsigned char *block = strata_malloc(20 * PAGE);
    assert_non_null(block);
    block = strata_realloc(block, 20 * PAGE + 1);
    assert_int_equal(strata_malloc_usable_size(block), 21 * PAGE);
    block = strata_realloc(block, 20 * PAGE); /* a byte less than what needs the last page */
    assert_int_equal(strata_malloc_usable_size(block), 20 * PAGE);
    block = strata_realloc(block, 10 * PAGE - 1);
    assert_int_equal(strata_malloc_usable_size(block), 10 * PAGE);
    strata_free(block);

    /* What a size class serves becomes an object, though the pages of the block, which is one for its alignment, have room for it. */
    block = strata_aligned_alloc(2 * PAGE, 8 * PAGE - 100);
    assert_int_equal(zone_block_bytes(&heap.zone, block), 8 * PAGE);
    block = strata_realloc(block, 8 * PAGE - 200);
    assert_int_equal(zone_block_bytes(&heap.zone, block), 0);
    strata_free(block);
    assert_null(heap_check());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(within_its_pages_no_lock_is_taken),
        cmocka_unit_test(another_number_of_pages_changes_the_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
