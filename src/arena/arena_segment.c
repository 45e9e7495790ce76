/*
 * arena_segment.c - cutting free segments, merging freed ones, and the power-of-two lists of the free.
 *
 * Invariants: a free segment of size s is on list floor(log2 s), and bit n of list_map is set exactly if list n is not empty; two
 * free segments of one span never touch; the lower tag survives a cut and a merge; `rotor` is a node of the segment list whose
 * start is not above rotor_start. Lock rank: the arena's lock, LOCK_RANK_ARENA.
 */
#include "arena/arena_internal.h"

void arena_segment_list(struct arena *arena, struct arena_tag *tag) {
    unsigned n = bit_highest(tag->size);
    tag->kind = TAG_FREE;
    list_push_front(&arena->lists[n], &tag->u.free);
    arena->list_map |= (uint64_t)1 << n;
    arena->segments_free++;
    arena->changes++;
}

void arena_segment_unlist(struct arena *arena, struct arena_tag *tag) {
    unsigned n = bit_highest(tag->size);
    list_remove(&tag->u.free);
    if (list_empty(&arena->lists[n])) arena->list_map &= ~((uint64_t)1 << n);
    arena->segments_free--;
    arena->changes++;
}

unsigned arena_segment_cuts(const struct arena_tag *tag, uint64_t at, uint64_t size) {
    return (at != tag->start ? 1u : 0u) + (at + (size - 1) != tag_last(tag) ? 1u : 0u);
}

/* A new tag for [at, last] right behind `before`. */
static struct arena_tag *insert_behind(struct arena *arena, struct arena_tag *before, uint64_t at, uint64_t last) {
    struct arena_tag *tag = arena_tag_take(arena);
    tag->start = at;
    tag->size = last - at + 1;
    tag->imported = false;
    list_push_front(&before->segment, &tag->segment);
    return tag;
}

void arena_segment_carve(struct arena *arena, struct arena_tag *tag, uint64_t at, uint64_t size) {
    uint64_t last = tag_last(tag), cut_last = at + (size - 1);
    struct arena_tag *cut = tag;
    arena_segment_unlist(arena, tag);
    if (at != tag->start) {
        tag->size = at - tag->start;
        arena_segment_list(arena, tag);
        cut = insert_behind(arena, tag, at, cut_last);
    }
    cut->size = size;
    if (cut_last != last) arena_segment_list(arena, insert_behind(arena, cut, cut_last + 1, last));
    cut->kind = TAG_ALLOCATED;
    cut->holder = ARENA_HOLDER_CALLER;
    arena->segments_allocated++;
    arena->allocated += size;
    arena_hash_insert(arena, cut);
}

/* Takes a tag off the segment list for good; what pointed to it for next fit falls back to its predecessor. */
static void drop_tag(struct arena *arena, struct arena_tag *tag) {
    if (arena->rotor == &tag->segment) arena->rotor = tag->segment.prev;
    list_remove(&tag->segment);
    arena_tag_put(arena, tag);
}

static struct arena_tag *neighbour_if_free(struct arena *arena, struct list *node) {
    return node != &arena->segments && tag_of(node)->kind == TAG_FREE ? tag_of(node) : NULL;
}

struct arena_tag *arena_segment_free(struct arena *arena, struct arena_tag *tag) {
    arena_hash_remove(arena, tag);
    arena->segments_allocated--;
    arena->allocated -= tag->size;
    struct arena_tag *next = neighbour_if_free(arena, tag->segment.next), *prev = neighbour_if_free(arena, tag->segment.prev);
    if (next != NULL) {
        arena_segment_unlist(arena, next);
        tag->size += next->size;
        drop_tag(arena, next);
    }
    if (prev != NULL) {
        arena_segment_unlist(arena, prev);
        prev->size += tag->size;
        drop_tag(arena, tag);
        tag = prev;
    }
    arena_segment_list(arena, tag);
    return tag;
}

static enum arena_status grow(struct arena *arena, struct arena_tag *tag, uint64_t more) {
    struct arena_tag *next = neighbour_if_free(arena, tag->segment.next);
    if (next == NULL || next->size < more) return ARENA_NO_SPACE;
    arena_segment_unlist(arena, next);
    tag->size += more;
    arena->allocated += more;
    if (next->size == more) {
        drop_tag(arena, next);
        return ARENA_OK;
    }
    /* The start of `next` rises, perhaps past rotor_start; ours does not. */
    if (arena->rotor == &next->segment) arena->rotor = &tag->segment;
    next->start += more;
    next->size -= more;
    arena_segment_list(arena, next);
    return ARENA_OK;
}

static enum arena_status shrink(struct arena *arena, struct arena_tag *tag, uint64_t less) {
    struct arena_tag *next = neighbour_if_free(arena, tag->segment.next);
    uint64_t last = tag_last(tag);
    if (next == NULL && arena_tags_free(arena) == 0) return ARENA_NO_TAGS;
    tag->size -= less;
    arena->allocated -= less;
    if (next != NULL) {
        arena_segment_unlist(arena, next);
        next->start -= less;
        next->size += less;
    } else {
        next = insert_behind(arena, tag, last - (less - 1), last);
    }
    arena_segment_list(arena, next);
    return ARENA_OK;
}

STRATA_RARE enum arena_status arena_segment_resize(struct arena *arena, struct arena_tag *tag, uint64_t new_size) {
    if (new_size > tag->size) return grow(arena, tag, new_size - tag->size);
    return new_size < tag->size ? shrink(arena, tag, tag->size - new_size) : ARENA_OK;
}

STRATA_RARE bool arena_segment_split(struct arena *arena, struct arena_tag *tag, uint64_t size) {
    if (arena_tags_free(arena) == 0) return false;
    struct arena_tag *rest = insert_behind(arena, tag, tag->start + size, tag_last(tag));
    tag->size = size;
    rest->kind = TAG_ALLOCATED;
    rest->holder = ARENA_HOLDER_CALLER;
    arena->segments_allocated++;
    arena->changes++;
    arena_hash_insert(arena, rest);
    return true;
}

struct arena_tag *arena_segment_behind(struct arena *arena, struct arena_tag *tag) {
    struct list *node = tag->segment.next;
    return node != &arena->segments && tag_of(node)->kind == TAG_ALLOCATED ? tag_of(node) : NULL;
}

STRATA_RARE void arena_segment_join(struct arena *arena, struct arena_tag *tag, struct arena_tag *next) {
    arena_hash_remove(arena, next);
    arena->segments_allocated--;
    arena->changes++;
    tag->size += next->size;
    drop_tag(arena, next);
}
