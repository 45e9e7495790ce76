/*
 * give_back.c - a program that knows its quiet moments: it builds a large index, drops it, and hands the memory back at once.
 *
 *     cc give_back.c -o give_back $(pkg-config --cflags --libs strata)
 *     ./give_back
 *     STRATA_CONF=stats:table ./give_back
 *
 * It shows options that a program brings along, the figures of the heap, release without waiting for decay, and the self-check.
 * Linked to libstrata, its malloc is strata's: nothing in it says so but the calls about the heap as a whole.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strata/malloc.h>

#define ENTRIES 200000
#define ENTRY_BYTES_MAX 400

/* No huge pages, and idle pages stay for ten seconds unless this program says otherwise. STRATA_CONF in the environment wins. */
const char *strata_conf = "thp:never,decay_ms:10000";

static char *entries[ENTRIES];

static void show(const char *moment) {
    struct strata_mallinfo2 info = strata_mallinfo2();
    printf("%-8s in_use_bytes=%zu idle_bytes=%zu\n", moment, info.uordblks + info.hblkhd, info.keepcost);
}

static int build_index(void) {
    for (size_t i = 0; i < ENTRIES; i++) {
        size_t bytes = 16 + i * 7919 % ENTRY_BYTES_MAX;
        entries[i] = malloc(bytes);
        if (entries[i] == NULL) return -1;
        memset(entries[i], (int)(i & 0x7f), bytes);
    }
    return 0;
}

static void drop_index(void) {
    for (size_t i = 0; i < ENTRIES; i++) {
        free(entries[i]);
        entries[i] = NULL;
    }
}

int main(void) {
    show("start");
    if (build_index() != 0) {
        perror("give_back: building the index");
        return EXIT_FAILURE;
    }
    show("built");
    drop_index();
    show("dropped");
    /* A quiet moment has come: nothing large will be built soon. One MiB may stay for what comes next. */
    size_t released_bytes = strata_release((size_t)1 << 20);
    show("released");
    printf("handed back %zu bytes\n", released_bytes);

    const char *broken = strata_check();
    if (broken != NULL) {
        fprintf(stderr, "give_back: the heap is damaged: %s\n", broken);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
