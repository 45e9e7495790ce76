/*
 * linked_zone_misuse.c - commits one misuse of zones or handles: linked_zone_misuse CASE. The suite knows what strata answers.
 *
 * It prints the number that is misused, then the status and what strata_zone_explain says of it. After that nothing may be lost: the figures are what
 * they were, contents too, and the zone serves a superpage and is destroyed: "unharmed".
 */
#include "stress/support.h"

#include <strata/handle.h>
#include <strata/zone_compact.h>
#include <strata/zone_reclaim.h>

enum { FRAME = 4096, SUPERPAGES = 6, SUPERPAGE_FRAMES = 512, FRAMES = SUPERPAGES * SUPERPAGE_FRAMES, USED = 8, OTHERS = 16 };

static struct strata_zone *zone, *other;
static struct strata_handles *handles;
static strata_handle held;       /* a block of two frames */
static uint64_t used, unmovable; /* USED movable frames; one unmovable */
static char *window;             /* of 2 * USED pages: the first USED show `used` */
static struct strata_zone_stats before;

static struct strata_zone *create(enum strata_zone_backend backend, uint64_t superpages) {
    const struct strata_zone_config config = {
        .name = "faults", .backend = backend, .bytes = superpages * STRATA_ZONE_SUPERPAGE_BYTES, .frame_bytes = FRAME, .cpus = 1};
    struct strata_zone *made;
    REQUIRE(strata_zone_create(&config, &made) == STRATA_ZONE_OK);
    return made;
}

static void tell_number(uint64_t number) {
    char line[32];
    int length = snprintf(line, sizeof line, "%llu\n", (unsigned long long)number);
    REQUIRE(write(STDOUT_FILENO, line, (size_t)length) == length);
}
static void tell(const char *status) {
    char said[256], line[512];
    (void)strata_zone_explain(zone, said, sizeof said);
    int length = snprintf(line, sizeof line, "%s | %s\n", status, said);
    REQUIRE(write(STDOUT_FILENO, line, (size_t)length) == length);
}

static void fill(uint64_t frame, uint64_t frames) {
    for (uint64_t i = 0; i < frames; i++) memset(strata_zone_address(zone, frame + i), (int)(1 + (frame + i) % 255), FRAME);
}
static void expect_filled(uint64_t frame, uint64_t frames) {
    for (uint64_t i = 0; i < frames; i++) {
        const unsigned char *bytes = strata_zone_address(zone, frame + i);
        REQUIRE(bytes[0] == 1 + (frame + i) % 255 && memcmp(bytes, bytes + 1, FRAME - 1) == 0);
    }
}

static void begin(void) {
    zone = create(STRATA_ZONE_MEMFD, SUPERPAGES);
    REQUIRE(strata_zone_alloc(zone, USED, STRATA_ZONE_MOVABLE, &used) == STRATA_ZONE_OK);
    REQUIRE(strata_zone_alloc(zone, 1, STRATA_ZONE_UNMOVABLE, &unmovable) == STRATA_ZONE_OK);
    fill(used, USED);
    fill(unmovable, 1);
    void *address;
    REQUIRE(strata_zone_window_open(zone, (size_t)2 * USED * FRAME, &address) == STRATA_ZONE_OK);
    window = address;
    REQUIRE(strata_zone_map(zone, used, USED, window) == STRATA_ZONE_OK);
    REQUIRE(strata_handles_create(zone, 0, &handles) == STRATA_HANDLE_OK);
    REQUIRE(strata_handle_alloc(handles, (size_t)2 * FRAME, &held) == STRATA_HANDLE_OK);
    REQUIRE(strata_zone_stats_get(zone, &before) == STRATA_ZONE_OK);
}

/* Nothing of what was there is lost, and nothing is held that nobody has. */
static void end(void) {
    struct strata_zone_stats after;
    uint64_t whole;
    REQUIRE(strata_zone_check(zone) == NULL && strata_handles_check(handles) == NULL);
    REQUIRE(strata_zone_stats_get(zone, &after) == STRATA_ZONE_OK);
    REQUIRE(after.free == before.free && after.mapped == before.mapped && after.pinned == 0 && after.captured == 0 && after.moving == 0);
    REQUIRE(memcmp(after.used, before.used, sizeof after.used) == 0 && memcmp(after.free_blocks, before.free_blocks, sizeof after.free_blocks) == 0);
    expect_filled(used, USED);
    expect_filled(unmovable, 1);
    REQUIRE(memcmp(window, strata_zone_address(zone, used), (size_t)USED * FRAME) == 0);
    REQUIRE(strata_zone_alloc(zone, SUPERPAGE_FRAMES, STRATA_ZONE_UNMOVABLE, &whole) == STRATA_ZONE_OK);
    REQUIRE(strata_handle_free(handles, held) == STRATA_HANDLE_OK);
    REQUIRE(strata_handles_destroy(handles) == STRATA_HANDLE_OK);
    REQUIRE(strata_zone_destroy(zone) == STRATA_ZONE_OK);
    REQUIRE(write(STDOUT_FILENO, "unharmed\n", 9) == 9);
}

