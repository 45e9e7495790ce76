/*
 * api_arena_fork.c - forks a process whose threads are inside arenas all the time, asleep in them too: each child must find every lock free and every
 * arena sound, and use them.
 *
 * What the parent's threads hold at the fork stays allocated in the child, as nobody is there who would free it. A child that waits for a lock of a
 * thread that it does not have ends by SIGALRM. api_arena_fork [FORKS] forks so often, each child once more.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <strata/arena.h>
#include <strata/strata.h>

#include "stress/api_fork_support.h"

enum { SCARCE = 4 };

static uint32_t stop;
static int null_fd;
static struct strata_arena *plenty, *importer, *scarce;

#define EXPECT_OK(call) EXPECT((call) == STRATA_ARENA_OK)

/* Enough segments for tags and tables to come and go, spans too. */
static void churn(void) {
    uint64_t starts[200];
    for (unsigned i = 0; i < 200; i++) EXPECT_OK(strata_arena_alloc(importer, 1 + i % 7, 0, &starts[i]));
    for (unsigned i = 0; i < 200; i++) EXPECT_OK(strata_arena_free(importer, starts[i], 1 + i % 7));
}

static void *use(void *argument) {
    while (__atomic_load_n(&stop, __ATOMIC_ACQUIRE) == 0) churn();
    return argument;
}

static void *sleep_often(void *argument) {
    uint64_t start;
    while (__atomic_load_n(&stop, __ATOMIC_ACQUIRE) == 0) {
        EXPECT_OK(strata_arena_alloc(scarce, SCARCE, STRATA_ARENA_SLEEP, &start));
        sched_yield();
        EXPECT_OK(strata_arena_free(scarce, start, SCARCE));
    }
    return argument;
}

static void *come_and_go(void *argument) {
    while (__atomic_load_n(&stop, __ATOMIC_ACQUIRE) == 0) {
        struct strata_arena *arena;
        EXPECT_OK(strata_arena_create("passing", 0, 10, 1, 0, &arena));
        EXPECT_OK(strata_arena_destroy(arena));
        EXPECT(strata_stats_json(null_fd) == 0);
    }
    return argument;
}

static void child(unsigned number, unsigned generations) {
    struct strata_arena *own;
    struct strata_arena_stats stats;
    uint64_t start;
    (void)number;
    EXPECT(generations > 1 || strata_check() == NULL);
    churn();
    if (generations > 1) return;
    EXPECT_OK(strata_arena_stats_get(scarce, &stats));
    EXPECT(stats.waiters == 0);
    /* Those who hold what is scarce are not here; more of it wakes and serves all the same. */
    EXPECT_OK(strata_arena_add(scarce, 100, SCARCE));
    EXPECT_OK(strata_arena_alloc(scarce, SCARCE, STRATA_ARENA_SLEEP, &start));
    EXPECT_OK(strata_arena_free(scarce, start, SCARCE));
    EXPECT_OK(strata_arena_create("the child's", 0, 10, 1, 0, &own));
    EXPECT_OK(strata_arena_destroy(own));
    EXPECT(strata_stats_table(null_fd) == 0);
    EXPECT_OK(start == 100 ? strata_arena_remove(scarce, 100, SCARCE) : STRATA_ARENA_OK);
    EXPECT(strata_check() == NULL);
}

int main(int argc, char **argv) {
    unsigned forks = fork_count(argc, argv);
    void *(*const bodies[])(void *) = {use, use, sleep_often, sleep_often, come_and_go};
    pthread_t threads[5];
    null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    EXPECT(null_fd >= 0);
    EXPECT_OK(strata_arena_create("plenty", 0, (uint64_t)1 << 32, 64, 0, &plenty));
    EXPECT_OK(strata_arena_create("importer", 0, 0, 1, 0, &importer));
    EXPECT_OK(strata_arena_create("scarce", 0, SCARCE, 1, 0, &scarce));
    EXPECT_OK(strata_arena_set_source(importer, plenty));
    for (unsigned i = 0; i < 5; i++) EXPECT(pthread_create(&threads[i], NULL, bodies[i], NULL) == 0);
    for (unsigned i = 0; i < forks; i++) fork_and_wait(i, 1 + i % 2, child);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < 5; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
    EXPECT(strata_check() == NULL);
    EXPECT_OK(strata_arena_destroy(importer));
    EXPECT_OK(strata_arena_destroy(plenty));
    EXPECT_OK(strata_arena_destroy(scarce));
    printf("forked %u times, every second child once more\n", forks);
    return 0;
}
