/*
 * test_linux_output.c - what leaves the process on Linux: error lines whole, death by SIGABRT whatever stands in the way, files, environment.
 */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "linux_test.h"

static char directory[] = "/tmp/strata-output-XXXXXX";
static char path[128], other_path[128];

static int make_directory(void **state) {
    (void)state;
    platform_init();
    if (mkdtemp(directory) == NULL) return -1;
    snprintf(path, sizeof path, "%s/file", directory);
    snprintf(other_path, sizeof other_path, "%s/other", directory);
    return 0;
}

static int remove_directory(void **state) {
    (void)state;
    unlink(path);
    unlink(other_path);
    return rmdir(directory);
}

/* ------------------------------------------------------------------ standard error */

#define TEXT_BYTES (1 * MIB)
static char text[TEXT_BYTES];

static void *read_slowly(void *file) {
    static char got[TEXT_BYTES];
    size_t length = 0;
    ssize_t count;
    while ((count = read(*(int *)file, got + length, min_u64(3000, TEXT_BYTES - length))) != 0) {
        if (count > 0) length += (size_t)count;
        if (length % 7 == 0) usleep(50);
    }
    return length == TEXT_BYTES && memcmp(got, text, TEXT_BYTES) == 0 ? got : NULL;
}

static void do_nothing(int number) { (void)number; }

static void write_whole(bool waits) {
    int ends[2], saved = dup(STDERR_FILENO);
    pthread_t reader;
    void *right;
    for (size_t i = 0; i < TEXT_BYTES; i++) text[i] = (char)(i * 31 >> 3);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    if (!waits) assert_int_equal(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    /* Interrupts make writes end early, or not begin at all. The reader is spared. */
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm_only, NULL);
    assert_int_equal(pthread_create(&reader, NULL, read_slowly, &ends[0]), 0);
    pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
    struct sigaction action = {.sa_handler = do_nothing};
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    setitimer(ITIMER_REAL, &often, NULL);
    errno = 77;
    platform_write_error(text, TEXT_BYTES);
    int error = errno;
    setitimer(ITIMER_REAL, &never, NULL);
    dup2(saved, STDERR_FILENO);
    close(saved);
    pthread_join(reader, &right);
    close(ends[0]);
    assert_non_null(right);
    assert_int_equal(error, 77);
}

/* Also where whoever shares standard error has set it not to wait for its reader. */
static void lines_are_written_whole(void **state) {
    (void)state;
    write_whole(true);
    write_whole(false);
}

static void write_to_who_does_not_read(void *unused) {
    int ends[2];
    (void)unused;
    EXPECT(pipe2(ends, O_NONBLOCK) == 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    uint64_t before_ns = platform_precise_ns();
    platform_write_error(text, TEXT_BYTES);
    EXPECT(platform_precise_ns() - before_ns < UINT64_C(10000000000));
    /* Files that are not standard error tell their caller at once. */
    before_ns = platform_precise_ns();
    EXPECT(!platform_file_write(ends[1], "x", 1) && platform_precise_ns() - before_ns < UINT64_C(500000000));
}

static void who_does_not_read_is_not_waited_for_long(void **state) {
    (void)state;
    assert_int_equal(child_status(write_to_who_does_not_read, NULL), 0);
}

static void write_to_nowhere(void *unused) {
    (void)unused;
    close(STDERR_FILENO);
    errno = 77;
    platform_write_error("x", 1);
    EXPECT(errno == 77);
}

static void a_closed_stream_is_no_error(void **state) {
    (void)state;
    assert_int_equal(child_status(write_to_nowhere, NULL), 0);
}

/* As behind a pipe whose reader has ended. */
static void write_to_nobody(void *unused) {
    int ends[2];
    sigset_t signals;
    (void)unused;
    EXPECT(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO && close(ends[0]) == 0 && close(ends[1]) == 0);
    for (unsigned blocked = 0; blocked < 2; blocked++) {
        errno = 77;
        platform_write_error("x", 1);
        EXPECT(!platform_file_write(STDERR_FILENO, "x", 1) && errno == 77);
        EXPECT(pthread_sigmask(SIG_SETMASK, NULL, &signals) == 0 && (unsigned)sigismember(&signals, SIGPIPE) == blocked);
        EXPECT(sigpending(&signals) == 0 && sigismember(&signals, SIGPIPE) == 0);
        sigemptyset(&signals);
        sigaddset(&signals, SIGPIPE);
        EXPECT(pthread_sigmask(SIG_BLOCK, &signals, NULL) == 0);
    }
}

static void a_stream_without_a_reader_ends_nothing(void **state) {
    (void)state;
    assert_int_equal(child_status(write_to_nobody, NULL), 0);
}

static STRATA_NOINLINE void litter_the_stack(void) {
    volatile unsigned char litter[4 * KIB];
    for (size_t i = 0; i < sizeof litter; i++) litter[i] = 0xa5;
}

/* As behind Tor's filter, which lets masks be set, but not added to: the thread's stays what it was. */
static void write_where_no_signal_can_be_held(void *unused) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SIG_BLOCK, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    const struct sock_fprog filter = {sizeof steps / sizeof steps[0], steps};
    sigset_t before, now;
    (void)unused;
    EXPECT(dup2(open("/dev/null", O_WRONLY), STDERR_FILENO) == STDERR_FILENO);
    EXPECT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
    EXPECT(pthread_sigmask(SIG_SETMASK, NULL, &before) == 0);
    litter_the_stack();
    platform_write_error("x", 1);
    EXPECT(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0);
    for (int number = 1; number < NSIG; number++) EXPECT(sigismember(&now, number) == sigismember(&before, number));
}

