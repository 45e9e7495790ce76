/*
 * cpu_layer.c - the areas of the CPU layer: opening and growing arrays, draining those of others.
 *
 * Draining another CPU (kmem paper, 5.2; the owner takes no lock and gets no message):
 *   1. close the header: a store to its upper half, which the owner never writes but to open or grow it, or to close it under the lock;
 *   2. platform_fence_cpus: every sequence that might have read the open header has ended or starts again;
 *   3. if the upper half is no longer closed, an owner's growth committed between 1 and 2: close again, fence again;
 *   4. now top can't change: take the rounds, set top to bottom, mark the header drained;
 *   5. the owner opens it when it comes by. Nobody else may: a sequence that read the old top while the header was closed would
 *      find it open at its next read. For the same reason nothing is taken from a header that was not fenced.
 * All headers are closed, fenced once, then drained. Thread mode has another fence, and leaves `top` alone: cpu_threads.c. The caller's own area can
 * be drained by ordinary pops in every mode.
 *
 * Locks: drain_lock (LOCK_RANK_DRAIN) for the above and for ids; rounds go to the slabs under it, in rank order.
 */
#include "base/check.h"
#include "cache/cpu_layer_internal.h"

static unsigned last_area(const struct cache_layer *caches) {
    return caches->thread_mode ? __atomic_load_n(&caches->main->ids_made, __ATOMIC_RELAXED) : caches->areas;
}

/*
 * Below the areas is memory that nobody touches. The system puts the next stack below this mapping: at its upper end a thread has what each sequence
 * writes, and processors fetch the line behind that ahead, which would be the headers of CPU 0, whoever it is that has them (decision 200).
 */
#define AREAS_LEAD_BYTES CPU_AREA_BYTES
/* And one area beyond them all, whose headers stay zeros, for who may use none (platform_cpu_leave). */
static size_t areas_bytes(const struct cache_layer *caches) {
    return align_up(AREAS_LEAD_BYTES + ((uint64_t)(caches->areas + 1) << CPU_AREA_SHIFT), platform_info()->page_bytes);
}

bool cpu_layer_commit(const struct cache_layer *caches, uint32_t from, uint32_t to) {
    size_t page = platform_info()->page_bytes;
    uintptr_t start = align_down((uintptr_t)area_at(caches, from), page);
    return platform_commit((void *)start, align_up((uintptr_t)area_at(caches, to), page) - start);
}

static void *metadata_alloc(const struct cache_layer *caches, size_t bytes) { return zone_metadata_alloc(caches->slabs->zone, bytes); }
static void metadata_free(const struct cache_layer *caches, void *memory, size_t bytes) {
    if (memory != NULL) zone_metadata_free(caches->slabs->zone, memory, bytes);
}

static STRATA_COLD void cpu_layer_free(const struct cache_layer *caches, size_t used_bytes, size_t digest_bytes) {
    platform_unreserve(caches->areas_at - AREAS_LEAD_BYTES, areas_bytes(caches));
    if (caches->areas <= CACHE_AREAS_FEW) return;
    metadata_free(caches, caches->used, used_bytes);
    metadata_free(caches, caches->digests, digest_bytes);
}

