/*
 * heap.h - the one heap of the process: every layer built on the one below. Private to api/.
 *
 * `heap` is the only mutable global of the library besides the platform's. fine_end and small_end are 0 until the layers stand, which
 * sends every malloc to the slow path, and the zone's extent is 0, which does the same for free: the fast paths need no other
 * test. Locks: heap.lock (LOCK_RANK_API), for initialisation, maintenance and fork; heap.arenas.lock (LOCK_RANK_ARENAS).
 */
#ifndef STRATA_API_HEAP_H
#define STRATA_API_HEAP_H

#include "api/options.h"
#include "cache/cache.h"
#include "cache/object_cache.h"
#include "page/page.h"
#include "slab/slab.h"

/* The program's arenas: see arena_api.c. */
struct strata_arena;
struct strata_arena_stats;
struct arenas {
    struct platform_lock lock;         /* LOCK_RANK_ARENAS */
    struct strata_arena *first, *last; /* by creation; guarded by the lock */
    uint32_t emptied_ms;               /* when all caches were emptied for a request last; atomic */
};

/* The program's handlers for shortage of memory: see pressure.c. */
struct strata_pressure;
struct pressure {
    struct strata_pressure *first, *running;                   /* these, and numbers and runner, under heap.lock */
    uint64_t numbers;                                          /* that were given */
    uint32_t runner;                                           /* the thread, while one runs */
    uint32_t runs;                                             /* atomic: that have ended */
    bool forks;                                                /* the runner does, right now */
    uint64_t calls, wanted_bytes, freed_bytes, resident_bytes; /* atomic: of all, since the start */
};

/* Watched ranges: see page_watch.h. */
struct page_watches;

/* Debugging: see debug.h. */
struct debug_heap;

/* Calls of a CPU that took a slow path: counted on a line of its own, or of those with the same number modulo these. */
#define HEAP_CALL_LINES 8
struct heap_calls {
    uint32_t count; /* atomic */
} STRATA_ALIGNED(CACHE_LINE_BYTES);

struct heap {
    /* What every malloc reads shares its cache line with nothing that is written. */
    size_t fine_end;   /* as small_end, for the sizes that are looked up by 16: spares malloc of these a comparison */
    size_t small_end;  /* sizes below come from size classes; written when all else stands, and 0 again by emergency_begin: see heap_small_end */
    bool layers_stand; /* zone and slabs are built; under the lock */
    bool ready;        /* written once, under the lock; release and acquire */
    bool dying;        /* atomic: the process is being ended because of misuse; see emergency.c */

    struct platform_lock lock STRATA_ALIGNED(CACHE_LINE_BYTES);
    uint64_t started_ns;
    uint64_t next_tick_ns;     /* atomic: the next look at pages */
    uint32_t page_looks;       /* atomic; as many as make a tick: see maintenance.c */
    uint64_t look_at_granules; /* atomic: populated pages at which it is looked whether caches should be reaped before the heap grows on */
    uint64_t reap_at_granules; /* atomic: and at which they are */
    bool malloc_failed;        /* atomic: the maintenance thread shall have object caches reclaimed */
    uint64_t pressure_events;  /* atomic */

    struct platform_event maintenance_event;
    uint32_t maintenance_state;    /* enum maintenance_state; atomic, a futex */
    uint64_t maintenance_retry_ns; /* after FAILED, not before this; atomic */
    bool maintenance_asleep;       /* atomic: the thread sleeps until it is woken; see maintenance.c */
    uint32_t object_ticks;         /* atomic: where no thread ticks, how many each object cache should have had; see object_cache_tick_once */
    bool first_thread_ended;       /* atomic; while others of the program go on */
    bool first_thread_watched;     /* immutable once there is a maintenance thread */

    struct arenas arenas;
    struct pressure pressure;
    struct page_watches *watches; /* NULL until the first; written once, under the lock */
    struct debug_heap *debug;     /* NULL: nothing was ever debugged; atomic */

    struct object_caches objects;
    struct pool_layer pools; /* its list is under the lock above */
    struct options options;  /* immutable after initialisation */
    struct zone zone;
    struct slab_layer slabs;
    struct cache_layer caches;
    bool kmem_trusts[SLAB_CACHE_MAGAZINES];        /* atomic; by tag; see heap_kmem_trusts */
    struct heap_calls slow_calls[HEAP_CALL_LINES]; /* behind what requests read, whose place in its page makes a tenth of their time */
};
extern struct heap heap __attribute__((visibility("hidden")));

