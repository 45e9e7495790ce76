/*
 * api_arena_fork_cached.c - forks a process whose threads allocate and free in an arena with quantum caches, while another one empties these: in the
 * child, where none of them is, all that has an owner can be freed, and the arena destroyed, whatever they had in their hands.
 */
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <strata/arena.h>
#include <strata/cache.h>

#include "concurrency/concurrency.h"

enum { THREADS = 3, HELD = 300, ALL = 8192, LARGEST = 3, FORKS = 100, PATIENCE_SECONDS = 60 };
#define EXPECT_OK(call) EXPECT((call) == STRATA_ARENA_OK)

static struct strata_arena *arena;
static uint32_t stop;
static bool goes_on(void) { return __atomic_load_n(&stop, __ATOMIC_RELAXED) == 0; }

static void *churn(void *unused) {
    uint64_t starts[HELD];
    while (goes_on()) {
        for (unsigned i = 0; i < HELD; i++) EXPECT_OK(strata_arena_alloc(arena, 1 + i % LARGEST, 0, &starts[i]));
        for (unsigned i = 0; i < HELD; i++) EXPECT_OK(strata_arena_free(arena, starts[i], 1 + i % LARGEST));
    }
    return unused;
}
static void *empty(void *unused) {
    for (; goes_on(); sched_yield()) strata_cache_reap(NULL);
    return unused;
}

static void child(void) {
    alarm(PATIENCE_SECONDS);
    for (uint64_t start = 0; start < ALL; start++)
        for (uint64_t size = 1; size <= LARGEST; size++) (void)strata_arena_free(arena, start, size);
    EXPECT_OK(strata_arena_destroy(arena));
    _exit(0);
}

int main(void) {
    pthread_t threads[THREADS + 1];
    EXPECT_OK(strata_arena_create("forked", 0, ALL, 1, 0, &arena));
    EXPECT_OK(strata_arena_set_quantum_caches(arena, LARGEST));
    for (unsigned i = 0; i <= THREADS; i++) EXPECT(pthread_create(&threads[i], NULL, i < THREADS ? churn : empty, NULL) == 0);
    for (unsigned i = 0; i < FORKS; i++) {
        int status;
        pid_t process = fork();
        if (process == 0) child();
        EXPECT(waitpid(process, &status, 0) == process);
        EXPECT(status == 0);
        usleep(500);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i <= THREADS; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
    EXPECT_OK(strata_arena_destroy(arena));
    puts("ok");
    return 0;
}
