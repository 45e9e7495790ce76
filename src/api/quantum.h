/*
 * quantum.h - the quantum caches of arenas: object caches whose objects stand for integers and whose slabs are segments. Private to api/.
 *
 * Each quantum of a slab has a *mark*, a byte: while the program has an integer that a quantum cache gave, its size in quanta, else 0. So a free
 * knows at once whether the integer was allocated here, and with which size. Marks are read and written by plain instructions (an atomic one costs
 * as much as all the rest of a free): two threads that free an integer at the same moment may both find it allocated, and then it waits twice in
 * arrays. So an allocation looks at the mark, too: what is somebody's is not handed out again. The marks are what the object caches hold: a slab is
 * the marks of a segment, an object of n quanta is n of them, and its address stands for the integer. Most marks lie side by side in the *window*, so
 * that a shift and an addition lead from one to the other; what a wide or scattered arena has beside it lies in *regions*, each of which has its
 * marks side by side, too, and is found by one look at a table. Where there are too many of those, or no address space, *plots* serve, which a
 * hash table finds behind a lock.
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

/* The window has the marks of so many quanta at most, of which only pages that are used take memory. Whole regions. */
#define WINDOW_QUANTA_MAX (UINT64_C(1) << 24)

/*
 * Beside the window: the marks of as many quanta, at a multiple of that. All regions lie in one piece of address space, of which only pages that are
 * used take memory; a process whose address space is limited spares less of it.
 */
#define REGION_SHIFT 16
#define REGION_QUANTA (UINT64_C(1) << REGION_SHIFT)
#define REGIONS_MAX 4096
#define REGIONS_MAX_LIMITED 128
#define REGION_NONE UINT64_MAX
/*
 * The marks of a stretch begin so many lines behind the beginning of a page: slabs at multiples of large powers of two would all want one set of the
 * processor's cache else. Not in the first lines, where headers of CPU areas lie: a processor takes what has the same place in its page for the same.
 */
#define COLOUR_LINE 64
#define COLOUR_LINES_LEFT_OUT 4
#define COLOURS 60
STRATA_INLINE uint64_t quantum_colour(uint64_t which) { return (COLOUR_LINES_LEFT_OUT + which % COLOURS) * COLOUR_LINE; }
/* So far from one region's marks to the next one's, before colours. */
#define REGION_STRIDE_SHIFT (REGION_SHIFT + 1)
#define REGION_STRIDE (UINT64_C(1) << REGION_STRIDE_SHIFT)

/* Quanta whose marks lie side by side: the window, or a region. Immutable once it is shown. */
struct quantum_stretch {
    uint64_t first; /* the number of the first one */
    uint64_t count;
    uint8_t *marks;
    uintptr_t origin; /* the address of a mark less its number */
};
_Static_assert(sizeof(struct quantum_stretch) == 32, "a shift leads to a stretch");

/*
 * By a hash of the region's number; those of the window are here, too. At most a quarter is taken, and there are more slots and other hashes, so that
 * a region is found in its first slot, which is all that most requests look at.
 */
struct quantum_slot {
    uint64_t region;  /* upper bits of its quanta's numbers, REGION_NONE; atomic, written after the next and never changed then */
    uintptr_t origin; /* of the stretch */
};
struct quantum_slots {
    uint64_t mask;               /* of a slot's distance from the first, in bytes. Immutable, as are the next two */
    uint64_t mix;                /* what a region's number is multiplied by, so that few want the same slot */
    struct quantum_slots *small; /* fewer; stays, as somebody may be reading it. NULL: none */
    struct quantum_slot at[];
};
extern struct quantum_slots quantum_no_regions; /* the only slot where there are none */
#define REGION_SLOTS_MIN 64
/* So many slots at most for that: the same as where a quarter of them is taken by all regions there may be. */
#define REGION_SLOTS_MAX 32768

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

/*
 * Chance does not write these where no arena is: the first one where the quantum is 1, so that who sees it knows that there is nothing to be shifted,
 * as in arenas of identifiers. That is a seventh of the instructions.
 */
