/*
 * quantum.h - the quantum caches of arenas: object caches whose objects are integers and whose slabs are segments. Private to api/.
 *
 * Where an arena verifies frees, each quantum of a slab has a *cell*, eight bytes that hold the integer while the program has it, and its complement
 * while it hasn't. A table by where slabs begin leads from an integer to its cell, so that a free knows at once whether the integer was allocated
 * here, and with which size. The cell is beside the way of the integer, not on it: what comes out of an array goes back into one without waiting for
 * it.
 */
#ifndef STRATA_API_QUANTUM_H
#define STRATA_API_QUANTUM_H

#include "arena/arena.h"
#include "base/base.h"
#include "cache/object_cache.h"
#include "platform/cpu_ops.h"

/* One size of one arena. Immutable, but for `alone`. */
struct quantum_cache {
    char *areas_at; /* these two as in `cache`: all that the ways below need of it */
    unsigned index;
    struct object_cache *cache;
    struct arena *arena;
    struct quantum_table *table; /* NULL: frees are believed, and checked when they reach a slab */
    uint64_t size, slab_size;
    uint64_t alone; /* without a table: segments that are allocated and not from a slab; atomic */
};

/* A slab of the table's bucket: the one that was asked for last. Without a lock; what it says is believed only where the cell agrees. Atomic. */
struct quantum_slot {
    uint64_t *cells;
    struct quantum_cache *quantum;
};
struct quantum_slots {
    uint64_t mask;
    struct quantum_slots *previous; /* half as many; stays, as somebody may be reading it */
    struct quantum_slab **chains;   /* all slabs by bucket, under the lock */
    struct quantum_slot slot[];
};

/*
 * Of an arena. A slab is known here from before its first object is handed out until after the last has come back. Cells stay cells until the arena
 * is destroyed, so that a wrong free which meets a slab on its way out reads cells, and not others' memory.
 * Lock: LOCK_RANK_SLAB; the zone's metadata are allocated under it.
 */
struct quantum_table {
    struct quantum_slots *slots; /* atomic; NULL: there are no quantum caches */
    uint64_t slab_mask;          /* these three are immutable once there are */
    unsigned slab_shift, quantum_shift;
    struct platform_lock lock;
    struct quantum_slab *spare;
    uint64_t slabs;
};
void quantum_table_init(struct quantum_table *table);
/* For slabs of so many integers. False: no memory. drop: nobody uses the arena any more, and it has no slabs. */
bool quantum_table_start(struct quantum_table *table, uint64_t quantum, uint64_t slab_size);
void quantum_table_drop(struct quantum_table *table);

/*
 * The ways that most requests take, whose callers spare them the tables that the rest goes through: an integer out of the array of this CPU, or
 * into it. False: nothing has happened, arena_alloc or arena_free has to find out about the request. `max`: the largest size that goes this way, 0
 * where frees are verified. Constant time, no lock.
 */
STRATA_INLINE struct quantum_cache *quantum_cache_of(const struct arena *arena, uint64_t max, uint64_t size) {
    return STRATA_LIKELY(size - 1 < max) ? arena->qcaches[(size - 1) >> arena->quantum_shift] : NULL;
}
STRATA_INLINE bool quantum_alloc(const struct arena *arena, uint64_t max, uint64_t size, uint64_t *start) {
    struct quantum_cache *quantum = quantum_cache_of(arena, max, size);
    void *object;
    if (STRATA_UNLIKELY(quantum == NULL || (object = cpu_pop_in(&quantum->areas_at, quantum->index)) == NULL)) return false;
    *start = (uintptr_t)object - quantum->slab_size;
    return true;
}
STRATA_INLINE bool quantum_free(const struct arena *arena, uint64_t max, uint64_t start, uint64_t size) {
    struct quantum_cache *quantum = quantum_cache_of(arena, max, size);
    if (STRATA_UNLIKELY(quantum == NULL || __atomic_load_n(&quantum->alone, __ATOMIC_RELAXED) != 0)) return false;
    void *object = (void *)(uintptr_t)(start + quantum->slab_size);
    return STRATA_LIKELY(object != NULL) && cpu_push_in(&quantum->areas_at, quantum->index, object);
}

/* The same where frees are verified. given: an object that has just come out of its cache is noted; which integer it is. */
uint64_t quantum_given(struct quantum_cache *quantum, const void *object);
enum arena_status quantum_free_verified(struct quantum_table *table, struct arena *arena, uint64_t start, uint64_t size);

extern const struct arena_qcache_ops quantum_ops; /* its context is the table, or NULL */
/* Whether a slab of a quantum cache begins at this integer: the program can't have got it as a segment. */
bool quantum_is_slab(const struct arena *arena, uint64_t start);
/* How many integers the slabs of all quantum caches of an arena hold. */
uint64_t quantum_slabs_size(const struct arena *arena);

/* quantum_table.c, for quantum.c: a slab comes (false: no memory) and goes. */
bool quantum_table_add(struct quantum_table *table, struct quantum_cache *quantum, uint64_t start);
void quantum_table_remove(struct quantum_table *table, uint64_t start);

#endif
