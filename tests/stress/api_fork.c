/*
 * api_fork.c - forks a process whose threads are inside strata all the time, through strata_* only: each child must find every lock free.
 *
 * Two threads allocate and free, one takes statistics, which hold a lock of their own while they are written. Each child does all of it,
 * and forks once more. A child that waits for a lock of a thread that it does not have ends by SIGALRM. api_fork [FORKS] forks so often.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <strata/malloc.h>
#include <strata/strata.h>

#include "stress/api_fork_support.h"

enum { BLOCKS = 32 };

static uint32_t stop;
static int null_fd;

/* Small objects, runs and blocks of their own. */
static void churn(unsigned seed) {
    char *blocks[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++) {
        size_t bytes = i % 16 == 0 ? 300000 : i % 4 == 0 ? 20000 : (seed + i) * 37 % 1000 + 1;
        blocks[i] = strata_malloc(bytes);
        EXPECT(blocks[i] != NULL);
        blocks[i][0] = blocks[i][bytes - 1] = (char)i;
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        EXPECT(blocks[i][0] == (char)i);
        strata_free(blocks[i]);
    }
}

static void *allocate(void *argument) {
    for (unsigned turn = 0; __atomic_load_n(&stop, __ATOMIC_ACQUIRE) == 0; turn++) {
        churn(turn);
        if (turn % 64 == 0) strata_release(1 << 20);
    }
    return argument;
}

static void *observe(void *argument) {
    while (__atomic_load_n(&stop, __ATOMIC_ACQUIRE) == 0) EXPECT(strata_stats_json(null_fd) == 0);
    return argument;
}

static void child(unsigned number, unsigned generations) {
    (void)generations;
    churn(number);
    EXPECT(strata_stats_table(null_fd) == 0);
    strata_release(0);
    EXPECT(strata_check() == NULL);
}

int main(int argc, char **argv) {
    unsigned forks = fork_count(argc, argv);
    null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    EXPECT(null_fd >= 0);
    churn(0); /* the heap stands before there are threads, as where malloc is strata's */
    pthread_t threads[3];
    for (unsigned i = 0; i < 3; i++) EXPECT(pthread_create(&threads[i], NULL, i == 2 ? observe : allocate, NULL) == 0);
    for (unsigned i = 0; i < forks; i++) fork_and_wait(i, 2, child);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < 3; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
    EXPECT(strata_check() == NULL);
    printf("forked %u times, each child once more\n", forks);
    return 0;
}
