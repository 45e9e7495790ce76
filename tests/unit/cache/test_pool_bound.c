/*
 * test_pool_bound.c - what Vee and Hsu prove about fixed pools, on real ones: where the bound is lowest (Theorem 2.5), how often the worst of
 * programs comes to the global pool, and how many objects suffice (section 2.3.2). Random programs are in tests/model/model_pool.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cache/cache.h"
#include "platform/sim/sim.h"

#define HELD_MAX 4096
static struct zone zone;
static struct pool_layer pools;
static struct pool *pool;
static struct pool_local *local;
static void *held[HELD_MAX];
static unsigned held_count;

static void build(unsigned flags, size_t m, size_t m_alpha, size_t m_beta, size_t objects_max) {
    const struct zone_config zone_config = {
        .reserve_bytes = 32 * MIB, .thp = ZONE_THP_NEVER, .populate_granules = 1, .hard_limit_bytes = UINT64_MAX, .soft_limit_bytes = UINT64_MAX};
    const struct sim_config sim = {.cpus = 2, .arena_bytes = 256 * MIB};
    const struct pool_config config = {
        .name = "bound", .object_bytes = 16, .m = m, .m_alpha = m_alpha, .m_beta = m_beta, .objects_max = objects_max, .flags = flags};
    sim_reset(&sim);
    zone = (struct zone){0};
    assert_true(zone_init(&zone, &zone_config));
    pool_layer_init(&pools, &zone);
    assert_int_equal(pool_create(&pools, &config, &pool), POOL_OK);
    assert_non_null(local = pool_local_create(pool));
    held_count = 0;
}

static void *take_from(struct pool_local *from) {
    bool grew;
    void *object = pool_pop(from);
    return object != NULL ? object : pool_alloc_slow(from, &grew);
}
static void give_to(struct pool_local *to, void *object) {
    assert_true(pool_owns(pool, object));
    if (!pool_push(to, object)) pool_free_slow(to, object);
}
static uint64_t accesses(void) { return pool->accesses.alpha + pool->accesses.beta; }

/* One request; true: it came to the global pool. */
static bool request(bool allocate) {
    uint64_t before = accesses();
    if (allocate)
        assert_non_null(held[held_count++] = take_from(local));
    else
        give_to(local, held[--held_count]);
    assert_in_range(accesses() - before, 0, 1);
    return accesses() != before;
}

/* Requests of one sort until one comes to the global pool, that one included. */
static unsigned requests_until_access(bool allocate) {
    unsigned requests = 1;
    while (!request(allocate)) requests++;
    return requests;
}

static void the_bound_is_lowest_at_half(void **state) {
    (void)state;
    for (uint32_t m = 1; m <= 200; m++) {
        uint32_t low = m / 2, high = (m + 1) / 2;
        for (uint32_t a = 1; a <= m; a++)
            for (uint32_t b = 1; b <= m; b++) {
                bool half = (a == low || a == high) && (b == low || b == high);
                uint32_t apart = pool_requests_apart(m, a, b);
                if (half)
                    assert_int_equal(apart, low);
                else
                    assert_true(apart < low || low == 0);
            }
    }
}

static void half_is_what_a_pool_takes_by_itself(void **state) {
    (void)state;
    for (unsigned m = 1; m <= 33; m++) {
        build(0, m, 0, 0, 0);
        assert_int_equal(pool->m_alpha, m > 1 ? m / 2 : 1);
        assert_int_equal(pool->m_beta, pool->m_alpha);
    }
}

/* One after another the four cases of Lemma 2.4: from an access by an allocation or a free straight to the next by either. */
static unsigned worst_case(unsigned flags, unsigned m, unsigned m_alpha, unsigned m_beta) {
    unsigned cases[4];
    build(flags, m, m_alpha, m_beta, 0);
    for (unsigned i = 0; i < 8 * m; i++) held[held_count++] = take_from(local);
    requests_until_access(true);
    cases[0] = requests_until_access(true);
    cases[1] = requests_until_access(false);
    cases[2] = requests_until_access(false);
    cases[3] = requests_until_access(true);
    assert_int_equal(cases[0], m_alpha);
    assert_int_equal(cases[1], m - m_alpha + 2);
    assert_int_equal(cases[2], m_beta);
    assert_int_equal(cases[3], m - m_beta + 2);
    assert_null(pool_check(pool));
    unsigned worst = cases[0];
    for (unsigned i = 1; i < 4; i++) worst = cases[i] < worst ? cases[i] : worst;
    return worst;
}

/*
 * The lemma counts two requests too few from one sort of access to the other: a local pool holds m_alpha - 1 objects after the first, and has to get
 * from there to m and one beyond. So its bound holds, and the worst case as it is would be best at m/2 + 1, where it is one request better.
 */
