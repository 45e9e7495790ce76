/*
 * test_cache_api.c - object caches as programs see them: every wrong argument one by one, what the flags promise, sources, batches, figures.
 */
#include "strata/cache.h"
#include "strata/malloc.h"
#include "strata/strata.h"
#include "unit/api/api_support.h"

static int nothing_made(void *object, void *argument) {
    (void)object, (void)argument;
    return 0;
}

static enum strata_cache_status try_config(const char *name, const struct strata_cache_config *config) {
    struct strata_cache *cache = (void *)&heap;
    enum strata_cache_status status = strata_cache_create(name, config, &cache);
    assert_true((status == STRATA_CACHE_OK) == (cache != NULL)); /* what was in it before is gone */
    if (cache != NULL) assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK);
    return status;
}

static void *refuse(void *context, size_t bytes, size_t align) {
    (void)context, (void)bytes, (void)align;
    return NULL;
}
static void release_nothing(void *context, void *memory, size_t bytes) {
    (void)context, (void)memory, (void)bytes;
    fail_msg("nothing was given");
}

static void wrong_arguments_are_refused_one_by_one(void **state) {
    (void)state;
    const struct strata_cache_config good = {.size = 100};
    const struct strata_cache_source half = {.allocate = refuse}, other_half = {.release = release_nothing};
    assert_int_equal(try_config("good", &good), STRATA_CACHE_OK);
    assert_int_equal(try_config(NULL, &good), STRATA_CACHE_BAD_ARGUMENT);
    assert_int_equal(try_config("", &good), STRATA_CACHE_BAD_ARGUMENT);
    assert_int_equal(try_config("no config", NULL), STRATA_CACHE_BAD_ARGUMENT);
    assert_int_equal(strata_cache_create("no result", &good, NULL), STRATA_CACHE_BAD_ARGUMENT);
    static const size_t wrong_sizes[] = {0, STRATA_CACHE_OBJECT_MAX + 1, SIZE_MAX, SIZE_MAX / 2 + 1, PTRDIFF_MAX};
    for (unsigned i = 0; i < ARRAY_LENGTH(wrong_sizes); i++)
        assert_int_equal(try_config("size", &(struct strata_cache_config){.size = wrong_sizes[i]}), STRATA_CACHE_BAD_ARGUMENT);
    static const size_t wrong_aligns[] = {3, 24, STRATA_CACHE_ALIGN_MAX * 2, SIZE_MAX, SIZE_MAX / 2 + 1};
    for (unsigned i = 0; i < ARRAY_LENGTH(wrong_aligns); i++)
        assert_int_equal(try_config("align", &(struct strata_cache_config){.size = 8, .align = wrong_aligns[i]}), STRATA_CACHE_BAD_ARGUMENT);
    assert_int_equal(try_config("source", &(struct strata_cache_config){.size = 8, .source = &half}), STRATA_CACHE_BAD_ARGUMENT);
    assert_int_equal(try_config("source", &(struct strata_cache_config){.size = 8, .source = &other_half}), STRATA_CACHE_BAD_ARGUMENT);
    const struct strata_cache_source whole = {.allocate = refuse, .release = release_nothing};
    assert_int_equal(try_config("unit of no source", &(struct strata_cache_config){.size = 8, .slab_unit = 4096}), STRATA_CACHE_BAD_ARGUMENT);
    static const size_t wrong_units[] = {3, 24, SIZE_MAX};
    for (unsigned i = 0; i < ARRAY_LENGTH(wrong_units); i++)
        assert_int_equal(try_config("unit", &(struct strata_cache_config){.size = 8, .source = &whole, .slab_unit = wrong_units[i]}),
                         STRATA_CACHE_BAD_ARGUMENT);
    /* The limits themselves. */
    assert_int_equal(try_config("largest", &(struct strata_cache_config){.size = STRATA_CACHE_OBJECT_MAX}), STRATA_CACHE_OK);
    assert_int_equal(try_config("smallest", &(struct strata_cache_config){.size = 1, .align = 1}), STRATA_CACHE_OK);
    assert_int_equal(try_config("aligned", &(struct strata_cache_config){.size = 1, .align = STRATA_CACHE_ALIGN_MAX}), STRATA_CACHE_OK);
    assert_int_equal(strata_cache_destroy(NULL), STRATA_CACHE_OK);
    for (int status = -1; status < 6; status++) assert_true(strlen(strata_cache_status_text((enum strata_cache_status)status)) > 3);
    assert_null(strata_check());
}

