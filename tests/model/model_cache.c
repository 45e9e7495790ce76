/*
 * model_cache.c - model runner of cache/: four caches on up to four CPUs, or as many threads, on real slabs and a real zone.
 *
 * Random allocations and frees wherever, drains, ticks, reaps, arrays that grow and shrink, threads that end, platform calls that fail and a
 * heap that is full. After each operation every array, every magazine and the contents of every held object are compared, and
 * objects that slabs gave out = in arrays + in the depot + held. At the end everything is given back and won back.
 *
 * In every other run rounds have no homes, as those of object caches: each operation does what the reference says. In the others, as malloc's, what
 * a miss, a tick or a drain does with rounds depends on the slabs below, so the reference looks at it, and checks that nothing is there twice.
 */
#include "model_cache_reference.h"

static struct model *model;
static unsigned actor;              /* the CPU, or the thread */
static unsigned identities[ACTORS]; /* thread mode: of the threads alive */
static unsigned identities_used;
static bool limited; /* the heap may be full */
static uint64_t failures_before;

static struct cache_backend homeless;
static bool homes; /* rounds have them */

static bool thread_mode(void) { return caches.thread_mode; }
static bool memory_failed(void) { return limited || sim_failures() != failures_before; }

static void become(unsigned n) {
    actor = n % ACTORS;
    if (thread_mode())
        sim_thread_become(identities[actor]);
    else
        sim_cpu_set(actor);
}

/* The area that the current actor works on; AREAS: none. */
static unsigned area_now(void) {
    if (caches.closed) return AREAS;
    if (!thread_mode()) return actor;
    uint32_t id = platform_thread_id();
    MODEL_EXPECT(model, id < AREAS, "a thread has id %u, though %u are alive", id, ACTORS);
    return id == 0 || id >= AREAS ? AREAS : id;
}

/* What goes past a depot that has enough goes so many rounds at a time. */
static unsigned piece_of(const struct reference_cache *cache) { return caches.depots[cache->tag].shared ? 64 : 16; }

/* ------------------------------------------------------------------ allocation */

/* What slabs gave, beyond the object that was returned, is in the array: whatever it is, it must have been free. */
static void adopt_refill(struct reference_cache *cache, unsigned area, unsigned half) {
    struct reference_array *array = &cache->arrays[area];
    void *const *slots = (void *const *)(void *)cpu_area_at((uint32_t)area);
    unsigned count = rounds_in(area, cache->tag), bottom = caches.depots[cache->tag].bottom;
    MODEL_EXPECT(model, count < half, "a miss put %u rounds into the array; half of m was %u", count, half);
    for (unsigned i = 0; i < count && !model->failed; i++) {
        void *object = slots[bottom + i];
        MODEL_EXPECT(model, model->long_run || is_nowhere(cache, object), "slabs gave an object that is in use");
        array->rounds[array->count++] = object;
    }
}

/* After a miss of the caller's, where rounds have homes. Those of a thread without arrays are nowhere but in slabs. */
static void adopt_miss(struct reference_cache *cache, unsigned area) {
    if (area != AREAS) adopt_array(model, cache, area);
    if (!caches.closed) adopt_depot(model, cache);
}
static void adopt_depots(void) {
    for (unsigned c = 0; homes && !caches.closed && c < CACHES; c++) {
        adopt_depot(model, &ref.caches[c]);
        ref.caches[c].full_low = ref.caches[c].full_count;
    }
}

