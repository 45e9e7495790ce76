/*
 * frames_place.c - allocation and free of frames: which superpage a run is cut from, by the mobility of what it is for.
 *
 * The order of the choices: what the CPU has reserved; the fullest superpage of the group; one that is wholly free, as long as the reserve stays
 * whole; what other CPUs have reserved; the largest free area of another group, whose superpage changes its group when at least half of it does,
 * but not for movable frames; the reserve. These do no harm where they are, as they can go again: if the superpage became theirs, the unmovable
 * frames that are still in it would be in the way of a large run, and the next ones would go to another such superpage. Unmovable frames go to low
 * superpages and movable ones to high ones, and nothing unmovable into the partition. (The contiguity paper, sections 2.1 and 2.2.) Before it is said
 * that there is no room, slots are closed, so that the last search sees all that is free at one moment: else another CPU could have reserved again
 * what had just been given back for it. Locks: see frames.h; fell_back and grew_short are told with none held.
 */
#include "page/frames_internal.h"
#include "platform/cpu_ops.h"

/* ------------------------------------------------------------------ requests */

uint64_t frames_usual_align(const struct frame_zone *zone, uint64_t frames) {
    return is_power_of_two(frames) ? min_u64(frames, zone->superpage_frames) : 1;
}

#define ALLOC_FLAGS ((unsigned)(FRAMES_NO_FALLBACK | FRAMES_NO_RESERVE | FRAMES_NO_EFFORT | FRAMES_HIGH))

static STRATA_COLD struct frames_complaint complaint_of(const struct frame_zone *zone, const struct frames_request *request) {
    if (request->frames == 0 || request->frames > zone->frames)
        return (struct frames_complaint){"frames", "1 and above, at most those of the zone", request->frames};
    if ((request->align & (request->align - 1)) != 0 || request->align > zone->frames)
        return (struct frames_complaint){"align_frames", "0, or a power of two that is at most the zone's frames", request->align};
    if ((unsigned)request->mobility >= FRAMES_MOBILITIES)
        return (struct frames_complaint){"mobility", "0 unmovable, 1 reclaimable, 2 movable", request->mobility};
    if ((request->flags & ~ALLOC_FLAGS) != 0) return (struct frames_complaint){"flags", "those of strata_zone_alloc_flags", request->flags};
    return (struct frames_complaint){"owner", "0, or what strata_zone_owner_add gave", request->owner};
}

enum frames_status frames_request_check(const struct frame_zone *zone, const struct frames_request *request, struct frames_complaint *complaint) {
    bool sizes = request->frames - 1 < zone->frames && (request->align & (request->align - 1)) == 0 && request->align <= zone->frames;
    bool kinds = (unsigned)request->mobility < FRAMES_MOBILITIES && (request->flags & ~ALLOC_FLAGS) == 0;
    bool owned = request->owner == 0 || frames_owner_is_known_here(zone, request->owner);
    if (STRATA_LIKELY(sizes && kinds && owned)) return FRAMES_OK;
    *complaint = complaint_of(zone, request);
    return FRAMES_BAD_ARGUMENT;
}

/* What a search wants; made once for each request. */
struct wish {
    const struct frames_request *request;
    unsigned count, align; /* in a superpage */
    unsigned class;        /* a free block of which is sure to have room */
    uint32_t note;
};

static struct frames_slot *slot_here(struct frame_zone *zone) {
    unsigned id = cpu_current_id();
    return &zone->slots[id < zone->slot_count ? id : id % zone->slot_count];
}

static unsigned group_of(const struct frame_zone *zone, enum frames_mobility mobility) { return frames_set_of(zone, mobility, false); }

/* Under the lock: a block at an offset. */
STRATA_INLINE uint64_t place(struct frame_zone *zone, struct frames_superpage *superpage, unsigned offset, const struct wish *wish) {
    uint64_t frame = frames_first_of(zone, superpage) + offset;
    frames_superpage_take(superpage, offset, wish->count, wish->request->mobility);
    if (wish->note != 0) {
        frames_note_set(zone, superpage, frame, wish->note);
        if (STRATA_UNLIKELY((wish->note & NOTE_MOVING) != 0)) frames_note_isolated(zone, superpage);
        if (wish->request->owner != 0) {
            zone->tokens[frame] = wish->request->token;
            if (zone->hooks.placed != NULL && !frames_waits(zone, frame)) zone->hooks.placed(zone, frame, wish->count, wish->note);
        }
    }
    return frame;
}

