/*
 * test_move_run.c - runs that outgrow their place and take their pages along: which pages go, which are copied, what the marks say then, where the
 * way is left to others, and that nothing is lost where the system refuses half-way.
 */
#include "unit/page/page_support.h"

#define OLD 20
#define NEW 30

/* In a heap of some MiB: a run that can't grow where it is, and what stands behind it. */
static char *large, *block, *wall;

static void begin_heap(size_t heap_bytes, size_t granules) {
    begin(NULL, plain_config());
    sim_faults_offer(PLATFORM_FAULTS_MOVE);
    large = must_block(heap_bytes, 1);
    block = must_block(granules << GRANULE_SHIFT, 1);
    wall = must_block(GRANULE_BYTES, 1);
    mark(block, OLD, 1), mark(wall, 1, 2);
}
static void begin_runs(void) { begin_heap(16 * MIB, OLD); }

static void end_runs(void) {
    assert_int_equal(sim_fault_registrations(), 0); /* or who touches such a page waits for ever */
    assert_true(is_marked(block, OLD, 1) && is_marked(wall, 1, 2));
    ASSERT_SOUND();
    drop_block(block), drop_block(wall), drop_block(large);
    zone_wake_blocks(&zone);
    assert_empty();
}

static char *grown(void) { return zone_block_resize(&zone, block, NEW * GRANULE_BYTES, true); }
/* The block is as it was, and a copy is the caller's affair. */
static void expect_left_to_the_caller(void) {
    uint64_t populated = counters().populated;
    assert_null(grown());
    assert_int_equal(zone_block_bytes(&zone, block), OLD * GRANULE_BYTES);
    assert_int_equal(counters().populated, populated);
    assert_int_equal(sim_calls(SIM_FAULTS_MOVE), 0);
    end_runs();
}

/* What a block out of a run cache had too much does not move. */
static void what_nobody_asked_for_stays(void **state) {
    (void)state;
    begin_heap(16 * MIB, OLD + 2);
    block_of(&zone, block)->longer = 2;
    zone.longer_granules += 2;
    block = grown();
    assert_non_null(block);
    assert_int_equal(zone_longer_granules(&zone), 0);
    end_runs();
}

static void a_run_takes_its_pages_along(void **state) {
    (void)state;
    begin_runs();
    struct zone_counters before = counters();
    uint64_t mappings = sim_mappings();
    char *old = block;
    block = grown();
    assert_non_null(block);
    assert_ptr_not_equal(block, old);
    assert_int_equal(number_of(block), number_of(old)); /* source and target in one superpage: counted once */
    assert_true(is_marked(block, OLD, 1));
    assert_int_equal(zone_block_bytes(&zone, block), NEW * GRANULE_BYTES);
    assert_int_equal(zone_block_bytes(&zone, old), 0);
    assert_int_equal(sim_calls(SIM_FAULTS_MOVE), OLD);
    assert_int_equal(sim_mappings(), mappings);
    assert_int_equal(sim_populated_pages(old, OLD * GRANULE_BYTES), 0);
    assert_int_equal(counters().populated, before.populated + NEW - OLD); /* the old pages and the new ones are never there together */
    assert_int_equal(counters().idle, before.idle);
    assert_int_equal(counters().blocks, before.blocks);
    end_runs();
}

static unsigned ended;

static void watches_end(char *address, size_t bytes) { ended += address <= block && block + OLD * GRANULE_BYTES <= address + bytes; }

/* Before the pages go: what is closed in the kernel is so at an address. */
static void watches_of_a_block_that_moves_end(void **state) {
    (void)state;
    begin_runs();
    assert_int_equal(zone_pages_watch(&zone, block, OLD * GRANULE_BYTES, watches_end), ZONE_OK);
    ended = 0;
    char *now = grown();
    assert_true(now != NULL && now != block);
    assert_int_equal(ended, 1);
    block = now;
    end_runs();

    begin(NULL, plain_config());
    block = must_block(3 * MIB, 1), wall = must_block(2 * MIB, 1);
    mark(block, OLD, 1);
    assert_int_equal(zone_pages_watch(&zone, block, OLD * GRANULE_BYTES, watches_end), ZONE_OK);
    ended = 0;
    now = zone_block_resize(&zone, block, 9 * MIB, true);
    assert_true(now != NULL && now != block && sim_calls(SIM_MOVE) != 0);
    assert_int_equal(ended, 1);
    assert_true(is_marked(now, OLD, 1));
    drop_block(now), drop_block(wall);
    assert_empty();
}

/* From one superpage to another, and the last block of the old one. */
static void a_superpage_that_is_left_goes_back(void **state) {
    (void)state;
    begin_runs();
    char *filler = must_block((SUPERPAGE_GRANULES / 2 - OLD - 1) * GRANULE_BYTES, 1), *rest = must_block(SUPERPAGE_GRANULES / 2 * GRANULE_BYTES, 1);
    char *old = block;
    block = grown();
    assert_non_null(block);
    assert_int_not_equal(number_of(block), number_of(old));
    assert_int_equal(sim_calls(SIM_FAULTS_MOVE), OLD);
    ASSERT_SOUND();
    drop_block(filler), drop_block(rest);
    end_runs();
}

