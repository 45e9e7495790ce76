/*
 * load.c - the parts of a load program that are not on its hot path: arguments, clock, threads, report.
 *
 * The report is one line of JSON on stdout, which the harness reads; an error is one line on stderr and exit status 2. No locks.
 */
#include "load.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 1024

/* Of latency.c, where it is linked in: the papers' experiments go without. */
__attribute__((weak)) void latency_report(void);

struct thread_start {
    void (*body)(unsigned index, void *context, struct tally *tally);
    void *context;
    unsigned index;
    struct tally tally;
} __attribute__((aligned(CACHE_LINE_BYTES)));

static _Noreturn void usage(const char *program) {
    fprintf(stderr, "usage: %s [--mode NAME] [--threads 1..%d] [--scale PERCENT]\n", program, THREADS_MAX);
    exit(2);
}

static unsigned number(const char *program, const char *text, unsigned long limit) {
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || !value || value > limit) usage(program);
    return (unsigned)value;
}

struct load_args load_arguments(int argc, char **argv) {
    struct load_args args = {.mode = "", .threads = 0, .scale_percent = 100};
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc) usage(argv[0]);
        if (!strcmp(argv[i], "--mode"))
            args.mode = argv[i + 1];
        else if (!strcmp(argv[i], "--threads"))
            args.threads = number(argv[0], argv[i + 1], THREADS_MAX);
        else if (!strcmp(argv[i], "--scale"))
            args.scale_percent = number(argv[0], argv[i + 1], 100000);
        else
            usage(argv[0]);
    }
    return args;
}

/* Writes without stdio, which might allocate, and ends without destructors: the heap may be the thing that is broken. */
void load_fail(const char *what) {
    static const char prefix[] = "load failed: ";
    if (write(STDERR_FILENO, prefix, sizeof prefix - 1) < 0 || write(STDERR_FILENO, what, strlen(what)) < 0 || write(STDERR_FILENO, "\n", 1) < 0)
        _exit(3);
    _exit(2);
}

uint64_t load_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

void load_report(const char *name, const struct load_args *args, const struct tally *total, uint64_t elapsed_ns) {
    double seconds = (double)elapsed_ns / 1e9;
    printf("{\"load\": \"%s\", \"mode\": \"%s\", \"threads\": %u, \"operations\": %" PRIu64 ", \"seconds\": %.6f, \"operations_per_second\": %.0f, "
           "\"check\": \"%016" PRIx64 "\"",
           name, args->mode, args->threads, total->operations, seconds, (double)total->operations / seconds, total->checksum);
    if (latency_report) latency_report();
    puts("}");
    if (fflush(stdout)) load_fail("cannot write the report");
}

static void *thread_main(void *argument) {
    struct thread_start *start = argument;
    start->body(start->index, start->context, &start->tally);
    return NULL;
}

struct tally load_threads(unsigned threads, void (*body)(unsigned index, void *context, struct tally *tally), void *context) {
    static struct thread_start starts[THREADS_MAX];
    static pthread_t ids[THREADS_MAX];
    struct tally total = {0};

    if (threads > THREADS_MAX) load_fail("too many threads");
    for (unsigned i = 0; i < threads; i++) {
        starts[i] = (struct thread_start){.body = body, .context = context, .index = i};
        if (threads > 1 && pthread_create(&ids[i], NULL, thread_main, &starts[i])) load_fail("pthread_create failed");
    }
    if (threads == 1) thread_main(&starts[0]);
    for (unsigned i = 0; i < threads; i++) {
        if (threads > 1 && pthread_join(ids[i], NULL)) load_fail("pthread_join failed");
        total.operations += starts[i].tally.operations;
        total.checksum += starts[i].tally.checksum;
    }
    return total;
}
