/*
 * object_debug.c - object caches with debugging features: their objects are debugged buffers, constructed for each allocation and destructed at each
 * free.
 *
 * With features on, the arrays of a cache are shut (cache_shut), and every operation comes to its backend, which asks here first. When they are off
 * again the arrays stay shut until the last debugged object is freed, as it might be put into one and be handed out as an ordinary one.
 *
 * debug_changing is taken by whoever shuts or opens the arrays. Constructors and destructors run with no lock held, as ever.
 */
#include "cache/object_debug.h"

#include "base/check.h"
#include "cache/cache_internal.h"
#include "cache/object_internal.h"

/* ------------------------------------------------------------------ on and off */

static bool is_shut(const struct object_cache *cache) {
    return __atomic_load_n(&cache->owner->layer.depots[cache->index].shut, __ATOMIC_SEQ_CST) != 0;
}

/* Whether the arrays are shut, and need not be. */
static bool may_open(const struct object_cache *cache) {
    const struct debug_cache *debug = object_debug_of(cache);
    return debug != NULL && is_shut(cache) && !debug_cache_is_used(debug);
}

static bool try_change(struct object_cache *cache) {
    uint32_t nobody = 0;
    return __atomic_compare_exchange_n(&cache->debug_changing, &nobody, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

/* Opens the arrays where the last debugged object went meanwhile. */
static void end_change(struct object_cache *cache) {
    do {
        if (may_open(cache)) cache_open(&cache->owner->layer, cache->index);
        __atomic_store_n(&cache->debug_changing, 0, __ATOMIC_SEQ_CST);
        platform_word_wake(&cache->debug_changing);
    } while (may_open(cache) && try_change(cache)); /* else whoever changes it now will see it */
}

bool object_cache_debug_set(struct object_cache *cache, struct debug_layer *layer, const struct debug_features *features) {
    if (cache->integers != 0 || (features == NULL && object_debug_of(cache) == NULL)) return true;
    while (!try_change(cache)) platform_word_wait(&cache->debug_changing, 1);
    bool ok = true, room = true;
    struct debug_cache *debug = object_debug_of(cache);
    if (debug == NULL) {
        const struct object_slabs *slabs = &cache->slabs;
        const struct slab_source *source = slabs->source == &slab_source_zone ? NULL : slabs->source;
        debug = debug_cache_create(layer, cache->name, cache->bytes, cache->align, source, slabs->source_context, false);
        ok = debug != NULL;
        if (ok) __atomic_store_n(&cache->debug, debug, __ATOMIC_RELEASE);
    }
    if (ok && features != NULL) room = debug_cache_has_room(debug, features);
    if (!room) features = NULL;
    ok = ok && debug_cache_set(debug, features);
    if (ok && features != NULL && !is_shut(cache)) cache_shut(&cache->owner->layer, cache->index);
    end_change(cache);
    if (!room) log_line("debug: cache %s: no slab has room for its objects and what would be round them: no features", cache->name);
    if (ok && features != NULL && features->firewall && cache->bytes >= features->firewall_min && cache->slabs.source != &slab_source_zone)
        log_line("debug: cache %s has a source of its own: no firewall", cache->name);
    return ok;
}

static bool is_of_memory(const struct object_cache *cache) { return cache->integers == 0; }

void object_caches_debug_each(struct object_caches *objects, void (*apply)(struct object_cache *cache, void *argument), void *argument) {
    struct object_place place = {0};
    for (struct object_cache *cache; (cache = object_pin_next(objects, &place, is_of_memory)) != NULL; object_unpin(objects, cache))
        apply(cache, argument);
}

/* ------------------------------------------------------------------ objects */

static __thread uint8_t failure __attribute__((tls_model("initial-exec"))); /* enum object_failure; set by each */

enum object_failure object_cache_failure(void) { return (enum object_failure)failure; }

bool object_debug_take_slow(struct object_cache *cache, void **objects, unsigned *taken) {
    struct debug_cache *debug = object_debug_of(cache);
    *taken = 0;
    switch (debug_alloc(debug, cache->bytes, 1, cache->alloc_function, &objects[0])) {
    case DEBUG_PLAIN: return false;
    case DEBUG_REFUSED: failure = OBJECT_BY_MTBF; return true;
    case DEBUG_GIVEN: break;
    }
    if (cache->construct != NULL && cache->construct(objects[0], cache->argument) != 0) {
        debug_free(debug, objects[0], cache->alloc_function);
        debug_note_failure(debug, cache->bytes);
        __atomic_fetch_add(&cache->refused, 1, __ATOMIC_RELAXED);
        failure = OBJECT_BY_CONSTRUCTOR;
        return true;
    }
    __atomic_fetch_add(&cache->constructed, 1, __ATOMIC_RELAXED);
    *taken = 1;
    return true;
}

STRATA_COLD void object_debug_failed(struct object_cache *cache, enum object_failure why) {
    failure = (uint8_t)why;
    if (why == OBJECT_BY_CONSTRUCTOR && object_debug_is_on(cache)) debug_note_failure(object_debug_of(cache), cache->bytes);
}

/* What is no debugged object of this cache. Its own slabs first: they may lie in a debugged buffer, which a source has from malloc. */
static void give_undebugged(struct object_cache *cache, struct debug_cache *debug, void *object, object_debug_plain *plain) {
    struct debug_cache *round = debug_cache_of(debug->layer, object);
    if (round == NULL || object_slabs_look_up(&cache->slabs, object) != OBJECTS_FOREIGN)
        plain(cache, &object, 1);
    else
        debug_wrong_free(round, object, cache->free_function, "an object of another cache than was said");
}

static void give_one(struct object_cache *cache, struct debug_cache *debug, void *object, object_debug_plain *plain) {
    enum debug_claim claim = debug_claim_leaving(debug, object, cache->free_function); /* another that is freeing it finds it so */
    if (claim == DEBUG_WRONG) return;
    if (claim == DEBUG_FOREIGN) {
        give_undebugged(cache, debug, object, plain);
        return;
    }
    if (cache->destruct != NULL) cache->destruct(object, cache->argument);
    if (debug_free_leaving(debug, object, cache->free_function) == DEBUG_LIVE) __atomic_fetch_add(&cache->destructed, 1, __ATOMIC_RELAXED);
}

void object_debug_give_slow(struct object_cache *cache, void *const *objects, unsigned count, object_debug_plain *plain) {
    struct debug_cache *debug = object_debug_of(cache);
    for (unsigned i = 0; i < count; i++) give_one(cache, debug, objects[i], plain);
    if (STRATA_UNLIKELY(may_open(cache)) && try_change(cache)) end_change(cache);
}

/* ------------------------------------------------------------------ the rest */

uint64_t object_debug_destroy(struct object_cache *cache) {
    struct debug_cache *debug = object_debug_of(cache);
    cache->debug = NULL;
    return debug != NULL ? debug_cache_destroy(debug) : 0;
}

void object_debug_reap(struct object_cache *cache) {
    struct debug_cache *debug = object_debug_of(cache);
    if (debug != NULL) debug_cache_reap(debug);
}

struct debug_figures object_debug_figures(const struct object_cache *cache) {
    struct debug_cache *debug = object_debug_of(cache);
    struct debug_figures figures = {0};
    if (debug != NULL) debug_figures_get(debug, &figures);
    return figures;
}

void object_debug_add_stats(const struct object_cache *cache, struct object_slabs_stats *stats) {
    struct debug_figures figures = object_debug_figures(cache);
    stats->in_use += figures.in_use;
    stats->total += figures.total;
    stats->slabs += figures.slabs;
    stats->memory_bytes += figures.memory_bytes;
    stats->allocs += figures.allocs;
    stats->frees += figures.frees;
}
