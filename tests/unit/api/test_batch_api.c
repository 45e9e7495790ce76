/*
 * test_batch_api.c - batches as programs see them: what becomes of an element by its address and size, in all three functions; every wrong argument
 * one by one; and what flags say.
 */
#include "batch_api_support.h"

static void address_and_size_say_what_becomes_of_an_element(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 16, 100, 5000, 32 * KIB, 33 * KIB, 300 * KIB, 5 * MIB};
    for (unsigned way = 0; way < WAYS; way++) {
        for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
            for (size_t j = 0; j < ARRAY_LENGTH(sizes); j++) {
                void *p = NULL;
                size_t size = sizes[i];
                assert_int_equal(serve(way, &p, &size, 0, 0, 0), 0);
                assert_non_null(p);
                assert_true(size >= sizes[i]);
                assert_int_equal(size, strata_malloc_usable_size(p));
                memset(p, 'a', size);
                size_t kept = size;
                size = sizes[j];
                assert_int_equal(serve(way, &p, &size, 0, 0, 0), 0);
                assert_true(size >= sizes[j]);
                assert_int_equal(size, strata_malloc_usable_size(p));
                assert_true(is(p, 0, kept < size ? kept : size, 'a'));
                size = 0;
                assert_int_equal(serve(way, &p, &size, 0, 0, 0), 0);
                assert_null(p);
                assert_int_equal(serve(way, &p, &size, 0, 0, 0), 0);
                assert_null(p);
            }
        }
    }
    struct zone_counters counters;
    zone_counters_get(&heap.zone, &counters);
    assert_int_equal(counters.blocks, 0);
}

static void wrong_arguments_are_refused_one_by_one(void **state) {
    (void)state;
    const struct {
        size_t size, alignment, reserve;
        uintmax_t flags;
    } wrong[] = {
        {16, 3, 0, 0},
        {16, SIZE_MAX, 0, 0},
        {16, 0, (size_t)PTRDIFF_MAX + 1, 0},
        {16, 0, SIZE_MAX / 8, STRATA_BATCH_RESERVE_IS_MULTIPLE},
        {16, 0, 0, 128},
        {16, 0, 0, M2_USERFLAGS_FIRST},
        {16, 0, 0, M2_USERFLAGS_LAST},
        {16, 0, 0, UINTMAX_MAX},
        {16, 0, 0, STRATA_BATCH_ALL_ALLOC | STRATA_BATCH_ALL_FREE},
        {16, 0, 0, STRATA_BATCH_ALL_ALLOC | STRATA_BATCH_ALL_REALLOC},
        {0, 0, 0, STRATA_BATCH_ALL_REALLOC | STRATA_BATCH_ALL_FREE},
        {0, 5, 0, 0},
    };
    char *held = strata_malloc(100);
    memset(held, 'h', 100);
    for (unsigned way = 0; way < WAYS; way++) {
        for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
            for (unsigned set = 0; set < 2; set++) {
                void *p = set ? held : NULL;
                size_t size = wrong[i].size;
                int error = serve(way, &p, &size, wrong[i].alignment, wrong[i].reserve, wrong[i].flags);
                if (error != EINVAL) fail_msg("way %u, %zu: error %d", way, i, error);
                assert_ptr_equal(p, set ? held : NULL);
                assert_int_equal(size, wrong[i].size);
            }
        }
    }
    assert_true(is(held, 0, 100, 'h'));
    strata_free(held);
}

static void promises_that_the_arguments_contradict_are_refused(void **state) {
    (void)state;
    size_t size = 100, none = 0, count;
    void *p = strata_malloc(100), *before = p;
    int error;
    const struct {
        size_t *size;
        uintmax_t flags;
    } wrong[] = {{&size, STRATA_BATCH_ALL_FREE}, {&none, STRATA_BATCH_ALL_ALLOC}, {NULL, STRATA_BATCH_ALL_REALLOC}};
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
        count = 1, error = 0;
        assert_ptr_equal(strata_batch_alloc1(&error, &p, &count, wrong[i].size, 0, 0, wrong[i].flags), &p);
        assert_int_equal(error, EINVAL);
        assert_int_equal(count, 0);
        assert_ptr_equal(p, before);
    }
    const uintmax_t of_blocks[] = {STRATA_BATCH_ALL_REALLOC, STRATA_BATCH_ALL_FREE};
    for (size_t i = 0; i < ARRAY_LENGTH(of_blocks); i++) { /* an array of the callee's has no blocks */
        count = 1, errno = 0;
        assert_null(strata_batch_alloc1(NULL, NULL, &count, i == 0 ? &size : NULL, 0, 0, of_blocks[i]));
        assert_int_equal(errno, EINVAL);
        assert_int_equal(count, 0);
    }
    strata_free(p);
}

