/*
 * zone_internal.h - what the files of page/ share. Private to this folder. All functions here run under the zone's lock.
 */
#ifndef STRATA_PAGE_ZONE_INTERNAL_H
#define STRATA_PAGE_ZONE_INTERNAL_H

#include "page/page.h"
#include "page/superpage.h"

/* The descriptor of a block's first granule. A block of whole superpages owns `superpages` of them, of which `granules` are its own. */
struct block_desc {
    uint64_t granules;
    uint64_t superpages;   /* 0: a run */
    uint32_t mobility;     /* enum mobility */
    bool fixed;            /* its address does not change */
    bool reserved;         /* address space was asked for: it stays when the block shrinks */
    bool holes;            /* pages went missing from inside it, which count as present: see zone_settle_holes */
    bool watched;          /* a range of it may be watched: see zone_end_watches */
    bool huge;             /* the program asked for huge pages: whole superpages of them, also when it grows */
    bool grouped;          /* it lies with blocks of its mobility alone: so does what comes after it */
    bool cached;           /* it is nobody's: run_cache.c; changed atomically */
    bool used;             /* one of those that are hardly used, of which a page was found: its pages are looked at */
    uint32_t fresh;        /* granules that were absent when it got them, the last time that these were many, and may still be; 0: none */
    uint8_t align_shift;   /* of a grouped one: log2 of the alignment that was asked for, which it keeps when it moves; 0: none */
    uint32_t longer;       /* granules beyond those that its owner asked for, and knows of, who took it out of a run cache, until it is resized */
    zone_block_move *move; /* the owner's, to be called without the lock; NULL: the block stays where it is */
    void *argument;
};
_Static_assert(sizeof(struct block_desc) <= sizeof(struct granule_desc), "a block's descriptor fits one granule's");
_Static_assert(sizeof(struct superpage) == 256, "superpages are addressed by a shift");

STRATA_INLINE struct superpage *superpage_of(struct zone *zone, const void *address) {
    return &zone->superpages[((uintptr_t)address - zone->base) >> SUPERPAGE_SHIFT];
}
STRATA_INLINE char *superpage_address(const struct zone *zone, const struct superpage *superpage) {
    return (char *)zone->base + ((size_t)(superpage - zone->superpages) << SUPERPAGE_SHIFT);
}
STRATA_INLINE struct block_desc *block_of(struct zone *zone, const void *address) {
    return (struct block_desc *)(void *)&zone->descs[zone_granule_of(zone, address)];
}
/* Granules that its owner knows of. */
STRATA_INLINE size_t block_asked(const struct block_desc *block) { return block->granules - block->longer; }

/* Under the zone's lock: its owner knows of all of it now, or it ends. */
STRATA_INLINE void block_forget_longer(struct zone *zone, struct block_desc *block) {
    zone->longer_granules -= block->longer;
    block->longer = 0;
}

/* What growth has put off is done: marks of superpages are true. */
void zone_mark_growth(struct zone *zone);
/* Takes the lock. Whoever looks at marks takes it so; who knows only tags and descriptors need not. */
STRATA_INLINE void zone_lock(struct zone *zone) {
    platform_lock_acquire(&zone->lock);
    if (STRATA_UNLIKELY(zone->unmarked.to != 0)) zone_mark_growth(zone);
}

/* Whether somebody's block starts at the address now: under the lock, or asked by who owns it, or had owned it. */
STRATA_INLINE bool zone_is_block(struct zone *zone, const void *address) {
    return zone_contains(zone, address) && ((uintptr_t)address & (GRANULE_BYTES - 1)) == 0 &&
           zone_tag_of(zone, zone_granule_of(zone, address)) == TAG_BLOCK && !__atomic_load_n(&block_of(zone, address)->cached, __ATOMIC_RELAXED);
}
/* Somebody watches a range of the block, and must not any more once its pages go elsewhere. */
STRATA_INLINE void zone_end_watches(struct zone *zone, const struct block_desc *block, char *address, size_t bytes) {
    if (STRATA_UNLIKELY(block->watched)) zone->end_watches(address, bytes);
}
/* Heaps of this size on look at what is there, and move idle pages one by one. */
#define TARGET_HEAP_GRANULES (4 * MIB / GRANULE_BYTES)
/*
 * holes.c: what is absent of a block and counts as present. settle: of granules [address, ...) that were this block's until now and are idle, so that
 * nobody counts on them. fresh: it has got so many absent granules, which nobody may ever touch. sparse: of late most of
 * those that blocks got were not touched: pages from elsewhere would be for nothing. Few granules are not worth a look, nor those of a small heap.
 */
