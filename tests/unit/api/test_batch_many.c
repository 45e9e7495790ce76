/*
 * test_batch_many.c - batches of many elements: groups that go past the arrays, mixtures, counts and errors that are exact where memory ends in the
 * middle; that they are debugged as malloc is; and promises.
 */
#include <unistd.h>

#include "batch_api_support.h"
#include "slab_counts.h"

static int by_address(const void *a, const void *b) {
    const char *left = *(char *const *)a, *right = *(char *const *)b;
    return left < right ? -1 : left > right;
}

static void batches_of_one_size_are_disjoint_and_come_back(void **state) {
    (void)state;
    enum { COUNT = 20000 };
    static void *p[COUNT], *sorted[COUNT];
    static int errors[COUNT];
    static const size_t sizes[] = {16, 100, 1000, 9000};
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        for (unsigned round = 0; round < 3; round++) {
            size_t count = COUNT >> i, all = count, size = sizes[i];
            memset(errors, 0xff, sizeof errors);
            assert_ptr_equal(strata_batch_alloc1(errors, p, &count, &size, 0, 0, round == 1 ? STRATA_BATCH_ALL_ALLOC : 0), p);
            assert_int_equal(count, all);
            memcpy(sorted, p, all * sizeof *p);
            qsort(sorted, all, sizeof *sorted, by_address);
            for (size_t at = 0; at < all; at++) {
                assert_int_equal(errors[at], 0);
                if (at != 0) assert_true((char *)sorted[at] - (char *)sorted[at - 1] >= (ptrdiff_t)size);
            }
            ASSERT_SOUND();
            memset(errors, 0xff, sizeof errors);
            size = 0;
            assert_ptr_equal(strata_batch_alloc1(errors, p, &count, &size, 0, 0, round == 1 ? STRATA_BATCH_ALL_FREE : 0), p);
            assert_int_equal(count, all);
            for (size_t at = 0; at < all; at++) assert_true(p[at] == NULL && errors[at] == 0);
            ASSERT_SOUND();
        }
    }
    (void)heap_release(0);
    for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_MAGAZINES; tag++) assert_int_equal(slab_in_use(&heap.slabs, tag), 0);
}

/* The point of it: 4,096 nodes one by one visit the depot and slabs each half an array; a batch asks for 256 at a time, or for magazines. */
static void groups_go_past_the_arrays(void **state) {
    (void)state;
    enum { COUNT = 4096 };
    static void *p[COUNT];
    size_t count = COUNT, size = 48;
    strata_free(strata_malloc(48)); /* the heap stands, and the array is open */
    unsigned tag = slab_class_of_size(&heap.slabs, 48);
    uint64_t visits = heap.caches.depots[tag].visits;
    strata_batch_alloc1(NULL, p, &count, &size, 0, 0, 0);
    assert_int_equal(count, COUNT);
    assert_in_range(heap.caches.depots[tag].visits - visits, 1, COUNT / 64);
    struct cache_stats stats;
    strata_batch_alloc1(NULL, p, &count, NULL, 0, 0, 0);
    cache_stats_get(&heap.caches, tag, &stats);
    assert_true(stats.cached >= heap.caches.depots[tag].rounds); /* the array is full, and the depot has its share */
    assert_true(stats.depot_magazines != 0);
    visits = slab_allocs(&heap.slabs, tag);
    strata_batch_alloc1(NULL, p, &count, &size, 0, 0, 0);
    /* All that is cached goes first; the rest of a group fills the array again. */
    assert_in_range(slab_allocs(&heap.slabs, tag) - visits, COUNT - stats.cached, COUNT - stats.cached + CACHE_TRANSFER_MAX);
    strata_batch_alloc1(NULL, p, &count, NULL, 0, 0, 0);
    ASSERT_SOUND();
}

