/*
 * scaling_load.h - the loads of the experiment on scaling, one operation of one CPU at a time, so that the same code runs on virtual CPUs in turn and
 * on threads at once. Only strata's malloc and free, on whatever platform, are behind `alloc` and `free`.
 *
 *   pairs   a block is allocated and freed, the best case of the magazine layer (magazines paper, section 3.8)
 *   bursts  a CPU goes up and down between 0 and SCALING_HELD blocks, to a number that is drawn each time: two to four times what its array holds
 *   mixed   the same with a size for each burst, log-uniform between 16 and 1,024 bytes, so that many depots share the work
 *   passed  every other CPU only allocates, and the next one only frees: each block goes through the depot
 *
 * A struct scaling_cpu belongs to one CPU; `passed` uses that of the neighbour too, and so works in turn only. No locks.
 */
#ifndef STRATA_PAPERS_SCALING_LOAD_H
#define STRATA_PAPERS_SCALING_LOAD_H

#include "load.h"

#define SCALING_HELD 512
#define SCALING_BYTES 64

enum scaling_kind { SCALING_PAIRS, SCALING_BURSTS, SCALING_MIXED, SCALING_PASSED, SCALING_KINDS };
static const char *const scaling_names[SCALING_KINDS] = {"pairs", "bursts", "mixed", "passed"};

struct scaling_cpu {
    struct rng rng;
    unsigned count, target;
    size_t bytes; /* of what is allocated now */
    void *held[SCALING_HELD];
};

struct scaling_memory {
    void *(*alloc)(unsigned cpu, size_t bytes);
    void (*free)(unsigned cpu, void *block);
};

/* The kind of that name; SCALING_KINDS: none. */
static inline enum scaling_kind scaling_kind_of(const char *name) {
    unsigned kind = 0;
    while (kind < SCALING_KINDS && strcmp(name, scaling_names[kind])) kind++;
    return (enum scaling_kind)kind;
}

static inline void scaling_begin(struct scaling_cpu *state, unsigned cpu) {
    state->rng = rng_seed(cpu);
    state->count = state->target = 0;
    state->bytes = SCALING_BYTES;
}

static inline void scaling_burst(struct scaling_cpu *state, unsigned cpu, const struct scaling_memory *memory, int mixed) {
    while (state->count == state->target) {
        state->target = (unsigned)rng_below(&state->rng, SCALING_HELD + 1);
        if (mixed) state->bytes = rng_doubling(&state->rng, 4, 10);
    }
    if (state->count < state->target)
        state->held[state->count++] = memory->alloc(cpu, state->bytes);
    else
        memory->free(cpu, state->held[--state->count]);
}

/* Returns how many operations (allocations and frees) it made. */
static inline unsigned scaling_step(enum scaling_kind kind, struct scaling_cpu *states, unsigned cpus, unsigned cpu,
                                    const struct scaling_memory *memory) {
    struct scaling_cpu *state = &states[cpu];
    switch (kind) {
    case SCALING_BURSTS: scaling_burst(state, cpu, memory, 0); return 1;
    case SCALING_MIXED: scaling_burst(state, cpu, memory, 1); return 1;
    case SCALING_PASSED:
        if (cpu % 2 == 0 && state->count < SCALING_HELD) {
            state->held[state->count++] = memory->alloc(cpu, SCALING_BYTES);
            return 1;
        }
        if (cpu % 2 == 0 && cpu + 1 < cpus) return 0; /* full: the neighbour is behind */
        state = &states[cpu & ~1u];
        if (!state->count) return 0;
        memory->free(cpu, state->held[--state->count]);
        return 1;
    default: memory->free(cpu, memory->alloc(cpu, SCALING_BYTES)); return 2;
    }
}

static inline void scaling_end(struct scaling_cpu *state, unsigned cpu, const struct scaling_memory *memory) {
    while (state->count) memory->free(cpu, state->held[--state->count]);
}

#endif
