/*
 * test_interleave.c - one CPU sequence interrupted before each of its stores: by a signal handler that allocates and frees, by another thread on
 * the same CPU, by other CPUs, by a drain, a reap or a tick from elsewhere, by migration and by bare aborts. For every operation,
 * every state of the array it begins in, every point, every interrupter, and every pair of them: no object is lost or given twice, no
 * array is left behind unmarked, and what the interrupted thread held is still its own.
 */
#include "unit/cache/cache_test.h"
#include "unit/sparse.h"

#define M 4              /* rounds in an array: few, so that all states can be tried */
#define MINE (2 * M + 3) /* objects that the interrupted thread holds at first */

/* ------------------------------------------------------------------ the interrupter */

enum intruder {
    SIGNAL_ALLOC = 1, /* the same thread on the same CPU */
    SIGNAL_FREE,
    SIGNAL_OVERFLOW, /* a handler with many blocks */
    SAME_CPU_ALLOC,  /* another thread, which the kernel preferred */
    SAME_CPU_FREE,
    OTHER_CPU_ALLOC,
    OTHER_CPU_FREE,
    DRAIN,        /* from the next CPU: closes, fences, takes */
    TICK,         /* the same where nothing happened since the last one; m grows */
    REAP,         /* takes the depot, and the arrays of the CPU it runs on */
    MIGRATE,      /* the sequence starts again on the next CPU */
    MIGRATE_BUSY, /* and another thread has been here meanwhile */
    INTRUDERS,
};

static unsigned cache, cpus;
static void *mine[MINE + 1];
static unsigned mine_count;
static void *theirs[64];
static unsigned their_count;

static void their_alloc(unsigned count) {
    while (count-- != 0 && their_count < ARRAY_LENGTH(theirs)) {
        void *object = take(cache);
        if (object != NULL) theirs[their_count++] = object;
    }
}
static void their_free(unsigned count) {
    while (count-- != 0 && their_count != 0) give(cache, theirs[--their_count]);
}

static void become_another(unsigned cpu) {
    sim_thread_become(1);
    sim_cpu_set(cpu);
}

static bool intrude(void *context, unsigned choice) {
    unsigned here = sim_cpu(), next = (here + 1) % cpus;
    (void)context;
    switch ((enum intruder)choice) {
    case SIGNAL_ALLOC: their_alloc(1); break;
    case SIGNAL_FREE: their_free(1); break;
    case SIGNAL_OVERFLOW: their_free(M + 1); break;
    case SAME_CPU_ALLOC:
    case SAME_CPU_FREE:
        become_another(here);
        if (choice == SAME_CPU_ALLOC)
            their_alloc(M);
        else
            their_free(M);
        break;
    case OTHER_CPU_ALLOC:
        become_another(next);
        their_alloc(M + 1);
        break;
    case OTHER_CPU_FREE:
        become_another(next);
        their_free(M + 1);
        break;
    case DRAIN:
        become_another(next);
        cache_drain(&caches);
        break;
    case TICK:
        become_another(next);
        stack_contend(cache);
        cache_tick(&caches);
        cache_tick(&caches);
        break;
    case REAP:
        become_another(next);
        cache_reap(&caches);
        break;
    case MIGRATE: sim_preempt_migrate(next); break;
    case MIGRATE_BUSY:
        become_another(here);
        their_free(1);
        sim_preempt_migrate(next);
        break;
    case INTRUDERS: break;
    }
    return false;
}

/* ------------------------------------------------------------------ the interrupted */

struct scenario {
    const char *(*operation)(void);
    unsigned rounds; /* in the array at first */
    bool stocked;    /* a full magazine in the depot */
    bool drained;    /* the array was drained before, so it is closed */
    bool grown;      /* m has grown since the array was opened */
    unsigned cpus;
};

