/*
 * frames_lru.c - the functions of frames_lru.h.
 *
 * Each list is a ring through a link of its own, behind those of the frames: its `older` is the youngest block, its `younger` the oldest. So no end
 * is a special case, and memory that was never written (zeros) says "in no list".
 */
#include "page/frames_lru.h"

static uint32_t ring_of(const struct frames_lru *lru, enum frames_lru_list list) { return (uint32_t)(lru->frames + (unsigned)list + 1); }
static struct frames_lru_link *link_of(struct frames_lru *lru, uint32_t number) { return &lru->links[number - 1]; }

static bool is_active(const struct frames_lru *lru, uint64_t frame) { return (lru->active[frame / 64] >> frame % 64 & 1) != 0; }
static bool is_listed(const struct frames_lru *lru, uint64_t frame) { return lru->links[frame].younger != 0; }

size_t frames_lru_bytes(uint64_t frames) {
    return align_up((frames + LRU_LISTS) * sizeof(struct frames_lru_link), sizeof(uint64_t)) + (size_t)((frames + 63) / 64) * sizeof(uint64_t);
}

void frames_lru_init(struct frames_lru *lru, uint64_t frames, void *memory) {
    *lru = (struct frames_lru){.lock = PLATFORM_LOCK_INIT(LOCK_RANK_FRAMES_LRU), .frames = frames, .links = memory};
    lru->active = (uint64_t *)(void *)(lru->links + frames + LRU_LISTS);
    for (enum frames_lru_list list = LRU_INACTIVE; list < LRU_LISTS; list++) {
        uint32_t ring = ring_of(lru, list);
        *link_of(lru, ring) = (struct frames_lru_link){ring, ring};
    }
}

/* ------------------------------------------------------------------ under the lock */

static void unlink(struct frames_lru *lru, uint64_t frame) {
    struct frames_lru_link *link = &lru->links[frame];
    link_of(lru, link->older)->younger = link->younger;
    link_of(lru, link->younger)->older = link->older;
    *link = (struct frames_lru_link){0, 0};
    lru->count[is_active(lru, frame) ? LRU_ACTIVE : LRU_INACTIVE]--;
}

static void link_between(struct frames_lru *lru, uint64_t frame, uint32_t older, uint32_t younger, enum frames_lru_list list) {
    uint32_t number = (uint32_t)frame + 1;
    uint64_t bit = UINT64_C(1) << frame % 64;
    lru->links[frame] = (struct frames_lru_link){.younger = younger, .older = older};
    link_of(lru, older)->younger = number;
    link_of(lru, younger)->older = number;
    if (list == LRU_ACTIVE)
        lru->active[frame / 64] |= bit;
    else if ((lru->active[frame / 64] & bit) != 0) /* a page of bits that says so already needs no memory */
        lru->active[frame / 64] &= ~bit;
    lru->count[list]++;
}

static void link_young(struct frames_lru *lru, uint64_t frame, enum frames_lru_list list) {
    uint32_t ring = ring_of(lru, list);
    link_between(lru, frame, link_of(lru, ring)->older, ring, list);
}

/* ------------------------------------------------------------------ lists */

void frames_lru_put(struct frames_lru *lru, uint64_t frame, enum frames_lru_list list) {
    platform_lock_acquire(&lru->lock);
    if (is_listed(lru, frame)) unlink(lru, frame);
    link_young(lru, frame, list);
    platform_lock_release(&lru->lock);
}

bool frames_lru_renew(struct frames_lru *lru, uint64_t frame, enum frames_lru_list list) {
    platform_lock_acquire(&lru->lock);
    bool listed = is_listed(lru, frame);
    if (listed) {
        unlink(lru, frame);
        link_young(lru, frame, list);
    }
    platform_lock_release(&lru->lock);
    return listed;
}

bool frames_lru_remove(struct frames_lru *lru, uint64_t frame) {
    platform_lock_acquire(&lru->lock);
    bool listed = is_listed(lru, frame);
    if (listed) unlink(lru, frame);
    platform_lock_release(&lru->lock);
    return listed;
}

