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
    slab_shard_init(&cache->common);
    cache->shards = 1;
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
}

void slab_init(struct slab_layer *slabs, struct zone *zone, const uint32_t magazine_bytes[SLAB_MAGAZINE_CACHES]) {
    slabs->zone = zone;
    slabs->shards = 1;
    size_t entry = 0;
    for (unsigned n = 0; n < SIZE_CLASS_COUNT; n++) {
        size_t bytes = size_class_bytes(n);
        cache_init(slabs, SLAB_CACHE_FIRST + n, "malloc", bytes, MOBILITY_UNMOVABLE);
        for (; entry <= size_class_index(bytes); entry++) slabs->class_of[entry] = (uint8_t)(SLAB_CACHE_FIRST + n);
    }
    for (unsigned n = 0; n < SLAB_MAGAZINE_CACHES; n++)
        cache_init(slabs, SLAB_CACHE_MAGAZINES + n, "magazine", magazine_bytes[n], MOBILITY_RECLAIMABLE);
}

/* ------------------------------------------------------------------ buckets */

void slab_bucket_remove(struct slab_layer *slabs, struct slab_shard *shard, struct slab *slab) {
    if (slab->prev != SLAB_NONE)
        slab_at(slabs, slab->prev)->next = slab->next;
    else
        shard->buckets[slab->bucket] = slab->next;
    if (slab->next != SLAB_NONE) slab_at(slabs, slab->next)->prev = slab->prev;
    if (shard->buckets[slab->bucket] == SLAB_NONE) shard->bucket_map &= (uint8_t)~(1u << slab->bucket);
}

void slab_bucket_insert(struct slab_layer *slabs, struct slab_shard *shard, struct slab *slab, uint32_t head, unsigned bucket) {
    slab->bucket = (uint8_t)bucket;
    slab->limit = (uint16_t)slab_limit_of(slab, bucket);
    slab->prev = SLAB_NONE;
    slab->next = shard->buckets[bucket];
    if (slab->next != SLAB_NONE) slab_at(slabs, slab->next)->prev = head;
    shard->buckets[bucket] = head;
    shard->bucket_map |= (uint8_t)(1u << bucket);
}

/* ------------------------------------------------------------------ making and unmaking */

unsigned slab_next_granules(const struct slab_cache *cache) {
    const uint64_t all = __atomic_load_n(&cache->granules, __ATOMIC_RELAXED);
    if (all >= SLAB_DENSE_GRANULES) return cache->granules_max;
    unsigned granules = cache->granules_min;
    while (granules < cache->granules_usual && (uint64_t)granules * 2 * SLAB_GROWTH_SHARE <= all) granules *= 2;
    return granules;
}

static uint64_t populated(const struct slab_layer *slabs) { return __atomic_load_n(&slabs->zone->counters.populated, __ATOMIC_RELAXED); }
static uint64_t empty_granules(const struct slab_layer *slabs) {
    uint64_t sum = __atomic_load_n(&slabs->empty_granules, __ATOMIC_RELAXED);
    FOR_EACH_SHARD(home, __atomic_load_n(&slabs->shards, __ATOMIC_RELAXED) >> 1)
    sum += __atomic_load_n(&slab_homes[home].empty_granules, __ATOMIC_RELAXED);
    return sum;
}
static bool much_is_empty(const struct slab_layer *slabs) { return empty_granules(slabs) > EMPTY_GRANULES_MIN + populated(slabs) / EMPTY_SHARE; }

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

STRATA_NOINLINE void slab_count_empty(struct slab_layer *slabs, struct slab_cache *cache, const struct slab *slab, int more) {
    const unsigned index = slab->shard;
    struct slab_shard *shard = slab_shard_at(cache, index);
    uint64_t *granules = index == 0 ? &slabs->empty_granules : &slab_homes[index - 1].empty_granules;
    COUNTER_ADD(shard->empty_slabs, (uint32_t)more);
    __atomic_fetch_add(granules, (uint64_t)(more * slab->granules), __ATOMIC_RELAXED);
}

