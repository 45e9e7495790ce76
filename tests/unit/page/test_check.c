/*
 * test_check.c - zone_check finds what is wrong: every kind of damage is planted in a sound zone, found under its name, and taken back.
 */
#include "unit/page/page_support.h"

/*
 * A zone with one superpage of each kind, and where they are:
 *   runs   300 allocated granules and idle ones behind them
 *   idle   wholly free, with present granules
 *   block  the second superpage of a block, half of it allocated
 */
static struct superpage *runs, *idle, *block;
static struct zone_run kept;
static char *kept_block;

static void build(enum zone_thp thp) {
    struct zone_config config = plain_config();
    config.thp = thp;
    begin(NULL, config);
    kept_block = must_block(3 * MIB, 1);
    kept = must_run(300, 1, MOBILITY_UNMOVABLE);
    struct zone_run hole = must_run(100, 1, MOBILITY_UNMOVABLE), other = must_run(200, 1, MOBILITY_RECLAIMABLE);
    block = superpage_of(&zone, kept_block + SUPERPAGE_BYTES);
    runs = superpage_of(&zone, kept.address);
    idle = superpage_of(&zone, other.address);
    drop_run(hole), drop_run(other);
    ASSERT_SOUND();
    assert_int_equal(runs->free, 212);
    assert_int_equal(block->free, 256);
    assert_true(runs->linked == IDLE_HOLES && idle->linked == IDLE_FREE && block->linked == IDLE_NONE);
}

static int build_plain(void **state) {
    (void)state;
    build(ZONE_THP_NEVER);
    return 0;
}

static void expect(const char *text) {
    const char *found = zone_check(&zone);
    assert_non_null(found);
    assert_string_equal(found, text);
    assert_int_equal(sim_locks_held(), 0);
}

/* A field with another value for the length of one check. */
#define EXPECT_WITH(field, value, text)                    \
    do {                                                   \
        __typeof__(field) saved_ = (field);                \
        assert_true(saved_ != (__typeof__(field))(value)); \
        (field) = (__typeof__(field))(value);              \
        expect(text);                                      \
        (field) = saved_;                                  \
        assert_null(zone_check(&zone));                    \
    } while (0)

static void counts_of_a_superpage(void **state) {
    (void)state;
    struct superpage *const all[] = {runs, idle, block};
    for (unsigned i = 0; i < ARRAY_LENGTH(all); i++) {
        EXPECT_WITH(all[i]->idle, all[i]->idle + 1, "superpage: idle differs from its bitfields");
        EXPECT_WITH(all[i]->free, all[i]->free - 1, "superpage: free differs from its bitfield");
        EXPECT_WITH(all[i]->largest_free, all[i]->largest_free - 1, "superpage: largest_free differs from its bitfield");
    }
}

static void bits_of_a_superpage(void **state) {
    (void)state;
    /* A granule that is lost or found without a word: the counts tell. */
    EXPECT_WITH(runs->allocated[0], runs->allocated[0] & ~UINT64_C(16), "superpage: idle differs from its bitfields");
    EXPECT_WITH(runs->allocated[7], 1, "superpage: free differs from its bitfield");
    EXPECT_WITH(runs->populated[5], 0, "superpage: idle differs from its bitfields");
    EXPECT_WITH(idle->populated[0], idle->populated[0] << 1, "superpage: idle differs from its bitfields");
    /* Allocated, but not present by the marks: the counts are right. */
    EXPECT_WITH(runs->populated[0], runs->populated[0] & ~UINT64_C(1), "superpage: allocated but not counted as populated");
    EXPECT_WITH(block->populated[3], 0, "superpage: allocated but not counted as populated");
    EXPECT_WITH(idle->allocated[7], 1, "a free superpage has allocated granules");
}

static void lists_of_a_superpage(void **state) {
    (void)state;
    EXPECT_WITH(runs->linked, IDLE_NONE, "superpage: on an idle list where it does not belong, or not where it does");
    EXPECT_WITH(runs->linked, IDLE_FREE, "superpage: on an idle list where it does not belong, or not where it does");
    EXPECT_WITH(idle->linked, IDLE_HOLES, "superpage: on an idle list where it does not belong, or not where it does");
    EXPECT_WITH(block->linked, IDLE_HOLES, "superpage: on an idle list where it does not belong, or not where it does");

    list_remove(&runs->idle_link);
    expect("superpage: says it is on an idle list, and is not");
    list_push_back(&zone.idle[IDLE_FREE], &runs->idle_link);
    expect("superpage: says it is on an idle list, and is not");
    list_remove(&runs->idle_link);
    list_push_back(&zone.idle[IDLE_HOLES], &runs->idle_link);
    assert_null(zone_check(&zone));

    list_remove(&idle->idle_link);
    expect("superpage: says it is on an idle list, and is not");
    list_push_back(&zone.idle[IDLE_FREE], &idle->idle_link);
    assert_null(zone_check(&zone));

    list_remove(&runs->bucket);
    expect("superpage: not in the bucket of its longest run");
    list_push_front(&zone.buckets[MOBILITY_RECLAIMABLE][bit_highest(runs->largest_free)], &runs->bucket);
    expect("superpage: not in the bucket of its longest run"); /* right length, wrong group */
    list_remove(&runs->bucket);
    list_push_front(&zone.buckets[MOBILITY_UNMOVABLE][bit_highest(runs->largest_free) + 1], &runs->bucket);
    expect("superpage: not in the bucket of its longest run");
    list_remove(&runs->bucket);
    list_push_front(&zone.buckets[MOBILITY_UNMOVABLE][bit_highest(runs->largest_free)], &runs->bucket);
    assert_null(zone_check(&zone));
    EXPECT_WITH(runs->mobility, MOBILITY_MOVABLE, "superpage: not in the bucket of its longest run");
}

