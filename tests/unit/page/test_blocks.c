/*
 * test_blocks.c - large blocks: sizes, alignments, what is not a block, and growing and shrinking in place or with all pages.
 */
#include "unit/page/page_support.h"

static void sizes_and_alignments(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 4096, 4097, 40000, 1 * MIB - 1, 1 * MIB, 1 * MIB + 1, 2 * MIB, 2 * MIB + 1, 5 * MIB};
    static const size_t aligns[] = {1, 16, 4096, 8192, 64 * KIB, 512 * KIB, 1 * MIB, 2 * MIB, 4 * MIB, 16 * MIB};
    for (unsigned s = 0; s < ARRAY_LENGTH(sizes); s++)
        for (unsigned a = 0; a < ARRAY_LENGTH(aligns); a++) {
            char *first = must_block(sizes[s], aligns[a]), *second = must_block(sizes[s], aligns[a]);
            size_t granules = zone_block_bytes(&zone, first) >> GRANULE_SHIFT;
            assert_int_equal(granules, max_u64(1, (sizes[s] + GRANULE_BYTES - 1) >> GRANULE_SHIFT));
            mark(first, granules, 1);
            mark(second, granules, 2);
            assert_true(is_marked(first, granules, 1));
            assert_int_equal(counters().blocks, 2);
            assert_int_equal(counters().block_granules, 2 * granules);
            assert_int_equal(counters().allocated, 2 * granules);
            if (s % 3 == 0) ASSERT_SOUND();
            drop_block(first);
            assert_true(is_marked(second, granules, 2));
            drop_block(second);
        }
    assert_empty();
}

static void what_is_not_a_block_is_refused(void **state) {
    (void)state;
    char *run = must_block(40 * KIB, 1), *large = must_block(3 * MIB, 1);
    struct zone_run foreign = must_run(3, 1, MOBILITY_UNMOVABLE);
    int local;
    const void *const bad[] = {NULL,
                               &local,
                               (char *)zone.base - 4096,
                               (char *)zone.base + zone.extent_bytes,
                               run + 1,
                               run + 16,
                               run + GRANULE_BYTES,
                               run + 40 * KIB,
                               large + 16,
                               large + 2 * MIB,
                               large + 3 * MIB,
                               large - GRANULE_BYTES,
                               (void *)1,
                               foreign.address,
                               zone.tags,
                               (void *)(UINTPTR_MAX - 15)};
    for (unsigned i = 0; i < ARRAY_LENGTH(bad); i++) {
        assert_false(zone_block_free(&zone, (void *)(uintptr_t)bad[i]));
        assert_int_equal(zone_block_bytes(&zone, bad[i]), 0);
        ASSERT_SOUND();
    }
    assert_int_equal(zone_block_bytes(&zone, run), 40 * KIB);
    drop_block(run);
    drop_block(large);
    assert_false(zone_block_free(&zone, run));
    assert_false(zone_block_free(&zone, large));
    drop_run(foreign);
    assert_empty();
}

static void requests_beyond_everything_fail(void **state) {
    (void)state;
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 4095, SIZE_MAX / 2, SIZE_MAX / 2 + 2, (size_t)1 << 52, 128 * MIB, 64 * MIB + 1};
    static const size_t aligns[] = {1, 4096, 2 * MIB, 1 * GIB, (size_t)1 << 62, (size_t)1 << 63};
    char *kept = must_block(100 * KIB, 1);
    for (unsigned s = 0; s < ARRAY_LENGTH(sizes); s++)
        for (unsigned a = 0; a < ARRAY_LENGTH(aligns); a++) assert_null(zone_block_alloc(&zone, sizes[s], aligns[a], NULL));
    assert_null(zone_block_alloc(&zone, 1, (size_t)1 << 63, NULL));
    assert_null(zone_block_resize(&zone, kept, SIZE_MAX, true));
    assert_null(zone_block_resize(&zone, kept, 128 * MIB, true));
    assert_int_equal(zone_block_bytes(&zone, kept), 100 * KIB);
    ASSERT_SOUND();
    drop_block(kept);
    assert_empty();
}

