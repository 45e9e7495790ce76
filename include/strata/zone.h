/*
 * strata/zone.h - zones: memory that the program owns frame by frame, in superpages from which large contiguous runs can be had for years.
 *
 * A zone is a range of page frames: memory of its own (memfd, huge pages, anonymous memory) or none at all (a simulated zone, of any size). A frame
 * is a number, 0 and up: its offset in the memory, divided by the frame's size, is its identity, whatever addresses show it. Frames stand in
 * superpages of 2 MiB. Allocations say how they can be had back: unmovable ones share superpages with others like them, so that the superpages of
 * movable and reclaimable ones can be emptied when somebody wants a large run.
 *
 *     struct strata_zone *zone;
 *     const struct strata_zone_config config = {.name = "buffers", .backend = STRATA_ZONE_MEMFD, .bytes = 2ull << 30, .reserve_bytes = 16 << 20};
 *     if (strata_zone_create(&config, &zone) != STRATA_ZONE_OK) ...
 *     uint64_t frame;
 *     if (strata_zone_alloc(zone, 1, STRATA_ZONE_UNMOVABLE, &frame) != STRATA_ZONE_OK) ...       // 512 at a time: a superpage
 *     memset(strata_zone_address(zone, frame), 0, 4096);
 *     strata_zone_free(zone, frame, 1);
 *
 * Valid in C11 and C++. For all functions, where nothing else is said:
 *   - runs are [frame, frame + frames). bytes must be multiples of what is said;
 *   - a status says what was wrong, strata_zone_explain in words: function, argument, value, what is allowed. What fails has changed nothing. A null
 *     pointer to a zone, or for a result, is STRATA_ZONE_BAD_ARGUMENT. A zone that was destroyed is not recognised, but its memory is gone: to use it
 *     raises SIGSEGV, as with any wild pointer. Nor is another zone's frame, which is a number like others: it is an error where it is free here;
 *   - threads: any thread may call at any time, but for strata_zone_destroy. No lock of strata is held while a function of the program runs; of a
 *     pass of compaction, of which a zone has one at a time, others wait for the end within bounds (strata_zone_set_effort), and functions of the
 *     program that strata has called, for this zone or another, don't wait for it;
 *   - fork: the memory of STRATA_ZONE_MEMFD and STRATA_ZONE_HUGETLB is shared with the child, that of STRATA_ZONE_ANON and STRATA_ZONE_HEAP copied.
 * What strata knows of the frames is copied, and in order whatever other threads did: in the child their calls have ended, blocks that they were
 * moving or having dropped are where the owner knows them, captures within a call are given up, and the zone has no threads. For that a fork waits
 * until the owners' functions that run have returned, 0.1 s at least if they don't; a block that one still moves then is allocated at both places in
 * the child, and one that it still drops stays allocated. A function of an owner may fork: in the child its own call goes on, and what other threads
 * had isolated stays STRATA_ZONE_BUSY. A child must not allocate or free frames of a shared zone while its parent does;
 *   - signals: not for signal handlers, as each function takes locks. errno stays as it was. The zone's own threads, on which owners' functions may
 * run, have all but SIGSEGV blocked.
 *
 * The design follows Gorman, Whitcroft, "Supporting the Allocation of Large Contiguous Regions of Memory" (2007); the bitfields of superpages, and
 * reservations by CPUs, are as in Wrenger et al., "LLFree: Scalable and Optionally-Persistent Page-Frame Allocation" (2023).
 */
#ifndef STRATA_ZONE_H
#define STRATA_ZONE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <strata/malloc.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A zone, and a request for a run that is waiting for its frames; their contents are strata's. */
struct strata_zone;
struct strata_zone_capture;

enum strata_zone_status {
    STRATA_ZONE_OK = 0,
    STRATA_ZONE_NO_MEMORY,     /* the system has none for the zone, or for what strata must remember */
    STRATA_ZONE_BAD_ARGUMENT,  /* outside what the function allows */
    STRATA_ZONE_NO_FRAMES,     /* no such run is free; or none that this request may have */
    STRATA_ZONE_NOT_ALLOCATED, /* a frame of the run is free, or held by a capture */
    STRATA_ZONE_PINNED,        /* a frame of the run is pinned; or pinned as often as it can be */
    STRATA_ZONE_NOT_PINNED,    /* unpin: it is not */
    STRATA_ZONE_MAPPED,        /* a frame of the run, or a page of the range, is mapped already; or still */
    STRATA_ZONE_NOT_MAPPED,    /* a page of the range shows no frame */
    STRATA_ZONE_BUSY,          /* being moved or reclaimed right now; of a range or zone: in use by others */
    STRATA_ZONE_UNSUPPORTED,   /* this backend, or this system, can't */
    STRATA_ZONE_NO_HUGE_PAGES, /* the system's pool of huge pages has too few */
    STRATA_ZONE_GONE,          /* a capture whose range can't be had any more: pinned or unmovable frames came to stay */
    STRATA_ZONE_NOT_DONE,      /* a capture that still waits for frames */
    STRATA_ZONE_FILE_ERROR,    /* of a file behind blocks (strata/zone_backing.h): errno says which */
};
/* strata_zone_status_text - a short English text for a status, in static storage, never NULL. Async-signal-safe. Cost: constant. */
STRATA_API const char *strata_zone_status_text(enum strata_zone_status status) STRATA_NOEXCEPT;

