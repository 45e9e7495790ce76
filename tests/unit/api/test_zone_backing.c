/*
 * test_zone_backing.c - files behind blocks of a zone: what is dirty is written where its token says before anybody else can have its frames, and
 * read again; what can't be written stays; who asks for what there is not is told.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "platform/sim/sim.h"
#include "strata/zone_backing.h"
#include "strata/zone_reclaim.h"

enum { SUPERPAGES = 2, PER_SUPERPAGE = 512, FRAME = 4096, BLOCKS = 600, NOWHERE = 5000 };

static struct strata_zone *zone;
static unsigned owner;
static uint64_t frame_of[NOWHERE + 1]; /* by token; UINT64_MAX: out of reach */
static unsigned asked, told, failures;
static int last_error;
static bool frees;       /* the program frees the block when it is told */
static bool keeps_reach; /* it knows that nobody will tell it */
static bool late_write;  /* somebody writes at the last moment */
static bool was_dirty;   /* the last time that the owner was asked */

static uint64_t word_of(uint64_t token) { return (token + 1) * UINT64_C(0x9e3779b97f4a7c15); }

static enum strata_zone_answer drop(struct strata_zone *its_zone, uint64_t frame, uint64_t frames, uint64_t token, bool dirty, void *context) {
    (void)its_zone, (void)frames, (void)context;
    assert_int_equal(sim_locks_held(), 0);
    assert_int_equal(frame_of[token], frame);
    asked++;
    if (late_write) strata_zone_poke(zone, frame, word_of(token));
    if (!keeps_reach) frame_of[token] = UINT64_MAX;
    was_dirty = dirty;
    return STRATA_ZONE_WRITE;
}

static void written(struct strata_zone *its_zone, uint64_t frame, uint64_t frames, uint64_t token, int error, void *context) {
    struct strata_zone_frame_info info;
    assert_ptr_equal(its_zone, zone);
    assert_ptr_equal(context, &owner);
    assert_int_equal(sim_locks_held(), 0);
    assert_int_equal(frame_of[token], UINT64_MAX);
    assert_int_equal(strata_zone_query(zone, frame, &info), STRATA_ZONE_OK);
    assert_true(info.allocated && info.moving && info.token == token); /* nobody else's yet */
    told++;
    failures += error != 0;
    last_error = error;
    if (frees) assert_int_equal(strata_zone_free(zone, frame, frames), STRATA_ZONE_OK);
    if (error != 0 && !frees) frame_of[token] = frame;
}

static const struct strata_zone_backing_config plain = {.path = "pages", .bytes = BLOCKS * FRAME, .written = written, .context = &owner};

static int begin(void **state) {
    (void)state;
    sim_reset(NULL);
    const struct strata_zone_config config = {
        .name = "test", .backend = STRATA_ZONE_SIM, .bytes = SUPERPAGES * STRATA_ZONE_SUPERPAGE_BYTES, .frame_bytes = FRAME, .cpus = 1};
    const struct strata_zone_owner program = {.name = "pool", .reclaim = drop};
    const struct strata_zone_reclaim_config reclaim = {.policy = STRATA_ZONE_RECLAIM_LRU, .high_frames = 1};
    memset(frame_of, 0xff, sizeof frame_of);
    asked = told = failures = 0;
    last_error = 0;
    frees = keeps_reach = late_write = false;
    errno = 77;
    return strata_zone_create(&config, &zone) != STRATA_ZONE_OK || strata_zone_owner_add(zone, &program, &owner) != STRATA_ZONE_OK ||
           strata_zone_reclaim_start(zone, &reclaim) != STRATA_ZONE_OK;
}
static int end(void **state) {
    (void)state;
    assert_null(strata_zone_check(zone));
    assert_null(strata_zone_reclaim_check(zone));
    return strata_zone_destroy(zone) != STRATA_ZONE_OK;
}

