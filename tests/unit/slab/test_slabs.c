/*
 * test_slabs.c - the life of slabs: made when a cache has nothing free, used fullest first and lowest address first, empty ones kept until
 * their pages are wanted, and given back by reaping; the counts that follow.
 */
#include "unit/slab/slab_support.h"

enum { MANY = 20000 };
static void *objects[MANY];

static int pages_of_16_kib(void **state) {
    static const struct sim_config sim = {.page_bytes = 16 * KIB};
    (void)state;
    begin(&sim, plain_config());
    return 0;
}

static int pages_of_64_kib(void **state) {
    static const struct sim_config sim = {.page_bytes = 64 * KIB};
    (void)state;
    begin(&sim, plain_config());
    return 0;
}

static void one_slab_serves_until_it_is_full(void **state) {
    (void)state;
    for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_END; cache++) {
        unsigned capacity = capacity_min(cache);
        size_t bytes = slabs.caches[cache].object_bytes;
        for (unsigned i = 0; i < capacity; i++) {
            take(cache, &objects[i], 1);
            assert_ptr_equal(objects[i], (char *)objects[0] + i * bytes);
        }
        assert_int_equal(stats_of(cache).slabs, 1);
        assert_int_equal(stats_of(cache).total, capacity);
        take(cache, &objects[capacity], 1);
        assert_int_equal(stats_of(cache).slabs, 2);
        assert_int_not_equal(slab_of(objects[capacity]), slab_of(objects[0]));
        assert_int_equal(stats_of(cache).in_use, capacity + 1);
        ASSERT_SOUND();
        give(cache, objects, capacity + 1);
    }
    assert_empty();
}

static void a_batch_is_cut_short_where_a_new_slab_would_be_needed(void **state) {
    (void)state;
    unsigned cache = cache_of(64), capacity = capacity_min(cache);
    assert_int_equal(take_batch(cache, objects, 3), 3); /* the first brings a slab */
    assert_int_equal(take_batch(cache, objects + 3, capacity), capacity - 3);
    assert_int_equal(stats_of(cache).slabs, 1);
    assert_int_equal(take_batch(cache, objects + capacity, capacity + 5), capacity);
    assert_int_equal(stats_of(cache).slabs, 2);
    /* What is free in several slabs is one batch. */
    void *some[10] = {objects[1], objects[2], objects[5], objects[capacity], objects[capacity + 1], objects[capacity + 7]};
    give(cache, some, 6);
    assert_int_equal(take_batch(cache, some, 10), 6);
    ASSERT_SOUND();
    give(cache, objects, 2 * capacity);
    assert_empty();
}

static void freed_objects_come_back_lowest_first(void **state) {
    (void)state;
    unsigned cache = cache_of(48), capacity = capacity_min(cache);
    static const unsigned order[] = {70, 3, 64, 63, 0, 20, 66, 1};
    static const unsigned sorted[] = {0, 1, 3, 20, 63, 64, 66, 70};
    assert_true(capacity > 70);
    take(cache, objects, capacity);
    void **last = objects + capacity - 1; /* a batch is descending */
    for (unsigned i = 0; i < ARRAY_LENGTH(order); i++) give(cache, last - order[i], 1);
    ASSERT_SOUND();
    for (unsigned i = 0; i < ARRAY_LENGTH(sorted); i++) {
        void *object;
        take(cache, &object, 1);
        assert_ptr_equal(object, *(last - sorted[i]));
        ASSERT_SOUND();
    }
    give(cache, objects, capacity);
    assert_empty();
}

/* A batch is used from its end: what the fullest slab had is there, so that another one, which may become wholly free, is left alone for longest. */
static void the_fullest_slab_comes_last_in_a_batch(void **state) {
    (void)state;
    unsigned cache = cache_of(64), capacity = capacity_min(cache);
    void *batch[40];
    assert_int_equal(capacity, 64);
    take(cache, objects, 2 * capacity);
    const size_t few = slab_of(objects[0]);
    give(cache, objects, 3);
    give(cache, objects + capacity, 60);
    assert_int_equal(take_batch(cache, batch, 40), 40);
    for (unsigned i = 0; i < 40; i++) assert_int_equal(slab_of(batch[i]) == few, i >= 37);
    give(cache, batch, 40);
    assert_int_equal(take_batch(cache, objects + 2 * capacity, 200), 63); /* cut short: at the front */
    give(cache, objects + 3, capacity - 3);
    give(cache, objects + capacity + 60, 4);
    give(cache, objects + 2 * capacity, 63);
    assert_empty();
}

