/*
 * test_huge.c - whether huge pages are asked for, by what they cost: none after dear ones, a look now and then, and again once they are cheap.
 */
#include "unit/page/page_support.h"

#define CHEAP_NS UINT64_C(200000)
#define DEAR_NS UINT64_C(7000000)
/* Three times what base pages cost; among eight cheap ones the mean stays below. */
#define RATHER_DEAR_NS UINT64_C(3000000)
/* What huge.c says: how long pauses are. */
#define PAUSE_MIN 8
#define PAUSE_MAX 256

static struct zone_run small_heap[15]; /* with the next superpage it has 32 MiB: from there on huge pages are worth it */

static void huge_zone(enum zone_thp thp) {
    struct zone_config config = plain_config();
    config.thp = thp;
    config.reserve_bytes = 8 * GIB;
    begin(NULL, config);
    for (unsigned i = 0; i < ARRAY_LENGTH(small_heap); i++) {
        small_heap[i] = must_run(SUPERPAGE_GRANULES, 1, MOBILITY_UNMOVABLE);
        assert_true(small_heap[i].huge == (thp == ZONE_THP_ALWAYS));
    }
}

/* Whether the next fresh superpage gets huge pages. */
static bool next_is_huge(void) { return must_run(SUPERPAGE_GRANULES, 1, MOBILITY_UNMOVABLE).huge; }

/* How many fresh superpages go without before one gets them again. */
static unsigned count_pause(void) {
    unsigned without = 0;
    while (!next_is_huge()) assert_true(++without <= PAUSE_MAX);
    return without;
}

static void cheap_ones_go_on(void **state) {
    (void)state;
    huge_zone(ZONE_THP_AUTO);
    sim_set_populate_ns(CHEAP_NS);
    uint64_t calls = sim_calls(SIM_POPULATE);
    for (unsigned i = 0; i < 40; i++) assert_true(next_is_huge());
    assert_int_equal(sim_calls(SIM_POPULATE), calls + 40); /* each is measured */
    ASSERT_SOUND();
}

static void dear_ones_pause_longer_and_longer(void **state) {
    (void)state;
    huge_zone(ZONE_THP_AUTO);
    sim_set_populate_ns(DEAR_NS);
    assert_true(next_is_huge());
    unsigned expected = PAUSE_MIN;
    for (unsigned i = 0; i < 7; i++) {
        assert_int_equal(count_pause(), expected);
        expected = expected * 2 < PAUSE_MAX ? expected * 2 : PAUSE_MAX;
    }
    ASSERT_SOUND();
}

static void a_cheap_one_ends_the_pause(void **state) {
    (void)state;
    huge_zone(ZONE_THP_AUTO);
    sim_set_populate_ns(DEAR_NS);
    assert_true(next_is_huge());
    assert_int_equal(count_pause(), PAUSE_MIN); /* and the look at its end is dear again */
    sim_set_populate_ns(CHEAP_NS);
    assert_int_equal(count_pause(), 2 * PAUSE_MIN);
    for (unsigned i = 0; i < 20; i++) assert_true(next_is_huge());
    /* All is forgotten: pauses begin with the shortest. */
    sim_set_populate_ns(DEAR_NS);
    assert_true(next_is_huge());
    assert_int_equal(count_pause(), PAUSE_MIN);
}

/* A single cheap one says little about the next: while the mean is above what base pages cost, each dear one begins a longer pause. */
static void dear_ones_between_cheap_ones_pause(void **state) {
    (void)state;
    huge_zone(ZONE_THP_AUTO);
    for (unsigned pause = PAUSE_MIN; pause <= PAUSE_MAX / 4; pause *= 2) {
        sim_set_populate_ns(DEAR_NS);
        assert_true(next_is_huge());
        sim_set_populate_ns(CHEAP_NS);
        assert_int_equal(count_pause(), pause);
    }
}

