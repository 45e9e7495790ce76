/*
 * test_segments.c - add, alloc, free, resize, lookup, contains and sizes: what they give, every status that they answer with, the
 * bottom (0) and the top (2^64) of the integers.
 */
#include "unit/arena/arena_units.h"

static void init_refuses_bad_arguments(void **state) {
    (void)state;
    struct arena other;
    ASSERT_STATUS(arena_init(&other, "x", 0, NULL, NULL, 0), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_init(&other, "x", 3, NULL, NULL, 0), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_init(&other, "x", 4096, NULL, NULL, ARENA_FIT_MASK), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_init(&other, "x", 4096, NULL, NULL, ARENA_SLEEP), ARENA_BAD_ARGUMENT);
    ASSERT_OK(arena_init(&other, "a name that is longer than any name may be", (uint64_t)1 << 63, NULL, NULL, 0));
    assert_string_equal(stats_of(&other).name, "a name that is longer than any ");
}

static void an_empty_arena_gives_nothing(void **state) {
    (void)state;
    uint64_t start = 77;
    ASSERT_STATUS(arena_alloc(&arena, 1, 0, &start), ARENA_NO_SPACE);
    assert_int_equal(start, 77);
    assert_int_equal(stats_of(&arena).counters.failures, 1);
    assert_int_equal(arena_size(&arena, ARENA_ALLOCATED | ARENA_FREE), 0);
    ASSERT_SOUND(&arena);
}

static void add_refuses_what_is_no_span(void **state) {
    (void)state;
    struct arena pages;
    ASSERT_OK(arena_init(&pages, "pages", 4096, NULL, NULL, 0));
    ASSERT_STATUS(arena_add(&pages, 0, 0), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_add(&pages, 1, 4096), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_add(&pages, 4096, 4097), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_add(&pages, UINT64_MAX - 4095, 8192), ARENA_BAD_RANGE);
    ASSERT_OK(arena_add(&pages, 8192, 8192));
    ASSERT_STATUS(arena_add(&pages, 8192, 8192), ARENA_OVERLAP);
    ASSERT_STATUS(arena_add(&pages, 12288, 8192), ARENA_OVERLAP);
    ASSERT_STATUS(arena_add(&pages, 4096, 8192), ARENA_OVERLAP);
    ASSERT_STATUS(arena_add(&pages, 4096, 40960), ARENA_OVERLAP);
    ASSERT_STATUS(arena_add(&pages, 12288, 4096), ARENA_OVERLAP);
    ASSERT_OK(arena_add(&pages, 4096, 4096));
    ASSERT_OK(arena_add(&pages, 16384, 4096));
    ASSERT_SOUND(&pages);
    assert_int_equal(arena_size(&pages, ARENA_FREE), 16384);
    assert_int_equal(stats_of(&pages).spans, 3);
}

static void the_sum_of_spans_stays_below_two_to_the_64(void **state) {
    (void)state;
    const uint64_t half = (uint64_t)1 << 63;
    ASSERT_OK(arena_add(&arena, 0, half));
    ASSERT_STATUS(arena_add(&arena, half, half), ARENA_BAD_RANGE);
    ASSERT_OK(arena_add(&arena, half, half - 1));
    ASSERT_STATUS(arena_add(&arena, UINT64_MAX, 1), ARENA_BAD_RANGE);
    ASSERT_SOUND(&arena);
    assert_true(arena_size(&arena, ARENA_FREE) == UINT64_MAX);
    assert_int_equal(must_alloc(&arena, half, 0), 0);
    assert_true(must_alloc(&arena, half - 1, 0) == half);
    ASSERT_SOUND(&arena);
}

static void zero_is_an_integer_like_any_other(void **state) {
    (void)state;
    ASSERT_OK(arena_add(&arena, 0, 1));
    assert_int_equal(must_alloc(&arena, 1, 0), 0);
    uint64_t size = 9;
    ASSERT_OK(arena_lookup(&arena, 0, &size));
    assert_int_equal(size, 1);
    ASSERT_OK(arena_free(&arena, 0, 1));
    ASSERT_SOUND(&arena);
}

