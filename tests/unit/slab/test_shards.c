/*
 * test_shards.c - CPUs that keep apart have slabs and locks of their own, and what one of them has free is not lost to the others: wholly free slabs
 * change hands at any time, others once much is free, and all of them where memory ends.
 */
#include "unit/slab/slab_support.h"

static unsigned cache, capacity;
static void *mine[4000], *others[4000];

static int build(void **state) {
    (void)state;
    begin(NULL, plain_config());
    cache = cache_of(256);
    capacity = capacity_min(cache);
    return 0;
}

/* One batch for a home, apart; all of it. */
static void take_apart(unsigned home, void **objects, unsigned count) {
    for (unsigned taken = 0, some; taken < count; taken += some) {
        some = slab_alloc_home(&slabs, cache, home, true, objects + taken, count - taken);
        assert_int_not_equal(some, 0);
        for (unsigned i = taken; i < taken + some; i++) stamp(cache, objects[i]);
    }
}

static struct slab_shard *shard_of(unsigned home) { return slab_shard_at(&slabs.caches[cache], 1 + (home - 1) % SLAB_HOME_SHARDS); }
static unsigned shard_at(const void *object) { return ((struct slab *)zone_head(&zone, zone_head_of(&zone, slab_of(object))))->shard; }

static void homes_have_slabs_of_their_own(void **state) {
    (void)state;
    take_apart(1, mine, 40);
    take_apart(2, others, 40);
    for (unsigned i = 0; i < 40; i++) {
        assert_int_equal(shard_at(mine[i]), 1);
        assert_int_equal(shard_at(others[i]), 2);
    }
    assert_int_equal(slabs.caches[cache].shards, 7);
    ASSERT_SOUND();
    give(cache, others, 40);
    assert_int_equal(shard_of(1)->allocs - shard_of(1)->frees, 40);
    assert_int_equal(shard_of(2)->frees, 40);
    give(cache, mine, 40);
    assert_empty();
}

/* Nobody's lock but the home's own, neither to take objects nor to give them back. */
static void they_wait_for_nobody(void **state) {
    (void)state;
    take_apart(1, mine, 10);
    take_apart(2, others, 10);
    sim_contend_lock(&slabs.caches[cache].common.lock, 1);
    sim_contend_lock(&shard_of(2)->lock, 1);
    uint64_t before = sim_calls(SIM_LOCK_CONTENDED);
    take_apart(1, mine + 10, 20); /* a new slab, and a look at the others */
    give(cache, mine, 30);
    take_apart(1, mine, 30);
    give(cache, mine, 30);
    assert_int_equal(sim_calls(SIM_LOCK_CONTENDED), before);
    give(cache, others, 10);
    assert_int_equal(sim_calls(SIM_LOCK_CONTENDED), before + 1);
    sim_contend_lock(&slabs.caches[cache].common.lock, 0);
    assert_empty();
}

static void homes_beyond_the_last_share_shards(void **state) {
    (void)state;
    take_apart(1, mine, 3);
    take_apart(1 + SLAB_HOME_SHARDS, mine + 3, 3);
    assert_int_equal(slab_of(mine[0]), slab_of(mine[5]));
    take_apart(SLAB_HOMES, others, 1);
    assert_int_equal(shard_at(others[0]), 1 + (SLAB_HOMES - 1) % SLAB_HOME_SHARDS);
    give(cache, others, 1);
    give(cache, mine, 6);
    assert_empty();
}

static void wholly_free_slabs_change_hands(void **state) {
    (void)state;
    take_apart(1, mine, 3 * capacity);
    give(cache, mine, 3 * capacity);
    uint64_t made = stats_of(cache).slabs;
    assert_int_equal(shard_of(1)->empty_slabs, made);
    take_apart(2, others, capacity);
    assert_int_equal(stats_of(cache).slabs, made);
    assert_int_equal(shard_of(1)->empty_slabs, made - 1);
    assert_int_equal(shard_at(others[0]), 2);
    ASSERT_SOUND();
    /* Not under a lock that is held: then a new one comes. */
    sim_contend_lock(&shard_of(1)->lock, 1);
    take_apart(2, others + capacity, capacity);
    sim_contend_lock(&shard_of(1)->lock, 0);
    assert_int_equal(stats_of(cache).slabs, made + 1);
    give(cache, others, 2 * capacity);
    assert_empty();
}

