/*
 * cache_api.c - object caches as programs see them: arguments are checked here, the rest is object_cache.h's. A strata_cache is an object_cache.
 * What is called back is in cache_api_callbacks.c.
 */
#include <string.h>

#include "api/cache_api.h"
#include "api/heap.h"
#include "base/check.h"
#include "slab/debug.h"
#include "strata/cache.h"

#define DEFAULT_ALIGN 16
#define ALLOC_FLAGS (STRATA_CACHE_SLEEP | STRATA_CACHE_ZERO | STRATA_CACHE_NO_RECLAIM)

_Static_assert(STRATA_CACHE_OBJECT_MAX == OBJECT_BYTES_MAX, "what the header promises is what slabs can hold");

const char *strata_cache_status_text(enum strata_cache_status status) {
    switch (status) {
    case STRATA_CACHE_OK: return "success";
    case STRATA_CACHE_NO_MEMORY: return "no memory";
    case STRATA_CACHE_BAD_ARGUMENT: return "bad argument";
    case STRATA_CACHE_IN_USE: return "objects are still in use";
    case STRATA_CACHE_TOO_LATE: return "the cache has been used already";
    }
    return "unknown status";
}

/* ------------------------------------------------------------------ sources of the program's own */

static bool source_alloc(void *context, uint64_t bytes, uint64_t align, uintptr_t *start) {
    const struct strata_cache_source *source = context;
    void *memory = source->allocate(source->context, bytes, align);
    if (memory == NULL) return false;
    *start = (uintptr_t)memory;
    if ((*start & (align - 1)) == 0) return true;
    log_line("object cache: the source gave %p, not a multiple of %llu: not used", memory, (unsigned long long)align);
    source->release(source->context, memory, bytes);
    return false;
}
static void source_free(void *context, uintptr_t start, uint64_t bytes) {
    const struct strata_cache_source *source = context;
    source->release(source->context, (void *)start, bytes);
}
static const struct slab_source source_of_program = {.alloc = source_alloc, .free = source_free};

static bool is_valid(const char *name, const struct strata_cache_config *config, size_t align) {
    if (name == NULL || *name == 0 || config == NULL) return false;
    if (config->size == 0 || config->size > STRATA_CACHE_OBJECT_MAX || !is_power_of_two(align) || align > STRATA_CACHE_ALIGN_MAX) return false;
    /* Objects lie at multiples of the alignment. */
    if (align_up(config->size, align) > STRATA_CACHE_OBJECT_MAX) return false;
    if (config->slab_unit != 0 && (config->source == NULL || !is_power_of_two(config->slab_unit))) return false;
    return config->source == NULL || (config->source->allocate != NULL && config->source->release != NULL);
}

/* ------------------------------------------------------------------ life */

enum strata_cache_status strata_cache_create(const char *name, const struct strata_cache_config *config, struct strata_cache **cache) {
    if (cache == NULL) return STRATA_CACHE_BAD_ARGUMENT;
    *cache = NULL;
    size_t align = config != NULL && config->align != 0 ? config->align : DEFAULT_ALIGN;
    if (!is_valid(name, config, align)) return STRATA_CACHE_BAD_ARGUMENT;
    if (!heap_init()) return STRATA_CACHE_NO_MEMORY;
    struct object_cache_config inner_config = {.name = name,
                                               .bytes = config->size,
                                               .align = align,
                                               .source = &slab_source_zone,
                                               .source_context = &heap.zone,
                                               .construct = config->constructor,
                                               .destruct = config->destructor,
                                               .argument = config->argument,
                                               .reclaim = (object_function *)config->reclaim,
                                               .call_reclaim = cache_call_reclaim,
                                               .no_magazines = config->no_magazines,
                                               .no_debug = config->no_debug,
                                               .free_function = "strata_cache_free"};
    struct strata_cache_source *source = NULL;
    if (config->source != NULL) {
        source = zone_metadata_alloc(&heap.zone, sizeof *source);
        if (source == NULL) return STRATA_CACHE_NO_MEMORY;
        *source = *config->source;
        inner_config.source = &source_of_program;
        inner_config.source_context = source;
        if (config->slab_unit != 0) inner_config.slab_bytes = object_slab_bytes(align_up(config->size, align), config->slab_unit);
    }
    struct object_cache *created;
    enum object_cache_status status = object_cache_create(&heap.objects, &inner_config, &created);
    if (status != OBJECT_CACHE_OK) {
        if (source != NULL) zone_metadata_free(&heap.zone, source, sizeof *source);
        return status == OBJECT_CACHE_BAD_SIZE ? STRATA_CACHE_BAD_ARGUMENT : STRATA_CACHE_NO_MEMORY;
    }
    if (heap_is_debugged()) debug_cache_created(created);
    *cache = (struct strata_cache *)(void *)created;
    return STRATA_CACHE_OK;
}