/* What is present at the new place is copied to, and its counterpart stays idle for the next one. */
static void present_pages_are_copied_to(void **state) {
    (void)state;
    for (unsigned present = 1; present <= OLD; present++) {
        begin_runs();
        char *there = must_block(NEW * GRANULE_BYTES, 1);
        mark(there, NEW, 3);
        assert_int_equal(zone_pages_release(&zone, there + present * GRANULE_BYTES, (NEW - present) * GRANULE_BYTES), ZONE_OK);
        char *stop = must_block((SUPERPAGE_GRANULES - NEW - OLD - 1) * GRANULE_BYTES, 1); /* no other place is left in this superpage */
        drop_block(there);
        zone_wake_blocks(&zone);
        char *moved = grown();
        const unsigned absent = OLD - present;
        assert_int_equal(moved != NULL, absent >= OLD / 2);
        assert_int_equal(sim_calls(SIM_FAULTS_MOVE), moved != NULL ? absent : 0);
        if (moved != NULL) block = moved;
        drop_block(stop);
        end_runs();
    }
}

/* Pages that the program never touched arrive as absent ones. */
static void absent_pages_stay_absent(void **state) {
    (void)state;
    begin_heap(16 * MIB, 60);
    assert_true(platform_release(block + OLD * GRANULE_BYTES, (60 - OLD) * GRANULE_BYTES)); /* which must_block has looked at */
    block = zone_block_resize(&zone, block, 100 * GRANULE_BYTES, true);
    assert_non_null(block);
    assert_int_equal(sim_populated_pages(block, 100 * GRANULE_BYTES), OLD);
    end_runs();
}

static void what_will_not_move_is_copied(void **state) {
    (void)state;
    for (unsigned nth = 1; nth <= OLD; nth++) {
        begin_runs();
        sim_fail_only(UINT64_C(1) << SIM_FAULTS_MOVE);
        sim_fail_call(nth, SIM_FOREVER);
        block = grown();
        assert_non_null(block);
        assert_true(is_marked(block, OLD, 1));
        assert_true(sim_failures() != 0);
        end_runs();
    }
}

/* What was copied, as it would not move, is not taken for a gap that idle pages of others would fill. */
static void nothing_comes_over_what_was_copied(void **state) {
    (void)state;
    for (unsigned nth = 1; nth <= 80; nth += 13) {
        begin_runs();
        char *other = must_block(80 * GRANULE_BYTES, 1), *behind = must_block(GRANULE_BYTES, 1);
        struct zone_run idle = must_run(SUPERPAGE_GRANULES, 1, MOBILITY_UNMOVABLE);
        drop_run(idle); /* a superpage that is free and present, which runs leave alone */
        mark(other, 80, 7);
        sim_fail_only(UINT64_C(1) << SIM_FAULTS_MOVE);
        sim_fail_call(nth, SIM_FOREVER);
        other = zone_block_resize(&zone, other, 95 * GRANULE_BYTES, true); /* by less than a quarter: else it is copied */
        assert_non_null(other);
        assert_true(sim_failures() != 0);
        assert_true(is_marked(other, 80, 7));
        ASSERT_SOUND();
        drop_block(other), drop_block(behind);
        zone_wake_blocks(&zone);
        end_runs();
    }
}

static void a_new_address_is_aligned_as_wanted(void **state) {
    (void)state;
    for (size_t align = 2 * GRANULE_BYTES; align <= 64 * GRANULE_BYTES; align *= 2) {
        begin_runs();
        void *at = block;
        assert_int_equal(zone_block_resize_at(&zone, &at, NEW * GRANULE_BYTES, true, align), ZONE_OK);
        block = at;
        assert_int_equal((uintptr_t)block % align, 0);
        assert_int_equal(sim_calls(SIM_FAULTS_MOVE), OLD);
        end_runs();
    }
    begin_runs();
    void *at = block;
    assert_int_equal(zone_block_resize_at(&zone, &at, NEW * GRANULE_BYTES, true, SUPERPAGE_BYTES), ZONE_NO_ROOM);
    assert_int_equal(sim_calls(SIM_FAULTS_MOVE), 0);
    end_runs();
}

/* A run that is there and present is as good as the caller's own place, for a copy. */
static void a_run_that_waits_is_left_to_malloc(void **state) {
    (void)state;
    begin_runs();
    drop_block(must_block(NEW * GRANULE_BYTES, 1));
    expect_left_to_the_caller();
}

static void few_pages_are_left_to_a_copy(void **state) {
    (void)state;
    begin_runs();
    char *few = must_block(4 * GRANULE_BYTES, 1), *behind = must_block(GRANULE_BYTES, 1);
    assert_null(zone_block_resize(&zone, few, NEW * GRANULE_BYTES, true));
    assert_int_equal(sim_calls(SIM_FAULTS_MOVE), 0);
    drop_block(few), drop_block(behind);
    end_runs();
}

