/*
 * test_exchange.c - contents that change places, pages that leave and come: by page tables, by a copy, where calls fail, and what the marks say of
 * pages that are missing from inside a block.
 */
#include "unit/page/page_support.h"

static void exchange(size_t bytes, size_t a_offset, size_t b_offset, uint64_t moves) {
    size_t granules = bytes / GRANULE_BYTES;
    char *a = must_block(6 * MIB, 1), *b = must_block(6 * MIB, 1);
    uint64_t before = sim_calls(SIM_MOVE);
    mark(a + a_offset, granules, 1), mark(b + b_offset, granules, 2);
    assert_int_equal(zone_pages_swap(&zone, a + a_offset, b + b_offset, bytes), ZONE_OK);
    assert_int_equal(sim_calls(SIM_MOVE) - before, moves);
    assert_true(is_marked(a + a_offset, granules, 2) && is_marked(b + b_offset, granules, 1));
    ASSERT_SOUND();
    assert_int_equal(zone_pages_swap(&zone, a + a_offset, b + b_offset, bytes), ZONE_OK);
    assert_true(is_marked(a + a_offset, granules, 1) && is_marked(b + b_offset, granules, 2));
    drop_block(a), drop_block(b);
    assert_empty();
}

static void contents_change_places(void **state) {
    (void)state;
    exchange(6 * MIB, 0, 0, 1);
    exchange(3 * MIB, MIB, MIB, 1);
    exchange(90 * GRANULE_BYTES, 3 * GRANULE_BYTES, 700 * GRANULE_BYTES, 1); /* not the same place modulo a superpage */
    exchange(80 * GRANULE_BYTES, 0, 0, 0);                                   /* a copy is cheaper */
}

/* The advice belongs to the mapping, and changes places with the pages. */
static void advice_changes_places_too(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.thp = ZONE_THP_AUTO;
    begin(NULL, config);
    const struct zone_block_config asks = {.bytes = 4 * MIB, .mobility = MOBILITY_MOVABLE, .huge = true};
    char *a = zone_block_create(&zone, &asks, NULL), *b = must_block(4 * MIB, 1);
    uint64_t huge_bytes;
    mark(a, 1024, 1), mark(b, 1024, 2);
    assert_true(superpage_of(&zone, a)->huge && !superpage_of(&zone, b)->huge);
    assert_int_equal(zone_pages_swap(&zone, a, b, 4 * MIB), ZONE_OK);
    assert_true(platform_huge_in(b, 4 * MIB, &huge_bytes) && huge_bytes == 4 * MIB);
    for (unsigned i = 0; i < 2; i++) assert_true(superpage_of(&zone, b)[i].huge && !superpage_of(&zone, a)[i].huge);
    ASSERT_SOUND();
    drop_block(a), drop_block(b);
    assert_empty();
}

static void inside_one_block_too(void **state) {
    (void)state;
    char *block = must_block(8 * MIB, 1);
    mark(block, 1024, 1), mark(block + 4 * MIB, 1024, 2);
    assert_int_equal(zone_pages_swap(&zone, block, block + 4 * MIB, 4 * MIB), ZONE_OK);
    assert_true(is_marked(block, 1024, 2) && is_marked(block + 4 * MIB, 1024, 1));
    ASSERT_SOUND();
    drop_block(block);
    assert_empty();
}

