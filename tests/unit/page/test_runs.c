/*
 * test_runs.c - runs: where they are placed, which superpages serve which mobility, and what happens when a group has no room.
 */
#include "unit/page/page_support.h"

static void every_size_is_inside_one_superpage(void **state) {
    (void)state;
    for (unsigned granules = 1; granules <= SUPERPAGE_GRANULES; granules += granules < 20 ? 1 : 41) {
        struct zone_run run = must_run(granules, 1, MOBILITY_UNMOVABLE);
        ASSERT_SOUND();
        assert_int_equal(counters().allocated, granules);
        drop_run(run);
        assert_int_equal(counters().idle, counters().populated);
    }
    struct zone_run whole = must_run(SUPERPAGE_GRANULES, SUPERPAGE_GRANULES, MOBILITY_UNMOVABLE);
    drop_run(whole);
    assert_empty();
}

static void every_alignment_holds(void **state) {
    (void)state;
    struct zone_run runs[10 * 6];
    unsigned n = 0;
    for (unsigned granules = 1; granules <= 32; granules = granules * 2 + 1)
        for (unsigned align = 1; align <= SUPERPAGE_GRANULES; align *= 2) {
            runs[n++] = must_run(granules, align, MOBILITY_UNMOVABLE);
            ASSERT_SOUND();
        }
    while (n != 0) drop_run(runs[--n]);
    assert_empty();
}

static void a_mobility_has_superpages_of_its_own(void **state) {
    (void)state;
    struct zone_run runs[3][40];
    for (unsigned i = 0; i < 40; i++)
        for (unsigned m = 0; m < MOBILITY_GROUPS; m++) runs[m][i] = must_run(20, 1, m);
    ASSERT_SOUND();
    bool used[MOBILITY_GROUPS][32] = {{false}};
    for (unsigned i = 0; i < 40; i++)
        for (unsigned m = 0; m < MOBILITY_GROUPS; m++) used[m][number_of(runs[m][i].address)] = true;
    for (unsigned s = 0; s < 32; s++) assert_true(used[0][s] + used[1][s] + used[2][s] <= 1);
    for (unsigned m = 0; m < MOBILITY_GROUPS; m++) {
        assert_int_equal(group(m).allocated, 800);
        assert_int_equal(group(m).superpages, 2); /* 25 runs fit one */
        assert_int_equal(group(m).partial_superpages, 2);
        for (unsigned i = 0; i < 40; i++) drop_run(runs[m][i]);
        assert_int_equal(group(m).superpages, 0);
    }
    assert_empty();
}

static void who_became_fewer_are_the_runs_of_no_block(void **state) {
    (void)state;
    struct zone_run first = must_run(100, 1, MOBILITY_UNMOVABLE), second = must_run(50, 1, MOBILITY_UNMOVABLE);
    assert_int_equal(zone_runs_fewer(&zone), 0);
    drop_run(first);
    assert_int_equal(zone_runs_fewer(&zone), 100);
    char *block = must_block(200 * GRANULE_BYTES, 1);
    drop_block(block);
    assert_int_equal(zone_runs_fewer(&zone), 100);
    zone_runs_restart(&zone);
    assert_int_equal(zone_runs_fewer(&zone), 0);
    first = must_run(10, 1, MOBILITY_UNMOVABLE);
    drop_run(first);
    assert_int_equal(zone_runs_fewer(&zone), 10);
    drop_run(second);
    assert_int_equal(zone_runs_fewer(&zone), 60);
    assert_empty();
}

/* Two superpages of unmovable runs with a hole each: of 100 and of 300 granules. */
static void two_holes(struct zone_run hole[2], struct zone_run rest[2]) {
    rest[0] = must_run(412, 1, MOBILITY_UNMOVABLE);
    rest[1] = must_run(212, 1, MOBILITY_UNMOVABLE);
    hole[0] = must_run(100, 1, MOBILITY_UNMOVABLE);
    hole[1] = must_run(300, 1, MOBILITY_UNMOVABLE);
    assert_int_equal(number_of(hole[0].address), number_of(rest[0].address));
    assert_int_equal(number_of(hole[1].address), number_of(rest[1].address));
    assert_int_not_equal(number_of(rest[0].address), number_of(rest[1].address));
}

