/*
 * pool.h - fixed pools: objects of one size, local pools of at most m of them, a global pool with a lock. Part of the facade of cache/: cache.h
 * includes it.
 *
 * The mechanism is that of Vee and Hsu (VH). A local pool serves its owner without a lock. An allocation that finds it empty takes m_alpha objects
 * from the global pool, a free that finds it full gives m_beta there: the only global accesses, counted exactly. After one, the local pool holds
 * m_alpha - 1 or m - m_beta + 1 objects, so that the next can't come before min(m_alpha, m_beta, m - m_alpha, m - m_beta) requests (Lemma 2.4), and P
 * local pools make no more than S / that + P global accesses in S requests (Theorem 2.3), however the program behaves.
 *
 * The CPU layer of cache.h follows the same rule; there m adapts, arrays are drained from outside and belong to CPUs. Here nothing but the
 * program moves an object, so that the bound holds for the whole life of a pool, and experiments can set all three numbers.
 *
 * Two kinds of local pools, with the same numbers of objects at any time and so the same global accesses:
 *   - rounds (usual): an array of m pointers, as in the CPU layer. The global pool is one array in which lists of objects lie end to end; a transfer
 * copies pointers under the lock. Nothing of ours is in free objects.
 *   - stacks (POOL_STACKS): VH, section 3. Backup and Active stack, linked through the first word of free objects; the global pool is an array of
 * such lists, and a transfer moves one pointer where m_alpha = m_beta = m / 2. The array of rounds is closed (limit 0): it looks empty to an
 *     allocation and full to a free, which sends both to the slow path. So the fast path of the usual kind doesn't ask for the kind.
 *
 * Memory comes in runs of granules with the tag TAG_POOL, called chunks, and stays until the pool is destroyed. The descriptor of a chunk's first
 * granule names the pool, so that an object that is freed can be told from anything else by its address.
 *
 * Invariant (pool_check): objects made = in the global pool + in local pools + in use; no object is free twice.
 * Lock: one a pool, LOCK_RANK_DEPOT, as it is to its local pools what a depot is to CPU arrays; the zone's come after it. A local pool belongs to one
 * thread at a time; others read its number of objects.
 */
#ifndef STRATA_CACHE_POOL_H
#define STRATA_CACHE_POOL_H

#include "base/base.h"
#include "base/list.h"
#include "page/page.h"
#include "platform/platform.h"

#define POOL_OBJECT_BYTES_MAX (64 * KIB)
#define POOL_M_MAX (64 * KIB)
#define POOL_NAME_BYTES 32
#define POOL_STACKS 1u

/*
 * Which kinds of local pools there are, by STRATA_POOL_VARIANT of CMake: where it is one, pools are of that kind, and nothing asks for it at run
 * time. POOL_FLAGS: those that pool_create takes. Where there are only stacks, a pool is of these also without the flag.
 */
#define POOL_KIND_ROUNDS 1
#define POOL_KIND_STACKS 2
#ifndef STRATA_POOL_KINDS
#define STRATA_POOL_KINDS (POOL_KIND_ROUNDS | POOL_KIND_STACKS)
#endif
#define POOL_FLAGS ((STRATA_POOL_KINDS & POOL_KIND_STACKS) != 0 ? POOL_STACKS : 0)

enum pool_status { POOL_OK = 0, POOL_NO_MEMORY, POOL_BAD_ARGUMENT, POOL_FOREIGN, POOL_BUSY };

/* All pools of a heap. */
struct pool_layer {
    struct zone *zone;    /* immutable */
    struct list pools;    /* by link; guarded by a lock of whoever creates and destroys pools */
    uint64_t chunk_bytes; /* memory of the chunks of all pools; atomic */
};

struct pool_config {
    const char *name;       /* cut to fit */
    size_t object_bytes;    /* 1..POOL_OBJECT_BYTES_MAX */
    size_t alignment;       /* a power of two up to POOL_OBJECT_BYTES_MAX; 0: 16 */
    size_t m;               /* 1..POOL_M_MAX */
    size_t m_alpha, m_beta; /* 1..m; 0: m/2, at least 1 */
    size_t objects_start;   /* made at once */
    size_t objects_max;     /* 0: no limit; else at least m_alpha and objects_start */
    size_t objects_grow;    /* made at a time; 0: more as the pool grows */
    unsigned flags;         /* POOL_STACKS */
};

/* Counts of the accesses to the global pool, by what for. */
struct pool_accesses {
    uint64_t alpha, alpha_short, alpha_failures; /* with objects; of these, with fewer than m_alpha; without any */
    uint64_t beta;
};

/* A list of the stacks: linked through its objects, `count` long; what the last one's link holds is undefined. */
struct pool_list {
    void *head;
    uint64_t count;
};

