/*
 * api_caches.c - object caches under threads: objects change hands, caches come and go, constructors refuse, and all the while one thread reaps,
 * looks and verifies. Through strata_* only, so that the sanitizers see strata's own code.
 *
 * Every object says whether it is constructed and who holds it; at the end each construction has been undone once. api_caches [ROUNDS]
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <strata/cache.h>
#include <strata/malloc.h>

#include "concurrency/concurrency.h"

enum { THREADS = 4, GENERATIONS = 3, CACHES = 40, BOXES = 128, DEFAULT_ROUNDS = 20000 };

#define MADE UINT64_C(0x6d6164652062792d)

struct thing {
    uint64_t made;
    pthread_mutex_t mutex; /* what is worth constructing */
    void *buffer;          /* of malloc: constructors allocate, destructors free */
    uint64_t held;
};

/* What was done to the objects of one cache. Atomic. */
struct tally {
    uint64_t made, unmade, calls, refuse_each;
};

static struct strata_cache *caches[CACHES];
static struct tally tallies[CACHES];
static struct thing *boxes[CACHES][BOXES]; /* exchanged atomically: whoever takes a thing out owns it */
static unsigned rounds = DEFAULT_ROUNDS;
static uint32_t stop;
static int null_fd;

static int make(void *object, void *argument) {
    struct tally *tally = argument;
    struct thing *thing = object;
    uint64_t call = __atomic_add_fetch(&tally->calls, 1, __ATOMIC_RELAXED);
    if (tally->refuse_each != 0 && call % tally->refuse_each == 0) return 1;
    thing->buffer = strata_malloc(100);
    if (thing->buffer == NULL) return 1;
    EXPECT(pthread_mutex_init(&thing->mutex, NULL) == 0);
    thing->held = 0;
    thing->made = MADE;
    __atomic_add_fetch(&tally->made, 1, __ATOMIC_RELAXED);
    return 0;
}

static void unmake(void *object, void *argument) {
    struct tally *tally = argument;
    struct thing *thing = object;
    EXPECT(thing->made == MADE && thing->held == 0);
    EXPECT(pthread_mutex_destroy(&thing->mutex) == 0);
    strata_free(thing->buffer);
    thing->made = 0;
    __atomic_add_fetch(&tally->unmade, 1, __ATOMIC_RELAXED);
}

static struct thing *hold(struct thing *thing) {
    EXPECT(thing->made == MADE);
    EXPECT(pthread_mutex_lock(&thing->mutex) == 0);
    EXPECT(thing->held == 0);
    thing->held = 1;
    memset(thing->buffer, 0x77, 100);
    EXPECT(pthread_mutex_unlock(&thing->mutex) == 0);
    return thing;
}

static void drop(struct strata_cache *cache, struct thing *thing) {
    EXPECT(pthread_mutex_lock(&thing->mutex) == 0);
    EXPECT(thing->held == 1);
    thing->held = 0;
    EXPECT(pthread_mutex_unlock(&thing->mutex) == 0);
    strata_cache_free(cache, thing);
}

static struct strata_cache *create(const char *name, size_t more, struct tally *tally, bool no_magazines) {
    const struct strata_cache_config config = {.size = sizeof(struct thing) + more,
                                               .align = _Alignof(struct thing),
                                               .constructor = make,
                                               .destructor = unmake,
                                               .argument = tally,
                                               .no_magazines = no_magazines};
    struct strata_cache *cache;
    EXPECT(strata_cache_create(name, &config, &cache) == STRATA_CACHE_OK);
    return cache;
}

/* A cache of this thread's own, from the beginning to the end. */
static void live_a_life(uint64_t *state) {
    struct tally tally = {0};
    struct strata_cache *cache = create("own", next_random(state) % 500, &tally, next_random(state) % 4 == 0);
    void *batch[70];
    size_t count = next_random(state) % 70, got = strata_cache_alloc_batch(cache, batch, count);
    EXPECT(got == count);
    for (size_t i = 0; i < got; i++) EXPECT(hold(batch[i])->held == 1);
    for (size_t i = 0; i < got; i++) ((struct thing *)batch[i])->held = 0;
    strata_cache_free_batch(cache, batch, got);
    EXPECT(strata_cache_destroy(cache) == STRATA_CACHE_OK);
    EXPECT(tally.made == tally.unmade);
}

