/*
 * kmem_lock_manager.c - experiment: section 4.4 of the kmem paper. A lock manager for transactions on a cluster, and the visits of each layer of the
 * allocator that its structures come from.
 *
 *     kmem_lock_manager strata|kmem CPUS TRANSACTIONS
 *
 * Servers run transactions: each takes some locks, shared or exclusive, on resources in ascending order (so that nobody waits in a circle), and lets
 * all go when it commits. A resource has a block while anybody has, or waits for, a lock on it, and stays in a list of recently used ones for a
 * while; each lock has a block; and one request in REMOTE comes from another node, as a message that one CPU takes from the network and that of the
 * server lets go. Servers change CPUs now and then. Who lets a lock go grants those that wait. Sizes are the paper's where it names them: 512 bytes a
 * resource, 256 a lock; a message has 128.
 * One step of one server at a time, chosen at random from a fixed seed; one thread, no locks of its own.
 */
#include <inttypes.h>
#include <stdio.h>

#include "layers.h"
#include "load.h"

#define SERVERS_PER_CPU 16
#define LOCKS_MAX 24 /* of a transaction */
#define RESOURCES 65536
#define HOT_RESOURCES 2048 /* which every other request is for */
#define RECENT 4096        /* resources that nobody uses and that are kept */
#define REMOTE 4
#define MOVE_STEPS 64 /* of a server from one change of its CPU to the next, about */
#define SEED 4

#define RESOURCE_BYTES 512
#define LOCK_BYTES 256
#define MESSAGE_BYTES 128

struct lock {
    struct lock *next; /* granted ones first, then those that wait, in order */
    struct server *server;
    uint32_t resource;
    unsigned char exclusive, granted;
    void *block;
};

struct resource {
    struct lock *locks;
    void *block;
    uint32_t recent_next, recent_before; /* in the list of recently used ones: numbers + 1 */
    unsigned char recent;
};

struct server {
    unsigned cpu, taken, wanted;
    uint32_t resources[LOCKS_MAX]; /* ascending */
    struct lock locks[LOCKS_MAX];
};

static const struct layers *layers;
static unsigned cpus;
static struct rng rng;
static struct resource resources[RESOURCES];
static uint32_t recent_first, recent_last, recent_count;
static uint64_t transactions, waits, messages;

/* ------------------------------------------------------------------ resources */

static void recent_unlink(uint32_t number) {
    struct resource *resource = &resources[number];
    *(resource->recent_before ? &resources[resource->recent_before - 1].recent_next : &recent_first) = resource->recent_next;
    *(resource->recent_next ? &resources[resource->recent_next - 1].recent_before : &recent_last) = resource->recent_before;
    resource->recent = 0;
    recent_count--;
}

static void resource_forget(unsigned cpu, uint32_t number) {
    recent_unlink(number);
    layers->free(cpu, resources[number].block);
    resources[number].block = NULL;
}

static void resource_use(unsigned cpu, uint32_t number) {
    struct resource *resource = &resources[number];
    if (resource->recent) recent_unlink(number);
    if (!resource->block) resource->block = layers->alloc(cpu, RESOURCE_BYTES);
}

static void resource_idle(unsigned cpu, uint32_t number) {
    struct resource *resource = &resources[number];
    resource->recent = 1;
    resource->recent_before = 0;
    resource->recent_next = recent_first;
    *(recent_first ? &resources[recent_first - 1].recent_before : &recent_last) = number + 1;
    recent_first = number + 1;
    if (++recent_count > RECENT) resource_forget(cpu, recent_last - 1);
}

/* ------------------------------------------------------------------ locks */

/* Whether the lock may be held beside those in front of it. */
static int compatible(const struct resource *resource, const struct lock *lock) {
    for (const struct lock *other = resource->locks; other != lock; other = other->next)
        if (!other->granted || other->exclusive || lock->exclusive) return 0;
    return 1;
}

static void lock_request(struct server *server) {
    uint32_t number = server->resources[server->taken];
    struct resource *resource = &resources[number];
    struct lock *lock = &server->locks[server->taken], **link = &resource->locks;
    void *message = NULL;
    if (!rng_below(&rng, REMOTE)) {
        message = layers->alloc((unsigned)rng_below(&rng, cpus), MESSAGE_BYTES);
        messages++;
    }
    resource_use(server->cpu, number);
    *lock = (struct lock){.server = server, .resource = number, .exclusive = !rng_below(&rng, 4), .block = layers->alloc(server->cpu, LOCK_BYTES)};
    while (*link) link = &(*link)->next;
    *link = lock;
    lock->granted = (unsigned char)compatible(resource, lock);
    waits += !lock->granted;
    server->taken++;
    if (message) layers->free(server->cpu, message);
}

