/*
 * test_frames_large.c - zones of more than FRAMES_LARGE superpages, where a request has a part of them looked at: what can be had is had all the
 * same, and what a request costs does not grow with the zone.
 */
#include "page/frames_compact_internal.h"
#include "page/frames_reclaim_internal.h"
#include "unit/page/frames_compact_support.h"

enum { SUPERPAGES = FRAMES_LARGE + 64, PARTS = 8, PART = SUPERPAGE_FRAMES / PARTS };

static const struct frames_request whole = {.frames = SUPERPAGE_FRAMES, .mobility = FRAMES_UNMOVABLE};

/* Movable blocks everywhere, of which each superpage lacks one, so that of all that is free no two parts lie together but by chance. */
static void open_in_pieces(void) {
    uint64_t seed = 5;
    sim_reset(NULL);
    zone_open_with(SUPERPAGES, 0);
    while (own(PART)) continue;
    assert_int_equal(owned_count, SUPERPAGES * PARTS);
    for (uint64_t i = 0; i < owned_count; i += PARTS) disown(i + next_random(&seed) % PARTS);
}

static void close_zone(void) {
    check_all();
    assert_int_equal(frames_zone_destroy(zone), FRAMES_OK);
    assert_int_equal(sim_reserved_bytes(), 0);
}

/* Each pass looks at what the last one has not; without that it would begin anew in each of more than a hundred. */
static void passes_go_on_where_the_last_one_ended(void **state) {
    (void)state;
    const struct frames_compact_goal goal = {.request = &whole, .order = 9, .movable_only = true};
    uint64_t frame, had = 0;
    open_in_pieces();
    while (frames_compact(zone, &goal, NULL, &frame) == FRAMES_COMPACT_DONE) {
        new_pass();
        had++;
    }
    assert_in_range(had, SUPERPAGES / PARTS - 2, SUPERPAGES / PARTS);
    const struct frames_compaction *compaction = frames_compaction_peek(zone);
    assert_true(compaction->progress < 16 * SUPERPAGES);
    /* The last one went through all of the zone, so the next begins at its ends. */
    assert_int_equal(compaction->resumes[9][1].source, 0);
    /* What becomes free where the scanners have been is found. */
    for (uint64_t i = 0, freed = 0; freed < PARTS; i++) {
        if (!owned[i].live) continue;
        disown(i);
        freed++;
    }
    new_pass();
    assert_int_equal(frames_compact(zone, &goal, NULL, &frame), FRAMES_COMPACT_DONE);
    close_zone();
}

static uint64_t asked_most(void) {
    uint64_t most = 0;
    for (uint64_t i = 0; i < owned_count; i++)
        if (owned[i].moves > most) most = owned[i].moves;
    return most;
}

static enum frames_answer refuse(struct frame_zone *of, const struct frames_owner *self, uint64_t from, uint64_t to, uint64_t frames,
                                 uint64_t token) {
    (void)of, (void)self, (void)from, (void)to, (void)frames;
    owned[token].moves++;
    return FRAMES_LATER;
}

/* A pass in vain has gone on from where another one ended, and then asks those who have not been asked: sparse superpages twice, with all others. */
static void nobody_is_asked_anew_from_the_start(void **state) {
    (void)state;
    const struct frames_compact_goal goal = {.request = &whole, .order = 9, .movable_only = true};
    uint64_t frame;
    open_in_pieces();
    for (uint64_t i = 0; i < owned_count; i++)
        if (owned[i].live && i % 3 != 0) disown(i);
    while (frames_alloc(zone, &whole, &frame) == FRAMES_OK) continue;
    for (unsigned i = 0; i < 20; i++, new_pass()) assert_int_equal(frames_compact(zone, &goal, NULL, &frame), FRAMES_COMPACT_DONE);
    assert_true(frames_compaction_peek(zone)->resumes[9][0].source != 0);
    new_pass();
    zone->owners[owner].migrate = refuse;
    assert_int_equal(frames_compact(zone, &goal, NULL, &frame), FRAMES_COMPACT_MET);
    assert_int_equal(asked_most(), 2);
    close_zone();
}

/* The index of a sample says what that of the zone would. */
static void a_sample_tells_pieces_from_want(void **state) {
    (void)state;
    uint64_t frame, had = 0;
    open_in_pieces();
    frames_set_effort(zone, FRAMES_COMPACT);
    for (; frames_alloc_hard(zone, &whole, &frame) == FRAMES_OK; had++) new_pass();
    assert_in_range(had, SUPERPAGES / PARTS * 3 / 4, SUPERPAGES / PARTS);
    /* Nothing free at all: no pass. */
    const struct frames_request part = {.frames = 1, .mobility = FRAMES_UNMOVABLE};
    while (frames_alloc(zone, &part, &frame) == FRAMES_OK) continue;
    struct frames_compaction *compaction = frames_compaction_peek(zone);
    for (unsigned order = 0; order < FRAMES_INDEX_ORDERS; order++) compaction->deferrals[order].left = 0;
    uint64_t passes = compaction->counts.passes;
    assert_int_equal(frames_alloc_hard(zone, &whole, &frame), FRAMES_NO_FRAMES);
    assert_int_equal(compaction->counts.passes, passes);
    close_zone();
}