bool cpu_layer_init(struct cache_layer *caches, const struct cache_layer *first) {
    const struct platform_info *info = platform_info();
    caches->thread_mode = platform_cpu_mode() == PLATFORM_CPU_THREAD;
    caches->areas = info->cpus;
    if (caches->thread_mode) caches->areas = cpu_thread_areas();
    /* In thread mode area 0 is every new thread's: it stays zeros. At first it and the areas of the ids there are, if any, are all that is committed.
     */
    uint32_t committed = !caches->thread_mode ? caches->areas + 1 : first != NULL ? first->ids_made : 1;
    size_t used_bytes = (caches->areas + 63) / 64 * sizeof(uint64_t), digest_bytes = caches->areas * sizeof(uint64_t);
    bool few = caches->areas <= CACHE_AREAS_FEW;
    char *mapping = platform_reserve(NULL, areas_bytes(caches), info->page_bytes);
    if (mapping == NULL) return false;
    caches->areas_at = mapping + AREAS_LEAD_BYTES;
    caches->used = few ? caches->used_few : metadata_alloc(caches, used_bytes);
    caches->digests = caches->thread_mode ? NULL : few ? caches->digests_few : metadata_alloc(caches, digest_bytes);
    if (!cpu_layer_commit(caches, 0, committed) || caches->used == NULL || (!caches->thread_mode && caches->digests == NULL) ||
        (caches->thread_mode && first == NULL && !cpu_thread_ids_init(caches))) {
        cpu_layer_free(caches, used_bytes, digest_bytes);
        return false;
    }
    caches->ids_made = committed; /* of a later layer: as the first one's */
    if (first == NULL) platform_cpu.areas = caches->areas_at;
    /* The first thing that happens to this area is a look at a header, which would be a fault of its own before that of the first store. */
    if (first == NULL && !caches->thread_mode) *(volatile uint64_t *)(void *)area_at(caches, cpu_current_id()) = 0;
    return true;
}

/* ------------------------------------------------------------------ emptying */

/* Under drain_lock; read without it only by who sleeps on it. */
static void set_giving(struct depot *depot, uint32_t giving) { __atomic_store_n(&depot->giving, giving, __ATOMIC_RELAXED); }

void cpu_layer_give(struct cache_layer *caches, unsigned cache, void *const *rounds, unsigned count, bool regroup) {
    struct depot *depot = &caches->depots[cache];
    set_giving(depot, depot->giving + 1);
    platform_lock_release(&caches->drain_lock);
    if (regroup)
        depot_give_odd(caches, cache, rounds, count);
    else
        backend_free(caches, cache, rounds, count);
    platform_lock_acquire(&caches->drain_lock);
    if (depot->giving != 0) set_giving(depot, depot->giving - 1); /* a child of fork has forgotten it */
    if (is_leaving(caches, cache)) platform_word_wake(&depot->giving);
}

void cpu_header_empty(struct cache_layer *caches, unsigned area, unsigned cache, uint32_t upper_after, bool regroup) {
    struct cpu_header *header = header_at(caches, area, cache);
    void **slots = (void **)(void *)area_at(caches, area), *rounds[CACHE_ROUNDS_MAX];
    const struct cpu_header seen = header_load(caches, area, cache);
    const unsigned first = first_round(caches, cache, seen), count = seen.top > first ? seen.top - first : 0;
    for (unsigned i = 0; i < count; i++) rounds[i] = slots[first + i];
    /* All of it at once: no signal handler finds room in between. Release: pairs with whoever looks where its array lies. */
    const uint64_t after = cpu_header_pack(upper_after == 0 ? 0 : caches->depots[cache].bottom, upper_after, 0);
    __atomic_store_n((cpu_header_bits *)(void *)header, after, __ATOMIC_RELEASE);
    if (count != 0) cpu_layer_give(caches, cache, rounds, count, regroup);
}

STRATA_COLD bool cache_layer_join(struct cache_layer *caches) {
    struct cache_layer *first = caches->main;
    platform_lock_acquire(&first->drain_lock); /* no id comes into being between the look at them and the list */
    bool ok = cpu_layer_init(caches, first);
    if (ok) {
        caches->next = first->next;
        __atomic_store_n(&first->next, caches, __ATOMIC_RELEASE);
    }
    platform_lock_release(&first->drain_lock);
    return ok;
}

/* ------------------------------------------------------------------ opening */

static void note_used(struct cache_layer *caches, unsigned area) {
    const uint64_t bit = UINT64_C(1) << (area % 64);
    if (area_used(caches, area) || (__atomic_fetch_or(&caches->used[area / 64], bit, __ATOMIC_RELEASE) & bit) != 0) return;
    __atomic_fetch_add(&caches->areas_used, 1, __ATOMIC_RELAXED);
}

