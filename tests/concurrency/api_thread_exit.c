/*
 * api_thread_exit.c - threads that come and go while others work: each leaves blocks to its destructors, which run before and after strata has
 * taken the thread's cache back, allocate there again, and pass blocks on to threads that live longer. Then all memory comes
 * back. For ThreadSanitizer.
 *
 * api_thread_exit [THREADS] starts and ends so many threads.
 */
#include <sched.h>

#include "concurrency/concurrency.h"

enum { ALIVE = 6, LEFT = 24, BOXES = 128, KEYS = 2, DEFAULT_THREADS = 600 };

/* Destructors run four times at most, and ThreadSanitizer takes its leave in the fourth. */
enum { DESTRUCTOR_ROUNDS = 2 };

/* What a thread leaves to its destructors. */
struct legacy {
    size_t *blocks[LEFT];
    uint64_t random;
    unsigned rounds; /* the destructor asks to be run so many times more: later than strata's own */
};

static pthread_key_t keys[KEYS];
static size_t *boxes[BOXES]; /* blocks on their way to threads that live on */
static uint64_t destructors_run;
static bool stop;

static void pass_on(size_t *block, uint64_t *random) {
    size_t *old = __atomic_exchange_n(&boxes[next_random(random) % BOXES], block, __ATOMIC_ACQ_REL);
    if (old != NULL) free_block(old);
}

static void leave(void *argument) {
    struct legacy *legacy = argument;
    __atomic_fetch_add(&destructors_run, 1, __ATOMIC_RELAXED);
    for (unsigned i = legacy->rounds; i < LEFT; i += DESTRUCTOR_ROUNDS + 1) {
        if (legacy->blocks[i] == NULL) continue;
        free_block(legacy->blocks[i]);
        legacy->blocks[i] = NULL;
        pass_on(make_block(&legacy->random), &legacy->random);
    }
    if (legacy->rounds != 0) {
        legacy->rounds--;
        for (unsigned k = 0; k < KEYS; k++)
            if (pthread_getspecific(keys[k]) == NULL) {
                EXPECT(pthread_setspecific(keys[k], legacy) == 0);
                return;
            }
    }
    for (unsigned i = 0; i < LEFT; i++)
        if (legacy->blocks[i] != NULL) free_block(legacy->blocks[i]);
    strata_free(legacy);
}

static void *live_shortly(void *argument) {
    uint64_t random = random_seed((uintptr_t)argument);
    struct legacy *legacy = strata_calloc(1, sizeof *legacy);
    EXPECT(legacy != NULL);
    legacy->random = random;
    legacy->rounds = DESTRUCTOR_ROUNDS;
    for (unsigned i = 0; i < LEFT; i++) legacy->blocks[i] = make_block(&random);
    for (unsigned i = 0; i < 200; i++) {
        size_t *block = make_block(&random);
        if (next_random(&random) % 4 == 0)
            pass_on(block, &random);
        else
            free_block(block);
    }
    EXPECT(pthread_setspecific(keys[next_random(&random) % KEYS], legacy) == 0);
    return NULL;
}

static void *live_long(void *argument) {
    uint64_t random = random_seed((uintptr_t)argument);
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        for (unsigned i = 0; i < 100; i++) pass_on(make_block(&random), &random);
        sched_yield();
    }
    return NULL;
}

static void *drain(void *unused) {
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        (void)strata_release(1 << 20);
        sched_yield();
    }
    return unused;
}

int main(int argc, char **argv) {
    uint64_t threads = argc > 1 ? strtoul(argv[1], NULL, 10) : DEFAULT_THREADS;
    pthread_t alive[ALIVE], residents[2];
    EXPECT(threads >= ALIVE);
    /* One key from before strata made its own, one from after: destructors run in the order of keys. */
    EXPECT(pthread_key_create(&keys[0], leave) == 0);
    strata_free(strata_malloc(1));
    EXPECT(pthread_key_create(&keys[1], leave) == 0);
    EXPECT(pthread_create(&residents[0], NULL, live_long, (void *)(uintptr_t)1000000) == 0);
    EXPECT(pthread_create(&residents[1], NULL, drain, NULL) == 0);
    for (uint64_t i = 0; i < threads; i++) {
        if (i >= ALIVE) EXPECT(pthread_join(alive[i % ALIVE], NULL) == 0);
        EXPECT(pthread_create(&alive[i % ALIVE], NULL, live_shortly, (void *)(uintptr_t)i) == 0);
    }
    for (unsigned i = 0; i < ALIVE; i++) EXPECT(pthread_join(alive[i], NULL) == 0);
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < 2; i++) EXPECT(pthread_join(residents[i], NULL) == 0);
    EXPECT(destructors_run == threads * (DESTRUCTOR_ROUNDS + 1));
    for (unsigned i = 0; i < BOXES; i++)
        if (boxes[i] != NULL) free_block(boxes[i]);
    /* Nobody but this thread is left: whatever was cached for the others has gone back when they ended. */
    (void)strata_release(0);
    struct strata_mallinfo2 info = strata_mallinfo2();
    printf("%llu threads came and went; %zu bytes are in use, %zu are kept\n", (unsigned long long)threads, (size_t)info.uordblks,
           (size_t)info.fordblks);
    EXPECT(info.uordblks < 64 * 1024);
    expect_sound();
    return 0;
}