/* Blocks that follow each other: a run grows into what is free behind it, and no further. */
static void a_run_grows_and_shrinks_in_place(void **state) {
    (void)state;
    char *a = must_block(20 * GRANULE_BYTES, 1), *b = must_block(20 * GRANULE_BYTES, 1), *c = must_block(20 * GRANULE_BYTES, 1);
    assert_ptr_equal(b, a + 20 * GRANULE_BYTES);
    assert_ptr_equal(c, b + 20 * GRANULE_BYTES);
    mark(a, 20, 1), mark(b, 20, 2), mark(c, 20, 3);
    assert_ptr_equal(zone_block_resize(&zone, a, 20 * GRANULE_BYTES - 5, false), a); /* the same pages */
    assert_null(zone_block_resize(&zone, a, 21 * GRANULE_BYTES, false));
    assert_int_equal(zone_block_bytes(&zone, a), 20 * GRANULE_BYTES);
    assert_ptr_equal(zone_block_resize(&zone, b, 5 * GRANULE_BYTES, false), b);
    ASSERT_SOUND();
    assert_int_equal(counters().allocated, 45);
    assert_int_equal(counters().idle, 15);
    assert_ptr_equal(zone_block_resize(&zone, b, 20 * GRANULE_BYTES, false), b);
    assert_null(zone_block_resize(&zone, b, 20 * GRANULE_BYTES + 1, false));
    assert_true(is_marked(b, 5, 2));
    drop_block(b);
    ASSERT_SOUND();
    assert_ptr_equal(zone_block_resize(&zone, a, 40 * GRANULE_BYTES, false), a);
    assert_null(zone_block_resize(&zone, a, 41 * GRANULE_BYTES, false));
    assert_true(is_marked(a, 20, 1) && is_marked(c, 20, 3));
    ASSERT_SOUND();
    drop_block(a);
    assert_ptr_equal(zone_block_resize(&zone, c, 0, true), c);
    assert_int_equal(zone_block_bytes(&zone, c), GRANULE_BYTES);
    assert_true(is_marked(c, 1, 3));
    drop_block(c);
    assert_empty();
}

static void a_run_never_grows_beyond_its_superpage(void **state) {
    (void)state;
    char *first = must_block(10 * GRANULE_BYTES, 1), *block = must_block(200 * GRANULE_BYTES, 1);
    unsigned room = SUPERPAGE_GRANULES - offset_of(block);
    assert_ptr_equal(zone_block_resize(&zone, block, room * GRANULE_BYTES, false), block);
    assert_null(zone_block_resize(&zone, block, room * GRANULE_BYTES + 1, false));
    ASSERT_SOUND();
    drop_block(first);
    assert_null(zone_block_resize(&zone, block, room * GRANULE_BYTES + 1, false)); /* alone, but not from the start on */
    drop_block(block);
    assert_empty();
}

/* Alone in its superpage it becomes a block of whole ones in place, whatever its size, and is one from then on. */
static void a_run_alone_grows_out_of_its_superpage(void **state) {
    (void)state;
    for (unsigned granules = 10; granules <= SUPERPAGE_GRANULES; granules += 251) {
        char *block = must_block(10 * GRANULE_BYTES, 1);
        assert_int_equal(offset_of(block), 0);
        assert_ptr_equal(zone_block_resize(&zone, block, granules * GRANULE_BYTES, false), block);
        mark(block, granules, 1);
        assert_ptr_equal(zone_block_resize(&zone, block, 5 * MIB, false), block);
        ASSERT_SOUND();
        assert_int_equal(sim_calls(SIM_MOVE), 0);
        assert_true(is_marked(block, granules, 1));
        assert_true(is_zero(block + granules * GRANULE_BYTES, 5 * MIB - granules * GRANULE_BYTES));
        assert_int_equal(superpage_of(&zone, block)->state, SUPERPAGE_BLOCK);
        assert_ptr_equal(zone_block_resize(&zone, block, 3 * GRANULE_BYTES, false), block);
        ASSERT_SOUND();
        drop_block(block);
        zone_release(&zone, 0);
        assert_empty();
    }
}