/* Blocks and requests may not exceed this: a difference of two addresses within one must fit ptrdiff_t. */
#define HEAP_BYTES_MAX ((size_t)PTRDIFF_MAX)

/* Acquire, as the heap may have been built by another thread a moment ago: whoever sees a size here sees the layers. */
STRATA_INLINE size_t heap_fine_end(void) { return __atomic_load_n(&heap.fine_end, __ATOMIC_ACQUIRE); }
STRATA_INLINE size_t heap_small_end(void) { return __atomic_load_n(&heap.small_end, __ATOMIC_ACQUIRE); }

/*
 * The same for kmem.c's frees, which believe what callers say of blocks: whether they may, of the size class of that tag. Not before there is a heap,
 * in a process that is being ended, nor while blocks of the class may lie in slabs of two kinds, as with debugging of it: whoever begins that calls
 * heap_kmem_doubt first, and from then on each free of such a size goes by the address. heap_kmem_trust: by one thread at a time, when the class has
 * no debugged block left and can get none.
 */
STRATA_INLINE bool heap_kmem_trusts(unsigned tag) { return __atomic_load_n(&heap.kmem_trusts[tag], __ATOMIC_ACQUIRE); }
STRATA_INLINE void heap_kmem_doubt(unsigned tag) { __atomic_store_n(&heap.kmem_trusts[tag], false, __ATOMIC_SEQ_CST); }
STRATA_INLINE void heap_kmem_trust(unsigned tag) {
    __atomic_store_n(&heap.kmem_trusts[tag], true, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&heap.dying, __ATOMIC_SEQ_CST)) heap_kmem_doubt(tag); /* which emergency_begin did before, or does now */
}

/* The lock's rank, which is none in a struct of zeros: by whoever may be the first to take it. */
STRATA_INLINE void heap_lock_name(void) { __atomic_store_n(&heap.lock.rank, LOCK_RANK_API, __ATOMIC_RELAXED); }

/* Builds the heap where nobody has yet. False: not even its metadata could be had. */
bool heap_init(void);
/* Whether the user has set any, by the environment or in the program. Before the program changes its environment. */
bool heap_has_options(void);

/* The function that a user called, for messages. */
enum heap_function { HEAP_FREE, HEAP_FREE_SIZED, HEAP_FREE_ALIGNED_SIZED, HEAP_REALLOC, HEAP_USABLE_SIZE };

/* Ends the process: `address` is not what `function` may take. */
_Noreturn void heap_bad_address(enum heap_function function, const void *address);
/* The same of an address in the heap that is no object's: says which block it is inside of. Waits for no lock longer than some 60 ms. */
_Noreturn void heap_bad_block(const char *function, const void *address);

/* malloc beyond the fast path: sets errno to ENOMEM and returns NULL where there is no memory. `zeroed` (may be NULL) as in zone_block_alloc. */
void *heap_alloc_small_slow(size_t bytes, unsigned cache);
void *heap_alloc_slow(size_t bytes, size_t align, bool *zeroed);
void heap_free_slow(enum heap_function function, unsigned tag, void *object);
/* free, or a function like it, of what is not a multiple of 16 within the heap: NULL, or an error. */
void heap_free_odd(enum heap_function function, const void *object);

/* Whether it is a debugged buffer: *bytes is what was asked for, SIZE_MAX where it is a wrong one, which is reported. */
bool heap_debug_usable(enum heap_function function, const void *address, size_t *bytes);
/* Whether a free that names the size may go on. False: it is a debugged buffer, and the free a wrong one, which is reported. */
bool heap_debug_allows(enum heap_function function, const void *address, size_t size);

/* Everything idle back to the system; returns bytes. */
size_t heap_release(size_t keep_bytes);
/* The first invariant that does not hold; NULL: all do. */
const char *heap_check(void);

/* For who waits for memory or room that nobody announces: sleeps, and returns how long to sleep the next time; begin with HEAP_DOZE_MIN_NS. */
#define HEAP_DOZE_MIN_NS UINT64_C(1000000)
uint64_t heap_doze(uint64_t interval_ns);

/* maintenance.c */
void maintenance_slow_call(bool may_start_thread);
/* Before a block of so many granules is asked for: what caches hold and nobody uses goes first where it would make the heap grow. */
void maintenance_large_coming(uint64_t granules);
/*
 * Beside it, where a large block was allocated or has grown: who has few of them makes too few slow calls to be noticed by their number. Not where
 * pages are resized (strata/page.h), as a start takes some 70 us, several times what that takes.
 */
