/*
 * test_interleave_threads.c - threads on two and three simulated CPUs, and two on one CPU, in every order that few switches allow: switches before
 * each store of a sequence, around every lock and around the fence. Exchange through the depot, drains against owners at work, drains against
 * each other, growth and fall of m, blocks handed from CPU to CPU, ends of threads: no object is lost or given twice.
 */
#include "unit/cache/cache_test.h"
#include "unit/sparse.h"

#define CPUS 3

static unsigned cache;
static void *box[4]; /* blocks on their way from one thread to another */
static struct platform_event posted;
static bool shut_now; /* and stays so */

struct scene {
    void (*bodies[4])(void *);
    unsigned cpus[4];
    unsigned m;        /* rounds in an array: few */
    unsigned falls_to; /* what m was before it grew; 0: it has not */
    unsigned stocked;  /* full magazines in the depot at first */
    unsigned filled;   /* so many CPUs have full arrays at first */
    bool grown;        /* m has grown since these were opened */
    bool one_left;     /* in the end at most one round is in the array of CPU 0 */
    bool thread_mode;
    unsigned deviations;
    uint64_t runs_min;
};

static const char *run(void *context) {
    const struct scene *scene = context;
    const struct sim_config sim = {.cpus = CPUS, .arena_bytes = scene->thread_mode ? 2 * GIB : 192 * MIB, .thread_mode = scene->thread_mode};
    if (!stack_build(&sim, 256, UINT64_MAX)) return "no memory";
    memset(box, 0, sizeof box);
    posted = (struct platform_event){0};
    shut_now = false;
    cache = cache_of(64);
    stack_set_rounds(cache, scene->m, 2 * scene->m);
    if (scene->falls_to != 0) caches.depots[cache].rounds_start = (uint16_t)scene->falls_to;
    for (unsigned cpu = 0; cpu < scene->filled; cpu++) {
        void *objects[64];
        sim_cpu_set(cpu);
        for (unsigned i = 0; i < scene->m; i++) objects[i] = take(cache);
        for (unsigned i = 0; i < scene->m; i++) give(cache, objects[i]);
    }
    for (unsigned i = 0; i < scene->stocked; i++) (void)stock_depot(cache);
    if (scene->grown) {
        stack_contend(cache);
        depot_tick(&caches, cache, false);
    }
    sim_cpu_set(CPUS - 1);
    for (unsigned i = 0; i < ARRAY_LENGTH(scene->bodies) && scene->bodies[i] != NULL; i++) sim_thread_start(scene->cpus[i], scene->bodies[i], NULL);
    if (!sim_run_threads()) stack_fail("a thread waits for ever");
    if (scene->one_left && rounds_in(0, cache) > 1) stack_fail("a drain left rounds that were there before it");
    if (shut_now) cache_open(&caches, cache);
    for (unsigned area = 0; area < areas_there(); area++)
        if (!caches.depots[cache].shut && cpu_upper_closed(cpu_header_upper(header_of(area, cache)))) stack_fail("an array stays closed");
    (void)stack_check_drained();
    for (unsigned c = 0; c < SLAB_CACHE_MAGAZINES; c++)
        if (held[c] != 0) stack_fail("a thread kept an object");
    return stack_wrong;
}

static void explore(struct scene scene) {
    struct sim_exploration exploration = {.scenario = run, .context = &scene, .deviations = sparse_deviations(scene.deviations)};
    if (!sim_explore(&exploration)) fail_msg("%s", exploration.failure);
    if (exploration.runs < sparse_runs(scene.runs_min)) fail_msg("%llu runs only", (unsigned long long)exploration.runs);
}

/* ------------------------------------------------------------------ what threads do */

static void up_and_down(unsigned height, unsigned times) {
    void *objects[8];
    while (times-- != 0) {
        for (unsigned i = 0; i < height; i++)
            if ((objects[i] = take(cache)) == NULL) stack_fail("no memory, though there is plenty");
        for (unsigned i = 0; i < height; i++) give(cache, objects[i]);
    }
}

