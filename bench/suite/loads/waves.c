/*
 * waves.c - load: waves of blocks whose sizes are exponential.
 *
 * A program that gets busy and idle again, whose peaks are what P. Wilson and others ("Dynamic storage allocation", IWMM 1995) find in programs: the
 * live bytes climb to a crest, are replaced there for a while, and fall to a sixteenth. Crests double from 2 MiB to 64 MiB and start over. In each
 * trough a small program goes on in what is left, so that the time-averaged memory tells who gives pages back, and who keeps them. Sizes are
 * exponential with a mean of 256 bytes, which makes one in a thousand larger than 1.7 KiB. One thread, no locks.
 */
#include "load.h"

#define MEAN_BYTES 256.0
#define LN_2 0.6931471805599453
#define CREST_MIN_BYTES (2 * MIB)
#define CRESTS 6
#define CREST_MAX_BYTES (CREST_MIN_BYTES << (CRESTS - 1))
#define SLOTS_MAX (CREST_MAX_BYTES / 128)
#define TROUGH_SHARE 16
#define TROUGH_STEPS UINT64_C(900000)
#define CYCLES 2

static struct block slots[SLOTS_MAX];
static size_t count, live_bytes;

/* -log2 of a uniform number is its leading zeros, and nearly linear between two powers of two; times ln 2 it is exponential. */
static size_t exponential_bytes(struct rng *rng) {
    uint64_t uniform = rng_next(rng) | 1;
    unsigned zeros = (unsigned)__builtin_clzll(uniform);
    double fraction = 1.0 - (double)(uniform << zeros << 1) / 18446744073709551616.0;
    return BLOCK_MIN_BYTES + (size_t)(MEAN_BYTES * LN_2 * ((double)zeros + fraction));
}

static void grow_to(size_t bytes, struct rng *rng) {
    while (live_bytes < bytes && count < SLOTS_MAX) {
        slots[count] = block_take(exponential_bytes(rng), rng_next(rng));
        live_bytes += slots[count++].size_bytes;
    }
}

static void shrink_to(size_t bytes, struct rng *rng, struct tally *tally) {
    while (live_bytes > bytes && count) {
        size_t index = rng_below(rng, count);
        live_bytes -= slots[index].size_bytes;
        block_drop(&slots[index], tally);
        slots[index] = slots[--count];
    }
}

static void replace(uint64_t steps, struct rng *rng, struct tally *tally) {
    for (uint64_t i = 0; i < steps; i++) {
        struct block *slot = &slots[rng_below(rng, count)];
        live_bytes -= slot->size_bytes;
        block_drop(slot, tally);
        *slot = block_take(exponential_bytes(rng), rng_next(rng));
        live_bytes += slot->size_bytes;
    }
}

int main(int argc, char **argv) {
    struct load_args args = load_arguments(argc, argv);
    struct tally tally = {0};
    struct rng rng = rng_seed(77);
    uint64_t start_ns = load_clock_ns();

    args.threads = 1;
    for (unsigned wave = 0; wave < CYCLES * CRESTS; wave++) {
        size_t crest_bytes = load_scaled(&args, CREST_MIN_BYTES << wave % CRESTS);
        grow_to(crest_bytes, &rng);
        replace(count / 2, &rng, &tally);
        shrink_to(crest_bytes / TROUGH_SHARE, &rng, &tally);
        if (count) replace(load_scaled(&args, TROUGH_STEPS), &rng, &tally);
    }
    shrink_to(0, &rng, &tally);
    load_report("waves", &args, &tally, load_clock_ns() - start_ns);
    return 0;
}
