/*
 * test_statistics.c - what the figures say: each moves by the amount that an action of the program moves it by, on the simulated platform.
 *
 * The writers have tests of their own (test_report.c), with figures made up. Here the figures are the heap's: every one is read where a program
 * reads it, in the JSON of strata_stats_json and in mallinfo2, before and after an action whose effect is known. A difference is looked
 * for, not a value, wherever the figure can change in the life of a process: so neither a 0 nor any constant in its place passes.
 */
#include <limits.h>

#include "strata/cache.h"
#include "strata/malloc.h"
#include "strata/strata.h"
#include "unit/api/api_support.h"
#include "unit/api/look.h"

#define MS UINT64_C(1000000)
#define SLOW_CALLS 64 /* at most so many pass between two looks at the clock */
/* Base pages, and nothing that happens by itself. */
#define STILL "thp:never,grouping:on,background:off,decay_ms:3600000"

/* ------------------------------------------------------------------ looks */

static const char *value_in(const struct look *look, const char *list, const char *name, const char *key) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, "\"%s\":", key);
    const char *object = object_in(look->json, list, name), *at = strstr(object, wanted);
    if (at == NULL || (list != NULL && at > strchr(object, '}'))) fail_msg("there is no %s in %s", key, name != NULL ? name : list);
    return at + strlen(wanted);
}

static uint64_t figure_in(const struct look *look, const char *list, const char *name, const char *key) {
    return strtoull(value_in(look, list, name, key), NULL, 10);
}

/* The looks are those before and after the action. */
#define DURING(action) \
    do {               \
        take(&before); \
        action;        \
        take(&after);  \
    } while (0)

/* By how much a figure has grown from one look to the other. */
static int64_t rise(const char *list, const char *name, const char *key) {
    return (int64_t)(figure_in(&after, list, name, key) - figure_in(&before, list, name, key));
}
static int64_t heap_rise(const char *key) { return rise("heap", NULL, key); }
static int64_t arena_rise(const char *key) { return rise("arenas", "heap", key); }
static int64_t group_rise(const char *group, const char *key) { return rise("groups", group, key); }

#define MINUS(bytes) (-(int64_t)(bytes))
#define INFO_RISE(field) ((int64_t)(after.info.field - before.info.field))

/* ------------------------------------------------------------------ the program */

/* A block with all its pages present, as though written to. */
static void *hold(size_t bytes) {
    void *block = strata_malloc(bytes);
    assert_non_null(block);
    sim_touch(block, bytes);
    return block;
}

#define OBJECTS 1024
static void *objects[OBJECTS];

static void take_objects(unsigned from, unsigned to, size_t bytes) {
    for (unsigned i = from; i < to; i++) assert_non_null(objects[i] = strata_malloc(bytes));
}
static void free_objects(unsigned from, unsigned to) {
    for (unsigned i = from; i < to; i++) strata_free(objects[i]);
}

static int sound(void **state) {
    (void)state;
    const char *broken = heap_check();
    if (broken != NULL) fail_msg("%s", broken);
    assert_string_equal(sim_output(), "");
    return 0;
}

/* ------------------------------------------------------------------ the process and its limits */

static void the_process(void **state) {
    (void)state;
    struct sim_config other = {.process_id = 77, .thread_mode = true, .map_count_limit = 8000};
    new_heap(NULL, STILL ",reserve:8G");
    take(&before);
    assert_true(strncmp(value_in(&before, NULL, NULL, "mode"), "\"sim\"", 5) == 0);
    new_heap(&other, STILL ",reserve:1G,soft_limit:24M,hard_limit:640M");
    take(&after);
    assert_true(strncmp(value_in(&after, NULL, NULL, "mode"), "\"thread\"", 8) == 0);
    static const struct {
        const char *list, *name, *key;
        uint64_t before, after;
    } cases[] = {
        {NULL, NULL, "pid", 4242, 77},
        {"heap", NULL, "reserved_bytes", 8 * GIB, GIB},
        {"arenas", "heap", "total_bytes", 8 * GIB, GIB},
        {"heap", NULL, "mappings_limit", 65530 / 4, 8000 / 4}, /* the program's own mappings need most of them */
        {"heap", NULL, "soft_limit", 0, 24 * MIB},
        {"heap", NULL, "hard_limit", 0, 640 * MIB},
        {"arenas", "heap", "quantum_bytes", SUPERPAGE_BYTES, SUPERPAGE_BYTES},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        assert_int_equal(figure_in(&before, cases[i].list, cases[i].name, cases[i].key), cases[i].before);
        assert_int_equal(figure_in(&after, cases[i].list, cases[i].name, cases[i].key), cases[i].after);
    }
    DURING(sim_clock_advance(1500 * MS));
    assert_int_equal(rise(NULL, NULL, "uptime_ns"), 1500 * MS);
}

