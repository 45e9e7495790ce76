/*
 * strata/handle.h - handles: blocks of a zone that strata may move at any time while nobody holds them.
 *
 * A program keeps the handle, a number, in place of a pointer, and asks for the address when it needs it. Between these times the block may go
 * elsewhere in the zone (strata/zone.h), so that large runs can be had there although memory is mixed. Three ways to hold a block:
 *   read guard    many at a time. A block that is being moved can be read meanwhile: nobody waits for the copy, which counts only once no reader
 *                 is left where the block was;
 *   write guard   one at a time, and no read guard. A move that is under way gives up at the next frame;
 *   lock          a pin, for DMA and for long: any number, beside guards of every kind. Neither orders threads nor waits for guards.
 *
 *     strata_handle page;
 *     void *bytes;
 *     if (strata_handle_alloc(pages, 16384, &page) != STRATA_HANDLE_OK) ...
 *     if (strata_handle_write(pages, page, &bytes) != STRATA_HANDLE_OK) ...
 *     memcpy(bytes, record, sizeof record);                 // the address is good up to here
 *     strata_handle_write_end(pages, page);
 *
 * Valid in C11 and C++. For all functions, where nothing else is said:
 *   - a status says what was wrong, strata_zone_explain of the zone in words: function, handle, what it must be. What fails has changed nothing.
 * errno stays as it was. Handles that were destroyed are not recognised: to use them raises SIGSEGV;
 *   - threads: any may call at any time, but for strata_handles_destroy. Guards and locks belong to the program, not to a thread: another one may end
 *     them. A thread that has a read guard and asks for a write guard of the same block waits for itself, for ever;
 *   - fork: as the zone (strata/zone.h), whose compaction may be under way; but none while other threads are in a call here. Guards and locks are
 *     copied;
 *   - signals: not for signal handlers;
 *   - cost: an atomic instruction and a look at the address, without a lock, but where the function says otherwise.
 *
 * The moves are those of Gorman, Whitcroft, "Supporting the Allocation of Large Contiguous Regions of Memory" (2007), section 7.
 */
#ifndef STRATA_HANDLE_H
#define STRATA_HANDLE_H

#include <strata/zone.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The handles of a zone's blocks: one owner of the zone, as long as they are. */
struct strata_handles;
/* 0 is none. A number that was freed is not given again before a million others of its place. */
typedef uint64_t strata_handle;

enum strata_handle_status {
    STRATA_HANDLE_OK = 0,
    STRATA_HANDLE_NO_MEMORY,    /* the zone has no such run, after compaction and reclaim as it is set; or no memory for the table */
    STRATA_HANDLE_BAD_ARGUMENT, /* NULL, no bytes, more than the zone has */
    STRATA_HANDLE_NO_HANDLE,    /* freed, or never was one */
    STRATA_HANDLE_IN_USE,       /* free, destroy: it is locked or guarded, or its frames are pinned in the zone, or in a window */
    STRATA_HANDLE_NOT_HELD,     /* unlock, end of a guard: it has none of that kind */
    STRATA_HANDLE_TOO_OFTEN,   /* more than STRATA_HANDLE_HOLDS_MAX read guards, or STRATA_ZONE_PINS_MAX locks, at a time; more handles than the table
                                  has */
    STRATA_HANDLE_UNSUPPORTED, /* a zone without memory: STRATA_ZONE_SIM */
};
/* strata_handle_status_text - a short English text for a status, in static storage, never NULL. Async-signal-safe. Cost: constant. */
STRATA_API const char *strata_handle_status_text(enum strata_handle_status status) STRATA_NOEXCEPT;

#define STRATA_HANDLE_HOLDS_MAX 1048575u
#define STRATA_HANDLES_MAX (UINT32_C(1) << 28)

/*
 * strata_handles_create - handles for blocks of a zone, none yet.
 *
 * zone: must outlive them. handles_max: how many at a time, up to STRATA_HANDLES_MAX; 0: as many as the zone has frames, up to that. handles:
 * receives them. Returns STRATA_HANDLE_OK; STRATA_HANDLE_BAD_ARGUMENT; STRATA_HANDLE_NO_MEMORY, also where the zone has STRATA_ZONE_OWNERS_MAX owners
 * already; STRATA_HANDLE_UNSUPPORTED. Cost: constant; 32 bytes of address space for each of handles_max, memory for those that were ever used.
 */
STRATA_API enum strata_handle_status strata_handles_create(struct strata_zone *zone, uint64_t handles_max,
                                                           struct strata_handles **handles) STRATA_NOEXCEPT STRATA_NODISCARD;
/*
 * strata_handles_destroy - frees all blocks, and ends the handles. No other thread may be using them, or allocate from or compact the zone.
 *
 * Returns STRATA_HANDLE_OK; STRATA_HANDLE_IN_USE: one is locked or guarded, or frames of it are pinned in the zone, or in a window; nothing has
 * changed. Its owner's number is the zone's again. NULL: nothing. Cost: linear in the handles, and in the superpages of the zone and those of their
 * frames that are movable, owned, pinned or mapped.
 */
