/* timing.c - see timing.h. No locks. */
#include "timing.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#define OVERHEAD_SAMPLES 1001
#define SCALE_NS 10000000

static int by_value(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* The CPUs that the process started with: a thread inherits the binding of the one that made it. */
static cpu_set_t allowed;

__attribute__((constructor)) static void remember_allowed(void) {
    if (sched_getaffinity(0, sizeof allowed, &allowed)) load_fail("sched_getaffinity failed");
}

/* The median distance of two readings, by `read`, with nothing in between. */
static inline double overhead(uint64_t (*read)(void)) {
    static uint64_t samples[OVERHEAD_SAMPLES];
    for (unsigned i = 0; i < OVERHEAD_SAMPLES; i++) {
        uint64_t start = read();
        samples[i] = read() - start;
    }
    qsort(samples, OVERHEAD_SAMPLES, sizeof samples[0], by_value);
    return (double)samples[OVERHEAD_SAMPLES / 2];
}

struct timing_scale timing_measure(void) {
    struct timing_scale scale = {.overhead_ticks = overhead(timing_ticks), .fenced_overhead_ticks = overhead(timing_ticks_fenced)};
    uint64_t start_ns = load_clock_ns(), start_ticks = timing_ticks(), ns;
    while ((ns = load_clock_ns() - start_ns) < SCALE_NS) {}
    uint64_t ticks = timing_ticks() - start_ticks;
    if (!ticks) load_fail("the processor's counter stands still");
    scale.ns_per_tick = (double)ns / (double)ticks;
    return scale;
}

double timing_mean_ns(const struct timing_scale *scale, uint64_t ticks, uint64_t samples) {
    return samples ? ((double)ticks / (double)samples - scale->overhead_ticks) * scale->ns_per_tick : 0;
}

double timing_group_mean_ns(const struct timing_scale *scale, uint64_t ticks, uint64_t samples, unsigned group) {
    return samples ? ((double)ticks / (double)samples - scale->fenced_overhead_ticks / group) * scale->ns_per_tick : 0;
}

static void *sleep_for_ever(void *argument) {
    for (;;) pause();
    return argument;
}

void timing_be_parallel(void) {
    pthread_t id;
    if (pthread_create(&id, NULL, sleep_for_ever, NULL) || pthread_detach(id)) load_fail("pthread_create failed");
}

void timing_pin(unsigned rank) {
    int wanted = (int)(rank % (unsigned)CPU_COUNT(&allowed));
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed) || wanted--) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        /* A CPU that has gone meanwhile is no reason to fail. */
        pthread_setaffinity_np(pthread_self(), sizeof one, &one);
        return;
    }
}
