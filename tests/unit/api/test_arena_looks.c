/*
 * test_arena_looks.c - what a sleeping request does each time it wakes to look: it asks nobody, counts nothing, leaves alone the caches that can't
 * have what it waits for, and finds what the others have.
 */
#include "api/quantum.h"
#include "strata/cache.h"
#include "unit/api/arena_api_support.h"

#define LOOKS_NS(count) ((count) * QUANTUM_LOOK_NS)

static const char *wrong;
#define EXPECT(condition)                                      \
    do {                                                       \
        if (!(condition) && wrong == NULL) wrong = #condition; \
    } while (0)
#define EXPECT_OK(call) EXPECT((call) == STRATA_ARENA_OK)

static struct strata_arena *arena;
static struct strata_cache *cache;
static unsigned constructed, asked;
static void *object;
static bool served;

static void pause_ns(uint64_t ns) {
    struct platform_event never = {0};
    platform_event_wait(&never, ns);
}

static int construct(void *memory, void *argument) {
    (void)memory, (void)argument;
    constructed++;
    return 0;
}
static int ask(void *context, struct strata_arena *of, uint64_t size) {
    (void)context, (void)of, (void)size;
    asked++;
    return 0;
}

static void sleep_for(void *wanted) {
    uint64_t start, size = (uintptr_t)wanted;
    EXPECT_OK(strata_arena_alloc(arena, size, STRATA_ARENA_SLEEP, &start));
    served = true;
    EXPECT_OK(strata_arena_free(arena, start, size));
}

static void new_cache(const char *name, const struct strata_cache_config *config) {
    assert_int_equal(strata_cache_create(name, config, &cache), STRATA_CACHE_OK);
}

/* The sleeper on CPU 0, the other one on CPU 1. */
static void run(uint64_t size, void (*other)(void *), void *argument) {
    wrong = NULL;
    served = false;
    sim_thread_start(0, sleep_for, (void *)(uintptr_t)size);
    sim_thread_start(1, other, argument);
    bool ended = sim_run_threads_for(UINT64_C(10000000000));
    if (wrong != NULL) fail_msg("%s", wrong);
    assert_true(ended && served);
}

/* Sixteen integers, and who has them; with quantum caches of 1 and 2, or none. */
static uint64_t held[16];
static void fill(bool with_caches) {
    new_still_process(NULL);
    constructed = asked = 0;
    arena = new_arena("unrelated", 0, 16, 1);
    if (with_caches) ASSERT_OK(strata_arena_set_quantum_caches(arena, 2));
    for (unsigned i = 0; i < 16; i++) held[i] = must_alloc(arena, 1);
    ASSERT_OK(strata_arena_set_reclaim(arena, ask, NULL));
}

/* Once others are asleep, and have emptied all caches once: these are reaped once a second, not with each look of anybody. */
static void keep_using_objects(void) {
    unsigned constructed_once = 0;
    pause_ns(LOOKS_NS(1) / 2);
    for (unsigned i = 0; i < 100; i++) {
        void *one = strata_cache_alloc(cache, 0);
        EXPECT(one != NULL);
        strata_cache_free(cache, one);
        if (i == 0) constructed_once = constructed;
        pause_ns(LOOKS_NS(1) / 2);
    }
    EXPECT(constructed <= 3 * constructed_once);
}
static void give_all_back(void) {
    for (unsigned i = 0; i < 16; i++) EXPECT_OK(strata_arena_free(arena, held[i], 1));
}

static void use_objects(void *unused) {
    (void)unused;
    keep_using_objects();
    const struct strata_arena_stats stats = stats_of(arena);
    EXPECT(stats.waiters == 1);
    EXPECT(stats.waits == 1);
    EXPECT(stats.failures == 0);
    EXPECT(asked == 1);
    give_all_back();
}

/* A size of a quantum cache, one of none, and one in an arena without. */
static void a_look_asks_nobody(void **state) {
    (void)state;
    for (unsigned kind = 0; kind < 3; kind++) {
        fill(kind != 2);
        new_cache("objects", &(struct strata_cache_config){.size = 4096, .constructor = construct});
        run(kind == 0 ? 1 : 8, use_objects, NULL);
        assert_int_equal(stats_of(arena).failures, 0);
    }
}

/* Nor do many that look make it more often. */
static void use_objects_beside_many(void *unused) {
    (void)unused;
    keep_using_objects();
    EXPECT(stats_of(arena).waiters == 21);
    give_all_back();
}
static void many_looks_empty_no_more_than_one(void **state) {
    (void)state;
    for (unsigned with_caches = 0; with_caches < 2; with_caches++) {
        fill(with_caches != 0);
        new_cache("objects", &(struct strata_cache_config){.size = 4096, .constructor = construct});
        for (unsigned i = 0; i < 20; i++) sim_thread_start(i % 2, sleep_for, (void *)(uintptr_t)(1 + i % 2));
        run(1, use_objects_beside_many, NULL);
    }
}

