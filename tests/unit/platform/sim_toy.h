/*
 * sim_toy.h - per-CPU stacks in the manner of platform/cpu_ops.h, small enough to count their points: a push has two, a pop one.
 * An operation that finds its stack closed, full or empty has none.
 */
#ifndef STRATA_TESTS_UNIT_PLATFORM_SIM_TOY_H
#define STRATA_TESTS_UNIT_PLATFORM_SIM_TOY_H

#include "platform/sim/sim.h"

#define TOY_CPUS 4u
#define TOY_SLOTS 8u

struct toy {
    unsigned top;
    bool closed;
    void *slots[TOY_SLOTS];
};
static struct toy toys[TOY_CPUS];

static inline bool toy_push(void *round) {
again:;
    struct toy *toy = &toys[sim_cpu_id()];
    unsigned top = toy->top;
    if (toy->closed || top == TOY_SLOTS) return false;
    if (sim_preempt_point()) goto again;
    toy->slots[top] = round;
    if (sim_preempt_point()) goto again;
    toy->top = top + 1;
    return true;
}

static inline void *toy_pop(void) {
again:;
    struct toy *toy = &toys[sim_cpu_id()];
    unsigned top = toy->top;
    if (toy->closed || top == 0) return NULL;
    void *round = toy->slots[top - 1];
    if (sim_preempt_point()) goto again;
    toy->top = top - 1;
    return round;
}

/* A new machine with empty stacks. */
static inline void toy_reset(const struct sim_config *config) {
    sim_reset(config);
    for (unsigned cpu = 0; cpu < TOY_CPUS; cpu++) toys[cpu] = (struct toy){0};
}

#endif
