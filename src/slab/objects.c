/*
 * objects.c - see objects.h for the structure and its invariants.
 *
 * Slab size of memory: the fewest pages (or units of another source), a power of two of them, of which objects leave at most an eighth unused and
 * that hold at least OBJECTS_MIN of them, as far as OBJECT_SLAB_BYTES_MAX allows (kmem paper; magazines paper, 2.2 and 4.4.4); of large objects, the
 * fewest pages that hold one.
 */
#include "slab/objects_internal.h"

#include "base/check.h"

#define OBJECTS_MIN 8
#define OBJECTS_MAX 4096
#define OBJECT_SLAB_BYTES_MAX (64 * KIB)
#define WASTE_SHARE 8
/* Empty slabs that wait: this one, and one of so many. */
#define EMPTY_SHARE 8
#define HASH_COUNT_MIN 16

/* ------------------------------------------------------------------ the zone as a source */

static bool zone_source_alloc(void *context, uint64_t bytes, uint64_t align, uintptr_t *start) {
    struct zone_run run;
    if (bytes > SUPERPAGE_BYTES || align > SUPERPAGE_BYTES) return false;
    if (!zone_run_alloc(context, (unsigned)(bytes >> GRANULE_SHIFT), (unsigned)max_u64(align >> GRANULE_SHIFT, 1), MOBILITY_UNMOVABLE, &run))
        return false;
    *start = (uintptr_t)run.address;
    return true;
}
static void zone_source_free(void *context, uintptr_t start, uint64_t bytes) {
    zone_run_free(context, (void *)start, (unsigned)(bytes >> GRANULE_SHIFT));
}
const struct slab_source slab_source_zone = {.alloc = zone_source_alloc, .free = zone_source_free};

/* ------------------------------------------------------------------ set-up */

uint64_t object_slab_bytes(uint64_t stride, uint64_t unit) {
    uint64_t bytes = unit;
    while (bytes < OBJECT_SLAB_BYTES_MAX && (bytes / stride < OBJECTS_MIN || bytes % stride * WASTE_SHARE > bytes)) bytes *= 2;
    return bytes >= stride ? bytes : align_up(stride, unit);
}

bool object_slabs_init(struct object_slabs *slabs, struct zone *zone, uint64_t bytes, uint64_t align, uint64_t slab_bytes,
                       const struct slab_source *source, void *source_context) {
    if (bytes == 0 || align == 0 || (align & (align - 1)) != 0 || bytes > UINT64_MAX / 2 || align > UINT64_MAX / 4) return false;
    uint64_t stride = align_up(bytes, align);
    if (slab_bytes == 0) {
        if (stride > OBJECT_BYTES_MAX) return false;
        slab_bytes = object_slab_bytes(stride, (uint64_t)zone->page_granules << GRANULE_SHIFT);
    }
    if (slab_bytes < stride) return false;
    *slabs = (struct object_slabs){.lock = PLATFORM_LOCK_INIT(LOCK_RANK_SLAB),
                                   .zone = zone,
                                   .source = source,
                                   .source_context = source_context,
                                   .stride = stride,
                                   .slab_bytes = slab_bytes,
                                   .slab_align = max_u64(align, is_power_of_two(slab_bytes) ? slab_bytes : (uint64_t)2 << bit_highest(slab_bytes)),
                                   .capacity = (uint32_t)min_u64(slab_bytes / stride, OBJECTS_MAX)};
    for (unsigned b = 0; b < OBJECT_SLABS_BUCKETS; b++) list_init(&slabs->buckets[b]);
    list_init(&slabs->full);
    return true;
}

static size_t descriptor_bytes(const struct object_slabs *slabs) { return sizeof(struct object_slab) + objects_words(slabs) * sizeof(uint64_t); }

/* ------------------------------------------------------------------ the hash table; under the lock */

static uint64_t hash_of(const struct object_slabs *slabs, uintptr_t start) {
    return (start / slabs->slab_align * UINT64_C(0x9e3779b97f4a7c15)) >> 20 & (slabs->hash_count - 1);
}

