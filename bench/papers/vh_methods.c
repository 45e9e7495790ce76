/*
 * vh_methods.c - GP, CM, VMSR and VMDR of section 4 of the VH paper, and VH itself by strata's fixed pools.
 *
 * Raw memory comes in chunks of CHUNK_BYTES at multiples of CHUNK_BYTES, whose first bytes name the thread that the chunk was taken for: this is how
 * VMSR finds the region of a block. Free blocks are linked through themselves, as the paper's allocators do. Raw memory is given back at the end.
 *
 * Locks: each is held alone, raw.lock inside any other.
 */
#include "vh_methods.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include <strata/pool.h>

#include "load.h"

#define THREADS_LIMIT 64
#define CHUNK_BYTES MIB
#define CHUNKS_LIMIT 16384
#define CLASSES 16
#define SMALLEST_CLASS_SHIFT 4

struct block_link {
    struct block_link *next;
};

/* At the start of every chunk; as long as a line, so that blocks stay aligned to lines. */
struct chunk {
    _Alignas(CACHE_LINE_BYTES) unsigned owner;
};

/* Where fresh blocks are cut from. Used by one thread at a time. */
struct supply {
    char *next, *end;
    uint64_t blocks;
};

static struct {
    pthread_mutex_t lock;
    struct chunk *chunks[CHUNKS_LIMIT]; /* guarded by lock */
    unsigned count;                     /* guarded by lock */
} raw = {.lock = PTHREAD_MUTEX_INITIALIZER};

static unsigned thread_count;
static size_t block_size;

static struct chunk *chunk_take(unsigned owner) {
    /* Twice the size has room for an aligned chunk; the rest goes back. */
    char *memory = mmap(NULL, 2 * CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) load_fail("mmap failed");
    char *start = (char *)(((uintptr_t)memory + CHUNK_BYTES - 1) & ~(uintptr_t)(CHUNK_BYTES - 1));
    if (start > memory) munmap(memory, (size_t)(start - memory));
    munmap(start + CHUNK_BYTES, (size_t)(memory + CHUNK_BYTES - start));
    struct chunk *chunk = (struct chunk *)start;
    chunk->owner = owner;
    pthread_mutex_lock(&raw.lock);
    if (raw.count == CHUNKS_LIMIT) load_fail("too many chunks");
    raw.chunks[raw.count++] = chunk;
    pthread_mutex_unlock(&raw.lock);
    return chunk;
}

static void chunks_drop(void) {
    while (raw.count) munmap(raw.chunks[--raw.count], CHUNK_BYTES);
}

static void *supply_cut(struct supply *supply, unsigned owner, size_t bytes) {
    if (supply->end - supply->next < (ptrdiff_t)bytes) {
        struct chunk *chunk = chunk_take(owner);
        supply->next = (char *)(chunk + 1);
        supply->end = (char *)chunk + CHUNK_BYTES;
    }
    void *block = supply->next;
    supply->next += bytes;
    supply->blocks++;
    return block;
}

static unsigned owner_of(const void *block) { return ((const struct chunk *)((uintptr_t)block & ~(uintptr_t)(CHUNK_BYTES - 1)))->owner; }

static inline void push(struct block_link **list, void *block) {
    struct block_link *link = block;
    link->next = *list;
    *list = link;
}

static inline void *pop(struct block_link **list) {
    struct block_link *link = *list;
    if (link) *list = link->next;
    return link;
}

static void start(unsigned threads, size_t block_bytes) {
    if (threads > THREADS_LIMIT) load_fail("too many threads");
    thread_count = threads;
    block_size = block_bytes;
}

static uint64_t not_counted(void) { return 0; }

/* GP: one global free list, one lock. CM: a free list a size, one lock for all of them, the list found by the size inside it. */

static struct {
    _Alignas(CACHE_LINE_BYTES) pthread_mutex_t lock;
    struct block_link *free[CLASSES]; /* guarded by lock; GP uses the first */
    struct supply supply;             /* guarded by lock */
} global = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void global_start(unsigned threads, size_t block_bytes) {
    start(threads, block_bytes);
    memset(global.free, 0, sizeof global.free);
    memset(&global.supply, 0, sizeof global.supply);
}

static void *gp_allocate(unsigned thread) {
    (void)thread;
    pthread_mutex_lock(&global.lock);
    void *block = pop(&global.free[0]);
    if (!block) block = supply_cut(&global.supply, 0, block_size);
    pthread_mutex_unlock(&global.lock);
    return block;
}

static void gp_release(unsigned thread, void *block) {
    (void)thread;
    pthread_mutex_lock(&global.lock);
    push(&global.free[0], block);
    pthread_mutex_unlock(&global.lock);
}

static unsigned class_of(size_t bytes) {
    unsigned index = 0;
    while (((size_t)1 << (index + SMALLEST_CLASS_SHIFT)) < bytes) index++;
    if (index >= CLASSES) load_fail("CM: block too large");
    return index;
}

static void *cm_allocate(unsigned thread) {
    (void)thread;
    pthread_mutex_lock(&global.lock);
    unsigned index = class_of(block_size);
    void *block = pop(&global.free[index]);
    if (!block) block = supply_cut(&global.supply, 0, (size_t)1 << (index + SMALLEST_CLASS_SHIFT));
    pthread_mutex_unlock(&global.lock);
    return block;
}

static void cm_release(unsigned thread, void *block) {
    (void)thread;
    pthread_mutex_lock(&global.lock);
    push(&global.free[class_of(block_size)], block);
    pthread_mutex_unlock(&global.lock);
}

