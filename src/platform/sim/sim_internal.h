/*
 * sim_internal.h - what the files of the simulation share. Nothing outside platform/sim includes it.
 */
#ifndef STRATA_PLATFORM_SIM_SIM_INTERNAL_H
#define STRATA_PLATFORM_SIM_SIM_INTERNAL_H

#include "base/base.h"
#include "base/check.h"
#include "platform/sim/sim.h"

/* ------------------------------------------------------------------ sim_control.c */

extern struct sim_config sim_config; /* of the running machine, defaults filled in */
/* Counts a call, and says whether it shall fail. */
bool sim_call_fails(enum sim_call call);
void sim_call_count(enum sim_call call);

/* Real memory for the simulation's own tables: zero, lazily present, for the life of the process. */
void *sim_table_map(uint64_t bytes);

/* ------------------------------------------------------------------ sim_memory.c, sim_vma.c */

struct sim_vma {
    uint64_t start_page; /* of the arena */
    uint64_t end_page;
    int64_t origin_pages; /* distance to where its pages were first mapped, 0 unless moved */
    bool committed;
    int8_t huge; /* transparent huge pages: 1 asked for, -1 refused, 0 not mentioned */
};

enum sim_vma_change {
    SIM_VMA_COMMIT,
    SIM_VMA_HUGE_ON,
    SIM_VMA_HUGE_OFF,
};

void sim_memory_reset(void);
/* As platform_release, and can't fail. */
void sim_release(void *address, size_t bytes);
void sim_vma_reset(void);
/* Every page of the range is mapped (and committed). */
bool sim_vma_covers(uint64_t start_page, uint64_t end_page, bool committed);
/* Whether all of it is of one mapping. */
bool sim_vma_is_one(uint64_t start_page, uint64_t end_page);
/* No page of the range is mapped. */
bool sim_vma_free(uint64_t start_page, uint64_t end_page);
/* Lowest free range of `pages` at a multiple of align_pages plus phase_pages below limit_page; UINT64_MAX when there is none. */
uint64_t sim_vma_find(uint64_t pages, uint64_t align_pages, uint64_t phase_pages, uint64_t limit_page);
/* The changes; false when the mappings would exceed the limit, and then nothing has changed. */
bool sim_vma_map(uint64_t start_page, uint64_t end_page);
bool sim_vma_change(uint64_t start_page, uint64_t end_page, enum sim_vma_change change);
bool sim_vma_move(uint64_t from_page, uint64_t to_page, uint64_t pages);
bool sim_vma_restore(uint64_t start_page, uint64_t end_page);
/* Always succeeds. */
void sim_vma_unmap(uint64_t start_page, uint64_t end_page);
/* Mapping number i in address order; NULL at the end. */
const struct sim_vma *sim_vma_at(uint64_t i);

/* ------------------------------------------------------------------ sim_lock.c */

#define SIM_LOCKS_HELD_MAX 16

struct sim_locks {
    struct platform_lock *held[SIM_LOCKS_HELD_MAX];
    unsigned count;
};
void sim_lock_reset(void);
/* Highest rank that the current thread holds, 0 when none. */
uint32_t sim_lock_highest_rank(void);

/* ------------------------------------------------------------------ sim_thread.c */

enum sim_thread_state {
    SIM_THREAD_IDENTITY = 0, /* no body */
    SIM_THREAD_READY,
    SIM_THREAD_WANTS_LOCK,
    SIM_THREAD_WAITS, /* for an event, pressure, time, or somebody to wake it on a word */
};

struct sim_thread {
    uint32_t id;       /* platform_thread_id */
    uint64_t sequence; /* platform_thread_sequence */
    uint32_t asked;    /* platform_thread_asked */
    unsigned cpu;      /* virtual */
    struct sim_locks locks;
    enum sim_thread_state state;
    bool in_sequence; /* switched away from at a sim_preempt_point */
    bool aborted;     /* and that sequence may not go on */
    bool ended;       /* its exit callback has run: platform_thread_ended */
    uint32_t frees;   /* platform_thread_count_free */
    struct platform_lock *wants;
    struct platform_event *waits;
    bool waits_pressure;
    const uint32_t *waits_word; /* NULL: for no word */
    uint64_t deadline_ns;
};

