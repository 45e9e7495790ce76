/*
 * arena.h - the facade of arena/: allocation of any resource that is described by sets of 64-bit integers.
 *
 * An arena holds spans (ranges of integers that were added, or imported from a source) and cuts them into segments, each
 * described by a boundary tag outside the resource, so that the integers may stand for anything: addresses, ports, ids.
 * 0 is an integer like any other; a call returns a status, and the value through a pointer.
 *
 * Conventions
 *   - The quantum is a power of two. alloc, xalloc, free and resize round sizes up to it; add and remove take multiples only.
 *   - A span or segment may end at 2^64 (its last integer is UINT64_MAX). All spans together hold less than 2^64 integers.
 *   - Adjacent spans stay two: no segment ever crosses from one into the other.
 *   - A failed call changes nothing but the statistics.
 *   - Thread-safe, except init, set_source, set_quantum_caches and destroy. One lock an arena, of rank LOCK_RANK_ARENA. It is
 *     never held while a function of the caller runs (memory, source, quantum cache, reclaim, wait, wake, appeared, walk), so those may
 *     take any lock and may call arenas, also this one.
 *   - Time: constant, however many segments there are, for alloc with instant fit, free and resize; expected O(log spans) on
 *     top where a span comes or goes. Exceptions: best fit searches one list of like sizes; next fit walks the segments that
 *     follow the last one; min and max, ARENA_FROM_TOP, and a request that would fail otherwise, search the lists that may hold a fit.
 */
#ifndef STRATA_ARENA_ARENA_H
#define STRATA_ARENA_ARENA_H

#include "base/base.h"
#include "base/list.h"
#include "platform/platform.h"

enum arena_status {
    ARENA_OK = 0,
    ARENA_NO_SPACE,      /* no free segment fits, and the source (if any) has none either */
    ARENA_NO_TAGS,       /* memory for boundary tags could not be had */
    ARENA_BAD_ARGUMENT,  /* size 0, not a multiple of the quantum, constraints that no integer can ever meet, ... */
    ARENA_BAD_RANGE,     /* the span passes 2^64, or the arena would hold 2^64 integers or more */
    ARENA_OVERLAP,       /* the span shares integers with one that is there already */
    ARENA_NOT_ALLOCATED, /* no allocated segment (or no span, for remove) starts there */
    ARENA_SIZE_MISMATCH, /* one starts there, but it has another size */
    ARENA_BAD_SOURCE,    /* the source answered with less than asked, misaligned, or overlapping what is here */
    ARENA_BUSY,          /* parts are still allocated */
};
/* A short English text, never NULL. */
const char *arena_status_text(enum arena_status status);

/* How a fit is chosen (one of the first three), and what to do when there is none. */
enum arena_flags {
    ARENA_INSTANT_FIT = 0, /* the default: a segment from the first power-of-two list where any is good */
    ARENA_BEST_FIT = 1,    /* the smallest that suffices, the lowest of those */
    ARENA_NEXT_FIT = 2,    /* the first after the last segment that next fit allocated, going round */
    ARENA_FIT_MASK = 3,
    ARENA_SLEEP = 4, /* wait instead of ARENA_NO_SPACE or ARENA_NO_TAGS; needs ops->wait and ops->wake */
    ARENA_FROM_TOP =
        8, /* requests only: the highest place of all where the fit would be instant, of the best segments with best fit; not with next fit */
    ARENA_QUIET = 16, /* to sources only: as arena_try, nobody is to be asked for anything, nor a failure to be counted */
};

/* ------------------------------------------------------------------ what an arena asks of its composer */

/* Every request for memory is a power of two >= this many bytes; the answer is aligned to this. */
#define ARENA_BATCH_BYTES 4096

struct arena;

