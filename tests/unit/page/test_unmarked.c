/*
 * test_unmarked.c - large blocks that grow into superpages that were never used: their marks are put off, and true for whoever looks at them.
 */
#include "unit/page/page_support.h"

#define FIRST (2 * MIB)
#define LARGE (32 * MIB)

static int wide_zone(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.reserve_bytes = 256 * MIB;
    begin(NULL, config);
    return 0;
}

static char *grown(size_t bytes) {
    char *block = must_block(FIRST, 1);
    mark(block, FIRST / GRANULE_BYTES, 7);
    assert_ptr_equal(zone_block_resize(&zone, block, bytes, false), block);
    return block;
}

/* Looks past the lock, which would make marks true. */
static bool is_unmarked(const char *block, size_t from, size_t to) {
    if (zone.unmarked.to == 0) return false;
    assert_int_equal(zone.unmarked.from, zone_granule_of(&zone, block + from));
    assert_int_equal(zone.unmarked.to, zone_granule_of(&zone, block) + to / GRANULE_BYTES);
    for (size_t i = number_of(block + from); i < number_of(block + to); i++)
        if (zone.superpages[i].state != SUPERPAGE_FREE || bits_count(zone.superpages[i].allocated) != 0) return false;
    return true;
}

static void growth_puts_marks_off_and_counts_at_once(void **state) {
    (void)state;
    char *block = grown(LARGE);
    assert_true(is_unmarked(block, FIRST, LARGE));
    assert_int_equal(zone.counters.allocated, LARGE / GRANULE_BYTES);
    assert_int_equal(zone.counters.populated, LARGE / GRANULE_BYTES);
    assert_int_equal(zone.counters.block_granules, LARGE / GRANULE_BYTES);
    assert_int_equal(zone_block_bytes(&zone, block), LARGE);
    assert_ptr_equal(zone_block_resize(&zone, block, 2 * LARGE, false), block); /* goes on where it ended */
    assert_true(is_unmarked(block, FIRST, 2 * LARGE));
    assert_ptr_equal(zone_block_resize(&zone, block, 4 * LARGE - 3 * GRANULE_BYTES, false), block); /* ends inside of a superpage */
    assert_true(zone.unmarked.to != 0);
    ASSERT_SOUND();
    assert_int_equal(zone.unmarked.to, 0);
    assert_int_equal(counters().allocated, 4 * LARGE / GRANULE_BYTES - 3);
    assert_int_equal(counters().populated_total - counters().released_total, counters().populated);
    assert_true(is_marked(block, FIRST / GRANULE_BYTES, 7) && is_zero(block + LARGE, GRANULE_BYTES));
    drop_block(block);
    assert_empty();
}

static void do_run(char *block) {
    (void)block;
    drop_run(must_run(3, 1, MOBILITY_UNMOVABLE));
}
static void do_block(char *block) {
    (void)block;
    drop_block(must_block(5 * MIB, 1));
}
static void do_small_growth(char *block) { assert_ptr_equal(zone_block_resize(&zone, block, LARGE + 2 * MIB, false), block); }
static void do_shrink(char *block) { assert_ptr_equal(zone_block_resize(&zone, block, 3 * MIB, false), block); }
static void do_split(char *block) {
    assert_int_equal(zone_block_split(&zone, block, 6 * MIB), ZONE_OK);
    assert_int_equal(zone_block_join(&zone, block, block + 6 * MIB), ZONE_OK);
}
static void do_find(char *block) {
    struct zone_block_info info;
    assert_int_equal(zone_block_find(&zone, block + LARGE - 1, 1, &info), ZONE_OK);
    assert_ptr_equal(info.start, block);
}
static void do_swap(char *block) { assert_int_equal(zone_pages_swap(&zone, block + 4 * MIB, block + 20 * MIB, 4 * MIB), ZONE_OK); }
static void do_release(char *block) { assert_int_equal(zone_pages_release(&zone, block + 8 * MIB, 8 * MIB), ZONE_OK); }
static void do_trim(char *block) {
    (void)block;
    (void)zone_release(&zone, 0);
}
static void do_tick(char *block) {
    (void)block;
    (void)zone_tick(&zone);
}
static void do_fork(char *block) {
    (void)block;
    zone_fork_prepare(&zone);
    assert_int_equal(zone.unmarked.to, 0); /* for the child */
    zone_fork_parent(&zone);
}

static void whoever_takes_the_lock_finds_true_marks(void **state) {
    void (*const doings[])(char *) = {do_run,  do_block,   do_small_growth, do_shrink, do_split, do_find,
                                      do_swap, do_release, do_trim,         do_tick,   do_fork};
    for (size_t i = 0; i < ARRAY_LENGTH(doings); i++) {
        (void)wide_zone(state);
        char *block = grown(LARGE);
        assert_true(is_unmarked(block, FIRST, LARGE));
        doings[i](block);
        assert_int_equal(zone.unmarked.to, 0);
        ASSERT_SOUND();
        assert_true(is_marked(block, FIRST / GRANULE_BYTES, 7));
        drop_block(block);
        assert_empty();
    }
}