/* ------------------------------------------------------------------ small runs: inside one superpage */

/* Under the lock of whoever has the superpage. FRAMES_NONE: no room in it. */
STRATA_INLINE uint64_t cut(struct frame_zone *zone, struct frames_superpage *superpage, struct frames_slot *slot, const struct wish *wish) {
    if (superpage->free < wish->count) return FRAMES_NONE;
    unsigned free = superpage->free, offset = frames_superpage_find(superpage, wish->count, wish->align);
    if (offset == FRAMES_SUPERPAGE_MAX) return FRAMES_NONE;
    uint64_t frame = place(zone, superpage, offset, wish);
    frames_superpage_changed(zone, superpage, slot, free);
    return frame;
}

/* A wholly free superpage for small runs of the mobility: movable ones from above, the partition first; all others from below. */
static uint64_t find_whole(const struct frame_zone *zone, enum frames_mobility mobility) {
    bool high = mobility == FRAMES_MOVABLE && (zone->flags & FRAMES_NO_GROUPING) == 0;
    uint64_t found = UINT64_MAX;
    if (mobility != FRAMES_UNMOVABLE) found = frames_free_find(zone, zone->partition_first, zone->superpage_count, 1, 1, high);
    return found != UINT64_MAX ? found : frames_free_find(zone, 0, zone->partition_first, 1, 1, high);
}

/* Lists know blocks that are aligned to their size; other runs, and those that are aligned beyond it, may fit where those don't. Linear in the
 * superpages. */
static uint32_t find_odd(const struct frame_zone *zone, const struct wish *wish) {
    for (uint64_t i = 0; i < zone->superpage_count; i++) {
        const struct frames_superpage *superpage = &zone->superpages[i];
        if (superpage->list == FRAMES_NO_LIST || superpage->free < wish->count) continue;
        if (superpage->partition && wish->request->mobility == FRAMES_UNMOVABLE) continue;
        if ((wish->request->flags & FRAMES_NO_FALLBACK) != 0 && superpage->set % FRAMES_MOBILITIES != group_of(zone, wish->request->mobility))
            continue;
        if (frames_superpage_find(superpage, wish->count, wish->align) != FRAMES_SUPERPAGE_MAX) return (uint32_t)i;
    }
    return FRAMES_NO_SUPERPAGE;
}

enum place_step { STEP_GROUP, STEP_WHOLE, STEP_STEAL, STEP_RESERVE, STEP_ODD };

/* Under the zone's lock: the superpage that a step offers. */
static uint32_t find_step(struct frame_zone *zone, const struct wish *wish, enum place_step step) {
    enum frames_mobility mobility = wish->request->mobility;
    bool partition = mobility != FRAMES_UNMOVABLE;
    uint32_t found = FRAMES_NO_SUPERPAGE;
    switch (step) {
    case STEP_GROUP:
        if (partition) found = frames_list_find(zone, frames_set_of(zone, mobility, true), wish->class);
        return found != FRAMES_NO_SUPERPAGE ? found : frames_list_find(zone, frames_set_of(zone, mobility, false), wish->class);
    case STEP_WHOLE:
    case STEP_RESERVE: {
        if (step == STEP_WHOLE && zone->free_superpages <= zone->reserve) return FRAMES_NO_SUPERPAGE;
        if (step == STEP_RESERVE && (wish->request->flags & FRAMES_NO_RESERVE) != 0) return FRAMES_NO_SUPERPAGE;
        uint64_t whole = find_whole(zone, mobility);
        return whole != UINT64_MAX ? (uint32_t)whole : FRAMES_NO_SUPERPAGE;
    }
    case STEP_STEAL: {
        unsigned own = group_of(zone, mobility), largest = 0;
        if ((wish->request->flags & FRAMES_NO_FALLBACK) != 0 || (zone->flags & FRAMES_NO_GROUPING) != 0) return FRAMES_NO_SUPERPAGE;
        for (unsigned set = 0; set < FRAMES_SETS; set++) {
            if (set % FRAMES_MOBILITIES == own || (set >= FRAMES_MOBILITIES && !partition)) continue;
            uint32_t candidate = frames_list_find_largest(zone, set, wish->class);
            if (candidate == FRAMES_NO_SUPERPAGE) continue;
            const struct frames_superpage *superpage = &zone->superpages[candidate];
            unsigned size = superpage->largest * FRAMES_SUPERPAGE_MAX + superpage->free;
            if (size > largest) largest = size, found = candidate;
        }
        return found;
    }
    case STEP_ODD: return is_power_of_two(wish->count) && wish->align == wish->count ? found : find_odd(zone, wish);
    }
    return found;
}

