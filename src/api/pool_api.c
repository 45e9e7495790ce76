/*
 * pool_api.c - the public functions of fixed pools, over cache/pool.h.
 *
 * The public structs are the internal ones under other names, never defined; the public statuses and flags are the same numbers. Pools stand in
 * heap.pools, under heap.lock, so that fork can hold their locks: create and destroy take it, nothing else does.
 */
#include "strata/pool.h"

#include <errno.h>

#include "api/heap.h"
#include "base/check.h"

_Static_assert(STRATA_POOL_OK == (int)POOL_OK && STRATA_POOL_NO_MEMORY == (int)POOL_NO_MEMORY && STRATA_POOL_BAD_ARGUMENT == (int)POOL_BAD_ARGUMENT &&
                   STRATA_POOL_FOREIGN == (int)POOL_FOREIGN && STRATA_POOL_BUSY == (int)POOL_BUSY,
               "statuses are the same numbers");
_Static_assert(STRATA_POOL_STACKS == POOL_STACKS, "flags are the same bits");
_Static_assert(STRATA_POOL_OBJECT_BYTES_MAX == POOL_OBJECT_BYTES_MAX, "limits are the same numbers");
_Static_assert(STRATA_POOL_M_MAX == POOL_M_MAX, "limits are the same numbers");
_Static_assert(STRATA_POOL_NAME_BYTES == sizeof((struct pool *)0)->name, "limits are the same numbers");

STRATA_INLINE struct pool *pool_of(struct strata_pool *pool) { return (struct pool *)(void *)pool; }
STRATA_INLINE struct pool_local *local_of(struct strata_pool_local *local) { return (struct pool_local *)(void *)local; }

static bool is_dying(void) { return __atomic_load_n(&heap.dying, __ATOMIC_RELAXED); }

STRATA_EXPORT const char *strata_pool_status_text(enum strata_pool_status status) {
    static const char *const texts[] = {[STRATA_POOL_OK] = "success",
                                        [STRATA_POOL_NO_MEMORY] = "no memory",
                                        [STRATA_POOL_BAD_ARGUMENT] = "bad argument",
                                        [STRATA_POOL_FOREIGN] = "not an object of this pool",
                                        [STRATA_POOL_BUSY] = "objects or local pools are in use"};
    return (unsigned)status < ARRAY_LENGTH(texts) ? texts[status] : "unknown status";
}

/* ------------------------------------------------------------------ life */

STRATA_EXPORT enum strata_pool_status strata_pool_create(const struct strata_pool_config *config, struct strata_pool **out) {
    if (config == NULL || out == NULL) return STRATA_POOL_BAD_ARGUMENT;
    if (is_dying() || !heap_init()) return STRATA_POOL_NO_MEMORY;
    const struct pool_config inner = {.name = config->name,
                                      .object_bytes = config->object_bytes,
                                      .alignment = config->alignment,
                                      .m = config->m,
                                      .m_alpha = config->m_alpha,
                                      .m_beta = config->m_beta,
                                      .objects_start = config->objects_start,
                                      .objects_max = config->objects_max,
                                      .objects_grow = config->objects_grow,
                                      .flags = config->flags};
    struct pool *pool;
    enum pool_status status = pool_create(&heap.pools, &inner, &pool);
    if (status == POOL_NO_MEMORY && heap_release(0) != 0) status = pool_create(&heap.pools, &inner, &pool);
    size_t wanted_bytes;
    if (status == POOL_NO_MEMORY && !__builtin_mul_overflow(config->object_bytes, max_u64(config->objects_start, 1), &wanted_bytes))
        reclaim_later(wanted_bytes);
    if (status != POOL_OK) return (enum strata_pool_status)status;
    platform_lock_acquire(&heap.lock);
    list_push_back(&heap.pools.pools, &pool->link);
    platform_lock_release(&heap.lock);
    maintenance_slow_call(true);
    *out = (struct strata_pool *)(void *)pool;
    return STRATA_POOL_OK;
}

STRATA_EXPORT enum strata_pool_status strata_pool_destroy(struct strata_pool *public_pool, size_t *objects_in_use) {
    struct pool *pool = pool_of(public_pool);
    uint64_t in_use = 0;
    if (pool == NULL || pool_is_gone(pool)) return STRATA_POOL_BAD_ARGUMENT;
    platform_lock_acquire(&heap.lock); /* over the end of the pool, so that a fork meets either the whole pool or none */
    enum pool_status status = pool_destroy(pool, &in_use);
    platform_lock_release(&heap.lock);
    if (objects_in_use != NULL) *objects_in_use = in_use;
    return (enum strata_pool_status)status;
}

STRATA_EXPORT enum strata_pool_status strata_pool_local_create(struct strata_pool *pool, struct strata_pool_local **out) {
    if (pool == NULL || out == NULL || pool_is_gone(pool_of(pool))) return STRATA_POOL_BAD_ARGUMENT;
    if (is_dying()) return STRATA_POOL_NO_MEMORY;
    struct pool_local *local = pool_local_create(pool_of(pool));
    if (local == NULL && heap_release(0) != 0) local = pool_local_create(pool_of(pool));
    if (local == NULL) return STRATA_POOL_NO_MEMORY;
    *out = (struct strata_pool_local *)(void *)local;
    return STRATA_POOL_OK;
}

