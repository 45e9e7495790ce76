/*
 * object_cache.c - see object_cache.h.
 *
 * The backend of a layer is here: slabs with a constructor in front of them. Objects in transit are in an array of the thread that moves them, so
 * that constructors and destructors run with no lock held.
 */
#include "cache/object_internal.h"

#include "base/check.h"
#include "cache/cache_internal.h"
#include "cache/object_debug.h"

_Static_assert(OBJECT_LAYER_CACHES * (1 + CACHE_ROUNDS_MAX) + CPU_AREA_WORDS <= CPU_AREA_SLOTS, "a layer's headers and arrays fit an area");
_Static_assert(OBJECT_LAYER_CACHES <= SLAB_CACHE_MAGAZINES, "a layer has a depot for each cache");
_Static_assert(OBJECT_LAYER_CACHES < 32, "a layer has a bit for each place");
#define PLACES_ALL ((UINT32_C(1) << OBJECT_LAYER_CACHES) - 1)

/* Arrays begin as malloc's for objects of the same size, those of integers as for this size. */
#define DEPOT_OBJECT_BYTES_MAX (256 * KIB)
#define INTEGER_BYTES 64

/* ------------------------------------------------------------------ the backend: slabs and constructors */

static _Noreturn STRATA_COLD void bad_free(const struct object_cache *cache, const void *object, enum object_slabs_error error) {
    static const char *const texts[] = {
        [OBJECTS_FOREIGN] = "not an object of this cache", [OBJECTS_NO_START] = "not the start of an object", [OBJECTS_TWICE] = "double free"};
    fatal("%s(): 0x%llx: %s (cache %s)", cache->free_function, (unsigned long long)(uintptr_t)object, texts[error], cache->name);
}

unsigned object_construct(struct object_cache *cache, void **objects, unsigned count) {
    unsigned kept = 0, done;
    if (cache->construct == NULL) kept = count;
    for (unsigned i = kept; i < count; i++) {
        if (cache->construct(objects[i], cache->argument) == 0) {
            objects[kept++] = objects[i];
        } else {
            CHECK(object_slabs_free(&cache->slabs, &objects[i], 1, &done) == OBJECTS_OK);
            __atomic_fetch_add(&cache->refused, 1, __ATOMIC_RELAXED);
        }
    }
    __atomic_fetch_add(&cache->constructed, kept, __ATOMIC_RELAXED);
    return kept;
}

/* An object is known to be one before the program's function is let loose on it. */
void object_give(struct object_cache *cache, void *const *objects, unsigned count) {
    unsigned done;
    if (cache->destruct != NULL) {
        for (unsigned i = 0; i < count; i++) {
            enum object_slabs_error error = object_slabs_look_up(&cache->slabs, objects[i]);
            if (STRATA_UNLIKELY(error != OBJECTS_OK)) bad_free(cache, objects[i], error);
            cache->destruct(objects[i], cache->argument);
        }
    }
    __atomic_fetch_add(&cache->destructed, count, __ATOMIC_RELAXED);
    enum object_slabs_error error = object_slabs_free(&cache->slabs, objects, count, &done);
    if (STRATA_UNLIKELY(error != OBJECTS_OK)) bad_free(cache, objects[done], error);
}

