/*
 * test_callouts.c - what an arena calls, and how: quantum caches, reclaim, sleep and wake, and what fork asks.
 */
#include "unit/arena/arena_units.h"

/* ------------------------------------------------------------------ quantum caches */

/* A cache that cuts slabs and keeps what is freed. */
struct fake_cache {
    struct arena *arena;
    uint64_t object_size, slab_size;
    uint64_t objects[64], count;
    uint64_t slabs[16], slab_count;
    uint64_t allocs, frees, outside;
    unsigned flags;
};
static struct fake_cache caches[ARENA_QCACHES_MAX];
static unsigned caches_used, caches_limit;

static void *cache_create(void *ctx, struct arena *owner, uint64_t object_size, uint64_t slab_size) {
    assert_ptr_equal(ctx, caches);
    if (caches_used == caches_limit) return NULL;
    caches[caches_used] = (struct fake_cache){.arena = owner, .object_size = object_size, .slab_size = slab_size};
    return &caches[caches_used++];
}

static enum arena_status cache_destroy(void *cache) {
    struct fake_cache *fake = cache;
    if (fake->outside != 0) return ARENA_BUSY;
    for (uint64_t i = 0; i < fake->slab_count; i++) ASSERT_OK(arena_slab_free(fake->arena, fake->slabs[i], fake->slab_size));
    *fake = (struct fake_cache){0};
    caches_used--;
    return ARENA_OK;
}

static enum arena_status cache_alloc(void *cache, unsigned flags, uint64_t *start) {
    struct fake_cache *fake = cache;
    assert_int_equal(sim_locks_held(), 0);
    fake->allocs++;
    fake->flags = flags;
    if (fake->count == 0) {
        uint64_t slab;
        enum arena_status status = arena_slab_alloc(fake->arena, fake->slab_size, fake->arena->quantum, &slab);
        if (status != ARENA_OK) return status;
        fake->slabs[fake->slab_count++] = slab;
        for (uint64_t i = fake->slab_size / fake->object_size; i-- != 0;) fake->objects[fake->count++] = slab + i * fake->object_size;
    }
    *start = fake->objects[--fake->count];
    fake->outside++;
    return ARENA_OK;
}

static enum arena_status cache_free(void *cache, uint64_t start) {
    struct fake_cache *fake = cache;
    assert_int_equal(sim_locks_held(), 0);
    if (start == 999) return ARENA_NOT_ALLOCATED;
    fake->frees++;
    fake->objects[fake->count++] = start;
    fake->outside--;
    return ARENA_OK;
}

static const struct arena_qcache_ops cache_ops = {.create = cache_create, .destroy = cache_destroy, .alloc = cache_alloc, .free = cache_free};