/* Past the array's end both ways. */
static void exchange(void *unused) {
    (void)unused;
    up_and_down(4, 1);
}
static void push_and_pop(void *unused) {
    (void)unused;
    up_and_down(1, 3);
}
/* One free more than the array, as large as it was, has room for. */
static void overflow(void *unused) {
    void *object;
    (void)unused;
    if (slab_alloc_batch(&slabs, cache, &object, 1) != 1) stack_fail("no memory, though there is plenty");
    *(uint64_t *)object = STACK_STAMP;
    held[cache]++;
    give(cache, object);
}
static void drain(void *unused) {
    (void)unused;
    cache_drain(&caches);
}
static void tick(void *unused) {
    (void)unused;
    cache_tick(&caches);
    cache_tick(&caches);
}
static void tick_depot(void *unused) {
    (void)unused;
    depot_tick(&caches, cache, false);
    depot_tick(&caches, cache, false);
}
static void grow(void *unused) {
    (void)unused;
    stack_contend(cache);
    depot_tick(&caches, cache, false);
}
static void fall(void *unused) {
    (void)unused;
    caches.depots[cache].ticks_idle = 100;
    caches.depots[cache].visits_seen = caches.depots[cache].visits;
    depot_tick(&caches, cache, false);
}
static void grow_and_fall(void *unused) {
    grow(unused);
    fall(unused);
}
static unsigned own_area(void) { return caches.thread_mode ? platform_thread_id() : cpu_current_id(); }
/* m has grown when the array is empty, so that the next allocation opens it anew: that one meets the others in every order, what is around it
 * doesn't. */
static void grow_empty(void *unused) {
    void *objects[3];
    (void)unused;
    sim_explore_ignore(true);
    for (unsigned i = 0; i < 2; i++) objects[i] = take(cache);
    if (rounds_in(own_area(), cache) != 0) stack_fail("the array is not empty");
    grow(NULL);
    sim_explore_ignore(false);
    objects[2] = take(cache);
    sim_explore_ignore(true);
    if (shut_now && header_is_open(own_area(), cache)) stack_fail("an array of a cache that is shut is open");
    for (unsigned i = 0; i < 3; i++) give(cache, objects[i]);
}
/* The same of a full array, which the next free opens anew, with its rounds. */
static void grow_full(void *unused) {
    void *objects[3];
    (void)unused;
    sim_explore_ignore(true);
    for (unsigned i = 0; i < 3; i++) objects[i] = take(cache);
    give(cache, objects[0]);
    give(cache, objects[1]);
    grow(NULL);
    sim_explore_ignore(false);
    give(cache, objects[2]);
}
/* As debugging that begins and ends, and a trim behind it. */
static void shut_open_and_drain(void *unused) {
    (void)unused;
    cache_shut(&caches, cache);
    cache_open(&caches, cache);
    cache_drain(&caches);
}
static void drain_shut_and_open(void *unused) {
    (void)unused;
    cache_drain(&caches);
    cache_shut(&caches, cache);
    cache_open(&caches, cache);
}
static void shut(void *unused) {
    (void)unused;
    cache_shut(&caches, cache);
    shut_now = true;
}
static void reap(void *unused) {
    (void)unused;
    cache_reap(&caches);
}

/* ------------------------------------------------------------------ the depot */

static void magazines_cross_the_depot_whole(void **state) {
    (void)state;
    explore((struct scene){.bodies = {exchange, exchange}, .cpus = {0, 1}, .m = 2, .deviations = 2, .runs_min = 500});
    explore((struct scene){.bodies = {exchange, exchange}, .cpus = {0, 1}, .m = 4, .stocked = 1, .filled = 2, .deviations = 2, .runs_min = 200});
    explore((struct scene){.bodies = {exchange, exchange, exchange}, .cpus = {0, 1, 2}, .m = 2, .stocked = 1, .deviations = 1, .runs_min = 100});
}

static void the_depot_shrinks_while_it_is_used(void **state) {
    (void)state;
    explore((struct scene){.bodies = {exchange, tick_depot}, .cpus = {0, 1}, .m = 2, .stocked = 2, .deviations = 2, .runs_min = 200});
    explore((struct scene){.bodies = {exchange, exchange, tick_depot}, .cpus = {0, 1, 2}, .m = 2, .stocked = 1, .deviations = 1, .runs_min = 100});
}