static void objects_are_what_was_asked_for(void **state) {
    (void)state;
    for (size_t size = 1; size <= STRATA_CACHE_OBJECT_MAX; size = size * 3 + 1)
        for (size_t align = 1; align <= STRATA_CACHE_ALIGN_MAX; align *= 32) {
            const struct strata_cache_config config = {.size = size, .align = align};
            struct strata_cache *cache;
            if (((size + align - 1) & ~(align - 1)) > STRATA_CACHE_OBJECT_MAX) continue;
            assert_int_equal(strata_cache_create("sizes", &config, &cache), STRATA_CACHE_OK);
            char *objects[5];
            for (unsigned i = 0; i < 5; i++) {
                objects[i] = strata_cache_alloc(cache, STRATA_CACHE_ZERO);
                assert_non_null(objects[i]);
                assert_int_equal((uintptr_t)objects[i] % align, 0);
                for (size_t k = 0; k < size; k += size / 50 + 1) assert_int_equal(objects[i][k], 0);
                memset(objects[i], 0x61 + (int)i, size);
            }
            for (unsigned i = 0; i < 5; i++) {
                assert_true(objects[i][0] == 0x61 + (int)i && objects[i][size - 1] == 0x61 + (int)i);
                strata_cache_free(cache, objects[i]);
            }
            assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK);
        }
    assert_null(strata_check());
}

static void zeros_are_not_for_constructed_objects(void **state) {
    (void)state;
    const struct strata_cache_config config = {.size = 100, .constructor = nothing_made};
    struct strata_cache *cache;
    assert_int_equal(strata_cache_create("made", &config, &cache), STRATA_CACHE_OK);
    assert_null(strata_cache_alloc(cache, STRATA_CACHE_ZERO));
    void *object = strata_cache_alloc(cache, STRATA_CACHE_SLEEP);
    assert_non_null(object);
    strata_cache_free(cache, NULL);
    strata_cache_free(cache, object);
    assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK);
}

/* A constructor that can't, for a while: who may sleep waits for it. */
static unsigned refusals;
static int made_at_last(void *object, void *argument) {
    (void)object, (void)argument;
    if (refusals == 0) return 0;
    refusals--;
    return -1;
}

static void a_sleeper_gets_its_object(void **state) {
    (void)state;
    const struct strata_cache_config config = {.size = 2000, .constructor = made_at_last};
    struct strata_cache *cache;
    assert_int_equal(strata_cache_create("late", &config, &cache), STRATA_CACHE_OK);
    refusals = 1000;
    assert_null(strata_cache_alloc(cache, STRATA_CACHE_NO_SLEEP));
    uint64_t begun = platform_now_ns(), waits = sim_calls(SIM_EVENT_WAIT);
    void *object = strata_cache_alloc(cache, STRATA_CACHE_SLEEP);
    assert_non_null(object);
    assert_int_equal(refusals, 0);
    assert_true(sim_calls(SIM_EVENT_WAIT) > waits + 2 && platform_now_ns() - begun >= 3000000);
    strata_cache_free(cache, object);
    assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK);
}

/* ------------------------------------------------------------------ sources, batches, figures */

static char pool[1 << 20] __attribute__((aligned(1 << 20)));
static size_t pool_next;
static unsigned pool_out;

