/*
 * test_zone_reclaim.c - reclaim in zones, by the public functions, on a zone without memory: who goes first, who stays, what is counted, and that a
 * large request costs one area.
 *
 * 32 superpages of 512 frames. The program remembers what it has by token, and in which order it was asked to drop.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "platform/sim/sim.h"
#include "strata/zone_compact.h"
#include "strata/zone_reclaim.h"

#define SUPERPAGES 32u
#define PER_SUPERPAGE 512u
#define FRAMES (SUPERPAGES * PER_SUPERPAGE)

static struct strata_zone *zone;
static unsigned owner;
static uint64_t frame_of[FRAMES]; /* by token; UINT64_MAX: dropped */
static uint64_t dropped[FRAMES];  /* tokens in their order */
static unsigned drops;
static enum strata_zone_answer answer;
static void (*meanwhile)(void); /* called by the first drop */

static enum strata_zone_answer drop(struct strata_zone *its_zone, uint64_t frame, uint64_t frames, uint64_t token, bool dirty, void *context) {
    assert_ptr_equal(its_zone, zone);
    assert_ptr_equal(context, &owner);
    assert_true(token < FRAMES && frames != 0);
    assert_int_equal(frame_of[token], frame);
    assert_int_equal(sim_locks_held(), 0);
    if (answer != STRATA_ZONE_YES) return answer;
    frame_of[token] = UINT64_MAX;
    dropped[drops++] = token;
    void (*now)(void) = meanwhile;
    meanwhile = NULL;
    if (now != NULL) now();
    return dirty ? STRATA_ZONE_WROTE : STRATA_ZONE_YES;
}

static enum strata_zone_answer move(struct strata_zone *its_zone, uint64_t from, uint64_t to, uint64_t frames, uint64_t token, void *context) {
    (void)context;
    assert_int_equal(frame_of[token], from);
    assert_int_equal(strata_zone_copy(its_zone, from, to, frames), STRATA_ZONE_OK);
    frame_of[token] = to;
    return STRATA_ZONE_YES;
}

static const struct strata_zone_reclaim_config plain = {.policy = STRATA_ZONE_RECLAIM_LRU, .high_frames = 1};

static void begin(enum strata_zone_reclaim_policy policy) {
    sim_reset(NULL);
    const struct strata_zone_config config = {
        .name = "test", .backend = STRATA_ZONE_SIM, .bytes = SUPERPAGES * STRATA_ZONE_SUPERPAGE_BYTES, .frame_bytes = 4096, .cpus = 1};
    const struct strata_zone_owner program = {.name = "program", .migrate = move, .reclaim = drop, .context = &owner};
    struct strata_zone_reclaim_config reclaim = plain;
    reclaim.policy = policy;
    assert_int_equal(strata_zone_create(&config, &zone), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_owner_add(zone, &program, &owner), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_reclaim_start(zone, &reclaim), STRATA_ZONE_OK);
    memset(frame_of, 0xff, sizeof frame_of);
    drops = 0;
    answer = STRATA_ZONE_YES;
    meanwhile = NULL;
}

static void sound(void) {
    const char *broken = strata_zone_check(zone);
    if (broken == NULL) broken = strata_zone_reclaim_check(zone);
    if (broken != NULL) fail_msg("%s", broken);
}

static int end(void **state) {
    (void)state;
    sound();
    assert_int_equal(strata_zone_destroy(zone), STRATA_ZONE_OK);
    return 0;
}

static void make(uint64_t token, uint64_t frames) {
    const struct strata_zone_request request = {
        .frames = frames, .mobility = STRATA_ZONE_MOVABLE, .owner = owner, .flags = STRATA_ZONE_NO_EFFORT, .token = token};
    assert_int_equal(strata_zone_alloc_as(zone, &request, &frame_of[token]), STRATA_ZONE_OK);
}
static void make_many(uint64_t first, uint64_t count) {
    for (uint64_t i = first; i < first + count; i++) make(i, 1);
}

static struct strata_zone_reclaim_stats stats(void) {
    struct strata_zone_reclaim_stats now;
    assert_int_equal(strata_zone_reclaim_stats_get(zone, &now), STRATA_ZONE_OK);
    return now;
}

