/*
 * test_objects_move.c - emptying sparse slabs: which slab is put apart, that nobody allocates from it, whatever is freed meanwhile, where its objects
 * go, and that marks keep it from being tried again too soon.
 */
#include "slab/objects.h"
#include "unit/slab/slab_support.h"

#define CAPACITY 8 /* objects in a slab */
#define SLABS 4

static struct object_slabs objects;
static void *taken[SLABS][CAPACITY]; /* NULL: freed */
static unsigned out;                 /* slabs that the source has out */
static uint64_t next_start;

static bool source_alloc(void *context, uint64_t bytes, uint64_t align, uintptr_t *start) {
    (void)context, (void)bytes;
    assert_int_equal(sim_locks_held(), 0);
    next_start += 4 * align;
    *start = next_start;
    out++;
    return true;
}
static void source_free(void *context, uintptr_t start, uint64_t bytes) {
    (void)context, (void)start, (void)bytes;
    assert_int_equal(sim_locks_held(), 0);
    out--;
}
static const struct slab_source source = {.alloc = source_alloc, .free = source_free};

#define SOUND()                                                   \
    do {                                                          \
        const char *wrong_ = object_slabs_check(&objects);        \
        if (wrong_ != NULL) fail_msg("%d: %s", __LINE__, wrong_); \
        assert_int_equal(sim_locks_held(), 0);                    \
    } while (0)

static void free_object(unsigned slab, unsigned i) {
    unsigned done;
    assert_int_equal(object_slabs_free(&objects, &taken[slab][i], 1, &done), OBJECTS_OK);
    taken[slab][i] = NULL;
}

/* Four slabs of which so many objects are in use, the first of each. */
static void fill(const unsigned in_use[SLABS]) {
    out = 0;
    next_start = 1 << 16;
    assert_true(object_slabs_init(&objects, &zone, 16, 16, 16 * CAPACITY, &source, NULL));
    for (unsigned s = 0; s < SLABS; s++) assert_int_equal(object_slabs_alloc(&objects, taken[s], CAPACITY), CAPACITY);
    for (unsigned s = 0; s < SLABS; s++)
        for (unsigned i = in_use[s]; i < CAPACITY; i++) free_object(s, i);
    SOUND();
}

static bool is_of(const void *object, unsigned slab) {
    uintptr_t start = (uintptr_t)taken[slab][0];
    return (uintptr_t)object >= start && (uintptr_t)object < start + (uintptr_t)(16 * CAPACITY);
}

static void *take_one(void) {
    void *object = NULL;
    assert_int_equal(object_slabs_alloc(&objects, &object, 1), 1);
    return object;
}

static void the_sparsest_slab_empties_into_the_fullest(void **state) {
    (void)state;
    fill((unsigned[]){6, 2, 7, 5});
    assert_int_equal(object_slabs_spare(&objects), 1); /* 12 are free, 8 in a slab */
    assert_true(object_slabs_part(&objects));
    SOUND();
    void *old = object_slabs_next(&objects, NULL);
    assert_ptr_equal(old, taken[1][0]);
    assert_ptr_equal(object_slabs_next(&objects, old), taken[1][1]);
    assert_null(object_slabs_next(&objects, taken[1][1]));
    void *fresh = object_slabs_alloc_dense(&objects);
    assert_true(is_of(fresh, 2)); /* the one free object of the fullest */
    assert_true(is_of(object_slabs_alloc_dense(&objects), 0));
    SOUND();
    free_object(1, 0);
    SOUND();
    assert_int_equal(out, 4);
    free_object(1, 1); /* empty, but it stays until it rejoins */
    assert_int_equal(out, 4);
    SOUND();
    assert_null(object_slabs_next(&objects, NULL));
    assert_int_equal(object_slabs_rejoin(&objects, OBJECTS_LATER), 16 * CAPACITY);
    assert_int_equal(out, 3);
    SOUND();
    assert_int_equal(object_slabs_spare(&objects), 0);
    assert_false(object_slabs_part(&objects));
    assert_int_equal(object_slabs_destroy(&objects), 20);
    assert_int_equal(out, 0);
}

/* Also where it is all that has free objects: then a slab more is made. */
static void nothing_comes_from_the_slab_apart(void **state) {
    (void)state;
    fill((unsigned[]){4, 3, 8, 8});
    assert_true(object_slabs_part(&objects));
    for (unsigned i = 0; i < 4; i++) assert_true(is_of(take_one(), 0));
    assert_null(object_slabs_alloc_dense(&objects)); /* never out of a new slab */
    assert_int_equal(out, 4);
    assert_false(is_of(take_one(), 1));
    assert_int_equal(out, 5);
    SOUND();
    assert_int_equal(object_slabs_look_up(&objects, taken[1][0]), OBJECTS_OK); /* its objects are found as ever */
    assert_int_equal(object_slabs_look_up(&objects, (char *)taken[1][0] + 16 * 5), OBJECTS_TWICE);
    assert_int_equal(object_slabs_rejoin(&objects, OBJECTS_MOVABLE), 0);
    SOUND();
    for (unsigned i = 0; i < 5; i++) (void)take_one(); /* in use again */
    SOUND();
    assert_int_equal(object_slabs_destroy(&objects), 3 + 8 * 3 + 6);
}

