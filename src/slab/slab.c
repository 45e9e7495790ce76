/*
 * slab.c - slabs: made from runs, objects taken and given back in batches. See slab.h for the structure and its invariants.
 *
 * Slab size: the smallest run that wastes at most a sixteenth; as the cache grows, up to SLAB_OBJECTS_MAX objects, but never more than an
 * eighth of what the cache has; and in a cache of SLAB_DENSE_GRANULES, as much as wastes next to nothing. Small slabs empty sooner: of 64 objects one
 * that stays pins 64, of 4 it pins 4; and a program with few objects of a size pays one page for it. (docs/decisions.md, 21)
 */
#include "slab/slab_internal.h"

#include "base/check.h"

#define SLAB_BYTES_MAX (16 * KIB)
#define SLAB_OBJECTS_MAX 4
#define SLAB_DENSE_GRANULES (2 * MIB / GRANULE_BYTES)
#define SLAB_DENSE_OBJECTS_MAX 64
#define SLAB_DENSE_BYTES_MAX (80 * KIB)
#define SLAB_WASTE_MAX 16   /* of a slab: one part in so many */
#define SLAB_WASTE_DENSE 64 /* the same in a dense cache, where it can be had */
#define SLAB_GROWTH_SHARE 8
/* Wholly free slabs go before fresh pages are touched where they have more than so many granules and than this share of the heap. */
#define EMPTY_GRANULES_MIN 16
#define EMPTY_SHARE 32

static size_t head_bytes(unsigned capacity) { return sizeof(struct slab) + (capacity + 63) / 64 * sizeof(uint64_t); }

/* ------------------------------------------------------------------ set-up */

/* The smallest number of granules, at most `end` and in steps of `unit`, of which objects leave at most one part in `share` unused; 0: none. */
static unsigned least_granules(size_t bytes, unsigned unit, unsigned end, unsigned share) {
    uint32_t object = (uint32_t)bytes; /* at most a superpage: divisions are half the price, and every process pays for those of all caches */
    for (unsigned granules = unit; granules <= end; granules += unit) {
        uint32_t all = (uint32_t)granules << GRANULE_SHIFT;
        if (all >= object && (uint64_t)(all % object) * share <= all) return granules;
    }
    return 0;
}

/* "kind-bytes", of all caches as a process starts. */
static void set_name(char name[SLAB_NAME_BYTES], const char *kind, uint32_t bytes) {
    char digits[10];
    unsigned at = 0, count = 0;
    for (; bytes != 0; bytes /= 10) digits[count++] = (char)('0' + bytes % 10);
    while (kind[at] != 0) name[at] = kind[at], at++;
    name[at++] = '-';
    while (count != 0) name[at++] = digits[--count];
    name[at] = 0;
}

static void cache_init(struct slab_layer *slabs, unsigned tag, const char *kind, size_t bytes, enum mobility mobility) {
    struct slab_cache *cache = &slabs->caches[tag];
    cache->lock = (struct platform_lock)PLATFORM_LOCK_INIT(LOCK_RANK_SLAB);
    set_name(cache->name, kind, (uint32_t)bytes);
    cache->object_bytes = (uint32_t)bytes;
    cache->tag = (uint8_t)tag;
    cache->mobility = (uint8_t)mobility;
    cache->reciprocal = (((uint64_t)1 << SLAB_RECIPROCAL_SHIFT) + bytes - 1) / bytes;
    CHECK(bytes <= UINT16_MAX);
    slabs->sizes[tag] = cache->reciprocal << 16 | bytes;
    unsigned unit = slabs->zone->page_granules;
    unsigned granules = least_granules(bytes, unit, SUPERPAGE_GRANULES, SLAB_WASTE_MAX);
    cache->granules_min = (uint16_t)granules;
    while (granules * 2 << GRANULE_SHIFT <= SLAB_BYTES_MAX && (granules << GRANULE_SHIFT) / bytes < SLAB_OBJECTS_MAX) granules *= 2;
    cache->granules_usual = cache->granules_max = (uint16_t)granules;
    size_t all = (size_t)granules << GRANULE_SHIFT;
    if (all % bytes * SLAB_WASTE_DENSE > all) {
        size_t end = min_u64(bytes * SLAB_DENSE_OBJECTS_MAX, SLAB_DENSE_BYTES_MAX) + GRANULE_BYTES;
        unsigned dense = least_granules(bytes, unit, (unsigned)(end >> GRANULE_SHIFT), SLAB_WASTE_DENSE);
        if (dense > granules) cache->granules_max = (uint16_t)dense;
    }
    CHECK(cache->granules_max <= UINT8_MAX); /* struct slab has a byte for it */
    for (unsigned b = 0; b < SLAB_BUCKETS; b++) cache->buckets[b] = SLAB_NONE;
}

