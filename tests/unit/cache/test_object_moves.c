/*
 * test_object_moves.c - move functions of object caches: when they are called, with what, never with a lock and never within themselves; what every
 * answer does to the two objects and to their slab, on demand and by time; and that constructions and destructions balance through all of it.
 */
#include "unit/cache/object_callbacks.h"

/* ------------------------------------------------------------------ moves */

static void sparse_slabs_are_emptied(void **state) {
    (void)state;
    for (unsigned no_magazines = 0; no_magazines < 2; no_magazines++) {
        begin_with(NULL, UINT64_MAX, no_magazines != 0);
        fragment(OBJECTS, 8);
        uint64_t before = cache->slabs.slabs;
        assert_true(before > 2 * slabs_for(64));
        uint64_t freed = object_cache_consolidate(&objects, cache);
        struct object_cache_stats stats = expect_balance();
        assert_int_equal(in_table(), 64);
        assert_int_equal(stats.slabs.slabs, slabs_for(64)); /* no more than must be */
        assert_int_equal(freed, (before - stats.slabs.slabs) * cache->slabs.slab_bytes);
        assert_int_equal(stats.moves[OBJECT_MOVE_YES], moves);
        assert_true(moves <= 64 && stats.slabs_emptied == before - stats.slabs.slabs);
        moves = 0;
        memset(cache->mover->answers, 0, sizeof cache->mover->answers);
        assert_int_equal(object_cache_consolidate(&objects, cache), 0); /* and no call too many */
        assert_int_equal(moves, 0);
        end();
    }
}

static void a_cache_that_can_not_move_is_only_reaped(void **state) {
    (void)state;
    begin();
    const struct object_cache_config config = {.name = "still", .bytes = 100, .align = 16, .source = &slab_source_zone, .source_context = &zone};
    struct object_cache *still;
    assert_int_equal(object_cache_create(&objects, &config, &still), OBJECT_CACHE_OK);
    void *object = object_cache_alloc(still);
    assert_int_equal(object_cache_consolidate(&objects, still), 0);
    assert_int_equal(object_cache_set_move(still, any_function, call_move), OBJECT_CACHE_TOO_LATE);
    object_cache_free(still, object);
    assert_int_equal(object_cache_destroy(&objects, still), 0);
    assert_int_equal(object_cache_set_move(cache, any_function, call_move), OBJECT_CACHE_TOO_LATE); /* a second time */
    assert_false(object_caches_consolidate_tick(&objects));
    end();
}

/* Slabs whose objects say no stay, with no further question, until something of them is freed. */
static void no_is_respected(void **state) {
    (void)state;
    begin();
    fragment(OBJECTS, 8);
    for (unsigned i = 0; i < OBJECTS; i++) answers[i] = OBJECT_MOVE_NO;
    assert_int_equal(object_cache_consolidate(&objects, cache), (cache->slabs.slabs_released) * cache->slabs.slab_bytes);
    unsigned asked = moves;
    assert_int_equal(asked, cache->slabs.slabs); /* each slab once */
    assert_int_equal(expect_balance().moves[OBJECT_MOVE_NO], asked);
    assert_int_equal(object_cache_consolidate(&objects, cache), 0);
    assert_int_equal(moves, asked);
    drop(0);
    object_cache_consolidate(&objects, cache);
    assert_in_range(moves, asked + 1, asked + 2);
    for (unsigned i = 0; i < OBJECTS; i++) answers[i] = OBJECT_MOVE_YES;
    drop(8);
    assert_true(object_cache_consolidate(&objects, cache) != 0); /* that slab, at least */
    expect_balance();
    end();
}

static void later_is_asked_again(void **state) {
    (void)state;
    begin();
    fragment(OBJECTS, 8);
    for (unsigned i = 0; i < OBJECTS; i++) answers[i] = OBJECT_MOVE_LATER;
    object_cache_consolidate(&objects, cache);
    assert_int_equal(moves, cache->slabs.slabs);
    assert_int_equal(expect_balance().moves[OBJECT_MOVE_LATER], moves);
    for (unsigned i = 0; i < OBJECTS; i++) answers[i] = OBJECT_MOVE_YES;
    assert_true(object_cache_consolidate(&objects, cache) != 0);
    assert_int_equal(expect_balance().slabs.slabs, slabs_for(64));
    end();
}

