/*
 * slab.h - the facade of slab/: objects of one size cut from page runs, in batches.
 *
 * A slab is a run of granules; its head (beside the heap, never in it: 32 bytes of up to 64 objects) has one
 * bit an object, set while the object is free here. Slabs with free objects stand in lists by the share that is free;
 * objects are taken from the fullest, lowest address first, so that the emptier ones get time to empty (kmem paper,
 * section 3.5). A slab that is wholly free goes back to the zone when its pages are wanted, or at the next tick.
 *
 * The lists come in shards: one that all share, and some for CPUs that keep apart, made when the first of them asks. A slab is in one shard, and goes
 * to another where that one needs it (slab_shard.c).
 *
 * Invariants (slab_check): free = popcount(bits); total = sum of capacities; allocs - frees = total - sum of free; a slab is in the
 * list of its share, in its shard. Locks: one a shard, LOCK_RANK_SLAB, above LOCK_RANK_ZONE in the order of taking. Who holds one may try another's;
 * who holds the common shard's may wait for all others, in their order.
 */
#ifndef STRATA_SLAB_SLAB_H
#define STRATA_SLAB_SLAB_H

#include "page/page.h"
#include "slab/size_classes.h"

/* Caches are numbered by the tag of their granules; TAG_SLAB is the first size class. */
#define SLAB_CACHE_FIRST TAG_SLAB
#define SLAB_MAGAZINE_CACHES 6
#define SLAB_CACHE_MAGAZINES (SLAB_CACHE_FIRST + SIZE_CLASS_COUNT)
#define SLAB_CACHE_END (SLAB_CACHE_MAGAZINES + SLAB_MAGAZINE_CACHES)

#define SLAB_BUCKETS 4
#define SLAB_RECIPROCAL_SHIFT 40
#define SLAB_NAME_BYTES 16

/* Shard 0 is common; the others are for homes (see below), some of which share one. */
#define SLAB_HOME_SHARDS 8
#define SLAB_SHARDS (1 + SLAB_HOME_SHARDS)

/* Some of the slabs of a cache, under one lock. A cache line, so that CPUs that keep apart don't wait for each other. */
struct slab_shard {
    struct platform_lock lock;
    uint8_t bucket_map;             /* bit b: bucket b is not empty */
    uint32_t empty_slabs;           /* wholly free ones */
    uint32_t buckets[SLAB_BUCKETS]; /* by (free - 1) * SLAB_BUCKETS / capacity: the first slab's head; SLAB_NONE */
    uint64_t free;                  /* objects */
    uint64_t allocs, frees;         /* objects that went through this shard */
} STRATA_ALIGNED(CACHE_LINE_BYTES);

/* Two cache lines: there are many caches, and a small program pays for the pages that they are in. */
struct slab_cache {
    struct slab_shard common;
    char name[SLAB_NAME_BYTES]; /* immutable, as are the next seven */
    uint64_t reciprocal;        /* ceil(2^40 / object_bytes): a division by one multiplication */
    uint32_t object_bytes;
    uint16_t granules_min;   /* of the smallest slab that wastes at most a sixteenth */
    uint16_t granules_usual; /* granules_min * 2^n: in a cache that is not small */
    uint16_t granules_max;   /* the same, or more where that wastes less: in a dense cache */
    uint8_t tag;
    uint8_t mobility; /* enum mobility */

    uint16_t shards;                 /* bit s: shard s was begun; set under the common lock, never cleared; atomic */
    uint64_t slabs, granules, total; /* of all shards, atomic: whoever makes or unmakes a slab holds its shard's lock only */
};

struct slab_layer {
    struct zone *zone;
    uint64_t empty_granules;                    /* of wholly free slabs in common shards; atomic, relaxed: who reads it has a rule of thumb */
    uint32_t shards;                            /* bit s: shard s was begun, of one cache at least; atomic */
    struct slab_cache caches[SLAB_CACHE_END];   /* by tag; the first SLAB_CACHE_FIRST are unused */
    uint8_t class_of[SIZE_CLASS_TABLE_ENTRIES]; /* size_class_index -> tag */
    uint64_t sizes[SLAB_CACHE_END];             /* reciprocal << 16 | object_bytes: eight in a line that nobody writes to */
};

/* `magazine_bytes` are the sizes of the caches from SLAB_CACHE_MAGAZINES on. */
void slab_init(struct slab_layer *slabs, struct zone *zone, const uint32_t magazine_bytes[SLAB_MAGAZINE_CACHES]);

STRATA_INLINE unsigned slab_class_of_size(const struct slab_layer *slabs, size_t bytes) { return slabs->class_of[size_class_index(bytes)]; }
/* The same of sizes up to SIZE_CLASS_FINE_BYTES. */
STRATA_INLINE unsigned slab_class_of_fine(const struct slab_layer *slabs, size_t bytes) { return slabs->class_of[size_class_fine_index(bytes)]; }
STRATA_INLINE bool slab_is_cache(unsigned tag) { return tag >= SLAB_CACHE_FIRST && tag < SLAB_CACHE_END; }

