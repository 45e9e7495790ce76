/*
 * debug.h - the third facade of slab/: debugged buffers, of malloc's classes and of object caches.
 *
 * Each cache that has features, or had them, has a debug_cache; its buffers lie in the slabs of a *twin*, a layout that follows from the features.
 * New features make a new twin, and the old one goes when its last buffer is freed: so an address tells by the slab that it is in whether it is
 * debugged, and how. A slab is described by a structure outside of it, with a slot for each buffer: where the buffer begins in its place, how much
 * was asked for, its last transactions, its contents.
 *
 *     place:  | redzone in front | buffer, as long as was asked for | redzone to the end of the place |
 *
 * With a firewall the place ends with a page without access, the buffer as near before that as its alignment allows, and the slab lies in address
 * space of its own. Places are used again in the order in which they were freed.
 *
 * Invariants (debug_check): in_use = the slots in use of all slabs of all twins; a slot that is not in use is in its twin's queue, once. Locks: one a
 * cache and one a log (LOCK_RANK_SLAB); layer->lock (LOCK_RANK_DEBUG) guards the list of caches. Stacks are walked, and sources called, with none
 * held.
 */
#ifndef STRATA_SLAB_DEBUG_H
#define STRATA_SLAB_DEBUG_H

#include "slab/objects.h"

#define DEBUG_FRAMES_MAX 32
#define DEBUG_FRAMES_USUAL 15
#define DEBUG_AUDIT_MAX 64
#define DEBUG_CONTENTS_MAX 4096
#define DEBUG_NAME_BYTES 32
#define DEBUG_LOG_FRAMES 16

/* Zeros: none. See strata/debug.h for what each does. */
struct debug_features {
    uint16_t audit; /* transactions of each buffer */
    uint16_t frames;
    uint16_t contents; /* bytes */
    bool guards, firewall, seeded;
    uint32_t firewall_min; /* bytes */
    uint32_t verify;       /* each so many transactions */
    uint32_t mtbf;
    uint64_t seed;
};

enum debug_kind { DEBUG_KIND_ALLOCATED = 1, DEBUG_KIND_FREED, DEBUG_KIND_FAILED };

/* What is kept of one. In slots, `frame` has as many places as the features say. */
struct debug_transaction {
    uint64_t time_ns, bytes;
    uint32_t thread;
    uint16_t kind; /* enum debug_kind */
    uint16_t frames;
    uintptr_t frame[];
};

enum debug_state { DEBUG_STATE_FREE, DEBUG_STATE_IN_USE };
struct debug_slot {
    struct list link;     /* not in use: of the twin's queue */
    uint64_t bytes;       /* that were asked for, the last time */
    uint32_t index;       /* in its slab; immutable */
    uint32_t offset;      /* of the buffer in its place */
    uint8_t state;        /* enum debug_state */
    uint8_t transactions; /* that are kept */
    uint8_t newest;       /* which place has the last one */
    bool was_used;
    bool of_class;                         /* in use: asked for by the name of its size class, so that any size of that may free it */
    bool leaving;                          /* in use: somebody frees it, see debug_claim_leaving */
    uint16_t freed_bytes, allocated_bytes; /* of contents */
};

/* A layout, and the slabs of that layout. Immutable but for the lists and counts, which are under the cache's lock. */
struct debug_twin {
    struct debug_cache *cache;
    struct list link; /* of cache->twins, the youngest first */
    uint64_t id;      /* grows from twin to twin */
    struct debug_features features;
    uint64_t stride, reach; /* from place to place; of that, up to where there is access */
    uint64_t lead;          /* the least in front of a buffer */
    uint64_t slab_bytes, slab_align;
    uint32_t capacity, slot_bytes, transaction_bytes, described_granules;
    struct list slabs, queue;
    uint64_t in_use, pins; /* pins: slabs on their way */
};

struct debug_slab {
    struct debug_twin *twin;
    struct list link;
    uintptr_t start;
    uint64_t id; /* grows from slab to slab; 0: not known to others, or no longer */
    uint32_t in_use;
    uint32_t chunk; /* of the firewall's address space */
    struct debug_slot slots[];
};

struct debug_cache {
    struct debug_layer *layer; /* immutable, as are the next six */
    const char *name;
    uint64_t bytes, align; /* of an object; malloc's are 16 */
    bool of_malloc;
    const struct slab_source *source; /* NULL: the zone */
    void *source_context;
    struct list link; /* of layer->caches */
    uint64_t id;      /* grows from cache to cache */
    struct platform_lock lock;
    struct debug_features features; /* now */
    bool active;                    /* they are some; atomic, as is the next */
    uint32_t traced;                /* what is to be found out before the lock is taken: the most frames of a twin, and the most audit << 16 */
    struct list twins;
    uint64_t in_use; /* atomic, as are the next two */
    uint64_t free, slabs;
    uint64_t random, transactions;
    uint64_t allocs, frees, injected, memory_bytes, described_bytes;
};

