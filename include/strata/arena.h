/*
 * strata/arena.h - arenas: allocation of anything that can be described by sets of 64-bit integers.
 *
 * An arena holds spans, ranges of integers that were added to it or that it imports when it runs short, and cuts segments from them. What
 * the integers stand for is the program's business: addresses, ports, identifiers, offsets in a file or on a disk, slots of a device. strata never
 * looks behind them: what it knows of a segment it keeps elsewhere. 0 is an integer like any other, hence every result is a status, and the value
 * goes through a pointer, which is left alone where the status is not STRATA_ARENA_OK.
 *
 * Valid in C11 and C++. For all functions, where nothing else is said:
 *   - starts and sizes are in integers of the arena, whatever they stand for. The quantum is a power of two. alloc, xalloc, free, xfree and
 *     resize round sizes up to it; spans, align, phase and nocross must be multiples of it, min and max need not be. Ranges are
 *     [start, start + size) and may end at 2^64; all spans of an arena together hold less than 2^64 integers. Segments never cross from one
 *     span into another, also where they touch;
 *   - errors: a call that fails changes nothing but the counters of failures. A null pointer to an arena, or for a value, is
 *     STRATA_ARENA_BAD_ARGUMENT. So is a pointer to an arena that was destroyed, as long as no other arena has come to lie there; but not while it is
 *     being destroyed;
 *   - threads: any thread may call at any time, and may free what another allocated. One lock an arena, which is never held while a function of
 *     the program runs; so these may use any arena, this one too. Such a function must return: no longjmp, no exception;
 *   - fork: the child of a fork has its own copy of every arena and may use them at once, also where the parent had other threads. What those were
 *     just about to import, or to give back to a function of the program, is lost to the child; until the arena is destroyed, so are integers that
 *     were on their way through its quantum caches: half an array for each of those threads, or a slab, at most;
 *   - signals: not for signal handlers, as each function takes locks;
 *   - errno stays as it was;
 *   - cost: constant in steps, however many segments there are; in time as long as what strata keeps about those in use fits the processor's caches.
 *     Freeing what was allocated last and allocating again takes 1.1 times as long among a million segments as among ten; freeing any one takes 64 ns
 *     among ten, 400 among 100,000 and 570 to 700 among a million, as it comes from memory. Spans that come and go cost O(log spans), expected.
 *     Exceptions: best fit searches one list of like sizes; next fit goes along the segments that follow the last one; min and max,
 *     STRATA_ARENA_FROM_TOP, and a request that would fail otherwise, search the lists that may hold a fit. What strata keeps about segments takes
 *     about 80 bytes for each, from the heap's pages.
 *
 * The design follows Bonwick, Adams, "Magazines and Vmem: Extending the Slab Allocator to Many CPUs and Arbitrary Resources" (2001), section 4.
 */
#ifndef STRATA_ARENA_H
#define STRATA_ARENA_H

#include <stdint.h>

#include <strata/strata.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An arena; its contents are strata's. */
struct strata_arena;

enum strata_arena_status {
    STRATA_ARENA_OK = 0,
    STRATA_ARENA_NO_SPACE,      /* no free segment fits, and none could be imported */
    STRATA_ARENA_NO_MEMORY,     /* no memory for what strata must remember about segments, or about a new arena */
    STRATA_ARENA_BAD_ARGUMENT,  /* a null pointer, size 0, no multiple of the quantum, constraints that nothing can ever meet, ... */
    STRATA_ARENA_BAD_RANGE,     /* the span passes 2^64, or the arena would hold 2^64 integers or more */
    STRATA_ARENA_OVERLAP,       /* the span shares integers with one that is there already */
    STRATA_ARENA_NOT_ALLOCATED, /* no allocated segment (for remove: no added span) starts there */
    STRATA_ARENA_SIZE_MISMATCH, /* one starts there, but it has another size */
    STRATA_ARENA_BAD_SOURCE,    /* an import function answered with less than asked, misaligned, or overlapping what is here */
    STRATA_ARENA_BUSY           /* in use: segments are allocated, or other arenas import from it */
};

/*
 * How a free segment is chosen: one of the first three, which may be the arena's (strata_arena_create) or a request's. A request that asks for
 * STRATA_ARENA_INSTANT_FIT gets the arena's. (Section 4.3.2.)
 */
