/*
 * model_batch.c - model runner of batches: strata/batch.h from end to end, mixed with single calls, on pages of all sizes, with limits, and platform
 * calls that fail.
 *
 * The reference is a list of the blocks that are held: address, usable bytes, and a stamp in what may be used. Each element of a batch is judged by
 * itself, as though it were a call of its own: what was asked for decides which errors there may be; what failed is as it was, what succeeded has its
 * size, alignment, zeros and former contents; and a batch's count is the number of elements without an error. Blocks never overlap.
 */
#include "../slab_counts.h"
#include "model_heap.h"
#include "strata/batch.h"
#include "strata/malloc.h"
#include "strata/strata.h"

#define HELD_MAX 100
#define BATCH_MAX 130
#define LIVE_BYTES_MAX (16 * MIB)

static struct model *model;
static uint64_t failures; /* injected before the operation under way */
static bool limited;
static size_t live_bytes;
static uint64_t next_stamp;
static char nowhere[64]; /* no block */

static struct held {
    unsigned char *address; /* NULL: none */
    size_t usable;
    uint64_t stamp;
} held[HELD_MAX];

/* ------------------------------------------------------------------ contents */

static size_t step_of(size_t bytes) { return bytes <= 256 ? 8 : 1016; }
static bool has_stamp(const unsigned char *address, uint64_t stamp, size_t usable, size_t bytes) {
    for (size_t at = 0; at + 8 <= bytes; at += step_of(usable)) {
        uint64_t word;
        memcpy(&word, address + at, sizeof word);
        if (word != (stamp ^ at)) return false;
    }
    return true;
}
static void put_stamp(struct held *block) {
    block->stamp = ++next_stamp * 0x9e3779b97f4a7c15u;
    for (size_t at = 0; at + 8 <= block->usable; at += step_of(block->usable)) {
        uint64_t word = block->stamp ^ at;
        memcpy(block->address + at, &word, sizeof word);
    }
}
static bool is_zero(const unsigned char *address, size_t from, size_t to) {
    for (size_t at = from; at < to; at += to - from <= 512 ? 1 : 61)
        if (address[at] != 0) return false;
    return true;
}

static void check_place(const struct held *block) {
    for (unsigned i = 0; i < HELD_MAX && !model->failed; i++) {
        const struct held *other = &held[i];
        if (other == block || other->address == NULL) continue;
        MODEL_EXPECT(model, block->address + block->usable <= other->address || other->address + other->usable <= block->address,
                     "%p (%zu bytes) overlaps %p (%zu bytes)", (void *)block->address, block->usable, (void *)other->address, other->usable);
    }
}

/* ------------------------------------------------------------------ one element, judged */

struct asked {
    struct held *of; /* the place in `held`; NULL: an element that is no block of ours, or nothing */
    struct held before;
    void *given; /* the address that went in */
    size_t size, align, reserve;
    uintmax_t flags;
};

static bool may_fail_for_memory(size_t size, size_t align) {
    return sim_failures() != failures || limited || size > (size_t)PTRDIFF_MAX || align > (size_t)PTRDIFF_MAX - size || live_bytes > LIVE_BYTES_MAX;
}

static bool is_right_error(const struct asked *asked, int error) {
    size_t product;
    bool overflow = (asked->flags & STRATA_BATCH_RESERVE_IS_MULTIPLE) != 0 && __builtin_mul_overflow(asked->reserve, asked->size, &product);
    bool wrong = (asked->align & (asked->align - 1)) != 0 || asked->flags >= 128 || overflow;
    if (wrong || asked->given == nowhere) return error == EINVAL;
    if (asked->given == NULL && asked->size == 0) return error == 0;
    if (asked->size == 0) return error == 0;
    bool stays = asked->given != NULL && (asked->flags & STRATA_BATCH_NO_MOVE) != 0;
    bool fits = stays && asked->size <= asked->before.usable && (asked->align == 0 || ((uintptr_t)asked->given & (asked->align - 1)) == 0);
    if (error == ENOSPC) return stays && !fits && asked->size <= (size_t)PTRDIFF_MAX;
    /* One that may not move lacks memory for a growth that begins where it is. */
    if (error == ENOMEM) return !fits && (may_fail_for_memory(asked->size, asked->align));
    return error == 0;
}

