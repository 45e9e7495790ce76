/*
 * shelf.c - each CPU's own part of a depot, where several threads use a cache and each ends what it made (home.c).
 *
 * A visit of the depot by two CPUs in turn costs what it takes to bring lines from one to the other, some 100 ns for each of four locks; with large
 * objects, of which an array holds few, that is what an allocation costs. So full magazines of a CPU's own rounds wait with their empty ones on a
 * shelf of their own, whose lock is on a line that other CPUs leave alone. All shelves together may have what the depot's own list may; those that
 * came first may have more until the next tick. What was not needed throughout an interval goes to the slabs, as in the depot (magazines paper, 3.7).
 *
 * CPUs whose numbers are the same modulo DEPOT_HOMES share a shelf; each looks for its own magazines. Shelves of a depot are in use from the first
 * magazine on, for good: `depot->shelved` is set under the depot's lock, which fork takes first.
 * Lock: a shelf's, LOCK_RANK_DEPOT; never with another one but around fork, and in the check, which takes all in their order. Magazines are allocated
 * and freed, and rounds given to slabs, without it.
 */
#include "cache/cache_internal.h"

/* What the depot may have is for so many shelves at least. */
#define SHELVES_MIN 2
/* Of so many magazines the caller's own is looked for. */
#define HOME_LOOKS 4
/* Empty ones, as in a depot; with more full ones as many as can become empty. */
#define SHELF_EMPTY_MIN 8

/* Of malloc's layer, the only one whose rounds have homes; there is one in a process. */
static struct shelf shelves[SLAB_CACHE_MAGAZINES][DEPOT_HOMES];

struct shelf *shelf_at(unsigned cache, unsigned number) { return &shelves[cache][number]; }

/* `home` may be a shelf's own number. */
static struct shelf *shelf_of(const struct cache_layer *caches, const struct depot *depot, unsigned home) {
    return shelf_at((unsigned)(depot - caches->depots), shelf_number(home));
}
static bool is_shelved(const struct depot *depot) { return __atomic_load_n(&depot->shelved, __ATOMIC_ACQUIRE); }

/* The first magazine of a cache comes to a shelf. */
static STRATA_COLD STRATA_NOINLINE void begin(const struct cache_layer *caches, struct depot *depot) {
    if (platform_fork_is_mine()) return; /* shelves of this moment would not be locked for the child */
    platform_lock_acquire(&depot->lock);
    if (!depot->shelved) {
        for (unsigned list = 0; list < DEPOT_HOMES; list++)
            *shelf_of(caches, depot, list) = (struct shelf){.lock = PLATFORM_LOCK_INIT(LOCK_RANK_DEPOT)};
        __atomic_store_n(&depot->shelved, true, __ATOMIC_RELEASE); /* who reads that without the lock finds shelves */
    }
    platform_lock_release(&depot->lock);
}

static void lock(struct shelf *shelf) {
    if (STRATA_LIKELY(platform_lock_try_here(&shelf->lock))) return;
    platform_lock_acquire(&shelf->lock);
    shelf->contended++;
}
static void unlock(struct shelf *shelf) { platform_lock_release_here(&shelf->lock); }