/* A slab more in the cache (1), or one less (-1). */
static void count_slab(struct slab_cache *cache, const struct slab *slab, int more) {
    __atomic_fetch_add(&cache->slabs, (uint64_t)more, __ATOMIC_RELAXED);
    __atomic_fetch_add(&cache->granules, (uint64_t)(more * slab->granules), __ATOMIC_RELAXED);
    __atomic_fetch_add(&cache->total, (uint64_t)(more * slab->capacity), __ATOMIC_RELAXED);
}

/* A new slab joins a shard, under its lock. */
static void enlist(struct slab_layer *slabs, struct slab_cache *cache, unsigned index, struct slab *slab, uint32_t head) {
    struct slab_shard *shard = slab_shard_at(cache, index);
    slab->shard = (uint8_t)index;
    slab_bucket_insert(slabs, shard, slab, head, SLAB_BUCKETS - 1);
    count_slab(cache, slab, 1);
    COUNTER_ADD(shard->free, slab->capacity);
    slab_count_empty(slabs, cache, slab, 1);
}

/* Under the shard's lock; the zone's comes after it. */
static void destroy_empty(struct slab_layer *slabs, struct slab_cache *cache, unsigned index, struct slab *slab, uint32_t head) {
    struct slab_shard *shard = slab_shard_at(cache, index);
    char *address = zone_address_of(slabs->zone, slab->granule);
    unsigned granules = slab->granules;
    slab_bucket_remove(slabs, shard, slab);
    slab_count_empty(slabs, cache, slab, -1);
    COUNTER_SUB(shard->free, slab->capacity);
    count_slab(cache, slab, -1);
    zone_tag_run(slabs->zone, address, granules, TAG_NONE);
    zone_head_free(slabs->zone, head, head_bytes(slab->capacity));
    zone_run_free(slabs->zone, address, granules);
}

/*
 * All wholly free slabs of a shard, under its lock. No further than the last of them: those that have just become free are in front, and where each
 * is destroyed at once, the others in the bucket may be very many.
 */
static STRATA_NOINLINE void destroy_empties(struct slab_layer *slabs, struct slab_cache *cache, unsigned index) {
    const struct slab_shard *shard = slab_shard_at(cache, index);
    for (uint32_t head = shard->buckets[SLAB_BUCKETS - 1]; head != SLAB_NONE && shard->empty_slabs != 0;) {
        struct slab *slab = slab_at(slabs, head);
        uint32_t next = slab->next;
        if (slab->free == slab->capacity) destroy_empty(slabs, cache, index, slab, head);
        head = next;
    }
}

/* ------------------------------------------------------------------ objects */

/* Takes up to `count` objects out of one slab, descending, into the end of an array of so many. */
static unsigned take_objects(struct slab_layer *slabs, struct slab_cache *cache, struct slab *slab, void **objects, unsigned count) {
    char *base = zone_address_of(slabs->zone, slab->granule);
    const size_t bytes = cache->object_bytes;
    if (slab->free < count) {
        objects += count - slab->free;
        count = slab->free;
    }
    unsigned word = slab->first;
    for (unsigned left = count; left != 0;) {
        const uint64_t bits = slab->bits[word];
        if (bits == 0) {
            word++;
            continue;
        }
        const unsigned first = bit_lowest(bits);
        uint64_t rest = bits >> first;
        char *object = base + ((size_t)word * 64 + first) * bytes;
        if ((rest & (rest + 1)) == 0) { /* one run: they were never in use, or are all free again */
            const unsigned run = (unsigned)min_u64(bit_highest(rest) + 1, left);
            for (const unsigned behind = left - run; left != behind; object += bytes) objects[--left] = object;
            rest &= -(UINT64_C(1) << (run - 1) << 1);
        } else {
            for (; rest != 0 && left != 0; rest &= rest - 1) objects[--left] = object + bit_lowest(rest) * bytes;
        }
        slab->bits[word] = rest << first;
    }
    slab->first = (uint8_t)word;
    slab->free = (uint16_t)(slab->free - count);
    return count;
}

/* Where its free objects no longer suit the bucket that it stands in, if it stands in one. Under the shard's lock. */
static STRATA_NOINLINE void change_bucket(struct slab_layer *slabs, struct slab_shard *shard, struct slab *slab, uint32_t head) {
    if (slab->limit != FULL_LIMIT) slab_bucket_remove(slabs, shard, slab);
    if (slab->free != 0)
        slab_bucket_insert(slabs, shard, slab, head, slab_bucket_of(slab));
    else
        slab->limit = FULL_LIMIT;
}

