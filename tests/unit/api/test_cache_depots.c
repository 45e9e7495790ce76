/*
 * test_cache_depots.c - depots keep all that was constructed; where memory ends it is there for whoever lacks it: malloc, other caches, with the
 * maintenance thread and without.
 */
#include "strata/batch.h"
#include "strata/cache.h"
#include "strata/malloc.h"
#include "strata/pool.h"
#include "strata/strata.h"
#include "unit/api/api_support.h"

#define MS UINT64_C(1000000)

static void nothing_unmade(void *object, void *argument) { (void)object, (void)argument; }

/* A cache whose depot has 24 MB of the 32 that the heap may have. */
static struct strata_cache *full_depot(const char *options, bool destructs) {
    static void *objects[6000];
    new_heap(NULL, options);
    struct strata_cache *cache;
    const struct strata_cache_config config = {.size = 4000, .destructor = destructs ? nothing_unmade : NULL};
    assert_int_equal(strata_cache_create("kept", &config, &cache), STRATA_CACHE_OK);
    for (unsigned turn = 0; turn < 3; turn++) {
        for (unsigned i = 0; i < ARRAY_LENGTH(objects); i++) assert_non_null(objects[i] = strata_cache_alloc(cache, 0));
        for (unsigned i = 0; i < ARRAY_LENGTH(objects); i++) strata_cache_free(cache, objects[i]);
    }
    struct strata_cache_stats stats;
    strata_cache_stats_get(cache, &stats);
    assert_true(stats.cached > ARRAY_LENGTH(objects) / 2);
    return cache;
}

/* It comes back at once where no function has to run for it; else by the thread, which is started for that, in small heaps too. */
static void what_depots_keep_is_there_for_malloc(void **state) {
    (void)state;
    for (unsigned constructs = 0; constructs < 2; constructs++) {
        struct strata_cache *cache = full_depot("hard_limit:32M", constructs != 0);
        static volatile size_t absurd = (size_t)1 << 44;
        assert_null(strata_malloc(absurd)); /* nobody could give so much */
        assert_int_equal(sim_calls(SIM_THREAD_START), 0);
        void *block = strata_malloc(24 << 20);
        assert_true((block == NULL) == (constructs != 0));
        assert_int_equal(sim_calls(SIM_THREAD_START), constructs);
        sim_run_threads_for(MS);
        if (block == NULL) block = strata_malloc(24 << 20);
        assert_non_null(block);
        strata_free(block);
        assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK);
    }
}

/* Or by who comes to an object cache next, where there shall be no thread. */
static void without_a_thread_too(void **state) {
    (void)state;
    struct strata_cache *cache = full_depot("hard_limit:32M,background:off", true), *other;
    assert_null(strata_malloc(24 << 20));
    assert_int_equal(strata_cache_create("other", &(struct strata_cache_config){.size = 100}, &other), STRATA_CACHE_OK);
    strata_cache_free(other, strata_cache_alloc(other, 0));
    void *block = strata_malloc(24 << 20);
    assert_non_null(block);
    strata_free(block);
    assert_int_equal(sim_calls(SIM_THREAD_START), 0);
    assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK);
    assert_int_equal(strata_cache_destroy(other), STRATA_CACHE_OK);
}

/* Another cache gets what it lacks, whatever its flags; one whose constructor refuses lacks nothing. */
static int refuse_to_make(void *object, void *argument) {
    (void)object, (void)argument;
    return 1;
}
static void and_for_other_caches(void **state) {
    static void *objects[700];
    static const unsigned flags[] = {0, STRATA_CACHE_NO_RECLAIM, STRATA_CACHE_SLEEP | STRATA_CACHE_NO_RECLAIM};
    (void)state;
    for (unsigned i = 0; i < ARRAY_LENGTH(flags); i++) {
        struct strata_cache *cache = full_depot("hard_limit:32M,background:off", true), *other, *refusing;
        assert_int_equal(strata_cache_create("other", &(struct strata_cache_config){.size = 32 << 10}, &other), STRATA_CACHE_OK);
        assert_int_equal(strata_cache_create("refusing", &(struct strata_cache_config){.size = 100, .constructor = refuse_to_make}, &refusing),
                         STRATA_CACHE_OK);
        struct strata_cache_stats stats;
        assert_null(strata_cache_alloc(refusing, 0));
        strata_cache_stats_get(cache, &stats);
        assert_true(stats.cached > 3000);
        for (unsigned j = 0; j < ARRAY_LENGTH(objects); j++) assert_non_null(objects[j] = strata_cache_alloc(other, flags[i]));
        for (unsigned j = 0; j < ARRAY_LENGTH(objects); j++) strata_cache_free(other, objects[j]);
        assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK);
        assert_int_equal(strata_cache_destroy(other), STRATA_CACHE_OK);
        assert_int_equal(strata_cache_destroy(refusing), STRATA_CACHE_OK);
    }
}

