/*
 * strata/cache.h - object caches: objects of one kind, kept constructed between one use and the next.
 *
 * A cache gives out objects that are constructed already, and takes them back as they are: what a constructor sets up (locks, lists, buffers) is paid
 * for once, not with every allocation. Objects wait in arrays of the CPUs, then in a depot, then, destructed, in slabs. What has a constructor or a
 * destructor waits in the depot, all of it, until nobody needed it from one tick to the next (decay_ms, on the maintenance thread; without one, on a
 * thread that asks the cache for more), or memory ends, or the cache is reaped; other objects, where bursts come again. The descriptors of all
 * these lie elsewhere, so that nothing of ours is ever written into an object. Every cache also is a pool of its own: its objects share slabs with
 * no others, and its figures tell what they cost. Valid in C11 and C++.
 *
 * For all functions, where nothing else is said:
 *   - sizes and alignments are in bytes;
 *   - a cache that is NULL, where a function does not say what that does, ends the process (SIGABRT) with one line on standard error that names the
 *     function; so do other arguments that a function says must not be NULL;
 *   - threads: any thread may call, on any cache, and may free what another allocated; but nobody may use a cache while it is destroyed. Later use
 *     of it ends the process with one line, as long as its descriptor has not become another's;
 *   - constructors, destructors and sources run on the thread that calls strata, with no lock of strata held; they may call malloc and other
 *     caches, create and destroy these, too, but not this one. Reclaim and move functions say for themselves what they may do. All of these must
 *     return: no longjmp, no exception, by which objects would be lost;
 *   - fork: caches and their objects are in the child as in the parent, whatever the parent's other threads were doing;
 *   - signals: not for signal handlers;
 *   - errno stays as it was.
 *
 * The design follows Bonwick, Adams, "Magazines and Vmem" (2001), sections 2 and 3, and Bonwick, "The Slab Allocator" (1994); the way back from
 * other CPUs: McKenney, Slingwine, Krueger, "Experience With an Efficient Parallel Kernel Memory Allocator", section 5.2; moving objects: the
 * interface of illumos, kmem_cache_set_move.
 */
#ifndef STRATA_CACHE_PUBLIC_H
#define STRATA_CACHE_PUBLIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <strata/strata.h>

