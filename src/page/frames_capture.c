/*
 * frames_capture.c - ranges that are wanted as a whole: what is free of them is held, what is freed later goes to the capture in the same step
 * (contiguity paper, section 8). What is in the way is asked to move, and else to go, block by block.
 *
 * A superpage serves one capture at a time: superpage->capture, which changes under the zone's lock while no slot has the superpage. capture->held
 * follows the bits, under whatever lock guards them. Invariant: held = popcount(captured) of the range; nobody but the capture's end makes a held
 * frame anything else. With FRAMES_CAPTURE_NO_HOLD nothing is held, so that races can be lost, and are counted. Locks: see frames.h; none while
 * owners are asked.
 */
#include "page/frames_internal.h"

#define CAPTURE_FLAGS ((unsigned)(FRAMES_CAPTURE_AT | FRAMES_CAPTURE_NO_RECLAIM | FRAMES_CAPTURE_NO_HOLD))
/* Ranges that frames_capture_run tries. */
#define TRIES_MAX 8u
/* Ranges that are looked at behind the first that will do, for a cheaper one; the next search goes on where this one ended. */
#define SEARCH_MAX 1024u

enum frames_status frames_capture_check(const struct frame_zone *zone, const struct frames_capture_request *request,
                                        struct frames_complaint *complaint) {
    const struct frames_request as = {.frames = request->frames, .align = request->align, .mobility = request->mobility, .owner = request->owner};
    enum frames_status status = frames_request_check(zone, &as, complaint);
    if (status != FRAMES_OK) return status;
    *complaint = (struct frames_complaint){"flags", "those of strata_zone_capture_flags", request->flags};
    if ((request->flags & ~CAPTURE_FLAGS) != 0) return FRAMES_BAD_ARGUMENT;
    if ((request->flags & FRAMES_CAPTURE_AT) == 0) return FRAMES_OK;
    uint64_t align = request->frames > zone->superpage_frames ? zone->superpage_frames : 1;
    *complaint = (struct frames_complaint){"at", "inside the zone; of runs above a superpage, where one begins; else inside one", request->at};
    if (request->at >= zone->frames || zone->frames - request->at < request->frames || request->at % align != 0) return FRAMES_BAD_ARGUMENT;
    bool crosses = request->frames <= zone->superpage_frames && frames_offset_of(zone, request->at) + request->frames > zone->superpage_frames;
    if (crosses) return FRAMES_BAD_ARGUMENT;
    *complaint = (struct frames_complaint){"at", "a multiple of align_frames", request->at};
    return request->align != 0 && request->at % request->align != 0 ? FRAMES_BAD_ARGUMENT : FRAMES_OK;
}

/* The part of a capture's range that is in a superpage. */
struct span {
    struct frames_superpage *superpage;
    unsigned first, count;
};
static struct span span_of(const struct frame_zone *zone, uint64_t number, uint64_t first, uint64_t frames) {
    uint64_t base = number << zone->superpage_shift, from = max_u64(base, first), to = min_u64(base + zone->superpage_frames, first + frames);
    return (struct span){.superpage = &zone->superpages[number], .first = (unsigned)(from - base), .count = (unsigned)(to - from)};
}
static uint64_t first_superpage(const struct frame_zone *zone, uint64_t first) { return first >> zone->superpage_shift; }
static uint64_t last_superpage(const struct frame_zone *zone, uint64_t first, uint64_t frames) {
    return (first + frames - 1) >> zone->superpage_shift;
}

/* ------------------------------------------------------------------ choosing */

#define NEVER UINT64_MAX

/* Under the lock: what a block costs to be asked to go; NEVER: it can't be. */
static uint64_t block_cost(const struct frame_zone *zone, uint64_t first, unsigned count, bool reclaims) {
    uint32_t note = zone->notes[first];
    unsigned number = note_owner(note);
    const struct frames_owner *owner = &zone->owners[number];
    if (note_mobility(note) == FRAMES_UNMOVABLE || (note & (NOTE_NEVER | NOTE_RUN | NOTE_DEAD)) != 0) return NEVER;
    bool moves = number == 0 ? frames_all_shown(zone, first, count) : owner->migrate != NULL;
    if (!moves && (!reclaims || number == 0 || owner->reclaim == NULL)) return NEVER;
    for (unsigned i = 0; i < count; i++)
        if (note_is_pinned(zone->notes[first + i])) return NEVER;
    return moves ? count : 4 * (uint64_t)count; /* what is dropped has to be had again */
}

