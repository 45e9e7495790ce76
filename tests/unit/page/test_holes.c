/*
 * test_holes.c - what blocks got and nobody touched: it does not count as idle once they are freed, few looks tell, and what is learned from it
 * decides whether later blocks get pages from elsewhere, and huge ones.
 */
#include "unit/page/page_support.h"

#define LARGE_GRANULES ((size_t)16 * MIB / GRANULE_BYTES)
#define PARTS 8 /* of which one page each is looked at first */

/* must_block reads what is said to be zeros, which is a use, too. */
static char *fresh_block(size_t bytes) {
    char *block = zone_block_alloc(&zone, bytes, 1, NULL);
    assert_non_null(block);
    return block;
}

static void touch(char *block, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) block[i << GRANULE_SHIFT] = 1;
}

/* A heap that is worth a look, and a superpage of runs that stays. */
static char *large, *anchor;
static void begin_large_heap(void) {
    large = fresh_block(LARGE_GRANULES * GRANULE_BYTES);
    anchor = fresh_block(GRANULE_BYTES);
}
static void end_large_heap(void) {
    touch(large, 0, LARGE_GRANULES);
    drop_block(large), drop_block(anchor);
    assert_empty();
}

/* Granules [from, to) are touched, and the block freed. Returns how many are idle then. */
static uint64_t use_and_drop(char *block, size_t from, size_t to) {
    touch(block, from, to);
    drop_block(block);
    uint64_t idle = counters().idle;
    ASSERT_SOUND();
    return idle;
}

static void a_block_that_was_not_used_goes_back(void **state) {
    (void)state;
    char *block = fresh_block(LARGE_GRANULES * GRANULE_BYTES);
    assert_int_equal(use_and_drop(block, 0, 3), 0);
    assert_int_equal(sim_populated_pages(block, LARGE_GRANULES * GRANULE_BYTES), 0);
    bool zeroed;
    assert_ptr_equal(zone_block_alloc(&zone, LARGE_GRANULES * GRANULE_BYTES, 1, &zeroed), block);
    assert_true(zeroed);
    drop_block(block);
    assert_empty();
}

static void a_block_that_was_used_stays(void **state) {
    (void)state;
    char *block = fresh_block(LARGE_GRANULES * GRANULE_BYTES);
    uint64_t looks = sim_calls(SIM_PRESENCE);
    assert_int_equal(use_and_drop(block, 0, LARGE_GRANULES), LARGE_GRANULES);
    assert_int_equal(sim_calls(SIM_PRESENCE) - looks, PARTS);
    assert_empty();
}

static void of_a_block_that_was_used_in_part_the_part_stays(void **state) {
    (void)state;
    char *block = fresh_block(LARGE_GRANULES * GRANULE_BYTES);
    size_t half = LARGE_GRANULES / 2 + 7;
    assert_int_equal(use_and_drop(block, 0, half), half);
    assert_int_equal(sim_populated_pages(block, LARGE_GRANULES * GRANULE_BYTES), half);
    bool zeroed;
    assert_ptr_equal(zone_block_alloc(&zone, LARGE_GRANULES * GRANULE_BYTES, 1, &zeroed), block);
    assert_false(zeroed); /* what is absent may be in swap, too */
    drop_block(block);
    assert_empty();
}

static void a_run_is_looked_at_page_by_page(void **state) {
    (void)state;
    begin_large_heap();
    char *block = fresh_block(101 * GRANULE_BYTES);
    for (size_t i = 0; i < 101; i += 2) touch(block, i, i + 1);
    assert_int_equal(use_and_drop(block, 0, 0), 51);
    end_large_heap();
}

static void large_pages_are_looked_at_whole(void **state) {
    (void)state;
    const struct sim_config sim = {.page_bytes = 16384};
    begin(&sim, plain_config());
    begin_large_heap();
    char *block = fresh_block(64 * GRANULE_BYTES);
    touch(block, 5, 6), touch(block, 20, 21);
    assert_int_equal(use_and_drop(block, 0, 0), 8);
    end_large_heap();
}

