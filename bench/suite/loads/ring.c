/*
 * ring.c - load: blocks of mixed small sizes in rings, the oldest freed and a new one allocated at each step.
 *
 * A queue in a running program: every block lives for exactly one turn of its ring. Rings of 64, 1,024 and 16,384 blocks follow each other, so that
 * the load passes through what fits a magazine, what fits the first caches of the processor, and what fits neither. One thread, no locks.
 */
#include "load.h"

#define RING_MAX ((size_t)16384)

int main(int argc, char **argv) {
    static const struct {
        size_t length;
        uint64_t steps;
    } rings[] = {{64, 20000000}, {1024, 16000000}, {RING_MAX, 8000000}};
    static struct block ring[RING_MAX];
    struct load_args args = load_arguments(argc, argv);
    struct tally tally = {0};
    uint64_t start_ns = load_clock_ns();

    args.threads = 1;
    for (size_t r = 0; r < sizeof rings / sizeof rings[0]; r++) {
        struct rng rng = rng_seed(r);
        size_t length = rings[r].length;
        uint64_t steps = load_scaled(&args, rings[r].steps);
        for (size_t i = 0; i < length; i++) ring[i] = block_take(rng_between(&rng, 8, 512), rng_next(&rng));
        for (uint64_t step = 0; step < steps; step++) {
            struct block *oldest = &ring[step & (length - 1)];
            uint64_t tag = rng_next(&rng);
            block_drop(oldest, &tally);
            *oldest = block_take(8 + (tag >> 55), tag);
        }
        for (size_t i = 0; i < length; i++) block_drop(&ring[i], &tally);
    }
    load_report("ring", &args, &tally, load_clock_ns() - start_ns);
    return 0;
}
