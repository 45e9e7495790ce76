/*
 * test_limit.c - how much an arena may import: what counts, what is given back, who waits and who is woken; and that a sleeper misses neither
 * what the source gets back nor what another's failed import leaves of the limit, in every order of two threads that few switches allow.
 */
#include "unit/arena/arena_support.h"

static struct arena arena, source;
static struct memory memory;

/* ------------------------------------------------------------------ one thread */

static struct {
    uint64_t calls, next, extra, releases, released_size;
    bool refuses;
} script;

static enum arena_status script_alloc(void *ctx, uint64_t size, unsigned flags, uint64_t *start, uint64_t *got) {
    (void)ctx;
    (void)flags;
    script.calls++;
    if (script.refuses) return ARENA_NO_SPACE;
    *start = script.next;
    *got = size + script.extra;
    script.next += 1000;
    return ARENA_OK;
}

static void script_release(void *ctx, uint64_t start, uint64_t size) {
    (void)ctx;
    (void)start;
    script.releases++;
    script.released_size = size;
}

static const struct arena_source script_source = {script_alloc, script_release}, keeping_source = {script_alloc, NULL};

static int setup(void **state) {
    (void)state;
    sim_reset(NULL);
    memory_init(&memory);
    memset(&script, 0, sizeof script);
    script.next = 1000;
    ASSERT_OK(arena_init(&arena, "limited", 1, &memory_ops, &memory, 0));
    return 0;
}

static int teardown(void **state) {
    (void)state;
    memory_drop(&memory);
    return 0;
}

static void imports_stop_at_the_limit(void **state) {
    uint64_t start;
    (void)state;
    arena_set_source(&arena, &script_source, NULL);
    assert_true(stats_of(&arena).limit == UINT64_MAX);
    arena_set_limit(&arena, 100);
    uint64_t a = must_alloc(&arena, 60, 0);
    ASSERT_STATUS(arena_alloc(&arena, 41, 0, &start), ARENA_NO_SPACE);
    assert_int_equal(script.calls, 1); /* the source wasn't even asked */
    uint64_t b = must_alloc(&arena, 40, 0);
    assert_int_equal(stats_of(&arena).imported, 100);
    ASSERT_STATUS(arena_alloc(&arena, 1, 0, &start), ARENA_NO_SPACE);
    ASSERT_OK(arena_free(&arena, a, 60));
    assert_int_equal(stats_of(&arena).imported, 40);
    (void)must_alloc(&arena, 60, 0);
    ASSERT_OK(arena_free(&arena, b, 40));
    ASSERT_SOUND(&arena);
    arena_set_limit(&arena, UINT64_MAX);
    (void)must_alloc(&arena, 500, 0);
    ASSERT_SOUND(&arena);
}

static void constraints_count_with_their_slack(void **state) {
    uint64_t start;
    (void)state;
    arena_set_source(&arena, &script_source, NULL);
    arena_set_limit(&arena, 72);
    ASSERT_STATUS(arena_xalloc(&arena, 10, 64, 0, 0, 0, 0, 0, &start), ARENA_NO_SPACE); /* 10 + 63 */
    arena_set_limit(&arena, 73);
    ASSERT_OK(arena_xalloc(&arena, 10, 64, 0, 0, 0, 0, 0, &start));
    assert_int_equal(start % 64, 0);
    ASSERT_SOUND(&arena);
}

static void what_was_added_does_not_count(void **state) {
    uint64_t start;
    (void)state;
    arena_set_source(&arena, &script_source, NULL);
    arena_set_limit(&arena, 0);
    ASSERT_OK(arena_add(&arena, 0, 50));
    (void)must_alloc(&arena, 50, 0);
    ASSERT_STATUS(arena_alloc(&arena, 1, 0, &start), ARENA_NO_SPACE);
    assert_int_equal(script.calls, 0);
    arena_set_limit(&arena, 1);
    (void)must_alloc(&arena, 1, 0);
    assert_int_equal(stats_of(&arena).imported, 1);
    assert_int_equal(stats_of(&arena).total, 51);
    ASSERT_SOUND(&arena);
}

static void a_lower_limit_takes_nothing_away(void **state) {
    uint64_t start;
    (void)state;
    arena_set_source(&arena, &script_source, NULL);
    uint64_t a = must_alloc(&arena, 60, 0);
    arena_set_limit(&arena, 10);
    ASSERT_STATUS(arena_alloc(&arena, 1, 0, &start), ARENA_NO_SPACE);
    assert_int_equal(stats_of(&arena).imported, 60);
    ASSERT_OK(arena_free(&arena, a, 60));
    assert_int_equal(script.releases, 1);
    (void)must_alloc(&arena, 10, 0);
    ASSERT_SOUND(&arena);
}

