/*
 * object_cache.h - the second facade of cache/: object caches, on the CPU layer and depot that malloc's caches stand on.
 *
 * An object is constructed on its way from the slab to the caches above, and destructed on its way back (magazines paper, 3.2): what the
 * program frees it gets again as it left it. The caches live in layers of OBJECT_LAYER_CACHES, each a cache_layer with areas of its own; layers are
 * made as caches are created, and stay. A cache that is destroyed leaves its place to the next.
 *
 * Locks: objects->lock (LOCK_RANK_OBJECTS) guards the list, the places and the pins; then those of the layers and slabs. No lock is held
 * while a function of the program runs (construct, destruct, a source). What works on a whole layer pins its caches meanwhile, and
 * destroying one waits until its pins are gone.
 */
#ifndef STRATA_CACHE_OBJECT_CACHE_H
#define STRATA_CACHE_OBJECT_CACHE_H

#include "base/list.h"
#include "cache/cache.h"
#include "slab/debug.h"
#include "slab/objects.h"

/* As many as have room for the largest arrays in one area. */
#define OBJECT_LAYER_CACHES 31
#define OBJECT_NAME_BYTES 32

struct object_cache;

struct object_layer {
    struct cache_layer layer;
    struct object_cache *caches[OBJECT_LAYER_CACHES]; /* NULL: the place is free; written under objects->lock, while nobody uses the cache */
    struct object_layer *next;                        /* atomic */
};

/* All object caches. */
struct object_caches {
    struct platform_lock lock;
    struct slab_layer *slabs;    /* of magazines */
    struct cache_layer *first;   /* malloc's, whose ids the layers share */
    unsigned magazine_max;       /* the cap on m */
    struct object_layer *layers; /* atomic */
    struct list all;             /* of object_cache.link */
    uint64_t debug_epoch;        /* which walk of object_caches_debug_each this is; under the lock */
};
void object_caches_init(struct object_caches *objects, struct slab_layer *slabs, struct cache_layer *first, unsigned magazine_max);

struct object_cache_config {
    const char *name; /* cut to fit */
    uint64_t bytes, align;
    uint64_t slab_bytes; /* 0: as suits; see object_slabs_init */
    const struct slab_source *source;
    void *source_context;
    /* Each may be NULL. construct returns 0, or something else where it can't, and has undone what it did. */
    int (*construct)(void *object, void *argument);
    void (*destruct)(void *object, void *argument);
    void *argument;
    bool no_magazines; /* no arrays: every object comes from the slabs and goes there, constructed and destructed each time */
    const char *alloc_function, *free_function; /* of the program's, for messages about them */
    /* Objects are no memory but integers, that much greater than what the program knows: no object may be NULL. */
    bool integers;
    uint64_t bias;
};

struct object_cache {
    char *areas_at; /* these two are all that the fast paths need; immutable */
    unsigned index;
    bool integers;
    struct object_layer *owner;
    struct object_slabs slabs;
    char name[OBJECT_NAME_BYTES];
    uint64_t bytes, align;
    int (*construct)(void *object, void *argument);
    void (*destruct)(void *object, void *argument);
    void *argument;
    const char *alloc_function, *free_function;
    uint64_t bias;
    struct list link;
    uint32_t pins;                             /* under objects->lock */
    struct platform_event unpinned;            /* woken when the last pin of a leaving cache goes */
    uint64_t constructed, destructed, refused; /* objects; refused: construct did not return 0. Atomic */
    struct debug_cache *debug;                 /* see object_debug.c; NULL: it never had features. Atomic, as is the next */
    uint32_t debug_changing;                   /* someone is about to give it others */
    uint64_t debug_epoch;                      /* under objects->lock */
};

