/*
 * test_lookaside.c - pages that are present but free: one in one out, the working set, limits, and huge pages that keep their holes.
 */
#include "unit/page/page_support.h"

static void freed_pages_stay_present(void **state) {
    (void)state;
    struct zone_run run = must_run(50, 1, MOBILITY_UNMOVABLE);
    drop_run(run);
    assert_int_equal(counters().idle, 50);
    assert_int_equal(present_granules(), 50);
    assert_int_equal(sim_calls(SIM_RELEASE), 0);
    run = must_run(50, 1, MOBILITY_RECLAIMABLE); /* a superpage that is wholly free serves any group */
    assert_int_equal(run.fresh, 0);
    drop_run(run);
    assert_empty();
}

/* The idle reserve of 16 granules, or a thirty-second of what is in use, stays, but for the last run of holes that was taken whole. */
static void assert_reserve_stays(void) {
    uint64_t reserve = max_u64(16, counters().allocated / 32);
    assert_in_range(counters().idle, reserve - 8, reserve);
}

static void one_in_one_out(void **state) {
    (void)state;
    static struct zone_run kept[SUPERPAGE_GRANULES];
    unsigned n = make_holes(kept, 8, 256);
    uint64_t populated = counters().populated;
    assert_int_equal(counters().idle, 256);
    /* 100 fresh ones come, 100 idle ones go. */
    struct zone_run fresh = must_run(100, 1, MOBILITY_UNMOVABLE);
    assert_int_equal(fresh.fresh, 100);
    assert_in_range(counters().idle, 156 - 8, 156);
    assert_true(counters().populated <= populated);
    assert_int_equal(present_granules(), counters().populated);
    ASSERT_SOUND();
    zone.exchanged = 0; /* as after some ticks: what it adds to the reserve is in test_peak.c */
    struct zone_run more = must_run(300, 1, MOBILITY_UNMOVABLE);
    assert_int_equal(more.fresh, 300);
    assert_reserve_stays();
    assert_int_equal(present_granules(), counters().populated);
    ASSERT_SOUND();
    /* Pages that are there already cost nobody else's. */
    uint64_t released = counters().released_total;
    drop_run(more);
    more = must_run(300, 1, MOBILITY_UNMOVABLE);
    assert_int_equal(more.fresh, 0);
    assert_int_equal(counters().released_total, released);
    drop_run(more), drop_run(fresh);
    drop_all(kept, n);
    assert_empty();
}

/* What fits nowhere now will fit something soon, where most of a superpage is in use. */
static void holes_of_full_superpages_stay(void **state) {
    (void)state;
    static struct zone_run kept[SUPERPAGE_GRANULES];
    unsigned n = make_holes(kept, 8, 248);
    uint64_t released = counters().released_total;
    struct zone_run fresh = must_run(300, 1, MOBILITY_UNMOVABLE);
    assert_int_equal(fresh.fresh, 300);
    assert_int_equal(counters().released_total, released);
    drop_run(kept[--n]); /* with this one half of it is free */
    struct zone_run more = must_run(100, 1, MOBILITY_UNMOVABLE);
    assert_int_equal(more.fresh, 100);
    assert_in_range(counters().released_total, released + 100, released + 108);
    ASSERT_SOUND();
    drop_run(more), drop_run(fresh), drop_all(kept, n);
    assert_empty();
}

static void blocks_take_part_in_the_exchange(void **state) {
    (void)state;
    static struct zone_run kept[SUPERPAGE_GRANULES];
    unsigned n = make_holes(kept, 8, 256);
    char *block = must_block(3 * MIB, 1);
    mark(block, 3 * MIB / GRANULE_BYTES, 1);
    assert_reserve_stays();
    ASSERT_SOUND();
    char *run = must_block(200 * KIB, 1);
    assert_ptr_equal(zone_block_resize(&zone, run, 900 * KIB, false), run);
    assert_reserve_stays();
    ASSERT_SOUND();
    drop_block(block), drop_block(run);
    drop_all(kept, n);
    assert_empty();
}

