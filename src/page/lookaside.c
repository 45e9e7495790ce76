/*
 * lookaside.c - the pages that are present but free: who keeps them, and when they go back to the system.
 *
 * A free page stays present, as a first touch costs ten times a hand-back. It goes back
 *   - one in, one out: when fresh pages are about to be touched and the heap would be larger than it ever was, idle ones beyond a small reserve leave
 * in exchange, so that the peak of the resident set follows the peak of what is in use, not the sum of the peaks of all sizes. Below its peak a heap
 * loses nothing by idle pages, which would be touched again soon: there none leave. What fits nowhere in a superpage that is more than half in use
 * stays for what will: blocks of many sizes that come and go would exchange the same holes for ever. And as a page that was exchanged may have to be
 * touched again, who exchanges much of late keeps more: the heap grows by a part of what exchanges have cost it, up to a share of what is in use;
 *   - by working set: at each tick, as many as were never needed since the last one;
 *   - by limit and by request.
 * Superpages leave in the order in which they first got idle pages. Superpages of huge pages that are in use keep their holes
 * until most of one is idle, because giving 4 KiB of it back would break it up. Lock: LOCK_RANK_ZONE.
 */
#include "page/zone_internal.h"

#include "base/check.h"

/* Idle pages that no exchange touches: enough for the slabs that come and go, and a share of what is in use. */
#define RESERVE_GRANULES_MIN 16
#define RESERVE_SHARE 32
/* And in addition one for so many that were exchanged of late, up to a share of what is in use and a few for small heaps. */
#define EXCHANGED_SHARE 8
#define SLACK_SHARE 4
#define SLACK_GRANULES_MIN 128
/* Idle pages inside huge pages in use, at most this share of what is allocated; and how many superpages are looked at for the emptiest. */
#define HUGE_IDLE_SHARE 8
#define HUGE_LOOKS 16

/* Of the address space less than this share was never used. */
#define SPACE_SHORT_SHARE 8

/*
 * Holes of a superpage that leave by one call; they are described on the stack of whoever allocates. In a heap of this size, where there are many: a
 * program that locks itself into a few system calls has a small one, knows of madvise, and may be ended for the other call. Nor behind a filter.
 */
#define HOLES_A_CALL 32
#define HOLES_HEAP_GRANULES (32 * MIB / GRANULE_BYTES)

/* The descriptors and heads of a superpage that has no runs: they say nothing, and may be a thirtieth of its size. */
static void release_descriptors(struct zone *zone, struct superpage *superpage) {
    size_t at = (size_t)(superpage - zone->superpages), bytes = SUPERPAGE_GRANULES * sizeof(struct granule_desc), page = platform_info()->page_bytes;
    if (!superpage->described || bytes % page != 0) return;
    if (!platform_release(&zone->descs[at * SUPERPAGE_GRANULES], bytes)) return;
    /* With pages of 16 KiB they share some with their neighbours, and stay. */
    if (sizeof(struct head_area) % page == 0 && !platform_release(&zone->heads[at], sizeof(struct head_area))) return;
    superpage->described = false;
    zone->counters.described--;
    zone_superpage_relink(zone, superpage, superpage->idle);
}

/*
 * The same of superpages whose pages have gone in another way: blocks that nobody touched have none, others have moved. Some by one hold of the lock.
 */
#define BARE_PIECE 16
static STRATA_RARE void release_bare(struct zone *zone) {
    for (uint64_t left = zone->counters.described; left != 0 && !list_empty(&zone->idle[IDLE_BARE]); left--) {
        struct superpage *superpage = CONTAINER_OF(zone->idle[IDLE_BARE].next, struct superpage, idle_link);
        release_descriptors(zone, superpage);
        if (superpage->described) return; /* the system refused, or its pages are too large */
        if (left % BARE_PIECE != 0) continue;
        platform_lock_release(&zone->lock);
        zone_lock(zone);
    }
}

/* Idle granules of a superpage, the highest of each run, at most `want` but whole runs where they are shorter than 64. */
static unsigned pick_idle(const struct superpage *superpage, uint64_t want, unsigned unit, uint64_t picked[SUPERPAGE_WORDS]) {
    uint64_t idle[SUPERPAGE_WORDS];
    unsigned count = 0;
    for (unsigned w = 0; w < SUPERPAGE_WORDS; w++) {
        idle[w] = superpage->populated[w] & ~superpage->allocated[w];
        picked[w] = 0;
    }
    for (unsigned start = bits_next(idle, 0, 0); start < SUPERPAGE_GRANULES && count < want;) {
        unsigned end = bits_next(idle, start, ~UINT64_C(0));
        unsigned length = end - start;
        uint64_t left = align_up(want - count, unit);
        if (length > 64 && length > left) length = (unsigned)max_u64(left, 64);
        bits_set(picked, end - length, length);
        count += length;
        start = bits_next(idle, end, 0);
    }
    return count;
}