void zone_settle_holes(struct zone *zone, const struct block_desc *block, char *address, size_t granules);
#define HOLES_GRANULES_MIN 16
STRATA_INLINE void zone_note_fresh(const struct zone *zone, struct block_desc *block, uint64_t fresh) {
    if (fresh < HOLES_GRANULES_MIN || max_u64(zone->populated_peak, zone->counters.populated) < TARGET_HEAP_GRANULES) return;
    block->fresh = (uint32_t)min_u64(fresh, UINT32_MAX);
}
STRATA_INLINE bool zone_may_lack_pages(const struct block_desc *block) { return block->holes || block->fresh != 0; }
#define UNTOUCHED_SPARSE 192 /* of 256 */
/* How many of so many granules a block will touch, as others before it did. */
STRATA_INLINE uint64_t zone_expect_touched(const struct zone *zone, bool superpages, uint64_t fresh) {
    return fresh * (256 - __atomic_load_n(&zone->untouched[superpages], __ATOMIC_RELAXED)) / 256;
}
STRATA_INLINE bool zone_is_sparse(const struct zone *zone, bool superpages) {
    return __atomic_load_n(&zone->untouched[superpages], __ATOMIC_RELAXED) > UNTOUCHED_SPARSE;
}
/*
 * How much of a block of superpages is likely to be used, from its start on: a little less than others were, so that what was given for nothing is
 * noticed. All, where others were used as a whole, or too little for it to matter.
 */
STRATA_INLINE size_t zone_expect_head(const struct zone *zone, size_t granules) {
    const size_t head = granules * (256 - zone->tail) / 256;
    return zone->tail < 32 || head < 2 * HOLES_GRANULES_MIN ? granules : align_down(head - head / 8, zone->page_granules);
}

/*
 * litter.c: pages that hardly used blocks leave where they are, and that nobody knows of. leave: of a block that has just become idle, in a heap
 * where most of its kind are hardly used; false: it is to be settled as others are. keep: superpages become wholly a block's, whose pages may be
 * there or not. clear: they become something else, or nothing is known of that: what is there goes back. sweep: of all superpages. taken: a run has
 * got so many absent granules.
 */
#define LITTER_WHOLE 65536
/* How many of a block's granules are expected to be there at its end. */
STRATA_INLINE uint64_t zone_litter_expected(const struct litter *litter, bool superpages, uint64_t granules) {
    return granules * litter->kinds[superpages].share / LITTER_WHOLE + 1;
}
/* Whether one page of it is there, another one with each number: a block that is used as a whole is noticed, and one that is used by half soon. */
bool zone_has_some_page(const struct zone *zone, const char *address, size_t granules, uint32_t number);
bool zone_litter_leave(struct zone *zone, const struct block_desc *block, char *address, size_t granules);
void zone_litter_keep_slow(struct zone *zone, struct superpage *first, size_t count);
void zone_litter_clear_slow(struct zone *zone, struct superpage *first, size_t count);
STRATA_INLINE void zone_litter_keep(struct zone *zone, struct superpage *first, size_t count) {
    if (STRATA_UNLIKELY(zone->litter.to != 0)) zone_litter_keep_slow(zone, first, count);
}
STRATA_INLINE void zone_litter_clear(struct zone *zone, struct superpage *first, size_t count) {
    if (STRATA_UNLIKELY(zone->litter.to != 0)) zone_litter_clear_slow(zone, first, count);
}
STRATA_INLINE void zone_litter_taken(struct zone *zone, const struct superpage *superpage, uint64_t fresh) {
    struct litter *litter = &zone->litter;
    if (STRATA_LIKELY(litter->to == 0 || !superpage->littered || fresh == 0)) return;
    litter->granules -= min_u64(litter->granules, zone_litter_expected(litter, false, fresh));
}
STRATA_INLINE void zone_litter_sweep(struct zone *zone) {
    const struct litter *litter = &zone->litter;
    zone_litter_clear(zone, &zone->superpages[litter->from], litter->to - litter->from);
}
/* Of holes.c: asks the system which granules of a block are there, and marks the others absent; how many these are. */
size_t zone_mark_holes(struct zone *zone, char *address, size_t granules);
/* And learns from that for blocks that come. */
void zone_learn_untouched(struct zone *zone, const struct block_desc *block, size_t granules, size_t absent);
/* How many of a superpage's granules at most are absent, whose marks stay: those of a block count as present. False: it can't be found out. */
bool zone_count_absent(const struct zone *zone, const char *address, size_t granules, size_t *absent);

