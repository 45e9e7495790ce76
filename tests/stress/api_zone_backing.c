/*
 * api_zone_backing.c - a pool of pages that is larger than its zone: threads read and write pages, those that were not used for long go to a file,
 * by strata, and come back from it. No page ever misses a write, by what threads see and by what the file has in the end.
 *
 * api_zone_backing [TURNS]
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <strata/zone_backing.h>
#include <strata/zone_reclaim.h>

#include "concurrency/concurrency.h"

enum { THREADS = 2, DEFAULT_TURNS = 20000, FRAME = 65536, SUPERPAGES = 2, PAGES = 256, NOWHERE = -1 };

/* Whoever uses a page has its lock; strata too, from the moment at which the page is handed over until its write has ended. */
static struct page {
    pthread_mutex_t lock;
    int64_t frame; /* NOWHERE: it is in the file */
    uint64_t writes;
} pages[PAGES];
static struct strata_zone *zone;
static unsigned owner;
static size_t turns = DEFAULT_TURNS;
static uint64_t handed; /* atomic */

static enum strata_zone_answer reclaim(struct strata_zone *of, uint64_t frame, uint64_t frames, uint64_t token, bool dirty, void *context) {
    (void)of, (void)dirty, (void)context;
    struct page *page = &pages[token];
    if (pthread_mutex_trylock(&page->lock) != 0) return STRATA_ZONE_LATER;
    if (page->frame != (int64_t)frame) { /* taken a moment ago, and not read yet */
        pthread_mutex_unlock(&page->lock);
        return STRATA_ZONE_LATER;
    }
    EXPECT(frames == 1);
    __atomic_fetch_add(&handed, 1, __ATOMIC_RELAXED);
    return STRATA_ZONE_WRITE; /* with the lock, which `written` lets go; whatever `dirty` is, as until now it could be written to */
}

static void written(struct strata_zone *of, uint64_t frame, uint64_t frames, uint64_t token, int error, void *context) {
    (void)of, (void)context;
    struct page *page = &pages[token];
    EXPECT(error == 0 && frames == 1 && page->frame == (int64_t)frame);
    page->frame = NOWHERE;
    pthread_mutex_unlock(&page->lock);
}

/* Under its lock: the page in memory. False: there is no frame now. */
static bool bring(struct page *page) {
    if (page->frame != NOWHERE) return true;
    const struct strata_zone_request request = {.frames = 1, .mobility = STRATA_ZONE_MOVABLE, .owner = owner, .token = (uint64_t)(page - pages)};
    uint64_t frame;
    if (strata_zone_alloc_as(zone, &request, &frame) != STRATA_ZONE_OK) return false;
    EXPECT(strata_zone_backing_read(zone, owner, frame, 1, request.token) == STRATA_ZONE_OK);
    page->frame = (int64_t)frame;
    return true;
}

static uint64_t *words_of(const struct page *page) { return strata_zone_address(zone, (uint64_t)page->frame); }

static void *work(void *argument) {
    uint64_t random = random_seed((uintptr_t)argument);
    free_block(make_block(&random)); /* with per-thread caches: an id, and so a slot of the zone */
    for (size_t turn = 0; turn < turns; turn++) {
        uint64_t dice = next_random(&random), number = dice % (dice >> 60 < 12 ? PAGES / 8 : PAGES);
        struct page *page = &pages[number];
        pthread_mutex_lock(&page->lock);
        if (bring(page)) {
            uint64_t *words = words_of(page), last = FRAME / sizeof *words - 1;
            EXPECT(words[0] == page->writes && words[last] == page->writes * number);
            if ((dice >> 32) % 4 == 0) {
                words[0] = ++page->writes;
                words[last] = page->writes * number;
            }
        }
        pthread_mutex_unlock(&page->lock);
    }
    return NULL;
}

