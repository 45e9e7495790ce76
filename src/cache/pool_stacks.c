/*
 * pool_stacks.c - local and global pools as in section 3 of Vee and Hsu: stacks that are linked through the free objects.
 *
 * The global pool is an array of lists, used as a stack. A local pool has a Backup stack, which fills first and empties last, and an Active one that
 * holds objects only while Backup is full. The paper gives each half of m; here Active has room for m_beta and Backup for the rest, so that what a
 * full local pool gives is its whole Active stack, whatever m_beta is. Taking moves one pointer too where the list on top is m_alpha long and fits
 * into Backup; with m_alpha = m_beta = m / 2 it always is and does. Else lists are cut and joined by walking along them.
 *
 * Lengths are counted, links end nowhere. Lock: the pool's; pop and push, which need none, are in pool.h.
 */
#include "cache/pool_internal.h"

#define LISTS_MIN 64

static void link_to(void *object, void *next) { *(void **)object = next; }

static void *last_of(const struct pool_list *list) {
    void *object = list->head;
    for (uint64_t i = 1; i < list->count; i++) object = stacks_next(object);
    return object;
}

/* Cuts the first `count` objects off a list that is longer. */
static struct pool_list cut(struct pool_list *list, uint64_t count) {
    struct pool_list front = {list->head, count};
    list->head = stacks_next(last_of(&front));
    list->count -= count;
    return front;
}

/* Puts `front` before the list. */
static void join(struct pool_list front, struct pool_list *list) {
    if (list->count != 0) link_to(last_of(&front), list->head);
    list->head = front.head;
    list->count += front.count;
}

static bool lists_grow(struct pool *pool) {
    uint64_t capacity = pool->lists_capacity != 0 ? pool->lists_capacity * 2 : LISTS_MIN;
    struct pool_list *lists = pool_memory_get(pool, capacity * sizeof *lists);
    if (lists == NULL) return false;
    if (pool->lists != NULL) {
        __builtin_memcpy(lists, pool->lists, pool->lists_count * sizeof *lists);
        pool_memory_put(pool, pool->lists, pool->lists_capacity * sizeof *lists);
    }
    pool->lists = lists;
    pool->lists_capacity = capacity;
    return true;
}

bool stacks_init(struct pool *pool) { return lists_grow(pool); }

/* Without memory for a longer array the list on top gets longer instead: a free must not fail. */
static void push_list(struct pool *pool, struct pool_list list) {
    if (list.count == 0) return;
    if (pool->lists_count < pool->lists_capacity || lists_grow(pool))
        pool->lists[pool->lists_count++] = list;
    else
        join(list, &pool->lists[pool->lists_count - 1]);
    pool->global += list.count;
}

void stacks_make(struct pool *pool, char *first, uint64_t count) {
    for (uint64_t made = 0; made < count;) {
        /* From the highest addresses down, in lists of m_alpha; what doesn't fill one goes to the bottom. */
        uint64_t rest = (count - made) % pool->m_alpha;
        struct pool_list list = {NULL, rest != 0 ? rest : pool->m_alpha};
        made += list.count;
        for (uint64_t i = list.count; i-- > 0;) {
            char *object = first + (count - made + i) * pool->object_bytes;
            link_to(object, list.head);
            list.head = object;
        }
        push_list(pool, list);
    }
}

void stacks_take(struct pool *pool, struct pool_local *local, uint32_t count) {
    struct pool_list taken = {0};
    while (taken.count < count) {
        struct pool_list *top = &pool->lists[pool->lists_count - 1];
        uint64_t wanted = count - taken.count;
        struct pool_list part = *top;
        if (top->count <= wanted)
            pool->lists_count--;
        else
            part = cut(top, wanted);
        join(part, &taken);
    }
    pool->global -= count;
    if (count > pool->backup) local->active_head = pool->backup != 0 ? cut(&taken, count - pool->backup).head : taken.head;
    local->backup_head = taken.head;
    __atomic_store_n(&local->stacked, count, __ATOMIC_RELAXED);
}

void stacks_give(struct pool *pool, struct pool_local *local, uint32_t count) {
    uint32_t active = local->stacked > pool->backup ? local->stacked - pool->backup : 0;
    push_list(pool, (struct pool_list){local->active_head, active});
    push_list(pool, (struct pool_list){local->backup_head, count - active}); /* none, but when all are given */
    __atomic_store_n(&local->stacked, local->stacked - count, __ATOMIC_RELAXED);
}
