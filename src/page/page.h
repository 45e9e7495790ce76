/*
 * page.h - the facade of page/: the heap's zone. Pages in superpages of 2 MiB, grouped by mobility.
 *
 * The zone counts in granules of 4 KiB, whatever the page of the operating system is: a run is then a whole number of
 * pages, each of `page_granules` granules. Above it stand two kinds of owners:
 *   - a slab takes a run (1..512 granules inside one superpage) and tags each of its granules, so that an address leads to
 *     its cache by one load; a fixed pool does the same with its chunks;
 *   - a block is a large allocation of its own: a run, or whole superpages. Only its first granule is tagged.
 *
 * Three flat arrays run parallel to the address space, reserved whole and committed as the heap grows: tags (2 bytes a
 * granule), descriptors (64 bytes a granule, for the owner of the run), and superpages (256 bytes a superpage).
 *
 * Invariants (zone_check): for every superpage free = 512 - popcount(allocated), idle = popcount(populated & ~allocated),
 * largest_free = its longest clear run, and its bucket follows from that; idle_run >= the longest run of idle ones, and its list of present.c follows
 * from that; the zone's counters are the sums; a granule that is not dirty reads as zeros. Locks: zone->lock (LOCK_RANK_ZONE) guards superpages and
 * lists; tags of a run belong to its owner; LOCK_RANK_METADATA guards the bootstrap allocator.
 */
#ifndef STRATA_PAGE_PAGE_H
#define STRATA_PAGE_PAGE_H

#include "arena/arena.h"
#include "base/base.h"
#include "base/list.h"
#include "page/frames_index.h"
#include "page/run_cache.h"
#include "platform/platform.h"

#define GRANULE_SHIFT 12
#define GRANULE_BYTES ((size_t)1 << GRANULE_SHIFT)
#define SUPERPAGE_SHIFT 21
#define SUPERPAGE_BYTES ((size_t)1 << SUPERPAGE_SHIFT)
#define SUPERPAGE_GRANULES (SUPERPAGE_BYTES / GRANULE_BYTES)
#define SUPERPAGE_WORDS (SUPERPAGE_GRANULES / 64)

/* How pages may be moved or won back; superpages are of one group as far as possible. */
enum mobility {
    MOBILITY_UNMOVABLE,   /* slabs of the program's objects: pointers lead into them */
    MOBILITY_RECLAIMABLE, /* our own caches' memory: goes when the cache is reaped */
    MOBILITY_MOVABLE,     /* large blocks: their pages can change address by realloc */
    MOBILITY_GROUPS,
};

/* Whether the soft limit is all there is to know of limits: the owner of the zone may put off finding out until it counts. */
enum zone_limit { ZONE_LIMIT_LATER, ZONE_LIMIT_WANTED, ZONE_LIMIT_KNOWN };

enum zone_thp { ZONE_THP_AUTO, ZONE_THP_ALWAYS, ZONE_THP_NEVER };
/* How pages get another address: move.c. */
enum zone_moves { ZONE_MOVES_AUTO, ZONE_MOVES_MREMAP, ZONE_MOVES_UFFD, ZONE_MOVES_COPY };

/* The low byte of a tag says who owns the granule; the high byte how many granules before it its run begins (slabs and pools). */
#define TAG_NONE 0  /* nobody */
#define TAG_BLOCK 1 /* the first granule of a block */
#define TAG_POOL 2  /* a chunk of a fixed pool of cache/; its descriptors say which */
#define TAG_DEBUG 3 /* a slab of debugged buffers; its descriptors say whose: slab/debug.h */
#define TAG_SLAB 4  /* and above: slab/ numbers its caches from here */
typedef uint16_t granule_tag;

/* 64 bytes for the owner of a run, one for each of its granules, contiguous; slabs have heads instead. */
struct granule_desc {
    uint64_t words[8];
};

/*
 * Heads: what describes a run in few words, packed by superpage, so that those of many runs share a page. A run has 2 bytes a granule here and a head
 * of as many units as its owner needs, at most two for each of its granules: then there is always room, as heads are powers of two of units, aligned.
 */
