/*
 * test_threads.c - many threads. With CPU caches, memory in caches is bounded by CPUs, whatever the number of threads. In thread mode every
 * thread has an array of its own, from its first miss until it ends: then its rounds go back and its id serves the next thread;
 * a thread that gets no id, or has ended, works without an array. What is in one can be had by others, unless its owner is in the middle of an
 * operation or there is no fence. And fork, which leaves one thread of many.
 */
#include "unit/cache/cache_test.h"

#define THREADS 10000

static void *objects[THREADS];

static void build_threads(uint64_t address_limit_bytes) {
    const struct sim_config sim = {.cpus = 2, .arena_bytes = 8 * (uint64_t)GIB, .thread_mode = true};
    assert_true(stack_build_slabs(&sim, UINT64_MAX));
    sim_set_address_limit(address_limit_bytes);
    assert_true(stack_build_caches(256));
}

/* ------------------------------------------------------------------ CPU mode */

static void cached_memory_is_bounded_by_cpus(void **state) {
    (void)state;
    build(2, 256);
    unsigned cache = cache_of(64);
    struct depot *depot = &caches.depots[cache];
    for (unsigned thread = 0; thread < THREADS; thread++) { /* all of them stay alive */
        sim_thread_become(thread);
        sim_cpu_set(thread % 2);
        objects[thread] = must_take(cache);
    }
    uint64_t most = 2 * depot->rounds + (uint64_t)depot->full_max * (depot->rounds / 2);
    assert_true(stats_of(cache).cached <= most);
    assert_int_equal(cache_area_bytes(&caches), 2 * CPU_AREA_BYTES);
    for (unsigned thread = 0; thread < THREADS; thread++) {
        sim_thread_become(thread);
        give(cache, objects[thread]);
    }
    most = 2 * depot->rounds + (uint64_t)depot->full_max * (depot->rounds / 2);
    assert_true(stats_of(cache).cached <= most);
    assert_int_equal(cache_area_bytes(&caches), 2 * CPU_AREA_BYTES);
    ASSERT_SOUND();
    for (unsigned thread = 0; thread < THREADS; thread++) { /* their ends cost nothing */
        sim_thread_become(thread);
        sim_thread_exit();
    }
    sim_thread_become(THREADS);
    ASSERT_NOTHING_LEFT();
}

/* ------------------------------------------------------------------ thread mode */

static void a_thread_has_an_array_from_its_first_miss_to_its_end(void **state) {
    (void)state;
    build_threads(UINT64_MAX);
    unsigned cache = cache_of(64), half = rounds_of(cache) / 2;
    assert_int_equal(platform_thread_id(), 0);
    give(cache, must_take(cache));
    uint32_t first = platform_thread_id();
    assert_int_not_equal(first, 0);
    assert_int_equal(rounds_in(first, cache), half);
    sim_thread_become(1);
    void *object = must_take(cache);
    uint32_t second = platform_thread_id();
    assert_true(second != 0 && second != first);
    sim_thread_become(0);
    sim_cpu_set(1); /* its array goes with it */
    void *mine = must_take(cache);
    assert_int_equal(rounds_in(first, cache), half - 1);
    give(cache, object); /* of another thread: as good as any */
    assert_ptr_equal(must_take(cache), object);
    sim_thread_exit();
    assert_int_equal(header_word_of(first, cache), 0);
    assert_int_equal(rounds_in(second, cache), half - 1);
    /* The id and its area go to the next thread. */
    sim_thread_become(2);
    give(cache, must_take(cache));
    assert_int_equal(platform_thread_id(), first);
    assert_int_equal(rounds_in(first, cache), half);
    give(cache, mine);
    give(cache, object);
    ASSERT_SOUND();
    sim_thread_exit();
    sim_thread_become(1);
    sim_thread_exit();
    assert_int_equal(slab_stats_of(cache).in_use, 0);
    sim_thread_become(3);
    ASSERT_NOTHING_LEFT();
}

