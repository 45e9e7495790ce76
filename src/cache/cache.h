/*
 * cache.h - the facade of cache/: the CPU layer and the depot over the slabs.
 *
 * The CPU layer is one array of at most `rounds` (m) objects a CPU and cache, popped and pushed by the sequences of
 * platform/cpu_ops.h without lock or atomic instruction. A miss moves m/2 rounds: from the depot's magazines, else from
 * slabs; an overflow moves m/2 the other way. Half the capacity is the transfer size with the lowest bound on global
 * accesses, one in m/2 operations (VH, Theorem 2.5), and what the magazine layer's pair of magazines gives (magazines
 * paper, 3.1).
 *
 * The depot keeps magazines of m/2 rounds, full ones and empty ones; its lock is tried first and contention counted, and
 * a contended cache gets larger arrays (3.4), as do those whose arrays are empty often and whose objects come and go (depot_rounds.c). What the depot
 * did not need during an interval goes back to the slabs (3.7). Lists of other sizes, as idle CPUs and migrations leave them, are regrouped into
 * magazines of m/2 (kmem paper, 3.3.2).
 *
 * Modes: a header of zeros, or a closed one, is empty and full at once; with magazine_max 0 headers are never opened, and
 * every operation reaches the slab layer.
 *
 * Fixed pools, which share nothing with all this but the rule of the transfers, are in pool.h, a part of this facade.
 *
 * Locks: one a depot and one a shelf (LOCK_RANK_DEPOT; shelf.c: where threads work for themselves, each CPU's magazines); LOCK_RANK_DRAIN for the one
 * drain of other CPUs' arrays at a time.
 */
#ifndef STRATA_CACHE_CACHE_H
#define STRATA_CACHE_CACHE_H

#include "cache/pool.h"
#include "platform/cpu_ops.h"
#include "slab/slab.h"

#define CACHE_ROUNDS_MAX 256
#define CACHE_TRANSFER_MAX (CACHE_ROUNDS_MAX / 2)
/* Thread mode: this many threads can have a cache at once, fewer under a limit on address space; others go without. */
#define CACHE_THREADS_MAX 16384
/* What there is to know of so many areas is in the layer itself, as on most machines of all CPUs: zeros, where no page is until they are written to.
 */
#define CACHE_AREAS_FEW 256

struct magazine {
    struct magazine *next;
    uint32_t count;
    uint16_t home; /* whose rounds they are: slab.h; 0: anyone's */
    uint16_t kind; /* which magazine cache it comes from: SLAB_CACHE_MAGAZINES + kind */
    void *rounds[];
};
/* How many rounds have room in one of a kind. */
#define MAGAZINE_ROUNDS(kind) (4u << (kind))

/* Under the lock of its owner. */
struct magazine_list {
    struct magazine *first;
    uint32_t count; /* of full ones also read without the lock */
    uint32_t low;   /* the fewest since the last tick: so many were not needed */
};

/*
 * Where rounds come from, and where those go that the layer has no need of. alloc and free are called with no lock held. alloc returns how many of
 * `count` there are, the one to be used first last, as in an array, for the CPU `home`, apart from what others use where that is asked for; home
 * whose an object is (NULL: no object is anyone's); sort brings those of one home to the front, and returns how many they are; total how many objects
 * the cache has, in use or not: a look without a lock, as it may be called under a depot's.
 */
struct cache_backend {
    unsigned (*alloc)(void *context, unsigned cache, unsigned home, bool apart, void **objects, unsigned count);
    void (*free)(void *context, unsigned cache, void *const *objects, unsigned count);
    unsigned (*home)(void *context, unsigned cache, const void *object);
    unsigned (*sort)(void *context, unsigned cache, unsigned home, void **objects, unsigned count);
    uint64_t (*total)(void *context, unsigned cache);
};

/* How many shelves a depot has: of one CPU each, or of as many as share a number modulo these. */
#define DEPOT_HOMES 8

/* See shelf.c. Guarded by its lock. */
struct shelf {
    struct platform_lock lock;
    struct magazine_list full, empty;
    uint32_t visitor;           /* which thread came last; 0: none yet */
    uint32_t visits, contended; /* since the last tick */
    uint32_t misses;            /* magazines taken, likewise */
    bool changed_hands;         /* another thread than before has come since then */
    bool used;                  /* full magazines have come since the last tick that found none: it has a share; also read without the lock */
    uint8_t trust, trusted;     /* so many looks in a row may do without sorting; and have, since rounds were sorted last: home.c; atomic */
    uint64_t allocs, frees;     /* as in the depot */
} STRATA_ALIGNED(CACHE_LINE_BYTES);

