/*
 * static_names.c - the same as linked_names.c with libstrata.a inside the program.
 */
#include "stress/names.h"

int main(void) {
    names_run();
    puts("linked");
    return 0;
}
