/*
 * frames_direct.c - allocation by all means: what figure 10 of the contiguity paper does when nothing suitable is free.
 *
 *   allocation fails -> fragmentation index of what the request may have -> low: memory is short, reclaim
 *                    -> high: the same of movable superpages alone        -> low: compaction could do nothing, reclaim
 *                    -> high: a pass of compaction, which tries again as it goes -> nothing: reclaim, which tries again
 *
 * The paper has no number for "low"; here it is 0.5, and fewer free frames than are wanted, which the index alone does not tell from pieces.
 * After reclaim, which frees frames here and there, compaction has another turn. Passes in vain are not repeated at once: after n of
 * them in a row for an order, the next 2^n requests, up to 64, go without. No lock.
 */
#include "page/frames_compact_internal.h"

#define FRAGMENTED 0.5
/* Superpages of a large zone that the index is told from. */
#define SAMPLE (FRAMES_LARGE / 2)
/* Turns of other threads' passes that one waits for. */
#define OTHERS_MAX 4u

static unsigned order_of(uint64_t frames) { return frames == 1 ? 0 : bit_highest(frames - 1) + 1; }

/* Superpages that the request may have: all, or those in front of the partition. */
static uint64_t reach(struct frame_zone *zone, const struct frames_request *request) {
    bool whole = request->frames >= zone->superpage_frames && (zone->flags & FRAMES_HUGE_IN_PARTITION) != 0;
    if (request->mobility != FRAMES_UNMOVABLE || whole) return zone->superpage_count;
    platform_lock_acquire(&zone->lock);
    uint64_t first = zone->partition_first;
    platform_lock_release(&zone->lock);
    return first;
}

/*
 * Whether it is pieces that are in the way, and not want of memory. Of a large zone it is told from a sample, another one each time, as what is asked
 * of it is a ratio with a wide margin; but not for runs of several superpages, of which a sample knows nothing.
 */
static bool is_fragmented(struct frame_zone *zone, struct frames_compaction *compaction, const struct frames_request *request, uint64_t superpages) {
    bool samples = superpages > FRAMES_LARGE && request->frames <= zone->superpage_frames;
    uint64_t step = samples ? superpages / SAMPLE : 1;
    uint64_t first = samples ? __atomic_fetch_add(&compaction->samples, 1, __ATOMIC_RELAXED) % step : 0;
    for (unsigned movable_only = 0; movable_only < 2; movable_only++) {
        struct frames_free free;
        frames_free_sample(zone, superpages, first, step, movable_only != 0, &free);
        if (frames_free_total(&free) * step < request->frames) return false;
        if (frames_fragmentation_index(&free, order_of(request->frames)) < FRAGMENTED) return false;
    }
    return true;
}

/* ------------------------------------------------------------------ passes in vain */

static bool is_deferred(struct frames_compaction *compaction, unsigned order) {
    uint32_t *left = &compaction->deferrals[order].left, seen = __atomic_load_n(left, __ATOMIC_RELAXED);
    if (seen == 0) return false;
    __atomic_store_n(left, seen - 1, __ATOMIC_RELAXED); /* a count that two threads share is only a little off */
    __atomic_fetch_add(&compaction->counts.deferred, 1, __ATOMIC_RELAXED);
    return true;
}

static void note_pass(struct frames_compaction *compaction, unsigned order, bool in_vain) {
    struct frames_deferral *deferral = &compaction->deferrals[order];
    uint32_t shift = in_vain ? (uint32_t)min_u64(__atomic_load_n(&deferral->shift, __ATOMIC_RELAXED) + 1, FRAMES_DEFERRAL_MAX) : 0;
    __atomic_store_n(&deferral->shift, shift, __ATOMIC_RELAXED);
    __atomic_store_n(&deferral->left, in_vain ? UINT32_C(1) << shift : 0, __ATOMIC_RELAXED);
}

/* ------------------------------------------------------------------ the steps */

