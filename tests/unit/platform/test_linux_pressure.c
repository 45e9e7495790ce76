/*
 * test_linux_pressure.c - waiting for memory pressure on Linux: wakes and timeouts get through it, and it survives programs that close
 * files which they did not open.
 */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "linux_test.h"

#define MS UINT64_C(1000000)
#define WAKES 500u

static struct platform_event event;

/* Under real pressure a wait may end early with a report: then it goes on. */
static bool wait_for_wake(uint64_t timeout_ns) {
    bool woken;
    while (platform_pressure_wait(&event, timeout_ns, &woken) != PLATFORM_PRESSURE_NONE && !woken) {}
    return woken;
}

static void waits_end_by_wake_or_time(void **state) {
    (void)state;
    errno = 77;
    assert_true(platform_pressure_open());
    assert_false(wait_for_wake(0));
    assert_false(wait_for_wake(20 * MS));
    platform_event_wake(&event);
    platform_event_wake(&event);
    assert_true(wait_for_wake(UINT64_MAX));
    assert_false(wait_for_wake(0));
    platform_pressure_close();
    assert_int_equal(errno, 77);
}

static void without_sources_it_is_a_plain_wait(void **state) {
    (void)state;
    platform_pressure_close();
    assert_false(wait_for_wake(MS));
    platform_event_wake(&event);
    assert_true(wait_for_wake(UINT64_MAX));
}

/* A waiter that counts its wakes, and asks for the next one only when it has been counted. */
static unsigned wakes;

static void *count_wakes(void *wanted) {
    if (!platform_pressure_open()) return NULL;
    for (unsigned i = 0; i < *(unsigned *)wanted; i++) {
        if (!wait_for_wake(UINT64_MAX)) return NULL;
        __atomic_fetch_add(&wakes, 1, __ATOMIC_RELEASE);
    }
    return &wakes;
}

static void wake_until(unsigned wanted) {
    platform_event_wake(&event);
    while (__atomic_load_n(&wakes, __ATOMIC_ACQUIRE) < wanted) sched_yield();
}

static void no_wake_is_lost(void **state) {
    (void)state;
    pthread_t waiter;
    unsigned wanted = WAKES;
    void *result;
    wakes = 0;
    assert_int_equal(pthread_create(&waiter, NULL, count_wakes, &wanted), 0);
    for (unsigned i = 1; i <= WAKES; i++) {
        if (i % 16 == 0) usleep(1000); /* lets it fall asleep */
        wake_until(i);
    }
    pthread_join(waiter, &result);
    assert_ptr_equal(result, &wakes);
    platform_pressure_close();
}

/* The numbers of files that were not open before. */
static unsigned list_files(int *numbers, unsigned room, const bool *before) {
    unsigned count = 0;
    for (int number = 3; number < 1024 && count < room; number++)
        if (fcntl(number, F_GETFD) >= 0 && (before == NULL || !before[number])) numbers[count++] = number;
    return count;
}