/* A block that is nobody's any more: its granules are idle, its superpages free. Its own counters aside. */
void zone_block_dissolve(struct zone *zone, char *address, const struct block_desc *block);
/* Blocks that rest (resting.c). rest: false: this one can't. rouse: one of just this kind, whose fresh granules it then has; NULL: none. */
bool zone_block_rest(struct zone *zone, char *address, const struct block_desc *block);
char *zone_block_rouse(struct zone *zone, struct block_desc *like, size_t align_bytes);
/*
 * Runs that CPUs keep for themselves (run_cache.c), without the zone's lock. give: false: the block is none that may wait there, or none at all.
 * take: one of this size, or longer where that will do, whose contents are anything; sparse: one of which little is there will do; NULL: this CPU has
 * none.
 */
bool zone_run_cache_give(struct zone *zone, char *address);
char *zone_run_cache_take(struct zone *zone, size_t granules, size_t align, bool longer, bool sparse);
/*
 * What is used of what CPUs keep becomes idle pages. All; or a piece, the longest there of this CPU's, or with `others` then of any CPU's, for who
 * looks after each whether it is enough; false: there was none.
 */
void zone_wake_used_runs(struct zone *zone);
bool zone_wake_used_piece(struct zone *zone, bool others);
/* Some of all that they keep, of one CPU; false: there was nothing. For who may let the lock go in between. */
bool zone_wake_some_runs(struct zone *zone);
/* All of everybody's do: for room, address space or true marks. False: there were none. */
bool zone_wake_runs(struct zone *zone);
/* How many granules caches have that are present, so far as known; and how many blocks that were theirs have too much. */
uint64_t zone_cached_granules(const struct zone *zone);
uint32_t zone_longer_granules(const struct zone *zone);
/* How much that may be, from now on. limited: a limit refuses little because of it. */
void zone_longer_init(struct zone *zone, bool limited);
void zone_longer_judge(struct zone *zone);
void zone_run_caches_hold(struct zone *zone);
void zone_run_caches_unhold(struct zone *zone);
/* Of those that rest the runs: for other runs, which whole superpages are too good for. */
void zone_wake_resting_runs(struct zone *zone);
void zone_wake_resting(struct zone *zone);
/* All that rests or is cached becomes idle pages: before these are handed back or counted. pages: what of it is used, before pages are looked for. */
STRATA_INLINE void zone_wake_blocks(struct zone *zone) {
    if (STRATA_UNLIKELY(zone->run_caches_used != 0)) (void)zone_wake_runs(zone);
    if (STRATA_UNLIKELY(zone->resting.count != 0)) zone_wake_resting(zone);
}
STRATA_INLINE void zone_wake_pages(struct zone *zone) {
    if (STRATA_UNLIKELY(zone->run_caches_used != 0)) zone_wake_used_runs(zone);
    if (STRATA_UNLIKELY(zone->resting.count != 0)) zone_wake_resting(zone);
}

/* A block of whole superpages gets more of them behind it, `wanted` in all, for later growth. ZONE_NO_ROOM: they are taken; ZONE_NO_MEMORY. */
enum zone_status zone_block_extend(struct zone *zone, char *address, uint64_t wanted);