static void a_span_may_end_at_two_to_the_64(void **state) {
    (void)state;
    const uint64_t base = UINT64_MAX - 99;
    for (unsigned fit = ARENA_INSTANT_FIT; fit <= ARENA_NEXT_FIT; fit++) {
        struct arena top;
        uint64_t start[100], more;
        ASSERT_OK(arena_init(&top, "top", 1, &memory_ops, &memory, 0));
        ASSERT_OK(arena_add(&top, base, 100));
        ASSERT_STATUS(arena_alloc(&top, 101, fit, &more), ARENA_NO_SPACE);
        ASSERT_STATUS(arena_alloc(&top, UINT64_MAX, fit, &more), ARENA_NO_SPACE);
        for (unsigned i = 0; i < 100; i++) {
            start[i] = must_alloc(&top, 1, fit);
            assert_true(start[i] == base + i);
        }
        ASSERT_STATUS(arena_alloc(&top, 1, fit, &more), ARENA_NO_SPACE);
        ASSERT_SOUND(&top);
        assert_true(arena_contains(&top, UINT64_MAX, 1));
        assert_false(arena_contains(&top, UINT64_MAX, 2));
        for (unsigned i = 0; i < 100; i++) ASSERT_OK(arena_free(&top, start[(i * 37 + 99) % 100], 1));
        ASSERT_SOUND(&top);
        assert_int_equal(stats_of(&top).segments_free, 1);
        ASSERT_OK(arena_xalloc(&top, 40, 0, 0, 0, UINT64_MAX - 39, 0, fit, &more));
        assert_true(more == UINT64_MAX - 39);
        ASSERT_OK(arena_resize(&top, more, 40, 1));
        ASSERT_OK(arena_resize(&top, more, 1, 40));
        ASSERT_STATUS(arena_resize(&top, more, 40, 41), ARENA_NO_SPACE);
        ASSERT_SOUND(&top);
        ASSERT_OK(arena_xfree(&top, more, 40));
        ASSERT_OK(arena_destroy(&top));
    }
}

static void alloc_refuses_bad_arguments(void **state) {
    (void)state;
    uint64_t start;
    ASSERT_OK(arena_add(&arena, 0, 1000));
    ASSERT_STATUS(arena_alloc(&arena, 0, 0, &start), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_alloc(&arena, 1, ARENA_FIT_MASK, &start), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_alloc(&arena, 1, 16, &start), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_alloc(&arena, 1, ARENA_SLEEP, &start), ARENA_BAD_ARGUMENT); /* no way to wait */
    struct arena pages;
    ASSERT_OK(arena_init(&pages, "pages", 4096, NULL, NULL, 0));
    ASSERT_STATUS(arena_alloc(&pages, UINT64_MAX, 0, &start), ARENA_BAD_ARGUMENT); /* rounded up it passes 2^64 */
    assert_int_equal(stats_of(&arena).counters.failures, 0);
}

static void sizes_are_rounded_to_the_quantum(void **state) {
    (void)state;
    struct arena pages;
    ASSERT_OK(arena_init(&pages, "pages", 4096, NULL, NULL, 0));
    ASSERT_OK(arena_add(&pages, 4096, 5 * 4096));
    uint64_t a = must_alloc(&pages, 1, 0), b = must_alloc(&pages, 4097, 0), size;
    assert_int_equal(a & 4095, 0);
    assert_int_equal(b & 4095, 0);
    ASSERT_OK(arena_lookup(&pages, b, &size));
    assert_int_equal(size, 8192);
    assert_int_equal(arena_size(&pages, ARENA_ALLOCATED), 3 * 4096);
    assert_int_equal(arena_size(&pages, ARENA_FREE), 2 * 4096);
    ASSERT_STATUS(arena_free(&pages, b, 4096), ARENA_SIZE_MISMATCH);
    ASSERT_OK(arena_free(&pages, b, 5000));
    ASSERT_OK(arena_free(&pages, a, 4096));
    ASSERT_SOUND(&pages);
}