static struct object_slab *find(const struct object_slabs *slabs, uintptr_t object) {
    if (slabs->hash == NULL) return NULL;
    uintptr_t start = align_down(object, slabs->slab_align);
    struct object_slab *slab = slabs->hash[hash_of(slabs, start)];
    while (slab != NULL && slab->start != start) slab = slab->chain;
    return slab;
}

static void hash_insert(struct object_slabs *slabs, struct object_slab *slab) {
    struct object_slab **head = &slabs->hash[hash_of(slabs, slab->start)];
    slab->chain = *head;
    *head = slab;
}

static void hash_remove(struct object_slabs *slabs, const struct object_slab *slab) {
    struct object_slab **at = &slabs->hash[hash_of(slabs, slab->start)];
    while (*at != slab) at = &(*at)->chain;
    *at = slab->chain;
}

/* Twice as many chains where there are as many slabs; without memory the old ones serve on, but for the first. Metadata's lock ranks below ours. */
static bool hash_has_room(struct object_slabs *slabs) {
    if (slabs->hash != NULL && slabs->slabs < slabs->hash_count) return true;
    uint64_t old_count = slabs->hash_count, count = old_count != 0 ? old_count * 2 : HASH_COUNT_MIN;
    struct object_slab **fresh = zone_metadata_alloc(slabs->zone, count * sizeof *fresh), **old = slabs->hash;
    if (fresh == NULL) return old != NULL;
    slabs->hash = fresh;
    slabs->hash_count = count;
    if (old == NULL) return true;
    for (uint64_t i = 0; i < old_count; i++)
        for (struct object_slab *slab = old[i], *next; slab != NULL; slab = next) {
            next = slab->chain;
            hash_insert(slabs, slab);
        }
    zone_metadata_free(slabs->zone, old, old_count * sizeof *old);
    return true;
}

/* ------------------------------------------------------------------ making and unmaking */

void objects_list_slab(struct object_slabs *slabs, struct object_slab *slab, bool front) {
    unsigned bucket = objects_bucket(slabs, slab);
    struct list *list = bucket == OBJECT_SLABS_BUCKETS ? &slabs->full : &slabs->buckets[bucket];
    slab->bucket = (uint16_t)bucket;
    list_remove(&slab->link);
    if (front)
        list_push_front(list, &slab->link);
    else
        list_push_back(list, &slab->link);
}

static void update_bucket(struct object_slabs *slabs, struct object_slab *slab) {
    if (objects_bucket(slabs, slab) != slab->bucket && slab != slabs->apart) objects_list_slab(slabs, slab, true);
}

/* A slab from the source, not yet known to anyone; NULL: none. Under no lock. */
static struct object_slab *create(struct object_slabs *slabs) {
    struct object_slab *slab = zone_metadata_alloc(slabs->zone, descriptor_bytes(slabs));
    if (slab == NULL) return NULL;
    if (!slabs->source->alloc(slabs->source_context, slabs->slab_bytes, slabs->slab_align, &slab->start)) {
        zone_metadata_free(slabs->zone, slab, descriptor_bytes(slabs));
        return NULL;
    }
    list_init(&slab->link);
    slab->chain = NULL;
    slab->free = slabs->capacity;
    slab->bucket = OBJECT_SLABS_BUCKETS - 1;
    slab->mark = OBJECTS_MOVABLE;
    for (unsigned w = 0; w < objects_words(slabs); w++) slab->bits[w] = ~UINT64_C(0);
    if (slabs->capacity % 64 != 0) slab->bits[objects_words(slabs) - 1] = (UINT64_C(1) << slabs->capacity % 64) - 1;
    return slab;
}

/* Under no lock. */
void objects_destroy_slab(struct object_slabs *slabs, struct object_slab *slab) {
    slabs->source->free(slabs->source_context, slab->start, slabs->slab_bytes);
    zone_metadata_free(slabs->zone, slab, descriptor_bytes(slabs));
}

void objects_unlink_slab(struct object_slabs *slabs, struct object_slab *slab) {
    hash_remove(slabs, slab);
    list_remove(&slab->link);
    COUNTER_SUB(slabs->slabs, 1);
    if (slab->free == slabs->capacity) slabs->empty--;
    slabs->slabs_released++;
}

