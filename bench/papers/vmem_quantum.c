/*
 * vmem_quantum.c - experiment: sections 4.4.4 and 4.4.5 of the magazines paper. An arena with and without quantum caches.
 *
 *     vmem_quantum segments|cached pairs THREADS MILLISECONDS
 *     vmem_quantum segments|cached pieces OPERATIONS
 *
 * pairs: each thread allocates 1 to SIZE_MAX_QUANTA integers and frees them, again and again, all in one arena; counts the pairs.
 * pieces: an arena of ARENA_END integers is filled to about FILL_PERCENT with segments of 1 to SIZE_MAX_QUANTA, one in eight of which lives a hundred
 * times as long as the others, and then they come and go OPERATIONS times. Reports in how many pieces what is free in the segment list lies, how much
 * of it is in pieces too small for a slab, and how much the slabs of quantum caches have free. No locks of its own.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

#include <strata/arena.h>

#include "load.h"
#include "timing.h"

#define SIZE_MAX_QUANTA 8
/* The next power of two above three times the largest size (section 4.4.4). */
#define SLAB_QUANTA 32
#define ARENA_END (UINT64_C(1) << 20)
#define FILL_PERCENT 70
#define LONG_LIVED 8
#define LONG_FACTOR 100
#define PAIRS_AT_A_TIME 256
#define HELD_MAX 400000
#define SEED 9

struct segment {
    uint64_t start, dies; /* at which operation */
    unsigned size;
};

static struct strata_arena *arena;
static uint64_t duration_ns;
static pthread_barrier_t start_line;

static void must(enum strata_arena_status status) {
    if (status != STRATA_ARENA_OK) load_fail(strata_arena_status_text(status));
}

static void pairs(unsigned index, void *context, struct tally *tally) {
    (void)context;
    timing_pin(index);
    pthread_barrier_wait(&start_line);
    uint64_t end_ns = load_clock_ns() + duration_ns, start;
    do {
        for (unsigned i = 0; i < PAIRS_AT_A_TIME; i++) {
            unsigned size = 1 + i % SIZE_MAX_QUANTA;
            must(strata_arena_alloc(arena, size, 0, &start));
            tally->checksum += start;
            must(strata_arena_free(arena, start, size));
        }
        tally->operations += PAIRS_AT_A_TIME;
    } while (load_clock_ns() < end_ns);
}

static void run_pairs(unsigned threads) {
    if (pthread_barrier_init(&start_line, NULL, threads)) load_fail("pthread_barrier_init failed");
    timing_be_parallel();
    struct tally total = load_threads(threads, pairs, NULL);
    printf("{\"pairs_per_second\": %.0f, \"ns_per_pair\": %.3f}\n", (double)total.operations / ((double)duration_ns / 1e9),
           (double)duration_ns * threads / (double)total.operations);
}

/* ------------------------------------------------------------------ pieces */

/* A heap by the time of death. */
static struct segment *held;
static unsigned held_count;
static uint64_t held_quanta;

static void hold(struct segment segment) {
    if (held_count == HELD_MAX) load_fail("too many segments are held");
    unsigned at = held_count++;
    for (; at && held[(at - 1) / 2].dies > segment.dies; at = (at - 1) / 2) held[at] = held[(at - 1) / 2];
    held[at] = segment;
    held_quanta += segment.size;
}

static void drop_first(void) {
    struct segment first = held[0], last = held[--held_count];
    unsigned at = 0;
    for (unsigned child; (child = 2 * at + 1) < held_count; at = child) {
        if (child + 1 < held_count && held[child + 1].dies < held[child].dies) child++;
        if (last.dies <= held[child].dies) break;
        held[at] = held[child];
    }
    held[at] = last;
    held_quanta -= first.size;
    must(strata_arena_free(arena, first.start, first.size));
}

struct pieces {
    uint64_t count, quanta, small_quanta;
};

static int look(const struct strata_arena_segment *segment, void *context) {
    struct pieces *pieces = context;
    pieces->count++;
    pieces->quanta += segment->size;
    if (segment->size < SLAB_QUANTA) pieces->small_quanta += segment->size;
    return 1;
}

static void run_pieces(uint64_t operations) {
    struct rng rng = rng_seed(SEED);
    const uint64_t life = ARENA_END * FILL_PERCENT / 100 / (SIZE_MAX_QUANTA + 1) * 2; /* so many are held at a time, about */
    held = malloc(HELD_MAX * sizeof *held);
    if (!held) load_fail("no memory");
    for (uint64_t i = 0; i < operations; i++) {
        while (held_count && (held[0].dies <= i || held_quanta > ARENA_END * FILL_PERCENT / 100)) drop_first();
        struct segment segment = {.size = (unsigned)rng_between(&rng, 1, SIZE_MAX_QUANTA)};
        uint64_t factor = rng_below(&rng, LONG_LIVED) ? 1 : LONG_FACTOR;
        segment.dies = i + 1 + rng_below(&rng, 2 * life / (LONG_LIVED + LONG_FACTOR) * LONG_LIVED * factor);
        must(strata_arena_alloc(arena, segment.size, 0, &segment.start));
        hold(segment);
    }
    struct pieces pieces = {0};
    uint64_t allocated;
    must(strata_arena_walk(arena, STRATA_ARENA_FREE, look, &pieces));
    must(strata_arena_size(arena, STRATA_ARENA_ALLOCATED, &allocated));
    const char *fault = strata_arena_check(arena);
    if (fault) load_fail(fault);
    if (allocated + pieces.quanta != ARENA_END || allocated < held_quanta) load_fail("integers were lost");
    printf("{\"held\": %" PRIu64 ", \"free\": %" PRIu64 ", \"free_pieces\": %" PRIu64 ", \"free_in_small_pieces\": %" PRIu64
           ", \"free_in_slabs\": %" PRIu64 "}\n",
           held_quanta, pieces.quanta, pieces.count, pieces.small_quanta, allocated - held_quanta);
    while (held_count) drop_first();
    must(strata_arena_destroy(arena));
    free(held);
}

int main(int argc, char **argv) {
    int cached = argc > 2 && !strcmp(argv[1], "cached");
    int is_pairs = argc == 5 && !strcmp(argv[2], "pairs"), is_pieces = argc == 4 && !strcmp(argv[2], "pieces");
    uint64_t amount = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    duration_ns = is_pairs ? strtoull(argv[4], NULL, 10) * 1000000 : 1;
    if (!is_pairs == !is_pieces || !amount || amount > UINT32_MAX || !duration_ns || (!cached && strcmp(argv[1], "segments")))
        load_fail("usage: vmem_quantum segments|cached pairs THREADS MILLISECONDS, or segments|cached pieces OPERATIONS");
    must(strata_arena_create("quanta", 0, ARENA_END, 1, STRATA_ARENA_INSTANT_FIT, &arena));
    if (cached) must(strata_arena_set_quantum_caches(arena, SIZE_MAX_QUANTA));
    if (is_pairs)
        run_pairs((unsigned)amount);
    else
        run_pieces(amount);
    return fflush(stdout) ? 2 : 0;
}