/* What lies in the same superpage, or behind it, is in the way; then nothing has changed. */
static void a_run_with_a_neighbour_stays_one(void **state) {
    (void)state;
    char *block = must_block(10 * GRANULE_BYTES, 1), *neighbour = must_block(GRANULE_BYTES, 1);
    assert_null(zone_block_resize(&zone, block, 3 * MIB, false));
    drop_block(neighbour);
    char *behind = must_block(3 * MIB, 1);
    assert_ptr_equal(behind, block + SUPERPAGE_BYTES);
    assert_null(zone_block_resize(&zone, block, 3 * MIB, false));
    assert_int_equal(superpage_of(&zone, block)->state, SUPERPAGE_RUNS);
    assert_int_equal(zone_block_bytes(&zone, block), 10 * GRANULE_BYTES);
    neighbour = must_block(GRANULE_BYTES, 1); /* there still is room for runs */
    assert_int_equal(number_of(neighbour), number_of(block));
    ASSERT_SOUND();
    drop_block(neighbour), drop_block(behind), drop_block(block);
    assert_empty();
}

static void a_run_that_can_not_grow_moves_with_its_pages(void **state) {
    (void)state;
    char *block = must_block(100 * GRANULE_BYTES, 1), *wall = must_block(GRANULE_BYTES, 1);
    assert_ptr_equal(wall, block + 100 * GRANULE_BYTES);
    mark(block, 100, 1), mark(wall, 1, 2);
    assert_null(zone_block_resize(&zone, block, 150 * GRANULE_BYTES, false));
    uint64_t populated = counters().populated;
    char *moved = zone_block_resize(&zone, block, 150 * GRANULE_BYTES, true);
    assert_non_null(moved);
    assert_ptr_not_equal(moved, block);
    assert_true(is_marked(moved, 100, 1) && is_marked(wall, 1, 2));
    assert_int_equal(zone_block_bytes(&zone, moved), 150 * GRANULE_BYTES);
    assert_int_equal(zone_block_bytes(&zone, block), 0);
    assert_int_equal(counters().moves, 1);
    assert_int_equal(counters().populated, populated + 50); /* the pages went along */
    assert_int_equal(sim_calls(SIM_MOVE), 1);
    ASSERT_SOUND();
    /* It has twice the address space that it needs: it grows in place for some time, whoever comes behind it. */
    assert_int_equal(arena_size(&zone.addresses, ARENA_ALLOCATED), SUPERPAGE_BYTES + 2 * SUPERPAGE_BYTES);
    for (unsigned granules = 200; granules <= 1000; granules += 100) {
        assert_ptr_equal(zone_block_resize(&zone, moved, granules * GRANULE_BYTES, true), moved);
        ASSERT_SOUND();
    }
    assert_true(is_marked(moved, 100, 1));
    struct zone_run left = must_run(100, 1, MOBILITY_MOVABLE); /* where it was reads as zeros, if so claimed */
    drop_run(left);
    drop_block(moved), drop_block(wall);
    assert_empty();
}