static void what_is_no_range_is_refused(void **state) {
    (void)state;
    char *a = must_block(4 * MIB, 1), *b = must_block(4 * MIB, 1), outside[64];
    mark(a, 1024, 1), mark(b, 1024, 2);
    struct {
        char *a, *b;
        size_t bytes;
        enum zone_status status;
    } wrong[] = {
        {a, b, 0, ZONE_BAD_RANGE},
        {a + 1, b, MIB, ZONE_BAD_RANGE},
        {a, b + 1, MIB, ZONE_BAD_RANGE},
        {a, b, MIB + 1, ZONE_BAD_RANGE},
        {a, b, 5 * MIB, ZONE_NO_BLOCK},
        {a + 3 * MIB, b, 2 * MIB, ZONE_NO_BLOCK},
        {a, b + 3 * MIB, 2 * MIB, ZONE_NO_BLOCK},
        {a, (char *)align_down((uintptr_t)outside, GRANULE_BYTES), GRANULE_BYTES, ZONE_NO_BLOCK},
        {a, a, MIB, ZONE_OVERLAP},
        {a, a + MIB, MIB + GRANULE_BYTES, ZONE_OVERLAP},
        {a, b, SIZE_MAX & ~(GRANULE_BYTES - 1), ZONE_BAD_RANGE},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (zone_pages_swap(&zone, wrong[i].a, wrong[i].b, wrong[i].bytes) != wrong[i].status) fail_msg("case %zu", i);
        assert_int_equal(zone_pages_move(&zone, wrong[i].a, wrong[i].b, wrong[i].bytes), wrong[i].status);
    }
    assert_int_equal(zone_pages_release(&zone, a + 1, MIB), ZONE_BAD_RANGE);
    assert_int_equal(zone_pages_release(&zone, (a > b ? a : b) + 4 * MIB, MIB), ZONE_NO_BLOCK);
    assert_int_equal(zone_pages_populate(&zone, a, 0, NULL, NULL), ZONE_BAD_RANGE);
    assert_int_equal(zone_pages_populate(&zone, a, 5 * MIB, NULL, NULL), ZONE_NO_BLOCK);
    assert_true(is_marked(a, 1024, 1) && is_marked(b, 1024, 2));
    ASSERT_SOUND();
    drop_block(a), drop_block(b);
    assert_empty();
}

static void pages_go_and_leave_zeros(void **state) {
    (void)state;
    char *a = must_block(4 * MIB, 1), *b = must_block(4 * MIB, 1);
    mark(a, 1024, 1), mark(b, 1024, 2);
    assert_int_equal(zone_pages_move(&zone, a, b, 2 * MIB), ZONE_OK);
    assert_true(is_marked(b, 512, 1));
    assert_int_equal(sim_populated_pages(a, 2 * MIB), 0);
    assert_true(is_zero(a, 2 * MIB));
    assert_int_equal(zone_pages_move(&zone, a + 2 * MIB, b + 2 * MIB, GRANULE_BYTES), ZONE_OK); /* by a copy */
    assert_true(is_zero(a + 2 * MIB, GRANULE_BYTES));
    ASSERT_SOUND();
    drop_block(a), drop_block(b);
    assert_empty();
}

/* Pages that are missing when a block goes are not counted as idle ones that wait, and nobody gets old contents as zeros. */
static void missing_pages_are_known_when_a_block_goes(void **state) {
    (void)state;
    char *block = must_block(4 * MIB, 1);
    mark(block, 1024, 1);
    assert_int_equal(zone_pages_release(&zone, block, 3 * MIB), ZONE_OK);
    assert_true(is_zero(block, GRANULE_BYTES));
    memset(block + GRANULE_BYTES, 7, GRANULE_BYTES); /* one comes back, with contents */
    assert_int_equal(counters().allocated, 1024);
    ASSERT_SOUND();
    drop_block(block);
    assert_int_equal(counters().idle, 256 + 2); /* the MiB that was kept, the one that was read, the one that was written */
    ASSERT_SOUND();
    bool zeroed;
    char *again = zone_block_alloc(&zone, 4 * MIB, 1, &zeroed);
    assert_ptr_equal(again, block);
    assert_true(!zeroed);
    assert_int_equal(zone_pages_release(&zone, again, 4 * MIB), ZONE_OK);
    assert_non_null(zone_block_resize(&zone, again, 3 * MIB, false)); /* also when it shrinks */
    assert_int_equal(counters().idle, 0);
    ASSERT_SOUND();
    drop_block(again);
    assert_empty();
}

static void holes_go_where_the_pages_go(void **state) {
    (void)state;
    char *a = must_block(4 * MIB, 1), *b = must_block(4 * MIB, 1);
    mark(a, 1024, 1), mark(b, 1024, 2);
    assert_int_equal(zone_pages_release(&zone, a, 4 * MIB), ZONE_OK);
    assert_int_equal(zone_pages_swap(&zone, a, b, 4 * MIB), ZONE_OK);
    assert_true(is_marked(a, 1024, 2));
    assert_int_equal(sim_populated_pages(b, 4 * MIB), 0);
    drop_block(b);
    assert_int_equal(counters().idle, 0);
    ASSERT_SOUND();
    char *run = must_block(100 * GRANULE_BYTES, 1);
    mark(run, 100, 3);
    assert_int_equal(zone_pages_release(&zone, run, 60 * GRANULE_BYTES), ZONE_OK);
    char *second = run + 50 * GRANULE_BYTES;
    assert_int_equal(zone_block_split(&zone, run, 50 * GRANULE_BYTES), ZONE_OK);
    drop_block(run);
    assert_int_equal(counters().idle, 0);
    drop_block(second);
    assert_int_equal(counters().idle, 40);
    ASSERT_SOUND();
    drop_block(a);
    assert_empty();
}