static void *pool_get(void *context, size_t bytes, size_t align) {
    assert_ptr_equal(context, &pool_out);
    size_t start = (pool_next + align - 1) & ~(align - 1);
    if (start + bytes > sizeof pool) return NULL;
    pool_next = start + bytes;
    pool_out++;
    return pool + start;
}
static void pool_put(void *context, void *memory, size_t bytes) {
    assert_ptr_equal(context, &pool_out);
    assert_true((char *)memory >= pool && (char *)memory + bytes <= pool + sizeof pool);
    pool_out--;
}
static void *misaligned(void *context, size_t bytes, size_t align) {
    char *memory = pool_get(context, bytes, align);
    return memory != NULL ? memory + 16 : NULL;
}

static void memory_may_come_from_the_program(void **state) {
    (void)state;
    struct strata_cache_source source = {.allocate = pool_get, .release = pool_put, .context = &pool_out};
    struct strata_cache *cache;
    pool_next = pool_out = 0;
    assert_int_equal(strata_cache_create("own", &(struct strata_cache_config){.size = 1000, .source = &source}, &cache), STRATA_CACHE_OK);
    source = (struct strata_cache_source){0}; /* it was copied */
    void *objects[2000];
    size_t count = strata_cache_alloc_batch(cache, objects, 2000);
    assert_in_range(count, 900, 1100);
    for (size_t i = 0; i < count; i++) assert_true((char *)objects[i] >= pool && (char *)objects[i] < pool + sizeof pool);
    strata_cache_free_batch(cache, objects, count);
    strata_cache_reap(cache);
    assert_int_equal(pool_out, 0);
    assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK);
    /* What is not aligned goes back and isn't used. */
    pool_next = 0;
    const struct strata_cache_source bad = {.allocate = misaligned, .release = pool_put, .context = &pool_out};
    assert_int_equal(strata_cache_create("bad", &(struct strata_cache_config){.size = 1000, .source = &bad}, &cache), STRATA_CACHE_OK);
    assert_null(strata_cache_alloc(cache, 0));
    assert_int_equal(pool_out, 0);
    assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK);
}

/* All that whole slabs can have of the last `room` bytes is there to be had; slabs are whole units. */
static void exhaust_units(size_t unit, size_t size, size_t room, size_t expected) {
    const struct strata_cache_source source = {.allocate = pool_get, .release = pool_put, .context = &pool_out};
    const struct strata_cache_config config = {.size = size, .align = 1, .source = &source, .slab_unit = unit};
    static void *objects[10000];
    struct strata_cache *cache;
    struct strata_cache_stats stats;
    pool_next = sizeof pool - room;
    assert_int_equal(strata_cache_create("units", &config, &cache), STRATA_CACHE_OK);
    assert_int_equal(strata_cache_alloc_batch(cache, objects, ARRAY_LENGTH(objects)), expected);
    strata_cache_stats_get(cache, &stats);
    assert_true(stats.slab_size % unit == 0 && stats.memory <= room);
    assert_null(strata_check());
    strata_cache_free_batch(cache, objects, expected);
    assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK);
    assert_int_equal(pool_out, 0);
}
static void slabs_are_whole_units_of_their_source(void **state) {
    (void)state;
    exhaust_units(1, 1, 1000, 1000);
    exhaust_units(1, 3, 64, 20); /* two of 32 bytes */
    exhaust_units(64, 16, 1024, 64);
    exhaust_units(65536, 4096, 1 << 20, 256);
    exhaust_units(65536, 1, 1 << 17, 2 * 4096); /* as many as a slab may have */
    exhaust_units(65536, 150000, 1 << 19, 2);   /* of three units, each at a multiple of four */
    exhaust_units(1 << 20, STRATA_CACHE_OBJECT_MAX, 1 << 20, 1);
}

static bool count_objects(void *object, void *argument) {
    assert_non_null(object);
    return ++*(unsigned *)argument != 30;
}

