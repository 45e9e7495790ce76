/*
 * test_page_watch.c - watched pages (strata/page_watch.h) on the simulated machine, by userfaultfd and by access rights: which pages are closed when,
 * each told once, what ends a watch, and what a call that fails leaves behind. On real threads and signals: tests/stress/api_page_watch.c.
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
#include "strata/page_watch.h"
#include "strata/strata.h"

#define MS UINT64_C(1000000)
#define READ_NS (2500 * MS) /* until the reader looks again, whom nothing wakes here */
#define PAGES 16
#define PAGE ((size_t)4096)
#define BOTH (STRATA_WATCH_WRITES | STRATA_WATCH_READS)

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
    unsigned writes[PAGES], reads[PAGES], ends, all;
} told;

static void handler(const struct strata_watch_event *event, void *argument) {
    size_t page = (size_t)((char *)event->address - block) / PAGE;
    assert_ptr_equal(argument, &told);
    assert_int_equal(sim_locks_held(), 0);
    assert_int_not_equal(sim_thread(), 0);
    told.all++;
    if (event->kind == STRATA_WATCH_ENDED) {
        assert_true(event->address == block && event->bytes == PAGES * PAGE);
        told.ends++;
        return;
    }
    assert_true(event->bytes == PAGE && page < PAGES);
    (event->kind == STRATA_WATCH_WRITES ? told.writes : told.reads)[page]++;
}

static void new_process(unsigned features) {
    sim_reset(NULL);
    sim_faults_offer(features);
    memset(&heap, 0, sizeof heap);
    heap.lock = (struct platform_lock)PLATFORM_LOCK_INIT(LOCK_RANK_API);
    assert_true(heap_init());
    memset(&told, 0, sizeof told);
    void *made;
    assert_int_equal(strata_page_alloc(PAGES * PAGE, STRATA_PAGE_ZEROED, &made), STRATA_PAGE_OK);
    block = made;
    watch = NULL;
}
static int by_faults(void **state) {
    (void)state;
    new_process(PLATFORM_FAULTS_PROTECT | PLATFORM_FAULTS_PROTECT_ABSENT | PLATFORM_FAULTS_THREAD);
    return 0;
}
static int by_rights(void **state) {
    (void)state;
    new_process(0);
    return 0;
}

static enum strata_watch_status begin(unsigned kinds) { return strata_page_watch(block, PAGES * PAGE, kinds, handler, &told, &watch); }

static unsigned count_access(enum platform_access access) {
    unsigned count = 0;
    for (unsigned i = 0; i < PAGES; i++) count += sim_access(block + i * PAGE) == access;
    return count;
}
static unsigned count_protected(void) {
    unsigned count = 0;
    for (unsigned i = 0; i < PAGES; i++) count += sim_fault_protected(block + i * PAGE);
    return count;
}

static void finish(void) {
    strata_page_unwatch(watch);
    (void)sim_run_threads_for(MS);
    assert_int_equal(count_access(PLATFORM_ACCESS_ALL), PAGES);
    assert_int_equal(count_protected(), 0);
    assert_null(strata_check());
    assert_int_equal(sim_locks_held(), 0);
    assert_string_equal(sim_output(), "");
}

/* ------------------------------------------------------------------ what is told */

static void writes_are_told_once_by_faults(void **state) {
    (void)state;
    assert_int_equal(begin(STRATA_WATCH_WRITES), STRATA_WATCH_OK);
    assert_int_equal(count_protected(), PAGES);
    struct strata_watch_info info;
    strata_page_watch_info(watch, &info);
    assert_true(info.userfaultfd && !info.in_kernel && !info.ended && info.kinds == STRATA_WATCH_WRITES);
    for (unsigned round = 1; round <= 2; round++) {
        for (unsigned i = 0; i < 3; i++) {
            unsigned wakes = sim_fault_wakes();
            sim_fault_raise(block + 5 * PAGE + 100, true, 77);
            (void)sim_run_threads_for(READ_NS);
            assert_int_equal(told.writes[5], round); /* the second and third thread met it before it was open */
            assert_true(sim_fault_wakes() > wakes);
            assert_int_equal(count_protected(), PAGES - 1);
        }
        assert_int_equal(strata_page_rearm(watch, block + 5 * PAGE, PAGE), STRATA_WATCH_OK);
        assert_int_equal(count_protected(), PAGES);
    }
    strata_page_watch_info(watch, &info);
    assert_int_equal(info.writes, 2);
    assert_int_equal(told.all, 2);
    finish();
}

