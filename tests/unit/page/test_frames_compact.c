/*
 * test_frames_compact.c - passes of compaction on a zone without memory: what is moved, what stays, and what an allocation gets by it.
 */
#include "page/frames_reclaim.h"
#include "unit/page/frames_compact_support.h"

static int setup(void **state) {
    (void)state;
    sim_reset(NULL);
    zone_open_with(32, 0);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    uint64_t at;
    for (uint64_t i = 0; i < owned_count; i++)
        if (owned[i].live && owned[i].pinned) assert_int_equal(frames_unpin(zone, owned[i].frame, owned[i].frames, &at), FRAMES_OK);
    assert_int_equal(frames_zone_destroy(zone), FRAMES_OK);
    assert_int_equal(sim_reserved_bytes(), 0);
    return 0;
}

static struct frames_compact_counts pass_of(unsigned order) {
    const struct frames_compact_goal goal = {.order = order};
    struct frames_compact_counts counts;
    new_pass();
    assert_int_equal(frames_compact(zone, &goal, &counts, NULL), FRAMES_COMPACT_MET);
    return counts;
}

/* Bar: what is free after a pass over movable blocks is whole superpages, but for the one where the scanners met and its neighbours. */
static void sparse_blocks_become_dense(void **state) {
    (void)state;
    uint64_t seed = 5;
    make_sparse(4, &seed);
    uint64_t live = live_frames();
    assert_true(stats_now().free_superpages == 0);
    struct frames_compact_counts counts = pass_of(9);
    check_all();
    struct frames_stats stats = stats_now();
    assert_int_equal(stats.used[FRAMES_MOVABLE], live);
    assert_true(stats.free_superpages + 2 >= stats.free / SUPERPAGE_FRAMES);
    assert_true(counts.moved > 0 && counts.moved == asked && counts.moved == counts.moved_frames);
    assert_int_equal(counts.failed_later + counts.failed_unmovable + counts.failed_pinned + counts.failed_busy, 0);
    /* A second one finds next to nothing to do. */
    assert_true(pass_of(9).moved < SUPERPAGE_FRAMES);
    check_all();
}

/* Blocks of all sizes, aligned ones stay so. */
static void blocks_of_many_frames_move_whole(void **state) {
    (void)state;
    uint64_t seed = 6;
    for (unsigned i = 0; i < 4000 && own(UINT64_C(1) << next_random(&seed) % 6); i++) continue;
    for (unsigned i = 0; i < 300; i++) (void)own(1 + next_random(&seed) % 30);
    for (uint64_t i = 0; i < owned_count; i++)
        if (next_random(&seed) % 3 != 0) disown(i);
    uint64_t before = stats_now().free_superpages;
    (void)pass_of(9);
    check_all();
    assert_true(stats_now().free_superpages > before + 8);
    for (uint64_t i = 0; i < owned_count; i++)
        if (owned[i].live && is_power_of_two(owned[i].frames) && owned[i].moves != 0) assert_int_equal(owned[i].frame % owned[i].frames, 0);
}

static void pinned_frames_stay(void **state) {
    (void)state;
    uint64_t seed = 7, at, pins = 0;
    make_sparse(4, &seed);
    for (uint64_t i = 0; i < owned_count; i++) {
        if (!owned[i].live || i % 61 != 0) continue;
        owned[i].pinned = true;
        assert_int_equal(frames_pin(zone, owned[i].frame, 1, &at), FRAMES_OK);
        pins++;
    }
    struct frames_compact_counts counts = pass_of(3);
    check_all();
    assert_true(pins > 0 && counts.failed_pinned > 0 && counts.moved > 0);
    for (uint64_t i = 0; i < owned_count; i++)
        if (owned[i].pinned) assert_int_equal(owned[i].moves, 0);
}

static void answers_are_respected(void **state) {
    (void)state;
    uint64_t seed = 8;
    make_sparse(4, &seed);
    uint64_t free = stats_now().free;
    answer = FRAMES_LATER;
    struct frames_compact_counts counts = pass_of(9);
    assert_true(counts.failed_later > 0 && counts.moved == 0 && counts.failed_unmovable == 0);
    answer = FRAMES_NEVER;
    uint64_t before = asked;
    counts = pass_of(9);
    assert_true(counts.failed_unmovable > 0 && counts.failed_unmovable >= asked - before && counts.moved == 0);
    assert_int_equal(stats_now().free, free);
    check_all();
    /* Whoever said NEVER is not asked again. */
    for (before = asked, answer = FRAMES_NEVER;; before = asked) {
        (void)pass_of(0);
        if (asked == before) break;
    }
    check_all();
}

