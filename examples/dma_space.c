/*
 * dma_space.c - bus addresses for a device that is particular about them: xalloc with all its constraints.
 *
 *     cc dma_space.c -o dma_space $(pkg-config --cflags --libs strata)
 *     ./dma_space
 *
 * The window of a device's bus is an arena with a quantum of 2 bytes. Its parts want different things:
 *   - a ring of descriptors starts at a multiple of 256 and must not cross a boundary of 4 KiB, as the device adds only 12 bits;
 *   - packet buffers start 2 bytes behind a multiple of 64: behind the 14 bytes of an Ethernet header, what follows is aligned to 16;
 *   - an old part of the device has 24 address lines: its buffers lie below 16 MiB, and in no two windows of 64 KiB at once.
 */
#include <stdio.h>
#include <stdlib.h>

#include <strata/arena.h>

#define MIB ((uint64_t)1 << 20)
#define WINDOW_START (8 * MIB)
#define WINDOW_BYTES (24 * MIB)

static const struct want {
    const char *name;
    unsigned count;
    uint64_t size, align, phase, nocross, max;
} wants[] = {
    {"rings", 100, 1536, 256, 0, 4096, 0},
    {"packets", 2000, 1518, 64, 2, 0, 0},
    {"low", 70, 40000, 0, 0, 65536, 16 * MIB},
};
#define WANTS (sizeof wants / sizeof wants[0])

static uint64_t starts[WANTS][2000];

static int is_right(const struct want *want, uint64_t start) {
    uint64_t last = start + want->size - 1;
    if (start < WINDOW_START || last >= WINDOW_START + WINDOW_BYTES) return 0;
    if (want->align != 0 && start % want->align != want->phase) return 0;
    if (want->nocross != 0 && start / want->nocross != last / want->nocross) return 0;
    return want->max == 0 || last < want->max;
}

int main(void) {
    struct strata_arena *bus;
    enum strata_arena_status status = strata_arena_create("bus addresses", WINDOW_START, WINDOW_BYTES, 2, STRATA_ARENA_BEST_FIT, &bus);
    if (status != STRATA_ARENA_OK) return EXIT_FAILURE;

    unsigned wrong = 0;
    for (unsigned w = 0; w < WANTS; w++) {
        const struct want *want = &wants[w];
        unsigned got = 0;
        for (; got < want->count; got++) {
            status = strata_arena_xalloc(bus, want->size, want->align, want->phase, want->nocross, 0, want->max, 0, &starts[w][got]);
            if (status != STRATA_ARENA_OK) break;
            wrong += !is_right(want, starts[w][got]);
        }
        printf("%-8s %u of %u, the first at 0x%llx, the last at 0x%llx\n", want->name, got, want->count, (unsigned long long)starts[w][0],
               (unsigned long long)starts[w][got - 1]);
        if (got != want->count) {
            fprintf(stderr, "dma_space: %s: %s\n", want->name, strata_arena_status_text(status));
            return EXIT_FAILURE;
        }
    }

    /* What can't be met by any integer is told apart from what can't be met now. */
    uint64_t start;
    status = strata_arena_xalloc(bus, 5000, 256, 0, 4096, 0, 0, 0, &start);
    printf("5000 bytes inside 4096: %s\n", strata_arena_status_text(status));
    if (status != STRATA_ARENA_BAD_ARGUMENT) return EXIT_FAILURE;
    status = strata_arena_xalloc(bus, 8 * MIB, 0, 0, 0, 0, 16 * MIB, 0, &start);
    printf("all below 16 MiB, of which a part is taken: %s\n", strata_arena_status_text(status));
    if (status != STRATA_ARENA_NO_SPACE) return EXIT_FAILURE;

    struct strata_arena_stats stats;
    strata_arena_stats_get(bus, &stats);
    printf("%llu of %llu bytes in %llu segments; %u in a wrong place\n", (unsigned long long)stats.allocated, (unsigned long long)stats.total,
           (unsigned long long)stats.segments_allocated, wrong);
    const char *broken = strata_arena_check(bus);
    if (broken != NULL) fprintf(stderr, "dma_space: %s\n", broken);

    for (unsigned w = 0; w < WANTS; w++)
        for (unsigned i = 0; i < wants[w].count; i++) strata_arena_xfree(bus, starts[w][i], wants[w].size);
    status = strata_arena_destroy(bus);
    return status == STRATA_ARENA_OK && wrong == 0 && broken == NULL ? EXIT_SUCCESS : EXIT_FAILURE;
}