static void the_superpage_with_the_least_room_serves_first(void **state) {
    (void)state;
    struct zone_run hole[2], rest[2];
    for (unsigned order = 0; order < 2; order++) {
        two_holes(hole, rest);
        drop_run(hole[order]);
        drop_run(hole[1 - order]);
        struct zone_run small = must_run(50, 1, MOBILITY_UNMOVABLE);
        struct zone_run large = must_run(120, 1, MOBILITY_UNMOVABLE);
        assert_int_equal(number_of(small.address), number_of(rest[0].address));
        assert_int_equal(number_of(large.address), number_of(rest[1].address));
        ASSERT_SOUND();
        drop_run(small), drop_run(large), drop_run(rest[0]), drop_run(rest[1]);
        assert_empty();
    }
}

/* Of superpages whose longest hole is alike, the one that has less free in all: A and B have a hole of 100, B a second one of 50. */
static void of_like_superpages_the_fullest_serves_first(void **state) {
    (void)state;
    for (unsigned order = 0; order < 2; order++) {
        struct zone_run a = must_run(412, 1, MOBILITY_UNMOVABLE), b = must_run(300, 1, MOBILITY_UNMOVABLE);
        struct zone_run a_hole = must_run(100, 1, MOBILITY_UNMOVABLE);
        struct zone_run b_small = must_run(50, 1, MOBILITY_UNMOVABLE), b_wall = must_run(62, 1, MOBILITY_UNMOVABLE);
        struct zone_run b_hole = must_run(100, 1, MOBILITY_UNMOVABLE);
        assert_int_equal(number_of(a.address), number_of(a_hole.address));
        assert_int_equal(number_of(b.address), number_of(b_hole.address));
        drop_run(b_small);
        drop_run(order == 0 ? a_hole : b_hole);
        drop_run(order == 0 ? b_hole : a_hole);
        zone_release(&zone, 0);
        struct zone_run run = must_run(70, 1, MOBILITY_UNMOVABLE);
        assert_int_equal(number_of(run.address), number_of(a.address));
        ASSERT_SOUND();
        drop_run(run), drop_run(a), drop_run(b), drop_run(b_wall);
        assert_empty();
    }
}

/* The same, but the pages of the emptier one are present. In the second round the other one is first in their list. */
static void present_pages_come_before_fullness(void **state) {
    (void)state;
    for (unsigned order = 0; order < 2; order++) {
        struct zone_run a = must_run(411, 1, MOBILITY_UNMOVABLE), a_one = must_run(1, 1, MOBILITY_UNMOVABLE);
        struct zone_run b = must_run(300, 1, MOBILITY_UNMOVABLE), a_hole = must_run(100, 1, MOBILITY_UNMOVABLE);
        struct zone_run b_small = must_run(50, 1, MOBILITY_UNMOVABLE), b_wall = must_run(62, 1, MOBILITY_UNMOVABLE);
        struct zone_run b_hole = must_run(100, 1, MOBILITY_UNMOVABLE);
        assert_int_equal(number_of(a.address), number_of(a_hole.address));
        assert_int_equal(number_of(b.address), number_of(b_hole.address));
        drop_run(b_small);
        drop_run(a_hole);
        zone_release(&zone, 0);
        drop_run(b_hole);
        if (order == 1) drop_run(a_one);
        struct zone_run run = must_run(70, 1, MOBILITY_UNMOVABLE);
        assert_ptr_equal(run.address, b_hole.address);
        assert_int_equal(run.fresh, 0);
        ASSERT_SOUND();
        drop_run(run), drop_run(a), drop_run(b), drop_run(b_wall);
        if (order == 0) drop_run(a_one);
        assert_empty();
    }
}

