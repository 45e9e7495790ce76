/*
 * debug_slab.c - layouts of debugged buffers, and slabs of each layout: where they come from and what describes them.
 *
 * A slab of the zone has the tag TAG_DEBUG on each of its granules, and its address and that of its cache in each one's descriptor; one in the
 * firewall's address space stands in the table of its chunks; one from a source of the program's is found in the list of its twin. What describes
 * slabs are runs of the zone, as the transactions of many buffers can take much, and all of it shall go back.
 *
 * Who frees an address a second time may come when its slab goes. So the address leads to the cache first, which stays, and under its lock to the
 * slab, which is taken out of these places under that lock, too.
 */
#include "slab/debug_internal.h"

#define PLACES_WANTED 8
#define SLAB_BYTES_MIN (16 * KIB)
#define SLAB_BYTES_USUAL (256 * KIB)
#define DESCRIBED_BYTES_MAX SUPERPAGE_BYTES
#define TAGGED_GRANULES_MAX 256 /* of one call of zone_tag_run */
#define LEAD_BYTES 16           /* in front of a buffer, with guards */
#define REDZONE_BYTES 8         /* after the longest one, at least */
/* Address space for firewalls: what there is, from this down. */
#define WINDOW_BYTES_MAX (64 * GIB)
#define WINDOW_BYTES_MIN (64 * MIB)
#define WINDOW_ADDRESS_SHARE 8 /* of a limit on address space */
#define MAPPINGS_SHARE 4       /* of the mappings that a process may have */

static bool is_of_zone(const struct debug_twin *twin) { return !twin->features.firewall && twin->cache->source == NULL; }

/* ------------------------------------------------------------------ layouts */

static uint64_t page_bytes_of(const struct debug_twin *twin) {
    return max_u64(platform_info()->page_bytes, (uint64_t)twin->cache->layer->zone->page_granules << GRANULE_SHIFT);
}

static void lay_out_firewall(struct debug_twin *twin) {
    const struct debug_cache *cache = twin->cache;
    uint64_t page = page_bytes_of(twin);
    twin->reach = align_up(align_up(cache->bytes, cache->align) + twin->lead + (cache->align > page ? cache->align : 0), page);
    twin->stride = twin->reach + page;
    twin->slab_bytes = twin->slab_align = SUPERPAGE_BYTES;
}

static void lay_out(struct debug_twin *twin) {
    const struct debug_cache *cache = twin->cache;
    uint64_t page = page_bytes_of(twin), align = max_u64(cache->align, 8);
    twin->stride = twin->reach = align_up(twin->lead + cache->bytes + (twin->features.guards ? REDZONE_BYTES : 0), align);
    uint64_t bytes = max_u64(SLAB_BYTES_MIN, page);
    while (bytes < SLAB_BYTES_USUAL && bytes / twin->stride < PLACES_WANTED) bytes *= 2;
    twin->slab_bytes = max_u64(bytes, align_up(twin->stride, page));
    twin->slab_align = max_u64(cache->align, page);
}

/* All of a twin but its lists. Its capacity is 0 where no slab holds an object. */
static void fill_in(struct debug_twin *twin, struct debug_cache *cache, const struct debug_features *features) {
    *twin = (struct debug_twin){.cache = cache, .features = *features};
    twin->features.firewall = features->firewall && cache->bytes >= features->firewall_min && cache->source == NULL;
    twin->lead = features->guards ? max_u64(LEAD_BYTES, cache->align) : 0;
    if (twin->features.firewall)
        lay_out_firewall(twin);
    else
        lay_out(twin);
    twin->transaction_bytes = (uint32_t)(sizeof(struct debug_transaction) + features->frames * sizeof(uintptr_t));
    twin->slot_bytes =
        (uint32_t)align_up(sizeof(struct debug_slot) + (uint64_t)features->audit * twin->transaction_bytes + 2 * (uint64_t)features->contents, 8);
    uint64_t places = min_u64(twin->slab_bytes / twin->stride, (DESCRIBED_BYTES_MAX - sizeof(struct debug_slab)) / twin->slot_bytes);
    twin->capacity = twin->slab_bytes <= SUPERPAGE_BYTES ? (uint32_t)places : 0;
    uint64_t described =
        align_up(sizeof(struct debug_slab) + places * twin->slot_bytes, (uint64_t)cache->layer->zone->page_granules << GRANULE_SHIFT);
    twin->described_granules = (uint32_t)(described >> GRANULE_SHIFT);
}

