/*
 * test_arena_quantum.c - quantum caches of arenas: every integer can be had, also 0 and the last one, none twice, and all come back; each wrong free
 * is a status and changes nothing; wherever the marks of integers lie.
 */
#include "api/quantum.h"
#include "unit/api/arena_api_support.h"

static bool without_windows; /* of the arenas here: no address space for them, so that all marks lie in plots */

static struct strata_arena *with_caches(const char *name, uint64_t base, uint64_t size, uint64_t quantum, uint64_t largest) {
    struct strata_arena *arena;
    sim_fail_only(SIM_FAIL_ALL);
    sim_fail_call(0, 0);
    ASSERT_OK(strata_arena_create(name, base, size, quantum, 0, &arena));
    ASSERT_OK(strata_arena_set_quantum_caches(arena, largest));
    if (without_windows) {
        sim_fail_only(UINT64_C(1) << SIM_RESERVE);
        sim_fail_call(1, UINT64_MAX);
    }
    return arena;
}

static uint64_t allocated_in(struct strata_arena *arena) {
    uint64_t size;
    ASSERT_OK(strata_arena_size(arena, STRATA_ARENA_ALLOCATED, &size));
    return size;
}

static void wrong_arguments(void **state) {
    (void)state;
    new_still_process(NULL);
    struct strata_arena *arena = new_arena("ids", 0, 1000, 4);
    ASSERT_STATUS(strata_arena_set_quantum_caches(NULL, 8), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_set_quantum_caches(arena, 0), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_set_quantum_caches(arena, 6), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_set_quantum_caches(arena, 4 * (STRATA_ARENA_QUANTUM_CACHES_MAX + 1)), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_set_quantum_caches(arena, UINT64_MAX), BAD_ARGUMENT);
    ASSERT_OK(strata_arena_set_quantum_caches(arena, 8));
    ASSERT_STATUS(strata_arena_set_quantum_caches(arena, 8), BAD_ARGUMENT);
    uint64_t start = 77;
    ASSERT_STATUS(strata_arena_alloc(arena, 4, 64, &start), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_alloc(arena, 4, 3, &start), BAD_ARGUMENT);
    ASSERT_STATUS(strata_arena_alloc(arena, 0, 0, &start), BAD_ARGUMENT);
    assert_int_equal(start, 77);
    /* What the caches gave has a size that can't change, and goes back to them alone. */
    start = must_alloc(arena, 8);
    ASSERT_STATUS(strata_arena_resize(arena, start, 8, 4), NOT_ALLOCATED);
    ASSERT_STATUS(strata_arena_resize(arena, start, 8, 12), NOT_ALLOCATED);
    ASSERT_STATUS(strata_arena_xfree(arena, start, 8), NOT_ALLOCATED);
    ASSERT_OK(strata_arena_free(arena, start, 8));
    ASSERT_OK(strata_arena_destroy(arena));
    struct strata_arena *late = new_arena("late", 0, 1000, 4);
    start = must_alloc(late, 4);
    ASSERT_STATUS(strata_arena_set_quantum_caches(late, 8), BUSY);
    ASSERT_OK(strata_arena_free(late, start, 4));
    ASSERT_OK(strata_arena_destroy(late));
    sound(state);
}

/* Takes integers one by one until there is none: each of them once. */
static void exhaust(uint64_t base, uint64_t size, uint64_t unit, uint64_t largest) {
    static unsigned char seen[5000];
    static uint64_t starts[5000];
    struct strata_arena *arena = with_caches("all", base, size, 1, largest);
    uint64_t count = 0;
    enum strata_arena_status status;
    memset(seen, 0, sizeof seen);
    while ((status = strata_arena_alloc(arena, unit, 0, &starts[count])) == STRATA_ARENA_OK) {
        assert_true(starts[count] - base <= size - unit);
        for (uint64_t i = 0; i < unit; i++) assert_int_equal(seen[starts[count] - base + i]++, 0);
        count++;
    }
    assert_int_equal(status, STRATA_ARENA_NO_SPACE);
    if (unit == 1) assert_int_equal(count, size);
    assert_true(count * unit >= size * 9 / 10);
    ASSERT_STATUS(strata_arena_destroy(arena), BUSY);
    sound(NULL);
    for (uint64_t i = 0; i < count; i += 2) ASSERT_OK(strata_arena_free(arena, starts[i], unit));
    ASSERT_STATUS(strata_arena_destroy(arena), BUSY);
    for (uint64_t i = 1; i < count; i += 2) ASSERT_OK(strata_arena_free(arena, starts[i], unit));
    ASSERT_OK(strata_arena_destroy(arena));
    sound(NULL);
}