/* NEVER also where it is `limit` or more: each frame costs at least 1, so that counts tell it of most without a look at their blocks. */
static uint64_t span_cost(struct frame_zone *zone, struct span span, bool reclaims, uint64_t limit) {
    struct frames_superpage *superpage = span.superpage;
    uint64_t cost = 0, base = frames_first_of(zone, superpage);
    struct frames_slot *slot = frames_lock(zone, superpage);
    bool whole = span.count == zone->superpage_frames;
    if (superpage->capture != 0)
        cost = NEVER;
    else if (whole && (superpage->used[FRAMES_UNMOVABLE] != 0 || superpage->pinned != 0 || zone->superpage_frames - superpage->free >= limit))
        cost = NEVER;
    for (unsigned i = span.first, end = span.first + span.count; cost != NEVER && i < end;) {
        i = frames_bits_next_set(superpage->allocated, i, end);
        if (i == end) break;
        unsigned head, count;
        frames_block_at(zone, superpage, i, &head, &count);
        uint64_t more = block_cost(zone, base + head, count, reclaims);
        cost = more == NEVER || cost + more >= limit ? NEVER : cost + more;
        i = head + count;
    }
    frames_unlock(zone, slot);
    return cost;
}

static uint64_t range_cost(struct frame_zone *zone, uint64_t first, uint64_t frames, bool reclaims, uint64_t limit) {
    uint64_t cost = 0;
    for (uint64_t i = first_superpage(zone, first); i <= last_superpage(zone, first, frames); i++) {
        uint64_t more = span_cost(zone, span_of(zone, i, first, frames), reclaims, limit - cost);
        if (more == NEVER) return NEVER;
        cost += more;
    }
    return cost;
}

struct tries {
    uint64_t firsts[TRIES_MAX];
    unsigned count;
};

/* The cheapest range that was not tried yet, of small zones; of others, of those that a search looks at. FRAMES_NONE: there is none. */
static uint64_t choose(struct frame_zone *zone, const struct frames_capture_request *request, uint64_t frames, uint64_t align,
                       const struct tries *tries) {
    bool whole = frames >= zone->superpage_frames, reclaims = (request->flags & FRAMES_CAPTURE_NO_RECLAIM) == 0;
    bool in_partition = request->mobility != FRAMES_UNMOVABLE || (whole && (zone->flags & FRAMES_HUGE_IN_PARTITION) != 0);
    platform_lock_acquire(&zone->lock);
    uint64_t end = (in_partition ? zone->superpage_count : zone->partition_first) << zone->superpage_shift;
    platform_lock_release(&zone->lock);
    if (frames > end) return FRAMES_NONE;
    uint64_t ranges = (end - frames) / align + 1, best = FRAMES_NONE, best_cost = NEVER, more = SEARCH_MAX;
    uint64_t at = ranges > SEARCH_MAX ? __atomic_load_n(&zone->capture_cursor, __ATOMIC_RELAXED) % ranges : 0;
    for (uint64_t left = ranges; left != 0 && more != 0 && best_cost != 0; left--, at = at + 1 < ranges ? at + 1 : 0) {
        uint64_t first = at * align;
        if (best != FRAMES_NONE) more--;
        if (!whole && frames_offset_of(zone, first) + frames > zone->superpage_frames) continue;
        bool tried = false;
        for (unsigned t = 0; t < tries->count; t++) tried |= tries->firsts[t] == first;
        if (tried) continue;
        uint64_t cost = range_cost(zone, first, frames, reclaims, best_cost);
        if (cost < best_cost) best_cost = cost, best = first;
    }
    __atomic_store_n(&zone->capture_cursor, at, __ATOMIC_RELAXED);
    return best;
}

/* ------------------------------------------------------------------ names */

void *frames_capture_name(struct frames_capture *capture) { return (char *)capture + capture->generation % FRAMES_CAPTURE_ALIGN; }