/* While a block of a window moves, the next one is freed, and another owner's takes its place, who moves nothing, but drops what is wanted. */
static unsigned keeper;
static enum frames_answer let_go(struct frame_zone *of, const struct frames_owner *self, uint64_t frame, uint64_t frames, uint64_t token,
                                 bool dirty) {
    (void)of, (void)self, (void)frames, (void)token, (void)dirty;
    assert_int_equal(frame, 1);
    return FRAMES_YES;
}
static void put_keeper(uint64_t token) {
    const struct frames_request request = {.frames = 1, .mobility = FRAMES_MOVABLE, .owner = keeper, .flags = FRAMES_NO_EFFORT};
    uint64_t next = 0, frame;
    (void)token;
    within = NULL;
    while (!owned[next].live || owned[next].frame != 1) next++;
    disown(next);
    assert_int_equal(frames_alloc(zone, &request, &frame), FRAMES_OK);
    assert_int_equal(frame, 1);
}
static void who_was_not_asked_has_not_said_never(void **state) {
    (void)state;
    const struct frames_owner drops = {.name = "keeper", .reclaim = let_go};
    const struct frames_reclaim_config reclaim = {.high_frames = 1};
    uint64_t gone;
    assert_int_equal(frames_zone_destroy(zone), FRAMES_OK);
    zone_open_with(2, 0);
    assert_int_equal(frames_owner_add(zone, &drops, &keeper), FRAMES_OK);
    for (unsigned i = 0; i < SUPERPAGE_FRAMES + 8; i++) assert_true(own(1)); /* the higher superpage, and the start of the other */
    for (uint64_t i = 0; i < SUPERPAGE_FRAMES / 2; i++) disown(i);
    within = put_keeper;
    struct frames_compact_counts counts = pass_of(1);
    assert_null(within);
    assert_int_equal(counts.failed_unmovable, 1);
    assert_int_equal(frames_reclaim_start(zone, &reclaim), FRAMES_OK);
    assert_int_equal(frames_reclaim(zone, 1, 0, &gone), FRAMES_OK);
    assert_int_equal(gone, 1);
    check_all();
}

/* Figure 10: fails without compaction, and gets its superpage by it. */
static void an_allocation_compacts_when_memory_is_in_pieces(void **state) {
    (void)state;
    uint64_t seed = 9, frame;
    const struct frames_request request = {.frames = SUPERPAGE_FRAMES, .mobility = FRAMES_UNMOVABLE};
    make_sparse(3, &seed);
    assert_int_equal(frames_alloc_hard(zone, &request, &frame), FRAMES_NO_FRAMES);
    frames_set_effort(zone, FRAMES_COMPACT);
    uint64_t had = 0;
    for (; frames_alloc_hard(zone, &request, &frame) == FRAMES_OK; had++) {
        new_pass();
        assert_int_equal(frame % SUPERPAGE_FRAMES, 0);
        check_all();
    }
    struct frames_compact_counts counts;
    frames_compact_counts_get(zone, &counts);
    assert_true(counts.done > 0 && counts.done <= had && counts.races_lost == 0);
    /* 32 superpages, a third of whose frames is in use: nearly all of the rest. */
    assert_true(had >= 18);
}

/* Want of memory is no fragmentation, and what can't move is not tried. */
static void no_pass_where_it_would_be_in_vain(void **state) {
    (void)state;
    uint64_t frame, first = 0, at;
    const struct frames_request one = {.frames = 1, .mobility = FRAMES_UNMOVABLE}, many = {.frames = SUPERPAGE_FRAMES, .mobility = FRAMES_UNMOVABLE};
    struct frames_compact_counts counts;
    frames_set_effort(zone, FRAMES_COMPACT);
    while (frames_alloc(zone, &one, &frame) == FRAMES_OK) first = frame;
    assert_int_equal(frames_free(zone, first, 1, &at), FRAMES_OK);
    assert_int_equal(frames_alloc_hard(zone, &many, &frame), FRAMES_NO_FRAMES); /* one frame is free */
    frames_compact_counts_get(zone, &counts);
    assert_int_equal(counts.passes, 0);
    for (uint64_t i = 0; i < 32 * SUPERPAGE_FRAMES; i += 2)
        if (i != first) (void)frames_free(zone, i, 1, &at);
    assert_int_equal(frames_alloc_hard(zone, &many, &frame), FRAMES_NO_FRAMES); /* half is free, and nothing of it movable */
    frames_compact_counts_get(zone, &counts);
    assert_int_equal(counts.passes, 0);
    for (uint64_t i = 1; i < 32 * SUPERPAGE_FRAMES; i++)
        if (i % 2 != 0 || i == first) (void)frames_free(zone, i, 1, &at);
    (void)frames_free(zone, 0, 1, &at);
    while (own(1)) continue;
    for (uint64_t i = 0; i < owned_count; i += 64) disown(i); /* half a superpage in pieces, all of it movable */
    assert_int_equal(frames_alloc_hard(zone, &many, &frame), FRAMES_NO_FRAMES);
    frames_compact_counts_get(zone, &counts);
    assert_int_equal(counts.passes, 0);
    assert_null(frames_zone_check(zone));
}

