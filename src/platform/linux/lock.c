/*
 * lock.c - the slow halves of platform_lock: spin a little, then sleep on a futex.
 *
 * Word: 0 free, 1 held, 2 held and perhaps waited for. A waiter always leaves 2 behind, so the holder's release wakes one;
 * a woken waiter takes the lock as 2 again, because others may still sleep.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
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

void platform_lock_acquire_slow(struct platform_lock *lock) {
    for (unsigned i = 0; i < SPINS; i++) {
        uint32_t expected = 0;
        if (__atomic_load_n(&lock->word, __ATOMIC_RELAXED) == 0 &&
            __atomic_compare_exchange_n(&lock->word, &expected, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return;
        cpu_relax();
    }
    int saved = errno;
    while (__atomic_exchange_n(&lock->word, 2, __ATOMIC_ACQUIRE) != 0) futex(&lock->word, FUTEX_WAIT, 2);
    errno = saved;
}

void platform_lock_release_slow(struct platform_lock *lock) {
    int saved = errno;
    futex(&lock->word, FUTEX_WAKE, 1);
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
