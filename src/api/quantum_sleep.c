/*
 * quantum_sleep.c - requests that sleep in arenas with quantum caches: while there are sleepers, the arrays of these caches are shut.
 *
 * A free into an array tells nobody; so whoever sleeps has the arrays shut first (cache_shut: also what was under way has ended then, or finds them
 * shut), and then looks once more. From there on each free takes the slow path, to the slab, and quantum_freed after that. Between the two looks at
 * the arena's word every free is therefore either in a slab, where the second look finds it, or moves the word. Per-thread arrays stay open: nobody
 * but their threads could empty them once they are shut, and those may be asleep. There sleepers look again by themselves, as a reap before it
 * empties the arrays that it can; so they do where there is no fence, as behind a filter that came later.
 *
 * `sleepers` and whether the arrays are shut change under `changing`, a word that others sleep on, as arrays are shut and opened with no lock held.
 */
#include "api/heap.h"
#include "api/quantum.h"

/* In the child of a fork: nobody sleeps, but the arrays are shut still. */
#define SLEEPERS_LEFT UINT32_MAX

static void begin_change(struct quantum_table *table) {
    uint32_t nobody = 0;
    while (!__atomic_compare_exchange_n(&table->changing, &nobody, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
        platform_word_wait(&table->changing, 1);
        nobody = 0;
    }
}
static void end_change(struct quantum_table *table) {
    __atomic_store_n(&table->changing, 0, __ATOMIC_SEQ_CST);
    platform_word_wake(&table->changing);
}

static void shut_all(const struct quantum_arena *arena, bool shut) {
    if (heap.caches.thread_mode) return;
    for (unsigned i = 0; i < ARENA_QCACHES_MAX; i++) {
        if (arena->arena.qcaches[i] == NULL) continue;
        struct object_cache *cache = quantum_cache_of(arena->arena.qcaches[i]);
        if (!shut || !cache_shut(&cache->owner->layer, cache->index)) cache_open(&cache->owner->layer, cache->index);
    }
}

STRATA_COLD void quantum_sleep_begin(struct quantum_arena *arena) {
    struct quantum_table *table = &arena->table;
    begin_change(table);
    uint32_t before = table->sleepers;
    __atomic_store_n(&table->sleepers, before == SLEEPERS_LEFT ? 1 : before + 1, __ATOMIC_SEQ_CST);
    if (before == 0 || before == SLEEPERS_LEFT) shut_all(arena, true); /* who forked may have been in the middle of it */
    end_change(table);
}

static void reap_all(const struct quantum_arena *arena) {
    for (unsigned i = 0; i < ARENA_QCACHES_MAX; i++)
        if (arena->arena.qcaches[i] != NULL) object_cache_reap(&heap.objects, quantum_cache_of(arena->arena.qcaches[i]));
}

STRATA_COLD void quantum_sleep_end(struct quantum_arena *arena) {
    struct quantum_table *table = &arena->table;
    begin_change(table);
    uint32_t before = table->sleepers;
    if (before != 0 && before != SLEEPERS_LEFT) { /* else this is the child of a fork by a signal handler that ran here */
        __atomic_store_n(&table->sleepers, before - 1, __ATOMIC_SEQ_CST);
        if (before == 1) shut_all(arena, false);
    }
    end_change(table);
}

STRATA_COLD void quantum_freed(struct quantum_arena *arena) {
    struct quantum_table *table = &arena->table;
    if (__atomic_load_n(&table->sleepers, __ATOMIC_SEQ_CST) != SLEEPERS_LEFT) {
        arena_wake(&arena->arena);
        return;
    }
    begin_change(table);
    if (table->sleepers == SLEEPERS_LEFT) {
        __atomic_store_n(&table->sleepers, 0, __ATOMIC_SEQ_CST);
        shut_all(arena, false);
    }
    end_change(table);
}

/* A reap has been in vain, but what was freed between it and the shutting may have emptied a slab. */
bool quantum_wait(struct quantum_arena *arena, const uint32_t *word, uint32_t seen, bool looks) {
    bool cached = arena->arena.qcache_max != 0;
    if (cached) {
        quantum_sleep_begin(arena);
        reap_all(arena);
    }
    platform_word_wait_for(word, seen, looks ? QUANTUM_LOOK_NS : UINT64_MAX);
    if (cached) quantum_sleep_end(arena);
    return __atomic_load_n(word, __ATOMIC_ACQUIRE) != seen;
}

/* The arena at the end of a chain of sources. */
struct root {
    const struct quantum_arena *arena;
    bool imports; /* by a function of the program */
};

/* An arena is the context of those that import from it, and its own where it imports by a function. The lists' lock guards that. */
static struct root root_of(const struct quantum_arena *arena) {
    platform_lock_acquire(&heap.arenas.lock);
    while (arena->arena.source != NULL && arena->arena.source_ctx != arena) arena = arena->arena.source_ctx;
    const struct root root = {arena, arena->arena.source != NULL};
    platform_lock_release(&heap.arenas.lock);
    return root;
}

/* What lies in slabs of the zone is memory. */
static bool has_source(const struct object_cache *cache) { return cache->slabs.source != &slab_source_zone; }

/*
 * Whether a cache, which is pinned, may hold what arenas of this root lack: a quantum cache that has its integers from there, by a function of the
 * program perhaps; one whose slabs such a function has from anywhere.
 */
static bool may_hold(const struct object_cache *cache, const void *argument) {
    const struct root *root = argument;
    if (cache->integers == 0) return true;
    const struct root other = root_of(quantum_arena_of(cache));
    return other.arena == root->arena || other.imports || root->imports;
}

/* Objects that stay constructed may hold integers of any arena: for their sake all caches are emptied so often, however many sleepers look. */
#define EMPTY_ALL_MS 1000

static uint32_t now_ms(void) { return (uint32_t)(platform_now_ns() / 1000000); }

void quantum_reap_all(void) {
    __atomic_store_n(&heap.arenas.emptied_ms, now_ms(), __ATOMIC_RELAXED);
    object_caches_reap(&heap.objects);
}

void quantum_reap_around(const struct quantum_arena *arena) {
    uint32_t now = now_ms(), seen = __atomic_load_n(&heap.arenas.emptied_ms, __ATOMIC_RELAXED);
    if (now - seen >= EMPTY_ALL_MS && __atomic_compare_exchange_n(&heap.arenas.emptied_ms, &seen, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        object_caches_reap(&heap.objects);
        return;
    }
    const struct root root = root_of(arena);
    object_caches_reap_some(&heap.objects, has_source, may_hold, &root);
}

/* ------------------------------------------------------------------ who asks nobody */

STRATA_SELDOM bool quantum_hush_begin(bool quiet) {
    bool before = quantum_met.hushed;
    if (quiet) quantum_met.hushed = true;
    return before;
}
STRATA_SELDOM void quantum_hush_end(bool before) { quantum_met.hushed = before; }
STRATA_SELDOM bool quantum_is_hushed(void *unused) {
    (void)unused;
    return quantum_met.hushed;
}

/* ------------------------------------------------------------------ fork */

void quantum_sleep_fork_child(struct quantum_arena *arena) {
    if (arena->table.sleepers != 0 || arena->table.changing != 0) arena->table.sleepers = SLEEPERS_LEFT;
    arena->table.changing = 0;
}
