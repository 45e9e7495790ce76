/*
 * test_arena_api.c - the public arenas on the simulated platform: what arena/ does is tested there; here is what api/ adds. Arguments that are wrong,
 * each by itself, and that nothing is lost by them; importing; limits; reclaim; sleep; memory for tags and its way back; the list of arenas in
 * statistics, checks and fork.
 */
#include "unit/api/arena_api_support.h"

static struct strata_arena *arena;
#define UNTOUCHED UINT64_C(0x5a5a5a5a)
static uint64_t start;

/* [100, 200) in units. */
static int setup(void **state) {
    (void)state;
    new_still_process(NULL);
    start = UNTOUCHED;
    ASSERT_OK(strata_arena_create("units", 100, 100, 1, 0, &arena));
    return 0;
}

/* ------------------------------------------------------------------ life */

static void statuses_have_texts(void **state) {
    (void)state;
    for (int i = STRATA_ARENA_OK; i <= STRATA_ARENA_BUSY; i++) {
        const char *text = strata_arena_status_text((enum strata_arena_status)i);
        assert_string_not_equal(text, "unknown status");
        for (int j = 0; j < i; j++) assert_string_not_equal(text, strata_arena_status_text((enum strata_arena_status)j));
    }
    assert_string_equal(strata_arena_status_text((enum strata_arena_status)77), "unknown status");
}

static void create_wants_good_arguments(void **state) {
    struct strata_arena *none = NULL;
    (void)state;
    new_still_process(NULL);
    ASSERT_STATUS(strata_arena_create(NULL, 0, 10, 1, 0, &none), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_create("a", 0, 10, 1, 0, NULL), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_create("a", 0, 10, 0, 0, &none), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_create("a", 0, 12, 3, 0, &none), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_create("a", 0, 10, 4, 0, &none), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_create("a", 2, 8, 4, 0, &none), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_create("a", 0, 10, 1, 3, &none), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_create("a", 0, 10, 1, STRATA_ARENA_SLEEP, &none), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_create("a", 0, 10, 1, STRATA_ARENA_FROM_TOP, &none), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_create("a", UINT64_MAX, 2, 1, 0, &none), BAD_RANGE);
    assert_null(none);
    assert_null(heap.arenas.first);
    struct zone_group_stats groups[MOBILITY_GROUPS];
    zone_group_stats_get(&heap.zone, groups);
    assert_int_equal(groups[MOBILITY_UNMOVABLE].allocated, 0); /* nothing was kept */
    ASSERT_OK(strata_arena_create("", UINT64_MAX, 0, 1, 0, &none));
    assert_int_equal(stats_of(none).spans, 0);
    ASSERT_OK(strata_arena_destroy(none));
    ASSERT_OK(strata_arena_create("a name that is longer than there is room for it", 0, UINT64_MAX, 1, STRATA_ARENA_BEST_FIT, &none));
    assert_string_equal(stats_of(none).name, "a name that is longer than ther");
    assert_true(stats_of(none).total == UINT64_MAX);
    ASSERT_OK(strata_arena_destroy(none));
    ASSERT_STATUS(strata_arena_destroy(NULL), BAD_ARGUMENT);
    zone_group_stats_get(&heap.zone, groups);
    assert_int_equal(groups[MOBILITY_UNMOVABLE].allocated, 0);
}

static void destroy_refuses_while_something_is_allocated(void **state) {
    (void)state;
    uint64_t a = must_alloc(arena, 10);
    ASSERT_STATUS(strata_arena_destroy(arena), BUSY);
    uint64_t b = must_alloc(arena, 10);
    ASSERT_OK(strata_arena_free(arena, a, 10));
    ASSERT_STATUS(strata_arena_destroy(arena), BUSY);
    ASSERT_OK(strata_arena_free(arena, b, 10));
    ASSERT_OK(strata_arena_destroy(arena));
    assert_null(heap.arenas.first);
    assert_null(heap.arenas.last);
}

/* ------------------------------------------------------------------ arguments */

