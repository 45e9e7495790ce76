/*
 * test_sim_explore.c - the explorer: it runs every schedule once, finds planted races with the fewest choices, and repeats them.
 */
#include <stdlib.h>

#include "sim_test.h"
#include "sim_toy.h"

static char rounds[8];

static void machine(void) { toy_reset(&(struct sim_config){.cpus = 4}); }

/* ------------------------------------------------------------------ enumeration */

static unsigned lengths[64]; /* how often a run had that many points */

static const char *three_stores(void *context) {
    (void)context;
    machine();
    toy_push(&rounds[0]);
    toy_pop();
    lengths[sim_preempt_points()]++;
    return toys[0].top == 0 ? NULL : "a round is left over";
}

static void aborts_are_enumerated(void **state) {
    (void)state;
    memset(lengths, 0, sizeof lengths);
    struct sim_exploration exploration = {.scenario = three_stores, .deviations = 1, .aborts = true};
    assert_true(sim_explore(&exploration));
    /* none, and each of the three stores; an abort at the second one runs the first again */
    assert_int_equal(exploration.runs, 4);
    assert_int_equal(exploration.points, 5);
    exploration.deviations = 2;
    assert_true(sim_explore(&exploration));
    /*
     * Points after the one that is aborted: at the 1st, 3 more; at the 2nd, 3 more (push again); at the 3rd, 1 more (pop again):
     * with 7 pairs.
     */
    assert_int_equal(exploration.runs, 4 + 7);
    assert_string_equal(exploration.failure, "");
}

static void without_choices_there_is_one_run(void **state) {
    (void)state;
    struct sim_exploration exploration = {.scenario = three_stores, .deviations = 5};
    assert_true(sim_explore(&exploration));
    assert_int_equal(exploration.runs, 1);
}

static bool hook(void *context, unsigned choice) {
    ((unsigned *)context)[choice]++;
    return false;
}
static const char *with_hook(void *context) {
    machine();
    sim_preempt_set_hook(hook, context, 3);
    toy_push(&rounds[0]);
    return NULL;
}

static void hook_choices_are_enumerated(void **state) {
    (void)state;
    unsigned taken[4] = {0};
    struct sim_exploration exploration = {.scenario = with_hook, .context = taken, .deviations = 1};
    assert_true(sim_explore(&exploration));
    assert_int_equal(exploration.runs, 1 + 2 * 3);
    for (unsigned choice = 1; choice <= 3; choice++) assert_int_equal(taken[choice], 2);
}

static const char *ignoring(void *context) {
    (void)context;
    machine();
    sim_explore_ignore(true);
    toy_push(&rounds[0]);
    sim_explore_ignore(false);
    toy_pop();
    return NULL;
}

static void preparations_can_be_left_out(void **state) {
    (void)state;
    struct sim_exploration exploration = {.scenario = ignoring, .deviations = 1, .aborts = true};
    assert_true(sim_explore(&exploration));
    assert_int_equal(exploration.runs, 2);
}

static void the_number_of_runs_has_a_limit(void **state) {
    (void)state;
    struct sim_exploration exploration = {.scenario = three_stores, .deviations = 2, .aborts = true, .runs_limit = 6};
    assert_false(sim_explore(&exploration));
    assert_int_equal(exploration.runs, 6);
    assert_string_equal(exploration.failure, "");
}

/* ------------------------------------------------------------------ threads */

/* Orders of the letters that two threads of two steps each can give: all six. */
static char order[8];
static unsigned steps;
static char seen[32][8];
static unsigned seen_count;

static void two_steps(void *argument) {
    order[steps++] = *(const char *)argument;
    sim_yield();
    order[steps++] = *(const char *)argument;
}
static const char *two_threads(void *context) {
    static char a[] = "a", b[] = "b";
    (void)context;
    machine();
    memset(order, 0, sizeof order);
    steps = 0;
    sim_thread_start(0, two_steps, a);
    sim_thread_start(1, two_steps, b);
    if (!sim_run_threads()) return "a thread did not end";
    for (unsigned i = 0; i < seen_count; i++)
        if (strcmp(seen[i], order) == 0) return NULL;
    strcpy(seen[seen_count++], order);
    return NULL;
}

