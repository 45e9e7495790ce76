/*
 * frames_compact.c - one pass of compaction (contiguity paper, section 7.1). Invariants: frames_compact.h.
 *
 * What differs from the paper, and why: a window in which anything can't be moved is left alone, as moving the rest would not free it; the free
 * scanner does not go into superpages that are wholly free, as these are what the pass is to bring about (but for runs above a superpage, which want
 * them together, and for blocks that leave a superpage of another group); and a pass for a superpage first takes those that are at most half full, so
 * that the first success is cheap.
 *
 * A pass for a request holds the range that it empties, by a capture of this call (frames_capture.c): what is free of it at the start, and what each
 * move leaves, is nobody's until the request has all of it, or it is given up. So blocks of the range can only become fewer, and no race is lost.
 */
#include "page/frames_compact_internal.h"

/* How far down the free scanner looks for room for a block that the next superpages have none for. */
#define TARGETS_MAX 64u

struct pass {
    struct frame_zone *zone;
    struct frames_compaction *compaction;
    const struct frames_compact_goal *goal;
    struct frames_compact_counts counts;
    uint64_t source, target;     /* superpages: where the scanners are. target: nothing is free above */
    uint64_t whole_target;       /* the same, with those that are wholly free */
    uint64_t lowest_target;      /* that has got a block */
    uint64_t end;                /* behind the last superpage that the migration scanner may go to */
    uint64_t swept, swept_end;   /* superpages that it has been to in vain, though there was room: it passes over them */
    uint64_t spare;              /* frames taken by the free scanner, and not used yet */
    uint64_t spare_frames;       /* 0: none */
    unsigned window;             /* frames */
    unsigned needed;             /* of each window, from its first frame on */
    uint64_t range, align;       /* frames that the request wants together, a part of one window or whole superpages; and where ranges begin */
    struct frames_capture *hold; /* of the range that is being emptied; NULL: others may take frames of it */
    bool sparse_only, whole_targets;
    bool serves; /* the request may have what windows leave */
};

/* ------------------------------------------------------------------ looking, under the lock of a superpage */

struct look {
    unsigned free, used[FRAMES_MOBILITIES], pinned;
    enum frames_mobility group;
    bool wanted; /* by a capture, or partly held by one */
};

/* For those who wait; nobody else counts meanwhile. */
static void note_progress(struct frames_compaction *compaction) {
    __atomic_store_n(&compaction->progress, compaction->progress + 1, __ATOMIC_RELAXED);
}

static void look_at(const struct pass *pass, uint64_t index, struct look *look) {
    struct frame_zone *zone = pass->zone;
    note_progress(pass->compaction);
    struct frames_superpage *superpage = &zone->superpages[index];
    struct frames_slot *slot = frames_lock(zone, superpage);
    look->free = superpage->free;
    look->pinned = superpage->pinned;
    look->group = (enum frames_mobility)superpage->group;
    look->wanted = superpage->capture != 0 || superpage->captured_frames != 0;
    for (unsigned i = 0; i < FRAMES_MOBILITIES; i++) look->used[i] = superpage->used[i];
    frames_unlock(zone, slot);
}

static bool is_grouped(const struct frame_zone *zone) { return (zone->flags & FRAMES_NO_GROUPING) == 0; }

/* Whether the migration scanner goes into it at all. */
static bool is_source(const struct pass *pass, const struct look *look) {
    unsigned frames = pass->zone->superpage_frames;
    bool movable_group = !is_grouped(pass->zone) || look->group == FRAMES_MOVABLE;
    if (look->free == frames || look->used[FRAMES_MOVABLE] == 0 || look->wanted || (pass->goal->movable_only && !movable_group)) return false;
    return !pass->sparse_only || look->used[FRAMES_MOVABLE] <= frames / 2;
}

