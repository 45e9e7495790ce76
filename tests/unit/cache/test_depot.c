/*
 * test_depot.c - the depot: its lists of full and empty magazines and what they may hold; the working set, so that only what was not needed in
 * an interval goes back to the slabs (magazines paper, 3.7); the size m of the arrays, which grows by contention (3.4) and
 * comes back when nobody visits; reaping, which takes no fence and leaves other CPUs alone.
 */
#include "unit/cache/cache_test.h"

#define CONTENDED_MAX 8 /* lock misses in an interval that a cache bears */
#define CONTENDED_NOW 64
#define IDLE_TICKS 20 /* intervals without a visit, after which m is what it was at first */

static void *objects[2 * CACHE_ROUNDS_MAX + 2];

/* Out of the depot, and the rounds into the slabs. */
static void spend_full(unsigned cache, unsigned magazines) {
    struct depot *depot = &caches.depots[cache];
    while (magazines-- != 0) {
        struct magazine *magazine = depot_take_full(&caches, depot);
        assert_non_null(magazine);
        slab_free_batch(&slabs, cache, magazine->rounds, magazine->count);
        depot_give_empty(&caches, depot, magazine);
    }
}

/* ------------------------------------------------------------------ lists */

static void full_magazines_come_back_newest_first(void **state) {
    (void)state;
    unsigned cache;
    struct depot *depot = build_depot(&cache, 256);
    unsigned half = depot->rounds / 2u;
    share_depot(cache);
    for (unsigned i = 0; i < 3; i++) assert_true(stock_depot(cache));
    struct magazine *newest = depot->full.first;
    assert_int_equal(depot->full.count, 3);
    assert_int_equal(stats_of(cache).cached, 3 * half);
    assert_int_equal(stats_of(cache).depot_frees, 3 * half);
    struct magazine *taken = depot_take_full(&caches, depot);
    assert_ptr_equal(taken, newest);
    assert_int_equal(taken->count, half);
    assert_int_equal(depot->full.count, 2);
    assert_int_equal(stats_of(cache).depot_allocs, half);
    assert_true(depot_give_full(&caches, depot, taken));
    ASSERT_SOUND();
    spend_full(cache, 3);
    assert_null(depot_take_full(&caches, depot));
    assert_int_equal(depot->empty.count, 3);
    ASSERT_NOTHING_LEFT();
}

static void empty_magazines_are_used_again(void **state) {
    (void)state;
    unsigned cache;
    struct depot *depot = build_depot(&cache, 256);
    unsigned kind = SLAB_CACHE_MAGAZINES + depot->kind;
    struct magazine *first = depot_take_empty(&caches, depot), *second = depot_take_empty(&caches, depot);
    assert_int_equal(slab_stats_of(kind).in_use, 2);
    assert_int_equal(first->count, 0);
    assert_true(magazine_capacity(first) >= depot->rounds / 2u);
    assert_true(magazine_capacity(first) < depot->rounds); /* not wasteful either: the next smaller one would not do */
    depot_give_empty(&caches, depot, first);
    depot_give_empty(&caches, depot, second);
    assert_int_equal(depot->empty.count, 2);
    assert_ptr_equal(depot_take_empty(&caches, depot), second);
    assert_int_equal(slab_stats_of(kind).in_use, 2);
    depot_give_empty(&caches, depot, second);
    ASSERT_NOTHING_LEFT();
    assert_int_equal(slab_stats_of(kind).in_use, 0);
}

static void a_magazine_holds_half_of_every_m(void **state) {
    (void)state;
    for (unsigned magazine_max = 1; magazine_max <= CACHE_ROUNDS_MAX; magazine_max++) {
        build(1, magazine_max);
        for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_MAGAZINES; cache++) {
            struct depot *depot = &caches.depots[cache];
            unsigned capacity = MAGAZINE_ROUNDS(depot->kind);
            assert_true(capacity >= depot->rounds / 2u && (capacity == MAGAZINE_ROUNDS(0) || capacity / 2 < depot->rounds / 2u));
            const size_t needed = sizeof(struct magazine) + capacity * sizeof(void *), bytes = cache_magazine_bytes[depot->kind];
            assert_in_range(bytes, needed, needed + CACHE_LINE_BYTES - 1);
            assert_true(bytes % CACHE_LINE_BYTES == 0); /* no line is two magazines', which two CPUs may have */
        }
    }
}

