/*
 * buffer_pool.c - the buffers of a small database in a zone: pages come and go for a long time, and whole superpages can be had in the middle of it.
 *
 *     cc buffer_pool.c -o buffer_pool $(pkg-config --cflags --libs strata)
 *     ./buffer_pool
 *
 * Each buffer is a movable frame, of which the pool is the owner. It never frees one to make room: when an allocation finds none, strata asks it to
 * let the oldest go, and it writes what is dirty to the file. Asked to let a page move, it copies it and notes the new frame. So 2 MiB in one piece,
 * here for a sort, are a plain allocation: strata drops and moves pages out of the way. Readers find a page by its number, not by an address. strata
 * may ask about a page that was just freed, or is not in the table yet: so the pool answers only for the frame that it knows the page by. While
 * the file is read or written the frame is pinned, as for a device; log pages are pinned all the time, and stay where they are.
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <strata/zone_compact.h>
#include <strata/zone_reclaim.h>

enum { SUPERPAGES = 8, SUPERPAGE_FRAMES = 512, PAGE_BYTES = 4096, PAGES = 7000, LOG_PAGES = 16, ROUNDS = 32000, SORTS = 4, RUNS = 2 };

struct page {
    uint64_t frame;
    uint64_t version; /* that its contents must have */
    bool cached, dirty;
};
static struct page pages[PAGES];
static struct strata_zone *zone;
static FILE *file;
static uint64_t moved, evicted, written, wrong;

static void must(enum strata_zone_status status, const char *what) {
    if (status == STRATA_ZONE_OK) return;
    char said[200];
    (void)strata_zone_explain(zone, said, sizeof said);
    fprintf(stderr, "buffer_pool: %s: %s (%s)\n", what, strata_zone_status_text(status), said);
    exit(1);
}

static uint64_t *contents(const struct page *page) { return strata_zone_address(zone, page->frame); }
static bool is_right(const struct page *page) {
    const uint64_t *words = contents(page), number = (uint64_t)(page - pages);
    return words[0] == number && words[1] == page->version && words[PAGE_BYTES / sizeof *words - 1] == number;
}

/* ------------------------------------------------------------------ the owner */

static enum strata_zone_answer move_page(struct strata_zone *its, uint64_t from, uint64_t to, uint64_t frames, uint64_t token, void *context) {
    struct page *page = &((struct page *)context)[token];
    if (!page->cached || page->frame != from) return STRATA_ZONE_LATER;
    if (strata_zone_copy(its, from, to, frames) != STRATA_ZONE_OK) return STRATA_ZONE_LATER;
    page->frame = to;
    moved++;
    return STRATA_ZONE_YES;
}

/* What strata says of dirt is the hardware's view; the pool knows better. */
static enum strata_zone_answer evict_page(struct strata_zone *its, uint64_t frame, uint64_t frames, uint64_t token, bool dirty, void *context) {
    struct page *page = &((struct page *)context)[token];
    (void)frames, (void)dirty;
    if (!page->cached || page->frame != frame) return STRATA_ZONE_LATER;
    bool write = page->dirty;
    wrong += !is_right(page);
    if (write && pwrite(fileno(file), strata_zone_address(its, page->frame), PAGE_BYTES, (off_t)token * PAGE_BYTES) != PAGE_BYTES)
        return STRATA_ZONE_LATER;
    page->cached = page->dirty = false;
    evicted++;
    written += write;
    return write ? STRATA_ZONE_WROTE : STRATA_ZONE_YES;
}

/* ------------------------------------------------------------------ the pool */

/* The page in a buffer, read from the file where it isn't there. */
static struct page *get(uint64_t number, unsigned owner) {
    struct page *page = &pages[number];
    if (page->cached) {
        strata_zone_touch(zone, page->frame, false);
        return page;
    }
    const struct strata_zone_request request = {.frames = 1, .mobility = STRATA_ZONE_MOVABLE, .owner = owner, .token = number};
    uint64_t frame;
    must(strata_zone_alloc_as(zone, &request, &frame), "a page");
    /* Until it is in the table nobody may move it: the owner would not know what for. */
    must(strata_zone_pin(zone, frame, 1), "io");
    page->frame = frame;
    memset(contents(page), 0, PAGE_BYTES);
    if (page->version != 0 && pread(fileno(file), contents(page), PAGE_BYTES, (off_t)number * PAGE_BYTES) != PAGE_BYTES) wrong++;
    page->cached = true;
    must(strata_zone_unpin(zone, frame, 1), "io");
    return page;
}

