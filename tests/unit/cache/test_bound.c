/*
 * test_bound.c - the promise of the CPU layer: whatever a CPU does, it comes to the depot at most once in m/2 operations, and with the
 * worst of programs just that often (VH, Theorem 2.5; magazines paper, 3.1).
 *
 * Property test: random programs of several temperaments, and the two adversaries that know the array's state. The depot has magazines enough, as
 * a miss that a nearly empty slab serves may bring fewer rounds.
 */
#include "unit/cache/cache_test.h"

#define OPERATIONS 4000
static void *objects[OPERATIONS + 4 * CACHE_ROUNDS_MAX];
static unsigned count;

struct meter {
    struct depot *depot;
    uint64_t visits; /* at the last operation */
    unsigned since;  /* operations since the last one that came to the depot, that one not included */
    unsigned exchanges;
};

static void begin_meter(struct meter *meter, unsigned cache) {
    *meter = (struct meter){.depot = &caches.depots[cache], .visits = caches.depots[cache].visits, .since = UINT32_MAX / 2};
}

/* One operation, and what it cost. */
static void operate(struct meter *meter, unsigned cache, bool allocate) {
    if (allocate)
        objects[count++] = must_take(cache);
    else
        give(cache, objects[--count]);
    meter->since++;
    if (meter->depot->visits == meter->visits) return;
    unsigned half = meter->depot->rounds / 2u != 0 ? meter->depot->rounds / 2u : 1;
    assert_int_equal(meter->depot->visits, meter->visits + 1);
    if (meter->since < half) fail_msg("m = %u: %u operations between two exchanges", meter->depot->rounds, meter->since);
    meter->visits = meter->depot->visits;
    meter->since = 0;
    meter->exchanges++;
}

/* A CPU with an empty array, so many objects held, and a depot that can always give and take. */
static unsigned prepare(unsigned magazine_max, size_t bytes, unsigned hold) {
    build(2, magazine_max);
    unsigned cache = cache_of(bytes);
    struct depot *depot = &caches.depots[cache];
    depot->rounds = depot->rounds_max;
    while (MAGAZINE_ROUNDS(depot->kind) < depot->rounds / 2u) depot->kind++;
    depot->full_max = UINT32_MAX;
    unsigned half = depot->rounds / 2u != 0 ? depot->rounds / 2u : 1;
    for (unsigned i = 0; i < OPERATIONS / half + 8; i++) assert_true(stock_depot(cache));
    count = 0;
    while (count < hold) objects[count++] = must_take(cache);
    cpu_layer_drain_own(&caches);
    return cache;
}

static void finish(unsigned cache) {
    while (count != 0) give(cache, objects[--count]);
    ASSERT_NOTHING_LEFT();
}

static const unsigned maxima[] = {1, 2, 3, 4, 6, 7, 16, 100, 255, 256};

static void no_program_exchanges_more_than_once_in_half_an_array(void **state) {
    static const unsigned up_of_64[] = {32, 28, 36, 60, 4};
    (void)state;
    for (unsigned i = 0; i < ARRAY_LENGTH(maxima); i++)
        for (unsigned temper = 0; temper < ARRAY_LENGTH(up_of_64); temper++) {
            unsigned cache = prepare(maxima[i], 64, 0), m = rounds_of(cache);
            struct meter meter;
            uint64_t random = i * 100 + temper + 1, bias = up_of_64[temper];
            begin_meter(&meter, cache);
            for (unsigned n = 0; n < OPERATIONS; n++) {
                if (n % (2 * m + 1) == 0) bias = 64 - bias; /* waves about as long as the array */
                operate(&meter, cache, count == 0 || (count < ARRAY_LENGTH(objects) && next_random(&random) % 64 < bias));
            }
            assert_true(meter.exchanges <= 1 + OPERATIONS / (m / 2 != 0 ? m / 2 : 1));
            finish(cache);
        }
}

/* Whichever way is nearer to an exchange: with an array that is empty at first it only allocates, with a full one it only frees. */
static void defy(unsigned magazine_max, bool full) {
    unsigned cache = prepare(magazine_max, 64, full ? OPERATIONS + CACHE_ROUNDS_MAX : 0), m = rounds_of(cache);
    struct meter meter;
    for (unsigned n = 0; full && n < m; n++) give(cache, objects[--count]);
    begin_meter(&meter, cache);
    for (unsigned n = 0; n < OPERATIONS; n++) {
        unsigned in = rounds_in(0, cache);
        operate(&meter, cache, full ? in < m - in : in <= m - in);
    }
    unsigned half = m / 2 != 0 ? m / 2 : 1;
    assert_true(meter.exchanges <= 1 + OPERATIONS / half);
    assert_true(meter.exchanges >= OPERATIONS / (half + 1)); /* no better than promised, or exchanges move more than they need to */
    finish(cache);
}

static void the_adversary_gets_just_that_many(void **state) {
    (void)state;
    for (unsigned i = 0; i < ARRAY_LENGTH(maxima); i++) {
        defy(maxima[i], false);
        defy(maxima[i], true);
    }
}

/* Held objects enough for a full array, and not more than there is room for: behind the back of the CPU layer. */
static void balance(unsigned cache) {
    for (; count < 2 * CACHE_ROUNDS_MAX; count++) hold_from_slabs(cache, &objects[count], 1);
    for (; count > OPERATIONS; held[cache]--) {
        *(uint64_t *)objects[--count] = 0;
        slab_free_batch(&slabs, cache, &objects[count], 1);
    }
}

/* The pattern of the magazine paper that a single magazine fails on: up and down around the edge. */
static void back_and_forth_around_an_edge_is_free(void **state) {
    (void)state;
    unsigned cache = prepare(256, 64, 2 * CACHE_ROUNDS_MAX), m = rounds_of(cache);
    for (unsigned depth = 1; depth < m / 2; depth *= 2)
        for (unsigned start = 0; start <= m; start++)
            for (unsigned first = 0; first < 2; first++) {
                struct meter meter;
                balance(cache);
                while (rounds_in(0, cache) > start) objects[count++] = must_take(cache);
                while (rounds_in(0, cache) < start) give(cache, objects[--count]);
                begin_meter(&meter, cache);
                for (unsigned n = 0; n < 8 * depth; n++) operate(&meter, cache, n / depth % 2 == first);
                assert_true(meter.exchanges <= 1);
            }
    finish(cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_program_exchanges_more_than_once_in_half_an_array),
        cmocka_unit_test(the_adversary_gets_just_that_many),
        cmocka_unit_test(back_and_forth_around_an_edge_is_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
