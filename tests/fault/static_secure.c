/*
 * static_secure.c - a program with strata inside, for the suite to run with raised privileges: what it is told to write must not be written.
 */
#include "stress/support.h"

#include <sys/auxv.h>

int main(void) {
    void *block = malloc(100 * MIB);
    char line[64];
    int length = snprintf(line, sizeof line, "secure=%lu given=%d\n", getauxval(AT_SECURE), block != NULL);
    REQUIRE(write(STDOUT_FILENO, line, (size_t)length) == length); /* without stdio, which wants memory of its own */
    free(block);
    return 0;
}
