/*
 * test_page_failures.c - every operation on blocks of pages, while each call of the platform fails in turn: whatever is refused has changed nothing;
 * whatever is done is done wholly; and the heap is sound.
 */
#include "strata/page.h"
#include "unit/api/api_support.h"

static void fill(char *block, size_t bytes, unsigned char with) {
    for (size_t at = 0; at < bytes; at += 4 * KIB) block[at] = (char)(with + at / (4 * KIB));
}
static bool is_filled(const char *block, size_t bytes, unsigned char with) {
    for (size_t at = 0; at < bytes; at += 4 * KIB)
        if (block[at] != (char)(with + at / (4 * KIB))) return false;
    return true;
}
static bool reads_as_zeros(const char *block, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 4 * KIB)
        if (block[at] != 0) return false;
    return true;
}

static bool strict;
static unsigned refused;

static bool worked(enum strata_page_status status) {
    assert_int_equal(errno, ERRNO_BEFORE);
    assert_int_equal(sim_locks_held(), 0);
    if (strict) assert_int_equal(status, STRATA_PAGE_OK);
    refused += status != STRATA_PAGE_OK;
    return status == STRATA_PAGE_OK;
}

static void page_blocks(void) {
    enum { SIZE = 3 * MIB, PART = 768 * KIB };
    void *a = NULL, *b = NULL, *second;
    if (!worked(strata_page_alloc(SIZE, STRATA_PAGE_ZEROED, &a))) return;
    assert_true(reads_as_zeros(a, SIZE));
    if (worked(strata_page_alloc(SIZE, 0, &b))) {
        fill(a, SIZE, 1), fill(b, SIZE, 2);
        bool swapped = worked(strata_page_swap(a, b, SIZE));
        assert_true(is_filled(a, SIZE, swapped ? 2 : 1) && is_filled(b, SIZE, swapped ? 1 : 2));
        fill(a, SIZE, 3), fill(b, SIZE, 4);
        if (worked(strata_page_move((char *)a + PART, b, PART)))
            assert_true(reads_as_zeros((char *)a + PART, PART) && is_filled(b, PART, (unsigned char)(3 + PART / (4 * KIB))));
        assert_true(is_filled(a, PART, 3));
        if (worked(strata_page_release(b, PART))) assert_true(reads_as_zeros(b, PART));
        if (worked(strata_page_split(a, 2 * MIB, &second)) && !worked(strata_page_join(a, second))) worked(strata_page_free(second));
        struct strata_page_info info;
        if (worked(strata_page_query(a, &info))) assert_ptr_equal(info.block, a);
        struct strata_page_op ops[] = {{.operation = STRATA_PAGE_OP_RELEASE, .address = b, .bytes = PART},
                                       {.operation = STRATA_PAGE_OP_COMMIT, .address = b, .bytes = PART},
                                       {.operation = STRATA_PAGE_OP_REALLOC, .address = a, .bytes = 9 * MIB},
                                       {.operation = STRATA_PAGE_OP_ALLOC, .bytes = 100 * KIB}};
        size_t done;
        worked(strata_page_batch(ops, ARRAY_LENGTH(ops), &done));
        for (size_t i = 0; i < ARRAY_LENGTH(ops); i++) assert_true((i < done) == (ops[i].status == STRATA_PAGE_OK));
        a = ops[2].address;
        assert_true(is_filled(a, PART, 3));
        if (done == 4) assert_int_equal(strata_page_free(ops[3].address), STRATA_PAGE_OK);
        assert_int_equal(strata_page_free(b), STRATA_PAGE_OK);
    }
    assert_int_equal(strata_page_free(a), STRATA_PAGE_OK);
}

/* How many calls there were that can fail. */
static uint64_t run(uint64_t n, uint64_t times) {
    new_heap(NULL, NULL);
    sim_fail_call(n, times);
    page_blocks();
    sim_fail_call(0, 0);
    const char *broken = heap_check();
    if (broken != NULL) fail_msg("call %llu fails: %s", (unsigned long long)n, broken);
    struct zone_counters counters;
    zone_counters_get(&heap.zone, &counters);
    assert_int_equal(counters.blocks, 0);
    assert_int_equal(counters.populated, counters.populated_total - counters.released_total);
    return sim_failable_calls();
}

static void each_call_fails(void **state) {
    (void)state;
    strict = true;
    uint64_t calls = run(0, 0);
    assert_true(sim_calls(SIM_MOVE) >= 3 && sim_calls(SIM_PRESENCE) >= 1 && sim_calls(SIM_RELEASE) >= 2 && sim_calls(SIM_POPULATE) >= 1);
    strict = false;
    for (uint64_t n = 1; n <= calls; n++) (void)run(n, 1);
}

static void calls_fail_from_one_on(void **state) {
    (void)state;
    strict = false;
    uint64_t calls = run(0, 0);
    for (uint64_t n = 1; n <= calls; n++) (void)run(n, SIM_FOREVER);
    assert_true(refused > 0); /* memory was refused, and that was no end */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_fails),
        cmocka_unit_test(calls_fail_from_one_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
