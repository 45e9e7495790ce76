/*
 * api_cache_moves.c - object caches whose objects are moved and asked back while threads use them: nodes behind handles, each with a lock of its own,
 * change under many threads; one thread consolidates and reaps all the time, another fills and fragments, and children of fork go on.
 *
 * At the end every node has the contents that its last writer gave it, and constructions and destructions balance. Through strata_* only, so that the
 * sanitizers see strata's own code. api_cache_moves [ROUNDS]
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
#include <strata/malloc.h>
#include <strata/strata.h>

#include "concurrency/concurrency.h"

enum { THREADS = 4, HANDLES = 4096, WORDS = 14, DEFAULT_ROUNDS = 200000 };

struct node {
    uint32_t handle; /* its number + 1 while a handle holds it; 0: cached, or not linked yet. Atomic, as the move function reads it of any object */
    uint32_t unused;
    uint64_t words[WORDS];
};

/* Whoever has locked a handle owns its node. */
static struct handle {
    pthread_mutex_t mutex;
    struct node *node;
    uint64_t seed; /* of the contents */
} handles[HANDLES];

static struct strata_cache *cache;
static uint64_t made, unmade, reclaims;
static uint32_t stop, moving;
static unsigned rounds = DEFAULT_ROUNDS;

static int make(void *object, void *argument) {
    struct node *node = object;
    (void)argument;
    __atomic_store_n(&node->handle, 0, __ATOMIC_RELAXED);
    __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED);
    return 0;
}
static void unmake(void *object, void *argument) {
    struct node *node = object;
    (void)argument;
    EXPECT(__atomic_load_n(&node->handle, __ATOMIC_RELAXED) == 0);
    __atomic_add_fetch(&unmade, 1, __ATOMIC_RELAXED);
}

static void fill(struct handle *handle, uint64_t seed) {
    handle->seed = seed;
    for (unsigned i = 0; i < WORDS; i++) handle->node->words[i] = seed * (i + 1);
}
static void check(const struct handle *handle) {
    EXPECT(__atomic_load_n(&handle->node->handle, __ATOMIC_RELAXED) == (uint32_t)(handle - handles) + 1);
    for (unsigned i = 0; i < WORDS; i++) EXPECT(handle->node->words[i] == handle->seed * (i + 1));
}

static void drop(struct handle *handle) {
    check(handle);
    __atomic_store_n(&handle->node->handle, 0, __ATOMIC_RELAXED);
    strata_cache_free(cache, handle->node);
    handle->node = NULL;
}

/* old may be anything: its handle says which lock to take, and under that lock whether it is held by it. */
static enum strata_cache_move move(void *old_object, void *new_object, size_t size, void *argument) {
    struct node *old = old_object, *fresh = new_object;
    (void)argument;
    EXPECT(size == sizeof(struct node) && __atomic_add_fetch(&moving, 1, __ATOMIC_RELAXED) == 1);
    enum strata_cache_move answer = STRATA_CACHE_MOVE_DONT_KNOW;
    uint32_t number = __atomic_load_n(&old->handle, __ATOMIC_RELAXED);
    if (number != 0 && number <= HANDLES) {
        struct handle *handle = &handles[number - 1];
        if (pthread_mutex_trylock(&handle->mutex) != 0) {
            answer = STRATA_CACHE_MOVE_LATER;
        } else {
            if (handle->node == old && number % 97 == 0) {
                answer = STRATA_CACHE_MOVE_NO;
            } else if (handle->node == old && number % 89 == 0) {
                __atomic_store_n(&old->handle, 0, __ATOMIC_RELAXED);
                handle->node = NULL;
                answer = STRATA_CACHE_MOVE_DONT_NEED;
            } else if (handle->node == old) {
                memcpy(fresh->words, old->words, sizeof fresh->words);
                __atomic_store_n(&fresh->handle, number, __ATOMIC_RELAXED);
                __atomic_store_n(&old->handle, 0, __ATOMIC_RELAXED);
                handle->node = fresh;
                answer = STRATA_CACHE_MOVE_YES;
            }
            EXPECT(pthread_mutex_unlock(&handle->mutex) == 0);
        }
    }
    EXPECT(__atomic_sub_fetch(&moving, 1, __ATOMIC_RELAXED) == 0);
    return answer;
}

static void reclaim(void *argument, size_t wanted_bytes, enum strata_cache_need need) {
    static unsigned from;
    (void)argument, (void)need;
    __atomic_add_fetch(&reclaims, 1, __ATOMIC_RELAXED);
    for (size_t given = 0, tried = 0; given < wanted_bytes && tried < 64; tried++) {
        struct handle *handle = &handles[from++ % HANDLES];
        if (pthread_mutex_trylock(&handle->mutex) != 0) continue;
        if (handle->node != NULL) {
            drop(handle);
            given += sizeof(struct node);
        }
        EXPECT(pthread_mutex_unlock(&handle->mutex) == 0);
    }
}

