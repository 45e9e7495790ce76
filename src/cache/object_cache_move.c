/*
 * object_cache_move.c - empties sparse slabs into fuller ones by asking the program to move its objects (the interface: illumos,
 * kmem_cache_set_move).
 *
 * One thread at a time in the whole process moves: objects->mover names it, others sleep on that word, so that calls of move functions are
 * sequential. For each slab that object_slabs_part puts apart:
 *   - each of its objects in use is offered to the program together with a fresh, constructed one in a fuller slab. Yes: the program has the
 *     fresh one now, the old one is destructed and freed. Don't need: the old one is. No, later: the slab returns to its list with a mark;
 *   - don't know: it may wait in an array, a depot or another thread's hands. Arrays and depot are emptied, once a slab; where the object is in use
 *     even then, it is later's turn;
 *   - what the program frees meanwhile is seen by the slab's bits, before each call and after it.
 * Before the first slab arrays and depot are emptied, so that few objects are offered that the program doesn't know.
 *
 * By time, only where an eighth of the slabs could be emptied, MOVES_A_TICK objects of a cache at most, with pauses that double where nothing was
 * won.
 */
#include "cache/object_internal.h"

#include "base/check.h"
#include "cache/object_debug.h"

#define MOVES_A_TICK 256
/* Of its slabs, this share could go: then a cache is fragmented. */
#define FRAGMENTED_SHARE 8
/* Ticks: the longest pause. After it the maintenance thread may sleep until something happens. */
#define PAUSE_MAX 64

enum object_cache_status object_cache_set_move(struct object_cache *cache, object_function *move, object_move_call *call) {
    struct object_slabs *slabs = &cache->slabs;
    struct object_mover *mover = zone_metadata_alloc(slabs->zone, sizeof *mover);
    if (mover == NULL) return OBJECT_CACHE_NO_MEMORY;
    *mover = (struct object_mover){.move = move, .call = call};
    bool unused = object_debug_figures(cache).allocs == 0; /* by debugged objects; of others the slabs tell */
    platform_lock_acquire(&slabs->lock);
    bool first = unused && slabs->slabs_created == 0 && cache->mover == NULL;
    if (first) __atomic_store_n(&cache->mover, mover, __ATOMIC_RELEASE);
    platform_lock_release(&slabs->lock);
    if (first) return OBJECT_CACHE_OK;
    zone_metadata_free(slabs->zone, mover, sizeof *mover);
    return OBJECT_CACHE_TOO_LATE;
}

static struct object_mover *mover_of(const struct object_cache *cache) { return __atomic_load_n(&cache->mover, __ATOMIC_ACQUIRE); }

/* ------------------------------------------------------------------ one thread at a time */

