/*
 * test_drain.c - taking the rounds of other CPUs: all of them on demand, those of idle CPUs by time. A drained array has lost nothing, is
 * marked so, and is opened again by its owner only; where no fence can be had nothing is taken and nothing changes; any CPU can get the
 * last object that there is. What happens between two stores of the owner is in test_interleave.c.
 */
#include "unit/cache/cache_test.h"

#define CPUS 4

static void *objects[2 * CACHE_ROUNDS_MAX];

static uint32_t upper_of(unsigned area, unsigned cache) { return (uint32_t)(header_word_of(area, cache) >> 32); }

static void a_drain_takes_the_rounds_of_every_cpu(void **state) {
    (void)state;
    unsigned second, cache = fill_cpus(CPUS, &second);
    assert_true(stock_depot(cache));
    cache_drain(&caches);
    for (unsigned cpu = 0; cpu < CPUS; cpu++) {
        assert_int_equal(rounds_in(cpu, cache), 0);
        assert_int_equal(rounds_in(cpu, second), 0);
    }
    assert_int_equal(slab_stats_of(cache).in_use, 0);
    assert_int_equal(slab_stats_of(second).in_use, 0);
    assert_int_equal(slab_stats_of(cache).slabs, 0);
    assert_int_equal(sim_calls(SIM_FENCE), CPUS); /* one for all arrays of a CPU */
    assert_int_equal(caches.drains, CPUS);
    ASSERT_SOUND();
    /* Nothing more to take: no fence either. */
    cache_drain(&caches);
    assert_int_equal(sim_calls(SIM_FENCE), CPUS);
    ASSERT_NOTHING_LEFT();
}

static void a_drained_array_is_opened_by_its_owner_only(void **state) {
    (void)state;
    unsigned second, cache = fill_cpus(CPUS, &second);
    sim_cpu_set(1);
    void *object = must_take(cache);
    cache_drain(&caches);
    for (unsigned cpu = 0; cpu < CPUS; cpu++) assert_int_equal(upper_of(cpu, cache), CPU_DRAINED);
    /* Others work, and drain again and again: CPU 1 stays as it is. */
    sim_cpu_set(2);
    give(cache, must_take(cache));
    cache_tick(&caches);
    cache_tick(&caches);
    cache_drain(&caches);
    cache_reap(&caches);
    assert_int_equal(upper_of(1, cache), CPU_DRAINED);
    assert_int_equal(upper_of(3, second), CPU_DRAINED);
    /* To the sequences it is empty and full. */
    sim_cpu_set(1);
    assert_null(cpu_pop(cache));
    assert_false(cpu_push(cache, object));
    void *batch[1] = {object};
    assert_int_equal(cpu_pop_batch(cache, batch, 1), 0);
    assert_int_equal(cpu_push_batch(cache, batch, 1), 0);
    assert_int_equal(upper_of(1, cache), CPU_DRAINED);
    /* By a free and by an allocation. */
    give(cache, object);
    assert_true(header_is_open(1, cache));
    assert_int_equal(rounds_in(1, cache), 1);
    assert_int_equal(upper_of(1, second), CPU_DRAINED); /* an array at a time */
    sim_cpu_set(3);
    give(second, must_take(second));
    assert_true(header_is_open(3, second) && rounds_in(3, second) != 0);
    ASSERT_SOUND();
    ASSERT_NOTHING_LEFT();
}

static void a_drained_array_is_reopened_with_the_m_of_now(void **state) {
    (void)state;
    unsigned second, cache = fill_cpus(CPUS, &second);
    struct depot *depot = &caches.depots[cache];
    cache_drain(&caches);
    stack_contend(cache);
    depot_tick(&caches, cache, false);
    assert_int_equal(depot->rounds, depot->rounds_max);
    give(cache, must_take(cache));
    assert_int_equal(header_of(0, cache).limit, depot->bottom + depot->rounds_max);
    assert_true(rounds_in(0, cache) != 0);
    ASSERT_NOTHING_LEFT();
}