static void strata_s_own_memory(void **state) {
    (void)state;
    new_heap(NULL, STILL);
    assert_non_null(strata_malloc(100));
    take(&before);
    sim_cpu_set(1);
    assert_non_null(strata_malloc(100)); /* the first thing that this CPU does: it gets an area, and a slab apart from the other's, with a head */
    take(&after);
    assert_int_equal(heap_rise("metadata_bytes"), CPU_AREA_BYTES + HEAD_UNIT_BYTES);
    DURING(hold(100 * KIB)); /* the first block: a superpage that is cut into runs gets room for heads, the block its descriptor */
    assert_int_equal(heap_rise("metadata_bytes"), offsetof(struct head_area, units) + sizeof(struct granule_desc));
}

/* ------------------------------------------------------------------ blocks and pages */

static void large_blocks(void **state) {
    (void)state;
    void *blocks[3];
    new_heap(NULL, STILL);
    take(&before);
    for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++) blocks[i] = hold(8 * MIB);
    take(&after);
    assert_int_equal(heap_rise("large_blocks"), 3);
    assert_int_equal(heap_rise("large_bytes"), 24 * MIB);
    assert_int_equal(heap_rise("in_use_bytes"), 24 * MIB);
    assert_int_equal(heap_rise("populated_bytes"), 24 * MIB);
    assert_int_equal(heap_rise("populated_bytes_total"), 24 * MIB);
    assert_true(heap_rise("resident_bytes") >= (int64_t)(24 * MIB) && heap_rise("resident_bytes") < (int64_t)(25 * MIB)); /* our own are in it */
    assert_int_equal(INFO_RISE(hblks), 3);
    assert_int_equal(INFO_RISE(hblkhd), 24 * MIB);
    assert_int_equal(INFO_RISE(arena), 0);
    DURING(strata_free(blocks[1]));
    assert_int_equal(heap_rise("large_blocks"), -1);
    assert_int_equal(INFO_RISE(hblks), -1);
    assert_int_equal(INFO_RISE(hblkhd), MINUS(8 * MIB));
}

/* mallinfo has int in place of size_t: 3 GiB are INT_MAX. */
static void mallinfo_is_mallinfo2_in_int(void **state) {
    (void)state;
    new_heap(NULL, STILL ",magazine_max:4");
    hold(8 * MIB);
    strata_free(hold(100 * KIB));
    take_objects(0, 501, 3000); /* the last slab has room */
    free_objects(0, 3);
    struct strata_mallinfo2 full = strata_mallinfo2();
    struct strata_mallinfo old = strata_mallinfo();
    const int fields[] = {old.arena,   old.ordblks, old.smblks,   old.hblks,    old.hblkhd,
                          old.usmblks, old.fsmblks, old.uordblks, old.fordblks, old.keepcost};
    const size_t full_fields[] = {full.arena,   full.ordblks, full.smblks,   full.hblks,    full.hblkhd,
                                  full.usmblks, full.fsmblks, full.uordblks, full.fordblks, full.keepcost};
    for (unsigned i = 0; i < ARRAY_LENGTH(fields); i++) {
        assert_int_equal(fields[i], full_fields[i]);
        assert_int_equal(fields[i] == 0, i == 5); /* usmblks, which is always 0 */
    }
    assert_non_null(strata_malloc(3 * GIB));
    assert_int_equal(strata_mallinfo().hblkhd, INT_MAX);
}

