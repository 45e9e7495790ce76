/*
 * pool_rounds.c - the global pool as one array of pointers to objects, for local pools that are arrays too.
 *
 * It holds the lists of the paper end to end, the last one given on top: a transfer is one copy of m_alpha or m_beta pointers, and the two need
 * not be the same. The array has room for every object of the pool before the object is made, so that giving never fails.
 * Lock: the pool's.
 */
#include "cache/pool_internal.h"

#define ROUNDS_MIN 512

bool rounds_reserve(struct pool *pool, uint64_t objects) {
    uint64_t capacity = pool->rounds_capacity != 0 ? pool->rounds_capacity : ROUNDS_MIN;
    if (objects <= pool->rounds_capacity) return true;
    while (capacity < objects) capacity *= 2;
    void **rounds = pool_memory_get(pool, capacity * sizeof *rounds);
    if (rounds == NULL) return false;
    if (pool->rounds != NULL) {
        __builtin_memcpy(rounds, pool->rounds, pool->global * sizeof *rounds);
        pool_memory_put(pool, pool->rounds, pool->rounds_capacity * sizeof *rounds);
    }
    pool->rounds = rounds;
    pool->rounds_capacity = capacity;
    return true;
}

void rounds_make(struct pool *pool, char *first, uint64_t count) {
    for (uint64_t i = count; i-- > 0;) pool->rounds[pool->global++] = first + i * pool->object_bytes;
}

void rounds_take(struct pool *pool, struct pool_local *local, uint32_t count) {
    pool->global -= count;
    __builtin_memcpy(local->rounds, pool->rounds + pool->global, count * sizeof *local->rounds);
    __atomic_store_n(&local->count, count, __ATOMIC_RELAXED);
}

/* From the top, as the CPU layer does: what stays need not move. */
void rounds_give(struct pool *pool, struct pool_local *local, uint32_t count) {
    uint32_t left = local->count - count;
    __builtin_memcpy(pool->rounds + pool->global, local->rounds + left, count * sizeof *local->rounds);
    pool->global += count;
    __atomic_store_n(&local->count, left, __ATOMIC_RELAXED);
}
