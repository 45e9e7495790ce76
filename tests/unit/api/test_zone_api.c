/*
 * test_zone_api.c - what the public functions of zones refuse, and in which words: on the simulated platform, where a zone has no memory. Windows and
 * contents are tested on real memory, by tests/stress/api_zone_windows.c.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "api/heap.h"
#include "platform/sim/sim.h"
#include "strata/zone.h"

int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) {
    (void)prepare;
    (void)parent;
    (void)child;
    return 0;
}

static struct strata_zone *zone;

static struct strata_zone_config config_of(uint64_t superpages) {
    return (struct strata_zone_config){
        .name = "test", .backend = STRATA_ZONE_SIM, .bytes = superpages * STRATA_ZONE_SUPERPAGE_BYTES, .frame_bytes = 4096, .cpus = 2};
}
static int set_up(void **state) {
    const struct strata_zone_config config = config_of(4);
    (void)state;
    sim_reset(NULL);
    heap = (struct heap){.lock = PLATFORM_LOCK_INIT(LOCK_RANK_API)};
    return strata_zone_create(&config, &zone) == STRATA_ZONE_OK ? 0 : -1;
}
static int tear_down(void **state) {
    (void)state;
    return strata_zone_check(zone) == NULL && strata_zone_destroy(zone) == STRATA_ZONE_OK ? 0 : -1;
}

static void expect_said(const char *text) {
    char said[200] = "";
    size_t length = strata_zone_explain(zone, said, sizeof said);
    assert_int_equal(length, strlen(said));
    assert_string_equal(said, text);
}
static uint64_t alloc(uint64_t frames, enum strata_zone_mobility mobility) {
    uint64_t frame;
    assert_int_equal(strata_zone_alloc(zone, frames, mobility, &frame), STRATA_ZONE_OK);
    return frame;
}

/* ------------------------------------------------------------------ life */

static void configurations_that_are_refused(void **state) {
    static const struct {
        struct strata_zone_config config;
        const char *said;
    } cases[] = {
        {{.bytes = 2 << 20}, "strata_zone_create: name = 0 (not NULL)"},
        {{.name = "x", .backend = (enum strata_zone_backend)7, .bytes = 2 << 20}, "strata_zone_create: backend = 7 (those of strata_zone_backend)"},
        {{.name = "x", .bytes = 0}, "strata_zone_create: bytes = 0 (a multiple of 2 MiB above 0, of at most 2^31 frames)"},
        {{.name = "x", .bytes = 4096}, "strata_zone_create: bytes = 4096 (a multiple of 2 MiB above 0, of at most 2^31 frames)"},
        {{.name = "x", .bytes = 2 << 20, .frame_bytes = 8192},
         "strata_zone_create: frame_bytes = 8192 (4096, 16384 or 65536, not less than the system's page; or 0)"},
        {{.name = "x", .bytes = 2 << 20, .reserve_bytes = 4 << 20}, "strata_zone_create: reserve_bytes = 4194304 (at most the zone)"},
        {{.name = "x", .bytes = 2 << 20, .partition_bytes = 4 << 20}, "strata_zone_create: partition_bytes = 4194304 (at most the zone)"},
        {{.name = "x", .bytes = 2 << 20, .cpus = 1025}, "strata_zone_create: cpus = 1025 (at most 1024)"},
        {{.name = "x", .bytes = 2 << 20, .flags = 64}, "strata_zone_create: flags = 64 (those of strata_zone_flags)"},
    };
    struct strata_zone *none = NULL;
    char said[200] = "";
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        assert_int_equal(strata_zone_create(&cases[i].config, &none), STRATA_ZONE_BAD_ARGUMENT);
        assert_int_equal(strata_zone_explain_config(&cases[i].config, said, sizeof said), strlen(cases[i].said));
        assert_string_equal(said, cases[i].said);
    }
    assert_null(none);
    const struct strata_zone_config good = config_of(1);
    assert_int_equal(strata_zone_explain_config(&good, said, sizeof said), 0);
    assert_int_equal(strata_zone_create(NULL, &none), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_create(&good, NULL), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_destroy(NULL), STRATA_ZONE_OK);
    const struct strata_zone_config shared = {.name = "x", .backend = STRATA_ZONE_MEMFD, .bytes = 2 << 20};
    assert_int_equal(strata_zone_create(&shared, &none), STRATA_ZONE_UNSUPPORTED); /* a simulated machine has no such memory */
    assert_string_equal(strata_zone_status_text(STRATA_ZONE_UNSUPPORTED), "not with this backend, or on this system");
    assert_string_equal(strata_zone_status_text((enum strata_zone_status)99), "unknown status");
}

