/*
 * quantum.h - the quantum caches of arenas: object caches whose objects stand for integers and whose slabs are segments. Private to api/.
 *
 * Each quantum of a slab has a *mark*, a byte: while the program has an integer that a quantum cache gave, its size in quanta, else 0. So a free
 * knows at once whether the integer was allocated here, and with which size. Marks are read and written by plain instructions (an atomic one costs
 * as much as all the rest of a free): two threads that free an integer at the same moment may both find it allocated, and then it waits twice in
 * arrays. So an allocation looks at the mark, too: what is somebody's is not handed out again. The marks are what the object caches hold: a slab is
 * the marks of a segment, an object of n quanta is n of them, and its address stands for the integer. Most marks lie side by side in the *window*, so
 * that a shift and an addition lead from one to the other; what a wide or scattered arena has beside it lies in *regions*, each of which has its
 * marks side by side, too, and is found by one look at a small table. Where there are too many of those, or no address space, *plots* serve, which a
 * hash table finds.
 */
#ifndef STRATA_API_QUANTUM_H
#define STRATA_API_QUANTUM_H

#include "arena/arena.h"
#include "base/base.h"
#include "cache/object_cache.h"
#include "platform/cpu_ops.h"

#define QUANTUM_FREE 0
/* Of a slab that has gone: nobody's either, but nothing that a cache may hand out. */
#define QUANTUM_GONE UINT8_MAX

/* The window has the marks of so many quanta at most, of which only pages that are used take memory. */
#define WINDOW_QUANTA_MAX (UINT64_C(1) << 24)

/*
 * Beside the window: the marks of as many quanta, at a multiple of that. All regions lie in one piece of address space, of which only pages that are
 * used take memory; a process whose address space is limited spares less of it.
 */
#define REGION_SHIFT 20
#define REGION_QUANTA (UINT64_C(1) << REGION_SHIFT)
#define REGIONS_MAX 256
#define REGIONS_MAX_LIMITED 16
/* At most half of the slots are taken, so that most regions are found in the first one. */
#define REGION_SLOTS_SHIFT 9
#define REGION_NONE UINT64_MAX
/* How a free looks for its region: there are none, by what the thread's last free found, by a hash. */
enum quantum_way { WAY_NONE, WAY_HINTED, WAY_HASHED };
struct quantum_slot {
    uint64_t region; /* upper bits of its quanta's numbers, REGION_NONE; atomic, written after the next and never changed then */
    uintptr_t marks; /* the address of a mark less its number */
};
struct quantum_regions {
    struct quantum_slot slots[1 << REGION_SLOTS_SHIFT];
    uint64_t starts[REGIONS_MAX]; /* of the region in that place: an integer less what its mark's place would make without it */
};

/* Beside all of these: the marks of as many quanta, at a multiple of twice that, so that a mark leads to its plot. */
#define PLOT_SHIFT 9
#define PLOT_QUANTA (1 << PLOT_SHIFT)
struct quantum_plot {
    uint64_t number; /* atomic; upper bits of its quanta's numbers. PLOT_NONE: it has no slabs, and waits to be used again */
    struct quantum_plot *next;
    uint64_t slabs;
    uint8_t marks[] STRATA_ALIGNED(PLOT_QUANTA); /* atomic */
};
#define PLOT_NONE UINT64_MAX
#define PLOT_BYTES (2 * PLOT_QUANTA)

/* Chance does not write this where no arena is. */
#define QUANTUM_ALIVE UINT32_C(0x616c6976)

/*
 * Of an arena. A slab's marks are here from before its first object is handed out until after the last has come back. The window is made with the
 * first slab and stays until the arena is destroyed, as regions and plots do, so that a wrong free which meets one on its way out reads marks, and
 * not others' memory. A region is made with the first slab in it, unless there was none to be had once: then no more are made, so that nothing that
 * has a plot ever gets a region, too.
 *
 * `slots` show the plots that were asked for last, by a hash of their numbers, and are read without the lock; what isn't there is looked for under
 * it. Lock: LOCK_RANK_SLAB; the arena is asked for its bounds under it, and the zone's metadata are allocated.
 */
