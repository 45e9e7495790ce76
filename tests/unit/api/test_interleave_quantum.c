/*
 * test_interleave_quantum.c - an arena with quantum caches on two and three simulated CPUs, in every order that few switches allow: also between the
 * look at a mark and its change. What is freed rightly is never refused, nobody gets what another has, and of two frees of one integer at least one
 * is believed. Where both are, since neither saw the other's mark, the integer still has one owner at a time: the process ends with one line before
 * it gets a second one; not otherwise. Who empties the caches has slabs in its hands that are neither a cache's nor free: nobody else can free them,
 * and an arena of which nothing is allocated can be destroyed all the same.
 */
#include "strata/cache.h"
#include "unit/api/arena_api_support.h"

#define CPUS 3
#define SLAB 8
#define INTEGERS (4 * SLAB)

static const uint64_t far_away = UINT64_C(1) << 40;
static struct strata_arena *arena;
static uint64_t contested;                /* an integer that two threads free */
static unsigned believed, refused;        /* frees of it */
static unsigned owners[2 * INTEGERS + 1]; /* how many have an integer; first those near 0, then those that are far away */
static const char *wrong;                 /* the first thing that was */
static uint64_t both_believed, ended;     /* runs where both frees were believed; where the process ended */

#define EXPECT(condition)                                      \
    do {                                                       \
        if (!(condition) && wrong == NULL) wrong = #condition; \
    } while (0)

struct scene {
    void (*bodies[3])(void *);
    bool far; /* the integers lie beside the window */
    unsigned deviations;
    uint64_t runs_min;
};

static unsigned *owner_of(uint64_t start) {
    uint64_t place = start < far_away ? start : start - far_away + INTEGERS;
    EXPECT(place < 2 * INTEGERS);
    return &owners[place < 2 * INTEGERS ? place : 2 * INTEGERS];
}
static uint64_t take(void) {
    uint64_t start = 0;
    EXPECT(strata_arena_alloc(arena, 2, 0, &start) == STRATA_ARENA_OK);
    EXPECT((*owner_of(start))++ == 0);
    return start;
}
static void give(uint64_t start) {
    EXPECT(--*owner_of(start) == 0);
    EXPECT(strata_arena_free(arena, start, 2) == STRATA_ARENA_OK);
}

/* ------------------------------------------------------------------ what threads do */

static void free_contested(void *unused) {
    (void)unused;
    switch (strata_arena_free(arena, contested, 2)) {
    case STRATA_ARENA_OK: believed++; break;
    case STRATA_ARENA_NOT_ALLOCATED: refused++; break;
    default: EXPECT(false); break; /* a status that is neither */
    }
}
/* Not before the other one has freed it, too: it would free, rightly as far as anybody can know, what is taken here. */
static void free_contested_and_take(void *unused) {
    free_contested(unused);
    if (believed + refused == 2) (void)take(), (void)take();
}
static void come_and_go(void *unused) {
    uint64_t first = take(), second = take();
    (void)unused;
    give(first);
    first = take();
    give(second);
    give(first);
}
static void release(void *unused) {
    (void)unused;
    (void)strata_release(0);
}
static void empty(void *unused) {
    (void)unused;
    strata_cache_reap(NULL);
}
static void give_and_empty(void *unused) {
    give(contested);
    empty(unused);
}
static void free_the_slab(void *unused) {
    (void)unused;
    uint64_t slab = contested & ~(uint64_t)(SLAB - 1);
    for (unsigned i = 0; i < 2; i++) {
        EXPECT(strata_arena_xfree(arena, slab, SLAB) == STRATA_ARENA_NOT_ALLOCATED);
        EXPECT(strata_arena_resize(arena, slab, SLAB, 1) == STRATA_ARENA_NOT_ALLOCATED);
    }
}
static void give_and_destroy(void *unused) {
    (void)unused;
    for (uint64_t place = 0; place < 2 * INTEGERS; place++)
        if (owners[place] != 0) give(place < INTEGERS ? place : place - INTEGERS + far_away);
    EXPECT(strata_arena_destroy(arena) == STRATA_ARENA_OK);
    arena = NULL;
}

/* ------------------------------------------------------------------ the explorations */

/* Everything that there is, from all CPUs: what waits twice would be handed out twice. */
static void exhaust(void) {
    uint64_t start;
    for (unsigned cpu = 0; cpu < CPUS; cpu++) {
        sim_cpu_set(cpu);
        while (strata_arena_alloc(arena, 2, 0, &start) == STRATA_ARENA_OK) EXPECT((*owner_of(start))++ == 0);
    }
}