/* Superpages; the longest name with its end; limits of frames, pins, owners and CPUs. */
#define STRATA_ZONE_SUPERPAGE_BYTES ((size_t)2 << 20)
#define STRATA_ZONE_NAME_BYTES 32
#define STRATA_ZONE_FRAMES_MAX (UINT64_C(1) << 31)
#define STRATA_ZONE_PINS_MAX 4095u
#define STRATA_ZONE_OWNERS_MAX 255u
#define STRATA_ZONE_CPUS_MAX 1024u
/* Orders: blocks of 2^order frames. The largest that statistics tell apart, and one more. */
#define STRATA_ZONE_ORDERS 31u

/* How frames can be had back from who has them. (Section 2.1.) */
enum strata_zone_mobility {
    STRATA_ZONE_UNMOVABLE,   /* only when they are freed */
    STRATA_ZONE_RECLAIMABLE, /* their owner can drop them */
    STRATA_ZONE_MOVABLE,     /* their contents can go to other frames; and be dropped, where the owner says how */
    STRATA_ZONE_MOBILITIES,
};

enum strata_zone_backend {
    STRATA_ZONE_MEMFD,   /* shared memory with a file number, which other processes may map */
    STRATA_ZONE_HUGETLB, /* the same of huge pages, taken from the system's pool at once: STRATA_ZONE_NO_HUGE_PAGES where that has too few */
    STRATA_ZONE_ANON,    /* private memory. Can't be mapped at other addresses */
    STRATA_ZONE_SIM,     /* no memory: each frame's contents are one word (strata_zone_peek), kept once it isn't 0. For experiments and tests */
    STRATA_ZONE_HEAP,    /* a block of the heap's (strata/page.h), for whose limits and figures all of it counts; else as STRATA_ZONE_ANON.
                            The block is the zone's: to free, resize, cut, swap or watch it is a mistake that nobody sees */
};

/* ------------------------------------------------------------------ life */

enum strata_zone_flags {
    STRATA_ZONE_NO_GROUPING = 1,       /* superpages belong to no mobility group: for experiments, figure 1's "standard allocator" */
    STRATA_ZONE_SCATTER = 2,           /* and frames come from the superpage that was freed into last, not from the fullest: likewise */
    STRATA_ZONE_HUGE_IN_PARTITION = 4, /* runs of whole superpages may lie in the movable partition whatever their mobility (section 2.2) */
    STRATA_ZONE_ON_NODE = 8,           /* the memory comes from the NUMA node `node`, where the system has it */
};

/* Zero in what isn't needed: members may be added in later versions, where 0 means "as before". */
struct strata_zone_config {
    const char *name; /* for statistics and messages; cut to STRATA_ZONE_NAME_BYTES - 1. Not NULL */
    enum strata_zone_backend backend;
    uint64_t bytes;           /* a multiple of STRATA_ZONE_SUPERPAGE_BYTES, above 0, at most STRATA_ZONE_FRAMES_MAX frames */
    size_t frame_bytes;       /* of a frame: 4, 16 or 64 KiB, not less than the system's page but for STRATA_ZONE_SIM; 0: the system's page */
    uint64_t reserve_bytes;   /* as long as others will do, this much stays free as whole superpages; rounded up to them (section 2.1) */
    uint64_t partition_bytes; /* at the end of the zone, for movable and reclaimable frames only; rounded up to superpages (section 2.2) */
    unsigned node;            /* with STRATA_ZONE_ON_NODE */
    unsigned cpus;            /* how many CPUs get superpages of their own; 0: as many as there are. At most STRATA_ZONE_CPUS_MAX */
    unsigned flags;           /* enum strata_zone_flags, joined by | */
};

/*
 * strata_zone_create - a new zone, all of whose frames are free.
 *
 * config: may go once the call is back. zone: receives it. Returns STRATA_ZONE_OK; STRATA_ZONE_BAD_ARGUMENT; STRATA_ZONE_NO_MEMORY;
 * STRATA_ZONE_NO_HUGE_PAGES; STRATA_ZONE_UNSUPPORTED: the system has no such memory, or no such node (STRATA_ZONE_HEAP: of any). Memory
 * behind the frames is taken when they are first touched, but for STRATA_ZONE_HUGETLB, and for what the heap keeps present. Limits of the process
 * (RLIMIT_FSIZE, RLIMIT_NOFILE, RLIMIT_AS), or of the heap, that are too low are STRATA_ZONE_NO_MEMORY; no signal is raised. Cost: linear in
 * superpages, 0.1 to 0.6 us each, most of it the system's for memory that is touched first; 256 bytes for each, and 4 to 20 bytes for each frame that
 * is allocated as movable, with an owner, pinned or mapped; above 2 GiB in huge pages, where the system has any.
 */
