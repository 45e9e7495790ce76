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

enum { DEFAULT_FORKS = 150, OBJECTS = 32, THREADS = 2, CHILD_SECONDS = 60 };

static struct strata_pool *pools[2]; /* one of each kind */
static struct strata_pool_local *mine[2];
static uint32_t stop;

#define EXPECT(condition)                                                                        \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            dprintf(STDERR_FILENO, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            _exit(1);                                                                            \
        }                                                                                        \
    } while (0)

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

static void child(uint64_t number) {
    alarm(CHILD_SECONDS);
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

static void await(pid_t pid, unsigned number) {
    int status;
    EXPECT(waitpid(pid, &status, 0) == pid);
    if (status == 0) return;
    dprintf(STDERR_FILENO, "child %u: status 0x%x (0xe: it waited for a lock)\n", number, (unsigned)status);
    _exit(1);
}

static pid_t fork_child(unsigned number, unsigned generations) {
    pid_t pid = fork();
    EXPECT(pid >= 0);
    if (pid != 0) return pid;
    child(number);
    if (generations > 1) await(fork_child(number, generations - 1), number);
    _exit(0);
}

int main(int argc, char **argv) {
    unsigned forks = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : DEFAULT_FORKS;
    pthread_t threads[THREADS];
    EXPECT(forks > 0);
    for (unsigned i = 0; i < 2; i++) {
        pools[i] = make_pool(i);
        EXPECT(strata_pool_local_create(pools[i], &mine[i]) == STRATA_POOL_OK);
    }
    for (unsigned i = 0; i < THREADS; i++) EXPECT(pthread_create(&threads[i], NULL, work, NULL) == 0);
    for (unsigned i = 0; i < forks; i++) {
        churn(mine[i % 2], i);
        await(fork_child(i, 2), i);
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