void maintenance_large_call(void);
/* Where no thread runs: what malloc lacked may be in object caches, which are reaped. Runs destructors. */
void maintenance_make_up(void);
/* How many there were, modulo 2^32. */
uint32_t maintenance_slow_calls(void);
/* The thread, where it does not run yet. False: it is not wanted, or can't be had. */
bool maintenance_start(void);
void maintenance_fork_child(void);
void maintenance_watch_first_thread(void);

/*
 * cache_api_callbacks.c: programs are asked to free objects of their caches, on the caller's thread, which is the maintenance thread; each returns
 * whether any was. reclaim_later: by malloc, which must not call the program, before it fails for want of so many bytes: the maintenance thread does
 * it soon, and is started for it.
 */
bool reclaim_on_pressure(bool critical);
bool reclaim_above_limit(void);
bool reclaim_when_idle(void);
bool reclaim_for_malloc(void);
void reclaim_later(size_t bytes);

/* introspect.c. class: of the size class with this tag, its debugged buffers included; cached <= in_use. */
struct class_figures {
    struct slab_stats slab;
    struct cache_stats cache;
    uint64_t in_use_bytes; /* in the program's hands */
};
void introspect_class(unsigned tag, struct class_figures *figures);
void introspect_fork_child(void);

/* arena_api.c. visit runs with the list's lock held. fork: between heap.arenas.lock's hold and unhold. */
void arenas_for_each(void (*visit)(const struct strata_arena_stats *stats, void *argument), void *argument);
const char *arenas_check(void);
void arenas_fork_prepare_quanta(void); /* in front of the zone's locks */
void arenas_fork_prepare(void);
void arenas_fork_parent(void);
void arenas_fork_child(void);

/* emergency.c: from emergency_begin on nothing else allocates. */
void emergency_begin(void);
/* Reads as zeros; NULL: no more. */
void *emergency_alloc(size_t bytes, size_t align);
/* 0: not a block of emergency_alloc. */
size_t emergency_bytes(const void *address);

/*
 * debug_heap.c, where heap.debug is not NULL. alloc, true: *object is a debugged buffer, or NULL where none shall be had. refuses: whether a block
 * shall not be had. failed: an allocation did, of a size class (0: a block), or of a cache, of which those with features say so themselves. free:
 * false: no debugged buffer. usable: likewise; *bytes is SIZE_MAX where it is a wrong one; frees: the function frees it then. claim_sized: looks over
 * what is about to be freed by a caller who says the size, or a size of the class (by_class); FOREIGN: no debugged buffer. set_of_class: a live
 * debugged buffer of this address, if it is one, was asked for by its size class.
 */
bool debug_heap_alloc(unsigned tag, size_t bytes, size_t align, void **object);
bool debug_heap_refuses(size_t bytes);
void debug_heap_failed(unsigned tag, size_t bytes);
void debug_cache_failed(const struct object_cache *cache);
void debug_heap_add_figures(unsigned tag, struct slab_stats *stats);
bool debug_heap_free(const char *function, void *address);
bool debug_heap_usable(const char *function, bool frees, const void *address, size_t *bytes);
bool debug_heap_owns(const void *address);
void debug_heap_set_of_class(const void *address);
enum debug_claim debug_heap_claim_sized(const char *function, const void *address, size_t size, bool by_class);
STRATA_INLINE bool heap_is_debugged(void) { return STRATA_UNLIKELY(__atomic_load_n(&heap.debug, __ATOMIC_ACQUIRE) != NULL); }
/* Whether the address is one of a block's, as far as that can be told of one that may be anybody's. */
STRATA_INLINE bool heap_owns(const void *address) {
    return zone_contains(&heap.zone, address) || emergency_bytes(address) != 0 || (heap_is_debugged() && debug_heap_owns(address));
}
/* debug_api.c: what the options say, once the heap is ready; a cache that was just created; around fork, in rank order. */
void debug_start(void);
void debug_cache_created(struct object_cache *cache);
void debug_heap_fork_prepare_first(void);
void debug_heap_fork_prepare_slabs(void);
void debug_heap_fork_done(void);
void debug_heap_fork_child(void);
const char *debug_heap_check(void);
void debug_heap_reap(void);
/* debug_walk.c: as strata_cache_walk, over debugged objects. */
bool debug_cache_walk(struct debug_cache *cache, bool (*visit)(void *object, void *argument), void *argument, bool *going);

/* fork.c: registers the handlers, where nobody has yet. Not under heap.lock, as registering may allocate. */
void heap_fork_register(void);

#endif
