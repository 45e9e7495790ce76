/*
 * test_run_cache_sparse.c - what a CPU keeps where blocks are hardly used: those of superpages, too, at the worth of what is there of them; they
 * serve who wants half as much, but not who writes to all of it; nobody wakes them for their few pages, and whoever needs room gets it; and a program
 * that begins to use its blocks is noticed.
 */
#include "page/block_internal.h"
#include "unit/page/sparse_support.h"

#define RUN_GRANULES ((size_t)100)
#define BLOCK_GRANULES ((size_t)8 * MIB / GRANULE_BYTES)
#define TOUCHED ((size_t)3)

static unsigned kept(void) { return zone.run_caches_used != 0 ? zone.run_caches[0].count : 0; }
static char *cached(size_t granules) { return zone_block_cached(&zone, granules * GRANULE_BYTES, 1, false); }
static char *block_of_run(size_t granules) {
    char *block = fresh_block(granules);
    touch(block, 0, TOUCHED);
    return block;
}
/* One of a few may be asked for a page, and go if it is there. */
static char *keep_one(size_t granules) {
    for (unsigned i = 0; i < 40; i++) {
        char *block = block_of_run(granules);
        drop_block(block);
        if (kept() != 0) return block;
    }
    fail_msg("no block of %zu granules is kept", granules);
    return NULL;
}

static void one_serves_who_wants_half_of_it(size_t granules) {
    become_sparse(granules);
    (void)counters();
    char *block = keep_one(granules);
    assert_true(zone_cached_granules(&zone) < granules / 2);
    assert_null(cached(granules + 1));
    assert_null(cached(granules / 2 - 1));
    assert_null(zone_block_cached(&zone, granules * GRANULE_BYTES, 1, true));
    bool zeroed;
    const struct zone_block_config config = {.bytes = granules * GRANULE_BYTES, .mobility = MOBILITY_MOVABLE};
    char *other = zone_block_create(&zone, &config, &zeroed);
    assert_ptr_not_equal(other, block);
    assert_ptr_equal(cached(granules / 2), block);
    assert_int_equal(kept(), 0);
    assert_int_equal(zone_block_bytes(&zone, block), granules / 2 * GRANULE_BYTES); /* its owner knows of no more */
    assert_int_equal(sim_populated_pages(block, granules * GRANULE_BYTES), TOUCHED);
    ASSERT_SOUND();
    drop_block(block), drop_block(other);
    end_sparse();
}
static void a_run_serves_who_wants_half_of_it(void **state) {
    (void)state;
    one_serves_who_wants_half_of_it(RUN_GRANULES);
}
static void so_does_a_block_of_superpages(void **state) {
    (void)state;
    one_serves_who_wants_half_of_it(BLOCK_GRANULES);
}

static void nobody_wakes_it_for_its_pages(void **state) {
    (void)state;
    become_sparse(RUN_GRANULES);
    (void)zone_tick(&zone);
    char *block = keep_one(RUN_GRANULES), *used = fresh_block(400);
    touch(used, 0, 400);
    struct zone_run run = must_run(8, 1, MOBILITY_UNMOVABLE);
    assert_int_not_equal(run.fresh, 0);
    assert_int_equal(kept(), 1);
    assert_ptr_equal(cached(RUN_GRANULES), block);
    drop_run(run), drop_block(block), drop_block(used);
    end_sparse();
}

static void it_goes_with_a_tick_and_when_asked_for_all(void **state) {
    (void)state;
    for (unsigned way = 0; way < 2; way++) {
        begin(NULL, plain_config());
        become_sparse(RUN_GRANULES);
        (void)keep_one(RUN_GRANULES);
        if (way == 0)
            (void)zone_tick(&zone);
        else
            (void)zone_release(&zone, 0);
        assert_int_equal(kept(), 0);
        end_sparse();
    }
}

