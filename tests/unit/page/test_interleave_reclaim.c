/*
 * test_interleave_reclaim.c - a request that has an area reclaimed without capture, against allocations, frees, pins, a pass of compaction and a
 * second such request, in every order that few switches allow: what was dropped for it is nobody's until all of its superpage is free, and nobody
 * loses or shares a frame. And reclaim by age against blocks that come and go, of which the lists are told a batch at a time, and against a pass that
 * moves them: at the end each block that lives is in a list, or waits to be.
 */
#include "page/frames_internal.h"
#include "page/frames_reclaim.h"
#include "unit/page/frames_compact_support.h"
#include "unit/sparse.h"

enum { FRAMES_EACH = 32 /* of 64 KiB */, SUPERPAGES = 3, TAKEN_MAX = 16, FREE = 3 };

static uint64_t taken[TAKEN_MAX], had[2];
static unsigned taken_count, had_count;
static bool seen;
static bool churns; /* scenes of blocks that come and go */

static void went_wrong(const char *text) {
    if (wrong == NULL) wrong = text;
}

static enum frames_answer drop(struct frame_zone *of, const struct frames_owner *self, uint64_t frame, uint64_t frames, uint64_t token, bool dirty) {
    (void)self, (void)dirty;
    struct owned *block = &owned[token];
    if (!block->live) return FRAMES_LATER;
    if (block->frame != frame || block->frames != frames) went_wrong("the wrong block is dropped");
    if (block->pinned) went_wrong("a pinned block is dropped");
    if (frames_peek(of, frame) != word_of(token, 0)) went_wrong("a block lost its contents");
    block->live = false;
    sim_yield();
    return FRAMES_YES;
}

static void want_superpage(void *unused) {
    (void)unused;
    const struct frames_request request = {.frames = FRAMES_EACH, .mobility = FRAMES_UNMOVABLE};
    uint64_t frame;
    if (frames_alloc_hard(zone, &request, &frame) != FRAMES_OK) return;
    had[had_count++] = frame;
    for (unsigned i = 0; i < taken_count; i++)
        if (taken[i] / FRAMES_EACH == frame / FRAMES_EACH) went_wrong("a frame of the superpage is somebody else's, too");
    seen = true;
}

static void take(enum frames_mobility mobility) {
    const struct frames_request request = {.frames = 1, .mobility = mobility, .flags = FRAMES_NO_EFFORT};
    uint64_t frame;
    if (frames_alloc(zone, &request, &frame) != FRAMES_OK) return;
    for (unsigned i = 0; i < had_count; i++)
        if (frame / FRAMES_EACH == had[i] / FRAMES_EACH) went_wrong("a superpage was had, and a frame of it given away");
    taken[taken_count++] = frame;
}
static void intrude(void *unused) {
    (void)unused;
    take(FRAMES_UNMOVABLE);
    take(FRAMES_MOVABLE);
    take(FRAMES_RECLAIMABLE);
}

/* Blocks that their owner frees at the moment in which they are to be dropped. */
static void free_some(void *unused) {
    (void)unused;
    for (uint64_t token = 0; token < 4; token++) {
        if (owned[token].live) disown(token);
        sim_yield();
    }
}
static void pin_one(void *unused) {
    (void)unused;
    uint64_t frame = owned[5].frame, at;
    if (frames_pin(zone, frame, 1, &at) != FRAMES_OK) return;
    bool mine = owned[5].live;
    owned[5].pinned = mine;
    sim_yield();
    if (mine && !owned[5].live) went_wrong("a pinned block was dropped");
    owned[5].pinned = false;
    if (frames_unpin(zone, frame, 1, &at) != FRAMES_OK) went_wrong("a pin is lost");
}

/* By age, and what is dropped is all that this thread wants. */
static void scan(void *unused) {
    (void)unused;
    for (unsigned i = 0; i < 2; i++) {
        uint64_t gone;
        (void)frames_reclaim(zone, 2, 0, &gone);
        seen |= gone != 0;
    }
}

/* One after the other to the same few frames, so that the lists know what was there before, and not what is. */
static void churn(void *unused) {
    (void)unused;
    for (unsigned i = 0; i < 3; i++) {
        uint64_t first = owned_count;
        owned_count += 2; /* tokens of this thread's */
        for (uint64_t token = first; token < first + 2; token++) {
            const struct frames_request request = {
                .frames = 1, .mobility = FRAMES_MOVABLE, .flags = FRAMES_NO_EFFORT, .owner = owner, .token = token};
            uint64_t frame, at;
            if (frames_alloc(zone, &request, &frame) != FRAMES_OK) continue;
            if (i == 2) { /* stays */
                frames_poke(zone, frame, word_of(token, 0));
                owned[token] = (struct owned){.frame = frame, .frames = 1, .live = true};
            } else if (frames_free(zone, frame, 1, &at) != FRAMES_OK)
                went_wrong("a frame can't be freed that nobody could drop");
        }
    }
}

static void compact(void *unused) {
    (void)unused;
    const struct frames_compact_goal goal = {.order = 5};
    struct frames_compact_counts counts = {0};
    (void)frames_compact(zone, &goal, &counts, NULL);
    seen |= counts.moved != 0;
}

/* A superpage is wanted of the zone, for which slots give back theirs. */
static void drain(void *unused) {
    (void)unused;
    frames_slots_drain(zone);
    sim_yield();
    frames_slots_drain(zone);
}

