/*
 * test_misuse.c - what a slab is given back is verified: a second free, an address inside an object or behind the last one, one of another
 * cache or of no cache end the process with one line that says what, where and which cache. Never silently.
 */
#include "unit/slab/slab_support.h"

static unsigned cache;
static void *objects[300];

struct batch {
    unsigned cache;
    void *const *objects;
    unsigned count;
};

static void free_batch(void *argument) {
    const struct batch *batch = argument;
    slab_free_batch(&slabs, batch->cache, batch->objects, batch->count);
}

/* The batch ends the process, and its last words are one line about `address`. */
static void expect_death(unsigned into, void *const *batch_objects, unsigned count, const void *address, const char *what) {
    char line[160];
    struct batch batch = {into, batch_objects, count};
    snprintf(line, sizeof line, "strata: free(): 0x%llx: %s (cache %s)\n", (unsigned long long)(uintptr_t)address, what, slabs.caches[into].name);
    sim_output_clear();
    assert_true(sim_dies(free_batch, &batch));
    assert_string_equal(sim_output(), line);
    assert_int_equal(sim_locks_held(), 0); /* whoever handles the abort may allocate */
}

static void expect_death_of(const void *address, const char *what) {
    void *object = (void *)(uintptr_t)address;
    assert_false(slab_is_object(&slabs, cache, address) && strcmp(what, "not the start of an object") == 0);
    expect_death(cache, &object, 1, address, what);
}

static void a_second_free_is_seen(void **state) {
    (void)state;
    static const size_t sizes[] = {16, 48, 64, 112, 1024, 5120, 32768};
    for (unsigned s = 0; s < ARRAY_LENGTH(sizes); s++) {
        begin(NULL, plain_config());
        cache = cache_of(sizes[s]);
        unsigned n = (unsigned)min_u64(capacity_min(cache) * 2, ARRAY_LENGTH(objects));
        take(cache, objects, n);
        give(cache, &objects[1], 1);
        expect_death_of(objects[1], "double free");
        ASSERT_SOUND(); /* nothing was changed */
        take(cache, &objects[1], 1);
        give(cache, objects, n); /* and all of it can be given back once */
        assert_empty();
    }
}

static void twice_in_a_batch_is_seen(void **state) {
    (void)state;
    begin(NULL, plain_config());
    cache = cache_of(64);
    take(cache, objects, 20);
    void *batch[] = {objects[3], objects[5], objects[7], objects[5], objects[8]};
    expect_death(cache, batch, 5, objects[5], "double free");
}

/* Objects are looked up in groups: what is wrong is seen in the second one as in the first, also where its twin was in that. */
static void what_is_wrong_is_seen_in_every_group(void **state) {
    (void)state;
    for (unsigned at = 14; at < 40; at++) {
        begin(NULL, plain_config());
        cache = cache_of(256);
        take(cache, objects, 64);
        void *batch[40];
        for (unsigned i = 0; i < 40; i++) batch[i] = objects[i * 37 % 64];
        batch[at] = batch[2];
        expect_death(cache, batch, 40, batch[2], "double free");
        begin(NULL, plain_config());
        take(cache, objects, 64);
        for (unsigned i = 0; i < 40; i++) batch[i] = objects[i * 37 % 64];
        batch[at] = (char *)objects[63] + 16;
        expect_death(cache, batch, 40, batch[at], "not the start of an object");
    }
}

/* The batch looks its objects up before it marks them; a slab that becomes free at once goes only when all are marked. */
static void twice_in_a_batch_is_seen_where_the_slab_goes(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.soft_limit_bytes = 0;
    begin(NULL, config);
    cache = cache_of(1024);
    unsigned capacity = capacity_min(cache);
    assert_in_range(capacity, 2, 8);
    take(cache, objects, 2 * capacity);
    void *batch[10];
    memcpy(batch, objects, (capacity + 1) * sizeof batch[0]); /* and one of another slab: what lies side by side is marked at once */
    batch[capacity + 1] = objects[0];
    expect_death(cache, batch, capacity + 2, objects[0], "double free");
}