/* From the fullest slab of a shard that has free objects, under its lock; how many it gave. */
static unsigned take_from(struct slab_layer *slabs, struct slab_cache *cache, struct slab_shard *shard, unsigned home, void **objects,
                          unsigned count) {
    const uint32_t head = shard->buckets[bit_lowest(shard->bucket_map)];
    struct slab *slab = slab_at(slabs, head);
    if (slab->free == slab->capacity) slab_count_empty(slabs, cache, slab, -1);
    /* Who takes the last objects out of another's slab is a guest there: they go back to where most belongs. */
    if (slab->free >= slab->capacity / 2) __atomic_store_n(&slab->home, (uint8_t)home, __ATOMIC_RELAXED);
    const unsigned taken = take_objects(slabs, cache, slab, objects, count);
    if (slab->free == 0 || slab_bucket_of(slab) != slab->bucket) change_bucket(slabs, shard, slab, head);
    COUNTER_SUB(shard->free, taken);
    shard->allocs += taken;
    return taken;
}

/* What was taken into the end of an array goes to its front. */
static unsigned to_front(void **objects, unsigned count, unsigned taken) {
    if (taken != count) __builtin_memmove(objects, objects + (count - taken), taken * sizeof *objects);
    return taken;
}

/* From whatever shard has some: memory has ended. Under no lock. */
static STRATA_COLD unsigned take_any(struct slab_layer *slabs, struct slab_cache *cache, unsigned home, void **objects, unsigned count) {
    unsigned taken = 0;
    FOR_EACH_SHARD(index, slab_shards_of(cache)) {
        struct slab_shard *shard = slab_shard_at(cache, index);
        platform_lock_acquire(&shard->lock);
        while (taken < count && shard->bucket_map != 0) taken += take_from(slabs, cache, shard, home, objects, count - taken);
        platform_lock_release(&shard->lock);
    }
    return to_front(objects, count, taken);
}

unsigned slab_alloc_home(struct slab_layer *slabs, unsigned tag, unsigned home, bool apart, void **objects, unsigned count) {
    struct slab_cache *cache = &slabs->caches[tag];
    const unsigned index = STRATA_LIKELY(!apart) ? 0 : slab_shard_of_home(slabs, cache, home);
    struct slab_shard *shard = slab_shard_at(cache, index);
    unsigned taken = 0;
    platform_lock_acquire_here(&shard->lock);
    while (taken < count) {
        if (STRATA_LIKELY(shard->bucket_map != 0)) {
            taken += take_from(slabs, cache, shard, home, objects, count - taken);
            continue;
        }
        if (slab_shards_of(cache) != 1 && slab_adopt(slabs, cache, index)) continue;
        if (taken != 0) break; /* part of a batch now beats a whole one after a fault */
        uint32_t head;
        unsigned granules = slab_next_granules(cache);
        platform_lock_release(&shard->lock);
        struct slab *slab = slab_create(slabs, cache, granules, &head);
        if (slab == NULL) return take_any(slabs, cache, home, objects, count);
        platform_lock_acquire(&shard->lock);
        enlist(slabs, cache, index, slab, head);
    }
    platform_lock_release_here(&shard->lock);
    return to_front(objects, count, taken);
}

/* What bad_free says of an address where no object starts, and of an object that is free. */
#define NO_OBJECT "not the start of an object"
#define TWICE "double free"

/* Under no lock but that of this shard (NULL: none). */
static STRATA_COLD void bad_free(struct slab_shard *held, const struct slab_cache *cache, const void *object, const char *what) {
    if (held != NULL) platform_lock_release(&held->lock);
    fatal("free(): %p: %s (cache %s)", object, what, cache->name);
}

/* Where objects belong that follow one another in a batch, and whose marks lie in one word. */
struct place {
    struct slab *slab;
    uint64_t marks;
    uint16_t word, count; /* of the slab's marks; how many are set here */
};
/*
 * So many objects are looked up before the first mark is set. A look-up waits for three loads, one after the other; where the next one begins
 * only after this one's slab has told whether it must change its bucket, which no processor foresees, each waits for all of them.
 */
