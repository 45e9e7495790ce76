/*
 * model_slab.c - model runner of slab/: all caches on one zone, on pages of 4, 16 or 64 KiB, with a limit, and platform calls that fail.
 *
 * The reference is an array with the owner of every 16 bytes of the heap: a cache, or nobody. What is handed out must be nobody's, lie in its
 * slab at a multiple of the size with no free object below it, and come from a slab that is as full as any, to an eighth; what is held keeps
 * its stamp. Counts must say what the reference says; a batch comes short only where every slab is full, and not at all only where no page is left.
 * Where homes keep apart, which slab serves is not judged; but a new one is made only where no other is wholly free, and little is free at all.
 */
#include "model.h"
#include "slab/slab_internal.h"

#define HEAP_BYTES (32 * MIB)
#define UNIT_BYTES 16
#define UNITS (HEAP_BYTES / UNIT_BYTES)
#define HELD_MAX 3000
#define BATCH_MAX 70
#define CACHES 12

static struct zone zone;
static struct slab_layer slabs;
static struct model *model;
static unsigned homes;    /* CPUs that keep apart; 0: none do */
static uint64_t failures; /* injected before the operation under way */

static const uint32_t magazine_bytes[SLAB_MAGAZINE_CACHES] = {64, 96, 160, 288, 544, 1056};
/* The caches in use: short ones, long ones, those that leave a remainder, two of magazines. */
static const size_t object_sizes[CACHES - 2] = {16, 48, 64, 144, 512, 640, 1280, 3072, 14336, 32768};

static struct {
    uint8_t owner[UNITS]; /* 0: nobody; otherwise the cache's tag */
    struct held {
        char *object;
        unsigned cache; /* which of those in use */
    } held[HELD_MAX];
    unsigned count;
    uint64_t in_use[CACHES], allocs[CACHES], frees[CACHES];
} ref;

static unsigned tag_of(unsigned cache) {
    return cache < CACHES - 2 ? slab_class_of_size(&slabs, object_sizes[cache]) : SLAB_CACHE_MAGAZINES + 3 * (cache - (CACHES - 2));
}
static size_t bytes_of(unsigned cache) { return slabs.caches[tag_of(cache)].object_bytes; }
static bool call_failed(void) { return sim_failures() != failures; }
static size_t unit_of(const char *address) { return ((uintptr_t)address - zone.base) / UNIT_BYTES; }

static bool is_owned_by(const char *object, size_t bytes, unsigned tag) {
    for (size_t u = unit_of(object); u < unit_of(object) + bytes / UNIT_BYTES; u++)
        if (ref.owner[u] != tag) return false;
    return true;
}

/* The first granule of the slab that a granule belongs to. */
static size_t slab_of(size_t granule) { return granule - (zone.tags[granule] >> 8); }

/* Objects of a slab that nobody holds, and how many it has. */
static unsigned count_free(size_t slab, unsigned tag, unsigned *capacity) {
    size_t bytes = slabs.caches[tag].object_bytes, granules = 1;
    unsigned free_objects = 0;
    while (zone.tags[slab + granules] == (granule_tag)(tag | granules << 8)) granules++;
    *capacity = (unsigned)(granules * GRANULE_BYTES / bytes);
    for (unsigned i = 0; i < *capacity; i++) free_objects += ref.owner[unit_of(zone_address_of(&zone, slab) + i * bytes)] == 0;
    return free_objects;
}

/* ------------------------------------------------------------------ stamps */

static void stamp(char *object, unsigned cache) {
    uint64_t *words = (uint64_t *)(void *)object;
    words[0] = ~(uintptr_t)object;
    words[bytes_of(cache) / 8 - 1] = (uintptr_t)object ^ cache;
}

static bool has_stamp(const char *object, unsigned cache) {
    const uint64_t *words = (const uint64_t *)(const void *)object;
    return words[0] == ~(uintptr_t)object && words[bytes_of(cache) / 8 - 1] == ((uintptr_t)object ^ cache);
}

