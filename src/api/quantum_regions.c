/*
 * quantum_regions.c - the marks beside an arena's hot stretch (quantum.h): regions, the requests that end in one, and which stretch is hot.
 *
 * A region's slot and its stretch are written once, under the table's lock, and stay as they are until the arena is destroyed: who finds a region
 * without the lock has found it for good, and needs no second look. Slots follow each other where several regions want the same one. A table of slots
 * that becomes too small stays beside the larger one: who still reads it finds what it had.
 */
#include <limits.h>

#include "api/heap.h"
#include "api/quantum.h"

_Static_assert(sizeof(struct quantum_slot) == 16, "a shift leads to a slot");
_Static_assert(4 * ARENA_QCACHES_MAX <= REGION_QUANTA, "a slab lies in one region");

/* Of a thread's frees that miss the hot stretch one in so many is looked at. */
#define LOOK_AT 64
/* So many in a row that meet the same region tell that it should be hot. */
#define STREAK 8
/* So many looks without that tell that none should, for the time being: looking costs a tenth of a pair. */
#define LOOKS 32
/* LOOK_AT misses in so little time tell that no stretch should be: a free in a hundred nanoseconds or so is guessed wrong. */
#define MISSES_US 6
/* So long a stretch stays hot, or none: who wants it otherwise too soon, as threads that work in different stretches do, goes by the table. */
#define HOT_US 1000

/* So many slots there are for each region at most, for the sake of one that is not in its first slot; and so many are filled to find the best hash.
 */
#define SLOTS_A_REGION 32
#define HASHES_SLOTS 8192

struct quantum_slots quantum_no_regions = {.at = {{.region = REGION_NONE}}};
const struct quantum_stretch quantum_looking;
__thread struct quantum_met quantum_met;

/* ------------------------------------------------------------------ which region */

/* The slot of the region that the quantum of this number is in, or the free one that it would get; *found tells which, at the look at it. */
static struct quantum_slot *slot_for(struct quantum_slots *slots, uint64_t number, bool *found) {
    uint64_t region = number >> REGION_SHIFT;
    struct quantum_slot *slot = quantum_slot_at(slots, region), *last = (struct quantum_slot *)(void *)((char *)slots->at + slots->mask);
    for (;; slot = slot != last ? slot + 1 : slots->at) {
        uint64_t shown = __atomic_load_n(&slot->region, __ATOMIC_ACQUIRE);
        *found = shown == region;
        if (*found || shown == REGION_NONE) return slot;
    }
}

uint8_t *quantum_region_find(const struct quantum_table *table, uint64_t number) {
    bool found;
    const struct quantum_slot *slot = slot_for(__atomic_load_n(&table->slots, __ATOMIC_ACQUIRE), number, &found);
    return found ? (uint8_t *)(uintptr_t)(slot->origin + number) : NULL;
}

/* ------------------------------------------------------------------ regions come */

/* In front of the regions lie the stretches of all of them, and their origins. */
static size_t lists_bytes(const struct quantum_table *table) {
    return align_up(table->regions_max * (sizeof *table->stretches + sizeof *table->origins), platform_info()->page_bytes);
}
static size_t space_bytes(const struct quantum_table *table) { return lists_bytes(table) + table->regions_max * REGION_STRIDE; }
/* What is committed of each: the lines that colours leave out, and the marks. */
static size_t region_bytes(void) { return align_up(REGION_QUANTA + quantum_colour(COLOURS - 1), platform_info()->page_bytes); }

/* Of the region whose marks lie so far behind regions_at. */
static struct quantum_stretch *stretch_at(const struct quantum_table *table, uint64_t place) {
    return &table->stretches[place >> REGION_STRIDE_SHIFT];
}

/* Whether it got the first slot that it wanted. */
static bool insert(struct quantum_slots *slots, const struct quantum_stretch *stretch, uint64_t number) {
    bool found;
    struct quantum_slot *slot = slot_for(slots, number, &found);
    slot->origin = stretch->origin;
    __atomic_store_n(&slot->region, number >> REGION_SHIFT, __ATOMIC_RELEASE);
    return slot == quantum_slot_at(slots, number >> REGION_SHIFT);
}

