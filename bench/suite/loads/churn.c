/*
 * churn.c - load: threads that die young and leave their blocks to their successors.
 *
 * Two chains run side by side. A thread takes over the blocks of its predecessor, replaces blocks at random for a while, starts its successor, and
 * ends; so most frees concern blocks of threads that are gone, and what an allocator keeps for a thread must be given up and found again. After the
 * server that P.-Å. Larson and M. Krishnan describe in "Memory allocation for long-running server applications" (ISMM 1998), with generations as
 * short as they can be.
 *
 * Invariant: a chain's slots belong to its newest thread; pthread_create and sem_post order the hand-over. No locks.
 */
#include "latency.h"

#include <pthread.h>
#include <semaphore.h>

#define CHAINS 2
#define SLOTS 4000
#define GENERATIONS 1500
#define REPLACEMENTS 4000

struct chain {
    struct block slots[SLOTS];
    struct rng rng;
    struct tally tally;
    uint64_t generations_left;
    sem_t ended;
} __attribute__((aligned(CACHE_LINE_BYTES)));

static struct chain chains[CHAINS];

static void *generation(void *argument);

static void start_generation(struct chain *chain) {
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes) || pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) ||
        pthread_create(&thread, &attributes, generation, chain) || pthread_attr_destroy(&attributes))
        load_fail("cannot start a thread");
}

static void *generation(void *argument) {
    struct chain *chain = argument;
    struct latency_sampler sampler = latency_sampler(chain->generations_left);
    for (unsigned i = 0; i < REPLACEMENTS; i++) {
        struct block *slot = &chain->slots[rng_below(&chain->rng, SLOTS)];
        uint64_t tag = rng_next(&chain->rng);
        block_drop_timed(&sampler, slot, &chain->tally);
        *slot = block_take_timed(&sampler, tag & 31 ? 16 + (tag >> 55) : 512 + (tag >> 51), tag);
    }
    if (--chain->generations_left)
        start_generation(chain);
    else if (sem_post(&chain->ended))
        load_fail("sem_post failed");
    return NULL;
}

int main(int argc, char **argv) {
    struct load_args args = load_arguments(argc, argv);
    struct tally total = {0};
    uint64_t start_ns = load_clock_ns();

    args.threads = CHAINS;
    for (unsigned c = 0; c < CHAINS; c++) {
        struct chain *chain = &chains[c];
        chain->rng = rng_seed(500 + c);
        chain->generations_left = load_scaled(&args, GENERATIONS);
        if (sem_init(&chain->ended, 0, 0)) load_fail("sem_init failed");
        for (unsigned i = 0; i < SLOTS; i++) chain->slots[i] = block_take(rng_between(&chain->rng, 16, 528), i);
    }
    for (unsigned c = 0; c < CHAINS; c++) start_generation(&chains[c]);
    for (unsigned c = 0; c < CHAINS; c++) {
        struct chain *chain = &chains[c];
        while (sem_wait(&chain->ended)) continue;
        for (unsigned i = 0; i < SLOTS; i++) block_drop(&chain->slots[i], &chain->tally);
        total.operations += chain->tally.operations;
        total.checksum += chain->tally.checksum;
    }
    load_report("churn", &args, &total, load_clock_ns() - start_ns);
    return 0;
}
