/*
 * arena.c - requests: from a caller's arguments to a segment and back, with all that may happen in between: quantum caches, tags,
 * import, reclaim, sleep. See arena.h for the contract, arena_internal.h for who does what.
 *
 * A request holds the lock while it looks and cuts, and drops it to call out; after each such gap it looks again, since others
 * may have freed or taken meanwhile. Space that it imported it takes without a gap, so nobody can snatch it.
 *
 * Invariant: `generation` moves under the lock whenever free space appears, and once more when a span has arrived at the source. A sleeper
 * compares it with what it read in the hold of the lock in which its first search failed, before it asked the source; so it misses
 * nothing that came here, or to the source and was announced by arena_wake, since then. Lock rank: the arena's lock, LOCK_RANK_ARENA.
 */
#include "arena/arena_internal.h"

/* With a source to turn to, a search among segments that may be too small gives up after so many, to stay constant-time. */
#define SEARCH_BEFORE_IMPORT 64

static const struct arena_ops no_ops;

enum arena_status arena_init(struct arena *arena, const char *name, uint64_t quantum, const struct arena_ops *ops, void *ctx, unsigned flags) {
    if (!is_power_of_two(quantum) || flags > ARENA_NEXT_FIT) return ARENA_BAD_ARGUMENT;
    *arena = (struct arena){.lock = PLATFORM_LOCK_INIT(LOCK_RANK_ARENA),
                            .quantum = quantum,
                            .quantum_shift = bit_lowest(quantum),
                            .limit = UINT64_MAX,
                            .fit = flags,
                            .ops = ops != NULL ? ops : &no_ops,
                            .ctx = ctx};
    format_text(arena->name, sizeof arena->name, "%s", name);
    list_init(&arena->segments);
    for (size_t i = 0; i < ARENA_LISTS; i++) list_init(&arena->lists[i]);
    arena->rotor = &arena->segments;
    arena_tags_init(arena);
    arena_hash_init(arena);
    return ARENA_OK;
}

void arena_set_source(struct arena *arena, const struct arena_source *source, void *source_ctx) {
    arena->source = source;
    arena->source_ctx = source_ctx;
}
STRATA_SELDOM void arena_set_source_unit(struct arena *arena, uint64_t unit) { arena->source_shift = (uint8_t)bit_lowest(unit); }

STRATA_SELDOM void arena_set_limit(struct arena *arena, uint64_t limit) {
    platform_lock_acquire(&arena->lock);
    bool rises = limit > arena->limit;
    arena->limit = limit;
    arena_leave(arena, rises, NULL);
}

STRATA_SELDOM void arena_wake(struct arena *arena) {
    platform_lock_acquire(&arena->lock);
    bool wake = arena_announce(arena);
    platform_lock_release(&arena->lock);
    if (wake) arena->ops->wake(arena->ctx, &arena->generation);
}

const uint32_t *arena_wait_begin(struct arena *arena) {
    platform_lock_acquire(&arena->lock);
    arena->waiters++;
    platform_lock_release(&arena->lock);
    return &arena->generation;
}
bool arena_wait_reclaim(struct arena *arena, uint64_t size, bool again) {
    return arena->ops->reclaim != NULL && arena->ops->reclaim(arena->ctx, size, again);
}
void arena_wait_count(struct arena *arena) {
    platform_lock_acquire(&arena->lock);
    arena->counters.waits++;
    platform_lock_release(&arena->lock);
}
void arena_wait_end(struct arena *arena) {
    platform_lock_acquire(&arena->lock);
    if (arena->waiters != 0) arena->waiters--; /* 0 in the child of a fork by a signal handler that ran here */
    platform_lock_release(&arena->lock);
}

uint64_t arena_quantum_slab_size(uint64_t qcache_max) { return (uint64_t)2 << bit_highest(3 * qcache_max); }

