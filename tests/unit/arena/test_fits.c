/*
 * test_fits.c - what each fit chooses, and constrained allocation against a search of every integer.
 */
#include "unit/arena/arena_units.h"

/* Free segments of these sizes, the first from 0 on, with one allocated integer behind each. */
static void make_holes(const uint64_t *sizes, unsigned n, uint64_t *starts) {
    uint64_t total = 0, at = 0, start;
    for (unsigned i = 0; i < n; i++) total += sizes[i] + 1;
    ASSERT_OK(arena_add(&arena, 0, total));
    for (unsigned i = 0; i < n; i++) {
        starts[i] = at;
        at += sizes[i];
        ASSERT_OK(arena_xalloc(&arena, 1, 0, 0, 0, at, at + 1, 0, &start));
        at++;
    }
    assert_int_equal(stats_of(&arena).segments_free, n);
    ASSERT_SOUND(&arena);
}

static void best_fit_takes_the_smallest_then_the_lowest(void **state) {
    (void)state;
    const uint64_t sizes[] = {40, 9, 12, 10, 100, 10, 11, 9};
    uint64_t starts[8];
    make_holes(sizes, 8, starts);
    assert_int_equal(must_alloc(&arena, 10, ARENA_BEST_FIT), starts[3]);
    assert_int_equal(must_alloc(&arena, 10, ARENA_BEST_FIT), starts[5]);
    assert_int_equal(must_alloc(&arena, 10, ARENA_BEST_FIT), starts[6]);
    assert_int_equal(must_alloc(&arena, 10, ARENA_BEST_FIT), starts[2]);
    assert_int_equal(must_alloc(&arena, 10, ARENA_BEST_FIT), starts[0]); /* the next list that has any */
    assert_int_equal(must_alloc(&arena, 9, ARENA_BEST_FIT), starts[1]);
    assert_int_equal(must_alloc(&arena, 33, ARENA_BEST_FIT), starts[4]);
    ASSERT_SOUND(&arena);
}

static void instant_fit_takes_from_the_first_list_where_any_will_do(void **state) {
    (void)state;
    const uint64_t sizes[] = {200, 9, 20, 70};
    uint64_t starts[4];
    make_holes(sizes, 4, starts);
    assert_int_equal(must_alloc(&arena, 14, 0), starts[2]);  /* 9 is too small, 16..31 is sure */
    assert_int_equal(must_alloc(&arena, 16, 0), starts[3]);  /* a power of two is sure of its own list */
    assert_int_equal(must_alloc(&arena, 130, 0), starts[0]); /* no sure list, but one of its own will do */
    assert_int_equal(must_alloc(&arena, 9, 0), starts[1]);   /* the top of its own list fits */
    ASSERT_SOUND(&arena);
}

static void instant_fit_searches_before_it_fails(void **state) {
    (void)state;
    uint64_t sizes[200], starts[200], start;
    for (unsigned i = 0; i < 200; i++) sizes[i] = i == 3 ? 15 : 8 + i % 7;
    make_holes(sizes, 200, starts);
    assert_int_equal(must_alloc(&arena, 15, 0), starts[3]);
    ASSERT_STATUS(arena_alloc(&arena, 15, 0, &start), ARENA_NO_SPACE);
    ASSERT_SOUND(&arena);
}

static void the_fit_of_an_arena_is_the_default(void **state) {
    (void)state;
    struct arena best;
    ASSERT_OK(arena_init(&best, "best", 1, &memory_ops, &memory, ARENA_BEST_FIT));
    ASSERT_OK(arena_add(&best, 0, 15));
    ASSERT_OK(arena_add(&best, 100, 10));
    ASSERT_OK(arena_add(&best, 200, 15));
    assert_int_equal(must_alloc(&best, 9, 0), 100); /* instant fit would take what was added last */
    assert_int_equal(must_alloc(&best, 9, ARENA_NEXT_FIT), 0);
    ASSERT_SOUND(&best);
}