static void exhaust_all(void) {
    new_still_process(NULL);
    exhaust(0, 1000, 1, 8);
    exhaust(0, 4096, 1, 16);
    exhaust(37, 3001, 1, 5); /* no slab begins or ends where the span does */
    exhaust(UINT64_MAX - 255, 256, 1, 8);
    exhaust(UINT64_MAX - 4095, 4096, 1, 8);
    exhaust(0, 5000, 5, 8);
    exhaust(10, 20, 1, 16); /* too little for any slab */
}
static void every_integer_can_be_had(void **state) {
    (void)state;
    exhaust_all();
    without_windows = true;
    exhaust_all();
    without_windows = false;
}

/* A free at random of what the program has not: `sizes` has the size of what begins at each integer, 0 where nothing does. */
static void free_wrongly(struct strata_arena *arena, const uint16_t *sizes, uint64_t span, uint64_t random) {
    uint64_t start = random % (span + 100), size = 1 + (random >> 20) % 16, is = start < span ? sizes[start] : 0;
    if (is == size) size++;
    enum strata_arena_status status = strata_arena_free(arena, start, size);
    assert_int_equal(status, is == 0 ? STRATA_ARENA_NOT_ALLOCATED : STRATA_ARENA_SIZE_MISMATCH);
}

/* Random operations of all sizes, small ones by the caches and others by segments, against a table of who has what. */
static void run_at_random(void) {
    enum { SPAN = 1 << 14, MAX = 2000 };
    static unsigned char owned[SPAN];
    static uint16_t sizes[SPAN];
    static struct {
        uint64_t start, size;
        bool by_xalloc;
    } held[MAX];
    new_still_process(NULL);
    memset(owned, 0, sizeof owned);
    memset(sizes, 0, sizeof sizes);
    struct strata_arena *arena = with_caches("mixed", 0, SPAN, 1, 12);
    uint64_t random = 99;
    unsigned count = 0;
    for (unsigned turn = 0; turn < 40000; turn++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        sim_cpu_set((unsigned)(random >> 63));
        if ((random >> 33) % 5 < 3 && count < MAX) {
            uint64_t size = (random >> 40) % 8 != 0 ? 1 + (random >> 48) % 12 : 1 + (random >> 48) % 300, start = 0;
            bool by_xalloc = (random >> 36) % 16 == 0;
            enum strata_arena_status status =
                by_xalloc ? strata_arena_xalloc(arena, size, 0, 0, 0, 0, 0, 0, &start) : strata_arena_alloc(arena, size, 0, &start);
            if (status == STRATA_ARENA_NO_SPACE) continue;
            assert_int_equal(status, STRATA_ARENA_OK);
            for (uint64_t i = 0; i < size; i++) assert_int_equal(owned[start + i]++, 0);
            sizes[start] = (uint16_t)size;
            held[count].start = start;
            held[count].size = size;
            held[count++].by_xalloc = by_xalloc;
        } else if (count != 0) {
            unsigned k = (unsigned)((random >> 33) % count);
            for (uint64_t i = 0; i < held[k].size; i++) assert_int_equal(owned[held[k].start + i]--, 1);
            sizes[held[k].start] = 0;
            if (held[k].by_xalloc)
                ASSERT_OK(strata_arena_xfree(arena, held[k].start, held[k].size));
            else
                ASSERT_OK(strata_arena_free(arena, held[k].start, held[k].size));
            held[k] = held[--count];
        }
        free_wrongly(arena, sizes, SPAN, random >> 12);
        if (turn % 4000 == 0) sound(NULL);
    }
    while (count-- != 0) {
        if (held[count].by_xalloc)
            ASSERT_OK(strata_arena_xfree(arena, held[count].start, held[count].size));
        else
            ASSERT_OK(strata_arena_free(arena, held[count].start, held[count].size));
    }
    ASSERT_OK(strata_arena_destroy(arena));
    sound(NULL);
}
static void nothing_is_given_twice(void **state) {
    (void)state;
    run_at_random();
    without_windows = true;
    run_at_random();
    without_windows = false;
}

