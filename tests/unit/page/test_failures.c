/*
 * test_failures.c - every call to the platform fails once, one after the other: nothing is lost, the zone stays sound and works afterwards.
 */
#include "unit/below.h"
#include "unit/page/page_support.h"

enum { THINGS = 24 };

struct thing {
    char *address;
    size_t granules;
    bool block;
};
static struct thing things[THINGS];
static bool strict; /* nothing was made to fail: everything has to work */

/* Of long things only some pages are looked at, which is what keeps some thousand runs of the scenario short. */
static size_t stride_of(size_t granules) { return granules > 8 ? 1 + granules / 7 : 1; }

static void mark_some(char *address, size_t granules, uint64_t id) {
    for (size_t at = 0; at < granules; at += stride_of(granules)) mark(address + (at << GRANULE_SHIFT), 1, id << 16 | at);
}

static bool is_marked_as_before(const char *address, size_t granules, uint64_t id, size_t compared) {
    for (size_t at = 0; at < compared; at += stride_of(granules))
        if (!is_marked(address + (at << GRANULE_SHIFT), 1, id << 16 | at)) return false;
    return true;
}

static void keep(unsigned i, void *address, size_t granules, bool block, bool zeroed) {
    if (strict) assert_non_null(address);
    things[i] = (struct thing){address, granules, block};
    if (address == NULL) return;
    for (size_t at = 0; zeroed && at < granules; at += stride_of(granules))
        assert_true(is_zero((char *)address + (at << GRANULE_SHIFT), GRANULE_BYTES));
    mark_some(address, granules, i);
}

static void take_run(unsigned i, unsigned granules, enum mobility mobility) {
    struct zone_run run = {0};
    bool ok = zone_run_alloc(&zone, granules, 1, mobility, &run);
    keep(i, ok ? run.address : NULL, run.granules, false, run.zeroed);
}

static void take_block(unsigned i, size_t bytes, size_t align) {
    bool zeroed = false;
    char *block = zone_block_alloc(&zone, bytes, align, &zeroed);
    keep(i, block, block != NULL ? zone_block_bytes(&zone, block) >> GRANULE_SHIFT : 0, true, zeroed);
}

static void resize(unsigned i, size_t bytes) {
    struct thing *thing = &things[i];
    if (thing->address == NULL) return;
    char *now = zone_block_resize(&zone, thing->address, bytes, true);
    if (strict) assert_non_null(now);
    if (now != NULL) thing->address = now;
    size_t granules = zone_block_bytes(&zone, thing->address) >> GRANULE_SHIFT;
    assert_true(now == NULL ? granules == thing->granules : granules << GRANULE_SHIFT >= bytes);
    assert_true(is_marked_as_before(thing->address, thing->granules, i, granules < thing->granules ? granules : thing->granules));
    mark_some(thing->address, thing->granules = granules, i);
}

static void drop(unsigned i) {
    struct thing *thing = &things[i];
    if (thing->address == NULL) return;
    assert_true(is_marked_as_before(thing->address, thing->granules, i, thing->granules));
    if (thing->block)
        drop_block(thing->address); /* a free never fails */
    else
        zone_run_free(&zone, thing->address, (unsigned)thing->granules);
    thing->address = NULL;
}

/* All that the zone asks of the platform: growth, advice, pages ahead, releases by exchange, tick and request, moves of both kinds, resets. */
static void scenario(void) {
    for (unsigned i = 0; i < 6; i++) take_run(i, 100 + i, i % 3);
    take_run(6, 512, MOBILITY_UNMOVABLE);
    take_run(7, 1, MOBILITY_UNMOVABLE);
    drop(6);
    take_block(6, 1400 * KIB, 1); /* filled from idle pages */
    take_block(8, 400 * KIB, 64 * KIB);
    take_block(9, 4096, 1);
    resize(8, 3 * MIB); /* moves */
    ASSERT_SOUND();
    take_block(10, 9 * MIB, 4 * MIB);
    take_block(11, 2 * MIB, 1);
    resize(10, 17 * MIB);
    drop(2);
    zone_tick(&zone);
    drop(8);
    zone_tick(&zone);
    take_run(12, 300, MOBILITY_RECLAIMABLE);
    resize(10, 2 * MIB);
    drop(0);
    take_run(13, 200, MOBILITY_UNMOVABLE);
    ASSERT_SOUND();
    zone_tick(&zone);
    zone_release(&zone, 100 * KIB);
    drop(6);
    take_block(14, 36 * MIB, 1);
    drop(10), drop(14);
    zone_release(&zone, 0);
    for (unsigned i = 15; i < THINGS; i++) take_run(i, 30, i % 3);
}