static void wholly_free_slabs_are_no_room(void **state) {
    (void)state;
    fill((unsigned[]){8, 8, 5, 0});
    assert_int_equal(object_slabs_spare(&objects), 0);
    assert_false(object_slabs_part(&objects));
    free_object(0, 7);
    for (unsigned i = 0; i < 4; i++) free_object(1, 7 - i); /* 8 objects are free in partly used slabs now */
    assert_int_equal(object_slabs_spare(&objects), 1);
    assert_true(object_slabs_part(&objects));
    assert_ptr_equal(object_slabs_next(&objects, NULL), taken[1][0]);
    assert_true(is_of(object_slabs_alloc_dense(&objects), 0));
    for (unsigned i = 0; i < 3; i++) assert_true(is_of(object_slabs_alloc_dense(&objects), 2));
    assert_null(object_slabs_alloc_dense(&objects)); /* not out of the fourth */
    assert_int_equal(object_slabs_rejoin(&objects, OBJECTS_MOVABLE), 0);
    SOUND();
    assert_int_equal(object_slabs_destroy(&objects), 7 + 4 + 5 + 4);
}

static unsigned parted(void) {
    assert_true(object_slabs_part(&objects));
    for (unsigned s = 0; s < SLABS; s++)
        if (is_of(object_slabs_next(&objects, NULL), s)) return s;
    fail();
    return SLABS;
}

static void marks_keep_slabs_from_being_tried_again(void **state) {
    (void)state;
    fill((unsigned[]){1, 2, 3, 4});
    assert_int_equal(parted(), 0);
    object_slabs_rejoin(&objects, OBJECTS_FIXED);
    assert_int_equal(parted(), 1);
    object_slabs_rejoin(&objects, OBJECTS_LATER);
    assert_int_equal(parted(), 2);
    object_slabs_rejoin(&objects, OBJECTS_MOVABLE); /* it was given up for other reasons */
    assert_int_equal(parted(), 2);
    object_slabs_rejoin(&objects, OBJECTS_LATER);
    assert_int_equal(parted(), 3);
    object_slabs_rejoin(&objects, OBJECTS_LATER);
    assert_false(object_slabs_part(&objects));
    object_slabs_forget_marks(&objects);
    assert_int_equal(parted(), 1); /* later is over, fixed is not */
    object_slabs_rejoin(&objects, OBJECTS_FIXED);
    free_object(1, 1); /* its neighbour may go now: something has happened */
    assert_int_equal(parted(), 1);
    SOUND();
    object_slabs_rejoin(&objects, OBJECTS_FIXED);
    for (unsigned s = 2; s < SLABS; s++) {
        assert_int_equal(parted(), s);
        object_slabs_rejoin(&objects, OBJECTS_FIXED);
    }
    void *fresh = object_slabs_alloc_dense(&objects);
    assert_true(is_of(fresh, 3));
    object_slabs_undo_alloc(&objects, fresh); /* nothing has happened */
    SOUND();
    assert_ptr_equal(object_slabs_alloc_dense(&objects), fresh);
    object_slabs_undo_alloc(&objects, fresh);
    assert_false(object_slabs_part(&objects));
    /* They still serve allocations. */
    for (unsigned i = 0; i < SLABS * CAPACITY - 9; i++) (void)take_one();
    assert_int_equal(out, 4);
    SOUND();
    assert_int_equal(object_slabs_destroy(&objects), SLABS * CAPACITY);
}

static void a_forked_child_puts_it_back(void **state) {
    (void)state;
    fill((unsigned[]){1, 2, 3, 4});
    object_slabs_rejoin_child(&objects); /* none was apart */
    SOUND();
    for (unsigned left = 0; left < 2; left++) {
        assert_int_equal(parted(), 0);
        if (left == 0) free_object(0, 0);
        object_slabs_rejoin_child(&objects);
        SOUND();
        if (left != 0) break;
        taken[0][0] = take_one();
        assert_int_equal(object_slabs_reap(&objects), 1);
        assert_int_equal(object_slabs_destroy(&objects), 10);
        fill((unsigned[]){1, 2, 3, 4});
    }
    assert_int_equal(parted(), 0);
    object_slabs_rejoin(&objects, OBJECTS_MOVABLE);
    assert_int_equal(object_slabs_destroy(&objects), 10);
}

/* Slabs of up to 4,096 objects, each with one word of bits more than the last: objects are found in order, to the last. */
static void all_objects_are_offered(void **state) {
    (void)state;
    for (unsigned count = 1; count <= 130; count += 43) {
        static void *many[4096];
        unsigned offered = 0, done;
        next_start = 1 << 20;
        assert_true(object_slabs_init(&objects, &zone, 16, 16, (uint64_t)16 * count, &source, NULL));
        for (unsigned i = 0; i < 3 * count;) i += object_slabs_alloc(&objects, many + i, 3 * count - i);
        for (unsigned i = 0; i < 3 * count; i += 3) assert_int_equal(object_slabs_free(&objects, &many[i], 1, &done), OBJECTS_OK);
        if (object_slabs_part(&objects)) {
            for (void *old = NULL; (old = object_slabs_next(&objects, old)) != NULL; offered++)
                assert_int_equal(object_slabs_look_up(&objects, old), OBJECTS_OK);
            assert_in_range(offered, count / 2, count - 1);
            object_slabs_rejoin(&objects, OBJECTS_MOVABLE);
        } else {
            assert_int_equal(count, 1);
        }
        SOUND();
        object_slabs_destroy(&objects);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_sparsest_slab_empties_into_the_fullest, plain_slabs),
        cmocka_unit_test_setup(nothing_comes_from_the_slab_apart, plain_slabs),
        cmocka_unit_test_setup(wholly_free_slabs_are_no_room, plain_slabs),
        cmocka_unit_test_setup(marks_keep_slabs_from_being_tried_again, plain_slabs),
        cmocka_unit_test_setup(a_forked_child_puts_it_back, plain_slabs),
        cmocka_unit_test_setup(all_objects_are_offered, plain_slabs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
