/*
 * linked_names.c - a program that is linked to libstrata.so and uses every function by its own name, mixed with the plain ones: the same heap.
 */
#include "stress/names.h"

int main(void) {
    names_run();
    puts("linked");
    return 0;
}