static void small_sizes_go_to_quantum_caches(void **state) {
    (void)state;
    struct arena pages;
    uint64_t start;
    caches_used = 0;
    caches_limit = ARENA_QCACHES_MAX;
    ASSERT_OK(arena_init(&pages, "pages", 4, &memory_ops, &memory, 0));
    ASSERT_OK(arena_add(&pages, 0, 1024));
    ASSERT_STATUS(arena_set_quantum_caches(&pages, NULL, caches, 20), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_set_quantum_caches(&pages, &cache_ops, caches, 0), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_set_quantum_caches(&pages, &cache_ops, caches, 18), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_set_quantum_caches(&pages, &cache_ops, caches, 4 * (ARENA_QCACHES_MAX + 1)), ARENA_BAD_ARGUMENT);
    ASSERT_OK(arena_set_quantum_caches(&pages, &cache_ops, caches, 20));
    ASSERT_STATUS(arena_set_quantum_caches(&pages, &cache_ops, caches, 20), ARENA_BAD_ARGUMENT); /* there are some already */
    assert_int_equal(caches_used, 5);
    for (uint64_t i = 0; i < 5; i++) {
        assert_int_equal(caches[i].object_size, 4 * (i + 1));
        assert_int_equal(caches[i].slab_size, 64); /* the next power of two above 60 */
    }
    uint64_t a = must_alloc(&pages, 4, 0), b = must_alloc(&pages, 17, ARENA_BEST_FIT), c = must_alloc(&pages, 20, 0), d = must_alloc(&pages, 21, 0);
    assert_int_equal(caches[0].allocs, 1);
    assert_int_equal(caches[4].allocs, 2);
    assert_int_equal(caches[4].flags, ARENA_INSTANT_FIT);
    assert_int_equal(arena_size(&pages, ARENA_ALLOCATED), 64 + 64 + 24);
    ASSERT_OK(arena_xalloc(&pages, 4, 0, 0, 0, 0, 0, 0, &start)); /* around the caches */
    ASSERT_OK(arena_xfree(&pages, start, 4));
    assert_int_equal(caches[0].allocs + caches[0].frees, 1);
    ASSERT_STATUS(arena_alloc(&pages, 0, 0, &start), ARENA_BAD_ARGUMENT);
    ASSERT_STATUS(arena_free(&pages, 999, 3), ARENA_NOT_ALLOCATED); /* the cache's word counts */
    ASSERT_STATUS(arena_destroy(&pages), ARENA_BUSY);
    ASSERT_OK(arena_free(&pages, a, 4));
    assert_int_equal(caches[0].frees, 1);
    ASSERT_STATUS(arena_destroy(&pages), ARENA_BUSY); /* objects of 20 are out; the caches below are gone */
    a = must_alloc(&pages, 4, 0);
    assert_int_equal(caches[0].allocs, 0);
    ASSERT_OK(arena_free(&pages, a, 4));
    ASSERT_OK(arena_free(&pages, b, 17));
    ASSERT_OK(arena_free(&pages, c, 20));
    ASSERT_OK(arena_free(&pages, d, 21));
    ASSERT_SOUND(&pages);
    ASSERT_OK(arena_destroy(&pages));
    assert_int_equal(caches_used, 0);
}

static void quantum_caches_come_all_or_none(void **state) {
    (void)state;
    caches_used = 0;
    caches_limit = 3;
    ASSERT_OK(arena_add(&arena, 0, 100));
    ASSERT_STATUS(arena_set_quantum_caches(&arena, &cache_ops, caches, 5), ARENA_NO_SPACE);
    assert_int_equal(caches_used, 0);
    (void)must_alloc(&arena, 1, 0);
    assert_int_equal(arena_size(&arena, ARENA_ALLOCATED), 1);
}

/* By start and size a slab is a segment like any other, but it is not everybody's. */
static void slabs_are_their_caches(void **state) {
    (void)state;
    uint64_t slab, start;
    ASSERT_OK(arena_add(&arena, 0, 100));
    ASSERT_OK(arena_slab_alloc(&arena, 16, 16, &slab));
    assert_int_equal(slab, 0);
    assert_false(arena_in_use(&arena));
    ASSERT_OK(arena_xalloc(&arena, 16, 0, 0, 0, 16, 32, 0, &start));
    assert_true(arena_in_use(&arena));
    ASSERT_STATUS(arena_free(&arena, slab, 16), ARENA_NOT_ALLOCATED);
    ASSERT_STATUS(arena_xfree(&arena, slab, 16), ARENA_NOT_ALLOCATED);
    ASSERT_STATUS(arena_take_back(&arena, slab, 16), ARENA_NOT_ALLOCATED);
    ASSERT_STATUS(arena_resize(&arena, slab, 16, 8), ARENA_NOT_ALLOCATED);
    ASSERT_STATUS(arena_split(&arena, slab, 16, 8), ARENA_NOT_ALLOCATED);
    ASSERT_STATUS(arena_join(&arena, slab, 16, 16), ARENA_NOT_ALLOCATED);
    ASSERT_STATUS(arena_slab_free(&arena, start, 16), ARENA_NOT_ALLOCATED);
    ASSERT_STATUS(arena_slab_free(&arena, slab, 8), ARENA_SIZE_MISMATCH);
    ASSERT_SOUND(&arena);
    ASSERT_OK(arena_slab_free(&arena, slab, 16));
    ASSERT_STATUS(arena_slab_free(&arena, slab, 16), ARENA_NOT_ALLOCATED);
    ASSERT_OK(arena_xalloc(&arena, 16, 0, 0, 0, 0, 16, 0, &slab)); /* the place is anybody's again */
    ASSERT_OK(arena_xfree(&arena, slab, 16));
    ASSERT_OK(arena_slab_alloc(&arena, 16, 32, &slab));
    ASSERT_STATUS(arena_join(&arena, start, 16, 16), ARENA_NOT_ALLOCATED);
    ASSERT_OK(arena_xfree(&arena, start, 16));
    assert_false(arena_in_use(&arena));
    ASSERT_STATUS(arena_destroy(&arena), ARENA_BUSY);
    ASSERT_OK(arena_slab_free(&arena, slab, 16));
    ASSERT_SOUND(&arena);
    ASSERT_OK(arena_destroy(&arena));
}

