/*
 * api_last_object.c - any thread gets the last object of a cache, also when all of them lie in the arrays of other threads, which are asleep or at
 * work: with CPU caches, and with per-thread caches, whose owners can't be restarted. No object gets two owners. For ThreadSanitizer.
 *
 * api_last_object [ROUNDS]. Where the system has no membarrier, what other threads have stays theirs, and only the storm is run.
 */
#include <linux/membarrier.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <strata/cache.h>

#include "concurrency/concurrency.h"

enum { OBJECTS_MAX = 512, OBJECT_BYTES = 200, THREADS = 4, DEFAULT_ROUNDS = 2000 };

static struct strata_cache *cache;
static unsigned objects_there; /* in the one slab that there ever is */
static bool slab_given;
static pthread_barrier_t barrier;
static uint64_t rounds;

static void *allocate(void *context, size_t bytes, size_t align) {
    void *memory;
    (void)context;
    if (__atomic_exchange_n(&slab_given, true, __ATOMIC_ACQ_REL) || posix_memalign(&memory, align, bytes) != 0) return NULL;
    return memory;
}
static void release(void *context, void *memory, size_t bytes) {
    (void)context, (void)bytes;
    free(memory);
    __atomic_store_n(&slab_given, false, __ATOMIC_RELEASE);
}

/* Plain stores: two owners of one object are a data race that the sanitizer sees. */
static void own(uint64_t *object, uint64_t owner) {
    object[0] = owner;
    object[OBJECT_BYTES / sizeof *object - 1] = owner;
}
static void disown(uint64_t *object, uint64_t owner) {
    EXPECT(object[0] == owner && object[OBJECT_BYTES / sizeof *object - 1] == owner);
    own(object, 0);
    strata_cache_free(cache, object);
}

static unsigned take_all(uint64_t **objects, unsigned max, uint64_t owner) {
    unsigned count = 0;
    while (count < max && (objects[count] = strata_cache_alloc(cache, STRATA_CACHE_NO_SLEEP)) != NULL) own(objects[count++], owner);
    return count;
}
static void give_all(uint64_t **objects, unsigned count, uint64_t owner) {
    while (count-- != 0) disown(objects[count], owner);
}

/* ------------------------------------------------------------------ what sleepers have */

/* In turn with main: has all objects, gives all but a few back, the last operation being a free or an allocation, and sleeps. */
static void *hoard(void *argument) {
    uint64_t *objects[OBJECTS_MAX];
    const uint64_t self = (uintptr_t)argument;
    for (unsigned kept = 0; kept < 8; kept++) {
        pthread_barrier_wait(&barrier);
        unsigned count = take_all(objects, OBJECTS_MAX, self);
        EXPECT(count == objects_there);
        give_all(objects + kept, count - kept, self);
        if (kept % 2 == 1) { /* the last operation is a pop */
            objects[kept] = strata_cache_alloc(cache, STRATA_CACHE_NO_SLEEP);
            EXPECT(objects[kept] != NULL);
            own(objects[kept], self);
        }
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier); /* main has and gives back the others */
        give_all(objects, kept + kept % 2, self);
    }
    return NULL;
}

static void sleepers_are_reached(void) {
    pthread_t thread;
    uint64_t *objects[OBJECTS_MAX];
    EXPECT(pthread_barrier_init(&barrier, NULL, 2) == 0);
    EXPECT(pthread_create(&thread, NULL, hoard, (void *)(uintptr_t)1) == 0);
    for (unsigned kept = 0; kept < 8; kept++) {
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        unsigned count = take_all(objects, OBJECTS_MAX, 2);
        EXPECT(count == objects_there - kept - kept % 2);
        give_all(objects, count, 2);
        pthread_barrier_wait(&barrier);
    }
    EXPECT(pthread_join(thread, NULL) == 0);
    EXPECT(pthread_barrier_destroy(&barrier) == 0);
}

/* ------------------------------------------------------------------ who is at work */

/* Wants nearly all there are, so that it has to take them from others, which do the same; what it lacks it does without. */
static void *storm(void *argument) {
    uint64_t *objects[OBJECTS_MAX], random = random_seed((uintptr_t)argument);
    const uint64_t self = (uintptr_t)argument;
    for (uint64_t i = 0; i < rounds; i++) {
        give_all(objects, take_all(objects, 1 + (unsigned)(next_random(&random) % objects_there), self), self);
        for (unsigned k = 0; k < 50; k++) give_all(objects, take_all(objects, 1 + k % 3, self), self);
    }
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier); /* main has them all meanwhile */
    return NULL;
}

static void nobody_gets_what_another_has(bool all_reached) {
    pthread_t threads[THREADS];
    uint64_t *objects[OBJECTS_MAX];
    EXPECT(pthread_barrier_init(&barrier, NULL, THREADS + 1) == 0);
    for (uintptr_t i = 0; i < THREADS; i++) EXPECT(pthread_create(&threads[i], NULL, storm, (void *)(i + 10)) == 0);
    pthread_barrier_wait(&barrier);
    unsigned count = take_all(objects, OBJECTS_MAX, 3);
    EXPECT(!all_reached || count == objects_there);
    give_all(objects, count, 3);
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < THREADS; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
    EXPECT(pthread_barrier_destroy(&barrier) == 0);
}

static bool has_fence(void) {
    long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    return commands > 0 && (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0;
}

static int run(const char *mode) {
    const struct strata_cache_source source = {.allocate = allocate, .release = release};
    const struct strata_cache_config config = {.size = OBJECT_BYTES, .source = &source};
    uint64_t *objects[OBJECTS_MAX];
    EXPECT(setenv("STRATA_CONF", mode, 1) == 0); /* read by the first call */
    EXPECT(strata_cache_create("last", &config, &cache) == STRATA_CACHE_OK);
    objects_there = take_all(objects, OBJECTS_MAX, 4);
    EXPECT(objects_there > 8 && objects_there < OBJECTS_MAX);
    give_all(objects, objects_there, 4);
    if (has_fence()) sleepers_are_reached();
    nobody_gets_what_another_has(has_fence());
    EXPECT(strata_cache_destroy(cache) == STRATA_CACHE_OK && !slab_given);
    expect_sound();
    printf("%s: the last of %u objects was had from every thread\n", mode, objects_there);
    return 0;
}

int main(int argc, char **argv) {
    rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : DEFAULT_ROUNDS;
    pid_t child = fork(); /* strata has not begun yet, so each process reads its own options */
    EXPECT(child >= 0);
    if (child == 0) return run("rseq:off");
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return run("rseq:auto");
}
