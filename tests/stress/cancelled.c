/*
 * cancelled.c - threads that are to be cancelled allocate, with a mutex of the program's: malloc and free are no cancellation points.
 *
 * Each thread's cancellation is pending from its start, so that the first function that acts on it ends the thread there: in malloc, it would leave
 * the program's mutex, or locks of strata's own, held for ever. In a heap that has a maintenance thread, which is asleep when the last thread comes.
 */
#include "stress/support.h"

#include <pthread.h>

enum { LARGE = 300, ROUNDS = 20, SMALL = 20000, ASLEEP_MS = 400 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned through;

static void *blocks_that_move_pages(void *unused) {
    (void)unused;
    static void *blocks[LARGE];
    REQUIRE(pthread_cancel(pthread_self()) == 0);
    pthread_mutex_lock(&mutex);
    for (size_t round = 0; round < ROUNDS; round++) {
        const size_t bytes = 60000 + round * 6000;
        for (int i = 0; i < LARGE; i++) memset(blocks[i] = malloc(bytes), 1, bytes);
        for (int i = 0; i < LARGE; i++) free(blocks[i]);
        blocks[0] = NULL;
        for (size_t grown = 1 << 16; grown < (size_t)32 << 20; grown *= 2) memset(blocks[0] = realloc(blocks[0], grown), 1, grown);
        free(blocks[0]);
    }
    through++;
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static void *small_blocks(void *unused) {
    (void)unused;
    static void *blocks[SMALL];
    REQUIRE(pthread_cancel(pthread_self()) == 0);
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < SMALL; i++) blocks[i] = block_new(64, 1, "a thread that is cancelled");
    for (int i = 0; i < SMALL; i++) block_delete(blocks[i], 64, 1, "a thread that is cancelled");
    through++;
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static void run(void *(*body)(void *)) {
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, body, NULL) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
}

int main(void) {
    memset(malloc(100 * MIB), 1, 100 * MIB); /* stays, so that the heap has its thread */
    for (size_t i = 0; i < 1000; i++) free(malloc(40000 + i * 100));
    run(blocks_that_move_pages);
    run(small_blocks);
    sleep_ms(ASLEEP_MS); /* some periods of the thread */
    run(small_blocks);
    REQUIRE(pthread_mutex_trylock(&mutex) == 0);
    printf("through=%u\n", through);
    return 0;
}