/* Address space for `count` superpages aligned to `align` of them, committed, still SUPERPAGE_FREE; NULL: none. */
struct superpage *zone_superpages_take(struct zone *zone, size_t count, size_t align);
/* Just these, which are committed. False: not all of them are free, or they lie in two pieces of address space. */
bool zone_superpages_take_at(struct zone *zone, const struct superpage *first, size_t count);
void zone_superpages_give(struct zone *zone, struct superpage *first, size_t count);
/* The same, preferring places where granules [from, to) of them are present (place.c). */
struct superpage *zone_superpages_take_present(struct zone *zone, size_t count, size_t align, size_t from, size_t to);
/* One that has so many present granules in a row; NULL: none of the first few that are wholly free has (place.c). */
struct superpage *zone_superpage_take_run(struct zone *zone, unsigned granules, unsigned align);
/* The same for pages that move to granules [0, from), where none is dropped for them, if such a place is among the first few. */
struct superpage *zone_superpages_take_moved(struct zone *zone, size_t count, size_t from, size_t to);
/* The superpage of runs, of the first few, in which the most of such a run is present, and where. NULL: nothing is, where there is room. */
struct superpage *zone_find_most_present(struct zone *zone, enum mobility mobility, unsigned granules, unsigned align, unsigned *start);
/*
 * The same where the arena has none, by emptying superpages of blocks whose owners let them move (compact.c). Drops and retakes the lock. NULL: none
 * can be emptied.
 */
struct superpage *zone_superpages_compact(struct zone *zone, size_t count, size_t align);
/* Around a fork. In the child the thread that emptied superpages is gone, unless it is the one that forks. */
void zone_compact_fork_prepare(struct zone *zone);
void zone_compact_fork_child(struct zone *zone);
/* Where a run of blocks of this mobility fits, in a superpage of its group; NULL: nowhere. */
struct superpage *zone_group_find(struct zone *zone, enum mobility mobility, unsigned granules, unsigned align, unsigned *start);
/*
 * The same where all pages of the run are present (present.c). relink: once idle_run, state, mobility or apart have changed; recent: granules became
 * idle.
 */
struct superpage *zone_present_find(struct zone *zone, enum mobility mobility, unsigned granules, unsigned align, unsigned *start);
void zone_present_relink(struct zone *zone, struct superpage *superpage, bool recent);
/* The list that it belongs to; 0: none. */
unsigned zone_present_list_of(const struct superpage *superpage);
void zone_present_init(struct zone *zone);
/* Commits what the arena has given out anyway, for a range that grew in place. `marks`: they are written to next. */
bool zone_superpages_commit(struct zone *zone, const struct superpage *first, size_t count, bool marks);
/* Makes the marks of many superpages present by one call, in place of a fault for each page of them. */
void zone_populate_marks(struct zone *zone, size_t from, size_t end);
/*
 * After a block of a superpage or more has grown to `end`: one of the things that its next steps would need is done, so that none pays for several.
 * It is asked whether the process could lock its memory; whether the system charges for what is committed; then arrays are committed ahead, all
 * of them where that costs nothing, else one; then the heap, where that costs nothing. `heap_before`: the zone's heap_bytes before it grew.
 */
void zone_grow_ahead(struct zone *zone, const char *end, uint64_t heap_before);
/* Growth of a large block into superpages that were never used, whose marks are put off. False: nothing has happened (growth.c). */
bool zone_block_grow_unmarked(struct zone *zone, char *address, size_t granules);

/* Puts the superpage where its counts say: bucket list, idle list; and adds the change of idle to the zone's counters. */
void zone_superpage_relink(struct zone *zone, struct superpage *superpage, unsigned idle_before);

/* Marks granules [start, start + granules) of a superpage allocated or free, with all that follows. Returns how many were not present. */
unsigned zone_mark_allocated(struct zone *zone, struct superpage *superpage, unsigned start, unsigned granules, bool *zeroed);
void zone_mark_free(struct zone *zone, struct superpage *superpage, unsigned start, unsigned granules);
/* Forgets pages that the system has back: no longer populated, zeros. */
void zone_mark_released(struct zone *zone, struct superpage *superpage, unsigned start, unsigned granules);

