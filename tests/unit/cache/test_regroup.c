/*
 * test_regroup.c - lists of rounds that are no magazine (kmem paper, 3.3.2): what idle CPUs leave becomes full magazines, so that nobody
 * has to take less than half an array from the depot; what is left over is there when memory ends, and goes to the slabs with time.
 */
#include "unit/cache/cache_test.h"

static void *objects[4 * CACHE_ROUNDS_MAX];

static unsigned build_for(size_t bytes) {
    build(4, 256);
    return cache_of(bytes);
}

/* Somebody came to the depot in this interval, so that it takes what comes. */
static void visit(unsigned cache) { depot_give_empty(&caches, &caches.depots[cache], depot_take_empty(&caches, &caches.depots[cache])); }

/* Rounds of the slabs, given to the depot as one list. */
static void give_odd(unsigned cache, unsigned count) {
    visit(cache);
    hold_from_slabs(cache, objects, count);
    for (unsigned i = 0; i < count; i++) *(uint64_t *)objects[i] = 0;
    held[cache] -= count;
    depot_give_odd(&caches, cache, objects, count);
}

static unsigned bucket_of(unsigned cache) { return caches.depots[cache].bucket != NULL ? caches.depots[cache].bucket->count : 0; }

/* ------------------------------------------------------------------ grouping */

static void odd_lists_become_full_magazines(void **state) {
    (void)state;
    for (unsigned part = 1; part <= 70; part += 3) {
        unsigned cache = build_for(64), half = rounds_of(cache) / 2, given = 0;
        const struct depot *depot = &caches.depots[cache];
        assert_true(depot->full_max >= 4);
        while (given < 3 * half) {
            give_odd(cache, part);
            given += part;
            assert_int_equal(depot->full.count, given / half);
            assert_int_equal(bucket_of(cache), given % half);
            for (const struct magazine *magazine = depot->full.first; magazine != NULL; magazine = magazine->next)
                assert_int_equal(magazine->count, half);
            ASSERT_SOUND();
        }
        ASSERT_NOTHING_LEFT();
    }
}

static void a_list_of_many_magazines_is_cut(void **state) {
    (void)state;
    unsigned cache = build_for(64), half = rounds_of(cache) / 2;
    struct depot *depot = &caches.depots[cache];
    give_odd(cache, 3 * half + 5);
    assert_int_equal(depot->full.count, 3);
    for (const struct magazine *magazine = depot->full.first; magazine != NULL; magazine = magazine->next) assert_int_equal(magazine->count, half);
    assert_int_equal(bucket_of(cache), 5);
    assert_int_equal(stats_of(cache).cached, 3 * half + 5);
    assert_int_equal(stats_of(cache).depot_frees, 3 * half);
    ASSERT_NOTHING_LEFT();
}

static void no_more_than_the_depot_may_hold(void **state) {
    (void)state;
    unsigned cache = build_for(1024), half = rounds_of(cache) / 2;
    struct depot *depot = &caches.depots[cache];
    unsigned full_max = depot->full_max;
    assert_true((full_max + 3) * half < ARRAY_LENGTH(objects));
    give_odd(cache, (full_max + 3) * half - 1);
    assert_int_equal(depot->full.count, full_max);
    assert_int_equal(bucket_of(cache), 0);
    assert_int_equal(slab_stats_of(cache).in_use, full_max * half);
    ASSERT_NOTHING_LEFT();
}

static void a_bucket_follows_m(void **state) {
    (void)state;
    unsigned cache = build_for(64), m = rounds_of(cache);
    struct depot *depot = &caches.depots[cache];
    give_odd(cache, m / 4 + 1);
    /* m has fallen below what is in it: it is full. */
    depot->rounds = (uint16_t)(m / 4);
    depot->kind--;
    give_odd(cache, 1);
    assert_int_equal(depot->full.count, 1);
    assert_int_equal(depot->full.first->count, m / 4 + 1);
    assert_int_equal(bucket_of(cache), 1);
    /* m has grown beyond what it can hold: it is full when it is full. */
    depot->rounds = (uint16_t)(2 * m);
    depot->kind = (uint16_t)(depot->kind + 2);
    struct magazine *first = depot_take_full(&caches, depot);
    unsigned capacity = magazine_capacity(depot->bucket);
    assert_true(capacity < m);
    give_odd(cache, capacity + 2);
    assert_int_equal(depot->full.first->count, capacity);
    assert_int_equal(bucket_of(cache), 3);
    assert_true(depot_give_full(&caches, depot, first));
    ASSERT_NOTHING_LEFT();
}