/*
 * Thread mode, where nothing can be fenced: an array that was opened while its cache was being shut. Either the opener sees here that it is, or
 * the array was there for the shutting to see.
 */
static bool opened_while_shut(struct cache_layer *caches, unsigned area, unsigned cache) {
    if (!caches->thread_mode) return false;
    /* Both sides change the one word in turn: who comes second has seen what the other had written before. */
    if (STRATA_LIKELY(__atomic_fetch_or(&caches->depots[cache].shut, 0, __ATOMIC_ACQ_REL) == 0)) return false;
    platform_interleave();
    /* Since then it may have been drained, or be in use again: what was taken must not be forgotten. */
    platform_lock_acquire(&caches->drain_lock);
    const bool shut = is_shut(caches, cache);
    uint32_t *half = upper_half(header_at(caches, area, cache));
    if (shut) __atomic_store_n(half, CPU_CLOSED | cpu_upper_taken(__atomic_load_n(half, __ATOMIC_RELAXED)) << 16, __ATOMIC_RELAXED);
    platform_lock_release(&caches->drain_lock);
    return shut;
}

bool cpu_layer_open(struct cache_layer *caches, unsigned cache) {
    struct depot *depot = &caches->depots[cache];
    if (depot->rounds_max == 0) return false;
    if (STRATA_UNLIKELY(is_shut(caches, cache))) {
        cpu_thread_empty_own(caches, cache);
        return false;
    }
    if (caches->thread_mode && platform_thread_id() == 0) {
        if (platform_thread_ended()) return false;
        if (cpu_thread_take_id(caches->main) == 0) return false;
    }
    unsigned place = depot_place(caches, depot);
    for (;;) {
        unsigned area = cpu_current_id();
        if (STRATA_UNLIKELY(area >= caches->areas)) return false;
        uint64_t header = cpu_header_read(&caches->areas_at, cache);
        unsigned rounds = __atomic_load_n(&depot->rounds, __ATOMIC_RELAXED);
        uint32_t upper = (uint32_t)(header >> 32);
        unsigned limit = upper >> 16, bottom = upper & 0xffff, top = (uint32_t)header;
        unsigned wanted = place + rounds;
        if (cpu_upper_closed(upper)) return false;
        bool open = cpu_upper_open(upper);
        if (STRATA_UNLIKELY(caches->thread_mode && cpu_upper_is_unsettled(upper))) {
            cpu_thread_settle_own(caches, cache);
            continue;
        }
        if (open && (limit == wanted || top > wanted)) return true;
        if (open) CHECK(bottom == place);
        /* The drainer must know of the area before it has rounds: marked first, and replaced only where the thread still is there. */
        note_used(caches, area);
        if (cpu_header_replace(&caches->areas_at, area_at(caches, area), cache, header, cpu_header_pack(header == 0 ? place : top, place, wanted)))
            return !opened_while_shut(caches, area, cache);
    }
}

/* ------------------------------------------------------------------ draining */

/* Which caches. */
struct span {
    unsigned first, end;
};
static struct span all_of(const struct cache_layer *caches) { return (struct span){caches->first, caches->end}; }

/* Closes every open header of an area; returns whether one has rounds. */
static bool close_area(struct cache_layer *caches, unsigned area, struct span span) {
    bool rounds = false;
    for (unsigned cache = span.first; cache < span.end; cache++) {
        struct cpu_header *header = header_at(caches, area, cache);
        uint32_t upper = __atomic_load_n(upper_half(header), __ATOMIC_RELAXED);
        if (upper == 0 || is_apart(caches, cache)) continue;
        if (cpu_upper_open(upper)) __atomic_store_n(upper_half(header), CPU_CLOSED, __ATOMIC_RELAXED);
        rounds |= rounds_at(caches, area, cache) != 0;
    }
    return rounds;
}