static void figures_follow_the_objects(void **state) {
    (void)state;
    struct strata_cache *cache;
    struct strata_cache_stats stats;
    void *objects[100];
    assert_int_equal(strata_cache_create("counted, by a name that is longer than it may be", &(struct strata_cache_config){.size = 200}, &cache),
                     STRATA_CACHE_OK);
    strata_cache_stats_get(cache, &stats);
    assert_string_equal(stats.name, "counted, by a name that is long");
    assert_true(stats.object_size == 200 && stats.slab_size >= 4096 && stats.total == 0 && stats.memory == 0);
    assert_int_equal(object_caches_area_bytes(&heap.objects), 0);
    assert_int_equal(strata_cache_alloc_batch(cache, objects, 100), 100);
    assert_int_equal(object_caches_area_bytes(&heap.objects), CPU_AREA_BYTES); /* of the one CPU that was here: metadata */
    strata_cache_stats_get(cache, &stats);
    assert_int_equal(stats.in_use, 100);
    assert_true(stats.total >= 100 && stats.memory == stats.slabs * stats.slab_size && stats.slabs_created == stats.slabs);
    unsigned seen = 0;
    assert_true(strata_cache_walk(cache, count_objects, &seen));
    assert_int_equal(seen, 30);
    strata_cache_free_batch(cache, objects, 60);
    strata_cache_stats_get(cache, &stats);
    assert_int_equal(stats.in_use, 40);
    strata_cache_reap(NULL);
    strata_cache_stats_get(cache, &stats);
    assert_true(stats.in_use == 40 && stats.cached == 0);
    /* In the report of the whole heap it has a row of its own. */
    int file = platform_file_create("/look.json");
    assert_int_equal(strata_stats_json(file), 0);
    platform_file_close(file);
    size_t bytes;
    const char *row = strstr(sim_file_text("/look.json", &bytes), "{\"name\":\"counted, by");
    assert_non_null(row);
    assert_non_null(strstr(row, "\"in_use\":40"));
    strata_cache_free_batch(cache, objects + 60, 40);
    assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK);
}

/* The report has rows for some 170 of them; the last one is for all that are left. */
static void many_caches_share_the_last_row(void **state) {
    (void)state;
    enum { MANY = 400 };
    static struct strata_cache *caches[MANY];
    static void *objects[MANY];
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(strata_cache_create("one of many", &(struct strata_cache_config){.size = 100}, &caches[i]), STRATA_CACHE_OK);
        objects[i] = strata_cache_alloc(caches[i], 0);
        assert_non_null(objects[i]);
    }
    int file = platform_file_create("/many.json");
    assert_int_equal(strata_stats_json(file), 0);
    platform_file_close(file);
    size_t bytes, rows = 0;
    const char *json = sim_file_text("/many.json", &bytes);
    for (const char *at = json; (at = strstr(at, "{\"name\":\"one of many\"")) != NULL; at++) rows++;
    assert_in_range(rows, 100, 255);
    const char *others = strstr(json, "{\"name\":\"(others)\"");
    assert_non_null(others);
    char wanted[32];
    snprintf(wanted, sizeof wanted, "\"in_use\":%zu,", MANY - rows);
    assert_non_null(strstr(others, wanted));
    for (unsigned i = 0; i < MANY; i++) {
        strata_cache_free(caches[i], objects[i]);
        assert_int_equal(strata_cache_destroy(caches[i]), STRATA_CACHE_OK);
    }
    assert_null(strata_check());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(wrong_arguments_are_refused_one_by_one, fresh_process),
        cmocka_unit_test_setup(objects_are_what_was_asked_for, fresh_process),
        cmocka_unit_test_setup(zeros_are_not_for_constructed_objects, fresh_process),
        cmocka_unit_test_setup(a_sleeper_gets_its_object, fresh_process),
        cmocka_unit_test_setup(memory_may_come_from_the_program, fresh_process),
        cmocka_unit_test_setup(slabs_are_whole_units_of_their_source, fresh_process),
        cmocka_unit_test_setup(figures_follow_the_objects, fresh_process),
        cmocka_unit_test_setup(many_caches_share_the_last_row, fresh_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
