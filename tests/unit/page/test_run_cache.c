/*
 * test_run_cache.c - what a CPU keeps of the blocks that were freed there: it is handed on as it is, by that CPU alone; a second free is seen; it is
 * bounded; and nobody misses its pages.
 */
#include "unit/page/page_support.h"

#define RUN_GRANULES ((size_t)16)
#define RUN_BYTES (RUN_GRANULES * GRANULE_BYTES)
/* Three halves of it are more than blocks may have too much in a small heap. */
#define LONGER_RUN ((size_t)180)

static unsigned kept_on(unsigned cpu) { return cpu < zone.run_caches_used ? zone.run_caches[cpu].count : 0; }
static unsigned kept(void) { return kept_on(sim_cpu_id() % RUN_CACHES); }
static char *cached(size_t granules, size_t align) { return zone_block_cached(&zone, granules * GRANULE_BYTES, align, false); }

/* Something else in the superpage, which does not come and go. */
static char *wall;
static int zone_with_a_wall(void **state) {
    plain_zone(state);
    wall = must_block(GRANULE_BYTES, 1);
    return 0;
}
/* The same, with pages that are idle, so that nobody needs those that are kept. */
static int zone_with_idle_pages(void **state) {
    zone_with_a_wall(state);
    drop_block(must_block(800 * KIB, 1));
    return (int)(counters().idle - 200); /* none rests any more */
}
static void end(void) {
    drop_block(wall);
    assert_empty();
}

static void a_run_is_handed_on_as_it_is(void **state) {
    (void)state;
    char *block = must_block(RUN_BYTES, 1);
    mark(block, RUN_GRANULES, 7);
    drop_block(block);
    assert_int_equal(kept(), 1);
    assert_ptr_equal(cached(RUN_GRANULES, 1), block);
    assert_int_equal(kept(), 0);
    assert_true(is_marked(block, RUN_GRANULES, 7));
    assert_int_equal(zone_block_bytes(&zone, block), RUN_BYTES);
    assert_int_equal(counters().blocks, 2);
    drop_block(block);
    bool zeroed = true;
    const struct zone_block_config config = {.bytes = RUN_BYTES, .mobility = MOBILITY_MOVABLE};
    assert_ptr_equal(zone_block_create(&zone, &config, &zeroed), block);
    assert_false(zeroed);
    drop_block(block);
    assert_null(cached(RUN_GRANULES + 1, 1));
    end();
}

static void what_is_kept_is_nobodys(void **state) {
    (void)state;
    struct zone_block_info info;
    char *block = must_block(RUN_BYTES, 1);
    drop_block(block);
    assert_int_equal(kept(), 1);
    assert_false(zone_block_free(&zone, block));
    assert_int_equal(kept(), 1);
    assert_int_equal(zone_block_bytes(&zone, block), 0);
    assert_int_equal(zone_block_bytes(&zone, block), 0);
    assert_int_equal(zone_block_find(&zone, block, 1, &info), ZONE_NO_BLOCK);
    assert_int_equal(zone_block_find(&zone, block + GRANULE_BYTES, 1, &info), ZONE_NO_BLOCK);
    assert_int_equal(zone_block_split(&zone, block, GRANULE_BYTES), ZONE_NO_BLOCK);
    assert_int_equal(zone_block_join(&zone, wall, block), ZONE_NO_BLOCK);
    assert_int_equal(counters().allocated, 1); /* the look has woken it */
    assert_int_equal(kept(), 0);
    assert_false(zone_block_free(&zone, block));
    end();
}

static unsigned ended;
static void watches_end(char *address, size_t bytes) {
    (void)address;
    ended += bytes != 0;
}

