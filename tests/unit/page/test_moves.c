/*
 * test_moves.c - which way pages take to another address: page tables, one by one where mappings are used up, a copy; that nothing is lost on any of
 * them, whatever is refused, and that nobody's faults are told after a move.
 */
#include "unit/page/page_support.h"

#define PAGES 100

static char *block, *wall;

/* A block that can't grow where it is, with the mappings of the heap used up. */
static void crowded_block(enum zone_moves moves) {
    struct zone_config config = plain_config();
    config.moves = moves;
    begin(NULL, config);
    block = must_block(PAGES * GRANULE_BYTES, 1);
    wall = must_block(GRANULE_BYTES, 1);
    mark(block, PAGES, 1), mark(wall, 1, 2);
    sim_set_map_count_limit(4 * (4 + 8)); /* the heap starts with 4, and keeps 8 */
}

static char *grown(void) { return zone_block_resize(&zone, block, 3 * MIB, true); }

static void drop_both(void) {
    assert_true(is_marked(wall, 1, 2));
    ASSERT_SOUND();
    drop_block(block), drop_block(wall);
    assert_empty();
}

static void without_mappings_pages_move_one_by_one(void **state) {
    (void)state;
    crowded_block(ZONE_MOVES_AUTO);
    sim_faults_offer(PLATFORM_FAULTS_MOVE);
    uint64_t mappings = sim_mappings(), counted = counters().mappings;
    char *moved = grown();
    assert_non_null(moved);
    assert_true(is_marked(moved, PAGES, 1));
    assert_true(is_zero(moved + PAGES * GRANULE_BYTES, GRANULE_BYTES));
    assert_int_equal(sim_calls(SIM_MOVE), 0);
    assert_int_equal(sim_calls(SIM_FAULTS_MOVE), PAGES);
    assert_int_equal(sim_mappings(), mappings);
    assert_int_equal(counters().mappings, counted);
    assert_int_equal(counters().moves, 1);
    assert_false(sim_fault_registered(moved));
    block = moved;
    drop_both();
}

static void what_will_not_move_is_copied(void **state) {
    (void)state;
    for (unsigned nth = 2; nth <= PAGES; nth += 7) {
        crowded_block(ZONE_MOVES_AUTO);
        sim_faults_offer(PLATFORM_FAULTS_MOVE);
        sim_fail_only(UINT64_C(1) << SIM_FAULTS_MOVE);
        sim_fail_call(nth, SIM_FOREVER);
        char *moved = grown();
        assert_non_null(moved);
        assert_true(is_marked(moved, PAGES, 1));
        assert_int_equal(sim_failures(), 1);
        block = moved;
        drop_both();
    }
}

/* What is in the way of a block that moves goes behind it, whatever part of it will not move, and is marked as it is then. */
static void what_is_in_the_way_is_marked_wherever_it_is(void **state) {
    (void)state;
    for (unsigned nth = 1; nth <= 800; nth += 57) {
        struct zone_config config = plain_config();
        char *holed[2];
        config.moves = ZONE_MOVES_UFFD;
        begin(NULL, config);
        wall = must_block(GRANULE_BYTES, 1);
        block = must_block(250 * GRANULE_BYTES, 1);
        mark(block, 250, 1);
        for (unsigned i = 0; i < ARRAY_LENGTH(holed); i++) holed[i] = must_block(SUPERPAGE_BYTES, 1);
        char *behind = must_block(64 * MIB - 3 * SUPERPAGE_BYTES, 1); /* the rest of the address space */
        mark(holed[0], SUPERPAGE_GRANULES, 3);                        /* the first one is present but for a part, the second one absent */
        assert_int_equal(zone_pages_release(&zone, holed[0] + 40 * GRANULE_BYTES, 60 * GRANULE_BYTES), ZONE_OK);
        assert_int_equal(zone_pages_release(&zone, holed[1], SUPERPAGE_BYTES), ZONE_OK);
        drop_block(holed[0]), drop_block(holed[1]);
        sim_faults_offer(PLATFORM_FAULTS_MOVE);
        sim_fail_only(UINT64_C(1) << SIM_FAULTS_MOVE);
        sim_fail_call(nth, SIM_FOREVER);
        char *moved = zone_block_resize(&zone, block, 2 * MIB, true);
        if (moved != NULL) block = moved;
        assert_true(is_marked(block, 250, 1));
        ASSERT_SOUND();
        drop_block(block), drop_block(wall), drop_block(behind);
    }
}