/* First what every free reads and nobody writes; what changes under the lock has cache lines of its own. */
struct pool {
    struct pool_layer *layer; /* immutable, down to the name */
    struct zone *zone;
    uint32_t object_bytes;
    uint32_t alignment;
    uint64_t reciprocal; /* ceil(2^40 / object_bytes): a division by one multiplication */
    uint32_t m, m_alpha, m_beta;
    uint32_t backup;                    /* stacks: capacity of the Backup stack; the Active stack has the other m_beta */
    bool stacks;                        /* see pool_is_of_stacks */
    uint64_t objects_max, objects_grow; /* UINT64_MAX: no limit; 0: by size */
    char name[POOL_NAME_BYTES];

    struct platform_lock lock STRATA_ALIGNED(CACHE_LINE_BYTES);
    struct list link; /* in layer->pools, and guarded as it is */

    /* Guarded by the lock from here on. */
    uint64_t objects; /* made; read without the lock */
    uint64_t global;  /* of these, in the global pool */
    void **rounds;    /* rounds: the global pool; has room for every object of the pool, so that a free never needs memory */
    uint64_t rounds_capacity;
    struct pool_list *lists; /* stacks: the global pool */
    uint64_t lists_count, lists_capacity;
    struct list locals;
    uint64_t locals_count, locals_max;
    uint64_t chunk; /* the first granule of the newest chunk, the only one that may hold objects not made yet; POOL_NO_CHUNK */
    uint64_t memory_bytes, metadata_bytes;
    struct pool_accesses accesses;
    uint64_t drains, contention, growths;
};
#define POOL_NO_CHUNK UINT64_MAX

/* One a local pool; written by its owner only. */
struct pool_local {
    void *unused;      /* once it is destroyed, memory that waits has a link here; the rest stays for a while, see pool_local_is_gone */
    uint32_t count;    /* of rounds; atomic for those who read it */
    uint32_t limit;    /* m; 0: closed, as all objects are in the stacks */
    struct pool *pool; /* immutable; &pool_gone: it was destroyed */
    uint32_t stacked;  /* in both stacks; atomic likewise. Up to pool->backup of them are in Backup, and only what is more is in Active */
    void *active_head, *backup_head;
    struct pool_accesses accesses;
    struct list link; /* guarded by the pool's lock */
    void *rounds[];
};

/* Inline, as every process does it, and few need the rest: see cmake/layout.ld. */
STRATA_INLINE void pool_layer_init(struct pool_layer *layer, struct zone *zone) {
    *layer = (struct pool_layer){.zone = zone};
    list_init(&layer->pools);
}

/* POOL_NO_MEMORY, POOL_BAD_ARGUMENT: nothing was made. Takes zone memory for the pool itself, and for objects_start objects. It is in no list yet. */
enum pool_status pool_create(struct pool_layer *layer, const struct pool_config *config, struct pool **pool);
/* POOL_BUSY where objects are in use (*in_use) or local pools exist: all is as before. Takes the pool off its list. */
enum pool_status pool_destroy(struct pool *pool, uint64_t *in_use);
/* Whether they were destroyed, as long as their memory is nobody else's. */
extern struct pool pool_gone;
STRATA_INLINE bool pool_is_gone(const struct pool *pool) { return pool->m == 0; }
STRATA_INLINE bool pool_local_is_gone(const struct pool_local *local) { return local->pool == &pool_gone; }
/* NULL: no memory. */
struct pool_local *pool_local_create(struct pool *pool);
void pool_local_destroy(struct pool_local *local);

/* What the fast paths below can't serve. NULL: no object, neither here nor in the global pool nor in the zone. *grew: new objects were made. */
void *pool_alloc_slow(struct pool_local *local, bool *grew);
void pool_free_slow(struct pool_local *local, void *object);

STRATA_INLINE bool pool_is_of_stacks(const struct pool *pool) {
    if (STRATA_POOL_KINDS == POOL_KIND_ROUNDS) return false;
    return STRATA_POOL_KINDS == POOL_KIND_STACKS || pool->stacks;
}

/* The object that follows in a list. */
STRATA_INLINE void *stacks_next(const void *object) { return *(void *const *)object; }
/* By the owner, without a lock: of a local pool that holds objects; to one that is not full. */
STRATA_INLINE void *stacks_pop(struct pool_local *local) {
    void **head = local->stacked > local->pool->backup ? &local->active_head : &local->backup_head;
    void *object = *head;
    *head = stacks_next(object);
    __atomic_store_n(&local->stacked, local->stacked - 1, __ATOMIC_RELAXED);
    return object;
}
STRATA_INLINE void stacks_push(struct pool_local *local, void *object) {
    void **head = local->stacked >= local->pool->backup ? &local->active_head : &local->backup_head;
    *(void **)object = *head;
    *head = object;
    __atomic_store_n(&local->stacked, local->stacked + 1, __ATOMIC_RELAXED);
}

