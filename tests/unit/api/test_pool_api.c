/*
 * test_pool_api.c - the public functions of fixed pools, on the simulated platform: what they refuse, what they count, what they do where memory
 * ends or a call of the platform fails, and that a pool leaves nothing behind.
 */
#include "strata/pool.h"
#include "unit/api/api_support.h"

static struct strata_pool_config config_of(size_t bytes, size_t m, unsigned flags) {
    return (struct strata_pool_config){.name = "test", .object_bytes = bytes, .m = m, .flags = flags};
}

static struct strata_pool *make_pool(const struct strata_pool_config *config) {
    struct strata_pool *pool = NULL;
    assert_int_equal(strata_pool_create(config, &pool), STRATA_POOL_OK);
    assert_non_null(pool);
    return pool;
}
static struct strata_pool_local *make_local(struct strata_pool *pool) {
    struct strata_pool_local *local = NULL;
    assert_int_equal(strata_pool_local_create(pool, &local), STRATA_POOL_OK);
    assert_non_null(local);
    return local;
}
static struct strata_pool_stats stats_of(struct strata_pool *pool) {
    struct strata_pool_stats stats;
    memset(&stats, 0xa5, sizeof stats);
    assert_int_equal(strata_pool_stats_get(pool, &stats), STRATA_POOL_OK);
    return stats;
}
static uint64_t allocated_granules(void) {
    struct zone_counters counters;
    zone_counters_get(&heap.zone, &counters);
    return counters.allocated;
}
static void assert_sound(struct strata_pool *pool) {
    assert_null(strata_pool_check(pool));
    assert_null(strata_check());
    assert_int_equal(sim_locks_held(), 0);
}
static void end_pool(struct strata_pool *pool) {
    size_t in_use = 1;
    assert_sound(pool);
    assert_int_equal(strata_pool_destroy(pool, &in_use), STRATA_POOL_OK);
    assert_int_equal(in_use, 0);
    assert_null(strata_check());
}

/* ------------------------------------------------------------------ arguments */

static void refuse(const struct strata_pool_config *config) {
    struct strata_pool *pool = (struct strata_pool *)(void *)&pool;
    uint64_t before = heap_init() ? allocated_granules() : 0, metadata = heap.zone.metadata.bytes;
    assert_int_equal(strata_pool_create(config, &pool), STRATA_POOL_BAD_ARGUMENT);
    assert_ptr_equal(pool, &pool);
    assert_int_equal(allocated_granules(), before);
    assert_int_equal(heap.zone.metadata.bytes, metadata);
    assert_int_equal(errno, ERRNO_BEFORE);
}

static void bad_configurations_are_refused(void **state) {
    const struct strata_pool_config good = config_of(64, 8, 0);
    struct strata_pool_config bad;
    (void)state;
    new_process(NULL, "");
    refuse(NULL);
#define REFUSE(member, value) (bad = good, bad.member = (value), refuse(&bad))
    REFUSE(name, NULL);
    REFUSE(object_bytes, 0);
    REFUSE(object_bytes, STRATA_POOL_OBJECT_BYTES_MAX + 1);
    REFUSE(object_bytes, SIZE_MAX);
    REFUSE(alignment, 3);
    REFUSE(alignment, 48);
    REFUSE(alignment, 2 * STRATA_POOL_OBJECT_BYTES_MAX);
    REFUSE(alignment, SIZE_MAX);
    REFUSE(m, 0);
    REFUSE(m, STRATA_POOL_M_MAX + 1);
    REFUSE(m, SIZE_MAX);
    REFUSE(m_alpha, 9);
    REFUSE(m_alpha, SIZE_MAX);
    REFUSE(m_beta, 9);
    REFUSE(m_beta, SIZE_MAX);
    REFUSE(objects_max, 3); /* m_alpha is 4 */
    REFUSE(flags, 2);
    bad = good, bad.objects_max = 10, bad.objects_start = 11, refuse(&bad);
    assert_int_equal(strata_pool_create(&good, NULL), STRATA_POOL_BAD_ARGUMENT);
    bad = good, bad.objects_start = SIZE_MAX;
    struct strata_pool *pool;
    assert_int_equal(strata_pool_create(&bad, &pool), STRATA_POOL_NO_MEMORY);
}

