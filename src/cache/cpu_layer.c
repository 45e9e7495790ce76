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

static struct cpu_header *header_at(unsigned area, unsigned cache) { return cpu_area_header(cpu_area_at(area), cache); }
/* All of a header at one moment, while its owner may be at work. */
static struct cpu_header header_load(unsigned area, unsigned cache) {
    struct cpu_header header;
    __atomic_load(header_at(area, cache), &header, __ATOMIC_RELAXED);
    return header;
}
static uint32_t *upper_half(struct cpu_header *header) { return (uint32_t *)(void *)&header->bottom; }

/* How many rounds an array has at this moment. Acquire: whoever sees its header opened sees its place (depot_place). */
static unsigned rounds_at(const struct cache_layer *caches, unsigned area, unsigned cache) {
    unsigned top = __atomic_load_n(&header_at(area, cache)->top, __ATOMIC_ACQUIRE);
    unsigned bottom = __atomic_load_n(&caches->depots[cache].bottom, __ATOMIC_RELAXED);
    return top > bottom ? top - bottom : 0;
}

static bool area_used(const struct cache_layer *caches, unsigned area) {
    return (__atomic_load_n(&caches->used[area / 64], __ATOMIC_ACQUIRE) >> (area % 64) & 1) != 0;
}

bool cpu_layer_init(struct cache_layer *caches) {
    const struct platform_info *info = platform_info();
    struct zone *zone = caches->slabs->zone;
    caches->thread_mode = platform_cpu_mode() == PLATFORM_CPU_THREAD;
    caches->areas = info->cpus;
    if (caches->thread_mode) caches->areas = info->address_limit_bytes < GIB * 4 ? 64 : CACHE_THREADS_MAX;
    size_t bytes = (size_t)caches->areas << CPU_AREA_SHIFT;
    /* In thread mode area 0 is every new thread's: it stays zeros, and is all that is committed at first. */
    size_t committed = caches->thread_mode ? CPU_AREA_BYTES : bytes;
    committed = align_up(committed, info->page_bytes);
    char *areas = platform_reserve(NULL, align_up(bytes, info->page_bytes), info->page_bytes);
    if (areas == NULL) return false;
    caches->used = zone_metadata_alloc(zone, (caches->areas + 63) / 64 * sizeof(uint64_t));
    caches->digests = caches->thread_mode ? NULL : zone_metadata_alloc(zone, caches->areas * sizeof(uint64_t));
    caches->spare_ids = caches->thread_mode ? zone_metadata_alloc(zone, caches->areas * sizeof(uint32_t)) : NULL;
    if (!platform_commit(areas, committed) || caches->used == NULL || (caches->thread_mode ? caches->spare_ids == NULL : caches->digests == NULL)) {
        platform_unreserve(areas, align_up(bytes, info->page_bytes));
        if (caches->used != NULL) zone_metadata_free(zone, caches->used, (caches->areas + 63) / 64 * sizeof(uint64_t));
        if (caches->digests != NULL) zone_metadata_free(zone, caches->digests, caches->areas * sizeof(uint64_t));
        if (caches->spare_ids != NULL) zone_metadata_free(zone, caches->spare_ids, caches->areas * sizeof(uint32_t));
        return false;
    }
    caches->ids_made = 1;
    platform_cpu.areas = areas;
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
        size_t page = platform_info()->page_bytes;
        uintptr_t start = align_down((uintptr_t)header_at(caches->ids_made, 0), page);
        uintptr_t end = align_up((uintptr_t)header_at(caches->ids_made + 1, 0), page);
        if (platform_commit((void *)start, end - start)) {
            id = caches->ids_made;
            __atomic_store_n(&caches->ids_made, id + 1, __ATOMIC_RELAXED); /* statistics read it without the lock */
        }
    }
    platform_lock_release(&caches->drain_lock);
    return id;
}

/* Rounds of one area whose owner can't run: closed and fenced, or its thread is gone. Under drain_lock. */
static void empty_header(struct cache_layer *caches, unsigned area, unsigned cache) {
    struct cpu_header *header = header_at(area, cache);
    void **slots = (void **)(void *)header_at(area, 0);
    unsigned bottom = caches->depots[cache].bottom, top = header->top;
    if (top > bottom) slab_free_batch(caches->slabs, cache, slots + bottom, top - bottom);
    __atomic_store_n(&header->top, (uint16_t)bottom, __ATOMIC_RELAXED);
}

