/*
 * test_arena_sharing.c - public arenas among others, on the simulated platform: importing from arenas and by functions of the program, limits,
 * reclaim, sleep in every order of threads that few switches allow, and what all arenas together appear in: statistics, strata_check, fork.
 */
#include <time.h>

#include "strata/cache.h"
#include "unit/api/arena_api_support.h"

static int setup(void **state) {
    (void)state;
    new_stack();
    ASSERT_OK(strata_arena_set_source(middle, bottom));
    ASSERT_OK(strata_arena_set_source(top, middle));
    return 0;
}

/* ------------------------------------------------------------------ importing from arenas */

static void spans_come_up_and_go_down(void **state) {
    (void)state;
    uint64_t start = must_alloc(top, 3);
    assert_int_equal(stats_of(top).imported, 16); /* a quantum of middle */
    assert_int_equal(stats_of(middle).imported, 64);
    assert_int_equal(stats_of(bottom).allocated, 64);
    assert_int_equal(strata_arena_contains(bottom, start, 3), 1);
    ASSERT_OK(strata_arena_free(top, start, 3));
    assert_int_equal(stats_of(top).total + stats_of(middle).total, 0);
    assert_int_equal(stats_of(bottom).allocated, 0);
    assert_int_equal(stats_of(top).imports, 1);
    assert_int_equal(stats_of(top).releases, 1);
}

/* A source that took back what its importer still has would give it to two: by segments, and by quantum caches that have the size of the span. */
static void what_an_importer_has_is_not_the_programs_to_free(void **state) {
    struct strata_arena *cached = new_arena("cached", 0, 1024, 16), *importer = new_arena("importer", 0, 0, 16);
    uint64_t size;
    (void)state;
    ASSERT_OK(strata_arena_set_quantum_caches(cached, 64));
    ASSERT_OK(strata_arena_set_source(importer, cached));
    struct {
        struct strata_arena *source, *importer;
        uint64_t size;
    } pairs[] = {{bottom, middle, 64}, {middle, top, 16}, {cached, importer, 16}};
    for (unsigned i = 0; i < ARRAY_LENGTH(pairs); i++) {
        struct strata_arena *source = pairs[i].source;
        uint64_t start = must_alloc(pairs[i].importer, pairs[i].size);
        ASSERT_STATUS(strata_arena_free(source, start, pairs[i].size), NOT_ALLOCATED);
        ASSERT_STATUS(strata_arena_xfree(source, start, pairs[i].size), NOT_ALLOCATED);
        ASSERT_STATUS(strata_arena_free(source, start, 2 * pairs[i].size), NOT_ALLOCATED);
        ASSERT_STATUS(strata_arena_resize(source, start, pairs[i].size, 2 * pairs[i].size), NOT_ALLOCATED);
        ASSERT_OK(strata_arena_lookup(source, start, &size)); /* it is allocated all the same */
        assert_int_equal(size, pairs[i].size);
        ASSERT_OK(strata_arena_free(pairs[i].importer, start, pairs[i].size));
        ASSERT_STATUS(strata_arena_free(source, start, pairs[i].size), NOT_ALLOCATED);
    }
    /* Where all that is left lies in slabs of the source's quantum caches, importers get it, too. */
    struct strata_arena *narrow = new_arena("narrow", 0, 768, 16), *late = new_arena("late", 0, 0, 16);
    ASSERT_OK(strata_arena_set_quantum_caches(narrow, 64));
    ASSERT_OK(strata_arena_set_source(late, narrow));
    uint64_t small[3], imported;
    for (unsigned i = 0; i < ARRAY_LENGTH(small); i++) small[i] = must_alloc(narrow, 16 * (i + 1));
    ASSERT_OK(strata_arena_alloc(late, 16, 0, &imported));
    ASSERT_OK(strata_arena_free(late, imported, 16));
    for (unsigned i = 0; i < ARRAY_LENGTH(small); i++) ASSERT_OK(strata_arena_free(narrow, small[i], 16 * (i + 1)));
    ASSERT_OK(strata_arena_destroy(late));
    ASSERT_OK(strata_arena_destroy(narrow));
    uint64_t own = must_alloc(bottom, 64); /* the next one there is the program's again */
    ASSERT_OK(strata_arena_free(bottom, own, 64));
    ASSERT_OK(strata_arena_destroy(importer));
    ASSERT_OK(strata_arena_destroy(cached));
}

