/*
 * heap.c - composes the layers, and serves what the fast paths of malloc.c can't.
 */
#include "api/heap.h"

#include <errno.h>

#include "base/check.h"
#include "strata/strata.h"

/*
 * A heap is grouped by mobility once it was so large. In a smaller one few superpages could ever be had whole, while the pages that are idle in one
 * group's are missed in the other's, and touched there for the first time: a fifth to a third of all page faults in loads whose sizes change. (Linux
 * leaves the grouping of its pages off for the same reason on a machine of few page blocks.)
 */
#define GROUPED_BYTES (64 * MIB)
/* Huge pages for blocks of this size, and for slabs of heaps of this size: measured in docs/decisions.md, 122 and 126. */
#define HUGE_BLOCK_BYTES (64 * MIB)
#define HUGE_HEAP_BYTES (64 * MIB)

struct heap heap; /* all zeros: of what a process doesn't use of it no page is ever there */

__attribute__((weak)) STRATA_EXPORT const char *strata_conf;

static STRATA_COLD void sink_write(const char *text, size_t bytes) { platform_write_error(text, bytes); }
static STRATA_COLD void sink_die(void) {
    emergency_begin();
    platform_die();
}

static void thread_ended(uint32_t id) {
    object_caches_thread_exit(&heap.objects, id);
    cache_thread_exit(&heap.caches, id);
}

static const char *options_of_environment(void) { return platform_getenv("STRATA_CONF"); }

bool heap_has_options(void) { return strata_conf != NULL || options_of_environment() != NULL; }

static void read_options(void) {
    options_set_defaults(&heap.options);
    const char *of_environment = options_of_environment();
    if (strata_conf != NULL) options_parse(&heap.options, strata_conf, "strata_conf");
    if (of_environment != NULL && platform_info()->secure)
        log_line("STRATA_CONF: ignored, as this program runs with raised privileges"); /* of its caller, who may not have them */
    else if (of_environment != NULL)
        options_parse(&heap.options, of_environment, "STRATA_CONF");
    if (heap.options.stats != OPTION_STATS_OFF && heap.options.stats_file[0] == 0) platform_error_keep();
}

/* A small RLIMIT_DATA is for the program: the areas of all CPUs, which count whether they are used or not, shall take a small part at most. */
static bool cpu_areas_cost_too_much(void) { return (uint64_t)platform_info()->cpus * CPU_AREA_BYTES > platform_info()->data_limit_bytes / 8; }

static bool build_layers(void) {
    const struct options *options = &heap.options;
    struct zone_config config = {
        .reserve_bytes = options->reserve_bytes,
        .thp = options->thp == OPTION_THP_ALWAYS  ? ZONE_THP_ALWAYS
               : options->thp == OPTION_THP_NEVER ? ZONE_THP_NEVER
                                                  : ZONE_THP_AUTO,
        .moves = options->page_moves == OPTION_PAGE_MOVES_MREMAP ? ZONE_MOVES_MREMAP
                 : options->page_moves == OPTION_PAGE_MOVES_UFFD ? ZONE_MOVES_UFFD
                 : options->page_moves == OPTION_PAGE_MOVES_COPY ? ZONE_MOVES_COPY
                                                                 : ZONE_MOVES_AUTO,
        .huge_block_superpages = HUGE_BLOCK_BYTES >> SUPERPAGE_SHIFT,
        .huge_heap_granules = HUGE_HEAP_BYTES >> GRANULE_SHIFT,
        .populate_granules = (unsigned)(options->populate_pages * platform_info()->page_bytes >> GRANULE_SHIFT),
        .hard_limit_bytes = options->hard_limit_bytes != 0 ? options->hard_limit_bytes : UINT64_MAX,
        .soft_limit_bytes = options->soft_limit_bytes != 0 ? options->soft_limit_bytes : UINT64_MAX,
        .grouped_granules = options->grouping == OPTION_GROUPING_OFF  ? UINT64_MAX
                            : options->grouping == OPTION_GROUPING_ON ? 0
                                                                      : GROUPED_BYTES >> GRANULE_SHIFT,
    };
    heap.arenas.lock = (struct platform_lock)PLATFORM_LOCK_INIT(LOCK_RANK_ARENAS);
    if (!heap.layers_stand) { /* else it was the caches for which there was no memory the last time */
        if (!zone_init(&heap.zone, &config)) return false;
        slab_init(&heap.slabs, &heap.zone, cache_magazine_bytes);
        heap.layers_stand = true;
    }
    unsigned magazine_max = (unsigned)options->magazine_max_rounds;
    if (cache_init(&heap.caches, &heap.slabs, magazine_max)) return true;
    if (platform_cpu_mode() == PLATFORM_CPU_THREAD) return false;
    platform_cpu_force_thread_mode(); /* the areas of all CPUs may be too much at once; those of threads come one by one */
    return cache_init(&heap.caches, &heap.slabs, magazine_max);
}

