/*
 * zone_pairs.c - what an allocation of frames and its free cost: single frames and superpages, on one thread and on two. Run by hand:
 *
 *     cc -O2 -Iinclude bench/zone_pairs.c build/release/libstrata.a -lpthread -o zone_pairs && ./zone_pairs
 *
 * CPU time of each thread, the best of several runs, so that a busy machine does not count. Two threads that don't disturb each other take as long as
 * one.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <strata/zone.h>

enum { PAIRS = 2000000, RUNS = 5, THREADS_MAX = 2 };

static struct strata_zone *zone;
struct thread {
    uint64_t frames;
    double ns;
};

static double cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void *run(void *argument) {
    struct thread *thread = argument;
    double begun = cpu_ns();
    for (unsigned i = 0; i < PAIRS; i++) {
        uint64_t frame;
        if (strata_zone_alloc(zone, thread->frames, STRATA_ZONE_UNMOVABLE, &frame) != STRATA_ZONE_OK) abort();
        if (strata_zone_free(zone, frame, thread->frames) != STRATA_ZONE_OK) abort();
    }
    thread->ns = (cpu_ns() - begun) / PAIRS;
    return NULL;
}

int main(void) {
    const struct strata_zone_config config = {.name = "pairs", .backend = STRATA_ZONE_SIM, .bytes = (uint64_t)1 << 30, .frame_bytes = 4096};
    if (strata_zone_create(&config, &zone) != STRATA_ZONE_OK) return 1;
    for (uint64_t frames = 1; frames <= 512; frames *= 512) {
        for (unsigned threads = 1; threads <= THREADS_MAX; threads++) {
            double best = 1e9;
            for (unsigned r = 0; r < RUNS; r++) {
                struct thread all[THREADS_MAX] = {{frames, 0}, {frames, 0}};
                pthread_t other;
                if (threads == 2 && pthread_create(&other, NULL, run, &all[1]) != 0) return 1;
                run(&all[0]);
                if (threads == 2) pthread_join(other, NULL);
                double slowest = all[0].ns > all[1].ns ? all[0].ns : all[1].ns;
                if (slowest < best) best = slowest;
            }
            printf("frames=%llu threads=%u ns=%.1f\n", (unsigned long long)frames, threads, best);
        }
    }
    return strata_zone_destroy(zone) == STRATA_ZONE_OK ? 0 : 1;
}
