/*
 * test_failures.c - the malloc family from end to end while calls to the platform fail, one after the other: once, three times, for good.
 *
 * Whatever fails: an allocation succeeds, or returns NULL with ENOMEM and has changed nothing; contents stay; frees never fail; every layer is sound;
 * and when all is freed and trimmed, the zone has allocated what slabs still hold, and the process has no page beyond that.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "strata/malloc.h"
#include "strata/strata.h"
#include "unit/api/api_support.h"
#include "unit/below.h"

#define MS UINT64_C(1000000)

static bool growing; /* the address space is limited, so that the heap takes it piece by piece */

static void begin(const struct sim_config *sim, const char *conf) {
    new_process(sim, conf);
    if (!growing) return;
    assert_true(below_keep(BELOW_BYTES, BELOW_APART));
    sim_set_address_limit(BELOW_LIMIT);
    assert_true(heap_init());
    below_leave(BELOW_BYTES, BELOW_APART);
    sim_set_address_limit(sim_reserved_bytes() + 300 * MIB);
}

/* ------------------------------------------------------------------ objects with known contents */

#define THINGS 640
static struct thing {
    unsigned char *address;
    size_t bytes;
} things[THINGS];
static bool strict;      /* nothing is made to fail: everything has to work */
static unsigned refused; /* allocations that had no memory */

/* Some bytes of each page or so, the first and the last among them: the scenario runs some thousand times. */
static size_t stride_of(size_t bytes) { return bytes <= 512 ? 16 : 500 + bytes / 16; }
static unsigned char content_at(unsigned i, size_t at) { return (unsigned char)(i * 31 + at / 7 + 1); }

static void mark(unsigned i) {
    struct thing *thing = &things[i];
    size_t step = stride_of(thing->bytes);
    for (size_t at = 0; at < thing->bytes; at += step) thing->address[at] = content_at(i, at);
    if (thing->bytes != 0) thing->address[thing->bytes - 1] = content_at(i, thing->bytes - 1);
}

/* What was marked when the thing had `marked` bytes is there, as far as it now reaches. */
static void assert_content(unsigned i, size_t marked) {
    const struct thing *thing = &things[i];
    size_t step = stride_of(marked);
    for (size_t at = 0; at < marked && at < thing->bytes; at += step) assert_int_equal(thing->address[at], content_at(i, at));
    if (marked != 0 && marked <= thing->bytes) assert_int_equal(thing->address[marked - 1], content_at(i, marked - 1));
}

/* After every call: a block and errno as it was, or NULL and ENOMEM; and no lock is held. */
static bool succeeded(const void *address) {
    assert_int_equal(errno, address != NULL ? ERRNO_BEFORE : ENOMEM);
    assert_int_equal(sim_locks_held(), 0);
    if (strict) assert_non_null(address);
    refused += address == NULL;
    errno = ERRNO_BEFORE;
    return address != NULL;
}

static void keep(unsigned i, void *address, size_t bytes, size_t align, bool zeroed) {
    assert_null(things[i].address);
    if (!succeeded(address)) return;
    assert_int_equal((uintptr_t)address & (align - 1), 0);
    things[i] = (struct thing){address, bytes};
    for (size_t at = 0; zeroed && at < bytes; at += stride_of(bytes)) assert_int_equal(things[i].address[at], 0);
    assert_true(strata_malloc_usable_size(address) >= bytes);
    mark(i);
}

static void drop(unsigned i) {
    struct thing *thing = &things[i];
    if (thing->address == NULL) return;
    assert_content(i, thing->bytes);
    strata_free(thing->address);
    assert_int_equal(errno, ERRNO_BEFORE);
    thing->address = NULL;
}

static void resize(unsigned i, size_t bytes) {
    struct thing *thing = &things[i];
    size_t before = thing->bytes;
    if (thing->address == NULL) return;
    void *now = i % 2 == 0 ? strata_realloc(thing->address, bytes) : strata_reallocarray(thing->address, bytes / 8, 8);
    if (succeeded(now)) *thing = (struct thing){now, bytes};
    assert_content(i, before); /* also where it failed: then the block is as it was */
    mark(i);
}

/* ------------------------------------------------------------------ the work */