/* ------------------------------------------------------------------ allocation */

/* All of the heap's superpages are in use, or the limit is near: only then may there be no page for a slab. */
static bool is_memory_scarce(unsigned tag) {
    struct zone_counters counters;
    zone_counters_get(&zone, &counters);
    if (counters.allocated + slabs.caches[tag].granules_min > zone.config.hard_limit_bytes >> GRANULE_SHIFT) return true;
    for (size_t i = 0; i < HEAP_BYTES >> SUPERPAGE_SHIFT; i++)
        if (i >= zone.extent_bytes >> SUPERPAGE_SHIFT || zone.superpages[i].state == SUPERPAGE_FREE) return false;
    return true;
}

/* The slab that one object came from has no more free than any other of the cache, give or take an eighth; `before`: free ones of it then. */
static void judge_slab(unsigned tag, size_t chosen, unsigned before) {
    unsigned capacity, other_capacity;
    (void)count_free(chosen, tag, &capacity);
    for (size_t granule = 0; granule < zone.extent_bytes >> GRANULE_SHIFT; granule++) {
        if (zone.tags[granule] != tag || granule == chosen) continue; /* the first of a slab has offset 0 */
        unsigned free_objects = count_free(granule, tag, &other_capacity);
        bool fuller = free_objects != 0 && (free_objects * 8 + other_capacity - 1) / other_capacity + 1 < before * 8 / capacity;
        MODEL_EXPECT(model, !fuller, "the slab at %zu with %u of %u free served before that at %zu with %u of %u", chosen, before, capacity, granule,
                     free_objects, other_capacity);
    }
}

/* The objects below are all in use, so that those at the end of the slab get time to be free. */
static void judge_place(unsigned tag, const char *object) {
    size_t bytes = slabs.caches[tag].object_bytes;
    const char *base = zone_address_of(&zone, slab_of(zone_granule_of(&zone, object)));
    MODEL_EXPECT(model, (size_t)(object - base) % bytes == 0, "%p does not lie at a multiple of %zu in its slab", (const void *)object, bytes);
    for (const char *below = base; below < object && !model->failed; below += bytes)
        MODEL_EXPECT(model, ref.owner[unit_of(below)] == tag, "%p was handed out, and %p below it is free", (const void *)object,
                     (const void *)below);
}

static void adopt(unsigned cache, char *object) {
    unsigned tag = tag_of(cache);
    size_t bytes = bytes_of(cache);
    MODEL_EXPECT(model, zone_contains(&zone, object) && zone_contains(&zone, object + bytes - 1), "%p is not of the heap", (void *)object);
    if (model->failed) return;
    MODEL_EXPECT(model, is_owned_by(object, bytes, 0), "%p was handed out, and is in use", (void *)object);
    MODEL_EXPECT(model, slab_is_object(&slabs, tag, object), "%p was handed out, and is no object", (void *)object);
    MODEL_EXPECT(model, slab_bytes_of(&slabs, zone.tags[zone_granule_of(&zone, object)], (uintptr_t)object - zone.base) == bytes,
                 "%p has another size by its tag", (void *)object);
    judge_place(tag, object);
    memset(&ref.owner[unit_of(object)], (int)tag, bytes / UNIT_BYTES);
    ref.held[ref.count++] = (struct held){object, cache};
    stamp(object, cache);
}

static uint64_t empty_slabs(unsigned tag) {
    uint64_t sum = 0;
    FOR_EACH_SHARD(shard, slab_shards_of(&slabs.caches[tag])) sum += slab_shard_at(&slabs.caches[tag], shard)->empty_slabs;
    return sum;
}

