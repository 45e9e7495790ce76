/*
 * api_few_mappings.c - a process that has used up its mappings (vm.max_map_count), or nearly: watches that begin, end and are told, by userfaultfd
 * and by signals, side by side, and across a fork; windows of zones that are mapped, unmapped and moved. (Blocks of pages: api_pages_limits.c.)
 *
 * Protects: what wants a mapping that is not to be had says so by its documented status, or gives up the watch or the move; nothing is lost, nobody
 * waits for ever, and all of it works again once mappings are free. Each case is a process of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <strata/page_watch.h>
#include <strata/zone.h>
#include <strata/zone_compact.h>

#include "own_process.h"
#include "pages_support.h"

enum { WATCHED = 96, WATCHES = 3, FRAMES = 1024, SHOWN = 256, LEFT_MAX = 4 };

/* ------------------------------------------------------------------ watches */

static unsigned told, ended;
static void tell(const struct strata_watch_event *event, void *argument) {
    (void)argument;
    __atomic_fetch_add(event->kind == STRATA_WATCH_ENDED ? &ended : &told, 1, __ATOMIC_RELAXED);
}

static char *block;
static void write_all(char value) {
    for (size_t i = 0; i < WATCHED; i++) block[i * page_bytes + i] = value;
}
static void check_all(char value) {
    for (size_t i = 0; i < WATCHED; i++) EXPECT(block[i * page_bytes + i] == value);
}

static void begin_side_by_side(unsigned kinds, struct strata_watch **watches, const struct crowd *crowd) {
    size_t bytes = WATCHED / WATCHES * page_bytes;
    for (size_t i = 0; i < WATCHES; i++) {
        watches[i] = NULL;
        enum strata_watch_status status = strata_page_watch(block + i * bytes, bytes, kinds, tell, NULL, &watches[i]);
        EXPECT(status == STRATA_WATCH_OK || (status == STRATA_WATCH_NO_MEMORY && crowd->pairs != 0 && watches[i] == NULL));
    }
}

/* In a child no page is watched. */
static void look_as_a_child(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        check_all(1);
        write_all(3);
        check_all(3);
        _exit(7);
    }
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

/* Watches side by side, which share a mapping; one in the middle of them is taken away, and another one written to. */
static void watch_side_by_side(unsigned kinds, const struct crowd *crowd) {
    struct strata_watch *watches[WATCHES];
    size_t bytes = WATCHED / WATCHES * page_bytes;
    begin_side_by_side(kinds, watches, crowd);
    strata_page_unwatch(watches[1]);
    check_all(1);
    block[bytes + page_bytes] = 2; /* of no watch any more */
    block[page_bytes] = 2;
    if (watches[0] != NULL) {
        enum strata_watch_status again = strata_page_rearm(watches[0], block, bytes / 2);
        EXPECT(again == STRATA_WATCH_OK || again == STRATA_WATCH_GONE || again == STRATA_WATCH_NO_MEMORY);
    }
    write_all(2);
    check_all(2);
    strata_page_unwatch(watches[0]);
    strata_page_unwatch(watches[2]);
    write_all(1);
}

static void watch(unsigned kinds) {
    void *made;
    struct crowd crowd = {NULL, 0};
    EXPECT(strata_page_alloc((WATCHED + 2) * page_bytes, STRATA_PAGE_ZEROED, &made) == STRATA_PAGE_OK);
    block = (char *)made + page_bytes; /* its mapping begins before it, and ends behind it */
    write_all(1);
    watch_side_by_side(kinds, &crowd);
    EXPECT(told > 0 && ended == 0);
    crowd_begin(&crowd);
    for (size_t left = 0; left < LEFT_MAX; left++) {
        crowd_fill(&crowd);
        crowd_give(&crowd, left);
        watch_side_by_side(kinds, &crowd);
    }
    crowd_end(&crowd);
    crowd.pairs = 0;
    /* Begun while there is room, ended while there is none. */
    struct strata_watch *watches[WATCHES];
    begin_side_by_side(kinds, watches, &crowd);
    crowd_begin(&crowd);
    look_as_a_child();
    strata_page_unwatch(watches[1]);
    write_all(2);
    check_all(2);
    strata_page_unwatch(watches[0]);
    strata_page_unwatch(watches[2]);
    crowd_end(&crowd);
    crowd.pairs = 0;
    write_all(1);
    told = 0;
    watch_side_by_side(kinds, &crowd);
    EXPECT(told > 0);
    EXPECT(strata_page_free(made) == STRATA_PAGE_OK);
}
static void watch_writes(void) { watch(STRATA_WATCH_WRITES); }
static void watch_both(void) { watch(STRATA_WATCH_WRITES | STRATA_WATCH_READS); }

/* ------------------------------------------------------------------ windows */

static struct strata_zone *zone;
static char *window;
static uint64_t frames[FRAMES];

static void check_shown(size_t from, size_t to) {
    for (size_t i = from; i < to; i++) EXPECT(window[i * page_bytes] == (char)(i + 1) && window[(i + 1) * page_bytes - 1] == (char)(i + 1));
}

