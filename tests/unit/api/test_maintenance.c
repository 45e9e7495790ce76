/*
 * test_maintenance.c - who does the ticks and when: the states of maintenance.c as a program sees them, on a simulated clock.
 *
 * What is looked at: threads that were started, pages that the process has, waits of the thread. Not how soon a slow path looks at the clock: `busy`
 * makes enough of them for every purpose.
 */
#include "slab_counts.h"
#include "strata/cache.h"
#include "strata/malloc.h"
#include "strata/strata.h"
#include "unit/api/api_support.h"

#define MS UINT64_C(1000000)
#define PERIOD_NS (500 * MS)    /* of decay_ms by default */
#define LOOK_NS (PERIOD_NS / 5) /* at pages */
#define SLOW_CALLS 64           /* at most so many pass between two looks at the clock \ */
#define TICKS 8                 /* enough for pages to go back */

static uint64_t starts(void) { return sim_calls(SIM_THREAD_START); }
static uint64_t waits(void) { return sim_calls(SIM_PRESSURE_WAIT) + sim_calls(SIM_EVENT_WAIT); }
static uint64_t resident_bytes(void) {
    uint64_t bytes = sim_populated_pages((void *)heap.zone.base, heap.zone.extent_bytes) * platform_info()->page_bytes;
    assert_true(bytes <= heap.zone.counters.populated << GRANULE_SHIFT);
    return bytes;
}

/* The program works, without growing, and takes slow paths: three allocations and three frees in turn. */
static void busy(void) {
    for (unsigned i = 0; i < SLOW_CALLS; i++) {
        void *blocks[3];
        for (unsigned j = 0; j < ARRAY_LENGTH(blocks); j++) assert_non_null(blocks[j] = strata_malloc(40 * KIB));
        for (unsigned j = 0; j < ARRAY_LENGTH(blocks); j++) strata_free(blocks[j]);
    }
}

/* A block with all its pages present, as though written to. */
static void *hold(size_t bytes) {
    void *block = strata_malloc(bytes);
    assert_non_null(block);
    sim_touch(block, bytes);
    return block;
}

static void let_ticks_pass(unsigned ticks, bool work) {
    for (unsigned i = 0; i < ticks; i++) {
        if (work) busy();
        sim_run_threads_for(PERIOD_NS);
    }
}

static void assert_sound(void) {
    const char *broken = heap_check();
    if (broken != NULL) fail_msg("%s", broken);
    assert_int_equal(sim_locks_held(), 0);
    assert_string_equal(sim_output(), "");
}

/* ------------------------------------------------------------------ who gets a thread */

static void auto_starts_one_thread_above_64_mib(void **state) {
    (void)state;
    new_heap(NULL, NULL);
    void *large = hold(60 * MIB);
    busy();
    let_ticks_pass(3, true);
    assert_int_equal(starts(), 0);
    void *more = hold(8 * MIB);
    busy();
    assert_int_equal(starts(), 1);
    assert_int_equal(sim_threads_alive(), 1);
    let_ticks_pass(TICKS, true);
    strata_free(large);
    strata_free(more);
    let_ticks_pass(TICKS, true);
    assert_int_equal(starts(), 1); /* it stays, and stays the only one */
    assert_int_equal(sim_threads_alive(), 1);
    assert_sound();
}

/* Who has few large blocks makes a handful of slow calls: these must do, and what is freed then comes back. */
static void few_large_blocks_are_enough(void **state) {
    (void)state;
    void *blocks[3];
    new_heap(NULL, NULL);
    for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++) blocks[i] = hold(40 * MIB);
    assert_int_equal(starts(), 1);
    for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++) strata_free(blocks[i]);
    let_ticks_pass(TICKS, false);
    assert_true(resident_bytes() < 4 * MIB);
    assert_sound();
}

static void on_starts_one_at_once(void **state) {
    (void)state;
    new_heap(NULL, "background:on");
    assert_int_equal(starts(), 0);
    busy();
    assert_int_equal(starts(), 1);
    let_ticks_pass(3, true);
    assert_int_equal(starts(), 1);
    assert_int_equal(sim_threads_alive(), 1);
    assert_sound();
}

