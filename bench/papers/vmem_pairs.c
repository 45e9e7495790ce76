/*
 * vmem_pairs.c - experiment: section 4.4.4 of the magazines paper. What an arena's quantum caches cost beside the object caches that they are, and
 * these beside malloc, with a constructor and without (section 3.2).
 *
 *     vmem_pairs ROUNDS OPERATIONS
 *
 * In each round OPERATIONS pairs of an allocation and its free, one at a time and AT_A_TIME held together, from each of: malloc, twice, so that it is
 * seen how far two measurements of the same thing differ; an object cache; malloc with a construction after each allocation; an object cache with
 * that constructor; an arena whose integers lie near the first one, also with STRATA_ARENA_SLEEP; one whose integers all lie far from it; one whose
 * SPANS spans all lie far from each other; ones where as many lie behind REGIONS others, of which all is taken; one near its first integer, and one
 * with SPANS spans, whose quantum is SCALE integers. What is held together comes in an order that knows nothing of places. Each source has loops of
 * its own, with nothing in them but the calls and a look at what they return: what an object cache's pair hides of a longer loop, in the time that it
 * waits for its own stores, others would have added to theirs. Where what happened before decides the time (an arena finds out which integers are
 * freed), one at a time and many have an arena each. Rounds take turns; printed are the medians, what one construction takes, and the quartiles of
 * the ratios that rounds beside each other have. One thread, in a process that has more.
 */
#include <stdio.h>
#include <string.h>

#include <strata/arena.h>
#include <strata/cache.h>

#include "load.h"
#include "timing.h"

#define ROUNDS_MAX 1001
#define OBJECT_BYTES 64
#define LARGEST 8
/* The next power of two above three times the largest size: a span has room for one slab. */
#define SLAB_QUANTA 32
#define NEAR_END (UINT64_C(1) << 20)
#define SPANS 16
#define SCALE 4096
#define SPAN_SHIFT 40
#define AT_A_TIME 64
#define SEED 11
/* As many spans as an arena once looked up faster than others, and one more. */
#define REGIONS 257
/* What the constructor does: so many steps, each of which wants the result of the one before. */
#define CONSTRUCTION_STEPS 64

