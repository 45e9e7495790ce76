/*
 * test_fill.c - runs that get idle pages page by page (userfaultfd): from where, how short a gap, across borders of mappings, and what happens where
 * the system refuses. By page tables: test_remap.c.
 */
#include "unit/page/page_support.h"

#define GAP 100

/* A movable superpage in use, so that blocks go there, and not to what is left idle; and what else the heap has. */
static char *anchor, *large;

static void begin_heap(const struct sim_config *sim, size_t bytes) {
    begin(sim, plain_config());
    sim_faults_offer(PLATFORM_FAULTS_MOVE);
    large = must_block(bytes, 1);
    anchor = must_block(GRANULE_BYTES, 1);
    mark(anchor, 1, 99);
}

static void begin_fill(const struct sim_config *sim) { begin_heap(sim, 16 * MIB); }

static void end_fill(void) {
    assert_int_equal(sim_fault_registrations(), 0); /* or who touches such a page waits for ever */
    assert_true(is_marked(anchor, 1, 99));
    ASSERT_SOUND();
    drop_block(anchor), drop_block(large);
    drop_keepers();
    assert_empty();
}

static void a_gap_is_filled_page_by_page(void **state) {
    (void)state;
    begin_fill(NULL);
    leave_idle(200);
    uint64_t populated = counters().populated, mappings = sim_mappings();
    char *block = must_block(GAP * GRANULE_BYTES, 1);
    assert_int_equal(number_of(block), number_of(anchor));
    assert_int_equal(sim_calls(SIM_MOVE), 0);
    assert_int_equal(sim_calls(SIM_FAULTS_MOVE), GAP);
    assert_int_equal(counters().moves, 1);
    assert_int_equal(counters().populated, populated); /* none came */
    assert_int_equal(counters().idle, 200 - GAP);
    assert_int_equal(sim_mappings(), mappings);
    assert_int_equal(sim_populated_pages(block, GAP * GRANULE_BYTES), GAP);
    mark(block, GAP, 1);
    drop_block(block);
    end_fill();
}

/* A block begins a superpage that nobody uses and whose pages are there, rather than to have them moved; but not one that has too few. */
static void present_pages_are_gone_to(void **state) {
    (void)state;
    for (unsigned idle = GAP - 1; idle <= GAP; idle++) {
        begin_fill(NULL);
        struct zone_run former = must_run(idle, 1, MOBILITY_UNMOVABLE);
        drop_run(former);
        const uint64_t populated = counters().populated;
        char *block = must_block(GAP * GRANULE_BYTES, 1);
        assert_int_equal(number_of(block) == number_of(former.address), idle == GAP);
        assert_int_equal(sim_calls(SIM_FAULTS_MOVE), idle == GAP ? 0 : idle);
        assert_int_equal(counters().populated, populated + GAP - idle);
        drop_block(block);
        end_fill();
    }
}

/* Each page that goes would interrupt the others. */
static void where_threads_take_turns_pages_stay(void **state) {
    (void)state;
    begin_fill(NULL);
    leave_idle(200);
    assert_true(zone_one_thread_moves(&zone));
    sim_cpu_set(1); /* another thread, as each of these has a processor */
    for (unsigned asked = 1; asked < 16; asked++) {
        char *block = must_block(70 * GRANULE_BYTES, 1);
        assert_int_equal(sim_calls(SIM_FAULTS_MOVE), 0);
        assert_int_equal(zone_pages_release(&zone, block, 70 * GRANULE_BYTES), ZONE_OK);
        drop_block(block);
    }
    char *block = must_block(70 * GRANULE_BYTES, 1);
    assert_int_equal(sim_calls(SIM_FAULTS_MOVE), 70);
    sim_cpu_set(0);
    drop_block(block);
    end_fill();
}

