/*
 * zone.c - the zone's address space: reservation, the flat arrays beside it, growth, and which superpages are free.
 *
 * Without a limit on address space all of it is reserved at once and the arena of addresses gets one span. Under a
 * limit, reservations are made piece by piece at rising addresses inside a window; where another mapping is in the way
 * the piece behind it is tried, and the hole simply belongs to no span. Lock: LOCK_RANK_ZONE, but for zone_init.
 */
#include "page/zone_internal.h"

#include "base/check.h"

#define RESERVE_BYTES_MAX ((uint64_t)1 << 40)
#define RESERVE_BYTES_MIN ((uint64_t)16 << 20)
/* Growth goes round another mapping in steps of 2, 4, 8 MiB and so on: beyond 8 GiB with this many. */
#define GROW_TRIES 12
/* How far the heap is committed ahead: saves calls, costs nothing but commit charge under strict overcommit. */
#define COMMIT_STEP_SUPERPAGES 16
/*
 * The flat arrays are a thirtieth of the heap, as commit charge, most of it descriptors and heads. They are committed for a heap that is so many
 * times as large, and for this size at least, once it has passed its first step.
 */
#define ARRAYS_AHEAD_SMALL 64 /* superpages and tags */
#define ARRAYS_AHEAD_LARGE 4  /* descriptors and heads */
#define ARRAYS_AHEAD_MIN ((uint64_t)128 << 20)
/* From this size on a heap with a block that grows has one of them committed ahead of need. */
#define ARRAYS_GROWTH_BYTES ((uint64_t)4 << 20)
/*
 * Where what is committed costs nothing until it is used, and a large block grows: the heap for a GiB more, and the arrays for as much. So the steps
 * that follow need no call, whose way through the kernel has left the processor's caches while the program wrote to all those pages.
 */
#define HEAP_AHEAD_FROM ((uint64_t)16 << 20)
#define HEAP_AHEAD_BYTES ((uint64_t)1 << 30)
/* Superpages and tags of a first GiB are less than a MiB: they come with the first step, so that no growth calls for them. */
#define ARRAYS_FIRST_BYTES (HEAP_AHEAD_BYTES + ARRAYS_AHEAD_MIN)
/* From so many on, four pages of marks, these are made present by one call. */
#define MARKS_SUPERPAGES 64

static void *arena_memory_get(void *context, size_t bytes) { return zone_metadata_alloc(context, bytes); }
static void arena_memory_put(void *context, void *memory, size_t bytes) { zone_metadata_free(context, memory, bytes); }
static const struct arena_ops address_ops = {.memory_get = arena_memory_get, .memory_put = arena_memory_put};

/* The sizes of the flat arrays for a window, in the order in which they are laid out. */
struct layout {
    size_t superpages, tags, descs, heads, bootstrap, total;
};

static struct layout layout_of(uint64_t window_bytes, size_t page_bytes) {
    uint64_t superpages = window_bytes >> SUPERPAGE_SHIFT, granules = window_bytes >> GRANULE_SHIFT;
    struct layout layout = {
        .superpages = align_up(superpages * sizeof(struct superpage), page_bytes),
        .tags = align_up(granules * sizeof(granule_tag), page_bytes),
        .descs = align_up(granules * sizeof(struct granule_desc), page_bytes),
        .heads = align_up(superpages * sizeof(struct head_area), page_bytes),
        .bootstrap = align_up(max_u64(window_bytes / 256, MIB), page_bytes),
    };
    layout.total = layout.superpages + layout.tags + layout.descs + layout.heads + layout.bootstrap;
    return layout;
}

/* One reservation: the heap, where `whole`, and the arrays behind it. */
struct window {
    char *start;
    size_t bytes;
};