static void m_changes_while_arrays_are_used(void **state) {
    (void)state;
    explore((struct scene){.bodies = {exchange, grow}, .cpus = {0, 1}, .m = 2, .filled = 2, .deviations = 2, .runs_min = 200});
    explore((struct scene){.bodies = {exchange, grow_and_fall}, .cpus = {0, 1}, .m = 2, .filled = 2, .deviations = 2, .runs_min = 200});
    explore((struct scene){.bodies = {exchange, exchange, grow_and_fall}, .cpus = {0, 1, 0}, .m = 2, .deviations = 1, .runs_min = 100});
    /* Half of what m was does not fit the magazines of what it is: one that is taken first, and one that few rounds get afterwards. */
    explore((struct scene){.bodies = {overflow, fall}, .cpus = {0, 1}, .m = 64, .falls_to = 32, .filled = 1, .deviations = 2, .runs_min = 20});
    explore((struct scene){.bodies = {overflow, fall}, .cpus = {0, 1}, .m = 32, .falls_to = 16, .filled = 1, .deviations = 2, .runs_min = 20});
}

/* ------------------------------------------------------------------ drains */

static void a_drain_meets_an_owner_at_work(void **state) {
    (void)state;
    explore((struct scene){.bodies = {push_and_pop, drain}, .cpus = {0, 1}, .m = 4, .filled = 2, .deviations = 2, .runs_min = 500});
    /* No other CPU has rounds: after the drain of this one there is no fence that would hide what an owner goes on to do. */
    explore((struct scene){.bodies = {drain, push_and_pop}, .cpus = {1, 0}, .m = 4, .filled = 1, .deviations = 2, .runs_min = 300});
    explore((struct scene){.bodies = {drain, overflow}, .cpus = {1, 0}, .m = 4, .filled = 1, .deviations = 2, .runs_min = 100});
    explore((struct scene){.bodies = {drain, exchange}, .cpus = {1, 0}, .m = 2, .filled = 2, .deviations = 1, .runs_min = 100});
    explore((struct scene){.bodies = {push_and_pop, push_and_pop, drain}, .cpus = {0, 1, 2}, .m = 4, .filled = 2, .deviations = 1, .runs_min = 40});
}

static void a_drain_meets_the_growth_of_an_array(void **state) {
    (void)state;
    explore((struct scene){
        .bodies = {overflow, drain}, .cpus = {0, 1}, .m = 4, .filled = 1, .grown = true, .one_left = true, .deviations = 2, .runs_min = 100});
    explore((struct scene){.bodies = {grow, exchange, drain}, .cpus = {2, 0, 1}, .m = 2, .filled = 2, .deviations = 2, .runs_min = 100});
}

static void idle_drains_and_reaps_meet_owners_at_work(void **state) {
    (void)state;
    explore((struct scene){.bodies = {push_and_pop, tick}, .cpus = {0, 1}, .m = 4, .filled = 2, .deviations = 2, .runs_min = 200});
    explore((struct scene){.bodies = {exchange, reap}, .cpus = {0, 0}, .m = 2, .filled = 2, .stocked = 1, .deviations = 1, .runs_min = 40});
}

static void drains_meet_each_other(void **state) {
    (void)state;
    explore((struct scene){.bodies = {drain, drain, push_and_pop}, .cpus = {1, 2, 0}, .m = 4, .filled = 2, .deviations = 1, .runs_min = 100});
    explore((struct scene){.bodies = {drain, tick}, .cpus = {0, 1}, .m = 4, .filled = 2, .stocked = 2, .deviations = 1, .runs_min = 100});
}

/* ------------------------------------------------------------------ sharing */

static void threads_share_a_cpu(void **state) {
    (void)state;
    explore((struct scene){.bodies = {exchange, exchange}, .cpus = {0, 0}, .m = 2, .deviations = 2, .runs_min = 500});
    explore((struct scene){.bodies = {push_and_pop, exchange, drain}, .cpus = {0, 0, 1}, .m = 4, .filled = 2, .deviations = 1, .runs_min = 40});
}

