/*
 * snapshots.c - incremental snapshots: a table in memory is saved again and again, and each time only the pages that were written to are.
 *
 * Nobody who changes the table keeps account of it. A watch (strata/page_watch.h) tells of the first write to each page since the last snapshot; the
 * pages that it told of are armed again and then appended to a file, each with its number. From that file any moment that was saved can be restored,
 * and the example does so and compares.
 *
 * Build and run: cc -O2 examples/snapshots.c -o snapshots -lstrata -pthread && ./snapshots
 */
#define _GNU_SOURCE 1
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <strata/page.h>
#include <strata/page_watch.h>

#define TABLE_BYTES ((size_t)16 << 20)
#define SNAPSHOTS 8
#define CHANGES 100 /* between two of them */

/* The handler runs on a thread of strata's, and this program's thread waits for it at each first write: atomics order the rest. */
struct tracker {
    char *table;
    struct strata_watch *watch;
    size_t page_bytes, pages;
    unsigned char *changed; /* one for each page */
    FILE *file;
};

static void note_change(const struct strata_watch_event *event, void *argument) {
    struct tracker *tracker = argument;
    if (event->kind == STRATA_WATCH_ENDED) return; /* the table was freed or moved: not in this program */
    __atomic_store_n(&tracker->changed[(size_t)((char *)event->address - tracker->table) / tracker->page_bytes], 1, __ATOMIC_RELEASE);
}

static void check(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "snapshots: %s\n", what);
    exit(1);
}

static void start(struct tracker *tracker) {
    void *table;
    tracker->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    tracker->pages = TABLE_BYTES / tracker->page_bytes;
    enum strata_page_status status = strata_page_alloc(TABLE_BYTES, STRATA_PAGE_ZEROED, &table);
    check(status == STRATA_PAGE_OK, strata_page_status_text(status));
    tracker->table = table;
    tracker->changed = calloc(tracker->pages, 1);
    tracker->file = tmpfile();
    check(tracker->changed != NULL && tracker->file != NULL, "no memory, or no file");
    enum strata_watch_status watched = strata_page_watch(table, TABLE_BYTES, STRATA_WATCH_WRITES, note_change, tracker, &tracker->watch);
    check(watched == STRATA_WATCH_OK, strata_watch_status_text(watched));
}

/* Each record is a page's number and its contents. Armed first and copied then: what is written meanwhile belongs to the next snapshot as well. */
static size_t save(struct tracker *tracker) {
    size_t saved = 0;
    for (size_t i = 0; i < tracker->pages; i++) {
        if (__atomic_exchange_n(&tracker->changed[i], 0, __ATOMIC_ACQUIRE) == 0) continue;
        char *page = tracker->table + i * tracker->page_bytes;
        enum strata_watch_status status = strata_page_rearm(tracker->watch, page, tracker->page_bytes);
        check(status == STRATA_WATCH_OK, strata_watch_status_text(status));
        uint64_t number = i;
        check(fwrite(&number, sizeof number, 1, tracker->file) == 1 && fwrite(page, tracker->page_bytes, 1, tracker->file) == 1, "the file is full");
        saved++;
    }
    return saved;
}

/* The table as it was after `records` pages had been saved. */
static void restore(struct tracker *tracker, char *table, size_t records) {
    uint64_t number;
    rewind(tracker->file);
    memset(table, 0, TABLE_BYTES);
    while (records-- != 0) {
        check(fread(&number, sizeof number, 1, tracker->file) == 1 && number < tracker->pages, "a record is cut short");
        check(fread(table + number * tracker->page_bytes, tracker->page_bytes, 1, tracker->file) == 1, "a page is cut short");
    }
    fseek(tracker->file, 0, SEEK_END);
}

int main(void) {
    struct tracker tracker;
    char *moments[SNAPSHOTS]; /* whole copies, only to compare with */
    size_t records[SNAPSHOTS], total = 0;
    uint64_t random = 88172645463325252u;
    struct strata_watch_info info;
    start(&tracker);
    for (unsigned moment = 0; moment < SNAPSHOTS; moment++) {
        for (unsigned i = 0; i < CHANGES; i++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            tracker.table[random % TABLE_BYTES] = (char)(random >> 56);
        }
        size_t saved = save(&tracker);
        total += saved;
        records[moment] = total;
        moments[moment] = malloc(TABLE_BYTES);
        check(moments[moment] != NULL, "no memory");
        memcpy(moments[moment], tracker.table, TABLE_BYTES);
        printf("snapshot %u: %zu of %zu pages\n", moment, saved, tracker.pages);
        check(saved != 0 && saved <= CHANGES, "more was saved than had changed");
    }
    char *restored = malloc(TABLE_BYTES);
    check(restored != NULL, "no memory");
    for (unsigned moment = SNAPSHOTS; moment-- != 0; free(moments[moment])) {
        restore(&tracker, restored, records[moment]);
        check(memcmp(restored, moments[moment], TABLE_BYTES) == 0, "a snapshot is not what the table was");
    }
    free(restored);
    strata_page_watch_info(tracker.watch, &info);
    printf("%zu pages saved in place of %zu, by %s; %d snapshots restored and compared\n", total, SNAPSHOTS * tracker.pages,
           info.userfaultfd ? "userfaultfd" : "signals", SNAPSHOTS);
    check(info.writes == total, "what was told is not what was saved");
    strata_page_unwatch(tracker.watch);
    check(strata_page_free(tracker.table) == STRATA_PAGE_OK, "the table is not a block");
    fclose(tracker.file);
    free(tracker.changed);
    return 0;
}
