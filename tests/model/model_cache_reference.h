/*
 * model_cache_reference.h - the naive reference of model_cache.c: every array of the CPU layer, every full magazine and every object that is held,
 * as lists of pointers.
 *
 * It knows what each operation must do to them, and how lists that are no magazine are regrouped; where the layer has a choice (which objects a slab
 * gives, how many, whether memory could be had), it looks at what happened, and checks that it was one of the choices.
 */
#ifndef STRATA_TESTS_MODEL_CACHE_REFERENCE_H
#define STRATA_TESTS_MODEL_CACHE_REFERENCE_H

#include "../unit/cache/cache_stack.h"
#include "model.h"

#include <limits.h>

#define CACHES 4
#define ACTORS 4 /* CPUs, or threads alive at once */
#define AREAS (ACTORS + 1)
#define HELD_MAX 1024
#define MAGAZINES_MAX 8192

static const size_t object_sizes[CACHES] = {16, 160, 1024, 20480};

struct reference_array {
    void *rounds[CACHE_ROUNDS_MAX];
    unsigned count;
    unsigned limit; /* 0: not open */
    bool opened;    /* ever: first use counts as work, whatever is in the array then */
};

struct reference_magazine {
    void *rounds[CACHE_TRANSFER_MAX];
    unsigned count;
};

struct reference_cache {
    unsigned tag;
    size_t bytes;
    unsigned m; /* adopted from the layer where it may change: see adopt_m and adopt_growth */
    unsigned contended;
    bool cycles, contends;      /* as the layer has them */
    uint64_t due, due_of_depot; /* how often so many misses had come together that m may grow; of these, of the depot itself */
    struct reference_array arrays[AREAS];
    struct reference_magazine full[MAGAZINES_MAX]; /* the newest last */
    unsigned full_count, full_low;
    struct reference_magazine bucket; /* empty: there is none */
    unsigned bucket_capacity;
    bool bucket_touched;
    /* Of the layer, at the last moment when it could change: see note_depots. */
    bool demanded;
    unsigned full_max, capacity_now;
    uint64_t objects; /* in use or not */
    void *held[HELD_MAX];
    unsigned held_count;
};

static struct {
    struct reference_cache caches[CACHES];
    uint64_t heap_bytes; /* present, likewise */
    bool used[AREAS];
    bool seen[AREAS]; /* by a tick or drain, with these counts, and one more where it was ever open */
    unsigned seen_counts[AREAS][CACHES];
} ref;

/* ------------------------------------------------------------------ contents */

/* Word 0 is the stamp of cache_stack.h; of large objects a sample is enough. */
static void stamp(const struct reference_cache *cache, void *object) {
    uint64_t *words = object;
    for (size_t i = 1; i < cache->bytes / 8; i += i < 16 ? 1 : 31) words[i] = (uintptr_t)object * 31 + i;
}
static bool is_stamped(const struct reference_cache *cache, const void *object) {
    const uint64_t *words = object;
    if (words[0] != STACK_STAMP) return false;
    for (size_t i = 1; i < cache->bytes / 8; i += i < 16 ? 1 : 31)
        if (words[i] != (uintptr_t)object * 31 + i) return false;
    return true;
}

/* ------------------------------------------------------------------ arrays and magazines */

static unsigned half_of(const struct reference_cache *cache) { return (unsigned)max_u64(cache->m / 2, 1); }

static struct reference_magazine *push_magazine(struct reference_cache *cache) {
    struct reference_magazine *magazine = &cache->full[cache->full_count++];
    magazine->count = 0;
    return magazine;
}
static struct reference_magazine *pop_magazine(struct reference_cache *cache) {
    struct reference_magazine *magazine = &cache->full[--cache->full_count];
    if (cache->full_count < cache->full_low) cache->full_low = cache->full_count;
    return magazine;
}

/* A slow path has come by: the array is open, and as large as m where that has room for what is in it. */
static void reference_open(struct reference_cache *cache, unsigned area) {
    struct reference_array *array = &cache->arrays[area];
    ref.used[area] = array->opened = true;
    if (array->limit == 0 || array->count <= cache->m) array->limit = cache->m;
}

