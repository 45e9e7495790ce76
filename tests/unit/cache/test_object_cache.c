/*
 * test_object_cache.c - object caches: every object that the program gets is constructed, each construction is undone once, and
 *     objects that slabs gave out = objects in CPU arrays and depot + objects that the test holds
 * for every cache, whatever the CPU, the mode, the failure or the order.
 */
#include "cache/object_cache.h"
#include "unit/cache/cache_test.h"

static struct object_caches objects;

/* ------------------------------------------------------------------ objects that know what was done to them */

#define MADE UINT64_C(0x636f6e7374727563)

struct thing {
    uint64_t made; /* MADE while it is constructed */
    uint64_t uses; /* since it was constructed */
    uint64_t holder;
};

struct kind {
    uint64_t made, unmade, refuse_each; /* every n-th construction is refused; 0: none */
    uint64_t calls;
    struct object_cache *other; /* not NULL: construct and destruct use this cache, too */
};

static void use_other(const struct kind *kind) {
    if (kind->other == NULL) return;
    void *object = object_cache_alloc(kind->other);
    if (object != NULL) object_cache_free(kind->other, object);
    void *memory = take(cache_of(48)); /* and malloc's */
    if (memory != NULL) give(cache_of(48), memory);
}

static int make_thing(void *object, void *argument) {
    struct kind *kind = argument;
    struct thing *thing = object;
    if (sim_locks_held() != 0) stack_fail("a lock is held while a constructor runs");
    if (thing->made == MADE) stack_fail("an object was constructed twice");
    use_other(kind);
    if (kind->refuse_each != 0 && ++kind->calls % kind->refuse_each == 0) return -1;
    *thing = (struct thing){.made = MADE};
    kind->made++;
    return 0;
}

static void unmake_thing(void *object, void *argument) {
    struct kind *kind = argument;
    struct thing *thing = object;
    if (sim_locks_held() != 0) stack_fail("a lock is held while a destructor runs");
    if (thing->made != MADE || thing->holder != 0) stack_fail("what was destructed was not constructed, or is in use");
    use_other(kind);
    thing->made = 0;
    kind->unmade++;
}

static struct object_cache *create(const char *name, uint64_t bytes, struct kind *kind, bool no_magazines) {
    const struct object_cache_config config = {.name = name,
                                               .bytes = bytes,
                                               .align = 16,
                                               .source = &slab_source_zone,
                                               .source_context = &zone,
                                               .construct = kind != NULL ? make_thing : NULL,
                                               .destruct = kind != NULL ? unmake_thing : NULL,
                                               .argument = kind,
                                               .no_magazines = no_magazines};
    struct object_cache *cache = NULL;
    assert_int_equal(object_cache_create(&objects, &config, &cache), OBJECT_CACHE_OK);
    return cache;
}

static struct thing *hold(struct object_cache *cache) {
    struct thing *thing = object_cache_alloc(cache);
    if (thing == NULL) return NULL;
    if (cache->construct != NULL && thing->made != MADE) stack_fail("an object came that is not constructed");
    if (thing->holder != 0) stack_fail("an object was handed out twice");
    thing->holder = 1;
    thing->uses++;
    return thing;
}

static void drop(struct object_cache *cache, struct thing *thing) {
    thing->holder = 0;
    object_cache_free(cache, thing);
}

#define EXPECT_BALANCE(whose, count)                                                   \
    do {                                                                               \
        struct object_cache_stats stats_;                                              \
        const char *wrong_ = object_caches_check(&objects);                            \
        if (wrong_ == NULL) wrong_ = stack_wrong;                                      \
        if (wrong_ != NULL) fail_msg("line %d: %s", __LINE__, wrong_);                 \
        object_cache_stats_get((whose), &stats_);                                      \
        assert_int_equal(stats_.slabs.in_use, stats_.cache.cached + (count));          \
        assert_int_equal(stats_.constructed - stats_.destructed, stats_.slabs.in_use); \
        assert_int_equal(sim_locks_held(), 0);                                         \
    } while (0)

/* Everything that was created is destroyed: no page of the zone is left but malloc's. */
static void assert_all_is_back(void) {
    assert_true(list_empty(&objects.all));
    cache_drain(&caches);
    struct zone_counters counters;
    zone_counters_get(&zone, &counters);
    assert_int_equal(counters.allocated, 0);
    assert_null(zone_check(&zone));
    ASSERT_NOTHING_LEFT();
}