static void the_worst_case_is_no_worse_than_the_lemma_says(void **state) {
    (void)state;
    for (unsigned flags = 0; flags <= POOL_FLAGS; flags++)
        for (unsigned m = 1; m <= 12; m++) {
            unsigned best = 0;
            for (unsigned a = 1; a <= m; a++)
                for (unsigned b = 1; b <= m; b++) {
                    unsigned worst = worst_case(flags, m, a, b);
                    assert_true(worst >= pool_requests_apart(m, a, b));
                    if (worst > best) best = worst;
                }
            assert_int_equal(best, m == 1 ? 1 : m / 2 + 1);
            if (m > 1) assert_int_equal(worst_case(flags, m, m / 2, m / 2), m / 2);
            if (m > 1) assert_int_equal(worst_case(flags, m, m / 2 + 1, m / 2 + 1), m / 2 + 1);
        }
}

/* The bound of Theorem 2.3 is reached: by a program that only allocates. */
static void the_bound_is_reached(void **state) {
    (void)state;
    for (unsigned flags = 0; flags <= POOL_FLAGS; flags++)
        for (unsigned m = 2; m <= 64; m += 2) {
            build(flags, m, 0, 0, 0);
            for (unsigned requests = 1; requests <= 1000; requests++) {
                request(true);
                assert_in_range(accesses(), requests / (m / 2), requests / (m / 2) + 1);
            }
        }
}

/*
 * M objects in use at most, P local pools of m: with M + P * m objects no allocation fails. As a local pool that fetches objects is empty itself, and
 * takes fewer than m_alpha where there are no more, those of the other P - 1 are enough; with one less it fails.
 */
static void so_many_objects_suffice(void **state) {
    enum { M = 20, P = 4 };
    (void)state;
    for (unsigned flags = 0; flags <= POOL_FLAGS; flags++)
        for (unsigned m = 1; m <= 16; m++)
            for (unsigned less = 0; less <= 1; less++) {
                struct pool_local *others[P - 1];
                build(flags, m, 0, 0, M + (P - 1) * m - less);
                for (unsigned i = 0; i < P - 1; i++) assert_non_null(others[i] = pool_local_create(pool));
                /* The others are filled to the brim with at most m in use, which is less than M. */
                for (unsigned i = 0; i < P - 1; i++) {
                    for (unsigned n = 0; n < m; n++) assert_non_null(held[held_count++] = take_from(others[i]));
                    while (held_count != 0) give_to(others[i], held[--held_count]);
                    while (others[i]->count + others[i]->stacked < m) {
                        held[0] = take_from(local);
                        assert_non_null(held[0]);
                        give_to(others[i], held[0]);
                    }
                }
                while (held_count < M - 1) assert_non_null(held[held_count++] = take_from(local));
                void *last = take_from(local);
                if (less == 0)
                    assert_non_null(last);
                else
                    assert_null(last);
                assert_int_equal(pool->accesses.alpha_failures, less);
                assert_null(pool_check(pool));
            }
}

/* Threads come and go: what a local pool was made of comes back with each. */
static void a_local_pool_that_ends_leaves_no_memory_behind(void **state) {
    (void)state;
    for (unsigned kind = 0; kind < 2; kind++) {
        build(kind == 0 ? 0 : POOL_FLAGS, 8, 4, 4, 0);
        give_to(local, take_from(local));
        uint64_t bytes = pool->metadata_bytes;
        for (unsigned turn = 0; turn < 3; turn++) {
            struct pool_local *other = pool_local_create(pool);
            assert_non_null(other);
            give_to(other, take_from(other));
            assert_true(pool->metadata_bytes > bytes);
            pool_local_destroy(other);
            assert_int_equal(pool->metadata_bytes, bytes);
            assert_null(pool_check(pool));
        }
    }
}

/* Where one kind was compiled in, all pools are of it, and what would want the other is refused. */
static void kinds_are_those_that_were_compiled(void **state) {
    (void)state;
    struct pool_config config = {.name = "kinds", .object_bytes = 16, .m = 4};
    build(0, 4, 0, 0, 0);
    assert_int_equal(pool_is_of_stacks(pool), STRATA_POOL_KINDS == POOL_KIND_STACKS);
    assert_int_equal(pool->stacks, STRATA_POOL_KINDS == POOL_KIND_STACKS);
    config.flags = POOL_STACKS;
    assert_int_equal(pool_create(&pools, &config, &pool), STRATA_POOL_KINDS == POOL_KIND_ROUNDS ? POOL_BAD_ARGUMENT : POOL_OK);
    if (STRATA_POOL_KINDS != POOL_KIND_ROUNDS) assert_true(pool_is_of_stacks(pool));
    config.flags = POOL_STACKS << 1;
    assert_int_equal(pool_create(&pools, &config, &pool), POOL_BAD_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bound_is_lowest_at_half),
        cmocka_unit_test(half_is_what_a_pool_takes_by_itself),
        cmocka_unit_test(the_worst_case_is_no_worse_than_the_lemma_says),
        cmocka_unit_test(the_bound_is_reached),
        cmocka_unit_test(so_many_objects_suffice),
        cmocka_unit_test(a_local_pool_that_ends_leaves_no_memory_behind),
        cmocka_unit_test(kinds_are_those_that_were_compiled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
