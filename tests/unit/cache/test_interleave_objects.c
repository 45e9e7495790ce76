/*
 * test_interleave_objects.c - an object cache on two simulated CPUs while its slabs are emptied: allocations and frees, a reap, a second
 * consolidation, reclaim functions and destruction, in every order that few switches allow: before each store of a sequence, around every lock, and
 * in the middle of the program's own functions. Nobody gets an object that another has, what the program links stays what it was, calls of the move
 * function don't overlap, and destruction begins when the last callback has ended.
 *
 * The program's protocol is that of strata/cache.h: an entry of its table is locked while it is looked at; who wants an entry that is locked waits
 * (threads of the program) or says LATER (its move function).
 */
#include "cache/object_cache.h"
#include "unit/cache/cache_test.h"
#include "unit/sparse.h"

#define CPUS 2
#define ENTRIES 8
#define SLAB_OBJECTS 4
#define MADE UINT64_C(0x636f6e7374727563)

static struct object_caches objects;
static struct object_cache *cache;

struct thing {
    uint64_t made, value;
    char filler[1000 - 16];
};

static struct {
    struct thing *thing;
    bool locked;
} table[ENTRIES];
static unsigned in_callbacks, moves, reclaims;
static uint64_t made, unmade;
static bool gone; /* destruction has returned */

static int make_thing(void *object, void *argument) {
    (void)argument;
    if (gone) stack_fail("a constructor runs after the end");
    *(struct thing *)object = (struct thing){.made = MADE};
    made++;
    sim_yield();
    return 0;
}
static void unmake_thing(void *object, void *argument) {
    struct thing *thing = object;
    (void)argument;
    if (gone) stack_fail("a destructor runs after the end");
    if (thing->made != MADE || thing->value != 0) stack_fail("what was destructed was not constructed, or is in use");
    thing->made = 0;
    unmade++;
    sim_yield();
}

static void lock_entry(unsigned i) {
    for (unsigned tries = 0; table[i].locked; tries++) {
        if (tries == 1000) stack_fail("an entry stays locked");
        if (tries == 1000) return;
        sim_yield();
        struct platform_event never = {0};
        platform_event_wait(&never, 1000);
    }
    table[i].locked = true;
}

static unsigned call_move(object_function *move, void *old, void *fresh, uint64_t bytes, void *argument) {
    struct thing *from = old, *to = fresh;
    (void)move, (void)argument, (void)bytes;
    if (gone) stack_fail("a move function runs after the end");
    if (in_callbacks++ != 0) stack_fail("two calls of move functions at once");
    if (sim_locks_held() != 0) stack_fail("a lock is held while move runs");
    moves++;
    sim_yield();
    unsigned i = 0;
    enum object_move_answer answer = OBJECT_MOVE_YES;
    while (i < ENTRIES && table[i].thing != from) i++;
    if (i == ENTRIES) {
        answer = OBJECT_MOVE_DONT_KNOW;
    } else if (table[i].locked) {
        answer = OBJECT_MOVE_LATER;
    } else {
        table[i].locked = true;
        sim_yield(); /* copying takes time */
        if (to->made != MADE || to->value != 0) stack_fail("the new object is not as constructed");
        if (from->made != MADE || from->value != i + 1) stack_fail("the old object is not the program's");
        to->value = from->value;
        from->value = 0;
        table[i].thing = to;
        table[i].locked = false;
    }
    sim_yield();
    in_callbacks--;
    return answer;
}

static void link_thing(unsigned i, struct thing *thing) {
    if (thing == NULL) {
        stack_fail("no memory, though there is plenty");
        return;
    }
    if (thing->made != MADE) stack_fail("an object came that is not constructed");
    if (thing->value != 0) stack_fail("an object was handed out twice");
    thing->value = i + 1;
    sim_yield();
    table[i].thing = thing;
}

static void unlink_thing(unsigned i) {
    lock_entry(i);
    struct thing *thing = table[i].thing;
    table[i].thing = NULL;
    table[i].locked = false;
    if (thing == NULL) return;
    if (thing->value != i + 1) stack_fail("contents were lost");
    thing->value = 0;
    object_cache_free(cache, thing);
}