/* Whether it may get blocks: dense is better, so one that is wholly free is not. */
static bool is_target(const struct pass *pass, const struct look *look, bool whole) {
    if (look->free == 0 || look->wanted) return false;
    if (look->free == pass->zone->superpage_frames) return whole;
    return !is_grouped(pass->zone) || look->group == FRAMES_MOVABLE;
}

/* What is known of a block of a window by its note. The reason for leaving it alone is counted. */
static bool may_move(struct pass *pass, uint64_t head) {
    uint32_t note = pass->zone->notes[head];
    unsigned owner = note_owner(note);
    if (note_mobility(note) != FRAMES_MOVABLE || (note & (NOTE_NEVER | NOTE_RUN)) != 0 || (owner != 0 && pass->zone->owners[owner].migrate == NULL))
        pass->counts.failed_unmovable++;
    else if (note_is_pinned(note))
        pass->counts.failed_pinned++;
    else if ((note & NOTE_MOVING) != 0)
        pass->counts.failed_busy++;
    else
        return true;
    return false;
}

/* First frames of the blocks that begin in what is needed of a window and may move; *blocked: something else is there, too. */
static unsigned window_blocks(struct pass *pass, uint64_t first, uint64_t *heads, bool *blocked) {
    struct frame_zone *zone = pass->zone;
    struct frames_superpage *superpage = frames_superpage_of(zone, first);
    unsigned offset = frames_offset_of(zone, first), end = offset + pass->needed, count = 0;
    *blocked = false;
    struct frames_slot *slot = frames_lock(zone, superpage);
    for (unsigned at = offset; (at = frames_bits_next_set(superpage->allocated, at, end)) < end;) {
        if (frames_bit(superpage->heads, at)) {
            if (may_move(pass, first - offset + at))
                heads[count++] = first - offset + at;
            else
                *blocked = true;
        } else if (pass->hold == NULL || !frames_bit(superpage->captured, at)) {
            *blocked = true; /* another capture's, or of a block that begins before and stayed */
        }
        /* To the next head, over the rest of this block. */
        unsigned taken = frames_bits_next_clear(superpage->allocated, at, end), head = frames_bits_next_set(superpage->heads, at + 1, end);
        at = head < taken ? head : taken;
    }
    frames_unlock(zone, slot);
    return count;
}

void frames_free_sample(struct frame_zone *zone, uint64_t superpages, uint64_t first, uint64_t step, bool movable_only, struct frames_free *free) {
    struct frames_free_scan scan = {.superpage_frames = zone->superpage_frames};
    for (uint64_t i = first; i < superpages; i += step) {
        struct frames_superpage *superpage = &zone->superpages[i];
        uint64_t bits[FRAMES_WORDS];
        struct frames_slot *slot = frames_lock(zone, superpage);
        bool counts = superpage->free != 0 &&
                      (!movable_only || !is_grouped(zone) || superpage->group == FRAMES_MOVABLE || superpage->free == zone->superpage_frames);
        for (unsigned word = 0; word < FRAMES_WORDS; word++) bits[word] = ~superpage->allocated[word];
        frames_unlock(zone, slot);
        if (counts) frames_free_count_superpage(&scan, i, bits);
    }
    frames_free_end(&scan);
    *free = scan.free;
}

void frames_free_get(struct frame_zone *zone, uint64_t superpages, bool movable_only, struct frames_free *free) {
    frames_free_sample(zone, superpages != 0 ? superpages : zone->superpage_count, 0, 1, movable_only, free);
}

/* ------------------------------------------------------------------ moving */

static void give_spare(struct pass *pass) {
    if (pass->spare_frames != 0) frames_give_back(pass->zone, pass->spare, pass->spare_frames);
    pass->spare_frames = 0;
}