static void alloc_one(struct reference_cache *cache) {
    void *expected = NULL;
    unsigned area = area_now();
    struct reference_array *array = area == AREAS ? NULL : &cache->arrays[area];
    bool hit = array != NULL && array->count != 0;
    note_depots();
    void *object = take(cache->tag);
    if (hit) {
        expected = array->rounds[--array->count];
    } else {
        area = area_now(); /* a miss gives a thread its id */
        array = area == AREAS ? NULL : &cache->arrays[area];
        if (array != NULL) reference_open(cache, area);
        const unsigned half = half_of(cache);
        adopt_growth(model, cache, array != NULL, homes); /* with the visit of the depot, before what comes from there finds no room in the array */
        if (homes) {
            adopt_miss(cache, area);
            MODEL_EXPECT(model, object == NULL || model->long_run || is_nowhere(cache, object), "a miss gave an object that is elsewhere, too");
        } else if (array != NULL && cache->full_count != 0) {
            struct reference_magazine *magazine = pop_magazine(cache);
            expected = magazine->rounds[magazine->count - 1];
            reference_fill(cache, array, magazine, magazine->count - 1);
        } else if (array != NULL && cache->bucket.count != 0 && caches.depots[cache->tag].bucket == NULL) {
            struct reference_magazine odd = cache->bucket;
            MODEL_EXPECT(model, memory_failed(), "the bucket of %zu bytes was taken, though there is memory", cache->bytes);
            cache->bucket.count = 0;
            expected = odd.rounds[odd.count - 1];
            reference_fill(cache, array, &odd, odd.count - 1);
        } else if (array != NULL) {
            adopt_refill(cache, area, half);
        }
    }
    if (!hit && memory_failed() && !caches.closed) adopt_depot(model, cache);
    if (expected != NULL) MODEL_EXPECT(model, object == expected, "the object is another one than the last that was freed");
    MODEL_EXPECT(model, object != NULL || memory_failed(), "no memory, though there is some");
    if (object == NULL || model->failed) return;
    MODEL_EXPECT(model, (uintptr_t)object % 16 == 0, "%p is not aligned", object);
    MODEL_EXPECT(model, expected != NULL || model->long_run || is_nowhere(cache, object), "slabs gave an object that is in use");
    stamp(cache, object);
    cache->held[cache->held_count++] = object;
}

static void free_one(struct reference_cache *cache, unsigned n) {
    void *object = cache->held[n];
    unsigned area = area_now(), full_before = stack_full_count(cache->tag);
    struct reference_array *array = area == AREAS ? NULL : &cache->arrays[area];
    bool hit = array != NULL && array->count < array->limit;
    const unsigned home = slab_home_of(&slabs, cache->tag, object); /* before it is free */
    MODEL_EXPECT(model, is_stamped(cache, object), "the object has changed while it was held");
    cache->held[n] = cache->held[--cache->held_count];
    give(cache->tag, object);
    if (!hit) {
        area = area_now();
        array = area == AREAS ? NULL : &cache->arrays[area];
        if (array != NULL) reference_open(cache, area);
        if (homes) {
            /* Another CPU's that comes first goes home. */
            const bool first = array != NULL && array->count == 0, others = home != 0 && home != slab_home_of_cpu(area);
            bool in_array = area != AREAS && header_is_open(area, cache->tag) && !(first && others);
            adopt_miss(cache, area);
            /* After m has gone down an array may be too long still. */
            if (in_array && array->count < array->limit)
                MODEL_EXPECT(model, array->count != 0 && array->rounds[array->count - 1] == object, "what was freed is not on top of its array");
            return;
        }
        if (array != NULL && array->count >= array->limit) {
            struct reference_magazine past_the_depot, *magazine = &past_the_depot;
            unsigned cut = half_of(cache);
            if (full_before >= caches.depots[cache->tag].full_max) cut = (unsigned)min_u64(cut, piece_of(cache));
            if (stack_full_count(cache->tag) > full_before) magazine = push_magazine(cache);
            reference_cut(array, magazine, cut);
        }
    }
    if (array != NULL && array->count < array->limit) array->rounds[array->count++] = object;
}

/* ------------------------------------------------------------------ what takes from caches */

/* Thread mode: tops as drainers find them. They stay where they are when others take the rounds, so only the layer knows them. */
static unsigned tops[AREAS][CACHES];

static void note_tops(void) {
    for (unsigned area = 0; area < min_u64(AREAS, areas_there()); area++)
        for (unsigned c = 0; c < CACHES; c++) tops[area][c] = header_of(area, ref.caches[c].tag).top;
}

static unsigned height(unsigned c, unsigned area) {
    if (thread_mode()) return tops[area][c];
    return ref.caches[c].arrays[area].count + (ref.caches[c].arrays[area].opened ? 1 : 0);
}

static void note_seen(unsigned area) {
    ref.seen[area] = true;
    for (unsigned c = 0; c < CACHES; c++) ref.seen_counts[area][c] = height(c, area);
}

static bool was_idle(unsigned area) {
    bool idle = ref.seen[area];
    for (unsigned c = 0; c < CACHES; c++) idle &= ref.seen_counts[area][c] == height(c, area);
    return idle;
}

/* After a drain of one area: all of it is gone; or, where a fence failed, all is there, and open as far as m says. */
static void judge_drain(unsigned area, bool regroup) {
    for (unsigned c = 0; c < CACHES; c++) {
        const struct reference_cache *cache = &ref.caches[c];
        if (cache->arrays[area].limit == 0 || header_of(area, cache->tag).bottom != CPU_DRAINED) continue;
        reference_empty_area(area, true, regroup);
        return;
    }
    MODEL_EXPECT(model, sim_failures() != failures_before, "area %u was not drained", area);
    for (unsigned c = 0; c < CACHES; c++) {
        struct reference_array *array = &ref.caches[c].arrays[area];
        if (array->limit != 0) array->limit = ref.caches[c].m;
    }
}

