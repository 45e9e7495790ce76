/*
 * api_fork.c - forks a process whose threads are inside strata all the time, through strata_* only: each child must find every lock free.
 *
 * Two threads allocate and free, one takes statistics, which hold a lock of their own while they are written. Each child does all of it,
 * and forks once more. A child that waits for a lock of a thread that it does not have ends by SIGALRM. api_fork [FORKS] forks so often.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <strata/malloc.h>
#include <strata/strata.h>

enum { DEFAULT_FORKS = 150, BLOCKS = 32, CHILD_SECONDS = 60 };

static uint32_t stop;
static int null_fd;

#define EXPECT(condition)                                                                        \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            dprintf(STDERR_FILENO, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            _exit(1);                                                                            \
        }                                                                                        \
    } while (0)

/* Small objects, runs and blocks of their own. */
static void churn(unsigned seed) {
    char *blocks[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++) {
        size_t bytes = i % 16 == 0 ? 300000 : i % 4 == 0 ? 20000 : (seed + i) * 37 % 1000 + 1;
        blocks[i] = strata_malloc(bytes);
        EXPECT(blocks[i] != NULL);
        blocks[i][0] = blocks[i][bytes - 1] = (char)i;
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        EXPECT(blocks[i][0] == (char)i);
        strata_free(blocks[i]);
    }
}

static void *allocate(void *argument) {
    for (unsigned turn = 0; __atomic_load_n(&stop, __ATOMIC_ACQUIRE) == 0; turn++) {
        churn(turn);
        if (turn % 64 == 0) strata_release(1 << 20);
    }
    return argument;
}

static void *observe(void *argument) {
    while (__atomic_load_n(&stop, __ATOMIC_ACQUIRE) == 0) EXPECT(strata_stats_json(null_fd) == 0);
    return argument;
}

static void child(unsigned number) {
    alarm(CHILD_SECONDS);
    churn(number);
    EXPECT(strata_stats_table(null_fd) == 0);
    strata_release(0);
    EXPECT(strata_check() == NULL);
}

static void await(pid_t pid, unsigned number) {
    int status;
    EXPECT(waitpid(pid, &status, 0) == pid);
    if (status == 0) return;
    dprintf(STDERR_FILENO, "child %u: status 0x%x (0xe: it waited for a lock)\n", number, (unsigned)status);
    _exit(1);
}

static pid_t fork_child(unsigned number, unsigned generations) {
    pid_t pid = fork();
    EXPECT(pid >= 0);
    if (pid != 0) return pid;
    child(number);
    if (generations > 1) await(fork_child(number, generations - 1), number);
    _exit(0);
}

int main(int argc, char **argv) {
    unsigned forks = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : DEFAULT_FORKS;
    EXPECT(forks > 0);
    null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    EXPECT(null_fd >= 0);
    churn(0); /* the heap stands before there are threads, as where malloc is strata's */
    pthread_t threads[3];
    for (unsigned i = 0; i < 3; i++) EXPECT(pthread_create(&threads[i], NULL, i == 2 ? observe : allocate, NULL) == 0);
    for (unsigned i = 0; i < forks; i++) await(fork_child(i, 2), i);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < 3; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
    EXPECT(strata_check() == NULL);
    printf("forked %u times, each child once more\n", forks);
    return 0;
}