/* Passes that brought nothing are not repeated for each request. */
static void failures_are_deferred(void **state) {
    (void)state;
    uint64_t seed = 10, frame;
    const struct frames_request request = {.frames = SUPERPAGE_FRAMES, .mobility = FRAMES_MOVABLE};
    struct frames_compact_counts counts;
    make_sparse(3, &seed);
    frames_set_effort(zone, FRAMES_COMPACT);
    answer = FRAMES_LATER;
    for (unsigned i = 0; i < 200; i++) assert_int_equal(frames_alloc_hard(zone, &request, &frame), FRAMES_NO_FRAMES);
    frames_compact_counts_get(zone, &counts);
    assert_true(counts.passes >= 6 && counts.passes <= 9);
    assert_int_equal(counts.passes + counts.deferred, 200);
    answer = FRAMES_YES;
    for (unsigned i = 0; i < 65 && frames_alloc_hard(zone, &request, &frame) != FRAMES_OK; i++) continue;
    assert_int_equal(frame % SUPERPAGE_FRAMES, 0);
    frames_compact_counts_get(zone, &counts);
    assert_int_equal(counts.done, 1);
}

static void allocate_within(uint64_t token) {
    (void)token;
    uint64_t frame, at;
    const struct frames_request request = {.frames = SUPERPAGE_FRAMES, .mobility = FRAMES_UNMOVABLE};
    const struct frames_compact_goal goal = {.order = 9};
    if (frames_alloc_hard(zone, &request, &frame) == FRAMES_OK && frames_free(zone, frame, SUPERPAGE_FRAMES, &at) != FRAMES_OK)
        wrong = "a superpage is lost";
    if (frames_compact(zone, &goal, NULL, NULL) != FRAMES_COMPACT_WITHIN) wrong = "a pass within a pass";
}
static void an_owner_may_allocate_while_it_is_asked(void **state) {
    (void)state;
    uint64_t seed = 12;
    make_sparse(6, &seed);
    frames_set_effort(zone, FRAMES_COMPACT);
    within = allocate_within;
    (void)pass_of(9);
    within = NULL;
    check_all();
}

/* The block was moved when it is freed under its new number: it is free in the end, and so is its old place. */
static void free_within(uint64_t token) {
    if (token % 2 == 0) disown(token);
}
static void a_block_may_be_freed_while_it_moves(void **state) {
    (void)state;
    uint64_t seed = 13;
    make_sparse(4, &seed);
    within = free_within;
    (void)pass_of(9);
    within = NULL;
    check_all();
    assert_int_equal(stats_now().used[FRAMES_MOVABLE], live_frames());
    assert_int_equal(stats_now().moving, 0);
}

/* Room appears above where there was none: what has moved already stays for this pass. */
static uint64_t free_seed;
static void free_another(uint64_t token) {
    for (unsigned tries = 0; tries < 50; tries++) {
        uint64_t other = next_random(&free_seed) % owned_count;
        if (other == token || !owned[other].live || owned[other].frame < owned[token].frame) continue;
        disown(other);
        return;
    }
}
static void nothing_moves_twice_though_room_appears(void **state) {
    (void)state;
    uint64_t seed = 18;
    free_seed = 19;
    while (own(next_random(&seed) % 4 == 0 ? 64 : 1 + next_random(&seed) % 3)) continue;
    while (own(1)) continue;
    for (uint64_t i = 0; i < owned_count; i++)
        if (next_random(&seed) % 3 == 0) disown(i);
    within = free_another;
    assert_true(pass_of(9).moved > 100);
    within = NULL;
    check_all();
}

