/*
 * model_api.c - model runner of api/: the malloc family from end to end, on pages of 4, 16 or 64 KiB, with limits, and platform calls that fail.
 *
 * The reference is a list of the blocks that are held: address, size, and how much may be used. A new block overlaps none of them, is aligned as
 * asked, has room for what was asked, and reads as zeros where that was promised; what is held keeps its stamps at both ends of what may be used,
 * and within it; an allocation fails only where a platform call did, or the limit is near, and then with ENOMEM and nothing changed.
 */
#include <pthread.h>

#include "../slab_counts.h"
#include "model_heap.h"
#include "strata/malloc.h"
#include "strata/strata.h"

#define HELD_MAX 400
#define LIVE_BYTES_MAX (96 * MIB)
#define STEP_BYTES 1024 /* from stamp to stamp */
#define MS UINT64_C(1000000)

/* Each run is a new process with a heap of its own; handlers of runs before it must not pile up. */
__attribute__((visibility("hidden"))) int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) {
    (void)prepare, (void)parent, (void)child;
    return 0;
}

static struct model *model;
static uint64_t failures;   /* injected before the operation under way */
static uint64_t hard_limit; /* UINT64_MAX: none */

static struct held {
    unsigned char *address;
    size_t bytes, usable;
    uint64_t stamp;
} held[HELD_MAX];
static unsigned held_count;
static size_t live_bytes;

/* ------------------------------------------------------------------ contents */