static void all_interleavings_are_seen(void **state) {
    (void)state;
    static const char *const all[] = {"aabb", "abab", "abba", "baab", "baba", "bbaa"};
    seen_count = 0;
    struct sim_exploration exploration = {.scenario = two_threads, .deviations = 3};
    assert_true(sim_explore(&exploration));
    assert_int_equal(seen_count, 6);
    for (unsigned i = 0; i < 6; i++) {
        bool found = false;
        for (unsigned j = 0; j < seen_count; j++) found |= strcmp(seen[j], all[i]) == 0;
        assert_true(found);
    }
}

/* A counter that is read and written in two steps loses updates, unless a lock guards it. */
static unsigned counter;
static struct platform_lock lock;

static void increment(void *argument) {
    bool locked = *(bool *)argument;
    if (locked) platform_lock_acquire(&lock);
    unsigned value = counter;
    sim_yield();
    counter = value + 1;
    if (locked) platform_lock_release(&lock);
}
static const char *three_increments(void *context) {
    machine();
    counter = 0;
    lock = (struct platform_lock)PLATFORM_LOCK_INIT(LOCK_RANK_DEPOT);
    for (unsigned i = 0; i < 3; i++) sim_thread_start(i, increment, context);
    if (!sim_run_threads()) return "a thread did not end";
    return counter == 3 ? NULL : "an update is lost";
}

static void a_race_is_found_and_repeats(void **state) {
    (void)state;
    bool locked = false;
    struct sim_exploration exploration = {.scenario = three_increments, .context = &locked, .deviations = 3};
    assert_false(sim_explore(&exploration));
    assert_non_null(strstr(exploration.failure, "an update is lost [choices: "));
    char *choices = strstr(exploration.failure, "choices: ") + strlen("choices: ");
    assert_null(strchr(choices, ' ')); /* one is enough, and then one is what it says */
    char again[64];
    strcpy(again, choices);
    again[strlen(again) - 1] = 0;
    assert_false(sim_explore_replay(&exploration, again));
    assert_non_null(strstr(exploration.failure, "an update is lost"));
    assert_true(sim_explore_replay(&exploration, ""));
    locked = true;
    assert_true(sim_explore(&exploration));
    assert_true(exploration.runs > 100);
}

/* ------------------------------------------------------------------ sequences in threads */

static void push_two(void *argument) {
    toy_push(argument);
    toy_push((char *)argument + 1);
}

static const char *check_rounds(unsigned cpu, unsigned expected) {
    unsigned found = 0;
    if (toys[cpu].top != expected) return "a push is lost";
    for (unsigned slot = 0; slot < expected; slot++) found |= 1u << ((char *)toys[cpu].slots[slot] - rounds);
    return bit_count(found) == expected ? NULL : "a round is there twice";
}

static const char *same_cpu(void *context) {
    (void)context;
    machine();
    sim_thread_start(2, push_two, &rounds[0]);
    sim_thread_start(2, push_two, &rounds[2]);
    if (!sim_run_threads()) return "a thread did not end";
    return check_rounds(2, 4);
}

static void threads_of_one_cpu_abort_each_other(void **state) {
    (void)state;
    struct sim_exploration exploration = {.scenario = same_cpu, .deviations = 3, .aborts = true};
    assert_true(sim_explore(&exploration));
    assert_string_equal(exploration.failure, "");
    assert_true(exploration.runs > 100);
}

/* In thread mode two threads with one id share an area that nothing protects: the explorer must see that go wrong. */
static const char *same_id(void *context) {
    (void)context;
    machine();
    platform_cpu_force_thread_mode();
    sim_thread_start(0, push_two, &rounds[0]); /* both have id 0 */
    sim_thread_start(1, push_two, &rounds[2]);
    if (!sim_run_threads()) return "a thread did not end";
    return check_rounds(0, 4);
}

static void unprotected_sequences_are_caught(void **state) {
    (void)state;
    struct sim_exploration exploration = {.scenario = same_id, .deviations = 2};
    assert_false(sim_explore(&exploration));
    assert_non_null(strstr(exploration.failure, "[choices:"));
}

/* A remote drain: close the stack, fence, and only then read the top. */
static unsigned drained;
static bool with_fence;

