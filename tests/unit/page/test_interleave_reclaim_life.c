/*
 * test_interleave_reclaim_life.c - reclaim that is started or stopped in a zone while another thread uses it, in every order that few switches
 * allow: a start that is refused for want of a thread has left nobody with what it gives up, and a fork finds reclaim begun or not.
 */
#include "page/frames_internal.h"
#include "page/frames_reclaim.h"
#include "unit/page/frames_compact_support.h"
#include "unit/sparse.h"

enum { SUPERPAGES = 2, BLOCKS = 8 };

static void went_wrong(const char *text) {
    if (wrong == NULL) wrong = text;
}

static enum frames_answer drop(struct frame_zone *of, const struct frames_owner *self, uint64_t frame, uint64_t frames, uint64_t token, bool dirty) {
    (void)of, (void)self, (void)frames, (void)dirty;
    if (!owned[token].live || owned[token].frame != frame) return FRAMES_LATER;
    owned[token].live = false;
    return FRAMES_YES;
}

static void begin_life(void) {
    const struct frames_config config = {
        .name = "test", .backend = FRAMES_SIM, .bytes = SUPERPAGES * FRAMES_SUPERPAGE_BYTES, .frame_bytes = 64 * KIB, .cpus = 2};
    const struct frames_owner description = {.name = "owner", .reclaim = drop};
    sim_reset(NULL);
    sim_explore_ignore(true);
    wrong = NULL;
    owned_count = 0;
    memset(owned, 0, 2 * BLOCKS * sizeof *owned);
    if (frames_zone_create(&config, &zone) != FRAMES_OK || frames_owner_add(zone, &description, &owner) != FRAMES_OK) went_wrong("no zone");
    for (unsigned i = 0; i < BLOCKS; i++)
        if (!own(1)) went_wrong("no block");
}

static const char *end_life(void) {
    sim_explore_ignore(true);
    if (wrong == NULL) wrong = frames_zone_check(zone);
    if (wrong == NULL) wrong = frames_reclaim_check(zone);
    if (frames_zone_destroy(zone) != FRAMES_OK) went_wrong("the zone can't be destroyed");
    if (sim_reserved_bytes() != 0) went_wrong("something is left of the zone");
    return wrong;
}

static void explore(const char *(*scenario)(void *), void *context, uint64_t runs_min) {
    struct sim_exploration exploration = {.scenario = scenario, .context = context, .deviations = sparse_deviations(2)};
    if (!sim_explore(&exploration)) fail_msg("%s", exploration.failure);
    if (exploration.runs < sparse_runs(runs_min)) fail_msg("%llu runs only", (unsigned long long)exploration.runs);
}

/* ------------------------------------------------------------------ without a thread */

static void start_in_vain(void *unused) {
    (void)unused;
    const struct frames_reclaim_config config = {.high_frames = 1, .thread = true};
    if (frames_reclaim_start(zone, &config) != FRAMES_NO_MEMORY) went_wrong("a thread was had");
}

static void use(void *unused) {
    (void)unused;
    uint64_t frame, at, gone;
    for (uint64_t token = BLOCKS; token < BLOCKS + 2; token++) {
        const struct frames_request request = {.frames = 1, .mobility = FRAMES_MOVABLE, .flags = FRAMES_NO_EFFORT, .owner = owner, .token = token};
        if (frames_alloc(zone, &request, &frame) != FRAMES_OK) went_wrong("no frame");
        if (frames_free(zone, frame, 1, &at) != FRAMES_OK) went_wrong("a frame is lost");
    }
    if (frames_reclaim_is_started(zone)) (void)frames_reclaim(zone, 1, 0, &gone); /* as api/ asks */
}

static const char *run_refused(void *unused) {
    (void)unused;
    begin_life();
    sim_fail_only(UINT64_C(1) << SIM_THREAD_START);
    sim_fail_call(1, SIM_FOREVER);
    sim_explore_ignore(false);
    sim_thread_start(0, start_in_vain, NULL);
    sim_thread_start(1, use, NULL);
    if (!sim_run_threads()) went_wrong("a thread waits for ever");
    sim_fail_call(0, 0);
    return end_life();
}

static void a_start_that_is_refused_was_nobodys(void **state) {
    (void)state;
    explore(run_refused, NULL, 10);
}

/* ------------------------------------------------------------------ fork */

struct fork_scene {
    bool stops, child; /* else it is started; else the parent is looked at */
};
static const struct frames_reclaim_config plain = {.high_frames = 1};

static void change(void *argument) {
    const struct fork_scene *scene = argument;
    if ((scene->stops ? frames_reclaim_stop(zone) : frames_reclaim_start(zone, &plain)) != FRAMES_OK) went_wrong("not begun, or not ended");
}

/* All blocks are listed, where any is. */
static void look_in_child(void) {
    uint64_t gone;
    if (wrong == NULL) wrong = frames_reclaim_check(zone);
    if (!frames_reclaim_is_started(zone)) return;
    if (frames_reclaim(zone, BLOCKS, 0, &gone) != FRAMES_OK || gone != BLOCKS) went_wrong("a block is nobody's to drop in the child");
}

static void fork_beside(void *argument) {
    const struct fork_scene *scene = argument;
    frames_fork_settle(zone);
    frames_fork_prepare(zone);
    if (scene->child) {
        sim_fork_child();
        frames_fork_child(zone);
        look_in_child();
    } else {
        sim_yield(); /* others go on as long as the call takes */
        frames_fork_parent(zone);
    }
}

static const char *run_fork(void *context) {
    struct fork_scene *scene = context;
    begin_life();
    if (scene->stops && frames_reclaim_start(zone, &plain) != FRAMES_OK) went_wrong("no reclaim");
    sim_explore_ignore(false);
    sim_thread_start(0, change, scene);
    sim_thread_start(1, fork_beside, scene);
    if (!sim_run_threads()) went_wrong("a thread waits for ever");
    return end_life();
}

static void a_fork_finds_it_begun_or_not(void **state) {
    static struct fork_scene scenes[] = {{false, false}, {false, true}, {true, false}, {true, true}};
    (void)state;
    for (unsigned i = 0; i < ARRAY_LENGTH(scenes); i++) explore(run_fork, &scenes[i], 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_that_is_refused_was_nobodys),
        cmocka_unit_test(a_fork_finds_it_begun_or_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