/* Idle pages would come with a huge page, and none may stay above the limit. What is advised already loses the advice. */
static void none_above_the_soft_limit(enum zone_thp thp) {
    huge_zone(thp);
    zone_set_soft_limit(&zone, (ARRAY_LENGTH(small_heap) + 2) * SUPERPAGE_BYTES - GRANULE_BYTES);
    assert_true(next_is_huge());
    for (unsigned i = 0; i < 3; i++) {
        struct zone_run run = must_run(1, 1, MOBILITY_UNMOVABLE);
        assert_false(run.huge);
        assert_true(counters().populated < (ARRAY_LENGTH(small_heap) + 2) * SUPERPAGE_GRANULES);
        zone_run_free(&zone, run.address, 1);
    }
    zone_set_soft_limit(&zone, UINT64_MAX);
    zone_release(&zone, 0); /* a superpage with nothing present is decided on again */
    assert_true(must_run(1, 1, MOBILITY_UNMOVABLE).huge);
    ASSERT_SOUND();
}

static void auto_takes_none_above_the_soft_limit(void **state) {
    (void)state;
    none_above_the_soft_limit(ZONE_THP_AUTO);
}

static void always_takes_none_above_the_soft_limit(void **state) {
    (void)state;
    none_above_the_soft_limit(ZONE_THP_ALWAYS);
}

static void one_rather_dear_one_is_bad_luck(void **state) {
    (void)state;
    huge_zone(ZONE_THP_AUTO);
    for (unsigned i = 0; i < 64; i++) {
        sim_set_populate_ns(i % 8 == 7 ? RATHER_DEAR_NS : CHEAP_NS);
        assert_true(next_is_huge());
    }
}

static void nothing_is_learnt_where_the_touch_fails(void **state) {
    (void)state;
    huge_zone(ZONE_THP_AUTO);
    sim_set_populate_ns(DEAR_NS);
    sim_fail_only(UINT64_C(1) << SIM_POPULATE);
    sim_fail_call(1, SIM_FOREVER);
    for (unsigned i = 0; i < 10; i++) assert_true(next_is_huge());
    assert_int_equal(sim_failures(), 10);
    sim_fail_call(0, 0);
}

/* Of large objects one page each may be all that is touched. */
static void runs_of_which_little_may_be_used_take_none(void **state) {
    (void)state;
    struct zone_run run;
    huge_zone(ZONE_THP_AUTO);
    assert_true(zone_run_alloc_lazy(&zone, SUPERPAGE_GRANULES, 1, MOBILITY_UNMOVABLE, &run));
    assert_false(run.huge);
    assert_true(next_is_huge());
    ASSERT_SOUND();
}

/* Who says `always` or `never` is not asked what it costs. */
static void a_policy_is_obeyed(void **state) {
    (void)state;
    static const enum zone_thp policies[] = {ZONE_THP_ALWAYS, ZONE_THP_NEVER};
    for (unsigned p = 0; p < ARRAY_LENGTH(policies); p++) {
        huge_zone(policies[p]);
        sim_set_populate_ns(DEAR_NS);
        uint64_t calls = sim_calls(SIM_POPULATE);
        for (unsigned i = 0; i < 10; i++) assert_true(next_is_huge() == (policies[p] == ZONE_THP_ALWAYS));
        assert_int_equal(sim_calls(SIM_POPULATE), calls);
    }
}

/* How many superpages of a new block of `bytes` got huge pages. */
static unsigned huge_superpages(size_t bytes) {
    unsigned huge = 0;
    char *block = zone_block_alloc(&zone, bytes, 1, NULL);
    assert_non_null(block);
    for (size_t at = 0; at < bytes; at += SUPERPAGE_BYTES) huge += superpage_of(&zone, block + at)->huge;
    return huge;
}

/* Who wants huge pages always gets them in the smallest block that has a superpage of its own, too. */
static void a_policy_is_for_blocks_of_every_size(void **state) {
    (void)state;
    huge_zone(ZONE_THP_ALWAYS);
    for (unsigned superpages = 1; superpages <= 5; superpages++) assert_int_equal(huge_superpages(superpages * SUPERPAGE_BYTES), superpages);
    huge_zone(ZONE_THP_NEVER);
    for (unsigned superpages = 1; superpages <= 5; superpages++) assert_int_equal(huge_superpages(superpages * SUPERPAGE_BYTES), 0);
    ASSERT_SOUND();
}

#define TRUST 256