/* What an arena costs to destroy is not for those to pay that import from the same source: by a clock, with much to spare. */
static void an_importer_goes_without_a_search(void **state) {
    enum { COUNT = 8000 };
    static struct strata_arena *importers[COUNT];
    (void)state;
    const clock_t start = clock();
    for (unsigned i = 0; i < COUNT; i++) {
        assert_non_null(importers[i] = new_arena("one of many", 0, 0, 64));
        ASSERT_OK(strata_arena_set_source(importers[i], bottom));
    }
    const clock_t created = clock();
    for (unsigned i = 1; i < COUNT; i += 2) ASSERT_OK(strata_arena_destroy(importers[i]));
    for (unsigned i = 0; i < COUNT; i += 2) ASSERT_OK(strata_arena_destroy(importers[i]));
    assert_true(clock() - created <= 4 * (created - start));
}

static void sources_are_checked(void **state) {
    struct strata_arena *fine = new_arena("fine", 0, 64, 1), *late = new_arena("late", 0, 0, 1);
    (void)state;
    ASSERT_STATUS(strata_arena_set_source(bottom, fine), BAD_ARGUMENT); /* its quantum is too small */
    ASSERT_STATUS(strata_arena_set_source(fine, fine), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_set_source(middle, bottom), BUSY); /* has one */
    ASSERT_STATUS(strata_arena_set_import(middle, (strata_arena_import_alloc *)1, NULL, NULL), BUSY);
    (void)must_alloc(fine, 1);
    ASSERT_STATUS(strata_arena_set_source(fine, bottom), BUSY); /* too late */
    struct strata_arena *ring[3] = {new_arena("a", 0, 0, 1), new_arena("b", 0, 0, 1), new_arena("c", 0, 0, 1)};
    ASSERT_OK(strata_arena_set_source(ring[0], ring[1]));
    ASSERT_OK(strata_arena_set_source(ring[1], ring[2]));
    ASSERT_STATUS(strata_arena_set_source(ring[2], ring[0]), BAD_ARGUMENT); /* round and round */
    ASSERT_OK(strata_arena_set_source(late, bottom));
    ASSERT_OK(strata_arena_free(late, must_alloc(late, 1), 1));
}

/* From the last to the first of those that import; then the source itself. */
static void a_source_outlives_its_importers(void **state) {
    struct strata_arena *more[3];
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        more[i] = new_arena("more", 0, 0, 1);
        ASSERT_OK(strata_arena_set_source(more[i], bottom));
    }
    ASSERT_STATUS(strata_arena_destroy(bottom), BUSY);
    ASSERT_STATUS(strata_arena_destroy(middle), BUSY);
    ASSERT_OK(strata_arena_destroy(more[1])); /* from the middle of the list */
    ASSERT_OK(strata_arena_destroy(more[0]));
    ASSERT_OK(strata_arena_destroy(top));
    ASSERT_OK(strata_arena_destroy(middle));
    uint64_t start = must_alloc(more[2], 5);
    ASSERT_STATUS(strata_arena_destroy(bottom), BUSY);
    ASSERT_OK(strata_arena_free(more[2], start, 5));
    ASSERT_STATUS(strata_arena_destroy(bottom), BUSY); /* nothing is allocated, but it may be asked again */
    ASSERT_OK(strata_arena_destroy(more[2]));
    ASSERT_OK(strata_arena_destroy(bottom));
    assert_null(heap.arenas.first);
}

