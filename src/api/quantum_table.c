/*
 * quantum_table.c - from an integer to its cell (quantum.h): a hash table of slabs by where their segments begin.
 *
 * Slabs are of one size and lie at multiples of it, so that bits of an integer are its bucket: slabs side by side are in different ones. The lock
 * guards everything; allocations and frees look at one slot without it, and take it where the slot shows another slab.
 */
#include "api/heap.h"
#include "api/quantum.h"
#include "base/check.h"

#define SLOTS_MIN 8
#define SLAB_QUANTA_MAX (4 * ARENA_QCACHES_MAX)

/* A slab, or one that was and whose cells the next one takes over. */
struct quantum_slab {
    struct quantum_slab *next; /* in its chain, or spare */
    uint64_t *cells;
    struct quantum_cache *quantum;
    uint64_t start;
};

/*
 * What a slot shows that shows no slab. No integer is in such a cell: those that come to the first have all bits of the place in the slab clear, and
 * those that come to another have one set.
 */
static uint64_t no_cells[SLAB_QUANTA_MAX] = {UINT64_MAX};
static struct quantum_cache no_quantum;

/* ------------------------------------------------------------------ slots */

static void show(struct quantum_slot *slot, const struct quantum_slab *slab) {
    __atomic_store_n(&slot->quantum, slab != NULL ? slab->quantum : &no_quantum, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->cells, slab != NULL ? slab->cells : no_cells, __ATOMIC_RELEASE);
}

static size_t slots_bytes(uint64_t count) {
    return sizeof(struct quantum_slots) + count * (sizeof(struct quantum_slot) + sizeof(struct quantum_slab *));
}
static struct quantum_slots *slots_of(uint64_t count) {
    struct quantum_slots *slots = zone_metadata_alloc(&heap.zone, slots_bytes(count));
    if (slots == NULL) return NULL;
    slots->mask = count - 1;
    slots->chains = (struct quantum_slab **)(void *)&slots->slot[count];
    for (uint64_t i = 0; i < count; i++) show(&slots->slot[i], NULL);
    return slots;
}

static uint64_t bucket_of(const struct quantum_table *table, const struct quantum_slots *slots, uint64_t start) {
    return start >> table->slab_shift & slots->mask;
}
static void insert(const struct quantum_table *table, struct quantum_slots *slots, struct quantum_slab *slab) {
    uint64_t bucket = bucket_of(table, slots, slab->start);
    slab->next = slots->chains[bucket];
    slots->chains[bucket] = slab;
    show(&slots->slot[bucket], slab);
}

/* Twice as many, where slabs are as many as slots; without memory the old ones serve on. Under the lock. */
static void grow(struct quantum_table *table) {
    struct quantum_slots *old = table->slots, *fresh;
    uint64_t count = old->mask + 1;
    if (table->slabs < count || (fresh = slots_of(2 * count)) == NULL) return;
    fresh->previous = old;
    for (uint64_t i = 0; i < count; i++)
        for (struct quantum_slab *slab = old->chains[i], *next; slab != NULL; slab = next) {
            next = slab->next;
            insert(table, fresh, slab);
        }
    __atomic_store_n(&table->slots, fresh, __ATOMIC_RELEASE);
}

/* ------------------------------------------------------------------ life */

void quantum_table_init(struct quantum_table *table) { *table = (struct quantum_table){.lock = PLATFORM_LOCK_INIT(LOCK_RANK_SLAB)}; }

bool quantum_table_start(struct quantum_table *table, uint64_t quantum, uint64_t slab_size) {
    struct quantum_slots *slots = slots_of(SLOTS_MIN);
    if (slots == NULL) return false;
    table->slab_mask = slab_size - 1;
    table->slab_shift = bit_lowest(slab_size);
    table->quantum_shift = bit_lowest(quantum);
    __atomic_store_n(&table->slots, slots, __ATOMIC_RELEASE);
    return true;
}

static size_t cells_bytes(const struct quantum_table *table) { return ((table->slab_mask + 1) >> table->quantum_shift) * sizeof(uint64_t); }

void quantum_table_drop(struct quantum_table *table) {
    CHECK(table->slabs == 0);
    for (struct quantum_slab *slab = table->spare, *next; slab != NULL; slab = next) {
        next = slab->next;
        zone_metadata_free(&heap.zone, slab->cells, cells_bytes(table));
        zone_metadata_free(&heap.zone, slab, sizeof *slab);
    }
    for (struct quantum_slots *slots = table->slots, *next; slots != NULL; slots = next) {
        next = slots->previous;
        zone_metadata_free(&heap.zone, slots, slots_bytes(slots->mask + 1));
    }
    table->spare = NULL;
    table->slots = NULL;
}

/* ------------------------------------------------------------------ slabs */