/* Nor taken back, as locked pages are not: what the copy leaves is idle, counted and all zeros. */
static void what_a_copy_leaves_is_counted(void **state) {
    (void)state;
    for (unsigned nth = 3; nth <= PAGES; nth += 13) {
        crowded_block(ZONE_MOVES_AUTO);
        sim_faults_offer(PLATFORM_FAULTS_MOVE);
        sim_fail_only(UINT64_C(1) << SIM_FAULTS_MOVE | UINT64_C(1) << SIM_RELEASE);
        sim_fail_call(nth, SIM_FOREVER); /* the target is emptied by the first call */
        char *moved = grown();
        assert_true(sim_failures() >= 2); /* the move, the source of the copy, and what is asked for again */
        sim_fail_call(0, 0);
        assert_non_null(moved);
        assert_true(is_marked(moved, PAGES, 1));
        unsigned gone = nth - 2; /* one by one; reading them would make them present */
        assert_true(is_zero(block + gone * GRANULE_BYTES, (PAGES - gone) * GRANULE_BYTES));
        assert_true(sim_populated_pages((char *)zone.base, zone.extent_bytes) <= counters().populated);
        block = moved;
        drop_both();
    }
}

/* Of the first page, of the target, of all: then it is the caller's to copy, and the block is as it was. */
static void a_refusal_leaves_the_block(void **state) {
    (void)state;
    static const enum sim_call calls[] = {SIM_FAULTS_MOVE, SIM_FAULTS_REGISTER, SIM_FAULTS_OPEN, SIM_RELEASE};
    for (unsigned i = 0; i < ARRAY_LENGTH(calls); i++) {
        crowded_block(ZONE_MOVES_AUTO);
        sim_faults_offer(PLATFORM_FAULTS_MOVE);
        sim_fail_only(UINT64_C(1) << calls[i]);
        sim_fail_call(1, SIM_FOREVER);
        assert_null(grown());
        assert_int_equal(sim_fault_registrations(), 0); /* or who touches such a page waits for ever */
        assert_true(is_marked(block, PAGES, 1));
        assert_int_equal(zone_block_bytes(&zone, block), PAGES * GRANULE_BYTES);
        sim_fail_call(0, 0);
        drop_both();
    }
}

static void a_system_without_is_asked_once(void **state) {
    (void)state;
    crowded_block(ZONE_MOVES_AUTO);
    for (unsigned i = 0; i < 5; i++) assert_null(grown());
    assert_int_equal(sim_calls(SIM_FAULTS_OPEN), 1);
    drop_both();
}

/* The file is the parent's: what a child did with it would be done to the parent. */
static void a_child_opens_its_own(void **state) {
    (void)state;
    crowded_block(ZONE_MOVES_AUTO);
    sim_faults_offer(PLATFORM_FAULTS_MOVE);
    char *moved = grown();
    assert_non_null(moved);
    block = moved;
    zone_fork_prepare(&zone);
    zone_fork_child(&zone);
    assert_int_equal(zone.mover.faults.file, -1);
    char *other = must_block(1 * MIB, 1);
    mark(other, 256, 3);
    assert_int_equal(zone_pages_release(&zone, block, MIB), ZONE_OK);
    assert_int_equal(zone_pages_move(&zone, other, block, MIB), ZONE_OK);
    assert_true(is_marked(block, 256, 3) && is_zero(other, MIB));
    assert_int_equal(sim_calls(SIM_FAULTS_OPEN), 2);
    drop_block(other);
    drop_both();
}

static void each_way_can_be_forced(void **state) {
    (void)state;
    static const struct {
        enum zone_moves moves;
        unsigned tables, pages;
    } ways[] = {{ZONE_MOVES_AUTO, 1, 0}, {ZONE_MOVES_MREMAP, 1, 0}, {ZONE_MOVES_UFFD, 0, 256}, {ZONE_MOVES_COPY, 0, 0}};
    for (unsigned i = 0; i < ARRAY_LENGTH(ways); i++) {
        struct zone_config config = plain_config();
        config.moves = ways[i].moves;
        begin(NULL, config);
        sim_faults_offer(PLATFORM_FAULTS_MOVE);
        char *from = must_block(MIB, 1), *to = must_block(2 * MIB, 1);
        mark(from, 256, 1), mark(to, 512, 2);
        assert_int_equal(zone_pages_move(&zone, from, to + 16 * GRANULE_BYTES, MIB), ZONE_OK);
        assert_int_equal(sim_calls(SIM_MOVE), ways[i].tables);
        assert_int_equal(sim_calls(SIM_FAULTS_MOVE), ways[i].pages);
        assert_true(is_marked(to + 16 * GRANULE_BYTES, 256, 1) && is_marked(to, 16, 2) && is_zero(from, MIB));
        ASSERT_SOUND();
        drop_block(from), drop_block(to);
        assert_empty();
    }
}

