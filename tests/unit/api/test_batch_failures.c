/*
 * test_batch_failures.c - batches while calls to the platform fail, one after the other: once, three times, for good.
 *
 * Whatever fails: counts are those of elements without an error; an element that failed is as it was, with its contents; what succeeded is what was
 * asked for; frees never fail; every layer is sound, and in the end nothing is lost.
 */
#include "slab_counts.h"
#include "strata/batch.h"
#include "strata/malloc.h"
#include "unit/api/api_support.h"

static unsigned refused;

/* ------------------------------------------------------------------ elements of one size */

#define MANY 300
static void *many[MANY];
static int errors[MANY];

/* Of large ones a place in each sixteen pages: most of the time would go by in touching them. */
static size_t step_of(size_t size) { return size < MIB ? 509 : 65537; }
static unsigned char content(unsigned i, size_t at) { return (unsigned char)(i * 31 + at / 509 + 1); }
static void mark(unsigned i, void *p, size_t size) {
    for (size_t at = 0; at < size; at += step_of(size)) ((unsigned char *)p)[at] = content(i, at);
}
/* `marked`: the size when it was. */
static void assert_marked(unsigned i, const void *p, size_t size, size_t marked) {
    for (size_t at = 0; at < size; at += step_of(marked)) assert_int_equal(((const unsigned char *)p)[at], content(i, at));
}

static void batch_of_one_size(unsigned all, size_t size, uintmax_t flags) {
    size_t count = all, least = size, there = 0;
    memset(errors, 0xff, sizeof errors);
    assert_ptr_equal(strata_batch_alloc1(errors, many, &count, &least, 0, 0, flags), many);
    assert_int_equal(errno, ERRNO_BEFORE);
    for (unsigned i = 0; i < all; i++) {
        assert_true(errors[i] == 0 || errors[i] == ENOMEM);
        assert_int_equal(errors[i] == 0, many[i] != NULL);
        if (many[i] == NULL) continue;
        there++;
        assert_true(strata_malloc_usable_size(many[i]) >= size);
        for (size_t at = 0; (flags & STRATA_BATCH_ZERO) != 0 && at < size; at += 97) assert_int_equal(((char *)many[i])[at], 0);
        mark(i, many[i], size);
    }
    assert_int_equal(count, there);
    refused += (unsigned)(all - there);
    ASSERT_SOUND();
    /* Larger: what fails keeps its address and contents, and what has none is allocated now. */
    size_t larger = 2 * size + 100;
    count = all, least = larger, there = 0;
    void *before[MANY];
    memcpy(before, many, sizeof before);
    strata_batch_alloc1(errors, many, &count, &least, 0, 0, 0);
    for (unsigned i = 0; i < all; i++) {
        there += errors[i] == 0;
        if (errors[i] != 0) assert_ptr_equal(many[i], before[i]);
        if (before[i] != NULL) assert_marked(i, many[i], size, size);
        if (errors[i] == 0) assert_true(strata_malloc_usable_size(many[i]) >= larger);
    }
    assert_int_equal(count, there);
    refused += (unsigned)(all - there);
    count = all;
    strata_batch_alloc1(errors, many, &count, NULL, 0, 0, 0);
    assert_int_equal(count, all);
    for (unsigned i = 0; i < all; i++) assert_true(errors[i] == 0 && many[i] == NULL);
    ASSERT_SOUND();
}

static void array_of_the_callee(void) {
    size_t count = 300, size = 200;
    void **p = strata_batch_alloc1(NULL, NULL, &count, &size, 0, 0, 0);
    if (p == NULL) {
        assert_int_equal(errno, ENOMEM);
        assert_int_equal(count, 0);
        errno = ERRNO_BEFORE;
        return;
    }
    size_t there = 0;
    for (unsigned i = 0; i < 300; i++) there += p[i] != NULL;
    assert_int_equal(there, count);
    count = 300;
    strata_batch_alloc1(NULL, p, &count, NULL, 0, 0, 0);
    assert_int_equal(count, 300);
    strata_free(p);
}

/* ------------------------------------------------------------------ a mixture */

