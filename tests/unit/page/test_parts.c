/*
 * test_parts.c - blocks that are cut, joined, given room, found by any address inside; that go on under fixed addresses; that rest between two uses.
 */
#include "unit/page/page_support.h"

static char *must_create(struct zone_block_config config) {
    char *block = zone_block_create(&zone, &config, NULL);
    assert_non_null(block);
    return block;
}

static struct zone_block_info found(const void *address, size_t bytes) {
    struct zone_block_info info;
    assert_int_equal(zone_block_find(&zone, address, bytes, &info), ZONE_OK);
    return info;
}

static void a_block_is_found_by_any_address_inside(void **state) {
    (void)state;
    struct zone_block_info info;
    char *large = must_block(5 * MIB, 1), *small = must_block(3 * GRANULE_BYTES, 1);
    struct zone_run run = must_run(4, 1, MOBILITY_MOVABLE);
    assert_ptr_equal(found(large, 1).start, large);
    assert_ptr_equal(found(large + 5 * MIB - 1, 1).start, large);
    assert_ptr_equal(found(large + 3 * MIB, 2 * MIB).start, large);
    assert_int_equal(found(large, 1).bytes, 5 * MIB);
    assert_int_equal(found(large, 1).capacity_bytes, 6 * MIB);
    assert_ptr_equal(found(small + 3 * GRANULE_BYTES - 1, 1).start, small);
    assert_int_equal(zone_block_find(&zone, large + 3 * MIB, 2 * MIB + 1, &info), ZONE_NO_BLOCK);
    assert_int_equal(zone_block_find(&zone, large + 5 * MIB, 1, &info), ZONE_NO_BLOCK); /* its room, not its pages */
    assert_int_equal(zone_block_find(&zone, large, SIZE_MAX, &info), ZONE_NO_BLOCK);
    assert_int_equal(zone_block_find(&zone, small + 3 * GRANULE_BYTES, 1, &info), ZONE_NO_BLOCK);
    assert_int_equal(zone_block_find(&zone, run.address, 1, &info), ZONE_NO_BLOCK); /* next to a block, and none */
    assert_int_equal(zone_block_find(&zone, &info, 1, &info), ZONE_NO_BLOCK);
    assert_int_equal(zone_block_find(&zone, NULL, 1, &info), ZONE_NO_BLOCK);
    drop_run(run);
    drop_block(large), drop_block(small);
    assert_empty();
}

static void parts_are_blocks_like_any_other(void **state) {
    (void)state;
    char *block = must_block(7 * MIB, 1);
    mark(block, 7 * MIB / GRANULE_BYTES, 5);
    uint64_t blocks = counters().blocks, allocated = counters().allocated;
    assert_int_equal(zone_block_split(&zone, block, 0), ZONE_BAD_RANGE);
    assert_int_equal(zone_block_split(&zone, block, MIB), ZONE_BAD_RANGE); /* not between superpages */
    assert_int_equal(zone_block_split(&zone, block, 8 * MIB), ZONE_BAD_RANGE);
    assert_int_equal(zone_block_split(&zone, block + MIB, 2 * MIB), ZONE_NO_BLOCK);
    assert_int_equal(zone_block_split(&zone, block, 2 * MIB), ZONE_OK);
    assert_int_equal(zone_block_split(&zone, block + 2 * MIB, 4 * MIB), ZONE_OK);
    ASSERT_SOUND();
    assert_int_equal(counters().blocks, blocks + 2);
    assert_int_equal(counters().allocated, allocated);
    assert_int_equal(zone_block_bytes(&zone, block + 6 * MIB), MIB);
    assert_true(is_marked(block, 7 * MIB / GRANULE_BYTES, 5));
    assert_int_equal(zone_block_join(&zone, block, block + 6 * MIB), ZONE_BAD_RANGE);
    assert_int_equal(zone_block_join(&zone, block + 2 * MIB, block), ZONE_BAD_RANGE);
    assert_int_equal(zone_block_join(&zone, block, block), ZONE_BAD_RANGE);
    assert_int_equal(zone_block_join(&zone, block, block + 4 * MIB), ZONE_NO_BLOCK);
    assert_int_equal(zone_block_join(&zone, block, block + 2 * MIB), ZONE_OK);
    assert_int_equal(zone_block_bytes(&zone, block), 6 * MIB);
    ASSERT_SOUND();
    assert_true(zone_block_free(&zone, block)); /* one part goes, the other stays */
    assert_int_equal(zone_block_bytes(&zone, block + 6 * MIB), MIB);
    ASSERT_SOUND();
    assert_non_null(zone_block_resize(&zone, block + 6 * MIB, 2 * MIB, false));
    assert_true(zone_block_free(&zone, block + 6 * MIB));
    assert_empty();
}