enum strata_cache_status strata_cache_destroy(struct strata_cache *cache) {
    if (cache == NULL) return STRATA_CACHE_OK;
    struct object_cache *object_cache = cache_required(cache, "strata_cache_destroy");
    const char *callback = object_cache_callback(&heap.objects, object_cache);
    if (callback != NULL) fatal("strata_cache_destroy(): called by the %s function of the cache (cache %s)", callback, object_cache->name);
    void *source = object_cache->slabs.source == &source_of_program ? object_cache->slabs.source_context : NULL;
    char name[OBJECT_NAME_BYTES];
    memcpy(name, object_cache->name, sizeof name);
    uint64_t left = object_cache_destroy(&heap.objects, object_cache);
    if (source != NULL) zone_metadata_free(&heap.zone, source, sizeof(struct strata_cache_source));
    if (left == 0) return STRATA_CACHE_OK;
    log_line("strata_cache_destroy(): cache %s: %llu objects were not freed", name, (unsigned long long)left);
    return STRATA_CACHE_IN_USE;
}

/* ------------------------------------------------------------------ objects */

/* mtbf spares who can't go on without. */
static STRATA_COLD void *alloc_asleep(struct object_cache *cache, bool reclaims) {
    bool before = debug_spare(true);
    for (uint64_t interval = HEAP_DOZE_MIN_NS;; interval = heap_doze(interval)) {
        heap_release(0);
        void *object = object_cache_alloc(cache);
        if (object == NULL) object = cache_alloc_reclaimed(cache, reclaims, object_cache_failure());
        if (object == NULL) continue;
        debug_spare(before);
        return object;
    }
}

static STRATA_COLD void *failed(const struct object_cache *cache) {
    if (heap_is_debugged()) debug_cache_failed(cache);
    return NULL;
}

/*
 * Where no thread does it: the ticks that are due to a cache, by who uses it; and, where the program may expect destructors of any cache, what malloc
 * lacked.
 */
static void keep_up(struct object_cache *cache, bool of_all) {
    object_cache_tick_once(cache, __atomic_load_n(&heap.object_ticks, __ATOMIC_RELAXED));
    if (of_all && STRATA_UNLIKELY(__atomic_load_n(&heap.malloc_failed, __ATOMIC_RELAXED))) maintenance_make_up();
}

