/*
 * test_arena_sleep.c - requests to public arenas that sleep, on the simulated platform, in every order of threads that few switches allow: none
 * misses what it waits for, be it freed or added here, in an arena that this one imports from, or where only the program knows.
 */
#include "api/quantum.h"
#include "unit/api/arena_api_support.h"
#include "unit/sparse.h"

static const char *wrong;
#define EXPECT(condition)                                      \
    do {                                                       \
        if (!(condition) && wrong == NULL) wrong = #condition; \
    } while (0)

static const char *end(void) {
    EXPECT(sim_run_threads()); /* false: someone sleeps for ever */
    const char *broken = strata_check();
    return wrong != NULL ? wrong : broken;
}

static void explore_all(struct sim_exploration *exploration) {
    exploration->deviations = sparse_deviations(exploration->deviations);
    bool good = sim_explore(exploration);
    if (!good) fail_msg("%s", exploration->failure);
    assert_true(exploration->runs > sparse_runs(20)); /* there was something to explore */
}
static void explore(const char *(*scenario)(void *), unsigned deviations) {
    explore_all(&(struct sim_exploration){.scenario = scenario, .deviations = deviations});
}

static void sleep_for_ten(void *from) {
    uint64_t start;
    EXPECT(strata_arena_alloc(from, 10, STRATA_ARENA_SLEEP, &start) == STRATA_ARENA_OK);
    sim_yield();
    EXPECT(strata_arena_free(from, start, 10) == STRATA_ARENA_OK);
}

/* Three want what there is one of. */
static const char *turns_scenario(void *context) {
    (void)context;
    new_still_process(NULL);
    wrong = NULL;
    struct strata_arena *arena = new_arena("one", 0, 10, 1);
    for (unsigned i = 0; i < 3; i++) sim_thread_start(i % 2, sleep_for_ten, arena);
    const char *result = end();
    EXPECT(stats_of(arena).allocs == 3 && stats_of(arena).waiters == 0);
    return result != NULL ? result : wrong;
}

static void sleepers_take_turns(void **state) {
    (void)state;
    explore(turns_scenario, 2);
}

/* The bottom of the stack gets free while someone sleeps at its top. */
static void free_at_the_bottom(void *start) { EXPECT(strata_arena_free(bottom, *(uint64_t *)start, 1024) == STRATA_ARENA_OK); }
static void add_to_the_middle(void *unused) {
    (void)unused;
    EXPECT(strata_arena_add(middle, 16, 16) == STRATA_ARENA_OK);
}
static void limit_the_middle(void *unused) {
    (void)unused;
    EXPECT(strata_arena_set_limit(middle, 64) == STRATA_ARENA_OK);
}

static const char *stack_scenario(unsigned kind) {
    static uint64_t all;
    new_stack();
    wrong = NULL;
    EXPECT(strata_arena_set_source(middle, bottom) == STRATA_ARENA_OK && strata_arena_set_source(top, middle) == STRATA_ARENA_OK);
    if (kind == 2)
        EXPECT(strata_arena_set_limit(middle, 0) == STRATA_ARENA_OK);
    else
        EXPECT(strata_arena_alloc(bottom, 1024, 0, &all) == STRATA_ARENA_OK);
    sim_thread_start(0, sleep_for_ten, top);
    sim_thread_start(1, kind == 0 ? free_at_the_bottom : kind == 1 ? add_to_the_middle : limit_the_middle, &all);
    return end();
}
static const char *bottom_scenario(void *context) {
    (void)context;
    return stack_scenario(0);
}
static const char *middle_scenario(void *context) {
    (void)context;
    return stack_scenario(1);
}
static const char *limit_scenario(void *context) {
    (void)context;
    return stack_scenario(2);
}

static void what_appears_below_wakes_above(void **state) {
    (void)state;
    explore(bottom_scenario, 2);
    explore(middle_scenario, 2);
    explore(limit_scenario, 2);
}

