/*
 * test_page_watch_away.c - watches for reads by userfaultfd on the simulated machine: pages that are armed are away and lose nothing, whatever of the
 * calls on their way there or back fails, whoever holds them, and whether or not the program closes the file. On the real system:
 * tests/stress/api_page_watch_away.c.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "api/page_watch.h"
#include "platform/sim/sim.h"
#include "strata/malloc.h"
#include "strata/page.h"
#include "strata/strata.h"

#define MS UINT64_C(1000000)
#define READ_NS (2500 * MS) /* until the reader looks again, whom nothing wakes here */
#define PAGES 16
#define FULL 12 /* pages from the first on with a number in them; the others are absent */
#define PAGE ((size_t)4096)
#define BOTH (STRATA_WATCH_WRITES | STRATA_WATCH_READS)
#define FEATURES (PLATFORM_FAULTS_PROTECT | PLATFORM_FAULTS_PROTECT_ABSENT | PLATFORM_FAULTS_THREAD | PLATFORM_FAULTS_MOVE)

static void (*fork_prepare)(void), (*fork_child)(void);
int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) {
    (void)parent;
    fork_prepare = prepare;
    fork_child = child;
    return 0;
}

static char *block;
static struct strata_watch *watch;
static struct {
    unsigned writes[PAGES], reads[PAGES], ends;
    bool unwatches, frees, touches; /* the handler does, and looks at the contents again */
} told;

static char number_of(size_t page) { return page < FULL ? (char)(page + 1) : 0; }
static bool is_there(size_t page) { return sim_populated_pages(block + page * PAGE, PAGE) != 0; }
static unsigned count_there(void) {
    unsigned count = 0;
    for (size_t i = 0; i < PAGES; i++) count += is_there(i);
    return count;
}

static void look(const char *contents, size_t page) {
    for (size_t i = 0; i < PAGE; i += PAGE - 1) assert_int_equal(contents[i], number_of(page));
}

static void handler(const struct strata_watch_event *event, void *argument) {
    size_t page = (size_t)((char *)event->address - block) / PAGE;
    assert_ptr_equal(argument, &told);
    assert_int_equal(sim_locks_held(), 0);
    if (event->kind == STRATA_WATCH_ENDED) {
        assert_null(event->contents);
        told.ends++;
        return;
    }
    (event->kind == STRATA_WATCH_WRITES ? told.writes : told.reads)[page]++;
    look(event->contents, page);
    if (told.touches) {
        sim_fault_raise(event->address, true, platform_thread_self());
        struct platform_event nobody = {0};
        (void)platform_event_wait(&nobody, READ_NS);
        look(event->address, page);
        block[page * PAGE + 100] = 1;
    }
    if (told.frees) assert_int_equal(strata_page_free(block), STRATA_PAGE_OK);
    if (told.unwatches) strata_page_unwatch(event->watch);
    look(event->contents, page); /* to the end of the call, whatever becomes of the page */
}

static void new_process(unsigned features, const char *conf) {
    sim_reset(NULL);
    sim_faults_offer(features);
    sim_env_set("STRATA_CONF", conf);
    memset(&heap, 0, sizeof heap);
    heap.lock = (struct platform_lock)PLATFORM_LOCK_INIT(LOCK_RANK_API);
    assert_true(heap_init());
    memset(&told, 0, sizeof told);
    void *made;
    assert_int_equal(strata_page_alloc(PAGES * PAGE, STRATA_PAGE_ZEROED, &made), STRATA_PAGE_OK);
    block = made;
    for (size_t i = 0; i < FULL; i++) memset(block + i * PAGE, number_of(i), PAGE);
    watch = NULL;
}
static int setup(void **state) {
    (void)state;
    new_process(FEATURES, NULL);
    return 0;
}

static struct strata_watch_info info_of(void) {
    struct strata_watch_info info;
    strata_page_watch_info(watch, &info);
    return info;
}
static void begin(unsigned kinds) {
    assert_int_equal(strata_page_watch(block, PAGES * PAGE, kinds, handler, &told, &watch), STRATA_WATCH_OK);
    assert_true(info_of().userfaultfd);
    assert_int_equal(count_there(), 0);
}
static void meet(size_t page, bool write) {
    sim_fault_raise(block + page * PAGE + 8, write, 77);
    (void)sim_run_threads_for(READ_NS);
}