static void a_tick_gives_back_what_was_not_needed_since_the_last(void **state) {
    (void)state;
    struct zone_run wall = must_run(1, 1, MOBILITY_UNMOVABLE), a = must_run(300, 1, MOBILITY_UNMOVABLE);
    drop_run(a);
    assert_int_equal(zone_tick(&zone), 0); /* the least since the last tick was none */
    a = must_run(200, 1, MOBILITY_UNMOVABLE);
    drop_run(a);
    /* 100 of 300 were never needed. */
    assert_int_equal(zone_tick(&zone), 100 * GRANULE_BYTES);
    assert_int_equal(counters().idle, 200);
    ASSERT_SOUND();
    for (unsigned i = 0; i < 5; i++) { /* a working set of 200 stays */
        a = must_run(200, 1, MOBILITY_UNMOVABLE);
        assert_int_equal(a.fresh, 0);
        drop_run(a);
        assert_int_equal(zone_tick(&zone), 0);
    }
    assert_int_equal(zone_tick(&zone), 200 * GRANULE_BYTES);
    assert_int_equal(zone_tick(&zone), 0);
    assert_int_equal(counters().idle, 0);
    drop_run(wall);
    assert_empty();
}

static void release_keeps_what_it_is_told_to(void **state) {
    (void)state;
    static struct zone_run kept[SUPERPAGE_GRANULES];
    unsigned n = make_holes(kept, 2, 240);
    assert_int_equal(zone_release(&zone, 240 * GRANULE_BYTES), 0);
    assert_int_equal(zone_release(&zone, 200 * GRANULE_BYTES), 40 * GRANULE_BYTES);
    assert_int_equal(counters().idle, 200);
    assert_int_equal(present_granules(), counters().populated);
    ASSERT_SOUND();
    assert_int_equal(zone_release(&zone, 1), 200 * GRANULE_BYTES);
    ASSERT_SOUND();
    assert_int_equal(zone_release(&zone, 0), 0);
    drop_all(kept, n);
    assert_empty();
}

/* By calls for several at once, the last of which has fewer: each hole goes, and nothing beside it. */
static void holes_of_a_large_heap_leave_together(void **state) {
    (void)state;
    static struct zone_run kept[SUPERPAGE_GRANULES], large[16];
    for (unsigned i = 0; i < ARRAY_LENGTH(large); i++) large[i] = must_run(SUPERPAGE_GRANULES, 1, MOBILITY_UNMOVABLE);
    unsigned n = make_holes(kept, 2, 140);
    assert_int_equal(counters().idle, 140);
    assert_true(counters().populated >= 32 * MIB / GRANULE_BYTES);
    uint64_t populated = counters().populated, holes = sim_calls(SIM_RELEASE);
    assert_int_equal(zone_release(&zone, 0), 140 * GRANULE_BYTES);
    assert_int_equal(sim_calls(SIM_RELEASE) - holes, 70);
    assert_int_equal(counters().populated, populated - 140);
    assert_int_equal(present_granules(), counters().populated);
    ASSERT_SOUND();
    drop_all(kept, n);
    for (unsigned i = 0; i < ARRAY_LENGTH(large); i++) drop_run(large[i]);
    assert_empty();
}

static void whole_superpages_go_in_one_call(void **state) {
    (void)state;
    struct zone_run runs[3];
    for (unsigned i = 0; i < 3; i++) runs[i] = must_run(SUPERPAGE_GRANULES, 1, MOBILITY_UNMOVABLE);
    drop_all(runs, 3);
    uint64_t calls = sim_calls(SIM_RELEASE);
    assert_int_equal(zone_release(&zone, 0), 3 * SUPERPAGE_BYTES);
    assert_int_equal(sim_calls(SIM_RELEASE), calls + 9); /* and two for the descriptors and heads of each */
    assert_empty();
}