/* Reserves heap and arrays for `window_bytes`, the heap itself only where `whole`. */
static bool reserve_window(struct zone *zone, uint64_t window_bytes, bool whole, struct window *window) {
    size_t page_bytes = platform_info()->page_bytes;
    struct layout layout = layout_of(window_bytes, page_bytes);
    size_t heap_bytes = whole ? window_bytes : 0;
    window->bytes = heap_bytes + (whole ? align_up(layout.total, SUPERPAGE_BYTES) : layout.total);
    window->start = platform_reserve(NULL, window->bytes, SUPERPAGE_BYTES);
    if (window->start == NULL) return false;
    char *start = window->start, *arrays = start + heap_bytes;
    zone->superpages = (struct superpage *)(void *)arrays;
    zone->tags = (granule_tag *)(void *)(arrays + layout.superpages);
    zone->descs = (struct granule_desc *)(void *)(arrays + layout.superpages + layout.tags);
    zone->heads = (struct head_area *)(void *)(arrays + layout.superpages + layout.tags + layout.descs);
    zone->metadata.next = zone->metadata.committed = (char *)zone->heads + layout.heads;
    zone->metadata.end = zone->metadata.next + layout.bootstrap;
    zone->window_bytes = window_bytes;
    zone->growing = !whole;
    if (whole) {
        zone->base = (uintptr_t)start;
        zone->reserved_bytes = window_bytes;
    } else {
        /* Room to grow upwards: well below where the system has just put something, as it fills its space downwards. The arrays end it. */
        uintptr_t distance = max_u64((uintptr_t)1 << 36, window_bytes);
        uintptr_t at = (uintptr_t)start;
        zone->base = align_down(at > 2 * distance ? at - distance : at / 2, SUPERPAGE_BYTES);
        zone->reserved_bytes = 0;
    }
    return true;
}

bool zone_init(struct zone *zone, const struct zone_config *config) {
    const struct platform_info *info = platform_info();
    __builtin_memset(zone, 0, offsetof(struct zone, run_caches));
    zone->config = *config;
    zone->lock = (struct platform_lock)PLATFORM_LOCK_INIT(LOCK_RANK_ZONE);
    zone->metadata.lock = (struct platform_lock)PLATFORM_LOCK_INIT(LOCK_RANK_METADATA);
    zone->page_granules = info->page_bytes > GRANULE_BYTES ? (unsigned)(info->page_bytes >> GRANULE_SHIFT) : 1;
    for (unsigned m = 0; m < MOBILITY_GROUPS; m++)
        for (unsigned b = 0; b < ZONE_BUCKETS; b++) list_init(&zone->buckets[m][b]);
    zone_present_init(zone);
    for (unsigned i = 0; i < IDLE_LISTS; i++) list_init(&zone->idle[i]);
    list_init(&zone->captures);
    zone->mover.faults = (struct platform_faults)PLATFORM_FAULTS_CLOSED;

    struct window window;
    uint64_t limit = info->address_limit_bytes;
    if (limit < RESERVE_BYTES_MAX * 2) {
        /* The limit counts every mapping of the process: take as little as can be grown from. */
        uint64_t window_bytes = align_up(max_u64(limit, RESERVE_BYTES_MIN), SUPERPAGE_BYTES) * 2;
        if (!reserve_window(zone, window_bytes, false, &window)) return false;
    } else {
        uint64_t window_bytes =
            config->reserve_bytes != 0 ? align_up(max_u64(config->reserve_bytes, RESERVE_BYTES_MIN), SUPERPAGE_BYTES) : RESERVE_BYTES_MAX;
        while (!reserve_window(zone, window_bytes, true, &window)) {
            if (window_bytes <= RESERVE_BYTES_MIN) return false;
            window_bytes = align_down(window_bytes / 4, SUPERPAGE_BYTES);
        }
    }
    zone_longer_init(zone, zone->growing || config->hard_limit_bytes != UINT64_MAX);
    zone->counters.mappings = 5;
    CHECK(arena_init(&zone->addresses, "heap", SUPERPAGE_BYTES, &address_ops, zone, ARENA_BEST_FIT) == ARENA_OK);
    if (zone->growing || arena_add(&zone->addresses, zone->base, zone->window_bytes) == ARENA_OK) return true;
    platform_unreserve(window.start, window.bytes); /* the arena's tags are in it */
    return false;
}

/* Commits the elements [from, to) of a flat array, as whole pages; what is committed twice at the edges does no harm. */
static bool commit_array(const void *array, size_t element_bytes, size_t from, size_t to) {
    size_t page = platform_info()->page_bytes;
    uintptr_t start = align_down((uintptr_t)array + from * element_bytes, page);
    uintptr_t end = align_up((uintptr_t)array + to * element_bytes, page);
    return platform_commit((void *)start, end - start);
}

void zone_populate_marks(struct zone *zone, size_t from, size_t end) {
    size_t page = platform_info()->page_bytes;
    uintptr_t first = align_up((uintptr_t)&zone->superpages[from], page), last = align_up((uintptr_t)&zone->superpages[end], page);
    if (end - from >= MARKS_SUPERPAGES && first < last) (void)platform_populate((void *)first, last - first);
}

enum zone_array { ARRAY_DESCS, ARRAY_HEADS, ARRAY_SUPERPAGES, ARRAY_TAGS };

