/*
 * page_api.c - the public functions of page blocks (strata/page.h) over page/. Batches are in page_batch.c.
 *
 * Statuses of the zone are told in the words of the header; arguments are looked at here, as page/ trusts its callers. Large blocks of malloc are the
 * same blocks, so that either side may free or resize what the other allocated. No lock of its own.
 */
#include "api/page_api.h"

#include <string.h>

#include "api/heap.h"
#include "api/page_watch.h"
#include "base/check.h"

#define ALLOC_FLAGS \
    (STRATA_PAGE_ZEROED | STRATA_PAGE_HUGE | STRATA_PAGE_NO_MOVE | STRATA_PAGE_PREFAULT | STRATA_PAGE_UNMOVABLE | STRATA_PAGE_RECLAIMABLE)

const char *strata_page_status_text(enum strata_page_status status) {
    static const char *const texts[] = {[STRATA_PAGE_OK] = "success",
                                        [STRATA_PAGE_NO_MEMORY] = "no memory",
                                        [STRATA_PAGE_BAD_ARGUMENT] = "bad argument",
                                        [STRATA_PAGE_NO_BLOCK] = "not a block of pages, or a range that is not inside one",
                                        [STRATA_PAGE_OVERLAP] = "the same pages are wanted twice",
                                        [STRATA_PAGE_NO_ROOM] = "no room at this address",
                                        [STRATA_PAGE_CUT_SHORT] = "ended by the caller",
                                        [STRATA_PAGE_NOT_DONE] = "not done"};
    return (unsigned)status < ARRAY_LENGTH(texts) ? texts[status] : "unknown status";
}

enum strata_page_status page_api_status(enum zone_status status) {
    static const enum strata_page_status statuses[] = {[ZONE_OK] = STRATA_PAGE_OK,
                                                       [ZONE_NO_MEMORY] = STRATA_PAGE_NO_MEMORY,
                                                       [ZONE_NO_BLOCK] = STRATA_PAGE_NO_BLOCK,
                                                       [ZONE_BAD_RANGE] = STRATA_PAGE_BAD_ARGUMENT,
                                                       [ZONE_OVERLAP] = STRATA_PAGE_OVERLAP,
                                                       [ZONE_NO_ROOM] = STRATA_PAGE_NO_ROOM,
                                                       [ZONE_CUT_SHORT] = STRATA_PAGE_CUT_SHORT};
    return statuses[status];
}

size_t page_api_page_bytes(void) { return heap_init() ? platform_info()->page_bytes : GRANULE_BYTES; }

/* A heap that stands, and goes on. */
static bool heap_serves(void) { return heap_init() && !__atomic_load_n(&heap.dying, __ATOMIC_RELAXED); }

/* ------------------------------------------------------------------ life */

enum strata_page_status page_api_check_request(const struct strata_page_request *request) {
    unsigned flags = request->flags, groups = flags & (STRATA_PAGE_UNMOVABLE | STRATA_PAGE_RECLAIMABLE);
    if (request->bytes == 0 || request->bytes > HEAP_BYTES_MAX || request->reserve_bytes > HEAP_BYTES_MAX) return STRATA_PAGE_BAD_ARGUMENT;
    if ((flags & ~(unsigned)ALLOC_FLAGS) != 0 || (groups & (groups - 1)) != 0) return STRATA_PAGE_BAD_ARGUMENT;
    if ((request->align & (request->align - 1)) != 0 || request->align > HEAP_BYTES_MAX) return STRATA_PAGE_BAD_ARGUMENT;
    return STRATA_PAGE_OK;
}

/* compact: functions of the program may be called, to move other blocks. */
static void *create(const struct strata_page_request *request, bool compact, bool *zeroed) {
    struct zone_block_config config = {
        .whole = true,
        .grouped = true, /* superpages can be emptied of them: strata_page_set_move */
        .bytes = request->bytes,
        .align = request->align,
        .reserve_bytes = request->reserve_bytes,
        .mobility = (request->flags & STRATA_PAGE_UNMOVABLE) != 0     ? MOBILITY_UNMOVABLE
                    : (request->flags & STRATA_PAGE_RECLAIMABLE) != 0 ? MOBILITY_RECLAIMABLE
                                                                      : MOBILITY_MOVABLE,
        .fixed = (request->flags & STRATA_PAGE_NO_MOVE) != 0,
        .huge = (request->flags & STRATA_PAGE_HUGE) != 0,
    };
    void *block = zone_block_create(&heap.zone, &config, zeroed);
    if (block == NULL && heap_release(0) != 0) block = zone_block_create(&heap.zone, &config, zeroed);
    if (block == NULL && compact) {
        config.compact = true;
        block = zone_block_create(&heap.zone, &config, zeroed);
    }
    if (block == NULL) reclaim_later(request->bytes);
    return block;
}