static void without_memory_for_a_bucket_they_go_to_the_slabs(void **state) {
    (void)state;
    const struct sim_config sim = {.cpus = 2, .arena_bytes = SMALL_ARENA_BYTES};
    assert_true(stack_build(&sim, 256, 64 * KIB));
    unsigned cache = cache_of(1024), count = 0;
    while (count < 80 && slab_alloc_batch(&slabs, cache, &objects[count], 1) == 1) count++;
    assert_in_range(count, 32, 79); /* nothing is left, not for a magazine either */
    caches.depots[cache].visits++;  /* as though somebody had come */
    depot_give_odd(&caches, cache, objects, count);
    assert_int_equal(stats_of(cache).cached, 0);
    assert_int_equal(slab_stats_of(cache).in_use, 0);
    ASSERT_NOTHING_LEFT();
}

/* ------------------------------------------------------------------ where they come from */

/* By period: what an idle CPU has goes to others where these ask for it, else to the slabs. */
static void idle_cpus_serve_those_that_work(void **state) {
    (void)state;
    for (unsigned wanted = 0; wanted < 2; wanted++) {
        unsigned cache = build_for(64), half = rounds_of(cache) / 2;
        sim_cpu_set(1);
        give(cache, must_take(cache));
        sim_cpu_set(0);
        cache_tick(&caches);
        assert_int_equal(rounds_in(1, cache), half); /* it was at work in this interval */
        if (wanted) visit(cache);
        cache_tick(&caches);
        assert_int_equal(rounds_in(1, cache), 0);
        assert_int_equal(stats_of(cache).cached, wanted ? half : 0);
        assert_int_equal(slab_stats_of(cache).in_use, wanted ? half : 0);
        assert_int_equal(caches.depots[cache].full.count, wanted);
        ASSERT_SOUND();
        cache_tick(&caches); /* nobody came for it */
        assert_int_equal(slab_stats_of(cache).in_use, 0);
        ASSERT_NOTHING_LEFT();
    }
}

static void full_drains_go_to_the_slabs(void **state) {
    (void)state;
    unsigned cache = build_for(64);
    sim_cpu_set(1);
    give(cache, must_take(cache));
    sim_cpu_set(0);
    visit(cache);
    cpu_layer_drain(&caches, false);
    assert_int_equal(slab_stats_of(cache).in_use, 0);
    ASSERT_NOTHING_LEFT();
}

/* ------------------------------------------------------------------ and where they go */

static void nobody_takes_less_than_half_an_array_while_there_is_memory(void **state) {
    (void)state;
    unsigned cache = build_for(64), half = rounds_of(cache) / 2;
    give_odd(cache, half - 1);
    uint64_t from_slabs = slab_stats_of(cache).allocs;
    give(cache, must_take(cache));
    assert_true(slab_stats_of(cache).allocs > from_slabs);
    assert_int_equal(stats_of(cache).depot_allocs, 0);
    assert_int_equal(bucket_of(cache), half - 1);
    ASSERT_NOTHING_LEFT();
}

static void the_last_objects_are_in_reach_of_any_cpu(void **state) {
    (void)state;
    const struct sim_config sim = {.cpus = 2, .arena_bytes = SMALL_ARENA_BYTES};
    assert_true(stack_build(&sim, 256, 64 * KIB));
    unsigned cache = cache_of(1024), count = 0;
    give_odd(cache, 3);
    sim_cpu_set(1);
    while (count < 80 && (objects[count] = take(cache)) != NULL) count++;
    assert_in_range(count, 32, 79);
    assert_int_equal(bucket_of(cache), 0);
    assert_null(caches.depots[cache].bucket);
    assert_int_equal(slab_stats_of(cache).in_use, count); /* none is left anywhere */
    ASSERT_SOUND();
    give_all(cache, objects, count);
    ASSERT_NOTHING_LEFT();
}

