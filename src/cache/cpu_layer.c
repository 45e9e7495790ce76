/*
 * cpu_layer.c - the areas of the CPU layer: opening and growing arrays, draining those of others, ids in thread mode.
 *
 * Draining another CPU (kmem paper, 5.2; the owner takes no lock and gets no message):
 *   1. close the header: a store to its upper half, which the owner never writes but to open or grow it;
 *   2. platform_fence_cpus: every sequence that might have read the open header has ended or starts again;
 *   3. if the upper half is no longer closed, an owner's growth committed between 1 and 2: close again, fence again;
 *   4. now top can't change: take the rounds, set top to bottom, mark the header drained;
 *   5. the owner opens it when it comes by. Nobody else may: a sequence that read the old top while the header was closed would
 *      find it open at its next read. For the same reason nothing is taken from a header that was not fenced.
 * All headers are closed, fenced once, then drained. In thread mode there is no fence: a thread drains itself when it ends, and
 * the caller's own area can be drained by ordinary pops in every mode.
 *
 * Locks: drain_lock (LOCK_RANK_DRAIN) for the above and for ids; rounds go to the slabs under it, in rank order.
 */
#include "cache/cache_internal.h"

#include "base/check.h"

static char *area_at(const struct cache_layer *caches, unsigned area) { return caches->areas_at + ((size_t)area << CPU_AREA_SHIFT); }
static struct cpu_header *header_at(const struct cache_layer *caches, unsigned area, unsigned cache) {
    return cpu_area_header(area_at(caches, area), cache);
}
/* All of a header at one moment, while its owner may be at work. Acquire: as in rounds_at. */
static struct cpu_header header_load(const struct cache_layer *caches, unsigned area, unsigned cache) {
    struct cpu_header header;
    __atomic_load(header_at(caches, area, cache), &header, __ATOMIC_ACQUIRE);
    return header;
}
static uint32_t *upper_half(struct cpu_header *header) { return (uint32_t *)(void *)&header->bottom; }

/* How many rounds an array has at this moment. Acquire: whoever sees its header opened sees its place (depot_place). */
static unsigned rounds_at(const struct cache_layer *caches, unsigned area, unsigned cache) {
    unsigned top = __atomic_load_n(&header_at(caches, area, cache)->top, __ATOMIC_ACQUIRE);
    unsigned bottom = __atomic_load_n(&caches->depots[cache].bottom, __ATOMIC_RELAXED);
    return top > bottom ? top - bottom : 0;
}

/* A cache that is being destroyed is its destroyer's alone. */
static bool is_leaving(const struct cache_layer *caches, unsigned cache) { return __atomic_load_n(&caches->depots[cache].leaving, __ATOMIC_RELAXED); }

static bool is_shut(const struct cache_layer *caches, unsigned cache) { return __atomic_load_n(&caches->depots[cache].shut, __ATOMIC_SEQ_CST) != 0; }
/* Whoever closes, opens or drains arrays leaves those of this cache alone. */
static bool is_apart(const struct cache_layer *caches, unsigned cache) { return is_leaving(caches, cache) || is_shut(caches, cache); }

static bool area_used(const struct cache_layer *caches, unsigned area) {
    return (__atomic_load_n(&caches->used[area / 64], __ATOMIC_ACQUIRE) >> (area % 64) & 1) != 0;
}

static unsigned last_area(const struct cache_layer *caches) {
    return caches->thread_mode ? __atomic_load_n(&caches->main->ids_made, __ATOMIC_RELAXED) : caches->areas;
}

static size_t areas_bytes(const struct cache_layer *caches) {
    return align_up((uint64_t)caches->areas << CPU_AREA_SHIFT, platform_info()->page_bytes);
}

/* The areas of ids [from, to), whole pages of them. */
static bool commit_areas(const struct cache_layer *caches, uint32_t from, uint32_t to) {
    size_t page = platform_info()->page_bytes;
    uintptr_t start = align_down((uintptr_t)area_at(caches, from), page);
    return platform_commit((void *)start, align_up((uintptr_t)area_at(caches, to), page) - start);
}

static void *metadata_alloc(const struct cache_layer *caches, size_t bytes) { return zone_metadata_alloc(caches->slabs->zone, bytes); }
static void metadata_free(const struct cache_layer *caches, void *memory, size_t bytes) {
    if (memory != NULL) zone_metadata_free(caches->slabs->zone, memory, bytes);
}

