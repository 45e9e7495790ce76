/*
 * best_case.c - experiment: allocate a block and free it, again and again, for a given time in a given number of threads; counts the pairs.
 *
 *     best_case strata|kmem|cookie|mk|first-fit THREADS MILLISECONDS BYTES
 *
 * `strata` is malloc and free, `kmem` strata_kmem_alloc and strata_kmem_free, and `cookie` the same by a cookie for a size that is known when this is
 * compiled: BYTES must be COOKIE_BYTES. The others are rivals (kmem_rivals.h).
 *
 * The best case of section 4.2 of the kmem paper, and the latency test of section 3.8 of the magazines paper. Each thread stays on a CPU of its own
 * as long as there are enough, and writes to each block and reads it again, so that the block is where it will be used. No locks of its own.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

#include <strata/kmem.h>

#include "kmem_rivals.h"
#include "load.h"
#include "timing.h"

/* So seldom does a thread look at the clock. */
#define PAIRS_AT_A_TIME 256
#define COOKIE_BYTES 64

static pthread_barrier_t start_line;
static uint64_t duration_ns;
static size_t block_bytes;

static void check_block(void *memory, uint64_t tag, struct tally *tally) {
    if (!memory) load_fail("no memory");
    block_write(memory, block_bytes, tag);
    tally->checksum += block_read(memory, block_bytes, tag);
}

/* A loop of its own for each allocator, so that all are called as a program calls them. */
#define PAIRS(name, allocate, release)                                     \
    static void name(unsigned index, void *context, struct tally *tally) { \
        (void)context;                                                     \
        timing_pin(index);                                                 \
        pthread_barrier_wait(&start_line);                                 \
        uint64_t end_ns = load_clock_ns() + duration_ns;                   \
        do {                                                               \
            for (unsigned i = 0; i < PAIRS_AT_A_TIME; i++) {               \
                void *memory = allocate;                                   \
                check_block(memory, (uint64_t)index << 32 | i, tally);     \
                release;                                                   \
            }                                                              \
            tally->operations += PAIRS_AT_A_TIME;                          \
        } while (load_clock_ns() < end_ns);                                \
    }

PAIRS(pairs_of_strata, malloc(block_bytes), free(memory))
PAIRS(pairs_of_kmem, strata_kmem_alloc(block_bytes, STRATA_KMEM_NO_SLEEP), strata_kmem_free(memory, block_bytes))
PAIRS(pairs_of_cookie, strata_kmem_cookie_alloc(STRATA_KMEM_COOKIE(COOKIE_BYTES), STRATA_KMEM_NO_SLEEP),
      strata_kmem_cookie_free(STRATA_KMEM_COOKIE(COOKIE_BYTES), memory))
PAIRS(pairs_of_mk, mk_malloc(block_bytes), mk_free(memory))
PAIRS(pairs_of_first_fit, first_fit_malloc(block_bytes), first_fit_free(memory))

static const struct allocator {
    const char *name;
    void (*pairs)(unsigned index, void *context, struct tally *tally);
} allocators[] = {
    {"strata", pairs_of_strata}, {"kmem", pairs_of_kmem}, {"cookie", pairs_of_cookie}, {"mk", pairs_of_mk}, {"first-fit", pairs_of_first_fit}};

int main(int argc, char **argv) {
    if (argc != 5) load_fail("usage: best_case strata|kmem|cookie|mk|first-fit THREADS MILLISECONDS BYTES");
    const struct allocator *allocator = NULL;
    for (size_t i = 0; i < sizeof allocators / sizeof allocators[0]; i++)
        if (!strcmp(argv[1], allocators[i].name)) allocator = &allocators[i];
    unsigned threads = (unsigned)strtoul(argv[2], NULL, 10);
    duration_ns = strtoull(argv[3], NULL, 10) * 1000000;
    block_bytes = strtoull(argv[4], NULL, 10);
    if (!allocator || !threads || !duration_ns || block_bytes < BLOCK_MIN_BYTES || block_bytes > RIVAL_BLOCK_BYTES_MAX)
        load_fail("an argument is not allowed");
    if (allocator->pairs == pairs_of_cookie && block_bytes != COOKIE_BYTES) load_fail("the cookie is one for another size");
    if (pthread_barrier_init(&start_line, NULL, threads)) load_fail("pthread_barrier_init failed");
    timing_be_parallel();

    uint64_t start_ns = load_clock_ns();
    struct tally total = load_threads(threads, allocator->pairs, NULL);
    double seconds = (double)(load_clock_ns() - start_ns) / 1e9;
    printf("{\"pairs\": %" PRIu64 ", \"seconds\": %.6f, \"pairs_per_second\": %.0f, \"ns_per_pair\": %.3f}\n", total.operations, seconds,
           (double)total.operations / ((double)duration_ns / 1e9), (double)duration_ns * threads / (double)total.operations);
    return fflush(stdout) ? 2 : 0;
}