/* What is no arena. */
static void is_refused_everywhere(struct strata_arena *none) {
    uint64_t size = UNTOUCHED;
    struct strata_arena_stats stats;
    ASSERT_STATUS(strata_arena_add(none, 0, 1), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_remove(none, 0, 1), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_alloc(none, 1, 0, &start), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_free(none, 0, 1), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_xalloc(none, 1, 0, 0, 0, 0, 0, 0, &start), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_xfree(none, 0, 1), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_resize(none, 0, 1, 2), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_set_source(none, arena), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_set_import(none, NULL, NULL, NULL), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_set_limit(none, 1), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_set_reclaim(none, NULL, NULL), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_wake(none), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_walk(none, STRATA_ARENA_FREE, NULL, NULL), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_size(none, STRATA_ARENA_FREE, &size), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_lookup(none, 0, &size), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_stats_get(none, &stats), BAD_ARGUMENT);
    assert_int_equal(strata_arena_contains(none, 0, 1), 0);
    assert_null(strata_arena_check(none));
    assert_true(start == UNTOUCHED && size == UNTOUCHED);
}

static void null_arenas_are_refused(void **state) {
    (void)state;
    is_refused_everywhere(NULL);
}

/* With quantum caches or without, and also where the memory has gone back to the system, or is a block now. */
static void destroyed_arenas_are_refused(void **state) {
    (void)state;
    for (unsigned cached = 0; cached < 2; cached++) {
        struct strata_arena *gone;
        ASSERT_OK(strata_arena_create("gone", 0, 100, 1, 0, &gone));
        if (cached != 0) ASSERT_OK(strata_arena_set_quantum_caches(gone, 4));
        ASSERT_OK(strata_arena_free(gone, must_alloc(gone, 1), 1));
        ASSERT_OK(strata_arena_destroy(gone));
        for (unsigned turn = 0; turn < 3; turn++) {
            ASSERT_STATUS(strata_arena_destroy(gone), BAD_ARGUMENT);
            ASSERT_STATUS(strata_arena_set_source(arena, gone), BAD_ARGUMENT);
            ASSERT_STATUS(strata_arena_set_quantum_caches(gone, 1), BAD_ARGUMENT);
            is_refused_everywhere(gone);
            if (turn == 0) (void)strata_release(0);
            if (turn == 1) {
                void *block = strata_malloc(MIB);
                memset(block, 0xff, MIB);
                strata_free(block);
            }
        }
    }
}

static int never_called(const struct strata_arena_segment *segment, void *context) {
    (void)segment, (void)context;
    fail_msg("called");
    return 0;
}

static void null_results_are_refused(void **state) {
    (void)state;
    ASSERT_STATUS(strata_arena_alloc(arena, 1, 0, NULL), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_xalloc(arena, 1, 0, 0, 0, 0, 0, 0, NULL), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_size(arena, STRATA_ARENA_FREE, NULL), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_lookup(arena, 100, NULL), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_stats_get(arena, NULL), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_set_source(arena, NULL), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_set_import(arena, NULL, NULL, NULL), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_walk(arena, STRATA_ARENA_FREE, NULL, NULL), BAD_ARGUMENT);
    assert_int_equal(stats_of(arena).allocated, 0);
}

static void kinds_are_checked(void **state) {
    uint64_t size = UNTOUCHED;
    (void)state;
    ASSERT_STATUS(strata_arena_walk(arena, 0, never_called, NULL), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_walk(arena, 8, never_called, NULL), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_size(arena, 0, &size), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_size(arena, 9, &size), BAD_ARGUMENT);
    assert_true(size == UNTOUCHED);
    (void)must_alloc(arena, 30);
    static const unsigned kinds[] = {1, 2, 3, 4, 5, 6, 7};
    static const uint64_t sizes[] = {30, 70, 100, 100, 100, 100, 100};
    for (unsigned i = 0; i < ARRAY_LENGTH(kinds); i++) {
        ASSERT_OK(strata_arena_size(arena, kinds[i], &size));
        assert_int_equal(size, sizes[i]);
    }
}