static void a_filter_that_lets_no_signal_be_held_changes_no_mask(void **state) {
    (void)state;
    assert_int_equal(child_status(write_where_no_signal_can_be_held, NULL), 0);
}

/* As at the end of coreutils, which close both streams in an exit handler. */
static void speak_after_closing(void *unused) {
    char said[4];
    int ends[2];
    (void)unused;
    EXPECT(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    errno = 77;
    platform_error_keep();
    EXPECT(platform_error_file() == STDERR_FILENO);
    close(STDERR_FILENO);
    int kept = platform_error_file();
    EXPECT(kept >= 40 && (fcntl(kept, F_GETFD) & FD_CLOEXEC) != 0);
    EXPECT(platform_file_write(kept, "ab", 2) && read(ends[0], said, sizeof said) == 2);
    /* The program takes the number for a file of its own. */
    int other = open("/dev/null", O_WRONLY);
    EXPECT(dup2(other, kept) == kept && close(other) == 0); /* other was number 2 */
    EXPECT(platform_error_file() == -1);
    close(kept);
    EXPECT(platform_error_file() == -1 && errno == 77);
}

/* Where the process may have no number as high as ours. */
static void keep_among_few(void *unused) {
    (void)unused;
    EXPECT(setrlimit(RLIMIT_NOFILE, &(struct rlimit){30, 30}) == 0);
    platform_error_keep();
    close(STDERR_FILENO);
    EXPECT(platform_error_file() > STDERR_FILENO && platform_error_file() < 30);
}

static void standard_error_is_kept_for_the_end(void **state) {
    (void)state;
    assert_int_equal(child_status(speak_after_closing, NULL), 0);
    assert_int_equal(child_status(keep_among_few, NULL), 0);
}

static void nothing_is_kept_unasked(void *unused) {
    (void)unused;
    EXPECT(platform_error_file() == STDERR_FILENO);
    close(STDERR_FILENO);
    EXPECT(platform_error_file() == -1);
    platform_error_keep(); /* too late */
    EXPECT(platform_error_file() == -1);
}

static void what_was_not_kept_is_gone(void **state) {
    (void)state;
    assert_int_equal(child_status(nothing_is_kept_unasked, NULL), 0);
}

/* ------------------------------------------------------------------ death */

static void leave(void *unused) {
    (void)unused;
    atexit(abort);
    platform_exit(125);
}

static void an_exit_runs_no_handlers(void **state) {
    (void)state;
    int status = child_status(leave, NULL);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 125);
}

static int reports[2]; /* a pipe: what a handler of the program has to say about the crash */

static void report(int number) {
    (void)number;
    EXPECT(write(reports[1], "!", 1) == 1);
}

static void exit_instead(int number) {
    (void)number;
    _exit(3);
}