/* As the reader does, while the server is at something else. */
static void queue(unsigned page) {
    struct page_watches *watches = heap.watches;
    watches->faults[(watches->fault_first + watches->fault_count++) % WATCH_FAULTS_MAX] =
        (struct platform_fault){.page = block + page * PAGE, .thread = 77, .write = true, .protect = true};
}

/* A thread that is woken with others goes on while a fault of its own is still queued: neither a new round nor a new watch is told of that. */
static void faults_of_before_are_forgotten(void **state) {
    (void)state;
    assert_int_equal(begin(STRATA_WATCH_WRITES), STRATA_WATCH_OK);
    sim_fault_raise(block + 5 * PAGE, true, 77);
    (void)sim_run_threads_for(READ_NS);
    assert_int_equal(told.all, 1);

    queue(5);
    queue(6); /* it is armed: who met it waits */
    unsigned wakes = sim_fault_wakes();
    assert_int_equal(strata_page_rearm(watch, block, PAGES * PAGE), STRATA_WATCH_OK);
    assert_int_equal(sim_fault_wakes(), wakes + 1);
    sim_fault_raise(block + 9 * PAGE, true, 78);
    (void)sim_run_threads_for(READ_NS);
    assert_true(told.writes[5] == 1 && told.writes[6] == 1 && told.writes[9] == 1);

    queue(5);
    strata_page_unwatch(watch);
    assert_int_equal(heap.watches->fault_count, 0);
    assert_int_equal(begin(STRATA_WATCH_WRITES), STRATA_WATCH_OK);
    sim_fault_raise(block + 9 * PAGE, true, 78);
    (void)sim_run_threads_for(READ_NS);
    assert_true(told.writes[5] == 1 && told.writes[9] == 2 && told.all == 4);
    assert_int_equal(count_protected(), PAGES - 1);
    finish();
}

static void accesses_are_told_by_rights(void **state) {
    (void)state;
    assert_int_equal(begin(BOTH), STRATA_WATCH_OK);
    assert_int_equal(count_access(PLATFORM_ACCESS_NONE), PAGES);
    assert_true(sim_access_fault(block + 3 * PAGE + 8, false));
    assert_int_equal(told.reads[3], 1);
    assert_int_equal(sim_access(block + 3 * PAGE), PLATFORM_ACCESS_READ);
    assert_true(sim_access_fault(block + 3 * PAGE + 8, true));
    assert_int_equal(told.writes[3], 1);
    assert_int_equal(sim_access(block + 3 * PAGE), PLATFORM_ACCESS_ALL);
    assert_true(sim_access_fault(block + 4 * PAGE, true)); /* at once: only that */
    assert_true(told.writes[4] == 1 && told.reads[4] == 0);
    assert_int_equal(sim_access(block + 4 * PAGE), PLATFORM_ACCESS_ALL);
    assert_int_equal(count_access(PLATFORM_ACCESS_NONE), PAGES - 2);
    assert_int_equal(strata_page_rearm(watch, block, PAGES * PAGE), STRATA_WATCH_OK);
    assert_int_equal(count_access(PLATFORM_ACCESS_NONE), PAGES);
    assert_int_equal(told.all, 3);
    finish();
}

static void writes_alone_leave_pages_readable(void **state) {
    (void)state;
    assert_int_equal(begin(STRATA_WATCH_WRITES), STRATA_WATCH_OK);
    assert_int_equal(count_access(PLATFORM_ACCESS_READ), PAGES);
    assert_true(sim_access_fault(block, false)); /* where the system does not say which it was: who can read stops at a write only */
    assert_int_equal(told.writes[0], 1);
    assert_false(sim_access_fault(&told, true)); /* nobody watches that */
    finish();
}

/* ------------------------------------------------------------------ ends */