static void area_zero_is_everybodys_and_stays_empty(void **state) {
    (void)state;
    build_threads(UINT64_MAX);
    unsigned cache = cache_of(64);
    sim_fail_only(UINT64_C(1) << SIM_COMMIT);
    void *first = must_take(cache); /* gets an id */
    sim_thread_become(1);
    sim_fail_call(1, SIM_FOREVER); /* no memory for its area */
    void *object = must_take(cache);
    assert_int_equal(platform_thread_id(), 0);
    give(cache, object);
    for (unsigned c = 0; c < SLAB_CACHE_END; c++) assert_int_equal(header_word_of(0, c), 0);
    /* It tries again, and has an array as soon as there is memory. */
    sim_fail_call(0, 0);
    give(cache, must_take(cache));
    assert_int_not_equal(platform_thread_id(), 0);
    give(cache, first);
    sim_thread_exit();
    sim_thread_become(0);
    sim_thread_exit();
    sim_thread_become(2);
    ASSERT_NOTHING_LEFT();
}

static void a_thread_that_has_ended_gets_no_id_again(void **state) {
    (void)state;
    build_threads(UINT64_MAX);
    unsigned cache = cache_of(64);
    void *kept = must_take(cache);
    sim_thread_exit();
    assert_true(platform_thread_ended());
    /* Destructors of thread-local variables that run late. */
    void *late = must_take(cache);
    assert_int_equal(platform_thread_id(), 0);
    give(cache, kept);
    give(cache, late);
    assert_int_equal(platform_thread_id(), 0);
    assert_int_equal(slab_stats_of(cache).in_use, 0);
    sim_thread_become(1);
    ASSERT_NOTHING_LEFT();
}

/*
 * The C library frees on threads that are all but gone: nobody would hear that an id which is taken then is free again. Who frees for a living has an
 * array all the same.
 */
static void a_few_frees_give_a_thread_no_id(void **state) {
    (void)state;
    build_threads(UINT64_MAX);
    unsigned cache = cache_of(64), count = 100;
    take_all(cache, objects, count);
    uint32_t first = platform_thread_id(), made = caches.ids_made;
    for (unsigned thread = 1; thread <= 20; thread++) {
        sim_thread_become(thread);
        give(cache, objects[--count]);
        assert_int_equal(platform_thread_id(), 0);
    }
    assert_int_equal(caches.ids_made, made);
    while (count != 0 && platform_thread_id() == 0) give(cache, objects[--count]);
    uint32_t second = platform_thread_id();
    assert_true(second != 0 && second != first);
    give_all(cache, objects, count);
    assert_int_equal(rounds_in(second, cache), count);
    ASSERT_SOUND();
    sim_thread_exit();
    sim_thread_become(0);
    sim_thread_exit();
    sim_thread_become(21);
    ASSERT_NOTHING_LEFT();
}

static void ids_are_no_more_than_threads_alive_at_once(void **state) {
    (void)state;
    build_threads(UINT64_MAX);
    unsigned cache = cache_of(64);
    for (unsigned thread = 0; thread < 3000; thread++) { /* seven alive at a time */
        sim_thread_become(thread);
        objects[thread] = must_take(cache);
        if (thread < 6) continue;
        sim_thread_become(thread - 6);
        give(cache, objects[thread - 6]);
        sim_thread_exit();
    }
    assert_int_equal(caches.ids_made, 1 + 7);
    assert_int_equal(cache_area_bytes(&caches), 7 * CPU_AREA_BYTES);
    for (unsigned thread = 3000 - 6; thread < 3000; thread++) {
        sim_thread_become(thread);
        give(cache, objects[thread]);
        sim_thread_exit();
    }
    sim_thread_become(3000);
    assert_int_equal(slab_stats_of(cache).in_use, 0);
    ASSERT_NOTHING_LEFT();
}

static void ten_thousand_threads_alive_give_everything_back(void **state) {
    (void)state;
    build_threads(UINT64_MAX);
    unsigned cache = cache_of(64);
    for (unsigned thread = 0; thread < THREADS; thread++) {
        sim_thread_become(thread);
        objects[thread] = must_take(cache);
    }
    assert_int_equal(caches.ids_made, 1 + THREADS);
    ASSERT_SOUND();
    for (unsigned thread = 0; thread < THREADS; thread++) {
        sim_thread_become(thread);
        give(cache, objects[(thread + 1) % THREADS]);
        sim_thread_exit();
    }
    sim_thread_become(THREADS);
    assert_int_equal(caches.spare_count, THREADS);
    assert_int_equal(slab_stats_of(cache).in_use, stats_of(cache).cached);
    ASSERT_NOTHING_LEFT();
}

