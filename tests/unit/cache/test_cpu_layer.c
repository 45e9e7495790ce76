/*
 * test_cpu_layer.c - the arrays of the CPU layer on one CPU: what is freed last is handed out first; a miss moves half an array up and an
 * overflow half an array down, from and to the depot before the slabs, and leaves the order of objects as it was; the option
 * magazine_max bounds every array, and 0 leaves no caching at all.
 */
#include "unit/cache/cache_test.h"

static void *objects[2 * CACHE_ROUNDS_MAX + 2];

/* ------------------------------------------------------------------ the fast path */

static void what_is_freed_last_comes_first(void **state) {
    (void)state;
    build(2, 256);
    unsigned cache = cache_of(64);
    take_all(cache, objects, 3);
    uint64_t locks = sim_calls(SIM_LOCK_ACQUIRE);
    give_all(cache, objects, 3);
    for (int i = 2; i >= 0; i--) assert_ptr_equal(must_take(cache), objects[i]);
    assert_int_equal(sim_calls(SIM_LOCK_ACQUIRE), locks); /* and nobody was asked */
    give_all(cache, objects, 3);
    ASSERT_NOTHING_LEFT();
}

static void a_cpu_has_an_array_of_its_own(void **state) {
    (void)state;
    build(3, 256);
    unsigned cache = cache_of(64);
    void *first = must_take(cache);
    give(cache, first);
    sim_cpu_set(2);
    void *second = must_take(cache);
    assert_ptr_not_equal(first, second);
    give(cache, second);
    assert_int_equal(rounds_in(1, cache), 0);
    assert_int_equal(header_word_of(1, cache), 0); /* never touched */
    sim_cpu_set(0);
    assert_ptr_equal(must_take(cache), first);
    give(cache, first);
    ASSERT_NOTHING_LEFT();
}

static void arrays_of_all_caches_have_slots_of_their_own(void **state) {
    (void)state;
    build(2, 256);
    unsigned slot = SLAB_CACHE_END + CPU_AREA_WORDS; /* behind the headers */
    for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_MAGAZINES; cache++) {
        struct depot *depot = &caches.depots[cache];
        assert_int_equal(depot->bottom, 0);
        give(cache, must_take(cache));
        assert_int_equal(depot->bottom, slot); /* as they come into use, without a gap */
        slot = depot->bottom + depot->rounds_max;
        /* 64 KiB of small objects at most; 64 large ones, and 256 KiB of these; 2 rounds at least. They begin with 32 KiB of large ones. */
        assert_in_range(depot->rounds_max, 2, CACHE_ROUNDS_MAX);
        size_t object_bytes = slabs.caches[cache].object_bytes;
        assert_true(depot->rounds_max == 2 || depot->rounds_max * object_bytes <= (object_bytes <= 512 ? 64 : 256) * KIB);
        assert_true(object_bytes <= 512 || depot->rounds_max <= 64);
        assert_true(depot->rounds == 2 || depot->rounds * object_bytes <= (object_bytes <= 512 ? 64 : 32) * KIB);
        assert_in_range(depot->rounds, 2, depot->rounds_max);
        depot->rounds = depot->rounds_max;
    }
    cache_drain(&caches);
    assert_in_range(slot, 1, CPU_AREA_SLOTS);
    /* Every array to the brim; had two a slot in common, an object would come back as another cache's. */
    for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_MAGAZINES; cache++) {
        unsigned rounds = caches.depots[cache].rounds_max;
        hold_from_slabs(cache, objects, rounds);
        give_all(cache, objects, rounds);
        assert_int_equal(rounds_in(0, cache), rounds);
    }
    for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_MAGAZINES; cache++) {
        unsigned rounds = caches.depots[cache].rounds_max;
        for (unsigned i = 0; i < rounds; i++) objects[i] = cpu_pop(cache);
        for (unsigned i = 0; i < rounds; i++) assert_true(slab_is_object(&slabs, cache, objects[i]));
        assert_null(cpu_pop(cache));
        slab_free_batch(&slabs, cache, objects, rounds);
    }
    ASSERT_NOTHING_LEFT();
}

/* ------------------------------------------------------------------ misses */