static void a_range_that_is_freed_ends_its_watch(void **state) {
    (void)state;
    assert_int_equal(begin(STRATA_WATCH_WRITES), STRATA_WATCH_OK);
    bool faults = count_protected() == PAGES;
    assert_int_equal(strata_page_free(block), STRATA_PAGE_OK);
    assert_int_equal(count_protected(), 0);
    assert_int_equal(count_access(PLATFORM_ACCESS_ALL), PAGES); /* before the pages went anywhere */
    (void)sim_run_threads_for(MS);
    assert_true(told.ends == 1 && told.all == 1);
    assert_int_equal(strata_page_rearm(watch, block, PAGE), STRATA_WATCH_GONE);
    assert_string_equal(strata_watch_status_text(STRATA_WATCH_GONE), "the watch has ended");
    struct strata_watch_info info;
    strata_page_watch_info(watch, &info);
    assert_true(info.ended && info.userfaultfd == faults);
    assert_int_equal(begin(STRATA_WATCH_WRITES), STRATA_WATCH_NO_BLOCK);
    finish();
}

/* What has changed nothing has not ended the watch either; what succeeds does, in place as well. */
static void a_resize_that_fails_ends_no_watch(void **state) {
    (void)state;
    const size_t absurd = (size_t)1 << 46;
    void *now = block;
    assert_int_equal(begin(STRATA_WATCH_WRITES), STRATA_WATCH_OK);
    assert_int_equal(strata_page_realloc(&now, absurd, 0), STRATA_PAGE_NO_MEMORY);
    assert_int_equal(strata_page_realloc(&now, absurd, STRATA_PAGE_NO_MOVE), STRATA_PAGE_NO_ROOM);
    assert_null(strata_realloc(now, absurd));
    assert_ptr_equal(now, block);
    (void)sim_run_threads_for(MS);
    assert_int_equal(told.ends, 0);
    assert_int_equal(strata_page_realloc(&now, (PAGES + 1) * PAGE, STRATA_PAGE_NO_MOVE), STRATA_PAGE_OK);
    (void)sim_run_threads_for(MS);
    assert_int_equal(told.ends, 1);
    strata_page_unwatch(watch);
    assert_null(strata_check());
}

/* No mapping is left for the border round a page that only part of all may do with: all of it is opened, and that is told. */
static void no_mappings_end_a_watch(void **state) {
    (void)state;
    assert_int_equal(begin(BOTH), STRATA_WATCH_OK);
    sim_fail_only(UINT64_C(1) << SIM_PROTECT);
    sim_fail_call(1, 1);
    assert_true(sim_access_fault(block + PAGE, false));
    assert_int_equal(sim_failures(), 1);
    assert_int_equal(count_access(PLATFORM_ACCESS_ALL), PAGES);
    (void)sim_run_threads_for(MS);
    assert_true(told.reads[1] == 1 && told.ends == 1);
    finish();
}

static void a_child_has_no_watches(void **state) {
    (void)state;
    assert_int_equal(begin(STRATA_WATCH_WRITES), STRATA_WATCH_OK);
    (void)sim_run_threads_for(MS);
    fork_prepare();
    sim_fork_child();
    fork_child();
    assert_int_equal(count_access(PLATFORM_ACCESS_ALL), PAGES);
    assert_int_equal(count_protected(), 0);
    assert_int_equal(strata_page_rearm(watch, block, PAGE), STRATA_WATCH_GONE);
    strata_page_unwatch(watch);
    assert_int_equal(begin(STRATA_WATCH_WRITES), STRATA_WATCH_OK); /* and may have its own */
    finish();
    assert_int_equal(told.all, 0);
}

/* ------------------------------------------------------------------ what is wrong */