#define PLACES_MAX 16
/*
 * Fills in places, from the second one on: the first is nobody's, and gets the marks of no object. How many. The slabs stay, as the objects are
 * the caller's; with none but the lock that the caller happens to hold.
 */
STRATA_INLINE unsigned look_up(const struct slab_lookup *lookup, struct slab_shard *held, const struct slab_cache *cache, void *const *objects,
                               struct place *places, unsigned count) {
    const uint64_t word_bytes = (uint64_t)lookup->object_bytes * 64;
    struct slab *slab = NULL;
    uintptr_t start = 0, word_start = 0; /* of the slab, and of the objects of one word */
    uint64_t end = 0, word_end = 0;      /* behind these */
    uint64_t marks = 0;
    struct place *place = places;
    unsigned since = 0;
    for (unsigned i = 0; i < count; i++) {
        uint64_t behind = (uintptr_t)objects[i] - word_start;
        if (behind >= word_end) { /* of another place */
            place->marks = marks;
            place->count = (uint16_t)(i - since);
            behind = (uintptr_t)objects[i] - start;
            if (behind >= end) {
                slab = slab_look_up(lookup, objects[i], &behind);
                end = STRATA_LIKELY(slab != NULL) ? (uint64_t)slab->capacity * lookup->object_bytes : 0;
                if (STRATA_UNLIKELY(behind >= end)) bad_free(held, cache, objects[i], NO_OBJECT);
                start = (uintptr_t)objects[i] - behind;
            }
            const unsigned word = slab_number_at(lookup, behind) / 64;
            const uint64_t before = word * word_bytes;
            word_start = start + before;
            word_end = min_u64(end - before, word_bytes);
            behind -= before;
            place++;
            place->slab = slab;
            place->word = (uint16_t)word;
            marks = 0;
            since = i;
        }
        const unsigned number = slab_number_at(lookup, behind);
        const uint64_t mark = UINT64_C(1) << number;
        if (STRATA_UNLIKELY((uint64_t)number * lookup->object_bytes != behind)) bad_free(held, cache, objects[i], NO_OBJECT);
        if (STRATA_UNLIKELY((marks & mark) != 0)) bad_free(held, cache, objects[i], TWICE);
        marks |= mark;
    }
    place->marks = marks;
    place->count = (uint16_t)(count - since);
    return (unsigned)(place - places);
}

static STRATA_COLD void bad_place(struct slab_layer *slabs, struct slab_shard *held, const struct slab_cache *cache, const struct place *place) {
    const char *start = zone_address_of(slabs->zone, place->slab->granule);
    const unsigned index = place->word * 64u + bit_lowest(place->marks & place->slab->bits[place->word]);
    bad_free(held, cache, start + (size_t)index * cache->object_bytes, TWICE);
}

/* Of these objects one was free already, and its slab has gone since they were looked up: what its head says is another's. */
static STRATA_COLD void bad_slab(const struct slab_lookup *lookup, const struct slab_cache *cache, void *const *objects, unsigned count) {
    uint64_t behind;
    for (unsigned i = 0; i < count; i++)
        if (slab_look_up(lookup, objects[i], &behind) == NULL) bad_free(NULL, cache, objects[i], NO_OBJECT);
    fatal("free(): %p, or one freed with it: double free (cache %s)", objects[0], cache->name);
}

/* Marks the objects of a place as free. */
STRATA_INLINE void mark_free(struct slab_layer *slabs, struct slab_shard *held, const struct slab_cache *cache, const struct place *place) {
    struct slab *slab = place->slab;
    const uint64_t bits = slab->bits[place->word];
    if (STRATA_UNLIKELY((bits & place->marks) != 0)) bad_place(slabs, held, cache, place);
    slab->bits[place->word] = bits | place->marks;
    if (place->word < slab->first) slab->first = (uint8_t)place->word;
    slab->free = (uint16_t)(slab->free + place->count);
}