static void put_word(unsigned char *at, uint64_t word) { memcpy(at, &word, sizeof word); }
static uint64_t get_word(const unsigned char *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

static size_t step_of(size_t bytes) { return bytes <= 512 ? 8 : STEP_BYTES; }

/* A word in every step, the last word of what was asked, and the last one of what may be used. */
static void put_stamps(const struct held *block) {
    size_t bytes = block->bytes;
    for (size_t at = 0; at + 16 <= bytes; at += step_of(bytes)) put_word(block->address + at, block->stamp ^ at);
    if (bytes >= 8) put_word(block->address + bytes - 8, block->stamp ^ bytes);
    if (block->usable >= bytes + 8) put_word(block->address + block->usable - 8, ~block->stamp);
}

/* What was asked for when the block was as `block` says, as far as `bytes` reach, now at `address`. */
static bool has_stamps(const struct held *block, const unsigned char *address, size_t bytes) {
    for (size_t at = 0; at + 16 <= block->bytes && at + 8 <= bytes; at += step_of(block->bytes))
        if (get_word(address + at) != (block->stamp ^ at)) return false;
    return block->bytes < 8 || block->bytes > bytes || get_word(address + block->bytes - 8) == (block->stamp ^ block->bytes);
}

static void check_contents(const struct held *block) {
    bool end = block->usable < block->bytes + 8 || get_word(block->address + block->usable - 8) == ~block->stamp;
    MODEL_EXPECT(model, has_stamps(block, block->address, block->bytes) && end, "%p, %zu bytes: overwritten", (void *)block->address, block->bytes);
}

static bool reads_as_zeros(const unsigned char *address, size_t bytes) {
    for (size_t at = 0; at < bytes; at += at < 256 || at + 256 > bytes ? 1 : 97)
        if (address[at] != 0) return false;
    return true;
}

/* ------------------------------------------------------------------ what is held */

static bool memory_is_scarce(size_t bytes) {
    if (hard_limit == UINT64_MAX) return false;
    struct zone_counters counters;
    zone_counters_get(&heap.zone, &counters);
    /* The slab that a small object may need is of 80 KiB at most, or of one page; magazines need slabs too. */
    return (counters.allocated << GRANULE_SHIFT) + bytes + 256 * KIB > hard_limit;
}

/* After each call that may fail: errno says whether it did. */
static bool check_result(const void *address, size_t bytes) {
    int error = errno;
    errno = ERRNO_BEFORE;
    MODEL_EXPECT(model, error == (address != NULL ? ERRNO_BEFORE : ENOMEM), "errno is %d, the result %p", error, address);
    MODEL_EXPECT(model, address != NULL || sim_failures() != failures || memory_is_scarce(bytes), "no memory for %zu bytes, though there is some",
                 bytes);
    return address != NULL;
}

static void adopt(void *address, size_t bytes, size_t align, uint64_t stamp) {
    struct held block = {.address = address, .bytes = bytes, .usable = strata_malloc_usable_size(address), .stamp = stamp};
    MODEL_EXPECT(model, ((uintptr_t)address & (align - 1)) == 0, "%p is not aligned to %zu", address, align);
    MODEL_EXPECT(model, block.usable >= bytes && block.usable >= 16, "%p: %zu bytes of %zu may be used", address, block.usable, bytes);
    for (unsigned i = 0; i < held_count && !model->failed; i++) {
        bool apart = block.address + block.usable <= held[i].address || held[i].address + held[i].usable <= block.address;
        MODEL_EXPECT(model, apart, "%p of %zu bytes overlaps %p of %zu", address, block.usable, (void *)held[i].address, held[i].usable);
    }
    if (model->failed) return;
    held[held_count++] = block;
    live_bytes += block.usable;
    put_stamps(&block);
}

static struct held disown(unsigned pick) {
    struct held block = held[pick];
    check_contents(&block);
    live_bytes -= block.usable;
    held[pick] = held[--held_count];
    return block;
}

/* ------------------------------------------------------------------ operations */

/* Sizes of all kinds: mostly small, some at the borders of classes and pages, some large. */
static size_t size_of(const struct model_record *record) {
    static const size_t borders[] = {0, 1, 16, 128, 256, 1024, 4096, 32 * KIB, 64 * KIB, 1 * MIB, 2 * MIB, 4 * MIB};
    size_t some = (size_t)model_bits(record, 2, 3);
    switch (record->byte[1] % 16) {
    case 0: return some % (8 * MIB);
    case 1: return some % (512 * KIB);
    case 2 ... 3: return borders[some % ARRAY_LENGTH(borders)] + some / 16 % 3;
    case 4 ... 6: return some % (40 * KIB);
    case 7 ... 9: return some % (4 * KIB);
    default: return some % 600;
    }
}

static void step_alloc(const struct model_record *record, bool zeroed) {
    size_t bytes = size_of(record), count = 1 + record->byte[6] % 7u;
    if (held_count == HELD_MAX || live_bytes + bytes > LIVE_BYTES_MAX) return;
    if (zeroed) bytes = bytes / count * count;
    void *address = zeroed ? strata_calloc(count, bytes / count) : record->byte[7] % 8 == 0 ? strata_realloc(NULL, bytes) : strata_malloc(bytes);
    model_trace(model, "%s %zu: %p", zeroed ? "calloc" : "malloc", bytes, address);
    if (!check_result(address, bytes)) return;
    MODEL_EXPECT(model, !zeroed || reads_as_zeros(address, bytes), "%p from calloc is not zero", address);
    adopt(address, bytes, 16, model_bits(record, 0, 8));
}

static void step_aligned(const struct model_record *record) {
    size_t bytes = size_of(record), align = (size_t)1 << record->byte[6] % 24, page = platform_info()->page_bytes;
    if (held_count == HELD_MAX || live_bytes + bytes > LIVE_BYTES_MAX) return;
    void *address = NULL;
    volatile size_t odd = 24; /* volatile: the compiler knows that this is refused */
    switch (record->byte[7] % 6) {
    case 0: address = strata_aligned_alloc(align, bytes); break;
    case 1: /* the next power of two, where it is none */ address = strata_memalign(align > 8 ? align - 3 : align, bytes); break;
    case 2:
        align = (size_t)max_u64(align, sizeof(void *));
        if (strata_posix_memalign(&address, align, bytes) != 0) errno = ENOMEM; /* which it leaves alone */
        break;
    case 3: address = strata_valloc(bytes), align = page; break;
    case 4: address = strata_pvalloc(bytes), align = page, bytes = align_up(bytes != 0 ? bytes : 1, page); break;
    case 5: /* no power of two, or below a pointer: refused, and nothing changes */
        MODEL_EXPECT(model, strata_aligned_alloc(odd, bytes) == NULL && errno == EINVAL, "an alignment of 24 was taken");
        errno = ERRNO_BEFORE;
        address = &align;
        MODEL_EXPECT(model, strata_posix_memalign(&address, 4, bytes) == EINVAL && address == &align && errno == ERRNO_BEFORE,
                     "an alignment of 4 was taken");
        return;
    }
    model_trace(model, "aligned (%u) to %zu, %zu: %p", record->byte[7] % 6, align, bytes, address);
    if (check_result(address, bytes + align + 2 * MIB)) adopt(address, bytes, max_u64(align, 16), model_bits(record, 0, 8));
}

static void step_free(const struct model_record *record) {
    if (held_count == 0) return;
    struct held block = disown((unsigned)(model_bits(record, 1, 2) % held_count));
    model_trace(model, "free %p of %zu", (void *)block.address, block.bytes);
    switch (record->byte[3] % 4) {
    case 0: strata_free_sized(block.address, block.bytes); break;
    case 1: strata_free_aligned_sized(block.address, 16, block.bytes); break;
    case 2: MODEL_EXPECT(model, strata_realloc(block.address, 0) == NULL, "realloc to 0 is not NULL"); break;
    default: strata_free(block.address); break;
    }
    strata_free(NULL);
    MODEL_EXPECT(model, errno == ERRNO_BEFORE, "free has set errno to %d", errno);
}

static void step_realloc(const struct model_record *record) {
    size_t bytes = size_of(record);
    if (held_count == 0 || bytes == 0 || live_bytes + bytes > LIVE_BYTES_MAX) return;
    struct held *block = &held[model_bits(record, 5, 2) % held_count];
    check_contents(block);
    struct held before = *block;
    if (record->byte[7] % 4 == 0) bytes = before.bytes + 1 + bytes % 64; /* in small steps, as strings grow */
    unsigned char *now = record->byte[7] % 2 == 0 ? strata_realloc(before.address, bytes) : strata_reallocarray(before.address, bytes, 1);
    model_trace(model, "realloc %p of %zu to %zu: %p", (void *)before.address, before.bytes, bytes, (void *)now);
    if (!check_result(now, bytes)) { /* the block is as it was */
        check_contents(&before);
        return;
    }
    MODEL_EXPECT(model, has_stamps(&before, now, bytes), "realloc lost the contents");
    *block = held[--held_count];
    live_bytes -= before.usable;
    adopt(now, bytes, 16, model_bits(record, 0, 8));
}

/* What can't be served whatever memory there is. Volatile: the compiler knows that, too. */
static void step_refused(const struct model_record *record) {
    volatile size_t too_large = (size_t)PTRDIFF_MAX + record->byte[1] % 3u, largest = SIZE_MAX;
    void *held_one = held_count != 0 ? held[0].address : NULL;
    model_trace(model, "sizes that can't be served");
    for (unsigned i = 0; i < 7; i++) {
        void *result = NULL;
        switch (i) {
        case 0: result = strata_malloc(too_large); break;
        case 1: result = strata_malloc(largest); break;
        case 2: result = strata_calloc(largest / 2, 3); break;
        case 3: result = strata_aligned_alloc(64, largest - 63); break;
        case 4: result = strata_pvalloc(largest); break;
        case 5: result = strata_realloc(held_one, too_large); break;
        default: result = strata_reallocarray(held_one, largest / 4, 8); break;
        }
        MODEL_EXPECT(model, result == NULL && errno == ENOMEM, "request %u: %p, errno %d", i, result, errno);
        errno = ERRNO_BEFORE;
    }
    if (held_count != 0) check_contents(&held[0]);
}

static void step_failures(const struct model_record *record) {
    uint64_t n = record->byte[1] % 4 == 0 ? 0 : 1 + record->byte[2] % 6u, times = record->byte[3] % 8 == 1 ? SIM_FOREVER : 1 + record->byte[3] % 4u;
    sim_fail_call(n, times);
    failures = 0; /* sim_fail_call counts anew */
    model_trace(model, "call %llu fails, %lld times", (unsigned long long)n, (long long)times);
}

static void step_time(const struct model_record *record) {
    sim_clock_advance((1 + record->byte[1] % 8u) * 200 * MS);
    sim_cpu_set(record->byte[2] % 2);
    sim_set_populate_ns(record->byte[4] % 3 == 0 ? 7 * MS : 0); /* huge pages are dear, or not */
    if (record->byte[3] % 4 == 0) (void)strata_malloc_trim(0);
    model_trace(model, "time passes, on CPU %u%s", record->byte[2] % 2, record->byte[3] % 4 == 0 ? ", trim" : "");
    MODEL_EXPECT(model, errno == ERRNO_BEFORE, "trim has set errno to %d", errno);
}

static void compare_all(void) {
    const char *wrong = strata_check();
    MODEL_EXPECT(model, wrong == NULL, "strata_check: %s", wrong);
    for (unsigned i = 0; i < held_count && !model->failed; i++) {
        check_contents(&held[i]);
        MODEL_EXPECT(model, strata_malloc_usable_size(held[i].address) == held[i].usable, "%p: the usable size has changed", (void *)held[i].address);
    }
}

/* ------------------------------------------------------------------ the run */

static void begin(struct model *of, const struct model_record *stage) {
    static const size_t pages[] = {4 * KIB, 4 * KIB, 16 * KIB, 64 * KIB};
    static const char *const confs[] = {"background:off",
                                        "background:off,hard_limit:8M",
                                        "background:off,magazine_max:0",
                                        "background:off,soft_limit:1M",
                                        "background:off,thp:always,decay_ms:0",
                                        "background:off,magazine_max:4,populate_pages:1"};
    struct sim_config sim = {.page_bytes = pages[stage->byte[0] % 4], .thread_mode = stage->byte[2] % 4 == 1, .no_fence = stage->byte[3] % 8 == 1};
    unsigned conf = stage->byte[1] % ARRAY_LENGTH(confs);
    model = of;
    failures = 0;
    held_count = 0;
    live_bytes = 0;
    hard_limit = conf == 1 ? 8 * MIB : UINT64_MAX;
    model_new_heap(of, &sim, confs[conf]);
}

static void step(struct model *of, const struct model_record *record) {
    (void)of;
    failures = sim_failures();
    switch (record->byte[0] % 32) {
    case 0: break;
    case 1 ... 7: step_alloc(record, false); break;
    case 8 ... 9: step_alloc(record, true); break;
    case 10 ... 11: step_aligned(record); break;
    case 12 ... 20: step_free(record); break;
    case 21 ... 26: step_realloc(record); break;
    case 27: step_refused(record); break;
    case 28: step_failures(record); break;
    case 29 ... 30: step_time(record); break;
    default: compare_all(); break;
    }
    MODEL_EXPECT(model, sim_locks_held() == 0, "a lock is still held");
    if (!model->long_run && model->operation % 4 == 0) compare_all();
}

static void end(struct model *of) {
    (void)of;
    sim_fail_call(0, 0);
    failures = 0;
    compare_all();
    while (held_count != 0 && !model->failed) strata_free(disown(held_count - 1).address);
    for (unsigned cpu = 0; cpu < 2; cpu++) {
        sim_cpu_set(cpu);
        (void)heap_release(0);
    }
    for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_MAGAZINES; tag++)
        MODEL_EXPECT(model, slab_in_use(&heap.slabs, tag) == 0 && heap.slabs.caches[tag].slabs == 0, "%s: %llu objects are lost",
                     heap.slabs.caches[tag].name, (unsigned long long)slab_in_use(&heap.slabs, tag));
    struct zone_counters counters;
    zone_counters_get(&heap.zone, &counters);
    MODEL_EXPECT(model, counters.blocks == 0 && counters.idle == 0, "%llu blocks and %llu idle granules are left",
                 (unsigned long long)counters.blocks, (unsigned long long)counters.idle);
    if (!model->failed) compare_all();
}

static const struct model_layer api_layer = {begin, step, end};

MODEL_EXPORT(api, &api_layer);