static void a_system_that_can_not_tell_is_taken_at_its_word(void **state) {
    (void)state;
    char *block = must_block(4 * MIB, 1);
    mark(block, 1024, 1);
    assert_int_equal(zone_pages_release(&zone, block, 4 * MIB), ZONE_OK);
    sim_fail_only(UINT64_C(1) << SIM_PRESENCE);
    sim_fail_call(1, SIM_FOREVER);
    drop_block(block);
    assert_int_equal(counters().idle, 1024); /* as if they were there: a fault more, no harm */
    ASSERT_SOUND();
}

static void without_moves_all_goes_by_copies(void **state) {
    (void)state;
    sim_fail_only(UINT64_C(1) << SIM_MOVE);
    sim_fail_call(1, SIM_FOREVER);
    char *a = must_block(4 * MIB, 1), *b = must_block(4 * MIB, 1);
    mark(a, 1024, 1), mark(b, 1024, 2);
    assert_int_equal(zone_pages_swap(&zone, a, b, 4 * MIB), ZONE_OK);
    assert_true(is_marked(a, 1024, 2) && is_marked(b, 1024, 1));
    assert_int_equal(zone_pages_move(&zone, a, b, 4 * MIB), ZONE_OK);
    assert_true(is_marked(b, 1024, 2) && holds_zeros(a, 4 * MIB));
    ASSERT_SOUND();
    drop_block(a), drop_block(b);
    assert_empty();
}

static void at_the_end_of_mappings_all_goes_by_copies(void **state) {
    (void)state;
    char *a = must_block(4 * MIB, 1), *b = must_block(4 * MIB, 1);
    mark(a, 1024, 1), mark(b, 1024, 2);
    sim_set_map_count_limit(20);
    uint64_t moves = sim_calls(SIM_MOVE);
    assert_int_equal(zone_pages_swap(&zone, a, b, 4 * MIB), ZONE_OK);
    assert_true(is_marked(a, 1024, 2) && is_marked(b, 1024, 1));
    assert_int_equal(sim_calls(SIM_MOVE), moves);
    ASSERT_SOUND();
    drop_block(a), drop_block(b);
}

static bool count_pieces(size_t done, void *argument) {
    size_t *pieces = argument;
    (void)done;
    return --*pieces != 0;
}

static void populating_can_be_watched_and_ended(void **state) {
    (void)state;
    char *block = must_block(40 * MIB, 1);
    size_t pieces = 2;
    assert_int_equal(zone_pages_release(&zone, block, 40 * MIB), ZONE_OK);
    assert_int_equal(zone_pages_populate(&zone, block, 40 * MIB, count_pieces, &pieces), ZONE_CUT_SHORT);
    assert_int_equal(sim_populated_pages(block, 40 * MIB), 32 * MIB / GRANULE_BYTES);
    pieces = 100;
    assert_int_equal(zone_pages_populate(&zone, block, 40 * MIB, count_pieces, &pieces), ZONE_OK);
    assert_int_equal(pieces, 97);
    assert_int_equal(sim_populated_pages(block, 40 * MIB), 40 * MIB / GRANULE_BYTES);
    drop_block(block);
    block = must_block(2 * MIB, 1);
    assert_int_equal(zone_pages_release(&zone, block, 2 * MIB), ZONE_OK);
    sim_fail_only(UINT64_C(1) << SIM_POPULATE);
    sim_fail_call(1, SIM_FOREVER);
    assert_int_equal(zone_pages_populate(&zone, block, 2 * MIB, NULL, NULL), ZONE_OK); /* by touching */
    assert_int_equal(sim_populated_pages(block, 2 * MIB), 512);
    ASSERT_SOUND();
    drop_block(block);
    assert_empty();
}

