/*
 * slab_shard.c - shards: the slabs of a cache in several lists, so that CPUs that keep apart don't wait for each other.
 *
 * One list and one lock for all of a cache's slabs is what keeps a program small, and what two threads that both come to the slabs wait for: the
 * lock, the counters behind it, and the heads in the list are written by both. So who keeps apart (cache.h) has slabs in a shard of its home. A shard
 * is begun when its home first asks for objects; until then, and in programs with one thread for ever, all slabs are in the common one.
 *
 * What a shard has free is of no use to another until that one adopts slabs. That it does as soon as it has none: wholly free slabs at any time,
 * others once much of the cache is free. So all shards together have little more free than one list would have.
 */
#include "slab/slab_internal.h"

struct slab_home slab_homes[SLAB_HOME_SHARDS];

/* Who keeps apart takes new slabs while at most this share of the cache, and so many bytes, are free in all shards. */
#define APART_SHARE 8
#define APART_BYTES_MIN (8 * KIB)

/* Release order: who sees the bit sees the shard. Of the layer only sums of rough counters are read by its bits, so a home's begins with what it was.
 */
static STRATA_NOINLINE void begin(struct slab_layer *slabs, struct slab_cache *cache, unsigned index) {
    platform_lock_acquire(&cache->common.lock);
    if ((cache->shards >> index & 1) == 0) {
        slab_shard_init(slab_shard_at(cache, index));
        __atomic_fetch_or(&slabs->shards, 1u << index, __ATOMIC_RELAXED);
        __atomic_store_n(&cache->shards, (uint16_t)(cache->shards | 1u << index), __ATOMIC_RELEASE);
    }
    platform_lock_release(&cache->common.lock);
}

unsigned slab_shard_of_home(struct slab_layer *slabs, struct slab_cache *cache, unsigned home) {
    if (home == 0) return 0;
    const unsigned index = 1 + (home - 1) % SLAB_HOME_SHARDS;
    if (STRATA_LIKELY((slab_shards_of(cache) >> index & 1) != 0)) return index;
    if (platform_fork_is_mine()) return 0; /* a shard that begins now would not be among those that are held */
    begin(slabs, cache, index);
    return index;
}

/* ------------------------------------------------------------------ adoption */

/* From one shard to another, under both locks. */
static void move(struct slab_layer *slabs, struct slab_cache *cache, uint32_t head, unsigned from, unsigned to) {
    struct slab_shard *giver = slab_shard_at(cache, from), *taker = slab_shard_at(cache, to);
    struct slab *slab = slab_at(slabs, head);
    const bool empty = slab->free == slab->capacity;
    if (empty) slab_count_empty(slabs, cache, slab, -1);
    slab_bucket_remove(slabs, giver, slab);
    slab_bucket_insert(slabs, taker, slab, head, slab->bucket);
    __atomic_store_n(&slab->shard, (uint8_t)to, __ATOMIC_RELEASE); /* who frees into it without having seen the shard begin sees that by this */
    COUNTER_SUB(giver->free, slab->free);
    COUNTER_ADD(taker->free, slab->free);
    if (empty) slab_count_empty(slabs, cache, slab, 1);
}

/* So many slabs are looked at for a wholly free one. */
#define EMPTY_LOOKS 64

/* The first slab of a shard that is wholly free, or, where any will do, the fullest; SLAB_NONE. Under its lock. */
static uint32_t find(const struct slab_layer *slabs, const struct slab_shard *shard, bool any) {
    if (any) return shard->bucket_map != 0 ? shard->buckets[bit_lowest(shard->bucket_map)] : SLAB_NONE;
    if (shard->empty_slabs == 0) return SLAB_NONE;
    unsigned looks = 0;
    for (uint32_t head = shard->buckets[SLAB_BUCKETS - 1]; head != SLAB_NONE && looks < EMPTY_LOOKS; head = slab_at(slabs, head)->next, looks++)
        if (slab_at(slabs, head)->free == slab_at(slabs, head)->capacity) return head;
    return SLAB_NONE;
}