static void step_alloc(const struct model_record *record) {
    static void *objects[BATCH_MAX];
    unsigned cache = record->byte[1] % CACHES, tag = tag_of(cache);
    unsigned count = record->byte[2] % 2 == 0 ? 1 : 1 + record->byte[3] % BATCH_MAX;
    if (ref.count + count > HELD_MAX) return;
    bool had_free = slabs.caches[tag].total != ref.in_use[cache], scarce = is_memory_scarce(tag);
    bool apart = homes != 0 && record->byte[4] % 4 != 0;
    unsigned home = homes == 0 ? 0 : record->byte[5] % (homes + 1);
    uint64_t total = slabs.caches[tag].total, made = slabs.caches[tag].slabs, empty = empty_slabs(tag), free_before = total - ref.in_use[cache];
    unsigned taken = slab_alloc_home(&slabs, tag, home, apart, objects, count);
    model_trace(model, "%u objects of %s for home %u%s: %u, the last %p", count, slabs.caches[tag].name, home, apart ? ", apart" : "", taken,
                taken != 0 ? objects[taken - 1] : NULL);
    /* A new slab is made only where others can't spare theirs. */
    if (slabs.caches[tag].slabs > made)
        MODEL_EXPECT(model, free_before == 0 || (apart && home != 0 && empty == 0 && free_before <= total / 8 + 8 * KIB / bytes_of(cache)),
                     "a new slab, and %llu of %llu objects are free", (unsigned long long)free_before, (unsigned long long)total);
    MODEL_EXPECT(model, taken <= count, "%u objects instead of %u", taken, count);
    MODEL_EXPECT(model, taken != 0 || (!had_free && (scarce || call_failed())), "none, though there is %s", had_free ? "one" : "memory");
    if (homes == 0 && taken == 1 && count == 1 && (!model->long_run || model->operation % 32 == 0)) {
        unsigned capacity;
        size_t slab = slab_of(zone_granule_of(&zone, objects[0]));
        judge_slab(tag, slab, count_free(slab, tag, &capacity));
    }
    for (unsigned i = taken; i-- != 0 && !model->failed;) adopt(cache, objects[i]); /* the lowest of a slab is its last one */
    ref.in_use[cache] += taken;
    ref.allocs[cache] += taken;
    if (taken < count && (!apart || home == 0 || taken == 0))
        MODEL_EXPECT(model, slabs.caches[tag].total == ref.in_use[cache], "a batch was cut short, and %llu objects are free",
                     (unsigned long long)(slabs.caches[tag].total - ref.in_use[cache]));
}

/* ------------------------------------------------------------------ freeing */

/* Takes held object `pick` out of the reference. */
static void *disown(unsigned pick) {
    struct held held = ref.held[pick];
    MODEL_EXPECT(model, has_stamp(held.object, held.cache), "%p of %s was overwritten", (void *)held.object, slabs.caches[tag_of(held.cache)].name);
    MODEL_EXPECT(model, is_owned_by(held.object, bytes_of(held.cache), tag_of(held.cache)), "%p: the reference is wrong", (void *)held.object);
    memset(&ref.owner[unit_of(held.object)], 0, bytes_of(held.cache) / UNIT_BYTES);
    memset(held.object, 0xdd, bytes_of(held.cache));
    ref.held[pick] = ref.held[--ref.count];
    ref.in_use[held.cache]--;
    ref.frees[held.cache]++;
    return held.object;
}

/* A batch of objects of one cache, those that are found from some place on, in steps. */
static void free_some(unsigned from, unsigned stride, unsigned count) {
    static void *objects[BATCH_MAX];
    unsigned n = 0;
    if (ref.count == 0) return;
    unsigned cache = ref.held[from % ref.count].cache;
    for (unsigned looks = 0; looks < 4 * count && n < count && ref.count != 0 && !model->failed; looks++) {
        unsigned pick = (from + looks * stride) % ref.count;
        if (ref.held[pick].cache == cache) objects[n++] = disown(pick);
    }
    model_trace(model, "free %u of %s, the first %p", n, slabs.caches[tag_of(cache)].name, objects[0]);
    if (!model->failed) slab_free_batch(&slabs, tag_of(cache), objects, n);
}

