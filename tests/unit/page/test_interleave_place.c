/*
 * test_interleave_place.c - two CPUs that take and give back while more is free than both can have, in every order that few switches allow around
 * locks: neither may be told that there is no room, whatever the other has reserved in between. And one that wants a range out of all slots.
 */
#include "unit/page/frames_support.h"

enum { FRAMES_EACH = 32, ROUNDS = 3 }; /* of 64 KiB */

struct taker {
    uint64_t frames;
    enum frames_mobility mobility;
};
struct scene {
    uint64_t superpages, runs_min;
    struct taker takers[2];
};

static const char *wrong;

static void take(void *argument) {
    const struct taker *taker = argument;
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t frame = alloc(taker->frames, taker->mobility), at;
        if (frame == FRAMES_NONE)
            wrong = "there was room at any moment";
        else if (frames_free(zone, frame, taker->frames, &at) != FRAMES_OK)
            wrong = "frames are lost";
    }
}

static const char *run(void *context) {
    struct scene *scene = context;
    const struct frames_config config = {
        .name = "test", .backend = FRAMES_SIM, .bytes = scene->superpages * FRAMES_SUPERPAGE_BYTES, .frame_bytes = 64 * KIB, .cpus = 2};
    sim_reset(NULL);
    wrong = NULL;
    if (frames_zone_create(&config, &zone) != FRAMES_OK) return "no zone";
    for (unsigned i = 0; i < 2; i++) sim_thread_start(i, take, &scene->takers[i]);
    if (!sim_run_threads()) wrong = "a thread waits for ever";
    sim_explore_ignore(true);
    if (wrong == NULL) wrong = frames_zone_check(zone);
    if (frames_zone_destroy(zone) != FRAMES_OK) return "the zone can't be destroyed";
    return wrong;
}

static void explore(struct scene scene) {
    struct sim_exploration exploration = {.scenario = run, .context = &scene, .deviations = 3};
    if (!sim_explore(&exploration)) fail_msg("%s", exploration.failure);
    if (exploration.runs < scene.runs_min) fail_msg("%llu runs only", (unsigned long long)exploration.runs);
}

static void small_runs_of_one_group(void **state) {
    (void)state;
    explore((struct scene){.superpages = 1, .runs_min = 1000, .takers = {{1, FRAMES_MOVABLE}, {16, FRAMES_MOVABLE}}});
}
static void small_runs_of_two_groups(void **state) {
    (void)state;
    explore((struct scene){.superpages = 1, .runs_min = 1000, .takers = {{1, FRAMES_UNMOVABLE}, {3, FRAMES_MOVABLE}}});
}
static void whole_superpages(void **state) {
    (void)state;
    explore((struct scene){.superpages = 2, .runs_min = 1000, .takers = {{FRAMES_EACH, FRAMES_UNMOVABLE}, {FRAMES_EACH, FRAMES_MOVABLE}}});
}
/* At the lower end and at the upper one, so that they don't part what the other wants. */
static void runs_of_superpages(void **state) {
    (void)state;
    explore((struct scene){.superpages = 3, .runs_min = 1000, .takers = {{2 * FRAMES_EACH, FRAMES_UNMOVABLE}, {1, FRAMES_MOVABLE}}});
}

/* ------------------------------------------------------------------ a range, out of slots */

enum { ALLOCATORS = 3, ALLOCATOR_ROUNDS = 64 };
static bool ranged;
static unsigned allocating;

static void have_range(void *unused) {
    (void)unused;
    frames_lock_range(zone, 0, zone->superpage_count - 1);
    ranged = true;
    platform_lock_release(&zone->lock);
}
static void allocate_meanwhile(void *unused) {
    (void)unused;
    for (unsigned round = 0; round < ALLOCATOR_ROUNDS && !ranged; round++)
        for (unsigned mobility = 0; mobility < FRAMES_MOBILITIES; mobility++) release(alloc(1, mobility), 1);
    if (--allocating == 0 && !ranged) wrong = "a range is not had as long as other CPUs allocate";
}

/* Each of their allocations may reserve again what was just had back of a slot, so that there is always one in the range. */
static void a_range_is_had_while_other_cpus_allocate(void **state) {
    const struct frames_config config = {
        .name = "test", .backend = FRAMES_SIM, .bytes = 16 * FRAMES_SUPERPAGE_BYTES, .frame_bytes = 4096, .cpus = ALLOCATORS + 1};
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        sim_reset(&(struct sim_config){.cpus = ALLOCATORS + 1});
        assert_int_equal(frames_zone_create(&config, &zone), FRAMES_OK);
        wrong = NULL;
        ranged = false;
        allocating = ALLOCATORS;
        sim_preempt_random(seed, 900);
        for (unsigned i = 0; i < ALLOCATORS; i++) sim_thread_start(i, allocate_meanwhile, NULL);
        sim_thread_start(ALLOCATORS, have_range, NULL);
        assert_true(sim_run_threads());
        sim_preempt_random(0, 0);
        if (wrong != NULL) fail_msg("seed %llu: %s", (unsigned long long)seed, wrong);
        close_zone();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_runs_of_one_group),
        cmocka_unit_test(small_runs_of_two_groups),
        cmocka_unit_test(whole_superpages),
        cmocka_unit_test(runs_of_superpages),
        cmocka_unit_test(a_range_is_had_while_other_cpus_allocate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
