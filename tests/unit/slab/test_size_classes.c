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
        if (bytes > 1024) assert_int_equal(bytes % 128, 0);
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

/* Of every size that a slab may have: what is left over at its end, and whether its bits fit its descriptors. */
static void a_slab_wastes_an_eighth_at_most(void **state) {
    (void)state;
    static const size_t page_sizes[] = {4 * KIB, 16 * KIB, 64 * KIB};
    for (unsigned p = 0; p < ARRAY_LENGTH(page_sizes); p++) {
        struct sim_config sim = {.page_bytes = page_sizes[p]};
        begin(&sim, plain_config());
        for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_END; tag++) {
            const struct slab_cache *cache = &slabs.caches[tag];
            assert_true(cache->granules_min != 0 && cache->granules_max >= cache->granules_min);
            for (unsigned granules = cache->granules_min; granules <= cache->granules_max; granules *= 2) {
                size_t bytes = (size_t)granules << GRANULE_SHIFT, capacity = bytes / cache->object_bytes;
                assert_int_equal(bytes % page_sizes[p], 0);
                assert_true(granules <= 256); /* what a tag can tell */
                assert_true(capacity >= 1 && capacity <= UINT16_MAX);
                assert_true((bytes - capacity * cache->object_bytes) * 8 <= bytes);
                assert_true(24 + (capacity + 63) / 64 * 8 <= granules * sizeof(struct granule_desc));
            }
            if (cache->granules_max != cache->granules_min) assert_true((size_t)cache->granules_max << GRANULE_SHIFT <= 16 * KIB);
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
        cmocka_unit_test(a_slab_wastes_an_eighth_at_most),
        cmocka_unit_test_setup(aligned_sizes_get_the_smallest_class_that_is_aligned, plain_slabs),
        cmocka_unit_test_setup(objects_are_aligned_as_their_size_is, plain_slabs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
