/*
 * test_debug_life.c - debugged buffers from one end of their life to the other: contents, features on and off, walks, logs.
 *
 * What it protects: a buffer is debugged or ordinary for life, whatever is switched meanwhile; sizes and alignments are what was asked for;
 * constructions and destructions balance; walks and logs find what is there; kmem's frees believe the size when they may.
 */
#include "strata/kmem.h"
#include "unit/api/debug_support.h"

static struct strata_cache *things;
static char name[] = "malloc-208";

/* ------------------------------------------------------------------ contents of buffers */

static void sizes_and_alignments_are_exact(void **state) {
    (void)state;
    begin("debug:default");
    for (size_t align = 16; align <= 4096; align *= 2) {
        char *p = strata_memalign(align, 100);
        assert_int_equal((uintptr_t)p % align, 0);
        assert_int_equal(strata_malloc_usable_size(p), 100);
        memset(p, 5, 100);
        p = strata_realloc(p, 200);
        assert_int_equal(strata_malloc_usable_size(p), 200);
        for (unsigned i = 0; i < 100; i++) assert_int_equal(p[i], 5);
        p = strata_realloc(p, 60);
        assert_int_equal(strata_malloc_usable_size(p), 60);
        for (unsigned i = 0; i < 60; i++) assert_int_equal(p[i], 5);
        assert_null(strata_realloc(p, 0));
    }
    char *zeros = strata_calloc(7, 13);
    for (unsigned i = 0; i < 91; i++) assert_int_equal(zeros[i], 0);
    put(zeros);
    uint64_t *fresh = get(64);
    for (unsigned i = 0; i < 8; i++) assert_true(fresh[i] == STRATA_DEBUG_FRESH_PATTERN);
    put(fresh);
    for (unsigned i = 0; i < 8; i++) assert_true(fresh[i] == STRATA_DEBUG_FREE_PATTERN); /* the program must not look; the test may */
    char *large = get(100000);                                                           /* no class: never debugged */
    assert_true(strata_malloc_usable_size(large) >= 100000);
    put(large);
    ASSERT_SOUND();
    assert_string_equal(sim_output(), "");
}

static void a_firewall_ends_at_a_page(void **state) {
    (void)state;
    begin("debug:firewall=64");
    size_t page = platform_info()->page_bytes;
    char *small = get(20), *p = get(112), *q = get(5000);
    assert_false(((uintptr_t)small + 32) % page == 0 && ((uintptr_t)small + 16) % page == 0);
    assert_int_equal(((uintptr_t)p + 112) % page, 0);
    assert_int_equal(((uintptr_t)q + align_up(5000, 16)) % page, 0);
    assert_false(zone_contains(&heap.zone, p));
    assert_int_equal(strata_malloc_usable_size(p), 112);
    memset(p, 1, 112), memset(q, 1, 5000);
    p = strata_realloc(p, 9000);
    for (unsigned i = 0; i < 112; i++) assert_int_equal(p[i], 1);
    put(p), put(q), put(small);
    assert_int_equal(heap_release(0) != 0, 1);
    ASSERT_SOUND();
    struct strata_debug_stats stats;
    strata_debug_stats_get(&stats);
    assert_int_equal(stats.memory, 0);
    assert_string_equal(sim_output(), "");
}

static unsigned allocate_all(void **first, size_t bytes) {
    unsigned count = 0;
    for (void *p; (p = get(bytes)) != NULL; count++) {
        *(void **)p = *first;
        *first = p;
    }
    return count;
}
static void free_all(void **first) {
    for (void *p = *first, *next; p != NULL; p = next) {
        next = *(void **)p;
        put(p);
    }
    *first = NULL;
}

/* With a page behind each, and then without: together they are no more than what the limit allows, and all of it comes back. */
static void firewalls_count_towards_the_limit(void **state) {
    (void)state;
    begin("debug:firewall,hard_limit:16M,background:off");
    struct strata_debug_stats stats;
    void *first = NULL;
    for (unsigned i = 0; i < 3; i++) {
        unsigned count = allocate_all(&first, 32768);
        assert_in_range(count, 8 * MIB / 32768, 16 * MIB / 32768);
        strata_debug_stats_get(&stats);
        assert_in_range(stats.in_use, 8 * MIB / 32768, count);
        assert_null(get(40000));
        free_all(&first);
        strata_release(0);
        char *block = get(12 * MIB);
        assert_non_null(block);
        assert_in_range(allocate_all(&first, 32768), 1, 4 * MIB / 32768);
        free_all(&first);
        put(block);
        strata_release(0);
    }
    ASSERT_SOUND();
}