/* Under the lock, as are the next. True: arrays were found empty so often that larger ones may be worth it. */
static bool note_miss(struct shelf *shelf) { return ++shelf->misses % DEPOT_GROWTH_MISSES == 0; }
static void note_visit(struct shelf *shelf) {
    const uint32_t visitor = platform_thread_token();
    shelf->visits++;
    if (STRATA_LIKELY(visitor == shelf->visitor)) return;
    shelf->changed_hands |= shelf->visitor != 0;
    shelf->visitor = visitor;
}
/* Whether the shelf has a share. Not with each magazine that comes to an empty one and leaves it: the count is on a line that all shelves read. */
static void set_used(struct depot *depot, struct shelf *shelf, bool used) {
    if (STRATA_LIKELY(shelf->used == used)) return;
    __atomic_store_n(&shelf->used, used, __ATOMIC_RELAXED);
    __atomic_fetch_add(&depot->shelves_used, used ? 1u : -1u, __ATOMIC_RELAXED);
}
static void put_full(struct depot *depot, struct shelf *shelf, struct magazine *magazine, unsigned home) {
    set_used(depot, shelf, true);
    magazine->home = (uint16_t)home;
    magazine_push(&shelf->full, magazine);
    shelf->frees += magazine->count;
}
/* Shelves have equal shares in what the depot may have: all that have one, and this one. */
static uint32_t shares(const struct depot *depot, const struct shelf *shelf) {
    const uint32_t others = __atomic_load_n(&depot->shelves_used, __ATOMIC_RELAXED) - __atomic_load_n(&shelf->used, __ATOMIC_RELAXED);
    return (uint32_t)max_u64(others + 1, SHELVES_MIN);
}
/* Whether a shelf that has so many may have one more. */
static bool may_have_more(const struct depot *depot, const struct shelf *shelf, uint32_t count) {
    return ((uint64_t)count + 1) * shares(depot, shelf) <= __atomic_load_n(&depot->full_max, __ATOMIC_RELAXED);
}
static bool has_room(const struct depot *depot, const struct shelf *shelf) {
    return may_have_more(depot, shelf, __atomic_load_n(&shelf->full.count, __ATOMIC_RELAXED));
}
/* False: it is of another m, or there are enough. */
static bool put_empty(const struct depot *depot, struct shelf *shelf, struct magazine *magazine) {
    if (magazine->kind != __atomic_load_n(&depot->kind, __ATOMIC_RELAXED)) return false;
    if (shelf->empty.count >= SHELF_EMPTY_MIN && !may_have_more(depot, shelf, shelf->empty.count)) return false;
    magazine->home = 0;
    magazine_push(&shelf->empty, magazine);
    return true;
}

/* ------------------------------------------------------------------ magazines */

/* Under the lock, as is the next: the link to one of the home's; NULL: none of the first ones is. */
static struct magazine **find_own(struct shelf *shelf, unsigned home) {
    struct magazine **link = &shelf->full.first;
    for (unsigned looks = HOME_LOOKS; looks != 0 && *link != NULL; looks--, link = &(*link)->next)
        if ((*link)->home == home) return link;
    return NULL;
}
static struct magazine *take(struct shelf *shelf, struct magazine **link) {
    struct magazine *magazine = magazine_unlink(&shelf->full, link);
    if (magazine != NULL) shelf->allocs += magazine->count;
    return magazine;
}

struct magazine *shelf_take_full(struct cache_layer *caches, struct depot *depot, unsigned home) {
    if (!is_shelved(depot)) return NULL;
    struct shelf *shelf = shelf_of(caches, depot, home);
    lock(shelf);
    note_visit(shelf);
    struct magazine *magazine = take(shelf, find_own(shelf, home));
    const bool often = magazine != NULL && note_miss(shelf);
    unlock(shelf);
    if (STRATA_UNLIKELY(often)) depot_grow(caches, depot);
    return magazine;
}

unsigned shelf_take(struct cache_layer *caches, struct depot *depot, unsigned home, void **rounds) {
    if (!is_shelved(depot)) return 0;
    struct shelf *shelf = shelf_of(caches, depot, home);
    unsigned count = 0;
    bool often = false;
    lock(shelf);
    struct magazine **link = find_own(shelf, home), *magazine = NULL;
    if (link != NULL && (*link)->count <= DEPOT_FEW) { /* else shelf_take_full comes by */
        note_visit(shelf);
        magazine = take(shelf, link);
        count = magazine_take(magazine, rounds);
        if (put_empty(depot, shelf, magazine)) magazine = NULL;
        often = note_miss(shelf);
    }
    unlock(shelf);
    if (STRATA_UNLIKELY(often)) depot_grow(caches, depot);
    if (STRATA_UNLIKELY(magazine != NULL)) depot_put_away(caches, depot, magazine); /* of another m, or one too many */
    return count;
}

bool shelf_give(const struct cache_layer *caches, struct depot *depot, unsigned home, void *const *rounds, unsigned count) {
    if (!is_shelved(depot)) return false;
    struct shelf *shelf = shelf_of(caches, depot, home);
    struct magazine *magazine = NULL;
    lock(shelf);
    note_visit(shelf);
    if (has_room(depot, shelf) && shelf->empty.first != NULL && magazine_capacity(shelf->empty.first) >= count) {
        magazine = magazine_pop(&shelf->empty);
        magazine_fill(magazine, rounds, count);
        put_full(depot, shelf, magazine, home);
    }
    unlock(shelf);
    return magazine != NULL;
}

