/*
 * api_forbidden.c - a process that may not have userfaultfd, neither by the system call nor by /dev/userfaultfd, as in unprivileged containers: pages
 * that get another address, alone and in batches, with and without mappings left; watches; a paged block beside them; windows of zones. And one that
 * may not have mremap, with userfaultfd or without.
 *
 * Protects: each takes its documented way round it, and loses nothing: page tables and copies, signals, blocks in windows that stay where they are.
 * Each case is a process of its own, this program with the name of the case, under a seccomp filter and without privilege.
 */
#define _GNU_SOURCE 1
#include <errno.h>

#include <strata/page_watch.h>
#include <strata/paging.h>
#include <strata/zone.h>
#include <strata/zone_compact.h>
#include <strata/zone_reclaim.h>

#include "forbid.h"
#include "own_process.h"
#include "pages_support.h"

enum { BLOCKS = 12, TURNS = 6, WATCHED = 64, FRAMES = 1024 };

static struct pages blocks[BLOCKS];

static bool faults_forbidden, tables_forbidden;

static void expect_forbidden(void) {
    if (tables_forbidden) {
        char *page = mmap(NULL, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT(page != MAP_FAILED && mremap(page, page_bytes, 2 * page_bytes, MREMAP_MAYMOVE) == MAP_FAILED && errno == EPERM);
        EXPECT(munmap(page, page_bytes) == 0);
    }
    if (!faults_forbidden) return;
    EXPECT(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK) < 0 && errno == EPERM);
    EXPECT(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1 /* UFFD_USER_MODE_ONLY */) < 0 && errno == EPERM);
    EXPECT(open("/dev/userfaultfd", O_RDWR | O_CLOEXEC) < 0);
}

/* ------------------------------------------------------------------ moves */

/* How often pages have got another address without a copy. */
static unsigned long moves_so_far(void) {
    static char text[1 << 16];
    int file = memfd_create("figures", MFD_CLOEXEC);
    EXPECT(file >= 0 && strata_stats_json(file) == 0);
    ssize_t bytes = pread(file, text, sizeof text - 1, 0);
    EXPECT(bytes > 0);
    text[bytes] = 0;
    const char *at = strstr(text, "\"heap\"");
    EXPECT(at != NULL && (at = strstr(at, "\"moves\":")) != NULL);
    close(file);
    return strtoul(at + strlen("\"moves\":"), NULL, 10);
}

static void exchange_and_resize(uint64_t seed) {
    uint64_t random = random_seed(seed);
    for (unsigned turn = 0; turn < TURNS; turn++) {
        for (unsigned i = 0; i + 1 < BLOCKS; i++) {
            exchange_pages(&blocks[i], &blocks[i + 1], i % 3 == 0, &random);
            EXPECT(resize_pages(&blocks[i], 30 + next_random(&random) % 700, &random));
            split_and_join_pages(&blocks[i], &random);
        }
        exchange_pages_in_a_batch(blocks, BLOCKS, &random);
        release_pages(&blocks[turn % BLOCKS], &random);
        for (unsigned i = 0; i < BLOCKS; i++) check_pages(&blocks[i]);
    }
}

static void make_blocks(void) {
    uint64_t random = random_seed(1);
    for (unsigned i = 0; i < BLOCKS; i++) EXPECT(make_pages(&blocks[i], 100 + random_count(&random) % 600, &random));
}
static void free_blocks(void) {
    for (unsigned i = 0; i < BLOCKS; i++) free_pages(&blocks[i]);
}

/* By page tables, which nobody forbids. */
static void tables(void) {
    make_blocks();
    exchange_and_resize(2);
    EXPECT(moves_so_far() > 0);
    free_blocks();
}

/* Where only userfaultfd would do: the option that asks for it, or no mappings left. All is copied. */
static void copies(void) {
    make_blocks();
    exchange_and_resize(3);
    EXPECT(moves_so_far() == 0);
    free_blocks();
}
/* Page tables are asked for, and don't move: whether pages go one by one instead, or by copies, depends on the system. */
static void no_tables(void) {
    make_blocks();
    exchange_and_resize(5);
    free_blocks();
}
#if MAPPINGS_MAY_END
static void no_mappings(void) {
    struct crowd crowd;
    make_blocks();
    crowd_begin(&crowd);
    exchange_and_resize(4);
    crowd_end(&crowd);
    free_blocks();
}
#endif

/* ------------------------------------------------------------------ watches, and paging beside them */

static unsigned told[WATCHED];
static char *watched;
static void tell(const struct strata_watch_event *event, void *argument) {
    (void)argument;
    unsigned before = __atomic_fetch_add(&told[(size_t)((char *)event->address - watched) / page_bytes], 1, __ATOMIC_RELAXED);
    EXPECT(event->kind == STRATA_WATCH_WRITES && (*(char *)event->address == 'b') == (before != 0)); /* as it was before the write */
}

