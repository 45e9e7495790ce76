/*
 * object_debug.h - what object caches ask of their debugged objects. Private to this folder.
 *
 * All of it is for slow paths: a cache with features has no open arrays. For one that never had any, each is one look at a pointer.
 */
#ifndef STRATA_CACHE_OBJECT_DEBUG_H
#define STRATA_CACHE_OBJECT_DEBUG_H

#include "cache/object_cache.h"

STRATA_INLINE struct debug_cache *object_debug_of(const struct object_cache *cache) { return __atomic_load_n(&cache->debug, __ATOMIC_ACQUIRE); }
STRATA_INLINE bool object_debug_is_on(const struct object_cache *cache) {
    const struct debug_cache *debug = object_debug_of(cache);
    return STRATA_UNLIKELY(debug != NULL) && debug_cache_is_active(debug);
}

bool object_debug_take_slow(struct object_cache *cache, void **objects, unsigned *taken);
/* True: a debugged object is in objects[0], *taken is 1; or the allocation fails, *taken is 0. False: an ordinary one is wanted. */
STRATA_INLINE bool object_debug_take(struct object_cache *cache, void **objects, unsigned *taken) {
    return object_debug_is_on(cache) && object_debug_take_slow(cache, objects, taken);
}

/* There was no ordinary object (either). */
void object_debug_failed(struct object_cache *cache, enum object_failure why);

typedef void object_debug_plain(struct object_cache *cache, void *const *objects, unsigned count);
void object_debug_give_slow(struct object_cache *cache, void *const *objects, unsigned count, object_debug_plain *plain);
/* True: taken back, those that are not debugged by `plain`. False: none of them can be debugged. */
STRATA_INLINE bool object_debug_give(struct object_cache *cache, void *const *objects, unsigned count, object_debug_plain *plain) {
    const struct debug_cache *debug = object_debug_of(cache);
    if (STRATA_LIKELY(debug == NULL) || !debug_cache_is_used(debug)) return false;
    object_debug_give_slow(cache, objects, count, plain);
    return true;
}

/* Returns how many debugged objects the program has not freed. */
uint64_t object_debug_destroy(struct object_cache *cache);
void object_debug_reap(struct object_cache *cache);
/* Of its debugged objects; zeros where it never had features. */
struct debug_figures object_debug_figures(const struct object_cache *cache);
void object_debug_add_stats(const struct object_cache *cache, struct object_slabs_stats *stats);

#endif
