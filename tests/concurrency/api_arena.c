/*
 * api_arena.c - threads that sleep for the integers of arenas, on real locks and futexes: what one holds nobody else gets, no wake is lost, and in
 * the end everything is where it came from. For ThreadSanitizer, too.
 *
 * A pool of few integers; two arenas that import from it, one of them by functions of the program, with a limit. Threads take from all three and
 * sleep where there is nothing; nobody holds something while it sleeps, so somebody always goes on. One thread walks, reads figures and wakes for no
 * reason meanwhile. api_arena [TURNS] goes so often round in each thread. A lost wake-up ends in a hang, which the test's timeout reports.
 */
#include <sched.h>

#include <strata/arena.h>

#include "concurrency/concurrency.h"

enum { THREADS = 6, DEFAULT_TURNS = 4000, BASE = 1000, INTEGERS = 64, QUANTUM = 4, IMPORTS_MAX = 32 };

static size_t turns = DEFAULT_TURNS;
static struct strata_arena *pool, *importer, *by_functions;
static unsigned owners[BASE + INTEGERS]; /* of each integer: a thread's number, 0: nobody */
static bool stop;

static enum strata_arena_status import(void *context, uint64_t size, unsigned flags, uint64_t *start, uint64_t *got) {
    (void)flags; /* never sleeps here: what is freed in the importing arena would not end that */
    *got = (size + QUANTUM - 1) / QUANTUM * QUANTUM;
    return strata_arena_alloc(context, *got, 0, start);
}

static void release(void *context, uint64_t start, uint64_t size) {
    EXPECT(strata_arena_free(context, start, size) == STRATA_ARENA_OK);
    /* The pool does not know who imports by functions. */
    EXPECT(strata_arena_wake(by_functions) == STRATA_ARENA_OK);
}

static void own(uint64_t start, uint64_t size, unsigned number, unsigned expected) {
    EXPECT(start >= BASE && size <= INTEGERS && start - BASE <= INTEGERS - size);
    for (uint64_t i = start; i < start + size; i++) EXPECT(__atomic_exchange_n(&owners[i], number, __ATOMIC_RELAXED) == expected);
}

static void *take_turns(void *argument) {
    struct strata_arena *const arenas[] = {pool, importer, by_functions};
    unsigned number = (unsigned)(uintptr_t)argument + 1;
    uint64_t random = random_seed(number);
    for (size_t i = 0; i < turns; i++) {
        struct strata_arena *arena = arenas[next_random(&random) % 3];
        uint64_t size = 1 + next_random(&random) % 20, start;
        unsigned flags = (unsigned)(next_random(&random) % 3) | STRATA_ARENA_SLEEP;
        if (next_random(&random) % 4 == 0)
            EXPECT(strata_arena_xalloc(arena, size, QUANTUM, 0, 0, 0, 0, flags, &start) == STRATA_ARENA_OK);
        else
            EXPECT(strata_arena_alloc(arena, size, flags, &start) == STRATA_ARENA_OK);
        own(start, size, number, 0);
        if (next_random(&random) % 8 == 0) sched_yield();
        if (size > 1 && next_random(&random) % 4 == 0) {
            own(start + size / 2, size - size / 2, 0, number);
            enum strata_arena_status status = strata_arena_resize(arena, start, size, size / 2);
            EXPECT(status == STRATA_ARENA_OK);
            size /= 2;
        }
        own(start, size, 0, number);
        EXPECT(strata_arena_free(arena, start, size) == STRATA_ARENA_OK);
        /* What the functions can import has been freed in the pool, perhaps by this thread. */
        if (arena != by_functions) EXPECT(strata_arena_wake(by_functions) == STRATA_ARENA_OK);
    }
    return NULL;
}

static int count(const struct strata_arena_segment *segment, void *context) {
    EXPECT(segment->start >= BASE && segment->size <= INTEGERS);
    ++*(unsigned *)context;
    return 1;
}

