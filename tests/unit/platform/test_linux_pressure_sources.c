/*
 * test_linux_pressure_sources.c - what each kind of source makes of a report: triggers (PSI), memory.events, levels and thresholds.
 * When triggers are set: test_linux_pressure_triggers.c.
 */
#define _GNU_SOURCE 1
#include "linux_pressure_kernel.h"

static enum platform_pressure asked(struct source *source, short flags) {
    enum platform_pressure pressure = (enum platform_pressure)77;
    assert_true(ask_source(source, flags, &pressure));
    return pressure;
}

static void assert_lost(struct source *source, short flags) {
    enum platform_pressure pressure = (enum platform_pressure)77;
    assert_false(ask_source(source, flags, &pressure));
    assert_int_equal(pressure, PLATFORM_PRESSURE_NONE);
}

/* ------------------------------------------------------------------ triggers */

static void triggers_are_written_whole(void **state) {
    (void)state;
    static const char wanted[] = "some 150000 2000000\0full 100000 2000000";
    char text[128];
    int fifo = make_fifo("memory.pressure");
    open_psi(&group);
    assert_int_equal(read(fifo, text, sizeof text), -1); /* nothing yet */
    assert_int_equal(write_triggers(), 2);
    assert_int_equal(write_triggers(), 0);
    assert_int_equal(read(fifo, text, sizeof text), sizeof wanted);
    assert_memory_equal(text, wanted, sizeof wanted);
    close(fifo);
    assert_int_equal(source_count, 2);
    for (unsigned i = 0; i < 2; i++) assert_int_equal(sources[i].kind, SOURCE_PSI);
    assert_int_equal(asked(&sources[0], POLLPRI), PLATFORM_PRESSURE_SOME);
    assert_int_equal(asked(&sources[1], POLLPRI), PLATFORM_PRESSURE_CRITICAL);
}

static void a_trigger_goes_with_its_group(void **state) {
    (void)state;
    put("memory.pressure", "");
    open_psi(&group);
    assert_int_equal(source_count, 2);
    assert_lost(&sources[0], NOTIFIED);
    assert_lost(&sources[0], POLLERR);
    assert_lost(&sources[0], POLLNVAL);
    assert_int_equal(asked(&sources[0], POLLPRI), PLATFORM_PRESSURE_SOME);
}

/* ------------------------------------------------------------------ memory.events */

static struct source *events_source(const char *text) {
    put("memory.events", text);
    open_events(&group);
    assert_int_equal(source_count, 1);
    assert_int_equal(sources[0].kind, SOURCE_EVENTS);
    return &sources[0];
}

static void events_count_from_where_they_stood(void **state) {
    (void)state;
    struct source *source = events_source("low 9\nhigh 5\nmax 3\noom 1\noom_kill 1\n");
    assert_int_equal(asked(source, NOTIFIED), PLATFORM_PRESSURE_NONE);
    put("memory.events", "low 99\nhigh 5\nmax 3\noom 1\noom_kill 8\n"); /* nothing of these two is pressure */
    assert_int_equal(asked(source, NOTIFIED), PLATFORM_PRESSURE_NONE);
    put("memory.events", "low 99\nhigh 6\nmax 3\noom 1\noom_kill 8\n");
    assert_int_equal(asked(source, NOTIFIED), PLATFORM_PRESSURE_SOME);
    assert_int_equal(asked(source, NOTIFIED), PLATFORM_PRESSURE_NONE); /* told once */
    put("memory.events", "low 99\nhigh 6\nmax 4\noom 1\noom_kill 8\n");
    assert_int_equal(asked(source, POLLPRI), PLATFORM_PRESSURE_CRITICAL);
    put("memory.events", "low 99\nhigh 6\nmax 4\noom 2\noom_kill 8\n");
    assert_int_equal(asked(source, NOTIFIED), PLATFORM_PRESSURE_CRITICAL);
    put("memory.events", "low 99\nhigh 7\nmax 5\noom 2\noom_kill 8\n"); /* the stronger of the two */
    assert_int_equal(asked(source, NOTIFIED), PLATFORM_PRESSURE_CRITICAL);
    assert_int_equal(asked(source, NOTIFIED), PLATFORM_PRESSURE_NONE);
}

/* As reading the file of a removed group does; a directory can't be read either. */
static void events_of_a_lost_group_end(void **state) {
    (void)state;
    struct source *source = add_source(SOURCE_EVENTS, PLATFORM_PRESSURE_NONE, open(group.path, O_RDONLY | O_DIRECTORY));
    assert_non_null(source);
    assert_lost(source, NOTIFIED);
    platform_pressure_close();
    open_events(&group); /* no such file */
    assert_int_equal(source_count, 0);
}

/* ------------------------------------------------------------------ eventfds */