static void files_are_private_and_high(void **state) {
    (void)state;
    bool before[1024] = {false};
    int numbers[64];
    unsigned count = list_files(numbers, 64, NULL);
    for (unsigned i = 0; i < count; i++) before[numbers[i]] = true;
    assert_true(platform_pressure_open());
    count = list_files(numbers, 64, before);
    assert_true(count >= 3);
    for (unsigned i = 0; i < count; i++) {
        assert_true(numbers[i] >= 40);
        assert_int_equal(fcntl(numbers[i], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    }
    assert_true(platform_pressure_open()); /* again: nothing leaks */
    assert_int_equal(list_files(numbers, 64, before), count);
    platform_pressure_close();
    assert_int_equal(list_files(numbers, 64, before), 0);
}

/* As daemons do: closes everything while the waiter sleeps. */
static void close_everything(void *unused) {
    pthread_t waiter;
    unsigned wanted = 40;
    void *result;
    (void)unused;
    wakes = 0;
    EXPECT(pthread_create(&waiter, NULL, count_wakes, &wanted) == 0);
    for (unsigned i = 1; i <= 20; i++) wake_until(i);
    usleep(20000); /* the waiter is in poll now, almost surely */
    EXPECT(syscall(SYS_close_range, 3, ~0u, 0) == 0);
    for (unsigned i = 21; i <= 40; i++) wake_until(i);
    EXPECT(pthread_join(waiter, &result) == 0 && result == &wakes);
}

static void programs_may_close_our_files(void **state) {
    (void)state;
    assert_int_equal(child_status(close_everything, NULL), 0);
}

static void *wake_later(void *unused) {
    usleep(5000);
    platform_event_wake(&event);
    return unused;
}

/* The program's own sockets take the place of our files. */
static void replace_everything(void *unused) {
    pthread_t waker;
    char message;
    int numbers[64], pairs[64][2];
    (void)unused;
    EXPECT(platform_pressure_open());
    unsigned count = list_files(numbers, 64, NULL);
    EXPECT(count >= 3);
    for (unsigned i = 0; i < count; i++) {
        EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pairs[i]) == 0);
        EXPECT(dup2(pairs[i][0], numbers[i]) == numbers[i]);
        EXPECT(send(pairs[i][1], "", 1, 0) == 1); /* a byte that we must not take */
    }
    for (unsigned i = 0; i < 3; i++) {
        EXPECT(pthread_create(&waker, NULL, wake_later, NULL) == 0);
        EXPECT(wait_for_wake(UINT64_MAX));
        EXPECT(pthread_join(waker, NULL) == 0);
    }
    platform_pressure_close();
    /* Nothing was written to the program's files, nothing read, nothing closed. */
    for (unsigned i = 0; i < count; i++) {
        EXPECT(recv(numbers[i], &message, 1, 0) == 1);
        EXPECT(recv(pairs[i][1], &message, 1, 0) < 0 && errno == EAGAIN);
    }
}

static void programs_may_reuse_the_numbers(void **state) {
    (void)state;
    assert_int_equal(child_status(replace_everything, NULL), 0);
}

static void close_again_and_again(void *unused) {
    pthread_t waiter;
    unsigned wanted = 30;
    void *result;
    (void)unused;
    wakes = 0;
    EXPECT(pthread_create(&waiter, NULL, count_wakes, &wanted) == 0);
    wake_until(1); /* closing may hit any later opening, but where the very first fails there is nothing to test */
    for (unsigned i = 2; i <= 30; i++) {
        usleep(2000);
        syscall(SYS_close_range, 3, ~0u, 0);
        wake_until(i);
    }
    EXPECT(pthread_join(waiter, &result) == 0 && result == &wakes);
}

static void closing_again_and_again_ends_in_a_plain_wait(void **state) {
    (void)state;
    assert_int_equal(child_status(close_again_and_again, NULL), 0);
}

static void in_the_child(void *unused) {
    (void)unused;
    platform_pressure_close();
    EXPECT(platform_pressure_open());
    event = (struct platform_event){0};
    platform_event_wake(&event);
    EXPECT(wait_for_wake(UINT64_MAX));
    platform_pressure_close();
}

static void a_forked_child_has_its_own(void **state) {
    (void)state;
    pthread_t waiter;
    unsigned wanted = 2;
    void *result;
    wakes = 0;
    assert_int_equal(pthread_create(&waiter, NULL, count_wakes, &wanted), 0);
    wake_until(1);
    usleep(5000);
    assert_int_equal(child_status(in_the_child, NULL), 0);
    wake_until(2);
    pthread_join(waiter, &result);
    assert_ptr_equal(result, &wakes);
    platform_pressure_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_end_by_wake_or_time),
        cmocka_unit_test(without_sources_it_is_a_plain_wait),
        cmocka_unit_test(no_wake_is_lost),
        cmocka_unit_test(files_are_private_and_high),
        cmocka_unit_test(programs_may_close_our_files),
        cmocka_unit_test(programs_may_reuse_the_numbers),
        cmocka_unit_test(closing_again_and_again_ends_in_a_plain_wait),
        cmocka_unit_test(a_forked_child_has_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
