/*
 * thread_churn.c - threads that come and go, each leaving blocks that others free.
 *
 * thread_churn THREADS. A batch lives at once; each thread takes half of what it allocates with it and leaves the other half in
 * mailboxes, where a later thread finds it. Memory must not grow with the number of threads that have been.
 */
#include "stress/support.h"

#include <pthread.h>
#include <stdatomic.h>

enum { BATCH = 8, BLOCKS = 24, BOXES = 256 };

struct letter {
    size_t bytes;
    unsigned char text[];
};

static _Atomic(struct letter *) boxes[BOXES];

static void letter_delete(struct letter *letter) {
    if (letter == NULL) return;
    pattern_check(letter->text, letter->bytes, 9, "mailbox");
    free(letter);
}

static void *visitor(void *argument) {
    uint64_t rng = (uintptr_t)argument * 0x51ed + 3;
    void *own[BLOCKS];
    size_t sizes[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        sizes[i] = rng_between(&rng, 1, i == 0 ? 30000 : 1500);
        own[i] = block_new(sizes[i], 1, "visitor");
        size_t bytes = rng_between(&rng, 0, 1500);
        struct letter *letter = malloc(sizeof *letter + bytes);
        if (letter == NULL) fail("visitor: malloc gave NULL");
        letter->bytes = bytes;
        pattern_fill(letter->text, bytes, 9);
        letter_delete(atomic_exchange(&boxes[rng_next(&rng) % BOXES], letter));
    }
    for (int i = 0; i < BLOCKS; i++) block_delete(own[i], sizes[i], 1, "visitor");
    return NULL;
}

int main(int argc, char **argv) {
    size_t threads = argument_number(argc, argv, 1, 100000);
    pthread_attr_t attributes;
    REQUIRE(pthread_attr_init(&attributes) == 0);
    REQUIRE(pthread_attr_setstacksize(&attributes, 128 * KIB) == 0);
    size_t early_kib = 0;
    for (size_t done = 0; done < threads; done += BATCH) {
        pthread_t ids[BATCH];
        for (size_t i = 0; i < BATCH; i++) REQUIRE(pthread_create(&ids[i], &attributes, visitor, (void *)(uintptr_t)(done + i + 1)) == 0);
        for (size_t i = 0; i < BATCH; i++) REQUIRE(pthread_join(ids[i], NULL) == 0);
        if (early_kib == 0 && done >= threads / 10) early_kib = status_kib("RssAnon:");
    }
    size_t late_kib = status_kib("RssAnon:");
    for (int i = 0; i < BOXES; i++) letter_delete(atomic_exchange(&boxes[i], NULL));
    heap_check("after the threads");
    printf("threads=%zu early_kib=%zu late_kib=%zu\n", threads, early_kib, late_kib);
    return 0;
}
