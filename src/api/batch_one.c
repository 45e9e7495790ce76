/*
 * batch_one.c - one element of a batch: the look at its arguments, blocks of their own, and resizing with an alignment, zeros, a reserve, in place or
 * not.
 *
 * Unlike strata_realloc, what is no block is an error here and not the end of the process, as far as the tags tell. A block that may not change its
 * address (STRATA_PAGE_NO_MOVE of strata/page.h) doesn't. No lock of its own.
 */
#include <errno.h>
#include <string.h>

#include "api/batch_api.h"

#define FLAGS                                                                                                                            \
    (STRATA_BATCH_ZERO | STRATA_BATCH_NO_MOVE | STRATA_BATCH_CONSTANT_TIME | STRATA_BATCH_RESERVE_IS_MULTIPLE | STRATA_BATCH_ALL_ALLOC | \
     STRATA_BATCH_ALL_REALLOC | STRATA_BATCH_ALL_FREE)

/* The smallest alignment of every block, as in malloc.c. */
#define NATURAL_ALIGN 16
/* An object that shrinks stays where it is down to this share, as in malloc.c. */
#define SHRINK_SHARE 2
/* Above this a block has superpages of its own, behind which address space can be kept. */
#define RESERVE_MIN_BYTES (1 * MIB)

int batch_check(size_t bytes, size_t align, size_t reserve, uintmax_t flags, struct batch_request *request) {
    if ((flags & ~(uintmax_t)FLAGS) != 0) return EINVAL;
    if (align != 0 && !is_power_of_two(align)) return EINVAL;
    if ((flags & STRATA_BATCH_RESERVE_IS_MULTIPLE) != 0 && __builtin_mul_overflow(reserve, bytes, &reserve)) return EINVAL;
    if (reserve > HEAP_BYTES_MAX) return EINVAL;
    *request = (struct batch_request){
        .bytes = bytes, .align = align < NATURAL_ALIGN ? NATURAL_ALIGN : align, .reserve_bytes = reserve, .flags = (unsigned)flags};
    return 0;
}

unsigned batch_tag(const void *address) {
    if (((uintptr_t)address & (NATURAL_ALIGN - 1)) != 0 || !zone_contains(&heap.zone, address)) return TAG_NONE;
    return heap.zone.tags[zone_granule_of(&heap.zone, address)] & 0xff;
}

static bool wants_space(const struct batch_request *request) {
    return request->reserve_bytes > RESERVE_MIN_BYTES && request->reserve_bytes > request->bytes;
}

unsigned batch_class(const struct batch_request *request) {
    if (request->bytes > SIZE_CLASS_MAX_BYTES || request->align > GRANULE_BYTES || wants_space(request)) return 0;
    return slab_class_of_aligned(&heap.slabs, request->bytes, request->align);
}

static void housekeeping(unsigned flags) {
    if ((flags & STRATA_BATCH_CONSTANT_TIME) == 0) maintenance_slow_call(true);
}

/* ------------------------------------------------------------------ blocks of their own */

void batch_clear(char *address, size_t from, size_t to) {
    if (from >= to) return;
    size_t page = platform_info()->page_bytes, first = min_u64(to, align_up((uintptr_t)address + from, page) - (uintptr_t)address);
    if (to - from < RESERVE_MIN_BYTES) first = to;
    memset(address + from, 0, first - from);
    if (first < to) platform_zero(address + first, to - first); /* so much is a block, which ends with a page */
}

static size_t capacity_of(void *block, size_t usable) {
    struct zone_block_info info;
    return zone_block_find(&heap.zone, block, 1, &info) == ZONE_OK ? info.capacity_bytes : usable;
}

static void *create(const struct zone_block_config *config, bool *zeroed) {
    void *block = zone_block_create(&heap.zone, config, zeroed);
    if (block == NULL && heap_release(0) != 0) block = zone_block_create(&heap.zone, config, zeroed);
    return block;
}

static bool too_large(const struct batch_request *request) {
    return request->bytes > HEAP_BYTES_MAX || request->align > HEAP_BYTES_MAX - request->bytes;
}

int batch_alloc_block(const struct batch_request *request, void **block, size_t *usable, size_t *capacity) {
    struct zone_block_config config = {.bytes = request->bytes, .align = request->align, .mobility = MOBILITY_MOVABLE};
    bool zeroed;
    if (too_large(request)) return ENOMEM;
    if (wants_space(request)) config.reserve_bytes = request->reserve_bytes;
    void *created = create(&config, &zeroed);
    if (created == NULL && config.reserve_bytes != 0) {
        config.reserve_bytes = 0; /* it was a hint */
        created = create(&config, &zeroed);
    }
    housekeeping(request->flags);
    if (created == NULL) {
        if ((request->flags & STRATA_BATCH_CONSTANT_TIME) == 0) reclaim_later(request->bytes);
        return ENOMEM;
    }
    *usable = zone_block_bytes(&heap.zone, created);
    if ((request->flags & STRATA_BATCH_ZERO) != 0 && !zeroed) batch_clear(created, 0, *usable);
    if (capacity != NULL) *capacity = capacity_of(created, *usable);
    *block = created;
    return 0;
}

int batch_free_block(unsigned tag, void *block, unsigned flags) {
    if (tag != TAG_BLOCK || !zone_block_free(&heap.zone, block)) return EINVAL;
    housekeeping(flags);
    return 0;
}

/* ------------------------------------------------------------------ resizing */