static void judge(unsigned number, const struct asked *asked, void *now, size_t usable, int error) {
    MODEL_EXPECT(model, is_right_error(asked, error), "element %u: error %d", number, error);
    if (error != 0) {
        MODEL_EXPECT(model, now == asked->given, "element %u failed, and its address has changed", number);
        MODEL_EXPECT(model, usable == asked->size, "element %u failed, and its size has changed", number);
        if (asked->before.address != NULL)
            MODEL_EXPECT(model, has_stamp(now, asked->before.stamp, asked->before.usable, asked->before.usable),
                         "element %u failed, and its contents have changed", number);
        return;
    }
    if (asked->of == NULL) {
        MODEL_EXPECT(model, now == NULL, "element %u: nothing to do, but there is %p", number, now);
        return;
    }
    MODEL_EXPECT(model, (now != NULL) == (asked->size != 0), "element %u: %p for %zu bytes", number, now, asked->size);
    if (now == NULL || model->failed) return;
    MODEL_EXPECT(model, usable >= asked->size && usable == strata_malloc_usable_size(now), "element %u: %zu bytes may be used, not %zu", number,
                 strata_malloc_usable_size(now), usable);
    MODEL_EXPECT(model, ((uintptr_t)now & ((asked->align < 16 ? 16 : asked->align) - 1)) == 0, "element %u: %p is not aligned", number, now);
    MODEL_EXPECT(model, asked->given == NULL || (asked->flags & STRATA_BATCH_NO_MOVE) == 0 || now == asked->given, "element %u has moved", number);
    size_t kept = asked->before.usable < usable ? asked->before.usable : usable;
    MODEL_EXPECT(model, has_stamp(now, asked->before.stamp, asked->before.usable, kept), "element %u: contents are lost", number);
    if ((asked->flags & STRATA_BATCH_ZERO) != 0) MODEL_EXPECT(model, is_zero(now, kept, usable), "element %u: not all that is new is zero", number);
    *asked->of = (struct held){.address = now, .usable = usable};
    live_bytes += usable;
    check_place(asked->of);
    put_stamp(asked->of);
}

/* What succeeded has left its place, which others of the same batch may have: to be done for all of them before they are judged. */
static void leave(const struct asked *asked) {
    if (asked->of == NULL) return;
    live_bytes -= asked->before.usable;
    *asked->of = (struct held){0};
}

/* ------------------------------------------------------------------ batches */

static size_t size_of(uint64_t random) {
    switch (random % 8) {
    case 0: return 0;
    case 1: return live_bytes > LIVE_BYTES_MAX ? 0 : random / 8 % 16 == 0 ? random / 128 % (300 * KIB) : random / 128 % 200;
    case 2: return random / 8 % 512 == 0 && live_bytes < LIVE_BYTES_MAX ? random / 4096 % (4 * MIB) : 32;
    case 3: return random / 8 % 2000;
    default: return random / 8 % 400;
    }
}
static size_t align_of(uint64_t random) { return random % 4 != 0 ? 0 : random % 32 == 4 ? 48 : (size_t)1 << random / 32 % 14; }
static uintmax_t flags_of(uint64_t random) { return (random % 64 == 9 ? 256 : 0) | (random / 64 & 15 & (random / 1024)); }

static struct asked asked[BATCH_MAX];
static struct strata_batch_element5 five[BATCH_MAX], *fives[BATCH_MAX];
static struct strata_batch_element2 two[BATCH_MAX], *twos[BATCH_MAX];
static void *addresses[BATCH_MAX];
static int errors[BATCH_MAX];

static uint64_t random_at(const struct model_record *record, uint64_t i) {
    struct model_record drawn = model_random_record(model_bits(record, 2, 6), i);
    return model_bits(&drawn, 0, 8);
}

/* The elements: each takes a place in `held` from a random one on, or none. Those of one batch are different. */
static unsigned choose(const struct model_record *record, bool of_one_size) {
    unsigned count = record->byte[1] % 16 == 3 ? record->byte[2] % BATCH_MAX : record->byte[2] % 8, place = record->byte[3] % HELD_MAX;
    uint64_t common = random_at(record, 1000);
    for (unsigned i = 0; i < count; i++) {
        uint64_t random = random_at(record, i);
        struct asked *one = &asked[i];
        struct held *of = i < HELD_MAX ? &held[(place + i) % HELD_MAX] : NULL;
        *one = (struct asked){.size = size_of(of_one_size ? common : random), .align = align_of(common), .flags = flags_of(common >> 8)};
        if (!of_one_size) one->align = align_of(random >> 20), one->flags = flags_of(random >> 30);
        one->reserve = common >> 50 & 1 ? (size_t)(random_at(record, 1001) % (4 * MIB)) : 0;
        if (of != NULL && (random >> 60) != 0) {
            one->of = of;
            one->before = *of;
            one->given = of->address;
        } else if ((random >> 56 & 15) == 0) {
            one->given = nowhere;
        } else {
            one->size = of_one_size ? one->size : 0;
            if (one->size != 0) one->given = nowhere; /* a place for it there is none */
        }
    }
    return count;
}

