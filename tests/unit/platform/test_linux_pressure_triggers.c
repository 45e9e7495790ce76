/*
 * test_linux_pressure_triggers.c - triggers (PSI) are set some seconds after their files were opened, because closing one takes a grace period of the
 * system, which the end of a process waits for.
 */
#define _GNU_SOURCE 1
#include "linux_pressure_kernel.h"

static unsigned triggers(bool set) {
    unsigned count = 0;
    for (unsigned i = 0; i < source_count; i++) count += sources[i].kind == SOURCE_PSI && (sources[i].trigger == NULL) == set;
    return count;
}

/* Files of a group of the test's, so that it does not depend on what the system has. */
static void open_pending(void) {
    put("memory.pressure", "");
    assert_true(open_wake_files());
    open_psi(&group);
    assert_int_equal(triggers(false), 2);
}

/* Closing one takes a grace period of the system: a process that is soon at its end has none, unless its program asks for reports. */
static void triggers_are_set_late(void **state) {
    (void)state;
    struct platform_event event = {0};
    bool woken;
    for (unsigned soon = 0; soon < 2; soon++) {
        uint64_t now_ns = platform_precise_ns();
        open_pending();
        triggers_due_ns = now_ns + TRIGGERS_AFTER_NS;
        assert_int_equal(platform_pressure_wait(&event, 0, &woken), PLATFORM_PRESSURE_NONE);
        assert_int_equal(triggers(true), 0);
        if (soon)
            platform_pressure_soon();
        else
            triggers_due_ns = now_ns; /* time has passed */
        assert_int_equal(platform_pressure_wait(&event, 0, &woken), PLATFORM_PRESSURE_NONE);
        assert_int_equal(triggers(true), 2);
        assert_int_equal(triggers_due_ns, 0);
        platform_pressure_soon(); /* they are set: nothing to do */
        assert_int_equal(triggers_due_ns, 0);
        platform_pressure_close();
    }
    platform_pressure_soon();
    assert_int_equal(triggers_due_ns, 0);
}

/* Whatever the system has: none is set by opening, and where there are files for them, they are due later. */
static void opening_sets_none(void **state) {
    (void)state;
    uint64_t before_ns = platform_precise_ns();
    assert_true(platform_pressure_open());
    assert_int_equal(triggers(true), 0);
    assert_true(triggers(false) == 0 ? triggers_due_ns == 0 : triggers_due_ns >= before_ns + TRIGGERS_AFTER_NS);
}

/* Poll would say at once that a file without a trigger is in error. */
static void files_without_triggers_are_not_polled(void **state) {
    (void)state;
    open_pending();
    prepared[0] = prepared[1] = NOTIFIED;
    assert_int_equal(poll_sources(0, false), PLATFORM_PRESSURE_NONE);
    assert_int_equal(source_count, 2);
    assert_int_equal(write_triggers(), 2);
    prepared[0] = prepared[1] = POLLPRI;
    assert_int_equal(poll_sources(0, false), PLATFORM_PRESSURE_CRITICAL);
}

/* What the program has closed, and perhaps opened for itself, is not written to; where the group's file takes no trigger, the system's is tried. */
static void triggers_go_to_our_files_alone(void **state) {
    (void)state;
    char text[17];
    open_pending();
    int number = sources[0].file.number, file = foreign_file();
    assert_int_equal(dup2(file, number), number);
    close(file);
    assert_int_equal(write_triggers(), 1);
    assert_int_equal(source_count, 1);
    assert_int_equal(read(number, text, sizeof text), sizeof text);
    assert_memory_equal(text, "high 100\nmax 100\n", sizeof text);
    close(number);
    platform_pressure_close();
    assert_true(open_wake_files());
    char path[CGROUP_PATH_BYTES + 64];
    path_of("memory.pressure", path, sizeof path);
    add_psi(open(path, O_RDONLY), PSI_SOME, PLATFORM_PRESSURE_SOME);
    set_triggers();
    assert_int_equal(triggers(true), source_count); /* the file that takes none is gone */
    assert_int_equal(triggers(false), 0);
}

/* Nobody sleeps beyond the time at which they are to be set, and who has slept so far sleeps on. */
static void sleeps_are_cut_where_triggers_are_due(void **state) {
    (void)state;
    struct platform_event event = {0};
    bool woken;
    open_pending();
    uint64_t start_ns = platform_precise_ns();
    triggers_due_ns = start_ns + 200 * NS_PER_MS;
    polls_sleep = true;
    polls = 0;
    assert_int_equal(platform_pressure_wait(&event, 300 * NS_PER_MS, &woken), PLATFORM_PRESSURE_NONE);
    assert_int_equal(polls, 2);
    assert_int_equal(triggers_due_ns, 0);
    assert_true(platform_precise_ns() - start_ns >= 300 * NS_PER_MS);
}

/* After a program has closed our files, triggers are set again at once where they were. */
static void lost_triggers_come_back(void **state) {
    (void)state;
    struct platform_event event = {0};
    bool woken;
    assert_true(platform_pressure_open());
    unsigned files = triggers(false);
    platform_pressure_soon();
    assert_int_equal(platform_pressure_wait(&event, 0, &woken), PLATFORM_PRESSURE_NONE);
    close(poll_file.number);
    assert_int_equal(platform_pressure_wait(&event, 0, &woken), PLATFORM_PRESSURE_NONE);
    assert_int_equal(triggers(true), files);
    assert_int_equal(triggers(false), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_GROUP(triggers_are_set_late),
        IN_GROUP(opening_sets_none),
        IN_GROUP(files_without_triggers_are_not_polled),
        IN_GROUP(triggers_go_to_our_files_alone),
        IN_GROUP(sleeps_are_cut_where_triggers_are_due),
        IN_GROUP(lost_triggers_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