/* Frees can't start it: no rhythm of the program may make them the only ones that look. */
static void every_rhythm_of_calls_gets_one(void **state) {
    (void)state;
    static void *blocks[16];
    for (unsigned length = 1; length <= ARRAY_LENGTH(blocks); length++) {
        new_heap(NULL, "background:on");
        for (unsigned i = 0; i < 16 * SLOW_CALLS; i += 2 * length) {
            for (unsigned j = 0; j < length; j++) assert_non_null(blocks[j] = strata_malloc(40 * KIB));
            for (unsigned j = 0; j < length; j++) strata_free(blocks[j]);
        }
        if (starts() != 1) fail_msg("%u allocations and %u frees in turn start no thread", length, length);
    }
}

/* A start allocates, which a free must not need. */
static void frees_start_none(void **state) {
    (void)state;
    static void *blocks[4 * SLOW_CALLS];
    new_heap(NULL, "background:off");
    for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++) blocks[i] = hold(40 * KIB);
    heap.options.background = OPTION_BACKGROUND_ON; /* from here on */
    for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++) strata_free(blocks[i]);
    assert_int_equal(starts(), 0);
    busy();
    assert_int_equal(starts(), 1);
    assert_sound();
}

/* ------------------------------------------------------------------ pages go back */

static void off_ticks_on_slow_paths(void **state) {
    (void)state;
    new_heap(NULL, "background:off,thp:never");
    void *kept = hold(4 * MIB), *large = hold(16 * MIB);
    busy();
    strata_free(large);
    busy(); /* no time has passed: nothing goes */
    assert_true(resident_bytes() >= 20 * MIB);
    let_ticks_pass(TICKS, true);
    assert_true(resident_bytes() < 6 * MIB);
    assert_true(resident_bytes() >= 4 * MIB);
    strata_free(kept);
    let_ticks_pass(TICKS, false); /* who takes no slow path does not tick */
    assert_true(resident_bytes() >= 4 * MIB);
    assert_int_equal(starts(), 0);
    assert_sound();
}

/* In small heaps, too. Destructors run where their own cache is asked for more, and never in malloc. */
static unsigned destructed;
static void count_destructed(void *object, void *argument) {
    (void)object, (void)argument;
    destructed++;
}
static void burst(struct strata_cache *cache, unsigned count) {
    static void *objects[2000];
    for (unsigned i = 0; i < count; i++) assert_non_null(objects[i] = strata_cache_alloc(cache, 0));
    for (unsigned i = 0; i < count; i++) strata_cache_free(cache, objects[i]);
}
static void object_caches_tick_where_they_are_used(void **state) {
    const struct strata_cache_config config = {.size = 1000, .destructor = count_destructed};
    (void)state;
    new_heap(NULL, NULL);
    destructed = 0;
    struct strata_cache *cache, *other;
    assert_int_equal(strata_cache_create("large", &config, &cache), STRATA_CACHE_OK);
    assert_int_equal(strata_cache_create("other", &config, &other), STRATA_CACHE_OK);
    burst(cache, 2000);
    for (unsigned tick = 0; tick < TICKS; tick++) {
        let_ticks_pass(1, true);
        burst(other, 150);
    }
    assert_int_equal(destructed, 0);
    for (unsigned tick = 0; tick < 4; tick++) {
        let_ticks_pass(1, true);
        burst(cache, 150);
    }
    assert_in_range(destructed, 1600, 2000);
    assert_int_equal(starts(), 0);
    assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK);
    assert_int_equal(destructed, 2000);
    assert_int_equal(strata_cache_destroy(other), STRATA_CACHE_OK);
    assert_sound();
}

static void a_refused_start_leaves_the_ticks_to_slow_paths(void **state) {
    (void)state;
    new_heap(NULL, "background:on,thp:never");
    sim_fail_only(UINT64_C(1) << SIM_THREAD_START);
    sim_fail_call(1, 1);
    void *large = hold(16 * MIB);
    busy();
    assert_int_equal(sim_failures(), 1);
    assert_int_equal(sim_threads_alive(), 0);
    strata_free(large);
    assert_true(resident_bytes() >= 16 * MIB);
    let_ticks_pass(TICKS, true);
    assert_true(resident_bytes() < 2 * MIB);
    assert_int_equal(starts(), 1); /* not tried again and again */
    assert_sound();
}

