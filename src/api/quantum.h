/*
 * quantum.h - the quantum caches of arenas: object caches whose objects are integers and whose slabs are segments. Private to api/.
 */
#ifndef STRATA_API_QUANTUM_H
#define STRATA_API_QUANTUM_H

#include "arena/arena.h"
#include "base/base.h"
#include "platform/cpu_ops.h"

struct object_cache;

/* One size of one arena. Immutable, but for `alone`. */
struct quantum_cache {
    char *areas_at; /* these two as in `cache`: all that the ways below need of it */
    unsigned index;
    struct object_cache *cache;
    struct arena *arena;
    uint64_t size, slab_size;
    uint64_t alone; /* segments that are allocated and not from a slab; atomic */
};

/*
 * The ways that most requests take, whose callers spare them the tables that the rest goes through: an integer out of the array of this CPU, or
 * into it. False: nothing has happened, arena_alloc or arena_free has to find out about the request. Constant time, no lock.
 */
STRATA_INLINE struct quantum_cache *quantum_cache_of(const struct arena *arena, uint64_t size) {
    return STRATA_LIKELY(size - 1 < arena->qcache_max) ? arena->qcaches[(size - 1) >> arena->quantum_shift] : NULL;
}
STRATA_INLINE bool quantum_alloc(const struct arena *arena, uint64_t size, uint64_t *start) {
    struct quantum_cache *quantum = quantum_cache_of(arena, size);
    void *object;
    if (STRATA_UNLIKELY(quantum == NULL || (object = cpu_pop_in(&quantum->areas_at, quantum->index)) == NULL)) return false;
    *start = (uintptr_t)object - quantum->slab_size;
    return true;
}
STRATA_INLINE bool quantum_free(const struct arena *arena, uint64_t start, uint64_t size) {
    struct quantum_cache *quantum = quantum_cache_of(arena, size);
    if (STRATA_UNLIKELY(quantum == NULL || __atomic_load_n(&quantum->alone, __ATOMIC_RELAXED) != 0)) return false;
    void *object = (void *)(uintptr_t)(start + quantum->slab_size);
    return STRATA_LIKELY(object != NULL) && cpu_push_in(&quantum->areas_at, quantum->index, object);
}

extern const struct arena_qcache_ops quantum_ops; /* its context is not used */
/* How many integers the slabs of all quantum caches of an arena hold. */
uint64_t quantum_slabs_size(const struct arena *arena);

#endif
