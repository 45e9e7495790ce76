/*
 * linux_test.h - what the tests of platform/linux share: cmocka, and children that report by their exit status.
 */
#ifndef STRATA_TESTS_UNIT_PLATFORM_LINUX_TEST_H
#define STRATA_TESTS_UNIT_PLATFORM_LINUX_TEST_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "platform/platform.h"

/* The status of waitpid of a child that runs body(argument); a body that returns makes it exit with 0. */
static inline int child_status(void (*body)(void *), void *argument) {
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        body(argument);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* In a child: an expectation that does not hold ends it with a status that names the line. */
#define EXPECT(condition)                            \
    do {                                             \
        if (!(condition)) _exit(1 + __LINE__ % 250); \
    } while (0)

#endif
