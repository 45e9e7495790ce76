/*
 * strata/page.h - blocks of whole pages that the process owns: resized, exchanged, moved, cut and joined by changing page tables, not by copying.
 *
 * A page that was touched once stays the process's: a block that is freed leaves its pages to the next, which then needs no fault and no clearing.
 * A block that grows takes its pages along to a new address; two blocks exchange their contents in the time that a few system calls take, whatever
 * their size. Blocks above 1 MiB begin at a multiple of STRATA_PAGE_SUPERPAGE_BYTES, where whole page tables change hands; smaller ones share
 * such superpages with others of their mobility. malloc's large blocks are blocks of this kind too: the functions here take them, and free()
 * takes those that were allocated here.
 *
 *     void *log, *next;
 *     if (strata_page_alloc(64 << 20, 0, &log) != STRATA_PAGE_OK) ...
 *     if (strata_page_realloc(&log, 128 << 20, 0) != STRATA_PAGE_OK) ...     // 64 MiB change their address; nothing is copied
 *     if (strata_page_swap(log, next, 64 << 20) != STRATA_PAGE_OK) ...       // double buffering without a pointer to update
 *
 * Valid in C11 and C++. For all functions, where nothing else is said:
 *   - sizes are in bytes. A page is that of the operating system (4, 16 or 64 KiB): sizes of blocks are rounded up to pages; addresses and sizes of
 *     ranges must be multiples of one, and lie inside one block;
 *   - the contents of a range are the caller's affair: no other thread may use a range, or its block, while it is resized, moved, exchanged or
 *     released. Different blocks may be used by different threads at any time, also neighbours in one superpage;
 *   - a status says what was wrong; whatever fails has changed nothing, but where it says so. errno stays as it was;
 *   - fork: the child has a copy of every block, as of all memory, and goes on;
 *   - signals: not async-signal-safe; a handler must not touch a range that its thread is in the middle of moving.
 *
 * The design follows Douglas, "User Mode Memory Page Allocation" (2011), sections 2 and 3.
 */
#ifndef STRATA_PAGE_PUBLIC_H
#define STRATA_PAGE_PUBLIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <strata/strata.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a page of page tables covers; large blocks begin and are cut at multiples of it. */
#define STRATA_PAGE_SUPERPAGE_BYTES ((size_t)2 << 20)

enum strata_page_status {
    STRATA_PAGE_OK = 0,
    STRATA_PAGE_NO_MEMORY,    /* the system, or a limit of the heap, has none */
    STRATA_PAGE_BAD_ARGUMENT, /* NULL, size 0 or past the end of memory, no multiple of a page, an alignment that is no power of two, flags that don't
                                 belong there */
    STRATA_PAGE_NO_BLOCK,     /* no block starts there; or the range is not inside one */
    STRATA_PAGE_OVERLAP,      /* two ranges, or two operations of a batch, want the same pages */
    STRATA_PAGE_NO_ROOM,      /* the address may not change, and what lies behind is taken */
    STRATA_PAGE_CUT_SHORT,    /* the caller's `progress` ended it */
    STRATA_PAGE_NOT_DONE,     /* of a batch: an operation before it failed */
};
/* A short English text, never NULL; also for values that are none. Async-signal-safe. */
STRATA_API const char *strata_page_status_text(enum strata_page_status status) STRATA_NOEXCEPT;

enum strata_page_flags {
    STRATA_PAGE_ZEROED = 1,     /* reads as zeros; else a new block may show what this process had there before */
    STRATA_PAGE_HUGE = 2,       /* whole superpages of huge pages, as far as the system has them, also when it grows: see strata_page_query */
    STRATA_PAGE_NO_MOVE = 4,    /* of a new block: its address never changes, by malloc's realloc neither; of strata_page_realloc: not in this call */
    STRATA_PAGE_PREFAULT = 8,   /* all pages are present when the call returns */
    STRATA_PAGE_UNMOVABLE = 16, /* of a new block of up to 1 MiB: it shares superpages with blocks that stay where they are */
    STRATA_PAGE_RECLAIMABLE = 32, /* likewise: with what can be had back when memory is short. Without both: with blocks that may move */
};