/* The pass of the daemon takes movable blocks out of foreign superpages, a direct one leaves them. */
static void movable_blocks_leave_foreign_superpages(void **state) {
    (void)state;
    uint64_t frame, at, seed = 14;
    const struct frames_request one = {.frames = 1, .mobility = FRAMES_UNMOVABLE};
    static uint64_t unmovable[32 * SUPERPAGE_FRAMES];
    uint64_t count = 0;
    while (frames_alloc(zone, &one, &frame) == FRAMES_OK) unmovable[count++] = frame;
    /* The upper half becomes wholly free, and a quarter of the lower one. */
    for (uint64_t i = 0; i < count; i++)
        if (unmovable[i] >= 16 * SUPERPAGE_FRAMES || next_random(&seed) % 4 == 0)
            assert_int_equal(frames_free(zone, unmovable[i], 1, &at), FRAMES_OK);
    /* Movable ones fill the upper half, and then what is left below; half of those above go. */
    while (own(1)) continue;
    uint64_t foreign = 0;
    for (uint64_t i = 0; i < owned_count; i++) {
        if (owned[i].frame < 16 * SUPERPAGE_FRAMES)
            foreign++;
        else if (i % 2 == 0)
            disown(i);
    }
    assert_true(foreign > SUPERPAGE_FRAMES);
    const struct frames_compact_goal direct = {.order = 3, .movable_only = true};
    new_pass();
    assert_int_equal(frames_compact(zone, &direct, NULL, NULL), FRAMES_COMPACT_MET);
    check_all();
    uint64_t left = 0;
    for (uint64_t i = 0; i < owned_count; i++) left += owned[i].live && owned[i].frame < 16 * SUPERPAGE_FRAMES;
    assert_int_equal(left, foreign);
    (void)pass_of(3);
    check_all();
    for (uint64_t i = left = 0; i < owned_count; i++) left += owned[i].live && owned[i].frame < 16 * SUPERPAGE_FRAMES;
    assert_int_equal(left, 0);
}

/* ------------------------------------------------------------------ load */

/* The tokens of blocks that live, in any order; a freed one's number is not used again. */
static uint64_t living[BLOCKS_MAX], living_count;

static void drop_one(uint64_t *seed) {
    uint64_t i = next_random(seed) % living_count, token = living[i];
    if (owned[token].pinned) return;
    disown(token);
    living[i] = living[--living_count];
}

static void pin_one(uint64_t *seed) {
    uint64_t token = living[next_random(seed) % living_count], at;
    struct owned *block = &owned[token];
    if (block->pinned)
        assert_int_equal(frames_unpin(zone, block->frame, block->frames, &at), FRAMES_OK);
    else if (next_random(seed) % 4 == 0)
        assert_int_equal(frames_pin(zone, block->frame, block->frames, &at), FRAMES_OK);
    else
        return;
    block->pinned = !block->pinned;
}

/* Blocks of all sizes come, go, are pinned and moved, beside unmovable ones; whole superpages are asked for. All words stay, all frames are counted.
 */
static void contents_survive_a_random_load(void **state) {
    (void)state;
    enum { UNMOVABLE = 600 };
    static uint64_t unmovable[UNMOVABLE];
    uint64_t seed = 17, count = 0, at, frame, moved = 0, had = 0;
    living_count = 0;
    frames_set_effort(zone, FRAMES_COMPACT);
    for (unsigned step = 0; step < 30000 && owned_count < BLOCKS_MAX - 1; step++) {
        bool full = stats_now().free < 4000;
        switch (next_random(&seed) % 10) {
        case 0:
            if (count < UNMOVABLE) {
                const struct frames_request one = {.frames = 1, .mobility = FRAMES_UNMOVABLE};
                if (frames_alloc(zone, &one, &unmovable[count]) == FRAMES_OK) count++;
            } else {
                uint64_t i = next_random(&seed) % count;
                assert_int_equal(frames_free(zone, unmovable[i], 1, &at), FRAMES_OK);
                unmovable[i] = unmovable[--count];
            }
            break;
        case 1:
            if (living_count != 0) pin_one(&seed);
            break;
        case 2:
        case 3:
        case 4:
            if (living_count != 0) drop_one(&seed);
            break;
        default:
            if (full && living_count != 0)
                drop_one(&seed);
            else if (own(next_random(&seed) % 3 != 0 ? 1 : 1 + next_random(&seed) % 70))
                living[living_count++] = owned_count - 1;
        }
        if (step % 600 == 0) {
            moved += pass_of((unsigned)(next_random(&seed) % 10)).moved;
            check_all();
        }
        if (step % 1000 == 500) {
            const struct frames_request whole = {.frames = SUPERPAGE_FRAMES, .mobility = FRAMES_UNMOVABLE};
            new_pass();
            if (frames_alloc_hard(zone, &whole, &frame) == FRAMES_OK) {
                had++;
                assert_int_equal(frames_free(zone, frame, SUPERPAGE_FRAMES, &at), FRAMES_OK);
            }
            check_all();
        }
    }
    struct frames_stats stats = stats_now();
    assert_int_equal(stats.used[FRAMES_MOVABLE], live_frames());
    assert_int_equal(stats.used[FRAMES_UNMOVABLE], count);
    assert_true(moved > 1000 && had > 0);
}