bool cpu_layer_init(struct cache_layer *caches, const struct cache_layer *first) {
    const struct platform_info *info = platform_info();
    caches->thread_mode = platform_cpu_mode() == PLATFORM_CPU_THREAD;
    caches->areas = info->cpus;
    if (caches->thread_mode) caches->areas = info->address_limit_bytes < GIB * 4 ? 64 : CACHE_THREADS_MAX;
    /* In thread mode area 0 is every new thread's: it stays zeros. At first it and the areas of the ids there are, if any, are all that is committed.
     */
    uint32_t committed = !caches->thread_mode ? caches->areas : first != NULL ? first->ids_made : 1;
    size_t used_bytes = (caches->areas + 63) / 64 * sizeof(uint64_t), digest_bytes = caches->areas * sizeof(uint64_t);
    size_t id_bytes = caches->areas * sizeof(uint32_t);
    bool wants_ids = caches->thread_mode && first == NULL, few = caches->areas <= CACHE_AREAS_FEW;
    caches->areas_at = platform_reserve(NULL, areas_bytes(caches), info->page_bytes);
    if (caches->areas_at == NULL) return false;
    caches->used = few ? caches->used_few : metadata_alloc(caches, used_bytes);
    caches->digests = caches->thread_mode ? NULL : few ? caches->digests_few : metadata_alloc(caches, digest_bytes);
    caches->spare_ids = wants_ids ? metadata_alloc(caches, id_bytes) : NULL;
    if (!commit_areas(caches, 0, committed) || caches->used == NULL || (wants_ids && caches->spare_ids == NULL) ||
        (!caches->thread_mode && caches->digests == NULL)) {
        platform_unreserve(caches->areas_at, areas_bytes(caches));
        if (!few) metadata_free(caches, caches->used, used_bytes);
        if (!few) metadata_free(caches, caches->digests, digest_bytes);
        metadata_free(caches, caches->spare_ids, id_bytes);
        return false;
    }
    caches->ids_made = committed; /* of a later layer: as the first one's */
    if (first == NULL) platform_cpu.areas = caches->areas_at;
    /* The first thing that happens to this area is a look at a header, which would be a fault of its own before that of the first store. */
    if (first == NULL && !caches->thread_mode) *(volatile uint64_t *)(void *)area_at(caches, cpu_current_id()) = 0;
    return true;
}

/* ------------------------------------------------------------------ thread mode: ids */

/* An id with a committed area; 0: none left. */
static uint32_t take_id(struct cache_layer *caches) {
    uint32_t id = 0;
    platform_lock_acquire(&caches->drain_lock);
    if (caches->spare_count != 0) {
        id = caches->spare_ids[--caches->spare_count];
    } else if (caches->ids_made < caches->areas) {
        id = caches->ids_made;
        for (const struct cache_layer *layer = caches; layer != NULL && id != 0; layer = __atomic_load_n(&layer->next, __ATOMIC_ACQUIRE))
            if (!commit_areas(layer, id, id + 1)) id = 0;
        if (id != 0) __atomic_store_n(&caches->ids_made, id + 1, __ATOMIC_RELAXED); /* statistics read it without the lock */
    }
    platform_lock_release(&caches->drain_lock);
    return id;
}

/*
 * Takes the rounds of one header whose owner can't run: closed and fenced, or its thread is gone. To the slabs, or where others may want them soon
 * to the depot (regroup). Under drain_lock, which is let go while they are given back, as that may run functions of the program: nobody else leaves a
 * header closed that was not fenced.
 */
static void empty_header(struct cache_layer *caches, unsigned area, unsigned cache, uint32_t upper_after, bool regroup) {
    struct cpu_header *header = header_at(caches, area, cache);
    void **slots = (void **)(void *)area_at(caches, area), *rounds[CACHE_ROUNDS_MAX];
    unsigned bottom = caches->depots[cache].bottom, top = header->top, count = top > bottom ? top - bottom : 0;
    for (unsigned i = 0; i < count; i++) rounds[i] = slots[bottom + i];
    __atomic_store_n(&header->top, (uint16_t)(upper_after == 0 ? 0 : bottom), __ATOMIC_RELAXED);
    __atomic_store_n(upper_half(header), upper_after, __ATOMIC_RELEASE); /* the owner sees the new top before it may open */
    if (count == 0) return;
    platform_lock_release(&caches->drain_lock);
    if (regroup)
        depot_give_odd(caches, cache, rounds, count);
    else
        backend_free(caches, cache, rounds, count);
    platform_lock_acquire(&caches->drain_lock);
}