/* What strata_page_alloc_as wants to know. Zero what isn't needed, but for the size. */
struct strata_page_request {
    size_t bytes;
    size_t align;         /* a power of two; 0: a page, for blocks above 1 MiB STRATA_PAGE_SUPERPAGE_BYTES */
    size_t reserve_bytes; /* address space for growth in place: costs no memory. 0: what comes with the size */
    unsigned flags;       /* enum strata_page_flags, joined by | */
};

/*
 * strata_page_alloc, strata_page_alloc_as - a block of pages.
 *
 * bytes: above 0. block: receives the start, on success only. Returns STRATA_PAGE_OK, STRATA_PAGE_BAD_ARGUMENT, STRATA_PAGE_NO_MEMORY.
 * Cost: constant up to 1 MiB, above linear in superpages, some ns each; pages that wait in the lookaside are taken over as they are, others
 * come by faults when they are touched. With STRATA_PAGE_ZEROED, linear in the pages that are not zeros already; with STRATA_PAGE_PREFAULT,
 * linear in the pages that are absent. Where the address space has no superpages left for a block of more than 1 MiB, or one with STRATA_PAGE_HUGE,
 * some are emptied, if blocks in them may move (strata_page_set_move): linear in the heap, and what their owners' functions cost. (UMPA, section 3.)
 */
STRATA_API enum strata_page_status strata_page_alloc(size_t bytes, unsigned flags, void **block) STRATA_NOEXCEPT;
STRATA_API enum strata_page_status strata_page_alloc_as(const struct strata_page_request *request, void **block) STRATA_NOEXCEPT;

/*
 * strata_page_free - the pages go to the lookaside. block: NULL: nothing. Returns STRATA_PAGE_OK, STRATA_PAGE_NO_BLOCK. Cost: as of an allocation;
 * of a block that was exchanged, see strata_page_swap. (UMPA, section 3.)
 */
STRATA_API enum strata_page_status strata_page_free(void *block) STRATA_NOEXCEPT;

/*
 * strata_page_realloc - another size: in place where it can, else the pages go to a new address, which *block is then.
 *
 * block: of a block; its contents stay, up to the smaller size, as do its flags and the alignment that it was allocated with. bytes: above 0; a block
 * of STRATA_PAGE_HUGE stays one, of whole superpages. flags: STRATA_PAGE_ZEROED (what is new reads as zeros), STRATA_PAGE_NO_MOVE,
 * STRATA_PAGE_PREFAULT (all pages of the block, also of the part that was there, and at the same or a smaller size). Returns STRATA_PAGE_OK;
 * STRATA_PAGE_NO_ROOM, where the address may not change and can't stay; STRATA_PAGE_NO_MEMORY, also of a limit, whether the address would have to
 * change or not; STRATA_PAGE_NO_BLOCK; STRATA_PAGE_BAD_ARGUMENT. Cost: one system call or two, and linear in superpages, some 0.3 us each; pages that
 * are idle elsewhere are moved along, some 10 to 25 us for each stretch; a copy only for small blocks, up
 * to 2 MiB where as much is idle, and where the system has no mappings left; with STRATA_PAGE_PREFAULT, linear in the pages. (UMPA, section 3,
 * figure 11.)
 */
STRATA_API enum strata_page_status strata_page_realloc(void **block, size_t bytes, unsigned flags) STRATA_NOEXCEPT;