static const char *run(void *context) {
    void (**bodies)(void *) = context;
    const struct frames_config config = {
        .name = "test", .backend = FRAMES_SIM, .bytes = SUPERPAGES * FRAMES_SUPERPAGE_BYTES, .frame_bytes = 64 * KIB, .cpus = 2};
    const struct frames_owner description = {.name = "owner", .migrate = churns ? migrate : NULL, .reclaim = drop};
    const struct frames_reclaim_config reclaim = {.policy = churns ? FRAMES_RECLAIM_LRU : FRAMES_RECLAIM_AREA, .high_frames = 1};
    uint64_t at;
    sim_reset(NULL);
    sim_explore_ignore(true);
    wrong = NULL;
    owned_count = taken_count = had_count = 0;
    memset(owned, 0, SUPERPAGES * FRAMES_EACH * sizeof *owned);
    if (frames_zone_create(&config, &zone) != FRAMES_OK || frames_owner_add(zone, &description, &owner) != FRAMES_OK) return "no zone";
    if (frames_reclaim_start(zone, &reclaim) != FRAMES_OK) return "no reclaim";
    frames_set_effort(zone, FRAMES_RECLAIM);
    for (unsigned i = 0; churns && i < 4; i++) own(1);
    for (unsigned i = 0; churns && i < 3; i += 2) disown(i);
    while (!churns && own(1)) continue;
    for (uint64_t token = 10; !churns && token < 10 + FREE; token++) disown(token); /* in the area of the oldest block, behind those that go first */
    sim_explore_ignore(false);
    for (unsigned i = 0; i < 3 && bodies[i] != NULL; i++) sim_thread_start(i % 2, bodies[i], NULL);
    if (!sim_run_threads()) went_wrong("a thread waits for ever");
    sim_explore_ignore(true);
    struct frames_stats stats;
    frames_stats_get(zone, &stats);
    if (stats.moving != 0 || stats.captured != 0) went_wrong("something is held still");
    if (stats.free + live_frames() + taken_count + (uint64_t)had_count * FRAMES_EACH != SUPERPAGES * FRAMES_EACH) went_wrong("frames were lost");
    for (uint64_t i = 0; i < owned_count; i++)
        if (owned[i].live && frames_peek(zone, owned[i].frame) != word_of(i, 0)) went_wrong("contents were lost");
    if (wrong == NULL) wrong = frames_zone_check(zone);
    if (wrong == NULL) wrong = frames_reclaim_check(zone);
    for (unsigned i = 0; i < had_count; i++)
        if (frames_free(zone, had[i], FRAMES_EACH, &at) != FRAMES_OK) went_wrong("a superpage is lost");
    for (unsigned i = 0; i < taken_count; i++)
        if (frames_free(zone, taken[i], 1, &at) != FRAMES_OK) went_wrong("a frame is lost");
    if (frames_zone_destroy(zone) != FRAMES_OK) went_wrong("the zone can't be destroyed");
    return wrong;
}

static void explore_of(void (*first)(void *), void (*second)(void *), void (*third)(void *), unsigned deviations, uint64_t runs_min) {
    void (*bodies[3])(void *) = {first, second, third};
    struct sim_exploration exploration = {.scenario = run, .context = bodies, .deviations = sparse_deviations(deviations)};
    seen = false;
    if (!sim_explore(&exploration)) fail_msg("%s", exploration.failure);
    if (exploration.runs < sparse_runs(runs_min)) fail_msg("%llu runs only", (unsigned long long)exploration.runs);
    assert_true(seen);
}

static void explore(void (*second)(void *), void (*third)(void *), unsigned deviations, uint64_t runs_min) {
    churns = false;
    explore_of(want_superpage, second, third, deviations, runs_min);
}
static void explore_churn(void (*first)(void *), void (*third)(void *), unsigned deviations, uint64_t runs_min) {
    churns = true;
    explore_of(first, churn, third, deviations, runs_min);
}

static void an_area_against_allocations(void **state) {
    (void)state;
    explore(intrude, NULL, 1, 20);
}
static void an_area_against_frees(void **state) {
    (void)state;
    explore(free_some, NULL, 1, 20);
}
static void an_area_against_pins(void **state) {
    (void)state;
    explore(pin_one, NULL, 1, 20);
}
static void two_areas(void **state) {
    (void)state;
    explore(want_superpage, NULL, 1, 20);
}
static void an_area_against_frees_and_allocations(void **state) {
    (void)state;
    explore(free_some, intrude, 1, 20);
}

static void ages_against_blocks_that_come_and_go(void **state) {
    (void)state;
    explore_churn(scan, NULL, 2, 500);
}
static void ages_against_blocks_that_come_and_go_here(void **state) {
    (void)state;
    explore_churn(scan, churn, 1, 50); /* the third thread is of the first one's CPU */
}
static void ages_against_slots_that_give_back(void **state) {
    (void)state;
    explore_churn(scan, drain, 1, 50);
}
static void a_pass_against_blocks_that_come_and_go(void **state) {
    (void)state;
    explore_churn(compact, churn, 2, 300);
}
static void a_pass_against_ages_and_blocks(void **state) {
    (void)state;
    explore_churn(compact, scan, 2, 300);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_area_against_allocations),
        cmocka_unit_test(an_area_against_frees),
        cmocka_unit_test(an_area_against_pins),
        cmocka_unit_test(two_areas),
        cmocka_unit_test(an_area_against_frees_and_allocations),
        cmocka_unit_test(ages_against_blocks_that_come_and_go),
        cmocka_unit_test(ages_against_blocks_that_come_and_go_here),
        cmocka_unit_test(ages_against_slots_that_give_back),
        cmocka_unit_test(a_pass_against_blocks_that_come_and_go),
        cmocka_unit_test(a_pass_against_ages_and_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