static void retire_id(struct cache_layer *caches, uint32_t id) {
    platform_lock_acquire(&caches->drain_lock);
    for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_MAGAZINES; cache++) {
        struct cpu_header *header = header_at(id, cache);
        if (header->top == 0 && *upper_half(header) == 0) continue;
        empty_header(caches, id, cache);
        static const struct cpu_header unused;
        __atomic_store(header, (struct cpu_header *)(uintptr_t)&unused, __ATOMIC_RELAXED);
    }
    caches->spare_ids[caches->spare_count++] = id;
    platform_lock_release(&caches->drain_lock);
}

void cache_thread_exit(struct cache_layer *caches, uint32_t id) { retire_id(caches, id); }

/* ------------------------------------------------------------------ opening */

static void note_used(struct cache_layer *caches, unsigned area) {
    if (!area_used(caches, area)) __atomic_fetch_or(&caches->used[area / 64], UINT64_C(1) << (area % 64), __ATOMIC_RELEASE);
}

bool cpu_layer_open(struct cache_layer *caches, unsigned cache) {
    struct depot *depot = &caches->depots[cache];
    if (caches->thread_mode && platform_thread_id() == 0) {
        if (platform_thread_ended()) return false;
        uint32_t id = take_id(caches);
        if (id == 0) return false;
        platform_thread_set_id(id);
    }
    unsigned place = depot_place(caches, depot);
    for (;;) {
        unsigned area = cpu_current_id();
        uint64_t header = cpu_header_read(cache);
        unsigned rounds = __atomic_load_n(&depot->rounds, __ATOMIC_RELAXED);
        unsigned limit = (unsigned)(header >> 48), bottom = (unsigned)(header >> 32) & 0xffff, top = (unsigned)header & 0xffff;
        unsigned wanted = place + rounds;
        if (header >> 32 == CPU_CLOSED) return false;
        bool open = header != 0 && header >> 32 != CPU_DRAINED;
        if (open && (limit == wanted || top > wanted)) return true;
        if (open) CHECK(bottom == place);
        /* The drainer must know of the area before it has rounds: marked first, and replaced only where the thread still is there. */
        note_used(caches, area);
        if (cpu_header_replace(cpu_area_at(area), cache, header, cpu_header_pack(header == 0 ? place : top, place, wanted))) return true;
    }
}

/* ------------------------------------------------------------------ draining */

/* Closes every open header of an area; returns whether one has rounds. */
static bool close_area(struct cache_layer *caches, unsigned area) {
    bool rounds = false;
    for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_MAGAZINES; cache++) {
        struct cpu_header *header = header_at(area, cache);
        uint32_t upper = __atomic_load_n(upper_half(header), __ATOMIC_RELAXED);
        if (upper == 0 || upper == CPU_DRAINED) continue;
        if (upper != CPU_CLOSED) __atomic_store_n(upper_half(header), CPU_CLOSED, __ATOMIC_RELAXED);
        rounds |= rounds_at(caches, area, cache) != 0;
    }
    return rounds;
}

/* After the fence: whether a header was opened again by a sequence that was under way. */
static bool area_reopened(unsigned area) {
    for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_MAGAZINES; cache++) {
        uint32_t upper = __atomic_load_n(upper_half(header_at(area, cache)), __ATOMIC_RELAXED);
        if (upper != 0 && upper != CPU_CLOSED && upper != CPU_DRAINED) return true;
    }
    return false;
}

/* Takes the closing back: nothing was taken, tops are what their owner made them. */
static void open_area(struct cache_layer *caches, unsigned area) {
    for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_MAGAZINES; cache++) {
        struct cpu_header *header = header_at(area, cache);
        const struct depot *depot = &caches->depots[cache];
        if (*upper_half(header) != CPU_CLOSED) continue;
        uint32_t limit = (uint32_t)depot->bottom + __atomic_load_n(&depot->rounds, __ATOMIC_RELAXED);
        __atomic_store_n(upper_half(header), (uint32_t)depot->bottom | limit << 16, __ATOMIC_RELAXED);
    }
}

