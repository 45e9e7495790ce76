/*
 * frames.h - a facade of page/: zones of page frames that a program owns (strata/zone.h). Apart from the heap's zone, of which nothing here knows.
 *
 * A frame is a number, a superpage the frames of 2 MiB. What is known of a superpage stands in one struct (frames_superpage.h, whose transitions are
 * pure); of single frames in arrays that are reserved for all and take memory where they are used: notes (mobility, owner, pins, what is going on),
 * tokens, addresses.
 *
 * Locks. A superpage is guarded by the lock of the slot that has reserved it, or by zone->lock where none has; frames_lock finds out which. A slot
 * belongs to a CPU, more or less: whoever runs there looks into it first, anybody may. So a CPU mostly takes a lock that nobody else wants. Whoever
 * reserves or gives back a superpage holds both locks: a slot's (LOCK_RANK_FRAMES_SLOT), then the zone's (LOCK_RANK_FRAMES). Neither is held while
 * a function of the program runs: the block in question is isolated meanwhile (NOTE_MOVING): allocated, but nobody's to free, pin or ask about.
 *
 * Invariants (frames_zone_check): for each superpage free + captured + used of all mobilities = its frames; free = frames - popcount(allocated);
 * heads are allocated, and the first allocated frame behind a free one is a head; captured frames are allocated and in no block; the list that it
 * stands in follows from its counts; the counters of the zone are sums; each isolated block has somebody who works on it.
 */
#ifndef STRATA_PAGE_FRAMES_H
#define STRATA_PAGE_FRAMES_H

#include "base/base.h"
#include "platform/platform.h"

struct frame_zone;
struct frames_capture;

#define FRAMES_SUPERPAGE_BYTES ((size_t)2 << 20)
#define FRAMES_NAME_BYTES 32
#define FRAMES_MAX (UINT64_C(1) << 31)
#define FRAMES_PINS_MAX 4095u
#define FRAMES_OWNERS_MAX 255u
#define FRAMES_CPUS_MAX 1024u
#define FRAMES_CAPTURES_MAX 64u
#define FRAMES_ORDERS 31u
#define FRAMES_NONE UINT64_MAX /* no frame */

/* The numbers of strata/zone.h: api/ checks that they are the same. */
enum frames_status {
    FRAMES_OK,
    FRAMES_NO_MEMORY,
    FRAMES_BAD_ARGUMENT,
    FRAMES_NO_FRAMES,
    FRAMES_NOT_ALLOCATED,
    FRAMES_PINNED,
    FRAMES_NOT_PINNED,
    FRAMES_MAPPED,
    FRAMES_NOT_MAPPED,
    FRAMES_BUSY,
    FRAMES_UNSUPPORTED,
    FRAMES_NO_HUGE_PAGES,
    FRAMES_GONE,
    FRAMES_NOT_DONE,
    FRAMES_FILE_ERROR,
};
enum frames_mobility { FRAMES_UNMOVABLE, FRAMES_RECLAIMABLE, FRAMES_MOVABLE, FRAMES_MOBILITIES };
enum frames_backend_kind { FRAMES_MEMFD, FRAMES_HUGETLB, FRAMES_ANON, FRAMES_SIM, FRAMES_HEAP };
enum frames_zone_flags { FRAMES_NO_GROUPING = 1, FRAMES_SCATTER = 2, FRAMES_HUGE_IN_PARTITION = 4, FRAMES_ON_NODE = 8 };
enum frames_alloc_flags {
    FRAMES_NO_FALLBACK = 1,
    FRAMES_NO_RESERVE = 2,
    FRAMES_NO_EFFORT = 4,
    FRAMES_HIGH = 8,
    FRAMES_ISOLATED = 16, /* not the program's: what is moved goes there, so it is isolated from the start */
};
/* Of owners; the last one of who would ask them: there is nobody to be asked, of a block that has come since it was picked. */
enum frames_answer { FRAMES_YES, FRAMES_LATER, FRAMES_NEVER, FRAMES_WROTE, FRAMES_WRITE, FRAMES_NOBODY };
enum frames_capture_flags {
    FRAMES_CAPTURE_AT = 1,
    FRAMES_CAPTURE_NO_RECLAIM = 2,
    FRAMES_CAPTURE_NO_HOLD = 4,
    FRAMES_CAPTURE_OF_CALL = 8,  /* not the program's: who begins it ends it in the same call */
    FRAMES_CAPTURE_OF_PASS = 16, /* what a pass of compaction holds for a request: counted there, not among captures */
};

/* What was wrong: for strata_zone_explain. Of constants but for the value. */
struct frames_complaint {
    const char *argument, *allowed;
    uint64_t value;
};

/* ------------------------------------------------------------------ life */

/*
 * Who has memory for a zone of FRAMES_HEAP: readable and writable, its start a multiple of a superpage. lend: NULL: there is none. discard: gives
 * whole pages of it back to the system, and knows of it; they are zeros then. False: it can't.
 */
struct frames_lender {
    char *(*lend)(uint64_t bytes);
    bool (*discard)(char *address, uint64_t bytes);
    void (*take_back)(char *memory);
};