struct quantum_table {
    uint64_t max; /* the largest size that has a cache; 0: none has. The first three are immutable while there are caches */
    uint64_t slab_size;
    unsigned quantum_shift;
    uint32_t alive;        /* of the arena, from create to destroy: QUANTUM_ALIVE. Here, as every request reads what is next to it */
    uint64_t window_count; /* quanta; 0: there is none yet. Atomic, written after the next two, which are immutable then */
    uint64_t window_first; /* the number of its first mark's quantum */
    uint8_t *window;
    char *areas_at[ARENA_QCACHES_MAX + 1]; /* of the object cache of so many quanta, as is the next. Immutable */
    uint64_t index[ARENA_QCACHES_MAX + 1];

    uint64_t regions_quanta;         /* of all regions; 0: there are none yet. Atomic, written after what it counts */
    uint8_t *regions_at;             /* immutable from the first region on, as is the next */
    struct quantum_regions *regions; /* its slots are read without the lock; atomic, as the next two. NULL: there are none yet */
    uint32_t way;                    /* enum quantum_way; written after `regions`, and from then on only a matter of time */
    uint32_t refills;

    uint64_t mask;               /* of the slots; atomic, written after them */
    struct quantum_plot **slots; /* atomic, as each of them is */
    struct platform_lock lock;
    bool window_tried;
    bool regions_closed; /* no more are made */
    unsigned regions_max;
    struct quantum_chains *chains; /* all plots; NULL: there are no quantum caches */
    struct quantum_plot *spare;
    uint64_t plots;
};

/*
 * An arena and its quantum caches; lies at a multiple of a page. Headers of CPU areas lie in the first bytes of pages, too: what requests read
 * shall not have the same place, or the processor takes it for what the last one has just stored there.
 */
struct quantum_arena {
    struct arena arena; /* has its own lock */
    struct quantum_table table;
};
_Static_assert(offsetof(struct quantum_arena, table) >= (OBJECT_LAYER_CACHES + 1) * sizeof(struct cpu_header), "behind where the headers lie");

/*
 * On an arena that has been initialised. start: for caches with slabs of so many integers; false: no memory. drop: nobody uses the caches any more,
 * and there are no slabs.
 */
void quantum_init(struct quantum_arena *arena);
bool quantum_table_start(struct quantum_arena *arena, uint64_t slab_size);
void quantum_table_drop(struct quantum_arena *arena);
/* For quantum.c: a slab comes and goes. add: its marks; NULL: no memory. */
uint8_t *quantum_table_add(struct quantum_arena *arena, uint64_t start);
void quantum_table_remove(struct quantum_arena *arena, uint64_t start);

/* Of quantum_regions.c, all under the table's lock. find: the mark; NULL: none, or not in a region. add: makes the region where it can be. */
uint8_t *quantum_region_find(const struct quantum_table *table, uint64_t number);
uint8_t *quantum_region_add(struct quantum_table *table, uint64_t number);
void quantum_regions_drop(struct quantum_table *table);

/* ------------------------------------------------------------------ marks */

/* Numbers are multiplied before they lead to slots: those of spans at multiples of large powers of two would meet in one else. */
#define QUANTUM_MIX UINT64_C(0x9e3779b97f4a7c15)

/* Multiples of the quantum count from 0 up; what is none is behind them all. */
STRATA_INLINE uint64_t quantum_number(const struct quantum_table *table, uint64_t start) {
    return start >> table->quantum_shift | start << (-table->quantum_shift & 63);
}
/* The mark of an integer, where it lies in the window; else NULL. Without the lock. */
STRATA_INLINE uint8_t *quantum_mark_near(const struct quantum_table *table, uint64_t start) {
    uint64_t count = __atomic_load_n(&table->window_count, __ATOMIC_ACQUIRE), place = quantum_number(table, start) - table->window_first;
    return STRATA_LIKELY(place < count) ? table->window + place : NULL;
}
/*
 * The mark of the quantum of that number in a region, as far as one look tells: hinted, in the slot where this thread has found its last one, which
 * is known before the integer is, so that nothing waits for it; hashed, in the first slot of the integer's region. A hint that is wrong costs what a
 * wrong guess of the processor does; where many are (WAY_HASHED), nobody looks at them. NULL: it isn't there. Only where there are regions.
 */