static void limits_hold_at_each_level(void **state) {
    uint64_t start;
    (void)state;
    ASSERT_OK(strata_arena_set_limit(top, 32));
    uint64_t a = must_alloc(top, 20);
    ASSERT_STATUS(strata_arena_alloc(top, 16, 0, &start), NO_SPACE);
    ASSERT_OK(strata_arena_set_limit(top, STRATA_ARENA_NO_LIMIT));
    ASSERT_OK(strata_arena_set_limit(middle, 64));
    uint64_t b = must_alloc(top, 32);
    ASSERT_STATUS(strata_arena_alloc(top, 16, 0, &start), NO_SPACE);
    assert_int_equal(stats_of(middle).limit, 64);
    ASSERT_OK(strata_arena_set_limit(middle, 128));
    uint64_t c = must_alloc(top, 16);
    ASSERT_OK(strata_arena_free(top, a, 20));
    ASSERT_OK(strata_arena_free(top, b, 32));
    ASSERT_OK(strata_arena_free(top, c, 16));
    assert_int_equal(stats_of(bottom).allocated, 0);
}

/* ------------------------------------------------------------------ importing by functions */

static struct {
    unsigned calls, releases, flags;
    uint64_t size, extra, released_start, released_size, start;
    enum strata_arena_status status;
} script;

static enum strata_arena_status script_alloc(void *context, uint64_t size, unsigned flags, uint64_t *start, uint64_t *got) {
    assert_ptr_equal(context, &script);
    assert_int_equal(sim_locks_held(), 0);
    script.calls++;
    script.size = size;
    script.flags = flags;
    *start = script.start;
    *got = size + script.extra;
    script.start += 10000;
    return script.status;
}

static void script_release(void *context, uint64_t start, uint64_t size) {
    assert_ptr_equal(context, &script);
    assert_int_equal(sim_locks_held(), 0);
    script.releases++;
    script.released_start = start;
    script.released_size = size;
}

static struct strata_arena *scripted(strata_arena_import_release *release) {
    struct strata_arena *arena = new_arena("scripted", 0, 0, 8);
    memset(&script, 0, sizeof script);
    script.start = 8000;
    ASSERT_OK(strata_arena_set_import(arena, script_alloc, release, &script));
    return arena;
}

static void functions_of_the_program_are_asked_and_given_back(void **state) {
    uint64_t start;
    (void)state;
    struct strata_arena *arena = scripted(script_release);
    script.extra = 800;
    ASSERT_OK(strata_arena_alloc(arena, 30, 0, &start));
    assert_int_equal(start, 8000);
    assert_int_equal(script.size, 32);
    assert_int_equal(script.flags, 0);
    uint64_t b = must_alloc(arena, 800); /* of what came on top */
    assert_int_equal(script.calls, 1);
    ASSERT_OK(strata_arena_free(arena, start, 30));
    assert_int_equal(script.releases, 0);
    ASSERT_OK(strata_arena_free(arena, b, 800));
    assert_int_equal(script.released_start, 8000);
    assert_int_equal(script.released_size, 832);
    ASSERT_STATUS(strata_arena_remove(arena, 8000, 832), NOT_ALLOCATED);
    ASSERT_OK(strata_arena_destroy(arena));
}

