/*
 * debug_support.h - heaps on a simulated machine, for tests of debugging; and buffers that the compiler knows nothing of, so that they can be
 * misused.
 */
#ifndef STRATA_TESTS_UNIT_API_DEBUG_SUPPORT_H
#define STRATA_TESTS_UNIT_API_DEBUG_SUPPORT_H

#include "strata/cache.h"
#include "strata/debug.h"
#include "strata/malloc.h"
#include "strata/strata.h"
#include "unit/api/api_support.h"

static const uintptr_t stack_a[] = {SIM_MODULE_START + 0x10, 0x99};

static inline void begin(const char *conf) {
    new_process(NULL, conf);
    sim_stack_set(stack_a, 2);
    assert_true(heap_init());
}

static inline int debug_heap(void **state) {
    (void)state;
    begin("background:off");
    return 0;
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