static void next_fit_goes_round(void **state) {
    (void)state;
    ASSERT_OK(arena_add(&arena, 100, 10)); /* like process ids */
    for (uint64_t i = 0; i < 10; i++) {
        assert_int_equal(must_alloc(&arena, 1, ARENA_NEXT_FIT), 100 + i);
        if (i != 4) ASSERT_OK(arena_free(&arena, 100 + i, 1));
        ASSERT_SOUND(&arena);
    }
    for (uint64_t i = 0; i < 9; i++) assert_int_equal(must_alloc(&arena, 1, ARENA_NEXT_FIT), 100 + (i < 4 ? i : i + 1));
    uint64_t start;
    ASSERT_STATUS(arena_alloc(&arena, 1, ARENA_NEXT_FIT, &start), ARENA_NO_SPACE);
    ASSERT_OK(arena_free(&arena, 104, 1));
    assert_int_equal(must_alloc(&arena, 1, ARENA_NEXT_FIT), 104);
    ASSERT_SOUND(&arena);
}

/* The place before the rotor in the segment that the rotor is in comes last, and may reach across it. */
static void next_fit_may_end_where_it_began(void **state) {
    (void)state;
    ASSERT_OK(arena_add(&arena, 0, 100));
    assert_int_equal(must_alloc(&arena, 50, ARENA_NEXT_FIT), 0);
    ASSERT_OK(arena_free(&arena, 0, 50));
    assert_int_equal(must_alloc(&arena, 60, ARENA_NEXT_FIT), 0); /* only 50 are left from the rotor on */
    assert_int_equal(must_alloc(&arena, 40, ARENA_NEXT_FIT), 60);
    ASSERT_SOUND(&arena);
}

/* ------------------------------------------------------------------ against a search of every integer */

#define MAP_BASE 3
#define MAP_SIZE 96

struct request {
    uint64_t size, align, phase, nocross, min, max;
};

static bool taken[MAP_BASE + MAP_SIZE + 1];

static bool meets(const struct request *request, uint64_t at) {
    uint64_t end = at + request->size;
    if (request->align != 0 && at % request->align != request->phase) return false;
    if (request->nocross != 0 && at / request->nocross != (end - 1) / request->nocross) return false;
    return at >= request->min && (request->max == 0 || end <= request->max);
}

static bool is_free(uint64_t at, uint64_t size) {
    if (at < MAP_BASE || at + size > MAP_BASE + MAP_SIZE) return false;
    for (uint64_t i = at; i < at + size; i++)
        if (taken[i]) return false;
    return true;
}

/* The lowest place in [from, to) that meets the request, or UINT64_MAX. */
static uint64_t lowest_place(const struct request *request, uint64_t from, uint64_t to) {
    for (uint64_t at = from; at < to; at++)
        if (meets(request, at) && is_free(at, request->size)) return at;
    return UINT64_MAX;
}

static uint64_t highest_place(const struct request *request) {
    for (uint64_t at = MAP_BASE + MAP_SIZE; at-- > MAP_BASE;)
        if (meets(request, at) && is_free(at, request->size)) return at;
    return UINT64_MAX;
}

/* Of the smallest free segments that have a place, the lowest place in the lowest; or the highest in the highest. */
static uint64_t best_place(const struct request *request, bool from_top) {
    uint64_t best = UINT64_MAX, best_size = UINT64_MAX;
    for (uint64_t i = MAP_BASE; i < MAP_BASE + MAP_SIZE;) {
        uint64_t end = i;
        while (end < MAP_BASE + MAP_SIZE && !taken[end]) end++;
        uint64_t smallest = best_size;
        for (uint64_t at = i; at + request->size <= end; at++) {
            if (!meets(request, at) || (from_top ? end - i > smallest : end - i >= best_size)) continue;
            best = at;
            best_size = end - i;
        }
        i = end + 1;
    }
    return best;
}

