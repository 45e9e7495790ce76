/*
 * test_peak.c - what leaves in exchange where a heap is about to be larger than ever, and what stays where it was or above a soft limit; and runs lie
 * where pages are.
 */
#include "unit/page/page_support.h"

/* A heap that was larger before keeps what is idle; what would make it larger than ever is exchanged as at first. */
static void below_its_peak_a_heap_keeps_its_holes(void **state) {
    (void)state;
    static struct zone_run kept[SUPERPAGE_GRANULES];
    struct zone_run former[3] = {must_run(400, 1, MOBILITY_UNMOVABLE), must_run(400, 1, MOBILITY_UNMOVABLE), must_run(400, 1, MOBILITY_UNMOVABLE)};
    drop_all(former, 3);
    zone_release(&zone, 0);
    assert_int_equal(counters().populated, 0);
    unsigned n = make_holes(kept, 8, 256);
    uint64_t released = counters().released_total;
    struct zone_run fresh[2] = {must_run(100, 1, MOBILITY_UNMOVABLE), must_run(300, 1, MOBILITY_UNMOVABLE)};
    assert_int_equal(counters().populated, 912);
    assert_int_equal(counters().idle, 256);
    assert_int_equal(counters().released_total, released);
    struct zone_run above = must_run(400, 1, MOBILITY_UNMOVABLE); /* 1,312: 112 more than ever */
    assert_in_range(counters().populated, 1200 - 8, 1200);
    assert_in_range(counters().idle, 144 - 8, 144);
    assert_int_equal(present_granules(), counters().populated);
    ASSERT_SOUND();
    drop_run(above), drop_all(fresh, 2), drop_all(kept, n);
    assert_empty();
}

/* Who exchanges much keeps more: one granule for eight that were exchanged since the last ticks, beside the reserve. */
static void exchanges_make_the_reserve_larger(void **state) {
    (void)state;
    static struct zone_run kept[SUPERPAGE_GRANULES], fresh[40];
    unsigned n = make_holes(kept, 8, 256), runs = 0;
    uint64_t released = counters().released_total, idle = counters().idle;
    while (runs < ARRAY_LENGTH(fresh)) fresh[runs++] = must_run(20, 1, MOBILITY_UNMOVABLE);
    const uint64_t exchanged = counters().released_total - released;
    assert_int_equal(counters().idle, idle - exchanged);
    assert_in_range(counters().idle, 16 + exchanged / 8 - 8, 16 + exchanged / 8); /* but for the last hole, which was taken whole */
    assert_in_range(exchanged / 8, 16, 32);                                       /* so it was no small part */
    assert_int_equal(zone.exchanged, exchanged);
    ASSERT_SOUND();
    (void)zone_tick(&zone);
    assert_int_equal(zone.exchanged, exchanged / 2);
    drop_all(fresh, runs), drop_all(kept, n);
    assert_empty();
}

/*
 * Of superpages that are wholly free a part leaves in exchange for a few fresh pages, not one whole: the next runs would touch all of it again. What
 * is wanted in larger numbers goes whole.
 */
static void few_fresh_pages_cost_few_idle_ones(void **state) {
    (void)state;
    struct zone_run former[3] = {must_run(500, 1, MOBILITY_UNMOVABLE), must_run(500, 1, MOBILITY_UNMOVABLE), must_run(500, 1, MOBILITY_UNMOVABLE)};
    drop_all(former, 3);
    assert_int_equal(counters().idle, 1500);
    struct zone_run longer = must_run(506, 1, MOBILITY_UNMOVABLE); /* as none was before: six are fresh */
    assert_int_equal(longer.fresh, 6);
    assert_int_equal(counters().released_total, 500 - 448); /* from the last word on that has some */
    assert_int_equal(counters().idle, 1000 - 52);
    assert_int_equal(present_granules(), counters().populated);
    struct zone_run again = must_run(500, 1, MOBILITY_UNMOVABLE), rest = must_run(430, 1, MOBILITY_UNMOVABLE);
    assert_int_equal(again.fresh + rest.fresh, 0); /* what stayed serves them */
    drop_run(again), drop_run(rest), drop_run(longer);
    assert_int_equal(counters().idle, 1454);
    assert_int_equal(zone_release(&zone, 0), 1454 * GRANULE_BYTES);
    assert_int_equal(present_granules(), 0);
    assert_empty();
}