static void a_large_cache_may_keep_more_magazines(void **state) {
    (void)state;
    unsigned cache;
    struct depot *depot = build_depot(&cache, 1024);
    unsigned half = depot->rounds / 2u, magazines = 0, share = 100;
    share_depot(cache);
    while (stock_depot(cache)) magazines++;
    assert_int_equal(magazines, depot->full_max);
    assert_int_equal(depot->full.count, magazines);
    assert_in_range(magazines * half * 1024, 32 * KIB - half * 1024, 32 * KIB + half * 1024);
    /* A sixteenth of the objects, once that is more: known at the next tick. */
    static void *many[100 * 16 * 32];
    assert_true(share * 16 * half <= ARRAY_LENGTH(many));
    hold_from_slabs(cache, many, share * 16 * half);
    share_depot(cache);
    cache_tick(&caches);
    while (stock_depot(cache)) magazines++;
    assert_in_range(depot->full.count, share, share + share / 16 + 2);
    /* What was full above the limit of a cache that has shrunk is not taken any more. */
    slab_free_batch(&slabs, cache, many, share * 16 * half);
    held[cache] = 0;
    slab_reap(&slabs);
    cache_tick(&caches);
    assert_false(stock_depot(cache));
    ASSERT_NOTHING_LEFT();
}

/* One thread's own objects pass through the slabs sooner where they are few: half as many bytes wait; from the second thread's visit on more. */
static void a_depot_of_one_thread_keeps_less(void **state) {
    (void)state;
    unsigned cache;
    struct depot *depot = build_depot(&cache, 1024);
    unsigned half = depot->rounds / 2u, magazines = 0, share = 100;
    while (stock_depot(cache)) magazines++;
    assert_in_range(magazines * half * 1024, 16 * KIB - half * 1024, 16 * KIB + half * 1024);
    share_depot(cache);
    while (stock_depot(cache)) continue;
    assert_in_range(depot->full.count * half * 1024, 32 * KIB - half * 1024, 32 * KIB + half * 1024);
    cache_tick(&caches); /* an interval with two threads, then one without */
    assert_true(depot->shared);
    cache_tick(&caches);
    assert_false(depot->shared);
    assert_int_equal(depot->full_max, magazines);
    static void *many[100 * 16 * 32]; /* the share is the same */
    hold_from_slabs(cache, many, share * 16 * half);
    cache_tick(&caches);
    while (stock_depot(cache)) continue;
    assert_false(depot->shared);
    assert_in_range(depot->full.count, share, share + share / 16 + 4);
    slab_free_batch(&slabs, cache, many, share * 16 * half);
    held[cache] = 0;
    ASSERT_NOTHING_LEFT();
}

static void empty_magazines_are_not_hoarded(void **state) {
    (void)state;
    unsigned cache;
    struct depot *depot = build_depot(&cache, 1024);
    struct magazine *magazines[24];
    for (unsigned i = 0; i < ARRAY_LENGTH(magazines); i++) magazines[i] = depot_take_empty(&caches, depot);
    for (unsigned i = 0; i < ARRAY_LENGTH(magazines); i++) depot_give_empty(&caches, depot, magazines[i]);
    assert_int_equal(depot->empty.count, 8);
    ASSERT_NOTHING_LEFT();
}

/* ------------------------------------------------------------------ working set */

