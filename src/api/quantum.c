/*
 * quantum.c - quantum caches (vmem, section 4.4.4) by object caches.
 *
 * A slab is a segment at a multiple of its size, and known to its cache by the marks of its integers, of which an object is as many as it has quanta.
 * Where there is no slab to be had, a request is a segment of its own, which has no mark.
 *
 * No lock of its own; lists of arenas must not be locked while caches are emptied, as their slabs go back to the arena and through it to others.
 */
#include "api/quantum.h"

#include "api/heap.h"
#include "base/check.h"

/* One size of one arena. Immutable. */
struct quantum_cache {
    struct object_cache *cache;
    struct quantum_arena *arena;
    uint64_t size;
};

/* ------------------------------------------------------------------ slabs are segments */

static bool slab_alloc(void *context, uint64_t bytes, uint64_t align, uintptr_t *start) {
    struct quantum_arena *arena = ((struct quantum_cache *)context)->arena;
    unsigned shift = arena->table.quantum_shift;
    uint64_t segment;
    if (arena_slab_alloc(&arena->arena, bytes << shift, align << shift, &segment) != ARENA_OK) return false;
    uint8_t *marks = quantum_table_add(arena, segment);
    if (marks == NULL) CHECK(arena_slab_free(&arena->arena, segment, bytes << shift) == ARENA_OK);
    *start = (uintptr_t)marks;
    return marks != NULL;
}
static void slab_free(void *context, uintptr_t start, uint64_t bytes) {
    struct quantum_arena *arena = ((struct quantum_cache *)context)->arena;
    uint64_t segment = quantum_integer(&arena->table, (const uint8_t *)start);
    quantum_table_remove(arena, segment);
    CHECK(arena_slab_free(&arena->arena, segment, bytes << arena->table.quantum_shift) == ARENA_OK);
}
static const struct slab_source segments = {.alloc = slab_alloc, .free = slab_free};

/* ------------------------------------------------------------------ the operations */

static void *create(void *ctx, struct arena *arena, uint64_t object_size, uint64_t slab_size) {
    struct quantum_arena *owner = ctx;
    struct quantum_cache *quantum = zone_metadata_alloc(&heap.zone, sizeof *quantum);
    if (quantum == NULL) return NULL;
    *quantum = (struct quantum_cache){.arena = owner, .size = object_size};
    char name[OBJECT_NAME_BYTES];
    format_text(name, sizeof name, "%s-%llu", arena->name, (unsigned long long)object_size);
    const struct object_cache_config config = {.name = name,
                                               .bytes = object_size >> arena->quantum_shift,
                                               .align = 1,
                                               .slab_bytes = slab_size >> arena->quantum_shift,
                                               .source = &segments,
                                               .source_context = quantum,
                                               .free_function = "strata_arena_free",
                                               .integers = arena->quantum};
    if (object_cache_create(&heap.objects, &config, &quantum->cache) == OBJECT_CACHE_OK) {
        owner->table.areas_at[config.bytes - 1] = quantum->cache->areas_at;
        owner->table.index[config.bytes - 1] = quantum->cache->index;
        return quantum;
    }
    zone_metadata_free(&heap.zone, quantum, sizeof *quantum);
    return NULL;
}

/* A quantum cache's slabs have it as their source's context. */
struct quantum_arena *quantum_arena_of(const struct object_cache *cache) { return ((struct quantum_cache *)cache->slabs.source_context)->arena; }
struct object_cache *quantum_cache_of(void *cache) { return ((struct quantum_cache *)cache)->cache; }

/* Of what no array and no depot has any more: its mark says that nobody has it, so it was in the hands of a thread that a fork has left behind. */
static bool give_lost(void *object, void *argument) {
    struct object_slabs *slabs = argument;
    unsigned done;
    if (__atomic_load_n((const uint8_t *)object, __ATOMIC_RELAXED) == QUANTUM_FREE) CHECK(object_slabs_free(slabs, &object, 1, &done) == OBJECTS_OK);
    return true;
}

static enum arena_status destroy(void *cache) {
    struct quantum_cache *quantum = cache;
    if (object_cache_empty(&heap.objects, quantum->cache) != 0) {
        (void)object_slabs_walk(&quantum->cache->slabs, give_lost, &quantum->cache->slabs);
        if (object_cache_empty(&heap.objects, quantum->cache) != 0) return ARENA_BUSY;
    }
    CHECK(object_cache_destroy(&heap.objects, quantum->cache) == 0);
    zone_metadata_free(&heap.zone, quantum, sizeof *quantum);
    return ARENA_OK;
}

static enum arena_status take_mark(const struct quantum_cache *quantum, uint8_t *mark, uint64_t *start) {
    if (!quantum_mark_take(mark, quantum->cache->bytes)) return quantum_alloc_twice(quantum->arena, mark);
    *start = quantum_integer(&quantum->arena->table, mark);
    return ARENA_OK;
}

/* What is there; nobody is asked, and no failure counted. */
static enum arena_status try_one(void *cache, uint64_t *start) {
    const struct quantum_cache *quantum = cache;
    struct quantum_arena *arena = quantum->arena;
    uint8_t *mark = object_cache_alloc_near(quantum->cache);
    return mark != NULL ? take_mark(quantum, mark, start) : arena_try(&arena->arena, quantum->size, arena->arena.quantum, start);
}

