/*
 * test_spans.c - spans that come, go and are imported: order and gaps, remove, sources good and bad, arenas on arenas.
 */
#include "unit/arena/arena_units.h"

/* A source that hands out what the test says and remembers what came back. */
struct script {
    enum arena_status status;
    uint64_t start;
    uint64_t extra; /* more than asked; subtracted where `less` */
    bool less;
    uint64_t asked, calls, flags;
    uint64_t released_start, released_size, releases;
};
static struct script script;

static enum arena_status script_alloc(void *source, uint64_t size, unsigned flags, uint64_t *start, uint64_t *got) {
    assert_ptr_equal(source, &script);
    assert_int_equal(sim_locks_held(), 0);
    script.asked = size;
    script.flags = flags;
    script.calls++;
    *start = script.start;
    *got = script.less ? size - script.extra : size + script.extra;
    return script.status;
}

static void script_release(void *source, uint64_t start, uint64_t size) {
    assert_ptr_equal(source, &script);
    assert_int_equal(sim_locks_held(), 0);
    script.released_start = start;
    script.released_size = size;
    script.releases++;
}

static const struct arena_source script_source = {script_alloc, script_release};
static const struct arena_source keeping_source = {script_alloc, NULL};

static int setup_script(void **state) {
    script = (struct script){0};
    return setup(state);
}

struct seen {
    struct arena_segment segments[1024];
    unsigned n;
};

static bool remember(const struct arena_segment *segment, void *argument) {
    struct seen *seen = argument;
    assert_true(seen->n < ARRAY_LENGTH(seen->segments));
    seen->segments[seen->n++] = *segment;
    return true;
}

static void spans_are_kept_in_order(void **state) {
    (void)state;
    enum { N = 257 }; /* a prime: k * i mod N visits all */
    struct seen seen = {.n = 0};
    for (uint64_t i = 0; i < N; i++) {
        ASSERT_OK(arena_add(&arena, i * 101 % N * 10, 5 + i % 6));
        ASSERT_SOUND(&arena);
    }
    arena_walk(&arena, ARENA_SPAN, remember, &seen);
    assert_int_equal(seen.n, N);
    for (unsigned i = 0; i < N; i++) assert_int_equal(seen.segments[i].start, i * 10);
    for (uint64_t i = 0; i < N; i++) {
        uint64_t j = i * 57 % N;
        ASSERT_OK(arena_remove(&arena, seen.segments[j].start, seen.segments[j].size));
        ASSERT_SOUND(&arena);
        assert_false(arena_contains(&arena, j * 10, 1));
    }
    assert_int_equal(arena_size(&arena, ARENA_ALLOCATED | ARENA_FREE), 0);
}

static void remove_wants_a_whole_free_added_span(void **state) {
    (void)state;
    ASSERT_OK(arena_add(&arena, 100, 50));
    ASSERT_OK(arena_add(&arena, 200, 50));
    ASSERT_STATUS(arena_remove(&arena, 100, 0), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_remove(&arena, 50, 50), ARENA_NOT_ALLOCATED);
    ASSERT_STATUS(arena_remove(&arena, 110, 40), ARENA_NOT_ALLOCATED);
    ASSERT_STATUS(arena_remove(&arena, 100, 40), ARENA_SIZE_MISMATCH);
    uint64_t start;
    ASSERT_OK(arena_xalloc(&arena, 1, 0, 0, 0, 149, 150, 0, &start));
    ASSERT_STATUS(arena_remove(&arena, 100, 50), ARENA_BUSY);
    ASSERT_OK(arena_remove(&arena, 200, 50));
    ASSERT_OK(arena_xfree(&arena, 149, 1));
    ASSERT_OK(arena_remove(&arena, 100, 50));
    ASSERT_STATUS(arena_remove(&arena, 100, 50), ARENA_NOT_ALLOCATED);
    ASSERT_SOUND(&arena);
    ASSERT_STATUS(arena_alloc(&arena, 1, 0, &start), ARENA_NO_SPACE);
}

