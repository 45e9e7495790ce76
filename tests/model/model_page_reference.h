/*
 * model_page_reference.h - the naive reference of page/: who owns each granule, in one array, and what is alive, in another.
 *
 * An owner is a thing's number + 1; a thing is a run or a block. Each thing carries stamps: a word at both ends of some of its granules that
 * says which thing and which granule it is, so that pages that were lost, mixed up or handed out twice are seen. Everything is found by
 * looking at all of it. Used by model_page.c only.
 */
#ifndef STRATA_TESTS_MODEL_PAGE_REFERENCE_H
#define STRATA_TESTS_MODEL_PAGE_REFERENCE_H

#include "model.h"
#include "page/page.h"

#define THINGS_MAX 120
#define REFERENCE_GRANULES (512 * MIB / GRANULE_BYTES)
#define OWNER_NONE 0
#define OWNER_FOREIGN UINT8_MAX /* another mapping in the way of the heap */
/* Of long things only some granules are looked at; the first and the last always are. */
#define STRIDE_GRANULES 29

struct thing {
    char *address; /* NULL: none */
    uint32_t granules;
    uint32_t id;
    bool block;
};

static struct {
    uint8_t owner[REFERENCE_GRANULES];
    struct thing things[THINGS_MAX];
    uint64_t allocated, blocks, block_granules;
    uint32_t used; /* granules of `owner` that may be other than OWNER_NONE: for a quick reset */
    uint32_t next_id;
} ref;

static inline void reference_reset(void) {
    memset(ref.owner, 0, ref.used);
    memset(ref.things, 0, sizeof ref.things);
    ref.allocated = ref.blocks = ref.block_granules = 0;
    ref.used = 0;
    ref.next_id = 0;
}

/* False: not all of [first, first + count) was `from`. */
static inline bool reference_set(size_t first, size_t count, uint8_t from, uint8_t to) {
    bool right = first + count <= REFERENCE_GRANULES;
    for (size_t i = first; i < first + count && right; i++) {
        right = ref.owner[i] == from;
        ref.owner[i] = to;
    }
    if (right && first + count > ref.used) ref.used = (uint32_t)(first + count);
    return right;
}

static inline bool reference_is_free(size_t first, size_t count) {
    for (size_t i = first; i < first + count; i++)
        if (i >= REFERENCE_GRANULES || ref.owner[i] != OWNER_NONE) return false;
    return true;
}

/* The longest run of granules that nobody owns in a superpage. */
static inline unsigned reference_longest_free(size_t superpage) {
    unsigned longest = 0, length = 0;
    for (size_t i = 0; i < SUPERPAGE_GRANULES; i++) {
        length = ref.owner[superpage * SUPERPAGE_GRANULES + i] == OWNER_NONE ? length + 1 : 0;
        if (length > longest) longest = length;
    }
    return longest;
}

/* ------------------------------------------------------------------ stamps */

static inline uint32_t next_stamped(uint32_t at, uint32_t granules) {
    if (granules <= STRIDE_GRANULES || at + 1 == granules) return at + 1;
    return at + STRIDE_GRANULES < granules ? at + STRIDE_GRANULES : granules - 1;
}

static inline void stamp(const struct thing *thing) {
    for (uint32_t at = 0; at < thing->granules; at = next_stamped(at, thing->granules)) {
        uint64_t *words = (uint64_t *)(void *)(thing->address + ((size_t)at << GRANULE_SHIFT));
        words[0] = words[GRANULE_BYTES / 8 - 1] = (uint64_t)thing->id << 32 | (at + 1);
    }
}

/* The first granule that lost its stamp, of those below `kept`; -1: none. `address` is where the thing is now. */
static inline int64_t stamp_lost(const struct thing *thing, const char *address, uint32_t kept) {
    for (uint32_t at = 0; at < thing->granules; at = next_stamped(at, thing->granules)) {
        const uint64_t *words = (const uint64_t *)(const void *)(address + ((size_t)at << GRANULE_SHIFT));
        if (at >= kept) break;
        if (words[0] != ((uint64_t)thing->id << 32 | (at + 1)) || words[GRANULE_BYTES / 8 - 1] != words[0]) return at;
    }
    return -1;
}

/* Whether what is said to read as zeros does, by samples. */
static inline bool reads_as_zeros(const char *address, uint32_t granules) {
    for (uint32_t at = 0; at < granules; at = next_stamped(at, granules)) {
        const uint64_t *words = (const uint64_t *)(const void *)(address + ((size_t)at << GRANULE_SHIFT));
        for (size_t i = 0; i < GRANULE_BYTES / 8; i++)
            if (words[i] != 0) return false;
    }
    return true;
}

#endif