/* ------------------------------------------------------------------ on and off */

static void a_buffer_stays_what_it_is(void **state) {
    (void)state;
    const struct strata_cache_config config = {.size = 40};
    assert_int_equal(strata_cache_create("things", &config, &things), STRATA_CACHE_OK);
    char *plain = get(50);
    void *plain_thing = strata_cache_alloc(things, 0);
    assert_int_equal(strata_debug_set("*", "guards"), STRATA_DEBUG_OK);
    char *debugged = get(50);
    void *thing = strata_cache_alloc(things, 0);
    assert_true(strata_malloc_usable_size(plain) == 64 && strata_malloc_usable_size(debugged) == 50);
    assert_int_equal(strata_debug_set("*", "audit=1+frames=4"), STRATA_DEBUG_OK); /* another layout: three kinds now */
    char *audited = get(50);
    struct strata_debug_stats stats;
    strata_debug_stats_get(&stats);
    assert_int_equal(stats.in_use, 3);
    assert_int_equal(strata_debug_set("*", "off"), STRATA_DEBUG_OK);
    strata_debug_stats_get(&stats);
    assert_int_equal(stats.caches, 0);
    assert_int_equal(stats.in_use, 3);
    plain = strata_realloc(plain, 30), put(plain), strata_cache_free(things, plain_thing);
    struct strata_cache_stats figures;
    for (unsigned i = 0; i < 100; i++) strata_cache_free(things, strata_cache_alloc(things, 0));
    strata_cache_stats_get(things, &figures);
    assert_int_equal(figures.cached, 0); /* a debugged object is out: no arrays yet */
    strata_cache_free(things, thing);
    strata_cache_free(things, strata_cache_alloc(things, 0));
    strata_cache_stats_get(things, &figures);
    assert_true(figures.cached != 0);
    put(debugged), put(audited);
    put(get(50));
    struct cache_stats cached;
    cache_stats_get(&heap.caches, slab_class_of_size(&heap.slabs, 50), &cached);
    assert_true(cached.cached != 0); /* malloc's arrays opened at once */
    strata_debug_stats_get(&stats);
    assert_int_equal(stats.in_use, 0);
    assert_int_equal(stats.memory, 0); /* the layouts are gone */
    assert_int_equal(strata_cache_destroy(things), STRATA_CACHE_OK);
    ASSERT_SOUND();
    assert_string_equal(sim_output(), "");
}

static void the_last_pattern_counts(void **state) {
    (void)state;
    struct strata_debug_stats stats;
    assert_int_equal(strata_debug_set("*-64", "guards"), STRATA_DEBUG_OK);
    assert_int_equal(strata_debug_set("malloc-*", "audit"), STRATA_DEBUG_OK);
    assert_int_equal(strata_debug_set("*-64", "off"), STRATA_DEBUG_OK);
    strata_debug_stats_get(&stats);
    assert_int_equal(stats.caches, SIZE_CLASS_COUNT - 1);
    assert_int_equal(strata_debug_set("malloc-*", "off"), STRATA_DEBUG_OK);
    strata_debug_stats_get(&stats);
    assert_int_equal(stats.caches, 0);
    ASSERT_SOUND();
}

static size_t source_left;
static void *source_take(void *context, size_t bytes, size_t align) {
    (void)context;
    if (bytes > source_left) return NULL;
    source_left -= bytes;
    return strata_aligned_alloc(align, bytes);
}
static void source_give(void *context, void *memory, size_t bytes) {
    (void)context;
    source_left += bytes;
    strata_free(memory);
}

