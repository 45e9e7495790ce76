/*
 * object_cache.h - the second facade of cache/: object caches, on the CPU layer and depot that malloc's caches stand on.
 *
 * An object is constructed on its way from the slab to the caches above, and destructed on its way back (magazines paper, 3.2): what the
 * program frees it gets again as it left it. The caches live in layers of OBJECT_LAYER_CACHES, each a cache_layer with areas of its own; layers are
 * made as caches are created, and stay. A cache that is destroyed leaves its place to the next.
 *
 * Programs may also be called back to free objects where memory is short (object_cache_reclaim.c), and to let objects be moved out of sparse slabs
 * (object_cache_move.c).
 *
 * Locks: objects->lock (LOCK_RANK_OBJECTS) guards the list, the places and the pins; then those of the layers and slabs. No lock is held
 * while a function of the program runs (construct, destruct, reclaim, move, a source). What works on a whole layer pins one cache after another,
 * each while it works on that, so that the program's functions may destroy others; destroying one waits until its pins are gone, and until what a
 * drain has taken out of its arrays is where it belongs (depot.giving).
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

/* Any function: whoever handed it in casts it back before the call. */
typedef void object_function(void);
typedef void object_reclaim_call(object_function *reclaim, void *argument, uint64_t wanted_bytes, unsigned need);
/* Returns an enum object_move_answer, or anything else, which is an error. */
typedef unsigned object_move_call(object_function *move, void *old, void *fresh, uint64_t bytes, void *argument);
enum object_move_answer { OBJECT_MOVE_YES, OBJECT_MOVE_NO, OBJECT_MOVE_LATER, OBJECT_MOVE_DONT_NEED, OBJECT_MOVE_DONT_KNOW, OBJECT_MOVE_ANSWERS };

/* Of a cache whose program is asked to free objects. */
struct object_reclaimer {
    object_function *reclaim;
    object_reclaim_call *call;
    uint32_t running;      /* the thread that is in it, by platform_thread_self; 0: none. Atomic, as are the next two */
    uint64_t calls, bytes; /* of objects that the program had fewer after calls than before */
};

/* Of a cache whose objects may be moved. */
struct object_mover {
    object_function *move;
    object_move_call *call;
    uint64_t answers[OBJECT_MOVE_ANSWERS]; /* how often each was given; atomic */
    uint64_t emptied;                      /* slabs that moves have emptied; atomic */
    uint32_t pause, rest;                  /* ticks: of the current pause, and left of it; these and the next are objects->mover's */
    bool between;                          /* the last pass stopped at its bound, not at its end */
};

struct object_layer {
    struct cache_layer layer;
    struct object_cache *caches[OBJECT_LAYER_CACHES]; /* NULL: the place is free; written under objects->lock, while nobody uses the cache */
    struct object_layer *next;                        /* atomic */
    struct object_layer *next_roomy;                  /* of those with free places; under objects->lock, as the next */
    uint32_t taken;                                   /* bit i: place i is */
};

/* All object caches. */
struct object_caches {
    struct platform_lock lock;
    struct slab_layer *slabs;    /* of magazines */
    struct cache_layer *first;   /* malloc's, whose ids the layers share */
    unsigned magazine_max;       /* the cap on m */
    uint32_t mover;              /* the one thread that moves objects, by platform_thread_self; 0: none; atomic, slept on */
    struct object_layer *layers; /* atomic */
    struct object_layer *last;   /* of these; under the lock, as the next */
    struct object_layer *roomy;  /* one with a free place, and so on */
    struct list all;             /* of object_cache.link */
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
    /* Asks the program to free objects; NULL: it isn't asked. */
    object_function *reclaim;
    object_reclaim_call *call_reclaim;
    bool no_debug;     /* see struct object_cache */
    bool no_magazines; /* no arrays: every object comes from the slabs and goes there, constructed and destructed each time */
    const char *alloc_function, *free_function; /* of the program's, for messages about them */
    /* 0: objects are memory. Else a byte of them stands for so many integers. */
    uint64_t integers;
};