void slab_init(struct slab_layer *slabs, struct zone *zone, const uint32_t magazine_bytes[SLAB_MAGAZINE_CACHES]) {
    slabs->zone = zone;
    size_t entry = 0;
    for (unsigned n = 0; n < SIZE_CLASS_COUNT; n++) {
        size_t bytes = size_class_bytes(n);
        cache_init(slabs, SLAB_CACHE_FIRST + n, "malloc", bytes, MOBILITY_UNMOVABLE);
        for (; entry <= size_class_index(bytes); entry++) slabs->class_of[entry] = (uint8_t)(SLAB_CACHE_FIRST + n);
    }
    for (unsigned n = 0; n < SLAB_MAGAZINE_CACHES; n++)
        cache_init(slabs, SLAB_CACHE_MAGAZINES + n, "magazine", magazine_bytes[n], MOBILITY_RECLAIMABLE);
}

STRATA_COLD unsigned slab_class_of_aligned(const struct slab_layer *slabs, size_t bytes, size_t align) {
    for (unsigned tag = slab_class_of_size(slabs, bytes); tag < SLAB_CACHE_MAGAZINES; tag++)
        if ((slabs->caches[tag].object_bytes & (align - 1)) == 0) return tag;
    return 0;
}

/* ------------------------------------------------------------------ buckets */

static void bucket_remove(struct slab_layer *slabs, struct slab_cache *cache, struct slab *slab) {
    if (slab->prev != SLAB_NONE)
        slab_at(slabs, slab->prev)->next = slab->next;
    else
        cache->buckets[slab->bucket] = slab->next;
    if (slab->next != SLAB_NONE) slab_at(slabs, slab->next)->prev = slab->prev;
    if (cache->buckets[slab->bucket] == SLAB_NONE) cache->bucket_map &= (uint8_t)~(1u << slab->bucket);
}

static void bucket_insert(struct slab_layer *slabs, struct slab_cache *cache, struct slab *slab, uint32_t head, unsigned bucket) {
    slab->bucket = (uint8_t)bucket;
    slab->limit = (uint16_t)slab_limit_of(slab, bucket);
    slab->prev = SLAB_NONE;
    slab->next = cache->buckets[bucket];
    if (slab->next != SLAB_NONE) slab_at(slabs, slab->next)->prev = head;
    cache->buckets[bucket] = head;
    cache->bucket_map |= (uint8_t)(1u << bucket);
}

/* ------------------------------------------------------------------ making and unmaking */

static unsigned next_slab_granules(const struct slab_cache *cache) {
    if (cache->granules >= SLAB_DENSE_GRANULES) return cache->granules_max;
    unsigned granules = cache->granules_min;
    while (granules < cache->granules_usual && (uint64_t)granules * 2 * SLAB_GROWTH_SHARE <= cache->granules) granules *= 2;
    return granules;
}

static uint64_t populated(const struct slab_layer *slabs) { return __atomic_load_n(&slabs->zone->counters.populated, __ATOMIC_RELAXED); }
static bool much_is_empty(const struct slab_layer *slabs) {
    return __atomic_load_n(&slabs->empty_granules, __ATOMIC_RELAXED) > EMPTY_GRANULES_MIN + populated(slabs) / EMPTY_SHARE;
}

