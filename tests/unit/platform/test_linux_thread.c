/*
 * test_linux_thread.c - threads of our own on Linux: detached, small stack, signals blocked, failure leaves nothing behind.
 */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include "linux_test.h"
#include "sanitizers.h"

#define SANITIZED (UNDER_ADDRESS_SANITIZER || UNDER_THREAD_SANITIZER)

static struct platform_event done, go;

static void report(void *argument) {
    __atomic_fetch_add((unsigned *)argument, 1, __ATOMIC_RELEASE);
    platform_event_wake(&done);
}

static void wait_for_count(unsigned *count, unsigned wanted) {
    while (__atomic_load_n(count, __ATOMIC_ACQUIRE) != wanted) platform_event_wait(&done, UINT64_MAX);
}

static void a_thread_runs_its_body(void **state) {
    (void)state;
    unsigned count = 0;
    errno = 77;
    for (unsigned i = 1; i <= 200; i++) { /* a thread that is not detached would use up memory or thread numbers here */
        assert_true(platform_thread_start(report, &count));
        wait_for_count(&count, i);
    }
    assert_int_equal(errno, 77);
}

static unsigned waiting;
static void wait_together(void *argument) {
    __atomic_fetch_add((unsigned *)argument, 1, __ATOMIC_RELEASE);
    platform_event_wake(&done);
    while (__atomic_load_n(&go.word, __ATOMIC_ACQUIRE) == 0) usleep(1000);
    __atomic_fetch_sub((unsigned *)argument, 1, __ATOMIC_RELEASE);
    platform_event_wake(&done);
}

/* However many are about to start, as each waits for a CPU. */
static void many_threads_live_together(void **state) {
    (void)state;
    for (unsigned i = 0; i < 30; i++) assert_true(platform_thread_start(wait_together, &waiting));
    wait_for_count(&waiting, 30);
    platform_event_wake(&go);
    wait_for_count(&waiting, 0);
}

static sigset_t seen_mask;
static size_t seen_stack_bytes;
static int seen_detached;
static void look_around(void *argument) {
    pthread_attr_t attributes;
    pthread_sigmask(SIG_SETMASK, NULL, &seen_mask);
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        pthread_attr_getstacksize(&attributes, &seen_stack_bytes);
        pthread_attr_getdetachstate(&attributes, &seen_detached);
        pthread_attr_destroy(&attributes);
    }
    report(argument);
}

static void the_thread_is_deaf_and_small(void **state) {
    (void)state;
    unsigned count = 0;
    sigset_t before, after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_true(platform_thread_start(look_around, &count));
    wait_for_count(&count, 1);
    static const int signals[] = {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGALRM, SIGSEGV, SIGPROF, SIGWINCH};
    for (size_t i = 0; i < ARRAY_LENGTH(signals); i++) assert_int_equal(sigismember(&seen_mask, signals[i]), 1);
    assert_int_equal(sigismember(&seen_mask, SIGRTMAX), 1);
    assert_true(seen_stack_bytes >= 64 * KIB && seen_stack_bytes <= 1 * MIB);
    assert_int_equal(seen_detached, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, NULL, &after); /* of the creator: unchanged */
    for (int number = 1; number < SIGRTMAX; number++) assert_int_equal(sigismember(&before, number), sigismember(&after, number));
}

static uint32_t selves[2];
static void note_self(void *count) {
    selves[0] = platform_thread_self();
    report(count);
}
static void tell_self(void *parent) { EXPECT(platform_thread_self() != 0 && platform_thread_self() != *(const uint32_t *)parent); }

/* What a thread is known by while it is in a function of the program: its own, the same each time, another in a child. */
static void a_thread_has_a_number_of_its_own(void **state) {
    (void)state;
    unsigned count = 0;
    selves[1] = platform_thread_self();
    assert_true(platform_thread_start(note_self, &count));
    wait_for_count(&count, 1);
    assert_true(selves[0] != 0 && selves[1] != 0 && selves[0] != selves[1]);
    assert_true(selves[0] < 1u << 30 && selves[1] < 1u << 30);
    assert_int_equal(platform_thread_self(), selves[1]);
    assert_int_equal(child_status(tell_self, &selves[1]), 0);
}

/* Two of ours begin at the same moment, as the first ones of a process; then all its other threads end, which both are to notice. */
static uint32_t beginners;
static void wait_to_be_last(void *unused) {
    (void)unused;
    for (unsigned ms = 0; ms < 3000 && !platform_thread_is_last(NULL); ms++) usleep(1000);
    EXPECT(platform_thread_is_last(NULL));
    _exit(0);
}
static void *begin_one(void *unused) {
    __atomic_fetch_add(&beginners, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&beginners, __ATOMIC_SEQ_CST) != 2) continue;
    EXPECT(platform_thread_start(wait_to_be_last, NULL));
    return unused;
}
static void begin_two(void *unused) {
    pthread_t thread;
    (void)unused;
    for (unsigned i = 0; i < 2; i++) EXPECT(pthread_create(&thread, NULL, begin_one, NULL) == 0 && pthread_detach(thread) == 0);
    pthread_exit(NULL);
}

static void two_that_begin_at_once_are_both_counted(void **state) {
    (void)state;
    for (unsigned turn = 0; turn < 100; turn++) assert_int_equal(child_status(begin_two, NULL), 0);
}

#if !SANITIZED /* whose own mappings do not survive the limit */
static void fail_and_recover(void *unused) {
    struct rlimit limit, tight;
    unsigned count = 0;
    sigset_t mask;
    (void)unused;
    EXPECT(getrlimit(RLIMIT_AS, &limit) == 0);
    tight = limit;
    tight.rlim_cur = 4096; /* no room for a stack */
    EXPECT(setrlimit(RLIMIT_AS, &tight) == 0);
    for (unsigned i = 0; i < 100; i++) {
        errno = 77;
        EXPECT(!platform_thread_start(report, &count));
        EXPECT(errno == 77);
    }
    EXPECT(setrlimit(RLIMIT_AS, &limit) == 0);
    EXPECT(pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0 && sigismember(&mask, SIGTERM) == 0);
    EXPECT(platform_thread_start(report, &count));
    wait_for_count(&count, 1);
}

static void failure_leaves_nothing_behind(void **state) {
    (void)state;
    assert_int_equal(child_status(fail_and_recover, NULL), 0);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
#if !SANITIZED
        cmocka_unit_test(failure_leaves_nothing_behind), /* first: no stack is cached yet that a new thread could use */
#endif
        cmocka_unit_test(a_thread_runs_its_body),
        cmocka_unit_test(many_threads_live_together),
        cmocka_unit_test(the_thread_is_deaf_and_small),
        cmocka_unit_test(a_thread_has_a_number_of_its_own),
        cmocka_unit_test(two_that_begin_at_once_are_both_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