static void in_a_superpage_present_pages_come_first(void **state) {
    (void)state;
    struct zone_run a = must_run(10, 1, MOBILITY_UNMOVABLE), b = must_run(10, 1, MOBILITY_UNMOVABLE), c = must_run(10, 1, MOBILITY_UNMOVABLE);
    assert_true(offset_of(a.address) < offset_of(b.address) && offset_of(b.address) < offset_of(c.address));
    drop_run(a);
    assert_int_equal(zone_release(&zone, 0), 10 * GRANULE_BYTES);
    drop_run(b);
    struct zone_run run = must_run(10, 1, MOBILITY_UNMOVABLE);
    assert_ptr_equal(run.address, b.address);
    assert_int_equal(run.fresh, 0);
    assert_false(run.zeroed);
    struct zone_run lowest = must_run(5, 1, MOBILITY_UNMOVABLE);
    assert_ptr_equal(lowest.address, a.address);
    assert_int_equal(lowest.fresh, 5);
    assert_true(lowest.zeroed);
    ASSERT_SOUND();
    drop_run(run), drop_run(lowest), drop_run(c);
    assert_empty();
}

static void known_zeros_are_zeros(void **state) {
    (void)state;
    struct zone_run run = must_run(64, 1, MOBILITY_UNMOVABLE), wall = must_run(1, 1, MOBILITY_UNMOVABLE);
    assert_true(run.zeroed); /* must_run has looked */
    drop_run(run);
    run = must_run(64, 1, MOBILITY_UNMOVABLE);
    assert_false(run.zeroed); /* it holds what we wrote */
    drop_run(run);
    zone_release(&zone, 0);
    run = must_run(64, 1, MOBILITY_UNMOVABLE);
    assert_true(run.zeroed);
    drop_run(run);
    ASSERT_SOUND();
    /* One page that was written to is enough. */
    zone_release(&zone, 0);
    run = must_run(1, 1, MOBILITY_UNMOVABLE);
    drop_run(run);
    run = must_run(64, 1, MOBILITY_UNMOVABLE);
    assert_false(run.zeroed);
    assert_int_equal(run.fresh, 63);
    drop_run(run), drop_run(wall);
    assert_empty();
}

/* 16 MiB are eight superpages; the last of them has room for `room` granules. */
static void fill_with_unmovable(struct zone_run runs[9], unsigned room) {
    struct zone_config config = plain_config();
    config.reserve_bytes = 16 * MIB;
    begin(NULL, config);
    for (unsigned i = 0; i < 7; i++) runs[i] = must_run(SUPERPAGE_GRANULES, 1, MOBILITY_UNMOVABLE);
    runs[7] = must_run(SUPERPAGE_GRANULES - room, 1, MOBILITY_UNMOVABLE);
    assert_int_equal(group(MOBILITY_UNMOVABLE).superpages, 8);
}

/* Below config.grouped_granules (the options grouping:auto and off): what lies in one superpage then would lie in three. */
static void without_groups_all_mobilities_share_superpages(void **state) {
    (void)state;
    for (unsigned mixed = 0; mixed < 2; mixed++) {
        struct zone_config config = plain_config();
        config.grouped_granules = mixed ? UINT64_MAX : 0;
        begin(NULL, config);
        struct zone_run runs[MOBILITY_GROUPS];
        for (unsigned m = 0; m < MOBILITY_GROUPS; m++) runs[m] = must_run(30, 1, (enum mobility)m);
        ASSERT_SOUND();
        for (unsigned m = 1; m < MOBILITY_GROUPS; m++) assert_int_equal(number_of(runs[m].address) == number_of(runs[0].address), mixed);
        assert_int_equal(group(MOBILITY_UNMOVABLE).superpages, 1);
        assert_int_equal(group(MOBILITY_MOVABLE).superpages, 1 - mixed);
        for (unsigned m = 0; m < MOBILITY_GROUPS; m++) drop_run(runs[m]);
        assert_empty();
    }
}

