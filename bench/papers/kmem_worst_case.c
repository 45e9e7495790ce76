/*
 * kmem_worst_case.c - experiment: section 4.3 of the kmem paper. Allocates blocks of one size until there is no more memory, frees all of them, and
 * goes on with the next size, in one process without a pause; then down through the sizes again, which the paper's did not.
 *
 *     STRATA_CONF=hard_limit:SIZE kmem_worst_case LIMIT_BYTES
 *
 * The option makes malloc fail; LIMIT_BYTES says where, for a check that it did and not the machine. Blocks are linked through their first word, as
 * in the paper, and tagged in their second, so that a block that was handed out twice is found. One thread, no locks.
 */
#include <inttypes.h>
#include <stdio.h>

#include "load.h"
#include "timing.h"

#define SMALLEST_SHIFT 4
#define LARGEST_SHIFT 12

struct block_link {
    struct block_link *next;
    uint64_t tag;
};

static void exhaust(size_t block_bytes, uint64_t limit_bytes, int last) {
    struct block_link *list = NULL;
    uint64_t count = 0, freed = 0;
    uint64_t start_ns = load_clock_ns();
    for (struct block_link *block; (block = malloc(block_bytes)); count++) {
        *block = (struct block_link){.next = list, .tag = count};
        list = block;
        if (count * block_bytes > limit_bytes) load_fail("malloc goes on beyond the limit");
    }
    uint64_t full_ns = load_clock_ns();
    while (list) {
        struct block_link *next = list->next;
        if (list->tag != count - ++freed) load_fail("a block does not hold what was written to it");
        free(list);
        list = next;
    }
    uint64_t end_ns = load_clock_ns();
    if (!count || freed != count) load_fail("blocks were lost");
    printf("{\"bytes\": %zu, \"blocks\": %" PRIu64 ", \"allocation_ns\": %.3f, \"release_ns\": %.3f, \"share\": %.4f}%s", block_bytes, count,
           (double)(full_ns - start_ns) / (double)count, (double)(end_ns - full_ns) / (double)count,
           (double)(count * block_bytes) / (double)limit_bytes, last ? "" : ", ");
}

int main(int argc, char **argv) {
    uint64_t limit_bytes = argc == 2 ? strtoull(argv[1], NULL, 10) : 0;
    if (!limit_bytes) load_fail("usage: kmem_worst_case LIMIT_BYTES");
    timing_pin(0);
    printf("{\"up\": [");
    for (unsigned shift = SMALLEST_SHIFT; shift <= LARGEST_SHIFT; shift++) exhaust((size_t)1 << shift, limit_bytes, shift == LARGEST_SHIFT);
    printf("], \"down\": [");
    for (unsigned shift = LARGEST_SHIFT; shift >= SMALLEST_SHIFT; shift--) exhaust((size_t)1 << shift, limit_bytes, shift == SMALLEST_SHIFT);
    printf("]}\n");
    return fflush(stdout) ? 2 : 0;
}
