/*
 * buffer_pool.c - the buffers of a small database in a zone: pages come and go for a long time, and whole superpages can be had in the middle of it.
 *
 *     cc buffer_pool.c -o buffer_pool $(pkg-config --cflags --libs strata)
 *     ./buffer_pool
 *
 * Each buffer is a movable frame. The pool is the frames' owner: asked to let one move, it copies the page and notes the new frame, unless the page
 * is in use. So the buffers, which lie everywhere after some time, make room when 2 MiB are wanted in one piece, here for a sort. Readers find a page
 * by its number, not by an address, and pin nothing.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <strata/zone.h>

enum { SUPERPAGES = 8, SUPERPAGE_FRAMES = 512, PAGES = 3000, ROUNDS = 60000, SORTS = 5, RUNS = 4 };

struct page {
    uint64_t frame;
    bool cached, in_use;
};
static struct page pages[PAGES];
static uint64_t moved;

static void must(enum strata_zone_status status, const char *what) {
    if (status == STRATA_ZONE_OK) return;
    fprintf(stderr, "buffer_pool: %s: %s\n", what, strata_zone_status_text(status));
    exit(1);
}

static enum strata_zone_answer move_page(struct strata_zone *zone, uint64_t from, uint64_t to, uint64_t frames, uint64_t token, void *context) {
    struct page *page = &((struct page *)context)[token];
    if (page->in_use) return STRATA_ZONE_LATER;
    if (strata_zone_copy(zone, from, to, frames) != STRATA_ZONE_OK) return STRATA_ZONE_LATER;
    page->frame = to;
    moved++;
    return STRATA_ZONE_YES;
}

/* The same every time. */
static uint64_t next_random(void) {
    static uint64_t state = 1;
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return state >> 33;
}

int main(void) {
    const struct strata_zone_config config = {
        .name = "buffers", .backend = STRATA_ZONE_MEMFD, .bytes = SUPERPAGES * STRATA_ZONE_SUPERPAGE_BYTES, .frame_bytes = 4096};
    const struct strata_zone_owner pool = {.name = "pool", .migrate = move_page, .context = pages};
    struct strata_zone *zone;
    unsigned owner, wrong = 0, sorts = 0;
    must(strata_zone_create(&config, &zone), "the zone");
    must(strata_zone_owner_add(zone, &pool, &owner), "the owner");
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t number = next_random() % PAGES;
        struct page *page = &pages[number];
        bool busy = round % (ROUNDS / SORTS) < ROUNDS / SORTS / 2; /* by day the cache is full, by night it thins out */
        if (page->cached && next_random() % 4 < (busy ? 1 : 3)) {
            must(strata_zone_free(zone, page->frame, 1), "a page");
            page->cached = false;
        } else if (page->cached) {
            wrong += strata_zone_peek(zone, page->frame) != number;
        } else {
            const struct strata_zone_request request = {.frames = 1, .mobility = STRATA_ZONE_MOVABLE, .owner = owner, .token = number};
            must(strata_zone_alloc_as(zone, &request, &page->frame), "a page");
            strata_zone_poke(zone, page->frame, number);
            page->cached = true;
        }
        if (round % (ROUNDS / SORTS) != ROUNDS / SORTS - 1) continue;
        const struct strata_zone_capture_request sort = {.frames = SUPERPAGE_FRAMES, .mobility = STRATA_ZONE_UNMOVABLE};
        uint64_t runs[RUNS];
        for (unsigned i = 0; i < RUNS; i++) must(strata_zone_capture_run(zone, &sort, &runs[i]), "2 MiB for a sort");
        for (unsigned i = 0; i < RUNS; i++) must(strata_zone_free(zone, runs[i], SUPERPAGE_FRAMES), "a sort's memory");
        sorts++;
    }
    for (uint64_t number = 0; number < PAGES; number++)
        if (pages[number].cached) wrong += strata_zone_peek(zone, pages[number].frame) != number;
    const char *broken = strata_zone_check(zone);
    must(strata_zone_destroy(zone), "the end");
    printf("sorts=%u moved=%s wrong=%u check=%s\n", sorts, moved != 0 ? "yes" : "no", wrong, broken == NULL ? "ok" : broken);
    return 0;
}
