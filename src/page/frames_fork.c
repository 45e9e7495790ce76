/*
 * frames_fork.c - a zone of frames in a process that forks while other threads compact it, reclaim in it, or are in any other call.
 *
 * Before the fork no new block is moved or dropped (zone->gate), and those that are on the way are waited for, as owners know them in between by
 * neither frame or by both. Not for ever: an owner's function may wait for a lock that the thread which forks has. Then all locks are held, so that
 * every call of another thread has either done a step or not. In the child those threads are gone, and what they had in their hands is put in order:
 * blocks that they had isolated are everybody's again, those that were dropped or freed meanwhile are free, and so are the frames that blocks were to
 * go to; captures that were a part of a call are given up; nobody makes a pass or reclaims.
 *
 * Where the wait was in vain, a block that was just being moved stays allocated at both of its places. Where the thread that forks is in an owner's
 * function itself, its own work goes on in the child, and isolated blocks stay so, as nobody can tell whose they are.
 *
 * Steps: frames_step_begin to frames_step_end, from the isolated block to what the owner has answered. No lock is held in them.
 */
#include "page/frames_compact_internal.h"
#include "page/frames_reclaim_internal.h"

#define WAIT_NS UINT64_C(100000)
#define WAITS_MAX 1000u

/* ------------------------------------------------------------------ steps */

static bool may_begin(const struct frame_zone *zone) {
    uint32_t gate = __atomic_load_n(&zone->gate, __ATOMIC_SEQ_CST);
    return STRATA_LIKELY(gate == 0) || gate == platform_thread_self(); /* another handler of fork may allocate */
}

void frames_step_begin(struct frame_zone *zone) {
    for (;;) {
        /* Sequentially consistent, as is the gate's side: either this is seen there, or the gate here. */
        __atomic_fetch_add(&zone->steps, 1, __ATOMIC_SEQ_CST);
        if (STRATA_LIKELY(may_begin(zone))) return;
        frames_step_end(zone);
        uint32_t gate = __atomic_load_n(&zone->gate, __ATOMIC_RELAXED);
        if (gate != 0) platform_word_wait(&zone->gate, gate);
    }
}

/* Not below 0: the child of a fork within an owner's function counts one step, and that function may be asked for within another. */
void frames_step_end(struct frame_zone *zone) {
    uint32_t steps = __atomic_load_n(&zone->steps, __ATOMIC_RELAXED);
    while (steps != 0 && !__atomic_compare_exchange_n(&zone->steps, &steps, steps - 1, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) continue;
}

/* ------------------------------------------------------------------ before */

/* Whether this thread compacts, reclaims or pushes a capture there, so that it is an owner's function which forks. */
static bool is_within(struct frame_zone *zone, uint32_t self) {
    bool within = frames_compaction_is_within(zone) || frames_reclaim_is_within(zone);
    platform_lock_acquire(&zone->lock); /* under which captures begin */
    for (unsigned i = 0; i < FRAMES_CAPTURES_MAX; i++) within |= __atomic_load_n(&zone->captures[i].pusher, __ATOMIC_RELAXED) == self;
    platform_lock_release(&zone->lock);
    return within;
}

static struct platform_lock *lru_lock(const struct frame_zone *zone) {
    struct frames_reclaim *reclaim = frames_reclaim_of(zone);
    return reclaim != NULL ? &reclaim->lru.lock : NULL;
}

void frames_fork_settle(struct frame_zone *zone) {
    struct platform_event nobody = {0};
    uint32_t self = platform_thread_self();
    zone->fork_within = is_within(zone, self);
    __atomic_store_n(&zone->gate, self, __ATOMIC_SEQ_CST);
    zone->fork_settled = false;
    for (unsigned waits = 0; !zone->fork_within && waits < WAITS_MAX; waits++) {
        /* Kept, as it stays so: the steps that are counted from here on are of who has yet to see the gate, or of this thread, which ends them. */
        zone->fork_settled = __atomic_load_n(&zone->steps, __ATOMIC_SEQ_CST) == 0;
        if (zone->fork_settled) break;
        (void)platform_event_wait(&nobody, WAIT_NS);
    }
}

void frames_fork_prepare(struct frame_zone *zone) {
    platform_lock_hold(&zone->hiding);
    for (unsigned s = 0; s < zone->slot_count; s++) platform_lock_hold(&zone->slots[s].lock);
    platform_lock_hold(&zone->lock);
    zone->fork_lru = lru_lock(zone); /* reclaim begins and ends under zone->hiding */
    if (zone->fork_lru != NULL) platform_lock_hold(zone->fork_lru);
}

/* ------------------------------------------------------------------ after */

static void release_locks(struct frame_zone *zone) {
    if (zone->fork_lru != NULL) platform_lock_unhold(zone->fork_lru);
    platform_lock_unhold(&zone->lock);
    for (unsigned s = 0; s < zone->slot_count; s++) platform_lock_unhold(&zone->slots[s].lock);
    platform_lock_unhold(&zone->hiding);
}

void frames_fork_parent(struct frame_zone *zone) {
    release_locks(zone);
    __atomic_store_n(&zone->gate, 0, __ATOMIC_SEQ_CST);
    platform_word_wake(&zone->gate);
}

/* A block that a thread which is gone had isolated. */
static void settle_block(struct frame_zone *zone, uint64_t first, unsigned count) {
    uint32_t note = zone->notes[first];
    const struct frames_block block = {.first = first, .frames = count};
    bool target = note_owner(note) == 0 && (note & NOTE_MAPPED) == 0; /* of a move: nothing else of this kind can be isolated */
    if (target && zone->fork_settled)
        frames_drop(zone, &block);
    else
        frames_put_back(zone, &block, false); /* frees it, where it is dead */
}

static void settle_blocks(struct frame_zone *zone) {
    for (uint64_t i = 0; i < zone->superpage_count; i++) {
        struct frames_superpage *superpage = &zone->superpages[i];
        for (unsigned at = 0;
             superpage->moving != 0 && (at = frames_bits_next_set(superpage->heads, at, zone->superpage_frames)) < zone->superpage_frames; at++) {
            unsigned head, count;
            uint64_t first = frames_first_of(zone, superpage) + at;
            if ((zone->notes[first] & NOTE_MOVING) == 0) continue;
            frames_block_at(zone, superpage, at, &head, &count);
            settle_block(zone, first, count);
        }
    }
}

static void settle_captures(struct frame_zone *zone, uint32_t before, uint32_t self) {
    for (unsigned i = 0; i < FRAMES_CAPTURES_MAX; i++) {
        struct frames_capture *capture = &zone->captures[i];
        if (capture->frames == 0) continue;
        capture->pusher = capture->pusher == before ? self : 0;
        if (capture->caller == before)
            capture->caller = self;
        else if (capture->caller != 0)
            frames_capture_give_up(capture);
    }
}

void frames_fork_child(struct frame_zone *zone) {
    uint32_t before = zone->gate, self = platform_thread_self();
    release_locks(zone);
    zone->gate = 0;
    zone->steps = zone->fork_within ? 1 : 0;
    zone->slots_closed = 0; /* by calls that have ended here; none of them calls the program in between */
    frames_compaction_fork_child(zone, before, self);
    frames_reclaim_fork_child(zone, before, self);
    if (!zone->fork_within) settle_blocks(zone);
    settle_captures(zone, before, self);
}