static void make(uint64_t token, uint64_t frames) {
    const struct strata_zone_request request = {
        .frames = frames, .mobility = STRATA_ZONE_MOVABLE, .owner = owner, .token = token, .flags = STRATA_ZONE_NO_EFFORT};
    assert_int_equal(strata_zone_alloc_as(zone, &request, &frame_of[token]), STRATA_ZONE_OK);
}
static void fill(uint64_t token, uint64_t frames) {
    make(token, frames);
    for (uint64_t i = 0; i < frames; i++) strata_zone_poke(zone, frame_of[token] + i, word_of(token + i));
}
static uint64_t in_file(uint64_t token) {
    uint64_t bytes, word;
    const uint8_t *text = sim_store_text("pages", false, &bytes);
    assert_non_null(text);
    assert_true((token + 1) * FRAME <= bytes);
    memcpy(&word, text + token * FRAME, sizeof word);
    return word;
}
/* Twice, as what was just used stays at the first look. */
static uint64_t reclaim_all(void) {
    uint64_t sum = 0, had;
    for (unsigned i = 0; i < 3; i++) {
        (void)strata_zone_reclaim(zone, PER_SUPERPAGE * SUPERPAGES, 0, &had);
        sum += had;
    }
    return sum;
}
static struct strata_zone_backing_stats stats(void) {
    struct strata_zone_backing_stats now;
    assert_int_equal(strata_zone_backing_stats_get(zone, owner, &now), STRATA_ZONE_OK);
    return now;
}

/* ------------------------------------------------------------------ tests */

static void what_is_dirty_is_written_and_read_again(void **state) {
    (void)state;
    assert_int_equal(strata_zone_backing_open(zone, owner, &plain), STRATA_ZONE_OK);
    for (uint64_t token = 0; token < 40; token++) fill(token, 1);
    fill(64, 4);
    make(100, 1); /* clean */
    assert_int_equal(reclaim_all(), 45);
    assert_int_equal(told, 42);
    assert_int_equal(stats().written, 44);
    for (uint64_t token = 0; token < 40; token++) assert_int_equal(in_file(token), word_of(token));
    for (uint64_t i = 0; i < 4; i++) assert_int_equal(in_file(64 + i), word_of(64 + i));
    assert_int_equal(in_file(100), 0);
    struct strata_zone_reclaim_stats reclaimed;
    assert_int_equal(strata_zone_reclaim_stats_get(zone, &reclaimed), STRATA_ZONE_OK);
    assert_true(reclaimed.written == 44 && reclaimed.unmapped == 45);

    make(64, 4);
    assert_int_equal(strata_zone_backing_read(zone, owner, frame_of[64], 4, 64), STRATA_ZONE_OK);
    for (uint64_t i = 0; i < 4; i++) assert_int_equal(strata_zone_peek(zone, frame_of[64] + i), word_of(64 + i));
    assert_true(stats().read == 4 && stats().read_errors == 0 && stats().bytes == BLOCKS * FRAME);
    /* Clean since: it goes without another write. */
    assert_int_equal(reclaim_all(), 4);
    assert_int_equal(stats().written, 44);
    assert_int_equal(strata_zone_backing_sync(zone, owner), STRATA_ZONE_OK);
    assert_int_equal(errno, 77);
}

/* After the zone has looked, before the owner has it: `dirty` does not know of it, and it is not lost. */
static void a_write_at_the_last_moment_is_written(void **state) {
    (void)state;
    assert_int_equal(strata_zone_backing_open(zone, owner, &plain), STRATA_ZONE_OK);
    make(7, 1);
    late_write = true;
    assert_int_equal(reclaim_all(), 1);
    assert_false(was_dirty);
    assert_int_equal(stats().written, 1);
    assert_int_equal(in_file(7), word_of(7));
}

static void what_cannot_be_written_stays(void **state) {
    (void)state;
    assert_int_equal(strata_zone_backing_open(zone, owner, &plain), STRATA_ZONE_OK);
    fill(0, 1);
    fill(1, 1);
    sim_fail_only(UINT64_C(1) << SIM_STORE_WRITE);
    sim_fail_call(1, SIM_FOREVER);
    assert_int_equal(reclaim_all(), 0);
    assert_true(failures != 0 && failures == told && last_error != 0 && last_error == EIO);
    assert_int_equal(strata_zone_peek(zone, frame_of[0]), word_of(0));
    assert_int_equal(strata_zone_peek(zone, frame_of[1]), word_of(1));
    assert_true(stats().write_errors == told && stats().written == 0);
    sim_fail_call(0, 0);
    strata_zone_touch(zone, frame_of[0], true); /* what a failed write was to take along */
    strata_zone_touch(zone, frame_of[1], true);
    assert_int_equal(reclaim_all(), 2);
    assert_int_equal(in_file(0), word_of(0));
    assert_int_equal(in_file(1), word_of(1));
}

