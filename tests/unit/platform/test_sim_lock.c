/*
 * test_sim_lock.c - simulated locks: order, recursion and ownership are checked, contention comes on demand.
 */
#include "sim_test.h"

static struct platform_lock depot, zone, arena;

static void machine(void) {
    sim_reset(NULL);
    depot = (struct platform_lock)PLATFORM_LOCK_INIT(LOCK_RANK_DEPOT);
    zone = (struct platform_lock)PLATFORM_LOCK_INIT(LOCK_RANK_ZONE);
    arena = (struct platform_lock)PLATFORM_LOCK_INIT(LOCK_RANK_ARENA);
}

static void locks_in_order_are_fine(void **state) {
    (void)state;
    machine();
    platform_lock_acquire(&depot);
    assert_true(platform_lock_try(&zone));
    platform_lock_acquire(&arena);
    assert_int_equal(sim_locks_held(), 3);
    platform_lock_release(&zone); /* in any order */
    platform_lock_release(&depot);
    platform_lock_release(&arena);
    assert_int_equal(sim_locks_held(), 0);
    assert_int_equal(depot.word + zone.word + arena.word, 0);
    assert_int_equal(sim_calls(SIM_LOCK_ACQUIRE), 3);
    assert_int_equal(sim_calls(SIM_LOCK_CONTENDED), 0);
}

static void take_depot_under_arena(void *unused) {
    (void)unused;
    platform_lock_acquire(&arena);
    platform_lock_acquire(&depot);
}
static void try_depot_under_arena(void *unused) {
    (void)unused;
    platform_lock_acquire(&arena);
    platform_lock_try(&depot);
}
static void take_two_of_a_rank(void *unused) {
    struct platform_lock other = PLATFORM_LOCK_INIT(LOCK_RANK_DEPOT);
    (void)unused;
    platform_lock_acquire(&depot);
    platform_lock_acquire(&other);
}
static void take_after_releasing_the_lower(void *unused) {
    (void)unused;
    platform_lock_acquire(&depot);
    platform_lock_acquire(&arena);
    platform_lock_release(&depot);
    platform_lock_acquire(&zone); /* the arena is still held */
}
static void take_twice(void *unused) {
    (void)unused;
    platform_lock_acquire(&zone);
    platform_lock_acquire(&zone);
}
static void release_free(void *unused) {
    (void)unused;
    platform_lock_release(&zone);
}
static void release_of_another(void *unused) {
    (void)unused;
    platform_lock_acquire(&zone);
    sim_thread_become(1);
    platform_lock_release(&zone);
}
static void take_rankless(void *unused) {
    struct platform_lock lock = {0, 0};
    (void)unused;
    platform_lock_acquire(&lock);
}
static void wait_for_an_identity(void *unused) {
    (void)unused;
    platform_lock_acquire(&zone);
    sim_thread_become(1);
    platform_lock_acquire(&zone);
}
static void fence_under_a_depot(void *unused) {
    (void)unused;
    platform_lock_acquire(&depot);
    platform_fence_cpus();
}
static void nothing(void *unused) { (void)unused; }
static void start_under_a_lock(void *unused) {
    (void)unused;
    platform_lock_acquire(&depot);
    platform_thread_start(nothing, NULL);
}