/* After the fence: whether a header was opened again by a sequence that was under way. */
static bool area_reopened(const struct cache_layer *caches, unsigned area, struct span span) {
    for (unsigned cache = span.first; cache < span.end; cache++) {
        uint32_t upper = __atomic_load_n(upper_half(header_at(caches, area, cache)), __ATOMIC_RELAXED);
        if (cpu_upper_open(upper) && !is_apart(caches, cache)) return true;
    }
    return false;
}

/* Takes the closing back: nothing was taken, tops are what their owner made them. */
STRATA_INLINE void open_area(struct cache_layer *caches, unsigned area, struct span span) {
    for (unsigned cache = span.first; cache < span.end; cache++) {
        struct cpu_header *header = header_at(caches, area, cache);
        const struct depot *depot = &caches->depots[cache];
        if (__atomic_load_n(upper_half(header), __ATOMIC_RELAXED) != CPU_CLOSED || is_shut(caches, cache)) continue;
        uint32_t limit = (uint32_t)depot->bottom + __atomic_load_n(&depot->rounds, __ATOMIC_RELAXED);
        __atomic_store_n(upper_half(header), (uint32_t)depot->bottom | limit << 16, __ATOMIC_RELAXED);
    }
}

STRATA_SELDOM void cpu_layer_reopen(struct cache_layer *caches) {
    for (unsigned area = 0; area < last_area(caches); area++)
        if (area_used(caches, area)) open_area(caches, area, all_of(caches));
}

static uint64_t digest_area(const struct cache_layer *caches, unsigned area) {
    uint64_t digest = 1;
    for (unsigned cache = caches->first; cache < caches->end; cache++)
        digest = digest * UINT64_C(0x9e3779b97f4a7c15) + __atomic_load_n(&header_at(caches, area, cache)->top, __ATOMIC_RELAXED);
    return digest;
}

static bool area_has_rounds(const struct cache_layer *caches, unsigned area) {
    for (unsigned cache = caches->first; cache < caches->end; cache++)
        if (rounds_at(caches, area, cache) != 0) return true;
    return false;
}

/*
 * After the fence: nobody changes the tops of this area; thread mode: but for a push that puts a round on one. A process of one thread, which may
 * have locked itself into a few system calls, needs none: no sequence is under way but one that a handler of its signals has aborted.
 */
static bool fence_area(const struct cache_layer *caches, unsigned area, bool patient) {
    if (caches->thread_mode) return cpu_thread_fence(caches, area, patient);
    return platform_thread_is_alone() || platform_fence_cpus();
}

static void drain_area(struct cache_layer *caches, unsigned area, struct span span, bool regroup) {
    do {
        if (!close_area(caches, area, span) || !fence_area(caches, area, !regroup)) { /* nothing to drain, or it can't be */
            open_area(caches, area, span);
            return;
        }
    } while (area_reopened(caches, area, span));
    for (unsigned cache = span.first; cache < span.end; cache++) {
        const bool closed = cpu_upper_closed(upper_at(caches, area, cache));
        if (!closed && !(caches->thread_mode && cpu_thread_is_unsettled(caches, area, cache))) continue;
        if (is_apart(caches, cache)) continue;
        if (caches->thread_mode)
            cpu_thread_take(caches, area, cache, regroup);
        else
            cpu_header_empty(caches, area, cache, CPU_DRAINED, regroup);
    }
    caches->drains++;
}

/* Those of so many threads are looked at in a tick, in turn: it may be an allocation that has to do it. */
#define THREADS_A_TICK 256

static uint64_t *digest_at(struct cache_layer *caches, unsigned area) {
    return caches->thread_mode ? cpu_thread_digest(caches, area) : &caches->digests[area];
}