/* What another thread is giving back at this moment, without the lock, is present still: it makes no new peak, and nothing else leaves for it. */
static void what_is_about_to_leave_is_no_peak(void **state) {
    (void)state;
    struct zone_run former = must_run(400, 1, MOBILITY_UNMOVABLE), wall = must_run(1, 1, MOBILITY_UNMOVABLE);
    drop_run(former);
    const uint64_t peak = zone.populated_peak;
    zone.captured = 100; /* which count as allocated */
    zone.counters.allocated += 100;
    struct zone_run fresh = must_run(100, 1, MOBILITY_RECLAIMABLE);
    assert_int_equal(fresh.fresh, 100);
    assert_int_equal(counters().idle, 400);
    assert_int_equal(zone.populated_peak, peak);
    struct zone_run more = must_run(50, 1, MOBILITY_RECLAIMABLE);
    assert_int_equal(zone.populated_peak, peak);
    assert_in_range(counters().idle, 350 - 64, 350);
    zone.captured = 0;
    zone.counters.allocated -= 100;
    drop_run(fresh), drop_run(more), drop_run(wall);
    assert_empty();
}

/* Where a run's pages can't be all present it lies where most are, not in the fullest superpage. */
static void a_run_lies_where_most_is_present(void **state) {
    (void)state;
    struct zone_run fullest = must_run(440, 1, MOBILITY_UNMOVABLE), fill = must_run(72, 1, MOBILITY_UNMOVABLE);
    struct zone_run other = must_run(300, 1, MOBILITY_UNMOVABLE), present = must_run(40, 1, MOBILITY_UNMOVABLE),
                    end = must_run(172, 1, MOBILITY_UNMOVABLE);
    drop_run(fill);
    drop_run(end);
    zone_release(&zone, 0); /* both superpages have room at their ends, of which nothing is present */
    drop_run(present);      /* 40 idle ones in front of 172 absent ones */
    struct zone_run run = must_run(60, 1, MOBILITY_UNMOVABLE);
    assert_ptr_equal(run.address, present.address);
    assert_int_equal(run.fresh, 20);
    drop_run(run), drop_run(other), drop_run(fullest);
    assert_empty();
}

static char *touched_block(size_t granules) {
    char *block = must_block(granules * GRANULE_BYTES, 1);
    mark(block, granules, 1);
    return block;
}
static void come_and_go(unsigned count) {
    char *blocks[20];
    for (unsigned i = 0; i < count; i++) blocks[i] = touched_block(20);
    for (unsigned i = 0; i < count; i++) drop_block(blocks[i]);
}
/* Of a large block only the start is touched: above the soft limit by that alone, a heap may keep a little for who comes and goes. */
static void what_nobody_touched_does_not_count_for_long(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.soft_limit_bytes = 16 * MIB;
    begin(NULL, config);
    char *large = zone_block_alloc(&zone, 24 * MIB, 1, NULL);
    assert_non_null(large);
    mark(large, 1, 1);
    drop_block(touched_block(20));
    assert_int_equal(counters().idle, 0); /* nobody has asked yet */
    zone_tick(&zone);
    drop_block(touched_block(20));
    assert_int_equal(counters().idle, 20);
    come_and_go(20);
    assert_in_range(counters().idle, 256 - 20, 256); /* a sixteenth of the limit */
    ASSERT_SOUND();
    mark(large, 12 * MIB / GRANULE_BYTES, 1);
    zone_tick(&zone);
    come_and_go(20);
    assert_in_range(counters().idle, 1, 1024 / 4); /* a quarter of what is left below it */
    mark(large, 16 * MIB / GRANULE_BYTES, 1);
    zone_tick(&zone);
    assert_int_equal(counters().idle, 0);
    drop_block(touched_block(20));
    assert_int_equal(counters().idle, 0);
    zone_set_soft_limit(&zone, 64 * MIB); /* below it all may */
    drop_block(touched_block(20));
    assert_int_equal(counters().idle, 20);
    drop_block(large);
    assert_empty();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(below_its_peak_a_heap_keeps_its_holes, plain_zone),
        cmocka_unit_test_setup(exchanges_make_the_reserve_larger, plain_zone),
        cmocka_unit_test_setup(few_fresh_pages_cost_few_idle_ones, plain_zone),
        cmocka_unit_test_setup(what_is_about_to_leave_is_no_peak, plain_zone),
        cmocka_unit_test_setup(a_run_lies_where_most_is_present, plain_zone),
        cmocka_unit_test(what_nobody_touched_does_not_count_for_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
