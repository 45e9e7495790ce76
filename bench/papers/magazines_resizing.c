/*
 * magazines_resizing.c - experiment: section 3.4 of the magazines paper. The size of magazines over time, and how often the depot's lock was found
 * held.
 *
 *     magazines_resizing THREADS SAMPLE_MS LOAD_MS IDLE_MS
 *
 * Threads of one CPU each go up and down by more blocks than their CPU's array holds, so that they meet at the depot, for LOAD_MS; then they wait for
 * IDLE_MS, and do it again. Meanwhile the first thread reads strata's statistics, every SAMPLE_MS, and keeps the slow paths of the rest of the heap
 * busy, as the maintenance thread sleeps in a program that does nothing at all. The workers' only shared state is a number that says what to do.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "scaling_load.h"
#include "stats_figure.h"
#include "timing.h"

#define THREADS_MAX 256
#define SAMPLES_MAX 8192
#define OPERATIONS_AT_A_TIME 1024
/* Beyond size classes, so that each is a slow path. */
#define LARGE_BYTES (256 * KIB)

enum work { WORK_WAIT, WORK_LOAD, WORK_END };

struct sample {
    double seconds, rounds, contention, visits;
    enum work work;
};

static _Atomic enum work work;
static struct sample samples[SAMPLES_MAX];
static unsigned sample_count;

static void *alloc(unsigned cpu, size_t bytes) {
    (void)cpu;
    void *block = malloc(bytes);
    if (!block) load_fail("no memory");
    return block;
}
static void release(unsigned cpu, void *block) {
    (void)cpu;
    free(block);
}
static const struct scaling_memory memory = {alloc, release};

static void sleep_ms(uint64_t milliseconds) {
    struct timespec time = {.tv_sec = (time_t)(milliseconds / 1000), .tv_nsec = (long)(milliseconds % 1000 * 1000000)};
    nanosleep(&time, NULL);
}

static void *run_worker(void *argument) {
    unsigned index = (unsigned)(uintptr_t)argument;
    static struct scaling_cpu states[THREADS_MAX];
    timing_pin(index);
    scaling_begin(&states[index], index);
    for (enum work now; (now = atomic_load(&work)) != WORK_END;) {
        if (now == WORK_WAIT) {
            sleep_ms(1);
            continue;
        }
        for (unsigned i = 0; i < OPERATIONS_AT_A_TIME; i++) scaling_burst(&states[index], index, &memory, 0);
    }
    scaling_end(&states[index], index, &memory);
    return NULL;
}

static void take_sample(uint64_t start_ns) {
    const char *stats = stats_now();
    if (sample_count == SAMPLES_MAX) load_fail("too many samples");
    samples[sample_count++] = (struct sample){
        .seconds = (double)(load_clock_ns() - start_ns) / 1e9,
        .rounds = stats_of_class(stats, SCALING_BYTES, "magazine_rounds") / 2,
        .contention = stats_of_class(stats, SCALING_BYTES, "contention"),
        .visits = stats_of_class(stats, SCALING_BYTES, "depot_allocs") + stats_of_class(stats, SCALING_BYTES, "depot_frees"),
        .work = atomic_load(&work),
    };
}

static void phase(enum work what, uint64_t milliseconds, uint64_t sample_ms, uint64_t start_ns) {
    atomic_store(&work, what);
    for (uint64_t end_ns = load_clock_ns() + milliseconds * 1000000; load_clock_ns() < end_ns;) {
        sleep_ms(sample_ms);
        free(alloc(0, LARGE_BYTES));
        take_sample(start_ns);
    }
}

int main(int argc, char **argv) {
    unsigned threads = argc == 5 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    uint64_t sample_ms = argc == 5 ? strtoull(argv[2], NULL, 10) : 0, load_ms = argc == 5 ? strtoull(argv[3], NULL, 10) : 0;
    uint64_t idle_ms = argc == 5 ? strtoull(argv[4], NULL, 10) : 0;
    if (!threads || threads > THREADS_MAX || !sample_ms || !load_ms || !idle_ms)
        load_fail("usage: magazines_resizing THREADS SAMPLE_MS LOAD_MS IDLE_MS");
    pthread_t ids[THREADS_MAX];
    uint64_t start_ns = load_clock_ns();
    take_sample(start_ns);
    for (unsigned i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, run_worker, (void *)(uintptr_t)i)) load_fail("pthread_create failed");
    phase(WORK_LOAD, load_ms, sample_ms, start_ns);
    phase(WORK_WAIT, idle_ms, sample_ms, start_ns);
    phase(WORK_LOAD, load_ms, sample_ms, start_ns);
    atomic_store(&work, WORK_END);
    for (unsigned i = 0; i < threads; i++) pthread_join(ids[i], NULL);

    printf("{\"samples\": [");
    for (unsigned i = 0; i < sample_count; i++)
        printf("%s{\"seconds\": %.4f, \"rounds\": %.0f, \"contention\": %.0f, \"objects\": %.0f, \"load\": %d}", i ? ", " : "", samples[i].seconds,
               samples[i].rounds, samples[i].contention, samples[i].visits, samples[i].work == WORK_LOAD);
    printf("]}\n");
    return fflush(stdout) ? 2 : 0;
}