static void *exchange(void *argument) {
    uint64_t state = (uintptr_t)argument * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (unsigned i = 0; i < rounds; i++) {
        unsigned which = (unsigned)(next_random(&state) % CACHES);
        struct thing *mine = strata_cache_alloc(caches[which], 0);
        if (mine == NULL) { /* refused */
            EXPECT(tallies[which].refuse_each != 0);
            continue;
        }
        hold(mine);
        struct thing *other = __atomic_exchange_n(&boxes[which][next_random(&state) % BOXES], mine, __ATOMIC_ACQ_REL);
        if (other != NULL) drop(caches[which], other);
        if (next_random(&state) % 512 == 0) live_a_life(&state);
    }
    return NULL;
}

static bool count_made(void *object, void *argument) {
    (void)object; /* perhaps on its way: not to be read */
    ++*(uint64_t *)argument;
    return true;
}

static void *observe(void *unused) {
    for (unsigned turn = 0; __atomic_load_n(&stop, __ATOMIC_ACQUIRE) == 0; turn++) {
        struct strata_cache_stats stats;
        uint64_t seen = 0;
        strata_cache_reap(turn % 4 == 0 ? NULL : caches[turn % CACHES]);
        strata_cache_stats_get(caches[turn % CACHES], &stats);
        EXPECT(stats.total >= stats.slabs && strcmp(stats.name, "shared") == 0);
        EXPECT(strata_cache_walk(caches[turn % CACHES], count_made, &seen));
        EXPECT(strata_stats_json(null_fd) == 0);
        usleep(5000);
    }
    return unused;
}

/* A child has the objects, too, and may go on with them. */
static void fork_once(void) {
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        for (unsigned which = 0; which < CACHES; which++)
            for (unsigned i = 0; i < 200; i++) {
                struct thing *thing = strata_cache_alloc(caches[which], 0);
                if (thing != NULL && thing->made == MADE) strata_cache_free(caches[which], thing);
            }
        _exit(0);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv) {
    if (argc > 1) rounds = (unsigned)strtoul(argv[1], NULL, 10);
    EXPECT(rounds > 0);
    null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    EXPECT(null_fd >= 0);
    for (unsigned i = 0; i < CACHES; i++) {
        tallies[i].refuse_each = i % 8 == 7 ? 5 : 0;
        caches[i] = create("shared", i * 97 % 2000, &tallies[i], i % 10 == 3);
    }
    pthread_t observer, threads[THREADS];
    EXPECT(pthread_create(&observer, NULL, observe, NULL) == 0);
    for (unsigned generation = 0; generation < GENERATIONS; generation++) {
        for (unsigned i = 0; i < THREADS; i++)
            EXPECT(pthread_create(&threads[i], NULL, exchange, (void *)(uintptr_t)(generation * THREADS + i + 1)) == 0);
        fork_once();
        for (unsigned i = 0; i < THREADS; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    EXPECT(pthread_join(observer, NULL) == 0);
    for (unsigned which = 0; which < CACHES; which++) {
        uint64_t in_boxes = 0;
        struct strata_cache_stats stats;
        for (unsigned i = 0; i < BOXES; i++) in_boxes += boxes[which][i] != NULL;
        strata_cache_stats_get(caches[which], &stats);
        EXPECT(stats.in_use == in_boxes);
        for (unsigned i = 0; i < BOXES; i++)
            if (boxes[which][i] != NULL) drop(caches[which], boxes[which][i]);
        EXPECT(strata_cache_destroy(caches[which]) == STRATA_CACHE_OK);
        EXPECT(tallies[which].made == tallies[which].unmade);
    }
    const char *problem = strata_check();
    EXPECT(problem == NULL);
    printf("api_caches: %u rounds of %d threads, %d caches\n", rounds, THREADS * GENERATIONS, CACHES);
    return 0;
}