enum strata_arena_flags {
    STRATA_ARENA_INSTANT_FIT =
        0,                     /* the default: constant time. A segment from the first list, by powers of two, of which every one is large enough */
    STRATA_ARENA_BEST_FIT = 1, /* the smallest that is large enough, of those the lowest */
    STRATA_ARENA_NEXT_FIT = 2, /* the first that follows what next fit allocated last, going round: a number is not used again soon */
    STRATA_ARENA_SLEEP = 4,    /* requests only: wait until it can be had, instead of NO_SPACE or NO_MEMORY */
    STRATA_ARENA_FROM_TOP = 8  /* requests only: the highest place of all; with best fit, of the smallest segments that are large enough. Changes
                                  nothing  with next fit, and for the sizes of quantum caches */
};

/*
 * strata_arena_status_text - a short English text for a status, for messages. Never NULL, not to be freed.
 *
 * status: any value. Cost: constant. May be called from signal handlers.
 */
STRATA_API const char *strata_arena_status_text(enum strata_arena_status status) STRATA_NOEXCEPT;

/* ------------------------------------------------------------------ life */

/*
 * strata_arena_create - a new arena, with or without a first span.
 *
 * name: for statistics and messages; copied, and cut to 31 bytes. Names need not differ.
 * base, size: the first span, multiples of the quantum; size 0: none, whatever the base (then strata_arena_add, or import).
 * quantum: what every segment is a multiple of; a power of two.
 * flags: the fit for requests that name none.
 * arena: receives it.
 * Errors: BAD_ARGUMENT (also for a name that is NULL, for STRATA_ARENA_SLEEP and STRATA_ARENA_FROM_TOP), BAD_RANGE, NO_MEMORY.
 * Cost: constant; about 4 KiB of memory. (Section 4.3.1.)
 */
STRATA_API enum strata_arena_status strata_arena_create(const char *name, uint64_t base, uint64_t size, uint64_t quantum, unsigned flags,
                                                        struct strata_arena **arena) STRATA_NOEXCEPT;

/*
 * strata_arena_destroy - takes an arena down, spans included.
 *
 * Spans that were imported and can be given back were given back when they became empty. No other thread may be using the arena; threads that empty
 * its quantum caches meanwhile, as they do those of all caches, are waited for.
 * Errors: BUSY where segments are allocated or another arena imports from it: it stays as usable as it was, but for quantum caches, which may be gone
 * where the segments that are allocated came from them. BAD_ARGUMENT.
 * Cost: linear in the spans that are left. (Section 4.3.1.)
 */
STRATA_API enum strata_arena_status strata_arena_destroy(struct strata_arena *arena) STRATA_NOEXCEPT;

/* ------------------------------------------------------------------ spans */

/*
 * strata_arena_add - adds the span [base, base + size), all of it free. Whoever sleeps for space tries again.
 *
 * base, size: multiples of the quantum. Errors: BAD_ARGUMENT (size 0, not multiples), BAD_RANGE, OVERLAP, NO_MEMORY.
 * Cost: expected O(log spans). (Section 4.3.1.)
 */
STRATA_API enum strata_arena_status strata_arena_add(struct strata_arena *arena, uint64_t base, uint64_t size) STRATA_NOEXCEPT;

/*
 * strata_arena_remove - takes a whole span that was added out again.
 *
 * base, size: as they were added. Errors: BAD_ARGUMENT (as above), NOT_ALLOCATED (no span that was added starts there), SIZE_MISMATCH, BUSY (a part
 * of it is allocated). Cost: expected O(log spans).
 */
STRATA_API enum strata_arena_status strata_arena_remove(struct strata_arena *arena, uint64_t base, uint64_t size) STRATA_NOEXCEPT;

/* ------------------------------------------------------------------ segments */

