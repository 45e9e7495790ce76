/*
 * test_exchanged.c - what exchanges leave behind: nothing, once both blocks are freed. And where idle pages go when other blocks come and grow.
 */
#include "unit/page/page_support.h"

#define SMALL (4 * MIB)

/* Two blocks that have changed places. */
static void exchanged_pair(char **a, char **b, size_t bytes) {
    *a = must_block(bytes, 1), *b = must_block(bytes, 1);
    mark(*a, bytes / GRANULE_BYTES, 1), mark(*b, bytes / GRANULE_BYTES, 2);
    assert_int_equal(zone_pages_swap(&zone, *a, *b, bytes), ZONE_OK);
}

static char *whole_block(size_t bytes) {
    const struct zone_block_config config = {.bytes = bytes, .mobility = MOBILITY_MOVABLE, .whole = true};
    char *block = zone_block_create(&zone, &config, NULL);
    assert_non_null(block);
    return block;
}

static int large_zone(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.reserve_bytes = 512 * MIB;
    begin(NULL, config);
    return 0;
}

static void what_was_exchanged_goes_home_when_both_are_free(void **state) {
    (void)state;
    char *a, *b;
    exchanged_pair(&a, &b, SMALL);
    uint64_t counted = counters().mappings, cut = sim_mappings(), populated = counters().populated;
    drop_block(a);
    assert_int_equal(sim_calls(SIM_MOVE), 1);
    drop_block(b);
    assert_int_equal(sim_calls(SIM_MOVE), 2);
    assert_true(sim_mappings() < cut && counters().mappings < counted);
    assert_int_equal(zone.exchanges.count, 0);
    assert_int_equal(counters().populated, populated); /* the pages stay */
    assert_int_equal(counters().idle, 2 * SMALL / GRANULE_BYTES);
    ASSERT_SOUND();
    assert_empty();
}

/* The same whatever the order, though ranges overlap; and blocks that are large then get no pieces, so that their exchange is one move a range. */
static void a_history_leaves_no_borders_to_large_blocks(void **state) {
    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        char *a, *b, *c;
        size_t bytes = (2 + i % 4) * MIB;
        exchanged_pair(&a, &b, bytes);
        c = must_block(bytes, 1);
        mark(c, bytes / GRANULE_BYTES, 3);
        if (i % 3 == 0) {
            assert_int_equal(zone_pages_swap(&zone, a, c, bytes), ZONE_OK);
            assert_true(is_marked(a, bytes / GRANULE_BYTES, 3) && is_marked(c, bytes / GRANULE_BYTES, 2));
        }
        if (i % 2 == 0)
            drop_block(a), drop_block(b), drop_block(c);
        else
            drop_block(c), drop_block(b), drop_block(a);
        assert_int_equal(zone.exchanges.count, 0);
        if (i % 4 == 3) ASSERT_SOUND();
    }
    char *a = whole_block(40 * MIB), *b = whole_block(40 * MIB);
    assert_int_equal(sim_mappings_in(a, 40 * MIB), 1);
    assert_int_equal(sim_mappings_in(b, 40 * MIB), 1);
    mark(a, 10240, 1), mark(b, 10240, 2);
    assert_int_equal(zone_pages_swap(&zone, a, b, 40 * MIB), ZONE_OK);
    assert_true(is_marked(a, 10240, 2) && is_marked(b, 10240, 1));
    assert_int_equal(sim_mappings_in(a, 40 * MIB), 1);
    assert_int_equal(sim_mappings_in(b, 40 * MIB), 1);
    ASSERT_SOUND();
    drop_block(a), drop_block(b);
    assert_empty();
}

static void a_program_that_exchanges_back_pays_nothing_more(void **state) {
    (void)state;
    char *a, *b;
    exchanged_pair(&a, &b, SMALL);
    assert_int_equal(zone_pages_swap(&zone, b, a, SMALL), ZONE_OK);
    assert_int_equal(zone.exchanges.count, 0);
    drop_block(a), drop_block(b);
    assert_int_equal(sim_calls(SIM_MOVE), 2);
    ASSERT_SOUND();
    assert_empty();
}