/* Nor blocks that found all but a few of their pages present. */
static void small_heaps_are_not_looked_at(void **state) {
    (void)state;
    uint64_t looks = sim_calls(SIM_PRESENCE);
    assert_int_equal(use_and_drop(fresh_block(3 * MIB), 0, 1), 3 * MIB / GRANULE_BYTES);
    large = fresh_block(LARGE_GRANULES * GRANULE_BYTES);
    (void)use_and_drop(fresh_block((HOLES_GRANULES_MIN - 1) * GRANULE_BYTES), 0, 1);
    assert_int_equal(sim_calls(SIM_PRESENCE), looks);
    touch(large, 0, LARGE_GRANULES);
    drop_block(large);
    assert_empty();
}

static void behind_a_filter_all_counts_as_present(void **state) {
    (void)state;
    const struct sim_config sim = {.filtered = true};
    begin(&sim, plain_config());
    uint64_t looks = sim_calls(SIM_PRESENCE);
    assert_int_equal(use_and_drop(fresh_block(LARGE_GRANULES * GRANULE_BYTES), 0, 1), LARGE_GRANULES);
    assert_int_equal(sim_calls(SIM_PRESENCE), looks);
    assert_empty();
}

static void a_system_that_can_not_tell_is_taken_at_its_word(void **state) {
    (void)state;
    char *block = fresh_block(LARGE_GRANULES * GRANULE_BYTES);
    sim_fail_only(UINT64_C(1) << SIM_PRESENCE);
    sim_fail_call(1, SIM_FOREVER);
    assert_int_equal(use_and_drop(block, 0, 1), LARGE_GRANULES);
    assert_empty();
}

/* Freed and allocated in turn, a block costs no call; it is not forgotten that it may lack pages. */
static void what_rests_is_looked_at_when_it_wakes(void **state) {
    (void)state;
    char *block = fresh_block(LARGE_GRANULES * GRANULE_BYTES);
    uint64_t looks = sim_calls(SIM_PRESENCE);
    for (unsigned i = 0; i < 3; i++) {
        drop_block(block);
        assert_ptr_equal(fresh_block(LARGE_GRANULES * GRANULE_BYTES), block);
    }
    assert_int_equal(sim_calls(SIM_PRESENCE), looks);
    assert_int_equal(use_and_drop(block, 0, 1), 0);
    assert_empty();
}

/* What a block lacks goes along where its parts go. */
static void parts_lack_pages_too(void **state) {
    (void)state;
    for (unsigned i = 0; i < 2; i++) { /* either part first */
        char *block = fresh_block(LARGE_GRANULES * GRANULE_BYTES), *second = block + 8 * MIB;
        assert_int_equal(zone_block_split(&zone, block, 8 * MIB), ZONE_OK);
        assert_int_equal(use_and_drop(i == 0 ? second : block, 0, 0), 0);
        assert_int_equal(use_and_drop(i == 0 ? block : second, 0, 0), 0);
    }
    char *block = fresh_block(LARGE_GRANULES * GRANULE_BYTES), *second = block + 8 * MIB;
    assert_int_equal(zone_block_split(&zone, block, 8 * MIB), ZONE_OK);
    block_of(&zone, block)->fresh = 0;
    touch(block, 0, 8 * MIB / GRANULE_BYTES);
    assert_int_equal(zone_block_join(&zone, block, second), ZONE_OK);
    assert_int_equal(use_and_drop(block, 0, 0), 8 * MIB / GRANULE_BYTES);
    assert_empty();
}

/* In place, into superpages that were never used, and to another address. */
static void what_a_block_grows_by_may_be_lacking(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.reserve_bytes = 512 * MIB;
    for (unsigned way = 0; way < 3; way++) {
        begin(NULL, config);
        size_t bytes = way == 1 ? 32 * MIB : 10 * MIB, granules = 8 * MIB / GRANULE_BYTES;
        char *block = fresh_block(8 * MIB), *wall = way == 2 ? fresh_block(2 * MIB) : NULL;
        touch(block, 0, granules);
        block_of(&zone, block)->fresh = 0;
        block = zone_block_resize(&zone, block, bytes, way == 2);
        assert_non_null(block);
        assert_int_equal(use_and_drop(block, 0, 0), granules);
        if (wall != NULL) drop_block(wall);
        assert_empty();
    }
}

