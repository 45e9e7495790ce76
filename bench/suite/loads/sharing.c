/*
 * sharing.c - load: two threads that write to small objects, which an allocator may have put into one cache line.
 *
 * The two kinds of false sharing of E. Berger and others, "Hoard: a scalable memory allocator for multithreaded applications" (ASPLOS 2000).
 * --mode active: each thread allocates an object, writes to it many times, and frees it; an allocator that hands parts of one line to two threads
 * makes them fight for it. --mode passive: the objects are neighbours, allocated by one thread and given to the others, who free them and go on as
 * above; an allocator that serves the next request of a thread with what it freed keeps the line shared for ever. No locks.
 */
#include "load.h"

#include <pthread.h>

#define THREADS 2
#define OBJECT_BYTES 8
#define GIVEN 64
#define ROUNDS UINT64_C(300000)
#define WRITES 400

struct sharing {
    struct load_args args;
    pthread_barrier_t ready;
    void *given[THREADS][GIVEN];
};

static void write_often(void *object, struct tally *tally) {
    volatile unsigned char *bytes = object;
    bytes[0] = 0;
    for (unsigned i = 0; i < WRITES; i++) bytes[i % OBJECT_BYTES] = (unsigned char)(i == 0 ? 1 : bytes[(i - 1) % OBJECT_BYTES] + 1);
    if (bytes[(WRITES - 1) % OBJECT_BYTES] != (unsigned char)WRITES) load_fail("an object does not hold what was written to it");
    tally->checksum += bytes[(WRITES - 1) % OBJECT_BYTES];
    tally->operations++;
}

static void work(unsigned index, void *context, struct tally *tally) {
    struct sharing *sharing = context;
    void *own[GIVEN] = {0};
    uint64_t rounds = load_scaled(&sharing->args, ROUNDS);

    pthread_barrier_wait(&sharing->ready);
    for (unsigned i = 0; i < GIVEN; i++) free(sharing->given[index][i]);
    for (uint64_t round = 0; round < rounds; round++) {
        void **slot = &own[round % GIVEN];
        free(*slot);
        *slot = malloc(OBJECT_BYTES);
        if (!*slot) load_fail("malloc returned NULL");
        write_often(*slot, tally);
    }
    for (unsigned i = 0; i < GIVEN; i++) free(own[i]);
}

int main(int argc, char **argv) {
    static struct sharing sharing;
    uint64_t start_ns = load_clock_ns();

    sharing.args = load_arguments(argc, argv);
    int passive = !strcmp(sharing.args.mode, "passive");
    if (!passive && strcmp(sharing.args.mode, "active")) load_fail("--mode is active or passive");
    sharing.args.threads = THREADS;
    if (pthread_barrier_init(&sharing.ready, NULL, THREADS)) load_fail("pthread_barrier_init failed");
    /* Dealt like cards: what lies side by side goes to different threads. */
    for (unsigned i = 0; passive && i < GIVEN; i++)
        for (unsigned t = 0; t < THREADS; t++)
            if (!(sharing.given[t][i] = malloc(OBJECT_BYTES))) load_fail("malloc returned NULL");
    struct tally total = load_threads(THREADS, work, &sharing);
    load_report("sharing", &sharing.args, &total, load_clock_ns() - start_ns);
    return 0;
}
