/*
 * vmem_latency.c - experiment: section 4.5.1 of the magazines paper. The latency of an allocation and its free in a resource that is in pieces.
 *
 *     vmem_latency arena|cached|map SEGMENTS OPERATIONS
 *
 * Of SEGMENTS segments of one integer, every other is free, and a large free rest lies behind them. Then two integers are allocated and freed again,
 * OPERATIONS times, from an empty resource beyond which only the rest has room. `arena` is strata's, `cached` the same with a quantum cache for what
 * is timed (the pieces go round it); `map` is a resource map as Unix kernels had them: an array of free pieces in the order of their addresses,
 * searched from its start. One thread, no locks.
 */
#include <inttypes.h>
#include <stdio.h>

#include <strata/arena.h>

#include "load.h"
#include "timing.h"

#define RESOURCE_END (UINT64_C(1) << 40)
#define PIECE 2

struct piece {
    uint64_t start, size;
};

/* Pieces are in the order of their starts, and never touch. */
struct map {
    struct piece *pieces;
    size_t count;
};

static uint64_t map_allocate(struct map *map, uint64_t size) {
    for (size_t i = 0; i < map->count; i++) {
        struct piece *piece = &map->pieces[i];
        if (piece->size < size) continue;
        uint64_t start = piece->start;
        piece->start += size;
        piece->size -= size;
        if (!piece->size) memmove(piece, piece + 1, (--map->count - i) * sizeof *piece);
        return start;
    }
    load_fail("the map has no room");
}

static void map_free(struct map *map, uint64_t start, uint64_t size) {
    size_t i = 0;
    while (i < map->count && map->pieces[i].start < start) i++;
    struct piece *after = &map->pieces[i], *before = after - 1;
    int joins_before = i > 0 && before->start + before->size == start;
    int joins_after = i < map->count && start + size == after->start;
    if (joins_before) {
        before->size += size + (joins_after ? after->size : 0);
        if (joins_after) memmove(after, after + 1, (--map->count - i) * sizeof *after);
    } else if (joins_after) {
        after->start = start;
        after->size += size;
    } else {
        memmove(after + 1, after, (map->count++ - i) * sizeof *after);
        *after = (struct piece){start, size};
    }
}

/* Written down at once: to free the pieces one after another would take the square of their number. */
static struct map map_in_pieces(uint64_t segments) {
    struct map map = {.pieces = malloc((segments / 2 + 2) * sizeof(struct piece))};
    if (!map.pieces) load_fail("no memory for the map");
    for (uint64_t start = 0; start + 1 < segments; start += 2) map.pieces[map.count++] = (struct piece){start, 1};
    map.pieces[map.count++] = (struct piece){segments, RESOURCE_END - segments};
    return map;
}

static void must(enum strata_arena_status status) {
    if (status != STRATA_ARENA_OK) load_fail(strata_arena_status_text(status));
}

static struct strata_arena *arena_in_pieces(uint64_t segments, int cached) {
    struct strata_arena *arena;
    uint64_t start;
    must(strata_arena_create("pieces", 0, RESOURCE_END, 1, STRATA_ARENA_INSTANT_FIT, &arena));
    if (cached) must(strata_arena_set_quantum_caches(arena, PIECE));
    for (uint64_t i = 0; i < segments; i++) {
        must(strata_arena_xalloc(arena, 1, 0, 0, 0, 0, 0, 0, &start));
        if (start != i) load_fail("an arena without holes does not give integers in order");
    }
    for (uint64_t i = 0; i + 1 < segments; i += 2) must(strata_arena_xfree(arena, i, 1));
    return arena;
}

static void check_start(uint64_t start, uint64_t segments) {
    if (start < segments || start + PIECE > RESOURCE_END) load_fail("what was allocated overlaps what is in use");
}

static uint64_t time_arena(uint64_t segments, uint64_t operations, int cached) {
    struct strata_arena *arena = arena_in_pieces(segments, cached);
    uint64_t start, free_before, free_after;
    /* From the first one on a quantum cache has a slab. */
    must(strata_arena_alloc(arena, PIECE, 0, &start));
    must(strata_arena_free(arena, start, PIECE));
    must(strata_arena_size(arena, STRATA_ARENA_FREE, &free_before));
    uint64_t begin_ns = load_clock_ns();
    for (uint64_t i = 0; i < operations; i++) {
        must(strata_arena_alloc(arena, PIECE, 0, &start));
        check_start(start, segments);
        must(strata_arena_free(arena, start, PIECE));
    }
    uint64_t elapsed_ns = load_clock_ns() - begin_ns;
    must(strata_arena_size(arena, STRATA_ARENA_FREE, &free_after));
    uint64_t free_expected = RESOURCE_END - segments + segments / 2;
    if (free_before != free_after || (cached ? free_after >= free_expected : free_after != free_expected)) load_fail("integers were lost");
    const char *fault = strata_arena_check(arena);
    if (fault) load_fail(fault);
    return elapsed_ns;
}

static uint64_t time_map(uint64_t segments, uint64_t operations) {
    struct map map = map_in_pieces(segments);
    size_t count = map.count;
    uint64_t total = 0;
    uint64_t begin_ns = load_clock_ns();
    for (uint64_t i = 0; i < operations; i++) {
        uint64_t start = map_allocate(&map, PIECE);
        check_start(start, segments);
        map_free(&map, start, PIECE);
    }
    uint64_t elapsed_ns = load_clock_ns() - begin_ns;
    for (size_t i = 0; i < map.count; i++) total += map.pieces[i].size;
    if (map.count != count || total != RESOURCE_END - segments + segments / 2) load_fail("integers were lost");
    free(map.pieces);
    return elapsed_ns;
}

int main(int argc, char **argv) {
    uint64_t segments = argc == 4 ? strtoull(argv[2], NULL, 10) : 0, operations = argc == 4 ? strtoull(argv[3], NULL, 10) : 0;
    if (segments < 2 || segments % 2 || !operations)
        load_fail("usage: vmem_latency arena|cached|map SEGMENTS OPERATIONS; an even number of segments");
    timing_pin(0);
    int is_map = !strcmp(argv[1], "map"), is_cached = !strcmp(argv[1], "cached");
    if (!is_map && !is_cached && strcmp(argv[1], "arena")) load_fail("arena, cached or map");
    uint64_t elapsed_ns = is_map ? time_map(segments, operations) : time_arena(segments, operations, is_cached);
    printf("{\"ns_per_pair\": %.3f}\n", (double)elapsed_ns / (double)operations);
    return fflush(stdout) ? 2 : 0;
}