static uint64_t reclaim(uint64_t frames, unsigned order, enum strata_zone_status expected) {
    uint64_t had = 0;
    assert_int_equal(strata_zone_reclaim(zone, frames, order, &had), expected);
    sound();
    return had;
}

/* ------------------------------------------------------------------ by age */

static void the_oldest_go_first(void **state) {
    (void)state;
    begin(STRATA_ZONE_RECLAIM_LRU);
    make_many(0, 1000);
    assert_int_equal(stats().inactive, 1000);
    assert_int_equal(reclaim(100, 0, STRATA_ZONE_OK), 100);
    for (unsigned i = 0; i < 100; i++) assert_int_equal(dropped[i], i);
    struct strata_zone_reclaim_stats now = stats();
    assert_int_equal(now.inactive, 900);
    assert_int_equal(now.scanned, 100);
    assert_int_equal(now.unmapped, 100);
    assert_int_equal(now.written, 0);
}

static void what_was_used_stays(void **state) {
    (void)state;
    begin(STRATA_ZONE_RECLAIM_LRU);
    make_many(0, 1000);
    for (unsigned i = 0; i < 1000; i += 2) strata_zone_touch(zone, frame_of[i], false);
    assert_int_equal(reclaim(500, 0, STRATA_ZONE_OK), 500);
    for (unsigned i = 0; i < 500; i++) assert_int_equal(dropped[i], 2 * i + 1);
    assert_int_equal(stats().activated, 500);
    assert_int_equal(stats().active + stats().inactive, 500);
    assert_true(stats().active >= stats().inactive); /* but balanced */
    /* Not used again, they follow, in the order of their use. */
    assert_int_equal(reclaim(500, 0, STRATA_ZONE_OK), 500);
    for (unsigned i = 0; i < 500; i++) assert_int_equal(dropped[500 + i], 2 * i);
    assert_int_equal(stats().deactivated, 500); /* each went through the inactive list */
    assert_int_equal(reclaim(1, 0, STRATA_ZONE_NO_FRAMES), 0);
}

static void active_ones_that_are_used_are_kept(void **state) {
    (void)state;
    begin(STRATA_ZONE_RECLAIM_LRU);
    make_many(0, 10);
    for (unsigned i = 0; i < 10; i++) strata_zone_poke(zone, frame_of[i], i);
    make_many(10, 1);
    assert_int_equal(reclaim(1, 0, STRATA_ZONE_OK), 1);
    assert_int_equal(dropped[0], 10);
    assert_int_equal(stats().active, 5); /* the lists were balanced */
    for (unsigned i = 5; i < 10; i++) (void)strata_zone_peek(zone, frame_of[i]);
    assert_int_equal(reclaim(5, 0, STRATA_ZONE_OK), 5);
    for (unsigned i = 0; i < 5; i++) assert_int_equal(dropped[1 + i], i);
    assert_int_equal(stats().activated, 10);
    assert_true(stats().kept > 0 && stats().kept <= 5);
}

static void dirty_ones_are_written_and_counted(void **state) {
    (void)state;
    begin(STRATA_ZONE_RECLAIM_LRU);
    make(0, 4);
    make(1, 1);
    strata_zone_poke(zone, frame_of[0] + 3, 7);
    assert_int_equal(reclaim(5, 0, STRATA_ZONE_OK), 5);
    struct strata_zone_reclaim_stats now = stats();
    assert_int_equal(now.written, 4);
    assert_int_equal(now.unmapped, 5);
    assert_int_equal(now.scanned, 1 + 3 * 4);                  /* what was used is seen in the inactive list, in the active one, and again */
    assert_true(now.cost > 6.6026034 && now.cost < 6.6026044); /* log10(13 + 1000 * 5 + 1000000 * 4) */
    /* The frames are clean for whoever has them next. */
    make(2, 4);
    assert_int_equal(reclaim(4, 0, STRATA_ZONE_OK), 4);
    assert_int_equal(stats().written, 4);
}

