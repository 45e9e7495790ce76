/*
 * test_sim_cpu.c - virtual CPUs: sequences on them, interrupted at every store by every kind of interruption.
 */
#include "sim_test.h"
#include "sim_toy.h"

static char round_a, round_b;

static unsigned rounds_on(unsigned cpu) { return toys[cpu].top; }

static const struct sim_config four_cpus = {.cpus = 4};

static void sequences_use_the_current_cpu(void **state) {
    (void)state;
    toy_reset(&four_cpus);
    assert_true(toy_push(&round_a));
    sim_cpu_set(3);
    assert_int_equal(sim_cpu_id(), 3);
    assert_null(toy_pop());
    assert_true(toy_push(&round_b));
    sim_cpu_set(0);
    assert_ptr_equal(toy_pop(), &round_a);
    assert_int_equal(rounds_on(3), 1);
    sim_thread_become(9); /* a new identity is on CPU 0 */
    assert_int_equal(sim_cpu(), 0);
    sim_cpu_set(3);
    assert_ptr_equal(toy_pop(), &round_b);
    sim_thread_become(0);
    assert_int_equal(sim_cpu(), 0);
}

static void thread_mode_uses_the_thread_id(void **state) {
    (void)state;
    toy_reset(&(struct sim_config){.cpus = 4, .thread_mode = true});
    platform_thread_set_id(2);
    assert_int_equal(sim_cpu_id(), 2);
    assert_true(toy_push(&round_a));
    assert_int_equal(rounds_on(2), 1);
    sim_thread_become(1);
    assert_int_equal(sim_cpu_id(), 0);
}

static void points_stand_before_every_store(void **state) {
    (void)state;
    toy_reset(&four_cpus);
    toy_push(&round_a);
    assert_int_equal(sim_preempt_points(), 2);
    toy_pop();
    assert_int_equal(sim_preempt_points(), 3);
    toy_pop(); /* empty: no store */
    assert_int_equal(sim_preempt_points(), 3);
}

static void an_aborted_sequence_starts_again(void **state) {
    (void)state;
    for (uint64_t k = 1; k <= 2; k++) {
        toy_reset(&four_cpus);
        sim_preempt_at(k, 1);
        assert_true(toy_push(&round_a));
        assert_int_equal(sim_preempt_points(), 2 + k);
        assert_int_equal(rounds_on(0), 1);
        assert_ptr_equal(toy_pop(), &round_a);
    }
}

/* ------------------------------------------------------------------ hooks */

struct hook {
    unsigned calls;
    unsigned choice;
    unsigned cpu; /* to act as, or to migrate to */
    bool answer;
    void *round;
};

static bool push_there(void *context, unsigned choice) {
    struct hook *hook = context;
    hook->calls++;
    hook->choice = choice;
    sim_cpu_set(hook->cpu);
    assert_true(toy_push(hook->round));
    return hook->answer;
}
static bool migrate(void *context, unsigned choice) {
    (void)choice;
    sim_preempt_migrate(((struct hook *)context)->cpu);
    return false;
}
static bool close_and_fence(void *context, unsigned choice) {
    struct hook *hook = context;
    (void)choice;
    sim_thread_become(5);
    sim_cpu_set(1);
    toys[0].closed = true;
    assert_true(platform_fence_cpus());
    hook->calls++;
    return false;
}
static bool do_nothing(void *context, unsigned choice) {
    (void)choice;
    return ((struct hook *)context)->answer;
}

static void another_cpu_does_not_abort(void **state) {
    (void)state;
    toy_reset(&four_cpus);
    struct hook hook = {.cpu = 2, .round = &round_b};
    sim_preempt_set_hook(push_there, &hook, 3);
    sim_preempt_at(2, 4);
    assert_true(toy_push(&round_a));
    assert_int_equal(hook.calls, 1);
    assert_int_equal(hook.choice, 3);
    assert_int_equal(sim_preempt_points(), 4); /* 2 here, 2 there */
    assert_int_equal(sim_cpu(), 0);
    assert_int_equal(rounds_on(0), 1);
    assert_int_equal(rounds_on(2), 1);
}

static void the_same_cpu_aborts(void **state) {
    (void)state;
    for (uint64_t k = 1; k <= 2; k++) {
        toy_reset(&four_cpus);
        struct hook hook = {.cpu = 0, .round = &round_b};
        sim_preempt_set_hook(push_there, &hook, 1);
        sim_preempt_at(k, 2);
        assert_true(toy_push(&round_a));
        assert_int_equal(rounds_on(0), 2); /* one overwriting the other would leave 1 */
        assert_ptr_equal(toy_pop(), &round_a);
        assert_ptr_equal(toy_pop(), &round_b);
    }
}

static void a_hook_may_abort(void **state) {
    (void)state;
    struct hook hook = {.answer = true};
    toy_reset(&four_cpus);
    sim_preempt_set_hook(do_nothing, &hook, 1);
    sim_preempt_at(1, 2);
    toy_push(&round_a);
    assert_int_equal(sim_preempt_points(), 3);
    hook.answer = false;
    sim_preempt_at(1, 2);
    toy_push(&round_a);
    assert_int_equal(sim_preempt_points(), 5);
}

