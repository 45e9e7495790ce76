/*
 * slab_check.c - who looks inside: the invariants of slab.h, for tests and `strata_check`, and the statistics of a cache.
 */
#include "slab/slab_internal.h"

static STRATA_COLD const char *check_shard(struct slab_layer *slabs, struct slab_cache *cache, unsigned index) {
    const struct slab_shard *shard = slab_shard_at(cache, index);
    uint64_t free_objects = 0, empty = 0;
    for (unsigned b = 0; b < SLAB_BUCKETS; b++) {
        if ((shard->buckets[b] != SLAB_NONE) != ((shard->bucket_map >> b & 1) != 0)) return "slab: bucket map differs from the buckets";
        uint32_t prev = SLAB_NONE;
        for (uint32_t head = shard->buckets[b]; head != SLAB_NONE; head = slab_at(slabs, head)->next) {
            const struct slab *slab = slab_at(slabs, head);
            unsigned bits = 0;
            for (unsigned w = 0; w < (slab->capacity + 63u) / 64; w++) {
                bits += bit_count(slab->bits[w]);
                if (w < slab->first && slab->bits[w] != 0) return "slab: a free object before the first word";
            }
            if (bits != slab->free || bits == 0) return "slab: free differs from its bits, or a full slab is in a bucket";
            if (slab->bucket != b || slab_bucket_of(slab) != b || slab->limit != slab_limit_of(slab, b)) return "slab: in the wrong bucket";
            if (slab->shard != index) return "slab: in the wrong shard";
            if (slab->prev != prev || slabs->zone->tags[slab->granule] != cache->tag || zone_head_of(slabs->zone, slab->granule) != head)
                return "slab: broken link";
            prev = head;
            free_objects += bits;
            empty += slab->free == slab->capacity;
        }
    }
    if (free_objects != shard->free) return "slab: free objects of a shard differ from their count";
    if (empty != shard->empty_slabs) return "slab: empty slabs differ from their count";
    return NULL;
}

static STRATA_COLD const char *check_cache(struct slab_layer *slabs, struct slab_cache *cache) {
    FOR_EACH_SHARD(shard, slab_shards_of(cache)) {
        const char *broken = check_shard(slabs, cache, shard);
        if (broken != NULL) return broken;
    }
    const struct slab_shard sum = slab_shards_sum(cache);
    return sum.allocs - sum.frees + sum.free != cache->total ? "slab: in use + free differs from the total" : NULL;
}

STRATA_COLD const char *slab_check(struct slab_layer *slabs) {
    const char *broken = NULL;
    for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_END && broken == NULL; tag++) {
        slab_shards_lock(&slabs->caches[tag]);
        broken = check_cache(slabs, &slabs->caches[tag]);
        slab_shards_unlock(&slabs->caches[tag]);
    }
    return broken;
}

STRATA_SELDOM void slab_stats_get(struct slab_layer *slabs, unsigned tag, struct slab_stats *stats) {
    struct slab_cache *cache = &slabs->caches[tag];
    slab_shards_lock(cache);
    const struct slab_shard sum = slab_shards_sum(cache);
    *stats = (struct slab_stats){.object_bytes = cache->object_bytes,
                                 .slab_bytes = (uint64_t)slab_next_granules(cache) << GRANULE_SHIFT,
                                 .slabs = cache->slabs,
                                 .total = cache->total,
                                 .in_use = cache->total - sum.free,
                                 .memory_bytes = cache->granules << GRANULE_SHIFT,
                                 .allocs = sum.allocs,
                                 .frees = sum.frees};
    slab_shards_unlock(cache);
}
