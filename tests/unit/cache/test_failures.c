/*
 * test_failures.c - exhausted memory, and every platform call that fails, one at a time and from one on for good: an allocation may come to
 * nothing only when something failed, a free never fails, and no object, magazine or array is lost, whatever happened.
 */
#include "unit/cache/cache_test.h"

#define CPUS 2
#define OBJECTS 900

static void *objects[SLAB_CACHE_MAGAZINES][OBJECTS];
static unsigned counts[SLAB_CACHE_MAGAZINES];
static uint64_t refused; /* allocations that came to nothing */

static const size_t sizes[] = {16, 200, 1024, 9000, 32768};

static void up(unsigned cache, unsigned count) {
    while (count-- != 0 && counts[cache] < OBJECTS) {
        void *object = take(cache);
        if (object == NULL)
            refused++;
        else
            objects[cache][counts[cache]++] = object;
    }
}

static void down(unsigned cache, unsigned count) {
    while (count-- != 0 && counts[cache] != 0) give(cache, objects[cache][--counts[cache]]);
}

static void give_everything(void) {
    for (unsigned cache = 0; cache < SLAB_CACHE_MAGAZINES; cache++) down(cache, OBJECTS);
}

/* Misses, overflows, growth of arrays, ticks, drains and reaps on two CPUs. */
static void work(void) {
    for (unsigned round = 0; round < 6; round++)
        for (unsigned i = 0; i < ARRAY_LENGTH(sizes); i++) {
            unsigned cache = cache_of(sizes[i]), burst = sizes[i] < 1000 ? 300 : 40;
            sim_cpu_set(round % CPUS);
            up(cache, burst);
            sim_cpu_set((round + i) % CPUS);
            down(cache, burst - burst / 3);
            if (round == 2) stack_contend(cache);
            if (i == 2) cache_tick(&caches);
            if (i == 3 && round % 2 != 0) cache_drain(&caches);
            if (i == 4) cache_reap(&caches);
        }
}

static void begin(void) {
    memset(counts, 0, sizeof counts);
    refused = 0;
}

static void end(void) {
    sim_fail_call(0, 0);
    ASSERT_SOUND();
    give_everything();
    ASSERT_NOTHING_LEFT();
    const char *broken = zone_check(&zone);
    if (broken != NULL) fail_msg("%s", broken);
    /* And it works on. */
    refused = 0;
    work();
    assert_int_equal(refused, 0);
    give_everything();
    ASSERT_NOTHING_LEFT();
}

/* n = 0: nothing fails. Returns how many calls could have. */
static uint64_t run(const struct sim_config *sim, uint64_t n, uint64_t times) {
    begin();
    assert_true(stack_build(sim, 256, UINT64_MAX));
    sim_fail_call(n, times);
    uint64_t before = sim_failable_calls();
    work();
    uint64_t calls = sim_failable_calls() - before;
    if (n == 0) assert_int_equal(refused, 0);
    if (n != 0 && n <= calls) assert_true(sim_failures() != 0);
    if (refused != 0) assert_true(sim_failures() != 0);
    end();
    return calls;
}

static void every_call_fails(const struct sim_config *sim) {
    uint64_t calls = run(sim, 0, 0);
    assert_true(calls >= 10);
    for (uint64_t n = 1; n <= calls; n++) {
        run(sim, n, 1);
        run(sim, n, 3);
        run(sim, n, SIM_FOREVER);
    }
}

static void every_call_of_the_work_fails_once_and_for_good(void **state) {
    (void)state;
    every_call_fails(&(const struct sim_config){.cpus = CPUS, .arena_bytes = SMALL_ARENA_BYTES});
    every_call_fails(&(const struct sim_config){.cpus = CPUS, .arena_bytes = SMALL_ARENA_BYTES, .page_bytes = 64 * KIB});
}

