/*
 * test_interleave_capture.c - a capture against allocations, frees, pins, a pass of compaction and a second capture, and readers and writers of
 * blocks that move, in every order that few switches allow. What a capture wants goes to nobody who comes later, and to nobody twice; who looks at a
 * block by the rules sees its contents.
 */
#include "page/frames_internal.h"
#include "unit/page/frames_compact_support.h"
#include "unit/sparse.h"

enum { FRAMES_EACH = 32 /* of 64 KiB */, SUPERPAGES = 3, TAKEN_MAX = 16 };

struct scene {
    void (*bodies[3])(void *);
    unsigned deviations;
    uint64_t runs_min;
    unsigned flags; /* of captures */
};

/* What intruders have: frames that are theirs until the end of the run. */
static uint64_t taken[TAKEN_MAX];
static unsigned taken_count, captures_done, given_up;
static struct range {
    uint64_t first; /* FRAMES_NONE: not wanted yet */
    bool done;
} ranges[2];
static unsigned writers[BLOCKS_MAX]; /* at a time, of a block */
static uint64_t written[BLOCKS_MAX];
static const struct scene *scene_now;
static uint64_t races_lost;   /* in all runs */
static bool seen, moves_seen; /* what the scene is about, in some run */

static void went_wrong(const char *text) {
    if (wrong == NULL) wrong = text;
}
static bool is_wanted(uint64_t frame) {
    for (unsigned i = 0; i < 2; i++)
        if (ranges[i].first != FRAMES_NONE && frame >= ranges[i].first && frame < ranges[i].first + FRAMES_EACH) return true;
    return false;
}

/* ------------------------------------------------------------------ who captures */

static void expect_alone(uint64_t first) {
    for (unsigned i = 0; i < taken_count; i++)
        if (taken[i] >= first && taken[i] < first + FRAMES_EACH) went_wrong("a captured frame is somebody else's, too");
    for (uint64_t i = 0; i < owned_count; i++)
        if (owned[i].live && owned[i].frame >= first && owned[i].frame < first + FRAMES_EACH) went_wrong("a captured frame is a block's still");
}

/* Step by step, as a program does that has other things to do. */
static void capture_as(unsigned number) {
    struct range *range = &ranges[number];
    const struct frames_capture_request request = {.frames = FRAMES_EACH, .mobility = FRAMES_UNMOVABLE, .flags = scene_now->flags};
    struct frames_capture *capture;
    uint64_t first, left, frame;
    enum frames_status status = frames_capture_begin(zone, &request, &capture);
    if (status == FRAMES_NO_FRAMES) return; /* the other one wants all that there is */
    if (status != FRAMES_OK) {
        went_wrong("no capture");
        return;
    }
    (void)frames_capture_poll(capture, &first, &left);
    range->first = first;
    for (unsigned tries = 0; tries < 4; tries++) {
        uint64_t before = left;
        (void)frames_capture_push(capture, 2);
        status = frames_capture_poll(capture, NULL, &left);
        if (left > before) went_wrong("a frame that was held is held no more");
        if (frames_capture_end(capture, &frame) == FRAMES_OK) {
            if (frame != first) went_wrong("another range was captured");
            range->done = true;
            captures_done++;
            expect_alone(frame);
            return;
        }
        if (status == FRAMES_OK) went_wrong("all was held, and can't be had");
        sim_yield();
    }
    range->first = FRAMES_NONE; /* before anybody can be given one of them */
    frames_capture_give_up(capture);
    given_up++;
}
static void capture(void *unused) {
    (void)unused;
    capture_as(0);
}
static void capture_another(void *unused) {
    (void)unused;
    capture_as(1);
}
static void capture_all_in_one(void *unused) {
    (void)unused;
    const struct frames_capture_request request = {.frames = FRAMES_EACH, .mobility = FRAMES_UNMOVABLE, .flags = scene_now->flags};
    uint64_t frame;
    if (frames_capture_run(zone, &request, &frame) != FRAMES_OK) return;
    expect_alone(frame);
    ranges[0] = (struct range){.first = frame, .done = true};
    captures_done++;
}

/* ------------------------------------------------------------------ who comes in between */