static void short_gaps_are_filled(void **state) {
    (void)state;
    for (unsigned absent = 2; absent <= 6; absent++) {
        begin_fill(NULL);
        char *block = must_block(32 * GRANULE_BYTES, 1);
        mark(block, 32, 5);
        assert_int_equal(zone_pages_release(&zone, block + 8 * GRANULE_BYTES, absent * GRANULE_BYTES), ZONE_OK);
        leave_idle(200);
        char *opens = must_block(GAP * GRANULE_BYTES, 1);
        assert_int_equal(sim_calls(SIM_FAULTS_MOVE), GAP);
        drop_block(block);
        assert_ptr_equal(must_block(32 * GRANULE_BYTES, 1), block);
        assert_int_equal(sim_calls(SIM_FAULTS_MOVE), GAP + (absent >= 4 ? absent : 0));
        assert_int_equal(sim_calls(SIM_MOVE), 0);
        drop_block(block), drop_block(opens);
        end_fill();
    }
}

/* By page tables, without a question to the system, in the heap that was begun. */
static void expect_no_file(void) {
    leave_idle(200);
    char *block = must_block(GAP * GRANULE_BYTES, 1);
    assert_int_equal(sim_calls(SIM_FAULTS_OPEN), 0);
    assert_int_equal(sim_calls(SIM_MOVE), 1);
    drop_block(block);
    end_fill();
}

/* A small program is left alone. */
static void a_small_heap_opens_no_file(void **state) {
    (void)state;
    begin_heap(NULL, 2 * MIB);
    expect_no_file();
}

/* Of pages that are several granules each nothing moves but whole ones, whatever the borders. */
static void large_pages_move_whole(void **state) {
    (void)state;
    for (size_t page = 16 * KIB; page <= 64 * KIB; page *= 4) {
        const struct sim_config sim = {.page_bytes = page};
        begin_fill(&sim);
        char *whole = must_block(2 * MIB, 1), *other = must_block(2 * MIB, 1);
        size_t at = 13 * page, bytes = 5 * page;
        mark(whole, SUPERPAGE_GRANULES, 1), mark(other, SUPERPAGE_GRANULES, 2);
        assert_int_equal(zone_pages_swap(&zone, whole, other, at), ZONE_OK);
        drop_block(whole);
        zone_wake_blocks(&zone);
        keep_run(MOBILITY_UNMOVABLE);
        for (unsigned i = 0; i < 3; i++) { /* of which one meets the border */
            char *block = must_block(bytes, 1);
            mark(block, bytes >> GRANULE_SHIFT, i);
            ASSERT_SOUND();
            assert_true(is_marked(block, bytes >> GRANULE_SHIFT, i));
        }
        assert_true(is_marked(other + at, (2 * MIB - at) >> GRANULE_SHIFT, 2) || is_marked(other, at >> GRANULE_SHIFT, 1));
        assert_true(sim_calls(SIM_FAULTS_MOVE) >= 5);
        assert_int_equal(sim_fault_registrations(), 0);
    }
}

/* Of a superpage that is mostly in use holes serve where they are, sooner or later; long gaps get them all the same. */
static void holes_of_full_superpages_are_for_long_gaps(void **state) {
    (void)state;
    for (unsigned used = 200; used <= 320; used += 120) {
        begin_fill(NULL);
        struct zone_run holes = must_run(100, 1, MOBILITY_UNMOVABLE), rest = must_run(used, 1, MOBILITY_UNMOVABLE);
        char *opens = must_block(64 * GRANULE_BYTES, 1);
        drop_run(holes);
        char *longer = must_block(64 * GRANULE_BYTES, 1);
        uint64_t moved = sim_calls(SIM_FAULTS_MOVE);
        assert_int_equal(moved, 64);
        char *shorter = must_block(32 * GRANULE_BYTES, 1);
        bool half_free = used + 64 <= SUPERPAGE_GRANULES / 2 || used <= SUPERPAGE_GRANULES / 2;
        assert_int_equal(sim_calls(SIM_FAULTS_MOVE) - moved, half_free ? 32 : 0);
        drop_block(opens), drop_block(longer), drop_block(shorter), drop_run(rest);
        end_fill();
    }
}