#define HEAD_UNIT_BYTES 32
#define HEAD_UNITS (2 * SUPERPAGE_GRANULES)
#define HEAD_NONE UINT32_MAX
struct head_area {
    uint64_t taken[HEAD_UNITS / 64]; /* by unit; changed by compare and swap, as owners of different runs hold different locks */
    uint16_t at[SUPERPAGE_GRANULES]; /* by the first granule of a run with a head: the head's first unit */
    struct head_unit {
        uint64_t words[HEAD_UNIT_BYTES / 8];
    } units[HEAD_UNITS];
} STRATA_ALIGNED(GRANULE_BYTES);

enum superpage_state {
    SUPERPAGE_FREE,  /* in the address space arena, or never used */
    SUPERPAGE_RUNS,  /* cut into runs */
    SUPERPAGE_BLOCK, /* part of a block of whole superpages: allocated is all ones */
};

/* Lists of the zone by what is idle of a superpage: none; wholly free, with present pages; in use, with some; wholly free without any, but described.
 */
enum idle_list { IDLE_NONE, IDLE_FREE, IDLE_HOLES, IDLE_BARE, IDLE_LISTS };

struct superpage {
    uint64_t allocated[SUPERPAGE_WORDS];
    uint64_t populated[SUPERPAGE_WORDS]; /* taken to be present: since it was allocated or populated, until released or found absent */
    uint64_t dirty[SUPERPAGE_WORDS];     /* may hold something else than zeros */
    struct list bucket;                  /* RUNS with free granules: zone->buckets[mobility][..] */
    struct list idle_link;               /* linked != IDLE_NONE: zone->idle[..], the longest there first */
    struct list present_link;            /* present_list != 0 (present.c) */
    uint16_t free;
    uint16_t largest_free;
    uint16_t idle;
    uint16_t idle_run; /* no run of idle granules is longer */
    uint8_t state;     /* enum superpage_state */
    uint8_t mobility;
    uint8_t linked;       /* enum idle_list: where idle_link is */
    uint8_t present_list; /* where present_link is; 0: nowhere */
    uint8_t splits;       /* ends of ranges that moved here, each of which is counted as one mapping more */
    bool huge;            /* transparent huge pages were asked for */
    bool described;       /* descriptors and heads may be present: it was cut into runs */
    bool moved : 1;       /* pages have moved in or out: the mapping may be split here */
    bool young : 1;       /* room is being made for its huge page, out of other superpages */
    bool apart : 1;       /* being emptied by compact.c: in no bucket, and the arena's no more, whatever its state */
    bool littered : 1;    /* some pages may be present that count as absent: litter.c */
};

#define ZONE_BUCKETS 10       /* by log2(largest_free): 1, 2..3, ... 256..511, 512 */
#define ZONE_PRESENT_LISTS 32 /* by idle_run: 0, 1 ... 7, 8..9, 10..11, 12..13, 14..15, 16..19, ... 384..447, 448.. */

struct zone_config {
    uint64_t reserve_bytes; /* of address space; 0: as much as suits the process */
    enum zone_thp thp;
    enum zone_moves moves;
    uint32_t huge_block_superpages; /* by ZONE_THP_AUTO huge pages are for blocks of so many on: smaller ones come and go, and get what is present */
    uint64_t huge_heap_granules;    /* and of heaps in which so many are allocated: a superpage that fills slowly shall be a small share of them */
    unsigned populate_granules;     /* at most so many are made present at once; 1: none ahead of need */
    uint64_t hard_limit_bytes;      /* of allocated pages; UINT64_MAX: none */
    uint64_t soft_limit_bytes;      /* of populated pages, above which nothing stays idle, but for idle_allowed; UINT64_MAX: none */
    uint64_t grouped_granules;      /* until the zone had so many present, runs of any mobility share superpages, as if there were one group */
};

/* Guarded by the zone's lock. In granules, since the start where the name says total. */
struct zone_counters {
    uint64_t allocated, populated, idle;
    uint64_t idle_huge; /* of idle, in superpages of huge pages that are in use: handed back only when most of one is idle, or all is wanted */
    uint64_t idle_low;  /* the least idle - idle_huge since the last tick: what no one needed */
    uint64_t blocks, block_granules;
    uint64_t populated_total, released_total;
    uint64_t moves;
    uint64_t compactions, block_moves; /* superpages or runs of them that were emptied, and the blocks that their owners moved for it */
    uint64_t races_lost;               /* granules that others took of the room for these blocks, where one had no place then */
    uint64_t described;                /* superpages whose descriptors and heads may be present */
    uint64_t mappings;                 /* an estimate of what the heap's address space costs */
};

