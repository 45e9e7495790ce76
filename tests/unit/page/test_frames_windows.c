/*
 * test_frames_windows.c - which blocks in windows move: those of which windows show every frame, or that have an owner who is told, and only where
 * the system holds back its own writes, too. The others stay where they are, and are passed over by captures and compaction.
 */
#include "unit/page/frames_compact_support.h"

enum { FRAME = 64 << 10, FRAMES_EACH = 32, BLOCK = 4 };

static char *window;
static uint64_t block;

/* In the lowest of three superpages a block of four frames without an owner, `shown` of them in a window, from `first` on. The highest has room. */
static void begin(unsigned features, uint64_t first, uint64_t shown) {
    const struct frames_config config = {
        .name = "test", .backend = FRAMES_MEMFD, .bytes = 3 * FRAMES_SUPERPAGE_BYTES, .frame_bytes = FRAME, .cpus = 1};
    struct frames_request request = {.frames = FRAMES_EACH, .mobility = FRAMES_MOVABLE};
    uint64_t others[2], at;
    void *address;
    sim_reset(NULL);
    sim_shared_offer(true);
    sim_faults_offer(features);
    assert_int_equal(frames_zone_create(&config, &zone), FRAMES_OK);
    frames_set_effort(zone, 0);
    for (unsigned i = 0; i < 2; i++) assert_int_equal(frames_alloc(zone, &request, &others[i]), FRAMES_OK);
    request.frames = BLOCK;
    assert_int_equal(frames_alloc(zone, &request, &block), FRAMES_OK);
    assert_true(block < FRAMES_EACH && others[0] >= 2 * FRAMES_EACH);
    assert_int_equal(frames_free(zone, others[0] + 1, FRAMES_EACH - 1, &at), FRAMES_OK); /* where a pass would move it to */
    assert_int_equal(frames_free(zone, others[1], FRAMES_EACH, &at), FRAMES_OK);
    for (uint64_t i = 0; i < BLOCK; i++) frames_poke(zone, block + i, 100 + i);
    assert_int_equal(frames_window_open(zone, BLOCK * FRAME, &address), FRAMES_OK);
    window = address;
    for (uint64_t i = first; i < first + shown; i++) assert_int_equal(frames_map(zone, block + i, 1, window + i * FRAME), FRAMES_OK);
}

static void end(uint64_t first, uint64_t shown) {
    assert_int_equal(frames_unmap(zone, window + first * FRAME, shown * FRAME), FRAMES_OK);
    assert_null(frames_zone_check(zone));
    assert_int_equal(frames_zone_destroy(zone), FRAMES_OK);
}

static enum frames_status capture_lowest(unsigned flags) {
    const struct frames_capture_request request = {.frames = FRAMES_EACH, .mobility = FRAMES_UNMOVABLE, .flags = flags};
    uint64_t frame, at;
    enum frames_status status = frames_capture_run(zone, &request, &frame);
    if (status == FRAMES_OK) assert_int_equal(frames_free(zone, frame, FRAMES_EACH, &at), FRAMES_OK);
    return status;
}

/* The numbers that the program has are still those of its contents. */
static void check_in_place(uint64_t first, uint64_t shown) {
    for (uint64_t i = 0; i < BLOCK; i++) assert_int_equal(frames_peek(zone, block + i), 100 + i);
    for (uint64_t i = first, at; i < first + shown; i++) assert_true(frames_at(zone, window + i * FRAME, false, &at) == FRAMES_OK && at == block + i);
    struct frames_stats stats = stats_now();
    assert_true(stats.used[FRAMES_MOVABLE] == BLOCK + 1 && stats.moving == 0 && stats.captured == 0);
}

#define ALL_FEATURES (PLATFORM_FAULTS_PROTECT | PLATFORM_FAULTS_IN_KERNEL)