/* What is to be told once no lock is held. */
struct news {
    bool fell_back;
};

/* Under both locks: a run by the steps [from, to]. The superpage becomes the slot's, unless it stays another group's, or slots are closed. */
static uint64_t cut_by_steps(struct frame_zone *zone, struct frames_slot *slot, const struct wish *wish, enum place_step from, enum place_step to,
                             struct news *news) {
    unsigned own = group_of(zone, wish->request->mobility);
    for (enum place_step step = from; step <= to; step++) {
        uint32_t number = find_step(zone, wish, step);
        if (number == FRAMES_NO_SUPERPAGE) continue;
        struct frames_superpage *superpage = &zone->superpages[number];
        bool whole = superpage->free == zone->superpage_frames, foreign = !whole && superpage->set % FRAMES_MOBILITIES != own;
        if (step == STEP_RESERVE) COUNTER_ADD(zone->reserve_uses, 1);
        if (foreign) {
            COUNTER_ADD(zone->fallbacks, 1);
            news->fell_back = true;
            if (group_changes(superpage->free, zone->superpage_frames, wish->request->mobility == FRAMES_MOVABLE)) {
                COUNTER_ADD(zone->retypes, 1);
                foreign = false;
            }
        }
        if (!foreign) {
            superpage->group = (uint8_t)wish->request->mobility;
            if ((zone->flags & FRAMES_SCATTER) == 0 && zone->slots_closed == 0) frames_slot_reserve(zone, slot, own, number);
        }
        uint64_t frame = cut(zone, superpage, __atomic_load_n(&superpage->slot, __ATOMIC_RELAXED) != FRAMES_NO_SLOT ? slot : NULL, wish);
        if (frame != FRAMES_NONE) return frame;
    }
    return FRAMES_NONE;
}

static STRATA_NOINLINE uint64_t alloc_small_slow(struct frame_zone *zone, struct frames_slot *slot, const struct wish *wish, struct news *news) {
    platform_lock_acquire(&zone->lock);
    uint64_t frame = cut_by_steps(zone, slot, wish, STEP_GROUP, STEP_WHOLE, news);
    platform_lock_release(&zone->lock);
    platform_lock_release(&slot->lock);
    if (frame != FRAMES_NONE) return frame;
    frames_slots_close(zone);
    platform_lock_acquire(&slot->lock);
    platform_lock_acquire(&zone->lock);
    frames_slots_open(zone);
    frame = cut_by_steps(zone, slot, wish, STEP_GROUP, STEP_ODD, news);
    if (frame == FRAMES_NONE) COUNTER_ADD(zone->failures, 1);
    platform_lock_release(&zone->lock);
    platform_lock_release(&slot->lock);
    return frame;
}

STRATA_INLINE uint64_t alloc_small(struct frame_zone *zone, const struct wish *wish, struct news *news) {
    struct frames_slot *slot = slot_here(zone);
    platform_lock_acquire_here(&slot->lock);
    uint32_t number = slot->reserved[group_of(zone, wish->request->mobility)];
    /* Without groups a superpage of the partition may be what other mobilities were cut from. */
    if (STRATA_LIKELY(number != FRAMES_NO_SUPERPAGE && !(zone->superpages[number].partition && wish->request->mobility == FRAMES_UNMOVABLE))) {
        uint64_t frame = cut(zone, &zone->superpages[number], slot, wish);
        if (STRATA_LIKELY(frame != FRAMES_NONE)) {
            COUNTER_ADD(slot->allocs, 1);
            platform_lock_release_here(&slot->lock);
            return frame;
        }
    }
    COUNTER_ADD(slot->allocs, 1);
    return alloc_small_slow(zone, slot, wish, news);
}

/* ------------------------------------------------------------------ whole superpages */

/* Where `count` wholly free superpages lie. Under the zone's lock. */
static uint64_t find_run(const struct frame_zone *zone, const struct frames_request *request, uint64_t count, uint64_t align) {
    bool huge = request->frames >= zone->superpage_frames; /* not one that only has the alignment of several */
    bool in_partition = request->mobility != FRAMES_UNMOVABLE || (huge && (zone->flags & FRAMES_HUGE_IN_PARTITION) != 0);
    bool high = request->mobility == FRAMES_MOVABLE || (request->flags & FRAMES_HIGH) != 0;
    uint64_t first = UINT64_MAX;
    if (in_partition && high) first = frames_free_find(zone, zone->partition_first, zone->superpage_count, count, align, true);
    if (first == UINT64_MAX) first = frames_free_find(zone, 0, zone->partition_first, count, align, high);
    if (first == UINT64_MAX && in_partition) first = frames_free_find(zone, 0, zone->superpage_count, count, align, high);
    return first;
}

