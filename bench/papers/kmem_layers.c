/*
 * kmem_layers.c - the allocator of the kmem paper, from its sections 3.3.1 to 3.3.3, in numbers: blocks are the numbers of places in pages that hold
 * nothing, as only visits are counted.
 *
 *   - a CPU's cache of a size is `main` and `aux`, of `target` blocks at most each;
 *   - the global layer keeps lists of `target` blocks, 2 * global_target of them at most, and regroups the odd ones that flushes leave;
 *   - the coalescing layer takes blocks from the page with the fewest free ones, and gives up a page when all of its blocks are back.
 *
 * A block is PAGE * BLOCKS_MAX + its place in the page + 1. Invariant (check_empty): blocks in pages = in caches + in the global layer + in use +
 * free. No locks.
 */
#include "layers.h"
#include "load.h"

#define PAGE_BYTES ((size_t)4096)
#define BLOCKS_MAX (PAGE_BYTES >> LAYERS_SIZE_SHIFT)
#define WORDS (BLOCKS_MAX / 64)
#define TARGET_MAX 64
#define LISTS_MAX 64 /* of the global layer: 2 * global_target */
#define NOWHERE UINT32_MAX

struct list {
    unsigned count;
    uint64_t blocks[TARGET_MAX];
};

struct page {
    uint64_t free[WORDS];
    uint32_t next, before; /* of the same number of free blocks */
    uint16_t free_count;
    uint8_t size;
};

struct cpu_cache {
    struct list main, aux;
};

struct pool {
    unsigned lists_count;
    struct list lists[LISTS_MAX], bucket;
    uint32_t pages[BLOCKS_MAX];       /* by the number of free blocks: the first page with so many */
    uint64_t pages_count, free_count; /* cut up; blocks free in them */
    struct layers_counts counts;
};

static struct kmem_parameters parameters;
static unsigned cpus;
static struct cpu_cache (*caches)[LAYERS_SIZES];
static uint64_t *frees_since_flush;
static struct pool pools[LAYERS_SIZES];
static struct page *pages;
static uint32_t pages_made, pages_room, page_spare;
static uint64_t in_use;

static unsigned blocks_of(unsigned size) { return (unsigned)(BLOCKS_MAX >> size); }

/* ------------------------------------------------------------------ the coalescing layer */

static void page_link(uint32_t number) {
    struct page *page = &pages[number];
    uint32_t *first = &pools[page->size].pages[page->free_count];
    page->before = NOWHERE;
    page->next = *first;
    if (*first != NOWHERE) pages[*first].before = number;
    *first = number;
}

static void page_unlink(uint32_t number) {
    struct page *page = &pages[number];
    if (page->next != NOWHERE) pages[page->next].before = page->before;
    if (page->before != NOWHERE)
        pages[page->before].next = page->next;
    else
        pools[page->size].pages[page->free_count] = page->next;
}

static uint32_t page_split(unsigned size) {
    uint32_t number = page_spare;
    if (number != NOWHERE) {
        page_spare = pages[number].next;
    } else {
        if (pages_made == pages_room) {
            pages_room = pages_room ? 2 * pages_room : 1024;
            pages = realloc(pages, pages_room * sizeof *pages);
            if (!pages) load_fail("no memory for pages");
        }
        number = pages_made++;
    }
    struct page *page = &pages[number];
    *page = (struct page){.free_count = (uint16_t)blocks_of(size), .size = (uint8_t)size};
    for (unsigned i = 0; i < blocks_of(size); i++) page->free[i / 64] |= UINT64_C(1) << i % 64;
    pools[size].pages_count++;
    pools[size].free_count += blocks_of(size);
    pools[size].counts.alloc.pages++;
    return number;
}