/*
 * strata_arena_alloc - a segment of `size` integers.
 *
 * size: at least 1; rounded up to the quantum.
 * flags: enum strata_arena_flags. With STRATA_ARENA_SLEEP the caller waits until something is freed or added that makes the request possible, here or
 * in an arena that this one imports from: for ever, if nobody frees. Sleepers are not served in any order. One that lacks memory looks again at the
 * same occasions, and at strata_arena_wake, but not when memory is freed elsewhere. Where the process has object caches, these are reaped once before
 * a request fails or sleeps, as they may hold what was freed: quantum caches integers of this arena or of the arena's importers, others what this
 * arena gave them as a source, or their constructors had from it; their destructors run then, on this thread. A free into another cache than this
 * arena's own wakes nobody (with per-thread caches into these neither), so sleepers then look again every 20 ms. These looks empty quantum caches of
 * arenas that one chain of sources joins with this one, and caches with a source of the program's; all others keep what they have, but about once a
 * second are emptied too, as what their constructors have may be what is lacking. start: receives where it begins, a multiple of the quantum. Errors:
 * BAD_ARGUMENT (size 0, above 2^64 when rounded, unknown flags), NO_SPACE, NO_MEMORY, BAD_SOURCE. Cost: as above. (Sections 4.3.2, 4.4.2.)
 */
STRATA_API enum strata_arena_status strata_arena_alloc(struct strata_arena *arena, uint64_t size, unsigned flags, uint64_t *start) STRATA_NOEXCEPT;

/*
 * strata_arena_free - gives back what strata_arena_alloc returned.
 *
 * start: as it was received. size: as it was asked for, or rounded to the quantum. A segment that was freed already, and one of another arena, are
 * found out for certain unless a new segment with the same start and size has been allocated here since.
 * An imported span that becomes empty goes back to where it came from, in this call.
 * Errors: BAD_ARGUMENT (size 0 or above 2^64 when rounded), NOT_ALLOCATED, SIZE_MISMATCH. Freeing never needs memory. Cost: as above.
 * (Section 4.4.2.)
 */
STRATA_API enum strata_arena_status strata_arena_free(struct strata_arena *arena, uint64_t start, uint64_t size) STRATA_NOEXCEPT;

/*
 * strata_arena_xalloc - a segment that meets constraints. For each, 0 means that there is none.
 *
 * size, flags, start: as for strata_arena_alloc.
 * align: a power of two and a multiple of the quantum; the segment starts `phase` behind a multiple of it.
 * phase: a multiple of the quantum, less than align (or than the quantum, where align is 0: then it is 0).
 * nocross: a power of two and a multiple of the quantum, at least the size: the segment crosses no multiple of it.
 * min, max: the segment lies in [min, max); max 0 means 2^64. Where no place between the two meets the others, whatever the arena has, that is
 * BAD_ARGUMENT at once, also for who would sleep. Spans are imported only where both are 0, as an import can't be told where to look.
 * Errors: as for strata_arena_alloc; BAD_ARGUMENT also where the constraints are not as said, or no integers can meet them all.
 * Cost: as above; with min or max, and from the top, linear in the free segments that are large enough. (Section 4.3.2.)
 */
STRATA_API enum strata_arena_status strata_arena_xalloc(struct strata_arena *arena, uint64_t size, uint64_t align, uint64_t phase, uint64_t nocross,
                                                        uint64_t min, uint64_t max, unsigned flags, uint64_t *start) STRATA_NOEXCEPT;

/*
 * strata_arena_xfree - gives back what strata_arena_xalloc returned. Parameters, errors and cost as for strata_arena_free, but each pair has to
 * itself what it allocated: the pair with the x goes round the quantum caches, where the arena has some (strata_arena_set_quantum_caches), and
 * answers NOT_ALLOCATED for what came from one. (Section 4.3.2.)
 */
STRATA_API enum strata_arena_status strata_arena_xfree(struct strata_arena *arena, uint64_t start, uint64_t size) STRATA_NOEXCEPT;

/*
 * strata_arena_resize - changes the size of an allocated segment where it is; its start stays.
 *
 * start, old_size: as for strata_arena_xfree. new_size: at least 1; rounded up to the quantum. The segment stays one of strata_arena_alloc
 * or strata_arena_xalloc, whichever it was.
 * Errors: BAD_ARGUMENT (a size is 0 or above 2^64 when rounded), NOT_ALLOCATED (also for what came from a quantum cache: xalloc is for what
 * shall be resized), SIZE_MISMATCH, NO_SPACE (what follows is not free, too small, or another span: this neither imports nor sleeps), NO_MEMORY.
 * Cost: constant.
 */
STRATA_API enum strata_arena_status strata_arena_resize(struct strata_arena *arena, uint64_t start, uint64_t old_size,
                                                        uint64_t new_size) STRATA_NOEXCEPT;

