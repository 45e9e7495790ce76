/*
 * strata/strata.h - the version of strata, and what a program may ask of its heap beyond malloc: figures, a self-check, memory back.
 *
 * Valid in C11 and C++. Sizes are in bytes. Unless a function says otherwise:
 *   - threads: any thread may call it at any time, also before main and after exit handlers have run;
 *   - fork: it works in a child of fork as in the parent, whatever the parent's other threads were doing;
 *   - signals: not for signal handlers: each of them takes locks of the heap, and a handler may have interrupted a thread that holds one, for which
 *     it would wait for ever. <strata/malloc.h> says what holds for malloc and free;
 *   - errno stays as it was.
 * The malloc family under names of its own is in <strata/malloc.h>.
 */
#ifndef STRATA_STRATA_H
#define STRATA_STRATA_H

#include <stddef.h>

#define STRATA_VERSION_MAJOR 0
#define STRATA_VERSION_MINOR 1
#define STRATA_VERSION_PATCH 0
/* The same as text. */
#define STRATA_VERSION "0.1.0"
/* The same as one number that grows with every version: 10203 is 1.2.3. */
#define STRATA_VERSION_NUMBER (STRATA_VERSION_MAJOR * 10000 + STRATA_VERSION_MINOR * 100 + STRATA_VERSION_PATCH)

/* What the library exports. */
#if defined(__GNUC__)
#define STRATA_API __attribute__((visibility("default")))
#else
#define STRATA_API
#endif

/* Never leaves by an exception. */
#if defined(__cplusplus)
#define STRATA_NOEXCEPT noexcept
#elif defined(__GNUC__)
#define STRATA_NOEXCEPT __attribute__((nothrow))
#else
#define STRATA_NOEXCEPT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * strata_conf - options that a program brings with it: "key:value,key:value", as docs/options.md lists them.
 *
 * The library defines it weak, as NULL. A program that wants options of its own includes this header (for C linkage in C++, too) and
 * defines it, at file scope and with a constant:
 *
 *     const char *strata_conf = "decay_ms:100,thp:never";
 *
 * It is read once, before the first allocation of the process, so assigning to it later has no effect. The environment
 * variable STRATA_CONF is read after it and wins, key by key. An item that can't be used costs one warning on standard error and
 * leaves its option as it was. Under LD_PRELOAD the program must export the symbol (link with -rdynamic).
 */
extern STRATA_API const char *strata_conf;

/*
 * strata_stats_json - writes the figures of the heap to a file descriptor, as one JSON object on one line.
 *
 * fd: open for writing; a short write is continued, and a signal that interrupts one does not end it.
 * Returns 0, or EIO where the descriptor did not take all of the text (closed, full, broken pipe); then a part may be written.
 * Sizes are in bytes (keys ending in _bytes), times in nanoseconds (_ns), all else are counts. Keys are added in later versions, not renamed.
 * In "caches", a size class counts its debugged buffers with its others; caches whose programs are called back (<strata/cache.h>) have reclaims,
 * reclaimed_bytes, moves, moves_yes and slabs_emptied too, as in struct strata_cache_stats.
 * In "arenas", those of the program (<strata/arena.h>) follow the heap's own, by their creation; their quantum, in_use, total and imported are in
 * integers of the arena. Of more than 63, all but the first 62 are one row, with sums of its counts.
 * The figures are read while other threads run: each is right at some moment of the call, their sums may differ by what happened meanwhile.
 * Cost: that of strata_mallinfo2, and three files of /proc, two of which (smaps_rollup, pagemap) cost the kernel time linear in the process's memory;
 * allocates nothing. May wait where the descriptor does, or while another thread writes such a report; standard error that is full and does not wait
 * (O_NONBLOCK) is tried again, for a second without progress.
 */
STRATA_API int strata_stats_json(int fd);

/*
 * strata_stats_table - the same for people: a row for each cache that was used, each whose program was called back, each arena and
 * mobility group, then the totals.
 *
 * Parameters, result, safety and cost as strata_stats_json. The layout may change in any version; programs read the JSON.
 */
STRATA_API int strata_stats_table(int fd);

/*
 * strata_check - verifies the invariants of every layer: counters against what they count, lists against states, memory against owners.
 *
 * Returns NULL where all hold, else a text in static storage that names the first that does not; then memory that belongs to the heap
 * was overwritten, or strata has a bug, and the process should end soon. Changes nothing and writes nothing.
 * Exact only while no other thread allocates: what is under way between the CPU caches and the slabs may look like a fault of the first.
 * Cost: linear in the size of the heap and in the number of free objects in caches; the locks of each layer are held while it is looked at, so that
 * other threads may wait as long: for tests and for a look at a suspect process, not for a loop.
 */
STRATA_API const char *strata_check(void) STRATA_NOEXCEPT;

/*
 * strata_release - hands idle memory back to the operating system now, without waiting for decay or pressure.
 *
 * keep_bytes: how much idle populated memory the heap may keep for the allocations to come, rounded down to 4 KiB; 0 keeps none.
 * First empties the depots and the caches of all CPUs (of object caches the depots of those without functions and source of the program's; the others
 * are for strata_cache_reap), then gives back free pages: superpages that are wholly free first, then those that have been
 * the longest with idle pages. With per-thread caches (no restartable sequences, or rseq:off) the cache of a thread stays which is in the middle of
 * an operation on it, stopped or in a signal handler, for more than some 20 ms; and those of all other threads where the system has no membarrier
 * (Linux before 4.14, or a filter that forbids it).
 * Returns the bytes handed back, 0 where there was nothing to give. Memory in use is not touched.
 * Cost: linear in the number of size classes and object caches times that of CPUs, in the objects in caches, and in the pages handed back, at one
 * system call for each stretch of them; one interruption of all CPUs for each that has objects cached. What comes next may have to fetch its pages
 * anew. One thread at a time empties caches; others that call wait for it. (Caches: "Experience With an Efficient Parallel Kernel Memory Allocator",
 * section 5.2. Idle pages: Douglas, "User Mode Memory Page Allocation", section 2.)
 */
STRATA_API size_t strata_release(size_t keep_bytes) STRATA_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