static void refusals(void **state) {
    (void)state;
    begin(STRATA_ZONE_RECLAIM_LRU);
    assert_true(stats().cost == 0);
    make_many(0, 4);
    answer = STRATA_ZONE_LATER;
    assert_int_equal(reclaim(4, 0, STRATA_ZONE_NO_FRAMES), 0);
    assert_true(stats().refused_later >= 4);
    assert_int_equal(stats().inactive, 4);
    assert_int_equal(strata_zone_pin(zone, frame_of[2], 1), STRATA_ZONE_OK);
    answer = STRATA_ZONE_YES;
    assert_int_equal(reclaim(4, 0, STRATA_ZONE_NO_FRAMES), 3); /* a pinned one never goes */
    assert_true(frame_of[2] != UINT64_MAX && stats().refused_busy > 0);
    assert_int_equal(strata_zone_unpin(zone, frame_of[2], 1), STRATA_ZONE_OK);
    answer = STRATA_ZONE_NEVER;
    assert_int_equal(reclaim(1, 0, STRATA_ZONE_NO_FRAMES), 0);
    assert_int_equal(stats().refused_never, 1); /* and is not asked again */
    assert_int_equal(stats().inactive + stats().active, 0);
}

static void blocks_come_go_and_are_cut(void **state) {
    (void)state;
    begin(STRATA_ZONE_RECLAIM_LRU);
    uint64_t unmovable;
    assert_int_equal(strata_zone_alloc(zone, 1, STRATA_ZONE_UNMOVABLE, &unmovable), STRATA_ZONE_OK);
    make(0, 16);
    make_many(1, 3);
    assert_int_equal(stats().inactive, 4);
    assert_int_equal(strata_zone_free(zone, frame_of[2], 1), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_free(zone, frame_of[0] + 4, 4), STRATA_ZONE_OK); /* two blocks are left of it */
    sound();
    assert_int_equal(stats().inactive, 4);
    /* Compaction moves blocks: they keep their places. */
    assert_int_equal(strata_zone_compact(zone, 9, NULL), STRATA_ZONE_OK);
    sound();
    assert_int_equal(strata_zone_reclaim_stop(zone), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_reclaim_stop(zone), STRATA_ZONE_OK);
    assert_false(stats().running);
    assert_int_equal(strata_zone_reclaim_start(zone, &plain), STRATA_ZONE_OK); /* what is there is found */
    assert_int_equal(stats().inactive, 4);
    assert_int_equal(strata_zone_reclaim_start(zone, &plain), STRATA_ZONE_BUSY);
}

/* ------------------------------------------------------------------ areas */

/* Frames that go for one superpage; the rest is as it was. */
static uint64_t price_of_a_superpage(void) {
    const struct strata_zone_request request = {.frames = PER_SUPERPAGE, .mobility = STRATA_ZONE_UNMOVABLE};
    uint64_t before = stats().unmapped, frame;
    assert_int_equal(strata_zone_alloc_as(zone, &request, &frame), STRATA_ZONE_OK);
    sound();
    assert_int_equal(strata_zone_free(zone, frame, PER_SUPERPAGE), STRATA_ZONE_OK);
    return stats().unmapped - before;
}

/* Uses in an order that jumps between superpages: the ages of neighbours have nothing to do with each other. */
static void mix_ages(void) {
    for (uint64_t i = 0; i < FRAMES; i++) make((i * 5701 + 7) % FRAMES, 1);
}

static void a_superpage_costs_one_area(void **state) {
    (void)state;
    uint64_t price[STRATA_ZONE_RECLAIM_POLICIES];
    for (enum strata_zone_reclaim_policy policy = STRATA_ZONE_RECLAIM_LRU; policy < STRATA_ZONE_RECLAIM_POLICIES; policy++) {
        begin(STRATA_ZONE_RECLAIM_LRU);
        mix_ages();
        /* Regular reclaim by ages that are spread: every superpage loses the same share. */
        for (uint64_t i = 0; i < FRAMES; i++)
            if ((i * 40503) % FRAMES < FRAMES / 2) strata_zone_touch(zone, frame_of[i], false);
        assert_int_equal(strata_zone_reclaim_set_policy(zone, policy), STRATA_ZONE_OK);
        assert_int_equal(strata_zone_set_effort(zone, STRATA_ZONE_RECLAIM), STRATA_ZONE_OK);
        price[policy] = price_of_a_superpage();
        if (policy + 1u < STRATA_ZONE_RECLAIM_POLICIES) assert_int_equal(end(NULL), 0);
    }
    assert_int_equal(price[STRATA_ZONE_RECLAIM_LINEAR], PER_SUPERPAGE);
    assert_int_equal(price[STRATA_ZONE_RECLAIM_AREA], PER_SUPERPAGE);
    assert_true(price[STRATA_ZONE_RECLAIM_LRU] > 8 * PER_SUPERPAGE);
}

