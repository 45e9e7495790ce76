/*
 * quantum.c - quantum caches (vmem, section 4.4.4) by object caches.
 *
 * A slab is a segment at a multiple of its size. An object is an integer plus the slab size (the bias), since no object may be NULL, and 0 is an
 * integer like any other; the one slab whose first object would be NULL then, at the very end of the integers, isn't used. Where there is no slab to
 * be had, a request is a segment of its own; while there are such, each free asks the slabs first whose it is, or the table, where there is one.
 *
 * No lock of its own; lists of arenas must not be locked while caches are emptied, as their slabs go back to the arena and through it to others.
 */
#include "api/quantum.h"

#include "api/heap.h"
#include "base/check.h"

/* ------------------------------------------------------------------ slabs are segments */

static bool slab_alloc(void *context, uint64_t bytes, uint64_t align, uintptr_t *start) {
    struct quantum_cache *quantum = context;
    uint64_t segment;
    if (arena_xalloc(quantum->arena, bytes, align, 0, 0, 0, 0, 0, &segment) != ARENA_OK) return false;
    *start = segment + quantum->slab_size;
    if (*start != 0 && (quantum->table == NULL || quantum_table_add(quantum->table, quantum, segment))) return true;
    CHECK(arena_xfree(quantum->arena, segment, bytes) == ARENA_OK);
    return false;
}
static void slab_free(void *context, uintptr_t start, uint64_t bytes) {
    const struct quantum_cache *quantum = context;
    uint64_t segment = start - quantum->slab_size;
    if (quantum->table != NULL) quantum_table_remove(quantum->table, segment);
    CHECK(arena_xfree(quantum->arena, segment, bytes) == ARENA_OK);
}
static const struct slab_source segments = {.alloc = slab_alloc, .free = slab_free};

/* ------------------------------------------------------------------ the operations */

static void *create(void *ctx, struct arena *arena, uint64_t object_size, uint64_t slab_size) {
    struct quantum_cache *quantum = zone_metadata_alloc(&heap.zone, sizeof *quantum);
    if (quantum == NULL) return NULL;
    *quantum = (struct quantum_cache){.arena = arena, .table = ctx, .size = object_size, .slab_size = slab_size};
    char name[OBJECT_NAME_BYTES];
    format_text(name, sizeof name, "%s-%llu", arena->name, (unsigned long long)object_size);
    const struct object_cache_config config = {.name = name,
                                               .bytes = object_size,
                                               .align = 1,
                                               .slab_bytes = slab_size,
                                               .source = &segments,
                                               .source_context = quantum,
                                               .free_function = "strata_arena_free",
                                               .integers = true,
                                               .bias = slab_size};
    if (object_cache_create(&heap.objects, &config, &quantum->cache) == OBJECT_CACHE_OK) {
        quantum->areas_at = quantum->cache->areas_at;
        quantum->index = quantum->cache->index;
        return quantum;
    }
    zone_metadata_free(&heap.zone, quantum, sizeof *quantum);
    return NULL;
}

static enum arena_status destroy(void *cache) {
    struct quantum_cache *quantum = cache;
    if (object_cache_empty(&heap.objects, quantum->cache) != 0 || __atomic_load_n(&quantum->alone, __ATOMIC_RELAXED) != 0) return ARENA_BUSY;
    CHECK(object_cache_destroy(&heap.objects, quantum->cache) == 0);
    zone_metadata_free(&heap.zone, quantum, sizeof *quantum);
    return ARENA_OK;
}

static enum arena_status alloc_once(struct quantum_cache *quantum, uint64_t *start) {
    void *object = object_cache_alloc(&heap.objects, quantum->cache);
    if (STRATA_LIKELY(object != NULL)) {
        *start = quantum->table != NULL ? quantum_given(quantum, object) : (uintptr_t)object - quantum->slab_size;
        return ARENA_OK;
    }
    enum arena_status status = arena_xalloc(quantum->arena, quantum->size, 0, 0, 0, 0, 0, 0, start);
    if (status == ARENA_OK && quantum->table == NULL) __atomic_fetch_add(&quantum->alone, 1, __ATOMIC_RELAXED);
    return status;
}

static enum arena_status alloc(void *cache, unsigned flags, uint64_t *start) {
    struct quantum_cache *quantum = cache;
    if (STRATA_UNLIKELY((flags & ~(unsigned)(ARENA_FIT_MASK | ARENA_SLEEP)) != 0 || (flags & ARENA_FIT_MASK) == ARENA_FIT_MASK))
        return ARENA_BAD_ARGUMENT;
    enum arena_status status = alloc_once(quantum, start);
    if (STRATA_LIKELY(status == ARENA_OK) || (flags & ARENA_SLEEP) == 0) return status;
    for (uint64_t interval = HEAP_DOZE_MIN_NS; status == ARENA_NO_SPACE || status == ARENA_NO_TAGS;) {
        interval = heap_doze(interval);
        status = alloc_once(quantum, start);
    }
    return status;
}

static enum arena_status free_one(void *cache, uint64_t start) {
    struct quantum_cache *quantum = cache;
    if (quantum->table != NULL) return quantum_free_verified(quantum->table, quantum->arena, start, quantum->size);
    void *object = (void *)(uintptr_t)(start + quantum->slab_size);
    if (STRATA_UNLIKELY(__atomic_load_n(&quantum->alone, __ATOMIC_RELAXED) != 0) &&
        object_slabs_look_up(&quantum->cache->slabs, object) == OBJECTS_FOREIGN) {
        enum arena_status status = arena_xfree(quantum->arena, start, quantum->size);
        if (status == ARENA_OK) __atomic_fetch_sub(&quantum->alone, 1, __ATOMIC_RELAXED);
        return status;
    }
    if (STRATA_UNLIKELY(object == NULL)) return ARENA_NOT_ALLOCATED;
    object_cache_free(quantum->cache, object);
    return ARENA_OK;
}

const struct arena_qcache_ops quantum_ops = {.create = create, .destroy = destroy, .alloc = alloc, .free = free_one};

uint64_t quantum_slabs_size(const struct arena *arena) {
    uint64_t size = 0;
    for (unsigned i = 0; i < ARENA_QCACHES_MAX; i++) {
        struct quantum_cache *quantum = arena->qcaches[i];
        if (quantum == NULL) continue;
        struct object_slabs_stats stats;
        object_slabs_stats_get(&quantum->cache->slabs, &stats);
        size += stats.memory_bytes;
    }
    return size;
}

bool quantum_is_slab(const struct arena *arena, uint64_t start) {
    for (unsigned i = 0; i < ARENA_QCACHES_MAX; i++) {
        struct quantum_cache *quantum = arena->qcaches[i];
        if (quantum == NULL || (start & (quantum->slab_size - 1)) != 0) continue;
        if (object_slabs_look_up(&quantum->cache->slabs, (void *)(uintptr_t)(start + quantum->slab_size)) != OBJECTS_FOREIGN) return true;
    }
    return false;
}
