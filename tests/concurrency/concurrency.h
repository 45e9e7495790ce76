/*
 * concurrency.h - what the programs of this folder, and those of stress/ that are called api_, share: an assertion that is not compiled away, random
 * numbers, and blocks that carry a pattern.
 *
 * They use strata_* only and link to libstrata.a, so that ThreadSanitizer sees strata's own code on real threads, with per-thread caches, as
 * it knows nothing of restartable sequences; the C library keeps its malloc.
 */
#ifndef STRATA_TESTS_CONCURRENCY_H
#define STRATA_TESTS_CONCURRENCY_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <strata/malloc.h>
#include <strata/strata.h>

#define EXPECT(condition)                                                                 \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            abort();                                                                      \
        }                                                                                 \
    } while (0)

static inline uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static inline uint64_t random_seed(uint64_t number) { return (number + 1) * UINT64_C(0x9e3779b97f4a7c15); }

/* The child has ended by itself, with this status; signals may come meanwhile. */
static inline void expect_child(pid_t child, int wanted) {
    int status = 0;
    EXPECT(child > 0);
    while (waitpid(child, &status, 0) < 0) EXPECT(errno == EINTR);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == wanted);
}

/* Blocks of a few sizes, each with its own cache, marked at both ends; plain stores, so that two owners of one block are a data race that the
 * sanitizer sees. */
static inline size_t *make_block(uint64_t *random) {
    static const size_t sizes[] = {16, 48, 64, 160, 512, 1024, 4096, 20000};
    size_t bytes = sizes[next_random(random) % (sizeof sizes / sizeof sizes[0])];
    size_t *block = strata_malloc(bytes);
    EXPECT(block != NULL);
    block[0] = bytes;
    block[1] = bytes ^ (uintptr_t)block;
    block[bytes / sizeof *block - 1] = block[1];
    return block;
}

static inline void free_block(size_t *block) {
    size_t bytes = block[0];
    EXPECT(block[1] == (bytes ^ (uintptr_t)block) && block[bytes / sizeof *block - 1] == block[1]);
    block[0] = block[1] = 0;
    strata_free(block);
}

/* At the end, alone: invariants hold, and all memory of the threads that are gone can be had. */
static inline void expect_sound(void) {
    const char *broken = strata_check();
    if (broken != NULL) fprintf(stderr, "strata_check: %s\n", broken);
    EXPECT(broken == NULL);
}

#endif