/* After a free: a superpage of runs that is wholly free goes back to the arena. Keeps the lock. */
void zone_superpage_settle(struct zone *zone, struct superpage *superpage);
/* From now on a limit would count. Under the lock, as LATER ends here only; who reads the limit then takes WANTED away without it. */
STRATA_INLINE void zone_want_limit(struct zone *zone) {
    if (STRATA_UNLIKELY(__atomic_load_n(&zone->limit_state, __ATOMIC_RELAXED) == ZONE_LIMIT_LATER))
        __atomic_store_n(&zone->limit_state, ZONE_LIMIT_WANTED, __ATOMIC_RELAXED);
}
/* Whether one that is not known yet would: to a heap of some size, once so much of it is idle. */
#define LIMIT_HEAP_GRANULES (8 * MIB / GRANULE_BYTES)
#define LIMIT_IDLE_GRANULES (1 * MIB / GRANULE_BYTES)
STRATA_INLINE bool zone_limit_counts(const struct zone *zone, uint64_t populated, uint64_t idle) {
    return populated >= LIMIT_HEAP_GRANULES && idle >= LIMIT_IDLE_GRANULES &&
           __atomic_load_n(&zone->limit_state, __ATOMIC_RELAXED) == ZONE_LIMIT_LATER;
}
/* How many granules more are populated than the soft limit allows; or of what is in nobody's hands, by how much more than may stay all the same. */
uint64_t zone_above_soft_limit(const struct zone *zone, uint64_t over);
STRATA_INLINE uint64_t zone_over_soft_limit(const struct zone *zone) {
    const uint64_t limit = zone->config.soft_limit_bytes >> GRANULE_SHIFT;
    return STRATA_LIKELY(zone->counters.populated <= limit) ? 0 : zone_above_soft_limit(zone, zone->counters.populated - limit);
}
/* Hands back idle pages while more is populated than the soft limit allows. May drop and retake the lock. */
void zone_trim_to_limit(struct zone *zone);

/*
 * Who gets idle pages: a block, by either way; the start of one, also where most of the rest is never touched; a block that grows, in a step that
 * shall be short; runs that follow each other, page by page alone.
 */
enum zone_fill { FILL_BLOCK, FILL_HEAD, FILL_GROWTH, FILL_AHEAD };
/*
 * Remapping (remap.c). Gets present pages for the absent ones among granules [from, to) of the superpages from `first` on, none of which is
 * allocated, out of other superpages with idle ones; as far as it goes.
 */
void zone_fill_from_idle(struct zone *zone, struct superpage *first, size_t from, size_t to, enum zone_fill who);
/*
 * Before pages move to granules [0, to) of `count` superpages, none of which is allocated: what is present there would be dropped, and goes to the
 * superpages behind, where nothing is, as far as these reach.
 */
void zone_clear_way(struct zone *zone, struct superpage *first, size_t to, size_t count);
/*
 * After zone_move of `granules` from `from` to `to`, which kept so many bytes: the marks follow the pages. The target is not allocated at this
 * moment; if the source is, it ends before the lock is let go.
 */
void zone_moved_pages(struct zone *zone, char *from, char *to, size_t granules, size_t kept_bytes);

/*
 * Another address for pages (move.c). zone_move: both ranges are committed and apart, the former pages of `to` are dropped, `from` reads as zeros
 * then. What the kernel will not move is copied, and may not be given back: the last *kept_bytes of `from` stay present. False: copy; `from` is as it
 * was, `to` may have lost its pages. can_move, can_swap: whether it is worth a try.
 */
bool zone_can_move(struct zone *zone);
bool zone_can_swap(const struct zone *zone);
bool zone_can_move_tables(const struct zone *zone);
/*
 * The same of up to ROW_MOVES ranges, of which no two meet, into one block, page by page with one registration. What will not move is copied. False:
 * nothing has happened.
 */
#define ROW_MOVES 64
bool zone_move_one_by_one(struct zone *zone, const struct zone_pages_move *moves, size_t count);
bool zone_move(struct zone *zone, char *from, char *to, size_t bytes, size_t *kept_bytes);
/* Whether pages shall move that would otherwise be copied, or touched: false where threads take turns at asking. */
bool zone_one_thread_moves(struct zone *zone);
/*
 * In heaps of TARGET_HEAP_GRANULES on: pages, one by one, to absent ones of a range that nobody uses, of which there may be several between
 * open and close. ready: false: they can't, or shall not now; a pause is one question shorter then. open: only where they were ready; false: they
 * can't after all. move: returns how many bytes from the start have moved, `least_bytes` or more, or 0; the marks are the caller's affair.
 */