/* Larger objects are buffers: of those that are made for the longest line or message most pages may never be touched. */
#define SLAB_AHEAD_BYTES_MAX (2 * GRANULE_BYTES)
static bool fresh_run(struct slab_layer *slabs, const struct slab_cache *cache, unsigned granules, struct zone_run *run) {
    bool (*alloc)(struct zone *, unsigned, unsigned, enum mobility, struct zone_run *) =
        cache->object_bytes > SLAB_AHEAD_BYTES_MAX ? zone_run_alloc_lazy : zone_run_alloc;
    return alloc(slabs->zone, granules, 1, cache->mobility, run);
}

/* Making and unmaking a slab costs as much as some tens of objects: so wholly free ones stay until their pages are wanted, or until the next tick. */
static bool run_alloc(struct slab_layer *slabs, const struct slab_cache *cache, unsigned granules, struct zone_run *run) {
    if (much_is_empty(slabs)) {
        if (zone_run_alloc_present(slabs->zone, granules, 1, cache->mobility, run)) return true;
        slab_reap(slabs);
    }
    return fresh_run(slabs, cache, granules, run);
}

/* A new slab, all free, not in a bucket yet. Under no lock. */
static struct slab *slab_create(struct slab_layer *slabs, struct slab_cache *cache, unsigned granules, uint32_t *head) {
    struct zone_run run;
    if (!run_alloc(slabs, cache, granules, &run) && (granules == cache->granules_min || !fresh_run(slabs, cache, cache->granules_min, &run)))
        return NULL;
    unsigned capacity = (unsigned)(((size_t)run.granules << GRANULE_SHIFT) / cache->object_bytes);
    uint32_t granule = (uint32_t)zone_granule_of(slabs->zone, run.address);
    *head = zone_head_alloc(slabs->zone, granule, head_bytes(capacity));
    CHECK(*head != HEAD_NONE);
    struct slab *slab = slab_at(slabs, *head);
    *slab = (struct slab){.next = SLAB_NONE,
                          .prev = SLAB_NONE,
                          .granule = granule,
                          .free = (uint16_t)capacity,
                          .capacity = (uint16_t)capacity,
                          .granules = (uint8_t)run.granules};
    for (unsigned w = 0; w < (capacity + 63) / 64; w++) slab->bits[w] = ~UINT64_C(0);
    if (capacity % 64 != 0) slab->bits[capacity / 64] = (UINT64_C(1) << (capacity % 64)) - 1;
    zone_tag_run(slabs->zone, run.address, run.granules, cache->tag);
    return slab;
}

/* One slab more that is wholly free (1), or less (-1). */
static void count_empty(struct slab_layer *slabs, struct slab_cache *cache, const struct slab *slab, int more) {
    COUNTER_ADD(cache->empty_slabs, (uint32_t)more);
    __atomic_fetch_add(&slabs->empty_granules, (uint64_t)(more * slab->granules), __ATOMIC_RELAXED);
}

/* Under the cache's lock; the zone's comes after it. */
static void destroy_empty(struct slab_layer *slabs, struct slab_cache *cache, struct slab *slab, uint32_t head) {
    char *address = zone_address_of(slabs->zone, slab->granule);
    unsigned granules = slab->granules;
    bucket_remove(slabs, cache, slab);
    count_empty(slabs, cache, slab, -1);
    cache->slabs--;
    cache->granules -= granules;
    COUNTER_SUB(cache->total, slab->capacity);
    zone_tag_run(slabs->zone, address, granules, TAG_NONE);
    zone_head_free(slabs->zone, head, head_bytes(slab->capacity));
    zone_run_free(slabs->zone, address, granules);
}

/* ------------------------------------------------------------------ objects */

