/*
 * contiguity_contents.c - experiment: section 7 of the contiguity paper. What programs write survives while their pages are moved and dropped around
 * them.
 *
 *     contiguity_contents MIB SECONDS THREADS capture|race
 *
 * THREADS threads read, write, free and allocate pages of a memfd zone, each its own, whole pages at a time; each page's 4 KiB follow from its number
 * and version and are checked whenever they are read. Half of the pages, but no more than the process has mappings for, are seen through a window,
 * behind which strata moves frames as it likes; the others have an owner that copies and drops them itself when it is asked. Some frames are
 * unmovable, and some pages are pinned for a moment, and must stay where they are. Meanwhile another thread asks for superpages until there are none,
 * fills them, checks them and gives them back, and the zone's own threads compact and reclaim; every other request is a
 * capture of the range that costs least, which with `race` holds nothing. Any wrong word ends the program.
 *
 * Locks: one mutex for each page with an owner: held by its thread while it uses the page, tried by the owner's functions, which say "later" where it
 * is taken. All that a thread counts is its own until it ends.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include <strata/zone.h>
#include <strata/zone_compact.h>
#include <strata/zone_reclaim.h>

#include "load.h"

#define SEED 7
#define FILL_PERCENT 90 /* of the zone: what the threads have at most */
#define UNMOVABLE_EVERY 64
#define ABSENT UINT64_MAX
#define THREADS_MAX 16
#define HELD_MAX 1024
#define FAILURES_MAX 8 /* until what is held is given back */
/* Of the mappings that a process may have, a page in a window takes one, and so does a hole behind it; the rest is for moves. */
#define MAPPINGS_A_PAGE 3
#define MAPPINGS_USUAL 65530

struct page {
    pthread_mutex_t lock; /* of pages with an owner */
    uint64_t frame;       /* of pages with an owner, and of unmovable ones */
    uint32_t version;
    bool present;
};

static struct strata_zone *zone;
static size_t frame_bytes;
static uint64_t superpage_frames;
static struct page *pages;
static char *window;
static uint64_t page_count, window_pages; /* the first in the window */
static unsigned threads, owner;
static atomic_bool over;
static atomic_uint_least64_t moved, dropped, later;

static struct tallies {
    uint64_t read, written, freed, none, pins;
} tallies[THREADS_MAX];

static bool in_window(uint64_t page) { return page < window_pages; }
static bool unmovable(uint64_t page) { return page % UNMOVABLE_EVERY == 0; }
static uint64_t word_of(uint64_t page, uint32_t version) { return (page + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)version << 17; }
static char *address_of(uint64_t page) {
    return in_window(page) && !unmovable(page) ? window + page * frame_bytes : strata_zone_address(zone, pages[page].frame);
}

static void fill(void *address, uint64_t word) {
    volatile uint64_t *words = address;
    for (size_t i = 0; i < frame_bytes / sizeof *words; i++) words[i] = word + i;
}

static void check(const void *address, uint64_t word) {
    const volatile uint64_t *words = address;
    for (size_t i = 0; i < frame_bytes / sizeof *words; i++)
        if (words[i] != word + i) load_fail("a page does not hold what was written to it");
}

/* ------------------------------------------------------------------ the owner */

static enum strata_zone_answer migrate(struct strata_zone *of, uint64_t from, uint64_t to, uint64_t frames, uint64_t token, void *context) {
    (void)context;
    struct page *page = &pages[token];
    if (pthread_mutex_trylock(&page->lock) != 0) {
        later++;
        return STRATA_ZONE_LATER;
    }
    bool its = page->present && page->frame == from;
    if (its) {
        if (strata_zone_copy(of, from, to, frames) != STRATA_ZONE_OK) load_fail("strata_zone_copy failed");
        page->frame = to;
        moved++;
    }
    pthread_mutex_unlock(&page->lock);
    return its ? STRATA_ZONE_YES : STRATA_ZONE_LATER;
}

