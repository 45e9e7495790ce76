/*
 * fork.c - fork in a program with threads: every lock is taken in rank order before, and free on both sides after.
 *
 * Handlers that were registered before ours run between prepare and parent or child, and may allocate: the thread that forks can take
 * the locks again then. Such handlers are few: libstrata.so asks to be initialised first (cmake/library.cmake), because one that waits
 * for a mutex whose owner waits for us would wait for ever. In the child such a handler must not start threads that allocate: what
 * the threads of the parent left is not put in order yet.
 *
 * Between, no other thread holds a lock of a layer, or of a fixed pool. Restartable sequences take no lock: they commit with one store, before or
 * after the copy. What another thread had in its hands in a slow path, without a lock, the child loses: half an array or one magazine of rounds, or
 * one run of a block, at most. Pages on their way to the system come back (zone_drop_captures), as they can be many.
 */
#include <pthread.h>

#include "api/heap.h"
#include "api/page_watch.h"
#include "api/pressure.h"
#include "api/zone_fork.h"

/* Under heap.lock, which is held from prepare to the end of parent and child. */
static bool layers_held;

/*
 * A process of one thread that has used malloc alone, as most that fork: nobody holds a lock, nothing is under way and nothing of its own has to go.
 * Taking every lock would cost a copy of every page that one lies in, on both sides.
 */
static bool is_alone(void) {
    const struct zone *zone = &heap.zone;
    if (!platform_thread_is_alone()) return false;
    return !heap.ready ||
           (heap.objects.layers == NULL && heap.arenas.first == NULL && list_empty(&heap.pools.pools) && heap.watches == NULL &&
            heap.pressure.first == NULL && heap.debug == NULL && !zones_exist() && zone->compaction.thread == 0 && zone->mover.process == 0);
}

/* Of others apart, as most programs that fork need no more than to know that they are alone. */
static STRATA_SELDOM void prepare_beside_others(void) {
    zones_fork_settle();
    heap_lock_name();
    platform_lock_hold(&heap.lock);
    platform_fork_begin();
    platform_access_fork_prepare();
    layers_held = heap.ready; /* not where some layers stand and there was no memory for the rest: nobody uses them then */
    zones_fork_prepare();     /* which know nothing of the heap */
    if (!layers_held) return;
    pressure_fork_prepare();
    platform_lock_hold(&heap.arenas.lock);
    if (heap_is_debugged()) debug_heap_fork_prepare_first();
    pool_fork_prepare(&heap.pools);
    object_caches_fork_prepare(&heap.objects);
    cache_fork_prepare(&heap.caches);
    if (heap_is_debugged()) debug_heap_fork_prepare_slabs();
    slab_fork_prepare(&heap.slabs);
    arenas_fork_prepare_quanta();
    zone_fork_prepare(&heap.zone);
    arenas_fork_prepare(); /* nobody who holds one of these wants another lock */
    page_watch_fork_prepare();
}

static STRATA_SELDOM void parent_beside_others(void) {
    if (layers_held) {
        page_watch_fork_parent();
        arenas_fork_parent();
        zone_fork_parent(&heap.zone);
        slab_fork_parent(&heap.slabs);
        cache_fork_parent(&heap.caches);
        object_caches_fork_parent(&heap.objects);
        pool_fork_done(&heap.pools);
        if (heap_is_debugged()) debug_heap_fork_done();
        platform_lock_unhold(&heap.arenas.lock);
    }
    zones_fork_parent();
    platform_fork_end();
    platform_lock_unhold(&heap.lock);
}

static STRATA_SELDOM void child_beside_others(void) {
    platform_access_fork_child();
    if (layers_held) {
        page_watch_fork_child();
        arenas_fork_child();
        zone_fork_child(&heap.zone);
        slab_fork_child(&heap.slabs);
        cache_fork_child(&heap.caches);
        object_caches_fork_child(&heap.objects);
        pool_fork_done(&heap.pools);
        if (heap_is_debugged()) debug_heap_fork_child();
        platform_lock_unhold(&heap.arenas.lock);
    }
    zones_fork_child();
    platform_fork_end();
    platform_lock_unhold(&heap.lock);
    if (!layers_held) return;
    maintenance_fork_child();
    introspect_fork_child();
    pressure_fork_child();
    cache_fork_child_settle(&heap.caches);
}

/* A process that strata is about to end (emergency.c) may fork in its handler of SIGABRT, while this very thread holds a lock: allocations take none
 * then. */
static void prepare(void) {
    if (!__atomic_load_n(&heap.dying, __ATOMIC_RELAXED) && !is_alone()) prepare_beside_others();
}
static void parent(void) {
    if (platform_fork_is_mine()) parent_beside_others();
}
static void child(void) {
    if (platform_fork_is_mine()) child_beside_others();
}

void heap_fork_register(void) {
    static bool registered;
    if (!__atomic_exchange_n(&registered, true, __ATOMIC_RELAXED)) pthread_atfork(prepare, parent, child);
}
