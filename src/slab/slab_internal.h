/*
 * slab_internal.h - a slab's head, which bucket it stands in, and the way from an object to it. Private to slab.c, slab_shard.c,
 * slab_check.c and slab_home.c.
 */
#ifndef STRATA_SLAB_SLAB_INTERNAL_H
#define STRATA_SLAB_SLAB_INTERNAL_H

#include "slab/slab.h"

#define SLAB_NONE HEAD_NONE

/*
 * A slab is known by its head's number. Up to 64 objects need one unit of the zone's heads; two units a granule hold it for the smallest objects:
 * 24 + 256 / 8 <= 64.
 */
struct slab {
    uint32_t next, prev; /* neighbours in the bucket */
    uint32_t granule;    /* the first */
    uint16_t limit;      /* with so many free objects it is due in another bucket, or wholly free: see slab_limit_of */
    uint16_t free, capacity;
    uint8_t granules;
    uint8_t bucket;
    uint8_t first; /* no word before this one has a bit set */
    uint8_t home;  /* who took objects last; also read without the lock */
    uint8_t shard; /* changed under the locks of the old one and the new one; also read without */
    uint64_t bits[];
};
_Static_assert(sizeof(struct slab_cache) == 2 * CACHE_LINE_BYTES, "as slab.h says");
_Static_assert(SLAB_BUCKETS <= 8, "bucket_map has a bit for each");
_Static_assert(sizeof(struct slab) + GRANULE_BYTES / 16 / 8 <= 2 * HEAD_UNIT_BYTES, "a slab of the smallest objects fits its heads' units");

STRATA_INLINE struct slab *slab_at(const struct slab_layer *slabs, uint32_t head) { return zone_head(slabs->zone, head); }

/* Bucket 0 holds slabs with the fewest free objects, the last one all that are wholly free; free >= 1. */
STRATA_INLINE unsigned slab_bucket_of(const struct slab *slab) {
    return slab->free == slab->capacity ? SLAB_BUCKETS - 1 : (slab->free - 1u) * SLAB_BUCKETS / slab->capacity;
}

/*
 * With how many free objects a slab of this bucket is due elsewhere: who frees objects compares with it, and divides only then. One that is full, and
 * in no bucket, has the limit FULL_LIMIT, which no other has.
 */
#define FULL_LIMIT 0
STRATA_INLINE unsigned slab_limit_of(const struct slab *slab, unsigned bucket) {
    const unsigned next = ((bucket + 1) * slab->capacity + SLAB_BUCKETS - 1) / SLAB_BUCKETS + 1;
    return bucket < SLAB_BUCKETS - 1 && next < slab->capacity ? next : slab->capacity;
}

/* ------------------------------------------------------------------ shards: slab_shard.c */

/* What one home's shards of all caches are. In memory that a process touches only once CPUs keep apart in it. */
struct slab_home {
    uint64_t empty_granules STRATA_ALIGNED(CACHE_LINE_BYTES); /* as that of struct slab_layer */
    struct slab_shard of[SLAB_CACHE_END];
};
extern struct slab_home slab_homes[SLAB_HOME_SHARDS] __attribute__((visibility("hidden"))); /* there is one struct slab_layer in a process */

STRATA_INLINE struct slab_shard *slab_shard_at(struct slab_cache *cache, unsigned shard) {
    return STRATA_LIKELY(shard == 0) ? &cache->common : &slab_homes[shard - 1].of[cache->tag];
}
/* The shards of a cache that were begun, a bit each. Acquire order: pairs with the release of who began one. */
STRATA_INLINE unsigned slab_shards_of(const struct slab_cache *cache) { return __atomic_load_n(&cache->shards, __ATOMIC_ACQUIRE); }
/* For each shard of a set; the body may leave it. */
#define FOR_EACH_SHARD(shard, set) for (unsigned rest_ = (set), shard; rest_ != 0 && (shard = bit_lowest(rest_), true); rest_ &= rest_ - 1)