struct debug_log_entry {
    uint64_t time_ns, bytes;
    const void *buffer;
    uint32_t thread;
    uint16_t kind, frames;
    char cache[DEBUG_NAME_BYTES];
    uintptr_t frame[DEBUG_LOG_FRAMES];
};
struct debug_log {
    struct platform_lock lock;
    struct debug_log_entry *entries; /* atomic; NULL: off */
    uint64_t capacity, written;
    unsigned granules;
};
enum debug_log_name { DEBUG_LOG_TRANSACTION, DEBUG_LOG_FAIL, DEBUG_LOGS };

/* Of the firewall's address space. Both atomic. */
struct debug_chunk {
    struct debug_slab *slab;   /* NULL: free */
    struct debug_cache *cache; /* written before it */
};

struct debug_layer {
    struct zone *zone;
    struct platform_lock lock;
    struct list caches;
    uint64_t ended;                                          /* how many caches have; under the lock */
    uint64_t next_id;                                        /* atomic */
    bool goes_on;                                            /* after an error; atomic */
    uint64_t errors, plain, failed, allocs, frees, injected; /* atomic */
    struct debug_log logs[DEBUG_LOGS];
    /* Address space for firewalls: chunks of a superpage's size, by turns. */
    struct platform_lock window_lock;
    uintptr_t window;
    uint64_t window_bytes; /* atomic; 0: none yet */
    struct debug_chunk *chunks;
    uint32_t chunk_count, next_chunk;
    uint64_t open_places; /* with access; atomic */
};

void debug_layer_init(struct debug_layer *layer, struct zone *zone);

/* A cache without features. The name stays the caller's. NULL: no memory. */
struct debug_cache *debug_cache_create(struct debug_layer *layer, const char *name, uint64_t bytes, uint64_t align, const struct slab_source *source,
                                       void *source_context, bool of_malloc);
/* Gives all back, also what is in use; returns how many buffers that was. Nobody uses the cache any more. */
uint64_t debug_cache_destroy(struct debug_cache *cache);
/* Whether a slab holds an object, with what these features and its alignment put round it. Those of malloc's classes fit always. */
bool debug_cache_has_room(struct debug_cache *cache, const struct debug_features *features);
/* NULL: off; else some that it has room for. False: no memory, and nothing has changed. */
bool debug_cache_set(struct debug_cache *cache, const struct debug_features *features);
STRATA_INLINE bool debug_cache_is_active(const struct debug_cache *cache) { return __atomic_load_n(&cache->active, __ATOMIC_ACQUIRE); }
/* Whether it has features, or buffers from when it had. */
STRATA_INLINE bool debug_cache_is_used(const struct debug_cache *cache) {
    return debug_cache_is_active(cache) || __atomic_load_n(&cache->in_use, __ATOMIC_RELAXED) != 0;
}

/* The same by the lock: whoever changes that later sees what the caller wrote before. */
bool debug_cache_is_used_now(struct debug_cache *cache);

enum debug_outcome {
    DEBUG_GIVEN,
    DEBUG_PLAIN,   /* there is none to be had: an ordinary one is in place */
    DEBUG_REFUSED, /* by mtbf */
};
/* A buffer; `function` is the program's, for messages. align: a power of two; above the cache's own, it needs as much room more. */
enum debug_outcome debug_alloc(struct debug_cache *cache, uint64_t bytes, uint64_t align, const char *function, void **buffer);

/*
 * The slab round an address, by what is known without a lock: of the zone's, or in the firewall's address space. It may be freed at any time, but
 * under the lock of its cache.
 */
struct debug_slab *debug_slab_round(struct debug_layer *layer, uintptr_t address);
/* The cache that a debugged buffer at or round this address is of, or was a moment ago; NULL: none. Found as above. */
struct debug_cache *debug_cache_of(struct debug_layer *layer, const void *address);

enum debug_claim {
    DEBUG_FOREIGN, /* no debugged buffer of this cache */
    DEBUG_LIVE,    /* one in use, its guards whole */
    DEBUG_WRONG,   /* reported: what is freed is no buffer in use */
};
/* Whether mtbf spares the calling thread; returns whether it did. */
bool debug_spare(bool spared);
/* Where the generator of failures begins: another place for each name. */
uint64_t debug_seed(const struct debug_features *features, const char *name);
/* By mtbf (0: none) and a generator of the caller's own (atomic): whether an allocation shall fail, which is counted then. */
bool debug_is_refused(struct debug_layer *layer, uint32_t mtbf, uint64_t *random);
/* Enters a failure into the log, if that is on. */
void debug_log_failure(struct debug_layer *layer, const char *name, uint64_t bytes);