/* Runs of free objects, within words and across, and single ones: of batches of any size each is what was lowest, the lowest one last. */
static void runs_and_single_objects_come_back_lowest_first(void **state) {
    (void)state;
    unsigned cache = cache_of(16), capacity = capacity_min(cache);
    assert_int_equal(capacity, 256);
    take(cache, objects, capacity);
    char *start = objects[capacity - 1];
    for (unsigned seed = 1; seed <= 500; seed++) {
        bool free[256] = {false};
        void *freed[256], *taken[256];
        unsigned count = 0, at = 0;
        uint32_t random = seed * 2654435761u;
        for (unsigned runs = 1 + seed % 7; runs != 0; runs--) {
            random = random * 1664525 + 1013904223;
            const unsigned first = (random >> 8) % 256, run = seed % 3 == 0 ? 1 : 1 + (random >> 16) % (seed % 3 == 1 ? 20 : 200);
            for (unsigned i = first; i < first + run && i < 256; i++) free[i] = true;
        }
        for (unsigned i = 0; i < 256; i++)
            if (free[i]) freed[count++] = start + 16 * i;
        give(cache, freed, count);
        ASSERT_SOUND();
        for (unsigned some; at < count; at += some) {
            random = random * 1664525 + 1013904223;
            some = take_batch(cache, taken, (unsigned)min_u64(1 + (random >> 8) % 100, count - at));
            assert_int_not_equal(some, 0);
            for (unsigned i = 0; i < some; i++) assert_ptr_equal(taken[some - 1 - i], freed[at + i]);
        }
        ASSERT_SOUND();
    }
    give(cache, objects, capacity);
    assert_empty();
}

/* Three full slabs, of which some, half and most is freed, in each order of freeing: the fullest one serves, until it is full. */
static void the_fullest_slab_serves_first(void **state) {
    (void)state;
    static const unsigned char orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    unsigned cache = cache_of(64), capacity = capacity_min(cache);
    for (unsigned o = 0; o < 6; o++) {
        const unsigned freed[3] = {capacity / 16, capacity / 2, capacity - 2};
        size_t number[3];
        void *object;
        take(cache, objects, 3 * capacity);
        for (unsigned s = 0; s < 3; s++) {
            unsigned slab = orders[o][s];
            number[slab] = slab_of(objects[slab * capacity]);
            give(cache, &objects[slab * capacity], freed[slab]);
        }
        ASSERT_SOUND();
        for (unsigned s = 0; s < 3; s++)
            for (unsigned i = 0; i < freed[s]; i++) {
                take(cache, &object, 1);
                assert_int_equal(slab_of(object), number[s]);
                objects[s * capacity + i] = object;
            }
        assert_int_equal(stats_of(cache).slabs, 3);
        give(cache, objects, 3 * capacity);
        assert_empty();
    }
}

/* Freed one by one, a slab passes through all lists from full to empty, and back. */
static void a_slab_moves_through_all_lists(void **state) {
    (void)state;
    static const size_t sizes[] = {16, 48, 640, 2048, 6144, 16384, 32768};
    for (unsigned s = 0; s < ARRAY_LENGTH(sizes); s++) {
        unsigned cache = cache_of(sizes[s]), capacity = capacity_min(cache);
        take(cache, objects, capacity);
        assert_int_equal(slabs.caches[cache].common.bucket_map, 0);
        for (unsigned i = 0; i < capacity; i++) {
            unsigned at = i % 2 == 0 ? i / 2 : capacity - 1 - i / 2;
            give(cache, &objects[at], 1);
            assert_int_equal(bit_count(slabs.caches[cache].common.bucket_map), 1);
            ASSERT_SOUND();
        }
        assert_int_equal(slabs.caches[cache].common.empty_slabs, 1);
        for (unsigned i = 0; i < capacity; i++) {
            take(cache, &objects[i], 1);
            ASSERT_SOUND();
        }
        assert_int_equal(slabs.caches[cache].common.empty_slabs, 0);
        give(cache, objects, capacity);
        assert_empty();
    }
}

static uint64_t populated(void) {
    struct zone_counters counters;
    zone_counters_get(&zone, &counters);
    return counters.populated;
}