/*
 * What may wait in a depot. Of integers a small share at any time: what waits can't go back to its arena, and comes to life at no cost. Of others all
 * where objects come and go in bursts: until then the slabs have them, who use memory better. Objects that were constructed all wait, until nobody
 * needed them for an interval or memory is wanted: the construction is what their cache is for (magazines paper, 3.2).
 */
enum depot_keeps { DEPOT_KEEPS_BURSTS, DEPOT_KEEPS_FEW, DEPOT_KEEPS_ALL };

/*
 * One a cache. Guarded by lock where nothing else is said. Three cache lines: what every visit looks at, which overflows and refills mostly leave as
 * it is, so that CPUs that visit shelves alone don't wait for each other; the lists; and the rest.
 */
struct depot {
    uint32_t full_max;     /* beyond this, full magazines go to the slabs; also read without the lock */
    uint32_t object_bytes; /* immutable */
    uint16_t rounds;       /* m: read without the lock */
    uint16_t rounds_start; /* where m begins, and returns to (depot_rounds.c); immutable, as is the next */
    uint16_t rounds_max;   /* 0: the cache has no arrays, every object comes from the backend and goes there */
    uint16_t kind;         /* magazines of m/2 rounds come from this magazine cache */
    uint8_t keeps;         /* enum depot_keeps; immutable */
    bool cycles;           /* objects went past it to the slabs and came back, many of them: so more may wait here */

    /* What may be written without the lock is apart, as the compiler reads flags above together, with what lies between them. */
    uint16_t bottom STRATA_ALIGNED(8); /* the first slot in every CPU area; 0 until one of the arrays is opened, immutable from then on */
    uint8_t passed;                    /* how often others' rounds were met of late: home.c; atomic */
    bool shelved;                      /* there are shelves; atomic, written under the lock, once */
    bool shared;                       /* more than one thread visits; atomic, written under the lock */
    bool leaving;                      /* the cache is being destroyed: whoever drains areas leaves it alone; atomic */
    uint8_t shut;                      /* every operation shall reach the backend: no array is opened; atomic, changed under the drain lock */
    uint32_t shelves_used;             /* how many have a share; atomic. Here, as who looks whether its own has room asks for it */
    uint32_t giving; /* drains that have taken rounds out of an area and not brought them home yet; atomic, a futex, under the drain lock */

    struct platform_lock lock STRATA_ALIGNED(CACHE_LINE_BYTES);
    uint32_t visitor; /* which thread came last; 0: none yet */
    struct magazine_list empty;
    struct magazine_list full;    /* those that are anyone's; the count also read without the lock */
    uint64_t visits, visits_seen; /* at the last tick */

    uint64_t allocs, frees;  /* objects handed to and taken from the CPU layer */
    uint64_t contention;     /* since the start */
    struct magazine *bucket; /* what odd-sized lists are regrouped in; NULL: nothing */
    uint32_t shelf_visits;   /* of shelves, between the last two ticks */
    uint32_t went_past;      /* to the slabs, for want of room here; atomic, a rule of thumb */
    uint32_t came_back;      /* of these, since the last tick */
    uint32_t contended;      /* since the last tick, as the next one */
    uint32_t misses;         /* arrays found empty, but for those that a shelf filled */
    uint32_t ticks_idle;
    bool bucket_touched; /* since the last tick */
    bool changed_hands;  /* another thread than before has visited since the last tick */
    bool contends;       /* contention has doubled m, which is no reason to halve it for the others' sake */
    uint8_t reaps;       /* of the bytes that must have come back the power of two: reaps have ended it */
};
_Static_assert(sizeof(struct depot) == 3 * CACHE_LINE_BYTES, "as it says");

/*
 * The caches first..end-1 with their areas. The first layer is malloc's, over the slabs; later ones are for object caches, whatever they cache.
 * In thread mode all share the ids of the first.
 */