static void many_small(unsigned from, unsigned to) {
    for (unsigned i = from; i < to; i++) {
        size_t bytes = 16 + i % 7 * 40;
        if (i % 3 == 0)
            keep(i, strata_calloc(bytes, 1), bytes, 16, true);
        else
            keep(i, strata_malloc(bytes), bytes, 16, false);
    }
}

static void aligned_blocks(unsigned i) {
    keep(i, strata_memalign(64, 1000), 1000, 64, false);
    keep(i + 1, strata_memalign(4096, 3000), 3000, 4096, false);
    keep(i + 2, strata_aligned_alloc(64 * KIB, 100 * KIB), 100 * KIB, 64 * KIB, false);
    keep(i + 3, strata_memalign(4 * MIB, 3 * MIB), 3 * MIB, 4 * MIB, false);
    keep(i + 4, strata_pvalloc(10), platform_info()->page_bytes, platform_info()->page_bytes, false);
    void *out = &out;
    int error = strata_posix_memalign(&out, 256, 5000);
    assert_true(error == 0 || (error == ENOMEM && out == &out));
    assert_int_equal(errno, ERRNO_BEFORE); /* which this function leaves alone in every case */
    if (error != 0) errno = ENOMEM;
    keep(i + 5, error == 0 ? out : NULL, 5000, 256, false);
}

/* Statistics are written whole, or the caller hears of it. */
static void statistics(void) {
    int file = platform_file_create("/stats.json");
    if (strict) assert_true(file >= 0);
    if (file < 0) return;
    uint64_t failures = sim_failures();
    int status = strata_stats_json(file);
    assert_int_equal(errno, ERRNO_BEFORE);
    assert_int_equal(sim_locks_held(), 0);
    platform_file_close(file);
    assert_true(status == 0 || (status == EIO && sim_failures() != failures)); /* presence is left out where it can't be had */
    size_t bytes;
    const char *text = sim_file_text("/stats.json", &bytes);
    if (status == 0) assert_true(bytes > 2 && text[0] == '{' && text[bytes - 2] == '}' && text[bytes - 1] == '\n');
}

/* Slow paths, which start the thread, or tick where there is none; the clock is looked at in each 64th. */
static void slow_calls(void) {
    for (unsigned i = 0; i < 34; i++) {
        keep(THINGS - 1, strata_malloc(40 * KIB), 40 * KIB, 16, false);
        drop(THINGS - 1);
    }
}

static void time_passes(void) {
    for (unsigned i = 0; i < 4; i++) {
        slow_calls();
        sim_run_threads_for(12 * MS);
    }
    assert_int_equal(errno, ERRNO_BEFORE);
}

static void whole_api(void) {
    memset(things, 0, sizeof things);
    errno = ERRNO_BEFORE;
    many_small(0, 500);
    sim_cpu_set(1); /* freed on another CPU: depot and magazines */
    for (unsigned i = 0; i < 500; i += 2) drop(i);
    static volatile size_t far_too_much = SIZE_MAX - 8; /* which the compiler must not see */
    assert_null(strata_calloc(far_too_much, 3));
    assert_int_equal(errno, ENOMEM);
    errno = ERRNO_BEFORE;
    aligned_blocks(500);
    keep(510, strata_calloc(300, 1000), 300000, 16, true);
    keep(511, strata_malloc(1400 * KIB), 1400 * KIB, 16, false);
    keep(512, strata_malloc(24), 24, 16, false);
    keep(513, strata_malloc(2 * MIB), 2 * MIB, 16, false);
    resize(512, 3000), resize(512, 50000), resize(512, 900 * KIB), resize(512, 40 * KIB), resize(512, 100);
    resize(513, 3 * MIB), resize(513, 9 * MIB), resize(513, 21 * MIB), resize(513, 2 * MIB);
    resize(510, 2 * MIB);
    assert_null(strata_malloc(far_too_much));
    assert_int_equal(errno, ENOMEM);
    errno = ERRNO_BEFORE;
    statistics();
    time_passes();
    drop(511), drop(500), drop(502);
    sim_cpu_set(0);
    for (unsigned i = 0; i < 500; i += 3) drop(i);
    int trimmed = strata_malloc_trim(100 * KIB);
    assert_true(trimmed == 0 || trimmed == 1);
    if (fork_prepare != NULL && heap.ready) fork_prepare(), fork_parent();
    keep(511, strata_calloc(1, 700 * KIB), 700 * KIB, 16, true); /* out of idle pages, which may hold anything */
    sim_pressure_raise(PLATFORM_PRESSURE_CRITICAL);
    time_passes();
    for (unsigned i = 0; i < 500; i += 4) drop(i);
    many_small(520, 620);
    strata_malloc_trim(0);
    assert_int_equal(errno, ERRNO_BEFORE);
}

