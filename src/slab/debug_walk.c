/*
 * debug_walk.c - debugged buffers looked at: all of a cache checked, slabs copied for walks, the equations of debug.h, fork.
 *
 * A walk copies one slab after the other, by the numbers that caches, twins and slabs got in the order in which they came, so that it can let go of
 * the locks in between, whatever comes and goes meanwhile.
 */
#include "slab/debug_internal.h"

/* ------------------------------------------------------------------ verify */

static uint64_t verify_slab(const struct debug_cache *cache, struct debug_slab *slab, const char *function) {
    uint64_t damaged = 0;
    for (unsigned i = 0; i < slab->twin->capacity; i++) {
        const struct debug_place place = {slab, slot_at(slab, i), i};
        struct debug_damage damage;
        if (debug_guard_is_whole(&place, &damage)) continue;
        damaged++;
        debug_report(cache, function, buffer_of(&place), damage.what, &place, &damage);
        if (!__atomic_load_n(&cache->layer->goes_on, __ATOMIC_RELAXED)) break;
        if (place.slot->state == DEBUG_STATE_IN_USE)
            debug_guard_redzones(&place);
        else
            debug_guard_freed(&place);
    }
    return damaged;
}

uint64_t debug_cache_verify(struct debug_cache *cache, const char *function) {
    uint64_t damaged = 0;
    bool goes_on = __atomic_load_n(&cache->layer->goes_on, __ATOMIC_RELAXED);
    platform_lock_acquire(&cache->lock);
    LIST_FOR_EACH(&cache->twins, node) {
        const struct debug_twin *twin = CONTAINER_OF(node, struct debug_twin, link);
        if (!twin->features.guards) continue;
        LIST_FOR_EACH(&twin->slabs, at)
            if (damaged == 0 || goes_on) damaged += verify_slab(cache, CONTAINER_OF(at, struct debug_slab, link), function);
    }
    platform_lock_release(&cache->lock);
    if (damaged != 0) debug_report_done(cache->layer);
    return damaged;
}

/* ------------------------------------------------------------------ copies */

static void copy_slab(const struct debug_slab *slab, struct debug_copy *copy) {
    const struct debug_twin *twin = slab->twin;
    copy->features = twin->features;
    copy->stride = twin->stride;
    copy->capacity = twin->capacity;
    copy->slot_bytes = twin->slot_bytes;
    copy->transaction_bytes = twin->transaction_bytes;
    format_text(copy->name, sizeof copy->name, "%s", twin->cache->name);
    __builtin_memcpy(copy->slab, slab, sizeof *slab + (uint64_t)twin->capacity * twin->slot_bytes);
}

/*
 * The next slab of the cursor's twin, whose slabs stand in the order of their ids: behind the last one where that is there still, or else looked for.
 * Under the cache's lock, as the next.
 */
static const struct debug_slab *next_of_twin(const struct debug_twin *twin, const struct debug_cursor *cursor) {
    const struct debug_cache *cache = twin->cache;
    const struct list *node = &twin->slabs;
    /* To find one of a source's takes a search, too. */
    if (cursor->slab != NULL && cache->source == NULL && debug_slab_of(cache, cursor->start) == cursor->slab && cursor->slab->id == cursor->slab_id)
        node = &cursor->slab->link;
    while ((node = node->next) != &twin->slabs) {
        const struct debug_slab *slab = CONTAINER_OF(node, struct debug_slab, link);
        if (slab->id > cursor->slab_id) return slab;
    }
    return NULL;
}

/* Twins from the oldest on, so that those that come meanwhile come last. */
static const struct debug_slab *next_slab(const struct debug_cache *cache, struct debug_cursor *cursor) {
    for (const struct list *node = cache->twins.prev; node != &cache->twins; node = node->prev) {
        const struct debug_twin *twin = CONTAINER_OF(node, struct debug_twin, link);
        if (twin->id < cursor->twin_id) continue;
        if (twin->id != cursor->twin_id) *cursor = (struct debug_cursor){.cache_id = cursor->cache_id, .twin_id = twin->id};
        const struct debug_slab *slab = next_of_twin(twin, cursor);
        if (slab == NULL) continue;
        cursor->slab = slab;
        cursor->slab_id = slab->id;
        cursor->start = slab->start;
        return slab;
    }
    return NULL;
}

bool debug_copy_next(struct debug_layer *layer, struct debug_cursor *cursor, bool (*match)(const struct debug_cache *cache, void *argument),
                     void *argument, struct debug_copy *copy) {
    bool found = false;
    platform_lock_acquire(&layer->lock);
    struct list *node = cursor->cache != NULL && cursor->ended == layer->ended ? cursor->cache : layer->caches.next;
    for (; node != &layer->caches && !found; node = node->next) {
        struct debug_cache *cache = CONTAINER_OF(node, struct debug_cache, link);
        if (cache->id < cursor->cache_id || !match(cache, argument)) continue;
        if (cache->id != cursor->cache_id) *cursor = (struct debug_cursor){.cache_id = cache->id};
        platform_lock_acquire(&cache->lock);
        const struct debug_slab *slab = next_slab(cache, cursor);
        if (slab != NULL) copy_slab(slab, copy);
        found = slab != NULL;
        platform_lock_release(&cache->lock);
        cursor->cache = node;
        cursor->ended = layer->ended;
    }
    platform_lock_release(&layer->lock);
    return found;
}