/* What is freed waits, present, for who wants it next; trimmed, it has been handed back. */
static void idle_and_handed_back(void **state) {
    (void)state;
    new_heap(NULL, STILL);
    void *large = hold(16 * MIB), *small = hold(512 * KIB);
    take(&before);
    strata_free(large);
    take(&after); /* whoever looks finds no block at rest: it is idle before the other is */
    strata_free(small);
    take(&after);
    size_t idle = 16 * MIB + 512 * KIB;
    assert_int_equal(heap_rise("lookaside_bytes"), idle);
    assert_int_equal(INFO_RISE(keepcost), idle);
    assert_int_equal(INFO_RISE(arena), idle);
    assert_int_equal(INFO_RISE(fordblks), idle);
    assert_int_equal(heap_rise("populated_bytes"), 0);
    assert_int_equal(heap_rise("released_bytes_total"), 0);
    take(&before);
    assert_int_equal(strata_release(idle - 12 * MIB), 12 * MIB); /* whole superpages first: six of them */
    take(&after);
    assert_int_equal(heap_rise("released_bytes_total"), 12 * MIB);
    assert_int_equal(heap_rise("lookaside_bytes"), MINUS(12 * MIB));
    assert_int_equal(heap_rise("populated_bytes"), MINUS(12 * MIB));
    assert_int_equal(heap_rise("resident_bytes"), MINUS(12 * MIB));
    assert_int_equal(heap_rise("populated_bytes_total"), 0);
    assert_int_equal(INFO_RISE(keepcost), MINUS(12 * MIB));
    take(&before);
    assert_int_equal(strata_malloc_trim(0), 1);
    take(&after);
    assert_int_equal(heap_rise("released_bytes_total"), idle - 12 * MIB);
    assert_int_equal(after.info.keepcost, 0);
    assert_int_equal(figure_in(&after, "heap", NULL, "lookaside_bytes"), 0);
}

/* A block that can't grow where it is takes its pages along; their mapping can't merge with those beside it until they are handed back. */
static void moves_and_mappings(void **state) {
    (void)state;
    new_heap(NULL, STILL);
    void *block = hold(64 * MIB), *in_the_way = hold(2 * MIB);
    take(&before);
    void *moved = strata_realloc(block, 96 * MIB);
    assert_true(moved != NULL && moved != block);
    take(&after);
    assert_int_equal(sim_calls(SIM_MOVE), 1);
    assert_int_equal(heap_rise("moves"), 1);
    assert_int_equal(heap_rise("mappings"), 2);
    take(&before);
    assert_ptr_equal(strata_realloc(moved, 100 * MIB), moved);
    take(&after);
    assert_int_equal(heap_rise("moves"), 0);
    strata_free(moved);
    strata_free(in_the_way);
    DURING(strata_malloc_trim(0));
    assert_true(heap_rise("mappings") < 0);
}

static void huge_pages(void **state) {
    (void)state;
    new_heap(NULL, "thp:always,background:off,decay_ms:3600000");
    hold(8 * MIB);
    take(&before);
    void *block = hold(16 * MIB);
    take(&after);
    assert_int_equal(heap_rise("huge_bytes"), 16 * MIB);
    take(&before);
    strata_free(block);
    strata_malloc_trim(0);
    take(&after);
    assert_int_equal(heap_rise("huge_bytes"), MINUS(16 * MIB));
    new_heap(NULL, STILL);
    hold(8 * MIB);
    take(&after);
    assert_int_equal(figure_in(&after, "heap", NULL, "huge_bytes"), 0);
}

