/*
 * test_linux_clock.c - the clocks are the C library's, though they are asked elsewhere, and leave errno alone.
 */
#define _GNU_SOURCE 1
#include <time.h>

#include "linux_test.h"

static uint64_t ask(clockid_t clock) {
    struct timespec now;
    assert_int_equal(clock_gettime(clock, &now), 0);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void each_lies_between_two_looks_at_the_same(void **state) {
    (void)state;
    static const struct {
        uint64_t (*read)(void);
        clockid_t clock;
    } clocks[] = {{platform_first_ns, CLOCK_MONOTONIC_COARSE}, {platform_now_ns, CLOCK_MONOTONIC_COARSE}, {platform_precise_ns, CLOCK_MONOTONIC}};
    for (unsigned i = 0; i < 1000; i++)
        for (unsigned c = 0; c < ARRAY_LENGTH(clocks); c++) {
            const uint64_t before = ask(clocks[c].clock);
            errno = 77;
            const uint64_t now = clocks[c].read();
            assert_int_equal(errno, 77);
            assert_in_range(now, before, ask(clocks[c].clock));
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_lies_between_two_looks_at_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
