/*
 * pool_internal.h - what the files of fixed pools share. Private to this folder.
 *
 * Both kinds of local pools have the same three transfers, all under the pool's lock, which leave the counting to pool.c:
 *   KIND_make   `count` new objects, which follow one another from `first` on, go to the global pool, to be taken lowest first;
 *   KIND_take   `count` objects of the global pool, which has them, go to an empty local pool;
 *   KIND_give   `count` objects of a local pool, m_beta of a full one or all that it has, go to the global pool.
 */
#ifndef STRATA_CACHE_POOL_INTERNAL_H
#define STRATA_CACHE_POOL_INTERNAL_H

#include "cache/pool.h"

/* Memory for what is ours, zeros; beyond this from runs of the zone's own, as the metadata's room is bounded. */
#define POOL_METADATA_BYTES_MAX (32 * KIB)
void *pool_memory_get(struct pool *pool, size_t bytes);
void pool_memory_put(struct pool *pool, void *memory, size_t bytes);

/* Room for so many objects in the global pool; false: no memory. */
bool rounds_reserve(struct pool *pool, uint64_t objects);
void rounds_make(struct pool *pool, char *first, uint64_t count);
void rounds_take(struct pool *pool, struct pool_local *local, uint32_t count);
void rounds_give(struct pool *pool, struct pool_local *local, uint32_t count);

/* The first array of lists; false: no memory. */
bool stacks_init(struct pool *pool);
void stacks_make(struct pool *pool, char *first, uint64_t count);
void stacks_take(struct pool *pool, struct pool_local *local, uint32_t count);
void stacks_give(struct pool *pool, struct pool_local *local, uint32_t count);

STRATA_INLINE uint32_t pool_local_objects(const struct pool_local *local) {
    return __atomic_load_n(&local->count, __ATOMIC_RELAXED) + __atomic_load_n(&local->stacked, __ATOMIC_RELAXED);
}

#endif