static void one_that_is_longer_will_do(void **state) {
    (void)state;
    char *longer = must_block(18 * GRANULE_BYTES, 1), *longest = must_block(19 * GRANULE_BYTES, 1);
    drop_block(longest), drop_block(longer);
    assert_null(cached(8, 1)); /* by more than is asked for */
    const struct zone_block_config exact = {.bytes = 17 * GRANULE_BYTES, .mobility = MOBILITY_MOVABLE};
    char *other = zone_block_create(&zone, &exact, NULL);
    assert_true(other != longer && other != longest);
    drop_block(other);
    assert_ptr_equal(cached(17, 1), other); /* the one that fits best */
    assert_ptr_equal(cached(17, 1), longer);
    assert_int_equal(zone_block_bytes(&zone, longer), 17 * GRANULE_BYTES); /* its owner knows of no more */
    assert_ptr_equal(cached(18, 1), longest);
    void *at = longer;
    assert_int_equal(zone_block_resize_at(&zone, &at, 65 * MIB, false, 1), ZONE_NO_ROOM); /* which changes nothing */
    assert_int_equal(zone_block_bytes(&zone, longer), 17 * GRANULE_BYTES);
    struct zone_block_info info;
    assert_int_equal(zone_block_find(&zone, longer, 1, &info), ZONE_OK);
    assert_int_equal(info.bytes, 17 * GRANULE_BYTES);
    assert_int_equal(info.capacity_bytes, 18 * GRANULE_BYTES);
    assert_int_equal(zone_block_find(&zone, longer, 18 * GRANULE_BYTES, &info), ZONE_NO_BLOCK);
    ended = 0;
    assert_int_equal(zone_pages_watch(&zone, longer, 17 * GRANULE_BYTES, watches_end), ZONE_OK);
    assert_ptr_equal(zone_block_resize(&zone, longer, 17 * GRANULE_BYTES, false), longer);
    assert_int_equal(ended, 0);
    assert_ptr_equal(zone_block_resize(&zone, longer, 18 * GRANULE_BYTES, false), longer);
    assert_int_equal(ended, 1); /* resized, for all that anybody knows */
    assert_int_equal(zone_block_bytes(&zone, longer), 18 * GRANULE_BYTES);
    assert_int_equal(zone_block_split(&zone, longest, 18 * GRANULE_BYTES), ZONE_BAD_RANGE);
    assert_int_equal(zone_block_split(&zone, longest, 4 * GRANULE_BYTES), ZONE_OK);
    assert_int_equal(zone_block_bytes(&zone, longest), 4 * GRANULE_BYTES);
    assert_int_equal(zone_block_bytes(&zone, longest + 4 * GRANULE_BYTES), 14 * GRANULE_BYTES);
    ASSERT_SOUND();
    drop_block(other), drop_block(longer), drop_block(longest), drop_block(longest + 4 * GRANULE_BYTES);
    end();
}

/* Among the latest eight, while a better one waits behind them; one that is longer by more than an eighth doesn't. */
static void one_that_is_hardly_longer_ends_the_look(void **state) {
    (void)state;
    char *first = must_block(16 * GRANULE_BYTES, 1), *latest[8];
    for (unsigned i = 0; i < ARRAY_LENGTH(latest); i++) latest[i] = must_block((i == 3 ? 18 : 20) * GRANULE_BYTES, 1);
    drop_block(first);
    for (unsigned i = 0; i < ARRAY_LENGTH(latest); i++) drop_block(latest[i]);
    assert_int_equal(kept(), 1 + ARRAY_LENGTH(latest));
    assert_ptr_equal(cached(16, 1), latest[3]);
    drop_block(latest[3]);
    assert_ptr_equal(cached(15, 1), first);
    drop_block(first);
    end();
}

/* One of LONGER_RUN granules, which comes to this CPU's cache, for half of that. */
static char *twice_as_long(void) {
    char *block = must_block(LONGER_RUN * GRANULE_BYTES, 1);
    drop_block(block);
    assert_ptr_equal(cached(LONGER_RUN / 2, 1), block);
    return block;
}
static char *fresh_block(void) { return must_block(SUPERPAGE_BYTES, 1); }
static bool is_wide(void) { return zone.longer.shift == zone.longer.wide; }

