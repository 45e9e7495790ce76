/*
 * cache_api.h - what the two files of the public object caches share. Private to api/.
 */
#ifndef STRATA_API_CACHE_API_H
#define STRATA_API_CACHE_API_H

#include "base/check.h"
#include "cache/object_cache.h"
#include "strata/cache.h"

STRATA_INLINE struct object_cache *cache_inner(struct strata_cache *cache) { return (struct object_cache *)(void *)cache; }

/* The cache, or one line and the end of the process: also where it was destroyed, as far as that can be seen. */
STRATA_INLINE struct object_cache *cache_required(struct strata_cache *cache, const char *function) {
    if (STRATA_UNLIKELY(cache == NULL)) fatal("%s(): cache is NULL", function);
    struct object_cache *object_cache = cache_inner(cache);
    if (STRATA_UNLIKELY(object_cache_is_gone(object_cache))) fatal("%s(): the cache was destroyed (cache %s)", function, object_cache->name);
    return object_cache;
}

/* For object_cache_config.call_reclaim. */
object_reclaim_call cache_call_reclaim;
/*
 * An allocation has failed, and why: what programs free when they are asked to may serve it, and what waits in other caches. asks: the program may be
 * asked. NULL: it did not.
 */
void *cache_alloc_reclaimed(struct object_cache *cache, bool asks, enum object_failure why);

#endif
