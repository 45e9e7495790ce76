/*
 * test_paging_api.c - the public calls of paged blocks on a simulated machine: where the system lets nobody serve faults a status, no memory kept,
 * and errno as it was; limits that are lowered, figures, errors of the file. The pager itself is compared with a model (tests/model/model_pager.c),
 * and meets a kernel in tests/stress/api_paging.c.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "page/pager.h"
#include "platform/sim/sim.h"
#include "strata/paging.h"

#define ERRNO_BEFORE 4711

static struct strata_paging_config config;
static struct strata_paging *paging;

static int new_process(void **unused) {
    (void)unused;
    sim_reset(NULL);
    config = (struct strata_paging_config){.path = "file", .bytes = 1000 * KIB, .resident_limit_bytes = 400 * KIB};
    paging = NULL;
    errno = ERRNO_BEFORE;
    return 0;
}

static void test_forbidden(void **unused) {
    (void)unused;
    sim_fail_only(UINT64_C(1) << SIM_PAGED_OPEN);
    sim_fail_call(1, SIM_FOREVER);
    assert_int_equal(strata_paging_open(&config, &paging), STRATA_PAGING_NO_FAULTS);
    assert_null(paging);
    assert_int_equal(errno, ERRNO_BEFORE);
    assert_int_equal(sim_reserved_bytes(), 0);
    config.resident_limit_bytes = 0;
    assert_int_equal(strata_paging_open(&config, &paging), STRATA_PAGING_BAD_ARGUMENT);
}

static void test_no_memory(void **unused) {
    (void)unused;
    for (uint64_t n = 1; n <= 9; n++) {
        sim_fail_only(UINT64_C(1) << SIM_RESERVE | UINT64_C(1) << SIM_COMMIT | UINT64_C(1) << SIM_THREAD_START);
        sim_fail_call(n, 1);
        assert_int_equal(strata_paging_open(&config, &paging), STRATA_PAGING_NO_MEMORY);
        assert_int_equal(sim_failures(), 1);
        assert_null(paging);
        assert_int_equal(sim_reserved_bytes(), 0);
    }
}

static struct strata_paging_stats figures(void) {
    struct strata_paging_stats stats;
    assert_int_equal(strata_paging_stats_get(paging, &stats), STRATA_PAGING_OK);
    return stats;
}

/* What is written is on the disk after a sync, and only then; figures are exact. */
static void test_sync(void **unused) {
    (void)unused;
    config.flags = STRATA_PAGING_NO_READ_AHEAD;
    assert_int_equal(strata_paging_open(&config, &paging), STRATA_PAGING_OK);
    char *block = strata_paging_address(paging), seen[4] = {0};
    assert_true(sim_paged_write(block + 5000, "abc", 3) && sim_paged_read(block + 9000, seen, 3));
    assert_int_equal(figures().resident, 2);
    assert_int_equal(figures().dirty, 1);
    assert_int_equal(figures().faults, 2);
    assert_int_equal(sim_store_text("file", true, NULL)[5000], 0);
    assert_int_equal(strata_paging_sync(paging, block + 5000, 1), STRATA_PAGING_OK);
    assert_memory_equal(sim_store_text("file", true, NULL) + 5000, "abc", 3);
    assert_int_equal(figures().dirty, 0);
    assert_int_equal(figures().writes, 1);
    assert_int_equal(strata_paging_close(paging, STRATA_PAGING_SAVE), STRATA_PAGING_OK);
    assert_int_equal(sim_reserved_bytes(), 0);
}