/* Pages of `from`, each by itself, to every second one of the upper half of a block. */
#define ROW 40
static void move_scattered(char *from, char *to) {
    struct zone_pages_move moves[ROW];
    for (size_t i = 0; i < ROW; i++)
        moves[i] = (struct zone_pages_move){from + 3 * i * GRANULE_BYTES, to + (110 + 2 * i) * GRANULE_BYTES, GRANULE_BYTES};
    assert_int_equal(zone_pages_move_all(&zone, moves, ROW), ZONE_OK);
    for (size_t i = 0; i < ROW; i++) assert_true(is_zero(from + 3 * i * GRANULE_BYTES, GRANULE_BYTES));
}
static bool has_arrived(const char *to, const char *like) {
    bool same = true;
    for (size_t i = 0; i < ROW; i++) same &= memcmp(to + (110 + 2 * i) * GRANULE_BYTES, like + 3 * i * GRANULE_BYTES, GRANULE_BYTES) == 0;
    return same;
}

/*
 * Scattered pages into one block: to absent ones by one registration, to present ones by copies; by copies all where page tables may cut mappings, as
 * one page is too little for these.
 */
static void rows_take_the_cheapest_way(void **state) {
    (void)state;
    static const struct {
        enum zone_moves moves;
        bool crowded, absent;
        unsigned registrations, pages;
    } ways[] = {{ZONE_MOVES_AUTO, true, true, 1, ROW}, {ZONE_MOVES_AUTO, true, false, 0, 0},   {ZONE_MOVES_AUTO, false, true, 0, 0},
                {ZONE_MOVES_AUTO, false, false, 0, 0}, {ZONE_MOVES_UFFD, false, true, 1, ROW}, {ZONE_MOVES_COPY, false, true, 0, 0},
                {ZONE_MOVES_MREMAP, true, true, 0, 0}, {ZONE_MOVES_UFFD, false, false, 0, 0}};
    for (unsigned i = 0; i < ARRAY_LENGTH(ways); i++) {
        crowded_block(ways[i].moves);
        if (!ways[i].crowded) sim_set_map_count_limit(65530);
        sim_faults_offer(PLATFORM_FAULTS_MOVE);
        char *from = must_block(MIB, 1), *like = must_block(MIB, 1), *to = must_block(MIB, 1);
        mark(from, 256, 7), mark(like, 256, 7);
        mark(to, 256, 9);
        if (ways[i].absent) assert_int_equal(zone_pages_release(&zone, to + 100 * GRANULE_BYTES, MIB - 100 * GRANULE_BYTES), ZONE_OK);
        uint64_t moves = counters().moves;
        move_scattered(from, to);
        assert_int_equal(sim_calls(SIM_FAULTS_REGISTER), ways[i].registrations);
        assert_int_equal(sim_calls(SIM_FAULTS_MOVE), ways[i].pages);
        assert_int_equal(sim_calls(SIM_MOVE), 0);
        assert_int_equal(counters().moves, moves + ways[i].pages);
        assert_int_equal(sim_fault_registrations(), 0);
        assert_true(has_arrived(to, like) && is_marked(to, 100, 9));
        ASSERT_SOUND();
        drop_block(from), drop_block(like), drop_block(to);
        drop_both();
    }
}

/* Absent pages beside those that a row goes to say nothing of it: these are there, so it is copied. */
static void only_where_a_row_goes_is_asked_for(void **state) {
    (void)state;
    crowded_block(ZONE_MOVES_AUTO);
    sim_faults_offer(PLATFORM_FAULTS_MOVE);
    char *from = must_block(MIB, 1), *like = must_block(MIB, 1), *to = must_block(MIB, 1);
    mark(from, 256, 7), mark(like, 256, 7);
    mark(to, 256, 9);
    for (size_t page = 101; page < 256; page += page < 190 ? 2 : 1)
        assert_int_equal(zone_pages_release(&zone, to + page * GRANULE_BYTES, GRANULE_BYTES), ZONE_OK);
    move_scattered(from, to);
    assert_int_equal(sim_calls(SIM_FAULTS_MOVE), 0);
    assert_true(has_arrived(to, like) && is_marked(to, 100, 9));
    ASSERT_SOUND();
    drop_block(from), drop_block(like), drop_block(to);
    drop_both();
}

