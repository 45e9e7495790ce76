/*
 * comeback.c - 1 GiB in 100,000 blocks of mixed sizes, all freed: does the memory go back to the system?
 *
 * comeback HOW [child]. HOW timer: nothing is called after the frees; prints how resident memory falls for 2.4 s. HOW trim: malloc_trim(0)
 * once. HOW none: looks at once, without a call (for limits that act on free). HOW silence: instead, one block of 1 GiB that is freed
 * after four seconds without a call, which is the last call. With `child`, the work is done in the child of a process
 * that has had it done before, so that whatever serves the parent has to come back after fork.
 * Half of the blocks are freed by a second thread, which stays alive and idle: its CPU's caches have to be emptied from outside.
 * Prints peak_kib, and then a line "ms=TIME kib=RESIDENT" for each look, the first right after the frees (and the trim).
 */
#include "stress/support.h"

#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>

enum { BLOCKS = 100000, LOOKS = 24, LOOK_MS = 100 };

static void *blocks[BLOCKS];
static sem_t start_helper, helper_done;

static size_t size_pick(uint64_t *rng) {
    uint64_t kind = rng_next(rng) % 10;
    if (kind < 6) return rng_between(rng, 16, 1024);
    if (kind < 9) return rng_between(rng, 2 * KIB, 14 * KIB);
    return rng_between(rng, 16 * KIB, 148 * KIB);
}

static void free_part(int from) {
    for (int i = from; i < BLOCKS; i += 2) {
        free(blocks[i]);
        blocks[i] = NULL;
    }
}

__attribute__((noreturn)) static void *helper(void *argument) {
    (void)argument;
    for (;;) {
        while (sem_wait(&start_helper) != 0) continue;
        free_part(1);
        sem_post(&helper_done);
    }
}

/* No stdio between the first look and the last: it might allocate, and a look must not help. */
static void look(size_t looks, uint64_t freed_ns) {
    static size_t kib[LOOKS], ms[LOOKS];
    for (size_t i = 0; i < looks; i++) {
        if (i > 0) sleep_ms(LOOK_MS);
        ms[i] = (size_t)((now_ns() - freed_ns) / 1000000);
        kib[i] = status_kib("VmRSS:");
    }
    for (size_t i = 0; i < looks; i++) printf("ms=%zu kib=%zu\n", ms[i], kib[i]);
}

static void run(const char *how) {
    static char output[4096];
    setvbuf(stdout, output, _IOFBF, sizeof output);
    uint64_t rng = 2024;
    size_t total = 0;
    for (int i = 0; i < BLOCKS; i++) {
        size_t bytes = size_pick(&rng);
        blocks[i] = malloc(bytes);
        if (blocks[i] == NULL) fail("malloc gave NULL after %zu bytes", total);
        memset(blocks[i], i, bytes);
        total += bytes;
    }
    size_t peak_kib = status_kib("VmRSS:");
    sem_post(&start_helper);
    free_part(0);
    while (sem_wait(&helper_done) != 0) continue;
    uint64_t freed_ns = now_ns();
    if (strcmp(how, "trim") == 0) malloc_trim(0);
    printf("total_kib=%zu peak_kib=%zu\n", total / KIB, peak_kib);
    look(strcmp(how, "timer") == 0 ? LOOKS : 1, freed_ns);
    heap_check("after the comeback");
}

/* One large block, and silence before and after it is freed. Thousands of small blocks have the maintenance thread started, as in any program that
 * gets this large. */
static void run_silence(void) {
    static char output[4096];
    setvbuf(stdout, output, _IOFBF, sizeof output);
    void *block = malloc((size_t)1 << 30);
    REQUIRE(block != NULL);
    memset(block, 1, (size_t)1 << 30);
    for (int i = 0; i < BLOCKS; i++) blocks[i] = malloc(2000);
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    size_t peak_kib = status_kib("VmRSS:");
    sleep_ms(4000);
    printf("total_kib=%u peak_kib=%zu\nms=0 kib=%zu\n", 1u << 20, peak_kib, status_kib("VmRSS:"));
    uint64_t freed_ns = now_ns();
    free(block);
    look(LOOKS, freed_ns);
}

static void run_with_helper(const char *how) {
    REQUIRE(sem_init(&start_helper, 0, 0) == 0 && sem_init(&helper_done, 0, 0) == 0);
    pthread_t id;
    REQUIRE(pthread_create(&id, NULL, helper, NULL) == 0);
    run(how);
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "timer";
    if (strcmp(how, "silence") == 0) {
        run_silence();
        return 0;
    }
    run_with_helper(how);
    if (argc > 2 && strcmp(argv[2], "child") == 0) {
        fflush(stdout);
        pid_t pid = fork();
        REQUIRE(pid >= 0);
        if (pid == 0) {
            puts("child");
            run_with_helper(how);
            fflush(stdout);
            _exit(0);
        }
        int status = 0;
        REQUIRE(waitpid(pid, &status, 0) == pid);
        if (status != 0) fail("the child ended with status %#x", status);
    }
    return 0;
}
