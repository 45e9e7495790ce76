/*
 * handoff.c - load: two threads that hand blocks to each other in batches.
 *
 * --mode pipeline: one thread allocates, the other frees, so every block dies on a CPU other than its own. --mode exchange (default): both threads
 * allocate and both free what the other sent, as two workers that answer each other do. --threads 2 N runs N such pairs beside each other. Batches
 * hold 128 blocks; at most QUEUE_BATCHES of them wait in a direction, so memory is bounded by the queue and not by the speed of the threads.
 *
 * Invariant: queue.sent and queue.taken only grow, sent - taken is in 0..QUEUE_BATCHES, and the batch at index i belongs to the sender until sent
 * passes i (release) and to the receiver until taken does. No locks.
 */
#include "load.h"

#include <sched.h>
#include <stdatomic.h>

#define BATCH_BLOCKS 128
#define QUEUE_BATCHES 32
#define THREADS_MAX 16
#define SPINS_TO_YIELD 256

struct batch {
    struct block blocks[BATCH_BLOCKS];
};

struct queue {
    _Alignas(CACHE_LINE_BYTES) _Atomic uint64_t sent;
    _Alignas(CACHE_LINE_BYTES) _Atomic uint64_t taken;
    _Alignas(CACHE_LINE_BYTES) struct batch batches[QUEUE_BATCHES];
};

static struct queue queues[THREADS_MAX];
static uint64_t batches_per_sender;
static int both_send;

static int queue_has_room(struct queue *queue, uint64_t sent) {
    return sent - atomic_load_explicit(&queue->taken, memory_order_acquire) < QUEUE_BATCHES;
}

static int queue_has_batch(struct queue *queue, uint64_t taken) { return atomic_load_explicit(&queue->sent, memory_order_acquire) != taken; }

static void send_batch(struct queue *queue, uint64_t sent, struct rng *rng) {
    struct batch *batch = &queue->batches[sent % QUEUE_BATCHES];
    for (unsigned i = 0; i < BATCH_BLOCKS; i++) {
        uint64_t tag = rng_next(rng);
        size_t size_bytes = tag & 15 ? 16 + (tag >> 56) : 512 + (tag >> 53);
        batch->blocks[i] = block_take(size_bytes, tag);
    }
    atomic_store_explicit(&queue->sent, sent + 1, memory_order_release);
}

static void take_batch(struct queue *queue, uint64_t taken, struct tally *tally) {
    struct batch *batch = &queue->batches[taken % QUEUE_BATCHES];
    for (unsigned i = 0; i < BATCH_BLOCKS; i++) block_drop(&batch->blocks[i], tally);
    atomic_store_explicit(&queue->taken, taken + 1, memory_order_release);
}

/* Does whatever it can, sending or taking, and yields the CPU where it could do neither for a while. */
static void worker(unsigned index, void *context, struct tally *tally) {
    struct queue *outgoing = &queues[index], *incoming = &queues[index ^ 1];
    struct rng rng = rng_seed(100 + index);
    uint64_t to_send = both_send || index % 2 == 0 ? batches_per_sender : 0;
    uint64_t to_take = both_send || index % 2 == 1 ? batches_per_sender : 0;
    uint64_t sent = 0, taken = 0;
    unsigned spins = 0;

    (void)context;
    while (sent < to_send || taken < to_take) {
        int idle = 1;
        if (sent < to_send && queue_has_room(outgoing, sent)) {
            send_batch(outgoing, sent++, &rng);
            idle = 0;
        }
        if (taken < to_take && queue_has_batch(incoming, taken)) {
            take_batch(incoming, taken++, tally);
            idle = 0;
        }
        spins = idle ? spins + 1 : 0;
        if (spins > SPINS_TO_YIELD) sched_yield();
    }
}

int main(int argc, char **argv) {
    struct load_args args = load_arguments(argc, argv);
    uint64_t start_ns = load_clock_ns();

    if (!*args.mode) args.mode = "exchange";
    both_send = !strcmp(args.mode, "exchange");
    if (!both_send && strcmp(args.mode, "pipeline")) load_fail("--mode is exchange or pipeline");
    if (!args.threads) args.threads = 2;
    if (args.threads > THREADS_MAX || args.threads % 2) load_fail("--threads is 2, 4 ... 16");
    batches_per_sender = load_scaled(&args, both_send ? 110000 : 80000) * 2 / args.threads;
    struct tally total = load_threads(args.threads, worker, NULL);
    load_report("handoff", &args, &total, load_clock_ns() - start_ns);
    return 0;
}
