/*
 * sim.h - the controls of the simulated platform, for tests: the second implementation of platform.h.
 *
 * A simulated machine runs inside one thread of the test, and the same test gives the same machine every time. It has
 *   - an address space cut from one real mapping, so that layers read and write their memory, with the state of every page and
 *     mapping (VMA) kept by the simulation; accesses to space that is not committed fault as on the real thing;
 *   - 1..4096 virtual CPUs, a manual clock, threads that run when the test says so, and restartable sequences that the test
 *     interrupts before any of their stores;
 *   - calls that fail on demand, and a strict eye on the contract of platform.h: a misaligned range, a lock out of rank order,
 *     a commit of space that is not reserved ends the process by `fatal`, with the reason in sim_output().
 *
 * Everything that a test links with this must be built with STRATA_LOCK_DEBUG, for the lock checks. ThreadSanitizer is not supported: it
 * would find nothing in one thread, and loses its way between the stacks of simulated threads.
 * Not thread-safe: one operating-system thread uses the simulation. No lock rank: nothing here locks.
 */
#ifndef STRATA_PLATFORM_SIM_SIM_H
#define STRATA_PLATFORM_SIM_SIM_H

#include "platform/platform.h"

#ifndef STRATA_LOCK_DEBUG
#error "the simulated platform needs STRATA_LOCK_DEBUG in every file that is linked with it"
#endif

/* ------------------------------------------------------------------ the machine */

#define SIM_CPUS_MAX 4096u
#define SIM_THREADS_MAX 16384u /* identities, see sim_thread_become */
#define SIM_BODIES_MAX 64u     /* threads with a body of their own at a time */

/* A field that is zero takes the default in brackets. */
struct sim_config {
    size_t page_bytes;            /* 4096, 16384 or 65536 [4096] */
    unsigned cpus;                /* 1..SIM_CPUS_MAX [2] */
    uint64_t arena_bytes;         /* the address space that exists [1 TiB] */
    uint64_t address_limit_bytes; /* reserved space beyond this is refused, as by RLIMIT_AS [none] */
    uint64_t map_count_limit;     /* mappings beyond this are refused [65530] */
    uint64_t physical_bytes;      /* platform_populate fails beyond this [none] */
    uint64_t memory_limit_bytes;  /* what platform_memory_limit_bytes says [none] */
    unsigned process_id;          /* [4242] */
    bool secure;
    bool thread_mode;       /* PLATFORM_CPU_THREAD in place of PLATFORM_CPU_SIM */
    bool no_fence;          /* platform_fence_cpus and platform_fence_threads return false */
    bool no_huge_pages;     /* platform_advise_huge returns false */
    bool no_pressure;       /* platform_pressure_open returns false */
    bool no_locking;        /* platform_may_lock returns false */
    bool filtered;          /* platform_is_filtered returns true */
    bool commit_is_charged; /* what platform_commit_is_charged says */
};

/* A new machine; nothing of the former one is left, whatever state it was in. NULL: all defaults. Points check.h's sink at the simulation. */
void sim_reset(const struct sim_config *config);

/* ------------------------------------------------------------------ counters and failures */