static void drop_everything(void) {
    for (unsigned i = 0; i < THINGS; i++) drop(i);
}

/* Scenario with the n-th call (and `times` - 1 after it) failing; false when no call failed. */
static bool run_with_failure(const struct sim_config *sim, struct zone_config config, uint64_t n, uint64_t times) {
    memset(things, 0, sizeof things);
    sim_reset(sim);
    sim_fail_call(n, times);
    strict = n == 0;
    if (!zone_init(&zone, &config)) {
        assert_true(sim_failures() != 0);
        sim_fail_call(0, 0);
        assert_true(zone_init(&zone, &config));
        return true;
    }
    scenario();
    ASSERT_SOUND();
    bool failed = sim_failures() != 0;
    drop_everything();
    ASSERT_SOUND();
    assert_int_equal(counters().allocated, 0);
    assert_int_equal(arena_size(&zone.addresses, ARENA_ALLOCATED), 0);
    sim_fail_call(0, 0);
    strict = true;
    scenario();
    drop_everything();
    assert_empty();
    return failed;
}

static void each_call_fails(const struct sim_config *sim, struct zone_config config, uint64_t times) {
    assert_false(run_with_failure(sim, config, 0, 0));
    uint64_t n = 1;
    while (run_with_failure(sim, config, n, times)) n++;
    assert_true(n > 30);
}

static struct zone_config busy_config(void) {
    struct zone_config config = plain_config();
    config.reserve_bytes = 16 * GIB; /* enough also where the reservation is refused three times, and a 64th of it has to do */
    config.populate_granules = 16;
    config.thp = ZONE_THP_ALWAYS;
    return config;
}

static void each_call_fails_once(void **state) {
    (void)state;
    struct zone_config config = busy_config();
    each_call_fails(NULL, config, 1);
    config.thp = ZONE_THP_NEVER;
    each_call_fails(NULL, config, 1);
    config.soft_limit_bytes = 8 * MIB;
    each_call_fails(NULL, config, 1);
}

static void every_call_fails_from_some_point_on(void **state) {
    (void)state;
    each_call_fails(NULL, busy_config(), 3);
    each_call_fails(NULL, busy_config(), SIM_FOREVER);
}

static void each_call_fails_once_with_large_pages(void **state) {
    (void)state;
    struct sim_config sim = {.page_bytes = 64 * KIB};
    each_call_fails(&sim, busy_config(), 1);
}

/* A zone that grows piece by piece. */
static void each_call_fails_once_while_the_heap_grows(void **state) {
    (void)state;
    struct zone_config config = busy_config();
    bool failed = true;
    for (uint64_t n = 0; failed; n++) {
        memset(things, 0, sizeof things);
        sim_reset(NULL);
        assert_true(below_keep(BELOW_BYTES, BELOW_APART));
        sim_set_address_limit(BELOW_LIMIT);
        assert_true(zone_init(&zone, &config));
        below_leave(BELOW_BYTES, BELOW_APART);
        uint64_t arrays_bytes = sim_reserved_bytes();
        sim_set_address_limit(arrays_bytes + 300 * MIB);
        sim_fail_call(n, 1);
        strict = n == 0;
        scenario();
        ASSERT_SOUND();
        failed = n == 0 || sim_failures() != 0;
        sim_fail_call(0, 0);
        drop_everything();
        strict = true;
        scenario();
        drop_everything();
        assert_empty();
        assert_int_equal(counters().allocated, 0);
        /* No piece of address space was lost either: all that was reserved since is in the arena. */
        assert_int_equal(sim_reserved_bytes(), arrays_bytes + arena_size(&zone.addresses, ARENA_ALLOCATED | ARENA_FREE));
    }
}

static void a_machine_without_huge_pages_or_mappings(void **state) {
    (void)state;
    struct sim_config none = {.no_huge_pages = true}, few = {.map_count_limit = 60};
    assert_false(run_with_failure(&none, busy_config(), 0, 0));
    sim_reset(&few);
    struct zone_config config = busy_config();
    assert_true(zone_init(&zone, &config));
    strict = false;
    scenario();
    ASSERT_SOUND();
    drop_everything();
    assert_empty();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_fails_once),
        cmocka_unit_test(every_call_fails_from_some_point_on),
        cmocka_unit_test(each_call_fails_once_with_large_pages),
        cmocka_unit_test(each_call_fails_once_while_the_heap_grows),
        cmocka_unit_test(a_machine_without_huge_pages_or_mappings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