static uint64_t misses_due(const struct reference_cache *cache) {
    const struct depot *depot = &caches.depots[cache->tag];
    uint64_t due = depot->misses / 32;
    for (unsigned shelf = 0; shelf < DEPOT_HOMES && depot->shelved; shelf++) due += shelf_at(cache->tag, shelf)->misses / 32;
    return due;
}

/* What its arrays have grown by, as that counts for all. */
static uint64_t growth_of(const struct reference_cache *cache) {
    return cache->cycles || cache->m < caches.depots[cache->tag].rounds_start ? 0
                                                                              : (cache->m - caches.depots[cache->tag].rounds_start) * cache->bytes;
}
/* Of CPUs that have ever had arrays, or of threads that are there, and area 0. */
static uint64_t areas_in_use(void) {
    uint64_t used = 0;
    for (unsigned area = 0; area < AREAS; area++) used += ref.used[area];
    return caches.thread_mode ? caches.ids_made - caches.spare_count : used;
}
/* Whether all arrays together may grow by so much: to 256 KiB, 4 MiB on few CPUs where the rounds are their own, or a 32nd of the heap. */
static bool is_room_for_growth(uint64_t bytes, bool own) {
    for (unsigned c = 0; c < CACHES; c++) bytes += growth_of(&ref.caches[c]);
    return bytes * areas_in_use() <= max_u64(own && areas_in_use() <= DEPOT_HOMES ? 4 * MIB : 256 * KIB, ref.heap_bytes / 32);
}

/* As large as may be where objects cycle: the arrays of all areas have room for no more than there are objects. */
static unsigned cycling_m(const struct reference_cache *cache) {
    const struct depot *depot = &caches.depots[cache->tag];
    unsigned m = depot->rounds_max;
    while (m / 2 >= depot->rounds_start && m * areas_in_use() > cache->objects) m /= 2;
    return cache->contends ? (unsigned)max_u64(m, cache->m) : m;
}

/*
 * A tick or a reap was here: m is as before, or back at its start because objects don't cycle any more; after a tick doubled by contention, halved
 * because all arrays together have too much, or back at its start after a long rest.
 */
static void adopt_m(struct model *model, bool reap) {
    uint64_t contended = 0; /* bytes that arrays grow by now */
    for (unsigned c = 0; c < CACHES; c++) {
        const struct reference_cache *cache = &ref.caches[c];
        if (cache->contended > 8) contended += (min_u64(cache->m * 2, caches.depots[cache->tag].rounds_max) - cache->m) * cache->bytes;
    }
    ref.heap_bytes =
        min_u64(ref.heap_bytes, zone.counters.populated * GRANULE_BYTES); /* what a tick gives back may make the heap too small for them */
    const bool outgrown = !is_room_for_growth(contended, true);
    for (unsigned c = 0; c < CACHES; c++) {
        struct reference_cache *cache = &ref.caches[c];
        const struct depot *depot = &caches.depots[cache->tag];
        const unsigned start = depot->rounds_start;
        const unsigned from = !cache->cycles ? cache->m : !depot->cycles ? start : reap ? cache->m : cycling_m(cache);
        bool grows = !reap && cache->contended > 8 && from < depot->rounds_max;
        bool rested = !reap && depot->ticks_idle >= 20, halves = !reap && outgrown && !cache->contends && !cache->cycles;
        bool right = grows ? depot->rounds == min_u64(from * 2, depot->rounds_max)
                           : depot->rounds == from || (rested && depot->rounds == start) || (halves && depot->rounds == max_u64(from / 2, start));
        MODEL_EXPECT(model, right, "m went from %u to %u after %u lock misses", cache->m, depot->rounds, cache->contended);
        cache->m = depot->rounds;
        cache->cycles = depot->cycles;
        cache->contends = depot->contends;
        if (!reap) cache->contended = 0;
        cache->due = misses_due(cache); /* which a tick begins anew */
        cache->due_of_depot = depot->misses / 32;
    }
}