/*
 * strata_page_reserve - address space behind a block, so that it can grow to `bytes` where it is. Takes no memory, and stays the block's.
 *
 * bytes: the size for which there shall be room, above 0; up to the block's own, nothing is to be done. Returns STRATA_PAGE_OK, also where there was
 * room already; STRATA_PAGE_NO_ROOM, where other blocks lie behind, or the block is one of up to 1 MiB that shares its superpage;
 * STRATA_PAGE_NO_MEMORY, for strata's own tables; STRATA_PAGE_NO_BLOCK; STRATA_PAGE_BAD_ARGUMENT: 0, or above PTRDIFF_MAX. Cost: constant. (For the
 * extension of arrays in UMPA, section 2.)
 */
STRATA_API enum strata_page_status strata_page_reserve(void *block, size_t bytes) STRATA_NOEXCEPT;

/*
 * strata_page_set_move - lets strata give a block of up to 1 MiB another address when somebody wants a superpage, and free pages lie scattered.
 *
 * move: makes the block at `to`, of the same size, take the place of the one at `from`, contents (strata_page_move, memcpy) and all pointers to it,
 * and returns true: then `from` is strata's. Or returns false, and the block stays; `to` must not have been kept. NULL: the block stays where it is.
 * Returns STRATA_PAGE_OK; STRATA_PAGE_NO_BLOCK; STRATA_PAGE_BAD_ARGUMENT: it is one of STRATA_PAGE_NO_MOVE. Cost: constant.
 *
 * `move` runs in strata_page_alloc and strata_page_alloc_as of any thread, where these would fail otherwise for want of address space in whole
 * superpages (under RLIMIT_AS, or at the end of what the heap may have), with no lock of strata held, one call at a time in the process. malloc never
 * calls it. It may call strata, but not wait for a thread that may be in those two functions: rather return false. A lock of the program's must keep
 * it from the block's other users. Where the program frees the block while `move` is under way, on its own thread or another, that is remembered, and
 * done whatever the answer; until then the block grows by copies only (STRATA_PAGE_NO_ROOM where it may not move), and can't be joined. A block that
 * strata_page_realloc or a cut made of this one has the same function; where malloc's realloc moves a block, it
 * may lose it, as well as its flags and alignment (one of STRATA_PAGE_NO_MOVE does not move: NULL and ENOMEM). fork: in a child of a process in which
 * `move` ran on another thread, both blocks exist. (Contiguity paper, section 7.2.)
 */
typedef bool strata_page_move_function(void *from, void *to, size_t bytes, void *argument);
STRATA_API enum strata_page_status strata_page_set_move(void *block, strata_page_move_function *move, void *argument) STRATA_NOEXCEPT;

/*
 * strata_page_commit - makes the pages of a range present, with the contents that they have.
 *
 * Returns STRATA_PAGE_OK; STRATA_PAGE_BAD_ARGUMENT: address or size is no multiple of a page, or the size 0; STRATA_PAGE_NO_BLOCK. Where the system
 * has no memory, it does what it does to who touches a page. Cost: linear in the pages that are absent. (UMPA, section 3.)
 */
STRATA_API enum strata_page_status strata_page_commit(void *address, size_t bytes) STRATA_NOEXCEPT;
/*
 * strata_page_release - gives the pages of a range back to the system: it stays in its block, and reads as zeros. As strata does not see when they
 * are touched again, its own figures and limits (hard_limit, soft_limit, in use, populated) count them as before: what they shall not is freed, or
 * cut off by strata_page_realloc. Returns what strata_page_commit does. Cost: linear in the pages. (UMPA, section 3.)
 */
STRATA_API enum strata_page_status strata_page_release(void *address, size_t bytes) STRATA_NOEXCEPT;

/*
 * strata_page_prefault - as strata_page_commit, with a word in between: after each piece of up to 16 MiB `progress` is told how many bytes are done,
 * and ends it by false (STRATA_PAGE_CUT_SHORT, also after the last piece). progress: may be NULL, runs on this thread with no lock held, and must
 * leave the block as it is. Returns that, and what strata_page_commit does. Cost: as strata_page_commit. (Of the commit in UMPA, section 3.)
 */