static void check_all(void) {
    for (size_t i = 0; i < PAGES; i++) look(block + i * PAGE, i);
}
/* All is as it was: nothing is lost, or told, or registered; absent pages have not become present. */
static void finish(void) {
    strata_page_unwatch(watch);
    (void)sim_run_threads_for(MS);
    assert_int_equal(sim_fault_registrations(), 0);
    assert_true(count_there() >= FULL);
    check_all();
    for (size_t i = 0; i < PAGES; i++) assert_int_equal(sim_access(block + i * PAGE), PLATFORM_ACCESS_ALL);
    assert_null(strata_check());
    assert_int_equal(sim_locks_held(), 0);
    assert_string_equal(sim_output(), "");
}

/* ------------------------------------------------------------------ what is told */

static void a_read_is_told_and_then_a_write(void **state) {
    (void)state;
    begin(BOTH);
    for (unsigned round = 1; round <= 2; round++) {
        meet(3, false);
        assert_true(told.reads[3] == round && told.writes[3] == 0 + round - 1);
        assert_true(is_there(3) && sim_fault_protected(block + 3 * PAGE)); /* before anybody could write unseen */
        meet(3, true);
        assert_true(told.reads[3] == round && told.writes[3] == round);
        assert_false(sim_fault_protected(block + 3 * PAGE));
        assert_int_equal(strata_page_rearm(watch, block + 3 * PAGE, PAGE), STRATA_WATCH_OK);
        assert_int_equal(count_there(), 0);
    }
    meet(4, true); /* at once: only that */
    assert_true(told.writes[4] == 1 && told.reads[4] == 0 && is_there(4));
    assert_false(sim_fault_protected(block + 4 * PAGE));
    meet(5, false);
    assert_int_equal(strata_page_rearm(watch, block, PAGES * PAGE), STRATA_WATCH_OK); /* one that can be read only, too */
    assert_int_equal(count_there(), 0);
    struct strata_watch_info info = info_of();
    assert_true(info.reads == 3 && info.writes == 3 && !info.ended);
    finish();
}

/* A thread that met the page with others reads on as it comes back; its fault is still queued when it arms the page again. */
static void a_read_of_before_is_forgotten(void **state) {
    (void)state;
    begin(BOTH);
    meet(3, false);
    struct page_watches *watches = heap.watches;
    watches->faults[(watches->fault_first + watches->fault_count++) % WATCH_FAULTS_MAX] =
        (struct platform_fault){.page = block + 3 * PAGE, .thread = 78, .write = false, .protect = false};
    assert_int_equal(strata_page_rearm(watch, block + 3 * PAGE, PAGE), STRATA_WATCH_OK);
    assert_int_equal(watches->fault_count, 0);
    meet(4, false);
    assert_true(told.reads[3] == 1 && told.reads[4] == 1);
    finish();
}

static void reads_alone_are_told_once(void **state) {
    (void)state;
    begin(STRATA_WATCH_READS);
    for (unsigned i = 0; i < 3; i++) sim_fault_raise(block + 2 * PAGE, false, 70 + i); /* three threads */
    (void)sim_run_threads_for(READ_NS);
    assert_int_equal(told.reads[2], 1);
    assert_true(is_there(2) && !sim_fault_protected(block + 2 * PAGE));
    assert_int_equal(count_there(), 1);
    finish();
}

static void an_absent_page_comes_as_zeros(void **state) {
    (void)state;
    begin(BOTH);
    meet(FULL, false);
    meet(FULL + 1, true);
    assert_true(told.reads[FULL] == 1 && told.writes[FULL + 1] == 1);
    assert_true(is_there(FULL) && sim_fault_protected(block + FULL * PAGE) && is_there(FULL + 1));
    finish();
}

/* Dropped by the program itself: whoever touches it must not wait for ever. */
static void a_page_that_is_gone_comes_as_zeros(void **state) {
    (void)state;
    begin(STRATA_WATCH_READS);
    meet(FULL, false);
    assert_true(platform_release(block + FULL * PAGE, PAGE));
    meet(FULL, false);
    assert_true(is_there(FULL) && told.reads[FULL] == 1);
    finish();
}

/* Whoever reads all memory comes by the shadow as well. */
static void a_shadow_that_is_read_is_zeros(void **state) {
    (void)state;
    begin(STRATA_WATCH_READS);
    meet(0, false);
    char *there = watch_shadow_of(watch, block);
    sim_fault_raise(there, false, 77);
    (void)sim_run_threads_for(READ_NS);
    assert_int_equal(sim_populated_pages(there, PAGE), 1);
    assert_int_equal(strata_page_rearm(watch, block, PAGE), STRATA_WATCH_OK);
    assert_int_equal(count_there(), 0);
    finish();
}

