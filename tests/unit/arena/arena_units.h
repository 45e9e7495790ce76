/*
 * arena_units.h - for tests that each begin with one empty arena of units, and with the memory that it asks for.
 */
#ifndef STRATA_TESTS_ARENA_UNITS_H
#define STRATA_TESTS_ARENA_UNITS_H

#include "unit/arena/arena_support.h"

static struct arena arena;
static struct memory memory;

static int setup(void **state) {
    (void)state;
    sim_reset(NULL);
    memory_init(&memory);
    ASSERT_OK(arena_init(&arena, "units", 1, &memory_ops, &memory, 0));
    return 0;
}

static int teardown(void **state) {
    (void)state;
    memory_drop(&memory);
    return 0;
}

#endif