static void produce(void *unused) {
    (void)unused;
    for (unsigned i = 0; i < ARRAY_LENGTH(box); i++) {
        void *object = take(cache);
        __atomic_store_n(&box[i], object, __ATOMIC_RELEASE);
        platform_event_wake(&posted);
    }
}

static void consume(void *unused) {
    (void)unused;
    for (unsigned i = 0; i < ARRAY_LENGTH(box); i++) {
        while (__atomic_load_n(&box[i], __ATOMIC_ACQUIRE) == NULL) (void)platform_event_wait(&posted, UINT64_MAX);
        give(cache, box[i]);
        box[i] = NULL;
    }
}

static void blocks_are_handed_from_cpu_to_cpu(void **state) {
    (void)state;
    explore((struct scene){.bodies = {produce, consume}, .cpus = {0, 1}, .m = 2, .deviations = 2, .runs_min = 500});
    explore((struct scene){.bodies = {produce, consume, tick_depot}, .cpus = {0, 1, 2}, .m = 2, .deviations = 2, .runs_min = 100});
}

/* ------------------------------------------------------------------ thread mode */

static void threads_come_and_go(void **state) {
    (void)state;
    explore((struct scene){.bodies = {exchange, exchange}, .thread_mode = true, .cpus = {0, 1}, .m = 2, .deviations = 2, .runs_min = 500});
    explore((struct scene){
        .bodies = {push_and_pop, exchange, tick}, .thread_mode = true, .cpus = {0, 1, 0}, .m = 2, .stocked = 1, .deviations = 1, .runs_min = 80});
    explore((struct scene){.bodies = {produce, consume, drain}, .thread_mode = true, .cpus = {0, 0, 1}, .m = 2, .deviations = 1, .runs_min = 80});
}

/* What a fence can't abort: an owner goes on in the middle, after its array was closed, and others wait for it. */
static void drains_meet_threads_at_work(void **state) {
    (void)state;
    explore((struct scene){.bodies = {push_and_pop, drain}, .thread_mode = true, .cpus = {0, 1}, .m = 4, .deviations = 2, .runs_min = 500});
    explore((struct scene){.bodies = {exchange, drain}, .thread_mode = true, .cpus = {0, 1}, .m = 2, .deviations = 2, .runs_min = 500});
    explore((struct scene){.bodies = {drain, push_and_pop, drain}, .thread_mode = true, .cpus = {0, 1, 2}, .m = 4, .deviations = 1, .runs_min = 40});
    explore((struct scene){.bodies = {drain, exchange, drain}, .thread_mode = true, .cpus = {0, 1, 2}, .m = 2, .deviations = 1, .runs_min = 100});
    explore((struct scene){.bodies = {push_and_pop, tick}, .thread_mode = true, .cpus = {0, 1}, .m = 4, .deviations = 2, .runs_min = 300});
    explore((struct scene){
        .bodies = {grow, exchange, drain}, .thread_mode = true, .cpus = {2, 0, 1}, .m = 2, .grown = true, .deviations = 1, .runs_min = 50});
}

/* Whoever opens an array while its cache is being shut closes it again, or who shuts it does; and nobody forgets what was taken out of it meanwhile.
 */
static void arrays_are_shut_while_they_grow(void **state) {
    (void)state;
    explore((struct scene){.bodies = {grow_empty, shut}, .cpus = {0, 1}, .m = 2, .deviations = 2, .runs_min = 80});
    explore((struct scene){.bodies = {grow_empty, shut}, .thread_mode = true, .cpus = {0, 1}, .m = 2, .deviations = 2, .runs_min = 80});
    explore(
        (struct scene){.bodies = {grow_full, shut_open_and_drain}, .thread_mode = true, .cpus = {0, 1}, .m = 2, .deviations = 3, .runs_min = 300});
}

/* What others took out of an array that its owner has not put in order since is still taken when its cache has been shut and opened. */
static void drained_arrays_are_shut_and_opened(void **state) {
    (void)state;
    explore(
        (struct scene){.bodies = {push_and_pop, drain_shut_and_open}, .thread_mode = true, .cpus = {0, 1}, .m = 4, .deviations = 1, .runs_min = 40});
    explore((struct scene){.bodies = {exchange, drain_shut_and_open}, .thread_mode = true, .cpus = {0, 1}, .m = 2, .deviations = 2, .runs_min = 100});
}