static void presence_is_told_as_it_is(void **state) {
    struct strata_page_info before, now;
    (void)state;
    assert_int_equal(strata_page_query(block, &before), STRATA_PAGE_OK);
    begin(STRATA_WATCH_READS);
    assert_int_equal(strata_page_query(block, &now), STRATA_PAGE_OK);
    assert_true(now.present_bytes == before.present_bytes && now.zero_bytes == before.zero_bytes && before.present_bytes == FULL * PAGE);
    finish();
}

/* ------------------------------------------------------------------ what the handler does */

static void contents_last_as_long_as_the_handler(void **state) {
    (void)state;
    for (unsigned way = 0; way < 3; way++) {
        new_process(FEATURES, NULL);
        told.unwatches = way == 0;
        told.frees = way == 1;
        told.touches = way == 2;
        begin(BOTH);
        meet(1, true);
        if (way == 2) (void)sim_run_threads_for(2 * READ_NS); /* the handler itself waits */
        assert_int_equal(told.writes[1], 1);
        if (way == 2) block[PAGE + 100] = number_of(1);
        if (way == 0) watch = NULL;
        if (way != 1) finish();
        if (way != 1) continue;
        (void)sim_run_threads_for(MS);
        assert_int_equal(told.ends, 1);
        assert_int_equal(sim_fault_registrations(), 0);
        strata_page_unwatch(watch);
        assert_null(strata_check());
    }
}

/* ------------------------------------------------------------------ ends */

static void whatever_ends_it_brings_all_back(void **state) {
    (void)state;
    for (unsigned way = 0; way < 7; way++) {
        new_process(FEATURES, NULL);
        void *now = block, *other;
        assert_int_equal(strata_page_alloc(PAGES * PAGE, STRATA_PAGE_ZEROED, &other), STRATA_PAGE_OK);
        begin(way % 2 == 0 ? BOTH : STRATA_WATCH_READS);
        meet(2, false);
        char *seen = block;
        size_t left = PAGES;
        switch (way) {
        case 0: assert_int_equal(strata_page_realloc(&now, 64 * PAGES * PAGE, 0), STRATA_PAGE_OK); break;
        case 1: assert_int_equal(strata_page_release(block + (FULL + 1) * PAGE, PAGE), STRATA_PAGE_OK); break;
        case 2: assert_int_equal(strata_page_swap(block, other, PAGES * PAGE), STRATA_PAGE_OK), seen = other; break;
        case 3: assert_int_equal(strata_page_move(block, other, PAGES * PAGE), STRATA_PAGE_OK), seen = other; break;
        case 4: assert_int_equal(strata_page_swap(other, block, PAGES * PAGE), STRATA_PAGE_OK), seen = other; break;
        case 5: assert_int_equal(strata_page_realloc(&now, PAGES / 2 * PAGE, 0), STRATA_PAGE_OK), left = PAGES / 2; break;
        default: now = strata_realloc(block, 2 * PAGES * PAGE); break;
        }
        if (seen == block) seen = now;
        (void)sim_run_threads_for(MS);
        assert_int_equal(told.ends, 1);
        assert_int_equal(sim_fault_registrations(), 0);
        for (size_t i = 0; i < left; i++) look(seen + i * PAGE, i);
        strata_page_unwatch(watch);
        assert_null(strata_check());
    }
}

static void a_child_has_all_of_it(void **state) {
    (void)state;
    for (unsigned fails = 0; fails < 2; fails++) {
        new_process(FEATURES, NULL);
        begin(BOTH);
        meet(1, false);
        fork_prepare();
        sim_fork_child();
        if (fails) sim_fail_only(UINT64_C(1) << SIM_PRESENCE), sim_fail_call(1, SIM_FOREVER);
        fork_child();
        sim_fail_call(0, 0);
        assert_true(info_of().ended);
        check_all();
        finish();
    }
}

/* Here a loss would be silent: who waits would find zeros. */
static void a_file_that_the_program_closes_loses_nothing(void **state) {
    (void)state;
    for (unsigned way = 0; way < 4; way++) {
        new_process(FEATURES, NULL);
        begin(BOTH);
        meet(1, true);
        sim_faults_close();
        (void)sim_run_threads_for(READ_NS);
        assert_false(info_of().ended); /* nobody but the reader has used it since */
        if (way == 0) assert_int_equal(strata_page_rearm(watch, block, PAGES * PAGE), STRATA_WATCH_NO_MEMORY);
        if (way == 1) assert_int_equal(strata_page_release(block + FULL * PAGE, PAGE), STRATA_PAGE_OK);
        if (way == 2) meet(2, true), (void)sim_run_threads_for(READ_NS);
        if (way != 3) assert_true(info_of().ended);
        (void)sim_run_threads_for(MS);
        finish();
        assert_int_equal(told.ends, way != 3);
        begin(BOTH); /* by a new file */
        meet(3, true);
        assert_int_equal(told.writes[3], 1);
        finish();
    }
}

