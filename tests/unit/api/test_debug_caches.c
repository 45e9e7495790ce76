/*
 * test_debug_caches.c - what object caches do with and without debugging features alike: asking for objects where memory is short, failing
 * where mtbf says so, the refusal of a late move function, the count of constructions.
 *
 * What it protects: a program is called back as before when its caches are debugged, for as much memory as they have then, and not for failures that
 * it has ordered, which come as often as it said; the figures of a cache are true whatever it is debugged with.
 */
#include <time.h>

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

/* ------------------------------------------------------------------ failures on demand */

static void *source_allocate(void *context, size_t bytes, size_t align) {
    (void)context;
    return strata_aligned_alloc(align, bytes);
}
static void source_release(void *context, void *memory, size_t bytes) {
    (void)context, (void)bytes;
    strata_free(memory);
}

static unsigned failures_of(struct strata_cache *cache, unsigned flags) {
    unsigned failures = 0;
    for (unsigned i = 0; i < 2000; i++) {
        void *object = strata_cache_alloc(cache, flags);
        failures += object == NULL;
        strata_cache_free(cache, object);
    }
    return failures;
}

/* One allocation in about N, whatever the cache would do for memory; and nobody is asked for any, as there is enough. */
static void failures_come_as_often_as_was_said(void **state) {
    (void)state;
    const struct strata_cache_source source = {.allocate = source_allocate, .release = source_release};
    open_store("off", 0);
    store.objects[store.count++] = strata_cache_alloc(store.cache, 0);
    const struct strata_cache_config configs[] = {
        {.size = 64}, {.size = 64, .argument = &store, .reclaim = give_some}, {.size = 64, .source = &source}, {.size = 64, .no_magazines = true}};
    uint64_t injected = 0;
    struct strata_debug_stats stats;
    assert_int_equal(strata_debug_set("d", "mtbf=10+seed=3"), STRATA_DEBUG_OK);
    for (unsigned c = 0; c < ARRAY_LENGTH(configs); c++) {
        struct strata_cache *cache;
        assert_int_equal(strata_cache_create("d", &configs[c], &cache), STRATA_CACHE_OK);
        unsigned failures = failures_of(cache, STRATA_CACHE_NO_SLEEP);
        assert_in_range(failures, 150, 250);
        failures += failures_of(cache, STRATA_CACHE_NO_RECLAIM);
        assert_in_range(failures, 300, 500);
        strata_debug_stats_get(&stats);
        assert_int_equal(stats.injected - injected, failures);
        assert_int_equal(failures_of(cache, STRATA_CACHE_SLEEP), 0);
        strata_debug_stats_get(&stats);
        injected = stats.injected;
        assert_int_equal(stats_of(cache).reclaims, 0);
        assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK);
    }
    assert_int_equal(store.of_need[STRATA_CACHE_OUT_OF_MEMORY], 0);
    close_store();
}

/* A failure by mtbf says nothing of the next one: where memory has ended, programs are asked for it. */
static void a_refusal_is_no_want_of_memory(void **state) {
    (void)state;
    begin("hard_limit:8M,background:off");
    open_store("off", 1000);
    while (store.count < OBJECTS && (store.objects[store.count] = strata_cache_alloc(store.cache, STRATA_CACHE_NO_RECLAIM)) != NULL) store.count++;
    struct strata_cache *refused, *others[2];
    assert_int_equal(strata_debug_set("refused", "mtbf=1+seed=1"), STRATA_DEBUG_OK);
    assert_int_equal(strata_debug_set("debugged", "guards"), STRATA_DEBUG_OK);
    assert_int_equal(strata_cache_create("refused", &(struct strata_cache_config){.size = 30000}, &refused), STRATA_CACHE_OK);
    assert_int_equal(strata_cache_create("plain", &(struct strata_cache_config){.size = 30000}, &others[0]), STRATA_CACHE_OK);
    assert_int_equal(strata_cache_create("debugged", &(struct strata_cache_config){.size = 30000}, &others[1]), STRATA_CACHE_OK);
    for (unsigned i = 0; i < 2; i++) {
        void *objects[64], *batch[1];
        unsigned count = 0, asked = store.of_need[STRATA_CACHE_OUT_OF_MEMORY];
        while (store.of_need[STRATA_CACHE_OUT_OF_MEMORY] == asked && count < 64) {
            assert_null(strata_cache_alloc(refused, 0));
            assert_int_equal(strata_cache_alloc_batch(refused, batch, 1), 0);
            assert_non_null(objects[count++] = strata_cache_alloc(others[i], 0));
        }
        assert_int_equal(store.of_need[STRATA_CACHE_OUT_OF_MEMORY], asked + 1);
        while (count != 0) strata_cache_free(others[i], objects[--count]);
        while (store.count < OBJECTS && (store.objects[store.count] = strata_cache_alloc(store.cache, STRATA_CACHE_NO_RECLAIM)) != NULL)
            store.count++;
    }
    assert_int_equal(strata_cache_destroy(refused), STRATA_CACHE_OK);
    for (unsigned i = 0; i < 2; i++) assert_int_equal(strata_cache_destroy(others[i]), STRATA_CACHE_OK);
    close_store();
}

