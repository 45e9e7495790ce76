/*
 * sim_thread.c - simulated threads: identities that the test slips into, and threads with a body that take turns on stacks of their own.
 *
 * Threads with a body run only while the test is in sim_run_threads, waits for an event, or wants a lock that one of them holds. One
 * runs until it waits, ends, or reaches a point where another is chosen (sim_cpu.c); the stack of the test does the scheduling, so
 * that every switch goes through run_ready.
 *
 * Invariant: `current` is the identity whose turn it is; `running` is the body on whose stack we are, NO_BODY on that of the test.
 */
#include <string.h>

#include "platform/sim/sim_internal.h"

#define NO_BODY SIM_BODIES_MAX

static struct sim_thread threads[SIM_THREADS_MAX];
static unsigned threads_used; /* identities below the bodies that were ever current */
static unsigned current;

static struct body {
    void (*function)(void *);
    void *argument;
    bool used;
} bodies[SIM_BODIES_MAX];
static unsigned bodies_end; /* none from here on is used: two or three threads of sixty-four, looked at with every step that is explored */
static unsigned running = NO_BODY;
static unsigned chosen = NO_BODY; /* whom the running thread switches to */
static bool died;                 /* the body that came back called platform_die */

static void (*exit_callback)(uint32_t id);

static struct sim_thread *body_thread(unsigned body) { return &threads[SIM_THREADS_MAX - SIM_BODIES_MAX + body]; }

void sim_thread_reset(void) {
    memset(threads, 0, threads_used * sizeof *threads);
    for (unsigned i = 0; i < SIM_BODIES_MAX; i++)
        if (bodies[i].function != NULL) *body_thread(i) = (struct sim_thread){0};
    memset(bodies, 0, sizeof bodies);
    threads_used = 1;
    current = 0;
    running = chosen = NO_BODY;
    died = false;
    exit_callback = NULL;
}

/* ------------------------------------------------------------------ identities */

struct sim_thread *sim_thread_current(void) { return &threads[current]; }
unsigned sim_thread(void) { return current; }
unsigned sim_cpu(void) { return threads[current].cpu; }

void sim_cpu_set(unsigned cpu) {
    if (cpu >= sim_config.cpus) fatal("sim: sim_cpu_set(%u): there are %u", cpu, sim_config.cpus);
    threads[current].cpu = cpu;
}

void sim_thread_become(unsigned thread) {
    if (thread >= SIM_THREADS_MAX - SIM_BODIES_MAX && thread != current)
        fatal("sim: sim_thread_become(%u): there are %u", thread, SIM_THREADS_MAX - SIM_BODIES_MAX);
    if (running != NO_BODY && sim_cpu_depth() == 0) fatal("sim: sim_thread_become: a thread with a body is running");
    current = thread;
    if (thread >= threads_used && thread < SIM_THREADS_MAX - SIM_BODIES_MAX) threads_used = thread + 1;
}

bool platform_thread_ended(void) { return threads[current].ended; }
uint32_t platform_thread_count_free(void) { return ++threads[current].frees; }
uint32_t platform_thread_id(void) { return threads[current].id; }
uint32_t platform_thread_self(void) { return current + 1; }
uint32_t *platform_thread_asked(void) { return &threads[current].asked; }
uint64_t *sim_thread_sequence(void) { return &threads[current].sequence; }
const uint64_t *platform_thread_sequence(void) { return sim_thread_sequence(); }
void platform_thread_set_id(uint32_t id) { threads[current].id = id; }
void platform_on_thread_exit(void (*callback)(uint32_t id)) { exit_callback = callback; }

void sim_thread_exit(void) {
    uint32_t id = threads[current].id;
    threads[current].id = 0;
    if (id == 0 || exit_callback == NULL) return;
    threads[current].ended = true;
    exit_callback(id);
}

void sim_fork_child(void) {
    sim_config.process_id++;
    for (unsigned i = 0; i < SIM_BODIES_MAX; i++)
        if (i != running) bodies[i] = (struct body){0}; /* what they had on their stacks stays readable, as it does in a real child */
    if (running != NO_BODY) body_thread(running)->locks.count = 0;
    for (unsigned i = 0; i < threads_used; i++) threads[i].locks.count = 0;
}

/* ------------------------------------------------------------------ bodies */