STRATA_EXPORT void strata_pool_local_destroy(struct strata_pool_local *local) {
    if (local == NULL || is_dying()) return;
    if (pool_local_is_gone(local_of(local))) fatal("strata_pool_local_destroy(): the local pool was destroyed (local = %p)", (void *)local);
    pool_local_destroy(local_of(local));
}

/* ------------------------------------------------------------------ objects */

/* The local pool's array is empty, as that of stacks beside the other kind always is. */
static STRATA_NOINLINE void *alloc_slow(struct pool_local *local) {
    bool grew = false;
    void *object = NULL;
    if (local == NULL || pool_local_is_gone(local)) {
        errno = EINVAL;
        return NULL;
    }
    if (!is_dying()) {
        object = pool_alloc_slow(local, &grew);
        if (object == NULL && !pool_is_full_size(local->pool) && heap_release(0) != 0) object = pool_alloc_slow(local, &grew);
    }
    if (STRATA_UNLIKELY(grew)) maintenance_slow_call(true);
    if (STRATA_UNLIKELY(object == NULL)) {
        if (!pool_is_full_size(local->pool)) reclaim_later(local->pool->object_bytes);
        errno = ENOMEM;
    }
    return object;
}

STRATA_EXPORT void *strata_pool_alloc(struct strata_pool_local *public_local) {
    struct pool_local *local = local_of(public_local);
    void *object = STRATA_LIKELY(local != NULL) ? pool_pop(local) : NULL;
    return STRATA_LIKELY(object != NULL) ? object : alloc_slow(local);
}

static STRATA_NOINLINE enum strata_pool_status free_slow(struct pool_local *local, void *object) {
    if (!is_dying()) pool_free_slow(local, object);
    return STRATA_POOL_OK;
}

/* What can't be an object of the pool: nothing at all, which is fine, or an error. */
static STRATA_COLD enum strata_pool_status free_odd(const struct pool_local *local, const void *object) {
    if (local == NULL || pool_local_is_gone(local)) return STRATA_POOL_BAD_ARGUMENT;
    return object == NULL ? STRATA_POOL_OK : STRATA_POOL_FOREIGN;
}

STRATA_EXPORT enum strata_pool_status strata_pool_free(struct strata_pool_local *public_local, void *object) {
    struct pool_local *local = local_of(public_local);
    if (STRATA_UNLIKELY(local == NULL || !pool_owns(local->pool, object))) return free_odd(local, object);
    return STRATA_LIKELY(pool_push(local, object)) ? STRATA_POOL_OK : free_slow(local, object);
}

/* ------------------------------------------------------------------ looking inside */

STRATA_EXPORT enum strata_pool_status strata_pool_stats_get(struct strata_pool *public_pool, struct strata_pool_stats *out) {
    struct pool *pool = pool_of(public_pool);
    struct pool_stats stats;
    if (pool == NULL || out == NULL || pool_is_gone(pool)) return STRATA_POOL_BAD_ARGUMENT;
    pool_stats_get(pool, &stats);
    *out = (struct strata_pool_stats){.object_bytes = pool->object_bytes,
                                      .alignment = pool->alignment,
                                      .m = pool->m,
                                      .m_alpha = pool->m_alpha,
                                      .m_beta = pool->m_beta,
                                      .requests_apart = pool_requests_apart(pool->m, pool->m_alpha, pool->m_beta),
                                      .flags = pool_is_of_stacks(pool) ? STRATA_POOL_STACKS : 0,
                                      .alpha_accesses = stats.accesses.alpha,
                                      .beta_accesses = stats.accesses.beta,
                                      .alpha_short = stats.accesses.alpha_short,
                                      .alpha_failures = stats.accesses.alpha_failures,
                                      .drains = stats.drains,
                                      .contention = stats.contention,
                                      .growths = stats.growths,
                                      .locals = stats.locals,
                                      .locals_max = stats.locals_max,
                                      .objects = stats.objects,
                                      .objects_in_use = stats.in_use,
                                      .objects_global = stats.global,
                                      .objects_local = stats.local,
                                      .memory_bytes = stats.memory_bytes,
                                      .metadata_bytes = stats.metadata_bytes};
    __builtin_memcpy(out->name, pool->name, sizeof out->name);
    return STRATA_POOL_OK;
}

STRATA_EXPORT enum strata_pool_status strata_pool_local_stats_get(const struct strata_pool_local *public_local, struct strata_pool_local_stats *out) {
    const struct pool_local *local = (const struct pool_local *)(const void *)public_local;
    if (local == NULL || out == NULL || pool_local_is_gone(local)) return STRATA_POOL_BAD_ARGUMENT;
    *out = (struct strata_pool_local_stats){.alpha_accesses = local->accesses.alpha,
                                            .beta_accesses = local->accesses.beta,
                                            .alpha_short = local->accesses.alpha_short,
                                            .alpha_failures = local->accesses.alpha_failures,
                                            .objects = local->count + local->stacked};
    return STRATA_POOL_OK;
}

STRATA_EXPORT const char *strata_pool_check(struct strata_pool *pool) {
    return pool != NULL && !pool_is_gone(pool_of(pool)) ? pool_check(pool_of(pool)) : "pool: no pool";
}
