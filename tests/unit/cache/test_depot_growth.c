/*
 * test_depot_growth.c - src/cache/depot_rounds.c: arrays that are found empty again and again become larger, as long as all of them together grow by
 * a small share of the heap only; and larger at once where objects cycle, whose memory is there as it is (docs/decisions.md, 135).
 */
#include "unit/cache/cache_test.h"

#define GROWTH_MISSES 32
#define GROWTH_BYTES_MIN (4 * MIB)

/* So many times an object is taken with the array empty; all go back to the slabs, so that neither array nor depot has anything afterwards. */
static void miss(unsigned cache, unsigned times) {
    while (times-- != 0) {
        void *object = cache_alloc(&caches, cache);
        assert_non_null(object);
        slab_free_batch(&slabs, cache, &object, 1);
        cpu_layer_drain_own(&caches);
    }
}

static void the_thirty_second_miss_doubles_m(void **state) {
    (void)state;
    unsigned cache;
    const struct depot *depot = build_depot(&cache, 1024);
    unsigned m = depot->rounds;
    assert_int_equal(m, 32);
    for (; m < depot->rounds_max; m *= 2) {
        miss(cache, GROWTH_MISSES - 1);
        assert_int_equal(depot->rounds, m);
        miss(cache, 1);
        assert_int_equal(depot->rounds, 2 * m);
        assert_true(MAGAZINE_ROUNDS(depot->kind) == m);
    }
    assert_int_equal(m, 64);
    miss(cache, GROWTH_MISSES);
    assert_int_equal(depot->rounds, 64);
    assert_int_equal(caches.grown_bytes, (64 - 32) * 1024);
    ASSERT_NOTHING_LEFT();
}

/* What a shelf hands out counts as well: there the depot is not asked. */
static void shelves_count_misses_too(void **state) {
    (void)state;
    unsigned cache;
    static void *objects[400];
    const struct depot *depot = build_depot(&cache, 1024);
    share_depot(cache);
    caches.depots[cache].full_max = 100;
    caches.grown_bytes += 256 * KIB; /* for rounds that may be others' there is no more room, for its own there is */
    for (unsigned round = 0; round < 40 && depot->rounds == 32; round++) {
        take_all(cache, objects, 80);
        give_all(cache, objects, 80);
    }
    assert_true(depot->shelved);
    assert_int_equal(depot->rounds, 64);
    assert_true(depot->misses < GROWTH_MISSES); /* so it was not the depot's own */
    caches.grown_bytes -= 256 * KIB;
    ASSERT_NOTHING_LEFT();
}

static void all_arrays_together_grow_by_a_small_share_of_the_heap(void **state) {
    (void)state;
    unsigned cache, last = 0;
    build_depot(&cache, 512);
    for (cache = cache_of(600); cache < SLAB_CACHE_MAGAZINES; cache++) {
        const unsigned before = caches.depots[cache].rounds;
        miss(cache, 8 * GROWTH_MISSES);
        assert_in_range(caches.grown_bytes, 0, GROWTH_BYTES_MIN);
        if (caches.depots[cache].rounds == before) last = cache;
    }
    assert_int_not_equal(last, 0); /* there was no room for all */
    /* What one gives back another may have: after a long rest. */
    struct depot *depot = &caches.depots[cache_of(600)];
    const uint64_t grown = caches.grown_bytes, own = (depot->rounds - depot->rounds_start) * depot->object_bytes;
    assert_true(own != 0);
    for (unsigned i = 0; i < 21; i++) depot_tick(&caches, cache_of(600), false);
    assert_int_equal(depot->rounds, depot->rounds_start);
    assert_int_equal(caches.grown_bytes, grown - own);
    ASSERT_NOTHING_LEFT();
}

/* What one thread allocates and another frees, or may: of rounds that are not known to be their own arrays have less together. */
static void arrays_of_others_rounds_grow_less(void **state) {
    (void)state;
    unsigned cache, large;
    build_depot(&cache, 512);
    cache = cache_of(2048), large = cache_of(4096);
    caches.depots[cache].shared = caches.depots[large].shared = true;
    miss(large, 8 * GROWTH_MISSES);
    miss(cache, 8 * GROWTH_MISSES);
    assert_int_equal(caches.depots[large].rounds, 64); /* 224 KiB more */
    assert_int_equal(caches.depots[cache].rounds, 32); /* 32 more, where 96 would be too much */
    caches.depots[cache].shared = false;
    miss(cache, 8 * GROWTH_MISSES);
    assert_int_equal(caches.depots[cache].rounds, 64);
    /* Nor where many CPUs have arrays. */
    caches.areas_used = 9;
    miss(cache, GROWTH_MISSES);
    assert_int_equal(caches.depots[cache].rounds, 32);
    ASSERT_NOTHING_LEFT();
}