static void take(enum frames_mobility mobility) {
    const struct frames_request request = {.frames = 1, .mobility = mobility, .flags = FRAMES_NO_EFFORT};
    struct range before[2] = {ranges[0], ranges[1]};
    uint64_t frame;
    if (taken_count == TAKEN_MAX || frames_alloc(zone, &request, &frame) != FRAMES_OK) return;
    /* Wanted all the time from before the call on. */
    for (unsigned i = 0; i < 2; i++)
        if (before[i].first != FRAMES_NONE && before[i].first == ranges[i].first && is_wanted(frame) && frame >= before[i].first &&
            frame < before[i].first + FRAMES_EACH)
            went_wrong("a frame that a capture wants is given to somebody who came later");
    for (unsigned i = 0; i < 2; i++)
        if (ranges[i].done && frame >= ranges[i].first && frame < ranges[i].first + FRAMES_EACH) went_wrong("a frame was captured, and given away");
    taken[taken_count++] = frame;
}
static void intrude(void *unused) {
    (void)unused;
    take(FRAMES_UNMOVABLE);
    take(FRAMES_MOVABLE);
    take(FRAMES_RECLAIMABLE);
}

/* Figure 11: who frees a frame of a range that is wanted wants one himself. By a mark that keeps the owner from moving it away under its number. */
static void free_and_take(void *unused) {
    (void)unused;
    for (unsigned i = 0; i < 2; i++) {
        for (uint64_t token = 0; token < owned_count; token++) {
            uint64_t at;
            if (!owned[token].live || !is_wanted(owned[token].frame)) continue;
            writers[token]++;
            owned[token].live = false;
            if (frames_free(zone, owned[token].frame, 1, &at) != FRAMES_OK) went_wrong("a block can't be freed");
            writers[token]--;
            seen = true;
            break;
        }
        take(i == 0 ? FRAMES_UNMOVABLE : FRAMES_MOVABLE);
    }
}
static void pin(void *unused) {
    (void)unused;
    for (uint64_t token = 0; token < owned_count; token++) {
        uint64_t frame = owned[token].frame, at;
        if (!owned[token].live || !is_wanted(frame) || frames_pin(zone, frame, 1, &at) != FRAMES_OK) continue;
        bool mine = owned[token].frame == frame;
        owned[token].pinned = mine;
        sim_yield();
        if (mine && owned[token].frame != frame) went_wrong("a pinned block has moved");
        if (mine && ranges[0].done) went_wrong("a range was captured, and a frame of it is pinned");
        owned[token].pinned = false;
        if (frames_unpin(zone, frame, 1, &at) != FRAMES_OK) went_wrong("a pin is lost");
        seen |= mine;
        return;
    }
}
static void compact(void *unused) {
    (void)unused;
    const struct frames_compact_goal goal = {.order = 9};
    while (frames_compact(zone, &goal, NULL, NULL) == FRAMES_COMPACT_OTHER) new_pass();
}

/*
 * What the child of a fork would find at this moment: the thread that captures is none of it, so each block says whose it is, or that it is isolated
 * and nobody's. Ranges that were captured are unmovable.
 */
static void fork_and_look(void *unused) {
    (void)unused;
    frames_fork_prepare(zone);
    for (uint64_t frame = 0; frame < SUPERPAGES * FRAMES_EACH; frame++) {
        const struct frames_superpage *superpage = frames_superpage_of(zone, frame);
        uint32_t note = zone->notes[frame];
        if (!frames_bit(superpage->heads, frames_offset_of(zone, frame)) || note_mobility(note) != FRAMES_MOVABLE) continue;
        if (note_owner(note) == 0 && (note & NOTE_MOVING) == 0) went_wrong("a block is nobody's in the child of a fork");
    }
    frames_fork_parent(zone);
}

/* ------------------------------------------------------------------ who looks at blocks that move */