static void reference_drain(bool idle_only) {
    if (caches.closed) return;
    for (unsigned area = 0; area < min_u64(AREAS, areas_there()); area++) {
        if (!ref.used[area]) continue;
        bool idle = was_idle(area);
        if ((idle || !idle_only) && reference_has_rounds(area)) judge_drain(area, idle_only);
        note_seen(area);
    }
}

static void reference_tick_depots(bool all) {
    if (caches.closed) return;
    for (unsigned c = 0; c < CACHES; c++) {
        struct reference_cache *cache = &ref.caches[c];
        cache->full_count -= all ? cache->full_count : cache->full_low;
        cache->full_low = cache->full_count;
        if (all || !cache->bucket_touched) cache->bucket.count = 0;
        if (!all) cache->bucket_touched = false;
    }
    adopt_m(model, all); /* a reap is no interval of time */
}

static void reference_reap(void) {
    unsigned area = area_now();
    if (area != AREAS) reference_empty_area(area, false, false);
    reference_tick_depots(true);
}

static void step_tick(void) {
    model_trace(model, "tick");
    note_depots();
    note_tops();
    cache_tick(&caches);
    reference_drain(true);
    reference_tick_depots(false);
    for (unsigned c = 0; memory_failed() && !caches.closed && c < CACHES; c++) {
        adopt_depot(model, &ref.caches[c]);
        ref.caches[c].full_low = ref.caches[c].full_count;
    }
    adopt_depots();
}

static void step_reap(void) {
    model_trace(model, "reap by %u", actor);
    cache_reap(&caches);
    reference_reap();
    adopt_depots();
}

static void step_drain(void) {
    model_trace(model, "drain by %u", actor);
    note_tops();
    cache_drain(&caches);
    reference_drain(false);
    reference_reap();
    adopt_depots();
}

/* ------------------------------------------------------------------ other operations */

static void step_alloc(const struct model_record *record) {
    struct reference_cache *cache = &ref.caches[record->byte[1] % CACHES];
    unsigned count = record->byte[3] % 4 == 0 ? record->byte[4] : 1 + record->byte[4] % 8u;
    become(record->byte[2]);
    model_trace(model, "%u allocates %u of %zu bytes", actor, count, cache->bytes);
    while (count-- != 0 && cache->held_count < HELD_MAX && !model->failed) alloc_one(cache);
}

static void step_free(const struct model_record *record) {
    struct reference_cache *cache = &ref.caches[record->byte[1] % CACHES];
    unsigned count = record->byte[3] % 4 == 0 ? record->byte[4] : 1 + record->byte[4] % 8u;
    uint64_t which = model_bits(record, 5, 2);
    become(record->byte[2]);
    model_trace(model, "%u frees %u of %zu bytes", actor, count, cache->bytes);
    for (; count != 0 && cache->held_count != 0 && !model->failed; count--) free_one(cache, (unsigned)((which += 7919) % cache->held_count));
}

/* The depot's lock is found held so many times. */
static void step_contend(const struct model_record *record) {
    struct reference_cache *cache = &ref.caches[record->byte[1] % CACHES];
    struct depot *depot = &caches.depots[cache->tag];
    unsigned times = record->byte[3] % 16;
    model_trace(model, "the lock of %zu bytes is contended %u times", cache->bytes, times);
    if (caches.closed || times == 0) return;
    sim_contend_lock(&depot->lock, times);
    for (unsigned i = 0; i < times; i++) {
        depot_lock(depot);
        depot_unlock(depot);
    }
    cache->contended += times;
}

/* Nobody visits a depot for many intervals: m is back where it began, with magazines of another m still about. */
static void step_rest(const struct model_record *record) {
    struct reference_cache *cache = &ref.caches[record->byte[1] % CACHES];
    struct depot *depot = &caches.depots[cache->tag];
    model_trace(model, "nobody visits the depot of %zu bytes for long", cache->bytes);
    if (caches.closed) return;
    depot->ticks_idle = 1000;
    depot->visits_seen = depot->visits;
    if (record->byte[2] % 2 == 0) step_tick();
}

