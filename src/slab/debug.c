/*
 * debug.c - debugged buffers given out, looked over and taken back. See debug.h.
 *
 * A buffer's slot and place are changed under the cache's lock. An error is reported under it, as the report reads the slot, and the process is ended
 * without it, so that a handler of SIGABRT can go on.
 */
#include "slab/debug_internal.h"

void debug_layer_init(struct debug_layer *layer, struct zone *zone) {
    *layer = (struct debug_layer){.zone = zone, .lock = PLATFORM_LOCK_INIT(LOCK_RANK_DEBUG), .window_lock = PLATFORM_LOCK_INIT(LOCK_RANK_SLAB)};
    list_init(&layer->caches);
    for (unsigned i = 0; i < DEBUG_LOGS; i++) layer->logs[i].lock = (struct platform_lock)PLATFORM_LOCK_INIT(LOCK_RANK_SLAB);
}

/* ------------------------------------------------------------------ caches */

struct debug_cache *debug_cache_create(struct debug_layer *layer, const char *name, uint64_t bytes, uint64_t align, const struct slab_source *source,
                                       void *source_context, bool of_malloc) {
    struct debug_cache *cache = zone_metadata_alloc(layer->zone, sizeof *cache);
    if (cache == NULL) return NULL;
    *cache = (struct debug_cache){.layer = layer,
                                  .name = name,
                                  .bytes = bytes,
                                  .align = align,
                                  .of_malloc = of_malloc,
                                  .source = source,
                                  .source_context = source_context,
                                  .lock = PLATFORM_LOCK_INIT(LOCK_RANK_SLAB)};
    list_init(&cache->twins);
    platform_lock_acquire(&layer->lock);
    cache->id = __atomic_add_fetch(&layer->next_id, 1, __ATOMIC_RELAXED);
    list_push_back(&layer->caches, &cache->link);
    platform_lock_release(&layer->lock);
    return cache;
}

/* The layout for new buffers. Under the lock. */
static struct debug_twin *current_twin(const struct debug_cache *cache) {
    return cache->active && !list_empty(&cache->twins) ? CONTAINER_OF(cache->twins.next, struct debug_twin, link) : NULL;
}

static bool is_over(const struct debug_cache *cache, const struct debug_twin *twin) {
    return twin != current_twin(cache) && twin->pins == 0 && list_empty(&twin->slabs);
}

/* All twins count: what was allocated with features keeps them until it is freed. Under the lock. */
static void update_traced(struct debug_cache *cache) {
    uint64_t frames = 0, audit = 0;
    LIST_FOR_EACH(&cache->twins, node) {
        const struct debug_features *features = &CONTAINER_OF(node, struct debug_twin, link)->features;
        frames = max_u64(frames, features->frames);
        audit = max_u64(audit, features->audit);
    }
    __atomic_store_n(&cache->traced, (uint32_t)(frames | audit << 16), __ATOMIC_RELAXED);
}

static void retire(struct debug_twin *twin, struct list *twins) {
    list_remove(&twin->link);
    list_push_back(twins, &twin->link);
    update_traced(twin->cache);
}

/*
 * Under the lock: slabs to give back go onto `gone`, each with a pin of its twin, which it needs until it is destroyed; a twin that has none any
 * more, and isn't the current one, onto `twins`.
 */
static void collect_empty(struct debug_cache *cache, struct list *gone, struct list *twins) {
    for (struct list *node = cache->twins.next, *next; node != &cache->twins; node = next) {
        struct debug_twin *twin = CONTAINER_OF(node, struct debug_twin, link);
        next = node->next;
        for (struct list *at = twin->slabs.next, *after; at != &twin->slabs; at = after) {
            struct debug_slab *slab = CONTAINER_OF(at, struct debug_slab, link);
            after = at->next;
            if (slab->in_use != 0) continue;
            debug_slab_unlink(slab);
            list_push_back(gone, &slab->link);
            twin->pins++;
        }
        if (is_over(cache, twin)) retire(twin, twins);
    }
}