/* ------------------------------------------------------------------ afterwards */

static void assert_sound(void) {
    const char *broken = heap_check();
    if (broken != NULL) fail_msg("%s", broken);
}

/* Objects of size classes that the slabs have given out; and what CPU arrays and depots hold of them. */
static void count_objects(uint64_t *given, uint64_t *cached) {
    *given = *cached = 0;
    for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_MAGAZINES; tag++) {
        struct slab_stats slab;
        struct cache_stats cache;
        slab_stats_get(&heap.slabs, tag, &slab);
        cache_stats_get(&heap.caches, tag, &cache);
        *given += slab.in_use;
        *cached += cache.cached;
    }
}

static bool taken_to_be_present(size_t granule) {
    const struct superpage *superpage = &heap.zone.superpages[granule / SUPERPAGE_GRANULES];
    return (superpage->populated[granule % SUPERPAGE_GRANULES / 64] >> granule % 64 & 1) != 0;
}

/* As the system sees it: no page of the heap is present that the zone takes to be absent. */
static void assert_pages_known(void) {
    struct zone *zone = &heap.zone;
    size_t end = zone->growing ? 0 : zone->extent_bytes >> GRANULE_SHIFT; /* where it grows piece by piece, there are gaps */
    for (size_t at = 0; at < end;) {
        size_t start = at++;
        bool present = taken_to_be_present(start);
        while (at < end && taken_to_be_present(at) == present) at++;
        if (!present) assert_int_equal(sim_populated_pages(zone_address_of(zone, start), (at - start) << GRANULE_SHIFT), 0);
    }
}

/* With nothing but slabs left: address space is taken for superpages that have some. */
static void assert_addresses_known(void) {
    uint64_t used = 0;
    for (uint64_t i = 0; i < heap.zone.extent_bytes >> SUPERPAGE_SHIFT; i++) {
        uint64_t allocated = 0;
        for (unsigned w = 0; w < SUPERPAGE_WORDS; w++) allocated |= heap.zone.superpages[i].allocated[w];
        used += allocated != 0;
    }
    assert_int_equal(arena_size(&heap.zone.addresses, ARENA_ALLOCATED) >> SUPERPAGE_SHIFT, used);
}

static uint64_t slab_granules(void) {
    uint64_t granules = 0;
    for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_END; tag++) granules += heap.slabs.caches[tag].granules;
    return granules;
}

/* Everything is freed, and nothing was made to fail since: where each byte and page is. */
static void assert_nothing_lost(void) {
    uint64_t given, cached;
    assert_sound();
    count_objects(&given, &cached);
    assert_int_equal(given, cached);
    for (unsigned i = 0; i < 2; i++) strata_malloc_trim(0);
    assert_sound();
    count_objects(&given, &cached);
    assert_int_equal(cached, 0);
    assert_int_equal(given, 0);
    struct zone_counters zone;
    zone_counters_get(&heap.zone, &zone);
    assert_int_equal(zone.blocks, 0);
    assert_int_equal(zone.block_granules, 0);
    assert_int_equal(zone.allocated, slab_granules());
    assert_int_equal(zone.idle, 0);
    assert_int_equal(zone.populated, zone.allocated);
    assert_pages_known();
    assert_addresses_known();
}

static void drop_everything(void) {
    for (unsigned i = 0; i < THINGS; i++) drop(i);
}