#define QUANTUM_ALIVE UINT32_C(0x616c6976)
#define QUANTUM_ALIVE_SCALED UINT32_C(0x616c6971)

/*
 * Of an arena. A slab's marks are here from before its first object is handed out until after the last has come back. The window is made with the
 * first slab and stays until the arena is destroyed, as regions and plots do, so that a wrong free which meets one on its way out reads marks, and
 * not others' memory. A region is made with the first slab in it, unless there was none to be had once: then no more are made, so that nothing that
 * has a plot ever gets a region, too.
 *
 * One stretch at a time is *hot*: it is looked at first, so that the address of a mark is known by an addition, and the processor guesses that it is
 * the right one. Frees show which one that should be: the window at first, another one when a thread's frees miss the hot one and meet only that one,
 * none at all where they go to and fro, as a wrong guess costs more than the table of regions does. While there is none and frees are looked at, an
 * empty one is: what misses it is looked at as what misses any other.
 *
 * `plots_shown` show the plots that were asked for last, by a hash of their numbers, and are read without the lock; what isn't there is looked for
 * under it. Lock: LOCK_RANK_SLAB; the arena is asked for its bounds under it, and the zone's metadata are allocated.
 */
struct quantum_table {
    uint64_t max; /* the largest size that has a cache; 0: none has. The first three are immutable while there are caches */
    uint64_t quantum;
    unsigned quantum_shift;
    uint32_t alive;                    /* of the arena, from create to destroy: one of the above. Here, as every request reads its line */
    const struct quantum_stretch *hot; /* atomic; NULL: none is */
    char *areas_at[ARENA_QCACHES_MAX]; /* of the object cache of so many quanta and one more, as is the next. Immutable */
    uint64_t index[ARENA_QCACHES_MAX];

    /* Read without the lock where the hot stretch doesn't serve. */
    struct quantum_slots *slots;       /* atomic, as is the next */
    uint32_t looks;                    /* in vain, or, where frees aren't looked at, refills */
    uint64_t regions_bytes;            /* of all regions, strides; written after what it counts */
    uint8_t *regions_at;               /* immutable from the first region on, as is the next */
    uintptr_t *origins;                /* of all regions */
    struct quantum_stretch *stretches; /* of all regions, likewise */
    struct quantum_stretch window;     /* its count is written last; 0: there is none yet */