static void free_old(unsigned tag, void *block, unsigned flags) {
    if (batch_tag_is_small(tag))
        batch_free_small(tag, &block, 1, flags);
    else
        (void)batch_free_block(tag, block, flags);
}

/* Another block, with the contents of the old one; `old` bytes of it count. */
static int move_to_new(const struct batch_request *request, unsigned tag, size_t old, void **block, size_t *usable, size_t *capacity) {
    struct batch_request fresh = *request;
    unsigned cache = batch_class(request);
    void *now;
    fresh.flags &= ~(unsigned)STRATA_BATCH_ZERO;
    if (cache != 0) {
        if (batch_alloc_small(cache, &now, 1, fresh.flags) == 0) return ENOMEM;
        *usable = heap.slabs.caches[cache].object_bytes;
        if (capacity != NULL) *capacity = *usable;
    } else {
        int error = batch_alloc_block(&fresh, &now, usable, capacity);
        if (error != 0) return error;
    }
    size_t kept = min_u64(old, *usable);
    bool moved =
        tag == TAG_BLOCK && cache == 0 && zone_pages_prefer_move(&heap.zone, kept, now) && zone_pages_move(&heap.zone, *block, now, kept) == ZONE_OK;
    if (!moved && tag == TAG_BLOCK) zone_block_unwatch(&heap.zone, *block);
    if (!moved) memcpy(now, *block, kept);
    if ((request->flags & STRATA_BATCH_ZERO) != 0) batch_clear(now, kept, *usable);
    free_old(tag, *block, request->flags);
    *block = now;
    return 0;
}

/* A block gets another size by what the zone can do. Else the block is as it was, and ZONE_NO_MEMORY or ZONE_NO_ROOM says why. */
static enum zone_status resize_block(const struct batch_request *request, size_t old, void **block, size_t *usable, size_t *capacity) {
    bool may_move = (request->flags & STRATA_BATCH_NO_MOVE) == 0 && request->align <= SUPERPAGE_BYTES;
    enum zone_status status = zone_block_resize_at(&heap.zone, block, request->bytes, may_move, request->align);
    if (status != ZONE_OK) return status;
    char *now = *block;
    *usable = zone_block_bytes(&heap.zone, now);
    if (wants_space(request)) (void)zone_block_reserve(&heap.zone, now, request->reserve_bytes);
    if ((request->flags & STRATA_BATCH_ZERO) != 0) batch_clear(now, old, *usable);
    if (capacity != NULL) *capacity = capacity_of(now, *usable);
    housekeeping(request->flags);
    return ZONE_OK;
}

/* Whether an object of `old` bytes may go on to serve the request where it is. */
static bool serves(const struct batch_request *request, size_t old) {
    bool stays = (request->flags & (STRATA_BATCH_NO_MOVE | STRATA_BATCH_CONSTANT_TIME)) != 0;
    return request->bytes <= old && (stays || request->bytes >= old / SHRINK_SHARE || old <= 2 * NATURAL_ALIGN);
}

/* There is no memory for a smaller one: the old one serves, and what it has behind goes back, if it is a block. */
static STRATA_COLD int shrink_in_place(const struct batch_request *request, unsigned tag, size_t old, void **block, size_t *usable,
                                       size_t *capacity) {
    if (tag == TAG_BLOCK && resize_block(request, old, block, usable, capacity) == ZONE_OK) return 0;
    *usable = old;
    if (capacity != NULL) *capacity = old;
    return 0;
}

int batch_resize(const struct batch_request *request, void **block, size_t *usable, size_t *capacity) {
    unsigned tag = batch_tag(*block);
    bool in_place = ((uintptr_t)*block & (request->align - 1)) == 0, may_move = (request->flags & STRATA_BATCH_NO_MOVE) == 0;
    enum zone_status status = ZONE_NO_ROOM;
    size_t old;
    if (batch_tag_is_small(tag)) {
        if (!slab_is_object(&heap.slabs, tag, *block)) return EINVAL;
        old = heap.slabs.caches[tag].object_bytes;
        if (in_place && serves(request, old)) {
            *usable = old;
            if (capacity != NULL) *capacity = old;
            return 0;
        }
    } else {
        struct zone_block_info info;
        old = tag == TAG_BLOCK ? zone_block_bytes(&heap.zone, *block) : 0;
        if (old == 0) return EINVAL;
        if (too_large(request)) return may_move || request->bytes > HEAP_BYTES_MAX ? ENOMEM : ENOSPC;
        /* One that becomes small leaves for a size class, if it may. */
        bool stays = request->bytes > SIZE_CLASS_MAX_BYTES || (request->flags & (STRATA_BATCH_NO_MOVE | STRATA_BATCH_CONSTANT_TIME)) != 0;
        if (in_place && stays && (status = resize_block(request, old, block, usable, capacity)) == ZONE_OK) return 0;
        if (zone_block_find(&heap.zone, *block, 1, &info) != ZONE_OK || info.fixed) may_move = false;
        if (!may_move && in_place && !stays && (status = resize_block(request, old, block, usable, capacity)) == ZONE_OK) return 0;
    }
    if (!may_move) return request->bytes > HEAP_BYTES_MAX || status == ZONE_NO_MEMORY ? ENOMEM : ENOSPC;
    if (too_large(request)) return ENOMEM;
    const int error = move_to_new(request, tag, old, block, usable, capacity);
    return STRATA_LIKELY(error == 0) || !in_place || request->bytes > old ? error : shrink_in_place(request, tag, old, block, usable, capacity);
}
