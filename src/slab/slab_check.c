/*
 * slab_check.c - the invariants of slab.h, for tests and `strata_check`.
 */
#include "slab/slab_internal.h"

static STRATA_COLD const char *check_cache(struct slab_layer *slabs, const struct slab_cache *cache) {
    uint64_t free_objects = 0, empty = 0;
    for (unsigned b = 0; b < SLAB_BUCKETS; b++) {
        if ((cache->buckets[b] != SLAB_NONE) != ((cache->bucket_map >> b & 1) != 0)) return "slab: bucket map differs from the buckets";
        uint32_t prev = SLAB_NONE;
        for (uint32_t head = cache->buckets[b]; head != SLAB_NONE; head = slab_at(slabs, head)->next) {
            const struct slab *slab = slab_at(slabs, head);
            unsigned bits = 0;
            for (unsigned w = 0; w < (slab->capacity + 63u) / 64; w++) {
                bits += bit_count(slab->bits[w]);
                if (w < slab->first && slab->bits[w] != 0) return "slab: a free object before the first word";
            }
            if (bits != slab->free || bits == 0) return "slab: free differs from its bits, or a full slab is in a bucket";
            if (slab->bucket != b || slab_bucket_of(slab) != b || slab->limit != slab_limit_of(slab, b)) return "slab: in the wrong bucket";
            if (slab->prev != prev || slabs->zone->tags[slab->granule] != cache->tag || zone_head_of(slabs->zone, slab->granule) != head)
                return "slab: broken link";
            prev = head;
            free_objects += bits;
            empty += slab->free == slab->capacity;
        }
    }
    if (cache->in_use + free_objects != cache->total) return "slab: in use + free differs from the total";
    if (empty != cache->empty_slabs) return "slab: empty slabs differ from their count";
    return NULL;
}

STRATA_COLD const char *slab_check(struct slab_layer *slabs) {
    const char *broken = NULL;
    for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_END && broken == NULL; tag++) {
        platform_lock_acquire(&slabs->caches[tag].lock);
        broken = check_cache(slabs, &slabs->caches[tag]);
        platform_lock_release(&slabs->caches[tag].lock);
    }
    return broken;
}