static uint64_t dropped;

static enum frames_answer drop(struct frame_zone *of, const struct frames_owner *self, uint64_t frame, uint64_t frames, uint64_t token,
                               bool is_dirty) {
    (void)of, (void)self, (void)frame, (void)token, (void)is_dirty;
    dropped += frames;
    return FRAMES_YES;
}

static uint64_t scanned(void) { return __atomic_load_n(&frames_reclaim_of(zone)->counts.scanned, __ATOMIC_RELAXED); }

/* Without groups, reclaimed by areas on request. Returns the owner whose blocks can be dropped. */
static unsigned open_with_cache(void) {
    const struct frames_owner program = {.name = "cache", .reclaim = drop};
    const struct frames_reclaim_config how = {.policy = FRAMES_RECLAIM_AREA};
    unsigned cache;
    dropped = 0;
    sim_reset(NULL);
    zone_open_with(SUPERPAGES, FRAMES_NO_GROUPING);
    assert_int_equal(frames_owner_add(zone, &program, &cache), FRAMES_OK);
    assert_int_equal(frames_reclaim_start(zone, &how), FRAMES_OK);
    frames_set_effort(zone, FRAMES_RECLAIM | FRAMES_RECLAIM_CAPTURES);
    return cache;
}

static void close_with_cache(void) {
    assert_null(frames_reclaim_check(zone));
    assert_null(frames_zone_check(zone));
    assert_int_equal(frames_reclaim_stop(zone), FRAMES_OK);
    assert_int_equal(frames_zone_destroy(zone), FRAMES_OK);
}

/* Half of each superpage can be dropped, and half of it is unmovable: no area, which is not found out by a look at each. */
static void no_area_is_soon_found_out(void **state) {
    (void)state;
    const unsigned half = SUPERPAGE_FRAMES / 2;
    uint64_t frame, fixed[SUPERPAGES], at, count = 0;
    const unsigned cache = open_with_cache();
    const struct frames_request stays = {.frames = half, .mobility = FRAMES_UNMOVABLE};
    const struct frames_request goes = {.frames = half, .mobility = FRAMES_MOVABLE, .owner = cache};
    while (count < SUPERPAGES && frames_alloc(zone, &stays, &fixed[count]) == FRAMES_OK && frames_alloc(zone, &goes, &frame) == FRAMES_OK) count++;
    assert_int_equal(count, SUPERPAGES);
    assert_int_equal(frames_alloc_hard(zone, &whole, &frame), FRAMES_NO_FRAMES);
    assert_int_equal(dropped, 0);
    assert_true(scanned() < SUPERPAGES * half / 4);
    /* The only one that could be emptied is found, wherever it is, and emptied; another time there is none. */
    uint64_t wanted = fixed[SUPERPAGES / 3];
    assert_int_equal(frames_free(zone, wanted, half, &at), FRAMES_OK);
    assert_int_equal(frames_alloc_hard(zone, &whole, &frame), FRAMES_OK);
    assert_int_equal(frame, wanted / SUPERPAGE_FRAMES * SUPERPAGE_FRAMES);
    assert_int_equal(dropped, half);
    assert_int_equal(frames_alloc_hard(zone, &whole, &frame), FRAMES_NO_FRAMES);
    close_with_cache();
}

/* All but one of the superpages have unmovable frames, and the blocks of that one are the youngest: it is not waited for until they are the oldest.
 */
static void a_rare_area_is_taken_before_its_turn(void **state) {
    (void)state;
    enum { PIECES = 8 };
    const unsigned half = SUPERPAGE_FRAMES / 2;
    uint64_t frame, last = 0, at;
    const unsigned cache = open_with_cache();
    const struct frames_request stays = {.frames = half, .mobility = FRAMES_UNMOVABLE};
    const struct frames_request goes = {.frames = half / PIECES, .mobility = FRAMES_MOVABLE, .owner = cache};
    for (unsigned i = 0; i < SUPERPAGES; i++) {
        assert_int_equal(frames_alloc(zone, &stays, &last), FRAMES_OK);
        for (unsigned k = 0; k < PIECES; k++) assert_int_equal(frames_alloc(zone, &goes, &frame), FRAMES_OK);
    }
    assert_int_equal(frames_free(zone, last, half, &at), FRAMES_OK);
    assert_int_equal(frames_alloc_hard(zone, &whole, &frame), FRAMES_OK);
    assert_int_equal(frame, last / SUPERPAGE_FRAMES * SUPERPAGE_FRAMES);
    assert_int_equal(dropped, half);
    assert_true(scanned() <= 1100 * half / PIECES);
    close_with_cache();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_go_on_where_the_last_one_ended), cmocka_unit_test(nobody_is_asked_anew_from_the_start),
        cmocka_unit_test(a_sample_tells_pieces_from_want),       cmocka_unit_test(no_area_is_soon_found_out),
        cmocka_unit_test(a_rare_area_is_taken_before_its_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
