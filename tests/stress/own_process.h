/*
 * own_process.h - a case of a test program in a process of its own: the program once more, with the name of the case as its argument.
 */
#ifndef STRATA_TESTS_STRESS_OWN_PROCESS_H
#define STRATA_TESTS_STRESS_OWN_PROCESS_H

#include <sys/wait.h>
#include <unistd.h>

#include "concurrency/concurrency.h"

/* `prepare` (NULL: nothing) is called with `context` in the new process, before the program starts; `conf` is its STRATA_CONF. It must end with 0. */
static inline void run_in_own_process(const char *name, const char *conf, void (*prepare)(const void *), const void *context) {
    EXPECT(getenv("STRATA_TEST_CASE") == NULL); /* a case that the program does not know would start itself without end */
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        EXPECT(setenv("STRATA_CONF", conf, 1) == 0 && setenv("STRATA_TEST_CASE", name, 1) == 0);
        if (prepare != NULL) prepare(context);
        execl("/proc/self/exe", "case", name, (char *)NULL);
        _exit(127);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child);
    if (status != 0) fprintf(stderr, "%s: status %#x\n", name, (unsigned)status);
    EXPECT(status == 0);
}

#endif