/* Freed twice, of another size, inside another, never allocated, another arena's; the slab as a segment. */
static void free_one_by_one(uint64_t quantum) {
    struct strata_arena *arena = with_caches("checked", 64 * quantum, 4096 * quantum, quantum, 4 * quantum);
    struct strata_arena *other = with_caches("other", 64 * quantum, 4096 * quantum, quantum, 4 * quantum);
    uint64_t two = 2 * quantum, first = must_alloc(arena, two), second = must_alloc(arena, two), kept = must_alloc(arena, two);
    ASSERT_STATUS(strata_arena_free(other, first, two), NOT_ALLOCATED);
    uint64_t others = must_alloc(other, quantum);
    ASSERT_STATUS(strata_arena_free(arena, others + 1024 * quantum, quantum), NOT_ALLOCATED);
    ASSERT_STATUS(strata_arena_free(arena, 5 * quantum, quantum), NOT_ALLOCATED); /* before the span */
    ASSERT_STATUS(strata_arena_free(arena, UINT64_MAX, quantum), NOT_ALLOCATED);  /* and behind it */
    ASSERT_STATUS(strata_arena_free(arena, first, quantum), SIZE_MISMATCH);       /* less than it was, */
    ASSERT_STATUS(strata_arena_free(arena, first, 4 * quantum), SIZE_MISMATCH);   /* more, */
    ASSERT_STATUS(strata_arena_free(arena, first, 40 * quantum), SIZE_MISMATCH);  /* and more than any cache has */
    ASSERT_STATUS(strata_arena_free(arena, first + quantum, two), NOT_ALLOCATED); /* not where it begins */
    ASSERT_STATUS(strata_arena_free(arena, first + two + 1, two), NOT_ALLOCATED); /* between integers, or inside the next */
    ASSERT_STATUS(strata_arena_free(arena, first, 0), BAD_ARGUMENT);
    assert_int_equal(strata_arena_free(arena, first, UINT64_MAX), quantum == 1 ? STRATA_ARENA_SIZE_MISMATCH : STRATA_ARENA_BAD_ARGUMENT);
    ASSERT_OK(strata_arena_free(arena, first, two - quantum + 1)); /* as it could have been asked for */
    ASSERT_STATUS(strata_arena_free(arena, first, two), NOT_ALLOCATED);
    ASSERT_OK(strata_arena_free(arena, second, two));
    ASSERT_STATUS(strata_arena_free(arena, second, two), NOT_ALLOCATED);
    ASSERT_STATUS(strata_arena_free(arena, first, two), NOT_ALLOCATED);
    uint64_t again = must_alloc(arena, two), and_again = must_alloc(arena, two);
    assert_true(again != and_again && again != kept && and_again != kept);
    /* The slab itself is the cache's, by whatever way. */
    uint64_t slab_size = 16 * quantum, slab = kept & ~(slab_size - 1);
    assert_int_not_equal(strata_arena_free(arena, slab, slab_size), STRATA_ARENA_OK);
    ASSERT_STATUS(strata_arena_xfree(arena, slab, slab_size), NOT_ALLOCATED);
    ASSERT_STATUS(strata_arena_resize(arena, slab, slab_size, quantum), NOT_ALLOCATED);
    sound(NULL);
    ASSERT_OK(strata_arena_free(arena, again, two));
    ASSERT_OK(strata_arena_free(arena, and_again, two));
    ASSERT_STATUS(strata_arena_destroy(arena), BUSY);
    ASSERT_OK(strata_arena_free(arena, kept, two));
    ASSERT_OK(strata_arena_destroy(arena));
    ASSERT_OK(strata_arena_free(other, others, quantum));
    ASSERT_OK(strata_arena_destroy(other));
    assert_int_equal(sim_failures() != 0, without_windows);
    sound(NULL);
}
static void wrong_frees_are_statuses(void **state) {
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        without_windows = i != 0;
        for (uint64_t quantum = 1; quantum <= 4096; quantum *= 16) {
            new_still_process(NULL);
            free_one_by_one(quantum);
        }
    }
    without_windows = false;
}

