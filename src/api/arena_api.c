/*
 * arena_api.c - the arenas of programs (strata/arena.h): each an arena of arena/ with what that leaves to its composer.
 *
 *   - Memory: each arena's own structure, its boundary tags and hash tables are runs of unmovable pages of the zone, blocks where they are larger
 *     than a superpage. All go back to the zone when they are free, and so to the system. The pages bear no tag: free() of such a pointer is
 *     misuse like any other.
 *   - Sleep: a wait on the word that arena/ moves. A request never sleeps inside another arena that it imports from, since what is freed in its
 *     own would not wake it there. Instead every arena tells those that import from it, directly or through others, when it has gained space.
 *   - The list of all arenas, in the order of their creation, for fork, statistics and checks.
 *
 * Invariants: an arena is on the list from create to destroy; it is in the tree of importers under its source from set_source to destroy. Locks:
 * heap.arenas.lock (LOCK_RANK_ARENAS) for the list, the tree, and what set_reclaim sets. It is held while locks of arenas are taken, and never while
 * a function of the program runs.
 */
#include <strata/arena.h>

#include "api/heap.h"
#include "api/quantum.h"
#include "base/check.h"

struct strata_arena {
    struct quantum_arena core; /* has its own locks */

    /* Guarded by the list's lock. */
    struct strata_arena *next, *previous;                   /* by creation */
    struct strata_arena *source;                            /* written once; NULL: none that is an arena */
    struct strata_arena *importers;                         /* the first; read without the lock by appeared() */
    struct strata_arena *next_importer, *previous_importer; /* of the same source */
    strata_arena_reclaim *reclaim;
    void *reclaim_context;

    /* Immutable once there are allocations. */
    strata_arena_import_alloc *import_alloc;
    strata_arena_import_release *import_release;
    void *import_context;
};

_Static_assert(sizeof(struct strata_arena) <= ARENA_BATCH_BYTES, "memory is handed out in such pieces");
/* Statuses, flags and kinds pass through as they are. */
#define SAME(name) _Static_assert((int)STRATA_ARENA_##name == (int)ARENA_##name, "as in arena/")
SAME(OK);
SAME(NO_SPACE);
_Static_assert((int)STRATA_ARENA_NO_MEMORY == (int)ARENA_NO_TAGS, "as in arena/");
SAME(BAD_ARGUMENT);
SAME(BAD_RANGE);
SAME(OVERLAP);
SAME(NOT_ALLOCATED);
SAME(SIZE_MISMATCH);
SAME(BAD_SOURCE);
SAME(BUSY);
SAME(INSTANT_FIT);
SAME(BEST_FIT);
SAME(NEXT_FIT);
SAME(SLEEP);
SAME(FROM_TOP);
SAME(ALLOCATED);
SAME(FREE);
SAME(SPAN);
_Static_assert(sizeof((struct strata_arena_stats *)0)->name == ARENA_NAME_BYTES, "as in arena/");
_Static_assert(STRATA_ARENA_QUANTUM_CACHES_MAX == ARENA_QCACHES_MAX, "as in arena/");

static enum strata_arena_status public_status(enum arena_status status) { return (enum strata_arena_status)status; }

STRATA_EXPORT const char *strata_arena_status_text(enum strata_arena_status status) {
    return status == STRATA_ARENA_NO_MEMORY ? "no memory to keep books in" : arena_status_text((enum arena_status)status);
}

/* An arena that is none, or was destroyed: its memory is the zone's, or what the zone has made of it. */
STRATA_INLINE bool is_arena(const struct strata_arena *arena) {
    return arena != NULL && (arena->core.table.alive == QUANTUM_ALIVE || arena->core.table.alive == QUANTUM_ALIVE_SCALED);
}

static void lock_list(void) { platform_lock_acquire(&heap.arenas.lock); }
static void unlock_list(void) { platform_lock_release(&heap.arenas.lock); }

/* ------------------------------------------------------------------ what an arena asks of its composer */

static void *memory_try(size_t bytes) {
    struct zone_run run;
    if (bytes > SUPERPAGE_BYTES) return zone_block_alloc(&heap.zone, bytes, ARENA_BATCH_BYTES, NULL);
    return zone_run_alloc(&heap.zone, (unsigned)(bytes >> GRANULE_SHIFT), 1, MOBILITY_UNMOVABLE, &run) ? run.address : NULL;
}

