/*
 * test_object_keeps.c - what waits in the depots of object caches: all that was constructed, however large or many, until nobody needed it for an
 * interval; of others what comes back again and again; of integers a small share.
 */
#include "cache/object_cache.h"
#include "unit/cache/cache_test.h"

static struct object_caches objects;
static uint64_t made;

static int make(void *object, void *argument) {
    (void)object, (void)argument;
    made++;
    return 0;
}

static struct object_cache *create(uint64_t bytes, bool constructed, uint64_t integers) {
    const struct object_cache_config config = {.name = "kept",
                                               .bytes = bytes,
                                               .align = 16,
                                               .source = &slab_source_zone,
                                               .source_context = &zone,
                                               .integers = integers,
                                               .construct = constructed ? make : NULL};
    struct object_cache *cache = NULL;
    assert_int_equal(object_cache_create(&objects, &config, &cache), OBJECT_CACHE_OK);
    return cache;
}

static void begin(void) {
    build(1, 256);
    object_caches_init(&objects, &slabs, &caches, 256);
    made = 0;
}

static void burst(struct object_cache *cache, unsigned count) {
    static void *taken[3000];
    assert_true(count <= ARRAY_LENGTH(taken));
    for (unsigned i = 0; i < count; i++) assert_non_null(taken[i] = object_cache_alloc(cache));
    for (unsigned i = 0; i < count; i++) object_cache_free(cache, taken[i]);
}

static struct object_cache_stats kept_of(struct object_cache *cache) {
    struct object_cache_stats stats;
    object_cache_stats_get(cache, &stats);
    return stats;
}

static void end(struct object_cache *cache) {
    assert_int_equal(object_cache_destroy(&objects, cache), 0);
    assert_int_equal(caches.grown_bytes, 0);
    ASSERT_NOTHING_LEFT();
}

static void what_was_constructed_is_so_once(void **state) {
    static const unsigned sizes[] = {64, 200, 1000, 4000, 8192, 32768}, counts[] = {8, 30, 300, 1000};
    (void)state;
    for (unsigned i = 0; i < ARRAY_LENGTH(sizes) * ARRAY_LENGTH(counts); i++) {
        const unsigned size = sizes[i / ARRAY_LENGTH(counts)], count = counts[i % ARRAY_LENGTH(counts)];
        begin();
        struct object_cache *cache = create(size, true, 0);
        burst(cache, count);
        burst(cache, count); /* arrays may have grown */
        const uint64_t first = made;
        assert_in_range(first, count, count + 2 * CACHE_TRANSFER_MAX);
        for (unsigned turn = 0; turn < 20; turn++) burst(cache, count);
        if (made - first > CACHE_TRANSFER_MAX)
            fail_msg("%u of %u bytes: %llu made, then %llu", count, size, (unsigned long long)first, (unsigned long long)made);
        end(cache);
    }
}

static void what_nobody_needed_goes_in_time(void **state) {
    (void)state;
    begin();
    struct object_cache *cache = create(1000, true, 0);
    burst(cache, 3000);
    assert_true(kept_of(cache).cache.cached >= 3000);
    for (unsigned tick = 0; tick < 3; tick++) {
        burst(cache, 100);
        object_caches_tick(&objects);
    }
    assert_in_range(kept_of(cache).cache.cached, 100, 300);
    end(cache);
}

/* Without a tick, as none comes in small heaps. A heap that grows takes them back, where no function of the program has to run for it. */
static void others_are_kept_once_they_come_back(void **state) {
    (void)state;
    begin();
    struct object_cache *plain = create(1000, false, 0), *constructed = create(1000, true, 0);
    burst(plain, 500);
    assert_true(kept_of(plain).cache.cached < 100);
    for (unsigned turn = 0; turn < 40; turn++) burst(plain, 500);
    const uint64_t from_slabs = kept_of(plain).slabs.allocs;
    for (unsigned turn = 0; turn < 20; turn++) burst(plain, 500);
    assert_int_equal(kept_of(plain).slabs.allocs, from_slabs);
    burst(plain, 800); /* and of more, more */
    burst(plain, 800);
    const uint64_t from_slabs_of_more = kept_of(plain).slabs.allocs;
    burst(plain, 800);
    assert_int_equal(kept_of(plain).slabs.allocs, from_slabs_of_more);
    burst(constructed, 500);
    object_caches_reap_silent(&objects);
    assert_true(kept_of(plain).cache.cached < 100);
    assert_true(kept_of(constructed).cache.cached >= 500);
    assert_int_equal(object_cache_destroy(&objects, plain), 0);
    end(constructed);
}

static void of_integers_few_wait(void **state) {
    (void)state;
    begin();
    struct object_cache *cache = create(4096, false, 1);
    for (unsigned turn = 0; turn < 60; turn++) burst(cache, 2000);
    assert_true(kept_of(cache).cache.cached < 1000);
    end(cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_constructed_is_so_once),
        cmocka_unit_test(what_nobody_needed_goes_in_time),
        cmocka_unit_test(others_are_kept_once_they_come_back),
        cmocka_unit_test(of_integers_few_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
