/*
 * test_memory.c - boundary tags and hash tables: where their memory comes from, what happens without it, and that it goes back.
 */
#include "unit/arena/arena_units.h"

static void the_first_tags_need_no_memory(void **state) {
    (void)state;
    struct arena small;
    uint64_t start;
    ASSERT_OK(arena_init(&small, "small", 1, NULL, NULL, 0));
    ASSERT_OK(arena_add(&small, 0, 100));
    for (uint64_t i = 0; i < ARENA_BOOT_TAGS - 2; i++) assert_int_equal(must_alloc(&small, 1, 0), i);
    assert_int_equal(stats_of(&small).tags_spare, 0);
    ASSERT_STATUS(arena_alloc(&small, 1, 0, &start), ARENA_NO_TAGS);
    ASSERT_STATUS(arena_add(&small, 200, 1), ARENA_NO_TAGS);
    ASSERT_SOUND(&small);
    assert_int_equal(must_alloc(&small, 100 - (ARENA_BOOT_TAGS - 2), 0), ARENA_BOOT_TAGS - 2); /* an exact fit takes none */
    ASSERT_STATUS(arena_resize(&small, ARENA_BOOT_TAGS - 2, 100 - (ARENA_BOOT_TAGS - 2), 10), ARENA_NO_TAGS);
    ASSERT_SOUND(&small);
    ASSERT_OK(arena_free(&small, 5, 1)); /* a free never takes one */
    ASSERT_OK(arena_free(&small, 4, 1));
    ASSERT_OK(arena_resize(&small, ARENA_BOOT_TAGS - 2, 100 - (ARENA_BOOT_TAGS - 2), 10));
    ASSERT_SOUND(&small);
}

static void without_memory_requests_fail_and_frees_do_not(void **state) {
    (void)state;
    enum { N = 3000 };
    static uint64_t starts[N];
    uint64_t n = 0, start;
    memory.fail_after = 4;
    ASSERT_OK(arena_add(&arena, 0, 1 << 20));
    while (n < N && arena_alloc(&arena, 3, 0, &starts[n]) == ARENA_OK) n++;
    assert_true(n > ARENA_BOOT_TAGS && n < N);
    ASSERT_STATUS(arena_alloc(&arena, 3, 0, &start), ARENA_NO_TAGS);
    ASSERT_STATUS(arena_add(&arena, 1 << 21, 1), ARENA_NO_TAGS);
    ASSERT_SOUND(&arena);
    for (uint64_t i = 0; i < n; i += 2) ASSERT_OK(arena_free(&arena, starts[i], 3));
    ASSERT_SOUND(&arena);
    for (uint64_t i = 0; i < n; i += 2) starts[i] = must_alloc(&arena, 3, ARENA_BEST_FIT); /* exact fits again */
    ASSERT_STATUS(arena_alloc(&arena, 3, 0, &start), ARENA_NO_TAGS);
    memory.fail_after = UINT64_MAX;
    start = must_alloc(&arena, 3, 0);
    ASSERT_OK(arena_free(&arena, start, 3));
    for (uint64_t i = 0; i < n; i++) ASSERT_OK(arena_free(&arena, starts[i], 3));
    ASSERT_SOUND(&arena);
    assert_int_equal(must_alloc(&arena, 1 << 20, 0), 0);
}

struct counting_source {
    uint64_t allocs, releases;
    bool forks;               /* the source makes a child, and goes on there */
    bool steals;              /* asks for a tag while the source runs, as another thread would */
    enum arena_status stolen; /* what it was told */
};

static enum arena_status counting_alloc(void *source, uint64_t size, unsigned flags, uint64_t *start, uint64_t *got) {
    struct counting_source *counting = source;
    (void)flags;
    *start = (uint64_t)++counting->allocs << 32;
    *got = size;
    if (counting->forks) {
        arena_fork_prepare(&arena);
        sim_fork_child();
        arena_fork_child(&arena);
    }
    if (counting->steals) counting->stolen = arena_resize(&arena, 0, 1 << 20, (1 << 20) - 1);
    return ARENA_OK;
}

static void counting_release(void *source, uint64_t start, uint64_t size) {
    (void)start;
    (void)size;
    ((struct counting_source *)source)->releases++;
}

