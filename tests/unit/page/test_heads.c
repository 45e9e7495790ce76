/*
 * test_heads.c - heads of runs: each run finds its own, none overlap, room never ends while runs ask for what they may, and what was given back is
 * taken again. Against a plain list of who has which units.
 */
#include "unit/page/page_support.h"

#define HEADS SUPERPAGE_GRANULES

static struct {
    uint32_t head;
    size_t bytes;
    unsigned granules; /* 0: no head begins here */
} runs[HEADS];

/* Every unit of every head belongs to one run: each writes its number into its own words, and finds it there. */
static void check_heads(void) {
    uint64_t units = 0;
    for (unsigned pass = 0; pass < 2; pass++)
        for (unsigned at = 0; at < HEADS; at++)
            if (runs[at].granules != 0) {
                uint64_t *words = zone_head(&zone, runs[at].head);
                assert_int_equal(zone_head_of(&zone, at), runs[at].head);
                for (size_t w = 0; w < runs[at].bytes / sizeof *words; w++)
                    if (pass == 0)
                        words[w] = at;
                    else
                        assert_int_equal(words[w], at);
                size_t rounded = HEAD_UNIT_BYTES;
                while (pass == 0 && rounded < runs[at].bytes) rounded *= 2;
                if (pass == 0) units += rounded / HEAD_UNIT_BYTES;
            }
    assert_int_equal(zone.head_units, units);
}

static void put(unsigned at) {
    zone_head_free(&zone, runs[at].head, runs[at].bytes);
    runs[at].granules = 0;
}

/* Runs of `unit` granules and multiples of it, each with a head of up to two units a granule, come and go until the superpage was full many times. */
static void fill_and_empty(unsigned unit) {
    begin(NULL, plain_config());
    struct zone_run first = must_run(1, 1, MOBILITY_UNMOVABLE); /* the superpage exists */
    assert_int_equal(zone_granule_of(&zone, first.address), 0);
    uint64_t seed = 100 + unit;
    unsigned used = 0, full = 0;
    memset(runs, 0, sizeof runs);
    for (unsigned step = 0; step < 60000; step++) {
        unsigned at = (unsigned)(next_random(&seed) % (HEADS / unit)) * unit;
        if (step / 6000 % 2 == 1 ? runs[at].granules != 0 : runs[at].granules != 0 && next_random(&seed) % 1024 == 0) {
            used -= runs[at].granules;
            put(at);
        } else if (runs[at].granules == 0 && used + unit <= HEADS) {
            runs[at].granules = unit;
            runs[at].bytes = next_random(&seed) % 2 == 0 ? HEAD_UNIT_BYTES : unit * 2 * HEAD_UNIT_BYTES;
            runs[at].head = zone_head_alloc(&zone, at, runs[at].bytes);
            assert_int_not_equal(runs[at].head, HEAD_NONE);
            used += unit;
            full += used == HEADS;
        }
        if (step % 997 == 0) check_heads();
    }
    check_heads();
    assert_true(full > 1);
    for (unsigned at = 0; at < HEADS; at++)
        if (runs[at].granules != 0) put(at);
    check_heads();
    zone_run_free(&zone, first.address, 1);
    assert_empty();
}

static void room_never_ends(void **state) {
    (void)state;
    fill_and_empty(1);
    fill_and_empty(4);
    fill_and_empty(16);
}

static void a_full_superpage_says_so(void **state) {
    (void)state;
    begin(NULL, plain_config());
    struct zone_run first = must_run(1, 1, MOBILITY_UNMOVABLE);
    uint32_t heads[HEADS];
    for (unsigned at = 0; at < HEADS; at++) heads[at] = zone_head_alloc(&zone, at, 2 * HEAD_UNIT_BYTES);
    assert_int_equal(zone_head_alloc(&zone, 0, HEAD_UNIT_BYTES), HEAD_NONE);
    for (unsigned at = 0; at < HEADS; at++) zone_head_free(&zone, heads[at], 2 * HEAD_UNIT_BYTES);
    /* Of many sizes: the lowest place that is aligned and free. */
    uint32_t small = zone_head_alloc(&zone, 0, 1), large = zone_head_alloc(&zone, 1, 24 + 16 * sizeof(uint64_t)),
             after = zone_head_alloc(&zone, 2, 33);
    assert_int_equal(small, 0);
    assert_int_equal(large, 8);
    assert_int_equal(after, 2);
    zone_head_free(&zone, small, 1);
    zone_head_free(&zone, large, 24 + 16 * sizeof(uint64_t));
    zone_head_free(&zone, after, 33);
    zone_run_free(&zone, first.address, 1);
    assert_empty();
}

/* What is planted is found: a head in a superpage of which nothing is in use. */
static void heads_without_runs_are_found(void **state) {
    (void)state;
    begin(NULL, plain_config());
    struct zone_run run = must_run(1, 1, MOBILITY_UNMOVABLE);
    uint32_t head = zone_head_alloc(&zone, 0, 40);
    zone_run_free(&zone, run.address, 1);
    assert_string_equal(zone_check(&zone), "superpage: heads without runs");
    zone_head_free(&zone, head, 40);
    assert_empty();
}

/* Of blocks that nobody has touched nothing is idle when they end, and of some hundred MiB of them the descriptors alone are MiBs. */
static void descriptors_of_absent_superpages_go_back(void **state) {
    (void)state;
    for (unsigned tick = 0; tick < 2; tick++) {
        begin(NULL, plain_config());
        char *blocks[128];
        for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++) assert_non_null(blocks[i] = zone_block_alloc(&zone, 256 * KIB, 1, NULL));
        assert_int_equal(counters().described, ARRAY_LENGTH(blocks) / 8);
        for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++) drop_block(blocks[i]);
        ASSERT_SOUND();
        if (tick != 0) /* what rested is idle then, and unused at the second */
            zone_tick(&zone), zone_tick(&zone);
        else
            zone_release(&zone, 0);
        assert_int_equal(counters().described, 0);
        assert_int_equal(sim_populated_pages(zone.descs, ARRAY_LENGTH(blocks) / 8 * SUPERPAGE_GRANULES * sizeof(struct granule_desc)), 0);
        ASSERT_SOUND();
        drop_block(must_block(256 * KIB, 1));
        assert_empty();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room_never_ends),
        cmocka_unit_test(a_full_superpage_says_so),
        cmocka_unit_test(heads_without_runs_are_found),
        cmocka_unit_test(descriptors_of_absent_superpages_go_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