static void *memory_get(void *ctx, size_t bytes) {
    (void)ctx;
    void *memory = memory_try(bytes);
    if (memory == NULL && heap_release(0) != 0) memory = memory_try(bytes);
    return memory;
}

static void memory_put(void *ctx, void *memory, size_t bytes) {
    (void)ctx;
    if (bytes > SUPERPAGE_BYTES) {
        CHECK(zone_block_free(&heap.zone, memory));
        return;
    }
    /* A run is whole pages of the system. */
    zone_run_free(&heap.zone, memory, (unsigned)align_up(bytes >> GRANULE_SHIFT, heap.zone.page_granules));
}

/* Caches hold what was freed: quantum caches integers of their arena, other caches what their source gave them, whose arena may be this one. */
static bool caches_exist(void) { return __atomic_load_n(&heap.objects.layers, __ATOMIC_ACQUIRE) != NULL; }

/* All caches are emptied once for a request: what their objects hold goes back then, too. */
static bool reclaim(void *ctx, uint64_t size, bool again) {
    struct strata_arena *arena = ctx;
    lock_list();
    strata_arena_reclaim *function = arena->reclaim;
    void *context = arena->reclaim_context;
    unlock_list();
    bool more = function != NULL && function(context, arena, size) != 0;
    if (!caches_exist()) return more;
    if (again)
        quantum_reap_around(&arena->core);
    else
        quantum_reap_all();
    return true;
}

static bool wait_for_change(void *ctx, const uint32_t *word, uint32_t seen) {
    struct strata_arena *arena = ctx;
    if (!quantum_wait(&arena->core, word, seen, caches_exist())) quantum_reap_around(&arena->core);
    return true;
}

static void wake(void *ctx, const uint32_t *word) {
    (void)ctx;
    platform_word_wake(word);
}

/* The one that follows `arena` in the tree below `root`, a source before those that import from it; NULL: that was the last. */
static struct strata_arena *next_below(const struct strata_arena *root, struct strata_arena *arena) {
    if (arena->importers != NULL) return arena->importers;
    while (arena != root && arena->next_importer == NULL) arena = arena->source;
    return arena != root ? arena->next_importer : NULL;
}

/*
 * Whoever sleeps below is to ask again. An importer that isn't seen here without the lock has not asked yet when this arena's lock was
 * dropped, or it would have been linked before: it will find what appeared.
 */
static void appeared(void *ctx) {
    struct strata_arena *root = ctx;
    if (STRATA_LIKELY(__atomic_load_n(&root->importers, __ATOMIC_RELAXED) == NULL)) return;
    lock_list();
    for (struct strata_arena *arena = root; (arena = next_below(root, arena)) != NULL;) arena_wake(&arena->core.arena);
    unlock_list();
}

static const struct arena_ops ops = {
    .memory_get = memory_get,
    .memory_put = memory_put,
    .reclaim = reclaim,
    .is_hushed = quantum_is_hushed,
    .wait = wait_for_change,
    .wake = wake,
    .appeared = appeared,
};

/* ------------------------------------------------------------------ life */

static void list_arena(struct strata_arena *arena) {
    struct arenas *list = &heap.arenas;
    lock_list();
    arena->previous = list->last;
    if (list->last != NULL)
        list->last->next = arena;
    else
        list->first = arena;
    list->last = arena;
    unlock_list();
}

static void unlist_arena(struct strata_arena *arena) {
    struct arenas *list = &heap.arenas;
    if (arena->next != NULL)
        arena->next->previous = arena->previous;
    else
        list->last = arena->previous;
    if (arena->previous != NULL)
        arena->previous->next = arena->next;
    else
        list->first = arena->next;
    if (arena->source == NULL) return;
    struct strata_arena *after = arena->next_importer, *before = arena->previous_importer;
    if (after != NULL) after->previous_importer = before;
    __atomic_store_n(before != NULL ? &before->next_importer : &arena->source->importers, after, __ATOMIC_RELAXED);
}

