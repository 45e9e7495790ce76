/*
 * test_interleave.c - two threads on one arena, in every order that few switches allow: a wake-up is never missed, and the gaps
 * in which a request has dropped the lock (memory for tags and tables, import, release) let nothing get lost or given twice.
 */
#include "unit/arena/arena_support.h"

static struct arena arena;
static struct platform_event event;
static const char *wrong; /* the first thing that was */

#define EXPECT(condition)                                      \
    do {                                                       \
        if (!(condition) && wrong == NULL) wrong = #condition; \
    } while (0)

/* Tags are dear: every batch is a page of this pool, and callers are interrupted around each. */
#define POOL_PAGES 16
static _Alignas(ARENA_BATCH_BYTES) unsigned char pool[POOL_PAGES][ARENA_BATCH_BYTES];
static bool pool_used[POOL_PAGES];

static void *pool_get(void *ctx, size_t bytes) {
    (void)ctx;
    sim_yield();
    if (sim_locks_held() != 0 || bytes != ARENA_BATCH_BYTES) return NULL;
    for (unsigned i = 0; i < POOL_PAGES; i++) {
        if (pool_used[i]) continue;
        pool_used[i] = true;
        memset(pool[i], 0xa5, sizeof pool[i]);
        sim_yield();
        return pool[i];
    }
    return NULL;
}

static void pool_put(void *ctx, void *memory, size_t bytes) {
    (void)ctx;
    (void)bytes;
    sim_yield();
    size_t i = (size_t)((unsigned char *)memory - pool[0]) / ARENA_BATCH_BYTES;
    EXPECT(pool_used[i]);
    pool_used[i] = false;
}

static bool event_wait(void *ctx, const uint32_t *word, uint32_t seen) {
    (void)ctx;
    EXPECT(sim_locks_held() == 0);
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == seen) (void)platform_event_wait(&event, UINT64_MAX);
    return true;
}

static void event_wake(void *ctx, const uint32_t *word) {
    (void)ctx;
    (void)word;
    platform_event_wake(&event);
}

static const struct arena_ops ops = {.memory_get = pool_get, .memory_put = pool_put, .wait = event_wait, .wake = event_wake};

static void begin(void) {
    sim_reset(NULL);
    memset(pool_used, 0, sizeof pool_used);
    event = (struct platform_event){0};
    wrong = NULL;
    EXPECT(arena_init(&arena, "shared", 1, &ops, NULL, 0) == ARENA_OK);
}

static const char *end(uint64_t allocated) {
    EXPECT(sim_run_threads()); /* false: someone sleeps for ever */
    EXPECT(arena_size(&arena, ARENA_ALLOCATED) == allocated);
    const char *unsound = arena_check(&arena);
    return wrong != NULL ? wrong : unsound;
}

static void explore(const char *(*scenario)(void *), unsigned deviations) {
    struct sim_exploration exploration = {.scenario = scenario, .deviations = deviations};
    bool sound = sim_explore(&exploration);
    if (!sound) fail_msg("%s", exploration.failure);
    assert_true(exploration.runs > 20); /* there was something to explore */
}

/* ------------------------------------------------------------------ sleep */

static void sleeper(void *argument) {
    uint64_t start;
    (void)argument;
    EXPECT(arena_alloc(&arena, 10, ARENA_SLEEP, &start) == ARENA_OK && start == 0);
}

static void two_halves(void *argument) {
    (void)argument;
    EXPECT(arena_free(&arena, 0, 4) == ARENA_OK);
    EXPECT(arena_free(&arena, 4, 6) == ARENA_OK);
}

static const char *sleep_scenario(void *context) {
    uint64_t start;
    (void)context;
    begin();
    EXPECT(arena_add(&arena, 0, 10) == ARENA_OK);
    EXPECT(arena_alloc(&arena, 4, 0, &start) == ARENA_OK && arena_alloc(&arena, 6, 0, &start) == ARENA_OK);
    sim_thread_start(0, sleeper, NULL);
    sim_thread_start(1, two_halves, NULL);
    return end(10);
}

static void no_wake_up_is_missed(void **state) {
    (void)state;
    explore(sleep_scenario, 4);
}

/* ------------------------------------------------------------------ tags and tables */

#define EACH 24
static bool owned[4 * EACH];

static void own(uint64_t start, uint64_t size, bool on) {
    for (uint64_t i = start; i < start + size; i++) {
        EXPECT(i < ARRAY_LENGTH(owned) && owned[i] != on);
        owned[i] = on;
    }
}