/* Goes down from *cursor to the first superpage that has room; *cursor: above it nothing has. */
static bool scan_down(struct pass *pass, uint64_t *cursor, uint64_t frames, bool whole) {
    uint64_t align = min_u64(frames_usual_align(pass->zone, frames), pass->zone->superpage_frames);
    unsigned looks = 0;
    for (uint64_t at = *cursor; at > pass->source && looks < TARGETS_MAX; at--) {
        struct look look;
        look_at(pass, at, &look);
        bool target = is_target(pass, &look, whole);
        if (target && frames_take_in(pass->zone, at, frames, align, &pass->spare)) {
            pass->spare_frames = frames;
            return true;
        }
        looks += target;
        if (at == *cursor && (frames == 1 || !target)) --*cursor; /* a larger block than another may have no room where that has */
    }
    return false;
}

/* Free frames above the migration scanner, which stay `spare` until a block has moved there. foreign: a free superpage is not too good for it. */
static bool find_target(struct pass *pass, uint64_t frames, bool foreign) {
    if (pass->spare_frames == frames && pass->spare >> pass->zone->superpage_shift > pass->source) return true;
    give_spare(pass);
    if (scan_down(pass, &pass->target, frames, pass->whole_targets)) return true;
    if (foreign && scan_down(pass, &pass->whole_target, frames, true)) return true;
    pass->counts.failed_room++;
    return false;
}

/* True: the block is where it is no more. */
static bool move_block(struct pass *pass, uint64_t head, bool foreign) {
    struct frames_block block;
    struct frames_compact_counts *counts = &pass->counts;
    switch (frames_isolate(pass->zone, head, &block)) {
    case FRAMES_OK: break;
    case FRAMES_NOT_ALLOCATED: counts->gone++; return true;
    case FRAMES_PINNED: counts->failed_pinned++; return false;
    case FRAMES_BUSY: counts->failed_busy++; return false;
    default: counts->failed_unmovable++; return false;
    }
    enum frames_answer answer = FRAMES_LATER;
    /* What is in its place may be another block by now: none that this pass has brought there, as those are above. */
    if (find_target(pass, block.frames, foreign)) {
        uint64_t target = pass->spare >> pass->zone->superpage_shift;
        answer = frames_move(pass->zone, &block, pass->spare);
        note_progress(pass->compaction);
        if (answer == FRAMES_YES) {
            pass->spare_frames = 0;
            if (target < pass->lowest_target) pass->lowest_target = target;
            counts->moved++;
            counts->moved_frames += block.frames;
            return true;
        }
        if (answer == FRAMES_NEVER || answer == FRAMES_NOBODY)
            counts->failed_unmovable++;
        else
            counts->failed_later++;
    }
    frames_put_back(pass->zone, &block, answer == FRAMES_NEVER);
    return false;
}

/* True: all of it was free when its last block went, or at the start. foreign: what can leave it does, whatever stays. */
static bool empty_window(struct pass *pass, uint64_t first, bool foreign) {
    uint64_t heads[FRAMES_SUPERPAGE_MAX];
    bool blocked, moved = false;
    for (unsigned count; (count = window_blocks(pass, first, heads, &blocked)) != 0;) {
        if (blocked && !foreign) return false;
        moved = true;
        uint64_t failed_room = pass->counts.failed_room;
        for (unsigned i = 0; i < count; i++) {
            if (move_block(pass, heads[i], foreign)) continue;
            blocked = true;
            if (!foreign || pass->counts.failed_room != failed_room) return false; /* the rest is of no use without this one */
        }
        if (pass->hold == NULL) break; /* others may have come to it meanwhile; nobody comes to what is held, but blocks are cut in two by frees */
    }
    if (moved && !blocked) pass->counts.windows++;
    return !blocked;
}

/* ------------------------------------------------------------------ for a request */

/* Whether anything of a range may be in the way for good, so that it is not begun. *empty: nothing is in the way. */
static bool is_blocked(struct pass *pass, uint64_t first, bool *empty) {
    uint64_t heads[FRAMES_SUPERPAGE_MAX];
    bool blocked = false;
    *empty = true;
    for (uint64_t at = first; at < first + pass->range && !blocked; at += pass->window) *empty &= window_blocks(pass, at, heads, &blocked) == 0;
    return blocked;
}