static void begin(unsigned cpus, unsigned magazine_max) {
    build(cpus, magazine_max);
    object_caches_init(&objects, &slabs, &caches, magazine_max);
}

/* ------------------------------------------------------------------ tests */

static void objects_stay_constructed(void **state) {
    (void)state;
    begin(2, 256);
    struct kind kind = {0};
    struct object_cache *cache = create("things", sizeof(struct thing), &kind, false);
    assert_string_equal(cache->name, "things");
    struct thing *thing = hold(cache);
    for (unsigned i = 0; i < 100; i++) {
        drop(cache, thing);
        assert_ptr_equal(hold(cache), thing);
    }
    assert_int_equal(thing->uses, 101);
    EXPECT_BALANCE(cache, 1);
    uint64_t made = kind.made;
    assert_true(made <= CACHE_TRANSFER_MAX);
    drop(cache, thing);
    object_cache_reap(&objects, cache);
    EXPECT_BALANCE(cache, 0);
    assert_int_equal(kind.made, made);
    assert_int_equal(kind.unmade, made);
    assert_int_equal(object_cache_destroy(&objects, cache), 0);
    assert_all_is_back();
}

static void without_magazines_each_use_constructs(void **state) {
    (void)state;
    begin(2, 256);
    struct kind kind = {0};
    struct object_cache *cache = create("things", sizeof(struct thing), &kind, true);
    for (unsigned i = 1; i <= 10; i++) {
        struct thing *thing = hold(cache);
        assert_int_equal(thing->uses, 1);
        drop(cache, thing);
        assert_true(kind.made == i && kind.unmade == i);
    }
    void *batch[20];
    bool slow = false;
    assert_int_equal(object_cache_alloc_batch(cache, batch, 20, &slow), 20);
    assert_true(slow);
    slow = false;
    object_cache_free_batch(cache, batch, 20, &slow);
    assert_true(slow);
    EXPECT_BALANCE(cache, 0);
    assert_int_equal(object_cache_destroy(&objects, cache), 0);
    assert_all_is_back();
}

static void refusals_lose_nothing(void **state) {
    (void)state;
    begin(2, 256);
    struct kind kind = {.refuse_each = 3};
    struct object_cache *cache = create("things", sizeof(struct thing), &kind, false);
    struct thing *held_things[500];
    unsigned count = 0;
    for (unsigned i = 0; i < 500; i++)
        if ((held_things[count] = hold(cache)) != NULL) count++;
    assert_true(count > 400);
    struct object_cache_stats stats;
    object_cache_stats_get(cache, &stats);
    assert_true(stats.refused > 100);
    EXPECT_BALANCE(cache, count);
    kind.refuse_each = 1; /* none at all */
    object_cache_reap(&objects, cache);
    assert_null(hold(cache));
    EXPECT_BALANCE(cache, count);
    kind.refuse_each = 0;
    for (unsigned i = 0; i < count; i++) drop(cache, held_things[i]);
    assert_int_equal(object_cache_destroy(&objects, cache), 0);
    assert_int_equal(kind.made, kind.unmade);
    assert_all_is_back();
}

/* More caches than a layer has places; those that go leave theirs to others, of other sizes. */
static void places_are_used_again(void **state) {
    (void)state;
    begin(3, 256);
    enum { CACHES = 100 };
    static struct object_cache *all[CACHES];
    static struct thing *things[CACHES];
    static struct kind kinds[CACHES];
    uint64_t random = 11;
    memset(all, 0, sizeof all);
    for (unsigned turn = 0; turn < 2000; turn++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        unsigned i = (unsigned)(random >> 33) % CACHES;
        sim_cpu_set((unsigned)(random >> 50) % 3);
        if (all[i] == NULL) {
            kinds[i] = (struct kind){0};
            all[i] = create("one of many", sizeof(struct thing) + (random >> 40) % 3000, &kinds[i], random >> 63 != 0);
            things[i] = NULL;
        } else if (things[i] == NULL) {
            things[i] = hold(all[i]);
            assert_non_null(things[i]);
        } else {
            drop(all[i], things[i]);
            things[i] = NULL;
            if ((random >> 45) % 4 != 0) continue;
            assert_int_equal(object_cache_destroy(&objects, all[i]), 0);
            assert_int_equal(kinds[i].made, kinds[i].unmade);
            all[i] = NULL;
        }
        if (turn % 100 == 0)
            for (unsigned k = 0; k < CACHES; k++)
                if (all[k] != NULL) EXPECT_BALANCE(all[k], things[k] != NULL);
    }
    for (unsigned i = 0; i < CACHES; i++)
        if (all[i] != NULL) assert_int_equal(object_cache_destroy(&objects, all[i]), things[i] != NULL);
    assert_null(stack_wrong);
    unsigned layers = 0;
    for (const struct object_layer *layer = objects.layers; layer != NULL; layer = layer->next) layers++;
    assert_in_range(layers, 2, (CACHES + OBJECT_LAYER_CACHES - 1) / OBJECT_LAYER_CACHES);
    assert_all_is_back();
}

