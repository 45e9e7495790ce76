/*
 * introspect.c - what a program can ask about its heap: statistics in every form, checks, release, and the reports at exit.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>

#include "api/also_as.h"
#include "api/heap.h"
#include "api/report.h"
#include "base/check.h"
#include "strata/arena.h"
#include "strata/malloc.h"
#include "strata/strata.h"

#define STANDARD_ERROR 2
#define VERIFY_FAILED 125 /* exit status: as env and nohup, for what failed before the program ran */

/* ------------------------------------------------------------------ the snapshot */

static void add_objects(struct report_cache *row, uint64_t out, uint64_t total, uint64_t allocs, uint64_t frees, const struct cache_stats *cache) {
    uint64_t cached = min_u64(cache->cached, out); /* the two are of different moments */
    row->cached += cached;
    row->in_use += out - cached;
    row->total += total;
    row->slab_allocs += allocs;
    row->slab_frees += frees;
    row->depot_allocs += cache->depot_allocs;
    row->depot_frees += cache->depot_frees;
    row->magazine_rounds = cache->rounds;
    row->contention += cache->contention;
    row->depot_magazines += cache->depot_magazines;
}

void introspect_class(unsigned tag, struct class_figures *figures) {
    *figures = (struct class_figures){0};
    slab_stats_get(&heap.slabs, tag, &figures->slab);
    if (tag >= SLAB_CACHE_MAGAZINES) return; /* strata's own: no arrays, no debugging */
    cache_stats_get(&heap.caches, tag, &figures->cache);
    figures->cache.cached = min_u64(figures->cache.cached, figures->slab.in_use); /* the two are of different moments */
    if (heap_is_debugged()) debug_heap_add_figures(tag, &figures->slab);
    figures->in_use_bytes = (figures->slab.in_use - figures->cache.cached) * figures->slab.object_bytes;
}

static void fill_caches(struct report_snapshot *snapshot) {
    for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_END; tag++) {
        struct report_cache *row = &snapshot->caches[snapshot->cache_count++];
        struct class_figures figures;
        introspect_class(tag, &figures);
        const struct slab_stats *slab = &figures.slab;
        report_name_set(row->name, heap.slabs.caches[tag].name);
        row->object_bytes = slab->object_bytes;
        row->slab_bytes = slab->slab_bytes;
        row->slabs = slab->slabs;
        row->memory_bytes = slab->memory_bytes;
        add_objects(row, slab->in_use, slab->total, slab->allocs, slab->frees, &figures.cache);
        snapshot->heap.in_use_bytes += figures.in_use_bytes;
    }
}

/* More object caches than there are rows share the last one, which has no size. */
static struct report_cache *object_cache_row(struct report_snapshot *snapshot, const struct object_cache *cache) {
    if (snapshot->cache_count < REPORT_MAX_CACHES) {
        struct report_cache *row = &snapshot->caches[snapshot->cache_count++];
        report_name_set(row->name, cache->name);
        uint64_t unit = max_u64(cache->integers, 1);
        row->object_bytes = cache->bytes * unit;
        row->slab_bytes = cache->slabs.slab_bytes * unit;
        return row;
    }
    struct report_cache *row = &snapshot->caches[REPORT_MAX_CACHES - 1];
    report_name_set(row->name, "(others)");
    row->object_bytes = row->slab_bytes = 0;
    return row;
}

static void add_callbacks(struct report_cache *row, const struct object_cache *cache, const struct object_cache_stats *stats) {
    row->calls_back |= cache->reclaimer != NULL || __atomic_load_n(&cache->mover, __ATOMIC_RELAXED) != NULL;
    row->reclaims += stats->reclaims;
    row->reclaimed_bytes += stats->reclaimed_bytes;
    for (unsigned i = 0; i < OBJECT_MOVE_ANSWERS; i++) row->moves += stats->moves[i];
    row->moves_yes += stats->moves[OBJECT_MOVE_YES];
    row->slabs_emptied += stats->slabs_emptied;
}