/* Slabs of a cache with a source may lie in debugged buffers of malloc. What lies in them is the cache's nevertheless, and what does not is not. */
static void ordinary_objects_may_lie_in_debugged_buffers(void **state) {
    const struct strata_cache_source source = {.allocate = source_take, .release = source_give};
    const struct strata_cache_config config = {.size = 100, .source = &source};
    (void)state;
    strata_debug_on_error(STRATA_DEBUG_CONTINUE);
    source_left = (size_t)1 << 20;
    assert_int_equal(strata_debug_set("malloc-*", "guards"), STRATA_DEBUG_OK);
    assert_int_equal(strata_cache_create("things", &config, &things), STRATA_CACHE_OK);
    void *early = strata_cache_alloc(things, 0); /* before the cache had features */
    assert_true(debug_heap_owns(early));
    assert_int_equal(strata_debug_set("things", "guards"), STRATA_DEBUG_OK);
    void *debugged = strata_cache_alloc(things, 0), *block = get(100);
    strata_cache_free(things, early), strata_cache_free(things, debugged);
    assert_string_equal(sim_output(), "");
    strata_cache_free(things, block);
    assert_non_null(strstr(sim_output(), "an object of another cache than was said (cache malloc-112)\n"));
    sim_output_clear();
    assert_int_equal(strata_cache_destroy(things), STRATA_CACHE_OK);
    put(block);
    source_left = 8192; /* no room for a debugged slab, but for an ordinary one */
    assert_int_equal(strata_debug_set("*", "default"), STRATA_DEBUG_OK);
    assert_int_equal(strata_cache_create("things", &config, &things), STRATA_CACHE_OK);
    early = strata_cache_alloc(things, 0);
    assert_true(debug_heap_owns(early));
    strata_cache_free(things, early);
    assert_int_equal(strata_cache_destroy(things), STRATA_CACHE_OK);
    ASSERT_SOUND();
    assert_string_equal(sim_output(), "");
}

struct tally {
    unsigned made, unmade, calls;
};
static int make(void *object, void *argument) {
    struct tally *tally = argument;
    assert_int_equal(sim_locks_held(), 0);
    if (++tally->calls % 5 == 0) return 1;
    *(uint64_t *)object = 1234;
    tally->made++;
    return 0;
}
static void unmake(void *object, void *argument) {
    struct tally *tally = argument;
    assert_int_equal(sim_locks_held(), 0);
    assert_int_equal(*(uint64_t *)object, 1234);
    *(uint64_t *)object = 0;
    tally->unmade++;
}

static void constructions_balance(void **state) {
    (void)state;
    struct tally tally = {0};
    const struct strata_cache_config config = {.size = 40, .constructor = make, .destructor = unmake, .argument = &tally};
    void *objects[100];
    assert_int_equal(strata_cache_create("things", &config, &things), STRATA_CACHE_OK);
    for (unsigned i = 0; i < 50; i++) strata_cache_free(things, strata_cache_alloc(things, 0)); /* some wait in an array */
    assert_int_equal(strata_debug_set("things", "default"), STRATA_DEBUG_OK);
    assert_int_equal(tally.made, tally.unmade); /* and came back */
    assert_int_equal(strata_debug_log_set("fail"), STRATA_DEBUG_OK);
    unsigned got = 0;
    for (unsigned i = 0; i < ARRAY_LENGTH(objects); i++) got += (objects[i] = strata_cache_alloc(things, 0)) != NULL;
    assert_int_equal(got, tally.made - tally.unmade);
    assert_int_equal(got, 80);
    struct strata_debug_stats stats;
    strata_debug_stats_get(&stats);
    assert_int_equal(stats.logged_failures, 20);
    for (unsigned i = 0; i < ARRAY_LENGTH(objects); i++) strata_cache_free(things, objects[i]);
    assert_int_equal(tally.made, tally.unmade);
    while ((objects[0] = strata_cache_alloc(things, 0)) == NULL) {}
    sim_output_clear();
    assert_int_equal(strata_cache_destroy(things), STRATA_CACHE_IN_USE);
    assert_string_equal(sim_output(), "strata: strata_cache_destroy(): cache things: 1 objects were not freed\n");
    ASSERT_SOUND();
}

/* Frees by size go by the address while there may be debugged blocks, of any class, and no longer. */
/* Two threads free it at the same moment, while its destructor takes its time; so does the destructor itself. */
static void *shared;
static bool frees_again;
static unsigned destructions;
static void unmake_slowly(void *object, void *argument) {
    struct platform_event never = {0};
    (void)argument;
    destructions++;
    platform_event_wait(&never, 1000000);
    if (frees_again) strata_cache_free(things, object);
}
static void free_shared(void *unused) {
    (void)unused;
    strata_cache_free(things, shared);
}