static void a_full_disk_is_told(void **state) {
    (void)state;
    assert_int_equal(strata_zone_backing_open(zone, owner, &plain), STRATA_ZONE_OK);
    sim_store_set_room(10 * FRAME);
    fill(9, 1);
    fill(10, 1);
    assert_int_equal(reclaim_all(), 1);
    assert_true(failures != 0 && last_error == ENOSPC);
    assert_int_equal(frame_of[9], UINT64_MAX);
    assert_int_equal(strata_zone_peek(zone, frame_of[10]), word_of(10));
}

static void a_token_without_a_place_stays(void **state) {
    (void)state;
    assert_int_equal(strata_zone_backing_open(zone, owner, &plain), STRATA_ZONE_OK);
    fill(NOWHERE, 1);
    fill(BLOCKS - 1, 2); /* half of it would be behind the end */
    assert_int_equal(reclaim_all(), 0);
    assert_true(failures == told && told >= 2 && last_error == ENODATA);
    assert_true(stats().without_place == told && stats().write_errors == 0);
    assert_int_equal(strata_zone_peek(zone, frame_of[NOWHERE]), word_of(NOWHERE));
}

static void without_a_file_it_is_later(void **state) {
    (void)state;
    keeps_reach = true;
    fill(3, 1);
    assert_int_equal(reclaim_all(), 0);
    assert_true(asked != 0 && told == 0);
    struct strata_zone_reclaim_stats reclaimed;
    assert_int_equal(strata_zone_reclaim_stats_get(zone, &reclaimed), STRATA_ZONE_OK);
    assert_true(reclaimed.refused_later == asked);
}

static void a_block_may_be_freed_when_it_is_told(void **state) {
    (void)state;
    struct strata_zone_stats whole;
    frees = true;
    assert_int_equal(strata_zone_backing_open(zone, owner, &plain), STRATA_ZONE_OK);
    fill(0, 1);
    assert_int_equal(reclaim_all(), 1);
    fill(1, 1);
    sim_fail_only(UINT64_C(1) << SIM_STORE_WRITE);
    sim_fail_call(1, SIM_FOREVER);
    (void)reclaim_all();
    assert_int_equal(failures, 1);
    assert_int_equal(strata_zone_stats_get(zone, &whole), STRATA_ZONE_OK);
    assert_int_equal(whole.free, SUPERPAGES * PER_SUPERPAGE);
}

/* The file is the parent's, too: what the child writes there would be lost on the parent. */
static void a_forked_child_reads_and_writes_nothing(void **state) {
    (void)state;
    assert_int_equal(strata_zone_backing_open(zone, owner, &plain), STRATA_ZONE_OK);
    fill(0, 1);
    fill(1, 1);
    const struct strata_zone_capture_request first = {.frames = 1, .flags = STRATA_ZONE_CAPTURE_AT, .at = frame_of[0]};
    const struct strata_zone_capture_request second = {.frames = 1, .flags = STRATA_ZONE_CAPTURE_AT, .at = frame_of[1]};
    uint64_t frame;
    assert_int_equal(strata_zone_capture_run(zone, &first, &frame), STRATA_ZONE_OK);
    sim_fork_child();
    assert_int_equal(strata_zone_backing_read(zone, owner, frame, 1, 0), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_peek(zone, frame), word_of(0));
    uint64_t none;
    assert_int_equal(strata_zone_capture_run(zone, &second, &none), STRATA_ZONE_NO_FRAMES);
    assert_true(last_error == ENODATA && stats().without_place == 1 && in_file(1) == 0);
    assert_int_equal(strata_zone_peek(zone, frame_of[1]), word_of(1));
}

static void captures_and_areas_write_too(void **state) {
    (void)state;
    uint64_t frame;
    assert_int_equal(strata_zone_backing_open(zone, owner, &plain), STRATA_ZONE_OK);
    for (uint64_t token = 0; token < 20; token++) fill(token, 1);
    const struct strata_zone_capture_request wanted = {.frames = PER_SUPERPAGE,
                                                       .mobility = STRATA_ZONE_UNMOVABLE,
                                                       .flags = STRATA_ZONE_CAPTURE_AT,
                                                       .at = frame_of[0] / PER_SUPERPAGE * PER_SUPERPAGE};
    assert_int_equal(strata_zone_capture_run(zone, &wanted, &frame), STRATA_ZONE_OK);
    for (uint64_t token = 0; token < 20; token++) assert_int_equal(in_file(token), word_of(token));
    assert_int_equal(stats().written, 20);
    assert_int_equal(strata_zone_free(zone, frame, PER_SUPERPAGE), STRATA_ZONE_OK);

    assert_int_equal(strata_zone_reclaim_set_policy(zone, STRATA_ZONE_RECLAIM_AREA), STRATA_ZONE_OK);
    for (uint64_t token = 0; token < 20; token++) fill(token + 20, 1);
    uint64_t had;
    for (unsigned i = 0; i < 3; i++) (void)strata_zone_reclaim(zone, 20, 9, &had);
    for (uint64_t token = 20; token < 40; token++) assert_int_equal(in_file(token), word_of(token));
}