static void small_blocks_are_left_to_a_copy(void **state) {
    (void)state;
    char *block = must_block(63 * GRANULE_BYTES, 1), *wall = must_block(GRANULE_BYTES, 1), *large = must_block(64 * GRANULE_BYTES, 1);
    char *last = must_block(GRANULE_BYTES, 1);
    mark(block, 63, 1), mark(large, 64, 2);
    assert_null(zone_block_resize(&zone, block, 100 * GRANULE_BYTES, true));
    assert_true(is_marked(block, 63, 1));
    assert_int_equal(zone_block_bytes(&zone, block), 63 * GRANULE_BYTES);
    char *moved = zone_block_resize(&zone, large, 100 * GRANULE_BYTES, true);
    assert_non_null(moved);
    assert_true(is_marked(moved, 64, 2));
    ASSERT_SOUND();
    drop_block(block), drop_block(wall), drop_block(moved), drop_block(last);
    assert_empty();
}

static void superpages_grow_into_what_is_free_behind(void **state) {
    (void)state;
    char *block = must_block(3 * MIB, 1);
    size_t granules = 3 * MIB / GRANULE_BYTES;
    mark(block, granules, 1);
    for (size_t bytes = 3 * MIB + 1; bytes <= 20 * MIB; bytes += 1 * MIB) {
        assert_ptr_equal(zone_block_resize(&zone, block, bytes, false), block);
        assert_true(zone_block_bytes(&zone, block) >= bytes);
        assert_true(is_marked(block, granules, 1));
        ASSERT_SOUND();
    }
    assert_int_equal(arena_size(&zone.addresses, ARENA_ALLOCATED), 20 * MIB);
    char *wall = must_block(2 * MIB, 1);
    assert_ptr_equal(wall, block + 20 * MIB);
    assert_null(zone_block_resize(&zone, block, 20 * MIB + 1, false));
    /* Shrinking keeps the address space, until less than a quarter is used. */
    assert_ptr_equal(zone_block_resize(&zone, block, 6 * MIB, false), block);
    assert_int_equal(arena_size(&zone.addresses, ARENA_ALLOCATED), 22 * MIB);
    ASSERT_SOUND();
    assert_ptr_equal(zone_block_resize(&zone, block, 2 * MIB, false), block);
    assert_int_equal(arena_size(&zone.addresses, ARENA_ALLOCATED), 2 * MIB + 2 * MIB);
    assert_true(is_marked(block, SUPERPAGE_GRANULES, 1));
    ASSERT_SOUND();
    char *between = must_block(18 * MIB, 1);
    assert_ptr_equal(between, block + 2 * MIB);
    ASSERT_SOUND();
    drop_block(block), drop_block(between), drop_block(wall);
    assert_empty();
}

static void superpages_that_can_not_grow_move(void **state) {
    (void)state;
    char *block = must_block(5 * MIB, 1), *wall = must_block(2 * MIB, 1);
    size_t granules = 5 * MIB / GRANULE_BYTES;
    assert_ptr_equal(wall, block + 6 * MIB);
    mark(block, granules, 1);
    char *moved = zone_block_resize(&zone, block, 7 * MIB, true);
    assert_non_null(moved);
    assert_ptr_not_equal(moved, block);
    assert_true(is_marked(moved, granules, 1));
    assert_int_equal(sim_calls(SIM_MOVE), 1);
    ASSERT_SOUND();
    assert_ptr_equal(zone_block_resize(&zone, moved, 14 * MIB, true), moved);
    assert_true(is_marked(moved, granules, 1));
    /* Neither the mapping budget nor a refusal loses anything. */
    char *next = must_block(2 * MIB, 1);
    sim_fail_only(UINT64_C(1) << SIM_MOVE);
    sim_fail_call(1, SIM_FOREVER);
    char *end = moved + 16 * MIB;
    while (next < end) next = must_block(2 * MIB, 1);
    assert_null(zone_block_resize(&zone, moved, 40 * MIB, true));
    ASSERT_SOUND();
    assert_true(is_marked(moved, granules, 1));
    assert_int_equal(zone_block_bytes(&zone, moved), 14 * MIB);
}