static void a_miss_takes_half_an_array_from_slabs(void **state) {
    (void)state;
    build(2, 256);
    unsigned cache = cache_of(64), half = rounds_of(cache) / 2;
    uintptr_t last = (uintptr_t)must_take(cache);
    assert_int_equal(slab_stats_of(cache).in_use, half);
    assert_int_equal(rounds_in(0, cache), half - 1);
    assert_int_equal(header_of(0, cache).limit - header_of(0, cache).bottom, rounds_of(cache));
    ASSERT_SOUND();
    objects[0] = (void *)last;
    for (unsigned i = 1; i < half; i++) {
        objects[i] = must_take(cache);
        assert_true((uintptr_t)objects[i] > last); /* in address order */
        last = (uintptr_t)objects[i];
    }
    assert_int_equal(slab_allocs_of(cache), half);
    assert_int_equal(rounds_in(0, cache), 0);
    give_all(cache, objects, half);
    ASSERT_NOTHING_LEFT();
}

static void a_miss_asks_the_depot_first(void **state) {
    (void)state;
    build(2, 256);
    unsigned cache = cache_of(64), half = rounds_of(cache) / 2;
    assert_true(stock_depot(cache));
    uint64_t from_slabs = slab_allocs_of(cache);
    assert_int_equal(stats_of(cache).depot_magazines, 1);
    assert_int_equal(stats_of(cache).cached, half);
    take_all(cache, objects, half);
    assert_int_equal(slab_allocs_of(cache), from_slabs);
    assert_int_equal(stats_of(cache).depot_allocs, half);
    assert_int_equal(stats_of(cache).depot_magazines, 0);
    assert_int_equal(caches.depots[cache].empty.count, 1); /* the magazine waits there for the next overflow */
    objects[half] = must_take(cache);
    assert_true(slab_allocs_of(cache) > from_slabs);
    give_all(cache, objects, half + 1);
    ASSERT_NOTHING_LEFT();
}

/* ------------------------------------------------------------------ overflows */

/* So many objects held, and an open array with none. */
static void take_and_empty(unsigned cache, unsigned count) {
    take_all(cache, objects, count);
    cpu_layer_drain_own(&caches);
    assert_int_equal(rounds_in(0, cache), 0);
}

static void an_overflow_gives_half_an_array_to_the_depot(void **state) {
    (void)state;
    build(2, 256);
    unsigned cache = cache_of(64), rounds = rounds_of(cache);
    take_and_empty(cache, rounds + 1);
    uint64_t to_slabs = slab_stats_of(cache).frees;
    give_all(cache, objects, rounds);
    assert_int_equal(stats_of(cache).depot_magazines, 0);
    assert_int_equal(rounds_in(0, cache), rounds);
    give(cache, objects[rounds]);
    assert_int_equal(stats_of(cache).depot_magazines, 1);
    assert_int_equal(stats_of(cache).depot_frees, rounds / 2);
    assert_int_equal(rounds_in(0, cache), rounds / 2 + 1);
    assert_int_equal(slab_stats_of(cache).frees, to_slabs);
    ASSERT_NOTHING_LEFT();
}

static void order_survives_the_way_through_the_depot(void **state) {
    (void)state;
    build(2, 256);
    unsigned cache = cache_of(64), rounds = rounds_of(cache), half = rounds / 2;
    take_and_empty(cache, rounds + 1);
    give_all(cache, objects, rounds + 1);
    assert_ptr_equal(must_take(cache), objects[rounds]);
    for (unsigned i = half; i-- > 0;) assert_ptr_equal(must_take(cache), objects[i]);
    for (unsigned i = rounds; i-- > half;) assert_ptr_equal(must_take(cache), objects[i]);
    give_all(cache, objects, rounds + 1);
    ASSERT_NOTHING_LEFT();
}

/* In pieces of 16, so that no single free takes as long as half an array would. */
static void what_the_depot_refuses_goes_to_the_slabs(void **state) {
    (void)state;
    build(2, 256);
    unsigned cache = cache_of(64), rounds = rounds_of(cache), magazines = 0;
    while (stock_depot(cache)) magazines++;
    assert_in_range(magazines, 1, 32 * KIB / 64 / (rounds / 2) + 1); /* 32 KiB of objects may wait, and a magazine more */
    hold_from_slabs(cache, objects, rounds + 1);
    give_all(cache, objects, rounds);
    uint64_t to_slabs = slab_stats_of(cache).frees, to_depot = stats_of(cache).depot_frees;
    give(cache, objects[rounds]);
    assert_int_equal(slab_stats_of(cache).frees, to_slabs + 16);
    assert_int_equal(stats_of(cache).depot_frees, to_depot);
    assert_int_equal(stats_of(cache).depot_magazines, magazines);
    assert_int_equal(rounds_in(0, cache), rounds - 16 + 1);
    ASSERT_NOTHING_LEFT();
}

