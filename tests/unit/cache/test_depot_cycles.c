/*
 * test_depot_cycles.c - bursts whose objects go past a depot to the slabs and come back: once a MiB of them did so within an interval, more
 * may wait in the depot, until a reap or an interval without such (docs/decisions.md, 130).
 */
#include "unit/cache/cache_test.h"

#define DEPOT_CLASS_NEAR_OBJECTS (MIB / 64) /* of so many and more not all may wait */

static void burst(unsigned cache, unsigned count) {
    static void *taken[6400];
    assert_true(count <= ARRAY_LENGTH(taken));
    for (unsigned i = 0; i < count; i++) assert_non_null(taken[i] = cache_alloc(&caches, cache));
    for (unsigned i = 0; i < count; i++) cache_free(&caches, cache, taken[i]);
}

/* Bursts of one size that reach the slabs each time: once so many objects came back in an interval, what a burst leaves may wait for the next. */
static void what_comes_back_again_and_again_may_wait(void **state) {
    (void)state;
    unsigned cache, bursts = 1;
    struct depot *depot = build_depot(&cache, 64);
    const unsigned limit = depot->full_max;
    burst(cache, 900);
    cache_tick(&caches);
    while (!depot->cycles && bursts++ < 100) burst(cache, 900);
    assert_in_range(bursts, MIB / 64 / 900, 3 * MIB / 64 / 900);
    burst(cache, 900);
    const uint64_t from_slabs = slab_stats_of(cache).allocs;
    for (unsigned i = 0; i < 20; i++) burst(cache, 900);
    assert_int_equal(slab_stats_of(cache).allocs, from_slabs);
    /* A class of 400 KiB: all of it may, from the next tick on. */
    for (unsigned i = 0; i < 3; i++) burst(cache, 6400);
    assert_int_not_equal(slab_stats_of(cache).allocs, from_slabs);
    cache_tick(&caches);
    burst(cache, 6400);
    const uint64_t from_slabs_of_many = slab_stats_of(cache).allocs;
    for (unsigned i = 0; i < 3; i++) burst(cache, 6400);
    assert_int_equal(slab_stats_of(cache).allocs, from_slabs_of_many);
    cache_tick(&caches); /* with as many visits as of who works so */
    assert_true(depot->cycles);
    burst(cache, 300);
    cache_tick(&caches);
    assert_false(depot->cycles);
    const uint64_t share = slab_stats_of(cache).total / 16 / (depot->rounds / 2u); /* as of any class */
    assert_int_equal(depot->full_max, share > limit ? share : limit);
    assert_int_equal(depot->came_back, 0);
    ASSERT_NOTHING_LEFT();
}

/* Of a class that is larger than a processor's cache so many bytes may wait; and none of it when memory is wanted. */
static void of_a_large_class_less_may_wait(void **state) {
    (void)state;
    static void *many[DEPOT_CLASS_NEAR_OBJECTS];
    unsigned cache;
    struct depot *depot = build_depot(&cache, 64);
    hold_from_slabs(cache, many, ARRAY_LENGTH(many));
    cache_tick(&caches);
    for (unsigned i = 0; i < 60; i++) burst(cache, 1800);
    burst(cache, 900);
    assert_true(depot->cycles);
    const uint64_t from_slabs = slab_stats_of(cache).allocs;
    for (unsigned i = 0; i < 5; i++) burst(cache, 900);
    assert_int_equal(slab_stats_of(cache).allocs, from_slabs);
    for (unsigned i = 0; i < 5; i++) burst(cache, 1800);
    assert_true(slab_stats_of(cache).allocs > from_slabs + 1000);
    assert_in_range(depot->full_max * (depot->rounds / 2u) * 64, 64 * KIB, 72 * KIB);
    cache_reap(&caches);
    assert_true(depot->cycles);
    caches.areas_used = 9; /* as among many CPUs */
    cache_reap(&caches);
    assert_false(depot->cycles);
    caches.areas_used = 1;
    assert_in_range(depot->full_max * (depot->rounds / 2u) * 64, 64 * KIB, 72 * KIB); /* a sixteenth of it, which is as many by chance */
    slab_free_batch(&slabs, cache, many, ARRAY_LENGTH(many));
    held[cache] = 0;
    ASSERT_NOTHING_LEFT();
}

