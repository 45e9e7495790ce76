/*
 * debug_heap.c - malloc with debugging features: what the slow paths of malloc, free and realloc ask. See debug.h.
 */
#include "api/debug.h"
#include "base/check.h"

/* malloc's natural alignment: that of every place in a twin of its classes. */
#define NATURAL_ALIGN 16

bool debug_class_set(struct debug_heap *debug, unsigned tag, const struct debug_features *features) {
    struct debug_cache *cache = debug->classes[tag];
    if (cache == NULL && features == NULL) return true;
    if (cache == NULL) {
        const struct slab_cache *class = &heap.slabs.caches[tag];
        cache = debug_cache_create(&debug->layer, class->name, class->object_bytes, NATURAL_ALIGN, NULL, NULL, true);
        if (cache == NULL) return false;
        __atomic_store_n(&debug->classes[tag], cache, __ATOMIC_RELEASE);
    }
    if (features != NULL) heap_kmem_doubt(tag); /* before there are buffers */
    if (!debug_cache_set(cache, features)) return false;
    bool shut = __atomic_load_n(&heap.caches.depots[tag].shut, __ATOMIC_RELAXED) != 0;
    if (features != NULL && !shut) cache_shut(&heap.caches, tag);
    if (features == NULL && shut) cache_open(&heap.caches, tag);
    return true;
}