bool heap_init(void) {
    if (STRATA_LIKELY(__atomic_load_n(&heap.ready, __ATOMIC_ACQUIRE))) return true;
    static const struct check_sink sink = {.write = sink_write, .die = sink_die};
    bool built = false, ready;
    heap_lock_name();
    platform_lock_acquire(&heap.lock);
    if (!heap.ready) {
        platform_init();
        check_set_sink(&sink);
        read_options();
        if (heap.options.rseq == OPTION_RSEQ_OFF || cpu_areas_cost_too_much()) platform_cpu_force_thread_mode();
        pool_layer_init(&heap.pools, &heap.zone);
        built = build_layers();
        if (built) {
            object_caches_init(&heap.objects, &heap.slabs, &heap.caches, (unsigned)heap.options.magazine_max_rounds);
            heap.started_ns = platform_first_ns();
            platform_on_thread_exit(thread_ended); /* before any thread can get an id */
            for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_MAGAZINES; tag++) heap_kmem_trust(tag);
            __atomic_store_n(&heap.small_end, SIZE_CLASS_MAX_BYTES + 1, __ATOMIC_RELEASE);
            __atomic_store_n(&heap.fine_end, SIZE_CLASS_FINE_BYTES + 1, __ATOMIC_RELEASE);
            __atomic_store_n(&heap.ready, true, __ATOMIC_RELEASE);
        }
    }
    ready = heap.ready;
    platform_lock_release(&heap.lock);
    if (built) {
        heap_fork_register(); /* where this is called before any constructor; may allocate: the heap serves it already; so may the next */
        maintenance_watch_first_thread();
        if (STRATA_UNLIKELY(heap.options.debug.length != 0 || heap.options.debug_log.length != 0)) debug_start();
    }
    return ready;
}

/* ------------------------------------------------------------------ slow paths */

static void *out_of_memory(void) {
    errno = ENOMEM;
    return NULL;
}
/* cache: the size class; 0: none. */
static STRATA_COLD void *refused(unsigned cache, size_t bytes) {
    if (heap_is_debugged()) debug_heap_failed(cache, bytes);
    return out_of_memory();
}
static STRATA_COLD void *nothing_left(unsigned cache, size_t bytes) {
    reclaim_later(bytes);
    return refused(cache, bytes);
}

/* Of an object that is aligned as all objects of its class are. */
static void *alloc_small_slow(size_t bytes, size_t align, unsigned cache) {
    void *object;
    if (heap_is_debugged() && debug_heap_alloc(cache, bytes, align, &object)) {
        maintenance_slow_call(true);
        return object != NULL ? object : out_of_memory();
    }
    object = cache_alloc_slow(&heap.caches, cache);
    if (STRATA_UNLIKELY(object == NULL)) {
        (void)heap_release(0); /* the last object may have come out of another CPU's array, without a page behind it that could be released */
        object = cache_alloc_slow(&heap.caches, cache);
    }
    if (STRATA_UNLIKELY(zone_is_untidy(&heap.zone))) zone_tidy(&heap.zone);
    maintenance_slow_call(true);
    return STRATA_LIKELY(object != NULL) ? object : nothing_left(cache, bytes);
}

void *heap_alloc_small_slow(size_t bytes, unsigned cache) { return alloc_small_slow(bytes, 1, cache); }

void *heap_alloc_slow(size_t bytes, size_t align, bool *zeroed) {
    if (zeroed != NULL) *zeroed = false;
    if (STRATA_UNLIKELY(__atomic_load_n(&heap.dying, __ATOMIC_RELAXED))) {
        void *last = emergency_alloc(bytes, align);
        return last != NULL ? last : out_of_memory();
    }
    if (STRATA_UNLIKELY(!heap_init() || bytes > HEAP_BYTES_MAX || align > HEAP_BYTES_MAX - bytes)) return refused(0, bytes);
    if (bytes <= SIZE_CLASS_MAX_BYTES && align <= GRANULE_BYTES) {
        const unsigned cache = slab_class_of_aligned(&heap.slabs, bytes, align);
        void *object = cpu_pop(cache);
        return object != NULL ? object : alloc_small_slow(bytes, align, cache);
    }
    if (heap_is_debugged() && debug_heap_refuses(bytes)) return out_of_memory();
    void *block = zone_block_cached(&heap.zone, bytes, align, zeroed != NULL);
    if (block != NULL) {
        maintenance_large_call();
        return block;
    }
    maintenance_large_coming(bytes >> GRANULE_SHIFT);
    block = zone_block_alloc(&heap.zone, bytes, align, zeroed);
    if (block == NULL && heap_release(0) != 0) block = zone_block_alloc(&heap.zone, bytes, align, zeroed);
    maintenance_slow_call(true);
    maintenance_large_call();
    return STRATA_LIKELY(block != NULL) ? block : nothing_left(0, bytes);
}

static const char *const function_names[] = {[HEAP_FREE] = "free",
                                             [HEAP_FREE_SIZED] = "free_sized",
                                             [HEAP_FREE_ALIGNED_SIZED] = "free_aligned_sized",
                                             [HEAP_REALLOC] = "realloc",
                                             [HEAP_USABLE_SIZE] = "malloc_usable_size"};