static uint64_t coalescing_take(unsigned size) {
    struct pool *pool = &pools[size];
    unsigned fewest = 1;
    while (fewest < blocks_of(size) && pool->pages[fewest] == NOWHERE) fewest++;
    uint32_t number = fewest < blocks_of(size) ? pool->pages[fewest] : NOWHERE;
    if (number != NOWHERE)
        page_unlink(number);
    else
        number = page_split(size);
    struct page *page = &pages[number];
    unsigned word = 0;
    while (!page->free[word]) word++;
    unsigned place = word * 64 + (unsigned)__builtin_ctzll(page->free[word]);
    page->free[word] &= page->free[word] - 1;
    pool->free_count--;
    if (--page->free_count) page_link(number);
    return (uint64_t)number * BLOCKS_MAX + place + 1;
}

static void coalescing_give(uint64_t block) {
    uint32_t number = (uint32_t)((block - 1) / BLOCKS_MAX);
    unsigned place = (unsigned)((block - 1) % BLOCKS_MAX);
    struct page *page = &pages[number];
    struct pool *pool = &pools[page->size];
    uint64_t bit = UINT64_C(1) << place % 64;
    if (page->free[place / 64] & bit) load_fail("a block came back twice");
    if (page->free_count) page_unlink(number);
    page->free[place / 64] |= bit;
    page->free_count++;
    pool->free_count++;
    if (page->free_count < blocks_of(page->size)) {
        page_link(number);
        return;
    }
    pool->counts.free.pages++;
    pool->pages_count--;
    pool->free_count -= blocks_of(page->size);
    page->next = page_spare;
    page_spare = number;
}

/* ------------------------------------------------------------------ the global layer */

static void global_take(unsigned size, struct list *list) {
    struct pool *pool = &pools[size];
    pool->counts.alloc.global++;
    if (!pool->lists_count && pool->bucket.count) {
        *list = pool->bucket;
        pool->bucket.count = 0;
        return;
    }
    if (!pool->lists_count) {
        pool->counts.alloc.coalescing++;
        for (; pool->lists_count < parameters.global_target[size]; pool->lists_count++) {
            struct list *fresh = &pool->lists[pool->lists_count];
            for (fresh->count = 0; fresh->count < parameters.target[size]; fresh->count++) fresh->blocks[fresh->count] = coalescing_take(size);
        }
    }
    *list = pool->lists[--pool->lists_count];
}

static void global_put(unsigned size, const struct list *list) {
    struct pool *pool = &pools[size];
    if (pool->lists_count == 2 * parameters.global_target[size]) {
        pool->counts.free.coalescing++;
        for (unsigned i = 0; i < parameters.global_target[size]; i++) {
            const struct list *excess = &pool->lists[--pool->lists_count];
            for (unsigned j = 0; j < excess->count; j++) coalescing_give(excess->blocks[j]);
        }
    }
    pool->lists[pool->lists_count++] = *list;
}

static void global_give(unsigned size, struct list *list) {
    struct pool *pool = &pools[size];
    if (list->count == parameters.target[size]) {
        global_put(size, list);
    } else {
        for (unsigned i = 0; i < list->count; i++) {
            pool->bucket.blocks[pool->bucket.count++] = list->blocks[i];
            if (pool->bucket.count < parameters.target[size]) continue;
            global_put(size, &pool->bucket);
            pool->bucket.count = 0;
        }
    }
    list->count = 0;
}

/* ------------------------------------------------------------------ the CPU's cache */

static void *kmem_alloc(unsigned cpu, size_t bytes) {
    unsigned size = layers_size_index(bytes);
    struct cpu_cache *cache = &caches[cpu][size];
    pools[size].counts.alloc.requests++;
    if (!cache->main.count) {
        if (cache->aux.count) {
            cache->main = cache->aux;
            cache->aux.count = 0;
        } else {
            global_take(size, &cache->main);
        }
    }
    in_use++;
    return (void *)(uintptr_t)cache->main.blocks[--cache->main.count];
}