static enum arena_status alloc_once(const struct quantum_cache *quantum, bool sleeps, uint64_t *start) {
    struct quantum_arena *arena = quantum->arena;
    uint8_t *mark = object_cache_alloc_near(quantum->cache);
    if (STRATA_UNLIKELY(mark == NULL)) {
        /* No slab: then a segment, before other CPUs are asked for what they have. */
        if (arena_try(&arena->arena, quantum->size, arena->arena.quantum, start) == ARENA_OK) return ARENA_OK;
        if (sleeps || !arena_is_hushed(&arena->arena)) mark = object_cache_alloc_far(quantum->cache);
    }
    if (STRATA_LIKELY(mark != NULL)) return take_mark(quantum, mark, start);
    if (sleeps) return arena_urge(&arena->arena, quantum->size, start); /* it has not failed yet */
    return arena_xalloc(&arena->arena, quantum->size, 0, 0, 0, 0, 0, 0, start);
}

static bool is_lack(enum arena_status status) { return status == ARENA_NO_SPACE || status == ARENA_NO_TAGS; }

/* As a request for a segment sleeps: asks before each sleep, and only looks where the word has not moved. */
static STRATA_COLD enum arena_status alloc_asleep(struct quantum_cache *quantum, uint64_t *start) {
    struct quantum_arena *arena = quantum->arena;
    enum arena_status status;
    bool asks = true, again = false, looks = false;
    quantum_sleep_begin(arena);
    const uint32_t *word = arena_wait_begin(&arena->arena);
    for (;;) {
        uint32_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
        status = try_one(quantum, start);
        if (is_lack(status) && asks && again) status = arena_urge(&arena->arena, quantum->size, start); /* before the first sleep it was */
        if (!is_lack(status)) break;
        if (asks) {
            bool more = arena_wait_reclaim(&arena->arena, quantum->size, again);
            asks = false;
            again = true;
            if (more) continue;
        }
        if (!looks) arena_wait_count(&arena->arena);
        platform_word_wait_for(word, seen, QUANTUM_LOOK_NS);
        asks = __atomic_load_n(word, __ATOMIC_ACQUIRE) != seen;
        looks = !asks;
        if (looks) quantum_reap_around(arena);
    }
    arena_wait_end(&arena->arena);
    quantum_sleep_end(arena);
    return status;
}

static enum arena_status alloc(void *cache, unsigned flags, uint64_t *start) {
    struct quantum_cache *quantum = cache;
    if (STRATA_UNLIKELY((flags & ~(unsigned)(ARENA_FIT_MASK | ARENA_SLEEP | ARENA_FROM_TOP)) != 0 || (flags & ARENA_FIT_MASK) == ARENA_FIT_MASK))
        return ARENA_BAD_ARGUMENT;
    enum arena_status status = alloc_once(quantum, (flags & ARENA_SLEEP) != 0, start);
    if (STRATA_LIKELY(status == ARENA_OK) || (flags & ARENA_SLEEP) == 0 || !is_lack(status)) return status;
    return alloc_asleep(quantum, start);
}

STRATA_ALIGNED(64) enum arena_status quantum_alloc_flagged(struct quantum_arena *arena, uint64_t size, unsigned flags, uint64_t *start) {
    return STRATA_LIKELY(flags == ARENA_SLEEP) ? quantum_take(arena, false, size, ARENA_SLEEP, start)
                                               : arena_alloc(&arena->arena, size, flags, start);
}
STRATA_ALIGNED(64) enum arena_status quantum_alloc_flagged_scaled(struct quantum_arena *arena, uint64_t size, unsigned flags, uint64_t *start) {
    return STRATA_LIKELY(flags == ARENA_SLEEP) ? quantum_take(arena, true, size, ARENA_SLEEP, start) : arena_alloc(&arena->arena, size, flags, start);
}
enum arena_status quantum_alloc_empty(struct quantum_arena *arena, uint64_t quanta, unsigned flags, uint64_t *start) {
    quantum_look_again(&arena->table);
    return alloc(arena->arena.qcaches[quanta - 1], flags, start);
}

enum arena_status quantum_alloc_twice(const struct quantum_arena *arena, const uint8_t *mark) {
    uint64_t start = quantum_integer(&arena->table, mark);
    fatal("strata_arena_free: double free (arena = %s, start = %llu): two threads freed it at the same moment", arena->arena.name,
          (unsigned long long)start);
}

enum arena_status quantum_free_full(struct quantum_arena *arena, uint8_t *mark, uint64_t quanta) {
    const struct quantum_cache *quantum = arena->arena.qcaches[quanta - 1];
    quantum_look_again(&arena->table);
    object_cache_free_slow(quantum->cache, mark);
    quantum_tell_sleepers(arena);
    return ARENA_OK;
}

enum arena_status quantum_free_slow(struct quantum_arena *arena, uint64_t start, uint64_t size) {
    struct arena *segments_of = &arena->arena;
    if (segments_of->qcache_max == 0 || size == 0 || align_up(size, segments_of->quantum) < size) return arena_xfree(segments_of, start, size);
    uint8_t *mark = quantum_mark_find(arena, start);
    unsigned quanta = mark != NULL ? __atomic_load_n(mark, __ATOMIC_RELAXED) : QUANTUM_FREE;
    if (quanta == QUANTUM_FREE || quanta == QUANTUM_GONE) return arena_xfree(segments_of, start, size);
    if ((size - 1) >> arena->table.quantum_shift != quanta - 1) return ARENA_SIZE_MISMATCH;
    const struct quantum_cache *quantum = segments_of->qcaches[quanta - 1];
    platform_interleave();
    __atomic_store_n(mark, QUANTUM_FREE, __ATOMIC_RELAXED);
    object_cache_free(quantum->cache, mark);
    quantum_tell_sleepers(arena);
    return ARENA_OK;
}

static enum arena_status free_one(void *cache, uint64_t start) {
    const struct quantum_cache *quantum = cache;
    return quantum_free_slow(quantum->arena, start, quantum->size);
}

const struct arena_qcache_ops quantum_ops = {.create = create, .destroy = destroy, .alloc = alloc, .free = free_one, .try = try_one};