bool zone_target_ready(struct zone *zone);
bool zone_target_open(struct zone *zone, char *to, size_t bytes);
size_t zone_target_move(struct zone *zone, char *from, char *to, size_t bytes, size_t least_bytes);
void zone_target_close(struct zone *zone, char *to, size_t bytes);
/* Page tables have moved here: mappings begin and end at both ends from now on. And no longer, as they have moved back. */
void zone_note_cuts(struct zone *zone, const char *address, size_t bytes);
/* The same where a copy of the mappings of another range has come with them, whose own stay; nothing is left of what was cut there before. */
void zone_inherit_cuts(struct zone *zone, const char *from, const char *address, size_t bytes);
void zone_forget_cuts(struct zone *zone, const char *address, size_t bytes);
/* The superpage was mapped anew: its mapping is that of its neighbours, without advice. */
void zone_note_reset(struct zone *zone, struct superpage *superpage);
/* Superpages of which nothing is in use or present are mapped anew where they are cut, before a block gets them. */
void zone_join_absent(struct zone *zone, struct superpage *first, size_t count);
/* The same of a block's, of which none is allocated: present pages that lie behind known borders are given back. */
void zone_join_cut(struct zone *zone, struct superpage *first, size_t count);

/*
 * Exchanges that are over (exchanged.c). note: one was done by page tables. meets: a range was exchanged, and its pages are not at home. forget: its
 * mappings have become others. settle: pages have become idle: exchanges of which nothing is in use any more are taken back.
 */
void zone_exchange_note(struct zone *zone, char *a, char *b, size_t bytes);
bool zone_exchange_meets_slow(const struct zone *zone, const char *address, size_t bytes);
void zone_exchange_forget_slow(struct zone *zone, const char *address, size_t bytes);
void zone_exchanges_settle_slow(struct zone *zone);
STRATA_INLINE bool zone_exchange_meets(const struct zone *zone, const char *address, size_t bytes) {
    return STRATA_UNLIKELY(zone->exchanges.count != 0) && zone_exchange_meets_slow(zone, address, bytes);
}
STRATA_INLINE void zone_exchange_forget(struct zone *zone, const char *address, size_t bytes) {
    if (STRATA_UNLIKELY(zone->exchanges.count != 0)) zone_exchange_forget_slow(zone, address, bytes);
}
STRATA_INLINE void zone_exchanges_settle(struct zone *zone) {
    if (STRATA_UNLIKELY(zone->exchanges.count != 0)) zone_exchanges_settle_slow(zone);
}
/* The exchange itself (exchange.c), of two ranges apart; tidy: what lay in between is mapped anew. False: nothing has happened. */
bool zone_swap_tables(struct zone *zone, char *a, char *b, size_t bytes, bool tidy);

/*
 * Which pages of a run of slabs are made present before they are touched: with those behind it; none, but it has to lie where all are; none. moved:
 * of a run whose owner brings some; no huge page comes for it.
 */
enum run_pages { RUN_PAGES_AHEAD, RUN_PAGES_PRESENT, RUN_PAGES_LAZY, RUN_PAGES_MOVED };
/* Touches the page at `address`, the caller's, in a superpage for which zone_decide_huge was true, and learns what that costs. Not under the lock. */
void zone_measure_huge(struct zone *zone, void *address);
/*
 * As zone_run_alloc, under the lock, which may be dropped and retaken; grouped: with its mobility alone, whatever the zone's size. The pages are
 * touched by zone_run_touch, which the caller calls without the lock before anyone else knows of the run.
 */
struct run_touches {
    unsigned populate; /* granules from the start on */
    bool measure;      /* the first touch, which may bring a huge page: see zone_measure_huge */
};
bool zone_run_take(struct zone *zone, unsigned granules, unsigned align, enum mobility mobility, bool grouped, enum run_pages pages,
                   struct zone_run *run, struct run_touches *touches);
