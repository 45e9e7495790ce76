/*
 * cpu_threads.c - thread mode: ids, the ends of threads, and taking what the arrays of other threads have.
 *
 * No kernel restarts a sequence here, so the drain of cpu_layer.c differs in two steps:
 *   2. platform_fence_threads, then the owner's word is waited for (cpu_ops.h): after that the one thing that can still happen to a closed
 *      header is a single push, which puts a round at `top` and raises it by one;
 *   4. the rounds up to `top` are taken and the limit says so; `top` stays the owner's. The round of such a push lies above, and is found by the
 *      next drain, or by the owner.
 *   5. The owner puts `top` and the limit in order under drain_lock, and opens the header (cpu_thread_settle_own).
 * An owner who stays in the middle of a sequence, as one that is stopped or whose signal handler runs there, keeps what it has: its headers
 * are opened again. Where the system has no such fence, every thread keeps what it has until it ends.
 *
 * The child of a fork has one thread: all other ids are free again, and what their areas have is the next ones', or the next drain's. Neither is
 * touched there, as each would cost a copy of its page in every child.
 *
 * A word may be read until its thread has been through cache_thread_exit of the first layer, for which it waits at the drain lock of each layer in
 * which its area has rounds. So a drainer, who holds that lock and has seen rounds, finds the word's memory there.
 */
#include "cache/cpu_layer_internal.h"

#define SEQUENCE_WAIT_MIN_NS UINT64_C(10000)
#define SEQUENCE_WAIT_MAX_NS UINT64_C(10000000)

/* ------------------------------------------------------------------ the words of an area */

static uint64_t *area_words(const struct cache_layer *caches, uint32_t id) {
    const unsigned headers = caches->main == caches ? SLAB_CACHE_END : caches->end;
    return (uint64_t *)(void *)area_at(caches, id) + headers;
}
uint64_t *cpu_thread_digest(const struct cache_layer *caches, uint32_t id) { return &area_words(caches, id)[0]; }

typedef const uint64_t *sequence_word; /* while somebody has the id */
static sequence_word *area_sequence(const struct cache_layer *caches, uint32_t id) {
    return (sequence_word *)(void *)&area_words(caches->main, id)[1];
}
/* Of a thread whose word may not be read. */
static const uint64_t never_ends = 1;

/* ------------------------------------------------------------------ ids */

/*
 * How many threads can have a cache at once: their areas take a 64th of a limit on address space, which counts what is reserved, as each layer of
 * object caches takes as much again. So many stacks of the usual size have room within twice the limit.
 */
STRATA_COLD unsigned cpu_thread_areas(void) {
    const uint64_t limit_bytes = platform_info()->address_limit_bytes;
    return limit_bytes < 4 * GIB
               ? 64
               : (unsigned)min_u64((limit_bytes / 64 >> CPU_AREA_SHIFT) - 1, CACHE_THREADS_MAX); /* one is below them: AREAS_LEAD_BYTES */
}

STRATA_COLD bool cpu_thread_ids_init(struct cache_layer *caches) {
    struct zone *zone = caches->slabs->zone;
    const size_t taken_bytes = (caches->areas + 63) / 64 * sizeof *caches->taken, spare_bytes = caches->areas * sizeof *caches->spare_ids;
    caches->taken = zone_metadata_alloc(zone, taken_bytes);
    caches->spare_ids = zone_metadata_alloc(zone, spare_bytes);
    if (caches->taken != NULL && caches->spare_ids != NULL) return true;
    if (caches->taken != NULL) zone_metadata_free(zone, caches->taken, taken_bytes);
    if (caches->spare_ids != NULL) zone_metadata_free(zone, caches->spare_ids, spare_bytes);
    return false;
}

/* Under drain_lock; who asks how many threads there are reads it without. */
static void set_spare_count(struct cache_layer *caches, uint32_t count) { __atomic_store_n(&caches->spare_count, count, __ATOMIC_RELAXED); }

/* A look without the lock, which threads that get none would fight for with each of their operations. */
static bool none_is_left(const struct cache_layer *caches) {
    return __atomic_load_n(&caches->spare_count, __ATOMIC_RELAXED) == 0 && __atomic_load_n(&caches->ids_made, __ATOMIC_RELAXED) == caches->areas;
}

/* The first layer's. Acquire: whoever sees that somebody has the id sees the word. */
static bool is_taken(const struct cache_layer *caches, uint32_t id) {
    return (__atomic_load_n(&caches->taken[id / 64], __ATOMIC_ACQUIRE) >> (id % 64) & 1) != 0;
}

STRATA_COLD uint32_t cpu_thread_take_id(struct cache_layer *caches) {
    uint32_t id = 0;
    if (none_is_left(caches)) return 0;
    platform_lock_acquire(&caches->drain_lock);
    if (caches->spare_count != 0) {
        id = caches->spare_ids[caches->spare_count - 1];
        set_spare_count(caches, caches->spare_count - 1);
    } else if (caches->ids_made < caches->areas) {
        id = caches->ids_made;
        for (const struct cache_layer *layer = caches; layer != NULL && id != 0; layer = __atomic_load_n(&layer->next, __ATOMIC_ACQUIRE))
            if (!cpu_layer_commit(layer, id, id + 1)) id = 0;
        if (id != 0) __atomic_store_n(&caches->ids_made, id + 1, __ATOMIC_RELAXED); /* statistics read it without the lock */
    }
    if (id != 0) {
        sequence_word word = platform_thread_sequence();
        __atomic_store_n(area_sequence(caches, id), word != NULL ? word : &never_ends, __ATOMIC_RELAXED);
        __atomic_fetch_or(&caches->taken[id / 64], UINT64_C(1) << (id % 64), __ATOMIC_RELEASE);
    }
    platform_lock_release(&caches->drain_lock);
    if (id != 0) platform_thread_set_id(id);
    return id != 0 ? platform_thread_id() : 0;
}