/*
 * A miss was here: m is as before; each 32nd time twice that, where there is room for it or others had to wait often, or half, where there is none
 * for what it has; or as large as may be, where objects cycle from now on, or do so and the depot had none.
 */
static void adopt_growth(struct model *model, struct reference_cache *cache, bool has_array, bool homes) {
    const struct depot *depot = &caches.depots[cache->tag];
    const uint64_t due = misses_due(cache);
    const bool own = !depot->shared || depot->misses / 32 == cache->due_of_depot; /* else a shelf has counted it */
    const unsigned twice = (unsigned)min_u64(cache->m * 2, depot->rounds_max);
    unsigned wanted = cache->m;
    if (caches.closed) return;
    bool waited = due != cache->due && cache->contended >= 64;
    /* What is on shelves the reference doesn't know: there m itself tells whether the depot was found empty. */
    const bool empty = homes ? depot->rounds != (waited ? twice : cache->m) : has_array && cache->full_count == 0;
    if (depot->cycles && (!cache->cycles || empty)) wanted = cycling_m(cache);
    waited &= wanted < depot->rounds_max;
    if (waited) {
        wanted = (unsigned)min_u64(wanted * 2, depot->rounds_max);
        cache->contended = 0;
    } else if (depot->cycles) {
        /* as it is, or was just looked at */
    } else if (due != cache->due && !cache->cycles && growth_of(cache) != 0 && !cache->contends && !is_room_for_growth(0, true))
        wanted = (unsigned)max_u64(cache->m / 2, depot->rounds_start);
    else if (due != cache->due && !cache->cycles && is_room_for_growth((twice - cache->m) * cache->bytes, own))
        wanted = twice;
    MODEL_EXPECT(model, depot->rounds == wanted && due <= cache->due + 1, "m went from %u to %u, not to %u, with a miss", cache->m, depot->rounds,
                 wanted);
    cache->m = depot->rounds;
    cache->cycles = depot->cycles;
    cache->contends = depot->contends;
    cache->due = due;
    cache->due_of_depot = depot->misses / 32;
    cache->capacity_now = MAGAZINE_ROUNDS(depot->kind);
}

/* Whether it is in none of the places where the reference knows objects to be. */
static bool is_nowhere(const struct reference_cache *cache, const void *object) {
    for (unsigned i = 0; i < cache->bucket.count; i++)
        if (cache->bucket.rounds[i] == object) return false;
    for (unsigned area = 0; area < AREAS; area++)
        for (unsigned i = 0; i < cache->arrays[area].count; i++)
            if (cache->arrays[area].rounds[i] == object) return false;
    for (unsigned i = 0; i < cache->full_count; i++)
        for (unsigned k = 0; k < cache->full[i].count; k++)
            if (cache->full[i].rounds[k] == object) return false;
    for (unsigned i = 0; i < cache->held_count; i++)
        if (cache->held[i] == object) return false;
    return true;
}

/* What decides on regrouping, before an operation changes it. */
static void note_depots(void) {
    ref.heap_bytes = zone.counters.populated * GRANULE_BYTES;
    for (unsigned c = 0; c < CACHES; c++) {
        const struct depot *depot = &caches.depots[ref.caches[c].tag];
        ref.caches[c].demanded = depot->visits != depot->visits_seen;
        ref.caches[c].full_max = depot->full_max;
        ref.caches[c].objects = slabs.caches[ref.caches[c].tag].total;
        ref.caches[c].capacity_now = MAGAZINE_ROUNDS(depot->kind);
    }
}

/* Rounds that are no magazine: into the bucket, one by one. What is forgotten the slabs have. */
static void reference_regroup(struct reference_cache *cache, void *const *rounds, unsigned count) {
    struct reference_magazine *bucket = &cache->bucket;
    for (unsigned i = 0; i < count && cache->demanded;) {
        if (bucket->count == 0) cache->bucket_capacity = cache->capacity_now;
        unsigned full = (unsigned)min_u64(cache->bucket_capacity, half_of(cache));
        if (bucket->count < full) bucket->rounds[bucket->count++] = rounds[i++];
        cache->bucket_touched = true;
        if (bucket->count < full) continue;
        bool room = cache->full_count < cache->full_max;
        if (room) *push_magazine(cache) = *bucket;
        bucket->count = 0;
        if (!room) return;
    }
}

