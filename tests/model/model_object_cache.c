/*
 * model_object_cache.c - object caches against a naive reference: constructors that refuse, batches, reaps, ticks, moves with every answer and with
 * frees in the middle of them, reclaim, platform calls that fail, a heap that is full, destruction with and without objects in use.
 *
 * After every operation: each construction was undone once or its object is there; no object is held twice, or in the hands of a destructor while it
 * is held; contents are what they were, also of objects that were moved; and the figures are the reference's. A consolidation that the program goes
 * along with leaves the fewest slabs that its objects fit in.
 *
 * The stage: m, CPUs or threads, memory, and the kinds of the caches. An operation: what (byte 0), which cache (1), and more.
 */
#include "model_object_cache_reference.h"

#define ACTORS 3

static struct object_caches objects;
static unsigned actor, identities[ACTORS], identities_used;
static bool limited;

static void thread_ended(uint32_t id) {
    object_caches_thread_exit(&objects, id);
    cache_thread_exit(&caches, id);
}

static bool memory_failed(void) { return limited || sim_failures() != 0; }

static void become(unsigned n) {
    actor = n % ACTORS;
    if (caches.thread_mode)
        sim_thread_become(identities[actor]);
    else
        sim_cpu_set(actor);
}

/* ------------------------------------------------------------------ what is called back */

static int make_thing(void *object, void *argument) {
    struct reference_cache *of = argument;
    MODEL_EXPECT(model, sim_locks_held() == 0, "a lock is held while a constructor runs");
    MODEL_EXPECT(model, !alive_has(of, object), "cache %u: %p is constructed a second time", of->number, object);
    if (of->refuse_each != 0 && ++of->calls % of->refuse_each == 0) {
        of->refused++;
        return 1;
    }
    *(struct thing *)object = (struct thing){0};
    alive_add(of, object);
    of->made++;
    return 0;
}

static void unmake_thing(void *object, void *argument) {
    struct reference_cache *of = argument;
    MODEL_EXPECT(model, sim_locks_held() == 0, "a lock is held while a destructor runs");
    MODEL_EXPECT(model, held_index(of, object) == of->held_count, "cache %u: %p is destructed while it is held", of->number, object);
    MODEL_EXPECT(model, alive_remove(of, object), "cache %u: %p is destructed, and was not constructed", of->number, object);
    of->unmade++;
}

static void free_one(struct reference_cache *of, unsigned i) { object_cache_free(of->cache, let_go(of, i)); }

static void call_reclaim(object_function *reclaim, void *argument, uint64_t wanted_bytes, unsigned need) {
    struct reference_cache *of = argument;
    (void)reclaim;
    MODEL_EXPECT(model, sim_locks_held() == 0 && !of->in_reclaim, "cache %u: reclaim with a lock held, or within itself", of->number);
    MODEL_EXPECT(model, wanted_bytes != 0 && need == 3, "cache %u: %llu bytes are wanted, need %u", of->number, (unsigned long long)wanted_bytes,
                 need);
    of->in_reclaim = true;
    of->reclaims++;
    for (unsigned i = 0; i < of->gives && of->held_count != 0; i++) {
        of->reclaimed += of->cache->slabs.stride;
        free_one(of, (unsigned)roll(of->held_count));
    }
    of->in_reclaim = false;
}

static enum object_move_answer choose_answer(const struct reference_cache *of) {
    static const enum object_move_answer mixed[] = {OBJECT_MOVE_YES,   OBJECT_MOVE_YES,       OBJECT_MOVE_YES,      OBJECT_MOVE_NO,
                                                    OBJECT_MOVE_LATER, OBJECT_MOVE_DONT_NEED, OBJECT_MOVE_DONT_KNOW};
    switch (of->mood) {
    case MOOD_NO: return OBJECT_MOVE_NO;
    case MOOD_LATER: return OBJECT_MOVE_LATER;
    case MOOD_MIXED: return mixed[roll(ARRAY_LENGTH(mixed))];
    default: return OBJECT_MOVE_YES;
    }
}

