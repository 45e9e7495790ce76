/*
 * test_failures.c - no memory: each platform call fails in turn, limits refuse, address space ends. A batch comes short or not at all, no
 * object is lost or handed out twice, and everything works again afterwards; on pages of 4, 16 and 64 KiB.
 */
#include "unit/slab/slab_support.h"

enum { CLASSES = 6, OBJECTS = 400 };
static const size_t sizes[CLASSES] = {16, 48, 320, 1024, 6144, 32768};
static void *held[CLASSES + 1][OBJECTS];
static unsigned held_count[CLASSES + 1];
static bool strict; /* nothing was made to fail: everything has to work */

static unsigned cache_at(unsigned c) { return c < CLASSES ? cache_of(sizes[c]) : SLAB_CACHE_MAGAZINES + 3; }

static void fill(unsigned c, unsigned count) {
    unsigned target = held_count[c] + count;
    while (held_count[c] < target) {
        unsigned some = take_batch(cache_at(c), &held[c][held_count[c]], target - held_count[c]);
        if (strict) assert_int_not_equal(some, 0);
        if (some == 0) break;
        held_count[c] += some;
    }
}

static void drop(unsigned c, unsigned count) {
    if (count > held_count[c]) count = held_count[c];
    give(cache_at(c), &held[c][held_count[c] -= count], count);
}

static void scenario(void) {
    for (unsigned c = 0; c <= CLASSES; c++) fill(c, 120);
    for (unsigned c = 0; c <= CLASSES; c++) drop(c, 100);
    slab_reap(&slabs);
    zone_release(&zone, 0);
    for (unsigned c = 0; c <= CLASSES; c++) fill(c, c % 2 == 0 ? 200 : 60);
    ASSERT_SOUND();
    drop(5, 150);
    zone_tick(&zone);
    fill(1, 100);
    zone_tick(&zone);
    fill(6, 100);
}

static void drop_all(void) {
    for (unsigned c = 0; c <= CLASSES; c++) drop(c, OBJECTS);
}

/* False when no call failed. */
static bool run_with_failure(const struct sim_config *sim, struct zone_config config, uint64_t n, uint64_t times) {
    memset(held_count, 0, sizeof held_count);
    begin(sim, config);
    sim_fail_call(n, times);
    strict = n == 0;
    scenario();
    ASSERT_SOUND();
    bool failed = sim_failures() != 0;
    sim_fail_call(0, 0);
    strict = true;
    for (unsigned c = 0; c <= CLASSES; c++) fill(c, 10); /* what is held stays held */
    drop_all();
    ASSERT_SOUND();
    scenario();
    drop_all();
    assert_empty();
    return failed;
}

static struct zone_config busy_config(void) {
    struct zone_config config = plain_config();
    config.populate_granules = 16;
    config.thp = ZONE_THP_ALWAYS;
    return config;
}

static void each_call_fails(uint64_t times) {
    static const size_t page_sizes[] = {4 * KIB, 16 * KIB, 64 * KIB};
    for (unsigned p = 0; p < ARRAY_LENGTH(page_sizes); p++) {
        struct sim_config sim = {.page_bytes = page_sizes[p]};
        struct zone_config config = busy_config();
        if (p == 1) config.thp = ZONE_THP_NEVER;
        assert_false(run_with_failure(&sim, config, 0, 0));
        uint64_t n = 1;
        while (run_with_failure(&sim, config, n, times)) n++;
        assert_true(n > 15);
    }
}

static void each_call_fails_once(void **state) {
    (void)state;
    each_call_fails(1);
}

static void every_call_fails_from_some_point_on(void **state) {
    (void)state;
    each_call_fails(SIM_FOREVER);
}

static void a_first_slab_that_can_not_be_had(void **state) {
    (void)state;
    static void *objects[10];
    struct zone_config config = plain_config();
    config.hard_limit_bytes = 0;
    begin(NULL, config);
    for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_END; cache++) {
        assert_int_equal(slab_alloc_batch(&slabs, cache, objects, 10), 0);
        assert_int_equal(stats_of(cache).slabs, 0);
        assert_int_equal(stats_of(cache).allocs, 0);
    }
    assert_empty();
    zone.config.hard_limit_bytes = UINT64_MAX;
    take(cache_of(64), objects, 10);
    give(cache_of(64), objects, 10);
    assert_empty();
}

/* A large cache wants large slabs; where only a page is left it takes that. Under the limit all memory can be used, to the last page. */
static void small_slabs_where_large_ones_can_not_be_had(void **state) {
    (void)state;
    static void *objects[5000];
    struct zone_config config = plain_config();
    config.hard_limit_bytes = 203 * GRANULE_BYTES;
    begin(NULL, config);
    unsigned cache = cache_of(2048), n = 0, some;
    assert_true(slabs.caches[cache].granules_usual == 2 && slabs.caches[cache].granules_min == 1);
    while ((some = take_batch(cache, &objects[n], 7)) != 0) n += some;
    assert_int_equal(n, 203 * 2);
    assert_int_equal(stats_of(cache).memory_bytes, 203 * GRANULE_BYTES);
    ASSERT_SOUND();
    /* The last page is given back, and serves again. */
    give(cache, &objects[n - 2], 2);
    take(cache, &objects[n - 2], 2);
    assert_int_equal(slab_alloc_batch(&slabs, cache, &objects[n], 1), 0);
    give(cache, objects, n);
    assert_empty();
}

/* Other caches' empty slabs are no loss: reaping makes them available. */
static void reaping_helps_another_cache(void **state) {
    (void)state;
    static void *objects[1000];
    struct zone_config config = plain_config();
    config.hard_limit_bytes = 16 * GRANULE_BYTES;
    begin(NULL, config);
    unsigned small = cache_of(64), large = cache_of(32768);
    take(small, objects, 64 * 9);
    assert_int_equal(slab_alloc_batch(&slabs, large, &objects[990], 1), 0);
    give(small, objects, 64 * 9);
    assert_true(stats_of(small).slabs != 0);
    slab_reap(&slabs);
    assert_int_equal(slab_alloc_batch(&slabs, large, &objects[990], 2), 1);
    assert_int_equal(slab_alloc_batch(&slabs, large, &objects[991], 1), 1);
    assert_int_equal(slab_alloc_batch(&slabs, large, &objects[992], 1), 0);
    slab_free_batch(&slabs, large, &objects[990], 2);
    assert_empty();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_fails_once),
        cmocka_unit_test(every_call_fails_from_some_point_on),
        cmocka_unit_test(a_first_slab_that_can_not_be_had),
        cmocka_unit_test(small_slabs_where_large_ones_can_not_be_had),
        cmocka_unit_test(reaping_helps_another_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