/* Kept blocks have all the address space there is: who needs some gets it. */
static void it_costs_nobody_room(void **state) {
    (void)state;
    become_sparse(BLOCK_GRANULES);
    char *blocks[16];
    unsigned count = 0;
    while (count < 16 && (blocks[count] = zone_block_alloc(&zone, BLOCK_GRANULES << GRANULE_SHIFT, 1, NULL)) != NULL) count++;
    assert_in_range(count, 2, 15);
    for (unsigned i = 0; i < count; i++) drop_block(blocks[i]);
    assert_true(kept() != 0);
    char *all = zone_block_alloc(&zone, count * BLOCK_GRANULES << GRANULE_SHIFT, 1, NULL);
    assert_non_null(all);
    assert_int_equal(kept(), 0);
    drop_block(all);
    for (count = 0; count < 16 && (blocks[count] = zone_block_alloc(&zone, BLOCK_GRANULES << GRANULE_SHIFT, 1, NULL)) != NULL;) count++;
    for (unsigned i = 0; i < count; i++) drop_block(blocks[i]);
    assert_true(kept() != 0);
    struct zone_run runs[32]; /* of the one free superpage's size, and then of more */
    for (unsigned i = 0; i < 8; i++) runs[i] = must_run(SUPERPAGE_GRANULES, 1, MOBILITY_UNMOVABLE);
    for (unsigned i = 0; i < 8; i++) drop_run(runs[i]);
    ASSERT_SOUND();
    end_sparse();
}

/* From then on what is kept is known to be present, or no block is expected to be hardly used. After how many blocks that is noticed. */
static unsigned begin_to_use_blocks(void) {
    unsigned blocks = 0;
    for (; blocks < 400 && (kept() == 0 || zone.run_caches[0].kinds[1].count != 0); blocks++) {
        char *block = cached(RUN_GRANULES);
        if (block == NULL) block = fresh_block(RUN_GRANULES);
        touch(block, 0, RUN_GRANULES);
        drop_block(block);
    }
    assert_int_equal(zone_cached_granules(&zone), RUN_GRANULES);
    return blocks;
}
static void who_begins_to_use_blocks_is_noticed(void **state) {
    (void)state;
    become_sparse(RUN_GRANULES);
    (void)keep_one(RUN_GRANULES);
    assert_in_range(begin_to_use_blocks(), 1, 40);
    ASSERT_SOUND();
    end_sparse();
}

/* How often the system is asked for pages while one hardly used block comes and goes so many times. */
static uint64_t looks_at(size_t granules, unsigned times) {
    become_sparse(granules);
    char *block = keep_one(granules);
    const uint64_t before = sim_calls(SIM_PRESENCE);
    for (unsigned i = 0; i < times; i++) {
        char *again = cached(granules);
        if (again == NULL && granules > SUPERPAGE_GRANULES) again = block = block_of_run(granules); /* the one before was met by a page that it has */
        assert_ptr_equal(again, block);
        drop_block(block);
    }
    return sim_calls(SIM_PRESENCE) - before;
}
/* After 16, 32, 64, and from then on each 128 blocks that were hardly used; who begins to use them is noticed still. */
static void fewer_are_looked_at_while_none_is_used(void **state) {
    (void)state;
    assert_in_range(looks_at(RUN_GRANULES, 1024), 8, 14); /* 64 without */
    char *block = cached(RUN_GRANULES);
    assert_in_range(begin_to_use_blocks(), 1, 168);
    assert_int_equal(zone.run_caches[0].look_shift, 0);
    drop_block(block);
    ASSERT_SOUND();
    end_sparse();
}
/* What the others have too much is much. */
static void of_very_long_ones_none_fewer(void **state) {
    (void)state;
    assert_true(looks_at(BLOCK_GRANULES, 256) >= 15);
    ASSERT_SOUND();
    end_sparse();
}

/* A page that is met is no sign where most of the others are absent. */
static void who_uses_a_little_of_each_goes_on(void **state) {
    (void)state;
    become_sparse(RUN_GRANULES);
    (void)keep_one(RUN_GRANULES);
    for (unsigned i = 0; i < 400; i++) {
        char *block = cached(RUN_GRANULES);
        assert_non_null(block);
        touch(block, 0, RUN_GRANULES / 5);
        drop_block(block);
    }
    ASSERT_SOUND();
    end_sparse();
}

/* As many as a wave frees, so that the next one finds its own pages again. */
static void many_are_kept(void **state) {
    (void)state;
    become_sparse(20);
    char *blocks[200];
    for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++) blocks[i] = block_of_run(20);
    for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++) drop_block(blocks[i]);
    assert_in_range(kept(), 100, ARRAY_LENGTH(blocks));
    for (unsigned left = kept(); left != 0; left--) assert_non_null(cached(20));
    assert_int_equal(kept(), 0);
    ASSERT_SOUND();
    for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++)
        if (zone_is_block(&zone, blocks[i])) drop_block(blocks[i]);
    end_sparse();
}