STRATA_API enum strata_zone_status strata_zone_create(const struct strata_zone_config *config,
                                                      struct strata_zone **zone) STRATA_NOEXCEPT STRATA_NODISCARD;
/*
 * strata_zone_destroy - takes a zone down, with all frames that are still allocated and all windows. No other thread may be using it.
 *
 * Returns STRATA_ZONE_OK; STRATA_ZONE_PINNED: a frame is pinned; STRATA_ZONE_BUSY: a capture is under way, or a function of the program that strata
 * has called for this zone calls this, or has not returned yet; or one that it has called for another zone, and this one has threads. Then the zone
 * is as it was. NULL: nothing.
 */
STRATA_API enum strata_zone_status strata_zone_destroy(struct strata_zone *zone) STRATA_NOEXCEPT;

/*
 * strata_zone_explain - what was wrong in the last call of any thread on this zone that failed: "strata_zone_pin: frame = 12 (free; must be
 * allocated)". STRATA_ZONE_NOT_DONE is no failure. Returns the length, as snprintf; 0: nothing was wrong yet. strata_zone_explain_config: the same of
 * what strata_zone_create would say to a configuration.
 */
STRATA_API size_t strata_zone_explain(struct strata_zone *zone, char *text, size_t bytes) STRATA_NOEXCEPT;
STRATA_API size_t strata_zone_explain_config(const struct strata_zone_config *config, char *text, size_t bytes) STRATA_NOEXCEPT;

/* ------------------------------------------------------------------ owners */

enum strata_zone_answer {
    STRATA_ZONE_YES,   /* done: moved; or dropped, and the frames are strata's again */
    STRATA_ZONE_LATER, /* not now: in use, or being written */
    STRATA_ZONE_NEVER, /* don't ask about this one again: it counts as unmovable from now on */
    STRATA_ZONE_WROTE, /* reclaim only: written first, and dropped */
    /* reclaim only: nobody uses it any more; strata shall write it to the owner's file, unless that is known to have it, and drop it
     * (strata/zone_backing.h); of an owner without a file: as LATER */
    STRATA_ZONE_WRITE,
};

/*
 * Who has movable or reclaimable frames, and is asked about them. Called with no lock held, on the thread of whoever wants room, or strata's own. The
 * block is nobody else's meanwhile: it is not asked about twice at a time; a free of it is remembered and done afterwards; pin, map and unmap answer
 * STRATA_ZONE_BUSY. The functions may allocate and free frames, and return.
 */
struct strata_zone_owner {
    const char *name; /* copied, and cut */
    /*
     * The block [from, from + frames) shall move to `to`, as many frames, which are allocated for that. YES: the owner has copied the contents
     * (strata_zone_copy), so that nobody writes at `from` any more, and knows the block by `to` from now on. NULL: its frames don't move.
     * Where a window shows the block (strata_zone_map), who writes to it there waits until this has returned: it must not wait for a lock that
     * such a writer may hold.
     * A free does not wait for this: the owner may be asked about a block after it has freed it, and after its token is another block's. So it must
     * compare `from` with where it knows the block with this token to be, under whatever guards that, and answer LATER where they differ. The same
     * goes for a block that strata_zone_alloc_as has not yet returned, and for `reclaim` and `frame`.
     */
    enum strata_zone_answer (*migrate)(struct strata_zone *zone, uint64_t from, uint64_t to, uint64_t frames, uint64_t token, void *context);
    /*
     * The block's contents shall go. dirty: whether they may have been written to, whoever did so. false says that nobody has, which is known on
     * STRATA_ZONE_SIM alone, and there up to this moment: of a block whose users go on until the owner stops them it is not the last word. Memory
     * counts as dirty always, as nothing tells of all who write to it (windows and other mappings of the file, pwrite, devices, forked children): an
     * owner who keeps account of writes, or has only read, knows better. YES: they are not needed, or somewhere else already; WROTE: they were
     * written; WRITE: strata shall. NULL: its frames are not reclaimed.
     */
    enum strata_zone_answer (*reclaim)(struct strata_zone *zone, uint64_t frame, uint64_t frames, uint64_t token, bool dirty, void *context);
    void *context;
};
/*
 * strata_zone_owner_add - makes an owner known, for the life of the zone.
 *
 * owner: copied. number: receives what allocations name it by, 1 to STRATA_ZONE_OWNERS_MAX. Returns STRATA_ZONE_OK; STRATA_ZONE_NO_MEMORY: there
 * are that many already; STRATA_ZONE_BAD_ARGUMENT: its name is NULL. Cost: constant, under the zone's lock. (Sections 3 and 7.1.)
 */
STRATA_API enum strata_zone_status strata_zone_owner_add(struct strata_zone *zone, const struct strata_zone_owner *owner,
                                                         unsigned *number) STRATA_NOEXCEPT;

/* ------------------------------------------------------------------ frames */