static unsigned backend_take(void *context, unsigned index, unsigned home, bool apart, void **objects, unsigned count) {
    const struct object_layer *layer = context;
    unsigned taken;
    (void)home, (void)apart;
    if (STRATA_UNLIKELY(object_debug_take(layer->caches[index], objects, &taken))) return taken;
    const unsigned raw = object_slabs_alloc(&layer->caches[index]->slabs, objects, count);
    taken = object_construct(layer->caches[index], objects, raw);
    rounds_reverse(objects, taken);
    if (STRATA_UNLIKELY(taken == 0)) object_debug_failed(layer->caches[index], raw != 0 ? OBJECT_BY_CONSTRUCTOR : OBJECT_LACK);
    return taken;
}
static void backend_give(void *context, unsigned index, void *const *objects, unsigned count) {
    const struct object_layer *layer = context;
    if (STRATA_UNLIKELY(object_debug_give(layer->caches[index], objects, count, object_give))) return;
    object_give(layer->caches[index], objects, count);
}
static uint64_t backend_total(void *context, unsigned index) {
    const struct object_layer *layer = context;
    const struct object_slabs *slabs = &layer->caches[index]->slabs;
    return __atomic_load_n(&slabs->slabs, __ATOMIC_RELAXED) * slabs->capacity;
}
static const struct cache_backend backend = {.alloc = backend_take, .free = backend_give, .total = backend_total};

/* ------------------------------------------------------------------ layers and places */

STRATA_USUAL void object_caches_init(struct object_caches *objects, struct slab_layer *slabs, struct cache_layer *first, unsigned magazine_max) {
    *objects = (struct object_caches){.lock = PLATFORM_LOCK_INIT(LOCK_RANK_OBJECTS), .slabs = slabs, .first = first, .magazine_max = magazine_max};
    list_init(&objects->all);
}

static struct object_layer *next_layer(struct object_layer *const *link) { return __atomic_load_n(link, __ATOMIC_ACQUIRE); }

/* Under objects->lock. */
static struct object_layer *add_layer(struct object_caches *objects) {
    struct zone *zone = objects->slabs->zone;
    struct object_layer *owner = zone_metadata_alloc(zone, sizeof *owner);
    if (owner == NULL) return NULL;
    struct cache_layer *layer = &owner->layer;
    layer->slabs = objects->slabs;
    layer->backend = &backend;
    layer->backend_context = owner;
    layer->main = objects->first;
    layer->end = OBJECT_LAYER_CACHES;
    layer->closed = objects->magazine_max == 0;
    layer->drain_lock = (struct platform_lock)PLATFORM_LOCK_INIT(LOCK_RANK_DRAIN);
    for (unsigned i = 0; i < OBJECT_LAYER_CACHES; i++) depot_init(&layer->depots[i], 1, 0, DEPOT_KEEPS_FEW);
    if (!cache_layer_join(layer)) {
        zone_metadata_free(zone, owner, sizeof *owner);
        return NULL;
    }
    __atomic_store_n(objects->last == NULL ? &objects->layers : &objects->last->next, owner, __ATOMIC_RELEASE);
    objects->last = objects->roomy = owner; /* there was none with room */
    return owner;
}

/* Under objects->lock, as the next. Layers with free places are a stack, as a search of all would be linear in the caches. */
static struct object_layer *take_place(struct object_caches *objects, unsigned *index) {
    struct object_layer *owner = objects->roomy != NULL ? objects->roomy : add_layer(objects);
    if (owner == NULL) return NULL;
    *index = bit_lowest(~owner->taken);
    owner->taken |= UINT32_C(1) << *index;
    if (owner->taken == PLACES_ALL) objects->roomy = owner->next_roomy;
    return owner;
}
static void leave_place(struct object_caches *objects, struct object_layer *owner, unsigned index) {
    if (owner->taken == PLACES_ALL) {
        owner->next_roomy = objects->roomy;
        objects->roomy = owner;
    }
    owner->taken &= ~(UINT32_C(1) << index);
    owner->caches[index] = NULL;
}

static void free_cache(struct zone *zone, struct object_cache *cache) {
    if (cache->reclaimer != NULL) zone_metadata_free(zone, cache->reclaimer, sizeof *cache->reclaimer);
    if (cache->mover != NULL) zone_metadata_free(zone, cache->mover, sizeof *cache->mover);
    zone_metadata_free(zone, cache, sizeof *cache);
}

static enum depot_keeps what_is_kept(const struct object_cache *cache) {
    if (cache->integers != 0) return DEPOT_KEEPS_FEW;
    return cache->construct != NULL || cache->destruct != NULL ? DEPOT_KEEPS_ALL : DEPOT_KEEPS_BURSTS;
}