/* Whether some place in the integers meets the request, as far as align and nocross go. */
static bool is_possible(const struct request *request) {
    uint64_t align = request->align != 0 ? request->align : 1;
    if (request->size == 0 || (align & (align - 1)) != 0 || (request->nocross & (request->nocross - 1)) != 0 || request->phase >= align) return false;
    if (request->max != 0 && (request->max < request->min || request->max - request->min < request->size)) return false;
    struct request sought = *request;
    sought.align = align;
    if (request->max == 0) sought.min = 0; /* there is a place in some period */
    for (uint64_t at = 0; at < 256; at++)
        if (meets(&sought, at)) return true;
    return false;
}

static void random_request(struct request *request, uint64_t *seed) {
    *request = (struct request){.size = 1 + next_random(seed) % 12};
    if (next_random(seed) % 2 == 0) request->align = (uint64_t)1 << next_random(seed) % 6;
    if (request->align != 0 && next_random(seed) % 2 == 0) request->phase = next_random(seed) % request->align;
    if (next_random(seed) % 2 == 0) request->nocross = (uint64_t)1 << next_random(seed) % 6;
    if (next_random(seed) % 2 == 0) request->min = next_random(seed) % 110;
    if (next_random(seed) % 2 == 0) request->max = next_random(seed) % 110;
    if (next_random(seed) % 64 == 0) request->align = 3;
    if (next_random(seed) % 64 == 0) request->nocross = 12;
    if (next_random(seed) % 64 == 0) request->phase = request->align;
}

static void free_some(uint64_t *seed, uint64_t *sizes) {
    for (uint64_t at = MAP_BASE; at < MAP_BASE + MAP_SIZE; at++) {
        if (sizes[at] == 0 || next_random(seed) % 3 != 0) continue;
        ASSERT_OK(arena_xfree(&arena, at, sizes[at]));
        for (uint64_t i = 0; i < sizes[at]; i++) taken[at + i] = false;
        sizes[at] = 0;
    }
}

static void constraints_agree_with_a_search_of_every_integer(void **state) {
    (void)state;
    uint64_t seed = 4, sizes[MAP_BASE + MAP_SIZE + 1] = {0}, rotor = 0, served = 0, refused = 0, failed = 0;
    for (unsigned i = 0; i < sizeof taken; i++) taken[i] = i < MAP_BASE || i >= MAP_BASE + MAP_SIZE;
    ASSERT_OK(arena_add(&arena, MAP_BASE, MAP_SIZE));
    for (unsigned n = 0; n < 60000; n++) {
        struct request r;
        unsigned fit = (unsigned)(next_random(&seed) % 3);
        bool from_top = next_random(&seed) % 2 == 0;
        uint64_t start = 12345, lowest, next = UINT64_MAX;
        random_request(&r, &seed);
        enum arena_status status =
            arena_xalloc(&arena, r.size, r.align, r.phase, r.nocross, r.min, r.max, fit | (from_top ? ARENA_FROM_TOP : 0), &start);
        if (!is_possible(&r)) {
            ASSERT_STATUS(status, ARENA_BAD_ARGUMENT);
            refused++;
            continue;
        }
        lowest = lowest_place(&r, 0, MAP_BASE + MAP_SIZE);
        if (lowest == UINT64_MAX) {
            ASSERT_STATUS(status, ARENA_NO_SPACE);
            assert_int_equal(start, 12345);
            failed++;
            if (failed % 4 == 0) free_some(&seed, sizes);
            continue;
        }
        ASSERT_OK(status);
        assert_true(meets(&r, start) && is_free(start, r.size));
        if (fit == ARENA_BEST_FIT) assert_int_equal(start, best_place(&r, from_top));
        if (fit == ARENA_INSTANT_FIT && from_top) assert_int_equal(start, highest_place(&r));
        if (fit == ARENA_NEXT_FIT) {
            next = lowest_place(&r, rotor, MAP_BASE + MAP_SIZE);
            assert_int_equal(start, next != UINT64_MAX ? next : lowest);
            rotor = start + r.size;
        }
        for (uint64_t i = 0; i < r.size; i++) taken[start + i] = true;
        sizes[start] = r.size;
        served++;
        if (n % 64 == 0) ASSERT_SOUND(&arena);
    }
    assert_true(served > 10000 && refused > 5000 && failed > 5000); /* or this test tests nothing */
}