bool heap_debug_usable(enum heap_function function, const void *address, size_t *bytes) {
    return heap_is_debugged() && debug_heap_usable(function_names[function], function != HEAP_USABLE_SIZE, address, bytes);
}

bool heap_debug_allows(enum heap_function function, const void *address, size_t size) {
    if (!heap_is_debugged() || address == NULL || __atomic_load_n(&heap.dying, __ATOMIC_RELAXED)) return true;
    return debug_heap_claim_sized(function_names[function], address, size, false) != DEBUG_WRONG;
}

/* How long a report waits for the zone's lock, at most: a handler that interrupted who holds it would wait for ever. */
#define REPORT_DOZE_MAX_NS UINT64_C(32000000)

STRATA_COLD void heap_bad_block(const char *function, const void *address) {
    struct zone_block_info block;
    enum zone_status status = ZONE_NO_BLOCK;
    uint64_t interval = HEAP_DOZE_MIN_NS;
    bool known = zone_block_try_find(&heap.zone, address, &block, &status);
    while (!known && interval <= REPORT_DOZE_MAX_NS) {
        interval = heap_doze(interval);
        known = zone_block_try_find(&heap.zone, address, &block, &status);
    }
    if (!known) fatal("%s(): %p: not an allocated block (double free, or inside a block)", function, address);
    if (status == ZONE_OK && block.start != address)
        fatal("%s(): %p: not the start of a block (%zu bytes inside the block at %p)", function, address,
              (size_t)((const char *)address - block.start), (void *)block.start);
    fatal("%s(): %p: not an allocated block (double free, or never allocated by malloc)", function, address);
}

void heap_bad_address(enum heap_function function, const void *address) {
    const char *name = function_names[function];
    heap_init(); /* it may be the first call of the process: then for the message */
    if (!zone_contains(&heap.zone, address)) fatal("%s(): %p: not a pointer of this heap", name, address);
    unsigned tag = heap.zone.tags[zone_granule_of(&heap.zone, address)] & 0xff;
    if (tag >= SLAB_CACHE_FIRST && tag < SLAB_CACHE_MAGAZINES)
        fatal("%s(): %p: not the start of an object (cache %s)", name, address, heap.slabs.caches[tag].name);
    if (tag == TAG_POOL) fatal("%s(): %p: memory of a fixed pool, whose objects strata_pool_free takes back", name, address);
    heap_bad_block(name, address);
}

void heap_free_slow(enum heap_function function, unsigned tag, void *object) {
    if (STRATA_UNLIKELY(__atomic_load_n(&heap.dying, __ATOMIC_RELAXED))) return;
    if (STRATA_LIKELY(tag >= SLAB_CACHE_FIRST && tag < SLAB_CACHE_MAGAZINES)) {
        cache_free_slow(&heap.caches, tag, object);
    } else if (tag == TAG_DEBUG && debug_heap_free(function_names[function], object)) {
        /* a debugged buffer */
    } else if (tag != TAG_BLOCK || !zone_block_free(&heap.zone, object)) {
        heap_bad_address(function, object);
    }
    maintenance_slow_call(false);
}

void heap_free_odd(enum heap_function function, const void *object) {
    if (object == NULL) return;
    if (heap_is_debugged() && !__atomic_load_n(&heap.dying, __ATOMIC_RELAXED) && debug_heap_free(function_names[function], (void *)(uintptr_t)object))
        return;
    if (!__atomic_load_n(&heap.dying, __ATOMIC_RELAXED)) heap_bad_address(function, object);
}

#define HEAP_DOZE_MAX_NS UINT64_C(64000000)

STRATA_COLD uint64_t heap_doze(uint64_t interval_ns) {
    struct platform_event never = {0};
    platform_event_wait(&never, interval_ns);
    return min_u64(interval_ns * 2, HEAP_DOZE_MAX_NS);
}

STRATA_COLD size_t heap_release(size_t keep_bytes) {
    if (__atomic_load_n(&heap.dying, __ATOMIC_RELAXED) || !heap_init()) return 0;
    cache_drain(&heap.caches);
    if (__atomic_load_n(&heap.objects.layers, __ATOMIC_ACQUIRE) != NULL) object_caches_reap_silent(&heap.objects);
    if (heap_is_debugged()) debug_heap_reap();
    return zone_release(&heap.zone, keep_bytes);
}

STRATA_SELDOM const char *heap_check(void) {
    if (!heap_init()) return NULL;
    const char *broken = cache_check(&heap.caches);
    if (broken == NULL) broken = object_caches_check(&heap.objects);
    if (broken == NULL) broken = slab_check(&heap.slabs);
    if (broken == NULL) broken = zone_check(&heap.zone);
    if (broken == NULL) broken = arenas_check();
    if (broken == NULL && heap_is_debugged()) broken = debug_heap_check();
    return broken;
}
