/*
 * scaling_visits.c - experiment: how often do many CPUs meet in strata? Runs a load on up to 4,096 virtual CPUs of the simulated machine, and counts
 * the visits of depots and slabs, and for each lock how often it is taken, and how often by another CPU than the last time.
 *
 *     scaling_visits pairs|bursts|mixed|passed CPUS OPERATIONS magazines|none [HELD]
 *
 * OPERATIONS is for each CPU, and as many again before the counting begins. In each step a CPU drawn at random makes one operation, so that CPUs meet
 * as those of a real machine do that are equally fast. `none` closes the arrays (magazine_max:0). The clock stands still: no tick falls into it.
 * With HELD a visit keeps its depot's lock for the time of so many operations, and TICKS ticks go before the counting, with OPERATIONS before each:
 * where CPUs find locks taken, magazines grow, and for no other reason here. `transfer` is what a magazine of the depot of SCALING_BYTES holds in the
 * end, m/2; `contention`, how often its lock was found taken while visits were counted. Locks are watched by a function that the linker puts in front
 * of the simulation's
 * (--wrap). One thread, no locks of its own.
 */
#include <inttypes.h>
#include <stdio.h>

#include "layers.h"
#include "scaling_load.h"
#include "strata_sim.h"

#define LOCKS_MAX 1024 /* a power of two, more than there are caches */
#define SEED 7
#define HELD_MAX 1000000
#define TICKS 2 /* m doubles with each at most, and once is all that it grows by default */

struct watched {
    const void *lock;
    unsigned rank, last_cpu;
    uint64_t taken, handed_over;
};

static struct watched watched[LOCKS_MAX];
static unsigned current_cpu;
static int counting;

void __real_platform_lock_note_acquire(void *lock);
void __wrap_platform_lock_note_acquire(void *lock);
void __wrap_platform_lock_note_acquire(void *lock) {
    size_t place = (uintptr_t)lock * UINT64_C(0x9e3779b97f4a7c15) >> 40 & (LOCKS_MAX - 1);
    while (watched[place].lock && watched[place].lock != lock) place = (place + 1) & (LOCKS_MAX - 1);
    struct watched *one = &watched[place];
    if (!one->lock) *one = (struct watched){.lock = lock, .rank = strata_sim_lock_rank(lock), .last_cpu = current_cpu};
    one->taken += (unsigned)counting;
    one->handed_over += counting && one->last_cpu != current_cpu;
    one->last_cpu = current_cpu;
    __real_platform_lock_note_acquire(lock);
}

static void *alloc(unsigned cpu, size_t bytes) {
    current_cpu = cpu;
    return strata_sim_alloc(cpu, bytes);
}
static void release(unsigned cpu, void *block) {
    current_cpu = cpu;
    strata_sim_free(cpu, block);
}
static const struct scaling_memory memory = {alloc, release};

static struct layers_counts sum_of_counts(void) {
    struct layers_counts counts[LAYERS_SIZES], sum = {0};
    strata_layers.counts(counts);
    for (unsigned size = 0; size < LAYERS_SIZES; size++) {
        sum.alloc.global += counts[size].alloc.global;
        sum.alloc.coalescing += counts[size].alloc.coalescing;
        sum.free.global += counts[size].free.global;
        sum.free.coalescing += counts[size].free.coalescing;
    }
    return sum;
}

static uint64_t run(enum scaling_kind kind, struct scaling_cpu *states, unsigned cpus, uint64_t operations, struct rng *rng) {
    uint64_t done = 0;
    while (done < operations * cpus) done += scaling_step(kind, states, cpus, (unsigned)rng_below(rng, cpus), &memory);
    return done;
}

int main(int argc, char **argv) {
    int complete = argc == 5 || argc == 6;
    enum scaling_kind kind = complete ? scaling_kind_of(argv[1]) : SCALING_KINDS;
    unsigned cpus = complete ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
    uint64_t operations = complete ? strtoull(argv[3], NULL, 10) : 0;
    int closed = complete && !strcmp(argv[4], "none");
    unsigned held = argc == 6 ? (unsigned)strtoul(argv[5], NULL, 10) : 0;
    if (kind == SCALING_KINDS || !cpus || cpus > LAYERS_CPUS_MAX || !operations || (!closed && strcmp(argv[4], "magazines")) ||
        (argc == 6 && (!held || held > HELD_MAX)))
        load_fail("usage: scaling_visits pairs|bursts|mixed|passed CPUS OPERATIONS magazines|none [HELD]");
    strata_sim_start(cpus, closed ? "background:off,magazine_max:0" : "background:off");
    strata_sim_stop_growth();
    struct scaling_cpu *states = calloc(cpus, sizeof *states);
    if (!states) load_fail("no memory for CPUs");
    for (unsigned cpu = 0; cpu < cpus; cpu++) scaling_begin(&states[cpu], cpu);
    struct rng rng = rng_seed(SEED);

    strata_sim_hold(held);
    for (unsigned tick = 0; held && tick < TICKS; tick++) {
        run(kind, states, cpus, operations, &rng);
        strata_sim_tick();
    }
    run(kind, states, cpus, operations, &rng);
    struct strata_sim_depot depot_before = strata_sim_depot_of(SCALING_BYTES);
    struct layers_counts before = sum_of_counts();
    counting = 1;
    uint64_t done = run(kind, states, cpus, operations, &rng);
    counting = 0;
    struct layers_counts after = sum_of_counts(), grown = layers_counts_since(&after, &before);
    struct strata_sim_depot depot = strata_sim_depot_of(SCALING_BYTES);
    for (unsigned cpu = 0; cpu < cpus; cpu++) scaling_end(&states[cpu], cpu, &memory);
    strata_layers.check_empty();

    printf("{\"operations\": %" PRIu64 ", \"depot_visits\": %" PRIu64 ", \"slab_visits\": %" PRIu64 ", \"transfer\": %u, \"contention\": %" PRIu64
           ", \"locks\": [",
           done, grown.alloc.global + grown.free.global, grown.alloc.coalescing + grown.free.coalescing, depot.transfer,
           depot.contention - depot_before.contention);
    const char *comma = "";
    for (unsigned i = 0; i < LOCKS_MAX; i++) {
        if (!watched[i].taken) continue;
        printf("%s{\"layer\": \"%s\", \"taken\": %" PRIu64 ", \"handed_over\": %" PRIu64 "}", comma, strata_sim_rank_name(watched[i].rank),
               watched[i].taken, watched[i].handed_over);
        comma = ", ";
    }
    printf("]}\n");
    free(states);
    return fflush(stdout) ? 2 : 0;
}
