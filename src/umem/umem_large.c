/*
 * umem_large.c - which objects of a cache of large ones the program has.
 *
 * Such objects come one by one from the heap or from an arena, which know nothing of caches: a table says which ones are the cache's, so that a
 * foreign pointer, a second free and what is left at the end are found out. They have more than 1 MiB each, so there are few, and a chain stays
 * short. Lock: `lock`, for the tables of all caches; nothing is called with it held.
 */
#include "umem_internal.h"

#include <pthread.h>

#include <strata/kmem.h>

#define BUCKETS 64

struct object {
    struct object *next;
    void *address;
};

struct umem_large {
    struct object *buckets[BUCKETS];
    size_t count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }
static __attribute__((constructor)) void watch_forks(void) { pthread_atfork(before_fork, after_fork, after_fork); }

/* Large objects differ above their pages. */
static struct object **bucket_of(struct umem_large *large, const void *address) {
    return &large->buckets[((uintptr_t)address >> 12) * 0x9e3779b97f4a7c15u >> 58];
}

struct umem_large *umem_large_create(void) { return umem_own_alloc(sizeof(struct umem_large)); }
void umem_large_destroy(struct umem_large *large) { strata_kmem_free(large, sizeof *large); }

bool umem_large_add(struct umem_large *large, void *address) {
    struct object *object = umem_own_alloc(sizeof *object);
    if (object == NULL) return false;
    struct object **bucket = bucket_of(large, address);
    object->address = address;
    pthread_mutex_lock(&lock);
    object->next = *bucket;
    *bucket = object;
    large->count++;
    pthread_mutex_unlock(&lock);
    return true;
}

bool umem_large_take(struct umem_large *large, const void *address) {
    struct object **link = bucket_of(large, address);
    pthread_mutex_lock(&lock);
    while (*link != NULL && (*link)->address != address) link = &(*link)->next;
    struct object *object = *link;
    if (object != NULL) {
        *link = object->next;
        large->count--;
    }
    pthread_mutex_unlock(&lock);
    if (object != NULL) strata_kmem_free(object, sizeof *object);
    return object != NULL;
}

bool umem_large_has_any(const struct umem_large *large) {
    pthread_mutex_lock(&lock);
    bool any = large->count != 0;
    pthread_mutex_unlock(&lock);
    return any;
}

void *umem_large_take_any(struct umem_large *large) {
    struct object *object = NULL;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < BUCKETS && object == NULL; i++) {
        object = large->buckets[i];
        if (object != NULL) large->buckets[i] = object->next;
    }
    large->count -= object != NULL;
    pthread_mutex_unlock(&lock);
    void *address = object != NULL ? object->address : NULL;
    strata_kmem_free(object, sizeof *object);
    return address;
}