#ifdef __cplusplus
extern "C" {
#endif

struct strata_cache;

enum strata_cache_status {
    STRATA_CACHE_OK = 0,
    STRATA_CACHE_NO_MEMORY,    /* for the cache's own structures, or for slabs */
    STRATA_CACHE_BAD_ARGUMENT, /* the function says which are */
    STRATA_CACHE_IN_USE,       /* destroyed, though the program had not freed all objects */
    STRATA_CACHE_TOO_LATE,     /* set_move: objects were allocated already, or it was called before */
};
/* A short English text, never NULL; also for values that are none. */
STRATA_API const char *strata_cache_status_text(enum strata_cache_status status) STRATA_NOEXCEPT;

/* The largest object. */
#define STRATA_CACHE_OBJECT_MAX ((size_t)1 << 20)
/* The largest alignment. */
#define STRATA_CACHE_ALIGN_MAX ((size_t)1 << 20)

/* How an allocation goes on where there is no memory, or where the constructor refuses. */
enum strata_cache_flags {
    STRATA_CACHE_NO_SLEEP = 0, /* it fails */
    STRATA_CACHE_SLEEP = 1,    /* it tries again, at intervals of 1 to 64 ms, until there is an object */
    STRATA_CACHE_ZERO = 2,     /* the object is all zeros; only for caches without a constructor */
    /* No reclaim function is called before it fails or sleeps: for who holds a lock that a reclaim function of any cache may want. */
    STRATA_CACHE_NO_RECLAIM = 4,
};

/* How badly memory is needed, where a reclaim function is called. */
enum strata_cache_need {
    STRATA_CACHE_IDLE = 1,     /* nobody lacks any; the program has been idle for a while: once each time that it is */
    STRATA_CACHE_PRESSURE,     /* the system says that it is short (PSI, a control group's event), or a soft limit is passed */
    STRATA_CACHE_OUT_OF_MEMORY /* an allocation is about to fail or to sleep, or a malloc has failed */
};

/* What a move function answers. */
enum strata_cache_move {
    STRATA_CACHE_MOVE_YES = 0,   /* the program uses the new object from now on, and never the old one again: that is destructed and freed */
    STRATA_CACHE_MOVE_NO,        /* this one can't be moved: its slab is left alone until an object of it is freed */
    STRATA_CACHE_MOVE_LATER,     /* not now, as it is being used */
    STRATA_CACHE_MOVE_DONT_NEED, /* the program does without it: as though it had freed the old object, which strata does */
    STRATA_CACHE_MOVE_DONT_KNOW, /* the program knows of no such object: it has freed it, or has just got it */
};

/* Where the memory of slabs comes from, other than from the heap. Both are called with no lock of strata held. */
struct strata_cache_source {
    /*
     * `bytes`, a multiple of the config's slab_unit (for features of strata/debug.h, of the system's page all the same), at a multiple of `align`, a
     * power of two; NULL: there is none.
     */
    void *(*allocate)(void *context, size_t bytes, size_t align);
    /* Takes back exactly what one call of allocate gave. */
    void (*release)(void *context, void *memory, size_t bytes);
    void *context;
};

/* What a cache is of. Zero what you don't need: all but the size may be 0 or NULL. */
struct strata_cache_config {
    size_t size;  /* of an object, 1..STRATA_CACHE_OBJECT_MAX */
    size_t align; /* of an object, a power of two, up to STRATA_CACHE_ALIGN_MAX; 0: 16 */
    /*
     * Makes a constructed object out of raw memory of arbitrary contents. Returns 0, or something else where it can't: then it has undone what it
     * did, and the allocation that wanted the object fails, or tries again. One request may construct as many as half an array's rounds: a
     * constructor that waits for something of which there is little is for caches with no_magazines, which construct one at a time.
     */
    int (*constructor)(void *object, void *argument);
    /*
     * Undoes what the constructor did, before the memory is given back: in whatever call frees it or, in a program without strata's own thread, asks
     * this cache for one; on that thread; and where any cache or arena runs short (strata_cache_alloc, also with STRATA_CACHE_NO_RECLAIM, and
     * strata_arena_alloc), as all caches are reaped then; never in malloc. So it must not wait for a lock that is held over such a call.
     */
    void (*destructor)(void *object, void *argument);
    void *argument;                           /* passed to these, to reclaim, and to the move function */
    const struct strata_cache_source *source; /* copied; NULL: the heap */
    bool no_magazines;                        /* nothing is kept constructed: each allocation constructs, each free destructs, under a lock */
    bool no_debug;                            /* features of strata/debug.h leave it alone, whatever its name and their pattern */
    /*
     * Asks the program to free objects of this cache that it can do without: wanted_bytes of them would serve, and need says how badly (enum
     * strata_cache_need). How many it frees is its own affair. Not called while the cache has no memory.
     *
     * IDLE and PRESSURE: on the maintenance thread, so only in a process that has one (docs/options.md, background); wanted_bytes is a sixteenth of
     * the cache's memory when idle, an eighth or a half under pressure, and what is above a soft limit or seven eighths of the control group's,
     * each time at least a slab. OUT_OF_MEMORY: on the thread that is in strata_cache_alloc, of this cache or another, which wants a slab; after a
     * malloc has failed, on the maintenance thread. Never within malloc, nor within any other function of strata.
     *
     * Called with no lock of strata held, and never while it is running already, on whatever thread: who needs memory then goes on without. It
     * may use malloc and all caches, this one too, but not destroy this one, which ends the process with one line. It must not wait for a lock whose
     * holder may be allocating from a cache without STRATA_CACHE_NO_RECLAIM: it could be this very thread, so it should rather try the lock.
     * ("Magazines and Vmem", section 5.2.)
     */
    void (*reclaim)(void *argument, size_t wanted_bytes, enum strata_cache_need need);
    /*
     * What a source deals in, a power of two; 0: the system's page, and without a source. A slab is the fewest units, a power of two of them, that
     * have room for eight objects and leave at most an eighth unused, as far as 64 KiB allow; else the fewest that hold one. It has 4,096 objects at
     * most, and lies at a multiple of the power of two that has room for it.
     */
    size_t slab_unit;
};

/*
 * strata_cache_create - a cache that is empty.
 *
 * name: for statistics and error messages; not NULL or empty, cut to 31 bytes. config: as above, copied. cache: receives the cache.
 * Returns STRATA_CACHE_OK; STRATA_CACHE_BAD_ARGUMENT where name, config or cache is NULL or the name empty, the size is 0 or above
 * STRATA_CACHE_OBJECT_MAX, the alignment is no power of two or above STRATA_CACHE_ALIGN_MAX, a source lacks a function, or slab_unit is no power of
 * two or without a source; STRATA_CACHE_NO_MEMORY. *cache is NULL on failure.
 * Cost: constant; every 31st cache reserves 64 KiB of address space for each CPU, of which only what is used takes memory.
 * ("Magazines and Vmem", section 2.1.)
 */
STRATA_API enum strata_cache_status strata_cache_create(const char *name, const struct strata_cache_config *config,
                                                        struct strata_cache **cache) STRATA_NOEXCEPT;

/*
 * strata_cache_destroy - destructs what is cached, gives all memory back, and ends the cache. NULL: does nothing.
 *
 * Returns STRATA_CACHE_OK, or STRATA_CACHE_IN_USE where the program had not freed all objects: then one line on standard error says of which
 * cache and how many, their memory is gone, and they were not destructed. No other thread may use the cache any more, in any way.
 * Cost: linear in what is cached, in the slabs and in the CPUs. Waits for what the maintenance thread is doing with the cache, and for its reclaim
 * and move functions where they are running on another thread; called by one of these, it ends the process (SIGABRT) with one line.
 * ("Magazines and Vmem", section 2.1.)
 */
STRATA_API enum strata_cache_status strata_cache_destroy(struct strata_cache *cache) STRATA_NOEXCEPT;

/*
 * strata_cache_alloc - an object, constructed: as the constructor left it, or as it was when it was freed.
 *
 * cache: not NULL. flags: enum strata_cache_flags, joined by |; others end the process (SIGABRT) with one line.
 * Returns the object; NULL where there is no memory, where the constructor refused (both not with STRATA_CACHE_SLEEP), or where
 * STRATA_CACHE_ZERO was asked of a cache with a constructor. Before it fails, what other CPUs have cached is called in, so that any CPU gets the last
 * object (with per-thread caches any thread does, but for what strata_release says of those); then, but for STRATA_CACHE_NO_RECLAIM, the reclaim
 * functions of this cache and then of the others are called on this thread. Where memory lacked, one of these was called, or the cache has a source
 * of its own, all caches are reaped, and it tries once more; not so where the failure is one by mtbf (strata/debug.h). A sleeper does so each time
 * that it tries. Cost: constant; the fast path takes an object from the array of the CPU, without a lock. In a program without the maintenance thread
 * a call in each decay_ms may be linear in what nobody needed meanwhile. One call in half an array's rounds moves that many from the depot or out of
 * slabs, which constructs them. STRATA_CACHE_ZERO: linear in the size. ("Magazines and Vmem", section 3.1 and 3.2.)
 */
STRATA_API void *strata_cache_alloc(struct strata_cache *cache, unsigned flags);

/*
 * strata_cache_free - gives an object back, in its constructed state. object: NULL: does nothing. cache: not NULL, not even then.
 *
 * An object that is not of this cache, not the start of one, or free already, ends the process (SIGABRT) with one line on standard error that names
 * it and the cache: at the latest when it reaches the slabs, which may be later, in another thread, or never where the process ends before.
 * Cost: constant; as for strata_cache_alloc. ("Magazines and Vmem", sections 3.1 and 3.2.)
 */
STRATA_API void strata_cache_free(struct strata_cache *cache, void *object);

/*
 * strata_cache_alloc_batch - up to `count` objects into `objects`, as by strata_cache_alloc with STRATA_CACHE_NO_RECLAIM alone.
 *
 * objects: room for `count`; not NULL, but where count is 0.
 * Returns how many there were: less than `count` where there is no memory, or the constructor refused. Cost: constant for each, and less than
 * one by one: they move in groups of up to half an array. (Beyond the papers: what section 3.1 does with magazines, for the program's own array.)
 */
STRATA_API size_t strata_cache_alloc_batch(struct strata_cache *cache, void **objects, size_t count);
/*
 * strata_cache_free_batch - gives `count` objects back.
 *
 * objects: not NULL, but where count is 0, and none of them NULL: one that is ends the process (SIGABRT) with one line that says which. Other errors,
 * and cost: as strata_cache_free, in groups.
 */
STRATA_API void strata_cache_free_batch(struct strata_cache *cache, void *const *objects, size_t count);

/*
 * strata_cache_reap - destructs what is cached and gives the empty slabs back. cache: NULL: that of all caches.
 *
 * With per-thread caches those of some threads may stay: see strata_release. The maintenance thread does the like over time, for
 * what was not needed lately; malloc never does, as it may be called where a destructor must not run.
 * Cost: linear in what is cached and in the empty slabs; a fence over all CPUs that have something. ("Magazines and Vmem", section 3.7.)
 */
STRATA_API void strata_cache_reap(struct strata_cache *cache);

/*
 * strata_cache_walk - calls visit for each object that is not in a slab: in use, or cached. It returns false to end the walk.
 *
 * cache, visit: not NULL. Call strata_cache_reap before to see those in use alone. Objects that come or go during the walk may be visited or not;
 * visit runs with no lock held. Returns false where there was no memory for the walk. Cost: linear in the slabs. (Beyond the papers; as vmem_walk,
 * "Magazines and Vmem", section 4.3.2.)
 */
STRATA_API bool strata_cache_walk(struct strata_cache *cache, bool (*visit)(void *object, void *argument), void *argument);

/*
 * strata_cache_set_move - lets strata move objects of the cache, so that slabs of which few objects are in use can be given back.
 *
 * cache: not NULL, new: nothing was allocated from it. move: not NULL; called for each object that shall leave its slab:
 *   old_object: in use, as far as strata knows. new_object: of the same cache, constructed, in the fullest slab with room. size: config.size.
 * argument: the config's. It makes new_object take the place of old_object, contents and all pointers to it, and answers by enum strata_cache_move;
 * another answer ends the process. old_object's memory may be read as long as it runs, whatever becomes of the object meanwhile. Runs on the
 * maintenance thread or in strata_cache_consolidate, with no lock of strata held, one call at a time in the whole process. It may use malloc and all
 * caches, this one too, but not destroy this one; strata_cache_consolidate does nothing there. It must not wait for a lock whose holder may be in
 * strata_cache_consolidate: rather answer LATER.
 *
 * What the program owes: old_object may be one that it has freed a moment ago and that is cached, constructed or destructed right now, or one that
 * it has got and not yet linked to anything. So move first finds out, by means that no other thread changes meanwhile (a lock of the program's),
 * whether it is an object that the program uses, and answers DONT_KNOW otherwise. A field that the program sets while it uses the object and clears
 * before it frees it serves, where it is read as an atomic. From YES or DONT_NEED on the old object is strata's: the program makes sure that no
 * thread has freed it, or will. Where one had, and the object has reached its slab, that ends the process with one line; in an array of a CPU it is
 * seen later, like a double free, or not at all. An object that is answered NO, LATER or DONT_KNOW is the program's as before. After all answers but
 * YES the new one is destructed, whatever was written to it; the program must not have kept it.
 *
 * Returns STRATA_CACHE_OK; STRATA_CACHE_BAD_ARGUMENT where move is NULL; STRATA_CACHE_TOO_LATE where objects were allocated already, or where it was
 * called before; STRATA_CACHE_NO_MEMORY. No other thread may use the cache meanwhile.
 * fork: in the child an object whose move was under way on another thread is there twice, and one of the two is the program's.
 * Cost: constant. Later, every 500 ms (decay_ms), on the maintenance thread, where at least an eighth of the slabs could be emptied: reaps the
 * cache, and calls move for at most 256 objects; after a round in which nothing was won it pauses, for 1, 2, 4 and at most 64 times as long. In a
 * process without that thread (docs/options.md, background), strata_cache_consolidate alone moves objects.
 */
STRATA_API enum strata_cache_status strata_cache_set_move(struct strata_cache *cache,
                                                          enum strata_cache_move (*move)(void *old_object, void *new_object, size_t size,
                                                                                         void *argument)) STRATA_NOEXCEPT;

/*
 * strata_cache_consolidate - empties sparse slabs into fuller ones now, as far as the program's move function goes along.
 *
 * cache: not NULL. Reaps it first; then takes slab after slab, the sparsest first, and offers the objects of each to the move function on this
 * thread. Waits while another thread moves objects, of whatever cache, and so calls the program's move functions. Returns the bytes of slabs that
 * have gone back to their source meanwhile; 0 also where the cache has no move function, and within one. Cost: that of strata_cache_reap, and for
 * each object in a slab that is tried a construction, a call of move and a destruction. (Beyond the papers, as strata_cache_set_move.)
 */
STRATA_API size_t strata_cache_consolidate(struct strata_cache *cache);

struct strata_cache_stats {
    const char *name; /* of the cache, as long as that exists */
    size_t object_size, slab_size;
    uint64_t in_use;                  /* objects that the program has */
    uint64_t cached;                  /* constructed objects in arrays and depot */
    uint64_t total;                   /* objects in all slabs, in use, cached or free */
    uint64_t slabs, memory;           /* slabs, and their bytes */
    uint64_t constructed, destructed; /* how often, since the start; also counted where there is no such function */
    uint64_t refused;                 /* how often the constructor refused */
    uint64_t slabs_created, slabs_released;
    uint64_t magazine_rounds; /* m: how many objects an array holds at most, now */
    uint64_t contention;      /* how often the depot's lock was held by another thread */
    uint64_t reclaims;        /* how often the reclaim function was called */
    uint64_t reclaimed_bytes; /* of objects that the program had fewer after these calls than before them */
    /* Calls of the move function: all, and by their answers. */
    uint64_t moves, moves_yes, moves_no, moves_later, moves_dont_need, moves_dont_know;
    uint64_t slabs_emptied; /* by moves */
};
/*
 * strata_cache_stats_get - the figures of a cache, each right at some moment of the call. cache, stats: not NULL. in_use is what is neither free in a
 * slab nor cached, looked at one after the other: what goes from a cache to its slabs meanwhile, as maintenance has it do, is in it, too.
 *
 * Cost: linear in the CPUs and the depot's magazines. (Beyond the papers; rounds and contention: "Magazines and Vmem", section 3.4.)
 */
STRATA_API void strata_cache_stats_get(struct strata_cache *cache, struct strata_cache_stats *stats) STRATA_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
