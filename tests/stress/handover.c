/*
 * handover.c - blocks that one thread allocates and another checks and frees, through a bounded queue.
 *
 * handover MESSAGES PRODUCERS CONSUMERS. One message in 64 is grown by its consumer first. All memory flows one
 * way, so whatever a thread hoards of the other's blocks shows in the resident memory, printed after a tenth of the messages and at the
 * end.
 */
#include "stress/support.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

enum { QUEUE = 1024, MAX_THREADS = 16, REALLOC_EVERY = 64 };

struct message {
    unsigned char *body;
    size_t bytes;
    uint64_t seed;
};

static struct message queue[QUEUE];
static sem_t room, filled;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t head, tail, each;
static atomic_size_t consumed;
static atomic_size_t early_kib;
static size_t early_at;

static void message_put(struct message message) {
    while (sem_wait(&room) != 0) continue;
    pthread_mutex_lock(&lock);
    queue[head++ % QUEUE] = message;
    pthread_mutex_unlock(&lock);
    sem_post(&filled);
}

static struct message message_get(void) {
    while (sem_wait(&filled) != 0) continue;
    pthread_mutex_lock(&lock);
    struct message message = queue[tail++ % QUEUE];
    pthread_mutex_unlock(&lock);
    sem_post(&room);
    return message;
}

static void *producer(void *argument) {
    uint64_t rng = (uintptr_t)argument + 99;
    for (size_t i = 0; i < each; i++) {
        uint64_t kind = rng_next(&rng) % 1000;
        size_t bytes = kind < 900 ? rng_between(&rng, 1, 512) : kind < 995 ? rng_between(&rng, 513, 20000) : rng_between(&rng, 20001, 300000);
        struct message message = {malloc(bytes), bytes, rng_next(&rng)};
        if (message.body == NULL) fail("producer: malloc(%zu) gave NULL", bytes);
        /* The contents are bound to the seed, not to the address, as the block may move. */
        pattern_fill_as(message.body, (void *)(uintptr_t)message.seed, bytes, message.seed);
        message_put(message);
    }
    return NULL;
}

static void *consumer(void *argument) {
    uint64_t rng = (uintptr_t)argument + 7;
    for (;;) {
        struct message message = message_get();
        if (message.body == NULL) return NULL;
        if (rng_next(&rng) % REALLOC_EVERY == 0) {
            message.body = realloc(message.body, rng_between(&rng, message.bytes, message.bytes * 3));
            if (message.body == NULL) fail("consumer: realloc gave NULL");
        }
        pattern_check_as(message.body, (void *)(uintptr_t)message.seed, message.bytes, message.bytes, message.seed, "consumer");
        free(message.body);
        if (atomic_fetch_add(&consumed, 1) == early_at) atomic_store(&early_kib, status_kib("RssAnon:"));
    }
}

int main(int argc, char **argv) {
    size_t messages = argument_number(argc, argv, 1, 400000);
    size_t producers = argument_number(argc, argv, 2, 2), consumers = argument_number(argc, argv, 3, 2);
    REQUIRE(producers <= MAX_THREADS && consumers <= MAX_THREADS);
    each = messages / producers;
    early_at = messages / 10;
    REQUIRE(sem_init(&room, 0, QUEUE) == 0 && sem_init(&filled, 0, 0) == 0);
    pthread_t makers[MAX_THREADS], takers[MAX_THREADS];
    for (size_t i = 0; i < consumers; i++) REQUIRE(pthread_create(&takers[i], NULL, consumer, (void *)(uintptr_t)i) == 0);
    for (size_t i = 0; i < producers; i++) REQUIRE(pthread_create(&makers[i], NULL, producer, (void *)(uintptr_t)i) == 0);
    for (size_t i = 0; i < producers; i++) REQUIRE(pthread_join(makers[i], NULL) == 0);
    size_t late_kib = status_kib("RssAnon:");
    for (size_t i = 0; i < consumers; i++) message_put((struct message){NULL, 0, 0});
    for (size_t i = 0; i < consumers; i++) REQUIRE(pthread_join(takers[i], NULL) == 0);
    REQUIRE(atomic_load(&consumed) == each * producers);
    heap_check("after the handover");
    printf("messages=%zu early_kib=%zu late_kib=%zu\n", messages, atomic_load(&early_kib), late_kib);
    return 0;
}