/* Any member may be NULL. All but is_hushed are called with no arena lock held. The table lives at least as long as the arena. */
struct arena_ops {
    /* Memory for boundary tags and hash tables, contents arbitrary. NULL where there is none. May allocate from this very arena. */
    void *(*memory_get)(void *ctx, size_t bytes);
    void (*memory_put)(void *ctx, void *memory, size_t bytes);
    /*
     * Before a request of `size` fails or sleeps, once: give segments back, if any can be spared. again: this request was told before, and has slept
     * since. True: worth a second look.
     */
    bool (*reclaim)(void *ctx, uint64_t size, bool again);
    /* Whether requests of the calling thread that don't sleep are to be as quiet as arena_try: a source is being asked so. Takes no lock. */
    bool (*is_hushed)(void *ctx);
    /*
     * Sleeps while *word == seen, as a futex does: returns at once where it differs, and may wake for no reason: then the request looks quietly, and
     * sleeps on. False: give up, and the request fails. wake lets all sleepers on the word go.
     */
    bool (*wait)(void *ctx, const uint32_t *word, uint32_t seen);
    void (*wake)(void *ctx, const uint32_t *word);
    /* Free space has appeared: for arenas that import from this one, whose sleepers are to ask it again. */
    void (*appeared)(void *ctx);
};

/* Where an arena imports spans from: an arena (arena_as_source), or anything else. Called with no arena lock held. */
struct arena_source {
    /*
     * Any range of at least `size` integers, multiples of the quantum; it may return more. `flags` holds ARENA_SLEEP where the
     * request may sleep, and ARENA_QUIET where it need not be told of. Any status but ARENA_OK counts as "none".
     */
    enum arena_status (*alloc)(void *source, uint64_t size, unsigned flags, uint64_t *start, uint64_t *got);
    /* Takes back exactly what one alloc gave, once no part of it is in use; NULL: imported spans are kept until destroy. */
    void (*release)(void *source, uint64_t start, uint64_t size);
};
/* The source that is another arena: pass the `struct arena *` as `source`. */
extern const struct arena_source arena_as_source;

/*
 * Object caches for the smallest sizes (one for each multiple of the quantum up to qcache_max). They take slabs of
 * `slab_size` from the arena by arena_slab_alloc and give them back by arena_slab_free.
 */
struct arena_qcache_ops {
    void *(*create)(void *ctx, struct arena *arena, uint64_t object_size, uint64_t slab_size); /* NULL on failure */
    enum arena_status (*destroy)(void *cache);                                                 /* ARENA_BUSY: objects are out */
    enum arena_status (*alloc)(void *cache, unsigned flags, uint64_t *start);
    enum arena_status (*free)(void *cache, uint64_t start);
    enum arena_status (*try)(void *cache, uint64_t *start); /* as arena_try */
};

/* ------------------------------------------------------------------ the arena itself */

#define ARENA_LISTS 64     /* free segments of size [2^n, 2^(n+1)) are on list n */
#define ARENA_BOOT_TAGS 16 /* tags inside the struct: an arena works before there is memory for tags */
#define ARENA_BOOT_BUCKETS 16
#define ARENA_QCACHES_MAX 16
#define ARENA_NAME_BYTES 32

/* Who has an allocated segment: nobody else can free it, or change its size. */
enum arena_holder {
    ARENA_HOLDER_CALLER,
    ARENA_HOLDER_IMPORTER, /* an arena that imports from this one */
    ARENA_HOLDER_CACHE,    /* a quantum cache: it is a slab */
};

/* A boundary tag. Splits and merges keep the lower tag, so that its start stays. Guarded by the arena's lock. */
struct arena_tag {
    uint64_t start;
    uint64_t size;
    struct list segment; /* all tags in address order; a span's own tag comes right before its segments */
    union {
        struct list free;        /* free: its size list */
        struct arena_tag *chain; /* allocated: hash chain; spare: next spare */
        struct {
            struct arena_tag *left, *right;
        } tree; /* span: search tree by start */
    } u;
    uint32_t kind;  /* enum tag_kind of arena_internal.h */
    bool imported;  /* span: came from the source */
    uint8_t holder; /* allocated: enum arena_holder */
};

struct arena_hash {
    struct arena_tag **buckets;
    uint64_t count; /* of buckets, a power of two */
};

/* Guarded by the arena's lock. Numbers since arena_init. */
struct arena_counters {
    uint64_t allocs, frees, failures, imports, releases, waits;
    uint64_t resizes; /* successful ones */
};

