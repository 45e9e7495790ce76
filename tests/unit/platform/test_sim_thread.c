/*
 * test_sim_thread.c - simulated threads: bodies that take turns, events, pressure, locks and time between them, thread ids and exits.
 */
#include "sim_test.h"

#define MS UINT64_C(1000000)

static char trace[SIM_BODIES_MAX + 1];
static unsigned traced;

static void machine(void) {
    sim_reset(&(struct sim_config){.cpus = 4});
    memset(trace, 0, sizeof trace);
    traced = 0;
}
static void note(char c) { trace[traced++] = c; }

static struct platform_event event_a, event_b;
static struct platform_lock lock = PLATFORM_LOCK_INIT(LOCK_RANK_ZONE);

static bool start(void (*body)(void *), const char *argument) { return platform_thread_start(body, (void *)(uintptr_t)argument); }

/* ------------------------------------------------------------------ bodies */

static void note_argument(void *argument) { note(*(const char *)argument); }

static void bodies_run_when_told(void **state) {
    (void)state;
    machine();
    assert_true(start(note_argument, "a"));
    assert_true(start(note_argument, "b"));
    assert_int_equal(sim_threads_alive(), 2);
    assert_string_equal(trace, "");
    assert_true(sim_run_threads());
    assert_string_equal(trace, "ab");
    assert_int_equal(sim_threads_alive(), 0);
    assert_int_equal(sim_thread(), 0);
}

static void note_cpu(void *argument) {
    (void)argument;
    note((char)('0' + sim_cpu()));
}

static void bodies_run_on_their_cpu(void **state) {
    (void)state;
    machine();
    sim_cpu_set(1);
    unsigned thread = sim_thread_start(3, note_cpu, NULL);
    assert_int_equal(thread, SIM_THREADS_MAX - SIM_BODIES_MAX);
    assert_true(platform_thread_start(note_cpu, NULL)); /* on that of its creator */
    sim_run_threads();
    assert_string_equal(trace, "31");
}

static void there_is_a_bound_on_bodies(void **state) {
    (void)state;
    machine();
    for (unsigned round = 0; round < 2; round++) {
        traced = 0;
        for (unsigned i = 0; i < SIM_BODIES_MAX; i++) assert_true(start(note_argument, "x"));
        assert_false(start(note_argument, "y"));
        assert_int_equal(sim_threads_alive(), SIM_BODIES_MAX);
        assert_true(sim_run_threads());
        assert_int_equal(traced, SIM_BODIES_MAX);
    }
}

static void start_another(void *argument) {
    note('a');
    platform_thread_start(note_argument, argument);
    note('b');
}

static void bodies_start_bodies(void **state) {
    (void)state;
    machine();
    start(start_another, "c");
    assert_true(sim_run_threads());
    assert_string_equal(trace, "abc");
}

/* ------------------------------------------------------------------ events and time */

static void wait_and_note(void *argument) {
    note(platform_event_wait(&event_a, 10 * MS) ? 'w' : 't');
    (void)argument;
}
static void wake_it(void *argument) {
    (void)argument;
    note('k');
    platform_event_wake(&event_a);
}

static void an_event_wakes_its_waiter(void **state) {
    (void)state;
    machine();
    event_a.word = 0;
    platform_thread_start(wait_and_note, NULL);
    assert_false(sim_run_threads());
    assert_string_equal(trace, "");
    platform_thread_start(wake_it, NULL);
    assert_true(sim_run_threads());
    assert_string_equal(trace, "kw");
    assert_int_equal(event_a.word, 0);
}

static void a_wake_is_remembered_once(void **state) {
    (void)state;
    machine();
    event_a.word = 0;
    platform_event_wake(&event_a);
    platform_event_wake(&event_a);
    assert_true(platform_event_wait(&event_a, 0));
    assert_false(platform_event_wait(&event_a, 0));
}

static uint32_t word;

static void wait_on_word(void *name) {
    while (word < 2) platform_word_wait(&word, word);
    note(*(const char *)name);
}
static void raise_word(void *unused) {
    (void)unused;
    word++;
}
static void raise_and_wake(void *unused) {
    raise_word(unused);
    platform_word_wake(&word);
}

/* All sleepers go, and those that the news don't suit sleep on. A change without a wake is not noticed, as a futex doesn't. */
static void a_wake_on_a_word_is_for_all(void **state) {
    (void)state;
    machine();
    word = 0;
    start(wait_on_word, "a");
    start(wait_on_word, "b");
    assert_false(sim_run_threads());
    start(raise_and_wake, NULL);
    assert_false(sim_run_threads());
    assert_string_equal(trace, "");
    start(raise_word, NULL);
    assert_false(sim_run_threads());
    assert_string_equal(trace, "");
    start(raise_and_wake, NULL);
    assert_true(sim_run_threads());
    assert_string_equal(trace, "ab");
    platform_word_wait(&word, 0); /* another value: at once */
    assert_int_equal(sim_calls(SIM_WORD_WAKE), 2);
    assert_int_equal(sim_calls(SIM_WORD_WAIT), 5);
}

