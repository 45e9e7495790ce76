/*
 * api_batch.c - threads that allocate, resize and free by batches, and swap blocks with each other, so that a batch frees what another thread's batch
 * allocated; one more thread drains caches meanwhile. For ThreadSanitizer.
 *
 * api_batch [ROUNDS] makes so many rounds a thread.
 */
#include <sched.h>

#include <strata/batch.h>

#include "concurrency/concurrency.h"

enum { THREADS = 4, BATCH = 300, BOXES = 512, DEFAULT_ROUNDS = 300 };

static size_t *boxes[BOXES]; /* exchanged atomically: whoever takes a block out owns it */
static size_t rounds = DEFAULT_ROUNDS;
static bool stop;

static void mark(size_t *block, size_t bytes) {
    block[0] = bytes;
    block[1] = block[bytes / sizeof *block - 1] = bytes ^ (uintptr_t)block;
}
static void check(const size_t *block) { EXPECT(block[1] == (block[0] ^ (uintptr_t)block) && block[block[0] / sizeof *block - 1] == block[1]); }

/* Puts blocks into boxes, and takes those that were there. */
static void exchange(void **blocks, size_t count, uint64_t *random) {
    for (size_t i = 0; i < count; i++) {
        size_t **box = &boxes[next_random(random) % BOXES];
        blocks[i] = __atomic_exchange_n(box, blocks[i], __ATOMIC_ACQ_REL);
        if (blocks[i] != NULL) check(blocks[i]);
    }
}

static void of_one_size(uint64_t *random) {
    static const size_t sizes[] = {16, 64, 200, 1000, 5000, 40000};
    void *blocks[BATCH] = {NULL};
    int errors[BATCH];
    size_t count = 1 + next_random(random) % BATCH, all = count, bytes = sizes[next_random(random) % (sizeof sizes / sizeof sizes[0])];
    if (bytes > 1000) count = all = 1 + count % 20;
    EXPECT(strata_batch_alloc1(errors, blocks, &count, &bytes, 0, 0, STRATA_BATCH_ALL_ALLOC) == blocks && count == all);
    for (size_t i = 0; i < all; i++) mark(blocks[i], bytes);
    exchange(blocks, all, random);
    EXPECT(strata_batch_alloc1(errors, blocks, &count, NULL, 0, 0, 0) == blocks && count == all);
}

static void mixed(uint64_t *random) {
    struct strata_batch_element2 elements[BATCH], *all[BATCH];
    void *blocks[BATCH];
    size_t count = 1 + next_random(random) % 60, wanted = count;
    for (size_t i = 0; i < count; i++) {
        elements[i] = (struct strata_batch_element2){NULL, 16 + next_random(random) % 3000};
        all[i] = &elements[i];
    }
    EXPECT(strata_batch_alloc2(NULL, all, &count, 64, 0, 0) && count == wanted);
    for (size_t i = 0; i < count; i++) mark(blocks[i] = elements[i].ptr, elements[i].size & ~(size_t)7);
    exchange(blocks, count, random);
    for (size_t i = 0; i < count; i++) elements[i] = (struct strata_batch_element2){blocks[i], i % 2 == 0 ? 0 : 32 + next_random(random) % 60000};
    EXPECT(strata_batch_alloc2(NULL, all, &count, 0, 0, 0) && count == wanted);
    for (size_t i = 0; i < count; i++) elements[i].size = 0;
    EXPECT(strata_batch_alloc2(NULL, all, &count, 0, 0, 0) && count == wanted);
}

static void *work(void *argument) {
    uint64_t random = random_seed((uintptr_t)argument);
    for (size_t round = 0; round < rounds; round++) {
        of_one_size(&random);
        mixed(&random);
    }
    return NULL;
}

static void *drain(void *argument) {
    (void)argument;
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        (void)strata_release(0);
        sched_yield();
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS], drainer;
    if (argc > 1) rounds = strtoul(argv[1], NULL, 10);
    EXPECT(pthread_create(&drainer, NULL, drain, NULL) == 0);
    for (uintptr_t i = 0; i < THREADS; i++) EXPECT(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (unsigned i = 0; i < THREADS; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    EXPECT(pthread_join(drainer, NULL) == 0);
    size_t count = BOXES;
    EXPECT(strata_batch_alloc1(NULL, (void **)boxes, &count, NULL, 0, 0, 0) != NULL && count == BOXES);
    expect_sound();
    printf("%d threads, %zu rounds of batches each\n", THREADS, rounds);
    return 0;
}
