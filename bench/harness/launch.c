/*
 * launch.c - starts one program and measures it from outside.
 *
 *   launch --report FD [--preload FILE] [--cpu N] [--timeout SECONDS] [--repeat N] -- PROGRAM [ARGS]
 *
 * The kernel lets a process inherit the peak RSS of the process image that it was forked from and exec'd in, so a program that Python starts seems to
 * use at least what Python does. This launcher is small: the child forked here starts at a few hundred KiB. It also sets LD_PRELOAD for the child
 * alone, so that neither the harness nor the launcher runs under the allocator that is measured.
 *
 * Prints one line of JSON on descriptor FD, which the program does not inherit: wall, user and system seconds, peak RSS, faults, context switches,
 * exit status or signal. Times and faults include children that the program waited for; peak RSS is that of the largest process among them. Every
 * SAMPLE_MS the memory of the program and its descendants is looked at: the private pages of all of them, and the shared ones of that which has most.
 * Mean RSS is the mean of these looks; a program that ended before the first one has its peak as its mean.
 *
 * With --repeat the program runs N times, one after the other, until one fails: times, faults and switches are sums, peak RSS is the largest, and
 * mean RSS the mean of the peaks. That is for programs that end within a millisecond.
 *
 * Exit status 0 when the program was started, whatever became of it; 125 when it could not be. One thread, no locks.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LAUNCH_FAILED 125
#define SAMPLE_MS 5
/* A tree of more processes is looked at as far as this. */
#define TREE_PROCESSES_MAX 256

struct options {
    const char *preload;
    long report_fd, cpu, timeout_s, repeat;
};

