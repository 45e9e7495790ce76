/*
 * run_cache.h - what a zone has for the runs that CPUs keep: see run_cache.c.
 */
#ifndef STRATA_PAGE_RUN_CACHE_H
#define STRATA_PAGE_RUN_CACHE_H

#include "base/base.h"
#include "platform/platform.h"

#define RUN_CACHES 16
#define RUN_CACHE_RUNS 500
#define RUN_CACHE_USED_RUNS 400 /* so many of them are not hardly used */

struct cached_run {
    uint32_t at; /* its first granule in the zone */
    uint32_t granules;
    uint32_t present; /* of them, so far as known: fewer where it is hardly used */
};

/*
 * Of a CPU, or of CPUs whose numbers are the same modulo RUN_CACHES. The runs lie apart, in the zone, so that the first one of a CPU needs no pages
 * for others'.
 */
struct run_cache {
    struct platform_lock lock STRATA_ALIGNED(CACHE_LINE_BYTES); /* LOCK_RANK_RUN_CACHE */
    uint32_t count;                                             /* read without it, as is the next */
    struct cached_kind {
        uint32_t count, present; /* so many runs, of which so much is there */
    } kinds[2];                  /* used ones, hardly used ones */
    uint32_t looks, look_shift;  /* hardly used ones that came by, and which of them are looked at; changed without the lock */
    uint32_t longer;             /* see struct longer_runs */
    struct cached_run *runs;     /* the latest last */
};

/*
 * Blocks out of these caches may be longer than was asked for, as a run that fits exactly is seldom there where sizes come in no order, and any other
 * way takes the zone's lock. What they have too much is no loss while the heap does not grow: it would be idle. So it is counted: by each cache,
 * modulo 2^32, for what it hands on and gets back (its `longer`), and by the zone for blocks that begin, end or are resized under its lock
 * (longer_granules); address space of hardly used ones is in it, too. The bound is narrow while that is much (LONGER_*) of what counts as present, or
 * half of the soft limit is: asked when pages are touched for the first time, and with each tick. In between, a CPU that has handed on much narrows
 * it. It is narrower where a limit refuses what is in use, or address space. (The child of a fork keeps for ever what was being handed on then.)
 */
struct longer_runs {
    uint8_t shift; /* a run may be longer by what is asked for, shifted right by so much: one of the next. Atomic */
    uint8_t wide, narrow;
};

#endif