static void lists_of_present_runs(void **state) {
    (void)state;
    assert_int_equal(runs->idle_run, 100);
    EXPECT_WITH(runs->idle_run, 99, "superpage: a run of idle granules is longer than is known");
    EXPECT_WITH(runs->idle_run, 200, "superpage: on another list of present runs than its own");
    EXPECT_WITH(runs->present_list, 0, "superpage: on another list of present runs than its own");
    EXPECT_WITH(idle->present_list, runs->present_list, "superpage: on another list of present runs than its own");
    EXPECT_WITH(zone.present_any[MOBILITY_UNMOVABLE], 0, "zone: a list of present runs is not to be looked at");
    list_remove(&runs->present_link);
    expect("superpage: says it is on a list of present runs, and is not");
    list_push_front(&zone.present[runs->present_list], &runs->present_link);
    assert_null(zone_check(&zone));
}

/* The owner's run is freed in the bits, and the superpage forgotten. */
static void a_superpage_that_should_be_given_back(void **state) {
    (void)state;
    zone_mark_free(&zone, runs, offset_of(kept.address), kept.granules);
    expect("superpage: wholly free but not given back");
    zone_superpage_settle(&zone, runs);
    ASSERT_SOUND();
}

static void sums_of_the_zone(void **state) {
    (void)state;
    EXPECT_WITH(zone.counters.allocated, zone.counters.allocated + 1, "zone: allocated differs from the sum over superpages");
    EXPECT_WITH(zone.counters.populated, zone.counters.populated - 1, "zone: populated differs from the sum over superpages");
    EXPECT_WITH(zone.counters.idle, zone.counters.idle + 1, "zone: idle differs from the sum over superpages");
    EXPECT_WITH(zone.counters.described, 0, "zone: described differs from the number of such superpages");
    EXPECT_WITH(runs->described, false, "zone: described differs from the number of such superpages");
    EXPECT_WITH(zone.counters.idle_huge, 1, "zone: idle_huge differs from the sum over superpages");
    EXPECT_WITH(runs->huge, true, "zone: idle_huge differs from the sum over superpages");
    build(ZONE_THP_ALWAYS);
    assert_true(runs->huge && runs->idle != 0);
    assert_int_equal(zone.counters.idle_huge, runs->idle);
    EXPECT_WITH(zone.counters.idle_huge, 0, "zone: idle_huge differs from the sum over superpages");
    EXPECT_WITH(runs->huge, false, "zone: idle_huge differs from the sum over superpages");
    /* Idle pages of what is wholly free, or of blocks, are no reason to keep a huge page: the mark may say either. */
    idle->huge = !idle->huge;
    assert_null(zone_check(&zone));
}

static void addresses_that_nobody_has(void **state) {
    (void)state;
    uint64_t address = 0;
    assert_int_equal(arena_alloc(&zone.addresses, SUPERPAGE_BYTES, ARENA_BEST_FIT, &address), ARENA_OK);
    expect("zone: superpages in use differ from the arena of addresses");
    assert_int_equal(arena_free(&zone.addresses, address, SUPERPAGE_BYTES), ARENA_OK);
    assert_null(zone_check(&zone));
    assert_int_equal(arena_free(&zone.addresses, (uintptr_t)superpage_address(&zone, runs), SUPERPAGE_BYTES), ARENA_OK);
    expect("zone: superpages in use differ from the arena of addresses");
}

/* The arena of addresses is checked, too. What it finds is tested with it: tests/unit/arena/test_check.c. */
static void damage_of_the_arena(void **state) {
    (void)state;
    EXPECT_WITH(zone.addresses.total, zone.addresses.total + 1, "counters: total != sum of spans");
    EXPECT_WITH(zone.addresses.segments_free, 0, "lists: more listed than segments_free");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(counts_of_a_superpage, build_plain), cmocka_unit_test_setup(bits_of_a_superpage, build_plain),
        cmocka_unit_test_setup(lists_of_a_superpage, build_plain),  cmocka_unit_test_setup(a_superpage_that_should_be_given_back, build_plain),
        cmocka_unit_test_setup(lists_of_present_runs, build_plain), cmocka_unit_test_setup(a_superpage_that_should_be_given_back, build_plain),
        cmocka_unit_test_setup(sums_of_the_zone, build_plain),      cmocka_unit_test_setup(addresses_that_nobody_has, build_plain),
        cmocka_unit_test_setup(damage_of_the_arena, build_plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
