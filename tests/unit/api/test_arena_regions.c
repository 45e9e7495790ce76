/*
 * test_arena_regions.c - how requests through the quantum caches of arenas find marks that lie far from the first ones: which stretch is hot, regions
 * where the first look goes, and regions beside the window.
 */
#include "api/quantum.h"
#include "unit/api/arena_api_support.h"

static struct strata_arena *with_caches(const char *name, uint64_t base, uint64_t size, uint64_t quantum, uint64_t largest) {
    struct strata_arena *arena;
    ASSERT_OK(strata_arena_create(name, base, size, quantum, 0, &arena));
    ASSERT_OK(strata_arena_set_quantum_caches(arena, largest));
    return arena;
}

/* Frees of integers in turn, far more than are looked at, `apart_ns` from each other: what is hot behind that. */
static const struct quantum_stretch *hot_after_turns(struct strata_arena *arena, uint64_t quantum, const uint64_t *starts, unsigned count,
                                                     uint64_t apart_ns) {
    uint64_t random = count;
    for (unsigned turn = 0; turn < 4000; turn++) {
        sim_clock_advance(apart_ns);
        uint64_t start = starts[(random = random * UINT64_C(6364136223846793005) + 1) / (UINT64_C(1) << 33) % count];
        ASSERT_OK(strata_arena_free(arena, start, quantum));
        ASSERT_STATUS(strata_arena_free(arena, start, quantum), NOT_ALLOCATED);
        assert_int_equal(must_alloc(arena, quantum), start);
        ASSERT_STATUS(strata_arena_free(arena, start, 2 * quantum), SIZE_MISMATCH);
    }
    return ((struct quantum_arena *)(void *)arena)->table.hot;
}

static void frees_show_what_is_hot_by(uint64_t quantum) {
    new_still_process(NULL);
    enum { SPAN = 8, SPANS = 8, LATER_NS = 2000000 };
    struct strata_arena *arena = with_caches("turns", 0, SPAN * quantum, quantum, 2 * quantum);
    struct quantum_table *table = &((struct quantum_arena *)(void *)arena)->table;
    uint64_t starts[SPANS * SPAN], start;
    assert_ptr_equal(table->hot, &quantum_looking);
    for (unsigned i = 0; i < SPAN; i++) starts[i] = must_alloc(arena, quantum);
    assert_ptr_equal(table->hot, &table->window);
    ASSERT_STATUS(strata_arena_free(arena, UINT64_C(1) << 40, quantum), NOT_ALLOCATED);
    for (uint64_t i = 1; i < SPANS; i++) ASSERT_OK(strata_arena_add(arena, i << 40, SPAN * quantum));
    for (unsigned i = SPAN; i < SPANS * SPAN; i++) starts[i] = must_alloc(arena, quantum);
    const uint64_t first = UINT64_C(1) << 40, mixed[7] = {first, 2 * first, 3 * first, 4 * first, 5 * first, 6 * first, 7 * first},
                   same[3] = {first, first + quantum, first + (SPAN - 1) * quantum};
    sim_clock_advance(LATER_NS);
    assert_ptr_equal(hot_after_turns(arena, quantum, mixed, 7, 1000), &table->window); /* so seldom a miss is cheap */
    sim_clock_advance(LATER_NS);
    const struct quantum_stretch *far = hot_after_turns(arena, quantum, same, 3, 0);
    assert_true(far->first == first / quantum && far->count == REGION_QUANTA);
    assert_ptr_equal(hot_after_turns(arena, quantum, starts, 3, 0), &quantum_looking); /* not again so soon */
    sim_clock_advance(LATER_NS);
    assert_ptr_equal(hot_after_turns(arena, quantum, starts, 3, 0), &table->window);
    sim_clock_advance(LATER_NS);
    assert_null(hot_after_turns(arena, quantum, mixed, 7, 0));
    sim_clock_advance(LATER_NS);
    assert_null(hot_after_turns(arena, quantum, same, 3, 0)); /* nobody looks */
    for (unsigned i = 0; i < QUANTUM_REFILLS; i++) {
        assert_null(table->hot);
        ASSERT_STATUS(strata_arena_alloc(arena, quantum, 0, &start), NO_SPACE);
    }
    assert_ptr_equal(table->hot, &quantum_looking);
    assert_ptr_equal(hot_after_turns(arena, quantum, same, 3, 0), far);
    for (unsigned i = 0; i < SPANS * SPAN; i++) ASSERT_OK(strata_arena_free(arena, starts[i], quantum));
    ASSERT_OK(strata_arena_destroy(arena));
    sound(NULL);
}
static void frees_show_what_is_hot(void **state) {
    (void)state;
    frees_show_what_is_hot_by(1);
    frees_show_what_is_hot_by(4096);
}