/* Whatever is refused, from whichever page on: the rest is copied, and nobody waits for a page. */
static void a_refusal_in_a_row_loses_nothing(void **state) {
    (void)state;
    static const enum sim_call calls[] = {SIM_FAULTS_MOVE, SIM_FAULTS_REGISTER, SIM_FAULTS_OPEN, SIM_RELEASE};
    for (unsigned i = 0; i < ARRAY_LENGTH(calls); i++) {
        for (unsigned nth = 1; nth <= ROW; nth += 13) {
            crowded_block(ZONE_MOVES_AUTO);
            sim_faults_offer(PLATFORM_FAULTS_MOVE);
            char *from = must_block(MIB, 1), *like = must_block(MIB, 1), *to = must_block(MIB, 1);
            mark(from, 256, 7), mark(like, 256, 7);
            assert_int_equal(zone_pages_release(&zone, to, MIB), ZONE_OK);
            sim_fail_only(UINT64_C(1) << calls[i]);
            sim_fail_call(nth, SIM_FOREVER);
            move_scattered(from, to);
            sim_fail_call(0, 0);
            assert_int_equal(sim_fault_registrations(), 0);
            assert_true(has_arrived(to, like));
            ASSERT_SOUND();
            drop_block(from), drop_block(like), drop_block(to);
            drop_both();
        }
    }
}

/* A block with something behind it, and present granules idle elsewhere, in a heap that looks at what is there. */
static void block_beside_idle(void) {
    begin(NULL, plain_config());
    char *large = must_block(6 * MIB, 1); /* the peak of this heap */
    drop_block(large);
    zone_release(&zone, 0);
    bool zeroed;
    block = zone_block_alloc(&zone, 200 * GRANULE_BYTES, 1, &zeroed); /* not even read */
    assert_non_null(block);
    wall = must_block(GRANULE_BYTES, 1);
    mark(wall, 1, 2);
    char *others = must_block(400 * GRANULE_BYTES, 1);
    mark(others, 400, 3);
    drop_block(others);
}
static char *grown_in_a_superpage(void) { return zone_block_resize(&zone, block, 300 * GRANULE_BYTES, true); }

/* Pages that move leave none behind; a copy to where as many are idle leaves them for the next block. */
static void what_is_idle_is_copied_to(void **state) {
    (void)state;
    block_beside_idle();
    mark(block, 200, 1);
    assert_null(grown_in_a_superpage());
    assert_int_equal(sim_calls(SIM_MOVE), 0);
    assert_true(is_marked(block, 200, 1));
    ASSERT_SOUND();
    zone_release(&zone, 0); /* nothing is idle: there is nowhere to copy to */
    char *moved = grown_in_a_superpage();
    assert_non_null(moved);
    assert_int_equal(sim_calls(SIM_MOVE), 1);
    assert_true(is_marked(moved, 200, 1));
    block = moved;
    drop_both();
}

/* Many of them may come, and each would copy all of it. */
static void small_steps_move(void **state) {
    (void)state;
    block_beside_idle();
    mark(block, 200, 1);
    char *moved = zone_block_resize(&zone, block, 249 * GRANULE_BYTES, true);
    assert_non_null(moved);
    assert_in_range(sim_calls(SIM_MOVE), 1, 3);
    assert_true(is_marked(moved, 200, 1));
    block = moved;
    drop_both();
}

/* Behind a copy all of it would be present. */
static void what_was_never_touched_moves(void **state) {
    (void)state;
    for (unsigned touched = 150; touched <= 200; touched += 25) {
        block_beside_idle();
        mark(block, touched, 1);
        const size_t present = sim_populated_pages(block, 200 * GRANULE_BYTES);
        char *moved = grown_in_a_superpage();
        assert_int_equal(moved != NULL, touched < 175);
        if (moved != NULL) block = moved;
        assert_int_equal(sim_populated_pages(block, 200 * GRANULE_BYTES), present);
        assert_true(is_marked(block, touched, 1));
        drop_both();
    }
}

/* Old and new block are there together while the one is copied: where a limit forbids that, a move has to do. */
static void a_limit_leaves_no_room_for_a_copy(void **state) {
    (void)state;
    block_beside_idle();
    mark(block, 200, 1);
    zone.config.hard_limit_bytes = 450 * GRANULE_BYTES;
    char *moved = grown_in_a_superpage();
    assert_non_null(moved);
    assert_true(is_marked(moved, 200, 1));
    block = moved;
    drop_both();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_idle_is_copied_to),
        cmocka_unit_test(small_steps_move),
        cmocka_unit_test(what_was_never_touched_moves),
        cmocka_unit_test(a_limit_leaves_no_room_for_a_copy),
        cmocka_unit_test(without_mappings_pages_move_one_by_one),
        cmocka_unit_test(what_will_not_move_is_copied),
        cmocka_unit_test(what_is_in_the_way_is_marked_wherever_it_is),
        cmocka_unit_test(what_a_copy_leaves_is_counted),
        cmocka_unit_test(a_refusal_leaves_the_block),
        cmocka_unit_test(a_system_without_is_asked_once),
        cmocka_unit_test(a_child_opens_its_own),
        cmocka_unit_test(each_way_can_be_forced),
        cmocka_unit_test(rows_take_the_cheapest_way),
        cmocka_unit_test(only_where_a_row_goes_is_asked_for),
        cmocka_unit_test(a_refusal_in_a_row_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