    uint64_t plots_mask;               /* atomic; written after what it is the mask of */
    struct quantum_plot **plots_shown; /* atomic, as each of them is */
    uint64_t slab_size;                /* immutable while there are caches */
    struct platform_lock lock;
    void *window_space;
    bool window_tried;
    bool regions_closed;   /* no more are made */
    uint32_t hot_since_us; /* when it was changed last; atomic */
    unsigned regions_max;
    unsigned slots_taken;
    struct quantum_chains *chains; /* all plots; NULL: there are no quantum caches */
    struct quantum_plot *spare;
    uint64_t plots;
    uint32_t sleepers, changing; /* see quantum_sleep.c; atomic */
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

/*
 * Of quantum_regions.c, under the table's lock but for find. find: the mark of a quantum in a region; NULL: none, or it came this moment. add: makes
 * the region where it can be.
 */
uint8_t *quantum_region_find(const struct quantum_table *table, uint64_t number);
uint8_t *quantum_region_add(struct quantum_table *table, uint64_t number);
void quantum_regions_drop(struct quantum_table *table);

/* ------------------------------------------------------------------ marks */

/* Numbers of plots are multiplied before they lead to slots: those of spans at multiples of large powers of two would meet in one else. */
#define QUANTUM_MIX UINT64_C(0x9e3779b97f4a7c15)

/* Multiples of the quantum count from 0 up; what is none is behind them all. */
STRATA_INLINE uint64_t quantum_number_by(unsigned shift, uint64_t start) { return start >> shift | start << (-shift & 63); }
STRATA_INLINE uint64_t quantum_number(const struct quantum_table *table, uint64_t start) { return quantum_number_by(table->quantum_shift, start); }
/* The mark of the quantum of that number, where it lies in this stretch; else NULL. Without the lock. */
STRATA_INLINE uint8_t *quantum_mark_within(const struct quantum_stretch *stretch, uint64_t number) {
    uint64_t count = __atomic_load_n(&stretch->count, __ATOMIC_ACQUIRE);
    if (STRATA_UNLIKELY(number - stretch->first >= count)) return NULL;
    uint8_t *mark = (uint8_t *)(uintptr_t)(stretch->origin + number);
    if (mark == NULL) __builtin_unreachable(); /* spares the callers' tests */
    return mark;
}
STRATA_INLINE struct quantum_slot *quantum_slot_at(struct quantum_slots *slots, uint64_t region) {
    return (struct quantum_slot *)(void *)((char *)slots->at + (region * slots->mix >> 32 & slots->mask));
}
/* In a region, as far as one look at the table tells; NULL: it isn't there. */
STRATA_INLINE uint8_t *quantum_mark_hashed(const struct quantum_table *table, uint64_t number) {
    uint64_t region = number >> REGION_SHIFT;
    const struct quantum_slot *slot = quantum_slot_at(__atomic_load_n(&table->slots, __ATOMIC_ACQUIRE), region);
    if (STRATA_UNLIKELY(__atomic_load_n(&slot->region, __ATOMIC_ACQUIRE) != region)) return NULL;
    uint8_t *mark = (uint8_t *)(uintptr_t)(slot->origin + number);
    if (mark == NULL) __builtin_unreachable(); /* spares the callers' tests */
    return mark;
}
/* What is hot while none is and frees are looked at. */
extern const struct quantum_stretch quantum_looking;
/* Programs change: now and then, where arrays are empty or full and it costs nothing to speak of, frees are looked at again. */
#define QUANTUM_REFILLS 256
STRATA_INLINE void quantum_look_again(struct quantum_table *table) {
    const struct quantum_stretch *none = NULL;
    if (STRATA_LIKELY(__atomic_load_n(&table->hot, __ATOMIC_RELAXED) != NULL)) return;
    if (__atomic_add_fetch(&table->looks, 1, __ATOMIC_RELAXED) < QUANTUM_REFILLS) return;
    __atomic_store_n(&table->looks, 0, __ATOMIC_RELAXED);
    (void)__atomic_compare_exchange_n(&table->hot, &none, &quantum_looking, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}
/* Wherever it lies; NULL: nowhere. */
uint8_t *quantum_mark_find(struct quantum_arena *arena, uint64_t start);
/* The integer of a mark in a stretch of that origin; in a plot; anywhere. A multiplication, as a shift by a count that is read takes three times the
 * instructions. */
STRATA_INLINE uint64_t quantum_integer_within(const struct quantum_table *table, bool scaled, uintptr_t origin, const uint8_t *mark) {
    return ((uintptr_t)mark - origin) * (scaled ? table->quantum : 1);
}
uint64_t quantum_integer_far(const struct quantum_table *table, const uint8_t *mark);
uint64_t quantum_integer(const struct quantum_table *table, const uint8_t *mark);

/* ------------------------------------------------------------------ requests */

/*
 * The ways that most requests take, whose callers spare them the tables that the rest goes through: an integer out of the array of this CPU, or
 * into it. What these are not up to, the functions behind them are. Constant time, no lock.
 */
/* Of a size up to table.max; the second one where a quantum is more than one integer. */
enum arena_status quantum_alloc_flagged(struct quantum_arena *arena, uint64_t size, unsigned flags, uint64_t *start);
enum arena_status quantum_alloc_flagged_scaled(struct quantum_arena *arena, uint64_t size, unsigned flags, uint64_t *start);
enum arena_status quantum_alloc_empty(struct quantum_arena *arena, uint64_t quanta, unsigned flags, uint64_t *start);
/* A mark that came out of an array, though its integer is somebody's, or its slab has gone: ends the process. Has a result for its callers' last
 * call. */
enum arena_status quantum_alloc_twice(const struct quantum_arena *arena, const uint8_t *mark);
enum arena_status quantum_alloc_beside(const struct quantum_arena *arena, const uint8_t *mark, uint64_t *start);
/* False: see quantum_alloc_twice. */
STRATA_INLINE bool quantum_mark_take(uint8_t *mark, uint64_t quanta) {
    if (STRATA_UNLIKELY(__atomic_load_n(mark, __ATOMIC_RELAXED) != QUANTUM_FREE)) return false;
    platform_interleave();
    __atomic_store_n(mark, (uint8_t)quanta, __ATOMIC_RELAXED);
    return true;
}
/*
 * Whether a quantum is more than one integer is a constant for callers that know it is not. Else the shift is read wherever it is wanted, as what
 * stands in a register across a sequence has to be saved.
 */
STRATA_INLINE unsigned quantum_shift(const struct quantum_table *table, bool scaled) { return scaled ? table->quantum_shift : 0; }
/* Of a size up to table.max; the flags are known to be right. */
STRATA_INLINE enum arena_status quantum_take(struct quantum_arena *arena, bool scaled, uint64_t size, unsigned flags, uint64_t *start) {
    const struct quantum_table *table = &arena->table;
    uint64_t last = (size - 1) >> quantum_shift(table, scaled);
    uint8_t *mark = cpu_pop_in(&table->areas_at[last], (unsigned)table->index[last]);
    if (STRATA_UNLIKELY(mark == NULL)) return quantum_alloc_empty(arena, last + 1, flags, start);
    if (scaled) __asm__("" : "+r"(last)); /* or the sum stands in a register from the beginning */
    if (STRATA_UNLIKELY(!quantum_mark_take(mark, last + 1))) return quantum_alloc_twice(arena, mark);
    const struct quantum_stretch *hot = __atomic_load_n(&table->hot, __ATOMIC_ACQUIRE);
    if (STRATA_LIKELY(hot != NULL)) {
        if (STRATA_UNLIKELY((uint64_t)(mark - hot->marks) >= hot->count)) return quantum_alloc_beside(arena, mark, start);
        *start = quantum_integer_within(table, scaled, hot->origin, mark);
        return ARENA_OK;
    }
    uint64_t bytes = __atomic_load_n(&table->regions_bytes, __ATOMIC_ACQUIRE), place = (uint64_t)(mark - table->regions_at);
    if (STRATA_UNLIKELY(place >= bytes)) return quantum_alloc_beside(arena, mark, start);
    *start = quantum_integer_within(table, scaled, table->origins[place >> REGION_STRIDE_SHIFT], mark);
    return ARENA_OK;
}
STRATA_INLINE enum arena_status quantum_alloc(struct quantum_arena *arena, bool scaled, uint64_t size, unsigned flags, uint64_t *start) {
    if (STRATA_UNLIKELY(size - 1 >= arena->table.max)) return arena_alloc(&arena->arena, size, flags, start);
    if (STRATA_UNLIKELY(flags != 0))
        return scaled ? quantum_alloc_flagged_scaled(arena, size, flags, start) : quantum_alloc_flagged(arena, size, flags, start);
    return quantum_take(arena, scaled, size, 0, start);
}

enum arena_status quantum_free_slow(struct quantum_arena *arena, uint64_t start, uint64_t size);
/* Of a size up to table.max, beside the hot stretch. */
enum arena_status quantum_free_beside(struct quantum_arena *arena, uint64_t start, uint64_t size, uint64_t number);
/* A mark that says that its integer is nobody's, and the array of this CPU is full. */
enum arena_status quantum_free_full(struct quantum_arena *arena, uint8_t *mark, uint64_t quanta);
STRATA_INLINE enum arena_status quantum_put(struct quantum_arena *arena, bool scaled, uint64_t start, uint64_t size, uint8_t *mark) {
    const struct quantum_table *table = &arena->table;
    uint64_t quanta = scaled ? ((size - 1) >> table->quantum_shift) + 1 : size;
    if (!scaled) __asm__("" : "+r"(quanta)); /* or what the size was compared by stands in a register of its own to the end */
    if (STRATA_UNLIKELY(__atomic_load_n(mark, __ATOMIC_RELAXED) != (uint8_t)quanta)) return quantum_free_slow(arena, start, size);
    platform_interleave();
    __atomic_store_n(mark, QUANTUM_FREE, __ATOMIC_RELAXED);
    if (STRATA_LIKELY(cpu_push_in(&table->areas_at[quanta - 1], (unsigned)table->index[quanta - 1], mark))) return ARENA_OK;
    return quantum_free_full(arena, mark, quanta);
}
/* Of this thread's frees that don't go by a hot stretch. It has eight bytes: with sixteen, the pair of an object cache takes half a nanosecond
 * longer. */
struct quantum_met {
    int32_t left;       /* until one is looked at; of this width, as the compiler counts in memory then */
    uint16_t looked_us; /* its lower half */
    uint8_t streak : 7;
    uint8_t hushed : 1; /* see quantum_hush_begin */
    uint8_t region;     /* of the streak: some bits of its number */
};
extern __thread struct quantum_met quantum_met __attribute__((visibility("hidden"), tls_model("initial-exec")));
STRATA_INLINE enum arena_status quantum_free(struct quantum_arena *arena, bool scaled, uint64_t start, uint64_t size) {
    const struct quantum_table *table = &arena->table;
    if (STRATA_UNLIKELY(size - 1 >= table->max)) return quantum_free_slow(arena, start, size);
    uint64_t number = quantum_number_by(quantum_shift(table, scaled), start);
    const struct quantum_stretch *hot = __atomic_load_n(&table->hot, __ATOMIC_ACQUIRE);
    uint8_t *mark;
    if (STRATA_LIKELY(hot != NULL)) {
        mark = quantum_mark_within(hot, number);
        if (STRATA_UNLIKELY(mark == NULL)) return quantum_free_beside(arena, start, size, number);
    } else {
        mark = quantum_mark_hashed(table, number);
        if (STRATA_UNLIKELY(mark == NULL)) return quantum_free_slow(arena, start, size);
    }
    return quantum_put(arena, scaled, start, size, mark);
}

/*
 * Of quantum_sleep.c. Between begin and end of a sleeper each free into a cache moves the arena's word when it is done; what was freed before is in
 * the slabs. freed: where there are sleepers.
 */
void quantum_sleep_begin(struct quantum_arena *arena);
void quantum_sleep_end(struct quantum_arena *arena);
void quantum_freed(struct quantum_arena *arena);
/* For who sleeps for a segment. looks: caches may hold what it waits for, and not tell. False: it is time to look whether they do. */
bool quantum_wait(struct quantum_arena *arena, const uint32_t *word, uint32_t seen, bool looks);
void quantum_sleep_fork_child(struct quantum_arena *arena);
/*
 * Round a function of the program that an arena imports by: where nobody is to be asked for anything but that (quiet), the requests that it makes
 * itself, of whatever arena, ask nobody either. begin: what end is told.
 */
bool quantum_hush_begin(bool quiet);
void quantum_hush_end(bool before);
bool quantum_is_hushed(void *unused);
STRATA_INLINE void quantum_tell_sleepers(struct quantum_arena *arena) {
    if (STRATA_UNLIKELY(__atomic_load_n(&arena->table.sleepers, __ATOMIC_SEQ_CST) != 0)) quantum_freed(arena);
}
/* Of an entry of arena.qcaches; and the arena of an object cache that is one. */
struct object_cache *quantum_cache_of(void *cache);
struct quantum_arena *quantum_arena_of(const struct object_cache *cache);
/* Whoever sleeps looks again this often, whatever it is told: other caches may hold what it waits for. */
#define QUANTUM_LOOK_NS UINT64_C(20000000)
/* Empties all caches; and those that may hold what this arena lacks, but for what their objects hold, or all where that was a second ago. */
void quantum_reap_all(void);
void quantum_reap_around(const struct quantum_arena *arena);

extern const struct arena_qcache_ops quantum_ops; /* its context is the struct quantum_arena */

#endif