/* A thread that has ended: its arrays are emptied and unused again. Under drain_lock. */
static void empty_area(struct cache_layer *caches, uint32_t id) {
    for (unsigned cache = caches->first; cache < caches->end; cache++) {
        const struct cpu_header *header = header_at(caches, id, cache);
        if (is_leaving(caches, cache)) continue;
        if (header->top != 0 || *upper_half(header_at(caches, id, cache)) != 0) empty_header(caches, id, cache, 0, false);
    }
}

void cache_thread_exit(struct cache_layer *caches, uint32_t id) {
    platform_lock_acquire(&caches->drain_lock);
    empty_area(caches, id);
    if (caches->main == caches) caches->spare_ids[caches->spare_count++] = id;
    platform_lock_release(&caches->drain_lock);
}

bool cache_layer_join(struct cache_layer *caches) {
    struct cache_layer *first = caches->main, **link = &first->next;
    platform_lock_acquire(&first->drain_lock); /* no id comes into being between the look at them and the list */
    bool ok = cpu_layer_init(caches, first);
    while (*link != NULL) link = &(*link)->next;
    if (ok) __atomic_store_n(link, caches, __ATOMIC_RELEASE);
    platform_lock_release(&first->drain_lock);
    return ok;
}

/* ------------------------------------------------------------------ opening */

static void note_used(struct cache_layer *caches, unsigned area) {
    if (!area_used(caches, area)) __atomic_fetch_or(&caches->used[area / 64], UINT64_C(1) << (area % 64), __ATOMIC_RELEASE);
}

/*
 * Thread mode: what a shut array of the calling thread still has goes to the backend. Elsewhere it was emptied when it was shut.
 */
static STRATA_COLD void empty_own(struct cache_layer *caches, unsigned cache) {
    uint32_t id = caches->thread_mode ? platform_thread_id() : 0;
    if (id == 0 || rounds_at(caches, id, cache) == 0) return;
    platform_lock_acquire(&caches->drain_lock);
    if (is_shut(caches, cache)) empty_header(caches, id, cache, CPU_CLOSED, false);
    platform_lock_release(&caches->drain_lock);
}

/*
 * Thread mode, where nothing can be fenced: an array that was opened while its cache was being shut. Either the opener sees here that it is, or
 * the array was there for the shutting to see.
 */
static bool opened_while_shut(struct cache_layer *caches, unsigned area, unsigned cache) {
    if (!caches->thread_mode) return false;
    /* Both sides change the one word in turn: who comes second has seen what the other had written before. */
    if (STRATA_LIKELY(__atomic_fetch_or(&caches->depots[cache].shut, 0, __ATOMIC_ACQ_REL) == 0)) return false;
    __atomic_store_n(upper_half(header_at(caches, area, cache)), CPU_CLOSED, __ATOMIC_RELAXED);
    return true;
}

bool cpu_layer_open(struct cache_layer *caches, unsigned cache) {
    struct depot *depot = &caches->depots[cache];
    if (depot->rounds_max == 0) return false;
    if (STRATA_UNLIKELY(is_shut(caches, cache))) {
        empty_own(caches, cache);
        return false;
    }
    if (caches->thread_mode && platform_thread_id() == 0) {
        if (platform_thread_ended()) return false;
        uint32_t id = take_id(caches->main);
        if (id == 0) return false;
        platform_thread_set_id(id);
    }
    unsigned place = depot_place(caches, depot);
    for (;;) {
        unsigned area = cpu_current_id();
        uint64_t header = cpu_header_read(&caches->areas_at, cache);
        unsigned rounds = __atomic_load_n(&depot->rounds, __ATOMIC_RELAXED);
        unsigned limit = (unsigned)(header >> 48), bottom = (unsigned)(header >> 32) & 0xffff, top = (unsigned)header & 0xffff;
        unsigned wanted = place + rounds;
        if (header >> 32 == CPU_CLOSED) return false;
        bool open = header != 0 && header >> 32 != CPU_DRAINED;
        if (open && (limit == wanted || top > wanted)) return true;
        if (open) CHECK(bottom == place);
        /* The drainer must know of the area before it has rounds: marked first, and replaced only where the thread still is there. */
        note_used(caches, area);
        if (cpu_header_replace(&caches->areas_at, area_at(caches, area), cache, header, cpu_header_pack(header == 0 ? place : top, place, wanted)))
            return !opened_while_shut(caches, area, cache);
    }
}

