/*
 * frames_internal.h - what the files of frames_*.c share. Private to page/. Locks: see frames.h.
 *
 *   frames_zone.c      life, owners, statistics        frames_capture.c   capture
 *   frames_place.c     alloc and free of what is there frames_move.c      isolation, and moving or dropping one isolated block
 *   frames_list.c      lists, slots, locks             frames_window.c    windows
 *   frames_pin.c       pins, query                     frames_backend.c   the memory behind the frames
 *   frames_superpage.c pure transitions                frames_check.c     invariants
 *   frames_fork.c      steps, and fork
 *   frames_index.c     indices (section 7)             frames_compact.c, frames_reclaim.c, frames_lru.c, frames_told.c, frames_direct.c
 */
#ifndef STRATA_PAGE_FRAMES_INTERNAL_H
#define STRATA_PAGE_FRAMES_INTERNAL_H

#include "base/check.h"
#include "page/frames.h"
#include "page/frames_superpage.h"
#include "page/groups.h"

/*
 * A note of a frame, guarded by the lock of its superpage. Mobility, owner and what goes on with a block are in the note of its first frame; pins and
 * the window in the note of each frame. 0 for all frames of an unmovable block that nobody pins or maps.
 */
#define NOTE_MOBILITY UINT32_C(0x3)
#define NOTE_OWNER_SHIFT 2
#define NOTE_OWNER (UINT32_C(0xff) << NOTE_OWNER_SHIFT)
#define NOTE_MOVING (UINT32_C(1) << 10)  /* isolated */
#define NOTE_DEAD (UINT32_C(1) << 11)    /* freed meanwhile: whoever has isolated it frees it */
#define NOTE_NEVER (UINT32_C(1) << 12)   /* its owner does not want to be asked */
#define NOTE_MAPPED (UINT32_C(1) << 13)  /* in a window: zone->addresses */
#define NOTE_RUN (UINT32_C(1) << 16)     /* a part of a run of several superpages, each of which is a block: it does not move alone */
#define NOTE_GOES_ON (UINT32_C(1) << 17) /* with NOTE_RUN: not the first part; the superpage in front of it ends with the one before */
#define NOTE_HELD (UINT32_C(1) << 19)    /* pinned by who maps or unmaps it, under zone->hiding: nobody's to unpin */
#define NOTE_PIN_SHIFT 20
#define NOTE_PIN (UINT32_C(1) << NOTE_PIN_SHIFT)
#define NOTE_PINS (~UINT32_C(0) << NOTE_PIN_SHIFT | NOTE_HELD)
#define NOTE_OF_HEAD (NOTE_MOBILITY | NOTE_OWNER | NOTE_MOVING | NOTE_DEAD | NOTE_NEVER | NOTE_RUN | NOTE_GOES_ON)

STRATA_INLINE enum frames_mobility note_mobility(uint32_t note) { return (enum frames_mobility)(note & NOTE_MOBILITY); }
STRATA_INLINE unsigned note_owner(uint32_t note) { return (note & NOTE_OWNER) >> NOTE_OWNER_SHIFT; }
STRATA_INLINE unsigned note_pins(uint32_t note) { return note >> NOTE_PIN_SHIFT; }
STRATA_INLINE bool note_is_pinned(uint32_t note) { return (note & NOTE_PINS) != 0; }

/*
 * A range that is wanted as a whole. `held` follows the superpages' bits; next and gone are whose who has the capture, one thread at a time; the rest
 * by zone->lock. The program knows it by its address plus the generation, of which that has room for FRAMES_CAPTURE_ALIGN.
 */
#define FRAMES_CAPTURE_ALIGN 256u
struct frames_capture {
    struct frame_zone *zone;
    uint64_t first, frames; /* frames 0: this one is not in use */
    uint64_t wanted;        /* of them the program's, in the end */
    uint64_t held;          /* atomic */
    enum frames_mobility mobility;
    unsigned owner, flags;
    uint64_t token;
    uint64_t next;       /* frame at which push goes on */
    uint64_t emptied;    /* frames of the range that push has had moved or dropped */
    bool gone;           /* something is in the way that will stay */
    uint32_t generation; /* atomic: of captures that have begun in this place */
    uint32_t caller;     /* the thread in whose call it begins and ends; 0: the program's own, from call to call */
    uint32_t pusher;     /* atomic: the thread that pushes it right now */
} STRATA_ALIGNED(FRAMES_CAPTURE_ALIGN);