static void *look(void *argument) {
    struct strata_arena *const arenas[] = {pool, importer, by_functions};
    struct strata_arena_stats stats;
    for (unsigned i = 0; !__atomic_load_n(&stop, __ATOMIC_ACQUIRE); i++) {
        struct strata_arena *arena = arenas[i % 3];
        unsigned seen = 0;
        EXPECT(strata_arena_walk(arena, STRATA_ARENA_SPAN | STRATA_ARENA_ALLOCATED | STRATA_ARENA_FREE, count, &seen) == STRATA_ARENA_OK);
        EXPECT(strata_arena_stats_get(arena, &stats) == STRATA_ARENA_OK);
        EXPECT(stats.total == stats.allocated + stats.free && stats.total <= INTEGERS);
        EXPECT(arena != by_functions || stats.imported <= IMPORTS_MAX);
        EXPECT(strata_arena_check(arena) == NULL);
        EXPECT(strata_arena_wake(arena) == STRATA_ARENA_OK);
        sched_yield();
    }
    return argument;
}

/* Arenas come and go while others are used, with an import from one that is. */
static void *come_and_go(void *argument) {
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        struct strata_arena *arena;
        uint64_t start;
        EXPECT(strata_arena_create("passing", 0, 0, 1, 0, &arena) == STRATA_ARENA_OK);
        EXPECT(strata_arena_set_source(arena, pool) == STRATA_ARENA_OK);
        if (strata_arena_alloc(arena, 1, 0, &start) == STRATA_ARENA_OK) {
            EXPECT(strata_arena_destroy(arena) == STRATA_ARENA_BUSY);
            EXPECT(strata_arena_free(arena, start, 1) == STRATA_ARENA_OK);
            EXPECT(strata_arena_wake(by_functions) == STRATA_ARENA_OK);
        }
        EXPECT(strata_arena_destroy(arena) == STRATA_ARENA_OK);
        sched_yield();
    }
    return argument;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS], looker, passer;
    struct strata_arena_stats stats;
    uint64_t waits = 0;
    if (argc > 1) turns = strtoul(argv[1], NULL, 10);
    EXPECT(strata_arena_create("pool", BASE, INTEGERS, QUANTUM, 0, &pool) == STRATA_ARENA_OK);
    EXPECT(strata_arena_create("importer", 0, 0, 1, 0, &importer) == STRATA_ARENA_OK);
    EXPECT(strata_arena_create("by functions", 0, 0, 1, STRATA_ARENA_BEST_FIT, &by_functions) == STRATA_ARENA_OK);
    EXPECT(strata_arena_set_source(importer, pool) == STRATA_ARENA_OK);
    EXPECT(strata_arena_set_import(by_functions, import, release, pool) == STRATA_ARENA_OK);
    EXPECT(strata_arena_set_limit(by_functions, IMPORTS_MAX) == STRATA_ARENA_OK);

    for (uintptr_t i = 0; i < THREADS; i++) EXPECT(pthread_create(&threads[i], NULL, take_turns, (void *)i) == 0);
    EXPECT(pthread_create(&looker, NULL, look, NULL) == 0);
    EXPECT(pthread_create(&passer, NULL, come_and_go, NULL) == 0);
    for (unsigned i = 0; i < THREADS; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    EXPECT(pthread_join(looker, NULL) == 0);
    EXPECT(pthread_join(passer, NULL) == 0);

    EXPECT(strata_check() == NULL);
    struct strata_arena *const arenas[] = {by_functions, importer, pool};
    for (unsigned i = 0; i < 3; i++) {
        EXPECT(strata_arena_stats_get(arenas[i], &stats) == STRATA_ARENA_OK);
        EXPECT(stats.allocated == 0 && stats.imported == 0 && stats.waiters == 0 && stats.failures == (arenas[i] == pool ? stats.failures : 0));
        waits += stats.waits;
        EXPECT(strata_arena_destroy(arenas[i]) == STRATA_ARENA_OK);
    }
    EXPECT(waits > 0); /* or nothing was tested */
    printf("%zu turns in each of %d threads, %llu times asleep\n", turns, THREADS, (unsigned long long)waits);
    return 0;
}