/* What all of them have too much is counted, and how much more the next may have follows from it. */
static void how_much_longer_follows_from_how_much_is_so(void **state) {
    (void)state;
    const uint32_t half = LONGER_RUN / 2;
    char *blocks[3], *fresh[4];
    blocks[0] = twice_as_long(), blocks[1] = twice_as_long();
    fresh[0] = fresh_block(); /* growth alone changes nothing */
    assert_true(is_wide());
    blocks[2] = twice_as_long();
    assert_int_equal(zone_longer_granules(&zone), 3 * half);
    assert_false(is_wide()); /* one CPU has handed on too much, before anybody asks */
    ASSERT_SOUND();
    char *other = must_block(LONGER_RUN * GRANULE_BYTES, 1);
    drop_block(other);
    assert_null(cached(LONGER_RUN * 4 / 5 - 1, 1));
    assert_ptr_equal(cached(LONGER_RUN * 4 / 5, 1), other);
    drop_block(other), drop_block(blocks[2]);
    fresh[1] = fresh_block(); /* with little of it growth makes the bound wide again */
    assert_true(is_wide());

    sim_cpu_set(1); /* two CPUs, of which none has handed on too much */
    blocks[2] = twice_as_long();
    assert_true(is_wide());
    fresh[2] = fresh_block();
    assert_false(is_wide());
    (void)zone_tick(&zone);
    assert_false(is_wide());
    drop_block(blocks[0]); /* nor does it matter who frees it */
    sim_cpu_set(0);
    (void)zone_tick(&zone);
    assert_true(is_wide());
    assert_int_equal(zone_longer_granules(&zone), 2 * half);

    assert_ptr_equal(zone_block_resize(&zone, blocks[1], (half + 7) * GRANULE_BYTES, false), blocks[1]); /* what is left stays there, and counted */
    assert_int_equal(zone_block_bytes(&zone, blocks[1]), (half + 7) * GRANULE_BYTES);
    assert_int_equal(zone_longer_granules(&zone), 2 * half - 7);
    assert_ptr_equal(zone_block_resize(&zone, blocks[1], LONGER_RUN * GRANULE_BYTES, false), blocks[1]);
    assert_int_equal(zone_longer_granules(&zone), half);
    assert_ptr_equal(zone_block_resize(&zone, blocks[2], GRANULE_BYTES, false), blocks[2]);
    assert_int_equal(zone_longer_granules(&zone), 0);
    ASSERT_SOUND();

    zone_set_soft_limit(&zone, 2 * (counters().populated - 1) << GRANULE_SHIFT);
    fresh[3] = fresh_block();
    assert_false(is_wide()); /* as half of what may be there is */
    for (unsigned i = 1; i < ARRAY_LENGTH(blocks); i++) drop_block(blocks[i]);
    for (unsigned i = 0; i < ARRAY_LENGTH(fresh); i++) drop_block(fresh[i]);
    end();
}

static void it_is_aligned_as_asked(void **state) {
    (void)state;
    char *block = must_block(RUN_BYTES, 64 * KIB);
    assert_int_equal((uintptr_t)block % (128 * KIB), 64 * KIB);
    drop_block(block);
    assert_null(cached(RUN_GRANULES, 128 * KIB));
    assert_ptr_equal(cached(RUN_GRANULES, 64 * KIB), block);
    drop_block(block);
    assert_ptr_equal(cached(RUN_GRANULES, 0), block);
    drop_block(block);
    end();
}

static void what_is_special_goes_to_the_zone(void **state) {
    (void)state;
    const struct zone_block_config special[] = {{.bytes = RUN_BYTES, .mobility = MOBILITY_UNMOVABLE},
                                                {.bytes = RUN_BYTES, .mobility = MOBILITY_RECLAIMABLE},
                                                {.bytes = RUN_BYTES, .mobility = MOBILITY_MOVABLE, .fixed = true},
                                                {.bytes = RUN_BYTES, .mobility = MOBILITY_MOVABLE, .grouped = true},
                                                {.bytes = 2 * MIB, .mobility = MOBILITY_MOVABLE},
                                                {.bytes = RUN_BYTES, .mobility = MOBILITY_MOVABLE, .reserve_bytes = 2 * RUN_BYTES}};
    for (unsigned i = 0; i < ARRAY_LENGTH(special); i++) {
        char *block = zone_block_create(&zone, &special[i], NULL);
        drop_block(block);
        assert_int_equal(kept(), 0);
    }
    char *block = must_block(RUN_BYTES, 1);
    assert_int_equal(zone_block_set_move(&zone, block, never_moves, NULL), ZONE_OK);
    drop_block(block);
    assert_int_equal(kept(), 0);
    block = must_block(RUN_BYTES, 1);
    block_of(&zone, block)->holes = true;
    drop_block(block);
    assert_int_equal(kept(), 0);

    block = must_block(RUN_BYTES, 1); /* nor is one that is kept given to who asks for more */
    drop_block(block);
    assert_int_equal(kept(), 1);
    for (unsigned i = 0; i < ARRAY_LENGTH(special); i++) {
        char *other = zone_block_create(&zone, &special[i], NULL);
        assert_true(other != NULL && zone_block_bytes(&zone, other) >= special[i].bytes);
        if (kept() == 1) assert_ptr_not_equal(other, block);
        drop_block(other);
    }
    end();
}

