/*
 * test_litter.c - where blocks are hardly used, their pages stay where they are and nobody asks for them: few calls, no more left than a small share
 * of the heap, nothing that shows through where zeros are promised, and all of it back in the end.
 */
#include "page/cost.h"
#include "unit/page/sparse_support.h"

#define BLOCK_GRANULES ((size_t)8 * MIB / GRANULE_BYTES)
#define RUN_GRANULES ((size_t)100)
#define LEFT_MOST 128 /* granules, of a heap of this size */

static uint64_t calls(void) { return sim_calls(SIM_PRESENCE) + sim_calls(SIM_RELEASE); }
/* In the whole heap. */
static size_t present(void) { return sim_populated_pages((char *)zone.base, zone.extent_bytes); }

static char *wall;

static void most_blocks_end_without_a_call(void **state) {
    (void)state;
    become_sparse(BLOCK_GRANULES);
    const uint64_t before = calls();
    for (unsigned i = 0; i < 64; i++) {
        use_and_drop(BLOCK_GRANULES + i % 2, 0, 3);
        ASSERT_SOUND();
    }
    assert_in_range(calls() - before, 64 / 4, 64 / 2);
    assert_true(zone.litter.superpages != 0);
    end_sparse();
}

static void no_more_is_left_than_a_share(void **state) {
    (void)state;
    become_sparse(BLOCK_GRANULES);
    size_t base = present(), most = 0;
    for (unsigned i = 0; i < 400; i++) {
        use_and_drop(BLOCK_GRANULES + i % 2, i * 4 % BLOCK_GRANULES, i * 4 % BLOCK_GRANULES + 4);
        if (present() > most) most = present();
    }
    assert_in_range(most, base + LEFT_MOST / 2, base + 3 * LEFT_MOST); /* what a block leaves is an estimate */
    ASSERT_SOUND();
    end_sparse();
}

/* Zeros are not promised where something was left, and are where a tick has passed. */
static void nothing_shows_through(void **state) {
    (void)state;
    become_sparse(BLOCK_GRANULES);
    for (unsigned i = 0; i < 100; i++) {
        bool zeroed;
        char *block = zone_block_alloc(&zone, (BLOCK_GRANULES + i % 3) << GRANULE_SHIFT, 1, &zeroed);
        assert_non_null(block);
        if (zeroed) assert_true(holds_zeros(block, BLOCK_GRANULES << GRANULE_SHIFT));
        touch(block, i, i + 3);
        drop_block(block);
        if (i % 10 == 9) zone_tick(&zone);
    }
    zone_tick(&zone);
    assert_int_equal(zone.litter.superpages, 0);
    bool zeroed;
    char *block = zone_block_alloc(&zone, BLOCK_GRANULES << GRANULE_SHIFT, 1, &zeroed);
    assert_true(zeroed && holds_zeros(block, BLOCK_GRANULES << GRANULE_SHIFT));
    drop_block(block);
    end_sparse();
}

static void a_tick_and_a_request_take_all(void **state) {
    (void)state;
    for (unsigned way = 0; way < 2; way++) {
        begin(NULL, plain_config());
        become_sparse(BLOCK_GRANULES);
        for (unsigned i = 0; i < 20; i++) use_and_drop(BLOCK_GRANULES + i % 2, 0, 3);
        assert_true(present() > (size_t)16 * MIB / GRANULE_BYTES);
        if (way == 0)
            zone_tick(&zone);
        else
            (void)zone_release(&zone, 64 * MIB);
        assert_int_equal(present(), (size_t)16 * MIB / GRANULE_BYTES);
        assert_int_equal(zone.litter.superpages, 0);
        end_sparse();
    }
}

/* A page of one block in four is asked for: as soon as one is there, all are, and what is present counts. */
static void blocks_that_are_used_again_are_noticed(void **state) {
    (void)state;
    become_sparse(BLOCK_GRANULES);
    for (unsigned i = 0; i < 20; i++) use_and_drop(BLOCK_GRANULES + i % 2, 0, 3);
    unsigned blocks = 0;
    for (; zone_is_sparse(&zone, true) && blocks < 40; blocks++) use_and_drop(BLOCK_GRANULES + blocks % 2, 0, BLOCK_GRANULES);
    assert_in_range(blocks, 1, 8);
    assert_true(counters().idle >= BLOCK_GRANULES);
    ASSERT_SOUND();
    end_sparse();
}