static void change(struct page *page) {
    uint64_t *words = contents(page);
    words[0] = words[PAGE_BYTES / sizeof *words - 1] = (uint64_t)(page - pages);
    words[1] = ++page->version;
    page->dirty = true;
    strata_zone_touch(zone, page->frame, true);
}

/* The same every time. */
static uint64_t next_random(void) {
    static uint64_t state = 1;
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return state >> 33;
}

/* Two thirds of the accesses go to a sixth of the pages. */
static void work(unsigned owner) {
    uint64_t number = LOG_PAGES + (next_random() % 3 != 0 ? next_random() % (PAGES / 6) : next_random() % (PAGES - LOG_PAGES));
    struct page *page = get(number, owner);
    if (page->version != 0) wrong += !is_right(page);
    if (page->version == 0 || next_random() % 3 == 0) change(page);
}

/* A table is dropped, whose pages lie among all others: their buffers are free, and nowhere are two megabytes of them together. */
static void drop_table(unsigned table) {
    for (uint64_t number = LOG_PAGES; number < PAGES; number++) {
        struct page *page = &pages[number];
        if (number % SORTS != table) continue;
        if (page->cached) must(strata_zone_free(zone, page->frame, 1), "a page of a table");
        *page = (struct page){.version = 0};
    }
}

static void sort(void) {
    uint64_t runs[RUNS];
    for (unsigned i = 0; i < RUNS; i++) {
        must(strata_zone_alloc(zone, SUPERPAGE_FRAMES, STRATA_ZONE_UNMOVABLE, &runs[i]), "2 MiB for a sort");
        memset(strata_zone_address(zone, runs[i]), 0xff, (size_t)SUPERPAGE_FRAMES * PAGE_BYTES);
    }
    for (unsigned i = 0; i < RUNS; i++) must(strata_zone_free(zone, runs[i], SUPERPAGE_FRAMES), "a sort's memory");
}

int main(void) {
    const struct strata_zone_config config = {
        .name = "buffers", .backend = STRATA_ZONE_MEMFD, .bytes = SUPERPAGES * STRATA_ZONE_SUPERPAGE_BYTES, .frame_bytes = PAGE_BYTES};
    const struct strata_zone_owner pool = {.name = "pool", .migrate = move_page, .reclaim = evict_page, .context = pages};
    const struct strata_zone_reclaim_config reclaim = {.policy = STRATA_ZONE_RECLAIM_AREA};
    uint64_t log_frames[LOG_PAGES];
    unsigned owner, sorts = 0, log_moved = 0;
    if ((file = tmpfile()) == NULL) return perror("buffer_pool"), 1;
    must(strata_zone_create(&config, &zone), "the zone");
    must(strata_zone_owner_add(zone, &pool, &owner), "the owner");
    must(strata_zone_reclaim_start(zone, &reclaim), "reclaim");
    for (unsigned i = 0; i < LOG_PAGES; i++) {
        change(get(i, owner));
        log_frames[i] = pages[i].frame;
        must(strata_zone_pin(zone, log_frames[i], 1), "a page of the log");
    }
    for (unsigned round = 1; round <= ROUNDS; round++) {
        work(owner);
        if (round % (ROUNDS / SORTS) != 0) continue;
        drop_table(sorts);
        sort();
        sorts++;
    }
    for (uint64_t number = 0; number < PAGES; number++)
        if (pages[number].cached) wrong += !is_right(&pages[number]);
    for (unsigned i = 0; i < LOG_PAGES; i++) {
        log_moved += pages[i].frame != log_frames[i];
        must(strata_zone_unpin(zone, log_frames[i], 1), "a page of the log");
    }
    const char *broken = strata_zone_check(zone);
    must(strata_zone_destroy(zone), "the end");
    fclose(file);
    printf("sorts=%u evicted=%s written=%s moved=%s log_moved=%u wrong=%llu check=%s\n", sorts, evicted != 0 ? "yes" : "no",
           written != 0 ? "yes" : "no", moved != 0 ? "yes" : "no", log_moved, (unsigned long long)wrong, broken == NULL ? "ok" : broken);
    return wrong != 0;
}