static void step_free(const struct model_record *record) {
    free_some((unsigned)model_bits(record, 1, 2), 1 + record->byte[3] % 64u, record->byte[4] % 2 == 0 ? 1 : 1 + record->byte[5] % BATCH_MAX);
}

/* ------------------------------------------------------------------ the rest */

/* Any address at all: an object's start or not. */
static void step_look(const struct model_record *record) {
    unsigned tag = tag_of(record->byte[1] % CACHES);
    size_t at = model_bits(record, 2, 4) % (zone.extent_bytes + SUPERPAGE_BYTES);
    if (ref.count != 0 && record->byte[6] % 2 == 0) /* near something held */
        at = (size_t)(ref.held[model_bits(record, 2, 2) % ref.count].object - (char *)zone.base) + (record->byte[6] % 4 == 0 ? 0 : record->byte[4]);
    bool expected = false;
    size_t granule = at >> GRANULE_SHIFT;
    if (at < zone.extent_bytes && (zone.tags[granule] & 0xff) == tag) {
        unsigned capacity;
        size_t offset = at - (slab_of(granule) << GRANULE_SHIFT), bytes = slabs.caches[tag].object_bytes;
        (void)count_free(slab_of(granule), tag, &capacity);
        expected = offset % bytes == 0 && offset / bytes < capacity;
    }
    model_trace(model, "is heap + %zu an object of %s: %s", at, slabs.caches[tag].name, expected ? "yes" : "no");
    MODEL_EXPECT(model, slab_is_object(&slabs, tag, (char *)zone.base + at) == expected, "it is %s", expected ? "one" : "none");
}

static void step_reap(void) {
    slab_reap(&slabs);
    model_trace(model, "reap");
    for (unsigned cache = 0; cache < CACHES; cache++) {
        const struct slab_cache *of = &slabs.caches[tag_of(cache)];
        MODEL_EXPECT(model, empty_slabs(tag_of(cache)) == 0, "%s has empty slabs after a reap", of->name);
        MODEL_EXPECT(model, of->slabs <= ref.in_use[cache], "%s has more slabs than objects after a reap", of->name);
    }
}

static void step_failures(const struct model_record *record) {
    uint64_t n = record->byte[1] % 4 == 0 ? 0 : 1 + record->byte[2] % 6u, times = record->byte[3] % 8 == 1 ? SIM_FOREVER : 1 + record->byte[3] % 4u;
    sim_fail_call(n, times);
    failures = 0; /* sim_fail_call counts anew */
    model_trace(model, "call %llu fails, %lld times", (unsigned long long)n, (long long)times);
}

static void compare_all(void) {
    struct zone_counters counters;
    uint64_t granules = 0;
    const char *wrong = slab_check(&slabs);
    MODEL_EXPECT(model, wrong == NULL, "slab_check: %s", wrong);
    wrong = zone_check(&zone);
    MODEL_EXPECT(model, wrong == NULL, "zone_check: %s", wrong);
    for (unsigned cache = 0; cache < CACHES; cache++) granules += slabs.caches[tag_of(cache)].granules;
    zone_counters_get(&zone, &counters);
    MODEL_EXPECT(model, granules == counters.allocated, "slabs of %llu granules, and %llu are allocated", (unsigned long long)granules,
                 (unsigned long long)counters.allocated);
    for (unsigned i = 0; i < ref.count && !model->failed; i++)
        MODEL_EXPECT(model, has_stamp(ref.held[i].object, ref.held[i].cache), "%p of %s was overwritten", (void *)ref.held[i].object,
                     slabs.caches[tag_of(ref.held[i].cache)].name);
}