static enum strata_zone_answer reclaim(struct strata_zone *of, uint64_t frame, uint64_t frames, uint64_t token, bool dirty, void *context) {
    (void)of, (void)frames, (void)dirty, (void)context;
    struct page *page = &pages[token];
    if (pthread_mutex_trylock(&page->lock) != 0) {
        later++;
        return STRATA_ZONE_LATER;
    }
    bool its = page->present && page->frame == frame;
    if (its) {
        check(strata_zone_address(of, frame), word_of(token, page->version));
        page->present = false;
        dropped++;
    }
    pthread_mutex_unlock(&page->lock);
    return its ? STRATA_ZONE_YES : STRATA_ZONE_LATER;
}

/* ------------------------------------------------------------------ pages */

static bool bring(uint64_t number, struct page *page) {
    bool shown = in_window(number) && !unmovable(number);
    const struct strata_zone_request request = {.frames = 1,
                                                .mobility = unmovable(number) ? STRATA_ZONE_UNMOVABLE : STRATA_ZONE_MOVABLE,
                                                .owner = unmovable(number) || shown ? 0 : owner,
                                                .token = number};
    uint64_t frame;
    enum strata_zone_status status = strata_zone_alloc_as(zone, &request, &frame);
    if (status == STRATA_ZONE_NO_FRAMES) return false;
    if (status != STRATA_ZONE_OK) load_fail("strata_zone_alloc_as failed");
    if (shown) {
        while ((status = strata_zone_map(zone, frame, 1, address_of(number))) == STRATA_ZONE_BUSY) {}
        if (status != STRATA_ZONE_OK) load_fail(strata_zone_status_text(status));
    }
    page->frame = frame;
    page->present = true;
    page->version++;
    fill(address_of(number), word_of(number, page->version));
    return true;
}

static void drop(uint64_t number, struct page *page) {
    uint64_t frame = page->frame;
    enum strata_zone_status status;
    check(address_of(number), word_of(number, page->version));
    page->present = false;
    if (in_window(number) && !unmovable(number)) {
        /* The frame must not move between the question and the answer. */
        while ((status = strata_zone_pin_at(zone, address_of(number), &frame)) == STRATA_ZONE_BUSY) {}
        if (status != STRATA_ZONE_OK) load_fail(strata_zone_status_text(status));
        if (strata_zone_unmap(zone, address_of(number), frame_bytes) != STRATA_ZONE_OK || strata_zone_unpin(zone, frame, 1) != STRATA_ZONE_OK)
            load_fail("a page of the window can't be taken away");
    }
    while ((status = strata_zone_free(zone, frame, 1)) == STRATA_ZONE_BUSY) {}
    if (status != STRATA_ZONE_OK) load_fail(strata_zone_status_text(status));
}

/* While it is pinned, the page is where it was. */
static bool pin(uint64_t number, struct page *page) {
    bool shown = in_window(number) && !unmovable(number);
    uint64_t frame = page->frame, after = page->frame;
    enum strata_zone_status status = shown ? strata_zone_pin_at(zone, address_of(number), &frame) : strata_zone_pin(zone, frame, 1);
    if (status == STRATA_ZONE_BUSY) return false;
    if (status != STRATA_ZONE_OK) load_fail(strata_zone_status_text(status));
    for (unsigned round = 0; round < 4; round++) {
        check(address_of(number), word_of(number, page->version));
        if (shown && strata_zone_frame_at(zone, address_of(number), &after) != STRATA_ZONE_OK) load_fail("a pinned page has gone");
        if (!shown) after = page->frame;
        check(strata_zone_address(zone, frame), word_of(number, page->version));
    }
    if (after != frame) load_fail("a pinned page has moved");
    if (strata_zone_unpin(zone, frame, 1) != STRATA_ZONE_OK) load_fail("a page can't be unpinned");
    return true;
}