static void the_thread_gives_back_what_is_idle(void **state) {
    (void)state;
    new_heap(NULL, "background:on,thp:never");
    void *large = hold(16 * MIB), *kept = hold(4 * MIB);
    busy();
    let_ticks_pass(1, false);
    assert_true(resident_bytes() >= 20 * MIB);
    strata_free(large);
    sim_run_threads_for(LOOK_NS / 2);
    assert_true(resident_bytes() >= 20 * MIB); /* it might be needed again */
    sim_run_threads_for(2 * LOOK_NS);
    assert_true(resident_bytes() < 6 * MIB); /* before the first tick */
    let_ticks_pass(TICKS, false);
    assert_true(resident_bytes() < 6 * MIB);
    assert_true(resident_bytes() >= 4 * MIB);
    strata_free(kept);
    assert_sound();
}

/* ------------------------------------------------------------------ sleep */

static void asleep(const char *conf, const struct sim_config *sim) {
    new_heap(sim, conf);
    busy();
    assert_int_equal(sim_threads_alive(), 1);
    let_ticks_pass(2 * TICKS, false);
    uint64_t before = waits();
    let_ticks_pass(100, false);
    assert_int_equal(waits(), before); /* an idle process is not woken twice a second */
}

static void the_thread_sleeps_while_nothing_happens(void **state) {
    (void)state;
    struct sim_config no_pressure = {.no_pressure = true};
    asleep("background:on", NULL);
    assert_int_equal(sim_calls(SIM_EVENT_WAIT), 0);
    asleep("background:on", &no_pressure);
    assert_int_equal(sim_calls(SIM_PRESSURE_WAIT), 0);
    asleep("background:on,decay_ms:0", NULL); /* nor a thousand times a second */
    assert_sound();
}

/* It sleeps for a millisecond at least, also where the looks at pages of a period would come sooner; the ticks are not late for that. */
static void short_periods_have_their_ticks(void **state) {
    (void)state;
    static const char *const periods[] = {"background:on,decay_ms:0", "background:on,decay_ms:1", "background:on,decay_ms:3",
                                          "background:on,decay_ms:5"};
    static const unsigned ms[] = {1, 1, 3, 5};
    for (unsigned i = 0; i < ARRAY_LENGTH(periods); i++) {
        new_heap(NULL, periods[i]);
        busy();
        sim_run_threads_for(2 * TICKS * ms[i] * MS);
        uint64_t before = waits();
        sim_run_threads_for(10 * TICKS * ms[i] * MS);
        assert_int_equal(waits(), before);
        assert_sound();
    }
}

/* The last call of the program for a long time is one that leaves memory idle: it is enough to wake the thread. */
static void one_free_wakes_it(void **state) {
    (void)state;
    struct sim_config no_pressure = {.no_pressure = true};
    for (unsigned i = 0; i < 2; i++) {
        asleep("background:on,thp:never", i == 0 ? NULL : &no_pressure);
        for (unsigned round = 0; round < 4; round++) {
            void *large = hold(16 * MIB);
            let_ticks_pass(2 * TICKS, false); /* asleep again while the block is in use */
            assert_true(resident_bytes() >= 16 * MIB);
            strata_free(large);
            let_ticks_pass(TICKS, false);
            assert_true(resident_bytes() < 2 * MIB);
            uint64_t before = waits();
            let_ticks_pass(TICKS, false);
            assert_int_equal(waits(), before);
        }
        assert_sound();
    }
}

/* As before, for a block that shrinks and for one that moves. */
static void one_realloc_wakes_it(void **state) {
    (void)state;
    asleep("background:on,thp:never", NULL);
    char *large = hold(32 * MIB);
    let_ticks_pass(2 * TICKS, false);
    large = strata_realloc(large, 4 * MIB);
    assert_non_null(large);
    let_ticks_pass(TICKS, false);
    assert_true(resident_bytes() < 6 * MIB);
    let_ticks_pass(2 * TICKS, false);
    large = strata_realloc(large, 100);
    assert_non_null(large);
    let_ticks_pass(TICKS, false);
    assert_true(resident_bytes() < 2 * MIB);
    strata_free(large);
    assert_sound();
}

