/*
 * api_batch_storm.c - batches of strata/batch.h where something comes in between: signals, whose handlers look at blocks of the thread that they
 * interrupt; forks by one thread while others are in the middle of batches; memory that ends in a batch, by a limit.
 *
 * Protects: every block has its contents, whoever was interrupted where; a child can go on with batches of its own; what a batch could not do is
 * reported exactly, element by element, and what it did is there. api_batch_storm [ROUNDS] makes so many rounds a thread.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <strata/batch.h>

#include "concurrency/concurrency.h"

enum { THREADS = 3, BATCH = 200, DEFAULT_ROUNDS = 300, FORKS = 6 };

static unsigned rounds = DEFAULT_ROUNDS;
static uint32_t signals, alive; /* atomic */

/* What a handler may look at: blocks of this thread that no batch is working on. */
static _Thread_local void *volatile *calm;
static _Thread_local volatile size_t calm_count;

static void fill(void *block, size_t bytes) { memset(block, (int)((uintptr_t)block >> 4 & 0xff), bytes); }
static bool is_filled(const void *block, size_t bytes) {
    const unsigned char *at = block, value = (unsigned char)((uintptr_t)block >> 4 & 0xff);
    return at[0] == value && at[bytes / 2] == value && at[bytes - 1] == value;
}

static void on_signal(int number) {
    (void)number;
    for (size_t i = 0; i < calm_count; i++)
        if (!is_filled(calm[i], 64)) abort();
    __atomic_fetch_add(&signals, 1, __ATOMIC_RELAXED);
}

static void one_round(uint64_t *random, size_t bytes_max) {
    void *kept[16] = {NULL}, *blocks[BATCH] = {NULL};
    size_t count = 16, bytes = 64, all = 1 + next_random(random) % BATCH, wanted = 24 + next_random(random) % bytes_max;
    EXPECT(strata_batch_alloc1(NULL, kept, &count, &bytes, 0, 0, STRATA_BATCH_ALL_ALLOC) == kept && count == 16);
    for (size_t i = 0; i < count; i++) fill(kept[i], 64);
    calm = (void *volatile *)kept;
    calm_count = 16;
    for (unsigned turn = 0; turn < 3; turn++) {
        count = all;
        bytes = wanted;
        EXPECT(strata_batch_alloc1(NULL, blocks, &count, &bytes, 0, 0, 0) == blocks && count == all);
        for (size_t i = 0; i < all; i++) fill(blocks[i], wanted);
        for (size_t i = 0; i < all; i++) EXPECT(is_filled(blocks[i], wanted));
        if (turn == 1) { /* half of them go; the next turn makes them anew, and resizes the rest to what they are */
            size_t half = all / 2;
            EXPECT(strata_batch_alloc1(NULL, blocks, &half, NULL, 0, 0, 0) == blocks && half == all / 2);
        }
    }
    count = all;
    EXPECT(strata_batch_alloc1(NULL, blocks, &count, NULL, 0, 0, STRATA_BATCH_ALL_FREE) == blocks && count == all);
    calm_count = 0;
    count = 16;
    EXPECT(strata_batch_alloc1(NULL, kept, &count, NULL, 0, 0, 0) == kept && count == 16);
}

static void *work(void *argument) {
    uint64_t random = random_seed((uintptr_t)argument);
    /* Also until the first signal has come: a fast machine may be done before the other thread has sent any. */
    for (unsigned i = 0; i < rounds || __atomic_load_n(&signals, __ATOMIC_RELAXED) == 0; i++) one_round(&random, i % 8 == 0 ? 9000 : 700);
    __atomic_fetch_sub(&alive, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void fork_once(uint64_t number) {
    pid_t child = fork();
    if (child == 0) {
        uint64_t random = random_seed(number);
        for (unsigned i = 0; i < 5; i++) one_round(&random, 3000);
        _exit(strata_check() == NULL ? 7 : 8);
    }
    expect_child(child, 7);
}

static void storm(void) {
    pthread_t threads[THREADS];
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    EXPECT(sigaction(SIGALRM, &action, NULL) == 0);
    alive = THREADS;
    for (uintptr_t i = 0; i < THREADS; i++) EXPECT(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (unsigned turn = 0; __atomic_load_n(&alive, __ATOMIC_ACQUIRE) == THREADS || turn < FORKS; turn++) {
        for (unsigned i = 0; i < THREADS && __atomic_load_n(&alive, __ATOMIC_ACQUIRE) == THREADS; i++) (void)pthread_kill(threads[i], SIGALRM);
        if (turn < FORKS) fork_once(turn + 100);
        usleep(500);
    }
    for (unsigned i = 0; i < THREADS; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
    EXPECT(signals > 0);
}

/*
 * Memory ends in the middle of a batch of allocations and resizes: each element says what became of it. In a process with a limit.
 */
static void exhaust(void) {
    enum { LARGE = 200 };
    struct strata_batch_element2 elements[LARGE], *all[LARGE];
    int errors[LARGE];
    size_t count = LARGE, there = 0;
    const size_t small = 100000, large = (size_t)8 << 20;
    for (size_t i = 0; i < LARGE; i++) {
        elements[i] = (struct strata_batch_element2){i % 4 == 0 ? strata_malloc(small) : NULL, large};
        if (elements[i].ptr != NULL) fill(elements[i].ptr, small);
        all[i] = &elements[i];
    }
    void *before[LARGE];
    for (size_t i = 0; i < LARGE; i++) before[i] = elements[i].ptr;
    EXPECT(!strata_batch_alloc2(errors, all, &count, 0, 0, 0) && count > 0 && count < LARGE);
    for (size_t i = 0; i < LARGE; i++) {
        there += errors[i] == 0;
        EXPECT(errors[i] == 0 || errors[i] == ENOMEM);
        EXPECT(errors[i] == 0 ? elements[i].ptr != NULL && elements[i].size >= large : elements[i].ptr == before[i]);
        if (before[i] != NULL) { /* the contents have moved with it */
            const unsigned char *at = elements[i].ptr, value = (unsigned char)((uintptr_t)before[i] >> 4 & 0xff);
            EXPECT(at[0] == value && at[small / 2] == value && at[small - 1] == value);
        }
    }
    EXPECT(there == count);
    for (size_t i = 0; i < LARGE; i++) elements[i].size = 0;
    count = LARGE;
    EXPECT(strata_batch_alloc2(errors, all, &count, 0, 0, 0) && count == LARGE);
    EXPECT(strata_check() == NULL);
}

int main(int argc, char **argv) {
    int status = 0;
    if (argc > 1 && strcmp(argv[1], "exhaust") == 0) {
        exhaust();
        return 7;
    }
    if (argc > 1) rounds = (unsigned)strtoul(argv[1], NULL, 10);
    pid_t child = fork();
    if (child == 0) {
        setenv("STRATA_CONF", "hard_limit:256M", 1);
        execl("/proc/self/exe", argv[0], "exhaust", (char *)NULL);
        _exit(127);
    }
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    storm();
    EXPECT(strata_check() == NULL);
    return 0;
}