bool shelves_have_any(const struct cache_layer *caches, const struct depot *depot, unsigned home) {
    for (unsigned list = 0; list < DEPOT_HOMES; list++)
        if ((home == 0 || list == shelf_number(home)) && __atomic_load_n(&shelf_of(caches, depot, list)->full.count, __ATOMIC_RELAXED) != 0)
            return true;
    return false;
}

struct magazine *shelf_take_any(const struct cache_layer *caches, struct depot *depot, unsigned home) {
    struct magazine *magazine = NULL;
    for (unsigned list = 0; list < DEPOT_HOMES && magazine == NULL && is_shelved(depot); list++) {
        if (home != 0 && list != shelf_number(home)) continue;
        struct shelf *shelf = shelf_of(caches, depot, list);
        if (__atomic_load_n(&shelf->full.count, __ATOMIC_RELAXED) == 0) continue;
        platform_lock_acquire(&shelf->lock);
        magazine = take(shelf, &shelf->full.first);
        platform_lock_release(&shelf->lock);
    }
    return magazine;
}

bool shelf_has_room(const struct cache_layer *caches, const struct depot *depot, unsigned home) {
    return !is_shelved(depot) || has_room(depot, shelf_of(caches, depot, home));
}

bool shelf_give_full(const struct cache_layer *caches, struct depot *depot, struct magazine *magazine) {
    if (STRATA_UNLIKELY(!is_shelved(depot))) {
        begin(caches, depot);
        if (!is_shelved(depot)) return false;
    }
    struct shelf *shelf = shelf_of(caches, depot, magazine->home);
    lock(shelf);
    const bool room = has_room(depot, shelf);
    if (room) put_full(depot, shelf, magazine, magazine->home);
    unlock(shelf);
    return room;
}

struct magazine *shelf_take_empty(const struct cache_layer *caches, struct depot *depot, unsigned home) {
    if (!is_shelved(depot)) return NULL;
    struct shelf *shelf = shelf_of(caches, depot, home);
    lock(shelf);
    note_visit(shelf);
    struct magazine *magazine = magazine_pop(&shelf->empty);
    unlock(shelf);
    return magazine;
}

bool shelf_give_empty(const struct cache_layer *caches, struct depot *depot, struct magazine *magazine, unsigned home) {
    if (!is_shelved(depot)) return false;
    struct shelf *shelf = shelf_of(caches, depot, home);
    lock(shelf);
    const bool room = put_empty(depot, shelf, magazine);
    unlock(shelf);
    return room;
}

/* ------------------------------------------------------------------ over time */

/* One at a time, so that a fork at this moment costs the child one magazine's rounds at most. NULL: there are no more. */
static struct magazine *take_unneeded(struct shelf *shelf, bool full) {
    platform_lock_acquire(&shelf->lock);
    struct magazine *magazine = full ? magazine_unlink(&shelf->full, &shelf->full.first) : magazine_pop(&shelf->empty);
    platform_lock_release(&shelf->lock);
    return magazine;
}

struct shelf_activity shelves_look(const struct cache_layer *caches, struct depot *depot) {
    struct shelf_activity activity = {0};
    uint32_t visitor = 0;
    for (unsigned list = 0; list < DEPOT_HOMES && is_shelved(depot); list++) {
        struct shelf *shelf = shelf_of(caches, depot, list);
        platform_lock_acquire(&shelf->lock);
        activity.visits += shelf->visits;
        activity.contended += shelf->contended;
        if (shelf->visits != 0) {
            activity.changed_hands |= shelf->changed_hands || (visitor != 0 && visitor != shelf->visitor);
            visitor = shelf->visitor;
        }
        shelf->visits = shelf->contended = shelf->misses = 0;
        shelf->changed_hands = false;
        platform_lock_release(&shelf->lock);
    }
    return activity;
}