/* Blocks are measured only now and then: the first page of one that is never touched costs a huge page. */
static void blocks_follow_what_is_known(void **state) {
    (void)state;
    huge_zone(ZONE_THP_AUTO);
    sim_set_populate_ns(CHEAP_NS);
    uint64_t calls = sim_calls(SIM_POPULATE), advice = sim_calls(SIM_ADVISE_HUGE);
    assert_int_equal(huge_superpages(2 * TRUST * MIB), TRUST); /* nothing is known: the first is measured, and answers for the others */
    calls++;                                                   /* for the marks of so many superpages */
    assert_int_equal(sim_calls(SIM_POPULATE), calls + 1);
    assert_int_equal(sim_calls(SIM_ADVISE_HUGE), advice + 2); /* for the first, and for all others at once */
    assert_int_equal(huge_superpages(34 * MIB), 17);          /* the last that is trusted is among them */
    assert_int_equal(sim_calls(SIM_POPULATE), calls + 1);
    assert_int_equal(huge_superpages(6 * MIB), 0); /* a small block is no reason to ask */
    assert_int_equal(huge_superpages(8 * MIB), 4);
    assert_int_equal(sim_calls(SIM_POPULATE), calls + 2);
    ASSERT_SOUND();
}

/* However large, a block that is never touched costs one huge page at most. */
static void a_block_is_touched_once(void **state) {
    (void)state;
    huge_zone(ZONE_THP_AUTO);
    sim_set_populate_ns(CHEAP_NS);
    uint64_t calls = sim_calls(SIM_POPULATE);
    assert_int_equal(huge_superpages(6 * GIB), 6 * GIB / SUPERPAGE_BYTES);
    assert_int_equal(sim_calls(SIM_POPULATE), calls + 2); /* one for the marks */
    sim_set_populate_ns(DEAR_NS);
    assert_int_equal(huge_superpages(512 * MIB), 1);
    assert_int_equal(sim_calls(SIM_POPULATE), calls + 4);
    assert_int_equal(sim_locks_held(), 0);
    ASSERT_SOUND();
}

/* A block finds out that they are dear; those that follow pay for a pause each. */
static void blocks_pause_as_slabs_do(void **state) {
    (void)state;
    huge_zone(ZONE_THP_AUTO);
    sim_set_populate_ns(DEAR_NS);
    assert_int_equal(huge_superpages(8 * MIB), 1);
    assert_int_equal(huge_superpages(2 * (PAUSE_MIN - 3) * MIB), 0); /* three of the last block were of the pause */
    assert_int_equal(huge_superpages(8 * MIB), 1);
    ASSERT_SOUND();
}

/* The size of the heap counts with what comes: the main array of a program may be all of it. */
static void a_block_that_is_the_heap_gets_them(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.thp = ZONE_THP_AUTO;
    begin(NULL, config);
    assert_int_equal(huge_superpages(16 * MIB), 0);
    assert_int_equal(huge_superpages(32 * MIB), 16);
}

/* Blocks come and go: theirs get pages that are present already. So do large ones below the size that is for them. */
static void runs_of_blocks_and_small_blocks_get_none(void **state) {
    (void)state;
    huge_zone(ZONE_THP_AUTO);
    zone.config.huge_block_superpages = 8;
    sim_set_populate_ns(CHEAP_NS);
    for (unsigned i = 0; i < 20; i++) assert_int_equal(huge_superpages(1 * MIB), 0);
    assert_int_equal(huge_superpages(14 * MIB), 0);
    assert_int_equal(sim_calls(SIM_POPULATE), 0);
    assert_int_equal(huge_superpages(16 * MIB), 8);
    assert_true(next_is_huge()); /* of slabs */
    ASSERT_SOUND();
}