/* Of all runs. */
struct figures {
    double wall_s, user_s, system_s, mean_kib_sum;
    long peak_kib, tree_peak_kib, minor_faults, major_faults, voluntary_switches, involuntary_switches;
    long samples; /* that mean_kib_sum is of */
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

static long read_file(const char *format, pid_t pid, char *text, size_t size_bytes) {
    char path[64];
    snprintf(path, sizeof path, format, (int)pid, (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, size_bytes - 1);
    if (fd >= 0) close(fd);
    text[length > 0 ? length : 0] = 0;
    return length;
}

/* In KiB. A process that ends meanwhile has nothing. */
static long tree_memory(void) {
    pid_t tree[TREE_PROCESSES_MAX] = {child};
    unsigned count = 1;
    long private_pages = 0, shared_pages = 0;
    for (unsigned i = 0; i < count; i++) {
        char text[4096];
        unsigned long size, resident, shared;
        if (read_file("/proc/%d/statm", tree[i], text, sizeof text) > 0 && sscanf(text, "%lu %lu %lu", &size, &resident, &shared) == 3) {
            private_pages += (long)(resident - shared);
            if ((long)shared > shared_pages) shared_pages = (long)shared;
        }
        if (read_file("/proc/%d/task/%d/children", tree[i], text, sizeof text) <= 0) continue;
        char *at = text, *end;
        for (long pid; count < TREE_PROCESSES_MAX && (pid = strtol(at, &end, 10)) > 0 && end != at; at = end) tree[count++] = (pid_t)pid;
    }
    return (private_pages + shared_pages) * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Until the program has ended. */
static void look_on(struct figures *figures) {
    int fd = (int)syscall(SYS_pidfd_open, child, 0);
    struct pollfd ending = {.fd = fd, .events = POLLIN};
    if (fd < 0) fail("pidfd_open");
    for (int ready; (ready = poll(&ending, 1, SAMPLE_MS)) <= 0;) {
        if (ready < 0) continue; /* a signal: the program is being killed */
        long kib = tree_memory();
        if (kib == 0) continue;
        figures->mean_kib_sum += (double)kib;
        figures->samples++;
        if (kib > figures->tree_peak_kib) figures->tree_peak_kib = kib;
    }
    close(fd);
}

static void add(struct figures *figures, double wall_s, const struct rusage *usage) {
    figures->wall_s += wall_s;
    figures->user_s += seconds_of(&usage->ru_utime);
    figures->system_s += seconds_of(&usage->ru_stime);
    if (usage->ru_maxrss > figures->peak_kib) figures->peak_kib = usage->ru_maxrss;
    figures->minor_faults += usage->ru_minflt;
    figures->major_faults += usage->ru_majflt;
    figures->voluntary_switches += usage->ru_nvcsw;
    figures->involuntary_switches += usage->ru_nivcsw;
}

static void report(int fd, int status, const struct figures *f) {
    double mean_kib = f->samples ? f->mean_kib_sum / (double)f->samples : (double)f->peak_kib;
    dprintf(fd,
            "{\"exit\": %d, \"signal\": %d, \"timed_out\": %s, \"wall_s\": %.6f, \"user_s\": %.6f, \"system_s\": %.6f, \"peak_rss_kib\": %ld, "
            "\"mean_rss_kib\": %.1f, \"tree_peak_rss_kib\": %ld, \"samples\": %ld, \"minor_faults\": %ld, \"major_faults\": %ld, "
            "\"voluntary_switches\": %ld, \"involuntary_switches\": %ld}\n",
            WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0, timed_out ? "true" : "false", f->wall_s,
            f->user_s, f->system_s, f->peak_kib, mean_kib, f->tree_peak_kib > f->peak_kib ? f->tree_peak_kib : f->peak_kib, f->samples,
            f->minor_faults, f->major_faults, f->voluntary_switches, f->involuntary_switches);
}

static _Noreturn void usage(void) {
    fputs("usage: launch --report FD [--preload FILE] [--cpu N] [--timeout SECONDS] [--repeat N] -- PROGRAM [ARGS]\n", stderr);
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
        else if (!strcmp(*argv, "--repeat"))
            options->repeat = strtol(argv[1], NULL, 10);
        else
            usage();
    }
    if (!*argv || !argv[1] || options->cpu >= CPU_SETSIZE || options->repeat < 1) usage();
    return argv + 1;
}

/* One run; returns its status as wait4 has it. */
static int run_once(const struct options *options, char **program, struct figures *figures) {
    struct timespec start, end;
    struct rusage usage;
    int error_pipe[2], status, exec_error = 0;

    if (pipe2(error_pipe, O_CLOEXEC)) fail("pipe2");
    clock_gettime(CLOCK_MONOTONIC, &start);
    child = fork();
    if (child < 0) fail("fork");
    if (child == 0) run_child(options, program, error_pipe[1]);
    setpgid(child, child);
    if (options->repeat == 1) look_on(figures);
    while (wait4(child, &status, 0, &usage) < 0)
        if (errno != EINTR) fail("wait4");
    clock_gettime(CLOCK_MONOTONIC, &end);
    close(error_pipe[1]);
    if (read(error_pipe[0], &exec_error, sizeof exec_error) == (ssize_t)sizeof exec_error) {
        errno = exec_error;
        fail(program[0]);
    }
    close(error_pipe[0]);
    add(figures, seconds_between(&start, &end), &usage);
    if (options->repeat > 1) {
        figures->mean_kib_sum += (double)usage.ru_maxrss;
        figures->samples++;
    }
    return status;
}

int main(int argc, char **argv) {
    struct options options = {.report_fd = -1, .cpu = -1, .repeat = 1};
    struct sigaction action = {.sa_handler = on_signal};
    struct figures figures = {0};
    int status = 0;

    (void)argc;
    char **program = parse(argv, &options);
    if (fcntl((int)options.report_fd, F_GETFD) < 0) fail("--report: not an open descriptor");
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    /* A harness that was killed leaves nothing running. */
    if (prctl(PR_SET_PDEATHSIG, SIGTERM)) fail("prctl");
    if (options.timeout_s > 0) alarm((unsigned)options.timeout_s);
    for (long run = 0; run < options.repeat && status == 0; run++) status = run_once(&options, program, &figures);
    alarm(0);
    report((int)options.report_fd, status, &figures);
    return 0;
}
