/*
 * quantum_table.c - from an integer to its mark (quantum.h): the window, and beside it a hash table of plots by their numbers.
 *
 * The lock guards everything; who looks for a mark looks at the window, and at one slot, without it, and takes it where the slot shows another plot.
 * Numbers are multiplied first: those of spans at multiples of large powers of two would meet in one slot else, and neighbours still spread evenly.
 */
#include "api/heap.h"
#include "api/quantum.h"
#include "base/check.h"

#define SLOTS_MIN 8
/* So many slots a plot at least: few plots that are in use at the same time share one. */
#define SLOTS_A_PLOT 2

/* All plots by slot, under the lock; in front of them the slots that are read without it. */
struct quantum_chains {
    struct quantum_chains *previous; /* half as many; stays, as somebody may be reading its slots */
    struct quantum_plot **heads;
    uint64_t mask;
    struct quantum_plot *slots[];
};

/* What a slot shows that shows no plot. */
static struct quantum_plot no_plot = {.number = PLOT_NONE};

_Static_assert(sizeof(struct quantum_plot) <= PLOT_QUANTA, "the marks are its upper half");
_Static_assert(4 * ARENA_QCACHES_MAX <= PLOT_QUANTA, "a slab lies in one plot");
_Static_assert(ARENA_QCACHES_MAX < QUANTUM_GONE, "a mark tells them apart");

static uint64_t slot_of(uint64_t plot, uint64_t mask) { return plot * QUANTUM_MIX >> 32 & mask; }

/* ------------------------------------------------------------------ slots */

static void show(struct quantum_chains *chains, uint64_t slot, struct quantum_plot *plot) {
    __atomic_store_n(&chains->slots[slot], plot != NULL ? plot : &no_plot, __ATOMIC_RELEASE);
}

static size_t chains_bytes(uint64_t count) { return sizeof(struct quantum_chains) + count * 2 * sizeof(struct quantum_plot *); }
static struct quantum_chains *chains_of(uint64_t count) {
    struct quantum_chains *chains = zone_metadata_alloc(&heap.zone, chains_bytes(count));
    if (chains == NULL) return NULL;
    chains->mask = count - 1;
    chains->heads = (struct quantum_plot **)(void *)&chains->slots[count];
    for (uint64_t i = 0; i < count; i++) show(chains, i, NULL);
    return chains;
}

static void insert(struct quantum_chains *chains, struct quantum_plot *plot) {
    uint64_t slot = slot_of(plot->number, chains->mask);
    plot->next = chains->heads[slot];
    chains->heads[slot] = plot;
    show(chains, slot, plot);
}

/* From now on these. Who reads the old mask with the new slots sees a part of them. */
static void use(struct quantum_table *table, struct quantum_chains *chains) {
    table->chains = chains;
    __atomic_store_n(&table->plots_shown, chains->slots, __ATOMIC_RELEASE);
    __atomic_store_n(&table->plots_mask, chains->mask, __ATOMIC_RELEASE);
}

/* Twice as many, where plots are too many for the slots; without memory the old ones serve on. Under the lock. */
static void grow(struct quantum_table *table) {
    struct quantum_chains *old = table->chains, *fresh;
    uint64_t count = old->mask + 1;
    if (table->plots * SLOTS_A_PLOT < count || (fresh = chains_of(2 * count)) == NULL) return;
    fresh->previous = old;
    for (uint64_t i = 0; i < count; i++)
        for (struct quantum_plot *plot = old->heads[i], *next; plot != NULL; plot = next) {
            next = plot->next;
            insert(fresh, plot);
        }
    use(table, fresh);
}

/* ------------------------------------------------------------------ the window */

static size_t window_bytes(uint64_t quanta) { return align_up(quanta + quantum_colour(COLOURS - 1), platform_info()->page_bytes); }

/*
 * Round the first slab: all that the arena has, or as much as a window holds. Both ends are a region's, so that nothing lies across them. Without
 * memory or address space there is none, and regions or plots serve.
 */
