/*
 * test_remap.c - new blocks that get present pages by page-table moves, and the bookkeeping of moves: contents, zeros, mappings.
 */
#include "unit/page/page_support.h"

/* A movable superpage in use, so that blocks go there, and not to the idle one. */
static char *movable_superpage(void) {
    char *block = must_block(GRANULE_BYTES, 1);
    mark(block, 1, 99);
    return block;
}

static void a_run_is_filled_from_idle_pages(void **state) {
    (void)state;
    char *anchor = movable_superpage();
    leave_idle(200);
    uint64_t populated = counters().populated;
    char *block = must_block(100 * GRANULE_BYTES, 1);
    assert_int_equal(number_of(block), number_of(anchor));
    assert_int_equal(sim_calls(SIM_MOVE), 1);
    assert_int_equal(counters().populated, populated); /* none came */
    assert_int_equal(counters().idle, 100);
    assert_int_equal(sim_populated_pages(block, 100 * GRANULE_BYTES), 100);
    ASSERT_SOUND();
    mark(block, 100, 1);
    drop_block(block), drop_block(anchor);
    drop_keepers();
    assert_empty();
}

static void what_was_moved_in_is_not_called_zero(void **state) {
    (void)state;
    bool zeroed = true;
    char *anchor = movable_superpage();
    leave_idle(200); /* must_run has written to them */
    char *block = zone_block_alloc(&zone, 100 * GRANULE_BYTES, 1, &zeroed);
    assert_int_equal(sim_calls(SIM_MOVE), 1);
    assert_false(zeroed);
    assert_false(is_zero(block, 100 * GRANULE_BYTES));
    /* And where it came from is. */
    struct zone_run run = {0};
    assert_true(zone_run_alloc(&zone, 200, 1, MOBILITY_UNMOVABLE, &run));
    assert_true(!run.zeroed || is_zero(run.address, 200 * GRANULE_BYTES));
    ASSERT_SOUND();
    zone_run_free(&zone, run.address, 200);
    drop_block(block), drop_block(anchor);
    drop_keepers();
    assert_empty();
}

static void superpages_are_filled_from_several(void **state) {
    (void)state;
    struct zone_run runs[4];
    char *anchor = movable_superpage();
    for (unsigned i = 0; i < 4; i++) runs[i] = must_run(i < 2 ? 512 : 300, 1, i % 2);
    for (unsigned i = 0; i < 4; i++) drop_run(runs[i]);
    uint64_t populated = counters().populated;

    char *block = must_block(20 * MIB, 1);
    assert_int_equal(counters().populated, max_u64(populated, 20 * MIB / GRANULE_BYTES + 1));
    ASSERT_SOUND();
    mark(block, 20 * MIB / GRANULE_BYTES, 1);
    assert_true(is_marked(anchor, 1, 99));
    drop_block(block), drop_block(anchor);
    assert_empty();
}

static void little_is_not_worth_a_move(void **state) {
    (void)state;
    for (unsigned granules = 60; granules <= 68; granules++) {
        begin(NULL, plain_config());
        char *anchor = movable_superpage();
        leave_idle(200);
        struct zone_run run = must_run(granules, 1, MOBILITY_MOVABLE);
        assert_int_equal(sim_calls(SIM_MOVE), granules >= 64);
        assert_int_equal(run.fresh, granules >= 64 ? 0 : granules);
        ASSERT_SOUND();
        drop_run(run), drop_block(anchor);
        drop_keepers();
        assert_empty();
    }
}

static void slabs_are_never_remapped(void **state) {
    (void)state;
    struct zone_run anchor = must_run(1, 1, MOBILITY_UNMOVABLE);
    struct zone_run other = must_run(200, 1, MOBILITY_RECLAIMABLE);
    drop_run(other);
    struct zone_run run = must_run(100, 1, MOBILITY_UNMOVABLE);
    assert_int_equal(sim_calls(SIM_MOVE), 0);
    assert_int_equal(run.fresh, 100);
    drop_run(run), drop_run(anchor);
    assert_empty();
}

static void a_refused_move_leaves_fresh_pages(void **state) {
    (void)state;
    char *anchor = movable_superpage();
    leave_idle(200);
    sim_fail_only(UINT64_C(1) << SIM_MOVE);
    sim_fail_call(1, SIM_FOREVER);
    char *block = must_block(100 * GRANULE_BYTES, 1);
    assert_int_equal(sim_failures(), 1); /* not tried again and again */
    mark(block, 100, 1);
    assert_true(is_marked(block, 100, 1));
    ASSERT_SOUND();
    drop_block(block), drop_block(anchor);
    drop_keepers();
    assert_empty();
}

