/*
 * pair.c - load: one malloc and its free, again and again, over a handful of sizes.
 *
 * A function with one temporary buffer: the shortest way through an allocator, where the store of the free is loaded by the next malloc. The size
 * changes only every 1,024 pairs, so the chain of dependent stores and loads is what is measured. One thread, no locks.
 */
#include "load.h"

#define PAIRS_PER_SIZE 1024

int main(int argc, char **argv) {
    static const size_t sizes_bytes[] = {16, 24, 40, 64, 100, 160, 256, 480, 1000, 2000};
    struct load_args args = load_arguments(argc, argv);
    struct tally tally = {0};
    uint64_t rounds = load_scaled(&args, 80000);
    uint64_t start_ns = load_clock_ns();

    args.threads = 1;
    for (uint64_t round = 0; round < rounds; round++) {
        size_t size_bytes = sizes_bytes[round % (sizeof sizes_bytes / sizeof sizes_bytes[0])];
        for (uint64_t i = 0; i < PAIRS_PER_SIZE; i++) {
            struct block block = block_take(size_bytes, round ^ i);
            block_drop(&block, &tally);
        }
    }
    load_report("pair", &args, &tally, load_clock_ns() - start_ns);
    return 0;
}