/* The way of what nobody would look for later: swapped pages look absent. */
static void what_is_wholly_absent_goes_back(void **state) {
    (void)state;
    begin_large_heap();
    char *block = fresh_block(100 * GRANULE_BYTES);
    uint64_t calls = sim_calls(SIM_RELEASE);
    assert_int_equal(use_and_drop(block, 0, 0), 0);
    assert_int_equal(sim_calls(SIM_RELEASE), calls + 1);
    end_large_heap();
}

/* Pages that a program took away were used, so far as anybody knows; and a small tail says nothing of a block. */
static void of_other_holes_nothing_is_learned(void **state) {
    (void)state;
    for (unsigned i = 0; i < 12; i++) {
        char *block = fresh_block(LARGE_GRANULES * GRANULE_BYTES);
        touch(block, 0, LARGE_GRANULES);
        assert_int_equal(zone_pages_release(&zone, block, LARGE_GRANULES * GRANULE_BYTES), ZONE_OK);
        (void)use_and_drop(block, 0, 0);
        (void)zone_release(&zone, 0);
    }
    assert_false(zone_is_sparse(&zone, true));
    for (unsigned i = 0; i < 12; i++) {
        char *block = fresh_block(LARGE_GRANULES * GRANULE_BYTES);
        assert_ptr_equal(zone_block_resize(&zone, block, (LARGE_GRANULES - 20) * GRANULE_BYTES, false), block);
        (void)use_and_drop(block, 0, 0);
    }
    assert_true(zone_is_sparse(&zone, true));
    assert_empty();
}

/* A MiB for what may come, cut to what came: what was not used is learned where the block shrinks, and not outweighed where its rest is freed. */
static void what_a_block_shrinks_by_is_learned_once(void **state) {
    (void)state;
    char *kept[12];
    large = fresh_block(LARGE_GRANULES * GRANULE_BYTES);
    for (unsigned i = 0; i < ARRAY_LENGTH(kept); i++) {
        kept[i] = fresh_block(1 * MIB);
        touch(kept[i], 0, 20);
        assert_ptr_equal(zone_block_resize(&zone, kept[i], 20 * GRANULE_BYTES, false), kept[i]);
        if (i >= 4) drop_block(kept[i - 4]);
    }
    assert_true(zone_is_sparse(&zone, false));
    for (unsigned i = ARRAY_LENGTH(kept) - 4; i < ARRAY_LENGTH(kept); i++) drop_block(kept[i]);
    touch(large, 0, LARGE_GRANULES);
    drop_block(large);
    assert_empty();
}

/* Whole superpages of idle pages, but for their first ones, which keep blocks from being placed there. */
static void leave_idle_runs(struct zone_run kept[8]) {
    struct zone_run dropped[8];
    for (unsigned i = 0; i < 8; i++) {
        kept[i] = must_run(1, 1, MOBILITY_UNMOVABLE);
        dropped[i] = must_run(SUPERPAGE_GRANULES - 1, 1, MOBILITY_UNMOVABLE);
    }
    for (unsigned i = 0; i < 8; i++) drop_run(dropped[i]);
}

static void blocks_that_nobody_touches_get_no_pages_from_elsewhere(void **state) {
    (void)state;
    struct zone_run kept[8];
    large = fresh_block(LARGE_GRANULES * GRANULE_BYTES);
    leave_idle_runs(kept);
    unsigned blocks = 0;
    for (; !zone_is_sparse(&zone, true) && blocks < 20; blocks++) {
        zone.config.moves = ZONE_MOVES_COPY;
        (void)use_and_drop(fresh_block(4 * MIB), 0, 1);
    }
    assert_in_range(blocks, 3, 8); /* one alone says little */
    zone.config.moves = ZONE_MOVES_AUTO;
    uint64_t moves = counters().moves;
    char *block = fresh_block(4 * MIB);
    assert_int_equal(counters().moves, moves);
    (void)use_and_drop(block, 0, 1024); /* it was used: others are believed again */
    assert_false(zone_is_sparse(&zone, true));
    assert_true(zone_release(&zone, 4 * SUPERPAGE_BYTES) != 0); /* what it left behind goes, so that the next one finds nothing at its place */
    block = fresh_block(4 * MIB);
    assert_true(counters().moves > moves);
    touch(large, 0, LARGE_GRANULES);
    drop_block(block), drop_block(large);
    for (unsigned i = 0; i < 8; i++) drop_run(kept[i]);
    assert_empty();
}