/* Neighbours are marked at once, after one look at their slab: each is looked at all the same. */
static void what_is_no_object_is_seen_among_neighbours(void **state) {
    (void)state;
    for (unsigned c = SLAB_CACHE_FIRST; c < SLAB_CACHE_END; c++) {
        begin(NULL, plain_config());
        size_t bytes = slabs.caches[c].object_bytes, slab_bytes = (size_t)slabs.caches[c].granules_min << GRANULE_SHIFT;
        const unsigned capacity = capacity_min(c);
        size_t bad[] = {3 * bytes + 1, 4 * bytes - 8, capacity * bytes}; /* the last one: the rest behind the objects, if there is any */
        if (capacity < 6) continue;
        for (unsigned b = 0; b < ARRAY_LENGTH(bad) && bad[b] < slab_bytes; b++) {
            begin(NULL, plain_config());
            take(c, objects, capacity); /* descending */
            char *start = objects[capacity - 1];
            /* Beside it objects of the same word, as far as there are any. */
            void *batch[] = {start + 1 * bytes, objects[0], start + bad[b], start + 4 * bytes};
            expect_death(c, batch, 4, batch[2], "not the start of an object");
        }
        begin(NULL, plain_config());
        take(c, objects, 6);
        void *twice[] = {objects[3], objects[4], objects[4], objects[5]};
        expect_death(c, twice, 4, objects[4], "double free");
    }
}

/* Marks lie in words of 64: the report names the right object in a later one, and a twin is seen also after another word was marked. */
static void twice_is_seen_in_every_word(void **state) {
    (void)state;
    begin(NULL, plain_config());
    cache = cache_of(16);
    assert_true(capacity_min(cache) >= 200);
    take(cache, objects, 200);
    give(cache, objects + 130, 1);
    void *batch[] = {objects[129], objects[130], objects[131]};
    expect_death(cache, batch, 3, objects[130], "double free");
    begin(NULL, plain_config());
    take(cache, objects, 200);
    void *apart[] = {objects[1], objects[70], objects[1]};
    expect_death(cache, apart, 3, objects[1], "double free");
}

static void an_object_that_was_never_handed_out_is_free(void **state) {
    (void)state;
    begin(NULL, plain_config());
    cache = cache_of(64);
    take(cache, objects, 1);
    expect_death_of((char *)objects[0] + 64, "double free");
    ASSERT_SOUND();
    give(cache, objects, 1);
    assert_empty();
}

static size_t bytes_at(const char *address) {
    uintptr_t offset = (uintptr_t)address - zone.base;
    return slab_bytes_of(&slabs, zone.tags[offset >> GRANULE_SHIFT], offset);
}

/* Every address of a slab, byte for byte: an object begins at multiples of the size, as far as whole objects go. */
static void only_starts_of_objects_are_taken(void **state) {
    (void)state;
    for (unsigned c = SLAB_CACHE_FIRST; c < SLAB_CACHE_END; c++) {
        begin(NULL, plain_config());
        cache = c;
        size_t bytes = slabs.caches[c].object_bytes, slab_bytes = (size_t)slabs.caches[c].granules_min << GRANULE_SHIFT;
        take(c, objects, 1);
        char *start = objects[0];
        for (size_t at = 0; at < slab_bytes; at += at < 20000 ? 1 : 8) {
            bool is_start = at % bytes == 0 && at / bytes < capacity_min(c);
            assert_int_equal(slab_is_object(&slabs, c, start + at), is_start);
            /* By the tags alone the rest behind the last object can't be told from one. */
            assert_int_equal(bytes_at(start + at), at % bytes == 0 ? bytes : 0);
        }
        expect_death_of(start + 1, "not the start of an object");
        expect_death_of(start + 8, "not the start of an object");
        expect_death_of(start + bytes - 1, "not the start of an object");
        if (bytes > 16) expect_death_of(start + 16, "not the start of an object");
        if (slab_bytes % bytes != 0) expect_death_of(start + slab_bytes - slab_bytes % bytes, "not the start of an object");
        ASSERT_SOUND();
    }
}

