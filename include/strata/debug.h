/*
 * strata/debug.h - debugging: who allocated and freed a buffer, what was written outside of it or after its end, and failures on demand.
 *
 * The features are those that umem_debug(3MALLOC) made known, with its patterns; each cache has its own, malloc's size classes ("malloc-16" to
 * "malloc-32768") as well as object caches by their names. They are set at the start by the option `debug` (docs/options.md), or at any time by
 * strata_debug_set, and taken back in the same way. A cache without features pays nothing for this: the arrays of one that has some are
 * closed, so that each call takes the slow path, where the code of the features is. Of kmem's frees (<strata/kmem.h>) those that say a size of a
 * class with features, or of which the program has a debugged buffer, look at the block's address before they believe it, one or two ns each.
 *
 * A *debugged buffer* lies in slabs of its own, so that it always is known which buffers are: those allocated before a cache got its
 * features are freed as ordinary ones, those allocated with features keep them until they are freed. Memory of more than 32 KiB (blocks) has
 * none but `mtbf`, objects of fixed pools and integers of arenas none at all. Where memory for a debugged buffer ends, or no class that has features
 * has room for its size and alignment together, the caller gets an ordinary one, and strata_debug_stats counts it in `plain`.
 *
 * For all functions, where nothing else is said: any thread may call them at any time, also before main; fork: the child goes on with the features,
 * the buffers and the logs of the parent; not for signal handlers; errno stays as it was. A call with an argument that is not allowed changes
 * nothing, and says on standard error, in one line, what is wrong with which; but for a `visit` that is NULL: with that line the process ends
 * (SIGABRT).
 *
 * The design follows Bonwick, Adams, "Magazines and Vmem" (2001), section 5.1, where it speaks of libumem's debugging, and the manual
 * umem_debug(3MALLOC).
 */
#ifndef STRATA_DEBUG_H
#define STRATA_DEBUG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <strata/strata.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is written where nobody should look or write: a freed buffer, one that nobody has written yet, and what follows its end. */
#define STRATA_DEBUG_FREE_PATTERN UINT64_C(0xdeadbeefdeadbeef)
#define STRATA_DEBUG_FRESH_PATTERN UINT64_C(0xbaddcafebaddcafe)
#define STRATA_DEBUG_REDZONE_PATTERN UINT64_C(0xfeedfacefeedface)
/* The bytes from the end that was asked for up to the next multiple of 8. */
#define STRATA_DEBUG_SLACK_BYTE 0xbb

/* The most that features take. */
#define STRATA_DEBUG_AUDIT_MAX 64
#define STRATA_DEBUG_FRAMES_MAX 32
#define STRATA_DEBUG_CONTENTS_MAX 4096
#define STRATA_DEBUG_PATTERN_MAX 63
#define STRATA_DEBUG_LOG_MIN ((size_t)4096)
#define STRATA_DEBUG_LOG_MAX ((size_t)1 << 20)

enum strata_debug_status {
    STRATA_DEBUG_OK = 0,
    STRATA_DEBUG_NO_MEMORY,
    STRATA_DEBUG_BAD_ARGUMENT, /* nothing has changed, and a line on standard error says why */
};
/* A short English text, never NULL; also for values that are none. */
STRATA_API const char *strata_debug_status_text(enum strata_debug_status status) STRATA_NOEXCEPT;