static unsigned call_move(object_function *move, void *old, void *fresh, uint64_t bytes, void *argument) {
    struct reference_cache *of = argument;
    struct thing *to = fresh;
    (void)move;
    MODEL_EXPECT(model, sim_locks_held() == 0 && !of->in_move, "cache %u: a move with a lock held, or within a move", of->number);
    MODEL_EXPECT(model, bytes == of->cache->bytes, "cache %u: objects of %llu bytes?", of->number, (unsigned long long)bytes);
    MODEL_EXPECT(model, old != fresh && alive_has(of, fresh) && held_index(of, fresh) == of->held_count && to->value == 0,
                 "cache %u: %p is no new object", of->number, fresh);
    of->in_move = true;
    enum object_move_answer answer = choose_answer(of);
    if (of->mood == MOOD_MEDDLING) { /* anything may happen meanwhile, to this object, too */
        unsigned was = actor;
        become((unsigned)roll(ACTORS));
        for (unsigned n = (unsigned)roll(6); n != 0 && of->held_count != 0; n--) free_one(of, (unsigned)roll(of->held_count));
        if (roll(4) == 0) object_cache_reap(&objects, of->cache);
        become(was);
        if (roll(8) == 0) MODEL_EXPECT(model, object_cache_consolidate(&objects, of->cache) == 0, "a consolidation within a move");
    }
    unsigned i = held_index(of, old);
    if (i == of->held_count) {
        answer = OBJECT_MOVE_DONT_KNOW;
    } else if (answer == OBJECT_MOVE_YES) {
        *to = *of->held[i].thing;
        *of->held[i].thing = (struct thing){0};
        of->held[i].thing = to;
        alive_set_held(of, old, 0);
        alive_set_held(of, to, i + 1);
        expect_contents(of, i);
    } else if (answer == OBJECT_MOVE_DONT_NEED) {
        (void)let_go(of, i);
    } else if (answer == OBJECT_MOVE_NO) {
        of->ever_no = true;
    }
    of->moves[answer]++;
    of->in_move = false;
    return answer;
}

static void any_function(void) {}

/* ------------------------------------------------------------------ operations */

static void create(struct reference_cache *of, unsigned kind) {
    static const uint64_t sizes[] = {128, sizeof(struct thing), 1000, 4000, 40};
    const struct object_cache_config config = {.name = "model",
                                               .bytes = sizes[kind % ARRAY_LENGTH(sizes)],
                                               .align = 16,
                                               .source = &slab_source_zone,
                                               .source_context = &zone,
                                               .construct = make_thing,
                                               .destruct = unmake_thing,
                                               .argument = of,
                                               .reclaim = kind / 8 % 2 != 0 ? any_function : NULL,
                                               .call_reclaim = call_reclaim,
                                               .no_magazines = kind / 16 % 4 == 3,
                                               .free_function = "free"};
    unsigned number = of->number;
    memset(of, 0, sizeof *of);
    of->number = number;
    alive_clear(of);
    enum object_cache_status status = object_cache_create(&objects, &config, &of->cache);
    model_trace(model, "create cache %u of %llu bytes%s: %d", of->number, (unsigned long long)config.bytes,
                config.no_magazines ? ", no magazines" : "", (int)status);
    MODEL_EXPECT(model, status == OBJECT_CACHE_OK || (status == OBJECT_CACHE_NO_MEMORY && memory_failed()), "create: %d", (int)status);
    if (status != OBJECT_CACHE_OK) of->cache = NULL;
    if (of->cache == NULL || kind / 64 % 4 == 3) return;
    status = object_cache_set_move(of->cache, any_function, call_move);
    MODEL_EXPECT(model, status == OBJECT_CACHE_OK || memory_failed(), "set_move: %d", (int)status);
    of->may_move = status == OBJECT_CACHE_OK;
}

static void destroy(struct reference_cache *of, bool empty) {
    while (empty && of->held_count != 0 && !model->failed) free_one(of, of->held_count - 1);
    unsigned left = of->held_count;
    for (unsigned i = 0; i < left; i++) alive_set_held(of, of->held[i].thing, 0);
    of->held_count = 0; /* they are gone, and not destructed */
    uint64_t told = object_cache_destroy(&objects, of->cache);
    model_trace(model, "destroy cache %u: %llu objects are left", of->number, (unsigned long long)told);
    MODEL_EXPECT(model, told == left, "cache %u: %llu objects were left, not %u", of->number, (unsigned long long)told, left);
    MODEL_EXPECT(model, of->made - of->unmade == left && of->alive_count == left, "cache %u: %llu constructions, %llu destructions, %u in use",
                 of->number, (unsigned long long)of->made, (unsigned long long)of->unmade, left);
    of->cache = NULL;
}