/* All that is not an object out of the array, and whatever is wrong with the arguments. */
static STRATA_NOINLINE void *alloc_slow(struct strata_cache *cache, unsigned flags) {
    struct object_cache *object_cache = cache_required(cache, "strata_cache_alloc");
    if (STRATA_UNLIKELY((flags & ~(unsigned)ALLOC_FLAGS) != 0))
        fatal("strata_cache_alloc(): flags 0x%x: allowed are sums of 1, 2 and 4 (cache %s)", flags, object_cache->name);
    if (STRATA_UNLIKELY((flags & STRATA_CACHE_ZERO) != 0 && object_cache->construct != NULL)) return NULL;
    void *object = cpu_pop_in(&object_cache->areas_at, object_cache->index);
    enum object_failure why = OBJECT_LACK;
    if (object == NULL) {
        object = object_cache_alloc_slow(object_cache);
        why = object_cache_failure(); /* of others' allocations later */
        maintenance_slow_call(true);
        keep_up(object_cache, true);
    }
    bool reclaims = (flags & STRATA_CACHE_NO_RECLAIM) == 0;
    /* Of what mtbf refuses there is enough: a second try would make that N times as rare. */
    if (STRATA_UNLIKELY(object == NULL) && why != OBJECT_BY_MTBF) object = cache_alloc_reclaimed(object_cache, reclaims, why);
    if (STRATA_UNLIKELY(object == NULL) && (flags & STRATA_CACHE_SLEEP) != 0) object = alloc_asleep(object_cache, reclaims);
    if (STRATA_UNLIKELY(object == NULL)) return failed(object_cache);
    if ((flags & STRATA_CACHE_ZERO) != 0) memset(object, 0, object_cache->bytes);
    return object;
}

static STRATA_NOINLINE void free_slow(struct strata_cache *cache, void *object) {
    struct object_cache *object_cache = cache_required(cache, "strata_cache_free");
    if (object == NULL) return;
    object_cache_free_slow(object_cache, object);
    maintenance_slow_call(false);
    keep_up(object_cache, false);
}

void *strata_cache_alloc(struct strata_cache *cache, unsigned flags) {
    const struct object_cache *object_cache = (const struct object_cache *)(void *)cache;
    /* Flags that say what to do where there is no object leave the fast path alone. */
    if (STRATA_LIKELY(cache != NULL && (flags & ~(unsigned)(STRATA_CACHE_SLEEP | STRATA_CACHE_NO_RECLAIM)) == 0)) {
        void *object = cpu_pop_in(&object_cache->areas_at, object_cache->index);
        if (STRATA_LIKELY(object != NULL)) return object;
    }
    return alloc_slow(cache, flags);
}

void strata_cache_free(struct strata_cache *cache, void *object) {
    const struct object_cache *object_cache = (const struct object_cache *)(void *)cache;
    if (STRATA_LIKELY(cache != NULL && object != NULL) && cpu_push_in(&object_cache->areas_at, object_cache->index, object)) return;
    free_slow(cache, object);
}

static void batch_required(const struct object_cache *cache, const char *function, const void *objects, size_t count) {
    if (STRATA_UNLIKELY(objects == NULL && count != 0)) fatal("%s(): objects is NULL, count is %zu (cache %s)", function, count, cache->name);
}

size_t strata_cache_alloc_batch(struct strata_cache *cache, void **objects, size_t count) {
    struct object_cache *object_cache = cache_required(cache, "strata_cache_alloc_batch");
    size_t done = 0;
    bool slow = false;
    batch_required(object_cache, "strata_cache_alloc_batch", objects, count);
    while (done < count) {
        unsigned some = (unsigned)min_u64(count - done, CACHE_TRANSFER_MAX);
        unsigned got = object_cache_alloc_batch(object_cache, objects + done, some, &slow);
        done += got;
        if (STRATA_LIKELY(got == some)) continue;
        enum object_failure why = object_cache_failure();
        void *next = why != OBJECT_BY_MTBF ? cache_alloc_reclaimed(object_cache, false, why) : NULL;
        if (next == NULL) {
            (void)failed(object_cache);
            break;
        }
        objects[done++] = next;
    }
    if (STRATA_UNLIKELY(slow)) {
        maintenance_slow_call(true);
        keep_up(object_cache, true);
    }
    return done;
}