static void runs_are_cut_anywhere(void **state) {
    (void)state;
    char *block = must_block(10 * GRANULE_BYTES, 1), *other = must_block(4 * MIB, 1);
    mark(block, 10, 3);
    assert_int_equal(zone_block_split(&zone, block, GRANULE_BYTES + 1), ZONE_BAD_RANGE);
    assert_int_equal(zone_block_split(&zone, block, 10 * GRANULE_BYTES), ZONE_BAD_RANGE);
    assert_int_equal(zone_block_split(&zone, block, 3 * GRANULE_BYTES), ZONE_OK);
    assert_int_equal(zone_block_bytes(&zone, block + 3 * GRANULE_BYTES), 7 * GRANULE_BYTES);
    assert_int_equal(zone_block_join(&zone, block, other), ZONE_BAD_RANGE);
    ASSERT_SOUND();
    assert_int_equal(zone_block_join(&zone, block, block + 3 * GRANULE_BYTES), ZONE_OK);
    assert_true(is_marked(block, 10, 3));
    assert_int_equal(zone_block_bytes(&zone, block), 10 * GRANULE_BYTES);
    drop_block(block), drop_block(other);
    assert_empty();
}

static void room_that_was_reserved_stays(void **state) {
    (void)state;
    char *block = must_create((struct zone_block_config){.bytes = GRANULE_BYTES, .reserve_bytes = 20 * MIB, .mobility = MOBILITY_MOVABLE});
    char *behind = must_block(4 * MIB, 1);
    assert_int_equal(found(block, 1).capacity_bytes, 20 * MIB);
    for (size_t size = 2 * MIB; size <= 20 * MIB; size += 2 * MIB) assert_ptr_equal(zone_block_resize(&zone, block, size, false), block);
    assert_ptr_equal(zone_block_resize(&zone, block, GRANULE_BYTES, false), block);
    assert_int_equal(found(block, 1).capacity_bytes, 20 * MIB);
    assert_null(zone_block_resize(&zone, block, 22 * MIB, false));
    assert_int_equal(zone_block_reserve(&zone, block, 22 * MIB), ZONE_NO_ROOM);
    ASSERT_SOUND();
    drop_block(behind);
    assert_int_equal(counters().blocks, 1); /* what rested there is gone with this look */
    assert_int_equal(zone_block_reserve(&zone, block, 22 * MIB), ZONE_OK);
    assert_int_equal(found(block, 1).capacity_bytes, 22 * MIB);
    assert_int_equal(zone_block_reserve(&zone, block + 1, 22 * MIB), ZONE_NO_BLOCK);
    assert_int_equal(zone_block_reserve(&zone, block, 1000 * MIB), ZONE_NO_ROOM);
    char *run = must_block(GRANULE_BYTES, 1);
    assert_int_equal(zone_block_reserve(&zone, run, 2 * GRANULE_BYTES), ZONE_NO_ROOM);
    assert_int_equal(zone_block_reserve(&zone, run, GRANULE_BYTES), ZONE_OK);
    ASSERT_SOUND();
    drop_block(run), drop_block(block);
    assert_empty();
}

static void room_behind_the_second_of_two_stays(void **state) {
    (void)state;
    char *block = must_create((struct zone_block_config){.bytes = 8 * MIB, .mobility = MOBILITY_MOVABLE});
    assert_int_equal(zone_block_split(&zone, block, 4 * MIB), ZONE_OK);
    assert_int_equal(zone_block_reserve(&zone, block + 4 * MIB, 16 * MIB), ZONE_OK);
    assert_int_equal(zone_block_join(&zone, block, block + 4 * MIB), ZONE_OK);
    assert_int_equal(found(block, 1).capacity_bytes, 20 * MIB);
    assert_ptr_equal(zone_block_resize(&zone, block, GRANULE_BYTES, false), block);
    assert_int_equal(found(block, 1).capacity_bytes, 20 * MIB);
    ASSERT_SOUND();
    drop_block(block);
    assert_empty();
}

static void a_fixed_block_never_moves(void **state) {
    (void)state;
    char *block = must_create((struct zone_block_config){.bytes = 4 * MIB, .fixed = true, .mobility = MOBILITY_MOVABLE}),
         *behind = must_block(4 * MIB, 1);
    assert_null(zone_block_resize(&zone, block, 30 * MIB, true));
    assert_int_equal(zone_block_bytes(&zone, block), 4 * MIB);
    assert_true(found(block, 1).fixed);
    drop_block(behind), drop_block(block);
    assert_empty();
}