/* Each thread takes an id, for which memory is committed. */
static void every_call_of_threads_fails(void **state) {
    const struct sim_config sim = {.cpus = CPUS, .arena_bytes = 4 * (uint64_t)GIB, .thread_mode = true};
    (void)state;
    for (uint64_t n = 0, calls = 1; n <= calls; n++) {
        begin();
        assert_true(stack_build(&sim, 256, UINT64_MAX));
        sim_fail_call(n, 2);
        uint64_t before = sim_failable_calls();
        for (unsigned thread = 0; thread < 6; thread++) {
            sim_thread_become(thread);
            for (unsigned i = 0; i < 3; i++) {
                up(cache_of(sizes[i]), 50);
                down(cache_of(sizes[i]), 40);
            }
            if (thread % 2 != 0) sim_thread_exit();
        }
        if (n == 0) calls = sim_failable_calls() - before;
        if (n == 0) assert_int_equal(refused, 0);
        for (unsigned thread = 0; thread < 6; thread += 2) {
            sim_thread_become(thread);
            sim_thread_exit();
        }
        sim_thread_become(6);
        end();
    }
}

static void every_call_of_the_set_up_fails(void **state) {
    (void)state;
    for (unsigned thread_mode = 0; thread_mode < 2; thread_mode++) {
        const struct sim_config sim = {.cpus = 70, .arena_bytes = 4 * (uint64_t)GIB, .thread_mode = thread_mode != 0};
        assert_true(stack_build(&sim, 256, UINT64_MAX));
        uint64_t all = sim_failable_calls(), failures = 0;
        for (uint64_t n = 1; n <= all; n++) {
            begin();
            assert_true(stack_build_slabs(&sim, UINT64_MAX));
            uint64_t reserved = sim_reserved_bytes();
            sim_fail_call(n, 1);
            if (!stack_build_caches(256)) {
                assert_int_equal(sim_reserved_bytes(), reserved); /* it has given back what it had */
                failures++;
                assert_true(stack_build_caches(256));
            }
            sim_fail_call(0, 0);
            up(cache_of(64), 100);
            end();
        }
        assert_true(failures >= 2); /* the reservation and the commit */
    }
}

/* ------------------------------------------------------------------ the limit */

static void an_exhausted_heap_works_on(void **state) {
    const struct sim_config sim = {.cpus = CPUS, .arena_bytes = SMALL_ARENA_BYTES};
    (void)state;
    for (unsigned limit_kib = 16; limit_kib <= 256; limit_kib += 20) {
        begin();
        assert_true(stack_build(&sim, 256, limit_kib * KIB));
        for (unsigned round = 0; round < 4; round++) {
            unsigned cache = cache_of(sizes[round]);
            refused = 0;
            while (refused == 0 && counts[cache] < OBJECTS) up(cache, 1);
            sim_cpu_set(round % 2); /* rounds of the other CPU: frees need no memory, not even for magazines */
            ASSERT_SOUND();
            down(cache, OBJECTS);
            ASSERT_SOUND();
            cache_drain(&caches);
        }
        give_everything();
        ASSERT_NOTHING_LEFT();
        struct zone_counters counters;
        zone_counters_get(&zone, &counters);
        assert_int_equal(counters.allocated, 0);
    }
}

static void rounds_go_to_slabs_where_no_magazine_can_be_had(void **state) {
    (void)state;
    build(1, 256);
    begin();
    unsigned cache = cache_of(64), m = rounds_of(cache);
    hold_from_slabs(cache, objects[cache], m + 1);
    zone.config.hard_limit_bytes = 0; /* not a page more */
    uint64_t to_slabs = slab_stats_of(cache).frees;
    give_all(cache, objects[cache], m + 1);
    assert_int_equal(caches.depots[cache].full.count, 0);
    assert_int_equal(slab_stats_of(cache).frees, to_slabs + m / 2);
    assert_int_equal(rounds_in(0, cache), m / 2 + 1);
    zone.config.hard_limit_bytes = UINT64_MAX;
    ASSERT_NOTHING_LEFT();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_of_the_work_fails_once_and_for_good),
        cmocka_unit_test(every_call_of_threads_fails),
        cmocka_unit_test(every_call_of_the_set_up_fails),
        cmocka_unit_test(an_exhausted_heap_works_on),
        cmocka_unit_test(rounds_go_to_slabs_where_no_magazine_can_be_had),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