static void a_double_free_destructs_once(void **state) {
    (void)state;
    for (unsigned again = 0; again < 2; again++) {
        begin("debug:default,debug_error:continue");
        destructions = 0;
        frees_again = again != 0;
        struct strata_cache_config config = {.size = 100, .destructor = unmake_slowly};
        assert_int_equal(strata_cache_create("things", &config, &things), STRATA_CACHE_OK);
        shared = strata_cache_alloc(things, 0);
        sim_thread_start(0, free_shared, NULL);
        if (again == 0) sim_thread_start(1, free_shared, NULL);
        assert_true(sim_run_threads_for(1000000000));
        assert_int_equal(destructions, 1);
        assert_non_null(strstr(sim_output(), "double free (cache things)"));
        assert_non_null(strstr(sim_output(), "of 100 bytes, being freed"));
        struct strata_cache_stats stats;
        strata_cache_stats_get(things, &stats);
        assert_int_equal(stats.in_use, 0);
        ASSERT_SOUND();
    }
}

static bool trusts(size_t bytes) { return heap_kmem_trusts(slab_class_of_size(&heap.slabs, bytes)); }

/* Those of a class that is debugged, or has debugged blocks left, are looked at; those of others never. */
static void frees_by_size_are_believed_again(void **state) {
    (void)state;
    assert_int_equal(strata_debug_set("things", "guards"), STRATA_DEBUG_OK);
    assert_true(trusts(200));
    void *plain = strata_kmem_alloc(200, 0);
    assert_int_equal(strata_debug_set("malloc-208", "guards"), STRATA_DEBUG_OK);
    assert_true(!trusts(200) && trusts(60));
    void *debugged[2] = {strata_kmem_alloc(200, 0), NULL};
    assert_int_equal(strata_debug_set("malloc-64", "audit"), STRATA_DEBUG_OK);
    assert_true(!trusts(200) && !trusts(60) && trusts(2000));
    debugged[1] = strata_kmem_alloc(60, 0);
    assert_int_equal(strata_debug_set("malloc-*", "off"), STRATA_DEBUG_OK);
    assert_true(!trusts(200) && !trusts(60));
    strata_kmem_free(plain, 200);
    put(debugged[0]);
    assert_true(trusts(200) && !trusts(60));
    assert_int_equal(strata_debug_set("malloc-208", "guards"), STRATA_DEBUG_OK);
    strata_kmem_free(debugged[1], 60);
    assert_true(!trusts(200) && trusts(60));
    assert_int_equal(strata_debug_set("malloc-208", "off"), STRATA_DEBUG_OK);
    assert_true(trusts(200));
    assert_int_equal(strata_debug_set("malloc-208", "guards"), STRATA_DEBUG_OK);
    debugged[0] = strata_kmem_alloc(200, 0);
    assert_int_equal(strata_debug_set("malloc-208", "off"), STRATA_DEBUG_OK);
    assert_false(trusts(200));
    debugged[0] = strata_realloc(debugged[0], 100);
    assert_true(trusts(200));
    strata_free(debugged[0]);
    ASSERT_SOUND();
}

/* ------------------------------------------------------------------ walks and logs */

struct seen {
    unsigned in_use, freed, transactions;
    const void *address;
};
static bool see(const struct strata_debug_buffer *found, void *argument) {
    struct seen *seen = argument;
    assert_int_equal(sim_locks_held(), 0);
    put(get(10)); /* a visitor may */
    seen->in_use += found->in_use;
    seen->freed += !found->in_use;
    seen->transactions += found->transactions;
    seen->address = found->address;
    if (found->transactions != 0) {
        assert_true(found->transaction[0].kind == (found->in_use ? STRATA_DEBUG_ALLOCATED : STRATA_DEBUG_FREED));
        assert_int_equal(found->transaction[0].frames, 2);
        assert_true(found->transaction[0].frame[0] == stack_a[0]);
        assert_int_equal(found->transaction[0].bytes, found->bytes);
    }
    return true;
}