/* Takes up to `count` objects out of one slab, in address order. */
static unsigned take_objects(struct slab_layer *slabs, struct slab_cache *cache, struct slab *slab, void **objects, unsigned count) {
    char *base = zone_address_of(slabs->zone, slab->granule);
    size_t bytes = cache->object_bytes;
    unsigned taken = 0, word = slab->first;
    if (slab->free < count) count = slab->free;
    while (taken < count) {
        uint64_t bits = slab->bits[word];
        char *word_base = base + (size_t)word * 64 * bytes;
        while (bits != 0 && taken < count) {
            objects[taken++] = word_base + bit_lowest(bits) * bytes;
            bits &= bits - 1;
        }
        slab->bits[word] = bits;
        if (bits == 0) word++;
    }
    slab->first = (uint8_t)word;
    slab->free = (uint16_t)(slab->free - taken);
    return taken;
}

/* At so many slabs a batch looks for its home's. */
#define APART_LOOKS 64
/* Who keeps apart takes new slabs while at most this share of the cache, and so many bytes, are free in others'. */
#define APART_SHARE 8
#define APART_BYTES_MIN (8 * KIB)

/* One with free objects whose objects are the caller's already, or nobody's; SLAB_NONE: a new one is better than another's. */
static uint32_t find_apart(const struct slab_layer *slabs, const struct slab_cache *cache, unsigned home, unsigned *looks) {
    for (unsigned map = cache->bucket_map; map != 0; map &= map - 1) {
        const unsigned end = (unsigned)min_u64(APART_LOOKS, *looks + APART_LOOKS / 4); /* of this bucket: the emptiest shall have a chance */
        for (uint32_t head = cache->buckets[bit_lowest(map)]; head != SLAB_NONE && *looks < end; ++*looks) {
            const struct slab *slab = slab_at(slabs, head);
            if (slab->home == home || slab->free == slab->capacity) return head;
            head = slab->next;
        }
    }
    const uint64_t free = cache->total - cache->in_use, spare = cache->total / APART_SHARE + APART_BYTES_MIN / cache->object_bytes;
    return free <= spare ? SLAB_NONE : cache->buckets[bit_lowest(cache->bucket_map)];
}

/* Where the next objects come from; SLAB_NONE: from a new slab. */
STRATA_INLINE uint32_t find_slab(const struct slab_layer *slabs, const struct slab_cache *cache, unsigned home, bool apart, unsigned *looks) {
    if (cache->bucket_map == 0) return SLAB_NONE;
    return STRATA_LIKELY(!apart) ? cache->buckets[bit_lowest(cache->bucket_map)] : find_apart(slabs, cache, home, looks);
}

unsigned slab_alloc_home(struct slab_layer *slabs, unsigned tag, unsigned home, bool apart, void **objects, unsigned count) {
    struct slab_cache *cache = &slabs->caches[tag];
    unsigned taken = 0, looks = 0;
    platform_lock_acquire_here(&cache->lock);
    while (taken < count) {
        struct slab *slab;
        uint32_t head = find_slab(slabs, cache, home, apart, &looks);
        if (head == SLAB_NONE) {
            if (taken != 0) break; /* part of a batch now beats a whole one after a fault */
            unsigned granules = next_slab_granules(cache);
            platform_lock_release_here(&cache->lock);
            slab = slab_create(slabs, cache, granules, &head);
            platform_lock_acquire_here(&cache->lock);
            if (slab == NULL) {
                if (cache->bucket_map == 0) break;
                apart = false; /* any slab will do */
                continue;
            }
            bucket_insert(slabs, cache, slab, head, SLAB_BUCKETS - 1);
            cache->slabs++;
            cache->granules += slab->granules;
            COUNTER_ADD(cache->total, slab->capacity);
        } else {
            slab = slab_at(slabs, head);
            if (slab->free == slab->capacity) count_empty(slabs, cache, slab, -1);
        }
        /* Who takes the last objects out of another's slab is a guest there: they go back to where most belongs. */
        if (slab->free >= slab->capacity / 2) __atomic_store_n(&slab->home, (uint8_t)home, __ATOMIC_RELAXED);
        taken += take_objects(slabs, cache, slab, objects + taken, count - taken);
        if (slab->free == 0) {
            bucket_remove(slabs, cache, slab);
            slab->limit = FULL_LIMIT;
        } else if (slab_bucket_of(slab) != slab->bucket) {
            bucket_remove(slabs, cache, slab);
            bucket_insert(slabs, cache, slab, head, slab_bucket_of(slab));
        }
    }
    cache->in_use += taken;
    cache->allocs += taken;
    platform_lock_release_here(&cache->lock);
    return taken;
}