static void run_threads(void *unused) {
    (void)unused;
    EXPECT(sim_run_threads());
    sim_explore_ignore(true);
    if (arena != NULL) exhaust();
}

static const char *run(void *context) {
    const struct scene *scene = context;
    bool races = scene->bodies[0] == free_contested || scene->bodies[0] == free_contested_and_take;
    sim_explore_ignore(true);
    new_still_process(&(struct sim_config){.cpus = CPUS, .arena_bytes = 2 * GIB});
    wrong = NULL;
    believed = refused = 0;
    memset(owners, 0, sizeof owners);
    EXPECT(strata_arena_create("shared", scene->far ? far_away : 0, INTEGERS, 1, 0, &arena) == STRATA_ARENA_OK);
    if (scene->far) EXPECT(strata_arena_add(arena, 0, SLAB) == STRATA_ARENA_OK);
    EXPECT(strata_arena_set_quantum_caches(arena, 2) == STRATA_ARENA_OK);
    if (scene->far) {
        /* The first slab is where the window will be: below. */
        uint64_t above;
        EXPECT(strata_arena_xalloc(arena, INTEGERS, 0, 0, 0, far_away, 0, 0, &above) == STRATA_ARENA_OK);
        EXPECT(take() < far_away);
        EXPECT(strata_arena_xfree(arena, above, INTEGERS) == STRATA_ARENA_OK);
        while ((contested = take()) < far_away) {}
    } else {
        contested = take();
    }
    if (races) *owner_of(contested) = 0;
    sim_explore_ignore(false);
    for (unsigned i = 0; i < ARRAY_LENGTH(scene->bodies) && scene->bodies[i] != NULL; i++) sim_thread_start(i, scene->bodies[i], NULL);
    bool dead = sim_dies(run_threads, NULL);
    sim_explore_ignore(true);
    if (dead) {
        EXPECT(races && believed == 2 && strstr(sim_output(), "double free") != NULL);
        ended++;
    }
    both_believed += believed == 2;
    if (races) EXPECT(believed >= 1 && believed + refused == 2);
    if (!dead && believed != 2) {
        EXPECT(strata_check() == NULL);
        EXPECT(sim_locks_held() == 0);
    }
    return wrong;
}

static void explore(struct scene scene) {
    struct sim_exploration exploration = {.scenario = run, .context = &scene, .deviations = sparse_deviations(scene.deviations)};
    both_believed = ended = 0;
    if (!sim_explore(&exploration)) fail_msg("%s", exploration.failure);
    assert_int_equal(ended, both_believed);
    if (exploration.runs < sparse_runs(scene.runs_min)) fail_msg("%llu runs only", (unsigned long long)exploration.runs);
}

static void integers_change_hands(void **state) {
    (void)state;
    for (unsigned far = 0; far < 2; far++) {
        explore((struct scene){.bodies = {come_and_go, come_and_go}, .far = far != 0, .deviations = 2, .runs_min = 500});
        explore((struct scene){.bodies = {come_and_go, come_and_go, empty}, .far = far != 0, .deviations = 1, .runs_min = 50});
    }
}

static void an_integer_that_is_freed_twice_has_one_owner(void **state) {
    (void)state;
    for (unsigned far = 0; far < 2; far++) {
        explore((struct scene){.bodies = {free_contested, free_contested_and_take}, .far = far != 0, .deviations = 3, .runs_min = 50});
        assert_true(both_believed != 0);
        explore((struct scene){.bodies = {free_contested_and_take, free_contested_and_take}, .far = far != 0, .deviations = 3, .runs_min = 50});
        assert_true(both_believed != 0);
        explore((struct scene){.bodies = {free_contested, free_contested, release}, .far = far != 0, .deviations = 2, .runs_min = 50});
        assert_true(both_believed != 0);
    }
}

static void slabs_on_their_way_out_are_nobody_elses(void **state) {
    (void)state;
    for (unsigned far = 0; far < 2; far++)
        explore((struct scene){.bodies = {give_and_empty, free_the_slab}, .far = far != 0, .deviations = 2, .runs_min = 100});
}

static void an_arena_goes_while_others_empty_its_caches(void **state) {
    (void)state;
    for (unsigned far = 0; far < 2; far++)
        explore((struct scene){.bodies = {give_and_destroy, empty}, .far = far != 0, .deviations = 2, .runs_min = 100});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_change_hands),
        cmocka_unit_test(an_integer_that_is_freed_twice_has_one_owner),
        cmocka_unit_test(slabs_on_their_way_out_are_nobody_elses),
        cmocka_unit_test(an_arena_goes_while_others_empty_its_caches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