static void step_thread_exit(const struct model_record *record) {
    become(record->byte[2]);
    if (!thread_mode() || identities_used == SIM_THREADS_MAX - SIM_BODIES_MAX) return;
    unsigned area = area_now();
    model_trace(model, "thread %u ends", actor);
    sim_thread_exit();
    if (area != AREAS) reference_empty_area(area, true, false);
    identities[actor] = identities_used++;
    become(actor);
}

static void step_failures(const struct model_record *record) {
    static const uint64_t times[] = {1, 2, 5, SIM_FOREVER};
    unsigned n = record->byte[1] % 2 == 0 ? 0 : 1 + record->byte[2] % 8;
    model_trace(model, "platform call %u fails, %llu times", n, (unsigned long long)times[record->byte[3] % 4]);
    sim_fail_call(n, times[record->byte[3] % 4]);
    failures_before = 0; /* sim_fail_call has forgotten the former ones */
}

/* ------------------------------------------------------------------ the run */

static void begin(struct model *of, const struct model_record *stage) {
    static const unsigned maxima[] = {256, 2, 8, 0, 1, 5, 32, 100};
    static const uint64_t limits[] = {UINT64_MAX, UINT64_MAX, 256 * KIB, 4 * MIB};
    static const size_t pages[] = {4 * KIB, 4 * KIB, 16 * KIB, 64 * KIB};
    const struct sim_config sim = {
        .cpus = ACTORS, .arena_bytes = 2 * (uint64_t)GIB, .page_bytes = pages[stage->byte[3] % 4], .thread_mode = stage->byte[1] % 3 == 2};
    unsigned magazine_max = maxima[stage->byte[0] % 8];
    uint64_t limit_bytes = limits[stage->byte[2] % 4];
    model = of;
    homes = stage->byte[4] % 2 != 0;
    memset(&ref, 0, sizeof ref);
    model_trace(model, "magazine_max %u, %s, %llu KiB at most, pages of %zu", magazine_max, sim.thread_mode ? "threads" : "CPUs",
                (unsigned long long)limit_bytes / KIB, sim.page_bytes);
    MODEL_EXPECT(model, stack_build(&sim, magazine_max, limit_bytes), "no memory for the layers");
    if (!model->failed) {
        homeless = *caches.backend;
        if (!homes) homeless.home = NULL;
        caches.backend = &homeless;
    }
    limited = limit_bytes != UINT64_MAX;
    failures_before = 0;
    identities_used = ACTORS;
    for (unsigned i = 0; i < ACTORS; i++) identities[i] = i;
    become(0);
    for (unsigned c = 0; c < CACHES; c++) {
        ref.caches[c].bytes = object_sizes[c];
        ref.caches[c].tag = cache_of(object_sizes[c]);
        ref.caches[c].m = caches.depots[ref.caches[c].tag].rounds;
    }
}

static void step(struct model *of, const struct model_record *record) {
    (void)of;
    failures_before = sim_failures();
    switch (record->byte[0] % 32) {
    case 0: break;
    case 1 ... 11: step_alloc(record); break;
    case 12 ... 22: step_free(record); break;
    case 23 ... 25: step_tick(); break;
    case 26: step_reap(); break;
    case 27: step_drain(); break;
    case 28: step_contend(record); break;
    case 29: step_thread_exit(record); break;
    case 30: step_failures(record); break;
    default: step_rest(record); break;
    }
    if (!model->long_run || model->operation % 256 == 0) compare_all(model);
}

static void end(struct model *of) {
    (void)of;
    sim_fail_call(0, 0);
    failures_before = 0;
    compare_all(model);
    for (unsigned c = 0; c < CACHES; c++) {
        struct reference_cache *cache = &ref.caches[c];
        for (unsigned n = 0; cache->held_count != 0 && !model->failed; n++) {
            become(n);
            free_one(cache, cache->held_count / 2);
        }
    }
    compare_all(model);
    for (unsigned i = 0; thread_mode() && i < ACTORS; i++) {
        become(i);
        sim_thread_exit();
    }
    if (thread_mode()) sim_thread_become(identities_used);
    const char *wrong = stack_check_drained();
    MODEL_EXPECT(model, wrong == NULL, "after everything was given back: %s", wrong);
    struct zone_counters counters;
    zone_counters_get(&zone, &counters);
    MODEL_EXPECT(model, counters.allocated == 0, "%llu granules are left", (unsigned long long)counters.allocated);
    wrong = zone_check(&zone);
    MODEL_EXPECT(model, wrong == NULL, "%s", wrong);
}

static const struct model_layer cache_layer = {begin, step, end};

MODEL_EXPORT(cache, &cache_layer);
