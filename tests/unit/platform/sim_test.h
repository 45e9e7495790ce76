/*
 * sim_test.h - what the tests of the simulated platform share: cmocka, and an assertion that a call ends the simulated process.
 */
#ifndef STRATA_TESTS_UNIT_PLATFORM_SIM_TEST_H
#define STRATA_TESTS_UNIT_PLATFORM_SIM_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "platform/sim/sim.h"

/* body(argument) ends in platform_die, after a line that contains `text`. */
static inline void assert_dies(void (*body)(void *), void *argument, const char *text) {
    sim_output_clear();
    assert_true(sim_dies(body, argument));
    if (strstr(sim_output(), text) == NULL) fail_msg("died with: %snot with: %s", sim_output(), text);
}

#endif