/* ------------------------------------------------------------------ figures, and what comes too late */

static int construct(void *object, void *argument) {
    (void)object, (void)argument;
    return 0;
}
static void destruct(void *object, void *argument) { (void)object, (void)argument; }

/* With and without functions for that. */
static void constructions_are_counted(void **state) {
    (void)state;
    const struct strata_cache_config configs[] = {
        {.size = 64}, {.size = 64, .constructor = construct, .destructor = destruct}, {.size = 64, .destructor = destruct}};
    for (unsigned n = 0; n < ARRAY_LENGTH(kinds) * ARRAY_LENGTH(configs); n++) {
        struct strata_cache *cache;
        void *objects[100];
        assert_int_equal(strata_cache_create("counted", &configs[n % 3], &cache), STRATA_CACHE_OK);
        assert_int_equal(strata_debug_set("counted", kinds[n / 3]), STRATA_DEBUG_OK);
        for (unsigned i = 0; i < 100; i++) objects[i] = strata_cache_alloc(cache, 0);
        struct strata_cache_stats stats = stats_of(cache);
        assert_int_equal(stats.in_use, 100);
        assert_int_equal(stats.constructed - stats.destructed, stats.in_use + stats.cached);
        for (unsigned i = 0; i < 100; i++) strata_cache_free(cache, objects[i]);
        strata_cache_reap(cache);
        stats = stats_of(cache);
        assert_true(stats.constructed >= 100 && stats.constructed == stats.destructed);
        assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK);
    }
}

static enum strata_cache_move move(void *old_object, void *new_object, size_t size, void *argument) {
    (void)old_object, (void)new_object, (void)size, (void)argument;
    return STRATA_CACHE_MOVE_NO;
}

/* An object is out, or was; and where one was refused, nothing was allocated. */
static void a_move_function_comes_before_objects(void **state) {
    (void)state;
    for (unsigned n = 0; n < 2 * ARRAY_LENGTH(kinds); n++) {
        struct strata_cache *cache;
        assert_int_equal(strata_cache_create("moved", &(struct strata_cache_config){.size = 64}, &cache), STRATA_CACHE_OK);
        assert_int_equal(strata_debug_set("moved", "mtbf=1+seed=1"), STRATA_DEBUG_OK);
        assert_null(strata_cache_alloc(cache, 0));
        assert_int_equal(strata_debug_set("moved", kinds[n / 2]), STRATA_DEBUG_OK);
        void *object = NULL;
        enum strata_cache_status expected = n % 2 == 0 ? STRATA_CACHE_TOO_LATE : STRATA_CACHE_OK;
        if (n % 2 == 0) {
            object = strata_cache_alloc(cache, 0);
            assert_int_equal(strata_cache_set_move(cache, move), STRATA_CACHE_TOO_LATE);
            strata_cache_free(cache, object);
            strata_cache_reap(cache);
        }
        assert_int_equal(strata_cache_set_move(cache, move), expected);
        assert_int_equal(strata_cache_set_move(cache, move), STRATA_CACHE_TOO_LATE);
        assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK);
    }
    ASSERT_SOUND();
}

/* ------------------------------------------------------------------ many caches */