/* The rotor of next fit survives the span that it is in. */
static void next_fit_goes_on_after_its_span_is_gone(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 3; i++) ASSERT_OK(arena_add(&arena, 100 * i, 10));
    assert_int_equal(must_alloc(&arena, 10, ARENA_NEXT_FIT), 0);
    assert_int_equal(must_alloc(&arena, 5, ARENA_NEXT_FIT), 100);
    ASSERT_OK(arena_free(&arena, 100, 5));
    ASSERT_OK(arena_remove(&arena, 100, 10));
    ASSERT_SOUND(&arena);
    assert_int_equal(must_alloc(&arena, 1, ARENA_NEXT_FIT), 200);
    ASSERT_OK(arena_add(&arena, 50, 10));
    ASSERT_OK(arena_free(&arena, 200, 1));
    ASSERT_OK(arena_remove(&arena, 200, 10));
    ASSERT_SOUND(&arena);
    assert_int_equal(must_alloc(&arena, 1, ARENA_NEXT_FIT), 50); /* round the top */
    ASSERT_OK(arena_free(&arena, 50, 1));
    ASSERT_OK(arena_remove(&arena, 50, 10));
    ASSERT_OK(arena_free(&arena, 0, 10));
    ASSERT_OK(arena_remove(&arena, 0, 10));
    ASSERT_SOUND(&arena);
    ASSERT_OK(arena_add(&arena, 7, 1));
    assert_int_equal(must_alloc(&arena, 1, ARENA_NEXT_FIT), 7);
    ASSERT_SOUND(&arena);
}

static void what_lacks_is_imported_and_goes_back_when_free(void **state) {
    (void)state;
    arena_set_source(&arena, &script_source, &script);
    script.start = 1000;
    script.extra = 28;
    uint64_t a = must_alloc(&arena, 100, 0);
    assert_int_equal(a, 1000);
    assert_int_equal(script.asked, 100);
    assert_int_equal(arena_size(&arena, ARENA_FREE), 28);
    uint64_t b = must_alloc(&arena, 28, 0); /* of what came on top */
    assert_int_equal(script.calls, 1);
    script.start = 1128; /* right behind: it stays a span of its own */
    script.extra = 0;
    uint64_t c = must_alloc(&arena, 5, ARENA_BEST_FIT);
    assert_int_equal(c, 1128);
    assert_int_equal(stats_of(&arena).spans, 2);
    assert_int_equal(stats_of(&arena).counters.imports, 2);
    ASSERT_SOUND(&arena);
    ASSERT_OK(arena_free(&arena, a, 100));
    assert_int_equal(script.releases, 0);
    ASSERT_OK(arena_free(&arena, b, 28));
    assert_int_equal(script.releases, 1);
    assert_int_equal(script.released_start, 1000);
    assert_int_equal(script.released_size, 128);
    ASSERT_STATUS(arena_remove(&arena, 1128, 5), ARENA_NOT_ALLOCATED); /* imported, not added */
    ASSERT_OK(arena_free(&arena, c, 5));
    assert_int_equal(script.released_start, 1128);
    assert_int_equal(stats_of(&arena).counters.releases, 2);
    assert_int_equal(arena_size(&arena, ARENA_FREE | ARENA_ALLOCATED), 0);
    ASSERT_SOUND(&arena);
}

static void added_spans_stay_and_imported_ones_stay_without_release(void **state) {
    (void)state;
    arena_set_source(&arena, &keeping_source, &script);
    ASSERT_OK(arena_add(&arena, 0, 10));
    ASSERT_OK(arena_free(&arena, must_alloc(&arena, 10, 0), 10));
    assert_int_equal(stats_of(&arena).spans, 1);
    script.start = 100;
    ASSERT_OK(arena_free(&arena, must_alloc(&arena, 20, 0), 20));
    assert_int_equal(stats_of(&arena).spans, 2);
    assert_int_equal(must_alloc(&arena, 20, 0), 100);
    assert_int_equal(script.calls, 1);
    ASSERT_OK(arena_free(&arena, 100, 20));
    ASSERT_OK(arena_destroy(&arena));
    assert_int_equal(memory.held_bytes, 0);
}

/* An import for a constrained request is large enough wherever it lies. */
static void constrained_imports_always_suffice(void **state) {
    (void)state;
    arena_set_source(&arena, &script_source, &script);
    for (uint64_t offset = 0; offset < 64; offset++) {
        for (unsigned shift = 0; shift < 7; shift++) {
            uint64_t start, align = (uint64_t)1 << shift;
            script.start = 4096 + offset;
            ASSERT_OK(arena_xalloc(&arena, 7, align, align / 2, 0, 0, 0, 0, &start));
            assert_int_equal(start % align, align / 2);
            assert_int_equal(script.asked, 7 + align - 1);
            ASSERT_OK(arena_xfree(&arena, start, 7));
            ASSERT_OK(arena_xalloc(&arena, 7, align / 8, 0, align < 8 ? 8 : align, 0, 0, ARENA_NEXT_FIT, &start));
            assert_int_equal(start / (align < 8 ? 8 : align), (start + 6) / (align < 8 ? 8 : align));
            ASSERT_OK(arena_xfree(&arena, start, 7));
        }
    }
    uint64_t start, calls = script.calls;
    assert_int_equal(script.releases, calls);
    ASSERT_STATUS(arena_xalloc(&arena, 7, 0, 0, 0, 1, 0, 0, &start), ARENA_NO_SPACE);   /* no import: where it would lie */
    ASSERT_STATUS(arena_xalloc(&arena, 7, 0, 0, 0, 0, 999, 0, &start), ARENA_NO_SPACE); /* is not ours to say */
    assert_int_equal(script.calls, calls);
    ASSERT_STATUS(arena_xalloc(&arena, UINT64_MAX - 2, 16, 0, 0, 0, 0, 0, &start), ARENA_NO_SPACE); /* more than there can be */
    assert_int_equal(script.calls, calls);
    ASSERT_SOUND(&arena);
}