/* ------------------------------------------------------------------ what fails */

static void a_page_that_is_held_is_made_our_own(void **state) {
    (void)state;
    sim_fail_only(UINT64_C(1) << SIM_FAULTS_MOVE);
    sim_fail_call(5, 1);
    begin(BOTH);
    assert_int_equal(sim_failures(), 1);
    finish();
}

/* Pinned, that is: a copy would lose what a device writes. */
static void a_page_that_stays_held_is_watched_by_rights(void **state) {
    (void)state;
    for (unsigned at = 1; at <= FULL; at += 3) {
        new_process(FEATURES, NULL);
        sim_fail_only(UINT64_C(1) << SIM_FAULTS_MOVE);
        sim_fail_call(at, 2);
        assert_int_equal(strata_page_watch(block, PAGES * PAGE, BOTH, handler, &told, &watch), STRATA_WATCH_OK);
        sim_fail_call(0, 0);
        assert_false(info_of().userfaultfd);
        assert_int_equal(sim_access(block), PLATFORM_ACCESS_NONE);
        assert_int_equal(sim_fault_registrations(), 0);
        check_all();
        finish();
    }
}

static void the_way_back_ends_well(void **state) {
    (void)state;
    for (unsigned copies = 0; copies < 4; copies++) {
        new_process(FEATURES, NULL);
        begin(BOTH);
        sim_fail_only(UINT64_C(1) << SIM_FAULTS_MOVE | UINT64_C(1) << SIM_FAULTS_COPY);
        sim_fail_call(1, 2 + copies); /* shared with a child, and no memory for a copy until there is */
        strata_page_unwatch(watch);
        watch = NULL;
        assert_true(sim_failures() >= 2 + copies);
        sim_fail_call(0, 0);
        finish();
    }
}

/* Each way there is refused in turn: rights it is, with nothing lost. */
static void without_it_rights_serve(void **state) {
    const unsigned calls[] = {SIM_FAULTS_OPEN, SIM_FAULTS_KEEP, SIM_FAULTS_REGISTER, SIM_RESERVE, SIM_COMMIT};
    (void)state;
    for (unsigned i = 0; i < ARRAY_LENGTH(calls) + 3; i++) {
        bool fails = i < ARRAY_LENGTH(calls);
        new_process(i == ARRAY_LENGTH(calls) ? FEATURES & ~(unsigned)PLATFORM_FAULTS_MOVE : FEATURES, i == ARRAY_LENGTH(calls) + 1   ? "watch:protect"
                                                                                                      : i == ARRAY_LENGTH(calls) + 2 ? "watch:signals"
                                                                                                                                     : NULL);
        if (fails && calls[i] != SIM_FAULTS_OPEN && calls[i] != SIM_FAULTS_KEEP) { /* with our own memory there already */
            begin(BOTH);
            strata_page_unwatch(watch);
        }
        if (fails) sim_fail_only(UINT64_C(1) << calls[i]), sim_fail_call(1, 1);
        assert_int_equal(strata_page_watch(block, PAGES * PAGE, BOTH, handler, &told, &watch), STRATA_WATCH_OK);
        if (fails) assert_int_equal(sim_failures(), 1);
        sim_fail_call(0, 0);
        assert_false(info_of().userfaultfd);
        assert_true(sim_access_fault(block + 3 * PAGE, false));
        assert_int_equal(told.reads[3], 1);
        finish();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_read_is_told_and_then_a_write, setup),
        cmocka_unit_test_setup(a_read_of_before_is_forgotten, setup),
        cmocka_unit_test_setup(reads_alone_are_told_once, setup),
        cmocka_unit_test_setup(an_absent_page_comes_as_zeros, setup),
        cmocka_unit_test_setup(a_page_that_is_gone_comes_as_zeros, setup),
        cmocka_unit_test_setup(a_shadow_that_is_read_is_zeros, setup),
        cmocka_unit_test_setup(presence_is_told_as_it_is, setup),
        cmocka_unit_test(contents_last_as_long_as_the_handler),
        cmocka_unit_test(whatever_ends_it_brings_all_back),
        cmocka_unit_test(a_child_has_all_of_it),
        cmocka_unit_test(a_file_that_the_program_closes_loses_nothing),
        cmocka_unit_test_setup(a_page_that_is_held_is_made_our_own, setup),
        cmocka_unit_test(a_page_that_stays_held_is_watched_by_rights),
        cmocka_unit_test(the_way_back_ends_well),
        cmocka_unit_test(without_it_rights_serve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