/* Each of these fails, leaves the result alone, and leaves the arena as it was. */
static void requests_are_checked(void **state) {
    static const struct {
        uint64_t size, align, phase, nocross, min, max;
        unsigned flags;
        enum strata_arena_status status;
    } bad[] = {
        {0, 0, 0, 0, 0, 0, 0, STRATA_ARENA_BAD_ARGUMENT},
        {UINT64_MAX, 0, 0, 0, 0, 0, 0, STRATA_ARENA_BAD_ARGUMENT}, /* rounded, 2^64 */
        {8, 24, 0, 0, 0, 0, 0, STRATA_ARENA_BAD_ARGUMENT},
        {8, 2, 0, 0, 0, 0, 0, STRATA_ARENA_BAD_ARGUMENT}, /* below the quantum */
        {8, 16, 16, 0, 0, 0, 0, STRATA_ARENA_BAD_ARGUMENT},
        {8, 16, 2, 0, 0, 0, 0, STRATA_ARENA_BAD_ARGUMENT},
        {8, 0, 4, 0, 0, 0, 0, STRATA_ARENA_BAD_ARGUMENT}, /* a phase of nothing */
        {8, 0, 0, 24, 0, 0, 0, STRATA_ARENA_BAD_ARGUMENT},
        {8, 0, 0, 4, 0, 0, 0, STRATA_ARENA_BAD_ARGUMENT}, /* larger than what it must not cross */
        {8, 32, 12, 16, 0, 0, 0, STRATA_ARENA_BAD_ARGUMENT},
        {8, 0, 0, 0, 120, 110, 0, STRATA_ARENA_BAD_ARGUMENT},
        {8, 0, 0, 0, 120, 124, 0, STRATA_ARENA_BAD_ARGUMENT},
        /* No aligned place, or none that does not cross, between the two: nothing that is freed or added will ever help, and nobody sleeps for it. */
        {8, 16, 0, 0, 129, 144, 0, STRATA_ARENA_BAD_ARGUMENT},
        {8, 16, 0, 0, 129, 144, STRATA_ARENA_SLEEP, STRATA_ARENA_BAD_ARGUMENT},
        {8, 16, 8, 0, 124, 135, STRATA_ARENA_SLEEP | STRATA_ARENA_FROM_TOP, STRATA_ARENA_BAD_ARGUMENT},
        {8, 4, 0, 16, 140, 151, STRATA_ARENA_SLEEP, STRATA_ARENA_BAD_ARGUMENT},
        {4, 0, 0, 0, 121, 127, STRATA_ARENA_SLEEP, STRATA_ARENA_BAD_ARGUMENT}, /* no whole quantum */
        {8, 4096, 0, 0, UINT64_MAX - 100, 0, STRATA_ARENA_SLEEP, STRATA_ARENA_BAD_ARGUMENT},
        {8, 0, 0, 0, 0, 0, 3, STRATA_ARENA_BAD_ARGUMENT},
        {8, 0, 0, 0, 0, 0, 16, STRATA_ARENA_BAD_ARGUMENT},
        {8, 0, 0, 0, 1000, 0, 0, STRATA_ARENA_NO_SPACE},
        {104, 0, 0, 0, 0, 0, 0, STRATA_ARENA_NO_SPACE},
        {8, 256, 0, 0, 0, 0, 0, STRATA_ARENA_NO_SPACE},
    };
    struct strata_arena *four;
    (void)state;
    ASSERT_OK(strata_arena_create("fours", 100, 100, 4, 0, &four));
    for (unsigned i = 0; i < ARRAY_LENGTH(bad); i++) {
        enum strata_arena_status status =
            strata_arena_xalloc(four, bad[i].size, bad[i].align, bad[i].phase, bad[i].nocross, bad[i].min, bad[i].max, bad[i].flags, &start);
        if (status != bad[i].status) fail_msg("row %u: %s", i, strata_arena_status_text(status));
        assert_true(start == UNTOUCHED);
    }
    /* Bounds need not be multiples of the quantum: what lies within them is. */
    ASSERT_OK(strata_arena_xalloc(four, 8, 0, 0, 0, 121, 133, 0, &start));
    assert_int_equal(start, 124);
    ASSERT_OK(strata_arena_xfree(four, start, 8));
    start = UNTOUCHED;
    ASSERT_STATUS(strata_arena_alloc(four, 0, 0, &start), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_alloc(four, UINT64_MAX, 0, &start), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_alloc(four, 1, 16, &start), BAD_ARGUMENT);
    assert_true(start == UNTOUCHED);
    assert_int_equal(stats_of(four).failures, 3);
    assert_int_equal(must_alloc(four, 97), 100); /* all of it is there still, rounded up */
    ASSERT_OK(strata_arena_free(four, 100, 100));
}