static void open_window(struct quantum_arena *arena, uint64_t start) {
    struct quantum_table *table = &arena->table;
    const uint64_t half = WINDOW_QUANTA_MAX / 2;
    uint64_t lowest = 0, highest = UINT64_MAX;
    (void)arena_bounds(&arena->arena, &lowest, &highest);
    uint64_t region = quantum_number(table, start) & -REGION_QUANTA;
    uint64_t first = quantum_number(table, lowest) & -REGION_QUANTA, last = highest >> table->quantum_shift | (REGION_QUANTA - 1);
    if (last - first >= WINDOW_QUANTA_MAX) {
        if (region - first > half) first = last - region > half ? region - half : last - (WINDOW_QUANTA_MAX - 1);
        last = first + (WINDOW_QUANTA_MAX - 1);
    }
    uint64_t count = last - first + 1;
    uint8_t *space = platform_reserve(NULL, window_bytes(count), platform_info()->page_bytes);
    if (space == NULL) return;
    (void)platform_advise_huge(space, window_bytes(count), false);
    if (!platform_commit(space, window_bytes(count))) {
        platform_unreserve(space, window_bytes(count));
        return;
    }
    table->window_space = space;
    uint8_t *marks = space + quantum_colour((uintptr_t)arena / platform_info()->page_bytes);
    table->window.first = first; /* not the count, at which others look */
    table->window.marks = marks;
    table->window.origin = (uintptr_t)marks - first;
    __atomic_store_n(&table->window.count, count, __ATOMIC_RELEASE);
    __atomic_store_n(&table->hot, &table->window, __ATOMIC_RELEASE);
}

/* ------------------------------------------------------------------ life */

void quantum_init(struct quantum_arena *arena) {
    arena->table = (struct quantum_table){.alive = arena->arena.quantum == 1 ? QUANTUM_ALIVE : QUANTUM_ALIVE_SCALED,
                                          .hot = &quantum_looking,
                                          .slots = &quantum_no_regions,
                                          .lock = PLATFORM_LOCK_INIT(LOCK_RANK_SLAB)};
}

bool quantum_table_start(struct quantum_arena *arena, uint64_t slab_size) {
    struct quantum_table *table = &arena->table;
    struct quantum_chains *chains = chains_of(SLOTS_MIN);
    if (chains == NULL) return false;
    table->slab_size = slab_size;
    table->quantum = arena->arena.quantum;
    table->quantum_shift = arena->arena.quantum_shift;
    table->window_tried = false;
    use(table, chains);
    return true;
}

/* Slabs that no cache has any more were in the hands of threads that a fork has left behind, as their plots may have been. */
static bool give_lost_slab(const struct arena_segment *segment, void *arena) {
    (void)arena_slab_free(arena, segment->start, segment->size);
    return true;
}
static void drop_lost(struct quantum_arena *arena) {
    struct quantum_table *table = &arena->table;
    if (arena->arena.slabs != 0) arena_walk(&arena->arena, ARENA_ALLOCATED, give_lost_slab, &arena->arena);
    for (uint64_t i = 0; table->plots != 0; i++)
        for (struct quantum_plot *plot = table->chains->heads[i], *next; plot != NULL; plot = next, table->plots--) {
            next = plot->next;
            zone_metadata_free(&heap.zone, plot, PLOT_BYTES);
        }
}

void quantum_table_drop(struct quantum_arena *arena) {
    struct quantum_table *table = &arena->table;
    drop_lost(arena);
    for (struct quantum_plot *plot = table->spare, *next; plot != NULL; plot = next) {
        next = plot->next;
        zone_metadata_free(&heap.zone, plot, PLOT_BYTES);
    }
    for (struct quantum_chains *chains = table->chains, *next; chains != NULL; chains = next) {
        next = chains->previous;
        zone_metadata_free(&heap.zone, chains, chains_bytes(chains->mask + 1));
    }
    quantum_regions_drop(table);
    if (table->window.count != 0) platform_unreserve(table->window_space, window_bytes(table->window.count));
    table->window.count = 0;
    table->spare = NULL;
    table->chains = NULL;
}

/* ------------------------------------------------------------------ plots */

static struct quantum_plot **find_link(const struct quantum_table *table, uint64_t number) {
    struct quantum_plot **link = &table->chains->heads[slot_of(number, table->chains->mask)];
    while (*link != NULL && (*link)->number != number) link = &(*link)->next;
    return link;
}

static struct quantum_plot *new_plot(struct quantum_table *table, uint64_t number) {
    struct quantum_plot *plot = table->spare;
    if (plot != NULL) {
        table->spare = plot->next;
    } else {
        plot = zone_metadata_alloc(&heap.zone, PLOT_BYTES);
        if (plot == NULL) return NULL;
    }
    __atomic_store_n(&plot->number, number, __ATOMIC_RELAXED);
    table->plots++;
    grow(table);
    insert(table->chains, plot);
    return plot;
}

static uint8_t *mark_in(struct quantum_plot *plot, uint64_t number) { return plot->marks + (number & (PLOT_QUANTA - 1)); }

/* Of all quanta of a slab. */
static void set_marks(const struct quantum_table *table, uint8_t *marks, uint8_t value) {
    for (uint64_t i = 0; i < table->slab_size >> table->quantum_shift; i++) __atomic_store_n(&marks[i], value, __ATOMIC_RELAXED);
}