bool debug_cache_has_room(struct debug_cache *cache, const struct debug_features *features) {
    struct debug_twin twin;
    fill_in(&twin, cache, features);
    return twin.capacity != 0;
}

struct debug_twin *debug_twin_create(struct debug_cache *cache, const struct debug_features *features) {
    struct debug_twin *twin = zone_metadata_alloc(cache->layer->zone, sizeof *twin);
    if (twin == NULL) return NULL;
    fill_in(twin, cache, features);
    CHECK(twin->capacity != 0);
    list_init(&twin->link);
    list_init(&twin->slabs);
    list_init(&twin->queue);
    return twin;
}

void debug_twin_destroy(struct debug_twin *twin) { zone_metadata_free(twin->cache->layer->zone, twin, sizeof *twin); }

/* ------------------------------------------------------------------ the firewall's address space */

/* Under window_lock. */
static bool make_window(struct debug_layer *layer) {
    uint64_t limit = platform_info()->address_limit_bytes, bytes = WINDOW_BYTES_MAX;
    while (bytes > WINDOW_BYTES_MIN && bytes > limit / WINDOW_ADDRESS_SHARE) bytes /= 2;
    void *window = NULL;
    for (; window == NULL && bytes >= WINDOW_BYTES_MIN; bytes /= 2) {
        window = platform_reserve(NULL, bytes, SUPERPAGE_BYTES);
        if (window != NULL) break;
    }
    if (window == NULL) return false;
    uint64_t count = bytes / SUPERPAGE_BYTES;
    layer->chunks = zone_metadata_alloc(layer->zone, count * sizeof *layer->chunks);
    if (layer->chunks == NULL) {
        platform_unreserve(window, bytes);
        return false;
    }
    layer->chunk_count = (uint32_t)count;
    layer->window = (uintptr_t)window;
    __atomic_store_n(&layer->window_bytes, bytes, __ATOMIC_RELEASE);
    return true;
}

/* By turns, so that what was freed stays without access as long as can be. */
static bool take_chunk(struct debug_slab *slab) {
    struct debug_layer *layer = slab->twin->cache->layer;
    bool found = false;
    platform_lock_acquire(&layer->window_lock);
    if (layer->window_bytes != 0 || make_window(layer)) {
        for (uint32_t tried = 0; tried < layer->chunk_count && !found; tried++) {
            uint32_t chunk = layer->next_chunk;
            layer->next_chunk = (chunk + 1) % layer->chunk_count;
            if (__atomic_load_n(&layer->chunks[chunk].slab, __ATOMIC_RELAXED) != NULL) continue;
            found = true;
            slab->chunk = chunk;
            slab->start = layer->window + (uint64_t)chunk * SUPERPAGE_BYTES;
            __atomic_store_n(&layer->chunks[chunk].cache, slab->twin->cache, __ATOMIC_RELAXED);
            __atomic_store_n(&layer->chunks[chunk].slab, slab, __ATOMIC_RELEASE);
        }
    }
    platform_lock_release(&layer->window_lock);
    return found;
}

bool debug_place_open(const struct debug_place *place) {
    const struct debug_twin *twin = place->slab->twin;
    struct debug_layer *layer = twin->cache->layer;
    if (!twin->features.firewall) return true;
    uint64_t most = platform_map_count_limit() / MAPPINGS_SHARE / 2; /* each is a mapping, and one between it and the next */
    if (__atomic_load_n(&layer->open_places, __ATOMIC_RELAXED) >= most) return false;
    if (!zone_outside_take(layer->zone, twin->reach >> GRANULE_SHIFT)) return false;
    if (!platform_commit((void *)place_at(place->slab, place->index), twin->reach)) {
        zone_outside_give(layer->zone, twin->reach >> GRANULE_SHIFT);
        return false;
    }
    __atomic_fetch_add(&layer->open_places, 1, __ATOMIC_RELAXED);
    return true;
}

