/*
 * slab.c - slabs: made from runs, objects taken and given back in batches. See slab.h for the structure and its invariants.
 *
 * Slab size: the smallest run that wastes at most a sixteenth; as the cache grows, up to SLAB_OBJECTS_MAX objects, but never more than an
 * eighth of what the cache has; and in a cache of SLAB_DENSE_GRANULES, as much as wastes next to nothing. Small slabs empty sooner: of 64 objects one
 * that stays pins 64, of 4 it pins 4; and a program with few objects of a size pays one page for it. (docs/decisions.md, 21)
 */
#include "slab/slab.h"

#include "base/check.h"

#define SLAB_NONE HEAD_NONE
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

/*
 * A slab is known by its head's number. Up to 64 objects need one unit of the zone's heads; two units a granule hold it for the smallest objects:
 * 24 + 256 / 8 <= 64.
 */
struct slab {
    uint32_t next, prev; /* neighbours in the bucket */
    uint32_t granule;    /* the first */
    uint32_t scale;      /* ceil(2^16 * SLAB_BUCKETS / capacity) */
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

static struct slab *slab_at(const struct slab_layer *slabs, uint32_t head) { return zone_head(slabs->zone, head); }
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
    slab->prev = SLAB_NONE;
    slab->next = cache->buckets[bucket];
    if (slab->next != SLAB_NONE) slab_at(slabs, slab->next)->prev = head;
    cache->buckets[bucket] = head;
    cache->bucket_map |= (uint8_t)(1u << bucket);
}

/* Bucket 0 holds slabs with the fewest free objects, the last one all that are wholly free; free >= 1. */
static unsigned bucket_of(const struct slab *slab) {
    if (slab->free == slab->capacity) return SLAB_BUCKETS - 1;
    unsigned bucket = ((slab->free - 1u) * slab->scale) >> 16;
    return bucket < SLAB_BUCKETS ? bucket : SLAB_BUCKETS - 1;
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
                          .granules = (uint8_t)run.granules,
                          .scale = (65536u * SLAB_BUCKETS + capacity - 1) / capacity};
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
        } else if (bucket_of(slab) != slab->bucket) {
            bucket_remove(slabs, cache, slab);
            bucket_insert(slabs, cache, slab, head, bucket_of(slab));
        }
    }
    cache->in_use += taken;
    cache->allocs += taken;
    platform_lock_release_here(&cache->lock);
    return taken;
}

/* What looking objects up takes of the zone and the cache, in registers: none of it changes, but the compiler can't know. */
struct lookup {
    uintptr_t base;
    uint64_t units; /* of what the heap has ever had: more than any object that is in use now */
    const granule_tag *tags;
    struct head_area *heads;
    uint64_t reciprocal;
    uint32_t object_bytes;
    uint8_t tag;
};
STRATA_INLINE struct lookup lookup_of(const struct slab_layer *slabs, const struct slab_cache *cache) {
    const struct zone *zone = slabs->zone;
    return (struct lookup){
        zone->base, __atomic_load_n(&zone->extent_units, __ATOMIC_ACQUIRE), zone->tags, zone->heads, cache->reciprocal, cache->object_bytes,
        cache->tag};
}

/* The slab that an address lies in, where that starts, and its head; NULL where no slab of this cache is there. */
STRATA_INLINE struct slab *slab_of(const struct lookup *lookup, const void *object, const char **start, uint32_t *head) {
    uintptr_t offset = (uintptr_t)object - lookup->base;
    if (STRATA_UNLIKELY(offset >> 4 >= lookup->units)) return NULL;
    size_t at = offset >> GRANULE_SHIFT;
    granule_tag tag = lookup->tags[at];
    if (STRATA_UNLIKELY((tag & 0xff) != lookup->tag)) return NULL;
    at -= tag >> 8;
    *start = (const char *)lookup->base + (at << GRANULE_SHIFT);
    return zone_head_in(lookup->heads, at, head);
}

/* Which object of its slab starts so many bytes behind the slab's start; false: none does. offset: below the slab's bytes. */
STRATA_INLINE bool index_at(const struct lookup *lookup, uint64_t offset, unsigned *index) {
    *index = (unsigned)(offset * lookup->reciprocal >> SLAB_RECIPROCAL_SHIFT);
    return (uint64_t)*index * lookup->object_bytes == offset;
}

bool slab_is_object(const struct slab_layer *slabs, unsigned tag, const void *object) {
    const struct lookup lookup = lookup_of(slabs, &slabs->caches[tag]);
    const char *start;
    uint32_t head;
    unsigned index;
    const struct slab *slab = slab_of(&lookup, object, &start, &head);
    return slab != NULL && index_at(&lookup, (uint64_t)((const char *)object - start), &index) && index < slab->capacity;
}