static void step_batch(const struct model_record *record) {
    unsigned way = record->byte[0] % 3, count;
    bool right = true;
    size_t done, least = SIZE_MAX, expected = 0;
    count = choose(record, way == 0);
    done = count;
    memset(errors, 0xff, sizeof errors);
    for (unsigned i = 0; i < count; i++) {
        addresses[i] = asked[i].given;
        two[i] = (struct strata_batch_element2){asked[i].given, asked[i].size};
        five[i] = (struct strata_batch_element5){asked[i].given, asked[i].size, asked[i].align, asked[i].reserve, asked[i].flags};
        twos[i] = &two[i], fives[i] = &five[i];
        if (way == 1) asked[i].align = asked[0].align, asked[i].reserve = asked[0].reserve, asked[i].flags = asked[0].flags;
    }
    if (count == 0) return;
    model_trace(model, "batch_alloc%s of %u, the first %p, %zu bytes, align %zu, flags %llx",
                way == 0   ? "1"
                : way == 1 ? "2"
                           : "5",
                count, asked[0].given, asked[0].size, asked[0].align, (unsigned long long)asked[0].flags);
    if (way == 0) {
        size_t size = asked[0].size;
        void **back = strata_batch_alloc1(errors, addresses, &done, &size, asked[0].align, asked[0].reserve, asked[0].flags);
        MODEL_EXPECT(model, back == addresses, "another array came back");
        least = size;
    } else if (way == 1) {
        right = strata_batch_alloc2(errors, twos, &done, asked[0].align, asked[0].reserve, asked[0].flags);
    } else {
        right = strata_batch_alloc5(errors, fives, &done);
    }
    size_t smallest = SIZE_MAX;
    for (unsigned i = 0; i < count; i++)
        if (errors[i] == 0) leave(&asked[i]);
    for (unsigned i = 0; i < count && !model->failed; i++) {
        void *now = way == 0 ? addresses[i] : way == 1 ? two[i].ptr : five[i].ptr;
        size_t usable = way == 1 ? two[i].size : five[i].size;
        if (way == 0) usable = errors[i] == 0 && asked[i].size != 0 && now != NULL ? strata_malloc_usable_size(now) : asked[i].size;
        if (way == 0 && errors[i] == 0 && now != NULL && usable < smallest) smallest = usable;
        expected += errors[i] == 0;
        judge(i, &asked[i], now, usable, errors[i]);
    }
    MODEL_EXPECT(model, done == expected, "%zu are said to have succeeded, %zu did", done, expected);
    if (way == 0)
        MODEL_EXPECT(model, least == (smallest != SIZE_MAX ? smallest : asked[0].size), "the smallest size is %zu, not %zu", smallest, least);
    if (way != 0) MODEL_EXPECT(model, right == (done == count), "all succeeded, or not, is told wrongly");
    MODEL_EXPECT(model, errno == ERRNO_BEFORE, "errno is %d", errno);
}

/* Single calls in between: both ways know each other's blocks. */
static void step_single(const struct model_record *record) {
    struct held *block = &held[record->byte[1] % HELD_MAX];
    struct asked one = {.of = block, .before = *block, .given = block->address};
    if (record->byte[2] % 2 == 0) {
        strata_free(block->address);
        model_trace(model, "free %p", (void *)block->address);
        leave(&one);
        judge(0, &one, NULL, 0, 0);
    } else if (block->address == NULL) {
        one.size = 1 + model_bits(record, 3, 2) % 3000;
        void *now = strata_malloc(one.size);
        model_trace(model, "malloc(%zu) %p", one.size, now);
        if (now != NULL) leave(&one);
        judge(0, &one, now, now != NULL ? strata_malloc_usable_size(now) : one.size, now != NULL ? 0 : ENOMEM);
    } else {
        size_t align = record->byte[5] % 4 == 0 ? 256 : 0;
        one.size = 1 + model_bits(record, 3, 2), one.align = align, one.flags = record->byte[6] % 2 == 0 ? STRATA_BATCH_NO_MOVE : 0;
        errno = 0;
        void *now = one.flags != 0 ? strata_try_aligned_realloc(one.given, align, one.size) : strata_aligned_realloc(one.given, align, one.size);
        model_trace(model, "resize %p to %zu: %p", one.given, one.size, now);
        if (now != NULL) leave(&one);
        judge(0, &one, now != NULL ? now : one.given, now != NULL ? strata_malloc_usable_size(now) : one.size, now != NULL ? 0 : errno);
    }
    errno = ERRNO_BEFORE;
}