static void threads_without_an_id_work_on_slabs(void **state) {
    (void)state;
    build_threads(2 * (uint64_t)GIB); /* little address space: 63 threads have arrays */
    unsigned cache = cache_of(64), with = 0, threads = 200;
    for (unsigned thread = 0; thread < threads; thread++) {
        sim_thread_become(thread);
        objects[thread] = must_take(cache);
        with += platform_thread_id() != 0;
    }
    assert_int_equal(with, 63);
    /* They do so by themselves: nobody waits for a lock with each operation. */
    uint64_t before = sim_calls(SIM_LOCK_CONTENDED);
    sim_contend_lock(&caches.drain_lock, 1);
    give(cache, objects[--threads]);
    objects[threads++] = must_take(cache);
    sim_contend_lock(&caches.drain_lock, 0);
    assert_int_equal(sim_calls(SIM_LOCK_CONTENDED), before);
    ASSERT_SOUND();
    for (unsigned thread = threads; thread-- > 0;) {
        sim_thread_become(thread);
        give(cache, objects[thread]);
        sim_thread_exit();
    }
    sim_thread_become(threads);
    ASSERT_NOTHING_LEFT();
}

/* What is reserved counts against a limit: it is for the program, not for threads that there may be. */
static void areas_take_little_of_a_limit(void **state) {
    (void)state;
    for (uint64_t limit = 2 * (uint64_t)GIB; limit <= 1024 * (uint64_t)GIB; limit *= 2) {
        const struct sim_config sim = {.cpus = 2, .thread_mode = true, .address_limit_bytes = limit};
        assert_true(stack_build_slabs(&sim, UINT64_MAX));
        uint64_t before = sim_reserved_bytes();
        assert_true(stack_build_caches(256));
        assert_true(sim_reserved_bytes() - before <= limit / 64 + CPU_AREA_BYTES);
        assert_in_range(caches.areas, 64, CACHE_THREADS_MAX);
        assert_true(limit < 1024 * (uint64_t)GIB || caches.areas == CACHE_THREADS_MAX);
    }
}

/* Two threads with half an array each; the second one is the current. */
static void build_two(unsigned cache, uint32_t ids[2]) {
    for (unsigned thread = 0; thread < 2; thread++) {
        sim_thread_become(thread);
        give(cache, must_take(cache));
        ids[thread] = platform_thread_id();
    }
}

static void a_drain_takes_what_other_threads_have(void **state) {
    (void)state;
    build_threads(UINT64_MAX);
    unsigned cache = cache_of(64), half = rounds_of(cache) / 2;
    uint32_t ids[2];
    build_two(cache, ids);
    cache_drain(&caches);
    assert_int_equal(stats_of(cache).cached, 0);
    assert_int_equal(slab_stats_of(cache).in_use, 0);
    struct cpu_header header = header_of(ids[0], cache);
    assert_true(header.top == taken_in(ids[0], cache) && header.top == caches.depots[cache].bottom + half); /* top is its owner's for good */
    ASSERT_SOUND();
    for (unsigned thread = 0; thread < 2; thread++) { /* both go on with arrays as they were */
        sim_thread_become(thread);
        give(cache, must_take(cache));
        header = header_of(ids[thread], cache);
        assert_true(header.bottom == caches.depots[cache].bottom && taken_in(ids[thread], cache) == 0 && rounds_in(ids[thread], cache) == half);
    }
    ASSERT_SOUND();
    for (unsigned thread = 0; thread < 2; thread++) {
        sim_thread_become(thread);
        sim_thread_exit();
    }
    sim_thread_become(2);
    ASSERT_NOTHING_LEFT();
}

static void an_owner_in_the_middle_keeps_what_it_has(void **state) {
    (void)state;
    build_threads(UINT64_MAX);
    unsigned cache = cache_of(64), half = rounds_of(cache) / 2;
    uint32_t ids[2];
    build_two(cache, ids);
    sim_thread_become(0);
    *sim_thread_sequence() = 1; /* stopped between its first instruction and its commit */
    sim_thread_become(1);
    uint64_t before = header_word_of(ids[0], cache);
    cache_drain(&caches);
    assert_int_equal(header_word_of(ids[0], cache), before); /* open again */
    assert_int_equal(stats_of(cache).cached, half);
    sim_thread_become(0);
    *sim_thread_sequence() = CPU_SEQUENCE_PUSH; /* a single push may stay there */
    sim_thread_become(1);
    cache_drain(&caches);
    assert_int_equal(stats_of(cache).cached, 0);
    ASSERT_SOUND();
    *sim_thread_sequence() = 0;
    ASSERT_NOTHING_LEFT();
}

