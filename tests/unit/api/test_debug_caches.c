/*
 * test_debug_caches.c - what object caches do with and without debugging features alike: asking for objects where memory is short, the refusal of
 * a late move function, the count of constructions.
 *
 * What it protects: a program is called back as before when its caches are debugged, for as much memory as they have then; the figures of
 * a cache are true whatever it is debugged with.
 */
#include "unit/api/debug_support.h"

#define MS UINT64_C(1000000)
#define OBJECTS 4096

static const char *const kinds[] = {"off", "guards", "audit", "default"};

/* A program's own cache: objects that it can do without. */
static struct {
    struct strata_cache *cache;
    void *objects[OBJECTS];
    unsigned count, gives; /* how many it gives back when it is asked */
    unsigned of_need[4];
    size_t wanted;
} store;

static void give_some(void *argument, size_t wanted_bytes, enum strata_cache_need need) {
    assert_ptr_equal(argument, &store);
    assert_int_equal(sim_locks_held(), 0);
    store.of_need[need]++;
    store.wanted = wanted_bytes;
    for (unsigned i = 0; i < store.gives && store.count != 0; i++) strata_cache_free(store.cache, store.objects[--store.count]);
}

static void open_store(const char *features, unsigned gives) {
    const struct strata_cache_config config = {.size = 4000, .argument = &store, .reclaim = give_some};
    memset(&store, 0, sizeof store);
    store.gives = gives;
    assert_int_equal(strata_cache_create("store", &config, &store.cache), STRATA_CACHE_OK);
    assert_int_equal(strata_debug_set("store", features), STRATA_DEBUG_OK);
}

static void close_store(void) {
    while (store.count != 0) strata_cache_free(store.cache, store.objects[--store.count]);
    assert_int_equal(strata_cache_destroy(store.cache), STRATA_CACHE_OK);
    ASSERT_SOUND();
    assert_string_equal(sim_output(), "");
}

static struct strata_cache_stats stats_of(struct strata_cache *cache) {
    struct strata_cache_stats stats;
    strata_cache_stats_get(cache, &stats);
    return stats;
}

/* ------------------------------------------------------------------ reclaim */

static void whoever_has_debugged_objects_is_asked(void **state) {
    (void)state;
    for (unsigned k = 0; k < ARRAY_LENGTH(kinds); k++) {
        begin("hard_limit:8M,background:off");
        open_store(kinds[k], 1000);
        while (store.count < 1500 && (store.objects[store.count] = strata_cache_alloc(store.cache, STRATA_CACHE_NO_RECLAIM)) != NULL) store.count++;
        struct strata_cache *other;
        assert_int_equal(strata_cache_create("other", &(struct strata_cache_config){.size = 30000}, &other), STRATA_CACHE_OK);
        unsigned others = 0, before = store.count;
        void *first = NULL, *object;
        while (store.count == before && (object = strata_cache_alloc(other, 0)) != NULL) {
            *(void **)object = first;
            first = object;
            others++;
        }
        assert_int_equal(store.of_need[STRATA_CACHE_OUT_OF_MEMORY], 1);
        assert_int_equal(store.count, before - 1000);
        assert_non_null(object); /* of what was given back */
        struct strata_cache_stats stats = stats_of(store.cache);
        assert_true(stats.reclaims == 1 && stats.reclaimed_bytes == 1000 * UINT64_C(4000));
        for (; first != NULL; first = object) {
            object = *(void **)first;
            strata_cache_free(other, first);
        }
        assert_int_equal(strata_cache_destroy(other), STRATA_CACHE_OK);
        close_store();
    }
}

/* The share of all its memory, ordinary objects' and debugged ones'. */
static void pressure_asks_for_a_share_of_all(void **state) {
    (void)state;
    begin("background:on,decay_ms:3600000");
    open_store("off", 0);
    for (; store.count < 500; store.count++) assert_non_null(store.objects[store.count] = strata_cache_alloc(store.cache, 0));
    assert_int_equal(strata_debug_set("store", "guards"), STRATA_DEBUG_OK);
    strata_cache_reap(store.cache);
    uint64_t ordinary = stats_of(store.cache).memory;
    for (; store.count < 1500; store.count++) assert_non_null(store.objects[store.count] = strata_cache_alloc(store.cache, 0));
    for (unsigned i = 0; i < 600; i++) strata_free(strata_malloc(40 * KIB)); /* which starts the thread */
    sim_run_threads_for(500 * MS);
    uint64_t memory = stats_of(store.cache).memory;
    assert_true(memory >= ordinary + 1000 * UINT64_C(4000));
    sim_pressure_raise(PLATFORM_PRESSURE_CRITICAL);
    sim_run_threads();
    assert_int_equal(store.of_need[STRATA_CACHE_PRESSURE], 1);
    assert_int_equal(store.wanted, memory / 2);
    close_store();
}

static void an_empty_cache_is_not_asked(void **state) {
    (void)state;
    begin("hard_limit:8M,background:off");
    open_store("guards", 0);
    struct strata_cache *other;
    assert_int_equal(strata_cache_create("other", &(struct strata_cache_config){.size = 500000}, &other), STRATA_CACHE_OK);
    while (strata_cache_alloc(other, 0) != NULL) {}
    assert_int_equal(store.of_need[STRATA_CACHE_OUT_OF_MEMORY], 0);
    close_store();
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup(name, debug_heap)
    const struct CMUnitTest tests[] = {
        TEST(whoever_has_debugged_objects_is_asked),
        TEST(pressure_asks_for_a_share_of_all),
        TEST(an_empty_cache_is_not_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