/* Each page that goes would interrupt the others. */
static void where_threads_take_turns_blocks_are_copied(void **state) {
    (void)state;
    begin_runs();
    assert_true(zone_one_thread_moves(&zone));
    sim_cpu_set(1); /* another thread, as each of these has a processor */
    for (unsigned row = 1; row < 16; row++) assert_null(grown());
    sim_cpu_set(0);
    assert_null(grown());
    sim_cpu_set(1);
    for (unsigned row = 1; row < 16; row++) assert_null(grown());
    assert_int_equal(sim_calls(SIM_FAULTS_MOVE), 0);
    block = grown();
    assert_non_null(block);
    assert_int_equal(sim_calls(SIM_FAULTS_MOVE), OLD);
    sim_cpu_set(0);
    end_runs();
}

/* No place is looked for where the system has said that it moves nothing. */
static void who_was_refused_does_not_search(void **state) {
    (void)state;
    begin_runs();
    sim_faults_offer(0); /* a system without such moves */
    for (unsigned i = 0; i < 20; i++) assert_null(grown());
    assert_false(zone_target_ready(&zone));
    expect_left_to_the_caller();
}

static void small_heaps_open_no_file(void **state) {
    (void)state;
    begin_heap(2 * MIB, OLD);
    assert_int_equal(sim_calls(SIM_FAULTS_OPEN), 0);
    expect_left_to_the_caller();
}

/* Its owner may be asked to move it at any moment; or was told that it stays. */
static void who_has_an_owner_or_an_address_stays(void **state) {
    (void)state;
    begin_runs();
    assert_int_equal(zone_block_set_move(&zone, block, never_moves, NULL), ZONE_OK);
    expect_left_to_the_caller();
    begin_runs();
    assert_null(zone_block_resize(&zone, block, NEW * GRANULE_BYTES, false));
    assert_int_equal(sim_calls(SIM_FAULTS_MOVE), 0);
    end_runs();
}

/* Random sizes against what each granule is known by; who is not moved is copied, as malloc does. */
static void nothing_is_lost(void **state) {
    (void)state;
    for (size_t page = 4 * KIB; page <= 16 * KIB; page *= 4) {
        const struct sim_config sim = {.page_bytes = page};
        static struct {
            char *at;
            size_t granules;
        } blocks[24];
        uint64_t seed = page;
        struct zone_config config = plain_config();
        config.reserve_bytes = 256 * MIB; /* blocks that have outgrown runs have superpages of their own, and room behind them */
        begin(&sim, config);
        sim_faults_offer(PLATFORM_FAULTS_MOVE);
        large = must_block(6 * MIB, 1);
        for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++) blocks[i].at = NULL;
        for (unsigned op = 0; op < 3000; op++) {
            unsigned i = (unsigned)(next_random(&seed) % ARRAY_LENGTH(blocks));
            size_t granules = align_up(4 + next_random(&seed) % 250, zone.page_granules), old = blocks[i].granules;
            char *at = blocks[i].at;
            if (at == NULL || next_random(&seed) % 8 == 0) {
                if (at != NULL) drop_block(at);
                at = must_block(granules << GRANULE_SHIFT, 1);
            } else {
                char *resized = zone_block_resize(&zone, at, granules << GRANULE_SHIFT, true);
                if (resized == NULL) {
                    resized = must_block(granules << GRANULE_SHIFT, 1);
                    memcpy(resized, at, min_u64(granules, old) << GRANULE_SHIFT);
                    drop_block(at);
                }
                at = resized;
                assert_true(is_marked(at, min_u64(granules, old), i));
            }
            mark(at, granules, i);
            blocks[i].at = at, blocks[i].granules = granules;
            if (op % 100 == 0) ASSERT_SOUND();
        }
        assert_true(counters().moves > 20);
        assert_true(sim_calls(SIM_FAULTS_MOVE) > 20); /* these are counted above, too, as those of page tables */
        assert_int_equal(sim_fault_registrations(), 0);
        for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++)
            if (blocks[i].at != NULL) drop_block(blocks[i].at);
        drop_block(large);
        zone_wake_blocks(&zone);
        assert_empty();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_nobody_asked_for_stays),          cmocka_unit_test(a_run_takes_its_pages_along),
        cmocka_unit_test(a_superpage_that_is_left_goes_back),   cmocka_unit_test(watches_of_a_block_that_moves_end),
        cmocka_unit_test(present_pages_are_copied_to),          cmocka_unit_test(absent_pages_stay_absent),
        cmocka_unit_test(what_will_not_move_is_copied),         cmocka_unit_test(a_run_that_waits_is_left_to_malloc),
        cmocka_unit_test(few_pages_are_left_to_a_copy),         cmocka_unit_test(where_threads_take_turns_blocks_are_copied),
        cmocka_unit_test(who_was_refused_does_not_search),      cmocka_unit_test(nothing_comes_over_what_was_copied),
        cmocka_unit_test(a_new_address_is_aligned_as_wanted),   cmocka_unit_test(small_heaps_open_no_file),
        cmocka_unit_test(who_has_an_owner_or_an_address_stays), cmocka_unit_test(nothing_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