/* ------------------------------------------------------------------ by time */

static void only_idle_cpus_are_drained_by_time(void **state) {
    (void)state;
    unsigned second, cache = fill_cpus(CPUS, &second);
    unsigned filled = rounds_in(1, cache), filled_second = rounds_in(1, second);
    cache_tick(&caches);
    for (unsigned cpu = 0; cpu < CPUS; cpu++) assert_int_equal(rounds_in(cpu, cache), filled); /* they worked since the start */
    /* CPU 2 takes one of the one cache only: all its arrays stay. */
    sim_cpu_set(2);
    void *object = must_take(cache);
    uint64_t fences = sim_calls(SIM_FENCE);
    sim_cpu_set(0);
    cache_tick(&caches);
    assert_int_equal(rounds_in(1, cache), 0);
    assert_int_equal(rounds_in(3, second), 0);
    assert_int_equal(rounds_in(2, cache), filled - 1);
    assert_int_equal(rounds_in(2, second), filled_second);
    assert_int_equal(sim_calls(SIM_FENCE) - fences, CPUS - 1);
    ASSERT_SOUND();
    /* What was drained is left alone, and comes back to work. */
    sim_cpu_set(1);
    give(cache, must_take(cache));
    cpu_layer_drain_own(&caches);
    give(cache, object);
    cache_tick(&caches);
    assert_int_equal(rounds_in(1, cache), 1);
    assert_int_equal(rounds_in(2, cache), 0);
    cache_tick(&caches);
    assert_int_equal(rounds_in(1, cache), 0);
    ASSERT_NOTHING_LEFT();
}

/* ------------------------------------------------------------------ without a fence */

static void nothing_is_taken_without_a_fence(void **state) {
    (void)state;
    unsigned second, cache = fill_cpus(CPUS, &second);
    uint64_t words[CPUS], second_words[CPUS], in_use = slab_stats_of(cache).in_use;
    for (unsigned cpu = 0; cpu < CPUS; cpu++) {
        words[cpu] = header_word_of(cpu, cache);
        second_words[cpu] = header_word_of(cpu, second);
    }
    sim_fail_call(1, SIM_FOREVER);
    cache_tick(&caches);
    cache_tick(&caches);
    assert_true(sim_calls(SIM_FENCE) >= CPUS);
    for (unsigned cpu = 0; cpu < CPUS; cpu++) {
        assert_int_equal(header_word_of(cpu, cache), words[cpu]);
        assert_int_equal(header_word_of(cpu, second), second_words[cpu]);
    }
    assert_int_equal(slab_stats_of(cache).in_use, in_use);
    cache_drain(&caches); /* the own CPU's rounds come by ordinary pops */
    assert_int_equal(rounds_in(0, cache), 0);
    assert_int_equal(slab_stats_of(cache).in_use, in_use / CPUS * (CPUS - 1));
    ASSERT_SOUND();
    sim_fail_call(0, 0);
    ASSERT_NOTHING_LEFT();
}

static void a_drain_that_fails_half_way_has_done_half(void **state) {
    (void)state;
    for (unsigned n = 1; n <= CPUS; n++) {
        unsigned second, cache = fill_cpus(CPUS, &second), drained = 0;
        sim_fail_call(n, 1);
        cache_drain(&caches);
        for (unsigned cpu = 0; cpu < CPUS; cpu++) {
            bool is_drained = upper_of(cpu, cache) == CPU_DRAINED;
            assert_true(is_drained ? rounds_in(cpu, cache) == 0 : header_is_open(cpu, cache));
            assert_int_equal(is_drained, upper_of(cpu, second) == CPU_DRAINED);
            drained += is_drained;
        }
        assert_int_equal(drained, CPUS - 1);
        ASSERT_SOUND();
        ASSERT_NOTHING_LEFT();
    }
}