static void above_the_soft_limit_nothing_stays_idle(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.soft_limit_bytes = 300 * GRANULE_BYTES;
    config.populate_granules = 64;
    begin(NULL, config);
    static struct zone_run runs[100];
    uint64_t seed = 7;
    for (unsigned round = 0; round < 3000; round++) {
        unsigned i = (unsigned)(next_random(&seed) % 60);
        if (runs[i].granules != 0) {
            drop_run(runs[i]);
            runs[i].granules = 0;
        } else {
            runs[i] = must_run(1 + (unsigned)(next_random(&seed) % 20), 1, i % 3);
        }
        struct zone_counters now = counters();
        assert_true(now.populated <= max_u64(300, now.allocated));
        if (round % 16 == 0) {
            ASSERT_SOUND();
            assert_true(present_granules() <= now.populated);
        }
    }
    for (unsigned i = 0; i < 60; i++)
        if (runs[i].granules != 0) drop_run(runs[i]);
    /* Blocks that shrink, too. */
    char *block = must_block(3 * MIB, 1);
    mark(block, 3 * MIB / GRANULE_BYTES, 1);
    assert_ptr_equal(zone_block_resize(&zone, block, 2 * MIB, false), block);
    assert_int_equal(counters().idle, 0);
    char *run = must_block(100 * GRANULE_BYTES, 1);
    assert_ptr_equal(zone_block_resize(&zone, run, 10 * GRANULE_BYTES, false), run);
    assert_int_equal(counters().idle, 0);
    ASSERT_SOUND();
    drop_block(block), drop_block(run);
    assert_empty();
}

static void pages_come_ahead_of_need_in_a_larger_heap(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.populate_granules = 16;
    begin(NULL, config);
    struct zone_run first = must_run(1, 1, MOBILITY_UNMOVABLE);
    assert_int_equal(sim_calls(SIM_POPULATE), 0); /* a small heap: no */
    for (unsigned i = 0; i < 4; i++) (void)must_run(512, 1, MOBILITY_RECLAIMABLE);
    uint64_t idle = counters().idle, calls = sim_calls(SIM_POPULATE);
    struct zone_run run = must_run(1, 1, MOBILITY_UNMOVABLE);
    assert_int_equal(sim_calls(SIM_POPULATE), calls + 1);
    assert_int_equal(counters().idle, idle + 14); /* up to granule 16 of the superpage, which begins with `first` */
    assert_int_equal(sim_populated_pages(run.address, 15 * GRANULE_BYTES), 15);
    ASSERT_SOUND();
    for (unsigned i = 0; i < 14; i++) {
        struct zone_run next = must_run(1, 1, MOBILITY_UNMOVABLE);
        assert_int_equal(next.fresh, 0);
        assert_true(next.zeroed);
        assert_ptr_equal(next.address, (char *)run.address + (i + 1) * GRANULE_BYTES);
    }
    assert_int_equal(sim_calls(SIM_POPULATE), calls + 1);
    assert_int_equal(counters().idle, idle);
    (void)first;
}

/* Superpages of huge pages. */
static void huge_zone(enum zone_thp thp) {
    struct zone_config config = plain_config();
    config.thp = thp;
    begin(NULL, config);
}

static void huge_pages_keep_their_holes(void **state) {
    (void)state;
    static struct zone_run kept[SUPERPAGE_GRANULES];
    huge_zone(ZONE_THP_ALWAYS);
    unsigned n = make_holes(kept, 8, 248);
    assert_true(superpage_of(&zone, kept[0].address)->huge);
    assert_int_equal(counters().idle_huge, 248);
    ASSERT_SOUND();
    assert_int_equal(zone_tick(&zone), 0);
    assert_int_equal(zone_tick(&zone), 0);
    struct zone_run other = must_run(512, 1, MOBILITY_UNMOVABLE); /* nothing leaves in exchange */
    assert_int_equal(counters().idle, 248);
    drop_run(other);
    /* Once most of it is idle, it goes. */
    while (counters().idle_huge != 0) drop_run(kept[--n]);
    ASSERT_SOUND();
    assert_int_equal(superpage_of(&zone, kept[0].address)->idle, HUGE_IDLE_GRANULES);
    assert_int_equal(zone_tick(&zone), 0);
    assert_true(zone_tick(&zone) > 0);
    assert_int_equal(counters().idle, 0);
    ASSERT_SOUND();
    drop_all(kept, n);
    assert_empty();
}