STRATA_RARE void cpu_layer_drain(struct cache_layer *caches, bool idle_only) {
    platform_lock_acquire(&caches->drain_lock);
    unsigned count = last_area(caches), looks = count, at = 0;
    if (caches->thread_mode && idle_only) {
        at = caches->next_tick < count ? caches->next_tick : 0;
        looks = (unsigned)min_u64(count, THREADS_A_TICK);
        caches->next_tick = at + looks < count ? at + looks : at + looks - count;
    }
    for (; looks != 0; looks--, at = at + 1 < count ? at + 1 : 0) {
        if (!area_used(caches, at)) continue;
        uint64_t digest = digest_area(caches, at);
        bool idle = digest == *digest_at(caches, at);
        *digest_at(caches, at) = digest;
        if (idle_only && !idle) continue;
        if (area_has_rounds(caches, at)) drain_area(caches, at, all_of(caches), idle_only);
        *digest_at(caches, at) = digest_area(caches, at);
    }
    platform_lock_release(&caches->drain_lock);
}

void cpu_layer_drain_of(struct cache_layer *caches, unsigned cache) {
    const struct span only = {cache, cache + 1};
    platform_lock_acquire(&caches->drain_lock);
    for (unsigned area = 0; area < last_area(caches); area++)
        if (area_used(caches, area) && rounds_at(caches, area, cache) != 0) drain_area(caches, area, only, false);
    platform_lock_release(&caches->drain_lock);
}

void cpu_layer_drain_own_of(struct cache_layer *caches, unsigned cache) {
    void *rounds[CACHE_TRANSFER_MAX];
    unsigned count;
    while ((count = cpu_pop_batch_in(&caches->areas_at, cache, rounds, CACHE_TRANSFER_MAX)) != 0) backend_free(caches, cache, rounds, count);
}

void cpu_layer_drain_own(struct cache_layer *caches) {
    for (unsigned cache = caches->first; cache < caches->end; cache++)
        if (!is_leaving(caches, cache)) cpu_layer_drain_own_of(caches, cache);
}

STRATA_SELDOM void cpu_layer_retire(struct cache_layer *caches, unsigned cache) {
    const uint32_t *giving = &caches->depots[cache].giving;
    platform_lock_acquire(&caches->drain_lock);
    for (uint32_t seen; (seen = *giving) != 0;) { /* no more of it begins, as the cache is leaving */
        platform_lock_release(&caches->drain_lock);
        platform_word_wait(giving, seen);
        platform_lock_acquire(&caches->drain_lock);
    }
    unsigned last = caches->thread_mode ? __atomic_load_n(&caches->main->ids_made, __ATOMIC_RELAXED) : caches->areas;
    for (unsigned area = 0; area < last; area++)
        if (area_used(caches, area) || is_shut(caches, cache)) cpu_header_empty(caches, area, cache, 0, false);
    platform_lock_release(&caches->drain_lock);
}

/* ------------------------------------------------------------------ shutting */

/*
 * The areas that a shut array is closed in: all, also those without any array yet, as a CPU may be about to open its first one. Thread mode: those of
 * all ids; area 0 stays zeros.
 */
static unsigned first_area(const struct cache_layer *caches) { return caches->thread_mode ? 1 : 0; }

/* Closes the array in all areas; returns whether one was not closed yet. */
static bool close_everywhere(struct cache_layer *caches, unsigned cache) {
    bool found = false;
    for (unsigned area = first_area(caches); area < last_area(caches); area++) {
        uint32_t *half = upper_half(header_at(caches, area, cache)), upper = __atomic_load_n(half, __ATOMIC_RELAXED);
        if (cpu_upper_closed(upper)) continue;
        __atomic_store_n(half, CPU_CLOSED | cpu_upper_taken(upper) << 16, __ATOMIC_RELAXED);
        found = true;
    }
    return found;
}

/*
 * As a drain: closed, fenced, and closed again where an owner's opening committed in between; then nobody can open it who has not seen that the cache
 * is shut. Where there is no fence, the rounds stay in the closed arrays, but for the caller's own in thread mode.
 */