static void make_zone(void) {
    const struct strata_zone_config config = {
        .name = "few mappings", .backend = STRATA_ZONE_MEMFD, .bytes = 2 * FRAMES * (uint64_t)page_bytes, .frame_bytes = page_bytes};
    void *address;
    EXPECT(strata_zone_create(&config, &zone) == STRATA_ZONE_OK);
    EXPECT(strata_zone_window_open(zone, FRAMES * page_bytes, &address) == STRATA_ZONE_OK);
    window = address;
}

/* Blocks of four frames, each one mapping in the window; three times as many frames between them are free, for compaction to have work. */
static void fill_window(size_t shown) {
    for (size_t i = 0; i < FRAMES; i += 4) EXPECT(strata_zone_alloc(zone, 4, STRATA_ZONE_MOVABLE, &frames[i]) == STRATA_ZONE_OK);
    for (size_t i = 0, at = shown; i < FRAMES; i += 4) {
        if (i / 4 % 4 != 0) {
            EXPECT(strata_zone_free(zone, frames[i], 4) == STRATA_ZONE_OK);
        } else {
            EXPECT(strata_zone_map(zone, frames[i], 4, window + at * page_bytes) == STRATA_ZONE_OK);
            at += 4;
        }
    }
    for (size_t i = shown; i < shown + SHOWN; i++) memset(window + i * page_bytes, (int)(i + 1), page_bytes);
}

/* The middle of a mapping goes, and comes back: of what is refused nothing has changed. */
static void unmap_and_map(size_t at, bool may_fail) {
    uint64_t frame;
    EXPECT(strata_zone_frame_at(zone, window + at * page_bytes, &frame) == STRATA_ZONE_OK);
    enum strata_zone_status status = strata_zone_unmap(zone, window + at * page_bytes, 2 * page_bytes);
    EXPECT(status == STRATA_ZONE_OK || (may_fail && status == STRATA_ZONE_NO_MEMORY));
    if (status == STRATA_ZONE_OK) EXPECT(strata_zone_map(zone, frame, 2, window + at * page_bytes) == STRATA_ZONE_OK);
}

/* What a window shows moves only where userfaultfd serves faults of system calls. */
static bool serves_system_calls(void) {
    int file = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    return file >= 0 && close(file) == 0;
}

static void windows(void) {
    struct strata_zone_compact_counts counts;
    struct crowd crowd;
    bool moves = serves_system_calls();
    make_zone();
    fill_window(0);
    EXPECT(strata_zone_compact(zone, 3, &counts) == STRATA_ZONE_OK && (counts.moved > 0) == moves);
    if (!moves) { /* the rest is about the mappings that a move takes */
        EXPECT(counts.failed_later > 0 && strata_zone_check(zone) == NULL && strata_zone_destroy(zone) == STRATA_ZONE_OK);
        return;
    }
    fill_window(SHOWN);
    crowd_begin(&crowd);
    /* By what mmap gives a process may have one more than the limit: then it may not even replace one. */
    while (mmap(NULL, page_bytes, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) continue;
    for (size_t at = 0; at < 2 * SHOWN; at += 4) unmap_and_map(at + 1, true);
    /* Whether one or another block can move all the same is the layout's chance: where a mapping meets its neighbour in the file, none is needed. */
    EXPECT(strata_zone_compact(zone, 3, &counts) == STRATA_ZONE_OK);
    EXPECT(counts.failed_later > 0);
    uint64_t moved = 0;
    check_shown(0, 2 * SHOWN);
    EXPECT(strata_zone_check(zone) == NULL);
    for (size_t left = 1; left < LEFT_MAX; left++) {
        crowd_give(&crowd, left);
        for (size_t at = 0; at < 2 * SHOWN; at += 4) unmap_and_map(at + 1, true);
        EXPECT(strata_zone_compact(zone, 3, &counts) == STRATA_ZONE_OK);
        moved += counts.moved;
        check_shown(0, 2 * SHOWN);
        EXPECT(strata_zone_check(zone) == NULL);
    }
    EXPECT(counts.failed_later == 0 && moved > 0);
    crowd_end(&crowd);
    unmap_and_map(1, false);
    check_shown(0, 2 * SHOWN);
    EXPECT(strata_zone_check(zone) == NULL && strata_zone_destroy(zone) == STRATA_ZONE_OK);
}

/* ------------------------------------------------------------------ the cases */

static const struct test {
    const char *name, *conf;
    void (*body)(void);
} tests[] = {
    {"watch-faults", "background:off", watch_writes}, {"watch-signals", "background:off,watch:signals", watch_writes},
    {"watch-both", "background:off", watch_both},     {"watch-both-signals", "background:off,watch:signals", watch_both},
    {"windows", "background:off", windows},
};

int main(int argc, char **argv) {
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    if (!MAPPINGS_MAY_END) {
        printf("ThreadSanitizer wants mappings of its own\n");
        return 0;
    }
    for (unsigned i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        if (argc == 1) {
            run_in_own_process(tests[i].name, tests[i].conf, NULL, NULL);
        } else if (strcmp(argv[1], tests[i].name) == 0) {
            alarm(100);
            tests[i].body();
            expect_sound();
            return 0;
        }
    }
    EXPECT(argc == 1);
    printf("%zu cases with few mappings\n", sizeof tests / sizeof tests[0]);
    return 0;
}