static void each_cpu_has_its_own(void **state) {
    (void)state;
    char *block = must_block(RUN_BYTES, 1);
    drop_block(block);
    unsigned first = sim_cpu_id();
    sim_cpu_set(1);
    assert_int_not_equal(sim_cpu_id(), first);
    assert_null(cached(RUN_GRANULES, 1));
    char *other = must_block(RUN_BYTES, 1);
    assert_ptr_not_equal(other, block);
    drop_block(other);
    assert_int_equal(kept_on(first), 1);
    assert_int_equal(kept(), 1);
    assert_ptr_equal(cached(RUN_GRANULES, 1), other);
    sim_cpu_set(0);
    assert_ptr_equal(cached(RUN_GRANULES, 1), block);
    drop_block(block), drop_block(other); /* wherever it came from */
    assert_int_equal(kept_on(first), 2);
    end();
}

static void no_more_is_kept_than_has_room(void **state) {
    (void)state;
    char *blocks[RUN_CACHE_USED_RUNS + 1];
    for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++) blocks[i] = must_block((1 + i % 3) * GRANULE_BYTES, 1);
    for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++) {
        drop_block(blocks[i]);
        assert_int_equal(kept(), i < RUN_CACHE_USED_RUNS ? i + 1 : RUN_CACHE_USED_RUNS - 15); /* several go at once */
    }
    for (unsigned i = 0; i < kept(); i++) /* the longest there first */
        assert_int_equal(zone.run_caches[sim_cpu_id()].runs[i].at, zone_granule_of(&zone, blocks[ARRAY_LENGTH(blocks) - kept() + i]));
    (void)counters();
    assert_int_equal(kept(), 0);

    enum { LONG = 200 };
    char *longs[4]; /* of any length up to half a superpage, however much they are of the heap */
    for (unsigned i = 0; i < ARRAY_LENGTH(longs); i++) longs[i] = must_block(LONG * GRANULE_BYTES, 1);
    char *longest = must_block(MIB, 1), *too_long = must_block(MIB + GRANULE_BYTES, 1);
    for (unsigned i = 0; i < ARRAY_LENGTH(longs); i++) drop_block(longs[i]);
    drop_block(longest);
    assert_int_equal(kept(), 5);
    drop_block(too_long);
    assert_int_equal(kept(), 5);
    assert_ptr_equal(cached(MIB / GRANULE_BYTES, 1), longest);
    for (unsigned i = 0; i < ARRAY_LENGTH(longs); i++) assert_ptr_equal(cached(LONG, 1), longs[ARRAY_LENGTH(longs) - 1 - i]);
    drop_block(longest);
    for (unsigned i = 0; i < ARRAY_LENGTH(longs); i++) drop_block(longs[i]);
    end();
}