STRATA_SELDOM bool cpu_layer_shut(struct cache_layer *caches, unsigned cache) {
    platform_lock_acquire(&caches->drain_lock);
    __atomic_exchange_n(&caches->depots[cache].shut, 1, __ATOMIC_ACQ_REL);
    bool fenced = !caches->thread_mode; /* nor where a drain that lets its lock go right now has closed them all */
    while (close_everywhere(caches, cache) && fenced) fenced = platform_thread_is_alone() || platform_fence_cpus();
    uint32_t own = caches->thread_mode ? platform_thread_id() : 0;
    for (unsigned area = first_area(caches); area < last_area(caches); area++)
        if ((fenced || (own != 0 && area == own)) && rounds_at(caches, area, cache) != 0) cpu_header_empty(caches, area, cache, CPU_CLOSED, false);
    platform_lock_release(&caches->drain_lock);
    return fenced;
}

/* Arrays that still have rounds are as they were; others are opened by their owners, when they come by. */
STRATA_SELDOM void cpu_layer_unshut(struct cache_layer *caches, unsigned cache) {
    const struct depot *depot = &caches->depots[cache];
    platform_lock_acquire(&caches->drain_lock);
    for (unsigned area = first_area(caches); area < last_area(caches); area++) {
        struct cpu_header *header = header_at(caches, area, cache);
        uint32_t bottom = __atomic_load_n(&depot->bottom, __ATOMIC_RELAXED), top = __atomic_load_n(&header->top, __ATOMIC_RELAXED);
        uint32_t limit = bottom + __atomic_load_n(&depot->rounds, __ATOMIC_RELAXED), upper = __atomic_load_n(upper_half(header), __ATOMIC_RELAXED);
        if (!cpu_upper_closed(upper)) continue;
        const unsigned taken = cpu_upper_taken(upper); /* then its owner has to put it in order */
        upper = CPU_DRAINED | taken << 16;
        if (top == 0)
            upper = 0;
        else if (top > bottom && taken == 0)
            upper = bottom | limit << 16;
        __atomic_store_n(upper_half(header), upper, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&caches->depots[cache].shut, 0, __ATOMIC_SEQ_CST);
    platform_lock_release(&caches->drain_lock);
}

/* ------------------------------------------------------------------ looking inside, fork */

STRATA_SELDOM uint64_t cpu_layer_rounds(const struct cache_layer *caches, unsigned cache) {
    uint64_t rounds = 0;
    for (unsigned area = 0; area < last_area(caches); area++) {
        if (area_used(caches, area)) rounds += rounds_at(caches, area, cache);
    }
    return rounds;
}

STRATA_COLD uint64_t cache_area_bytes(const struct cache_layer *caches) {
    uint64_t bytes = 0;
    for (unsigned area = 0; area < last_area(caches); area++) bytes += area_used(caches, area) ? CPU_AREA_BYTES : 0;
    return bytes;
}

static const char *check_header(const struct cpu_header header, const struct depot *depot) {
    if (header.limit == 0 && (header.bottom == 0 || header.top == 0)) return NULL; /* unused, or shut before it was used */
    const unsigned bottom = __atomic_load_n(&depot->bottom, __ATOMIC_RELAXED);     /* read after the header, whose opener had seen the place */
    if (header.top < bottom || header.top > bottom + depot->rounds_max) return "CPU layer: a top outside its array";
    if (!cpu_upper_open(cpu_header_upper(header))) return header.limit > header.top ? "CPU layer: more rounds taken than there were" : NULL;
    if (header.bottom != bottom || header.limit > bottom + depot->rounds_max) return "CPU layer: an array outside its slots";
    return NULL;
}

STRATA_SELDOM const char *cpu_layer_check(struct cache_layer *caches) {
    const char *broken = NULL;
    platform_lock_acquire(&caches->drain_lock); /* headers of an area, and what they say of those of others, at one moment */
    for (unsigned area = 0; area < last_area(caches) && broken == NULL; area++) {
        if (!area_used(caches, area)) continue;
        for (unsigned cache = caches->first; cache < caches->end && broken == NULL; cache++)
            broken = check_header(header_load(caches, area, cache), &caches->depots[cache]);
    }
    platform_lock_release(&caches->drain_lock);
    return broken;
}
