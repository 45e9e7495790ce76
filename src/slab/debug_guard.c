/*
 * debug_guard.c - patterns round and in debugged buffers. The values are those of umem_debug(3MALLOC), which people and tools know.
 *
 * A pattern lies at the multiples of 8: its first byte in memory is its lowest, at any address that is one. Under the cache's lock.
 */
#include "slab/debug_internal.h"

static uint8_t pattern_byte(uint64_t pattern, uintptr_t address) { return (uint8_t)(pattern >> address % 8 * 8); }

static void fill(uintptr_t from, uintptr_t to, uint64_t pattern) {
    for (; from < to && from % 8 != 0; from++) *(uint8_t *)from = pattern_byte(pattern, from);
    for (; from + 8 <= to; from += 8) __builtin_memcpy((void *)from, &pattern, 8);
    for (; from < to; from++) *(uint8_t *)from = pattern_byte(pattern, from);
}

static bool differs_at(uintptr_t at, uint8_t expected, const char *what, struct debug_damage *damage) {
    uint8_t found = *(const uint8_t *)at;
    if (found == expected) return false;
    *damage = (struct debug_damage){.what = what, .address = at, .expected = expected, .found = found};
    return true;
}

static bool differs(uintptr_t from, uintptr_t to, uint64_t pattern, const char *what, struct debug_damage *damage) {
    for (; from < to; from++) {
        while (from % 8 == 0 && from + 8 <= to) {
            uint64_t word;
            __builtin_memcpy(&word, (const void *)from, 8);
            if (word != pattern) break;
            from += 8;
        }
        if (from < to && differs_at(from, pattern_byte(pattern, from), what, damage)) return true;
    }
    return false;
}

/* Where a buffer and what is round it begin and end. */
struct bounds {
    uintptr_t place, buffer, end, slack_end, reach;
};

static struct bounds bounds_of(const struct debug_place *place) {
    uintptr_t start = place_at(place->slab, place->index), buffer = start + place->slot->offset, end = buffer + place->slot->bytes;
    uintptr_t reach = start + place->slab->twin->reach;
    return (struct bounds){start, buffer, end, min_u64(align_up(end, 8), reach), reach};
}

void debug_guard_redzones(const struct debug_place *place) {
    const struct bounds at = bounds_of(place);
    fill(at.place, at.buffer, REDZONE_PATTERN);
    __builtin_memset((void *)at.end, SLACK_BYTE, at.slack_end - at.end);
    fill(at.slack_end, at.reach, REDZONE_PATTERN);
}

void debug_guard_fresh(const struct debug_place *place) {
    const struct bounds at = bounds_of(place);
    debug_guard_redzones(place);
    fill(at.buffer, at.end, FRESH_PATTERN);
}

void debug_guard_freed(const struct debug_place *place) {
    const struct bounds at = bounds_of(place);
    debug_guard_redzones(place);
    fill(at.buffer, at.end, FREE_PATTERN);
}

bool debug_guard_is_whole(const struct debug_place *place, struct debug_damage *damage) {
    const struct bounds at = bounds_of(place);
    const struct debug_features *features = &place->slab->twin->features;
    bool in_use = place->slot->state == DEBUG_STATE_IN_USE;
    damage->what = NULL;
    if (!features->guards || (features->firewall && !in_use)) return true; /* a freed one can't be read there, nor written */
    if (!in_use && differs(at.buffer, at.end, FREE_PATTERN, "written after it was freed", damage)) return false;
    for (uintptr_t i = at.end; i < at.slack_end; i++)
        if (differs_at(i, SLACK_BYTE, "written after its end", damage)) return false;
    return !differs(at.slack_end, at.reach, REDZONE_PATTERN, "written after its end", damage) &&
           !differs(at.place, at.buffer, REDZONE_PATTERN, "written in front of it", damage);
}