/* Of blocks that are used from their start on, by a quarter: the next one gets pages there, and none behind. */
static void the_start_of_a_block_gets_what_was_used_of_others(void **state) {
    (void)state;
    struct zone_run kept[8];
    large = fresh_block(LARGE_GRANULES * GRANULE_BYTES);
    zone.config.moves = ZONE_MOVES_COPY;
    for (unsigned i = 0; i < 12; i++) (void)use_and_drop(fresh_block(4 * MIB), 0, 256);
    assert_true(zone_release(&zone, 0) != 0); /* so that the next one finds nothing at its place */
    leave_idle_runs(kept);
    zone.config.moves = ZONE_MOVES_AUTO;
    char *block = fresh_block(4 * MIB);
    const size_t filled = sim_populated_pages(block, 4 * MIB);
    assert_in_range(filled, 200, 256);
    assert_int_equal(sim_populated_pages(block, MIB), filled);
    drop_block(block);
    touch(large, 0, LARGE_GRANULES);
    drop_block(large);
    for (unsigned i = 0; i < 8; i++) drop_run(kept[i]);
    assert_empty();
}

static void blocks_that_nobody_touches_get_no_huge_pages(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.thp = ZONE_THP_AUTO;
    config.reserve_bytes = 1 * GIB;
    begin(NULL, config);
    char *huge = fresh_block(64 * MIB);
    assert_true(superpage_of(&zone, huge)->huge);
    drop_block(huge);
    (void)counters();
    for (unsigned i = 0; !zone_is_sparse(&zone, true) && i < 20; i++) {
        drop_block(fresh_block((66 + i) * MIB));
        (void)counters();
    }
    huge = fresh_block(120 * MIB);
    for (size_t i = 0; i < 60; i++) assert_false(superpage_of(&zone, huge + i * SUPERPAGE_BYTES)->huge);
    drop_block(huge);
    assert_empty();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_block_that_was_not_used_goes_back, plain_zone),
        cmocka_unit_test_setup(a_block_that_was_used_stays, plain_zone),
        cmocka_unit_test_setup(of_a_block_that_was_used_in_part_the_part_stays, plain_zone),
        cmocka_unit_test_setup(a_run_is_looked_at_page_by_page, plain_zone),
        cmocka_unit_test(large_pages_are_looked_at_whole),
        cmocka_unit_test_setup(small_heaps_are_not_looked_at, plain_zone),
        cmocka_unit_test(behind_a_filter_all_counts_as_present),
        cmocka_unit_test_setup(a_system_that_can_not_tell_is_taken_at_its_word, plain_zone),
        cmocka_unit_test_setup(what_rests_is_looked_at_when_it_wakes, plain_zone),
        cmocka_unit_test_setup(parts_lack_pages_too, plain_zone),
        cmocka_unit_test(what_a_block_grows_by_may_be_lacking),
        cmocka_unit_test_setup(what_is_wholly_absent_goes_back, plain_zone),
        cmocka_unit_test_setup(of_other_holes_nothing_is_learned, plain_zone),
        cmocka_unit_test_setup(what_a_block_shrinks_by_is_learned_once, plain_zone),
        cmocka_unit_test_setup(blocks_that_nobody_touches_get_no_pages_from_elsewhere, plain_zone),
        cmocka_unit_test_setup(the_start_of_a_block_gets_what_was_used_of_others, plain_zone),
        cmocka_unit_test(blocks_that_nobody_touches_get_no_huge_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