#define QUANTUM_MISSES 64
struct quantum_hint {
    uint16_t slot_at; /* bytes from the first slot */
    uint16_t misses;  /* of QUANTUM_MISSES */
    uint32_t since_us;
};
extern __thread struct quantum_hint quantum_hint __attribute__((visibility("hidden"), tls_model("initial-exec")));
STRATA_INLINE uint8_t *quantum_mark_in(const struct quantum_regions *regions, uint64_t slot_at, uint64_t number) {
    const struct quantum_slot *slot = (const struct quantum_slot *)(const void *)((const char *)regions->slots + slot_at);
    if (__atomic_load_n(&slot->region, __ATOMIC_ACQUIRE) != number >> REGION_SHIFT) return NULL;
    uint8_t *mark = (uint8_t *)(uintptr_t)(slot->marks + number);
    if (mark == NULL) __builtin_unreachable(); /* spares the callers' tests */
    return mark;
}
STRATA_INLINE uint8_t *quantum_mark_hinted(const struct quantum_table *table, uint64_t number) {
    return quantum_mark_in(__atomic_load_n(&table->regions, __ATOMIC_RELAXED), quantum_hint.slot_at, number);
}
STRATA_INLINE uint64_t quantum_slot_of(uint64_t number) { return (number >> REGION_SHIFT) * QUANTUM_MIX >> (64 - REGION_SLOTS_SHIFT); }
STRATA_INLINE uint8_t *quantum_mark_hashed(const struct quantum_table *table, uint64_t number) {
    return quantum_mark_in(__atomic_load_n(&table->regions, __ATOMIC_RELAXED), quantum_slot_of(number) * sizeof(struct quantum_slot), number);
}
/* Programs change: now and then, where arrays are empty and it costs nothing to speak of, hints get another chance. */
#define QUANTUM_REFILLS 256
STRATA_INLINE void quantum_look_again(struct quantum_table *table) {
    if (__atomic_load_n(&table->way, __ATOMIC_RELAXED) != WAY_HASHED) return;
    if (__atomic_add_fetch(&table->refills, 1, __ATOMIC_RELAXED) % QUANTUM_REFILLS == 0) __atomic_store_n(&table->way, WAY_HINTED, __ATOMIC_RELAXED);
}
/* Wherever it lies; NULL: nowhere. */
uint8_t *quantum_mark_find(struct quantum_arena *arena, uint64_t start);
/* The integer of a mark in a plot; in a region, where the mark's place among those is known; anywhere. */
uint64_t quantum_integer_far(const struct quantum_table *table, const uint8_t *mark);
STRATA_INLINE uint64_t quantum_integer_beside(const struct quantum_table *table, uint64_t place) {
    return table->regions->starts[place >> REGION_SHIFT] + (place << table->quantum_shift);
}
uint64_t quantum_integer(const struct quantum_table *table, const uint8_t *mark);

/* ------------------------------------------------------------------ requests */

/*
 * The ways that most requests take, whose callers spare them the tables that the rest goes through: an integer out of the array of this CPU, or
 * into it. What these are not up to, the functions behind them are. Constant time, no lock.
 */