static bool adopt_from(struct slab_layer *slabs, struct slab_cache *cache, unsigned from, unsigned to, bool any) {
    struct slab_shard *giver = slab_shard_at(cache, from);
    /* Rough looks, which leave most locks alone. */
    if (__atomic_load_n(&giver->empty_slabs, __ATOMIC_RELAXED) == 0 && (!any || __atomic_load_n(&giver->free, __ATOMIC_RELAXED) == 0)) return false;
    if (!platform_lock_try_next(&giver->lock)) return false;
    const uint32_t head = find(slabs, giver, any);
    if (head != SLAB_NONE) move(slabs, cache, head, from, to);
    platform_lock_release_next(&giver->lock);
    return head != SLAB_NONE;
}

static bool much_is_free(struct slab_cache *cache, unsigned shards) {
    uint64_t free = 0;
    FOR_EACH_SHARD(index, shards) free += __atomic_load_n(&slab_shard_at(cache, index)->free, __ATOMIC_RELAXED);
    return free > __atomic_load_n(&cache->total, __ATOMIC_RELAXED) / APART_SHARE + APART_BYTES_MIN / cache->object_bytes;
}

bool slab_adopt(struct slab_layer *slabs, struct slab_cache *cache, unsigned shard) {
    const unsigned all = slab_shards_of(cache), others = all & ~(1u << shard);
    if (shard != 0) {
        FOR_EACH_SHARD(from, others)
        if (adopt_from(slabs, cache, from, shard, false)) return true;
        if (!much_is_free(cache, all)) return false;
    }
    FOR_EACH_SHARD(from, others)
    if (adopt_from(slabs, cache, from, shard, true)) return true;
    return false;
}

/* ------------------------------------------------------------------ all of them; fork */

/* The common lock first: under it no shard begins. */
void slab_shards_lock(struct slab_cache *cache) {
    platform_lock_acquire(&cache->common.lock);
    FOR_EACH_SHARD(index, slab_shards_of(cache) & ~1u) platform_lock_acquire_next(&slab_shard_at(cache, index)->lock);
}
void slab_shards_unlock(struct slab_cache *cache) {
    FOR_EACH_SHARD(index, slab_shards_of(cache) & ~1u) platform_lock_release_next(&slab_shard_at(cache, index)->lock);
    platform_lock_release(&cache->common.lock);
}

struct slab_shard slab_shards_sum(struct slab_cache *cache) {
    struct slab_shard sum = {.free = 0};
    FOR_EACH_SHARD(index, slab_shards_of(cache)) {
        const struct slab_shard *shard = slab_shard_at(cache, index);
        sum.free += shard->free;
        sum.allocs += shard->allocs;
        sum.frees += shard->frees;
    }
    return sum;
}

STRATA_COLD void slab_fork_prepare(struct slab_layer *slabs) {
    for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_END; tag++) {
        struct slab_cache *cache = &slabs->caches[tag];
        platform_lock_hold(&cache->common.lock);
        FOR_EACH_SHARD(index, slab_shards_of(cache) & ~1u) platform_lock_hold(&slab_shard_at(cache, index)->lock);
    }
}
/* The common lock last: what begins a shard waits for it, and would be let go here without having been held. */
STRATA_COLD void slab_fork_parent(struct slab_layer *slabs) {
    for (unsigned tag = SLAB_CACHE_END; tag-- > SLAB_CACHE_FIRST;) {
        struct slab_cache *cache = &slabs->caches[tag];
        FOR_EACH_SHARD(index, slab_shards_of(cache) & ~1u) platform_lock_unhold(&slab_shard_at(cache, index)->lock);
        platform_lock_unhold(&cache->common.lock);
    }
}
STRATA_COLD void slab_fork_child(struct slab_layer *slabs) { slab_fork_parent(slabs); }
