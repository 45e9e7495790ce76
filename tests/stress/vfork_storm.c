/*
 * vfork_storm.c - children of vfork, which run in their parent's memory, allocate and free while other threads do.
 *
 * vfork_storm VFORKS THREADS. The kernel doesn't restart such a child's sequences, and what the parent's structure says of its CPU is
 * no longer true: who trusts it takes the rounds of another thread under its hands. A child sees that its blocks keep what it wrote; the last
 * ones stay for the parent, as do the blocks that it was given. Some children vfork themselves. Some, and their parent after them, make blocks that
 * get idle pages by moves, for which a process has a file: no more files are open at the end.
 */
#include "stress/support.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>

enum { RING = 64, CHILD_BLOCKS = 200, LEFT = 16, SIZE_MAX_USED = 2000, NESTED_EACH = 8, LARGE_EACH = 16, LARGE = 64, FILES_MORE = 4, ROUNDS = 5 };

static atomic_bool stop;

/* What a child leaves: in memory that both have. */
static struct left {
    void *block;
    size_t size;
} left[LEFT];
static size_t deeper;

static void *churn(void *argument) {
    uint64_t rng = (uintptr_t)argument * 77 + 1;
    struct left ring[RING] = {{NULL, 0}};
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        struct left *entry = &ring[rng_next(&rng) % RING];
        if (entry->block != NULL) block_delete(entry->block, entry->size, (uintptr_t)argument, "a thread's");
        entry->size = rng_between(&rng, 1, SIZE_MAX_USED);
        entry->block = block_new(entry->size, (uintptr_t)argument, "a thread");
    }
    for (size_t i = 0; i < RING; i++)
        if (ring[i].block != NULL) block_delete(ring[i].block, ring[i].size, (uintptr_t)argument, "a thread's");
    return NULL;
}

static void child_work(uint64_t seed, uint64_t tag) {
    void *blocks[CHILD_BLOCKS];
    size_t sizes[CHILD_BLOCKS];
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < CHILD_BLOCKS; i++) {
            sizes[i] = rng_between(&seed, 1, SIZE_MAX_USED);
            blocks[i] = block_new(sizes[i], tag, "a child");
        }
        for (int i = 0; i < CHILD_BLOCKS; i++) block_delete(blocks[i], sizes[i], tag, "a child's");
    }
}

/* What short blocks leave behind goes to longer ones. */
static void large_work(size_t number) {
    static char *blocks[2 * LARGE], *longer[LARGE];
    for (size_t i = 0; i < 2 * LARGE; i++) {
        REQUIRE((blocks[i] = malloc((18 + i * number % 17) * 4096)) != NULL);
        memset(blocks[i], 1, 18 * (size_t)4096);
    }
    for (size_t i = 0; i < 2 * LARGE; i += 2) free(blocks[i]);
    for (size_t i = 0; i < LARGE; i++) {
        REQUIRE((longer[i] = malloc((74 + i * number % 13 * 10) * 4096)) != NULL);
        memset(longer[i], 1, 74 * (size_t)4096);
    }
    for (size_t i = 1; i < 2 * LARGE; i += 2) free(blocks[i]);
    for (size_t i = 0; i < LARGE; i++) free(longer[i]);
}

static size_t open_files(void) {
    size_t count = 0;
    DIR *directory = opendir("/proc/self/fd");
    REQUIRE(directory != NULL);
    while (readdir(directory) != NULL) count++;
    REQUIRE(closedir(directory) == 0);
    return count;
}

static void wait_for(pid_t pid) {
    int status = 0;
    if (pid < 0) fail("vfork: errno %d", errno);
    REQUIRE(waitpid(pid, &status, 0) == pid);
    if (status != 0) fail("a child ended with status %x", (unsigned)status);
}

/* Not inlined: a frame of its own for what the child of the child overwrites. */
__attribute__((noinline)) static void nested(size_t number) {
    pid_t pid = vfork();
    if (pid == 0) {
        deeper++;
        child_work(number * 5 + 3, number + 2);
        _exit(0);
    }
    wait_for(pid);
}

__attribute__((noinline)) static void one(size_t number) {
    pid_t pid = vfork();
    if (pid == 0) {
        for (int i = 0; i < LEFT; i++) block_delete(left[i].block, left[i].size, number, "the parent's");
        child_work(number * 3 + 1, number + 1);
        if (number % LARGE_EACH == 0) large_work(number / LARGE_EACH + 1);
        if (number % NESTED_EACH == 0) {
            nested(number);
            child_work(number * 3 + 2, number + 1);
        }
        for (int i = 0; i < LEFT; i++) left[i].block = block_new(left[i].size, number + 1, "a child, to stay");
        _exit(0);
    }
    wait_for(pid);
}

int main(int argc, char **argv) {
    size_t vforks = argument_number(argc, argv, 1, 1000), threads = argument_number(argc, argv, 2, 3);
    pthread_t ids[16];
    REQUIRE(threads <= 16);
    for (int i = 0; i < LEFT; i++) left[i] = (struct left){block_new(100 + 10 * (size_t)i, 0, "the parent"), 100 + 10 * (size_t)i};
    for (size_t i = 0; i < threads; i++) REQUIRE(pthread_create(&ids[i], NULL, churn, (void *)(uintptr_t)(i + 1000000)) == 0);
    large_work(3);
    size_t files = open_files();
    for (size_t number = 0; number < vforks; number++) {
        one(number);
        if (number % LARGE_EACH == 0) large_work(number / LARGE_EACH + 2);
    }
    if (open_files() > files + FILES_MORE) fail("%zu files are open, where %zu were", open_files(), files);
    atomic_store(&stop, true);
    for (size_t i = 0; i < threads; i++) REQUIRE(pthread_join(ids[i], NULL) == 0);
    for (int i = 0; i < LEFT; i++) block_delete(left[i].block, left[i].size, vforks, "the last child's");
    heap_check("after the vforks");
    printf("vforks=%zu nested=%zu\n", vforks, deeper);
    return 0;
}
