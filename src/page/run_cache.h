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
    uint32_t looks;              /* hardly used ones that came by, changed without the lock */
    struct cached_run *runs;     /* the latest last */
};

#endif