/* The array has more rounds than it would have room for now: it is opened again with what m is. */
static void a_failed_drain_after_m_has_fallen(void **state) {
    (void)state;
    unsigned second, cache = fill_cpus(CPUS, &second);
    struct depot *depot = &caches.depots[cache];
    unsigned m = depot->rounds;
    sim_cpu_set(1);
    take_all(cache, objects, 2 * m);
    give_all(cache, objects, 2 * m);
    unsigned filled = rounds_in(1, cache);
    assert_true(filled > m / 2);
    depot->rounds = depot->rounds_start = (uint16_t)(m / 4);
    sim_cpu_set(0);
    sim_fail_call(1, SIM_FOREVER);
    cache_tick(&caches);
    cache_tick(&caches);
    sim_fail_call(0, 0);
    assert_true(header_is_open(1, cache));
    assert_int_equal(rounds_in(1, cache), filled);
    ASSERT_SOUND();
    sim_cpu_set(1);
    take_all(cache, objects, m);
    ASSERT_SOUND();
    give_all(cache, objects, m);
    ASSERT_SOUND();
    ASSERT_NOTHING_LEFT();
}

/* ------------------------------------------------------------------ areas */

static void areas_that_were_never_used_are_left_alone(void **state) {
    (void)state;
    build(130, 256);
    unsigned cache = cache_of(64);
    assert_int_equal(cache_area_bytes(&caches), 0);
    static const unsigned cpus[] = {0, 63, 64, 129}; /* at the edges of the map's words */
    for (unsigned i = 0; i < ARRAY_LENGTH(cpus); i++) {
        sim_cpu_set(cpus[i]);
        give(cache, must_take(cache));
        assert_int_equal(cache_area_bytes(&caches), (i + 1) * CPU_AREA_BYTES);
    }
    sim_cpu_set(5);
    cache_drain(&caches);
    assert_int_equal(sim_calls(SIM_FENCE), ARRAY_LENGTH(cpus));
    for (unsigned i = 0; i < ARRAY_LENGTH(cpus); i++) assert_int_equal(rounds_in(cpus[i], cache), 0);
    for (unsigned cpu = 6; cpu < 63; cpu++) assert_int_equal(sim_populated_pages(cpu_area_at(cpu), CPU_AREA_BYTES), 0);
    ASSERT_NOTHING_LEFT();
}

static void any_cpu_gets_the_last_object(void **state) {
    (void)state;
    const struct sim_config sim = {.cpus = 2, .arena_bytes = SMALL_ARENA_BYTES};
    assert_true(stack_build(&sim, 256, 64 * KIB));
    unsigned cache = cache_of(1024);
    static void *all[80];
    unsigned count = 0;
    while (count < 80 && (all[count] = take(cache)) != NULL) count++;
    assert_in_range(count, 32, 79); /* the limit, not the test's array, was the end */
    give_all(cache, all, 8);
    assert_true(rounds_in(0, cache) >= 8);
    sim_cpu_set(1);
    assert_null(take(cache));
    cache_drain(&caches);
    take_all(cache, all, 8);
    assert_null(take(cache));
    ASSERT_SOUND();
    give_all(cache, all, count);
    ASSERT_NOTHING_LEFT();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_drain_takes_the_rounds_of_every_cpu),
        cmocka_unit_test(a_drained_array_is_opened_by_its_owner_only),
        cmocka_unit_test(a_drained_array_is_reopened_with_the_m_of_now),
        cmocka_unit_test(only_idle_cpus_are_drained_by_time),
        cmocka_unit_test(nothing_is_taken_without_a_fence),
        cmocka_unit_test(a_drain_that_fails_half_way_has_done_half),
        cmocka_unit_test(a_failed_drain_after_m_has_fallen),
        cmocka_unit_test(areas_that_were_never_used_are_left_alone),
        cmocka_unit_test(any_cpu_gets_the_last_object),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
