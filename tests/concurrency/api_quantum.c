/*
 * api_quantum.c - threads that allocate and free integers of an arena with quantum caches: nobody gets what another has, the free of what one has is
 * never refused, that of what nobody has always is, while slabs come and go. For ThreadSanitizer, too.
 *
 * Each thread holds a few integers at a time and now and then frees wrongly: what it has, by another size, and what is nobody's for the whole run
 * (what it has just given back may be another's by now). Half of the integers lie far from the others, so that their marks lie beside the window.
 * api_quantum [TURNS] goes so often round in each thread.
 */
#include <strata/arena.h>
#include <strata/strata.h>

#include "concurrency/concurrency.h"

enum { THREADS = 4, DEFAULT_TURNS = 40000, INTEGERS = 1 << 14, HELD = 200, LARGEST = 8 };

static const uint64_t far_away = UINT64_C(1) << 40;
static size_t turns = DEFAULT_TURNS;
static struct strata_arena *arena;
static unsigned owners[INTEGERS]; /* of each integer: a thread's number, 0: nobody */

struct holding {
    uint64_t start, size;
};

static void own(const struct holding *held, unsigned number, unsigned expected) {
    uint64_t first = held->start < far_away ? held->start : held->start - far_away + INTEGERS / 2;
    EXPECT(first + held->size <= INTEGERS);
    for (uint64_t i = first; i < first + held->size; i++) EXPECT(__atomic_exchange_n(&owners[i], number, __ATOMIC_RELAXED) == expected);
}

static void give(struct holding *held, unsigned number) {
    own(held, 0, number);
    EXPECT(strata_arena_free(arena, held->start, held->size) == STRATA_ARENA_OK);
}

static void *take_turns(void *argument) {
    unsigned number = (unsigned)(uintptr_t)argument + 1, count = 0;
    uint64_t random = random_seed(number);
    struct holding held[HELD];
    for (size_t i = 0; i < turns; i++) {
        if (count < HELD && next_random(&random) % 2 != 0) {
            held[count].size = 1 + next_random(&random) % LARGEST;
            EXPECT(strata_arena_alloc(arena, held[count].size, 0, &held[count].start) == STRATA_ARENA_OK);
            own(&held[count++], number, 0);
        } else if (count != 0) {
            unsigned which = (unsigned)(next_random(&random) % count);
            EXPECT(strata_arena_free(arena, held[which].start, held[which].size + 1) == STRATA_ARENA_SIZE_MISMATCH);
            EXPECT(strata_arena_free(arena, INTEGERS / 2 + held[which].start, held[which].size) == STRATA_ARENA_NOT_ALLOCATED);
            if (held[which].size > 1) EXPECT(strata_arena_free(arena, held[which].start + 1, 1) == STRATA_ARENA_NOT_ALLOCATED);
            give(&held[which], number);
            held[which] = held[--count];
        }
        if (i % 4096 == 4095) {
            while (count != 0) give(&held[--count], number);
            strata_release(0);
        }
    }
    while (count != 0) give(&held[--count], number);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    if (argc > 1) turns = strtoull(argv[1], NULL, 10);
    EXPECT(strata_arena_create("quanta", 0, INTEGERS / 2, 1, 0, &arena) == STRATA_ARENA_OK);
    EXPECT(strata_arena_add(arena, far_away, INTEGERS / 2) == STRATA_ARENA_OK);
    EXPECT(strata_arena_set_quantum_caches(arena, LARGEST) == STRATA_ARENA_OK);
    for (unsigned i = 0; i < THREADS; i++) EXPECT(pthread_create(&threads[i], NULL, take_turns, (void *)(uintptr_t)i) == 0);
    for (unsigned i = 0; i < THREADS; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
    EXPECT(strata_check() == NULL);
    EXPECT(strata_arena_destroy(arena) == STRATA_ARENA_OK);
    puts("ok");
    return 0;
}