static void free_refuses_what_was_not_allocated(void **state) {
    (void)state;
    ASSERT_OK(arena_add(&arena, 0, 1000));
    uint64_t a = must_alloc(&arena, 10, 0), b = must_alloc(&arena, 10, 0), size = 0;
    ASSERT_STATUS(arena_free(&arena, a, 0), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_free(&arena, a, 9), ARENA_SIZE_MISMATCH);
    ASSERT_STATUS(arena_free(&arena, a, 20), ARENA_SIZE_MISMATCH);
    ASSERT_STATUS(arena_free(&arena, a + 1, 9), ARENA_NOT_ALLOCATED);
    ASSERT_STATUS(arena_free(&arena, 500, 10), ARENA_NOT_ALLOCATED);
    ASSERT_STATUS(arena_free(&arena, 5000, 10), ARENA_NOT_ALLOCATED);
    ASSERT_STATUS(arena_lookup(&arena, a + 1, &size), ARENA_NOT_ALLOCATED);
    ASSERT_SOUND(&arena);
    assert_int_equal(arena_size(&arena, ARENA_ALLOCATED), 20);
    assert_int_equal(stats_of(&arena).counters.frees, 0);
    ASSERT_OK(arena_free(&arena, a, 10));
    ASSERT_STATUS(arena_free(&arena, a, 10), ARENA_NOT_ALLOCATED); /* twice */
    ASSERT_SOUND(&arena);
    ASSERT_OK(arena_free(&arena, b, 10));
    assert_int_equal(stats_of(&arena).counters.frees, 2);
    ASSERT_SOUND(&arena);
}

/* A freed segment merges with a free one below it, above it, both, and neither. */
static void freed_neighbours_merge(void **state) {
    (void)state;
    for (unsigned order = 0; order < 6; order++) {
        static const unsigned char orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
        static const unsigned char segments_free[6][3] = {{1, 1, 1}, {1, 2, 1}, {1, 1, 1}, {1, 1, 1}, {1, 2, 1}, {1, 1, 1}};
        struct arena three;
        uint64_t start[3];
        ASSERT_OK(arena_init(&three, "three", 1, NULL, NULL, 0));
        ASSERT_OK(arena_add(&three, 30, 30));
        for (unsigned i = 0; i < 3; i++) start[i] = must_alloc(&three, 10, 0);
        for (unsigned i = 0; i < 3; i++) {
            ASSERT_OK(arena_free(&three, start[orders[order][i]], 10));
            assert_int_equal(stats_of(&three).segments_free, segments_free[order][i]);
            ASSERT_SOUND(&three);
        }
        assert_int_equal(must_alloc(&three, 30, 0), 30);
    }
}

static void segments_do_not_cross_from_span_to_span(void **state) {
    (void)state;
    uint64_t start;
    ASSERT_OK(arena_add(&arena, 0, 10));
    ASSERT_OK(arena_add(&arena, 10, 10));
    for (unsigned fit = ARENA_INSTANT_FIT; fit <= ARENA_NEXT_FIT; fit++) ASSERT_STATUS(arena_alloc(&arena, 11, fit, &start), ARENA_NO_SPACE);
    uint64_t a = must_alloc(&arena, 10, 0), b = must_alloc(&arena, 10, 0);
    assert_true(arena_contains(&arena, 0, 10));
    assert_false(arena_contains(&arena, 0, 11));
    ASSERT_OK(arena_free(&arena, a, 10));
    ASSERT_OK(arena_free(&arena, b, 10));
    assert_int_equal(stats_of(&arena).segments_free, 2);
    ASSERT_SOUND(&arena);
}

static void contains_knows_spans_and_gaps(void **state) {
    (void)state;
    ASSERT_OK(arena_add(&arena, 100, 10));
    ASSERT_OK(arena_add(&arena, 120, 10));
    assert_false(arena_contains(&arena, 99, 1));
    assert_true(arena_contains(&arena, 100, 1));
    assert_true(arena_contains(&arena, 109, 1));
    assert_false(arena_contains(&arena, 109, 2));
    assert_false(arena_contains(&arena, 110, 1));
    assert_false(arena_contains(&arena, 119, 2));
    assert_true(arena_contains(&arena, 120, 10));
    assert_false(arena_contains(&arena, 130, 1));
    assert_false(arena_contains(&arena, 100, 0));
    assert_false(arena_contains(&arena, 105, UINT64_MAX));
}

