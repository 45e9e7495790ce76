/*
 * arena_fit.c - which free segment serves a request, and where in it. Changes nothing but the caller's choice.
 *
 * Instant fit takes from the first list on which every segment is large enough; only when there is none does it search the
 * lists on which some may be. Best fit searches list by list from the one of the request's size: the first list that holds a
 * fit holds the best. Next fit goes along the segment list from where it was. All three obey all constraints. From the top, instant fit looks at
 * every free segment that is large enough, as it is for the highest place that the caller asks. Lock rank: the arena's lock, LOCK_RANK_ARENA.
 */
#include "arena/arena_internal.h"

static struct arena_tag *tag_of_free(struct list *node) { return CONTAINER_OF(node, struct arena_tag, u.free); }

/* The lowest x >= from with x = phase modulo align; false where that passes 2^64. */
static bool align_with_phase(const struct arena_request *request, uint64_t from, uint64_t *at) {
    return !__builtin_add_overflow(from, (request->phase - from) & (request->align - 1), at);
}

/* The highest x <= from with x = phase modulo align; false where that is below 0. */
static bool align_down_with_phase(const struct arena_request *request, uint64_t from, uint64_t *at) {
    return !__builtin_sub_overflow(from, (from - request->phase) & (request->align - 1), at);
}

static bool highest_place(const struct arena_request *request, uint64_t low, uint64_t high, uint64_t *at) {
    uint64_t x;
    if (high < low || high - low < request->size - 1 || !align_down_with_phase(request, high - (request->size - 1), &x)) return false;
    uint64_t boundary = request->nocross != 0 ? (x + (request->size - 1)) & ~(request->nocross - 1) : 0;
    /* One below the crossed boundary, which is at least nocross, and so at least the size; as below, none crosses twice. */
    if (boundary > x && !align_down_with_phase(request, boundary - request->size, &x)) return false;
    *at = x;
    return x >= low;
}

bool arena_fit_place(const struct arena_tag *tag, const struct arena_request *request, uint64_t from, uint64_t *at) {
    uint64_t low = max_u64(max_u64(tag->start, request->min), from), high = min_u64(tag_last(tag), request->last), x, last;
    if (request->from_top) return highest_place(request, low, high, at);
    if (!align_with_phase(request, low, &x) || __builtin_add_overflow(x, request->size - 1, &last)) return false;
    if (request->nocross != 0 && ((x ^ last) & ~(request->nocross - 1)) != 0) {
        /* From the crossed boundary on; a place that crosses again exists in no period, and the request was refused. */
        if (!align_with_phase(request, last & ~(request->nocross - 1), &x) || __builtin_add_overflow(x, request->size - 1, &last)) return false;
    }
    *at = x;
    return last <= high;
}

/* The lists from n upwards that are not empty, as a bit map. */
static uint64_t lists_from(const struct arena *arena, unsigned n) { return n < ARENA_LISTS ? arena->list_map & (UINT64_MAX << n) : 0; }

/* The first list on which every segment has at least `size`; ARENA_LISTS where there is none. */
static unsigned sure_list(uint64_t size) { return is_power_of_two(size) ? bit_highest(size) : bit_highest(size) + 1; }

static struct arena_tag *search_list(struct arena *arena, unsigned n, const struct arena_request *request, uint64_t *limit, uint64_t *at) {
    LIST_FOR_EACH(&arena->lists[n], node) {
        struct arena_tag *tag = tag_of_free(node);
        if (*limit == 0) return NULL;
        --*limit;
        if (tag->size >= request->size && arena_fit_place(tag, request, 0, at)) return tag;
    }
    return NULL;
}

static struct arena_tag *instant_fit(struct arena *arena, const struct arena_request *request, uint64_t limit, uint64_t *at) {
    unsigned own = bit_highest(request->size);
    uint64_t need;
    if (!request->bounded && !__builtin_add_overflow(request->size, request->slack, &need)) {
        /* One look at the list below: what was freed last often has just the size asked for again. */
        uint64_t one = 1, map = lists_from(arena, sure_list(need));
        if ((arena->list_map >> own & 1) != 0) {
            struct arena_tag *tag = search_list(arena, own, request, &one, at);
            if (tag != NULL) return tag;
        }
        if (map != 0) {
            struct arena_tag *tag = tag_of_free(arena->lists[bit_lowest(map)].next);
            CHECK(arena_fit_place(tag, request, 0, at));
            return tag;
        }
    }
    for (uint64_t map = lists_from(arena, own); map != 0; map &= map - 1) {
        struct arena_tag *tag = search_list(arena, bit_lowest(map), request, &limit, at);
        if (tag != NULL) return tag;
    }
    return NULL;
}

/* Of all free segments the one with the highest place. */
static struct arena_tag *top_fit(struct arena *arena, const struct arena_request *request, uint64_t *at) {
    struct arena_tag *top = NULL;
    for (uint64_t map = lists_from(arena, bit_highest(request->size)); map != 0; map &= map - 1) {
        LIST_FOR_EACH(&arena->lists[bit_lowest(map)], node) {
            struct arena_tag *tag = tag_of_free(node);
            uint64_t x;
            if (tag->size < request->size || (top != NULL && tag->start < top->start)) continue;
            if (!arena_fit_place(tag, request, 0, &x)) continue;
            top = tag;
            *at = x;
        }
    }
    return top;
}

static struct arena_tag *best_fit(struct arena *arena, const struct arena_request *request, uint64_t *at) {
    for (uint64_t map = lists_from(arena, bit_highest(request->size)); map != 0; map &= map - 1) {
        struct arena_tag *best = NULL;
        LIST_FOR_EACH(&arena->lists[bit_lowest(map)], node) {
            struct arena_tag *tag = tag_of_free(node);
            uint64_t x;
            if (tag->size < request->size) continue;
            if (best != NULL && (tag->size > best->size || (tag->size == best->size && (tag->start > best->start) != request->from_top))) continue;
            if (!arena_fit_place(tag, request, 0, &x)) continue;
            best = tag;
            *at = x;
        }
        if (best != NULL) return best;
    }
    return NULL;
}

/* From `node` to the end of the segment list, places >= from only. */
static struct arena_tag *first_fit(struct arena *arena, struct list *node, const struct arena_request *request, uint64_t from, uint64_t *at) {
    for (; node != &arena->segments; node = node->next) {
        struct arena_tag *tag = tag_of(node);
        if (tag->kind == TAG_FREE && tag->size >= request->size && arena_fit_place(tag, request, from, at)) return tag;
    }
    return NULL;
}

static struct arena_tag *next_fit(struct arena *arena, const struct arena_request *request, uint64_t *at) {
    if (lists_from(arena, bit_highest(request->size)) == 0) return NULL;
    struct list *rotor = arena->rotor == &arena->segments ? arena->rotor->next : arena->rotor;
    struct arena_tag *tag = first_fit(arena, rotor, request, arena->rotor_start, at);
    return tag != NULL ? tag : first_fit(arena, arena->segments.next, request, 0, at);
}

struct arena_tag *arena_fit_choose(struct arena *arena, const struct arena_request *request, uint64_t limit, uint64_t *at) {
    switch (request->fit) {
    case ARENA_BEST_FIT: return best_fit(arena, request, at);
    case ARENA_NEXT_FIT: return next_fit(arena, request, at);
    default: return request->from_top ? top_fit(arena, request, at) : instant_fit(arena, request, limit, at);
    }
}
