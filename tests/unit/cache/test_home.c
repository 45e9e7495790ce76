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

static struct magazine *list_of_home(unsigned cpu) { return stack_list(cache, shelf_number(slab_home_of_cpu(cpu))); }
static unsigned magazines_of(unsigned cpu) {
    unsigned count = 0;
    for (const struct magazine *magazine = list_of_home(cpu); magazine != NULL; magazine = magazine->next) count++;
    return count;
}

/* As malloc's backend, with a count of calls. */
static struct cache_backend counting;
static const struct cache_backend *plain;
static uint64_t visits_of_slabs;
static unsigned counted_alloc(void *context, unsigned of, unsigned home, bool apart, void **taken, unsigned count) {
    visits_of_slabs++;
    return plain->alloc(context, of, home, apart, taken, count);
}
static void counted_free(void *context, unsigned of, void *const *given, unsigned count) {
    visits_of_slabs++;
    plain->free(context, of, given, count);
}

static void give_rest(unsigned count) {
    for (unsigned cpu = 0; cpu < 2; cpu++) give_on(cpu, objects[cpu], count);
    ASSERT_NOTHING_LEFT();
}

static void independent_cpus_share_no_slab(void **state) {
    (void)state;
    uint64_t random = 1;
    begin();
    for (unsigned i = 0; i < 512; i += 8)
        for (unsigned cpu = 0; cpu < 2; cpu++) take_on(cpu, &objects[cpu][i], 8);
    assert_int_equal(mixed(512), 0);
    for (unsigned round = 0; round < 400; round++) { /* random replacement in bursts, larger than an array */
        const unsigned m = rounds_of(cache), most = m + m / 4;
        unsigned cpu = round % 2, at = (unsigned)next_random(&random) % (512 - most), count = m / 3 + (unsigned)next_random(&random) % (most - m / 3);
        give_on(cpu, &objects[cpu][at], count);
        take_on(cpu, &objects[cpu][at], count);
    }
    assert_int_equal(mixed(512), 0);
    assert_int_equal(caches.depots[cache].passed, 0);
    give_rest(512);
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
        const unsigned m = rounds_of(cache), most = m + m / 4; /* what arrays can't hold */
        unsigned cpu = round % 2, at = (unsigned)next_random(&random) % (512 - most), count = m / 3 + (unsigned)next_random(&random) % (most - m / 3);
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
    uint64_t visits = visits_of(cache);
    for (unsigned i = 0; i < 128; i++) { /* one in nine */
        give_on(1, &objects[1][8 * i], 8);
        give_on(1, &objects[0][i], 1);
    }
    visits = visits_of(cache) - visits;
    assert_in_range(visits, 1, 128 * 9 / (rounds / 2) + 2);
    give_on(0, &objects[0][128], 128);
    ASSERT_NOTHING_LEFT();
}

/* Who worked for itself finds its own magazines again, behind those of others, and takes none of theirs. */
static void magazines_are_had_by_their_cpu(void **state) {
    (void)state;
    begin();
    for (unsigned cpu = 0; cpu < 2; cpu++) {
        unsigned count = rounds_of(cache) * 5 / 4; /* more than an array holds: one magazine */
        take_on(cpu, objects[cpu], count);
        give_on(cpu, objects[cpu], count);
        assert_non_null(list_of_home(cpu));
        assert_null(caches.depots[cache].full.first);
    }
    uint64_t allocs = slab_allocs_of(cache);
    sim_cpu_set(0);
    unsigned there = magazines_of(0) * rounds_of(cache) / 2 + rounds_in(0, cache);
    take_all(cache, objects[0], there);
    assert_int_equal(slab_allocs_of(cache), allocs);
    take_all(cache, &objects[0][there], 100);
    assert_true(slab_allocs_of(cache) > allocs);
    take_on(1, objects[1], 512);
    for (unsigned i = 0; i < 512; i++) assert_int_equal(slab_home_of(&slabs, cache, objects[1][i]), slab_home_of_cpu(1));
    give_on(1, objects[1], 512);
    give_on(0, objects[0], there + 100);
    ASSERT_NOTHING_LEFT();
}