static void resize_grows_and_shrinks_in_place(void **state) {
    (void)state;
    ASSERT_OK(arena_add(&arena, 0, 100));
    uint64_t a = must_alloc(&arena, 10, 0), b = must_alloc(&arena, 10, 0), size;
    ASSERT_STATUS(arena_resize(&arena, a, 10, 11), ARENA_NO_SPACE); /* b is in the way */
    ASSERT_OK(arena_resize(&arena, b, 10, 80));                     /* part of what is behind */
    ASSERT_SOUND(&arena);
    ASSERT_OK(arena_resize(&arena, b, 80, 90)); /* all of it */
    ASSERT_SOUND(&arena);
    assert_int_equal(arena_size(&arena, ARENA_FREE), 0);
    ASSERT_STATUS(arena_resize(&arena, b, 90, 91), ARENA_NO_SPACE); /* the end of the span */
    ASSERT_OK(arena_resize(&arena, b, 90, 50));                     /* a new free segment */
    ASSERT_OK(arena_resize(&arena, b, 50, 20));                     /* joins the one behind */
    ASSERT_OK(arena_resize(&arena, b, 20, 20));
    ASSERT_SOUND(&arena);
    assert_int_equal(stats_of(&arena).segments_free, 1);
    ASSERT_OK(arena_lookup(&arena, b, &size));
    assert_int_equal(size, 20);
    ASSERT_OK(arena_resize(&arena, a, 10, 5)); /* between two allocated ones */
    assert_int_equal(stats_of(&arena).segments_free, 2);
    ASSERT_STATUS(arena_resize(&arena, b, 90, 10), ARENA_SIZE_MISMATCH);
    ASSERT_STATUS(arena_resize(&arena, b + 1, 19, 10), ARENA_NOT_ALLOCATED);
    ASSERT_STATUS(arena_resize(&arena, b, 0, 10), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_resize(&arena, b, 20, 0), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_resize(&arena, b, 20, UINT64_MAX), ARENA_NO_SPACE);
    assert_int_equal(stats_of(&arena).counters.resizes, 6);
    assert_int_equal(arena_size(&arena, ARENA_ALLOCATED), 25);
    ASSERT_SOUND(&arena);
    ASSERT_OK(arena_free(&arena, b, 20));
    ASSERT_OK(arena_free(&arena, a, 5));
    assert_int_equal(must_alloc(&arena, 100, 0), 0);
}

/* Growing takes the start of the segment behind, where the rotor of next fit may be. */
static void split_and_join_are_each_others_undoing(void **state) {
    (void)state;
    ASSERT_OK(arena_add(&arena, 0, 100));
    ASSERT_OK(arena_add(&arena, 100, 10)); /* touches, and is a span of its own */
    uint64_t a = must_alloc(&arena, 100, 0), b = must_alloc(&arena, 10, 0), size;
    ASSERT_STATUS(arena_split(&arena, a, 100, 0), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_split(&arena, a, 100, 100), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_split(&arena, a, 0, 1), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_split(&arena, a, 99, 1), ARENA_SIZE_MISMATCH);
    ASSERT_STATUS(arena_split(&arena, a + 1, 99, 1), ARENA_NOT_ALLOCATED);
    ASSERT_OK(arena_split(&arena, a, 100, 30));
    ASSERT_OK(arena_split(&arena, a + 30, 70, 20));
    ASSERT_SOUND(&arena);
    ASSERT_OK(arena_lookup(&arena, a + 30, &size));
    assert_int_equal(size, 20);
    assert_int_equal(arena_size(&arena, ARENA_ALLOCATED), 110);
    ASSERT_STATUS(arena_join(&arena, a, 30, 70), ARENA_SIZE_MISMATCH);
    ASSERT_STATUS(arena_join(&arena, a, 31, 20), ARENA_SIZE_MISMATCH);
    ASSERT_STATUS(arena_join(&arena, a, 0, 20), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_join(&arena, a + 50, 50, 10), ARENA_NOT_ALLOCATED); /* behind it is another span */
    ASSERT_STATUS(arena_join_check(&arena, a, 30, 70), ARENA_SIZE_MISMATCH);
    ASSERT_STATUS(arena_join_check(&arena, a + 50, 50, 10), ARENA_NOT_ALLOCATED);
    for (unsigned i = 0; i < 2; i++) ASSERT_OK(arena_join_check(&arena, a, 30, 20)); /* which does nothing */
    ASSERT_OK(arena_join(&arena, a, 30, 20));
    ASSERT_SOUND(&arena);
    ASSERT_OK(arena_free(&arena, a, 50));
    ASSERT_SOUND(&arena);
    ASSERT_STATUS(arena_join(&arena, b, 10, 50), ARENA_NOT_ALLOCATED);
    ASSERT_OK(arena_free(&arena, a + 50, 50)); /* the part is a segment like any other: it merges */
    ASSERT_OK(arena_free(&arena, b, 10));
    ASSERT_SOUND(&arena);
    assert_int_equal(must_alloc(&arena, 100, 0), 0);
}