static void what_is_not_needed_goes(void **state) {
    (void)state;
    begin();
    fragment(OBJECTS, 8);
    for (unsigned i = 0; i < OBJECTS; i++) answers[i] = i % 16 == 0 ? OBJECT_MOVE_DONT_NEED : OBJECT_MOVE_YES;
    assert_true(object_cache_consolidate(&objects, cache) != 0);
    struct object_cache_stats stats = expect_balance();
    assert_true(stats.moves[OBJECT_MOVE_DONT_NEED] != 0);
    assert_int_equal(in_table(), 64 - stats.moves[OBJECT_MOVE_DONT_NEED]);
    end();
}

/* An object that the program has got and not yet linked to anything is not its own yet, and stays. One in an array is looked for there. */
static void what_is_not_known_stays(void **state) {
    (void)state;
    begin();
    fragment(OBJECTS, 8);
    struct thing *unlinked = table[0];
    table[0] = NULL;
    object_cache_consolidate(&objects, cache);
    assert_int_equal(unlinked->made, MADE);
    assert_int_equal(unlinked->value, 1);
    table[0] = unlinked;
    assert_true(expect_balance().moves[OBJECT_MOVE_DONT_KNOW] != 0);
    object_cache_consolidate(&objects, cache);
    assert_int_equal(expect_balance().slabs.slabs, slabs_for(64));
    end();
}

/* Each call has a new object as the constructor leaves it, though the one before has written to its own and not taken it. */
static void each_call_has_a_constructed_object(void **state) {
    (void)state;
    static const enum object_move_answer others[] = {OBJECT_MOVE_DONT_NEED, OBJECT_MOVE_DONT_KNOW, OBJECT_MOVE_LATER, OBJECT_MOVE_NO};
    for (unsigned o = 0; o < ARRAY_LENGTH(others); o++) {
        begin();
        fragment(OBJECTS, 4);
        object_cache_reap(&objects, cache);
        for (unsigned i = 0; i < OBJECTS; i++) answers[i] = i % 8 == 0 ? others[o] : OBJECT_MOVE_YES;
        uint64_t before = made;
        object_cache_consolidate(&objects, cache);
        struct object_cache_stats stats = expect_balance();
        assert_true(moves > 1 && stats.moves[others[o]] != 0);
        assert_in_range(made - before, moves, moves + stats.slabs_emptied + stats.slabs.slabs); /* one more for a slab that says no more */
        end();
    }
}

/* What the program frees while it is asked, from this CPU or another: the object itself, or its neighbours. */
static unsigned freed_in_move;
static void free_neighbours(unsigned i) {
    unsigned cpu = sim_cpu();
    if (freed_in_move++ % 3 != 0) return;
    sim_cpu_set(1);
    for (unsigned k = i + 8; k < i + 25 && k < OBJECTS; k += 8) drop(k);
    object_cache_free(cache, object_cache_alloc(cache)); /* and it may allocate */
    sim_cpu_set(cpu);
}
static void free_all_others(unsigned i) {
    for (unsigned k = 0; k < OBJECTS; k++)
        if (k != i) drop(k);
    object_cache_reap(&objects, cache); /* to the slabs, the one that is apart with them */
}
static void free_this(unsigned i) {
    drop(i); /* and the answer will be that it isn't known */
    answers[i] = OBJECT_MOVE_DONT_KNOW;
}

static void the_program_frees_meanwhile(void **state) {
    (void)state;
    void (*const meddlers[])(unsigned) = {free_neighbours, free_all_others, free_this};
    for (unsigned m = 0; m < ARRAY_LENGTH(meddlers); m++) {
        begin();
        fragment(OBJECTS, 8);
        in_move = meddlers[m];
        for (unsigned i = 0; i < OBJECTS && meddlers[m] == free_this; i++) answers[i] = OBJECT_MOVE_DONT_KNOW;
        assert_true(object_cache_consolidate(&objects, cache) != 0);
        in_move = NULL;
        for (unsigned i = 0; i < OBJECTS; i++) answers[i] = OBJECT_MOVE_YES;
        object_cache_consolidate(&objects, cache);
        assert_int_equal(expect_balance().slabs.slabs, slabs_for(in_table()));
        end();
    }
}

static void free_all(void) {
    in_make = NULL;
    for (unsigned k = 0; k < OBJECTS; k++) drop(k);
}

/* While the first new object is constructed all others are freed, the one among them that it was for: nobody is asked about what is no object now. */
static void what_is_freed_before_it_is_asked_for_is_not(void **state) {
    (void)state;
    begin_with(NULL, UINT64_MAX, true);
    fragment(OBJECTS, 8);
    in_make = free_all;
    assert_true(object_cache_consolidate(&objects, cache) != 0);
    assert_int_equal(moves, 0);
    assert_int_equal(expect_balance().slabs.in_use, 0);
    end();
}