static void only_what_an_interval_left_unused_is_reaped(void **state) {
    (void)state;
    unsigned cache;
    struct depot *depot = build_depot(&cache, 64);
    unsigned half = depot->rounds / 2u;
    share_depot(cache);
    for (unsigned i = 0; i < 5; i++) assert_true(stock_depot(cache));
    cache_tick(&caches);
    assert_int_equal(depot->full.count, 5); /* they came during the interval */
    struct magazine *used[2] = {depot_take_full(&caches, depot), depot_take_full(&caches, depot)};
    for (unsigned i = 0; i < 2; i++) assert_true(depot_give_full(&caches, depot, used[i]));
    assert_true(stock_depot(cache));
    uint64_t in_use = slab_stats_of(cache).in_use;
    cache_tick(&caches); /* of the five, three were never needed */
    assert_int_equal(depot->full.count, 3);
    assert_int_equal(slab_stats_of(cache).in_use, in_use - 3 * half);
    ASSERT_SOUND();
    for (unsigned i = 0; i < 3; i++) { /* all needed, every time: nothing goes */
        struct magazine *all[3] = {depot_take_full(&caches, depot), depot_take_full(&caches, depot), depot_take_full(&caches, depot)};
        for (unsigned k = 0; k < 3; k++) assert_true(depot_give_full(&caches, depot, all[k]));
        cache_tick(&caches);
        assert_int_equal(depot->full.count, 3);
    }
    cache_tick(&caches); /* an interval of rest: all */
    assert_int_equal(depot->full.count, 0);
    assert_int_equal(slab_stats_of(cache).in_use, 0);
    ASSERT_NOTHING_LEFT();
}

static void empty_magazines_have_a_working_set_too(void **state) {
    (void)state;
    unsigned cache;
    struct depot *depot = build_depot(&cache, 256);
    struct magazine *magazines[4];
    for (unsigned i = 0; i < 4; i++) magazines[i] = depot_take_empty(&caches, depot);
    for (unsigned i = 0; i < 4; i++) depot_give_empty(&caches, depot, magazines[i]);
    cache_tick(&caches);
    assert_int_equal(depot->empty.count, 4);
    magazines[0] = depot_take_empty(&caches, depot);
    depot_give_empty(&caches, depot, magazines[0]);
    cache_tick(&caches);
    assert_int_equal(depot->empty.count, 1);
    cache_tick(&caches);
    assert_int_equal(depot->empty.count, 0);
    assert_int_equal(slab_stats_of(SLAB_CACHE_MAGAZINES + depot->kind).in_use, 0);
    ASSERT_NOTHING_LEFT();
}

static void a_reap_takes_depots_and_own_arrays_without_a_fence(void **state) {
    (void)state;
    unsigned cache, other = 0;
    struct depot *depot = build_depot(&cache, 256);
    other = cache_of(2000);
    for (unsigned cpu = 0; cpu < 2; cpu++) {
        sim_cpu_set(cpu);
        give(cache, must_take(cache));
        give(other, must_take(other));
    }
    share_depot(cache);
    for (unsigned i = 0; i < 3; i++) assert_true(stock_depot(cache));
    spend_full(cache, 1);
    unsigned elsewhere = rounds_in(1, cache), other_elsewhere = rounds_in(1, other);
    sim_cpu_set(0);
    cache_reap(&caches);
    assert_int_equal(sim_calls(SIM_FENCE), 0);
    assert_int_equal(depot->full.count + depot->empty.count, 0);
    assert_int_equal(rounds_in(0, cache), 0);
    assert_int_equal(rounds_in(0, other), 0);
    assert_int_equal(rounds_in(1, cache), elsewhere);
    assert_int_equal(slab_stats_of(cache).in_use, elsewhere);
    assert_int_equal(slab_stats_of(other).in_use, other_elsewhere);
    assert_int_equal(slabs.caches[SLAB_CACHE_MAGAZINES + depot->kind].slabs, 0); /* wholly free slabs went to the zone */
    assert_true(header_is_open(0, cache));
    ASSERT_SOUND();
    ASSERT_NOTHING_LEFT();
}

/* ------------------------------------------------------------------ m */

/* So many visits that find the depot's lock taken. */
static void contend(struct depot *depot, unsigned times) {
    sim_contend_lock(&depot->lock, times);
    for (unsigned i = 0; i < times; i++) assert_null(depot_take_full(&caches, depot));
    assert_true(platform_lock_try(&depot->lock)); /* all misses happened */
    platform_lock_release(&depot->lock);
}