static void an_import_has_its_tags_before_it_asks(void **state) {
    (void)state;
    static const struct arena_source source = {counting_alloc, counting_release};
    struct counting_source counting = {0};
    uint64_t start;
    memory.fail_after = 0;
    ASSERT_OK(arena_add(&arena, 0, 1 << 20));
    assert_int_equal(must_alloc(&arena, 1 << 20, 0), 0);
    arena_set_source(&arena, &source, &counting);
    while (stats_of(&arena).tags_spare >= 4) (void)must_alloc(&arena, 7, 0); /* each a span of its own: two tags */
    uint64_t allocs = counting.allocs;
    ASSERT_STATUS(arena_alloc(&arena, 7, 0, &start), ARENA_NO_TAGS);
    assert_int_equal(counting.allocs, allocs); /* not even asked */
    memory.fail_after = 0;
    ASSERT_OK(arena_free(&arena, (uint64_t)1 << 32, 7));
    assert_int_equal(counting.releases, 1);
    counting.steals = true;
    assert_int_equal(stats_of(&arena).tags_spare, 4);
    start = must_alloc(&arena, 7, 0);
    ASSERT_STATUS(counting.stolen, ARENA_NO_TAGS);
    ASSERT_OK(arena_free(&arena, start, 7));
    assert_int_equal(counting.releases, 2);
    counting.forks = true; /* the child knows nothing of threads that import: what comes goes back where there are no tags */
    ASSERT_STATUS(arena_alloc(&arena, 7, 0, &start), ARENA_NO_TAGS);
    ASSERT_OK(counting.stolen);
    assert_int_equal(counting.releases, 3);
    ASSERT_SOUND(&arena);
}

/* There is nobody to give it back to. */
static void an_import_for_good_is_never_forgotten(void **state) {
    (void)state;
    static const struct arena_source source = {counting_alloc, NULL};
    struct counting_source counting = {0};
    memory.fail_after = 0;
    ASSERT_OK(arena_add(&arena, 0, 1 << 20));
    assert_int_equal(must_alloc(&arena, 1 << 20, 0), 0);
    arena_set_source(&arena, &source, &counting);
    while (stats_of(&arena).tags_spare > 4) (void)must_alloc(&arena, 7, 0); /* each a span of its own: two tags */
    counting.steals = true;
    (void)must_alloc(&arena, 7, 0);
    ASSERT_STATUS(counting.stolen, ARENA_NO_TAGS);
    assert_true(arena_contains(&arena, counting.allocs << 32, 7));
    ASSERT_OK(arena_resize(&arena, 0, 1 << 20, (1 << 20) - 1)); /* what the import had no use for is everybody's again */
    ASSERT_SOUND(&arena);
}

static void tags_and_tables_grow_and_go_back(void **state) {
    (void)state;
    enum { N = 40000 };
    static uint64_t starts[N];
    ASSERT_OK(arena_add(&arena, 0, 4 * N));
    for (unsigned i = 0; i < N; i++) {
        starts[i] = must_alloc(&arena, 3, 0);
        if ((i & (i - 1)) == 0 || i % 997 == 0) ASSERT_SOUND(&arena); /* also half way through a move of the table */
    }
    struct arena_stats full = stats_of(&arena);
    assert_int_equal(full.hash_buckets, 65536);
    assert_true(full.tags_total - full.tags_spare == N + 2);
    for (unsigned i = 0; i < N; i++) {
        uint64_t size;
        ASSERT_OK(arena_lookup(&arena, starts[i], &size));
    }
    for (unsigned i = 0; i < N; i++) {
        ASSERT_OK(arena_free(&arena, starts[(uint64_t)i * 7919 % N], 3));
        if (i % 997 == 0) ASSERT_SOUND(&arena);
    }
    ASSERT_SOUND(&arena);
    struct arena_stats empty = stats_of(&arena);
    assert_true(empty.tag_batches <= 3);
    assert_int_equal(empty.hash_buckets, ARENA_BOOT_BUCKETS);
    assert_int_equal(memory.held_bytes, empty.tag_batches * ARENA_BATCH_BYTES);
    ASSERT_OK(arena_destroy(&arena));
    assert_int_equal(memory.held_bytes, 0);
}

/* The table shrinks step by step as well, down to the one inside the struct. */
static void tables_shrink_while_some_remain(void **state) {
    (void)state;
    enum { N = 5000 };
    static uint64_t starts[N];
    uint64_t least = UINT64_MAX;
    ASSERT_OK(arena_add(&arena, 0, N));
    for (unsigned i = 0; i < N; i++) starts[i] = must_alloc(&arena, 1, 0);
    assert_int_equal(stats_of(&arena).hash_buckets, 8192);
    for (unsigned i = 0; i < N - 3; i++) ASSERT_OK(arena_free(&arena, starts[i], 1));
    for (unsigned i = 0; i < 4 * N; i++) {
        ASSERT_OK(arena_free(&arena, must_alloc(&arena, 1, 0), 1));
        uint64_t buckets = stats_of(&arena).hash_buckets;
        assert_true(buckets <= 8192);
        if (buckets < least) {
            least = buckets;
            ASSERT_SOUND(&arena);
        }
    }
    assert_int_equal(least, ARENA_BOOT_BUCKETS);
    for (unsigned i = N - 3; i < N; i++) ASSERT_OK(arena_free(&arena, starts[i], 1));
    ASSERT_SOUND(&arena);
}

