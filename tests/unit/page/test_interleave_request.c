/*
 * test_interleave_request.c - passes of compaction for a request against allocations, frees, pins and a second request, in every order that few
 * switches allow: what is emptied for a request is nobody's until the request has it, so that no race is lost. Without holding it the same scenes
 * lose some, so that a hold that does nothing would be seen.
 */
#include "unit/page/frames_compact_support.h"
#include "unit/sparse.h"

enum { FRAMES_EACH = 32 /* of 64 KiB */, SUPERPAGES = 4, TAKEN_MAX = 16 };

struct scene {
    void (*others[2])(void *);
    struct frames_request request;
    unsigned order, deviations;
    uint64_t runs_min;
    bool no_hold;
};
static const struct scene *scene_now;
static struct run {
    uint64_t first, frames;
} had[2]; /* by requests */
static uint64_t taken[TAKEN_MAX];
static unsigned had_count, taken_count;
static uint64_t had_in_all, races_lost;

static void went_wrong(const char *text) {
    if (wrong == NULL) wrong = text;
}
static void yield(uint64_t token) {
    (void)token;
    sim_yield();
}
static bool is_in(uint64_t frame, struct run run) { return frame >= run.first && frame < run.first + run.frames; }

/* ------------------------------------------------------------------ what threads do */

static void want_run(void *unused) {
    (void)unused;
    const struct frames_compact_goal goal = {
        .request = &scene_now->request, .order = scene_now->order, .movable_only = true, .no_hold = scene_now->no_hold};
    struct frames_compact_counts counts = {0};
    uint64_t frame;
    enum frames_compact_end end;
    while ((end = frames_compact(zone, &goal, &counts, &frame)) == FRAMES_COMPACT_OTHER) new_pass();
    races_lost += counts.races_lost;
    if (end != FRAMES_COMPACT_DONE) return;
    struct run run = {.first = frame, .frames = scene_now->request.frames};
    for (unsigned i = 0; i < taken_count; i++)
        if (is_in(taken[i], run)) went_wrong("a frame of the run is somebody else's, too");
    for (uint64_t i = 0; i < owned_count; i++)
        if (owned[i].live && is_in(owned[i].frame, run)) went_wrong("a frame of the run is a block's still");
    had[had_count++] = run;
}

static void take(enum frames_mobility mobility) {
    const struct frames_request request = {.frames = 1, .mobility = mobility, .flags = FRAMES_NO_EFFORT};
    uint64_t frame;
    if (taken_count == TAKEN_MAX || frames_alloc(zone, &request, &frame) != FRAMES_OK) return;
    for (unsigned i = 0; i < had_count; i++)
        if (is_in(frame, had[i])) went_wrong("a run was had, and a frame of it given away");
    taken[taken_count++] = frame;
}
static void intrude(void *unused) {
    (void)unused;
    take(FRAMES_UNMOVABLE);
    take(FRAMES_MOVABLE);
    take(FRAMES_RECLAIMABLE);
    take(FRAMES_MOVABLE);
}

/*
 * Frees what is in the way, and wants a frame for it: the second half of figure 11. Marked first, so that its owner does not let it move away from
 * under its number, under which something else may be by then.
 */
static void free_and_take(void *unused) {
    (void)unused;
    for (unsigned tries = 0; tries < 3; tries++) {
        uint64_t token = lowest(), at;
        owned[token].live = false;
        if (frames_free(zone, owned[token].frame, 1, &at) == FRAMES_OK) break;
        owned[token].live = true;
        sim_yield();
    }
    take(FRAMES_MOVABLE);
    take(FRAMES_UNMOVABLE);
}
static void pin(void *unused) {
    (void)unused;
    uint64_t token = lowest(), frame = owned[token].frame, at;
    if (frames_pin(zone, frame, 1, &at) != FRAMES_OK) return;
    bool mine = owned[token].frame == frame;
    owned[token].pinned = mine;
    sim_yield();
    for (unsigned i = 0; i < had_count; i++)
        if (mine && is_in(frame, had[i])) went_wrong("a run was had, and a frame of it is pinned");
    owned[token].pinned = false;
    if (frames_unpin(zone, frame, 1, &at) != FRAMES_OK) went_wrong("a pin is lost");
}

/* ------------------------------------------------------------------ the run */

