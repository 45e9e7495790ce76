/*
 * test_heap_start.c - the start of the heap where memory is short: it fails without losing anything, and comes about with the next call
 * that finds memory. Every call of the platform that can fail does so in turn, once and several times in a row.
 */
#include "strata/malloc.h"
#include "unit/api/api_support.h"

static uint64_t reserved_by_a_good_start(void) {
    new_process(NULL, NULL);
    void *first = strata_malloc(10);
    assert_non_null(first);
    strata_free(first);
    return sim_reserved_bytes();
}

static void a_failed_start_loses_nothing(void **state) {
    (void)state;
    uint64_t whole = reserved_by_a_good_start();
    unsigned failed = 0;
    for (unsigned times = 1; times <= 3; times++) {
        for (unsigned call = 1;; call++) {
            new_process(NULL, NULL);
            sim_fail_call(call, times);
            unsigned tries = 0;
            uint64_t most = 0;
            void *first;
            while (errno = 0, (first = strata_malloc(10)) == NULL) {
                assert_int_equal(errno, ENOMEM);
                most = sim_reserved_bytes() > most ? sim_reserved_bytes() : most;
                assert_true(++tries < 20);
            }
            bool reached = sim_failures() != 0;
            sim_fail_call(0, 0);
            failed += tries != 0;
            /* Where the areas of all CPUs can't be had, those of threads are tried: address space, of which little is committed. */
            uint64_t allowed = whole + (heap.caches.thread_mode ? (uint64_t)CACHE_THREADS_MAX * CPU_AREA_BYTES : 0);
            assert_true(most <= allowed);
            /* A reservation that was refused is made smaller; none is made twice. */
            assert_true(sim_reserved_bytes() <= allowed);
            strata_free(first);
            assert_null(heap_check());
            if (!reached) break;
        }
    }
    assert_true(failed >= 3); /* the loop has met calls that the start can't do without */
}

/* A process whose heap can't be built may fork all the same: parent and child go on, and have one as soon as there is memory. */
static void a_process_without_a_heap_forks(void **state) {
    (void)state;
    unsigned halves = 0;
    heap_fork_register();
    for (unsigned in_child = 0; in_child < 2; in_child++) {
        for (unsigned call = 1, reached = 1; reached != 0; call++) {
            new_process(NULL, NULL);
            sim_fail_call(call, SIM_FOREVER);
            void *first = strata_malloc(10);
            reached = sim_failures() != 0;
            halves += first == NULL && heap.layers_stand; /* zone and slabs stand, and for the rest there was no memory */
            fork_prepare();
            if (in_child != 0) sim_fork_child();
            (in_child != 0 ? fork_child : fork_parent)();
            assert_int_equal(sim_locks_held(), 0);
            sim_fail_call(0, 0);
            strata_free(first);
            assert_non_null(first = strata_malloc(10));
            strata_free(first);
            assert_null(heap_check());
        }
    }
    assert_true(halves >= 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_failed_start_loses_nothing), cmocka_unit_test(a_process_without_a_heap_forks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
