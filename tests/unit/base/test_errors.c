/*
 * test_errors.c - lines on the sink, and the end of a process: log_line, fatal, CHECK.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"

static char lines[4096];
static size_t lines_bytes;
static unsigned writes, deaths;
static jmp_buf after_death;

static void collect(const char *text, size_t bytes) {
    assert_true(lines_bytes + bytes < sizeof lines);
    memcpy(lines + lines_bytes, text, bytes);
    lines_bytes += bytes;
    lines[lines_bytes] = 0;
    writes++;
}
static void die(void) {
    deaths++;
    longjmp(after_death, 1);
}

static void new_sink(void) {
    static const struct check_sink sink = {.write = collect, .die = die};
    check_set_sink(&sink);
    lines[0] = 0;
    lines_bytes = writes = deaths = 0;
}

static void a_line_is_written_whole(void **state) {
    (void)state;
    new_sink();
    log_line("STRATA_CONF: %s: unknown option", "decay");
    assert_string_equal(lines, "strata: STRATA_CONF: decay: unknown option\n");
    log_line("second");
    assert_string_equal(lines, "strata: STRATA_CONF: decay: unknown option\nstrata: second\n");
    assert_int_equal(writes, 2);                     /* one each, so that lines of several processes do not mix */
    log_line("cache %s", "a\nb\x1b[1m\x7f\xc3\xa9"); /* one, whatever is in it */
    assert_non_null(strstr(lines, "second\nstrata: cache a?b?[1m?\xc3\xa9\n"));
    assert_int_equal(deaths, 0);
}

/* From texts that fit to texts that do not: there is always one line, with its end. */
static void a_long_line_is_cut(void **state) {
    (void)state;
    static char text[1024];
    size_t longest = 0;
    for (size_t length = 1; length < sizeof text; length++) {
        memset(text, 'x', length);
        text[length] = 0;
        new_sink();
        log_line("%s", text);
        assert_int_equal(writes, 1);
        assert_int_equal(strncmp(lines, "strata: x", 9), 0);
        assert_int_equal(strspn(lines + 8, "x"), lines_bytes - 9);
        assert_int_equal(lines[lines_bytes - 1], '\n');
        assert_true(lines_bytes <= 512);
        if (lines_bytes == length + 9) longest = length;
    }
    assert_true(longest >= 480); /* a path and more */
}

static void fatal_writes_and_ends(void **state) {
    (void)state;
    new_sink();
    if (setjmp(after_death) == 0) {
        fatal("free(): %p: not a pointer of this heap", (void *)0x1230);
        fail();
    }
    assert_string_equal(lines, "strata: free(): 0x1230: not a pointer of this heap\n");
    assert_int_equal(deaths, 1);
}

static void checks_name_what_does_not_hold(void **state) {
    (void)state;
    volatile int one = 1;
    new_sink();
    CHECK(one == 1);
    assert_int_equal(writes, 0);
    if (setjmp(after_death) == 0) {
        CHECK(one == 2);
        fail();
    }
    assert_int_equal(deaths, 1);
    assert_int_equal(strncmp(lines, "strata: internal error at ", 26), 0);
    assert_non_null(strstr(lines, "test_errors.c:"));
    assert_non_null(strstr(lines, ": one == 2 does not hold\n"));
}

/* Before the sink is set, or with one whose death returns, there is no way on either. */
static void go_on(void) {}
static void ignore(const char *text, size_t bytes) { (void)text, (void)bytes; }
static void a_process_ends_without_a_sink_too(void **state) {
    (void)state;
    static const struct check_sink sinks[] = {{NULL, NULL}, {ignore, go_on}};
    for (unsigned i = 0; i < ARRAY_LENGTH(sinks); i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            signal(SIGILL, SIG_DFL); /* cmocka would go on with the tests */
            signal(SIGTRAP, SIG_DFL);
            setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
            check_set_sink(&sinks[i]);
            log_line("no one reads this");
            void (*volatile end)(const char *, ...) = fatal; /* so that a return would be seen */
            end("nor this");
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_written_whole),
        cmocka_unit_test(a_long_line_is_cut),
        cmocka_unit_test(fatal_writes_and_ends),
        cmocka_unit_test(checks_name_what_does_not_hold),
        cmocka_unit_test(a_process_ends_without_a_sink_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