/* An object from the rounds, or from the stacks where there is nothing else; NULL: there is none, ask pool_alloc_slow. */
STRATA_INLINE void *pool_pop(struct pool_local *local) {
    if (STRATA_POOL_KINDS == POOL_KIND_STACKS) return STRATA_LIKELY(local->stacked != 0) ? stacks_pop(local) : NULL;
    uint32_t count = local->count;
    if (STRATA_UNLIKELY(count == 0)) return NULL;
    void *object = local->rounds[count - 1];
    __atomic_store_n(&local->count, count - 1, __ATOMIC_RELAXED);
    return object;
}
/* False: no room, ask pool_free_slow. The object is one of the pool: see pool_owns. */
STRATA_INLINE bool pool_push(struct pool_local *local, void *object) {
    if (STRATA_POOL_KINDS == POOL_KIND_STACKS) {
        if (STRATA_UNLIKELY(local->stacked == local->pool->m)) return false;
        stacks_push(local, object);
        return true;
    }
    uint32_t count = local->count;
    if (STRATA_UNLIKELY(count >= local->limit)) return false;
    local->rounds[count] = object;
    __atomic_store_n(&local->count, count + 1, __ATOMIC_RELAXED);
    return true;
}

/* The descriptor of a chunk's first granule; of the marks, every granule of a chunk has its own. */
struct pool_chunk {
    struct pool *pool;
    uint64_t next;     /* the first granule of the chunk that is one older; POOL_NO_CHUNK */
    uint32_t granules; /* immutable */
    uint32_t capacity; /* objects that have room, immutable */
    uint32_t made;     /* the first so many have been made; atomic */
    uint32_t spare;
    uint64_t marks[4]; /* pool_check: bit o: the object that starts 16 * o bytes into this granule has been met */
};
_Static_assert(sizeof(struct pool_chunk) == sizeof(struct granule_desc), "a chunk is described by the words of its granules");

STRATA_INLINE struct pool_chunk *pool_chunk_at(const struct zone *zone, uint64_t granule) {
    return (struct pool_chunk *)(void *)&zone->descs[granule];
}

/*
 * Whether the address is the start of an object of the pool, be it free or not. Three loads and a multiplication. What other threads make
 * at the same time need not be seen: an object reaches the caller by way of a lock, and what describes it comes along.
 */
STRATA_INLINE bool pool_owns(const struct pool *pool, const void *object) {
    const struct zone *zone = pool->zone;
    if (STRATA_UNLIKELY(!zone_contains(zone, object))) return false;
    size_t granule = zone_granule_of(zone, object);
    granule_tag tag = zone->tags[granule];
    if (STRATA_UNLIKELY((tag & 0xff) != TAG_POOL)) return false;
    granule -= tag >> 8;
    const struct pool_chunk *chunk = pool_chunk_at(zone, granule);
    uint64_t offset = (uint64_t)((const char *)object - zone_address_of(zone, granule));
    uint64_t index = offset * pool->reciprocal >> 40;
    return chunk->pool == pool && index * pool->object_bytes == offset && index < __atomic_load_n(&chunk->made, __ATOMIC_RELAXED);
}

/* No more objects will be made, whatever memory there is. */
STRATA_INLINE bool pool_is_full_size(const struct pool *pool) { return __atomic_load_n(&pool->objects, __ATOMIC_RELAXED) >= pool->objects_max; }
/* phi_min + 1 of Lemma 2.4: so many requests at least from one global access to the next; 0: the lemma says nothing. */
STRATA_INLINE uint32_t pool_requests_apart(uint32_t m, uint32_t m_alpha, uint32_t m_beta) {
    uint64_t transfer = min_u64(m_alpha, m_beta), rest = m - max_u64(m_alpha, m_beta);
    return (uint32_t)min_u64(transfer, rest);
}

struct pool_stats {
    struct pool_accesses accesses;
    uint64_t drains, contention, growths;
    uint64_t locals, locals_max;
    uint64_t objects, in_use, global, local; /* `in_use` and `local` are exact while no other thread uses the pool */
    uint64_t memory_bytes, metadata_bytes;
};
void pool_stats_get(struct pool *pool, struct pool_stats *stats);
/* NULL when the invariants hold, else which one does not. No other thread may use the pool or its local pools meanwhile. */
const char *pool_check(struct pool *pool);

/* Around fork, with the list of pools held still: every lock is held from prepare to done, which parent and child both call. */
void pool_fork_prepare(struct pool_layer *layer);
void pool_fork_done(struct pool_layer *layer);

#endif
