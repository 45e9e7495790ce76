/*
 * quantum_regions.c - the marks beside an arena's hot stretch (quantum.h): regions, the requests that end in one, and which stretch is hot.
 *
 * A region's slot and its stretch are written once, under the table's lock, and stay as they are until the arena is destroyed: who finds a region
 * without the lock has found it for good, and needs no second look. Slots follow each other where several regions want the same one. A table of slots
 * that becomes too small stays beside the larger one: who still reads it finds what it had.
 */
#include "api/heap.h"
#include "api/quantum.h"

_Static_assert(sizeof(struct quantum_slot) == 16, "a shift leads to a slot");
_Static_assert(4 * ARENA_QCACHES_MAX <= REGION_QUANTA, "a slab lies in one region");
_Static_assert(4 * (REGIONS_MAX + (WINDOW_QUANTA_MAX >> REGION_SHIFT)) < 1 << REGION_SLOTS_MAX_SHIFT, "there are slots for all");

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

struct quantum_slot quantum_no_region = {.region = REGION_NONE};
__thread struct quantum_met quantum_met;

/* ------------------------------------------------------------------ which region */

/* The slot of the region that the quantum of this number is in, or the free one that it would get; *found tells which, at the look at it. */
static struct quantum_slot *slot_for(struct quantum_slot *slots, uint64_t mask, uint64_t number, bool *found) {
    uint64_t region = number >> REGION_SHIFT;
    struct quantum_slot *slot = quantum_slot_at(slots, mask, region), *last = (struct quantum_slot *)(void *)((char *)slots + mask);
    for (;; slot = slot != last ? slot + 1 : slots) {
        uint64_t shown = __atomic_load_n(&slot->region, __ATOMIC_ACQUIRE);
        *found = shown == region;
        if (*found || shown == REGION_NONE) return slot;
    }
}