STRATA_API enum strata_page_status strata_page_prefault(void *address, size_t bytes, bool (*progress)(size_t done, void *argument), void *argument);

/*
 * strata_page_swap - two ranges of equal size, in one block or two, exchange their contents.
 *
 * Returns STRATA_PAGE_OK; STRATA_PAGE_BAD_ARGUMENT, STRATA_PAGE_NO_BLOCK, STRATA_PAGE_OVERLAP. Cost: three moves of page tables for each stretch of
 * one mapping, some 17 us up to 4 MiB and 1.2 us for each superpage more, where both addresses are the same modulo STRATA_PAGE_SUPERPAGE_BYTES; else
 * 0.1 us a page. A block that strata_page_alloc makes of 32 MiB and more is one mapping, unless half of it was found present elsewhere; a smaller
 * one may have pieces of other blocks' pages, each of which costs three moves (4 MiB then take some 60 us). Small ranges, and all where the system
 * has no mappings left, by a copy. When both ranges are free, and were exchanged an odd number of times, the pages go back home: the
 * strata_page_free that ends this costs one exchange more. (UMPA, section 2.)
 */
STRATA_API enum strata_page_status strata_page_swap(void *a, void *b, size_t bytes) STRATA_NOEXCEPT;
/* strata_page_move - `to` gets the pages of `from`, which reads as zeros then. What `to` had is gone. Errors and cost: a third of strata_page_swap.
 */
STRATA_API enum strata_page_status strata_page_move(void *from, void *to, size_t bytes) STRATA_NOEXCEPT;

/*
 * strata_page_split - a block becomes two: of its first `bytes`, and of the rest, which begins behind them.
 *
 * bytes: a multiple of a page, of a block with superpages of its own of STRATA_PAGE_SUPERPAGE_BYTES; above 0, below the size. Superpages of its own
 * has a block above 1 MiB, one with address space reserved behind it or aligned to superpages, and what is left of such a one when it has been shrunk
 * or split. second: receives the start of the other one, unless NULL. Returns STRATA_PAGE_OK, STRATA_PAGE_BAD_ARGUMENT, STRATA_PAGE_NO_BLOCK,
 * STRATA_PAGE_NO_MEMORY. Cost: constant. (Not in the paper: what follows from pages that have an owner of their own; UMPA, section 2.)
 */
STRATA_API enum strata_page_status strata_page_split(void *block, size_t bytes, void **second) STRATA_NOEXCEPT;
/*
 * strata_page_join - a block and the one that begins where it ends become one.
 *
 * Returns STRATA_PAGE_OK; STRATA_PAGE_NO_BLOCK: one of the two is none; STRATA_PAGE_NO_ROOM: the second does not begin there, or they are not of one
 * kind (both with superpages of their own, or both in one superpage), or one of them is being moved (strata_page_set_move). Cost: constant. (As
 * strata_page_split.)
 */
STRATA_API enum strata_page_status strata_page_join(void *block, void *second) STRATA_NOEXCEPT;

struct strata_page_info {
    void *block;                     /* the start of the block that the address is in */
    size_t bytes;                    /* its size, in whole pages */
    size_t capacity_bytes;           /* to which it can grow in place */
    size_t present_bytes;            /* of its pages */
    size_t swapped_bytes;            /* in the system's swap */
    size_t zero_bytes;               /* known to be zeros: neither of the two */
    size_t huge_bytes;               /* of the present ones, by huge pages */
    bool presence_known, huge_known; /* the system could tell: else the figures are 0 */
    unsigned flags;                  /* STRATA_PAGE_HUGE, STRATA_PAGE_NO_MOVE, STRATA_PAGE_UNMOVABLE, STRATA_PAGE_RECLAIMABLE */
};
/*
 * strata_page_query - the block that an address is in, and what is there of it. address: any inside. Returns STRATA_PAGE_OK; STRATA_PAGE_NO_BLOCK;
 * STRATA_PAGE_BAD_ARGUMENT: info is NULL. Cost: linear in its pages, some 10 ns each. (Not in the paper, whose allocator keeps that to itself.)
 */
