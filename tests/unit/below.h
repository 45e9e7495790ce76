/*
 * below.h - room below what a simulated machine reserves next, for a heap that grows under a limit on address space: its base lies 64 GiB below its
 * arrays, or as far as it may ever be large, and the machine reserves the lowest space that is free.
 */
#ifndef STRATA_TEST_BELOW_H
#define STRATA_TEST_BELOW_H

#include "platform/sim/sim.h"

/* For limits of up to 32 GiB: so much is left below, by a little at each BELOW_APART, between which no arrays fit. Little of the limit goes there. */
#define BELOW_BYTES (65 * GIB)
#define BELOW_APART (GIB / 4)
#define BELOW_LIMIT (6 * GIB)
#define BELOW_EACH (64 * KIB)

/* False: something is there already. */
static inline bool below_keep(uint64_t bytes, uint64_t apart) {
    for (uint64_t at = 0; at < bytes; at += apart)
        if (!platform_reserve_at((char *)sim_arena_base() + at, BELOW_EACH)) return false;
    return true;
}
static inline void below_leave(uint64_t bytes, uint64_t apart) {
    for (uint64_t at = 0; at < bytes; at += apart) platform_unreserve((char *)sim_arena_base() + at, BELOW_EACH);
}

#endif