/* ------------------------------------------------------------------ zones */

static uint64_t of(uint64_t number) {
    tell_number(number);
    return number;
}
static char *at(char *address) {
    tell_number((uintptr_t)address);
    return address;
}

static enum strata_zone_status as(const struct strata_zone_request *request) {
    uint64_t frame = 4711;
    enum strata_zone_status status = strata_zone_alloc_as(zone, request, &frame);
    REQUIRE(frame == 4711);
    return status;
}
static enum strata_zone_status capture_by(struct strata_zone_capture_request request) {
    uint64_t got;
    request.flags = STRATA_ZONE_CAPTURE_AT;
    return strata_zone_capture_run(zone, &request, &got);
}
static enum strata_zone_status capture_at(uint64_t frame, uint64_t frames) {
    return capture_by((struct strata_zone_capture_request){.frames = frames, .at = frame});
}
static enum strata_zone_status capture_aligned(uint64_t frame, uint64_t frames) {
    return capture_by((struct strata_zone_capture_request){.frames = frames, .align_frames = frames, .at = frame});
}
static uint64_t free_frame(void) {
    struct strata_zone_frame_info info;
    for (uint64_t frame = 0; frame < FRAMES; frame++)
        if (strata_zone_query(zone, frame, &info) == STRATA_ZONE_OK && !info.allocated) return frame;
    fail("no frame is free");
}
/* Ends the pins that a case has made. */
static enum strata_zone_status after_pins(enum strata_zone_status status, uint64_t frame, unsigned pins) {
    while (pins-- != 0) REQUIRE(strata_zone_unpin(zone, frame, 1) == STRATA_ZONE_OK);
    return status;
}
static enum strata_zone_status when_pinned(uint64_t frame, enum strata_zone_status call(uint64_t frame)) {
    REQUIRE(strata_zone_pin(zone, frame, 1) == STRATA_ZONE_OK);
    return after_pins(call(frame), frame, 1);
}
static enum strata_zone_status free_it(uint64_t frame) { return strata_zone_free(zone, frame, 1); }
static enum strata_zone_status destroy_it(uint64_t frame) {
    (void)frame;
    return strata_zone_destroy(zone);
}
static enum strata_zone_status pin_too_often(void) {
    for (unsigned i = 0; i < STRATA_ZONE_PINS_MAX; i++) REQUIRE(strata_zone_pin(zone, unmovable, 1) == STRATA_ZONE_OK);
    return after_pins(strata_zone_pin(zone, of(unmovable), 1), unmovable, STRATA_ZONE_PINS_MAX);
}
static enum strata_zone_status pin_at_too_often(void) {
    uint64_t frame;
    for (unsigned i = 0; i < STRATA_ZONE_PINS_MAX; i++) REQUIRE(strata_zone_pin(zone, used, 1) == STRATA_ZONE_OK);
    return after_pins(strata_zone_pin_at(zone, at(window), &frame), used, STRATA_ZONE_PINS_MAX);
}
static enum strata_zone_status unpin_too_often(void) {
    REQUIRE(strata_zone_pin(zone, used, 1) == STRATA_ZONE_OK && strata_zone_unpin(zone, used, 1) == STRATA_ZONE_OK);
    return strata_zone_unpin(zone, of(used), 1);
}
/* One frame of the run is not: none is unpinned. */
static enum strata_zone_status unpin_half(void) {
    REQUIRE(strata_zone_pin(zone, used, 2) == STRATA_ZONE_OK);
    enum strata_zone_status status = strata_zone_unpin(zone, used, 3);
    tell_number(used + 2);
    REQUIRE(strata_zone_unpin(zone, used, 2) == STRATA_ZONE_OK);
    return status;
}
static enum strata_zone_status free_twice(void) {
    uint64_t frame;
    REQUIRE(strata_zone_alloc(zone, 4, STRATA_ZONE_UNMOVABLE, &frame) == STRATA_ZONE_OK);
    REQUIRE(strata_zone_free(zone, frame, 4) == STRATA_ZONE_OK);
    return strata_zone_free(zone, of(frame), 4);
}
/* The last frame is free: the others are not freed with it. */
static enum strata_zone_status free_beyond_block(void) {
    uint64_t frame;
    REQUIRE(strata_zone_alloc(zone, 4, STRATA_ZONE_RECLAIMABLE, &frame) == STRATA_ZONE_OK);
    enum strata_zone_status status = strata_zone_free(zone, frame, 5);
    tell_number(frame + 4);
    REQUIRE(strata_zone_free(zone, frame, 4) == STRATA_ZONE_OK);
    return status;
}
/* A number that this zone has not given out; where it has, it is one of its own. */
static enum strata_zone_status free_other_zones(void) {
    uint64_t frames[OTHERS], foreign = FRAMES;
    other = create(STRATA_ZONE_SIM, SUPERPAGES);
    for (unsigned i = 0; i < OTHERS; i++) {
        struct strata_zone_frame_info info;
        REQUIRE(strata_zone_alloc(other, SUPERPAGE_FRAMES / 4, STRATA_ZONE_RECLAIMABLE, &frames[i]) == STRATA_ZONE_OK);
        REQUIRE(strata_zone_query(zone, frames[i], &info) == STRATA_ZONE_OK);
        if (!info.allocated) foreign = frames[i];
    }
    enum strata_zone_status status = strata_zone_free(zone, of(foreign), 1);
    REQUIRE(strata_zone_destroy(other) == STRATA_ZONE_OK);
    return status;
}
static enum strata_zone_status free_held_by_capture(void) {
    struct strata_zone_capture *capture;
    const struct strata_zone_capture_request request = {.frames = SUPERPAGE_FRAMES};
    uint64_t first, left;
    REQUIRE(strata_zone_capture_begin(zone, &request, &capture) == STRATA_ZONE_OK);
    REQUIRE(strata_zone_capture_poll(capture, &first, &left) == STRATA_ZONE_OK && left == 0);
    enum strata_zone_status status = strata_zone_free(zone, of(first), 1);
    strata_zone_capture_give_up(capture);
    return status;
}
static enum strata_zone_status destroy_while_capturing(void) {
    struct strata_zone_capture *capture;
    const struct strata_zone_capture_request request = {.frames = SUPERPAGE_FRAMES};
    REQUIRE(strata_zone_capture_begin(zone, &request, &capture) == STRATA_ZONE_OK);
    enum strata_zone_status status = strata_zone_destroy(zone);
    strata_zone_capture_give_up(capture);
    return status;
}
static enum strata_zone_status end_capture_twice(void) {
    struct strata_zone_capture *capture, *other_capture;
    const struct strata_zone_capture_request request = {.frames = SUPERPAGE_FRAMES};
    uint64_t first, frame = 0;
    REQUIRE(strata_zone_capture_begin(zone, &request, &capture) == STRATA_ZONE_OK);
    REQUIRE(strata_zone_capture_end(capture, &first) == STRATA_ZONE_OK);
    REQUIRE(strata_zone_capture_begin(zone, &request, &other_capture) == STRATA_ZONE_OK);
    strata_zone_capture_give_up(capture);
    REQUIRE(strata_zone_capture_poll(other_capture, NULL, NULL) == STRATA_ZONE_OK);
    strata_zone_capture_give_up(other_capture);
    tell_number((uintptr_t)capture);
    enum strata_zone_status status = strata_zone_capture_end(capture, &frame);
    REQUIRE(frame == 0 && strata_zone_free(zone, first, SUPERPAGE_FRAMES) == STRATA_ZONE_OK);
    return status;
}
/* The partition goes while movable frames fill it: they stay where they are, and the superpages are everybody's. */
static enum strata_zone_status partition_shrunk_while_full(void) {
    const uint64_t bytes = 2 * STRATA_ZONE_SUPERPAGE_BYTES;
    static uint64_t frames[FRAMES];
    unsigned count = 0;
    struct strata_zone_superpage last[2];
    struct strata_zone_request request = {.frames = 1, .mobility = STRATA_ZONE_MOVABLE, .flags = STRATA_ZONE_NO_EFFORT};
    REQUIRE(strata_zone_partition_resize(zone, bytes) == STRATA_ZONE_OK);
    while (strata_zone_alloc_as(zone, &request, &frames[count]) == STRATA_ZONE_OK) fill(frames[count], 1), count++;
    REQUIRE(strata_zone_map_get(zone, SUPERPAGES - 2, 2, last) == STRATA_ZONE_OK);
    REQUIRE(last[0].free == 0 && last[1].free == 0 && last[0].partition && last[1].partition);
    enum strata_zone_status status = strata_zone_partition_resize(zone, 0);
    REQUIRE(strata_zone_map_get(zone, SUPERPAGES - 2, 2, last) == STRATA_ZONE_OK && last[0].free == 0 && !last[0].partition && !last[1].partition);
    REQUIRE(strata_zone_check(zone) == NULL);
    for (unsigned i = 0; i < count; i++) expect_filled(frames[i], 1);
    while (count != 0) REQUIRE(strata_zone_free(zone, frames[--count], 1) == STRATA_ZONE_OK);
    return status;
}
static enum strata_zone_status partition_over_unmovable(void) {
    enum strata_zone_status status = strata_zone_partition_resize(zone, of(SUPERPAGES * STRATA_ZONE_SUPERPAGE_BYTES));
    struct strata_zone_superpage first;
    REQUIRE(strata_zone_map_get(zone, unmovable / SUPERPAGE_FRAMES, 1, &first) == STRATA_ZONE_OK && !first.partition);
    return status;
}
static enum strata_zone_status copy_over_itself(void) { return strata_zone_copy(zone, used, of(used + 1), 4); }
static enum strata_zone_status capture_what_is_unmovable(void) {
    return capture_at(unmovable / SUPERPAGE_FRAMES * SUPERPAGE_FRAMES, SUPERPAGE_FRAMES);
}
static enum strata_zone_status reclaim_with(enum strata_zone_reclaim_policy policy, uint64_t low, uint64_t frames, unsigned order) {
    const struct strata_zone_reclaim_config config = {.policy = policy, .low_frames = low, .high_frames = low};
    enum strata_zone_status status = strata_zone_reclaim_start(zone, &config);
    if (status == STRATA_ZONE_OK) status = strata_zone_reclaim(zone, frames, order, NULL);
    REQUIRE(strata_zone_reclaim_stop(zone) == STRATA_ZONE_OK);
    return status;
}
static enum strata_zone_status compactor_with(struct strata_zone_compactor_config config) { return strata_zone_compactor_start(zone, &config); }
static enum strata_zone_status two_reclaims(void) {
    const struct strata_zone_reclaim_config config = {.policy = STRATA_ZONE_RECLAIM_LRU};
    REQUIRE(strata_zone_reclaim_start(zone, &config) == STRATA_ZONE_OK);
    enum strata_zone_status status = strata_zone_reclaim_start(zone, &config);
    REQUIRE(strata_zone_reclaim_stop(zone) == STRATA_ZONE_OK);
    return status;
}