/* A cache that was shut leaves no closed array to who comes to its place, not even on a CPU that never came to it. */
static void a_place_that_was_shut_is_as_others(void **state) {
    (void)state;
    begin(3, 256);
    for (unsigned turn = 0; turn < 2; turn++) {
        struct kind kind = {0};
        struct object_cache *cache = create("debugged", sizeof(struct thing), &kind, false);
        assert_int_equal(cache->index, 0);
        if (turn == 0) cache_shut(&cache->owner->layer, cache->index);
        for (unsigned cpu = 0; cpu < 2 + turn; cpu++) {
            struct cache_stats before, after;
            sim_cpu_set(cpu);
            cache_stats_get(&cache->owner->layer, cache->index, &before);
            drop(cache, hold(cache));
            cache_stats_get(&cache->owner->layer, cache->index, &after);
            assert_int_equal(after.cached > before.cached, turn);
        }
        assert_int_equal(object_cache_destroy(&objects, cache), 0);
        assert_int_equal(kind.made, kind.unmade);
    }
    assert_all_is_back();
}

/* Its figures are its own. */
static void a_place_that_was_used_counts_anew(void **state) {
    (void)state;
    begin(2, 256);
    for (unsigned turn = 0; turn < 2; turn++) {
        struct kind kind = {0};
        struct thing *things[500];
        struct object_cache_stats stats;
        struct object_cache *cache = create("counted", sizeof(struct thing), &kind, false);
        assert_int_equal(cache->index, 0);
        object_cache_stats_get(cache, &stats);
        assert_int_equal(stats.cache.depot_allocs + stats.cache.depot_frees + stats.cache.contention, 0);
        for (unsigned round = 0; round < 2; round++) {
            sim_contend_lock(&cache->owner->layer.depots[0].lock, 1);
            for (unsigned i = 0; i < ARRAY_LENGTH(things); i++) assert_non_null(things[i] = hold(cache));
            for (unsigned i = 0; i < ARRAY_LENGTH(things); i++) drop(cache, things[i]);
        }
        object_cache_stats_get(cache, &stats);
        assert_true(stats.cache.depot_allocs != 0 && stats.cache.depot_frees != 0 && stats.cache.contention != 0);
        assert_int_equal(object_cache_destroy(&objects, cache), 0);
    }
    assert_all_is_back();
}

/* No place is searched for: of layers that are full none is looked at, however many there are. One that has room again is used again. */
static void places_are_found_without_a_search(void **state) {
    (void)state;
    enum { LAYERS = 3 };
    struct object_cache *all[LAYERS][OBJECT_LAYER_CACHES], *more;
    begin(2, 256);
    for (unsigned layer = 0; layer < LAYERS; layer++)
        for (unsigned i = 0; i < OBJECT_LAYER_CACHES; i++) {
            all[layer][i] = create("one of many", 64, NULL, false);
            assert_ptr_equal(all[layer][i]->owner, all[layer][0]->owner);
        }
    struct object_cache **hole = &all[0][0]->owner->caches[5]; /* that a search would find */
    *hole = NULL;
    more = create("one more", 64, NULL, false);
    assert_ptr_not_equal(more->owner, all[0][0]->owner);
    *hole = all[0][5];
    for (unsigned layer = 0; layer < LAYERS; layer++) {
        struct object_layer *owner = all[layer][0]->owner;
        for (unsigned i = layer; i < layer + 2; i++) assert_int_equal(object_cache_destroy(&objects, all[layer][i]), 0);
        for (unsigned i = layer; i < layer + 2; i++) {
            all[layer][i] = create("another", 64, NULL, false);
            assert_ptr_equal(all[layer][i]->owner, owner);
            assert_int_equal(all[layer][i]->index, i);
        }
    }
    assert_null(object_caches_check(&objects));
    for (unsigned layer = 0; layer < LAYERS; layer++)
        for (unsigned i = 0; i < OBJECT_LAYER_CACHES; i++) assert_int_equal(object_cache_destroy(&objects, all[layer][i]), 0);
    assert_int_equal(object_cache_destroy(&objects, more), 0);
    assert_all_is_back();
}