STRATA_EXPORT enum strata_arena_status strata_arena_create(const char *name, uint64_t base, uint64_t size, uint64_t quantum, unsigned flags,
                                                           struct strata_arena **arena) {
    if (name == NULL || arena == NULL) return STRATA_ARENA_BAD_ARGUMENT;
    struct strata_arena *created = heap_init() ? memory_get(NULL, ARENA_BATCH_BYTES) : NULL;
    if (created == NULL) return STRATA_ARENA_NO_MEMORY;
    __builtin_memset(created, 0, sizeof *created);
    enum arena_status status = arena_init(&created->core.arena, name, quantum, &ops, created, flags);
    if (status == ARENA_OK) quantum_init(&created->core);
    if (status == ARENA_OK && size != 0) status = arena_add(&created->core.arena, base, size);
    if (status != ARENA_OK) {
        memory_put(NULL, created, ARENA_BATCH_BYTES);
        return public_status(status);
    }
    list_arena(created);
    *arena = created;
    return STRATA_ARENA_OK;
}

STRATA_EXPORT enum strata_arena_status strata_arena_destroy(struct strata_arena *arena) {
    if (!is_arena(arena)) return STRATA_ARENA_BAD_ARGUMENT;
    if (arena->core.arena.qcache_max != 0) {
        /*
         * Not under the lock: slabs go back to the arena, and through it to those that it imports from; who is about to give some back is waited for.
         * First of all, whether there is any use.
         */
        lock_list();
        bool busy = arena->importers != NULL || arena_in_use(&arena->core.arena);
        unlock_list();
        if (busy) return STRATA_ARENA_BUSY;
        arena->core.table.max = 0; /* also where some are in use: those before them are gone, and arena/ knows which */
        if (arena_drop_quantum_caches(&arena->core.arena) != ARENA_OK) return STRATA_ARENA_BUSY;
        quantum_table_drop(&arena->core);
    }
    lock_list(); /* throughout: a fork must find the arena whole, or gone */
    enum arena_status status = arena->importers != NULL ? ARENA_BUSY : arena_destroy(&arena->core.arena);
    if (status == ARENA_OK) unlist_arena(arena);
    unlock_list();
    if (status == ARENA_OK) {
        arena->core.table.alive = 0;
        memory_put(NULL, arena, ARENA_BATCH_BYTES);
    }
    return public_status(status);
}

/* ------------------------------------------------------------------ spans and segments */

STRATA_EXPORT enum strata_arena_status strata_arena_add(struct strata_arena *arena, uint64_t base, uint64_t size) {
    return is_arena(arena) ? public_status(arena_add(&arena->core.arena, base, size)) : STRATA_ARENA_BAD_ARGUMENT;
}

STRATA_EXPORT enum strata_arena_status strata_arena_remove(struct strata_arena *arena, uint64_t base, uint64_t size) {
    return is_arena(arena) ? public_status(arena_remove(&arena->core.arena, base, size)) : STRATA_ARENA_BAD_ARGUMENT;
}

/* At the beginning of a line: where requests through quantum caches begin elsewhere, they can take a tenth longer. */
STRATA_EXPORT STRATA_ALIGNED(64) enum strata_arena_status
    strata_arena_alloc(struct strata_arena *arena, uint64_t size, unsigned flags, uint64_t *start) {
    if (STRATA_UNLIKELY(arena == NULL || start == NULL)) return STRATA_ARENA_BAD_ARGUMENT;
    if (STRATA_LIKELY(arena->core.table.alive == QUANTUM_ALIVE)) return public_status(quantum_alloc(&arena->core, false, size, flags, start));
    if (STRATA_UNLIKELY(arena->core.table.alive != QUANTUM_ALIVE_SCALED)) return STRATA_ARENA_BAD_ARGUMENT;
    return public_status(quantum_alloc(&arena->core, true, size, flags, start));
}

STRATA_EXPORT STRATA_ALIGNED(64) enum strata_arena_status strata_arena_free(struct strata_arena *arena, uint64_t start, uint64_t size) {
    if (STRATA_UNLIKELY(arena == NULL)) return STRATA_ARENA_BAD_ARGUMENT;
    if (STRATA_LIKELY(arena->core.table.alive == QUANTUM_ALIVE)) return public_status(quantum_free(&arena->core, false, start, size));
    if (STRATA_UNLIKELY(arena->core.table.alive != QUANTUM_ALIVE_SCALED)) return STRATA_ARENA_BAD_ARGUMENT;
    return public_status(quantum_free(&arena->core, true, start, size));
}