struct object_cache {
    struct object_layer *owner;
    char *areas_at; /* these two are all that the fast paths need; immutable, but see object_cache_is_gone */
    unsigned index;
    struct object_slabs slabs STRATA_ALIGNED(CACHE_LINE_BYTES); /* out of the fast paths' cache line, as its lock is written to */
    char name[OBJECT_NAME_BYTES];
    uint64_t bytes, align;
    int (*construct)(void *object, void *argument);
    void (*destruct)(void *object, void *argument);
    void *argument;
    const char *alloc_function, *free_function;
    uint64_t integers;                  /* as configured */
    bool no_debug;                      /* debugging leaves it alone; as configured */
    struct object_reclaimer *reclaimer; /* NULL: none; immutable */
    struct object_mover *mover;         /* NULL: none; set once, atomic */
    struct list link;
    uint32_t ticks;                            /* see object_cache_tick_once; atomic */
    uint32_t pins;                             /* under objects->lock */
    struct platform_event unpinned;            /* woken when the last pin of a leaving cache goes */
    uint64_t constructed, destructed, refused; /* objects; refused: construct did not return 0. Atomic */
    struct debug_cache *debug;                 /* see object_debug.c; NULL: it never had features. Atomic, as is the next */
    uint32_t debug_changing;                   /* someone is about to give it others */
};

/*
 * Whether it was destroyed, as long as its memory is nobody else's: what a freed descriptor leaves, but for its first word, leads every fast path to
 * an array of malloc's that is never open.
 */
STRATA_INLINE bool object_cache_is_gone(const struct object_cache *cache) { return cache->areas_at == platform_cpu.areas; }

enum object_cache_status { OBJECT_CACHE_OK, OBJECT_CACHE_NO_MEMORY, OBJECT_CACHE_BAD_SIZE, OBJECT_CACHE_TOO_LATE };
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
void *object_cache_alloc_slow(struct object_cache *cache);
/* Its two steps: without what other CPUs have; and after that was called in, which destructs what they have of other caches, too. */
void *object_cache_alloc_near(struct object_cache *cache);
void *object_cache_alloc_far(struct object_cache *cache);
void object_cache_free_slow(struct object_cache *cache, void *object);
/* An object, constructed. Constant time; no lock in most calls. */
STRATA_INLINE void *object_cache_alloc(struct object_cache *cache) {
    void *object = cpu_pop_in(&cache->areas_at, cache->index);
    return STRATA_LIKELY(object != NULL) ? object : object_cache_alloc_slow(cache);
}
/* Takes an object back, in its constructed state. A pointer that is none of this cache's ends the process when it reaches the slabs. */
STRATA_INLINE void object_cache_free(struct object_cache *cache, void *object) {
    if (STRATA_UNLIKELY(!cpu_push_in(&cache->areas_at, cache->index, object))) object_cache_free_slow(cache, object);
}
/* Up to `count`; how many there were. slow: becomes true where the array did not do. */
unsigned object_cache_alloc_batch(struct object_cache *cache, void **taken, unsigned count, bool *slow);
void object_cache_free_batch(struct object_cache *cache, void *const *given, unsigned count, bool *slow);

/* What is cached goes back to the slabs, destructed, and empty slabs to their source. All CPUs' (in thread mode: the caller's), and the depot's. */
void object_cache_reap(struct object_caches *objects, struct object_cache *cache);
/* The same for all caches. */
void object_caches_reap(struct object_caches *objects);
/* For those without a function of the program's, on whatever thread, and but for what is in arrays. */
void object_caches_reap_silent(struct object_caches *objects);
/* For those that are wanted (asked under objects->lock) and that `holds` says yes to, pinned and with no lock held. Others keep what they have. */
void object_caches_reap_some(struct object_caches *objects, bool (*is_wanted)(const struct object_cache *cache),
                             bool (*holds)(const struct object_cache *cache, const void *argument), const void *argument);