/* Memory for one slab: what CPU 0 has freed, CPU 1 gets, to the last object. */
static void any_cpu_gets_the_last_object(void **state) {
    (void)state;
    const struct sim_config sim = {.cpus = 2, .arena_bytes = SMALL_ARENA_BYTES};
    assert_true(stack_build(&sim, 256, 4 * GRANULE_BYTES));
    object_caches_init(&objects, &slabs, &caches, 256);
    struct kind kind = {0};
    struct object_cache *cache = create("few", 1500, &kind, false);
    struct thing *things[64];
    unsigned count = 0, again = 0;
    while (count < 64 && (things[count] = hold(cache)) != NULL) count++;
    assert_in_range(count, 2, 20);
    for (unsigned i = 0; i < count; i++) drop(cache, things[i]);
    sim_cpu_set(1);
    while (again < 64 && (things[again] = hold(cache)) != NULL) again++;
    assert_int_equal(again, count);
    EXPECT_BALANCE(cache, count);
    for (unsigned i = 0; i < again; i++) drop(cache, things[i]);
    assert_int_equal(object_cache_destroy(&objects, cache), 0);
    assert_all_is_back();
}

/* Constructors and destructors that use strata themselves, at any time: in misses, overflows, reaps, ticks and at the end. */
static void callbacks_may_allocate(void **state) {
    (void)state;
    begin(2, 256);
    struct kind plain = {0}, nested = {0};
    struct object_cache *inner = create("inner", 64, &plain, false);
    nested.other = inner;
    struct object_cache *cache = create("outer", sizeof(struct thing), &nested, false);
    static struct thing *things[3000];
    uint64_t random = 3;
    unsigned count = 0;
    for (unsigned turn = 0; turn < 20000; turn++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        sim_cpu_set((unsigned)(random >> 60) % 2);
        bool more = (turn / 2500) % 2 == 0 ? (random >> 33) % 3 != 0 : (random >> 33) % 3 == 0;
        if (more && count < 3000)
            things[count++] = hold(cache);
        else if (count != 0)
            drop(cache, things[--count]);
        if (turn % 1000 == 999) object_caches_tick(&objects);
        if (turn % 5000 == 4999) object_caches_reap(&objects);
    }
    EXPECT_BALANCE(cache, count);
    EXPECT_BALANCE(inner, 0);
    while (count != 0) drop(cache, things[--count]);
    assert_int_equal(object_cache_destroy(&objects, cache), 0);
    assert_int_equal(nested.made, nested.unmade);
    assert_int_equal(object_cache_destroy(&objects, inner), 0);
    assert_int_equal(plain.made, plain.unmade);
    assert_all_is_back();
}

static void idle_cpus_are_called_in_by_time(void **state) {
    (void)state;
    begin(4, 256);
    struct kind kind = {0};
    struct object_cache *cache = create("things", sizeof(struct thing), &kind, false);
    for (unsigned cpu = 0; cpu < 4; cpu++) {
        sim_cpu_set(cpu);
        drop(cache, hold(cache));
    }
    struct object_cache_stats stats;
    object_cache_stats_get(cache, &stats);
    assert_true(stats.cache.cached > 4);
    for (unsigned tick = 0; tick < 3; tick++) object_caches_tick(&objects);
    object_cache_stats_get(cache, &stats);
    assert_int_equal(stats.cache.cached, 0);
    assert_int_equal(kind.made, kind.unmade);
    assert_int_equal(object_cache_destroy(&objects, cache), 0);
    assert_all_is_back();
}