static void no_moves_beyond_the_share_of_mappings(void **state) {
    (void)state;
    sim_set_map_count_limit(4 * (4 + 8)); /* the heap starts with 4, and keeps 8 */
    char *anchor = movable_superpage(), *wall;
    leave_idle(400);
    char *block = must_block(100 * GRANULE_BYTES, 1);
    wall = must_block(GRANULE_BYTES, 1);
    assert_int_equal(sim_calls(SIM_MOVE), 0);
    assert_null(zone_block_resize(&zone, block, 2 * MIB, true));
    sim_set_map_count_limit(65530);
    block = zone_block_resize(&zone, block, 2 * MIB, true);
    assert_non_null(block);
    assert_int_equal(sim_calls(SIM_MOVE), 2); /* its own pages, and behind them those that are idle still */
    ASSERT_SOUND();
    drop_block(block), drop_block(anchor), drop_block(wall);
    drop_keepers();
    assert_empty();
}

/* A day of small blocks, a night of large ones: moves go on for ever only if their mappings are won back. */
static void mappings_are_won_back(void **state) {
    (void)state;
    static struct zone_run small[1500];
    sim_set_map_count_limit(400);
    uint64_t moves_before = 0;
    for (unsigned cycle = 0; cycle < 20; cycle++) {
        for (unsigned i = 0; i < 1500; i++) small[i] = must_run(1, 1, MOBILITY_UNMOVABLE);
        for (unsigned i = 0; i < 1500; i++) drop_run(small[i]);
        char *blocks[6];
        for (unsigned i = 0; i < 6; i++) blocks[i] = must_block(1200 * KIB, 1);
        for (unsigned i = 0; i < 6; i++) {
            char *moved = zone_block_resize(&zone, blocks[i], 2200 * KIB, true);
            if (moved != NULL) blocks[i] = moved;
        }
        ASSERT_SOUND();
        for (unsigned i = 0; i < 6; i++) drop_block(blocks[i]);
        zone_release(&zone, 0);
        assert_true(sim_mappings() < 100);
        assert_true(counters().mappings < 100);
        if (cycle >= 15) assert_true(counters().moves > moves_before);
        moves_before = counters().moves;
    }
    assert_empty();
}

static void huge_pages_move_whole(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.thp = ZONE_THP_ALWAYS;
    begin(NULL, config);
    struct zone_run run = must_run(512, 1, MOBILITY_UNMOVABLE), wall = must_run(512, 1, MOBILITY_UNMOVABLE);
    drop_run(run);
    assert_true(superpage_of(&zone, run.address)->huge);
    char *block = must_block(40 * MIB, 1);
    ASSERT_SOUND();
    assert_int_equal(counters().moves, 1);
    unsigned huge = 0;
    for (unsigned i = 0; i < 20; i++) huge += superpage_of(&zone, block + i * 2 * MIB)->huge;
    assert_int_equal(huge, 20);
    drop_block(block);
    drop_run(wall);
    assert_empty();
}

/* The advice belongs to the mapping, and goes with it, to superpages for which none was asked. */
static void advice_moves_with_whole_superpages(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.thp = ZONE_THP_ALWAYS;
    begin(NULL, config);
    struct zone_run run = must_run(512, 1, MOBILITY_UNMOVABLE), wall = must_run(512, 1, MOBILITY_UNMOVABLE);
    drop_run(run);
    char *block = must_block(3 * MIB, 1); /* too small to ask for huge pages itself */
    assert_ptr_not_equal(block, run.address);
    assert_int_equal(sim_calls(SIM_MOVE), 1);
    assert_true(superpage_of(&zone, block)->huge);
    assert_false(superpage_of(&zone, block + SUPERPAGE_BYTES)->huge);
    ASSERT_SOUND();
    drop_block(block), drop_run(wall);
    assert_empty();
}

static void advice_follows_a_block_that_moves(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.thp = ZONE_THP_ALWAYS;
    begin(NULL, config);
    char *block = must_block(8 * MIB, 1), *wall = must_block(2 * MIB, 1);
    assert_true(superpage_of(&zone, block)->huge);
    char *moved = zone_block_resize(&zone, block, 9 * MIB, true);
    assert_true(moved != NULL && moved != block);
    for (unsigned i = 0; i < 4; i++) assert_true(superpage_of(&zone, moved + i * SUPERPAGE_BYTES)->huge);
    assert_false(superpage_of(&zone, moved + 4 * SUPERPAGE_BYTES)->huge);
    ASSERT_SOUND();
    drop_block(moved), drop_block(wall);
    assert_empty();
}

/* As a caller of zone_block_resize does it: where the zone prefers that, by a copy. */
static char *must_grow(char *block, size_t bytes) {
    const size_t old = zone_block_bytes(&zone, block);
    char *grown = zone_block_resize(&zone, block, bytes, true);
    if (grown != NULL) return grown;
    grown = must_block(bytes, 1);
    memcpy(grown, block, old);
    drop_block(block);
    return grown;
}