struct frames_capture *frames_capture_of(void *name, struct frame_zone **zone) {
    unsigned generation = (uintptr_t)name % FRAMES_CAPTURE_ALIGN;
    struct frames_capture *capture = (struct frames_capture *)(void *)((char *)name - generation);
    *zone = capture->zone;
    /* Without the lock: whoever has it is the only one who ends it. */
    bool same = __atomic_load_n(&capture->generation, __ATOMIC_RELAXED) % FRAMES_CAPTURE_ALIGN == generation;
    return same && __atomic_load_n(&capture->frames, __ATOMIC_RELAXED) != 0 ? capture : NULL;
}

struct frame_zone *frames_capture_zone(const struct frames_capture *capture) { return capture->zone; }

/* ------------------------------------------------------------------ begin */

static bool is_counted(const struct frames_capture *capture) { return (capture->flags & FRAMES_CAPTURE_OF_PASS) == 0; }

/* Under the zone's lock, with the range in no slot: what is free of it is held. */
static void hold_free(struct frame_zone *zone, struct frames_capture *capture, struct span span) {
    struct frames_superpage *superpage = span.superpage;
    unsigned free = superpage->free, end = span.first + span.count;
    for (unsigned i = span.first; (i = frames_bits_next_clear(superpage->allocated, i, end)) < end;) {
        unsigned stop = frames_bits_next_set(superpage->allocated, i, end);
        frames_superpage_hold(superpage, i, stop - i);
        capture->held += stop - i;
        i = stop;
    }
    if (free == zone->superpage_frames) superpage->group = (uint8_t)capture->mobility;
    frames_superpage_changed(zone, superpage, NULL, free);
}

static enum frames_status begin_at(struct frame_zone *zone, const struct frames_capture_request *request, uint64_t first, uint64_t frames,
                                   struct frames_capture **out) {
    uint64_t from = first_superpage(zone, first), last = last_superpage(zone, first, frames);
    struct frames_capture *capture = NULL;
    enum frames_status status = FRAMES_OK;
    frames_lock_range(zone, from, last);
    if (request->mobility == FRAMES_UNMOVABLE && zone->superpages[last].partition &&
        (frames < zone->superpage_frames || (zone->flags & FRAMES_HUGE_IN_PARTITION) == 0))
        status = FRAMES_NO_FRAMES;
    for (uint64_t i = from; i <= last && status == FRAMES_OK; i++)
        if (zone->superpages[i].capture != 0) status = FRAMES_BUSY;
    for (unsigned tried = 0; tried < FRAMES_CAPTURES_MAX && capture == NULL; tried++) {
        unsigned place = (zone->capture_next + tried) % FRAMES_CAPTURES_MAX;
        if (zone->captures[place].frames == 0) capture = &zone->captures[place];
    }
    if (status == FRAMES_OK && capture == NULL) status = FRAMES_NO_MEMORY;
    if (status == FRAMES_OK) {
        *capture = (struct frames_capture){.zone = zone,
                                           .first = first,
                                           .frames = frames,
                                           .wanted = request->frames,
                                           .mobility = request->mobility,
                                           .owner = request->owner,
                                           .flags = request->flags,
                                           .token = request->token,
                                           .next = first,
                                           .caller = (request->flags & FRAMES_CAPTURE_OF_CALL) != 0 ? platform_thread_self() : 0,
                                           .generation = capture->generation + 1};
        zone->capture_next = (unsigned)(capture - zone->captures) + 1;
        for (uint64_t i = from; i <= last; i++) {
            zone->superpages[i].capture = (uint32_t)(capture - zone->captures) + 1;
            if ((request->flags & FRAMES_CAPTURE_NO_HOLD) == 0) hold_free(zone, capture, span_of(zone, i, first, frames));
        }
        if (is_counted(capture)) COUNTER_ADD(zone->captures_begun, 1);
        *out = capture;
    }
    platform_lock_release(&zone->lock);
    return status;
}