static void a_table_that_can_not_grow_still_works(void **state) {
    (void)state;
    enum { N = 2000 };
    static uint64_t starts[N];
    ASSERT_OK(arena_add(&arena, 0, N + 5));
    for (unsigned i = 0; i < N; i++) {
        /* Only where tags run short is there memory. */
        memory.fail_after = stats_of(&arena).tags_spare < 12 ? 1 : 0;
        starts[i] = must_alloc(&arena, 1, 0);
    }
    assert_true(stats_of(&arena).hash_buckets <= 512);
    assert_in_range(memory.refusals, 1, 30); /* it is not asked for again every time */
    ASSERT_SOUND(&arena);
    memory.fail_after = UINT64_MAX;
    for (unsigned i = 0; i < 4; i++) ASSERT_OK(arena_free(&arena, must_alloc(&arena, 1, 0), 1)); /* not too soon after a failure */
    for (unsigned i = 0; i < N; i++) ASSERT_OK(arena_free(&arena, starts[i], 1));
    ASSERT_SOUND(&arena);
}

static void a_shrink_asks_for_the_tag_that_it_needs(void **state) {
    (void)state;
    uint64_t start = 0;
    memory.fail_after = 0;
    ASSERT_OK(arena_add(&arena, 0, 1000));
    while (arena_alloc(&arena, 10, 0, &start) == ARENA_OK) {}
    assert_int_equal(stats_of(&arena).tags_spare, 0);
    ASSERT_STATUS(arena_resize(&arena, 0, 10, 5), ARENA_NO_TAGS);
    memory.fail_after = 1;
    ASSERT_OK(arena_resize(&arena, 0, 10, 5));
    ASSERT_SOUND(&arena);
}

/* ------------------------------------------------------------------ while a new table is on its way */

static struct memory late_memory;
static uint64_t late_starts[4096], late_count;
static bool late_done;

/* The others free all there is (0 up to late_count), and allocate so much that they want a larger table too. */
static void *late_get(void *ctx, size_t bytes) {
    void *result = memory_get(ctx, bytes);
    if (late_done || bytes < 2048 * sizeof(void *)) return result;
    late_done = true;
    for (uint64_t i = 0; i <= late_count; i++) ASSERT_OK(arena_free(&arena, i, 1)); /* also the one that is being allocated */
    for (late_count = 0; late_count < 3000; late_count++) late_starts[late_count] = must_alloc(&arena, 1, 0);
    ASSERT_SOUND(&arena);
    return result;
}

static void a_table_that_comes_late_is_no_harm(void **state) {
    (void)state;
    static const struct arena_ops ops = {.memory_get = late_get, .memory_put = memory_put};
    memory_init(&late_memory);
    late_count = 0;
    late_done = false;
    ASSERT_OK(arena_init(&arena, "late", 1, &ops, &late_memory, 0));
    ASSERT_OK(arena_add(&arena, 0, 8192));
    while (!late_done) {
        uint64_t start = must_alloc(&arena, 1, 0);
        if (late_done) break;
        assert_int_equal(start, late_count);
        late_starts[late_count++] = start;
    }
    ASSERT_SOUND(&arena);
    for (uint64_t i = 0; i < 200; i++) late_starts[late_count++] = must_alloc(&arena, 1, 0);
    ASSERT_SOUND(&arena);
    assert_true(arena_size(&arena, ARENA_ALLOCATED) >= 3200);
    for (uint64_t i = 0; i < late_count; i++) ASSERT_OK(arena_free(&arena, late_starts[i], 1));
    ASSERT_SOUND(&arena);
    memory_drop(&late_memory);
}

/* A few allocations up and down must not get and put memory every time. */
static void memory_does_not_bounce(void **state) {
    (void)state;
    enum { N = 1000 };
    static uint64_t starts[N];
    ASSERT_OK(arena_add(&arena, 0, N));
    for (unsigned i = 0; i < N; i++) starts[i] = must_alloc(&arena, 1, 0);
    uint64_t gets = memory.gets;
    for (unsigned round = 0; round < 1000; round++) {
        for (unsigned i = 0; i < 60; i++) ASSERT_OK(arena_free(&arena, starts[i], 1));
        for (unsigned i = 0; i < 60; i++) starts[i] = must_alloc(&arena, 1, 0);
    }
    assert_true(memory.gets <= gets + 2);
    ASSERT_SOUND(&arena);
}