static void what_the_program_s_functions_do_wrong_is_found(void **state) {
    uint64_t start = 77;
    (void)state;
    struct strata_arena *arena = scripted(script_release);
    script.status = STRATA_ARENA_BUSY; /* any but OK says that there is none */
    ASSERT_STATUS(strata_arena_alloc(arena, 8, 0, &start), NO_SPACE);
    script.status = STRATA_ARENA_OK;
    script.extra = (uint64_t)-8; /* less than was asked for */
    ASSERT_STATUS(strata_arena_alloc(arena, 16, 0, &start), BAD_SOURCE);
    assert_int_equal(script.releases, 1);
    script.extra = 4;
    ASSERT_STATUS(strata_arena_alloc(arena, 16, 0, &start), BAD_SOURCE);
    script.extra = 0;
    script.start = 8004;
    ASSERT_STATUS(strata_arena_alloc(arena, 16, 0, &start), BAD_SOURCE);
    script.start = 8000;
    uint64_t a = must_alloc(arena, 16);
    script.start = 8008; /* again */
    ASSERT_STATUS(strata_arena_alloc(arena, 16, 0, &start), BAD_SOURCE);
    assert_int_equal(start, 77);
    assert_int_equal(script.releases, 4);
    ASSERT_OK(strata_arena_free(arena, a, 16));
    ASSERT_OK(strata_arena_destroy(arena));
}

static void without_a_release_spans_stay(void **state) {
    (void)state;
    struct strata_arena *arena = scripted(NULL);
    for (unsigned i = 0; i < 3; i++) ASSERT_OK(strata_arena_free(arena, must_alloc(arena, 8), 8));
    assert_int_equal(script.calls, 1);
    assert_int_equal(stats_of(arena).imported, 8);
    ASSERT_OK(strata_arena_destroy(arena));
}

/* ------------------------------------------------------------------ reclaim */

static struct {
    unsigned calls;
    uint64_t size, spare; /* a segment of 10 that can be given back; 0: none */
    int answer;
} spare;

static int give_spare(void *context, struct strata_arena *arena, uint64_t size) {
    assert_ptr_equal(context, &spare);
    assert_int_equal(sim_locks_held(), 0);
    spare.calls++;
    spare.size = size;
    if (spare.spare != 0) ASSERT_OK(strata_arena_free(arena, spare.spare, 10));
    spare.spare = 0;
    return spare.answer;
}

static void reclaim_is_asked_once_before_a_failure(void **state) {
    uint64_t start;
    (void)state;
    struct strata_arena *arena = new_arena("short", 100, 20, 1);
    memset(&spare, 0, sizeof spare);
    ASSERT_OK(strata_arena_set_reclaim(arena, give_spare, &spare));
    (void)must_alloc(arena, 10);
    spare.spare = must_alloc(arena, 10);
    assert_int_equal(spare.calls, 0);
    ASSERT_STATUS(strata_arena_alloc(arena, 7, 0, &start), NO_SPACE); /* it gave, but said no */
    assert_int_equal(spare.calls, 1);
    assert_int_equal(spare.size, 7);
    spare.spare = must_alloc(arena, 10);
    spare.answer = 1;
    ASSERT_OK(strata_arena_alloc(arena, 7, 0, &start));
    assert_int_equal(spare.calls, 2);
    ASSERT_STATUS(strata_arena_alloc(arena, 7, 0, &start), NO_SPACE);
    assert_int_equal(spare.calls, 3);
    ASSERT_OK(strata_arena_set_reclaim(arena, NULL, NULL));
    ASSERT_STATUS(strata_arena_alloc(arena, 7, 0, &start), NO_SPACE);
    assert_int_equal(spare.calls, 3);
}

/* ------------------------------------------------------------------ all arenas */

static const char *report(int (*write)(int)) {
    size_t bytes;
    int file = platform_file_create("/report");
    assert_true(file >= 0);
    assert_int_equal(write(file), 0);
    platform_file_close(file);
    return sim_file_text("/report", &bytes);
}

