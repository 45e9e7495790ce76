/*
 * model_object_cache_reference.h - what the program has of each object cache, kept naively: the objects that it holds with what is in them, and the
 * set of all that are constructed.
 */
#ifndef STRATA_TESTS_MODEL_OBJECT_CACHE_REFERENCE_H
#define STRATA_TESTS_MODEL_OBJECT_CACHE_REFERENCE_H

#include "../unit/cache/cache_stack.h"
#include "cache/object_cache.h"
#include "model.h"

#define CACHES 2
#define HELD_MAX 1500
#define ALIVE_MAX 8192 /* constructed objects, held or cached */
#define CHAINS 1024

struct thing {
    uint64_t value; /* 0: nobody holds it */
    uint64_t copy;  /* of the value */
};

enum mood { MOOD_YES, MOOD_NO, MOOD_LATER, MOOD_MIXED, MOOD_MEDDLING, MOODS };

struct reference_cache {
    struct object_cache *cache; /* NULL: it is not there now */
    unsigned number;
    struct {
        struct thing *thing;
        uint64_t value;
    } held[HELD_MAX];
    unsigned held_count;
    struct { /* constructed; in chains by address */
        const void *object;
        uint32_t next; /* index + 1 */
        uint32_t held; /* index in held + 1; 0: it is cached */
    } alive[ALIVE_MAX];
    uint32_t chains[CHAINS], spare, alive_count;
    uint64_t made, unmade, refused, refuse_each, calls;
    uint64_t moves[OBJECT_MOVE_ANSWERS], reclaims, reclaimed;
    enum mood mood;
    unsigned gives; /* objects, when it is asked to */
    bool ever_no;   /* slabs may be marked for good */
    bool may_move, in_move, in_reclaim;
};

static struct model *model;
static struct reference_cache reference[CACHES];
static uint64_t dice;

static inline uint64_t roll(uint64_t sides) {
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (dice >> 33) % sides;
}

/* ------------------------------------------------------------------ constructed objects */

static inline uint32_t *chain_of(struct reference_cache *of, const void *object) {
    return &of->chains[((uintptr_t)object * UINT64_C(0x9e3779b97f4a7c15)) >> 40 & (CHAINS - 1)];
}

static inline void alive_clear(struct reference_cache *of) {
    memset(of->chains, 0, sizeof of->chains);
    of->alive_count = 0;
    of->spare = 1;
    for (uint32_t i = 0; i < ALIVE_MAX; i++) of->alive[i].next = i + 1 < ALIVE_MAX ? i + 2 : 0;
}

/* Its index + 1; 0: it is not constructed. */
static inline uint32_t alive_find(struct reference_cache *of, const void *object) {
    uint32_t i = *chain_of(of, object);
    while (i != 0 && of->alive[i - 1].object != object) i = of->alive[i - 1].next;
    return i;
}
static inline bool alive_has(struct reference_cache *of, const void *object) { return alive_find(of, object) != 0; }
static inline void alive_set_held(struct reference_cache *of, const void *object, uint32_t place) {
    uint32_t i = alive_find(of, object);
    MODEL_EXPECT(model, i != 0, "cache %u: %p is held, and not constructed", of->number, object);
    if (i != 0) of->alive[i - 1].held = place;
}

static inline void alive_add(struct reference_cache *of, const void *object) {
    uint32_t i = of->spare, *chain = chain_of(of, object);
    MODEL_EXPECT(model, i != 0, "more constructed objects than the reference has room for");
    if (i == 0) return;
    of->spare = of->alive[i - 1].next;
    of->alive[i - 1].object = object;
    of->alive[i - 1].held = 0;
    of->alive[i - 1].next = *chain;
    *chain = i;
    of->alive_count++;
}

static inline bool alive_remove(struct reference_cache *of, const void *object) {
    for (uint32_t *at = chain_of(of, object); *at != 0; at = &of->alive[*at - 1].next) {
        uint32_t i = *at;
        if (of->alive[i - 1].object != object) continue;
        *at = of->alive[i - 1].next;
        of->alive[i - 1].next = of->spare;
        of->spare = i;
        of->alive_count--;
        return true;
    }
    return false;
}

/* ------------------------------------------------------------------ held objects */

/* The index of an object that is held; held_count: it isn't. */
static inline unsigned held_index(struct reference_cache *of, const void *object) {
    uint32_t i = alive_find(of, object);
    return i != 0 && of->alive[i - 1].held != 0 ? of->alive[i - 1].held - 1 : of->held_count;
}

static inline void expect_contents(const struct reference_cache *of, unsigned i) {
    const struct thing *thing = of->held[i].thing;
    MODEL_EXPECT(model, thing->value == of->held[i].value && thing->copy == ~thing->value, "cache %u: %p has changed while it was held", of->number,
                 (const void *)thing);
}

static inline void hold(struct reference_cache *of, struct thing *thing) {
    MODEL_EXPECT(model, alive_has(of, thing), "cache %u: %p was handed out, and is not constructed", of->number, (void *)thing);
    MODEL_EXPECT(model, thing->value == 0 && held_index(of, thing) == of->held_count, "cache %u: %p was handed out twice", of->number, (void *)thing);
    MODEL_EXPECT(model, (uintptr_t)thing % 16 == 0, "cache %u: %p is not aligned", of->number, (void *)thing);
    if (model->failed) return;
    uint64_t value = (roll(UINT32_MAX) << 20 | of->held_count) + 1;
    thing->value = value;
    thing->copy = ~value;
    of->held[of->held_count].thing = thing;
    of->held[of->held_count++].value = value;
    alive_set_held(of, thing, of->held_count);
}

/* It is the program's no more; its memory is left as the constructor left it. */
static inline struct thing *let_go(struct reference_cache *of, unsigned i) {
    struct thing *thing = of->held[i].thing;
    expect_contents(of, i);
    alive_set_held(of, thing, 0);
    of->held[i] = of->held[--of->held_count];
    if (i < of->held_count) alive_set_held(of, of->held[i].thing, i + 1);
    *thing = (struct thing){0};
    return thing;
}

#endif