static void arrays_that_are_missing_are_errors(void **state) {
    (void)state;
    size_t size = 16, count = 3;
    void *p[1] = {NULL};
    errno = 0;
    assert_null(strata_batch_alloc1(NULL, p, NULL, &size, 0, 0, 0));
    assert_int_equal(errno, EINVAL);
    struct strata_batch_element2 *two[1] = {NULL};
    struct strata_batch_element5 *five[1] = {NULL};
    errno = 0;
    assert_false(strata_batch_alloc2(NULL, two, NULL, 0, 0, 0));
    assert_int_equal(errno, EINVAL);
    errno = 0;
    assert_false(strata_batch_alloc5(NULL, five, NULL));
    assert_int_equal(errno, EINVAL);
    errno = 0;
    assert_false(strata_batch_alloc2(NULL, NULL, &count, 0, 0, 0));
    assert_int_equal(errno, EINVAL);
    assert_int_equal(count, 0);
    count = 3, errno = 0;
    assert_false(strata_batch_alloc5(NULL, NULL, &count));
    assert_int_equal(errno, EINVAL);
    assert_int_equal(count, 0);
    assert_true(strata_batch_alloc2(NULL, NULL, &count, 0, 0, 0) && strata_batch_alloc5(NULL, NULL, &count));
    assert_ptr_equal(strata_batch_alloc1(NULL, p, &count, &size, 0, 0, 0), p);
    assert_int_equal(size, 16);
    assert_null(p[0]);
    count = 1;
    assert_true(strata_batch_alloc2(NULL, two, &count, 0, 0, 0) && strata_batch_alloc5(NULL, five, &count));
    assert_int_equal(count, 1);
}

static void what_is_no_block_is_an_error_and_stays(void **state) {
    (void)state;
    char local[64], *small = strata_malloc(200), *block = strata_malloc(8 * MIB);
    void *bad[] = {local, small + 8, block + 4096, block + 8 * MIB, (void *)UINTPTR_MAX, (void *)(uintptr_t)16};
    for (unsigned way = 0; way < WAYS; way++) {
        for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
            for (size_t size = 0; size <= 200; size += 100) {
                void *p = bad[i];
                size_t received = size;
                assert_int_equal(serve(way, &p, &received, 0, 0, 0), EINVAL);
                assert_ptr_equal(p, bad[i]);
                assert_int_equal(received, size);
            }
        }
        void *p = small + 16; /* inside an object: seen where it is to be resized */
        size_t size = 100;
        assert_int_equal(serve(way, &p, &size, 0, 0, 0), EINVAL);
    }
    void *again = block;
    size_t none = 0;
    strata_free(block);
    assert_int_equal(serve(BY_ONE, &again, &none, 0, 0, 0), EINVAL);
    strata_free(small);
}

static void too_much_is_no_memory(void **state) {
    (void)state;
    for (unsigned way = 0; way < WAYS; way++) {
        for (size_t size = (size_t)PTRDIFF_MAX; size != SIZE_MAX; size = size == (size_t)PTRDIFF_MAX ? size + 1 : SIZE_MAX) {
            void *p = NULL, *held = strata_malloc(40), *before = held;
            size_t received = size;
            assert_int_equal(serve(way, &p, &received, 0, 0, 0), ENOMEM);
            assert_null(p);
            assert_int_equal(received, size);
            assert_int_equal(serve(way, &held, &received, 0, 0, 0), ENOMEM);
            assert_ptr_equal(held, before);
            assert_int_equal(serve(way, &held, &received, 0, 0, STRATA_BATCH_NO_MOVE), size > (size_t)PTRDIFF_MAX ? ENOMEM : ENOSPC);
            void *block = strata_malloc(MIB);
            assert_int_equal(serve(way, &block, &received, 0, 0, STRATA_BATCH_NO_MOVE), size > (size_t)PTRDIFF_MAX ? ENOMEM : ENOSPC);
            strata_free(block);
            received = 16;
            assert_int_equal(serve(way, &p, &received, (size_t)1 << 62, 0, 0), ENOMEM);
            strata_free(held);
        }
    }
}