enum object_cache_status object_cache_create(struct object_caches *objects, const struct object_cache_config *config, struct object_cache **created) {
    struct zone *zone = objects->slabs->zone;
    struct object_cache *cache = zone_metadata_alloc(zone, sizeof *cache);
    if (cache == NULL) return OBJECT_CACHE_NO_MEMORY;
    *cache = (struct object_cache){.bytes = config->bytes,
                                   .align = config->align,
                                   .construct = config->construct,
                                   .destruct = config->destruct,
                                   .argument = config->argument,
                                   .integers = config->integers,
                                   .no_debug = config->no_debug,
                                   .alloc_function = config->alloc_function != NULL ? config->alloc_function : "strata_cache_alloc",
                                   .free_function = config->free_function};
    if (!object_slabs_init(&cache->slabs, zone, config->bytes, config->align, config->slab_bytes, config->source, config->source_context)) {
        zone_metadata_free(zone, cache, sizeof *cache);
        return OBJECT_CACHE_BAD_SIZE;
    }
    format_text(cache->name, sizeof cache->name, "%s", config->name);
    if (config->reclaim != NULL && !object_reclaimer_add(cache, config)) {
        zone_metadata_free(zone, cache, sizeof *cache);
        return OBJECT_CACHE_NO_MEMORY;
    }
    platform_lock_acquire(&objects->lock);
    struct object_layer *owner = take_place(objects, &cache->index);
    if (owner != NULL) {
        struct depot *depot = &owner->layer.depots[cache->index];
        depot_init(depot, cache->integers != 0 ? INTEGER_BYTES : min_u64(cache->slabs.stride, DEPOT_OBJECT_BYTES_MAX),
                   config->no_magazines ? 0 : objects->magazine_max, what_is_kept(cache));
        depot->allocs = depot->frees = depot->contention = 0; /* those of who had the place before */
        depot->bottom = (uint16_t)(OBJECT_LAYER_CACHES + CPU_AREA_WORDS + cache->index * CACHE_ROUNDS_MAX);
        cache->owner = owner;
        cache->areas_at = owner->layer.areas_at;
        owner->caches[cache->index] = cache;
        list_push_back(&objects->all, &cache->link);
    }
    platform_lock_release(&objects->lock);
    if (owner == NULL) {
        free_cache(zone, cache);
        return OBJECT_CACHE_NO_MEMORY;
    }
    *created = cache;
    return OBJECT_CACHE_OK;
}

/* ------------------------------------------------------------------ pins */

/* Under objects->lock. A child of fork may have taken the pin of a caller that went on in it. */
static void unpin(struct object_cache *cache) {
    if (cache->pins == 0) return;
    if (--cache->pins == 0 && object_is_leaving(cache)) platform_event_wake(&cache->unpinned);
}

bool object_pin(struct object_caches *objects, struct object_cache *cache) {
    platform_lock_acquire(&objects->lock);
    bool pinned = !object_is_leaving(cache);
    if (pinned) cache->pins++;
    platform_lock_release(&objects->lock);
    return pinned;
}

struct object_cache *object_pin_next(struct object_caches *objects, struct object_place *place, bool (*is_wanted)(const struct object_cache *cache)) {
    struct object_cache *found = NULL;
    platform_lock_acquire(&objects->lock);
    if (place->owner == NULL) *place = (struct object_place){.owner = objects->layers};
    for (; place->owner != NULL && found == NULL; place->index++) {
        if (place->index == OBJECT_LAYER_CACHES) {
            if (place->owner->next == NULL) break;
            *place = (struct object_place){.owner = place->owner->next};
        }
        struct object_cache *cache = place->owner->caches[place->index];
        if (cache != NULL && !object_is_leaving(cache) && is_wanted(cache)) found = cache;
    }
    if (found != NULL) found->pins++;
    platform_lock_release(&objects->lock);
    return found;
}