STRATA_API enum strata_page_status strata_page_query(const void *address, struct strata_page_info *info) STRATA_NOEXCEPT;

/* ------------------------------------------------------------------ batches */

enum strata_page_operation {
    STRATA_PAGE_OP_ALLOC,    /* as strata_page_alloc_as: bytes, flags, align, reserve_bytes; address: receives the block */
    STRATA_PAGE_OP_FREE,     /* address */
    STRATA_PAGE_OP_REALLOC,  /* address: the block, and receives where it is then; bytes, flags */
    STRATA_PAGE_OP_RESERVE,  /* address, bytes */
    STRATA_PAGE_OP_COMMIT,   /* address, bytes */
    STRATA_PAGE_OP_RELEASE,  /* address, bytes */
    STRATA_PAGE_OP_SWAP,     /* address, other, bytes */
    STRATA_PAGE_OP_MOVE,     /* from address to other, bytes */
    STRATA_PAGE_OP_SPLIT,    /* address, bytes; other: receives the second block */
    STRATA_PAGE_OP_JOIN,     /* address, other */
    STRATA_PAGE_OP_PREFAULT, /* address, bytes; progress, argument */
    STRATA_PAGE_OP_QUERY,    /* address; info */
    STRATA_PAGE_OP_SET_MOVE, /* address; move, argument */
};
/* What an operation has no use for is ignored, but for flags, which must be 0 then. */
struct strata_page_op {
    enum strata_page_operation operation;
    unsigned flags;
    void *address, *other;
    size_t bytes;
    size_t align, reserve_bytes; /* as in struct strata_page_request */
    union {
        bool (*progress)(size_t done, void *argument);
        strata_page_move_function *move;
        struct strata_page_info *info;
    };
    void *argument;                 /* of progress, or move */
    enum strata_page_status status; /* receives what became of it */
};
/*
 * strata_page_batch - operations one after the other, with as few system calls as possible. To free NULL is nothing, as by strata_page_free.
 *
 * ops: of `count`, each with its arguments; they and what they point to must not lie in the blocks that the batch is about. First the whole batch is
 * looked at: if anything in it is wrong, also blocks that can't be joined, or room for one that can't have any, or two operations want the same pages
 * and one of them ends, resizes, cuts or joins their block, nothing is done, those that are wrong have their status, and all others
 * STRATA_PAGE_NOT_DONE. Then they are done in order. One that fails for want of memory or room, or that its `progress` ends, ends the batch: what was
 * done before stays, and *done (unless NULL) says how many that were. Room is only known by then where operations before, or other threads, may take
 * or leave it: behind a block with superpages of its own that reserves, and behind any that grows and may not move.
 *
 * Returns STRATA_PAGE_OK, or the status of the first that failed. STRATA_PAGE_BAD_ARGUMENT with no status set: ops is NULL, or there are more than
 * UINT32_MAX. STRATA_PAGE_NO_MEMORY with each STRATA_PAGE_NOT_DONE: there was none for the look itself, which takes 64 bytes an operation.
 *
 * Neighbouring ranges that are exchanged or moved in a row go by one call, and all ranges that are committed (or made present without `progress`) or
 * released in a row by one call where the system has it (Linux 6.13), else by one for each stretch. Where no mappings are left for page tables to
 * move, scattered moves in a row into one block that lacks those pages go one by one, some 1 us each, others by copies. Functions of the program that
 * a batch calls (`progress`, and by an allocation `move` of other blocks) must leave its blocks as they are. Cost: n log n of the look, then that of
 * the operations. (The batches that UMPA asks for in sections 2, item 6, and 4, with the statuses of N1527.)
 */
STRATA_API enum strata_page_status strata_page_batch(struct strata_page_op *ops, size_t count, size_t *done) STRATA_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