static void what_is_in_use_again_stays(void **state) {
    (void)state;
    char *a, *b;
    exchanged_pair(&a, &b, SMALL);
    drop_block(a);
    char *c = must_block(SMALL, 1);
    assert_ptr_equal(c, a); /* or the test is about nothing */
    mark(c, SMALL / GRANULE_BYTES, 7);
    drop_block(b);
    assert_int_equal(sim_calls(SIM_MOVE), 1);
    assert_true(is_marked(c, SMALL / GRANULE_BYTES, 7));
    ASSERT_SOUND();
    drop_block(c);
    assert_int_equal(sim_calls(SIM_MOVE), 2);
    ASSERT_SOUND();
    assert_empty();
}

static void what_was_given_back_meanwhile_is_left_alone(void **state) {
    (void)state;
    char *a, *b;
    exchanged_pair(&a, &b, SMALL);
    drop_block(a);
    assert_true(zone_release(&zone, 0) != 0);
    assert_int_equal(zone.exchanges.count, 0); /* mapped anew */
    drop_block(b);
    assert_int_equal(sim_calls(SIM_MOVE), 1);
    ASSERT_SOUND();
    assert_empty();
}

static void one_that_can_not_be_taken_back_is_forgotten(void **state) {
    (void)state;
    char *a, *b;
    exchanged_pair(&a, &b, SMALL);
    sim_fail_only(UINT64_C(1) << SIM_MOVE);
    sim_fail_call(1, SIM_FOREVER);
    drop_block(a), drop_block(b);
    assert_int_equal(sim_failures(), 1);
    sim_fail_call(0, 0);
    assert_int_equal(zone.exchanges.count, 0);
    assert_int_equal(counters().idle, 2 * SMALL / GRANULE_BYTES);
    ASSERT_SOUND();
    assert_empty();
}

static void more_than_are_noted_do_no_harm(void **state) {
    (void)state;
    enum { PAIRS = EXCHANGES_MAX + 3 };
    char *a[PAIRS], *b[PAIRS];
    for (unsigned i = 0; i < PAIRS; i++) exchanged_pair(&a[i], &b[i], SMALL);
    assert_int_equal(zone.exchanges.count, EXCHANGES_MAX);
    for (unsigned i = 0; i < PAIRS; i++) {
        assert_true(is_marked(a[i], SMALL / GRANULE_BYTES, 2) && is_marked(b[i], SMALL / GRANULE_BYTES, 1));
        drop_block(b[i]), drop_block(a[i]);
        if (i % 8 == 0) ASSERT_SOUND();
    }
    assert_int_equal(zone.exchanges.count, 0);
    ASSERT_SOUND();
    assert_empty();
}

/* Pages that were given back and came again hold zeros; those that come home do not, and must not be taken for zeros. */
static void what_comes_home_is_not_taken_for_zeros(void **state) {
    (void)state;
    enum { GRANULES = 112, WINDOW = 64 };
    struct zone_config config = plain_config();
    config.populate_granules = WINDOW;
    begin(NULL, config);
    char *heap = must_block(36 * MIB, 1); /* large enough for windows of that size */
    char *a = must_block(GRANULES * GRANULE_BYTES, 1), *rest = must_block(200 * GRANULE_BYTES, 1);
    struct zone_run full = must_run(200, 1, MOBILITY_MOVABLE);
    char *b = must_block(GRANULES * GRANULE_BYTES, 1);
    assert_true(number_of(a) == number_of(rest) && number_of(a) == number_of(full.address) && number_of(a) != number_of(b));
    mark(a, GRANULES, 1), mark(b, GRANULES, 2);
    assert_int_equal(zone_pages_swap(&zone, a, b, GRANULES * GRANULE_BYTES), ZONE_OK);
    drop_block(a);
    assert_true(zone_release(&zone, 0) != 0);
    assert_int_equal(sim_populated_pages(a, GRANULES * GRANULE_BYTES), 0);
    assert_int_equal(zone.exchanges.count, 1); /* of a part of a superpage it is known still */
    drop_block(rest);
    drop_run(full);
    struct zone_run runs[4]; /* the first on what is idle; the others in the part, which comes again a window at a time */
    for (unsigned i = 0; i < 4; i++) runs[i] = must_run((const unsigned[]){400, 8, 56, 8}[i], 1, MOBILITY_UNMOVABLE);
    for (unsigned i = 0; i < 4; i++) drop_run(runs[i]);
    assert_int_equal(sim_populated_pages(a, GRANULES * GRANULE_BYTES), GRANULES);
    drop_block(b);
    assert_int_equal(sim_calls(SIM_MOVE), 2);
    assert_int_equal(zone.exchanges.count, 0);
    ASSERT_SOUND();
    drop_block(heap);
    assert_empty();
}