/* A push that was under way when its array was drained commits afterwards: the next drain finds its round, or its owner does. */
static void the_round_of_a_late_push_is_found(void **state) {
    (void)state;
    for (unsigned finder = 0; finder < 2; finder++) {
        build_threads(UINT64_MAX);
        unsigned cache = cache_of(64);
        uint32_t ids[2];
        void *late;
        build_two(cache, ids);
        cache_drain(&caches);
        hold_from_slabs(cache, &late, 1);
        *(uint64_t *)late = 0;
        held[cache]--;
        struct cpu_header *header = cpu_area_header(cpu_area_at(ids[0]), cache);
        ((void **)(void *)cpu_area_at(ids[0]))[header->top++] = late;
        assert_int_equal(rounds_in(ids[0], cache), 1);
        ASSERT_SOUND();
        if (finder == 0) {
            cache_drain(&caches);
            assert_int_equal(stats_of(cache).cached, 0);
            assert_int_equal(header->top, taken_in(ids[0], cache));
        } else {
            sim_thread_become(0);
            give(cache, must_take(cache));
            assert_int_equal(taken_in(ids[0], cache), 0);
        }
        ASSERT_SOUND();
        ASSERT_NOTHING_LEFT();
    }
}

static void without_a_fence_threads_keep_what_they_have(void **state) {
    (void)state;
    build_threads(UINT64_MAX);
    unsigned cache = cache_of(64), half = rounds_of(cache) / 2;
    uint32_t ids[2];
    build_two(cache, ids);
    sim_fail_only(UINT64_C(1) << SIM_FENCE);
    sim_fail_call(1, SIM_FOREVER);
    cache_drain(&caches);
    assert_int_equal(stats_of(cache).cached, half); /* the caller's own is emptied by ordinary pops */
    assert_int_equal(rounds_in(ids[1], cache), 0);
    ASSERT_SOUND();
    sim_fail_call(0, 0);
    ASSERT_NOTHING_LEFT();
}

static void a_tick_takes_what_threads_leave_idle(void **state) {
    (void)state;
    build_threads(UINT64_MAX);
    unsigned cache = cache_of(64), half = rounds_of(cache) / 2;
    uint32_t ids[2];
    build_two(cache, ids);
    cache_tick(&caches);
    assert_int_equal(rounds_in(ids[0], cache), half);
    void *object = must_take(cache); /* what it does is seen by its tops */
    cache_tick(&caches);
    assert_int_equal(rounds_in(ids[0], cache), 0);
    assert_int_equal(rounds_in(ids[1], cache), half - 1);
    give(cache, object);
    ASSERT_SOUND();
    for (unsigned i = 0; i < 4; i++) cache_tick(&caches);
    assert_int_equal(stats_of(cache).cached, 0);
    ASSERT_NOTHING_LEFT();
}

/* A tick looks at some areas only, and ticks at all of them in turn. */
static void ticks_come_to_every_thread(void **state) {
    (void)state;
    build_threads(UINT64_MAX);
    unsigned cache = cache_of(64), threads = 600;
    for (unsigned thread = 0; thread < threads; thread++) {
        sim_thread_become(thread);
        give(cache, must_take(cache));
    }
    for (unsigned i = 0; i < 12; i++) {
        uint64_t fences = sim_calls(SIM_FENCE);
        cache_tick(&caches);
        assert_in_range(sim_calls(SIM_FENCE) - fences, 0, 256);
    }
    assert_int_equal(stats_of(cache).cached, 0);
    ASSERT_NOTHING_LEFT();
}

/* ------------------------------------------------------------------ fork */

