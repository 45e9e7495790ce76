/*
 * arena_span.c - spans: added by the owner or imported from a source, removed, and given back when nothing of them is in use.
 *
 * Each span has a tag of its own on the segment list, right before its segments, which keeps segments of two spans apart. The
 * span tags also form a treap (a search tree by start that is a heap by a hash of the start, hence balanced in expectation), for
 * overlaps, for the place of a new span on the segment list, and for arena_contains.
 *
 * Invariants: spans do not overlap; total is the sum of their sizes and less than 2^64; imported is the sum of the imported ones. Lock rank: the
 * arena's lock, LOCK_RANK_ARENA.
 */
#include "arena/arena_internal.h"

static bool above(const struct arena *arena, const struct arena_tag *a, const struct arena_tag *b) {
    uint64_t pa = mix_start(arena, a->start), pb = mix_start(arena, b->start);
    return pa != pb ? pa > pb : a->start > b->start;
}

static void tree_insert(struct arena *arena, struct arena_tag *span) {
    struct arena_tag **link = &arena->span_root;
    while (*link != NULL && above(arena, *link, span)) link = span->start < (*link)->start ? &(*link)->u.tree.left : &(*link)->u.tree.right;
    /* What hung here is split by the new start into its two subtrees. */
    struct arena_tag *rest = *link, **left = &span->u.tree.left, **right = &span->u.tree.right;
    *link = span;
    while (rest != NULL) {
        if (rest->start < span->start) {
            *left = rest;
            left = &rest->u.tree.right;
            rest = rest->u.tree.right;
        } else {
            *right = rest;
            right = &rest->u.tree.left;
            rest = rest->u.tree.left;
        }
    }
    *left = *right = NULL;
}

static void tree_remove(struct arena *arena, struct arena_tag *span) {
    struct arena_tag **link = &arena->span_root, *left = span->u.tree.left, *right = span->u.tree.right;
    while (*link != span) {
        CHECK(*link != NULL);
        link = span->start < (*link)->start ? &(*link)->u.tree.left : &(*link)->u.tree.right;
    }
    while (left != NULL && right != NULL) {
        if (above(arena, left, right)) {
            *link = left;
            link = &left->u.tree.right;
            left = left->u.tree.right;
        } else {
            *link = right;
            link = &right->u.tree.left;
            right = right->u.tree.left;
        }
    }
    *link = left != NULL ? left : right;
}

struct arena_tag *arena_span_floor(const struct arena *arena, uint64_t x) {
    struct arena_tag *best = NULL;
    for (struct arena_tag *span = arena->span_root; span != NULL;) {
        if (span->start <= x) {
            best = span;
            span = span->u.tree.right;
        } else {
            span = span->u.tree.left;
        }
    }
    return best;
}

/* The span with the lowest start > x, NULL: none. */
static struct arena_tag *span_above(const struct arena *arena, uint64_t x) {
    struct arena_tag *best = NULL;
    for (struct arena_tag *span = arena->span_root; span != NULL;) {
        if (span->start > x) {
            best = span;
            span = span->u.tree.left;
        } else {
            span = span->u.tree.right;
        }
    }
    return best;
}

/* What add and import ask of a range, the size known to be a positive multiple of the quantum. */
static enum arena_status check_range(const struct arena *arena, uint64_t start, uint64_t size) {
    uint64_t last, total;
    if (__builtin_add_overflow(start, size - 1, &last) || __builtin_add_overflow(arena->total, size, &total)) return ARENA_BAD_RANGE;
    /* The spans are disjoint: if any reaches into the range, then the one that starts highest below its end does. */
    const struct arena_tag *span = arena_span_floor(arena, last);
    return span != NULL && tag_last(span) >= start ? ARENA_OVERLAP : ARENA_OK;
}

static bool is_multiple(const struct arena *arena, uint64_t start, uint64_t size) {
    return size != 0 && ((start | size) & (arena->quantum - 1)) == 0;
}

/* Takes two tags. Returns the span's one free segment. */
static struct arena_tag *create_span(struct arena *arena, uint64_t start, uint64_t size, bool imported) {
    struct arena_tag *next = span_above(arena, start), *span = arena_tag_take(arena), *segment = arena_tag_take(arena);
    struct list *place = next != NULL ? &next->segment : &arena->segments;
    span->start = segment->start = start;
    span->size = segment->size = size;
    span->kind = TAG_SPAN;
    span->imported = imported;
    segment->imported = false;
    list_push_back(place, &span->segment);
    list_push_back(place, &segment->segment);
    tree_insert(arena, span);
    arena_segment_list(arena, segment);
    arena->spans++;
    arena->total += size;
    if (imported) arena->imported += size;
    return segment;
}