STRATA_COLD enum arena_status arena_drop_quantum_caches(struct arena *arena) {
    for (size_t i = 0; i < ARENA_QCACHES_MAX; i++) {
        if (arena->qcaches[i] == NULL) continue;
        enum arena_status status = arena->qcache_ops->destroy(arena->qcaches[i]);
        if (status != ARENA_OK) return status;
        arena->qcaches[i] = NULL; /* this size is served from the segment list from now on */
    }
    arena->qcache_max = 0;
    return ARENA_OK;
}

STRATA_COLD enum arena_status arena_set_quantum_caches(struct arena *arena, const struct arena_qcache_ops *ops, void *ctx, uint64_t qcache_max) {
    uint64_t n = qcache_max >> arena->quantum_shift;
    if (ops == NULL || arena->qcache_max != 0 || n == 0 || n > ARENA_QCACHES_MAX) return ARENA_BAD_ARGUMENT;
    /* The slab size is up to eight times qcache_max and must not wrap. */
    if ((qcache_max & (arena->quantum - 1)) != 0 || qcache_max > UINT64_MAX / 8) return ARENA_BAD_ARGUMENT;
    arena->qcache_ops = ops;
    for (uint64_t i = 0; i < n; i++) {
        arena->qcaches[i] = ops->create(ctx, arena, (i + 1) << arena->quantum_shift, arena_quantum_slab_size(qcache_max));
        if (arena->qcaches[i] != NULL) continue;
        CHECK(arena_drop_quantum_caches(arena) == ARENA_OK);
        return ARENA_NO_SPACE;
    }
    arena->qcache_max = qcache_max;
    return ARENA_OK;
}

STRATA_COLD enum arena_status arena_destroy(struct arena *arena) {
    enum arena_status status = arena_drop_quantum_caches(arena);
    if (status != ARENA_OK) return status;
    if (arena->segments_allocated != 0) return ARENA_BUSY;
    /* Nothing is allocated, so imported spans that can go back have done so already; what is left are tags of our own. */
    while (!list_empty(&arena->segments)) {
        struct arena_tag *tag = tag_of(arena->segments.next);
        list_remove(&tag->segment);
        arena_tag_put(arena, tag);
    }
    arena_hash_destroy(arena);
    arena_tags_destroy(arena);
    (void)arena_init(arena, "", arena->quantum, NULL, NULL, ARENA_INSTANT_FIT);
    return ARENA_OK;
}

/* Sets up a new hash table in place of one that has become too small or too large. Called with no lock held. */
static void change_table(struct arena *arena, uint64_t count) {
    struct arena_tag **buckets = arena->boot_buckets;
    if (count != ARENA_BOOT_BUCKETS) buckets = arena->ops->memory_get(arena->ctx, count * sizeof *buckets);
    platform_lock_acquire(&arena->lock);
    if (buckets != NULL)
        arena_hash_install(arena, buckets, count);
    else
        arena->hash_retry = arena->segments_allocated + arena->segments_allocated / 4 + 1; /* longer chains until then */
    arena->hash_busy = false;
    platform_lock_release(&arena->lock);
}

bool arena_announce(struct arena *arena) {
    __atomic_store_n(&arena->generation, arena->generation + 1, __ATOMIC_RELEASE);
    return arena->waiters != 0 && arena->ops->wake != NULL;
}

void arena_leave(struct arena *arena, bool appeared, const struct arena_release *release) {
    void *batches[TAGS_SURPLUS_MAX];
    struct arena_hash tables[TABLES_RETIRED_MAX];
    unsigned batch_count = arena_tags_surplus(arena, batches), table_count = arena_hash_retire(arena, tables);
    uint64_t wanted = arena_hash_wanted(arena);
    if (wanted != 0) arena->hash_busy = true;
    bool wake = appeared && arena_announce(arena);
    platform_lock_release(&arena->lock);

    if (STRATA_UNLIKELY(release != NULL && release->due)) {
        arena->source->release(arena->source_ctx, release->start, release->size);
        /* A request may have asked the source between the two, in vain, and know the first announcement already. */
        platform_lock_acquire(&arena->lock);
        wake = arena_announce(arena);
        platform_lock_release(&arena->lock);
    }
    for (unsigned i = 0; i < batch_count; i++) arena->ops->memory_put(arena->ctx, batches[i], ARENA_BATCH_BYTES);
    for (unsigned i = 0; i < table_count; i++) arena_hash_put(arena, tables[i]);
    if (STRATA_UNLIKELY(wanted != 0)) change_table(arena, wanted);
    if (STRATA_UNLIKELY(wake)) arena->ops->wake(arena->ctx, &arena->generation);
    if (STRATA_UNLIKELY(appeared && arena->ops->appeared != NULL)) arena->ops->appeared(arena->ctx);
}

