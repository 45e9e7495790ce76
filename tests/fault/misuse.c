/*
 * misuse.c - commits one misuse of the malloc family: misuse CASE. The suite expects strata to end the process with one line.
 *
 * Before the misuse it prints "ADDRESS USABLE": the pointer that is misused, and the usable size of the block that it belongs to (0 for
 * none). A case that is seen at once ends there; one that is seen when the object reaches the slab ends in malloc_trim(0), which sends
 * it there. "survived" is printed by what should not have been reached.
 */
#include "stress/support.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

enum { SMALL = 64, LARGE = 300000, HUGE = 5 << 20 };

static char in_static_memory[256];

/* Out of the compiler's sight, which would warn of all this. */
static char *laundered(void *p) {
    void *volatile copy = p;
    return copy;
}

static void announce(const void *p, size_t usable) {
    char line[64];
    int length = snprintf(line, sizeof line, "%#lx %zu\n", (unsigned long)(uintptr_t)p, usable);
    REQUIRE(write(STDOUT_FILENO, line, (size_t)length) == length);
}

static void free_it(char *p) { free(p); }
static void realloc_it(char *p) { REQUIRE(realloc(p, 1000) != p); }
static void measure_it(char *p) { REQUIRE(malloc_usable_size(p) != 12345); }

static void call_by_name(const char *name, char *p) {
    void (*function)(void *, size_t, size_t); /* the callee takes as many as it knows */
    void *found = strata_function(name);
    REQUIRE(found != NULL);
    memcpy(&function, &found, sizeof function);
    if (strcmp(name, "free_aligned_sized") == 0)
        function(p, 64, SMALL);
    else
        function(p, SMALL, 0);
}
static void free_sized_it(char *p) { call_by_name("free_sized", p); }
static void free_aligned_sized_it(char *p) { call_by_name("free_aligned_sized", p); }
static void delete_it(char *p) { call_by_name("_ZdlPv", p); }
static void delete_sized_it(char *p) { call_by_name("_ZdaPvm", p); }

/* A block of `bytes` and an address `offset` into it. */
static char *inside(size_t bytes, size_t offset) {
    char *block = laundered(malloc(bytes));
    REQUIRE(block != NULL);
    announce(block + offset, malloc_usable_size(block));
    return block + offset;
}

static char *foreign(void *p) {
    free(malloc(100));
    announce(p, 0);
    return laundered(p);
}

static void *free_in_thread(void *p) {
    free(p);
    return NULL;
}

static void free_twice(size_t bytes) {
    char *block = inside(bytes, 0), *again = laundered(block);
    free(block);
    free(again);
}

static void on_abort(int number) {
    (void)number;
    /* What crash reporters do: they should not, but they do. */
    void *report = malloc(5000);
    void *large = malloc(HUGE);
    free(report);
    free(large);
    static const char text[] = "reported\n";
    ssize_t written = write(STDOUT_FILENO, text, sizeof text - 1);
    (void)written;
}

static void run(const char *name) {
    char on_stack[256];
#define CASE(text) else if (strcmp(name, text) == 0)
    if (name[0] == 0) fail("no case");
    CASE("free stack") free_it(foreign(on_stack + 32));
    CASE("free static") free_it(foreign(in_static_memory + 64));
    CASE("free mapping") free_it(foreign(mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)));
    CASE("free low") free_it(foreign((void *)(uintptr_t)32));
    CASE("free high") free_it(foreign((void *)(uintptr_t)0xffffffffffffffc0u));
    CASE("free foreign, reported") {
        REQUIRE(signal(SIGABRT, on_abort) != SIG_ERR);
        free_it(foreign(on_stack + 32));
    }
    CASE("free_sized stack") free_sized_it(foreign(on_stack));
    CASE("free_aligned_sized stack") free_aligned_sized_it(foreign(on_stack));
    CASE("delete stack") delete_it(foreign(on_stack));
    CASE("delete sized stack") delete_sized_it(foreign(on_stack));
    CASE("realloc stack") realloc_it(foreign(on_stack));
    CASE("realloc mapping") realloc_it(foreign(mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)));
    CASE("measure stack") measure_it(foreign(on_stack));
    CASE("free small+1") free_it(inside(SMALL, 1));
    CASE("free small+8") free_it(inside(SMALL, 8));
    CASE("free small+16") {
        free_it(inside(SMALL, 16));
        malloc_trim(0);
    }
    CASE("free middle+16") {
        free_it(inside(5000, 16));
        malloc_trim(0);
    }
    CASE("realloc small+8") realloc_it(inside(SMALL, 8));
    CASE("realloc small+16") realloc_it(inside(SMALL, 16));
    CASE("measure small+8") measure_it(inside(SMALL, 8));
    CASE("free large+1") free_it(inside(LARGE, 1));
    CASE("free large+16") free_it(inside(LARGE, 16));
    CASE("free large+page") free_it(inside(LARGE, 4096));
    CASE("free huge+2M") free_it(inside(HUGE, 2 << 20));
    CASE("free huge+page") free_it(inside(HUGE, 3 * 4096));
    CASE("realloc large+page") realloc_it(inside(LARGE, 4096));
    CASE("measure large+page") measure_it(inside(LARGE, 4096));
    CASE("twice small") {
        free_twice(SMALL);
        malloc_trim(0);
    }
    CASE("twice middle") {
        free_twice(5000);
        malloc_trim(0);
    }
    CASE("twice small, at once") free_twice(SMALL);
    CASE("twice small, two threads") {
        char *block = inside(SMALL, 0), *again = laundered(block);
        pthread_t id;
        free(block);
        REQUIRE(pthread_create(&id, NULL, free_in_thread, again) == 0 && pthread_join(id, NULL) == 0);
        malloc_trim(0);
    }
    CASE("twice small, reported") {
        REQUIRE(signal(SIGABRT, on_abort) != SIG_ERR);
        free_twice(SMALL);
        malloc_trim(0);
    }
    CASE("twice large") free_twice(LARGE);
    CASE("twice huge") free_twice(HUGE);
    CASE("realloc large after free") {
        char *block = inside(LARGE, 0), *again = laundered(block);
        free(block);
        realloc_it(again);
    }
    CASE("free large after it moved") {
        /* A neighbour keeps it from growing in place. */
        char *block = inside(LARGE, 0), *again = laundered(block), *neighbour = malloc(LARGE);
        char *moved = realloc(block, (size_t)64 << 20);
        if (moved == again) fail("the block grew in place: this case needs one that moves");
        free(again);
        free(neighbour);
        free(moved);
    }
    else fail("no such case: %s", name);
#undef CASE
}

int main(int argc, char **argv) {
    if (argc != 2) fail("usage: misuse CASE");
    run(argv[1]);
    puts("survived");
    return 0;
}