/*
 * Homes: two CPUs that write to one cache line wait for each other, and so they do where objects of both lie in one slab. A slab belongs to who took
 * objects out of it last while half of it was free. CPUs (threads, where each has an area of its own) have the numbers 1 to SLAB_HOMES, 0 is nobody;
 * beyond these some share a number, which costs some lines.
 */
#define SLAB_HOMES 255
STRATA_INLINE unsigned slab_home_of_cpu(uint32_t id) { return 1 + id % SLAB_HOMES; }
/* Whose slab the object is in; 0 also where it is in none. Lock-free, and out of date at once: a hint. The object is the caller's. */
unsigned slab_home_of(const struct slab_layer *slabs, unsigned cache, const void *object);
/* Sorts objects in their place: those of one home in front, in their order; returns how many they are. Likewise. */
unsigned slab_sort_by_home(const struct slab_layer *slabs, unsigned cache, unsigned home, void **objects, unsigned count);

/*
 * Up to `count` objects, in the order of arrays, which are popped from their ends: those of the fullest slab last, descending in each; fewer only
 * where memory ends, or a new slab would be needed for the rest. The array has room for all, and what is behind the result is lost. Constant time an
 * object. `home`: who asks. `apart`: from slabs of the home's shard, from wholly free ones and from new ones, as long as not too much of the cache is
 * free.
 */
unsigned slab_alloc_home(struct slab_layer *slabs, unsigned cache, unsigned home, bool apart, void **objects, unsigned count);
STRATA_INLINE unsigned slab_alloc_batch(struct slab_layer *slabs, unsigned cache, void **objects, unsigned count) {
    return slab_alloc_home(slabs, cache, 0, false, objects, count);
}
/*
 * Takes objects back. Each is verified: an address that is not the start of an object of this cache, or that is free already,
 * ends the process with one line.
 */
void slab_free_batch(struct slab_layer *slabs, unsigned cache, void *const *objects, unsigned count);
/* Whether the address is the start of an object of a slab (not whether it is allocated). Lock-free; the object is the caller's. */
bool slab_is_object(const struct slab_layer *slabs, unsigned cache, const void *object);
/*
 * The size of the objects of whose slab one starts at `offset` bytes in the zone, in a granule with this tag, which is a slab's; 0: none does. By the
 * tag alone, so without a look at the slab, which is seldom in the processor's cache: what is left over behind a slab's last object may be taken for
 * one. The remainder by one multiplication (Lemire, Kaser and Kurz, Faster remainder by direct computation, section 3.2): the product's fraction is
 * below the reciprocal where it is 0. Exact for slabs of less than 1 MiB and objects of at most 32 KiB. Lock-free, constant time.
 */
STRATA_INLINE size_t slab_bytes_of(const struct slab_layer *slabs, granule_tag tag, uintptr_t offset) {
    uint64_t size = slabs->sizes[tag & 0xff], reciprocal = size >> 16,
             behind = (uint64_t)(tag >> 8) << GRANULE_SHIFT | (offset & (GRANULE_BYTES - 1));
    return behind * reciprocal << (64 - SLAB_RECIPROCAL_SHIFT) < reciprocal << (64 - SLAB_RECIPROCAL_SHIFT) ? size & UINT16_MAX : 0;
}
/* The size of the objects of a cache. */
STRATA_INLINE size_t slab_object_bytes(const struct slab_layer *slabs, unsigned cache) { return slabs->sizes[cache] & UINT16_MAX; }
/*
 * The smallest class whose objects all are aligned to `align`, a power of two <= 4096: that of the next multiple, but where it is one with room for a
 * header. The largest class is aligned to all.
 */
STRATA_INLINE unsigned slab_class_of_aligned(const struct slab_layer *slabs, size_t bytes, size_t align) {
    unsigned tag = slab_class_of_size(slabs, align_up(max_u64(bytes, 1), align));
    while (STRATA_UNLIKELY((slab_object_bytes(slabs, tag) & (align - 1)) != 0)) tag++;
    return tag;
}

/* Gives wholly free slabs back to the zone. */
void slab_reap(struct slab_layer *slabs);
/* Who is about to touch `granules` for the first time says so before: wholly free slabs go then, where they are a share worth it. */
void slab_reap_for(struct slab_layer *slabs, uint64_t granules);

struct slab_stats {
    uint64_t object_bytes, slab_bytes, slabs, total, in_use, memory_bytes, allocs, frees;
};
void slab_stats_get(struct slab_layer *slabs, unsigned cache, struct slab_stats *stats);
const char *slab_check(struct slab_layer *slabs);

void slab_fork_prepare(struct slab_layer *slabs);
void slab_fork_parent(struct slab_layer *slabs);
void slab_fork_child(struct slab_layer *slabs);

#endif