static void empty_slabs_stay_until_their_pages_are_wanted(void **state) {
    (void)state;
    static const size_t sizes[] = {16, 96, 512, 3072, 32768};
    for (unsigned s = 0; s < ARRAY_LENGTH(sizes); s++) {
        unsigned cache = cache_of(sizes[s]), other = cache_of(sizes[(s + 1) % ARRAY_LENGTH(sizes)]), n = (unsigned)min_u64(MANY, 12 * MIB / sizes[s]);
        take(cache, objects, n);
        uint64_t made = stats_of(cache).slabs, bytes = stats_of(cache).memory_bytes, before = populated();
        give(cache, objects, n);
        assert_int_equal(stats_of(cache).slabs, made);
        assert_int_equal(slabs.caches[cache].common.empty_slabs, made);
        take(cache, objects, n); /* the same again, of slabs that are there */
        assert_int_equal(stats_of(cache).slabs, made);
        give(cache, objects, n);
        /* Another cache takes half of the memory: no page is touched for it. */
        n = (unsigned)min_u64(MANY, bytes / 2 / stats_of(other).object_bytes);
        take(other, objects, n);
        assert_int_equal(populated(), before);
        assert_int_equal(slabs.caches[cache].common.empty_slabs, 0);
        give(other, objects, n);
        slab_reap(&slabs);
        assert_int_equal(stats_of(cache).memory_bytes + stats_of(other).memory_bytes, 0);
        assert_int_equal(slabs.empty_granules, 0);
        assert_empty();
    }
}

/* Objects of one or two pages come with those that follow; of larger ones nobody may ever touch more than the first page. */
static void large_objects_are_not_made_present(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.populate_granules = 16;
    begin(NULL, config);
    take(cache_of(1024), objects, 8192); /* the window grows with the heap */
    static const size_t sizes[] = {8192, 10240, 32768};
    for (unsigned s = 0; s < ARRAY_LENGTH(sizes); s++) {
        void *large[100];
        uint64_t calls = sim_calls(SIM_POPULATE);
        unsigned cache = cache_of(sizes[s]);
        for (unsigned i = 0; i < ARRAY_LENGTH(large); i++) assert_int_equal(slab_alloc_batch(&slabs, cache, &large[i], 1), 1);
        assert_true((sim_calls(SIM_POPULATE) != calls) == (sizes[s] <= 8192));
        slab_free_batch(&slabs, cache, large, ARRAY_LENGTH(large));
        slab_reap(&slabs);
        (void)zone_release(&zone, 0);
    }
    give(cache_of(1024), objects, 8192);
    slab_reap(&slabs);
    assert_empty();
}

/* So they do where a block would touch fresh pages, but not where few of them wait. */
static void empty_slabs_go_before_a_block_grows_the_heap(void **state) {
    (void)state;
    unsigned cache = cache_of(4096);
    take(cache, objects, 1024);
    give(cache, objects, 1024);
    slab_reap_for(&slabs, 0);
    assert_int_equal(slabs.empty_granules, 1024);
    slab_reap_for(&slabs, 1024);
    assert_int_equal(slabs.empty_granules, 0);
    take(cache, objects, 8);
    give(cache, objects, 8);
    slab_reap_for(&slabs, 4096);
    assert_int_equal(slabs.empty_granules, 8);
    assert_empty();
}

static void above_the_soft_limit_they_go_at_once(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.soft_limit_bytes = MIB;
    begin(NULL, config);
    unsigned cache = cache_of(512);
    take(cache, objects, 8192);
    assert_true(populated() << GRANULE_SHIFT >= 4 * MIB);
    give(cache, objects, 8192);
    assert_true(populated() << GRANULE_SHIFT <= MIB);
    assert_empty();
}

/*
 * Each goes by itself, and who looks for it looks at no others, of which there may be very many: one that only says that it is free, in the same
 * list but behind it, is not found.
 */
static void above_the_soft_limit_one_costs_no_look_at_others(void **state) {
    (void)state;
    struct zone_config config = plain_config();
    config.soft_limit_bytes = 0;
    begin(NULL, config);
    unsigned cache = cache_of(512), capacity = capacity_min(cache);
    take(cache, objects, 20 * capacity);
    for (unsigned i = 0; i < 20; i++) give(cache, &objects[i * capacity], capacity - 1); /* all but one of each slab */
    struct slab *other = zone_head(&zone, zone_head_of(&zone, slab_of(objects[capacity - 1])));
    assert_int_equal(other->bucket, SLAB_BUCKETS - 1);
    other->free++;
    give(cache, &objects[20 * capacity - 1], 1);
    other->free--;
    assert_int_equal(stats_of(cache).slabs, 19);
    ASSERT_SOUND();
    for (unsigned i = 0; i < 19; i++) give(cache, &objects[(i + 1) * capacity - 1], 1);
    assert_int_equal(stats_of(cache).slabs, 0);
    assert_empty();
}

