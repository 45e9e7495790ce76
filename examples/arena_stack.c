/*
 * arena_stack.c - memory from simple parts: four arenas, each of which imports from the one below and adds one thing.
 *
 *     cc arena_stack.c -o arena_stack $(pkg-config --cflags --libs strata)
 *     ./arena_stack
 *
 *     messages   cuts pages into slots of 128 bytes, for the program
 *     pages      memory that can be written: imports addresses, and makes them accessible on the way up, inaccessible on the way down
 *     addresses  has a limit on what it takes from the window, as one of several users of it
 *     window     256 MiB of address space, reserved and nothing else
 *
 * All of the work is in one pair of import functions; the arenas do the rest. A message that is allocated may make all levels move, or none; when
 * the last message of a page is freed, its page goes back, and so on down. ("Magazines and Vmem" builds the memory of a kernel in this way, in its
 * Appendix A.)
 */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <strata/arena.h>

#define MIB ((size_t)1 << 20)
#define WINDOW_BYTES (256 * MIB)
#define LIMIT_BYTES (8 * MIB)
#define PAGE_BYTES 65536 /* a page of any system, or several */
#define MESSAGE_BYTES 128
#define MESSAGES 40000

static struct strata_arena *window, *addresses, *pages, *messages;
static size_t accessible_bytes;

static void fail(const char *what) {
    fprintf(stderr, "arena_stack: %s\n", what);
    exit(EXIT_FAILURE);
}

/* From addresses to memory. */
static enum strata_arena_status map(void *context, uint64_t size, unsigned flags, uint64_t *start, uint64_t *got) {
    struct strata_arena *from = context;
    (void)flags;
    enum strata_arena_status status = strata_arena_alloc(from, size, 0, start);
    if (status != STRATA_ARENA_OK) return status;
    *got = size;
    if (mprotect((void *)(uintptr_t)*start, size, PROT_READ | PROT_WRITE) != 0) {
        strata_arena_free(from, *start, size);
        return STRATA_ARENA_NO_SPACE;
    }
    accessible_bytes += size;
    return STRATA_ARENA_OK;
}

/* And back: a new mapping over the old one drops its contents. */
static void unmap(void *context, uint64_t start, uint64_t size) {
    struct strata_arena *from = context;
    if (mmap((void *)(uintptr_t)start, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        fail("can't unmap");
    strata_arena_free(from, start, size);
    accessible_bytes -= size;
}

static void show(const char *moment) {
    struct strata_arena *const stack[] = {window, addresses, pages, messages};
    printf("%-6s", moment);
    for (unsigned i = 0; i < 4; i++) {
        struct strata_arena_stats stats;
        if (strata_arena_stats_get(stack[i], &stats) != STRATA_ARENA_OK || strata_arena_check(stack[i]) != NULL) fail("an arena is broken");
        printf(" %s=%llu", stats.name, (unsigned long long)stats.allocated);
    }
    printf(" accessible=%zu\n", accessible_bytes);
}

int main(void) {
    static uint64_t held[LIMIT_BYTES / MESSAGE_BYTES + 1];
    void *base = mmap(NULL, WINDOW_BYTES + PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) fail("no address space");
    uint64_t start = ((uint64_t)(uintptr_t)base + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;

    if (strata_arena_create("window", start, WINDOW_BYTES, PAGE_BYTES, STRATA_ARENA_INSTANT_FIT, &window) != STRATA_ARENA_OK ||
        strata_arena_create("addresses", 0, 0, PAGE_BYTES, STRATA_ARENA_INSTANT_FIT, &addresses) != STRATA_ARENA_OK ||
        strata_arena_create("pages", 0, 0, PAGE_BYTES, STRATA_ARENA_INSTANT_FIT, &pages) != STRATA_ARENA_OK ||
        strata_arena_create("messages", 0, 0, MESSAGE_BYTES, STRATA_ARENA_INSTANT_FIT, &messages) != STRATA_ARENA_OK)
        fail("no arenas");
    if (strata_arena_set_source(addresses, window) != STRATA_ARENA_OK || strata_arena_set_limit(addresses, LIMIT_BYTES) != STRATA_ARENA_OK ||
        strata_arena_set_import(pages, map, unmap, addresses) != STRATA_ARENA_OK || strata_arena_set_source(messages, pages) != STRATA_ARENA_OK)
        fail("the arenas can't be stacked");
    show("start");

    for (unsigned i = 0; i < MESSAGES; i++) {
        if (strata_arena_alloc(messages, MESSAGE_BYTES, 0, &held[i]) != STRATA_ARENA_OK) fail("no message");
        memset((void *)(uintptr_t)held[i], (int)(i & 0x7f), MESSAGE_BYTES);
    }
    show("sent");
    for (unsigned i = 0; i < MESSAGES; i++) {
        const char *text = (const char *)(uintptr_t)held[i];
        if (text[0] != (char)(i & 0x7f) || text[MESSAGE_BYTES - 1] != text[0]) fail("a message was overwritten");
        if (strata_arena_free(messages, held[i], MESSAGE_BYTES) != STRATA_ARENA_OK) fail("a message can't be freed");
    }
    show("read");
    if (accessible_bytes != 0) fail("memory was not given back");

    /* The limit of one level is felt at the top, as a status. */
    enum strata_arena_status status;
    unsigned count = 0;
    while ((status = strata_arena_alloc(messages, MESSAGE_BYTES, 0, &held[count])) == STRATA_ARENA_OK) count++;
    printf("%u messages, then: %s\n", count, strata_arena_status_text(status));
    if (count != LIMIT_BYTES / MESSAGE_BYTES || status != STRATA_ARENA_NO_SPACE) fail("the limit does not hold");
    show("full");
    while (count-- != 0)
        if (strata_arena_free(messages, held[count], MESSAGE_BYTES) != STRATA_ARENA_OK) fail("a message can't be freed");
    show("empty");

    /* From the top down: nobody is taken away from under another. */
    if (strata_arena_destroy(window) != STRATA_ARENA_BUSY) fail("the bottom could be taken away");
    if (strata_arena_destroy(messages) != STRATA_ARENA_OK || strata_arena_destroy(pages) != STRATA_ARENA_OK ||
        strata_arena_destroy(addresses) != STRATA_ARENA_OK || strata_arena_destroy(window) != STRATA_ARENA_OK)
        fail("something is left");
    return accessible_bytes == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
