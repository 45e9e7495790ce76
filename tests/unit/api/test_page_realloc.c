/*
 * test_page_realloc.c - blocks of pages that get another size: contents, flags, alignment and zeros stay what they were promised to be.
 */
#include <errno.h>

#include "unit/api/page_api_support.h"

/* Also where it has a page more than malloc was asked for, as somebody else had left it: nobody is told of that. */
static void what_grows_with_zeros_has_them_from_where_it_was_asked_to_end(void **state) {
    (void)state;
    enum { PAGE = 4096 };
    char *former = strata_malloc(18 * PAGE);
    memset(former, 0xaa, 18 * PAGE);
    strata_free(former);
    char *block = strata_malloc(17 * PAGE);
    assert_ptr_equal(block, former);
    struct strata_page_info info;
    assert_int_equal(strata_malloc_usable_size(block), 17 * PAGE);
    assert_int_equal(strata_page_query(block, &info), STRATA_PAGE_OK);
    assert_int_equal(info.bytes, 17 * PAGE);
    assert_int_equal(info.capacity_bytes, 18 * PAGE);
    assert_int_equal(strata_page_release(block + 17 * PAGE, PAGE), STRATA_PAGE_NO_BLOCK);
    memset(block, 0x55, 17 * PAGE);
    void *p = block;
    assert_int_equal(strata_page_realloc(&p, 20 * PAGE, STRATA_PAGE_ZEROED), STRATA_PAGE_OK);
    block = p;
    for (size_t i = 0; i < 20 * PAGE; i++)
        if (block[i] != (i < 17 * PAGE ? 0x55 : 0)) fail_msg("byte %zu is %d", i, block[i]);
    strata_free(block);
}

static void blocks_grow_and_shrink_with_their_contents(void **state) {
    (void)state;
    void *block = must_alloc(8 * KIB, STRATA_PAGE_UNMOVABLE);
    memset(block, 3, 8 * KIB);
    for (size_t size = 16 * KIB; size <= 64 * MIB; size *= 2) {
        assert_int_equal(strata_page_realloc(&block, size, STRATA_PAGE_PREFAULT), STRATA_PAGE_OK);
        assert_true(is(block, 8 * KIB, 3));
        assert_int_equal(info_of(block).bytes, size);
        assert_int_equal(info_of(block).present_bytes, size);
    }
    assert_int_equal(info_of(block).flags, STRATA_PAGE_UNMOVABLE);
    assert_int_equal(strata_page_realloc(&block, 4 * KIB, 0), STRATA_PAGE_OK);
    assert_true(is(block, 4 * KIB, 3));
    char *fixed = must_alloc(4 * MIB, STRATA_PAGE_NO_MOVE), *behind = must_alloc(4 * MIB, 0);
    void *p = fixed;
    assert_int_equal(strata_page_realloc(&p, 300 * MIB, 0), STRATA_PAGE_NO_ROOM);
    assert_int_equal(info_of(fixed).flags, STRATA_PAGE_NO_MOVE);
    p = behind;
    if (strata_page_realloc(&p, 300 * MIB, STRATA_PAGE_NO_MOVE) != STRATA_PAGE_OK) assert_ptr_equal(p, behind);
    must_free(p), must_free(fixed), must_free(block);
    ASSERT_SOUND();
}

/* What takes place beside each step (reaps of caches, where the heap has grown) looks at no marks. */
static void steps_of_growth_leave_the_marks_for_later(void **state) {
    (void)state;
    void *block = must_alloc(2 * MIB, 0);
    memset(block, 1, 2 * MIB);
    size_t from = 0;
    for (size_t size = 4 * MIB; size <= 64 * MIB; size *= 2) {
        assert_int_equal(strata_page_realloc(&block, size, 0), STRATA_PAGE_OK);
        memset((char *)block + size / 2, 1, size / 2);
        if (from != 0) assert_int_equal(heap.zone.unmarked.from, from);
        from = heap.zone.unmarked.from;
    }
    assert_true(from != 0);
    must_free(block);
    ASSERT_SOUND();
}

static void fixed_blocks_stay_where_they_are_by_realloc_too(void **state) {
    (void)state;
    for (size_t size = 4 * KIB; size <= 4 * MIB; size *= 32) {
        char *fixed = must_alloc(size, STRATA_PAGE_NO_MOVE), *behind = must_alloc(size, STRATA_PAGE_NO_MOVE);
        memset(fixed, 5, size);
        errno = 0;
        char *grown = strata_realloc(fixed, 64 * size);
        assert_true(grown == fixed || (grown == NULL && errno == ENOMEM));
        assert_true(is(fixed, size, 5));
        assert_ptr_equal(strata_realloc(fixed, 100), fixed);
        assert_true(is(fixed, 100, 5));
        assert_int_equal(info_of(fixed).flags, STRATA_PAGE_NO_MOVE);
        must_free(fixed), must_free(behind);
    }
    ASSERT_SOUND();
}