/* Holes are short and many, and a call for each costs six times what it costs within one for several. */
STRATA_RARE bool zone_release_picked(const struct zone *zone, const struct superpage *superpage, const uint64_t picked[SUPERPAGE_WORDS]) {
    char *address = superpage_address(zone, superpage);
    bool several = __atomic_load_n(&zone->counters.populated, __ATOMIC_RELAXED) >= HOLES_HEAP_GRANULES && !platform_is_filtered();
    size_t a_call = several ? HOLES_A_CALL : 1;
    struct platform_range ranges[HOLES_A_CALL];
    size_t count = 0;
    bool ok = true;
    for (unsigned start = bits_next(picked, 0, 0); start < SUPERPAGE_GRANULES;) {
        unsigned end = bits_next(picked, start, ~UINT64_C(0));
        ranges[count++] = (struct platform_range){address + ((size_t)start << GRANULE_SHIFT), (size_t)(end - start) << GRANULE_SHIFT};
        start = bits_next(picked, end, 0);
        if (count < a_call && start < SUPERPAGE_GRANULES) continue;
        ok &= platform_release_all(ranges, count);
        count = 0;
    }
    return ok;
}

static STRATA_RARE void mark_picked(struct zone *zone, struct superpage *superpage, const uint64_t picked[SUPERPAGE_WORDS], bool captured,
                                    bool released) {
    unsigned idle_before = superpage->idle;
    for (unsigned w = 0; w < SUPERPAGE_WORDS; w++) {
        if (captured)
            superpage->allocated[w] |= picked[w];
        else
            superpage->allocated[w] &= ~picked[w];
        if (released) {
            COUNTER_SUB(zone->counters.populated, bit_count(superpage->populated[w] & picked[w]));
            zone->counters.released_total += bit_count(superpage->populated[w] & picked[w]);
            superpage->populated[w] &= ~picked[w];
            superpage->dirty[w] &= ~picked[w];
        }
    }
    superpage_recount(superpage);
    zone_superpage_relink(zone, superpage, idle_before);
}

/* What a free superpage loses at its end, in steps of a word, so that `want` leave; 0: all of it has to go. */
static unsigned part_start(const struct superpage *superpage, uint64_t want) {
    unsigned start = SUPERPAGE_GRANULES, count = 0;
    while (count < want && start != 0) {
        start -= 64;
        count += bit_count(superpage->populated[start / 64]);
    }
    return count == superpage->idle ? 0 : start;
}

/*
 * Idle granules on their way to the system: marked allocated, owned by a thread that does not hold the lock. On its stack. Of a superpage that nobody
 * has they are taken as a block, which keeps the rest of it from others; it is the arena's again when they have gone.
 */
struct capture {
    struct list link; /* zone->captures */
    struct superpage *superpage;
    unsigned count;
    bool whole; /* the superpage is nobody's */
    uint64_t picked[SUPERPAGE_WORDS];
};

static STRATA_RARE void begin_capture(struct zone *zone, struct capture *capture) {
    list_push_back(&zone->captures, &capture->link);
    zone->captured += capture->count;
    mark_picked(zone, capture->superpage, capture->picked, true, false);
    zone->counters.allocated += capture->count;
}

static STRATA_RARE void end_capture(struct zone *zone, struct capture *capture, bool released) {
    struct superpage *superpage = capture->superpage;
    list_remove(&capture->link);
    zone->captured -= capture->count;
    zone->counters.allocated -= capture->count;
    if (capture->whole) superpage->state = SUPERPAGE_FREE;
    mark_picked(zone, superpage, capture->picked, false, released);
    if (capture->whole)
        zone_superpages_give(zone, superpage, 1);
    else
        zone_superpage_settle(zone, superpage);
}

/* Hardly any was never used: others may be refused superpages that are only on their way. */
static bool is_space_short(const struct zone *zone) {
    const uint64_t superpages = zone->window_bytes >> SUPERPAGE_SHIFT;
    return zone->growing || zone->used_superpages > superpages - superpages / SPACE_SHORT_SHARE;
}

