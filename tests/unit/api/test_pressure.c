/*
 * test_pressure.c - the program's handlers for shortage of memory (strata/pressure.h): asked at pressure, above a limit, when idle and after a failed
 * allocation, on the maintenance thread alone, with no lock held; what they gave back is counted; they come and go while others run.
 */
#include "strata/malloc.h"
#include "strata/page.h"
#include "strata/pool.h"
#include "strata/pressure.h"
#include "strata/strata.h"
#include "unit/api/api_support.h"

#define MS UINT64_C(1000000)
#define PERIOD_NS (500 * MS)
#define BLOCKS 512
#define BLOCK_BYTES (100 * KIB)

static struct store {
    struct strata_pressure *registration;
    void *blocks[BLOCKS];
    unsigned count, gives, calls, of_need[4];
    size_t wanted;
    bool in_malloc, leaves; /* leaves: unregisters itself */
    struct store *removes;  /* and this one */
    struct strata_pool *pool;
} store, other;

static void give(void *argument, size_t wanted_bytes, enum strata_cache_need need) {
    struct store *mine = argument;
    assert_int_equal(sim_locks_held(), 0);
    assert_false(store.in_malloc);
    assert_int_not_equal(sim_thread(), 0); /* the maintenance thread, not the test */
    assert_in_range(need, STRATA_CACHE_IDLE, STRATA_CACHE_OUT_OF_MEMORY);
    mine->calls++;
    mine->of_need[need]++;
    mine->wanted = wanted_bytes;
    for (unsigned i = 0; i < mine->gives && mine->count != 0; i++) strata_free(mine->blocks[--mine->count]);
    if (mine->pool != NULL) assert_int_equal(strata_pool_destroy(mine->pool, NULL), STRATA_POOL_OK);
    mine->pool = NULL;
    if (mine->leaves) strata_pressure_unregister(mine->registration);
    if (mine->removes != NULL) strata_pressure_unregister(mine->removes->registration);
    mine->removes = NULL;
}

static void open_store(struct store *mine, const char *name, unsigned count, unsigned gives) {
    memset(mine, 0, sizeof *mine);
    mine->gives = gives;
    for (; mine->count < count; mine->count++) assert_non_null(mine->blocks[mine->count] = strata_malloc(BLOCK_BYTES));
    assert_int_equal(strata_pressure_register(name, give, mine, &mine->registration), STRATA_PRESSURE_OK);
    sim_run_threads_for(0); /* the thread waits */
}

static struct strata_pressure_stats stats_of(const struct store *mine) {
    struct strata_pressure_stats stats;
    strata_pressure_stats_get(mine->registration, &stats);
    assert_int_equal(stats.calls, mine->calls);
    return stats;
}

static void assert_sound(void) {
    assert_null(strata_check());
    assert_int_equal(sim_locks_held(), 0);
    assert_string_equal(sim_output(), "");
}

/* ------------------------------------------------------------------ when, and how much */

/* Some reports cost the process something at its end: they are awaited from when somebody wants to know, though the thread sleeps then. */
static void a_handler_has_all_reports_awaited(void **state) {
    (void)state;
    new_heap(NULL, "background:on");
    assert_true(maintenance_start());
    sim_run_threads_for(10000 * MS);
    assert_false(sim_pressure_is_soon());
    open_store(&store, "none", 0, 0);
    sim_run_threads_for(MS);
    assert_true(sim_pressure_is_soon());
    assert_sound();
}

static void pressure_asks_for_a_part_of_the_heap(void **state) {
    (void)state;
    new_heap(NULL, "background:on");
    open_store(&store, "blocks", 200, 20);
    const enum platform_pressure levels[] = {PLATFORM_PRESSURE_SOME, PLATFORM_PRESSURE_CRITICAL};
    const unsigned shifts[] = {3, 1};
    for (unsigned i = 0; i < 2; i++) {
        uint64_t populated = heap.zone.counters.populated << GRANULE_SHIFT;
        sim_pressure_raise(levels[i]);
        sim_run_threads_for(MS);
        assert_int_equal(store.of_need[STRATA_CACHE_PRESSURE], i + 1);
        assert_int_equal(store.wanted, populated >> shifts[i]);
        assert_int_equal(stats_of(&store).freed_bytes, (i + 1) * 20 * BLOCK_BYTES);
    }
    assert_string_equal(stats_of(&store).name, "blocks");
    assert_int_equal(heap.pressure.calls, 2);
    assert_int_equal(heap.pressure.freed_bytes, stats_of(&store).freed_bytes);
    assert_true(stats_of(&store).wanted_bytes > store.wanted);
    assert_sound();
}

