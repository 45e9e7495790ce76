/*
 * timing.h - the time of a single operation of some nanoseconds: the processor's counter where it is fine enough, less what reading it costs;
 * threads that stay on one CPU; locks that cost what they cost among threads.
 */
#ifndef STRATA_PAPERS_TIMING_H
#define STRATA_PAPERS_TIMING_H

#include <stdint.h>

#include "load.h"

/* How long a tick is, and how many of them pass between two readings with nothing in between: of either kind. */
struct timing_scale {
    double ns_per_tick;
    double overhead_ticks;
    double fenced_overhead_ticks;
};

static inline uint64_t timing_ticks(void) {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return load_clock_ns();
#endif
}

/*
 * The same, when all instructions before have ended, and before any that follows begins. Without that a processor works on some nanoseconds' worth of
 * what is to be timed while it still reads the counter, so that a short operation seems to take no time at all, or less.
 */
static inline uint64_t timing_ticks_fenced(void) {
#if defined(__x86_64__)
    __builtin_ia32_lfence();
    uint64_t ticks = __builtin_ia32_rdtsc();
    __builtin_ia32_lfence();
    return ticks;
#else
    return load_clock_ns();
#endif
}

/* Takes some milliseconds. */
struct timing_scale timing_measure(void);

/* The mean of `samples` operations that took `ticks` together, each between two readings of its own, in ns; 0 for no samples. */
double timing_mean_ns(const struct timing_scale *scale, uint64_t ticks, uint64_t samples);

/* The same of groups of `group` operations, each group between two fenced readings. */
double timing_group_mean_ns(const struct timing_scale *scale, uint64_t ticks, uint64_t samples, unsigned group);

/*
 * Starts a thread that sleeps until the process ends. A C library may leave out the atomic instructions of its locks in a process of one thread, so
 * that locks would seem to cost nothing on one CPU.
 */
void timing_be_parallel(void);

/* Binds the calling thread to the CPU of that rank among those that the process may use, wrapping round. */
void timing_pin(unsigned rank);

#endif