/* Of resting.c. Guarded by the zone's lock. */
#define RESTING_BLOCKS 4
struct resting {
    struct resting_block {
        char *address;
        uint64_t granules;
        uint32_t superpages;
        enum mobility mobility;
        uint32_t fresh;
    } blocks[RESTING_BLOCKS];
    unsigned count;
};

/* Of exchanged.c: ranges that were exchanged by page tables, the latest last. Guarded by the zone's lock. */
#define EXCHANGES_MAX 16
struct exchanges {
    struct exchange {
        char *a, *b;
        size_t bytes;
    } notes[EXCHANGES_MAX];
    unsigned count; /* read without the lock */
};

/* Of litter.c. Guarded by the zone's lock. */
struct litter {
    size_t from, to;     /* all littered superpages lie in here; to = 0: there are none */
    uint64_t superpages; /* how many they are */
    uint64_t granules;   /* so many of theirs are expected to be present, and to count as absent */
    struct litter_kind {
        uint32_t share;  /* of 65,536 granules of such blocks so many were present at their end, of late */
        uint32_t blocks; /* that have ended so far */
    } kinds[2];          /* runs, blocks of superpages */
};

/* Of move.c: who moves pages one by one. Guarded by the zone's lock. */
struct mover {
    struct platform_faults faults;
    uint32_t process;           /* whose it is; 0: nobody has asked */
    uint32_t pause, pause_left; /* of targets for idle pages: how many went without since the last refusal, and still are to */
    uint32_t thread, others;    /* who asked last whether pages shall move; how many more times it has to ask, after another one */
};

/* Of compact.c. Guarded by the zone's lock, but for `thread`. */
struct compaction {
    uint32_t thread;  /* who empties superpages, by platform_thread_self; 0: nobody. Others sleep on it */
    bool freed;       /* `from` was freed by the program while it was asked */
    bool forks;       /* that thread does, right now: a function of the program that it has called */
    char *from, *to;  /* a block that its owner is asked to move; NULL: none */
    size_t at, count; /* superpages that are apart */
    uint64_t room;    /* granules that are left for blocks elsewhere, if nobody else takes any */
};

struct metadata {
    struct platform_lock lock; /* LOCK_RANK_METADATA */
    char *next, *committed, *end;
    void *spare[32]; /* by log2(bytes): given back, linked through their first word */
    uint64_t bytes;  /* handed out */
};

/*
 * Of growth.c: granules [from, to) of the zone that are a block's and not marked yet, in superpages that were never used before; to = 0: none. The
 * counters have them. Guarded by the zone's lock.
 */
struct unmarked {
    size_t from, to;
    enum mobility mobility;
};

/* The flat arrays: superpages, tags, descriptors, heads. */
#define ZONE_ARRAYS 4

struct zone {
    /* Written as the heap grows (by a release store of extent_units), read without a lock by every free: a cache line that is nobody else's. */
    uintptr_t base STRATA_ALIGNED(CACHE_LINE_BYTES);
    size_t extent_units; /* of 16 bytes; addresses from base + extent on are not of this heap */
    granule_tag *tags;
    struct granule_desc *descs;
    struct head_area *heads; /* by superpage */
    struct superpage *superpages;

