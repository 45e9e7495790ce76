/*
 * slab_internal.h - a slab's head, and which bucket it stands in: for slab.c and its check. Private to the two.
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

#endif