/* What a CPU has to itself: superpages that it allocates from, by mobility, and one for whole superpages. */
#define SLOT_WHOLE FRAMES_MOBILITIES
/*
 * How many blocks wait in a slot before the lists are told of them (frames_told.c): SLOT_BATCH, but no more than half a superpage's frames, so that
 * as little memory is of unknown age where frames are large (zone->batch). From there on it is tried now and then, and waited for at the last.
 */
#define SLOT_BATCH 192u
#define SLOT_RETRY(batch) ((batch) / 16)
#define SLOT_FULL(batch) ((batch) + 4 * SLOT_RETRY(batch))
#define SLOT_WAITS SLOT_FULL(SLOT_BATCH)
struct frames_slot {
    struct platform_lock lock; /* LOCK_RANK_FRAMES_SLOT */
    uint32_t reserved[FRAMES_MOBILITIES + 1];
    uint64_t allocs;
    int64_t free; /* free frames of its superpages; changes with them under the lock, atomic to read */
    /* frames_told.c: blocks of its superpages that reclaim's lists are still to be told of, in that order. waiting: atomic to read */
    uint32_t waiting, waits[SLOT_WAITS];
} STRATA_ALIGNED(128);

struct frames_window {
    struct frames_window *next; /* by creation */
    char *address;
    size_t bytes;
    uint64_t shown;   /* pages that show a frame */
    uint32_t *frames; /* of each page: 1 + the frame that it shows; 0: none. Under zone->lock, written under the superpage's too */
};

/* The memory behind the frames. Offsets and sizes are in bytes; all may be called with locks held, and keep errno. */
struct frames_backend {
    enum frames_status (*open)(struct frame_zone *zone, unsigned node);
    void (*close)(struct frame_zone *zone);
    void (*copy)(struct frame_zone *zone, uint64_t from, uint64_t to, uint64_t frames);
    bool (*populate)(struct frame_zone *zone, uint64_t frame, uint64_t frames);
    bool (*discard)(struct frame_zone *zone, uint64_t frame, uint64_t frames);
    /* NULL: can't. Shows the run at an address of a window; false: no mappings left, and the pages show nothing. */
    bool (*show)(struct frame_zone *zone, uint64_t frame, uint64_t frames, char *address);
};
extern const struct frames_backend frames_backend_memfd, frames_backend_hugetlb, frames_backend_anon, frames_backend_sim, frames_backend_heap;

/*
 * What compaction and reclaim want to be told, each set once by their start, or NULL. placed, leaving, moved: under the lock of the superpage, which
 * ranks above LOCK_RANK_FRAMES_LRU; of blocks with an owner only. placed: once the block is what it shall be. leaving: as long as it is, or when
 * its note is gone. fell_back, grew_short: with no lock held.
 */
struct frames_hooks {
    void (*placed)(struct frame_zone *zone, uint64_t frame, uint64_t frames, uint32_t note);
    void (*leaving)(struct frame_zone *zone, uint64_t frame, uint64_t frames, uint32_t note);
    void (*moved)(struct frame_zone *zone, uint64_t from, uint64_t to, uint64_t frames);
    void (*freed)(struct frame_zone *zone, uint64_t frame, uint64_t frames); /* as leaving, but of the frames that go */
    void (*fell_back)(struct frame_zone *zone);                              /* an allocation went to another group's superpage */
    void (*grew_short)(struct frame_zone *zone, uint64_t free); /* free frames fell below low_frames; told once until they are above again */
};

/* Superpages of a zone so large that a request does not have all of them looked at: parts of it in turn, or a sample. */
#define FRAMES_LARGE 1024u