/* As long as regions are few, nearly all lie where requests look first, wherever their integers are. */
static void few_regions_are_in_their_first_slots(void **state) {
    (void)state;
    enum { SPANS = 48, SPAN = 8, SHIFTS = 3 };
    static const uint64_t quanta[SHIFTS] = {1, 1 << 4, 1 << 12};
    for (unsigned shift = 0; shift < SHIFTS; shift++) {
        uint64_t quantum = quanta[shift], random = shift + 1, starts[SPANS] = {0};
        new_still_process(NULL);
        struct strata_arena *arena = with_caches("spans", 0, SPAN * quantum, quantum, quantum);
        (void)must_alloc(arena, quantum); /* the window is no larger than this */
        for (unsigned i = 1; i < SPANS; i++) {
            random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            starts[i] = random >> 33 << 30;
            ASSERT_OK(strata_arena_add(arena, starts[i], SPAN * quantum));
        }
        for (unsigned i = 1; i < SPANS * SPAN; i++) (void)must_alloc(arena, quantum);
        const struct quantum_table *table = &((struct quantum_arena *)(void *)arena)->table;
        unsigned found = 0;
        for (unsigned i = 0; i < SPANS; i++) found += quantum_mark_hashed(table, starts[i] / quantum) != NULL;
        assert_int_equal(table->slots_taken, SPANS);
        assert_in_range(found, SPANS - 1, SPANS);
        sound(state);
    }
}

/* An arena that grows beside its window, which ends at a region's border, and into regions that want the same slots. */
static void neighbours_of_the_window_are_regions(void **state) {
    (void)state;
    enum { MORE = 300 };
    new_still_process(NULL);
    struct strata_arena *arena = with_caches("grows", 10, 90, 1, 1);
    uint64_t starts[MORE], count = 0;
    for (unsigned i = 0; i < 80; i++) (void)must_alloc(arena, 1);
    for (uint64_t i = 1; i < MORE; i++) ASSERT_OK(strata_arena_add(arena, i * REGION_QUANTA - 8, 16));
    while (count < MORE && strata_arena_alloc(arena, 1, 0, &starts[count]) == STRATA_ARENA_OK) count++;
    assert_int_equal(count, MORE);
    const struct quantum_table *table = &((struct quantum_arena *)(void *)arena)->table;
    assert_true(table->slots_taken > 1 && table->slots_taken * 4 * sizeof(struct quantum_slot) <= table->slots->mask + sizeof(struct quantum_slot));
    for (unsigned i = 0; i < MORE; i++) {
        ASSERT_STATUS(strata_arena_free(arena, starts[i], 2), SIZE_MISMATCH);
        ASSERT_OK(strata_arena_free(arena, starts[i], 1));
        ASSERT_STATUS(strata_arena_free(arena, starts[i], 1), NOT_ALLOCATED);
        assert_int_equal(must_alloc(arena, 1), starts[i]);
        ASSERT_OK(strata_arena_free(arena, starts[i], 1));
    }
    sound(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frees_show_what_is_hot),
        cmocka_unit_test(few_regions_are_in_their_first_slots),
        cmocka_unit_test(neighbours_of_the_window_are_regions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