struct frames_config {
    const char *name;
    enum frames_backend_kind backend;
    const struct frames_lender *lender; /* of FRAMES_HEAP; static */
    uint64_t bytes;
    size_t frame_bytes; /* 0: the system's page */
    uint64_t reserve_bytes, partition_bytes;
    unsigned node, cpus, flags;
};
/* FRAMES_OK, or what is wrong with it. */
enum frames_status frames_config_check(const struct frames_config *config, struct frames_complaint *complaint);
enum frames_status frames_zone_create(const struct frames_config *config, struct frame_zone **zone);
/*
 * No thread uses it any more. end: FRAMES_PINNED, FRAMES_BUSY: it stays; where it says yes, the zone's threads have ended, and nothing but its memory
 * is left to go, by free.
 */
enum frames_status frames_zone_end(struct frame_zone *zone);
void frames_zone_free(struct frame_zone *zone);

/*
 * Round each function of the program's that is called for a zone, whatever it is for. What its thread asks for in there, of this zone or another,
 * waits for no other thread's pass or end: that one may be in such a function, too, and wait for this one.
 */
void frames_program_begin(void);
void frames_program_end(void);
bool frames_in_program(void);

struct frames_owner {
    char name[FRAMES_NAME_BYTES];
    enum frames_answer (*migrate)(struct frame_zone *zone, const struct frames_owner *owner, uint64_t from, uint64_t to, uint64_t frames,
                                  uint64_t token);
    enum frames_answer (*reclaim)(struct frame_zone *zone, const struct frames_owner *owner, uint64_t frame, uint64_t frames, uint64_t token,
                                  bool dirty);
    void *context;
    void (*program_migrate)(void), (*program_reclaim)(void); /* api/'s: what it calls for the program, under another type */
    void *backing;                                           /* frames_backing.c's; atomic, NULL: none */
};
/* FRAMES_NO_MEMORY: there are FRAMES_OWNERS_MAX. */
enum frames_status frames_owner_add(struct frame_zone *zone, const struct frames_owner *owner, unsigned *number);
/* Whether requests may name an owner by this number. */
bool frames_owner_is_known(const struct frame_zone *zone, unsigned number);
/*
 * The owner is no more: nobody asks it, or may name it. The number is another's to have, unless a frame, a capture or a file has it still. No thread
 * allocates for it; those that ask it about blocks that are freed already are waited for. Not within its functions.
 * Linear in superpages, and in the frames of those that have notes.
 */
void frames_owner_remove(struct frame_zone *zone, unsigned number);

/* ------------------------------------------------------------------ frames */

struct frames_request {
    uint64_t frames, align; /* align 0: frames_usual_align */
    enum frames_mobility mobility;
    unsigned owner, flags;
    uint64_t token;
};
/* A power of two is aligned to itself, up to a superpage; all else to 1. */
uint64_t frames_usual_align(const struct frame_zone *zone, uint64_t frames);
/* What is wrong with a request, or FRAMES_OK. */
enum frames_status frames_request_check(const struct frame_zone *zone, const struct frames_request *request, struct frames_complaint *complaint);
/* What is free; nobody is asked for anything. */
enum frames_status frames_alloc(struct frame_zone *zone, const struct frames_request *request, uint64_t *frame);
/* The same, and then as figure 10 of the paper has it, as far as the zone's effort goes. No lock held. (frames_direct.c) */
enum frames_status frames_alloc_hard(struct frame_zone *zone, const struct frames_request *request, uint64_t *frame);
/* *at: the frame that was wrong. */
enum frames_status frames_free(struct frame_zone *zone, uint64_t frame, uint64_t frames, uint64_t *at);
/* What frames_free would answer now. Of several superpages, of no one moment. */
enum frames_status frames_may_free(struct frame_zone *zone, uint64_t frame, uint64_t frames);
enum frames_status frames_pin(struct frame_zone *zone, uint64_t frame, uint64_t frames, uint64_t *at);
enum frames_status frames_unpin(struct frame_zone *zone, uint64_t frame, uint64_t frames, uint64_t *at);

struct frames_info {
    bool allocated, pinned, moving, mapped, captured;
    enum frames_mobility mobility, group;
    uint64_t first, frames;
    unsigned owner, pins;
    uint64_t token;
};
enum frames_status frames_query(struct frame_zone *zone, uint64_t frame, struct frames_info *info);

/* ------------------------------------------------------------------ contents and addresses */

void *frames_address(const struct frame_zone *zone, uint64_t frame);
int frames_file(const struct frame_zone *zone);
size_t frames_frame_bytes(const struct frame_zone *zone);
uint64_t frames_count(const struct frame_zone *zone);
/* Both inside the zone; who has them takes care of the rest. */
void frames_copy(struct frame_zone *zone, uint64_t from, uint64_t to, uint64_t frames);
uint64_t frames_peek(struct frame_zone *zone, uint64_t frame);
void frames_poke(struct frame_zone *zone, uint64_t frame, uint64_t word);
void frames_touch(struct frame_zone *zone, uint64_t frame, bool write);
enum frames_status frames_populate(struct frame_zone *zone, uint64_t frame, uint64_t frames);
enum frames_status frames_discard(struct frame_zone *zone, uint64_t frame, uint64_t frames);
/* Whether all frames of a run are allocated, isolated or not; *at: the first that isn't. Of several superpages, of no one moment. */
bool frames_all_allocated(struct frame_zone *zone, uint64_t frame, uint64_t frames, uint64_t *at);
/* Whether all frames of a run are allocated, and none is isolated. */
enum frames_status frames_check_run(struct frame_zone *zone, uint64_t frame, uint64_t frames, uint64_t *at);