/* The rounds of a magazine into an array; what finds no room is regrouped. */
static void reference_fill(struct reference_cache *cache, struct reference_array *array, const struct reference_magazine *magazine, unsigned count) {
    unsigned i = 0;
    while (i < count && array->count < array->limit) array->rounds[array->count++] = magazine->rounds[i++];
    if (i == count) return;
    struct reference_magazine rest = {.count = count - i};
    memcpy(rest.rounds, magazine->rounds + i, rest.count * sizeof(void *));
    cache->demanded = true; /* by this very visit, which may also have been the second thread's */
    cache->full_max = caches.depots[cache->tag].full_max;
    reference_regroup(cache, rest.rounds, rest.count);
}

/* The top `count` rounds of an array, in their order. */
static void reference_cut(struct reference_array *array, struct reference_magazine *magazine, unsigned count) {
    array->count -= count;
    magazine->count = count;
    memcpy(magazine->rounds, array->rounds + array->count, count * sizeof(void *));
}

static void reference_empty_area(unsigned area, bool closed, bool regroup) {
    for (unsigned c = 0; c < CACHES; c++) {
        struct reference_array *array = &ref.caches[c].arrays[area];
        if (regroup) reference_regroup(&ref.caches[c], array->rounds, array->count);
        array->count = 0;
        if (closed) array->limit = 0;
    }
}

static bool reference_has_rounds(unsigned area) {
    unsigned rounds = 0;
    for (unsigned c = 0; c < CACHES; c++) rounds += ref.caches[c].arrays[area].count;
    return rounds != 0;
}

/* ------------------------------------------------------------------ comparison with the layer */

static void compare_array(struct model *model, const struct reference_cache *cache, unsigned area) {
    const struct reference_array *array = &cache->arrays[area];
    const struct cpu_header header = header_of(area, cache->tag);
    void *const *slots = (void *const *)(void *)cpu_area_at((uint32_t)area);
    unsigned bottom = caches.depots[cache->tag].bottom, limit = header_is_open(area, cache->tag) ? header.limit - bottom : 0;
    MODEL_EXPECT(model, rounds_in(area, cache->tag) == array->count, "area %u has %u rounds of %zu bytes, not %u", area, rounds_in(area, cache->tag),
                 cache->bytes, array->count);
    MODEL_EXPECT(model, limit == array->limit, "area %u: the array of %zu bytes goes to %u, not to %u", area, cache->bytes, limit, array->limit);
    for (unsigned i = 0; i < array->count && !model->failed; i++)
        MODEL_EXPECT(model, slots[bottom + i] == array->rounds[i], "area %u: round %u of %zu bytes is another one", area, i, cache->bytes);
}

/* The magazines of a depot, list by list, the newest first, as the reference has them from its last one on. */
static const struct magazine *next_magazine(const struct depot *depot, const struct magazine *magazine, unsigned *list) {
    if (magazine != NULL) magazine = magazine->next;
    while (magazine == NULL && ++*list < STACK_LISTS) magazine = stack_list((unsigned)(depot - caches.depots), *list);
    return magazine;
}

static void compare_depot(struct model *model, const struct reference_cache *cache) {
    const struct depot *depot = &caches.depots[cache->tag];
    unsigned list = UINT_MAX;
    const struct magazine *magazine = next_magazine(depot, NULL, &list);
    for (unsigned i = cache->full_count; i-- > 0 && !model->failed; magazine = next_magazine(depot, magazine, &list)) {
        bool same = magazine != NULL && magazine->count == cache->full[i].count;
        MODEL_EXPECT(model, same, "full magazine %u of %u of %zu bytes is not there, or holds more or less", i, cache->full_count, cache->bytes);
        if (!same) return;
        same = memcmp(magazine->rounds, cache->full[i].rounds, magazine->count * sizeof(void *)) == 0;
        MODEL_EXPECT(model, same, "full magazine %u of %zu bytes holds other rounds", i, cache->bytes);
    }
    MODEL_EXPECT(model, model->failed || magazine == NULL, "there are more than %u full magazines of %zu bytes", cache->full_count, cache->bytes);
}

