/*
 * file_extents.c - records of many sizes in one file, which grows when it must and shrinks when it can.
 *
 *     cc file_extents.c -o file_extents $(pkg-config --cflags --libs strata)
 *     ./file_extents FILE
 *
 * The integers are offsets in the file, in blocks of 512 bytes. Nothing of the allocator is in the file: which extents are free is known in memory
 * only. The arena imports by a function that makes the file longer, in large steps. The function that takes back a step whose extents are all gone
 * keeps it for later, and cuts the file as far as its end consists of such steps.
 */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <strata/arena.h>

#define BLOCK 512
#define STEP ((uint64_t)64 * 1024) /* the file grows by so much at least */
#define RECORDS 1000
#define RECORD_BYTES_MAX 5000

struct record {
    uint64_t offset;
    size_t bytes; /* 0: there is none */
};

static struct file {
    int number;
    uint64_t bytes;
    struct strata_arena *holes; /* steps that are not in use, but before the end of the file */
} file;
static struct strata_arena *extents;

static void fail(const char *what) {
    fprintf(stderr, "file_extents: %s\n", what);
    exit(EXIT_FAILURE);
}

static enum strata_arena_status grow(void *context, uint64_t size, unsigned flags, uint64_t *start, uint64_t *got) {
    struct file *of = context;
    (void)flags;
    *got = (size + STEP - 1) / STEP * STEP; /* what the request does not need stays in the arena for others */
    if (strata_arena_alloc(of->holes, *got, STRATA_ARENA_BEST_FIT, start) == STRATA_ARENA_OK) return STRATA_ARENA_OK;
    if (ftruncate(of->number, (off_t)(of->bytes + *got)) != 0) return STRATA_ARENA_NO_SPACE;
    /* The holes' arena gets to know all of the file; what is in use is allocated there. */
    if (strata_arena_add(of->holes, of->bytes, *got) != STRATA_ARENA_OK) return STRATA_ARENA_NO_MEMORY;
    of->bytes += *got;
    return strata_arena_xalloc(of->holes, *got, 0, 0, 0, of->bytes - *got, of->bytes, 0, start);
}

/* A walk goes upwards: the last span that it shows is the end of the file. */
static int note_span(const struct strata_arena_segment *span, void *last) {
    *(struct strata_arena_segment *)last = *span;
    return 1;
}

static void shrink(void *context, uint64_t start, uint64_t size) {
    struct file *of = context;
    strata_arena_free(of->holes, start, size);
    for (;;) {
        struct strata_arena_segment last = {0, 0, 0};
        strata_arena_walk(of->holes, STRATA_ARENA_SPAN, note_span, &last);
        /* BUSY where a part of it is in use, BAD_ARGUMENT where there is none. */
        if (strata_arena_remove(of->holes, last.start, last.size) != STRATA_ARENA_OK) return;
        if (ftruncate(of->number, (off_t)last.start) != 0) fail("can't cut the file");
        of->bytes = last.start;
    }
}

static void put(struct record *record, unsigned number, size_t bytes) {
    static char text[RECORD_BYTES_MAX];
    memset(text, 'a' + (int)(number % 26), bytes);
    record->bytes = bytes;
    if (strata_arena_alloc(extents, bytes, STRATA_ARENA_BEST_FIT, &record->offset) != STRATA_ARENA_OK) fail("no extent");
    if (pwrite(file.number, text, bytes, (off_t)record->offset) != (ssize_t)bytes) fail("can't write");
}

static void verify(const struct record *record, unsigned number) {
    static char text[RECORD_BYTES_MAX];
    if (record->bytes == 0) return;
    if (pread(file.number, text, record->bytes, (off_t)record->offset) != (ssize_t)record->bytes) fail("can't read");
    for (size_t i = 0; i < record->bytes; i++)
        if (text[i] != 'a' + (char)(number % 26)) fail("a record was overwritten");
}

static void drop(struct record *record) {
    if (strata_arena_free(extents, record->offset, record->bytes) != STRATA_ARENA_OK) fail("an extent could not be freed");
    record->bytes = 0;
}

static void show(const char *moment) {
    struct strata_arena_stats stats;
    strata_arena_stats_get(extents, &stats);
    printf("%-8s file_bytes=%llu in_use=%llu extents=%llu\n", moment, (unsigned long long)file.bytes, (unsigned long long)stats.allocated,
           (unsigned long long)stats.segments_allocated);
}

int main(int argc, char **argv) {
    static struct record records[RECORDS];
    if (argc != 2) fail("usage: file_extents FILE");
    file.number = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file.number < 0) fail("can't create the file");
    if (strata_arena_create("holes", 0, 0, BLOCK, STRATA_ARENA_BEST_FIT, &file.holes) != STRATA_ARENA_OK ||
        strata_arena_create("extents", 0, 0, BLOCK, STRATA_ARENA_BEST_FIT, &extents) != STRATA_ARENA_OK ||
        strata_arena_set_import(extents, grow, shrink, &file) != STRATA_ARENA_OK)
        fail("no arenas");

    for (unsigned i = 0; i < RECORDS; i++) put(&records[i], i, 1 + i * 7919u % RECORD_BYTES_MAX);
    show("filled");
    uint64_t filled = file.bytes;
    for (unsigned i = 0; i < RECORDS; i += 2) drop(&records[i]);
    show("half");
    /* Other sizes in the gaps: the file need not grow. */
    for (unsigned i = 0; i < RECORDS; i += 4) put(&records[i], i, 1 + i * 104729u % RECORD_BYTES_MAX);
    show("refilled");
    if (file.bytes != filled) fail("the file grew, though half of it was free");
    for (unsigned i = 0; i < RECORDS; i++) verify(&records[i], i);

    for (unsigned i = RECORDS; i-- != 0;)
        if (records[i].bytes != 0) drop(&records[i]);
    show("empty");
    const char *broken = strata_arena_check(extents);
    if (broken == NULL) broken = strata_arena_check(file.holes);
    if (broken != NULL) fail(broken);
    if (file.bytes != 0) fail("the file is not empty");
    if (strata_arena_destroy(extents) != STRATA_ARENA_OK || strata_arena_destroy(file.holes) != STRATA_ARENA_OK) fail("something is left");
    close(file.number);
    return EXIT_SUCCESS;
}