enum frames_status frames_window_open(struct frame_zone *zone, size_t bytes, void **address);
enum frames_status frames_window_close(struct frame_zone *zone, void *address);
enum frames_status frames_map(struct frame_zone *zone, uint64_t frame, uint64_t frames, void *address);
enum frames_status frames_unmap(struct frame_zone *zone, char *address, size_t bytes);
enum frames_status frames_at(struct frame_zone *zone, const void *address, bool pin, uint64_t *frame);

/* ------------------------------------------------------------------ placement */

enum frames_status frames_partition_resize(struct frame_zone *zone, uint64_t bytes);
enum frames_status frames_set_reserve(struct frame_zone *zone, uint64_t bytes);
uint64_t frames_reserve(struct frame_zone *zone); /* frames */
enum frames_effort { FRAMES_COMPACT = 1, FRAMES_RECLAIM = 2, FRAMES_RECLAIM_CAPTURES = 4 };
void frames_set_effort(struct frame_zone *zone, unsigned effort);

/* ------------------------------------------------------------------ capture (frames_capture.c) */

struct frames_capture_request {
    uint64_t frames, align, at;
    enum frames_mobility mobility;
    unsigned owner, flags;
    uint64_t token;
};
/*
 * What the program calls a capture by; and the capture of such a name, which must be of a zone that is there. NULL: it is no more, and *zone is whose
 * it was. Those of the same place have other names, until it has been had 256 times.
 */
void *frames_capture_name(struct frames_capture *capture);
struct frames_capture *frames_capture_of(void *name, struct frame_zone **zone);
struct frame_zone *frames_capture_zone(const struct frames_capture *capture);
enum frames_status frames_capture_check(const struct frame_zone *zone, const struct frames_capture_request *request,
                                        struct frames_complaint *complaint);
enum frames_status frames_capture_run(struct frame_zone *zone, const struct frames_capture_request *request, uint64_t *frame);
enum frames_status frames_capture_begin(struct frame_zone *zone, const struct frames_capture_request *request, struct frames_capture **capture);
enum frames_status frames_capture_push(struct frames_capture *capture, uint64_t blocks);
enum frames_status frames_capture_poll(struct frames_capture *capture, uint64_t *first, uint64_t *left);
enum frames_status frames_capture_end(struct frames_capture *capture, uint64_t *frame);
void frames_capture_give_up(struct frames_capture *capture);

/* ------------------------------------------------------------------ looking inside */

/* The last misuse: kept for who asks. recall: the function's name; NULL: none yet. */
void frames_complain(struct frame_zone *zone, const char *function, const struct frames_complaint *complaint);
const char *frames_recall(struct frame_zone *zone, struct frames_complaint *complaint);

struct frames_stats {
    char name[FRAMES_NAME_BYTES];
    enum frames_backend_kind backend;
    size_t frame_bytes;
    uint64_t frames, superpages, superpage_frames;
    uint64_t free, used[FRAMES_MOBILITIES], group_superpages[FRAMES_MOBILITIES], mixed_superpages;
    uint64_t free_superpages, reserve_superpages, partition_superpages;
    uint64_t pinned, mapped, captured, moving;
    uint64_t free_blocks[FRAMES_ORDERS];
    uint64_t captures;
    uint64_t allocs, failures, fallbacks, retypes, reserve_uses;
    uint64_t captures_begun, captures_done, captures_lost, captures_given_up, races_lost;
    uint64_t metadata_bytes;
};
void frames_stats_get(struct frame_zone *zone, struct frames_stats *stats);
struct frames_superpage_info {
    enum frames_mobility group;
    uint16_t free, used[FRAMES_MOBILITIES], pinned, captured;
    bool partition;
};
enum frames_status frames_map_get(struct frame_zone *zone, uint64_t first, uint64_t count, struct frames_superpage_info *superpages);
/* Free frames now, without a lock: exact where nobody else is in a call. Linear in CPUs. */
uint64_t frames_free_now(const struct frame_zone *zone);
const char *frames_zone_check(struct frame_zone *zone);

/*
 * Around fork, for each zone of the process (frames_fork.c): settle with no lock held, then prepare; parent or child once it is over. Between prepare
 * and these all locks of the zone are held. next: the link of the list that api/ has.
 */
void frames_fork_settle(struct frame_zone *zone);
void frames_fork_prepare(struct frame_zone *zone);
void frames_fork_parent(struct frame_zone *zone);
void frames_fork_child(struct frame_zone *zone);
struct frame_zone **frames_zone_next(struct frame_zone *zone);

#endif