/* All memory of a fixed pool is in use, as the heap's figures have it. */
static void what_a_pool_had_counts_as_freed(void **state) {
    (void)state;
    const struct strata_pool_config config = {.name = "events", .object_bytes = 1024, .m = 16, .objects_start = 4096};
    struct strata_pool_stats stats;
    new_heap(NULL, "background:on");
    open_store(&store, "pool", 0, 0);
    assert_int_equal(strata_pool_create(&config, &store.pool), STRATA_POOL_OK);
    assert_int_equal(strata_pool_stats_get(store.pool, &stats), STRATA_POOL_OK);
    sim_pressure_raise(PLATFORM_PRESSURE_SOME);
    sim_run_threads_for(MS);
    assert_null(store.pool);
    assert_int_equal(stats_of(&store).freed_bytes, stats.memory_bytes);
    assert_sound();
}

static void above_a_soft_limit_the_excess_is_wanted(void **state) {
    (void)state;
    new_heap(NULL, "background:on,soft_limit:4M");
    open_store(&store, "blocks", 100, 100);
    sim_run_threads_for(PERIOD_NS);
    assert_true(store.of_need[STRATA_CACHE_PRESSURE] >= 1);
    assert_in_range(store.wanted, 4 * MIB, 16 * MIB);
    unsigned calls = store.calls;
    sim_run_threads_for(PERIOD_NS);
    assert_int_equal(store.of_need[STRATA_CACHE_PRESSURE], calls); /* below it nobody is asked */
    assert_sound();
}

static void an_allocation_that_fails_has_them_asked_soon(void **state) {
    (void)state;
    new_heap(NULL, "background:on,hard_limit:16M");
    open_store(&store, "blocks", 100, 50);
    void *block;
    store.in_malloc = true;
    assert_null(strata_malloc(12 * MIB));
    assert_int_equal(store.calls, 0); /* not within malloc */
    store.in_malloc = false;
    sim_run_threads_for(MS);
    assert_int_equal(store.of_need[STRATA_CACHE_OUT_OF_MEMORY], 1);
    assert_int_equal(strata_page_alloc(15 * MIB, 0, &block), STRATA_PAGE_NO_MEMORY);
    sim_run_threads_for(MS);
    assert_int_equal(store.of_need[STRATA_CACHE_OUT_OF_MEMORY], 2);
    assert_int_equal(strata_page_alloc(15 * MIB, 0, &block), STRATA_PAGE_OK);
    assert_int_equal(strata_page_free(block), STRATA_PAGE_OK);
    assert_sound();
}

static void an_idle_program_is_asked_once(void **state) {
    (void)state;
    new_heap(NULL, "background:on");
    open_store(&store, "blocks", 10, 0);
    sim_run_threads_for(20 * PERIOD_NS);
    assert_int_equal(store.of_need[STRATA_CACHE_IDLE], 1);
    assert_int_equal(store.calls, 1);
    assert_sound();
}

/* ------------------------------------------------------------------ coming and going */

static void a_handler_may_unregister_itself_and_others(void **state) {
    (void)state;
    new_heap(NULL, "background:on");
    open_store(&store, "first", 0, 0);
    open_store(&other, "second", 0, 0);
    store.leaves = true;
    store.removes = &other;
    sim_pressure_raise(PLATFORM_PRESSURE_SOME);
    sim_run_threads_for(MS);
    assert_int_equal(store.calls, 1);
    assert_int_equal(other.calls, 0);
    assert_null(heap.pressure.first);
    sim_run_threads_for(PERIOD_NS);
    sim_pressure_raise(PLATFORM_PRESSURE_SOME);
    sim_run_threads_for(MS);
    assert_int_equal(store.calls, 1);
    assert_int_equal(heap.pressure.calls, 1); /* sums stay */
    assert_sound();
}

static struct platform_event inside, go;
static bool unregistered;
static unsigned asked;
static void linger(void *argument, size_t wanted_bytes, enum strata_cache_need need) {
    (void)argument, (void)wanted_bytes, (void)need;
    asked++;
    platform_event_wake(&inside);
    (void)platform_event_wait(&go, UINT64_MAX);
    assert_false(unregistered);
}
static void remove_it(void *argument) {
    strata_pressure_unregister(argument);
    unregistered = true;
}