/* What is spared for long gaps goes to one behind a short gap that gets nothing. */
static void a_short_gap_that_gets_nothing_keeps_nothing_from_others(void **state) {
    (void)state;
    begin_fill(NULL);
    char *block = must_block(200 * GRANULE_BYTES, 1);
    mark(block, 200, 5);
    struct zone_run holes = must_run(100, 1, MOBILITY_UNMOVABLE), rest = must_run(320, 1, MOBILITY_UNMOVABLE);
    drop_run(holes);
    assert_int_equal(zone_pages_release(&zone, block + 8 * GRANULE_BYTES, 10 * GRANULE_BYTES), ZONE_OK);
    assert_int_equal(zone_pages_release(&zone, block + 40 * GRANULE_BYTES, 80 * GRANULE_BYTES), ZONE_OK);
    drop_block(block);
    uint64_t moved = sim_calls(SIM_FAULTS_MOVE);
    assert_ptr_equal(must_block(200 * GRANULE_BYTES, 1), block);
    assert_int_equal(sim_calls(SIM_FAULTS_MOVE) - moved, 80);
    drop_block(block), drop_run(rest);
    end_fill();
}

/* Who has chosen another way, or a block that grows in steps that shall be short, gets nothing page by page. */
static void other_ways_are_left_to_who_wants_them(void **state) {
    (void)state;
    for (unsigned way = 0; way < 3; way++) {
        begin_fill(NULL);
        if (way < 2) zone.config.moves = way == 0 ? ZONE_MOVES_MREMAP : ZONE_MOVES_COPY;
        char *block = way == 2 ? must_block(2 * MIB + MIB, 1) : NULL;
        leave_idle(200);
        if (way == 2)
            assert_ptr_equal(zone_block_resize(&zone, block, 2 * MIB + MIB + GAP * GRANULE_BYTES, false), block);
        else
            block = must_block(GAP * GRANULE_BYTES, 1);
        assert_int_equal(sim_calls(SIM_FAULTS_OPEN), 0);
        assert_int_equal(sim_calls(SIM_MOVE), way == 1 ? 0 : 1);
        drop_block(block);
        end_fill();
    }
}

/* Who moved page tables has left a border in the middle of what is idle, across which no call goes. */
static void borders_of_mappings_are_not_crossed(void **state) {
    (void)state;
    begin_fill(NULL);
    char *whole = must_block(2 * MIB, 1), *other = must_block(2 * MIB, 1);
    mark(whole, SUPERPAGE_GRANULES, 1), mark(other, SUPERPAGE_GRANULES, 2);
    assert_int_equal(zone_pages_swap(&zone, whole + 201 * GRANULE_BYTES, other + 201 * GRANULE_BYTES, 200 * GRANULE_BYTES), ZONE_OK);
    drop_block(whole);
    zone_wake_blocks(&zone);
    keep_run(MOBILITY_RECLAIMABLE);
    char *block = must_block(250 * GRANULE_BYTES, 1);
    assert_int_equal(number_of(block), number_of(anchor));
    assert_int_equal(sim_calls(SIM_FAULTS_MOVE), 250);
    assert_true(counters().moves >= 2);
    ASSERT_SOUND();
    drop_block(block), drop_block(other);
    end_fill();
}

/* To take some of its pages the system breaks up a huge page, for tens of us. */
static void huge_pages_are_not_broken_up(void **state) {
    (void)state;
    for (unsigned huge = 0; huge < 2; huge++) {
        begin_fill(NULL);
        char *whole = must_block(2 * MIB, 1);
        mark(whole, SUPERPAGE_GRANULES, 7);
        zone_lock(&zone);
        zone_note_advice(&zone, superpage_of(&zone, whole), 1, huge);
        platform_lock_release(&zone.lock);
        drop_block(whole);
        zone_wake_blocks(&zone);
        keep_run(MOBILITY_UNMOVABLE);
        char *block = must_block(GAP * GRANULE_BYTES, 1);
        assert_int_equal(sim_calls(SIM_FAULTS_MOVE), huge ? 0 : GAP);
        drop_block(block);
        end_fill();
    }
}

