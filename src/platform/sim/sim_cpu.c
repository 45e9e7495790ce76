/*
 * sim_cpu.c - what may happen between two instructions: preemption of CPU sequences, switches between threads, the fence.
 *
 * Every place where something may happen asks sim_cpu_choose, which answers 0, "go on", unless a schedule of the explorer, a script
 * or the random generator says otherwise. The points that had a choice are logged with their number of options, from which the explorer
 * makes its next schedules.
 *
 * A sequence that was interrupted goes on only if the kernel would let it: not when another sequence ran on its virtual CPU
 * meanwhile, nor after a fence. In thread mode nothing is ever aborted, as there are no restartable sequences then.
 */
#include <string.h>

#include "platform/sim/sim_internal.h"

#define LOG_POINTS_MAX ((uint64_t)1 << 20)
#define OPTIONS_MAX 127u

#define CHOICE_ABORT 1u
#define FIXED_CHOICES 2u /* go on, abort */

static struct {
    uint64_t points; /* sim_preempt_point */
    sim_preempt_hook hook;
    void *hook_context;
    unsigned hook_choices;
    void (*fence_hook)(void *context);
    void *fence_context;

    uint64_t script_until; /* points to come, the one that is meant included; 0: no script */
    unsigned script_choice;
    uint64_t random; /* state of the generator */
    unsigned random_permille;
} cpu;

/* The sequence that a hook interrupts. */
static struct {
    bool active;
    unsigned cpu;
    bool aborted;
    bool migrates;
    unsigned target_cpu;
} interrupted;

/* The schedule of the explorer: lives across sim_reset, which is part of the scenario. */
static struct {
    bool active;
    bool ignoring;
    const struct sim_deviation *deviations;
    unsigned count;
    unsigned next;
    uint8_t *log;
    uint64_t points;
} explorer;

void sim_cpu_reset(void) {
    memset(&cpu, 0, sizeof cpu);
    memset(&interrupted, 0, sizeof interrupted);
}

unsigned sim_cpu_depth(void) { return interrupted.active ? 1 : 0; }
void sim_cpu_unwind(unsigned depth) { interrupted.active = depth != 0; }

uint32_t sim_cpu_id(void) { return platform_cpu_mode() == PLATFORM_CPU_THREAD ? platform_thread_id() : sim_cpu(); }
uint64_t sim_preempt_points(void) { return cpu.points; }

void sim_preempt_set_hook(sim_preempt_hook hook, void *context, unsigned choices) {
    cpu.hook = hook;
    cpu.hook_context = context;
    cpu.hook_choices = hook == NULL ? 0 : choices;
}

void sim_preempt_migrate(unsigned target_cpu) {
    if (!interrupted.active) fatal("sim: sim_preempt_migrate: only in a preemption hook");
    if (target_cpu >= sim_config.cpus) fatal("sim: sim_preempt_migrate(%u): there are %u CPUs", target_cpu, sim_config.cpus);
    interrupted.migrates = true;
    interrupted.target_cpu = target_cpu;
}

void sim_preempt_at(uint64_t k, unsigned choice) {
    cpu.script_until = k;
    cpu.script_choice = choice;
}

void sim_preempt_random(uint64_t seed, unsigned permille) {
    cpu.random = seed * 2 + 1; /* xorshift needs a state other than 0 */
    cpu.random_permille = permille;
}

void sim_fence_set_hook(void (*hook)(void *context), void *context) {
    cpu.fence_hook = hook;
    cpu.fence_context = context;
}

/* ------------------------------------------------------------------ choices */

static uint64_t next_random(void) {
    cpu.random ^= cpu.random << 13;
    cpu.random ^= cpu.random >> 7;
    cpu.random ^= cpu.random << 17;
    return cpu.random;
}

/* The answer of the explorer; `flag` goes into the log. */
static unsigned choose_explored(unsigned options, uint8_t flag) {
    if (explorer.points == LOG_POINTS_MAX) fatal("sim: exploration: a run has more than %llu points", (unsigned long long)LOG_POINTS_MAX);
    uint64_t point = explorer.points++;
    explorer.log[point] = (uint8_t)(options | flag);
    if (explorer.next == explorer.count || explorer.deviations[explorer.next].point != point) return 0;
    unsigned choice = explorer.deviations[explorer.next++].choice;
    if (choice >= options)
        fatal("sim: exploration: point %llu has %u options and no choice %u: the scenario differs between runs", (unsigned long long)point, options,
              choice);
    return choice;
}