static void spans_are_checked(void **state) {
    (void)state;
    ASSERT_STATUS(strata_arena_add(arena, 300, 0), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_add(arena, UINT64_MAX - 3, 5), BAD_RANGE);
    ASSERT_STATUS(strata_arena_add(arena, 199, 2), OVERLAP);
    ASSERT_STATUS(strata_arena_remove(arena, 100, 0), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_remove(arena, 101, 99), NOT_ALLOCATED);
    ASSERT_STATUS(strata_arena_remove(arena, 100, 99), SIZE_MISMATCH);
    ASSERT_OK(strata_arena_add(arena, UINT64_MAX - 3, 4));
    assert_int_equal(strata_arena_contains(arena, UINT64_MAX - 3, 4), 1);
    assert_int_equal(strata_arena_contains(arena, UINT64_MAX - 3, 5), 0);
    assert_int_equal(strata_arena_contains(arena, 150, 0), 0);
    assert_int_equal(strata_arena_contains(arena, 150, 50), 1);
    assert_int_equal(strata_arena_contains(arena, 150, 51), 0);
    uint64_t a = must_alloc(arena, 4);
    ASSERT_STATUS(strata_arena_remove(arena, a >= 200 ? UINT64_MAX - 3 : 100, a >= 200 ? 4 : 100), BUSY);
    ASSERT_OK(strata_arena_free(arena, a, 4));
    ASSERT_OK(strata_arena_remove(arena, UINT64_MAX - 3, 4));
    ASSERT_OK(strata_arena_remove(arena, 100, 100));
    ASSERT_STATUS(strata_arena_alloc(arena, 1, 0, &start), NO_SPACE);
}

static void frees_are_checked(void **state) {
    struct strata_arena *other;
    uint64_t size = UNTOUCHED;
    (void)state;
    ASSERT_OK(strata_arena_create("other", 100, 100, 1, 0, &other));
    uint64_t a = must_alloc(arena, 10);
    ASSERT_STATUS(strata_arena_free(arena, a, 0), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_free(arena, a, 9), SIZE_MISMATCH);
    ASSERT_STATUS(strata_arena_free(arena, a + 1, 9), NOT_ALLOCATED);
    ASSERT_STATUS(strata_arena_free(other, a, 10), NOT_ALLOCATED);
    ASSERT_STATUS(strata_arena_xfree(arena, a, 11), SIZE_MISMATCH);
    ASSERT_STATUS(strata_arena_resize(arena, a, 9, 20), SIZE_MISMATCH);
    ASSERT_STATUS(strata_arena_resize(arena, a, 10, 0), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_resize(arena, a + 1, 10, 20), NOT_ALLOCATED);
    ASSERT_STATUS(strata_arena_resize(arena, a, 10, 101), NO_SPACE);
    ASSERT_STATUS(strata_arena_lookup(arena, a + 1, &size), NOT_ALLOCATED);
    assert_true(size == UNTOUCHED);
    ASSERT_OK(strata_arena_resize(arena, a, 10, 20));
    ASSERT_OK(strata_arena_lookup(arena, a, &size));
    assert_int_equal(size, 20);
    ASSERT_OK(strata_arena_free(arena, a, 20));
    ASSERT_STATUS(strata_arena_free(arena, a, 20), NOT_ALLOCATED); /* a second time */
    assert_int_equal(stats_of(arena).allocated, 0);
    assert_int_equal(stats_of(arena).frees, 1);
    assert_int_equal(stats_of(arena).resizes, 1);
}

static void zero_is_an_integer_like_any_other(void **state) {
    struct strata_arena *from_zero;
    (void)state;
    ASSERT_OK(strata_arena_create("from zero", 0, 10, 1, 0, &from_zero));
    assert_int_equal(must_alloc(from_zero, 10), 0);
    ASSERT_OK(strata_arena_free(from_zero, 0, 10));
}