/* ------------------------------------------------------------------ the thread */

static void the_thread_acts_on_the_index(void **state) {
    (void)state;
    uint64_t seed = 15;
    const struct frames_compactor_config config = {.order = 3, .unusable = 0.75, .interval_ns = 100000000};
    struct frames_compactor_counts counts;
    assert_int_equal(frames_compactor_start(zone, &config), FRAMES_OK);
    assert_int_equal(frames_compactor_start(zone, &config), FRAMES_BUSY);
    (void)sim_run_threads_for(250000000);
    frames_compactor_counts_get(zone, &counts);
    assert_true(counts.running && counts.looks >= 2 && counts.passes == 0); /* all is free, and usable */
    make_sparse(3, &seed);
    struct frames_free free;
    frames_free_get(zone, 0, false, &free);
    assert_true(frames_unusable_index(&free, 3) > 0.75);
    new_pass();
    (void)sim_run_threads_for(250000000);
    check_all();
    frames_compactor_counts_get(zone, &counts);
    assert_true(counts.passes >= 1 && counts.successes == 1);
    frames_free_get(zone, 0, false, &free);
    assert_true(frames_unusable_index(&free, 3) < 0.25);
    assert_int_equal(frames_compactor_stop(zone), FRAMES_OK);
    frames_compactor_counts_get(zone, &counts);
    assert_false(counts.running);
    assert_int_equal(sim_threads_alive(), 0);
}

static void the_thread_is_woken_by_reclaim_and_by_fallbacks(void **state) {
    (void)state;
    uint64_t seed = 16, frame;
    const struct frames_compactor_config config = {.order = 3, .unusable = 1, .interval_ns = UINT64_C(1000000000000)};
    struct frames_compactor_counts counts;
    make_sparse(3, &seed);
    assert_int_equal(frames_compactor_start(zone, &config), FRAMES_OK);
    (void)sim_run_threads_for(1000000);
    frames_compactor_counts_get(zone, &counts);
    assert_int_equal(counts.passes, 0);
    new_pass();
    frames_compaction_wake(zone);
    (void)sim_run_threads_for(1000000);
    frames_compactor_counts_get(zone, &counts);
    assert_int_equal(counts.passes, 1);
    assert_int_equal(counts.wakes, 1);
    /* Fill up what is free, so that unmovable frames must go to movable superpages. */
    while (own(1)) continue;
    for (uint64_t i = 0; i < owned_count; i++)
        if (owned[i].live && next_random(&seed) % 3 == 0) disown(i);
    const struct frames_request one = {.frames = 1, .mobility = FRAMES_UNMOVABLE};
    assert_int_equal(frames_alloc(zone, &one, &frame), FRAMES_OK);
    new_pass();
    (void)sim_run_threads_for(1000000);
    frames_compactor_counts_get(zone, &counts);
    assert_int_equal(counts.fallbacks, 1);
    assert_int_equal(counts.passes, 2);
    check_all();
    assert_int_equal(frames_compactor_stop(zone), FRAMES_OK);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(sparse_blocks_become_dense),
        TEST(blocks_of_many_frames_move_whole),
        TEST(pinned_frames_stay),
        TEST(answers_are_respected),
        TEST(who_was_not_asked_has_not_said_never),
        TEST(an_allocation_compacts_when_memory_is_in_pieces),
        TEST(no_pass_where_it_would_be_in_vain),
        TEST(failures_are_deferred),
        TEST(an_owner_may_allocate_while_it_is_asked),
        TEST(a_block_may_be_freed_while_it_moves),
        TEST(nothing_moves_twice_though_room_appears),
        TEST(movable_blocks_leave_foreign_superpages),
        TEST(contents_survive_a_random_load),
        TEST(the_thread_acts_on_the_index),
        TEST(the_thread_is_woken_by_reclaim_and_by_fallbacks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