static size_t slots_count(const struct quantum_slots *slots) { return slots->mask / sizeof *slots->at + 1; }
static size_t slots_bytes(size_t count) { return sizeof(struct quantum_slots) + count * sizeof(struct quantum_slot); }

/* All that there is, by this hash; returns how many are not in the first slot that they want. Nobody else knows these slots. */
static unsigned fill_slots(const struct quantum_table *table, struct quantum_slots *slots, uint64_t mix) {
    unsigned displaced = 0;
    slots->mix = mix;
    for (size_t i = 0; i < slots_count(slots); i++) slots->at[i].region = REGION_NONE;
    const struct quantum_stretch *window = &table->window;
    for (uint64_t i = 0; i < window->count; i += REGION_QUANTA) displaced += !insert(slots, window, window->first + i);
    for (uint64_t place = 0; place < table->regions_bytes; place += REGION_STRIDE)
        displaced += !insert(slots, stretch_at(table, place), stretch_at(table, place)->first);
    return displaced;
}

/* The best of so many hashes; of few where tables are large. A request whose region is displaced is guessed wrong, and looks on out of line. */
static void choose_hash(const struct quantum_table *table, struct quantum_slots *slots) {
    uint64_t best = QUANTUM_MIX, mix = QUANTUM_MIX;
    unsigned fewest = UINT_MAX, displaced = 0;
    for (size_t tries = max_u64(HASHES_SLOTS / slots_count(slots), 2); tries != 0 && fewest != 0;
         tries--, mix = (mix ^ mix >> 29) * QUANTUM_MIX | 1) {
        displaced = fill_slots(table, slots, mix);
        if (displaced < fewest) {
            fewest = displaced;
            best = mix;
        }
    }
    if (displaced != fewest) (void)fill_slots(table, slots, best);
}

/* A table of so many slots, a power of two, that has all that there is; false: no memory. */
static bool use_slots(struct quantum_table *table, size_t count) {
    struct quantum_slots *slots = zone_metadata_alloc(&heap.zone, slots_bytes(count)), *small = table->slots;
    if (slots == NULL) return false;
    slots->mask = (count - 1) * sizeof *slots->at;
    slots->small = small != &quantum_no_regions ? small : NULL;
    choose_hash(table, slots);
    __atomic_store_n(&table->slots, slots, __ATOMIC_RELEASE);
    return true;
}

/* Room for all regions there may be; false: there is none. */
static bool open_regions(struct quantum_table *table) {
    table->regions_max = platform_info()->address_limit_bytes == UINT64_MAX ? REGIONS_MAX : REGIONS_MAX_LIMITED;
    char *space = platform_reserve(NULL, space_bytes(table), platform_info()->page_bytes);
    if (space == NULL) return false;
    (void)platform_advise_huge(space, space_bytes(table), false);
    table->slots_taken = (unsigned)(table->window.count >> REGION_SHIFT);
    size_t count = REGION_SLOTS_MIN;
    while (4 * table->slots_taken >= count) count *= 2;
    if (!platform_commit(space, lists_bytes(table)) || !use_slots(table, count)) {
        platform_unreserve(space, space_bytes(table));
        return false;
    }
    table->stretches = (struct quantum_stretch *)(void *)space;
    table->origins = (uintptr_t *)(void *)(table->stretches + table->regions_max);
    table->regions_at = (uint8_t *)space + lists_bytes(table);
    return true;
}

uint8_t *quantum_region_add(struct quantum_table *table, uint64_t number) {
    uint8_t *mark = quantum_region_find(table, number);
    if (mark != NULL || table->regions_closed) return mark;
    uint64_t place = table->regions_bytes, first = number & -REGION_QUANTA, which = place >> REGION_STRIDE_SHIFT;
    table->regions_closed = (table->stretches == NULL && !open_regions(table)) || which == table->regions_max ||
                            !platform_commit(table->regions_at + place, region_bytes()) ||
                            (4 * ++table->slots_taken > slots_count(table->slots) && !use_slots(table, 2 * slots_count(table->slots)));
    if (table->regions_closed) return NULL;
    struct quantum_stretch *stretch = &table->stretches[which];
    uint8_t *marks = table->regions_at + place + quantum_colour(which);
    *stretch = (struct quantum_stretch){.first = first, .count = REGION_QUANTA, .marks = marks, .origin = (uintptr_t)marks - first};
    table->origins[which] = stretch->origin;
    size_t count = slots_count(table->slots);
    bool in_place = insert(table->slots, stretch, number);
    __atomic_store_n(&table->regions_bytes, place + REGION_STRIDE, __ATOMIC_RELEASE);
    /* Found it is either way. */
    if (!in_place && count < REGION_SLOTS_MAX && count < (size_t)SLOTS_A_REGION * table->slots_taken) (void)use_slots(table, 2 * count);
    return (uint8_t *)(uintptr_t)(stretch->origin + number);
}