/* The state that a scenario asks for, by means of the layer itself. */
static void prepare(const struct scenario *scenario) {
    const struct sim_config sim = {.cpus = scenario->cpus, .arena_bytes = 192 * MIB};
    sim_explore_ignore(true);
    if (!stack_build(&sim, 256, UINT64_MAX)) stack_fail("no memory");
    cpus = scenario->cpus;
    cache = cache_of(64);
    stack_set_rounds(cache, M, 2 * M);
    mine_count = their_count = 0;
    while (mine_count < MINE) mine[mine_count++] = take(cache);
    their_alloc(2 * M);
    cache_drain(&caches);
    if (!scenario->drained) {
        give(cache, mine[--mine_count]); /* open */
        for (unsigned i = 1; i < scenario->rounds; i++) give(cache, mine[--mine_count]);
        if (scenario->rounds == 0) mine[mine_count++] = take(cache);
    }
    if (scenario->stocked) (void)stock_depot(cache);
    if (scenario->grown) {
        stack_contend(cache);
        depot_tick(&caches, cache, false);
    }
    sim_explore_ignore(false);
    sim_preempt_set_hook(intrude, NULL, INTRUDERS - 1);
}

static const char *run(void *context) {
    const struct scenario *scenario = context;
    prepare(scenario);
    const char *wrong = scenario->operation();
    sim_preempt_set_hook(NULL, NULL, 0);
    sim_explore_ignore(true);
    if (wrong != NULL) stack_fail(wrong);
    if (stack_check() != NULL) return stack_wrong;
    while (mine_count != 0) give(cache, mine[--mine_count]);
    their_free(UINT32_MAX);
    (void)stack_check_drained();
    sim_explore_ignore(false);
    return stack_wrong;
}

static void explore(struct sim_exploration *exploration, const struct scenario *scenario) {
    if (!sim_explore(exploration))
        fail_msg("%u rounds,%s%s%s %u CPUs: %s", scenario->rounds, scenario->stocked ? " stocked," : "", scenario->drained ? " drained," : "",
                 scenario->grown ? " grown," : "", scenario->cpus, exploration->failure);
}

/* Every intruder at every point, on two CPUs and on three. */
static void explore_with(struct scenario scenario) {
    for (scenario.cpus = 2; scenario.cpus <= 3; scenario.cpus++) {
        struct sim_exploration exploration = {.scenario = run, .context = &scenario};
        explore(&exploration, &scenario);
        uint64_t points = exploration.points; /* of the operation alone */
        exploration.deviations = 1;
        exploration.aborts = true;
        explore(&exploration, &scenario);
        assert_true(points != 0);
        assert_int_equal(exploration.runs, 1 + points * INTRUDERS); /* and a bare abort */
    }
}

/* The same from every state of the array. */
static void explore_states(const char *(*operation)(void)) {
    for (unsigned stocked = 0; stocked < 2; stocked++) {
        for (unsigned rounds = 0; rounds <= M; rounds++)
            for (unsigned grown = 0; grown < 2; grown++)
                explore_with((struct scenario){.operation = operation, .rounds = rounds, .stocked = stocked, .grown = grown});
        explore_with((struct scenario){.operation = operation, .stocked = stocked, .drained = true});
    }
}

/* Every pair of intruders at every pair of points. */
static void explore_pairs(struct scenario scenario) {
    struct sim_exploration exploration = {.scenario = run, .context = &scenario, .deviations = sparse_deviations(2)};
    scenario.cpus = 2;
    explore(&exploration, &scenario);
    assert_true(exploration.runs > sparse_runs((INTRUDERS - 1) * (INTRUDERS - 1)));
}

/* ------------------------------------------------------------------ operations */

static const char *one_alloc(void) {
    void *object = take(cache);
    if (object == NULL) return "no memory, though there is plenty";
    mine[mine_count++] = object;
    return NULL;
}

static const char *one_free(void) {
    give(cache, mine[--mine_count]);
    return NULL;
}

static const char *alloc_and_free(void) {
    const char *wrong = one_alloc();
    if (wrong == NULL) wrong = one_free();
    return wrong;
}

static const char *own_drain(void) {
    cpu_layer_drain_own(&caches);
    return NULL;
}