unsigned slab_home_of(const struct slab_layer *slabs, unsigned tag, const void *object) {
    const struct lookup lookup = lookup_of(slabs, &slabs->caches[tag]);
    const char *start;
    uint32_t head;
    const struct slab *slab = slab_of(&lookup, object, &start, &head);
    return slab != NULL ? __atomic_load_n(&slab->home, __ATOMIC_RELAXED) : 0;
}

/* What bad_free says of an address where no object starts. */
#define NO_OBJECT "not the start of an object"

static STRATA_COLD void bad_free(struct slab_cache *cache, const void *object, const char *what) {
    platform_lock_release(&cache->lock);
    fatal("free(): %p: %s (cache %s)", object, what, cache->name);
}

/*
 * Puts the first objects back that lie in one slab; how many they are. 0: the first is none of its objects.
 *
 * Neighbours cost a mark each: who frees a batch in the order in which it was allocated, or a magazine that was filled so, has hundreds of them.
 */
STRATA_INLINE unsigned put_objects(const struct lookup *lookup, struct slab_cache *cache, struct slab *slab, const char *start, void *const *objects,
                                   unsigned count) {
    const uint64_t end = (uint64_t)slab->capacity * lookup->object_bytes;
    unsigned put = 0;
    /* The start comes from the tag, not from the descriptor, so that finding the first object's bit doesn't wait for that. */
    for (uint64_t offset; put < count && (offset = (uint64_t)((const char *)objects[put] - start)) < end; put++) {
        unsigned index;
        if (STRATA_UNLIKELY(!index_at(lookup, offset, &index))) bad_free(cache, objects[put], NO_OBJECT);
        uint64_t bit = UINT64_C(1) << (index % 64);
        unsigned word = index / 64;
        if (STRATA_UNLIKELY((slab->bits[word] & bit) != 0)) bad_free(cache, objects[put], "double free");
        slab->bits[word] |= bit;
        if (word < slab->first) slab->first = (uint8_t)word;
    }
    slab->free = (uint16_t)(slab->free + put);
    return put;
}

/* A slab that got objects back has come to another bucket, or is wholly free. Out of the way of the loop below, which seldom comes to it. */
static STRATA_NOINLINE void settle(struct slab_layer *slabs, struct slab_cache *cache, struct slab *slab, uint32_t head, bool was_full) {
    unsigned bucket = bucket_of(slab);
    if (!was_full) bucket_remove(slabs, cache, slab);
    bucket_insert(slabs, cache, slab, head, bucket);
    if (slab->free != slab->capacity) return;
    count_empty(slabs, cache, slab, 1);
    if (STRATA_LIKELY(populated(slabs) <= slabs->zone->config.soft_limit_bytes >> GRANULE_SHIFT)) return; /* until it is wanted, or the next tick */
    destroy_empty(slabs, cache, slab, head);
}

void slab_free_batch(struct slab_layer *slabs, unsigned tag, void *const *objects, unsigned count) {
    struct slab_cache *cache = &slabs->caches[tag];
    const struct lookup lookup = lookup_of(slabs, cache);
    platform_lock_acquire_here(&cache->lock);
    for (unsigned done = 0, put; done < count; done += put) {
        const char *start;
        uint32_t head;
        struct slab *slab = slab_of(&lookup, objects[done], &start, &head);
        if (STRATA_UNLIKELY(slab == NULL)) bad_free(cache, objects[done], NO_OBJECT);
        bool was_full = slab->free == 0;
        put = put_objects(&lookup, cache, slab, start, objects + done, count - done);
        if (STRATA_UNLIKELY(put == 0)) bad_free(cache, objects[done], NO_OBJECT);
        if (was_full || slab->free == slab->capacity || bucket_of(slab) != slab->bucket) settle(slabs, cache, slab, head, was_full);
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
            if (slab->bucket != b || bucket_of(slab) != b) return "slab: in the wrong bucket";
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

STRATA_COLD void slab_fork_prepare(struct slab_layer *slabs) {
    for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_END; tag++) platform_lock_hold(&slabs->caches[tag].lock);
}
STRATA_COLD void slab_fork_parent(struct slab_layer *slabs) {
    for (unsigned tag = SLAB_CACHE_END; tag-- > SLAB_CACHE_FIRST;) platform_lock_unhold(&slabs->caches[tag].lock);
}
STRATA_COLD void slab_fork_child(struct slab_layer *slabs) { slab_fork_parent(slabs); }