STRATA_INLINE void slab_shard_init(struct slab_shard *shard) {
    *shard = (struct slab_shard){.lock = PLATFORM_LOCK_INIT(LOCK_RANK_SLAB), .buckets = {SLAB_NONE, SLAB_NONE, SLAB_NONE, SLAB_NONE}};
}
/* That of a home, begun if need be; 0, the common one, in the midst of the caller's fork. Under no lock. */
unsigned slab_shard_of_home(struct slab_layer *slabs, struct slab_cache *cache, unsigned home);
/*
 * Moves a slab with free objects from another shard to this one, which has none: a wholly free one; or, where more of the cache is free than keeping
 * apart is worth, and always for the common shard, the fullest of some shard. False: a new one is better, or others hold their locks. Under the lock
 * of `shard`. Cost: linear in the shards, of each of which a bounded number of slabs is looked at.
 */
bool slab_adopt(struct slab_layer *slabs, struct slab_cache *cache, unsigned shard);
/* All shards of a cache: none of them changes, and no other begins. */
void slab_shards_lock(struct slab_cache *cache);
void slab_shards_unlock(struct slab_cache *cache);
/* Sums over the shards of a cache, under all locks. Only free, allocs and frees of the result are filled in. */
struct slab_shard slab_shards_sum(struct slab_cache *cache);

/* ------------------------------------------------------------------ lists: slab.c, under the shard's lock */

void slab_bucket_remove(struct slab_layer *slabs, struct slab_shard *shard, struct slab *slab);
void slab_bucket_insert(struct slab_layer *slabs, struct slab_shard *shard, struct slab *slab, uint32_t head, unsigned bucket);
/* A wholly free slab more in its shard (1), or one less (-1). */
void slab_count_empty(struct slab_layer *slabs, struct slab_cache *cache, const struct slab *slab, int more);

/* How large the next slab of a cache is to be: slab.c. A look without a lock. */
unsigned slab_next_granules(const struct slab_cache *cache);

/* ------------------------------------------------------------------ from an object to its slab */

/* What looking objects up takes of the zone and the cache, in registers: none of it changes, but the compiler can't know. */
struct slab_lookup {
    uintptr_t base;
    uint64_t units; /* of what the heap has ever had: more than any object that is in use now */
    const granule_tag *tags;
    struct head_area *heads;
    uint64_t reciprocal;
    uint32_t object_bytes;
    uint8_t tag;
};
STRATA_INLINE struct slab_lookup slab_lookup_of(const struct slab_layer *slabs, const struct slab_cache *cache) {
    const struct zone *zone = slabs->zone;
    return (struct slab_lookup){
        zone->base, __atomic_load_n(&zone->extent_units, __ATOMIC_ACQUIRE), zone->tags, zone->heads, cache->reciprocal, cache->object_bytes,
        cache->tag};
}

/* The slab that an address lies in, and how far behind its start; NULL where no slab of this cache is there. */
STRATA_INLINE struct slab *slab_look_up(const struct slab_lookup *lookup, const void *object, uint64_t *behind) {
    uintptr_t offset = (uintptr_t)object - lookup->base;
    if (STRATA_UNLIKELY(offset >> 4 >= lookup->units)) return NULL;
    size_t at = offset >> GRANULE_SHIFT;
    granule_tag tag = lookup->tags[at];
    if (STRATA_UNLIKELY((tag & 0xff) != lookup->tag)) return NULL;
    at -= tag >> 8;
    *behind = offset - (at << GRANULE_SHIFT);
    return zone_head_in(lookup->heads, at);
}

/* In which object lies what is so many bytes behind the first one's start. */
STRATA_INLINE unsigned slab_number_at(const struct slab_lookup *lookup, uint64_t behind) {
    return (unsigned)(behind * lookup->reciprocal >> SLAB_RECIPROCAL_SHIFT);
}

#endif
