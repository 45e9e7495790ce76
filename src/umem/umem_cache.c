/*
 * umem_cache.c - umem_cache_create and its kind on strata's object caches.
 *
 * A umem_cache is a strata_cache and what its callbacks want. Objects that are too large for a strata_cache come from the heap, or the source, one by
 * one, and are in a table. Locks: none.
 */
#include "umem_internal.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <strata/cache.h>
#include <strata/debug.h>
#include <strata/kmem.h>
#include <strata/malloc.h>
#include <strata/pressure.h>

struct umem_cache {
    const umem_cache_t *self;         /* itself: so what was destroyed is seen, also where debugging has filled it with a pattern */
    struct strata_cache *cache;       /* NULL: the objects are too large for one */
    struct umem_large *large;         /* then these are allocated; else NULL */
    struct strata_pressure *pressure; /* then its reclaim function is called by this; NULL: it has none */
    char name[32];
    umem_constructor_t *constructor;
    umem_destructor_t *destructor;
    struct umem_reclaimer reclaimer; /* in the list of all where it has a function */
    void *callback_data;
    vmem_t *source;
    size_t size, align;
    bool left_alone; /* by debugging */
};

/* ------------------------------------------------------------------ callbacks */

/*
 * Never with UMEM_NOFAIL, as in illumos: what the constructor lacks would be asked of the callback right there, which may end the process for an
 * object that nobody waits for, or leave this place for good, and with it the object and those that were constructed before it. A constructor that
 * fails is asked again by umem_insist, where there is nothing to lose.
 */
static int construct(void *object, void *argument) {
    const umem_cache_t *cache = argument;
    return cache->constructor(object, cache->callback_data, UMEM_DEFAULT);
}
static void destruct(void *object, void *argument) {
    const umem_cache_t *cache = argument;
    cache->destructor(object, cache->callback_data);
}
static void reclaim(void *argument, size_t wanted_bytes, enum strata_cache_need need) {
    umem_cache_t *cache = argument;
    (void)wanted_bytes, (void)need; /* the callback isn't told, and frees what it thinks right */
    umem_reclaim(&cache->reclaimer);
}
/* Of a cache without a strata_cache: as of those, not while it has no memory, nor before it is known to the program. */
static void reclaim_large(void *argument, size_t wanted_bytes, enum strata_cache_need need) {
    const umem_cache_t *cache = argument;
    if (umem_large_has_any(cache->large)) reclaim(argument, wanted_bytes, need);
}

/* Slabs are segments of the source; a NULL alignment would do where they are multiples of the quantum, as xalloc sees for itself. */
static void *slab_allocate(void *context, size_t bytes, size_t align) { return vmem_xalloc(context, bytes, align, 0, 0, NULL, NULL, VM_NOSLEEP); }
static void slab_release(void *context, void *memory, size_t bytes) { vmem_xfree(context, memory, bytes); }

/* ------------------------------------------------------------------ large objects */

static void release_large(umem_cache_t *cache, void *object) {
    if (cache->source != NULL)
        vmem_xfree(cache->source, object, cache->size);
    else
        strata_free(object);
}

/* mtbf, which is all that debugging does to such blocks, has not heard of the cache. */
static void *take_large(umem_cache_t *cache) {
    if (cache->source != NULL) return slab_allocate(cache->source, cache->size, cache->align);
    if (!cache->left_alone) return strata_aligned_alloc(cache->align, cache->size);
    bool before = strata_debug_spare(true);
    void *object = strata_aligned_alloc(cache->align, cache->size);
    strata_debug_spare(before);
    return object;
}

/* In the table before it is constructed, as nothing is to fail afterwards. */
static void *alloc_large(umem_cache_t *cache) {
    void *object = take_large(cache);
    if (object == NULL) return NULL;
    if (umem_large_add(cache->large, object)) {
        if (cache->constructor == NULL || construct(object, cache) == 0) return object;
        umem_large_take(cache->large, object);
    }
    release_large(cache, object);
    strata_debug_failed(cache->name, cache->size);
    return NULL;
}

static void free_large(umem_cache_t *cache, void *object) {
    if (!umem_large_take(cache->large, object)) umem_die("umem_cache_free(): %p: no object of cache %s, or free already", object, cache->name);
    if (cache->destructor != NULL) destruct(object, cache);
    release_large(cache, object);
}

/* As strata_cache_destroy does: what was not freed is told, and its memory is gone, but it is not destructed. */
static void destroy_large(umem_cache_t *cache) {
    size_t count = 0;
    for (void *object; (object = umem_large_take_any(cache->large)) != NULL; count++) release_large(cache, object);
    if (count != 0) umem_line("umem_cache_destroy(): cache %s: %zu objects were not freed", cache->name, count);
    umem_large_destroy(cache->large);
}

/* ------------------------------------------------------------------ the interface */

static bool is_valid(const char *name, size_t size, size_t align) {
    return name != NULL && size != 0 && (align & (align - 1)) == 0 && align <= (size_t)sysconf(_SC_PAGESIZE);
}

/*
 * There is no strata_cache to be asked for objects. In a process that may not have strata's thread (background:off) umem_reap is what is left, as
 * nobody knows there that memory is short.
 */
