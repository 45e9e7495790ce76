/*
 * event.c - an event of one word: a futex, or, while the waiter polls files (pressure.c), a message to it. And futexes as such.
 *
 * Only the one waiter moves the word to SLEEPS or POLLS; wakers always move it to WOKEN, and whoever sees what was there
 * before does the waking. So no wake is lost, and a second one finds WOKEN and has nothing to do. No locks.
 */
#define _GNU_SOURCE 1
#include "platform/linux/event.h"
#include "platform/linux/linux.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum event_state {
    IDLE = 0, /* as zero-initialised */
    WOKEN,
    SLEEPS, /* the waiter is on the futex */
    POLLS,  /* the waiter is in poll */
};

void platform_event_wake(struct platform_event *event) {
    uint32_t before = __atomic_exchange_n(&event->word, WOKEN, __ATOMIC_ACQ_REL);
    if (before == SLEEPS) {
        int saved = errno;
        syscall(SYS_futex, &event->word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
        errno = saved;
    } else if (before == POLLS) {
        linux_pressure_wake();
    }
}

/* From IDLE to `state`, or from WOKEN to IDLE: false. */
static bool begin_wait(struct platform_event *event, uint32_t state) {
    uint32_t expected = IDLE;
    if (__atomic_compare_exchange_n(&event->word, &expected, state, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return true;
    __atomic_exchange_n(&event->word, IDLE, __ATOMIC_ACQ_REL); /* an exchange, to see what the last waker wrote before it woke us */
    return false;
}

static bool end_wait(struct platform_event *event) { return __atomic_exchange_n(&event->word, IDLE, __ATOMIC_ACQ_REL) == WOKEN; }

bool linux_event_poll_begin(struct platform_event *event) { return begin_wait(event, POLLS); }
bool linux_event_poll_end(struct platform_event *event) { return end_wait(event); }

bool platform_event_wait(struct platform_event *event, uint64_t timeout_ns) {
    if (!begin_wait(event, SLEEPS)) return true;
    int saved = errno;
    uint64_t now_ns = platform_precise_ns();
    uint64_t deadline_ns = timeout_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + timeout_ns;
    struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / NS_PER_S), .tv_nsec = (long)(deadline_ns % NS_PER_S)};
    /* Signals and stray wakes end a futex wait too: only the word and the clock count. */
    while (__atomic_load_n(&event->word, __ATOMIC_ACQUIRE) == SLEEPS && platform_precise_ns() < deadline_ns)
        syscall(SYS_futex, &event->word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, SLEEPS, deadline_ns == UINT64_MAX ? NULL : &deadline, NULL,
                FUTEX_BITSET_MATCH_ANY);
    errno = saved;
    return end_wait(event);
}

void platform_word_wait_for(const uint32_t *word, uint32_t seen, uint64_t timeout_ns) {
    int saved = errno;
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / NS_PER_S), .tv_nsec = (long)(timeout_ns % NS_PER_S)};
    /* The kernel compares once more, under a lock that a wake needs too. A signal ends the wait; the caller looks again. */
    syscall(SYS_futex, word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, seen, timeout_ns == UINT64_MAX ? NULL : &timeout, NULL, 0);
    errno = saved;
}

void platform_word_wait(const uint32_t *word, uint32_t seen) { platform_word_wait_for(word, seen, UINT64_MAX); }

void platform_word_wake(const uint32_t *word) {
    int saved = errno;
    syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, NULL, NULL, 0);
    errno = saved;
}
