/*
 * linked_conf.c - a program that brings options of its own: one that is unknown, one with a bad value, one that shows in the statistics.
 */
#include "stress/support.h"

#include <strata/strata.h>

const char *strata_conf = "from_program:1,thp:sometimes,soft_limit:96M";

int main(void) {
    free(malloc(100));
    puts("runs");
    return 0;
}