static void the_end_of_a_thread(void **state) {
    (void)state;
    const struct sim_config sim = {.cpus = 2, .arena_bytes = 8 * (uint64_t)GIB, .thread_mode = true};
    assert_true(stack_build(&sim, 256, UINT64_MAX));
    object_caches_init(&objects, &slabs, &caches, 256);
    struct kind kind = {0};
    sim_thread_become(1);
    give(cache_of(64), must_take(cache_of(64))); /* it has an id before there is a layer of object caches */
    struct object_cache *cache = create("things", sizeof(struct thing), &kind, false);
    drop(cache, hold(cache));
    sim_thread_become(2); /* and this one gets it afterwards */
    struct thing *thing = hold(cache);
    EXPECT_BALANCE(cache, 1);
    for (unsigned id = 1; id <= 2; id++) {
        sim_thread_become(id);
        uint32_t number = platform_thread_id();
        assert_int_not_equal(number, 0);
        platform_thread_set_id(0);
        object_caches_thread_exit(&objects, number);
        cache_thread_exit(&caches, number);
    }
    EXPECT_BALANCE(cache, 1);
    struct object_cache_stats stats;
    object_cache_stats_get(cache, &stats);
    assert_int_equal(stats.cache.cached, 0);
    sim_thread_become(3);
    drop(cache, thing);
    assert_int_equal(object_cache_destroy(&objects, cache), 0);
    assert_int_equal(kind.made, kind.unmade);
    assert_null(stack_wrong);
}

static void a_forked_child_goes_on(void **state) {
    (void)state;
    begin(2, 256);
    struct kind kind = {0};
    struct object_cache *cache = create("things", sizeof(struct thing), &kind, false);
    struct thing *thing = hold(cache);
    cache->pins = 2; /* as if other threads had been at work with it, and one had its rounds on the way to slabs */
    cache->owner->layer.depots[cache->index].giving = 1;
    platform_fork_begin();
    object_caches_fork_prepare(&objects);
    cache_fork_prepare(&caches);
    slab_fork_prepare(&slabs);
    zone_fork_prepare(&zone);
    zone_fork_child(&zone);
    slab_fork_child(&slabs);
    cache_fork_child(&caches);
    object_caches_fork_child(&objects);
    platform_fork_end();
    EXPECT_BALANCE(cache, 1);
    drop(cache, thing);
    assert_int_equal(object_cache_destroy(&objects, cache), 0); /* waits for none of them */
    assert_all_is_back();
}

/* Every call to the platform fails once, from the first on, in creating, filling and ending a cache. */
static void no_call_may_fail_badly(void **state) {
    (void)state;
    begin(2, 256);
    uint64_t calls = 0;
    for (uint64_t nth = 0; nth == 0 || nth <= calls; nth++) {
        begin(2, 256);
        struct kind kind = {0};
        const struct object_cache_config config = {.name = "things",
                                                   .bytes = sizeof(struct thing),
                                                   .align = 16,
                                                   .source = &slab_source_zone,
                                                   .source_context = &zone,
                                                   .construct = make_thing,
                                                   .destruct = unmake_thing,
                                                   .argument = &kind};
        struct object_cache *cache = NULL;
        static struct thing *things[3000];
        unsigned count = 0;
        const size_t metadata_bytes = zone_metadata_bytes(&zone);
        uint64_t before = sim_failable_calls();
        sim_fail_call(nth, 1);
        enum object_cache_status status = object_cache_create(&objects, &config, &cache);
        if (status == OBJECT_CACHE_OK) {
            for (unsigned i = 0; i < 3000; i++)
                if ((things[count] = hold(cache)) != NULL) count++;
            EXPECT_BALANCE(cache, count);
            while (count != 0) drop(cache, things[--count]);
            assert_int_equal(object_cache_destroy(&objects, cache), 0);
        } else {
            assert_int_equal(status, OBJECT_CACHE_NO_MEMORY);
            assert_true(list_empty(&objects.all));
            assert_int_equal(zone_metadata_bytes(&zone), metadata_bytes);
        }
        if (nth == 0) calls = sim_failable_calls() - before;
        sim_fail_call(0, 1);
        assert_int_equal(kind.made, kind.unmade);
        assert_all_is_back();
    }
    assert_true(calls >= 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_stay_constructed),
        cmocka_unit_test(without_magazines_each_use_constructs),
        cmocka_unit_test(refusals_lose_nothing),
        cmocka_unit_test(places_are_used_again),
        cmocka_unit_test(any_cpu_gets_the_last_object),
        cmocka_unit_test(callbacks_may_allocate),
        cmocka_unit_test(idle_cpus_are_called_in_by_time),
        cmocka_unit_test(the_end_of_a_thread),
        cmocka_unit_test(a_place_that_was_shut_is_as_others),
        cmocka_unit_test(a_place_that_was_used_counts_anew),
        cmocka_unit_test(places_are_found_without_a_search),
        cmocka_unit_test(a_forked_child_goes_on),
        cmocka_unit_test(no_call_may_fail_badly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