/* The same, and it goes onto `gone`. */
static void unlink_slab(struct object_slabs *slabs, struct object_slab *slab, struct list *gone) {
    objects_unlink_slab(slabs, slab);
    list_push_back(gone, &slab->link);
}

static uint64_t destroy_all(struct object_slabs *slabs, struct list *gone) {
    uint64_t count = 0;
    while (!list_empty(gone)) {
        struct object_slab *slab = CONTAINER_OF(gone->next, struct object_slab, link);
        list_remove(&slab->link);
        objects_destroy_slab(slabs, slab);
        count++;
    }
    return count;
}

/* ------------------------------------------------------------------ objects */

unsigned objects_take(const struct object_slabs *slabs, struct object_slab *slab, void **objects, unsigned count) {
    unsigned taken = 0;
    if (slab->free < count) count = slab->free;
    for (unsigned w = 0; taken < count; w++)
        while (slab->bits[w] != 0 && taken < count) {
            objects[taken++] = (void *)(slab->start + (w * 64 + bit_lowest(slab->bits[w])) * slabs->stride);
            slab->bits[w] &= slab->bits[w] - 1;
        }
    slab->free -= taken;
    return taken;
}

static struct object_slab *fullest(struct object_slabs *slabs) {
    for (unsigned b = 0; b < OBJECT_SLABS_BUCKETS; b++)
        if (!list_empty(&slabs->buckets[b])) return CONTAINER_OF(slabs->buckets[b].next, struct object_slab, link);
    return NULL;
}

unsigned object_slabs_alloc(struct object_slabs *slabs, void **objects, unsigned count) {
    unsigned taken = 0;
    platform_lock_acquire(&slabs->lock);
    while (taken < count) {
        struct object_slab *slab = fullest(slabs);
        if (slab == NULL) {
            if (taken != 0) break; /* part of a batch now beats a whole one after a visit to the source */
            platform_lock_release(&slabs->lock);
            slab = create(slabs);
            platform_lock_acquire(&slabs->lock);
            bool room = slab != NULL && hash_has_room(slabs);
            if (slab != NULL && !room) {
                platform_lock_release(&slabs->lock);
                objects_destroy_slab(slabs, slab);
                platform_lock_acquire(&slabs->lock);
            }
            if (!room) {
                if (fullest(slabs) == NULL) break;
                continue; /* another thread has freed one meanwhile */
            }
            hash_insert(slabs, slab);
            list_push_front(&slabs->buckets[OBJECT_SLABS_BUCKETS - 1], &slab->link);
            COUNTER_ADD(slabs->slabs, 1);
            slabs->empty++;
            slabs->slabs_created++;
            slab = fullest(slabs);
        }
        if (slab->free == slabs->capacity) slabs->empty--;
        taken += objects_take(slabs, slab, objects + taken, count - taken);
        update_bucket(slabs, slab);
    }
    slabs->in_use += taken;
    slabs->allocs += taken;
    platform_lock_release(&slabs->lock);
    return taken;
}

enum object_slabs_error objects_locate(const struct object_slabs *slabs, const void *object, struct object_slab **slab, unsigned *index) {
    *slab = find(slabs, (uintptr_t)object);
    if (*slab == NULL) return OBJECTS_FOREIGN;
    uint64_t offset = (uintptr_t)object - (*slab)->start;
    if (offset >= slabs->slab_bytes) return OBJECTS_FOREIGN;
    if (offset % slabs->stride != 0 || offset / slabs->stride >= slabs->capacity) return OBJECTS_NO_START;
    *index = (unsigned)(offset / slabs->stride);
    return ((*slab)->bits[*index / 64] >> *index % 64 & 1) != 0 ? OBJECTS_TWICE : OBJECTS_OK;
}