#define FRAMES_SETS (2 * FRAMES_MOBILITIES)
struct frame_zone {
    /* immutable */
    char name[FRAMES_NAME_BYTES];
    enum frames_backend_kind kind;
    const struct frames_backend *backend;
    const struct frames_lender *lender;           /* of FRAMES_HEAP */
    unsigned flags, frame_shift, superpage_shift; /* log2 of bytes in a frame, and of frames in a superpage */
    unsigned superpage_frames;
    unsigned batch; /* of blocks that wait in a slot: see SLOT_BATCH */
    unsigned slot_count;
    uint64_t frames, superpage_count;
    struct frames_superpage *superpages;
    struct frames_slot *slots;
    uint32_t *notes;                 /* a frame each, and so on */
    uint64_t *tokens;                /* of first frames of blocks with an owner; by the superpage's lock */
    uint64_t *addresses;             /* pages of windows that show them; where NOTE_MAPPED */
    char *base;                      /* the memory; NULL on FRAMES_SIM */
    uint64_t *words;                 /* the contents on FRAMES_SIM; atomic */
    uint64_t (*waits)[FRAMES_WORDS]; /* a bit a frame: it waits in the slot that has its superpage; by the superpage's lock. frames_told.c */
    uint64_t *droppable;             /* a bit a superpage: frames_is_droppable; atomic, changed by the superpage's lock */
    uint64_t *referenced, *dirty;    /* a bit a frame: frames_used_word; atomic: set by frames_touch. dirty: of FRAMES_SIM alone. frames_used.c */
    int file;
    uint64_t file_device, file_inode; /* by which it is known */
    char *memory;                     /* all the arrays, and this struct */
    size_t memory_bytes;

    struct platform_lock lock STRATA_ALIGNED(128); /* LOCK_RANK_FRAMES; guards the rest, where nothing else is said */
    uint32_t lists[FRAMES_SETS][FRAMES_LISTS];     /* by mobility group, and those of the partition apart */
    uint64_t nonempty[FRAMES_SETS];                /* a bit a list */
    uint64_t *free_map, *free_summary;             /* superpages that are wholly free and nobody's: a bit each; a bit for each word with any */
    uint64_t free_superpages;                      /* of them; atomic to read */
    uint64_t free_frames;                          /* in superpages that no slot has; atomic to read */
    uint64_t reserve;                              /* superpages */
    uint32_t slots_closed;                         /* calls of frames_slots_close that frames_slots_open has not followed yet */
    uint64_t partition_first;                      /* the first superpage of the partition; superpage_count: none */
    unsigned effort;                               /* atomic */
    unsigned owner_count;                          /* atomic: the highest number that there ever was */
    struct frames_window *windows;
    struct platform_lock hiding;     /* LOCK_RANK_FRAMES_HIDING; frames_window.c, frames_reclaimer.c */
    struct frames_capture *captures; /* FRAMES_CAPTURES_MAX; numbered from 1 in superpages */
    unsigned capture_next;           /* of them, where the next one looks for a place first, so that none is had again soon */
    struct frames_hooks hooks;       /* atomic each */
    uint64_t low_frames;             /* atomic; 0: grew_short is never told */
    uint32_t is_short;               /* atomic: it was */

    /* counted; by the lock */
    uint64_t failures, fallbacks, retypes, reserve_uses, whole_allocs;
    uint64_t captures_begun, captures_done, captures_lost, captures_given_up;
    uint64_t mapped;         /* frames in windows */
    uint64_t again;          /* atomic: of allocs, those that were no calls */
    uint64_t not_failed;     /* atomic: of failures, those after which the call went on */
    uint64_t races_lost;     /* atomic */
    uint64_t capture_cursor; /* atomic: the range at which the next search for a capture begins, in a large zone */
    uint64_t moving;         /* atomic: isolated blocks */

    /* frames_fork.c. gate: atomic, a futex: the thread that forks, so that nobody begins a step; 0: none. steps: atomic, those under way */
    uint32_t gate, steps;
    bool fork_within;               /* the thread that forks is in an owner's function */
    bool fork_settled;              /* no step was under way once the gate was shut */
    struct platform_lock *fork_lru; /* that is held around the fork */
    struct frame_zone *next_zone;   /* api/: of all zones of the process */

    /* for compaction (frames_compact.c) and reclaim (frames_lru.c, frames_reclaim.c): theirs, NULL until they are first used */
    void *compaction, *reclaim;
    const char *complaint_function; /* the last misuse, for api/; NULL: none yet */
    struct frames_complaint complaint;

    struct frames_owner owners[FRAMES_OWNERS_MAX + 1];
    uint8_t owner_states[FRAMES_OWNERS_MAX + 1]; /* enum frames_owner_state; atomic: release after the owner is written */
};
/* GONE: removed, and its number is on frames still. */
enum frames_owner_state { OWNER_NONE, OWNER_KNOWN, OWNER_GONE };

STRATA_INLINE bool frames_is_large(const struct frame_zone *zone) { return zone->superpage_count > FRAMES_LARGE; }

