/*
 * burst.c - load: bursts of blocks of mixed sizes, allocated together and freed together.
 *
 * A request that builds its objects and drops them at its end. Burst lengths run from 16 to 4,096; a burst is freed from the newest to the oldest,
 * from the oldest to the newest, or in a scattered order, in turn. One thread, no locks.
 */
#include "load.h"

#define BURST_MAX_SHIFT 12
#define BURST_MIN_SHIFT 4

/* A multiplier that is odd visits every index of a power-of-two burst exactly once. */
#define SCATTER 2654435761u

static void free_burst(struct block *blocks, size_t length, unsigned order, struct tally *tally) {
    for (size_t i = 0; i < length; i++) {
        size_t index = order == 0 ? length - 1 - i : order == 1 ? i : (i * SCATTER) & (length - 1);
        block_drop(&blocks[index], tally);
    }
}

int main(int argc, char **argv) {
    static struct block blocks[(size_t)1 << BURST_MAX_SHIFT];
    struct load_args args = load_arguments(argc, argv);
    struct tally tally = {0};
    struct rng rng = rng_seed(7);
    uint64_t budget = load_scaled(&args, 16000000);
    uint64_t start_ns = load_clock_ns();

    args.threads = 1;
    for (unsigned turn = 0; tally.operations < budget; turn++) {
        size_t length = (size_t)1 << (BURST_MIN_SHIFT + rng_below(&rng, BURST_MAX_SHIFT - BURST_MIN_SHIFT + 1));
        for (size_t i = 0; i < length; i++) {
            uint64_t tag = rng_next(&rng);
            /* Seven of eight are small objects, one of eight is a buffer of up to 4 KiB. */
            size_t size_bytes = tag & 7 ? 8 + (tag >> 56) : 256 + (tag >> 52) % 3840;
            blocks[i] = block_take(size_bytes, tag);
        }
        free_burst(blocks, length, turn % 3, &tally);
    }
    load_report("burst", &args, &tally, load_clock_ns() - start_ns);
    return 0;
}
