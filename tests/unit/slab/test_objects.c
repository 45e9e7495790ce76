/*
 * test_objects.c - slabs of objects from any source: what comes is aligned and nobody else's, what goes is verified, sources get back what they gave.
 */
#include "slab/objects_internal.h"
#include "unit/slab/slab_support.h"

/* ------------------------------------------------------------------ a source that counts */

struct ranges {
    uint64_t bytes, align; /* of the requests, all the same */
    uint64_t next;         /* ranges are integers, no memory: from here on */
    unsigned out, most;    /* how many are out, and may be at most */
};

static bool ranges_alloc(void *context, uint64_t bytes, uint64_t align, uintptr_t *start) {
    struct ranges *ranges = context;
    assert_int_equal(sim_locks_held(), 0);
    if (ranges->out == ranges->most) return false;
    if (ranges->bytes != 0) assert_true(ranges->bytes == bytes && ranges->align == align);
    ranges->bytes = bytes;
    ranges->align = align;
    ranges->next = align_up(ranges->next, align);
    *start = ranges->next;
    ranges->next += 3 * align; /* gaps, so that an error would not hit a neighbour */
    ranges->out++;
    return true;
}

static void ranges_free(void *context, uintptr_t start, uint64_t bytes) {
    struct ranges *ranges = context;
    assert_int_equal(sim_locks_held(), 0);
    assert_true(start % ranges->align == 0 && bytes == ranges->bytes && ranges->out != 0);
    ranges->out--;
}

static const struct slab_source ranges_source = {.alloc = ranges_alloc, .free = ranges_free};

static struct object_slabs objects;

#define SOUND()                                                   \
    do {                                                          \
        const char *wrong_ = object_slabs_check(&objects);        \
        if (wrong_ != NULL) fail_msg("%d: %s", __LINE__, wrong_); \
        assert_int_equal(sim_locks_held(), 0);                    \
    } while (0)

/* ------------------------------------------------------------------ tests */

static void slabs_suit_their_objects(void **state) {
    (void)state;
    static const uint64_t sizes[] = {1, 8, 16, 24, 100, 256, 1000, 4096, 5000, 20000, 65536, 100000, MIB};
    for (unsigned i = 0; i < ARRAY_LENGTH(sizes); i++)
        for (uint64_t align = 1; align <= 64 * KIB; align *= 16) {
            struct object_slabs slab;
            bool ok = object_slabs_init(&slab, &zone, sizes[i], align, 0, &slab_source_zone, &zone);
            assert_int_equal(ok, align_up(sizes[i], align) <= OBJECT_BYTES_MAX);
            if (!ok) continue;
            assert_true(slab.stride >= sizes[i] && slab.stride % align == 0);
            assert_true(slab.capacity >= 1 && slab.capacity * slab.stride <= slab.slab_bytes);
            assert_true(slab.slab_bytes % GRANULE_BYTES == 0 && slab.slab_align >= slab.slab_bytes && slab.slab_align % align == 0);
            assert_true(is_power_of_two(slab.slab_align));
            void *object;
            assert_int_equal(object_slabs_alloc(&slab, &object, 1), 1);
            assert_true((uintptr_t)object % align == 0 && zone_contains(&zone, object));
            memset(object, 0x5a, sizes[i]);
            unsigned done;
            assert_int_equal(object_slabs_free(&slab, &object, 1, &done), OBJECTS_OK);
            assert_int_equal(object_slabs_destroy(&slab), 0);
        }
    struct object_slabs slab;
    assert_false(object_slabs_init(&slab, &zone, 0, 16, 0, &slab_source_zone, &zone));
    assert_false(object_slabs_init(&slab, &zone, 16, 0, 0, &slab_source_zone, &zone));
    assert_false(object_slabs_init(&slab, &zone, 16, 24, 0, &slab_source_zone, &zone));
    assert_false(object_slabs_init(&slab, &zone, UINT64_MAX, 1, 0, &slab_source_zone, &zone));
    assert_false(object_slabs_init(&slab, &zone, 100, 1, 64, &slab_source_zone, &zone));
    struct zone_counters counters;
    zone_counters_get(&zone, &counters);
    assert_int_equal(counters.allocated, 0);
    assert_null(zone_check(&zone));
}

static bool count_object(void *object, void *argument) {
    (void)object;
    return ++*(unsigned *)argument != 1000;
}