static void slabs_of_quantum_caches_are_powers_of_two_above_three_objects(void **state) {
    (void)state;
    for (uint64_t max = 1; max < 1000; max++) {
        uint64_t slab = arena_quantum_slab_size(max);
        assert_true(is_power_of_two(slab) && slab > 3 * max && slab / 2 <= 3 * max);
    }
}

/* ------------------------------------------------------------------ reclaim, sleep, wake */

struct script {
    unsigned reclaims, waits, wakes;
    uint64_t reclaim_size;
    bool reclaim_result, reclaim_frees;
    unsigned frees_in_wait; /* which wait (1: the first) frees the segment; earlier ones return for no reason */
    bool gives_up;
    uint64_t start, size; /* what reclaim or wait frees */
    bool changed;         /* wait found the word changed already */
};
static struct script script;

static bool script_reclaim(void *ctx, uint64_t size, bool again) {
    (void)ctx;
    assert_int_equal(again, script.waits != 0);
    assert_int_equal(sim_locks_held(), 0);
    script.reclaims++;
    script.reclaim_size = size;
    if (script.reclaim_frees) ASSERT_OK(arena_free(&arena, script.start, script.size));
    script.reclaim_frees = false;
    return script.reclaim_result;
}

static bool script_wait(void *ctx, const uint32_t *word, uint32_t seen) {
    (void)ctx;
    assert_int_equal(sim_locks_held(), 0);
    assert_int_equal(stats_of(&arena).waiters, 1);
    script.changed = __atomic_load_n(word, __ATOMIC_ACQUIRE) != seen;
    if (++script.waits == script.frees_in_wait) {
        ASSERT_OK(arena_free(&arena, script.start, script.size));
        assert_true(*word != seen);
    }
    return !script.gives_up;
}

static void script_wake(void *ctx, const uint32_t *word) {
    (void)ctx;
    assert_int_equal(sim_locks_held(), 0);
    assert_ptr_equal(word, &arena.generation);
    script.wakes++;
}

static const struct arena_ops script_ops = {.reclaim = script_reclaim, .wait = script_wait, .wake = script_wake};

static void begin_script(void) {
    script = (struct script){.size = 10};
    ASSERT_OK(arena_init(&arena, "scripted", 1, &script_ops, NULL, 0));
    ASSERT_OK(arena_add(&arena, 0, 10));
    script.start = must_alloc(&arena, 10, 0);
}

static void reclaim_is_asked_once_before_failure(void **state) {
    (void)state;
    uint64_t start;
    begin_script();
    ASSERT_STATUS(arena_alloc(&arena, 7, 0, &start), ARENA_NO_SPACE);
    assert_int_equal(script.reclaims, 1);
    assert_int_equal(script.reclaim_size, 7);
    script.reclaim_result = true;
    ASSERT_STATUS(arena_alloc(&arena, 7, 0, &start), ARENA_NO_SPACE); /* no second time, though it says yes */
    assert_int_equal(script.reclaims, 2);
    script.reclaim_frees = true;
    ASSERT_OK(arena_alloc(&arena, 7, 0, &start));
    assert_int_equal(script.reclaims, 3);
    assert_int_equal(script.wakes, 0);
    assert_int_equal(stats_of(&arena).counters.failures, 2);
    ASSERT_SOUND(&arena);
}