enum object_slabs_error object_slabs_free(struct object_slabs *slabs, void *const *objects, unsigned count, unsigned *done) {
    enum object_slabs_error error = OBJECTS_OK;
    struct list gone;
    list_init(&gone);
    *done = 0;
    platform_lock_acquire(&slabs->lock);
    for (; *done < count; ++*done) {
        struct object_slab *slab;
        unsigned index;
        error = objects_locate(slabs, objects[*done], &slab, &index);
        if (error != OBJECTS_OK) break;
        slab->bits[index / 64] |= UINT64_C(1) << index % 64;
        slab->free++;
        slab->mark = OBJECTS_MOVABLE; /* also where an object of it could not be moved: it is worth another try */
        update_bucket(slabs, slab);
        slabs->in_use--;
        if (slab->free != slabs->capacity || slab == slabs->apart) continue;
        slabs->empty++;
        if (slabs->empty > 1 + slabs->slabs / EMPTY_SHARE) unlink_slab(slabs, slab, &gone);
    }
    platform_lock_release(&slabs->lock);
    destroy_all(slabs, &gone);
    return error;
}

enum object_slabs_error object_slabs_look_up(struct object_slabs *slabs, const void *object) {
    struct object_slab *slab;
    unsigned index;
    platform_lock_acquire(&slabs->lock);
    enum object_slabs_error error = objects_locate(slabs, object, &slab, &index);
    platform_lock_release(&slabs->lock);
    return error;
}

/* ------------------------------------------------------------------ giving back */

static void unlink_list(struct object_slabs *slabs, struct list *list, struct list *gone, bool only_empty) {
    for (struct list *node = list->next, *next; node != list; node = next) {
        struct object_slab *slab = CONTAINER_OF(node, struct object_slab, link);
        next = node->next;
        if (!only_empty || slab->free == slabs->capacity) unlink_slab(slabs, slab, gone);
    }
}

uint64_t object_slabs_reap(struct object_slabs *slabs) {
    struct list gone;
    list_init(&gone);
    platform_lock_acquire(&slabs->lock);
    unlink_list(slabs, &slabs->buckets[OBJECT_SLABS_BUCKETS - 1], &gone, true);
    platform_lock_release(&slabs->lock);
    return destroy_all(slabs, &gone);
}

uint64_t object_slabs_destroy(struct object_slabs *slabs) {
    struct list gone;
    list_init(&gone);
    platform_lock_acquire(&slabs->lock);
    uint64_t in_use = slabs->in_use;
    for (unsigned b = 0; b < OBJECT_SLABS_BUCKETS; b++) unlink_list(slabs, &slabs->buckets[b], &gone, false);
    unlink_list(slabs, &slabs->full, &gone, false);
    struct object_slab **hash = slabs->hash;
    slabs->hash = NULL;
    slabs->in_use = 0;
    platform_lock_release(&slabs->lock);
    destroy_all(slabs, &gone);
    if (hash != NULL) zone_metadata_free(slabs->zone, hash, slabs->hash_count * sizeof *hash);
    slabs->hash_count = 0;
    return in_use;
}

/* ------------------------------------------------------------------ looking inside */

bool object_slabs_walk(struct object_slabs *slabs, bool (*visit)(void *object, void *argument), void *argument) {
    platform_lock_acquire(&slabs->lock);
    uint64_t count = slabs->slabs, found = 0;
    platform_lock_release(&slabs->lock);
    if (count == 0) return true;
    /* The starts of all slabs there are, or of as many as there were a moment ago; then one slab at a time, by a copy of its bits. */
    size_t starts_bytes = count * sizeof(uintptr_t), bits_bytes = objects_words(slabs) * sizeof(uint64_t);
    uintptr_t *starts = zone_metadata_alloc(slabs->zone, starts_bytes);
    uint64_t *bits = zone_metadata_alloc(slabs->zone, bits_bytes);
    bool going = starts != NULL && bits != NULL, memory = going;
    if (going) {
        platform_lock_acquire(&slabs->lock);
        for (uint64_t i = 0; i < slabs->hash_count; i++)
            for (const struct object_slab *slab = slabs->hash[i]; slab != NULL && found < count; slab = slab->chain) starts[found++] = slab->start;
        platform_lock_release(&slabs->lock);
    }
    for (uint64_t i = 0; i < found && going; i++) {
        platform_lock_acquire(&slabs->lock);
        const struct object_slab *slab = find(slabs, starts[i]);
        if (slab != NULL) __builtin_memcpy(bits, slab->bits, bits_bytes);
        platform_lock_release(&slabs->lock);
        for (unsigned index = 0; slab != NULL && index < slabs->capacity && going; index++)
            if ((bits[index / 64] >> index % 64 & 1) == 0) going = visit((void *)(starts[i] + index * slabs->stride), argument);
    }
    if (starts != NULL) zone_metadata_free(slabs->zone, starts, starts_bytes);
    if (bits != NULL) zone_metadata_free(slabs->zone, bits, bits_bytes);
    return memory;
}