/* By the list of caches: as anybody may ask for any address, what leads from it to a cache may lead to one that goes. */
bool debug_copy_of(struct debug_layer *layer, const void *address, struct debug_copy *copy, unsigned *index) {
    bool found = false;
    platform_lock_acquire(&layer->lock);
    LIST_FOR_EACH(&layer->caches, node) {
        struct debug_cache *cache = CONTAINER_OF(node, struct debug_cache, link);
        platform_lock_acquire(&cache->lock);
        const struct debug_slab *slab = debug_slab_of(cache, (uintptr_t)address);
        if (slab != NULL) copy_slab(slab, copy);
        platform_lock_release(&cache->lock);
        found |= slab != NULL;
        if (slab != NULL && cache->source == NULL) break; /* else a source may have the slab in a debugged buffer, which then counts */
    }
    platform_lock_release(&layer->lock);
    if (!found) return false;
    uint64_t at = ((uintptr_t)address - copy->slab->start) / copy->stride;
    *index = (unsigned)min_u64(at, copy->capacity - 1);
    return true;
}

/* ------------------------------------------------------------------ the equations */

static const char *check_twin(const struct debug_twin *twin, uint64_t *in_use, uint64_t *free_slots, uint64_t *slabs) {
    uint64_t queued = 0, of_twin = 0, waiting = 0;
    LIST_FOR_EACH(&twin->queue, node) queued++;
    LIST_FOR_EACH(&twin->slabs, node) {
        const struct debug_slab *slab = CONTAINER_OF(node, struct debug_slab, link);
        uint64_t of_slab = 0;
        if (slab->twin != twin) return "debug: a slab in the list of another twin";
        for (unsigned i = 0; i < twin->capacity; i++) {
            const struct debug_slot *slot = slot_at(slab, i);
            bool is_free = slot->state == DEBUG_STATE_FREE;
            of_slab += !is_free;
            waiting += is_free;
            if (slot->index != i || slot->transactions > twin->features.audit) return "debug: a broken slot";
            if (is_free == list_empty(&slot->link)) return "debug: a slot in use in the queue, or a free one that is not";
        }
        if (of_slab != slab->in_use) return "debug: a slab's count differs from its slots";
        of_twin += of_slab;
        ++*slabs;
    }
    if (of_twin != twin->in_use) return "debug: a twin's count differs from its slabs";
    if (queued != waiting) return "debug: the queue differs from the free slots";
    *in_use += of_twin;
    *free_slots += waiting;
    return NULL;
}

const char *debug_check(struct debug_layer *layer) {
    const char *broken = NULL;
    platform_lock_acquire(&layer->lock);
    LIST_FOR_EACH(&layer->caches, node) {
        struct debug_cache *cache = CONTAINER_OF(node, struct debug_cache, link);
        uint64_t in_use = 0, free_slots = 0, slabs = 0;
        platform_lock_acquire(&cache->lock);
        LIST_FOR_EACH(&cache->twins, at)
            if (broken == NULL) broken = check_twin(CONTAINER_OF(at, struct debug_twin, link), &in_use, &free_slots, &slabs);
        if (broken == NULL && (in_use != cache->in_use || free_slots != cache->free || slabs != cache->slabs))
            broken = "debug: a cache's counts differ from its twins";
        if (broken == NULL && cache->allocs - cache->frees != cache->in_use) broken = "debug: allocations - frees differs from what is in use";
        platform_lock_release(&cache->lock);
    }
    platform_lock_release(&layer->lock);
    return broken;
}

/* ------------------------------------------------------------------ fork */

void debug_fork_prepare(struct debug_layer *layer) {
    LIST_FOR_EACH(&layer->caches, node) platform_lock_hold(&CONTAINER_OF(node, struct debug_cache, link)->lock);
    platform_lock_hold(&layer->window_lock);
    for (unsigned i = 0; i < DEBUG_LOGS; i++) platform_lock_hold(&layer->logs[i].lock);
}

/* In the parent and in the child. Slabs on their way in other threads are lost to the child. */
void debug_fork_done(struct debug_layer *layer) {
    for (unsigned i = DEBUG_LOGS; i-- > 0;) platform_lock_unhold(&layer->logs[i].lock);
    platform_lock_unhold(&layer->window_lock);
    LIST_FOR_EACH(&layer->caches, node) platform_lock_unhold(&CONTAINER_OF(node, struct debug_cache, link)->lock);
}