static void small_blocks_stand_with_their_kind(void **state) {
    (void)state;
    char *movable = must_block(GRANULE_BYTES, 1);
    char *fixed = must_create((struct zone_block_config){.bytes = GRANULE_BYTES, .mobility = MOBILITY_UNMOVABLE});
    assert_int_not_equal(number_of(movable), number_of(fixed));
    assert_int_equal(found(fixed, 1).mobility, MOBILITY_UNMOVABLE);
    drop_block(movable), drop_block(fixed);
    assert_empty();
}

static void what_is_asked_to_be_huge_is_whole_superpages(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.thp = ZONE_THP_AUTO;
    begin(NULL, config);
    char *before = must_block(4 * MIB, 1);
    mark(before, 100, 1); /* leaves base pages, which would keep huge ones away */
    drop_block(before);
    char *block = must_create((struct zone_block_config){.bytes = 3 * MIB, .huge = true, .mobility = MOBILITY_MOVABLE});
    assert_int_equal(zone_block_bytes(&zone, block), 4 * MIB);
    assert_true(superpage_of(&zone, block)->huge && superpage_of(&zone, block)[1].huge);
    memset(block, 1, 4 * MIB);
    uint64_t huge_bytes;
    assert_true(platform_huge_in(block, 4 * MIB, &huge_bytes));
    assert_int_equal(huge_bytes, 4 * MIB);
    ASSERT_SOUND();
    drop_block(block);
    assert_empty();
}

/* Freed and allocated in turn, nothing of a large block is looked at but the block. */
static void what_was_freed_rests_for_one_of_its_size(void **state) {
    (void)state;
    char *block = must_block(12 * MIB, 1);
    drop_block(block);
    assert_int_equal(zone.resting.count, 1);
    bool zeroed = true;
    assert_ptr_equal(zone_block_alloc(&zone, 12 * MIB, 1, &zeroed), block);
    assert_false(zeroed);
    assert_int_equal(zone.resting.count, 0);
    assert_int_equal(counters().allocated, 12 * MIB / GRANULE_BYTES);
    ASSERT_SOUND();
    drop_block(block);
    assert_false(zone_block_free(&zone, block)); /* and is free all the same */
    char *other = must_block(6 * MIB, 1);        /* of another size: it is woken, and its pages serve */
    assert_int_equal(zone.resting.count, 0);
    ASSERT_SOUND();
    drop_block(other);
    assert_empty();
}

/* Runs that a CPU doesn't keep (run_cache.c): of blocks that are not movable, for one. */
static char *unmovable(size_t bytes) { return must_create((struct zone_block_config){.bytes = bytes, .mobility = MOBILITY_UNMOVABLE}); }

static void runs_rest_too_and_give_way(void **state) {
    (void)state;
    char *low = unmovable(600 * KIB), *block = unmovable(600 * KIB), *high = unmovable(64 * KIB);
    assert_ptr_equal(block, low + 600 * KIB);
    drop_block(block);
    assert_int_equal(zone.resting.count, 1);
    assert_ptr_equal(unmovable(600 * KIB), block);
    assert_int_equal(zone.resting.count, 0);
    ASSERT_SOUND();
    drop_block(block);
    assert_int_equal(zone.resting.count, 1);
    assert_false(zone_block_free(&zone, block));
    char *unlike = must_create((struct zone_block_config){.bytes = 600 * KIB, .mobility = MOBILITY_MOVABLE});
    assert_ptr_not_equal(unlike, block); /* of another group */
    char *aligned = must_create((struct zone_block_config){.bytes = 600 * KIB, .align = MIB, .mobility = MOBILITY_UNMOVABLE});
    assert_int_equal((uintptr_t)aligned % MIB, 0);
    ASSERT_SOUND();
    drop_block(unlike), drop_block(aligned);
    (void)counters();

    assert_ptr_equal(unmovable(600 * KIB), block);
    drop_block(block);
    assert_int_equal(zone.resting.count, 1);
    assert_ptr_equal(zone_block_resize(&zone, low, 700 * KIB, false), low); /* into what rested behind it */
    assert_int_equal(zone.resting.count, 0);
    ASSERT_SOUND();
    drop_block(high);
    assert_int_equal(zone.resting.count, 0); /* short, and not alone: the next one goes where it fits best */
    drop_block(low);
    assert_int_equal(zone.resting.count, 1);
    assert_empty();
    high = unmovable(GRANULE_BYTES);
    drop_block(high);
    assert_int_equal(zone.resting.count, 1); /* alone */
    assert_ptr_equal(unmovable(GRANULE_BYTES), high);
    drop_block(high);
    assert_empty();
}

