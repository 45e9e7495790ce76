/*
 * pressure.c - the program's handlers for shortage of memory (strata/pressure.h), called by the maintenance thread and by nobody else.
 *
 * The list is in order of registration, under heap.lock. Who runs is `running`, which pins its registration: it is freed by whoever unregisters it,
 * after the run, or after it by the maintenance thread where the handler itself has unregistered it. What is called next is
 * found by number, so that the list may change meanwhile in any way, and a handler that is registered by another is called with the next event.
 */
#include "strata/pressure.h"

#include <string.h>

#include "api/heap.h"
#include "api/pressure.h"
#include "base/check.h"

#define NAME_BYTES 32

struct strata_pressure {
    struct strata_pressure *next;
    uint64_t number; /* rising in the list */
    void (*handler)(void *argument, size_t wanted_bytes, enum strata_cache_need need);
    void *argument;
    uint64_t calls, wanted_bytes, freed_bytes, resident_bytes; /* atomic */
    bool gone;                                                 /* unregistered by the handler: to be freed after the run */
    char name[NAME_BYTES];
};

const char *strata_pressure_status_text(enum strata_pressure_status status) {
    static const char *const texts[] = {[STRATA_PRESSURE_OK] = "success",
                                        [STRATA_PRESSURE_NO_MEMORY] = "no memory",
                                        [STRATA_PRESSURE_BAD_ARGUMENT] = "bad argument",
                                        [STRATA_PRESSURE_NO_THREAD] = "no maintenance thread, which would call the handler"};
    return (unsigned)status < ARRAY_LENGTH(texts) ? texts[status] : "unknown status";
}

/* ------------------------------------------------------------------ registration */

static void add_last(struct strata_pressure *registration) {
    struct strata_pressure **link = &heap.pressure.first;
    platform_lock_acquire(&heap.lock);
    while (*link != NULL) link = &(*link)->next;
    registration->number = heap.pressure.numbers + 1;
    __atomic_store_n(&heap.pressure.numbers, registration->number, __ATOMIC_RELAXED); /* both are looked at without the lock, too */
    __atomic_store_n(link, registration, __ATOMIC_RELAXED);
    platform_lock_release(&heap.lock);
}

static void free_registration(struct strata_pressure *registration) { zone_metadata_free(&heap.zone, registration, sizeof *registration); }

enum strata_pressure_status strata_pressure_register(const char *name,
                                                     void (*handler)(void *argument, size_t wanted_bytes, enum strata_cache_need need),
                                                     void *argument, struct strata_pressure **registration) {
    if (name == NULL || handler == NULL || registration == NULL) return STRATA_PRESSURE_BAD_ARGUMENT;
    size_t length = strlen(name);
    if (length == 0 || length >= NAME_BYTES) return STRATA_PRESSURE_BAD_ARGUMENT;
    if (!heap_init()) return STRATA_PRESSURE_NO_MEMORY;
    if (!maintenance_start()) return STRATA_PRESSURE_NO_THREAD;
    struct strata_pressure *added = zone_metadata_alloc(&heap.zone, sizeof *added);
    if (added == NULL) return STRATA_PRESSURE_NO_MEMORY;
    *added = (struct strata_pressure){.handler = handler, .argument = argument};
    memcpy(added->name, name, length);
    add_last(added);
    platform_event_wake(&heap.maintenance_event); /* which watches all there is, now that somebody wants to know */
    *registration = added;
    return STRATA_PRESSURE_OK;
}

static void wait_for_run(const struct strata_pressure *registration) {
    while (heap.pressure.running == registration) {
        uint32_t seen = __atomic_load_n(&heap.pressure.runs, __ATOMIC_ACQUIRE);
        platform_lock_release(&heap.lock);
        platform_word_wait(&heap.pressure.runs, seen);
        platform_lock_acquire(&heap.lock);
    }
}

void strata_pressure_unregister(struct strata_pressure *registration) {
    if (registration == NULL) return;
    platform_lock_acquire(&heap.lock);
    for (struct strata_pressure **link = &heap.pressure.first; *link != NULL; link = &(*link)->next) {
        if (*link != registration) continue;
        __atomic_store_n(link, registration->next, __ATOMIC_RELAXED);
        break;
    }
    registration->gone = heap.pressure.running == registration && heap.pressure.runner == platform_thread_self();
    bool by_itself = registration->gone;
    if (!by_itself) wait_for_run(registration);
    platform_lock_release(&heap.lock);
    if (!by_itself) free_registration(registration);
}