/* A free that doesn't do ends the sleep: the next one is counted, and asked for. */
static void free_too_little(void *unused) {
    (void)unused;
    pause_ns(LOOKS_NS(2));
    EXPECT_OK(strata_arena_free(arena, held[0], 1));
    pause_ns(LOOKS_NS(4));
    EXPECT(!served);
    EXPECT(stats_of(arena).waits == 2);
    EXPECT(asked == 2);
    for (unsigned i = 1; i < 16; i++) EXPECT_OK(strata_arena_free(arena, held[i], 1));
}

static void a_free_that_does_not_do_is_another_sleep(void **state) {
    (void)state;
    for (unsigned with_caches = 0; with_caches < 2; with_caches++) {
        fill(with_caches != 0);
        new_cache("objects", &(struct strata_cache_config){.size = 64});
        run(with_caches != 0 ? 2 : 16, free_too_little, NULL);
        assert_int_equal(stats_of(arena).failures, 0);
    }
}

/* What a cache has from the arena is found by looks, though its free tells nobody. */
static void *slab_allocate(void *context, size_t bytes, size_t align) {
    uint64_t start = 0;
    return strata_arena_xalloc(context, bytes, align, 0, 0, 0, 0, 0, &start) == STRATA_ARENA_OK ? (void *)(uintptr_t)start : NULL;
}
static void slab_release(void *context, void *memory, size_t bytes) { EXPECT_OK(strata_arena_xfree(context, (uintptr_t)memory, bytes)); }

static void free_object(void *unused) {
    (void)unused;
    pause_ns(LOOKS_NS(3));
    EXPECT(!served);
    strata_cache_free(cache, object);
    pause_ns(LOOKS_NS(2));
    EXPECT(served);
}

static void caches_with_a_source_are_looked_into(void **state) {
    (void)state;
    const size_t bytes = 1 << 16;
    new_still_process(NULL);
    char *memory = strata_aligned_alloc(bytes, bytes);
    arena = new_arena("memory", (uintptr_t)memory, bytes, 4096);
    const struct strata_cache_source source = {.allocate = slab_allocate, .release = slab_release, .context = arena};
    new_cache("objects", &(struct strata_cache_config){.size = 4096, .source = &source});
    object = strata_cache_alloc(cache, 0);
    assert_non_null(object);
    run(bytes, free_object, NULL);
    strata_cache_destroy(cache);
}

/* Quantum caches of another arena: of the source, whose objects serve as they are, and of another one that imports from it. */
static struct strata_arena *source_arena, *beside;
static unsigned held_count, to_free;
static void free_beside(void *of) {
    pause_ns(LOOKS_NS(3));
    const struct strata_arena_stats before = stats_of(source_arena);
    pause_ns(LOOKS_NS(10));
    const struct strata_arena_stats after = stats_of(source_arena);
    EXPECT(after.failures == before.failures);
    EXPECT(!served);
    for (unsigned i = 0; i < to_free; i++) EXPECT_OK(strata_arena_free(of, held[i], 2));
    pause_ns(LOOKS_NS(2));
    EXPECT(served);
}

static void quantum_caches_of_the_tree_are_looked_into(void **state) {
    (void)state;
    for (unsigned kind = 0; kind < 2; kind++) {
        new_still_process(NULL);
        source_arena = new_arena("source", 0, 16, 1);
        beside = new_arena("beside", 0, 0, 1);
        arena = new_arena("importer", 0, 0, 1);
        ASSERT_OK(strata_arena_set_source(arena, source_arena));
        ASSERT_OK(strata_arena_set_source(beside, source_arena));
        struct strata_arena *of = kind == 0 ? source_arena : beside;
        ASSERT_OK(strata_arena_set_quantum_caches(of, 2));
        for (held_count = 0; held_count < 16 && strata_arena_alloc(of, 2, 0, &held[held_count]) == STRATA_ARENA_OK;) held_count++;
        assert_in_range(held_count, 6, 8);
        to_free = kind == 0 ? 1 : held_count;
        run(2, free_beside, of);
        for (unsigned i = to_free; i < held_count; i++) ASSERT_OK(strata_arena_free(of, held[i], 2));
    }
}