static void consolidate_again(unsigned i) {
    (void)i;
    if (object_cache_consolidate(&objects, cache) != 0) stack_fail("a consolidation within a move");
    if (object_caches_consolidate_tick(&objects) != true) stack_fail("a tick within a move forgets the caches");
    if (object_cache_callback(&objects, cache) == NULL) stack_fail("a move function is not known to run");
    object_caches_reap(&objects);
}

static void a_move_within_a_move_does_nothing(void **state) {
    (void)state;
    begin();
    fragment(OBJECTS, 8);
    assert_null(object_cache_callback(&objects, cache));
    in_move = consolidate_again;
    assert_true(object_cache_consolidate(&objects, cache) != 0);
    assert_null(object_cache_callback(&objects, cache));
    expect_balance();
    end();
}

/* No constructor, no move; what was put apart goes back. */
static void a_refused_construction_ends_the_pass(void **state) {
    (void)state;
    begin();
    fragment(OBJECTS, 8);
    object_cache_reap(&objects, cache);
    uint64_t before = cache->slabs.slabs;
    refuse_from = made;
    assert_int_equal(object_cache_consolidate(&objects, cache), 0);
    assert_int_equal(moves, 0);
    refuse_from = made + 1; /* one, and then none */
    object_cache_consolidate(&objects, cache);
    assert_int_equal(moves, 1);
    refuse_from = 0;
    assert_true(object_cache_consolidate(&objects, cache) != 0);
    assert_true(expect_balance().slabs.slabs < before);
    end();
}

/* ------------------------------------------------------------------ by time */

static void ticks_move_a_bounded_number(void **state) {
    (void)state;
    begin();
    fill(OBJECTS);
    assert_false(object_caches_consolidate_tick(&objects)); /* nothing to win */
    assert_int_equal(moves, 0);
    for (unsigned i = 0; i < OBJECTS; i++)
        if (i % 8 == 7) drop(i); /* 448 are left: to empty all that can be, less than 448 move */
    object_cache_reap(&objects, cache);
    unsigned ticks = 0;
    while (object_caches_consolidate_tick(&objects)) {
        assert_true(moves <= 256 * ++ticks);
        assert_true(ticks < 10);
    }
    struct object_cache_stats stats = expect_balance();
    assert_true(stats.slabs_emptied != 0 && stats.slabs.slabs * 7 <= slabs_for(448) * 8);
    end();
}

/* Where nothing is won the pauses grow, and in the end nothing is asked any more before something else happens. */
static void ticks_pause_where_nothing_is_won(void **state) {
    (void)state;
    begin();
    fragment(OBJECTS, 8);
    for (unsigned i = 0; i < OBJECTS; i++) answers[i] = OBJECT_MOVE_LATER;
    object_cache_reap(&objects, cache); /* what waits in arrays can't be judged */
    unsigned rounds = 0, ticks = 0, seen = 0;
    while (object_caches_consolidate_tick(&objects)) {
        rounds += moves != seen;
        seen = moves;
        assert_true(++ticks < 1000);
    }
    assert_int_equal(rounds, 6); /* after 0, 1, 2, 4, 8, 16 and 32 ticks of rest, the last of which returned false */
    assert_in_range(ticks, 63, 70);
    for (unsigned i = 0; i < OBJECTS; i++) answers[i] = OBJECT_MOVE_YES;
    for (unsigned tick = 0; tick < 66; tick++) object_caches_consolidate_tick(&objects);
    assert_int_equal(expect_balance().slabs.slabs, slabs_for(64));
    end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sparse_slabs_are_emptied),
        cmocka_unit_test(a_cache_that_can_not_move_is_only_reaped),
        cmocka_unit_test(no_is_respected),
        cmocka_unit_test(later_is_asked_again),
        cmocka_unit_test(what_is_not_needed_goes),
        cmocka_unit_test(what_is_not_known_stays),
        cmocka_unit_test(each_call_has_a_constructed_object),
        cmocka_unit_test(the_program_frees_meanwhile),
        cmocka_unit_test(what_is_freed_before_it_is_asked_for_is_not),
        cmocka_unit_test(a_move_within_a_move_does_nothing),
        cmocka_unit_test(a_refused_construction_ends_the_pass),
        cmocka_unit_test(ticks_move_a_bounded_number),
        cmocka_unit_test(ticks_pause_where_nothing_is_won),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