/*
 * glibc frees what belongs to the stacks of threads that have ended on a thread that is about to end itself, when its destructors of keys have run.
 * One that has never come here before would get an id, and keep it for good; and its word would be read when its stack has gone. It frees little so
 * late: something for each stack, of as many as have no room beside its own. So who has never allocated gets an id with its 64th free.
 */
#define FREES_WITHOUT_ID 64

STRATA_SELDOM bool cpu_thread_frees_late(void) { return platform_thread_id() == 0 && platform_thread_count_free() < FREES_WITHOUT_ID; }

/* A thread that has ended: its arrays are emptied and unused again. Under drain_lock. */
static void empty_area(struct cache_layer *caches, uint32_t id) {
    for (unsigned cache = caches->first; cache < caches->end; cache++) {
        if (is_leaving(caches, cache)) continue;
        if (header_load(caches, id, cache).top != 0 || upper_at(caches, id, cache) != 0) cpu_header_empty(caches, id, cache, 0, false);
    }
}

/* Under drain_lock. */
static void add_spare(struct cache_layer *caches, uint32_t id) {
    caches->spare_ids[caches->spare_count] = id;
    set_spare_count(caches, caches->spare_count + 1);
}

STRATA_COLD void cache_thread_exit(struct cache_layer *caches, uint32_t id) {
    platform_lock_acquire(&caches->drain_lock);
    empty_area(caches, id);
    if (caches->main == caches) {
        __atomic_fetch_and(&caches->taken[id / 64], ~(UINT64_C(1) << (id % 64)), __ATOMIC_RELAXED);
        add_spare(caches, id);
    }
    platform_lock_release(&caches->drain_lock);
}

STRATA_SELDOM void cache_fork_child_settle(struct cache_layer *caches) {
    if (!caches->thread_mode) return;
    uint32_t own = platform_thread_id();
    platform_lock_acquire(&caches->drain_lock);
    set_spare_count(caches, 0);
    for (unsigned word = 0; word < (caches->areas + 63) / 64; word++)
        __atomic_store_n(&caches->taken[word], own != 0 && own / 64 == word ? UINT64_C(1) << (own % 64) : 0, __ATOMIC_RELAXED);
    for (uint32_t id = 1; id < caches->ids_made; id++)
        if (id != own) add_spare(caches, id);
    platform_lock_release(&caches->drain_lock);
}

/* ------------------------------------------------------------------ the caller's own arrays */

STRATA_SELDOM void cpu_thread_empty_own(struct cache_layer *caches, unsigned cache) {
    uint32_t id = caches->thread_mode ? platform_thread_id() : 0;
    if (id == 0 || rounds_at(caches, id, cache) == 0) return;
    platform_lock_acquire(&caches->drain_lock);
    if (is_shut(caches, cache)) cpu_header_empty(caches, id, cache, CPU_CLOSED, false);
    platform_lock_release(&caches->drain_lock);
}

STRATA_COLD bool cpu_thread_is_unsettled(const struct cache_layer *caches, uint32_t id, unsigned cache) {
    return cpu_upper_is_unsettled(upper_at(caches, id, cache));
}

STRATA_SELDOM void cpu_thread_settle_own(struct cache_layer *caches, unsigned cache) {
    uint32_t id = platform_thread_id();
    platform_lock_acquire(&caches->drain_lock);
    if (cpu_thread_is_unsettled(caches, id, cache)) cpu_header_empty(caches, id, cache, CPU_DRAINED, true);
    platform_lock_release(&caches->drain_lock);
}

/* ------------------------------------------------------------------ the arrays of others */

STRATA_SELDOM bool cpu_thread_fence(const struct cache_layer *caches, uint32_t id, bool patient) {
    if (!platform_thread_is_alone() && !platform_fence_threads()) return false;
    if (!is_taken(caches->main, id)) return true; /* rounds of a thread that a fork has left behind */
    sequence_word word = __atomic_load_n(area_sequence(caches, id), __ATOMIC_RELAXED);
    if (word == &never_ends) return false;
    uint64_t interval = SEQUENCE_WAIT_MIN_NS;
    /* Acquire: pairs with the end of a sequence, whose rounds and top are seen then. */
    while (!cpu_sequence_ended(__atomic_load_n(word, __ATOMIC_ACQUIRE))) {
        if (!patient || interval > SEQUENCE_WAIT_MAX_NS) return false;
        struct platform_event never = {0};
        platform_event_wait(&never, interval);
        interval *= 2;
    }
    return true;
}

STRATA_SELDOM void cpu_thread_take(struct cache_layer *caches, uint32_t id, unsigned cache, bool regroup) {
    struct cpu_header *header = header_at(caches, id, cache);
    void *const *slots = (void *const *)(void *)area_at(caches, id);
    void *rounds[CACHE_ROUNDS_MAX];
    const struct cpu_header seen = header_load(caches, id, cache); /* acquire: pairs with a push, whose round is in its slot */
    const unsigned first = first_round(caches, cache, seen), count = seen.top > first ? seen.top - first : 0;
    for (unsigned i = 0; i < count; i++) rounds[i] = slots[first + i];
    __atomic_store_n(upper_half(header), CPU_DRAINED | seen.top << 16, __ATOMIC_RELEASE);
    if (count != 0) cpu_layer_give(caches, cache, rounds, count, regroup);
}