/* ------------------------------------------------------------------ draining */

/* Closes every open header of an area; returns whether one has rounds. */
static bool close_area(struct cache_layer *caches, unsigned area) {
    bool rounds = false;
    for (unsigned cache = caches->first; cache < caches->end; cache++) {
        struct cpu_header *header = header_at(caches, area, cache);
        uint32_t upper = __atomic_load_n(upper_half(header), __ATOMIC_RELAXED);
        if (upper == 0 || upper == CPU_DRAINED || is_apart(caches, cache)) continue;
        if (upper != CPU_CLOSED) __atomic_store_n(upper_half(header), CPU_CLOSED, __ATOMIC_RELAXED);
        rounds |= rounds_at(caches, area, cache) != 0;
    }
    return rounds;
}

/* After the fence: whether a header was opened again by a sequence that was under way. */
static bool area_reopened(const struct cache_layer *caches, unsigned area) {
    for (unsigned cache = caches->first; cache < caches->end; cache++) {
        uint32_t upper = __atomic_load_n(upper_half(header_at(caches, area, cache)), __ATOMIC_RELAXED);
        if (upper != 0 && upper != CPU_CLOSED && upper != CPU_DRAINED && !is_apart(caches, cache)) return true;
    }
    return false;
}

/* Takes the closing back: nothing was taken, tops are what their owner made them. */
static void open_area(struct cache_layer *caches, unsigned area) {
    for (unsigned cache = caches->first; cache < caches->end; cache++) {
        struct cpu_header *header = header_at(caches, area, cache);
        const struct depot *depot = &caches->depots[cache];
        if (*upper_half(header) != CPU_CLOSED || is_shut(caches, cache)) continue;
        uint32_t limit = (uint32_t)depot->bottom + __atomic_load_n(&depot->rounds, __ATOMIC_RELAXED);
        __atomic_store_n(upper_half(header), (uint32_t)depot->bottom | limit << 16, __ATOMIC_RELAXED);
    }
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

static void drain_area(struct cache_layer *caches, unsigned area, bool regroup) {
    do {
        if (!close_area(caches, area) || !platform_fence_cpus()) { /* nothing to drain, or it can't be */
            open_area(caches, area);
            return;
        }
    } while (area_reopened(caches, area));
    for (unsigned cache = caches->first; cache < caches->end; cache++) {
        uint32_t *upper = upper_half(header_at(caches, area, cache));
        if (__atomic_load_n(upper, __ATOMIC_RELAXED) != CPU_CLOSED || is_shut(caches, cache)) continue;
        empty_header(caches, area, cache, CPU_DRAINED, regroup);
    }
    caches->drains++;
}

void cpu_layer_drain(struct cache_layer *caches, bool idle_only) {
    if (caches->thread_mode) return;
    platform_lock_acquire(&caches->drain_lock);
    for (unsigned area = 0; area < caches->areas; area++) {
        if (!area_used(caches, area)) continue;
        uint64_t digest = digest_area(caches, area);
        bool idle = digest == caches->digests[area];
        caches->digests[area] = digest;
        if (idle_only && !idle) continue;
        if (area_has_rounds(caches, area)) drain_area(caches, area, idle_only);
        caches->digests[area] = digest_area(caches, area);
    }
    platform_lock_release(&caches->drain_lock);
}

void cpu_layer_drain_own(struct cache_layer *caches) {
    void *rounds[CACHE_TRANSFER_MAX];
    for (unsigned cache = caches->first; cache < caches->end; cache++) {
        unsigned count;
        if (is_leaving(caches, cache)) continue;
        while ((count = cpu_pop_batch_in(&caches->areas_at, cache, rounds, CACHE_TRANSFER_MAX)) != 0) backend_free(caches, cache, rounds, count);
    }
}

void cpu_layer_retire(struct cache_layer *caches, unsigned cache) {
    platform_lock_acquire(&caches->drain_lock);
    unsigned last = caches->thread_mode ? __atomic_load_n(&caches->main->ids_made, __ATOMIC_RELAXED) : caches->areas;
    for (unsigned area = 0; area < last; area++)
        if (area_used(caches, area) || is_shut(caches, cache)) empty_header(caches, area, cache, 0, false);
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
        uint32_t *upper = upper_half(header_at(caches, area, cache));
        if (__atomic_load_n(upper, __ATOMIC_RELAXED) == CPU_CLOSED) continue;
        __atomic_store_n(upper, CPU_CLOSED, __ATOMIC_RELAXED);
        found = true;
    }
    return found;
}