void quantum_regions_drop(struct quantum_table *table) {
    if (table->stretches != NULL) platform_unreserve(table->stretches, space_bytes(table));
    for (struct quantum_slots *slots = table->slots != &quantum_no_regions ? table->slots : NULL, *small; slots != NULL; slots = small) {
        small = slots->small;
        zone_metadata_free(&heap.zone, slots, slots_bytes(slots_count(slots)));
    }
    table->slots = &quantum_no_regions;
    table->stretches = NULL;
    table->regions_bytes = 0;
    table->regions_closed = false;
    table->hot = &quantum_looking;
}

/* ------------------------------------------------------------------ which is hot */

/* Not sooner than HOT_US after the last time. Threads that do so at the same moment overwrite each other: any stretch is as right as another. */
static void make_hot(struct quantum_table *table, const uint8_t *mark, uint32_t now_us) {
    const struct quantum_stretch *hot = &quantum_looking;
    if (now_us - __atomic_load_n(&table->hot_since_us, __ATOMIC_RELAXED) >= HOT_US)
        hot = (uint64_t)(mark - table->window.marks) < table->window.count ? &table->window : stretch_at(table, (uint64_t)(mark - table->regions_at));
    __atomic_store_n(&table->looks, 0, __ATOMIC_RELAXED);
    if (hot == __atomic_load_n(&table->hot, __ATOMIC_RELAXED)) return;
    __atomic_store_n(&table->hot_since_us, now_us, __ATOMIC_RELAXED);
    __atomic_store_n(&table->hot, hot, __ATOMIC_RELEASE);
}

static void look_at(struct quantum_table *table, uint64_t number, const uint8_t *mark) {
    uint8_t region = (uint8_t)((number >> REGION_SHIFT) * QUANTUM_MIX >> 56);
    uint32_t now_us = (uint32_t)(platform_precise_ns() / 1000);
    uint16_t since_us = (uint16_t)(now_us - quantum_met.looked_us);
    quantum_met.left = LOOK_AT - 1;
    quantum_met.streak = region == quantum_met.region ? min_u64(quantum_met.streak + 1U, STREAK) & INT8_MAX : 0;
    quantum_met.region = region;
    quantum_met.looked_us = (uint16_t)now_us;
    if (quantum_met.streak == STREAK) {
        make_hot(table, mark, now_us);
    } else if (since_us <= MISSES_US) {
        bool enough = __atomic_add_fetch(&table->looks, 1, __ATOMIC_RELAXED) >= LOOKS;
        if (enough) __atomic_store_n(&table->looks, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&table->hot, enough ? NULL : &quantum_looking, __ATOMIC_RELEASE);
    }
}
static STRATA_COLD enum arena_status free_looked_at(struct quantum_arena *arena, uint64_t start, uint64_t size, uint8_t *mark) {
    look_at(&arena->table, quantum_number(&arena->table, start), mark);
    return quantum_put(arena, true, start, size, mark);
}

/* These two meet what the hot stretch has not. */
enum arena_status quantum_free_beside(struct quantum_arena *arena, uint64_t start, uint64_t size, uint64_t number) {
    uint8_t *mark = quantum_mark_hashed(&arena->table, number);
    if (STRATA_UNLIKELY(mark == NULL)) return quantum_free_slow(arena, start, size);
    if (STRATA_UNLIKELY(--quantum_met.left < 0)) return free_looked_at(arena, start, size, mark);
    return quantum_put(arena, true, start, size, mark);
}
enum arena_status quantum_alloc_beside(const struct quantum_arena *arena, const uint8_t *mark, uint64_t *start) {
    *start = quantum_integer(&arena->table, mark);
    return ARENA_OK;
}