/* Of an ordinary cache, whose constructor has its integers from here: they are found, not at once. */
static int construct_with(void *memory, void *argument) {
    (void)argument;
    return strata_arena_alloc(arena, 1, 0, memory) == STRATA_ARENA_OK ? 0 : 1;
}
static void destruct_with(void *memory, void *argument) {
    (void)argument;
    EXPECT_OK(strata_arena_free(arena, *(const uint64_t *)memory, 1));
}
static void free_one(void *objects) {
    pause_ns(LOOKS_NS(5));
    strata_cache_free(cache, *(void **)objects);
}
static void what_constructed_objects_have_is_found_in_time(void **state) {
    static void *objects[16];
    (void)state;
    new_still_process(NULL);
    arena = new_arena("identifiers", 0, 16, 1);
    new_cache("identified", &(struct strata_cache_config){.size = 64, .constructor = construct_with, .destructor = destruct_with});
    for (unsigned i = 0; i < 16; i++) assert_non_null(objects[i] = strata_cache_alloc(cache, 0));
    assert_null(strata_cache_alloc(cache, 0));
    run(1, free_one, objects);
    for (unsigned i = 1; i < 16; i++) strata_cache_free(cache, objects[i]);
    assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK);
    ASSERT_OK(strata_arena_destroy(arena));
}

/* A limit that leaves no room for a quantum of the source: who sleeps there takes nothing from it, and doesn't wake itself by giving it back. */
static int ask_a_hundred_times(void *context, struct strata_arena *of, uint64_t size) {
    (void)context, (void)size;
    if (++asked == 100) EXPECT_OK(strata_arena_set_limit(of, STRATA_ARENA_NO_LIMIT));
    return 0;
}
static void raise_limit(void *unused) {
    (void)unused;
    pause_ns(LOOKS_NS(5));
    EXPECT(!served);
    EXPECT(asked == 1);
    EXPECT(stats_of(source_arena).allocs == 0);
    EXPECT_OK(strata_arena_set_limit(arena, 64));
}

static void who_sleeps_at_a_limit_sleeps(void **state) {
    (void)state;
    new_still_process(NULL);
    asked = 0;
    source_arena = new_arena("source", 64, 1024, 64);
    arena = new_arena("limited", 0, 0, 1);
    ASSERT_OK(strata_arena_set_source(arena, source_arena));
    ASSERT_OK(strata_arena_set_limit(arena, 32));
    ASSERT_OK(strata_arena_set_reclaim(arena, ask_a_hundred_times, NULL));
    run(8, raise_limit, NULL);
    assert_int_equal(stats_of(source_arena).allocated, 0);
}

/* Nobody else is here: what serves these sleepers is what their source gives where it is asked as for any request that sleeps, of whatever size. */
static void run_alone(bool with_caches) {
    if (with_caches) ASSERT_OK(strata_arena_set_quantum_caches(arena, 2));
    wrong = NULL;
    served = false;
    sim_thread_start(0, sleep_for, (void *)1);
    EXPECT(sim_run_threads_for(UINT64_C(1000000000)) && served);
    if (wrong != NULL) fail_msg("%s", wrong);
}

static enum strata_arena_status give_who_waits(void *context, uint64_t size, unsigned flags, uint64_t *start, uint64_t *got) {
    (void)context;
    *start = 1 << 20;
    *got = size;
    return flags == STRATA_ARENA_SLEEP ? STRATA_ARENA_OK : STRATA_ARENA_NO_SPACE;
}
static void take_back(void *context, uint64_t start, uint64_t size) { (void)context, (void)start, (void)size; }

static void functions_are_told_who_waits(void **state) {
    (void)state;
    for (unsigned with_caches = 0; with_caches < 2; with_caches++) {
        new_still_process(NULL);
        arena = new_arena("by function", 0, 0, 1);
        ASSERT_OK(strata_arena_set_import(arena, give_who_waits, take_back, NULL));
        run_alone(with_caches != 0);
    }
}

static int give_back(void *context, struct strata_arena *of, uint64_t size) {
    (void)context, (void)size;
    for (unsigned i = 0; i < 16 && asked == 0; i++) EXPECT_OK(strata_arena_free(of, held[i], 1));
    return ++asked == 1;
}

static void sources_are_asked_to_spare(void **state) {
    (void)state;
    for (unsigned with_caches = 0; with_caches < 2; with_caches++) {
        fill(false);
        source_arena = arena;
        ASSERT_OK(strata_arena_set_reclaim(source_arena, give_back, NULL));
        arena = new_arena("importer", 0, 0, 1);
        ASSERT_OK(strata_arena_set_source(arena, source_arena));
        run_alone(with_caches != 0);
        assert_int_equal(asked, 1);
    }
}