/* Batches with rounds of the thread's own: the number that came back says which are still its. */
static const char *push_and_pop_batches(void) {
    void *batch[M];
    for (unsigned i = 0; i < 3; i++) batch[i] = mine[--mine_count];
    for (unsigned i = 0; i < 3; i++) *(uint64_t *)batch[i] = 0;
    held[cache] -= 3;
    unsigned put = cpu_push_batch(cache, batch, 3);
    if (put > 3) return "more rounds were put than there are";
    if (put < 3) slab_free_batch(&slabs, cache, batch + put, 3 - put);
    unsigned got = cpu_pop_batch(cache, batch, M);
    if (got > M) return "more rounds were taken than asked for";
    for (unsigned i = 0; i < got; i++) {
        if (*(uint64_t *)batch[i] == STACK_STAMP) return "a batch has an object that is held";
        *(uint64_t *)batch[i] = STACK_STAMP;
        held[cache]++;
        give(cache, batch[i]);
    }
    return NULL;
}

static void an_allocation_is_whole(void **state) {
    (void)state;
    explore_states(one_alloc);
    explore_pairs((struct scenario){.operation = one_alloc, .rounds = 0});
    explore_pairs((struct scenario){.operation = one_alloc, .rounds = 0, .stocked = true});
    explore_pairs((struct scenario){.operation = one_alloc, .rounds = 1});
    explore_pairs((struct scenario){.operation = one_alloc, .drained = true});
}
static void a_free_is_whole(void **state) {
    (void)state;
    explore_states(one_free);
    explore_pairs((struct scenario){.operation = one_free, .rounds = M});
    explore_pairs((struct scenario){.operation = one_free, .rounds = M, .grown = true});
    explore_pairs((struct scenario){.operation = one_free, .rounds = M - 1});
    explore_pairs((struct scenario){.operation = one_free, .drained = true});
}
static void a_pair_is_whole(void **state) {
    (void)state;
    explore_states(alloc_and_free);
}
static void batches_are_whole(void **state) {
    (void)state;
    explore_states(push_and_pop_batches);
}
static void an_own_drain_is_whole(void **state) {
    (void)state;
    explore_with((struct scenario){.operation = own_drain, .rounds = 0});
    explore_with((struct scenario){.operation = own_drain, .rounds = M});
    explore_with((struct scenario){.operation = own_drain, .drained = true});
}

/* ------------------------------------------------------------------ migration */

/* An array on a CPU that was never used is opened where the thread is, not where it was. */
static const char *open_elsewhere(void *context) {
    const struct sim_config sim = {.cpus = 3, .arena_bytes = 192 * MIB};
    (void)context;
    sim_explore_ignore(true);
    if (!stack_build(&sim, 256, UINT64_MAX)) return "no memory";
    cpus = 3;
    cache = cache_of(64);
    stack_set_rounds(cache, M, 2 * M);
    mine_count = their_count = 0;
    their_alloc(2 * M);
    sim_cpu_set(1);
    sim_explore_ignore(false);
    sim_preempt_set_hook(intrude, NULL, INTRUDERS - 1);
    const char *wrong = one_alloc();
    if (wrong == NULL) wrong = one_free();
    sim_preempt_set_hook(NULL, NULL, 0);
    sim_explore_ignore(true);
    if (wrong != NULL) stack_fail(wrong);
    their_free(UINT32_MAX);
    (void)stack_check_drained();
    return stack_wrong;
}

static void a_first_use_opens_the_array_where_the_thread_is(void **state) {
    struct sim_exploration exploration = {.scenario = open_elsewhere, .deviations = sparse_deviations(2)};
    (void)state;
    if (!sim_explore(&exploration)) fail_msg("%s", exploration.failure);
    assert_true(exploration.runs > sparse_runs((INTRUDERS - 1) * (INTRUDERS - 1)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_allocation_is_whole), cmocka_unit_test(a_free_is_whole),
        cmocka_unit_test(a_pair_is_whole),        cmocka_unit_test(batches_are_whole),
        cmocka_unit_test(an_own_drain_is_whole),  cmocka_unit_test(a_first_use_opens_the_array_where_the_thread_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