/* False: somebody else wants frames of the range. Where all captures are taken nothing is held, and a race may be lost, which is counted. */
static bool begin_hold(struct pass *pass, uint64_t first) {
    const struct frames_request *request = pass->goal->request;
    const struct frames_capture_request wanted = {.frames = request->frames,
                                                  .at = first,
                                                  .mobility = request->mobility,
                                                  .owner = request->owner,
                                                  .flags =
                                                      FRAMES_CAPTURE_AT | FRAMES_CAPTURE_NO_RECLAIM | FRAMES_CAPTURE_OF_CALL | FRAMES_CAPTURE_OF_PASS,
                                                  .token = request->token};
    if (pass->goal->no_hold || !pass->serves) return true;
    enum frames_status status = frames_capture_begin(pass->zone, &wanted, &pass->hold);
    return status == FRAMES_OK || status == FRAMES_NO_MEMORY;
}

/* The request has the range, or it is given up, and the request has what placement finds for it. */
static bool end_hold(struct pass *pass, uint64_t first, bool emptied, uint64_t *frame) {
    struct frames_capture *hold = pass->hold;
    bool had = hold != NULL && emptied && frames_capture_end(hold, frame) == FRAMES_OK;
    if (hold != NULL && !had) frames_capture_give_up(hold);
    pass->hold = NULL;
    if (had || !emptied) return had;
    give_spare(pass);
    if (frames_alloc_again(pass->zone, pass->goal->request, frame) == FRAMES_OK) return true;
    if (pass->serves) {
        pass->counts.races_lost++;
        __atomic_fetch_add(&pass->zone->races_lost, frames_taken_of(pass->zone, first, pass->range), __ATOMIC_RELAXED);
    }
    return false;
}

/* A range is emptied. True: *frame is the request's. */
static bool try_range(struct pass *pass, uint64_t first, uint64_t *frame) {
    bool empty, emptied = true;
    if (first % pass->align != 0 || is_blocked(pass, first, &empty) || !begin_hold(pass, first)) return false;
    if (empty && pass->hold == NULL) return false; /* placement had its chance, and will have another */
    for (uint64_t at = first; at < first + pass->range && emptied; at += pass->window) emptied = empty_window(pass, at, false);
    return end_hold(pass, first, emptied, frame);
}

/* ------------------------------------------------------------------ the pass */

static bool have_met(const struct pass *pass) {
    uint64_t target = pass->goal->movable_only ? pass->target : max_u64(pass->target, pass->whole_target);
    return pass->source >= min_u64(pass->end, min_u64(target, pass->lowest_target));
}

/* Whether all superpages of a range are sources, or free. */
static bool run_is_source(struct pass *pass, uint64_t first, uint64_t count) {
    for (uint64_t i = first; i < first + count; i++) {
        struct look look;
        look_at(pass, i, &look);
        if (look.wanted || (look.free != pass->zone->superpage_frames && !is_source(pass, &look))) return false;
    }
    return true;
}

/* For a run of several superpages, each time from one where it may begin. The last of them is where the migration scanner is. */
static bool sweep_runs(struct pass *pass, uint64_t *frame) {
    uint64_t count = pass->range >> pass->zone->superpage_shift;
    for (uint64_t first = 0;; first += pass->align >> pass->zone->superpage_shift) {
        pass->source = first + count - 1;
        if (have_met(pass)) return false;
        if (run_is_source(pass, first, count) && try_range(pass, first << pass->zone->superpage_shift, frame)) return true;
    }
}