/* The remainder by one multiplication, for every address of the largest slab that a tag can tell of. */
static void sizes_by_tags_are_exact(void **state) {
    (void)state;
    begin(NULL, plain_config());
    unsigned wrong = 0;
    for (unsigned c = SLAB_CACHE_FIRST; c < SLAB_CACHE_END; c++) {
        uint32_t bytes = slabs.caches[c].object_bytes, left = 0;
        for (uintptr_t at = 0; at < (uintptr_t)256 << GRANULE_SHIFT; at++) {
            granule_tag tag = (granule_tag)(c | at >> GRANULE_SHIFT << 8);
            wrong += slab_bytes_of(&slabs, tag, at) != (left == 0 ? bytes : 0);
            left = left + 1 == bytes ? 0 : left + 1;
        }
    }
    assert_int_equal(wrong, 0);
}

static void what_is_not_of_the_cache_is_refused(void **state) {
    (void)state;
    begin(NULL, plain_config());
    cache = cache_of(64);
    unsigned other = cache_of(128);
    void *foreign[1], *local = &local;
    struct zone_run run = {0};
    take(cache, objects, 1);
    take(other, foreign, 1);
    assert_true(zone_run_alloc(&zone, 4, 1, MOBILITY_UNMOVABLE, &run));
    char *block = zone_block_alloc(&zone, 100 * KIB, 1, NULL);
    assert_non_null(block);
    const void *const bad[] = {foreign[0],
                               run.address,
                               block,
                               block + 4096,
                               &local,
                               NULL,
                               (char *)zone.base - 16,
                               (char *)zone.base + zone.extent_bytes,
                               (char *)zone.base + zone.extent_bytes - 64,
                               zone.tags,
                               (void *)(UINTPTR_MAX - 15)};
    for (unsigned i = 0; i < ARRAY_LENGTH(bad); i++) {
        assert_false(slab_is_object(&slabs, cache, bad[i]));
        expect_death_of(bad[i], "not the start of an object");
        assert_null(slab_check(&slabs));
    }
    assert_true(zone_block_free(&zone, block));
    zone_run_free(&zone, run.address, 4);
    give(cache, objects, 1);
    give(other, foreign, 1);
    assert_empty();
}

/* The slab itself is gone, and its pages serve another cache. */
static void a_free_into_a_slab_that_is_gone(void **state) {
    (void)state;
    begin(NULL, plain_config());
    cache = cache_of(64);
    take(cache, objects, 1);
    give(cache, objects, 1);
    slab_reap(&slabs);
    expect_death_of(objects[0], "not the start of an object");
    void *other;
    take(cache_of(96), &other, 1);
    assert_ptr_equal(other, objects[0]);
    expect_death_of(objects[0], "not the start of an object");
    give(cache_of(96), &other, 1);
    assert_empty();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_free_is_seen),
        cmocka_unit_test(twice_in_a_batch_is_seen),
        cmocka_unit_test(what_is_wrong_is_seen_in_every_group),
        cmocka_unit_test(twice_in_a_batch_is_seen_where_the_slab_goes),
        cmocka_unit_test(what_is_no_object_is_seen_among_neighbours),
        cmocka_unit_test(twice_is_seen_in_every_word),
        cmocka_unit_test(an_object_that_was_never_handed_out_is_free),
        cmocka_unit_test(only_starts_of_objects_are_taken),
        cmocka_unit_test(sizes_by_tags_are_exact),
        cmocka_unit_test(what_is_not_of_the_cache_is_refused),
        cmocka_unit_test(a_free_into_a_slab_that_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