/* Many CPUs that work for themselves, each with its bursts: the depot serves them as it served them when magazines were anyone's. */
static void many_cpus_find_their_magazines(void **state) {
    enum { CPUS = 32, BURST = 200 };
    static void *bursts[CPUS][BURST];
    bool holds[CPUS] = {false};
    uint64_t random = 3, operations = 0;
    (void)state;
    build(CPUS, 256);
    cache = cache_of(OBJECT_BYTES);
    plain = caches.backend;
    counting = *plain;
    counting.alloc = counted_alloc;
    counting.free = counted_free;
    caches.backend = &counting;
    for (unsigned round = 0; round < 8000; round++) {
        unsigned cpu = (unsigned)next_random(&random) % CPUS;
        if (round == 2000) operations = 0, visits_of_slabs = 0;
        if (round % 500 == 0) cache_tick(&caches);
        if (holds[cpu])
            give_on(cpu, bursts[cpu], BURST);
        else
            take_on(cpu, bursts[cpu], BURST);
        holds[cpu] = !holds[cpu];
        operations += BURST;
    }
    unsigned transfer = rounds_of(cache) / 2;
    if (visits_of_slabs * transfer > operations * 6 / 10)
        fail_msg("%u visits of the slabs in %u operations", (unsigned)visits_of_slabs, (unsigned)operations);
    for (unsigned cpu = 0; cpu < CPUS; cpu++)
        if (holds[cpu]) give_on(cpu, bursts[cpu], BURST);
    ASSERT_NOTHING_LEFT();
}

/*
 * cache-scratch of Hoard's authors: one thread makes small objects, which lie in one cache line; others free one each and then allocate and write. No
 * slab's lines are written by two of them, whatever was closed: arrays that were never used, and such as a drain has emptied.
 */
static void an_object_of_another_cpu_is_not_the_next_one_out(void **state) {
    (void)state;
    for (unsigned drained = 0; drained < 2; drained++) {
        void *made[3], *next[3];
        build(3, 256);
        cache = cache_of(16);
        for (unsigned cpu = 3; drained != 0 && cpu-- != 0;) {
            sim_cpu_set(cpu);
            give(cache, must_take(cache));
        }
        if (drained != 0) cache_drain(&caches);
        take_on(0, made, 3);
        for (unsigned cpu = 0; cpu < 3; cpu++) give_on(cpu, &made[cpu], 1);
        for (unsigned cpu = 0; cpu < 3; cpu++) take_on(cpu, &next[cpu], 1);
        for (unsigned cpu = 1; cpu < 3; cpu++)
            for (unsigned other = 0; other < cpu; other++) assert_true(slab_of(next[cpu]) != slab_of(next[other]));
        for (unsigned cpu = 0; cpu < 3; cpu++) give_on(cpu, &next[cpu], 1);
        ASSERT_NOTHING_LEFT();
    }
}

/* What a CPU left that comes no more goes at a tick, not what those that are there need. */
static void magazines_of_a_cpu_that_is_gone_leave(void **state) {
    (void)state;
    build(3, 256);
    cache = cache_of(OBJECT_BYTES);
    for (unsigned cpu = 0; cpu < 3; cpu++) {
        sim_cpu_set(cpu);
        give(cache, must_take(cache));
    }
    take_on(2, objects[0], rounds_of(cache) * 5 / 4);
    give_on(2, objects[0], rounds_of(cache) * 5 / 4);
    assert_true(magazines_of(2) != 0);
    for (unsigned tick = 0; tick < 4; tick++) {
        for (unsigned round = 0; round < 8; round++) {
            take_on(round % 2, objects[0], 420);
            give_on(round % 2, objects[0], 420);
        }
        cache_tick(&caches);
    }
    assert_int_equal(magazines_of(2), 0);
    assert_true(magazines_of(0) + magazines_of(1) != 0);
    ASSERT_NOTHING_LEFT();
}

/* Apart costs new slabs up to an eighth of the cache and a little; beyond that others' serve. */
static void a_cache_of_many_holes_does_not_grow(void **state) {
    (void)state;
    begin();
    take_on(0, objects[0], OBJECTS);
    uint64_t before = slab_stats_of(cache).memory_bytes;
    unsigned kept = 0;
    for (unsigned i = 0; i < OBJECTS; i++) {
        if (i % 8 == 0)
            objects[0][kept++] = objects[0][i];
        else
            give_on(0, &objects[0][i], 1);
    }
    cache_drain(&caches);
    take_on(1, objects[1], OBJECTS / 2);
    assert_in_range(slab_stats_of(cache).memory_bytes, 1, before + before / 8 + 8 * KIB + slab_stats_of(cache).slab_bytes);
    give_on(1, objects[1], OBJECTS / 2);
    give_on(0, objects[0], kept);
    ASSERT_NOTHING_LEFT();
}