/* The n-th call (and times - 1 after it) fails. Returns false when there are not so many. */
static bool run_with_failure(const struct sim_config *sim, const char *conf, uint64_t n, uint64_t times) {
    begin(sim, conf);
    sim_fail_call(n, times);
    strict = n == 0;
    whole_api();
    assert_sound();
    assert_pages_known();
    drop_everything();
    assert_sound();
    bool failed = sim_failures() != 0;
    sim_fail_call(0, 0);
    strict = true;
    errno = ERRNO_BEFORE;
    if (heap_init()) assert_nothing_lost();
    whole_api(); /* it works as though nothing had been */
    drop_everything();
    assert_nothing_lost();
    /* What is set at start is a single try for each feature, and said to have failed. */
    static const char said[] = "strata: debug: no memory\n";
    const char *output = sim_output();
    while (failed && strncmp(output, said, sizeof said - 1) == 0) output += sizeof said - 1;
    assert_string_equal(output, "");
    return failed;
}

static void each_call_fails(const struct sim_config *sim, const char *conf) { each_call_fails_in(run_with_failure, sim, conf, 40); }

/* Ten milliseconds, so that there are ticks. */
#define PLAIN "background:on,decay_ms:10,reserve:8G,thp:never"
#define BUSY "background:on,decay_ms:10,reserve:8G,thp:always,populate_pages:1"

/* Debugged buffers of two layouts among ordinary ones. */
#define DEBUGGED PLAIN ",debug:default@malloc-*;firewall+guards+audit=1@malloc-176;off@malloc-?;off@malloc-64"

static void each_call_fails_with_debugging(void **state) {
    struct sim_config sim = {.thread_mode = true};
    (void)state;
    each_call_fails(NULL, DEBUGGED);
    each_call_fails(&sim, DEBUGGED);
}

static void each_call_fails_with_huge_pages(void **state) {
    (void)state;
    each_call_fails(NULL, BUSY);
}
static void each_call_fails_without_huge_pages(void **state) {
    (void)state;
    each_call_fails(NULL, PLAIN);
    each_call_fails(NULL, "background:on,decay_ms:10,reserve:8G,soft_limit:24M");
}
static void each_call_fails_with_pages_of_16_kib(void **state) {
    struct sim_config sim = {.page_bytes = 16 * KIB};
    (void)state;
    each_call_fails(&sim, PLAIN);
    each_call_fails(&sim, BUSY);
}
static void each_call_fails_with_pages_of_64_kib(void **state) {
    struct sim_config sim = {.page_bytes = 64 * KIB};
    (void)state;
    each_call_fails(&sim, PLAIN);
    each_call_fails(&sim, BUSY);
}
static void each_call_fails_in_thread_mode(void **state) {
    struct sim_config sim = {.thread_mode = true};
    (void)state;
    each_call_fails(&sim, PLAIN);
}
static void each_call_fails_where_address_space_is_limited(void **state) {
    (void)state;
    growing = true;
    each_call_fails(NULL, PLAIN);
    growing = false;
}
static void each_call_fails_without_thread_and_cpu_caches(void **state) {
    (void)state;
    each_call_fails(NULL, "background:off,decay_ms:10,reserve:8G,magazine_max:0");
}

/* Memory that ends because of a limit ends at any place, also where the layers want some for themselves. */
static void every_hard_limit_holds(void **state) {
    (void)state;
    static void *more[2000 * KIB / 64];
    refused = 0;
    for (unsigned limit_kib = 40; limit_kib < 2000; limit_kib += 40) {
        char conf[64];
        format_text(conf, sizeof conf, "background:on,decay_ms:10,hard_limit:%uK", limit_kib);
        begin(NULL, conf);
        strict = false;
        whole_api();
        assert_sound();
        assert_true(heap.zone.counters.allocated << GRANULE_SHIFT <= limit_kib * KIB);
        unsigned count = 0;
        while ((more[count] = strata_malloc(64)) != NULL) count++;
        assert_int_equal(errno, ENOMEM);
        errno = ERRNO_BEFORE;
        while (count != 0) strata_free(more[--count]); /* there is none left for magazines */
        drop_everything();
        assert_nothing_lost();
    }
    assert_true(refused > 100);
}