    struct platform_lock lock STRATA_ALIGNED(CACHE_LINE_BYTES);
    uint64_t extent_bytes;   /* committed, as extent_units says */
    uint64_t heap_bytes;     /* for which the heap itself is committed: extent_bytes, or more, ahead of need; unless `growing` */
    uint64_t reserved_bytes; /* from base, without holes where `growing` is off */
    uint64_t window_bytes;   /* for which the flat arrays have room */
    /* What committing ahead costs, once large blocks grow. UNLOCKED: the process can't lock it, and whether it is charged is not known yet. */
    enum { COMMITS_UNKNOWN, COMMITS_UNLOCKED, COMMITS_CHARGED, COMMITS_FREE } commits;
    uint64_t arrays_bytes[ZONE_ARRAYS]; /* for which each of them is committed */
    size_t used_superpages;             /* from the first one: those behind them were never taken, and their marks never written to */
    bool growing;                       /* the address space is limited: reserve piece by piece */
    unsigned page_granules;             /* granules in a page of the operating system */
    struct zone_config config;
    struct arena addresses;                             /* of superpages, its source of truth for what is free beyond them */
    struct list buckets[MOBILITY_GROUPS][ZONE_BUCKETS]; /* by largest_free */
    struct list present[MOBILITY_GROUPS * ZONE_PRESENT_LISTS];
    uint32_t present_any[MOBILITY_GROUPS]; /* a bit for each list that may not be empty */
    struct list idle[IDLE_LISTS];
    struct list captures; /* struct capture of lookaside.c: what a thread is handing back right now, without the lock */
    struct zone_counters counters;
    uint64_t outside;         /* granules of zone_outside_take */
    uint32_t longer_granules; /* see struct longer_runs: with the counters, which change with it, and not with what takers read without the lock */
    uint64_t populated_peak;  /* the most that counters.populated was when room had been made, but for what was on its way out */
    uint64_t captured;        /* granules on their way to the system: those of captures */
    uint64_t idle_allowed;    /* above the soft limit, where less is there than counts as populated: as of the last zone_tick */
    uint64_t exchanged;       /* idle granules that left for fresh ones, of late, with a bound: halved by each zone_tick. See lookaside.c */
    uint64_t head_units;      /* taken; changed atomically */
    uint32_t limit_state;     /* enum zone_limit: atomically, as its owner reads it without the lock */
    bool commits_asked;       /* something is left of the question about commits: for zone_tidy. Atomic, as limit_state */
    struct resting resting;
    struct exchanges exchanges;
    struct unmarked unmarked;
    struct litter litter;
    struct mover mover;
    void (*end_watches)(char *address, size_t bytes); /* see zone_pages_watch */
    struct huge_policy {
        uint32_t mean_ns;            /* of what huge pages cost when they were measured, 0 at first */
        uint32_t pause, pause_left;  /* fresh superpages: how many went without huge pages after the last dear one, and still are to */
        uint32_t trust;              /* superpages of blocks that need no measurement */
        uint64_t asked_at, resident; /* so much was allocated when the system was last asked what is there, and was, of the process */
    } huge;                          /* of huge.c */
    unsigned tail;                   /* of 256 granules of blocks of superpages so many lay behind those that are there from the start on, of late */
    unsigned untouched[2];           /* of 256 absent granules that blocks got, so many were never touched, of late: runs, blocks of superpages */
    struct {
        uint64_t granules, most;
    } runs; /* see zone_runs_fewer; read without the lock */
    struct compaction compaction;
    struct metadata metadata;
    unsigned young;           /* threads that make room for a superpage that is young */
    unsigned run_caches_used; /* changed under the lock */
    struct longer_runs longer;
    /* Last, and not looked at before they are used: most programs have none. */
    struct run_cache run_caches[RUN_CACHES];
    struct cached_run cached_runs[RUN_CACHES][RUN_CACHE_RUNS];
};

/* Builds the zone; false where not even the metadata could be reserved (then it may be called again). */
bool zone_init(struct zone *zone, const struct zone_config *config);

STRATA_INLINE size_t zone_granule_of(const struct zone *zone, const void *address) { return ((uintptr_t)address - zone->base) >> GRANULE_SHIFT; }
STRATA_INLINE char *zone_address_of(const struct zone *zone, size_t granule) { return (char *)zone->base + (granule << GRANULE_SHIFT); }
STRATA_INLINE bool zone_contains(const struct zone *zone, const void *address) {
    return ((uintptr_t)address - zone->base) >> 4 < __atomic_load_n(&zone->extent_units, __ATOMIC_ACQUIRE);
}

/*
 * A head of `bytes`, not cleared, for the run that begins at a granule: its number, or HEAD_NONE where there is no room, which cannot be for a run of
 * bytes / (2 * HEAD_UNIT_BYTES) granules. It goes before its run does. No lock; cost: constant (16 words at most are looked at).
 */
uint32_t zone_head_alloc(struct zone *zone, size_t granule, size_t bytes);
void zone_head_free(struct zone *zone, uint32_t head, size_t bytes);
STRATA_INLINE void *zone_head(const struct zone *zone, uint32_t head) { return &zone->heads[head / HEAD_UNITS].units[head % HEAD_UNITS]; }
/* The head of the run that begins at a granule, or its number: only where it has one. `areas`: the zone's. */
STRATA_INLINE void *zone_head_in(struct head_area *areas, size_t granule) {
    struct head_area *area = &areas[granule / SUPERPAGE_GRANULES];
    return &area->units[area->at[granule % SUPERPAGE_GRANULES]];
}
STRATA_INLINE uint32_t zone_head_of(const struct zone *zone, size_t granule) {
    size_t superpage = granule / SUPERPAGE_GRANULES;
    return (uint32_t)(superpage * HEAD_UNITS + zone->heads[superpage].at[granule % SUPERPAGE_GRANULES]);
}