enum arena_status quantum_alloc_slow(struct quantum_arena *arena, uint64_t size, unsigned flags, uint64_t *start);
enum arena_status quantum_alloc_empty(struct quantum_arena *arena, uint64_t quanta, unsigned flags, uint64_t *start);
/* A mark that came out of an array, though its integer is somebody's, or its slab has gone. */
_Noreturn void quantum_alloc_twice(const struct quantum_arena *arena, const uint8_t *mark);
enum arena_status quantum_alloc_far(const struct quantum_arena *arena, const uint8_t *mark, uint64_t *start);
/* Of a size up to table.max; the flags are known to be right. */
STRATA_INLINE void quantum_mark_take(const struct quantum_arena *arena, uint8_t *mark, uint64_t quanta) {
    if (STRATA_UNLIKELY(__atomic_load_n(mark, __ATOMIC_RELAXED) != QUANTUM_FREE)) quantum_alloc_twice(arena, mark);
    platform_interleave();
    __atomic_store_n(mark, (uint8_t)quanta, __ATOMIC_RELAXED);
}
STRATA_INLINE enum arena_status quantum_take(struct quantum_arena *arena, uint64_t size, unsigned flags, uint64_t *start) {
    const struct quantum_table *table = &arena->table;
    uint64_t quanta = ((size - 1) >> table->quantum_shift) + 1;
    uint8_t *mark = cpu_pop_in(&table->areas_at[quanta], (unsigned)table->index[quanta]);
    if (STRATA_UNLIKELY(mark == NULL)) return quantum_alloc_empty(arena, quanta, flags, start);
    quantum_mark_take(arena, mark, quanta);
    uint64_t count = __atomic_load_n(&table->window_count, __ATOMIC_ACQUIRE), place = (uint64_t)(mark - table->window);
    if (STRATA_UNLIKELY(place >= count)) return quantum_alloc_far(arena, mark, start);
    *start = (table->window_first + place) << table->quantum_shift;
    return ARENA_OK;
}
STRATA_INLINE enum arena_status quantum_alloc(struct quantum_arena *arena, uint64_t size, unsigned flags, uint64_t *start) {
    if (STRATA_UNLIKELY(size - 1 >= arena->table.max || flags != 0)) return quantum_alloc_slow(arena, size, flags, start);
    return quantum_take(arena, size, 0, start);
}

enum arena_status quantum_free_slow(struct quantum_arena *arena, uint64_t start, uint64_t size);
/* Of a size up to table.max, beside the window. */
enum arena_status quantum_free_beside(struct quantum_arena *arena, uint64_t start, uint64_t size, uint64_t number);
/* A mark that says that its integer is nobody's, and the array of this CPU is full. */
enum arena_status quantum_free_full(struct quantum_arena *arena, uint8_t *mark, uint64_t quanta);
STRATA_INLINE enum arena_status quantum_put(struct quantum_arena *arena, uint64_t start, uint64_t size, uint8_t *mark) {
    const struct quantum_table *table = &arena->table;
    uint64_t quanta = ((size - 1) >> table->quantum_shift) + 1;
    if (STRATA_UNLIKELY(__atomic_load_n(mark, __ATOMIC_RELAXED) != (uint8_t)quanta)) return quantum_free_slow(arena, start, size);
    platform_interleave();
    __atomic_store_n(mark, QUANTUM_FREE, __ATOMIC_RELAXED);
    if (STRATA_LIKELY(cpu_push_in(&table->areas_at[quanta], (unsigned)table->index[quanta], mark))) return ARENA_OK;
    return quantum_free_full(arena, mark, quanta);
}
STRATA_INLINE enum arena_status quantum_free(struct quantum_arena *arena, uint64_t start, uint64_t size) {
    const struct quantum_table *table = &arena->table;
    if (STRATA_UNLIKELY(size - 1 >= table->max)) return quantum_free_slow(arena, start, size);
    uint64_t count = __atomic_load_n(&table->window_count, __ATOMIC_ACQUIRE), number = quantum_number(table, start),
             place = number - table->window_first;
    if (STRATA_UNLIKELY(place >= count)) return quantum_free_beside(arena, start, size, number);
    return quantum_put(arena, start, size, table->window + place);
}

extern const struct arena_qcache_ops quantum_ops; /* its context is the struct quantum_arena */
/* Whether a slab of a quantum cache begins at this integer: the program can't have got it as a segment. */
bool quantum_is_slab(struct quantum_arena *arena, uint64_t start);
/* How many integers the slabs of all quantum caches of an arena hold. */
uint64_t quantum_slabs_size(const struct quantum_arena *arena);

#endif