static unsigned logged[3];
static bool see_entry(const struct strata_debug_transaction *transaction, void *argument) {
    assert_string_equal(transaction->cache, argument);
    logged[transaction->kind - STRATA_DEBUG_ALLOCATED]++;
    return true;
}

static void walks_find_what_is_there(void **state) {
    (void)state;
    void *buffers[300];
    struct seen seen = {0};
    assert_int_equal(strata_debug_log_set("transaction=1M"), STRATA_DEBUG_OK);
    assert_int_equal(strata_debug_set("malloc-208", "audit=4+contents"), STRATA_DEBUG_OK);
    for (unsigned i = 0; i < 300; i++) buffers[i] = get(200);
    for (unsigned i = 0; i < 300; i += 3) put(buffers[i]);
    assert_true(strata_debug_walk("malloc-*", false, see, &seen));
    assert_true(seen.in_use == 200 && seen.freed == 0 && seen.transactions == 200);
    seen = (struct seen){0};
    assert_true(strata_debug_walk(NULL, true, see, &seen));
    assert_true(seen.in_use == 200 && seen.freed == 100 && seen.transactions == 400);
    seen = (struct seen){0};
    assert_true(strata_debug_find((char *)buffers[7] + 150, see, &seen));
    assert_ptr_equal(seen.address, buffers[7]);
    assert_false(strata_debug_find(&seen, see, &seen));
    memset(logged, 0, sizeof logged);
    assert_true(strata_debug_log_walk(STRATA_DEBUG_LOG_TRANSACTION, see_entry, name));
    assert_true(logged[0] == 300 && logged[1] == 100 && logged[2] == 0);
    int file = platform_file_create("/report");
    assert_int_equal(strata_debug_report_in_use(NULL, file), 0);
    const char *text = sim_file_text("/report", NULL);
    assert_non_null(strstr(text, "40000 bytes in 200 buffers of malloc-208, such as "));
    assert_non_null(strstr(text, ", allocated at\n    program+0x10\n    0x99\n40000 bytes in 200 buffers are in use\n"));
    assert_int_equal(strata_debug_report(file), 0);
    assert_non_null(strstr(sim_file_text("/report", NULL), "  audit=4+frames=15+contents=256\n"));
    assert_int_equal(strata_debug_report_log(STRATA_DEBUG_LOG_TRANSACTION, file), 0);
    assert_int_equal(strata_debug_log_set("off"), STRATA_DEBUG_OK);
    ASSERT_SOUND();
}

/* What a granule says of its slab may be of one that has gone, while its tag goes: the memory of the description is somebody else's by then. */
static void a_slab_that_goes_is_not_found(void **state) {
    (void)state;
    struct seen seen = {0};
    struct zone_run run;
    uintptr_t elses[64];
    assert_int_equal(strata_debug_set("malloc-208", "guards"), STRATA_DEBUG_OK);
    void *p = get(200);
    assert_true(zone_run_alloc(&heap.zone, 1, 1, MOBILITY_UNMOVABLE, &run));
    memset(elses, 0x41, sizeof elses);
    heap.zone.descs[zone_granule_of(&heap.zone, run.address)].words[0] = (uintptr_t)elses;
    zone_tag_run(&heap.zone, run.address, 1, TAG_DEBUG);
    assert_false(strata_debug_find(run.address, see, &seen));
    assert_true(heap_owns(run.address));
    zone_tag_run(&heap.zone, run.address, 1, TAG_NONE);
    zone_run_free(&heap.zone, run.address, 1);
    assert_true(strata_debug_find(p, see, &seen));
    put(p);
    ASSERT_SOUND();
}

/* Names are no patterns, and end no line. */
static void reports_tell_names_apart(void **state) {
    (void)state;
    struct strata_cache *caches[2];
    assert_int_equal(strata_debug_set("a?", "guards"), STRATA_DEBUG_OK);
    assert_int_equal(strata_cache_create("a*", &(struct strata_cache_config){.size = 64}, &caches[0]), STRATA_CACHE_OK);
    assert_int_equal(strata_cache_create("a\n", &(struct strata_cache_config){.size = 64}, &caches[1]), STRATA_CACHE_OK);
    for (unsigned i = 0; i < 8; i++) assert_non_null(strata_cache_alloc(caches[i / 3 != 0], 0));
    int file = platform_file_create("/report");
    assert_int_equal(strata_debug_report_in_use(NULL, file), 0);
    const char *text = sim_file_text("/report", NULL);
    assert_non_null(strstr(text, "192 bytes in 3 buffers of a*, such as "));
    assert_non_null(strstr(text, "320 bytes in 5 buffers of a?, such as "));
}