void debug_place_close(const struct debug_place *place) {
    const struct debug_twin *twin = place->slab->twin;
    if (!twin->features.firewall) return;
    /* Where the system can't (no memory for a mapping more), it stays open: then the place serves as one without a firewall. */
    void *start = (void *)place_at(place->slab, place->index);
    if (!platform_decommit(start, twin->reach)) platform_release(start, twin->reach);
    zone_outside_give(twin->cache->layer->zone, twin->reach >> GRANULE_SHIFT);
    __atomic_fetch_sub(&twin->cache->layer->open_places, 1, __ATOMIC_RELAXED);
}

/* ------------------------------------------------------------------ slabs */

/* In a descriptor. */
enum { WORD_SLAB, WORD_CACHE };

static void tag_all(const struct debug_slab *slab, unsigned tag) {
    struct debug_twin *twin = slab->twin;
    struct zone *zone = twin->cache->layer->zone;
    size_t first = zone_granule_of(zone, (void *)slab->start);
    unsigned granules = (unsigned)(twin->slab_bytes >> GRANULE_SHIFT);
    for (unsigned i = 0; i < granules && tag == TAG_DEBUG; i++) { /* before the tags: who finds one finds the slab */
        __atomic_store_n(&zone->descs[first + i].words[WORD_CACHE], (uintptr_t)twin->cache, __ATOMIC_RELEASE);
        __atomic_store_n(&zone->descs[first + i].words[WORD_SLAB], (uintptr_t)slab, __ATOMIC_RELEASE);
    }
    for (unsigned at = 0; at < granules; at += TAGGED_GRANULES_MAX)
        zone_tag_run(zone, (char *)slab->start + ((uint64_t)at << GRANULE_SHIFT), (unsigned)min_u64(granules - at, TAGGED_GRANULES_MAX), tag);
}

static bool take_memory(struct debug_slab *slab) {
    struct debug_twin *twin = slab->twin;
    const struct debug_cache *cache = twin->cache;
    struct zone *zone = cache->layer->zone;
    if (twin->features.firewall) return take_chunk(slab);
    if (cache->source != NULL) return cache->source->alloc(cache->source_context, twin->slab_bytes, twin->slab_align, &slab->start);
    struct zone_run run;
    if (!zone_run_alloc(zone, (unsigned)(twin->slab_bytes >> GRANULE_SHIFT), (unsigned)max_u64(twin->slab_align >> GRANULE_SHIFT, 1),
                        MOBILITY_UNMOVABLE, &run))
        return false;
    slab->start = (uintptr_t)run.address;
    return true;
}

struct debug_slab *debug_slab_create(struct debug_twin *twin) {
    struct zone *zone = twin->cache->layer->zone;
    struct zone_run run;
    if (!zone_run_alloc(zone, twin->described_granules, 1, MOBILITY_UNMOVABLE, &run)) return NULL;
    struct debug_slab *slab = run.address;
    __builtin_memset(slab, 0, sizeof *slab + (uint64_t)twin->capacity * twin->slot_bytes);
    slab->twin = twin;
    list_init(&slab->link);
    if (!take_memory(slab)) {
        zone_run_free(zone, slab, twin->described_granules);
        return NULL;
    }
    for (unsigned i = 0; i < twin->capacity; i++) {
        struct debug_slot *slot = slot_at(slab, i);
        list_init(&slot->link);
        slot->index = i;
        slot->offset = (uint32_t)twin->lead;
        slot->bytes = twin->cache->bytes;
        const struct debug_place place = {slab, slot, i};
        if (twin->features.guards && !twin->features.firewall) debug_guard_freed(&place);
    }
    if (is_of_zone(twin)) tag_all(slab, TAG_DEBUG);
    return slab;
}

void debug_slab_link(struct debug_slab *slab) {
    struct debug_twin *twin = slab->twin;
    struct debug_cache *cache = twin->cache;
    slab->id = __atomic_add_fetch(&cache->layer->next_id, 1, __ATOMIC_RELAXED);
    list_push_back(&twin->slabs, &slab->link);
    for (unsigned i = 0; i < twin->capacity; i++) list_push_back(&twin->queue, &slot_at(slab, i)->link);
    COUNTER_ADD(cache->slabs, 1);
    COUNTER_ADD(cache->free, twin->capacity);
    cache->memory_bytes += twin->slab_bytes;
    cache->described_bytes += (uint64_t)twin->described_granules << GRANULE_SHIFT;
}