enum strata_zone_alloc_flags {
    STRATA_ZONE_NO_FALLBACK = 1, /* never from a superpage of another group */
    STRATA_ZONE_NO_RESERVE = 2,  /* nor from the reserve */
    STRATA_ZONE_NO_EFFORT = 4,   /* what is free, or STRATA_ZONE_NO_FRAMES: no compaction, no reclaim, no function of the program */
    STRATA_ZONE_HIGH = 8, /* a run of whole superpages: the highest that will do; else unmovable ones get the lowest, movable ones the highest */
};
struct strata_zone_request {
    /* Above 0; any number: what passes a superpage gets whole superpages, adjacent, and gives back what is left. Such a run stays where it is,
     * movable or not, until it is freed: nobody is asked to move or drop a block that is larger than a superpage. */
    uint64_t frames;
    uint64_t align_frames; /* a power of two; 0: 1, but a power of two of frames is aligned to itself up to a superpage */
    enum strata_zone_mobility mobility;
    unsigned owner; /* of strata_zone_owner_add; 0: nobody is asked: a block moves only while windows show all of it, and is never reclaimed */
    unsigned flags; /* enum strata_zone_alloc_flags, joined by | */
    uint64_t token; /* the owner's own name for the block */
};
/*
 * strata_zone_alloc, strata_zone_alloc_as - a run of frames. The contents are whatever was there.
 *
 * frame: receives the first, on success only. Returns STRATA_ZONE_OK; STRATA_ZONE_NO_FRAMES; STRATA_ZONE_BAD_ARGUMENT; STRATA_ZONE_NO_MEMORY.
 * Placement: from the fullest superpage of the mobility's group that has the run; else from one that is wholly free, beyond the reserve; else from
 * another group's, that with the largest free area, which changes its group when most of it changes hands (not to the movable one: such frames go
 * again); else from the reserve. Then, unless told otherwise, by compaction and reclaim as far as the zone has them on (strata_zone_set_effort).
 * A run that is aligned beyond a superpage is had from wholly free ones only. STRATA_ZONE_NO_FRAMES: at a moment of the call no such run was free.
 * Cost: one lock that a CPU has mostly to itself up to a superpage, constant; above that linear in the superpages of the zone, 1/64 ns each, and
 * in those of the run, 20 ns each, the first time up to 6 us. Where nothing is found, or nothing but by a look into each superpage (for runs that are
 * no power of two, or aligned beyond it): a lock for each CPU, and some 50 ns a superpage for such runs. (Sections 2.1 and 2.2.)
 */
STRATA_API enum strata_zone_status strata_zone_alloc(struct strata_zone *zone, uint64_t frames, enum strata_zone_mobility mobility,
                                                     uint64_t *frame) STRATA_NOEXCEPT;
STRATA_API enum strata_zone_status strata_zone_alloc_as(struct strata_zone *zone, const struct strata_zone_request *request,
                                                        uint64_t *frame) STRATA_NOEXCEPT;
/*
 * strata_zone_free - frees a run: of one allocation or a part of it, or of several that are neighbours; what is left of a block that is cut is a
 * block.
 *
 * Returns STRATA_ZONE_OK; STRATA_ZONE_BAD_ARGUMENT: not in the zone; STRATA_ZONE_NOT_ALLOCATED; STRATA_ZONE_PINNED; STRATA_ZONE_MAPPED;
 * STRATA_ZONE_BUSY: a part of a block that is being moved (the whole block is freed when that has ended). Cost: above a superpage 80 ns for each.
 */
STRATA_API enum strata_zone_status strata_zone_free(struct strata_zone *zone, uint64_t frame, uint64_t frames) STRATA_NOEXCEPT;

/*
 * strata_zone_pin, strata_zone_unpin - a pinned frame stays where it is, as for DMA; its block with it. Pins count, up to STRATA_ZONE_PINS_MAX.
 *
 * Returns STRATA_ZONE_OK; STRATA_ZONE_NOT_ALLOCATED; STRATA_ZONE_BUSY: it is being moved right now, so that the caller's number is about to be
 * wrong; STRATA_ZONE_PINNED: too often; STRATA_ZONE_NOT_PINNED: some frame of the run isn't, and none was unpinned; STRATA_ZONE_BAD_ARGUMENT: not in
 * the zone. Cost: the lock of the run's superpage, or the zone's for a run in several; linear in frames. (A pinned frame is what section 2.1 calls
 * unmovable, for as long as it is; section 7.1 leaves it alone.)
 */
STRATA_API enum strata_zone_status strata_zone_pin(struct strata_zone *zone, uint64_t frame, uint64_t frames) STRATA_NOEXCEPT;
STRATA_API enum strata_zone_status strata_zone_unpin(struct strata_zone *zone, uint64_t frame, uint64_t frames) STRATA_NOEXCEPT;

struct strata_zone_frame_info {
    bool allocated, pinned, moving, mapped;
    bool captured;                      /* neither free nor allocated: held for a contiguous request */
    enum strata_zone_mobility mobility; /* of the frame */
    enum strata_zone_mobility group;    /* of its superpage; STRATA_ZONE_MOBILITIES: wholly free, and of none */
    uint64_t first, frames;             /* the block it is in, as a whole; of one that is free, itself */
    unsigned owner, pins;
    uint64_t token;
};
/* strata_zone_query - what is known of a frame now. The bounds of a block of several superpages are of no one moment where a part of it is being
 * freed. Cost: constant, and linear in the superpages of its block. */