/* A loop of filling and emptying one slab costs the zone nothing. */
static void the_last_empty_slab_waits_for_the_next_burst(void **state) {
    (void)state;
    unsigned cache = cache_of(1024), capacity = capacity_min(cache);
    struct zone_counters before, after;
    take(cache, objects, capacity);
    give(cache, objects, capacity);
    zone_counters_get(&zone, &before);
    void *first = objects[0];
    for (unsigned i = 0; i < 10; i++) {
        take(cache, objects, capacity);
        assert_ptr_equal(objects[0], first);
        give(cache, objects, capacity);
    }
    zone_counters_get(&zone, &after);
    assert_memory_equal(&before, &after, sizeof before);
    assert_empty();
}

static void partial_slabs_serve_before_empty_ones(void **state) {
    (void)state;
    unsigned cache = cache_of(64), capacity = capacity_min(cache);
    void *object;
    take(cache, objects, 2 * capacity);
    size_t partial = slab_of(objects[capacity]);
    give(cache, &objects[capacity], capacity / 2);
    give(cache, objects, capacity);
    assert_int_equal(slabs.caches[cache].common.empty_slabs, 1);
    for (unsigned i = 0; i < capacity / 2; i++) {
        take(cache, &object, 1);
        assert_int_equal(slab_of(object), partial);
        objects[capacity + i] = object;
    }
    assert_int_equal(slabs.caches[cache].common.empty_slabs, 1);
    ASSERT_SOUND();
    give(cache, &objects[capacity], capacity);
    assert_empty();
}

static void reaping_takes_the_empty_ones_only(void **state) {
    (void)state;
    unsigned cache = cache_of(64), other = cache_of(256), capacity = capacity_min(cache);
    take(cache, objects, 3 * capacity);
    give(cache, objects, capacity);
    give(cache, &objects[capacity], capacity - 1);
    take(other, &objects[0], 1);
    slab_reap(&slabs);
    assert_int_equal(stats_of(cache).slabs, 2);
    assert_int_equal(stats_of(cache).in_use, capacity + 1);
    assert_int_equal(stats_of(other).slabs, 1);
    ASSERT_SOUND();
    give(other, &objects[0], 1);
    give(cache, &objects[2 * capacity - 1], capacity + 1);
    assert_empty();
}

/* Small slabs in a small cache; those that waste the least only where there is so much that a page more or less is nothing. */
static void slabs_grow_with_the_cache(void **state) {
    (void)state;
    static void *many[2000];
    unsigned cache = cache_of(2560), n = 0;
    const struct slab_cache *info = &slabs.caches[cache];
    assert_true(info->granules_min < info->granules_usual && info->granules_usual < info->granules_max);
    uint64_t slab_count = 0;
    bool usual = false, largest = false;
    while (n < ARRAY_LENGTH(many)) {
        uint64_t granules_before = info->granules;
        take(cache, &many[n++], 1);
        if (info->slabs == slab_count) continue;
        slab_count = info->slabs;
        unsigned granules = (unsigned)(info->granules - granules_before);
        if (granules_before >= 2 * MIB / GRANULE_BYTES)
            assert_int_equal(granules, info->granules_max);
        else
            assert_in_range(granules, info->granules_min, info->granules_usual);
        /* No larger than an eighth of what was there, so that a small cache stays small. */
        assert_true(granules == info->granules_min || granules * 8 <= granules_before);
        usual |= granules == info->granules_usual;
        largest |= granules == info->granules_max;
    }
    assert_true(usual && largest);
    assert_int_equal(stats_of(cache).slab_bytes, (uint64_t)info->granules_max << GRANULE_SHIFT);
    ASSERT_SOUND();
    give(cache, many, n);
    assert_empty();
}

/* Every granule of a slab leads to its cache and its start, and to nothing once the slab is gone. */
static void addresses_lead_to_their_cache(void **state) {
    (void)state;
    for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_END; cache++) {
        take(cache, objects, 1);
        size_t granule = zone_granule_of(&zone, objects[0]);
        for (unsigned i = 0; i < slabs.caches[cache].granules_min; i++) {
            assert_int_equal(zone.tags[granule + i] & 0xff, cache);
            assert_int_equal(zone.tags[granule + i] >> 8, i);
        }
        give(cache, objects, 1);
        slab_reap(&slabs);
        for (unsigned i = 0; i < slabs.caches[cache].granules_min; i++) assert_int_equal(zone.tags[granule + i], TAG_NONE);
    }
    assert_empty();
}

static void the_counts_add_up(void **state) {
    (void)state;
    unsigned cache = cache_of(100);
    take(cache, objects, 500);
    give(cache, &objects[300], 200);
    struct slab_stats stats = stats_of(cache);
    assert_int_equal(stats.object_bytes, 112);
    assert_int_equal(stats.allocs, 500);
    assert_int_equal(stats.frees, 200);
    assert_int_equal(stats.in_use, 300);
    assert_true(stats.total >= 300 && stats.total * 112 <= stats.memory_bytes);
    assert_int_equal(stats.memory_bytes % GRANULE_BYTES, 0);
    give(cache, objects, 300);
    assert_empty();
}