enum sim_call {
    /* those that can fail */
    SIM_RESERVE,
    SIM_RESERVE_AT,
    SIM_COMMIT,
    SIM_RELEASE,
    SIM_POPULATE,
    SIM_ADVISE_HUGE,
    SIM_DECOMMIT,
    SIM_MOVE,
    SIM_RESET,
    SIM_PRESENCE,
    SIM_FENCE,
    SIM_THREAD_START,
    SIM_PRESSURE_OPEN,
    SIM_FILE_CREATE,
    SIM_FILE_WRITE,
    SIM_FAULTS_OPEN,
    SIM_FAULTS_REGISTER,
    SIM_FAULTS_PROTECT,
    SIM_FAULTS_COPY, /* and zero */
    SIM_FAULTS_MOVE, /* at each of its pages */
    SIM_FAULTS_KEEP,
    SIM_PROTECT, /* not of lifting it */
    SIM_ON_ACCESS_FAULT,
    SIM_SHARED_SHOW,
    SIM_PAGED_OPEN,
    SIM_PAGED_MAP,
    SIM_PAGED_PROTECT,
    SIM_PAGED_BREAK,
    SIM_PAGED_MEND,
    SIM_STORE_OPEN,
    SIM_STORE_READ,
    SIM_STORE_WRITE, /* of half of it */
    SIM_STORE_SYNC,
    SIM_STORE_RING,
    SIM_STORE_BEGIN,
    /* those that can't */
    SIM_UNRESERVE,
    SIM_LOCK_ACQUIRE,   /* locks taken, by acquire or try */
    SIM_LOCK_CONTENDED, /* platform_lock_acquire found the lock held */
    SIM_EVENT_WAKE,
    SIM_EVENT_WAIT,
    SIM_WORD_WAKE,
    SIM_WORD_WAIT,
    SIM_PRESSURE_WAIT,
    SIM_WRITE_ERROR,
    SIM_CALLS,
};
#define SIM_CALLS_FAILABLE SIM_UNRESERVE
#define SIM_FAIL_ALL ((UINT64_C(1) << SIM_CALLS_FAILABLE) - 1)
#define SIM_FOREVER UINT64_MAX

/* Calls since sim_reset, failed ones included. */
uint64_t sim_calls(enum sim_call call);
/* Calls that sim_fail_call counts (see sim_fail_only) since sim_reset: the bound of a loop over n. */
uint64_t sim_failable_calls(void);
/* From now on the n-th call that can fail fails (n = 1: the next), and so do the times - 1 after it. n = 0: none. Clears what was set before. */
void sim_fail_call(uint64_t n, uint64_t times);
/* Counts and fails only these calls, a mask of UINT64_C(1) << enum sim_call. SIM_FAIL_ALL after sim_reset. */
void sim_fail_only(uint64_t mask);
/* Failures that were injected since sim_fail_call or sim_reset. */
uint64_t sim_failures(void);

/* ------------------------------------------------------------------ memory */

/*
 * A page is populated from the first platform_populate, sim_touch, or real access to it (seen in the page tables when the test asks)
 * until it is released, reset, moved away or unreserved. platform_populate touches no real memory.
 */
void sim_touch(void *address, size_t bytes);
uint64_t sim_populated_pages(const void *address, size_t bytes);
uint64_t sim_reserved_bytes(void);
uint64_t sim_committed_bytes(void);
/* Mappings as Linux would count them: neighbours merge when alike and, after platform_move, when their origins line up. */
uint64_t sim_mappings(void);
/* How many of them a range of whole pages lies in. */
uint64_t sim_mappings_in(void *address, size_t bytes);
void sim_set_map_count_limit(uint64_t limit);
void sim_set_address_limit(uint64_t bytes);
void sim_set_physical_limit(uint64_t bytes);
/* The address space that reservations come from. */
void *sim_arena_base(void);

/* ------------------------------------------------------------------ time */

void sim_clock_advance(uint64_t ns);
/* What a call of platform_populate takes [0]. */
void sim_set_populate_ns(uint64_t ns);

/* ------------------------------------------------------------------ locks */

/* Someone else holds the free `lock`: tries fail until a platform_lock_acquire waits for it; and so again after each release, `times` times in all.
 */
void sim_contend_lock(struct platform_lock *lock, unsigned times);
/* Locks that the current thread holds. */
unsigned sim_locks_held(void);

/* ------------------------------------------------------------------ virtual CPUs and preemption */

/* The virtual CPU of the current thread. */
void sim_cpu_set(unsigned cpu);
unsigned sim_cpu(void);
/* What the CPU sequences use: that number, in thread mode the thread's id. */
uint32_t sim_cpu_id(void);
/* The word of the current thread, which they write: platform_thread_sequence. */
uint64_t *sim_thread_sequence(void);

/*
 * Called by the portable CPU sequences (platform/cpu_ops.h) before every store. True: the sequence was aborted, start again
 * from reading the CPU's number.
 */
bool sim_preempt_point(void);
/* Points passed since sim_reset. */
uint64_t sim_preempt_points(void);