static enum frames_status compact_for(struct frame_zone *zone, const struct frames_request *request, bool again, uint64_t *frame) {
    unsigned order = order_of(request->frames);
    uint64_t superpages = reach(zone, request);
    struct frames_compaction *compaction = frames_compaction_get(zone);
    if (compaction == NULL || order == 0 || superpages == 0) return FRAMES_NO_FRAMES;
    if (!again && is_deferred(compaction, order)) return FRAMES_NO_FRAMES;
    if (!is_fragmented(zone, compaction, request, superpages)) return FRAMES_NO_FRAMES;
    const struct frames_compact_goal goal = {.request = request, .order = order, .movable_only = true, .superpages = superpages};
    for (unsigned others = 0; others < OTHERS_MAX; others++) {
        struct frames_compact_counts counts = {0};
        enum frames_compact_end end = frames_compact(zone, &goal, &counts, frame);
        if (end == FRAMES_COMPACT_DONE || end == FRAMES_COMPACT_MET) note_pass(compaction, order, end == FRAMES_COMPACT_MET);
        if (end == FRAMES_COMPACT_DONE) return FRAMES_OK;
        /* By another's pass, ended or not, or where windows of this one were not emptied as a whole, and yet there is room now. */
        bool by_other = end == FRAMES_COMPACT_OTHER || end == FRAMES_COMPACT_BUSY;
        if ((by_other || counts.moved != 0) && frames_alloc_again(zone, request, frame) == FRAMES_OK) return FRAMES_OK;
        if (end != FRAMES_COMPACT_OTHER) break;
    }
    return FRAMES_NO_FRAMES;
}

/* False: nothing was had back. *frame: as frames_reclaim_function has it: also where what was captured for the request was free already. */
static bool reclaim_for(struct frame_zone *zone, const struct frames_request *request, uint64_t *frame) {
    struct frames_compaction *compaction = frames_compaction_peek(zone);
    frames_reclaim_function *reclaim = compaction == NULL ? NULL : __atomic_load_n(&compaction->reclaim, __ATOMIC_ACQUIRE);
    return reclaim != NULL && (reclaim(zone, request, frame) != 0 || *frame != FRAMES_NONE);
}

/* After what is free has not sufficed. */
static enum frames_status alloc_by_effort(struct frame_zone *zone, const struct frames_request *request, unsigned effort, uint64_t *frame) {
    enum frames_status status = FRAMES_NO_FRAMES;
    if ((effort & FRAMES_COMPACT) != 0) status = compact_for(zone, request, false, frame);
    if (status == FRAMES_OK || (effort & FRAMES_RECLAIM) == 0) return status;
    uint64_t captured = FRAMES_NONE;
    if (!reclaim_for(zone, request, &captured)) return status;
    if (captured != FRAMES_NONE) {
        *frame = captured;
        return FRAMES_OK;
    }
    status = frames_alloc_again(zone, request, frame);
    if (status != FRAMES_OK && (effort & FRAMES_COMPACT) != 0) status = compact_for(zone, request, true, frame);
    return status;
}

enum frames_status frames_alloc_hard(struct frame_zone *zone, const struct frames_request *request, uint64_t *frame) {
    enum frames_status status = frames_alloc(zone, request, frame);
    if (status != FRAMES_NO_FRAMES || (request->flags & FRAMES_NO_EFFORT) != 0) return status;
    status = alloc_by_effort(zone, request, __atomic_load_n(&zone->effort, __ATOMIC_RELAXED), frame);
    if (status == FRAMES_OK) __atomic_fetch_add(&zone->not_failed, 1, __ATOMIC_RELEASE); /* what was counted above */
    return status;
}

bool frames_direct_set_reclaim(struct frame_zone *zone, frames_reclaim_function *reclaim) {
    struct frames_compaction *compaction = frames_compaction_get(zone);
    if (compaction != NULL) __atomic_store_n(&compaction->reclaim, reclaim, __ATOMIC_RELEASE);
    return compaction != NULL;
}