static void what_is_refused(void **state) {
    (void)state;
    struct strata_zone_backing_config config = plain;
    struct strata_zone_backing_stats now;
    char text[200];
    assert_int_equal(strata_zone_backing_open(NULL, owner, &plain), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_backing_open(zone, owner, NULL), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_backing_open(zone, 0, &plain), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_backing_open(zone, owner + 1, &plain), STRATA_ZONE_BAD_ARGUMENT);
    config.bytes = 0;
    assert_int_equal(strata_zone_backing_open(zone, owner, &config), STRATA_ZONE_BAD_ARGUMENT);
    (void)strata_zone_explain(zone, text, sizeof text);
    assert_string_equal(text, "strata_zone_backing_open: bytes = 0 (above 0)");
    assert_int_equal(strata_zone_backing_stats_get(zone, owner, &now), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_backing_sync(zone, owner), STRATA_ZONE_BAD_ARGUMENT);
    fill(0, 1);
    assert_int_equal(strata_zone_backing_read(zone, owner, frame_of[0], 1, 0), STRATA_ZONE_BAD_ARGUMENT);
    (void)strata_zone_explain(zone, text, sizeof text);
    assert_string_equal(text, "strata_zone_backing_read: owner = 1 (one with a file: strata_zone_backing_open)");
    assert_int_equal(errno, 77);

    sim_fail_only(UINT64_C(1) << SIM_RESERVE | UINT64_C(1) << SIM_COMMIT);
    for (unsigned n = 1; n <= 2; n++) {
        sim_fail_call(n, 1);
        assert_int_equal(strata_zone_backing_open(zone, owner, &plain), STRATA_ZONE_NO_MEMORY);
    }
    sim_fail_only(UINT64_C(1) << SIM_STORE_OPEN);
    sim_fail_call(1, 1);
    assert_int_equal(strata_zone_backing_open(zone, owner, &plain), STRATA_ZONE_FILE_ERROR);
    assert_int_equal(errno, EIO);
    sim_fail_call(0, 0);
    errno = 77;
    assert_int_equal(strata_zone_backing_open(zone, owner, &plain), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_backing_open(zone, owner, &plain), STRATA_ZONE_BUSY);
    assert_int_equal(strata_zone_backing_read(zone, owner, frame_of[0], 0, 0), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_backing_read(zone, owner, SUPERPAGES * PER_SUPERPAGE, 1, 0), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_backing_read(zone, owner, frame_of[0], 1, BLOCKS), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_backing_read(zone, owner, frame_of[0], 1, UINT64_MAX), STRATA_ZONE_BAD_ARGUMENT);
    assert_int_equal(strata_zone_backing_read(zone, owner, 0, 1, 0), STRATA_ZONE_NOT_ALLOCATED);
    assert_int_equal(strata_zone_backing_read(zone, owner, frame_of[0], 1, 0), STRATA_ZONE_OK);
    assert_int_equal(strata_zone_peek(zone, frame_of[0]), 0); /* what the file has there */
    sim_fail_only(UINT64_C(1) << SIM_STORE_READ | UINT64_C(1) << SIM_STORE_SYNC);
    sim_fail_call(1, 2);
    assert_int_equal(strata_zone_backing_read(zone, owner, frame_of[0], 1, 0), STRATA_ZONE_FILE_ERROR);
    assert_true(errno == EIO && stats().read_errors == 1);
    assert_int_equal(strata_zone_backing_sync(zone, owner), STRATA_ZONE_FILE_ERROR);
    sim_fail_call(0, 0);
    assert_string_equal(strata_zone_status_text(STRATA_ZONE_FILE_ERROR), "the file behind the blocks can't be had, read or written");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(what_is_dirty_is_written_and_read_again),
        TEST(a_write_at_the_last_moment_is_written),
        TEST(what_cannot_be_written_stays),
        TEST(a_full_disk_is_told),
        TEST(a_token_without_a_place_stays),
        TEST(without_a_file_it_is_later),
        TEST(a_block_may_be_freed_when_it_is_told),
        TEST(a_forked_child_reads_and_writes_nothing),
        TEST(captures_and_areas_write_too),
        TEST(what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