/* The longest there make room, of either kind, several at once; a used one finds room, too. */
static void a_full_cache_gives_up_the_oldest(void **state) {
    (void)state;
    enum { BLOCK = 20, BLOCKS = RUN_CACHE_RUNS + 20 };
    become_sparse(BLOCK);
    char *blocks[BLOCKS], *used = fresh_block(BLOCK);
    for (unsigned i = 0; i < BLOCKS; i++) blocks[i] = fresh_block(BLOCK);
    zone.untouched[0] = 256; /* so that each counts as one page */
    unsigned most = 0;
    for (unsigned i = 0; i < BLOCKS; i++) {
        drop_block(blocks[i]);
        most = kept() > most ? kept() : most;
    }
    assert_int_equal(most, RUN_CACHE_RUNS);
    assert_in_range(kept(), RUN_CACHE_RUNS - 16, RUN_CACHE_RUNS);
    assert_int_equal(zone.run_caches[0].runs[kept() - 1].at, zone_granule_of(&zone, blocks[BLOCKS - 1]));
    for (char *block; kept() < RUN_CACHE_RUNS;) {
        assert_non_null(block = fresh_block(BLOCK));
        drop_block(block);
    }
    block_of(&zone, used)->fresh = 0;
    drop_block(used);
    assert_int_equal(zone.run_caches[0].kinds[0].count, 1);
    assert_in_range(kept(), RUN_CACHE_RUNS - 16, RUN_CACHE_RUNS - 1);
    ASSERT_SOUND();
    end_sparse();
}

/* However many there are, they are few pages. */
static void what_is_kept_is_bounded(void **state) {
    (void)state;
    become_sparse(RUN_GRANULES);
    char *blocks[86];
    for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++) blocks[i] = block_of_run(RUN_GRANULES);
    const uint64_t part = zone.counters.populated / 32 / 2, most = part > 768 ? part : 768; /* of a CPU; frees change neither */
    for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++) {
        drop_block(blocks[i]);
        assert_true(zone.run_caches[0].kinds[1].present <= most || kept() == 1);
    }
    assert_true(kept() >= 4);
    assert_int_equal(zone.run_caches[0].kinds[1].count, kept());
    uint32_t present = 0;
    for (unsigned i = 0; i < kept(); i++) present += zone.run_caches[0].runs[i].present;
    assert_int_equal(zone_cached_granules(&zone), present);
    ASSERT_SOUND();
    end_sparse();
}

/* What is freed is no block, whoever keeps it. */
static void what_is_kept_is_nobodys(void **state) {
    (void)state;
    become_sparse(BLOCK_GRANULES);
    char *block = keep_one(BLOCK_GRANULES);
    struct zone_block_info info;
    assert_int_equal(zone_block_find(&zone, block, 1, &info), ZONE_NO_BLOCK);
    assert_int_equal(zone_block_find(&zone, block + 3 * MIB, 1, &info), ZONE_NO_BLOCK);
    assert_int_equal(zone_block_split(&zone, block, SUPERPAGE_BYTES), ZONE_NO_BLOCK);
    assert_false(zone_block_free(&zone, block));
    assert_int_equal(zone_block_bytes(&zone, block), 0);
    assert_ptr_equal(cached(BLOCK_GRANULES), block);
    assert_int_equal(zone_block_find(&zone, block + 3 * MIB, 1, &info), ZONE_OK);
    drop_block(block);
    end_sparse();
}