/* True: it was one of zones. */
static bool misuse_zone(const char *name) {
    enum strata_zone_status status;
    struct strata_zone_indices indices;
    uint64_t frame;
    void *address;
#define CASE(text, call) else if (strcmp(name, text) == 0) status = (call)
    if (name[0] == 0) fail("no case");
    CASE("pin free", strata_zone_pin(zone, of(free_frame()), 1));
    CASE("pin nothing", strata_zone_pin(zone, used, of(0)));
    CASE("pin beyond the end", strata_zone_pin(zone, FRAMES - 1, of(2)));
    CASE("pin too often", pin_too_often());
    CASE("unpin", strata_zone_unpin(zone, of(used), 1));
    CASE("unpin too often", unpin_too_often());
    CASE("unpin half", unpin_half());
    CASE("unpin free", strata_zone_unpin(zone, of(free_frame()), 1));
    CASE("free pinned", when_pinned(of(unmovable), free_it));
    CASE("free mapped", strata_zone_free(zone, of(used), USED));
    CASE("free twice", free_twice());
    CASE("free beyond the block", free_beyond_block());
    CASE("free foreign", strata_zone_free(zone, of(FRAMES), 1));
    CASE("free another zone's", free_other_zones());
    CASE("free nothing", strata_zone_free(zone, used, of(0)));
    CASE("free what a capture holds", free_held_by_capture());
    CASE("discard free", strata_zone_discard(zone, of(free_frame()), 1));
    CASE("populate free", strata_zone_populate(zone, of(free_frame()), 1));
    CASE("copy to what is free", strata_zone_copy(zone, used, of(free_frame()), 1));
    CASE("copy over itself", copy_over_itself());
    CASE("alloc nothing", strata_zone_alloc(zone, of(0), STRATA_ZONE_MOVABLE, &frame));
    CASE("alloc more than all", strata_zone_alloc(zone, of(FRAMES + 1), STRATA_ZONE_MOVABLE, &frame));
    CASE("alloc of no mobility", strata_zone_alloc(zone, 1, (enum strata_zone_mobility)of(STRATA_ZONE_MOBILITIES), &frame));
    CASE("alignment of no power of two", as(&(struct strata_zone_request){.frames = 1, .align_frames = of(48)}));
    CASE("alignment above the zone", as(&(struct strata_zone_request){.frames = 1, .align_frames = of(8192)}));
    CASE("owner that is none", as(&(struct strata_zone_request){.frames = 1, .owner = (unsigned)of(9)}));
    CASE("flags of alloc", as(&(struct strata_zone_request){.frames = 1, .flags = (unsigned)of(64)}));
    CASE("capture across superpages", capture_at(of(510), 4));
    CASE("capture where it is not aligned", capture_aligned(of(1), 4));
    CASE("capture of nothing", capture_at(0, of(0)));
    CASE("capture of what is unmovable", capture_what_is_unmovable());
    CASE("end of a capture that has ended", end_capture_twice());
    CASE("window of nothing", strata_zone_window_open(zone, of(0), &address));
    CASE("window of half a page", strata_zone_window_open(zone, of(FRAME / 2), &address));
    CASE("close while it shows frames", strata_zone_window_close(zone, at(window)));
    CASE("close what is no window", strata_zone_window_close(zone, at(window + FRAME)));
    CASE("map over a mapped page", strata_zone_map(zone, unmovable, 1, at(window + (USED - 1) * (size_t)FRAME)));
    CASE("map a mapped frame", strata_zone_map(zone, used, 1, at(window + USED * (size_t)FRAME)));
    CASE("map free", strata_zone_map(zone, free_frame(), 1, at(window + USED * (size_t)FRAME)));
    CASE("map beyond the window", strata_zone_map(zone, unmovable, 1, at(window + (size_t)2 * USED * FRAME)));
    CASE("map between pages", strata_zone_map(zone, unmovable, 1, at(window + USED * (size_t)FRAME + 8)));
    CASE("unmap what is not mapped", strata_zone_unmap(zone, at(window + USED * (size_t)FRAME), FRAME));
    CASE("unmap half of what is mapped", strata_zone_unmap(zone, at(window), (size_t)(USED + 1) * FRAME));
    CASE("pin at what is pinned too often", pin_at_too_often());
    CASE("unmap what is no window", strata_zone_unmap(zone, at((char *)strata_zone_address(zone, used)), FRAME));
    CASE("frame at nothing", strata_zone_frame_at(zone, at(window + USED * (size_t)FRAME), &frame));
    CASE("pin at nothing", strata_zone_pin_at(zone, at(window + USED * (size_t)FRAME), &frame));
    CASE("partition larger than the zone", strata_zone_partition_resize(zone, of((SUPERPAGES + 1) * STRATA_ZONE_SUPERPAGE_BYTES)));
    CASE("partition over unmovable frames", partition_over_unmovable());
    CASE("partition shrunk while full", partition_shrunk_while_full());
    CASE("reserve larger than the zone", strata_zone_set_reserve(zone, of((SUPERPAGES + 1) * STRATA_ZONE_SUPERPAGE_BYTES)));
    CASE("partition of more than can be counted", strata_zone_partition_resize(zone, of(UINT64_MAX)));
    CASE("reserve of more than can be counted", strata_zone_set_reserve(zone, of(UINT64_MAX - 5)));
    CASE("effort", strata_zone_set_effort(zone, (unsigned)of(8)));
    CASE("compact by too high an order", strata_zone_compact(zone, (unsigned)of(10), NULL));
    CASE("indices of too high an order", strata_zone_indices_get(zone, (unsigned)of(STRATA_ZONE_ORDERS), &indices));
    CASE("compactor by too high an order", compactor_with((struct strata_zone_compactor_config){.order = (unsigned)of(10)}));
    CASE("compactor above all", compactor_with((struct strata_zone_compactor_config){.unusable = (double)of(2)}));
    CASE("compactor too often", compactor_with((struct strata_zone_compactor_config){.interval_ns = of(999999)}));
    CASE("reclaim that was not started", strata_zone_reclaim(zone, 1, 0, NULL));
    CASE("reclaim by too high an order", reclaim_with(STRATA_ZONE_RECLAIM_LRU, 0, 1, (unsigned)of(10)));
    CASE("reclaim of nothing", reclaim_with(STRATA_ZONE_RECLAIM_LRU, 0, of(0), 0));
    CASE("reclaim of no policy", reclaim_with((enum strata_zone_reclaim_policy)of(3), 0, 1, 0));
    CASE("reclaim up to more than all", reclaim_with(STRATA_ZONE_RECLAIM_LRU, of(FRAMES + 1), 1, 0));
    CASE("reclaim started twice", two_reclaims());
    CASE("destroy with a pinned frame", when_pinned(used, destroy_it));
    CASE("destroy while capturing", destroy_while_capturing());
    else return false;
#undef CASE
    tell(strata_zone_status_text(status));
    return true;
}

