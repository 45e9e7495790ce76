/*
 * pool.c - fixed pools: their life, their memory, and the ways between local pools and the global one. See pool.h.
 */
#include "cache/pool_internal.h"

#include "base/check.h"

#define NATURAL_ALIGN 16
#define RECIPROCAL_SHIFT 40
/* The tag of a granule has eight bits for its place in the run. */
#define CHUNK_GRANULES_MAX 256u
/* A pool of no given growth makes so much at first, and then this share of what it has. */
#define GROWTH_BYTES_MIN (64 * KIB)
#define GROWTH_SHARE 8

/* Tried first, so that contention can be told. */
static void pool_lock(struct pool *pool) {
    if (STRATA_LIKELY(platform_lock_try(&pool->lock))) return;
    platform_lock_acquire(&pool->lock);
    pool->contention++;
}

/* ------------------------------------------------------------------ memory */

static void *memory_get(struct zone *zone, size_t bytes) {
    if (bytes <= POOL_METADATA_BYTES_MAX) return zone_metadata_alloc(zone, bytes);
    return bytes <= PTRDIFF_MAX ? zone_block_alloc(zone, bytes, NATURAL_ALIGN, NULL) : NULL;
}

static void memory_put(struct zone *zone, void *memory, size_t bytes) {
    if (bytes <= POOL_METADATA_BYTES_MAX)
        zone_metadata_free(zone, memory, bytes);
    else
        CHECK(zone_block_free(zone, memory));
}

void *pool_memory_get(struct pool *pool, size_t bytes) {
    void *memory = memory_get(pool->zone, bytes);
    if (memory != NULL) pool->metadata_bytes += bytes;
    return memory;
}

void pool_memory_put(struct pool *pool, void *memory, size_t bytes) {
    pool->metadata_bytes -= bytes;
    memory_put(pool->zone, memory, bytes);
}

/* A new chunk with room for `objects`, or as many as a run can hold. */
static struct pool_chunk *chunk_create(struct pool *pool, uint64_t objects) {
    struct zone_run run;
    uint64_t granules =
        align_up(min_u64(objects, CHUNK_GRANULES_MAX * GRANULE_BYTES / pool->object_bytes) * pool->object_bytes, GRANULE_BYTES) >> GRANULE_SHIFT;
    unsigned align = pool->alignment > GRANULE_BYTES ? (unsigned)(pool->alignment >> GRANULE_SHIFT) : 1;
    if (!zone_run_alloc(pool->zone, (unsigned)granules, align, MOBILITY_UNMOVABLE, &run)) return NULL;
    uint64_t granule = zone_granule_of(pool->zone, run.address);
    struct pool_chunk *chunk = pool_chunk_at(pool->zone, granule);
    *chunk = (struct pool_chunk){
        .pool = pool, .next = pool->chunk, .granules = run.granules, .capacity = (uint32_t)(run.granules * GRANULE_BYTES / pool->object_bytes)};
    zone_tag_run(pool->zone, run.address, run.granules, TAG_POOL);
    pool->chunk = granule;
    pool->memory_bytes += run.granules * GRANULE_BYTES;
    __atomic_fetch_add(&pool->layer->chunk_bytes, run.granules * GRANULE_BYTES, __ATOMIC_RELAXED);
    return chunk;
}

static void chunks_destroy(struct pool *pool) {
    __atomic_fetch_sub(&pool->layer->chunk_bytes, pool->memory_bytes, __ATOMIC_RELAXED);
    while (pool->chunk != POOL_NO_CHUNK) {
        struct pool_chunk *chunk = pool_chunk_at(pool->zone, pool->chunk);
        char *address = zone_address_of(pool->zone, pool->chunk);
        pool->chunk = chunk->next;
        zone_tag_run(pool->zone, address, chunk->granules, TAG_NONE);
        zone_run_free(pool->zone, address, chunk->granules);
    }
}

/* Up to `wanted` new objects in the global pool, within objects_max; returns how many. Fewer only where memory ends. Under the lock, or before the
 * pool is known. */
