/*
 * api_arena_cached.c - what caches hold of an arena is called in before a request fails there, and while one sleeps: integers that were freed into
 * quantum caches, spans whose integers an importing arena's quantum caches hold, and slabs that other object caches have of an arena.
 *
 * A request that sleeps though all is free ends by SIGALRM.
 */
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

#include <strata/arena.h>
#include <strata/cache.h>
#include <strata/strata.h>

#include "concurrency/concurrency.h"

enum { ALL = 1024, PATIENCE_SECONDS = 60 };
#define EXPECT_OK(call) EXPECT((call) == STRATA_ARENA_OK)

static struct strata_arena *arena;

static void take_ones(struct strata_arena *from, uint64_t *starts, unsigned count) {
    for (unsigned i = 0; i < count; i++) EXPECT_OK(strata_arena_alloc(from, 1, 0, &starts[i]));
}
static void give_ones(struct strata_arena *to, const uint64_t *starts, unsigned count) {
    for (unsigned i = 0; i < count; i++) EXPECT_OK(strata_arena_free(to, starts[i], 1));
}

static void *sleep_for_half(void *argument) {
    EXPECT_OK(strata_arena_alloc(argument, ALL / 2, STRATA_ARENA_SLEEP, &(uint64_t){0}));
    return NULL;
}

/* All of it in ones, all freed, half of it wanted in one piece: at once, and by a thread that sleeps since before they were freed. */
static void freed_integers_serve_other_sizes(void) {
    static uint64_t ones[ALL];
    uint64_t start;
    pthread_t sleeper;
    EXPECT_OK(strata_arena_create("cached", 0, ALL, 1, 0, &arena));
    EXPECT_OK(strata_arena_set_quantum_caches(arena, 8));
    take_ones(arena, ones, ALL);
    give_ones(arena, ones, ALL);
    EXPECT_OK(strata_arena_alloc(arena, ALL / 2, 0, &start));
    EXPECT_OK(strata_arena_free(arena, start, ALL / 2));
    take_ones(arena, ones, ALL);
    EXPECT(pthread_create(&sleeper, NULL, sleep_for_half, arena) == 0);
    usleep(50000);
    give_ones(arena, ones, ALL);
    EXPECT(pthread_join(sleeper, NULL) == 0);
}

/* The caches of an arena that imports hold spans of its source, which the source's own users want. */
static void freed_integers_go_back_to_the_source(void) {
    static uint64_t ones[ALL];
    struct strata_arena *source, *importer;
    pthread_t sleeper;
    EXPECT_OK(strata_arena_create("source", 0, ALL, 1, 0, &source));
    EXPECT_OK(strata_arena_create("importer", 0, 0, 1, 0, &importer));
    EXPECT_OK(strata_arena_set_source(importer, source));
    EXPECT_OK(strata_arena_set_quantum_caches(importer, 8));
    take_ones(importer, ones, ALL / 2);
    EXPECT(pthread_create(&sleeper, NULL, sleep_for_half, source) == 0);
    usleep(50000);
    give_ones(importer, ones, ALL / 2);
    EXPECT(pthread_join(sleeper, NULL) == 0);
}

enum { OBJECT = 256, SLABS_BYTES = 1 << 18 };

static void *take_slab(void *source, size_t bytes, size_t align) {
    uint64_t start;
    return strata_arena_xalloc(source, bytes, align, 0, 0, 0, 0, 0, &start) == STRATA_ARENA_OK ? (void *)(uintptr_t)start : NULL;
}
static void give_slab(void *source, void *memory, size_t bytes) { EXPECT_OK(strata_arena_xfree(source, (uintptr_t)memory, bytes)); }

/* One cache has had all slabs of the source and freed all objects; another one of the same source gets as many. */
static void slabs_of_one_cache_serve_another(void) {
    static void *objects[2][SLABS_BYTES / OBJECT];
    static char memory[SLABS_BYTES] __attribute__((aligned(1 << 16)));
    struct strata_arena *source;
    struct strata_cache *caches[2];
    unsigned got[2] = {0};
    EXPECT_OK(strata_arena_create("memory", (uintptr_t)memory, sizeof memory, 4096, 0, &source));
    for (unsigned c = 0; c < 2; c++) {
        const struct strata_cache_source from = {.allocate = take_slab, .release = give_slab, .context = source};
        const struct strata_cache_config config = {.size = OBJECT, .source = &from};
        EXPECT(strata_cache_create(c == 0 ? "first" : "second", &config, &caches[c]) == STRATA_CACHE_OK);
        while (got[c] < SLABS_BYTES / OBJECT && (objects[c][got[c]] = strata_cache_alloc(caches[c], 0)) != NULL) got[c]++;
        for (unsigned i = 0; i < got[c]; i++) strata_cache_free(caches[c], objects[c][i]);
    }
    EXPECT(got[0] != 0 && got[1] == got[0]);
}

int main(void) {
    alarm(PATIENCE_SECONDS);
    slabs_of_one_cache_serve_another();
    freed_integers_serve_other_sizes();
    freed_integers_go_back_to_the_source();
    expect_sound();
    return 0;
}