/* Whoever frees what, ticks, drains, reaps and limits in between: nothing is lost, and nothing is had twice (cache_stack.h). */
static void random_operations_lose_nothing(uint64_t seed, bool thread_mode) {
    enum { CPUS = 4 };
    const struct sim_config sim = {.cpus = CPUS, .thread_mode = thread_mode, .arena_bytes = thread_mode ? 0 : SMALL_ARENA_BYTES};
    uint64_t random = seed;
    unsigned count = 0;
    assert_true(stack_build(&sim, 256, UINT64_MAX));
    cache = cache_of(seed % 2 == 0 ? 64 : OBJECT_BYTES);
    stack_set_rounds(cache, 8 << seed % 3, 64);
    for (unsigned step = 0; step < 3000; step++) {
        unsigned cpu = (unsigned)next_random(&random) % CPUS, burst = 1 + (unsigned)next_random(&random) % 40,
                 what = (unsigned)next_random(&random) % 100;
        if (thread_mode)
            sim_thread_become(cpu);
        else
            sim_cpu_set(cpu);
        if (what == 0)
            cache_tick(&caches);
        else if (what == 1)
            cache_drain(&caches);
        else if (what == 2)
            cache_reap(&caches);
        else if (what == 3)
            stack_contend(cache);
        else if (what < 5)
            zone.config.hard_limit_bytes = zone.config.hard_limit_bytes == 0 ? UINT64_MAX : 0;
        else if (what < 50)
            while (burst-- != 0 && count < OBJECTS && (objects[0][count] = take(cache)) != NULL) count++;
        else
            while (burst-- != 0 && count != 0) {
                unsigned i = what < 75 ? count - 1 : (unsigned)next_random(&random) % count; /* one's own, mostly, or anyone's */
                give(cache, objects[0][i]);
                objects[0][i] = objects[0][--count];
            }
        if (step % 16 == 0) {
            const char *unsound = stack_check();
            if (unsound != NULL) fail_msg("seed %u, step %u: %s", (unsigned)seed, step, unsound);
        }
    }
    zone.config.hard_limit_bytes = UINT64_MAX;
    give_all(cache, objects[0], count);
    ASSERT_NOTHING_LEFT();
}

static void nothing_is_lost(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 24; seed++) random_operations_lose_nothing(seed, seed % 4 == 3);
}

/* At the end of memory the free objects of others' slabs serve. */
static void the_last_objects_are_had_from_others_slabs(void **state) {
    (void)state;
    begin();
    take_on(0, objects[0], 64);
    cache_drain(&caches);
    give_on(0, objects[0], 20);
    cache_drain(&caches); /* back into the slabs, which have too few free ones to be adopted */
    struct slab_stats stats = slab_stats_of(cache);
    unsigned there = (unsigned)(stats.total - stats.in_use), got = 0;
    assert_true(there != 0);
    zone.config.hard_limit_bytes = 0;
    sim_cpu_set(1);
    assert_true(cache_has_homes(&caches, cache));
    while (got <= there && (objects[1][got] = take(cache)) != NULL) got++;
    assert_int_equal(got, there);
    zone.config.hard_limit_bytes = UINT64_MAX;
    give_on(1, objects[1], got);
    give_on(0, &objects[0][20], 44);
    ASSERT_NOTHING_LEFT();
}

/* At the end of memory whose magazine it is makes no difference. */
static void the_last_objects_are_had_from_others_magazines(void **state) {
    (void)state;
    begin();
    sim_cpu_set(0);
    take_all(cache, objects[0], OBJECTS);
    give_all(cache, objects[0], OBJECTS);
    assert_non_null(list_of_home(0));
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
        cmocka_unit_test(an_object_of_another_cpu_is_not_the_next_one_out),
        cmocka_unit_test(what_was_mixed_comes_apart),
        cmocka_unit_test(passed_on_objects_go_by_the_depot),
        cmocka_unit_test(strangers_cost_few_visits),
        cmocka_unit_test(the_last_objects_are_had_from_others_magazines),
        cmocka_unit_test(the_last_objects_are_had_from_others_slabs),
        cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(magazines_are_had_by_their_cpu),
        cmocka_unit_test(many_cpus_find_their_magazines),
        cmocka_unit_test(magazines_of_a_cpu_that_is_gone_leave),
        cmocka_unit_test(a_cache_of_many_holes_does_not_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
