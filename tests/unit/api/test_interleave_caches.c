/*
 * test_interleave_caches.c - caches that are destroyed while others of them are reaped: by the destructor of one, or by another CPU, in every order
 * that few switches allow around locks. Nobody waits for a cache that has nothing to do with it, and each object that was constructed is destructed.
 * And one that is created while its debugging features are set: it has those that were set last. And a debugged buffer that is freed twice: one of
 * the two is reported.
 */
#include "strata/cache.h"
#include "strata/debug.h"
#include "strata/malloc.h"
#include "strata/strata.h"
#include "unit/api/api_support.h"

enum { OBJECTS = 3, RUNS_MIN = 200 };

static struct strata_cache *sessions, *beside;
static int constructed;
static const char *wrong;

#define EXPECT(condition)                                      \
    do {                                                       \
        if (!(condition) && wrong == NULL) wrong = #condition; \
    } while (0)

/* A session has a cache of its own. */
struct session {
    struct strata_cache *items;
};
static int begin_session(void *object, void *unused) {
    struct session *session = object;
    const struct strata_cache_config config = {.size = 48};
    (void)unused;
    constructed++;
    return strata_cache_create("items", &config, &session->items) != STRATA_CACHE_OK;
}
static void end_session(void *object, void *unused) {
    struct session *session = object;
    (void)unused;
    constructed--;
    EXPECT(sim_locks_held() == 0);
    EXPECT(strata_cache_destroy(session->items) == STRATA_CACHE_OK);
}
static int begin(void *object, void *unused) {
    (void)object, (void)unused;
    constructed++;
    return 0;
}
static void end(void *object, void *unused) {
    (void)object, (void)unused;
    constructed--;
}

static void use(struct strata_cache *cache) {
    void *objects[OBJECTS];
    for (unsigned i = 0; i < OBJECTS; i++) EXPECT((objects[i] = strata_cache_alloc(cache, 0)) != NULL);
    for (unsigned i = 0; i < OBJECTS; i++) strata_cache_free(cache, objects[i]);
}
static void open_caches(bool nested) {
    const struct strata_cache_config of_sessions = {
        .size = sizeof(struct session), .constructor = nested ? begin_session : begin, .destructor = nested ? end_session : end};
    const struct strata_cache_config of_others = {.size = 100, .constructor = begin, .destructor = end};
    wrong = NULL;
    constructed = 0;
    EXPECT(strata_cache_create("beside", &of_others, &beside) == STRATA_CACHE_OK);
    EXPECT(strata_cache_create("sessions", &of_sessions, &sessions) == STRATA_CACHE_OK);
    use(sessions);
    use(beside);
}

static void a_destructor_destroys_another_cache(void **state) {
    static const char *const confs[] = {"background:off", "background:off,rseq:off"};
    (void)state;
    for (unsigned i = 0; i < ARRAY_LENGTH(confs); i++) {
        new_process(NULL, confs[i]);
        open_caches(true);
        strata_cache_reap(sessions);
        use(sessions);
        strata_cache_reap(NULL);
        use(sessions);
        strata_release(0);
        assert_int_equal(strata_cache_destroy(sessions), STRATA_CACHE_OK);
        assert_int_equal(strata_cache_destroy(beside), STRATA_CACHE_OK);
        assert_int_equal(constructed, 0);
        if (wrong != NULL) fail_msg("%s", wrong);
        ASSERT_SOUND();
    }
}

static void reap(void *unused) {
    (void)unused;
    strata_cache_reap(sessions);
}
static void reap_all(void *unused) {
    (void)unused;
    strata_cache_reap(NULL);
}
static void destroy(void *unused) {
    (void)unused;
    EXPECT(strata_cache_destroy(beside) == STRATA_CACHE_OK);
}
static void run_threads(void *unused) {
    (void)unused;
    EXPECT(sim_run_threads());
}

static const char *run(void *reaper) {
    void (*const *body)(void *) = reaper;
    sim_explore_ignore(true);
    new_process(&(struct sim_config){.cpus = 2}, "background:off");
    open_caches(false);
    sim_explore_ignore(false);
    sim_thread_start(0, *body, NULL); /* on the CPU that has the objects, and on another one */
    sim_thread_start(1, destroy, NULL);
    bool dead = sim_dies(run_threads, NULL);
    sim_explore_ignore(true);
    EXPECT(!dead);
    if (dead) return wrong;
    EXPECT(strata_cache_destroy(sessions) == STRATA_CACHE_OK);
    EXPECT(constructed == 0);
    EXPECT(strata_check() == NULL);
    return wrong;
}
static void a_cache_is_destroyed_beside_a_reap(void **state) {
    static void (*const reapers[])(void *) = {reap, reap_all};
    (void)state;
    for (unsigned i = 0; i < ARRAY_LENGTH(reapers); i++) {
        struct sim_exploration exploration = {.scenario = run, .context = (void *)(uintptr_t)&reapers[i], .deviations = sparse_deviations(2)};
        if (!sim_explore(&exploration)) fail_msg("%s", exploration.failure);
        if (exploration.runs < sparse_runs(RUNS_MIN)) fail_msg("%llu runs only", (unsigned long long)exploration.runs);
    }
}