enum strata_page_status strata_page_alloc_as(const struct strata_page_request *request, void **block) {
    if (request == NULL || block == NULL) return STRATA_PAGE_BAD_ARGUMENT;
    enum strata_page_status status = page_api_check_request(request);
    if (status != STRATA_PAGE_OK) return status;
    bool zeroed;
    void *created = heap_serves() ? create(request, true, &zeroed) : NULL;
    if (created == NULL) return STRATA_PAGE_NO_MEMORY;
    size_t bytes = zone_block_bytes(&heap.zone, created);
    if ((request->flags & STRATA_PAGE_ZEROED) != 0 && !zeroed) platform_zero(created, bytes);
    if ((request->flags & STRATA_PAGE_PREFAULT) != 0) (void)zone_pages_populate(&heap.zone, created, bytes, NULL, NULL);
    maintenance_slow_call(true);
    *block = created;
    return STRATA_PAGE_OK;
}

enum strata_page_status strata_page_alloc(size_t bytes, unsigned flags, void **block) {
    const struct strata_page_request request = {.bytes = bytes, .flags = flags};
    return strata_page_alloc_as(&request, block);
}

enum strata_page_status strata_page_free(void *block) {
    if (block == NULL) return STRATA_PAGE_OK;
    if (!heap_serves() || !zone_block_free(&heap.zone, block)) return STRATA_PAGE_NO_BLOCK;
    maintenance_slow_call(true);
    maintenance_large_call();
    return STRATA_PAGE_OK;
}

/* ------------------------------------------------------------------ size */

/* Where no page tables can be had for it, or a copy costs less. */
static void *copy_to_new(void *block, const struct zone_block_info *info, size_t bytes) {
    unsigned group = info->mobility == MOBILITY_UNMOVABLE     ? STRATA_PAGE_UNMOVABLE
                     : info->mobility == MOBILITY_RECLAIMABLE ? STRATA_PAGE_RECLAIMABLE
                                                              : 0;
    const struct strata_page_request request = {.bytes = bytes, .align = info->align, .flags = group | (info->huge ? STRATA_PAGE_HUGE : 0)};
    void *fresh = create(&request, false, NULL);
    if (fresh == NULL) return NULL;
    (void)zone_block_set_move(&heap.zone, fresh, info->move, info->argument);
    zone_block_unwatch(&heap.zone, block);
    memcpy(fresh, block, info->bytes < bytes ? info->bytes : bytes);
    CHECK(zone_block_free(&heap.zone, block));
    return fresh;
}

enum strata_page_status strata_page_realloc(void **block, size_t bytes, unsigned flags) {
    struct zone_block_info info;
    if (block == NULL || bytes == 0 || bytes > HEAP_BYTES_MAX || (flags & ~PAGE_API_REALLOC_FLAGS) != 0) return STRATA_PAGE_BAD_ARGUMENT;
    if (!heap_serves() || zone_block_find(&heap.zone, *block, 1, &info) != ZONE_OK || info.start != *block) return STRATA_PAGE_NO_BLOCK;
    bool may_move = !info.fixed && (flags & STRATA_PAGE_NO_MOVE) == 0;
    enum zone_status status = zone_block_resize_at(&heap.zone, block, bytes, may_move, 1);
    if (status != ZONE_OK && !may_move) return page_api_status(status);
    if (status != ZONE_OK) {
        void *copy = copy_to_new(*block, &info, bytes);
        if (copy == NULL) return STRATA_PAGE_NO_MEMORY;
        *block = copy;
    }
    char *resized = *block;
    size_t now = zone_block_bytes(&heap.zone, resized);
    if (now > info.bytes && (flags & STRATA_PAGE_ZEROED) != 0) platform_zero(resized + info.bytes, now - info.bytes);
    /* Of the part that was there, too, pages may be absent: never touched, or released. */
    if ((flags & STRATA_PAGE_PREFAULT) != 0) (void)zone_pages_populate(&heap.zone, resized, now, NULL, NULL);
    maintenance_slow_call(true);
    return STRATA_PAGE_OK;
}