static void test_errors_of_the_file(void **unused) {
    (void)unused;
    config.flags = STRATA_PAGING_NO_READ_AHEAD;
    assert_int_equal(strata_paging_open(&config, &paging), STRATA_PAGING_OK);
    char *block = strata_paging_address(paging), seen[4] = {0};
    assert_true(sim_paged_write(block, "abc", 3));
    sim_store_set_room(0);
    errno = 0;
    assert_int_equal(strata_paging_close(paging, STRATA_PAGING_SAVE), STRATA_PAGING_FILE_ERROR);
    assert_int_equal(errno, ENOSPC);
    sim_store_set_room(UINT64_MAX);
    assert_int_equal(strata_paging_sync(paging, NULL, 0), STRATA_PAGING_OK);
    sim_store_cut("file", 4096);
    assert_true(sim_paged_read(block, seen, 3));
    assert_false(sim_paged_read(block + 4096, seen, 3)); /* the handler is not there: it gives up */
    assert_int_equal(figures().failed, 1);
    assert_int_equal(figures().read_errors, 1);
    sim_fail_only(UINT64_C(1) << SIM_STORE_SYNC);
    sim_fail_call(1, 1);
    assert_int_equal(strata_paging_sync(paging, NULL, 0), STRATA_PAGING_FILE_ERROR);
    assert_int_equal(errno, EIO);
    assert_int_equal(strata_paging_close(paging, STRATA_PAGING_DISCARD), STRATA_PAGING_OK);
    sim_fail_only(UINT64_C(1) << SIM_STORE_OPEN);
    sim_fail_call(1, 1);
    assert_int_equal(strata_paging_open(&config, &paging), STRATA_PAGING_FILE_ERROR);
    assert_int_equal(sim_reserved_bytes(), 0);
}

static enum strata_paging_decision give_up(const struct strata_paging_error *error, void *argument) {
    (void)error;
    ++*(unsigned *)argument;
    return STRATA_PAGING_GIVE_UP;
}
/* The system has no mapping to spare for a page that has failed: who touches it waits, and neither the file nor the handler is asked again. */
static void test_no_mapping_for_a_page_that_failed(void **unused) {
    (void)unused;
    unsigned asked = 0;
    char seen[1];
    config.flags = STRATA_PAGING_NO_READ_AHEAD;
    config.handler = give_up;
    config.handler_argument = &asked;
    assert_int_equal(strata_paging_open(&config, &paging), STRATA_PAGING_OK);
    sim_store_cut("file", 4096);
    sim_fail_only(UINT64_C(1) << SIM_PAGED_BREAK);
    sim_fail_call(1, 20);
    uint64_t begin_ns = platform_now_ns();
    assert_false(sim_paged_read((char *)strata_paging_address(paging) + 4096, seen, 1));
    assert_int_equal(asked, 1);
    assert_int_equal(figures().read_errors, 1);
    assert_int_equal(sim_failures(), 20);
    assert_in_range(platform_now_ns() - begin_ns, UINT64_C(20) * 1000000, UINT64_C(200) * 1000000);
    assert_int_equal(figures().failed, 1);
    assert_int_equal(strata_paging_close(paging, STRATA_PAGING_DISCARD), STRATA_PAGING_OK);
}

static enum strata_paging_status closed;
static void close_it(void *unused) {
    (void)unused;
    closed = strata_paging_close(paging, STRATA_PAGING_DISCARD);
}
/* Later, at first; then at once, after a nap. From the tenth time on another thread closes it. */
static enum strata_paging_decision retry(const struct strata_paging_error *error, void *argument) {
    struct platform_event nobody = {0};
    (void)error;
    (void)platform_event_wait(&nobody, 1000);
    unsigned asked = ++*(unsigned *)argument;
    if (asked == 10) (void)sim_thread_start(1, close_it, NULL);
    return asked == 1 ? STRATA_PAGING_GO_ON : asked < 1000 ? STRATA_PAGING_RETRY : STRATA_PAGING_GIVE_UP;
}
/* What is to be lost is not tried for as long as the handler says so. */
static void test_close_beside_a_write_that_fails(void **unused) {
    (void)unused;
    unsigned asked = 0;
    config.handler = retry;
    config.handler_argument = &asked;
    closed = STRATA_PAGING_FORKED;
    assert_int_equal(strata_paging_open(&config, &paging), STRATA_PAGING_OK);
    sim_store_set_room(0);
    for (unsigned i = 0; i < 20; i++) assert_true(sim_paged_write((char *)strata_paging_address(paging) + i * (size_t)4096, "a", 1));
    (void)sim_run_threads_for(UINT64_C(1000000000));
    assert_int_equal(closed, STRATA_PAGING_OK);
    assert_in_range(asked, 10, 20);
    assert_int_equal(sim_reserved_bytes(), 0);
}