static void an_array_is_made_for_the_caller(void **state) {
    (void)state;
    size_t count = 1000, size = 40;
    void **p = strata_batch_alloc1(NULL, NULL, &count, &size, 0, 0, 0);
    assert_non_null(p);
    assert_int_equal(count, 1000);
    for (size_t i = 0; i < count; i++) assert_non_null(p[i]);
    strata_batch_alloc1(NULL, p, &count, NULL, 0, 0, 0);
    strata_free(p);
    p = strata_batch_alloc1(NULL, NULL, &count, NULL, 0, 0, 0);
    assert_int_equal(count, 1000);
    for (size_t i = 0; i < count; i++) assert_null(p[i]);
    strata_free(p);
    count = 0;
    p = strata_batch_alloc1(NULL, NULL, &count, &size, 0, 0, 0);
    assert_non_null(p);
    strata_free(p);
    static const size_t too_many[] = {SIZE_MAX, SIZE_MAX / sizeof(void *), (size_t)PTRDIFF_MAX / sizeof(void *) + 1};
    for (size_t i = 0; i < ARRAY_LENGTH(too_many); i++) {
        volatile size_t many = too_many[i];
        count = many, errno = 0;
        assert_null(strata_batch_alloc1(NULL, NULL, &count, &size, 0, 0, 0));
        assert_int_equal(errno, ENOMEM);
        assert_int_equal(count, 0);
    }
}

static void a_mixture_is_served_whole(void **state) {
    (void)state;
    enum { COUNT = 200 };
    static struct strata_batch_element2 mixed[COUNT], *elements[COUNT];
    int errors[COUNT];
    for (unsigned round = 0; round < 20; round++) {
        size_t count = COUNT, expected = 0, kept[COUNT];
        char local;
        for (unsigned i = 0; i < COUNT; i++) {
            unsigned what = (i * 7 + round * 3) % 5;
            elements[i] = (i + round) % 11 == 0 ? NULL : &mixed[i];
            kept[i] = mixed[i].ptr != NULL ? mixed[i].size : 0;
            if (elements[i] == NULL) continue;
            mixed[i].size = what == 0 ? 0 : what == 1 ? 16 + i * 300u : what == 2 ? 50 : what == 3 ? 40 * KIB * (i % 30) : 2000;
            if (mixed[i].ptr == NULL && i % 50 == 49) mixed[i].ptr = &local;
        }
        for (unsigned i = 0; i < COUNT; i++) expected += elements[i] == NULL || mixed[i].ptr != &local;
        assert_int_equal(strata_batch_alloc2(errors, elements, &count, 0, 0, 0), expected == COUNT);
        assert_int_equal(count, expected);
        for (unsigned i = 0; i < COUNT; i++) {
            bool bad = elements[i] != NULL && mixed[i].ptr == &local;
            assert_int_equal(errors[i], bad ? EINVAL : 0);
            if (bad) mixed[i].ptr = NULL, mixed[i].size = 0;
            if (mixed[i].ptr == NULL) continue;
            size_t usable = strata_malloc_usable_size(mixed[i].ptr), same = kept[i] < usable ? kept[i] : usable;
            assert_true(is(mixed[i].ptr, 0, same, (char)i));
            memset(mixed[i].ptr, (char)i, usable);
            mixed[i].size = usable;
        }
        ASSERT_SOUND();
    }
    for (unsigned i = 0; i < COUNT; i++) strata_free(mixed[i].ptr), mixed[i].ptr = NULL;
}

