/*
 * movable_pages.c - a store of pages that strata may move, and a device buffer of 2 MiB that can be had among them at any time.
 *
 *     cc movable_pages.c -o movable_pages $(pkg-config --cflags --libs strata)
 *     ./movable_pages
 *
 * The store keeps handles in place of pointers. It fills all of its memory, and drops two pages of three, as such stores do: much is free, and
 * nowhere are two megabytes of it together. A request for a buffer then has strata move pages out of the way; the store finds them where they are
 * when it next asks. One page is locked all the while, as a device may be writing to it, and stays.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strata/handle.h>
#include <strata/zone_compact.h>

enum { ZONE_BYTES = 32 << 20, PAGE_BYTES = 4096, PAGES_MAX = ZONE_BYTES / PAGE_BYTES, LOCKED = 300 };

static struct strata_zone *zone;
static struct strata_handles *handles;
static strata_handle pages[PAGES_MAX];

static void must(int status, const char *text, const char *what) {
    if (status == 0) return;
    fprintf(stderr, "movable_pages: %s: %s\n", what, text);
    exit(1);
}
static void zone_must(enum strata_zone_status status, const char *what) { must((int)status, strata_zone_status_text(status), what); }
static void handle_must(enum strata_handle_status status, const char *what) { must((int)status, strata_handle_status_text(status), what); }

static void fill(strata_handle page, unsigned number) {
    void *address;
    handle_must(strata_handle_write(handles, page, &address), "a page to write");
    for (size_t i = 0; i < PAGE_BYTES / sizeof number; i++) ((unsigned *)address)[i] = number;
    handle_must(strata_handle_write_end(handles, page), "the end of writing");
}

static unsigned is_wrong(strata_handle page, unsigned number) {
    const void *address;
    unsigned wrong = 0;
    handle_must(strata_handle_read(handles, page, &address), "a page to read");
    for (size_t i = 0; i < PAGE_BYTES / sizeof number; i++) wrong |= ((const unsigned *)address)[i] != number;
    handle_must(strata_handle_read_end(handles, page), "the end of reading");
    return wrong;
}

int main(void) {
    const struct strata_zone_config config = {.name = "store", .backend = STRATA_ZONE_MEMFD, .bytes = ZONE_BYTES};
    zone_must(strata_zone_create(&config, &zone), "the zone");
    if (strata_zone_frame_bytes(zone) > PAGE_BYTES) return puts("pages of 4 KiB are too small for this system"), 0;
    handle_must(strata_handles_create(zone, 0, &handles), "the handles");
    unsigned count = 0;
    while (count < PAGES_MAX && strata_handle_alloc(handles, PAGE_BYTES, &pages[count]) == STRATA_HANDLE_OK) fill(pages[count], count), count++;
    for (unsigned i = 0; i < count; i++)
        if (i % 3 != 0) handle_must(strata_handle_free(handles, pages[i]), "a page to drop");

    void *device;
    handle_must(strata_handle_lock(handles, pages[LOCKED], &device), "a page for the device");
    struct strata_zone_indices indices;
    zone_must(strata_zone_indices_get(zone, 9, &indices), "the indices");
    uint64_t buffers[4];
    unsigned had = 0, wrong = 0;
    while (had < 4 && strata_zone_alloc(zone, 512, STRATA_ZONE_UNMOVABLE, &buffers[had]) == STRATA_ZONE_OK) {
        memset(strata_zone_address(zone, buffers[had]), 0xff, 512 * PAGE_BYTES);
        had++;
    }
    for (unsigned i = 0; i < count; i += 3) wrong += is_wrong(pages[i], i);

    struct strata_handles_stats stats;
    struct strata_handle_info info;
    handle_must(strata_handles_stats_get(handles, &stats), "the figures");
    handle_must(strata_handle_query(handles, pages[LOCKED], &info), "the locked page");
    wrong += info.moves != 0 || ((unsigned *)device)[0] != LOCKED;
    printf("pages=%llu unusable_before=%.2f buffers=%u moved=%s locked_moves=%u wrong=%u\n", (unsigned long long)stats.handles, indices.unusable, had,
           stats.moves != 0 ? "yes" : "no", info.moves, wrong);
    handle_must(strata_handle_unlock(handles, pages[LOCKED]), "the end of the device");
    handle_must(strata_handles_destroy(handles), "the end of the handles");
    zone_must(strata_zone_destroy(zone), "the end of the zone");
    return wrong != 0 || had != 4;
}