static void memory_is_short(void **state) {
    (void)state;
    new_heap(NULL, "background:on,thp:never");
    for (unsigned i = 0; i < SLOW_CALLS; i++) strata_free(hold(40 * KIB)); /* one of which starts the thread that listens */
    sim_run_threads_for(1200 * MS);
    take(&before);
    static const enum platform_pressure levels[] = {PLATFORM_PRESSURE_SOME, PLATFORM_PRESSURE_CRITICAL, PLATFORM_PRESSURE_SOME};
    for (unsigned i = 0; i < ARRAY_LENGTH(levels); i++) {
        sim_pressure_raise(levels[i]);
        sim_run_threads_for(1200 * MS); /* ticks are no events */
        take(&after);
        assert_int_equal(heap_rise("pressure_events"), i + 1);
    }
}

/* ------------------------------------------------------------------ address space */

static void the_arena_of_addresses(void **state) {
    (void)state;
    new_heap(NULL, STILL ",reserve:32M");
    take(&before);
    void *first = hold(8 * MIB);
    hold(4 * MIB + 4 * KIB);
    take(&after);
    assert_int_equal(arena_rise("in_use_bytes"), 14 * MIB); /* in superpages of 2 MiB */
    assert_int_equal(arena_rise("allocs"), 2);
    assert_int_equal(arena_rise("segments"), 2);
    DURING(strata_free(first));
    assert_int_equal(arena_rise("in_use_bytes"), MINUS(8 * MIB));
    assert_int_equal(arena_rise("frees"), 1);
    assert_int_equal(arena_rise("segments"), 0);
    strata_malloc_trim(0);
    take(&before);
    assert_null(strata_malloc(20 * MIB)); /* 26 are free, but not in one piece */
    take(&after);
    assert_int_equal(arena_rise("failures"), 1);
    assert_int_equal(arena_rise("in_use_bytes"), 0);
}

/* ------------------------------------------------------------------ mobility groups */

/* Pages are those of the system, of which one may be several granules. */
static void groups_of(size_t page_bytes) {
    struct sim_config sim = {.page_bytes = page_bytes};
    new_heap(&sim, STILL);
    take(&before);
    void *large = hold(8 * MIB), *with_room = hold(4 * MIB + page_bytes), *run = hold(512 * KIB), *beside = hold(64 * KIB);
    take(&after);
    size_t bytes = 12 * MIB + page_bytes + 576 * KIB;
    assert_int_equal(group_rise("movable", "superpages"), 4 + 3 + 1);
    assert_int_equal(group_rise("movable", "partial_superpages"), 1 + 1);
    assert_int_equal(group_rise("movable", "allocated_pages"), bytes / page_bytes);
    assert_int_equal(group_rise("movable", "populated_pages"), bytes / page_bytes);
    assert_int_equal(group_rise("movable", "free_populated_pages"), 0);
    DURING(strata_free(run)); /* its superpage is in use by another: its pages wait there */
    assert_int_equal(group_rise("movable", "superpages"), 0);
    assert_int_equal(group_rise("movable", "allocated_pages"), MINUS(512 * KIB / page_bytes));
    assert_int_equal(group_rise("movable", "populated_pages"), 0);
    assert_int_equal(group_rise("movable", "free_populated_pages"), 512 * KIB / page_bytes);
    strata_free(large);
    strata_free(with_room);
    strata_free(beside);
    strata_malloc_trim(0);
    take(&after);
    static const char *const keys[] = {"superpages", "partial_superpages", "allocated_pages", "populated_pages", "free_populated_pages"};
    for (unsigned i = 0; i < ARRAY_LENGTH(keys); i++) assert_int_equal(figure_in(&after, "groups", "movable", keys[i]), 0);
}

static void the_group_of_blocks(void **state) {
    (void)state;
    groups_of(4 * KIB);
    groups_of(16 * KIB);
    groups_of(64 * KIB);
}