enum obstacle { NOTHING, BLOCKED = 1, IGNORED = 2, HANDLED = 4, HANDLER_EXITS = 8 };

static void die(void *argument) {
    int obstacles = *(int *)argument;
    sigset_t all;
    sigfillset(&all);
    if ((obstacles & IGNORED) != 0) signal(SIGABRT, SIG_IGN);
    if ((obstacles & HANDLED) != 0) signal(SIGABRT, report);
    if ((obstacles & HANDLER_EXITS) != 0) signal(SIGABRT, exit_instead);
    if ((obstacles & BLOCKED) != 0) sigprocmask(SIG_SETMASK, &all, NULL);
    platform_die();
}

static void death_is_by_abort_whatever_stands_in_the_way(void **state) {
    (void)state;
    static const int cases[] = {NOTHING, BLOCKED, IGNORED, HANDLED, BLOCKED | IGNORED, BLOCKED | HANDLED};
    char said[2];
    assert_int_equal(pipe2(reports, O_NONBLOCK), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        int obstacles = cases[i], status = child_status(die, &obstacles);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGABRT);
        assert_int_equal(read(reports[0], said, sizeof said), (obstacles & HANDLED) != 0 ? 1 : -1); /* the handler ran once */
    }
    close(reports[0]);
    close(reports[1]);
}

/* As with abort(): a handler may end the process its own way. */
static void a_handler_of_the_program_has_the_last_word(void **state) {
    (void)state;
    static const int cases[] = {HANDLER_EXITS, BLOCKED | HANDLER_EXITS};
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        int obstacles = cases[i], status = child_status(die, &obstacles);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 3);
    }
}

/* The first process of a PID namespace ignores fatal signals from itself. */
static void die_as_first_process(void *unused) {
    int status, obstacles = NOTHING;
    (void)unused;
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) _exit(99);
    pid_t first = fork();
    if (first < 0) _exit(99);
    if (first == 0) die(&obstacles);
    EXPECT(waitpid(first, &status, 0) == first);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 134);
}

static void the_first_process_dies_too(void **state) {
    (void)state;
    int status = child_status(die_as_first_process, NULL);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 99) fail_msg("the system allows no PID namespace here");
    assert_int_equal(status, 0);
}

/* ------------------------------------------------------------------ environment */

static void the_environment_is_read_as_it_is(void **state) {
    (void)state;
    char *entries[] = {
        (char[]){"STRATA_CONFIG=long"}, (char[]){"STRATA_CONF=a:b=c"}, (char[]){"EMPTY="}, (char[]){"STRATA_CONF=second"}, (char[]){"BARE"}, NULL};
    char **saved = environ;
    environ = entries;
    const char *conf = platform_getenv("STRATA_CONF"), *empty = platform_getenv("EMPTY"), *bare = platform_getenv("BARE"),
               *prefix = platform_getenv("STRATA");
    environ = NULL;
    const char *none = platform_getenv("STRATA_CONF");
    environ = saved;
    assert_string_equal(conf, "a:b=c");
    assert_string_equal(empty, "");
    assert_null(bare);
    assert_null(prefix);
    assert_null(none);
}

/* ------------------------------------------------------------------ files */

static void assert_contents(const char *name, const char *wanted) {
    char got[64] = {0};
    int file = open(name, O_RDONLY | O_CLOEXEC);
    assert_true(file >= 0);
    assert_true(read(file, got, sizeof got - 1) >= 0);
    close(file);
    assert_string_equal(got, wanted);
}

/* A reader that has gone, and a limit: the first is SIGPIPE's, the second SIGXFSZ's, whose default ends the process. */
static void what_can_t_be_written_raises_no_signal(void **state) {
    int ends[2];
    sigset_t pending, pipe_only, before;
    struct rlimit limit, low;
    char name[] = "/tmp/strata-output-XXXXXX";
    int file = mkstemp(name);
    (void)state;
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    errno = 7;
    assert_false(platform_file_write(ends[1], "text", 4));
    assert_true(file >= 0 && getrlimit(RLIMIT_FSIZE, &limit) == 0);
    low = limit;
    low.rlim_cur = 6;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    assert_false(platform_file_write(file, "long text", 9));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(errno, 7);
    /* The program's own waits on. */
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &pipe_only, &before), 0);
    assert_false(platform_file_write(ends[1], "text", 4));
    assert_int_equal(sigpending(&pending), 0);
    assert_false(sigismember(&pending, SIGPIPE));
    raise(SIGPIPE);
    assert_false(platform_file_write(ends[1], "text", 4));
    assert_int_equal(sigpending(&pending), 0);
    assert_true(sigismember(&pending, SIGPIPE));
    signal(SIGPIPE, SIG_IGN); /* which takes it */
    signal(SIGPIPE, SIG_DFL);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    close(ends[1]);
    close(file);
    unlink(name);
}