bool debug_setting_try(struct debug_heap *debug) {
    uint32_t nobody = 0;
    return __atomic_compare_exchange_n(&debug->setting, &nobody, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

/* Whether kmem's frees of a class doubt, and need not: it has no debugged buffers, nor can it get some. */
static bool may_trust(const struct debug_heap *debug, unsigned tag) {
    if (heap_kmem_trusts(tag) || __atomic_load_n(&heap.dying, __ATOMIC_RELAXED)) return false;
    struct debug_cache *cache = __atomic_load_n(&debug->classes[tag], __ATOMIC_ACQUIRE);
    return cache == NULL || !debug_cache_is_used_now(cache);
}

static bool may_trust_any(const struct debug_heap *debug) {
    unsigned tag = SLAB_CACHE_FIRST;
    while (tag < SLAB_CACHE_MAGAZINES && !may_trust(debug, tag)) tag++;
    return tag < SLAB_CACHE_MAGAZINES;
}

void debug_setting_end(struct debug_heap *debug) {
    do {
        for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_MAGAZINES; tag++)
            if (may_trust(debug, tag)) heap_kmem_trust(tag);
        __atomic_store_n(&debug->setting, 0, __ATOMIC_SEQ_CST);
        platform_word_wake(&debug->setting);
        /* Else whoever has it now, or frees the last one of a class, will see it. */
    } while (may_trust_any(debug) && debug_setting_try(debug));
}

void debug_blocks_set(struct debug_heap *debug, const struct debug_features *features) {
    if (features != NULL) __atomic_store_n(&debug->blocks_random, debug_seed(features, DEBUG_BLOCKS_NAME), __ATOMIC_RELAXED);
    __atomic_store_n(&debug->blocks_mtbf, features != NULL ? features->mtbf : 0, __ATOMIC_RELEASE);
}

bool debug_heap_refuses(size_t bytes) {
    struct debug_heap *debug = debug_heap();
    if (!debug_is_refused(&debug->layer, __atomic_load_n(&debug->blocks_mtbf, __ATOMIC_ACQUIRE), &debug->blocks_random)) return false;
    debug_log_failure(&debug->layer, DEBUG_BLOCKS_NAME, bytes);
    return true;
}

static struct debug_cache *active_class(const struct debug_heap *debug, unsigned tag) {
    struct debug_cache *cache = __atomic_load_n(&debug->classes[tag], __ATOMIC_ACQUIRE);
    return cache != NULL && debug_cache_is_active(cache) ? cache : NULL;
}

bool debug_heap_alloc(unsigned tag, size_t bytes, size_t align, void **object) {
    const struct debug_heap *debug = debug_heap();
    struct debug_cache *cache = active_class(debug, tag), *roomy = NULL;
    if (cache == NULL) return false;
    /* A place is aligned as malloc's are; so an aligned buffer needs one with room to move in. Where there is none, mtbf may still refuse it. */
    size_t room = align > NATURAL_ALIGN ? bytes + align - NATURAL_ALIGN : bytes;
    if (room > cache->bytes && room <= SIZE_CLASS_MAX_BYTES) roomy = active_class(debug, slab_class_of_size(&heap.slabs, room));
    return debug_alloc(roomy != NULL ? roomy : cache, bytes, align, "malloc", object) != DEBUG_PLAIN;
}

STRATA_COLD void debug_heap_failed(unsigned tag, size_t bytes) {
    struct debug_heap *debug = debug_heap();
    struct debug_cache *cache = tag != 0 ? active_class(debug, tag) : NULL;
    if (cache != NULL)
        debug_note_failure(cache, bytes);
    else
        debug_note_failure_of(&debug->layer, tag != 0 ? heap.slabs.caches[tag].name : DEBUG_BLOCKS_NAME, bytes);
}

STRATA_COLD void debug_cache_failed(const struct object_cache *cache) {
    struct debug_cache *debugged = __atomic_load_n(&cache->debug, __ATOMIC_ACQUIRE);
    if (debugged == NULL || !debug_cache_is_active(debugged))
        debug_note_failure_of(&debug_heap()->layer, cache->name, cache->bytes);
    else if (object_cache_failure() == OBJECT_LACK) /* other reasons are noted where they arise */
        debug_note_failure(debugged, cache->bytes);
}

void debug_heap_add_figures(unsigned tag, struct slab_stats *stats) {
    struct debug_cache *cache = __atomic_load_n(&debug_heap()->classes[tag], __ATOMIC_ACQUIRE);
    struct debug_figures figures;
    if (cache == NULL) return;
    debug_figures_get(cache, &figures);
    stats->in_use += figures.in_use;
    stats->total += figures.total;
    stats->slabs += figures.slabs;
    stats->memory_bytes += figures.memory_bytes;
    stats->allocs += figures.allocs;
    stats->frees += figures.frees;
}

static bool is_of_malloc(struct debug_cache *cache, const void *address, const char *function) {
    if (cache->of_malloc) return true;
    debug_wrong_free(cache, address, function, "an object of a cache, which strata_cache_free takes back");
    return false;
}

bool debug_heap_free(const char *function, void *address) {
    struct debug_cache *cache = debug_cache_of(&debug_heap()->layer, address);
    if (cache == NULL) return false;
    if (!is_of_malloc(cache, address, function)) return true;
    struct debug_heap *debug = debug_heap();
    if (debug_free(cache, address, function) == DEBUG_FOREIGN) return false; /* another free of it was faster, and its slab has gone since */
    if (!debug_cache_is_used(cache) && may_trust(debug, slab_class_of_size(&heap.slabs, cache->bytes)) && debug_setting_try(debug))
        debug_setting_end(debug);
    return true;
}

bool debug_heap_owns(const void *address) { return debug_slab_round(&debug_heap()->layer, (uintptr_t)address) != NULL; }

bool debug_heap_usable(const char *function, bool frees, const void *address, size_t *bytes) {
    struct debug_cache *cache = debug_cache_of(&debug_heap()->layer, address);
    uint64_t asked = 0;
    if (cache == NULL) return false;
    *bytes = SIZE_MAX;
    if (!is_of_malloc(cache, address, function)) return true;
    enum debug_claim claim = debug_claim(cache, address, function, frees ? DEBUG_TWICE : "already freed", &asked);
    if (claim == DEBUG_LIVE) *bytes = asked;
    return claim != DEBUG_FOREIGN; /* its slab went meanwhile */
}

/* A cookie of kmem's stands for its whole class: what it frees may be any of that, and what it allocated may be freed by any size of it. */
static bool is_size_asked(struct debug_cache *cache, const void *address, size_t size, size_t asked, bool by_class) {
    if (size == asked) return true;
    if (size > SIZE_CLASS_MAX_BYTES || slab_class_of_size(&heap.slabs, size) != slab_class_of_size(&heap.slabs, asked)) return false;
    return by_class || debug_is_of_class(cache, address);
}

enum debug_claim debug_heap_claim_sized(const char *function, const void *address, size_t size, bool by_class) {
    struct debug_cache *cache = debug_cache_of(&debug_heap()->layer, address);
    uint64_t asked;
    if (cache == NULL) return DEBUG_FOREIGN;
    if (!is_of_malloc(cache, address, function)) return DEBUG_WRONG;
    enum debug_claim claim = debug_claim(cache, address, function, DEBUG_TWICE, &asked);
    if (claim != DEBUG_LIVE || is_size_asked(cache, address, size, asked, by_class)) return claim;
    char what[96];
    format_text(what, sizeof what, "size is %zu, but this is a debugged block of %llu bytes", size, (unsigned long long)asked);
    debug_wrong_free(cache, address, function, what);
    return DEBUG_WRONG;
}

void debug_heap_set_of_class(const void *address) {
    struct debug_cache *cache = debug_cache_of(&debug_heap()->layer, address);
    if (cache != NULL) debug_set_of_class(cache, address);
}

/* ------------------------------------------------------------------ the heap's own calls */

void debug_heap_reap(void) { debug_reap(&debug_heap()->layer); }
const char *debug_heap_check(void) { return debug_check(&debug_heap()->layer); }

/* Nothing of it can come into being while heap.lock is held, as it is from before the first of these on. */
void debug_heap_fork_prepare_first(void) { platform_lock_hold(&debug_heap()->layer.lock); }
void debug_heap_fork_prepare_slabs(void) { debug_fork_prepare(&debug_heap()->layer); }
void debug_heap_fork_done(void) {
    struct debug_heap *debug = debug_heap();
    debug_fork_done(&debug->layer);
    platform_lock_unhold(&debug->layer.lock);
}
/* A setter in another thread of the parent has not come along: what it had done so far stands, each cache by itself. */
void debug_heap_fork_child(void) {
    debug_heap()->setting = 0;
    debug_heap_fork_done();
}