enum strata_page_status strata_page_reserve(void *block, size_t bytes) {
    if (bytes == 0 || bytes > HEAP_BYTES_MAX) return STRATA_PAGE_BAD_ARGUMENT;
    if (!heap_serves()) return STRATA_PAGE_NO_BLOCK;
    return page_api_status(zone_block_reserve(&heap.zone, block, bytes));
}

enum strata_page_status strata_page_set_move(void *block, strata_page_move_function *move, void *argument) {
    if (!heap_serves()) return STRATA_PAGE_NO_BLOCK;
    return page_api_status(zone_block_set_move(&heap.zone, block, move, argument));
}

enum strata_page_status strata_page_split(void *block, size_t bytes, void **second) {
    if (!heap_serves()) return STRATA_PAGE_NO_BLOCK;
    enum strata_page_status status = page_api_status(zone_block_split(&heap.zone, block, bytes));
    if (status == STRATA_PAGE_OK && second != NULL) *second = (char *)block + bytes;
    return status;
}

enum strata_page_status page_api_join_status(enum zone_status status) {
    return status == ZONE_BAD_RANGE ? STRATA_PAGE_NO_ROOM : page_api_status(status);
}

enum strata_page_status strata_page_join(void *block, void *second) {
    if (!heap_serves()) return STRATA_PAGE_NO_BLOCK;
    return page_api_join_status(zone_block_join(&heap.zone, block, second));
}

/* ------------------------------------------------------------------ pages */

enum strata_page_status strata_page_commit(void *address, size_t bytes) { return strata_page_prefault(address, bytes, NULL, NULL); }

enum strata_page_status strata_page_prefault(void *address, size_t bytes, bool (*progress)(size_t done, void *argument), void *argument) {
    if (!heap_serves()) return STRATA_PAGE_NO_BLOCK;
    return page_api_status(zone_pages_populate(&heap.zone, address, bytes, progress, argument));
}
enum strata_page_status strata_page_release(void *address, size_t bytes) {
    if (!heap_serves()) return STRATA_PAGE_NO_BLOCK;
    return page_api_status(zone_pages_release(&heap.zone, address, bytes));
}
enum strata_page_status strata_page_swap(void *a, void *b, size_t bytes) {
    if (!heap_serves()) return STRATA_PAGE_NO_BLOCK;
    return page_api_status(zone_pages_swap(&heap.zone, a, b, bytes));
}
enum strata_page_status strata_page_move(void *from, void *to, size_t bytes) {
    if (!heap_serves()) return STRATA_PAGE_NO_BLOCK;
    return page_api_status(zone_pages_move(&heap.zone, from, to, bytes));
}

enum strata_page_status strata_page_query(const void *address, struct strata_page_info *info) {
    struct zone_block_info block;
    if (info == NULL) return STRATA_PAGE_BAD_ARGUMENT;
    if (!heap_serves()) return STRATA_PAGE_NO_BLOCK;
    enum zone_status status = zone_block_find(&heap.zone, address, 1, &block);
    if (status != ZONE_OK) return page_api_status(status);
    *info = (struct strata_page_info){.block = block.start,
                                      .bytes = block.bytes,
                                      .capacity_bytes = block.capacity_bytes,
                                      .presence_known = true,
                                      .flags = (block.fixed ? STRATA_PAGE_NO_MOVE : 0u) | (block.huge ? STRATA_PAGE_HUGE : 0u) |
                                               (block.mobility == MOBILITY_UNMOVABLE ? STRATA_PAGE_UNMOVABLE : 0u) |
                                               (block.mobility == MOBILITY_RECLAIMABLE ? STRATA_PAGE_RECLAIMABLE : 0u)};
    size_t page = page_api_page_bytes(), counts[3] = {0};
    for (size_t done = 0; done < block.bytes && info->presence_known;) {
        uint8_t pages[1024];
        size_t piece = min_u64(block.bytes - done, sizeof pages * page);
        info->presence_known = platform_presence(block.start + done, piece, pages);
        if (info->presence_known) page_watch_presence(block.start + done, piece, pages);
        for (size_t i = 0; i < piece / page && info->presence_known; i++) counts[pages[i]] += page;
        done += piece;
    }
    if (info->presence_known) {
        info->present_bytes = counts[PLATFORM_PAGE_PRESENT];
        info->swapped_bytes = counts[PLATFORM_PAGE_SWAPPED];
        info->zero_bytes = counts[PLATFORM_PAGE_ABSENT];
    }
    uint64_t huge_bytes = 0;
    info->huge_known = platform_huge_in(block.start, block.bytes, &huge_bytes);
    info->huge_bytes = huge_bytes;
    return STRATA_PAGE_OK;
}