static void fits_are_the_arena_s_or_the_request_s(void **state) {
    struct strata_arena *next;
    (void)state;
    ASSERT_OK(strata_arena_create("next", 0, 10, 1, STRATA_ARENA_NEXT_FIT, &next));
    for (uint64_t i = 0; i < 25; i++) {
        uint64_t got = must_alloc(next, 1);
        assert_int_equal(got, i % 10);
        ASSERT_OK(strata_arena_free(next, got, 1));
    }
    ASSERT_OK(strata_arena_alloc(next, 1, STRATA_ARENA_BEST_FIT, &start));
    assert_int_equal(start, 0);
    ASSERT_OK(strata_arena_alloc(next, 2, STRATA_ARENA_BEST_FIT | STRATA_ARENA_FROM_TOP, &start));
    assert_int_equal(start, 8);
    ASSERT_OK(strata_arena_xalloc(next, 1, 4, 1, 0, 0, 0, STRATA_ARENA_FROM_TOP, &start)); /* next fit goes on as it does */
    assert_int_equal(start, 5);
}

/* ------------------------------------------------------------------ walk */

struct seen {
    struct strata_arena_segment segments[16];
    unsigned n, limit;
};

static int remember(const struct strata_arena_segment *segment, void *context) {
    struct seen *seen = context;
    assert_int_equal(sim_locks_held(), 0);
    seen->segments[seen->n++] = *segment;
    return seen->n != seen->limit;
}

static void walk_shows_segments_in_order(void **state) {
    static const struct strata_arena_segment expected[] = {
        {100, 100, STRATA_ARENA_SPAN}, {100, 10, STRATA_ARENA_ALLOCATED}, {110, 90, STRATA_ARENA_FREE},
        {500, 5, STRATA_ARENA_SPAN},   {500, 5, STRATA_ARENA_FREE},
    };
    struct seen seen = {.n = 0};
    (void)state;
    (void)must_alloc(arena, 10);
    ASSERT_OK(strata_arena_add(arena, 500, 5));
    ASSERT_OK(strata_arena_walk(arena, STRATA_ARENA_SPAN | STRATA_ARENA_ALLOCATED | STRATA_ARENA_FREE, remember, &seen));
    assert_int_equal(seen.n, ARRAY_LENGTH(expected));
    for (unsigned i = 0; i < seen.n; i++) {
        assert_int_equal(seen.segments[i].start, expected[i].start);
        assert_int_equal(seen.segments[i].size, expected[i].size);
        assert_int_equal(seen.segments[i].kind, expected[i].kind);
    }
    seen = (struct seen){.limit = 1};
    ASSERT_OK(strata_arena_walk(arena, STRATA_ARENA_FREE, remember, &seen));
    assert_int_equal(seen.n, 1);
    assert_int_equal(seen.segments[0].start, 110);
}

/* ------------------------------------------------------------------ memory for tags */

static uint64_t unmovable_granules(void) {
    struct zone_group_stats groups[MOBILITY_GROUPS];
    zone_group_stats_get(&heap.zone, groups);
    return groups[MOBILITY_UNMOVABLE].allocated;
}

/* Page sizes, as runs are whole pages; so many segments that the hash table is larger than a superpage, and so a block. */
static void memory_comes_from_the_zone_and_goes_back(void **state) {
    static const size_t page_bytes[] = {4 * KIB, 16 * KIB, 64 * KIB};
    (void)state;
    for (unsigned i = 0; i < ARRAY_LENGTH(page_bytes); i++) {
        const uint64_t segments = i == 0 ? 600000 : 20000;
        struct sim_config sim = {.page_bytes = page_bytes[i]};
        new_still_process(&sim);
        ASSERT_OK(strata_arena_create("many", 0, UINT64_C(1) << 40, 1, 0, &arena));
        uint64_t alone = unmovable_granules();
        assert_int_equal(alone, page_bytes[i] / GRANULE_BYTES);
        for (uint64_t n = 0; n < segments; n++) (void)must_alloc(arena, 1 + n % 3);
        uint64_t bytes = stats_of(arena).metadata_bytes;
        assert_true(bytes > segments * 72 && bytes < segments * 128 + 4 * MIB);
        struct zone_counters counters;
        zone_counters_get(&heap.zone, &counters);
        assert_true(i == 0 ? counters.blocks != 0 : counters.blocks == 0);
        assert_null(strata_check());
        for (uint64_t n = 0, at = 0; n < segments; at += 1 + n % 3, n++) ASSERT_OK(strata_arena_free(arena, at, 1 + n % 3));
        assert_true(stats_of(arena).metadata_bytes < 64 * KIB); /* without a destroy */
        ASSERT_OK(strata_arena_destroy(arena));
        assert_int_equal(unmovable_granules(), 0);
        zone_counters_get(&heap.zone, &counters);
        assert_int_equal(counters.blocks, 0);
    }
}