/* The span's free segment fills it. */
STRATA_SELDOM static void delete_span(struct arena *arena, struct arena_tag *span) {
    struct arena_tag *segment = tag_of(span->segment.next);
    if (arena->rotor == &span->segment || arena->rotor == &segment->segment) arena->rotor = span->segment.prev;
    arena_segment_unlist(arena, segment);
    tree_remove(arena, span);
    list_remove(&segment->segment);
    list_remove(&span->segment);
    arena->spans--;
    arena->total -= span->size;
    if (span->imported) arena->imported -= span->size;
    arena_tag_put(arena, segment);
    arena_tag_put(arena, span);
}

static bool is_whole_span(const struct arena_tag *span, const struct arena_tag *segment) {
    return segment->kind == TAG_FREE && span->kind == TAG_SPAN && segment->size == span->size;
}

/* The span's last segment, or one behind it, gets the range. Takes up to one tag. */
STRATA_SELDOM static void lengthen_span(struct arena *arena, struct arena_tag *span, uint64_t start, uint64_t size) {
    struct arena_tag *next = span_above(arena, span->start);
    struct list *place = next != NULL ? &next->segment : &arena->segments;
    struct arena_tag *last = tag_of(place->prev);
    if (last->kind == TAG_FREE) {
        arena_segment_unlist(arena, last);
        last->size += size;
    } else {
        last = arena_tag_take(arena);
        last->start = start;
        last->size = size;
        last->imported = false;
        list_push_back(place, &last->segment);
    }
    arena_segment_list(arena, last);
    span->size += size;
    arena->total += size;
}

STRATA_INLINE enum arena_status add(struct arena *arena, uint64_t start, uint64_t size, bool extends) {
    if (!is_multiple(arena, start, size)) return ARENA_BAD_ARGUMENT;
    platform_lock_acquire(&arena->lock);
    enum arena_status status = arena_tags_secure(arena, 2) ? check_range(arena, start, size) : ARENA_NO_TAGS;
    if (status == ARENA_OK) {
        struct arena_tag *before = extends && start != 0 ? arena_span_floor(arena, start - 1) : NULL;
        if (before != NULL && !before->imported && tag_last(before) == start - 1)
            lengthen_span(arena, before, start, size);
        else
            (void)create_span(arena, start, size, false);
    }
    arena_leave(arena, status == ARENA_OK, NULL);
    return status;
}

enum arena_status arena_add(struct arena *arena, uint64_t start, uint64_t size) { return add(arena, start, size, false); }
STRATA_SELDOM enum arena_status arena_extend(struct arena *arena, uint64_t start, uint64_t size) { return add(arena, start, size, true); }

STRATA_SELDOM enum arena_status arena_remove(struct arena *arena, uint64_t start, uint64_t size) {
    if (!is_multiple(arena, start, size)) return ARENA_BAD_ARGUMENT;
    platform_lock_acquire(&arena->lock);
    struct arena_tag *span = arena_span_floor(arena, start);
    enum arena_status status = ARENA_OK;
    if (span == NULL || span->start != start || span->imported)
        status = ARENA_NOT_ALLOCATED;
    else if (span->size != size)
        status = ARENA_SIZE_MISMATCH;
    else if (!is_whole_span(span, tag_of(span->segment.next)))
        status = ARENA_BUSY;
    else
        delete_span(arena, span);
    arena_leave(arena, false, NULL);
    return status;
}

static void give_back(struct arena *arena, uint64_t start, uint64_t size) {
    if (arena->source->release == NULL) return;
    platform_lock_release(&arena->lock);
    arena->source->release(arena->source_ctx, start, size);
    platform_lock_acquire(&arena->lock);
}

/* Whether `size` more may be imported, if `pending` come as well. */
static bool within_limit(const struct arena *arena, uint64_t pending, uint64_t size) {
    uint64_t held;
    if (__builtin_add_overflow(arena->imported, pending, &held) || __builtin_add_overflow(held, size, &held)) return false;
    return held <= arena->limit;
}

/*
 * Asks the source for `want`, which stands in `importing` meanwhile, so that two threads do not pass the limit together. The tags that were secured
 * for it are promised, so that what comes becomes a span: not every source takes it back. Drops the lock.
 */
static enum arena_status ask_source(struct arena *arena, uint64_t want, unsigned flags, uint64_t *start, uint64_t *got) {
    arena->importing += want;
    arena->tags_promised += TAGS_PER_REQUEST;
    platform_lock_release(&arena->lock);
    enum arena_status status = arena->source->alloc(arena->source_ctx, want, flags, start, got);
    platform_lock_acquire(&arena->lock);
    arena->importing -= min_u64(arena->importing, want); /* 0 in the child of a fork that the source made, as is the next */
    arena->tags_promised -= min_u64(arena->tags_promised, TAGS_PER_REQUEST);
    return status == ARENA_OK ? ARENA_OK : ARENA_NO_SPACE;
}