static unsigned choose(unsigned options, uint8_t flag) {
    if (options > OPTIONS_MAX) fatal("sim: %u choices at a point; at most %u", options, OPTIONS_MAX);
    if (explorer.active) return explorer.ignoring ? 0 : choose_explored(options, flag);
    if (cpu.script_until != 0 && --cpu.script_until == 0) {
        if (cpu.script_choice >= options) fatal("sim: sim_preempt_at: choice %u of %u", cpu.script_choice, options);
        return cpu.script_choice;
    }
    if (cpu.random_permille != 0 && next_random() % 1000 < cpu.random_permille) return 1 + (unsigned)(next_random() % (options - 1));
    return 0;
}

unsigned sim_cpu_choose(unsigned options) { return options < 2 ? 0 : choose(options, 0); }

void sim_cpu_yield(void) {
    if (!sim_thread_can_switch()) return;
    unsigned choice = sim_cpu_choose(1 + sim_thread_ready_others());
    if (choice != 0) sim_thread_switch(choice - 1);
}

void sim_yield(void) { sim_cpu_yield(); }
void platform_interleave(void) { sim_cpu_yield(); }

/* ------------------------------------------------------------------ sequences */

/* The hook's turn, as another actor; whatever it does to the current identity is undone. */
static bool run_hook(unsigned choice) {
    unsigned thread = sim_thread();
    memset(&interrupted, 0, sizeof interrupted);
    interrupted.active = true;
    interrupted.cpu = sim_cpu();
    bool aborted = cpu.hook(cpu.hook_context, choice);
    sim_thread_become(thread);
    interrupted.active = false;
    sim_cpu_set(interrupted.migrates ? interrupted.target_cpu : interrupted.cpu);
    return aborted || interrupted.aborted || interrupted.migrates;
}

/* Other threads run between two instructions of this one's sequence. */
static bool run_others(unsigned n) {
    struct sim_thread *thread = sim_thread_current();
    thread->in_sequence = true;
    thread->aborted = false;
    sim_thread_switch(n);
    thread->in_sequence = false;
    return thread->aborted;
}

bool sim_preempt_point(void) {
    cpu.points++;
    sim_thread_abort_sequences(sim_cpu());
    unsigned hook_choices = cpu.hook_choices, others = sim_thread_can_switch() ? sim_thread_ready_others() : 0;
    if (interrupted.active) {
        if (sim_cpu() == interrupted.cpu) interrupted.aborted = true;
        hook_choices = 0;
    }
    unsigned choice = choose(FIXED_CHOICES + hook_choices + others, SIM_POINT_CAN_ABORT);
    bool aborted = false;
    if (choice == CHOICE_ABORT)
        aborted = true;
    else if (choice >= FIXED_CHOICES + hook_choices)
        aborted = run_others(choice - FIXED_CHOICES - hook_choices);
    else if (choice >= FIXED_CHOICES)
        aborted = run_hook(choice - CHOICE_ABORT);
    return aborted && platform_cpu_mode() != PLATFORM_CPU_THREAD;
}

bool platform_fence_cpus(void) {
    if (sim_lock_highest_rank() >= LOCK_RANK_DEPOT) fatal("sim: platform_fence_cpus: a lock of rank %u is held", sim_lock_highest_rank());
    if (sim_call_fails(SIM_FENCE) || sim_config.no_fence || platform_cpu_mode() == PLATFORM_CPU_THREAD) return false;
    sim_cpu_yield();
    interrupted.aborted = true;
    sim_thread_abort_sequences(SIM_CPUS_MAX);
    if (cpu.fence_hook != NULL) cpu.fence_hook(cpu.fence_context);
    sim_cpu_yield();
    return true;
}

bool platform_fence_threads(void) {
    if (sim_lock_highest_rank() >= LOCK_RANK_DEPOT) fatal("sim: platform_fence_threads: a lock of rank %u is held", sim_lock_highest_rank());
    if (sim_call_fails(SIM_FENCE) || sim_config.no_fence) return false;
    sim_cpu_yield();
    if (cpu.fence_hook != NULL) cpu.fence_hook(cpu.fence_context);
    sim_cpu_yield();
    return true;
}

/* ------------------------------------------------------------------ the explorer's side */

void sim_cpu_explore(const struct sim_deviation *deviations, unsigned count) {
    if (explorer.log == NULL) explorer.log = sim_table_map(LOG_POINTS_MAX);
    explorer.active = true;
    explorer.ignoring = false;
    explorer.deviations = deviations;
    explorer.count = count;
    explorer.next = 0;
    explorer.points = 0;
}

void sim_cpu_explore_end(void) { explorer.active = false; }

bool sim_cpu_explored_all(void) { return explorer.next == explorer.count; }

const uint8_t *sim_cpu_explored(uint64_t *points) {
    *points = explorer.points;
    return explorer.log;
}

void sim_explore_ignore(bool ignore) { explorer.ignoring = ignore; }