/*
 * A drain has closed all arrays that there are and lets its lock go, to give back what one had, when a cache is shut; and the owner is in the middle
 * of a free all the time: the top stays its own.
 */
static void push_late(void *unused) {
    void *objects[2], *other;
    (void)unused;
    sim_explore_ignore(true);
    for (unsigned i = 0; i < 2; i++) objects[i] = take(cache);
    other = take(cache_of(16)); /* whose array a drain comes to first */
    give(cache_of(16), other);
    give(cache, objects[0]);
    sim_explore_ignore(false);
    give(cache, objects[1]);
}
static void shut_while_others_drain(void **state) {
    (void)state;
    explore((struct scene){.bodies = {push_late, drain, shut}, .thread_mode = true, .cpus = {0, 1, 2}, .m = 8, .deviations = 2, .runs_min = 100});
}

/* ------------------------------------------------------------------ fork */

static bool forked;
static void fork_amid(void *unused) {
    (void)unused;
    sim_yield();
    sim_explore_ignore(true);
    cache_fork_prepare(&caches);
    slab_fork_prepare(&slabs);
    zone_fork_prepare(&zone);
    sim_fork_child();
    zone_fork_child(&zone);
    slab_fork_child(&slabs);
    cache_fork_child(&caches);
    cache_fork_child_settle(&caches);
    forked = true;
}

/* The child of a fork amid a drain: who drained is gone, and what it had in its hands with it; no array stays closed. */
static const char *run_fork(void *context) {
    const bool thread_mode = *(const bool *)context;
    const struct sim_config sim = {.cpus = CPUS, .arena_bytes = thread_mode ? 2 * GIB : 192 * MIB, .thread_mode = thread_mode};
    if (!stack_build(&sim, 256, UINT64_MAX)) return "no memory";
    unsigned caches_used[] = {cache_of(16), cache_of(64), cache_of(200)};
    forked = false;
    for (unsigned i = 0; i < ARRAY_LENGTH(caches_used); i++) give(caches_used[i], take(caches_used[i]));
    sim_thread_start(1, drain, NULL);
    sim_thread_start(2, fork_amid, NULL);
    if (!sim_run_threads() || !forked) stack_fail("a thread waits for ever");
    for (unsigned i = 0; i < ARRAY_LENGTH(caches_used); i++) {
        const unsigned area = own_area();
        give(caches_used[i], take(caches_used[i]));
        if (!header_is_open(area, caches_used[i])) stack_fail("an array stays closed");
    }
    return stack_wrong;
}
static void forks_amid_drains_leave_no_closed_arrays(void **state) {
    (void)state;
    for (unsigned thread_mode = 0; thread_mode < 2; thread_mode++) {
        bool mode = thread_mode != 0;
        struct sim_exploration exploration = {.scenario = run_fork, .context = &mode, .deviations = sparse_deviations(2)};
        if (!sim_explore(&exploration)) fail_msg("%s", exploration.failure);
        if (exploration.runs < sparse_runs(30)) fail_msg("%llu runs only", (unsigned long long)exploration.runs);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(magazines_cross_the_depot_whole),
        cmocka_unit_test(the_depot_shrinks_while_it_is_used),
        cmocka_unit_test(m_changes_while_arrays_are_used),
        cmocka_unit_test(a_drain_meets_an_owner_at_work),
        cmocka_unit_test(a_drain_meets_the_growth_of_an_array),
        cmocka_unit_test(idle_drains_and_reaps_meet_owners_at_work),
        cmocka_unit_test(drains_meet_each_other),
        cmocka_unit_test(threads_share_a_cpu),
        cmocka_unit_test(blocks_are_handed_from_cpu_to_cpu),
        cmocka_unit_test(threads_come_and_go),
        cmocka_unit_test(drains_meet_threads_at_work),
        cmocka_unit_test(arrays_are_shut_while_they_grow),
        cmocka_unit_test(drained_arrays_are_shut_and_opened),
        cmocka_unit_test(shut_while_others_drain),
        cmocka_unit_test(forks_amid_drains_leave_no_closed_arrays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