static void contention_doubles_m(void **state) {
    (void)state;
    unsigned cache;
    struct depot *depot = build_depot(&cache, 64);
    stack_stop_growth();
    unsigned start = depot->rounds;
    depot->rounds = depot->rounds_start = (uint16_t)(start /= 8); /* room for three doublings and the cap */
    contend(depot, CONTENDED_MAX);
    cache_tick(&caches);
    assert_int_equal(depot->rounds, start);
    assert_int_equal(stats_of(cache).contention, CONTENDED_MAX);
    uint64_t seen = CONTENDED_MAX;
    for (unsigned expected = start * 2; expected <= depot->rounds_max; expected *= 2) {
        contend(depot, CONTENDED_MAX + 1);
        seen += CONTENDED_MAX + 1;
        assert_int_equal(depot->rounds, expected / 2); /* not before the interval is over */
        cache_tick(&caches);
        assert_int_equal(depot->rounds, expected);
        assert_int_equal(stats_of(cache).rounds, expected);
        assert_true(MAGAZINE_ROUNDS(depot->kind) >= expected / 2 && MAGAZINE_ROUNDS(depot->kind) / 2 < expected / 2);
    }
    contend(depot, 10 * CONTENDED_MAX);
    cache_tick(&caches);
    assert_int_equal(depot->rounds, depot->rounds_max);
    assert_int_equal(stats_of(cache).contention, seen + 10 * CONTENDED_MAX);
    ASSERT_NOTHING_LEFT();
}

/* Many waits are not suffered until the interval is over. */
static void much_contention_doubles_m_at_once(void **state) {
    (void)state;
    unsigned cache;
    struct depot *depot = build_depot(&cache, 64);
    stack_stop_growth();
    depot->rounds = depot->rounds_start = (uint16_t)(depot->rounds / 4);
    const unsigned start = depot->rounds;
    contend(depot, CONTENDED_NOW - 1);
    assert_int_equal(depot->rounds, start);
    contend(depot, 1);
    assert_int_equal(depot->rounds, 2 * start);
    assert_true(depot->contends);
    contend(depot, CONTENDED_NOW);
    assert_int_equal(depot->rounds, 4 * start);
    cache_tick(&caches); /* they have counted already */
    assert_int_equal(depot->rounds, 4 * start);
    ASSERT_NOTHING_LEFT();
}

static void contention_of_one_interval_does_not_count_in_the_next(void **state) {
    (void)state;
    unsigned cache;
    struct depot *depot = build_depot(&cache, 64);
    stack_stop_growth();
    unsigned start = depot->rounds;
    for (unsigned i = 0; i < 5; i++) {
        contend(depot, CONTENDED_MAX);
        cache_tick(&caches);
    }
    assert_int_equal(depot->rounds, start);
}

static void an_open_array_grows_when_it_comes_by(void **state) {
    (void)state;
    unsigned cache;
    struct depot *depot = build_depot(&cache, 64);
    unsigned m = depot->rounds, i = 0;
    take_all(cache, objects, 2 * m + 1);
    cpu_layer_drain_own(&caches);
    for (; i < m; i++) give(cache, objects[i]);
    assert_int_equal(rounds_in(0, cache), m);
    struct magazine *small = depot_take_empty(&caches, depot);
    depot_give_empty(&caches, depot, small);
    contend(depot, CONTENDED_MAX + 1);
    depot_tick(&caches, cache, false);
    assert_int_equal(depot->rounds, 2 * m);
    assert_int_equal(header_of(0, cache).limit, header_of(0, cache).bottom + m); /* only its owner changes it */
    give(cache, objects[i++]);
    assert_int_equal(header_of(0, cache).limit, header_of(0, cache).bottom + 2 * m);
    assert_int_equal(rounds_in(0, cache), m + 1); /* there is room now: nothing had to go */
    for (; i < 2 * m; i++) give(cache, objects[i]);
    assert_int_equal(depot->full.count, 0);
    give(cache, objects[i]);
    assert_int_equal(depot->full.count, 1);
    assert_int_equal(depot->full.first->count, m); /* half of the new m: the small magazine was of no use */
    assert_int_equal(depot->empty.count, 0);
    ASSERT_NOTHING_LEFT();
}