static struct quantum_slab *new_slab(struct quantum_table *table) {
    struct quantum_slab *slab = table->spare;
    if (slab != NULL) {
        table->spare = slab->next;
        return slab;
    }
    slab = zone_metadata_alloc(&heap.zone, sizeof *slab);
    if (slab == NULL) return NULL;
    slab->cells = zone_metadata_alloc(&heap.zone, cells_bytes(table));
    if (slab->cells != NULL) return slab;
    zone_metadata_free(&heap.zone, slab, sizeof *slab);
    return NULL;
}

bool quantum_table_add(struct quantum_table *table, struct quantum_cache *quantum, uint64_t start) {
    platform_lock_acquire(&table->lock);
    struct quantum_slab *slab = new_slab(table);
    if (slab != NULL) {
        slab->quantum = quantum;
        slab->start = start;
        for (uint64_t i = 0; i <= table->slab_mask >> table->quantum_shift; i++)
            __atomic_store_n(&slab->cells[i], ~(start + (i << table->quantum_shift)), __ATOMIC_RELAXED);
        grow(table);
        insert(table, table->slots, slab);
        table->slabs++;
    }
    platform_lock_release(&table->lock);
    return slab != NULL;
}

void quantum_table_remove(struct quantum_table *table, uint64_t start) {
    platform_lock_acquire(&table->lock);
    struct quantum_slots *slots = table->slots;
    uint64_t bucket = bucket_of(table, slots, start);
    struct quantum_slab **link = &slots->chains[bucket], *slab;
    while ((slab = *link)->start != start) link = &slab->next;
    *link = slab->next;
    if (slots->slot[bucket].cells == slab->cells) show(&slots->slot[bucket], slots->chains[bucket]);
    slab->next = table->spare;
    table->spare = slab;
    table->slabs--;
    platform_lock_release(&table->lock);
}

static struct quantum_slab *slab_of(const struct quantum_table *table, uint64_t start) {
    struct quantum_slab *slab = table->slots->chains[bucket_of(table, table->slots, start)];
    while (slab != NULL && slab->start != (start & ~table->slab_mask)) slab = slab->next;
    return slab;
}

/* ------------------------------------------------------------------ integers */

/* The cell of an integer, where the slot shows its slab; else a cell that holds neither the integer nor its complement. Without the lock. */
static uint64_t *shown_cell(const struct quantum_table *table, uint64_t start, struct quantum_cache **quantum) {
    const struct quantum_slots *slots = __atomic_load_n(&table->slots, __ATOMIC_ACQUIRE);
    const struct quantum_slot *slot = &slots->slot[bucket_of(table, slots, start)];
    uint64_t *cells = __atomic_load_n(&slot->cells, __ATOMIC_ACQUIRE);
    *quantum = __atomic_load_n(&slot->quantum, __ATOMIC_RELAXED);
    return cells + ((start & table->slab_mask) >> table->quantum_shift);
}

/* The same whatever the slot shows, which is this slab from now on. NULL: it is in no slab. */
static STRATA_NOINLINE uint64_t *find_cell(struct quantum_table *table, uint64_t start, struct quantum_cache **quantum) {
    uint64_t *cell = NULL;
    platform_lock_acquire(&table->lock);
    const struct quantum_slab *slab = slab_of(table, start);
    if (slab != NULL) {
        show(&table->slots->slot[bucket_of(table, table->slots, start)], slab);
        *quantum = slab->quantum;
        cell = slab->cells + ((start & table->slab_mask) >> table->quantum_shift);
    }
    platform_lock_release(&table->lock);
    return cell;
}

uint64_t quantum_given(struct quantum_cache *quantum, const void *object) {
    uint64_t start = (uintptr_t)object - quantum->slab_size;
    struct quantum_cache *owner;
    uint64_t *cell = shown_cell(quantum->table, start, &owner);
    if (STRATA_UNLIKELY(__atomic_load_n(cell, __ATOMIC_RELAXED) != ~start)) cell = find_cell(quantum->table, start, &owner);
    CHECK(cell != NULL);
    __atomic_store_n(cell, start, __ATOMIC_RELAXED);
    return start;
}

enum arena_status quantum_free_verified(struct quantum_table *table, struct arena *arena, uint64_t start, uint64_t size) {
    struct quantum_cache *quantum;
    uint64_t *cell = shown_cell(table, start, &quantum);
    if (STRATA_UNLIKELY(__atomic_load_n(cell, __ATOMIC_RELAXED) != start || quantum->size != size)) {
        cell = find_cell(table, start, &quantum);
        /* A segment of its own, if anything; or no size at all, which is said there. */
        if (cell == NULL || size == 0 || align_up(size, arena->quantum) < size) return arena_xfree(arena, start, size);
        if (__atomic_load_n(cell, __ATOMIC_RELAXED) != start) return ARENA_NOT_ALLOCATED;
        if (quantum->size != align_up(size, arena->quantum)) return ARENA_SIZE_MISMATCH;
    }
    __atomic_store_n(cell, ~start, __ATOMIC_RELAXED);
    object_cache_free(quantum->cache, (void *)(uintptr_t)(start + quantum->slab_size));
    return ARENA_OK;
}
