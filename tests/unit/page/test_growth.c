/*
 * test_growth.c - the zone's address space: reserved whole, or piece by piece under a limit with holes where others have mapped; refusals
 * at the start; fork.
 */
#include "unit/below.h"
#include "unit/page/page_support.h"

/* The limit comes down to what a test wants once the arrays are there: `left` bytes more than is reserved. */
static void begin_growing_below(uint64_t limit, uint64_t below, uint64_t apart, uint64_t left) {
    sim_reset(NULL);
    assert_true(below_keep(below, apart));
    sim_set_address_limit(limit);
    struct zone_config config = plain_config();
    assert_true(zone_init(&zone, &config));
    assert_true(zone.growing);
    assert_int_equal(zone.extent_bytes, 0);
    below_leave(below, apart);
    sim_set_address_limit(sim_reserved_bytes() + left);
    assert_true(zone.base > (uintptr_t)sim_arena_base() && zone.base < (uintptr_t)sim_arena_base() + below);
}

static void begin_growing(uint64_t left) { begin_growing_below(BELOW_LIMIT, BELOW_BYTES, BELOW_APART, left); }

static void all_is_reserved_at_once_without_a_limit(void **state) {
    (void)state;
    begin(NULL, plain_config());
    assert_false(zone.growing);
    assert_int_equal(zone.window_bytes, 64 * MIB);
    assert_int_equal(arena_size(&zone.addresses, ARENA_FREE), 64 * MIB);
    char *block = must_block(64 * MIB, 1);
    assert_null(zone_block_alloc(&zone, 1, 1, NULL));
    ASSERT_SOUND();
    drop_block(block);
    assert_empty();
}

static void a_smaller_reservation_will_do(void **state) {
    (void)state;
    struct sim_config sim = {.arena_bytes = 8 * GIB};
    struct zone_config config = plain_config();
    config.reserve_bytes = 0;
    begin(&sim, config);
    assert_false(zone.growing);
    assert_in_range(zone.window_bytes, 1 * GIB, 8 * GIB);
    char *block = must_block(1 * GIB / 2, 1);
    drop_block(block);
    assert_empty();
}

static void no_address_space_at_all_is_a_refusal_that_can_be_tried_again(void **state) {
    (void)state;
    struct sim_config sim = {.arena_bytes = 1 * MIB};
    struct zone_config config = plain_config();
    sim_reset(&sim);
    assert_false(zone_init(&zone, &config));
    assert_false(zone_init(&zone, &config));
    assert_int_equal(sim_reserved_bytes(), 0);
    sim_reset(NULL);
    sim_fail_only(UINT64_C(1) << SIM_RESERVE);
    sim_fail_call(1, SIM_FOREVER);
    assert_false(zone_init(&zone, &config));
    sim_fail_call(0, 0);
    assert_true(zone_init(&zone, &config));
    drop_block(must_block(1, 1));
    assert_empty();
}

static void a_small_limit_leaves_most_for_the_program(void **state) {
    (void)state;
    struct sim_config sim = {.address_limit_bytes = 64 * MIB};
    struct zone_config config = plain_config();
    config.reserve_bytes = 0;
    begin(&sim, config);
    assert_true(zone.growing);
    assert_true(sim_reserved_bytes() <= 6 * MIB);
}

static void it_grows_to_the_limit_and_no_further(void **state) {
    (void)state;
    static char *blocks[64];
    begin_growing(64 * MIB);
    uint64_t before = sim_reserved_bytes();
    unsigned n = 0;
    while (n < 64 && (blocks[n] = zone_block_alloc(&zone, 2 * MIB, 1, NULL)) != NULL) {
        mark(blocks[n], 512, n + 1);
        n++;
        if (n % 8 == 1) ASSERT_SOUND();
    }
    assert_int_equal(n, 32);
    assert_int_equal(sim_reserved_bytes(), before + 64 * MIB);
    ASSERT_SOUND();
    assert_null(zone_block_alloc(&zone, 1, 1, NULL));
    for (unsigned i = 0; i < n; i++) assert_true(is_marked(blocks[i], 512, i + 1));
    /* What is freed serves again, without new reservations. */
    for (unsigned i = 0; i < n; i += 2) drop_block(blocks[i]);
    for (unsigned i = 0; i < n; i += 2) blocks[i] = must_block(2 * MIB, 1);
    assert_int_equal(sim_reserved_bytes(), before + 64 * MIB);
    for (unsigned i = 0; i < n; i++) drop_block(blocks[i]);
    assert_empty();
}

