/*
 * test_linux_thread_tls.c - a program with more thread-local data than our small stack holds still gets its thread.
 */
#include "linux_test.h"

#define TLS_BYTES (512 * KIB)

static __thread char large[TLS_BYTES];
static struct platform_event done;

static void use_it(void *argument) {
    memset(large, 1, sizeof large);
    *(unsigned *)argument = (unsigned)large[0] + (unsigned)large[TLS_BYTES - 1];
    platform_event_wake(&done);
}

static void large_thread_local_data_fits(void **state) {
    (void)state;
    unsigned sum = 0;
    assert_true(platform_thread_start(use_it, &sum));
    assert_true(platform_event_wait(&done, UINT64_MAX));
    assert_int_equal(sum, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(large_thread_local_data_fits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