static void a_sleeper_gets_what_is_freed(void **state) {
    (void)state;
    uint64_t start;
    begin_script();
    script.frees_in_wait = 3;
    ASSERT_OK(arena_alloc(&arena, 10, ARENA_SLEEP, &start));
    assert_int_equal(start, 0);
    assert_int_equal(script.waits, 3);
    assert_int_equal(script.wakes, 1);
    assert_int_equal(script.reclaims, 1); /* before every sleep; to wake for no reason does not end it */
    assert_int_equal(stats_of(&arena).counters.waits, 1);
    assert_int_equal(stats_of(&arena).counters.failures, 0);
    assert_int_equal(stats_of(&arena).waiters, 0);
    ASSERT_OK(arena_free(&arena, start, 10));
    assert_int_equal(script.wakes, 1); /* nobody sleeps any more */
    ASSERT_SOUND(&arena);
}

static void a_sleeper_may_give_up(void **state) {
    (void)state;
    uint64_t start;
    begin_script();
    script.gives_up = true;
    ASSERT_STATUS(arena_alloc(&arena, 10, ARENA_SLEEP, &start), ARENA_NO_SPACE);
    assert_int_equal(stats_of(&arena).waiters, 0);
    assert_int_equal(stats_of(&arena).counters.failures, 1);
    ASSERT_SOUND(&arena);
}

/* What is freed between the search and the sleep is not missed: the word differs from what the sleeper saw. */
static void a_free_before_the_sleep_is_seen(void **state) {
    (void)state;
    uint64_t start;
    begin_script();
    script.reclaim_frees = true; /* but says that nothing changed */
    ASSERT_OK(arena_alloc(&arena, 10, ARENA_SLEEP, &start));
    assert_int_equal(script.waits, 1);
    assert_true(script.changed);
}

static bool wait_and_add(void *ctx, const uint32_t *word, uint32_t seen) {
    (void)ctx;
    if (script.waits++ == 0)
        ASSERT_OK(arena_add(&arena, 100, 10));
    else
        ASSERT_OK(arena_resize(&arena, 0, 10, 4));
    return *word != seen;
}

static void spans_and_shrinks_wake_too(void **state) {
    (void)state;
    static const struct arena_ops ops = {.wait = wait_and_add, .wake = script_wake};
    uint64_t start;
    script = (struct script){0};
    ASSERT_OK(arena_init(&arena, "scripted", 1, &ops, NULL, 0));
    ASSERT_OK(arena_add(&arena, 0, 10));
    (void)must_alloc(&arena, 10, 0);
    ASSERT_OK(arena_alloc(&arena, 10, ARENA_SLEEP, &start));
    assert_int_equal(start, 100);
    ASSERT_OK(arena_xalloc(&arena, 6, 0, 0, 0, 0, 50, ARENA_SLEEP | ARENA_NEXT_FIT, &start));
    assert_int_equal(start, 4);
    assert_int_equal(script.wakes, 2);
}

static enum arena_status refuse_then_give(void *source, uint64_t size, unsigned flags, uint64_t *start, uint64_t *got) {
    (void)source;
    (void)flags;
    *start = 1000;
    *got = 10 * size;
    return script.waits == 0 ? ARENA_NO_SPACE : ARENA_OK;
}

static bool wait_while_others_import(void *ctx, const uint32_t *word, uint32_t seen) {
    (void)ctx;
    script.waits++;
    (void)must_alloc(&arena, 5, 0);
    return *word != seen;
}

static void what_an_import_brings_on_top_wakes_too(void **state) {
    (void)state;
    static const struct arena_ops ops = {.wait = wait_while_others_import, .wake = script_wake};
    static const struct arena_source source = {refuse_then_give, NULL};
    uint64_t start;
    script = (struct script){0};
    ASSERT_OK(arena_init(&arena, "scripted", 1, &ops, NULL, 0));
    arena_set_source(&arena, &source, NULL);
    ASSERT_OK(arena_alloc(&arena, 7, ARENA_SLEEP, &start));
    assert_int_equal(start, 1005);
    assert_int_equal(script.waits, 1);
    assert_int_equal(script.wakes, 1);
}