/* ------------------------------------------------------------------ tags from the arena itself */

#define HEAP_PAGES 512
static _Alignas(ARENA_BATCH_BYTES) unsigned char heap_memory[HEAP_PAGES][ARENA_BATCH_BYTES];
static struct arena heap;
static uint64_t heap_gets, heap_puts;

static void *heap_get(void *ctx, size_t bytes) {
    uint64_t start;
    (void)ctx;
    heap_gets++;
    return arena_alloc(&heap, bytes, 0, &start) == ARENA_OK ? (void *)(uintptr_t)start : NULL;
}

static void heap_put(void *ctx, void *memory_, size_t bytes) {
    (void)ctx;
    heap_puts++;
    ASSERT_OK(arena_free(&heap, (uintptr_t)memory_, bytes));
}

static void an_arena_may_hold_its_own_tags(void **state) {
    (void)state;
    static const struct arena_ops ops = {.memory_get = heap_get, .memory_put = heap_put};
    static uint64_t starts[HEAP_PAGES];
    uint64_t n = 0;
    ASSERT_OK(arena_init(&heap, "heap", ARENA_BATCH_BYTES, &ops, NULL, 0));
    ASSERT_OK(arena_add(&heap, (uintptr_t)heap_memory, sizeof heap_memory));
    heap_gets = heap_puts = 0;
    for (unsigned round = 0; round < 3; round++) {
        for (n = 0; arena_alloc(&heap, ARENA_BATCH_BYTES, 0, &starts[n]) == ARENA_OK; n++) {
            memset((void *)(uintptr_t)starts[n], 0x5a, ARENA_BATCH_BYTES); /* it is ours alone */
            ASSERT_SOUND(&heap);
        }
        assert_true(heap_gets >= 5 && n + heap_gets - heap_puts <= HEAP_PAGES && n > HEAP_PAGES - 20);
        for (uint64_t i = 0; i < n; i++) ASSERT_OK(arena_free(&heap, starts[(i * 67) % n], ARENA_BATCH_BYTES));
        ASSERT_SOUND(&heap);
    }
    assert_true(heap_puts > 5);
    assert_true(arena_size(&heap, ARENA_ALLOCATED) <= 5 * ARENA_BATCH_BYTES);
}

/* A memory_get that can never be satisfied without another one ends in ARENA_NO_TAGS, not in endless recursion. */
static struct arena circular;
static void *circular_get(void *ctx, size_t bytes) {
    uint64_t start;
    (void)ctx;
    (void)bytes;
    return arena_xalloc(&circular, 1, 2, 1, 0, 0, 0, 0, &start) == ARENA_OK ? NULL : NULL;
}

static void recursion_in_memory_get_ends(void **state) {
    (void)state;
    static const struct arena_ops ops = {.memory_get = circular_get};
    uint64_t start;
    ASSERT_OK(arena_init(&circular, "circular", 1, &ops, NULL, 0));
    ASSERT_OK(arena_add(&circular, 0, 1 << 20));
    while (arena_xalloc(&circular, 1, 2, 1, 0, 0, 0, 0, &start) == ARENA_OK) {}
    ASSERT_STATUS(arena_xalloc(&circular, 1, 2, 1, 0, 0, 0, 0, &start), ARENA_NO_TAGS);
    ASSERT_SOUND(&circular);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_first_tags_need_no_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(without_memory_requests_fail_and_frees_do_not, setup, teardown),
        cmocka_unit_test_setup_teardown(an_import_has_its_tags_before_it_asks, setup, teardown),
        cmocka_unit_test_setup_teardown(an_import_for_good_is_never_forgotten, setup, teardown),
        cmocka_unit_test_setup_teardown(tags_and_tables_grow_and_go_back, setup, teardown),
        cmocka_unit_test_setup_teardown(tables_shrink_while_some_remain, setup, teardown),
        cmocka_unit_test_setup_teardown(a_table_that_can_not_grow_still_works, setup, teardown),
        cmocka_unit_test_setup_teardown(a_shrink_asks_for_the_tag_that_it_needs, setup, teardown),
        cmocka_unit_test_setup_teardown(a_table_that_comes_late_is_no_harm, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_does_not_bounce, setup, teardown),
        cmocka_unit_test_setup_teardown(an_arena_may_hold_its_own_tags, setup, teardown),
        cmocka_unit_test_setup_teardown(recursion_in_memory_get_ends, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
