/*
 * arena_walk.c - looking at an arena from outside, its names for what went wrong, and what fork asks of it.
 *
 * A walk copies a few segments at a time under the lock and shows them with the lock dropped, so that whoever looks may
 * allocate, print and sleep. It goes on by address: what starts behind the last one that it passed. If nothing has changed since
 * (`changes`), the tag where it stopped is still good and need not be searched for. Else one of the allocated segments that it passed last leads
 * there, where one still is allocated: a span may have millions. Lock rank: the arena's lock, LOCK_RANK_ARENA.
 */
#include "arena/arena_internal.h"

#define WALK_BATCH 32
/* So many tags are passed under one hold of the lock, whether they are shown or not. */
#define WALK_TAGS 256
/* So many allocated segments are remembered: who looks may free some of them. */
#define WALK_PASSED 32

/* Where a walk stands: behind the tag `last`, which has this start and kind. */
struct cursor {
    bool begun;
    bool ended;
    bool was_span;
    uint64_t start;
    uint64_t changes; /* of the arena when `last` was valid */
    struct list *last;
    uint64_t passed_count;
    uint64_t passed[WALK_PASSED]; /* starts of allocated segments, the last ones */
};

static unsigned kind_of(const struct arena_tag *tag) {
    return tag->kind == TAG_SPAN ? ARENA_SPAN : tag->kind == TAG_FREE ? ARENA_FREE : ARENA_ALLOCATED;
}

/* A node at or in front of where the walk goes on, and near to it. */
static struct list *find_near(struct arena *arena, const struct cursor *cursor) {
    struct arena_tag *span = arena_span_floor(arena, cursor->start);
    if (span == NULL) return arena->segments.next;
    for (uint64_t n = 0; n < min_u64(cursor->passed_count, WALK_PASSED); n++) {
        const uint64_t start = cursor->passed[(cursor->passed_count - 1 - n) % WALK_PASSED];
        if (start < span->start) break;
        struct arena_tag *tag = arena_hash_find(arena, start);
        if (tag != NULL) return &tag->segment;
    }
    return &span->segment;
}

static struct list *resume(struct arena *arena, const struct cursor *cursor) {
    if (!cursor->begun) return arena->segments.next;
    if (cursor->changes == arena->changes) return cursor->last->next;
    struct list *node = find_near(arena, cursor);
    for (; node != &arena->segments; node = node->next) {
        const struct arena_tag *tag = tag_of(node);
        if (tag->start > cursor->start || (tag->start == cursor->start && cursor->was_span && tag->kind != TAG_SPAN)) break;
    }
    return node;
}

static void pass(struct arena *arena, struct list *node, struct cursor *cursor) {
    const struct arena_tag *tag = tag_of(node);
    cursor->begun = true;
    cursor->was_span = tag->kind == TAG_SPAN;
    cursor->start = tag->start;
    cursor->changes = arena->changes;
    cursor->last = node;
    if (tag->kind == TAG_ALLOCATED) cursor->passed[cursor->passed_count++ % WALK_PASSED] = tag->start;
}

static size_t copy_batch(struct arena *arena, unsigned kinds, struct cursor *cursor, struct arena_segment *out) {
    size_t n = 0;
    platform_lock_acquire(&arena->lock);
    struct list *node = resume(arena, cursor);
    for (unsigned tags = 0; node != &arena->segments && n < WALK_BATCH && tags < WALK_TAGS; node = node->next, tags++) {
        const struct arena_tag *tag = tag_of(node);
        pass(arena, node, cursor);
        if ((kinds & kind_of(tag)) != 0) out[n++] = (struct arena_segment){tag->start, tag->size, kind_of(tag)};
    }
    cursor->ended = node == &arena->segments;
    platform_lock_release(&arena->lock);
    return n;
}