static void wrong_arguments(void **state) {
    struct strata_watch *other = NULL;
    (void)state;
    assert_int_equal(strata_page_watch(block, PAGE, 0, handler, &told, &other), STRATA_WATCH_BAD_ARGUMENT);
    assert_int_equal(strata_page_watch(block, PAGE, STRATA_WATCH_ENDED, handler, &told, &other), STRATA_WATCH_BAD_ARGUMENT);
    assert_int_equal(strata_page_watch(block, PAGE, BOTH, NULL, &told, &other), STRATA_WATCH_BAD_ARGUMENT);
    assert_int_equal(strata_page_watch(block, PAGE, BOTH, handler, &told, NULL), STRATA_WATCH_BAD_ARGUMENT);
    assert_int_equal(strata_page_watch(block + 1, PAGE, BOTH, handler, &told, &other), STRATA_WATCH_BAD_ARGUMENT);
    assert_int_equal(strata_page_watch(block, (PAGES + 1) * PAGE, BOTH, handler, &told, &other), STRATA_WATCH_NO_BLOCK);
    assert_int_equal(strata_page_watch((void *)(uintptr_t)PAGE, PAGE, BOTH, handler, &told, &other), STRATA_WATCH_NO_BLOCK);
    assert_int_equal(begin(STRATA_WATCH_WRITES), STRATA_WATCH_OK);
    assert_int_equal(strata_page_watch(block + 2 * PAGE, PAGE, BOTH, handler, &told, &other), STRATA_WATCH_TAKEN);
    assert_int_equal(strata_page_rearm(watch, block - PAGE, PAGE), STRATA_WATCH_BAD_ARGUMENT);
    assert_int_equal(strata_page_rearm(watch, block, (PAGES + 1) * PAGE), STRATA_WATCH_BAD_ARGUMENT);
    assert_int_equal(strata_page_rearm(NULL, block, PAGE), STRATA_WATCH_BAD_ARGUMENT);
    assert_null(other);
    strata_page_unwatch(NULL);
    finish();
}

/* Each call fails in turn: a status, no page is closed, and the next try succeeds. */
static void failures_change_nothing(void **state) {
    const unsigned calls[] = {SIM_FAULTS_OPEN, SIM_FAULTS_REGISTER, SIM_FAULTS_PROTECT, SIM_PROTECT, SIM_ON_ACCESS_FAULT, SIM_THREAD_START};
    (void)state;
    for (unsigned i = 0; i < ARRAY_LENGTH(calls); i++) {
        for (unsigned faults = 0; faults < 2; faults++) {
            new_process(faults ? PLATFORM_FAULTS_PROTECT | PLATFORM_FAULTS_PROTECT_ABSENT | PLATFORM_FAULTS_THREAD : 0);
            sim_fail_only(UINT64_C(1) << calls[i]);
            sim_fail_call(1, 1);
            enum strata_watch_status status = begin(STRATA_WATCH_WRITES);
            if (status != STRATA_WATCH_OK) {
                assert_true(status == STRATA_WATCH_NO_MEMORY || status == STRATA_WATCH_FORBIDDEN);
                assert_int_equal(sim_failures(), 1);
                assert_null(watch);
                assert_int_equal(count_protected(), 0);
                assert_int_equal(count_access(PLATFORM_ACCESS_ALL), PAGES);
                sim_fail_call(0, 0);
                assert_int_equal(begin(STRATA_WATCH_WRITES), STRATA_WATCH_OK);
            }
            finish();
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(writes_are_told_once_by_faults, by_faults),
        cmocka_unit_test_setup(faults_of_before_are_forgotten, by_faults),
        cmocka_unit_test_setup(accesses_are_told_by_rights, by_rights),
        cmocka_unit_test_setup(writes_alone_leave_pages_readable, by_rights),
        cmocka_unit_test_setup(a_range_that_is_freed_ends_its_watch, by_faults),
        cmocka_unit_test_setup(a_range_that_is_freed_ends_its_watch, by_rights),
        cmocka_unit_test_setup(a_resize_that_fails_ends_no_watch, by_faults),
        cmocka_unit_test_setup(a_resize_that_fails_ends_no_watch, by_rights),
        cmocka_unit_test_setup(no_mappings_end_a_watch, by_rights),
        cmocka_unit_test_setup(a_child_has_no_watches, by_faults),
        cmocka_unit_test_setup(a_child_has_no_watches, by_rights),
        cmocka_unit_test_setup(wrong_arguments, by_faults),
        cmocka_unit_test_setup(wrong_arguments, by_rights),
        cmocka_unit_test(failures_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