static void levels_and_thresholds_are_registered(void **state) {
    (void)state;
    char text[256], limit[32], wanted[2][32];
    uint64_t bytes = 64 * MIB;
    int event, file, used = 0;
    int control = make_fifo("cgroup.event_control");
    group.version = 1;
    snprintf(limit, sizeof limit, "%llu\n", (unsigned long long)bytes);
    put("memory.limit_in_bytes", limit);
    put("memory.usage_in_bytes", "0\n");
    put("memory.pressure_level", "");
    open_groups(&group);
    ssize_t length = read(control, text, sizeof text - 1);
    close(control);
    assert_true(length > 0);
    text[length] = 0;
    snprintf(wanted[0], sizeof wanted[0], "%llu", (unsigned long long)(60 * MIB));
    snprintf(wanted[1], sizeof wanted[1], "%llu", (unsigned long long)(56 * MIB));
    const char *const arguments[4] = {wanted[0], wanted[1], "critical", "medium"};
    const char *at = text;
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(sscanf(at, "%d %d %n", &event, &file, &used), 2);
        assert_true(event >= 0 && file >= 0 && event != file);
        at += used;
        assert_int_equal(strncmp(at, arguments[i], strlen(arguments[i])), 0);
        at += strlen(arguments[i]);
    }
    assert_int_equal(*at, 0);
    assert_int_equal(source_count, 4);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(sources[i].kind, SOURCE_LEVEL);
        assert_int_equal(sources[i].pressure, i % 2 == 0 ? PLATFORM_PRESSURE_CRITICAL : PLATFORM_PRESSURE_SOME);
    }
}

/* No limit, so no threshold; and no source is left of a registration that fails. */
static void a_group_without_limit_has_levels_only(void **state) {
    (void)state;
    char path[CGROUP_PATH_BYTES + 64];
    int control = make_fifo("cgroup.event_control");
    group.version = 1;
    put("memory.usage_in_bytes", "0\n");
    put("memory.pressure_level", "");
    open_groups(&group);
    assert_int_equal(source_count, 2);
    close(control);
    platform_pressure_close();
    path_of("cgroup.event_control", path, sizeof path);
    assert_int_equal(unlink(path), 0);
    put("memory.limit_in_bytes", "67108864\n");
    unsigned before = open_files();
    open_groups(&group);
    assert_int_equal(source_count, 0);
    assert_int_equal(open_files(), before);
}