void object_unpin(struct object_caches *objects, struct object_cache *cache) {
    platform_lock_acquire(&objects->lock);
    unpin(cache);
    platform_lock_release(&objects->lock);
}

/*
 * From now on nobody but the caller touches what the cache has in arrays and depot; all of that goes back to the slabs. for_good: it goes off the
 * list, too, at the same moment: a fork between the two would not hold its locks, and the child pin it.
 */
static void leave(struct object_caches *objects, struct object_cache *cache, bool for_good) {
    struct object_layer *owner = cache->owner;
    platform_lock_acquire(&objects->lock);
    if (for_good) list_remove(&cache->link);
    __atomic_store_n(&owner->layer.depots[cache->index].leaving, true, __ATOMIC_RELAXED);
    while (cache->pins != 0) {
        platform_lock_release(&objects->lock);
        platform_event_wait(&cache->unpinned, UINT64_MAX);
        platform_lock_acquire(&objects->lock);
    }
    platform_lock_release(&objects->lock);
    cpu_layer_retire(&owner->layer, cache->index);
    depot_tick(&owner->layer, cache->index, true);
}

uint64_t object_cache_empty(struct object_caches *objects, struct object_cache *cache) {
    struct object_slabs_stats stats;
    leave(objects, cache, false);
    object_slabs_reap(&cache->slabs);
    object_slabs_stats_get(&cache->slabs, &stats);
    platform_lock_acquire(&objects->lock); /* pairs with that of who looks whether it may be pinned */
    __atomic_store_n(&cache->owner->layer.depots[cache->index].leaving, false, __ATOMIC_RELAXED);
    platform_lock_release(&objects->lock);
    return stats.in_use;
}

uint64_t object_cache_destroy(struct object_caches *objects, struct object_cache *cache) {
    struct object_layer *owner = cache->owner;
    leave(objects, cache, true);
    uint64_t left = object_slabs_destroy(&cache->slabs) + object_debug_destroy(cache);

    platform_lock_acquire(&objects->lock);
    leave_place(objects, owner, cache->index);
    rounds_stop_cycling(&owner->layer, &owner->layer.depots[cache->index]); /* what its arrays have grown by counts no more */
    depot_init(&owner->layer.depots[cache->index], 1, 0, DEPOT_KEEPS_FEW);
    platform_lock_release(&objects->lock);
    cache->areas_at = objects->first->areas_at;
    cache->index = TAG_NONE;
    free_cache(objects->slabs->zone, cache);
    return left;
}

/* ------------------------------------------------------------------ objects */

void *object_cache_alloc_near(struct object_cache *cache) {
    void *object = cpu_pop_in(&cache->areas_at, cache->index);
    return STRATA_LIKELY(object != NULL) ? object : cache_alloc_slow(&cache->owner->layer, cache->index);
}

/* The last object can be had from any CPU (kmem paper, 5.2). */
void *object_cache_alloc_far(struct object_cache *cache) {
    cpu_layer_drain(&cache->owner->layer, false);
    return cache_alloc_slow(&cache->owner->layer, cache->index);
}

void *object_cache_alloc_slow(struct object_cache *cache) {
    struct cache_layer *layer = &cache->owner->layer;
    void *object = cache_alloc_slow(layer, cache->index);
    if (STRATA_LIKELY(object != NULL) || layer->depots[cache->index].rounds_max == 0 || object_debug_is_on(cache)) return object;
    return object_cache_alloc_far(cache);
}

void object_cache_free_slow(struct object_cache *cache, void *object) { cache_free_slow(&cache->owner->layer, cache->index, object); }

unsigned object_cache_alloc_batch(struct object_cache *cache, void **taken, unsigned count, bool *slow) {
    unsigned got = 0;
    while (got < count) {
        unsigned some = cpu_pop_batch_in(&cache->areas_at, cache->index, taken + got, count - got);
        if (some == 0) {
            *slow = true;
            taken[got] = object_cache_alloc_slow(cache);
            some = taken[got] != NULL;
        }
        if (some == 0) break;
        got += some;
    }
    return got;
}