STRATA_API enum strata_handle_status strata_handles_destroy(struct strata_handles *handles) STRATA_NOEXCEPT;

/*
 * strata_handle_alloc - a block of whole frames that may be moved; its contents are whatever was there.
 *
 * bytes: above 0; rounded up to frames. Blocks of more than one frame are contiguous when they are held. Those that are larger than a superpage
 * (STRATA_ZONE_SUPERPAGE_BYTES) stay where they are. handle: receives it, on success only.
 * Returns STRATA_HANDLE_OK, STRATA_HANDLE_NO_MEMORY, STRATA_HANDLE_BAD_ARGUMENT, STRATA_HANDLE_TOO_OFTEN. Cost: of strata_zone_alloc_as; a lock of
 * the handles.
 */
STRATA_API enum strata_handle_status strata_handle_alloc(struct strata_handles *handles, size_t bytes, strata_handle *handle) STRATA_NOEXCEPT;
/* strata_handle_free - frees the block. STRATA_HANDLE_NO_HANDLE; STRATA_HANDLE_IN_USE. 0: nothing. Cost: of strata_zone_free; a lock of the handles.
 */
STRATA_API enum strata_handle_status strata_handle_free(struct strata_handles *handles, strata_handle handle) STRATA_NOEXCEPT;

/*
 * strata_handle_lock, strata_handle_unlock - the block stays where it is, pinned in the zone, until as many unlocks as locks.
 *
 * address: receives where it is; may be NULL. Returns STRATA_HANDLE_OK, STRATA_HANDLE_NO_HANDLE, STRATA_HANDLE_TOO_OFTEN, STRATA_HANDLE_NOT_HELD.
 * Where the program has freed the frames of a handle by strata_zone_free, which it must not, a lock answers STRATA_HANDLE_NO_MEMORY, and
 * strata_handle_free STRATA_HANDLE_IN_USE; strata_handles_destroy ends such a handle. A lock waits for a move that is under way to give up: the copy
 * of one frame. Cost: of strata_zone_pin, which takes a lock.
 */
STRATA_API enum strata_handle_status strata_handle_lock(struct strata_handles *handles, strata_handle handle, void **address) STRATA_NOEXCEPT;
STRATA_API enum strata_handle_status strata_handle_unlock(struct strata_handles *handles, strata_handle handle) STRATA_NOEXCEPT;

/*
 * strata_handle_read, strata_handle_read_end - the block can be read until the end; others may read it too, nobody has a write guard, and it stays.
 *
 * address: receives where it is. Waits for a write guard to end. Returns STRATA_HANDLE_OK, STRATA_HANDLE_NO_HANDLE, STRATA_HANDLE_TOO_OFTEN,
 * STRATA_HANDLE_NOT_HELD, STRATA_HANDLE_BAD_ARGUMENT.
 */
STRATA_API enum strata_handle_status strata_handle_read(struct strata_handles *handles, strata_handle handle, const void **address) STRATA_NOEXCEPT;
STRATA_API enum strata_handle_status strata_handle_read_end(struct strata_handles *handles, strata_handle handle) STRATA_NOEXCEPT;
/*
 * strata_handle_write, strata_handle_write_end - the block is the caller's alone until the end, but for locks. Waits for all guards of it to end, and
 * for a move as a lock does. Readers that come meanwhile are not held back. Returns as strata_handle_read.
 */
STRATA_API enum strata_handle_status strata_handle_write(struct strata_handles *handles, strata_handle handle, void **address) STRATA_NOEXCEPT;
STRATA_API enum strata_handle_status strata_handle_write_end(struct strata_handles *handles, strata_handle handle) STRATA_NOEXCEPT;

struct strata_handle_info {
    size_t bytes;            /* in whole frames */
    uint64_t frame;          /* where it was when asked */
    unsigned locks, readers; /* at a time */
    bool moving;
    unsigned moves; /* since it was allocated; wraps */
};
/* strata_handle_query - what is known of a block now, under a read guard for the moment: waits as one. STRATA_HANDLE_NO_HANDLE,
 * STRATA_HANDLE_BAD_ARGUMENT. */
STRATA_API enum strata_handle_status strata_handle_query(struct strata_handles *handles, strata_handle handle,
                                                         struct strata_handle_info *info) STRATA_NOEXCEPT;

struct strata_handles_stats {
    uint64_t handles, bytes;  /* that exist, and of their blocks */
    uint64_t moves;           /* done */
    uint64_t refused_held;    /* moves not begun: the block was locked or written */
    uint64_t refused_waited;  /* moves given up: somebody wanted to write, lock or free */
    uint64_t refused_readers; /* moves given up: readers did not leave */
};
/* strata_handles_stats_get - counted since the start, but for the first two. STRATA_HANDLE_BAD_ARGUMENT. */
STRATA_API enum strata_handle_status strata_handles_stats_get(struct strata_handles *handles, struct strata_handles_stats *stats) STRATA_NOEXCEPT;

/*
 * strata_handles_check - NULL when the table agrees with itself and with the zone, else what doesn't. Where no other thread is in a call on either.
 * Cost: linear in the handles.
 */
STRATA_API const char *strata_handles_check(struct strata_handles *handles) STRATA_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