uint8_t *quantum_region_find(const struct quantum_table *table, uint64_t number) {
    bool found;
    /* The mask first: with the slots that come with it, or later ones, which are more. The mask of none fits one slot alone, and its reader has none.
     */
    uint64_t mask = __atomic_load_n(&table->slots_mask, __ATOMIC_ACQUIRE);
    if (mask == 0) return NULL;
    const struct quantum_slot *slot = slot_for(__atomic_load_n(&table->slots, __ATOMIC_RELAXED), mask, number, &found);
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

static void insert(struct quantum_slot *slots, uint64_t mask, const struct quantum_stretch *stretch, uint64_t number) {
    bool found;
    struct quantum_slot *slot = slot_for(slots, mask, number, &found);
    slot->origin = stretch->origin;
    __atomic_store_n(&slot->region, number >> REGION_SHIFT, __ATOMIC_RELEASE);
}

/* A table of so many slots that has all that there is; false: no memory. */
static bool use_slots(struct quantum_table *table, unsigned shift) {
    uint64_t count = UINT64_C(1) << shift, mask = (count - 1) * sizeof(struct quantum_slot);
    struct quantum_slot *slots = zone_metadata_alloc(&heap.zone, count * sizeof *slots);
    if (slots == NULL) return false;
    for (uint64_t i = 0; i < count; i++) slots[i].region = REGION_NONE;
    const struct quantum_stretch *window = &table->window;
    for (uint64_t i = 0; i < window->count; i += REGION_QUANTA) insert(slots, mask, window, window->first + i);
    for (uint64_t place = 0; place < table->regions_bytes; place += REGION_STRIDE)
        insert(slots, mask, stretch_at(table, place), stretch_at(table, place)->first);
    table->all_slots[shift] = slots;
    table->slots_shift = shift;
    __atomic_store_n(&table->slots, slots, __ATOMIC_RELEASE);
    __atomic_store_n(&table->slots_mask, mask, __ATOMIC_RELEASE);
    return true;
}

/* Room for all regions there may be; false: there is none. */
static bool open_regions(struct quantum_table *table) {
    table->regions_max = platform_info()->address_limit_bytes == UINT64_MAX ? REGIONS_MAX : REGIONS_MAX_LIMITED;
    char *space = platform_reserve(NULL, space_bytes(table), platform_info()->page_bytes);
    if (space == NULL) return false;
    (void)platform_advise_huge(space, space_bytes(table), false);
    table->slots_taken = (unsigned)(table->window.count >> REGION_SHIFT);
    unsigned shift = REGION_SLOTS_MIN_SHIFT;
    while (4 * table->slots_taken >= 1U << shift) shift++;
    if (!platform_commit(space, lists_bytes(table)) || !use_slots(table, shift)) {
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
                            (4 * ++table->slots_taken > 1U << table->slots_shift && !use_slots(table, table->slots_shift + 1));
    if (table->regions_closed) return NULL;
    struct quantum_stretch *stretch = &table->stretches[which];
    uint8_t *marks = table->regions_at + place + quantum_colour(which);
    *stretch = (struct quantum_stretch){.first = first, .count = REGION_QUANTA, .marks = marks, .origin = (uintptr_t)marks - first};
    table->origins[which] = stretch->origin;
    insert(table->slots, table->slots_mask, stretch, number);
    __atomic_store_n(&table->regions_bytes, place + REGION_STRIDE, __ATOMIC_RELEASE);
    return (uint8_t *)(uintptr_t)(stretch->origin + number);
}

void quantum_regions_drop(struct quantum_table *table) {
    if (table->stretches != NULL) platform_unreserve(table->stretches, space_bytes(table));
    for (unsigned shift = 0; shift <= REGION_SLOTS_MAX_SHIFT; shift++)
        if (table->all_slots[shift] != NULL) zone_metadata_free(&heap.zone, table->all_slots[shift], sizeof(struct quantum_slot) << shift);
    __builtin_memset(table->all_slots, 0, sizeof table->all_slots);
    table->slots = &quantum_no_region;
    table->slots_mask = 0;
    table->stretches = NULL;
    table->regions_bytes = 0;
    table->regions_closed = false;
    table->hot = NULL;
}

/* ------------------------------------------------------------------ which is hot */

/* Not sooner than HOT_US after the last time. Threads that do so at the same moment overwrite each other: any stretch is as right as another. */
static void make_hot(struct quantum_table *table, const uint8_t *mark, uint32_t now_us) {
    const struct quantum_stretch *hot = NULL;
    if (now_us - __atomic_load_n(&table->hot_since_us, __ATOMIC_RELAXED) >= HOT_US)
        hot = (uint64_t)(mark - table->window.marks) < table->window.count ? &table->window : stretch_at(table, (uint64_t)(mark - table->regions_at));
    __atomic_store_n(&table->looks, 0, __ATOMIC_RELAXED);
    if (hot == __atomic_load_n(&table->hot, __ATOMIC_RELAXED)) return;
    __atomic_store_n(&table->hot_since_us, now_us, __ATOMIC_RELAXED);
    __atomic_store_n(&table->hot, hot, __ATOMIC_RELEASE);
}

static void look_at(struct quantum_table *table, uint64_t number, const uint8_t *mark) {
    uint8_t region = (uint8_t)(number >> REGION_SHIFT ^ number >> 40);
    uint32_t now_us = (uint32_t)(platform_precise_ns() / 1000);
    uint16_t since_us = (uint16_t)(now_us - quantum_met.looked_us);
    quantum_met.left = LOOK_AT - 1;
    quantum_met.streak = region == quantum_met.region ? (uint8_t)min_u64(quantum_met.streak + 1U, STREAK) : 0;
    quantum_met.region = region;
    quantum_met.looked_us = (uint16_t)now_us;
    if (quantum_met.streak == STREAK) {
        make_hot(table, mark, now_us);
    } else if (since_us <= MISSES_US) {
        __atomic_store_n(&table->hot, NULL, __ATOMIC_RELEASE);
        if (__atomic_add_fetch(&table->looks, 1, __ATOMIC_RELAXED) == LOOKS) {
            __atomic_store_n(&table->looks, 0, __ATOMIC_RELAXED);
            __atomic_store_n(&table->looking, 0, __ATOMIC_RELAXED);
        }
    }
}
STRATA_COLD enum arena_status quantum_free_looked_at(struct quantum_arena *arena, uint64_t start, uint64_t size, uint8_t *mark) {
    look_at(&arena->table, quantum_number(&arena->table, start), mark);
    return quantum_put(arena, start, size, mark);
}

/* These two meet what the hot stretch has not. */
enum arena_status quantum_free_beside(struct quantum_arena *arena, uint64_t start, uint64_t size, uint64_t number) {
    uint8_t *mark = quantum_mark_hashed(&arena->table, number);
    if (STRATA_UNLIKELY(mark == NULL)) return quantum_free_slow(arena, start, size);
    return STRATA_LIKELY(--quantum_met.left >= 0) ? quantum_put(arena, start, size, mark) : quantum_free_looked_at(arena, start, size, mark);
}
enum arena_status quantum_alloc_beside(const struct quantum_arena *arena, const uint8_t *mark, uint64_t *start) {
    *start = quantum_integer(&arena->table, mark);
    return ARENA_OK;
}