void object_cache_free_batch(struct object_cache *cache, void *const *given, unsigned count, bool *slow) {
    unsigned done = 0;
    while (done < count) {
        unsigned some = cpu_push_batch_in(&cache->areas_at, cache->index, given + done, count - done);
        if (some == 0) {
            *slow = true;
            object_cache_free_slow(cache, given[done]);
            some = 1;
        }
        done += some;
    }
}

/* ------------------------------------------------------------------ giving back */

static bool is_any(const struct object_cache *cache) {
    (void)cache;
    return true;
}

/* Of a cache that is pinned, and it alone: destructors may destroy others. */
static void reap_pinned(struct object_cache *cache) {
    struct cache_layer *layer = &cache->owner->layer;
    if (layer->thread_mode) cpu_layer_drain_own_of(layer, cache->index); /* where there is no fence */
    depot_tick(layer, cache->index, true);
    object_slabs_reap(&cache->slabs);
    object_debug_reap(cache);
}

/* With what is in arrays; those of other caches stay full. */
static void reap_alone(struct object_cache *cache) {
    cpu_layer_drain_of(&cache->owner->layer, cache->index);
    reap_pinned(cache);
}

static void drain_all(struct object_caches *objects, bool idle_only) {
    for (struct object_layer *owner = next_layer(&objects->layers); owner != NULL; owner = next_layer(&owner->next))
        cpu_layer_drain(&owner->layer, idle_only);
}

void object_cache_reap(struct object_caches *objects, struct object_cache *cache) {
    if (!object_pin(objects, cache)) return;
    reap_alone(cache);
    object_unpin(objects, cache);
}

void object_caches_reap_some(struct object_caches *objects, bool (*is_wanted)(const struct object_cache *cache),
                             bool (*holds)(const struct object_cache *cache, const void *argument), const void *argument) {
    struct object_place place = {0};
    for (struct object_cache *cache; (cache = object_pin_next(objects, &place, is_wanted)) != NULL; object_unpin(objects, cache))
        if (holds(cache, argument)) reap_alone(cache);
}

void object_caches_reap(struct object_caches *objects) {
    struct object_place place = {0};
    drain_all(objects, false);
    for (struct object_cache *cache; (cache = object_pin_next(objects, &place, is_any)) != NULL; object_unpin(objects, cache)) reap_pinned(cache);
}

/* Of such a cache no function of the program's runs. */
static bool is_silent(const struct object_cache *cache) {
    return cache->construct == NULL && cache->destruct == NULL && cache->integers == 0 && cache->slabs.source == &slab_source_zone;
}

void object_caches_reap_silent(struct object_caches *objects) {
    struct object_place place = {0};
    for (struct object_cache *cache; (cache = object_pin_next(objects, &place, is_silent)) != NULL; object_unpin(objects, cache)) {
        depot_tick(&cache->owner->layer, cache->index, true);
        object_slabs_reap(&cache->slabs);
    }
}

void object_caches_tick(struct object_caches *objects) {
    struct object_place place = {0};
    drain_all(objects, true);
    for (struct object_cache *cache; (cache = object_pin_next(objects, &place, is_any)) != NULL; object_unpin(objects, cache))
        depot_tick(&cache->owner->layer, cache->index, false);
}