/*
 * What is known of the frames of a large zone is looked up in no order, in arrays that are far beyond what the processor's tables of pages reach: on
 * ordinary pages most looks would wait twice. Where the system has no huge pages to give it stays with those.
 */
STRATA_INLINE void frames_advise_huge(const struct frame_zone *zone, void *memory, size_t bytes) {
    if (frames_is_large(zone)) (void)platform_advise_huge(memory, bytes, true);
}

STRATA_INLINE struct frames_superpage *frames_superpage_of(const struct frame_zone *zone, uint64_t frame) {
    return &zone->superpages[frame >> zone->superpage_shift];
}
STRATA_INLINE unsigned frames_offset_of(const struct frame_zone *zone, uint64_t frame) { return (unsigned)frame & (zone->superpage_frames - 1); }
STRATA_INLINE uint64_t frames_first_of(const struct frame_zone *zone, const struct frames_superpage *superpage) {
    return (uint64_t)(superpage - zone->superpages) << zone->superpage_shift;
}
/* frames_owner_is_known, in place. */
STRATA_INLINE bool frames_owner_is_known_here(const struct frame_zone *zone, unsigned number) {
    return number != 0 && number <= FRAMES_OWNERS_MAX && __atomic_load_n(&zone->owner_states[number], __ATOMIC_ACQUIRE) == OWNER_KNOWN;
}
/* Changes a note, and the count of those that are not 0. */
STRATA_INLINE void frames_note_set(struct frame_zone *zone, struct frames_superpage *superpage, uint64_t frame, uint32_t note) {
    uint32_t before = zone->notes[frame];
    zone->notes[frame] = note;
    superpage->noted = (uint16_t)(superpage->noted + (note != 0) - (before != 0));
}
/* One more block of the superpage is isolated. */
STRATA_INLINE void frames_note_isolated(struct frame_zone *zone, struct frames_superpage *superpage) {
    superpage->moving++;
    __atomic_fetch_add(&zone->moving, 1, __ATOMIC_RELAXED);
}

/* Under the superpage's lock: whether windows show all of a block. One without an owner moves only then: who has the number of a frame that no window
 * shows would never hear of another. */
STRATA_INLINE bool frames_all_shown(const struct frame_zone *zone, uint64_t first, unsigned count) {
    uint32_t notes = NOTE_MAPPED;
    for (unsigned i = 0; i < count; i++) notes &= zone->notes[first + i];
    return notes != 0;
}

/* ------------------------------------------------------------------ frames_list.c: locks, lists, slots */

/* Locks whatever guards the superpage; the slot that has it, NULL: none has, and the lock is the zone's. In place, for alloc and free alone. */
STRATA_INLINE struct frames_slot *frames_lock_here(struct frame_zone *zone, struct frames_superpage *superpage) {
    for (;;) {
        uint32_t number = __atomic_load_n(&superpage->slot, __ATOMIC_ACQUIRE);
        struct frames_slot *slot = number != FRAMES_NO_SLOT ? &zone->slots[number] : NULL;
        struct platform_lock *lock = slot != NULL ? &slot->lock : &zone->lock;
        platform_lock_acquire_here(lock);
        if (STRATA_LIKELY(__atomic_load_n(&superpage->slot, __ATOMIC_RELAXED) == number)) return slot;
        platform_lock_release(lock);
    }
}
STRATA_INLINE void frames_unlock_here(struct frame_zone *zone, struct frames_slot *slot) {
    platform_lock_release_here(slot != NULL ? &slot->lock : &zone->lock);
}
struct frames_slot *frames_lock(struct frame_zone *zone, struct frames_superpage *superpage);
void frames_unlock(struct frame_zone *zone, struct frames_slot *slot);
/* The zone's lock, with superpages [first, last] in no slot. */
void frames_lock_range(struct frame_zone *zone, uint64_t first, uint64_t last);
/* All slots give back what they have reserved, by and by. No lock held. */
void frames_slots_drain(struct frame_zone *zone);
/*
 * The same, and they reserve nothing more until frames_slots_open: what is free is then under the zone's lock, all of it at one moment, so that who
 * finds no room knows that there was none. close: no lock held; open: under the zone's.
 */
