/*
 * thread_crowd.c - very many threads alive at once, each having used many sizes: how much memory do the caches hold?
 *
 * thread_crowd FEW MANY FILE_FEW FILE_MANY FILE_GONE. Statistics are written with FEW threads alive and idle, with MANY, and with none
 * left; the anonymous memory then is printed. Thread stacks lie in shared memory, so that they don't count as anonymous.
 */
#include "stress/support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>

enum { STACK_BYTES = 64 * 1024, SIZES = 64, EACH = 8, STEP = 16 };

static atomic_size_t worked;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static bool go_home;

static void *guest(void *argument) {
    (void)argument;
    void *blocks[EACH];
    for (size_t size = STEP; size <= SIZES * STEP; size += STEP) {
        for (int i = 0; i < EACH; i++) blocks[i] = block_new(size, size, "guest");
        for (int i = 0; i < EACH; i++) block_delete(blocks[i], size, size, "guest");
    }
    atomic_fetch_add(&worked, 1);
    pthread_mutex_lock(&lock);
    while (!go_home) pthread_cond_wait(&wake, &lock);
    pthread_mutex_unlock(&lock);
    /* Once more at the end, when CPUs and threads have been mixed. */
    free(malloc(100));
    return NULL;
}

static void await_guests(size_t count) {
    while (atomic_load(&worked) < count) sleep_ms(2);
}

int main(int argc, char **argv) {
    if (argc != 6) fail("usage: thread_crowd FEW MANY FILE_FEW FILE_MANY FILE_GONE");
    size_t few = argument_number(argc, argv, 1, 0), many = argument_number(argc, argv, 2, 0);
    unsigned char *stacks = mmap(NULL, many * STACK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    pthread_t *ids = mmap(NULL, many * sizeof *ids, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(stacks != MAP_FAILED && ids != MAP_FAILED);
    size_t few_kib = 0;
    for (size_t i = 0; i < many; i++) {
        pthread_attr_t attributes;
        REQUIRE(pthread_attr_init(&attributes) == 0);
        REQUIRE(pthread_attr_setstack(&attributes, stacks + i * STACK_BYTES, STACK_BYTES) == 0);
        int error = pthread_create(&ids[i], &attributes, guest, NULL);
        if (error != 0) fail("thread %zu: error %d", i, error);
        pthread_attr_destroy(&attributes);
        if (i + 1 == few) {
            await_guests(few);
            few_kib = status_kib("RssAnon:");
            stats_write(argv[3]);
        }
    }
    await_guests(many);
    size_t many_kib = status_kib("RssAnon:");
    stats_write(argv[4]);
    heap_check("in a crowd");
    pthread_mutex_lock(&lock);
    go_home = true;
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < many; i++) REQUIRE(pthread_join(ids[i], NULL) == 0);
    stats_write(argv[5]);
    heap_check("after the crowd");
    printf("few_kib=%zu many_kib=%zu gone_kib=%zu\n", few_kib, many_kib, status_kib("RssAnon:"));
    return 0;
}