static void runs_and_resizes_work_while_it_grows(void **state) {
    (void)state;
    begin_growing(100 * MIB);
    struct zone_run runs[40];
    for (unsigned i = 0; i < 40; i++) runs[i] = must_run(40 + i, 1, i % 3);
    char *block = must_block(3 * MIB, 1), *wall = must_block(4 * MIB, 1);
    mark(block, 3 * MIB / GRANULE_BYTES, 1);
    for (unsigned i = 4; i < 20; i++) {
        char *now = zone_block_resize(&zone, block, i * MIB, true);
        assert_non_null(now);
        block = now;
        assert_true(is_marked(block, 3 * MIB / GRANULE_BYTES, 1));
        ASSERT_SOUND();
    }
    char *aligned = must_block(1, 8 * MIB);
    ASSERT_SOUND();
    drop_block(block), drop_block(wall), drop_block(aligned);
    for (unsigned i = 0; i < 40; i++) drop_run(runs[i]);
    assert_empty();
}

static void other_mappings_are_left_alone(void **state) {
    (void)state;
    static char *blocks[64];
    begin_growing(1 * GIB);
    /* Others take a page or a lot, wherever the heap would grow. */
    static const struct {
        uint64_t at, bytes;
    } others[] = {{6 * MIB, 4096}, {16 * MIB, 6 * MIB}, {23 * MIB, 64 * KIB}, {40 * MIB, 12 * MIB}, {90 * MIB, 200 * MIB}};
    for (unsigned i = 0; i < ARRAY_LENGTH(others); i++) {
        assert_true(platform_reserve_at((char *)zone.base + others[i].at, others[i].bytes));
        assert_true(platform_commit((char *)zone.base + others[i].at, others[i].bytes));
        memset((char *)zone.base + others[i].at, 0x77, 4096);
    }
    for (unsigned n = 0; n < 64; n++) {
        size_t bytes = n % 5 == 4 ? 5 * MIB : 1900 * KIB;
        blocks[n] = must_block(bytes, 1);
        uint64_t at = (uintptr_t)blocks[n] - zone.base;
        for (unsigned i = 0; i < ARRAY_LENGTH(others); i++) assert_true(at + bytes <= others[i].at || at >= others[i].at + others[i].bytes);
        mark(blocks[n], bytes / GRANULE_BYTES, n + 1);
        if (n % 8 == 0) ASSERT_SOUND();
    }
    for (unsigned n = 0; n < 64; n++) {
        assert_true(is_marked(blocks[n], (n % 5 == 4 ? 5 * MIB : 1900 * KIB) / GRANULE_BYTES, n + 1));
        drop_block(blocks[n]);
    }
    for (unsigned i = 0; i < ARRAY_LENGTH(others); i++) {
        char *byte = (char *)zone.base + others[i].at;
        assert_int_equal(*byte, 0x77);
        assert_int_equal(zone_block_bytes(&zone, byte), 0);
        assert_false(zone_block_free(&zone, byte));
    }
    assert_empty();
}

static void impossible_requests_take_nothing(void **state) {
    (void)state;
    begin_growing(64 * MIB);
    char *kept = must_block(1, 1);
    uint64_t before = sim_reserved_bytes();
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX / 2, (size_t)1 << 52, 1000 * GIB, 65 * MIB};
    static const size_t aligns[] = {1, 2 * MIB, 1 * GIB, (size_t)1 << 62, (size_t)1 << 63};
    for (unsigned s = 0; s < ARRAY_LENGTH(sizes); s++)
        for (unsigned a = 0; a < ARRAY_LENGTH(aligns); a++) assert_null(zone_block_alloc(&zone, sizes[s], aligns[a], NULL));
    assert_null(zone_block_resize(&zone, kept, SIZE_MAX, true));
    assert_int_equal(sim_reserved_bytes(), before);
    ASSERT_SOUND();
    drop_block(kept);
    assert_empty();
}

