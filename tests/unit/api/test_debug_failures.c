/*
 * test_debug_failures.c - failures on demand, and the log of failures.
 *
 * What it protects: a seed makes the same allocations fail; blocks fail, too, and what would sleep does not; the log has each failure once, whatever
 * is debugged.
 */
#include "strata/kmem.h"
#include "unit/api/debug_support.h"

/* ------------------------------------------------------------------ failures on demand */

static uint64_t failing_calls(uint64_t *failures) {
    uint64_t which = 0;
    for (unsigned i = 0; i < 640; i++) {
        void *p = get(100);
        if (p == NULL) {
            assert_int_equal(errno, ENOMEM);
            which = which * 31 + i;
            ++*failures;
        }
        put(p);
    }
    return which;
}

static void a_seed_repeats_failures(void **state) {
    (void)state;
    uint64_t failures[3] = {0}, calls[3];
    static const char *const features[] = {"mtbf=10+seed=7", "mtbf=10+seed=7", "mtbf=10+seed=8"};
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(strata_debug_set("malloc-112", features[i]), STRATA_DEBUG_OK);
        calls[i] = failing_calls(&failures[i]);
    }
    assert_true(failures[0] > 30 && failures[0] < 130);
    assert_true(calls[0] == calls[1] && failures[0] == failures[1]);
    assert_true(calls[0] != calls[2]);
    struct strata_debug_stats stats;
    strata_debug_stats_get(&stats);
    assert_int_equal(stats.injected, failures[0] + failures[1] + failures[2]);
    assert_string_equal(sim_output(), "");
    sim_clock_advance(12345);
    assert_int_equal(strata_debug_set("malloc-112", "mtbf=10"), STRATA_DEBUG_OK);
    unsigned long long seed; /* the one that was chosen repeats them as well */
    assert_int_equal(sscanf(sim_output(), "strata: debug: mtbf: seed=%llu\n", &seed), 1);
    char again[64];
    snprintf(again, sizeof again, "mtbf=10+seed=%llu", seed);
    failures[0] = failures[1] = 0;
    calls[0] = failing_calls(&failures[0]);
    assert_int_equal(strata_debug_set("malloc-112", again), STRATA_DEBUG_OK);
    assert_true(calls[0] == failing_calls(&failures[1]));
}

/* Sizes above the classes fail, too; also where a block would grow. */
static void blocks_may_fail(void **state) {
    (void)state;
    char *block = get(100000);
    assert_int_equal(strata_debug_set("malloc-large", "guards+mtbf=1+seed=3"), STRATA_DEBUG_OK);
    assert_null(get(40000));
    assert_int_equal(errno, ENOMEM);
    errno = 0;
    assert_null(strata_realloc(block, 200000));
    assert_int_equal(errno, ENOMEM);
    assert_null(strata_calloc(2, 20000));
    assert_null(strata_aligned_alloc(8192, 40000));
    assert_ptr_equal(strata_realloc(block, 90000), block);
    put(get(32768));
    assert_false(strata_debug_spare(true));
    put(get(40000));
    assert_true(strata_debug_spare(false));
    void *sleeper = strata_kmem_alloc(40000, STRATA_KMEM_SLEEP);
    assert_null(get(40000));
    struct strata_debug_stats stats;
    strata_debug_stats_get(&stats);
    assert_int_equal(stats.injected, 6);
    assert_int_equal(strata_debug_set("malloc-l*", "off"), STRATA_DEBUG_OK);
    put(get(40000));
    put(block);
    put(sleeper);
    ASSERT_SOUND();
}

/* With room for their alignment in a debugged buffer or without: there is none above the largest class, or in a class without features. */
static void aligned_requests_fail_as_others(void **state) {
    (void)state;
    static const struct {
        const char *pattern;
        size_t align, bytes;
    } requests[] = {{"*", 4096, 100}, {"*", 4096, 30000}, {"*", 64, 32768}, {"malloc-64", 32, 64}};
    struct strata_debug_stats stats;
    for (unsigned i = 0; i < ARRAY_LENGTH(requests); i++) {
        begin("background:off");
        assert_int_equal(strata_debug_set(requests[i].pattern, "mtbf=1+seed=3"), STRATA_DEBUG_OK);
        assert_null(strata_memalign(requests[i].align, requests[i].bytes));
        assert_false(strata_debug_spare(true));
        void *p = strata_memalign(requests[i].align, requests[i].bytes);
        assert_true(strata_debug_spare(false));
        assert_int_equal((uintptr_t)p % requests[i].align, 0);
        put(p);
        strata_debug_stats_get(&stats);
        assert_true(stats.injected == 1 && stats.plain + stats.allocs == 1 && stats.in_use == 0);
        ASSERT_SOUND();
    }
}