static void alignments_hold_through_resizing(void **state) {
    (void)state;
    for (size_t align = 1; align <= 8 * MIB; align *= 2) {
        static const size_t sizes[] = {10, 3000, 40 * KIB, 3 * MIB, 20, 10 * MIB, 1};
        void *p = NULL;
        size_t kept = 0;
        for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
            size_t size = sizes[i];
            assert_int_equal(serve((enum way)(i % WAYS), &p, &size, align, 0, 0), 0);
            assert_int_equal((uintptr_t)p & (align - 1), 0);
            assert_true(is(p, 0, kept < size ? kept : size, 'x'));
            memset(p, 'x', size);
            kept = size;
        }
        strata_free(p);
    }
}

static void a_block_that_may_not_move_stays_or_says_so(void **state) {
    (void)state;
    void *first = strata_malloc(100); /* which begins a superpage, and is aligned to anything */
    char *small = strata_malloc(100);
    size_t usable = strata_malloc_usable_size(small);
    assert_ptr_equal(try_realloc(small, usable), small);
    assert_ptr_equal(try_realloc(small, 1), small);
    errno = 0;
    assert_null(try_realloc(small, usable + 1));
    assert_int_equal(errno, ENOSPC);
    errno = 0;
    assert_null(try_aligned_realloc(small, 1 * MIB, 10));
    assert_int_equal(errno, ENOSPC);
    errno = 0;
    assert_null(try_aligned_realloc(small, 12, 10));
    assert_int_equal(errno, EINVAL);
    char *block = try_realloc(NULL, 5 * MIB), *tight = strata_malloc(500 * KIB), *behind = strata_malloc(500 * KIB);
    memset(tight, 't', 500 * KIB);
    assert_non_null(block);
    assert_ptr_equal(try_realloc(block, 10), block); /* a large block may become small where it is */
    assert_ptr_equal(try_realloc(block, 5 * MIB), block);
    if (behind == tight + 500 * KIB) {
        errno = 0;
        assert_null(try_realloc(tight, 600 * KIB));
        assert_int_equal(errno, ENOSPC);
    }
    assert_true(is(tight, 0, 500 * KIB, 't'));
    const uint64_t limit = heap.zone.config.hard_limit_bytes;
    heap.zone.config.hard_limit_bytes = 10 * MIB;
    errno = 0;
    assert_null(try_realloc(block, 20 * MIB));
    assert_int_equal(errno, ENOMEM); /* not for want of room */
    heap.zone.config.hard_limit_bytes = limit;
    void *fixed, *neighbour;
    assert_int_equal(strata_page_alloc(300 * KIB, STRATA_PAGE_NO_MOVE, &fixed), STRATA_PAGE_OK);
    assert_int_equal(strata_page_alloc(300 * KIB, STRATA_PAGE_NO_MOVE, &neighbour), STRATA_PAGE_OK); /* so that it can't grow where it is */
    errno = 0;
    assert_null(aligned_realloc(fixed, 0, 30 * MIB)); /* the block itself is one that never moves */
    assert_int_equal(errno, ENOSPC);
    assert_ptr_equal(aligned_realloc(fixed, 0, 100), fixed);
    errno = ERRNO_BEFORE;
    assert_null(try_realloc(small, 0));
    assert_null(try_realloc(NULL, 0));
    assert_null(aligned_realloc(block, 0, 0));
    assert_int_equal(errno, ERRNO_BEFORE);
    strata_free(tight), strata_free(behind), strata_free(fixed), strata_free(neighbour), strata_free(first);
    ASSERT_SOUND();
}

static void zeroed_is_zero_whatever_was_there(void **state) {
    (void)state;
    static const size_t sizes[] = {24, 500, 4000, 32 * KIB, 60 * KIB, 900 * KIB, 3 * MIB, 9 * MIB};
    for (unsigned round = 0; round < 2 * WAYS; round++) {
        enum way way = round % WAYS;
        for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
            void *p = NULL;
            size_t size = sizes[i];
            assert_int_equal(serve(way, &p, &size, 0, 0, STRATA_BATCH_ZERO), 0);
            assert_true(is(p, 0, size, 0));
            for (size_t j = 0; j < ARRAY_LENGTH(sizes); j++) {
                memset(p, 0xee, size);
                size_t old = size;
                size = sizes[j];
                assert_int_equal(serve(way, &p, &size, 0, 0, STRATA_BATCH_ZERO), 0);
                assert_true(is(p, 0, old < size ? old : size, (char)0xee));
                if (old < size && !is(p, old, size, 0)) fail_msg("%zu to %zu: not all that was added is zero", old, size);
            }
            memset(p, 0xdd, size);
            strata_free(p);
        }
    }
}