static void the_child_of_a_fork_goes_on(void **state) {
    (void)state;
    begin(NULL, plain_config());
    struct zone_run run = must_run(10, 1, MOBILITY_UNMOVABLE);
    zone_fork_prepare(&zone);
    assert_int_equal(zone.lock.word, PLATFORM_LOCK_FORK);
    zone_fork_parent(&zone);
    assert_int_equal(zone.lock.word, PLATFORM_LOCK_FREE);
    drop_run(run);
    run = must_run(10, 1, MOBILITY_UNMOVABLE);
    zone_fork_prepare(&zone);
    sim_fork_child();
    zone_fork_child(&zone);
    drop_run(run);
    drop_block(must_block(5 * MIB, 1));
    assert_empty();
}

static struct zone_run kept_run, hole;

static void hand_back(void *argument) {
    (void)argument;
    zone_release(&zone, 0);
}

static void fork_and_look(void *argument) {
    const char **wrong = argument;
    zone_fork_prepare(&zone);
    sim_fork_child();
    zone_fork_child(&zone);
    *wrong = zone_check(&zone);
    struct zone_counters now = counters();
    if (*wrong == NULL && now.allocated != kept_run.granules) *wrong = "pages on their way to the system belong to nobody";
}

/* Holes of a superpage that is in use; or, with a context, superpages that are nobody's. */
static void leave_pages(const void *context) {
    kept_run = must_run(10, 1, MOBILITY_UNMOVABLE);
    if (context == NULL) {
        hole = must_run(20, 1, MOBILITY_UNMOVABLE);
        drop_run(hole);
    } else {
        drop_block(must_block(4 * SUPERPAGE_BYTES, 1));
        (void)counters(); /* it rests no more */
    }
}

static const char *fork_during_release(void *context) {
    static const char *wrong;
    sim_explore_ignore(true);
    begin(NULL, plain_config());
    leave_pages(context);
    wrong = "the thread that forks did not run";
    sim_explore_ignore(false);
    sim_thread_start(0, hand_back, NULL);
    sim_thread_start(1, fork_and_look, &wrong);
    sim_run_threads();
    return wrong;
}

/* The child has no thread that would finish handing them back: they are idle again there, at whichever moment the fork came. */
static void pages_on_their_way_to_the_system_survive_a_fork(void **state) {
    (void)state;
    for (unsigned whole = 0; whole < 2; whole++) {
        struct sim_exploration exploration = {.scenario = fork_during_release, .context = whole != 0 ? &whole : NULL, .deviations = 2};
        if (!sim_explore(&exploration)) fail_msg("%s", exploration.failure);
        assert_true(exploration.runs > 5);
    }
}

static uint64_t gone_meanwhile; /* most superpages that had gone, but not all of them, when another thread had the lock */

static void allocate_beside(void *argument) {
    const char **wrong = argument;
    struct zone_run run;
    *wrong = zone_run_alloc(&zone, 30, 1, MOBILITY_UNMOVABLE, &run) ? NULL : "no run";
    const uint64_t gone = sim_calls(SIM_RELEASE);
    if (gone < 4) gone_meanwhile = max_u64(gone_meanwhile, gone);
    if (*wrong == NULL && zone_block_alloc(&zone, 3 * SUPERPAGE_BYTES, 1, NULL) == NULL) *wrong = "no block";
}

static const char *allocate_during_release_of_superpages(void *context) {
    static const char *wrong;
    sim_explore_ignore(true);
    begin(NULL, plain_config());
    leave_pages(context);
    wrong = "the thread that allocates did not run";
    sim_explore_ignore(false);
    sim_thread_start(0, hand_back, NULL);
    sim_thread_start(1, allocate_beside, &wrong);
    sim_run_threads();
    return wrong != NULL ? wrong : zone_check(&zone);
}

