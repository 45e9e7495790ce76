/*
 * test_sim_shared.c - memory at several addresses of the simulated machine: what a page shows, and writers that wait until they are woken.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "platform/sim/sim.h"

enum { PAGE = 4096, BYTES = 2 << 20 };

static struct platform_shared shared;
static struct platform_faults faults;
static char *window;

static int setup(void **state) {
    (void)state;
    sim_reset(NULL);
    sim_shared_offer(true);
    sim_faults_offer(PLATFORM_FAULTS_PROTECT);
    if (platform_shared_open(&shared, BYTES, false, "test") != PLATFORM_SHARED_OK) return -1;
    window = platform_reserve(NULL, 4 * PAGE, PAGE);
    return window != NULL && platform_faults_open(&faults, PLATFORM_FAULTS_PROTECT) == PLATFORM_FAULTS_OK ? 0 : -1;
}
static int teardown(void **state) {
    (void)state;
    platform_faults_close(&faults);
    platform_unreserve(window, 4 * PAGE);
    platform_shared_close(&shared);
    return 0;
}

static uint64_t read_at(const char *address) {
    uint64_t word = 0;
    assert_true(sim_shared_read(address, &word, sizeof word));
    return word;
}

static void there_is_none_unless_offered(void **state) {
    (void)state;
    struct platform_shared other;
    sim_reset(NULL);
    assert_int_equal(platform_shared_open(&other, BYTES, false, "test"), PLATFORM_SHARED_UNSUPPORTED);
    sim_shared_offer(true);
    assert_int_equal(platform_shared_open(&other, BYTES, true, "test"), PLATFORM_SHARED_UNSUPPORTED); /* huge pages: never */
}

static void pages_show_what_they_were_told_to(void **state) {
    (void)state;
    uint64_t word = 7;
    assert_false(sim_shared_read(window, &word, sizeof word));
    assert_true(platform_shared_show(&shared, 3 * PAGE, 2 * PAGE, window + PAGE));
    *(uint64_t *)(void *)(shared.base + 4 * PAGE) = 42;
    assert_int_equal(read_at(window + 2 * PAGE), 42);
    assert_true(sim_shared_write(window + PAGE, &word, sizeof word));
    assert_int_equal(*(uint64_t *)(void *)(shared.base + 3 * PAGE), 7);
    assert_true(platform_shared_show(&shared, 4 * PAGE, PAGE, window + PAGE)); /* in place of what is there */
    assert_int_equal(read_at(window + PAGE), 42);
    assert_true(platform_shared_hide(window + PAGE, PAGE));
    assert_false(sim_shared_read(window + PAGE, &word, sizeof word) || sim_shared_write(window + PAGE, &word, sizeof word));
    assert_int_equal(read_at(window + 2 * PAGE), 42);
}

static void a_page_that_is_shown_anew_is_nobodys(void **state) {
    (void)state;
    assert_true(platform_shared_show(&shared, 0, PAGE, window));
    assert_int_equal(platform_faults_register(&faults, window, PAGE, false, true), PLATFORM_FAULTS_OK);
    assert_int_equal(platform_faults_protect(&faults, window, PAGE, true), PLATFORM_FAULTS_OK);
    assert_true(sim_fault_protected(window));
    assert_true(platform_shared_show(&shared, PAGE, PAGE, window));
    assert_false(sim_fault_protected(window) || sim_fault_registered(window));
}

static void write_9(void *unused) {
    (void)unused;
    uint64_t word = 9;
    assert_true(sim_shared_write(window, &word, sizeof word));
}
/* Who protects, shows another page there, and wakes: the writer writes to that one. forgetful: without the wake. */
static void move_page(void *forgetful) {
    assert_true(platform_shared_show(&shared, PAGE, PAGE, window));
    if (forgetful == NULL) platform_faults_wake(&faults, window, PAGE);
}
static bool run_move(bool forgetful) {
    assert_true(platform_shared_show(&shared, 0, PAGE, window));
    assert_int_equal(platform_faults_register(&faults, window, PAGE, false, true), PLATFORM_FAULTS_OK);
    assert_int_equal(platform_faults_protect(&faults, window, PAGE, true), PLATFORM_FAULTS_OK);
    sim_thread_start(0, write_9, NULL);
    sim_thread_start(1, move_page, forgetful ? &shared : NULL);
    return sim_run_threads();
}
static void a_writer_waits_until_it_is_woken(void **state) {
    (void)state;
    assert_true(run_move(false));
    assert_int_equal(*(uint64_t *)(void *)shared.base, 0);
    assert_int_equal(read_at(window), 9);
}
static void nobody_wakes_a_writer_by_showing_another_page(void **state) {
    (void)state;
    assert_false(run_move(true));
    assert_int_equal(read_at(window), 0);
    sim_reset(NULL); /* ends the one that waits */
    (void)setup(NULL);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_is_none_unless_offered),      TEST(pages_show_what_they_were_told_to),
        TEST(a_page_that_is_shown_anew_is_nobodys),          TEST(a_writer_waits_until_it_is_woken),
        TEST(nobody_wakes_a_writer_by_showing_another_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
