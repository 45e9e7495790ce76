/*
 * scaling_constants.c - experiment: what the model of scaling is fed with, measured on the machine that it runs on, and what the model is held
 * against.
 *
 *     scaling_constants constants
 *     scaling_constants pairs|bursts|mixed THREADS MILLISECONDS
 *
 * constants: the time of an operation that the CPU's array serves, of a visit of a depot, of slabs, of the zone, all by one thread, and of the way of
 * a cache line from one CPU to another, by two. A visit is what a load takes longer than its operations would in the array, over the visits that
 * strata's own statistics count. Otherwise: the load of scaling_load.h on so many threads, each bound to a CPU, and its operations a second.
 * No locks of its own.
 */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include <strata/page.h>

#include "scaling_load.h"
#include "stats_figure.h"
#include "timing.h"

#define FAST_PAIRS 4000000
#define ARRAY_BURST 60
#define REPETITIONS 9
#define DEPOT_BURST 320
#define DEPOT_ROUNDS 4000
#define SLAB_BURST 60000
#define SLAB_ROUNDS 40
#define ZONE_PAIRS 200000
#define ZONE_BYTES (64 * KIB)
#define LINE_TURNS 400000
#define OPERATIONS_AT_A_TIME 256

/* ------------------------------------------------------------------ counts */

struct below {
    double depot_visits, slab_visits;
};

/* Visits of the class under test so far: objects that moved, over how many move at a time. */
static struct below below_now(void) {
    const char *stats = stats_now();
    double transfer = stats_of_class(stats, SCALING_BYTES, "magazine_rounds") / 2;
    if (transfer < 1) load_fail("the arrays are closed");
    return (struct below){(stats_of_class(stats, SCALING_BYTES, "depot_allocs") + stats_of_class(stats, SCALING_BYTES, "depot_frees")) / transfer,
                          (stats_of_class(stats, SCALING_BYTES, "slab_allocs") + stats_of_class(stats, SCALING_BYTES, "slab_frees")) / transfer};
}

/* ------------------------------------------------------------------ constants */

/* Keeps the compiler from leaving out a pair. */
static inline void *opaque(void *block) {
    __asm__ volatile("" : "+r"(block) : : "memory");
    return block;
}

static double time_pairs(size_t bytes, uint64_t pairs) {
    uint64_t start_ns = load_clock_ns();
    for (uint64_t i = 0; i < pairs; i++) free(opaque(malloc(bytes)));
    return (double)(load_clock_ns() - start_ns) / (2 * (double)pairs);
}

/* Of blocks that no CPU keeps, as they may not move: each is the zone's. */
static double time_zone_pairs(uint64_t pairs) {
    uint64_t start_ns = load_clock_ns();
    for (uint64_t i = 0; i < pairs; i++) {
        void *block;
        if (strata_page_alloc(ZONE_BYTES, STRATA_PAGE_UNMOVABLE, &block) != STRATA_PAGE_OK || strata_page_free(block) != STRATA_PAGE_OK)
            load_fail("no block of pages");
    }
    return (double)(load_clock_ns() - start_ns) / (2 * (double)pairs);
}

/* A burst of `count` allocations and their frees, `rounds` times, in ns; the visits that it made are in *visits. */
static double time_bursts(unsigned count, unsigned rounds, struct below *visits) {
    void **held = malloc(count * sizeof *held);
    if (!held) load_fail("no memory");
    struct below before;
    double ns = 0;
    for (unsigned round = 0; round <= rounds; round++) { /* the first fills what is below, and is not counted */
        uint64_t start_ns = load_clock_ns();
        for (unsigned i = 0; i < count; i++) held[i] = malloc(SCALING_BYTES);
        for (unsigned i = count; i--;) free(held[i]);
        if (round) ns += (double)(load_clock_ns() - start_ns);
        if (!round) before = below_now();
    }
    struct below after = below_now();
    *visits = (struct below){after.depot_visits - before.depot_visits, after.slab_visits - before.slab_visits};
    free(held);
    return ns;
}

static struct {
    _Alignas(CACHE_LINE_BYTES) atomic_uint turn;
    _Alignas(CACHE_LINE_BYTES) char end;
} line;

static void take_turns(unsigned index, void *context, struct tally *tally) {
    (void)context;
    timing_pin(index);
    for (unsigned i = 0; i < LINE_TURNS; i++) {
        while (atomic_load_explicit(&line.turn, memory_order_acquire) % 2 != index) {}
        atomic_fetch_add_explicit(&line.turn, 1, memory_order_acq_rel);
    }
    tally->operations += LINE_TURNS;
}

