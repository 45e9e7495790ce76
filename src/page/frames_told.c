/*
 * frames_told.c - what allocation and free tell the lists of reclaim (frames_lru.h), a batch at a time.
 *
 * The lists are the zone's, under one lock. So a block of a superpage that a slot has is not listed, nor taken out of its list, when it comes or
 * goes: its number waits in the slot (frames_slot.waits, by the slot's lock, which the caller has anyway), and when enough of them wait all are
 * settled under the lists' lock at once (if another CPU has it, a little later: only a full slot waits for it, so that CPUs hardly ever meet there):
 * a block that begins there goes to the young end of the inactive list, what is gone out of its list. A number waits once, at the place where it was
 * told of first, so blocks of one slot are listed in the order in which they came, but for those that come to a frame which waits; and a frame that
 * is taken and given back over and over is never listed at all. Other superpages are guarded by the zone's lock, and their blocks are listed at once.
 *
 * Invariants: what waits in a slot lies in a superpage that the slot has, so a slot settles before it gives one back; the frames that wait are those
 * with a bit in zone->waits; a block that waits is in a list or in none, one that does not wait is in a list if it can be dropped, else in none
 * (frames_reclaim_check). An isolated block does not wait. Whoever takes blocks from the old end of a list passes over those that wait: what stood
 * there was freed, and may be another's by now.
 */
#include "page/frames_reclaim_internal.h"

_Static_assert(sizeof(struct frames_slot) == 1024, "a slot is whole lines");

/* ------------------------------------------------------------------ what waits; under the lock of the slot */

/* The bits of the superpage that a frame lies in. */
static uint64_t *bits_of(struct frame_zone *zone, uint64_t frame) { return zone->waits[frame >> zone->superpage_shift]; }

static void forget_all(struct frame_zone *zone, struct frames_slot *slot) {
    for (unsigned i = 0; i < slot->waiting; i++) frames_bit_clear(bits_of(zone, slot->waits[i]), frames_offset_of(zone, slot->waits[i]));
    __atomic_store_n(&slot->waiting, 0, __ATOMIC_RELAXED);
}

/* False: another has the lists' lock, and `wait` is false. */
static bool settle(struct frame_zone *zone, struct frames_slot *slot, bool wait) {
    struct frames_reclaim *reclaim = frames_reclaim_of(zone);
    uint64_t come[(SLOT_WAITS + 63) / 64] = {0}; /* a bit each: a block begins there that can be dropped */
    for (unsigned i = 0; i < slot->waiting; i++) {
        if (frames_can_be_dropped(zone, zone->notes[slot->waits[i]])) come[i / 64] |= UINT64_C(1) << i % 64; /* no owner where none begins */
    }
    if (!frames_lru_settle(&reclaim->lru, slot->waits, slot->waiting, come, wait)) return false;
    forget_all(zone, slot);
    return true;
}

void frames_settle(struct frame_zone *zone, struct frames_slot *slot) { (void)settle(zone, slot, true); }

static void wait_here(struct frame_zone *zone, struct frames_slot *slot, uint64_t frame) {
    if (frames_waits(zone, frame)) return;
    unsigned batch = zone->batch, more = slot->waiting - batch;
    if (slot->waiting >= batch && more % SLOT_RETRY(batch) == 0) (void)settle(zone, slot, slot->waiting == SLOT_FULL(batch));
    frames_bit_set(bits_of(zone, frame), frames_offset_of(zone, frame));
    slot->waits[slot->waiting] = (uint32_t)frame;
    __atomic_store_n(&slot->waiting, slot->waiting + 1, __ATOMIC_RELAXED);
}

/* The slot that guards a frame whose lock the caller has; NULL: none does. */
static struct frames_slot *guard_of(struct frame_zone *zone, uint64_t frame) {
    uint32_t number = __atomic_load_n(&frames_superpage_of(zone, frame)->slot, __ATOMIC_RELAXED);
    return number != FRAMES_NO_SLOT ? &zone->slots[number] : NULL;
}

/* ------------------------------------------------------------------ hooks; under the superpage's lock */

bool frames_can_be_dropped(const struct frame_zone *zone, uint32_t note) {
    unsigned owner = note_owner(note);
    return owner != 0 && zone->owners[owner].reclaim != NULL && note_mobility(note) != FRAMES_UNMOVABLE && (note & (NOTE_NEVER | NOTE_RUN)) == 0;
}

static void placed(struct frame_zone *zone, uint64_t frame, uint64_t frames, uint32_t note) {
    (void)frames;
    if (!frames_can_be_dropped(zone, note)) return; /* if it waits, that is seen when it is settled */
    struct frames_slot *slot = guard_of(zone, frame);
    if (slot != NULL)
        wait_here(zone, slot, frame);
    else
        frames_lru_put(&frames_reclaim_of(zone)->lru, frame, LRU_INACTIVE);
}

static void leaving(struct frame_zone *zone, uint64_t frame, uint64_t frames, uint32_t note) {
    (void)frames;
    (void)note;
    struct frames_slot *slot = guard_of(zone, frame);
    if (slot != NULL)
        wait_here(zone, slot, frame);
    else
        (void)frames_lru_remove(&frames_reclaim_of(zone)->lru, frame);
}

/* Of an isolated block, which does not wait where it comes from. What waits at the other place is of a block that was there before. */
static void moved(struct frame_zone *zone, uint64_t from, uint64_t to, uint64_t frames) {
    struct frames_slot *slot = guard_of(zone, to);
    if (slot != NULL && slot->waiting != 0) frames_settle(zone, slot);
    frames_used_move(zone, from, to, frames);
    frames_lru_replace(&frames_reclaim_of(zone)->lru, from, to);
}