/* Blocks of a small heap, of which all counts as touched: what is said to be absent of one is so by exchanges and moves alone. */
static void what_leaves_a_block_is_known_of_it(void **state) {
    enum { SIZE = 300 * GRANULE_BYTES };
    static const struct {
        bool swap, backwards;
    } ways[] = {{true, false}, {true, true}, {false, false}, {false, true}};
    for (unsigned i = 0; i < ARRAY_LENGTH(ways); i++) {
        (void)plain_zone(state);
        char *full = must_block(SIZE, 1), *empty = must_block(SIZE, 1);
        mark(full, 300, 1);
        mark(empty, 300, 2);
        assert_false(zone_may_lack_pages(block_of(&zone, full)) || zone_may_lack_pages(block_of(&zone, empty)));
        if (ways[i].swap || ways[i].backwards) assert_int_equal(zone_pages_release(&zone, empty, SIZE), ZONE_OK);
        char *from = ways[i].backwards ? empty : full, *to = ways[i].backwards ? full : empty;
        if (ways[i].swap)
            assert_int_equal(zone_pages_swap(&zone, from, to, SIZE), ZONE_OK);
        else
            assert_int_equal(zone_pages_move(&zone, from, to, SIZE), ZONE_OK);
        const uint64_t left = sim_populated_pages(full, SIZE), came = sim_populated_pages(empty, SIZE);
        assert_true(sim_calls(SIM_MOVE) != 0 && left == 0 && came == (ways[i].swap || !ways[i].backwards ? 300 : 0));
        drop_block(full);
        assert_int_equal(counters().idle, left);
        drop_block(empty);
        assert_int_equal(counters().idle, left + came);
        ASSERT_SOUND();
        assert_empty();
    }
}

static const char *watched;
static unsigned ended;

static void watches_end(char *address, size_t bytes) { ended += watched >= address && watched < address + bytes; }

/* One page is watched, in the range itself, and its watch ends. */
static void assert_ends(char *page, enum zone_status (*change)(char *a, char *b), char *a, char *b) {
    watched = page;
    ended = 0;
    assert_int_equal(zone_pages_watch(&zone, page, GRANULE_BYTES, watches_end), ZONE_OK);
    assert_int_equal(change(a, b), ZONE_OK);
    assert_int_not_equal(ended, 0);
}
static enum zone_status swap_half(char *a, char *b) { return zone_pages_swap(&zone, a, b, MIB); }
static enum zone_status move_half(char *a, char *b) { return zone_pages_move(&zone, a, b, MIB); }
static enum zone_status swap_page(char *a, char *b) { return zone_pages_swap(&zone, a, b, GRANULE_BYTES); }
static enum zone_status move_page(char *a, char *b) { return zone_pages_move(&zone, a, b, GRANULE_BYTES); }
static enum zone_status release_half(char *a, char *b) {
    (void)b;
    return zone_pages_release(&zone, a, MIB);
}

static void watches_end_where_pages_go_and_come(void **state) {
    (void)state;
    enum zone_status (*const changes[])(char *a, char *b) = {swap_half, move_half, swap_page, move_page};
    char *a = must_block(2 * MIB, 1), *b = must_block(2 * MIB, 1);
    for (unsigned i = 0; i < ARRAY_LENGTH(changes); i++) {
        assert_ends(a, changes[i], a, b);
        assert_ends(b, changes[i], a, b);
    }
    assert_ends(a + MIB / 2, release_half, a, NULL);
    watched = b + MIB; /* nothing has happened there */
    ended = 0;
    swap_half(a, b);
    assert_int_equal(ended, 0);
    drop_block(a), drop_block(b);
    assert_int_not_equal(ended, 0);
    assert_empty();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(contents_change_places, plain_zone),
        cmocka_unit_test_setup(advice_changes_places_too, plain_zone),
        cmocka_unit_test_setup(inside_one_block_too, plain_zone),
        cmocka_unit_test_setup(what_is_no_range_is_refused, plain_zone),
        cmocka_unit_test_setup(pages_go_and_leave_zeros, plain_zone),
        cmocka_unit_test_setup(missing_pages_are_known_when_a_block_goes, plain_zone),
        cmocka_unit_test_setup(holes_go_where_the_pages_go, plain_zone),
        cmocka_unit_test_setup(a_system_that_can_not_tell_is_taken_at_its_word, plain_zone),
        cmocka_unit_test_setup(without_moves_all_goes_by_copies, plain_zone),
        cmocka_unit_test_setup(at_the_end_of_mappings_all_goes_by_copies, plain_zone),
        cmocka_unit_test_setup(populating_can_be_watched_and_ended, plain_zone),
        cmocka_unit_test_setup(what_leaves_a_block_is_known_of_it, plain_zone),
        cmocka_unit_test_setup(watches_end_where_pages_go_and_come, plain_zone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