/* What may soon grow out of a superpage has its own in a small zone, too, but not where nothing is ever grouped. */
static void long_runs_and_pages_do_not_lie_behind_slabs(void **state) {
    (void)state;
    for (int off = 0; off < 2; off++) {
        struct zone_config config = plain_config();
        config.grouped_granules = off ? UINT64_MAX : 100000;
        begin(NULL, config);
        struct zone_run slab = must_run(1, 1, MOBILITY_UNMOVABLE);
        const struct zone_block_config apart = {.bytes = GRANULE_BYTES, .mobility = MOBILITY_MOVABLE, .grouped = true};
        char *block = must_block(SUPERPAGE_BYTES / 4, 1), *longer = must_block(SUPERPAGE_BYTES / 4 + GRANULE_BYTES, 1);
        char *page = zone_block_create(&zone, &apart, NULL);
        assert_non_null(page);
        assert_int_equal(number_of(block), number_of(slab.address));
        assert_int_equal(number_of(longer) == number_of(slab.address), off);
        assert_int_equal(number_of(page) == number_of(slab.address), off);
        ASSERT_SOUND();
        assert_true(zone_block_free(&zone, page) && zone_block_free(&zone, longer) && zone_block_free(&zone, block));
        drop_run(slab);
        assert_empty();
    }
}

/* Idle pages serve whoever asks as long as the zone is small; from then on each group has its own, also when it has become smaller again. */
static void a_zone_is_grouped_once_it_was_large(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.grouped_granules = 100;
    begin(NULL, config);
    struct zone_run block = must_run(60, 1, MOBILITY_MOVABLE), kept = must_run(1, 1, MOBILITY_UNMOVABLE);
    drop_run(block);
    struct zone_run slab = must_run(60, 1, MOBILITY_UNMOVABLE);
    assert_ptr_equal(slab.address, block.address);
    assert_int_equal(slab.fresh, 0);
    block = must_run(60, 1, MOBILITY_MOVABLE); /* 121 are present now */
    assert_int_equal(number_of(block.address), number_of(slab.address));
    drop_run(slab);
    struct zone_run grouped = must_run(60, 1, MOBILITY_MOVABLE);
    assert_int_not_equal(number_of(grouped.address), number_of(block.address));
    assert_int_equal(group(MOBILITY_MOVABLE).superpages, 1);
    drop_run(grouped);
    drop_run(block);
    zone_release(&zone, 0);
    grouped = must_run(1, 1, MOBILITY_MOVABLE);
    assert_int_not_equal(number_of(grouped.address), number_of(kept.address));
    ASSERT_SOUND();
    drop_run(grouped);
    drop_run(kept);
    assert_empty();
}

static void a_group_without_room_steals_and_takes_over(void **state) {
    (void)state;
    static const unsigned rooms[] = {100, SUPERPAGE_GRANULES / 2 - 1, SUPERPAGE_GRANULES / 2, 500};
    for (unsigned i = 0; i < ARRAY_LENGTH(rooms); i++) {
        struct zone_run runs[9];
        bool taken_over = rooms[i] >= SUPERPAGE_GRANULES / 2;
        fill_with_unmovable(runs, rooms[i]);
        runs[8] = must_run(30, 1, MOBILITY_RECLAIMABLE);
        ASSERT_SOUND();
        assert_int_equal(number_of(runs[8].address), number_of(runs[7].address));
        assert_int_equal(group(MOBILITY_RECLAIMABLE).superpages, taken_over);
        assert_int_equal(group(MOBILITY_UNMOVABLE).superpages, 8 - taken_over);
        /* The rest of it belongs to the new owner, or still to the old one: the other one can steal it again. */
        struct zone_run more = must_run(30, 1, taken_over ? MOBILITY_RECLAIMABLE : MOBILITY_UNMOVABLE);
        assert_int_equal(number_of(more.address), number_of(runs[7].address));
        struct zone_run none;
        assert_false(zone_run_alloc(&zone, 512, 1, MOBILITY_MOVABLE, &none));
        ASSERT_SOUND();
        drop_run(more);
        for (unsigned r = 0; r < 9; r++) drop_run(runs[r]);
        assert_empty();
    }
}