static void eventfds_tell_once(void **state) {
    (void)state;
    uint64_t one = 1;
    struct source *source = add_source(SOURCE_LEVEL, PLATFORM_PRESSURE_CRITICAL, eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    assert_non_null(source);
    assert_int_equal(asked(source, POLLIN), PLATFORM_PRESSURE_NONE); /* a report that nobody made */
    for (unsigned i = 0; i < 3; i++) assert_int_equal(write(source->file.number, &one, sizeof one), sizeof one);
    assert_int_equal(asked(source, POLLIN), PLATFORM_PRESSURE_CRITICAL);
    assert_int_equal(asked(source, POLLIN), PLATFORM_PRESSURE_NONE);
    assert_lost(source, POLLERR);
    assert_lost(source, POLLHUP);
    assert_lost(source, POLLIN | POLLNVAL);
    /* What a source has to say at its end is still heard. */
    enum platform_pressure pressure;
    assert_int_equal(write(source->file.number, &one, sizeof one), sizeof one);
    assert_false(ask_source(source, POLLIN | POLLHUP, &pressure));
    assert_int_equal(pressure, PLATFORM_PRESSURE_CRITICAL);
}

/* ------------------------------------------------------------------ all of them together */

/* Sources 0, 1: PSI; 2: events; 3: eventfd. */
static void open_all_kinds(void) {
    put("memory.pressure", "");
    put("memory.events", "high 0\nmax 0\n");
    assert_true(open_wake_files());
    open_psi(&group);
    assert_int_equal(write_triggers(), 2);
    open_events(&group);
    add_source(SOURCE_LEVEL, PLATFORM_PRESSURE_SOME, eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    assert_int_equal(source_count, 4);
}

static void the_programs_own_files_are_left_alone(void **state) {
    (void)state;
    uint64_t one = 1, count = 0;
    char text[17];
    int numbers[4];
    open_all_kinds();
    for (unsigned i = 0; i < 4; i++) numbers[i] = sources[i].file.number;
    for (unsigned i = 0; i < 3; i++) {
        int file = foreign_file();
        assert_int_equal(dup2(file, numbers[i]), numbers[i]);
        close(file);
    }
    /* A pipe, not an eventfd: the kernel gives all of those one inode. */
    int pipes[2];
    assert_int_equal(pipe2(pipes, O_NONBLOCK), 0);
    assert_int_equal(write(pipes[1], &one, sizeof one), sizeof one);
    assert_int_equal(dup2(pipes[0], numbers[3]), numbers[3]);
    for (unsigned i = 0; i < 4; i++) prepared[i] = POLLPRI | POLLIN;
    assert_int_equal(poll_sources(0, false), PLATFORM_PRESSURE_NONE);
    assert_int_equal(source_count, 0); /* all forgotten */
    for (unsigned i = 0; i < 3; i++) { /* not closed, not read, not written */
        assert_int_equal(lseek(numbers[i], 0, SEEK_CUR), 0);
        assert_int_equal(read(numbers[i], text, sizeof text), sizeof text);
        assert_memory_equal(text, "high 100\nmax 100\n", sizeof text);
        close(numbers[i]);
    }
    assert_int_equal(read(numbers[3], &count, sizeof count), sizeof count);
    assert_int_equal(count, 1);
    close(numbers[3]), close(pipes[0]), close(pipes[1]);
}

static void the_strongest_report_counts(void **state) {
    (void)state;
    open_all_kinds();
    assert_int_equal(poll_sources(0, false), PLATFORM_PRESSURE_NONE);
    for (unsigned i = 0; i < 4; i++) { /* none of these is what the source waits for */
        prepared[i] = i == 3 ? POLLPRI : POLLIN;
    }
    put("memory.events", "high 1\nmax 0\n");
    assert_int_equal(poll_sources(0, false), PLATFORM_PRESSURE_NONE);
    memset(prepared, 0, sizeof prepared);
    prepared[2] = NOTIFIED;
    assert_int_equal(poll_sources(0, false), PLATFORM_PRESSURE_SOME);
    prepared[2] = 0;
    prepared[0] = POLLPRI;
    assert_int_equal(poll_sources(0, false), PLATFORM_PRESSURE_SOME);
    prepared[1] = POLLPRI;
    assert_int_equal(poll_sources(0, false), PLATFORM_PRESSURE_CRITICAL);
    assert_int_equal(poll_sources(0, true), PLATFORM_PRESSURE_NONE); /* muted */
    assert_int_equal(poll_sources(0, false), PLATFORM_PRESSURE_CRITICAL);
    assert_int_equal(source_count, 4);
}

/* The group is removed: its triggers and events end, the rest goes on; without any source it is a plain wait. */
static void lost_groups_leave_the_others(void **state) {
    (void)state;
    uint64_t one = 1;
    open_all_kinds();
    int directory = open(group.path, O_RDONLY | O_DIRECTORY);
    drop_source(2); /* the eventfd takes the free place */
    assert_int_equal(sources[2].kind, SOURCE_LEVEL);
    assert_non_null(add_source(SOURCE_EVENTS, PLATFORM_PRESSURE_NONE, directory));
    int numbers[4];
    for (unsigned i = 0; i < 4; i++) numbers[i] = sources[i].file.number;
    assert_int_equal(write(numbers[2], &one, sizeof one), sizeof one);
    prepared[0] = prepared[1] = prepared[3] = NOTIFIED;
    prepared[2] = POLLIN;
    assert_int_equal(poll_sources(0, false), PLATFORM_PRESSURE_SOME);
    assert_int_equal(source_count, 1);
    assert_int_equal(sources[0].file.number, numbers[2]);
    for (unsigned i = 0; i < 4; i++) assert_int_equal(fcntl(numbers[i], F_GETFD) >= 0, i == 2); /* closed */
    struct platform_event event = {0};
    bool woken;
    prepared[0] = POLLHUP;
    assert_int_equal(platform_pressure_wait(&event, 1000000, &woken), PLATFORM_PRESSURE_NONE);
    assert_false(woken);
    assert_int_equal(source_count, 0);
    polls = 0;
    platform_event_wake(&event);
    assert_int_equal(platform_pressure_wait(&event, UINT64_MAX, &woken), PLATFORM_PRESSURE_NONE);
    assert_true(woken);
    assert_int_equal(polls, 0);
}

/* After a report the sources are muted for a time, but what they have to say is kept for later. */
static void reports_keep_their_distance(void **state) {
    (void)state;
    struct platform_event event = {0};
    bool woken;
    open_all_kinds();
    prepared[2] = NOTIFIED;
    put("memory.events", "high 1\nmax 0\n");
    assert_int_equal(platform_pressure_wait(&event, 0, &woken), PLATFORM_PRESSURE_SOME);
    assert_false(woken);
    assert_true(quiet_until_ns > 0 && quiet_until_ns <= platform_precise_ns() + REPORT_INTERVAL_NS);
    put("memory.events", "high 1\nmax 1\n");
    quiet_until_ns = UINT64_MAX;
    assert_int_equal(platform_pressure_wait(&event, 0, &woken), PLATFORM_PRESSURE_NONE);
    quiet_until_ns = 0;
    assert_int_equal(platform_pressure_wait(&event, 0, &woken), PLATFORM_PRESSURE_CRITICAL);
    quiet_until_ns = 0;
    put("memory.events", "high 2\nmax 1\n");
    errno = 77;
    assert_int_equal(platform_pressure_wait(&event, UINT64_MAX, &woken), PLATFORM_PRESSURE_SOME);
    assert_int_equal(errno, 77);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_GROUP(triggers_are_written_whole),   IN_GROUP(a_trigger_goes_with_its_group),         IN_GROUP(events_count_from_where_they_stood),
        IN_GROUP(events_of_a_lost_group_end),   IN_GROUP(levels_and_thresholds_are_registered),  IN_GROUP(a_group_without_limit_has_levels_only),
        IN_GROUP(eventfds_tell_once),           IN_GROUP(the_programs_own_files_are_left_alone), IN_GROUP(the_strongest_report_counts),
        IN_GROUP(lost_groups_leave_the_others), IN_GROUP(reports_keep_their_distance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