/* ------------------------------------------------------------------ handles */

static strata_handle this(strata_handle handle) {
    tell_number(handle);
    return handle;
}
static strata_handle freed_handle(void) {
    strata_handle handle;
    REQUIRE(strata_handle_alloc(handles, FRAME, &handle) == STRATA_HANDLE_OK && strata_handle_free(handles, handle) == STRATA_HANDLE_OK);
    return this(handle);
}
static enum strata_handle_status unlock_twice(void) {
    REQUIRE(strata_handle_lock(handles, held, NULL) == STRATA_HANDLE_OK && strata_handle_unlock(handles, held) == STRATA_HANDLE_OK);
    return strata_handle_unlock(handles, this(held));
}
static enum strata_handle_status free_while_locked(void) {
    REQUIRE(strata_handle_lock(handles, held, NULL) == STRATA_HANDLE_OK);
    enum strata_handle_status status = strata_handle_free(handles, this(held));
    REQUIRE(strata_handle_unlock(handles, held) == STRATA_HANDLE_OK);
    return status;
}
static enum strata_handle_status free_while_read(void) {
    const void *address;
    REQUIRE(strata_handle_read(handles, held, &address) == STRATA_HANDLE_OK);
    enum strata_handle_status status = strata_handle_free(handles, this(held));
    REQUIRE(strata_handle_read_end(handles, held) == STRATA_HANDLE_OK);
    return status;
}
static enum strata_handle_status free_while_pinned(void) {
    struct strata_handle_info info;
    REQUIRE(strata_handle_query(handles, held, &info) == STRATA_HANDLE_OK && strata_zone_pin(zone, info.frame, 1) == STRATA_ZONE_OK);
    enum strata_handle_status status = strata_handle_free(handles, this(held));
    REQUIRE(strata_zone_unpin(zone, info.frame, 1) == STRATA_ZONE_OK);
    return status;
}
static enum strata_handle_status end_the_other_guard(void) {
    void *address;
    REQUIRE(strata_handle_write(handles, held, &address) == STRATA_HANDLE_OK);
    enum strata_handle_status status = strata_handle_read_end(handles, this(held));
    REQUIRE(strata_handle_write_end(handles, held) == STRATA_HANDLE_OK);
    return status;
}
static enum strata_handle_status lock_too_often(void) {
    for (unsigned i = 0; i < STRATA_ZONE_PINS_MAX; i++) REQUIRE(strata_handle_lock(handles, held, NULL) == STRATA_HANDLE_OK);
    enum strata_handle_status status = strata_handle_lock(handles, this(held), NULL);
    for (unsigned i = 0; i < STRATA_ZONE_PINS_MAX; i++) REQUIRE(strata_handle_unlock(handles, held) == STRATA_HANDLE_OK);
    return status;
}
static enum strata_handle_status destroy_while_locked(void) {
    REQUIRE(strata_handle_lock(handles, this(held), NULL) == STRATA_HANDLE_OK);
    enum strata_handle_status status = strata_handles_destroy(handles);
    REQUIRE(strata_handle_unlock(handles, held) == STRATA_HANDLE_OK);
    return status;
}
/* Frames that the program has pinned, or shows in a window, by their numbers: all handles go on as they were. */
static enum strata_handle_status destroy_while_pinned(void) {
    struct strata_handle_info info;
    REQUIRE(strata_handle_query(handles, this(held), &info) == STRATA_HANDLE_OK && strata_zone_pin(zone, info.frame + 1, 1) == STRATA_ZONE_OK);
    enum strata_handle_status status = strata_handles_destroy(handles);
    REQUIRE(strata_zone_unpin(zone, info.frame + 1, 1) == STRATA_ZONE_OK && strata_zone_compact(zone, 9, NULL) == STRATA_ZONE_OK);
    return status;
}
static enum strata_handle_status destroy_while_mapped(void) {
    struct strata_handle_info info;
    char *free_pages = window + USED * (size_t)FRAME;
    REQUIRE(strata_handle_query(handles, this(held), &info) == STRATA_HANDLE_OK);
    REQUIRE(strata_zone_map(zone, info.frame, 2, free_pages) == STRATA_ZONE_OK);
    enum strata_handle_status status = strata_handles_destroy(handles);
    REQUIRE(strata_zone_unmap(zone, free_pages, (size_t)2 * FRAME) == STRATA_ZONE_OK && strata_zone_compact(zone, 9, NULL) == STRATA_ZONE_OK);
    return status;
}

