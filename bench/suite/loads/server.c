/*
 * server.c - load: random lifetimes with the sizes that servers ask for.
 *
 * Each thread owns three sets of slots. Most steps replace a block of the hot set (a request's objects), some of the warm set (sessions), few of the
 * cold set (cached data), so lifetimes spread over four decades. Sizes: most below 64 bytes, a thin tail up to 256 KiB that holds most of the bytes.
 * One step in sixteen uses calloc and checks the zeros, one in thirty-two resizes the block in its slot and checks that the contents came along.
 *
 * --threads N runs N independent servers over the same total of steps and slots, so 1 and 32 threads do the same work: what differs is what the
 * allocator keeps for each thread. No locks.
 */
#include "latency.h"

#define HOT_SLOTS ((size_t)1024)
#define WARM_SLOTS ((size_t)16384)
#define COLD_SLOTS ((size_t)65536)
#define STEPS UINT64_C(10000000)
#define SLOTS_FLOOR 16

struct server {
    struct load_args args;
};

static size_t pick_size_bytes(struct rng *rng) {
    uint64_t percent_mille = rng_below(rng, 1000);
    if (percent_mille < 550) return rng_between(rng, 8, 64);
    if (percent_mille < 850) return rng_between(rng, 65, 256);
    if (percent_mille < 955) return rng_between(rng, 257, 1024);
    if (percent_mille < 993) return rng_between(rng, 1025, 8 * KIB);
    if (percent_mille < 999) return rng_between(rng, 8 * KIB, 64 * KIB);
    return rng_between(rng, 64 * KIB, 256 * KIB);
}

static struct block take_zeroed(size_t size_bytes, uint64_t tag) {
    struct block block = {.memory = calloc(1, size_bytes), .size_bytes = size_bytes, .tag = tag};
    if (!block.memory) load_fail("calloc returned NULL");
    const unsigned char *bytes = block.memory;
    unsigned char seen = bytes[size_bytes - 1];
    for (size_t offset = 0; offset < size_bytes; offset += CACHE_LINE_BYTES) seen |= bytes[offset];
    if (seen) load_fail("calloc returned memory that is not zero");
    block_write(block.memory, size_bytes, tag);
    return block;
}

static void resize(struct block *block, size_t size_bytes, uint64_t tag, struct tally *tally) {
    tally->operations++;
    tally->checksum += block_read(block->memory, block->size_bytes, block->tag);
    void *moved = realloc(block->memory, size_bytes);
    if (!moved) load_fail("realloc returned NULL");
    uint64_t head;
    memcpy(&head, moved, sizeof head);
    if (head != block->tag) load_fail("realloc lost the contents");
    if (size_bytes >= block->size_bytes) block_read(moved, block->size_bytes, block->tag); /* all of it came along */
    *block = (struct block){.memory = moved, .size_bytes = size_bytes, .tag = tag};
    block_write(moved, size_bytes, tag);
}

static void step(struct block *slot, struct rng *rng, struct latency_sampler *sampler, struct tally *tally) {
    uint64_t tag = rng_next(rng);
    size_t size_bytes = pick_size_bytes(rng);
    if (slot->memory && (tag >> 59) == 0) {
        resize(slot, size_bytes, tag, tally);
        return;
    }
    if (slot->memory) block_drop_timed(sampler, slot, tally);
    *slot = (tag >> 60) == 1 ? take_zeroed(size_bytes, tag) : block_take_timed(sampler, size_bytes, tag);
}

static size_t share(size_t slots, unsigned threads) {
    size_t own = slots / threads;
    return own > SLOTS_FLOOR ? own : SLOTS_FLOOR;
}

static void serve(unsigned index, void *context, struct tally *tally) {
    const struct server *server = context;
    size_t hot = share(HOT_SLOTS, server->args.threads), warm = share(WARM_SLOTS, server->args.threads);
    size_t cold = share(COLD_SLOTS, server->args.threads), all = hot + warm + cold;
    uint64_t steps = load_scaled(&server->args, STEPS) / server->args.threads;
    struct rng rng = rng_seed(1000 + index);
    struct latency_sampler sampler = latency_sampler(index);
    struct block *slots = calloc(all, sizeof *slots);

    if (!slots) load_fail("calloc returned NULL");
    for (uint64_t i = 0; i < steps; i++) {
        uint64_t kind = rng_below(&rng, 100);
        size_t at = kind < 80 ? rng_below(&rng, hot) : kind < 96 ? hot + rng_below(&rng, warm) : hot + warm + rng_below(&rng, cold);
        step(&slots[at], &rng, &sampler, tally);
    }
    for (size_t i = 0; i < all; i++)
        if (slots[i].memory) block_drop(&slots[i], tally);
    free(slots);
}

int main(int argc, char **argv) {
    struct server server = {.args = load_arguments(argc, argv)};
    uint64_t start_ns = load_clock_ns();

    if (!server.args.threads) server.args.threads = 1;
    struct tally total = load_threads(server.args.threads, serve, &server);
    load_report("server", &server.args, &total, load_clock_ns() - start_ns);
    return 0;
}