static void others_change_hands_where_much_is_free(void **state) {
    (void)state;
    const unsigned spare = (unsigned)(8 * KIB / 256), n = 8 * capacity;
    take_apart(1, mine, n);
    give(cache, mine, spare); /* of two slabs or more */
    take_apart(1, mine, spare);
    for (unsigned i = 0; i < 8; i++) give(cache, &mine[i * capacity], capacity / 2); /* each slab is half free: more than an eighth, and 8 KiB */
    uint64_t made = stats_of(cache).slabs, all = stats_of(cache).total;
    uint64_t free_objects = all - stats_of(cache).in_use;
    assert_true(free_objects > all / 8 + spare);
    take_apart(2, others, 1);
    assert_int_equal(stats_of(cache).slabs, made);
    assert_int_equal(shard_at(others[0]), 2);
    ASSERT_SOUND();
    /* Until little is free: then home 2 gets a slab of its own. */
    unsigned taken = 1;
    while (stats_of(cache).slabs == made) {
        free_objects = stats_of(cache).total - stats_of(cache).in_use;
        take_apart(2, others + taken++, 1);
    }
    assert_true(free_objects <= all / 8 + spare && free_objects != 0);
    give(cache, others, taken);
    for (unsigned i = 0; i < 8; i++) give(cache, &mine[i * capacity + capacity / 2], capacity / 2);
    assert_empty();
}

/* Who does not keep apart leaves nothing free before it takes new memory. */
static void the_common_shard_takes_from_all(void **state) {
    (void)state;
    take_apart(1, mine, 2 * capacity);
    take_apart(2, others, 2 * capacity);
    give(cache, mine, 3);
    give(cache, others, 5);
    void *objects[9];
    uint64_t made = stats_of(cache).slabs;
    assert_int_equal(stats_of(cache).total - stats_of(cache).in_use, 8);
    take(cache, objects, 8);
    assert_int_equal(stats_of(cache).slabs, made);
    assert_int_equal(shard_at(objects[0]), 0);
    ASSERT_SOUND();
    take(cache, objects + 8, 1);
    assert_int_equal(stats_of(cache).slabs, made + 1);
    give(cache, objects, 9);
    give(cache, mine + 3, 2 * capacity - 3);
    give(cache, others + 5, 2 * capacity - 5);
    assert_empty();
}

static void where_memory_ends_any_object_will_do(void **state) {
    (void)state;
    take_apart(1, mine, capacity);
    take_apart(2, others, capacity);
    give(cache, mine, 3);
    zone.config.hard_limit_bytes = 0;
    void *objects[4];
    assert_int_equal(slab_alloc_home(&slabs, cache, 2, true, objects, 4), 3);
    assert_int_equal(slab_alloc_home(&slabs, cache, 2, true, objects + 3, 1), 0);
    for (unsigned i = 0; i < 3; i++) assert_int_equal(shard_at(objects[i]), 1);
    ASSERT_SOUND();
    slab_free_batch(&slabs, cache, objects, 3);
    give(cache, mine + 3, capacity - 3);
    give(cache, others, capacity);
    assert_empty();
}