static void a_growing_block_moves_rarely(void **state) {
    (void)state;
    char *block = must_block(20 * GRANULE_BYTES, 1), *walls[64];
    unsigned n = 0;
    mark(block, 20, 1);
    for (unsigned granules = 21; granules <= 4000; granules += 3) {
        char *now = zone_block_resize(&zone, block, granules * GRANULE_BYTES, true);
        assert_non_null(now);
        if (now != block) {
            assert_true(n < 5); /* it doubles each time */
            walls[n++] = must_block(2 * MIB, 1);
        }
        block = now;
    }
    assert_true(is_marked(block, 20, 1));
    ASSERT_SOUND();
    drop_block(block);
    while (n != 0) drop_block(walls[--n]);
    assert_empty();
}

static void the_hard_limit_counts_growth_only(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.hard_limit_bytes = 6 * MIB;
    begin(NULL, config);
    char *run = must_block(64 * KIB, 1), *block = must_block(4 * MIB, 1);
    assert_null(zone_block_resize(&zone, block, 6 * MIB, true));
    assert_ptr_equal(zone_block_resize(&zone, block, 6 * MIB - 64 * KIB, true), block);
    assert_null(zone_block_resize(&zone, run, 68 * KIB, true));
    assert_null(zone_block_alloc(&zone, 1, 1, NULL));
    assert_ptr_equal(zone_block_resize(&zone, block, 5 * MIB, true), block);
    ASSERT_SOUND();
    assert_ptr_equal(zone_block_resize(&zone, run, 1 * MIB, true), run);
    drop_block(block), drop_block(run);
    assert_empty();
}

static void zeros_are_known_across_the_life_of_pages(void **state) {
    (void)state;
    bool zeroed = false;
    char *block = zone_block_alloc(&zone, 3 * MIB, 1, &zeroed);
    assert_true(zeroed);
    assert_true(is_zero(block, 3 * MIB));
    mark(block, 3 * MIB / GRANULE_BYTES, 1);
    drop_block(block);
    block = zone_block_alloc(&zone, 3 * MIB, 1, &zeroed);
    assert_false(zeroed);
    drop_block(block);
    zone_release(&zone, 0);
    block = zone_block_alloc(&zone, 5 * MIB, 1, &zeroed);
    assert_true(zeroed && is_zero(block, 5 * MIB));
    /* The part that a shrunk block gave up was used. */
    block[4 * MIB] = 1;
    assert_ptr_equal(zone_block_resize(&zone, block, 4 * MIB, false), block);
    char *next = zone_block_alloc(&zone, 1 * MIB, 1, &zeroed);
    assert_true(!zeroed || is_zero(next, 1 * MIB));
    ASSERT_SOUND();
    drop_block(block), drop_block(next);
    assert_empty();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(sizes_and_alignments, plain_zone),
        cmocka_unit_test_setup(what_is_not_a_block_is_refused, plain_zone),
        cmocka_unit_test_setup(requests_beyond_everything_fail, plain_zone),
        cmocka_unit_test_setup(a_run_grows_and_shrinks_in_place, plain_zone),
        cmocka_unit_test_setup(a_run_never_grows_beyond_its_superpage, plain_zone),
        cmocka_unit_test_setup(a_run_alone_grows_out_of_its_superpage, plain_zone),
        cmocka_unit_test_setup(a_run_with_a_neighbour_stays_one, plain_zone),
        cmocka_unit_test_setup(a_run_that_can_not_grow_moves_with_its_pages, plain_zone),
        cmocka_unit_test_setup(small_blocks_are_left_to_a_copy, plain_zone),
        cmocka_unit_test_setup(superpages_grow_into_what_is_free_behind, plain_zone),
        cmocka_unit_test_setup(superpages_that_can_not_grow_move, plain_zone),
        cmocka_unit_test_setup(a_growing_block_moves_rarely, plain_zone),
        cmocka_unit_test(the_hard_limit_counts_growth_only),
        cmocka_unit_test_setup(zeros_are_known_across_the_life_of_pages, plain_zone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