/* An array is there once on each CPU, so it may grow by half where there are two. In a large heap there is room for more. */
static void the_share_is_of_all_cpus_and_of_the_heap(void **state) {
    (void)state;
    static void *many[40 * MIB / 4096];
    unsigned cache, large;
    struct depot *depot = build_depot(&cache, 1024);
    large = cache_of(4096);
    for (unsigned cpu = 2; cpu-- != 0;) {
        sim_cpu_set(cpu);
        give(cache, must_take(cache));
    }
    assert_int_equal(caches.areas_used, 2);
    cpu_layer_drain_own(&caches);
    depot->shared = caches.depots[large].shared = true;
    miss(large, 8 * GROWTH_MISSES);
    assert_int_equal(caches.depots[large].rounds, 32); /* 24 rounds more on each: 192 KiB; 56 would be 448 */
    hold_from_slabs(large, many, ARRAY_LENGTH(many));
    miss(large, 8 * GROWTH_MISSES);
    assert_int_equal(caches.depots[large].rounds, 64);
    miss(cache, 8 * GROWTH_MISSES);
    assert_int_equal(depot->rounds, 64);
    /* With more CPUs there is less room for each: what has outgrown it is halved, when it would grow or at a tick. */
    caches.areas_used = 9;
    miss(large, GROWTH_MISSES);
    assert_int_equal(caches.depots[large].rounds, 32);
    depot_tick(&caches, cache, false);
    assert_int_equal(depot->rounds, 64); /* which has room, now that the other has less */
    caches.areas_used = 40;
    depot_tick(&caches, cache, false);
    assert_int_equal(depot->rounds, 32);
    assert_int_equal(caches.grown_bytes, (32 - 8) * 4096);
    /* Contention is another reason, for which that is no limit; but it counts. */
    stack_contend(cache);
    depot_tick(&caches, cache, false);
    depot->visits++;
    depot_tick(&caches, cache, false);
    assert_int_equal(depot->rounds, 64);
    assert_int_equal(caches.grown_bytes, (32 - 8) * 4096 + (64 - 32) * 1024);
    slab_free_batch(&slabs, large, many, ARRAY_LENGTH(many));
    held[large] -= (unsigned)ARRAY_LENGTH(many);
    ASSERT_NOTHING_LEFT();
}

/* Many CPUs: their arrays together have room for no more than there are objects, as the arrays of CPUs that went on stay full. */
static void arrays_of_what_cycles_are_for_what_there_is(void **state) {
    (void)state;
    static void *objects[200];
    build(16, 256);
    const unsigned cache = cache_of(4096);
    struct depot *depot = &caches.depots[cache];
    for (unsigned cpu = 16; cpu-- != 0;) {
        sim_cpu_set(cpu);
        give(cache, must_take(cache));
        cpu_layer_drain_own(&caches);
    }
    for (unsigned i = 0; i < 400 && !depot->cycles; i++) {
        take_all(cache, objects, ARRAY_LENGTH(objects));
        give_all(cache, objects, ARRAY_LENGTH(objects));
    }
    assert_true(depot->cycles);
    const uint64_t all = slab_stats_of(cache).total;
    assert_true(depot->rounds == depot->rounds_start || depot->rounds * 16 <= all);
    assert_true(depot->rounds == depot->rounds_max || depot->rounds * 2 * 16 > all);
    assert_in_range(depot->rounds, 8, 16); /* of 64 that one CPU may have */
    /* More CPUs come by: with the next tick there is less for each, but not less than at the start. */
    caches.areas_used = 1000;
    cache_tick(&caches);
    assert_true(depot->cycles);
    assert_int_equal(depot->rounds, depot->rounds_start);
    miss(cache, GROWTH_MISSES); /* misses don't change that */
    assert_int_equal(depot->rounds, depot->rounds_start);
    ASSERT_NOTHING_LEFT();
}

/* A class that is larger than when it began to cycle: what is fetched from the slabs is a reason to look, ticks may be far away. */
static void what_cycles_has_room_for_more_as_it_grows(void **state) {
    (void)state;
    static void *objects[200];
    unsigned cache;
    struct depot *depot = build_depot(&cache, 4096);
    stack_stop_growth();
    for (unsigned i = 0; i < 100 && !depot->cycles; i++) {
        take_all(cache, objects, 30);
        give_all(cache, objects, 30);
    }
    assert_true(depot->cycles);
    assert_in_range(depot->rounds, 8, 32);
    for (unsigned i = 0; i < 2; i++) {
        take_all(cache, objects, ARRAY_LENGTH(objects));
        give_all(cache, objects, ARRAY_LENGTH(objects));
    }
    assert_int_equal(depot->rounds, depot->rounds_max);
    const uint64_t in_slabs = slab_stats_of(cache).total - slab_stats_of(cache).in_use;
    take_all(cache, objects, ARRAY_LENGTH(objects));
    give_all(cache, objects, ARRAY_LENGTH(objects));
    assert_int_equal(slab_stats_of(cache).total - slab_stats_of(cache).in_use, in_slabs); /* all are between arrays and depot */
    ASSERT_NOTHING_LEFT();
}