/* Superpages with idle pages besides, which stay, in front of such without: each gives back what it has, not the one for the other. */
static void idle_pages_beside_litter_stay(void **state) {
    (void)state;
    become_sparse(BLOCK_GRANULES);
    char *block = fresh_block(2 * SUPERPAGE_GRANULES - 100);
    touch(block, 150, 153), touch(block, SUPERPAGE_GRANULES, SUPERPAGE_GRANULES + 3);
    zone.litter.kinds[1].blocks = 1; /* none is looked at */
    drop_block(block);
    (void)counters();
    struct superpage *first = superpage_of(&zone, block);
    assert_true(first[0].littered && first[1].littered);
    memset(block, 1, GRANULE_BYTES); /* an idle page, as a block that was looked at leaves it */
    bits_set(first[0].populated, 0, 1);
    superpage_recount(&first[0]);
    COUNTER_ADD(zone.counters.populated, 1);
    zone_superpage_relink(&zone, &first[0], 0);
    platform_lock_acquire(&zone.lock);
    zone_litter_sweep(&zone);
    platform_lock_release(&zone.lock);
    assert_int_equal(zone.litter.superpages, 0);
    assert_int_equal(sim_populated_pages(block, SUPERPAGE_BYTES), 1);
    assert_int_equal(sim_populated_pages(block + SUPERPAGE_BYTES, SUPERPAGE_BYTES), 0);
    ASSERT_SOUND();
    end_sparse();
}

/* What lies behind the end of a block in its last superpage is nobody's, and is found by the next sweep; or where the block grows, before it does. */
static void what_is_left_behind_the_end_of_a_block_is_not_forgotten(void **state) {
    (void)state;
    become_sparse(BLOCK_GRANULES);
    for (unsigned i = 0; i < 60; i++) {
        use_and_drop(BLOCK_GRANULES - 1 - i, BLOCK_GRANULES - 8 - i, BLOCK_GRANULES - 4 - i);
        char *shorter = fresh_block(BLOCK_GRANULES - SUPERPAGE_GRANULES / 2 - i);
        ASSERT_SOUND();
        if (i % 3 == 0) assert_ptr_equal(zone_block_resize(&zone, shorter, BLOCK_GRANULES << GRANULE_SHIFT, false), shorter);
        if (i % 3 == 1) zone_tick(&zone);
        ASSERT_SOUND();
        drop_block(shorter);
        (void)counters();
    }
    end_sparse();
}

/* Until something is littered; nothing that is left is looked at. */
static void leave_litter(size_t granules) {
    for (unsigned i = 0; zone.litter.superpages == 0 && i < 8; i++) use_and_drop(granules + i % 2, 0, 3);
    assert_true(zone.litter.superpages != 0);
}

/* Slabs, and blocks that are to be of one mapping, find nothing where nothing is counted. */
static void others_find_no_pages_that_nobody_counts(void **state) {
    (void)state;
    become_sparse(BLOCK_GRANULES);
    leave_litter(BLOCK_GRANULES);
    const struct superpage *littered = &zone.superpages[zone.litter.from];
    struct zone_run runs[8];
    unsigned count = 0;
    while (littered->littered && count < ARRAY_LENGTH(runs)) {
        runs[count++] = must_run(SUPERPAGE_GRANULES, 1, MOBILITY_UNMOVABLE);
        ASSERT_SOUND();
    }
    assert_false(littered->littered);
    while (count != 0) drop_run(runs[--count]);
    end_sparse();

    struct zone_config config = plain_config();
    config.reserve_bytes = 512 * MIB;
    begin(NULL, config);
    const size_t granules = COST_WHOLE_SUPERPAGES * SUPERPAGE_GRANULES;
    become_sparse(granules);
    leave_litter(granules);
    littered = &zone.superpages[zone.litter.from];
    const char *left = superpage_address(&zone, littered);
    assert_true(sim_populated_pages(left, SUPERPAGE_BYTES) != 0);
    const struct zone_block_config whole_config = {.bytes = granules << GRANULE_SHIFT, .mobility = MOBILITY_MOVABLE, .whole = true};
    char *whole = zone_block_create(&zone, &whole_config, NULL);
    assert_ptr_equal(whole, left);
    assert_false(littered->littered);
    assert_int_equal(sim_populated_pages(left, SUPERPAGE_BYTES), 0);
    ASSERT_SOUND();
    drop_block(whole);
    end_sparse();
}