/* However much of it they get: they can go again, and what is unmovable there could not. */
static void movable_runs_are_guests(void **state) {
    (void)state;
    struct zone_run runs[9];
    fill_with_unmovable(runs, 500);
    runs[8] = must_run(400, 1, MOBILITY_MOVABLE);
    assert_int_equal(number_of(runs[8].address), number_of(runs[7].address));
    assert_int_equal(group(MOBILITY_MOVABLE).superpages, 0);
    assert_int_equal(group(MOBILITY_UNMOVABLE).superpages, 8);
    ASSERT_SOUND();
    for (unsigned r = 0; r < 9; r++) drop_run(runs[r]);
    assert_empty();
}

static void stealing_takes_the_largest_room(void **state) {
    (void)state;
    struct zone_run runs[9];
    fill_with_unmovable(runs, 100);
    drop_run(runs[3]);
    runs[3] = must_run(300, 1, MOBILITY_MOVABLE); /* 212 are left there, of another group */
    struct zone_run stolen = must_run(30, 1, MOBILITY_RECLAIMABLE);
    assert_int_equal(number_of(stolen.address), number_of(runs[3].address));
    assert_int_equal(group(MOBILITY_RECLAIMABLE).superpages, 0);
    ASSERT_SOUND();
    drop_run(stolen);
    for (unsigned r = 0; r < 8; r++) drop_run(runs[r]);
    assert_empty();
}

/*
 * Eight superpages of the movable group, all with a hole, and two other groups that grow: each takes the longest free run that there is, and
 * all of it before it goes to the next one, so that as few superpages as can be are mixed. One that is less than half free is what it was.
 */
static void groups_grow_into_the_longest_holes(void **state) {
    (void)state;
    enum { SUPERPAGES = 8, RUN = 20, SMALLEST = 3 };
    static const unsigned holes[SUPERPAGES] = {260, 300, 400, 200, 500, 270, 350, 310}, order[] = {4, 2, 6, 7, 1, 5, 0, 3};
    struct zone_config config = plain_config();
    config.reserve_bytes = SUPERPAGES * SUPERPAGE_BYTES;
    begin(NULL, config);
    struct zone_run kept[SUPERPAGES], dropped[SUPERPAGES], grown[SUPERPAGES * SUPERPAGE_GRANULES / RUN];
    for (unsigned i = 0; i < SUPERPAGES; i++) {
        kept[i] = must_run(SUPERPAGE_GRANULES - holes[i], 1, MOBILITY_MOVABLE);
        dropped[i] = must_run(holes[i], 1, MOBILITY_MOVABLE);
        assert_int_equal(number_of(dropped[i].address), number_of(kept[i].address));
    }
    for (unsigned i = 0; i < SUPERPAGES; i++) drop_run(dropped[i]);
    unsigned count = 0;
    for (unsigned next = 0; next < SUPERPAGES - 1; next++) {
        enum mobility mobility = next < SUPERPAGES / 2 ? MOBILITY_RECLAIMABLE : MOBILITY_UNMOVABLE;
        for (unsigned room = holes[order[next]]; room >= RUN; room -= RUN) {
            grown[count] = must_run(RUN, 1, mobility);
            assert_int_equal(number_of(grown[count++].address), number_of(kept[order[next]].address));
            ASSERT_SOUND();
        }
        assert_int_equal(superpage_of(&zone, kept[order[next]].address)->mobility, mobility);
    }
    assert_int_equal(group(MOBILITY_MOVABLE).superpages, 1);
    assert_int_equal(superpage_of(&zone, kept[SMALLEST].address)->mobility, MOBILITY_MOVABLE);
    while (count != 0) drop_run(grown[--count]);
    for (unsigned i = 0; i < SUPERPAGES; i++) drop_run(kept[i]);
    assert_empty();
}