static bool misuse_handle(const char *name) {
    enum strata_handle_status status;
    struct strata_handles *more;
    strata_handle handle;
    const void *address;
    void *place;
    if (strcmp(name, "lock a freed handle") == 0) status = strata_handle_lock(handles, freed_handle(), &place);
#define CASE(text, call) else if (strcmp(name, text) == 0) status = (call)
    CASE("read a freed handle", strata_handle_read(handles, freed_handle(), &address));
    CASE("write a freed handle", strata_handle_write(handles, freed_handle(), &place));
    CASE("free a freed handle", strata_handle_free(handles, freed_handle()));
    CASE("unlock a freed handle", strata_handle_unlock(handles, freed_handle()));
    CASE("lock no handle", strata_handle_lock(handles, this(77), &place));
    CASE("unlock", strata_handle_unlock(handles, this(held)));
    CASE("unlock twice", unlock_twice());
    CASE("free while locked", free_while_locked());
    CASE("free while read", free_while_read());
    CASE("free while pinned in the zone", free_while_pinned());
    CASE("end of a read that is none", strata_handle_read_end(handles, this(held)));
    CASE("end of a write that is none", strata_handle_write_end(handles, this(held)));
    CASE("end of a read for a write", end_the_other_guard());
    CASE("lock too often", lock_too_often());
    CASE("handle of nothing", strata_handle_alloc(handles, of(0), &handle));
    CASE("handle of more than all", strata_handle_alloc(handles, of((uint64_t)FRAMES * FRAME + 1), &handle));
    CASE("more handles than there can be", strata_handles_create(zone, of((uint64_t)STRATA_HANDLES_MAX + 1), &more));
    CASE("destroy while locked", destroy_while_locked());
    CASE("destroy while pinned in the zone", destroy_while_pinned());
    CASE("destroy while mapped", destroy_while_mapped());
    else return false;
#undef CASE
    tell(strata_handle_status_text(status));
    return true;
}

/* ------------------------------------------------------------------ after the end */

static void use_after_destroy(const char *name) {
    struct strata_zone *gone = zone;
    REQUIRE(strata_handles_destroy(handles) == STRATA_HANDLE_OK);
    REQUIRE(strata_zone_destroy(zone) == STRATA_ZONE_OK); /* with frames and a window in use: they go with it */
    REQUIRE(write(STDOUT_FILENO, "destroyed\n", 10) == 10);
    if (strcmp(name, "pin after destroy") == 0) (void)strata_zone_pin(gone, used, 1);
    if (strcmp(name, "touch after destroy") == 0) ((volatile char *)window)[0] = 1;
    if (strcmp(name, "lock after destroy") == 0) (void)strata_handle_lock(handles, held, NULL);
}

int main(int argc, char **argv) {
    REQUIRE(argc == 2);
    begin();
    if (strstr(argv[1], "after destroy") != NULL) {
        use_after_destroy(argv[1]);
        return 0;
    }
    if (!misuse_zone(argv[1]) && !misuse_handle(argv[1])) fail("no such case: %s", argv[1]);
    end();
    return 0;
}
