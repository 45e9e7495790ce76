/*
 * cache_api_callbacks.c - when programs are asked to free objects of their caches, and for how much; and the moving of objects as programs see it.
 *
 * Who may call the program's reclaim functions: strata_cache_alloc, on the thread that would get nothing otherwise, and the maintenance thread.
 * malloc does not, as it may be called where they must not run: it leaves word for the maintenance thread.
 */
#include "api/cache_api.h"
#include "api/heap.h"
#include "api/pressure.h"

/* Of a cache's memory: one in 2^shift. */
#define IDLE_SHIFT 4
#define SOME_SHIFT 3
#define CRITICAL_SHIFT 1

_Static_assert(STRATA_CACHE_MOVE_YES == (int)OBJECT_MOVE_YES && STRATA_CACHE_MOVE_NO == (int)OBJECT_MOVE_NO &&
                   STRATA_CACHE_MOVE_LATER == (int)OBJECT_MOVE_LATER && STRATA_CACHE_MOVE_DONT_NEED == (int)OBJECT_MOVE_DONT_NEED &&
                   STRATA_CACHE_MOVE_DONT_KNOW == (int)OBJECT_MOVE_DONT_KNOW,
               "answers pass unchanged");

/* ------------------------------------------------------------------ calls with the program's own types */

typedef void program_reclaim(void *argument, size_t wanted_bytes, enum strata_cache_need need);
typedef enum strata_cache_move program_move(void *old_object, void *new_object, size_t size, void *argument);

void cache_call_reclaim(object_function *reclaim, void *argument, uint64_t wanted_bytes, unsigned need) {
    ((program_reclaim *)reclaim)(argument, wanted_bytes, (enum strata_cache_need)need);
}
static unsigned call_move(object_function *move, void *old, void *fresh, uint64_t bytes, void *argument) {
    return (unsigned)((program_move *)move)(old, fresh, bytes, argument);
}

/* ------------------------------------------------------------------ reclaim */

void *cache_alloc_reclaimed(struct object_cache *cache, bool asks, enum object_failure why) {
    const struct object_need need = {.bytes = cache->slabs.slab_bytes, .need = STRATA_CACHE_OUT_OF_MEMORY};
    bool called = asks && object_cache_reclaim(cache, &need);
    void *object = called ? object_cache_alloc(cache) : NULL;
    if (object != NULL || (called && object_cache_failure() == OBJECT_BY_MTBF)) return object;
    if (asks) called |= object_caches_reclaim(&heap.objects, cache, &need) != 0;
    /* Memory was there. What a source of the program's own has may be what the constructor lacked. */
    if (!called && why == OBJECT_BY_CONSTRUCTOR && cache->slabs.source == &slab_source_zone) return NULL;
    object_caches_reap(&heap.objects);
    heap_release(0);
    return object_cache_alloc(cache);
}

/* What was freed goes on to the slabs, and empty slabs to their source. */
static bool reclaim(uint64_t bytes, unsigned shift, enum strata_cache_need how) {
    const struct object_need need = {.bytes = bytes, .shift = shift, .need = how};
    bool handled = pressure_call_handlers(bytes, shift, how);
    if (object_caches_reclaim(&heap.objects, NULL, &need) == 0) return handled;
    object_caches_reap(&heap.objects);
    return true;
}

bool reclaim_on_pressure(bool critical) { return reclaim(0, critical ? CRITICAL_SHIFT : SOME_SHIFT, STRATA_CACHE_PRESSURE); }
bool reclaim_when_idle(void) { return reclaim(0, IDLE_SHIFT, STRATA_CACHE_IDLE); }

/* Idle pages above the limit have left already: what is above it still is in use. */
bool reclaim_above_limit(void) {
    uint64_t limit = zone_soft_limit(&heap.zone);
    uint64_t populated = __atomic_load_n(&heap.zone.counters.populated, __ATOMIC_RELAXED) << GRANULE_SHIFT;
    return limit != 0 && populated > limit && reclaim(populated - limit, 0, STRATA_CACHE_PRESSURE);
}

bool reclaim_for_malloc(void) {
    if (!__atomic_exchange_n(&heap.malloc_failed, false, __ATOMIC_RELAXED)) return false; /* the caller looks first */
    reclaim(0, CRITICAL_SHIFT, STRATA_CACHE_OUT_OF_MEMORY);
    object_caches_reap(&heap.objects); /* also where nobody was asked: their depots may have what malloc lacked */
    heap_release(0);
    return true;
}

void reclaim_later(size_t bytes) {
    if (bytes > min_u64(heap.zone.config.hard_limit_bytes, platform_memory_bytes())) return; /* nobody could give back so much */
    if (__atomic_load_n(&heap.objects.layers, __ATOMIC_ACQUIRE) == NULL && __atomic_load_n(&heap.pressure.first, __ATOMIC_RELAXED) == NULL) return;
    __atomic_store_n(&heap.malloc_failed, true, __ATOMIC_RELAXED);
    maintenance_large_call(); /* which starts the thread, in a small heap; who starts it may come here once more */
    platform_event_wake(&heap.maintenance_event);
}

/* ------------------------------------------------------------------ moves */

enum strata_cache_status strata_cache_set_move(struct strata_cache *cache,
                                               enum strata_cache_move (*move)(void *old_object, void *new_object, size_t size, void *argument)) {
    struct object_cache *object_cache = cache_required(cache, "strata_cache_set_move");
    if (move == NULL) return STRATA_CACHE_BAD_ARGUMENT;
    switch (object_cache_set_move(object_cache, (object_function *)move, call_move)) {
    case OBJECT_CACHE_OK: return STRATA_CACHE_OK;
    case OBJECT_CACHE_TOO_LATE: return STRATA_CACHE_TOO_LATE;
    default: return STRATA_CACHE_NO_MEMORY;
    }
}

size_t strata_cache_consolidate(struct strata_cache *cache) {
    return object_cache_consolidate(&heap.objects, cache_required(cache, "strata_cache_consolidate"));
}
