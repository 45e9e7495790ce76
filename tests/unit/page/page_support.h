/*
 * page_support.h - what the tests of page/ share: one zone on a fresh simulated machine, and short ways to say what is expected of it.
 *
 * ASSERT_SOUND is zone_check plus the truth of the marks: a granule that is not marked populated has no page in the simulated machine, one
 * that is idle and not marked dirty reads as zeros; where a superpage is littered, what is marked dirty may be present, too.
 */
#ifndef STRATA_TESTS_PAGE_SUPPORT_H
#define STRATA_TESTS_PAGE_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "page/zone_internal.h"
#include "platform/sim/sim.h"

static struct zone zone;

/* 64 MiB of heap, no advice, nothing made present ahead of need, no limits: tests switch on what they are about. */
static inline struct zone_config plain_config(void) {
    return (struct zone_config){.reserve_bytes = 64 * MIB,
                                .thp = ZONE_THP_NEVER,
                                .huge_block_superpages = 4,
                                .huge_heap_granules = 32 * MIB / GRANULE_BYTES,
                                .populate_granules = 1,
                                .hard_limit_bytes = UINT64_MAX,
                                .soft_limit_bytes = UINT64_MAX};
}

/* Idle pages that blocks get by moves alone, as another group has a granule of their superpage in use: until drop_keepers. */
static struct zone_run keepers[16] __attribute__((unused));
static unsigned keepers_count __attribute__((unused));

static inline void begin(const struct sim_config *sim, struct zone_config config) {
    sim_reset(sim);
    assert_true(zone_init(&zone, &config));
    keepers_count = 0;
}

static int __attribute__((unused)) plain_zone(void **state) {
    (void)state;
    begin(NULL, plain_config());
    return 0;
}

static inline bool is_zero(const char *bytes, size_t count) { return bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0; }

static inline bool has_bit(const uint64_t bits[SUPERPAGE_WORDS], unsigned at) { return (bits[at / 64] >> at % 64 & 1) != 0; }

/* Whether pages hold zeros. Absent ones do, and stay absent. */
static inline bool holds_zeros(const char *address, size_t bytes) {
    if (sim_populated_pages(address, bytes) == 0) return true;
    for (size_t at = 0; at < bytes; at += platform_info()->page_bytes)
        if (sim_populated_pages(address + at, platform_info()->page_bytes) != 0 && !is_zero(address + at, platform_info()->page_bytes)) return false;
    return true;
}

/* NULL, or which mark of a superpage says what is not so. */
static inline const char *lying_mark_of(const struct superpage *superpage, char *address) {
    uint64_t clean[SUPERPAGE_WORDS]; /* idle, and said to be zeros */
    uint64_t present[SUPERPAGE_WORDS];
    for (unsigned w = 0; w < SUPERPAGE_WORDS; w++) present[w] = superpage->populated[w] | (superpage->littered ? superpage->dirty[w] : 0);
    for (unsigned at = bits_next(present, 0, ~UINT64_C(0)), end; at < SUPERPAGE_GRANULES; at = bits_next(present, end, ~UINT64_C(0))) {
        end = bits_next(present, at, 0);
        if (sim_populated_pages(address + ((size_t)at << GRANULE_SHIFT), (size_t)(end - at) << GRANULE_SHIFT) != 0)
            return "a page is present that is not marked populated";
    }
    for (unsigned w = 0; w < SUPERPAGE_WORDS; w++) clean[w] = superpage->populated[w] & ~superpage->allocated[w] & ~superpage->dirty[w];
    for (unsigned at = bits_next(clean, 0, 0), end; at < SUPERPAGE_GRANULES; at = bits_next(clean, end, 0)) {
        end = bits_next(clean, at, ~UINT64_C(0));
        if (!holds_zeros(address + ((size_t)at << GRANULE_SHIFT), (size_t)(end - at) << GRANULE_SHIFT))
            return "a page holds something, and is not marked dirty";
    }
    return NULL;
}

