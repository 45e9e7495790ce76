/*
 * magazines_working_set.c - experiment: section 3.7 of the magazines paper. The full magazines of a depot under a load that goes up and down by
 * steps.
 *
 *     magazines_working_set CPUS INTERVALS AMPLITUDE...
 *
 * Beside HELD blocks that stay, the CPUs together go up to AMPLITUDE blocks (less up to a tenth) and down to none, CYCLES times between two ticks,
 * which come at any moment of it; for each amplitude INTERVALS times. Reports for each interval the most and the fewest full magazines in the depot,
 * those left after the tick at its end, and how many objects came from the slabs; and what a reap leaves after all that. On the simulated machine,
 * whose clock stands still, so that ticks are where they are made. One thread, no locks.
 */
#include <inttypes.h>
#include <stdio.h>

#include "layers.h"
#include "load.h"
#include "strata_sim.h"

#define BLOCK_BYTES 64
/* A depot may keep a sixteenth of its class. */
#define HELD 400000
#define CYCLES 8
#define AMPLITUDE_MAX 65536
#define SEED 5

static unsigned cpus;
static void *held[HELD], *swing[AMPLITUDE_MAX];

struct range {
    unsigned least, most;
};

static void look(struct range *range) {
    unsigned full = strata_sim_depot_of(BLOCK_BYTES).full;
    if (full < range->least) range->least = full;
    if (full > range->most) range->most = full;
}

/* The load as it stands: so many blocks of at most `top`, on the way up or down. Ticks come at any moment of it. */
static struct {
    unsigned count, top;
    int down;
} load;

static void run_interval(struct rng *rng, unsigned amplitude, struct range *range) {
    for (uint64_t operation = 0; operation < 2 * (uint64_t)CYCLES * amplitude; operation++) {
        if (!load.count) load.top = (unsigned)rng_between(rng, amplitude - amplitude / 10, amplitude);
        if (!load.count || load.count >= load.top) load.down = load.count != 0;
        if (load.down) {
            load.count--;
            strata_sim_free(load.count % cpus, swing[load.count]);
        } else {
            swing[load.count] = strata_sim_alloc(load.count % cpus, BLOCK_BYTES);
            load.count++;
        }
        look(range);
    }
}

int main(int argc, char **argv) {
    cpus = argc > 3 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    unsigned intervals = argc > 3 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
    if (!cpus || cpus > LAYERS_CPUS_MAX || !intervals) load_fail("usage: magazines_working_set CPUS INTERVALS AMPLITUDE...");
    strata_sim_start(cpus, "background:off");
    struct rng rng = rng_seed(SEED);
    for (unsigned i = 0; i < HELD; i++) held[i] = strata_sim_alloc(i % cpus, BLOCK_BYTES);
    strata_sim_tick();

    const char *comma = "";
    printf("{\"transfer\": %u, \"intervals\": [", strata_sim_depot_of(BLOCK_BYTES).transfer);
    for (int step = 3; step < argc; step++) {
        unsigned amplitude = (unsigned)strtoul(argv[step], NULL, 10);
        if (!amplitude || amplitude > AMPLITUDE_MAX) load_fail("an amplitude that is not allowed");
        for (unsigned interval = 0; interval < intervals; interval++) {
            struct strata_sim_depot before = strata_sim_depot_of(BLOCK_BYTES);
            struct range range = {before.full, before.full};
            run_interval(&rng, amplitude, &range);
            struct strata_sim_depot after = strata_sim_depot_of(BLOCK_BYTES);
            strata_sim_tick();
            printf("%s{\"amplitude\": %u, \"allocations\": %u, \"least\": %u, \"most\": %u, \"kept\": %u, \"from_slabs\": %" PRIu64 "}", comma,
                   amplitude, CYCLES * amplitude, range.least, range.most, strata_sim_depot_of(BLOCK_BYTES).full,
                   after.slab_allocs - before.slab_allocs);
            comma = ", ";
        }
    }
    strata_sim_reap();
    printf("], \"left_by_reap\": %u}\n", strata_sim_depot_of(BLOCK_BYTES).full);
    while (load.count--) strata_sim_free(0, swing[load.count]);
    for (unsigned i = 0; i < HELD; i++) strata_sim_free(i % cpus, held[i]);
    strata_layers.check_empty();
    return fflush(stdout) ? 2 : 0;
}
