/*
 * api_pool_fork.c - forks a process whose threads are inside fixed pools all the time: each child must find every pool's lock free, and can use the
 * pools with the local pools of the thread that forked and with new ones.
 *
 * m is 1, so that every request takes the pool's lock. A child that waits for a lock of a thread that it does not have ends by SIGALRM.
 * api_pool_fork [FORKS] forks so often.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <strata/pool.h>

#include "stress/api_fork_support.h"

enum { OBJECTS = 32, THREADS = 2 };

static struct strata_pool *pools[2]; /* one of each kind */
static struct strata_pool_local *mine[2];
static uint32_t stop;

static struct strata_pool *make_pool(unsigned flags) {
    struct strata_pool_config config = {0};
    struct strata_pool *pool;
    config.name = "forked", config.object_bytes = 64, config.m = 1, config.flags = flags;
    EXPECT(strata_pool_create(&config, &pool) == STRATA_POOL_OK);
    return pool;
}

static void churn(struct strata_pool_local *local, uint64_t seed) {
    uint64_t *objects[OBJECTS];
    for (unsigned i = 0; i < OBJECTS; i++) {
        EXPECT((objects[i] = strata_pool_alloc(local)) != NULL);
        *objects[i] = seed + i;
    }
    for (unsigned i = 0; i < OBJECTS; i++) {
        EXPECT(*objects[i] == seed + i);
        EXPECT(strata_pool_free(local, objects[i]) == STRATA_POOL_OK);
    }
}

static void *work(void *argument) {
    struct strata_pool_local *locals[2];
    for (unsigned i = 0; i < 2; i++) EXPECT(strata_pool_local_create(pools[i], &locals[i]) == STRATA_POOL_OK);
    for (uint64_t turn = 0; __atomic_load_n(&stop, __ATOMIC_ACQUIRE) == 0; turn++) {
        churn(locals[turn % 2], turn << 8);
        struct strata_pool *other = make_pool(turn % 2);
        EXPECT(strata_pool_destroy(other, NULL) == STRATA_POOL_OK);
    }
    for (unsigned i = 0; i < 2; i++) strata_pool_local_destroy(locals[i]);
    return argument;
}

static void child(unsigned number, unsigned generations) {
    (void)generations;
    for (unsigned i = 0; i < 2; i++) {
        struct strata_pool_local *fresh;
        struct strata_pool_stats stats;
        churn(mine[i], number);
        EXPECT(strata_pool_local_create(pools[i], &fresh) == STRATA_POOL_OK);
        churn(fresh, number);
        strata_pool_local_destroy(fresh);
        EXPECT(strata_pool_stats_get(pools[i], &stats) == STRATA_POOL_OK && stats.locals >= 1);
        EXPECT(strata_pool_destroy(pools[i], NULL) == STRATA_POOL_BUSY);
        EXPECT(strata_pool_destroy(make_pool(i), NULL) == STRATA_POOL_OK);
    }
}

int main(int argc, char **argv) {
    unsigned forks = fork_count(argc, argv);
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < 2; i++) {
        pools[i] = make_pool(i);
        EXPECT(strata_pool_local_create(pools[i], &mine[i]) == STRATA_POOL_OK);
    }
    for (unsigned i = 0; i < THREADS; i++) EXPECT(pthread_create(&threads[i], NULL, work, NULL) == 0);
    for (unsigned i = 0; i < forks; i++) {
        churn(mine[i % 2], i);
        fork_and_wait(i, 2, child);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < THREADS; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
    for (unsigned i = 0; i < 2; i++) {
        EXPECT(strata_pool_check(pools[i]) == NULL);
        strata_pool_local_destroy(mine[i]);
        EXPECT(strata_pool_destroy(pools[i], NULL) == STRATA_POOL_OK);
    }
    EXPECT(strata_check() == NULL);
    printf("forked %u times, each child once more\n", forks);
    return 0;
}
