/*
 * api_support.h - what the tests of api/ share: processes on the simulated machine, one after the other in this one, and the check of their heaps.
 */
#ifndef STRATA_TESTS_API_SUPPORT_H
#define STRATA_TESTS_API_SUPPORT_H

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/heap.h"
#include "platform/sim/sim.h"
#include "unit/sparse.h"

#define ERRNO_BEFORE EXDEV /* nothing in here sets it */

/* The handlers are called by hand: a simulated process forks in name only, and this one builds many heaps. */
static void (*fork_prepare)(void) __attribute__((unused)), (*fork_parent)(void)__attribute__((unused)), (*fork_child)(void)__attribute__((unused));
int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) {
    fork_prepare = prepare;
    fork_parent = parent;
    fork_child = child;
    return 0;
}

/* A process that has not allocated yet, on a machine of this kind (NULL: the usual one) and with this STRATA_CONF (NULL: none). */
static inline void new_process(const struct sim_config *sim, const char *conf) {
    sim_reset(sim);
    sim_env_set("STRATA_CONF", conf);
    memset(&heap, 0, sizeof heap);
    heap.lock = (struct platform_lock)PLATFORM_LOCK_INIT(LOCK_RANK_API);
    errno = ERRNO_BEFORE;
}

/* The same, with its heap. */
static inline void new_heap(const struct sim_config *sim, const char *conf) {
    new_process(sim, conf);
    assert_true(heap_init());
}

/* For tests that ask for nothing more. */
static inline int fresh_process(void **state) {
    (void)state;
    new_process(NULL, "background:off");
    return 0;
}

#define ASSERT_SOUND()                                                 \
    do {                                                               \
        const char *wrong_ = heap_check();                             \
        if (wrong_ != NULL) fail_msg("line %d: %s", __LINE__, wrong_); \
        assert_int_equal(sim_locks_held(), 0);                         \
    } while (0)

/*
 * Every call of the platform fails in turn: once, three times in a row, for good. run: a process whose n-th call fails, and times - 1 after it, and
 * what has to hold then; false where there are not so many, as for n = 0, where nothing fails. There are more than `least`.
 */
static inline __attribute__((unused)) void each_call_fails_in(bool (*run)(const struct sim_config *sim, const char *conf, uint64_t n, uint64_t times),
                                                              const struct sim_config *sim, const char *conf, uint64_t least) {
    static const uint64_t times[] = {1, 3, SIM_FOREVER};
    assert_false(run(sim, conf, 0, 0));
    for (unsigned i = 0; i < ARRAY_LENGTH(times); i++) {
        uint64_t n = 1;
        while (run(sim, conf, n, times[i])) n += sparse_step(times[i] == 3 ? 2 : 1);
        assert_true(n > least);
    }
}

#endif