/* Quantum caches that find no whole slab look elsewhere, and bother nobody: a request that is served has not failed. */
static unsigned asked;
static uint64_t asked_size;
static int give_nothing(void *context, struct strata_arena *arena, uint64_t size) {
    (void)context, (void)arena;
    asked++;
    asked_size = size;
    return 0;
}
static void quantum_caches_without_slabs_bother_nobody(void **state) {
    (void)state;
    struct strata_arena *pieces = new_arena("pieces", 0, 64, 1);
    struct strata_cache *beside;
    const struct strata_cache_config config = {.size = 64};
    uint64_t kept[32], start;
    ASSERT_OK(strata_arena_set_quantum_caches(pieces, 4));
    for (unsigned i = 0; i < ARRAY_LENGTH(kept); i++) ASSERT_OK(strata_arena_xalloc(pieces, 2, 0, 0, 0, 2 * i, 2 * i + 2, 0, &kept[i]));
    for (unsigned i = 0; i < ARRAY_LENGTH(kept); i += 2) ASSERT_OK(strata_arena_xfree(pieces, kept[i], 2));
    ASSERT_OK(strata_arena_set_reclaim(pieces, give_nothing, NULL));
    assert_int_equal(strata_cache_create("beside", &config, &beside), STRATA_CACHE_OK);
    strata_cache_free(beside, strata_cache_alloc(beside, 0));
    asked = 0;
    for (unsigned i = 0; i < 100; i++) {
        ASSERT_OK(strata_arena_alloc(pieces, 2, 0, &start));
        ASSERT_OK(strata_arena_free(pieces, start, 2));
    }
    struct strata_cache_stats stats;
    strata_cache_stats_get(beside, &stats);
    assert_int_equal(stats.destructed, 0);
    assert_int_equal(asked, 0);
    assert_int_equal(stats_of(pieces).failures, 0);
    ASSERT_STATUS(strata_arena_alloc(pieces, 3, 0, &start), NO_SPACE);
    assert_int_equal(asked, 1);
    assert_int_equal(asked_size, 3);
    assert_int_equal(stats_of(pieces).failures, 1);
    assert_int_equal(strata_cache_destroy(beside), STRATA_CACHE_OK);
}

static void statistics_have_a_row_for_each(void **state) {
    (void)state;
    uint64_t start = must_alloc(top, 3);
    struct strata_arena_stats figures = stats_of(top);
    assert_string_equal(figures.name, "top");
    assert_int_equal(figures.allocated + figures.free, figures.total);
    assert_int_equal(figures.segments_allocated, 1);
    assert_int_equal(figures.segments_free, 1);
    assert_non_null(strstr(report(strata_stats_json),
                           "{\"name\":\"bottom\",\"quantum\":64,\"in_use\":64,\"total\":1024,\"segments\":2,\"allocs\":1,\"frees\":0,\"failures\":0,"
                           "\"imported\":0,\"imports\":0,\"releases\":0,\"waits\":0,\"metadata_bytes\":4096},"
                           "{\"name\":\"middle\",\"quantum\":16,\"in_use\":16,\"total\":64,\"segments\":2,\"allocs\":1,\"frees\":0,\"failures\":0,"
                           "\"imported\":64,\"imports\":1,\"releases\":0,\"waits\":0,\"metadata_bytes\":4096},"
                           "{\"name\":\"top\",\"quantum\":1,\"in_use\":3,\"total\":16,\"segments\":2,\"allocs\":1,\"frees\":0,\"failures\":0,"
                           "\"imported\":16,\"imports\":1,\"releases\":0,\"waits\":0,\"metadata_bytes\":4096}]"));
    const char *table = report(strata_stats_table), *row = strstr(table, "\ntop ");
    assert_non_null(row);
    unsigned long quantum, in_use, total;
    assert_int_equal(sscanf(row, "\ntop %lu %lu %lu", &quantum, &in_use, &total), 3);
    assert_true(quantum == 1 && in_use == 3 && total == 16);
    ASSERT_OK(strata_arena_free(top, start, 3));
    ASSERT_OK(strata_arena_destroy(top));
    assert_null(strstr(report(strata_stats_json), "\"top\""));
    assert_null(strstr(report(strata_stats_table), "\ntop "));
}

