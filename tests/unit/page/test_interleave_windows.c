/*
 * test_interleave_windows.c - blocks without an owner that move behind the pages that show them (protected, copied, switched), against writes, reads,
 * pins, frees, remaps, a capture and a second pass, in every order that few switches allow: around every lock and every call to the system, and where
 * a writer waits in the kernel. No write is lost, a reader sees what was written before it looked, what is pinned stays, nobody waits for ever.
 */
#include "unit/page/frames_compact_support.h"
#include "unit/sparse.h"

enum { FRAMES_EACH = 32 /* of 64 KiB */, SUPERPAGES = 3, FRAME = 64 << 10, PAGES = 4, WINDOW_PAGES = 8, ROOM = 6, PATIENCE = 4 };

struct scene {
    void (*bodies[3])(void *);
    unsigned deviations;
    uint64_t runs_min;
    uint64_t fails;  /* of the calls that show pages: the first that fails, as the next does; 0: none */
    bool unenforced; /* writes go on where they must wait */
};

/* What the program keeps on its pages: page i has a word that counts its writes. Pages 2 and 3 show one block, and not side by side. */
static char *window;
static char *pages[PAGES];
static uint64_t written[PAGES];
static uint64_t left; /* page 0's frame, at the start */
static bool moves_seen, seen, left_used;
static uint64_t lost_writes; /* in all runs */

static void went_wrong(const char *text) {
    if (wrong == NULL) wrong = text;
}
static uint64_t word_at(unsigned page) {
    uint64_t word = 0;
    if (!sim_shared_read(pages[page], &word, sizeof word)) went_wrong("a page shows nothing");
    return word;
}
static uint64_t content_of(unsigned page, uint64_t count) { return (uint64_t)(page + 1) << 32 | count; }

/* ------------------------------------------------------------------ what threads do */

static void compact(void *unused) {
    (void)unused;
    const struct frames_compact_goal goal = {.order = 9};
    struct frames_compact_counts counts = {0};
    enum frames_compact_end end;
    while ((end = frames_compact(zone, &goal, &counts, NULL)) == FRAMES_COMPACT_OTHER) continue;
    moves_seen |= counts.moved != 0;
}
static void capture(void *unused) {
    (void)unused;
    const struct frames_capture_request request = {.frames = FRAMES_EACH, .mobility = FRAMES_UNMOVABLE, .flags = FRAMES_CAPTURE_AT};
    uint64_t frame, at;
    if (frames_capture_run(zone, &request, &frame) != FRAMES_OK) return;
    seen = true;
    for (unsigned i = 0; i < PAGES; i++) {
        uint64_t shown;
        if (frames_at(zone, pages[i], false, &shown) == FRAMES_OK && shown >= frame && shown < frame + FRAMES_EACH)
            went_wrong("a captured frame is shown by a page");
    }
    if (frames_free(zone, frame, FRAMES_EACH, &at) != FRAMES_OK) went_wrong("a captured run is lost");
}

/*
 * Somebody gets the frames that pages 0 and 1 showed, as soon as these have moved: nobody else has a say about them. The pass is no part of the
 * scene, so that three switches are few.
 */
static void use_what_was_left(void *unused) {
    const struct frames_request request = {.frames = 2, .mobility = FRAMES_UNMOVABLE, .flags = FRAMES_NO_EFFORT};
    uint64_t frame = FRAMES_NONE, at;
    sim_explore_ignore(true);
    compact(unused);
    enum frames_status status = frames_alloc(zone, &request, &frame);
    sim_explore_ignore(false);
    left_used |= frame == left;
    sim_yield();
    if (status != FRAMES_OK || frames_free(zone, frame, 2, &at) != FRAMES_OK) went_wrong("frames that are nobody else's can't be freed");
}

static void write_page(unsigned page) {
    uint64_t word = content_of(page, written[page] + 1);
    if (word_at(page) != content_of(page, written[page])) lost_writes++;
    if (!sim_shared_write(pages[page], &word, sizeof word)) went_wrong("a page can't be written");
    written[page]++;
    if (word_at(page) != word) lost_writes++;
}
static void write_first(void *unused) {
    (void)unused;
    for (unsigned i = 0; i < 2; i++) write_page(0);
    seen = true;
}
/* Both pages of the block of two. */
static void write_pair(void *unused) {
    (void)unused;
    write_page(2);
    write_page(3);
    seen = true;
}
static void read_first(void *unused) {
    (void)unused;
    for (unsigned i = 0; i < 3; i++) {
        uint64_t least = written[0], word = word_at(0);
        if (word >> 32 != 1) went_wrong("a reader saw another block's contents");
        if ((word & UINT32_MAX) < least) went_wrong("a reader saw less than was written before it looked");
    }
    seen = true;
}

