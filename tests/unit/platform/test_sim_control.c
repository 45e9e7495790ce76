/*
 * test_sim_control.c - the simulated machine as a whole: facts, counters, failures on demand.
 */
#include <errno.h>

#include "platform/cpu_ops.h"
#include "sim_test.h"

#define PAGE ((size_t)4096)

static void facts_follow_the_configuration(void **state) {
    (void)state;
    sim_reset(NULL);
    assert_int_equal(platform_info()->page_bytes, PAGE);
    assert_int_equal(platform_info()->cpus, 2);
    assert_true(platform_info()->address_limit_bytes == UINT64_MAX);
    assert_int_equal(platform_map_count_limit(), 65530);
    assert_false(platform_info()->secure);
    assert_int_equal(platform_cpu_mode(), PLATFORM_CPU_SIM);
    assert_true(platform_memory_limit_bytes() == UINT64_MAX);
    sim_reset(&(struct sim_config){.cpus = 4096, .secure = true, .process_id = 7, .thread_mode = true, .memory_limit_bytes = MIB});
    assert_int_equal(platform_info()->cpus, 4096);
    assert_true(platform_info()->secure);
    assert_int_equal(platform_process_id(), 7);
    assert_int_equal(platform_cpu_mode(), PLATFORM_CPU_THREAD);
    assert_int_equal(platform_memory_limit_bytes(), MIB);
    sim_set_memory_limit(2 * MIB);
    assert_int_equal(platform_memory_limit_bytes(), 2 * MIB);
}

static void init_keeps_a_machine_that_is_there(void **state) {
    (void)state;
    sim_reset(&(struct sim_config){.cpus = 17});
    platform_init();
    assert_int_equal(platform_info()->cpus, 17);
}

static void thread_mode_can_be_forced(void **state) {
    (void)state;
    sim_reset(NULL);
    platform_cpu_force_thread_mode();
    assert_int_equal(platform_cpu_mode(), PLATFORM_CPU_THREAD);
    sim_reset(NULL);
    assert_int_equal(platform_cpu_mode(), PLATFORM_CPU_SIM);
}

static void reset_forgets_the_cpu_areas(void **state) {
    (void)state;
    sim_reset(NULL);
    platform_cpu.areas = (char *)&platform_cpu;
    sim_reset(NULL);
    assert_null(platform_cpu.areas);
}

static void reset_with_page_size(void *argument) { sim_reset(&(struct sim_config){.page_bytes = *(size_t *)argument}); }
static void reset_with_cpus(void *argument) { sim_reset(&(struct sim_config){.cpus = *(unsigned *)argument}); }

static void impossible_machines_die(void **state) {
    (void)state;
    sim_reset(NULL);
    size_t page_bytes = 8192;
    unsigned cpus = 4097;
    assert_dies(reset_with_page_size, &page_bytes, "4, 16 or 64 KiB");
    assert_dies(reset_with_cpus, &cpus, "at most 4096");
    sim_reset(NULL);
}

static void calls_are_counted(void **state) {
    (void)state;
    sim_reset(NULL);
    char *address = platform_reserve(NULL, 4 * PAGE, PAGE);
    platform_commit(address, 4 * PAGE);
    platform_commit(address, PAGE);
    platform_populate(address, PAGE);
    platform_write_error("x", 1);
    assert_int_equal(sim_calls(SIM_RESERVE), 1);
    assert_int_equal(sim_calls(SIM_COMMIT), 2);
    assert_int_equal(sim_calls(SIM_POPULATE), 1);
    assert_int_equal(sim_calls(SIM_WRITE_ERROR), 1);
    assert_int_equal(sim_calls(SIM_MOVE), 0);
    assert_int_equal(sim_failable_calls(), 4);
    platform_unreserve(address, 4 * PAGE);
    assert_int_equal(sim_calls(SIM_UNRESERVE), 1);
    assert_int_equal(sim_failable_calls(), 4);
    sim_reset(NULL);
    assert_int_equal(sim_calls(SIM_COMMIT) + sim_failable_calls(), 0);
}