STRATA_EXPORT enum strata_arena_status strata_arena_xalloc(struct strata_arena *arena, uint64_t size, uint64_t align, uint64_t phase,
                                                           uint64_t nocross, uint64_t min, uint64_t max, unsigned flags, uint64_t *start) {
    if (!is_arena(arena) || start == NULL) return STRATA_ARENA_BAD_ARGUMENT;
    return public_status(arena_xalloc(&arena->core.arena, size, align, phase, nocross, min, max, flags, start));
}

STRATA_EXPORT enum strata_arena_status strata_arena_xfree(struct strata_arena *arena, uint64_t start, uint64_t size) {
    return is_arena(arena) ? public_status(arena_xfree(&arena->core.arena, start, size)) : STRATA_ARENA_BAD_ARGUMENT;
}

STRATA_EXPORT enum strata_arena_status strata_arena_resize(struct strata_arena *arena, uint64_t start, uint64_t old_size, uint64_t new_size) {
    return is_arena(arena) ? public_status(arena_resize(&arena->core.arena, start, old_size, new_size)) : STRATA_ARENA_BAD_ARGUMENT;
}

/* ------------------------------------------------------------------ importing */

static enum arena_status alloc_from_arena(void *source, uint64_t size, unsigned flags, uint64_t *start, uint64_t *got) {
    struct strata_arena *arena = source;
    enum arena_status status = arena_lend(&arena->core.arena, size, flags & ~(unsigned)ARENA_SLEEP, start);
    if (status == ARENA_OK) *got = align_up(size, arena->core.arena.quantum); /* does not wrap, or there would have been no such segment */
    return status;
}

static void release_to_arena(void *source, uint64_t start, uint64_t size) {
    struct strata_arena *arena = source;
    CHECK(arena_take_back(&arena->core.arena, start, size) == ARENA_OK);
}

static enum arena_status alloc_by_program(void *importer, uint64_t size, unsigned flags, uint64_t *start, uint64_t *got) {
    const struct strata_arena *arena = importer;
    bool before = quantum_hush_begin((flags & ARENA_QUIET) != 0);
    enum strata_arena_status status = arena->import_alloc(arena->import_context, size, flags & ARENA_SLEEP, start, got);
    quantum_hush_end(before);
    return status == STRATA_ARENA_OK ? ARENA_OK : ARENA_NO_SPACE;
}

static void release_by_program(void *importer, uint64_t start, uint64_t size) {
    const struct strata_arena *arena = importer;
    arena->import_release(arena->import_context, start, size);
}

static const struct arena_source from_arena = {alloc_from_arena, release_to_arena};
static const struct arena_source from_program = {alloc_by_program, release_by_program};
static const struct arena_source from_program_for_good = {alloc_by_program, NULL};

/* Whether it is too late for a source. */
static bool has_begun(struct strata_arena *arena) {
    struct arena_stats stats;
    arena_stats_get(&arena->core.arena, &stats);
    return arena->core.arena.source != NULL || stats.counters.allocs != 0;
}

static bool imports_from(const struct strata_arena *arena, const struct strata_arena *source) {
    while (arena != NULL && arena != source) arena = arena->source;
    return arena != NULL;
}

STRATA_EXPORT enum strata_arena_status strata_arena_set_source(struct strata_arena *arena, struct strata_arena *source) {
    enum strata_arena_status status = STRATA_ARENA_OK;
    /* Quanta are powers of two: the larger is a multiple of the smaller. */
    if (!is_arena(arena) || !is_arena(source) || source->core.arena.quantum < arena->core.arena.quantum) return STRATA_ARENA_BAD_ARGUMENT;
    lock_list();
    if (imports_from(source, arena)) {
        status = STRATA_ARENA_BAD_ARGUMENT;
    } else if (has_begun(arena)) {
        status = STRATA_ARENA_BUSY;
    } else {
        arena_set_source(&arena->core.arena, &from_arena, source);
        arena_set_source_unit(&arena->core.arena, source->core.arena.quantum);
        arena->source = source;
        arena->next_importer = source->importers;
        if (source->importers != NULL) source->importers->previous_importer = arena;
        __atomic_store_n(&source->importers, arena, __ATOMIC_RELAXED);
    }
    unlock_list();
    return status;
}