/* On storage of the caller; no member is for others to touch. */
struct arena {
    struct platform_lock lock;   /* rank LOCK_RANK_ARENA; guards all below but what is immutable */
    char name[ARENA_NAME_BYTES]; /* immutable, cut to fit */
    uint64_t quantum;            /* immutable, as are the next seven */
    unsigned quantum_shift;
    unsigned fit;                /* used where a call asks for none (ARENA_INSTANT_FIT) */
    const struct arena_ops *ops; /* never NULL */
    void *ctx;
    const struct arena_source *source;
    void *source_ctx;
    const struct arena_qcache_ops *qcache_ops;
    uint64_t qcache_max; /* 0: no quantum caches */
    void *qcaches[ARENA_QCACHES_MAX];

    uint32_t generation;       /* moves whenever space appears; read without the lock by sleepers, hence atomic */
    uint32_t waiters;          /* how many sleep */
    uint64_t changes;          /* moves whenever the segment list changes: lets a walk go on where it was */
    uint64_t total, allocated; /* integers in spans, in allocated segments */
    uint64_t slabs;            /* integers in slabs of quantum caches, which are allocated */
    uint64_t imported;         /* integers in imported spans */
    uint64_t importing;        /* integers that threads are asking the source for: imported + importing <= limit where that has not fallen since */
    uint64_t limit;
    bool limit_denied;    /* a request was refused that `importing` alone stood in the way of: if that comes to nothing, it is to try again */
    uint8_t source_shift; /* immutable: the source deals in 2^this */
    uint64_t spans, segments_allocated, segments_free;
    struct arena_counters counters;

    struct list segments;
    struct arena_tag *span_root;
    uint64_t list_map; /* bit n: list n is not empty */
    struct list lists[ARENA_LISTS];
    struct list *rotor;   /* next fit: a node of `segments` at or before rotor_start */
    uint64_t rotor_start; /* next fit: the end of what it allocated last; 0: from the bottom */

    struct arena_hash hash;     /* allocated tags by start */
    struct arena_hash hash_old; /* being emptied into `hash`, buckets below hash_moved are done; count 0: no move under way */
    uint64_t hash_moved;
    uint64_t hash_retry; /* after a failure, no growth before this many are allocated */
    bool hash_busy;      /* a thread is getting memory for a new table */
    uint32_t refills;    /* threads that are getting memory for tags */

    uint64_t tags_spare, tags_total, batches;
    uint64_t tags_promised;      /* of the spare ones: imports under way find them when the source has answered */
    struct list batches_partial; /* batches with spare tags; wholly spare ones at the back */
    struct list batches_full;
    struct arena_tag *boot_spare;
    struct arena_tag boot_tags[ARENA_BOOT_TAGS];
    struct arena_tag *boot_buckets[ARENA_BOOT_BUCKETS];
};

/* ------------------------------------------------------------------ life */

/*
 * An empty arena. `quantum` is a power of two, `ops` may be NULL (then only the tags inside the struct exist), `flags` is the
 * fit that ARENA_INSTANT_FIT stands for (ARENA_BEST_FIT makes it best fit). Fails only with ARENA_BAD_ARGUMENT. Takes no memory.
 */
enum arena_status arena_init(struct arena *arena, const char *name, uint64_t quantum, const struct arena_ops *ops, void *ctx, unsigned flags);
/* From now on imports what it lacks. Before the first alloc. */
void arena_set_source(struct arena *arena, const struct arena_source *source, void *source_ctx);
/*
 * It gives multiples of `unit`, a power of two; 1, as after arena_set_source: anything. So it is not asked for what would pass the limit and go back
 * at once, which would wake all that import from it, and whoever has asked among them. Before the first alloc.
 */
void arena_set_source_unit(struct arena *arena, uint64_t unit);
/*
 * Imports that would make imported spans hold more than `limit` integers fail as if the source had none; UINT64_MAX, as after arena_init: no limit. A
 * span that is larger than what was asked for, and too large for the limit, is given back at once, or kept where the source has no release.
 */
void arena_set_limit(struct arena *arena, uint64_t limit);
/*
 * Creates the caches; qcache_max is a multiple of the quantum, at most ARENA_QCACHES_MAX of it. ARENA_NO_SPACE where one can't be
 * made (then none is). Before the first alloc.
 */