static void exhausted_address_space_is_a_refusal(void **state) {
    (void)state;
    struct zone_run runs[9], none;
    fill_with_unmovable(runs, 10);
    assert_false(zone_run_alloc(&zone, 11, 1, MOBILITY_UNMOVABLE, &none));
    assert_false(zone_run_alloc(&zone, 10, 512, MOBILITY_UNMOVABLE, &none));
    assert_null(zone_block_alloc(&zone, 1 * MIB, 1, NULL));
    assert_null(zone_block_alloc(&zone, 3 * MIB, 1, NULL));
    ASSERT_SOUND();
    runs[8] = must_run(10, 1, MOBILITY_UNMOVABLE);
    for (unsigned r = 0; r < 9; r++) drop_run(runs[r]);
    assert_empty();
}

static void the_hard_limit_is_exact(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.hard_limit_bytes = 100 * GRANULE_BYTES;
    begin(NULL, config);
    struct zone_run none, a = must_run(60, 1, MOBILITY_UNMOVABLE), b = must_run(39, 1, MOBILITY_MOVABLE);
    assert_false(zone_run_alloc(&zone, 2, 1, MOBILITY_UNMOVABLE, &none));
    assert_null(zone_block_alloc(&zone, 2 * GRANULE_BYTES, 1, NULL));
    assert_null(zone_block_alloc(&zone, 4 * MIB, 1, NULL));
    struct zone_run c = must_run(1, 1, MOBILITY_RECLAIMABLE);
    assert_false(zone_run_alloc(&zone, 1, 1, MOBILITY_UNMOVABLE, &none));
    drop_run(a);
    a = must_run(60, 1, MOBILITY_UNMOVABLE);
    ASSERT_SOUND();
    drop_run(a), drop_run(b), drop_run(c);
    assert_empty();
}

/* Superpages with one hole each, whose pages are present: the first one's is longer. They come by the last one that had a change. */
static void a_present_run_is_found_among_many(void **state) {
    (void)state;
    enum { MANY = 30, SHORT = 8, LONG = 12 };
    struct zone_run hole[MANY], front[MANY], behind[MANY];
    for (unsigned i = 0; i < MANY; i++) {
        const unsigned length = i == 0 ? LONG : SHORT;
        front[i] = must_run(400, 1, MOBILITY_UNMOVABLE);
        hole[i] = must_run(length, 1, MOBILITY_UNMOVABLE);
        behind[i] = must_run(SUPERPAGE_GRANULES - 400 - length, 1, MOBILITY_UNMOVABLE);
        assert_int_equal(number_of(behind[i].address), number_of(front[i].address));
    }
    for (unsigned i = 0; i < MANY; i++) drop_run(hole[i]);
    ASSERT_SOUND();
    for (unsigned align = 1; align <= 4; align *= 4) { /* 400 is a multiple of 4 */
        struct zone_run found = must_run(LONG - align + 1, align, MOBILITY_UNMOVABLE);
        assert_ptr_equal(found.address, hole[0].address);
        assert_int_equal(found.fresh, 0);
        drop_run(found);
    }
    for (unsigned i = 0; i < MANY; i++) drop_run(front[i]), drop_run(behind[i]);
    assert_empty();
}