static void runs_leave_theirs_in_superpages_that_are_in_use(void **state) {
    (void)state;
    become_sparse(RUN_GRANULES);
    wall = fresh_block(1);
    const uint64_t before = calls();
    for (unsigned i = 0; i < 64; i++) {
        use_and_drop(RUN_GRANULES + i % 2, 50, 53);
        ASSERT_SOUND();
    }
    assert_in_range(calls() - before, 1, 64);
    assert_true(zone.litter.superpages != 0);
    zone_tick(&zone);
    assert_int_equal(zone.litter.superpages, 0);
    ASSERT_SOUND();
    drop_block(wall);
    end_sparse();
}

/* All that may be there counts as present then, and is tried again as idle pages are. */
static void what_the_system_refuses_to_take_is_counted(void **state) {
    (void)state;
    for (unsigned way = 0; way < 2; way++) {
        const size_t granules = way == 0 ? BLOCK_GRANULES : RUN_GRANULES;
        begin(NULL, plain_config());
        become_sparse(granules);
        wall = fresh_block(1);
        for (unsigned i = 0; zone.litter.superpages == 0 && i < 20; i++) use_and_drop(granules + i % 2, 0, 3);
        assert_true(zone.litter.superpages != 0);
        sim_fail_only(UINT64_C(1) << SIM_RELEASE);
        sim_fail_call(1, SIM_FOREVER);
        zone_tick(&zone);
        sim_fail_call(0, 0);
        assert_int_equal(zone.litter.superpages, 0);
        assert_true(counters().idle >= 3);
        ASSERT_SOUND();
        drop_block(wall);
        end_sparse();
    }
}

/* Nor is anything asked behind a filter, and nothing left. */
static void behind_a_filter_nothing_is_left(void **state) {
    (void)state;
    become_sparse(BLOCK_GRANULES);
    zone_tick(&zone);
    const struct sim_config sim = {.filtered = true};
    begin(&sim, plain_config());
    large = fresh_block((size_t)16 * MIB / GRANULE_BYTES);
    zone.untouched[1] = 256;
    for (unsigned i = 0; i < 8; i++) {
        use_and_drop(BLOCK_GRANULES, 0, 1);
        assert_int_equal(counters().idle, BLOCK_GRANULES);
        assert_int_equal(zone.litter.superpages, 0);
        zone.untouched[1] = 256;
        (void)zone_release(&zone, 0);
    }
    end_sparse();
}

/* Of a block that grew, what was there before is looked at: left unasked, it would cost the next one all its pages. */
static void what_a_block_had_before_it_grew_is_looked_at(void **state) {
    (void)state;
    become_sparse(BLOCK_GRANULES);
    for (unsigned i = 0; i < 8; i++) {
        char *block = fresh_block(BLOCK_GRANULES);
        touch(block, 0, BLOCK_GRANULES);
        block = zone_block_resize(&zone, block, 2 * BLOCK_GRANULES << GRANULE_SHIFT, true);
        assert_non_null(block);
        const size_t idle = counters().idle;
        zone.litter.kinds[1].blocks = 1; /* else it may be one that is looked at anyway */
        drop_block(block);
        assert_true(counters().idle >= idle + BLOCK_GRANULES || !zone_is_sparse(&zone, true));
        ASSERT_SOUND();
    }
    end_sparse();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(most_blocks_end_without_a_call, plain_zone),
        cmocka_unit_test_setup(no_more_is_left_than_a_share, plain_zone),
        cmocka_unit_test_setup(nothing_shows_through, plain_zone),
        cmocka_unit_test(a_tick_and_a_request_take_all),
        cmocka_unit_test_setup(blocks_that_are_used_again_are_noticed, plain_zone),
        cmocka_unit_test_setup(idle_pages_beside_litter_stay, plain_zone),
        cmocka_unit_test_setup(what_is_left_behind_the_end_of_a_block_is_not_forgotten, plain_zone),
        cmocka_unit_test_setup(others_find_no_pages_that_nobody_counts, plain_zone),
        cmocka_unit_test_setup(runs_leave_theirs_in_superpages_that_are_in_use, plain_zone),
        cmocka_unit_test(what_the_system_refuses_to_take_is_counted),
        cmocka_unit_test_setup(behind_a_filter_nothing_is_left, plain_zone),
        cmocka_unit_test_setup(what_a_block_had_before_it_grew_is_looked_at, plain_zone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
