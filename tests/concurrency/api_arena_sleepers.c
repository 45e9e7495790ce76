/*
 * api_arena_sleepers.c - more threads than an arena with quantum caches has integers for: they sleep, by turns for one integer and for more than the
 * caches have, and each free lets one go on. The process forks meanwhile: the child has nobody who sleeps, and goes on by itself.
 *
 * Nobody has what another has, and everybody comes to an end. Through strata_* only, so that the sanitizers see strata's own code.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <strata/arena.h>
#include <strata/strata.h>

#include "concurrency/concurrency.h"

enum { THREADS = 6, INTEGERS = 16, ROUNDS = 1500, FORKS = 6, LARGE = 8 };

static struct strata_arena *arena;
static unsigned owner[INTEGERS];
static unsigned rounds_done, forked; /* until the last fork nobody ends, as the child of a fork knows nothing of threads that could be joined */

static void have(uint64_t start, uint64_t size, unsigned who, unsigned before) {
    for (uint64_t i = start; i < start + size; i++) EXPECT(__atomic_exchange_n(&owner[i], who, __ATOMIC_RELAXED) == before);
}

static void *work(void *argument) {
    unsigned who = (unsigned)(uintptr_t)argument;
    for (unsigned i = 0; i < ROUNDS || __atomic_load_n(&forked, __ATOMIC_ACQUIRE) == 0; i++) {
        uint64_t first, second, size = (i + who) % 50 == 0 ? LARGE : 1 + i % 2;
        EXPECT(strata_arena_alloc(arena, size, STRATA_ARENA_SLEEP, &first) == STRATA_ARENA_OK);
        have(first, size, who, 0);
        bool more = i % 3 == 0 && strata_arena_alloc(arena, 2, 0, &second) == STRATA_ARENA_OK;
        if (more) have(second, 2, who, 0);
        if (i % 7 == 0) usleep(100); /* the others fall asleep */
        have(first, size, 0, who);
        EXPECT(strata_arena_free(arena, first, size) == STRATA_ARENA_OK);
        if (more) have(second, 2, 0, who);
        if (more) EXPECT(strata_arena_free(arena, second, 2) == STRATA_ARENA_OK);
        __atomic_fetch_add(&rounds_done, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void fork_once(void) {
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        uint64_t start;
        unsigned found = 0;
        for (unsigned i = 0; i < 1000; i++) {
            if (strata_arena_alloc(arena, 1, 0, &start) != STRATA_ARENA_OK) continue;
            EXPECT(strata_arena_free(arena, start, 1) == STRATA_ARENA_OK);
            found++;
        }
        EXPECT(found == 0 || found == 1000);
        if (found != 0) EXPECT(strata_arena_alloc(arena, 1, STRATA_ARENA_SLEEP, &start) == STRATA_ARENA_OK);
        EXPECT(strata_check() == NULL);
        _exit(0);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
    pthread_t threads[THREADS];
    EXPECT(strata_arena_create("few", 0, INTEGERS, 1, 0, &arena) == STRATA_ARENA_OK);
    EXPECT(strata_arena_set_quantum_caches(arena, 2) == STRATA_ARENA_OK);
    for (uintptr_t i = 0; i < THREADS; i++) EXPECT(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    for (unsigned i = 1; i <= FORKS; i++) {
        while (__atomic_load_n(&rounds_done, __ATOMIC_RELAXED) < i * (THREADS * ROUNDS / (FORKS + 1))) usleep(100);
        fork_once();
    }
    __atomic_store_n(&forked, 1, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    struct strata_arena_stats stats;
    EXPECT(strata_arena_stats_get(arena, &stats) == STRATA_ARENA_OK && stats.waiters == 0);
    EXPECT(strata_check() == NULL);
    EXPECT(strata_arena_destroy(arena) == STRATA_ARENA_OK);
    printf("%llu waits\n", (unsigned long long)stats.waits);
    return 0;
}
