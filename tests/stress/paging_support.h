/*
 * paging_support.h - what the programs that test paged blocks where something is wrong share: a paging in a file of its own, signals that are
 * expected, and tests that run in a child.
 */
#ifndef STRATA_TESTS_STRESS_PAGING_SUPPORT_H
#define STRATA_TESTS_STRESS_PAGING_SUPPORT_H

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <strata/paging.h>

#include "concurrency/concurrency.h"

enum { PAGES = 256, LIMIT = 64 };

static size_t page_bytes;
static char path[64];
static unsigned way; /* a flag that all have */

static inline struct strata_paging_config usual(void) {
    return (struct strata_paging_config){.path = path, .flags = way, .bytes = PAGES * page_bytes, .resident_limit_bytes = LIMIT * page_bytes};
}
static inline struct strata_paging *open_as(const struct strata_paging_config *config) {
    struct strata_paging *paging = NULL;
    enum strata_paging_status status = strata_paging_open(config, &paging);
    if (status != STRATA_PAGING_OK) fprintf(stderr, "open: %s\n", strata_paging_status_text(status));
    EXPECT(status == STRATA_PAGING_OK);
    return paging;
}
static inline struct strata_paging *open_new(void) {
    struct strata_paging_config config = usual();
    unlink(path);
    return open_as(&config);
}
static inline char *page_of(struct strata_paging *paging, unsigned page) { return (char *)strata_paging_address(paging) + page * page_bytes; }
static inline struct strata_paging_stats stats_of(struct strata_paging *paging) {
    struct strata_paging_stats stats;
    EXPECT(strata_paging_stats_get(paging, &stats) == STRATA_PAGING_OK);
    return stats;
}
static inline void discard(struct strata_paging *paging) {
    EXPECT(strata_paging_check(paging) == NULL);
    EXPECT(strata_paging_close(paging, STRATA_PAGING_DISCARD) == STRATA_PAGING_OK);
}
static inline void fill(struct strata_paging *paging, char salt) {
    for (unsigned i = 0; i < PAGES; i++) memset(page_of(paging, i), (char)(i + (unsigned)salt), page_bytes);
}
static inline char file_byte(unsigned page) {
    char byte = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    EXPECT(file >= 0 && pread(file, &byte, 1, (off_t)(page * page_bytes + 5)) == 1);
    close(file);
    return byte;
}

/* ------------------------------------------------------------------ signals that are expected */

static sigjmp_buf place;
static volatile sig_atomic_t expected;
static inline void jump(int signal) {
    struct sigaction none = {.sa_handler = SIG_DFL};
    if (expected) siglongjmp(place, signal);
    sigaction(signal, &none, NULL); /* the same access ends the process */
}
/* Once, at the start: strata's own handler of SIGSEGV comes in front of it, and passes on what is not its own. */
static inline void expect_signals(void) {
    struct sigaction action = {.sa_handler = jump, .sa_flags = SA_NODEFER};
    EXPECT(sigaction(SIGBUS, &action, NULL) == 0 && sigaction(SIGSEGV, &action, NULL) == 0);
}
/* The signal that touching the address raises; 0: none. */
static inline int touch(volatile char *address) {
    int signal = sigsetjmp(place, 1);
    expected = true;
    if (signal == 0) (void)*address;
    expected = false;
    return signal;
}

static inline void refuse(struct strata_paging_config config, enum strata_paging_status wanted, int error) {
    struct strata_paging *paging = (struct strata_paging *)(void *)&config;
    errno = 0;
    EXPECT(strata_paging_open(&config, &paging) == wanted);
    EXPECT(errno == error);
    EXPECT((void *)paging == (void *)&config);
}

/* Runs the body in a child, which must end well. */
static inline void in_child(void (*body)(void)) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        body();
        _exit(7);
    }
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    unlink(path);
}

#endif