/* From where the scanners are until they meet. */
static bool sweep(struct pass *pass, uint64_t *frame) {
    bool for_request = pass->goal->request != NULL;
    if (for_request && pass->range > pass->window) return sweep_runs(pass, frame);
    for (; !have_met(pass); pass->source++) {
        if (pass->source >= pass->swept && pass->source < pass->swept_end) continue;
        struct look look;
        look_at(pass, pass->source, &look);
        if (!is_source(pass, &look)) continue;
        bool foreign = is_grouped(pass->zone) && look.group != FRAMES_MOVABLE;
        uint64_t first = pass->source << pass->zone->superpage_shift;
        for (unsigned at = 0; at < pass->zone->superpage_frames && !have_met(pass); at += pass->window) {
            if (!for_request)
                (void)empty_window(pass, first + at, foreign);
            else if (try_range(pass, first + at, frame))
                return true;
        }
    }
    return false;
}

/* Whether what movable blocks leave may be the request's by placement: a small run of another mobility falls back there, if it may. */
static bool may_serve(const struct frame_zone *zone, const struct frames_request *request) {
    return !is_grouped(zone) || request->mobility == FRAMES_MOVABLE || request->frames >= zone->superpage_frames ||
           (request->flags & FRAMES_NO_FALLBACK) == 0;
}

/* What the pass is for, in frames. */
static void aim(struct pass *pass) {
    const struct frame_zone *zone = pass->zone;
    const struct frames_request *request = pass->goal->request;
    pass->window = 1u << min_u64(pass->goal->order, zone->superpage_shift);
    pass->needed = pass->window;
    pass->range = pass->window;
    if (request == NULL) return;
    bool run = request->frames > zone->superpage_frames;
    pass->range = run ? align_up(request->frames, zone->superpage_frames) : request->frames;
    pass->align = max_u64(request->align != 0 ? request->align : frames_usual_align(zone, request->frames), pass->window);
    if (!run) pass->needed = (unsigned)request->frames;
    pass->whole_targets = run;
    pass->sparse_only = pass->window == zone->superpage_frames;
    pass->serves = may_serve(zone, request);
}

/* Scanners go on from where they were, or from the ends of the zone. What blocks have moved to stays above lowest_target, and is not moved again. */
static bool sweep_from(struct pass *pass, uint64_t source, uint64_t target, uint64_t *frame) {
    pass->source = source;
    pass->target = target;
    return sweep(pass, frame);
}

/*
 * A pass for one request in a large zone: it goes on where the last one had what it wanted, as behind that there is what that one left. In vain from
 * there, it goes through the rest of the zone, or all of it where room was what it lacked. So superpages are looked at once in many requests, instead
 * of in each.
 */
static bool sweep_on(struct pass *pass, uint64_t *frame) {
    uint64_t top = pass->zone->superpage_count - 1;
    struct frames_resume *resume = &pass->compaction->resumes[pass->goal->order][!pass->sparse_only];
    uint64_t from = resume->source, failed_room = pass->counts.failed_room;
    bool had = sweep_from(pass, from, from != 0 ? resume->target : top, frame);
    if (!had && from != 0) {
        if (pass->counts.failed_room == failed_room) pass->swept = from, pass->swept_end = pass->source;
        had = sweep_from(pass, 0, top, frame);
        pass->swept = pass->swept_end = 0;
    }
    *resume = (struct frames_resume){had ? pass->source : 0, pass->target};
    return had;
}

static bool sweep_large(struct pass *pass, uint64_t *frame) {
    struct frames_deferral *sparse = &pass->compaction->sparse;
    if (pass->sparse_only && sparse->left == 0) {
        bool had = sweep_on(pass, frame);
        sparse->shift = had ? 0 : (uint32_t)min_u64(sparse->shift + 1, FRAMES_DEFERRAL_MAX);
        sparse->left = had ? 0 : UINT32_C(1) << sparse->shift;
        if (had) return true;
    } else if (pass->sparse_only)
        sparse->left--;
    pass->sparse_only = false;
    return sweep_on(pass, frame);
}

