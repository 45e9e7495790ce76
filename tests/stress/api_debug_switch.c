/*
 * api_debug_switch.c - features go on and off, one layout after the other, while threads allocate, hand over and free, from malloc, by its forms that
 * say the size, and from object caches; one thread walks and verifies, and the process forks. Through strata_* only, so that the sanitizers see
 * strata's own code.
 *
 * Every buffer has its contents from end to end, every object its construction, whatever it was when it was allocated. At the end nothing debugged is
 * left. api_debug_switch [ROUNDS]
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <strata/cache.h>
#include <strata/debug.h>
#include <strata/kmem.h>
#include <strata/malloc.h>

#include "concurrency/concurrency.h"

enum { THREADS = 3, BOXES = 256, DEFAULT_ROUNDS = 20000, FORKS = 4 };

static unsigned rounds = DEFAULT_ROUNDS;
static unsigned char *boxes[BOXES]; /* exchanged atomically: bytes[0] says how many follow with the same value */
static uint64_t *things[BOXES];
static size_t *sized[BOXES]; /* the first word says how many bytes there are */
static struct strata_cache *cache;
static uint64_t made, unmade;
static uint32_t stop, finished;
static uint64_t seen; /* by the thread that looks; on a busy machine it comes late, and the others go on until it has */

static int make(void *object, void *argument) {
    (void)argument;
    *(uint64_t *)object = 77;
    __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED);
    return 0;
}
static void unmake(void *object, void *argument) {
    (void)argument;
    EXPECT(*(uint64_t *)object == 77);
    *(uint64_t *)object = 0;
    __atomic_fetch_add(&unmade, 1, __ATOMIC_RELAXED);
}

static void drop(unsigned char *bytes) {
    if (bytes == NULL) return;
    for (unsigned i = 1; i < bytes[0]; i++) EXPECT(bytes[i] == bytes[0]);
    EXPECT(strata_malloc_usable_size(bytes) >= bytes[0]);
    strata_free(bytes);
}

static void drop_sized(size_t *block) {
    if (block == NULL) return;
    size_t bytes = block[0];
    EXPECT(((unsigned char *)block)[bytes - 1] == (unsigned char)bytes || bytes == sizeof *block);
    if (bytes % 3 == 0)
        strata_kmem_cookie_free(strata_kmem_cookie_of(bytes), block);
    else
        strata_kmem_free(block, bytes);
}

static size_t *make_sized(size_t bytes) {
    size_t *block = bytes % 5 == 0 ? strata_kmem_zalloc(bytes, STRATA_KMEM_NO_SLEEP) : strata_kmem_alloc(bytes, STRATA_KMEM_NO_SLEEP);
    EXPECT(block != NULL);
    ((unsigned char *)block)[bytes - 1] = (unsigned char)bytes;
    block[0] = bytes;
    return block;
}

static void drop_all(unsigned box) {
    drop(__atomic_exchange_n(&boxes[box], NULL, __ATOMIC_ACQ_REL));
    drop_sized(__atomic_exchange_n(&sized[box], NULL, __ATOMIC_ACQ_REL));
    uint64_t *thing = __atomic_exchange_n(&things[box], NULL, __ATOMIC_ACQ_REL);
    if (thing != NULL) strata_cache_free(cache, thing);
}

static void *work(void *argument) {
    uint64_t random = (uintptr_t)argument;
    for (unsigned i = 0; i < rounds || __atomic_load_n(&seen, __ATOMIC_RELAXED) == 0; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        unsigned box = (unsigned)(random >> 40) % BOXES;
        size_t count = 1 + (random >> 33) % 250;
        unsigned char *bytes = strata_malloc(count);
        EXPECT(bytes != NULL);
        memset(bytes, (int)count, count);
        if (i % 5 == 0) {
            bytes = strata_realloc(bytes, count + 40);
            EXPECT(bytes != NULL);
        }
        drop(__atomic_exchange_n(&boxes[box], bytes, __ATOMIC_ACQ_REL));
        drop_sized(__atomic_exchange_n(&sized[box], make_sized(sizeof(size_t) + (random >> 45) % 700), __ATOMIC_ACQ_REL));
        uint64_t *thing = strata_cache_alloc(cache, 0);
        EXPECT(thing != NULL && *thing == 77);
        thing = __atomic_exchange_n(&things[box], thing, __ATOMIC_ACQ_REL);
        if (thing != NULL) strata_cache_free(cache, thing);
    }
    __atomic_fetch_add(&finished, 1, __ATOMIC_RELEASE);
    return NULL;
}

static bool count_it(const struct strata_debug_buffer *buffer, void *argument) {
    (void)argument;
    EXPECT(buffer->in_use);
    __atomic_fetch_add(&seen, 1, __ATOMIC_RELAXED);
    return true;
}

static void *look(void *argument) {
    while (__atomic_load_n(&stop, __ATOMIC_RELAXED) == 0) {
        EXPECT(strata_debug_walk(NULL, false, count_it, NULL));
        EXPECT(strata_debug_verify(NULL) == 0);
        strata_cache_reap(NULL);
    }
    return argument;
}

static void fork_once(void) {
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        for (unsigned i = 0; i < 200; i++) strata_free(strata_malloc(i));
        EXPECT(strata_debug_set("*", "default") == STRATA_DEBUG_OK);
        for (unsigned i = 0; i < 200; i++) strata_free(strata_malloc(i));
        EXPECT(strata_debug_set("*", "off") == STRATA_DEBUG_OK);
        _exit(0);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv) {
    static const char *const features[] = {"guards", "audit=3+frames=4", "off", "default", "firewall", "off", "default+verify=500", "contents=8"};
    pthread_t threads[THREADS], looker;
    if (argc > 1) rounds = (unsigned)atoi(argv[1]);
    const struct strata_cache_config config = {.size = 72, .constructor = make, .destructor = unmake};
    EXPECT(strata_cache_create("things", &config, &cache) == STRATA_CACHE_OK);
    for (uintptr_t i = 0; i < THREADS; i++) EXPECT(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    EXPECT(pthread_create(&looker, NULL, look, NULL) == 0);
    for (unsigned i = 0; i < 8 || __atomic_load_n(&finished, __ATOMIC_ACQUIRE) < THREADS; i++) {
        EXPECT(strata_debug_set(i % 3 == 0 ? "things" : i % 3 == 1 ? "malloc-*" : "*", features[i % 8]) == STRATA_DEBUG_OK);
        if (i % 16 == 0 && i / 16 < FORKS) fork_once();
        for (unsigned box = 0; i % 24 == 5 && box < BOXES; box++) drop_all(box); /* all is off: the last debugged buffer goes, soon or now */
        usleep(200);                                                             /* to let them work with it */
    }
    for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(looker, NULL);
    EXPECT(strata_debug_set("*", "off") == STRATA_DEBUG_OK);
    for (unsigned i = 0; i < BOXES; i++) drop_all(i);
    EXPECT(strata_check() == NULL);
    struct strata_debug_stats stats;
    strata_debug_stats_get(&stats);
    EXPECT(stats.in_use == 0 && stats.caches == 0 && stats.errors == 0 && stats.allocs == stats.frees && stats.allocs != 0);
    EXPECT(strata_cache_destroy(cache) == STRATA_CACHE_OK);
    EXPECT(made == unmade);
    printf("%llu debugged, %llu seen\n", (unsigned long long)stats.allocs, (unsigned long long)seen);
    return 0;
}