static void fill_object_cache(struct object_cache *cache, void *argument) {
    struct report_snapshot *snapshot = argument;
    struct report_cache *row = object_cache_row(snapshot, cache);
    struct object_cache_stats stats;
    object_cache_stats_get(cache, &stats);
    uint64_t in_use_before = row->in_use;
    row->slabs += stats.slabs.slabs;
    if (cache->integers == 0) row->memory_bytes += stats.slabs.memory_bytes;
    add_objects(row, stats.slabs.in_use, stats.slabs.total, stats.slabs.allocs, stats.slabs.frees, &stats.cache);
    if (row->object_bytes == 0) row->magazine_rounds = 0; /* of many */
    add_callbacks(row, cache, &stats);
    if (cache->slabs.source == &slab_source_zone) snapshot->heap.in_use_bytes += (row->in_use - in_use_before) * cache->bytes;
}

/* More arenas than there are rows share the last one. Sums of integers that stand for different things would mean nothing: it has none. */
static void add_to_others(struct report_arena *row, const struct strata_arena_stats *stats) {
    report_name_set(row->name, "(others)");
    row->quantum = row->in_use = row->total = row->imported = 0;
    row->segments += stats->segments_allocated + stats->segments_free;
    row->allocs += stats->allocs;
    row->frees += stats->frees;
    row->failures += stats->failures;
    row->imports += stats->imports;
    row->releases += stats->releases;
    row->waits += stats->waits;
    row->metadata_bytes += stats->metadata_bytes;
}

static void add_arena(const struct strata_arena_stats *stats, void *argument) {
    struct report_snapshot *snapshot = argument;
    snapshot->heap.metadata_bytes += stats->metadata_bytes;
    if (snapshot->arena_count == REPORT_MAX_ARENAS) {
        add_to_others(&snapshot->arenas[REPORT_MAX_ARENAS - 1], stats);
        return;
    }
    struct report_arena *row = &snapshot->arenas[snapshot->arena_count++];
    report_name_set(row->name, stats->name);
    row->of_program = true;
    row->quantum = stats->quantum;
    row->in_use = stats->allocated;
    row->total = stats->total;
    row->segments = stats->segments_allocated + stats->segments_free;
    row->allocs = stats->allocs;
    row->frees = stats->frees;
    row->failures = stats->failures;
    row->imported = stats->imported;
    row->imports = stats->imports;
    row->releases = stats->releases;
    row->waits = stats->waits;
    row->metadata_bytes = stats->metadata_bytes;
}

static void fill_arenas(struct report_snapshot *snapshot) {
    struct arena_stats stats;
    struct report_arena *row = &snapshot->arenas[snapshot->arena_count++];
    arena_stats_get(&heap.zone.addresses, &stats);
    report_name_set(row->name, stats.name);
    row->quantum = stats.quantum;
    row->in_use = stats.allocated;
    row->total = stats.total;
    row->segments = stats.segments_allocated + stats.segments_free;
    row->allocs = stats.counters.allocs;
    row->frees = stats.counters.frees;
    row->failures = stats.counters.failures;
    arenas_for_each(add_arena, snapshot);
}

static void fill_groups(struct report_snapshot *snapshot) {
    static const char *const names[MOBILITY_GROUPS] = {"unmovable", "reclaimable", "movable"};
    struct zone_group_stats stats[MOBILITY_GROUPS];
    unsigned pages_shift = bit_lowest(heap.zone.page_granules);
    zone_group_stats_get(&heap.zone, stats);
    for (unsigned m = 0; m < MOBILITY_GROUPS; m++) {
        struct report_group *row = &snapshot->groups[snapshot->group_count++];
        report_name_set(row->name, names[m]);
        row->superpages = stats[m].superpages;
        row->partial_superpages = stats[m].partial_superpages;
        row->allocated_pages = stats[m].allocated >> pages_shift;
        row->populated_pages = stats[m].populated >> pages_shift;
        row->free_populated_pages = stats[m].idle >> pages_shift;
        row->huge_superpages = stats[m].huge_superpages;
    }
}

static uint64_t permille(double index) { return index > 0 ? (uint64_t)(index * 1000) : 0; }

/* Blocks of superpages and more are told in superpages. */
static void fill_orders(struct report_snapshot *snapshot) {
    struct zone_free_stats stats;
    zone_free_stats_get(&heap.zone, &stats);
    snapshot->order_count = REPORT_ORDERS;
    for (unsigned order = 0; order < REPORT_ORDERS; order++) {
        snapshot->orders[order] = (struct report_order){
            .block_bytes = GRANULE_BYTES << order,
            .unmovable = stats.groups[MOBILITY_UNMOVABLE].blocks[order],
            .reclaimable = stats.groups[MOBILITY_RECLAIMABLE].blocks[order],
            .movable = stats.groups[MOBILITY_MOVABLE].blocks[order],
            .unusable_permille = permille(frames_unusable_index(&stats.all, order)),
            .fragmentation_permille = permille(frames_fragmentation_index(&stats.all, order)),
        };
    }
    for (unsigned order = REPORT_ORDERS - 1; order < FRAMES_INDEX_ORDERS; order++)
        snapshot->orders[REPORT_ORDERS - 1].unused += stats.all.blocks[order] << (order - (REPORT_ORDERS - 1));
}

