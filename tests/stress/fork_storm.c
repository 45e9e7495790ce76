/*
 * fork_storm.c - forks a process whose other threads allocate and free all the time; every child allocates, checks and frees.
 *
 * fork_storm FORKS THREADS. A child that waits for a lock that its parent's threads held would wait for ever: it ends by SIGALRM, and
 * the parent says so. The children free blocks that were allocated before the fork, as their copies are theirs.
 */
#include "stress/support.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>

enum { RING = 64, CHILD_BLOCKS = 40, INHERITED = 128, CHILD_SECONDS = 20, CHECK_EVERY = 64, THREAD_EVERY = 100, BURST = 100 };

static atomic_bool stop;
static atomic_ulong rounds;

static size_t size_pick(uint64_t *rng) {
    uint64_t kind = rng_next(rng) % 100;
    if (kind < 80) return rng_between(rng, 1, 1024);
    if (kind < 97) return rng_between(rng, 1025, 40000);
    return rng_between(rng, 100000, 1000000);
}

/* Threads of the parent: a ring of blocks, each replaced in turn. They pause a little between bursts, or the forks would wait for a CPU. */
static void *churn(void *argument) {
    uint64_t rng = (uintptr_t)argument * 77 + 1;
    void *ring[RING] = {NULL};
    size_t sizes[RING] = {0};
    for (size_t turn = 0; !atomic_load_explicit(&stop, memory_order_relaxed); turn++) {
        size_t i = turn % RING;
        free(ring[i]);
        sizes[i] = size_pick(&rng);
        ring[i] = malloc(sizes[i]);
        if (ring[i] == NULL) fail("churn: malloc gave NULL");
        memset(ring[i], (int)i, sizes[i] < 64 ? sizes[i] : 64);
        atomic_fetch_add_explicit(&rounds, 1, memory_order_relaxed);
        if (turn % BURST == 0) usleep(200);
    }
    for (size_t i = 0; i < RING; i++) free(ring[i]);
    return NULL;
}

static void *child_thread(void *argument) {
    free(argument);
    return malloc(100);
}

__attribute__((noreturn)) static void child(size_t number, void **inherited, const size_t *inherited_sizes) {
    alarm(CHILD_SECONDS);
    uint64_t rng = number * 13 + 5;
    void *blocks[CHILD_BLOCKS];
    size_t sizes[CHILD_BLOCKS];
    for (int i = 0; i < CHILD_BLOCKS; i++) {
        sizes[i] = size_pick(&rng) % 20000 + 1;
        blocks[i] = block_new(sizes[i], number, "child");
    }
    for (int i = 0; i < INHERITED; i += 2) block_delete(inherited[i], inherited_sizes[i], 0, "child, of the parent");
    for (int i = 0; i < CHILD_BLOCKS; i++) block_delete(blocks[i], sizes[i], number, "child");
    if (number % THREAD_EVERY == 0) {
        pthread_t thread;
        void *got = NULL;
        REQUIRE(pthread_create(&thread, NULL, child_thread, malloc(50)) == 0);
        REQUIRE(pthread_join(thread, &got) == 0);
        free(got);
    }
    if (number % CHECK_EVERY == 0) heap_check("in a child");
    _exit(0);
}

int main(int argc, char **argv) {
    size_t forks = argument_number(argc, argv, 1, 10000), threads = argument_number(argc, argv, 2, 3);
    pthread_t ids[16];
    REQUIRE(threads <= 16);
    static void *inherited[INHERITED];
    static size_t inherited_sizes[INHERITED];
    uint64_t rng = 42;
    for (int i = 0; i < INHERITED; i++) {
        inherited_sizes[i] = rng_between(&rng, 1, 3000);
        inherited[i] = block_new(inherited_sizes[i], 0, "parent");
    }
    for (size_t i = 0; i < threads; i++) REQUIRE(pthread_create(&ids[i], NULL, churn, (void *)(uintptr_t)(i + 1)) == 0);
    while (atomic_load(&rounds) < 1000) sleep_ms(1);

    for (size_t i = 0; i < forks; i++) {
        pid_t pid = fork();
        if (pid < 0) fail("fork %zu: errno %d", i, errno);
        if (pid == 0) child(i, inherited, inherited_sizes);
        int status = 0;
        REQUIRE(waitpid(pid, &status, 0) == pid);
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) fail("child %zu hung", i);
        if (WIFSIGNALED(status)) fail("child %zu ended by signal %d", i, WTERMSIG(status));
        if (WEXITSTATUS(status) != 0) fail("child %zu exited with %d", i, WEXITSTATUS(status));
        block_delete(inherited[i % INHERITED], inherited_sizes[i % INHERITED], 0, "parent");
        inherited[i % INHERITED] = block_new(inherited_sizes[i % INHERITED], 0, "parent");
    }
    atomic_store(&stop, true);
    for (size_t i = 0; i < threads; i++) REQUIRE(pthread_join(ids[i], NULL) == 0);
    for (int i = 0; i < INHERITED; i++) block_delete(inherited[i], inherited_sizes[i], 0, "parent");
    heap_check("after the forks");
    printf("forks=%zu rounds=%lu\n", forks, atomic_load(&rounds));
    return 0;
}