static void constraints_are_in_quanta(void **state) {
    (void)state;
    struct arena pages;
    uint64_t start;
    ASSERT_OK(arena_init(&pages, "pages", 4096, NULL, NULL, 0));
    ASSERT_OK(arena_add(&pages, 0, 1 << 20));
    ASSERT_STATUS(arena_xalloc(&pages, 4096, 2048, 0, 0, 0, 0, 0, &start), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_xalloc(&pages, 4096, 8192, 100, 0, 0, 0, 0, &start), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_xalloc(&pages, 4096, 8192, 8192, 0, 0, 0, 0, &start), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_xalloc(&pages, 4096, 0, 4096, 0, 0, 0, 0, &start), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_xalloc(&pages, 4096, 12288, 0, 0, 0, 0, 0, &start), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_xalloc(&pages, 8192, 0, 0, 4096, 0, 0, 0, &start), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_xalloc(&pages, 4096, 0, 0, 2048, 0, 0, 0, &start), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_xalloc(&pages, 4096, 0, 0, 0, 8192, 4096, 0, &start), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_xalloc(&pages, 8192, 0, 0, 0, 4096, 8192, 0, &start), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_xalloc(&pages, 0, 0, 0, 0, 0, 0, 0, &start), ARENA_BAD_ARGUMENT);
    ASSERT_OK(arena_xalloc(&pages, 100, 65536, 8192, 0, 1, 0, 0, &start)); /* min need not be in quanta */
    assert_int_equal(start, 8192);
    ASSERT_STATUS(arena_xalloc(&pages, 4096, 0, 0, 0, 8192, 12288, 0, &start), ARENA_NO_SPACE);
    ASSERT_OK(arena_xfree(&pages, 8192, 100));
    ASSERT_SOUND(&pages);
}

/* At 2^64 the next aligned place does not exist; it must not wrap to 0. */
static void constraints_do_not_wrap_at_the_top(void **state) {
    (void)state;
    uint64_t start;
    ASSERT_OK(arena_add(&arena, UINT64_MAX - 9, 10));
    ASSERT_OK(arena_add(&arena, 0, 4));
    for (unsigned n = 0; n < 6; n++) {
        unsigned fit = n % 3 | (n / 3) * ARENA_FROM_TOP;
        ASSERT_STATUS(arena_xalloc(&arena, 5, 16, 0, 0, 0, 0, fit, &start), ARENA_NO_SPACE);
        ASSERT_STATUS(arena_xalloc(&arena, 1, 1u << 31, 5, 0, 4, 0, fit, &start), ARENA_NO_SPACE);
        ASSERT_OK(arena_xalloc(&arena, 8, 0, 0, 8, 0, 0, fit, &start));
        assert_true(start == UINT64_MAX - 7);
        ASSERT_OK(arena_xfree(&arena, start, 8));
        ASSERT_OK(arena_xalloc(&arena, 1, 16, 15, 0, 16, 0, fit, &start));
        assert_true(start == UINT64_MAX);
        ASSERT_OK(arena_xfree(&arena, start, 1));
    }
    ASSERT_SOUND(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(best_fit_takes_the_smallest_then_the_lowest, setup, teardown),
        cmocka_unit_test_setup_teardown(instant_fit_takes_from_the_first_list_where_any_will_do, setup, teardown),
        cmocka_unit_test_setup_teardown(instant_fit_searches_before_it_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(the_fit_of_an_arena_is_the_default, setup, teardown),
        cmocka_unit_test_setup_teardown(next_fit_goes_round, setup, teardown),
        cmocka_unit_test_setup_teardown(next_fit_may_end_where_it_began, setup, teardown),
        cmocka_unit_test_setup_teardown(constraints_agree_with_a_search_of_every_integer, setup, teardown),
        cmocka_unit_test_setup_teardown(constraints_are_in_quanta, setup, teardown),
        cmocka_unit_test_setup_teardown(constraints_do_not_wrap_at_the_top, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
