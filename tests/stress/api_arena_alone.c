/*
 * api_arena_alone.c - a process of one thread whose request sleeps, in an arena with quantum caches, until the arena's reclaim function gives
 * something back: nobody else is there to agree with, so that a filter which ends the process for membarrier is no reason to end.
 */
#include <stdint.h>
#include <stdio.h>

#include <strata/arena.h>

#include "stress/forbid.h"

static uint64_t held[16];

static int give_one(void *context, struct strata_arena *arena, uint64_t size) {
    (void)context, (void)size;
    EXPECT(strata_arena_free(arena, held[3], 1) == STRATA_ARENA_OK);
    return 1;
}

int main(void) {
    struct strata_arena *arena;
    uint64_t start;
    EXPECT(strata_arena_create("alone", 0, 16, 1, 0, &arena) == STRATA_ARENA_OK);
    EXPECT(strata_arena_set_quantum_caches(arena, 2) == STRATA_ARENA_OK);
    EXPECT(strata_arena_set_reclaim(arena, give_one, NULL) == STRATA_ARENA_OK);
    for (unsigned i = 0; i < 16; i++) EXPECT(strata_arena_alloc(arena, 1, 0, &held[i]) == STRATA_ARENA_OK);
#if defined(__GLIBC__) && !defined(__SANITIZE_THREAD__) /* else nobody tells strata that it is alone */
    end_by(SYS_membarrier);
#endif
    EXPECT(strata_arena_alloc(arena, 1, STRATA_ARENA_SLEEP, &start) == STRATA_ARENA_OK && start == held[3]);
    puts("ok");
    return 0;
}