/* A destroy that fails may have taken the caches before the one in use: what they gave is gone, and what is left is verified as before. */
static void wrong_frees_are_statuses_after_a_destroy_that_failed(void **state) {
    (void)state;
    new_still_process(NULL);
    struct strata_arena *arena = with_caches("busy", 0, 4096, 1, 4);
    uint64_t small = must_alloc(arena, 1), kept = must_alloc(arena, 3);
    ASSERT_OK(strata_arena_free(arena, small, 1));
    ASSERT_STATUS(strata_arena_destroy(arena), BUSY);
    ASSERT_STATUS(strata_arena_free(arena, small, 1), NOT_ALLOCATED);
    ASSERT_STATUS(strata_arena_free(arena, kept, 1), SIZE_MISMATCH);
    small = must_alloc(arena, 1);
    ASSERT_STATUS(strata_arena_free(arena, small, 3), SIZE_MISMATCH);
    ASSERT_OK(strata_arena_free(arena, small, 1));
    ASSERT_STATUS(strata_arena_free(arena, small, 1), NOT_ALLOCATED);
    ASSERT_OK(strata_arena_free(arena, kept, 3));
    ASSERT_STATUS(strata_arena_free(arena, kept, 3), NOT_ALLOCATED);
    ASSERT_OK(strata_arena_destroy(arena));
    sound(state);
}

/*
 * As a fork leaves it behind: integers, and a slab, that threads which are not in the child had taken out of an array, or were about to put into one;
 * or had just from the arena, or were about to give back.
 */
static void what_a_fork_has_lost_keeps_no_arena(void **state) {
    for (unsigned kind = 0; kind < 2; kind++) {
        new_still_process(NULL);
        without_windows = kind != 0;
        struct strata_arena *source = new_arena("source", 0, 4096, 1), *arena = with_caches("forked", 8192, 256, 1, 4);
        struct quantum_arena *core = (struct quantum_arena *)(void *)arena;
        ASSERT_OK(strata_arena_set_source(arena, source));
        uint64_t kept = must_alloc(arena, 3), lost;
        for (unsigned i = 0; i < 300; i++) assert_non_null(object_cache_alloc_near(quantum_cache_of(core->arena.qcaches[i % 4])));
        assert_true(allocated_in(source) != 0);
        assert_int_equal(arena_slab_alloc(&core->arena, core->table.slab_size, core->table.slab_size, &lost), ARENA_OK);
        assert_non_null(quantum_table_add(core, lost));
        assert_true((core->table.plots != 0) == without_windows);
        ASSERT_STATUS(strata_arena_destroy(arena), BUSY);
        ASSERT_STATUS(strata_arena_destroy(arena), BUSY);
        ASSERT_OK(strata_arena_free(arena, kept, 3));
        ASSERT_OK(strata_arena_destroy(arena));
        assert_int_equal(allocated_in(source), 0);
        ASSERT_OK(strata_arena_destroy(source));
        without_windows = false;
        sim_fail_call(0, 0);
        sound(state);
    }
}