/* From what is here. `seen` is the generation in which the search took place. May drop the lock between search and search. */
static enum arena_status take(struct arena *arena, const struct arena_request *request, uint64_t limit, uint64_t *start, uint32_t *seen) {
    for (;;) {
        *seen = arena->generation;
        struct arena_tag *tag = arena_fit_choose(arena, request, limit, start);
        if (tag == NULL) return ARENA_NO_SPACE;
        unsigned cuts = arena_segment_cuts(tag, *start, request->size);
        if (cuts <= arena_tags_free(arena)) {
            arena_segment_carve(arena, tag, *start, request->size);
            return ARENA_OK;
        }
        if (!arena_tags_secure(arena, cuts)) return ARENA_NO_TAGS;
    }
}

STRATA_SELDOM static enum arena_status take_imported(struct arena *arena, struct arena_request *request, uint64_t *start, uint32_t *seen) {
    struct arena_tag *tag = NULL;
    enum arena_status status = arena_span_import(arena, request, &tag, seen);
    if (status != ARENA_OK) return status;
    CHECK(arena_fit_place(tag, request, 0, start));
    arena_segment_carve(arena, tag, *start, request->size);
    return ARENA_OK;
}

/* Next fit goes on behind what it has just allocated. */
static void move_rotor(struct arena *arena, const struct arena_request *request, uint64_t start) {
    struct arena_tag *tag = arena_hash_find(arena, start);
    arena->rotor = &tag->segment;
    arena->rotor_start = start + request->size; /* 0 past 2^64: from the bottom */
    if (arena->rotor_start == 0) arena->rotor = &arena->segments;
}

static STRATA_COLD void note_holder(struct arena *arena, const struct arena_request *request, uint64_t start) {
    arena_hash_find(arena, start)->holder = (uint8_t)request->holder;
    if (request->holder == ARENA_HOLDER_CACHE) arena->slabs += request->size;
}

STRATA_SELDOM bool arena_is_hushed(struct arena *arena) { return arena->ops->is_hushed != NULL && arena->ops->is_hushed(arena->ctx); }

/*
 * What wakes without a free is not the end of a sleep: it is a look, which asks nobody for anything, and after which the same sleep goes on.
 */