static void null_is_refused_everywhere(void **state) {
    struct strata_pool_stats stats;
    struct strata_pool_local_stats local_stats;
    struct strata_pool_local *local;
    (void)state;
    new_process(NULL, "");
    struct strata_pool_config config = config_of(64, 8, 0);
    struct strata_pool *pool = make_pool(&config);
    assert_int_equal(strata_pool_destroy(NULL, NULL), STRATA_POOL_BAD_ARGUMENT);
    assert_int_equal(strata_pool_local_create(NULL, &local), STRATA_POOL_BAD_ARGUMENT);
    assert_int_equal(strata_pool_local_create(pool, NULL), STRATA_POOL_BAD_ARGUMENT);
    assert_int_equal(strata_pool_free(NULL, pool), STRATA_POOL_BAD_ARGUMENT);
    assert_int_equal(strata_pool_stats_get(NULL, &stats), STRATA_POOL_BAD_ARGUMENT);
    assert_int_equal(strata_pool_stats_get(pool, NULL), STRATA_POOL_BAD_ARGUMENT);
    assert_int_equal(strata_pool_local_stats_get(NULL, &local_stats), STRATA_POOL_BAD_ARGUMENT);
    assert_non_null(strata_pool_check(NULL));
    strata_pool_local_destroy(NULL);
    assert_int_equal(errno, ERRNO_BEFORE);
    assert_null(strata_pool_alloc(NULL));
    assert_int_equal(errno, EINVAL);
    local = make_local(pool);
    assert_int_equal(strata_pool_local_stats_get(local, NULL), STRATA_POOL_BAD_ARGUMENT);
    assert_int_equal(strata_pool_free(local, NULL), STRATA_POOL_OK);
    strata_pool_local_destroy(local);
    end_pool(pool);
}

static void destroy_again(void *local) { strata_pool_local_destroy(local); }

/* As NULL is, while their memory waits for others. */
static void what_was_destroyed_is_refused_everywhere(void **state) {
    struct strata_pool_stats stats;
    struct strata_pool_local_stats local_stats;
    struct strata_pool_local *fresh;
    (void)state;
    for (unsigned stacks = 0; stacks < 2; stacks++) {
        new_process(NULL, "");
        struct strata_pool_config config = config_of(64, 8, stacks != 0 ? STRATA_POOL_STACKS : 0);
        struct strata_pool *pool = make_pool(&config);
        struct strata_pool_local *gone = make_local(pool), *kept = make_local(pool);
        void *objects[2] = {strata_pool_alloc(gone), strata_pool_alloc(gone)};
        strata_pool_local_destroy(gone);
        assert_int_equal(strata_pool_free(gone, objects[0]), STRATA_POOL_BAD_ARGUMENT);
        assert_int_equal(strata_pool_local_stats_get(gone, &local_stats), STRATA_POOL_BAD_ARGUMENT);
        assert_int_equal(errno, ERRNO_BEFORE);
        assert_null(strata_pool_alloc(gone));
        assert_int_equal(errno, EINVAL);
        errno = ERRNO_BEFORE;
        for (unsigned i = 0; i < 2; i++) assert_int_equal(strata_pool_free(kept, objects[i]), STRATA_POOL_OK);
        assert_null(strata_pool_check(pool));
        strata_pool_local_destroy(kept);
        assert_int_equal(strata_pool_destroy(pool, NULL), STRATA_POOL_OK);
        assert_int_equal(strata_pool_destroy(pool, NULL), STRATA_POOL_BAD_ARGUMENT);
        assert_int_equal(strata_pool_local_create(pool, &fresh), STRATA_POOL_BAD_ARGUMENT);
        assert_int_equal(strata_pool_stats_get(pool, &stats), STRATA_POOL_BAD_ARGUMENT);
        assert_non_null(strata_pool_check(pool));
        ASSERT_SOUND();
        assert_true(sim_dies(destroy_again, gone));
        assert_non_null(strstr(sim_output(), "strata_pool_local_destroy(): the local pool was destroyed"));
    }
}

static void statuses_have_texts(void **state) {
    (void)state;
    for (int status = STRATA_POOL_OK; status <= STRATA_POOL_BUSY + 1; status++)
        for (int other = STRATA_POOL_OK; other <= STRATA_POOL_BUSY + 1; other++)
            assert_true((strcmp(strata_pool_status_text((enum strata_pool_status)status), strata_pool_status_text((enum strata_pool_status)other)) ==
                         0) == (status == other));
    assert_string_equal(strata_pool_status_text((enum strata_pool_status) - 1), "unknown status");
}

/* ------------------------------------------------------------------ objects */