static void too_much_goes_back_or_is_kept_where_it_cannot(void **state) {
    uint64_t start;
    (void)state;
    script.extra = 28;
    arena_set_source(&arena, &script_source, NULL);
    arena_set_limit(&arena, 100);
    ASSERT_STATUS(arena_alloc(&arena, 100, 0, &start), ARENA_NO_SPACE);
    assert_int_equal(script.releases, 1);
    assert_int_equal(script.released_size, 128);
    assert_int_equal(stats_of(&arena).imported, 0);
    assert_int_equal(stats_of(&arena).counters.imports, 0);
    (void)must_alloc(&arena, 72, 0);
    ASSERT_SOUND(&arena);

    ASSERT_OK(arena_init(&arena, "limited", 1, &memory_ops, &memory, 0));
    arena_set_source(&arena, &keeping_source, NULL);
    arena_set_limit(&arena, 100);
    (void)must_alloc(&arena, 100, 0);
    assert_int_equal(stats_of(&arena).imported, 128);
    (void)must_alloc(&arena, 28, 0);
    ASSERT_STATUS(arena_alloc(&arena, 1, 0, &start), ARENA_NO_SPACE);
    ASSERT_SOUND(&arena);
}

static void limits_near_the_end_of_the_integers(void **state) {
    uint64_t start;
    (void)state;
    arena_set_source(&arena, &script_source, NULL);
    script.next = 0;
    arena_set_limit(&arena, UINT64_MAX - 1);
    ASSERT_STATUS(arena_alloc(&arena, UINT64_MAX, 0, &start), ARENA_NO_SPACE);
    (void)must_alloc(&arena, UINT64_MAX - 1, 0);
    ASSERT_STATUS(arena_alloc(&arena, 1, 0, &start), ARENA_NO_SPACE);
    ASSERT_STATUS(arena_alloc(&arena, UINT64_MAX, 0, &start), ARENA_NO_SPACE); /* the sum would wrap */
    ASSERT_SOUND(&arena);
}

static void destroyed_arenas_begin_without_a_limit(void **state) {
    (void)state;
    arena_set_limit(&arena, 7);
    ASSERT_OK(arena_destroy(&arena));
    assert_true(stats_of(&arena).limit == UINT64_MAX);
}

/* ------------------------------------------------------------------ two threads */

static const char *wrong;
#define EXPECT(condition)                                      \
    do {                                                       \
        if (!(condition) && wrong == NULL) wrong = #condition; \
    } while (0)

static bool word_wait(void *ctx, const uint32_t *word, uint32_t seen) {
    (void)ctx;
    platform_word_wait(word, seen);
    return true;
}
static void word_wake(void *ctx, const uint32_t *word) {
    (void)ctx;
    platform_word_wake(word);
}
/* The importer is to ask again. */
static void source_appeared(void *ctx) {
    (void)ctx;
    arena_wake(&arena);
}

static const struct arena_ops ops = {.wait = word_wait, .wake = word_wake};
static const struct arena_ops source_table = {.wait = word_wait, .wake = word_wake, .appeared = source_appeared};

/* As api/ composes them: the importer sleeps in its own arena, never inside the source. */
static enum arena_status import_awake(void *ctx, uint64_t size, unsigned flags, uint64_t *start, uint64_t *got) {
    sim_yield();
    return arena_as_source.alloc(ctx, size, flags & ~(unsigned)ARENA_SLEEP, start, got);
}
static void release_slowly(void *ctx, uint64_t start, uint64_t size) {
    sim_yield();
    arena_as_source.release(ctx, start, size);
    sim_yield();
}
static const struct arena_source awake_source = {import_awake, release_slowly};

static void begin(uint64_t has, uint64_t limit) {
    sim_reset(NULL);
    wrong = NULL;
    EXPECT(arena_init(&source, "source", 1, &source_table, NULL, 0) == ARENA_OK);
    EXPECT(arena_init(&arena, "importer", 1, &ops, NULL, 0) == ARENA_OK);
    if (has != 0) EXPECT(arena_add(&source, 1000, has) == ARENA_OK);
    arena_set_source(&arena, &awake_source, &source);
    arena_set_limit(&arena, limit);
}

static const char *end(void) {
    EXPECT(sim_run_threads()); /* false: someone sleeps for ever */
    EXPECT(arena.total == 0 && arena.imported == 0 && arena.importing == 0 && source.allocated == 0);
    const char *unsound = arena_check(&arena);
    if (unsound == NULL) unsound = arena_check(&source);
    return wrong != NULL ? wrong : unsound;
}

static void explore(const char *(*scenario)(void *), unsigned deviations) {
    struct sim_exploration exploration = {.scenario = scenario, .deviations = deviations};
    bool sound = sim_explore(&exploration);
    if (!sound) fail_msg("%s", exploration.failure);
    assert_true(exploration.runs > 20); /* there was something to explore */
}