enum source { MALLOC, AGAIN, OBJECTS, BUILDING, BUILT, NEAR, SLEEPING, FAR, SCATTERED, BEYOND, BEYOND_MANY, SCALED_SCATTERED, SCALED, SOURCES };
struct kind {
    const char *name;
    enum source source;
    unsigned at_a_time;
    double ns[ROUNDS_MAX];
};
static struct kind kinds[] = {
    {"malloc", MALLOC, 1, {0}},
    {"malloc_many", MALLOC, AT_A_TIME, {0}},
    {"objects", OBJECTS, 1, {0}},
    {"objects_many", OBJECTS, AT_A_TIME, {0}},
    {"malloc_again", AGAIN, 1, {0}},
    {"malloc_again_many", AGAIN, AT_A_TIME, {0}},
    {"building", BUILDING, 1, {0}},
    {"building_many", BUILDING, AT_A_TIME, {0}},
    {"built", BUILT, 1, {0}},
    {"built_many", BUILT, AT_A_TIME, {0}},
    {"near", NEAR, 1, {0}},
    {"near_many", NEAR, AT_A_TIME, {0}},
    {"sleeping", SLEEPING, 1, {0}},
    {"sleeping_many", SLEEPING, AT_A_TIME, {0}},
    {"far", FAR, 1, {0}},
    {"far_many", FAR, AT_A_TIME, {0}},
    {"scattered_many", SCATTERED, AT_A_TIME, {0}},
    {"beyond", BEYOND, 1, {0}},
    {"beyond_many", BEYOND_MANY, AT_A_TIME, {0}},
    {"scaled_scattered_many", SCALED_SCATTERED, AT_A_TIME, {0}},
    {"scaled", SCALED, 1, {0}},
    {"scaled_many", SCALED, AT_A_TIME, {0}},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* Ratios of rounds that followed each other. */
static const struct {
    const char *name, *of, *to;
} ratios[] = {
    {"objects_to_malloc", "objects", "malloc"},
    {"objects_to_malloc_many", "objects_many", "malloc_many"},
    {"malloc_to_malloc", "malloc_again", "malloc"},
    {"malloc_to_malloc_many", "malloc_again_many", "malloc_many"},
};

static struct strata_cache *caches[SOURCES]; /* NULL: malloc or an arena */
static struct strata_arena *arenas[SOURCES]; /* NULL: objects */

/* Fills an object with what can't be had in fewer steps one after another. */
static int construct(void *object, void *argument) {
    uint64_t *words = object, value = (uint64_t)(uintptr_t)object;
    (void)argument;
    for (unsigned i = 0; i < CONSTRUCTION_STEPS; i++) words[i % (OBJECT_BYTES / sizeof *words)] = value = value * UINT64_C(6364136223846793005) + i;
    return 0;
}

static void must(enum strata_arena_status status) {
    if (status != STRATA_ARENA_OK) load_fail(strata_arena_status_text(status));
}

static void *whence(enum source source) { return source >= NEAR ? (void *)arenas[source] : (void *)caches[source]; }

static inline __attribute__((always_inline)) uint64_t quantum_of(enum source source) { return source >= SCALED_SCATTERED ? SCALE : 1; }

/* Straight to where it is held: a copy would be one more store that the free waits for. */
static inline __attribute__((always_inline)) void take(enum source source, void *from, uint64_t *what) {
    if (source >= NEAR) {
        must(strata_arena_alloc(from, quantum_of(source), source == SLEEPING ? STRATA_ARENA_SLEEP : 0, what));
        return;
    }
    void *object = source == OBJECTS || source == BUILT ? strata_cache_alloc(from, 0) : malloc(OBJECT_BYTES);
    if (!object) load_fail("no memory");
    if (source == BUILDING) (void)construct(object, NULL);
    *what = (uint64_t)(uintptr_t)object;
}

static inline __attribute__((always_inline)) void give(enum source source, void *to, uint64_t what) {
    if (source >= NEAR)
        must(strata_arena_free(to, what, quantum_of(source)));
    else if (source == OBJECTS || source == BUILT)
        strata_cache_free(to, (void *)(uintptr_t)what);
    else
        free((void *)(uintptr_t)what);
}

static uint64_t held[AT_A_TIME];
static inline __attribute__((always_inline)) void pairs(enum source source, unsigned at_a_time, uint64_t operations) {
    void *from = whence(source);
    for (uint64_t done = 0; done < operations; done += at_a_time) {
        for (unsigned i = 0; i < at_a_time; i++) take(source, from, &held[i]);
        for (unsigned i = 0; i < at_a_time; i++) give(source, from, held[i]);
    }
}
/* The source is a constant in each. */
static void pairs_of(enum source source, unsigned at_a_time, uint64_t operations) {
    switch (source) {
    case MALLOC:
    case AGAIN: pairs(MALLOC, at_a_time, operations); break;
    case OBJECTS: pairs(OBJECTS, at_a_time, operations); break;
    case BUILDING: pairs(BUILDING, at_a_time, operations); break;
    case BUILT: pairs(BUILT, at_a_time, operations); break;
    case NEAR: pairs(NEAR, at_a_time, operations); break;
    case SLEEPING: pairs(SLEEPING, at_a_time, operations); break;
    case FAR: pairs(FAR, at_a_time, operations); break;
    case SCATTERED: pairs(SCATTERED, at_a_time, operations); break;
    case BEYOND: pairs(BEYOND, at_a_time, operations); break;
    case BEYOND_MANY: pairs(BEYOND_MANY, at_a_time, operations); break;
    case SCALED_SCATTERED: pairs(SCALED_SCATTERED, at_a_time, operations); break;
    case SCALED: pairs(SCALED, at_a_time, operations); break;
    case SOURCES: break;
    }
}
static double time_round(const struct kind *kind, uint64_t operations) {
    uint64_t begin_ns = load_clock_ns();
    pairs_of(kind->source, kind->at_a_time, operations);
    return (double)(load_clock_ns() - begin_ns) / (double)operations;
}

/* What one construction takes, of an object that is in the processor's cache. */
static double time_construction(uint64_t operations) {
    uint64_t object[OBJECT_BYTES / sizeof(uint64_t)], begin_ns = load_clock_ns();
    for (uint64_t done = 0; done < operations; done++) {
        (void)construct(object, NULL);
        __asm__ volatile("" : : "r"(object) : "memory");
    }
    return (double)(load_clock_ns() - begin_ns) / (double)operations;
}

/* All that the caches will hold is taken once, and comes back in an order that is nobody's. */
static void shuffle(const struct kind *kind) {
    static uint64_t all[SPANS * SLAB_QUANTA];
    struct rng rng = rng_seed(SEED);
    unsigned count = SPANS * SLAB_QUANTA;
    for (unsigned i = 0; i < count; i++) take(kind->source, whence(kind->source), &all[i]);
    for (; count != 0; count--) {
        unsigned which = (unsigned)rng_below(&rng, count);
        give(kind->source, whence(kind->source), all[which]);
        all[which] = all[count - 1];
    }
}

/* Of so many quanta. */
static void make_arena(enum source source, const char *name, uint64_t size) {
    uint64_t quantum = quantum_of(source);
    must(strata_arena_create(name, 0, size * quantum, quantum, 0, &arenas[source]));
    must(strata_arena_set_quantum_caches(arenas[source], LARGEST * quantum));
}
static void add_span(enum source source, uint64_t which, uint64_t size) {
    must(strata_arena_add(arenas[source], which << SPAN_SHIFT, size * quantum_of(source)));
}

static int by_value(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static struct strata_cache *new_cache(const char *name, int (*constructor)(void *object, void *argument)) {
    const struct strata_cache_config config = {.size = OBJECT_BYTES, .constructor = constructor};
    struct strata_cache *cache;
    if (strata_cache_create(name, &config, &cache) != STRATA_CACHE_OK) load_fail("an object cache can't be made");
    return cache;
}

static const double *rounds_of(const char *name) {
    for (unsigned k = 0; k < KINDS; k++)
        if (strcmp(kinds[k].name, name) == 0) return kinds[k].ns;
    load_fail("no such kind");
    return NULL;
}

static void print_quartiles(const char *name, double *values, uint64_t count) {
    qsort(values, count, sizeof *values, by_value);
    printf("\"%s\": [%.4f, %.4f, %.4f], ", name, values[count / 4], values[count / 2], values[count - 1 - count / 4]);
}

static void print(uint64_t rounds, double *construction) {
    static double quotients[ROUNDS_MAX];
    printf("{");
    for (unsigned i = 0; i < sizeof ratios / sizeof ratios[0]; i++) {
        const double *of = rounds_of(ratios[i].of), *to = rounds_of(ratios[i].to);
        for (uint64_t round = 0; round < rounds; round++) quotients[round] = of[round] / to[round];
        print_quartiles(ratios[i].name, quotients, rounds);
    }
    for (unsigned k = 0; k < KINDS; k++) {
        qsort(kinds[k].ns, rounds, sizeof kinds[k].ns[0], by_value);
        printf("\"%s\": %.3f, ", kinds[k].name, kinds[k].ns[rounds / 2]);
    }
    qsort(construction, rounds, sizeof *construction, by_value);
    printf("\"construction\": %.3f}\n", construction[rounds / 2]);
}

/*
 * Arenas whose next integers lie where they shall: what is near is decided by the first ones, all of which stay taken.
 */
static uint64_t taken[SOURCES][REGIONS * SLAB_QUANTA];
static unsigned taken_count[SOURCES];

static void make_arenas(void) {
    make_arena(NEAR, "near", NEAR_END);
    arenas[SLEEPING] = arenas[NEAR];
    make_arena(SCALED, "scaled", NEAR_END);
    make_arena(FAR, "far", SLAB_QUANTA);
    make_arena(SCATTERED, "scattered", SLAB_QUANTA);
    make_arena(SCALED_SCATTERED, "scaled", SLAB_QUANTA);
    for (enum source source = BEYOND; source <= BEYOND_MANY; source++) {
        make_arena(source, "beyond", SLAB_QUANTA);
        for (uint64_t i = 1; i < REGIONS; i++) add_span(source, i, SLAB_QUANTA);
    }
    for (enum source source = FAR; source < SCALED; source++) {
        taken_count[source] = (source == BEYOND || source == BEYOND_MANY ? REGIONS : 1) * SLAB_QUANTA;
        for (unsigned i = 0; i < taken_count[source]; i++) must(strata_arena_alloc(arenas[source], quantum_of(source), 0, &taken[source][i]));
    }
    add_span(FAR, 1, NEAR_END);
    for (uint64_t i = 1; i <= SPANS; i++) {
        add_span(SCATTERED, i, SLAB_QUANTA);
        add_span(SCALED_SCATTERED, i, SLAB_QUANTA);
    }
    for (uint64_t i = REGIONS; i < REGIONS + SPANS; i++) {
        add_span(BEYOND, i, SLAB_QUANTA);
        add_span(BEYOND_MANY, i, SLAB_QUANTA);
    }
}

static void destroy_all(void) {
    for (enum source source = NEAR; source < SOURCES; source++) {
        if (source == SLEEPING) continue; /* NEAR's */
        for (unsigned i = 0; i < taken_count[source]; i++) must(strata_arena_free(arenas[source], taken[source][i], quantum_of(source)));
        must(strata_arena_destroy(arenas[source]));
    }
    if (strata_cache_destroy(caches[OBJECTS]) != STRATA_CACHE_OK || strata_cache_destroy(caches[BUILT]) != STRATA_CACHE_OK)
        load_fail("objects were lost");
}

int main(int argc, char **argv) {
    static double construction[ROUNDS_MAX];
    uint64_t rounds = argc == 3 ? strtoull(argv[1], NULL, 10) : 0, operations = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
    if (!rounds || rounds > ROUNDS_MAX || !operations) load_fail("usage: vmem_pairs ROUNDS OPERATIONS");
    timing_be_parallel();
    timing_pin(0);
    caches[OBJECTS] = new_cache("objects", NULL);
    caches[BUILT] = new_cache("built", construct);
    make_arenas();
    for (unsigned k = 0; k < KINDS; k++) shuffle(&kinds[k]);
    for (uint64_t round = 0; round < rounds; round++) {
        for (unsigned k = 0; k < KINDS; k++) kinds[k].ns[round] = time_round(&kinds[k], operations);
        construction[round] = time_construction(operations);
    }
    print(rounds, construction);
    destroy_all();
    return fflush(stdout) ? 2 : 0;
}