static void *use(void *argument) {
    uint64_t state = (uintptr_t)argument * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (unsigned i = 0; i < rounds; i++) {
        struct handle *handle = &handles[next_random(&state) % HANDLES];
        bool many = i / 4096 % 2 == 0; /* fill, then thin out: nine of ten go */
        EXPECT(pthread_mutex_lock(&handle->mutex) == 0);
        if (handle->node != NULL) {
            check(handle);
            if (many || next_random(&state) % 10 == 0)
                fill(handle, next_random(&state));
            else
                drop(handle);
        } else if (many) {
            handle->node = strata_cache_alloc(cache, STRATA_CACHE_NO_RECLAIM); /* a handle is locked, which reclaim may want */
            EXPECT(handle->node != NULL);
            EXPECT(handle->node->handle == 0);
            fill(handle, next_random(&state));
            __atomic_store_n(&handle->node->handle, (uint32_t)(handle - handles) + 1, __ATOMIC_RELAXED);
        }
        EXPECT(pthread_mutex_unlock(&handle->mutex) == 0);
    }
    return NULL;
}

static void *consolidate(void *unused) {
    for (unsigned turn = 0; __atomic_load_n(&stop, __ATOMIC_ACQUIRE) == 0; turn++) {
        struct strata_cache_stats stats;
        (void)strata_cache_consolidate(cache);
        if (turn % 16 == 5) strata_cache_reap(NULL);
        strata_cache_stats_get(cache, &stats);
        EXPECT(stats.moves == stats.moves_yes + stats.moves_no + stats.moves_later + stats.moves_dont_need + stats.moves_dont_know);
        usleep(500);
    }
    return unused;
}

/* A child has the nodes whose handles nobody had locked, and consolidates, too. */
static void fork_once(void) {
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        __atomic_store_n(&moving, 0, __ATOMIC_RELAXED); /* who was in it is gone */
        (void)strata_cache_consolidate(cache);
        for (unsigned i = 0; i < HANDLES; i++) {
            if (pthread_mutex_trylock(&handles[i].mutex) != 0) continue;
            if (handles[i].node != NULL) drop(&handles[i]);
        }
        (void)strata_cache_consolidate(cache);
        _exit(strata_check() != NULL);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv) {
    if (argc > 1) rounds = (unsigned)strtoul(argv[1], NULL, 10);
    EXPECT(rounds > 0);
    for (unsigned i = 0; i < HANDLES; i++) EXPECT(pthread_mutex_init(&handles[i].mutex, NULL) == 0);
    const struct strata_cache_config config = {.size = sizeof(struct node), .constructor = make, .destructor = unmake, .reclaim = reclaim};
    EXPECT(strata_cache_create("nodes", &config, &cache) == STRATA_CACHE_OK);
    EXPECT(strata_cache_set_move(cache, move) == STRATA_CACHE_OK);
    pthread_t consolidators[2], threads[THREADS];
    for (unsigned i = 0; i < 2; i++) EXPECT(pthread_create(&consolidators[i], NULL, consolidate, NULL) == 0);
    for (unsigned i = 0; i < THREADS; i++) EXPECT(pthread_create(&threads[i], NULL, use, (void *)(uintptr_t)(i + 1)) == 0);
    for (unsigned i = 0; i < 3; i++) fork_once();
    for (unsigned i = 0; i < THREADS; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < 2; i++) EXPECT(pthread_join(consolidators[i], NULL) == 0);
    for (unsigned i = 0; i < HANDLES; i++) { /* the maintenance thread may be moving them */
        EXPECT(pthread_mutex_lock(&handles[i].mutex) == 0);
        if (handles[i].node != NULL) drop(&handles[i]);
        EXPECT(pthread_mutex_unlock(&handles[i].mutex) == 0);
    }
    struct strata_cache_stats stats;
    strata_cache_stats_get(cache, &stats);
    EXPECT(stats.moves_yes != 0 && stats.slabs_emptied != 0);
    EXPECT(strata_cache_destroy(cache) == STRATA_CACHE_OK);
    EXPECT(made == unmade);
    EXPECT(strata_check() == NULL);
    printf("api_cache_moves: %u rounds of %d threads; %llu moves, %llu done, %llu slabs emptied\n", rounds, THREADS, (unsigned long long)stats.moves,
           (unsigned long long)stats.moves_yes, (unsigned long long)stats.slabs_emptied);
    return 0;
}