static void the_nth_call_fails_once(void **state) {
    (void)state;
    sim_reset(NULL);
    char *address = platform_reserve(NULL, 4 * PAGE, PAGE);
    for (unsigned n = 1; n <= 5; n++) {
        sim_fail_call(n, 1);
        for (unsigned i = 1; i <= 6; i++) assert_int_equal(platform_commit(address, PAGE), i != n);
        assert_int_equal(sim_failures(), 1);
    }
    sim_fail_call(3, 2);
    assert_true(platform_commit(address, PAGE) && platform_populate(address, PAGE));
    assert_false(platform_release(address, PAGE));
    assert_false(platform_reset(address, PAGE));
    assert_true(platform_reset(address, PAGE));
    assert_int_equal(sim_failures(), 2);
}

static void failures_can_stay(void **state) {
    (void)state;
    sim_reset(NULL);
    char *address = platform_reserve(NULL, 4 * PAGE, PAGE);
    sim_fail_call(2, SIM_FOREVER);
    assert_true(platform_commit(address, PAGE));
    for (unsigned i = 0; i < 100; i++) assert_false(platform_commit(address, PAGE));
    sim_fail_call(0, 0);
    assert_true(platform_commit(address, PAGE));
    assert_int_equal(sim_failures(), 0);
}

static void failures_can_be_of_one_kind(void **state) {
    (void)state;
    sim_reset(NULL);
    sim_fail_only(1u << SIM_POPULATE);
    sim_fail_call(1, SIM_FOREVER);
    char *address = platform_reserve(NULL, 4 * PAGE, PAGE);
    assert_true(platform_commit(address, PAGE));
    assert_false(platform_populate(address, PAGE));
    assert_true(platform_release(address, PAGE));
    assert_int_equal(sim_failable_calls(), 1);
}

static void no_body(void *argument) { (void)argument; }