/* Nor is any frame freed of a run of which a page shows one. */
static void what_is_shown_is_not_freed(void **state) {
    (void)state;
    uint64_t at = 0;
    begin(ALL_FEATURES, 1, 2);
    assert_true(frames_free(zone, block, BLOCK, &at) == FRAMES_MAPPED && at == block + 1);
    assert_true(frames_free(zone, block + 2, 2, &at) == FRAMES_MAPPED && at == block + 2);
    check_in_place(1, 2);
    assert_int_equal(frames_unmap(zone, window + FRAME, FRAME), FRAMES_OK);
    assert_true(frames_free(zone, block, BLOCK, &at) == FRAMES_MAPPED && at == block + 2);
    assert_int_equal(frames_free(zone, block, 2, &at), FRAMES_OK);
    assert_int_equal(frames_free(zone, block + 3, 1, &at), FRAMES_OK);
    end(2, 1);
}

static void what_is_shown_in_part_stays(void **state) {
    static const struct {
        uint64_t first, shown;
    } parts[] = {{0, 1}, {1, 2}, {0, BLOCK - 1}, {1, BLOCK - 1}};
    (void)state;
    for (unsigned i = 0; i < ARRAY_LENGTH(parts); i++) {
        const struct frames_compact_goal goal = {.order = 5};
        struct frames_compact_counts counts = {0};
        begin(ALL_FEATURES, parts[i].first, parts[i].shown);
        assert_int_equal(capture_lowest(FRAMES_CAPTURE_AT), FRAMES_NO_FRAMES);
        check_in_place(parts[i].first, parts[i].shown);
        assert_int_equal(capture_lowest(0), FRAMES_OK); /* elsewhere */
        const struct frames_request middle = {.frames = FRAMES_EACH, .mobility = FRAMES_UNMOVABLE};
        const struct frames_capture_request any = {.frames = FRAMES_EACH, .mobility = FRAMES_UNMOVABLE};
        struct frames_capture *capture;
        uint64_t frame, at;
        assert_int_equal(frames_alloc(zone, &middle, &frame), FRAMES_OK);
        assert_int_equal(frames_capture_begin(zone, &any, &capture), FRAMES_NO_FRAMES); /* its range is not so much as tried */
        assert_int_equal(frames_free(zone, frame, FRAMES_EACH, &at), FRAMES_OK);
        (void)frames_compact(zone, &goal, &counts, NULL);
        assert_true(counts.moved == 0 && counts.failed_unmovable != 0);
        check_in_place(parts[i].first, parts[i].shown);
        end(parts[i].first, parts[i].shown);
    }
}

static void what_is_shown_as_a_whole_moves(void **state) {
    (void)state;
    begin(ALL_FEATURES, 0, BLOCK);
    assert_int_equal(capture_lowest(FRAMES_CAPTURE_AT), FRAMES_OK);
    for (uint64_t i = 0, frame; i < BLOCK; i++) {
        assert_int_equal(frames_at(zone, window + i * FRAME, false, &frame), FRAMES_OK);
        assert_true(frame >= FRAMES_EACH && frames_peek(zone, frame) == 100 + i);
    }
    end(0, BLOCK);
}

/* The system would fail a read(2) into a page that is protected, rather than let it wait. */
static void without_the_systems_own_writes_it_stays(void **state) {
    const struct frames_compact_goal goal = {.order = 5};
    struct frames_compact_counts counts = {0};
    (void)state;
    begin(PLATFORM_FAULTS_PROTECT, 0, BLOCK);
    assert_int_equal(capture_lowest(FRAMES_CAPTURE_AT), FRAMES_NO_FRAMES);
    check_in_place(0, BLOCK);
    (void)frames_compact(zone, &goal, &counts, NULL);
    assert_true(counts.moved == 0 && counts.failed_later != 0);
    check_in_place(0, BLOCK);
    assert_int_equal(capture_lowest(0), FRAMES_OK);
    end(0, BLOCK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_shown_is_not_freed),
        cmocka_unit_test(what_is_shown_in_part_stays),
        cmocka_unit_test(what_is_shown_as_a_whole_moves),
        cmocka_unit_test(without_the_systems_own_writes_it_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