/* What is known of a superpage's idle runs is a bound, until somebody has looked in vain: then the length, by which it is not looked at again. */
static void who_looks_in_vain_for_present_pages_corrects_what_is_known(void **state) {
    (void)state;
    struct zone_run front = must_run(400, 1, MOBILITY_UNMOVABLE), hole[2], between[2];
    for (unsigned i = 0; i < 2; i++) {
        hole[i] = must_run(20, 1, MOBILITY_UNMOVABLE);
        between[i] = must_run(36, 1, MOBILITY_UNMOVABLE);
    }
    struct superpage *superpage = superpage_of(&zone, front.address);
    for (unsigned i = 0; i < 2; i++) drop_run(hole[i]);
    assert_true(superpage->idle == 40 && superpage->idle_run == 20);
    for (unsigned i = 0; i < 2; i++) hole[i] = must_run(11, 1, MOBILITY_UNMOVABLE);
    assert_true(superpage->idle == 18 && superpage->idle_run == 18); /* of twice 9 */
    const unsigned before = superpage->present_list;
    struct zone_run other = must_run(14, 1, MOBILITY_UNMOVABLE);
    assert_int_not_equal(number_of(other.address), number_of(front.address));
    assert_int_equal(superpage->idle_run, 9);
    assert_true(superpage->present_list < before);
    ASSERT_SOUND();
    drop_run(other), drop_run(front);
    assert_int_equal(superpage->idle_run, 400);
    drop_run(hole[0]);
    assert_int_equal(superpage->idle_run, 420); /* what is freed joins what lies on both sides */
    ASSERT_SOUND();
    drop_run(hole[1]), drop_run(between[0]), drop_run(between[1]);
    assert_empty();
}

static void tags_lead_to_the_start_of_a_run(void **state) {
    (void)state;
    struct zone_run run = must_run(200, 1, MOBILITY_UNMOVABLE);
    zone_tag_run(&zone, run.address, 200, 77);
    for (unsigned i = 0; i < 200; i++) {
        granule_tag tag = zone.tags[zone_granule_of(&zone, (char *)run.address + i * GRANULE_BYTES + 123)];
        assert_int_equal(tag & 0xff, 77);
        assert_int_equal(tag >> 8, i);
        assert_false(zone_block_free(&zone, (char *)run.address + i * GRANULE_BYTES));
    }
    zone_tag_run(&zone, run.address, 200, TAG_NONE);
    for (unsigned i = 0; i < 200; i++) assert_int_equal(zone.tags[zone_granule_of(&zone, run.address) + i], 0);
    drop_run(run);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_size_is_inside_one_superpage, plain_zone),
        cmocka_unit_test_setup(every_alignment_holds, plain_zone),
        cmocka_unit_test_setup(a_mobility_has_superpages_of_its_own, plain_zone),
        cmocka_unit_test_setup(the_superpage_with_the_least_room_serves_first, plain_zone),
        cmocka_unit_test_setup(of_like_superpages_the_fullest_serves_first, plain_zone),
        cmocka_unit_test_setup(present_pages_come_before_fullness, plain_zone),
        cmocka_unit_test_setup(in_a_superpage_present_pages_come_first, plain_zone),
        cmocka_unit_test_setup(known_zeros_are_zeros, plain_zone),
        cmocka_unit_test(a_zone_is_grouped_once_it_was_large),
        cmocka_unit_test(long_runs_and_pages_do_not_lie_behind_slabs),
        cmocka_unit_test(without_groups_all_mobilities_share_superpages),
        cmocka_unit_test(a_group_without_room_steals_and_takes_over),
        cmocka_unit_test(movable_runs_are_guests),
        cmocka_unit_test(stealing_takes_the_largest_room),
        cmocka_unit_test(groups_grow_into_the_longest_holes),
        cmocka_unit_test_setup(who_became_fewer_are_the_runs_of_no_block, plain_zone),
        cmocka_unit_test(exhausted_address_space_is_a_refusal),
        cmocka_unit_test(the_hard_limit_is_exact),
        cmocka_unit_test_setup(a_present_run_is_found_among_many, plain_zone),
        cmocka_unit_test_setup(who_looks_in_vain_for_present_pages_corrects_what_is_known, plain_zone),
        cmocka_unit_test_setup(tags_lead_to_the_start_of_a_run, plain_zone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
