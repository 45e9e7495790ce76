/*
 * index_nodes.c - an index whose nodes strata may move and ask back: pages of which few nodes are left become few full ones, and where there is no
 * more memory the oldest entries make room.
 *
 *     cc index_nodes.c -o index_nodes $(pkg-config --cflags --libs strata)
 *     ./index_nodes
 *
 * Nodes are reached by handles, numbers that stay, so that a node can be elsewhere tomorrow. The index is built, then nine of ten entries go, at
 * random: nearly all slabs stay, as nearly each has a node left. Moving them gives the memory back. Then entries are added for ever under a hard
 * limit: when the cache has no memory, it asks, and the oldest sixteenth goes.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strata/cache.h>

const char *strata_conf = "hard_limit:24M";

enum { HANDLES = 1 << 18, BUILT = 80000, ADDED = 1000000, KEY_BYTES = 100 };

struct node {
    unsigned handle; /* which one holds this node, counted from 1; 0: none. Atomic: move looks at nodes that are anybody's */
    unsigned number;
    char key[KEY_BYTES];
};

static struct strata_cache *nodes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the index; never held while a node is allocated */
static struct node *index_of[HANDLES];
static unsigned oldest, dropped;

static void die(const char *why) {
    fprintf(stderr, "index_nodes: %s\n", why);
    exit(1);
}

static int node_construct(void *object, void *argument) {
    struct node *node = object;
    (void)argument;
    __atomic_store_n(&node->handle, 0, __ATOMIC_RELAXED);
    return 0;
}

/* Under the lock. A node that is freed is no handle's, as the constructor left it. */
static void drop(unsigned handle) {
    struct node *node = index_of[handle];
    index_of[handle] = NULL;
    __atomic_store_n(&node->handle, 0, __ATOMIC_RELAXED);
    strata_cache_free(nodes, node);
}

/*
 * old_object may be a node that was freed a moment ago, or one that is not in the index yet: only what its handle says, looked up under the lock,
 * makes it one of ours. Whoever holds the lock may be waiting for strata, so this doesn't wait for it.
 */
static enum strata_cache_move node_move(void *old_object, void *new_object, size_t size, void *argument) {
    struct node *old = old_object, *fresh = new_object;
    (void)argument, (void)size;
    if (pthread_mutex_trylock(&lock) != 0) return STRATA_CACHE_MOVE_LATER;
    unsigned handle = __atomic_load_n(&old->handle, __ATOMIC_RELAXED);
    bool ours = handle != 0 && handle <= HANDLES && index_of[handle - 1] == old;
    if (ours) {
        fresh->number = old->number;
        memcpy(fresh->key, old->key, sizeof fresh->key);
        __atomic_store_n(&fresh->handle, handle, __ATOMIC_RELAXED);
        __atomic_store_n(&old->handle, 0, __ATOMIC_RELAXED);
        index_of[handle - 1] = fresh;
    }
    pthread_mutex_unlock(&lock);
    return ours ? STRATA_CACHE_MOVE_YES : STRATA_CACHE_MOVE_DONT_KNOW;
}

/* The oldest entries go: a few where nobody is in need, a sixteenth of all where there is no memory. */
static void node_reclaim(void *argument, size_t wanted_bytes, enum strata_cache_need need) {
    (void)argument;
    if (pthread_mutex_trylock(&lock) != 0) return;
    size_t wanted = need == STRATA_CACHE_OUT_OF_MEMORY ? HANDLES / 16 : wanted_bytes / sizeof(struct node);
    for (unsigned looked = 0; looked < HANDLES && wanted != 0; looked++, oldest = (oldest + 1) % HANDLES) {
        if (index_of[oldest] == NULL) continue;
        drop(oldest);
        dropped++;
        wanted--;
    }
    pthread_mutex_unlock(&lock);
}

static void add(unsigned number) {
    unsigned handle = number % HANDLES;
    struct node *node = strata_cache_alloc(nodes, STRATA_CACHE_NO_SLEEP);
    if (node == NULL) die("no memory, though old entries could go");
    node->number = number;
    snprintf(node->key, sizeof node->key, "key of entry %u", number);
    pthread_mutex_lock(&lock);
    if (index_of[handle] != NULL) drop(handle);
    __atomic_store_n(&node->handle, handle + 1, __ATOMIC_RELAXED);
    index_of[handle] = node;
    pthread_mutex_unlock(&lock);
}

/* How many entries there are; each must be what was put in. */
static unsigned check(void) {
    unsigned count = 0;
    char key[KEY_BYTES];
    pthread_mutex_lock(&lock);
    for (unsigned handle = 0; handle < HANDLES; handle++) {
        const struct node *node = index_of[handle];
        if (node == NULL) continue;
        snprintf(key, sizeof key, "key of entry %u", node->number);
        if (node->number % HANDLES != handle || strcmp(node->key, key) != 0) die("an entry is not what was put in");
        count++;
    }
    pthread_mutex_unlock(&lock);
    return count;
}

static void report(const char *moment) {
    struct strata_cache_stats stats;
    strata_cache_reap(nodes);
    strata_cache_stats_get(nodes, &stats);
    printf("%-9s entries=%u memory_bytes=%llu moved=%llu reclaimed_bytes=%llu\n", moment, check(), (unsigned long long)stats.memory,
           (unsigned long long)stats.moves_yes, (unsigned long long)stats.reclaimed_bytes);
}

int main(void) {
    const struct strata_cache_config config = {.size = sizeof(struct node), .constructor = node_construct, .reclaim = node_reclaim};
    enum strata_cache_status status = strata_cache_create("nodes", &config, &nodes);
    if (status == STRATA_CACHE_OK) status = strata_cache_set_move(nodes, node_move);
    if (status != STRATA_CACHE_OK) die(strata_cache_status_text(status));

    for (unsigned number = 0; number < BUILT; number++) add(number);
    report("built");
    unsigned random = 1;
    for (unsigned handle = 0; handle < HANDLES; handle++) {
        random = random * 1664525u + 1013904223u;
        pthread_mutex_lock(&lock);
        if (index_of[handle] != NULL && random >> 16 < 58982) drop(handle); /* nine of ten */
        pthread_mutex_unlock(&lock);
    }
    report("thinned");
    size_t freed = strata_cache_consolidate(nodes);
    report("moved");
    printf("consolidation freed %zu bytes\n", freed);

    for (unsigned number = BUILT; number < BUILT + ADDED; number++) add(number);
    report("added");
    printf("%u of the oldest made room\n", dropped);

    pthread_mutex_lock(&lock);
    for (unsigned handle = 0; handle < HANDLES; handle++)
        if (index_of[handle] != NULL) drop(handle);
    pthread_mutex_unlock(&lock);
    if (strata_cache_destroy(nodes) != STRATA_CACHE_OK) die("nodes are left");
    return 0;
}