static void step_alloc(struct reference_cache *of, const struct model_record *record) {
    void *batch[64];
    unsigned wanted = 1 + record->byte[2] % (record->byte[3] % 4 == 0 ? 64 : 6), got = 0;
    uint64_t refused = of->refused;
    if (of->held_count + wanted > HELD_MAX) return;
    if (record->byte[3] % 2 == 0) {
        got = object_cache_alloc_batch(of->cache, batch, wanted, &(bool){false});
    } else {
        while (got < wanted && (batch[got] = object_cache_alloc(of->cache)) != NULL) got++;
    }
    model_trace(model, "actor %u: %u of %u objects of cache %u", actor, got, wanted, of->number);
    for (unsigned i = 0; i < got; i++) hold(of, batch[i]);
    MODEL_EXPECT(model, got == wanted || memory_failed() || of->refused != refused, "%u of %u objects, for no reason", got, wanted);
}

static void step_free(struct reference_cache *of, const struct model_record *record) {
    void *batch[64];
    unsigned count = 1 + record->byte[2] % (record->byte[3] % 4 == 0 ? 64 : 6), given = 0;
    bool ordered = record->byte[4] % 2 != 0; /* else scattered, which leaves sparse slabs */
    for (; given < count && of->held_count != 0; given++) batch[given] = let_go(of, ordered ? of->held_count - 1 : (unsigned)roll(of->held_count));
    model_trace(model, "actor %u: %u objects of cache %u are freed", actor, given, of->number);
    if (record->byte[3] % 2 == 0)
        object_cache_free_batch(of->cache, batch, given, &(bool){false});
    else
        for (unsigned i = 0; i < given; i++) object_cache_free(of->cache, batch[i]);
}

static void step_reap(struct reference_cache *of, const struct model_record *record) {
    bool all = record->byte[2] % 2 != 0;
    model_trace(model, "actor %u: reap %s %u", actor, all ? "all caches, not only" : "cache", of->number);
    if (all)
        object_caches_reap(&objects);
    else
        object_cache_reap(&objects, of->cache);
    struct object_cache_stats stats;
    object_cache_stats_get(of->cache, &stats);
    MODEL_EXPECT(model, stats.cache.cached == 0 || caches.thread_mode || sim_failures() != 0, "%llu objects are cached after a reap",
                 (unsigned long long)stats.cache.cached);
}

static void step_consolidate(struct reference_cache *of) {
    uint64_t released = of->cache->slabs.slabs_released, emptied = of->may_move ? of->cache->mover->emptied : 0;
    uint64_t freed = object_cache_consolidate(&objects, of->cache);
    released = of->cache->slabs.slabs_released - released;
    model_trace(model, "actor %u: consolidate cache %u: %llu bytes", actor, of->number, (unsigned long long)freed);
    if (!of->may_move) {
        MODEL_EXPECT(model, freed == 0 && released == 0, "a cache that can't move was consolidated");
        return;
    }
    MODEL_EXPECT(model, freed == released * of->cache->slabs.slab_bytes, "%llu slabs went, and %llu bytes", (unsigned long long)released,
                 (unsigned long long)freed);
    MODEL_EXPECT(model, of->cache->mover->emptied - emptied <= released, "more slabs were emptied than went");
    if (of->mood != MOOD_YES || of->ever_no || of->refuse_each != 0 || caches.thread_mode || sim_failures() != 0) return;
    uint64_t fewest = (of->held_count + of->cache->slabs.capacity - 1) / of->cache->slabs.capacity;
    MODEL_EXPECT(model, of->cache->slabs.slabs == fewest, "%llu slabs are left, %llu would do", (unsigned long long)of->cache->slabs.slabs,
                 (unsigned long long)fewest);
}

static void step_tick(const struct model_record *record) {
    uint64_t before = 0, after = 0;
    for (unsigned c = 0; c < CACHES; c++)
        for (unsigned a = 0; a < OBJECT_MOVE_ANSWERS; a++) before += reference[c].moves[a];
    if (record->byte[2] % 2 == 0) object_caches_tick(&objects);
    bool again = object_caches_consolidate_tick(&objects);
    for (unsigned c = 0; c < CACHES; c++)
        for (unsigned a = 0; a < OBJECT_MOVE_ANSWERS; a++) after += reference[c].moves[a];
    model_trace(model, "actor %u: tick, %llu moves%s", actor, (unsigned long long)(after - before), again ? ", and more to come" : "");
    MODEL_EXPECT(model, after - before <= 256 * CACHES, "%llu moves in a tick", (unsigned long long)(after - before));
}

