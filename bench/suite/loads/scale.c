/*
 * scale.c - load: independent work in one or more threads.
 *
 * Every thread does the same fixed amount of work on blocks of its own: bursts, a ring, and replacements at random over a few thousand slots. Nothing
 * is shared but the allocator, so N threads should take as long as one; N * t(1) / t(N) is the scaling, N being perfect.
 *
 * --mode control does the same accesses in memory that was taken before the clock starts: what the machine itself allows (shared caches, memory
 * bandwidth, two hardware threads of one core).
 *
 * The clock runs from the first thread that leaves the barrier to the last that has freed its blocks: starting threads is not what is measured here.
 * No locks.
 */
#include "load.h"

#include <pthread.h>

#define THREADS_MAX 64
#define SLOTS 4096
#define RING 256
#define BURST 64
#define ROUNDS UINT64_C(160000)
#define SIZE_MAX_BYTES ((size_t)512)

struct worker {
    struct block slots[SLOTS];
    struct block ring[RING];
    struct block burst[BURST];
} __attribute__((aligned(CACHE_LINE_BYTES)));

struct scale {
    struct load_args args;
    int control;
    pthread_barrier_t ready;
    uint64_t start_ns[THREADS_MAX], end_ns[THREADS_MAX]; /* each written by its thread, read after all have ended */
};

static struct block next_block(const struct scale *scale, struct block *old, struct rng *rng, struct tally *tally) {
    uint64_t tag = rng_next(rng);
    size_t size_bytes = 8 + (tag >> 56) * (SIZE_MAX_BYTES - 8) / 256;
    if (!scale->control) {
        if (old->memory) block_drop(old, tally);
        return block_take(size_bytes, tag);
    }
    if (old->size_bytes) {
        tally->operations++;
        tally->checksum += block_read(old->memory, old->size_bytes, old->tag) ^ old->size_bytes;
    }
    block_write(old->memory, size_bytes, tag);
    return (struct block){.memory = old->memory, .size_bytes = size_bytes, .tag = tag};
}

static void end_blocks(const struct scale *scale, struct block *blocks, size_t count, struct tally *tally) {
    for (size_t i = 0; i < count; i++) {
        if (!blocks[i].size_bytes) continue;
        if (scale->control) {
            tally->operations++;
            tally->checksum += block_read(blocks[i].memory, blocks[i].size_bytes, blocks[i].tag) ^ blocks[i].size_bytes;
        } else {
            block_drop(&blocks[i], tally);
        }
        blocks[i].size_bytes = 0;
    }
}

static void prepare_control(struct block *blocks, size_t count) {
    for (size_t i = 0; i < count; i++) {
        blocks[i].memory = malloc(SIZE_MAX_BYTES);
        if (!blocks[i].memory) load_fail("malloc returned NULL");
    }
}

static void work(unsigned index, void *context, struct tally *tally) {
    struct scale *scale = context;
    struct rng rng = rng_seed(2000 + index);
    uint64_t rounds = load_scaled(&scale->args, ROUNDS);
    struct worker *worker = calloc(1, sizeof *worker);

    if (!worker) load_fail("calloc returned NULL");
    if (scale->control) {
        prepare_control(worker->slots, SLOTS);
        prepare_control(worker->ring, RING);
        prepare_control(worker->burst, BURST);
    }
    pthread_barrier_wait(&scale->ready);
    scale->start_ns[index] = load_clock_ns();
    for (uint64_t round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < BURST; i++) worker->burst[i] = next_block(scale, &worker->burst[i], &rng, tally);
        end_blocks(scale, worker->burst, BURST, tally);
        for (unsigned i = 0; i < BURST; i++) {
            struct block *oldest = &worker->ring[(round * BURST + i) % RING];
            *oldest = next_block(scale, oldest, &rng, tally);
        }
        for (unsigned i = 0; i < BURST; i++) {
            struct block *slot = &worker->slots[rng_below(&rng, SLOTS)];
            *slot = next_block(scale, slot, &rng, tally);
        }
    }
    end_blocks(scale, worker->slots, SLOTS, tally);
    end_blocks(scale, worker->ring, RING, tally);
    scale->end_ns[index] = load_clock_ns();
    free(worker);
}

int main(int argc, char **argv) {
    static struct scale scale;
    uint64_t first_ns = UINT64_MAX, last_ns = 0;

    scale.args = load_arguments(argc, argv);
    scale.control = !strcmp(scale.args.mode, "control");
    if (*scale.args.mode && !scale.control) load_fail("--mode is control or absent");
    if (!scale.args.threads) scale.args.threads = 1;
    if (scale.args.threads > THREADS_MAX || pthread_barrier_init(&scale.ready, NULL, scale.args.threads)) load_fail("too many threads");
    struct tally total = load_threads(scale.args.threads, work, &scale);
    for (unsigned i = 0; i < scale.args.threads; i++) {
        first_ns = scale.start_ns[i] < first_ns ? scale.start_ns[i] : first_ns;
        last_ns = scale.end_ns[i] > last_ns ? scale.end_ns[i] : last_ns;
    }
    load_report("scale", &scale.args, &total, last_ns - first_ns);
    return 0;
}