static void memory_that_ends_in_a_batch_is_reported_exactly(void **state) {
    (void)state;
    enum { COUNT = 5000 };
    static void *p[COUNT];
    static int errors[COUNT];
    static const size_t sizes[] = {64, 3000, 100 * KIB, 3 * MIB};
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        for (unsigned with = 0; with < 2; with++) {
            new_process(NULL, "background:off,hard_limit:8M");
            size_t count = COUNT, size = sizes[i], there = 0;
            memset(p, 0, sizeof p);
            memset(errors, 0xff, sizeof errors);
            strata_batch_alloc1(with ? errors : NULL, p, &count, &size, 0, 0, 0);
            for (unsigned at = 0; at < COUNT; at++) {
                there += p[at] != NULL;
                if (with) assert_int_equal(errors[at], p[at] != NULL ? 0 : ENOMEM);
            }
            assert_int_equal(count, there);
            assert_true(there == COUNT || there * size > 5 * MIB);
            assert_int_equal(there == COUNT, sizes[i] == 64);
            assert_int_equal(errno, ERRNO_BEFORE);
            count = COUNT;
            strata_batch_alloc1(NULL, p, &count, NULL, 0, 0, 0);
            assert_int_equal(count, COUNT);
            ASSERT_SOUND();
        }
    }
}

/* Slabs of another size that only what caches hold keeps in use: a batch has them before it says that there is no memory. */
static void what_caches_hold_goes_first(void **state) {
    (void)state;
    enum { COUNT = 20000 };
    static void *p[COUNT];
    size_t got[2];
    for (unsigned released = 0; released < 2; released++) {
        new_process(NULL, "background:off,hard_limit:8M");
        size_t count = COUNT, size = 900;
        unsigned small = 0;
        while (small < COUNT && (p[small] = strata_malloc(400)) != NULL) small++;
        assert_true(small < COUNT);
        while (small != 0) strata_free(p[--small]);
        if (released != 0) assert_true(heap_release(0) != 0);
        memset(p, 0, sizeof p);
        strata_batch_alloc1(NULL, p, &count, &size, 0, 0, 0);
        got[released] = count;
        ASSERT_SOUND();
    }
    assert_in_range(got[0], got[1] - 20, got[1]); /* to within what a slab has room for */
}

static void free_hundred(void *argument) {
    size_t count = 100;
    strata_batch_alloc1(NULL, argument, &count, NULL, 0, 0, 0);
}

static size_t resident_bytes(void) {
    unsigned long all, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &all, &resident), 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* Of a large block, which isn't debugged, pages that read as zeros aren't written then either. */
static void large_zeros_are_not_written_while_others_are_debugged(void **state) {
    void *block = NULL;
    size_t count = 1, bytes = 512 * MIB, before = resident_bytes();
    (void)state;
    new_process(NULL, "debug:guards");
    strata_batch_alloc1(NULL, &block, &count, &bytes, 0, 0, STRATA_BATCH_ZERO);
    assert_int_equal(count, 1);
    for (size_t i = 0; i < 512 * MIB; i += 16 * MIB) assert_int_equal(((char *)block)[i], 0);
    assert_true(resident_bytes() < before + 128 * MIB);
    strata_free(block);
    ASSERT_SOUND();
}

/* Each element is a debugged buffer then: what is written behind one is seen when a batch frees it. */
static void batches_are_debugged_as_malloc_is(void **state) {
    (void)state;
    new_process(NULL, "debug:default");
    enum { COUNT = 100 };
    void *p[COUNT] = {NULL};
    for (unsigned way = 0; way < WAYS; way++) {
        void *q = NULL;
        size_t size = 50;
        assert_int_equal(serve(way, &q, &size, 0, 0, STRATA_BATCH_ZERO), 0);
        assert_int_equal(size, 50);
        assert_true(is(q, 0, 50, 0));
        memset(q, 'q', 50);
        size = 5000;
        assert_int_equal(serve(way, &q, &size, 128, 0, STRATA_BATCH_ZERO), 0);
        assert_true(is(q, 0, 50, 'q') && is(q, 50, size, 0));
        size = 100;
        assert_int_equal(serve(way, &q, &size, 0, 0, STRATA_BATCH_NO_MOVE), 0);
        size = 50000;
        assert_int_equal(serve(way, &q, &size, 0, 0, STRATA_BATCH_NO_MOVE), ENOSPC);
        size = 0;
        assert_int_equal(serve(way, &q, &size, 0, 0, 0), 0);
        assert_null(q);
        char local;
        q = &local;
        assert_int_equal(serve(way, &q, &size, 0, 0, 0), EINVAL);
    }
    size_t count = COUNT, size = 24;
    strata_batch_alloc1(NULL, p, &count, &size, 0, 0, 0);
    assert_int_equal(count, COUNT);
    assert_int_equal(size, 24);
    assert_string_equal(sim_output(), "");
    ((char *)p[60])[24] = 'x';
    assert_true(sim_dies(free_hundred, p));
    assert_non_null(strstr(sim_output(), "written after its end (cache malloc-32)"));
    sim_output_clear();
}