static void a_free_on_a_new_cpu_opens_its_array(void **state) {
    (void)state;
    build(2, 256);
    unsigned cache = cache_of(64);
    void *object = must_take(cache), *second = must_take(cache);
    sim_cpu_set(1);
    give(cache, object);
    assert_true(header_is_open(1, cache) && is_used(1));
    /* The first one would be the next one out, beside what CPU 0 has: it goes home. Others come in a row, and stay. */
    assert_int_equal(rounds_in(1, cache), 0);
    give(cache, second);
    assert_int_equal(rounds_in(1, cache), 1);
    assert_ptr_equal(must_take(cache), second);
    give(cache, second);
    ASSERT_NOTHING_LEFT();
}

/* ------------------------------------------------------------------ magazine_max */

static void churn(unsigned cache, unsigned longest, unsigned operations) {
    uint64_t random = 1;
    unsigned count = 0;
    for (unsigned i = 0; i < operations; i++) {
        bool up = count == 0 || (count < longest && next_random(&random) % 64 < (i / longest % 2 != 0 ? 24 : 40));
        if (up)
            objects[count++] = must_take(cache);
        else
            give(cache, objects[--count]);
        assert_true(rounds_in(0, cache) <= caches.depots[cache].rounds_max);
    }
    give_all(cache, objects, count);
}

static void magazine_max_bounds_every_array(void **state) {
    static const unsigned maxima[] = {1, 2, 3, 5, 31, 33, 100, 255, 256};
    (void)state;
    for (unsigned i = 0; i < ARRAY_LENGTH(maxima); i++) {
        build(2, maxima[i]);
        for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_MAGAZINES; cache += 9) {
            struct depot *depot = &caches.depots[cache];
            assert_in_range(depot->rounds_max, 1, maxima[i]);
            assert_in_range(depot->rounds, 1, depot->rounds_max);
            assert_true(MAGAZINE_ROUNDS(depot->kind) >= depot->rounds / 2u);
            depot->rounds = depot->rounds_max; /* as contention would */
            churn(cache, 2 * depot->rounds_max + 2, 1500);
            assert_true(stats_of(cache).cached > 0);
        }
        ASSERT_NOTHING_LEFT();
    }
}

static void without_magazines_every_operation_reaches_the_slabs(void **state) {
    (void)state;
    build(2, 0);
    uint64_t fences = sim_calls(SIM_FENCE);
    for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_MAGAZINES; cache += 7) {
        take_all(cache, objects, 10);
        assert_int_equal(slab_allocs_of(cache), 10);
        assert_int_equal(slab_stats_of(cache).in_use, 10);
        give_all(cache, objects, 10);
        assert_int_equal(slab_stats_of(cache).in_use, 0);
        assert_int_equal(slab_stats_of(cache).frees, 10);
        assert_int_equal(stats_of(cache).cached, 0);
        assert_int_equal(header_word_of(0, cache), 0);
    }
    cache_tick(&caches);
    cache_drain(&caches);
    assert_int_equal(sim_calls(SIM_FENCE), fences);
    assert_int_equal(cache_area_bytes(&caches), 0);
    ASSERT_NOTHING_LEFT();
}

static void the_layers_work_on_large_pages(void **state) {
    static const size_t pages[] = {16 * KIB, 64 * KIB};
    (void)state;
    for (unsigned i = 0; i < ARRAY_LENGTH(pages); i++) {
        const struct sim_config sim = {.cpus = 3, .page_bytes = pages[i], .arena_bytes = SMALL_ARENA_BYTES};
        assert_true(stack_build(&sim, 256, UINT64_MAX));
        for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_MAGAZINES; cache += 11) {
            sim_cpu_set(cache % 3);
            for (unsigned n = 0; n < 200; n++) objects[n] = must_take(cache);
            sim_cpu_set((cache + 1) % 3);
            give_all(cache, objects, 200);
        }
        ASSERT_NOTHING_LEFT();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_freed_last_comes_first),
        cmocka_unit_test(a_cpu_has_an_array_of_its_own),
        cmocka_unit_test(arrays_of_all_caches_have_slots_of_their_own),
        cmocka_unit_test(a_miss_takes_half_an_array_from_slabs),
        cmocka_unit_test(a_miss_asks_the_depot_first),
        cmocka_unit_test(an_overflow_gives_half_an_array_to_the_depot),
        cmocka_unit_test(order_survives_the_way_through_the_depot),
        cmocka_unit_test(what_the_depot_refuses_goes_to_the_slabs),
        cmocka_unit_test(a_free_on_a_new_cpu_opens_its_array),
        cmocka_unit_test(magazine_max_bounds_every_array),
        cmocka_unit_test(without_magazines_every_operation_reaches_the_slabs),
        cmocka_unit_test(the_layers_work_on_large_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
