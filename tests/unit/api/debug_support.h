/*
 * debug_support.h - heaps on a simulated machine, for tests of debugging; and buffers that the compiler knows nothing of, so that they can be
 * misused.
 */
#ifndef STRATA_TESTS_UNIT_API_DEBUG_SUPPORT_H
#define STRATA_TESTS_UNIT_API_DEBUG_SUPPORT_H

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/heap.h"
#include "platform/sim/sim.h"
#include "strata/cache.h"
#include "strata/debug.h"
#include "strata/malloc.h"
#include "strata/strata.h"

int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) { /* this process builds many heaps */
    (void)prepare, (void)parent, (void)child;
    return 0;
}

static const uintptr_t stack_a[] = {SIM_MODULE_START + 0x10, 0x99};

static inline void begin(const char *conf) {
    memset(&heap, 0, sizeof heap);
    heap.lock = (struct platform_lock)PLATFORM_LOCK_INIT(LOCK_RANK_API);
    sim_reset(NULL);
    sim_env_set("STRATA_CONF", conf);
    sim_stack_set(stack_a, 2);
    assert_true(heap_init());
}

static inline int fresh_heap(void **state) {
    (void)state;
    begin("background:off");
    return 0;
}

static inline void assert_sound(void) {
    const char *broken = heap_check();
    if (broken != NULL) fail_msg("%s", broken);
    assert_int_equal(sim_locks_held(), 0);
}

static inline void *get(size_t bytes) {
    void *p = strata_malloc(bytes);
    __asm__("" : "+r"(p));
    return p;
}
static inline void put(void *p) {
    __asm__("" : "+r"(p));
    strata_free(p);
}

#endif