STRATA_EXPORT enum strata_arena_status strata_arena_set_import(struct strata_arena *arena, strata_arena_import_alloc *alloc,
                                                               strata_arena_import_release *release, void *context) {
    enum strata_arena_status status = STRATA_ARENA_BUSY;
    if (!is_arena(arena) || alloc == NULL) return STRATA_ARENA_BAD_ARGUMENT;
    lock_list();
    if (!has_begun(arena)) {
        arena->import_alloc = alloc;
        arena->import_release = release;
        arena->import_context = context;
        arena_set_source(&arena->core.arena, release != NULL ? &from_program : &from_program_for_good, arena);
        status = STRATA_ARENA_OK;
    }
    unlock_list();
    return status;
}

STRATA_EXPORT enum strata_arena_status strata_arena_set_quantum_caches(struct strata_arena *arena, uint64_t largest) {
    if (!is_arena(arena)) return STRATA_ARENA_BAD_ARGUMENT;
    struct arena_stats stats;
    arena_stats_get(&arena->core.arena, &stats);
    if (stats.counters.allocs != 0) return STRATA_ARENA_BUSY;
    /* Whether `largest` can be is looked at below, before there are slabs: until then it only decides how long a shift is. */
    if (arena->core.arena.qcache_max != 0 || largest == 0 || largest > UINT64_MAX / 8) return STRATA_ARENA_BAD_ARGUMENT;
    if (!quantum_table_start(&arena->core, arena_quantum_slab_size(largest))) return STRATA_ARENA_NO_MEMORY;
    enum arena_status status = arena_set_quantum_caches(&arena->core.arena, &quantum_ops, &arena->core, largest);
    if (status == ARENA_OK)
        arena->core.table.max = largest;
    else
        quantum_table_drop(&arena->core);
    return status == ARENA_NO_SPACE ? STRATA_ARENA_NO_MEMORY : public_status(status);
}

STRATA_EXPORT enum strata_arena_status strata_arena_set_limit(struct strata_arena *arena, uint64_t limit) {
    if (!is_arena(arena)) return STRATA_ARENA_BAD_ARGUMENT;
    arena_set_limit(&arena->core.arena, limit);
    return STRATA_ARENA_OK;
}

STRATA_EXPORT enum strata_arena_status strata_arena_set_reclaim(struct strata_arena *arena, strata_arena_reclaim *function, void *context) {
    if (!is_arena(arena)) return STRATA_ARENA_BAD_ARGUMENT;
    lock_list();
    arena->reclaim = function;
    arena->reclaim_context = context;
    unlock_list();
    return STRATA_ARENA_OK;
}

STRATA_EXPORT enum strata_arena_status strata_arena_wake(struct strata_arena *arena) {
    if (!is_arena(arena)) return STRATA_ARENA_BAD_ARGUMENT;
    arena_wake(&arena->core.arena);
    appeared(arena);
    return STRATA_ARENA_OK;
}

/* ------------------------------------------------------------------ looking inside */

#define KINDS (STRATA_ARENA_ALLOCATED | STRATA_ARENA_FREE | STRATA_ARENA_SPAN)
static bool are_kinds(unsigned kinds) { return kinds != 0 && (kinds & ~(unsigned)KINDS) == 0; }

struct visitor {
    strata_arena_visit *visit;
    void *context;
};

static bool visit_segment(const struct arena_segment *segment, void *argument) {
    const struct visitor *visitor = argument;
    return visitor->visit(&(struct strata_arena_segment){segment->start, segment->size, segment->kind}, visitor->context) != 0;
}

STRATA_EXPORT enum strata_arena_status strata_arena_walk(struct strata_arena *arena, unsigned kinds, strata_arena_visit *visit, void *context) {
    struct visitor visitor = {visit, context};
    if (!is_arena(arena) || visit == NULL || !are_kinds(kinds)) return STRATA_ARENA_BAD_ARGUMENT;
    arena_walk(&arena->core.arena, kinds, visit_segment, &visitor);
    return STRATA_ARENA_OK;
}