static void objects_are_aligned_and_apart(void **state) {
    static const size_t sizes[] = {1, 8, 16, 17, 48, 100, 1000, 4096, 4097, 40000, STRATA_POOL_OBJECT_BYTES_MAX};
    static const size_t alignments[] = {0, 1, 16, 64, 4096, 8192, STRATA_POOL_OBJECT_BYTES_MAX};
    enum { COUNT = 100 };
    (void)state;
    for (unsigned s = 0; s < 2 * ARRAY_LENGTH(sizes); s++)
        for (unsigned a = 0; a < ARRAY_LENGTH(alignments); a++) {
            unsigned char *objects[COUNT];
            new_process(NULL, "");
            struct strata_pool_config config = config_of(sizes[s / 2], 8, s % 2);
            config.alignment = alignments[a];
            struct strata_pool *pool = make_pool(&config);
            struct strata_pool_local *local = make_local(pool);
            for (unsigned i = 0; i < COUNT; i++) {
                assert_non_null(objects[i] = strata_pool_alloc(local));
                assert_int_equal((uintptr_t)objects[i] % (alignments[a] > 16 ? alignments[a] : 16), 0);
                memset(objects[i], (int)i, sizes[s / 2]);
            }
            for (unsigned i = 0; i < COUNT; i++) {
                for (size_t at = 0; at < sizes[s / 2]; at += 1 + sizes[s / 2] / 7) assert_int_equal(objects[i][at], i);
                assert_int_equal(strata_pool_free(local, objects[i]), STRATA_POOL_OK);
            }
            strata_pool_local_destroy(local);
            assert_int_equal(errno, ERRNO_BEFORE);
            end_pool(pool);
            assert_int_equal(allocated_granules(), 0);
        }
}

static void foreign_pointers_are_told_from_objects(void **state) {
    (void)state;
    for (unsigned flags = 0; flags <= STRATA_POOL_STACKS; flags++) {
        int on_stack;
        new_process(NULL, "");
        struct strata_pool_config config = config_of(48, 4, flags);
        struct strata_pool *pool = make_pool(&config), *other = make_pool(&config);
        struct strata_pool_local *local = make_local(pool), *other_local = make_local(other);
        char *object = strata_pool_alloc(local), *stranger = strata_pool_alloc(other_local);
        void *blocks[] = {strata_malloc(48), strata_malloc(40000), strata_malloc(3 << 20)};
        struct strata_pool_stats before = stats_of(pool);
        for (unsigned shift = 0; shift < 48; shift += shift < 2 ? 1 : 7)
            if (shift != 0) assert_int_equal(strata_pool_free(local, object + shift), STRATA_POOL_FOREIGN);
        assert_int_equal(strata_pool_free(local, &on_stack), STRATA_POOL_FOREIGN);
        assert_int_equal(strata_pool_free(local, pool), STRATA_POOL_FOREIGN);
        assert_int_equal(strata_pool_free(local, (void *)16), STRATA_POOL_FOREIGN);
        assert_int_equal(strata_pool_free(local, (void *)UINTPTR_MAX), STRATA_POOL_FOREIGN);
        assert_int_equal(strata_pool_free(local, stranger), STRATA_POOL_FOREIGN);
        assert_int_equal(strata_pool_free(other_local, object), STRATA_POOL_FOREIGN);
        for (unsigned i = 0; i < ARRAY_LENGTH(blocks); i++) {
            assert_int_equal(strata_pool_free(local, blocks[i]), STRATA_POOL_FOREIGN);
            strata_free(blocks[i]);
        }
        /* Behind the last object that was made, in the same chunk. */
        char *highest = zone_address_of(&heap.zone, zone_granule_of(&heap.zone, object));
        for (unsigned granule = 0; granule < 20; granule++, highest += GRANULE_BYTES)
            if ((heap.zone.tags[zone_granule_of(&heap.zone, highest)] & 0xff) != TAG_POOL)
                assert_int_equal(strata_pool_free(local, highest), STRATA_POOL_FOREIGN);
        assert_int_equal(strata_pool_free(local, stranger + 48 * 4096), STRATA_POOL_FOREIGN);
        struct strata_pool_stats after = stats_of(pool);
        assert_memory_equal(&before, &after, sizeof before);
        assert_sound(pool);
        assert_int_equal(strata_pool_free(local, object), STRATA_POOL_OK);
        assert_int_equal(strata_pool_free(other_local, stranger), STRATA_POOL_OK);
        strata_pool_local_destroy(local);
        strata_pool_local_destroy(other_local);
        end_pool(pool);
        end_pool(other);
    }
}