/* One batch with objects of several shards, in any order. */
static void a_batch_goes_back_to_all_shards(void **state) {
    (void)state;
    static void *batch[600];
    for (unsigned round = 0; round < 20; round++) {
        uint64_t random = round;
        unsigned count = 0;
        for (unsigned home = 0; home < 6; home++) {
            void **objects = batch + count;
            if (home == 0)
                take(cache, objects, 50);
            else
                take_apart(home, objects, 50);
            count += 50;
        }
        for (unsigned i = count; i > 1; i--) {
            unsigned other = (unsigned)(next_random(&random) % i);
            void *object = batch[i - 1];
            batch[i - 1] = batch[other];
            batch[other] = object;
        }
        for (unsigned home = 1; home < 6; home++) assert_int_equal(shard_of(home)->allocs, 50 * (round + 1));
        give(cache, batch, count);
        for (unsigned home = 1; home < 6; home++) assert_int_equal(shard_of(home)->frees, 50 * (round + 1));
        assert_int_equal(stats_of(cache).in_use, 0);
        assert_empty();
    }
}

static void free_batch(void *batch) { slab_free_batch(&slabs, cache, batch, 5); }

static void a_second_free_is_seen_in_every_shard(void **state) {
    (void)state;
    take_apart(1, mine, 3);
    take_apart(2, others, 3);
    char line[160];
    void *batch[] = {mine[0], others[1], mine[2], others[0], others[1]};
    snprintf(line, sizeof line, "strata: free(): 0x%llx: double free (cache malloc-256)\n", (unsigned long long)(uintptr_t)others[1]);
    sim_output_clear();
    assert_true(sim_dies(free_batch, batch));
    assert_string_equal(sim_output(), line);
    assert_int_equal(sim_locks_held(), 0);
}

/* Whoever forks, and allocates in a handler between, begins no shard: its lock would not be among those that are held. */
static void a_fork_in_the_midst_of_it(void **state) {
    (void)state;
    take_apart(1, mine, 3);
    platform_fork_begin();
    slab_fork_prepare(&slabs);
    assert_int_equal(shard_of(1)->lock.word, PLATFORM_LOCK_FORK);
    take_apart(1, mine + 3, 3); /* its own */
    take_apart(2, others, 1);
    assert_int_equal(slabs.caches[cache].shards, 3);
    assert_int_equal(shard_at(others[0]), 0);
    give(cache, mine, 6);
    slab_fork_child(&slabs);
    platform_fork_end();
    assert_int_equal(shard_of(1)->lock.word, PLATFORM_LOCK_FREE);
    take_apart(2, mine, 1);
    assert_int_equal(shard_at(mine[0]), 2);
    give(cache, mine, 1);
    give(cache, others, 1);
    assert_empty();
}

static void damage_of_a_shard_is_found(void **state) {
    (void)state;
    take_apart(1, mine, 3);
    shard_of(1)->free++;
    assert_string_equal(slab_check(&slabs), "slab: free objects of a shard differ from their count");
    shard_of(1)->free--;
    shard_of(1)->empty_slabs++;
    assert_string_equal(slab_check(&slabs), "slab: empty slabs differ from their count");
    shard_of(1)->empty_slabs--;
    ((struct slab *)zone_head(&zone, zone_head_of(&zone, slab_of(mine[0]))))->shard = 0;
    assert_string_equal(slab_check(&slabs), "slab: in the wrong shard");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(homes_have_slabs_of_their_own, build),
        cmocka_unit_test_setup(they_wait_for_nobody, build),
        cmocka_unit_test_setup(homes_beyond_the_last_share_shards, build),
        cmocka_unit_test_setup(wholly_free_slabs_change_hands, build),
        cmocka_unit_test_setup(others_change_hands_where_much_is_free, build),
        cmocka_unit_test_setup(the_common_shard_takes_from_all, build),
        cmocka_unit_test_setup(where_memory_ends_any_object_will_do, build),
        cmocka_unit_test_setup(a_batch_goes_back_to_all_shards, build),
        cmocka_unit_test_setup(a_second_free_is_seen_in_every_shard, build),
        cmocka_unit_test_setup(a_fork_in_the_midst_of_it, build),
        cmocka_unit_test_setup(damage_of_a_shard_is_found, build),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