/* ------------------------------------------------------------------ statistics and fork */

static void statistics_count_what_happened(void **state) {
    (void)state;
    struct arena_stats stats;
    ASSERT_OK(arena_add(&arena, 0, 100));
    (void)must_alloc(&arena, 10, 0);
    ASSERT_OK(arena_free(&arena, must_alloc(&arena, 20, 0), 20));
    uint64_t start;
    ASSERT_STATUS(arena_alloc(&arena, 91, 0, &start), ARENA_NO_SPACE);
    arena_stats_get(&arena, &stats);
    assert_string_equal(stats.name, "units");
    assert_int_equal(stats.quantum, 1);
    assert_int_equal(stats.total, 100);
    assert_int_equal(stats.allocated, 10);
    assert_int_equal(stats.free, 90);
    assert_int_equal(stats.spans, 1);
    assert_int_equal(stats.segments_allocated, 1);
    assert_int_equal(stats.segments_free, 1);
    assert_int_equal(stats.counters.allocs, 2);
    assert_int_equal(stats.counters.frees, 1);
    assert_int_equal(stats.counters.failures, 1);
    assert_int_equal(stats.tags_total - stats.tags_spare, 3);
}

static void fork_holds_the_lock_and_the_child_starts_afresh(void **state) {
    (void)state;
    ASSERT_OK(arena_add(&arena, 0, 100));
    arena_fork_prepare(&arena);
    assert_int_equal(arena.lock.word, PLATFORM_LOCK_FORK);
    arena_fork_parent(&arena);
    assert_int_equal(arena.lock.word, PLATFORM_LOCK_FREE);
    (void)must_alloc(&arena, 1, 0);
    arena.waiters = 3; /* threads that were sleeping, and getting memory, when the process forked */
    arena.refills = 2;
    arena.importing = 5;
    arena.tags_promised = 4;
    arena.limit_denied = true;
    arena.hash_busy = true;
    arena_fork_prepare(&arena);
    sim_fork_child();
    arena_fork_child(&arena);
    assert_int_equal(arena.lock.word, PLATFORM_LOCK_FREE);
    assert_int_equal(stats_of(&arena).waiters, 0);
    assert_int_equal(arena.refills, 0);
    assert_int_equal(arena.importing, 0);
    assert_int_equal(arena.tags_promised, 0);
    assert_false(arena.limit_denied);
    for (unsigned i = 1; i < 50; i++) (void)must_alloc(&arena, 1, 0);
    assert_true(memory.gets >= 2); /* tags, and the table: nobody waits for those who are gone */
    assert_true(stats_of(&arena).hash_buckets > ARENA_BOOT_BUCKETS);
    ASSERT_SOUND(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(small_sizes_go_to_quantum_caches, setup, teardown),
        cmocka_unit_test_setup_teardown(quantum_caches_come_all_or_none, setup, teardown),
        cmocka_unit_test_setup_teardown(slabs_are_their_caches, setup, teardown),
        cmocka_unit_test_setup_teardown(slabs_of_quantum_caches_are_powers_of_two_above_three_objects, setup, teardown),
        cmocka_unit_test_setup_teardown(reclaim_is_asked_once_before_failure, setup, teardown),
        cmocka_unit_test_setup_teardown(a_sleeper_gets_what_is_freed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_sleeper_may_give_up, setup, teardown),
        cmocka_unit_test_setup_teardown(a_free_before_the_sleep_is_seen, setup, teardown),
        cmocka_unit_test_setup_teardown(spans_and_shrinks_wake_too, setup, teardown),
        cmocka_unit_test_setup_teardown(what_an_import_brings_on_top_wakes_too, setup, teardown),
        cmocka_unit_test_setup_teardown(statistics_count_what_happened, setup, teardown),
        cmocka_unit_test_setup_teardown(fork_holds_the_lock_and_the_child_starts_afresh, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