/* A superpage of huge pages with holes, and a later one without huge pages, whose holes go in its place. */
static void holes_elsewhere_go_before_those_of_huge_pages(void **state) {
    (void)state;
    huge_zone(ZONE_THP_ALWAYS);
    struct zone_run huge[2], plain[2];
    for (unsigned i = 0; i < 2; i++) huge[i] = must_run(256, 1, MOBILITY_UNMOVABLE);
    sim_fail_only(UINT64_C(1) << SIM_ADVISE_HUGE);
    sim_fail_call(1, 1);
    for (unsigned i = 0; i < 2; i++) plain[i] = must_run(256, 1, MOBILITY_RECLAIMABLE);
    assert_int_equal(sim_failures(), 1);
    drop_run(huge[0]), drop_run(plain[0]);
    assert_int_equal(counters().idle_huge, 256);
    assert_int_equal(zone_tick(&zone), 0);
    assert_int_equal(zone_tick(&zone), 256 * GRANULE_BYTES);
    assert_int_equal(counters().idle_huge, 256);
    assert_int_equal(superpage_of(&zone, plain[1].address)->idle, 0);
    ASSERT_SOUND();
    drop_run(huge[1]), drop_run(plain[1]);
    assert_empty();
}

/* By `auto` pages that are there stay small: a huge page would bring the rest of them, used or not. */
static void no_advice_on_what_is_partly_there(void **state) {
    (void)state;
    huge_zone(ZONE_THP_AUTO);
    struct zone_run first = must_run(300, 1, MOBILITY_UNMOVABLE), rest[18];
    for (unsigned i = 0; i < 18; i++) rest[i] = must_run(SUPERPAGE_GRANULES, 1, MOBILITY_UNMOVABLE);
    uint64_t calls = sim_calls(SIM_ADVISE_HUGE);
    assert_true(calls != 0);
    drop_run(first);
    struct zone_run again = must_run(10, 1, MOBILITY_UNMOVABLE);
    assert_int_equal(number_of(again.address), number_of(first.address));
    assert_false(again.huge);
    assert_int_equal(sim_calls(SIM_ADVISE_HUGE), calls);
    drop_run(again);
    zone_release(&zone, 0);
    again = must_run(10, 1, MOBILITY_UNMOVABLE);
    assert_int_equal(number_of(again.address), number_of(first.address));
    assert_true(again.huge); /* now that they are gone */
    drop_run(again);
    drop_all(rest, 18);
    assert_empty();
}

/* The heap's own structures are few: a huge page for them would stay empty. */
static void no_advice_on_what_is_ours(void **state) {
    (void)state;
    huge_zone(ZONE_THP_AUTO);
    struct zone_run rest[18];
    for (unsigned i = 0; i < 18; i++) rest[i] = must_run(SUPERPAGE_GRANULES, 1, MOBILITY_UNMOVABLE);
    assert_true(rest[17].huge);
    struct zone_run ours = must_run(10, 1, MOBILITY_RECLAIMABLE);
    assert_false(ours.huge);
    assert_int_equal(zone.counters.idle, 0);
    ASSERT_SOUND();
    drop_run(ours);
    drop_all(rest, 18);
    assert_empty();
}

/* Superpages of huge pages, of which the first has 200 idle granules and each other one 128, in holes of 8. */
enum { HUGE_ONES = 6, HUGE_RUNS = SUPERPAGE_GRANULES / 8 };
static struct zone_run huge_runs[HUGE_ONES][HUGE_RUNS];

static void make_huge_holes(void) {
    huge_zone(ZONE_THP_ALWAYS);
    for (unsigned s = 0; s < HUGE_ONES; s++)
        for (unsigned i = 0; i < HUGE_RUNS; i++) huge_runs[s][i] = must_run(8, 1, MOBILITY_UNMOVABLE);
    for (unsigned s = HUGE_ONES; s-- != 0;)
        for (unsigned i = 0; i < (s == 0 ? 25 : 16); i++) drop_run(huge_runs[s][i * 2]);
    assert_int_equal(counters().idle_huge, 200 + 5 * 128);
    ASSERT_SOUND();
}