/* Nothing is there, whatever is reaped: it fails once, in the source and here, and each reclaim function is called once. */
static unsigned asked_here;
static int ask_here(void *context, struct strata_arena *of, uint64_t size) {
    (void)context, (void)of, (void)size;
    asked_here++;
    return 1;
}
static void a_failed_import_is_one_failure(void **state) {
    uint64_t start;
    (void)state;
    for (unsigned kind = 0; kind < 4; kind++) {
        fill((kind & 1) != 0);
        source_arena = arena;
        arena = new_arena("importer", 0, 0, 1);
        asked_here = 0;
        ASSERT_OK(strata_arena_set_source(arena, source_arena));
        ASSERT_OK(strata_arena_set_reclaim(arena, ask_here, NULL));
        if ((kind & 2) != 0) ASSERT_OK(strata_arena_set_quantum_caches(arena, 2));
        ASSERT_STATUS(strata_arena_alloc(arena, 2, 0, &start), NO_SPACE);
        assert_int_equal(stats_of(arena).failures, 1);
        assert_int_equal(stats_of(source_arena).failures, 1);
        assert_int_equal(asked, 1);
        assert_int_equal(asked_here, 1);
    }
}

/* What an import function asks of an arena, while it is asked quietly itself, is asked as quietly. */
static enum strata_arena_status import_from_source(void *context, uint64_t size, unsigned flags, uint64_t *start, uint64_t *got) {
    (void)context, (void)flags;
    *got = size;
    return strata_arena_alloc(source_arena, size, 0, start);
}
static void give_to_source(void *context, uint64_t start, uint64_t size) {
    (void)context;
    EXPECT_OK(strata_arena_free(source_arena, start, size));
}
static void fill_source(bool source_caches, bool caches) {
    fill(source_caches);
    source_arena = arena;
    arena = new_arena("by function", 0, 0, 1);
    ASSERT_OK(strata_arena_set_import(arena, import_from_source, give_to_source, NULL));
    if (caches) ASSERT_OK(strata_arena_set_quantum_caches(arena, 2));
    new_cache("objects", &(struct strata_cache_config){.size = 4096, .constructor = construct});
}

static void use_objects_and_wake(void *unused) {
    (void)unused;
    pause_ns(LOOKS_NS(1) / 2); /* the other one is asleep, and has emptied all caches once */
    unsigned constructed_once = 0, asked_once = asked;
    uint64_t failures = stats_of(source_arena).failures;
    for (unsigned i = 0; i < 100; i++) {
        void *one = strata_cache_alloc(cache, 0);
        EXPECT(one != NULL);
        strata_cache_free(cache, one);
        if (i == 0) constructed_once = constructed;
        pause_ns(LOOKS_NS(1) / 2);
    }
    EXPECT(asked == asked_once);
    EXPECT(stats_of(source_arena).failures == failures);
    EXPECT(constructed <= 3 * constructed_once);
    for (unsigned i = 0; i < 16; i++) EXPECT_OK(strata_arena_free(source_arena, held[i], 1));
    EXPECT_OK(strata_arena_wake(arena));
}

static void looks_through_functions_ask_nobody(void **state) {
    (void)state;
    for (unsigned kind = 0; kind < 4; kind++) {
        fill_source((kind & 1) != 0, (kind & 2) != 0);
        run(2, use_objects_and_wake, NULL);
    }
}

/* There is room for what is wanted, but for no slab: nobody is bothered for one. */
static void slabs_that_functions_lack_bother_nobody(void **state) {
    uint64_t start;
    (void)state;
    for (unsigned source_caches = 0; source_caches < 2; source_caches++) {
        fill_source(source_caches != 0, true);
        void *one = strata_cache_alloc(cache, 0);
        assert_non_null(one);
        strata_cache_free(cache, one);
        const unsigned constructed_once = constructed;
        ASSERT_OK(strata_arena_free(source_arena, held[3], 1));
        for (unsigned i = 0; i < 100; i++) {
            ASSERT_OK(strata_arena_alloc(arena, 1, 0, &start));
            assert_int_equal(start, held[3]);
            ASSERT_OK(strata_arena_free(arena, start, 1));
        }
        assert_int_equal(asked, 0);
        assert_int_equal(stats_of(source_arena).failures, 0);
        strata_cache_free(cache, strata_cache_alloc(cache, 0));
        assert_int_equal(constructed, constructed_once);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_look_asks_nobody, sound),
        cmocka_unit_test_teardown(many_looks_empty_no_more_than_one, sound),
        cmocka_unit_test_teardown(a_free_that_does_not_do_is_another_sleep, sound),
        cmocka_unit_test_teardown(caches_with_a_source_are_looked_into, sound),
        cmocka_unit_test_teardown(quantum_caches_of_the_tree_are_looked_into, sound),
        cmocka_unit_test_teardown(what_constructed_objects_have_is_found_in_time, sound),
        cmocka_unit_test_teardown(who_sleeps_at_a_limit_sleeps, sound),
        cmocka_unit_test_teardown(functions_are_told_who_waits, sound),
        cmocka_unit_test_teardown(sources_are_asked_to_spare, sound),
        cmocka_unit_test_teardown(a_failed_import_is_one_failure, sound),
        cmocka_unit_test_teardown(looks_through_functions_ask_nobody, sound),
        cmocka_unit_test_teardown(slabs_that_functions_lack_bother_nobody, sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