static void arenas_beyond_the_last_row_are_counted_together(void **state) {
    char expected[256];
    (void)state;
    for (unsigned i = 0; i < 100; i++) (void)must_alloc(new_arena("one of many", 0, 10, 1), 4); /* with the three of setup, 103 */
    const char *json = report(strata_stats_json), *others = strstr(json, "{\"name\":\"(others)\"");
    assert_non_null(others);
    snprintf(expected, sizeof expected, "\"quantum\":0,\"in_use\":0,\"total\":0,\"segments\":%u,\"allocs\":%u,", 2 * (103 - 62), 103 - 62);
    if (strstr(others, expected) == NULL) fail_msg("%s", others);
    unsigned rows = 0;
    for (const char *at = json; (at = strstr(at, "\"one of many\"")) != NULL; at++) rows++;
    assert_int_equal(rows, 62 - 3);
}

static void check_looks_into_each(void **state) {
    (void)state;
    uint64_t start = must_alloc(top, 3);
    struct arena *inside = (struct arena *)(void *)middle; /* its first member */
    inside->allocated++;
    assert_string_equal(strata_check(), "counters: allocated != sum of allocated segments");
    assert_string_equal(strata_arena_check(middle), "counters: allocated != sum of allocated segments");
    assert_null(strata_arena_check(top));
    inside->allocated--;
    assert_null(strata_check());
    ASSERT_OK(strata_arena_free(top, start, 3));
}

static void fork_locks_all_and_frees_all(void **state) {
    struct strata_arena *const all[] = {bottom, middle, top};
    (void)state;
    uint64_t start = must_alloc(top, 3);
    for (unsigned side = 0; side < 2; side++) {
        fork_prepare();
        assert_int_equal(heap.arenas.lock.word, PLATFORM_LOCK_FORK);
        for (unsigned i = 0; i < 3; i++) assert_int_equal(((struct arena *)(void *)all[i])->lock.word, PLATFORM_LOCK_FORK);
        (void)must_alloc(top, 1); /* as a handler of the program may that runs now */
        if (side == 0) {
            fork_parent();
        } else {
            sim_fork_child();
            fork_child();
        }
        assert_int_equal(heap.arenas.lock.word, PLATFORM_LOCK_FREE);
        for (unsigned i = 0; i < 3; i++) assert_int_equal(((struct arena *)(void *)all[i])->lock.word, PLATFORM_LOCK_FREE);
        assert_null(strata_check());
    }
    assert_int_equal(stats_of(top).allocated, 5);
    ASSERT_OK(strata_arena_free(top, start, 3));
    (void)new_arena("of the child", 0, 1, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(spans_come_up_and_go_down, setup, sound),
        cmocka_unit_test_setup_teardown(what_an_importer_has_is_not_the_programs_to_free, setup, sound),
        cmocka_unit_test_setup_teardown(an_importer_goes_without_a_search, setup, sound),
        cmocka_unit_test_setup_teardown(sources_are_checked, setup, sound),
        cmocka_unit_test_setup_teardown(a_source_outlives_its_importers, setup, sound),
        cmocka_unit_test_setup_teardown(limits_hold_at_each_level, setup, sound),
        cmocka_unit_test_setup_teardown(functions_of_the_program_are_asked_and_given_back, setup, sound),
        cmocka_unit_test_setup_teardown(what_the_program_s_functions_do_wrong_is_found, setup, sound),
        cmocka_unit_test_setup_teardown(without_a_release_spans_stay, setup, sound),
        cmocka_unit_test_setup_teardown(reclaim_is_asked_once_before_a_failure, setup, sound),
        cmocka_unit_test_setup_teardown(quantum_caches_without_slabs_bother_nobody, setup, sound),
        cmocka_unit_test_setup_teardown(statistics_have_a_row_for_each, setup, sound),
        cmocka_unit_test_setup_teardown(arenas_beyond_the_last_row_are_counted_together, setup, sound),
        cmocka_unit_test_setup_teardown(check_looks_into_each, setup, sound),
        cmocka_unit_test_setup_teardown(fork_locks_all_and_frees_all, setup, sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