static void take_and_free(void *argument) {
    uint64_t start, size = (uint64_t)(uintptr_t)argument;
    for (unsigned i = 0; i < 2; i++) {
        EXPECT(arena_alloc(&arena, size, ARENA_SLEEP, &start) == ARENA_OK);
        EXPECT(arena.imported <= arena.limit);
        sim_yield();
        EXPECT(arena_free(&arena, start, size) == ARENA_OK);
    }
}

/* Each wants all that may be imported: they take turns. */
static const char *limit_scenario(void *context) {
    (void)context;
    begin(100, 10);
    sim_thread_start(0, take_and_free, (void *)10);
    sim_thread_start(1, take_and_free, (void *)7);
    return end();
}

/* No limit, but the source has enough for one: what the other gives back there wakes, also where the source tells nobody. */
static const char *source_scenario(void *context) {
    (void)context;
    begin(10, UINT64_MAX);
    source.ops = &ops;
    sim_thread_start(0, take_and_free, (void *)10);
    sim_thread_start(1, take_and_free, (void *)7);
    return end();
}

static void use_the_source(void *argument) {
    uint64_t start = 0;
    (void)argument;
    EXPECT(arena_alloc(&source, 8, ARENA_SLEEP, &start) == ARENA_OK);
    EXPECT(arena_free(&source, start, 8) == ARENA_OK);
}

/* Someone else has what the source could give. */
static const char *shared_source_scenario(void *context) {
    (void)context;
    begin(10, UINT64_MAX);
    sim_thread_start(0, take_and_free, (void *)10);
    sim_thread_start(1, use_the_source, NULL);
    return end();
}

/* One asks for what the source will never have, and stands in the way of the other meanwhile. */
static void ask_for_too_much(void *argument) {
    uint64_t start;
    (void)argument;
    EXPECT(arena_alloc(&arena, 18, 0, &start) == ARENA_NO_SPACE);
}
static const char *denied_scenario(void *context) {
    (void)context;
    begin(10, 20);
    sim_thread_start(0, ask_for_too_much, NULL);
    sim_thread_start(1, take_and_free, (void *)10);
    return end();
}

/* What can't go back must not come: the limit holds although both ask at once, each for all that it allows. */
static enum arena_status slow_alloc(void *ctx, uint64_t size, unsigned flags, uint64_t *start, uint64_t *got) {
    sim_yield();
    return script_alloc(ctx, size, flags, start, got);
}
static void take_one(void *argument) {
    uint64_t start;
    enum arena_status status = arena_alloc(&arena, 10, 0, &start);
    if (status == ARENA_OK) ++*(unsigned *)argument;
    EXPECT(status == ARENA_OK || status == ARENA_NO_SPACE);
}
static const char *kept_scenario(void *context) {
    static const struct arena_source source_ops = {slow_alloc, NULL};
    unsigned served = 0;
    (void)context;
    begin(0, 10);
    script.extra = 0;
    script.refuses = false;
    arena_set_source(&arena, &source_ops, NULL);
    sim_thread_start(0, take_one, &served);
    sim_thread_start(1, take_one, &served);
    EXPECT(sim_run_threads());
    EXPECT(served == 1 && arena.imported == 10 && arena.importing == 0);
    const char *unsound = arena_check(&arena);
    return wrong != NULL ? wrong : unsound;
}

static void two_threads_together_keep_to_the_limit(void **state) {
    (void)state;
    explore(kept_scenario, 3);
}
static void two_threads_never_pass_the_limit(void **state) {
    (void)state;
    explore(limit_scenario, 2);
}
static void what_goes_back_to_the_source_wakes(void **state) {
    (void)state;
    explore(source_scenario, 2);
}
static void what_others_free_in_the_source_wakes(void **state) {
    (void)state;
    explore(shared_source_scenario, 3);
}
static void a_failed_import_lets_the_next_one_try(void **state) {
    (void)state;
    explore(denied_scenario, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(imports_stop_at_the_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(constraints_count_with_their_slack, setup, teardown),
        cmocka_unit_test_setup_teardown(what_was_added_does_not_count, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lower_limit_takes_nothing_away, setup, teardown),
        cmocka_unit_test_setup_teardown(too_much_goes_back_or_is_kept_where_it_cannot, setup, teardown),
        cmocka_unit_test_setup_teardown(limits_near_the_end_of_the_integers, setup, teardown),
        cmocka_unit_test_setup_teardown(destroyed_arenas_begin_without_a_limit, setup, teardown),
        cmocka_unit_test(two_threads_together_keep_to_the_limit),
        cmocka_unit_test(two_threads_never_pass_the_limit),
        cmocka_unit_test(what_goes_back_to_the_source_wakes),
        cmocka_unit_test(what_others_free_in_the_source_wakes),
        cmocka_unit_test(a_failed_import_lets_the_next_one_try),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