/* Memory for our own structures, zeroed, aligned to min(bytes rounded up to a power of two, 4096). NULL where there is none. */
void *zone_metadata_alloc(struct zone *zone, size_t bytes);
void zone_metadata_free(struct zone *zone, void *memory, size_t bytes);

/* ------------------------------------------------------------------ runs */

struct zone_run {
    void *address;
    unsigned granules; /* as asked, rounded up to whole pages */
    unsigned fresh;    /* of these, not present yet */
    bool zeroed;       /* reads as zeros */
    bool huge;         /* lies in a superpage for which huge pages were asked */
};
/* 1..512 granules at a multiple of `align` granules (a power of two). False: no memory. Cost: one search of a few superpages' bitfields. */
bool zone_run_alloc(struct zone *zone, unsigned granules, unsigned align, enum mobility mobility, struct zone_run *run);
/* The same, but nothing is made present ahead of need: of objects of several pages, of which only the first may be touched. */
bool zone_run_alloc_lazy(struct zone *zone, unsigned granules, unsigned align, enum mobility mobility, struct zone_run *run);
/* The same where all of it is present already, else false: what waits elsewhere may go first. */
bool zone_run_alloc_present(struct zone *zone, unsigned granules, unsigned align, enum mobility mobility, struct zone_run *run);
/* The owner has cleared its tags before. */
void zone_run_free(struct zone *zone, void *address, unsigned granules);
/* Writes (tag, offset) into the tags of the granules of a slab or a pool's chunk, at most 256; clears them with TAG_NONE. */
void zone_tag_run(struct zone *zone, void *address, unsigned granules, unsigned tag);
/* Of a granule that may be another's, who needs no lock to tag it. Acquire: with the tag comes what its owner wrote before it. */
STRATA_INLINE granule_tag zone_tag_of(const struct zone *zone, size_t granule) { return __atomic_load_n(&zone->tags[granule], __ATOMIC_ACQUIRE); }
/* Of memory that its owner has outside of the zone: it counts towards the hard limit with what is allocated. False: that forbids it. */
bool zone_outside_take(struct zone *zone, uint64_t granules);
void zone_outside_give(struct zone *zone, uint64_t granules);

/* ------------------------------------------------------------------ blocks */

struct zone_block_config {
    size_t bytes, align;    /* any size; align: a power of two, 0: a granule */
    size_t reserve_bytes;   /* address space for growth in place; less than bytes: none beyond what comes with the size */
    enum mobility mobility; /* of the superpages that a small block shares with others */
    bool fixed;             /* its address never changes: zone_block_resize does not move it */
    bool grouped;           /* it lies with blocks of its mobility alone in a small zone too, where runs are mixed (grouped_granules) */
    bool huge;              /* whole superpages, of huge pages where the system and the policy allow */
    bool whole;             /* its page tables are to move as one: a large one has few mappings rather than all pages that are present */
    bool compact;           /* where none is free, superpages are emptied: owners of other blocks are asked, without the lock */
};
/* NULL: no memory, or beyond the hard limit. `zeroed` (may be NULL): it reads as zeros. */
void *zone_block_create(struct zone *zone, const struct zone_block_config *config, bool *zeroed);
/*
 * What most blocks are: movable, with nothing reserved. cached: one that this CPU has kept, of any contents, perhaps longer (struct longer_runs);
 * without the zone's lock. zeros: all of it will be written to. NULL: there is none. alloc: another one, as zone_block_create.
 */
void *zone_block_cached(struct zone *zone, size_t bytes, size_t align, bool zeros);
void *zone_block_alloc(struct zone *zone, size_t bytes, size_t align, bool *zeroed);
/* False: `address` is not the start of a block now. */
bool zone_block_free(struct zone *zone, void *address);
/* Usable bytes: the whole pages that were asked for when it was allocated, or last resized. 0: not the start of a block. */
size_t zone_block_bytes(struct zone *zone, const void *address);
/* What it must not be moved without: enum zone_tie, a sum; 0 also where it is no block. */
enum zone_tie { ZONE_FIXED = 1 /* its address does not change */, ZONE_WATCHED = 2 /* zone_block_unwatch before it is copied */ };
unsigned zone_block_ties(struct zone *zone, const void *address);
/*
 * Grows or shrinks: in place where it can, else, if may_move, by moving the pages to a new address. NULL: neither can be had
 * more cheaply than by a copy, or there is no memory; the block is as it was.
 */