/* What collect_empty found. Under no lock. */
static uint64_t destroy_collected(struct debug_cache *cache, struct list *gone, struct list *twins) {
    uint64_t bytes = 0;
    while (!list_empty(gone)) {
        struct debug_slab *slab = CONTAINER_OF(gone->next, struct debug_slab, link);
        struct debug_twin *twin = slab->twin;
        list_remove(&slab->link);
        bytes += twin->slab_bytes;
        debug_slab_destroy(slab);
        platform_lock_acquire(&cache->lock);
        twin->pins--;
        if (is_over(cache, twin)) retire(twin, twins);
        platform_lock_release(&cache->lock);
    }
    while (!list_empty(twins)) {
        struct debug_twin *twin = CONTAINER_OF(twins->next, struct debug_twin, link);
        list_remove(&twin->link);
        debug_twin_destroy(twin);
    }
    return bytes;
}

uint64_t debug_cache_reap(struct debug_cache *cache) {
    struct list gone, twins;
    list_init(&gone);
    list_init(&twins);
    platform_lock_acquire(&cache->lock);
    collect_empty(cache, &gone, &twins);
    platform_lock_release(&cache->lock);
    return destroy_collected(cache, &gone, &twins);
}

uint64_t debug_reap(struct debug_layer *layer) {
    uint64_t bytes = 0;
    platform_lock_acquire(&layer->lock);
    LIST_FOR_EACH(&layer->caches, node) {
        struct debug_cache *cache = CONTAINER_OF(node, struct debug_cache, link);
        if (cache->source == NULL) bytes += debug_cache_reap(cache);
    }
    platform_lock_release(&layer->lock);
    return bytes;
}

bool debug_cache_is_used_now(struct debug_cache *cache) {
    platform_lock_acquire(&cache->lock);
    bool is = cache->active || cache->in_use != 0;
    platform_lock_release(&cache->lock);
    return is;
}

uint64_t debug_seed(const struct debug_features *features, const char *name) {
    uint64_t random = features->seed;
    for (const char *c = name; *c != 0; c++) random = random * 31 + (unsigned char)*c;
    return random;
}

bool debug_cache_set(struct debug_cache *cache, const struct debug_features *features) {
    struct debug_twin *twin = NULL;
    if (features != NULL && (twin = debug_twin_create(cache, features)) == NULL) return false;
    platform_lock_acquire(&cache->lock);
    if (twin != NULL) {
        cache->random = debug_seed(features, cache->name);
        cache->features = *features;
        twin->id = __atomic_add_fetch(&cache->layer->next_id, 1, __ATOMIC_RELAXED);
        list_push_front(&cache->twins, &twin->link);
    } else {
        cache->features = (struct debug_features){0};
    }
    update_traced(cache);
    __atomic_store_n(&cache->active, twin != NULL, __ATOMIC_RELEASE);
    platform_lock_release(&cache->lock);
    debug_cache_reap(cache);
    return true;
}

uint64_t debug_cache_destroy(struct debug_cache *cache) {
    struct debug_layer *layer = cache->layer;
    platform_lock_acquire(&layer->lock);
    list_remove(&cache->link);
    layer->ended++;
    platform_lock_release(&layer->lock);
    uint64_t left = cache->in_use;
    cache->active = false;
    LIST_FOR_EACH(&cache->twins, node) {
        struct debug_twin *twin = CONTAINER_OF(node, struct debug_twin, link);
        LIST_FOR_EACH(&twin->slabs, at) CONTAINER_OF(at, struct debug_slab, link)->in_use = 0;
    }
    debug_cache_reap(cache);
    zone_metadata_free(layer->zone, cache, sizeof *cache);
    return left;
}

void debug_figures_get(struct debug_cache *cache, struct debug_figures *figures) {
    platform_lock_acquire(&cache->lock);
    *figures = (struct debug_figures){.in_use = cache->in_use,
                                      .total = cache->in_use + cache->free,
                                      .slabs = cache->slabs,
                                      .memory_bytes = cache->memory_bytes,
                                      .allocs = cache->allocs,
                                      .frees = cache->frees};
    platform_lock_release(&cache->lock);
}

void debug_each(struct debug_layer *layer, void (*visit)(struct debug_cache *cache, void *argument), void *argument) {
    platform_lock_acquire(&layer->lock);
    LIST_FOR_EACH(&layer->caches, node) visit(CONTAINER_OF(node, struct debug_cache, link), argument);
    platform_lock_release(&layer->lock);
}

/* ------------------------------------------------------------------ finding */