enum arena_status arena_set_quantum_caches(struct arena *arena, const struct arena_qcache_ops *ops, void *ctx, uint64_t qcache_max);
/* Takes them away again, as arena_destroy does. ARENA_BUSY: objects of one are out; those before it are gone, and their sizes come from segments. */
enum arena_status arena_drop_quantum_caches(struct arena *arena);
/* The slab size for an arena's quantum caches: the next power of two above three times qcache_max. */
uint64_t arena_quantum_slab_size(uint64_t qcache_max);
/* Gives back caches, imported spans and memory. ARENA_BUSY where segments or cached objects are still allocated: the arena stays usable. */
enum arena_status arena_destroy(struct arena *arena);

/* ------------------------------------------------------------------ spans */

/* ARENA_BAD_ARGUMENT, ARENA_BAD_RANGE, ARENA_OVERLAP, ARENA_NO_TAGS. */
enum arena_status arena_add(struct arena *arena, uint64_t start, uint64_t size);
/* The same; but an added span that ends in front of the range becomes so much longer, as no segment reaches over the end of one. */
enum arena_status arena_extend(struct arena *arena, uint64_t start, uint64_t size);
/* Takes a whole added span out again. ARENA_NOT_ALLOCATED (no added span starts there), ARENA_SIZE_MISMATCH, ARENA_BUSY. */
enum arena_status arena_remove(struct arena *arena, uint64_t start, uint64_t size);

/* ------------------------------------------------------------------ segments */

/* `flags`: enum arena_flags, but for ARENA_QUIET. Sizes up to qcache_max come from the quantum caches, whatever the fit. */
enum arena_status arena_alloc(struct arena *arena, uint64_t size, unsigned flags, uint64_t *start);
enum arena_status arena_free(struct arena *arena, uint64_t start, uint64_t size);
/*
 * For arenas that import: a segment, round the quantum caches, that arena_free, arena_resize and the like refuse until it is taken back: who frees in
 * the source what an importer has would give it to two. What had to come out of a quantum cache, as there was no other, is not protected. flags may
 * hold ARENA_QUIET.
 */
enum arena_status arena_lend(struct arena *arena, uint64_t size, unsigned flags, uint64_t *start);
enum arena_status arena_take_back(struct arena *arena, uint64_t start, uint64_t size);
/*
 * A segment inside [min, max) at `phase` from a multiple of `align`, that crosses no multiple of `nocross`. 0 means "no
 * constraint" for each; align and nocross are powers of two and multiples of the quantum, phase is a multiple of it and less
 * than align. Bypasses the quantum caches: give back by arena_xfree. Imports only where neither min nor max is given.
 */
enum arena_status arena_xalloc(struct arena *arena, uint64_t size, uint64_t align, uint64_t phase, uint64_t nocross, uint64_t min, uint64_t max,
                               unsigned flags, uint64_t *start);
enum arena_status arena_xfree(struct arena *arena, uint64_t start, uint64_t size);
/*
 * Of arena_xalloc, for quantum caches: where there is none nobody is asked to give something back, and no failure is counted, as what it is wanted
 * for has not failed yet.
 */
enum arena_status arena_try(struct arena *arena, uint64_t size, uint64_t align, uint64_t *start);
/* Whether this thread's requests are like that anyway, as ops->is_hushed says. */
bool arena_is_hushed(struct arena *arena);
/* Likewise, for what they cut up: until it is given back it is refused to all others, as what is lent. */
enum arena_status arena_slab_alloc(struct arena *arena, uint64_t size, uint64_t align, uint64_t *start);
enum arena_status arena_slab_free(struct arena *arena, uint64_t start, uint64_t size);
/* As arena_try, for who is about to sleep for it by itself: sources are asked as by any request that sleeps, with ARENA_SLEEP and not quietly. */
enum arena_status arena_urge(struct arena *arena, uint64_t size, uint64_t *start);
/*
 * Changes the size of an allocated segment in place. ARENA_NO_SPACE where what follows is not free or too small. For segments
 * that did not come from a quantum cache and will not go there (both sizes above qcache_max, or xalloc and xfree).
 */