/* To be cancelled from its start: what it asks for ends all the same, as any other call on a zone, and with nothing half done. */
static void *cancelled(void *unused) {
    (void)unused;
    EXPECT(pthread_cancel(pthread_self()) == 0);
    struct page *page = &pages[0];
    pthread_mutex_lock(&page->lock);
    EXPECT(bring(page));
    words_of(page)[0] = ++page->writes;
    pthread_mutex_unlock(&page->lock);
    EXPECT(strata_zone_reclaim(zone, 1, 0, NULL) == STRATA_ZONE_OK && strata_zone_backing_sync(zone, owner) == STRATA_ZONE_OK);
    return zone;
}

int main(int argc, char **argv) {
    const struct strata_zone_config config = {
        .name = "pool", .backend = STRATA_ZONE_MEMFD, .bytes = SUPERPAGES * STRATA_ZONE_SUPERPAGE_BYTES, .frame_bytes = FRAME};
    const struct strata_zone_owner description = {.name = "pages", .reclaim = reclaim};
    const struct strata_zone_reclaim_config how = {
        .policy = STRATA_ZONE_RECLAIM_LRU, .min_frames = 2, .low_frames = 4, .high_frames = 8, .thread = true};
    char path[] = "/tmp/strata-zone-backing-XXXXXX";
    pthread_t threads[THREADS];
    struct strata_zone_backing_stats stats;
    if (argc > 1) turns = strtoul(argv[1], NULL, 10);
    int file = mkstemp(path);
    EXPECT(file >= 0 && unlink(path) == 0);
    const struct strata_zone_backing_config backing = {.file = file, .bytes = (uint64_t)PAGES * FRAME, .written = written};
    EXPECT(strata_zone_create(&config, &zone) == STRATA_ZONE_OK && strata_zone_owner_add(zone, &description, &owner) == STRATA_ZONE_OK);
    EXPECT(strata_zone_backing_open(zone, owner, &backing) == STRATA_ZONE_OK);
    EXPECT(strata_zone_reclaim_start(zone, &how) == STRATA_ZONE_OK);
    for (unsigned i = 0; i < PAGES; i++) {
        EXPECT(pthread_mutex_init(&pages[i].lock, NULL) == 0);
        pages[i].frame = NOWHERE;
    }
    void *through;
    EXPECT(pthread_create(&threads[0], NULL, cancelled, NULL) == 0 && pthread_join(threads[0], &through) == 0 && through == zone);
    for (uintptr_t i = 0; i < THREADS; i++) EXPECT(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);

    /* The rest of it, on this thread; the zone's own may be at some page still. */
    for (unsigned tries = 0; tries < 1000; tries++) {
        struct strata_zone_stats whole;
        EXPECT(strata_zone_stats_get(zone, &whole) == STRATA_ZONE_OK);
        if (whole.used[STRATA_ZONE_MOVABLE] == 0) break;
        (void)strata_zone_reclaim(zone, whole.used[STRATA_ZONE_MOVABLE], 0, NULL);
    }
    EXPECT(strata_zone_reclaim_stop(zone) == STRATA_ZONE_OK && strata_zone_backing_sync(zone, owner) == STRATA_ZONE_OK);
    for (unsigned i = 0; i < PAGES; i++) {
        uint64_t word = UINT64_MAX, last = UINT64_MAX;
        off_t at = (off_t)i * FRAME;
        EXPECT(pages[i].frame == NOWHERE);
        EXPECT(pread(file, &word, sizeof word, at) == sizeof word && word == pages[i].writes);
        EXPECT(pread(file, &last, sizeof last, at + FRAME - (off_t)sizeof last) == sizeof last && last == pages[i].writes * i);
    }
    EXPECT(strata_zone_backing_stats_get(zone, owner, &stats) == STRATA_ZONE_OK);
    fprintf(stderr, "%llu pages written, %llu dropped clean, %llu read\n", (unsigned long long)stats.written,
            (unsigned long long)(handed - stats.written), (unsigned long long)stats.read);
    EXPECT(stats.written <= handed && stats.write_errors == 0 && stats.read_errors == 0 && stats.written > PAGES && stats.read > PAGES);
    EXPECT(strata_zone_check(zone) == NULL && strata_zone_destroy(zone) == STRATA_ZONE_OK);
    EXPECT(close(file) == 0);
    expect_sound();
    return 0;
}