static void call_reclaim(object_function *reclaim, void *argument, uint64_t wanted_bytes, unsigned need) {
    static unsigned running;
    (void)reclaim, (void)argument, (void)wanted_bytes, (void)need;
    if (reclaims++ == 0) running = 0;
    if (gone) stack_fail("a reclaim function runs after the end");
    if (running++ != 0) stack_fail("a reclaim function runs twice at once");
    sim_yield();
    unlink_thing(ENTRIES - 1);
    running--;
}

static void any_function(void) {}

/* ------------------------------------------------------------------ what threads do */

static void consolidate(void *unused) {
    (void)unused;
    (void)object_cache_consolidate(&objects, cache);
}
static void consolidate_by_time(void *unused) {
    (void)unused;
    (void)object_caches_consolidate_tick(&objects);
}
static void use_first(void *unused) {
    (void)unused;
    unlink_thing(0);
    link_thing(0, object_cache_alloc(cache));
}
static void use_last(void *unused) {
    (void)unused;
    link_thing(ENTRIES - 2, object_cache_alloc(cache));
    unlink_thing(ENTRIES - 3);
}
static void reap(void *unused) {
    (void)unused;
    object_cache_reap(&objects, cache);
}
static void reclaim(void *unused) {
    const struct object_need need = {.bytes = 1000, .need = 1};
    (void)unused;
    (void)object_caches_reclaim(&objects, NULL, &need);
}
/* The program has freed all, and nobody but strata's own thread is at it any more. */
static void destroy(void *unused) {
    (void)unused;
    for (unsigned i = 0; i < ENTRIES; i++) unlink_thing(i);
    if (object_cache_destroy(&objects, cache) != 0) stack_fail("objects are left");
    gone = true;
    if (in_callbacks != 0) stack_fail("destruction did not wait for a move function");
}

/* ------------------------------------------------------------------ the explorations */

struct scene {
    void (*bodies[3])(void *);
    unsigned cpus[3];
    unsigned deviations;
    uint64_t runs_min;
};

static unsigned most_moves;

static const char *run(void *context) {
    const struct scene *scene = context;
    const struct sim_config sim = {.cpus = CPUS, .arena_bytes = 192 * MIB};
    sim_explore_ignore(true);
    if (!stack_build(&sim, 256, UINT64_MAX)) return "no memory";
    object_caches_init(&objects, &slabs, &caches, 2); /* short arrays */
    memset(table, 0, sizeof table);
    in_callbacks = moves = reclaims = 0;
    made = unmade = 0;
    gone = false;
    const struct object_cache_config config = {.name = "things",
                                               .bytes = sizeof(struct thing),
                                               .align = 8,
                                               .slab_bytes = 4096,
                                               .source = &slab_source_zone,
                                               .source_context = &zone,
                                               .construct = make_thing,
                                               .destruct = unmake_thing,
                                               .reclaim = any_function,
                                               .call_reclaim = call_reclaim,
                                               .free_function = "free_thing"};
    if (object_cache_create(&objects, &config, &cache) != OBJECT_CACHE_OK) return "no cache";
    if (object_cache_set_move(cache, any_function, call_move) != OBJECT_CACHE_OK) return "no move function";
    /* Four slabs: two objects of the program in the first, one in each other. */
    void *all[4 * SLAB_OBJECTS];
    for (unsigned i = 0; i < 4 * SLAB_OBJECTS; i++) all[i] = object_cache_alloc(cache);
    static const unsigned kept[] = {0, 3, 4, 8, 12};
    for (unsigned i = 0, k = 0; i < 4 * SLAB_OBJECTS; i++) {
        if (k < ARRAY_LENGTH(kept) && kept[k] == i)
            link_thing(k++ == 4 ? ENTRIES - 1 : k - 1, all[i]);
        else
            object_cache_free(cache, all[i]);
    }
    object_cache_reap(&objects, cache);
    sim_explore_ignore(false);
    for (unsigned i = 0; i < ARRAY_LENGTH(scene->bodies) && scene->bodies[i] != NULL; i++) sim_thread_start(scene->cpus[i], scene->bodies[i], NULL);
    while (sim_threads_alive() != 0 && stack_wrong == NULL) {
        uint64_t before = platform_now_ns();
        if (!sim_run_threads_for(1000000) && platform_now_ns() - before > UINT64_C(1000000000)) stack_fail("a thread waits for ever");
        if (platform_now_ns() > UINT64_C(60000000000)) stack_fail("a thread waits for ever");
    }
    sim_explore_ignore(true);
    if (moves > most_moves) most_moves = moves;
    if (stack_wrong == NULL && sim_locks_held() != 0) stack_fail("a lock is held");
    if (stack_wrong == NULL && !gone) {
        struct object_cache_stats stats;
        unsigned linked = 0;
        const char *broken = object_caches_check(&objects);
        if (broken != NULL) stack_fail(broken);
        object_cache_stats_get(cache, &stats);
        for (unsigned i = 0; i < ENTRIES; i++) linked += table[i].thing != NULL;
        if (stats.slabs.in_use != stats.cache.cached + linked) stack_fail("objects are lost, or in two places");
        if (made - unmade != stats.slabs.in_use) stack_fail("constructions and destructions differ from the objects");
        if (stack_wrong == NULL) destroy(NULL);
    }
    if (stack_wrong == NULL && made != unmade) stack_fail("a construction was not undone");
    return stack_wrong;
}

