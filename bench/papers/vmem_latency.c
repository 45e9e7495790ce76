/*
 * vmem_latency.c - experiment: section 4.5.1 of the magazines paper. The latency of an allocation and its free in a resource that is in pieces.
 *
 *     vmem_latency arena|cached|map ROUNDS OPERATIONS SEGMENTS...
 *
 * For each SEGMENTS a resource is made: of that many segments of one integer every other is free, and a large free rest lies behind them. Then, in
 * each round and from one resource after another, two integers are allocated and freed again, OPERATIONS times, from an empty resource beyond which
 * only the rest has room. So all resources are measured at the same time, and what slows the machine for a while is in the same rounds of all; the
 * medians are printed. `arena` is strata's, `cached` the same with a quantum cache for what is timed (the pieces go round it); `map` is a resource
 * map as Unix kernels had them: an array of free pieces in the order of their addresses, searched from its start, so often that it looks at some
 * MAP_PIECES of them in a round. One thread, no locks.
 */
#include <inttypes.h>
#include <stdio.h>

#include <strata/arena.h>

#include "load.h"
#include "timing.h"

#define RESOURCE_END (UINT64_C(1) << 40)
#define PIECE 2
#define MAP_PIECES UINT64_C(20000000)
#define ROUNDS_MAX 1001
#define RESOURCES_MAX 16

struct piece {
    uint64_t start, size;
};

/* Pieces are in the order of their starts, and never touch. */
struct map {
    struct piece *pieces;
    size_t count;
};

/* One of the three kinds. */
struct resource {
    struct strata_arena *arena; /* NULL: a map */
    struct map map;
    uint64_t segments, operations, free; /* in a round; integers, while nothing is allocated */
    size_t count;                        /* of the map's pieces, likewise */
    double ns[ROUNDS_MAX];
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

static void look(struct resource *resource, uint64_t *free_integers) {
    *free_integers = 0;
    if (resource->arena) must(strata_arena_size(resource->arena, STRATA_ARENA_FREE, free_integers));
    for (size_t i = 0; i < resource->map.count; i++) *free_integers += resource->map.pieces[i].size;
}

static void begin(struct resource *resource, uint64_t segments, uint64_t operations, int is_map, int is_cached) {
    *resource = (struct resource){.segments = segments, .operations = operations};
    uint64_t start, expected = RESOURCE_END - segments + segments / 2;
    if (is_map) {
        resource->map = map_in_pieces(segments);
        resource->count = resource->map.count;
        if (resource->operations > MAP_PIECES / segments) resource->operations = MAP_PIECES / segments + 1;
    } else {
        resource->arena = arena_in_pieces(segments, is_cached);
        /* From the first one on a quantum cache has a slab. */
        must(strata_arena_alloc(resource->arena, PIECE, 0, &start));
        must(strata_arena_free(resource->arena, start, PIECE));
    }
    look(resource, &resource->free);
    if (is_cached ? resource->free >= expected : resource->free != expected) load_fail("integers were lost");
}

static double time_round(struct resource *resource) {
    uint64_t start, begin_ns = load_clock_ns();
    for (uint64_t i = 0; i < resource->operations; i++) {
        if (resource->arena)
            must(strata_arena_alloc(resource->arena, PIECE, 0, &start));
        else
            start = map_allocate(&resource->map, PIECE);
        check_start(start, resource->segments);
        if (resource->arena)
            must(strata_arena_free(resource->arena, start, PIECE));
        else
            map_free(&resource->map, start, PIECE);
    }
    return (double)(load_clock_ns() - begin_ns) / (double)resource->operations;
}

static void end(struct resource *resource) {
    uint64_t free_integers;
    const char *fault = resource->arena ? strata_arena_check(resource->arena) : NULL;
    if (fault) load_fail(fault);
    look(resource, &free_integers);
    if (free_integers != resource->free || resource->map.count != resource->count) load_fail("integers were lost");
    free(resource->map.pieces);
}

static int by_value(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

int main(int argc, char **argv) {
    static struct resource resources[RESOURCES_MAX];
    uint64_t rounds = argc > 4 ? strtoull(argv[2], NULL, 10) : 0, operations = argc > 4 ? strtoull(argv[3], NULL, 10) : 0;
    int count = argc - 4;
    if (!rounds || rounds > ROUNDS_MAX || !operations || count > RESOURCES_MAX)
        load_fail("usage: vmem_latency arena|cached|map ROUNDS OPERATIONS SEGMENTS...");
    timing_pin(0);
    int is_map = !strcmp(argv[1], "map"), is_cached = !strcmp(argv[1], "cached");
    if (!is_map && !is_cached && strcmp(argv[1], "arena")) load_fail("arena, cached or map");
    for (int i = 0; i < count; i++) {
        uint64_t segments = strtoull(argv[4 + i], NULL, 10);
        if (segments < 2 || segments % 2) load_fail("SEGMENTS is an even number");
        begin(&resources[i], segments, operations, is_map, is_cached);
    }
    for (uint64_t round = 0; round < rounds; round++)
        for (int i = 0; i < count; i++) resources[i].ns[round] = time_round(&resources[i]);
    for (int i = 0; i < count; i++) {
        end(&resources[i]);
        qsort(resources[i].ns, rounds, sizeof resources[i].ns[0], by_value);
        printf("%s\"%" PRIu64 "\": %.3f", i ? ", " : "{", resources[i].segments, resources[i].ns[rounds / 2]);
    }
    printf("}\n");
    return fflush(stdout) ? 2 : 0;
}