static void blocks_that_move_keep_their_alignment(void **state) {
    (void)state;
    enum { COUNT = 24, FILLERS = 512 };
    static void *fillers[FILLERS]; /* what lies behind the blocks is taken */
    static const struct strata_page_request requests[] = {
        {.bytes = 8 * KIB, .align = 64 * KIB}, {.bytes = 64 * KIB, .align = MIB}, {.bytes = 3 * MIB, .align = 16 * MIB}};
    for (size_t i = 0; i < ARRAY_LENGTH(requests); i++) {
        void *blocks[COUNT];
        for (size_t b = 0; b < COUNT; b++) {
            assert_int_equal(strata_page_alloc_as(&requests[i], &blocks[b]), STRATA_PAGE_OK);
            memset(blocks[b], (int)b, requests[i].bytes);
        }
        for (size_t f = 0; f < FILLERS; f++) fillers[f] = must_alloc(16 * KIB, 0);
        unsigned moved = 0;
        for (size_t b = 0; b < COUNT; b++) {
            void *before = blocks[b];
            assert_int_equal(strata_page_realloc(&blocks[b], 3 * requests[i].bytes, 0), STRATA_PAGE_OK);
            moved += blocks[b] != before;
            assert_int_equal((uintptr_t)blocks[b] % requests[i].align, 0);
            assert_true(is(blocks[b], requests[i].bytes, (char)b));
        }
        assert_true(moved != 0 || requests[i].bytes > MIB); /* large ones may have room behind them */
        for (size_t f = 0; f < FILLERS; f++) must_free(fillers[f]);
        for (size_t b = 0; b < COUNT; b++) must_free(blocks[b]);
    }
    ASSERT_SOUND();
}

/* Also of what was there and absent, at every size, in place and elsewhere. */
static void prefault_of_a_resize_is_of_the_whole_block(void **state) {
    (void)state;
    static const size_t sizes[] = {3 * MIB, 3 * MIB, MIB, 900 * KIB, 9 * MIB, 64 * MIB, 5000, 40 * KIB};
    void *block = must_alloc(3 * MIB, 0), *behind = must_alloc(3 * MIB, 0);
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        size_t bytes = info_of(block).bytes;
        assert_int_equal(strata_page_release(block, bytes), STRATA_PAGE_OK);
        assert_int_equal(info_of(block).present_bytes, 0);
        assert_int_equal(strata_page_realloc(&block, sizes[i], STRATA_PAGE_PREFAULT), STRATA_PAGE_OK);
        assert_true(info_of(block).bytes >= sizes[i]);
        assert_int_equal(info_of(block).present_bytes, info_of(block).bytes);
    }
    must_free(block), must_free(behind);
    ASSERT_SOUND();
}

static void growth_in_place_says_what_is_lacking(void **state) {
    (void)state;
    void *block = must_alloc(3 * MIB, 0), *behind = must_alloc(3 * MIB, 0), *low = block < behind ? block : behind, *was = low;
    assert_int_equal(strata_page_realloc(&low, 64 * MIB, STRATA_PAGE_NO_MOVE), STRATA_PAGE_NO_ROOM);
    assert_int_equal(strata_page_reserve(low, 64 * MIB), STRATA_PAGE_NO_ROOM);
    heap.zone.config.hard_limit_bytes = 10 * MIB;
    assert_int_equal(strata_page_realloc(&low, 64 * MIB, STRATA_PAGE_NO_MOVE), STRATA_PAGE_NO_MEMORY);
    assert_int_equal(strata_page_realloc(&low, 64 * MIB, 0), STRATA_PAGE_NO_MEMORY);
    assert_ptr_equal(low, was);
    heap.zone.config.hard_limit_bytes = UINT64_MAX;
    must_free(block), must_free(behind);
    ASSERT_SOUND();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_grows_with_zeros_has_them_from_where_it_was_asked_to_end, fresh_process),
        cmocka_unit_test_setup(blocks_grow_and_shrink_with_their_contents, fresh_process),
        cmocka_unit_test_setup(steps_of_growth_leave_the_marks_for_later, fresh_process),
        cmocka_unit_test_setup(fixed_blocks_stay_where_they_are_by_realloc_too, fresh_process),
        cmocka_unit_test_setup(blocks_that_move_keep_their_alignment, fresh_process),
        cmocka_unit_test_setup(prefault_of_a_resize_is_of_the_whole_block, fresh_process),
        cmocka_unit_test_setup(growth_in_place_says_what_is_lacking, fresh_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