STRATA_API enum strata_zone_status strata_zone_query(struct strata_zone *zone, uint64_t frame, struct strata_zone_frame_info *info) STRATA_NOEXCEPT;

/* ------------------------------------------------------------------ contents and addresses */

/* strata_zone_address - where all frames are always in reach, in order: those of the first begin at frame 0. NULL: no such frame, or no memory.
 * Cost: constant, no lock. */
STRATA_API void *strata_zone_address(struct strata_zone *zone, uint64_t frame) STRATA_NOEXCEPT;
/* The file number of the memory, which stays strata's; -1: none. The file keeps its size whatever others do with it, where the system has seals. A
 * program that closes it, as by closefrom, has lost the number alone: what it has under the same number later is its own.
 * strata_zone_frame_bytes: of a frame; 0 for NULL. */
STRATA_API int strata_zone_file(struct strata_zone *zone) STRATA_NOEXCEPT;
STRATA_API size_t strata_zone_frame_bytes(struct strata_zone *zone) STRATA_NOEXCEPT;
STRATA_API uint64_t strata_zone_frames(struct strata_zone *zone) STRATA_NOEXCEPT;
/* strata_zone_copy - the contents of one run to another, both allocated (blocks that are being moved are) and not overlapping. Returns
 * STRATA_ZONE_OK; STRATA_ZONE_BAD_ARGUMENT; STRATA_ZONE_NOT_ALLOCATED, and nothing was copied. */
STRATA_API enum strata_zone_status strata_zone_copy(struct strata_zone *zone, uint64_t from, uint64_t to, uint64_t frames) STRATA_NOEXCEPT;
/*
 * The first word of a frame, read or written atomically: on STRATA_ZONE_SIM, all that it has. Counts as a reference (and a write) of the frame there.
 * strata_zone_touch: the same without a look, on any zone; `write` is of no meaning but on STRATA_ZONE_SIM. No such frame: reads 0, writes nothing.
 */
STRATA_API uint64_t strata_zone_peek(struct strata_zone *zone, uint64_t frame) STRATA_NOEXCEPT;
STRATA_API void strata_zone_poke(struct strata_zone *zone, uint64_t frame, uint64_t word) STRATA_NOEXCEPT;
STRATA_API void strata_zone_touch(struct strata_zone *zone, uint64_t frame, bool write) STRATA_NOEXCEPT;
/*
 * strata_zone_populate - memory behind a run is taken now, so that touching it can't fail (a write that finds none ends the process by SIGBUS, or by
 * the system's killer). The contents stay.
 *
 * Returns STRATA_ZONE_OK; STRATA_ZONE_NO_MEMORY: the system has none (STRATA_ZONE_HUGETLB: its pool), or no more for the file (STRATA_ZONE_MEMFD): a
 * part of the run may have its memory then, and nothing else has changed; STRATA_ZONE_NOT_ALLOCATED; STRATA_ZONE_BUSY: being moved;
 * STRATA_ZONE_BAD_ARGUMENT: not in the zone. Where a memory control group is at its limit, the system ends a process of the group here, too. On
 * STRATA_ZONE_SIM it does nothing. Cost: linear in frames: those without memory are cleared by the system, the others looked at. No lock while it
 * does.
 *
 * strata_zone_discard - gives the memory back; the run stays allocated, and reads as zeros, which counts as written.
 *
 * Returns STRATA_ZONE_OK; STRATA_ZONE_UNSUPPORTED: the system can't take it out, as of shared memory that the process has locked (mlock);
 * STRATA_ZONE_NOT_ALLOCATED, STRATA_ZONE_BUSY, STRATA_ZONE_BAD_ARGUMENT: as above. Pinned and mapped frames may be discarded: what shows them shows
 * zeros. Parts of STRATA_ZONE_HUGETLB's pages are cleared; whole ones go back to the system's pool, of which they are no more the zone's:
 * strata_zone_populate takes them again, or tells that others have them (STRATA_ZONE_NO_MEMORY), where a touch would end the process by SIGBUS. Cost:
 * of the system's call, linear in frames that have memory.
 */
STRATA_API enum strata_zone_status strata_zone_populate(struct strata_zone *zone, uint64_t frame, uint64_t frames) STRATA_NOEXCEPT;
STRATA_API enum strata_zone_status strata_zone_discard(struct strata_zone *zone, uint64_t frame, uint64_t frames) STRATA_NOEXCEPT;

/*
 * Windows: address space of which each page shows a frame that the program chooses. strata moves movable frames that are in a window behind its back:
 * the address stays, and strata_zone_frame_at tells the frame. A frame is in one window at a time. A block without an owner moves only while all of
 * its frames are in windows: nobody could be told the new number of one that is not. Where userfaultfd does not serve faults of system calls, or the
 * process has no mappings left, frames that are in a window stay where they are: a move is refused as if an owner had said STRATA_ZONE_LATER. That is
 * so where userfaultfd is forbidden, and for processes without privilege (CAP_SYS_PTRACE, or vm.unprivileged_userfaultfd), in which a read(2) into a
 * page would fail with EFAULT while it moves. Windows of STRATA_ZONE_HUGETLB show whole superpages, and so does whatever is said of them below:
 * sizes, addresses and first frames are multiples of one. (They are to strata what page tables are to the migration of section 7.1: the address
 * stays, the frame doesn't.)
 */
