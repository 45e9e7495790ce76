/*
 * test_check.c - cache_check finds planted damage: each of its invariants is broken in turn, in depot and CPU layer, and it says which;
 * with the damage repaired it is content again. Statistics count what is there.
 */
#include "unit/cache/cache_test.h"

static unsigned cache;
static struct depot *depot;

/* Two full magazines, one empty, and a half-filled array on each of two CPUs. */
static void begin(void) {
    build(2, 256);
    cache = cache_of(64);
    depot = &caches.depots[cache];
    for (unsigned i = 0; i < 2; i++) assert_true(stock_depot(cache));
    struct magazine *empty = depot_take_empty(&caches, depot);
    for (unsigned cpu = 0; cpu < 2; cpu++) {
        sim_cpu_set(cpu);
        void *object = NULL;
        assert_int_equal(slab_alloc_batch(&slabs, cache, &object, 1), 1);
        *(uint64_t *)object = 0;
        cache_free(&caches, cache, object);
    }
    depot_give_empty(&caches, depot, empty);
    depot_tick(&caches, cache, false);
    ASSERT_SOUND();
}

#define ASSERT_FINDS(text)                                                                          \
    do {                                                                                            \
        const char *found = cache_check(&caches);                                                   \
        if (found == NULL || strstr(found, text) == NULL) fail_msg("line %d: %s", __LINE__, found); \
    } while (0)
/* A field has another value for a moment. */
#define ASSERT_FINDS_WITH(field, value, text) \
    do {                                      \
        __typeof__(field) saved = (field);    \
        (field) = (__typeof__(field))(value); \
        ASSERT_FINDS(text);                   \
        (field) = saved;                      \
        assert_null(cache_check(&caches));    \
    } while (0)

static void damage_to_the_depot_is_found(void **state) {
    (void)state;
    begin();
    struct magazine *last = depot->full.first->next;
    depot->full.low = depot->empty.low = 0; /* so that a list cut short is wrong in one way only */
    ASSERT_FINDS_WITH(depot->full.first->count, 0, "too few or too many rounds");
    ASSERT_FINDS_WITH(last->count, magazine_capacity(last) + 1, "too few or too many rounds");
    ASSERT_FINDS_WITH(depot->empty.first->count, 1, "a full magazine among the empty ones");
    ASSERT_FINDS_WITH(depot->full.count, 1, "a count differs from its list");
    ASSERT_FINDS_WITH(depot->full.count, 3, "a count differs from its list");
    ASSERT_FINDS_WITH(depot->empty.count, 0, "a count differs from its list");
    ASSERT_FINDS_WITH(depot->full.first->next, NULL, "a count differs from its list");
    ASSERT_FINDS_WITH(depot->full.low, 3, "more magazines unneeded than there are");
    ASSERT_FINDS_WITH(depot->empty.low, 2, "more magazines unneeded than there are");
    ASSERT_FINDS_WITH(depot->rounds, depot->rounds_max + 1, "arrays larger than allowed");
    assert_int_equal(sim_locks_held(), 0);
    ASSERT_NOTHING_LEFT();
}

/* CPU 0's shelf has full magazines of its own, and an empty one. */
static struct shelf *stock_shelf(void **objects, unsigned count) {
    build(2, 256);
    cache = cache_of(1024);
    depot = &caches.depots[cache];
    share_depot(cache);
    stack_stop_growth();
    depot->full_max = 8; /* four of each shelf */
    sim_cpu_set(0);
    take_all(cache, objects, count);
    give_all(cache, objects, count);
    take_all(cache, objects, count / 2);
    struct shelf *shelf = shelf_at(cache, shelf_number(cache_home()));
    assert_true(depot->shelved && shelf->full.count != 0 && shelf->empty.count != 0);
    return shelf;
}

static void damage_to_a_shelf_is_found(void **state) {
    (void)state;
    static void *objects[128];
    struct shelf *shelf = stock_shelf(objects, ARRAY_LENGTH(objects));
    assert_null(cache_check(&caches));
    shelf->full.low = shelf->empty.low = 0;
    ASSERT_FINDS_WITH(shelf->full.first->count, 0, "too few or too many rounds");
    ASSERT_FINDS_WITH(shelf->full.first->count, magazine_capacity(shelf->full.first) + 1, "too few or too many rounds");
    ASSERT_FINDS_WITH(shelf->full.first->home, shelf->full.first->home + 1, "a magazine of another CPU");
    ASSERT_FINDS_WITH(shelf->full.first->home, 0, "a magazine of another CPU");
    ASSERT_FINDS_WITH(shelf->used, false, "without a share");
    ASSERT_FINDS_WITH(shelf->empty.first->count, 1, "a full magazine among the empty ones");
    ASSERT_FINDS_WITH(shelf->full.count, shelf->full.count + 1, "a count differs from its list");
    ASSERT_FINDS_WITH(shelf->empty.count, shelf->empty.count - 1, "a count differs from its list");
    ASSERT_FINDS_WITH(shelf->full.low, shelf->full.count + 1, "more magazines unneeded than there are");
    ASSERT_FINDS_WITH(shelf->empty.low, shelf->empty.count + 1, "more magazines unneeded than there are");
    assert_int_equal(sim_locks_held(), 0);
    give_all(cache, objects, ARRAY_LENGTH(objects) / 2);
    ASSERT_NOTHING_LEFT();
}