static void the_area_is_that_of_the_oldest(void **state) {
    (void)state;
    begin(STRATA_ZONE_RECLAIM_AREA);
    make_many(0, FRAMES);
    uint64_t first = frame_of[0] / PER_SUPERPAGE;
    assert_int_equal(strata_zone_set_effort(zone, STRATA_ZONE_RECLAIM), STRATA_ZONE_OK);
    assert_int_equal(price_of_a_superpage(), PER_SUPERPAGE);
    for (unsigned i = 0; i < PER_SUPERPAGE; i++) assert_true(dropped[i] < PER_SUPERPAGE); /* those that came first lie together */
    struct strata_zone_frame_info info;
    assert_int_equal(strata_zone_query(zone, first * PER_SUPERPAGE, &info), STRATA_ZONE_OK);
    assert_false(info.allocated);
}

static void areas_that_hold_what_stays_are_left_alone(void **state) {
    (void)state;
    begin(STRATA_ZONE_RECLAIM_AREA);
    make_many(0, FRAMES);
    assert_int_equal(strata_zone_pin(zone, frame_of[100], 1), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_set_effort(zone, STRATA_ZONE_RECLAIM), STRATA_ZONE_OK);
    assert_int_equal(price_of_a_superpage(), PER_SUPERPAGE); /* not a frame of the first area went in vain */
    for (unsigned i = 0; i < drops; i++) assert_true(dropped[i] >= PER_SUPERPAGE);
    assert_true(stats().areas_unfit > 0);
    assert_int_equal(stats().areas_emptied, 1);
    assert_int_equal(strata_zone_unpin(zone, frame_of[100], 1), STRATA_ZONE_OK);
}

static void runs_of_several_superpages(void **state) {
    (void)state;
    begin(STRATA_ZONE_RECLAIM_AREA);
    make_many(0, FRAMES);
    assert_int_equal(strata_zone_set_effort(zone, STRATA_ZONE_RECLAIM), STRATA_ZONE_OK);
    uint64_t frame;
    assert_int_equal(strata_zone_alloc(zone, 3 * PER_SUPERPAGE, STRATA_ZONE_UNMOVABLE, &frame), STRATA_ZONE_OK);
    assert_int_equal(stats().unmapped, 3 * PER_SUPERPAGE);
}

