/*
 * api_handover.c - threads that hand blocks to each other in rings, so that every block is freed by another thread than the one that allocated
 * it and all rounds cross the depots, while one thread drains caches and hands memory back without pause. For ThreadSanitizer.
 *
 * api_handover [BLOCKS] hands on so many blocks a thread.
 */
#include <sched.h>

#include "concurrency/concurrency.h"

enum { THREADS = 4, SLOTS = 64, DEFAULT_BLOCKS = 30000 };

/* Thread i fills ring i and empties ring i - 1; one producer and one consumer each. */
static struct ring {
    size_t *slots[SLOTS];
    _Alignas(64) size_t put;
    _Alignas(64) size_t got;
} rings[THREADS];

static size_t blocks = DEFAULT_BLOCKS, drains;
static bool stop;

static bool try_put(struct ring *ring, size_t *block) {
    size_t put = __atomic_load_n(&ring->put, __ATOMIC_RELAXED);
    if (put - __atomic_load_n(&ring->got, __ATOMIC_ACQUIRE) == SLOTS) return false;
    ring->slots[put % SLOTS] = block;
    __atomic_store_n(&ring->put, put + 1, __ATOMIC_RELEASE);
    return true;
}

static size_t *try_get(struct ring *ring) {
    size_t got = __atomic_load_n(&ring->got, __ATOMIC_RELAXED);
    if (got == __atomic_load_n(&ring->put, __ATOMIC_ACQUIRE)) return NULL;
    size_t *block = ring->slots[got % SLOTS];
    __atomic_store_n(&ring->got, got + 1, __ATOMIC_RELEASE);
    return block;
}

static void *hand_on(void *argument) {
    size_t number = (uintptr_t)argument, made = 0, taken = 0;
    struct ring *out = &rings[number], *in = &rings[(number + THREADS - 1) % THREADS];
    uint64_t random = random_seed(number);
    size_t *next = NULL;
    while (made < blocks || taken < blocks) {
        bool moved = false;
        while (made == blocks / 2 && __atomic_load_n(&drains, __ATOMIC_RELAXED) == 0)
            sched_yield(); /* all may be done before the drainer's first turn */
        if (next == NULL && made < blocks) next = make_block(&random);
        if (next != NULL && try_put(out, next)) {
            next = NULL;
            made++;
            moved = true;
        }
        for (size_t *block; next_random(&random) % 8 != 0 && (block = try_get(in)) != NULL; taken++, moved = true) free_block(block);
        if (!moved) sched_yield();
    }
    EXPECT(next == NULL);
    return NULL;
}

static void *drain(void *argument) {
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        (void)strata_release(0);
        (void)strata_malloc_trim(0);
        __atomic_add_fetch(&drains, 1, __ATOMIC_RELAXED);
        sched_yield();
    }
    return argument;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS], drainer;
    if (argc > 1) blocks = strtoul(argv[1], NULL, 10);
    EXPECT(blocks > 0);
    EXPECT(pthread_create(&drainer, NULL, drain, NULL) == 0);
    for (uintptr_t i = 0; i < THREADS; i++) EXPECT(pthread_create(&threads[i], NULL, hand_on, (void *)i) == 0);
    for (unsigned i = 0; i < THREADS; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    EXPECT(pthread_join(drainer, NULL) == 0);
    for (unsigned i = 0; i < THREADS; i++) EXPECT(rings[i].put == blocks && rings[i].got == blocks);
    expect_sound();
    printf("%d threads handed on %zu blocks each, with %zu drains between\n", THREADS, blocks, drains);
    return 0;
}