/* Both go by SIGSEGV, of which each takes what is its own. */
static void signals(void) {
    void *block;
    char path[64];
    struct strata_watch *watch;
    struct strata_watch_info info;
    struct strata_paging *paging;
    struct strata_paging_stats stats;
    snprintf(path, sizeof path, "/tmp/api_forbidden.%d", (int)getpid());
    struct strata_paging_config config = {
        .path = path, .flags = STRATA_PAGING_NO_SIGNALS, .bytes = 256 * page_bytes, .resident_limit_bytes = 64 * page_bytes};
    EXPECT(strata_paging_open(&config, &paging) == STRATA_PAGING_NO_FAULTS && access(path, F_OK) != 0);
    config.flags = 0;
    EXPECT(strata_paging_open(&config, &paging) == STRATA_PAGING_OK);
    EXPECT(strata_paging_stats_get(paging, &stats) == STRATA_PAGING_OK && stats.by_signals && !stats.system_calls);
    EXPECT(strata_page_alloc(WATCHED * page_bytes, STRATA_PAGE_ZEROED, &block) == STRATA_PAGE_OK);
    watched = block;
    memset(watched, 'a', WATCHED * page_bytes / 2);
    EXPECT(strata_page_watch(block, WATCHED * page_bytes, STRATA_WATCH_WRITES, tell, NULL, &watch) == STRATA_WATCH_OK);
    strata_page_watch_info(watch, &info);
    EXPECT(!info.userfaultfd && !info.in_kernel && !info.ended);
    char *paged = strata_paging_address(paging);
    for (size_t i = 0; i < 256; i++) {
        paged[i * page_bytes] = (char)i;
        watched[i % WATCHED * page_bytes] = 'b';
    }
    for (size_t i = 0; i < 256; i++) EXPECT(paged[i * page_bytes] == (char)i);
    for (size_t i = 0; i < WATCHED; i++) EXPECT(told[i] == 1);
    int zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    EXPECT(strata_page_rearm(watch, watched, page_bytes) == STRATA_WATCH_OK);
    watched[0] = 'c';
    EXPECT(told[0] == 2 && strata_page_rearm(watch, watched, page_bytes) == STRATA_WATCH_OK);
    errno = 0;
    EXPECT(zeros >= 0 && read(zeros, watched, 1) < 0 && errno == EFAULT && watched[0] == 'c' && told[0] == 2);
    strata_page_unwatch(watch);
    EXPECT(read(zeros, watched, 1) == 1 && watched[0] == 0);
    close(zeros);
    EXPECT(strata_page_free(block) == STRATA_PAGE_OK);
    EXPECT(strata_paging_close(paging, STRATA_PAGING_DISCARD) == STRATA_PAGING_OK);
    unlink(path);
}

/* ------------------------------------------------------------------ zones */

static enum strata_zone_answer migrate(struct strata_zone *zone, uint64_t from, uint64_t to, uint64_t frames, uint64_t token, void *context) {
    uint64_t *place = (uint64_t *)context + token;
    EXPECT(*place == from && strata_zone_copy(zone, from, to, frames) == STRATA_ZONE_OK);
    *place = to;
    return STRATA_ZONE_YES;
}

static enum strata_zone_answer drop(struct strata_zone *zone, uint64_t frame, uint64_t frames, uint64_t token, bool dirty, void *context) {
    (void)zone, (void)frames, (void)dirty;
    uint64_t *place = (uint64_t *)context + token;
    EXPECT(*place == frame);
    *place = UINT64_MAX;
    return STRATA_ZONE_YES;
}

static bool is_owned(uint64_t i) { return i / 16 % 2 == 0; }