/* Integers as objects, and 4,000 random operations against a table. */
static void what_is_cached_need_not_be_memory(void **state) {
    (void)state;
    static void *held[2000];
    struct ranges ranges = {.next = 1 << 20, .most = UINT32_MAX};
    uint64_t random = 5, allocs = 0;
    unsigned count = 0;
    assert_true(object_slabs_init(&objects, &zone, 10, 2, 256, &ranges_source, &ranges));
    assert_int_equal(objects.capacity, 25);
    for (unsigned turn = 0; turn < 4000; turn++) {
        unsigned some = (unsigned)(next_random(&random) % 40);
        if (next_random(&random) % 2 == 0 && count + some <= ARRAY_LENGTH(held)) {
            unsigned got = object_slabs_alloc(&objects, held + count, some);
            assert_true(got != 0 || some == 0);
            for (unsigned i = 0; i < got; i++) {
                uint64_t value = (uintptr_t)held[count + i];
                assert_true(value % ranges.align % 10 == 0 && value % ranges.align < 250);
                for (unsigned k = 0; k < count + i; k++) assert_ptr_not_equal(held[k], held[count + i]);
                assert_int_equal(object_slabs_look_up(&objects, held[count + i]), OBJECTS_OK);
            }
            count += got;
            allocs += got;
        } else {
            unsigned done;
            if (some > count) some = count;
            for (unsigned i = 0; i < some; i++) { /* random ones to the end */
                unsigned k = (unsigned)(next_random(&random) % (count - i));
                void *moved = held[k];
                held[k] = held[count - 1 - i];
                held[count - 1 - i] = moved;
            }
            count -= some;
            assert_int_equal(object_slabs_free(&objects, held + count, some, &done), OBJECTS_OK);
            assert_int_equal(done, some);
        }
        if (turn % 64 == 0) SOUND();
        if (turn % 500 == 0) object_slabs_reap(&objects);
    }
    struct object_slabs_stats stats;
    object_slabs_stats_get(&objects, &stats);
    assert_true(stats.in_use == count && stats.allocs == allocs && stats.frees == allocs - count && stats.slabs == ranges.out);
    assert_int_equal(stats.total, ranges.out * 25);
    unsigned visited = 0;
    assert_true(object_slabs_walk(&objects, count_object, &visited));
    assert_int_equal(visited, count < 1000 ? count : 1000);
    assert_int_equal(object_slabs_destroy(&objects), count); /* says how many were not given back */
    assert_int_equal(ranges.out, 0);
}

static void what_is_no_object_is_refused(void **state) {
    (void)state;
    void *taken[60], *wrong[3];
    unsigned done;
    assert_true(object_slabs_init(&objects, &zone, 100, 4, 0, &slab_source_zone, &zone));
    assert_int_equal(object_slabs_look_up(&objects, &done), OBJECTS_FOREIGN); /* no table yet */
    unsigned count = object_slabs_alloc(&objects, taken, 60);
    assert_int_equal(count, objects.capacity < 60 ? objects.capacity : 60);
    assert_int_equal(object_slabs_look_up(&objects, (char *)taken[0] + 1), OBJECTS_NO_START);
    assert_int_equal(object_slabs_look_up(&objects, (char *)taken[0] + objects.capacity * 100), OBJECTS_NO_START); /* the waste at the end */
    assert_int_equal(object_slabs_look_up(&objects, &objects), OBJECTS_FOREIGN);
    assert_int_equal(object_slabs_look_up(&objects, NULL), OBJECTS_FOREIGN);
    wrong[0] = taken[0];
    wrong[1] = taken[1];
    wrong[2] = taken[0];
    assert_int_equal(object_slabs_free(&objects, wrong, 3, &done), OBJECTS_TWICE);
    assert_int_equal(done, 2); /* those before are back */
    SOUND();
    wrong[0] = &objects;
    assert_int_equal(object_slabs_free(&objects, wrong, 1, &done), OBJECTS_FOREIGN);
    assert_int_equal(done, 0);
    assert_int_equal(object_slabs_free(&objects, taken + 2, count - 2, &done), OBJECTS_OK);
    SOUND();
    assert_int_equal(object_slabs_destroy(&objects), 0);
}

static void an_exhausted_source_gives_what_there_is(void **state) {
    (void)state;
    void *taken[100];
    unsigned done;
    const size_t metadata_bytes = zone_metadata_bytes(&zone);
    struct ranges ranges = {.next = 4096, .most = 2};
    assert_true(object_slabs_init(&objects, &zone, 16, 16, 128, &ranges_source, &ranges));
    assert_int_equal(object_slabs_alloc(&objects, taken, 100), 8); /* a slab at a time */
    assert_int_equal(object_slabs_alloc(&objects, taken + 8, 92), 8);
    assert_int_equal(object_slabs_alloc(&objects, taken + 16, 84), 0);
    SOUND();
    assert_int_equal(object_slabs_free(&objects, taken + 3, 1, &done), OBJECTS_OK);
    assert_int_equal(object_slabs_alloc(&objects, taken + 16, 84), 1);
    assert_ptr_equal(taken[16], taken[3]);
    assert_int_equal(object_slabs_free(&objects, taken, 16, &done), OBJECTS_OK);
    assert_int_equal(ranges.out, 1); /* one may wait empty */
    assert_int_equal(object_slabs_reap(&objects), 1);
    assert_int_equal(ranges.out, 0);
    SOUND();
    assert_int_equal(object_slabs_destroy(&objects), 0);
    assert_int_equal(zone_metadata_bytes(&zone), metadata_bytes); /* of what was refused, too */
}