/* One of the arrays for a heap of `end` bytes. */
static bool commit_array_to(struct zone *zone, enum zone_array array, uint64_t end) {
    uint64_t from = zone->arrays_bytes[array];
    bool ok = false;
    switch (array) {
    case ARRAY_SUPERPAGES: ok = commit_array(zone->superpages, sizeof(struct superpage), from >> SUPERPAGE_SHIFT, end >> SUPERPAGE_SHIFT); break;
    case ARRAY_TAGS: ok = commit_array(zone->tags, sizeof(granule_tag), from >> GRANULE_SHIFT, end >> GRANULE_SHIFT); break;
    case ARRAY_DESCS: ok = commit_array(zone->descs, sizeof(struct granule_desc), from >> GRANULE_SHIFT, end >> GRANULE_SHIFT); break;
    case ARRAY_HEADS: ok = commit_array(zone->heads, sizeof(struct head_area), from >> SUPERPAGE_SHIFT, end >> SUPERPAGE_SHIFT); break;
    }
    if (ok) zone->arrays_bytes[array] = end;
    return ok;
}

/* For how large a heap an array is committed when it is committed for one of `end` bytes. */
static uint64_t array_ahead(const struct zone *zone, enum zone_array array, uint64_t end, uint64_t least) {
    uint64_t ahead = max_u64(least, end * (array <= ARRAY_HEADS ? ARRAYS_AHEAD_LARGE : ARRAYS_AHEAD_SMALL));
    return min_u64(zone->window_bytes, ahead);
}

/* The arrays for a heap of `end` bytes; ahead beyond its first step, the small ones from the start, where no limit counts them. */
static bool commit_arrays(struct zone *zone, uint64_t end) {
    bool first = end <= COMMIT_STEP_SUPERPAGES * SUPERPAGE_BYTES, limited = platform_info()->data_limit_bytes != UINT64_MAX;
    for (unsigned array = 0; array < ZONE_ARRAYS; array++) {
        bool large = array <= ARRAY_HEADS, ahead = first ? !large && !limited : true;
        uint64_t least = large || limited ? ARRAYS_AHEAD_MIN : ARRAYS_FIRST_BYTES;
        if (end <= zone->arrays_bytes[array]) continue;
        if (!(ahead && commit_array_to(zone, array, array_ahead(zone, array, end, least))) && !commit_array_to(zone, array, end)) return false;
    }
    return true;
}

/* Up to where the heap is committed ahead of a large block that ends at `end`: a fork, too, looks at what is committed, each mapping by itself. 0:
 * not. */
static uint64_t heap_ahead(const struct zone *zone, uint64_t end) {
    uint64_t ahead = min_u64(zone->window_bytes, end + HEAP_AHEAD_BYTES);
    return zone->commits == COMMITS_FREE && ahead <= platform_memory_bytes() / 2 ? ahead : 0;
}

static STRATA_COLD bool commit_heap_ahead(struct zone *zone, uint64_t end) {
    uint64_t ahead = end < HEAP_AHEAD_FROM ? 0 : heap_ahead(zone, end);
    if (ahead <= zone->heap_bytes || !platform_commit((char *)zone->base + zone->heap_bytes, ahead - zone->heap_bytes)) return false;
    zone->heap_bytes = ahead;
    return true;
}

/* How many of the arrays were committed for a heap that ends at `bytes` and goes on. */
static STRATA_COLD unsigned commit_arrays_ahead(struct zone *zone, uint64_t bytes) {
    uint64_t least = heap_ahead(zone, bytes) != 0 ? ARRAYS_FIRST_BYTES : ARRAYS_AHEAD_MIN;
    uint64_t soon = min_u64(zone->window_bytes, max_u64(2 * bytes, least / 2));
    unsigned most = zone->commits == COMMITS_FREE ? ZONE_ARRAYS : 1, count = 0;
    for (unsigned array = 0; array < ZONE_ARRAYS && count < most; array++)
        count += zone->arrays_bytes[array] < soon && commit_array_to(zone, array, array_ahead(zone, array, bytes, least));
    return count;
}

STRATA_COLD void zone_tidy(struct zone *zone) {
    platform_lock_acquire(&zone->lock);
    if (zone_is_untidy(zone)) platform_commit_asked();
    __atomic_store_n(&zone->commits_asked, false, __ATOMIC_RELAXED);
    platform_lock_release(&zone->lock);
}