static void step_outside(const struct model_record *record) {
    uint64_t n = record->byte[1] % 4 == 0 ? 0 : 1 + record->byte[2] % 6u, times = record->byte[3] % 8 == 1 ? SIM_FOREVER : 1 + record->byte[3] % 4u;
    if (record->byte[4] % 2 == 0) {
        sim_fail_call(n, times);
        failures = 0; /* sim_fail_call counts anew */
        model_trace(model, "call %llu fails, %lld times", (unsigned long long)n, (long long)times);
    } else {
        sim_cpu_set(record->byte[5] % 2);
        sim_clock_advance(400 * UINT64_C(1000000));
        if (record->byte[6] % 4 == 0) (void)strata_malloc_trim(0);
        model_trace(model, "on CPU %u", record->byte[5] % 2);
    }
}

static void compare_all(void) {
    const char *wrong = strata_check();
    MODEL_EXPECT(model, wrong == NULL, "strata_check: %s", wrong);
    for (unsigned i = 0; i < HELD_MAX && !model->failed; i++)
        if (held[i].address != NULL)
            MODEL_EXPECT(model, has_stamp(held[i].address, held[i].stamp, held[i].usable, held[i].usable), "block %u has lost its contents", i);
}

/* ------------------------------------------------------------------ the run */

static void begin(struct model *of, const struct model_record *stage) {
    static const size_t pages[] = {4 * KIB, 4 * KIB, 16 * KIB, 64 * KIB};
    static const char *const confs[] = {"background:off", "background:off,hard_limit:8M", "background:off,magazine_max:0",
                                        "background:off,soft_limit:1M,magazine_max:4"};
    struct sim_config sim = {.page_bytes = pages[stage->byte[0] % 4], .thread_mode = stage->byte[2] % 4 == 1};
    unsigned conf = stage->byte[1] % ARRAY_LENGTH(confs);
    model = of;
    failures = 0;
    live_bytes = 0;
    memset(held, 0, sizeof held);
    limited = conf == 1;
    model_new_heap(of, &sim, confs[conf]);
}

static void step(struct model *of, const struct model_record *record) {
    (void)of;
    failures = sim_failures();
    switch (record->byte[0] % 32) {
    case 0: break;
    case 1 ... 22: step_batch(record); break;
    case 23 ... 28: step_single(record); break;
    case 29 ... 30: step_outside(record); break;
    default:
        /* Dearer than all else: now and then in long runs. */
        if (!model->long_run || record->byte[1] % 64 == 0) compare_all();
        break;
    }
    MODEL_EXPECT(model, sim_locks_held() == 0, "a lock is still held");
    if (!model->long_run && model->operation % 4 == 0) compare_all();
}

static void end(struct model *of) {
    (void)of;
    size_t count = 0;
    sim_fail_call(0, 0);
    failures = 0;
    compare_all();
    void *left[HELD_MAX];
    for (unsigned i = 0; i < HELD_MAX; i++)
        if (held[i].address != NULL) left[count++] = held[i].address;
    size_t all = count;
    strata_batch_alloc1(NULL, left, &count, NULL, 0, 0, 0);
    MODEL_EXPECT(model, count == all, "%zu of %zu were freed", count, all);
    for (unsigned cpu = 0; cpu < 2; cpu++) {
        sim_cpu_set(cpu);
        (void)heap_release(0);
    }
    for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_MAGAZINES; tag++)
        MODEL_EXPECT(model, slab_in_use(&heap.slabs, tag) == 0, "%s: %llu objects are lost", heap.slabs.caches[tag].name,
                     (unsigned long long)slab_in_use(&heap.slabs, tag));
    struct zone_counters counters;
    zone_counters_get(&heap.zone, &counters);
    MODEL_EXPECT(model, counters.blocks == 0 && counters.idle == 0, "%llu blocks and %llu idle granules are left",
                 (unsigned long long)counters.blocks, (unsigned long long)counters.idle);
}

static const struct model_layer batch_layer = {begin, step, end};

MODEL_EXPORT(batch, &batch_layer);