/*
 * strata_debug_set - gives features to the caches whose names match, those that exist and those that are created later.
 *
 * pattern: a name, in which * stands for any text and ? for any character; 1..STRATA_DEBUG_PATTERN_MAX bytes. Where several patterns match a
 * cache, the one that was set last counts; a pattern that is set again takes its new features, and the last place.
 * features: joined by +; of one that is named twice the last counts:
 *   off            none: the arrays of the caches open again. Alone.
 *   default        audit+contents+guards, as in umem_debug(3MALLOC)
 *   audit[=N]      the last N (1..64, 2) transactions of each buffer are kept: allocations and frees, with thread, time and stack
 *   frames=N       so many frames (1..32, 15) of each stack
 *   contents[=N]   the first N bytes (1..4096, 256) of a buffer are kept as they were when it was freed, and when it was allocated
 *   guards         the bytes in front of a buffer, and from its end on as it was asked for, hold patterns that are checked when it is freed
 *                  and by verify; a freed buffer is filled with one that is checked before it is used again, and an allocated one with
 *                  another, so that a program does not find by chance what it never wrote. Objects of a cache with a constructor are
 *                  constructed for each allocation and destructed at each free, as with every other feature.
 *   verify[=N]     all buffers of the cache, freed and in use, are checked with every Nth of its transactions (1..1000000, 1000).
 *                  Implies guards.
 *   firewall[=MIN] buffers of caches whose objects have MIN bytes (0..1048576, 0) or more end where a page without access follows, and have
 *                  pages of their own, which are without access from the free on: the first wrong access is a SIGSEGV, at its
 *                  instruction. Until then those pages count towards the option hard_limit. What alignment (16 bytes for malloc) leaves
 *                  between the end that was asked for and the page is for guards to find. Not for caches with a source of their own: they
 *                  get the other features, and a line on standard error says that there is no firewall.
 *   mtbf=N         one allocation in about N (1..1000000000) fails, by a generator of the cache's own; none by STRATA_KMEM_SLEEP or
 *                  STRATA_CACHE_SLEEP, nor where strata_debug_spare says so. The one feature for malloc's sizes above 32 KiB, by the name
 *                  "malloc-large": also a block that realloc makes larger counts
 *   seed=N         with mtbf: its seed (0..2^64-1), so that the same calls fail again; without one, it is chosen, and a line on standard
 *                  error tells it
 * A slab has 2 MiB: a cache whose objects, with a redzone in front as long as their alignment, a byte at least behind, and a page without access, fit
 * into none is left out, and a line on standard error says so. None whose alignment is below 512 KiB is.
 * Returns STRATA_DEBUG_OK, STRATA_DEBUG_BAD_ARGUMENT, or STRATA_DEBUG_NO_MEMORY: then the caches that match have no features.
 * Threads: while others allocate and free; each of their calls goes by the old features or by the new. With per-thread caches what other
 * threads have cached is used up first, without features. Not from constructors and destructors, as those of a cache run here when its arrays
 * are shut.
 * Cost: linear in the caches, and for each that matches in its CPUs; one fence over all CPUs for each. While a cache has features, each of its
 * operations takes a lock, and with audit a walk up the stack; and each free, where it has a source of its own, a look through its slabs. An object
 * cache whose features are off opens its arrays when the last of its debugged objects is freed; malloc's do at once.
 */
STRATA_API enum strata_debug_status strata_debug_set(const char *pattern, const char *features);

/*
 * strata_debug_spare - whether `mtbf` spares what the calling thread allocates, as it does not at first: for what the program can't do without.
 *
 * Returns whether it did. It counts for what is called meanwhile, constructors too. Cost: constant. (umem_debug(3MALLOC): not with UMEM_NOFAIL.)
 */
STRATA_API bool strata_debug_spare(bool spared);

/*
 * strata_debug_log_set - sizes of the logs that all caches share; the oldest entries give way.
 *
 * logs: joined by +; a log that is not named stays as it is:
 *   off                  both are empty, and take no memory. Alone.
 *   transaction[=SIZE]   every allocation and free of a debugged cache (4K..1M bytes, 64K; suffixes K and M; 0: off)
 *   fail[=SIZE]          every allocation that failed, of malloc and of object caches, debugged or not: by mtbf, for want of memory, or because a
 *                        constructor refused; malloc's sizes above 32 KiB as "malloc-large"; and whatever strata_debug_failed is told of
 * What a log has is lost when its size is set. Entries have up to 16 frames, as far as the features of their cache allow, and 15 where that has
 * none. The option debug_log says the same at the start. Returns as strata_debug_set does. Cost: constant.
 */
STRATA_API enum strata_debug_status strata_debug_log_set(const char *logs);

/*
 * strata_debug_failed - enters a failure into the log: for allocators that stand on strata, of what strata does not log itself, such as arenas.
 *
 * name: of what had nothing to give, cut to 31 bytes. bytes: that were asked for. NULL, or nothing ever debugged or logged: does nothing.
 * Cost: constant, and a walk up the stack.
 */
STRATA_API void strata_debug_failed(const char *name, size_t bytes);

/*
 * What follows when an error is found and its report is written. The report begins with a line as all errors of strata have it, "strata: FUNCTION():
 * ADDRESS: what is wrong (cache NAME)", and goes on with lines that begin with "strata:   ": the buffer and the offset, what was expected and found,
 * and the transactions of the buffer, newest first, their stacks as module+offset. The option debug_error says the same at the start.
 *
 * An error is damage of a debugged buffer, or a wrong free of one: twice, in its middle, by a function or to a cache that it is not of, or by a size
 * other than it was asked for with, where the free names one (strata_kmem_free, strata_free_sized, C++'s sized delete; kmem's forms see it later
 * where the class of the size that is said isn't debugged, and the process ends then). Of what is no debugged buffer, a pointer to nothing of
 * strata's among it, frees say what they say without debugging: where they see an error, the process ends always.
 */
enum strata_debug_action {
    STRATA_DEBUG_ABORT = 0, /* the process ends, by SIGABRT */
    STRATA_DEBUG_CONTINUE,  /* it goes on: a free that is wrong does nothing, a damaged buffer gets its patterns again */
};
/* Returns the action before. An action that is none changes nothing. */
STRATA_API enum strata_debug_action strata_debug_on_error(enum strata_debug_action action);