/* Only a cache that is destroyed has buffers in use then. */
static void close_places(struct debug_slab *slab) {
    for (unsigned i = 0; i < slab->twin->capacity; i++) {
        const struct debug_place place = {slab, slot_at(slab, i), i};
        if (place.slot->state == DEBUG_STATE_IN_USE) debug_place_close(&place);
    }
}

void debug_slab_unlink(struct debug_slab *slab) {
    struct debug_twin *twin = slab->twin;
    struct debug_cache *cache = twin->cache;
    list_remove(&slab->link);
    slab->id = 0;
    for (unsigned i = 0; i < twin->capacity; i++) list_remove(&slot_at(slab, i)->link);
    COUNTER_SUB(cache->slabs, 1);
    COUNTER_SUB(cache->free, twin->capacity - slab->in_use);
    cache->memory_bytes -= twin->slab_bytes;
    cache->described_bytes -= (uint64_t)twin->described_granules << GRANULE_SHIFT;
    if (twin->features.firewall) {
        close_places(slab);
        __atomic_store_n(&cache->layer->chunks[slab->chunk].slab, NULL, __ATOMIC_RELEASE); /* and who takes chunks may have this one */
    } else if (is_of_zone(twin)) {
        tag_all(slab, TAG_NONE);
    }
}

void debug_slab_destroy(struct debug_slab *slab) {
    struct debug_twin *twin = slab->twin;
    const struct debug_cache *cache = twin->cache;
    struct zone *zone = cache->layer->zone;
    if (cache->source != NULL)
        cache->source->free(cache->source_context, slab->start, twin->slab_bytes);
    else if (is_of_zone(twin))
        zone_run_free(zone, (void *)slab->start, (unsigned)(twin->slab_bytes >> GRANULE_SHIFT));
    zone_run_free(zone, slab, twin->described_granules);
}

/* ------------------------------------------------------------------ by address */

/* What the descriptor of an address has where that is in a slab of the zone, else 0. It is one's own only where the tag is still there after it. */
static uintptr_t word_of(const struct zone *zone, const void *address, unsigned word) {
    if (!zone_contains(zone, address)) return 0;
    const size_t granule = zone_granule_of(zone, address);
    if ((zone_tag_of(zone, granule) & 0xff) != TAG_DEBUG) return 0;
    const uintptr_t found = __atomic_load_n(&zone->descs[granule].words[word], __ATOMIC_ACQUIRE);
    return (zone_tag_of(zone, granule) & 0xff) == TAG_DEBUG ? found : 0;
}

struct debug_slab *debug_slab_round(struct debug_layer *layer, uintptr_t address) {
    if (in_window(layer, address)) return __atomic_load_n(&layer->chunks[(address - layer->window) / SUPERPAGE_BYTES].slab, __ATOMIC_ACQUIRE);
    return (struct debug_slab *)word_of(layer->zone, (const void *)address, WORD_SLAB);
}

struct debug_cache *debug_cache_of(struct debug_layer *layer, const void *address) {
    if (!in_window(layer, (uintptr_t)address)) return (struct debug_cache *)word_of(layer->zone, address, WORD_CACHE);
    const struct debug_chunk *chunk = &layer->chunks[((uintptr_t)address - layer->window) / SUPERPAGE_BYTES];
    return __atomic_load_n(&chunk->slab, __ATOMIC_ACQUIRE) != NULL ? __atomic_load_n(&chunk->cache, __ATOMIC_RELAXED) : NULL;
}

struct debug_slab *debug_slab_of(const struct debug_cache *cache, uintptr_t address) {
    if (cache->source == NULL) {
        struct debug_slab *slab = debug_cache_of(cache->layer, (const void *)address) == cache ? debug_slab_round(cache->layer, address) : NULL;
        return slab != NULL && slab->id != 0 ? slab : NULL; /* one that is about to be linked has none yet */
    }
    LIST_FOR_EACH(&cache->twins, node) {
        const struct debug_twin *twin = CONTAINER_OF(node, struct debug_twin, link);
        LIST_FOR_EACH(&twin->slabs, at) {
            struct debug_slab *slab = CONTAINER_OF(at, struct debug_slab, link);
            if (address - slab->start < twin->slab_bytes) return slab;
        }
    }
    return NULL;
}