static void the_test_itself_waits_on_a_word(void **state) {
    (void)state;
    machine();
    word = 5;
    start(raise_word, NULL);
    platform_word_wait(&word, 5);
    assert_int_equal(word, 6);
}

static void waits_end_in_time(void **state) {
    (void)state;
    machine();
    event_a.word = 0;
    platform_thread_start(wait_and_note, NULL);
    assert_false(sim_run_threads_for(9 * MS));
    assert_string_equal(trace, "");
    assert_true(sim_run_threads_for(1 * MS));
    assert_string_equal(trace, "t");
}

static void tick(void *argument) {
    for (unsigned i = 0; i < 5; i++) {
        platform_event_wait(argument, 3 * MS);
        note((char)('0' + platform_now_ns() / MS % 100 / 3));
    }
}

static void time_jumps_from_one_timeout_to_the_next(void **state) {
    (void)state;
    machine();
    event_a.word = 0;
    uint64_t start_ns = platform_now_ns();
    platform_thread_start(tick, &event_a);
    assert_false(sim_run_threads_for(14 * MS));
    assert_string_equal(trace, "1234");
    assert_int_equal(platform_now_ns(), start_ns + 14 * MS);
    sim_clock_advance(10 * MS);
    assert_true(sim_run_threads());
    assert_string_equal(trace, "12348");
}

static void wake_b_later(void *argument) {
    (void)argument;
    platform_event_wait(&event_a, 5 * MS);
    platform_event_wake(&event_b);
}

static void the_test_itself_can_wait(void **state) {
    (void)state;
    machine();
    event_a.word = event_b.word = 0;
    uint64_t start_ns = platform_now_ns();
    platform_thread_start(wake_b_later, NULL);
    assert_true(platform_event_wait(&event_b, UINT64_MAX));
    assert_int_equal(platform_now_ns(), start_ns + 5 * MS);
    assert_false(platform_event_wait(&event_b, 7 * MS));
    assert_int_equal(platform_now_ns(), start_ns + 12 * MS);
    assert_int_equal(sim_calls(SIM_EVENT_WAIT), 3);
    assert_int_equal(sim_calls(SIM_EVENT_WAKE), 1);
}

static void wait_for_ever(void *argument) { platform_event_wait(argument, UINT64_MAX); }

/* ------------------------------------------------------------------ pressure */

static void note_pressure(void *argument) {
    bool woken;
    (void)argument;
    note((char)('0' + platform_pressure_wait(&event_a, 10 * MS, &woken)));
    note(woken ? 'w' : '-');
}

static void pressure_ends_a_wait(void **state) {
    (void)state;
    machine();
    event_a.word = 0;
    assert_true(platform_pressure_open());
    platform_thread_start(note_pressure, NULL);
    assert_false(sim_run_threads());
    sim_pressure_raise(PLATFORM_PRESSURE_CRITICAL);
    assert_true(sim_run_threads());
    platform_thread_start(note_pressure, NULL);
    platform_event_wake(&event_a);
    assert_true(sim_run_threads());
    platform_thread_start(note_pressure, NULL);
    assert_true(sim_run_threads_for(10 * MS));
    platform_pressure_close();
    sim_pressure_raise(PLATFORM_PRESSURE_SOME);
    platform_thread_start(note_pressure, NULL);
    assert_false(sim_run_threads());
    assert_true(sim_run_threads_for(10 * MS));
    assert_string_equal(trace, "2-0w0-0-");
    sim_reset(&(struct sim_config){.no_pressure = true});
    assert_false(platform_pressure_open());
}

/* ------------------------------------------------------------------ locks */

static void lock_and_wait(void *argument) {
    (void)argument;
    platform_lock_acquire(&lock);
    note('l');
    platform_event_wait(&event_a, 5 * MS);
    note('u');
    platform_lock_release(&lock);
}
static void lock_and_note(void *argument) {
    (void)argument;
    note(platform_lock_try(&lock) ? 'y' : 'n');
    platform_lock_acquire(&lock);
    note('L');
    platform_lock_release(&lock);
}

static void a_held_lock_is_waited_for(void **state) {
    (void)state;
    machine();
    event_a.word = lock.word = 0;
    platform_thread_start(lock_and_wait, NULL);
    platform_thread_start(lock_and_note, NULL);
    assert_true(sim_run_threads_for(10 * MS));
    assert_string_equal(trace, "lnuL");
    assert_int_equal(sim_calls(SIM_LOCK_CONTENDED), 1);
    assert_int_equal(lock.word, 0);
}