static void run_body(void) {
    sim_context_entered();
    unsigned body = running;
    bodies[body].function(bodies[body].argument);
    sim_thread_exit();
    if (sim_locks_held() != 0) fatal("sim: thread %u ends while it holds a lock of rank %u", current, sim_lock_highest_rank());
    bodies[body].used = false;
    while (bodies_end != 0 && !bodies[bodies_end - 1].used) bodies_end--;
    sim_context_leave(body + 1, 0);
}

static unsigned start_body(unsigned cpu, void (*function)(void *), void *argument) {
    unsigned body = 0;
    while (body < SIM_BODIES_MAX && bodies[body].used) body++;
    if (body == SIM_BODIES_MAX) return NO_BODY;
    bodies[body] = (struct body){.function = function, .argument = argument, .used = true};
    if (body >= bodies_end) bodies_end = body + 1;
    *body_thread(body) = (struct sim_thread){.cpu = cpu, .state = SIM_THREAD_READY};
    sim_context_create(body + 1, run_body);
    return body;
}

unsigned sim_thread_start(unsigned cpu, void (*function)(void *), void *argument) {
    if (cpu >= sim_config.cpus) fatal("sim: sim_thread_start on CPU %u: there are %u", cpu, sim_config.cpus);
    unsigned body = start_body(cpu, function, argument);
    if (body == NO_BODY) fatal("sim: sim_thread_start: at most %u threads with a body", SIM_BODIES_MAX);
    return (unsigned)(body_thread(body) - threads);
}

bool platform_thread_start(void (*function)(void *), void *argument) {
    if (sim_locks_held() != 0) fatal("sim: platform_thread_start: a lock of rank %u is held", sim_lock_highest_rank());
    if (sim_call_fails(SIM_THREAD_START)) return false;
    return start_body(sim_cpu(), function, argument) != NO_BODY;
}

/* A simulated process ends when its test does. */
bool platform_on_first_thread_exit(void (*callback)(void)) { return callback != NULL; }
/* Tests stand for two threads by changing CPUs: on another one, a thread counts as another. */
uint32_t platform_thread_token(void) { return current * SIM_CPUS_MAX + sim_cpu() + 1; }
bool platform_thread_is_last(bool *known) {
    if (known != NULL) *known = true;
    return false;
}
bool platform_thread_may_start(void) { return true; }

unsigned sim_threads_alive(void) {
    unsigned alive = 0;
    for (unsigned i = 0; i < SIM_BODIES_MAX; i++) alive += bodies[i].used;
    return alive;
}

/* ------------------------------------------------------------------ scheduling */

static bool is_ready(unsigned body) {
    const struct sim_thread *thread = body_thread(body);
    if (!bodies[body].used) return false;
    switch (thread->state) {
    case SIM_THREAD_IDENTITY: return false;
    case SIM_THREAD_READY: return true;
    case SIM_THREAD_WANTS_LOCK: return thread->wants->word == 0;
    case SIM_THREAD_WAITS:
        return (thread->waits != NULL && thread->waits->word != 0) || (thread->waits_pressure && sim_pressure_pending()) ||
               platform_now_ns() >= thread->deadline_ns;
    }
    return false;
}

/* The n-th body that is ready, from 0, leaving out `except`; NO_BODY when there are fewer. */
static unsigned nth_ready(unsigned n, unsigned except) {
    for (unsigned i = 0; i < bodies_end; i++)
        if (i != except && is_ready(i) && n-- == 0) return i;
    return NO_BODY;
}

static unsigned count_ready(unsigned except) {
    unsigned ready = 0;
    for (unsigned i = 0; i < bodies_end; i++) ready += i != except && is_ready(i);
    return ready;
}

void sim_thread_abort_sequences(unsigned cpu) {
    for (unsigned i = 0; i < bodies_end; i++)
        if (bodies[i].used && body_thread(i)->in_sequence && (cpu == SIM_CPUS_MAX || body_thread(i)->cpu == cpu)) body_thread(i)->aborted = true;
}

static void run_one(unsigned body) {
    unsigned scheduler = current;
    struct sim_thread *thread = body_thread(body);
    bool in_sequence = thread->in_sequence;
    thread->in_sequence = false; /* it is its own CPU's turn now: that aborts the others there, not itself */
    sim_thread_abort_sequences(thread->cpu);
    thread->in_sequence = in_sequence;
    thread->state = SIM_THREAD_READY;
    current = (unsigned)(thread - threads);
    running = body;
    sim_context_switch(0, body + 1);
    running = NO_BODY;
    current = scheduler;
    if (died) {
        died = false;
        sim_die_now();
    }
}

