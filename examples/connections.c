/*
 * connections.c - a server's connections: each has a lock and a buffer, which are set up once and stay while the object goes from hand to hand.
 *
 *     cc connections.c -o connections $(pkg-config --cflags --libs strata)
 *     ./connections
 *
 * It serves 200,000 connections, at most 100 of them at a time, by two threads. With malloc and free each would cost an initialised lock and a
 * second allocation; the cache constructs only as many as there ever were at once, and some more that wait in the arrays of the CPUs.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strata/cache.h>
#include <strata/malloc.h>

enum { THREADS = 2, SERVED = 100000, AT_ONCE = 50, BUFFER_BYTES = 2000 };

struct connection {
    pthread_mutex_t lock;
    char *buffer;
    size_t filled; /* 0 in the constructed state */
};

static struct strata_cache *connections;

static int connection_construct(void *object, void *argument) {
    struct connection *connection = object;
    (void)argument;
    connection->buffer = strata_malloc(BUFFER_BYTES);
    if (connection->buffer == NULL) return -1;
    connection->filled = 0;
    if (pthread_mutex_init(&connection->lock, NULL) == 0) return 0;
    strata_free(connection->buffer);
    return -1;
}

static void connection_destruct(void *object, void *argument) {
    struct connection *connection = object;
    (void)argument;
    pthread_mutex_destroy(&connection->lock);
    strata_free(connection->buffer);
}

static void die(const char *why) {
    fprintf(stderr, "connections: %s\n", why);
    exit(1);
}

static void *serve(void *argument) {
    struct connection *open[AT_ONCE] = {NULL};
    unsigned random = *(unsigned *)argument;
    for (unsigned i = 0; i < SERVED; i++) {
        random = random * 1664525u + 1013904223u;
        struct connection **slot = &open[(random >> 16) % AT_ONCE];
        if (*slot != NULL) { /* it has ended: back, in the state that the constructor left */
            (*slot)->filled = 0;
            strata_cache_free(connections, *slot);
        }
        *slot = strata_cache_alloc(connections, STRATA_CACHE_SLEEP);
        if ((*slot)->filled != 0) die("a connection came that is not as it was constructed");
        pthread_mutex_lock(&(*slot)->lock);
        (*slot)->filled = (size_t)snprintf((*slot)->buffer, BUFFER_BYTES, "request %u", i);
        pthread_mutex_unlock(&(*slot)->lock);
    }
    for (unsigned i = 0; i < AT_ONCE; i++) {
        if (open[i] == NULL) continue;
        open[i]->filled = 0;
        strata_cache_free(connections, open[i]);
    }
    return NULL;
}

int main(void) {
    const struct strata_cache_config config = {
        .size = sizeof(struct connection), .constructor = connection_construct, .destructor = connection_destruct};
    enum strata_cache_status status = strata_cache_create("connections", &config, &connections);
    if (status != STRATA_CACHE_OK) die(strata_cache_status_text(status));
    pthread_t threads[THREADS];
    unsigned seeds[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        seeds[i] = i + 1;
        if (pthread_create(&threads[i], NULL, serve, &seeds[i]) != 0) die("no thread");
    }
    for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);

    struct strata_cache_stats stats;
    strata_cache_stats_get(connections, &stats);
    printf("served %u connections with %llu constructions\n", THREADS * SERVED, (unsigned long long)stats.constructed);
    printf("in use %llu, cached %llu, in %llu slabs of %zu bytes\n", (unsigned long long)stats.in_use, (unsigned long long)stats.cached,
           (unsigned long long)stats.slabs, stats.slab_size);
    if (strata_cache_destroy(connections) != STRATA_CACHE_OK) die("connections are left");
    return 0;
}