static enum frames_compact_end run_pass(struct frame_zone *zone, struct frames_compaction *compaction, const struct frames_compact_goal *goal,
                                        struct frames_compact_counts *counts, uint64_t *frame) {
    struct pass pass = {.zone = zone,
                        .compaction = compaction,
                        .goal = goal,
                        .target = zone->superpage_count - 1,
                        .whole_target = zone->superpage_count - 1,
                        .lowest_target = UINT64_MAX};
    pass.end = goal->superpages != 0 ? goal->superpages : zone->superpage_count;
    aim(&pass);
    bool resumes = goal->request != NULL && pass.range <= pass.window && frames_is_large(zone);
    bool had = resumes ? sweep_large(&pass, frame) : sweep(&pass, frame);
    if (!resumes && !had && pass.sparse_only) {
        pass.sparse_only = false;
        pass.source = 0;
        had = sweep(&pass, frame);
    }
    give_spare(&pass);
    pass.counts.passes = 1;
    pass.counts.done = had;
    pass.counts.met = !had;
    *counts = pass.counts;
    return had ? FRAMES_COMPACT_DONE : FRAMES_COMPACT_MET;
}

/* Each of the numbers, all of which are of one type. Either side may be read or changed by others. */
static void add_counts(struct frames_compact_counts *sums, const struct frames_compact_counts *counts) {
    uint64_t *sum = &sums->passes;
    const uint64_t *count = &counts->passes;
    for (size_t i = 0; i < sizeof *sums / sizeof *sum; i++)
        __atomic_fetch_add(&sum[i], __atomic_load_n(&count[i], __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

/* Until the pass of another thread has ended; false: it has not, and is waited for no longer. */
static bool wait_for_pass(struct frames_compaction *compaction, uint32_t passing) {
    uint64_t passes = __atomic_load_n(&compaction->counts.passes, __ATOMIC_RELAXED), since_ns = platform_now_ns();
    uint32_t progress = __atomic_load_n(&compaction->progress, __ATOMIC_RELAXED);
    if (frames_in_program()) return false;
    for (;;) {
        platform_word_wait_for(&compaction->passing, passing, FRAMES_STILL_NS);
        bool same = __atomic_load_n(&compaction->passing, __ATOMIC_ACQUIRE) == passing;
        if (!same || __atomic_load_n(&compaction->counts.passes, __ATOMIC_RELAXED) != passes) return true;
        uint32_t progress_now = __atomic_load_n(&compaction->progress, __ATOMIC_RELAXED);
        uint64_t now_ns = platform_now_ns();
        if (progress_now == progress && now_ns - since_ns >= FRAMES_STILL_NS) return false;
        if (progress_now != progress) since_ns = now_ns;
        progress = progress_now;
    }
}

enum frames_compact_end frames_compact(struct frame_zone *zone, const struct frames_compact_goal *goal, struct frames_compact_counts *counts,
                                       uint64_t *frame) {
    struct frames_compact_counts mine = {0};
    struct frames_compaction *compaction = frames_compaction_get(zone);
    if (compaction == NULL) return FRAMES_COMPACT_NO_MEMORY;
    uint32_t self = platform_thread_self(), passing = 0;
    if (!__atomic_compare_exchange_n(&compaction->passing, &passing, self, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        if (passing == self) return FRAMES_COMPACT_WITHIN;
        return wait_for_pass(compaction, passing) ? FRAMES_COMPACT_OTHER : FRAMES_COMPACT_BUSY;
    }
    enum frames_compact_end end = run_pass(zone, compaction, goal, &mine, frame);
    add_counts(&compaction->counts, &mine);
    __atomic_store_n(&compaction->passing, 0, __ATOMIC_RELEASE);
    platform_word_wake(&compaction->passing);
    if (counts != NULL) *counts = mine;
    return end;
}

void frames_compact_counts_get(struct frame_zone *zone, struct frames_compact_counts *counts) {
    struct frames_compaction *compaction = frames_compaction_peek(zone);
    *counts = (struct frames_compact_counts){0};
    if (compaction != NULL) add_counts(counts, &compaction->counts);
}
