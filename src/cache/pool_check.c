/*
 * pool_check.c - looking into fixed pools: figures, and the check of every free object.
 */
#include "cache/pool_internal.h"

/* Under the lock. */
static uint64_t objects_in_locals(const struct pool *pool) {
    uint64_t objects = 0;
    LIST_FOR_EACH(&pool->locals, node) objects += pool_local_objects(CONTAINER_OF(node, struct pool_local, link));
    return objects;
}

STRATA_COLD void pool_stats_get(struct pool *pool, struct pool_stats *stats) {
    platform_lock_acquire(&pool->lock);
    uint64_t local = objects_in_locals(pool), free = pool->global + local;
    *stats = (struct pool_stats){.accesses = pool->accesses,
                                 .drains = pool->drains,
                                 .contention = pool->contention,
                                 .growths = pool->growths,
                                 .locals = pool->locals_count,
                                 .locals_max = pool->locals_max,
                                 .objects = pool->objects,
                                 .in_use = pool->objects > free ? pool->objects - free : 0,
                                 .global = pool->global,
                                 .local = local,
                                 .memory_bytes = pool->memory_bytes,
                                 .metadata_bytes = pool->metadata_bytes};
    platform_lock_release(&pool->lock);
}

/* ------------------------------------------------------------------ check */

/* The word and bit that stand for an object: in the descriptor of the granule that it starts in. */
static bool mark(struct pool *pool, const void *object) {
    struct pool_chunk *chunk = pool_chunk_at(pool->zone, zone_granule_of(pool->zone, object));
    unsigned bit = (unsigned)((uintptr_t)object & (GRANULE_BYTES - 1)) / 16;
    bool marked = (chunk->marks[bit / 64] >> bit % 64 & 1) != 0;
    chunk->marks[bit / 64] |= UINT64_C(1) << bit % 64;
    return marked;
}

static const char *check_object(struct pool *pool, const void *object) {
    if (!pool_owns(pool, object)) return "pool: a free object that is none of its own";
    return mark(pool, object) ? "pool: an object is free twice" : NULL;
}

static const char *check_array(struct pool *pool, void *const *rounds, uint64_t count) {
    const char *broken = NULL;
    for (uint64_t i = 0; i < count && broken == NULL; i++) broken = check_object(pool, rounds[i]);
    return broken;
}

/* Each object is looked at before its link is followed. */
static const char *check_list(struct pool *pool, const void *object, uint64_t count) {
    for (uint64_t i = 0; i < count; i++, object = stacks_next(object)) {
        const char *broken = check_object(pool, object);
        if (broken != NULL) return broken;
    }
    return NULL;
}

static const char *check_local(struct pool *pool, const struct pool_local *local) {
    uint32_t stacked = local->stacked, backup = (uint32_t)min_u64(stacked, pool->backup);
    if (local->pool != pool) return "pool: a local pool of another pool";
    if (local->limit != (pool_is_of_stacks(pool) ? 0 : pool->m)) return "pool: a local pool of another kind";
    if (local->count > local->limit || stacked > (pool_is_of_stacks(pool) ? pool->m : 0)) return "pool: a local pool holds more than m";
    const char *broken = check_array(pool, local->rounds, local->count);
    if (broken == NULL) broken = check_list(pool, local->backup_head, backup);
    if (broken == NULL) broken = check_list(pool, local->active_head, stacked - backup);
    return broken;
}

static const char *check_global(struct pool *pool) {
    if (!pool_is_of_stacks(pool)) {
        if (pool->objects > pool->rounds_capacity) return "pool: no room for every object";
        return check_array(pool, pool->rounds, pool->global);
    }
    uint64_t listed = 0;
    const char *broken = NULL;
    for (uint64_t i = 0; i < pool->lists_count && broken == NULL; i++) {
        if (pool->lists[i].count == 0) return "pool: an empty list";
        listed += pool->lists[i].count;
        broken = check_list(pool, pool->lists[i].head, pool->lists[i].count);
    }
    return broken == NULL && listed != pool->global ? "pool: lists and their count differ" : broken;
}

/* Clears the marks. */
static const char *check_chunks(struct pool *pool) {
    uint64_t objects = 0, bytes = 0;
    for (uint64_t granule = pool->chunk; granule != POOL_NO_CHUNK; granule = pool_chunk_at(pool->zone, granule)->next) {
        const struct pool_chunk *chunk = pool_chunk_at(pool->zone, granule);
        if (chunk->pool != pool) return "pool: a chunk of another pool";
        if (chunk->made > chunk->capacity || (chunk->made < chunk->capacity && granule != pool->chunk)) return "pool: an old chunk is not used up";
        for (unsigned i = 0; i < chunk->granules; i++) {
            if (pool->zone->tags[granule + i] != (granule_tag)(TAG_POOL | i << 8)) return "pool: a granule with a wrong tag";
            __builtin_memset(pool_chunk_at(pool->zone, granule + i)->marks, 0, sizeof chunk->marks);
        }
        objects += chunk->made;
        bytes += chunk->granules * GRANULE_BYTES;
    }
    if (objects != pool->objects || bytes != pool->memory_bytes) return "pool: chunks and their counts differ";
    return objects > pool->objects_max ? "pool: more objects than allowed" : NULL;
}

STRATA_COLD const char *pool_check(struct pool *pool) {
    uint64_t locals = 0;
    platform_lock_acquire(&pool->lock);
    const char *broken = check_chunks(pool);
    if (broken == NULL) broken = check_global(pool);
    LIST_FOR_EACH(&pool->locals, node) {
        locals++;
        if (broken == NULL) broken = check_local(pool, CONTAINER_OF(node, struct pool_local, link));
    }
    if (broken == NULL && (locals != pool->locals_count || locals > pool->locals_max)) broken = "pool: local pools and their count differ";
    platform_lock_release(&pool->lock);
    return broken;
}