/* The loops can only meet what the work calls. */
static void the_work_calls_all_that_can_fail(void **state) {
    (void)state;
    uint64_t calls[SIM_CALLS_FAILABLE] = {0};
    strict = true;
    for (unsigned i = 0; i < 4; i++) {
        growing = i == 2;
        begin(NULL, i == 0 ? BUSY : i == 3 ? DEBUGGED : PLAIN);
        whole_api();
        drop_everything();
        growing = false;
        for (unsigned call = 0; call < SIM_CALLS_FAILABLE; call++) calls[call] += sim_calls((enum sim_call)call);
    }
    for (unsigned call = 0; call < SIM_CALLS_FAILABLE; call++)
        if (calls[call] == 0 && call != SIM_PRESENCE && call < SIM_FAULTS_OPEN) /* those are of blocks of pages, and fail in tests of their own */
            fail_msg("call %u of enum sim_call is never made", call);
}

/* ------------------------------------------------------------------ the report at exit */

/*
 * It comes from a destructor of the library, so it takes a process that exits: a real child, with the simulation in it. The destructor below has a
 * lower priority, which makes it run after the library's, and turns what it finds into the exit status.
 */
static enum { NO_REPORT, WHOLE_REPORT, CUT_REPORT, NO_FILE } expected_report;

/* 0, or the number of the line that does not hold. */
static int judge_report(void) {
    size_t bytes = 0;
    const char *text = sim_file_text("/report.4242", &bytes);
    if (sim_locks_held() != 0) return __LINE__;
    if (heap_check() != NULL) return __LINE__;
    if (expected_report == NO_FILE) {
        if (text != NULL) return __LINE__;
        if (strcmp(sim_output(), "strata: stats_file: /report.4242 can't be written\n") != 0) return __LINE__;
        return 0;
    }
    const char *said = expected_report == CUT_REPORT ? "strata: stats_file: /report.4242: not all of the statistics could be written\n" : "";
    if (text == NULL || strcmp(sim_output(), said) != 0) return __LINE__;
    bool whole = bytes > 2 && text[0] == '{' && text[bytes - 1] == '\n';
    if (whole != (expected_report == WHOLE_REPORT)) return __LINE__;
    sim_fail_call(0, 0);
    return platform_file_create("/report.4242") >= 0 ? 0 : __LINE__; /* ends the process where the report has left its file open */
}

__attribute__((destructor(101))) static void judge(void) {
    if (expected_report == NO_REPORT) return;
    int line = judge_report();
    _exit(line == 0 ? 0 : line % 125 + 1);
}

static void exit_with_report(enum sim_call call, uint64_t n, uint64_t times, int expected) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        begin(NULL, "stats:json,stats_file:/report.%p,reserve:1G");
        void *kept = strata_malloc(100);
        if (kept == NULL) _exit(126);
        sim_fail_only(UINT64_C(1) << call);
        sim_fail_call(n, times);
        expected_report = expected;
        exit(127); /* replaced by what the judge finds */
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("call %u, failure %u: status %x", (unsigned)call, (unsigned)n, (unsigned)status);
}

static void the_report_at_exit_fails(void **state) {
    (void)state;
    exit_with_report(SIM_FILE_WRITE, 0, 0, WHOLE_REPORT);
    exit_with_report(SIM_FILE_CREATE, 1, 1, NO_FILE);
    exit_with_report(SIM_FILE_CREATE, 1, SIM_FOREVER, NO_FILE);
    for (uint64_t n = 1; n <= 8; n++)
        for (uint64_t times = 1; times <= 3; times += 2) exit_with_report(SIM_FILE_WRITE, n, times, CUT_REPORT);
    exit_with_report(SIM_FILE_WRITE, 1, SIM_FOREVER, CUT_REPORT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_work_calls_all_that_can_fail),
        cmocka_unit_test(each_call_fails_with_debugging),
        cmocka_unit_test(each_call_fails_with_huge_pages),
        cmocka_unit_test(each_call_fails_without_huge_pages),
        cmocka_unit_test(each_call_fails_with_pages_of_16_kib),
        cmocka_unit_test(each_call_fails_with_pages_of_64_kib),
        cmocka_unit_test(each_call_fails_in_thread_mode),
        cmocka_unit_test(each_call_fails_where_address_space_is_limited),
        cmocka_unit_test(each_call_fails_without_thread_and_cpu_caches),
        cmocka_unit_test(every_hard_limit_holds),
        cmocka_unit_test(the_report_at_exit_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