/* A request that reclaims for itself tells the background how large a run is wanted, once (section 3.2): it then frees superpages, not frames. */
static void the_background_frees_what_requests_want(void **state) {
    (void)state;
    begin(STRATA_ZONE_RECLAIM_AREA);
    assert_int_equal(strata_zone_reclaim_stop(zone), STRATA_ZONE_OK);
    const struct strata_zone_reclaim_config config = {.policy = STRATA_ZONE_RECLAIM_AREA, .low_frames = 600, .high_frames = 2 * PER_SUPERPAGE};
    assert_int_equal(strata_zone_reclaim_start(zone, &config), STRATA_ZONE_OK);
    uint64_t had = 1;
    assert_int_equal(strata_zone_reclaim_balance(zone, &had), STRATA_ZONE_OK); /* enough is free */
    assert_int_equal(had, 0);
    mix_ages();
    for (uint64_t i = 0; i < FRAMES; i++)
        if ((i * 40503) % FRAMES < FRAMES / 2) strata_zone_touch(zone, frame_of[i], false);
    assert_int_equal(strata_zone_set_effort(zone, STRATA_ZONE_RECLAIM), STRATA_ZONE_OK);
    assert_int_equal(price_of_a_superpage(), PER_SUPERPAGE);
    assert_int_equal(strata_zone_reclaim_balance(zone, &had), STRATA_ZONE_OK); /* 512 are free */
    assert_int_equal(had, PER_SUPERPAGE);
    struct strata_zone_stats now;
    assert_int_equal(strata_zone_stats_get(zone, &now), STRATA_ZONE_OK);
    assert_int_equal(now.free, 2 * PER_SUPERPAGE);
    uint64_t frames[3];
    assert_int_equal(strata_zone_set_effort(zone, 0), STRATA_ZONE_OK);
    for (unsigned i = 0; i < 2; i++) assert_int_equal(strata_zone_alloc(zone, PER_SUPERPAGE, STRATA_ZONE_UNMOVABLE, &frames[i]), STRATA_ZONE_OK);
    /* Nobody has wanted a run since: the oldest frames go, wherever they lie. */
    assert_int_equal(strata_zone_reclaim_balance(zone, &had), STRATA_ZONE_OK);
    assert_int_equal(had, 2 * PER_SUPERPAGE);
    assert_int_equal(strata_zone_alloc(zone, PER_SUPERPAGE, STRATA_ZONE_UNMOVABLE, &frames[2]), STRATA_ZONE_NO_FRAMES);
    /* What nobody may drop: all is looked at, and that is said. */
    answer = STRATA_ZONE_LATER;
    while (strata_zone_alloc(zone, 1, STRATA_ZONE_UNMOVABLE, &frames[2]) == STRATA_ZONE_OK) {}
    assert_int_equal(strata_zone_reclaim_balance(zone, NULL), STRATA_ZONE_NO_FRAMES);
}

/* An area that can't be emptied is judged once for each request, not with each of its blocks: a request in vain ends before all blocks are turned. */
static void a_request_in_vain_ends_soon(void **state) {
    (void)state;
    begin(STRATA_ZONE_RECLAIM_AREA);
    make_many(0, FRAMES);
    for (unsigned i = 0; i < SUPERPAGES; i++) assert_int_equal(strata_zone_pin(zone, (uint64_t)i * PER_SUPERPAGE + i, 1), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_set_effort(zone, STRATA_ZONE_RECLAIM), STRATA_ZONE_OK);
    uint64_t frame;
    assert_int_equal(strata_zone_alloc(zone, PER_SUPERPAGE, STRATA_ZONE_UNMOVABLE, &frame), STRATA_ZONE_NO_FRAMES);
    assert_int_equal(drops, 0);
    assert_true(stats().scanned <= 2 * SUPERPAGES);
    /* One area becomes free to go; it is that of the youngest, and found. */
    uint64_t last = frame_of[FRAMES - 1] / PER_SUPERPAGE;
    assert_int_equal(strata_zone_unpin(zone, last * PER_SUPERPAGE + last, 1), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_alloc(zone, PER_SUPERPAGE, STRATA_ZONE_UNMOVABLE, &frame), STRATA_ZONE_OK);
    assert_int_equal(frame, last * PER_SUPERPAGE);
    assert_true(stats().areas_unfit <= 2 * SUPERPAGES);
    for (unsigned i = 0; i < SUPERPAGES; i++)
        if (i != last) assert_int_equal(strata_zone_unpin(zone, (uint64_t)i * PER_SUPERPAGE + i, 1), STRATA_ZONE_OK);
}

static void a_request_goes_on_to_the_lowest_watermark(void **state) {
    (void)state;
    begin(STRATA_ZONE_RECLAIM_LRU);
    assert_int_equal(strata_zone_reclaim_stop(zone), STRATA_ZONE_OK);
    const struct strata_zone_reclaim_config config = {.min_frames = 300, .low_frames = 400, .high_frames = 500};
    assert_int_equal(strata_zone_reclaim_start(zone, &config), STRATA_ZONE_OK);
    make_many(0, FRAMES);
    assert_int_equal(strata_zone_set_effort(zone, STRATA_ZONE_RECLAIM), STRATA_ZONE_OK);
    uint64_t frame;
    assert_int_equal(strata_zone_alloc(zone, 1, STRATA_ZONE_MOVABLE, &frame), STRATA_ZONE_OK);
    assert_int_equal(stats().unmapped, 300);
    assert_int_equal(stats().direct, 1);
}