/* ------------------------------------------------------------------ importing */

/*
 * strata_arena_import_alloc - a function of the program that an arena imports spans by.
 *
 * context: as given to strata_arena_set_import. size: what is wanted at least, a multiple of the quantum. flags: STRATA_ARENA_SLEEP, or 0: whether
 * the request may wait. start, got: receive a range of at least `size` integers, both multiples of the quantum; more than was asked for is welcome.
 * Returns STRATA_ARENA_OK; any other status means that there is none. It runs in the thread that allocates, with no lock held, several at a time
 * where several threads allocate. It must not allocate from the arena that it serves.
 */
typedef enum strata_arena_status strata_arena_import_alloc(void *context, uint64_t size, unsigned flags, uint64_t *start, uint64_t *got);

/* strata_arena_import_release - the function that takes a span back, just as one import gave it, once no part of it is in use. Runs as the above. */
typedef void strata_arena_import_release(void *context, uint64_t start, uint64_t size);

/*
 * strata_arena_set_source - from now on the arena imports from another what it lacks, and gives spans back there when they have become empty.
 *
 * Before the first allocation, and before other threads use the arena. It may have spans of its own; those are used first.
 * source: its quantum is a multiple of this arena's. It can't be destroyed before this arena is. Segments that this arena imports are its own: the
 * source refuses to free or resize them (NOT_ALLOCATED); but for a segment that had to come out of the source's quantum caches, as no other was left.
 * Errors: BAD_ARGUMENT (also where the quantum is too small, or where it imports from this arena, directly or through others), BUSY (there is a
 * source already, or something was allocated). Cost: linear in the depth of the chain of sources. Whatever is freed or added in a source has the
 * sleepers of all arenas below it look again: that takes some 15 ns more for each of these arenas (40 where they are a thousand). (Section 4.3.3.)
 */
STRATA_API enum strata_arena_status strata_arena_set_source(struct strata_arena *arena, struct strata_arena *source) STRATA_NOEXCEPT;

/*
 * strata_arena_set_import - the same, but by functions of the program, which may do more than fetch integers: map them, log them, fetch plenty at
 * once.
 *
 * alloc: see strata_arena_import_alloc. release: see strata_arena_import_release; NULL: spans stay until the arena is destroyed.
 * context: passed to both. The functions and what context points to must stay until the arena is destroyed.
 * A request with STRATA_ARENA_SLEEP for which alloc has nothing sleeps until something is freed in this arena, or strata_arena_wake is called.
 * Errors: BAD_ARGUMENT (also where alloc is NULL), BUSY (as above). Cost: constant. (Section 4.3.3.)
 */
STRATA_API enum strata_arena_status strata_arena_set_import(struct strata_arena *arena, strata_arena_import_alloc *alloc,
                                                            strata_arena_import_release *release, void *context) STRATA_NOEXCEPT;

/* No limit on imports. */
#define STRATA_ARENA_NO_LIMIT UINT64_MAX

/*
 * strata_arena_set_limit - how many integers the arena may hold in imported spans at a time. Imports that would pass it fail, as if the source had
 * nothing left: the request is NO_SPACE, or sleeps.
 *
 * limit: in integers; STRATA_ARENA_NO_LIMIT, which is how arenas begin, or 0: no imports. Spans that were added don't count. A limit below what is
 * held takes nothing away. Where the source returns more than it was asked for, and that passes the limit, it gets the span back at once; if it has
 * no release function, the span is kept and counts. Errors: BAD_ARGUMENT. Cost: constant; sleepers try again where the limit rises.
 */
STRATA_API enum strata_arena_status strata_arena_set_limit(struct strata_arena *arena, uint64_t limit) STRATA_NOEXCEPT;

/*
 * strata_arena_reclaim - a function of the program that is asked to give back what it can spare, before a request fails or sleeps.
 *
 * context: as given to strata_arena_set_reclaim. size: what is wanted, in integers. Returns 0 where it gave nothing back, else the request looks once
 * more. Runs in the thread that allocates, with no lock held; several at a time where several threads run short. It may free into the arena; where it
 * allocates from it and that fails too, it is asked again, inside itself.
 */
typedef int strata_arena_reclaim(void *context, struct strata_arena *arena, uint64_t size);

