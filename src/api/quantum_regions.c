/*
 * quantum_regions.c - the marks beside an arena's window (quantum.h): regions, and the requests that end in one.
 *
 * A region's slot and its place are written once, under the table's lock, and stay as they are until the arena is destroyed: who finds a region
 * without the lock has found it for good, and needs no second look. Slots follow each other where several regions want the same one.
 */
#include "api/heap.h"
#include "api/quantum.h"

_Static_assert(sizeof(struct quantum_slot) == 16, "a shift leads to a slot");
_Static_assert(2 * REGIONS_MAX <= 1 << REGION_SLOTS_SHIFT, "a search ends at a free slot");
_Static_assert(4 * ARENA_QCACHES_MAX <= REGION_QUANTA, "a slab lies in one region");

/* So many misses in so little time: a free in a hundred nanoseconds or so has a wrong hint. */
#define MISSES_US 6

__thread struct quantum_hint quantum_hint;

/* The slot of the region that the quantum of this number is in, or the free one that it would get. */
static struct quantum_slot *slot_for(struct quantum_regions *regions, uint64_t number) {
    uint64_t i = quantum_slot_of(number), region = number >> REGION_SHIFT;
    while (regions->slots[i].region != region && regions->slots[i].region != REGION_NONE) i = (i + 1) & ((1 << REGION_SLOTS_SHIFT) - 1);
    return &regions->slots[i];
}

uint8_t *quantum_region_find(const struct quantum_table *table, uint64_t number) {
    if (table->regions == NULL) return NULL;
    const struct quantum_slot *slot = slot_for(table->regions, number);
    return slot->region != REGION_NONE ? (uint8_t *)(slot->marks + number) : NULL;
}

static size_t space_bytes(const struct quantum_table *table) { return table->regions_max * REGION_QUANTA; }

/* Room for all regions there may be; false: there is none. */
static bool open_regions(struct quantum_table *table) {
    struct quantum_regions *regions = zone_metadata_alloc(&heap.zone, sizeof *regions);
    if (regions == NULL) return false;
    table->regions_max = platform_info()->address_limit_bytes == UINT64_MAX ? REGIONS_MAX : REGIONS_MAX_LIMITED;
    table->regions_at = platform_reserve(NULL, space_bytes(table), platform_info()->page_bytes);
    if (table->regions_at == NULL) {
        zone_metadata_free(&heap.zone, regions, sizeof *regions);
        return false;
    }
    (void)platform_advise_huge(table->regions_at, space_bytes(table), false);
    for (unsigned i = 0; i < 1 << REGION_SLOTS_SHIFT; i++) regions->slots[i].region = REGION_NONE;
    __atomic_store_n(&table->regions, regions, __ATOMIC_RELEASE);
    __atomic_store_n(&table->way, WAY_HINTED, __ATOMIC_RELEASE);
    return true;
}

uint8_t *quantum_region_add(struct quantum_table *table, uint64_t number) {
    uint8_t *marks = quantum_region_find(table, number);
    if (marks != NULL || table->regions_closed) return marks;
    uint64_t quanta = table->regions_quanta, region = number >> REGION_SHIFT;
    table->regions_closed = (table->regions == NULL && !open_regions(table)) || quanta == space_bytes(table) ||
                            !platform_commit(table->regions_at + quanta, REGION_QUANTA);
    if (table->regions_closed) return NULL;
    struct quantum_slot *slot = slot_for(table->regions, number);
    slot->marks = (uintptr_t)table->regions_at + quanta - (region << REGION_SHIFT);
    table->regions->starts[quanta >> REGION_SHIFT] = ((region << REGION_SHIFT) - quanta) << table->quantum_shift;
    __atomic_store_n(&slot->region, region, __ATOMIC_RELEASE);
    __atomic_store_n(&table->regions_quanta, quanta + REGION_QUANTA, __ATOMIC_RELEASE);
    return (uint8_t *)(slot->marks + number);
}

void quantum_regions_drop(struct quantum_table *table) {
    if (table->regions == NULL) return;
    platform_unreserve(table->regions_at, space_bytes(table));
    zone_metadata_free(&heap.zone, table->regions, sizeof *table->regions);
    table->regions = NULL;
    table->way = WAY_NONE;
    table->regions_quanta = 0;
    table->regions_closed = false;
}

static STRATA_NOINLINE enum arena_status alloc_in_plot(const struct quantum_table *table, const uint8_t *mark, uint64_t *start) {
    *start = quantum_integer_far(table, mark);
    return ARENA_OK;
}
enum arena_status quantum_alloc_far(const struct quantum_arena *arena, const uint8_t *mark, uint64_t *start) {
    const struct quantum_table *table = &arena->table;
    uint64_t quanta = __atomic_load_n(&table->regions_quanta, __ATOMIC_ACQUIRE), place = (uint64_t)(mark - table->regions_at);
    if (STRATA_UNLIKELY(place >= quanta)) return alloc_in_plot(table, mark, start);
    *start = quantum_integer_beside(table, place);
    return ARENA_OK;
}

/* No function here calls another but in the end: what a free keeps in registers need not be saved. */
static STRATA_NOINLINE enum arena_status free_hashed(struct quantum_arena *arena, uint64_t start, uint64_t size, uint64_t number) {
    uint8_t *mark = quantum_mark_hashed(&arena->table, number);
    return STRATA_LIKELY(mark != NULL) ? quantum_put(arena, start, size, mark) : quantum_free_slow(arena, start, size);
}

/* QUANTUM_MISSES later: whether that was too soon. */
static STRATA_COLD STRATA_NOINLINE enum arena_status free_missed_often(struct quantum_arena *arena, uint64_t start, uint64_t size, uint64_t number) {
    uint32_t now_us = (uint32_t)(platform_now_ns() / 1000);
    if (now_us - quantum_hint.since_us <= MISSES_US) __atomic_store_n(&arena->table.way, WAY_HASHED, __ATOMIC_RELAXED);
    quantum_hint.misses = 0;
    quantum_hint.since_us = now_us;
    return free_hashed(arena, start, size, number);
}
static STRATA_NOINLINE enum arena_status free_missed(struct quantum_arena *arena, uint64_t start, uint64_t size, uint64_t number) {
    quantum_hint.slot_at = (uint16_t)(quantum_slot_of(number) * sizeof(struct quantum_slot));
    return STRATA_LIKELY(++quantum_hint.misses < QUANTUM_MISSES) ? free_hashed(arena, start, size, number)
                                                                 : free_missed_often(arena, start, size, number);
}

enum arena_status quantum_free_beside(struct quantum_arena *arena, uint64_t start, uint64_t size, uint64_t number) {
    uint32_t way = __atomic_load_n(&arena->table.way, __ATOMIC_ACQUIRE);
    if (way == WAY_HASHED) return free_hashed(arena, start, size, number);
    if (STRATA_UNLIKELY(way == WAY_NONE)) return quantum_free_slow(arena, start, size);
    uint8_t *mark = quantum_mark_hinted(&arena->table, number);
    return STRATA_LIKELY(mark != NULL) ? quantum_put(arena, start, size, mark) : free_missed(arena, start, size, number);
}
