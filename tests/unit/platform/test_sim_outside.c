/*
 * test_sim_outside.c - the surroundings of a simulated process: output, death, environment, files, clock.
 */
#include "base/check.h"
#include "sim_test.h"

static void output_is_kept(void **state) {
    (void)state;
    sim_reset(NULL);
    assert_string_equal(sim_output(), "");
    platform_write_error("one ", 4);
    platform_write_error("two...", 3);
    assert_string_equal(sim_output(), "one two");
    sim_output_clear();
    assert_string_equal(sim_output(), "");
    log_line("%s %u", "three", 3u); /* sim_reset has pointed the sink here */
    assert_string_equal(sim_output(), "strata: three 3\n");
    sim_reset(NULL);
    assert_string_equal(sim_output(), "");
}

static void output_is_cut_not_overrun(void **state) {
    (void)state;
    static char block[4096];
    memset(block, 'x', sizeof block);
    sim_reset(NULL);
    for (unsigned i = 0; i < 100; i++) platform_write_error(block, sizeof block);
    assert_int_equal(strlen(sim_output()), 256 * KIB - 1);
}

static void die_of(void *argument) { fatal("because of %s", (const char *)argument); }
static void live(void *argument) { *(int *)argument = 1; }
static void die_within(void *argument) {
    *(bool *)argument = sim_dies(die_of, argument);
    platform_die();
}

static void deaths_are_caught(void **state) {
    (void)state;
    sim_reset(NULL);
    char reason[] = "a test";
    assert_dies(die_of, reason, "strata: because of a test\n");
    int lived = 0;
    assert_false(sim_dies(live, &lived));
    assert_int_equal(lived, 1);
    bool inner = false;
    assert_true(sim_dies(die_within, &inner));
    assert_true(inner);
}

/* A framework that jumps out of sim_dies leaves a catch behind, which sim_reset must drop. */
static jmp_buf out;
static void jump_out(void *argument) {
    (void)argument;
    longjmp(out, 1);
}

static void leave_catch_behind(void) {
    if (setjmp(out) == 0) sim_dies(jump_out, NULL);
}

static void left_catches_are_dropped(void **state) {
    (void)state;
    char reason[] = "another test";
    for (unsigned i = 0; i < 20; i++) { /* more than there is room for */
        leave_catch_behind();
        sim_reset(NULL);
    }
    assert_dies(die_of, reason, "another test");
}

static void environment_is_ours(void **state) {
    (void)state;
    sim_reset(NULL);
    assert_null(platform_getenv("PATH"));
    sim_env_set("STRATA_CONF", "stats:json");
    sim_env_set("OTHER", "");
    assert_string_equal(platform_getenv("STRATA_CONF"), "stats:json");
    assert_string_equal(platform_getenv("OTHER"), "");
    assert_null(platform_getenv("STRATA"));
    sim_env_set("STRATA_CONF", "x");
    assert_string_equal(platform_getenv("STRATA_CONF"), "x");
    sim_env_set("STRATA_CONF", NULL);
    sim_env_set("STRATA_CONF", NULL);
    assert_null(platform_getenv("STRATA_CONF"));
    assert_string_equal(platform_getenv("OTHER"), "");
    sim_reset(NULL);
    assert_null(platform_getenv("OTHER"));
}

static void files_are_kept(void **state) {
    (void)state;
    sim_reset(NULL);
    assert_null(sim_file_text("a", NULL));
    int a = platform_file_create("a"), b = platform_file_create("b");
    assert_true(a >= 0 && b >= 0 && a != b);
    assert_true(platform_file_write(a, "12", 2) && platform_file_write(b, "x", 1) && platform_file_write(a, "34", 2));
    size_t bytes = 0;
    assert_string_equal(sim_file_text("a", &bytes), "1234");
    assert_int_equal(bytes, 4);
    assert_string_equal(sim_file_text("b", NULL), "x");
    platform_file_close(a);
    a = platform_file_create("a"); /* truncated */
    assert_string_equal(sim_file_text("a", &bytes), "");
    assert_int_equal(bytes, 0);
    assert_int_equal(platform_file_create(""), -1);
    sim_reset(NULL);
    assert_null(sim_file_text("b", NULL));
}

static void write_to_closed(void *argument) { platform_file_write(*(int *)argument, "x", 1); }
static void close_what_is_not_open(void *argument) {
    (void)argument;
    platform_file_close(3);
}

static void misuse_dies(void **state) {
    (void)state;
    sim_reset(NULL);
    int file = platform_file_create("a");
    platform_file_close(file);
    assert_dies(write_to_closed, &file, "not an open file");
    assert_dies(close_what_is_not_open, NULL, "not an open file");
}

static void the_clock_moves_by_hand(void **state) {
    (void)state;
    sim_reset(NULL);
    uint64_t start_ns = platform_now_ns();
    assert_true(start_ns > 0);
    assert_int_equal(platform_now_ns(), start_ns);
    sim_clock_advance(5);
    assert_int_equal(platform_now_ns(), start_ns + 5);
    sim_reset(NULL);
    assert_int_equal(platform_now_ns(), start_ns);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_is_kept),      cmocka_unit_test(output_is_cut_not_overrun),
        cmocka_unit_test(deaths_are_caught),   cmocka_unit_test(left_catches_are_dropped),
        cmocka_unit_test(environment_is_ours), cmocka_unit_test(files_are_kept),
        cmocka_unit_test(misuse_dies),         cmocka_unit_test(the_clock_moves_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