/*
 * strata_zone_window_open - address space for so many pages, which show nothing yet.
 *
 * bytes: a multiple of the frame's size (STRATA_ZONE_HUGETLB: of a superpage), above 0. address: receives it, aligned to a superpage. Returns
 * STRATA_ZONE_OK; STRATA_ZONE_BAD_ARGUMENT; STRATA_ZONE_UNSUPPORTED: frames of STRATA_ZONE_ANON, _HEAP and _SIM can't be shown elsewhere;
 * STRATA_ZONE_NO_MEMORY: of address space, or for the window's table. Cost: two or three calls of the system; 4 bytes for each page that shows a
 * frame.
 */
STRATA_API enum strata_zone_status strata_zone_window_open(struct strata_zone *zone, size_t bytes, void **address) STRATA_NOEXCEPT;
/* strata_zone_window_close - STRATA_ZONE_OK; STRATA_ZONE_MAPPED: it still shows frames; STRATA_ZONE_BAD_ARGUMENT: no window begins there. Cost:
 * linear in windows, and two calls of the system. */
STRATA_API enum strata_zone_status strata_zone_window_close(struct strata_zone *zone, void *address) STRATA_NOEXCEPT;
/*
 * strata_zone_map - pages from `address` on, inside one window, show the frames of the run, which must be allocated.
 *
 * Returns STRATA_ZONE_OK; STRATA_ZONE_BAD_ARGUMENT: not in a window, or no multiple of a frame's size; STRATA_ZONE_MAPPED: of either side;
 * STRATA_ZONE_NOT_ALLOCATED; STRATA_ZONE_BUSY; STRATA_ZONE_NO_MEMORY: the process has no mappings left; STRATA_ZONE_UNSUPPORTED. The run counts as
 * pinned meanwhile (a free answers STRATA_ZONE_PINNED), by a pin that strata_zone_unpin does not reach. Cost: the zone's lock, two calls of the
 * system under it, linear in frames and in windows.
 */
STRATA_API enum strata_zone_status strata_zone_map(struct strata_zone *zone, uint64_t frame, uint64_t frames, void *address) STRATA_NOEXCEPT;
/* strata_zone_unmap - the pages show nothing any more: touching them raises SIGSEGV. STRATA_ZONE_NOT_MAPPED: some showed nothing; nothing has
 * changed. STRATA_ZONE_NO_MEMORY: the process has no mappings left for the borders of what stays; nothing has changed. STRATA_ZONE_BUSY: a page is
 * being moved. STRATA_ZONE_BAD_ARGUMENT, STRATA_ZONE_UNSUPPORTED: as strata_zone_map, also what it says of pins. Cost: one call of the system; two
 * locks for each page, and in one of them a look for its window. */
STRATA_API enum strata_zone_status strata_zone_unmap(struct strata_zone *zone, void *address, size_t bytes) STRATA_NOEXCEPT;
/* strata_zone_frame_at - the frame that a page shows now. STRATA_ZONE_NOT_MAPPED. Pin it where it must stay that one: see strata_zone_pin_at. Cost:
 * the zone's lock, linear in windows. */
STRATA_API enum strata_zone_status strata_zone_frame_at(struct strata_zone *zone, const void *address, uint64_t *frame) STRATA_NOEXCEPT;
/* strata_zone_pin_at - pins the frame that a page shows, which is told: it can't move between the two. STRATA_ZONE_NOT_MAPPED, STRATA_ZONE_BUSY;
 * STRATA_ZONE_PINNED: too often. Cost: as strata_zone_frame_at and strata_zone_pin; again where it has moved meanwhile. */
STRATA_API enum strata_zone_status strata_zone_pin_at(struct strata_zone *zone, const void *address, uint64_t *frame) STRATA_NOEXCEPT;

/* ------------------------------------------------------------------ placement */

/*
 * strata_zone_partition_resize - the movable partition gets another size; rounded up to superpages; 0: none.
 *
 * What lies in it is movable or reclaimable by its request. Whether it can be had back is another thing: frames without an owner that are in no
 * window are nobody's to move or drop, as is what is pinned, what an owner keeps, and a run larger than a superpage, until it is freed. A partition
 * of which every superpage shall be had has to be kept free of them by the program. STRATA_ZONE_BAD_ARGUMENT: larger than the zone. STRATA_ZONE_BUSY:
 * unmovable frames lie, or are captured, where it would grow; nothing has changed. It can always shrink: what lies in it stays there, among others
 * from then on. Cost: linear in the superpages that change sides. (Section 2.2.)
 */
STRATA_API enum strata_zone_status strata_zone_partition_resize(struct strata_zone *zone, uint64_t bytes) STRATA_NOEXCEPT;
/* strata_zone_set_reserve - another reserve; STRATA_ZONE_BAD_ARGUMENT: larger than the zone. Takes effect as superpages become free. Cost: constant.
 * (Section 2.1.) */