static void the_end_of_a_block_that_has_grown_gives_all_back(void **state) {
    (void)state;
    char *block = grown(LARGE);
    mark(block, LARGE / GRANULE_BYTES, 9);
    assert_true(is_unmarked(block, FIRST, LARGE));
    drop_block(block);
    assert_empty();
    char *again = must_block(LARGE, 1); /* where something was before */
    assert_ptr_equal(zone_block_resize(&zone, again, LARGE + 2 * MIB, false), again);
    drop_block(again);
    assert_empty();
}

/* Each of these needs marks, or changes them: they are made at once. */
static void what_needs_marks_is_not_put_off(void **state) {
    (void)state;
    char *block = grown(FIRST + 4 * MIB); /* little */
    assert_int_equal(zone.unmarked.to, 0);
    ASSERT_SOUND();
    drop_block(must_block(100 * MIB, 1)); /* what lies behind was used */
    (void)counters();
    assert_ptr_equal(zone_block_resize(&zone, block, LARGE, false), block);
    assert_int_equal(zone.unmarked.to, 0);
    ASSERT_SOUND();

    (void)wide_zone(state);
    block = must_block(3 * MIB, 1); /* its last superpage is not full */
    assert_ptr_equal(zone_block_resize(&zone, block, LARGE, false), block);
    assert_int_equal(zone.unmarked.to, 0);
    ASSERT_SOUND();

    struct zone_config config = plain_config();
    config.thp = ZONE_THP_ALWAYS;
    begin(NULL, config);
    block = grown(LARGE);
    assert_int_equal(zone.unmarked.to, 0);
    assert_true(zone.superpages[number_of(block + LARGE - 1)].huge);
    ASSERT_SOUND();

    config.thp = ZONE_THP_AUTO;
    begin(NULL, config);
    zone.huge.trust = 100; /* known to be cheap */
    block = grown(FIRST + LARGE + 16 * MIB);
    assert_int_equal(zone.unmarked.to, 0);
    assert_true(zone.superpages[number_of(block + LARGE)].huge);
    ASSERT_SOUND();

    config.hard_limit_bytes = LARGE;
    begin(NULL, config);
    block = must_block(FIRST, 1);
    assert_null(zone_block_resize(&zone, block, LARGE + GRANULE_BYTES, true));
    assert_int_equal(zone_block_bytes(&zone, block), FIRST);
    ASSERT_SOUND();
}

static void a_soft_limit_holds_while_a_block_grows(void **state) {
    (void)state;
    char *block = must_block(FIRST, 1), *other = must_block(8 * MIB, 1), *top = must_block(FIRST, 1);
    drop_block(other);
    (void)counters(); /* it rests no more: idle pages */
    zone_set_soft_limit(&zone, LARGE);
    assert_ptr_equal(zone_block_resize(&zone, top, LARGE, false), top);
    assert_true(counters().populated * GRANULE_BYTES <= LARGE + FIRST);
    ASSERT_SOUND();
    drop_block(block), drop_block(top);
    assert_empty();
}

static void refusals_on_the_way_change_nothing(void **state) {
    unsigned refused = 0;
    for (uint64_t n = 1; n < 12; n++) {
        (void)wide_zone(state);
        char *block = grown(LARGE);
        sim_fail_only(SIM_FAIL_ALL);
        sim_fail_call(n, 2);
        char *now = zone_block_resize(&zone, block, 4 * LARGE, false);
        sim_fail_call(0, 0);
        refused += now == NULL;
        assert_int_equal(zone_block_bytes(&zone, block), now == NULL ? LARGE : 4 * LARGE);
        ASSERT_SOUND();
        assert_true(is_marked(block, FIRST / GRANULE_BYTES, 7));
        drop_block(block);
        assert_int_equal(counters().allocated, 0);
        ASSERT_SOUND();
    }
    assert_true(refused != 0 && refused < 11);
}