/* Small objects are in slabs, below two layers of caches: what the program freed last goes back through all of them. */
static void many_small_frees_come_back(void **state) {
    (void)state;
    static void *objects[20000];
    asleep("background:on,thp:never", NULL);
    for (unsigned i = 0; i < ARRAY_LENGTH(objects); i++) *(char *)(objects[i] = strata_malloc(512)) = 1;
    let_ticks_pass(2 * TICKS, false);
    assert_true(resident_bytes() >= ARRAY_LENGTH(objects) * 512);
    for (unsigned i = 0; i < ARRAY_LENGTH(objects); i++) strata_free(objects[i]);
    let_ticks_pass(2 * TICKS, false);
    assert_true(resident_bytes() < 256 * KIB);
    uint64_t before = waits();
    let_ticks_pass(TICKS, false);
    assert_int_equal(waits(), before);
    assert_sound();
}

/* ------------------------------------------------------------------ fork */

static void become_child(void) {
    fork_prepare();
    sim_fork_child();
    fork_child();
}

static void the_child_of_a_fork_has_a_thread_of_its_own(void **state) {
    (void)state;
    for (unsigned sleeping = 0; sleeping < 2; sleeping++) {
        new_heap(NULL, "background:on,thp:never");
        busy();
        let_ticks_pass(sleeping ? 2 * TICKS : 1, false);
        fork_prepare();
        fork_parent();
        assert_int_equal(sim_threads_alive(), 1);
        void *large = hold(16 * MIB);
        become_child();
        assert_int_equal(sim_threads_alive(), 0);
        assert_sound();
        strata_free(large);
        busy();
        assert_int_equal(starts(), 2);
        assert_int_equal(sim_calls(SIM_PRESSURE_OPEN), 1);
        let_ticks_pass(TICKS, false);
        assert_int_equal(sim_calls(SIM_PRESSURE_OPEN), 2);
        assert_true(resident_bytes() < 2 * MIB);
        assert_sound();
    }
}

static void the_child_may_try_what_the_parent_was_refused(void **state) {
    (void)state;
    new_heap(NULL, "background:on");
    sim_fail_only(UINT64_C(1) << SIM_THREAD_START);
    sim_fail_call(1, 1);
    busy();
    assert_int_equal(sim_threads_alive(), 0);
    become_child();
    busy();
    assert_int_equal(starts(), 2);
    assert_int_equal(sim_threads_alive(), 1);
    assert_sound();
}

static void a_small_child_of_a_small_parent_has_none(void **state) {
    (void)state;
    new_heap(NULL, NULL);
    busy();
    become_child();
    let_ticks_pass(3, true);
    assert_int_equal(starts(), 0);
    assert_sound();
}

/* ------------------------------------------------------------------ short memory */

static void pressure_takes_what_is_idle_at_once(void **state) {
    (void)state;
    for (enum platform_pressure level = PLATFORM_PRESSURE_SOME; level <= PLATFORM_PRESSURE_CRITICAL; level++) {
        new_heap(NULL, "background:on,thp:never,decay_ms:3600000");
        void *large = hold(16 * MIB);
        busy();
        strata_free(large);
        sim_run_threads_for(10 * PERIOD_NS);
        assert_true(resident_bytes() >= 16 * MIB); /* an hour is not over */
        sim_pressure_raise(level);
        sim_run_threads();
        assert_true(resident_bytes() < 2 * MIB);
        assert_int_equal(heap.pressure_events, 1);
        sim_run_threads_for(10 * PERIOD_NS);
        assert_int_equal(heap.pressure_events, 1);
        assert_sound();
    }
}

/* Also where the thread sleeps, and of what the CPUs hold. */
static void critical_pressure_takes_what_cpus_hold(void **state) {
    (void)state;
    static void *objects[1000];
    asleep("background:on,thp:never", NULL);
    for (unsigned i = 0; i < ARRAY_LENGTH(objects); i++) objects[i] = strata_malloc(2000);
    for (unsigned i = 0; i < ARRAY_LENGTH(objects); i++) strata_free(objects[i]);
    sim_pressure_raise(PLATFORM_PRESSURE_CRITICAL);
    sim_run_threads();
    for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_END; tag++) assert_int_equal(slab_in_use(&heap.slabs, tag), 0);
    assert_sound();
}

