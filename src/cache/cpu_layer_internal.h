/*
 * cpu_layer_internal.h - what cpu_layer.c and cpu_threads.c share: headers in the areas of others, and what is behind them. Private to the two.
 */
#ifndef STRATA_CACHE_CPU_LAYER_INTERNAL_H
#define STRATA_CACHE_CPU_LAYER_INTERNAL_H

#include "cache/cache_internal.h"

STRATA_INLINE char *area_at(const struct cache_layer *caches, unsigned area) { return caches->areas_at + ((size_t)area << CPU_AREA_SHIFT); }
STRATA_INLINE struct cpu_header *header_at(const struct cache_layer *caches, unsigned area, unsigned cache) {
    return cpu_area_header(area_at(caches, area), cache);
}
/* All of a header at one moment, while its owner may be at work. Acquire: whoever sees its header opened sees its place (depot_place). */
STRATA_INLINE struct cpu_header header_load(const struct cache_layer *caches, unsigned area, unsigned cache) {
    struct cpu_header header;
    __atomic_load(header_at(caches, area, cache), &header, __ATOMIC_ACQUIRE);
    return header;
}
STRATA_INLINE uint32_t *upper_half(struct cpu_header *header) { return (uint32_t *)(void *)&header->bottom; }
STRATA_INLINE uint32_t upper_at(const struct cache_layer *caches, unsigned area, unsigned cache) {
    return __atomic_load_n(upper_half(header_at(caches, area, cache)), __ATOMIC_RELAXED);
}

/* The slot of the lowest round that an array still has, if it has any. */
STRATA_INLINE unsigned first_round(const struct cache_layer *caches, unsigned cache, struct cpu_header header) {
    const unsigned taken = cpu_upper_taken(cpu_header_upper(header));
    return taken != 0 ? taken : __atomic_load_n(&caches->depots[cache].bottom, __ATOMIC_RELAXED);
}
/* How many rounds an array has at this moment. That of a header without use isn't asked: its cache may be coming or going. */
STRATA_INLINE unsigned rounds_at(const struct cache_layer *caches, unsigned area, unsigned cache) {
    const struct cpu_header header = header_load(caches, area, cache);
    if (header.top == 0) return 0;
    const unsigned first = first_round(caches, cache, header);
    return header.top > first ? header.top - first : 0;
}

/* A cache that is being destroyed is its destroyer's alone. */
STRATA_INLINE bool is_leaving(const struct cache_layer *caches, unsigned cache) {
    return __atomic_load_n(&caches->depots[cache].leaving, __ATOMIC_RELAXED);
}
STRATA_INLINE bool is_shut(const struct cache_layer *caches, unsigned cache) {
    return __atomic_load_n(&caches->depots[cache].shut, __ATOMIC_SEQ_CST) != 0;
}
/* Whoever closes, opens or drains arrays leaves those of this cache alone. */
STRATA_INLINE bool is_apart(const struct cache_layer *caches, unsigned cache) { return is_leaving(caches, cache) || is_shut(caches, cache); }

STRATA_INLINE bool area_used(const struct cache_layer *caches, unsigned area) {
    return (__atomic_load_n(&caches->used[area / 64], __ATOMIC_ACQUIRE) >> (area % 64) & 1) != 0;
}

/*
 * Takes the rounds of one header whose `top` the caller may write: closed and fenced, the caller's own, or of a thread that is gone. To the slabs, or
 * where others may want them soon to the depot (regroup). Under drain_lock, which is let go while they are given back, as that may run functions of
 * the program: nobody else leaves a header closed that was not fenced.
 */
void cpu_header_empty(struct cache_layer *caches, unsigned area, unsigned cache, uint32_t upper_after, bool regroup);
/* Hands rounds on, as above: lets the drain lock go meanwhile. */
void cpu_layer_give(struct cache_layer *caches, unsigned cache, void *const *rounds, unsigned count, bool regroup);
/* The areas of ids [from, to), whole pages of them. */
bool cpu_layer_commit(const struct cache_layer *caches, uint32_t from, uint32_t to);

/* ------------------------------------------------------------------ thread mode: cpu_threads.c */

/* Where the digest of an area is: at the first slot behind its headers. Behind it is the owner's word, in the first layer's area. */
uint64_t *cpu_thread_digest(const struct cache_layer *caches, uint32_t id);
/* How many areas the first layer, and so all, are to have; and its memory for ids, whole or not at all. */
unsigned cpu_thread_areas(void);
bool cpu_thread_ids_init(struct cache_layer *caches);
/* The calling thread gets an id with a committed area; 0: none is left, or it can't be told when the thread ends. */
uint32_t cpu_thread_take_id(struct cache_layer *caches);
/* What a shut array of the calling thread still has goes to the backend. Elsewhere it was emptied when it was shut. */
void cpu_thread_empty_own(struct cache_layer *caches, unsigned cache);
/*
 * Drained, and its limit says how far: nobody opens it before its owner has put it in order, under drain_lock. So under that lock the round of a late
 * push can be taken from it.
 */
STRATA_INLINE bool cpu_upper_is_unsettled(uint32_t upper) { return cpu_upper_drained(upper) && cpu_upper_taken(upper) != 0; }
bool cpu_thread_is_unsettled(const struct cache_layer *caches, uint32_t id, unsigned cache);
/* The calling thread's array is in order again where others have taken rounds of it: drained, with no round. */
void cpu_thread_settle_own(struct cache_layer *caches, unsigned cache);
/*
 * All headers of the area are closed. True: its owner sees that, and no sequence is under way that does not, but for a single push. Patient: an owner
 * in the middle of a sequence is waited for, some 20 ms at most. Under drain_lock.
 */
bool cpu_thread_fence(const struct cache_layer *caches, uint32_t id, bool patient);
/* Takes the rounds of a header that is closed and fenced, or unsettled, as cpu_header_empty does, and leaves its top alone. */
void cpu_thread_take(struct cache_layer *caches, uint32_t id, unsigned cache, bool regroup);

#endif