/* What is present where a block moves to would be dropped page by page; and what is idle elsewhere serves what it grows by. */
static void two_blocks_that_grow_in_turn_drop_no_pages(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.reserve_bytes = 1 * GIB;
    begin(NULL, config);
    uint64_t populated = 0;
    for (unsigned round = 0; round < 4; round++) {
        char *blocks[2] = {must_block(1 * MIB, 1), must_block(1 * MIB, 1)};
        for (unsigned i = 0; i < 2; i++) mark(blocks[i], 256, i + 1);
        uint64_t released = counters().released_total;
        for (size_t bytes = 2 * MIB; bytes <= 32 * MIB; bytes *= 2)
            for (unsigned i = 0; i < 2; i++) {
                blocks[i] = must_grow(blocks[i], bytes);
                assert_true(is_marked(blocks[i], 256, i + 1));
                assert_true(platform_populate(blocks[i], bytes)); /* used */
                ASSERT_SOUND();
            }
        assert_in_range(counters().released_total - released, 0, SUPERPAGE_GRANULES);                   /* a run's, where no place is without */
        if (round != 0) assert_in_range(counters().populated_total - populated, 0, SUPERPAGE_GRANULES); /* the rest came in the first round */
        populated = counters().populated_total;
        drop_block(blocks[0]), drop_block(blocks[1]);
    }
    assert_empty();
}

/* Where a block moves to, pages would be dropped, and the last of the other places that are tried was never used. The system has no memory for it. */
static void another_place_that_can_not_be_had_goes_back(void **state) {
    (void)state;
    char *blocks[16];
    for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++) blocks[i] = must_block(2 * MIB, 1); /* all that is committed */
    assert_int_equal(zone.extent_bytes, 32 * MIB);
    drop_block(blocks[3]);
    (void)counters(); /* it rests no more */
    sim_fail_only(UINT64_C(1) << SIM_COMMIT);
    sim_fail_call(1, SIM_FOREVER);
    platform_lock_acquire(&zone.lock);
    struct superpage *place = zone_superpages_take_moved(&zone, 1, SUPERPAGE_GRANULES, SUPERPAGE_GRANULES);
    assert_ptr_equal(place, superpage_of(&zone, blocks[3]));
    zone_superpages_give(&zone, place, 1);
    platform_lock_release(&zone.lock);
    assert_int_not_equal(sim_failures(), 0);
    sim_fail_call(0, 0);
    ASSERT_SOUND(); /* the arena has it */
    for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++)
        if (i != 3) drop_block(blocks[i]);
    assert_empty();
}

/*
 * What moves takes the borders of its mappings along, and they stay where it was, too: without that blocks that grow for long have several times as
 * many mappings as are counted.
 */
static void mappings_are_counted_where_they_move_on(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    char *blocks[8] = {NULL};
    uint64_t seed = 7, most = 0;
    config.reserve_bytes = 1 * GIB;
    config.moves = ZONE_MOVES_MREMAP;
    begin(NULL, config);
    for (unsigned round = 0; round < 3000; round++) {
        const unsigned i = (unsigned)(next_random(&seed) % ARRAY_LENGTH(blocks));
        const size_t old = blocks[i] == NULL ? 0 : zone_block_bytes(&zone, blocks[i]);
        if (old == 0) {
            blocks[i] = must_block(MIB / 4 + next_random(&seed) % MIB, 1);
        } else if (old > 16 * MIB) {
            drop_block(blocks[i]);
            blocks[i] = NULL;
            continue;
        } else {
            blocks[i] = must_grow(blocks[i], old + old / 2 + next_random(&seed) % (64 * KIB));
        }
        assert_true(platform_populate(blocks[i], zone_block_bytes(&zone, blocks[i]))); /* used */
        const uint64_t real = sim_mappings(), counted = zone.counters.mappings;
        most = max_u64(most, real);
        assert_in_range(counted, real / 3, 3 * real + 100);
    }
    assert_true(most > 1000);
    ASSERT_SOUND();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_run_is_filled_from_idle_pages, plain_zone),
        cmocka_unit_test_setup(what_was_moved_in_is_not_called_zero, plain_zone),
        cmocka_unit_test_setup(superpages_are_filled_from_several, plain_zone),
        cmocka_unit_test(little_is_not_worth_a_move),
        cmocka_unit_test_setup(slabs_are_never_remapped, plain_zone),
        cmocka_unit_test_setup(a_refused_move_leaves_fresh_pages, plain_zone),
        cmocka_unit_test_setup(no_moves_beyond_the_share_of_mappings, plain_zone),
        cmocka_unit_test_setup(mappings_are_won_back, plain_zone),
        cmocka_unit_test(huge_pages_move_whole),
        cmocka_unit_test(advice_moves_with_whole_superpages),
        cmocka_unit_test(advice_follows_a_block_that_moves),
        cmocka_unit_test(two_blocks_that_grow_in_turn_drop_no_pages),
        cmocka_unit_test(mappings_are_counted_where_they_move_on),
        cmocka_unit_test_setup(another_place_that_can_not_be_had_goes_back, plain_zone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
