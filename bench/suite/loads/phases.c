/*
 * phases.c - load: phases in which the mix of sizes shifts.
 *
 * Each phase fills 48 MiB with blocks of its own sizes, replaces half of them at random, and frees all but one in thirty-two; those survive into the
 * next phase and are freed at its end. What one phase leaves behind has to serve the next, whose sizes are others: an allocator that cannot give the
 * memory of one size to another, or return it, shows it in the peak. One thread, no locks.
 */
#include "load.h"

#define LIVE_BYTES (48 * MIB)
#define SLOTS_MAX ((size_t)1 << 21)
#define SURVIVOR_STRIDE 32
#define CYCLES 2

static const struct {
    unsigned low_shift, high_shift; /* sizes from 2^low to 2^high bytes */
} phases[] = {{4, 7}, {10, 13}, {6, 9}, {13, 17}, {5, 6}, {8, 11}, {16, 19}, {4, 12}};

static struct block slots[SLOTS_MAX];
static struct block survivors[SLOTS_MAX / SURVIVOR_STRIDE + 1];

static struct block take_random(struct rng *rng, unsigned low_shift, unsigned high_shift) {
    size_t size_bytes = rng_doubling(rng, low_shift, high_shift);
    return block_take(size_bytes, rng_next(rng));
}

static size_t run_phase(struct rng *rng, unsigned low_shift, unsigned high_shift, uint64_t live_bytes, struct tally *tally) {
    size_t count = 0, bytes = 0;
    while (bytes < live_bytes && count < SLOTS_MAX) {
        slots[count] = take_random(rng, low_shift, high_shift);
        bytes += slots[count++].size_bytes;
    }
    for (size_t i = 0; i < count / 2; i++) {
        struct block *slot = &slots[rng_below(rng, count)];
        block_drop(slot, tally);
        *slot = take_random(rng, low_shift, high_shift);
    }
    return count;
}

static void drop_survivors(size_t *count, struct tally *tally) {
    for (size_t i = 0; i < *count; i++) block_drop(&survivors[i], tally);
    *count = 0;
}

int main(int argc, char **argv) {
    struct load_args args = load_arguments(argc, argv);
    struct tally tally = {0};
    struct rng rng = rng_seed(21);
    size_t survivor_count = 0;
    uint64_t start_ns = load_clock_ns();

    args.threads = 1;
    for (unsigned i = 0; i < CYCLES * sizeof phases / sizeof phases[0]; i++) {
        unsigned phase = i % (sizeof phases / sizeof phases[0]);
        size_t count = run_phase(&rng, phases[phase].low_shift, phases[phase].high_shift, load_scaled(&args, LIVE_BYTES), &tally);
        drop_survivors(&survivor_count, &tally);
        for (size_t s = 0; s < count; s++) {
            if (s % SURVIVOR_STRIDE == 0)
                survivors[survivor_count++] = slots[s];
            else
                block_drop(&slots[s], &tally);
        }
    }
    drop_survivors(&survivor_count, &tally);
    load_report("phases", &args, &tally, load_clock_ns() - start_ns);
    return 0;
}