/* A range that was chosen, and that another capture has come to before this one, is chosen no more. */
static enum frames_status begin(struct frame_zone *zone, const struct frames_capture_request *request, const struct tries *tries,
                                struct frames_capture **out) {
    uint64_t frames = request->frames, align = request->align != 0 ? request->align : frames_usual_align(zone, frames);
    bool chosen = (request->flags & FRAMES_CAPTURE_AT) == 0;
    enum frames_status status;
    if (frames > zone->superpage_frames) {
        frames = align_up(frames, zone->superpage_frames);
        align = max_u64(align, zone->superpage_frames);
    }
    do {
        uint64_t first = chosen ? choose(zone, request, frames, align, tries) : request->at;
        status = first != FRAMES_NONE ? begin_at(zone, request, first, frames, out) : FRAMES_NO_FRAMES;
    } while (chosen && status == FRAMES_BUSY);
    return status;
}

enum frames_status frames_capture_begin(struct frame_zone *zone, const struct frames_capture_request *request, struct frames_capture **capture) {
    const struct tries none = {.count = 0};
    return begin(zone, request, &none, capture);
}

/* ------------------------------------------------------------------ push */

/* Frames elsewhere for a block of the range. Isolated from the moment they are taken: by that the child of a fork knows that they are nobody's. */
static bool take_elsewhere(const struct frames_capture *capture, const struct frames_block *block, uint64_t *to) {
    struct frame_zone *zone = capture->zone;
    const struct frames_request request = {
        .frames = block->frames, .mobility = FRAMES_MOVABLE, .flags = FRAMES_NO_RESERVE | FRAMES_NO_EFFORT | FRAMES_ISOLATED};
    if (frames_alloc_again(zone, &request, to) != FRAMES_OK) return false;
    if (*to + block->frames <= capture->first || *to >= capture->first + capture->frames) return true;
    frames_give_back(zone, *to, block->frames); /* only where nothing is held */
    return false;
}

/* An isolated block of the range: moved, else dropped, else put back. An owner that says NEVER to the one is not asked for the other. */
static enum frames_status push_block(struct frames_capture *capture, struct frames_block *block) {
    struct frame_zone *zone = capture->zone;
    const struct frames_owner *owner = &zone->owners[note_owner(block->note)];
    enum frames_answer answer = FRAMES_LATER;
    uint64_t to;
    if ((note_owner(block->note) == 0 || owner->migrate != NULL) && take_elsewhere(capture, block, &to)) {
        answer = frames_move(zone, block, to);
        if (answer == FRAMES_YES) return FRAMES_OK;
        frames_give_back(zone, to, block->frames);
    }
    bool reclaims = (capture->flags & FRAMES_CAPTURE_NO_RECLAIM) == 0 && note_owner(block->note) != 0 && owner->reclaim != NULL;
    if (answer != FRAMES_NEVER && reclaims) {
        answer = frames_reclaim_block(zone, block, false);
        if (answer == FRAMES_YES || answer == FRAMES_WROTE) return FRAMES_OK;
    }
    frames_put_back(zone, block, answer == FRAMES_NEVER);
    return answer == FRAMES_NEVER ? FRAMES_GONE : FRAMES_BUSY;
}

enum frames_status frames_capture_push(struct frames_capture *capture, uint64_t blocks) {
    struct frame_zone *zone = capture->zone;
    uint64_t end = capture->first + capture->frames;
    enum frames_status status = FRAMES_OK;
    if (capture->next >= end) capture->next = capture->first;
    __atomic_store_n(&capture->pusher, platform_thread_self(), __ATOMIC_RELAXED);
    for (; capture->next < end && blocks != 0; blocks--) {
        struct frames_block block;
        struct frames_superpage *superpage = frames_superpage_of(zone, capture->next);
        struct frames_slot *slot = frames_lock(zone, superpage);
        unsigned at = frames_offset_of(zone, capture->next), stop = zone->superpage_frames;
        do at = frames_bits_next_set(superpage->allocated, at, stop);
        while (at < stop && frames_bit(superpage->captured, at) && ++at < stop);
        frames_unlock(zone, slot);
        uint64_t frame = frames_first_of(zone, superpage) + at;
        capture->next = frame;
        if (at == stop || frame >= end) continue;
        enum frames_status isolated = frames_isolate(zone, frame, &block);
        capture->next = max_u64(frame + 1, isolated == FRAMES_OK ? block.first + block.frames : 0);
        if (isolated == FRAMES_NOT_ALLOCATED) continue;
        if (isolated == FRAMES_OK) {
            isolated = push_block(capture, &block);
            if (isolated == FRAMES_OK) capture->emptied += min_u64(block.first + block.frames, end) - max_u64(block.first, capture->first);
        } else if (isolated == FRAMES_UNSUPPORTED)
            isolated = FRAMES_GONE;
        if (isolated == FRAMES_GONE || (isolated != FRAMES_OK && status == FRAMES_OK)) status = isolated;
    }
    __atomic_store_n(&capture->pusher, 0, __ATOMIC_RELAXED);
    if (status == FRAMES_GONE) capture->gone = true;
    return status;
}