static void damage_to_the_cpu_layer_is_found(void **state) {
    (void)state;
    begin();
    for (unsigned cpu = 0; cpu < 2; cpu++) {
        struct cpu_header *header = cpu_area_header(cpu_area_at(cpu), cache);
        ASSERT_FINDS_WITH(header->top, depot->bottom - 1, "a top outside its array");
        ASSERT_FINDS_WITH(header->top, depot->bottom + depot->rounds_max + 1, "a top outside its array");
        ASSERT_FINDS_WITH(header->bottom, depot->bottom + 1, "an array outside its slots");
        ASSERT_FINDS_WITH(header->limit, depot->bottom + depot->rounds_max + 1, "an array outside its slots");
    }
    cache_drain(&caches);
    struct cpu_header *header = cpu_area_header(cpu_area_at(1), cache);
    ASSERT_FINDS_WITH(header->top, depot->bottom - 1, "a top outside its array");
    ASSERT_FINDS_WITH(header->limit, (uint16_t)(header->top + 1), "more rounds taken than there were");
    ASSERT_NOTHING_LEFT();
}

static void damage_to_every_cache_is_found(void **state) {
    (void)state;
    begin();
    for (unsigned other = SLAB_CACHE_FIRST; other < SLAB_CACHE_MAGAZINES; other++) {
        ASSERT_FINDS_WITH(caches.depots[other].full.count, 100, "a count differs from its list");
        give(other, must_take(other));
        ASSERT_FINDS_WITH(cpu_area_header(cpu_area_at(1), other)->top, 1, "a top outside its array");
    }
    ASSERT_NOTHING_LEFT();
}

/* The equation over the layers, which cache_check can't know. */
static void a_lost_and_a_doubled_object_unbalance_the_sum(void **state) {
    (void)state;
    begin();
    assert_null(unbalanced_cache(cache));
    void *lost = cpu_pop(cache);
    assert_non_null(lost);
    assert_string_equal(unbalanced_cache(cache), "objects are lost");
    assert_true(cpu_push(cache, lost));
    assert_null(unbalanced_cache(cache));
    assert_true(cpu_push(cache, lost));
    assert_string_equal(unbalanced_cache(cache), "an object is in two places");
    assert_ptr_equal(cpu_pop(cache), lost);
    struct magazine *magazine = depot_take_empty(&caches, depot);
    assert_string_equal(unbalanced_magazines(), "magazines are lost, or in two places");
    depot_give_empty(&caches, depot, magazine);
    ASSERT_NOTHING_LEFT();
}

static void drain_twice_of_an_object(void *argument) {
    void *object = cpu_pop(cache);
    (void)argument;
    assert_true(cpu_push(cache, object) && cpu_push(cache, object));
    cache_drain(&caches);
}

static void a_doubled_object_is_told_when_it_reaches_the_slab(void **state) {
    (void)state;
    begin();
    sim_output_clear();
    assert_true(sim_dies(drain_twice_of_an_object, NULL));
    assert_non_null(strstr(sim_output(), "double free (cache malloc-64)"));
}

static void statistics_count_what_is_there(void **state) {
    (void)state;
    begin();
    unsigned half = depot->rounds / 2u;
    struct cache_stats stats = stats_of(cache);
    assert_int_equal(stats.cached, 2 * half + 2); /* the depot's and one on each CPU */
    assert_int_equal(stats.depot_magazines, 2);
    assert_int_equal(stats.rounds, depot->rounds);
    assert_int_equal(stats.depot_frees, 2 * half);
    assert_int_equal(stats.depot_allocs, 0);
    assert_int_equal(stats.contention, 0);
    assert_int_equal(cache_area_bytes(&caches), 2 * CPU_AREA_BYTES);
    void *object = must_take(cache);
    assert_int_equal(stats_of(cache).cached, 2 * half + 1);
    void *next = must_take(cache);
    stats = stats_of(cache);
    assert_int_equal(stats.depot_allocs, half);
    assert_int_equal(stats.depot_magazines, 1);
    assert_int_equal(stats.cached, 2 * half);
    give(cache, object);
    give(cache, next);
    ASSERT_NOTHING_LEFT();
    assert_int_equal(stats_of(cache).cached, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_to_the_depot_is_found),
        cmocka_unit_test(damage_to_a_shelf_is_found),
        cmocka_unit_test(damage_to_the_cpu_layer_is_found),
        cmocka_unit_test(damage_to_every_cache_is_found),
        cmocka_unit_test(a_lost_and_a_doubled_object_unbalance_the_sum),
        cmocka_unit_test(a_doubled_object_is_told_when_it_reaches_the_slab),
        cmocka_unit_test(statistics_count_what_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