/*
 * strata_debug_verify - checks all buffers, in use and freed, of the debugged caches whose names match. pattern: NULL: all.
 *
 * Returns how many are damaged, each of them reported; with STRATA_DEBUG_ABORT the first one ends the process. Buffers without guards have nothing to
 * check. Other threads go on meanwhile, but for those that want the cache that is being checked. Cost: linear in the bytes of the buffers.
 */
STRATA_API size_t strata_debug_verify(const char *pattern);

enum strata_debug_kind { STRATA_DEBUG_ALLOCATED = 1, STRATA_DEBUG_FREED, STRATA_DEBUG_FAILED };

/* One allocation or free. */
struct strata_debug_transaction {
    enum strata_debug_kind kind;
    uint32_t thread;        /* the system's number of it */
    uint64_t time_ns;       /* of a clock that never goes back */
    const char *cache;      /* its name; in logs too, where the cache may be gone */
    const void *buffer;     /* NULL: it failed */
    size_t bytes;           /* that were asked for */
    unsigned frames;        /* how many there are */
    const uintptr_t *frame; /* return addresses, the innermost first; functions of strata's own may come first */
};

/* One debugged buffer. */
struct strata_debug_buffer {
    const char *cache;
    void *address;
    size_t bytes; /* that were asked for */
    bool in_use;  /* or freed, and not used again yet */
    unsigned transactions;
    const struct strata_debug_transaction *transaction; /* the newest first; with audit */
    size_t freed_bytes, allocated_bytes;                /* with contents: how many are kept of the last free, and of the last allocation */
    const void *freed_contents, *allocated_contents;
};

/*
 * strata_debug_walk - calls visit for each debugged buffer in use of the caches whose names match; it returns false to end the walk.
 *
 * pattern: NULL: all. freed: visit those too that were freed and not used again. What visit gets is its own until it returns, and no lock is held: it
 * may allocate, free, and call what is declared here. visit: not NULL. Buffers that come or go meanwhile may be visited or not. To find leaks: walk
 * at the end. Returns false where there was no memory for the walk. Cost: linear in the buffers; of a cache with a source of its own
 * also in the square of its slabs.
 */
STRATA_API bool strata_debug_walk(const char *pattern, bool freed, bool (*visit)(const struct strata_debug_buffer *buffer, void *argument),
                                  void *argument);

/*
 * strata_debug_find - the debugged buffer, in use or freed, that an address is in or next to: visit is called with it, once.
 *
 * visit: not NULL. Returns whether there is one. For a handler of SIGSEGV that runs on a thread which holds no lock of strata (the fault was the
 * program's own), this tells which buffer was meant; else not for signal handlers. Cost: linear in the debugged
 * caches, and in the slabs of those with sources of their own.
 */
STRATA_API bool strata_debug_find(const void *address, bool (*visit)(const struct strata_debug_buffer *buffer, void *argument), void *argument);

enum strata_debug_log { STRATA_DEBUG_LOG_TRANSACTION, STRATA_DEBUG_LOG_FAIL };
/*
 * strata_debug_log_walk - calls visit for each entry of a log, the newest first, as it was at the call; it returns false to end the walk. No lock is
 * held meanwhile. visit: not NULL. Returns false where there was no memory for the copy, or where `log` is none. Cost: linear in the log.
 */
STRATA_API bool strata_debug_log_walk(enum strata_debug_log log, bool (*visit)(const struct strata_debug_transaction *transaction, void *argument),
                                      void *argument);

struct strata_debug_stats {
    uint64_t caches;           /* that have features now */
    uint64_t in_use, freed;    /* debugged buffers that the program has, and those that wait to be used again */
    uint64_t allocs, frees;    /* of debugged buffers, since the start */
    uint64_t plain;            /* allocations that got an ordinary buffer, as there was no memory or no room for a debugged one */
    uint64_t injected;         /* failures by mtbf, those included after which one that must not fail was tried again */
    uint64_t failed;           /* allocations that failed for want of memory, or because a constructor refused, since the first call of a setter */
    uint64_t errors;           /* found and reported */
    uint64_t memory, metadata; /* bytes of the slabs of debugged buffers, and of what describes them */
    uint64_t logged_transactions, logged_failures; /* since the logs were set */
};
/* strata_debug_stats_get - the figures; zeros where there never were features. NULL: does nothing. Cost: linear in the debugged caches. */
STRATA_API void strata_debug_stats_get(struct strata_debug_stats *stats);

/*
 * Reports for a reader, as text, in whole lines, to a file descriptor. Each returns 0, or EIO where it could not be written whole. Cost: as the walk.
 */
/* The caches with features, and their figures. */
STRATA_API int strata_debug_report(int fd);
/* The buffers in use of the caches whose names match (NULL: all), those that were allocated at one place (one stack) together, most bytes first. */
STRATA_API int strata_debug_report_in_use(const char *pattern, int fd);
/* A log, newest first. */
STRATA_API int strata_debug_report_log(enum strata_debug_log log, int fd);

#ifdef __cplusplus
}
#endif

#endif