/* Whether a body, or the test itself by `until`, waits for a lock that the thread holds. */
static bool is_waited_for(const struct sim_thread *thread, const struct platform_lock *until) {
    bool wanted = false;
    for (unsigned k = 0; k < thread->locks.count; k++) {
        wanted |= thread->locks.held[k] == until;
        for (unsigned i = 0; i < bodies_end; i++)
            wanted |= bodies[i].used && body_thread(i)->state == SIM_THREAD_WANTS_LOCK && body_thread(i)->wants == thread->locks.held[k];
    }
    return wanted;
}

/* Nobody is ready: time passes for a thread that waits with a lock in its hands that another wants. */
static bool wake_holder(const struct platform_lock *until) {
    for (unsigned i = 0; i < bodies_end; i++) {
        const struct sim_thread *thread = body_thread(i);
        if (!bodies[i].used || thread->state != SIM_THREAD_WAITS || thread->deadline_ns == UINT64_MAX || !is_waited_for(thread, until)) continue;
        sim_clock_advance(thread->deadline_ns - platform_now_ns());
        return true;
    }
    return false;
}

/* Runs bodies until none is ready, or `until` is free. */
static void run_ready(const struct platform_lock *until) {
    unsigned ready;
    while ((ready = count_ready(NO_BODY)) != 0 || wake_holder(until)) {
        if (ready == 0) continue;
        if (until != NULL && until->word == 0) return;
        unsigned body = chosen;
        chosen = NO_BODY;
        if (body == NO_BODY) body = nth_ready(sim_cpu_choose(ready), NO_BODY);
        run_one(body);
    }
}

/* Nobody is ready: whoever wants a lock then wants one of the test's own, or waits for ever. */
static void check_deadlock(void) {
    for (unsigned i = 0; i < bodies_end; i++) {
        if (!bodies[i].used || body_thread(i)->state != SIM_THREAD_WANTS_LOCK) continue;
        bool held_here = false;
        for (unsigned j = 0; j < threads_used; j++)
            for (unsigned k = 0; k < threads[j].locks.count; k++) held_here |= threads[j].locks.held[k] == body_thread(i)->wants;
        if (!held_here)
            fatal("sim: deadlock: thread %u waits for a lock of rank %u", (unsigned)(body_thread(i) - threads), body_thread(i)->wants->rank);
    }
}

static uint64_t next_deadline_ns(void) {
    uint64_t next_ns = UINT64_MAX;
    for (unsigned i = 0; i < bodies_end; i++)
        if (bodies[i].used && body_thread(i)->state == SIM_THREAD_WAITS) next_ns = min_u64(next_ns, body_thread(i)->deadline_ns);
    return next_ns;
}

static void check_scheduler(const char *function) {
    if (running != NO_BODY || sim_cpu_depth() != 0) fatal("sim: %s: only from the test itself", function);
}

bool sim_run_threads(void) {
    check_scheduler("sim_run_threads");
    run_ready(NULL);
    check_deadlock();
    return sim_threads_alive() == 0;
}

bool sim_run_threads_for(uint64_t ns) {
    check_scheduler("sim_run_threads_for");
    uint64_t end_ns = platform_now_ns() + ns, next_ns;
    run_ready(NULL);
    while ((next_ns = next_deadline_ns()) <= end_ns) {
        sim_clock_advance(next_ns - platform_now_ns());
        run_ready(NULL);
    }
    sim_clock_advance(end_ns - platform_now_ns());
    return sim_run_threads();
}

/* ------------------------------------------------------------------ waiting */

bool sim_thread_can_switch(void) { return running != NO_BODY && sim_cpu_depth() == 0; }
unsigned sim_thread_ready_others(void) { return count_ready(running); }

void sim_thread_switch(unsigned n) {
    chosen = nth_ready(n, running);
    sim_context_switch(running + 1, 0);
}

/* The running body has its state set and waits for its turn. */
static void suspend(void) { sim_context_switch(running + 1, 0); }

bool sim_thread_wait_lock(struct platform_lock *lock) {
    struct sim_thread *thread = sim_thread_current();
    if (sim_thread_can_switch()) {
        thread->wants = lock;
        thread->state = SIM_THREAD_WANTS_LOCK;
        suspend();
    } else if (running == NO_BODY && sim_cpu_depth() == 0) {
        run_ready(lock);
    }
    return lock->word == 0;
}

