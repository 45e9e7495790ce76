/*
 * api_little_memory.c - what has to go well where memory is used up: a realloc that shrinks, and a free of pages that were exchanged.
 *
 * Protects: who asks for less gets it, with errno as it was, from realloc and from batches alike; a free never needs memory, and the
 * notes of exchanged pages stay whole where taking one back finds none. Each case is a process of its own.
 */
#include <errno.h>
#include <string.h>

#include <strata/batch.h>
#include <strata/malloc.h>
#include <strata/page.h>

#include "own_process.h"

#define MIB ((size_t)1 << 20)

static void use_up(size_t most) {
    for (size_t bytes = most; bytes >= 16; bytes /= 2)
        while (strata_malloc(bytes) != NULL) {}
}

static bool holds(const unsigned char *block, size_t bytes, unsigned char value) {
    for (size_t i = 0; i < bytes; i++)
        if (block[i] != value) return false;
    return true;
}

static void *by_realloc(void *block, size_t bytes) { return strata_realloc(block, bytes); }
static void *by_batch(void *block, size_t bytes) {
    struct strata_batch_element2 element = {block, bytes}, *elements = &element;
    size_t count = 1;
    int error = 0;
    EXPECT(strata_batch_alloc2(&error, &elements, &count, 0, 0, 0) && error == 0 && count == 1 && element.size >= bytes);
    return element.ptr;
}

static void shrink(void *(*resize)(void *, size_t)) {
    static const size_t pairs[][2] = {{1000, 16}, {2000, 700}, {30000, 100}, {100000, 100}, {1500000, 30000}, {10000000, 100}, {10000000, 40000}};
    enum { PAIRS = sizeof pairs / sizeof pairs[0] };
    unsigned char *blocks[PAIRS];
    for (unsigned i = 0; i < PAIRS; i++) {
        EXPECT((blocks[i] = strata_malloc(pairs[i][0])) != NULL);
        memset(blocks[i], (int)i + 1, pairs[i][0]);
    }
    use_up(MIB);
    errno = 77;
    for (unsigned i = 0; i < PAIRS; i++) {
        EXPECT((blocks[i] = resize(blocks[i], pairs[i][1])) != NULL);
        EXPECT(errno == 77 && strata_malloc_usable_size(blocks[i]) >= pairs[i][1]);
        EXPECT(holds(blocks[i], pairs[i][1], (unsigned char)(i + 1)));
        if (i == 5) EXPECT(strata_malloc_usable_size(blocks[i]) < MIB); /* what was behind is for others */
    }
    EXPECT(strata_malloc(MIB) != NULL);
    EXPECT(strata_check() == NULL);
}

static char *pages(size_t bytes) {
    void *block;
    if (strata_page_alloc(bytes, 0, &block) != STRATA_PAGE_OK) return NULL;
    memset(block, 1, bytes);
    return block;
}

/* When X is free, two notes can be taken back: the one through what the first note is about, which goes with it, and the other through nothing. */
static void settle(void) {
    char *p = pages(2 * MIB), *q = pages(2 * MIB), *y = pages(2 * MIB), *between = pages(2 * MIB), *x = pages(8 * MIB), *behind = pages(2 * MIB),
         *z = pages(6 * MIB);
    EXPECT(p && q && y && between && x && behind && z);
    EXPECT(strata_page_swap(p, q, 2 * MIB) == STRATA_PAGE_OK);
    EXPECT(strata_page_swap(x + 2 * MIB, z, 6 * MIB) == STRATA_PAGE_OK);
    EXPECT(strata_page_swap(x, y, 2 * MIB) == STRATA_PAGE_OK);
    while (pages(2 * MIB) != NULL) {}
    EXPECT(strata_page_free(p) == STRATA_PAGE_OK && strata_page_free(y) == STRATA_PAGE_OK);
    EXPECT(strata_page_free(z) == STRATA_PAGE_OK && strata_page_free(x) == STRATA_PAGE_OK);
    EXPECT(holds((unsigned char *)q, 2 * MIB, 1));
    EXPECT(strata_check() == NULL);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "shrink") == 0) {
        shrink(by_realloc);
    } else if (argc > 1 && strcmp(argv[1], "shrink-batch") == 0) {
        shrink(by_batch);
    } else if (argc > 1 && strcmp(argv[1], "settle") == 0) {
        settle();
    } else {
        run_in_own_process("shrink", "hard_limit:64M", NULL, NULL);
        run_in_own_process("shrink", "hard_limit:64M,rseq:off", NULL, NULL);
        run_in_own_process("shrink-batch", "hard_limit:64M", NULL, NULL);
        run_in_own_process("settle", "reserve:64M", NULL, NULL);
        run_in_own_process("settle", "reserve:32M,rseq:off", NULL, NULL);
    }
    return 0;
}
