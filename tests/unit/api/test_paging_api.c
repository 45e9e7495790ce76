/*
 * test_paging_api.c - paged blocks where the system lets nobody serve faults, as the simulated one does: a status, no memory kept, and errno as it
 * was. What is wrong with the arguments is said before that. The rest needs a kernel: tests/stress/api_paging.c.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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
    assert_int_equal(strata_paging_open(&config, &paging), STRATA_PAGING_NO_FAULTS);
    assert_null(paging);
    assert_int_equal(errno, ERRNO_BEFORE);
    assert_int_equal(sim_reserved_bytes(), 0);
    config.resident_limit_bytes = 0;
    assert_int_equal(strata_paging_open(&config, &paging), STRATA_PAGING_BAD_ARGUMENT);
}

static void test_no_memory(void **unused) {
    (void)unused;
    for (uint64_t n = 1; n <= 4; n++) {
        sim_fail_only(1u << SIM_RESERVE | 1u << SIM_COMMIT);
        sim_fail_call(n, 1);
        assert_int_equal(strata_paging_open(&config, &paging), STRATA_PAGING_NO_MEMORY);
        assert_int_equal(sim_failures(), 1);
        assert_null(paging);
        assert_int_equal(sim_reserved_bytes(), 0);
    }
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
        cmocka_unit_test_setup(test_nothing, new_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