/*
 * Granules from `start` on of a superpage of which nothing is in use, without the lock: some GiB of them take the system a second. Where address
 * space is short the lock stays held; so it does where the arena has no memory for what is taken out of it.
 */
static STRATA_RARE bool release_from(struct zone *zone, struct superpage *superpage, unsigned start) {
    char *address = superpage_address(zone, superpage) + ((size_t)start << GRANULE_SHIFT);
    const size_t bytes = (size_t)(SUPERPAGE_GRANULES - start) << GRANULE_SHIFT;
    if (superpage->littered || is_space_short(zone) || !zone_superpages_take_at(zone, superpage, 1)) return platform_release(address, bytes);
    struct capture capture = {.superpage = superpage, .whole = true};
    capture.count = bits_count_range(superpage->populated, start, SUPERPAGE_GRANULES - start);
    __builtin_memcpy(capture.picked, superpage->populated, sizeof capture.picked);
    if (start != 0) bits_clear(capture.picked, 0, start);
    superpage->state = SUPERPAGE_BLOCK;
    begin_capture(zone, &capture);
    platform_lock_release(&zone->lock);
    const bool ok = platform_release(address, bytes);
    zone_lock(zone);
    end_capture(zone, &capture, ok);
    return ok;
}

/*
 * Where more of a free superpage is idle than is wanted, its start stays: a few fresh pages would cost a whole superpage of idle ones else, which the
 * next blocks would have to touch again. A huge page goes whole, and what moves have cut is one mapping again where all of it goes. How many have
 * gone.
 */
static unsigned release_free_superpage(struct zone *zone, struct superpage *superpage, uint64_t want) {
    const unsigned start = superpage->huge || superpage->moved ? 0 : part_start(superpage, want);
    const unsigned count = bits_count_range(superpage->populated, start, SUPERPAGE_GRANULES - start);
    bool ok = release_from(zone, superpage, start);
    if (superpage->moved && platform_reset(superpage_address(zone, superpage), SUPERPAGE_BYTES)) {
        zone_note_reset(zone, superpage);
        ok = true;
    }
    if (!ok) return 0;
    zone_mark_released(zone, superpage, start, SUPERPAGE_GRANULES - start);
    if (start == 0) release_descriptors(zone, superpage);
    return count;
}

/*
 * Runs: capture the idle granules by marking them allocated, let the lock go while the system works, then free them. The tail
 * of a block can't be captured, as its owner may grow into it: there the lock stays held.
 */
static STRATA_RARE unsigned release_holes(struct zone *zone, struct superpage *superpage, uint64_t want) {
    struct capture capture = {.superpage = superpage};
    unsigned count = capture.count = pick_idle(superpage, want, zone->page_granules, capture.picked);
    if (superpage->state == SUPERPAGE_BLOCK) {
        bool ok = zone_release_picked(zone, superpage, capture.picked);
        if (ok) mark_picked(zone, superpage, capture.picked, false, true);
        return ok ? count : 0;
    }
    begin_capture(zone, &capture);
    platform_lock_release(&zone->lock);
    bool ok = zone_release_picked(zone, superpage, capture.picked);
    zone_lock(zone);
    end_capture(zone, &capture, ok);
    return ok ? count : 0;
}

/* Their stacks are in the child's memory as they were. Whether the system has the pages already is not known: taken to be present. */
void zone_drop_captures(struct zone *zone) {
    while (!list_empty(&zone->captures)) end_capture(zone, CONTAINER_OF(zone->captures.next, struct capture, link), false);
}

/* The next superpage to give back from: wholly free ones first, as they go in one call. NULL: none that may be touched. */
static struct superpage *next_victim(struct zone *zone, unsigned holes_min, bool split_huge) {
    if (!list_empty(&zone->idle[IDLE_FREE])) return CONTAINER_OF(zone->idle[IDLE_FREE].next, struct superpage, idle_link);
    LIST_FOR_EACH(&zone->idle[IDLE_HOLES], node) {
        struct superpage *superpage = CONTAINER_OF(node, struct superpage, idle_link);
        if (!superpage->young && superpage->free >= holes_min && (split_huge || superpage_kept_idle(superpage, superpage->idle) == 0))
            return superpage;
    }
    return NULL;
}