uint8_t *quantum_table_add(struct quantum_arena *arena, uint64_t start) {
    struct quantum_table *table = &arena->table;
    platform_lock_acquire(&table->lock);
    if (!table->window_tried) open_window(arena, start);
    table->window_tried = true;
    uint64_t number = quantum_number(table, start);
    uint8_t *marks = quantum_mark_within(&table->window, number);
    if (marks == NULL) marks = quantum_region_add(table, number);
    if (marks == NULL) {
        struct quantum_plot *plot = *find_link(table, number >> PLOT_SHIFT);
        if (plot == NULL) plot = new_plot(table, number >> PLOT_SHIFT);
        if (plot != NULL) {
            plot->slabs++;
            marks = mark_in(plot, number);
        }
    }
    platform_lock_release(&table->lock);
    if (marks != NULL) set_marks(table, marks, QUANTUM_FREE);
    return marks;
}

void quantum_table_remove(struct quantum_arena *arena, uint64_t start) {
    struct quantum_table *table = &arena->table;
    set_marks(table, quantum_mark_find(arena, start), QUANTUM_GONE);
    uint64_t number = quantum_number(table, start);
    if (quantum_mark_within(&table->window, number) != NULL) return;
    platform_lock_acquire(&table->lock);
    struct quantum_plot **link = find_link(table, number >> PLOT_SHIFT), *plot = *link;
    if (quantum_region_find(table, number) == NULL && --plot->slabs == 0) {
        uint64_t slot = slot_of(plot->number, table->chains->mask);
        *link = plot->next;
        if (table->chains->slots[slot] == plot) show(table->chains, slot, table->chains->heads[slot]);
        __atomic_store_n(&plot->number, PLOT_NONE, __ATOMIC_RELAXED);
        plot->next = table->spare;
        table->spare = plot;
        table->plots--;
    }
    platform_lock_release(&table->lock);
}

/* ------------------------------------------------------------------ marks */

/* Whatever the slot shows, which is this plot from now on. */
static STRATA_NOINLINE uint8_t *find_hidden(struct quantum_table *table, uint64_t number) {
    platform_lock_acquire(&table->lock);
    uint8_t *mark = quantum_region_find(table, number);
    struct quantum_plot *plot = mark == NULL ? *find_link(table, number >> PLOT_SHIFT) : NULL;
    if (plot != NULL) {
        show(table->chains, slot_of(plot->number, table->chains->mask), plot);
        mark = mark_in(plot, number);
    }
    platform_lock_release(&table->lock);
    return mark;
}

uint8_t *quantum_mark_find(struct quantum_arena *arena, uint64_t start) {
    struct quantum_table *table = &arena->table;
    uint64_t number = quantum_number(table, start);
    uint8_t *mark = quantum_mark_within(&table->window, number);
    if (mark == NULL) mark = quantum_region_find(table, number);
    if (mark != NULL) return mark;
    uint64_t mask = __atomic_load_n(&table->plots_mask, __ATOMIC_ACQUIRE);
    struct quantum_plot **slots = __atomic_load_n(&table->plots_shown, __ATOMIC_RELAXED);
    struct quantum_plot *plot = __atomic_load_n(&slots[slot_of(number >> PLOT_SHIFT, mask)], __ATOMIC_ACQUIRE);
    if (STRATA_LIKELY(__atomic_load_n(&plot->number, __ATOMIC_RELAXED) == number >> PLOT_SHIFT)) return mark_in(plot, number);
    return find_hidden(table, number);
}

uint64_t quantum_integer_far(const struct quantum_table *table, const uint8_t *mark) {
    const struct quantum_plot *plot = (const void *)(mark - ((uintptr_t)mark & (PLOT_BYTES - 1)));
    return (__atomic_load_n(&plot->number, __ATOMIC_RELAXED) << PLOT_SHIFT | (uint64_t)(mark - plot->marks)) << table->quantum_shift;
}

uint64_t quantum_integer(const struct quantum_table *table, const uint8_t *mark) {
    if ((uint64_t)(mark - table->window.marks) < __atomic_load_n(&table->window.count, __ATOMIC_ACQUIRE))
        return quantum_integer_within(table, true, table->window.origin, mark);
    uint64_t place = (uint64_t)(mark - table->regions_at);
    if (place < __atomic_load_n(&table->regions_bytes, __ATOMIC_ACQUIRE))
        return quantum_integer_within(table, true, table->origins[place >> REGION_STRIDE_SHIFT], mark);
    return quantum_integer_far(table, mark);
}