/*
 * What happens at a point where the interrupting choice 1..choices is taken. It runs as the interrupted thread on the interrupted CPU
 * unless it calls sim_cpu_set or sim_thread_become (both are undone after it), and may use everything. Returns whether the
 * sequence is aborted; it is aborted in any case when the hook ran a sequence on the same CPU, called platform_fence_cpus or
 * sim_preempt_migrate. Hooks do not interrupt each other.
 */
typedef bool (*sim_preempt_hook)(void *context, unsigned choice);
void sim_preempt_set_hook(sim_preempt_hook hook, void *context, unsigned choices);
/* In a hook: the interrupted thread goes on on another CPU. */
void sim_preempt_migrate(unsigned cpu);

/* Outside of sim_explore, which says what the points and choices are, every choice is 0 unless one of these says otherwise. */
/* Once, at the k-th point from now (1: the next), this choice. */
void sim_preempt_at(uint64_t k, unsigned choice);
/* At random points, permille of a thousand (< 1000), any choice; the same seed gives the same run. permille 0: off. */
void sim_preempt_random(uint64_t seed, unsigned permille);

/* Runs in platform_fence_cpus once all sequences under way are aborted, in place of nothing. */
void sim_fence_set_hook(void (*hook)(void *context), void *context);

/* ------------------------------------------------------------------ threads */

/*
 * Identities carry a thread id, a CPU and the locks held. The test starts as identity 0 on CPU 0, and may become any other, as
 * though that thread had been scheduled. Threads with a body (platform_thread_start, sim_thread_start) use the highest numbers.
 */
void sim_thread_become(unsigned thread);
unsigned sim_thread(void);
/* The current identity ends: its on_thread_exit callback runs, its id is 0 again, and stays so: whoever comes next is another identity. */
void sim_thread_exit(void);

/* A thread with a body, on a CPU. It runs in sim_run_threads and wherever the test waits. Returns its identity. */
unsigned sim_thread_start(unsigned cpu, void (*body)(void *), void *argument);
/* Threads that were started and have not ended. */
unsigned sim_threads_alive(void);
/* Runs all threads with a body until each has ended or waits for an event. False when some are still waiting. A deadlock on locks is fatal. */
bool sim_run_threads(void);
/* The same for a span of time: the clock jumps from one timeout to the next. */
bool sim_run_threads_for(uint64_t ns);
/* The current process is the child of a fork now: its number is the next one, all other threads are gone, and no lock counts as held. */
void sim_fork_child(void);

/* ------------------------------------------------------------------ exploration */

/*
 * Runs a scenario again and again, each time with other choices at its points, until every set of at most `deviations` choices that
 * differ from "go on" has been run: first none, then each point alone, then pairs, and so on.
 *
 * Points are
 *   - sim_preempt_point. Choices: 0 go on; 1 abort the sequence; then those of the preemption hook; then a switch to each other
 *     thread with a body that can run, by number. A thread switched away from within a sequence goes on with it later, as though
 *     the others ran on other processors, unless a thread of the same virtual CPU or a fence came between: then it is aborted;
 *   - in a thread with a body, where others can run: having taken a lock, having let one go, before and after platform_fence_cpus,
 *     after platform_event_wake and platform_word_wake, before platform_word_wait, platform_interleave, sim_yield. Choices: 0 go on; then a switch to
 * each other thread;
 *   - where the running thread waits or ends and several can run. Choices: which, by number.
 *
 * The scenario calls sim_reset first, is deterministic, and returns NULL or what went wrong. Death through platform_die counts as wrong.
 */
struct sim_exploration {
    const char *(*scenario)(void *context);
    void *context;
    unsigned deviations; /* at most SIM_DEVIATIONS_MAX */
    bool aborts;         /* choose bare aborts too */
    uint64_t runs_limit; /* give up (false, no message) after so many; 0: none */
    /* results */
    uint64_t runs;
    uint64_t points;   /* of the longest run */
    char failure[512]; /* "" or what went wrong and the choices that lead there, "point:choice point:choice" */
};
#define SIM_DEVIATIONS_MAX 8u
/* True when all schedules ran and none went wrong. */
bool sim_explore(struct sim_exploration *exploration);
/* One schedule again, in the notation of `failure`. */
bool sim_explore_replay(struct sim_exploration *exploration, const char *choices);
/* In a scenario: no points from here on (true), or again (false). For preparations. */
void sim_explore_ignore(bool ignore);
/* A point in a thread with a body, for tests that have shared state of their own. */
void sim_yield(void);