bool slab_is_object(const struct slab_layer *slabs, unsigned tag, const void *object) {
    const struct slab_lookup lookup = slab_lookup_of(slabs, &slabs->caches[tag]);
    uint64_t behind;
    unsigned index;
    const struct slab *slab = slab_look_up(&lookup, object, &behind);
    return slab != NULL && slab_index_at(&lookup, behind, &index) && index < slab->capacity;
}

/* What bad_free says of an address where no object starts. */
#define NO_OBJECT "not the start of an object"

static STRATA_COLD void bad_free(struct slab_cache *cache, const void *object, const char *what) {
    platform_lock_release(&cache->lock);
    fatal("free(): %p: %s (cache %s)", object, what, cache->name);
}

/* Where an object belongs. */
struct place {
    struct slab *slab;
    unsigned index;
};
/*
 * So many objects are looked up before the first one's mark is set. A look-up waits for three loads, one after the other; where the next one begins
 * only after this one's slab has told whether it must change its bucket, which no processor foresees, each waits for all of them.
 */
#define PLACES_MAX 16
STRATA_INLINE void look_up(const struct slab_lookup *lookup, struct slab_cache *cache, void *const *objects, struct place *places, unsigned count) {
    struct slab *slab = NULL;
    uintptr_t start = 0;
    uint64_t end = 0;
    for (unsigned i = 0; i < count; i++) {
        uint64_t behind = (uintptr_t)objects[i] - start;
        if (behind >= end) {
            slab = slab_look_up(lookup, objects[i], &behind);
            if (STRATA_UNLIKELY(slab == NULL)) bad_free(cache, objects[i], NO_OBJECT);
            start = (uintptr_t)objects[i] - behind;
            end = (uint64_t)slab->capacity * lookup->object_bytes;
        }
        places[i].slab = slab;
        if (STRATA_UNLIKELY(behind >= end || !slab_index_at(lookup, behind, &places[i].index))) bad_free(cache, objects[i], NO_OBJECT);
    }
}

/* Marks the first of these objects, and those behind it of which the marks lie in the same word; how many they are. */
STRATA_INLINE unsigned mark_free(struct slab_cache *cache, const struct place *places, void *const *objects, unsigned count) {
    struct slab *slab = places->slab;
    const unsigned word = places->index / 64;
    uint64_t bits = slab->bits[word];
    unsigned marked = 0;
    do {
        const unsigned index = places[marked].index;
        const uint64_t bit = UINT64_C(1) << (index % 64);
        if (STRATA_UNLIKELY((bits & bit) != 0)) bad_free(cache, objects[marked], "double free");
        bits |= bit;
        marked++;
    } while (marked < count && places[marked].slab == slab && places[marked].index / 64 == word);
    slab->bits[word] = bits;
    if (word < slab->first) slab->first = (uint8_t)word;
    slab->free = (uint16_t)(slab->free + marked);
    return marked;
}

/*
 * A slab that got objects back has come to another bucket, or is wholly free; true: it is gone. Out of the way of the loop below, which seldom comes
 * to it.
 */