/* Slabs of the program's objects can't be moved; magazines go when they are asked to. */
static void the_groups_of_slabs(void **state) {
    (void)state;
    new_heap(NULL, STILL ",magazine_max:4");
    DURING(take_objects(0, 1000, 3000));
    assert_int_equal(group_rise("unmovable", "superpages"), 2); /* of 512 pages */
    assert_int_equal(group_rise("unmovable", "allocated_pages"), rise("caches", "malloc-3072", "memory_bytes") / (int64_t)GRANULE_BYTES);
    assert_int_equal(group_rise("reclaimable", "superpages"), 0);
    DURING(free_objects(0, 1000));
    assert_int_equal(group_rise("reclaimable", "superpages"), 1);
    assert_int_equal(group_rise("reclaimable", "partial_superpages"), 1);
    int64_t bytes = rise("caches", "magazine-64", "memory_bytes");
    assert_true(bytes > 0);
    assert_int_equal(group_rise("reclaimable", "allocated_pages"), bytes / (int64_t)GRANULE_BYTES);
    assert_int_equal(group_rise("reclaimable", "populated_pages"),
                     bytes / (int64_t)GRANULE_BYTES + group_rise("reclaimable", "free_populated_pages"));
}

/* ------------------------------------------------------------------ caches */

static int64_t cache_rise(const char *key) { return rise("caches", "malloc-3072", key); }

/* Without a CPU layer each allocation is one of a slab, of which the object is the fourth part. */
static void slabs_of_a_cache(void **state) {
    (void)state;
    new_heap(NULL, STILL ",magazine_max:0");
    DURING(take_objects(0, 400, 3000));
    assert_int_equal(figure_in(&after, "caches", "malloc-3072", "object_bytes"), 3072);
    assert_int_equal(figure_in(&after, "caches", "malloc-3072", "slab_bytes"), 4 * 3072);
    assert_int_equal(figure_in(&after, "caches", "malloc-3072", "magazine_rounds"), 0);
    assert_int_equal(cache_rise("in_use"), 400);
    assert_int_equal(cache_rise("total"), 400);
    assert_int_equal(cache_rise("slabs"), 100);
    assert_int_equal(cache_rise("memory_bytes"), 100 * 4 * 3072);
    assert_int_equal(cache_rise("slab_allocs"), 400);
    assert_int_equal(cache_rise("slab_frees"), 0);
    assert_int_equal(cache_rise("cached"), 0);
    assert_int_equal(heap_rise("in_use_bytes"), 400 * 3072);
    assert_int_equal(INFO_RISE(uordblks), 400 * 3072);
    assert_int_equal(INFO_RISE(arena), heap_rise("populated_bytes"));
    assert_int_equal(INFO_RISE(fordblks), heap_rise("populated_bytes") - 400 * 3072);
    take(&before);
    for (unsigned i = 0; i < 400; i += 4) strata_free(objects[i]); /* one of each slab */
    take(&after);
    assert_int_equal(cache_rise("in_use"), -100);
    assert_int_equal(cache_rise("total"), 0);
    assert_int_equal(cache_rise("slab_frees"), 100);
    assert_int_equal(heap_rise("in_use_bytes"), -100 * 3072);
    assert_int_equal(INFO_RISE(ordblks), 100);
    assert_int_equal(INFO_RISE(uordblks), -100 * 3072);
    assert_int_equal(INFO_RISE(fordblks), 100 * 3072);
}

/* An array of 4. Half of them go to the depot or come from it at a time. */
static void magazines_of_a_cache(void **state) {
    (void)state;
    new_heap(NULL, STILL ",magazine_max:4");
    take_objects(0, 40, 3000);
    free_objects(0, 40);
    take_objects(0, 40, 3000); /* what all this needs is there now, so that the heap doesn't grow, and nothing is reaped */
    take(&before);
    assert_int_equal(figure_in(&before, "caches", "malloc-3072", "magazine_rounds"), 4);
    free_objects(0, 8);
    take(&after);
    assert_int_equal(cache_rise("in_use"), -8);
    assert_int_equal(cache_rise("cached"), 8);
    assert_int_equal(INFO_RISE(smblks), 8);
    assert_int_equal(INFO_RISE(fsmblks), 8 * 3072);
    assert_int_equal(INFO_RISE(uordblks), -8 * 3072);
    assert_true(cache_rise("depot_magazines") >= 2);
    assert_int_equal(cache_rise("depot_frees"), 2 * cache_rise("depot_magazines"));
    assert_int_equal(cache_rise("depot_allocs"), 0);
    int64_t gained = cache_rise("depot_magazines");
    DURING(take_objects(0, 8, 3000));
    assert_int_equal(cache_rise("in_use"), 8);
    assert_int_equal(cache_rise("cached"), -8);
    assert_int_equal(cache_rise("depot_magazines"), -gained);
    assert_int_equal(cache_rise("depot_allocs"), 2 * gained);
    assert_int_equal(cache_rise("depot_frees"), 0);
    assert_int_equal(cache_rise("slab_allocs"), 0);
}