/* Idle caches give way first; then it fails, loses nothing, and goes on once there is memory again. */
static void without_memory_requests_fail_and_go_on_later(void **state) {
    enum strata_arena_status status;
    uint64_t served = 0;
    (void)state;
    new_still_process(&(struct sim_config){.page_bytes = 4 * KIB});
    ASSERT_OK(strata_arena_create("poor", 0, 100000, 1, 0, &arena));
    sim_fail_only(UINT64_C(1) << SIM_COMMIT);
    sim_fail_call(1, SIM_FOREVER);
    void *hold[2000];
    unsigned held = 0; /* all that the heap has */
    while (held < ARRAY_LENGTH(hold) && (hold[held] = strata_malloc(MIB)) != NULL) held++;
    for (; held < ARRAY_LENGTH(hold) && (hold[held] = strata_malloc(4000)) != NULL;) held++;
    assert_true(held < ARRAY_LENGTH(hold));
    do {
        start = UNTOUCHED;
        status = strata_arena_alloc(arena, 1, 0, &start);
        if (status == STRATA_ARENA_OK) assert_int_equal(start, served++);
    } while (status == STRATA_ARENA_OK && served < 50000);
    ASSERT_STATUS(status, NO_MEMORY);
    assert_true(start == UNTOUCHED && served > 0);
    struct strata_arena *none = NULL;
    ASSERT_STATUS(strata_arena_create("none", 0, 10, 1, 0, &none), NO_MEMORY);
    assert_null(none);
    assert_null(strata_check());
    sim_fail_call(0, 0);
    assert_int_equal(must_alloc(arena, 1), served);
    for (uint64_t i = 0; i <= served; i++) ASSERT_OK(strata_arena_free(arena, i, 1));
    ASSERT_OK(strata_arena_destroy(arena));
    while (held-- != 0) strata_free(hold[held]);
}

/* A pointer of the program into strata's own pages is misuse, as any other that is none of its blocks. */
static void nobody_else_may_free_what_an_arena_consists_of(void **state) {
    (void)state;
    assert_int_equal(heap.zone.tags[zone_granule_of(&heap.zone, arena)], TAG_NONE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses_have_texts),
        cmocka_unit_test_teardown(create_wants_good_arguments, sound),
        cmocka_unit_test_setup_teardown(destroy_refuses_while_something_is_allocated, setup, sound),
        cmocka_unit_test_setup_teardown(null_arenas_are_refused, setup, sound),
        cmocka_unit_test_setup_teardown(destroyed_arenas_are_refused, setup, sound),
        cmocka_unit_test_setup_teardown(null_results_are_refused, setup, sound),
        cmocka_unit_test_setup_teardown(kinds_are_checked, setup, sound),
        cmocka_unit_test_setup_teardown(requests_are_checked, setup, sound),
        cmocka_unit_test_setup_teardown(spans_are_checked, setup, sound),
        cmocka_unit_test_setup_teardown(frees_are_checked, setup, sound),
        cmocka_unit_test_setup_teardown(zero_is_an_integer_like_any_other, setup, sound),
        cmocka_unit_test_setup_teardown(fits_are_the_arena_s_or_the_request_s, setup, sound),
        cmocka_unit_test_setup_teardown(walk_shows_segments_in_order, setup, sound),
        cmocka_unit_test_teardown(memory_comes_from_the_zone_and_goes_back, sound),
        cmocka_unit_test_teardown(without_memory_requests_fail_and_go_on_later, sound),
        cmocka_unit_test_setup_teardown(nobody_else_may_free_what_an_arena_consists_of, setup, sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