void arena_walk(struct arena *arena, unsigned kinds, bool (*visit)(const struct arena_segment *segment, void *argument), void *argument) {
    struct arena_segment batch[WALK_BATCH];
    struct cursor cursor = {0};
    while (!cursor.ended) {
        size_t n = copy_batch(arena, kinds, &cursor, batch);
        for (size_t i = 0; i < n; i++)
            if (!visit(&batch[i], argument)) return;
    }
}

uint64_t arena_size(struct arena *arena, unsigned kinds) {
    platform_lock_acquire(&arena->lock);
    uint64_t allocated = arena->allocated, total = arena->total;
    platform_lock_release(&arena->lock);
    return ((kinds & ARENA_ALLOCATED) != 0 ? allocated : 0) + ((kinds & ARENA_FREE) != 0 ? total - allocated : 0);
}

bool arena_in_use(struct arena *arena) {
    platform_lock_acquire(&arena->lock);
    bool in_use = arena->allocated != arena->slabs;
    platform_lock_release(&arena->lock);
    return in_use;
}

enum arena_status arena_lookup(struct arena *arena, uint64_t start, uint64_t *size) {
    platform_lock_acquire(&arena->lock);
    const struct arena_tag *tag = arena_hash_find(arena, start);
    if (tag != NULL) *size = tag->size;
    platform_lock_release(&arena->lock);
    return tag != NULL ? ARENA_OK : ARENA_NOT_ALLOCATED;
}

/* The smallest table is inside the struct. */
static uint64_t table_bytes(const struct arena_hash *table) { return table->count > ARENA_BOOT_BUCKETS ? table->count * sizeof *table->buckets : 0; }

void arena_stats_get(struct arena *arena, struct arena_stats *stats) {
    platform_lock_acquire(&arena->lock);
    *stats = (struct arena_stats){.name = arena->name,
                                  .quantum = arena->quantum,
                                  .total = arena->total,
                                  .allocated = arena->allocated,
                                  .free = arena->total - arena->allocated,
                                  .imported = arena->imported,
                                  .limit = arena->limit,
                                  .spans = arena->spans,
                                  .segments_allocated = arena->segments_allocated,
                                  .segments_free = arena->segments_free,
                                  .tags_total = arena->tags_total,
                                  .tags_spare = arena->tags_spare,
                                  .tag_batches = arena->batches,
                                  .hash_buckets = arena->hash.count,
                                  .memory_bytes = arena->batches * ARENA_BATCH_BYTES + table_bytes(&arena->hash) + table_bytes(&arena->hash_old),
                                  .waiters = arena->waiters,
                                  .counters = arena->counters};
    platform_lock_release(&arena->lock);
}

const char *arena_status_text(enum arena_status status) {
    switch (status) {
    case ARENA_OK: return "ok";
    case ARENA_NO_SPACE: return "no free segment fits";
    case ARENA_NO_TAGS: return "no memory for boundary tags";
    case ARENA_BAD_ARGUMENT: return "an argument is out of range";
    case ARENA_BAD_RANGE: return "the span passes 2^64";
    case ARENA_OVERLAP: return "the span overlaps another";
    case ARENA_NOT_ALLOCATED: return "nothing allocated starts there";
    case ARENA_SIZE_MISMATCH: return "what starts there has another size";
    case ARENA_BAD_SOURCE: return "the source gave a span that can't be right";
    case ARENA_BUSY: return "parts are still allocated";
    }
    return "unknown status";
}

void arena_fork_prepare(struct arena *arena) { platform_lock_hold(&arena->lock); }
void arena_fork_parent(struct arena *arena) { platform_lock_unhold(&arena->lock); }

void arena_fork_child(struct arena *arena) {
    /* Threads that were out of the lock to get memory or to sleep do not exist here; what they were bringing is lost. */
    arena->refills = 0;
    arena->hash_busy = false;
    arena->waiters = 0;
    arena->importing = 0;
    arena->tags_promised = 0;
    arena->limit_denied = false;
    platform_lock_unhold(&arena->lock);
}