void sim_thread_reset(void);
struct sim_thread *sim_thread_current(void);
/* Whether the current thread has a body and may be switched away from here. */
bool sim_thread_can_switch(void);
/* Other threads with a body that can run now. */
unsigned sim_thread_ready_others(void);
/* Switches to the n-th of them (from 0); returns when this one is chosen again. */
void sim_thread_switch(unsigned n);
/* Waits until the lock is free; false where nobody can ever free it. */
bool sim_thread_wait_lock(struct platform_lock *lock);
/* Waits for the event (taken), the deadline, or pressure when asked for. True when the event was woken. */
bool sim_thread_wait(struct platform_event *event, uint64_t timeout_ns, bool pressure);
/* Aborts sequences of suspended threads on this CPU, of all CPUs for SIM_CPUS_MAX. */
void sim_thread_abort_sequences(unsigned cpu);
/* The body on whose stack we are, SIM_BODIES_MAX on that of the test. */
unsigned sim_thread_body(void);
/* From platform_die in a thread with a body: back to the test, which dies by sim_die_now. Does not return. */
void sim_thread_die(void);
/* After a jump out of the middle of everything: who was running at the place jumped to. */
void sim_thread_unwind(unsigned thread, unsigned body);

/* ------------------------------------------------------------------ sim_context.c */

/* Stacks to run threads on. Number 0 is the test itself. */
void sim_context_create(unsigned number, void (*entry)(void));
void sim_context_switch(unsigned from, unsigned to);
/* Switches for good: `from` is not resumed. */
void sim_context_leave(unsigned from, unsigned to) __attribute__((noreturn));
/* First code in a new context. */
void sim_context_entered(void);

/* ------------------------------------------------------------------ sim_cpu.c */

void sim_cpu_reset(void);
/* A point of a thread with a body that is not in a sequence. */
void sim_cpu_yield(void);
/* A choice among `options`, 0 unless exploring, scripted or random. */
unsigned sim_cpu_choose(unsigned options);
unsigned sim_cpu_depth(void);
void sim_cpu_unwind(unsigned depth);

/* The explorer's side of sim_cpu_choose: fixed choices at numbered points of this run, in order. */
struct sim_deviation {
    uint64_t point;
    unsigned choice;
};
void sim_cpu_explore(const struct sim_deviation *deviations, unsigned count);
void sim_cpu_explore_end(void);
/* All deviations came to their points. */
bool sim_cpu_explored_all(void);
/* The points of the run so far: the number of options of each, with SIM_POINT_CAN_ABORT where choice 1 is a bare abort. */
const uint8_t *sim_cpu_explored(uint64_t *points);
#define SIM_POINT_CAN_ABORT UINT8_C(0x80)

/* ------------------------------------------------------------------ sim_outside.c */

void sim_outside_reset(void);
/* sim_fault.c */
void sim_fault_reset(void);
/* A range has a new mapping: nothing of it is registered or protected. */
void sim_fault_forget(void *address, size_t bytes);
/* sim_shared.c; the range is unreserved; who waits to write there tries again. */
void sim_shared_reset(void);
void sim_shared_forget(void *address, size_t bytes);
void sim_shared_wake(const void *address, size_t bytes);
/* sim_paged.c, sim_store.c */
void sim_paged_reset(void);
void sim_store_reset(void);
/* Pressure that was raised and not yet reported. */
bool sim_pressure_pending(void);
/* The time that a populate takes passes. */
void sim_clock_populate(void);
/* Forgets calls of sim_dies that were jumped out of. `frame` is that of a function which the test called. */
void sim_catches_drop(const void *frame);
/* The jump to the innermost sim_dies, on its stack. */
_Noreturn void sim_die_now(void);

/* sim_memory.c: the pages that are present go from one committed range to another. `function` asks. */
void sim_transfer(const char *function, void *from, void *to, size_t bytes);

#endif
