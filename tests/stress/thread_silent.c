/*
 * thread_silent.c - threads that never allocate, many at a time and detached.
 *
 * thread_silent ROUNDS. At their ends glibc frees, on them, what belongs to the stacks of earlier ones, later than any destructor runs; and their
 * own stacks are unmapped by others in turn. What such a free leaves behind must not lead there: a trim looks at the caches of all threads.
 */
#include "stress/support.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { THREADS = 40 }; /* whose stacks are several times what glibc keeps */

static atomic_size_t came, gone;
static atomic_bool go_home;

static void *say_nothing(void *argument) {
    atomic_fetch_add(&came, 1);
    while (!atomic_load(&go_home)) sleep_ms(1);
    atomic_fetch_add(&gone, 1);
    return argument;
}

int main(int argc, char **argv) {
    size_t rounds = argument_number(argc, argv, 1, 10);
    pthread_attr_t attributes;
    REQUIRE(pthread_attr_init(&attributes) == 0 && pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0);
    REQUIRE(pthread_attr_setstacksize(&attributes, 8 * MIB) == 0);
    free(malloc(100));
    for (size_t round = 1; round <= rounds; round++) {
        atomic_store(&go_home, false);
        for (size_t i = 0; i < THREADS; i++) {
            pthread_t thread;
            REQUIRE(pthread_create(&thread, &attributes, say_nothing, NULL) == 0);
        }
        while (atomic_load(&came) < round * THREADS) sleep_ms(1);
        atomic_store(&go_home, true);
        while (atomic_load(&gone) < round * THREADS) sleep_ms(1);
        sleep_ms(20); /* the rest of their ends is the C library's */
        (void)malloc_trim(0);
        heap_check("after silent threads");
    }
    printf("threads=%zu\n", atomic_load(&gone));
    return 0;
}