void object_cache_tick_once(struct object_cache *cache, uint32_t ticks) {
    uint32_t seen = __atomic_load_n(&cache->ticks, __ATOMIC_RELAXED);
    /* Never back, or two ticks with no time between would take all for unneeded. */
    if ((int32_t)(ticks - seen) <= 0 || !__atomic_compare_exchange_n(&cache->ticks, &seen, ticks, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return;
    depot_tick(&cache->owner->layer, cache->index, false);
}

void object_caches_thread_exit(struct object_caches *objects, uint32_t id) {
    for (struct object_layer *owner = next_layer(&objects->layers); owner != NULL; owner = next_layer(&owner->next))
        cache_thread_exit(&owner->layer, id);
}

/* ------------------------------------------------------------------ looking inside, fork */

void object_cache_stats_get(struct object_cache *cache, struct object_cache_stats *stats) {
    object_slabs_stats_get(&cache->slabs, &stats->slabs);
    object_debug_add_stats(cache, &stats->slabs);
    cache_stats_get(&cache->owner->layer, cache->index, &stats->cache);
    stats->constructed = __atomic_load_n(&cache->constructed, __ATOMIC_RELAXED);
    stats->destructed = __atomic_load_n(&cache->destructed, __ATOMIC_RELAXED);
    stats->refused = __atomic_load_n(&cache->refused, __ATOMIC_RELAXED);
    object_reclaimer_stats(cache, stats);
    object_mover_stats(cache, stats);
}

uint64_t object_caches_area_bytes(struct object_caches *objects) {
    uint64_t bytes = 0;
    for (const struct object_layer *owner = next_layer(&objects->layers); owner != NULL; owner = next_layer(&owner->next))
        bytes += cache_area_bytes(&owner->layer);
    return bytes;
}

void object_caches_each(struct object_caches *objects, void (*visit)(struct object_cache *cache, void *argument), void *argument) {
    platform_lock_acquire(&objects->lock);
    LIST_FOR_EACH(&objects->all, node) visit(CONTAINER_OF(node, struct object_cache, link), argument);
    platform_lock_release(&objects->lock);
}

const char *object_caches_check(struct object_caches *objects) {
    const char *broken = NULL;
    platform_lock_acquire(&objects->lock);
    LIST_FOR_EACH(&objects->all, node) {
        struct object_cache *cache = CONTAINER_OF(node, struct object_cache, link);
        if (broken == NULL) broken = object_slabs_check(&cache->slabs);
        if (broken == NULL && cache->owner->caches[cache->index] != cache) broken = "object caches: a cache is not in its place";
    }
    for (struct object_layer *owner = objects->layers; owner != NULL && broken == NULL; owner = owner->next) broken = cache_check(&owner->layer);
    platform_lock_release(&objects->lock);
    return broken;
}

void object_caches_fork_prepare(struct object_caches *objects) {
    platform_lock_hold(&objects->lock);
    object_callbacks_fork_prepare(objects);
    for (struct object_layer *owner = objects->layers; owner != NULL; owner = owner->next) cache_fork_prepare(&owner->layer);
    LIST_FOR_EACH(&objects->all, node) platform_lock_hold(&CONTAINER_OF(node, struct object_cache, link)->slabs.lock);
}

void object_caches_fork_parent(struct object_caches *objects) {
    LIST_FOR_EACH(&objects->all, node) platform_lock_unhold(&CONTAINER_OF(node, struct object_cache, link)->slabs.lock);
    for (struct object_layer *owner = objects->layers; owner != NULL; owner = owner->next) cache_fork_parent(&owner->layer);
    object_callbacks_fork_parent(objects);
    platform_lock_unhold(&objects->lock);
}

/* Threads that had pinned caches are gone. What they had cached in thread mode stays in their areas, for the next threads with their ids. */
void object_caches_fork_child(struct object_caches *objects) {
    LIST_FOR_EACH(&objects->all, node) {
        struct object_cache *cache = CONTAINER_OF(node, struct object_cache, link);
        cache->pins = 0;
        cache->debug_changing = 0;
        platform_lock_unhold(&cache->slabs.lock);
    }
    for (struct object_layer *owner = objects->layers; owner != NULL; owner = owner->next) cache_fork_child(&owner->layer);
    object_callbacks_fork_child(objects);
    platform_lock_unhold(&objects->lock);
}