void strata_pressure_stats_get(struct strata_pressure *registration, struct strata_pressure_stats *stats) {
    *stats = (struct strata_pressure_stats){.name = registration->name,
                                            .calls = __atomic_load_n(&registration->calls, __ATOMIC_RELAXED),
                                            .wanted_bytes = __atomic_load_n(&registration->wanted_bytes, __ATOMIC_RELAXED),
                                            .freed_bytes = __atomic_load_n(&registration->freed_bytes, __ATOMIC_RELAXED),
                                            .resident_bytes = __atomic_load_n(&registration->resident_bytes, __ATOMIC_RELAXED)};
}

/* ------------------------------------------------------------------ calls */

static void add_in_use(struct object_cache *cache, void *argument) {
    struct object_cache_stats stats;
    if (cache->slabs.source != &slab_source_zone) return;
    object_cache_stats_get(cache, &stats);
    *(uint64_t *)argument += (stats.slabs.in_use - min_u64(stats.cache.cached, stats.slabs.in_use)) * cache->bytes;
}

/* Of the heap, in the program's hands. */
static uint64_t in_use_bytes(void) {
    struct zone_counters zone;
    zone_counters_get(&heap.zone, &zone);
    uint64_t bytes = (zone.block_granules << GRANULE_SHIFT) + __atomic_load_n(&heap.pools.chunk_bytes, __ATOMIC_RELAXED);
    for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_MAGAZINES; tag++) {
        struct class_figures figures;
        introspect_class(tag, &figures);
        bytes += figures.in_use_bytes;
    }
    object_caches_each(&heap.objects, add_in_use, &bytes);
    return bytes;
}

static uint64_t lost(uint64_t before, uint64_t after) { return before > after ? before - after : 0; }

static void add(uint64_t *own, uint64_t *sum, uint64_t bytes) {
    __atomic_fetch_add(own, bytes, __ATOMIC_RELAXED);
    __atomic_fetch_add(sum, bytes, __ATOMIC_RELAXED);
}

/* Of the maintenance thread: the first registration behind `number` is what runs now. NULL: there is none. */
static struct strata_pressure *begin_run(uint64_t number) {
    platform_lock_acquire(&heap.lock);
    struct strata_pressure *next = heap.pressure.first;
    while (next != NULL && next->number <= number) next = next->next;
    heap.pressure.running = next;
    heap.pressure.runner = platform_thread_self();
    platform_lock_release(&heap.lock);
    return next;
}

static void end_run(struct strata_pressure *registration) {
    platform_lock_acquire(&heap.lock);
    heap.pressure.running = NULL;
    bool gone = registration->gone;
    __atomic_fetch_add(&heap.pressure.runs, 1, __ATOMIC_RELEASE);
    platform_lock_release(&heap.lock);
    platform_word_wake(&heap.pressure.runs);
    if (gone) free_registration(registration);
}

bool pressure_call_handlers(uint64_t wanted_bytes, unsigned shift, unsigned need) {
    uint64_t number = 0, last = __atomic_load_n(&heap.pressure.numbers, __ATOMIC_RELAXED);
    struct strata_pressure *called;
    if (__atomic_load_n(&heap.pressure.first, __ATOMIC_RELAXED) == NULL) return false;
    if (wanted_bytes == 0) wanted_bytes = __atomic_load_n(&heap.zone.counters.populated, __ATOMIC_RELAXED) << GRANULE_SHIFT >> shift;
    wanted_bytes = max_u64(wanted_bytes, platform_info()->page_bytes);
    while (number < last && (called = begin_run(number)) != NULL) {
        number = called->number;
        uint64_t in_use = in_use_bytes(), resident = platform_resident_bytes();
        called->handler(called->argument, wanted_bytes, (enum strata_cache_need)need);
        add(&called->freed_bytes, &heap.pressure.freed_bytes, lost(in_use, in_use_bytes()));
        add(&called->resident_bytes, &heap.pressure.resident_bytes, lost(resident, platform_resident_bytes()));
        add(&called->wanted_bytes, &heap.pressure.wanted_bytes, wanted_bytes);
        add(&called->calls, &heap.pressure.calls, 1);
        end_run(called);
    }
    return number != 0;
}

/* ------------------------------------------------------------------ fork */

void pressure_fork_prepare(void) { heap.pressure.forks = heap.pressure.running != NULL && heap.pressure.runner == platform_thread_self(); }

/* A handler that runs on another thread has not come along; one that forks itself goes on, as a thread of another number. */
void pressure_fork_child(void) {
    if (heap.pressure.forks)
        heap.pressure.runner = platform_thread_self();
    else
        heap.pressure.running = NULL;
}