/* Periodic: what was not needed since the last time. */
void object_caches_tick(struct object_caches *objects);
/* The same for the depot of one cache, by who uses it, where so many ticks were due and it had fewer. No other cache's destructor runs. */
void object_cache_tick_once(struct object_cache *cache, uint32_t ticks);

/*
 * How much the program is asked for, and how badly: what call_reclaim gets. bytes: of each cache; 0: the share of its memory that is one in
 * 2^shift, one slab at least.
 */
struct object_need {
    uint64_t bytes;
    unsigned shift, need;
};
/*
 * Calls the reclaim function of a cache that has slabs, on the caller's thread, with no lock held. False: there is none, or it is running, here or on
 * another thread. What is freed is in the caches above the slabs afterwards.
 */
bool object_cache_reclaim(struct object_cache *cache, const struct object_need *need);
/* Of all caches but `except` (may be NULL), one after the other; returns how many were called. */
unsigned object_caches_reclaim(struct object_caches *objects, const struct object_cache *except, const struct object_need *need);

/* From now on objects of the cache may be moved. TOO_LATE: it has had slabs or debugged objects already, or a move function. */
enum object_cache_status object_cache_set_move(struct object_cache *cache, object_function *move, object_move_call *call);
/*
 * Empties sparse slabs into fuller ones, as far as the program lets it, on the caller's thread; waits for others that do the same for any cache.
 * Returns the bytes of slabs that went back to their source meanwhile. Called by a move function: does nothing.
 */
uint64_t object_cache_consolidate(struct object_caches *objects, struct object_cache *cache);
/*
 * Periodic: the same for caches that are fragmented, a bounded number of objects. Returns whether it wants to be called again although nothing else
 * happens in the process.
 */
bool object_caches_consolidate_tick(struct object_caches *objects);
/* Whether the caller is in the reclaim or move function of this cache, by which name; NULL: in neither. */
const char *object_cache_callback(const struct object_caches *objects, const struct object_cache *cache);

struct object_cache_stats {
    struct object_slabs_stats slabs;
    struct cache_stats cache;
    uint64_t constructed, destructed, refused;
    uint64_t reclaims, reclaimed_bytes;
    uint64_t moves[OBJECT_MOVE_ANSWERS], slabs_emptied;
};
void object_cache_stats_get(struct object_cache *cache, struct object_cache_stats *stats);
/* Of their CPU areas, as cache_area_bytes. */
uint64_t object_caches_area_bytes(struct object_caches *objects);
/* Calls visit for each cache, in order of creation, with the list locked: it may read, and lock what ranks below. */
void object_caches_each(struct object_caches *objects, void (*visit)(struct object_cache *cache, void *argument), void *argument);
/* Of all caches and layers; exact only while no other thread uses them. */
const char *object_caches_check(struct object_caches *objects);

/* Why the calling thread's last allocation that failed has: there was none to be had, mtbf, or construct refused. */
enum object_failure { OBJECT_LACK, OBJECT_BY_MTBF, OBJECT_BY_CONSTRUCTOR };
enum object_failure object_cache_failure(void);

/*
 * Debugging (object_debug.c). set: gives a cache features; NULL: none any more; some that its objects have no room with: the same, and a line
 * says so. False: no memory, and nothing has changed. Not for caches of integers; runs destructors. each: calls apply for each cache that is one of
 * memory, pinned, with no lock held. Not from constructors or destructors.
 */
bool object_cache_debug_set(struct object_cache *cache, struct debug_layer *layer, const struct debug_features *features);
void object_caches_debug_each(struct object_caches *objects, void (*apply)(struct object_cache *cache, void *argument), void *argument);

/* Thread mode: what the thread with this id had cached; before cache_thread_exit of the first layer. */
void object_caches_thread_exit(struct object_caches *objects, uint32_t id);

void object_caches_fork_prepare(struct object_caches *objects);
void object_caches_fork_parent(struct object_caches *objects);
void object_caches_fork_child(struct object_caches *objects);

#endif