static bool no_wait(void *ctx, const uint32_t *word, uint32_t seen) {
    (void)ctx;
    (void)word;
    (void)seen;
    return false;
}

static void no_wake(void *ctx, const uint32_t *word) {
    (void)ctx;
    (void)word;
}

static void a_source_hears_whether_it_may_sleep(void **state) {
    (void)state;
    static const struct arena_ops ops = {.wait = no_wait, .wake = no_wake};
    ASSERT_OK(arena_init(&arena, "sleepy", 1, &ops, NULL, 0));
    arena_set_source(&arena, &script_source, &script);
    (void)must_alloc(&arena, 1, ARENA_BEST_FIT | ARENA_SLEEP);
    assert_int_equal(script.flags, ARENA_SLEEP);
    script.start = 50;
    (void)must_alloc(&arena, 1, ARENA_BEST_FIT);
    assert_int_equal(script.flags, 0);
}

static void a_source_that_has_none_is_no_space(void **state) {
    (void)state;
    uint64_t start;
    arena_set_source(&arena, &script_source, &script);
    script.status = ARENA_BUSY; /* whatever it says */
    ASSERT_STATUS(arena_alloc(&arena, 1, 0, &start), ARENA_NO_SPACE);
    assert_int_equal(script.releases, 0);
    ASSERT_SOUND(&arena);
}

static void what_a_bad_source_gives_goes_back(void **state) {
    (void)state;
    struct arena pages;
    uint64_t start;
    ASSERT_OK(arena_init(&pages, "pages", 4096, &memory_ops, &memory, 0));
    ASSERT_OK(arena_add(&pages, 0, 4096));
    arena_set_source(&pages, &script_source, &script);
    const struct script wrong[] = {
        {.start = 8192, .extra = 4096, .less = true}, /* less than asked */
        {.start = 8192 + 512},                        /* misaligned */
        {.start = 8192, .extra = 100},                /* not in quanta */
        {.start = 0},                                 /* here already */
        {.start = UINT64_MAX - 4095, .extra = 4096},  /* past 2^64 */
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(wrong); i++) {
        script = wrong[i];
        ASSERT_STATUS(arena_alloc(&pages, 8192, 0, &start), ARENA_BAD_SOURCE);
        assert_int_equal(script.releases, 1);
        assert_int_equal(script.released_start, wrong[i].start);
        assert_int_equal(script.released_size, 8192 + (wrong[i].less ? -wrong[i].extra : wrong[i].extra));
        ASSERT_SOUND(&pages);
    }
    arena_set_source(&pages, &keeping_source, &script);
    script = wrong[0];
    ASSERT_STATUS(arena_alloc(&pages, 8192, 0, &start), ARENA_BAD_SOURCE);
    assert_int_equal(stats_of(&pages).spans, 1);
    ASSERT_SOUND(&pages);
}

/* Among many segments that are too small an arena with a source does not search long, but it does before it fails. */
static void a_source_comes_before_a_long_search(void **state) {
    (void)state;
    uint64_t start, deep = 0;
    for (uint64_t i = 0; i < 200; i++) {
        ASSERT_OK(arena_add(&arena, i * 100, i == 0 ? 15 : 9));
        if (i == 0) deep = i * 100; /* the last on its list */
    }
    arena_set_source(&arena, &script_source, &script);
    script.start = 1000000;
    assert_int_equal(must_alloc(&arena, 12, 0), 1000000);
    assert_int_equal(must_alloc(&arena, 12, ARENA_BEST_FIT), deep);
    ASSERT_OK(arena_free(&arena, deep, 12));
    ASSERT_OK(arena_add(&arena, 100 * 300, 9)); /* freeing put it in front: bury it again */
    for (uint64_t i = 0; i < 100; i++) ASSERT_OK(arena_add(&arena, 100 * (400 + i), 9));
    script.status = ARENA_NO_SPACE;
    assert_int_equal(must_alloc(&arena, 12, 0), deep);
    ASSERT_STATUS(arena_alloc(&arena, 12, 0, &start), ARENA_NO_SPACE);
    ASSERT_SOUND(&arena);
}