/*
 * strata_arena_set_reclaim - sets that function. It is called once for a request that fails, and once before each time that a request sleeps: what
 * wakes a sleeper is a free or strata_arena_wake; that it looks by itself is no new sleep.
 *
 * reclaim: NULL: none, as arenas begin. context: passed to it. May be changed at any time; another thread may still be in the former one when this
 * returns. Errors: BAD_ARGUMENT. Cost: constant.
 */
STRATA_API enum strata_arena_status strata_arena_set_reclaim(struct strata_arena *arena, strata_arena_reclaim *reclaim,
                                                             void *context) STRATA_NOEXCEPT;

/*
 * strata_arena_wake - all requests that sleep in the arena, or in one that imports from it, try again.
 *
 * For a program whose import or reclaim function has something to give again; what is freed or added in arenas wakes by itself.
 * Errors: BAD_ARGUMENT. Cost: linear in the sleepers and in the arenas that import from this one.
 */
STRATA_API enum strata_arena_status strata_arena_wake(struct strata_arena *arena) STRATA_NOEXCEPT;

/* ------------------------------------------------------------------ quantum caches */

/* At most so many quantum caches an arena. */
#define STRATA_ARENA_QUANTUM_CACHES_MAX 16

/*
 * strata_arena_set_quantum_caches - serves small sizes from object caches, one for each multiple of the quantum up to `largest`.
 *
 * largest: a multiple of the quantum, at most STRATA_ARENA_QUANTUM_CACHES_MAX of it, and at most 2^60. The caches take slabs from the arena, of the
 * next power of two above three times `largest` and aligned to their size, so that slabs of all of them fit each other's places; where there
 * is no such slab, a request is served from the segments. strata_arena_alloc and strata_arena_free of these sizes then cost 1.1 to 1.5 times
 * what an object cache costs (the most with a quantum of 4,096 and more) where integers are few, or were used recently; where any of 100,000 that are
 * in use is freed at random 1.5 to 1.8 times, of a million 1.9 to 2.3, as its mark comes from memory. They take no lock in most calls; xalloc and
 * xfree stay as they are, and must be used together. What changes:
 *   - the fit of the arena and of requests says nothing about these sizes; neither does the order of the integers;
 *   - while there are sleepers in the arena, the arrays of its caches are shut: requests take a lock, and a free wakes the sleepers (but for
 *     per-thread caches, whose arrays stay as they are);
 *   - wrong frees are found out as for all other sizes, by a byte for each quantum that says whether the program has what begins there, and how
 *     large it is. Only where two threads free the same integer at the same moment, so that each still sees it allocated, may both be told OK. It has
 *     one owner at a time all the same: before it is handed out while somebody has it, or reaches its slab for the second time, the process ends with
 *     one line on standard error. (Two allocations would have to take both copies at the same moment, too, or its slab to go back to the arena
 * between the two frees, to be told nothing.) The bytes of all quanta between the lowest and the highest integer of the arena lie side by side, or of
 * 2^24 round the first slab where there are more, or a source; only what is used of them takes memory, until the arena is destroyed. Beside these, up
 * to 4,096 stretches of 2^16 quanta are treated likewise (128 where address space is limited). Requests cost the same wherever the integers lie, as
 * long as a thread's frees in a row mostly meet one stretch; where they go to and fro between stretches, 1.3 to 1.5 times what they cost an object
 * cache. Beyond all of these each 512 quanta with a slab take 1 KiB, and requests cost some three times an object cache's (docs/papers.md,
 * section-4-4-4-pairs);
 *   - strata_arena_resize and xfree answer NOT_ALLOCATED for what came from a cache;
 *   - strata_arena_size, walk and lookup see what the caches hold as allocated, in slabs.
 * The caches stand among the others in the statistics, by the arena's name and their size.
 * Errors: BAD_ARGUMENT (also where the arena has them already), BUSY (after the first allocation), NO_MEMORY. Cost: linear in the number of caches.
 * (Section 4.4.4.)
 */
STRATA_API enum strata_arena_status strata_arena_set_quantum_caches(struct strata_arena *arena, uint64_t largest) STRATA_NOEXCEPT;

/* ------------------------------------------------------------------ looking inside */

enum strata_arena_kinds { STRATA_ARENA_ALLOCATED = 1, STRATA_ARENA_FREE = 2, STRATA_ARENA_SPAN = 4 };