void object_slabs_stats_get(struct object_slabs *slabs, struct object_slabs_stats *stats) {
    platform_lock_acquire(&slabs->lock);
    *stats = (struct object_slabs_stats){.slabs = slabs->slabs,
                                         .total = slabs->slabs * slabs->capacity,
                                         .in_use = slabs->in_use,
                                         .memory_bytes = slabs->slabs * slabs->slab_bytes,
                                         .allocs = slabs->allocs,
                                         .frees = slabs->allocs - slabs->in_use,
                                         .slabs_created = slabs->slabs_created,
                                         .slabs_released = slabs->slabs_released};
    platform_lock_release(&slabs->lock);
}

static const char *check_slab(const struct object_slabs *slabs, const struct object_slab *slab, unsigned bucket, uint64_t *count,
                              uint64_t *free_objects) {
    unsigned bits = 0;
    for (unsigned w = 0; w < objects_words(slabs); w++) bits += bit_count(slab->bits[w]);
    if (bits != slab->free) return "object slabs: free differs from its bits";
    if (slab->bucket != bucket || (slab != slabs->apart && objects_bucket(slabs, slab) != bucket)) return "object slabs: in the wrong list";
    if (find(slabs, slab->start) != slab) return "object slabs: not in the hash table";
    ++*count;
    *free_objects += bits;
    return NULL;
}

static const char *check_list(const struct object_slabs *slabs, const struct list *list, unsigned bucket, uint64_t *count, uint64_t *free_objects,
                              uint64_t *empty) {
    LIST_FOR_EACH(list, node) {
        const struct object_slab *slab = CONTAINER_OF(node, struct object_slab, link);
        const char *broken = check_slab(slabs, slab, bucket, count, free_objects);
        if (broken != NULL) return broken;
        *empty += slab->free == slabs->capacity;
    }
    return NULL;
}

const char *object_slabs_check(struct object_slabs *slabs) {
    uint64_t count = 0, hashed = 0, free_objects = 0, empty = 0;
    const char *broken = NULL;
    platform_lock_acquire(&slabs->lock);
    for (unsigned b = 0; b < OBJECT_SLABS_BUCKETS && broken == NULL; b++)
        broken = check_list(slabs, &slabs->buckets[b], b, &count, &free_objects, &empty);
    if (broken == NULL) broken = check_list(slabs, &slabs->full, OBJECT_SLABS_BUCKETS, &count, &free_objects, &empty);
    for (uint64_t i = 0; i < slabs->hash_count; i++)
        for (const struct object_slab *slab = slabs->hash[i]; slab != NULL; slab = slab->chain) hashed++;
    if (broken == NULL && slabs->apart != NULL) broken = check_slab(slabs, slabs->apart, slabs->apart->bucket, &count, &free_objects);
    if (broken == NULL && slabs->apart != NULL && !list_empty(&slabs->apart->link)) broken = "object slabs: the one that is apart is in a list";
    if (broken == NULL && (count != slabs->slabs || hashed != count)) broken = "object slabs: their number differs from the lists or the hash table";
    if (broken == NULL && empty != slabs->empty) broken = "object slabs: empty ones differ from their count";
    if (broken == NULL && slabs->in_use + free_objects != count * slabs->capacity) broken = "object slabs: in use + free differs from the total";
    platform_lock_release(&slabs->lock);
    return broken;
}