void *zone_block_resize(struct zone *zone, void *address, size_t bytes, bool may_move);
/*
 * The same of *address, and why not: ZONE_NO_MEMORY, which a limit says too, or ZONE_NO_ROOM. align: what a new address is a multiple of beyond
 * what the block itself keeps, a power of two, at most that of a superpage.
 */
enum zone_status zone_block_resize_at(struct zone *zone, void **address, size_t bytes, bool may_move, size_t align);

/*
 * The owner's word that the block may move when superpages are wanted: `move` gets contents and pointers to the block at `to`, of the same size, and
 * returns true; or false, and the block stays. Called without a lock. Meanwhile a free of the block is remembered, and it grows only by a copy.
 */
typedef bool zone_block_move(void *from, void *to, size_t bytes, void *argument);

/* ------------------------------------------------------------------ parts of blocks (parts.c, exchange.c) */

enum zone_status {
    ZONE_OK,
    ZONE_NO_MEMORY,
    ZONE_NO_BLOCK,  /* no block starts there, or the range is not inside one */
    ZONE_BAD_RANGE, /* not whole pages, no bytes, or a place where blocks can't be cut or joined */
    ZONE_OVERLAP,   /* of two ranges */
    ZONE_NO_ROOM,   /* what lies behind is taken */
    ZONE_CUT_SHORT, /* somebody asked for it */
};

struct zone_block_info {
    char *start;
    size_t bytes, capacity_bytes; /* see zone_block_bytes; and to which it can grow in place */
    size_t unit_bytes;            /* it can be cut at multiples of this */
    enum mobility mobility;
    size_t align;          /* see zone_block_config; 0: none that it keeps */
    bool fixed, huge;      /* of huge: the program asked for huge pages */
    zone_block_move *move; /* see zone_block_set_move */
    void *argument;
};
/* The block that [address, address + bytes) is part of, bytes > 0. Linear in the superpages between its start and the address. */
enum zone_status zone_block_find(struct zone *zone, const void *address, size_t bytes, struct zone_block_info *info);
/* The same of one byte, where the zone's lock is free; else false: for reports of misuse, which may come from a handler of who holds it. */
bool zone_block_try_find(struct zone *zone, const void *address, struct zone_block_info *info, enum zone_status *status);

/* move: NULL: it stays where it is. ZONE_NO_BLOCK; ZONE_BAD_RANGE: it is fixed. Of blocks of whole superpages nobody is asked. */
enum zone_status zone_block_set_move(struct zone *zone, void *address, zone_block_move *move, void *argument);
/* Address space behind the block, for it to grow to `bytes` in place; only for blocks of whole superpages. ZONE_NO_ROOM, ZONE_NO_MEMORY. Constant
 * time. */
enum zone_status zone_block_reserve(struct zone *zone, void *address, size_t bytes);
/*
 * Cuts a block in two: the first `bytes` stay what they are, a new block begins behind them. Where the block has superpages of its own, only at a
 * multiple of theirs (ZONE_BAD_RANGE). Constant time.
 */
enum zone_status zone_block_split(struct zone *zone, void *address, size_t bytes);
/* A block and the one that begins where it ends, both runs of one superpage or both of whole superpages, become one. Constant time. */
enum zone_status zone_block_join(struct zone *zone, void *address, void *next);
/* What that would say, with nothing done. */
enum zone_status zone_block_join_check(struct zone *zone, void *address, void *next);

/*
 * Two ranges, or one and another, of whole pages, each inside a block and not overlapping: exchange their contents; or the second gets the first
 * one's, which reads as zeros then. By page tables where that is cheaper than a copy, and mappings are left; where none are, moves into absent pages
 * go one by one.
 */
enum zone_status zone_pages_swap(struct zone *zone, void *a, void *b, size_t bytes);
enum zone_status zone_pages_move(struct zone *zone, void *from, void *to, size_t bytes);
/*
 * Many such moves, of ranges of which no two meet, up to the first that is wrong. As by one call after the other, but where page tables can't move:
 * then those into one block go together, one by one or by copies.
 */