static enum arena_status serve(struct arena *arena, struct arena_request *request, uint64_t *start) {
    const struct arena_ops *ops = arena->ops;
    bool can_import = arena->source != NULL && !request->bounded, asks = !request->quiet, again = false, looks = false;
    platform_lock_acquire(&arena->lock);
    for (;;) {
        uint32_t seen;
        bool imported = false;
        arena_tags_top_up(arena);
        enum arena_status status = take(arena, request, can_import ? SEARCH_BEFORE_IMPORT : UINT64_MAX, start, &seen);
        if (STRATA_UNLIKELY(status != ARENA_OK) && asks && (request->flags & ARENA_SLEEP) == 0 && arena_is_hushed(arena)) {
            request->quiet = true;
            asks = false;
        }
        if (status == ARENA_NO_SPACE && can_import) {
            uint32_t later; /* too late for `seen`: what came to the source while it was asked must end the sleep */
            status = take_imported(arena, request, start, &seen);
            imported = status == ARENA_OK;
            if (status == ARENA_NO_SPACE) status = take(arena, request, UINT64_MAX, start, &later);
        }
        if (status == ARENA_OK) {
            arena->counters.allocs++;
            if (request->fit == ARENA_NEXT_FIT) move_rotor(arena, request, *start);
            if (STRATA_UNLIKELY(request->holder != ARENA_HOLDER_CALLER)) note_holder(arena, request, *start);
            arena_leave(arena, imported, NULL);
            return ARENA_OK;
        }
        if (ops->reclaim != NULL && asks) {
            asks = false;
            platform_lock_release(&arena->lock);
            bool more = ops->reclaim(arena->ctx, request->size, again);
            platform_lock_acquire(&arena->lock);
            again = true;
            if (more) continue;
        }
        bool sleeps = (request->flags & ARENA_SLEEP) != 0 && (status == ARENA_NO_SPACE || status == ARENA_NO_TAGS);
        if (sleeps) {
            arena->waiters++;
            arena->counters.waits += !looks;
            platform_lock_release(&arena->lock);
            sleeps = ops->wait(arena->ctx, &arena->generation, seen);
            platform_lock_acquire(&arena->lock);
            if (arena->waiters != 0) arena->waiters--; /* 0 in the child of a fork by a signal handler that ran here */
            asks = arena->generation != seen;
            request->quiet = looks = !asks;
            request->urged = false;
        }
        if (!sleeps) {
            arena->counters.failures += looks || !request->quiet;
            arena_leave(arena, false, NULL);
            return status;
        }
    }
}

/* Whether the constraints leave any place at all, in an arena that had everything; fills the slack in. */
static bool prepare_request(const struct arena *arena, struct arena_request *request) {
    const uint64_t low_bits = arena->quantum - 1, align = request->align, nocross = request->nocross;
    if (request->size == 0 || __builtin_add_overflow(request->size, low_bits, &request->size)) return false;
    request->size &= ~low_bits;
    if (request->flags > (ARENA_FIT_MASK | ARENA_SLEEP | ARENA_FROM_TOP)) return false;
    request->fit = request->flags & ARENA_FIT_MASK;
    if (request->fit == ARENA_FIT_MASK) return false;
    if (request->fit == ARENA_INSTANT_FIT) request->fit = arena->fit;
    request->from_top = (request->flags & ARENA_FROM_TOP) != 0 && request->fit != ARENA_NEXT_FIT;
    if ((request->flags & ARENA_SLEEP) != 0 && (arena->ops->wait == NULL || arena->ops->wake == NULL)) return false;
    if (!is_power_of_two(align) || (align & low_bits) != 0 || request->phase >= align || (request->phase & low_bits) != 0) return false;
    if (request->min > request->last || request->last - request->min < request->size - 1) return false;
    if (nocross != 0) {
        /* Places repeat with the larger of align and nocross; the lowest of a period is the phase cut down to nocross. */
        if (!is_power_of_two(nocross) || (nocross & low_bits) != 0 || request->size > nocross) return false;
        if ((request->phase & (nocross - 1)) > nocross - request->size) return false;
    }
    request->slack = max_u64(align, nocross) - arena->quantum;
    if (!request->bounded) return true;
    /* Between min and max there may be none, which no free and no span can ever change. */
    const struct arena_tag window = {.start = request->min, .size = request->last - request->min + 1};
    uint64_t place;
    return arena_fit_place(&window, request, 0, &place);
}

static enum arena_status request_segment(struct arena *arena, struct arena_request *request, uint64_t *start) {
    if (!prepare_request(arena, request)) return ARENA_BAD_ARGUMENT;
    uint64_t found; /* searches leave their traces here even if they fail */
    enum arena_status status = serve(arena, request, &found);
    if (status == ARENA_OK) *start = found;
    return status;
}

static void *quantum_cache(const struct arena *arena, uint64_t size) {
    return size - 1 < arena->qcache_max ? arena->qcaches[(size - 1) >> arena->quantum_shift] : NULL;
}

enum arena_status arena_alloc(struct arena *arena, uint64_t size, unsigned flags, uint64_t *start) {
    void *cache = quantum_cache(arena, size);
    if (cache != NULL) return arena->qcache_ops->alloc(cache, flags, start);
    struct arena_request request = {.size = size, .align = arena->quantum, .last = UINT64_MAX, .flags = flags};
    return request_segment(arena, &request, start);
}