static void *nothing(void *argument) { return argument; }

static void print_constants(void) {
    pthread_t thread;
    /* In a process that has had one thread only, locks cost less than in those that the model is about. */
    if (pthread_create(&thread, NULL, nothing, NULL) != 0 || pthread_join(thread, NULL) != 0) load_fail("no thread");
    timing_pin(0);
    time_pairs(SCALING_BYTES, FAST_PAIRS / 10);
    double fast_ns = time_pairs(SCALING_BYTES, FAST_PAIRS);
    time_zone_pairs(ZONE_PAIRS / 10);
    double zone_ns = time_zone_pairs(ZONE_PAIRS);
    struct below visits;
    /* In a burst an operation of the array doesn't wait for the one before, as in a pair. */
    double burst_ns = INFINITY, ns = INFINITY;
    /* And one that array and depot serve, which keeps fewer objects for one thread: it reaches the depot in each round. The least of several, as the
     * one time is taken from the other. */
    for (unsigned i = 0; i < REPETITIONS; i++) {
        burst_ns = fmin(burst_ns, time_bursts(ARRAY_BURST, DEPOT_ROUNDS, &visits) / (2.0 * ARRAY_BURST * DEPOT_ROUNDS));
        ns = fmin(ns, time_bursts(DEPOT_BURST, DEPOT_ROUNDS, &visits));
    }
    if (visits.depot_visits < DEPOT_ROUNDS || visits.slab_visits > visits.depot_visits / 10) load_fail("the burst is not one for the depot");
    double depot_ns = (ns - burst_ns * 2.0 * DEPOT_BURST * DEPOT_ROUNDS) / visits.depot_visits;
    ns = time_bursts(SLAB_BURST, SLAB_ROUNDS, &visits);
    if (visits.slab_visits < SLAB_ROUNDS) load_fail("the burst is not one for the slabs");
    double slab_ns = (ns - burst_ns * 2.0 * SLAB_BURST * SLAB_ROUNDS - depot_ns * visits.depot_visits) / visits.slab_visits;
    uint64_t start_ns = load_clock_ns();
    struct tally turns = load_threads(2, take_turns, NULL);
    double line_ns = (double)(load_clock_ns() - start_ns) / (double)turns.operations;
    printf("{\"fast_ns\": %.3f, \"depot_ns\": %.3f, \"slab_ns\": %.3f, \"zone_ns\": %.3f, \"line_ns\": %.3f}\n", fast_ns, depot_ns, slab_ns, zone_ns,
           line_ns);
}

/* ------------------------------------------------------------------ the load on threads */

static enum scaling_kind kind;
static uint64_t duration_ns;
static pthread_barrier_t start_line;

static void *alloc(unsigned cpu, size_t bytes) {
    (void)cpu;
    void *block = malloc(bytes);
    if (!block) load_fail("no memory");
    return opaque(block);
}
static void release(unsigned cpu, void *block) {
    (void)cpu;
    free(block);
}

static void run_load(unsigned index, void *context, struct tally *tally) {
    static const struct scaling_memory memory = {alloc, release};
    (void)context;
    timing_pin(index);
    struct scaling_cpu *state = malloc(sizeof *state);
    if (!state) load_fail("no memory");
    scaling_begin(state, index);
    pthread_barrier_wait(&start_line);
    uint64_t end_ns = load_clock_ns() + duration_ns;
    do {
        for (unsigned i = 0; i < OPERATIONS_AT_A_TIME; i++) tally->operations += scaling_step(kind, state, 1, 0, &memory);
    } while (load_clock_ns() < end_ns);
    scaling_end(state, index, &memory);
    free(state);
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "constants")) {
        print_constants();
        return fflush(stdout) ? 2 : 0;
    }
    kind = argc == 4 ? scaling_kind_of(argv[1]) : SCALING_KINDS;
    unsigned threads = argc == 4 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
    duration_ns = argc == 4 ? strtoull(argv[3], NULL, 10) * 1000000 : 0;
    if (kind >= SCALING_PASSED || !threads || !duration_ns || pthread_barrier_init(&start_line, NULL, threads))
        load_fail("usage: scaling_constants constants, or pairs|bursts|mixed THREADS MILLISECONDS");
    timing_be_parallel();
    struct tally total = load_threads(threads, run_load, NULL);
    printf("{\"operations_per_second\": %.0f, \"ns_per_operation\": %.3f}\n", (double)total.operations / ((double)duration_ns / 1e9),
           (double)duration_ns * threads / (double)total.operations);
    return fflush(stdout) ? 2 : 0;
}