/* The same for all of them but the holes in the address space. */
static inline const char *lying_mark(void) {
    const char *wrong = NULL;
    for (size_t i = 0; i < zone.extent_bytes >> SUPERPAGE_SHIFT && wrong == NULL; i++) {
        char *address = superpage_address(&zone, &zone.superpages[i]);
        if (arena_contains(&zone.addresses, (uintptr_t)address, SUPERPAGE_BYTES)) wrong = lying_mark_of(&zone.superpages[i], address);
    }
    return wrong;
}

/* Granules that blocks have too much, counted one by one: while nobody else has blocks. */
static inline uint32_t longer_by_blocks(void) {
    uint32_t granules = 0;
    for (size_t at = 0; at < zone.extent_bytes >> GRANULE_SHIFT; at++) {
        char *address = zone_address_of(&zone, at);
        if (arena_contains(&zone.addresses, (uintptr_t)address, GRANULE_BYTES) && zone_is_block(&zone, address))
            granules += block_of(&zone, address)->longer;
    }
    return granules;
}

#define ASSERT_SOUND()                                                         \
    do {                                                                       \
        const char *wrong_ = zone_check(&zone);                                \
        if (wrong_ == NULL) wrong_ = lying_mark();                             \
        assert_int_equal(zone_longer_granules(&zone), longer_by_blocks());     \
        if (wrong_ != NULL) fail_msg("%s:%d: %s", __FILE__, __LINE__, wrong_); \
        assert_int_equal(sim_locks_held(), 0);                                 \
    } while (0)

static inline struct zone_counters counters(void) {
    struct zone_counters now;
    zone_counters_get(&zone, &now);
    return now;
}

static inline struct zone_group_stats group(enum mobility mobility) {
    struct zone_group_stats stats[MOBILITY_GROUPS];
    zone_group_stats_get(&zone, stats);
    return stats[mobility];
}

/* The number of the superpage of an address, and of the granule in it. */
static inline size_t number_of(const void *address) { return zone_granule_of(&zone, address) / SUPERPAGE_GRANULES; }
static inline unsigned offset_of(const void *address) { return (unsigned)(zone_granule_of(&zone, address) % SUPERPAGE_GRANULES); }

/* Something to know each granule by, at both of its ends. */
static inline void mark(char *address, size_t granules, uint64_t id) {
    for (size_t i = 0; i < granules; i++) {
        uint64_t *words = (uint64_t *)(void *)(address + (i << GRANULE_SHIFT));
        words[0] = words[GRANULE_BYTES / 8 - 1] = id << 32 | (i + 1);
    }
}

static inline bool is_marked(const char *address, size_t granules, uint64_t id) {
    for (size_t i = 0; i < granules; i++) {
        const uint64_t *words = (const uint64_t *)(const void *)(address + (i << GRANULE_SHIFT));
        if (words[0] != (id << 32 | (i + 1)) || words[GRANULE_BYTES / 8 - 1] != words[0]) return false;
    }
    return true;
}

/* A run that must be had, and is what a run has to be; claimed zeros are verified. Its ends are written to. */
static inline struct zone_run must_run(unsigned granules, unsigned align, enum mobility mobility) {
    struct zone_run run = {0};
    assert_true(zone_run_alloc(&zone, granules, align, mobility, &run));
    assert_int_equal(run.granules, align_up(granules, zone.page_granules));
    assert_true(zone_contains(&zone, run.address) && zone_contains(&zone, (char *)run.address + ((size_t)run.granules << GRANULE_SHIFT) - 1));
    assert_int_equal(offset_of(run.address) % max_u64(align, zone.page_granules), 0);
    assert_true(offset_of(run.address) + run.granules <= SUPERPAGE_GRANULES);
    assert_true(run.fresh <= run.granules);
    if (run.zeroed) assert_true(is_zero(run.address, (size_t)run.granules << GRANULE_SHIFT));
    mark(run.address, run.granules, (uintptr_t)run.address >> GRANULE_SHIFT);
    return run;
}