static void lock_release(struct server *server, struct lock *lock) {
    struct resource *resource = &resources[lock->resource];
    struct lock **link = &resource->locks;
    if (!lock->granted) load_fail("a lock is let go that was not granted");
    while (*link != lock) link = &(*link)->next;
    *link = lock->next;
    layers->free(server->cpu, lock->block);
    for (struct lock *other = resource->locks; other; other = other->next) {
        if (other->granted) continue;
        if (!compatible(resource, other)) break;
        other->granted = 1;
    }
    if (!resource->locks) resource_idle(server->cpu, lock->resource);
}

/* ------------------------------------------------------------------ servers */

static int by_number(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static void transaction_begin(struct server *server) {
    server->taken = 0;
    unsigned count = (unsigned)rng_between(&rng, 2, LOCKS_MAX);
    for (unsigned i = 0; i < count; i++) server->resources[i] = (uint32_t)rng_below(&rng, rng_below(&rng, 2) ? HOT_RESOURCES : RESOURCES);
    qsort(server->resources, count, sizeof server->resources[0], by_number);
    server->wanted = 1;
    for (unsigned i = 1; i < count; i++)
        if (server->resources[i] != server->resources[server->wanted - 1]) server->resources[server->wanted++] = server->resources[i];
}

static void transaction_end(struct server *server) {
    for (unsigned i = server->taken; i--;) lock_release(server, &server->locks[i]);
    server->taken = 0;
    transactions++;
}

static void step(struct server *server) {
    if (server->taken && !server->locks[server->taken - 1].granted) return; /* it waits */
    if (!rng_below(&rng, MOVE_STEPS)) server->cpu = (unsigned)rng_below(&rng, cpus);
    if (server->taken == server->wanted) {
        if (server->taken) transaction_end(server);
        transaction_begin(server);
    } else {
        lock_request(server);
    }
}

/* Nobody begins a transaction any more; those under way end. */
static void finish(struct server *servers, unsigned count) {
    for (int busy = 1; busy;) {
        busy = 0;
        for (unsigned i = 0; i < count; i++) {
            struct server *server = &servers[i];
            if (server->taken && !server->locks[server->taken - 1].granted) busy = 1;
            if (!server->taken || !server->locks[server->taken - 1].granted) continue;
            transaction_end(server);
        }
    }
    while (recent_count) resource_forget(0, recent_last - 1);
}

int main(int argc, char **argv) {
    /* Section 4.4: 10 and 15 for small blocks. */
    static const struct kmem_parameters parameters = {
        .target = {10, 10, 10, 10, 10, 10, 8, 4, 2},
        .global_target = {15, 15, 15, 15, 15, 15, 6, 3, 1},
    };
    int is_strata = argc == 4 && !strcmp(argv[1], "strata");
    cpus = argc == 4 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
    uint64_t wanted = argc == 4 ? strtoull(argv[3], NULL, 10) : 0;
    if (!cpus || cpus > LAYERS_CPUS_MAX || !wanted || (!is_strata && strcmp(argv[1], "kmem")))
        load_fail("usage: kmem_lock_manager strata|kmem CPUS TRANSACTIONS");
    layers = is_strata ? &strata_layers : &kmem_layers;
    kmem_layers_set(&parameters);
    layers->start(cpus);
    rng = rng_seed(SEED);
    unsigned count = cpus * SERVERS_PER_CPU;
    struct server *servers = calloc(count, sizeof *servers);
    if (!servers) load_fail("no memory for servers");
    for (unsigned i = 0; i < count; i++) servers[i].cpu = i % cpus;

    /* The first tenth fills the layers, and is not counted. */
    struct layers_counts before[LAYERS_SIZES], counts[LAYERS_SIZES];
    while (transactions < wanted / 10) step(&servers[rng_below(&rng, count)]);
    layers->counts(before);
    while (transactions < wanted) step(&servers[rng_below(&rng, count)]);
    layers->counts(counts);
    finish(servers, count);
    layers->check_empty();

    printf("{\"transactions\": %" PRIu64 ", \"waits\": %" PRIu64 ", \"messages\": %" PRIu64 ", \"sizes\": [", transactions, waits, messages);
    const size_t sizes[] = {MESSAGE_BYTES, LOCK_BYTES, RESOURCE_BYTES};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned size = layers_size_index(sizes[i]);
        struct layers_counts grown = layers_counts_since(&counts[size], &before[size]);
        printf("%s{", i ? ", " : "");
        layers_print_size(size, &parameters, &grown);
        printf("}");
    }
    printf("]}\n");
    free(servers);
    return fflush(stdout) ? 2 : 0;
}