static void free_an_object(void *object) { strata_free(object); }

/* It ends the process, so nothing after it can rely on the heap. */
static void free_says_whose_memory_it_is(void **state) {
    (void)state;
    new_process(NULL, "");
    struct strata_pool_config config = config_of(48, 4, 0);
    void *object = strata_pool_alloc(make_local(make_pool(&config)));
    assert_true(sim_dies(free_an_object, object));
    assert_non_null(strstr(sim_output(), "memory of a fixed pool"));
}

static void check_sees_a_second_free_and_a_broken_link(void **state) {
    (void)state;
    for (unsigned flags = 0; flags <= STRATA_POOL_STACKS; flags++) {
        new_process(NULL, "");
        struct strata_pool_config config = config_of(48, 8, flags);
        struct strata_pool *pool = make_pool(&config);
        struct strata_pool_local *local = make_local(pool), *other = make_local(pool);
        void *object = strata_pool_alloc(local);
        assert_int_equal(strata_pool_free(local, object), STRATA_POOL_OK);
        assert_sound(pool);
        assert_int_equal(strata_pool_free(other, object), STRATA_POOL_OK);
        /* The second free of a stack has also cut its first one's list short. */
        if (flags == 0) assert_string_equal(strata_pool_check(pool), "pool: an object is free twice");
        assert_non_null(strata_pool_check(pool));
        assert_int_equal(sim_locks_held(), 0);
    }
    new_process(NULL, "");
    struct strata_pool_config config = config_of(48, 8, STRATA_POOL_STACKS);
    struct strata_pool *pool = make_pool(&config);
    struct strata_pool_local *local = make_local(pool);
    void **object = strata_pool_alloc(local);
    assert_int_equal(strata_pool_free(local, object), STRATA_POOL_OK);
    *object = &config;
    assert_string_equal(strata_pool_check(pool), "pool: a free object that is none of its own");
}

/* ------------------------------------------------------------------ figures and life */

static void accesses_are_counted(void **state) {
    (void)state;
    for (unsigned flags = 0; flags <= STRATA_POOL_STACKS; flags++) {
        void *objects[12];
        struct strata_pool_local_stats mine;
        new_process(NULL, "");
        struct strata_pool_config config = config_of(100, 6, flags);
        config.name = "a name of more bytes than there are for one";
        config.m_alpha = 2, config.m_beta = 3, config.objects_start = 10, config.objects_max = 12, config.objects_grow = 1;
        struct strata_pool *pool = make_pool(&config);
        struct strata_pool_local *local = make_local(pool);
        assert_int_equal(stats_of(pool).objects, 10);
        for (unsigned i = 0; i < 12; i++) assert_non_null(objects[i] = strata_pool_alloc(local));
        assert_null(strata_pool_alloc(local));
        assert_int_equal(errno, ENOMEM);
        errno = ERRNO_BEFORE;
        assert_int_equal(strata_pool_destroy(pool, NULL), STRATA_POOL_BUSY);
        for (unsigned i = 0; i < 12; i++) assert_int_equal(strata_pool_free(local, objects[i]), STRATA_POOL_OK);
        struct strata_pool_stats stats = stats_of(pool);
        assert_string_equal(stats.name, "a name of more bytes than there");
        assert_int_equal(stats.object_bytes, 112);
        assert_int_equal(stats.alignment, 16);
        assert_int_equal(stats.m * 100 + stats.m_alpha * 10 + stats.m_beta, 623);
        assert_int_equal(stats.requests_apart, 2);
        assert_int_equal(stats.flags, flags);
        assert_int_equal(stats.alpha_accesses, 6);
        assert_int_equal(stats.alpha_short, 0);
        assert_int_equal(stats.alpha_failures, 1);
        assert_int_equal(stats.beta_accesses, 2); /* the 7th and the 10th free: full, 3 go, full again after 3 more */
        assert_int_equal(stats.growths, 1);
        assert_int_equal(stats.objects, 12);
        assert_int_equal(stats.objects_in_use, 0);
        assert_int_equal(stats.objects_local, 6);
        assert_int_equal(stats.objects_global, 6);
        assert_int_equal(stats.locals * 10 + stats.locals_max, 11);
        assert_int_equal(stats.contention + stats.drains, 0);
        assert_true(stats.memory_bytes >= 12 * 112 && stats.memory_bytes <= 3 * GRANULE_BYTES && stats.metadata_bytes >= 6 * sizeof(void *));
        assert_int_equal(strata_pool_local_stats_get(local, &mine), STRATA_POOL_OK);
        assert_true(mine.alpha_accesses == 6 && mine.beta_accesses == 2 && mine.alpha_failures == 1 && mine.alpha_short == 0 && mine.objects == 6);
        strata_pool_local_destroy(local);
        assert_int_equal(stats_of(pool).drains, 1);
        assert_int_equal(errno, ERRNO_BEFORE);
        end_pool(pool);
    }
}