/* Many of them take the system a second, for which nobody else is to wait. */
static void superpages_leave_one_by_one(void **state) {
    (void)state;
    struct sim_exploration exploration = {.scenario = allocate_during_release_of_superpages, .context = &gone_meanwhile, .deviations = 2};
    gone_meanwhile = 0;
    if (!sim_explore(&exploration)) fail_msg("%s", exploration.failure);
    assert_int_equal(gone_meanwhile, 3);
}

static void take_what_the_limit_leaves(void *argument) {
    const char **wrong = argument;
    struct zone_run run;
    *wrong = zone_run_alloc(&zone, 20, 1, MOBILITY_UNMOVABLE, &run) ? NULL : "refused below the limit";
}

static const char *allocate_during_release(void *context) {
    static const char *wrong;
    struct zone_config config = plain_config();
    (void)context;
    config.hard_limit_bytes = 100 * GRANULE_BYTES;
    sim_explore_ignore(true);
    begin(NULL, config);
    kept_run = must_run(10, 1, MOBILITY_UNMOVABLE);
    hole = must_run(90, 1, MOBILITY_UNMOVABLE);
    drop_run(hole);
    wrong = "the thread that allocates did not run";
    sim_explore_ignore(false);
    sim_thread_start(0, hand_back, NULL);
    sim_thread_start(1, take_what_the_limit_leaves, &wrong);
    sim_run_threads();
    return wrong != NULL ? wrong : zone_check(&zone);
}

/* They are marked as if somebody had them, but nobody has. */
static void pages_on_their_way_to_the_system_are_within_no_limit(void **state) {
    (void)state;
    struct sim_exploration exploration = {.scenario = allocate_during_release, .deviations = 2};
    if (!sim_explore(&exploration)) fail_msg("%s", exploration.failure);
    assert_true(exploration.runs > 5);
}

static void begin_superpage(void *argument) {
    struct zone_run run;
    (void)argument;
    (void)zone_run_alloc(&zone, 20, 1, MOBILITY_RECLAIMABLE, &run);
}

static void fork_and_give_back(void *argument) {
    const char **wrong = argument;
    zone_fork_prepare(&zone);
    sim_fork_child();
    zone_fork_child(&zone);
    *wrong = zone_check(&zone);
    zone_release(&zone, 0);
    if (*wrong == NULL && counters().idle != 0) *wrong = "pages that are idle in the child never go back";
}

/* Room is made for the huge page of a superpage that is begun, of which nothing goes back until then. */
static const char *fork_beside_a_huge_page(void *context) {
    static const char *wrong;
    struct zone_config config = plain_config();
    (void)context;
    config.thp = ZONE_THP_ALWAYS;
    sim_explore_ignore(true);
    begin(NULL, config);
    kept_run = must_run(10, 1, MOBILITY_UNMOVABLE);
    wrong = "the thread that forks did not run";
    sim_explore_ignore(false);
    sim_thread_start(0, begin_superpage, NULL);
    sim_thread_start(1, fork_and_give_back, &wrong);
    sim_run_threads();
    return wrong;
}

static void what_room_is_made_for_goes_back_in_the_child(void **state) {
    (void)state;
    struct sim_exploration exploration = {.scenario = fork_beside_a_huge_page, .deviations = 2};
    if (!sim_explore(&exploration)) fail_msg("%s", exploration.failure);
    assert_true(exploration.runs > 5);
}

static char *growing;
static size_t grown_bytes;

static void grow(void *argument) {
    (void)argument;
    (void)zone_block_resize(&zone, growing, grown_bytes, false);
}

static void fork_and_free(void *argument) {
    const char **wrong = argument;
    zone_fork_prepare(&zone);
    sim_fork_child();
    zone_fork_child(&zone);
    *wrong = zone_check(&zone);
    if (!zone_block_free(&zone, growing)) *wrong = "the block is none";
    if (*wrong == NULL) *wrong = zone_check(&zone);
    if (*wrong == NULL && counters().allocated != kept_run.granules) *wrong = "what a block was growing by belongs to nobody";
}

