/*
 * object_callbacks.h - a program with an object cache whose objects may be moved and asked for, for the tests of both: test_object_moves.c,
 * test_object_reclaim.c. It knows its objects by a table of addresses, as one does that uses handles, and looks at everything that it is told.
 */
#ifndef STRATA_TESTS_UNIT_CACHE_OBJECT_CALLBACKS_H
#define STRATA_TESTS_UNIT_CACHE_OBJECT_CALLBACKS_H

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
static void (*in_make)(void);

static inline int make_thing(void *object, void *argument) {
    struct thing *thing = object;
    (void)argument;
    if (sim_locks_held() != 0) stack_fail("a lock is held while a constructor runs");
    if (refuse_from != 0 && made >= refuse_from) return 1;
    *thing = (struct thing){.made = MADE};
    made++;
    if (in_make != NULL) in_make();
    return 0;
}
static inline void unmake_thing(void *object, void *argument) {
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

static inline void drop(unsigned i) {
    struct thing *thing = table[i];
    if (thing == NULL) return;
    if (thing->value != i + 1) stack_fail("contents were lost");
    table[i] = NULL;
    thing->value = 0;
    object_cache_free(cache, thing);
}

static inline void call_reclaim(object_function *reclaim, void *argument, uint64_t wanted_bytes, unsigned need) {
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

static inline unsigned call_move(object_function *move, void *old, void *fresh, uint64_t bytes, void *argument) {
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
    } else {
        to->value = from->value + 1; /* it began to copy before it found out */
    }
    if (answer == OBJECT_MOVE_DONT_NEED) {
        from->value = 0;
        table[i] = NULL;
    }
    moving--;
    return answer;
}

static inline void any_function(void) {}

/* ------------------------------------------------------------------ what the tests share */

static inline void begin_with(const struct sim_config *sim, uint64_t limit_bytes, bool no_magazines) {
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
    in_make = NULL;
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
static inline void begin(void) { begin_with(NULL, UINT64_MAX, false); }

static inline void fill(unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        table[i] = object_cache_alloc(cache);
        assert_non_null(table[i]);
        assert_int_equal(table[i]->made, MADE);
        table[i]->value = i + 1;
    }
}

/* Of `count` objects, one in `each` stays. */
static inline void fragment(unsigned count, unsigned each) {
    fill(count);
    for (unsigned i = 0; i < count; i++)
        if (i % each != 0) drop(i);
}

static inline unsigned in_table(void) {
    unsigned count = 0;
    for (unsigned i = 0; i < OBJECTS; i++) {
        if (table[i] == NULL) continue;
        count++;
        if (table[i]->made != MADE || table[i]->value != i + 1) fail_msg("object %u is not what it was", i);
        for (unsigned k = 0; k < i; k++) assert_ptr_not_equal(table[i], table[k]);
    }
    return count;
}

static inline struct object_cache_stats expect_balance(void) {
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

static inline void end(void) {
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
static inline uint64_t slabs_for(unsigned count) { return (count + cache->slabs.capacity - 1) / cache->slabs.capacity; }

#endif