/* In a class of more than a MiB all objects of two cache lines may, and of smaller ones, which lie beside each other in a line, few. */
static void all_objects_of_two_lines_may_wait(void **state) {
    (void)state;
    static void *many[MIB / 112];
    static const size_t sizes[] = {112, 128};
    for (unsigned k = 0; k < ARRAY_LENGTH(sizes); k++) {
        unsigned cache;
        struct depot *depot = build_depot(&cache, sizes[k]);
        hold_from_slabs(cache, many, ARRAY_LENGTH(many));
        for (unsigned i = 0; i < 60; i++) burst(cache, 1800);
        assert_true(depot->cycles);
        cache_tick(&caches);
        const uint64_t all = slab_stats_of(cache).total / (depot->rounds / 2u);
        if (sizes[k] < 128)
            assert_true(depot->full_max < all / 4);
        else
            assert_true(depot->full_max >= all);
        slab_free_batch(&slabs, cache, many, ARRAY_LENGTH(many));
        held[cache] = 0;
        ASSERT_NOTHING_LEFT();
    }
}

/* All large objects may; but of those that several threads use, each of which has as many in its array, four times as many must have come back. */
static void all_large_objects_may_wait(void **state) {
    (void)state;
    unsigned cache;
    struct depot *depot = build_depot(&cache, 1024);
    const unsigned limit = depot->full_max;
    for (unsigned i = 0; i < 20; i++) burst(cache, 200);
    assert_true(depot->cycles);
    cache_tick(&caches);
    const uint64_t all = slab_stats_of(cache).total / (depot->rounds / 2u);
    assert_in_range(all, 2 * limit, 200 / (depot->rounds / 2u) + 2);
    assert_in_range(depot->full_max, all, 64 * KIB / 1024 / (depot->rounds / 2u) + all);
    cache_reap(&caches);
    assert_true(depot->cycles);
    caches.areas_used = 9; /* as among many CPUs */
    cache_reap(&caches);
    assert_false(depot->cycles);
    caches.areas_used = 1;
    share_depot(cache);
    const unsigned shared_limit = depot->full_max * (depot->rounds / 2u);
    unsigned bursts = 0;
    for (; !depot->cycles && bursts < 1000; bursts++) burst(cache, 200);
    /* Four times what one thread's must, and four times that after the reap; a burst's last rounds are in the array. */
    assert_in_range(bursts, 16 * MIB / 1024 / 200, 3 * 16 * MIB / 1024 / 200);
    assert_true(depot->full_max * (depot->rounds / 2u) > 2 * shared_limit);
    ASSERT_NOTHING_LEFT();
}

/* What goes to the slabs and doesn't come back is no reason for more, nor what comes from there for the first time. */
static void what_only_grows_and_shrinks_may_not(void **state) {
    (void)state;
    static void *taken[40000];
    unsigned cache;
    struct depot *depot = build_depot(&cache, 64);
    for (unsigned i = 0; i < ARRAY_LENGTH(taken); i++) assert_non_null(taken[i] = cache_alloc(&caches, cache));
    for (unsigned i = 0; i < ARRAY_LENGTH(taken); i++) cache_free(&caches, cache, taken[i]);
    assert_false(depot->cycles);
    assert_int_equal(depot->came_back, 0);
    assert_true(depot->went_past != 0);
    /* Long after, it grows again: these are others. */
    for (unsigned i = 0; i < 20; i++) cache_tick(&caches);
    for (unsigned i = 0; i < ARRAY_LENGTH(taken); i++) assert_non_null(taken[i] = cache_alloc(&caches, cache));
    assert_false(depot->cycles);
    assert_int_equal(depot->went_past, 0);
    for (unsigned i = 0; i < ARRAY_LENGTH(taken); i++) cache_free(&caches, cache, taken[i]);
    ASSERT_NOTHING_LEFT();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_comes_back_again_and_again_may_wait), cmocka_unit_test(of_a_large_class_less_may_wait),
        cmocka_unit_test(all_objects_of_two_lines_may_wait),        cmocka_unit_test(all_large_objects_may_wait),
        cmocka_unit_test(what_only_grows_and_shrinks_may_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