/* Who would sleep is not refused, or it would sleep for ever. */
static void sleepers_are_spared(void **state) {
    (void)state;
    const struct strata_cache_config config = {.size = 40};
    struct strata_cache *cache;
    assert_int_equal(strata_cache_create("things", &config, &cache), STRATA_CACHE_OK);
    assert_int_equal(strata_debug_set("*", "mtbf=1+seed=3"), STRATA_DEBUG_OK);
    assert_null(strata_cache_alloc(cache, 0));
    strata_cache_free(cache, strata_cache_alloc(cache, STRATA_CACHE_SLEEP));
    assert_null(strata_cache_alloc(cache, 0));
    strata_kmem_free(strata_kmem_alloc(40, STRATA_KMEM_SLEEP), 40);
    assert_null(get(40));
    assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK);
    ASSERT_SOUND();
}

/* ------------------------------------------------------------------ the log of failures */

static int refuse(void *object, void *argument) {
    (void)object, (void)argument;
    return 1;
}

static bool note_failure(const struct strata_debug_transaction *transaction, void *argument) {
    char *text = argument;
    size_t length = strlen(text);
    assert_int_equal(transaction->kind, STRATA_DEBUG_FAILED);
    assert_null(transaction->buffer);
    assert_int_equal(transaction->frames, 2);
    snprintf(text + length, 400 - length, "%s %zu;", transaction->cache, transaction->bytes);
    return true;
}

static void assert_failures(const char *expected) {
    char text[400] = "";
    assert_true(strata_debug_log_walk(STRATA_DEBUG_LOG_FAIL, note_failure, text));
    assert_string_equal(text, expected);
    assert_int_equal(strata_debug_log_set("fail"), STRATA_DEBUG_OK);
}

/* Whatever is debugged; each failure once. */
static void failures_are_logged(void **state) {
    (void)state;
    const struct strata_cache_config plain = {.size = 40, .constructor = refuse}, spared = {.size = 48, .constructor = refuse, .no_debug = true};
    struct strata_cache *cache, *left_alone;
    void *objects[3];
    assert_int_equal(strata_cache_create("things", &plain, &cache), STRATA_CACHE_OK);
    assert_int_equal(strata_cache_create("alone", &spared, &left_alone), STRATA_CACHE_OK);
    assert_null(get((size_t)1 << 62));
    assert_int_equal(strata_debug_log_set("fail"), STRATA_DEBUG_OK);
    static const char *const features[] = {"off", "audit"};
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(strata_debug_set("*", features[i]), STRATA_DEBUG_OK);
        assert_null(strata_cache_alloc(cache, 0));
        assert_null(strata_cache_alloc(left_alone, 0));
        assert_int_equal(strata_cache_alloc_batch(left_alone, objects, 3), 0);
        assert_failures("alone 48;alone 48;things 40;");
        assert_null(get((size_t)1 << 62));
        assert_null(strata_kmem_alloc((size_t)1 << 61, 0));
        void *block = get(100000);
        assert_null(strata_realloc(block, (size_t)1 << 60));
        put(block);
        assert_failures("malloc-large 1152921504606846976;malloc-large 2305843009213693952;malloc-large 4611686018427387904;");
        strata_debug_failed("numbers", 17);
        strata_debug_failed(NULL, 17);
        assert_failures("numbers 17;");
    }
    assert_int_equal(strata_debug_set("malloc-large", "mtbf=1+seed=1"), STRATA_DEBUG_OK);
    assert_null(get(50000));
    assert_failures("malloc-large 50000;");
    assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK);
    assert_int_equal(strata_cache_destroy(left_alone), STRATA_CACHE_OK);
    ASSERT_SOUND();
}

/* Until there is none: of a class, and of object caches. */
static void the_end_of_memory_is_logged(void **state) {
    (void)state;
    const struct strata_cache_config config = {.size = 4000}, other = {.size = 5000, .no_debug = true};
    struct strata_cache *caches[2];
    begin("background:off,hard_limit:16M");
    assert_int_equal(strata_cache_create("things", &config, &caches[0]), STRATA_CACHE_OK);
    assert_int_equal(strata_cache_create("alone", &other, &caches[1]), STRATA_CACHE_OK);
    assert_int_equal(strata_debug_log_set("fail"), STRATA_DEBUG_OK);
    static const char *const features[] = {"off", "frames=2+guards"};
    for (unsigned i = 0; i < 2; i++) {
        void *first = NULL, *next;
        assert_int_equal(strata_debug_set("*", features[i]), STRATA_DEBUG_OK);
        for (size_t bytes = 30000; bytes > 0; bytes = bytes > 1000 ? 1000 : 0) {
            while ((next = get(bytes)) != NULL) {
                *(void **)next = first;
                first = next;
            }
        }
        for (unsigned c = 0; c < 2; c++)
            while (strata_cache_alloc(caches[c], 0) != NULL) {}
        for (; first != NULL; first = next) { /* what the walk takes */
            next = *(void **)first;
            put(first);
        }
        strata_release(0);
        assert_failures("alone 5000;things 4000;malloc-1024 1000;malloc-30720 30000;");
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup(name, debug_heap)
    const struct CMUnitTest tests[] = {
        TEST(a_seed_repeats_failures), TEST(blocks_may_fail),     TEST(aligned_requests_fail_as_others),
        TEST(sleepers_are_spared),     TEST(failures_are_logged), TEST(the_end_of_memory_is_logged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