STRATA_RARE enum arena_status arena_try(struct arena *arena, uint64_t size, uint64_t align, uint64_t *start) {
    struct arena_request request = {.size = size, .align = align, .last = UINT64_MAX, .quiet = true};
    return request_segment(arena, &request, start);
}

STRATA_COLD enum arena_status arena_urge(struct arena *arena, uint64_t size, uint64_t *start) {
    struct arena_request request = {.size = size, .align = arena->quantum, .last = UINT64_MAX, .quiet = true, .urges = true};
    return request_segment(arena, &request, start);
}

STRATA_RARE enum arena_status arena_slab_alloc(struct arena *arena, uint64_t size, uint64_t align, uint64_t *start) {
    struct arena_request request = {.size = size, .align = align, .last = UINT64_MAX, .quiet = true, .holder = ARENA_HOLDER_CACHE};
    return request_segment(arena, &request, start);
}

STRATA_COLD enum arena_status arena_lend(struct arena *arena, uint64_t size, unsigned flags, uint64_t *start) {
    bool quiet = (flags & ARENA_QUIET) != 0;
    struct arena_request request = {.size = size,
                                    .align = arena->quantum,
                                    .last = UINT64_MAX,
                                    .flags = flags & ~(unsigned)ARENA_QUIET,
                                    .quiet = quiet,
                                    .holder = ARENA_HOLDER_IMPORTER};
    enum arena_status status = request_segment(arena, &request, start);
    void *cache = quantum_cache(arena, size);
    if (status != ARENA_NO_SPACE || cache == NULL) return status;
    /* All that is left may lie in slabs of quantum caches. Whoever can give something back was asked. */
    return arena->qcache_ops->try(cache, start);
}

enum arena_status arena_xalloc(struct arena *arena, uint64_t size, uint64_t align, uint64_t phase, uint64_t nocross, uint64_t min, uint64_t max,
                               unsigned flags, uint64_t *start) {
    struct arena_request request = {.size = size,
                                    .align = align != 0 ? align : arena->quantum,
                                    .phase = phase,
                                    .nocross = nocross,
                                    .min = min,
                                    .last = max - 1, /* max 0: up to 2^64 */
                                    .flags = flags,
                                    .bounded = min != 0 || max != 0};
    return request_segment(arena, &request, start);
}

/* The segment with this start and size, where it is the holder's. */
static enum arena_status find_held(struct arena *arena, uint64_t start, uint64_t size, enum arena_holder holder, struct arena_tag **tag) {
    *tag = arena_hash_find(arena, start);
    if (*tag == NULL || (*tag)->holder != holder) return ARENA_NOT_ALLOCATED;
    return (*tag)->size == size ? ARENA_OK : ARENA_SIZE_MISMATCH;
}
static enum arena_status find_segment(struct arena *arena, uint64_t start, uint64_t size, struct arena_tag **tag) {
    return find_held(arena, start, size, ARENA_HOLDER_CALLER, tag);
}

static bool round_size(const struct arena *arena, uint64_t *size) {
    if (*size == 0 || __builtin_add_overflow(*size, arena->quantum - 1, size)) return false;
    *size &= ~(arena->quantum - 1);
    return true;
}

static enum arena_status free_held(struct arena *arena, uint64_t start, uint64_t size, enum arena_holder holder) {
    struct arena_release release = {false, 0, 0};
    struct arena_tag *tag;
    if (!round_size(arena, &size)) return ARENA_BAD_ARGUMENT;
    platform_lock_acquire(&arena->lock);
    enum arena_status status = find_held(arena, start, size, holder, &tag);
    if (status == ARENA_OK) {
        arena->counters.frees++;
        if (holder == ARENA_HOLDER_CACHE) arena->slabs -= size;
        arena_span_retire(arena, arena_segment_free(arena, tag), &release);
    }
    arena_leave(arena, status == ARENA_OK, &release);
    return status;
}