/* The longest there are given up, some at a time, first of this CPU's: the others may be asked for again. */
static void who_needs_pages_takes_no_more_than_some(void **state) {
    (void)state;
    enum { KEPT = 40 };
    char *blocks[2][KEPT];
    for (unsigned cpu = 0; cpu < 2; cpu++) {
        sim_cpu_set(cpu);
        for (unsigned i = 0; i < KEPT; i++) blocks[cpu][i] = must_block(GRANULE_BYTES, 1);
    }
    const uint64_t populated = counters().populated_total;
    for (unsigned cpu = 0; cpu < 2; cpu++) {
        sim_cpu_set(cpu);
        for (unsigned i = 0; i < KEPT; i++) drop_block(blocks[cpu][i]);
    }
    struct zone_run runs[3];
    const unsigned left[] = {KEPT - 16, KEPT - 32, 0}; /* pieces of 16; of the last eight are too few, and the other CPU's come next */
    for (unsigned i = 0; i < ARRAY_LENGTH(runs); i++) {
        runs[i] = must_run(16, 1, MOBILITY_MOVABLE);
        assert_int_equal(runs[i].fresh, 0);
        assert_int_equal(kept_on(1), left[i]);
        if (i < 2) assert_int_equal(kept_on(0), KEPT);
        if (i == 1) assert_int_equal(zone.run_caches[1].runs[0].at, zone_granule_of(&zone, blocks[1][32]));
    }
    assert_int_equal(kept_on(0), KEPT - 16);
    assert_int_equal(zone.counters.populated_total, populated);
    for (unsigned i = 0; i < ARRAY_LENGTH(runs); i++) drop_run(runs[i]);
    sim_cpu_set(0);
    end();
}

static void its_pages_serve_before_any_is_touched_for_the_first_time(void **state) {
    (void)state;
    char *block = must_block(RUN_BYTES, 1);
    mark(block, RUN_GRANULES, 3);
    uint64_t populated = counters().populated_total;
    drop_block(block);
    struct zone_run run = must_run(4, 1, MOBILITY_MOVABLE);
    assert_int_equal(run.fresh, 0);
    assert_int_equal(kept(), 0);
    sim_cpu_set(1); /* nor does it matter who has them */
    drop_run(run);
    block = must_block(RUN_BYTES, 1);
    drop_block(block);
    sim_cpu_set(0);
    assert_int_equal(kept_on(1), 1);
    run = must_run(RUN_GRANULES, 1, MOBILITY_MOVABLE);
    assert_int_equal(run.fresh, 0);
    assert_int_equal(kept_on(1), 0);
    assert_int_equal(counters().populated_total, populated);
    drop_run(run);
    end();
}

static void who_grows_finds_room_behind(void **state) {
    (void)state;
    char *low = must_block(RUN_BYTES, 1), *high = must_block(RUN_BYTES, 1);
    assert_ptr_equal(high, low + RUN_BYTES);
    drop_block(high);
    assert_int_equal(kept(), 1);
    assert_ptr_equal(zone_block_resize(&zone, low, 2 * RUN_BYTES, false), low);
    assert_int_equal(kept(), 0);
    drop_block(low);
    end();
}

static void it_counts_for_no_limit(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.hard_limit_bytes = 2 * RUN_BYTES;
    begin(NULL, config);
    wall = must_block(GRANULE_BYTES, 1);
    char *block = must_block(RUN_BYTES, 1);
    drop_block(block);
    assert_int_equal(kept(), 1);
    assert_null(cached(RUN_GRANULES - 2, 1)); /* and few blocks are in the way of one for more than they were asked for */
    assert_ptr_equal(cached(RUN_GRANULES - 1, 1), block);
    drop_block(block);
    block = must_block(2 * RUN_BYTES - GRANULE_BYTES, 1);
    assert_int_equal(kept(), 0);
    bool zeroed;
    assert_null(zone_block_alloc(&zone, GRANULE_BYTES, 1, &zeroed));
    drop_block(block);
    zone_set_soft_limit(&zone, GRANULE_BYTES); /* where memory is short nothing is kept */
    block = must_block(RUN_BYTES, 1);
    drop_block(block);
    assert_int_equal(kept(), 0);
    assert_int_equal(counters().idle, 0);
    end();
}

/* Where that alone could refuse something: an eighth, and a 32nd once there is much of it. */
static void limits_narrow_what_is_longer(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.hard_limit_bytes = 32 * MIB;
    begin(NULL, config);
    wall = must_block(GRANULE_BYTES, 1);
    char *blocks[10], *block, *fresh;
    for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++) {
        blocks[i] = must_block(252 * GRANULE_BYTES, 1);
        drop_block(blocks[i]);
        assert_null(cached(223, 1));
        assert_ptr_equal(cached(224, 1), blocks[i]);
    }
    assert_int_equal(zone_longer_granules(&zone), ARRAY_LENGTH(blocks) * 28);
    fresh = fresh_block();
    block = must_block(132 * GRANULE_BYTES, 1);
    drop_block(block);
    assert_null(cached(127, 1));
    assert_ptr_equal(cached(128, 1), block);
    drop_block(block), drop_block(fresh);
    for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++) drop_block(blocks[i]);
    end();

    const struct longer_runs limited = zone.longer;
    struct sim_config sim = {.address_limit_bytes = 64 * MIB};
    config = plain_config();
    config.reserve_bytes = 0;
    begin(&sim, config);
    assert_true(zone.growing);
    assert_true(zone.longer.shift == limited.wide && zone.longer.wide == limited.wide && zone.longer.narrow == limited.narrow);
}