static void the_limit_of_the_control_group_becomes_a_soft_limit(void **state) {
    (void)state;
    static const struct {
        uint64_t group_bytes, expected_bytes;
        const char *conf;
    } cases[] = {
        {64 * MIB, 56 * MIB, NULL},
        {0, 0, NULL},
        {64 * MIB, 40 * MIB, "soft_limit:40M"},
        {64 * MIB, 56 * MIB, "soft_limit:60M"},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct sim_config sim = {.memory_limit_bytes = cases[i].group_bytes};
        new_heap(&sim, cases[i].conf);
        for (unsigned j = 0; j < 24; j++) hold(MIB); /* it is read when the heap is no longer small, and something is idle */
        strata_free(strata_malloc(3 * MIB));
        assert_int_equal(zone_soft_limit(&heap.zone), cases[i].expected_bytes);
        assert_sound();
    }
}

/* It takes files to find out, and says nothing where all pages are in use: huge pages and idle ones are what it is about. */
static void the_limit_is_read_when_it_counts(void **state) {
    (void)state;
    struct sim_config sim = {.memory_limit_bytes = 64 * MIB};
    new_heap(&sim, "thp:never");
    strata_free(strata_malloc(3 * MIB)); /* a small heap */
    for (unsigned j = 0; j < 40; j++) hold(MIB);
    assert_int_equal(zone_soft_limit(&heap.zone), 0);
    char *idle = strata_malloc(MIB / 2);
    strata_free(idle); /* little */
    assert_int_equal(zone_soft_limit(&heap.zone), 0);
    strata_free(strata_malloc(3 * MIB));
    assert_int_equal(zone_soft_limit(&heap.zone), 56 * MIB);
    assert_sound();

    new_heap(&sim, "thp:always");
    for (unsigned j = 0; j < 4; j++) hold(MIB);
    assert_int_equal(zone_soft_limit(&heap.zone), 56 * MIB);

    /* What the limit is for: above it nothing stays idle. */
    sim.memory_limit_bytes = 16 * MIB;
    new_heap(&sim, "thp:never");
    void *blocks[20];
    for (unsigned j = 0; j < ARRAY_LENGTH(blocks); j++) blocks[j] = strata_malloc(MIB);
    for (unsigned j = 0; j < 8; j++) strata_free(blocks[j]);
    assert_true(heap.zone.counters.populated << GRANULE_SHIFT <= 14 * MIB);
    assert_sound();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_starts_one_thread_above_64_mib),
        cmocka_unit_test(few_large_blocks_are_enough),
        cmocka_unit_test(on_starts_one_at_once),
        cmocka_unit_test(every_rhythm_of_calls_gets_one),
        cmocka_unit_test(frees_start_none),
        cmocka_unit_test(off_ticks_on_slow_paths),
        cmocka_unit_test(object_caches_tick_where_they_are_used),
        cmocka_unit_test(a_refused_start_leaves_the_ticks_to_slow_paths),
        cmocka_unit_test(the_thread_gives_back_what_is_idle),
        cmocka_unit_test(the_thread_sleeps_while_nothing_happens),
        cmocka_unit_test(short_periods_have_their_ticks),
        cmocka_unit_test(one_free_wakes_it),
        cmocka_unit_test(one_realloc_wakes_it),
        cmocka_unit_test(many_small_frees_come_back),
        cmocka_unit_test(the_child_of_a_fork_has_a_thread_of_its_own),
        cmocka_unit_test(the_child_may_try_what_the_parent_was_refused),
        cmocka_unit_test(a_small_child_of_a_small_parent_has_none),
        cmocka_unit_test(pressure_takes_what_is_idle_at_once),
        cmocka_unit_test(critical_pressure_takes_what_cpus_hold),
        cmocka_unit_test(the_limit_of_the_control_group_becomes_a_soft_limit),
        cmocka_unit_test(the_limit_is_read_when_it_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