static void old_entries_give_way(void **state) {
    (void)state;
    assert_int_equal(strata_debug_log_set("transaction=4K"), STRATA_DEBUG_OK);
    assert_int_equal(strata_debug_set("malloc-208", "audit"), STRATA_DEBUG_OK);
    for (unsigned i = 0; i < 1000; i++) put(get(200));
    memset(logged, 0, sizeof logged);
    assert_true(strata_debug_log_walk(STRATA_DEBUG_LOG_TRANSACTION, see_entry, name));
    assert_int_equal(logged[0] + logged[1], 4096 / sizeof(struct debug_log_entry));
    struct strata_debug_stats stats;
    strata_debug_stats_get(&stats);
    assert_int_equal(stats.logged_transactions, 2000);
}

/* Reports and mallinfo2 count a class's debugged buffers with its others: in use, free places, memory, allocations. */
static void figures_include_debugged_buffers(void **state) {
    (void)state;
    enum { PLAIN = 30, DEBUGGED = 200, FREED = 50 };
    void *plain[PLAIN], *debugged[DEBUGGED];
    struct class_figures before, after;
    unsigned tag = slab_class_of_size(&heap.slabs, 200);
    for (unsigned i = 0; i < PLAIN; i++) plain[i] = get(200);
    assert_int_equal(strata_debug_set("malloc-208", "guards"), STRATA_DEBUG_OK);
    introspect_class(tag, &before);
    struct strata_mallinfo2 info_before = strata_mallinfo2();
    assert_int_equal(before.in_use_bytes, PLAIN * 208);
    for (unsigned i = 0; i < DEBUGGED; i++) debugged[i] = get(200);
    for (unsigned i = 0; i < FREED; i++) put(debugged[i]);
    introspect_class(tag, &after);
    struct strata_mallinfo2 info_after = strata_mallinfo2();
    assert_int_equal(after.in_use_bytes, (PLAIN + DEBUGGED - FREED) * 208);
    assert_int_equal(info_after.uordblks - info_before.uordblks, (DEBUGGED - FREED) * 208);
    assert_int_equal(after.slab.allocs - before.slab.allocs, DEBUGGED);
    assert_int_equal(after.slab.frees - before.slab.frees, FREED);
    assert_true(after.slab.slabs > before.slab.slabs && after.slab.total - before.slab.total >= DEBUGGED);
    assert_true(after.slab.memory_bytes - before.slab.memory_bytes >= DEBUGGED * 208);
    int file = platform_file_create("/stats");
    assert_int_equal(strata_stats_json(file), 0);
    char row[64];
    snprintf(row, sizeof row, "\"in_use\":%d,\"cached\":%llu,", PLAIN + DEBUGGED - FREED, (unsigned long long)after.cache.cached);
    const char *text = strstr(sim_file_text("/stats", NULL), "{\"name\":\"malloc-208\"");
    assert_non_null(text);
    const char *found = strstr(text, row);
    assert_true(found != NULL && found < strchr(text, '}'));
    platform_file_close(file);
    for (unsigned i = FREED; i < DEBUGGED; i++) put(debugged[i]);
    for (unsigned i = 0; i < PLAIN; i++) put(plain[i]);
    ASSERT_SOUND();
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup(name, debug_heap)
    const struct CMUnitTest tests[] = {
        TEST(sizes_and_alignments_are_exact),
        TEST(a_firewall_ends_at_a_page),
        TEST(firewalls_count_towards_the_limit),
        TEST(a_buffer_stays_what_it_is),
        TEST(ordinary_objects_may_lie_in_debugged_buffers),
        TEST(the_last_pattern_counts),
        TEST(constructions_balance),
        TEST(a_double_free_destructs_once),
        TEST(frees_by_size_are_believed_again),
        TEST(walks_find_what_is_there),
        TEST(a_slab_that_goes_is_not_found),
        TEST(reports_tell_names_apart),
        TEST(old_entries_give_way),
        TEST(figures_include_debugged_buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