/* Three times another CPU is in the depot when this one comes: no more, and in this cache's only. */
/* What a program has of its own caches is in use as what it has of malloc, where it lies in the heap. */
static void object_caches_in_mallinfo(void **state) {
    const struct strata_cache_config config = {.size = 200};
    struct strata_cache *cache;
    (void)state;
    new_heap(NULL, STILL);
    assert_int_equal(strata_cache_create("things", &config, &cache), STRATA_CACHE_OK);
    strata_cache_free(cache, strata_cache_alloc(cache, 0)); /* what comes with the first one */
    take(&before);
    for (unsigned i = 0; i < OBJECTS; i++) assert_non_null(objects[i] = strata_cache_alloc(cache, 0));
    take(&after);
    assert_int_equal(INFO_RISE(uordblks), OBJECTS * 200);
    assert_int_equal(INFO_RISE(uordblks), heap_rise("in_use_bytes"));
    assert_in_range(INFO_RISE(arena), OBJECTS * 200 * 7 / 8, OBJECTS * 200 * 9 / 8);
    assert_int_equal(after.info.fordblks, after.info.arena - after.info.uordblks);
    DURING(for (unsigned i = 0; i < OBJECTS; i++) strata_cache_free(cache, objects[i]));
    assert_int_equal(INFO_RISE(uordblks), MINUS(OBJECTS * 200));
    assert_int_equal(INFO_RISE(smblks) * 200, INFO_RISE(fsmblks));
    assert_int_equal(INFO_RISE(smblks) + INFO_RISE(ordblks), rise("caches", "things", "total") + OBJECTS);
    DURING(assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK));
    assert_true(INFO_RISE(smblks) < 0 || INFO_RISE(ordblks) < 0);
}

static void contention_of_a_depot(void **state) {
    (void)state;
    new_heap(NULL, STILL);
    take_objects(0, 40, 3000);
    take(&before);
    sim_contend_lock(&heap.caches.depots[slab_class_of_size(&heap.slabs, 3000)].lock, 3);
    free_objects(0, 40);
    take_objects(0, 40, 1000);
    take(&after);
    assert_int_equal(cache_rise("contention"), 3);
    assert_int_equal(rise("caches", "malloc-1024", "contention"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_process, sound),
        cmocka_unit_test_teardown(strata_s_own_memory, sound),
        cmocka_unit_test_teardown(large_blocks, sound),
        cmocka_unit_test_teardown(mallinfo_is_mallinfo2_in_int, sound),
        cmocka_unit_test_teardown(idle_and_handed_back, sound),
        cmocka_unit_test_teardown(moves_and_mappings, sound),
        cmocka_unit_test_teardown(huge_pages, sound),
        cmocka_unit_test_teardown(memory_is_short, sound),
        cmocka_unit_test_teardown(the_arena_of_addresses, sound),
        cmocka_unit_test_teardown(the_group_of_blocks, sound),
        cmocka_unit_test_teardown(the_groups_of_slabs, sound),
        cmocka_unit_test_teardown(slabs_of_a_cache, sound),
        cmocka_unit_test_teardown(magazines_of_a_cache, sound),
        cmocka_unit_test_teardown(object_caches_in_mallinfo, sound),
        cmocka_unit_test_teardown(contention_of_a_depot, sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
