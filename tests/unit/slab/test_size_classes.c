/*
 * test_size_classes.c - the size classes: every size has the smallest class that holds it, none wastes more than it may, alignments hold.
 */
#include "unit/slab/slab_support.h"

static void every_size_has_the_smallest_class_that_holds_it(void **state) {
    (void)state;
    for (size_t bytes = 0; bytes <= SIZE_CLASS_MAX_BYTES; bytes++) {
        unsigned cache = cache_of(bytes);
        assert_in_range(cache, SLAB_CACHE_FIRST, SLAB_CACHE_MAGAZINES - 1);
        assert_true(slabs.caches[cache].object_bytes >= bytes);
        if (cache > SLAB_CACHE_FIRST) assert_true(slabs.caches[cache - 1].object_bytes < bytes);
    }
}

static void classes_rise_by_an_eighth_at_most(void **state) {
    (void)state;
    size_t before = 0;
    for (unsigned n = 0; n < SIZE_CLASS_COUNT; n++) {
        size_t bytes = slabs.caches[SLAB_CACHE_FIRST + n].object_bytes;
        char name[SLAB_NAME_BYTES];
        assert_int_equal(bytes, size_class_bytes(n));
        assert_true(bytes > before);
        assert_int_equal(bytes % 16, 0); /* what malloc promises for every size */
        assert_true(bytes - before <= max_u64(16, before / 8));
        if (bytes > SIZE_CLASS_FINE_BYTES) assert_int_equal(bytes % 64, 0); /* as the lookup table steps */
        snprintf(name, sizeof name, "malloc-%zu", bytes);
        assert_string_equal(slabs.caches[SLAB_CACHE_FIRST + n].name, name);
        before = bytes;
    }
    assert_int_equal(before, SIZE_CLASS_MAX_BYTES);
    for (unsigned n = 0; n < SLAB_MAGAZINE_CACHES; n++) {
        const struct slab_cache *cache = &slabs.caches[SLAB_CACHE_MAGAZINES + n];
        assert_int_equal(cache->object_bytes, magazine_bytes[n]);
        assert_int_equal(cache->mobility, MOBILITY_RECLAIMABLE); /* and those of the program can't be won back */
        assert_int_equal(slabs.caches[SLAB_CACHE_FIRST + n].mobility, MOBILITY_UNMOVABLE);
    }
}

/* A power of two and a header before it: what many programs ask for, SQLite 1,032 and 4,368 bytes among them. */
static void a_power_of_two_and_a_header_waste_little(void **state) {
    (void)state;
    for (size_t power = 256; power < SIZE_CLASS_MAX_BYTES; power *= 2)
        for (size_t header = 8; header <= (power < 2048 ? 16 : power / 16); header += 8)
            assert_true(slabs.caches[slab_class_of_size(&slabs, power + header)].object_bytes <= power + (power < 2048 ? 16 : power / 64 * 5));
    assert_int_equal(slabs.caches[slab_class_of_size(&slabs, 1032)].object_bytes, 1040);
    assert_int_equal(slabs.caches[slab_class_of_size(&slabs, 4368)].object_bytes, 4416);
}

static void check_slab_size(const struct slab_cache *cache, unsigned granules, size_t page_bytes, unsigned waste_share) {
    size_t bytes = (size_t)granules << GRANULE_SHIFT, capacity = bytes / cache->object_bytes;
    assert_int_equal(bytes % page_bytes, 0);
    assert_true(granules <= 256); /* what a tag can tell */
    assert_true(capacity >= 1 && capacity <= UINT16_MAX);
    assert_true((bytes - capacity * cache->object_bytes) * waste_share <= bytes);
    assert_true(24 + (capacity + 63) / 64 * 8 <= granules * 2 * HEAD_UNIT_BYTES);
}

/* Of every size that a slab may have: what is left over at its end, and whether its bits fit the units of its head. */
static void slabs_waste_little(void **state) {
    (void)state;
    static const size_t page_sizes[] = {4 * KIB, 16 * KIB, 64 * KIB};
    for (unsigned p = 0; p < ARRAY_LENGTH(page_sizes); p++) {
        struct sim_config sim = {.page_bytes = page_sizes[p]};
        begin(&sim, plain_config());
        for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_END; tag++) {
            const struct slab_cache *cache = &slabs.caches[tag];
            assert_true(cache->granules_min != 0 && cache->granules_max >= cache->granules_min);
            unsigned granules = cache->granules_min;
            for (; granules < cache->granules_usual; granules *= 2) check_slab_size(cache, granules, page_sizes[p], 16);
            assert_int_equal(granules, cache->granules_usual);
            check_slab_size(cache, cache->granules_usual, page_sizes[p], 16);
            /* No more than a few objects, so that one that stays pins few others. */
            if (cache->granules_usual != cache->granules_min)
                assert_true((size_t)cache->granules_usual / 2 << GRANULE_SHIFT < 4 * cache->object_bytes);
            check_slab_size(cache, cache->granules_max, page_sizes[p], 16);
            /* A dense cache does better: it takes larger slabs, within reason. */
            if (page_sizes[p] == 4 * KIB) check_slab_size(cache, cache->granules_max, page_sizes[p], 64);
            if (cache->granules_max != cache->granules_min)
                assert_true((size_t)cache->granules_max << GRANULE_SHIFT <=
                            max_u64(16 * KIB, min_u64(64 * cache->object_bytes, 80 * KIB) + page_sizes[p]));
        }
    }
}

static void aligned_sizes_get_the_smallest_class_that_is_aligned(void **state) {
    (void)state;
    for (size_t align = 1; align <= 4096; align *= 2)
        for (size_t bytes = 1; bytes <= SIZE_CLASS_MAX_BYTES; bytes += bytes < 300 ? 1 : 97) {
            unsigned cache = slab_class_of_aligned(&slabs, bytes, align), expected = 0;
            for (unsigned n = SIZE_CLASS_COUNT; n-- > 0;)
                if (size_class_bytes(n) >= bytes && size_class_bytes(n) % align == 0) expected = SLAB_CACHE_FIRST + n;
            assert_int_equal(cache, expected);
        }
    assert_int_equal(cache_of(SIZE_CLASS_MAX_BYTES), slab_class_of_aligned(&slabs, SIZE_CLASS_MAX_BYTES, 4096));
}

static void objects_are_aligned_as_their_size_is(void **state) {
    (void)state;
    static void *objects[200];
    for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_END; cache++) {
        size_t bytes = slabs.caches[cache].object_bytes, align = min_u64(bytes & (0 - bytes), 4096);
        take(cache, objects, ARRAY_LENGTH(objects));
        for (unsigned i = 0; i < ARRAY_LENGTH(objects); i++) assert_int_equal((uintptr_t)objects[i] % align, 0);
        give(cache, objects, ARRAY_LENGTH(objects));
    }
    assert_empty();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_size_has_the_smallest_class_that_holds_it, plain_slabs),
        cmocka_unit_test_setup(classes_rise_by_an_eighth_at_most, plain_slabs),
        cmocka_unit_test_setup(a_power_of_two_and_a_header_waste_little, plain_slabs),
        cmocka_unit_test(slabs_waste_little),
        cmocka_unit_test_setup(aligned_sizes_get_the_smallest_class_that_is_aligned, plain_slabs),
        cmocka_unit_test_setup(objects_are_aligned_as_their_size_is, plain_slabs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
