/*
 * test_object_reclaim.c - reclaim functions of object caches: what they are told, that they never run within themselves, and what is counted. And a
 * life with both kinds of callbacks, through a fork and through failures of every platform call.
 */
#include "unit/cache/object_callbacks.h"

/* ------------------------------------------------------------------ reclaim */

static const struct object_need need_half = {.shift = 1, .need = 3}, need_bytes = {.bytes = 12345, .need = 2};

static void reclaim_is_told_how_much(void **state) {
    (void)state;
    begin();
    assert_false(object_cache_reclaim(cache, &need_half)); /* it has nothing */
    assert_int_equal(object_caches_reclaim(&objects, NULL, &need_half), 0);
    fill(OBJECTS);
    reclaim_gives = 100;
    assert_true(object_cache_reclaim(cache, &need_half));
    assert_int_equal(last_need, 3);
    assert_int_equal(last_wanted, cache->slabs.slabs * cache->slabs.slab_bytes / 2);
    assert_int_equal(in_table(), OBJECTS - 100);
    assert_int_equal(expect_balance().reclaimed_bytes, 100 * sizeof(struct thing));
    assert_int_equal(object_caches_reclaim(&objects, cache, &need_bytes), 0);
    reclaim_gives = 0;
    assert_int_equal(object_caches_reclaim(&objects, NULL, &need_bytes), 1);
    assert_int_equal(last_wanted, 12345);
    assert_int_equal(expect_balance().reclaimed_bytes, 100 * sizeof(struct thing));
    const struct object_need sliver = {.shift = 60, .need = 1};
    assert_true(object_cache_reclaim(cache, &sliver));
    assert_int_equal(last_wanted, cache->slabs.slab_bytes); /* a slab at least */
    end();
}

static void reclaim_inside(void) {
    if (object_cache_reclaim(cache, &need_half)) stack_fail("a reclaim function runs within itself");
    if (object_caches_reclaim(&objects, NULL, &need_half) != 0) stack_fail("a reclaim function runs within itself, by way of all");
    if (object_cache_callback(&objects, cache) == NULL) stack_fail("a reclaim function is not known to run");
    object_caches_reap(&objects);
    object_cache_consolidate(&objects, cache);
}

static void reclaim_does_not_recur(void **state) {
    (void)state;
    begin();
    fill(300);
    reclaim_gives = 200;
    in_reclaim = reclaim_inside;
    assert_true(object_cache_reclaim(cache, &need_half));
    assert_null(object_cache_callback(&objects, cache));
    assert_int_equal(in_table(), 100);
    expect_balance();
    end();
}

/* ------------------------------------------------------------------ fork */

static void fork_now(void) {
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
}
static void fork_in_move(unsigned i) {
    if (i == 0) fork_now(); /* this thread goes on in the child, where it is what it was */
}

static void a_child_goes_on(void **state) {
    (void)state;
    begin();
    fragment(OBJECTS, 8);
    in_reclaim = fork_now;
    assert_true(object_cache_reclaim(cache, &need_half));
    assert_int_equal(cache->reclaimer->running, 0);
    in_move = fork_in_move;
    assert_true(object_cache_consolidate(&objects, cache) != 0);
    assert_int_equal(objects.mover, 0);
    assert_int_equal(expect_balance().slabs.slabs, slabs_for(64));
    /* Another thread was at work with a slab, and is gone. */
    in_move = NULL;
    in_reclaim = NULL;
    end();
    begin();
    fragment(OBJECTS, 8);
    object_cache_reap(&objects, cache);
    assert_true(object_slabs_part(&cache->slabs));
    objects.mover = 77;
    cache->reclaimer->running = 78;
    fork_now();
    assert_true(objects.mover == 0 && cache->reclaimer->running == 0 && cache->slabs.apart == NULL);
    object_cache_consolidate(&objects, cache);
    assert_true(object_cache_reclaim(cache, &need_half));
    expect_balance();
    end();
}

/* Every call to the platform fails once, in a life with both functions. */
static void no_call_may_fail_badly(void **state) {
    (void)state;
    uint64_t calls = 1;
    for (uint64_t nth = 0; nth <= calls; nth++) {
        begin();
        uint64_t before = sim_failable_calls();
        sim_fail_call(nth, nth % 2 == 0 ? 1 : 3);
        for (unsigned i = 0; i < OBJECTS; i++)
            if ((table[i] = object_cache_alloc(cache)) != NULL) table[i]->value = i + 1;
        for (unsigned i = 0; i < OBJECTS; i++)
            if (i % 8 != 0) drop(i);
        object_cache_reclaim(cache, &need_half);
        object_cache_consolidate(&objects, cache);
        if (nth == 0) calls = sim_failable_calls() - before;
        sim_fail_call(0, 1);
        expect_balance();
        end();
    }
    assert_true(calls >= 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reclaim_is_told_how_much),
        cmocka_unit_test(reclaim_does_not_recur),
        cmocka_unit_test(a_child_goes_on),
        cmocka_unit_test(no_call_may_fail_badly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