bool frames_lru_settle(struct frames_lru *lru, const uint32_t *frames, unsigned count, const uint64_t *come, bool wait) {
    if (wait)
        platform_lock_acquire(&lru->lock);
    else if (!platform_lock_try(&lru->lock))
        return false;
    for (unsigned i = 0; i < count; i++) {
        if (is_listed(lru, frames[i])) unlink(lru, frames[i]);
        if ((come[i / 64] >> i % 64 & 1) != 0) link_young(lru, frames[i], LRU_INACTIVE);
    }
    platform_lock_release(&lru->lock);
    return true;
}

void frames_lru_replace(struct frames_lru *lru, uint64_t from, uint64_t to) {
    platform_lock_acquire(&lru->lock);
    if (is_listed(lru, from)) {
        enum frames_lru_list list = is_active(lru, from) ? LRU_ACTIVE : LRU_INACTIVE;
        if (is_listed(lru, to)) unlink(lru, to);
        struct frames_lru_link link = lru->links[from];
        unlink(lru, from);
        link_between(lru, to, link.older, link.younger, list);
    }
    platform_lock_release(&lru->lock);
}

uint64_t frames_lru_turn(struct frames_lru *lru, enum frames_lru_list list, uint64_t *next) {
    platform_lock_acquire(&lru->lock);
    uint32_t oldest = link_of(lru, ring_of(lru, list))->younger;
    uint64_t frame = oldest == ring_of(lru, list) ? LRU_NONE : (uint64_t)oldest - 1;
    *next = LRU_NONE;
    if (frame != LRU_NONE) {
        unlink(lru, frame);
        link_young(lru, frame, list);
        uint32_t then = link_of(lru, ring_of(lru, list))->younger;
        __builtin_prefetch(link_of(lru, link_of(lru, then)->younger)); /* what turning that one will write to */
        *next = (uint64_t)then - 1;
    }
    platform_lock_release(&lru->lock);
    return frame;
}

void frames_lru_prefetch(struct frames_lru *lru, uint64_t first, uint64_t frames) {
    platform_lock_acquire(&lru->lock);
    for (uint64_t i = first; i < first + frames; i++) {
        if (!is_listed(lru, i)) continue;
        __builtin_prefetch(link_of(lru, lru->links[i].older), 1);
        __builtin_prefetch(link_of(lru, lru->links[i].younger), 1);
    }
    platform_lock_release(&lru->lock);
}

enum frames_lru_list frames_lru_where(struct frames_lru *lru, uint64_t frame) {
    platform_lock_acquire(&lru->lock);
    enum frames_lru_list list = !is_listed(lru, frame) ? LRU_LISTS : is_active(lru, frame) ? LRU_ACTIVE : LRU_INACTIVE;
    platform_lock_release(&lru->lock);
    return list;
}

uint64_t frames_lru_count(struct frames_lru *lru, enum frames_lru_list list) {
    platform_lock_acquire(&lru->lock);
    uint64_t count = lru->count[list];
    platform_lock_release(&lru->lock);
    return count;
}

void frames_lru_walk(struct frames_lru *lru, enum frames_lru_list list, bool (*visit)(uint64_t frame, void *argument), void *argument) {
    platform_lock_acquire(&lru->lock);
    uint32_t ring = ring_of(lru, list), at = link_of(lru, ring)->younger;
    while (at != ring && visit((uint64_t)at - 1, argument)) at = link_of(lru, at)->younger;
    platform_lock_release(&lru->lock);
}

const char *frames_lru_check(struct frames_lru *lru) {
    const char *broken = NULL;
    platform_lock_acquire(&lru->lock);
    for (enum frames_lru_list list = LRU_INACTIVE; list < LRU_LISTS && broken == NULL; list++) {
        uint32_t ring = ring_of(lru, list), before = ring;
        uint64_t count = 0;
        for (uint32_t at = link_of(lru, ring)->younger; at != ring && broken == NULL; before = at, at = link_of(lru, at)->younger) {
            if (at == 0 || at > lru->frames || count++ == lru->count[list])
                broken = "lru: a list has another length than its count says";
            else if (link_of(lru, at)->older != before)
                broken = "lru: links differ in the two directions";
            else if (is_active(lru, (uint64_t)at - 1) != (list == LRU_ACTIVE))
                broken = "lru: a block says that it is in the other list";
        }
        if (broken == NULL && (count != lru->count[list] || link_of(lru, ring)->older != before))
            broken = "lru: a list has another length than its count says";
    }
    platform_lock_release(&lru->lock);
    return broken;
}
