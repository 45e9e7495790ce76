/*
 * object_internal.h - what the files of object caches share: object_cache.c, object_cache_reclaim.c, object_cache_move.c. Private to this folder.
 */
#ifndef STRATA_CACHE_OBJECT_INTERNAL_H
#define STRATA_CACHE_OBJECT_INTERNAL_H

#include "cache/object_cache.h"

/* Constructs raw objects of the cache's slabs; those that construct refuses go back there. Returns how many are left, in front. */
unsigned object_construct(struct object_cache *cache, void **objects, unsigned count);
/* Destructs objects, and gives them back to the slabs. One that can't be an object of the cache ends the process. */
void object_give(struct object_cache *cache, void *const *objects, unsigned count);

/* ------------------------------------------------------------------ pins */

STRATA_INLINE bool object_is_leaving(const struct object_cache *cache) {
    return __atomic_load_n(&cache->owner->layer.depots[cache->index].leaving, __ATOMIC_RELAXED);
}
/* A cache that is pinned is not destroyed. False: it is being destroyed already. */
bool object_pin(struct object_caches *objects, struct object_cache *cache);
/* Where a walk over the places of all caches stands; zeros: at the beginning. */
struct object_place {
    struct object_layer *owner;
    unsigned index;
};
/* The next cache that is wanted, pinned; NULL: no more. is_wanted runs under objects->lock. */
struct object_cache *object_pin_next(struct object_caches *objects, struct object_place *place, bool (*is_wanted)(const struct object_cache *cache));
void object_unpin(struct object_caches *objects, struct object_cache *cache);

/* ------------------------------------------------------------------ callbacks */

/* False: no memory. */
bool object_reclaimer_add(struct object_cache *cache, const struct object_cache_config *config);
void object_reclaimer_stats(const struct object_cache *cache, struct object_cache_stats *stats);
void object_mover_stats(const struct object_cache *cache, struct object_cache_stats *stats);

/*
 * Words that name the thread which is in a callback, around a fork: in the child, the thread that forks has another number, and others are gone.
 * All under objects->lock; child once the locks of slabs are free again.
 */
void object_callbacks_fork_prepare(struct object_caches *objects);
void object_callbacks_fork_parent(struct object_caches *objects);
void object_callbacks_fork_child(struct object_caches *objects);

#endif
