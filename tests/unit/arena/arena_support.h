/*
 * arena_support.h - what the tests of arena/ share: memory for tags that can be made to fail, and short ways to say what is expected.
 */
#ifndef STRATA_TESTS_ARENA_SUPPORT_H
#define STRATA_TESTS_ARENA_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arena/arena.h"
#include "platform/sim/sim.h"

/* The ctx of the operations below. */
struct memory {
    uint64_t gets, puts, refusals, held_bytes;
    uint64_t fail_after; /* so many more gets succeed; UINT64_MAX: all */
    struct list blocks;  /* of all that is held, in a header of ARENA_BATCH_BYTES before each */
};

static inline void memory_init(struct memory *memory) {
    *memory = (struct memory){.fail_after = UINT64_MAX};
    list_init(&memory->blocks);
}

/* What an arena still holds when its test is over. */
static inline void memory_drop(struct memory *memory) {
    while (!list_empty(&memory->blocks)) {
        struct list *block = memory->blocks.next;
        list_remove(block);
        free(block);
    }
}

static void *__attribute__((unused)) memory_get(void *ctx, size_t bytes) {
    struct memory *memory = ctx;
    void *block = NULL;
    assert_int_equal(sim_locks_held(), 0);
    assert_true(is_power_of_two(bytes) && bytes >= ARENA_BATCH_BYTES);
    if (memory->fail_after == 0) {
        memory->refusals++;
        return NULL;
    }
    if (memory->fail_after != UINT64_MAX) memory->fail_after--;
    assert_int_equal(posix_memalign(&block, ARENA_BATCH_BYTES, ARENA_BATCH_BYTES + bytes), 0);
    unsigned char *result = (unsigned char *)block + ARENA_BATCH_BYTES;
    for (size_t i = 0; i < bytes; i++) result[i] = 0xa5; /* nobody may count on zeros */
    list_push_back(&memory->blocks, block);
    memory->gets++;
    memory->held_bytes += bytes;
    return result;
}

static void __attribute__((unused)) memory_put(void *ctx, void *address, size_t bytes) {
    struct memory *memory = ctx;
    assert_int_equal(sim_locks_held(), 0);
    assert_true(memory->held_bytes >= bytes);
    memory->puts++;
    memory->held_bytes -= bytes;
    struct list *block = (void *)((char *)address - ARENA_BATCH_BYTES);
    list_remove(block);
    free(block);
}

static const struct arena_ops memory_ops __attribute__((unused)) = {.memory_get = memory_get, .memory_put = memory_put};

#define ASSERT_STATUS(call, status) assert_string_equal(arena_status_text(call), arena_status_text(status))
#define ASSERT_OK(call) ASSERT_STATUS(call, ARENA_OK)
#define ASSERT_SOUND(arena)                                                    \
    do {                                                                       \
        const char *wrong_ = arena_check(arena);                               \
        if (wrong_ != NULL) fail_msg("%s:%d: %s", __FILE__, __LINE__, wrong_); \
    } while (0)

/* An allocation that must succeed. */
static inline uint64_t must_alloc(struct arena *arena, uint64_t size, unsigned flags) {
    uint64_t start = 0;
    ASSERT_OK(arena_alloc(arena, size, flags, &start));
    return start;
}

/* Same numbers every run. */
static inline uint64_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static inline struct arena_stats stats_of(struct arena *arena) {
    struct arena_stats stats;
    arena_stats_get(arena, &stats);
    return stats;
}

static int __attribute__((unused)) reset_sim(void **state) {
    (void)state;
    sim_reset(NULL);
    return 0;
}

#endif
