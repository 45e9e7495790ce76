/*
 * test_batch.c - objects that go many at once: what the depot has no use for goes to the slabs, and no magazine is lost on the way.
 */
#include "unit/cache/cache_test.h"

enum { OBJECTS = 4096 };

static void *objects[OBJECTS];

static void give_batch(unsigned cache, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        assert_true(*(uint64_t *)objects[i] == STACK_STAMP);
        *(uint64_t *)objects[i] = 0;
    }
    held[cache] -= count;
    cache_free_batch(&caches, cache, objects, count);
}

static unsigned take_batch(unsigned cache, unsigned count) {
    unsigned got = cache_alloc_batch(&caches, cache, objects, count);
    for (unsigned i = 0; i < got; i++) *(uint64_t *)objects[i] = STACK_STAMP;
    held[cache] += got;
    return got;
}

static void a_depot_that_has_enough_keeps_no_magazine(void **state) {
    (void)state;
    unsigned cache;
    struct depot *depot = build_depot(&cache, 64);
    hold_from_slabs(cache, objects, OBJECTS);
    while (stock_depot(cache)) continue;
    unsigned full = stack_full_count(cache);
    give_batch(cache, OBJECTS);
    assert_int_equal(stack_full_count(cache), full);
    assert_in_range(stats_of(cache).cached, full * (depot->rounds / 2u), full * (depot->rounds / 2u) + depot->rounds);
    ASSERT_SOUND();
    ASSERT_NOTHING_LEFT();
}

/* m has fallen since the depot's magazines were filled: what a caller has no room for goes to the slabs, and the magazine is had again. */
static void what_is_left_of_a_magazine_goes_to_the_slabs(void **state) {
    (void)state;
    unsigned cache;
    struct depot *depot = build_depot(&cache, 64);
    unsigned m = depot->rounds;
    assert_true(m >= 8 && stock_depot(cache));
    depot->rounds = depot->rounds_start = (uint16_t)(m / 4);
    uint64_t in_use = slab_stats_of(cache).in_use;
    assert_int_equal(take_batch(cache, m / 4), m / 4);
    assert_int_equal(stats_of(cache).cached, 0);
    assert_int_equal(slab_stats_of(cache).in_use, in_use - m / 4);
    ASSERT_SOUND();
    give_batch(cache, m / 4);
    ASSERT_NOTHING_LEFT();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_depot_that_has_enough_keeps_no_magazine),
        cmocka_unit_test(what_is_left_of_a_magazine_goes_to_the_slabs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