#define MIXED 40
static void mixture(void) {
    static struct strata_batch_element5 mixed[MIXED], *elements[MIXED];
    static const size_t sizes[] = {30, 0, 700, 70 * KIB, 5000, 300 * KIB, 0, 90, 20 * KIB};
    memset(mixed, 0, sizeof mixed);
    for (unsigned round = 0; round < 4; round++) {
        struct strata_batch_element5 before[MIXED];
        size_t count = MIXED, there = 0;
        for (unsigned i = 0; i < MIXED; i++) {
            elements[i] = &mixed[i];
            before[i] = mixed[i];
            mixed[i].size = sizes[(i + round * 3) % ARRAY_LENGTH(sizes)];
            mixed[i].alignment = i % 4 == 0 ? (size_t)16 << i % 14 : 0;
            mixed[i].reserve = i % 19 == 5 ? 3 * MIB : 0;
            mixed[i].flags = (i % 5 == 0 ? STRATA_BATCH_ZERO : 0) | (i % 7 == 0 ? STRATA_BATCH_NO_MOVE : 0);
        }
        struct strata_batch_element5 asked[MIXED];
        memcpy(asked, mixed, sizeof asked);
        bool all = strata_batch_alloc5(errors, elements, &count);
        assert_int_equal(errno, ERRNO_BEFORE);
        for (unsigned i = 0; i < MIXED; i++) {
            size_t kept = before[i].ptr != NULL ? before[i].size : 0;
            there += errors[i] == 0;
            if (errors[i] != 0) {
                assert_true(errors[i] == ENOMEM || (errors[i] == ENOSPC && (asked[i].flags & STRATA_BATCH_NO_MOVE) != 0 && kept != 0));
                assert_ptr_equal(mixed[i].ptr, before[i].ptr);
                assert_int_equal(mixed[i].size, asked[i].size);
                refused += errors[i] == ENOMEM;
                mixed[i].size = kept;
            } else if (asked[i].size == 0) {
                assert_null(mixed[i].ptr);
                kept = 0;
            } else {
                assert_int_equal(mixed[i].size, strata_malloc_usable_size(mixed[i].ptr));
                assert_true(mixed[i].size >= asked[i].size && mixed[i].reserve >= mixed[i].size);
                if (asked[i].alignment != 0) assert_int_equal((uintptr_t)mixed[i].ptr & (asked[i].alignment - 1), 0);
                const char *bytes = mixed[i].ptr;
                for (size_t at = kept; (asked[i].flags & STRATA_BATCH_ZERO) != 0 && at < mixed[i].size; at += 331) assert_int_equal(bytes[at], 0);
                if (kept > mixed[i].size) kept = mixed[i].size;
            }
            if (kept != 0) assert_marked(i, mixed[i].ptr, kept, before[i].size);
            if (mixed[i].ptr != NULL) mark(i, mixed[i].ptr, mixed[i].size);
        }
        assert_int_equal(count, there);
        assert_int_equal(all, there == MIXED);
        ASSERT_SOUND();
    }
    size_t count = MIXED;
    for (unsigned i = 0; i < MIXED; i++) mixed[i].size = 0, mixed[i].flags = 0, mixed[i].alignment = mixed[i].reserve = 0;
    assert_true(strata_batch_alloc5(NULL, elements, &count));
}

static void work(void) {
    batch_of_one_size(MANY, 100, 0);
    sim_cpu_set(1);
    batch_of_one_size(MANY, 3000, STRATA_BATCH_ZERO);
    array_of_the_callee();
    sim_cpu_set(0);
    batch_of_one_size(6, 100 * KIB, STRATA_BATCH_ZERO);
    batch_of_one_size(1, 1500 * KIB, STRATA_BATCH_CONSTANT_TIME);
    batch_of_one_size(4, 5 * MIB, 0);
    mixture();
}

static void assert_nothing_lost(void) {
    for (unsigned cpu = 0; cpu < 2; cpu++) {
        sim_cpu_set(cpu);
        (void)heap_release(0);
    }
    sim_cpu_set(0);
    ASSERT_SOUND();
    for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_MAGAZINES; tag++) assert_int_equal(slab_in_use(&heap.slabs, tag), 0);
    struct zone_counters zone;
    zone_counters_get(&heap.zone, &zone);
    assert_int_equal(zone.blocks, 0);
    assert_int_equal(zone.idle, 0);
}

static bool run_with_failure(const struct sim_config *sim, const char *conf, uint64_t n, uint64_t times) {
    new_process(sim, conf);
    sim_fail_call(n, times);
    refused = 0;
    work();
    if (n == 0) assert_int_equal(refused, 0);
    bool failed = sim_failures() != 0;
    sim_fail_call(0, 0);
    refused = 0;
    work(); /* it works as though nothing had been */
    assert_int_equal(refused, 0);
    assert_nothing_lost();
    assert_string_equal(sim_output(), "");
    return failed;
}

static void each_call_fails(const struct sim_config *sim, const char *conf) { each_call_fails_in(run_with_failure, sim, conf, 20); }

static void each_call_fails_in_turn(void **state) {
    (void)state;
    each_call_fails(NULL, "background:off,reserve:8G,thp:never");
}
static void each_call_fails_with_huge_pages(void **state) {
    (void)state;
    each_call_fails(NULL, "background:off,reserve:8G,thp:always,populate_pages:1");
}
static void each_call_fails_with_pages_of_64_kib(void **state) {
    const struct sim_config sim = {.page_bytes = 64 * KIB};
    (void)state;
    each_call_fails(&sim, "background:off,reserve:8G");
}
static void each_call_fails_in_thread_mode_and_without_arrays(void **state) {
    const struct sim_config sim = {.thread_mode = true};
    (void)state;
    each_call_fails(&sim, "background:off,reserve:8G");
    each_call_fails(NULL, "background:off,reserve:8G,magazine_max:0");
}

static void every_hard_limit_holds(void **state) {
    (void)state;
    unsigned all = 0;
    for (unsigned limit_kib = 40; limit_kib < 9000; limit_kib += limit_kib < 2000 ? 100 : 700) {
        char conf[64];
        snprintf(conf, sizeof conf, "background:off,hard_limit:%uK", limit_kib);
        new_process(NULL, conf);
        refused = 0;
        work();
        all += refused;
        assert_true(heap.zone.counters.allocated << GRANULE_SHIFT <= limit_kib * KIB);
        assert_nothing_lost();
    }
    assert_true(all > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_fails_in_turn),
        cmocka_unit_test(each_call_fails_with_huge_pages),
        cmocka_unit_test(each_call_fails_with_pages_of_64_kib),
        cmocka_unit_test(each_call_fails_in_thread_mode_and_without_arrays),
        cmocka_unit_test(every_hard_limit_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
