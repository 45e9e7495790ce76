/*
 * asymmetric.c - load: threads that only allocate and threads that only free, with batches of random size between them.
 *
 * A server whose requests are taken in by one kind of thread and finished by another. Batches hold 1 to 1,024 blocks, log-uniform, and lie in a block
 * of their own; the newest batch is freed first, whoever made it. The imbalance is what C. Lever and D. Boreham ask of an allocator in "malloc()
 * performance in a multithreaded Linux environment" (USENIX 2000): what one thread frees has to come back to another, in no steady rhythm.
 *
 * Invariant: 0 <= waiting <= STACK_BATCHES, taken <= all. One lock guards the stack and its counts.
 */
#include "latency.h"

#include <pthread.h>

#define MAKERS 2
#define TAKERS 2
#define STACK_BATCHES 24
#define BATCHES UINT64_C(72000)
#define BATCH_MAX_SHIFT 10

struct batch {
    size_t length;
    struct block blocks[];
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t has_room, has_batch;
    struct batch *batches[STACK_BATCHES];
    unsigned waiting;
    uint64_t taken, all;
} stack = {.lock = PTHREAD_MUTEX_INITIALIZER, .has_room = PTHREAD_COND_INITIALIZER, .has_batch = PTHREAD_COND_INITIALIZER};

static void push(struct batch *batch) {
    pthread_mutex_lock(&stack.lock);
    while (stack.waiting == STACK_BATCHES) pthread_cond_wait(&stack.has_room, &stack.lock);
    stack.batches[stack.waiting++] = batch;
    pthread_cond_signal(&stack.has_batch);
    pthread_mutex_unlock(&stack.lock);
}

/* The newest batch, or NULL when all have been taken. */
static struct batch *pop(void) {
    struct batch *batch = NULL;
    pthread_mutex_lock(&stack.lock);
    while (!stack.waiting && stack.taken < stack.all) pthread_cond_wait(&stack.has_batch, &stack.lock);
    if (stack.waiting) {
        batch = stack.batches[--stack.waiting];
        if (++stack.taken == stack.all) pthread_cond_broadcast(&stack.has_batch);
        pthread_cond_signal(&stack.has_room);
    }
    pthread_mutex_unlock(&stack.lock);
    return batch;
}

static void make(unsigned index) {
    struct rng rng = rng_seed(300 + index);
    struct latency_sampler sampler = latency_sampler(index);
    for (uint64_t i = 0; i < stack.all / MAKERS; i++) {
        size_t length = rng_doubling(&rng, 0, BATCH_MAX_SHIFT);
        struct batch *batch = malloc(sizeof *batch + length * sizeof *batch->blocks);
        if (!batch) load_fail("malloc returned NULL");
        batch->length = length;
        for (size_t b = 0; b < length; b++) {
            uint64_t tag = rng_next(&rng);
            batch->blocks[b] = block_take_timed(&sampler, tag & 15 ? 16 + (tag >> 56) : 512 + (tag >> 54), tag);
        }
        push(batch);
    }
}

static void take(unsigned index, struct tally *tally) {
    struct latency_sampler sampler = latency_sampler(index);
    for (struct batch *batch; (batch = pop()); free(batch))
        for (size_t b = 0; b < batch->length; b++) block_drop_timed(&sampler, &batch->blocks[b], tally);
}

static void worker(unsigned index, void *context, struct tally *tally) {
    (void)context;
    if (index < MAKERS)
        make(index);
    else
        take(index, tally);
}

int main(int argc, char **argv) {
    struct load_args args = load_arguments(argc, argv);
    uint64_t start_ns = load_clock_ns();

    args.threads = MAKERS + TAKERS;
    stack.all = (load_scaled(&args, BATCHES) + MAKERS - 1) / MAKERS * MAKERS;
    struct tally total = load_threads(args.threads, worker, NULL);
    load_report("asymmetric", &args, &total, load_clock_ns() - start_ns);
    return 0;
}