/* A batch is no worse than one by one. */
static void and_for_batches_of_objects(void **state) {
    static void *objects[700];
    (void)state;
    struct strata_cache *cache = full_depot("hard_limit:32M,background:off", true), *other, *refusing;
    assert_int_equal(strata_cache_create("other", &(struct strata_cache_config){.size = 32 << 10}, &other), STRATA_CACHE_OK);
    assert_int_equal(strata_cache_create("refusing", &(struct strata_cache_config){.size = 100, .constructor = refuse_to_make}, &refusing),
                     STRATA_CACHE_OK);
    struct strata_cache_stats stats;
    assert_int_equal(strata_cache_alloc_batch(refusing, objects, ARRAY_LENGTH(objects)), 0);
    strata_cache_stats_get(cache, &stats);
    assert_true(stats.cached > 3000);
    assert_int_equal(strata_cache_alloc_batch(other, objects, ARRAY_LENGTH(objects)), ARRAY_LENGTH(objects));
    strata_cache_free_batch(other, objects, ARRAY_LENGTH(objects));
    assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK);
    assert_int_equal(strata_cache_destroy(other), STRATA_CACHE_OK);
    assert_int_equal(strata_cache_destroy(refusing), STRATA_CACHE_OK);
}

/* Pools and batches of blocks fail, as malloc does, and have it later. */
enum lacking { POOL, OBJECTS_OF_POOL, SMALL_BLOCKS, LARGE_BLOCK, LACKING };
static bool served(enum lacking what, struct strata_pool_local *local) {
    static void *objects[6000];
    struct strata_pool *pool;
    size_t count = 0, wanted = what == SMALL_BLOCKS ? 2000 : what == LARGE_BLOCK ? 1 : what == POOL ? 0 : 6000;
    switch (what) {
    case POOL:
        if (strata_pool_create(&(struct strata_pool_config){.name = "lacking", .object_bytes = 4096, .m = 64, .objects_start = 6000}, &pool) !=
            STRATA_POOL_OK)
            return false;
        return strata_pool_destroy(pool, NULL) == STRATA_POOL_OK;
    case OBJECTS_OF_POOL:
        while (count < wanted && (objects[count] = strata_pool_alloc(local)) != NULL) count++;
        for (size_t i = 0; i < count; i++) strata_pool_free(local, objects[i]);
        return count == wanted;
    default: break;
    }
    size_t bytes = what == SMALL_BLOCKS ? 12000 : 24 << 20;
    memset(objects, 0, sizeof objects);
    count = wanted;
    (void)strata_batch_alloc1(NULL, objects, &count, &bytes, 0, 0, 0);
    for (size_t i = 0; i < wanted; i++) strata_free(objects[i]);
    return count == wanted;
}

static void and_for_pools_and_batches_of_blocks_later(void **state) {
    (void)state;
    for (enum lacking what = 0; what < LACKING; what++) {
        struct strata_cache *cache = full_depot("hard_limit:32M", true);
        struct strata_pool *pool;
        struct strata_pool_local *local;
        assert_int_equal(strata_pool_create(&(struct strata_pool_config){.name = "short", .object_bytes = 4096, .m = 64}, &pool), STRATA_POOL_OK);
        assert_int_equal(strata_pool_local_create(pool, &local), STRATA_POOL_OK);
        assert_false(served(what, local));
        assert_int_equal(sim_calls(SIM_THREAD_START), 1);
        sim_run_threads_for(MS);
        assert_true(served(what, local));
        strata_pool_local_destroy(local);
        assert_int_equal(strata_pool_destroy(pool, NULL), STRATA_POOL_OK);
        assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK);
    }
}

/* What was served is no failure, though a hint had no effect; nor is what no machine has. */
static void who_is_served_asks_nobody(void **state) {
    (void)state;
    struct strata_cache *cache = full_depot("hard_limit:32M", true);
    struct strata_pool *pool;
    void *block = NULL;
    size_t count = 1, bytes = 2 << 20;
    (void)strata_batch_alloc1(NULL, &block, &count, &bytes, 0, (size_t)3 << 40, 0);
    assert_non_null(block);
    assert_int_equal(
        strata_pool_create(&(struct strata_pool_config){.name = "absurd", .object_bytes = 4096, .m = 64, .objects_start = (size_t)1 << 33}, &pool),
        STRATA_POOL_NO_MEMORY);
    assert_int_equal(sim_calls(SIM_THREAD_START), 0);
    strata_free(block);
    assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_depots_keep_is_there_for_malloc),
        cmocka_unit_test(without_a_thread_too),
        cmocka_unit_test(and_for_other_caches),
        cmocka_unit_test(and_for_batches_of_objects),
        cmocka_unit_test(and_for_pools_and_batches_of_blocks_later),
        cmocka_unit_test(who_is_served_asks_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
