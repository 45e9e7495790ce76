/*
 * test_page_sizes.c - the zone on systems of 4, 16 and 64 KiB pages: everything in whole pages, the same promises; and long random use.
 */
#include "unit/page/page_support.h"

static const size_t page_sizes[] = {4 * KIB, 16 * KIB, 64 * KIB};

static void begin_pages(size_t page_bytes, struct zone_config config) {
    struct sim_config sim = {.page_bytes = page_bytes};
    begin(&sim, config);
    assert_int_equal(zone.page_granules, page_bytes / GRANULE_BYTES);
}

static void runs_are_whole_pages(void **state) {
    (void)state;
    for (unsigned p = 0; p < ARRAY_LENGTH(page_sizes); p++) {
        begin_pages(page_sizes[p], plain_config());
        for (unsigned granules = 1; granules <= 40; granules++) {
            struct zone_run a = must_run(granules, 1, MOBILITY_UNMOVABLE), b = must_run(1, 32, MOBILITY_MOVABLE);
            assert_int_equal((uintptr_t)a.address % page_sizes[p], 0);
            assert_int_equal(counters().allocated * GRANULE_BYTES % page_sizes[p], 0);
            ASSERT_SOUND();
            zone_run_free(&zone, a.address, granules); /* as was asked */
            drop_run(b);
        }
        assert_empty();
    }
}

static void blocks_resize_and_move(void **state) {
    (void)state;
    for (unsigned p = 0; p < ARRAY_LENGTH(page_sizes); p++) {
        begin_pages(page_sizes[p], plain_config());
        char *block = must_block(100, 1), *wall = must_block(100, 1);
        assert_int_equal(zone_block_bytes(&zone, block), page_sizes[p]);
        assert_null(zone_block_resize(&zone, block, page_sizes[p] + 1, false));
        drop_block(wall);
        size_t bytes = max_u64(20 * page_sizes[p], 320 * KIB), granules = bytes >> GRANULE_SHIFT; /* a smaller one would be copied */
        assert_ptr_equal(zone_block_resize(&zone, block, bytes, false), block);
        wall = must_block(100, 1);
        mark(block, granules, 1);
        ASSERT_SOUND();
        char *moved = zone_block_resize(&zone, block, 3 * MIB, true);
        assert_non_null(moved);
        assert_true(is_marked(moved, granules, 1));
        assert_ptr_equal(zone_block_resize(&zone, moved, 1, true), moved);
        assert_int_equal(zone_block_bytes(&zone, moved), page_sizes[p]);
        ASSERT_SOUND();
        zone_release(&zone, 0);
        assert_int_equal(counters().populated, 2 * zone.page_granules);
        ASSERT_SOUND();
        drop_block(moved), drop_block(wall);
        assert_empty();
    }
}

static void pages_ahead_are_whole(void **state) {
    (void)state;
    for (unsigned p = 0; p < ARRAY_LENGTH(page_sizes); p++)
        for (unsigned ahead = 1; ahead <= 512; ahead *= 2) {
            struct zone_config config = plain_config();
            config.populate_granules = ahead;
            begin_pages(page_sizes[p], config);
            for (unsigned i = 0; i < 100; i++) {
                (void)must_run(1 + i * 7 % 30, 1, i % 2);
                assert_int_equal(counters().populated % zone.page_granules, 0);
                if (i % 25 == 0) ASSERT_SOUND();
            }
            ASSERT_SOUND();
            zone_release(&zone, 0);
            assert_int_equal(counters().idle, 0);
            ASSERT_SOUND();
        }
}

/* Everything at once, for a while, under each policy. The contents of whatever is alive are verified when it goes. */
struct thing {
    char *address;
    unsigned granules;
    bool block;
    uint64_t id;
};

static void random_use(size_t page_bytes, struct zone_config config, uint64_t seed) {
    static struct thing things[80];
    memset(things, 0, sizeof things);
    begin_pages(page_bytes, config);
    for (unsigned round = 1; round <= 800; round++) {
        struct thing *thing = &things[next_random(&seed) % ARRAY_LENGTH(things)];
        uint64_t choice = next_random(&seed) % 16, size = next_random(&seed);
        size = size % 8 == 0 ? size / 8 % 2000 + 1 : size / 8 % 60 + 1;
        if (thing->address == NULL) {
            bool zeroed = false;
            thing->block = choice % 2 == 0 || size > 200;
            if (thing->block) {
                thing->address = zone_block_alloc(&zone, size << GRANULE_SHIFT, choice % 4 == 0 ? 64 * KIB : 1, &zeroed);
                thing->granules = thing->address != NULL ? (unsigned)(zone_block_bytes(&zone, thing->address) >> GRANULE_SHIFT) : 0;
            } else {
                struct zone_run run = {0};
                (void)zone_run_alloc(&zone, (unsigned)size, choice % 4 == 1 ? 16 : 1, choice % 3, &run);
                *thing = (struct thing){.address = run.address, .granules = run.granules};
                zeroed = run.zeroed;
            }
            if (thing->address == NULL) continue;
            if (zeroed) assert_true(is_zero(thing->address, (size_t)thing->granules << GRANULE_SHIFT));
            mark(thing->address, thing->granules, thing->id = round);
        } else if (thing->block && choice < 9) {
            char *now = zone_block_resize(&zone, thing->address, size << GRANULE_SHIFT, choice < 6);
            if (now == NULL) continue;
            unsigned granules = (unsigned)(zone_block_bytes(&zone, now) >> GRANULE_SHIFT);
            assert_int_equal(granules, align_up(size, zone.page_granules));
            assert_true(is_marked(now, granules < thing->granules ? granules : thing->granules, thing->id));
            thing->address = now;
            mark(now, thing->granules = granules, thing->id);
        } else {
            assert_true(is_marked(thing->address, thing->granules, thing->id));
            if (thing->block)
                drop_block(thing->address);
            else
                zone_run_free(&zone, thing->address, thing->granules);
            thing->address = NULL;
        }
        if (round % 40 == 0) zone_tick(&zone);
        if (round % 250 == 0) zone_release(&zone, 1 * MIB);
        if (round % 100 == 0) ASSERT_SOUND();
    }
    for (unsigned i = 0; i < ARRAY_LENGTH(things); i++) {
        struct thing *thing = &things[i];
        if (thing->address == NULL) continue;
        assert_true(is_marked(thing->address, thing->granules, thing->id));
        if (thing->block)
            drop_block(thing->address);
        else
            zone_run_free(&zone, thing->address, thing->granules);
    }
    assert_empty();
}

static void random_use_under_every_policy(void **state) {
    (void)state;
    for (unsigned p = 0; p < ARRAY_LENGTH(page_sizes); p++)
        for (unsigned policy = 0; policy < 4; policy++) {
            struct zone_config config = plain_config();
            config.thp = policy % 3;
            config.populate_granules = policy % 2 != 0 ? 16 : 1;
            if (policy == 2) config.soft_limit_bytes = 20 * MIB;
            if (policy == 3) config.hard_limit_bytes = 30 * MIB;
            random_use(page_sizes[p], config, p * 4 + policy);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_whole_pages),
        cmocka_unit_test(blocks_resize_and_move),
        cmocka_unit_test(pages_ahead_are_whole),
        cmocka_unit_test(random_use_under_every_policy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