/* Metadata that ends, at any call: nothing is lost, and what the source gave goes back to it. */
static void no_metadata(void **state) {
    (void)state;
    for (unsigned nth = 1; nth < 4; nth++) {
        begin(NULL, plain_config());
        const size_t metadata_bytes = zone_metadata_bytes(&zone);
        void *taken[2000];
        struct ranges ranges = {.next = 4096, .most = UINT32_MAX};
        assert_true(object_slabs_init(&objects, &zone, 64, 64, 64, &ranges_source, &ranges)); /* a slab each */
        sim_fail_call(nth, SIM_FOREVER);
        unsigned count = 0, got;
        while (count < 2000 && (got = object_slabs_alloc(&objects, taken + count, 1)) != 0) count += got;
        assert_int_equal(ranges.out, count);
        SOUND();
        sim_fail_call(0, 1);
        unsigned done;
        assert_int_equal(object_slabs_free(&objects, taken, count, &done), OBJECTS_OK);
        SOUND();
        assert_int_equal(object_slabs_destroy(&objects), 0);
        assert_int_equal(ranges.out, 0);
        assert_int_equal(zone_metadata_bytes(&zone), metadata_bytes);
    }
}

/* Enough for what describes a slab, and not for the first table of them. */
static void no_metadata_for_a_table(void **state) {
    (void)state;
    const size_t descriptor_bytes = sizeof(struct object_slab) + sizeof(uint64_t);
    struct ranges ranges = {.next = 4096, .most = UINT32_MAX};
    assert_true(object_slabs_init(&objects, &zone, 64, 64, 64, &ranges_source, &ranges));
    void *descriptor = zone_metadata_alloc(&zone, descriptor_bytes), *object;
    sim_fail_call(1, SIM_FOREVER);
    while (zone_metadata_alloc(&zone, 1) != NULL) continue;
    zone_metadata_free(&zone, descriptor, descriptor_bytes);
    const size_t metadata_bytes = zone_metadata_bytes(&zone);
    assert_int_equal(object_slabs_alloc(&objects, &object, 1), 0);
    assert_true(ranges.bytes != 0 && ranges.out == 0); /* it came, and went back */
    assert_int_equal(zone_metadata_bytes(&zone), metadata_bytes);
    SOUND();
    sim_fail_call(0, 1);
    assert_int_equal(object_slabs_alloc(&objects, &object, 1), 1);
    assert_int_equal(object_slabs_destroy(&objects), 1);
    assert_int_equal(ranges.out, 0);
}

static void the_fullest_slab_first(void **state) {
    (void)state;
    void *taken[32];
    unsigned done;
    struct ranges ranges = {.next = 4096, .most = UINT32_MAX};
    assert_true(object_slabs_init(&objects, &zone, 16, 16, 128, &ranges_source, &ranges));
    for (unsigned i = 0; i < 32;) i += object_slabs_alloc(&objects, taken + i, 32 - i);
    /* Six free in the second slab, one in the third: the next object comes from the third. */
    assert_int_equal(object_slabs_free(&objects, taken + 8, 6, &done), OBJECTS_OK);
    assert_int_equal(object_slabs_free(&objects, taken + 20, 1, &done), OBJECTS_OK);
    void *object;
    assert_int_equal(object_slabs_alloc(&objects, &object, 1), 1);
    assert_ptr_equal(object, taken[20]);
    assert_int_equal(object_slabs_alloc(&objects, &object, 1), 1);
    assert_ptr_equal(object, taken[8]);
    assert_int_equal(object_slabs_destroy(&objects), 27);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(slabs_suit_their_objects, plain_slabs),
        cmocka_unit_test_setup(what_is_cached_need_not_be_memory, plain_slabs),
        cmocka_unit_test_setup(what_is_no_object_is_refused, plain_slabs),
        cmocka_unit_test_setup(an_exhausted_source_gives_what_there_is, plain_slabs),
        cmocka_unit_test_setup(no_metadata, plain_slabs),
        cmocka_unit_test_setup(no_metadata_for_a_table, plain_slabs),
        cmocka_unit_test_setup(the_fullest_slab_first, plain_slabs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