/* Each is looked at once, and no cache is searched for its turn among those that had theirs: by a clock, with much to spare. */
static void features_are_set_in_one_walk(void **state) {
    enum { CACHES = 6000 };
    static struct strata_cache *caches[CACHES];
    const struct strata_cache_config config = {.size = 64};
    struct strata_debug_stats stats;
    (void)state;
    const clock_t start = clock();
    for (unsigned i = 0; i < CACHES; i++)
        assert_int_equal(strata_cache_create(i % 1000 == 7 ? "chosen" : "one of many", &config, &caches[i]), STRATA_CACHE_OK);
    const clock_t created = clock();
    assert_int_equal(strata_debug_set("chosen", "guards"), STRATA_DEBUG_OK);
    const clock_t set = clock();
    strata_debug_stats_get(&stats);
    assert_int_equal(stats.caches, CACHES / 1000);
    assert_true(set - created <= 2 * (created - start));
    for (unsigned i = 0; i < CACHES; i++) assert_int_equal(strata_cache_destroy(caches[i]), STRATA_CACHE_OK);
    ASSERT_SOUND();
}

/* ------------------------------------------------------------------ walks */

enum { WALKED = 16000 };
static struct {
    void *buffers[WALKED];
    unsigned visits;
    bool frees;
} walked;

/* Frees what it is shown, by which slabs go, and with one visit in 64 a cache that came before this one's. */
static bool visit(const struct strata_debug_buffer *buffer, void *argument) {
    (void)argument;
    walked.visits++;
    if (!walked.frees) return true;
    unsigned i = (unsigned)(buffer->bytes - 20000);
    assert_ptr_equal(walked.buffers[i], buffer->address);
    walked.buffers[i] = NULL;
    strata_free(buffer->address);
    if (i % 64 != 0) return true;
    strata_release(0);
    close_store();
    open_store("audit=1+frames=1", 1);
    return true;
}

static clock_t walk(void) {
    walked.visits = 0;
    const clock_t start = clock();
    assert_true(strata_debug_walk("malloc-*", false, visit, NULL));
    return clock() - start;
}

/* Of several, as others use the CPUs, too. */
static clock_t least_walk(void) {
    clock_t least = walk();
    for (unsigned again = 0; again < 7; again++) {
        const clock_t now = walk();
        if (now < least) least = now;
    }
    return least;
}

/* A walk of sixteen times as many buffers takes some sixteen times as long, not the square: by a clock, with much to spare. */
static void a_walk_goes_on_where_it_was(void **state) {
    (void)state;
    assert_int_equal(strata_debug_set("malloc-*", "audit=1+frames=1"), STRATA_DEBUG_OK);
    for (unsigned i = 0; i < WALKED / 16; i++) assert_non_null(walked.buffers[i] = strata_malloc(30000));
    const clock_t few = least_walk();
    assert_int_equal(walked.visits, WALKED / 16);
    for (unsigned i = WALKED / 16; i < WALKED; i++) assert_non_null(walked.buffers[i] = strata_malloc(30000));
    const clock_t many = least_walk();
    assert_int_equal(walked.visits, WALKED);
    for (unsigned i = 0; i < WALKED; i++) strata_free(walked.buffers[i]);
    assert_true(many <= 5 * 16 * few);
    ASSERT_SOUND();
}

/* All that stays until it is shown is shown once, whatever goes meanwhile: slabs, also of features that are not set any more, and caches. */
static void a_walk_finds_its_way(void **state) {
    static const char *const features[] = {"audit=1+frames=1", "audit=2+frames=1", "guards"};
    (void)state;
    open_store("audit=1+frames=1", 1);
    walked.frees = true;
    for (unsigned i = 0; i < 900; i++) {
        if (i % 300 == 0) assert_int_equal(strata_debug_set("malloc-*", features[i / 300]), STRATA_DEBUG_OK);
        assert_non_null(walked.buffers[i] = strata_malloc(20000 + i));
    }
    (void)walk();
    walked.frees = false;
    assert_int_equal(walked.visits, 900);
    for (unsigned i = 0; i < 900; i++) assert_null(walked.buffers[i]);
    close_store();
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup(name, debug_heap)
    const struct CMUnitTest tests[] = {
        TEST(whoever_has_debugged_objects_is_asked), TEST(pressure_asks_for_a_share_of_all),
        TEST(an_empty_cache_is_not_asked),           TEST(failures_come_as_often_as_was_said),
        TEST(a_refusal_is_no_want_of_memory),        TEST(constructions_are_counted),
        TEST(a_move_function_comes_before_objects),  TEST(features_are_set_in_one_walk),
        TEST(a_walk_goes_on_where_it_was),           TEST(a_walk_finds_its_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
