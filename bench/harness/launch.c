/*
 * launch.c - starts one program and measures it from outside.
 *
 *   launch --report FD [--preload FILE] [--cpu N] [--timeout SECONDS] -- PROGRAM [ARGS]
 *
 * The kernel lets a process inherit the peak RSS of the process image that it was forked from and exec'd in, so a program that Python starts seems to
 * use at least what Python does. This launcher is small: the child forked here starts at a few hundred KiB. It also sets LD_PRELOAD for the child
 * alone, so that neither the harness nor the launcher runs under the allocator that is measured.
 *
 * Prints one line of JSON on descriptor FD, which the program does not inherit: wall, user and system seconds, peak RSS, faults, context switches,
 * exit status or signal. Times and faults include children that the program waited for; peak RSS is that of the largest process among them. Exit
 * status 0 when the program was started, whatever became of it; 125 when it could not be. One thread, no locks.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LAUNCH_FAILED 125

struct options {
    const char *preload;
    long report_fd, cpu, timeout_s;
};

static pid_t child;
static volatile sig_atomic_t timed_out;

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "launch: %s: %s\n", what, strerror(errno));
    _exit(LAUNCH_FAILED);
}

/* The program leads its own process group, so that its children end with it. */
static void on_signal(int number) {
    if (number == SIGALRM) timed_out = 1;
    if (child > 0) kill(-child, SIGKILL);
}

static _Noreturn void run_child(const struct options *options, char **argv, int error_fd) {
    setpgid(0, 0);
    if (options->cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((size_t)options->cpu, &set);
        if (sched_setaffinity(0, sizeof set, &set)) fail("sched_setaffinity");
    }
    if (options->preload && setenv("LD_PRELOAD", options->preload, 1)) fail("setenv");
    close((int)options->report_fd);
    execvp(argv[0], argv);
    int error = errno;
    if (write(error_fd, &error, sizeof error) < 0) _exit(LAUNCH_FAILED);
    _exit(LAUNCH_FAILED);
}

static double seconds_between(const struct timespec *start, const struct timespec *end) {
    return (double)(end->tv_sec - start->tv_sec) + (double)(end->tv_nsec - start->tv_nsec) / 1e9;
}

static double seconds_of(const struct timeval *time) { return (double)time->tv_sec + (double)time->tv_usec / 1e6; }

static void report(int fd, int status, double wall_s, const struct rusage *usage) {
    dprintf(fd,
            "{\"exit\": %d, \"signal\": %d, \"timed_out\": %s, \"wall_s\": %.6f, \"user_s\": %.6f, \"system_s\": %.6f, \"peak_rss_kib\": %ld, "
            "\"minor_faults\": %ld, \"major_faults\": %ld, \"voluntary_switches\": %ld, \"involuntary_switches\": %ld}\n",
            WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0, timed_out ? "true" : "false", wall_s,
            seconds_of(&usage->ru_utime), seconds_of(&usage->ru_stime), usage->ru_maxrss, usage->ru_minflt, usage->ru_majflt, usage->ru_nvcsw,
            usage->ru_nivcsw);
}

static _Noreturn void usage(void) {
    fputs("usage: launch --report FD [--preload FILE] [--cpu N] [--timeout SECONDS] -- PROGRAM [ARGS]\n", stderr);
    exit(LAUNCH_FAILED);
}

static char **parse(char **argv, struct options *options) {
    argv++;
    for (; *argv && strcmp(*argv, "--"); argv += 2) {
        if (!argv[1]) usage();
        if (!strcmp(*argv, "--preload"))
            options->preload = argv[1];
        else if (!strcmp(*argv, "--report"))
            options->report_fd = strtol(argv[1], NULL, 10);
        else if (!strcmp(*argv, "--cpu"))
            options->cpu = strtol(argv[1], NULL, 10);
        else if (!strcmp(*argv, "--timeout"))
            options->timeout_s = strtol(argv[1], NULL, 10);
        else
            usage();
    }
    if (!*argv || !argv[1] || options->cpu >= CPU_SETSIZE) usage();
    return argv + 1;
}

int main(int argc, char **argv) {
    struct options options = {.report_fd = -1, .cpu = -1};
    struct sigaction action = {.sa_handler = on_signal};
    struct timespec start, end;
    struct rusage usage_of_child;
    int error_pipe[2], status, exec_error = 0;

    (void)argc;
    char **program = parse(argv, &options);
    if (fcntl((int)options.report_fd, F_GETFD) < 0) fail("--report: not an open descriptor");
    if (pipe2(error_pipe, O_CLOEXEC)) fail("pipe2");
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    /* A harness that was killed leaves nothing running. */
    if (prctl(PR_SET_PDEATHSIG, SIGTERM)) fail("prctl");
    clock_gettime(CLOCK_MONOTONIC, &start);
    child = fork();
    if (child < 0) fail("fork");
    if (child == 0) run_child(&options, program, error_pipe[1]);
    setpgid(child, child);
    if (options.timeout_s > 0) alarm((unsigned)options.timeout_s);
    while (wait4(child, &status, 0, &usage_of_child) < 0)
        if (errno != EINTR) fail("wait4");
    clock_gettime(CLOCK_MONOTONIC, &end);
    alarm(0);
    close(error_pipe[1]);
    if (read(error_pipe[0], &exec_error, sizeof exec_error) == (ssize_t)sizeof exec_error) {
        errno = exec_error;
        fail(program[0]);
    }
    report((int)options.report_fd, status, seconds_between(&start, &end), &usage_of_child);
    return 0;
}