STRATA_COLD void zone_grow_ahead(struct zone *zone, const char *end, uint64_t heap_before) {
    uint64_t bytes = (uintptr_t)end - zone->base;
    bool called = zone->heap_bytes != heap_before; /* after the heap's own call another one is cheap; alone it would meet cold caches */
    if (zone->growing || platform_info()->data_limit_bytes != UINT64_MAX) return;
    switch (zone->commits) {
    case COMMITS_UNKNOWN:
        zone->commits = platform_may_lock(zone->window_bytes) ? COMMITS_CHARGED : COMMITS_UNLOCKED;
        if (zone->commits == COMMITS_UNLOCKED) (void)platform_memory_bytes(); /* two cheap questions by one cold way: it is wanted later */
        return;
    case COMMITS_UNLOCKED:
        zone->commits = platform_commit_is_charged() ? COMMITS_CHARGED : COMMITS_FREE;
        __atomic_store_n(&zone->commits_asked, true, __ATOMIC_RELAXED);
        return;
    case COMMITS_CHARGED:
    case COMMITS_FREE: break;
    }
    if (bytes < ARRAYS_GROWTH_BYTES || (!called && bytes > ARRAYS_AHEAD_MIN / 2) || commit_arrays_ahead(zone, bytes) != 0) return;
    if (zone->heap_bytes < 2 * bytes) (void)commit_heap_ahead(zone, bytes); /* the next step would have to call */
}

/* The heap itself up to `end`, whose arrays follow; `marks` is false where a large block grows. */
static bool commit_heap(struct zone *zone, uint64_t end, bool marks) {
    if (zone->growing || end <= zone->heap_bytes || (!marks && commit_heap_ahead(zone, end))) return true;
    if (!platform_commit((char *)zone->base + zone->heap_bytes, end - zone->heap_bytes)) return false;
    zone->heap_bytes = end;
    return true;
}

static bool extend_to(struct zone *zone, uint64_t end, bool marks) {
    uint64_t from = zone->extent_bytes;
    /* The heap first: where that is refused the arrays for it would take what is left of a limit on data. */
    if (!commit_heap(zone, end, marks) || !commit_arrays(zone, end)) return false;
    if (marks) {
        zone_populate_marks(zone, from >> SUPERPAGE_SHIFT, end >> SUPERPAGE_SHIFT);
        *(volatile uint8_t *)&zone->superpages[from >> SUPERPAGE_SHIFT].state =
            SUPERPAGE_FREE; /* as it is: one fault, where a look first would be two */
    }
    zone->extent_bytes = end;
    /* Pairs with the acquire in zone_contains: whoever sees the new extent may read its tags. */
    __atomic_store_n(&zone->extent_units, end >> 4, __ATOMIC_RELEASE);
    return true;
}

/* Makes the heap and its arrays usable up to `end_bytes` from the base; beyond, to have fewer calls, where a limit on data allows it. */
static bool extend(struct zone *zone, uint64_t end_bytes, bool marks) {
    if (end_bytes <= zone->extent_bytes) return true;
    uint64_t ahead = min_u64(zone->window_bytes, zone->extent_bytes + COMMIT_STEP_SUPERPAGES * SUPERPAGE_BYTES);
    if (!zone->growing && ahead > end_bytes && extend_to(zone, ahead, marks)) return true;
    return extend_to(zone, end_bytes, marks);
}

/* Under a limit: one more piece of address space of at least `bytes`, committed at once. */
static STRATA_SELDOM bool grow(struct zone *zone, uint64_t bytes) {
    uint64_t wanted = max_u64(bytes, 2 * SUPERPAGE_BYTES);
    uint64_t at = zone->reserved_bytes;
    for (;;) {
        uint64_t size = wanted;
        for (unsigned tries = 0; tries < GROW_TRIES && at + size <= zone->window_bytes; at += SUPERPAGE_BYTES << tries++) {
            char *address = (char *)zone->base + at;
            if (!platform_reserve_at(address, size)) continue;
            if (platform_commit(address, size) && extend(zone, at + size, true) &&
                arena_extend(&zone->addresses, (uintptr_t)address, size) == ARENA_OK) {
                zone->reserved_bytes = at + size;
                zone->counters.mappings++;
                return true;
            }
            platform_unreserve(address, size);
            break;
        }
        if (wanted == bytes) return false;
        wanted = bytes;
        at = zone->reserved_bytes;
    }
}

struct superpage *zone_superpages_take(struct zone *zone, size_t count, size_t align) {
    uint64_t bytes = (uint64_t)count << SUPERPAGE_SHIFT;
    uint64_t align_bytes = (uint64_t)align << SUPERPAGE_SHIFT;
    uint64_t address;
    if (count > zone->window_bytes >> SUPERPAGE_SHIFT) return NULL;
    for (;;) {
        enum arena_status status = align > 1 ? arena_xalloc(&zone->addresses, bytes, align_bytes, 0, 0, 0, 0, ARENA_BEST_FIT, &address)
                                             : arena_alloc(&zone->addresses, bytes, ARENA_BEST_FIT, &address);
        if (status == ARENA_OK) break;
        if (!zone->growing || !grow(zone, align > 1 ? bytes + align_bytes : bytes)) return NULL;
    }
    struct superpage *first = &zone->superpages[(address - zone->base) >> SUPERPAGE_SHIFT];
    if (!zone_superpages_commit(zone, first, count, true)) {
        zone_superpages_give(zone, first, count);
        return NULL;
    }
    return first;
}