static inline void drop_run(struct zone_run run) {
    assert_true(is_marked(run.address, run.granules, (uintptr_t)run.address >> GRANULE_SHIFT));
    zone_run_free(&zone, run.address, run.granules);
}

/* The function of an owner who keeps every block where it is. */
static inline bool never_moves(void *from, void *to, size_t bytes, void *argument) {
    (void)from, (void)to, (void)bytes, (void)argument;
    return false;
}

/* The same for blocks. */
static inline char *must_block(size_t bytes, size_t align) {
    bool zeroed = false;
    char *block = zone_block_alloc(&zone, bytes, align, &zeroed);
    assert_non_null(block);
    size_t usable = zone_block_bytes(&zone, block);
    assert_true(usable >= bytes && usable > 0 && usable - bytes <= platform_info()->page_bytes);
    assert_int_equal((uintptr_t)block % align, 0);
    assert_int_equal((uintptr_t)block % platform_info()->page_bytes, 0);
    assert_true(zone_contains(&zone, block) && zone_contains(&zone, block + usable - 1));
    if (zeroed) assert_true(is_zero(block, usable));
    return block;
}

static inline void drop_block(void *block) {
    assert_true(zone_block_free(&zone, block));
    assert_int_equal(zone_block_bytes(&zone, block), 0);
}

static inline void keep_run(enum mobility mobility) {
    assert_true(keepers_count < ARRAY_LENGTH(keepers));
    keepers[keepers_count++] = must_run(1, 1, mobility);
}
static inline void drop_keepers(void) {
    while (keepers_count != 0) drop_run(keepers[--keepers_count]);
}
/* All of them dirty. */
static inline void leave_idle(unsigned granules) {
    struct zone_run idle = must_run(granules, 1, MOBILITY_UNMOVABLE);
    keep_run(MOBILITY_UNMOVABLE);
    drop_run(idle);
}

/* Nothing is in use, and nothing was lost. */
static inline void assert_empty(void) {
    struct zone_counters now = counters();
    assert_int_equal(now.allocated, 0);
    assert_int_equal(now.blocks, 0);
    assert_int_equal(now.block_granules, 0);
    assert_int_equal(arena_size(&zone.addresses, ARENA_ALLOCATED), 0);
    ASSERT_SOUND();
    zone_release(&zone, 0);
    assert_int_equal(counters().populated, 0);
    ASSERT_SOUND();
}

/* Same numbers every run. */
static inline uint64_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* What really is there, in granules; the arrays of the zone are left out. */
static inline uint64_t present_granules(void) {
    if (zone.extent_bytes == 0) return 0;
    return sim_populated_pages((void *)zone.base, zone.extent_bytes) * zone.page_granules;
}

/* A superpage of unmovable runs with `idle` present free granules in single holes of `hole` granules. Returns how many runs stay. */
static inline unsigned make_holes(struct zone_run kept[SUPERPAGE_GRANULES], unsigned hole, unsigned idle) {
    static struct zone_run all[SUPERPAGE_GRANULES];
    unsigned n = 0, stay = 0, freed = 0;
    for (unsigned at = 0; at + hole <= SUPERPAGE_GRANULES; at += hole) all[n++] = must_run(hole, 1, MOBILITY_UNMOVABLE);
    for (unsigned i = 0; i < n; i++) {
        if (i % 2 == 1 && freed < idle) {
            drop_run(all[i]);
            freed += hole;
        } else {
            kept[stay++] = all[i];
        }
    }
    assert_int_equal(freed, idle);
    return stay;
}

static inline void drop_all(struct zone_run *runs, unsigned count) {
    while (count != 0) drop_run(runs[--count]);
}

#endif