static void a_tick_empties_it(void **state) {
    (void)state;
    char *block = must_block(RUN_BYTES, 1);
    mark(block, RUN_GRANULES, 3);
    drop_block(block);
    (void)zone_tick(&zone);
    assert_int_equal(kept(), 0);
    (void)zone_tick(&zone);
    assert_int_equal(present_granules(), 1); /* the wall's */
    end();
}

static void a_fork_takes_it_along(void **state) {
    (void)state;
    char *block = must_block(RUN_BYTES, 1), *other = must_block(RUN_BYTES, 1);
    drop_block(block);
    zone_fork_prepare(&zone);
    zone_fork_parent(&zone);
    assert_ptr_equal(cached(RUN_GRANULES, 1), block);
    drop_block(block);
    zone_fork_prepare(&zone);
    zone_fork_child(&zone);
    assert_ptr_equal(cached(RUN_GRANULES, 1), block);
    drop_block(block), drop_block(other);
    end();
}

/* Who asks how much is idle is told of it, and leaves it where it is. */
static void it_counts_as_idle(void **state) {
    (void)state;
    const uint64_t idle = zone_idle_granules(&zone);
    char *block = must_block(RUN_BYTES, 1);
    assert_int_equal(zone_idle_granules(&zone), idle - RUN_GRANULES);
    drop_block(block);
    assert_int_equal(zone_idle_granules(&zone), idle);
    assert_int_equal(kept(), 1);
    end();
}

/* A second free is seen on another CPU, too. */
static void of_two_frees_one_is_told(void **state) {
    (void)state;
    char *block = must_block(RUN_BYTES, 1);
    drop_block(block);
    sim_cpu_set(1);
    assert_false(zone_block_free(&zone, block));
    sim_cpu_set(0);
    assert_int_equal(kept(), 1);
    end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_run_is_handed_on_as_it_is, zone_with_idle_pages),
        cmocka_unit_test_setup(what_is_kept_is_nobodys, zone_with_idle_pages),
        cmocka_unit_test_setup(one_that_is_longer_will_do, zone_with_idle_pages),
        cmocka_unit_test_setup(one_that_is_hardly_longer_ends_the_look, zone_with_idle_pages),
        cmocka_unit_test_setup(how_much_longer_follows_from_how_much_is_so, zone_with_a_wall),
        cmocka_unit_test_setup(it_is_aligned_as_asked, zone_with_idle_pages),
        cmocka_unit_test_setup(what_is_special_goes_to_the_zone, zone_with_idle_pages),
        cmocka_unit_test_setup(each_cpu_has_its_own, zone_with_idle_pages),
        cmocka_unit_test_setup(no_more_is_kept_than_has_room, zone_with_idle_pages),
        cmocka_unit_test_setup(who_needs_pages_takes_no_more_than_some, zone_with_a_wall),
        cmocka_unit_test_setup(its_pages_serve_before_any_is_touched_for_the_first_time, zone_with_a_wall),
        cmocka_unit_test_setup(who_grows_finds_room_behind, zone_with_a_wall),
        cmocka_unit_test(it_counts_for_no_limit),
        cmocka_unit_test(limits_narrow_what_is_longer),
        cmocka_unit_test_setup(a_tick_empties_it, zone_with_a_wall),
        cmocka_unit_test_setup(a_fork_takes_it_along, zone_with_idle_pages),
        cmocka_unit_test_setup(it_counts_as_idle, zone_with_idle_pages),
        cmocka_unit_test_setup(of_two_frees_one_is_told, zone_with_idle_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