static void a_pool_in_use_is_not_destroyed(void **state) {
    (void)state;
    for (unsigned flags = 0; flags <= STRATA_POOL_STACKS; flags++) {
        new_process(NULL, "");
        struct strata_pool_config config = config_of(32, 8, flags);
        struct strata_pool *pool = make_pool(&config);
        struct strata_pool_local *local = make_local(pool);
        void *objects[] = {strata_pool_alloc(local), strata_pool_alloc(local), strata_pool_alloc(local)};
        size_t in_use = 0;
        assert_int_equal(strata_pool_destroy(pool, &in_use), STRATA_POOL_BUSY);
        assert_int_equal(in_use, 3);
        strata_pool_local_destroy(local);
        assert_int_equal(strata_pool_destroy(pool, &in_use), STRATA_POOL_BUSY);
        assert_int_equal(in_use, 3);
        local = make_local(pool);
        for (unsigned i = 0; i < 3; i++) assert_int_equal(strata_pool_free(local, objects[i]), STRATA_POOL_OK);
        assert_int_equal(strata_pool_destroy(pool, &in_use), STRATA_POOL_BUSY);
        assert_int_equal(in_use, 0);
        void *object = strata_pool_alloc(local);
        assert_non_null(object);
        assert_int_equal(strata_pool_free(local, object), STRATA_POOL_OK);
        strata_pool_local_destroy(local);
        end_pool(pool);
    }
}

/* Each of these needs more than one array of lists or rounds, and chunks of all ages. */
static void a_large_pool_comes_back_whole(void **state) {
    enum { COUNT = 40000 };
    static void *objects[COUNT];
    (void)state;
    for (unsigned variant = 0; variant < 6; variant++) {
        static const size_t transfers[] = {1, 50, 100};
        new_process(NULL, "");
        struct strata_pool_config config = config_of(24, 100, variant % 2);
        config.m_alpha = transfers[variant / 2], config.m_beta = transfers[2 - variant / 2];
        struct strata_pool *pool = make_pool(&config);
        struct strata_pool_local *local = make_local(pool), *other = make_local(pool);
        for (unsigned turn = 0; turn < 2; turn++) {
            for (unsigned i = 0; i < COUNT; i++) assert_non_null(objects[i] = strata_pool_alloc(local));
            for (unsigned i = 0; i < COUNT; i++) assert_int_equal(strata_pool_free(other, objects[i]), STRATA_POOL_OK);
        }
        assert_true(stats_of(pool).objects < COUNT * 5 / 4);
        assert_int_equal(strata_mallinfo2().uordblks, stats_of(pool).memory_bytes);
        strata_pool_local_destroy(local);
        strata_pool_local_destroy(other);
        end_pool(pool);
        assert_int_equal(allocated_granules(), 0);
    }
}

/* ------------------------------------------------------------------ where memory ends */

static void a_hard_limit_is_met_with_null(void **state) {
    (void)state;
    for (unsigned flags = 0; flags <= STRATA_POOL_STACKS; flags++) {
        static void *objects[60000];
        unsigned count = 0;
        new_process(NULL, "hard_limit:2M");
        struct strata_pool_config config = config_of(64, 64, flags);
        struct strata_pool *pool = make_pool(&config);
        struct strata_pool_local *local = make_local(pool);
        while ((objects[count] = strata_pool_alloc(local)) != NULL) count++;
        assert_int_equal(errno, ENOMEM);
        assert_in_range(count, 20000, 2 * MIB / 64);
        assert_sound(pool);
        for (unsigned i = 0; i < count; i++) assert_int_equal(strata_pool_free(local, objects[i]), STRATA_POOL_OK);
        assert_int_equal(stats_of(pool).objects_in_use, 0);
        for (unsigned i = 0; i < count; i++) assert_non_null(objects[i] = strata_pool_alloc(local));
        for (unsigned i = 0; i < count; i++) assert_int_equal(strata_pool_free(local, objects[i]), STRATA_POOL_OK);
        strata_pool_local_destroy(local);
        end_pool(pool);
    }
}

