/*
 * arena_hash.c - allocated segments by start: what makes free constant-time, and catches frees of what is not allocated.
 *
 * The table doubles when it holds more segments than buckets and halves below one in eight. It is moved a few buckets with
 * each insert and remove, never all at once. Bucket i of the old table goes to those buckets of the new one whose index is
 * congruent to i modulo the smaller of both sizes; before bucket i has moved, nobody looks at its counterparts, so a new table
 * needs no clearing: they are cleared when bucket i moves.
 *
 * Invariants: a tag whose hash falls into an old bucket >= hash_moved is in the old table, any other in the new one; the number
 * of tags in both is segments_allocated. Lock rank: the arena's lock, LOCK_RANK_ARENA.
 */
#include "arena/arena_internal.h"

/* Moves at least one bucket in each half operation that a doubling takes: done long before the next is due. */
#define MOVES_PER_STEP 2
#define BUCKETS_PER_BATCH (ARENA_BATCH_BYTES / sizeof(struct arena_tag *))

void arena_hash_init(struct arena *arena) {
    for (size_t i = 0; i < ARENA_BOOT_BUCKETS; i++) arena->boot_buckets[i] = NULL;
    arena->hash = (struct arena_hash){arena->boot_buckets, ARENA_BOOT_BUCKETS};
    arena->hash_old = (struct arena_hash){NULL, 0};
    arena->hash_moved = 0;
    arena->hash_retry = 0;
    arena->hash_busy = false;
}

static struct arena_tag **bucket_of(struct arena *arena, uint64_t start) {
    uint64_t h = mix_start(arena, start);
    if (arena->hash_old.count != 0) {
        uint64_t i = h & (arena->hash_old.count - 1);
        if (i >= arena->hash_moved) return &arena->hash_old.buckets[i];
    }
    return &arena->hash.buckets[h & (arena->hash.count - 1)];
}

static void move_step(struct arena *arena) {
    struct arena_hash *old = &arena->hash_old, *new = &arena->hash;
    for (unsigned n = 0; n < MOVES_PER_STEP && arena->hash_moved < old->count; n++) {
        uint64_t i = arena->hash_moved;
        for (uint64_t j = i; j < new->count; j += old->count) new->buckets[j] = NULL;
        struct arena_tag *tag = old->buckets[i];
        while (tag != NULL) {
            struct arena_tag *next = tag->u.chain, **bucket = &new->buckets[mix_start(arena, tag->start) & (new->count - 1)];
            tag->u.chain = *bucket;
            *bucket = tag;
            tag = next;
        }
        arena->hash_moved++;
    }
}

void arena_hash_insert(struct arena *arena, struct arena_tag *tag) {
    struct arena_tag **bucket = bucket_of(arena, tag->start);
    tag->u.chain = *bucket;
    *bucket = tag;
    move_step(arena);
}

struct arena_tag *arena_hash_find(struct arena *arena, uint64_t start) {
    struct arena_tag *tag = *bucket_of(arena, start);
    while (tag != NULL && tag->start != start) tag = tag->u.chain;
    return tag;
}

void arena_hash_remove(struct arena *arena, struct arena_tag *tag) {
    struct arena_tag **link = bucket_of(arena, tag->start);
    while (*link != tag) {
        CHECK(*link != NULL);
        link = &(*link)->u.chain;
    }
    *link = tag->u.chain;
    move_step(arena);
}

uint64_t arena_hash_wanted(const struct arena *arena) {
    uint64_t count = arena->hash.count, used = arena->segments_allocated;
    if (arena->hash_busy || arena->hash_old.count != 0 || arena->ops->memory_get == NULL) return 0;
    if (used > count) return used < arena->hash_retry ? 0 : max_u64(count * 2, BUCKETS_PER_BATCH);
    if (count > BUCKETS_PER_BATCH) return used < count / 8 ? count / 2 : 0;
    return count > ARENA_BOOT_BUCKETS && used < ARENA_BOOT_BUCKETS / 2 ? ARENA_BOOT_BUCKETS : 0;
}

void arena_hash_install(struct arena *arena, struct arena_tag **buckets, uint64_t count) {
    arena->hash_old = arena->hash;
    arena->hash = (struct arena_hash){buckets, count};
    arena->hash_moved = 0;
    arena->hash_retry = 0;
}

unsigned arena_hash_retire(struct arena *arena, struct arena_hash tables[TABLES_RETIRED_MAX]) {
    unsigned n = 0;
    if (arena->segments_allocated == 0 && arena->hash.count > BUCKETS_PER_BATCH && !arena->hash_busy) {
        /* Nothing to move: a large table need not wait for the operations that would halve it time and again. */
        if (arena->hash_old.count != 0) tables[n++] = arena->hash_old;
        tables[n++] = arena->hash;
        arena_hash_init(arena);
    } else if (arena->hash_old.count != 0 && arena->hash_moved == arena->hash_old.count) {
        tables[n++] = arena->hash_old;
        arena->hash_old = (struct arena_hash){NULL, 0};
    }
    return n;
}

void arena_hash_put(struct arena *arena, struct arena_hash table) {
    if (table.count != 0 && table.buckets != arena->boot_buckets && arena->ops->memory_put != NULL)
        arena->ops->memory_put(arena->ctx, table.buckets, table.count * sizeof(struct arena_tag *));
}

STRATA_SELDOM void arena_hash_destroy(struct arena *arena) {
    arena_hash_put(arena, arena->hash_old);
    arena_hash_put(arena, arena->hash);
    arena_hash_init(arena);
}

/* Tags in one chain that belong there, or UINT64_MAX where one does not. */
static uint64_t check_chain(struct arena *arena, struct arena_tag **bucket) {
    uint64_t n = 0;
    for (const struct arena_tag *tag = *bucket; tag != NULL; tag = tag->u.chain) {
        if (tag->kind != TAG_ALLOCATED || bucket_of(arena, tag->start) != bucket || n > arena->segments_allocated) return UINT64_MAX;
        n++;
    }
    return n;
}

STRATA_SELDOM const char *arena_hash_check(struct arena *arena) {
    uint64_t found = 0;
    uint64_t old_count = arena->hash_old.count;
    for (uint64_t i = arena->hash_moved; i < old_count; i++) {
        uint64_t n = check_chain(arena, &arena->hash_old.buckets[i]);
        if (n == UINT64_MAX) return "hash: a tag in the old table is not allocated, or in the wrong bucket";
        found += n;
    }
    for (uint64_t i = 0; i < arena->hash.count; i++) {
        if (old_count != 0 && (i & (old_count - 1)) >= arena->hash_moved) continue; /* not in use yet */
        uint64_t n = check_chain(arena, &arena->hash.buckets[i]);
        if (n == UINT64_MAX) return "hash: a tag is not allocated, or in the wrong bucket";
        found += n;
    }
    return found == arena->segments_allocated ? NULL : "hash: tags in the table != segments_allocated";
}