static bool take_event(struct platform_event *event) {
    bool woken = event != NULL && event->word != 0;
    if (woken) event->word = 0;
    return woken;
}

/* The test itself waits: everyone else runs, and time passes. */
static bool wait_as_scheduler(struct platform_event *event, uint64_t deadline_ns, bool pressure) {
    for (;;) {
        run_ready(NULL);
        if (take_event(event)) return true;
        if ((pressure && sim_pressure_pending()) || platform_now_ns() >= deadline_ns) return false;
        uint64_t next_ns = min_u64(deadline_ns, next_deadline_ns());
        if (next_ns == UINT64_MAX) fatal("sim: a wait that nobody will ever end");
        sim_clock_advance(next_ns - platform_now_ns());
    }
}

bool sim_thread_wait(struct platform_event *event, uint64_t timeout_ns, bool pressure) {
    struct sim_thread *thread = sim_thread_current();
    uint64_t deadline_ns = timeout_ns > UINT64_MAX - platform_now_ns() ? UINT64_MAX : platform_now_ns() + timeout_ns;
    if (take_event(event)) return true;
    if (pressure && sim_pressure_pending()) return false;
    if (running == NO_BODY && sim_cpu_depth() == 0) return wait_as_scheduler(event, deadline_ns, pressure);
    if (!sim_thread_can_switch()) { /* in a preemption hook nobody else can run */
        if (deadline_ns == UINT64_MAX) fatal("sim: a wait without end in a preemption hook");
        sim_clock_advance(timeout_ns);
        return false;
    }
    thread->waits = event;
    thread->waits_word = NULL;
    thread->waits_pressure = pressure;
    thread->deadline_ns = deadline_ns;
    thread->state = SIM_THREAD_WAITS;
    suspend();
    return take_event(event);
}

void platform_event_wake(struct platform_event *event) {
    sim_call_count(SIM_EVENT_WAKE);
    event->word = 1;
    sim_cpu_yield();
}

bool platform_event_wait(struct platform_event *event, uint64_t timeout_ns) {
    sim_call_count(SIM_EVENT_WAIT);
    return sim_thread_wait(event, timeout_ns, false);
}

/* As strict as a futex: once asleep, only a wake or the clock ends the wait; that the word has changed does not. */
void platform_word_wait_for(const uint32_t *word, uint32_t seen, uint64_t timeout_ns) {
    sim_call_count(SIM_WORD_WAIT);
    if (sim_locks_held() != 0) fatal("sim: platform_word_wait: a lock of rank %u is held", sim_lock_highest_rank());
    sim_cpu_yield();
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != seen) return;
    if (running == NO_BODY && sim_cpu_depth() == 0) { /* the test itself: everyone else runs */
        run_ready(NULL);
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != seen) return;
        if (timeout_ns == UINT64_MAX) fatal("sim: a wait that nobody will ever end");
        sim_clock_advance(timeout_ns);
        return;
    }
    if (!sim_thread_can_switch()) fatal("sim: a wait without end in a preemption hook");
    struct sim_thread *thread = sim_thread_current();
    thread->waits = NULL;
    thread->waits_pressure = false;
    thread->waits_word = word;
    thread->deadline_ns = timeout_ns > UINT64_MAX - platform_now_ns() ? UINT64_MAX : platform_now_ns() + timeout_ns;
    thread->state = SIM_THREAD_WAITS;
    suspend();
    thread->waits_word = NULL;
}

void platform_word_wait(const uint32_t *word, uint32_t seen) { platform_word_wait_for(word, seen, UINT64_MAX); }

void platform_word_wake(const uint32_t *word) {
    sim_call_count(SIM_WORD_WAKE);
    for (unsigned i = 0; i < bodies_end; i++) {
        struct sim_thread *thread = body_thread(i);
        if (!bodies[i].used || thread->state != SIM_THREAD_WAITS || thread->waits_word != word) continue;
        thread->waits_word = NULL;
        thread->state = SIM_THREAD_READY;
    }
    sim_cpu_yield();
}

/* ------------------------------------------------------------------ death */

unsigned sim_thread_body(void) { return running; }

void sim_thread_die(void) {
    died = true;
    sim_context_switch(running + 1, 0);
}

void sim_thread_unwind(unsigned thread, unsigned body) {
    current = thread;
    running = body;
    chosen = NO_BODY;
}