/* Every call of the list fails, does nothing, and works again afterwards. */
static void every_failable_call_fails_and_changes_nothing(void **state) {
    (void)state;
    sim_reset(NULL);
    char *address = platform_reserve(NULL, 16 * PAGE, PAGE);
    assert_true(platform_commit(address, 8 * PAGE));
    memset(address, 1, 7 * PAGE);
    int file = platform_file_create("there");
    struct platform_faults faults, others, mover;
    sim_faults_offer(PLATFORM_FAULTS_PROTECT | PLATFORM_FAULTS_MOVE);
    assert_int_equal(platform_faults_open(&mover, PLATFORM_FAULTS_MOVE), PLATFORM_FAULTS_OK);
    assert_int_equal(platform_faults_register(&mover, address + 7 * PAGE, PAGE, true, false), PLATFORM_FAULTS_OK);
    assert_int_equal(platform_faults_open(&faults, PLATFORM_FAULTS_PROTECT), PLATFORM_FAULTS_OK);
    assert_int_equal(platform_faults_register(&faults, address, 4 * PAGE, true, true), PLATFORM_FAULTS_OK);
    struct platform_paged paged, other;
    struct platform_store store, another;
    bool writable = true;
    uint64_t reserved = sim_reserved_bytes() + 8 * PAGE, committed = sim_committed_bytes() + 4 * PAGE, mappings = sim_mappings() + 2;
    assert_int_equal(platform_paged_open(&paged, 4 * PAGE, PLATFORM_PAGED_ANY), PLATFORM_FAULTS_OK);
    assert_int_equal(platform_store_open(&store, "store", 0, 4 * PAGE), 0);
    struct platform_store_ring *ring = platform_store_ring_open(2);
    struct platform_store_job job = {.store = &store, .memory = address, .bytes = PAGE, .write = true};
    sim_fail_call(1, SIM_FOREVER);
    assert_null(platform_reserve(NULL, PAGE, PAGE));
    assert_false(platform_reserve_at(address + 32 * PAGE, PAGE));
    assert_false(platform_commit(address, 16 * PAGE));
    assert_false(platform_release(address, PAGE));
    assert_false(platform_populate(address, PAGE));
    assert_false(platform_advise_huge(address, PAGE, true));
    assert_false(platform_decommit(address, PAGE));
    assert_false(platform_move(address, address + 4 * PAGE, PAGE));
    assert_false(platform_reset(address, PAGE));
    uint8_t presence;
    assert_false(platform_presence(address, PAGE, &presence));
    assert_false(platform_fence_cpus());
    assert_false(platform_thread_start(no_body, NULL));
    assert_false(platform_pressure_open());
    assert_int_equal(platform_file_create("new"), -1);
    assert_false(platform_file_write(file, "x", 1));
    assert_int_equal(platform_faults_open(&others, 0), PLATFORM_FAULTS_FORBIDDEN);
    assert_int_equal(platform_faults_register(&faults, address + 4 * PAGE, PAGE, true, true), PLATFORM_FAULTS_NO_MEMORY);
    assert_true(sim_fault_registered(address + 4 * PAGE)); /* the one that may be half done */
    assert_int_equal(platform_faults_unregister(&faults, address + 4 * PAGE, PAGE, true), PLATFORM_FAULTS_OK);
    assert_int_equal(platform_faults_protect(&faults, address, PAGE, true), PLATFORM_FAULTS_NO_MEMORY);
    assert_int_equal(platform_faults_copy(&faults, address, address + PAGE, PAGE, false, NULL), PLATFORM_FAULTS_NO_MEMORY);
    assert_int_equal(platform_faults_move(&mover, address + 7 * PAGE, address, PAGE, NULL), PLATFORM_FAULTS_TAKEN);
    assert_false(platform_faults_keep(&faults));
    assert_false(sim_fault_registered(address + 4 * PAGE) || sim_fault_protected(address));
    assert_false(platform_protect(address, PAGE, PLATFORM_ACCESS_READ));
    assert_false(platform_on_access_fault(NULL));
    sim_shared_offer(true);
    const struct platform_shared shared = {.base = address, .bytes = PAGE};
    uint64_t word;
    assert_false(platform_shared_show(&shared, 0, PAGE, address + 12 * PAGE));
    assert_false(sim_shared_read(address + 12 * PAGE, &word, sizeof word));
    assert_int_equal(platform_paged_open(&other, PAGE, PLATFORM_PAGED_ANY), PLATFORM_FAULTS_FORBIDDEN);
    assert_int_equal(platform_paged_map(&paged, 0, PAGE, &writable), PLATFORM_FAULTS_NO_MEMORY);
    assert_int_equal(platform_paged_protect(&paged, 0, PAGE), PLATFORM_FAULTS_NO_MEMORY);
    assert_false(platform_paged_break(&paged, 0));
    assert_false(platform_paged_mend(&paged, 0, &writable));
    assert_int_equal(platform_store_open(&another, "another", 0, PAGE), EIO);
    assert_int_equal(platform_store_read(&store, address, PAGE, 0), EIO);
    assert_int_equal(platform_store_write(&store, address, PAGE, 0), EIO);
    assert_int_equal(platform_store_sync(&store), EIO);
    assert_null(platform_store_ring_open(1));
    assert_false(platform_store_begin(ring, &job));
    assert_null(platform_store_end(ring, true));
    assert_true(sim_store_text("another", false, NULL) == NULL && sim_store_text("store", false, NULL)[0] == 0);
    assert_int_equal(sim_failures(), SIM_CALLS_FAILABLE);
    sim_fail_call(0, 0);
    assert_int_equal(sim_reserved_bytes(), reserved);
    assert_int_equal(sim_committed_bytes(), committed);
    assert_true(sim_mappings() <= mappings);
    for (size_t i = 0; i < 7 * PAGE; i++) assert_int_equal(address[i], 1);
    assert_int_equal(sim_populated_pages(address + 7 * PAGE, PAGE), 0);
    assert_int_equal(sim_threads_alive(), 0);
    assert_null(sim_file_text("new", NULL));
    assert_string_equal(sim_file_text("there", NULL), "");
    assert_true(platform_fence_cpus() && platform_pressure_open() && platform_thread_start(no_body, NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_follow_the_configuration), cmocka_unit_test(init_keeps_a_machine_that_is_there),
        cmocka_unit_test(thread_mode_can_be_forced),      cmocka_unit_test(reset_forgets_the_cpu_areas),
        cmocka_unit_test(impossible_machines_die),        cmocka_unit_test(calls_are_counted),
        cmocka_unit_test(the_nth_call_fails_once),        cmocka_unit_test(failures_can_stay),
        cmocka_unit_test(failures_can_be_of_one_kind),    cmocka_unit_test(every_failable_call_fails_and_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