static void fill_snapshot(struct report_snapshot *snapshot) {
    static const char *const modes[] = {[PLATFORM_CPU_RSEQ_MM_CID] = "rseq-mm_cid",
                                        [PLATFORM_CPU_RSEQ_CPU_ID] = "rseq-cpu_id",
                                        [PLATFORM_CPU_THREAD] = "thread",
                                        [PLATFORM_CPU_SIM] = "sim"};
    __builtin_memset(snapshot, 0, sizeof *snapshot);
    snapshot->pid = platform_process_id();
    snapshot->mode = modes[platform_cpu_mode()];
    if (!__atomic_load_n(&heap.ready, __ATOMIC_ACQUIRE)) return;
    snapshot->uptime_ns = platform_now_ns() - heap.started_ns;
    fill_caches(snapshot);
    object_caches_each(&heap.objects, fill_object_cache, snapshot);
    fill_groups(snapshot); /* before the arena of addresses: what rests has left it then */
    fill_orders(snapshot);
    fill_arenas(snapshot);
    struct zone_counters zone;
    zone_counters_get(&heap.zone, &zone);
    struct report_heap *totals = &snapshot->heap;
    totals->large_blocks = zone.blocks;
    totals->large_bytes = zone.block_granules << GRANULE_SHIFT;
    totals->in_use_bytes += totals->large_bytes + __atomic_load_n(&heap.pools.chunk_bytes, __ATOMIC_RELAXED);
    totals->populated_bytes = zone.populated << GRANULE_SHIFT;
    totals->lookaside_bytes = zone.idle << GRANULE_SHIFT;
    totals->reserved_bytes = heap.zone.reserved_bytes;
    totals->metadata_bytes += zone_metadata_bytes(&heap.zone) + cache_area_bytes(&heap.caches) + object_caches_area_bytes(&heap.objects);
    totals->huge_bytes = platform_huge_bytes();
    size_t extent_bytes = heap.zone.growing ? 0 : __atomic_load_n(&heap.zone.extent_units, __ATOMIC_ACQUIRE) << 4; /* without holes */
    if (extent_bytes != 0 && !platform_huge_in((const void *)heap.zone.base, extent_bytes, &totals->heap_huge_bytes)) totals->heap_huge_bytes = 0;
    totals->resident_bytes = platform_resident_bytes();
    totals->released_bytes_total = zone.released_total << GRANULE_SHIFT;
    totals->populated_bytes_total = zone.populated_total << GRANULE_SHIFT;
    totals->moves = zone.moves;
    totals->compactions = zone.compactions;
    totals->block_moves = zone.block_moves;
    totals->races_lost_bytes = zone.races_lost << GRANULE_SHIFT;
    totals->mappings = zone.mappings;
    totals->mappings_limit = platform_map_count_limit() / 4;
    totals->soft_limit = zone_soft_limit(&heap.zone);
    totals->hard_limit = heap.options.hard_limit_bytes;
    totals->pressure_events = __atomic_load_n(&heap.pressure_events, __ATOMIC_RELAXED);
    totals->handler_calls = __atomic_load_n(&heap.pressure.calls, __ATOMIC_RELAXED);
    totals->handler_freed_bytes = __atomic_load_n(&heap.pressure.freed_bytes, __ATOMIC_RELAXED);
    totals->handler_resident_bytes = __atomic_load_n(&heap.pressure.resident_bytes, __ATOMIC_RELAXED);
}

/*
 * A snapshot is some 60 KiB: more than a small thread stack may have left, so it lives here, guarded by a lock of its own that is
 * held while it is written out. A fork does not wait for it, as the writing may take long: its child begins a snapshot of its own.
 */
static struct report_snapshot shared_snapshot;
static struct platform_lock snapshot_lock = PLATFORM_LOCK_INIT(LOCK_RANK_API);

void introspect_fork_child(void) { platform_lock_reset(&snapshot_lock); }