enum arena_status arena_resize(struct arena *arena, uint64_t start, uint64_t old_size, uint64_t new_size);
/*
 * An allocated segment becomes two of `first_size` and the rest, or two that lie side by side in one span become one of both sizes. Each part is
 * freed for itself. first_size: a multiple of the quantum, less than `size`. For segments that don't come from a quantum cache. ARENA_NO_TAGS: no
 * memory for one more; ARENA_NOT_ALLOCATED also where none lies right behind.
 */
enum arena_status arena_split(struct arena *arena, uint64_t start, uint64_t size, uint64_t first_size);
enum arena_status arena_join(struct arena *arena, uint64_t start, uint64_t size, uint64_t next_size);
/* What arena_join would say, with nothing done. */
enum arena_status arena_join_check(struct arena *arena, uint64_t start, uint64_t size, uint64_t next_size);

/* Sleepers look again: something outside has changed that may serve them, as what the source has. Calls nothing but ops->wake. */
void arena_wake(struct arena *arena);

/*
 * For a composer that sleeps by itself, as what it waits for may come to its quantum caches, too: from begin to end it counts as a waiter. Returns
 * the word that moves, and that ops->wake is called with, whenever free space appears here, and with arena_wake. reclaim: before each sleep, as
 * ops->reclaim; count: one begins.
 */
const uint32_t *arena_wait_begin(struct arena *arena);
bool arena_wait_reclaim(struct arena *arena, uint64_t size, bool again);
void arena_wait_count(struct arena *arena);
void arena_wait_end(struct arena *arena);

/* ------------------------------------------------------------------ looking inside */

enum arena_kinds {
    ARENA_ALLOCATED = 1,
    ARENA_FREE = 2,
    ARENA_SPAN = 4,
};
struct arena_segment {
    uint64_t start;
    uint64_t size;
    unsigned kind; /* one of enum arena_kinds */
};
/*
 * Calls visit for each segment of the kinds in `kinds`, in address order, a span before its segments, with no lock held. While
 * others change the arena: what stays as it is during the walk is visited once. visit returns false to end the walk.
 */
void arena_walk(struct arena *arena, unsigned kinds, bool (*visit)(const struct arena_segment *segment, void *argument), void *argument);
/* Integers that are ARENA_ALLOCATED, ARENA_FREE, or both (all spans). What quantum caches hold counts as allocated. */
uint64_t arena_size(struct arena *arena, unsigned kinds);
/* Whether more is allocated than the slabs of quantum caches. */
bool arena_in_use(struct arena *arena);
/* The size of the allocated segment that starts there; ARENA_NOT_ALLOCATED. Sees what quantum caches hold as the slabs that it is cut from. */
enum arena_status arena_lookup(struct arena *arena, uint64_t start, uint64_t *size);
/* Whether one span holds all of [start, start + size). */
bool arena_contains(struct arena *arena, uint64_t start, uint64_t size);
/* The lowest and the highest integer of all spans. False: none can be told, as there is a source, or no span. */
bool arena_bounds(struct arena *arena, uint64_t *lowest, uint64_t *highest);

struct arena_stats {
    const char *name;
    uint64_t quantum;
    uint64_t total, allocated, free; /* integers */
    uint64_t imported, limit;        /* integers */
    uint64_t spans, segments_allocated, segments_free;
    uint64_t tags_total, tags_spare, tag_batches, hash_buckets;
    uint64_t memory_bytes; /* of batches and tables */
    uint64_t waiters;
    struct arena_counters counters;
};
void arena_stats_get(struct arena *arena, struct arena_stats *stats);

/*
 * Verifies every invariant as an equation: segments fill their span without a gap and in order; free neighbours are merged;
 * each free segment is on the list of its size and the map tells which lists are used; each allocated one is in the hash, and
 * nothing else; counters equal sums; every tag is in use or spare. NULL when all hold, else a text that names the broken one.
 */
const char *arena_check(struct arena *arena);

/* Around fork: prepare locks; parent unlocks; child frees the lock and forgets what threads that are gone were doing. */
void arena_fork_prepare(struct arena *arena);
void arena_fork_parent(struct arena *arena);
void arena_fork_child(struct arena *arena);

#endif