/* Off: nobody else is in a call, and nothing waits any more. */
void frames_told_set(struct frame_zone *zone, bool on) {
    struct frames_hooks *hooks = &zone->hooks;
    __atomic_store_n(&hooks->leaving, on ? leaving : NULL, __ATOMIC_RELEASE);
    __atomic_store_n(&hooks->moved, on ? moved : NULL, __ATOMIC_RELEASE);
    __atomic_store_n(&hooks->freed, on ? frames_used_forget : NULL, __ATOMIC_RELEASE);
    __atomic_store_n(&hooks->placed, on ? placed : NULL, __ATOMIC_RELEASE);
    for (unsigned s = 0; s < zone->slot_count && !on; s++) {
        platform_lock_acquire(&zone->slots[s].lock);
        forget_all(zone, &zone->slots[s]);
        platform_lock_release(&zone->slots[s].lock);
    }
}

/* ------------------------------------------------------------------ for who reclaims; no lock held */

void frames_settle_all(struct frame_zone *zone) {
    for (unsigned s = 0; s < zone->slot_count; s++) {
        struct frames_slot *slot = &zone->slots[s];
        if (__atomic_load_n(&slot->waiting, __ATOMIC_RELAXED) == 0) continue;
        platform_lock_acquire(&slot->lock);
        if (slot->waiting != 0) frames_settle(zone, slot);
        platform_lock_release(&slot->lock);
    }
}

bool frames_settle_at(struct frame_zone *zone, uint64_t frame) {
    struct frames_superpage *superpage = frames_superpage_of(zone, frame);
    if (__atomic_load_n(&superpage->slot, __ATOMIC_RELAXED) == FRAMES_NO_SLOT) return false;
    struct frames_slot *slot = frames_lock(zone, superpage);
    bool waits = frames_waits(zone, frame);
    if (waits) frames_settle(zone, slot);
    frames_unlock(zone, slot);
    return waits;
}

/* ------------------------------------------------------------------ looking inside */

struct look {
    struct frame_zone *zone;
    const char *broken;
};

static bool look_at(uint64_t frame, void *argument) {
    struct look *look = argument;
    struct frame_zone *zone = look->zone;
    uint32_t note = zone->notes[frame];
    if (frames_waits(zone, frame)) return true;
    if (!frames_bit(frames_superpage_of(zone, frame)->heads, frames_offset_of(zone, frame)))
        look->broken = "reclaim: a frame is listed at which no block begins";
    else if (!frames_can_be_dropped(zone, note & ~NOTE_NEVER)) /* which may have been said just now, elsewhere */
        look->broken = "reclaim: a block is listed that nobody can drop";
    return look->broken == NULL;
}

static const char *check_slot(struct frame_zone *zone, const struct frames_slot *slot) {
    if (slot->waiting > SLOT_WAITS) return "reclaim: more blocks wait than a slot has room for";
    for (unsigned i = 0; i < slot->waiting; i++) {
        uint64_t frame = slot->waits[i];
        uint32_t note = zone->notes[frame];
        if (!frames_waits(zone, frame)) return "reclaim: a block waits that has no bit";
        if (guard_of(zone, frame) != slot) return "reclaim: a block waits where its superpage is not";
        if ((note & NOTE_MOVING) != 0 && note_owner(note) != 0) return "reclaim: an isolated block waits";
        for (unsigned k = 0; k < i; k++)
            if (slot->waits[k] == frame) return "reclaim: a block waits twice";
    }
    return NULL;
}

/* Of the bits of all superpages, and of what waits in all slots. */
static const char *check_bits(const struct frame_zone *zone) {
    uint64_t bits = 0, waiting = 0;
    for (uint64_t i = 0; i < zone->superpage_count; i++) bits += frames_bits_count(zone->waits[i], 0, zone->superpage_frames);
    for (unsigned s = 0; s < zone->slot_count; s++) waiting += zone->slots[s].waiting;
    return bits != waiting ? "reclaim: a block has a bit, and waits nowhere" : NULL;
}

static const char *check_superpage(struct frame_zone *zone, const struct frames_superpage *superpage) {
    struct frames_lru *lru = &frames_reclaim_of(zone)->lru;
    for (unsigned at = 0; superpage->noted != 0 && (at = frames_bits_next_set(superpage->heads, at, zone->superpage_frames)) < zone->superpage_frames;
         at++) {
        uint64_t frame = frames_first_of(zone, superpage) + at;
        bool listed = frames_lru_where(lru, frame) != LRU_LISTS || frames_waits(zone, frame);
        if (!listed && frames_can_be_dropped(zone, zone->notes[frame])) return "reclaim: a block that could be dropped is in no list";
    }
    return NULL;
}

const char *frames_told_check(struct frame_zone *zone) {
    struct frames_lru *lru = &frames_reclaim_of(zone)->lru;
    struct look look = {zone, frames_lru_check(lru)};
    for (unsigned s = 0; s < zone->slot_count && look.broken == NULL; s++) look.broken = check_slot(zone, &zone->slots[s]);
    if (look.broken == NULL) look.broken = check_bits(zone);
    for (enum frames_lru_list list = LRU_INACTIVE; list < LRU_LISTS && look.broken == NULL; list++) frames_lru_walk(lru, list, look_at, &look);
    for (uint64_t i = 0; i < zone->superpage_count && look.broken == NULL; i++) look.broken = check_superpage(zone, &zone->superpages[i]);
    return look.broken;
}