static void the_test_waits_for_a_lock_too(void **state) {
    (void)state;
    machine();
    event_a.word = lock.word = 0;
    platform_thread_start(lock_and_wait, NULL);
    assert_false(sim_run_threads());
    platform_event_wake(&event_a);
    platform_lock_acquire(&lock);
    assert_string_equal(trace, "lu");
    sim_thread_start(0, lock_and_note, NULL);
    assert_false(sim_run_threads()); /* it waits for us: no deadlock */
    platform_lock_release(&lock);
    assert_true(sim_run_threads());
    assert_string_equal(trace, "lunL");
}

static void end_with_a_lock(void *argument) { platform_lock_acquire(argument); }
static void run_all(void *argument) {
    (void)argument;
    sim_run_threads();
}
static void lock_two(void *argument) {
    struct platform_lock **locks = argument;
    platform_lock_acquire(locks[0]);
    platform_event_wait(&event_a, 1 * MS);
    platform_lock_acquire(locks[1]);
}
static void run_for_a_while(void *argument) {
    (void)argument;
    sim_run_threads_for(10 * MS);
}

static void misuse_dies(void **state) {
    (void)state;
    machine();
    lock.word = event_a.word = 0;
    platform_thread_start(end_with_a_lock, &lock);
    assert_dies(run_all, NULL, "ends while it holds a lock of rank 8");

    /* The order check would catch a crossing of two ranks, so one body simply never lets go. */
    machine();
    struct platform_lock low = PLATFORM_LOCK_INIT(LOCK_RANK_SLAB), high = PLATFORM_LOCK_INIT(LOCK_RANK_ARENA);
    struct platform_lock *both[] = {&low, &high};
    platform_thread_start(wait_for_ever, &event_b);
    high.word = 1; /* held by nobody that we know */
    platform_thread_start(lock_two, both);
    assert_dies(run_for_a_while, NULL, "deadlock: thread");

    machine();
    event_a.word = 0;
    assert_dies(wait_for_ever, &event_a, "nobody will ever end");
    machine();
    assert_true(start(note_argument, "a")); /* the machine works on after deaths */
    assert_true(sim_run_threads());
}

/* ------------------------------------------------------------------ identities */

static uint32_t ended[4];
static unsigned ends;
static uint32_t id_seen;
static void at_exit(uint32_t id) {
    ended[ends++] = id;
    id_seen = platform_thread_id();
}
static void take_id(void *argument) { platform_thread_set_id(*(uint32_t *)argument); }

static void exits_are_reported(void **state) {
    (void)state;
    machine();
    ends = 0;
    id_seen = 99;
    platform_on_thread_exit(at_exit);
    platform_thread_set_id(11);
    sim_thread_become(1);
    assert_int_equal(platform_thread_id(), 0);
    sim_thread_exit(); /* no id: nothing to report */
    assert_int_equal(ends, 0);
    platform_thread_set_id(12);
    sim_thread_exit();
    assert_int_equal(ended[0], 12);
    assert_int_equal(id_seen, 0);
    sim_thread_become(0);
    assert_int_equal(platform_thread_id(), 11);
    uint32_t id = 13;
    platform_thread_start(take_id, &id);
    assert_true(sim_run_threads());
    assert_int_equal(ends, 2);
    assert_int_equal(ended[1], 13);
}

static void a_forked_child_is_alone(void **state) {
    (void)state;
    machine();
    event_a.word = 0;
    platform_thread_start(wait_and_note, NULL);
    sim_run_threads();
    sim_fork_child();
    assert_int_equal(sim_threads_alive(), 0);
    platform_event_wake(&event_a);
    assert_true(sim_run_threads());
    assert_string_equal(trace, "");
    assert_true(start(note_argument, "c"));
    assert_true(sim_run_threads());
    assert_string_equal(trace, "c");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_run_when_told),
        cmocka_unit_test(bodies_run_on_their_cpu),
        cmocka_unit_test(there_is_a_bound_on_bodies),
        cmocka_unit_test(bodies_start_bodies),
        cmocka_unit_test(an_event_wakes_its_waiter),
        cmocka_unit_test(a_wake_is_remembered_once),
        cmocka_unit_test(a_wake_on_a_word_is_for_all),
        cmocka_unit_test(the_test_itself_waits_on_a_word),
        cmocka_unit_test(waits_end_in_time),
        cmocka_unit_test(time_jumps_from_one_timeout_to_the_next),
        cmocka_unit_test(the_test_itself_can_wait),
        cmocka_unit_test(pressure_ends_a_wait),
        cmocka_unit_test(a_held_lock_is_waited_for),
        cmocka_unit_test(the_test_waits_for_a_lock_too),
        cmocka_unit_test(misuse_dies),
        cmocka_unit_test(exits_are_reported),
        cmocka_unit_test(a_forked_child_is_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