static bool may_have_whole(const struct frame_zone *zone, const struct frames_superpage *superpage, enum frames_mobility mobility) {
    return superpage->free == zone->superpage_frames &&
           (!superpage->partition || mobility != FRAMES_UNMOVABLE || (zone->flags & FRAMES_HUGE_IN_PARTITION) != 0);
}

STRATA_INLINE uint64_t cut_whole(struct frame_zone *zone, uint64_t number, struct frames_slot *slot, const struct wish *wish) {
    zone->superpages[number].group = (uint8_t)wish->request->mobility;
    return cut(zone, &zone->superpages[number], slot, wish);
}

/* Under the slot's lock: one that is nobody's, and the slot's from now on, unless slots are closed. last: they were, for this call. */
static uint64_t find_and_cut_whole(struct frame_zone *zone, struct frames_slot *slot, const struct wish *wish, bool last) {
    uint64_t frame = FRAMES_NONE;
    platform_lock_acquire(&zone->lock);
    if (last) frames_slots_open(zone);
    bool has_right = zone->free_superpages > zone->reserve || (last && (wish->request->flags & FRAMES_NO_RESERVE) == 0);
    uint64_t number = has_right ? find_run(zone, wish->request, 1, 1) : UINT64_MAX;
    bool found = number != UINT64_MAX, reserves = found && zone->slots_closed == 0;
    if (found && zone->free_superpages <= zone->reserve) COUNTER_ADD(zone->reserve_uses, 1);
    if (reserves)
        frames_slot_reserve(zone, slot, SLOT_WHOLE, (uint32_t)number);
    else if (found)
        frame = cut_whole(zone, number, NULL, wish);
    else if (last)
        COUNTER_ADD(zone->failures, 1);
    platform_lock_release(&zone->lock);
    return reserves ? cut_whole(zone, number, slot, wish) : frame;
}

/* One superpage: by way of the CPU's own, so that CPUs which take and free them don't meet. */
static uint64_t alloc_whole(struct frame_zone *zone, const struct wish *wish) {
    struct frames_slot *slot = slot_here(zone);
    platform_lock_acquire(&slot->lock);
    COUNTER_ADD(slot->allocs, 1);
    uint32_t number = slot->reserved[SLOT_WHOLE];
    bool own = number != FRAMES_NO_SUPERPAGE && may_have_whole(zone, &zone->superpages[number], wish->request->mobility);
    uint64_t frame = own ? cut_whole(zone, number, slot, wish) : find_and_cut_whole(zone, slot, wish, false);
    platform_lock_release(&slot->lock);
    if (frame != FRAMES_NONE) return frame;
    frames_slots_close(zone);
    platform_lock_acquire(&slot->lock);
    frame = find_and_cut_whole(zone, slot, wish, true);
    platform_lock_release(&slot->lock);
    return frame;
}

static uint64_t alloc_run(struct frame_zone *zone, struct wish *wish, uint64_t align) {
    const struct frames_request *request = wish->request;
    uint64_t count = (request->frames + zone->superpage_frames - 1) >> zone->superpage_shift, first = UINT64_MAX;
    uint64_t align_superpages = max_u64(align >> zone->superpage_shift, 1);
    for (unsigned round = 0; round < 2 && first == UINT64_MAX; round++) {
        if (round > 0) frames_slots_close(zone);
        platform_lock_acquire(&zone->lock);
        if (round > 0) frames_slots_open(zone);
        bool last_resort = round > 0 && (request->flags & FRAMES_NO_RESERVE) == 0;
        if (last_resort || zone->free_superpages >= zone->reserve + count) first = find_run(zone, request, count, align_superpages);
        if (first == UINT64_MAX) {
            if (round > 0) COUNTER_ADD(zone->failures, 1);
            platform_lock_release(&zone->lock);
        }
    }
    if (first == UINT64_MAX) return FRAMES_NONE;
    uint64_t needed = zone->reserve + count, free = zone->free_superpages;
    if (free < needed) COUNTER_ADD(zone->reserve_uses, min_u64(count, needed - free));
    uint64_t left = request->frames;
    if (count > 1) wish->note |= NOTE_RUN;
    for (uint64_t i = first; i < first + count; i++) {
        struct frames_superpage *superpage = &zone->superpages[i];
        wish->count = (unsigned)min_u64(left, zone->superpage_frames);
        left -= wish->count;
        superpage->group = (uint8_t)request->mobility;
        (void)place(zone, superpage, 0, wish);
        if (count > 1) wish->note |= NOTE_GOES_ON;
        frames_superpage_changed(zone, superpage, NULL, zone->superpage_frames);
    }
    COUNTER_ADD(zone->whole_allocs, 1);
    platform_lock_release(&zone->lock);
    return first << zone->superpage_shift;
}