static void compare_counts(void) {
    for (unsigned cache = 0; cache < CACHES; cache++) {
        struct slab_stats stats;
        slab_stats_get(&slabs, tag_of(cache), &stats);
        MODEL_EXPECT(model, stats.in_use == ref.in_use[cache] && stats.allocs == ref.allocs[cache] && stats.frees == ref.frees[cache],
                     "%s: %llu in use, should be %llu", slabs.caches[tag_of(cache)].name, (unsigned long long)stats.in_use,
                     (unsigned long long)ref.in_use[cache]);
        MODEL_EXPECT(model,
                     stats.total >= stats.in_use && stats.total * stats.object_bytes <= stats.memory_bytes &&
                         stats.total * stats.object_bytes * 8 >= stats.memory_bytes * 7,
                     "%s: %llu objects in %llu bytes", slabs.caches[tag_of(cache)].name, (unsigned long long)stats.total,
                     (unsigned long long)stats.memory_bytes);
    }
    MODEL_EXPECT(model, sim_locks_held() == 0, "a lock is still held");
}

/* ------------------------------------------------------------------ the run */

static void begin(struct model *of, const struct model_record *stage) {
    static const size_t pages[] = {4 * KIB, 4 * KIB, 16 * KIB, 64 * KIB};
    static const uint64_t limits[] = {UINT64_MAX, 4 * MIB, 1 * MIB};
    struct sim_config sim = {.page_bytes = pages[stage->byte[0] % 4]};
    struct zone_config config = {.reserve_bytes = HEAP_BYTES,
                                 .thp = stage->byte[2] % 3,
                                 .huge_block_superpages = 4,
                                 .huge_heap_granules = 32 * MIB / GRANULE_BYTES,
                                 .populate_granules = stage->byte[3] % 2 == 0 ? 16 : 1,
                                 .hard_limit_bytes = limits[stage->byte[1] % 3],
                                 .soft_limit_bytes = stage->byte[4] % 4 == 1 ? 1 * MIB : UINT64_MAX};
    model = of;
    failures = 0;
    memset(&ref, 0, sizeof ref);
    memset(&slabs, 0, sizeof slabs);
    sim_reset(&sim);
    homes = (unsigned[]){0, 0, 2, 11}[stage->byte[5] % 4];
    memset(slab_homes, 0, sizeof slab_homes);
    model_trace(model, "%u homes, pages of %zu, limit %llu, soft limit %llu, thp %u, populate %u", homes, sim.page_bytes,
                (unsigned long long)config.hard_limit_bytes, (unsigned long long)config.soft_limit_bytes, config.thp, config.populate_granules);
    MODEL_EXPECT(model, zone_init(&zone, &config), "no zone");
    slab_init(&slabs, &zone, magazine_bytes);
}

static void step(struct model *of, const struct model_record *record) {
    (void)of;
    failures = sim_failures();
    switch (record->byte[0] % 32) {
    case 0: break;
    case 1 ... 12: step_alloc(record); break;
    case 13 ... 24: step_free(record); break;
    case 25 ... 26: step_look(record); break;
    case 27: step_reap(); break;
    case 28: (void)(record->byte[1] % 2 == 0 ? zone_tick(&zone) : zone_release(&zone, 0)); break;
    case 29: step_failures(record); break;
    default:
        if (!model->long_run || model->operation % 16 == 0) compare_all();
        break;
    }
    compare_counts();
    if (!model->long_run && model->operation % 4 == 0) compare_all();
}

static void end(struct model *of) {
    (void)of;
    sim_fail_call(0, 0);
    failures = 0;
    compare_all();
    while (ref.count != 0 && !model->failed) free_some(ref.count / 2, 1, BATCH_MAX);
    compare_counts();
    step_reap();
    for (unsigned cache = 0; cache < CACHES; cache++)
        MODEL_EXPECT(model, slabs.caches[tag_of(cache)].slabs == 0 && slabs.caches[tag_of(cache)].total == 0, "%s keeps slabs with nothing in use",
                     slabs.caches[tag_of(cache)].name);
    struct zone_counters counters;
    zone_counters_get(&zone, &counters);
    MODEL_EXPECT(model, counters.allocated == 0, "%llu granules are lost", (unsigned long long)counters.allocated);
    if (!model->failed) compare_all();
}

static const struct model_layer slab_layer = {begin, step, end};

MODEL_EXPORT(slab, &slab_layer);
