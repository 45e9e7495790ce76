/*
 * magazines_thrash.c - experiment: section 3.1 of the magazines paper. How often does a CPU layer come to the layers below, when a program allocates
 * K blocks and frees them again, over and over?
 *
 *     magazines_thrash HELD_STEP REPETITIONS
 *
 * For K of 1, 2, 4, ... and for every number of blocks held beforehand (so that the loop meets the layer in all its states), the rate is counted for
 * strata, by its statistics, and for two layers that are simulated here by their numbers of rounds alone: one magazine of M rounds, and the
 * paper's two, loaded and previous. M is strata's magazine. One thread on one CPU, no locks.
 */
#include <inttypes.h>
#include <stdio.h>

#include "load.h"
#include "stats_figure.h"
#include "timing.h"

#define BLOCK_BYTES 64
#define ROUNDS_MAX 1024
#define BURST_MAX (4 * ROUNDS_MAX)

static unsigned rounds;      /* of a magazine: M */
static uint64_t repetitions; /* of K allocations and K frees */
static void *held[2 * ROUNDS_MAX], *burst[BURST_MAX];

/* How many objects have crossed the border of the CPU layer so far, in either direction. */
static uint64_t crossed(void) {
    const char *stats = stats_now();
    static const char *const ways[] = {"depot_allocs", "depot_frees", "slab_allocs", "slab_frees"};
    double objects = 0;
    for (unsigned i = 0; i < sizeof ways / sizeof ways[0]; i++) objects += stats_of_class(stats, BLOCK_BYTES, ways[i]);
    rounds = (unsigned)stats_of_class(stats, BLOCK_BYTES, "magazine_rounds");
    return (uint64_t)objects;
}

static void *take(uint64_t tag) {
    void *memory = malloc(BLOCK_BYTES);
    if (!memory) load_fail("no memory");
    block_write(memory, BLOCK_BYTES, tag);
    return memory;
}

static void drop(void *memory, uint64_t tag) {
    block_read(memory, BLOCK_BYTES, tag);
    free(memory);
}

/* Accesses to the layers below in each allocation or free, for strata. Objects that cross come by magazines. */
static double strata_rate(unsigned hold, unsigned length) {
    for (unsigned i = 0; i < hold; i++) held[i] = take(i);
    uint64_t before = crossed();
    for (uint64_t repetition = 0; repetition < repetitions; repetition++) {
        for (unsigned i = 0; i < length; i++) burst[i] = take(repetition + i);
        for (unsigned i = length; i--;) drop(burst[i], repetition + i);
    }
    uint64_t accesses = (crossed() - before) / rounds;
    for (unsigned i = hold; i--;) drop(held[i], i);
    return (double)accesses / (double)(2 * length * repetitions);
}

/* A CPU layer of one or two magazines of M rounds, by the numbers of their rounds. The depot has as many full and empty ones as are asked for. */
struct layer {
    unsigned magazines;
    unsigned loaded, previous;
    uint64_t accesses;
};

static void layer_reload(struct layer *layer, unsigned wanted) {
    unsigned old = layer->loaded;
    if (layer->magazines == 2 && layer->previous == wanted) {
        layer->loaded = wanted;
        layer->previous = old;
        return;
    }
    layer->accesses++;
    layer->previous = old;
    layer->loaded = wanted;
}

static void layer_allocate(struct layer *layer) {
    if (!layer->loaded) layer_reload(layer, rounds);
    layer->loaded--;
}

static void layer_free(struct layer *layer) {
    if (layer->loaded == rounds) layer_reload(layer, 0);
    layer->loaded++;
}

static double layer_rate(unsigned magazines, unsigned hold, unsigned length) {
    struct layer layer = {.magazines = magazines};
    for (unsigned i = 0; i < hold; i++) layer_allocate(&layer);
    layer.accesses = 0;
    for (uint64_t repetition = 0; repetition < repetitions; repetition++) {
        for (unsigned i = 0; i < length; i++) layer_allocate(&layer);
        for (unsigned i = 0; i < length; i++) layer_free(&layer);
    }
    return (double)layer.accesses / (double)(2 * length * repetitions);
}

int main(int argc, char **argv) {
    unsigned step = argc == 3 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    repetitions = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
    if (!step || !repetitions) load_fail("usage: magazines_thrash HELD_STEP REPETITIONS");
    timing_pin(0);
    crossed();
    if (!rounds || rounds > ROUNDS_MAX) load_fail("strata's magazines have a size that is not expected");

    const char *comma = "";
    printf("{\"rounds\": %u, \"bursts\": [", rounds);
    for (unsigned length = 1; length <= 4 * rounds; length *= 2) {
        double strata = 0, one = 0, two = 0;
        for (unsigned hold = 0; hold < 2 * rounds; hold++) {
            double rate;
            if (hold % step == 0 && (rate = strata_rate(hold, length)) > strata) strata = rate;
            if ((rate = layer_rate(1, hold, length)) > one) one = rate;
            if ((rate = layer_rate(2, hold, length)) > two) two = rate;
        }
        printf("%s{\"length\": %u, \"strata\": %.8f, \"one\": %.8f, \"two\": %.8f}", comma, length, strata, one, two);
        comma = ", ";
    }
    printf("]}\n");
    return fflush(stdout) ? 2 : 0;
}