/* All that import from one source hear of it, at every depth. */
static const char *siblings_scenario(void *context) {
    static uint64_t all;
    (void)context;
    new_stack();
    wrong = NULL;
    struct strata_arena *beside = new_arena("beside", 0, 0, 1);
    EXPECT(strata_arena_set_source(beside, bottom) == STRATA_ARENA_OK);
    EXPECT(strata_arena_set_source(middle, bottom) == STRATA_ARENA_OK && strata_arena_set_source(top, middle) == STRATA_ARENA_OK);
    EXPECT(strata_arena_alloc(bottom, 1024, 0, &all) == STRATA_ARENA_OK);
    sim_thread_start(0, sleep_for_ten, beside);
    sim_thread_start(0, sleep_for_ten, top);
    sim_thread_start(1, free_at_the_bottom, &all);
    return end();
}

static void siblings_are_woken_alike(void **state) {
    (void)state;
    explore(siblings_scenario, 1);
}

/* A sleeper whose source is used up still gets what is freed beside it. */
static void free_beside(void *start) { EXPECT(strata_arena_free(top, *(uint64_t *)start, 10) == STRATA_ARENA_OK); }
static const char *beside_scenario(void *context) {
    static uint64_t mine, other;
    (void)context;
    new_stack();
    wrong = NULL;
    EXPECT(strata_arena_set_source(top, bottom) == STRATA_ARENA_OK);
    /* One span of everything, in which a second segment stays. */
    EXPECT(strata_arena_alloc(top, 10, 0, &mine) == STRATA_ARENA_OK && strata_arena_alloc(top, 54, 0, &other) == STRATA_ARENA_OK);
    EXPECT(strata_arena_alloc(bottom, 960, 0, &other) == STRATA_ARENA_OK);
    sim_thread_start(0, sleep_for_ten, top);
    sim_thread_start(1, free_beside, &mine);
    return end();
}

static void nobody_sleeps_inside_the_source(void **state) {
    (void)state;
    explore(beside_scenario, 3);
}

/* The program's own source has something again, and says so. */
static enum strata_arena_status alloc_once_open(void *context, uint64_t size, unsigned flags, uint64_t *start, uint64_t *got) {
    EXPECT(flags == STRATA_ARENA_SLEEP);
    *start = 5000;
    *got = size;
    return *(bool *)context ? STRATA_ARENA_OK : STRATA_ARENA_NO_SPACE;
}
static void release_nothing(void *context, uint64_t start, uint64_t size) { (void)context, (void)start, (void)size; }
static bool is_open;
static void open_up(void *arena) {
    is_open = true;
    EXPECT(strata_arena_wake(arena) == STRATA_ARENA_OK);
}
static const char *wake_scenario(void *context) {
    (void)context;
    new_still_process(NULL);
    wrong = NULL;
    is_open = false;
    struct strata_arena *arena = new_arena("by function", 0, 0, 1);
    EXPECT(strata_arena_set_import(arena, alloc_once_open, release_nothing, &is_open) == STRATA_ARENA_OK);
    sim_thread_start(0, sleep_for_ten, arena);
    sim_thread_start(1, open_up, arena);
    return end();
}

static void the_program_can_wake(void **state) {
    (void)state;
    explore(wake_scenario, 3);
}

/* Frees into quantum caches wake those who sleep for these sizes, for sizes of which a cache has integers, and for such as no cache has. */
static struct strata_arena *cached;
static uint64_t held[16];

static void sleep_for(void *bytes) {
    uint64_t start, size = (uintptr_t)bytes;
    EXPECT(strata_arena_alloc(cached, size, STRATA_ARENA_SLEEP, &start) == STRATA_ARENA_OK);
    EXPECT(strata_arena_free(cached, start, size) == STRATA_ARENA_OK);
}
static void free_one(void *first) {
    uint64_t *of = first;
    EXPECT(strata_arena_free(cached, *of, 1) == STRATA_ARENA_OK);
}
static void free_below(void *end) {
    for (unsigned i = 0; i < 16; i++) EXPECT(held[i] >= (uintptr_t)end || strata_arena_free(cached, held[i], 1) == STRATA_ARENA_OK);
}

static bool windowless; /* no address space for the marks, which are in plots then */

