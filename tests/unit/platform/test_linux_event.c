/*
 * test_linux_event.c - events on Linux: no wake is lost, stray signals end no wait, errno stays.
 */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <signal.h>

#include "linux_test.h"

#define MS UINT64_C(1000000)
#define ROUNDS 20000u

static void a_wake_is_remembered_once(void **state) {
    (void)state;
    struct platform_event event = {0};
    errno = 77;
    assert_false(platform_event_wait(&event, 0));
    platform_event_wake(&event);
    platform_event_wake(&event);
    assert_true(platform_event_wait(&event, UINT64_MAX));
    assert_false(platform_event_wait(&event, 0));
    assert_false(platform_event_wait(&event, MS));
    assert_int_equal(event.word, 0);
    assert_int_equal(errno, 77);
}

/* Two threads hand a plain variable to and fro; a lost wake would hang them, a missing barrier would show in the value. */
static struct platform_event there, back;
static unsigned ball;

static void *return_ball(void *unused) {
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (!platform_event_wait(&there, UINT64_MAX)) return unused;
        ball++;
        platform_event_wake(&back);
    }
    return &ball;
}

static void no_wake_is_lost(void **state) {
    (void)state;
    pthread_t thread;
    void *result;
    ball = 0;
    assert_int_equal(pthread_create(&thread, NULL, return_ball, NULL), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        platform_event_wake(&there);
        assert_true(platform_event_wait(&back, UINT64_MAX));
        assert_int_equal(ball, i + 1);
    }
    pthread_join(thread, &result);
    assert_ptr_equal(result, &ball);
}

/* Many wakers set their flag and wake; the waiter goes on until it has seen all flags. */
#define WAKERS 4u
static struct platform_event many;
static unsigned flags;

static void *wake_many(void *bit) {
    for (unsigned i = 0; i < ROUNDS / WAKERS; i++) {
        while ((__atomic_load_n(&flags, __ATOMIC_RELAXED) & *(unsigned *)bit) != 0) sched_yield();
        __atomic_fetch_or(&flags, *(unsigned *)bit, __ATOMIC_RELAXED);
        platform_event_wake(&many);
    }
    return NULL;
}

static void every_waker_is_heard(void **state) {
    (void)state;
    pthread_t threads[WAKERS];
    unsigned bits[WAKERS], heard = 0;
    for (unsigned i = 0; i < WAKERS; i++) {
        bits[i] = 1u << i;
        assert_int_equal(pthread_create(&threads[i], NULL, wake_many, &bits[i]), 0);
    }
    while (heard < ROUNDS) {
        assert_true(platform_event_wait(&many, UINT64_MAX));
        heard += (unsigned)__builtin_popcount(__atomic_exchange_n(&flags, 0, __ATOMIC_RELAXED));
    }
    for (unsigned i = 0; i < WAKERS; i++) pthread_join(threads[i], NULL);
}

static struct platform_event late;
static unsigned handled;

static void count_signal(int number) {
    (void)number;
    __atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
}
static void wake_from_handler(int number) {
    (void)number;
    platform_event_wake(&late);
}
static void *wait_late(void *woken) {
    *(bool *)woken = platform_event_wait(&late, UINT64_MAX);
    return NULL;
}
static void handle(int number, void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler};
    assert_int_equal(sigaction(number, &action, NULL), 0);
}

static void signals_end_no_wait(void **state) {
    (void)state;
    pthread_t thread;
    bool woken = false;
    handle(SIGUSR1, count_signal);
    handle(SIGUSR2, wake_from_handler);
    assert_int_equal(pthread_create(&thread, NULL, wait_late, &woken), 0);
    for (unsigned i = 1; i <= 50; i++) {
        pthread_kill(thread, SIGUSR1);
        while (__atomic_load_n(&handled, __ATOMIC_RELAXED) < i) usleep(100);
        assert_int_equal(pthread_tryjoin_np(thread, NULL), EBUSY);
    }
    pthread_kill(thread, SIGUSR2);
    pthread_join(thread, NULL);
    assert_true(woken);
}

/* ------------------------------------------------------------------ words */

/* A counter that sleepers watch: each sees it reach its end, whatever the order of changes, wakes and sleeps. */
static uint32_t word;

static void *watch(void *count) {
    uint32_t seen;
    while ((seen = __atomic_load_n(&word, __ATOMIC_ACQUIRE)) < ROUNDS) platform_word_wait(&word, seen);
    __atomic_fetch_add((unsigned *)count, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void a_wake_lets_all_sleepers_on_the_word_go(void **state) {
    (void)state;
    pthread_t watchers[WAKERS];
    unsigned ended = 0;
    word = 0;
    errno = 77;
    platform_word_wait(&word, 1); /* another value: at once */
    platform_word_wake(&word);    /* nobody sleeps */
    assert_int_equal(errno, 77);
    for (unsigned i = 0; i < WAKERS; i++) assert_int_equal(pthread_create(&watchers[i], NULL, watch, &ended), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        __atomic_fetch_add(&word, 1, __ATOMIC_RELEASE);
        platform_word_wake(&word);
        if (i % 1024 == 0) usleep(200); /* let them fall asleep now and then */
    }
    for (unsigned i = 0; i < WAKERS; i++) pthread_join(watchers[i], NULL);
    assert_int_equal(ended, WAKERS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wake_is_remembered_once),
        cmocka_unit_test(no_wake_is_lost),
        cmocka_unit_test(every_waker_is_heard),
        cmocka_unit_test(signals_end_no_wait),
        cmocka_unit_test(a_wake_lets_all_sleepers_on_the_word_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
