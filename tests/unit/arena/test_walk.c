/*
 * test_walk.c - walks: what they show, in which order, and that they find their way while the visitor changes the arena.
 */
#include <time.h>

#include "unit/arena/arena_units.h"

struct seen {
    struct arena_segment segments[257];
    unsigned n, limit;
    void (*disturb)(unsigned n);
};

static bool remember(const struct arena_segment *segment, void *argument) {
    struct seen *seen = argument;
    assert_int_equal(sim_locks_held(), 0);
    assert_true(seen->n < ARRAY_LENGTH(seen->segments));
    seen->segments[seen->n++] = *segment;
    if (seen->disturb != NULL) seen->disturb(seen->n);
    return seen->n != seen->limit;
}

/* 100 spans of 4 with one allocated integer in each, at 10 i + i mod 4. */
static void make_pattern_from(uint64_t first, uint64_t n) {
    for (uint64_t i = first; i < first + n; i++) {
        uint64_t start;
        ASSERT_OK(arena_add(&arena, 10 * i, 4));
        ASSERT_OK(arena_xalloc(&arena, 1, 0, 0, 0, 10 * i + i % 4, 10 * i + i % 4 + 1, 0, &start));
    }
}

static void make_pattern(void) { make_pattern_from(0, 100); }

static void walk_shows_the_kinds_asked_for_in_order(void **state) {
    (void)state;
    struct seen seen = {.limit = 0};
    arena_walk(&arena, ARENA_ALLOCATED | ARENA_FREE | ARENA_SPAN, remember, &seen);
    assert_int_equal(seen.n, 0);
    make_pattern();
    arena_walk(&arena, ARENA_ALLOCATED, remember, &seen);
    assert_int_equal(seen.n, 100);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(seen.segments[i].start, 10 * i + i % 4);
        assert_int_equal(seen.segments[i].size, 1);
        assert_int_equal(seen.segments[i].kind, ARENA_ALLOCATED);
    }
    seen = (struct seen){.limit = 0};
    arena_walk(&arena, ARENA_SPAN, remember, &seen);
    assert_int_equal(seen.n, 100);
    seen = (struct seen){.limit = 0};
    arena_walk(&arena, ARENA_FREE, remember, &seen);
    assert_int_equal(seen.n, 150); /* one where the allocated integer is at an end, else two */
    seen = (struct seen){.limit = 70};
    arena_walk(&arena, ARENA_SPAN | ARENA_FREE | ARENA_ALLOCATED, remember, &seen);
    assert_int_equal(seen.n, 70); /* until the visitor has enough */
    assert_int_equal(seen.segments[0].kind, ARENA_SPAN);
    assert_int_equal(seen.segments[0].size, 4);
    assert_int_equal(seen.segments[1].kind, ARENA_ALLOCATED);
    assert_int_equal(seen.segments[2].kind, ARENA_FREE);
    assert_int_equal(seen.segments[2].start, 1);
    assert_int_equal(seen.segments[2].size, 3);
    for (unsigned i = 1; i < 70; i++) assert_true(seen.segments[i].start >= seen.segments[i - 1].start);
}

/* The visitor changes the arena behind, at, and before the place where the walk is. */
static void disturb(unsigned n) {
    uint64_t start;
    if (n == 5) ASSERT_OK(arena_xfree(&arena, 0, 1));
    if (n == 20) ASSERT_OK(arena_xfree(&arena, 10 * 19 + 3, 1));
    if (n == 32) ASSERT_OK(arena_xfree(&arena, 10 * 31 + 3, 1)); /* the last of a batch: what the walk stands on goes */
    if (n == 33) ASSERT_OK(arena_remove(&arena, 10 * 31, 4));
    if (n == 40) ASSERT_OK(arena_xalloc(&arena, 1, 0, 0, 0, 10 * 99, 10 * 99 + 1, 0, &start));
    if (n == 41) ASSERT_OK(arena_xfree(&arena, 10 * 90 + 2, 1));
    if (n == 42) ASSERT_OK(arena_add(&arena, 5, 2)); /* behind the walk */
    if (n == 43) ASSERT_OK(arena_xalloc(&arena, 2, 0, 0, 0, 5, 7, 0, &start));
}

static void walk_shows_once_what_stays(void **state) {
    (void)state;
    struct seen seen = {.disturb = disturb};
    make_pattern();
    arena_walk(&arena, ARENA_ALLOCATED, remember, &seen);
    assert_int_equal(seen.n, 100); /* 90 went and one in 99 came, both in time */
    for (unsigned i = 0; i < 100; i++) {
        unsigned span = i < 90 ? i : i < 99 ? i + 1 : 99;
        assert_int_equal(seen.segments[i].start, i == 98 ? 990 : 10 * span + span % 4);
    }
    ASSERT_SOUND(&arena);
}

static unsigned disturb_at;

/* What the walk has passed goes and comes back, so that every place where it may stop is searched for again. */
static void disturb_behind(unsigned n) {
    if (n != disturb_at) return;
    uint64_t start;
    ASSERT_OK(arena_remove(&arena, 0, 4));
    ASSERT_OK(arena_add(&arena, 0, 4));
    ASSERT_OK(arena_xalloc(&arena, 1, 0, 0, 0, 4, 5, 0, &start));
    ASSERT_OK(arena_xfree(&arena, 4, 1));
}