/* A small life of two pools; what fails is left out, and nothing else changes. Returns how many calls failed. */
static unsigned live(unsigned flags) {
    enum { COUNT = 3000 };
    static void *objects[COUNT];
    struct strata_pool *pool = NULL;
    struct strata_pool_local *locals[2] = {NULL, NULL};
    unsigned failed = 0, held = 0;
    struct strata_pool_config config = config_of(300, 40, flags);
    config.objects_start = 100;
    if (strata_pool_create(&config, &pool) != STRATA_POOL_OK) return 1;
    for (unsigned i = 0; i < 2; i++) failed += strata_pool_local_create(pool, &locals[i]) != STRATA_POOL_OK;
    if (locals[0] != NULL)
        for (unsigned i = 0; i < COUNT; i++) {
            objects[held] = strata_pool_alloc(locals[0]);
            failed += objects[held] == NULL;
            held += objects[held] != NULL;
        }
    assert_sound(pool);
    assert_int_equal(stats_of(pool).objects_in_use, held);
    struct strata_pool_local *to = locals[1] != NULL ? locals[1] : locals[0];
    while (held != 0) assert_int_equal(strata_pool_free(to, objects[--held]), STRATA_POOL_OK);
    for (unsigned i = 0; i < 2; i++) strata_pool_local_destroy(locals[i]);
    end_pool(pool);
    return failed;
}

static void each_call_of_the_platform_may_fail(void **state) {
    (void)state;
    for (unsigned flags = 0; flags <= STRATA_POOL_STACKS; flags++)
        for (unsigned times = 1; times <= 100; times += 99) {
            unsigned failed = 0, n = 1;
            for (;; n++) {
                new_process(NULL, "background:off");
                sim_fail_call(n, times);
                failed += live(flags);
                bool reached = sim_failures() != 0;
                sim_fail_call(0, 0);
                assert_int_equal(live(flags), 0);
                heap_release(0);
                assert_int_equal(allocated_granules(), 0);
                if (!reached) break;
            }
            assert_true(n > 5);
            assert_true(times == 1 || failed != 0); /* what fails once is done another way */
        }
}

/* ------------------------------------------------------------------ fork */

static void locks_are_held_around_fork(void **state) {
    (void)state;
    new_process(NULL, "");
    struct strata_pool_config config = config_of(64, 8, 0);
    struct strata_pool *pools[] = {make_pool(&config), make_pool(&config)};
    struct strata_pool_local *local = make_local(pools[0]);
    for (unsigned child = 0; child < 2; child++) {
        fork_prepare();
        for (unsigned i = 0; i < 2; i++) assert_int_equal(((struct pool *)(void *)pools[i])->lock.word, PLATFORM_LOCK_FORK);
        /* A handler of someone else's that runs between ours. */
        void *object = strata_pool_alloc(local);
        assert_non_null(object);
        assert_int_equal(strata_pool_free(local, object), STRATA_POOL_OK);
        (child ? fork_child : fork_parent)();
        for (unsigned i = 0; i < 2; i++) assert_int_equal(((struct pool *)(void *)pools[i])->lock.word, PLATFORM_LOCK_FREE);
        assert_sound(pools[0]);
    }
    strata_pool_local_destroy(local);
    end_pool(pools[1]);
    fork_prepare();
    fork_parent();
    end_pool(pools[0]);
    fork_prepare();
    fork_parent();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_configurations_are_refused),
        cmocka_unit_test(null_is_refused_everywhere),
        cmocka_unit_test(what_was_destroyed_is_refused_everywhere),
        cmocka_unit_test(statuses_have_texts),
        cmocka_unit_test(objects_are_aligned_and_apart),
        cmocka_unit_test(foreign_pointers_are_told_from_objects),
        cmocka_unit_test(free_says_whose_memory_it_is),
        cmocka_unit_test(check_sees_a_second_free_and_a_broken_link),
        cmocka_unit_test(accesses_are_counted),
        cmocka_unit_test(a_pool_in_use_is_not_destroyed),
        cmocka_unit_test(a_large_pool_comes_back_whole),
        cmocka_unit_test(a_hard_limit_is_met_with_null),
        cmocka_unit_test(each_call_of_the_platform_may_fail),
        cmocka_unit_test(locks_are_held_around_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