/* A slab that got objects back has come to another bucket; true: it is wholly free. Out of the way of the loop below, which seldom comes to it. */
static STRATA_NOINLINE bool settle(struct slab_layer *slabs, struct slab_cache *cache, struct slab_shard *shard, struct slab *slab) {
    change_bucket(slabs, shard, slab, zone_head_of(slabs->zone, slab->granule));
    if (slab->free != slab->capacity) return false;
    slab_count_empty(slabs, cache, slab, 1);
    return true;
}

/* Acquire order: pairs with the release of who moved the slab there, so that who then takes the shard's lock sees it begun. */
STRATA_INLINE unsigned shard_of_slab(const struct slab *slab) { return __atomic_load_n(&slab->shard, __ATOMIC_ACQUIRE); }
static bool above_soft_limit(const struct slab_layer *slabs) {
    return populated(slabs) > __atomic_load_n(&slabs->zone->config.soft_limit_bytes, __ATOMIC_RELAXED) >> GRANULE_SHIFT;
}

/*
 * Frees the objects of these places that are in slabs of the shard, under its lock; the other places move to the front; how many they are. Slabs that
 * become wholly free stay until all is marked: an object that is freed twice shall find its place.
 */
STRATA_INLINE unsigned free_of_shard(struct slab_layer *slabs, struct slab_cache *cache, struct slab_shard *shard, unsigned index,
                                     struct place *places, unsigned count) {
    unsigned left = 0, freed = 0;
    bool empty = false;
    for (unsigned i = 0; i < count; i++) {
        struct slab *slab = places[i].slab;
        if (STRATA_UNLIKELY(shard_of_slab(slab) != index)) {
            places[left++] = places[i];
            continue;
        }
        mark_free(slabs, shard, cache, &places[i]);
        freed += places[i].count;
        if (slab->free >= slab->limit) empty |= settle(slabs, cache, shard, slab);
    }
    COUNTER_ADD(shard->free, freed);
    shard->frees += freed;
    if (STRATA_UNLIKELY(empty) && above_soft_limit(slabs)) destroy_empties(slabs, cache, index); /* otherwise until wanted, or the next tick */
    return left;
}

void slab_free_batch(struct slab_layer *slabs, unsigned tag, void *const *objects, unsigned count) {
    struct slab_cache *cache = &slabs->caches[tag];
    const struct slab_lookup lookup = slab_lookup_of(slabs, cache);
    struct place looked_up[1 + PLACES_MAX], *const places = looked_up + 1;
    unsigned index = 0;
    struct slab_shard *held = NULL; /* from batch to batch: mostly the next one's is the same */
    for (unsigned done = 0; done < count;) {
        const unsigned group = done, some = (unsigned)min_u64(count - done, PLACES_MAX);
        unsigned left = look_up(&lookup, held, cache, objects + done, looked_up, some);
        for (done += some; left != 0;) {
            /* What was read without the lock may be another's by now, and is read again. */
            if (held == NULL || shard_of_slab(places[0].slab) != index) {
                if (held != NULL) platform_lock_release(&held->lock);
                index = shard_of_slab(places[0].slab);
                if (STRATA_UNLIKELY(index >= SLAB_SHARDS || (slab_shards_of(cache) >> index & 1) == 0))
                    bad_slab(&lookup, cache, objects + group, done - group);
                held = slab_shard_at(cache, index);
                platform_lock_acquire_here(&held->lock);
            }
            left = free_of_shard(slabs, cache, held, index, places, left);
        }
    }
    if (held != NULL) platform_lock_release_here(&held->lock);
}

void slab_reap(struct slab_layer *slabs) {
    for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_END; tag++) {
        struct slab_cache *cache = &slabs->caches[tag];
        FOR_EACH_SHARD(index, slab_shards_of(cache)) {
            struct slab_shard *shard = slab_shard_at(cache, index);
            if (__atomic_load_n(&shard->empty_slabs, __ATOMIC_RELAXED) == 0) continue;
            platform_lock_acquire(&shard->lock);
            destroy_empties(slabs, cache, index);
            platform_lock_release(&shard->lock);
        }
    }
}

void slab_reap_for(struct slab_layer *slabs, uint64_t granules) {
    if (much_is_empty(slabs) && zone_idle_granules(slabs->zone) < granules) slab_reap(slabs);
}