static void reclaim_within_reclaim(void) {
    uint64_t had = 1;
    assert_int_equal(strata_zone_reclaim(zone, 1, 0, &had), STRATA_ZONE_BUSY);
    assert_int_equal(had, 0);
    assert_int_equal(strata_zone_reclaim_stop(zone), STRATA_ZONE_BUSY);
}

static void owners_do_not_reclaim(void **state) {
    (void)state;
    begin(STRATA_ZONE_RECLAIM_LRU);
    make_many(0, 2);
    meanwhile = reclaim_within_reclaim;
    assert_int_equal(reclaim(2, 0, STRATA_ZONE_OK), 2);
}

/* Above the reserve, so that memory is had back before that is touched. */
static void usual_watermarks_lie_above_the_reserve(void **state) {
    (void)state;
    static const uint64_t mins[][2] = {{0, FRAMES / 128}, {1, PER_SUPERPAGE}, {4, 4 * PER_SUPERPAGE}, {SUPERPAGES, FRAMES}}; /* by superpages */
    const struct strata_zone_reclaim_config usual = {.policy = STRATA_ZONE_RECLAIM_AREA};
    begin(STRATA_ZONE_RECLAIM_LRU);
    for (unsigned i = 0; i < sizeof mins / sizeof mins[0]; i++) {
        struct strata_zone_reclaim_stats now;
        uint64_t low = mins[i][1] + FRAMES / 128, high = low + FRAMES / 128;
        assert_int_equal(strata_zone_set_reserve(zone, mins[i][0] * STRATA_ZONE_SUPERPAGE_BYTES), STRATA_ZONE_OK);
        assert_int_equal(strata_zone_reclaim_stop(zone), STRATA_ZONE_OK);
        assert_int_equal(strata_zone_reclaim_start(zone, &usual), STRATA_ZONE_OK);
        assert_int_equal(strata_zone_reclaim_stats_get(zone, &now), STRATA_ZONE_OK);
        assert_int_equal(now.min_frames, mins[i][1]);
        assert_int_equal(now.low_frames, low < FRAMES ? low : FRAMES);
        assert_int_equal(now.high_frames, high < FRAMES ? high : FRAMES);
    }
}

/* ------------------------------------------------------------------ misuse */

static void explained(const char *text) {
    char said[256];
    assert_true(strata_zone_explain(zone, said, sizeof said) > 0);
    assert_string_equal(said, text);
}

static void bad_arguments(void **state) {
    (void)state;
    begin(STRATA_ZONE_RECLAIM_LRU);
    struct strata_zone_reclaim_config config = plain;
    assert_int_equal(strata_zone_reclaim(zone, 0, 0, NULL), STRATA_ZONE_BAD_ARGUMENT);
    explained("strata_zone_reclaim: frames = 0 (above 0)");
    assert_int_equal(strata_zone_reclaim(zone, 1, 10, NULL), STRATA_ZONE_BAD_ARGUMENT);
    explained("strata_zone_reclaim: order = 10 (at most that of a superpage)");
    assert_int_equal(strata_zone_reclaim_set_policy(zone, STRATA_ZONE_RECLAIM_POLICIES), STRATA_ZONE_BAD_ARGUMENT);
    explained("strata_zone_reclaim_set_policy: policy = 3 (0 lru, 1 linear, 2 area)");
    assert_int_equal(strata_zone_reclaim_stop(zone), STRATA_ZONE_OK);
    config.low_frames = 2;
    assert_int_equal(strata_zone_reclaim_start(zone, &config), STRATA_ZONE_BAD_ARGUMENT);
    explained("strata_zone_reclaim_start: low_frames = 2 (at most high_frames)");
    config.high_frames = FRAMES + 1;
    assert_int_equal(strata_zone_reclaim_start(zone, &config), STRATA_ZONE_BAD_ARGUMENT);
    explained("strata_zone_reclaim_start: high_frames = 16385 (at most the zone's frames)");
    assert_int_equal(strata_zone_reclaim(zone, 1, 0, NULL), STRATA_ZONE_BAD_ARGUMENT);
    explained("strata_zone_reclaim: reclaim = 0 (started: strata_zone_reclaim_start)");
    assert_int_equal(strata_zone_reclaim_balance(zone, NULL), STRATA_ZONE_BAD_ARGUMENT);
    explained("strata_zone_reclaim_balance: reclaim = 0 (started: strata_zone_reclaim_start)");
    assert_int_equal(strata_zone_reclaim_balance(NULL, NULL), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_reclaim_start(NULL, &plain), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_reclaim_start(zone, NULL), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_reclaim_stats_get(zone, NULL), STRATA_ZONE_BAD_ARGUMENT);
    for (uint64_t n = 1; n <= 3; n++) { /* memory that ends at each place */
        sim_fail_call(n, 1);
        enum strata_zone_status status = strata_zone_reclaim_start(zone, &plain);
        assert_true(status == (sim_failures() != 0 ? STRATA_ZONE_NO_MEMORY : STRATA_ZONE_OK));
        sim_fail_call(0, 0);
        assert_int_equal(strata_zone_reclaim_stop(zone), STRATA_ZONE_OK);
    }
}

