/*
 * test_last_object.c - at the limit malloc gets what other CPUs keep, of its own size and of others, before it says that there is no memory.
 */
#include "strata/batch.h"
#include "strata/malloc.h"
#include "unit/api/api_support.h"

enum { COUNT = 1 << 20 };

static void *p[COUNT];

/* All that there is of one size; how many. */
static unsigned take_all(size_t bytes) {
    unsigned count = 0;
    while (count < COUNT && (p[count] = strata_malloc(bytes)) != NULL) count++;
    assert_true(count != 0 && count < COUNT && errno == ENOMEM);
    return count;
}

/* The same in a process of its own. */
static const size_t sizes[] = {16, 400, 3000};
static unsigned take_all_of_two_cpus(size_t bytes) {
    new_process(&(struct sim_config){.cpus = 2}, "background:off,hard_limit:8M");
    return take_all(bytes);
}

static void any_cpu_gets_the_last_object(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        unsigned count = take_all_of_two_cpus(sizes[i]);
        sim_cpu_set(1);
        strata_free(p[--count]);
        sim_cpu_set(0);
        assert_non_null(p[count++] = strata_malloc(sizes[i]));
        assert_null(strata_malloc(sizes[i]));
        ASSERT_SOUND();
    }
}

/* So does a batch, also where nothing that is released makes it worth another try. */
static void a_batch_gets_the_last_objects(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        unsigned count = take_all_of_two_cpus(sizes[i]);
        (void)heap_release(0);
        sim_cpu_set(1);
        for (unsigned freed = 0; freed < 2; freed++) strata_free(p[--count]);
        sim_cpu_set(0);
        void *batch[3] = {NULL};
        size_t got = 3, size = sizes[i];
        strata_batch_alloc1(NULL, batch, &got, &size, 0, 0, 0);
        assert_int_equal(got, 2);
        assert_null(strata_malloc(sizes[i]));
        ASSERT_SOUND();
    }
}

/* What CPU 1 has freed is in its array, and of the slabs that are in use for it nothing else. */
static void what_others_keep_serves_any_size(void **state) {
    const struct sim_config sim = {.cpus = 2};
    unsigned got[2];
    (void)state;
    for (unsigned released = 0; released < 2; released++) {
        new_process(&sim, "background:off,hard_limit:8M");
        unsigned count = take_all(400);
        sim_cpu_set(1);
        while (count != 0) strata_free(p[--count]);
        sim_cpu_set(0);
        if (released != 0) assert_true(heap_release(0) != 0);
        got[released] = take_all(3000);
        ASSERT_SOUND();
    }
    assert_int_equal(got[0], got[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_cpu_gets_the_last_object),
        cmocka_unit_test(a_batch_gets_the_last_objects),
        cmocka_unit_test(what_others_keep_serves_any_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
