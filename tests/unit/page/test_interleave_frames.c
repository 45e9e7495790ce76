/*
 * test_interleave_frames.c - a pass of compaction against pins, frees, allocations and a second pass, in every order that few switches allow: around
 * every lock and in the middle of the owner's function. A pinned block stays, a freed one is free, contents survive, no frame is lost.
 */
#include "unit/page/frames_compact_support.h"
#include "unit/sparse.h"

enum { FRAMES_EACH = 32 }; /* of 64 KiB */

struct scene {
    void (*bodies[3])(void *);
    unsigned deviations;
    uint64_t runs_min;
};

static bool passed; /* a pass has moved something */

static void went_wrong(const char *text) {
    if (wrong == NULL) wrong = text;
}

static void yield(uint64_t token) {
    (void)token;
    sim_yield();
}

static const char *run(void *context) {
    const struct scene *scene = context;
    const struct frames_config config = {
        .name = "test", .backend = FRAMES_SIM, .bytes = 3 * FRAMES_SUPERPAGE_BYTES, .frame_bytes = 64 * KIB, .cpus = 2};
    const struct frames_owner description = {.name = "owner", .migrate = migrate};
    sim_reset(NULL);
    sim_explore_ignore(true);
    wrong = NULL;
    answer = FRAMES_YES;
    within = yield;
    owned_count = 0;
    memset(owned, 0, 3 * FRAMES_EACH * sizeof *owned);
    if (frames_zone_create(&config, &zone) != FRAMES_OK || frames_owner_add(zone, &description, &owner) != FRAMES_OK) return "no zone";
    while (own(1)) continue;
    /* One block is left in the lowest superpage and one in the middle, and three frames are free in the highest. */
    uint64_t low = 0, middle = 0, high = 0;
    for (uint64_t i = 0; i < owned_count; i++) {
        uint64_t superpage = owned[i].frame / FRAMES_EACH;
        if ((superpage == 0 && low++ != 0) || (superpage == 1 && middle++ != 0) || (superpage == 2 && high++ < 3)) disown(i);
    }
    frames_set_effort(zone, FRAMES_COMPACT);
    sim_explore_ignore(false);
    for (unsigned i = 0; i < ARRAY_LENGTH(scene->bodies) && scene->bodies[i] != NULL; i++) sim_thread_start(i % 2, scene->bodies[i], NULL);
    if (!sim_run_threads()) went_wrong("a thread waits for ever");
    sim_explore_ignore(true);
    (void)look_over();
    struct frames_stats stats = stats_now();
    if (stats.moving != 0) went_wrong("a block is isolated still");
    if (stats.used[FRAMES_MOVABLE] != live_frames()) went_wrong("frames were lost, or are used twice");
    if (frames_zone_destroy(zone) != FRAMES_OK) went_wrong("the zone can't be destroyed");
    return wrong;
}

static void explore(struct scene scene) {
    struct sim_exploration exploration = {.scenario = run, .context = &scene, .deviations = sparse_deviations(scene.deviations)};
    passed = false;
    if (!sim_explore(&exploration)) fail_msg("%s", exploration.failure);
    if (exploration.runs < sparse_runs(scene.runs_min)) fail_msg("%llu runs only", (unsigned long long)exploration.runs);
    assert_true(passed);
}

/* ------------------------------------------------------------------ what threads do */

static void compact(void *unused) {
    (void)unused;
    const struct frames_compact_goal goal = {.order = 9};
    struct frames_compact_counts counts = {0};
    enum frames_compact_end end;
    while ((end = frames_compact(zone, &goal, &counts, NULL)) == FRAMES_COMPACT_OTHER) new_pass();
    if (end != FRAMES_COMPACT_MET) went_wrong("a pass that did not end");
    passed |= counts.moved != 0;
}

/* As one that hands the frame to a device: whose number it has may have moved on before the pin, not after it. */
static void pin(void *unused) {
    (void)unused;
    uint64_t token = lowest(), at;
    for (unsigned tries = 0; tries < 3; tries++) {
        uint64_t frame = owned[token].frame;
        if (frames_pin(zone, frame, 1, &at) != FRAMES_OK) {
            sim_yield();
            continue;
        }
        bool mine = owned[token].frame == frame;
        owned[token].pinned = mine;
        sim_yield();
        if (mine && owned[token].frame != frame) went_wrong("a pinned block has moved");
        owned[token].pinned = false;
        if (frames_unpin(zone, frame, 1, &at) != FRAMES_OK) went_wrong("a pin is lost");
        return;
    }
}

/* Under the number that is true at this moment; one that has just moved away is not there any more. */
static void release(void *unused) {
    (void)unused;
    uint64_t token = lowest(), at;
    for (unsigned tries = 0; tries < 3; tries++) {
        uint64_t frame = owned[token].frame;
        enum frames_status status = frames_free(zone, frame, 1, &at);
        if (status == FRAMES_OK) {
            owned[token].live = false;
            return;
        }
        sim_yield();
    }
}

static void allocate(void *unused) {
    (void)unused;
    const struct frames_request request = {.frames = FRAMES_EACH, .mobility = FRAMES_UNMOVABLE};
    uint64_t frame, at;
    enum frames_status status = frames_alloc_hard(zone, &request, &frame);
    if (status == FRAMES_OK && frames_free(zone, frame, FRAMES_EACH, &at) != FRAMES_OK) went_wrong("a superpage is lost");
    passed |= status == FRAMES_OK;
}

/* ------------------------------------------------------------------ scenes */

static void a_pass_against_a_pin(void **state) {
    (void)state;
    explore((struct scene){.bodies = {compact, pin}, .deviations = 3, .runs_min = 2000});
}
static void a_pass_against_a_free(void **state) {
    (void)state;
    explore((struct scene){.bodies = {compact, release}, .deviations = 3, .runs_min = 500});
}
static void a_pass_against_an_allocation(void **state) {
    (void)state;
    explore((struct scene){.bodies = {compact, allocate}, .deviations = 2, .runs_min = 200});
}
static void two_passes(void **state) {
    (void)state;
    explore((struct scene){.bodies = {compact, compact}, .deviations = 2, .runs_min = 100});
}
static void two_allocations_that_compact(void **state) {
    (void)state;
    explore((struct scene){.bodies = {allocate, allocate, pin}, .deviations = 2, .runs_min = 500});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pass_against_a_pin), cmocka_unit_test(a_pass_against_a_free),        cmocka_unit_test(a_pass_against_an_allocation),
        cmocka_unit_test(two_passes),           cmocka_unit_test(two_allocations_that_compact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