static void files_are_created_and_truncated(void **state) {
    (void)state;
    errno = 77;
    int file = platform_file_create(path);
    assert_true(file > STDERR_FILENO);
    assert_int_equal(fcntl(file, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_true(platform_file_write(file, "hello ", 6) && platform_file_write(file, "world", 5));
    platform_file_close(file);
    assert_int_equal(fcntl(file, F_GETFD), -1);
    assert_contents(path, "hello world");
    file = platform_file_create(path);
    assert_true(platform_file_write(file, "x", 1));
    platform_file_close(file);
    assert_contents(path, "x");
    errno = 77;
    assert_int_equal(platform_file_create("/nowhere/at/all"), -1);
    assert_false(platform_file_write(-1, "x", 1));
    assert_int_equal(errno, 77);
}

static void a_link_is_followed_only_when_that_is_safe(void **state) {
    (void)state;
    struct platform_info *info = (struct platform_info *)(uintptr_t)platform_info();
    unlink(path);
    assert_int_equal(symlink(other_path, path), 0);
    int file = platform_file_create(path);
    assert_true(file >= 0);
    platform_file_close(file);
    assert_int_equal(access(other_path, F_OK), 0);
    info->secure = true;
    int refused = platform_file_create(path), plain = platform_file_create(other_path);
    info->secure = false;
    assert_int_equal(refused, -1);
    assert_true(plain >= 0);
    platform_file_close(plain);
}

static void create_without_standard_streams(void *unused) {
    (void)unused;
    for (int file = 0; file <= 2; file++) close(file);
    int file = platform_file_create(other_path);
    EXPECT(file > 2);
    EXPECT((fcntl(file, F_GETFD) & FD_CLOEXEC) != 0);
    for (int low = 0; low <= 2; low++) EXPECT(fcntl(low, F_GETFD) < 0);
    EXPECT(platform_file_write(file, "ok", 2));
}

static void files_never_become_standard_streams(void **state) {
    (void)state;
    assert_int_equal(child_status(create_without_standard_streams, NULL), 0);
    assert_contents(other_path, "ok");
}

/* ------------------------------------------------------------------ the process's number */

static void compare_number(void *parent) {
    EXPECT(platform_process_id() == (unsigned)syscall(SYS_getpid) && platform_process_id() != *(unsigned *)parent);
}

static void the_number_is_that_of_the_process(void **state) {
    (void)state;
    unsigned own = platform_process_id();
    assert_int_equal(own, getpid());
    assert_int_equal(child_status(compare_number, &own), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_written_whole),
        cmocka_unit_test(who_does_not_read_is_not_waited_for_long),
        cmocka_unit_test(a_closed_stream_is_no_error),
        cmocka_unit_test(a_stream_without_a_reader_ends_nothing),
        cmocka_unit_test(a_filter_that_lets_no_signal_be_held_changes_no_mask),
        cmocka_unit_test(standard_error_is_kept_for_the_end),
        cmocka_unit_test(what_was_not_kept_is_gone),
        cmocka_unit_test(an_exit_runs_no_handlers),
        cmocka_unit_test(death_is_by_abort_whatever_stands_in_the_way),
        cmocka_unit_test(a_handler_of_the_program_has_the_last_word),
        cmocka_unit_test(the_first_process_dies_too),
        cmocka_unit_test(the_environment_is_read_as_it_is),
        cmocka_unit_test(what_can_t_be_written_raises_no_signal),
        cmocka_unit_test(files_are_created_and_truncated),
        cmocka_unit_test(a_link_is_followed_only_when_that_is_safe),
        cmocka_unit_test(files_never_become_standard_streams),
        cmocka_unit_test(the_number_is_that_of_the_process),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