static uint64_t make_objects(struct pool *pool, uint64_t wanted) {
    uint64_t made = 0;
    wanted = min_u64(wanted, pool->objects_max - pool->objects);
    if (!pool_is_of_stacks(pool) && !rounds_reserve(pool, pool->objects + wanted)) {
        wanted = min_u64(wanted, pool->m_alpha); /* a growth beyond all measure must not stand in the way of the next transfer */
        if (!rounds_reserve(pool, pool->objects + wanted)) return 0;
    }
    while (made < wanted) {
        struct pool_chunk *chunk = pool->chunk != POOL_NO_CHUNK ? pool_chunk_at(pool->zone, pool->chunk) : NULL;
        if (chunk == NULL || chunk->made == chunk->capacity) chunk = chunk_create(pool, wanted - made);
        if (chunk == NULL) break;
        uint32_t count = (uint32_t)min_u64(wanted - made, chunk->capacity - chunk->made);
        char *first = zone_address_of(pool->zone, pool->chunk) + (size_t)chunk->made * pool->object_bytes;
        __atomic_store_n(&chunk->made, chunk->made + count, __ATOMIC_RELAXED);
        COUNTER_ADD(pool->objects, count);
        made += count;
        if (pool_is_of_stacks(pool))
            stacks_make(pool, first, count);
        else
            rounds_make(pool, first, count);
    }
    return made;
}

/* Whole transfers, so that the lists of the stacks need not be cut. */
static uint64_t growth(const struct pool *pool) {
    uint64_t usual = max_u64(GROWTH_BYTES_MIN / pool->object_bytes, pool->objects / GROWTH_SHARE);
    if (pool->objects_grow != 0) return min_u64(max_u64(pool->objects_grow, pool->m_alpha), PTRDIFF_MAX / pool->object_bytes);
    return (usual + pool->m_alpha - 1) / pool->m_alpha * pool->m_alpha;
}

/* ------------------------------------------------------------------ life */

static bool config_is_good(const struct pool_config *config) {
    size_t m_alpha = config->m_alpha != 0 ? config->m_alpha : config->m / 2;
    return config->name != NULL && config->object_bytes != 0 && config->object_bytes <= POOL_OBJECT_BYTES_MAX &&
           (config->alignment == 0 || is_power_of_two(config->alignment)) && config->alignment <= POOL_OBJECT_BYTES_MAX && config->m != 0 &&
           config->m <= POOL_M_MAX && config->m_alpha <= config->m && config->m_beta <= config->m &&
           (config->objects_max == 0 || (config->objects_max >= config->objects_start && config->objects_max >= m_alpha)) &&
           (config->flags & ~POOL_FLAGS) == 0;
}

static void pool_free_memory(struct pool *pool) {
    struct zone *zone = pool->zone;
    chunks_destroy(pool);
    if (pool->rounds != NULL) memory_put(zone, pool->rounds, pool->rounds_capacity * sizeof *pool->rounds);
    if (pool->lists != NULL) memory_put(zone, pool->lists, pool->lists_capacity * sizeof *pool->lists);
    memory_put(zone, pool, sizeof *pool);
}

enum pool_status pool_create(struct pool_layer *layer, const struct pool_config *config, struct pool **out) {
    if (!config_is_good(config)) return POOL_BAD_ARGUMENT;
    uint32_t half = config->m > 1 ? (uint32_t)config->m / 2 : 1;
    size_t alignment = config->alignment > NATURAL_ALIGN ? config->alignment : NATURAL_ALIGN;
    size_t object_bytes = align_up(config->object_bytes, alignment);
    if (config->objects_start > PTRDIFF_MAX / object_bytes) return POOL_NO_MEMORY;
    struct pool *pool = memory_get(layer->zone, sizeof *pool);
    if (pool == NULL) return POOL_NO_MEMORY;
    *pool = (struct pool){.lock = PLATFORM_LOCK_INIT(LOCK_RANK_DEPOT),
                          .layer = layer,
                          .zone = layer->zone,
                          .object_bytes = (uint32_t)object_bytes,
                          .alignment = (uint32_t)alignment,
                          .reciprocal = ((UINT64_C(1) << RECIPROCAL_SHIFT) + object_bytes - 1) / object_bytes,
                          .m = (uint32_t)config->m,
                          .m_alpha = config->m_alpha != 0 ? (uint32_t)config->m_alpha : half,
                          .m_beta = config->m_beta != 0 ? (uint32_t)config->m_beta : half,
                          .stacks = STRATA_POOL_KINDS == POOL_KIND_STACKS || (config->flags & POOL_STACKS) != 0,
                          .objects_max = config->objects_max != 0 ? config->objects_max : UINT64_MAX,
                          .objects_grow = config->objects_grow,
                          .chunk = POOL_NO_CHUNK,
                          .metadata_bytes = sizeof *pool};
    pool->backup = pool->m - pool->m_beta;
    format_text(pool->name, sizeof pool->name, "%s", config->name);
    list_init(&pool->link);
    list_init(&pool->locals);
    if ((pool_is_of_stacks(pool) && !stacks_init(pool)) || make_objects(pool, config->objects_start) < config->objects_start) {
        pool_free_memory(pool);
        return POOL_NO_MEMORY;
    }
    *out = pool;
    return POOL_OK;
}