static const char *run(void *context) {
    const struct scene *scene = scene_now = context;
    const struct frames_config config = {
        .name = "test", .backend = FRAMES_SIM, .bytes = SUPERPAGES * FRAMES_SUPERPAGE_BYTES, .frame_bytes = 64 * KIB, .cpus = 2};
    const struct frames_owner description = {.name = "owner", .migrate = migrate};
    uint64_t at, left[SUPERPAGES] = {0};
    sim_reset(NULL);
    sim_explore_ignore(true);
    wrong = NULL;
    answer = FRAMES_YES;
    within = yield;
    owned_count = had_count = taken_count = 0;
    memset(owned, 0, SUPERPAGES * FRAMES_EACH * sizeof *owned);
    if (frames_zone_create(&config, &zone) != FRAMES_OK || frames_owner_add(zone, &description, &owner) != FRAMES_OK) return "no zone";
    frames_set_effort(zone, 0);
    while (own(1)) continue;
    /* Two blocks are left in each of the lower three superpages; in the highest there is room for all of these. */
    for (uint64_t i = 0; i < owned_count; i++) {
        uint64_t superpage = owned[i].frame / FRAMES_EACH;
        if (superpage == SUPERPAGES - 1 ? left[superpage]++ < 10 : left[superpage]++ >= 2) disown(i);
    }

    sim_explore_ignore(false);
    sim_thread_start(0, want_run, NULL);
    for (unsigned i = 0; i < 2 && scene->others[i] != NULL; i++) sim_thread_start(1 - i, scene->others[i], NULL);
    if (!sim_run_threads()) went_wrong("a thread waits for ever");
    sim_explore_ignore(true);
    had_in_all += had_count;
    struct frames_stats stats = stats_now();
    if (stats.captured != 0 || stats.captures != 0 || stats.moving != 0) went_wrong("something is held still");
    if (stats.captures_begun != 0) went_wrong("what a pass holds is counted as a capture");
    if (!scene->no_hold && stats.races_lost != 0) went_wrong("a race was lost");
    for (unsigned i = 0; i < had_count; i++)
        if (frames_free(zone, had[i].first, had[i].frames, &at) != FRAMES_OK) went_wrong("a run is lost");
    for (unsigned i = 0; i < taken_count; i++)
        if (frames_free(zone, taken[i], 1, &at) != FRAMES_OK) went_wrong("a frame is lost");
    if (stats_now().free + live_frames() != SUPERPAGES * FRAMES_EACH) went_wrong("frames were lost");
    (void)look_over();
    if (frames_zone_destroy(zone) != FRAMES_OK) went_wrong("the zone can't be destroyed");
    return wrong;
}

static void explore(struct scene scene) {
    struct sim_exploration exploration = {.scenario = run, .context = &scene, .deviations = sparse_deviations(scene.deviations)};
    had_in_all = races_lost = 0;
    if (!sim_explore(&exploration)) fail_msg("%s", exploration.failure);
    if (exploration.runs < sparse_runs(scene.runs_min)) fail_msg("%llu runs only", (unsigned long long)exploration.runs);
    assert_true(had_in_all != 0);
    if (!scene.no_hold) assert_int_equal(races_lost, 0);
}

static const struct frames_request a_superpage = {.frames = FRAMES_EACH, .mobility = FRAMES_UNMOVABLE, .flags = FRAMES_NO_EFFORT};
static const struct frames_request a_small_run = {.frames = 12, .mobility = FRAMES_MOVABLE, .flags = FRAMES_NO_EFFORT};
static const struct frames_request two_superpages = {.frames = 2 * FRAMES_EACH, .mobility = FRAMES_UNMOVABLE, .flags = FRAMES_NO_EFFORT};

static void a_superpage_against_allocations(void **state) {
    (void)state;
    explore((struct scene){.others = {intrude}, .request = a_superpage, .order = 5, .deviations = 2, .runs_min = 300});
}
static void a_superpage_against_who_frees_and_allocates(void **state) {
    (void)state;
    explore((struct scene){.others = {free_and_take}, .request = a_superpage, .order = 5, .deviations = 2, .runs_min = 300});
}
static void a_superpage_against_pins_and_allocations(void **state) {
    (void)state;
    explore((struct scene){.others = {pin, intrude}, .request = a_superpage, .order = 5, .deviations = 1, .runs_min = 30});
}
static void two_requests(void **state) {
    (void)state;
    explore((struct scene){.others = {want_run}, .request = a_superpage, .order = 5, .deviations = 2, .runs_min = 100});
}
static void a_small_run_against_allocations(void **state) {
    (void)state;
    explore((struct scene){.others = {intrude}, .request = a_small_run, .order = 4, .deviations = 2, .runs_min = 300});
}
static void a_run_of_superpages_against_allocations(void **state) {
    (void)state;
    explore((struct scene){.others = {intrude}, .request = two_superpages, .order = 6, .deviations = 2, .runs_min = 300});
}
static void without_holding_races_are_lost(void **state) {
    (void)state;
    explore((struct scene){.others = {intrude}, .request = a_superpage, .order = 5, .deviations = 2, .runs_min = 300, .no_hold = true});
    assert_true(races_lost != 0);
    explore((struct scene){.others = {intrude}, .request = two_superpages, .order = 6, .deviations = 2, .runs_min = 300, .no_hold = true});
    assert_true(races_lost != 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_superpage_against_allocations),          cmocka_unit_test(a_superpage_against_who_frees_and_allocates),
        cmocka_unit_test(a_superpage_against_pins_and_allocations), cmocka_unit_test(two_requests),
        cmocka_unit_test(a_small_run_against_allocations),          cmocka_unit_test(a_run_of_superpages_against_allocations),
        cmocka_unit_test(without_holding_races_are_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