/* ------------------------------------------------------------------ where idle pages go */

/* Growth takes pages along, in rows, in place of giving them back for fresh ones. */
static void a_block_that_grows_gets_idle_superpages(void **state) {
    (void)state;
    char *idle = must_block(6 * MIB, 1), *wall = must_block(2 * MIB, 1), *block = must_block(2 * MIB, 1);
    mark(idle, 1536, 1), mark(wall, 512, 2), mark(block, 512, 3);
    drop_block(idle);
    uint64_t populated = counters().populated, moves = sim_calls(SIM_MOVE);
    char *grown = zone_block_resize(&zone, block, 8 * MIB, false);
    assert_ptr_equal(grown, block);
    assert_int_equal(sim_calls(SIM_MOVE), moves + 1);
    assert_int_equal(counters().populated, populated);
    assert_int_equal(counters().idle, 0);
    assert_int_equal(sim_populated_pages(block, 8 * MIB), 2048);
    assert_true(is_marked(block, 512, 3) && is_marked(wall, 512, 2));
    ASSERT_SOUND();
    drop_block(block), drop_block(wall);
    assert_empty();
}

static void a_run_that_grows_too(void **state) {
    (void)state;
    char *idle = must_block(2 * MIB, 1), *block = must_block(MIB / 2, 1);
    mark(idle, 512, 1), mark(block, 128, 3);
    drop_block(idle);
    uint64_t populated = counters().populated;
    assert_ptr_equal(zone_block_resize(&zone, block, MIB, false), block);
    assert_int_equal(counters().populated, populated);
    assert_true(is_marked(block, 128, 3));
    ASSERT_SOUND();
    drop_block(block);
    assert_empty();
}

/* A few idle pages are no reason for a large block to have pieces; half of it is. */
static void a_large_block_has_few_pieces(void **state) {
    (void)state;
    for (unsigned much = 0; much < 2; much++) {
        large_zone(state);
        char *idle = must_block(much ? 24 * MIB : 6 * MIB, 1), *wall = must_block(2 * MIB, 1);
        mark(wall, 512, 2);
        drop_block(idle);
        uint64_t moves = sim_calls(SIM_MOVE);
        char *block = whole_block(40 * MIB);
        assert_true(sim_calls(SIM_MOVE) == moves + much);
        assert_true(is_marked(wall, 512, 2));
        ASSERT_SOUND();
        drop_block(block), drop_block(wall);
        assert_empty();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_was_exchanged_goes_home_when_both_are_free, plain_zone),
        cmocka_unit_test_setup(a_history_leaves_no_borders_to_large_blocks, large_zone),
        cmocka_unit_test_setup(a_program_that_exchanges_back_pays_nothing_more, plain_zone),
        cmocka_unit_test_setup(what_is_in_use_again_stays, plain_zone),
        cmocka_unit_test_setup(what_was_given_back_meanwhile_is_left_alone, plain_zone),
        cmocka_unit_test_setup(one_that_can_not_be_taken_back_is_forgotten, plain_zone),
        cmocka_unit_test_setup(more_than_are_noted_do_no_harm, large_zone),
        cmocka_unit_test(what_comes_home_is_not_taken_for_zeros),
        cmocka_unit_test_setup(a_block_that_grows_gets_idle_superpages, plain_zone),
        cmocka_unit_test_setup(a_run_that_grows_too, plain_zone),
        cmocka_unit_test(a_large_block_has_few_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
