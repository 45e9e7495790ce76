/*
 * api_exchange.c - threads that hand blocks of every size to each other, through strata_* only, so that the sanitizers see strata's
 * own code and the C library keeps its malloc.
 *
 * Each block carries a pattern that whoever frees it checks. Threads end and others begin; meanwhile one more thread hands memory
 * back, takes statistics and verifies the heap. api_exchange [ROUNDS] makes so many rounds a thread.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <strata/kmem.h>
#include <strata/malloc.h>
#include <strata/strata.h>

#include "concurrency/concurrency.h"

enum { THREADS = 4, GENERATIONS = 3, BOXES = 256, DEFAULT_ROUNDS = 20000 };

/* The start of each block; the pattern fills the rest. */
struct parcel {
    size_t bytes;
    uint64_t seed;
    bool sized; /* may be freed by its size: kmem's way */
};

static struct parcel *boxes[BOXES]; /* exchanged atomically: whoever takes a parcel out owns it */
static unsigned rounds = DEFAULT_ROUNDS;
static uint32_t stop;
static int null_fd;

/* Mostly small, sometimes of several pages, rarely a block of its own or more than a superpage. */
static size_t random_bytes(uint64_t *state) {
    uint64_t r = next_random(state);
    unsigned kind = r & 1023;
    r >>= 10;
    if (kind < 2) return sizeof(struct parcel) + r % (5u << 20);
    if (kind < 20) return sizeof(struct parcel) + r % (200u << 10);
    if (kind < 200) return sizeof(struct parcel) + r % 8192;
    return sizeof(struct parcel) + r % 300;
}

/* Only the ends of large blocks, or the sanitizers would spend their time here. */
static size_t pattern_bytes(const struct parcel *parcel) {
    size_t bytes = parcel->bytes - sizeof *parcel;
    return bytes < 512 ? bytes : 512;
}

static void fill(struct parcel *parcel, size_t bytes, uint64_t seed) {
    parcel->bytes = bytes;
    parcel->seed = seed;
    char *first = (char *)(parcel + 1), *last = (char *)parcel + bytes;
    memset(first, (int)(seed & 0xff), pattern_bytes(parcel));
    memset(last - pattern_bytes(parcel), (int)(seed & 0xff), pattern_bytes(parcel));
}

static void check(const struct parcel *parcel) {
    const unsigned char *first = (const unsigned char *)(parcel + 1), *last = (const unsigned char *)parcel + parcel->bytes;
    for (size_t i = 0; i < pattern_bytes(parcel); i++) EXPECT(first[i] == (parcel->seed & 0xff) && last[-1 - (ptrdiff_t)i] == (parcel->seed & 0xff));
    EXPECT(strata_malloc_usable_size((void *)(uintptr_t)parcel) >= parcel->bytes);
}

static struct parcel *make(uint64_t *state) {
    size_t bytes = random_bytes(state);
    unsigned way = next_random(state) % 8;
    struct parcel *parcel;
    if (way == 0) {
        parcel = strata_calloc(1, bytes);
        EXPECT(parcel != NULL);
        const char *text = (const char *)parcel;
        for (size_t i = 0; i < bytes; i += bytes / 97 + 1) EXPECT(text[i] == 0);
    } else if (way == 1) {
        size_t align = (size_t)16 << next_random(state) % 12;
        parcel = strata_aligned_alloc(align, bytes);
        EXPECT((uintptr_t)parcel % align == 0);
    } else if (way == 2) {
        parcel = strata_kmem_zalloc(bytes, STRATA_KMEM_SLEEP);
    } else if (way == 3 && bytes <= STRATA_KMEM_COOKIE_MAX) {
        parcel = strata_kmem_cookie_alloc(strata_kmem_cookie_of(bytes), STRATA_KMEM_NO_SLEEP);
    } else {
        parcel = strata_malloc(bytes);
    }
    EXPECT(parcel != NULL && (uintptr_t)parcel % 16 == 0);
    parcel->sized = way != 1;
    fill(parcel, bytes, next_random(state));
    return parcel;
}

static struct parcel *resize(struct parcel *parcel, uint64_t *state) {
    size_t bytes = random_bytes(state);
    unsigned char mark = parcel->bytes > sizeof *parcel ? *(unsigned char *)(parcel + 1) : 0;
    bool marked = parcel->bytes > sizeof *parcel && bytes > sizeof *parcel;
    uint64_t seed = parcel->seed;
    struct parcel *moved = strata_realloc(parcel, bytes);
    EXPECT(moved != NULL && moved->seed == seed);
    if (marked) EXPECT(*(unsigned char *)(moved + 1) == mark);
    moved->sized = false; /* it may have stayed in another class */
    fill(moved, bytes, seed);
    return moved;
}

static void give_back(struct parcel *parcel, uint64_t *state) {
    size_t bytes = parcel->bytes;
    unsigned way = next_random(state) % 4;
    if (!parcel->sized || way == 0)
        strata_free(parcel);
    else if (way == 1 && bytes <= STRATA_KMEM_COOKIE_MAX)
        strata_kmem_cookie_free(strata_kmem_cookie_of(bytes), parcel);
    else
        strata_kmem_free(parcel, bytes);
}

static void *exchange(void *argument) {
    uint64_t state = (uintptr_t)argument * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (unsigned i = 0; i < rounds; i++) {
        struct parcel *mine = make(&state);
        if (next_random(&state) % 16 == 0) mine = resize(mine, &state);
        struct parcel *other = __atomic_exchange_n(&boxes[next_random(&state) % BOXES], mine, __ATOMIC_ACQ_REL);
        if (other == NULL) continue;
        check(other);
        if (next_random(&state) % 2 == 0)
            give_back(other, &state);
        else
            strata_free(resize(other, &state));
    }
    return NULL;
}

static void *observe(void *unused) {
    while (__atomic_load_n(&stop, __ATOMIC_ACQUIRE) == 0) {
        strata_release(1 << 20);
        EXPECT(strata_stats_json(null_fd) == 0);
        EXPECT(strata_stats_table(null_fd) == 0);
        const char *problem = strata_check();
        if (problem != NULL) fprintf(stderr, "strata_check: %s\n", problem);
        EXPECT(problem == NULL);
        usleep(20000);
    }
    return unused;
}

int main(int argc, char **argv) {
    if (argc > 1) rounds = (unsigned)strtoul(argv[1], NULL, 10);
    EXPECT(rounds > 0);
    null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    EXPECT(null_fd >= 0);
    pthread_t observer, threads[THREADS];
    EXPECT(pthread_create(&observer, NULL, observe, NULL) == 0);
    for (unsigned generation = 0; generation < GENERATIONS; generation++) {
        for (unsigned i = 0; i < THREADS; i++)
            EXPECT(pthread_create(&threads[i], NULL, exchange, (void *)(uintptr_t)(generation * THREADS + i + 1)) == 0);
        for (unsigned i = 0; i < THREADS; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    EXPECT(pthread_join(observer, NULL) == 0);
    unsigned left = 0;
    for (unsigned i = 0; i < BOXES; i++) {
        if (boxes[i] == NULL) continue;
        check(boxes[i]);
        strata_free(boxes[i]);
        left++;
    }
    EXPECT(left > 0);
    EXPECT(strata_check() == NULL);
    printf("exchanged by %d threads, %u parcels left over\n", THREADS * GENERATIONS, left);
    return 0;
}
