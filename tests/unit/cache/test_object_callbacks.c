/*
 * test_object_callbacks.c - reclaim and move functions of object caches: when they are called, with what, never with a lock and never within
 * themselves; what every answer does to the two objects and to their slab; and that constructions and destructions balance through all of it.
 *
 * The program of these tests knows its objects by a table of addresses, as one does that uses handles.
 */
#include "cache/object_cache.h"
#include "unit/cache/cache_test.h"

#define MADE UINT64_C(0x636f6e7374727563)
#define OBJECTS 512

static struct object_caches objects;
static struct object_cache *cache;

struct thing {
    uint64_t made;
    uint64_t value; /* what the program keeps in it */
    char filler[112];
};

static struct thing *table[OBJECTS]; /* the program's; NULL: none */
static uint64_t made, unmade, refuse_from;

static int make_thing(void *object, void *argument) {
    struct thing *thing = object;
    (void)argument;
    if (sim_locks_held() != 0) stack_fail("a lock is held while a constructor runs");
    if (refuse_from != 0 && made >= refuse_from) return 1;
    *thing = (struct thing){.made = MADE};
    made++;
    return 0;
}
static void unmake_thing(void *object, void *argument) {
    struct thing *thing = object;
    (void)argument;
    if (thing->made != MADE) stack_fail("what was destructed was not constructed");
    for (unsigned i = 0; i < OBJECTS; i++)
        if (table[i] == thing) stack_fail("an object of the program was destructed");
    thing->made = 0;
    unmade++;
}

/* ------------------------------------------------------------------ the functions that are called back */

static unsigned reclaims, reclaim_gives, last_need;
static uint64_t last_wanted;
static void (*in_reclaim)(void);

static void drop(unsigned i) {
    struct thing *thing = table[i];
    if (thing == NULL) return;
    if (thing->value != i + 1) stack_fail("contents were lost");
    table[i] = NULL;
    thing->value = 0;
    object_cache_free(cache, thing);
}

static void call_reclaim(object_function *reclaim, void *argument, uint64_t wanted_bytes, unsigned need) {
    (void)reclaim, (void)argument;
    if (sim_locks_held() != 0) stack_fail("a lock is held while reclaim runs");
    reclaims++;
    last_wanted = wanted_bytes;
    last_need = need;
    for (unsigned i = 0, given = 0; i < OBJECTS && given < reclaim_gives; i++)
        if (table[i] != NULL) {
            drop(i);
            given++;
        }
    if (in_reclaim != NULL) in_reclaim();
}

static unsigned moves, moving;
static enum object_move_answer answers[OBJECTS]; /* to the object with this value - 1, where the program has it */
static void (*in_move)(unsigned i);

static unsigned call_move(object_function *move, void *old, void *fresh, uint64_t bytes, void *argument) {
    struct thing *from = old, *to = fresh;
    (void)move, (void)argument;
    if (moving++ != 0) stack_fail("a move within a move");
    moves++;
    if (sim_locks_held() != 0) stack_fail("a lock is held while move runs");
    if (bytes != sizeof(struct thing) || to->made != MADE || to->value != 0) stack_fail("the new object is not as constructed");
    unsigned i = 0;
    while (i < OBJECTS && table[i] != from) i++;
    enum object_move_answer answer = i == OBJECTS ? OBJECT_MOVE_DONT_KNOW : answers[i];
    if (i < OBJECTS && in_move != NULL) in_move(i);
    if (answer == OBJECT_MOVE_YES) {
        to->value = from->value;
        from->value = 0;
        table[i] = to;
    } else if (answer == OBJECT_MOVE_DONT_NEED) {
        from->value = 0;
        table[i] = NULL;
    }
    moving--;
    return answer;
}

static void any_function(void) {}

/* ------------------------------------------------------------------ what the tests share */

static void begin_with(const struct sim_config *sim, uint64_t limit_bytes, bool no_magazines) {
    if (sim != NULL)
        assert_true(stack_build(sim, 256, limit_bytes));
    else
        build(2, 256);
    object_caches_init(&objects, &slabs, &caches, 256);
    memset(table, 0, sizeof table);
    memset(answers, 0, sizeof answers);
    made = unmade = refuse_from = 0;
    reclaims = reclaim_gives = moves = moving = 0;
    in_reclaim = NULL;
    in_move = NULL;
    const struct object_cache_config config = {.name = "things",
                                               .bytes = sizeof(struct thing),
                                               .align = 16,
                                               .source = &slab_source_zone,
                                               .source_context = &zone,
                                               .construct = make_thing,
                                               .destruct = unmake_thing,
                                               .reclaim = any_function,
                                               .call_reclaim = call_reclaim,
                                               .no_magazines = no_magazines,
                                               .free_function = "free_thing"};
    assert_int_equal(object_cache_create(&objects, &config, &cache), OBJECT_CACHE_OK);
    assert_int_equal(object_cache_set_move(cache, any_function, call_move), OBJECT_CACHE_OK);
}
static void begin(void) { begin_with(NULL, UINT64_MAX, false); }

