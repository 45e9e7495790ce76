/*
 * api_fork_support.h - what the programs that fork while their threads are inside strata share: an assertion that is safe in a child, and children
 * that fork again, each of which must end in time. A child that waits for a lock of a thread that it does not have ends by SIGALRM.
 */
#ifndef STRATA_TESTS_API_FORK_SUPPORT_H
#define STRATA_TESTS_API_FORK_SUPPORT_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEFAULT_FORKS = 150, CHILD_SECONDS = 60 };

#define EXPECT(condition)                                                                        \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            dprintf(STDERR_FILENO, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            _exit(1);                                                                            \
        }                                                                                        \
    } while (0)

static inline unsigned fork_count(int argc, char **argv) {
    unsigned forks = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : DEFAULT_FORKS;
    EXPECT(forks > 0);
    return forks;
}

/* Forks, runs body(number, generations) in the child, which forks on while `generations` is more than 1, and waits for its good end. */
static inline void fork_and_wait(unsigned number, unsigned generations, void (*body)(unsigned number, unsigned generations)) {
    int status;
    pid_t pid = fork();
    EXPECT(pid >= 0);
    if (pid == 0) {
        alarm(CHILD_SECONDS);
        body(number, generations);
        if (generations > 1) fork_and_wait(number, generations - 1, body);
        _exit(0);
    }
    EXPECT(waitpid(pid, &status, 0) == pid);
    if (status == 0) return;
    dprintf(STDERR_FILENO, "child %u: status 0x%x (0xe: it waited for a lock)\n", number, (unsigned)status);
    _exit(1);
}

#endif