static bool write_to_descriptor(void *context, const char *bytes, size_t count) { return platform_file_write(*(const int *)context, bytes, count); }

static bool write_to_stream(void *context, const char *bytes, size_t count) { return fwrite(bytes, 1, count, context) == count; }

typedef bool report_function(const struct report_snapshot *snapshot, struct report_writer *writer);

static bool write_report(report_function *report, bool (*write_bytes)(void *, const char *, size_t), void *context) {
    struct report_writer writer;
    heap_init(); /* not under the lock, which is of the rank of the heap's own */
    platform_lock_acquire(&snapshot_lock);
    fill_snapshot(&shared_snapshot);
    report_writer_init(&writer, write_bytes, context);
    bool ok = report(&shared_snapshot, &writer);
    platform_lock_release(&snapshot_lock);
    return ok;
}

static int report_to_descriptor(report_function *report, int fd) {
    int saved = errno;
    bool ok = write_report(report, write_to_descriptor, &fd);
    errno = saved;
    return ok ? 0 : EIO;
}

STRATA_EXPORT int strata_stats_json(int fd) { return report_to_descriptor(report_json, fd); }
STRATA_EXPORT int strata_stats_table(int fd) { return report_to_descriptor(report_table, fd); }
STRATA_EXPORT const char *strata_check(void) { return heap_check(); }
STRATA_EXPORT size_t strata_release(size_t keep_bytes) { return heap_release(keep_bytes); }

/* ------------------------------------------------------------------ glibc's names */

int strata_malloc_trim(size_t pad) { return heap_release(pad) != 0; }
ALSO_AS(malloc_trim, strata_malloc_trim)

int strata_malloc_info(int options, FILE *stream) {
    if (options != 0) return EINVAL; /* as glibc does, with errno as it was */
    int cancel_state;                /* writing to a stream is a cancellation point, and the snapshot is locked */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    flockfile(stream); /* before the snapshot's lock, as who has the stream already may come here, too */
    bool ok = write_report(report_xml, write_to_stream, stream);
    funlockfile(stream);
    pthread_setcancelstate(cancel_state, NULL);
    return ok ? 0 : -1;
}
ALSO_AS(malloc_info, strata_malloc_info)

void strata_malloc_stats(void) { strata_stats_table(STANDARD_ERROR); }
ALSO_AS(malloc_stats, strata_malloc_stats)

/* Of the program's own caches those whose memory is the heap's. */
static void add_object_cache(struct object_cache *cache, void *argument) {
    struct strata_mallinfo2 *info = argument;
    struct object_cache_stats stats;
    if (cache->slabs.source != &slab_source_zone) return;
    object_cache_stats_get(cache, &stats);
    const uint64_t cached = min_u64(stats.cache.cached, stats.slabs.in_use);
    info->ordblks += stats.slabs.total - stats.slabs.in_use;
    info->smblks += cached;
    info->fsmblks += cached * cache->bytes;
    info->uordblks += (stats.slabs.in_use - cached) * cache->bytes;
}

struct strata_mallinfo2 strata_mallinfo2(void) {
    struct strata_mallinfo2 info = {0};
    if (!heap_init()) return info;
    struct zone_counters zone;
    zone_counters_get(&heap.zone, &zone);
    for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_MAGAZINES; tag++) {
        struct class_figures figures;
        introspect_class(tag, &figures);
        info.ordblks += figures.slab.total - figures.slab.in_use;
        info.smblks += figures.cache.cached;
        info.fsmblks += figures.cache.cached * figures.slab.object_bytes;
        info.uordblks += figures.in_use_bytes;
    }
    object_caches_each(&heap.objects, add_object_cache, &info);
    info.uordblks += __atomic_load_n(&heap.pools.chunk_bytes, __ATOMIC_RELAXED);
    info.hblks = zone.blocks;
    info.hblkhd = zone.block_granules << GRANULE_SHIFT;
    info.keepcost = zone.idle << GRANULE_SHIFT;
    uint64_t populated = zone.populated << GRANULE_SHIFT;
    info.arena = populated > info.hblkhd ? populated - info.hblkhd : 0;
    info.fordblks = info.arena > info.uordblks ? info.arena - info.uordblks : 0;
    return info;
}
ALSO_AS(mallinfo2, strata_mallinfo2)

static int capped(size_t value) { return value > INT_MAX ? INT_MAX : (int)value; }