/* ------------------------------------------------------------------ alloc */

uint64_t frames_free_now(const struct frame_zone *zone) {
    uint64_t free = __atomic_load_n(&zone->free_frames, __ATOMIC_RELAXED);
    for (unsigned s = 0; s < zone->slot_count; s++) free += (uint64_t)__atomic_load_n(&zone->slots[s].free, __ATOMIC_RELAXED);
    return (int64_t)free < 0 ? 0 : free;
}

/*
 * Whether there may be fewer free frames than are to be told of, or there were: counts of other CPUs, which change all the time, are not looked at
 * while those frames that nobody has reserved are enough.
 */
STRATA_INLINE bool may_be_short(const struct frame_zone *zone) {
    uint64_t low = __atomic_load_n(&zone->low_frames, __ATOMIC_RELAXED);
    return low != 0 && (__atomic_load_n(&zone->free_frames, __ATOMIC_RELAXED) < low || __atomic_load_n(&zone->is_short, __ATOMIC_RELAXED) != 0);
}

/* With no lock held: what others wait for. */
static STRATA_NOINLINE void tell(struct frame_zone *zone, const struct news *news) {
    void (*fell_back)(struct frame_zone *) = __atomic_load_n(&zone->hooks.fell_back, __ATOMIC_ACQUIRE);
    if (news->fell_back && fell_back != NULL) fell_back(zone);
    uint64_t low = __atomic_load_n(&zone->low_frames, __ATOMIC_RELAXED);
    if (low == 0) return;
    uint64_t free = frames_free_now(zone);
    if (free >= low) {
        if (__atomic_load_n(&zone->is_short, __ATOMIC_RELAXED) != 0) __atomic_store_n(&zone->is_short, 0, __ATOMIC_RELAXED);
        return;
    }
    void (*grew_short)(struct frame_zone *, uint64_t) = __atomic_load_n(&zone->hooks.grew_short, __ATOMIC_ACQUIRE);
    if (grew_short != NULL && __atomic_exchange_n(&zone->is_short, 1, __ATOMIC_RELAXED) == 0) grew_short(zone, free);
}

enum frames_status frames_alloc(struct frame_zone *zone, const struct frames_request *request, uint64_t *frame) {
    uint64_t align = request->align != 0 ? request->align : frames_usual_align(zone, request->frames), found;
    struct wish wish = {.request = request, .note = (uint32_t)request->mobility | request->owner << NOTE_OWNER_SHIFT};
    if ((request->flags & FRAMES_ISOLATED) != 0) wish.note |= NOTE_MOVING;
    struct news news = {.fell_back = false};
    if (STRATA_LIKELY(request->frames < zone->superpage_frames && align <= zone->superpage_frames)) {
        uint64_t room = max_u64(request->frames, align);
        wish.count = (unsigned)request->frames;
        wish.align = (unsigned)align;
        wish.class = room > 1 ? bit_highest(room - 1) + 2 : 1;
        found = alloc_small(zone, &wish, &news);
    } else if (request->frames == zone->superpage_frames && align <= zone->superpage_frames) {
        wish.count = zone->superpage_frames;
        wish.align = 1;
        found = alloc_whole(zone, &wish);
    } else
        found = alloc_run(zone, &wish, align);
    if (STRATA_UNLIKELY(news.fell_back || may_be_short(zone))) tell(zone, &news);
    if (found == FRAMES_NONE) return FRAMES_NO_FRAMES;
    *frame = found;
    return FRAMES_OK;
}

enum frames_status frames_alloc_again(struct frame_zone *zone, const struct frames_request *request, uint64_t *frame) {
    enum frames_status status = frames_alloc(zone, request, frame);
    __atomic_fetch_add(&zone->again, 1, __ATOMIC_RELEASE);
    if (status != FRAMES_OK) __atomic_fetch_add(&zone->not_failed, 1, __ATOMIC_RELEASE);
    return status;
}
