/*
 * test_check.c - slab_check finds what is wrong: every kind of damage is planted in sound slabs, found under its name, and taken back.
 */
#include "unit/slab/slab_support.h"

/* The head of a slab as slab.c has it; build() verifies that this is what it looks like. */
struct head {
    uint32_t next, prev, granule;
    uint16_t limit, free, capacity;
    uint8_t granules, bucket, first, home, shard;
    uint64_t bits[];
};
#define NONE UINT32_MAX

static void *objects[200];
static struct slab_cache *cache;
static struct head *few, *many; /* two slabs of the same cache with 5 and 6 of 64 objects free: neighbours in bucket 0 */
static struct head *half;       /* with half free */

static uint32_t number_of(const void *object) { return zone_head_of(&zone, slab_of(object)); }
static struct head *head_of(const void *object) { return zone_head(&zone, number_of(object)); }

static int build(void **state) {
    (void)state;
    begin(NULL, plain_config());
    unsigned tag = cache_of(64), capacity = capacity_min(tag);
    cache = &slabs.caches[tag];
    assert_int_equal(capacity, 64);
    take(tag, objects, 3 * capacity);
    few = head_of(objects[0]);
    many = head_of(objects[64]);
    half = head_of(objects[128]);
    give(tag, &objects[64 - 5], 5); /* batches are descending: the lowest */
    give(tag, &objects[128 - 6], 6);
    give(tag, &objects[128], 32);
    ASSERT_SOUND();
    assert_true(few->free == 5 && few->capacity == 64 && few->granules == 1 && few->granule == slab_of(objects[0]) && few->bucket == 0 &&
                few->first == 0);
    assert_true(few->bits[0] == 0x1f && many->bits[0] == 0x3f && few->prev == number_of(objects[64]) && few->next == NONE);
    assert_true(many->next == number_of(objects[0]) && many->prev == NONE);
    assert_int_not_equal(half->bucket, 0);
    return 0;
}

static void expect(const char *text) {
    const char *found = slab_check(&slabs);
    assert_non_null(found);
    assert_string_equal(found, text);
    assert_int_equal(sim_locks_held(), 0);
}

/* A field with another value for the length of one check. */
#define EXPECT_WITH(field, value, text)                    \
    do {                                                   \
        __typeof__(field) saved_ = (field);                \
        assert_true(saved_ != (__typeof__(field))(value)); \
        (field) = (__typeof__(field))(value);              \
        expect(text);                                      \
        (field) = saved_;                                  \
        assert_null(slab_check(&slabs));                   \
    } while (0)

static void bits_and_counts_of_a_slab(void **state) {
    (void)state;
    static const char text[] = "slab: free differs from its bits, or a full slab is in a bucket";
    EXPECT_WITH(few->bits[0], few->bits[0] & ~UINT64_C(1), text);
    EXPECT_WITH(few->bits[0], few->bits[0] | UINT64_C(1) << 63, text);
    EXPECT_WITH(half->free, half->free + 1, text);
    EXPECT_WITH(half->free, 0, text);
    /* Full, and still in a bucket. */
    uint64_t bits = few->bits[0];
    few->bits[0] = 0;
    few->free = 0;
    expect(text);
    few->bits[0] = bits;
    few->free = 5;
    assert_null(slab_check(&slabs));
    EXPECT_WITH(few->first, 1, "slab: a free object before the first word");
}

static void places_in_the_buckets(void **state) {
    (void)state;
    EXPECT_WITH(few->bucket, 1, "slab: in the wrong bucket");
    EXPECT_WITH(half->bucket, 0, "slab: in the wrong bucket");
    EXPECT_WITH(half->limit, half->limit + 1, "slab: in the wrong bucket");
    /* The half free one in the bucket of those that are nearly empty. */
    unsigned from = half->bucket, to = SLAB_BUCKETS - 1;
    EXPECT_WITH(cache->common.bucket_map, cache->common.bucket_map | 1u << to, "slab: bucket map differs from the buckets");
    cache->common.buckets[to] = cache->common.buckets[from];
    cache->common.buckets[from] = NONE;
    cache->common.bucket_map ^= (uint8_t)(1u << to | 1u << from);
    half->bucket = (uint8_t)to;
    expect("slab: in the wrong bucket");
}

static void bucket_map(void **state) {
    (void)state;
    EXPECT_WITH(cache->common.bucket_map, 0, "slab: bucket map differs from the buckets");
    EXPECT_WITH(cache->common.bucket_map, cache->common.bucket_map & ~1u, "slab: bucket map differs from the buckets");
    EXPECT_WITH(cache->common.bucket_map, cache->common.bucket_map | 4, "slab: bucket map differs from the buckets");
    EXPECT_WITH(cache->common.buckets[0], NONE, "slab: bucket map differs from the buckets");
}

static void links_and_tags(void **state) {
    (void)state;
    EXPECT_WITH(few->prev, NONE, "slab: broken link");
    EXPECT_WITH(many->prev, 17, "slab: broken link");
    EXPECT_WITH(zone.tags[few->granule], TAG_NONE, "slab: broken link");
    EXPECT_WITH(zone.heads[number_of(objects[0]) / HEAD_UNITS].at[few->granule % SUPERPAGE_GRANULES], 1000, "slab: broken link");
    EXPECT_WITH(few->granule, many->granule, "slab: broken link");
    /* One that fell out of its list: nobody would ever use it again. */
    EXPECT_WITH(many->next, NONE, "slab: free objects of a shard differ from their count");
    EXPECT_WITH(few->shard, 1, "slab: in the wrong shard");
}

static void sums_of_a_cache(void **state) {
    (void)state;
    EXPECT_WITH(cache->common.free, cache->common.free + 1, "slab: free objects of a shard differ from their count");
    EXPECT_WITH(cache->common.allocs, cache->common.allocs + 1, "slab: in use + free differs from the total");
    EXPECT_WITH(cache->common.frees, cache->common.frees + 1, "slab: in use + free differs from the total");
    EXPECT_WITH(cache->total, cache->total - 64, "slab: in use + free differs from the total");
    EXPECT_WITH(cache->common.empty_slabs, 1, "slab: empty slabs differ from their count");
    struct slab_cache *last = &slabs.caches[SLAB_CACHE_END - 1]; /* none is left out */
    EXPECT_WITH(last->total, 1, "slab: in use + free differs from the total");
    EXPECT_WITH(slabs.caches[SLAB_CACHE_FIRST].common.empty_slabs, 1, "slab: empty slabs differ from their count");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(bits_and_counts_of_a_slab, build),
        cmocka_unit_test_setup(places_in_the_buckets, build),
        cmocka_unit_test_setup(bucket_map, build),
        cmocka_unit_test_setup(links_and_tags, build),
        cmocka_unit_test_setup(sums_of_a_cache, build),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