enum pool_status pool_destroy(struct pool *pool, uint64_t *in_use) {
    struct pool_stats stats;
    pool_stats_get(pool, &stats);
    *in_use = stats.in_use;
    if (stats.in_use != 0 || stats.locals != 0) return POOL_BUSY;
    list_remove(&pool->link);
    pool->m = 0;
    pool_free_memory(pool);
    return POOL_OK;
}

static size_t local_bytes(const struct pool *pool) {
    return align_up(sizeof(struct pool_local) + (pool_is_of_stacks(pool) ? 0 : pool->m * sizeof(void *)), CACHE_LINE_BYTES);
}

struct pool_local *pool_local_create(struct pool *pool) {
    pool_lock(pool);
    struct pool_local *local = pool_memory_get(pool, local_bytes(pool));
    if (local != NULL) {
        *local = (struct pool_local){.pool = pool, .limit = pool_is_of_stacks(pool) ? 0 : pool->m};
        list_push_back(&pool->locals, &local->link);
        pool->locals_count++;
        pool->locals_max = max_u64(pool->locals_max, pool->locals_count);
    }
    platform_lock_release(&pool->lock);
    return local;
}

static void give(struct pool_local *local, uint32_t count) {
    if (pool_is_of_stacks(local->pool))
        stacks_give(local->pool, local, count);
    else
        rounds_give(local->pool, local, count);
}

/* What destroyed local pools belong to. Its zone is the only one there is. */
struct pool pool_gone;

void pool_local_destroy(struct pool_local *local) {
    struct pool *pool = local->pool;
    uint32_t objects = pool_local_objects(local);
    pool_lock(pool);
    if (objects != 0) give(local, objects);
    list_remove(&local->link);
    pool->locals_count--;
    pool->drains++;
    /* Every fast path finds nothing, and no object to be one of its pool. */
    __atomic_store_n(&pool_gone.zone, pool->zone, __ATOMIC_RELAXED);
    local->pool = &pool_gone;
    local->count = local->limit = local->stacked = 0;
    pool_memory_put(pool, local, local_bytes(pool));
    platform_lock_release(&pool->lock);
}

/* ------------------------------------------------------------------ the global accesses */

/* An empty local pool gets m_alpha objects, or what there is. False: there is none. */
static bool take_from_global(struct pool_local *local, bool *grew) {
    struct pool *pool = local->pool;
    pool_lock(pool);
    if (pool->global < pool->m_alpha) *grew = make_objects(pool, growth(pool)) != 0;
    uint32_t count = (uint32_t)min_u64(pool->m_alpha, pool->global);
    struct pool_accesses one = {.alpha = count != 0, .alpha_short = count != 0 && count < pool->m_alpha, .alpha_failures = count == 0};
    if (count != 0 && pool_is_of_stacks(pool))
        stacks_take(pool, local, count);
    else if (count != 0)
        rounds_take(pool, local, count);
    pool->growths += *grew;
    pool->accesses.alpha += one.alpha;
    pool->accesses.alpha_short += one.alpha_short;
    pool->accesses.alpha_failures += one.alpha_failures;
    platform_lock_release(&pool->lock);
    local->accesses.alpha += one.alpha;
    local->accesses.alpha_short += one.alpha_short;
    local->accesses.alpha_failures += one.alpha_failures;
    return count != 0;
}

static void give_to_global(struct pool_local *local) {
    struct pool *pool = local->pool;
    pool_lock(pool);
    give(local, pool->m_beta);
    pool->accesses.beta++;
    platform_lock_release(&pool->lock);
    local->accesses.beta++;
}

void *pool_alloc_slow(struct pool_local *local, bool *grew) {
    *grew = false;
    if (pool_local_objects(local) == 0 && !take_from_global(local, grew)) return NULL;
    return pool_is_of_stacks(local->pool) ? stacks_pop(local) : pool_pop(local);
}

void pool_free_slow(struct pool_local *local, void *object) {
    if (pool_local_objects(local) == local->pool->m) give_to_global(local);
    if (pool_is_of_stacks(local->pool))
        stacks_push(local, object);
    else
        CHECK(pool_push(local, object));
}

/* ------------------------------------------------------------------ fork */

/* Locks of one rank, in the order of the list. */
STRATA_COLD void pool_fork_prepare(struct pool_layer *layer) {
    LIST_FOR_EACH(&layer->pools, node) platform_lock_hold(&CONTAINER_OF(node, struct pool, link)->lock);
}
STRATA_COLD void pool_fork_done(struct pool_layer *layer) {
    LIST_FOR_EACH(&layer->pools, node) platform_lock_unhold(&CONTAINER_OF(node, struct pool, link)->lock);
}
