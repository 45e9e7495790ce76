/*
 * arena_api_support.h - what the tests of public arenas share: a process without anything, a stack of three arenas, short ways to say what is
 * expected.
 */
#ifndef STRATA_TESTS_ARENA_API_SUPPORT_H
#define STRATA_TESTS_ARENA_API_SUPPORT_H

#include "strata/arena.h"
#include "strata/malloc.h"
#include "strata/strata.h"
#include "unit/api/api_support.h"

#define ASSERT_STATUS(call, status) assert_string_equal(strata_arena_status_text(call), strata_arena_status_text(STRATA_ARENA_##status))
#define ASSERT_OK(call) ASSERT_STATUS(call, OK)

static struct strata_arena *bottom __attribute__((unused)), *middle __attribute__((unused)), *top __attribute__((unused));

/* Nothing happens by itself there. */
static inline void new_still_process(const struct sim_config *sim) { new_process(sim, "thp:never,background:off,decay_ms:3600000"); }

static inline struct strata_arena *new_arena(const char *name, uint64_t base, uint64_t size, uint64_t quantum) {
    struct strata_arena *arena = NULL;
    return strata_arena_create(name, base, size, quantum, 0, &arena) == STRATA_ARENA_OK ? arena : NULL;
}

/* top imports from middle, which imports from bottom; bottom has 16 pieces of 64. */
static inline void new_stack(void) {
    new_still_process(NULL);
    bottom = new_arena("bottom", 1024, 1024, 64);
    middle = new_arena("middle", 0, 0, 16);
    top = new_arena("top", 0, 0, 1);
}

static inline int sound(void **state) {
    (void)state;
    const char *broken = strata_check();
    if (broken != NULL) fail_msg("%s", broken);
    return sim_locks_held() == 0 ? 0 : -1;
}

static inline struct strata_arena_stats stats_of(struct strata_arena *of) {
    struct strata_arena_stats stats;
    ASSERT_OK(strata_arena_stats_get(of, &stats));
    return stats;
}

static inline uint64_t must_alloc(struct strata_arena *from, uint64_t size) {
    uint64_t got = UINT64_MAX;
    ASSERT_OK(strata_arena_alloc(from, size, 0, &got));
    return got;
}

#endif