static void a_forked_child_takes_what_other_threads_had(void **state) {
    (void)state;
    for (unsigned thread_mode = 0; thread_mode < 2; thread_mode++) {
        if (thread_mode)
            build_threads(UINT64_MAX);
        else
            build(4, 256);
        unsigned cache = cache_of(64), half = rounds_of(cache) / 2;
        for (unsigned thread = 0; thread < 4; thread++) {
            sim_thread_become(thread);
            sim_cpu_set(thread % 2);
            give(cache, must_take(cache));
        }
        sim_thread_become(4); /* has ended before the fork: its id is spare already */
        give(cache, must_take(cache));
        sim_thread_exit();
        sim_thread_become(1);
        if (thread_mode) *sim_thread_sequence() = 1; /* in the middle of an operation, which the child does not wait for */
        sim_thread_become(2);
        uint32_t own = platform_thread_id();
        uint64_t cached = stats_of(cache).cached, frees = slab_stats_of(cache).frees;
        cache_fork_prepare(&caches);
        sim_fork_child();
        cache_fork_child(&caches);
        cache_fork_child_settle(&caches);
        assert_int_equal(sim_locks_held(), 0);
        ASSERT_SOUND();
        /* Nothing of it is touched: a child that only becomes another program would pay for copies of all those pages. */
        assert_int_equal(stats_of(cache).cached, cached);
        assert_int_equal(slab_stats_of(cache).frees, frees);
        if (thread_mode) {
            assert_int_equal(rounds_in(own, cache), half);
            assert_int_equal(cached, 4 * half);
            assert_int_equal(caches.spare_count, caches.ids_made - 2); /* all but 0 and the own */
            for (unsigned i = 0; i < caches.spare_count; i++) {        /* each once */
                assert_int_not_equal(caches.spare_ids[i], own);
                for (unsigned k = 0; k < i; k++) assert_int_not_equal(caches.spare_ids[i], caches.spare_ids[k]);
            }
        }
        uint64_t begun_ns = platform_now_ns();
        for (unsigned thread = 5; thread < 15; thread++) { /* the child has threads of its own, the first of which find rounds */
            sim_thread_become(thread);
            give(cache, must_take(cache));
        }
        sim_thread_become(2);
        cache_drain(&caches);
        assert_int_equal(stats_of(cache).cached, 0);
        assert_int_equal(platform_now_ns(), begun_ns);
        for (unsigned thread = 5; thread < 15; thread++) {
            sim_thread_become(thread);
            give(cache, must_take(cache));
        }
        ASSERT_SOUND();
        for (unsigned thread = 5; thread < 15; thread++) {
            sim_thread_become(thread);
            sim_thread_exit();
        }
        sim_thread_become(2);
        ASSERT_NOTHING_LEFT();
    }
}

static void the_parent_of_a_fork_goes_on(void **state) {
    (void)state;
    build(2, 256);
    unsigned cache = cache_of(64);
    void *object = must_take(cache);
    cache_fork_prepare(&caches);
    assert_false(platform_lock_try(&caches.depots[cache].lock));
    cache_fork_parent(&caches);
    assert_int_equal(sim_locks_held(), 0);
    give(cache, object);
    cache_tick(&caches);
    ASSERT_NOTHING_LEFT();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cached_memory_is_bounded_by_cpus),
        cmocka_unit_test(a_thread_has_an_array_from_its_first_miss_to_its_end),
        cmocka_unit_test(area_zero_is_everybodys_and_stays_empty),
        cmocka_unit_test(a_thread_that_has_ended_gets_no_id_again),
        cmocka_unit_test(a_few_frees_give_a_thread_no_id),
        cmocka_unit_test(ids_are_no_more_than_threads_alive_at_once),
        cmocka_unit_test(ten_thousand_threads_alive_give_everything_back),
        cmocka_unit_test(threads_without_an_id_work_on_slabs),
        cmocka_unit_test(areas_take_little_of_a_limit),
        cmocka_unit_test(a_drain_takes_what_other_threads_have),
        cmocka_unit_test(an_owner_in_the_middle_keeps_what_it_has),
        cmocka_unit_test(the_round_of_a_late_push_is_found),
        cmocka_unit_test(without_a_fence_threads_keep_what_they_have),
        cmocka_unit_test(a_tick_takes_what_threads_leave_idle),
        cmocka_unit_test(ticks_come_to_every_thread),
        cmocka_unit_test(a_forked_child_takes_what_other_threads_had),
        cmocka_unit_test(the_parent_of_a_fork_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