/* By page tables a run takes nothing out of a superpage that a move has cut: it would come in pieces, each a move and a search for its end. */
static void runs_take_no_pieces_by_page_tables(void **state) {
    (void)state;
    begin_heap(NULL, 2 * MIB);
    zone.config.moves = ZONE_MOVES_MREMAP;
    char *uncut = must_block(2 * MIB, 1), *whole = must_block(2 * MIB, 1), *other = must_block(2 * MIB, 1);
    mark(uncut, SUPERPAGE_GRANULES, 3);
    mark(whole, SUPERPAGE_GRANULES, 1), mark(other, SUPERPAGE_GRANULES, 2);
    assert_int_equal(zone_pages_swap(&zone, whole + 200 * GRANULE_BYTES, other + 200 * GRANULE_BYTES, 200 * GRANULE_BYTES), ZONE_OK);
    drop_block(whole);
    zone_wake_blocks(&zone);
    keep_run(MOBILITY_RECLAIMABLE);
    uint64_t moves = sim_calls(SIM_MOVE);
    char *block = must_block(250 * GRANULE_BYTES, 1);
    assert_int_equal(number_of(block), number_of(anchor));
    assert_int_equal(sim_calls(SIM_MOVE), moves);
    assert_non_null(zone_block_resize(&zone, uncut, 200 * GRANULE_BYTES, false));
    char *second = must_block(200 * GRANULE_BYTES, 1);
    assert_int_equal(number_of(second), number_of(anchor));
    assert_int_equal(sim_calls(SIM_MOVE), moves + 1);
    drop_block(block), drop_block(second), drop_block(other), drop_block(uncut);
    end_fill();
}

/* At the first page or in the middle: what is absent stays so, and page tables are taken for a while, twice as long after each refusal. */
static void a_refusal_is_not_asked_for_again_at_once(void **state) {
    (void)state;
    for (unsigned nth = 1; nth <= 41; nth += 20) {
        char *blocks[16];
        begin_fill(NULL);
        sim_fail_only(UINT64_C(1) << SIM_FAULTS_MOVE);
        sim_fail_call(nth, SIM_FOREVER);
        uint64_t targets = sim_calls(SIM_FAULTS_REGISTER);
        for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++) {
            leave_idle(200);
            blocks[i] = must_block(70 * GRANULE_BYTES, 1);
            mark(blocks[i], 70, i);
            assert_int_equal(sim_fault_registrations(), 0);
        }
        assert_in_range(sim_calls(SIM_FAULTS_REGISTER) - targets, 2, 4); /* pauses of 1, 3, 7 */
        assert_true(sim_calls(SIM_MOVE) != 0);
        sim_fail_call(0, 0);
        for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++) {
            assert_true(is_marked(blocks[i], 70, i));
            drop_block(blocks[i]);
        }
        end_fill();
    }
}

/* A filter may end the process for a call that its program did not expect. */
static void behind_a_filter_the_system_is_not_asked(void **state) {
    (void)state;
    const struct sim_config sim = {.filtered = true};
    begin_fill(&sim);
    expect_no_file();
}

/* ------------------------------------------------------------------ runs of slabs */

/* `idle` granules are present and free in one superpage, that no slab can use where they are. */
static char *movable;
static void leave_movable_idle(unsigned idle) {
    movable = must_block((SUPERPAGE_GRANULES / 4 + 1 + idle) * GRANULE_BYTES, 1);
    mark(movable, SUPERPAGE_GRANULES / 4 + 1 + idle, 7);
    assert_non_null(zone_block_resize(&zone, movable, (SUPERPAGE_GRANULES / 4 + 1) * GRANULE_BYTES, false));
    assert_int_equal(counters().idle, idle);
}
static void end_movable(void) {
    assert_true(is_marked(movable, SUPERPAGE_GRANULES / 4 + 1, 7));
    drop_block(movable);
    end_fill();
}