static void compare_bucket(struct model *model, const struct reference_cache *cache) {
    const struct magazine *bucket = caches.depots[cache->tag].bucket;
    unsigned count = bucket != NULL ? bucket->count : 0;
    MODEL_EXPECT(model, count == cache->bucket.count, "the bucket of %zu bytes holds %u rounds, not %u", cache->bytes, count, cache->bucket.count);
    if (model->failed || count == 0) return;
    MODEL_EXPECT(model, memcmp(bucket->rounds, cache->bucket.rounds, count * sizeof(void *)) == 0, "the bucket of %zu bytes holds other rounds",
                 cache->bytes);
}

/*
 * Where memory for a bucket may have failed, rounds may be in slabs instead: the depot is as it is, if it has nothing that belongs elsewhere. (That
 * nothing is lost or there twice is for stack_check.)
 */
static void adopt_depot(struct model *model, struct reference_cache *cache) {
    const struct depot *depot = &caches.depots[cache->tag];
    unsigned before = cache->full_count, list = UINT_MAX;
    const struct magazine *magazine = next_magazine(depot, NULL, &list);
    cache->full_count = cache->bucket.count = 0;
    for (unsigned i = stack_full_count(cache->tag); i-- > 0; magazine = next_magazine(depot, magazine, &list)) {
        for (unsigned k = 0; k < magazine->count && !model->long_run; k++)
            MODEL_EXPECT(model, is_nowhere(cache, magazine->rounds[k]), "the depot of %zu bytes has what is elsewhere", cache->bytes);
        cache->full[i].count = magazine->count;
        memcpy(cache->full[i].rounds, magazine->rounds, magazine->count * sizeof(void *));
    }
    cache->full_count = stack_full_count(cache->tag);
    if (cache->full_count < before) cache->full_low = (unsigned)min_u64(cache->full_low, cache->full_count);
    if (depot->bucket == NULL) return;
    for (unsigned k = 0; k < depot->bucket->count && !model->long_run; k++)
        MODEL_EXPECT(model, is_nowhere(cache, depot->bucket->rounds[k]), "the bucket of %zu bytes has what is elsewhere", cache->bytes);
    cache->bucket.count = depot->bucket->count;
    memcpy(cache->bucket.rounds, depot->bucket->rounds, cache->bucket.count * sizeof(void *));
    cache->bucket_capacity = magazine_capacity(depot->bucket);
}

/* An array as it is, if nothing in it is held, or in another array. */
static void adopt_array(struct model *model, struct reference_cache *cache, unsigned area) {
    struct reference_array *array = &cache->arrays[area];
    void *const *slots = (void *const *)(void *)cpu_area_at((uint32_t)area);
    unsigned count = rounds_in(area, cache->tag), bottom = caches.depots[cache->tag].bottom;
    array->count = cache->full_count = cache->bucket.count = 0; /* the depot is looked at next */
    for (unsigned i = 0; i < count && !model->failed; i++) {
        void *object = slots[bottom + i];
        MODEL_EXPECT(model, model->long_run || is_nowhere(cache, object), "the array of area %u of %zu bytes has what is elsewhere", area,
                     cache->bytes);
        array->rounds[array->count++] = object;
    }
}

static void compare_all(struct model *model) {
    for (unsigned c = 0; c < CACHES && !model->failed; c++) {
        const struct reference_cache *cache = &ref.caches[c];
        for (unsigned area = 0; area < min_u64(AREAS, areas_there()); area++) compare_array(model, cache, area);
        compare_depot(model, cache);
        compare_bucket(model, cache);
        for (unsigned i = 0; i < cache->held_count && !model->failed; i++)
            MODEL_EXPECT(model, is_stamped(cache, cache->held[i]), "object %u of %zu bytes has changed while it was held", i, cache->bytes);
    }
    const char *wrong = stack_check();
    MODEL_EXPECT(model, wrong == NULL, "%s", wrong);
}

#endif