static void a_migrated_sequence_starts_elsewhere(void **state) {
    (void)state;
    toy_reset(&four_cpus);
    struct hook hook = {.cpu = 1};
    sim_preempt_set_hook(migrate, &hook, 1);
    sim_preempt_at(2, 2);
    assert_true(toy_push(&round_a));
    assert_int_equal(sim_cpu(), 1);
    assert_int_equal(rounds_on(0), 0);
    assert_int_equal(rounds_on(1), 1);
}

static void a_fence_aborts_and_is_seen(void **state) {
    (void)state;
    for (uint64_t k = 1; k <= 2; k++) {
        toy_reset(&four_cpus);
        struct hook hook = {0};
        sim_preempt_set_hook(close_and_fence, &hook, 1);
        sim_preempt_at(k, 2);
        assert_false(toy_push(&round_a)); /* the stack that it finds on its way back is closed */
        assert_int_equal(hook.calls, 1);
        assert_int_equal(rounds_on(0), 0);
        assert_int_equal(sim_calls(SIM_FENCE), 1);
        assert_int_equal(sim_thread(), 0);
    }
}

static void without_a_fence_the_sequence_goes_on(void **state) {
    (void)state;
    toy_reset(&(struct sim_config){.cpus = 4, .no_fence = true});
    assert_false(platform_fence_cpus());
    toy_reset(&(struct sim_config){.cpus = 4, .thread_mode = true});
    assert_false(platform_fence_cpus());
}

static void thread_mode_never_aborts(void **state) {
    (void)state;
    toy_reset(&(struct sim_config){.cpus = 4, .thread_mode = true});
    sim_preempt_at(1, 1);
    toy_push(&round_a);
    assert_int_equal(sim_preempt_points(), 2);
}

static void fence_hook(void *context) { ++*(unsigned *)context; }

static void the_fence_has_a_hook(void **state) {
    (void)state;
    unsigned calls = 0;
    toy_reset(&four_cpus);
    sim_fence_set_hook(fence_hook, &calls);
    assert_true(platform_fence_cpus());
    sim_fail_call(1, 1);
    assert_false(platform_fence_cpus());
    assert_int_equal(calls, 1);
}

static bool count_nested(void *context, unsigned choice) {
    struct hook *hook = context;
    hook->calls++;
    (void)choice;
    sim_cpu_set(1);
    toy_push(&round_b);
    return false;
}

static void hooks_do_not_nest(void **state) {
    (void)state;
    toy_reset(&four_cpus);
    struct hook hook = {0};
    sim_preempt_set_hook(count_nested, &hook, 1);
    sim_preempt_random(3, 999);
    toy_push(&round_a);
    sim_preempt_random(0, 0);
    assert_int_equal(rounds_on(0), 1);
    assert_true(hook.calls > 0);
    assert_int_equal(rounds_on(1), hook.calls);
}

/* The number of points of a random run tells runs apart. */
static uint64_t random_run(uint64_t seed) {
    toy_reset(&four_cpus);
    sim_preempt_random(seed, 400);
    for (unsigned i = 0; i < 200; i++) {
        assert_true(toy_push(&round_a));
        assert_ptr_equal(toy_pop(), &round_a);
    }
    return sim_preempt_points();
}

static void random_preemption_repeats(void **state) {
    (void)state;
    uint64_t points = random_run(1);
    assert_true(points > 600);
    assert_int_equal(random_run(1), points);
    bool differs = false;
    for (uint64_t seed = 2; seed < 6; seed++) differs |= random_run(seed) != points;
    assert_true(differs);
}

static void set_cpu_that_is_not_there(void *unused) {
    (void)unused;
    sim_cpu_set(4);
}
static void migrate_outside_of_a_hook(void *unused) {
    (void)unused;
    sim_preempt_migrate(1);
}
static void choose_what_is_not_there(void *unused) {
    (void)unused;
    sim_preempt_at(1, 2);
    toy_push(&round_a);
}

static void misuse_dies(void **state) {
    (void)state;
    toy_reset(&four_cpus);
    assert_dies(set_cpu_that_is_not_there, NULL, "there are 4");
    assert_dies(migrate_outside_of_a_hook, NULL, "only in a preemption hook");
    assert_dies(choose_what_is_not_there, NULL, "choice 2 of 2");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_use_the_current_cpu),
        cmocka_unit_test(thread_mode_uses_the_thread_id),
        cmocka_unit_test(points_stand_before_every_store),
        cmocka_unit_test(an_aborted_sequence_starts_again),
        cmocka_unit_test(another_cpu_does_not_abort),
        cmocka_unit_test(the_same_cpu_aborts),
        cmocka_unit_test(a_hook_may_abort),
        cmocka_unit_test(a_migrated_sequence_starts_elsewhere),
        cmocka_unit_test(a_fence_aborts_and_is_seen),
        cmocka_unit_test(without_a_fence_the_sequence_goes_on),
        cmocka_unit_test(thread_mode_never_aborts),
        cmocka_unit_test(the_fence_has_a_hook),
        cmocka_unit_test(hooks_do_not_nest),
        cmocka_unit_test(random_preemption_repeats),
        cmocka_unit_test(misuse_dies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
