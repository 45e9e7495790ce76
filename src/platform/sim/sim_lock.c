/*
 * sim_lock.c - locks under observation: rank order, recursion, locks let go by those who do not hold them, contention on demand.
 *
 * platform.h takes free locks inline; what comes here is the note of every acquisition and release (STRATA_LOCK_DEBUG), and the slow
 * paths. To get control after a release as well, the note of the release turns the word to 2, "with waiters".
 *
 * Invariant: sim_thread.locks holds exactly the locks that the thread has, in the order of their ranks.
 */
#include <string.h>

#include "platform/sim/sim_internal.h"

#define CONTENDED_MAX 16

/* Locks that someone outside of the simulation shall hold. */
static struct contention {
    struct platform_lock *lock;
    unsigned times; /* still to be found held */
    bool held;      /* now */
} contended[CONTENDED_MAX];

/* Between platform_fork_begin and platform_fork_end: the thread that may take locks that are held for its fork. */
static bool forking;
static unsigned fork_thread;

void sim_lock_reset(void) {
    memset(contended, 0, sizeof contended);
    forking = false;
}

static struct contention *find_contention(const struct platform_lock *lock) {
    for (unsigned i = 0; i < CONTENDED_MAX; i++)
        if (contended[i].lock == lock) return &contended[i];
    return NULL;
}

void sim_contend_lock(struct platform_lock *lock, unsigned times) {
    struct contention *contention = find_contention(lock);
    if (contention == NULL) contention = find_contention(NULL);
    if (contention == NULL) fatal("sim: sim_contend_lock: at most %u locks", CONTENDED_MAX);
    if (contention->held) lock->word = 0;
    *contention = (struct contention){0};
    if (times == 0) return;
    *contention = (struct contention){.lock = lock, .times = times, .held = lock->word == 0};
    if (contention->held) lock->word = 1;
}

static int held_index(const struct platform_lock *lock) {
    const struct sim_locks *locks = &sim_thread_current()->locks;
    for (unsigned i = 0; i < locks->count; i++)
        if (locks->held[i] == lock) return (int)i;
    return -1;
}

uint32_t sim_lock_highest_rank(void) {
    const struct sim_locks *locks = &sim_thread_current()->locks;
    return locks->count == 0 ? 0 : locks->held[locks->count - 1]->rank;
}

unsigned sim_locks_held(void) { return sim_thread_current()->locks.count; }

void platform_lock_note_acquire(struct platform_lock *lock) {
    struct sim_locks *locks = &sim_thread_current()->locks;
    sim_call_count(SIM_LOCK_ACQUIRE);
    if (lock->rank < LOCK_RANK_API || lock->rank > LOCK_RANK_PLATFORM) fatal("sim: a lock of rank %u, which is none", lock->rank);
    if (lock->rank <= sim_lock_highest_rank()) fatal("sim: lock order: rank %u taken while rank %u is held", lock->rank, sim_lock_highest_rank());
    locks->held[locks->count++] = lock; /* ranks rise, so there are fewer than SIM_LOCKS_HELD_MAX */
    sim_cpu_yield();
}

void platform_fork_begin(void) {
    forking = true;
    fork_thread = sim_thread();
}
bool platform_fork_is_mine(void) { return forking && sim_thread() == fork_thread; }
void platform_fork_end(void) { forking = false; }
void platform_lock_unhold(struct platform_lock *lock) {
    lock->word = PLATFORM_LOCK_FREE;
    sim_cpu_yield();
}

void platform_lock_acquire_slow(struct platform_lock *lock) {
    sim_call_count(SIM_LOCK_CONTENDED);
    if (lock->word == PLATFORM_LOCK_FORK && platform_fork_is_mine()) {
        lock->word = PLATFORM_LOCK_FORK_TAKEN;
        return;
    }
    if (held_index(lock) >= 0) fatal("sim: a lock of rank %u is taken again by the thread that holds it", lock->rank);
    struct contention *contention = find_contention(lock);
    if (contention != NULL && contention->held) {
        contention->held = false;
        if (--contention->times == 0) contention->lock = NULL;
    } else if (!sim_thread_wait_lock(lock)) {
        fatal("sim: deadlock: thread %u waits for a lock of rank %u, whose holder can't go on", sim_thread(), lock->rank);
    }
    lock->word = 1;
}

/* Whether this thread held it. */
static bool forget_held(const struct platform_lock *lock) {
    struct sim_locks *locks = &sim_thread_current()->locks;
    int index = held_index(lock);
    if (index < 0) return false;
    locks->count--;
    for (unsigned i = (unsigned)index; i < locks->count; i++) locks->held[i] = locks->held[i + 1];
    return true;
}

void platform_lock_note_reset(struct platform_lock *lock) { forget_held(lock); }

void platform_lock_note_release(struct platform_lock *lock) {
    if (!forget_held(lock)) fatal("sim: a lock of rank %u is let go by a thread that does not hold it", lock->rank);
    bool watched = sim_thread_can_switch() || find_contention(lock) != NULL;
    if (watched && lock->word != PLATFORM_LOCK_FORK_TAKEN) lock->word = PLATFORM_LOCK_WAITED;
}

void platform_lock_release_slow(struct platform_lock *lock) {
    struct contention *contention = find_contention(lock);
    if (contention != NULL) {
        contention->held = true;
        lock->word = 1;
    }
    sim_cpu_yield();
}

bool platform_lock_try(struct platform_lock *lock) { return platform_lock_try_here(lock); }
void platform_lock_acquire(struct platform_lock *lock) { platform_lock_acquire_here(lock); }
void platform_lock_release(struct platform_lock *lock) { platform_lock_release_here(lock); }