static void resize_keeps_the_rotor_sound(void **state) {
    (void)state;
    ASSERT_OK(arena_add(&arena, 0, 100));
    uint64_t a = must_alloc(&arena, 10, ARENA_NEXT_FIT), b = must_alloc(&arena, 10, ARENA_NEXT_FIT);
    ASSERT_OK(arena_free(&arena, b, 10));
    ASSERT_SOUND(&arena);
    ASSERT_OK(arena_resize(&arena, a, 10, 50)); /* past the rotor, which stands at 20 */
    ASSERT_SOUND(&arena);
    assert_int_equal(must_alloc(&arena, 10, ARENA_NEXT_FIT), 50);
    ASSERT_OK(arena_resize(&arena, a, 50, 10));
    assert_int_equal(must_alloc(&arena, 40, ARENA_NEXT_FIT), 60);
    assert_int_equal(must_alloc(&arena, 5, ARENA_NEXT_FIT), 10);
    ASSERT_SOUND(&arena);
}

static void destroy_refuses_while_segments_are_out(void **state) {
    (void)state;
    ASSERT_OK(arena_add(&arena, 0, 10));
    uint64_t a = must_alloc(&arena, 5, 0);
    ASSERT_STATUS(arena_destroy(&arena), ARENA_BUSY);
    ASSERT_SOUND(&arena);
    assert_int_equal(must_alloc(&arena, 5, 0), 5);
    ASSERT_OK(arena_free(&arena, a, 5));
    ASSERT_OK(arena_free(&arena, 5, 5));
    ASSERT_OK(arena_destroy(&arena));
    assert_int_equal(memory.held_bytes, 0);
    ASSERT_OK(arena_init(&arena, "again", 1, NULL, NULL, 0));
    ASSERT_OK(arena_add(&arena, 0, 10));
    ASSERT_SOUND(&arena);
}

static void every_status_has_a_text_of_its_own(void **state) {
    (void)state;
    for (int i = ARENA_OK; i <= ARENA_BUSY; i++)
        for (int j = ARENA_OK; j <= ARENA_BUSY + 1; j++)
            if (i != j) assert_string_not_equal(arena_status_text((enum arena_status)i), arena_status_text((enum arena_status)j));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(init_refuses_bad_arguments, setup, teardown),
        cmocka_unit_test_setup_teardown(an_empty_arena_gives_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(add_refuses_what_is_no_span, setup, teardown),
        cmocka_unit_test_setup_teardown(the_sum_of_spans_stays_below_two_to_the_64, setup, teardown),
        cmocka_unit_test_setup_teardown(zero_is_an_integer_like_any_other, setup, teardown),
        cmocka_unit_test_setup_teardown(a_span_may_end_at_two_to_the_64, setup, teardown),
        cmocka_unit_test_setup_teardown(alloc_refuses_bad_arguments, setup, teardown),
        cmocka_unit_test_setup_teardown(sizes_are_rounded_to_the_quantum, setup, teardown),
        cmocka_unit_test_setup_teardown(free_refuses_what_was_not_allocated, setup, teardown),
        cmocka_unit_test_setup_teardown(freed_neighbours_merge, setup, teardown),
        cmocka_unit_test_setup_teardown(segments_do_not_cross_from_span_to_span, setup, teardown),
        cmocka_unit_test_setup_teardown(contains_knows_spans_and_gaps, setup, teardown),
        cmocka_unit_test_setup_teardown(resize_grows_and_shrinks_in_place, setup, teardown),
        cmocka_unit_test_setup_teardown(split_and_join_are_each_others_undoing, setup, teardown),
        cmocka_unit_test_setup_teardown(resize_keeps_the_rotor_sound, setup, teardown),
        cmocka_unit_test_setup_teardown(destroy_refuses_while_segments_are_out, setup, teardown),
        cmocka_unit_test_setup_teardown(every_status_has_a_text_of_its_own, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
