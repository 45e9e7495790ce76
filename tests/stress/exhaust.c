/*
 * exhaust.c - takes memory until there is none, in several sizes, and expects NULL and ENOMEM, no lost memory, and a heap that works on.
 *
 * exhaust LEAST_MIB MOST_MIB: how much each size must yield at least and may yield at most. The suite sets the limit: RLIMIT_AS or
 * strata's hard_limit. Blocks are chained through their first word, so that the program needs no memory of its own.
 */
#include "stress/support.h"

#include <limits.h>
#include <malloc.h>
#include <stdbool.h>

enum { CYCLES = 2, SMALL_RESERVE = 64 };

struct link {
    struct link *next;
    unsigned char text[];
};

static void link_check(const struct link *link, size_t bytes) { pattern_check(link->text, bytes - sizeof *link, bytes, "exhaust"); }

static struct link *link_push(struct link *chain, void *block, size_t bytes) {
    struct link *link = block;
    link->next = chain;
    pattern_fill(link->text, bytes - sizeof *link, bytes);
    return link;
}

/* Every way to ask for memory says no in the same manner. */
static void expect_refusal(struct link *chain, size_t bytes) {
    errno = 0;
    REQUIRE(calloc(1, bytes) == NULL && errno == ENOMEM);
    errno = 0;
    REQUIRE(aligned_alloc(64, (bytes + 63) & ~(size_t)63) == NULL && errno == ENOMEM);
    void *untouched = &errno;
    REQUIRE(posix_memalign(&untouched, 64, bytes) == ENOMEM && untouched == (void *)&errno);
    errno = 0;
    REQUIRE(realloc(chain, bytes + (size_t)512 * MIB) == NULL && errno == ENOMEM);
    link_check(chain, bytes);
    errno = 0;
    REQUIRE(realloc(chain, (size_t)PTRDIFF_MAX) == NULL && errno == ENOMEM);
    link_check(chain, bytes);
}

/* Never more than `most`: a limit that does not hold must not cost the machine its memory. */
static size_t take_all(struct link **chain, size_t bytes, size_t most) {
    size_t count = 0;
    for (;; count++) {
        errno = 0;
        void *block = malloc(bytes);
        if (block == NULL) break;
        *chain = link_push(*chain, block, bytes);
        if (count * bytes > most) fail("more than %zu bytes in blocks of %zu: there is no limit", most, bytes);
    }
    if (errno != ENOMEM) fail("malloc(%zu) gave NULL with errno %d", bytes, errno);
    return count;
}

/* Frees each block, or every second one. */
static void give(struct link **chain, size_t bytes, bool all) {
    struct link **place = chain;
    for (bool turn = true; *place != NULL; turn = !turn) {
        struct link *link = *place;
        link_check(link, bytes);
        if (!all && turn) {
            place = &link->next;
            continue;
        }
        *place = link->next;
        free(link);
    }
}

static void exhaust_with(size_t bytes, size_t least, size_t most) {
    size_t first = 0;
    for (int cycle = 0; cycle < CYCLES; cycle++) {
        struct link *chain = NULL;
        size_t count = take_all(&chain, bytes, most);
        if (count * bytes < least) fail("cycle %d: %zu blocks of %zu bytes fit", cycle, count, bytes);
        expect_refusal(chain, bytes);
        if (cycle == 0) first = count;
        /* A twentieth may be stuck in other sizes. */
        if (count < first - first / 20) fail("cycle %d: %zu blocks of %zu bytes, %zu at first: memory is lost", cycle, count, bytes, first);
        give(&chain, bytes, false);
        heap_check("with every second block free");
        size_t again = take_all(&chain, bytes, most);
        if (again < count / 2 - count / 20) fail("cycle %d: of %zu blocks freed %zu came back", cycle, count / 2, again);
        give(&chain, bytes, true);
        heap_check("with all free");
    }
}

int main(int argc, char **argv) {
    size_t least = argument_number(argc, argv, 1, 24) * MIB, most = argument_number(argc, argv, 2, 64) * MIB;
    void *reserve[SMALL_RESERVE];
    for (int i = 0; i < SMALL_RESERVE; i++) reserve[i] = block_new(100, 3, "reserve");
    static const size_t sizes[] = {48, 1000, 5000, 40000, 100000, 3 * MIB, 1000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) exhaust_with(sizes[i], least, most);
    for (int i = 0; i < SMALL_RESERVE; i++) block_delete(reserve[i], 100, 3, "reserve");
    puts("works on");
    return 0;
}