static bool find_place(const struct debug_cache *cache, const void *address, struct debug_place *place) {
    place->slab = debug_slab_of(cache, (uintptr_t)address);
    if (place->slab == NULL) return false;
    const struct debug_twin *twin = place->slab->twin;
    uint64_t index = ((uintptr_t)address - place->slab->start) / twin->stride;
    place->index = (unsigned)min_u64(index, twin->capacity - 1);
    place->slot = slot_at(place->slab, place->index);
    return true;
}

/* ------------------------------------------------------------------ giving */

static __thread bool is_spared __attribute__((tls_model("initial-exec"))); /* see debug_spare */

bool debug_spare(bool spared) {
    bool before = is_spared;
    is_spared = spared;
    return before;
}

/* splitmix64: any seed will do. */
static uint64_t next_random(uint64_t *state) {
    uint64_t value = __atomic_add_fetch(state, UINT64_C(0x9e3779b97f4a7c15), __ATOMIC_RELAXED);
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

bool debug_is_refused(struct debug_layer *layer, uint32_t mtbf, uint64_t *random) {
    if (mtbf == 0 || is_spared || next_random(random) % mtbf != 0) return false;
    __atomic_fetch_add(&layer->injected, 1, __ATOMIC_RELAXED);
    return true;
}

/* The place that was freed first. Under the lock, which is let go where a slab must be made. NULL: none. */
static struct debug_slot *take_slot(struct debug_cache *cache, struct debug_twin *twin) {
    while (list_empty(&twin->queue)) {
        twin->pins++;
        platform_lock_release(&cache->lock);
        struct debug_slab *slab = debug_slab_create(twin);
        platform_lock_acquire(&cache->lock);
        twin->pins--;
        if (slab != NULL) debug_slab_link(slab);
        if (slab == NULL && list_empty(&twin->queue)) return NULL;
    }
    struct debug_slot *slot = CONTAINER_OF(twin->queue.next, struct debug_slot, link);
    list_remove(&slot->link);
    return slot;
}

static struct debug_place place_of_slot(struct debug_slot *slot, const struct debug_twin *twin) {
    char *first = (char *)slot - (size_t)slot->index * twin->slot_bytes;
    return (struct debug_place){CONTAINER_OF(first, struct debug_slab, slots), slot, slot->index};
}

/* Where the buffer goes in its place; false: it finds no room. */
static bool put_buffer(const struct debug_place *place, uint64_t bytes, uint64_t align) {
    const struct debug_twin *twin = place->slab->twin;
    uintptr_t start = place_at(place->slab, place->index), end = start + twin->reach, buffer;
    align = max_u64(align, twin->cache->align);
    if (twin->features.firewall) {
        buffer = align_down(end - bytes, align);
        if (buffer < start + twin->lead || bytes > twin->reach) return false;
    } else {
        buffer = align_up(start + twin->lead, align);
        if (buffer + bytes + (twin->features.guards ? 1 : 0) > end) return false;
    }
    place->slot->offset = (uint32_t)(buffer - start);
    place->slot->bytes = bytes;
    return true;
}

static void keep_contents(const struct debug_place *place, bool freed) {
    const struct debug_features *features = &place->slab->twin->features;
    uint16_t count = (uint16_t)min_u64(features->contents, place->slot->bytes);
    if (count == 0) return;
    __builtin_memcpy((void *)(uintptr_t)debug_slot_contents(place->slot, features, freed), buffer_of(place), count);
    if (freed)
        place->slot->freed_bytes = count;
    else
        place->slot->allocated_bytes = count;
}

/* Whether it is this transaction's turn to check the whole cache. Under the lock. */
static bool is_verify_due(struct debug_cache *cache) { return cache->features.verify != 0 && ++cache->transactions % cache->features.verify == 0; }

static void count_outcome(struct debug_cache *cache, struct debug_slab *slab, bool given) {
    uint64_t one = given ? 1 : (uint64_t)-1;
    slab->in_use += given ? 1 : (uint32_t)-1;
    slab->twin->in_use += one;
    COUNTER_ADD(cache->in_use, one);
    COUNTER_SUB(cache->free, one);
}

static void put_back(struct debug_twin *twin, struct debug_slot *slot) { list_push_front(&twin->queue, &slot->link); }

enum debug_outcome debug_alloc(struct debug_cache *cache, uint64_t bytes, uint64_t align, const char *function, void **buffer) {
    struct debug_layer *layer = cache->layer;
    struct debug_event event;
    struct debug_damage damage = {0};
    *buffer = NULL;
    debug_event_take(cache, &event);
    platform_lock_acquire(&cache->lock);
    struct debug_twin *twin = current_twin(cache);
    if (twin == NULL) {
        platform_lock_release(&cache->lock);
        return DEBUG_PLAIN;
    }
    if (debug_is_refused(layer, twin->features.mtbf, &cache->random)) {
        cache->injected++;
        platform_lock_release(&cache->lock);
        debug_log_enter(layer, cache->name, DEBUG_KIND_FAILED, NULL, bytes, &event);
        return DEBUG_REFUSED;
    }
    struct debug_slot *slot = take_slot(cache, twin);
    if (STRATA_UNLIKELY(twin !=
                        current_twin(cache))) { /* meanwhile others were set: who has seen that there are no buffers any more shall be right */
        if (slot != NULL) put_back(twin, slot);
        platform_lock_release(&cache->lock);
        debug_cache_reap(cache);
        return debug_alloc(cache, bytes, align, function, buffer);
    }
    struct debug_place place = slot != NULL ? place_of_slot(slot, twin) : (struct debug_place){0};
    if (slot == NULL || !debug_place_open(&place)) {
        if (slot != NULL) put_back(twin, slot);
        platform_lock_release(&cache->lock);
        __atomic_fetch_add(&layer->plain, 1, __ATOMIC_RELAXED);
        return DEBUG_PLAIN;
    }
    if (!debug_guard_is_whole(&place, &damage)) debug_report(cache, function, buffer_of(&place), damage.what, &place, &damage);
    uint64_t old_offset = slot->offset, old_bytes = slot->bytes;
    if (!put_buffer(&place, bytes, align)) {
        slot->offset = (uint32_t)old_offset;
        slot->bytes = old_bytes;
        debug_place_close(&place);
        put_back(twin, slot);
        platform_lock_release(&cache->lock);
        __atomic_fetch_add(&layer->plain, 1, __ATOMIC_RELAXED);
        return DEBUG_PLAIN;
    }
    keep_contents(&place, false);
    if (twin->features.guards) debug_guard_fresh(&place);
    slot->state = DEBUG_STATE_IN_USE;
    slot->was_used = true;
    slot->of_class = slot->leaving = false;
    debug_slot_note(twin, slot, DEBUG_KIND_ALLOCATED, &event);
    count_outcome(cache, place.slab, true);
    cache->allocs++;
    *buffer = buffer_of(&place);
    bool due = is_verify_due(cache);
    platform_lock_release(&cache->lock);
    __atomic_fetch_add(&layer->allocs, 1, __ATOMIC_RELAXED);
    debug_log_enter(layer, cache->name, DEBUG_KIND_ALLOCATED, *buffer, bytes, &event);
    if (damage.what != NULL) debug_report_done(layer);
    if (due) debug_cache_verify(cache, function);
    return DEBUG_GIVEN;
}

void debug_note_failure(struct debug_cache *cache, uint64_t bytes) {
    struct debug_event event;
    debug_event_take(cache, &event);
    __atomic_fetch_add(&cache->layer->failed, 1, __ATOMIC_RELAXED);
    debug_log_enter(cache->layer, cache->name, DEBUG_KIND_FAILED, NULL, bytes, &event);
}

void debug_note_failure_of(struct debug_layer *layer, const char *name, uint64_t bytes) {
    __atomic_fetch_add(&layer->failed, 1, __ATOMIC_RELAXED);
    debug_log_failure(layer, name, bytes);
}

/* ------------------------------------------------------------------ taking back */

/* Finds what is freed, and reports where it is none: `twice` says that it was freed. leaving: the caller has claimed it as such. Under the lock. */
static enum debug_claim claim(struct debug_cache *cache, const void *address, const char *function, const char *twice, bool leaving,
                              struct debug_place *place, struct debug_damage *damage) {
    damage->what = NULL;
    if (!find_place(cache, address, place)) return DEBUG_FOREIGN;
    if (buffer_of(place) != address || !place->slot->was_used) {
        debug_report(cache, function, address, "not the start of a buffer", place, NULL);
        return DEBUG_WRONG;
    }
    if (place->slot->state != DEBUG_STATE_IN_USE || place->slot->leaving != leaving) {
        debug_report(cache, function, address, twice, place, NULL);
        return DEBUG_WRONG;
    }
    if (!debug_guard_is_whole(place, damage)) {
        debug_report(cache, function, address, damage->what, place, damage);
        debug_guard_redzones(place);
    }
    return DEBUG_LIVE;
}

static enum debug_claim look_over(struct debug_cache *cache, const void *address, const char *function, const char *twice, bool leaves,
                                  uint64_t *bytes) {
    struct debug_place place;
    struct debug_damage damage;
    platform_lock_acquire(&cache->lock);
    enum debug_claim found = claim(cache, address, function, twice, false, &place, &damage);
    if (found == DEBUG_LIVE && bytes != NULL) *bytes = place.slot->bytes;
    if (found == DEBUG_LIVE && leaves) place.slot->leaving = true;
    platform_lock_release(&cache->lock);
    if (found == DEBUG_WRONG || damage.what != NULL) debug_report_done(cache->layer);
    return found;
}

enum debug_claim debug_claim(struct debug_cache *cache, const void *address, const char *function, const char *twice, uint64_t *bytes) {
    return look_over(cache, address, function, twice, false, bytes);
}
enum debug_claim debug_claim_leaving(struct debug_cache *cache, const void *address, const char *function) {
    return look_over(cache, address, function, DEBUG_TWICE, true, NULL);
}

void debug_set_of_class(struct debug_cache *cache, const void *address) {
    struct debug_place place;
    platform_lock_acquire(&cache->lock);
    if (find_place(cache, address, &place)) place.slot->of_class = true;
    platform_lock_release(&cache->lock);
}

bool debug_is_of_class(struct debug_cache *cache, const void *address) {
    struct debug_place place;
    platform_lock_acquire(&cache->lock);
    bool is = find_place(cache, address, &place) && place.slot->of_class;
    platform_lock_release(&cache->lock);
    return is;
}

static enum debug_claim take_back(struct debug_cache *cache, void *address, const char *function, bool leaving) {
    struct debug_event event;
    struct debug_place place;
    struct debug_damage damage;
    struct list gone, twins;
    bool due = false;
    list_init(&gone);
    list_init(&twins);
    debug_event_take(cache, &event);
    platform_lock_acquire(&cache->lock);
    enum debug_claim found = claim(cache, address, function, DEBUG_TWICE, leaving, &place, &damage);
    uint64_t bytes = 0;
    if (found == DEBUG_LIVE) {
        struct debug_twin *twin = place.slab->twin;
        bytes = place.slot->bytes;
        keep_contents(&place, true);
        place.slot->state = DEBUG_STATE_FREE;
        if (twin->features.guards && !twin->features.firewall) debug_guard_freed(&place);
        debug_place_close(&place);
        debug_slot_note(twin, place.slot, DEBUG_KIND_FREED, &event);
        list_push_back(&twin->queue, &place.slot->link);
        count_outcome(cache, place.slab, false);
        cache->frees++;
        if (twin != current_twin(cache)) collect_empty(cache, &gone, &twins);
        due = is_verify_due(cache);
    }
    platform_lock_release(&cache->lock);
    destroy_collected(cache, &gone, &twins);
    if (found == DEBUG_LIVE) {
        __atomic_fetch_add(&cache->layer->frees, 1, __ATOMIC_RELAXED);
        debug_log_enter(cache->layer, cache->name, DEBUG_KIND_FREED, address, bytes, &event);
    }
    if (found == DEBUG_WRONG || damage.what != NULL) debug_report_done(cache->layer);
    if (due) debug_cache_verify(cache, function);
    return found;
}

enum debug_claim debug_free(struct debug_cache *cache, void *address, const char *function) { return take_back(cache, address, function, false); }
enum debug_claim debug_free_leaving(struct debug_cache *cache, void *address, const char *function) {
    return take_back(cache, address, function, true);
}

void debug_wrong_free(struct debug_cache *cache, const void *address, const char *function, const char *what) {
    struct debug_place place;
    platform_lock_acquire(&cache->lock);
    bool found = find_place(cache, address, &place);
    debug_report(cache, function, address, what, found ? &place : NULL, NULL);
    platform_lock_release(&cache->lock);
    debug_report_done(cache->layer);
}