static void explore(struct scene scene) {
    struct sim_exploration exploration = {.scenario = run, .context = &scene, .deviations = sparse_deviations(scene.deviations)};
    most_moves = 0;
    if (!sim_explore(&exploration)) fail_msg("%s", exploration.failure);
    if (exploration.runs < sparse_runs(scene.runs_min)) fail_msg("%llu runs only", (unsigned long long)exploration.runs);
    if (scene.bodies[0] == consolidate && most_moves < 2) fail_msg("nothing was moved");
}

static void objects_change_hands_while_slabs_are_emptied(void **state) {
    (void)state;
    explore((struct scene){.bodies = {consolidate, use_first}, .cpus = {0, 1}, .deviations = 3, .runs_min = 10000});
    explore((struct scene){.bodies = {consolidate, use_last}, .cpus = {0, 0}, .deviations = 2, .runs_min = 300});
    explore((struct scene){.bodies = {consolidate, use_first, use_last}, .cpus = {0, 1, 0}, .deviations = 2, .runs_min = 1000});
}

static void caches_are_emptied_meanwhile(void **state) {
    (void)state;
    explore((struct scene){.bodies = {consolidate, reap}, .cpus = {0, 1}, .deviations = 2, .runs_min = 300});
    explore((struct scene){.bodies = {consolidate, reap, use_first}, .cpus = {0, 1, 1}, .deviations = 2, .runs_min = 1000});
}

static void one_thread_at_a_time_moves(void **state) {
    (void)state;
    explore((struct scene){.bodies = {consolidate, consolidate}, .cpus = {0, 1}, .deviations = 2, .runs_min = 300});
    explore((struct scene){.bodies = {consolidate, consolidate_by_time, use_first}, .cpus = {0, 1, 1}, .deviations = 2, .runs_min = 1000});
}

static void objects_are_reclaimed_meanwhile(void **state) {
    (void)state;
    explore((struct scene){.bodies = {consolidate, reclaim}, .cpus = {0, 1}, .deviations = 2, .runs_min = 300});
    explore((struct scene){.bodies = {reclaim, reclaim, use_first}, .cpus = {0, 1, 0}, .deviations = 2, .runs_min = 1000});
}

static void destruction_waits_for_callbacks(void **state) {
    (void)state;
    explore((struct scene){.bodies = {consolidate_by_time, destroy}, .cpus = {0, 1}, .deviations = 2, .runs_min = 300});
    explore((struct scene){.bodies = {reclaim, destroy}, .cpus = {0, 1}, .deviations = 2, .runs_min = 300});
    explore((struct scene){.bodies = {consolidate_by_time, reclaim, destroy}, .cpus = {0, 1, 1}, .deviations = 2, .runs_min = 1000});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_change_hands_while_slabs_are_emptied),
        cmocka_unit_test(caches_are_emptied_meanwhile),
        cmocka_unit_test(one_thread_at_a_time_moves),
        cmocka_unit_test(objects_are_reclaimed_meanwhile),
        cmocka_unit_test(destruction_waits_for_callbacks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