/* As one that hands the frame to a device. */
static bool pin_page(unsigned page, uint64_t *frame) {
    for (unsigned tries = 0; tries < PATIENCE; tries++) {
        if (frames_at(zone, pages[page], true, frame) == FRAMES_OK) return true;
        sim_yield();
    }
    return false;
}
static void pin_first(void *unused) {
    (void)unused;
    uint64_t frame, again, at;
    if (!pin_page(0, &frame)) return;
    uint64_t word = frames_peek(zone, frame); /* as the device writes */
    frames_poke(zone, frame, word + 1);
    written[0]++;
    sim_yield();
    if (frames_at(zone, pages[0], false, &again) != FRAMES_OK || again != frame) went_wrong("a pinned page shows another frame");
    if (word_at(0) != content_of(0, written[0])) lost_writes++;
    if (frames_unpin(zone, frame, 1, &at) != FRAMES_OK) went_wrong("a pin is lost");
    seen = true;
}
static void pin_once(void *unused) {
    (void)unused;
    uint64_t frame, at;
    if (frames_at(zone, pages[0], true, &frame) != FRAMES_OK) return;
    if (frames_unpin(zone, frame, 1, &at) != FRAMES_OK) went_wrong("a pin is lost");
    seen = true;
}
/* The page is no more, and its frame is freed. A pin keeps the number true until nothing can move it. */
static void free_second(void *unused) {
    (void)unused;
    uint64_t frame, at;
    if (!pin_page(1, &frame)) return;
    if (frames_peek(zone, frame) != content_of(1, written[1])) went_wrong("a frame lost its contents");
    if (frames_unmap(zone, pages[1], FRAME) != FRAMES_OK) went_wrong("a page can't be hidden");
    pages[1] = NULL;
    if (frames_unpin(zone, frame, 1, &at) != FRAMES_OK || frames_free(zone, frame, 1, &at) != FRAMES_OK) went_wrong("a frame can't be freed");
    seen = true;
}
/* The same without a pin: where the frame is then is seen by what is in it, as nothing moves what no page shows. */
static void hide_second(void *unused) {
    (void)unused;
    uint64_t at;
    for (unsigned tries = 0; frames_unmap(zone, pages[1], FRAME) != FRAMES_OK; tries++) {
        if (tries == PATIENCE) return;
        sim_yield();
    }
    pages[1] = NULL;
    sim_explore_ignore(true);
    for (uint64_t frame = 0; frame < SUPERPAGES * FRAMES_EACH; frame++) {
        struct frames_info info;
        if (frames_query(zone, frame, &info) != FRAMES_OK || !info.allocated || info.mapped || info.mobility != FRAMES_MOVABLE) continue;
        if (frames_peek(zone, frame) != content_of(1, 0)) continue;
        sim_explore_ignore(false);
        if (info.pinned || frames_free(zone, frame, 1, &at) != FRAMES_OK) went_wrong("a frame can't be freed");
        seen = true;
        return;
    }
    went_wrong("a frame is lost");
}
/* A program that is wrong takes no pin from the one that hides the page. */
static void unpin_by_mistake(void *unused) {
    (void)unused;
    char *page = pages[1];
    for (unsigned tries = 0; tries < 4; tries++) {
        uint64_t frame, at;
        if (page == NULL || frames_at(zone, page, false, &frame) != FRAMES_OK) return;
        if (frames_unpin(zone, frame, 1, &at) == FRAMES_OK) went_wrong("a pin that nobody made is undone");
    }
}
/* The block is shown elsewhere, and written there. */
static void remap_first(void *unused) {
    (void)unused;
    uint64_t frame, at;
    char *other = window + (size_t)(WINDOW_PAGES - 1) * FRAME;
    if (!pin_page(0, &frame)) return;
    if (frames_unmap(zone, pages[0], FRAME) != FRAMES_OK || frames_map(zone, frame, 1, other) != FRAMES_OK) went_wrong("a page can't be shown");
    pages[0] = other;
    if (frames_unpin(zone, frame, 1, &at) != FRAMES_OK) went_wrong("a pin is lost");
    write_page(0);
    seen = true;
}

/* ------------------------------------------------------------------ the run */