STRATA_EXPORT enum strata_arena_status strata_arena_size(struct strata_arena *arena, unsigned kinds, uint64_t *size) {
    if (!is_arena(arena) || size == NULL || !are_kinds(kinds)) return STRATA_ARENA_BAD_ARGUMENT;
    *size = arena_size(&arena->core.arena, (kinds & STRATA_ARENA_SPAN) != 0 ? ARENA_ALLOCATED | ARENA_FREE : kinds);
    return STRATA_ARENA_OK;
}

STRATA_EXPORT enum strata_arena_status strata_arena_lookup(struct strata_arena *arena, uint64_t start, uint64_t *size) {
    if (!is_arena(arena) || size == NULL) return STRATA_ARENA_BAD_ARGUMENT;
    return public_status(arena_lookup(&arena->core.arena, start, size));
}

STRATA_EXPORT int strata_arena_contains(struct strata_arena *arena, uint64_t start, uint64_t size) {
    return is_arena(arena) && arena_contains(&arena->core.arena, start, size) ? 1 : 0;
}

STRATA_EXPORT enum strata_arena_status strata_arena_stats_get(struct strata_arena *arena, struct strata_arena_stats *stats) {
    if (!is_arena(arena) || stats == NULL) return STRATA_ARENA_BAD_ARGUMENT;
    struct arena_stats inner;
    arena_stats_get(&arena->core.arena, &inner);
    __builtin_memset(stats, 0, sizeof *stats);
    __builtin_memcpy(stats->name, arena->core.arena.name, sizeof stats->name);
    stats->quantum = inner.quantum;
    stats->total = inner.total;
    stats->allocated = inner.allocated;
    stats->free = inner.free;
    stats->imported = inner.imported;
    stats->limit = inner.limit;
    stats->spans = inner.spans;
    stats->segments_allocated = inner.segments_allocated;
    stats->segments_free = inner.segments_free;
    stats->metadata_bytes = ARENA_BATCH_BYTES + inner.memory_bytes;
    stats->waiters = inner.waiters;
    stats->allocs = inner.counters.allocs;
    stats->frees = inner.counters.frees;
    stats->resizes = inner.counters.resizes;
    stats->failures = inner.counters.failures;
    stats->imports = inner.counters.imports;
    stats->releases = inner.counters.releases;
    stats->waits = inner.counters.waits;
    return STRATA_ARENA_OK;
}

STRATA_EXPORT const char *strata_arena_check(struct strata_arena *arena) { return is_arena(arena) ? arena_check(&arena->core.arena) : NULL; }

/* ------------------------------------------------------------------ all arenas */

void arenas_for_each(void (*visit)(const struct strata_arena_stats *stats, void *argument), void *argument) {
    struct strata_arena_stats stats;
    lock_list();
    for (struct strata_arena *arena = heap.arenas.first; arena != NULL; arena = arena->next) {
        (void)strata_arena_stats_get(arena, &stats);
        visit(&stats, argument);
    }
    unlock_list();
}

const char *arenas_check(void) {
    const char *broken = NULL;
    lock_list();
    for (struct strata_arena *arena = heap.arenas.first; arena != NULL && broken == NULL; arena = arena->next)
        broken = arena_check(&arena->core.arena);
    unlock_list();
    return broken;
}

void arenas_fork_prepare_quanta(void) {
    for (struct strata_arena *arena = heap.arenas.first; arena != NULL; arena = arena->next) platform_lock_hold(&arena->core.table.lock);
}

void arenas_fork_prepare(void) {
    for (struct strata_arena *arena = heap.arenas.first; arena != NULL; arena = arena->next) arena_fork_prepare(&arena->core.arena);
}

void arenas_fork_parent(void) {
    for (struct strata_arena *arena = heap.arenas.last; arena != NULL; arena = arena->previous) {
        arena_fork_parent(&arena->core.arena);
        platform_lock_unhold(&arena->core.table.lock);
    }
}

void arenas_fork_child(void) {
    for (struct strata_arena *arena = heap.arenas.last; arena != NULL; arena = arena->previous) {
        quantum_sleep_fork_child(&arena->core);
        arena_fork_child(&arena->core.arena);
        platform_lock_unhold(&arena->core.table.lock);
    }
}