uint64_t zone_release_idle(struct zone *zone, uint64_t keep, uint64_t want, unsigned holes_min, bool split_huge) {
    uint64_t released = 0;
    while (released < want) {
        uint64_t idle = zone->counters.idle - (split_huge ? 0 : zone->counters.idle_huge);
        struct superpage *superpage = idle > keep ? next_victim(zone, holes_min, split_huge) : NULL;
        if (superpage == NULL) break;
        uint64_t some = min_u64(want - released, idle - keep);
        unsigned count = superpage->state == SUPERPAGE_FREE ? release_free_superpage(zone, superpage, some) : release_holes(zone, superpage, some);
        if (count == 0) break; /* the system refused: another attempt would not end */
        released += count;
    }
    return released;
}

static uint64_t reserve_granules(const struct zone *zone) {
    return max_u64(RESERVE_GRANULES_MIN, zone->counters.allocated / RESERVE_SHARE) + zone->exchanged / EXCHANGED_SHARE;
}

/* The emptiest of the first few superpages of huge pages in use; NULL: there is none. */
static struct superpage *emptiest_huge(struct zone *zone) {
    struct superpage *emptiest = NULL;
    unsigned looks = 0;
    LIST_FOR_EACH(&zone->idle[IDLE_HOLES], node) {
        struct superpage *superpage = CONTAINER_OF(node, struct superpage, idle_link);
        if (superpage_kept_idle(superpage, superpage->idle) == 0) continue;
        if (emptiest == NULL || superpage->idle > emptiest->idle) emptiest = superpage;
        if (++looks == HUGE_LOOKS) break;
    }
    return emptiest;
}

/*
 * Huge pages are worth some idle pages, not any number: beyond a share of what is in use the emptiest ones are broken up and
 * give their holes back. The advice goes first, or the kernel would soon fill the holes with a huge page again.
 */
static STRATA_RARE void break_up_huge(struct zone *zone) {
    for (;;) {
        uint64_t kept = zone->counters.idle_huge;
        if (kept <= SUPERPAGE_GRANULES || kept <= zone->counters.allocated / HUGE_IDLE_SHARE || !zone_mappings_left(zone)) return;
        struct superpage *superpage = emptiest_huge(zone);
        if (superpage == NULL || !platform_advise_huge(superpage_address(zone, superpage), SUPERPAGE_BYTES, false)) return;
        zone->counters.idle_huge -= superpage_kept_idle(superpage, superpage->idle);
        zone_note_advice(zone, superpage, 1, false);
        if (release_holes(zone, superpage, superpage->idle) == 0) return;
    }
}

/* Of what is present, all but what other threads are giving back at this moment: it would be taken for a new peak, again and again. */
static uint64_t lasting(const struct zone *zone) { return zone->counters.populated - zone->captured; }

void zone_make_room(struct zone *zone, uint64_t fresh) {
    if (STRATA_UNLIKELY(zone->run_caches_used != 0)) zone_longer_judge(zone);
    if (lasting(zone) > zone->populated_peak) {
        zone_wake_pages(zone); /* of which some may prove to be absent */
        const uint64_t above = lasting(zone) - min_u64(lasting(zone), zone->populated_peak);
        const uint64_t released = zone_release_idle(zone, reserve_granules(zone), min_u64(fresh, above), SPARED_FREE_GRANULES, false);
        const uint64_t slack_max = zone->counters.allocated / SLACK_SHARE + SLACK_GRANULES_MIN;
        zone->exchanged = min_u64(zone->exchanged + released, EXCHANGED_SHARE * slack_max);
    }
    zone->populated_peak = max_u64(zone->populated_peak, lasting(zone));
    if (STRATA_UNLIKELY(zone->counters.idle_huge > SUPERPAGE_GRANULES)) break_up_huge(zone);
    zone_trim_to_limit(zone);
}

/*
 * Of a large block hardly more than the start is touched, often, and all of it counts as populated. Where that alone is above the limit, what comes
 * and goes beside it would be handed back each time. So the system is asked at each tick, and where less is there than the limit, some of it may stay
 * idle: little, as the program may touch the rest before the next tick.
 */
