/*
 * small_stack.c - a thread with the smallest stack that the system allows, half of which is the program's own: its malloc and free are the first
 * to make the heap large, to leave pages idle, and to look at what idles.
 */
#include "stress/support.h"

#include <pthread.h>

enum { SMALL = 200000, SMALL_BYTES = 100, TURNS = 40, BLOCKS = 500, BLOCK_BYTES = 3000, OWN_BYTES = 6000, PAUSE_MS = 20 };

static void *work(void *argument) {
    static void *blocks[SMALL];
    volatile char own[OWN_BYTES];
    memset((void *)own, 1, sizeof own);
    for (int i = 0; i < SMALL; i++) blocks[i] = block_new(SMALL_BYTES, 1, "small");
    for (int i = 0; i < SMALL; i++) block_delete(blocks[i], SMALL_BYTES, 1, "small");
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < BLOCKS; i++) blocks[i] = block_new(BLOCK_BYTES, 2, "ticks");
        for (int i = 0; i < BLOCKS; i++) block_delete(blocks[i], BLOCK_BYTES, 2, "ticks");
        sleep_ms(PAUSE_MS);
    }
    for (size_t i = 0; i < sizeof own; i++) REQUIRE(own[i] == 1);
    return argument;
}

int main(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    REQUIRE(pthread_attr_init(&attributes) == 0);
    REQUIRE(pthread_attr_setstacksize(&attributes, (size_t)sysconf(_SC_THREAD_STACK_MIN)) == 0);
    REQUIRE(pthread_create(&thread, &attributes, work, NULL) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
    REQUIRE(pthread_attr_destroy(&attributes) == 0);
    puts("well");
    return 0;
}
