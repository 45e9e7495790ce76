/*
 * sleepers.c - load: a thousand threads that sleep most of the time.
 *
 * A server with a thread for each connection. A dispatcher wakes threads at random, a few at a time; each handles a request (some tens of blocks,
 * most of them freed at its end, some kept in the session until a later request replaces them) and sleeps again. What an allocator keeps for a thread
 * that sleeps is memory that nobody uses, as the depot of J. Bonwick's and J. Adams' magazines (USENIX 2001) has it for CPUs.
 *
 * Invariant: at most AWAKE threads are between their semaphore `wake` and the dispatcher's `done`. No locks.
 */
#include "latency.h"

#include <pthread.h>
#include <semaphore.h>

#define THREADS 1000
#define AWAKE 8
#define KEPT 24
#define REQUEST_BLOCKS 60
#define REQUESTS UINT64_C(60000)
#define STACK_BYTES (128 * KIB)

struct session {
    sem_t wake;
    pthread_t thread;
    struct rng rng;
    struct tally tally;
    struct block kept[KEPT];
    int ends; /* set by the dispatcher before it wakes the thread for the last time */
} __attribute__((aligned(CACHE_LINE_BYTES)));

static struct session sessions[THREADS];
static sem_t done;

static size_t request_bytes(uint64_t tag) { return tag & 15 ? 16 + (tag >> 56) : 512 + (tag >> 52); }

static void handle_request(struct session *session, struct latency_sampler *sampler) {
    struct block blocks[REQUEST_BLOCKS];
    for (unsigned i = 0; i < REQUEST_BLOCKS; i++) {
        uint64_t tag = rng_next(&session->rng);
        blocks[i] = block_take_timed(sampler, request_bytes(tag), tag);
    }
    for (unsigned i = 0; i < REQUEST_BLOCKS; i++) {
        struct block *kept = &session->kept[rng_below(&session->rng, KEPT)];
        if (i % 8) {
            block_drop_timed(sampler, &blocks[i], &session->tally);
            continue;
        }
        if (kept->memory) block_drop_timed(sampler, kept, &session->tally);
        *kept = blocks[i];
    }
}

static void wait_for(sem_t *semaphore) {
    while (sem_wait(semaphore)) continue;
}

static void *session_main(void *argument) {
    struct session *session = argument;
    struct latency_sampler sampler = latency_sampler((uint64_t)(session - sessions));
    for (;;) {
        wait_for(&session->wake);
        if (session->ends) break;
        handle_request(session, &sampler);
        if (sem_post(&done)) load_fail("sem_post failed");
    }
    for (unsigned i = 0; i < KEPT; i++)
        if (session->kept[i].memory) block_drop(&session->kept[i], &session->tally);
    return NULL;
}

static void start_sessions(void) {
    pthread_attr_t attributes;
    if (sem_init(&done, 0, AWAKE) || pthread_attr_init(&attributes) || pthread_attr_setstacksize(&attributes, STACK_BYTES))
        load_fail("cannot prepare the threads");
    for (unsigned i = 0; i < THREADS; i++) {
        sessions[i].rng = rng_seed(7000 + i);
        if (sem_init(&sessions[i].wake, 0, 0) || pthread_create(&sessions[i].thread, &attributes, session_main, &sessions[i]))
            load_fail("cannot start a thread");
    }
    pthread_attr_destroy(&attributes);
}

int main(int argc, char **argv) {
    struct load_args args = load_arguments(argc, argv);
    struct tally total = {0};
    struct rng rng = rng_seed(9);
    uint64_t requests = load_scaled(&args, REQUESTS), start_ns = load_clock_ns();

    args.threads = THREADS;
    start_sessions();
    for (uint64_t i = 0; i < requests; i++) {
        wait_for(&done);
        if (sem_post(&sessions[rng_below(&rng, THREADS)].wake)) load_fail("sem_post failed");
    }
    for (unsigned i = 0; i < AWAKE; i++) wait_for(&done);
    for (unsigned i = 0; i < THREADS; i++) {
        sessions[i].ends = 1;
        if (sem_post(&sessions[i].wake) || pthread_join(sessions[i].thread, NULL)) load_fail("cannot end a thread");
        total.operations += sessions[i].tally.operations;
        total.checksum += sessions[i].tally.checksum;
    }
    load_report("sleepers", &args, &total, load_clock_ns() - start_ns);
    return 0;
}