#define DEBUG_TWICE "double free"
/* Looks a pointer over that is about to be freed, or asked about: *bytes (may be NULL) is what was asked for. `twice` reports one that was freed. */
enum debug_claim debug_claim(struct debug_cache *cache, const void *address, const char *function, const char *twice, uint64_t *bytes);
/*
 * The same for who has something to do before it is freed, and then calls debug_free_leaving: meanwhile every other free is a double one.
 */
enum debug_claim debug_claim_leaving(struct debug_cache *cache, const void *address, const char *function);
/* Of a live buffer: it was asked for by its class; whether it was. */
void debug_set_of_class(struct debug_cache *cache, const void *address);
bool debug_is_of_class(struct debug_cache *cache, const void *address);
/* Takes a buffer back. DEBUG_LIVE: done. */
enum debug_claim debug_free(struct debug_cache *cache, void *address, const char *function);
enum debug_claim debug_free_leaving(struct debug_cache *cache, void *address, const char *function);
/* An allocation failed for want of memory, or because a constructor refused. */
void debug_note_failure(struct debug_cache *cache, uint64_t bytes);
/* The same for what has no features, by its name. */
void debug_note_failure_of(struct debug_layer *layer, const char *name, uint64_t bytes);
/* A buffer of `cache` was given to a function that takes others, or with a size that is not its own: `what` says which. It is reported. */
void debug_wrong_free(struct debug_cache *cache, const void *address, const char *function, const char *what);

/* Checks all buffers; returns how many are damaged, each reported. */
uint64_t debug_cache_verify(struct debug_cache *cache, const char *function);
/* Gives empty slabs back; returns their bytes. */
uint64_t debug_cache_reap(struct debug_cache *cache);
/* The same for all caches but those with a source of the program's. */
uint64_t debug_reap(struct debug_layer *layer);
/* Of its buffers, all of one moment. total: with the free places; allocs, frees: since it was made. */
struct debug_figures {
    uint64_t in_use, total, slabs, memory_bytes, allocs, frees;
};
void debug_figures_get(struct debug_cache *cache, struct debug_figures *figures);
/* Calls visit for each cache, under layer->lock. */
void debug_each(struct debug_layer *layer, void (*visit)(struct debug_cache *cache, void *argument), void *argument);

/* ------------------------------------------------------------------ looking at buffers */

/* Where a walk is; zeros at its start. cache: the one with that id, where no more have ended; slab: likewise, at `start`, as long as it is there. */
struct debug_cursor {
    uint64_t cache_id, twin_id, slab_id;
    struct list *cache;
    uint64_t ended;
    const struct debug_slab *slab;
    uintptr_t start;
};
/* A slab as it was at a moment: `slab` is a copy, its twin and its cache are not. */
struct debug_copy {
    struct debug_features features;
    char name[DEBUG_NAME_BYTES];
    uint64_t stride;
    uint32_t capacity, slot_bytes, transaction_bytes;
    struct debug_slab *slab; /* room for DEBUG_COPY_BYTES */
};
#define DEBUG_COPY_BYTES SUPERPAGE_BYTES
/* The next slab of a cache that `match` takes. False: there is none. */
bool debug_copy_next(struct debug_layer *layer, struct debug_cursor *cursor, bool (*match)(const struct debug_cache *cache, void *argument),
                     void *argument, struct debug_copy *copy);
/* The slab that an address is in, and which slot. */
bool debug_copy_of(struct debug_layer *layer, const void *address, struct debug_copy *copy, unsigned *index);

STRATA_INLINE const struct debug_slot *debug_copy_slot(const struct debug_copy *copy, unsigned index) {
    return (const struct debug_slot *)(const void *)((const char *)copy->slab->slots + (size_t)index * copy->slot_bytes);
}
STRATA_INLINE uintptr_t debug_copy_address(const struct debug_copy *copy, unsigned index) {
    return copy->slab->start + index * copy->stride + debug_copy_slot(copy, index)->offset;
}
/* The transactions of a slot, 0 the newest; the contents at the last free, and at the last allocation. */
const struct debug_transaction *debug_slot_transaction(const struct debug_slot *slot, const struct debug_features *features, unsigned n);
const void *debug_slot_contents(const struct debug_slot *slot, const struct debug_features *features, bool freed);

/* ------------------------------------------------------------------ logs */

/* 0: off. False: no memory, and nothing has changed. */
bool debug_log_set(struct debug_layer *layer, enum debug_log_name name, uint64_t bytes);
/* Copies the entries, newest first, into room for `capacity`; returns how many. */
uint64_t debug_log_copy(struct debug_layer *layer, enum debug_log_name name, struct debug_log_entry *entries, uint64_t capacity);

/* Entries since it was set. */
uint64_t debug_log_written(struct debug_layer *layer, enum debug_log_name name);

const char *debug_check(struct debug_layer *layer);
void debug_fork_prepare(struct debug_layer *layer);
void debug_fork_done(struct debug_layer *layer);

#endif