/* The owner's part of the rules: nothing moves that is being written, nor counts as moved where it was written meanwhile. */
static enum frames_answer move_unless_written(struct frame_zone *of, const struct frames_owner *self, uint64_t from, uint64_t to, uint64_t frames,
                                              uint64_t token) {
    (void)self;
    uint64_t before = written[token];
    if (!owned[token].live || writers[token] != 0) return FRAMES_LATER;
    if (owned[token].frame != from) went_wrong("the wrong block is moved");
    if (owned[token].pinned) went_wrong("a pinned block is moved");
    frames_copy(of, from, to, frames);
    sim_yield();
    if (writers[token] != 0 || written[token] != before) return FRAMES_LATER;
    owned[token].frame = to;
    moves_seen = true;
    return FRAMES_YES;
}
/* Looks again where it has moved in between; else what was read was there. */
static void read_it(void *unused) {
    (void)unused;
    uint64_t token = lowest();
    for (unsigned tries = 0; tries < 3; tries++) {
        uint64_t frame = owned[token].frame, least = written[token];
        sim_yield();
        uint64_t word = frames_peek(zone, frame);
        if (owned[token].frame != frame) continue;
        if (word >> 16 != token + 1) went_wrong("a reader saw another block's contents");
        if ((word & 0xffff) < least) went_wrong("a reader saw less than was written before it looked");
        return;
    }
}
static void write_it(void *unused) {
    (void)unused;
    uint64_t token = lowest();
    for (unsigned i = 0; i < 2; i++) {
        writers[token]++;
        uint64_t frame = owned[token].frame;
        if (frames_peek(zone, frame) != word_of(token, written[token])) went_wrong("a write was lost");
        sim_yield();
        frames_poke(zone, frame, word_of(token, written[token] + 1));
        sim_yield();
        if (frames_peek(zone, frame) != word_of(token, written[token] + 1)) went_wrong("somebody else wrote to a block that is being written");
        written[token]++;
        writers[token]--;
        sim_yield();
    }
}

/* ------------------------------------------------------------------ the run */

static const char *run(void *context) {
    const struct scene *scene = scene_now = context;
    const struct frames_config config = {
        .name = "test", .backend = FRAMES_SIM, .bytes = SUPERPAGES * FRAMES_SUPERPAGE_BYTES, .frame_bytes = 64 * KIB, .cpus = 2};
    const struct frames_owner description = {.name = "owner", .migrate = move_unless_written};
    sim_reset(NULL);
    sim_explore_ignore(true);
    wrong = NULL;
    owned_count = taken_count = captures_done = given_up = 0;
    ranges[0] = ranges[1] = (struct range){.first = FRAMES_NONE};
    memset(owned, 0, SUPERPAGES * FRAMES_EACH * sizeof *owned);
    memset(writers, 0, SUPERPAGES * FRAMES_EACH * sizeof *writers);
    memset(written, 0, SUPERPAGES * FRAMES_EACH * sizeof *written);
    if (frames_zone_create(&config, &zone) != FRAMES_OK || frames_owner_add(zone, &description, &owner) != FRAMES_OK) return "no zone";
    while (own(1)) continue;
    /* Two blocks are left in the lowest superpage; in the others a few frames are free. */
    uint64_t left[SUPERPAGES] = {0};
    for (uint64_t i = 0; i < owned_count; i++) {
        uint64_t superpage = owned[i].frame / FRAMES_EACH;
        if (superpage == 0 ? left[0]++ >= 2 : left[superpage]++ < 5) disown(i);
    }
    sim_explore_ignore(false);
    for (unsigned i = 0; i < ARRAY_LENGTH(scene->bodies) && scene->bodies[i] != NULL; i++) sim_thread_start(i % 2, scene->bodies[i], NULL);
    if (!sim_run_threads()) went_wrong("a thread waits for ever");
    sim_explore_ignore(true);
    struct frames_stats stats = stats_now();
    uint64_t at;
    for (unsigned i = 0; i < 2; i++)
        if (ranges[i].done && frames_free(zone, ranges[i].first, FRAMES_EACH, &at) != FRAMES_OK) went_wrong("a captured run is lost");
    for (unsigned i = 0; i < taken_count; i++)
        if (frames_free(zone, taken[i], 1, &at) != FRAMES_OK) went_wrong("a frame is lost");
    races_lost += stats.races_lost;
    if (stats.races_lost != 0 && (scene->flags & FRAMES_CAPTURE_NO_HOLD) == 0) went_wrong("a race was lost");
    if (stats.captured != 0 || stats.captures != 0 || stats.moving != 0) went_wrong("something is held still");
    if (stats_now().used[FRAMES_MOVABLE] != live_frames()) went_wrong("frames were lost, or are used twice");
    if (stats_now().free + live_frames() != SUPERPAGES * FRAMES_EACH) went_wrong("frames were lost");
    for (uint64_t i = 0; i < owned_count; i++)
        if (owned[i].live && frames_peek(zone, owned[i].frame) != word_of(i, written[i])) went_wrong("contents were lost");
    if (wrong == NULL) wrong = frames_zone_check(zone);
    seen |= captures_done != 0 && scene->bodies[1] != free_and_take && scene->bodies[1] != pin;
    if (frames_zone_destroy(zone) != FRAMES_OK) went_wrong("the zone can't be destroyed");
    return wrong;
}