static void step_reclaim(struct reference_cache *of, const struct model_record *record) {
    const struct object_need need = {.bytes = record->byte[3] * 100u, .shift = record->byte[2] % 8, .need = 3};
    of->gives = record->byte[4] % 40;
    uint64_t before = of->reclaims;
    bool expected = of->cache->reclaimer != NULL && of->cache->slabs.slabs != 0;
    if (record->byte[2] % 2 == 0) {
        bool called = object_cache_reclaim(of->cache, &need);
        MODEL_EXPECT(model, called == expected, "cache %u: reclaim was %scalled", of->number, called ? "" : "not ");
    } else {
        (void)object_caches_reclaim(&objects, NULL, &need);
    }
    model_trace(model, "actor %u: reclaim from cache %u, which gives %u at most", actor, of->number, of->gives);
    MODEL_EXPECT(model, of->reclaims - before == expected, "cache %u: reclaim was called %llu times", of->number,
                 (unsigned long long)(of->reclaims - before));
}

static void step_change(struct reference_cache *of, const struct model_record *record) {
    static const uint64_t times[] = {1, 2, 5, SIM_FOREVER};
    switch (record->byte[2] % 4) {
    case 0:
        of->mood = (enum mood)(record->byte[3] % MOODS);
        model_trace(model, "cache %u: mood %d", of->number, (int)of->mood);
        break;
    case 1:
        of->refuse_each = record->byte[3] % 4 == 0 ? 1 + record->byte[4] % 9 : 0;
        model_trace(model, "cache %u: each %lluth construction is refused", of->number, (unsigned long long)of->refuse_each);
        break;
    case 2:
        if (record->byte[3] % 2 == 0) break;
        model_trace(model, "platform call %u fails, %llu times", 1 + record->byte[4] % 8, (unsigned long long)times[record->byte[5] % 4]);
        sim_fail_call(1 + record->byte[4] % 8, times[record->byte[5] % 4]);
        return;
    default: become(record->byte[3]); break;
    }
    if (record->byte[6] % 2 != 0) sim_fail_call(0, 1);
}

static void step_thread_exit(const struct model_record *record) {
    become(record->byte[2]);
    if (!caches.thread_mode || identities_used == SIM_THREADS_MAX - SIM_BODIES_MAX) return;
    model_trace(model, "thread %u ends", actor);
    sim_thread_exit();
    identities[actor] = identities_used++;
    become(actor);
}

/* ------------------------------------------------------------------ comparisons */

static void compare(struct reference_cache *of) {
    struct object_cache_stats stats;
    if (of->cache == NULL || model->failed) return;
    object_cache_stats_get(of->cache, &stats);
    MODEL_EXPECT(model, stats.slabs.in_use == stats.cache.cached + of->held_count, "cache %u: %llu objects are out of slabs, %llu cached, %u held",
                 of->number, (unsigned long long)stats.slabs.in_use, (unsigned long long)stats.cache.cached, of->held_count);
    MODEL_EXPECT(model, of->alive_count == stats.slabs.in_use && of->made - of->unmade == of->alive_count,
                 "cache %u: %u objects are constructed, %llu out", of->number, of->alive_count, (unsigned long long)stats.slabs.in_use);
    MODEL_EXPECT(model, stats.constructed == of->made && stats.destructed == of->unmade && stats.refused == of->refused,
                 "cache %u: constructions, destructions or refusals are counted wrong", of->number);
    MODEL_EXPECT(model,
                 stats.slabs.slabs == stats.slabs.slabs_created - stats.slabs.slabs_released &&
                     stats.slabs.total == stats.slabs.slabs * of->cache->slabs.capacity &&
                     stats.slabs.memory_bytes == stats.slabs.slabs * of->cache->slabs.slab_bytes &&
                     stats.slabs.allocs - stats.slabs.frees == stats.slabs.in_use,
                 "cache %u: the figures of its slabs don't agree", of->number);
    for (unsigned a = 0; a < OBJECT_MOVE_ANSWERS; a++)
        MODEL_EXPECT(model, stats.moves[a] == of->moves[a], "cache %u: answer %u is counted wrong", of->number, a);
    MODEL_EXPECT(model, stats.reclaims == of->reclaims && stats.reclaimed_bytes == of->reclaimed, "cache %u: %llu bytes were reclaimed, counted %llu",
                 of->number, (unsigned long long)of->reclaimed, (unsigned long long)stats.reclaimed_bytes);
    for (unsigned i = 0; i < of->held_count && !model->failed && (!model->long_run || model->operation % 512 == 0); i++) expect_contents(of, i);
}

