/*
 * arena_check.c - the invariants of an arena as equations, verified on demand. Linear in all that there is; changes nothing.
 *
 * Lock rank: the arena's lock, LOCK_RANK_ARENA, held throughout.
 */
#include "arena/arena_internal.h"

struct sums {
    uint64_t spans, segments_allocated, segments_free, total, allocated, imported, slabs;
    bool rotor_seen;
};

/* One span: its tag and the segments that follow; leaves *node at what comes next. */
static const char *check_span(struct arena *arena, struct list **node, struct sums *sums) {
    const struct arena_tag *span = tag_of(*node);
    uint64_t filled = 0, low_bits = arena->quantum - 1;
    bool was_free = false;
    if (span->kind != TAG_SPAN) return "segments: one is outside all spans";
    if (span->size == 0 || ((span->start | span->size) & low_bits) != 0 || tag_last(span) < span->start) return "spans: not in quanta, or past 2^64";
    if (arena->rotor == *node) sums->rotor_seen = true;
    for (*node = (*node)->next; *node != &arena->segments && tag_of(*node)->kind != TAG_SPAN; *node = (*node)->next) {
        const struct arena_tag *tag = tag_of(*node);
        if (tag->start != span->start + filled || filled >= span->size) return "segments: a gap in a span, or one reaches past its end";
        if (tag->size == 0 || tag->size > span->size - filled || (tag->size & low_bits) != 0)
            return "segments: free + allocated of a span > span, or not in quanta";
        if (tag->kind == TAG_FREE) {
            if (was_free) return "segments: two free neighbours";
            sums->segments_free++;
        } else if (tag->kind == TAG_ALLOCATED) {
            if (arena_hash_find(arena, tag->start) != tag) return "hash: an allocated segment is not there";
            sums->segments_allocated++;
            sums->allocated += tag->size;
            if (tag->holder == ARENA_HOLDER_CACHE) sums->slabs += tag->size;
        } else {
            return "segments: one is neither free nor allocated";
        }
        was_free = tag->kind == TAG_FREE;
        filled += tag->size;
        if (arena->rotor == *node) sums->rotor_seen = true;
    }
    if (filled != span->size) return "segments: free + allocated of a span != span";
    sums->spans++;
    sums->total += span->size;
    if (span->imported) sums->imported += span->size;
    return arena_span_check(arena, span);
}

static const char *check_segments(struct arena *arena, struct sums *sums) {
    const struct arena_tag *before = NULL;
    for (struct list *node = arena->segments.next; node != &arena->segments;) {
        const struct arena_tag *span = tag_of(node);
        if (node->prev->next != node || node->next->prev != node) return "segments: links do not match";
        if (before != NULL && span->start <= tag_last(before)) return "spans: overlapping, or out of order";
        const char *wrong = check_span(arena, &node, sums);
        if (wrong != NULL) return wrong;
        before = span;
    }
    return NULL;
}

static const char *check_lists(struct arena *arena) {
    uint64_t found = 0;
    for (unsigned n = 0; n < ARENA_LISTS; n++) {
        struct list *list = &arena->lists[n];
        if ((arena->list_map >> n & 1) == (list_empty(list) ? 1 : 0)) return "lists: the map says otherwise";
        LIST_FOR_EACH(list, node) {
            const struct arena_tag *tag = CONTAINER_OF(node, struct arena_tag, u.free);
            if (tag->kind != TAG_FREE || tag->size == 0) return "lists: one that is not free is listed";
            if (bit_highest(tag->size) != n) return "lists: a segment is on the list of another size";
            if (++found > arena->segments_free) return "lists: more listed than segments_free";
        }
    }
    return found == arena->segments_free ? NULL : "lists: fewer listed than segments_free";
}

static uint64_t count_tree(const struct arena *arena) {
    /* Every span was found in the tree; in a tree of distinct starts, ascending order visits each node once. */
    uint64_t n = 0;
    for (const struct arena_tag *span = arena_span_floor(arena, UINT64_MAX); span != NULL && n <= arena->spans;
         span = span->start != 0 ? arena_span_floor(arena, span->start - 1) : NULL)
        n++;
    return n;
}

static const char *check_all(struct arena *arena) {
    struct sums sums = {0};
    /* First, as every look into the hash relies on it. */
    if (arena->hash_old.count != 0 && arena->hash_moved > arena->hash_old.count) return "hash: moved more buckets than there were";
    const char *wrong = check_segments(arena, &sums);
    if (wrong == NULL) wrong = check_lists(arena);
    if (wrong == NULL) wrong = arena_hash_check(arena);
    if (wrong == NULL) wrong = arena_tags_check(arena, sums.spans + sums.segments_allocated + sums.segments_free);
    if (wrong != NULL) return wrong;
    if (sums.spans != arena->spans || count_tree(arena) != arena->spans) return "counters: spans != spans found";
    if (sums.total != arena->total) return "counters: total != sum of spans";
    if (sums.imported != arena->imported) return "counters: imported != sum of imported spans";
    if (sums.allocated != arena->allocated) return "counters: allocated != sum of allocated segments";
    if (sums.slabs != arena->slabs) return "counters: slabs != sum of segments that are slabs";
    if (sums.segments_allocated != arena->segments_allocated) return "counters: segments_allocated != those found";
    if (sums.segments_free != arena->segments_free) return "counters: segments_free != those found";
    if (arena->rotor == &arena->segments) return NULL;
    if (!sums.rotor_seen) return "rotor: not on the segment list";
    return tag_of(arena->rotor)->start <= arena->rotor_start ? NULL : "rotor: behind rotor_start";
}

const char *arena_check(struct arena *arena) {
    platform_lock_acquire(&arena->lock);
    const char *wrong = check_all(arena);
    platform_lock_release(&arena->lock);
    return wrong;
}