/* Where only so many pages can be in reach, no more are kept; fewer than an instruction may need are none. */
static void test_lowered_limit(void **unused) {
    (void)unused;
    char seen[1];
    sim_paged_offer(40, true);
    assert_int_equal(strata_paging_open(&config, &paging), STRATA_PAGING_OK);
    assert_int_equal(figures().resident_limit, 40);
    assert_int_equal(figures().dirty_limit, 25);
    for (unsigned i = 0; i < 200; i++) assert_true(sim_paged_read((char *)strata_paging_address(paging) + i * (size_t)4096, seen, 1));
    assert_int_equal(figures().beyond_limit, 0);
    assert_in_range(sim_paged_resident(), 1, 40);
    assert_int_equal(strata_paging_close(paging, STRATA_PAGING_DISCARD), STRATA_PAGING_OK);
    sim_paged_offer(STRATA_PAGING_PAGES_MIN - 1, true);
    assert_int_equal(strata_paging_open(&config, &paging), STRATA_PAGING_NO_MEMORY);
    assert_int_equal(sim_reserved_bytes(), 0);
}

/* What the group can hold is file and pages, of which there are no more than the block has, whatever their limit is. */
static void test_limit_of_the_group(void **unused) {
    (void)unused;
    const struct pager_config all = {.path = "file", .bytes = MIB, .limit_pages = 100000, .dirty_limit_pages = 1};
    struct pager *pager;
    int error;
    for (unsigned i = 0; i < 2; i++) {
        sim_set_memory_limit(i == 0 ? 3 * MIB / 2 : 4 * MIB);
        assert_int_equal(pager_open(&all, &pager, &error), PAGER_OK);
        assert_int_equal(pager->store.passing, i == 0);
        pager_close(pager);
    }
}

/* Before Linux 6.4: who reads counts as one who writes, and the dirty limit holds for that too. */
static void test_no_protection(void **unused) {
    (void)unused;
    char seen[1];
    sim_paged_offer(UINT32_MAX, false);
    config.dirty_limit_bytes = (size_t)3 * 4096;
    assert_int_equal(strata_paging_open(&config, &paging), STRATA_PAGING_OK);
    for (unsigned i = 0; i < 100; i++) {
        assert_true(sim_paged_read((char *)strata_paging_address(paging) + i * (size_t)4096, seen, 1));
        assert_in_range(figures().dirty, 0, 3);
    }
    assert_int_equal(strata_paging_close(paging, STRATA_PAGING_SAVE), STRATA_PAGING_OK);
}

static void test_nothing(void **unused) {
    (void)unused;
    assert_int_equal(strata_paging_close(NULL, STRATA_PAGING_SAVE), STRATA_PAGING_OK);
    assert_int_equal(strata_paging_sync(NULL, NULL, 0), STRATA_PAGING_BAD_ARGUMENT);
    assert_null(strata_paging_address(NULL));
    assert_string_equal(strata_paging_check(NULL), "paging: not of this process");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_forbidden, new_process),
        cmocka_unit_test_setup(test_no_memory, new_process),
        cmocka_unit_test_setup(test_sync, new_process),
        cmocka_unit_test_setup(test_errors_of_the_file, new_process),
        cmocka_unit_test_setup(test_lowered_limit, new_process),
        cmocka_unit_test_setup(test_no_protection, new_process),
        cmocka_unit_test_setup(test_nothing, new_process),
        cmocka_unit_test_setup(test_no_mapping_for_a_page_that_failed, new_process),
        cmocka_unit_test_setup(test_close_beside_a_write_that_fails, new_process),
        cmocka_unit_test_setup(test_limit_of_the_group, new_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