/* A shelf that runs empty keeps its share, so that bursts don't write to what all shelves read, until a tick finds it empty. */
static void a_share_lasts_until_a_tick(void **state) {
    (void)state;
    static void *objects[80];
    unsigned cache;
    const struct depot *depot = build_depot(&cache, 1024);
    share_depot(cache);
    caches.depots[cache].full_max = 100;
    for (unsigned i = 0; i < 3; i++) {
        take_all(cache, objects, ARRAY_LENGTH(objects));
        const struct shelf *shelf = shelf_at(cache, shelf_number(cache_home()));
        assert_int_equal(depot->shelved ? shelf->full.count : 0, 0);
        assert_int_equal(depot->shelves_used, i == 0 ? 0 : 1);
        give_all(cache, objects, ARRAY_LENGTH(objects));
        assert_int_not_equal(shelf->full.count, 0);
        assert_int_equal(depot->shelves_used, 1);
    }
    const struct shelf *shelf = shelf_at(cache, shelf_number(cache_home()));
    for (unsigned i = 0; i < 3 && shelf->full.count != 0; i++) {
        cache_tick(&caches);
        assert_int_equal(depot->shelves_used, 1); /* as long as it has any, whoever looks in the middle of the tick */
    }
    cache_tick(&caches);
    assert_int_equal(depot->shelves_used, 0);
    ASSERT_NOTHING_LEFT();
}

/* Those that cycle leave the room to others, and begin anew when they don't any more. */
static void arrays_of_what_cycles_are_as_large_as_may_be(void **state) {
    (void)state;
    static void *objects[200];
    unsigned cache;
    struct depot *depot = build_depot(&cache, 4096);
    for (unsigned i = 0; i < 20 && !depot->cycles; i++) {
        take_all(cache, objects, ARRAY_LENGTH(objects));
        give_all(cache, objects, ARRAY_LENGTH(objects));
    }
    assert_true(depot->cycles);
    assert_int_equal(depot->rounds, depot->rounds_max);
    assert_int_equal(caches.grown_bytes, 0);
    miss(cache, GROWTH_MISSES);
    cache_reap(&caches); /* which leaves nothing */
    assert_true(depot->cycles);
    cache_reap(&caches);
    assert_false(depot->cycles);
    assert_int_equal(depot->rounds, depot->rounds_start);
    assert_int_equal(caches.grown_bytes, 0);
    ASSERT_NOTHING_LEFT();
}

/* Unless many CPUs have arrays, or these have room for more than there is. */
static void who_cycles_does_so_after_a_reap(void **state) {
    (void)state;
    static void *objects[200], *many[640];
    unsigned cache;
    struct depot *depot = build_depot(&cache, 4096);
    hold_from_slabs(cache, many, ARRAY_LENGTH(many));
    for (unsigned areas = 8; areas <= 9; areas++) { /* whose arrays have room for 576 */
        caches.areas_used = 1;
        for (unsigned i = 0; i < 400 && !depot->cycles; i++) {
            take_all(cache, objects, ARRAY_LENGTH(objects));
            give_all(cache, objects, ARRAY_LENGTH(objects));
        }
        assert_true(depot->cycles);
        assert_int_equal(depot->rounds, 64);
        caches.areas_used = areas;
        cache_reap(&caches);
        assert_int_equal(depot->cycles, areas <= 8);
    }
    caches.areas_used = 1;
    give_all(cache, many, ARRAY_LENGTH(many));
    cache_reap(&caches);
    for (unsigned i = 0; i < 400 && !depot->cycles; i++) {
        take_all(cache, objects, ARRAY_LENGTH(objects));
        give_all(cache, objects, ARRAY_LENGTH(objects));
    }
    assert_true(depot->cycles);
    caches.areas_used = 8; /* 512 in arrays, where there are some 200 */
    cache_reap(&caches);
    assert_false(depot->cycles);
    caches.areas_used = 1;
    ASSERT_NOTHING_LEFT();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_thirty_second_miss_doubles_m),
        cmocka_unit_test(shelves_count_misses_too),
        cmocka_unit_test(all_arrays_together_grow_by_a_small_share_of_the_heap),
        cmocka_unit_test(arrays_of_others_rounds_grow_less),
        cmocka_unit_test(the_share_is_of_all_cpus_and_of_the_heap),
        cmocka_unit_test(arrays_of_what_cycles_are_for_what_there_is),
        cmocka_unit_test(what_cycles_has_room_for_more_as_it_grows),
        cmocka_unit_test(a_share_lasts_until_a_tick),
        cmocka_unit_test(arrays_of_what_cycles_are_as_large_as_may_be),
        cmocka_unit_test(who_cycles_does_so_after_a_reap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