void frames_slots_close(struct frame_zone *zone);
void frames_slots_open(struct frame_zone *zone);
/* Under both locks: the superpage is the slot's from now on, which gives back the one that it had there. FRAMES_NO_SUPERPAGE: it has none then. */
void frames_slot_reserve(struct frame_zone *zone, struct frames_slot *slot, unsigned which, uint32_t superpage);
/* Under the zone's lock, of a superpage that no slot has: it stands where its counts and its group say. */
void frames_superpage_relink(struct frame_zone *zone, struct frames_superpage *superpage);
/*
 * Whether reclaim might empty the superpage, as far as its counts tell: it has blocks, none of them unmovable, and no capture holds a part of it. So
 * who looks for an area finds out in a pass over bits that there is none, however large the zone.
 */
STRATA_INLINE bool frames_is_droppable(const struct frame_zone *zone, const struct frames_superpage *superpage) {
    return superpage->used[FRAMES_UNMOVABLE] == 0 && superpage->captured_frames == 0 && superpage->free != zone->superpage_frames;
}
/* Its bit follows. Words are shared with superpages of other locks, so they change atomically; when they do, nobody waits for it. */
void frames_droppable_changed(struct frame_zone *zone, struct frames_superpage *superpage);
/* After a change under the lock that guards it: counters follow, and its list where no slot has it. free_before: its free frames before the change.
 */
STRATA_INLINE void frames_superpage_changed(struct frame_zone *zone, struct frames_superpage *superpage, struct frames_slot *slot,
                                            unsigned free_before) {
    int64_t more = (int64_t)superpage->free - free_before;
    if (STRATA_UNLIKELY(frames_is_droppable(zone, superpage) != superpage->droppable)) frames_droppable_changed(zone, superpage);
    if (slot != NULL) {
        __atomic_store_n(&slot->free, slot->free + more, __ATOMIC_RELAXED);
        return;
    }
    COUNTER_ADD(zone->free_frames, (uint64_t)more);
    frames_superpage_relink(zone, superpage);
}
/* Whether reclaim's lists are still to be told of what begins at a frame, so that there is nothing to tell now. Under the superpage's lock. */
STRATA_INLINE bool frames_waits(const struct frame_zone *zone, uint64_t frame) {
    return frames_bit(zone->waits[frame >> zone->superpage_shift], frames_offset_of(zone, frame));
}
/* The word of referenced, or dirty, with a frame's bit. Their words alternate, so that one line of the cache has both. */
STRATA_INLINE uint64_t *frames_used_word(uint64_t *bits, uint64_t frame) { return &bits[frame / 64 * 2]; }
/* Whether a run was used or written to since that was last forgotten: of one frame; true for longer ones, which takes a closer look. */
STRATA_INLINE bool frames_may_be_used(const struct frame_zone *zone, uint64_t frame, uint64_t frames) {
    uint64_t bits = __atomic_load_n(frames_used_word(zone->referenced, frame), __ATOMIC_RELAXED) |
                    __atomic_load_n(frames_used_word(zone->dirty, frame), __ATOMIC_RELAXED);
    return frames != 1 || (bits >> frame % 64 & 1) != 0;
}
/* Tells them of all that waits in a slot. Under its lock. */
void frames_settle(struct frame_zone *zone, struct frames_slot *slot);
/* Which lists are a group's, and the same in the partition. */
STRATA_INLINE unsigned frames_set_of(const struct frame_zone *zone, unsigned group, bool partition) {
    return ((zone->flags & FRAMES_NO_GROUPING) != 0 ? 0 : group) + (partition ? FRAMES_MOBILITIES : 0);
}
/* The fullest superpage of a set with a free block of the class, of those the one whose largest is smallest; FRAMES_NO_SUPERPAGE: none. */
uint32_t frames_list_find(const struct frame_zone *zone, unsigned set, unsigned class);
/* The one with the largest free block, of those the emptiest. */
uint32_t frames_list_find_largest(const struct frame_zone *zone, unsigned set, unsigned class);
/* Wholly free superpages, `count` of them side by side from a multiple of `align` on, in [from, end): the lowest, or the highest. UINT64_MAX: none.
 */
uint64_t frames_free_find(const struct frame_zone *zone, uint64_t from, uint64_t end, uint64_t count, uint64_t align, bool high);

/* ------------------------------------------------------------------ frames_place.c */