/* ------------------------------------------------------------------ created beside a setter */

static void create(void *unused) {
    (void)unused;
    EXPECT(strata_cache_create("beside", &(struct strata_cache_config){.size = 100}, &beside) == STRATA_CACHE_OK);
}
static void set(void *features) { EXPECT(strata_debug_set("beside", features) == STRATA_DEBUG_OK); }

static const char *create_and_set(void *features) {
    const char *const *of_rules = features; /* before, and then */
    struct strata_debug_stats stats;
    sim_explore_ignore(true);
    new_process(&(struct sim_config){.cpus = 2}, "background:off");
    wrong = NULL;
    set((void *)(uintptr_t)of_rules[0]);
    sim_explore_ignore(false);
    sim_thread_start(0, create, NULL);
    sim_thread_start(1, set, (void *)(uintptr_t)of_rules[1]);
    EXPECT(sim_run_threads());
    sim_explore_ignore(true);
    strata_debug_stats_get(&stats);
    EXPECT(stats.caches == (strcmp(of_rules[1], "off") != 0));
    EXPECT(strata_cache_destroy(beside) == STRATA_CACHE_OK);
    EXPECT(strata_check() == NULL);
    return wrong;
}
static void a_cache_is_created_beside_a_setter(void **state) {
    static const char *const rules[][2] = {{"guards", "off"}, {"off", "guards"}, {"audit", "guards"}};
    (void)state;
    for (unsigned i = 0; i < ARRAY_LENGTH(rules); i++) {
        struct sim_exploration exploration = {.scenario = create_and_set, .context = (void *)(uintptr_t)rules[i], .deviations = sparse_deviations(2)};
        if (!sim_explore(&exploration)) fail_msg("%s", exploration.failure);
        if (exploration.runs < sparse_runs(RUNS_MIN)) fail_msg("%llu runs only", (unsigned long long)exploration.runs);
    }
}

/* ------------------------------------------------------------------ freed twice as its slab goes */

static void *freed;
static void free_it(void *unused) {
    (void)unused;
    strata_free(freed);
}
static void resize_it(void *unused) {
    (void)unused;
    EXPECT(strata_realloc(freed, 70) != NULL);
}
static void run_both(void *unused) {
    (void)unused;
    EXPECT(sim_run_threads_for(UINT64_C(1000000000))); /* a report waits a little for the lock of the zone */
}
struct twice {
    const char *features;
    void (*second)(void *unused);
};

/* The features are off by then, so that the slab goes with its last buffer: with a free of it or with the other. */
static const char *free_twice(void *context) {
    const struct twice *twice = context;
    sim_explore_ignore(true);
    new_process(&(struct sim_config){.cpus = 2}, "background:off");
    wrong = NULL;
    EXPECT(strata_debug_set("malloc-64", twice->features) == STRATA_DEBUG_OK);
    EXPECT((freed = strata_malloc(50)) != NULL);
    EXPECT(strata_debug_set("malloc-64", "off") == STRATA_DEBUG_OK);
    sim_explore_ignore(false);
    sim_thread_start(0, free_it, NULL);
    sim_thread_start(1, twice->second, NULL);
    bool dead = sim_dies(run_both, NULL);
    sim_explore_ignore(true);
    EXPECT(dead);
    return wrong;
}
static void a_buffer_is_freed_twice_as_its_slab_goes(void **state) {
    static const struct twice cases[] = {{"guards", free_it}, {"firewall", free_it}, {"guards", resize_it}};
    (void)state;
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct sim_exploration exploration = {.scenario = free_twice, .context = (void *)(uintptr_t)&cases[i], .deviations = sparse_deviations(2)};
        if (!sim_explore(&exploration)) fail_msg("%s", exploration.failure);
        if (exploration.runs < sparse_runs(20)) fail_msg("%llu runs only", (unsigned long long)exploration.runs);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_destructor_destroys_another_cache),
        cmocka_unit_test(a_cache_is_destroyed_beside_a_reap),
        cmocka_unit_test(a_cache_is_created_beside_a_setter),
        cmocka_unit_test(a_buffer_is_freed_twice_as_its_slab_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