/* What had huge pages and has nothing present is decided on again when it is taken again. */
static void what_is_taken_again_is_decided_on_again(void **state) {
    (void)state;
    huge_zone(ZONE_THP_AUTO);
    sim_set_populate_ns(CHEAP_NS);
    static struct zone_run runs[20];
    for (unsigned i = 0; i < ARRAY_LENGTH(runs); i++) assert_true((runs[i] = must_run(SUPERPAGE_GRANULES, 1, MOBILITY_UNMOVABLE)).huge);
    for (unsigned i = 0; i < ARRAY_LENGTH(runs); i++) drop_run(runs[i]);
    assert_true(zone_release(&zone, 0) != 0);
    assert_int_equal(counters().idle, 0);
    sim_set_populate_ns(DEAR_NS);
    assert_true(next_is_huge());
    for (unsigned i = 0; i < PAUSE_MIN; i++) assert_false(next_is_huge());
    assert_true(next_is_huge());
    ASSERT_SOUND();
    struct zone_run ours = must_run(1, 1, MOBILITY_RECLAIMABLE); /* and ours never gets what another had */
    assert_false(ours.huge);
}

/* The rest of a fresh huge page is idle, and more than the reserve: yet it is not there before the touch, and must not count as handed back. */
static void room_is_not_made_out_of_the_fresh_one(void **state) {
    (void)state;
    huge_zone(ZONE_THP_AUTO);
    (void)must_run(SUPERPAGE_GRANULES, 1, MOBILITY_UNMOVABLE);
    uint64_t releases = sim_calls(SIM_RELEASE);
    struct zone_run run = must_run(4, 1, MOBILITY_UNMOVABLE);
    assert_true(run.huge);
    assert_int_equal(superpage_of(&zone, run.address)->idle, SUPERPAGE_GRANULES - 4);
    assert_int_equal(sim_calls(SIM_RELEASE), releases);
    assert_false(superpage_of(&zone, run.address)->young);
    ASSERT_SOUND();
}

static unsigned huge_from(const char *block, unsigned from, unsigned to) {
    unsigned huge = 0;
    for (unsigned i = from; i < to; i++) huge += superpage_of(&zone, block)[i].huge;
    return huge;
}

/* Growth in place follows what is known, and measures nothing: a growing step takes some us, a touch may take some ms. */
static void a_block_that_grows_follows_what_is_known(void **state) {
    (void)state;
    huge_zone(ZONE_THP_AUTO);
    char *block = zone_block_alloc(&zone, 8 * MIB, 1, NULL);
    assert_non_null(block);
    zone.huge.trust = 0;
    uint64_t populates = sim_calls(SIM_POPULATE);
    assert_ptr_equal(zone_block_resize(&zone, block, 8 * MIB + 12 * MIB, false), block);
    assert_int_equal(huge_from(block, 4, 10), 0);
    zone.huge.trust = 100;
    assert_ptr_equal(zone_block_resize(&zone, block, 8 * MIB + 2 * 12 * MIB, false), block);
    assert_int_equal(huge_from(block, 10, 16), 6);
    assert_int_equal(sim_calls(SIM_POPULATE), populates);
    ASSERT_SOUND();
}

/* Who asks for huge pages gets them for what the block grows by, too, in place or elsewhere, and never base pages that are present in their place. */
static void a_block_that_was_asked_for_grows_by_them(void **state) {
    (void)state;
    const struct zone_block_config config = {.bytes = 3 * MIB, .mobility = MOBILITY_MOVABLE, .huge = true};
    huge_zone(ZONE_THP_AUTO);
    zone.huge.trust = 0; /* by itself the heap would not ask */
    char *first = zone_block_create(&zone, &config, NULL);
    assert_non_null(first);
    assert_int_equal(zone_block_bytes(&zone, first), 4 * MIB);
    assert_ptr_equal(zone_block_resize(&zone, first, 20 * MIB + 1, false), first);
    assert_int_equal(zone_block_bytes(&zone, first), 22 * MIB);
    assert_int_equal(huge_from(first, 0, 11), 11);

    drop_run(small_heap[0]); /* present, and idle */
    char *wall = must_block(3 * MIB, 1), *moved = zone_block_resize(&zone, first, 25 * MIB, true);
    assert_true(moved != NULL && moved != first);
    assert_int_equal(zone_block_bytes(&zone, moved), 26 * MIB);
    assert_int_equal(huge_from(moved, 0, 13), 13);
    assert_int_equal(zone_block_bytes(&zone, zone_block_resize(&zone, moved, 1, false)), 2 * MIB);
    ASSERT_SOUND();

    struct zone_block_info info;
    assert_int_equal(zone_block_find(&zone, moved, 1, &info), ZONE_OK);
    assert_true(info.huge);
    assert_int_equal(zone_block_find(&zone, wall, 1, &info), ZONE_OK);
    assert_false(info.huge);
    drop_block(wall);
    assert_true(zone_block_free(&zone, moved));
}