static void the_child_of_a_fork_goes_on(void **state) {
    (void)state;
    unsigned cache = cache_of(64);
    take(cache, objects, 100);
    slab_fork_prepare(&slabs);
    for (unsigned c = SLAB_CACHE_FIRST; c < SLAB_CACHE_END; c++) assert_int_not_equal(slabs.caches[c].common.lock.word, 0);
    slab_fork_parent(&slabs);
    give(cache, &objects[50], 50);
    slab_fork_prepare(&slabs);
    sim_fork_child();
    slab_fork_child(&slabs);
    take(cache, &objects[50], 50);
    ASSERT_SOUND();
    give(cache, objects, 100);
    assert_empty();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(one_slab_serves_until_it_is_full, plain_slabs),
        cmocka_unit_test_setup(a_batch_is_cut_short_where_a_new_slab_would_be_needed, plain_slabs),
        cmocka_unit_test_setup(freed_objects_come_back_lowest_first, plain_slabs),
        cmocka_unit_test_setup(the_fullest_slab_comes_last_in_a_batch, plain_slabs),
        cmocka_unit_test_setup(runs_and_single_objects_come_back_lowest_first, plain_slabs),
        cmocka_unit_test_setup(the_fullest_slab_serves_first, plain_slabs),
        cmocka_unit_test_setup(a_slab_moves_through_all_lists, plain_slabs),
        cmocka_unit_test_setup(empty_slabs_stay_until_their_pages_are_wanted, plain_slabs),
        cmocka_unit_test(large_objects_are_not_made_present),
        cmocka_unit_test_setup(empty_slabs_go_before_a_block_grows_the_heap, plain_slabs),
        cmocka_unit_test_setup(above_the_soft_limit_they_go_at_once, plain_slabs),
        cmocka_unit_test(above_the_soft_limit_one_costs_no_look_at_others),
        cmocka_unit_test_setup(the_last_empty_slab_waits_for_the_next_burst, plain_slabs),
        cmocka_unit_test_setup(partial_slabs_serve_before_empty_ones, plain_slabs),
        cmocka_unit_test_setup(reaping_takes_the_empty_ones_only, plain_slabs),
        cmocka_unit_test_setup(slabs_grow_with_the_cache, plain_slabs),
        cmocka_unit_test_setup(addresses_lead_to_their_cache, plain_slabs),
        cmocka_unit_test_setup(the_counts_add_up, plain_slabs),
        cmocka_unit_test_setup(the_child_of_a_fork_goes_on, plain_slabs),
        cmocka_unit_test_setup(one_slab_serves_until_it_is_full, pages_of_16_kib),
        cmocka_unit_test_setup(freed_objects_come_back_lowest_first, pages_of_16_kib),
        cmocka_unit_test_setup(the_fullest_slab_serves_first, pages_of_16_kib),
        cmocka_unit_test_setup(a_slab_moves_through_all_lists, pages_of_16_kib),
        cmocka_unit_test_setup(empty_slabs_stay_until_their_pages_are_wanted, pages_of_16_kib),
        cmocka_unit_test_setup(partial_slabs_serve_before_empty_ones, pages_of_16_kib),
        cmocka_unit_test_setup(reaping_takes_the_empty_ones_only, pages_of_16_kib),
        cmocka_unit_test_setup(addresses_lead_to_their_cache, pages_of_16_kib),
        cmocka_unit_test_setup(the_counts_add_up, pages_of_16_kib),
        cmocka_unit_test_setup(one_slab_serves_until_it_is_full, pages_of_64_kib),
        cmocka_unit_test_setup(freed_objects_come_back_lowest_first, pages_of_64_kib),
        cmocka_unit_test_setup(the_fullest_slab_serves_first, pages_of_64_kib),
        cmocka_unit_test_setup(a_slab_moves_through_all_lists, pages_of_64_kib),
        cmocka_unit_test_setup(empty_slabs_stay_until_their_pages_are_wanted, pages_of_64_kib),
        cmocka_unit_test_setup(partial_slabs_serve_before_empty_ones, pages_of_64_kib),
        cmocka_unit_test_setup(reaping_takes_the_empty_ones_only, pages_of_64_kib),
        cmocka_unit_test_setup(addresses_lead_to_their_cache, pages_of_64_kib),
        cmocka_unit_test_setup(the_counts_add_up, pages_of_64_kib),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
