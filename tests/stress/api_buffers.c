/*
 * api_buffers.c - buffers of 32 KiB to 1 MiB that threads allocate, write to, pass to each other and free, while others give idle memory back, look
 * at everything, and fork.
 *
 * Protects: a buffer is one thread's alone, whoever had it before and however it came here: out of this CPU's cache of runs or out of the zone; what
 * caches keep is woken under the feet of who uses them; a child has them as they were. api_buffers [ROUNDS] makes so many rounds a thread.
 */
#include <string.h>
#include <unistd.h>

#include <strata/malloc.h>

#include "concurrency/concurrency.h"

enum { THREADS = 3, SLOTS = 16, DEFAULT_ROUNDS = 6000, FORKS = 6, PAGE = 4096 };

static const size_t sizes[] = {33000, 65536, 65536, 66000, 131072, 140000, 300000, 600000};
static unsigned rounds = DEFAULT_ROUNDS;
static size_t *slots[SLOTS]; /* a buffer begins with its size; atomic */
static uint32_t alive;       /* atomic */

static size_t *make(uint64_t *random) {
    const size_t bytes = sizes[next_random(random) % (sizeof sizes / sizeof sizes[0])];
    size_t *buffer = next_random(random) % 8 == 0 ? strata_calloc(1, bytes) : strata_malloc(bytes);
    EXPECT(buffer != NULL && strata_malloc_usable_size(buffer) >= bytes);
    for (size_t at = 0; at + PAGE <= bytes; at += PAGE) buffer[at / sizeof *buffer] = bytes ^ (uintptr_t)buffer ^ at;
    buffer[0] = bytes;
    return buffer;
}

static void end(size_t *buffer) {
    const size_t bytes = buffer[0];
    for (size_t at = PAGE; at + PAGE <= bytes; at += PAGE) EXPECT(buffer[at / sizeof *buffer] == (bytes ^ (uintptr_t)buffer ^ at));
    strata_free(buffer);
}

static void some_rounds(uint64_t *random, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        size_t *buffer = make(random);
        if (next_random(random) % 4 != 0) {
            end(buffer); /* allocated and freed in turn, as most are */
            continue;
        }
        size_t *other = __atomic_exchange_n(&slots[next_random(random) % SLOTS], buffer, __ATOMIC_ACQ_REL);
        if (other != NULL) end(other);
    }
}

static void *work(void *argument) {
    uint64_t random = random_seed((uintptr_t)argument);
    some_rounds(&random, rounds);
    __atomic_fetch_sub(&alive, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void fork_once(uint64_t number) {
    pid_t child = fork();
    if (child == 0) {
        uint64_t random = random_seed(number);
        for (unsigned i = 0; i < 50; i++) end(make(&random));
        _exit(strata_check() == NULL ? 7 : 8);
    }
    expect_child(child, 7);
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    if (argc > 1) rounds = (unsigned)strtoul(argv[1], NULL, 10);
    alive = THREADS;
    for (uintptr_t i = 0; i < THREADS; i++) EXPECT(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (unsigned turn = 0; __atomic_load_n(&alive, __ATOMIC_ACQUIRE) != 0; turn++) {
        if (turn % 8 == 0) EXPECT(strata_check() == NULL);
        if (turn % 8 == 4) (void)strata_release(0);
        if (turn < FORKS) fork_once(turn + 100);
        usleep(2000);
    }
    for (unsigned i = 0; i < THREADS; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
    for (unsigned i = 0; i < SLOTS; i++)
        if (slots[i] != NULL) end(slots[i]);
    EXPECT(strata_check() == NULL);
    return 0;
}