/* A kernel without MADV_POPULATE_WRITE: the page is touched by a store, and the answer is as good. */
static void blocks_are_measured_where_populating_fails(void **state) {
    (void)state;
    huge_zone(ZONE_THP_AUTO);
    sim_fail_only(UINT64_C(1) << SIM_POPULATE);
    sim_fail_call(1, SIM_FOREVER);
    assert_int_equal(huge_superpages(64 * MIB), 32);
    assert_int_equal(sim_failures(), 1);
    sim_fail_call(0, 0);
    ASSERT_SOUND();
}

/* Neighbours with the same advice share a mapping: what is counted is where it changes, and ends when that does. */
static void mappings_are_counted_by_borders(void **state) {
    (void)state;
    static char *blocks[3];
    struct zone_config config = plain_config();
    config.thp = ZONE_THP_ALWAYS;
    begin(NULL, config);
    uint64_t before = counters().mappings;
    for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++) blocks[i] = must_block(8 * MIB, 1);
    assert_in_range(counters().mappings, before + 1, before + 2);
    for (unsigned i = 0; i < 3; i++) {
        zone_note_advice(&zone, superpage_of(&zone, blocks[1]), 4, false);
        assert_in_range(counters().mappings, before + 3, before + 4);
        zone_note_advice(&zone, superpage_of(&zone, blocks[1]), 4, true);
        assert_in_range(counters().mappings, before + 1, before + 2);
    }
    for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++) drop_block(blocks[i]);
}

/* Two superpages of slabs would be most of the memory of a program that never touches its large block. */
static void slabs_get_none_beside_a_block_that_nobody_touches(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.thp = ZONE_THP_AUTO;
    config.huge_block_superpages = 1000;
    config.reserve_bytes = 8 * GIB;
    begin(NULL, config);
    char *block = zone_block_alloc(&zone, 64 * MIB, 1, NULL);
    assert_non_null(block);
    block[0] = 1; /* some of any program is there */
    for (unsigned i = 0; i < 4; i++) assert_false(next_is_huge());
    memset(block, 1, 64 * MIB);
    unsigned without = 0;
    while (!next_is_huge()) assert_true(++without <= 5); /* an eighth of 72 MiB later it is asked again */
    ASSERT_SOUND();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cheap_ones_go_on),
        cmocka_unit_test(slabs_get_none_beside_a_block_that_nobody_touches),
        cmocka_unit_test(dear_ones_pause_longer_and_longer),
        cmocka_unit_test(a_cheap_one_ends_the_pause),
        cmocka_unit_test(auto_takes_none_above_the_soft_limit),
        cmocka_unit_test(always_takes_none_above_the_soft_limit),
        cmocka_unit_test(dear_ones_between_cheap_ones_pause),
        cmocka_unit_test(one_rather_dear_one_is_bad_luck),
        cmocka_unit_test(nothing_is_learnt_where_the_touch_fails),
        cmocka_unit_test(runs_of_which_little_may_be_used_take_none),
        cmocka_unit_test(a_policy_is_obeyed),
        cmocka_unit_test(a_policy_is_for_blocks_of_every_size),
        cmocka_unit_test(blocks_follow_what_is_known),
        cmocka_unit_test(a_block_is_touched_once),
        cmocka_unit_test(blocks_pause_as_slabs_do),
        cmocka_unit_test(a_block_that_is_the_heap_gets_them),
        cmocka_unit_test(runs_of_blocks_and_small_blocks_get_none),
        cmocka_unit_test(what_is_taken_again_is_decided_on_again),
        cmocka_unit_test(room_is_not_made_out_of_the_fresh_one),
        cmocka_unit_test(a_block_that_grows_follows_what_is_known),
        cmocka_unit_test(a_block_that_was_asked_for_grows_by_them),
        cmocka_unit_test(blocks_are_measured_where_populating_fails),
        cmocka_unit_test(mappings_are_counted_by_borders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