static void unregistering_waits_for_a_run(void **state) {
    (void)state;
    struct strata_pressure *registration;
    new_heap(NULL, "background:on");
    inside = go = (struct platform_event){0};
    unregistered = false;
    asked = 0;
    assert_int_equal(strata_pressure_register("lingers", linger, NULL, &registration), STRATA_PRESSURE_OK);
    sim_run_threads_for(0);
    sim_pressure_raise(PLATFORM_PRESSURE_SOME);
    sim_run_threads_for(MS);
    assert_int_equal(asked, 1);
    sim_thread_start(1, remove_it, registration);
    sim_run_threads_for(MS);
    assert_false(unregistered);
    platform_event_wake(&go);
    sim_run_threads_for(MS);
    assert_true(unregistered);
    assert_null(heap.pressure.first);
    assert_sound();
}

static void a_child_has_the_handlers_and_no_run(void **state) {
    (void)state;
    struct strata_pressure *registration;
    new_heap(NULL, "background:on");
    inside = go = (struct platform_event){0};
    asked = 0;
    assert_int_equal(strata_pressure_register("lingers", linger, NULL, &registration), STRATA_PRESSURE_OK);
    sim_run_threads_for(0);
    sim_pressure_raise(PLATFORM_PRESSURE_SOME);
    sim_run_threads_for(MS);
    assert_int_equal(asked, 1); /* and it runs still */
    fork_prepare();
    sim_fork_child();
    fork_child();
    strata_pressure_unregister(registration); /* would wait for ever for the parent's thread */
    assert_null(heap.pressure.first);
    open_store(&store, "the child's", 0, 0);
    sim_pressure_raise(PLATFORM_PRESSURE_CRITICAL);
    sim_run_threads_for(MS);
    assert_int_equal(store.calls, 1);
    assert_sound();
}

/* ------------------------------------------------------------------ errors */

static void wrong_arguments_are_told(void **state) {
    (void)state;
    struct strata_pressure *registration = (void *)&store;
    new_heap(NULL, "background:on");
    assert_int_equal(strata_pressure_register(NULL, give, NULL, &registration), STRATA_PRESSURE_BAD_ARGUMENT);
    assert_int_equal(strata_pressure_register("", give, NULL, &registration), STRATA_PRESSURE_BAD_ARGUMENT);
    assert_int_equal(strata_pressure_register("a name that is longer than 31 bytes", give, NULL, &registration), STRATA_PRESSURE_BAD_ARGUMENT);
    assert_int_equal(strata_pressure_register("name", NULL, NULL, &registration), STRATA_PRESSURE_BAD_ARGUMENT);
    assert_int_equal(strata_pressure_register("name", give, NULL, NULL), STRATA_PRESSURE_BAD_ARGUMENT);
    assert_int_equal(sim_calls(SIM_THREAD_START), 0);
    new_heap(NULL, "background:off");
    assert_int_equal(strata_pressure_register("name", give, NULL, &registration), STRATA_PRESSURE_NO_THREAD);
    new_heap(NULL, "background:on");
    sim_fail_only(UINT64_C(1) << SIM_THREAD_START);
    sim_fail_call(1, SIM_FOREVER);
    assert_int_equal(strata_pressure_register("name", give, NULL, &registration), STRATA_PRESSURE_NO_THREAD);
    assert_ptr_equal(registration, &store);
    assert_null(heap.pressure.first);
    strata_pressure_unregister(NULL);
    assert_string_equal(strata_pressure_status_text(STRATA_PRESSURE_OK), "success");
    assert_string_equal(strata_pressure_status_text((enum strata_pressure_status)99), "unknown status");
    for (int i = 0; i <= STRATA_PRESSURE_NO_THREAD; i++)
        assert_string_not_equal(strata_pressure_status_text((enum strata_pressure_status)i), "unknown status");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handler_has_all_reports_awaited),
        cmocka_unit_test(pressure_asks_for_a_part_of_the_heap),
        cmocka_unit_test(what_a_pool_had_counts_as_freed),
        cmocka_unit_test(above_a_soft_limit_the_excess_is_wanted),
        cmocka_unit_test(an_allocation_that_fails_has_them_asked_soon),
        cmocka_unit_test(an_idle_program_is_asked_once),
        cmocka_unit_test(a_handler_may_unregister_itself_and_others),
        cmocka_unit_test(unregistering_waits_for_a_run),
        cmocka_unit_test(a_child_has_the_handlers_and_no_run),
        cmocka_unit_test(wrong_arguments_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