/* frames_alloc, of who is in a call already: statistics count calls. */
enum frames_status frames_alloc_again(struct frame_zone *zone, const struct frames_request *request, uint64_t *frame);
/* `frames` free frames of one superpage, aligned, become an isolated movable block (NOTE_MOVING) of the caller: for the free scanner. False: none. */
bool frames_take_in(struct frame_zone *zone, uint64_t superpage, uint64_t frames, uint64_t align, uint64_t *frame);
/* Gives up the same. */
void frames_give_back(struct frame_zone *zone, uint64_t frame, uint64_t frames);
/*
 * Under the lock: a block, or a part of one, becomes free, or goes to the capture that wants it; what is left behind it is a block of its own. None
 * of its frames is pinned or mapped.
 */
void frames_release(struct frame_zone *zone, struct frames_superpage *superpage, struct frames_slot *slot, unsigned first, unsigned count);
/* Frames of a range that are somebody's, or held, now. Of several superpages, of no one moment. No lock held. */
uint64_t frames_taken_of(struct frame_zone *zone, uint64_t first, uint64_t frames);
/* The block that an allocated offset is in. */
void frames_block_at(const struct frame_zone *zone, const struct frames_superpage *superpage, unsigned offset, unsigned *first, unsigned *count);

/* ------------------------------------------------------------------ frames_pin.c */

/*
 * As pins, and no program can undo them; a frame is held once at a time, by who has zone->hiding, and no fork sees it. unhold: of a run that is held
 * as a whole.
 */
enum frames_status frames_hold(struct frame_zone *zone, uint64_t frame, uint64_t frames);
void frames_unhold(struct frame_zone *zone, uint64_t frame, uint64_t frames);
/* Pins, or holds, a frame that the page at an address shows. FRAMES_NOT_MAPPED: it does not, and nothing was done. */
enum frames_status frames_pin_shown(struct frame_zone *zone, uint64_t frame, const void *address, bool holds);

/* ------------------------------------------------------------------ frames_move.c */

/* A block that nobody else may touch until frames_put_back, frames_drop or a frames_move that said YES. */
struct frames_block {
    uint64_t first, frames, token, address; /* address: 0: in no window */
    uint32_t note;                          /* as it was before */
};
/*
 * Isolates the block that `frame` is in. FRAMES_NOT_ALLOCATED (also of one that a capture holds), FRAMES_PINNED, FRAMES_BUSY: isolated by another;
 * FRAMES_UNSUPPORTED: unmovable, or nobody could be asked, and no windows show all of it, or its owner said NEVER, or it spans superpages. No lock
 * held.
 */
enum frames_status frames_isolate(struct frame_zone *zone, uint64_t frame, struct frames_block *block);
/* Everybody's again; or free, where it was freed meanwhile. never: it is not to be asked about again. */
void frames_put_back(struct frame_zone *zone, const struct frames_block *block, bool never);
/* The same, freed, its owner having dropped it: into the capture that wants it, or free. */
void frames_drop(struct frame_zone *zone, const struct frames_block *block);
/*
 * Moves an isolated block to `to`, of frames_take_in. YES: it is there, and everybody's; its old frames are free, or a capture's. Else it is still
 * isolated, and `to` still the caller's. Asks the owner, or, of a block without one in a window, copies while writers wait. No lock held.
 */
enum frames_answer frames_move(struct frame_zone *zone, struct frames_block *block, uint64_t to);
/* Asks the owner to drop an isolated block. YES, WROTE: frames_drop was done, or is left to frames_drop_all (later). Else it is still isolated. */
enum frames_answer frames_reclaim_block(struct frame_zone *zone, struct frames_block *block, bool later);
/* The blocks of a superpage that were to be dropped later become free in one step. heads: a bit for each, at its first frame. */
void frames_drop_all(struct frame_zone *zone, uint64_t superpage, const uint64_t *heads);

/* frames_fork.c: round the move or drop of an isolated block, up to where its owner and the zone agree on it again. begin waits while a thread forks.
 */
void frames_step_begin(struct frame_zone *zone);
void frames_step_end(struct frame_zone *zone);
/* In the child: what is compaction's and reclaim's. before, self: the thread's numbers in the parent and here. */
void frames_compaction_fork_child(struct frame_zone *zone, uint32_t before, uint32_t self);
void frames_reclaim_fork_child(struct frame_zone *zone, uint32_t before, uint32_t self);

/* frames_used.c: whether frames may have been written to. False: nobody has, for certain. */
bool frames_used_dirty(const struct frame_zone *zone, uint64_t first, uint64_t frames);

/* frames_window.c: all of them, whatever they show; the zone is being taken down. */
void frames_windows_close(struct frame_zone *zone);

#endif