static void fill(void) {
    wrong = NULL;
    cached = new_arena("cached", 0, 16, 1);
    EXPECT(strata_arena_set_quantum_caches(cached, 2) == STRATA_ARENA_OK);
    sim_fail_only(UINT64_C(1) << SIM_RESERVE);
    if (windowless) sim_fail_call(1, SIM_FOREVER);
    for (unsigned i = 0; i < 16; i++) held[i] = must_alloc(cached, 1);
    sim_fail_call(0, 0);
    EXPECT((((const struct quantum_arena *)(void *)cached)->table.window.count == 0) == windowless);
}
static void fill_cached(void) {
    new_still_process(NULL);
    fill();
}

/* By waking, not by looking again. */
static const char *end_at_once(void) {
    uint64_t began_ns = platform_now_ns();
    const char *result = end();
    EXPECT(platform_now_ns() - began_ns < 1000000);
    EXPECT(stats_of(cached).waiters == 0);
    const struct quantum_arena *core = (const struct quantum_arena *)(void *)cached;
    for (unsigned i = 0; i < 2; i++) {
        const struct object_cache *cache = quantum_cache_of(core->arena.qcaches[i]);
        EXPECT(cache->owner->layer.depots[cache->index].shut == 0);
    }
    EXPECT(core->table.sleepers == 0);
    return result != NULL ? result : wrong;
}

static const char *cached_scenario(void *context) {
    (void)context;
    fill_cached();
    sim_thread_start(0, sleep_for, (void *)1);
    sim_thread_start(1, free_one, &held[3]);
    return end_at_once();
}
static const char *two_cached_scenario(void *context) {
    (void)context;
    fill_cached();
    sim_thread_start(0, sleep_for, (void *)1);
    sim_thread_start(1, sleep_for, (void *)1);
    sim_thread_start(1, free_one, &held[3]);
    return end_at_once();
}
/* Of two slabs. An empty one stays with its cache until it is reaped. */
static const char *larger_scenario(void *end) {
    fill_cached();
    sim_thread_start(0, sleep_for, (void *)8);
    sim_thread_start(1, free_below, end);
    return end_at_once();
}
static const char *other_size_scenario(void *context) {
    (void)context;
    fill_cached();
    sim_thread_start(0, sleep_for, (void *)2);
    sim_thread_start(1, free_below, (void *)16);
    return end_at_once();
}

static void frees_into_quantum_caches_wake(void **state) {
    (void)state;
    for (unsigned kind = 0; kind < 2; kind++) {
        windowless = kind != 0;
        explore(cached_scenario, 2);
        explore(two_cached_scenario, 1);
        explore(other_size_scenario, 1);
    }
    windowless = false;
    for (uintptr_t end = 8; end <= 16; end += 8) {
        struct sim_exploration exploration = {.scenario = larger_scenario, .deviations = 2, .context = (void *)end};
        explore_all(&exploration);
    }
}

/* Without a fence arrays of CPUs can't be emptied from outside: so they stay open, and their owners go on. */
static void free_and_take_again(void *unused) {
    uint64_t start = 0;
    struct platform_event never = {0};
    (void)unused;
    EXPECT(strata_arena_free(cached, held[3], 1) == STRATA_ARENA_OK);
    platform_event_wait(&never, 3 * QUANTUM_LOOK_NS); /* the other one is asleep */
    EXPECT(stats_of(cached).waiters == 1);
    EXPECT(strata_arena_alloc(cached, 1, 0, &start) == STRATA_ARENA_OK && start == held[3]);
    EXPECT(strata_arena_add(cached, 100, 16) == STRATA_ARENA_OK); /* for the other one */
}
static void without_a_fence_arrays_stay_open(void **state) {
    (void)state;
    new_still_process(&(struct sim_config){.no_fence = true});
    fill();
    sim_thread_start(1, free_and_take_again, NULL);
    sim_thread_start(0, sleep_for, (void *)1);
    EXPECT(sim_run_threads_for(UINT64_C(1000000000)));
    if (wrong != NULL) fail_msg("%s", wrong);
    assert_null(strata_check());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sleepers_take_turns),
        cmocka_unit_test(what_appears_below_wakes_above),
        cmocka_unit_test(siblings_are_woken_alike),
        cmocka_unit_test(nobody_sleeps_inside_the_source),
        cmocka_unit_test(the_program_can_wake),
        cmocka_unit_test(frees_into_quantum_caches_wake),
        cmocka_unit_test(without_a_fence_arrays_stay_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