static void a_reserve_lets_a_block_grow_where_it_is(void **state) {
    (void)state;
    struct strata_batch_element5 element = {.size = 100, .reserve = 64 * MIB}, *elements[] = {&element};
    size_t count = 1;
    int error;
    assert_true(strata_batch_alloc5(&error, elements, &count));
    assert_true(element.reserve >= 64 * MIB);
    void *p = element.ptr, *in_the_way[20];
    for (unsigned i = 0; i < 20; i++) in_the_way[i] = strata_malloc(3 * MIB);
    for (size_t size = 1 * MIB; size <= 64 * MIB; size *= 2) assert_ptr_equal(strata_try_realloc(p, size), p);
    /* In sizes of the element; and what resizing sets aside. */
    element = (struct strata_batch_element5){.ptr = p, .size = 65 * MIB, .reserve = 2, .flags = STRATA_BATCH_RESERVE_IS_MULTIPLE};
    assert_true(strata_batch_alloc5(&error, elements, &count));
    assert_true(element.reserve >= 130 * MIB);
    assert_true(element.size >= 65 * MIB && element.size < 66 * MIB);
    strata_free(element.ptr);
    /* A hint that can't be had is none. */
    element = (struct strata_batch_element5){.size = 5 * MIB, .reserve = (size_t)PTRDIFF_MAX};
    assert_true(strata_batch_alloc5(&error, elements, &count));
    assert_true(element.reserve >= element.size && element.reserve < (size_t)PTRDIFF_MAX);
    strata_free(element.ptr);
    element = (struct strata_batch_element5){.size = 100, .reserve = 1 * MIB};
    assert_true(strata_batch_alloc5(&error, elements, &count));
    assert_int_equal(element.reserve, element.size); /* so little is not worth a superpage */
    strata_free(element.ptr);
    for (unsigned i = 0; i < 20; i++) strata_free(in_the_way[i]);
    ASSERT_SOUND();
}

static void constant_time_means_no_housekeeping(void **state) {
    (void)state;
    static void *p[4000];
    for (uintmax_t flags = 0; flags <= STRATA_BATCH_CONSTANT_TIME; flags += STRATA_BATCH_CONSTANT_TIME) {
        size_t count = ARRAY_LENGTH(p), size = 100;
        uint32_t calls = maintenance_slow_calls();
        strata_batch_alloc1(NULL, p, &count, &size, 0, 0, flags);
        assert_int_equal(count, ARRAY_LENGTH(p));
        void *large[2] = {NULL, NULL};
        size_t two = 2, large_size = 100 * KIB;
        strata_batch_alloc1(NULL, large, &two, &large_size, 0, 0, flags);
        strata_batch_alloc1(NULL, large, &two, NULL, 0, 0, flags);
        strata_batch_alloc1(NULL, p, &count, NULL, 0, 0, flags);
        assert_true((flags == 0) == (maintenance_slow_calls() > calls));
        void *shrinks = strata_malloc(4000), *before = shrinks;
        size_t small = 10;
        assert_int_equal(serve(BY_TWO, &shrinks, &small, 0, 0, flags), 0);
        assert_true((flags == 0) == (shrinks != before));
        strata_free(shrinks);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(address_and_size_say_what_becomes_of_an_element, fresh_process),
        cmocka_unit_test_setup(wrong_arguments_are_refused_one_by_one, fresh_process),
        cmocka_unit_test_setup(promises_that_the_arguments_contradict_are_refused, fresh_process),
        cmocka_unit_test_setup(arrays_that_are_missing_are_errors, fresh_process),
        cmocka_unit_test_setup(what_is_no_block_is_an_error_and_stays, fresh_process),
        cmocka_unit_test_setup(too_much_is_no_memory, fresh_process),
        cmocka_unit_test_setup(alignments_hold_through_resizing, fresh_process),
        cmocka_unit_test_setup(a_block_that_may_not_move_stays_or_says_so, fresh_process),
        cmocka_unit_test_setup(zeroed_is_zero_whatever_was_there, fresh_process),
        cmocka_unit_test_setup(a_reserve_lets_a_block_grow_where_it_is, fresh_process),
        cmocka_unit_test_setup(constant_time_means_no_housekeeping, fresh_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