/*
 * As a drain: closed, fenced, and closed again where an owner's opening committed in between; then nobody can open it who has not seen that the cache
 * is shut. Where there is no fence, the rounds stay in the closed arrays, but for the caller's own in thread mode.
 */
STRATA_COLD void cpu_layer_shut(struct cache_layer *caches, unsigned cache) {
    platform_lock_acquire(&caches->drain_lock);
    __atomic_exchange_n(&caches->depots[cache].shut, 1, __ATOMIC_ACQ_REL);
    bool fenced = true;
    while (close_everywhere(caches, cache) && fenced) fenced = !caches->thread_mode && platform_fence_cpus();
    uint32_t own = caches->thread_mode ? platform_thread_id() : 0;
    for (unsigned area = first_area(caches); area < last_area(caches); area++)
        if ((fenced || (own != 0 && area == own)) && rounds_at(caches, area, cache) != 0) empty_header(caches, area, cache, CPU_CLOSED, false);
    platform_lock_release(&caches->drain_lock);
}

/* Arrays that still have rounds are as they were; others are opened by their owners, when they come by. */
STRATA_COLD void cpu_layer_unshut(struct cache_layer *caches, unsigned cache) {
    const struct depot *depot = &caches->depots[cache];
    platform_lock_acquire(&caches->drain_lock);
    for (unsigned area = first_area(caches); area < last_area(caches); area++) {
        struct cpu_header *header = header_at(caches, area, cache);
        uint32_t bottom = __atomic_load_n(&depot->bottom, __ATOMIC_RELAXED), top = __atomic_load_n(&header->top, __ATOMIC_RELAXED);
        uint32_t limit = bottom + __atomic_load_n(&depot->rounds, __ATOMIC_RELAXED), upper = CPU_DRAINED;
        if (__atomic_load_n(upper_half(header), __ATOMIC_RELAXED) != CPU_CLOSED) continue;
        if (top == 0)
            upper = 0;
        else if (top > bottom)
            upper = bottom | limit << 16;
        __atomic_store_n(upper_half(header), upper, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&caches->depots[cache].shut, 0, __ATOMIC_SEQ_CST);
    platform_lock_release(&caches->drain_lock);
}

/* ------------------------------------------------------------------ looking inside, fork */

STRATA_COLD uint64_t cpu_layer_rounds(const struct cache_layer *caches, unsigned cache) {
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
    if (header.limit == 0) return NULL; /* closed, or drained */
    if (header.bottom != bottom || header.limit > bottom + depot->rounds_max) return "CPU layer: an array outside its slots";
    return NULL;
}

STRATA_COLD const char *cpu_layer_check(struct cache_layer *caches) {
    const char *broken = NULL;
    platform_lock_acquire(&caches->drain_lock); /* who empties a header changes it by two stores */
    for (unsigned area = 0; area < last_area(caches) && broken == NULL; area++) {
        if (!area_used(caches, area)) continue;
        for (unsigned cache = caches->first; cache < caches->end && broken == NULL; cache++)
            broken = check_header(header_load(caches, area, cache), &caches->depots[cache]);
    }
    platform_lock_release(&caches->drain_lock);
    return broken;
}

/*
 * The child has one thread. Areas keep their rounds: with rseq any CPU may come to use them, and the drain reaches all.
 * Thread mode: the areas of threads that are gone are emptied and their ids are free again.
 */
STRATA_COLD void cache_fork_child(struct cache_layer *caches) {
    for (unsigned cache = caches->end; cache-- > caches->first;) platform_lock_unhold(&caches->depots[cache].lock);
    platform_lock_unhold(&caches->drain_lock);
}

STRATA_COLD void cache_fork_child_settle(struct cache_layer *caches) {
    if (!caches->thread_mode) return;
    uint32_t own = platform_thread_id();
    caches->spare_count = 0;
    for (uint32_t id = 1; id < caches->ids_made; id++)
        if (id != own) cache_thread_exit(caches, id);
}