static void up_and_down(void *argument) {
    uint64_t starts[EACH], size = (uint64_t)(uintptr_t)argument;
    for (unsigned i = 0; i < EACH; i++) {
        starts[i] = 0;
        EXPECT(arena_alloc(&arena, size, i % 3, &starts[i]) == ARENA_OK);
        own(starts[i], size, true);
    }
    for (unsigned i = 0; i < EACH; i++) {
        own(starts[i], size, false);
        EXPECT(arena_free(&arena, starts[i], size) == ARENA_OK);
    }
}

static const char *tags_scenario(void *context) {
    (void)context;
    begin();
    memset(owned, 0, sizeof owned);
    EXPECT(arena_add(&arena, 0, 4 * EACH) == ARENA_OK);
    sim_thread_start(0, up_and_down, (void *)1);
    sim_thread_start(1, up_and_down, (void *)2);
    return end(0);
}

static void nothing_is_lost_while_memory_is_got(void **state) {
    (void)state;
    explore(tags_scenario, 2);
}

/* ------------------------------------------------------------------ import and release */

static uint64_t imports, releases;

static enum arena_status slow_alloc(void *source, uint64_t size, unsigned flags, uint64_t *start, uint64_t *got) {
    (void)source;
    (void)flags;
    *start = 100 * ++imports;
    *got = size + 3;
    sim_yield();
    return ARENA_OK;
}

static void slow_release(void *source, uint64_t start, uint64_t size) {
    (void)source;
    (void)start;
    (void)size;
    sim_yield();
    releases++;
}

static void in_and_out(void *argument) {
    (void)argument;
    for (unsigned i = 0; i < 3; i++) {
        uint64_t a = 0, b = 0;
        EXPECT(arena_alloc(&arena, 5, 0, &a) == ARENA_OK);
        EXPECT(arena_alloc(&arena, 3, 0, &b) == ARENA_OK);
        EXPECT(arena_free(&arena, a, 5) == ARENA_OK);
        EXPECT(arena_free(&arena, b, 3) == ARENA_OK);
    }
}

static const char *import_scenario(void *context) {
    static const struct arena_source source = {slow_alloc, slow_release};
    (void)context;
    begin();
    imports = releases = 0;
    arena_set_source(&arena, &source, NULL);
    sim_thread_start(0, in_and_out, NULL);
    sim_thread_start(1, in_and_out, NULL);
    const char *result = end(0);
    EXPECT(imports == releases && arena.total == 0);
    return result != NULL ? result : wrong;
}

static void nothing_is_lost_while_spans_come_and_go(void **state) {
    (void)state;
    explore(import_scenario, 2);
}

/* ------------------------------------------------------------------ walk */

static bool count_kept(const struct arena_segment *segment, void *argument) {
    sim_yield();
    *(uint64_t *)argument += segment->start >= 1000 ? 1 : 0;
    return true;
}

static void walker(void *argument) {
    uint64_t kept = 0;
    (void)argument;
    arena_walk(&arena, ARENA_ALLOCATED, count_kept, &kept);
    EXPECT(kept == 40);
}

static void below(void *argument) {
    uint64_t start = 0;
    (void)argument;
    EXPECT(arena_free(&arena, 0, 1) == ARENA_OK);
    EXPECT(arena_xalloc(&arena, 2, 0, 0, 0, 10, 12, 0, &start) == ARENA_OK);
    EXPECT(arena_free(&arena, 1, 1) == ARENA_OK);
}

static const char *walk_scenario(void *context) {
    uint64_t start;
    (void)context;
    begin();
    EXPECT(arena_add(&arena, 0, 20) == ARENA_OK && arena_add(&arena, 1000, 40) == ARENA_OK);
    EXPECT(arena_xalloc(&arena, 1, 0, 0, 0, 0, 1, 0, &start) == ARENA_OK && arena_xalloc(&arena, 1, 0, 0, 0, 1, 2, 0, &start) == ARENA_OK);
    for (unsigned i = 0; i < 40; i++) EXPECT(arena_xalloc(&arena, 1, 0, 0, 0, 1000, 0, 0, &start) == ARENA_OK);
    sim_thread_start(0, walker, NULL);
    sim_thread_start(1, below, NULL);
    return end(42);
}

static void a_walk_shows_once_what_stays_in_any_order(void **state) {
    (void)state;
    explore(walk_scenario, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_wake_up_is_missed),
        cmocka_unit_test(nothing_is_lost_while_memory_is_got),
        cmocka_unit_test(nothing_is_lost_while_spans_come_and_go),
        cmocka_unit_test(a_walk_shows_once_what_stays_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
