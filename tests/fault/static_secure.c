/*
 * static_secure.c - a program with strata inside, for the suite to run with raised privileges: what it is told to write must not be written.
 */
#include "stress/support.h"

#include <sys/auxv.h>

int main(void) {
    free(malloc(100));
    printf("secure=%lu\n", getauxval(AT_SECURE));
    return 0;
}