static void compare_all(void) {
    MODEL_EXPECT(model, sim_locks_held() == 0 && objects.mover == 0, "a lock is still held");
    for (unsigned c = 0; c < CACHES; c++) compare(&reference[c]);
    if (model->long_run && model->operation % 512 != 0) return;
    const char *wrong = object_caches_check(&objects);
    MODEL_EXPECT(model, wrong == NULL, "%s", wrong);
}

/* ------------------------------------------------------------------ the run */

static void begin(struct model *of, const struct model_record *stage) {
    static const unsigned maxima[] = {256, 2, 8, 0, 4, 32};
    static const uint64_t limits[] = {UINT64_MAX, UINT64_MAX, 256 * KIB, 2 * MIB};
    const struct sim_config sim = {.cpus = ACTORS, .arena_bytes = 8 * (uint64_t)GIB, .thread_mode = stage->byte[1] % 4 == 3};
    unsigned magazine_max = maxima[stage->byte[0] % ARRAY_LENGTH(maxima)];
    uint64_t limit_bytes = limits[stage->byte[2] % ARRAY_LENGTH(limits)];
    model = of;
    dice = stage->byte[5];
    model_trace(model, "magazine_max %u, %s, %llu KiB at most", magazine_max, sim.thread_mode ? "threads" : "CPUs",
                (unsigned long long)limit_bytes / KIB);
    MODEL_EXPECT(model, stack_build(&sim, magazine_max, limit_bytes), "no memory for the layers");
    object_caches_init(&objects, &slabs, &caches, magazine_max);
    platform_on_thread_exit(thread_ended);
    limited = limit_bytes != UINT64_MAX;
    identities_used = ACTORS;
    for (unsigned i = 0; i < ACTORS; i++) identities[i] = i;
    become(0);
    for (unsigned c = 0; c < CACHES; c++) {
        reference[c].number = c;
        create(&reference[c], stage->byte[3 + c]);
    }
}

static void step(struct model *of, const struct model_record *record) {
    struct reference_cache *which = &reference[record->byte[1] % CACHES];
    unsigned operation = record->byte[0] % 32;
    (void)of;
    if (which->cache == NULL && operation != 0) {
        create(which, record->byte[3]);
        if (which->cache == NULL) return;
    }
    switch (operation) {
    case 0: break;
    case 1 ... 10: step_alloc(which, record); break;
    case 11 ... 19: step_free(which, record); break;
    case 20: step_reap(which, record); break;
    case 21 ... 22: step_tick(record); break;
    case 23 ... 24: step_consolidate(which); break;
    case 25: step_reclaim(which, record); break;
    case 26 ... 28: step_change(which, record); break;
    case 29: become(record->byte[2]); break;
    case 30: step_thread_exit(record); break;
    default:
        if (record->byte[2] % 8 == 0) destroy(which, record->byte[3] % 4 != 0);
        break;
    }
    compare_all();
}

static void end(struct model *of) {
    (void)of;
    sim_fail_call(0, 1);
    for (unsigned c = 0; c < CACHES && !model->failed; c++)
        if (reference[c].cache != NULL) destroy(&reference[c], true);
    for (unsigned i = 0; caches.thread_mode && i < ACTORS; i++) {
        become(i);
        sim_thread_exit();
    }
    if (caches.thread_mode) sim_thread_become(identities_used);
    const char *wrong = model->failed ? NULL : stack_check_drained();
    MODEL_EXPECT(model, wrong == NULL, "after everything was given back: %s", wrong);
    struct zone_counters counters;
    zone_counters_get(&zone, &counters);
    MODEL_EXPECT(model, counters.allocated == 0, "%llu granules are left", (unsigned long long)counters.allocated);
    wrong = zone_check(&zone);
    MODEL_EXPECT(model, wrong == NULL, "%s", wrong);
}

static const struct model_layer object_cache_layer = {begin, step, end};

MODEL_EXPORT(object_cache, &object_cache_layer);