struct strata_mallinfo strata_mallinfo(void) {
    struct strata_mallinfo2 info = strata_mallinfo2();
    return (struct strata_mallinfo){capped(info.arena),   capped(info.ordblks), capped(info.smblks),   capped(info.hblks),    capped(info.hblkhd),
                                    capped(info.usmblks), capped(info.fsmblks), capped(info.uordblks), capped(info.fordblks), capped(info.keepcost)};
}
ALSO_AS(mallinfo, strata_mallinfo)
ALSO_AS_LIBC(__libc_mallinfo, strata_mallinfo)

/* The parameters of glibc's <malloc.h>: its own, and System V's, of which M_MXFAST has a largest value. Of the others it takes any. */
#define ARENA_MAX (-8)
#define MXFAST 1
#define KEEP 4
#define MXFAST_MAX ((int)(20 * sizeof(size_t)))

int strata_mallopt(int parameter, int value) {
    if (parameter == MXFAST) return value >= 0 && value <= MXFAST_MAX;
    return parameter >= ARENA_MAX && parameter <= KEEP && parameter != 0;
}
ALSO_AS(mallopt, strata_mallopt)
ALSO_AS_LIBC(__libc_mallopt, strata_mallopt)

/* ------------------------------------------------------------------ start and exit */

#ifndef STRATA_SIM
/*
 * Here the handlers of fork are registered at the latest, where hardly a program has a second thread: a child of a fork before that would find
 * heap.lock held by a thread that it doesn't have. The priority puts it before the constructors of a program that libstrata.a or libstrata-only.a is
 * linked into, which may start threads. The heap is built by the first allocation, as many a process makes none; where the user has set options,
 * which may be wrong, or ask for a report at exit, it is built here. On platform/sim each test builds heaps of its own.
 */
__attribute__((constructor(102))) static void prepare_at_start(void) {
    heap_fork_register();
    if (heap_has_options()) heap_init();
}
#endif

#ifndef STRATA_NO_OVERRIDE
/*
 * By what the program's functions return, not by their addresses: in a program that isn't position-independent the address of
 * malloc is that of its own jump to it.
 */
__attribute__((constructor)) static void verify_at_start(void) {
    if (!__atomic_load_n(&heap.ready, __ATOMIC_ACQUIRE) || heap.options.verify != OPTION_VERIFY_ON) return;
    static const char *const names[] = {"malloc", "calloc", "realloc"};
    union {
        void *found;
        void *(*malloc)(size_t);
        void *(*calloc)(size_t, size_t);
        void *(*realloc)(void *, size_t);
    } function;
    for (unsigned i = 0; i < ARRAY_LENGTH(names); i++) {
        function.found = dlsym(RTLD_DEFAULT, names[i]);
        if (function.found == NULL) continue; /* nobody can call it by name */
        void *p = i == 0 ? function.malloc(100) : i == 1 ? function.calloc(10, 10) : function.realloc(NULL, 100);
        if (p == NULL || heap_owns(p)) {
            bound_free(p); /* who stands in front of us may have a header of its own in front of what malloc gives */
            continue;
        }
        log_line("verify: %s of this process is not strata's: it resolves to %p, strata's is %p", names[i], function.found,
                 i == 0   ? (const void *)(uintptr_t)strata_malloc
                 : i == 1 ? (const void *)(uintptr_t)strata_calloc
                          : (const void *)(uintptr_t)strata_realloc);
        platform_exit(VERIFY_FAILED);
    }
}
#endif

__attribute__((destructor)) static void report_at_exit(void) {
    if (!__atomic_load_n(&heap.ready, __ATOMIC_ACQUIRE) || heap.options.stats == OPTION_STATS_OFF) return;
    report_function *report = heap.options.stats == OPTION_STATS_JSON ? report_json : report_table;
    int fd = -1;
    char path[OPTIONS_PATH_BYTES];
    if (heap.options.stats_file[0] != 0) {
        if (!options_path_expand(path, sizeof path, heap.options.stats_file, platform_process_id())) {
            log_line("stats_file: the path is longer than %u bytes", OPTIONS_PATH_BYTES - 1);
            return;
        }
        fd = platform_file_create(path);
        if (fd < 0) {
            log_line("stats_file: %s can't be written", path);
            return;
        }
    }
    bool whole = report_to_descriptor(report, fd >= 0 ? fd : platform_error_file()) == 0;
    if (fd < 0) return;
    platform_file_close(fd);
    if (!whole) log_line("stats_file: %s: not all of the statistics could be written", path);
}