/* The window lies round the first slab, in the middle of what an arena may have; spans at its borders, inside and outside, are verified alike. */
static void integers_beside_the_window_are_verified(void **state) {
    (void)state;
    enum { SIZE = 64, EACH = SIZE / 4 };
    const uint64_t half = UINT64_C(1) << 23, first = UINT64_C(1) << 40, last = UINT64_MAX - SIZE + 1;
    const uint64_t bases[] = {first, 0, last, first - half - SIZE, first - half, first + half - SIZE, first + half};
    uint64_t all[ARRAY_LENGTH(bases) * EACH], lowest, highest;
    new_still_process(NULL);
    struct strata_arena *arena = with_caches("wide", first, SIZE, 1, 4);
    for (unsigned i = 1; i < ARRAY_LENGTH(bases); i++) {
        ASSERT_OK(strata_arena_add(arena, bases[i], SIZE));
        if (i != 2) continue;
        ASSERT_OK(strata_arena_xalloc(arena, SIZE, 0, 0, 0, 0, SIZE, 0, &lowest));
        ASSERT_OK(strata_arena_xalloc(arena, SIZE, 0, 0, 0, last, 0, 0, &highest));
        all[0] = must_alloc(arena, 4);
        assert_in_range(all[0], first, first + SIZE);
        ASSERT_OK(strata_arena_xfree(arena, lowest, SIZE));
        ASSERT_OK(strata_arena_xfree(arena, highest, SIZE));
    }
    unsigned count = 1;
    while (count < ARRAY_LENGTH(all) && strata_arena_alloc(arena, 4, 0, &all[count]) == STRATA_ARENA_OK) count++;
    assert_int_equal(count, ARRAY_LENGTH(all));
    for (unsigned i = 0; i < count; i++) {
        ASSERT_STATUS(strata_arena_free(arena, all[i], 3), SIZE_MISMATCH);
        ASSERT_STATUS(strata_arena_free(arena, all[i] + 1, 4), NOT_ALLOCATED);
    }
    ASSERT_STATUS(strata_arena_free(arena, first + SIZE, 4), NOT_ALLOCATED);
    ASSERT_STATUS(strata_arena_free(arena, first + half + SIZE, 4), NOT_ALLOCATED);
    ASSERT_STATUS(strata_arena_free(arena, first - half - SIZE - 4, 4), NOT_ALLOCATED);
    for (unsigned i = 0; i < count; i++) ASSERT_OK(strata_arena_free(arena, all[i], 4));
    for (unsigned i = 0; i < count; i++) ASSERT_STATUS(strata_arena_free(arena, all[i], 4), NOT_ALLOCATED);
    ASSERT_OK(strata_arena_destroy(arena));
    sound(state);
}

/* Slabs at multiples of a large power of two, many of them, coming and going: more than there are regions, or regions that can't be had. */
static void come_and_go_far_apart(uint64_t commits) {
    enum { SPANS = REGIONS_MAX + 44 };
    static uint64_t starts[SPANS][16];
    new_still_process(NULL);
    struct strata_arena *arena = with_caches("far", 0, 16, 1, 4);
    starts[0][0] = must_alloc(arena, 1); /* the window's; what is committed from here on is regions */
    sim_fail_only(UINT64_C(1) << SIM_COMMIT);
    sim_fail_call(commits, 1); /* there are no more regions from then on */
    ASSERT_OK(strata_arena_free(arena, starts[0][0], 1));
    for (uint64_t i = 1; i < SPANS; i++) ASSERT_OK(strata_arena_add(arena, i << 40, 16));
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < SPANS; i++)
            for (unsigned j = 0; j < 16; j++) starts[i][j] = must_alloc(arena, 1);
        for (unsigned i = round; i < SPANS; i++) {
            for (unsigned j = 0; j < 16; j++) ASSERT_OK(strata_arena_free(arena, starts[i][j], 1));
            for (unsigned j = 0; j < 16; j++) ASSERT_STATUS(strata_arena_free(arena, starts[i][j], 1), NOT_ALLOCATED);
        }
        for (unsigned i = 0; i < round; i++)
            for (unsigned j = 0; j < 16; j++) ASSERT_OK(strata_arena_free(arena, starts[i][j], 1));
        sound(NULL);
        (void)strata_release(0);
    }
    uint64_t regions = ((struct quantum_arena *)(void *)arena)->table.regions_bytes >> REGION_STRIDE_SHIFT;
    assert_int_equal(regions, commits == 0 ? REGIONS_MAX : regions < REGIONS_MAX ? regions : 0);
    ASSERT_OK(strata_arena_destroy(arena));
    assert_int_equal(sim_failures() != 0, commits != 0);
    sound(NULL);
}
static void slabs_far_apart_are_told_apart(void **state) {
    (void)state;
    come_and_go_far_apart(0);
    static const uint64_t commits[] = {1, 2, 3, 17, 18, 100, REGIONS_MAX / 2};
    for (unsigned i = 0; i < ARRAY_LENGTH(commits); i++) come_and_go_far_apart(commits[i]);
}