/* What rests counts as free: whoever gets it has to be within the limit as others do, which memory outside the heap counts for, too. */
static void what_rests_is_not_had_beyond_the_limit(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.hard_limit_bytes = 4 * MIB;
    begin(NULL, config);
    char *block = unmovable(MIB);
    drop_block(block);
    assert_true(zone_outside_take(&zone, 3 * MIB / GRANULE_BYTES + 1));
    assert_int_equal(zone.resting.count, 1);
    const struct zone_block_config same = {.bytes = MIB, .mobility = MOBILITY_UNMOVABLE};
    assert_null(zone_block_create(&zone, &same, NULL));
    assert_null(zone_block_alloc(&zone, 2 * MIB, 1, NULL));
    assert_false(zone_outside_take(&zone, MIB / GRANULE_BYTES));
    zone_outside_give(&zone, 1);
    block = unmovable(MIB);
    assert_int_equal(counters().allocated, MIB / GRANULE_BYTES);
    ASSERT_SOUND();
    drop_block(block);
    zone_outside_give(&zone, 3 * MIB / GRANULE_BYTES);
    assert_empty();
}

/* What rests is no page less for others: they get its pages before any is touched for the first time. */
static void pages_that_rest_serve_slabs(void **state) {
    (void)state;
    char *block = unmovable(600 * KIB);
    mark(block, 150, 3);
    uint64_t populated = counters().populated_total;
    drop_block(block);
    assert_int_equal(zone.resting.count, 1);
    struct zone_run run = must_run(4, 1, MOBILITY_UNMOVABLE);
    assert_int_equal(zone.resting.count, 0);
    assert_int_equal(run.fresh, 0);
    assert_int_equal(counters().populated_total, populated);
    drop_run(run);
    assert_empty();
}

static void only_so_many_rest_and_none_above_the_limit(void **state) {
    (void)state;
    char *blocks[RESTING_BLOCKS + 2];
    for (unsigned i = 0; i < RESTING_BLOCKS + 2; i++) blocks[i] = must_block(2 * MIB + MIB * (i + 1), 1);
    for (unsigned i = 0; i < RESTING_BLOCKS + 2; i++) {
        assert_true(zone_block_free(&zone, blocks[i]));
        assert_int_equal(zone.resting.count, i < RESTING_BLOCKS ? i + 1 : RESTING_BLOCKS);
    }
    ASSERT_SOUND();
    assert_int_equal(zone.resting.count, 0);
    zone_set_soft_limit(&zone, MIB);
    char *block = must_block(8 * MIB, 1);
    assert_true(zone_block_free(&zone, block));
    assert_int_equal(zone.resting.count, 0);
    assert_int_equal(counters().idle, MIB >> GRANULE_SHIFT); /* what the limit allows, of superpages that had more */
    ASSERT_SOUND();
}

static void what_rests_counts_for_no_limit(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.hard_limit_bytes = 12 * MIB;
    begin(NULL, config);
    char *block = must_block(12 * MIB, 1);
    drop_block(block);
    char *other = must_block(10 * MIB, 1);
    drop_block(other);
    assert_empty();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_block_is_found_by_any_address_inside, plain_zone),
        cmocka_unit_test_setup(parts_are_blocks_like_any_other, plain_zone),
        cmocka_unit_test_setup(runs_are_cut_anywhere, plain_zone),
        cmocka_unit_test_setup(room_that_was_reserved_stays, plain_zone),
        cmocka_unit_test_setup(room_behind_the_second_of_two_stays, plain_zone),
        cmocka_unit_test_setup(a_fixed_block_never_moves, plain_zone),
        cmocka_unit_test_setup(small_blocks_stand_with_their_kind, plain_zone),
        cmocka_unit_test_setup(what_is_asked_to_be_huge_is_whole_superpages, plain_zone),
        cmocka_unit_test_setup(what_was_freed_rests_for_one_of_its_size, plain_zone),
        cmocka_unit_test_setup(runs_rest_too_and_give_way, plain_zone),
        cmocka_unit_test(what_rests_is_not_had_beyond_the_limit),
        cmocka_unit_test_setup(pages_that_rest_serve_slabs, plain_zone),
        cmocka_unit_test_setup(only_so_many_rest_and_none_above_the_limit, plain_zone),
        cmocka_unit_test_setup(what_rests_counts_for_no_limit, plain_zone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