static unsigned count_huge(void) {
    unsigned huge = 0;
    for (unsigned s = 0; s < HUGE_ONES; s++) huge += superpage_of(&zone, huge_runs[s][HUGE_RUNS - 1].address)->huge;
    return huge;
}

static void holes_in_huge_pages_are_kept_to_a_share(void **state) {
    (void)state;
    make_huge_holes();
    struct superpage *emptiest = superpage_of(&zone, huge_runs[0][HUGE_RUNS - 1].address);
    uint64_t calls = sim_calls(SIM_ADVISE_HUGE);
    assert_int_equal(count_huge(), HUGE_ONES);
    (void)must_run(SUPERPAGE_GRANULES, 1,
                   MOBILITY_UNMOVABLE); /* the heap grows: now the emptiest one and another go, until a superpage's worth is left */
    assert_false(emptiest->huge);
    assert_int_equal(emptiest->idle, 0);
    assert_int_equal(count_huge(), HUGE_ONES - 2);
    assert_int_equal(counters().idle_huge, SUPERPAGE_GRANULES);
    assert_int_equal(sim_calls(SIM_ADVISE_HUGE), calls + 3); /* for the new one, against the two */
    assert_int_equal(present_granules(), counters().allocated + counters().idle);
    ASSERT_SOUND();
    assert_int_equal(platform_huge_bytes(), (HUGE_ONES - 2 + 1) * SUPERPAGE_BYTES);
}

static void huge_pages_stay_where_the_advice_is_refused(void **state) {
    (void)state;
    make_huge_holes();
    uint64_t idle = counters().idle;
    sim_fail_only(UINT64_C(1) << SIM_ADVISE_HUGE);
    sim_fail_call(1, SIM_FOREVER);
    (void)must_run(SUPERPAGE_GRANULES, 1, MOBILITY_UNMOVABLE);
    assert_int_equal(sim_failures(), 2); /* for the new one, against the first; not again and again */
    assert_int_equal(count_huge(), HUGE_ONES);
    assert_int_equal(counters().idle, idle);
    ASSERT_SOUND();
}

/* Its pages come back with one fault for all of them, so that none is populated ahead. */
static void nothing_is_populated_ahead_in_huge_pages(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.thp = ZONE_THP_ALWAYS;
    config.populate_granules = 64;
    begin(NULL, config);
    (void)must_run(SUPERPAGE_GRANULES, 1, MOBILITY_RECLAIMABLE); /* a heap that is large enough */
    (void)must_run(16, 1, MOBILITY_UNMOVABLE);
    zone_release(&zone, 0);
    struct zone_run run = must_run(8, 1, MOBILITY_UNMOVABLE);
    assert_true(run.huge);
    assert_int_equal(run.fresh, 8);
    assert_int_equal(sim_calls(SIM_POPULATE), 0);
    assert_int_equal(counters().idle, 0);
    ASSERT_SOUND();
}

static void release_on_request_breaks_huge_pages(void **state) {
    (void)state;
    static struct zone_run kept[SUPERPAGE_GRANULES];
    huge_zone(ZONE_THP_ALWAYS);
    unsigned n = make_holes(kept, 8, 120);
    assert_int_equal(zone_release(&zone, 0), 120 * GRANULE_BYTES);
    assert_int_equal(counters().idle_huge, 0);
    ASSERT_SOUND();
    drop_all(kept, n);
    assert_empty();
}

/* A superpage that comes back with some present pages, without huge pages until now. */
static void advice_counts_the_pages_that_are_there(void **state) {
    (void)state;
    huge_zone(ZONE_THP_ALWAYS);
    sim_fail_only(UINT64_C(1) << SIM_ADVISE_HUGE);
    sim_fail_call(1, SIM_FOREVER);
    struct zone_run run = must_run(100, 1, MOBILITY_UNMOVABLE);
    assert_false(run.huge);
    drop_run(run);
    sim_fail_call(0, 0);
    run = must_run(5, 1, MOBILITY_UNMOVABLE);
    assert_true(superpage_of(&zone, run.address)->huge);
    assert_true(run.huge);
    ASSERT_SOUND();
    drop_run(run);
    assert_empty();
}