static uint64_t allocate(uint64_t frames, uint64_t superpage) {
    const struct frames_request request = {.frames = frames, .mobility = FRAMES_MOVABLE, .flags = FRAMES_NO_EFFORT};
    uint64_t frame = FRAMES_NONE;
    if (frames_alloc(zone, &request, &frame) != FRAMES_OK || frame / FRAMES_EACH != superpage) went_wrong("a block is not where the scene wants it");
    return frame;
}
static void show(unsigned page, uint64_t frame, unsigned at) {
    pages[page] = window + (size_t)at * FRAME;
    if (frames_map(zone, frame, 1, pages[page]) != FRAMES_OK) went_wrong("no page");
    written[page] = 0;
    frames_poke(zone, frame, content_of(page, 0));
}

/* Two blocks of one frame in the lowest superpage and one of two in the middle, each seen through pages; in the highest there is room for all. */
static void prepare(const struct scene *scene) {
    const struct frames_config config = {
        .name = "test", .backend = FRAMES_MEMFD, .bytes = SUPERPAGES * FRAMES_SUPERPAGE_BYTES, .frame_bytes = FRAME, .cpus = 2};
    uint64_t high[FRAMES_EACH], middle[FRAMES_EACH], at;
    void *address;
    sim_shared_offer(!scene->unenforced);
    sim_faults_offer(PLATFORM_FAULTS_PROTECT | PLATFORM_FAULTS_IN_KERNEL);
    if (frames_zone_create(&config, &zone) != FRAMES_OK) fatal("test: no zone");
    if (frames_window_open(zone, (size_t)WINDOW_PAGES * FRAME, &address) != FRAMES_OK) fatal("test: no window");
    window = address;
    frames_set_effort(zone, 0);
    for (unsigned i = 0; i < FRAMES_EACH; i++) high[i] = allocate(1, 2);
    uint64_t pair = allocate(2, 1);
    for (unsigned i = 2; i < FRAMES_EACH; i++) middle[i] = allocate(1, 1);
    for (unsigned i = 0; i < 2; i++) show(i, allocate(1, 0), i);
    (void)frames_at(zone, pages[0], false, &left);
    show(2, pair, 2);
    show(3, pair + 1, 4);
    for (unsigned i = 2; i < FRAMES_EACH; i++) (void)frames_free(zone, middle[i], 1, &at);
    for (unsigned i = FRAMES_EACH - ROOM; i < FRAMES_EACH; i++) (void)frames_free(zone, high[i], 1, &at);
}

static const char *run(void *context) {
    const struct scene *scene = context;
    sim_reset(NULL);
    sim_explore_ignore(true);
    wrong = NULL;
    prepare(scene);
    sim_fail_only(UINT64_C(1) << SIM_SHARED_SHOW);
    sim_fail_call(scene->fails, 2);
    sim_explore_ignore(false);
    for (unsigned i = 0; i < ARRAY_LENGTH(scene->bodies) && scene->bodies[i] != NULL; i++) sim_thread_start(i % 2, scene->bodies[i], NULL);
    if (!sim_run_threads()) went_wrong("a thread waits for ever");
    sim_explore_ignore(true);
    sim_fail_call(0, 0);
    unsigned shown = 0;
    for (unsigned i = 0; i < PAGES; i++) {
        uint64_t frame;
        if (pages[i] == NULL) continue;
        shown++;
        if (frames_at(zone, pages[i], false, &frame) != FRAMES_OK)
            went_wrong("a page shows nothing");
        else if (frames_peek(zone, frame) != word_at(i))
            went_wrong("a page shows another frame than the zone says");
        if (word_at(i) != content_of(i, written[i])) lost_writes++;
        if (sim_fault_protected(pages[i]) || sim_fault_registered(pages[i])) went_wrong("a page is protected still");
    }
    struct frames_stats stats = stats_now();
    if (stats.mapped != shown || stats.pinned != 0 || stats.moving != 0 || stats.captured != 0) went_wrong("something is held, or mapped, still");
    if (stats.used[FRAMES_MOVABLE] != shown + FRAMES_EACH - ROOM) went_wrong("frames were lost, or are used twice");
    if (lost_writes != 0 && !scene->unenforced) went_wrong("a write was lost");
    if (wrong == NULL) wrong = frames_zone_check(zone);
    for (unsigned i = 0; i < PAGES; i++)
        if (pages[i] != NULL && frames_unmap(zone, pages[i], FRAME) != FRAMES_OK) went_wrong("a page can't be hidden");
    if (frames_window_close(zone, window) != FRAMES_OK || frames_zone_destroy(zone) != FRAMES_OK) went_wrong("the zone can't be destroyed");
    return wrong;
}