/*
 * Its three steps, for who does something between them; granules and align are whole pages. find: a place, of which nothing is taken yet; leave: it
 * won't be (of a place that was found for moved pages). occupy: absent pages come from where they are idle, and the run is allocated. make_room:
 * for what is fresh, other pages go where the heap would become larger than it was; the lock may be dropped.
 */
struct run_place {
    struct superpage *superpage;
    unsigned start;      /* the first granule */
    unsigned fresh_huge; /* granules that a huge page brings beside the run's own */
};
bool zone_run_find(struct zone *zone, unsigned granules, unsigned align, enum mobility mobility, bool grouped, enum run_pages pages,
                   struct run_place *place, struct run_touches *touches);
void zone_run_leave(struct zone *zone, const struct run_place *place);
void zone_run_occupy(struct zone *zone, const struct run_place *place, unsigned granules, enum mobility mobility, enum run_pages pages,
                     struct zone_run *run);
void zone_run_make_room(struct zone *zone, const struct run_place *place, enum mobility mobility, const struct zone_run *run);
STRATA_INLINE void zone_run_touch(struct zone *zone, const struct zone_run *run, const struct run_touches *touches) {
    if (touches->populate != 0) platform_populate(run->address, (size_t)touches->populate << GRANULE_SHIFT);
    if (touches->measure) zone_measure_huge(zone, run->address);
}

/* Of a superpage of which less is free neither an exchange takes pages, nor a gap that is short: its holes are filled where they are, soon. */
#define SPARED_FREE_GRANULES (SUPERPAGE_GRANULES / 2)

/* Whether `granules` more may be allocated under the hard limit; before it says no, cached runs are woken. */
bool zone_within_limit(struct zone *zone, uint64_t granules);
/* One in, one out: before `fresh` absent granules are touched that make the heap larger than ever, hand back as many idle ones beyond the reserve. */
void zone_make_room(struct zone *zone, uint64_t fresh);
/*
 * Hands back idle granules until `keep` are left, at most `want`; returns how many. holes_min: not from superpages in use of which fewer granules are
 * free. split_huge: huge pages are broken up for it. Drops and retakes the lock.
 */
uint64_t zone_release_idle(struct zone *zone, uint64_t keep, uint64_t want, unsigned holes_min, bool split_huge);

/* Gives granules of a superpage back, by few calls where several holes may go by one. False: some were refused. */
bool zone_release_picked(const struct zone *zone, const struct superpage *superpage, const uint64_t picked[SUPERPAGE_WORDS]);
/* In a forked child: what threads that are gone had captured is idle again. */
void zone_drop_captures(struct zone *zone);

/*
 * Huge pages (huge.c). Decides on them for a superpage that is about to be used, `more` granules being allocated with it. used: all of
 * these will be touched, so far as known. True: the first touch brings all of it.
 */
bool zone_decide_huge(struct zone *zone, struct superpage *superpage, size_t more, bool used);
/*
 * The same for superpages [from, to) of a block, which nobody touches yet where nothing is present. Where it is not known what they cost, the
 * question stays what the caller puts to zone_answer_huge without the lock, before anyone else knows of the block. No question: nothing is
 * touched here, and superpages of which nothing is known go without. alike: all of them shall have the same advice, present or not, as it is the
 * mapping's.
 */
struct huge_question {
    struct superpage *superpage; /* to be measured */
    size_t others;               /* that follow it, and are decided by the answer */
    size_t before;               /* in front of it, likewise */
};
void zone_decide_huge_block(struct zone *zone, struct superpage *first, size_t from, size_t to, size_t more, bool alike,
                            struct huge_question *question);
void zone_answer_huge(struct zone *zone, const struct huge_question *question);
/* Huge pages for `count` superpages of a block whose program asks for them, of which no granule is allocated yet, as far as the policy allows. */
void zone_ask_huge(struct zone *zone, struct superpage *first, size_t count);
/* `count` superpages from `first`, which all had the other advice, have this one now: neighbours with the same advice share a mapping. */
void zone_note_advice(struct zone *zone, struct superpage *first, size_t count, bool on);
/* Mappings may be spent on moves and advice up to here. */
bool zone_mappings_left(const struct zone *zone);

#endif