static uint64_t digest_area(unsigned area) {
    uint64_t digest = 1;
    for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_MAGAZINES; cache++)
        digest = digest * UINT64_C(0x9e3779b97f4a7c15) + __atomic_load_n(&header_at(area, cache)->top, __ATOMIC_RELAXED);
    return digest;
}

static bool area_has_rounds(const struct cache_layer *caches, unsigned area) {
    for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_MAGAZINES; cache++)
        if (rounds_at(caches, area, cache) != 0) return true;
    return false;
}

static void drain_area(struct cache_layer *caches, unsigned area) {
    do {
        if (!close_area(caches, area) || !platform_fence_cpus()) { /* nothing to drain, or it can't be */
            open_area(caches, area);
            return;
        }
    } while (area_reopened(area));
    for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_MAGAZINES; cache++) {
        uint32_t *upper = upper_half(header_at(area, cache));
        if (__atomic_load_n(upper, __ATOMIC_RELAXED) != CPU_CLOSED) continue;
        empty_header(caches, area, cache);
        __atomic_store_n(upper, CPU_DRAINED, __ATOMIC_RELEASE); /* the owner sees the new top before it may open */
    }
    caches->drains++;
}

void cpu_layer_drain(struct cache_layer *caches, bool idle_only) {
    if (caches->thread_mode) return;
    platform_lock_acquire(&caches->drain_lock);
    for (unsigned area = 0; area < caches->areas; area++) {
        if (!area_used(caches, area)) continue;
        uint64_t digest = digest_area(area);
        bool idle = digest == caches->digests[area];
        caches->digests[area] = digest;
        if (idle_only && !idle) continue;
        if (area_has_rounds(caches, area)) drain_area(caches, area);
        caches->digests[area] = digest_area(area);
    }
    platform_lock_release(&caches->drain_lock);
}

void cpu_layer_drain_own(struct cache_layer *caches) {
    void *rounds[CACHE_TRANSFER_MAX];
    for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_MAGAZINES; cache++) {
        unsigned count;
        while ((count = cpu_pop_batch(cache, rounds, CACHE_TRANSFER_MAX)) != 0) slab_free_batch(caches->slabs, cache, rounds, count);
    }
}

/* ------------------------------------------------------------------ looking inside, fork */

static unsigned last_area(const struct cache_layer *caches) {
    return caches->thread_mode ? __atomic_load_n(&caches->ids_made, __ATOMIC_RELAXED) : caches->areas;
}

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

STRATA_COLD const char *cpu_layer_check(const struct cache_layer *caches) {
    for (unsigned area = 0; area < last_area(caches); area++) {
        if (!area_used(caches, area)) continue;
        for (unsigned cache = SLAB_CACHE_FIRST; cache < SLAB_CACHE_MAGAZINES; cache++) {
            const struct cpu_header header = header_load(area, cache);
            const struct depot *depot = &caches->depots[cache];
            if (header.bottom == 0 && header.limit == 0) continue;
            if (header.top < depot->bottom || header.top > depot->bottom + depot->rounds_max) return "CPU layer: a top outside its array";
            if (header.limit == 0) continue; /* closed, or drained */
            if (header.bottom != depot->bottom || header.limit > depot->bottom + depot->rounds_max) return "CPU layer: an array outside its slots";
        }
    }
    return NULL;
}

/*
 * The child has one thread. Areas keep their rounds: with rseq any CPU may come to use them, and the drain reaches all.
 * Thread mode: the areas of threads that are gone are emptied and their ids are free again.
 */
STRATA_COLD void cache_fork_child(struct cache_layer *caches) {
    for (unsigned cache = SLAB_CACHE_MAGAZINES; cache-- > SLAB_CACHE_FIRST;) platform_lock_unhold(&caches->depots[cache].lock);
    platform_lock_unhold(&caches->drain_lock);
}

STRATA_COLD void cache_fork_child_settle(struct cache_layer *caches) {
    if (!caches->thread_mode) return;
    uint32_t own = platform_thread_id();
    caches->spare_count = 0;
    for (uint32_t id = 1; id < caches->ids_made; id++)
        if (id != own) retire_id(caches, id);
}