/* ------------------------------------------------------------------ promises */

static void break_alloc(void *argument) {
    void *p[3] = {NULL, argument, NULL};
    size_t count = 3, size = 10;
    strata_batch_alloc1(NULL, p, &count, &size, 0, 0, STRATA_BATCH_ALL_ALLOC);
}
static void break_free(void *argument) {
    void *p[3] = {argument, NULL, NULL};
    size_t count = 3;
    strata_batch_alloc1(NULL, p, &count, NULL, 0, 0, STRATA_BATCH_ALL_FREE);
}
static void break_realloc(void *argument) {
    struct strata_batch_element2 elements[] = {{argument, 50}, {argument, 0}}, *all[] = {&elements[0], &elements[1]};
    size_t count = 2;
    strata_batch_alloc2(NULL, all, &count, 0, 0, STRATA_BATCH_ALL_REALLOC);
}
static void break_free_by_size(void *argument) {
    struct strata_batch_element5 free_it = {.ptr = argument, .flags = STRATA_BATCH_ALL_FREE}, sized = {.ptr = argument, .size = 5};
    struct strata_batch_element5 *all[] = {NULL, &free_it, &sized};
    size_t count = 3;
    strata_batch_alloc5(NULL, all, &count);
}

static void broken_promises_end_the_process_in_builds_like_this(void **state) {
    (void)state;
    const struct {
        void (*body)(void *);
        const char *text;
    } broken[] = {
        {break_alloc, "strata: strata_batch_alloc1(): element 1 has an address (ptr = "},
        {break_free, "strata: strata_batch_alloc1(): element 1 has no address (ptr = NULL; STRATA_BATCH_ALL_FREE promises a block)\n"},
        {break_realloc, "strata: strata_batch_alloc2(): element 1 has no size (size = 0; STRATA_BATCH_ALL_REALLOC promises one)\n"},
        {break_free_by_size, "strata: strata_batch_alloc5(): element 2 has a size (size = 5; STRATA_BATCH_ALL_FREE promises 0)\n"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(broken); i++) {
        new_process(NULL, "");
        void *p = strata_malloc(100);
        assert_true(sim_dies(broken[i].body, p));
        if (strncmp(sim_output(), broken[i].text, strlen(broken[i].text)) != 0) fail_msg("%s", sim_output());
        sim_output_clear();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_caches_hold_goes_first),
        cmocka_unit_test_setup(batches_of_one_size_are_disjoint_and_come_back, fresh_process),
        cmocka_unit_test_setup(groups_go_past_the_arrays, fresh_process),
        cmocka_unit_test_setup(an_array_is_made_for_the_caller, fresh_process),
        cmocka_unit_test_setup(a_mixture_is_served_whole, fresh_process),
        cmocka_unit_test_setup(memory_that_ends_in_a_batch_is_reported_exactly, fresh_process),
        cmocka_unit_test_setup(batches_are_debugged_as_malloc_is, fresh_process),
        cmocka_unit_test_setup(large_zeros_are_not_written_while_others_are_debugged, fresh_process),
        cmocka_unit_test_setup(broken_promises_end_the_process_in_builds_like_this, fresh_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
