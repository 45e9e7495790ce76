/*
 * test_home.c - rounds that go home (src/cache/home.c): CPUs that work for themselves share no slab, whatever went wrong before; those that pass
 * objects on keep their magazines in common; and nothing that waits for one CPU is lost to another that finds no memory.
 */
#include "unit/cache/cache_test.h"

#define OBJECT_BYTES 256
#define OBJECTS 2048

static unsigned cache;
static void *objects[2][OBJECTS];

static void begin(void) {
    build(2, 256);
    cache = cache_of(OBJECT_BYTES);
    for (unsigned cpu = 2; cpu-- != 0;) { /* both have visited the depot: it is shared */
        sim_cpu_set(cpu);
        give(cache, must_take(cache));
    }
    assert_true(cache_has_homes(&caches, cache));
}

static void take_on(unsigned cpu, void **taken, unsigned count) {
    sim_cpu_set(cpu);
    take_all(cache, taken, count);
}
static void give_on(unsigned cpu, void *const *given, unsigned count) {
    sim_cpu_set(cpu);
    give_all(cache, given, count);
}

static size_t slab_of(const void *object) {
    size_t granule = zone_granule_of(&zone, object);
    return granule - (zone.tags[granule] >> 8);
}

/* How many of the objects that CPU 1 holds lie in a slab with one of CPU 0's. */
static unsigned mixed(unsigned count) {
    unsigned found = 0;
    for (unsigned i = 0; i < count; i++)
        for (unsigned k = 0; k < count; k++)
            if (slab_of(objects[1][i]) == slab_of(objects[0][k])) {
                found++;
                break;
            }
    return found;
}

static void give_rest(unsigned count) {
    for (unsigned cpu = 0; cpu < 2; cpu++) give_on(cpu, objects[cpu], count);
    ASSERT_NOTHING_LEFT();
}

static void independent_cpus_share_no_slab(void **state) {
    (void)state;
    uint64_t random = 1;
    begin();
    for (unsigned i = 0; i < 256; i += 8)
        for (unsigned cpu = 0; cpu < 2; cpu++) take_on(cpu, &objects[cpu][i], 8);
    assert_int_equal(mixed(256), 0);
    for (unsigned round = 0; round < 400; round++) { /* random replacement in bursts, larger than an array */
        unsigned cpu = round % 2, at = (unsigned)next_random(&random) % 96, count = 40 + (unsigned)next_random(&random) % 120;
        give_on(cpu, &objects[cpu][at], count);
        take_on(cpu, &objects[cpu][at], count);
    }
    assert_int_equal(mixed(256), 0);
    assert_int_equal(caches.depots[cache].passed, 0);
    give_rest(256);
}

/* Two threads that change places: what each frees is the other's at first. */
static void what_was_mixed_comes_apart(void **state) {
    (void)state;
    uint64_t random = 2;
    begin();
    for (unsigned i = 0; i < 512; i++) { /* every slab has objects of both */
        take_on(0, &objects[0][i], 1);
        take_on(0, &objects[1][i], 1);
    }
    assert_int_equal(mixed(512), 512);
    for (unsigned round = 0; round < 4000; round++) {
        unsigned cpu = round % 2, at = (unsigned)next_random(&random) % 352, count = 40 + (unsigned)next_random(&random) % 120;
        if (round % 200 == 0) cache_tick(&caches);
        give_on(cpu, &objects[cpu][at], count);
        take_on(cpu, &objects[cpu][at], count);
    }
    assert_in_range(mixed(512), 0, 16);
    give_rest(512);
}

/* One CPU makes, the other ends: after some looks the objects go round by magazines, and the slabs are left alone. */
static void passed_on_objects_go_by_the_depot(void **state) {
    (void)state;
    begin();
    for (unsigned round = 0; round < 100; round++) {
        take_on(0, objects[0], 256);
        give_on(1, objects[0], 256);
    }
    assert_false(cache_keeps_apart(&caches, cache));
    uint64_t before = slab_allocs_of(cache), visits = stats_of(cache).depot_allocs;
    for (unsigned round = 0; round < 100; round++) {
        take_on(0, objects[0], 64);
        give_on(1, objects[0], 64);
    }
    assert_int_equal(slab_allocs_of(cache), before);
    assert_true(stats_of(cache).depot_allocs > visits);
    cache_tick(&caches);
    assert_true(cache_keeps_apart(&caches, cache)); /* another interval may be another load */
    ASSERT_NOTHING_LEFT();
}

/* Others' rounds that an array holds leave it by a visit or two, not by one each. */
static void strangers_cost_few_visits(void **state) {
    (void)state;
    begin();
    take_on(0, objects[0], 256);
    take_on(1, objects[1], 1024);
    unsigned rounds = rounds_of(cache);
    uint64_t visits = caches.depots[cache].visits;
    for (unsigned i = 0; i < 128; i++) { /* one in nine */
        give_on(1, &objects[1][8 * i], 8);
        give_on(1, &objects[0][i], 1);
    }
    visits = caches.depots[cache].visits - visits;
    assert_in_range(visits, 1, 2 * (128 * 9) / (rounds / 2) + 2);
    give_on(0, &objects[0][128], 128);
    ASSERT_NOTHING_LEFT();
}

/* At the end of memory whose magazine it is makes no difference. */
static void the_last_objects_are_had_from_others_magazines(void **state) {
    (void)state;
    begin();
    sim_cpu_set(0);
    while (stock_depot(cache)) continue;
    for (struct magazine *magazine = caches.depots[cache].full; magazine != NULL; magazine = magazine->next) magazine->home = (uint16_t)cache_home();
    uint64_t there = stats_of(cache).cached - rounds_in(0, cache);
    assert_true(there > 64);
    sim_cpu_set(1);
    zone.config.hard_limit_bytes = 0;
    unsigned got = 0;
    while (got < OBJECTS && (objects[1][got] = take(cache)) != NULL) got++;
    assert_true(got >= there && got < OBJECTS);
    zone.config.hard_limit_bytes = UINT64_MAX;
    give_on(1, objects[1], got);
    ASSERT_NOTHING_LEFT();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(independent_cpus_share_no_slab),
        cmocka_unit_test(what_was_mixed_comes_apart),
        cmocka_unit_test(passed_on_objects_go_by_the_depot),
        cmocka_unit_test(strangers_cost_few_visits),
        cmocka_unit_test(the_last_objects_are_had_from_others_magazines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