void shelves_trim(struct cache_layer *caches, struct depot *depot, bool all) {
    for (unsigned list = 0; list < DEPOT_HOMES && is_shelved(depot); list++) {
        struct shelf *shelf = shelf_of(caches, depot, list);
        struct magazine *magazine;
        platform_lock_acquire(&shelf->lock);
        if (shelf->full.count == 0) set_used(depot, shelf, false);
        /* Which others that came since have made less. */
        const uint32_t most = __atomic_load_n(&depot->full_max, __ATOMIC_RELAXED) / shares(depot, shelf);
        unsigned full = magazine_unneeded(&shelf->full, all), empty = magazine_unneeded(&shelf->empty, all);
        if (shelf->full.count > most) full = (unsigned)max_u64(full, shelf->full.count - most);
        platform_lock_release(&shelf->lock);
        while (full-- != 0 && (magazine = take_unneeded(shelf, true)) != NULL) depot_put_away(caches, depot, magazine);
        while (empty-- != 0 && (magazine = take_unneeded(shelf, false)) != NULL) depot_put_away(caches, depot, magazine);
    }
}

/* ------------------------------------------------------------------ looking inside, fork */

STRATA_SELDOM void shelves_stats_add(const struct cache_layer *caches, const struct depot *depot, struct cache_stats *stats) {
    for (unsigned list = 0; list < DEPOT_HOMES && is_shelved(depot); list++) {
        struct shelf *shelf = shelf_of(caches, depot, list);
        platform_lock_acquire(&shelf->lock);
        stats->depot_allocs += shelf->allocs;
        stats->depot_frees += shelf->frees;
        stats->depot_magazines += shelf->full.count;
        stats->contention += shelf->contended;
        for (const struct magazine *magazine = shelf->full.first; magazine != NULL; magazine = magazine->next) stats->cached += magazine->count;
        platform_lock_release(&shelf->lock);
    }
}

static const char *check_shelf(const struct shelf *shelf, unsigned list) {
    unsigned full = 0, empty = 0;
    for (const struct magazine *magazine = shelf->full.first; magazine != NULL; magazine = magazine->next, full++) {
        if (magazine->count == 0 || magazine->count > magazine_capacity(magazine)) return "shelf: a full magazine with too few or too many rounds";
        if (magazine->home == 0 || shelf_number(magazine->home) != list) return "shelf: a magazine of another CPU";
    }
    if (full != 0 && !shelf->used) return "shelf: full magazines without a share";
    for (const struct magazine *magazine = shelf->empty.first; magazine != NULL; magazine = magazine->next, empty++)
        if (magazine->count != 0) return "shelf: a full magazine among the empty ones";
    if (full != shelf->full.count || empty != shelf->empty.count) return "shelf: a count differs from its list";
    return shelf->full.low > full || shelf->empty.low > empty ? "shelf: more magazines unneeded than there are" : NULL;
}

/* All shelves are held, as they come into use and go out of it while others are looked at. */
STRATA_SELDOM const char *shelves_check(const struct cache_layer *caches, const struct depot *depot) {
    if (!is_shelved(depot)) return NULL;
    const char *broken = NULL;
    uint32_t used = 0;
    platform_lock_acquire(&shelf_of(caches, depot, 0)->lock);
    for (unsigned list = 1; list < DEPOT_HOMES; list++) platform_lock_acquire_next(&shelf_of(caches, depot, list)->lock);
    for (unsigned list = 0; list < DEPOT_HOMES && broken == NULL; list++) {
        const struct shelf *shelf = shelf_of(caches, depot, list);
        broken = check_shelf(shelf, list);
        used += shelf->used;
    }
    if (broken == NULL && used != __atomic_load_n(&depot->shelves_used, __ATOMIC_RELAXED))
        broken = "depot: another number of shelves in use than there are";
    for (unsigned list = DEPOT_HOMES; --list != 0;) platform_lock_release_next(&shelf_of(caches, depot, list)->lock);
    platform_lock_release(&shelf_of(caches, depot, 0)->lock);
    return broken;
}

STRATA_COLD void shelves_hold(const struct cache_layer *caches, const struct depot *depot) {
    for (unsigned list = 0; list < DEPOT_HOMES && is_shelved(depot); list++) platform_lock_hold(&shelf_of(caches, depot, list)->lock);
}
STRATA_COLD void shelves_unhold(const struct cache_layer *caches, const struct depot *depot) {
    for (unsigned list = DEPOT_HOMES; list-- != 0 && is_shelved(depot);) platform_lock_unhold(&shelf_of(caches, depot, list)->lock);
}