/* ------------------------------------------------------------------ stacks */

/* What platform_stack tells from now on, the innermost first; at first nothing. Thread numbers are 1000 and above. */
void sim_stack_set(const uintptr_t *frames, unsigned count);
#define SIM_MODULE_START UINT64_C(0x400000)

/* ------------------------------------------------------------------ the outside */

/* All that platform_write_error got since the last sim_output_clear, as one string. */
const char *sim_output(void);
void sim_output_clear(void);
/*
 * Runs body; true when it called platform_die. The machine is then as the death left it: locks may be held. Without this, platform_die
 * shows sim_output() on the real standard error and aborts.
 */
bool sim_dies(void (*body)(void *), void *argument);

/* NULL removes. The real environment is not visible. */
void sim_env_set(const char *name, const char *value);
/* What was written to a file: NULL when it was never created. */
const char *sim_file_text(const char *path, size_t *bytes);

/*
 * Faults that the process serves itself: features that platform_faults_open finds, enum platform_faults_feature by |. 0: none [0]. There is one file
 * for who needs PLATFORM_FAULTS_MOVE, and one for others.
 */
void sim_faults_offer(unsigned features);
/* The program closes the file of the others. Who keeps it (platform_faults_keep) has it until it closes it. */
void sim_faults_close(void);
/* A thread meets a page: the next platform_faults_read tells it. */
void sim_fault_raise(void *address, bool write, uint32_t thread);
bool sim_fault_registered(const void *address);
/* Pages that any file has registered. */
uint64_t sim_fault_registrations(void);
bool sim_fault_protected(const void *address);
/* A thread without the right: what platform_on_access_fault's function answers. */
bool sim_access_fault(void *address, bool write);
/* What platform_protect has left; nothing enforces it. */
enum platform_access sim_access(const void *address);
/* Calls that wake those who wait. */
unsigned sim_fault_wakes(void);

/*
 * Memory at several addresses can be had from now on. enforced: writes to pages that are protected against them wait until they are woken; else they
 * go on, as if nobody had protected anything, to show what a test would find then.
 */
void sim_shared_offer(bool enforced);
/* The program reads through an address, or writes, within one page; false: it shows nothing. */
bool sim_shared_read(const void *address, void *to, size_t bytes);
bool sim_shared_write(void *address, const void *from, size_t bytes);

/*
 * Memory whose pages the process brings itself: how many pages may be in reach at a time [UINT32_MAX], and whether pages can be mapped with
 * protection [true]; for blocks that are opened from now on.
 */
void sim_paged_offer(uint32_t pages_max, bool protection);
/* The program reads from the block, or writes to it, within one page, and waits until it may; false: SIGBUS. */
bool sim_paged_read(const void *address, void *to, size_t bytes);
bool sim_paged_write(void *address, const void *from, size_t bytes);
bool sim_paged_in_memory(const void *address);
/* Pages of the block in memory. */
uint64_t sim_paged_resident(void);

/* What a file behind such a block has: as written, or as the disk has it (durable). NULL: there is none. */
const uint8_t *sim_store_text(const char *path, bool durable, uint64_t *bytes);
/* Files can't be written beyond: ENOSPC [no limit]. */
void sim_store_set_room(uint64_t bytes);
/* Somebody makes the file shorter. */
void sim_store_cut(const char *path, uint64_t bytes);
/* The machine ends: of each page the disk has got either what was written last, or what it had; that is the file from now on. */
void sim_store_lose_power(const char *path, uint64_t seed);

/* The next platform_pressure_wait reports this. */
void sim_pressure_raise(enum platform_pressure pressure);
/* Whether platform_pressure_soon was called. */
bool sim_pressure_is_soon(void);
void sim_set_memory_limit(uint64_t bytes);

#endif