static void walk_goes_on_wherever_it_stopped(void **state) {
    (void)state;
    static struct seen calm, seen;
    for (unsigned i = 0; i < 3; i++) {
        /* A span more or less shifts what the end of a batch falls on. */
        ASSERT_OK(arena_init(&arena, "units", 1, &memory_ops, &memory, 0));
        ASSERT_OK(arena_add(&arena, 0, 4));
        ASSERT_OK(arena_add(&arena, 4, 2));
        for (uint64_t n = 0; n < i; n++) ASSERT_OK(arena_add(&arena, 6 + n, 1));
        make_pattern_from(20, 25);
        calm = seen = (struct seen){.limit = 0};
        arena_walk(&arena, ARENA_SPAN | ARENA_FREE | ARENA_ALLOCATED, remember, &calm);
        assert_true(calm.n > 70);
        disturb_at = 32;
        seen.disturb = disturb_behind;
        arena_walk(&arena, ARENA_SPAN | ARENA_FREE | ARENA_ALLOCATED, remember, &seen);
        assert_int_equal(seen.n, calm.n);
        assert_memory_equal(seen.segments, calm.segments, sizeof seen.segments);
    }
}

/* What the walk stands on becomes part of its neighbour, and one behind it becomes two. */
static void join_and_split(unsigned n) {
    if (n != 32) return;
    ASSERT_OK(arena_join(&arena, 60, 2, 2));
    ASSERT_OK(arena_split(&arena, 64, 2, 1));
}

static void walk_goes_on_where_segments_are_joined(void **state) {
    (void)state;
    struct seen seen = {.disturb = join_and_split};
    ASSERT_OK(arena_add(&arena, 0, 80));
    for (unsigned i = 0; i < 40; i++) assert_int_equal(must_alloc(&arena, 2, 0), 2 * i);
    arena_walk(&arena, ARENA_ALLOCATED, remember, &seen);
    assert_int_equal(seen.n, 41);
    assert_int_equal(seen.segments[32].start, 64);
    assert_int_equal(seen.segments[33].start, 65);
    assert_int_equal(seen.segments[40].start, 78);
    ASSERT_SOUND(&arena);
}

/* Of what the walk has passed in one span, all is freed, or all but some; what is ahead is shown once, whatever is left to find the way by. */
static unsigned kept_every;
static void free_behind(unsigned n) {
    static unsigned freed;
    if (n == 1) freed = 0;
    if (n % 32 != 0) return;
    for (; freed < n; freed++)
        if (kept_every == 0 || freed % kept_every != 0) ASSERT_OK(arena_xfree(&arena, 2 * freed, 2));
}

static void walk_goes_on_by_what_is_left(void **state) {
    static const unsigned every[] = {0, 1, 2, 7, 31, 32, 33, 64, 100};
    (void)state;
    for (unsigned i = 0; i < ARRAY_LENGTH(every); i++) {
        struct seen seen = {.disturb = free_behind};
        kept_every = every[i];
        ASSERT_OK(arena_init(&arena, "units", 1, &memory_ops, &memory, 0));
        ASSERT_OK(arena_add(&arena, 0, 512));
        for (unsigned n = 0; n < 256; n++) assert_int_equal(must_alloc(&arena, 2, 0), 2 * n);
        arena_walk(&arena, ARENA_ALLOCATED, remember, &seen);
        assert_int_equal(seen.n, 256);
        for (unsigned n = 0; n < 256; n++) assert_int_equal(seen.segments[n].start, 2 * n);
        ASSERT_SOUND(&arena);
        for (unsigned n = 0; n < 256; n++)
            if (kept_every != 0 && n % kept_every == 0) ASSERT_OK(arena_xfree(&arena, 2 * n, 2));
        ASSERT_OK(arena_destroy(&arena));
    }
}

/* A visitor that changes the arena each time makes the walk no longer than its changes take: by a clock, with much to spare. */
enum { MANY = 60000 };
static uint64_t visits;
static void change(void) {
    uint64_t start;
    ASSERT_OK(arena_alloc(&arena, 1, 0, &start));
    ASSERT_OK(arena_xfree(&arena, start, 1));
}
static bool change_each_time(const struct arena_segment *segment, void *argument) {
    (void)segment, (void)argument;
    change();
    visits++;
    return true;
}

static void walk_of_many_is_linear(void **state) {
    (void)state;
    ASSERT_OK(arena_add(&arena, 0, 2 * MANY));
    for (unsigned n = 0; n < MANY; n++) assert_int_equal(must_alloc(&arena, 1, 0), n);
    clock_t begin = clock();
    for (unsigned n = 0; n < MANY; n++) change();
    clock_t changes = clock() - begin;
    begin = clock();
    visits = 0;
    arena_walk(&arena, ARENA_ALLOCATED, change_each_time, NULL);
    clock_t walk = clock() - begin;
    assert_int_equal(visits, MANY);
    print_message("%.1f times as long as the changes\n", (double)walk / (double)changes);
    assert_true(walk < 10 * changes);
    for (unsigned n = 0; n < MANY; n++) ASSERT_OK(arena_xfree(&arena, n, 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(walk_shows_the_kinds_asked_for_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(walk_shows_once_what_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(walk_goes_on_wherever_it_stopped, setup, teardown),
        cmocka_unit_test_setup_teardown(walk_goes_on_where_segments_are_joined, setup, teardown),
        cmocka_unit_test_setup_teardown(walk_goes_on_by_what_is_left, setup, teardown),
        cmocka_unit_test_setup_teardown(walk_of_many_is_linear, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
