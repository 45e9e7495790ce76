/*
 * lock.c - the slow halves of platform_lock: spin a little, then sleep on a futex; and locks that are held around a fork.
 *
 * A waiter leaves PLATFORM_LOCK_WAITED behind, so the holder's release wakes one; a woken waiter takes the lock as waited for again,
 * because others may still sleep. A lock that is held for a fork keeps its value; who waits for one is counted in `sleepers`, and its
 * release wakes all.
 *
 * Invariant: fork_thread names the thread that holds locks in state PLATFORM_LOCK_FORK, from platform_fork_begin to platform_fork_end. The
 * handlers of fork.c hold heap.lock for longer than that, so there is one such thread at a time.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "platform/linux/linux.h"

/* About a microsecond: longer than the lists are held, shorter than a sleep and a wake cost. */
#define SPINS 60

static void cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

static long futex(uint32_t *word, int operation, uint32_t value) { return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, NULL); }

/* From glibc 2.32 on; absent elsewhere. 0 once pthread_create was called. */
extern char __libc_single_threaded __attribute__((weak));
static const char several_threads; /* 0: so many as there may be */
const char *platform_one_thread STRATA_USUAL_DATA = &several_threads;

/*
 * Whether the word lies in a dynamic program instead of the C library: one that reads it itself has a copy (R_X86_64_COPY). The library clears the
 * copy when a thread is made, but only where a word of its own says so for the first time, and a thread that cancels itself changes that word alone.
 */
static bool is_copy(const char *word) {
    const ElfW(Phdr) *header = (const ElfW(Phdr) *)getauxval(AT_PHDR); /* NOLINT: the kernel gives addresses as numbers */
    size_t count = getauxval(AT_PHNUM);
    uintptr_t base = 0;
    bool dynamic = false, inside = false;
    for (size_t i = 0; header != NULL && i < count; i++) {
        if (header[i].p_type == PT_PHDR) base = (uintptr_t)header - header[i].p_vaddr; /* which comes before what is loaded */
        dynamic |= header[i].p_type == PT_INTERP;
        inside |= header[i].p_type == PT_LOAD && (uintptr_t)word - (base + header[i].p_vaddr) < header[i].p_memsz;
    }
    return dynamic && inside;
}

void linux_lock_init(void) {
    if (&__libc_single_threaded != NULL && !is_copy(&__libc_single_threaded)) platform_one_thread = &__libc_single_threaded;
}

/* Threads that are about to sleep, or do. In the child of a fork, those of its parent count for ever: a call or two for nothing at a fork. */
static uint32_t sleepers;
/* pthread_self() of the thread that forks, which is the same in the child; 0: none. Read by others, hence atomic. */
static uintptr_t fork_thread;

bool platform_fork_is_mine(void) { return __atomic_load_n(&fork_thread, __ATOMIC_RELAXED) == (uintptr_t)pthread_self(); }

static bool take_or_sleep(uint32_t *word) {
    uint32_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);
    switch (seen) {
    case PLATFORM_LOCK_FREE: return __atomic_compare_exchange_n(word, &seen, PLATFORM_LOCK_WAITED, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
    case PLATFORM_LOCK_HELD:
        if (!__atomic_compare_exchange_n(word, &seen, PLATFORM_LOCK_WAITED, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return false;
        seen = PLATFORM_LOCK_WAITED;
        break;
    case PLATFORM_LOCK_FORK:
        if (!platform_fork_is_mine()) break;
        __atomic_store_n(word, PLATFORM_LOCK_FORK_TAKEN, __ATOMIC_RELAXED);
        return true;
    default: break;
    }
    __atomic_fetch_add(&sleepers, 1, __ATOMIC_SEQ_CST); /* before the kernel compares the word: see platform_lock_unhold */
    futex(word, FUTEX_WAIT, seen);
    __atomic_fetch_sub(&sleepers, 1, __ATOMIC_RELAXED);
    return false;
}

void platform_lock_acquire_slow(struct platform_lock *lock) {
    for (unsigned i = 0; i < SPINS; i++) {
        uint32_t seen = __atomic_load_n(&lock->word, __ATOMIC_RELAXED);
        if (seen == PLATFORM_LOCK_FREE && platform_lock_take_free(lock)) return;
        if (seen == PLATFORM_LOCK_FORK) break; /* not for a microsecond */
        cpu_relax();
    }
    int saved = errno;
    while (!take_or_sleep(&lock->word)) continue;
    errno = saved;
}

void platform_lock_release_slow(struct platform_lock *lock) {
    int saved = errno;
    futex(&lock->word, FUTEX_WAKE, 1);
    errno = saved;
}

bool platform_lock_try(struct platform_lock *lock) { return platform_lock_try_here(lock); }
void platform_lock_acquire(struct platform_lock *lock) { platform_lock_acquire_here(lock); }
void platform_lock_release(struct platform_lock *lock) { platform_lock_release_here(lock); }

void platform_fork_begin(void) { __atomic_store_n(&fork_thread, (uintptr_t)pthread_self(), __ATOMIC_RELAXED); }

void platform_fork_end(void) { __atomic_store_n(&fork_thread, 0, __ATOMIC_RELAXED); }

/* Who went to sleep before the word changed is seen in `sleepers`; who comes later finds that the word has changed, and doesn't sleep. */
void platform_lock_unhold(struct platform_lock *lock) {
    __atomic_exchange_n(&lock->word, PLATFORM_LOCK_FREE, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&sleepers, __ATOMIC_SEQ_CST) == 0) return;
    int saved = errno;
    futex(&lock->word, FUTEX_WAKE, INT_MAX);
    errno = saved;
}

#ifdef STRATA_LOCK_DEBUG
/* The ranks that this thread holds, as a bit set: at most one lock of a rank is held at a time. */
static __thread uint32_t held_ranks;

void platform_lock_note_acquire(struct platform_lock *lock) {
    uint32_t bit = (uint32_t)1 << lock->rank;
    if (held_ranks >= bit) fatal("lock order: rank %u taken while holding ranks 0x%x", lock->rank, held_ranks);
    held_ranks |= bit;
}
void platform_lock_note_release(struct platform_lock *lock) { held_ranks &= ~((uint32_t)1 << lock->rank); }
/* The one thread of a fork's child inherits what was noted before the fork. */
void platform_lock_note_reset(struct platform_lock *lock) { platform_lock_note_release(lock); }
#endif