STRATA_API enum strata_zone_status strata_zone_set_reserve(struct strata_zone *zone, uint64_t bytes) STRATA_NOEXCEPT;

/* ------------------------------------------------------------------ capture */

/*
 * Frames of a range that is wanted as a whole are kept for whoever wants it: those that are free at once, the others in the moment in which they are
 * freed, moved away or reclaimed. Nobody else is given them until the request is done, or given up. Blocks larger than a superpage are not moved away
 * or reclaimed: a range that holds a part of one is had when that is freed. (Section 8.)
 */
#define STRATA_ZONE_CAPTURES_MAX 64u /* of a zone, under way at a time: those of strata_zone_capture_run, and of requests that reclaim, count */
enum strata_zone_capture_flags {
    STRATA_ZONE_CAPTURE_AT = 1,         /* the range that begins with `at`; else one with little to be moved and dropped, and nothing that can't */
    STRATA_ZONE_CAPTURE_NO_RECLAIM = 2, /* moves, drops nothing */
    STRATA_ZONE_CAPTURE_NO_HOLD = 4,    /* frames that become free are anybody's: for experiments, figure 11 */
};
struct strata_zone_capture_request {
    uint64_t frames;       /* as of a strata_zone_request; runs above a superpage are rounded up to superpages, and the rest freed in the end */
    uint64_t align_frames; /* likewise; of what lies at `at` 0 asks for nothing */
    uint64_t at; /* with STRATA_ZONE_CAPTURE_AT: a multiple of align_frames, and of a superpage where the run is longer than one, else within one */
    enum strata_zone_mobility mobility; /* of the run, once it is the program's */
    unsigned owner;
    unsigned flags; /* enum strata_zone_capture_flags, joined by | */
    uint64_t token;
};
/*
 * strata_zone_capture_run - the range is chosen, emptied and captured, all in this call, which asks owners to move and drop their frames.
 *
 * frame: receives the first of the run. Returns STRATA_ZONE_OK; STRATA_ZONE_NO_FRAMES: no range has only free, movable and reclaimable frames, or
 * what was tried could not be emptied; STRATA_ZONE_BAD_ARGUMENT; STRATA_ZONE_BUSY: another capture wants a part of that range (with
 * STRATA_ZONE_CAPTURE_AT); STRATA_ZONE_NO_MEMORY: STRATA_ZONE_CAPTURES_MAX are under way. Cost: of what has to be moved; of the search, a look at
 * each range until one will do, then at up to 1,024 more.
 */
STRATA_API enum strata_zone_status strata_zone_capture_run(struct strata_zone *zone, const struct strata_zone_capture_request *request,
                                                           uint64_t *frame);
/*
 * The same step by step, by one thread at a time: calls on the same capture must not overlap. An owner's function that push has called must not call
 * any of them on it.
 *
 * begin: chooses the range and holds what is free of it; returns what strata_zone_capture_run does.
 * push: asks owners about what is left, up to `blocks` of them, and goes on there the next time. STRATA_ZONE_OK: none of these stayed;
 * STRATA_ZONE_GONE: one is unmovable, larger than a superpage, nobody can be asked about it, or its owner has said STRATA_ZONE_NEVER; else of the
 * first that stayed: STRATA_ZONE_BUSY: its owner has said STRATA_ZONE_LATER, there is no room for it elsewhere, or somebody else moves it;
 * STRATA_ZONE_PINNED. It may be tried again: what stayed can still be freed.
 *
 * poll: STRATA_ZONE_OK: all frames are held; STRATA_ZONE_NOT_DONE; STRATA_ZONE_GONE: and a push has found what stays. left: of frames that are not
 * held yet; both may be NULL. end: STRATA_ZONE_OK: the run becomes the caller's, and the capture is no more; STRATA_ZONE_NOT_DONE, STRATA_ZONE_GONE:
 * as poll has it, and the capture goes on until it is given up. give_up: all that is held is free again, and the capture is no more.
 *
 * Cost: begin: of the search, as strata_zone_capture_run; begin, end and give_up: the zone's lock, linear in the superpages of the range. push: a
 * lock for each block, and what moving and dropping it costs. poll: constant; with STRATA_ZONE_CAPTURE_NO_HOLD linear in superpages. A free of frames
 * that are wanted costs an atomic addition more. (Section 8.2.)
 *
 * One that is no more is recognised: STRATA_ZONE_BAD_ARGUMENT, which strata_zone_explain explains, also of give_up; nothing has changed. That holds
 * until the zone has begun 16,000 others; fewer where many are under way, 255 at least.
 */
STRATA_API enum strata_zone_status strata_zone_capture_begin(struct strata_zone *zone, const struct strata_zone_capture_request *request,
                                                             struct strata_zone_capture **capture) STRATA_NOEXCEPT STRATA_NODISCARD;