static void drain(void *argument) {
    (void)argument;
    toys[0].closed = true;
    if (with_fence) platform_fence_cpus();
    drained = toys[0].top;
    sim_yield();
    toys[0].top = 0;
}
static void push_three(void *argument) {
    for (unsigned i = 0; i < 3; i++) *(unsigned *)argument += toy_push(&rounds[i]);
}
static const char *drain_while_pushing(void *context) {
    unsigned pushed = 0;
    (void)context;
    machine();
    drained = 0;
    sim_thread_start(0, push_three, &pushed);
    sim_thread_start(1, drain, NULL);
    if (!sim_run_threads()) return "a thread did not end";
    return drained == pushed ? NULL : "the drain missed a round";
}

static void a_drain_needs_its_fence(void **state) {
    (void)state;
    struct sim_exploration exploration = {.scenario = drain_while_pushing, .deviations = 3, .aborts = true};
    with_fence = true;
    assert_true(sim_explore(&exploration));
    with_fence = false;
    assert_false(sim_explore(&exploration));
    assert_non_null(strstr(exploration.failure, "the drain missed a round"));
}

/* ------------------------------------------------------------------ what goes wrong */

static void take_crosswise(void *argument) {
    struct platform_lock **locks = argument;
    platform_lock_acquire(locks[0]);
    platform_lock_release(locks[0]);
    if (locks[1]->word != 0) platform_lock_acquire(locks[1]); /* only where the other thread is within */
    (void)sim_locks_held();
}
static struct platform_lock first, second;
static void hold_both(void *argument) {
    (void)argument;
    platform_lock_acquire(&first);
    platform_lock_acquire(&second);
    platform_lock_release(&second);
    platform_lock_release(&first);
}
static const char *dying(void *context) {
    struct platform_lock *locks[] = {&first, &second};
    (void)context;
    machine();
    first = (struct platform_lock)PLATFORM_LOCK_INIT(LOCK_RANK_DEPOT);
    second = (struct platform_lock)PLATFORM_LOCK_INIT(LOCK_RANK_ZONE);
    sim_thread_start(0, hold_both, NULL);
    sim_thread_start(1, take_crosswise, locks);
    sim_run_threads();
    return NULL;
}

static void death_in_a_thread_is_a_failure(void **state) {
    (void)state;
    struct sim_exploration exploration = {.scenario = dying, .deviations = 4};
    assert_false(sim_explore(&exploration));
    assert_non_null(strstr(exploration.failure, "ends while it holds a lock"));
    assert_true(sim_explore_replay(&exploration, ""));
}

static const char *unsteady(void *context) {
    machine();
    if (++*(unsigned *)context == 1) toy_push(&rounds[0]);
    return NULL;
}

static void scenarios_that_differ_are_noticed(void **state) {
    (void)state;
    unsigned runs = 0;
    struct sim_exploration exploration = {.scenario = unsteady, .context = &runs};
    assert_true(sim_explore_replay(&exploration, ""));
    assert_false(sim_explore_replay(&exploration, "1:1"));
    assert_non_null(strstr(exploration.failure, "differs between runs"));
}

static void after_an_exploration_all_is_quiet(void **state) {
    (void)state;
    struct sim_exploration exploration = {.scenario = three_stores, .deviations = 1, .aborts = true};
    assert_true(sim_explore(&exploration));
    machine();
    toy_push(&rounds[0]);
    assert_int_equal(sim_preempt_points(), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(aborts_are_enumerated),
        cmocka_unit_test(without_choices_there_is_one_run),
        cmocka_unit_test(hook_choices_are_enumerated),
        cmocka_unit_test(preparations_can_be_left_out),
        cmocka_unit_test(the_number_of_runs_has_a_limit),
        cmocka_unit_test(all_interleavings_are_seen),
        cmocka_unit_test(a_race_is_found_and_repeats),
        cmocka_unit_test(threads_of_one_cpu_abort_each_other),
        cmocka_unit_test(unprotected_sequences_are_caught),
        cmocka_unit_test(a_drain_needs_its_fence),
        cmocka_unit_test(death_in_a_thread_is_a_failure),
        cmocka_unit_test(scenarios_that_differ_are_noticed),
        cmocka_unit_test(after_an_exploration_all_is_quiet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