static bool create_large(umem_cache_t *cache) {
    cache->large = umem_large_create();
    if (cache->large == NULL || cache->reclaimer.function == NULL) return cache->large != NULL;
    if (strata_pressure_register(cache->name, reclaim_large, cache, &cache->pressure) != STRATA_PRESSURE_NO_MEMORY) return true;
    umem_large_destroy(cache->large);
    return false;
}

/* What objects come from: a strata_cache, or the table of large ones. False: no memory. */
static bool create_inside(umem_cache_t *cache, int cflags) {
    if (((cache->size + cache->align - 1) & ~(cache->align - 1)) > STRATA_CACHE_OBJECT_MAX) return create_large(cache);
    if (cache->source != NULL && umem_has_identifiers(cache->source)) cache->left_alone = true;
    const struct strata_cache_source slabs = {.allocate = slab_allocate, .release = slab_release, .context = cache->source};
    const struct strata_cache_config config = {.size = cache->size,
                                               .align = cache->align,
                                               .constructor = cache->constructor != NULL ? construct : NULL,
                                               .destructor = cache->destructor != NULL ? destruct : NULL,
                                               .argument = cache,
                                               .reclaim = cache->reclaimer.function != NULL ? reclaim : NULL,
                                               .source = cache->source != NULL ? &slabs : NULL,
                                               .no_magazines = (cflags & UMC_NOMAGAZINE) != 0 || umem_no_magazines(),
                                               .no_debug = cache->left_alone,
                                               .slab_unit = cache->source != NULL ? umem_quantum(cache->source) : 0};
    return strata_cache_create(cache->name, &config, &cache->cache) == STRATA_CACHE_OK;
}

umem_cache_t *umem_cache_create(const char *debug_name, size_t bufsize, size_t align, umem_constructor_t *constructor, umem_destructor_t *destructor,
                                umem_reclaim_t *reclaim_callback, void *callback_data, vmem_t *source, int cflags) {
    umem_start();
    if (align == 0) align = 16;
    if (!is_valid(debug_name, bufsize, align)) {
        errno = EINVAL;
        return NULL;
    }
    umem_cache_t *cache = bufsize <= PTRDIFF_MAX ? umem_own_alloc(sizeof *cache) : NULL;
    if (cache == NULL) {
        errno = bufsize <= PTRDIFF_MAX ? EAGAIN : ENOMEM;
        return NULL;
    }
    *cache = (umem_cache_t){.self = cache,
                            .constructor = constructor,
                            .destructor = destructor,
                            .reclaimer = {.function = reclaim_callback, .data = callback_data},
                            .callback_data = callback_data,
                            .source = source,
                            .size = bufsize,
                            .align = align,
                            .left_alone = (cflags & (UMC_NODEBUG | UMC_NOTOUCH)) != 0};
    strncpy(cache->name, *debug_name != 0 ? debug_name : "umem", sizeof cache->name - 1);
    if (!create_inside(cache, cflags)) {
        strata_kmem_free(cache, sizeof *cache);
        errno = EAGAIN;
        return NULL;
    }
    if (reclaim_callback != NULL) umem_reclaimer_add(&cache->reclaimer);
    return cache;
}

static _Noreturn __attribute__((cold)) void no_cache(const char *function, const umem_cache_t *cache) {
    umem_die("%s(): %s", function, cache == NULL ? "the cache is NULL" : "the cache was destroyed");
}

static bool is_none(const umem_cache_t *cache) { return cache == NULL || cache->self != cache; }

void umem_cache_destroy(umem_cache_t *cache) {
    if (cache == NULL) return;
    if (is_none(cache)) no_cache("umem_cache_destroy", cache);
    if (cache->reclaimer.function != NULL && !umem_reclaimer_remove(&cache->reclaimer))
        umem_die("umem_cache_destroy(): called by the reclaim function of cache %s", cache->name);
    strata_pressure_unregister(cache->pressure);
    if (cache->cache != NULL)
        strata_cache_destroy(cache->cache);
    else
        destroy_large(cache);
    cache->self = NULL;
    strata_kmem_free(cache, sizeof *cache);
}

static void *try_alloc(const struct umem_request *request) {
    umem_cache_t *cache = request->cache;
    return cache->cache != NULL ? strata_cache_alloc(cache->cache, STRATA_CACHE_NO_SLEEP) : alloc_large(cache);
}

void *umem_cache_alloc(umem_cache_t *cache, int flags) {
    if (__builtin_expect(is_none(cache), 0)) no_cache("umem_cache_alloc", cache);
    const struct umem_request request = {.cache = cache};
    void *object = try_alloc(&request);
    return object != NULL || (flags & UMEM_NOFAIL) == 0 ? object : umem_insist(try_alloc, &request);
}

void umem_cache_free(umem_cache_t *cache, void *buf) {
    if (__builtin_expect(is_none(cache), 0)) no_cache("umem_cache_free", cache);
    if (cache->cache != NULL) {
        strata_cache_free(cache->cache, buf);
        return;
    }
    if (buf != NULL) free_large(cache, buf);
}