STRATA_API enum strata_zone_status strata_zone_capture_push(struct strata_zone_capture *capture, uint64_t blocks);
STRATA_API enum strata_zone_status strata_zone_capture_poll(struct strata_zone_capture *capture, uint64_t *first, uint64_t *left) STRATA_NOEXCEPT;
STRATA_API enum strata_zone_status strata_zone_capture_end(struct strata_zone_capture *capture, uint64_t *frame) STRATA_NOEXCEPT;
STRATA_API void strata_zone_capture_give_up(struct strata_zone_capture *capture) STRATA_NOEXCEPT;

/* ------------------------------------------------------------------ effort */

enum strata_zone_effort {
    STRATA_ZONE_COMPACT = 1,          /* passes of compaction (strata/zone_compact.h), where it is pieces that are in the way */
    STRATA_ZONE_RECLAIM = 2,          /* reclaim, where it was started (strata/zone_reclaim.h) */
    STRATA_ZONE_RECLAIM_CAPTURES = 4, /* with it: an area that is emptied for a request is captured for it; of policies that empty areas */
};
/*
 * strata_zone_set_effort - what strata_zone_alloc does from now on once nothing suitable is free: figure 10. At first, all of it.
 *
 * effort: enum strata_zone_effort, joined by |; 0: nothing. Returns STRATA_ZONE_OK; STRATA_ZONE_BAD_ARGUMENT: other bits. Cost: constant.
 * Compaction for a request always holds the range that it empties: what is free of it, and what moves leave, is nobody's until the request has all of
 * it, or the range is given up. So it loses no race, unless 64 captures are under way at the same moment: then it holds nothing, and what others
 * have got to is counted, as races_lost of strata_zone_compact_counts and, by the frame, of strata_zone_stats. What passes hold is not among the
 * captures that are counted.
 * Where another thread's pass is under way, a request waits for its end, and looks again; up to four times. Once that pass has stood still for 0.3 s
 * in a function of the program, or at once where the request is made by a function that strata has called (for whatever zone), it looks once more and
 * goes on without compaction: so a program may allocate with a lock in its hands that its owners' functions take, at the risk of
 * STRATA_ZONE_NO_FRAMES after that time. (Sections 7.2 and 8.)
 */
STRATA_API enum strata_zone_status strata_zone_set_effort(struct strata_zone *zone, unsigned effort) STRATA_NOEXCEPT;

/* ------------------------------------------------------------------ looking inside */

struct strata_zone_stats {
    char name[STRATA_ZONE_NAME_BYTES];
    enum strata_zone_backend backend;
    size_t frame_bytes;
    uint64_t frames, superpages, superpage_frames;
    uint64_t free;                                     /* frames */
    uint64_t used[STRATA_ZONE_MOBILITIES];             /* allocated frames of each mobility */
    uint64_t group_superpages[STRATA_ZONE_MOBILITIES]; /* that are not wholly free */
    uint64_t mixed_superpages;                         /* of them: with frames of another mobility than their group's */
    uint64_t free_superpages, reserve_superpages, partition_superpages;
    uint64_t pinned, mapped, captured, moving; /* frames; the last one: blocks */
    uint64_t free_blocks[STRATA_ZONE_ORDERS];  /* free frames as the largest aligned blocks of 2^order */
    uint64_t captures;                         /* under way */
    /* counted since the start */
    uint64_t allocs, failures; /* calls */
    uint64_t fallbacks;        /* from a superpage of another group; also small runs that a capture or a pass of compaction gave from one */
    uint64_t retypes;          /* superpages that changed their group by that */
    uint64_t reserve_uses;     /* superpages taken from the reserve */
    uint64_t captures_begun, captures_done, captures_lost, captures_given_up;
    uint64_t races_lost;     /* frames that were held, dropped or moved away for a contiguous request, and taken by others */
    uint64_t metadata_bytes; /* reserved for what strata remembers; how much of it is resident depends on use */
};
/* strata_zone_stats_get - exact where no other thread is in a call. Cost: linear in superpages. */
STRATA_API enum strata_zone_status strata_zone_stats_get(struct strata_zone *zone, struct strata_zone_stats *stats) STRATA_NOEXCEPT;

/* What a superpage is, for a map of the zone (figure 1). */
struct strata_zone_superpage {
    enum strata_zone_mobility group; /* STRATA_ZONE_MOBILITIES: wholly free */
    uint16_t free;                   /* frames */
    uint16_t used[STRATA_ZONE_MOBILITIES];
    uint16_t pinned, captured;
    bool partition;
};
/* strata_zone_map_get - superpages [first, first + count) as they are now. STRATA_ZONE_BAD_ARGUMENT: there are fewer, and nothing is
 * written. Cost: a lock for each superpage. (Figure 1.) */
STRATA_API enum strata_zone_status strata_zone_map_get(struct strata_zone *zone, uint64_t first, uint64_t count,
                                                       struct strata_zone_superpage *superpages) STRATA_NOEXCEPT;

/*
 * strata_zone_check - NULL when all that strata knows of the zone agrees with itself, else what doesn't. Where no other thread is in a call on
 * the zone. Cost: linear in superpages, some 0.2 us each, and in the frames that are movable, owned, pinned or mapped.
 */
STRATA_API const char *strata_zone_check(struct strata_zone *zone) STRATA_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