static uint64_t global_blocks(void) { return global.supply.blocks; }

/*
 * VMSR and VMDR: a region R_i for each thread. VMSR returns a block to the region that it is from, by way of that region's list F_i under its lock
 * L_i where the releasing thread is another; the owner takes F_i in when it releases a block of its own. VMDR puts a block into the region of
 * whoever releases it.
 */

static struct region {
    _Alignas(CACHE_LINE_BYTES) struct block_link *free; /* of the owner alone */
    struct supply supply;                               /* of the owner alone */
    _Alignas(CACHE_LINE_BYTES) pthread_mutex_t lock;
    struct block_link *returned; /* guarded by lock */
} regions[THREADS_LIMIT];

static void regions_start(unsigned threads, size_t block_bytes) {
    start(threads, block_bytes);
    memset(regions, 0, sizeof regions);
    for (unsigned i = 0; i < threads; i++) pthread_mutex_init(&regions[i].lock, NULL);
}

static void *region_allocate(unsigned thread) {
    struct region *region = &regions[thread];
    void *block = pop(&region->free);
    return block ? block : supply_cut(&region->supply, thread, block_size);
}

static void vmsr_release(unsigned thread, void *block) {
    unsigned owner = owner_of(block);
    struct region *region = &regions[owner];
    if (owner != thread) {
        pthread_mutex_lock(&region->lock);
        push(&region->returned, block);
        pthread_mutex_unlock(&region->lock);
        return;
    }
    push(&region->free, block);
    pthread_mutex_lock(&region->lock);
    struct block_link *returned = region->returned;
    region->returned = NULL;
    pthread_mutex_unlock(&region->lock);
    while (returned) push(&region->free, pop(&returned));
}

static void vmdr_release(unsigned thread, void *block) { push(&regions[thread].free, block); }

static uint64_t region_blocks(void) {
    uint64_t blocks = 0;
    for (unsigned i = 0; i < thread_count; i++) blocks += regions[i].supply.blocks;
    return blocks;
}

/* VH: strata's pool, with the paper's sizes: m/2 objects a processor at the start, and as many whenever it has run out. */

static struct {
    struct strata_pool *pool;
    struct {
        _Alignas(CACHE_LINE_BYTES) struct strata_pool_local *pool;
    } locals[THREADS_LIMIT];
} vh;

static void vh_begin(unsigned threads, size_t block_bytes, unsigned flags) {
    size_t step = (size_t)threads * VH_LOCAL_CAPACITY / 2;
    struct strata_pool_config config = {
        .name = "events", .object_bytes = block_bytes, .m = VH_LOCAL_CAPACITY, .objects_start = step, .objects_grow = step, .flags = flags};
    start(threads, block_bytes);
    if (strata_pool_create(&config, &vh.pool) != STRATA_POOL_OK) load_fail("strata_pool_create failed");
    for (unsigned i = 0; i < threads; i++)
        if (strata_pool_local_create(vh.pool, &vh.locals[i].pool) != STRATA_POOL_OK) load_fail("strata_pool_local_create failed");
}

static void vh_start(unsigned threads, size_t block_bytes) { vh_begin(threads, block_bytes, 0); }

static void vh_stacks_start(unsigned threads, size_t block_bytes) { vh_begin(threads, block_bytes, STRATA_POOL_STACKS); }

static void *vh_allocate(unsigned thread) { return strata_pool_alloc(vh.locals[thread].pool); }

static void vh_release(unsigned thread, void *block) {
    if (strata_pool_free(vh.locals[thread].pool, block) != STRATA_POOL_OK) load_fail("strata_pool_free refused a block");
}

static struct strata_pool_stats vh_stats(void) {
    struct strata_pool_stats stats;
    if (strata_pool_stats_get(vh.pool, &stats) != STRATA_POOL_OK) load_fail("strata_pool_stats_get failed");
    return stats;
}

static uint64_t vh_blocks(void) { return vh_stats().objects; }

static uint64_t vh_accesses(void) {
    struct strata_pool_stats stats = vh_stats();
    return stats.alpha_accesses + stats.beta_accesses;
}

static void vh_end(void) {
    const char *fault = strata_pool_check(vh.pool);
    if (fault) load_fail(fault);
    for (unsigned i = 0; i < thread_count; i++) strata_pool_local_destroy(vh.locals[i].pool);
    if (strata_pool_destroy(vh.pool, NULL) != STRATA_POOL_OK) load_fail("blocks of the pool were not released");
}

const struct method *method_named(const char *name) {
    static const struct method methods[] = {
        {"VH", vh_start, vh_allocate, vh_release, vh_blocks, vh_accesses, vh_end},
        {"VH-stacks", vh_stacks_start, vh_allocate, vh_release, vh_blocks, vh_accesses, vh_end},
        {"GP", global_start, gp_allocate, gp_release, global_blocks, not_counted, chunks_drop},
        {"CM", global_start, cm_allocate, cm_release, global_blocks, not_counted, chunks_drop},
        {"VMSR", regions_start, region_allocate, vmsr_release, region_blocks, not_counted, chunks_drop},
        {"VMDR", regions_start, region_allocate, vmdr_release, region_blocks, not_counted, chunks_drop},
    };
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (!strcmp(methods[i].name, name)) return &methods[i];
    load_fail("no such method: VH, VH-stacks, GP, CM, VMSR or VMDR");
}