/* Holes leave for what a block grows by, which takes the lock away from it for a moment. */
static const char *fork_during_growth(void *context) {
    static const char *wrong;
    struct zone_config config = plain_config();
    const size_t *bytes = context;
    config.moves = ZONE_MOVES_COPY;
    sim_explore_ignore(true);
    begin(NULL, config);
    hole = must_run(300, 1, MOBILITY_UNMOVABLE);
    kept_run = must_run(1, 1, MOBILITY_UNMOVABLE);
    growing = must_block(*bytes, 1);
    grown_bytes = *bytes * 2;
    drop_run(hole);
    wrong = "the thread that forks did not run";
    sim_explore_ignore(false);
    sim_thread_start(0, grow, NULL);
    sim_thread_start(1, fork_and_free, &wrong);
    sim_run_threads();
    return wrong;
}

static void a_block_that_grows_is_one_in_the_child(void **state) {
    static size_t sizes[] = {256 * KIB, 2 * SUPERPAGE_BYTES}; /* a run, and superpages */
    (void)state;
    for (unsigned i = 0; i < ARRAY_LENGTH(sizes); i++) {
        struct sim_exploration exploration = {.scenario = fork_during_growth, .context = &sizes[i], .deviations = 2};
        if (!sim_explore(&exploration)) fail_msg("%zu bytes: %s", sizes[i], exploration.failure);
        assert_true(exploration.runs > 5);
    }
}

/* Pieces side by side are one: what is larger than the piece that each block came with goes over their borders, when the space has an end. */
static void a_block_reaches_over_pieces(void **state) {
    enum { BLOCKS = 4 };
    (void)state;
    char *blocks[BLOCKS];
    begin_growing(BLOCKS * 2 * SUPERPAGE_BYTES + MIB);
    for (unsigned i = 0; i < BLOCKS; i++) blocks[i] = must_block(2 * SUPERPAGE_BYTES, 1);
    assert_null(zone_block_alloc(&zone, 2 * SUPERPAGE_BYTES, 1, NULL));
    assert_int_equal(zone.addresses.spans, 1);
    drop_block(blocks[0]);
    drop_block(blocks[3]);
    drop_block(blocks[2]);
    assert_null(zone_block_alloc(&zone, 5 * SUPERPAGE_BYTES, 1, NULL));
    char *wide = must_block(4 * SUPERPAGE_BYTES, 1);
    drop_block(blocks[1]);
    drop_block(wide);
    assert_empty();
}

/* The more there may be, the more room the base has above it. */
static void a_large_limit_is_used_up(void **state) {
    static const uint64_t limit = 200 * GIB;
    (void)state;
    begin_growing_below(limit, 420 * GIB, 8 * GIB, 0);
    sim_set_address_limit(limit);
    uint64_t had = 0;
    while (zone_block_alloc(&zone, 4 * GIB, 1, NULL) != NULL) had += 4 * GIB;
    assert_true(had >= limit - limit / 10); /* the arrays are the rest */
    ASSERT_SOUND();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_is_reserved_at_once_without_a_limit),
        cmocka_unit_test(a_smaller_reservation_will_do),
        cmocka_unit_test(no_address_space_at_all_is_a_refusal_that_can_be_tried_again),
        cmocka_unit_test(a_small_limit_leaves_most_for_the_program),
        cmocka_unit_test(it_grows_to_the_limit_and_no_further),
        cmocka_unit_test(runs_and_resizes_work_while_it_grows),
        cmocka_unit_test(other_mappings_are_left_alone),
        cmocka_unit_test(impossible_requests_take_nothing),
        cmocka_unit_test(the_child_of_a_fork_goes_on),
        cmocka_unit_test(pages_on_their_way_to_the_system_survive_a_fork),
        cmocka_unit_test(superpages_leave_one_by_one),
        cmocka_unit_test(what_room_is_made_for_goes_back_in_the_child),
        cmocka_unit_test(pages_on_their_way_to_the_system_are_within_no_limit),
        cmocka_unit_test(a_block_that_grows_is_one_in_the_child),
        cmocka_unit_test(a_block_reaches_over_pieces),
        cmocka_unit_test(a_large_limit_is_used_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