/* Makes a span of what the source gave, or says why that can't be. May drop the lock. */
static enum arena_status accept(struct arena *arena, uint64_t want, uint64_t start, uint64_t got, struct arena_tag **segment) {
    if (got < want || !is_multiple(arena, start, got)) return ARENA_BAD_SOURCE;
    if (!arena_tags_secure(arena, TAGS_PER_REQUEST)) return ARENA_NO_TAGS; /* only in such a child */
    if (check_range(arena, start, got) != ARENA_OK) return ARENA_BAD_SOURCE;
    if (arena->source->release != NULL && !within_limit(arena, arena->importing, got)) return ARENA_NO_SPACE;
    *segment = create_span(arena, start, got, true);
    arena->counters.imports++;
    return ARENA_OK;
}

/* What stood in the way of others will not come: they are to ask for themselves. Drops the lock. */
static void let_denied_retry(struct arena *arena, uint32_t *seen) {
    if (!arena->limit_denied) return;
    arena->limit_denied = false;
    if (*seen == arena->generation) ++*seen;
    bool wake = arena_announce(arena);
    platform_lock_release(&arena->lock);
    if (wake) arena->ops->wake(arena->ctx, &arena->generation);
    platform_lock_acquire(&arena->lock);
}

static unsigned source_flags(struct arena_request *request) {
    unsigned flags = (request->flags & ARENA_SLEEP) | (request->quiet || request->urged ? ARENA_QUIET : 0);
    if (request->urges) flags = ARENA_SLEEP;
    request->urged |= (flags & ARENA_QUIET) == 0;
    return flags;
}

STRATA_SELDOM enum arena_status arena_span_import(struct arena *arena, struct arena_request *request, struct arena_tag **segment, uint32_t *seen) {
    uint64_t want, start = 0, got = 0;
    const uint64_t low_bits = ((uint64_t)1 << arena->source_shift) - 1;
    if (__builtin_add_overflow(request->size, request->slack, &want) || __builtin_add_overflow(want, low_bits, &want)) return ARENA_NO_SPACE;
    want &= ~low_bits;
    if (!arena_tags_secure(arena, TAGS_PER_REQUEST)) return ARENA_NO_TAGS;
    if (!within_limit(arena, arena->importing, want)) {
        if (within_limit(arena, 0, want)) arena->limit_denied = true;
        return ARENA_NO_SPACE;
    }
    enum arena_status status = ask_source(arena, want, source_flags(request), &start, &got);
    if (status == ARENA_OK) {
        status = accept(arena, want, start, got, segment);
        if (status == ARENA_OK) return ARENA_OK;
        give_back(arena, start, got);
    }
    let_denied_retry(arena, seen);
    return status;
}

void arena_span_retire(struct arena *arena, struct arena_tag *segment, struct arena_release *release) {
    struct arena_tag *span = tag_of(segment->segment.prev);
    if (segment->segment.prev == &arena->segments || !is_whole_span(span, segment)) return;
    if (!span->imported || arena->source->release == NULL) return;
    *release = (struct arena_release){true, span->start, span->size};
    arena->counters.releases++;
    delete_span(arena, span);
}

STRATA_SELDOM static enum arena_status import_from_arena(void *source, uint64_t size, unsigned flags, uint64_t *start, uint64_t *got) {
    struct arena *arena = source;
    enum arena_status status = arena_lend(arena, size, flags, start);
    *got = align_up(size, arena->quantum); /* does not wrap where the alloc went well */
    return status;
}

STRATA_SELDOM static void release_to_arena(void *source, uint64_t start, uint64_t size) { CHECK(arena_take_back(source, start, size) == ARENA_OK); }

const struct arena_source arena_as_source = {import_from_arena, release_to_arena};

STRATA_SELDOM const char *arena_span_check(const struct arena *arena, const struct arena_tag *span) {
    const struct arena_tag *left = span->u.tree.left, *right = span->u.tree.right;
    if (arena_span_floor(arena, span->start) != span) return "spans: one is not in the tree";
    if ((left != NULL && !above(arena, span, left)) || (right != NULL && !above(arena, span, right))) return "spans: the tree is no heap";
    return NULL;
}

STRATA_SELDOM bool arena_contains(struct arena *arena, uint64_t start, uint64_t size) {
    uint64_t last;
    if (size == 0 || __builtin_add_overflow(start, size - 1, &last)) return false;
    platform_lock_acquire(&arena->lock);
    const struct arena_tag *span = arena_span_floor(arena, start);
    bool inside = span != NULL && last <= tag_last(span);
    platform_lock_release(&arena->lock);
    return inside;
}

STRATA_SELDOM bool arena_bounds(struct arena *arena, uint64_t *lowest, uint64_t *highest) {
    platform_lock_acquire(&arena->lock);
    bool known = arena->source == NULL && !list_empty(&arena->segments);
    if (known) {
        *lowest = CONTAINER_OF(arena->segments.next, struct arena_tag, segment)->start;
        *highest = tag_last(CONTAINER_OF(arena->segments.prev, struct arena_tag, segment));
    }
    platform_lock_release(&arena->lock);
    return known;
}
