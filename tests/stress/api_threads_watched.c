/*
 * api_threads_watched.c - functions of the program that write to watched pages on threads of strata's own, which are a zone's and the maintenance
 * thread: where pages are watched by signals, a thread that is deaf to them ends the process there.
 */
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include <strata/page.h>
#include <strata/page_watch.h>
#include <strata/pressure.h>
#include <strata/zone_compact.h>
#include <strata/zone_reclaim.h>

#include "concurrency/concurrency.h"

enum { SUPERPAGES = 4, FRAMES = SUPERPAGES * 512, PAGES = 4, WAITS_MS = 20000 };

static char *watched;
static size_t page_bytes;
static atomic_uint told, moved, dropped, pressed;
static pthread_t first;

static void changed(const struct strata_watch_event *event, void *argument) {
    (void)argument;
    EXPECT(event->kind == STRATA_WATCH_WRITES);
    atomic_fetch_add(&told, 1);
}

static void write_down(unsigned page, atomic_uint *count) {
    EXPECT(!pthread_equal(pthread_self(), first));
    watched[page * page_bytes] = 1;
    atomic_fetch_add(count, 1);
}
static enum strata_zone_answer migrate(struct strata_zone *zone, uint64_t from, uint64_t to, uint64_t frames, uint64_t token, void *context) {
    (void)token, (void)context;
    write_down(0, &moved);
    return strata_zone_copy(zone, from, to, frames) == STRATA_ZONE_OK ? STRATA_ZONE_YES : STRATA_ZONE_LATER;
}
static enum strata_zone_answer drop(struct strata_zone *zone, uint64_t frame, uint64_t frames, uint64_t token, bool dirty, void *context) {
    (void)zone, (void)frame, (void)frames, (void)token, (void)dirty, (void)context;
    write_down(1, &dropped);
    return STRATA_ZONE_YES;
}

static void press(void *argument, size_t wanted_bytes, enum strata_cache_need need) {
    (void)argument, (void)wanted_bytes, (void)need;
    write_down(2, &pressed);
}

static void wait_for(const atomic_uint *count) {
    for (unsigned ms = 0; atomic_load(count) == 0; ms++) {
        EXPECT(ms < WAITS_MS);
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

int main(int argc, char **argv) {
    const struct strata_zone_config config = {
        .name = "watched", .backend = STRATA_ZONE_SIM, .bytes = SUPERPAGES * STRATA_ZONE_SUPERPAGE_BYTES, .frame_bytes = 4096};
    const struct strata_zone_owner owner = {.name = "writer", .migrate = migrate, .reclaim = drop};
    const struct strata_zone_compactor_config compactor = {.order = 9};
    const struct strata_zone_reclaim_config reclaim = {.low_frames = FRAMES / 2, .high_frames = FRAMES / 2, .thread = true};
    struct strata_zone_request request = {.frames = 1, .mobility = STRATA_ZONE_MOVABLE, .flags = STRATA_ZONE_NO_EFFORT};
    struct strata_watch_info info;
    struct strata_watch *watch;
    struct strata_zone *zone;
    uint64_t frames[FRAMES];
    void *block;
    if (argc == 1) {
        EXPECT(setenv("STRATA_CONF", "watch:signals,hard_limit:256M", 1) == 0);
        (void)execl("/proc/self/exe", argv[0], "again", (char *)NULL);
        EXPECT(false);
    }
    first = pthread_self();
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    EXPECT(strata_page_alloc(PAGES * page_bytes, STRATA_PAGE_PREFAULT, &block) == STRATA_PAGE_OK);
    watched = block;
    EXPECT(strata_page_watch(block, PAGES * page_bytes, STRATA_WATCH_WRITES, changed, NULL, &watch) == STRATA_WATCH_OK);
    strata_page_watch_info(watch, &info);
    EXPECT(!info.userfaultfd);

    EXPECT(strata_zone_create(&config, &zone) == STRATA_ZONE_OK && strata_zone_owner_add(zone, &owner, &request.owner) == STRATA_ZONE_OK);
    for (unsigned i = 0; i < FRAMES; i++) EXPECT(strata_zone_alloc_as(zone, &request, &frames[i]) == STRATA_ZONE_OK);
    for (unsigned i = 0; i < FRAMES; i++)
        if (i % 4 != 0) EXPECT(strata_zone_free(zone, frames[i], 1) == STRATA_ZONE_OK);
    EXPECT(strata_zone_compactor_start(zone, &compactor) == STRATA_ZONE_OK && strata_zone_compactor_wake(zone) == STRATA_ZONE_OK);
    wait_for(&moved);
    EXPECT(strata_zone_compactor_stop(zone) == STRATA_ZONE_OK);
    EXPECT(strata_zone_reclaim_start(zone, &reclaim) == STRATA_ZONE_OK);
    for (uint64_t frame; atomic_load(&dropped) == 0;) (void)strata_zone_alloc_as(zone, &request, &frame);
    EXPECT(strata_zone_reclaim_stop(zone) == STRATA_ZONE_OK);
    struct strata_pressure *pressure;
    EXPECT(strata_pressure_register("writer", press, NULL, &pressure) == STRATA_PRESSURE_OK);
    EXPECT(strata_malloc((size_t)1 << 30) == NULL);
    wait_for(&pressed);
    strata_pressure_unregister(pressure);
    EXPECT(atomic_load(&told) == 3 && strata_zone_destroy(zone) == STRATA_ZONE_OK);
    strata_page_unwatch(watch);
    EXPECT(strata_page_free(block) == STRATA_PAGE_OK);
    expect_sound();
    return 0;
}