#define ALLOWED_SHARE 16
#define ALLOWED_ROOM_SHARE 4
static STRATA_COLD uint64_t look_at_soft_limit(const struct zone *zone) {
    const uint64_t limit = __atomic_load_n(&zone->config.soft_limit_bytes, __ATOMIC_RELAXED) >> GRANULE_SHIFT;
    if (STRATA_LIKELY(__atomic_load_n(&zone->counters.populated, __ATOMIC_RELAXED) <= limit) || platform_is_filtered()) return 0;
    const uint64_t resident = platform_resident_bytes() >> GRANULE_SHIFT; /* 0: unknown */
    return resident == 0 || resident >= limit ? 0 : min_u64(limit / ALLOWED_SHARE, (limit - resident) / ALLOWED_ROOM_SHARE);
}
/* What is in nobody's hands: idle, kept by CPUs, or resting. */
static uint64_t kept_granules(const struct zone *zone) {
    uint64_t kept = zone->counters.idle + zone_cached_granules(zone);
    for (unsigned i = 0; i < zone->resting.count; i++) kept += zone->resting.blocks[i].granules;
    return kept;
}
STRATA_RARE uint64_t zone_above_soft_limit(const struct zone *zone, uint64_t over) {
    if (zone->idle_allowed == 0) return over;
    const uint64_t kept = kept_granules(zone);
    return min_u64(over, kept - min_u64(kept, zone->idle_allowed));
}

static uint64_t release_above_soft_limit(struct zone *zone) {
    const uint64_t over = zone_over_soft_limit(zone);
    return over != 0 && zone->counters.idle != 0 ? zone_release_idle(zone, 0, over, 0, true) : 0;
}

void zone_trim_to_limit(struct zone *zone) {
    /* Those that rest are idle for this. */
    if (zone_limit_counts(zone, zone->counters.populated, zone->counters.populated - zone->counters.allocated)) zone_want_limit(zone);
    if (STRATA_LIKELY(zone_over_soft_limit(zone) == 0)) return;
    zone_wake_blocks(zone); /* some may prove to be absent */
    release_above_soft_limit(zone);
}

STRATA_COLD void zone_set_soft_limit(struct zone *zone, uint64_t bytes) {
    zone_lock(zone);
    __atomic_store_n(&zone->config.soft_limit_bytes, bytes, __ATOMIC_RELAXED); /* slabs read it without the lock */
    zone->idle_allowed = 0;
    platform_lock_release(&zone->lock);
}

STRATA_COLD uint64_t zone_soft_limit(struct zone *zone) {
    zone_lock(zone);
    uint64_t bytes = zone->config.soft_limit_bytes;
    platform_lock_release(&zone->lock);
    return bytes == UINT64_MAX ? 0 : bytes;
}

STRATA_COLD size_t zone_release(struct zone *zone, size_t keep_bytes) {
    zone_lock(zone);
    zone_wake_blocks(zone);
    zone_litter_sweep(zone);
    uint64_t released = zone_release_idle(zone, keep_bytes >> GRANULE_SHIFT, UINT64_MAX, 0, true);
    release_bare(zone);
    platform_lock_release(&zone->lock);
    return released << GRANULE_SHIFT;
}

/* Counters alone: growth keeps its marks put off. */
uint64_t zone_idle_granules(struct zone *zone) {
    platform_lock_acquire(&zone->lock);
    const uint64_t kept = kept_granules(zone);
    platform_lock_release(&zone->lock);
    return kept;
}

/* Of what CPUs keep so many pieces go one by one, more than there usually are. */
#define TICK_PIECES 100

size_t zone_tick(struct zone *zone) {
    const uint64_t allowed = look_at_soft_limit(zone);
    zone_lock(zone);
    for (unsigned pieces = 0; pieces < TICK_PIECES && zone_wake_some_runs(zone); pieces++) { /* others wait no longer than for a piece */
        platform_lock_release(&zone->lock);
        zone_lock(zone);
    }
    uint64_t unused = zone->counters.idle_low, released = 0;
    zone_wake_blocks(zone); /* what rested was wanted until now: it counts from the next interval on */
    zone_litter_sweep(zone);
    if (unused != 0) released = zone_release_idle(zone, 0, unused, 0, false);
    zone->counters.idle_low = zone->counters.idle - zone->counters.idle_huge;
    zone->exchanged /= 2;
    zone_longer_judge(zone);
    zone->idle_allowed = allowed;
    released += release_above_soft_limit(zone);
    release_bare(zone);
    platform_lock_release(&zone->lock);
    if (STRATA_UNLIKELY(zone_is_untidy(zone))) zone_tidy(zone);
    return released << GRANULE_SHIFT;
}

bool zone_mappings_left(const struct zone *zone) { return zone->counters.mappings + 8 < platform_map_count_limit() / 4; }