enum arena_status arena_xfree(struct arena *arena, uint64_t start, uint64_t size) { return free_held(arena, start, size, ARENA_HOLDER_CALLER); }
STRATA_RARE enum arena_status arena_slab_free(struct arena *arena, uint64_t start, uint64_t size) {
    return free_held(arena, start, size, ARENA_HOLDER_CACHE);
}

enum arena_status arena_free(struct arena *arena, uint64_t start, uint64_t size) {
    void *cache = quantum_cache(arena, size);
    return cache != NULL ? arena->qcache_ops->free(cache, start) : arena_xfree(arena, start, size);
}

STRATA_COLD enum arena_status arena_take_back(struct arena *arena, uint64_t start, uint64_t size) {
    enum arena_status status = free_held(arena, start, size, ARENA_HOLDER_IMPORTER);
    return status == ARENA_NOT_ALLOCATED ? arena_free(arena, start, size) : status; /* out of a quantum cache */
}

STRATA_RARE enum arena_status arena_resize(struct arena *arena, uint64_t start, uint64_t old_size, uint64_t new_size) {
    struct arena_tag *tag;
    if (!round_size(arena, &old_size) || !round_size(arena, &new_size)) return ARENA_BAD_ARGUMENT;
    platform_lock_acquire(&arena->lock);
    if (new_size < old_size) (void)arena_tags_secure(arena, 1); /* before the look-up, as it may drop the lock */
    enum arena_status status = find_segment(arena, start, old_size, &tag);
    if (status == ARENA_OK) {
        status = arena_segment_resize(arena, tag, new_size);
        if (status == ARENA_OK) arena->counters.resizes++;
    }
    arena_leave(arena, status == ARENA_OK && new_size < old_size, NULL);
    return status;
}

STRATA_RARE enum arena_status arena_split(struct arena *arena, uint64_t start, uint64_t size, uint64_t first_size) {
    struct arena_tag *tag;
    if (!round_size(arena, &size) || first_size == 0 || first_size >= size || (first_size & (arena->quantum - 1)) != 0) return ARENA_BAD_ARGUMENT;
    platform_lock_acquire(&arena->lock);
    (void)arena_tags_secure(arena, 1); /* before the look-up, as it may drop the lock */
    enum arena_status status = find_segment(arena, start, size, &tag);
    if (status == ARENA_OK && !arena_segment_split(arena, tag, first_size)) status = ARENA_NO_TAGS;
    arena_leave(arena, false, NULL);
    return status;
}

/* Under the lock: both segments. */
static enum arena_status find_neighbours(struct arena *arena, uint64_t start, uint64_t size, uint64_t next_size, struct arena_tag **tag,
                                         struct arena_tag **next) {
    enum arena_status status = find_segment(arena, start, size, tag);
    if (status != ARENA_OK) return status;
    *next = arena_segment_behind(arena, *tag);
    if (*next == NULL || (*next)->holder != ARENA_HOLDER_CALLER) return ARENA_NOT_ALLOCATED;
    return (*next)->size == next_size ? ARENA_OK : ARENA_SIZE_MISMATCH;
}

static STRATA_RARE enum arena_status join(struct arena *arena, uint64_t start, uint64_t size, uint64_t next_size, bool check_only) {
    struct arena_tag *tag, *next;
    if (!round_size(arena, &size) || !round_size(arena, &next_size)) return ARENA_BAD_ARGUMENT;
    platform_lock_acquire(&arena->lock);
    enum arena_status status = find_neighbours(arena, start, size, next_size, &tag, &next);
    if (status == ARENA_OK && !check_only) arena_segment_join(arena, tag, next);
    arena_leave(arena, false, NULL);
    return status;
}

enum arena_status arena_join(struct arena *arena, uint64_t start, uint64_t size, uint64_t next_size) {
    return join(arena, start, size, next_size, false);
}
enum arena_status arena_join_check(struct arena *arena, uint64_t start, uint64_t size, uint64_t next_size) {
    return join(arena, start, size, next_size, true);
}