static void an_arena_is_a_source_for_others(void **state) {
    (void)state;
    struct arena heap, pages, units;
    uint64_t start;
    ASSERT_OK(arena_init(&heap, "heap", 65536, &memory_ops, &memory, 0));
    ASSERT_OK(arena_init(&pages, "pages", 4096, &memory_ops, &memory, 0));
    ASSERT_OK(arena_init(&units, "units", 16, &memory_ops, &memory, 0));
    ASSERT_OK(arena_add(&heap, 0, 4 * 65536));
    arena_set_source(&pages, &arena_as_source, &heap);
    arena_set_source(&units, &arena_as_source, &pages);
    uint64_t a = must_alloc(&units, 100, 0); /* rounded up on each level */
    assert_int_equal(arena_size(&units, ARENA_FREE | ARENA_ALLOCATED), 4096);
    assert_int_equal(arena_size(&pages, ARENA_FREE | ARENA_ALLOCATED), 65536);
    assert_int_equal(arena_size(&heap, ARENA_ALLOCATED), 65536);
    uint64_t b = must_alloc(&units, 150000, 0);
    ASSERT_STATUS(arena_alloc(&units, 70000, 0, &start), ARENA_NO_SPACE);
    ASSERT_SOUND(&units);
    ASSERT_SOUND(&pages);
    ASSERT_SOUND(&heap);
    ASSERT_OK(arena_free(&units, b, 150000));
    ASSERT_OK(arena_free(&units, a, 100));
    assert_int_equal(arena_size(&units, ARENA_FREE | ARENA_ALLOCATED), 0);
    assert_int_equal(arena_size(&pages, ARENA_FREE | ARENA_ALLOCATED), 0);
    assert_int_equal(arena_size(&heap, ARENA_ALLOCATED), 0);
    ASSERT_OK(arena_destroy(&units));
    ASSERT_OK(arena_destroy(&pages));
    ASSERT_OK(arena_destroy(&heap));
    assert_int_equal(memory.held_bytes, 0);
}

/* Segments reach over what was the end; an imported span, or one that ends elsewhere, stays as it is. */
static void a_span_that_is_extended_is_one(void **state) {
    (void)state;
    uint64_t first, at;
    ASSERT_OK(arena_add(&arena, 100, 50));
    ASSERT_OK(arena_alloc(&arena, 40, 0, &first));
    ASSERT_OK(arena_extend(&arena, 150, 30)); /* its last segment is free */
    ASSERT_OK(arena_alloc(&arena, 40, 0, &at));
    assert_int_equal(at, 140);
    ASSERT_OK(arena_extend(&arena, 180, 20)); /* it is allocated */
    ASSERT_OK(arena_extend(&arena, 201, 9));  /* a gap */
    assert_int_equal(arena_alloc(&arena, 21, 0, &at), ARENA_NO_SPACE);
    assert_int_equal(arena_extend(&arena, 199, 2), ARENA_OVERLAP);
    assert_int_equal(arena_extend(&arena, UINT64_MAX, 2), ARENA_BAD_RANGE);
    assert_int_equal(arena_extend(&arena, 300, 0), ARENA_BAD_ARGUMENT);
    assert_null(arena_check(&arena));
    assert_int_equal(arena.spans, 2);
    assert_int_equal(arena.total, 109);
    ASSERT_OK(arena_free(&arena, 100, 40));
    ASSERT_OK(arena_free(&arena, 140, 40));
    assert_int_equal(arena_remove(&arena, 100, 50), ARENA_SIZE_MISMATCH);
    ASSERT_OK(arena_remove(&arena, 100, 100));
    assert_null(arena_check(&arena));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(spans_are_kept_in_order, setup_script, teardown),
        cmocka_unit_test_setup_teardown(remove_wants_a_whole_free_added_span, setup_script, teardown),
        cmocka_unit_test_setup_teardown(next_fit_goes_on_after_its_span_is_gone, setup_script, teardown),
        cmocka_unit_test_setup_teardown(what_lacks_is_imported_and_goes_back_when_free, setup_script, teardown),
        cmocka_unit_test_setup_teardown(added_spans_stay_and_imported_ones_stay_without_release, setup_script, teardown),
        cmocka_unit_test_setup_teardown(constrained_imports_always_suffice, setup_script, teardown),
        cmocka_unit_test_setup_teardown(a_source_hears_whether_it_may_sleep, setup_script, teardown),
        cmocka_unit_test_setup_teardown(a_source_that_has_none_is_no_space, setup_script, teardown),
        cmocka_unit_test_setup_teardown(what_a_bad_source_gives_goes_back, setup_script, teardown),
        cmocka_unit_test_setup_teardown(a_source_comes_before_a_long_search, setup_script, teardown),
        cmocka_unit_test_setup_teardown(an_arena_is_a_source_for_others, setup_script, teardown),
        cmocka_unit_test_setup_teardown(a_span_that_is_extended_is_one, setup_script, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