static STRATA_NOINLINE bool settle(struct slab_layer *slabs, struct slab_cache *cache, struct slab *slab) {
    const uint32_t head = zone_head_of(slabs->zone, slab->granule);
    if (slab->limit != FULL_LIMIT) bucket_remove(slabs, cache, slab);
    bucket_insert(slabs, cache, slab, head, slab_bucket_of(slab));
    if (slab->free != slab->capacity) return false;
    count_empty(slabs, cache, slab, 1);
    if (STRATA_LIKELY(populated(slabs) <= __atomic_load_n(&slabs->zone->config.soft_limit_bytes, __ATOMIC_RELAXED) >> GRANULE_SHIFT))
        return false; /* until it is wanted, or the next tick */
    destroy_empty(slabs, cache, slab, head);
    return true;
}

void slab_free_batch(struct slab_layer *slabs, unsigned tag, void *const *objects, unsigned count) {
    struct slab_cache *cache = &slabs->caches[tag];
    const struct slab_lookup lookup = slab_lookup_of(slabs, cache);
    struct place places[PLACES_MAX];
    platform_lock_acquire_here(&cache->lock);
    for (unsigned done = 0; done < count;) {
        const unsigned end = (unsigned)min_u64(count - done, PLACES_MAX);
        look_up(&lookup, cache, objects + done, places, end);
        bool gone = false; /* then an object of it that is freed twice has no place any more */
        for (unsigned i = 0; i < end && !gone;) {
            struct slab *slab = places[i].slab;
            const unsigned marked = mark_free(cache, places + i, objects + done, end - i);
            i += marked;
            done += marked;
            if (slab->free >= slab->limit) gone = settle(slabs, cache, slab);
        }
    }
    cache->in_use -= count;
    platform_lock_release_here(&cache->lock);
}

void slab_reap(struct slab_layer *slabs) {
    for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_END; tag++) {
        struct slab_cache *cache = &slabs->caches[tag];
        if (__atomic_load_n(&cache->empty_slabs, __ATOMIC_RELAXED) == 0) continue;
        platform_lock_acquire(&cache->lock);
        for (uint32_t head = cache->buckets[SLAB_BUCKETS - 1]; head != SLAB_NONE;) {
            struct slab *slab = slab_at(slabs, head);
            uint32_t next = slab->next;
            if (slab->free == slab->capacity) destroy_empty(slabs, cache, slab, head);
            head = next;
        }
        platform_lock_release(&cache->lock);
    }
}

void slab_reap_for(struct slab_layer *slabs, uint64_t granules) {
    struct zone_counters counters;
    if (!much_is_empty(slabs)) return;
    zone_counters_get(slabs->zone, &counters);
    if (counters.idle < granules) slab_reap(slabs);
}

/* ------------------------------------------------------------------ looking inside, fork */

STRATA_COLD void slab_stats_get(struct slab_layer *slabs, unsigned tag, struct slab_stats *stats) {
    struct slab_cache *cache = &slabs->caches[tag];
    platform_lock_acquire(&cache->lock);
    *stats = (struct slab_stats){.object_bytes = cache->object_bytes,
                                 .slab_bytes = (uint64_t)next_slab_granules(cache) << GRANULE_SHIFT,
                                 .slabs = cache->slabs,
                                 .total = cache->total,
                                 .in_use = cache->in_use,
                                 .memory_bytes = cache->granules << GRANULE_SHIFT,
                                 .allocs = cache->allocs,
                                 .frees = cache->allocs - cache->in_use};
    platform_lock_release(&cache->lock);
}

STRATA_COLD void slab_fork_prepare(struct slab_layer *slabs) {
    for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_END; tag++) platform_lock_hold(&slabs->caches[tag].lock);
}
STRATA_COLD void slab_fork_parent(struct slab_layer *slabs) {
    for (unsigned tag = SLAB_CACHE_END; tag-- > SLAB_CACHE_FIRST;) platform_lock_unhold(&slabs->caches[tag].lock);
}
STRATA_COLD void slab_fork_child(struct slab_layer *slabs) { slab_fork_parent(slabs); }