struct strata_arena_segment {
    uint64_t start;
    uint64_t size;
    unsigned kind; /* one of enum strata_arena_kinds */
};

/* strata_arena_visit - a function of the program that is shown one segment. Returns 0 to end the walk. Runs with no lock held. */
typedef int strata_arena_visit(const struct strata_arena_segment *segment, void *context);

/*
 * strata_arena_walk - shows segments in the order of their starts, each span before the segments that it consists of.
 *
 * kinds: which, a sum of enum strata_arena_kinds. visit: see strata_arena_visit; context: passed to it. visit may change the arena, as other threads
 * may: what stays as it is during the walk is shown just once; the rest may be shown or not.
 * Errors: BAD_ARGUMENT (also where visit is NULL, or kinds is 0 or has others). Cost: linear in the segments. (Section 4.3.2.)
 */
STRATA_API enum strata_arena_status strata_arena_walk(struct strata_arena *arena, unsigned kinds, strata_arena_visit *visit, void *context);

/*
 * strata_arena_size - how many integers are allocated (STRATA_ARENA_ALLOCATED), free (STRATA_ARENA_FREE), or both; STRATA_ARENA_SPAN alone is the
 * same as both.
 *
 * size: receives it. Errors: BAD_ARGUMENT (also where kinds is 0 or has others). Cost: constant. (Section 4.3.2.)
 */
STRATA_API enum strata_arena_status strata_arena_size(struct strata_arena *arena, unsigned kinds, uint64_t *size) STRATA_NOEXCEPT;

/*
 * strata_arena_lookup - the size of the allocated segment that starts at `start`, rounded to the quantum.
 *
 * size: receives it. Errors: NOT_ALLOCATED, BAD_ARGUMENT. Cost: constant.
 */
STRATA_API enum strata_arena_status strata_arena_lookup(struct strata_arena *arena, uint64_t start, uint64_t *size) STRATA_NOEXCEPT;

/*
 * strata_arena_contains - 1 where one span of the arena holds all of [start, start + size), allocated or not, else 0; also for size 0, and for NULL.
 *
 * Cost: expected O(log spans).
 */
STRATA_API int strata_arena_contains(struct strata_arena *arena, uint64_t start, uint64_t size) STRATA_NOEXCEPT;

/* All of one moment. Counters are since the arena was created; what is said of integers is in integers. */
struct strata_arena_stats {
    char name[32];      /* ends with a zero byte */
    uint64_t quantum;   /* integers */
    uint64_t total;     /* integers in all spans: allocated + free */
    uint64_t allocated; /* integers */
    uint64_t free;      /* integers */
    uint64_t imported;  /* integers in imported spans, part of total */
    uint64_t limit;     /* of imported, in integers; STRATA_ARENA_NO_LIMIT */
    uint64_t spans;     /* a count, as are the next two */
    uint64_t segments_allocated;
    uint64_t segments_free;
    uint64_t metadata_bytes; /* memory that the arena takes itself */
    uint64_t waiters;        /* requests that sleep now */
    uint64_t allocs;         /* counter: requests that were served, by alloc or xalloc */
    uint64_t frees;          /* counter */
    uint64_t resizes;        /* counter: successful ones */
    uint64_t failures;       /* counter: requests that failed for want of space or memory, or by their source */
    uint64_t imports;        /* counter: spans imported */
    uint64_t releases;       /* counter: spans given back to the source */
    uint64_t waits;          /* counter: how often a request went to sleep */
};

/*
 * strata_arena_stats_get - the figures of an arena. All arenas together are rows of strata_stats_table and objects of strata_stats_json.
 *
 * stats: receives them. Errors: BAD_ARGUMENT. Cost: constant.
 */
STRATA_API enum strata_arena_status strata_arena_stats_get(struct strata_arena *arena, struct strata_arena_stats *stats) STRATA_NOEXCEPT;

/*
 * strata_arena_check - verifies every invariant of the arena's structures. NULL when all hold (and for NULL), else a text that names the broken one,
 * not to be freed. strata_check does this for all arenas.
 *
 * Cost: linear in the segments, with the arena's lock held.
 */
STRATA_API const char *strata_arena_check(struct strata_arena *arena) STRATA_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