static void fill(unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        table[i] = object_cache_alloc(&objects, cache);
        assert_non_null(table[i]);
        assert_int_equal(table[i]->made, MADE);
        table[i]->value = i + 1;
    }
}

/* Of `count` objects, one in `each` stays. */
static void fragment(unsigned count, unsigned each) {
    fill(count);
    for (unsigned i = 0; i < count; i++)
        if (i % each != 0) drop(i);
}

static unsigned in_table(void) {
    unsigned count = 0;
    for (unsigned i = 0; i < OBJECTS; i++) {
        if (table[i] == NULL) continue;
        count++;
        if (table[i]->made != MADE || table[i]->value != i + 1) fail_msg("object %u is not what it was", i);
        for (unsigned k = 0; k < i; k++) assert_ptr_not_equal(table[i], table[k]);
    }
    return count;
}

static struct object_cache_stats expect_balance(void) {
    struct object_cache_stats stats;
    const char *wrong = object_caches_check(&objects);
    if (wrong == NULL) wrong = stack_wrong;
    if (wrong != NULL) fail_msg("%s", wrong);
    object_cache_stats_get(cache, &stats);
    assert_int_equal(stats.slabs.in_use, stats.cache.cached + in_table());
    assert_int_equal(made - unmade, stats.slabs.in_use);
    assert_true(stats.constructed == made && stats.destructed == unmade);
    uint64_t answered = 0;
    for (unsigned i = 0; i < OBJECT_MOVE_ANSWERS; i++) answered += stats.moves[i];
    assert_int_equal(answered, moves);
    assert_int_equal(stats.reclaims, reclaims);
    assert_int_equal(sim_locks_held(), 0);
    return stats;
}

static void end(void) {
    for (unsigned i = 0; i < OBJECTS; i++) drop(i);
    expect_balance();
    assert_int_equal(object_cache_destroy(&objects, cache), 0);
    assert_int_equal(made, unmade);
    cache_drain(&caches);
    struct zone_counters counters;
    zone_counters_get(&zone, &counters);
    assert_int_equal(counters.allocated, 0);
    ASSERT_NOTHING_LEFT();
}

/* The fewest slabs that hold so many. */
static uint64_t slabs_for(unsigned count) { return (count + cache->slabs.capacity - 1) / cache->slabs.capacity; }

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
    void *object = object_cache_alloc(&objects, still);
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

/* What the program frees while it is asked, from this CPU or another: the object itself, or its neighbours. */
static unsigned freed_in_move;
static void free_neighbours(unsigned i) {
    unsigned cpu = sim_cpu();
    if (freed_in_move++ % 3 != 0) return;
    sim_cpu_set(1);
    for (unsigned k = i + 8; k < i + 25 && k < OBJECTS; k += 8) drop(k);
    object_cache_free(cache, object_cache_alloc(&objects, cache)); /* and it may allocate */
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
            if ((table[i] = object_cache_alloc(&objects, cache)) != NULL) table[i]->value = i + 1;
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
        cmocka_unit_test(sparse_slabs_are_emptied),
        cmocka_unit_test(a_cache_that_can_not_move_is_only_reaped),
        cmocka_unit_test(no_is_respected),
        cmocka_unit_test(later_is_asked_again),
        cmocka_unit_test(what_is_not_needed_goes),
        cmocka_unit_test(what_is_not_known_stays),
        cmocka_unit_test(the_program_frees_meanwhile),
        cmocka_unit_test(a_move_within_a_move_does_nothing),
        cmocka_unit_test(a_refused_construction_ends_the_pass),
        cmocka_unit_test(ticks_move_a_bounded_number),
        cmocka_unit_test(ticks_pause_where_nothing_is_won),
        cmocka_unit_test(reclaim_is_told_how_much),
        cmocka_unit_test(reclaim_does_not_recur),
        cmocka_unit_test(a_child_goes_on),
        cmocka_unit_test(no_call_may_fail_badly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
