/*
 * event_pool.c - a pipeline of threads whose events come from a fixed pool: each thread allocates from a local pool of its own and frees into it what
 * it got from its neighbour, and the program prints how often the threads met at the global pool, beside what Vee and Hsu allow.
 *
 *     cc event_pool.c -o event_pool $(pkg-config --cflags --libs strata-only) -pthread
 *     ./event_pool            # m = 512
 *     ./event_pool 64 8 56    # m, m_alpha, m_beta
 *
 * Local pools are explicit, and threads don't give them back by themselves. A program whose functions don't hand a handle along keeps it as
 * this one does: in a thread-local variable that is filled at the first use, and a key whose destructor ends the local pool with its thread.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <strata/pool.h>

enum { STAGES = 4, EVENTS = 100000, QUEUE = 256 };

struct event {
    unsigned number;
    unsigned stages_seen;
};

static struct strata_pool *events;

/* ------------------------------------------------------------------ a local pool for each thread that asks */

static pthread_key_t local_key;
static _Thread_local struct strata_pool_local *my_local;

static void end_local(void *local) { strata_pool_local_destroy(local); }

static struct strata_pool_local *local_of_thread(void) {
    if (my_local != NULL) return my_local;
    enum strata_pool_status status = strata_pool_local_create(events, &my_local);
    if (status != STRATA_POOL_OK) {
        fprintf(stderr, "event_pool: %s\n", strata_pool_status_text(status));
        exit(EXIT_FAILURE);
    }
    pthread_setspecific(local_key, my_local);
    return my_local;
}

static struct event *event_new(void) {
    struct event *event = strata_pool_alloc(local_of_thread());
    if (event == NULL) {
        perror("event_pool: an event");
        exit(EXIT_FAILURE);
    }
    return event;
}

static void event_drop(struct event *event) {
    if (strata_pool_free(local_of_thread(), event) != STRATA_POOL_OK) abort(); /* not from this pool: a bug of ours */
}

/* ------------------------------------------------------------------ the pipeline */

static struct queue {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct event *events[QUEUE];
    unsigned first, count;
} queues[STAGES - 1];

static void put(struct queue *queue, struct event *event) {
    pthread_mutex_lock(&queue->mutex);
    while (queue->count == QUEUE) pthread_cond_wait(&queue->changed, &queue->mutex);
    queue->events[(queue->first + queue->count++) % QUEUE] = event;
    pthread_cond_signal(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
}

static struct event *get(struct queue *queue) {
    pthread_mutex_lock(&queue->mutex);
    while (queue->count == 0) pthread_cond_wait(&queue->changed, &queue->mutex);
    struct event *event = queue->events[queue->first];
    queue->first = (queue->first + 1) % QUEUE;
    queue->count--;
    pthread_cond_signal(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
    return event;
}

/* Each stage answers an event by a new one, and drops the old: one allocation and one free, in different threads. */
static void *stage(void *argument) {
    size_t place = (size_t)argument;
    for (unsigned i = 0; i < EVENTS; i++) {
        struct event *event = place == 0 ? NULL : get(&queues[place - 1]);
        if (event != NULL && (event->number != i || event->stages_seen != place)) abort();
        if (place < STAGES - 1) {
            struct event *next = event_new();
            *next = (struct event){.number = i, .stages_seen = (unsigned)place + 1};
            put(&queues[place], next);
        }
        if (event != NULL) event_drop(event);
    }
    return NULL;
}

int main(int argc, char **argv) {
    struct strata_pool_config config = {.name = "events", .object_bytes = sizeof(struct event), .m = 512};
    struct strata_pool_stats stats;
    pthread_t threads[STAGES];
    if (argc > 1) config.m = strtoul(argv[1], NULL, 10);
    if (argc > 2) config.m_alpha = strtoul(argv[2], NULL, 10);
    if (argc > 3) config.m_beta = strtoul(argv[3], NULL, 10);
    enum strata_pool_status status = strata_pool_create(&config, &events);
    if (status != STRATA_POOL_OK) {
        fprintf(stderr, "event_pool: %s\n", strata_pool_status_text(status));
        return EXIT_FAILURE;
    }
    if (pthread_key_create(&local_key, end_local) != 0) return EXIT_FAILURE;
    for (size_t i = 0; i < STAGES - 1; i++) {
        pthread_mutex_init(&queues[i].mutex, NULL);
        pthread_cond_init(&queues[i].changed, NULL);
    }
    for (size_t i = 0; i < STAGES; i++)
        if (pthread_create(&threads[i], NULL, stage, (void *)i) != 0) return EXIT_FAILURE;
    for (size_t i = 0; i < STAGES; i++) pthread_join(threads[i], NULL);

    if (strata_pool_stats_get(events, &stats) != STRATA_POOL_OK) return EXIT_FAILURE;
    unsigned long long requests = 2ull * (STAGES - 1) * EVENTS, accesses = stats.alpha_accesses + stats.beta_accesses;
    printf("m=%zu m_alpha=%zu m_beta=%zu requests=%llu accesses=%llu ", stats.m, stats.m_alpha, stats.m_beta, requests, accesses);
    if (stats.requests_apart != 0)
        printf("bound=%llu\n", requests / stats.requests_apart + STAGES);
    else
        printf("bound=none\n");
    status = strata_pool_destroy(events, NULL);
    if (status != STRATA_POOL_OK) {
        fprintf(stderr, "event_pool: at the end: %s\n", strata_pool_status_text(status));
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
