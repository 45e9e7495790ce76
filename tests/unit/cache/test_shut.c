/*
 * test_shut.c - arrays of a cache that are shut: every operation is seen, as nothing is cached, whatever drains come by, until they are opened.
 */
#include "unit/cache/cache_test.h"

#define CPUS 3

/* Two caches with rounds in the array of each CPU; the first is shut then. */
static unsigned shut_one(unsigned *open) {
    unsigned shut = fill_cpus(CPUS, open);
    cache_shut(&caches, shut);
    return shut;
}

/* Every CPU comes by, and none keeps what is freed. */
static void assert_shut(unsigned cache) {
    for (unsigned cpu = 0; cpu < CPUS; cpu++) {
        sim_cpu_set(cpu);
        uint64_t allocs = slab_allocs_of(cache);
        void *object = must_take(cache);
        assert_int_equal(slab_allocs_of(cache), allocs + 1);
        give(cache, object);
        assert_false(header_is_open(cpu, cache));
        assert_int_equal(rounds_in(cpu, cache), 0);
    }
    assert_int_equal(stats_of(cache).cached, 0);
    sim_cpu_set(0);
    ASSERT_SOUND();
}

static void what_is_shut_keeps_nothing(void **state) {
    (void)state;
    unsigned open, shut = shut_one(&open);
    assert_int_equal(slab_stats_of(shut).in_use, 0);
    assert_shut(shut);
    for (unsigned cpu = 0; cpu < CPUS; cpu++) assert_true(header_is_open(cpu, open) && rounds_in(cpu, open) != 0);
    cache_open(&caches, shut);
    for (unsigned cpu = 0; cpu < CPUS; cpu++) {
        sim_cpu_set(cpu);
        give(shut, must_take(shut));
        assert_true(header_is_open(cpu, shut) && rounds_in(cpu, shut) != 0);
    }
    ASSERT_NOTHING_LEFT();
}

/* One that finds rounds of other caches, and one that can't take them and opens what it has closed. */
static void a_drain_opens_nothing_that_is_shut(void **state) {
    (void)state;
    for (unsigned refused = 0; refused < 2; refused++) {
        unsigned open, shut = shut_one(&open);
        sim_fail_only(UINT64_C(1) << SIM_FENCE);
        if (refused != 0) sim_fail_call(1, SIM_FOREVER);
        uint64_t fences = sim_calls(SIM_FENCE);
        cache_tick(&caches);
        cache_tick(&caches);
        assert_true(sim_calls(SIM_FENCE) > fences);
        assert_int_equal(header_is_open(1, open), refused != 0);
        assert_shut(shut);
        cache_drain(&caches);
        assert_shut(shut);
        sim_fail_call(0, 0);
        cache_open(&caches, shut);
        ASSERT_NOTHING_LEFT();
    }
}

/* With arrays of threads: the caller's own at once, those of others when they come by. */
static void each_thread_empties_its_own(void **state) {
    (void)state;
    const struct sim_config sim = {.cpus = 2, .arena_bytes = 8 * (uint64_t)GIB, .thread_mode = true};
    assert_true(stack_build(&sim, 256, UINT64_MAX));
    unsigned cache = cache_of(64);
    uint32_t ids[2];
    for (unsigned thread = 0; thread < 2; thread++) {
        sim_thread_become(thread);
        give(cache, must_take(cache));
        ids[thread] = platform_thread_id();
        assert_true(rounds_in(ids[thread], cache) != 0);
    }
    cache_shut(&caches, cache);
    assert_int_equal(rounds_in(ids[1], cache), 0);
    assert_int_equal(stats_of(cache).cached, rounds_in(ids[0], cache));
    sim_thread_become(0);
    give(cache, must_take(cache));
    assert_int_equal(stats_of(cache).cached, 0);
    ASSERT_SOUND();
    cache_open(&caches, cache);
    give(cache, must_take(cache));
    assert_true(rounds_in(ids[0], cache) != 0);
    ASSERT_NOTHING_LEFT();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_shut_keeps_nothing),
        cmocka_unit_test(a_drain_opens_nothing_that_is_shut),
        cmocka_unit_test(each_thread_empties_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
