/*
 * huge_pool.h - huge pages of the system's pool for a test: of what there is, or of a pool that the test makes larger while it runs, where it may.
 *
 * Where there are too few, that is said on standard error in one line that begins with NOT RUN, and the test checks the documented refusal instead.
 * Several tests may do so at a time: each adds what it wants, and takes as many off again. One that is killed leaves its pages in the pool.
 */
#ifndef TEST_STRESS_HUGE_POOL_H
#define TEST_STRESS_HUGE_POOL_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#define HUGE_POOL_SETTING "/proc/sys/vm/nr_hugepages"

/* Pages more, or fewer; false: not allowed. Whether they were had is seen in the pool. */
static inline bool huge_pool_change(long pages) {
    char text[32] = "";
    int file = open(HUGE_POOL_SETTING, O_RDWR | O_CLOEXEC);
    bool done = file >= 0 && flock(file, LOCK_EX) == 0 && pread(file, text, sizeof text - 1, 0) > 0;
    if (done) {
        int length = snprintf(text, sizeof text, "%ld", strtol(text, NULL, 10) + pages);
        done = pwrite(file, text, (size_t)length, 0) == length;
    }
    if (file >= 0) (void)close(file); /* and the lock goes */
    return done;
}

/* Pages that nobody has, nor was promised. */
static inline long huge_pool_free(void) {
    char line[128];
    long unused = 0, promised = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        (void)sscanf(line, "HugePages_Free: %ld", &unused);
        (void)sscanf(line, "HugePages_Rsvd: %ld", &promised);
    }
    if (file != NULL) (void)fclose(file);
    return unused - promised;
}

/* True: so many are free. *added: what huge_pool_end takes off again. */
static inline bool huge_pool_begin(long pages, const char *what, long *added) {
    *added = huge_pool_free() < pages && huge_pool_change(pages) ? pages : 0;
    long unused = huge_pool_free();
    if (unused >= pages) return true;
    fprintf(stderr,
            "NOT RUN on huge pages: %s: %ld of %ld pages are free in the system's pool, and it can't be made larger (" HUGE_POOL_SETTING ")\n", what,
            unused, pages);
    return false;
}
static inline void huge_pool_end(long added) {
    if (added != 0 && !huge_pool_change(-added)) fprintf(stderr, "the pool of huge pages stays larger by %ld pages\n", added);
}

#endif