/* The run that an area is captured for may be free, where nothing else in the area can go: then the request has it, and it is not lost. */
static void a_run_that_was_free_is_had(void **state) {
    (void)state;
    begin(STRATA_ZONE_RECLAIM_AREA);
    assert_int_equal(strata_zone_set_effort(zone, STRATA_ZONE_RECLAIM | STRATA_ZONE_RECLAIM_CAPTURES), STRATA_ZONE_OK);
    make_many(0, SUPERPAGES * 512);
    for (uint64_t i = 0; i < SUPERPAGES * 512; i++)
        if (frame_of[i] % 1024 == 0) assert_int_equal(strata_zone_free(zone, frame_of[i], 1), STRATA_ZONE_OK);
    answer = STRATA_ZONE_LATER;
    struct strata_zone_request request = {.frames = 1, .align_frames = 1024, .mobility = STRATA_ZONE_UNMOVABLE};
    uint64_t frame = UINT64_MAX;
    assert_int_equal(strata_zone_alloc_as(zone, &request, &frame), STRATA_ZONE_OK);
    assert_int_equal(frame % 1024, 0);
    assert_int_equal(strata_zone_free(zone, frame, 1), STRATA_ZONE_OK);
    struct strata_zone_stats now;
    assert_int_equal(strata_zone_stats_get(zone, &now), STRATA_ZONE_OK);
    assert_int_equal(now.free, SUPERPAGES / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_oldest_go_first, end),
        cmocka_unit_test_teardown(what_was_used_stays, end),
        cmocka_unit_test_teardown(active_ones_that_are_used_are_kept, end),
        cmocka_unit_test_teardown(dirty_ones_are_written_and_counted, end),
        cmocka_unit_test_teardown(refusals, end),
        cmocka_unit_test_teardown(a_run_that_was_free_is_had, end),
        cmocka_unit_test_teardown(blocks_come_go_and_are_cut, end),
        cmocka_unit_test_teardown(a_superpage_costs_one_area, end),
        cmocka_unit_test_teardown(the_area_is_that_of_the_oldest, end),
        cmocka_unit_test_teardown(areas_that_hold_what_stays_are_left_alone, end),
        cmocka_unit_test_teardown(runs_of_several_superpages, end),
        cmocka_unit_test_teardown(the_background_frees_what_requests_want, end),
        cmocka_unit_test_teardown(a_request_in_vain_ends_soon, end),
        cmocka_unit_test_teardown(a_request_goes_on_to_the_lowest_watermark, end),
        cmocka_unit_test_teardown(owners_do_not_reclaim, end),
        cmocka_unit_test_teardown(usual_watermarks_lie_above_the_reserve, end),
        cmocka_unit_test_teardown(bad_arguments, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