static void explore(struct scene scene) {
    struct sim_exploration exploration = {.scenario = run, .context = &scene, .deviations = sparse_deviations(scene.deviations)};
    seen = moves_seen = false;
    races_lost = 0;
    if (!sim_explore(&exploration)) fail_msg("%s", exploration.failure);
    if (exploration.runs < sparse_runs(scene.runs_min)) fail_msg("%llu runs only", (unsigned long long)exploration.runs);
    assert_true(scene.bodies[0] == compact ? moves_seen : seen);
}

static void a_capture_against_allocations(void **state) {
    (void)state;
    explore((struct scene){.bodies = {capture, intrude}, .deviations = 2, .runs_min = 500});
}
static void a_capture_against_who_frees_and_allocates(void **state) {
    (void)state;
    explore((struct scene){.bodies = {capture, free_and_take}, .deviations = 2, .runs_min = 500});
}
static void a_capture_against_pins(void **state) {
    (void)state;
    explore((struct scene){.bodies = {capture, pin}, .deviations = 2, .runs_min = 200});
}
static void a_capture_against_a_pass_and_allocations(void **state) {
    (void)state;
    explore((struct scene){.bodies = {capture, compact, intrude}, .deviations = 1, .runs_min = 100});
}
static void a_capture_against_a_fork(void **state) {
    (void)state;
    explore((struct scene){.bodies = {capture, fork_and_look}, .deviations = 2, .runs_min = 200});
}
static void two_captures(void **state) {
    (void)state;
    explore((struct scene){.bodies = {capture, capture_another}, .deviations = 2, .runs_min = 500});
}
static void a_capture_in_one_call_against_allocations(void **state) {
    (void)state;
    explore((struct scene){.bodies = {capture_all_in_one, intrude}, .deviations = 2, .runs_min = 300});
    assert_int_equal(races_lost, 0);
}
/* Figure 11's other half: the exploration finds the races that there are. */
static void without_holding_races_are_lost(void **state) {
    (void)state;
    explore((struct scene){.bodies = {capture_all_in_one, intrude}, .deviations = 2, .runs_min = 300, .flags = FRAMES_CAPTURE_NO_HOLD});
    assert_true(races_lost > 0);
}
static void a_pass_against_a_reader(void **state) {
    (void)state;
    explore((struct scene){.bodies = {compact, read_it}, .deviations = 2, .runs_min = 100});
}
static void a_pass_against_a_writer(void **state) {
    (void)state;
    explore((struct scene){.bodies = {compact, write_it}, .deviations = 2, .runs_min = 500});
}
static void a_pass_against_a_writer_and_a_reader(void **state) {
    (void)state;
    explore((struct scene){.bodies = {compact, write_it, read_it}, .deviations = 1, .runs_min = 100});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_capture_against_allocations),
        cmocka_unit_test(a_capture_against_who_frees_and_allocates),
        cmocka_unit_test(a_capture_against_pins),
        cmocka_unit_test(a_capture_against_a_pass_and_allocations),
        cmocka_unit_test(a_capture_against_a_fork),
        cmocka_unit_test(two_captures),
        cmocka_unit_test(a_capture_in_one_call_against_allocations),
        cmocka_unit_test(without_holding_races_are_lost),
        cmocka_unit_test(a_pass_against_a_reader),
        cmocka_unit_test(a_pass_against_a_writer),
        cmocka_unit_test(a_pass_against_a_writer_and_a_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