static void misuse_dies(void **state) {
    (void)state;
    static const struct {
        void (*body)(void *);
        const char *text;
    } cases[] = {
        {take_depot_under_arena, "lock order: rank 6 taken while rank 9 is held"},
        {try_depot_under_arena, "lock order: rank 6 taken while rank 9 is held"},
        {take_two_of_a_rank, "lock order: rank 6 taken while rank 6 is held"},
        {take_after_releasing_the_lower, "lock order: rank 8 taken while rank 9 is held"},
        {take_twice, "taken again by the thread that holds it"},
        {release_free, "does not hold it"},
        {release_of_another, "does not hold it"},
        {take_rankless, "rank 0, which is none"},
        {wait_for_an_identity, "deadlock"},
        {fence_under_a_depot, "platform_fence_cpus: a lock of rank 6 is held"},
        {start_under_a_lock, "platform_thread_start: a lock of rank 6 is held"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        machine();
        assert_dies(cases[i].body, NULL, cases[i].text);
    }
}

static void each_identity_holds_its_own(void **state) {
    (void)state;
    machine();
    platform_lock_acquire(&arena);
    sim_thread_become(1);
    platform_lock_acquire(&depot); /* no order between threads */
    assert_false(platform_lock_try(&arena));
    assert_int_equal(sim_locks_held(), 1);
    platform_lock_release(&depot);
    sim_thread_become(0);
    assert_int_equal(sim_locks_held(), 1);
    platform_lock_release(&arena);
}

static void contended_locks_fail_tries(void **state) {
    (void)state;
    machine();
    sim_contend_lock(&depot, 2);
    for (unsigned i = 0; i < 2; i++) {
        assert_false(platform_lock_try(&depot));
        assert_false(platform_lock_try(&depot));
        platform_lock_acquire(&depot);
        assert_int_equal(sim_calls(SIM_LOCK_CONTENDED), i + 1);
        platform_lock_release(&depot);
    }
    assert_true(platform_lock_try(&depot));
    platform_lock_release(&depot);
    assert_int_equal(depot.word, 0);
    assert_int_equal(sim_calls(SIM_LOCK_CONTENDED), 2);
}

static void contention_can_begin_and_end(void **state) {
    (void)state;
    machine();
    platform_lock_acquire(&depot);
    sim_contend_lock(&depot, 1); /* from the release on */
    platform_lock_release(&depot);
    assert_false(platform_lock_try(&depot));
    sim_contend_lock(&zone, 1);
    sim_contend_lock(&depot, 0);
    assert_true(platform_lock_try(&depot));
    assert_false(platform_lock_try(&zone));
    platform_lock_release(&depot);
}

static void a_forked_child_starts_without_locks(void **state) {
    (void)state;
    machine();
    platform_lock_acquire(&depot);
    sim_thread_become(1);
    platform_lock_acquire(&zone);
    sim_fork_child();
    platform_lock_reset(&depot);
    platform_lock_reset(&zone);
    assert_int_equal(sim_locks_held(), 0);
    platform_lock_acquire(&depot);
    platform_lock_acquire(&zone);
    assert_int_equal(sim_locks_held(), 2);
}

static void take_depot(void *unused) {
    (void)unused;
    platform_lock_acquire(&depot);
}

/* Handlers of others run while a fork holds the locks, and may allocate. */
static void the_thread_that_forks_takes_what_it_holds(void **state) {
    (void)state;
    machine();
    platform_lock_hold(&depot);
    platform_lock_hold(&zone);
    platform_fork_begin();
    assert_false(platform_lock_try(&depot));
    platform_lock_acquire(&depot);
    platform_lock_acquire(&zone);
    assert_int_equal(depot.word, PLATFORM_LOCK_FORK_TAKEN);
    platform_lock_release(&zone);
    platform_lock_release(&depot);
    assert_int_equal(depot.word, PLATFORM_LOCK_FORK); /* not free: the fork still holds it */
    assert_int_equal(zone.word, PLATFORM_LOCK_FORK);
    sim_thread_become(1);
    assert_dies(take_depot, NULL, "deadlock: thread 1 waits for a lock of rank 6");
    sim_thread_become(0);
    platform_fork_end();
    platform_lock_unhold(&zone);
    platform_lock_unhold(&depot);
    sim_thread_become(1);
    platform_lock_acquire(&depot);
    platform_lock_release(&depot);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(locks_in_order_are_fine),
        cmocka_unit_test(misuse_dies),
        cmocka_unit_test(each_identity_holds_its_own),
        cmocka_unit_test(contended_locks_fail_tries),
        cmocka_unit_test(contention_can_begin_and_end),
        cmocka_unit_test(a_forked_child_starts_without_locks),
        cmocka_unit_test(the_thread_that_forks_takes_what_it_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