static void explore(struct scene scene) {
    struct sim_exploration exploration = {.scenario = run, .context = &scene, .deviations = sparse_deviations(scene.deviations)};
    moves_seen = seen = left_used = false;
    lost_writes = 0;
    if (!sim_explore(&exploration)) fail_msg("%s", exploration.failure);
    if (exploration.runs < sparse_runs(scene.runs_min)) fail_msg("%llu runs only", (unsigned long long)exploration.runs);
    assert_true(moves_seen && (seen || scene.bodies[1] == compact));
}

static void a_pass_against_a_writer(void **state) {
    (void)state;
    explore((struct scene){.bodies = {compact, write_first}, .deviations = 2, .runs_min = 500});
}
static void a_pass_against_a_writer_of_two_pages(void **state) {
    (void)state;
    explore((struct scene){.bodies = {compact, write_pair}, .deviations = 2, .runs_min = 500});
}
static void a_pass_against_a_reader_and_a_writer(void **state) {
    (void)state;
    explore((struct scene){.bodies = {compact, read_first, write_first}, .deviations = 1, .runs_min = 100});
}
static void a_pass_against_a_pin(void **state) {
    (void)state;
    explore((struct scene){.bodies = {compact, pin_first}, .deviations = 2, .runs_min = 500});
}
static void a_pass_against_a_free(void **state) {
    (void)state;
    explore((struct scene){.bodies = {compact, free_second}, .deviations = 2, .runs_min = 500});
}
static void who_hides_a_page_against_who_unpins_it(void **state) {
    (void)state;
    explore((struct scene){.bodies = {compact, hide_second, unpin_by_mistake}, .deviations = 2, .runs_min = 500});
}
static void a_pin_against_who_gets_the_frame_that_was_left(void **state) {
    (void)state;
    explore((struct scene){.bodies = {pin_once, use_what_was_left}, .deviations = 3, .runs_min = 50});
    assert_true(left_used);
}
static void who_hides_a_page_against_who_gets_the_frame_that_was_left(void **state) {
    (void)state;
    explore((struct scene){.bodies = {hide_second, use_what_was_left}, .deviations = 3, .runs_min = 100});
    assert_true(left_used);
}
static void a_pass_against_who_shows_the_block_elsewhere(void **state) {
    (void)state;
    explore((struct scene){.bodies = {compact, remap_first}, .deviations = 2, .runs_min = 500});
}
static void a_pass_against_a_pass_and_a_writer(void **state) {
    (void)state;
    explore((struct scene){.bodies = {compact, compact, write_first}, .deviations = 1, .runs_min = 100});
}
static void a_pass_against_a_capture_and_a_writer(void **state) {
    (void)state;
    explore((struct scene){.bodies = {compact, capture, write_first}, .deviations = 1, .runs_min = 100});
}
/* The first frame that should be shown in a page can't be, nor at the second try: the block stays, and writes go on. */
static void moves_that_are_given_up_against_a_writer(void **state) {
    (void)state;
    explore((struct scene){.bodies = {compact, write_first}, .deviations = 2, .runs_min = 500, .fails = 2});
}
/* The exploration finds what the protection is for. */
static void without_protection_writes_are_lost(void **state) {
    (void)state;
    explore((struct scene){.bodies = {compact, write_first}, .deviations = 2, .runs_min = 500, .unenforced = true});
    assert_true(lost_writes != 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pass_against_a_writer),
        cmocka_unit_test(a_pass_against_a_writer_of_two_pages),
        cmocka_unit_test(a_pass_against_a_reader_and_a_writer),
        cmocka_unit_test(a_pass_against_a_pin),
        cmocka_unit_test(a_pass_against_a_free),
        cmocka_unit_test(who_hides_a_page_against_who_unpins_it),
        cmocka_unit_test(a_pin_against_who_gets_the_frame_that_was_left),
        cmocka_unit_test(who_hides_a_page_against_who_gets_the_frame_that_was_left),
        cmocka_unit_test(a_pass_against_who_shows_the_block_elsewhere),
        cmocka_unit_test(a_pass_against_a_pass_and_a_writer),
        cmocka_unit_test(a_pass_against_a_capture_and_a_writer),
        cmocka_unit_test(moves_that_are_given_up_against_a_writer),
        cmocka_unit_test(without_protection_writes_are_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