struct zone_pages_move {
    char *from, *to;
    size_t bytes;
};
enum zone_status zone_pages_move_all(struct zone *zone, const struct zone_pages_move *moves, size_t count);
/* Whether the contents of a block go to another one, which begins with a page too, for less by zone_pages_move than by a copy and a free. */
bool zone_pages_prefer_move(struct zone *zone, size_t bytes, char *to);
/* The range reads as zeros, and takes no memory until it is touched. */
enum zone_status zone_pages_release(struct zone *zone, void *address, size_t bytes);
/* The same of many, up to the first that is wrong, by one system call where there is one for it. */
enum zone_status zone_pages_release_all(struct zone *zone, const struct platform_range *ranges, size_t count);
/*
 * A range inside one block is watched from now on: before its pages change their address, are released or freed, and when its block is resized,
 * `end_watches` is called with what is concerned, under the zone's lock. The same function for all. unwatch: likewise, by the block's owner, who is
 * about to copy it elsewhere and free it; a load where nobody watches.
 */
enum zone_status zone_pages_watch(struct zone *zone, void *address, size_t bytes, void (*end_watches)(char *address, size_t bytes));
void zone_block_unwatch(struct zone *zone, void *block);
/* Whether a range is of whole pages inside one block. */
enum zone_status zone_pages_check(struct zone *zone, void *address, size_t bytes);
/* Pages present. After each piece `progress` (may be NULL) is told how many bytes are done, and ends it by false: ZONE_CUT_SHORT. */
enum zone_status zone_pages_populate(struct zone *zone, void *address, size_t bytes, bool (*progress)(size_t done, void *argument), void *argument);

/* ------------------------------------------------------------------ giving back */

/* Hands idle pages back to the system until at most keep_bytes are idle; returns the bytes handed back. */
size_t zone_release(struct zone *zone, size_t keep_bytes);
/* How many granules are idle, those of blocks that rest, and of runs that CPUs keep, among them. */
uint64_t zone_idle_granules(struct zone *zone);
/* How many granules runs have that are no blocks', and by how many those are fewer than they were at most since the restart. No lock; the restart
 * takes the zone's. */
uint64_t zone_runs_granules(const struct zone *zone);
uint64_t zone_runs_fewer(const struct zone *zone);
void zone_runs_restart(struct zone *zone);
/* Changes the limit on populated pages; UINT64_MAX: none. */
void zone_set_soft_limit(struct zone *zone, uint64_t bytes);
/* The limit in force; 0: none. */
uint64_t zone_soft_limit(struct zone *zone);
/*
 * Gives back address space that growth has left behind (platform_commit_asked), once: by a tick, or by whoever comes to a slow path where some more
 * us don't matter. Under the lock, as forks hold that.
 */
void zone_tidy(struct zone *zone);
STRATA_INLINE bool zone_is_untidy(const struct zone *zone) { return __atomic_load_n(&zone->commits_asked, __ATOMIC_RELAXED); }
/* Hands back what stayed idle since the last tick: the pages outside the working set. */
size_t zone_tick(struct zone *zone);

/* ------------------------------------------------------------------ looking inside */

struct zone_group_stats {
    uint64_t superpages, partial_superpages, allocated, populated, idle; /* the last three in granules */
    uint64_t huge_superpages;                                            /* for which huge pages were asked */
};
void zone_group_stats_get(struct zone *zone, struct zone_group_stats stats[MOBILITY_GROUPS]);
/*
 * What is free, in blocks of 2^order granules: of the superpages that each group has cut into runs, and with those that are nobody's, but have
 * present pages. What else is free is address space without memory, or belongs to blocks.
 */
struct zone_free_stats {
    struct frames_free groups[MOBILITY_GROUPS], all;
};
void zone_free_stats_get(struct zone *zone, struct zone_free_stats *stats);
void zone_counters_get(struct zone *zone, struct zone_counters *counters);
/* Memory that serves the zone itself: what zone_metadata_alloc gave out, and the parts of the flat arrays that are in use, whole superpages. */
size_t zone_metadata_bytes(struct zone *zone);
/* NULL when every invariant holds, else which one does not. Linear in the heap. */
const char *zone_check(struct zone *zone);

void zone_fork_prepare(struct zone *zone);
void zone_fork_parent(struct zone *zone);
void zone_fork_child(struct zone *zone);

#endif