/* False: another thread moves, and `wait` is false; or the caller itself, in a function that it has called. */
static bool become_mover(struct object_caches *objects, bool wait) {
    uint32_t self = platform_thread_self();
    for (;;) {
        uint32_t other = 0;
        if (__atomic_compare_exchange_n(&objects->mover, &other, self, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return true;
        if (!wait || other == self) return false;
        platform_word_wait(&objects->mover, other);
    }
}

static void be_mover_no_more(struct object_caches *objects) {
    __atomic_store_n(&objects->mover, 0, __ATOMIC_RELEASE);
    platform_word_wake(&objects->mover);
}

/* ------------------------------------------------------------------ one slab */

struct pass {
    struct object_caches *objects;
    struct object_cache *cache;
    uint64_t moves_left;
    void *fresh;   /* constructed, for the next object, and shown to nobody yet; NULL: none */
    bool searched; /* arrays and depot were emptied for the sake of this slab */
};

enum outcome { NEXT_OBJECT, SLAB_LATER, SLAB_FIXED, NO_ROOM };

static bool has_fresh(struct pass *pass) {
    struct object_cache *cache = pass->cache;
    if (pass->fresh != NULL) return true;
    void *object = object_slabs_alloc_dense(&cache->slabs);
    if (object == NULL || object_construct(cache, &object, 1) == 0) return false;
    pass->fresh = object;
    return true;
}

/* The slab that it is from may be the next to be put apart: it must not be taken for an object of the program. */
static void put_fresh_back(struct pass *pass) {
    struct object_cache *cache = pass->cache;
    if (pass->fresh == NULL) return;
    if (cache->destruct != NULL) cache->destruct(pass->fresh, cache->argument);
    __atomic_fetch_add(&cache->destructed, 1, __ATOMIC_RELAXED);
    object_slabs_undo_alloc(&cache->slabs, pass->fresh);
    pass->fresh = NULL;
}

/* The program's answer says that it has the old object no more. */
static void give_old(struct object_cache *cache, void *old) {
    if (object_slabs_look_up(&cache->slabs, old) != OBJECTS_OK)
        fatal("move(): 0x%llx: moved or not needed, but it had been freed (cache %s)", (unsigned long long)(uintptr_t)old, cache->name);
    object_give(cache, &old, 1);
}

static enum outcome move_object(struct pass *pass, void *old) {
    struct object_cache *cache = pass->cache;
    struct object_mover *mover = mover_of(cache);
    if (!has_fresh(pass)) return NO_ROOM;
    if (object_slabs_look_up(&cache->slabs, old) != OBJECTS_OK) return NEXT_OBJECT; /* freed meanwhile */
    pass->moves_left--;
    unsigned answer = mover->call(mover->move, old, pass->fresh, cache->bytes, cache->argument);
    if (answer >= OBJECT_MOVE_ANSWERS)
        fatal("move(): the answer is %u; allowed are 0 to %u (cache %s)", answer, OBJECT_MOVE_ANSWERS - 1, cache->name);
    __atomic_fetch_add(&mover->answers[answer], 1, __ATOMIC_RELAXED);
    if (answer == OBJECT_MOVE_YES)
        pass->fresh = NULL;
    else
        put_fresh_back(pass); /* the program may have written to it, and the next call is promised a constructed one */
    switch ((enum object_move_answer)answer) {
    case OBJECT_MOVE_YES:
    case OBJECT_MOVE_DONT_NEED: give_old(cache, old); return NEXT_OBJECT;
    case OBJECT_MOVE_DONT_KNOW:
        if (!pass->searched) object_cache_reap(pass->objects, cache);
        pass->searched = true;
        return object_slabs_look_up(&cache->slabs, old) == OBJECTS_OK ? SLAB_LATER : NEXT_OBJECT;
    case OBJECT_MOVE_NO: return SLAB_FIXED;
    default: return SLAB_LATER;
    }
}

/* Offers the objects of the slab that is apart, one after the other, and ends its being so. False: the pass can't go on. */
static bool empty_slab(struct pass *pass) {
    struct object_cache *cache = pass->cache;
    enum outcome outcome = NEXT_OBJECT;
    bool going = true;
    pass->searched = false;
    for (void *old = NULL; outcome == NEXT_OBJECT && (old = object_slabs_next(&cache->slabs, old)) != NULL;) {
        going = pass->moves_left != 0 && !object_is_leaving(cache);
        if (!going) break;
        outcome = move_object(pass, old);
    }
    put_fresh_back(pass);
    enum objects_mark mark = outcome == SLAB_FIXED ? OBJECTS_FIXED : outcome == SLAB_LATER ? OBJECTS_LATER : OBJECTS_MOVABLE;
    if (object_slabs_rejoin(&cache->slabs, mark) != 0) __atomic_fetch_add(&mover_of(cache)->emptied, 1, __ATOMIC_RELAXED);
    return going && outcome != NO_ROOM;
}

/* ------------------------------------------------------------------ a pass */

/* The caller is the mover, and the cache pinned. */
static void run_pass(struct object_caches *objects, struct object_cache *cache, uint64_t moves) {
    struct pass pass = {.objects = objects, .cache = cache, .moves_left = moves};
    struct object_mover *mover = mover_of(cache);
    /* Slabs whose marks go because something is freed are tried again, but not for ever. */
    uint64_t visits = __atomic_load_n(&cache->slabs.slabs, __ATOMIC_RELAXED);
    if (!mover->between) object_slabs_forget_marks(&cache->slabs);
    bool going = true;
    while (going && visits-- != 0 && object_slabs_part(&cache->slabs)) going = empty_slab(&pass);
    mover->between = pass.moves_left == 0;
}

static uint64_t released_bytes(struct object_cache *cache) {
    struct object_slabs_stats stats;
    object_slabs_stats_get(&cache->slabs, &stats);
    return stats.slabs_released * cache->slabs.slab_bytes;
}

uint64_t object_cache_consolidate(struct object_caches *objects, struct object_cache *cache) {
    struct object_mover *mover = mover_of(cache);
    uint64_t before = released_bytes(cache);
    if (mover == NULL || !object_pin(objects, cache)) return 0;
    bool free_to_move = become_mover(objects, true);
    if (free_to_move) {
        object_cache_reap(objects, cache);
        mover->between = false;
        run_pass(objects, cache, UINT64_MAX);
        be_mover_no_more(objects);
    }
    object_unpin(objects, cache);
    return free_to_move ? released_bytes(cache) - before : 0;
}

/* ------------------------------------------------------------------ by time */

static bool is_fragmented(struct object_cache *cache) {
    uint64_t spare = object_slabs_spare(&cache->slabs);
    return spare != 0 && spare * FRAGMENTED_SHARE >= __atomic_load_n(&cache->slabs.slabs, __ATOMIC_RELAXED);
}

/* The caller is the mover, and the cache pinned. Returns as object_caches_consolidate_tick. */
static bool tick_cache(struct object_caches *objects, struct object_cache *cache) {
    struct object_mover *mover = mover_of(cache);
    if (!is_fragmented(cache)) {
        mover->pause = mover->rest = 0;
        return false;
    }
    if (mover->rest != 0) {
        mover->rest--;
        return mover->pause < PAUSE_MAX;
    }
    object_cache_reap(objects, cache);
    uint64_t emptied = __atomic_load_n(&mover->emptied, __ATOMIC_RELAXED);
    if (is_fragmented(cache)) run_pass(objects, cache, MOVES_A_TICK);
    bool won = mover->between || __atomic_load_n(&mover->emptied, __ATOMIC_RELAXED) != emptied;
    mover->pause = won ? 0 : (uint32_t)min_u64(mover->pause != 0 ? mover->pause * 2u : 1, PAUSE_MAX);
    mover->rest = mover->pause;
    return mover->pause < PAUSE_MAX;
}

static bool has_mover(const struct object_cache *cache) { return mover_of(cache) != NULL; }

bool object_caches_consolidate_tick(struct object_caches *objects) {
    struct object_place place = {0};
    struct object_cache *cache;
    bool again = false, free_to_move = false;
    while ((cache = object_pin_next(objects, &place, has_mover)) != NULL) {
        if (!free_to_move && !(free_to_move = become_mover(objects, false))) again = true; /* who moves now knows nothing of the other caches */
        if (free_to_move) again |= tick_cache(objects, cache);
        object_unpin(objects, cache);
    }
    if (free_to_move) be_mover_no_more(objects);
    return again;
}

void object_mover_stats(const struct object_cache *cache, struct object_cache_stats *stats) {
    const struct object_mover *mover = mover_of(cache);
    for (unsigned i = 0; i < OBJECT_MOVE_ANSWERS; i++) stats->moves[i] = mover != NULL ? __atomic_load_n(&mover->answers[i], __ATOMIC_RELAXED) : 0;
    stats->slabs_emptied = mover != NULL ? __atomic_load_n(&mover->emptied, __ATOMIC_RELAXED) : 0;
}