struct cache_layer {
    struct slab_layer *slabs; /* magazines come from here, whatever the backend is */
    const struct cache_backend *backend;
    void *backend_context;
    struct cache_layer *main; /* the first layer */
    struct cache_layer *next; /* of a list that begins with the first layer; atomic, as layers are added and never removed */
    char *areas_at;           /* the area of CPU (or thread) 0 */
    unsigned first, end;
    unsigned areas; /* how many CPU areas the address space has */
    bool thread_mode;
    bool closed; /* magazine_max 0: no CPU layer */
    struct depot depots[SLAB_CACHE_MAGAZINES];
    struct platform_lock drain_lock;
    uint64_t *used;                 /* bit a: area a has open headers; atomic */
    uint64_t *digests;              /* per area: its tops at the last tick; guarded by drain_lock; thread mode: NULL, as they are in the areas */
    uint32_t *spare_ids;            /* thread mode: ids to give out; guarded by drain_lock */
    uint64_t *taken;                /* likewise; bit i: a thread has id i; atomic */
    uint32_t spare_count, ids_made; /* also read without the lock */
    uint32_t next_tick;             /* thread mode: the id whose area the next tick looks at first; guarded by drain_lock */
    uint64_t drains;
    uint64_t grown_bytes; /* what an area's arrays may have in addition to what they begin with; atomic, as is the next */
    uint32_t areas_used;  /* how many areas have ever had arrays */
    uint32_t next_slot; /* of every CPU area: caches get their slots as they come into use, so that few pages hold those of a small program; atomic */
    uint64_t used_few[CACHE_AREAS_FEW / 64], digests_few[CACHE_AREAS_FEW];
};

/* The composition root passes the cap on m (0..256). False: no memory for the CPU areas. */
bool cache_init(struct cache_layer *caches, struct slab_layer *slabs, unsigned magazine_max);

/* The sizes of the magazine caches: slab_init wants them. */
extern const uint32_t cache_magazine_bytes[SLAB_MAGAZINE_CACHES];

/* The ways round when the CPU layer can't serve. NULL: no memory. */
void *cache_alloc_slow(struct cache_layer *caches, unsigned cache);
void cache_free_slow(struct cache_layer *caches, unsigned cache, void *object);

/* An object of a cache; NULL: no memory. Constant time; no lock in m/2 - 1 of m/2 calls. */
STRATA_INLINE void *cache_alloc(struct cache_layer *caches, unsigned cache) {
    void *object = cpu_pop(cache);
    return STRATA_LIKELY(object != NULL) ? object : cache_alloc_slow(caches, cache);
}
STRATA_INLINE void cache_free(struct cache_layer *caches, unsigned cache, void *object) {
    if (STRATA_UNLIKELY(!cpu_push(cache, object))) cache_free_slow(caches, cache, object);
}

/*
 * Many objects of a cache at once, in groups of half an array and more. alloc returns how many there are: fewer only where memory ends. Constant time
 * an object, and a lock for each group.
 */
unsigned cache_alloc_batch(struct cache_layer *caches, unsigned cache, void **objects, unsigned count);
void cache_free_batch(struct cache_layer *caches, unsigned cache, void *const *objects, unsigned count);

/*
 * For a mode that must see each operation of a cache: all its arrays are closed and stay so, and what was cached goes back to the backend (with
 * per-thread caches: what other threads have, when they next come by or end). open: ends that. One caller at a time for a cache; nobody destroys it
 * meanwhile. False: it stays where it was, as there is no fence; with per-CPU arrays its owners can't come to it then either.
 */
bool cache_shut(struct cache_layer *caches, unsigned cache);
void cache_open(struct cache_layer *caches, unsigned cache);

/* Periodic: adapts m, gives what depots did not need back to slabs, and drains CPUs that did nothing since the last tick. */
void cache_tick(struct cache_layer *caches);
/* Before the heap grows: all depots and the caller's own CPU arrays back to the slabs. Takes no fence. */
void cache_reap(struct cache_layer *caches);
/*
 * Everything back to the slabs: all CPU arrays, all depots. In thread mode but for the arrays of threads that stay in the middle of an operation
 * (stopped, or in a signal handler there) for some 20 ms, and those of all other threads where the system has no fence (platform_fence_threads).
 */
void cache_drain(struct cache_layer *caches);

struct cache_stats {
    uint64_t cached; /* objects in CPU arrays and depot */
    uint64_t depot_allocs, depot_frees, contention, rounds, depot_magazines;
};
void cache_stats_get(struct cache_layer *caches, unsigned cache, struct cache_stats *stats);
/* Address space and pages of the CPU areas count as metadata. */
uint64_t cache_area_bytes(const struct cache_layer *caches);
/* Invariants of depots and headers; exact only while no other thread allocates. NULL when all hold. */
const char *cache_check(struct cache_layer *caches);

void cache_fork_prepare(struct cache_layer *caches);
void cache_fork_parent(struct cache_layer *caches);
void cache_fork_child(struct cache_layer *caches);
/* In the child, once the locks of all layers are free again: ids of threads that are gone are free. What they had cached stays where it is. */
void cache_fork_child_settle(struct cache_layer *caches);
/*
 * Thread mode: the thread with this id has ended; platform_on_thread_exit's callback calls it, for the first layer last, as the id is free again
 * from then on.
 */
void cache_thread_exit(struct cache_layer *caches, uint32_t id);

#endif