enum object_cache_status { OBJECT_CACHE_OK, OBJECT_CACHE_NO_MEMORY, OBJECT_CACHE_BAD_SIZE };
/* Linear in nothing, but for every 31st, which makes a layer: linear in the CPUs. */
enum object_cache_status object_cache_create(struct object_caches *objects, const struct object_cache_config *config, struct object_cache **cache);
/*
 * Destructs what is cached, gives back the slabs, and frees the cache itself, also where the program has not freed all objects; returns how many
 * these were. Nobody uses it meanwhile, or later.
 */
uint64_t object_cache_destroy(struct object_caches *objects, struct object_cache *cache);

/*
 * All that is cached goes back to the slabs, and all empty slabs to their source; returns how many objects the program has not freed. Nobody uses the
 * cache meanwhile; afterwards it goes on.
 */
uint64_t object_cache_empty(struct object_caches *objects, struct object_cache *cache);

/* Beyond the fast path. NULL: no memory, or construct refused; before, what other CPUs have cached was called in. */
void *object_cache_alloc_slow(struct object_caches *objects, struct object_cache *cache);
void object_cache_free_slow(struct object_cache *cache, void *object);
/* An object, constructed. Constant time; no lock in most calls. */
STRATA_INLINE void *object_cache_alloc(struct object_caches *objects, struct object_cache *cache) {
    void *object = cpu_pop_in(&cache->areas_at, cache->index);
    return STRATA_LIKELY(object != NULL) ? object : object_cache_alloc_slow(objects, cache);
}
/* Takes an object back, in its constructed state. A pointer that is none of this cache's ends the process when it reaches the slabs. */
STRATA_INLINE void object_cache_free(struct object_cache *cache, void *object) {
    if (STRATA_UNLIKELY(!cpu_push_in(&cache->areas_at, cache->index, object))) object_cache_free_slow(cache, object);
}
/* Up to `count`; how many there were. */
unsigned object_cache_alloc_batch(struct object_caches *objects, struct object_cache *cache, void **taken, unsigned count);
void object_cache_free_batch(struct object_cache *cache, void *const *given, unsigned count);

/* What is cached goes back to the slabs, destructed, and empty slabs to their source. All CPUs' (in thread mode: the caller's), and the depot's. */
void object_cache_reap(struct object_caches *objects, struct object_cache *cache);
/* The same for all caches. */
void object_caches_reap(struct object_caches *objects);
/* Periodic: what was not needed since the last time. */
void object_caches_tick(struct object_caches *objects);

struct object_cache_stats {
    struct object_slabs_stats slabs;
    struct cache_stats cache;
    uint64_t constructed, destructed, refused;
};
void object_cache_stats_get(struct object_cache *cache, struct object_cache_stats *stats);
/* Of their CPU areas, as cache_area_bytes. */
uint64_t object_caches_area_bytes(struct object_caches *objects);
/* Calls visit for each cache, in order of creation, with the list locked: it may read, and lock what ranks below. */
void object_caches_each(struct object_caches *objects, void (*visit)(struct object_cache *cache, void *argument), void *argument);
/* Of all caches and layers; exact only while no other thread uses them. */
const char *object_caches_check(struct object_caches *objects);

/*
 * Debugging (object_debug.c). set: gives a cache features; NULL: none any more. False: no memory, and nothing has changed. Not for caches of
 * integers; runs destructors. each: calls apply for each cache that is one of memory, pinned, with no lock held. Not from constructors or
 * destructors.
 */
bool object_cache_debug_set(struct object_cache *cache, struct debug_layer *layer, const struct debug_features *features);
void object_caches_debug_each(struct object_caches *objects, void (*apply)(struct object_cache *cache, void *argument), void *argument);

/* Thread mode: what the thread with this id had cached; before cache_thread_exit of the first layer. */
void object_caches_thread_exit(struct object_caches *objects, uint32_t id);

void object_caches_fork_prepare(struct object_caches *objects);
void object_caches_fork_parent(struct object_caches *objects);
void object_caches_fork_child(struct object_caches *objects);

#endif