/* Steps from 4 MiB on ask two questions, commit arrays, then, where that costs nothing, a GiB of heap: each one thing. Later steps call nobody. */
static void no_step_does_two_things_ahead(void **state) {
    static const struct {
        bool no_locking, charged;
        uint64_t calls[5]; /* at 4, 8, 16, 32 and 64 MiB */
    } systems[] = {{true, false, {0, 0, 2, 1, 0}}, {false, false, {0, 1, 1, 0, 1}}, {true, true, {0, 0, 1, 1, 1}}};
    (void)state;
    for (unsigned i = 0; i < ARRAY_LENGTH(systems); i++) {
        bool costs = !systems[i].no_locking || systems[i].charged;
        struct zone_config config = plain_config();
        config.reserve_bytes = 4 * GIB;
        begin(&(struct sim_config){.no_locking = systems[i].no_locking, .commit_is_charged = systems[i].charged}, config);
        char *block = must_block(FIRST, 1);
        uint64_t later = 0;
        for (size_t bytes = 2 * FIRST, step = 0; bytes <= GIB; bytes *= 2, step++) {
            uint64_t before = sim_calls(SIM_COMMIT);
            assert_ptr_equal(zone_block_resize(&zone, block, bytes, false), block);
            uint64_t calls = sim_calls(SIM_COMMIT) - before;
            assert_true(calls <= 2);
            if (step < ARRAY_LENGTH(systems[i].calls)) assert_int_equal(calls, systems[i].calls[step]);
            if (bytes > 64 * MIB) later += calls;
        }
        assert_int_equal(later == 0, !costs);
        assert_true(zone.heap_bytes == zone.extent_bytes || !costs);
        assert_ptr_equal(zone_block_resize(&zone, block, 2 * GIB, false), block); /* what was ahead ends before */
        ASSERT_SOUND();
        drop_block(block);
        assert_empty();
    }
}

static void what_is_refused_ahead_is_had_as_needed(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.reserve_bytes = 4 * GIB;
    begin(&(struct sim_config){.no_locking = true}, config);
    char *block = must_block(FIRST, 1);
    for (size_t bytes = 2 * FIRST; bytes <= LARGE / 2; bytes *= 2) assert_ptr_equal(zone_block_resize(&zone, block, bytes, false), block);
    assert_true(zone.heap_bytes == zone.extent_bytes);
    sim_fail_only(UINT64_C(1) << SIM_COMMIT);
    sim_fail_call(1, 1);
    assert_ptr_equal(zone_block_resize(&zone, block, LARGE, false), block);
    assert_int_equal(sim_failures(), 1);
    assert_true(zone.heap_bytes == zone.extent_bytes && zone.heap_bytes < 2 * LARGE);
    assert_ptr_equal(zone_block_resize(&zone, block, 2 * LARGE, false), block);
    assert_true(zone.heap_bytes > GIB);
    ASSERT_SOUND();
}

/* Present pages decide where a block goes, and part of that place was never used before: from then on it was. */
static void a_place_that_was_chosen_by_its_pages_counts_as_used(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.reserve_bytes = 256 * MIB;
    config.moves = ZONE_MOVES_COPY; /* what is idle stays where it is */
    begin(NULL, config);
    char *gap = must_block(6 * MIB, 1), *keeper = must_block(2 * MIB, 1), *last = must_block(2 * MIB, 1);
    drop_block(gap);
    assert_int_equal(zone_release(&zone, 0), 6 * MIB);
    drop_block(last);
    (void)counters();                                            /* idle from now on */
    char *chosen = must_block(4 * MIB + 200 * GRANULE_BYTES, 1); /* would fit the gap, too */
    assert_ptr_equal(chosen, last);
    assert_true(platform_populate(chosen, zone_block_bytes(&zone, chosen)));
    char *fills_gap = must_block(6 * MIB, 1);
    drop_block(chosen);
    zone_release(&zone, 456 * GRANULE_BYTES); /* of its last two superpages something is left */
    char *grows = must_block(2 * MIB, 1);
    assert_ptr_equal(fills_gap, gap);
    assert_ptr_equal(grows, chosen + 2 * MIB);
    assert_true(counters().idle != 0 && zone.superpages[number_of(grows) + 1].idle != 0);
    assert_ptr_equal(zone_block_resize(&zone, grows, 24 * MIB, false), grows);
    ASSERT_SOUND();
    drop_block(keeper), drop_block(fills_gap), drop_block(grows);
    assert_empty();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(growth_puts_marks_off_and_counts_at_once, wide_zone),
        cmocka_unit_test_setup(whoever_takes_the_lock_finds_true_marks, wide_zone),
        cmocka_unit_test_setup(the_end_of_a_block_that_has_grown_gives_all_back, wide_zone),
        cmocka_unit_test_setup(what_needs_marks_is_not_put_off, wide_zone),
        cmocka_unit_test_setup(a_soft_limit_holds_while_a_block_grows, wide_zone),
        cmocka_unit_test_setup(refusals_on_the_way_change_nothing, wide_zone),
        cmocka_unit_test(no_step_does_two_things_ahead),
        cmocka_unit_test(what_is_refused_ahead_is_had_as_needed),
        cmocka_unit_test(a_place_that_was_chosen_by_its_pages_counts_as_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