/* Also where the marks of what it grows by are put off. */
static void what_was_asked_for_is_known_where_it_grows(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.reserve_bytes = 256 * MIB;
    begin(NULL, config);
    become_sparse(BLOCK_GRANULES);
    for (unsigned way = 0; way < 2; way++) {
        const size_t granules = way == 0 ? BLOCK_GRANULES : 3 * BLOCK_GRANULES; /* one that lies behind all others, and is there last */
        zone.untouched[1] = 250;                                                /* so long a one is kept where less of it is there */
        char *block = keep_one(granules);
        assert_ptr_equal(cached(granules / 2), block);
        assert_int_equal(zone_block_bytes(&zone, block), granules / 2 * GRANULE_BYTES);
        const size_t bytes = way == 0 ? 9 * MIB : 64 * MIB; /* by a superpage, and by many */
        char *now = zone_block_resize(&zone, block, bytes, true);
        assert_non_null(now);
        assert_int_equal(zone.unmarked.to != 0, way);
        assert_int_equal(zone_block_bytes(&zone, now), bytes);
        drop_block(now);
        (void)counters();
        ASSERT_SOUND();
    }
    end_sparse();
}

/* Where no superpage is left, what is kept as a guest in one of another group makes room for a run of any. */
static void a_guest_makes_room_for_other_groups(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    struct zone_run others[4];
    config.reserve_bytes = 24 * MIB;
    begin(NULL, config);
    become_sparse(RUN_GRANULES);
    for (unsigned i = 0; i < 3; i++) others[i] = must_run(SUPERPAGE_GRANULES, 1, MOBILITY_UNMOVABLE);
    others[3] = must_run(SUPERPAGE_GRANULES - RUN_GRANULES - 10, 1, MOBILITY_UNMOVABLE);
    char *guest = keep_one(RUN_GRANULES);
    assert_int_equal(number_of(guest), number_of(others[3].address));
    struct zone_run run = must_run(60, 1, MOBILITY_RECLAIMABLE);
    assert_int_equal(number_of(run.address), number_of(others[3].address));
    ASSERT_SOUND();
    drop_run(run);
    for (unsigned i = 0; i < 4; i++) drop_run(others[i]);
    end_sparse();
}

/* Used runs have a limit of their own, and lose nothing to hardly used ones, nor these to them. */
static void each_kind_has_its_room(void **state) {
    (void)state;
    become_sparse(RUN_GRANULES);
    char *runs[4], *used[2];
    for (unsigned i = 0; i < ARRAY_LENGTH(used); i++) {
        used[i] = fresh_block(60); /* more than hardly used ones may have together */
        touch(used[i], 0, 60);
        block_of(&zone, used[i])->fresh = 0; /* as of pages that were present */
    }
    for (unsigned i = 0; i < ARRAY_LENGTH(runs); i++) runs[i] = block_of_run(RUN_GRANULES);
    for (unsigned i = 0; i < ARRAY_LENGTH(used); i++) drop_block(used[i]);
    for (unsigned i = 0; i < ARRAY_LENGTH(runs); i++) drop_block(runs[i]);
    assert_int_equal(zone.run_caches[0].kinds[0].count, ARRAY_LENGTH(used));
    assert_in_range(zone.run_caches[0].kinds[1].count, 2, ARRAY_LENGTH(runs));
    assert_int_equal(zone.run_caches[0].kinds[0].present, 120);
    ASSERT_SOUND();
    end_sparse();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_run_serves_who_wants_half_of_it, plain_zone),
        cmocka_unit_test_setup(so_does_a_block_of_superpages, plain_zone),
        cmocka_unit_test(a_guest_makes_room_for_other_groups),
        cmocka_unit_test_setup(nobody_wakes_it_for_its_pages, plain_zone),
        cmocka_unit_test(it_goes_with_a_tick_and_when_asked_for_all),
        cmocka_unit_test_setup(it_costs_nobody_room, plain_zone),
        cmocka_unit_test_setup(who_begins_to_use_blocks_is_noticed, plain_zone),
        cmocka_unit_test_setup(fewer_are_looked_at_while_none_is_used, plain_zone),
        cmocka_unit_test_setup(of_very_long_ones_none_fewer, plain_zone),
        cmocka_unit_test_setup(who_uses_a_little_of_each_goes_on, plain_zone),
        cmocka_unit_test_setup(many_are_kept, plain_zone),
        cmocka_unit_test_setup(a_full_cache_gives_up_the_oldest, plain_zone),
        cmocka_unit_test_setup(what_is_kept_is_bounded, plain_zone),
        cmocka_unit_test_setup(what_is_kept_is_nobodys, plain_zone),
        cmocka_unit_test(what_was_asked_for_is_known_where_it_grows),
        cmocka_unit_test_setup(each_kind_has_its_room, plain_zone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