static void what_nobody_adds_to_goes_with_time(void **state) {
    (void)state;
    unsigned cache = build_for(64);
    give_odd(cache, 5);
    cache_tick(&caches);
    assert_int_equal(bucket_of(cache), 5); /* it came in this interval */
    give_odd(cache, 2);
    cache_tick(&caches);
    assert_int_equal(bucket_of(cache), 7);
    cache_tick(&caches);
    assert_null(caches.depots[cache].bucket);
    assert_int_equal(slab_stats_of(cache).in_use, 0);
    assert_int_equal(slab_stats_of(SLAB_CACHE_MAGAZINES + caches.depots[cache].kind).in_use, 0);
    /* Before the heap grows: at once. */
    give_odd(cache, 5);
    cache_reap(&caches);
    assert_int_equal(slab_stats_of(cache).in_use, 0);
    ASSERT_NOTHING_LEFT();
}

static void a_broken_bucket_is_found(void **state) {
    (void)state;
    unsigned cache = build_for(64);
    give_odd(cache, 5);
    struct magazine *bucket = caches.depots[cache].bucket;
    bucket->count = 0;
    assert_string_equal(cache_check(&caches), "depot: a bucket that is empty or full");
    bucket->count = magazine_capacity(bucket);
    assert_string_equal(cache_check(&caches), "depot: a bucket that is empty or full");
    bucket->count = 5;
    ASSERT_NOTHING_LEFT();
}

/* ------------------------------------------------------------------ all orders of two threads */

static unsigned explored;

static void leave_rounds(void *argument) {
    void *mine[3];
    unsigned count = (unsigned)(uintptr_t)argument;
    for (unsigned i = 0; i < count; i++) mine[i] = take(explored);
    for (unsigned i = 0; i < count; i++) {
        *(uint64_t *)mine[i] = 0;
        held[explored]--;
    }
    depot_give_odd(&caches, explored, mine, count);
}

static void tick_and_take(void *argument) {
    (void)argument;
    depot_tick(&caches, explored, false);
    struct magazine *odd = depot_take_odd(&caches, &caches.depots[explored]);
    if (odd == NULL) return;
    slab_free_batch(&slabs, explored, odd->rounds, odd->count);
    depot_give_empty(&caches, &caches.depots[explored], odd);
}

static const char *scenario(void *context) {
    (void)context;
    const struct sim_config sim = {.cpus = 3, .arena_bytes = SMALL_ARENA_BYTES};
    if (!stack_build(&sim, 256, UINT64_MAX)) return "no memory";
    explored = cache_of(64);
    stack_set_rounds(explored, 8, 8);
    sim_thread_start(0, leave_rounds, (void *)(uintptr_t)3);
    sim_thread_start(1, leave_rounds, (void *)(uintptr_t)2);
    sim_thread_start(2, tick_and_take, NULL);
    if (!sim_run_threads()) return "a thread waits for ever";
    const char *wrong = stack_check();
    return wrong != NULL ? wrong : stack_check_drained();
}

static void no_order_loses_a_round(void **state) {
    (void)state;
    struct sim_exploration exploration = {.scenario = scenario, .deviations = 2};
    bool ok = sim_explore(&exploration);
    if (!ok) fail_msg("%s", exploration.failure);
    assert_true(exploration.runs > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_lists_become_full_magazines),
        cmocka_unit_test(a_list_of_many_magazines_is_cut),
        cmocka_unit_test(no_more_than_the_depot_may_hold),
        cmocka_unit_test(a_bucket_follows_m),
        cmocka_unit_test(without_memory_for_a_bucket_they_go_to_the_slabs),
        cmocka_unit_test(idle_cpus_serve_those_that_work),
        cmocka_unit_test(full_drains_go_to_the_slabs),
        cmocka_unit_test(nobody_takes_less_than_half_an_array_while_there_is_memory),
        cmocka_unit_test(the_last_objects_are_in_reach_of_any_cpu),
        cmocka_unit_test(what_nobody_adds_to_goes_with_time),
        cmocka_unit_test(a_broken_bucket_is_found),
        cmocka_unit_test(no_order_loses_a_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