static void note_used(struct zone *zone, const struct superpage *end) {
    zone->used_superpages = max_u64(zone->used_superpages, (size_t)(end - zone->superpages));
}

/* Some of them may never have been used before, as the heap is committed ahead. */
STRATA_RARE bool zone_superpages_take_at(struct zone *zone, const struct superpage *first, size_t count) {
    const uint64_t address = (uintptr_t)superpage_address(zone, first), bytes = (uint64_t)count << SUPERPAGE_SHIFT;
    uint64_t taken;
    if (arena_xalloc(&zone->addresses, bytes, 0, 0, 0, address, address + bytes, ARENA_INSTANT_FIT, &taken) != ARENA_OK) return false;
    note_used(zone, first + count);
    return true;
}

bool zone_superpages_commit(struct zone *zone, const struct superpage *first, size_t count, bool marks) {
    size_t end = (size_t)(first - zone->superpages) + count;
    if (!extend(zone, (uint64_t)end << SUPERPAGE_SHIFT, marks)) return false;
    note_used(zone, first + count);
    return true;
}

void zone_superpages_give(struct zone *zone, struct superpage *first, size_t count) {
    uint64_t address = (uint64_t)(uintptr_t)superpage_address(zone, first);
    CHECK(arena_free(&zone->addresses, address, (uint64_t)count << SUPERPAGE_SHIFT) == ARENA_OK);
}

/* What is on its way to the system is marked allocated (lookaside.c), and nobody's. */
static uint64_t in_use(const struct zone *zone) { return zone->counters.allocated - zone->captured; }

bool zone_within_limit(struct zone *zone, uint64_t granules) {
    uint64_t limit = zone->config.hard_limit_bytes >> GRANULE_SHIFT;
    granules += zone->outside;
    if (granules > limit) return false;
    return in_use(zone) <= limit - granules || (zone_wake_runs(zone) && in_use(zone) <= limit - granules);
}

STRATA_COLD bool zone_outside_take(struct zone *zone, uint64_t granules) {
    zone_lock(zone);
    bool within = zone_within_limit(zone, granules);
    if (within) zone->outside += granules;
    platform_lock_release(&zone->lock);
    return within;
}
STRATA_COLD void zone_outside_give(struct zone *zone, uint64_t granules) {
    zone_lock(zone);
    zone->outside -= granules;
    platform_lock_release(&zone->lock);
}

/* Atomic, and a release: pairs with zone_tag_of. */
void zone_tag_run(struct zone *zone, void *address, unsigned granules, unsigned tag) {
    granule_tag *tags = &zone->tags[zone_granule_of(zone, address)];
    for (unsigned i = 0; i < granules; i++) __atomic_store_n(&tags[i], (granule_tag)(tag == TAG_NONE ? 0 : tag | i << 8), __ATOMIC_RELEASE);
}

STRATA_COLD void zone_fork_prepare(struct zone *zone) {
    platform_lock_hold(&zone->lock);
    zone_mark_growth(zone); /* the child has only marks that are true */
    zone_compact_fork_prepare(zone);
    zone_run_caches_hold(zone);
    arena_fork_prepare(&zone->addresses);
    platform_lock_hold(&zone->metadata.lock);
}
STRATA_COLD void zone_fork_parent(struct zone *zone) {
    platform_lock_unhold(&zone->metadata.lock);
    arena_fork_parent(&zone->addresses);
    zone_run_caches_unhold(zone);
    platform_lock_unhold(&zone->lock);
}
STRATA_COLD void zone_fork_child(struct zone *zone) {
    platform_lock_unhold(&zone->metadata.lock);
    arena_fork_child(&zone->addresses);
    zone_run_caches_unhold(zone);
    platform_lock_unhold(&zone->lock);
    zone_drop_captures(zone);
    for (size_t i = 0; zone->young != 0 && i < zone->used_superpages; i++) zone->superpages[i].young = false; /* whose threads are not here */
    zone->young = 0;
    platform_faults_close(&zone->mover.faults);
    zone->mover.process = 0;
    zone_compact_fork_child(zone);
}
