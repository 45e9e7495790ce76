/*
 * lifecycle.c - calls of malloc before any constructor and after the last destructor of the program, and blocks that live from one to
 * the other.
 *
 * The loader runs preinit functions before every constructor, strata's included. Constructors of the lowest priority run first, such
 * destructors last. Each step says its name by write(2), as stdio may be gone; the suite expects them all.
 */
#include "stress/support.h"

enum { STEPS = 6 };
static void *kept[STEPS];

static void say(const char *text) {
    ssize_t written = write(STDOUT_FILENO, text, strlen(text));
    (void)written;
}

/* Allocates a block for later, works, and frees what an earlier step kept. */
static void step(int number, const char *name) {
    kept[number] = block_new(1000u + (unsigned)number, 1, name);
    for (size_t bytes = 1; bytes < 200000; bytes = bytes * 3 + 1) {
        void *block = calloc(1, bytes);
        REQUIRE(block != NULL);
        block = realloc(block, bytes * 2);
        REQUIRE(block != NULL);
        free(block);
    }
    for (int i = 0; i < number - 2; i++) {
        if (kept[i] == NULL) continue;
        block_delete(kept[i], 1000u + (unsigned)i, 1, name);
        kept[i] = NULL;
    }
    say(name);
    say("\n");
}

static void before_constructors(int argc, char **argv, char **environment) {
    (void)argc;
    (void)argv;
    (void)environment;
    step(0, "preinit");
}
__attribute__((section(".preinit_array"), used)) static void (*const preinit)(int, char **, char **) = before_constructors;

__attribute__((constructor(101))) static void early(void) { step(1, "constructor"); }
__attribute__((destructor(101))) static void late(void) {
    step(5, "destructor");
    for (int i = 0; i < STEPS; i++)
        if (kept[i] != NULL) block_delete(kept[i], 1000u + (unsigned)i, 1, "destructor");
    heap_check("in the last destructor");
}
static void at_exit(void) { step(4, "atexit"); }

int main(void) {
    step(2, "main");
    REQUIRE(atexit(at_exit) == 0);
    step(3, "main end");
    return 0;
}