static void *work(void *argument) {
    unsigned index = (unsigned)(uintptr_t)argument;
    struct rng rng = rng_seed(SEED + index);
    struct tallies *tally = &tallies[index];
    uint64_t mine = page_count / threads;
    while (!over) {
        uint64_t number = rng_below(&rng, mine) * threads + index;
        struct page *page = &pages[number];
        pthread_mutex_lock(&page->lock);
        unsigned what = (unsigned)rng_below(&rng, 16);
        if (!page->present) {
            *(bring(number, page) ? &tally->written : &tally->none) += 1;
        } else if (what < 8) {
            check(address_of(number), word_of(number, page->version));
            tally->read++;
        } else if (what < 13) {
            fill(address_of(number), word_of(number, ++page->version));
            tally->written++;
        } else if (what < 14) {
            tally->pins += pin(number, page);
        } else {
            drop(number, page);
            tally->freed++;
        }
        pthread_mutex_unlock(&page->lock);
    }
    return NULL;
}

/* A superpage, as any request gets it, or by a capture. */
static bool ask(bool capture, bool holds, uint64_t *frame) {
    if (!capture) return strata_zone_alloc(zone, superpage_frames, STRATA_ZONE_UNMOVABLE, frame) == STRATA_ZONE_OK;
    const struct strata_zone_capture_request request = {
        .frames = superpage_frames, .mobility = STRATA_ZONE_UNMOVABLE, .flags = holds ? 0 : STRATA_ZONE_CAPTURE_NO_HOLD};
    return strata_zone_capture_run(zone, &request, frame) == STRATA_ZONE_OK;
}

static uint64_t mappings_max(void) {
    uint64_t most = MAPPINGS_USUAL;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    if (!file || fscanf(file, "%" SCNu64, &most) != 1) most = MAPPINGS_USUAL;
    if (file) fclose(file);
    return most;
}