/* Every second frame is free. What owners move is moved; what is seen through a window stays, and is counted as put off. Reclaim works as well. */
static void zones(void) {
    static uint64_t frames[FRAMES], owned[FRAMES];
    const struct strata_zone_config config = {
        .name = "forbidden", .backend = STRATA_ZONE_MEMFD, .bytes = 2 * FRAMES * (uint64_t)page_bytes, .frame_bytes = page_bytes};
    const struct strata_zone_owner owner = {.name = "program", .migrate = migrate, .reclaim = drop, .context = owned};
    const struct strata_zone_reclaim_config reclaim = {.policy = STRATA_ZONE_RECLAIM_LRU, .high_frames = 1};
    struct strata_zone_compact_counts counts;
    struct strata_zone *zone;
    unsigned number;
    void *window;
    EXPECT(strata_zone_create(&config, &zone) == STRATA_ZONE_OK && strata_zone_owner_add(zone, &owner, &number) == STRATA_ZONE_OK);
    EXPECT(strata_zone_window_open(zone, FRAMES * page_bytes, &window) == STRATA_ZONE_OK);
    char *pages = window;
    for (uint64_t i = 0; i < FRAMES; i++) {
        const struct strata_zone_request request = {
            .frames = 1, .mobility = STRATA_ZONE_MOVABLE, .owner = is_owned(i) ? number : 0, .token = i, .flags = STRATA_ZONE_NO_EFFORT};
        EXPECT(strata_zone_alloc_as(zone, &request, &frames[i]) == STRATA_ZONE_OK);
        owned[i] = frames[i];
    }
    for (uint64_t i = 0; i < FRAMES; i++) {
        if (i % 2 != 0) {
            EXPECT(strata_zone_free(zone, frames[i], 1) == STRATA_ZONE_OK);
        } else if (is_owned(i)) {
            memset(strata_zone_address(zone, frames[i]), (int)(i / 2), page_bytes);
        } else {
            EXPECT(strata_zone_map(zone, frames[i], 1, pages + i * page_bytes) == STRATA_ZONE_OK);
            memset(pages + i * page_bytes, (int)(i / 2), page_bytes);
        }
    }
    EXPECT(strata_zone_compact(zone, 3, &counts) == STRATA_ZONE_OK);
    EXPECT(counts.moved > 0 && counts.failed_later > 0);
    for (uint64_t i = 0; i < FRAMES; i += 2) {
        uint64_t shown;
        const char *page = is_owned(i) ? strata_zone_address(zone, owned[i]) : pages + i * page_bytes;
        EXPECT(page[0] == (char)(i / 2) && page[page_bytes - 1] == (char)(i / 2));
        if (!is_owned(i)) EXPECT(strata_zone_frame_at(zone, page, &shown) == STRATA_ZONE_OK && shown == frames[i]);
    }
    uint64_t had, dropped = 0;
    EXPECT(strata_zone_reclaim_start(zone, &reclaim) == STRATA_ZONE_OK);
    EXPECT(strata_zone_reclaim(zone, 8, 0, &had) == STRATA_ZONE_OK && had == 8);
    for (uint64_t i = 0; i < FRAMES; i += 2) {
        const char *page = is_owned(i) ? (owned[i] != UINT64_MAX ? strata_zone_address(zone, owned[i]) : NULL) : pages + i * page_bytes;
        EXPECT(page == NULL || (page[0] == (char)(i / 2) && page[page_bytes - 1] == (char)(i / 2)));
        dropped += page == NULL;
    }
    EXPECT(dropped == 8 && strata_zone_reclaim_check(zone) == NULL);
    EXPECT(strata_zone_check(zone) == NULL && strata_zone_destroy(zone) == STRATA_ZONE_OK);
}

/* ------------------------------------------------------------------ the cases */

static const struct test {
    const char *name, *conf;
    void (*body)(void);
    enum { FAULTS = 1, TABLES = 2 } forbidden;
} tests[] = {
    {"tables", "background:off", tables, FAULTS},           {"copies", "background:off,page_moves:uffd", copies, FAULTS},
    {"signals", "background:off", signals, FAULTS},         {"zones", "background:off", zones, FAULTS},
#if MAPPINGS_MAY_END
    {"no-mappings", "background:off", no_mappings, FAULTS},
#endif
    {"no-mremap", "background:off", no_tables, TABLES},     {"no-mremap-forced", "background:off,page_moves:mremap", copies, TABLES},
    {"neither", "background:off", copies, FAULTS | TABLES}, {"copies-forced", "background:off,page_moves:copy", copies, 0},
};

static void forbid_some(const void *context) {
    const struct test *test = context;
    if ((test->forbidden & FAULTS) != 0) forbid(SYS_userfaultfd, EPERM);
    if ((test->forbidden & TABLES) != 0) forbid(SYS_mremap, EPERM);
}

int main(int argc, char **argv) {
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    for (unsigned i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        if (argc == 1) {
            run_in_own_process(tests[i].name, tests[i].conf, forbid_some, &tests[i]);
        } else if (strcmp(argv[1], tests[i].name) == 0) {
            faults_forbidden = (tests[i].forbidden & FAULTS) != 0;
            tables_forbidden = (tests[i].forbidden & TABLES) != 0;
            drop_privilege();
            expect_forbidden();
            tests[i].body();
            expect_sound();
            _exit(0); /* a sanitizer's look for leaks wants rights that are gone */
        }
    }
    EXPECT(argc == 1);
    printf("%zu cases without userfaultfd, or mremap\n", sizeof tests / sizeof tests[0]);
    return 0;
}