void strata_cache_free_batch(struct strata_cache *cache, void *const *objects, size_t count) {
    struct object_cache *object_cache = cache_required(cache, "strata_cache_free_batch");
    bool slow = false;
    batch_required(object_cache, "strata_cache_free_batch", objects, count);
    for (size_t done = 0; done < count;) {
        unsigned some = (unsigned)min_u64(count - done, CACHE_TRANSFER_MAX);
        /* NULL is no object: in an array it would be handed out, and end the array there for who pops it. */
        for (unsigned i = 0; i < some; i++)
            if (STRATA_UNLIKELY(objects[done + i] == NULL))
                fatal("strata_cache_free_batch(): objects[%zu] is NULL (cache %s)", done + i, object_cache->name);
        object_cache_free_batch(object_cache, objects + done, some, &slow);
        done += some;
    }
    if (STRATA_LIKELY(!slow)) return;
    maintenance_slow_call(false);
    keep_up(object_cache, false);
}

/* ------------------------------------------------------------------ the rest */

void strata_cache_reap(struct strata_cache *cache) {
    if (cache != NULL)
        object_cache_reap(&heap.objects, cache_required(cache, "strata_cache_reap"));
    else if (heap_init())
        object_caches_reap(&heap.objects);
}

struct walk {
    bool (*visit)(void *object, void *argument);
    void *argument;
    bool going;
};

static bool visit_until(void *object, void *argument) {
    struct walk *walk = argument;
    walk->going = walk->visit(object, walk->argument);
    return walk->going;
}

bool strata_cache_walk(struct strata_cache *cache, bool (*visit)(void *object, void *argument), void *argument) {
    struct object_cache *object_cache = cache_required(cache, "strata_cache_walk");
    if (visit == NULL) fatal("strata_cache_walk(): visit is NULL (cache %s)", object_cache->name);
    struct walk walk = {visit, argument, true};
    struct debug_cache *debug = __atomic_load_n(&object_cache->debug, __ATOMIC_ACQUIRE);
    return object_slabs_walk(&object_cache->slabs, visit_until, &walk) && (debug == NULL || debug_cache_walk(debug, visit, argument, &walk.going));
}

void strata_cache_stats_get(struct strata_cache *cache, struct strata_cache_stats *stats) {
    struct object_cache *object_cache = cache_required(cache, "strata_cache_stats_get");
    struct object_cache_stats all;
    if (stats == NULL) fatal("strata_cache_stats_get(): stats is NULL (cache %s)", object_cache->name);
    object_cache_stats_get(object_cache, &all);
    uint64_t cached = min_u64(all.cache.cached, all.slabs.in_use), moves = 0;
    for (unsigned i = 0; i < OBJECT_MOVE_ANSWERS; i++) moves += all.moves[i];
    *stats = (struct strata_cache_stats){.name = object_cache->name,
                                         .object_size = object_cache->bytes,
                                         .slab_size = object_cache->slabs.slab_bytes,
                                         .in_use = all.slabs.in_use - cached,
                                         .cached = cached,
                                         .total = all.slabs.total,
                                         .slabs = all.slabs.slabs,
                                         .memory = all.slabs.memory_bytes,
                                         .constructed = all.constructed,
                                         .destructed = all.destructed,
                                         .refused = all.refused,
                                         .slabs_created = all.slabs.slabs_created,
                                         .slabs_released = all.slabs.slabs_released,
                                         .magazine_rounds = all.cache.rounds,
                                         .contention = all.cache.contention,
                                         .reclaims = all.reclaims,
                                         .reclaimed_bytes = all.reclaimed_bytes,
                                         .moves = moves,
                                         .moves_yes = all.moves[OBJECT_MOVE_YES],
                                         .moves_no = all.moves[OBJECT_MOVE_NO],
                                         .moves_later = all.moves[OBJECT_MOVE_LATER],
                                         .moves_dont_need = all.moves[OBJECT_MOVE_DONT_NEED],
                                         .moves_dont_know = all.moves[OBJECT_MOVE_DONT_KNOW],
                                         .slabs_emptied = all.slabs_emptied};
}
