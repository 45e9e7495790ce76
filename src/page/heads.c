/*
 * heads.c - room for the heads of runs, packed by superpage.
 *
 * A head takes an aligned power of two of units, the lowest that are free. So where each run asks for at most two units a granule, room never ends:
 * of the places of that size each other run is in the way of at most one, or of as many as it has granules for. No lock: units are taken and given
 * back by compare and swap; what a head says belongs to whoever owns its run.
 */
#include "page/page.h"

#include "base/check.h"

_Static_assert(HEAD_UNITS <= UINT16_MAX + 1, "struct head_area numbers units by 16 bits");

static unsigned units_of(size_t bytes) {
    size_t units = (bytes + HEAD_UNIT_BYTES - 1) / HEAD_UNIT_BYTES;
    return units <= 1 ? 1 : 2u << bit_highest(units - 1);
}

/* `units` ones from bit 0 on; a power of two up to 64. */
static uint64_t ones(unsigned units) { return ~UINT64_C(0) >> (64 - units); }

/* The lowest aligned place for so many units, as a mask; 0: none. */
static uint64_t lowest_place(uint64_t taken, unsigned units) {
    uint64_t free = ~taken;
    for (unsigned step = 1; step < units; step *= 2) free &= free >> step;
    free &= ~UINT64_C(0) / ones(units); /* the multiples of units */
    return free == 0 ? 0 : ones(units) << bit_lowest(free);
}

uint32_t zone_head_alloc(struct zone *zone, size_t granule, size_t bytes) {
    struct head_area *area = &zone->heads[granule / SUPERPAGE_GRANULES];
    unsigned units = units_of(bytes);
    CHECK(units <= 64);
    for (unsigned w = 0; w < ARRAY_LENGTH(area->taken); w++) {
        uint64_t taken = __atomic_load_n(&area->taken[w], __ATOMIC_RELAXED), place;
        while ((place = lowest_place(taken, units)) != 0) {
            /* Acquire and release: the words of the head come from the one who gave it back to the one who takes it. */
            if (!__atomic_compare_exchange_n(&area->taken[w], &taken, taken | place, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) continue;
            unsigned unit = w * 64 + bit_lowest(place);
            area->at[granule % SUPERPAGE_GRANULES] = (uint16_t)unit;
            (void)__atomic_fetch_add(&zone->head_units, units, __ATOMIC_RELAXED);
            return (uint32_t)(granule / SUPERPAGE_GRANULES * HEAD_UNITS + unit);
        }
    }
    return HEAD_NONE;
}

void zone_head_free(struct zone *zone, uint32_t head, size_t bytes) {
    struct head_area *area = &zone->heads[head / HEAD_UNITS];
    unsigned units = units_of(bytes), unit = head % HEAD_UNITS;
    uint64_t place = ones(units) << (unit % 64);
    uint64_t before = __atomic_fetch_and(&area->taken[unit / 64], ~place, __ATOMIC_RELEASE);
    CHECK((before & place) == place);
    (void)__atomic_fetch_sub(&zone->head_units, units, __ATOMIC_RELAXED);
}