/* ------------------------------------------------------------------ frames */

static void requests_that_are_refused(void **state) {
    uint64_t frame = 4711;
    (void)state;
    assert_int_equal(strata_zone_alloc(zone, 0, STRATA_ZONE_MOVABLE, &frame), STRATA_ZONE_BAD_ARGUMENT);
    expect_said("strata_zone_alloc: frames = 0 (1 and above, at most those of the zone)");
    assert_int_equal(strata_zone_alloc(zone, 2049, STRATA_ZONE_MOVABLE, &frame), STRATA_ZONE_BAD_ARGUMENT);
    expect_said("strata_zone_alloc: frames = 2049 (1 and above, at most those of the zone)");
    assert_int_equal(strata_zone_alloc(zone, 1, (enum strata_zone_mobility)3, &frame), STRATA_ZONE_BAD_ARGUMENT);
    expect_said("strata_zone_alloc: mobility = 3 (0 unmovable, 1 reclaimable, 2 movable)");
    struct strata_zone_request request = {.frames = 1, .align_frames = 3};
    assert_int_equal(strata_zone_alloc_as(zone, &request, &frame), STRATA_ZONE_BAD_ARGUMENT);
    expect_said("strata_zone_alloc_as: align_frames = 3 (0, or a power of two that is at most the zone's frames)");
    request = (struct strata_zone_request){.frames = 1, .owner = 1};
    assert_int_equal(strata_zone_alloc_as(zone, &request, &frame), STRATA_ZONE_BAD_ARGUMENT);
    expect_said("strata_zone_alloc_as: owner = 1 (0, or what strata_zone_owner_add gave)");
    request = (struct strata_zone_request){.frames = 1, .flags = 128};
    assert_int_equal(strata_zone_alloc_as(zone, &request, &frame), STRATA_ZONE_BAD_ARGUMENT);
    expect_said("strata_zone_alloc_as: flags = 128 (those of strata_zone_alloc_flags)");
    assert_int_equal(strata_zone_alloc(NULL, 1, STRATA_ZONE_MOVABLE, &frame), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_alloc(zone, 1, STRATA_ZONE_MOVABLE, NULL), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(frame, 4711);
}

static void frees_that_are_refused(void **state) {
    uint64_t frame = alloc(8, STRATA_ZONE_UNMOVABLE);
    (void)state;
    assert_int_equal(strata_zone_free(zone, 2048, 1), STRATA_ZONE_BAD_ARGUMENT);
    expect_said("strata_zone_free: frame = 2048 (below the number of frames)");
    assert_int_equal(strata_zone_free(zone, frame, UINT64_MAX), STRATA_ZONE_BAD_ARGUMENT);
    expect_said("strata_zone_free: frames = 18446744073709551615 (above 0, and not beyond the end of the zone)");
    assert_int_equal(strata_zone_free(zone, frame, 9), STRATA_ZONE_NOT_ALLOCATED);
    expect_said("strata_zone_free: frame = 8 (free; must be allocated)");
    assert_int_equal(strata_zone_pin(zone, frame + 3, 1), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_free(zone, frame, 8), STRATA_ZONE_PINNED);
    expect_said("strata_zone_free: frame = 3 (pinned; must not be, or less often)");
    assert_int_equal(strata_zone_destroy(zone), STRATA_ZONE_PINNED);
    assert_int_equal(strata_zone_unpin(zone, frame + 3, 1), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_free(zone, frame + 2, 4), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_free(zone, frame + 2, 1), STRATA_ZONE_NOT_ALLOCATED); /* twice */
    assert_int_equal(strata_zone_free(zone, frame, 2), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_free(zone, frame + 6, 2), STRATA_ZONE_OK);
}

static void pins_that_are_refused(void **state) {
    uint64_t frame = alloc(2, STRATA_ZONE_MOVABLE);
    (void)state;
    assert_int_equal(strata_zone_pin(zone, 7, 1), STRATA_ZONE_NOT_ALLOCATED);
    expect_said("strata_zone_pin: frame = 7 (free; must be allocated)");
    assert_int_equal(strata_zone_unpin(zone, frame, 1), STRATA_ZONE_NOT_PINNED);
    expect_said("strata_zone_unpin: frame = 1536 (not pinned; must be)");
    for (unsigned i = 0; i < STRATA_ZONE_PINS_MAX; i++) assert_int_equal(strata_zone_pin(zone, frame, 1), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_pin(zone, frame, 2), STRATA_ZONE_PINNED);
    struct strata_zone_frame_info info;
    assert_int_equal(strata_zone_query(zone, frame + 1, &info), STRATA_ZONE_OK);
    assert_int_equal(info.pins, 0); /* all or nothing */
    assert_int_equal(strata_zone_query(zone, frame, &info), STRATA_ZONE_OK);
    assert_true(info.pinned && info.pins == STRATA_ZONE_PINS_MAX && info.first == frame && info.frames == 2 && info.mobility == STRATA_ZONE_MOVABLE);
    for (unsigned i = 0; i < STRATA_ZONE_PINS_MAX; i++) assert_int_equal(strata_zone_unpin(zone, frame, 1), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_query(zone, 2048, &info), STRATA_ZONE_BAD_ARGUMENT);
}

static void settings_that_are_refused(void **state) {
    (void)state;
    (void)alloc(1, STRATA_ZONE_UNMOVABLE);
    assert_int_equal(strata_zone_partition_resize(zone, 10 << 20), STRATA_ZONE_BAD_ARGUMENT);
    expect_said("strata_zone_partition_resize: bytes = 10485760 (at most the zone)");
    assert_int_equal(strata_zone_partition_resize(zone, 8 << 20), STRATA_ZONE_BUSY);
    expect_said("strata_zone_partition_resize: bytes = 8388608 (a size without unmovable frames)");
    assert_int_equal(strata_zone_set_reserve(zone, 10 << 20), STRATA_ZONE_BAD_ARGUMENT);
    expect_said("strata_zone_set_reserve: bytes = 10485760 (at most the zone)");
    assert_int_equal(strata_zone_set_effort(zone, 64), STRATA_ZONE_BAD_ARGUMENT);
    expect_said("strata_zone_set_effort: effort = 64 (those of strata_zone_effort)");
    assert_int_equal(strata_zone_set_effort(zone, STRATA_ZONE_COMPACT), STRATA_ZONE_OK);
}

static void captures_that_are_refused(void **state) {
    struct strata_zone_capture *capture;
    uint64_t frame;
    (void)state;
    struct strata_zone_capture_request request = {.frames = 512, .flags = 64};
    assert_int_equal(strata_zone_capture_run(zone, &request, &frame), STRATA_ZONE_BAD_ARGUMENT);
    expect_said("strata_zone_capture_run: flags = 64 (those of strata_zone_capture_flags)");
    request = (struct strata_zone_capture_request){.frames = 8, .flags = STRATA_ZONE_CAPTURE_AT, .at = 508};
    assert_int_equal(strata_zone_capture_begin(zone, &request, &capture), STRATA_ZONE_BAD_ARGUMENT);
    expect_said("strata_zone_capture_begin: at = 508 (inside the zone; of runs above a superpage, where one begins; else inside one)");
    assert_int_equal(strata_zone_capture_poll(NULL, NULL, NULL), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_capture_push(NULL, 1), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_capture_end(NULL, &frame), STRATA_ZONE_BAD_ARGUMENT);
    strata_zone_capture_give_up(NULL);
}

static void windows_need_memory(void **state) {
    void *address;
    (void)state;
    assert_int_equal(strata_zone_window_open(zone, 4096, &address), STRATA_ZONE_UNSUPPORTED);
    assert_int_equal(strata_zone_map(zone, alloc(1, STRATA_ZONE_MOVABLE), 1, &address), STRATA_ZONE_UNSUPPORTED);
    assert_null(strata_zone_address(zone, 0));
    assert_int_equal(strata_zone_file(zone), -1);
}

/* ------------------------------------------------------------------ owners */

static enum strata_zone_answer migrate(struct strata_zone *of, uint64_t from, uint64_t to, uint64_t frames, uint64_t token, void *context) {
    uint64_t *seen = context;
    seen[0] = from;
    seen[1] = to;
    seen[2] = token;
    assert_int_equal(strata_zone_pin(of, from, 1), STRATA_ZONE_BUSY);
    assert_int_equal(strata_zone_free(of, from, 2), STRATA_ZONE_BUSY); /* a part of it */
    return strata_zone_copy(of, from, to, frames) == STRATA_ZONE_OK ? STRATA_ZONE_YES : STRATA_ZONE_LATER;
}

static void an_owner_moves_its_block(void **state) {
    uint64_t seen[3] = {0}, frame, run;
    unsigned number;
    (void)state;
    const struct strata_zone_owner owner = {.name = "buffers", .migrate = migrate, .context = seen};
    assert_int_equal(strata_zone_owner_add(zone, &owner, &number), STRATA_ZONE_OK);
    const struct strata_zone_request request = {.frames = 4, .mobility = STRATA_ZONE_MOVABLE, .owner = number, .token = 99};
    assert_int_equal(strata_zone_alloc_as(zone, &request, &frame), STRATA_ZONE_OK);
    strata_zone_poke(zone, frame + 3, 4711);
    const struct strata_zone_capture_request capture = {.frames = 512, .flags = STRATA_ZONE_CAPTURE_AT, .at = frame / 512 * 512};
    assert_int_equal(strata_zone_capture_run(zone, &capture, &run), STRATA_ZONE_OK);
    assert_int_equal(run, frame / 512 * 512);
    assert_int_equal(seen[0], frame);
    assert_int_equal(seen[2], 99);
    assert_int_equal(strata_zone_peek(zone, seen[1] + 3), 4711);
    struct strata_zone_frame_info info;
    assert_int_equal(strata_zone_query(zone, seen[1], &info), STRATA_ZONE_OK);
    assert_true(info.owner == number && info.token == 99 && info.frames == 4 && info.mobility == STRATA_ZONE_MOVABLE && !info.moving);
}

/* Its memory is a block of the heap's: counted there, bounded by the heap's limits, and given back; its frames are as any others. */
static void memory_of_the_heap(void **state) {
    (void)state;
    struct strata_zone_config config = {
        .name = "lent", .backend = STRATA_ZONE_HEAP, .bytes = 4 * STRATA_ZONE_SUPERPAGE_BYTES, .frame_bytes = 4096, .cpus = 2};
    const uint64_t before = heap.zone.counters.block_granules, limit = heap.zone.config.hard_limit_bytes;
    void *window;
    uint64_t frames[2];
    strata_zone_destroy(zone);
    for (unsigned again = 0; again < 2; again++) { /* the second time of pages that were written to */
        assert_int_equal(strata_zone_create(&config, &zone), STRATA_ZONE_OK);
        assert_int_equal(heap.zone.counters.block_granules - before, config.bytes / 4096);
        for (unsigned i = 0; i < 2; i++) frames[i] = alloc(512, STRATA_ZONE_MOVABLE);
        char *from = strata_zone_address(zone, frames[0]), *to = strata_zone_address(zone, frames[1]);
        assert_int_equal((uintptr_t)from % STRATA_ZONE_SUPERPAGE_BYTES, 0);
        memset(from, 5, 512 * 4096);
        assert_int_equal(strata_zone_copy(zone, frames[0], frames[1], 512), STRATA_ZONE_OK);
        assert_int_equal(strata_zone_discard(zone, frames[0], 512), STRATA_ZONE_OK);
        assert_true(from[0] == 0 && from[511 * 4096] == 0 && to[0] == 5 && to[512 * 4096 - 1] == 5);
        assert_int_equal(strata_zone_window_open(zone, 4096, &window), STRATA_ZONE_UNSUPPORTED);
        assert_true(strata_zone_check(zone) == NULL && heap_check() == NULL);
        assert_int_equal(strata_zone_destroy(zone), STRATA_ZONE_OK);
        assert_int_equal(heap.zone.counters.block_granules, before);
    }
    /* What it has discarded is not there when the heap has it back. */
    const uint64_t populated = heap.zone.counters.populated;
    config.bytes = 64 * STRATA_ZONE_SUPERPAGE_BYTES;
    assert_int_equal(strata_zone_create(&config, &zone), STRATA_ZONE_OK);
    frames[0] = alloc(64 * 512, STRATA_ZONE_MOVABLE);
    memset(strata_zone_address(zone, frames[0]), 5, config.bytes);
    assert_int_equal(strata_zone_discard(zone, frames[0], 64 * 512), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_destroy(zone), STRATA_ZONE_OK);
    assert_in_range(heap.zone.counters.populated, 0, populated);
    config.bytes = 4 * STRATA_ZONE_SUPERPAGE_BYTES;
    heap.zone.config.hard_limit_bytes = 6 * MIB;
    assert_int_equal(strata_zone_create(&config, &zone), STRATA_ZONE_NO_MEMORY);
    heap.zone.config.hard_limit_bytes = limit;
    config.flags = STRATA_ZONE_ON_NODE;
    assert_int_equal(strata_zone_create(&config, &zone), STRATA_ZONE_UNSUPPORTED);
    assert_int_equal(heap.zone.counters.block_granules, before);
    config.flags = 0;
    config.bytes = 2 * STRATA_ZONE_SUPERPAGE_BYTES;
    assert_int_equal(strata_zone_create(&config, &zone), STRATA_ZONE_OK); /* for tear_down */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(configurations_that_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(requests_that_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(frees_that_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pins_that_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(settings_that_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(captures_that_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(windows_need_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_owner_moves_its_block, set_up, tear_down),
        cmocka_unit_test_setup_teardown(memory_of_the_heap, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