static void flush(unsigned cpu) {
    for (unsigned size = 0; size < LAYERS_SIZES; size++) {
        struct cpu_cache *cache = &caches[cpu][size];
        if (!cache->main.count && !cache->aux.count) continue;
        /* One visit: the paper's CPUs come to the global layer less than once in 72 seconds for some sizes, flushes and all (table 4). */
        pools[size].counts.flushes++;
        pools[size].counts.free.global++;
        global_give(size, &cache->main);
        global_give(size, &cache->aux);
    }
}

static void kmem_free(unsigned cpu, void *block) {
    unsigned size = pages[((uintptr_t)block - 1) / BLOCKS_MAX].size;
    struct cpu_cache *cache = &caches[cpu][size];
    pools[size].counts.free.requests++;
    if (cache->main.count == parameters.target[size]) {
        if (cache->aux.count) {
            pools[size].counts.free.global++;
            global_give(size, &cache->aux);
        }
        cache->aux = cache->main;
        cache->main.count = 0;
    }
    cache->main.blocks[cache->main.count++] = (uintptr_t)block;
    in_use--;
    if (!parameters.frees_between_flushes || ++frees_since_flush[cpu] < parameters.frees_between_flushes) return;
    frees_since_flush[cpu] = 0;
    flush(cpu);
}

/* ------------------------------------------------------------------ the table of operations */

void kmem_layers_set(const struct kmem_parameters *wanted) {
    for (unsigned size = 0; size < LAYERS_SIZES; size++) {
        unsigned target = wanted->target[size], lists = wanted->global_target[size];
        if (!target || target > TARGET_MAX || !lists || 2 * lists > LISTS_MAX) load_fail("a target that is not allowed");
    }
    parameters = *wanted;
}

static void kmem_start(unsigned count) {
    if (!count || count > LAYERS_CPUS_MAX || !parameters.target[0]) load_fail("too many CPUs, or no parameters");
    cpus = count;
    caches = calloc(cpus, sizeof *caches);
    frees_since_flush = calloc(cpus, sizeof *frees_since_flush);
    if (!caches || !frees_since_flush) load_fail("no memory for caches");
    page_spare = NOWHERE;
    for (unsigned size = 0; size < LAYERS_SIZES; size++)
        for (unsigned i = 0; i < BLOCKS_MAX; i++) pools[size].pages[i] = NOWHERE;
}

/* Its flushes come by numbers of frees. */
static void kmem_advance(uint64_t now_us) { (void)now_us; }

static void kmem_counts(struct layers_counts counts[LAYERS_SIZES]) {
    for (unsigned size = 0; size < LAYERS_SIZES; size++) counts[size] = pools[size].counts;
}

static void kmem_memory(struct layers_memory memory[LAYERS_SIZES]) {
    for (unsigned size = 0; size < LAYERS_SIZES; size++)
        memory[size] = (struct layers_memory){.pages_bytes = pools[size].pages_count * PAGE_BYTES,
                                              .waste_bytes = pools[size].free_count << (LAYERS_SIZE_SHIFT + size)};
}

static void kmem_check_empty(void) {
    if (in_use) load_fail("blocks are in use");
    for (unsigned cpu = 0; cpu < cpus; cpu++) flush(cpu);
    for (unsigned size = 0; size < LAYERS_SIZES; size++) {
        struct pool *pool = &pools[size];
        for (unsigned i = 0; i < pool->bucket.count; i++) coalescing_give(pool->bucket.blocks[i]);
        while (pool->lists_count--)
            for (unsigned i = 0; i < pool->lists[pool->lists_count].count; i++) coalescing_give(pool->lists[pool->lists_count].blocks[i]);
        if (pool->pages_count || pool->free_count || pool->counts.alloc.pages != pool->counts.free.pages) load_fail("blocks were lost");
    }
}

const struct layers kmem_layers = {
    .name = "the paper's",
    .start = kmem_start,
    .alloc = kmem_alloc,
    .free = kmem_free,
    .advance = kmem_advance,
    .counts = kmem_counts,
    .memory = kmem_memory,
    .check_empty = kmem_check_empty,
};