/* ------------------------------------------------------------------ the end */

enum frames_status frames_capture_poll(struct frames_capture *capture, uint64_t *first, uint64_t *left) {
    uint64_t held = __atomic_load_n(&capture->held, __ATOMIC_ACQUIRE);
    uint64_t missing = capture->frames - held;
    if ((capture->flags & FRAMES_CAPTURE_NO_HOLD) != 0) missing = frames_taken_of(capture->zone, capture->first, capture->frames);
    if (first != NULL) *first = capture->first;
    if (left != NULL) *left = missing;
    return missing == 0 ? FRAMES_OK : capture->gone ? FRAMES_GONE : FRAMES_NOT_DONE;
}

/* Under the zone's lock: a small run for a mobility that is not the superpage's is a fallback, as one that placement gives. True: it is one. */
static bool note_fallback(struct frame_zone *zone, const struct frames_capture *capture, struct span span) {
    struct frames_superpage *superpage = span.superpage;
    bool foreign = (zone->flags & FRAMES_NO_GROUPING) == 0 && superpage->group != (uint8_t)capture->mobility;
    if (!foreign || span.count == zone->superpage_frames) return false;
    COUNTER_ADD(zone->fallbacks, 1);
    if (group_changes(superpage->free + span.count, zone->superpage_frames, capture->mobility == FRAMES_MOVABLE)) {
        COUNTER_ADD(zone->retypes, 1);
        superpage->group = (uint8_t)capture->mobility;
    }
    return true;
}

/* Under the zone's lock, all of it held: the part that is wanted is a block from now on, the rest free. */
static void settle(struct frame_zone *zone, const struct frames_capture *capture, struct span span, uint64_t wanted) {
    struct frames_superpage *superpage = span.superpage;
    unsigned free = superpage->free, count = (unsigned)min_u64(span.count, wanted);
    uint64_t frame = frames_first_of(zone, superpage) + span.first;
    uint32_t note = (uint32_t)capture->mobility | capture->owner << NOTE_OWNER_SHIFT | (capture->frames > zone->superpage_frames ? NOTE_RUN : 0);
    if (frame != capture->first) note |= NOTE_GOES_ON;
    superpage->capture = 0;
    if (count < span.count) frames_superpage_unhold(superpage, span.first + count, span.count - count);
    frames_superpage_settle(superpage, span.first, count, capture->mobility);
    if (span.count == zone->superpage_frames) superpage->group = (uint8_t)capture->mobility;
    frames_note_set(zone, superpage, frame, note);
    if (capture->owner != 0) {
        zone->tokens[frame] = capture->token;
        if (zone->hooks.placed != NULL) zone->hooks.placed(zone, frame, count, note);
    }
    frames_superpage_changed(zone, superpage, NULL, free);
}

/* Under the zone's lock: nothing is wanted of the superpage any more. */
static void let_go(struct frame_zone *zone, struct span span) {
    struct frames_superpage *superpage = span.superpage;
    unsigned free = superpage->free, end = span.first + span.count;
    superpage->capture = 0;
    for (unsigned i = span.first; (i = frames_bits_next_set(superpage->captured, i, end)) < end;) {
        unsigned stop = frames_bits_next_clear(superpage->captured, i, end);
        frames_superpage_unhold(superpage, i, stop - i);
        i = stop;
    }
    frames_superpage_changed(zone, superpage, NULL, free);
}