static void advice_follows_the_policy(void **state) {
    (void)state;
    huge_zone(ZONE_THP_NEVER);
    (void)must_run(512, 1, MOBILITY_UNMOVABLE);
    (void)must_block(10 * MIB, 1);
    assert_int_equal(sim_calls(SIM_ADVISE_HUGE), 0);
    huge_zone(ZONE_THP_AUTO);
    (void)must_run(512, 1, MOBILITY_UNMOVABLE);
    assert_int_equal(sim_calls(SIM_ADVISE_HUGE), 0); /* a small heap */
    for (unsigned i = 0; i < 14; i++) (void)must_run(512, 1, MOBILITY_UNMOVABLE);
    assert_int_equal(sim_calls(SIM_ADVISE_HUGE), 0);
    (void)must_run(512, 1, MOBILITY_UNMOVABLE);
    assert_int_equal(sim_calls(SIM_ADVISE_HUGE), 1); /* from 32 MiB on */
    char *block = must_block(9 * MIB, 1);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(superpage_of(&zone, block + i * 2 * MIB)->huge, i < 4); /* not the last, of which half is used */
    ASSERT_SOUND();
    char *small = must_block(3 * MIB, 1);
    assert_false(superpage_of(&zone, small)->huge);
    mark(block, 9 * MIB / GRANULE_BYTES, 1);
    assert_int_equal(platform_huge_bytes(), 10 * MIB); /* with the last run */
}

static void mappings_are_kept_for_the_program(void **state) {
    (void)state;
    huge_zone(ZONE_THP_ALWAYS);
    sim_set_map_count_limit(4 * 20);
    struct zone_run runs[24];
    for (unsigned i = 0; i < 24; i++) {
        runs[i] = must_run(512, 1, MOBILITY_UNMOVABLE);
        if (i % 2 == 0) superpage_of(&zone, runs[i].address)->huge = false; /* as though every second was refused: the worst case */
    }
    assert_true(counters().mappings <= 20);
    ASSERT_SOUND();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(freed_pages_stay_present, plain_zone),
        cmocka_unit_test_setup(one_in_one_out, plain_zone),
        cmocka_unit_test_setup(holes_of_full_superpages_stay, plain_zone),
        cmocka_unit_test_setup(blocks_take_part_in_the_exchange, plain_zone),
        cmocka_unit_test_setup(a_tick_gives_back_what_was_not_needed_since_the_last, plain_zone),
        cmocka_unit_test_setup(release_keeps_what_it_is_told_to, plain_zone),
        cmocka_unit_test_setup(holes_of_a_large_heap_leave_together, plain_zone),
        cmocka_unit_test_setup(whole_superpages_go_in_one_call, plain_zone),
        cmocka_unit_test(above_the_soft_limit_nothing_stays_idle),
        cmocka_unit_test(pages_come_ahead_of_need_in_a_larger_heap),
        cmocka_unit_test(huge_pages_keep_their_holes),
        cmocka_unit_test(holes_elsewhere_go_before_those_of_huge_pages),
        cmocka_unit_test(no_advice_on_what_is_partly_there),
        cmocka_unit_test(no_advice_on_what_is_ours),
        cmocka_unit_test(holes_in_huge_pages_are_kept_to_a_share),
        cmocka_unit_test(huge_pages_stay_where_the_advice_is_refused),
        cmocka_unit_test(nothing_is_populated_ahead_in_huge_pages),
        cmocka_unit_test(release_on_request_breaks_huge_pages),
        cmocka_unit_test(advice_counts_the_pages_that_are_there),
        cmocka_unit_test(advice_follows_the_policy),
        cmocka_unit_test(mappings_are_kept_for_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