int main(int argc, char **argv) {
    bool complete = argc == 5, captures = complete && strcmp(argv[4], "capture") == 0;
    uint64_t mib = complete ? strtoul(argv[1], NULL, 10) : 0;
    double seconds = complete ? strtod(argv[2], NULL) : 0;
    threads = complete ? (unsigned)strtoul(argv[3], NULL, 10) : 0;
    if ((complete && !captures && strcmp(argv[4], "race") != 0) || mib < 16 || mib % 2 || seconds <= 0 || !threads || threads > THREADS_MAX) {
        load_fail("usage: contiguity_contents MIB SECONDS THREADS capture|race; MIB even, at least 16; up to 16 threads");
    }
    const struct strata_zone_config config = {.name = "contents", .backend = STRATA_ZONE_MEMFD, .bytes = mib * MIB};
    if (strata_zone_create(&config, &zone) != STRATA_ZONE_OK) load_fail("no zone");
    frame_bytes = strata_zone_frame_bytes(zone);
    superpage_frames = STRATA_ZONE_SUPERPAGE_BYTES / frame_bytes;
    const struct strata_zone_owner asked = {"contents", migrate, reclaim, NULL};
    if (strata_zone_owner_add(zone, &asked, &owner) != STRATA_ZONE_OK) load_fail("no owner");
    const struct strata_zone_reclaim_config reclaims = {.policy = STRATA_ZONE_RECLAIM_AREA, .thread = true};
    if (strata_zone_reclaim_start(zone, &reclaims) != STRATA_ZONE_OK || strata_zone_compactor_start(zone, NULL) != STRATA_ZONE_OK)
        load_fail("no threads for the zone");
    page_count = strata_zone_frames(zone) * FILL_PERCENT / 100 / (2 * UNMOVABLE_EVERY) * (2 * UNMOVABLE_EVERY);
    window_pages = mappings_max() / MAPPINGS_A_PAGE < page_count / 2 ? mappings_max() / MAPPINGS_A_PAGE : page_count / 2;
    pages = calloc(page_count, sizeof *pages);
    void *address;
    if (!pages || strata_zone_window_open(zone, window_pages * frame_bytes, &address) != STRATA_ZONE_OK) load_fail("no window");
    window = address;
    for (uint64_t i = 0; i < page_count; i++) pthread_mutex_init(&pages[i].lock, NULL);

    pthread_t ids[THREADS_MAX];
    for (unsigned i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, work, (void *)(uintptr_t)i) != 0) load_fail("no thread");
    uint64_t had = 0, asked_for = 0, end = load_clock_ns() + (uint64_t)(seconds * 1e9), held[HELD_MAX];
    unsigned holding = 0, failures = 0;
    while (load_clock_ns() < end) {
        if (ask(asked_for++ % 2 != 0, captures, &held[holding])) {
            had++;
            for (uint64_t i = 0; i < superpage_frames; i++) fill(strata_zone_address(zone, held[holding] + i), word_of(~i, 0));
            holding++;
        } else {
            failures++;
        }
        if (holding < HELD_MAX && failures < FAILURES_MAX) continue;
        failures = 0;
        while (holding != 0) {
            holding--;
            for (uint64_t i = 0; i < superpage_frames; i++) check(strata_zone_address(zone, held[holding] + i), word_of(~i, 0));
            if (strata_zone_free(zone, held[holding], superpage_frames) != STRATA_ZONE_OK) load_fail("a superpage can't be freed");
        }
    }
    over = true;
    struct tallies sum = {0};
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        sum.read += tallies[i].read, sum.written += tallies[i].written, sum.freed += tallies[i].freed;
        sum.none += tallies[i].none, sum.pins += tallies[i].pins;
    }
    if (strata_zone_compactor_stop(zone) != STRATA_ZONE_OK) load_fail("the compactor does not stop");
    struct strata_zone_compact_stats compacted;
    if (strata_zone_compact_stats_get(zone, &compacted) != STRATA_ZONE_OK) load_fail("no statistics");
    while (holding != 0)
        if (strata_zone_free(zone, held[--holding], superpage_frames) != STRATA_ZONE_OK) load_fail("a superpage can't be freed");
    const char *wrong = strata_zone_check(zone);
    if (wrong) load_fail(wrong);
    for (uint64_t i = 0; i < page_count; i++)
        if (pages[i].present) drop(i, &pages[i]);
    struct strata_zone_stats stats;
    if (strata_zone_stats_get(zone, &stats) != STRATA_ZONE_OK || stats.free != stats.frames) load_fail("frames were lost");
    wrong = strata_zone_check(zone);
    if (wrong) load_fail(wrong);
    printf("{\"window_pages\": %" PRIu64 ", \"pages\": %" PRIu64 ", \"read\": %" PRIu64 ", \"written\": %" PRIu64 ", \"freed\": %" PRIu64
           ", \"none\": %" PRIu64 ", \"pins\": %" PRIu64 ", \"moved\": %" PRIu64 ", \"moved_frames\": %" PRIu64 ", \"dropped\": %" PRIu64
           ", \"later\": %" PRIu64 ", \"asked\": %" PRIu64 ", \"had\": %" PRIu64 ", \"races_lost\": %" PRIu64 ", \"captured\": %" PRIu64
           ", \"tried\": %" PRIu64 ", \"windows_lost\": %" PRIu64 "}\n",
           window_pages, page_count, sum.read, sum.written, sum.freed, sum.none, sum.pins, (uint64_t)moved, compacted.counts.moved_frames,
           (uint64_t)dropped, (uint64_t)later, asked_for, had, stats.races_lost, stats.captures_done, stats.captures_begun,
           compacted.counts.races_lost);
    if (strata_zone_window_close(zone, window) != STRATA_ZONE_OK || strata_zone_destroy(zone) != STRATA_ZONE_OK)
        load_fail("the zone can't be destroyed");
    for (uint64_t i = 0; i < page_count; i++) pthread_mutex_destroy(&pages[i].lock);
    free(pages);
    return fflush(stdout) ? 2 : 0;
}