enum frames_status frames_capture_end(struct frames_capture *capture, uint64_t *frame) {
    struct frame_zone *zone = capture->zone;
    uint64_t from = first_superpage(zone, capture->first), last = last_superpage(zone, capture->first, capture->frames), left = capture->wanted;
    bool holds = (capture->flags & FRAMES_CAPTURE_NO_HOLD) == 0;
    frames_lock_range(zone, from, last);
    for (uint64_t i = from; i <= last && !holds; i++) { /* all at once, where it is free at this moment */
        struct span span = span_of(zone, i, capture->first, capture->frames);
        if (frames_bits_next_set(span.superpage->allocated, span.first, span.first + span.count) != span.first + span.count) break;
        if (i == last)
            for (uint64_t j = from; j <= last; j++) hold_free(zone, capture, span_of(zone, j, capture->first, capture->frames));
    }
    bool done = capture->held == capture->frames,
         fell_back = done && note_fallback(zone, capture, span_of(zone, from, capture->first, capture->frames));
    for (uint64_t i = from; i <= last && done; i++) {
        settle(zone, capture, span_of(zone, i, capture->first, capture->frames), left);
        left -= min_u64(left, zone->superpage_frames);
    }
    if (done) {
        if (is_counted(capture)) COUNTER_ADD(zone->captures_done, 1);
        *frame = capture->first;
        capture->frames = 0;
    }
    platform_lock_release(&zone->lock);
    void (*tell)(struct frame_zone *) = fell_back ? __atomic_load_n(&zone->hooks.fell_back, __ATOMIC_ACQUIRE) : NULL;
    if (tell != NULL) tell(zone);
    return done ? FRAMES_OK : capture->gone ? FRAMES_GONE : FRAMES_NOT_DONE;
}

void frames_capture_give_up(struct frames_capture *capture) {
    struct frame_zone *zone = capture->zone;
    uint64_t from = first_superpage(zone, capture->first), last = last_superpage(zone, capture->first, capture->frames);
    frames_lock_range(zone, from, last);
    for (uint64_t i = from; i <= last; i++) let_go(zone, span_of(zone, i, capture->first, capture->frames));
    capture->frames = 0;
    if (is_counted(capture)) COUNTER_ADD(zone->captures_given_up, 1);
    platform_lock_release(&zone->lock);
}

/* ------------------------------------------------------------------ all in one */

/*
 * Frames of a capture, pushed and not had, that went to somebody else: of what was held at the start and what was emptied since, those that are not
 * held now; of one that holds nothing, where nobody refused, all that are somebody's.
 */
static uint64_t lost_frames(struct frames_capture *capture, uint64_t held_first, enum frames_status pushed) {
    uint64_t least = held_first + capture->emptied, left;
    (void)frames_capture_poll(capture, NULL, &left);
    if ((capture->flags & FRAMES_CAPTURE_NO_HOLD) != 0) return pushed == FRAMES_OK ? left : 0;
    uint64_t held = capture->frames - left;
    return least > held ? least - held : 0;
}

enum frames_status frames_capture_run(struct frame_zone *zone, const struct frames_capture_request *request, uint64_t *frame) {
    struct frames_capture_request mine = *request;
    struct tries tries = {.count = 0};
    mine.flags |= FRAMES_CAPTURE_OF_CALL;
    while (tries.count < TRIES_MAX) {
        struct frames_capture *capture;
        enum frames_status status = begin(zone, &mine, &tries, &capture);
        if (status != FRAMES_OK) return status;
        tries.firsts[tries.count++] = capture->first;
        uint64_t held_first = __atomic_load_n(&capture->held, __ATOMIC_ACQUIRE);
        enum frames_status pushed = frames_capture_push(capture, UINT64_MAX);
        if (frames_capture_end(capture, frame) == FRAMES_OK) return FRAMES_OK;
        uint64_t lost = lost_frames(capture, held_first, pushed);
        if (lost != 0) {
            __atomic_fetch_add(&zone->races_lost, lost, __ATOMIC_RELAXED);
            platform_lock_acquire(&zone->lock);
            COUNTER_ADD(zone->captures_lost, 1);
            platform_lock_release(&zone->lock);
        }
        frames_capture_give_up(capture);
        if ((request->flags & FRAMES_CAPTURE_AT) != 0) break;
    }
    return FRAMES_NO_FRAMES;
}