static void slabs_get_idle_pages_of_other_groups_ahead(void **state) {
    (void)state;
    begin_fill(NULL);
    leave_movable_idle(100);
    uint64_t populated = counters().populated;
    struct zone_run first = must_run(1, 1, MOBILITY_UNMOVABLE);
    assert_int_equal(sim_calls(SIM_FAULTS_MOVE), 64);
    assert_int_equal(first.fresh, 0);
    assert_false(first.zeroed);
    struct zone_run second = must_run(4, 1, MOBILITY_UNMOVABLE); /* finds them there */
    assert_int_equal(second.fresh, 0);
    assert_int_equal(sim_calls(SIM_FAULTS_MOVE), 64);
    assert_int_equal(counters().populated, populated);
    ASSERT_SOUND();
    drop_run(first), drop_run(second);
    end_movable();
}

static void small_heaps_and_few_idle_pages_are_left_alone(void **state) {
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        const struct sim_config filtered = {.filtered = true};
        begin_heap(i == 2 ? &filtered : NULL, i == 0 ? 8 * MIB : 16 * MIB);
        leave_movable_idle(i == 1 ? 63 : 100);
        struct zone_run run = must_run(1, 1, MOBILITY_UNMOVABLE);
        assert_int_equal(sim_calls(SIM_FAULTS_MOVE), 0);
        assert_int_equal(sim_calls(SIM_MOVE), 0); /* page tables would cut mappings for every slab */
        assert_int_equal(run.fresh, 1);
        drop_run(run);
        end_movable();
    }
}

/* Best fit knows addresses, not pages. */
static void a_fresh_superpage_is_one_with_present_pages(void **state) {
    (void)state;
    for (unsigned granules = 1; granules <= 64; granules *= 4) {
        begin_fill(NULL);
        char *blocks[4];
        for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++) mark(blocks[i] = must_block(SUPERPAGE_BYTES, 1), SUPERPAGE_GRANULES, i);
        for (unsigned i = 0; i < 2; i++) assert_int_equal(zone_pages_release(&zone, blocks[i], SUPERPAGE_BYTES), ZONE_OK);
        for (unsigned i = 0; i < 3; i++) drop_block(blocks[i]);
        zone_wake_blocks(&zone);
        struct zone_run run = must_run(granules, 1, MOBILITY_UNMOVABLE);
        assert_int_equal(number_of(run.address), number_of(blocks[2]));
        assert_int_equal(run.fresh, 0);
        drop_run(run), drop_block(blocks[3]);
        end_fill();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gap_is_filled_page_by_page),
        cmocka_unit_test(present_pages_are_gone_to),
        cmocka_unit_test(where_threads_take_turns_pages_stay),
        cmocka_unit_test(short_gaps_are_filled),
        cmocka_unit_test(a_small_heap_opens_no_file),
        cmocka_unit_test(large_pages_move_whole),
        cmocka_unit_test(holes_of_full_superpages_are_for_long_gaps),
        cmocka_unit_test(a_short_gap_that_gets_nothing_keeps_nothing_from_others),
        cmocka_unit_test(other_ways_are_left_to_who_wants_them),
        cmocka_unit_test(borders_of_mappings_are_not_crossed),
        cmocka_unit_test(huge_pages_are_not_broken_up),
        cmocka_unit_test(runs_take_no_pieces_by_page_tables),
        cmocka_unit_test(a_refusal_is_not_asked_for_again_at_once),
        cmocka_unit_test(behind_a_filter_the_system_is_not_asked),
        cmocka_unit_test(slabs_get_idle_pages_of_other_groups_ahead),
        cmocka_unit_test(small_heaps_and_few_idle_pages_are_left_alone),
        cmocka_unit_test(a_fresh_superpage_is_one_with_present_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