static void m_returns_when_nobody_visits(void **state) {
    (void)state;
    unsigned cache;
    struct depot *depot = build_depot(&cache, 64);
    unsigned start = depot->rounds;
    contend(depot, CONTENDED_MAX + 1);
    cache_tick(&caches);
    unsigned grown = depot->rounds;
    assert_int_equal(grown, 2 * start);
    /* A full array of the large kind, a full magazine, an empty one. */
    hold_from_slabs(cache, objects, grown + 1);
    give_all(cache, objects, grown);
    for (unsigned i = 0; i < IDLE_TICKS - 1; i++) depot_tick(&caches, cache, false);
    assert_int_equal(depot->rounds, grown);
    assert_null(depot_take_full(&caches, depot)); /* a visit: counted from here again */
    for (unsigned i = 0; i < IDLE_TICKS; i++) {
        depot_tick(&caches, cache, false);
        assert_int_equal(depot->rounds, grown);
    }
    assert_true(stock_depot(cache)); /* of the large kind */
    depot_tick(&caches, cache, false);
    for (unsigned i = 0; i < IDLE_TICKS - 1; i++) depot_tick(&caches, cache, false);
    assert_int_equal(depot->rounds, grown);
    depot_tick(&caches, cache, false);
    assert_int_equal(depot->rounds, start);
    /* More rounds than m in the array: they go by halves of m, and the array gets no larger than m again. */
    assert_int_equal(rounds_in(0, cache), grown);
    ASSERT_SOUND();
    give(cache, objects[grown]);
    ASSERT_SOUND();
    assert_true(rounds_in(0, cache) <= grown);
    take_all(cache, objects, grown);
    give_all(cache, objects, grown);
    assert_true(rounds_in(0, cache) <= start);
    assert_int_equal(header_of(0, cache).limit, header_of(0, cache).bottom + start);
    ASSERT_NOTHING_LEFT();
}

static void magazines_of_another_m_are_still_good(void **state) {
    (void)state;
    unsigned cache;
    struct depot *depot = build_depot(&cache, 64);
    unsigned m = depot->rounds;
    /* Small ones after m has grown: a miss brings what is in them. */
    assert_true(stock_depot(cache));
    depot->contended = CONTENDED_MAX + 1;
    depot_tick(&caches, cache, false);
    must_take(cache);
    assert_int_equal(rounds_in(0, cache), m / 2 - 1);
    /* A large one after m has returned: what finds no room in the array is regrouped. */
    assert_true(stock_depot(cache));
    assert_int_equal(depot->full.first->count, m);
    depot->rounds = (uint16_t)(m / 4);
    cache_drain(&caches); /* closes the array, and takes the magazine too */
    ASSERT_SOUND();
    depot->rounds = (uint16_t)(2 * m);
    assert_true(stock_depot(cache));
    depot->rounds = (uint16_t)(m / 4);
    uint64_t to_slabs = slab_stats_of(cache).frees;
    must_take(cache);
    assert_int_equal(rounds_in(0, cache), m / 4);
    assert_int_equal(slab_stats_of(cache).frees, to_slabs);
    assert_int_equal(stats_of(cache).cached, m - 1); /* regrouped by the m of now */
    for (const struct magazine *magazine = depot->full.first; magazine != NULL; magazine = magazine->next) assert_int_equal(magazine->count, m / 8);
    ASSERT_SOUND();
    assert_null(stack_check_drained());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_magazines_come_back_newest_first),
        cmocka_unit_test(empty_magazines_are_used_again),
        cmocka_unit_test(a_magazine_holds_half_of_every_m),
        cmocka_unit_test(a_large_cache_may_keep_more_magazines),
        cmocka_unit_test(a_depot_of_one_thread_keeps_less),
        cmocka_unit_test(empty_magazines_are_not_hoarded),
        cmocka_unit_test(only_what_an_interval_left_unused_is_reaped),
        cmocka_unit_test(empty_magazines_have_a_working_set_too),
        cmocka_unit_test(a_reap_takes_depots_and_own_arrays_without_a_fence),
        cmocka_unit_test(contention_doubles_m),
        cmocka_unit_test(much_contention_doubles_m_at_once),
        cmocka_unit_test(contention_of_one_interval_does_not_count_in_the_next),
        cmocka_unit_test(an_open_array_grows_when_it_comes_by),
        cmocka_unit_test(m_returns_when_nobody_visits),
        cmocka_unit_test(magazines_of_another_m_are_still_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