/* The caches' slabs are imported like anything else, and what was imported goes back when the arena goes. */
static void slabs_come_from_the_source_and_go_back(void **state) {
    (void)state;
    new_stack();
    ASSERT_OK(strata_arena_set_source(middle, bottom));
    ASSERT_OK(strata_arena_set_source(top, middle));
    ASSERT_OK(strata_arena_set_quantum_caches(top, 4));
    uint64_t starts[500];
    for (unsigned i = 0; i < 500; i++) starts[i] = must_alloc(top, 1 + i % 2);
    for (unsigned i = 0; i < 500; i++) assert_in_range(starts[i], 1024, 2047);
    assert_true(allocated_in(bottom) >= 700);
    for (unsigned i = 0; i < 500; i++) ASSERT_OK(strata_arena_free(top, starts[i], 1 + i % 2));
    ASSERT_OK(strata_arena_destroy(top));
    assert_int_equal(allocated_in(middle), 0);
    assert_int_equal(allocated_in(bottom), 0);
    ASSERT_OK(strata_arena_destroy(middle));
    ASSERT_OK(strata_arena_destroy(bottom));
    sound(state);
}

static uint64_t kept;
static unsigned asked;
static int give_one_back(void *context, struct strata_arena *arena, uint64_t size) {
    (void)context;
    assert_int_equal(size, 2);
    if (++asked != 2) return 0;
    ASSERT_OK(strata_arena_free(arena, kept, 2));
    return 1;
}

/* Looks ask nobody: the program says when it has something to give. */
static void tell(void *arena) {
    struct platform_event never = {0};
    platform_event_wait(&never, UINT64_C(100000000));
    ASSERT_OK(strata_arena_wake(arena));
}

static void a_sleeper_asks_again_when_it_is_told(void **state) {
    (void)state;
    new_still_process(NULL);
    struct strata_arena *arena = with_caches("few", 0, 2, 1, 2);
    kept = must_alloc(arena, 2);
    uint64_t start, begun = platform_now_ns();
    ASSERT_STATUS(strata_arena_alloc(arena, 2, 0, &start), NO_SPACE);
    asked = 0;
    ASSERT_OK(strata_arena_set_reclaim(arena, give_one_back, NULL));
    sim_thread_start(1, tell, arena);
    ASSERT_OK(strata_arena_alloc(arena, 2, STRATA_ARENA_SLEEP, &start));
    assert_int_equal(start, kept);
    assert_int_equal(asked, 2);
    assert_true(platform_now_ns() - begun >= 100000000);
    ASSERT_OK(strata_arena_free(arena, start, 2));
    ASSERT_OK(strata_arena_destroy(arena));
    sound(state);
}

static void the_caches_are_in_the_figures(void **state) {
    (void)state;
    new_still_process(NULL);
    struct strata_arena *arena = with_caches("ports", 0, 65536, 1, 3);
    uint64_t starts[10];
    for (unsigned i = 0; i < 10; i++) starts[i] = must_alloc(arena, 3);
    int file = platform_file_create("/look.json");
    assert_int_equal(strata_stats_json(file), 0);
    platform_file_close(file);
    size_t bytes;
    const char *json = sim_file_text("/look.json", &bytes), *row = strstr(json, "{\"name\":\"ports-3\"");
    assert_non_null(row);
    assert_non_null(strstr(json, "{\"name\":\"ports-1\""));
    const char *end = strchr(row, '}'), *in_use = strstr(row, "\"in_use\":10,"), *memory = strstr(row, "\"memory_bytes\":0,");
    assert_true(in_use != NULL && in_use < end && memory != NULL && memory < end); /* integers are no memory */
    for (unsigned i = 0; i < 10; i++) ASSERT_OK(strata_arena_free(arena, starts[i], 3));
    ASSERT_OK(strata_arena_destroy(arena));
    sound(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(every_integer_can_be_had),
        cmocka_unit_test(wrong_frees_are_statuses),
        cmocka_unit_test(wrong_frees_are_statuses_after_a_destroy_that_failed),
        cmocka_unit_test(what_a_fork_has_lost_keeps_no_arena),
        cmocka_unit_test(integers_beside_the_window_are_verified),
        cmocka_unit_test(slabs_far_apart_are_told_apart),
        cmocka_unit_test(nothing_is_given_twice),
        cmocka_unit_test(slabs_come_from_the_source_and_go_back),
        cmocka_unit_test(a_sleeper_asks_again_when_it_is_told),
        cmocka_unit_test(the_caches_are_in_the_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
