/*
 * frames_list.c - where the superpages of a zone stand: in a slot, in a list by how full they are, or among those that are wholly free.
 *
 * Lists are numbered by fill in six steps and by the order of the largest free block, so that one word tells which of them have any, and the fullest
 * superpage with a block of an order is found by the lowest bit of that word. Wholly free ones are bits of a map, with a second map of its words.
 * Invariant: a superpage that no slot has and that is partly free is in the list that frames_superpage_list says; one that is wholly free has its bit
 * set; all others are in no list and have it clear. Where slots are closed none reserves anything. Locks: see frames.h.
 */
#include "page/frames_internal.h"

/* ------------------------------------------------------------------ locks */

struct frames_slot *frames_lock(struct frame_zone *zone, struct frames_superpage *superpage) { return frames_lock_here(zone, superpage); }
void frames_unlock(struct frame_zone *zone, struct frames_slot *slot) { frames_unlock_here(zone, slot); }

/* Under both locks. */
static void give_back(struct frame_zone *zone, struct frames_slot *slot, unsigned which) {
    if (slot->reserved[which] == FRAMES_NO_SUPERPAGE) return;
    struct frames_superpage *superpage = &zone->superpages[slot->reserved[which]];
    if (slot->waiting != 0) frames_settle(zone, slot); /* as long as its lock guards what waits */
    slot->reserved[which] = FRAMES_NO_SUPERPAGE;
    __atomic_store_n(&slot->free, slot->free - superpage->free, __ATOMIC_RELAXED);
    COUNTER_ADD(zone->free_frames, superpage->free);
    __atomic_store_n(&superpage->slot, FRAMES_NO_SLOT, __ATOMIC_RELEASE);
    frames_superpage_relink(zone, superpage);
}

/* Before the lock is let go for the first one that is had back, slots are closed: else other CPUs would reserve another each time, for ever. */
void frames_lock_range(struct frame_zone *zone, uint64_t first, uint64_t last) {
    bool closed = false;
    platform_lock_acquire(&zone->lock);
    for (uint64_t i = first; i <= last; i++) {
        uint32_t number = __atomic_load_n(&zone->superpages[i].slot, __ATOMIC_RELAXED);
        if (number == FRAMES_NO_SLOT) continue;
        struct frames_slot *slot = &zone->slots[number];
        if (!closed) zone->slots_closed++;
        closed = true;
        platform_lock_release(&zone->lock);
        platform_lock_acquire(&slot->lock);
        platform_lock_acquire(&zone->lock);
        for (unsigned which = 0; which < ARRAY_LENGTH(slot->reserved); which++)
            if (slot->reserved[which] == i) give_back(zone, slot, which);
        platform_lock_release(&slot->lock);
    }
    if (closed) frames_slots_open(zone);
}

void frames_slots_drain(struct frame_zone *zone) {
    for (unsigned s = 0; s < zone->slot_count; s++) {
        struct frames_slot *slot = &zone->slots[s];
        platform_lock_acquire(&slot->lock);
        bool any = false;
        for (unsigned which = 0; which < ARRAY_LENGTH(slot->reserved); which++) any |= slot->reserved[which] != FRAMES_NO_SUPERPAGE;
        if (any) { /* also what is full: a frame of it may be freed as soon as the slot's lock is */
            platform_lock_acquire(&zone->lock);
            for (unsigned which = 0; which < ARRAY_LENGTH(slot->reserved); which++) give_back(zone, slot, which);
            platform_lock_release(&zone->lock);
        }
        platform_lock_release(&slot->lock);
    }
}

void frames_slots_close(struct frame_zone *zone) {
    platform_lock_acquire(&zone->lock);
    zone->slots_closed++;
    platform_lock_release(&zone->lock);
    frames_slots_drain(zone);
}

void frames_slots_open(struct frame_zone *zone) { zone->slots_closed--; }

void frames_slot_reserve(struct frame_zone *zone, struct frames_slot *slot, unsigned which, uint32_t number) {
    give_back(zone, slot, which);
    if (number == FRAMES_NO_SUPERPAGE) return;
    struct frames_superpage *superpage = &zone->superpages[number];
    __atomic_store_n(&superpage->slot, (uint32_t)(slot - zone->slots), __ATOMIC_RELEASE);
    frames_superpage_relink(zone, superpage);
    slot->reserved[which] = number;
    __atomic_store_n(&slot->free, slot->free + superpage->free, __ATOMIC_RELAXED);
    COUNTER_SUB(zone->free_frames, superpage->free);
}

/* ------------------------------------------------------------------ lists */

static void unlink(struct frame_zone *zone, struct frames_superpage *superpage, unsigned set) {
    uint32_t *head = &zone->lists[set][superpage->list];
    if (superpage->prev != FRAMES_NO_SUPERPAGE)
        zone->superpages[superpage->prev].next = superpage->next;
    else
        *head = superpage->next;
    if (superpage->next != FRAMES_NO_SUPERPAGE) zone->superpages[superpage->next].prev = superpage->prev;
    if (*head == FRAMES_NO_SUPERPAGE) zone->nonempty[set] &= ~(UINT64_C(1) << superpage->list);
    superpage->list = FRAMES_NO_LIST;
}

static void link_front(struct frame_zone *zone, struct frames_superpage *superpage, unsigned set, unsigned list) {
    uint32_t number = (uint32_t)(superpage - zone->superpages), *head = &zone->lists[set][list];
    superpage->prev = FRAMES_NO_SUPERPAGE;
    superpage->next = *head;
    if (*head != FRAMES_NO_SUPERPAGE) zone->superpages[*head].prev = number;
    *head = number;
    superpage->list = (uint8_t)list;
    zone->nonempty[set] |= UINT64_C(1) << list;
}

static void note_free(struct frame_zone *zone, uint64_t number, bool is_free) {
    uint64_t *word = &zone->free_map[number / 64], bit = UINT64_C(1) << number % 64;
    if (((*word & bit) != 0) == is_free) return;
    *word ^= bit;
    if (is_free)
        COUNTER_ADD(zone->free_superpages, 1);
    else
        COUNTER_SUB(zone->free_superpages, 1);
    uint64_t *summary = &zone->free_summary[number / 64 / 64], summary_bit = UINT64_C(1) << number / 64 % 64;
    *summary = *word != 0 ? *summary | summary_bit : *summary & ~summary_bit;
}

void frames_superpage_relink(struct frame_zone *zone, struct frames_superpage *superpage) {
    bool in_slot = __atomic_load_n(&superpage->slot, __ATOMIC_RELAXED) != FRAMES_NO_SLOT;
    bool whole = !in_slot && superpage->free == zone->superpage_frames;
    unsigned list = FRAMES_NO_LIST, set = frames_set_of(zone, superpage->group, superpage->partition);
    if (!in_slot) superpage->largest = (uint8_t)frames_superpage_largest(superpage);
    if (!in_slot && !whole && superpage->free != 0) {
        list = frames_superpage_list(superpage, zone->superpage_frames);
        if ((zone->flags & FRAMES_SCATTER) != 0) list %= FRAMES_CLASSES - 1;
    }
    if (superpage->list != list || superpage->set != set || (zone->flags & FRAMES_SCATTER) != 0) {
        if (superpage->list != FRAMES_NO_LIST) unlink(zone, superpage, superpage->set);
        superpage->set = (uint8_t)set;
        if (list != FRAMES_NO_LIST) link_front(zone, superpage, set, list);
    }
    note_free(zone, (uint64_t)(superpage - zone->superpages), whole);
}

void frames_droppable_changed(struct frame_zone *zone, struct frames_superpage *superpage) {
    uint64_t number = (uint64_t)(superpage - zone->superpages), bit = UINT64_C(1) << number % 64;
    superpage->droppable = !superpage->droppable;
    if (superpage->droppable)
        __atomic_fetch_or(&zone->droppable[number / 64], bit, __ATOMIC_RELAXED);
    else
        __atomic_fetch_and(&zone->droppable[number / 64], ~bit, __ATOMIC_RELAXED);
}

/* ------------------------------------------------------------------ search */

#define ORDERS (FRAMES_CLASSES - 1)
/* The lists of order 0, of any fill. */
#define EACH_FILL UINT64_C(0x4010040100401)
_Static_assert(ORDERS == 10 && FRAMES_FILLS == 6, "a bit for each fill");

uint32_t frames_list_find(const struct frame_zone *zone, unsigned set, unsigned class) {
    uint64_t lists = zone->nonempty[set], large = ((UINT64_C(1) << ORDERS) - 1) & ~(uint64_t)(((UINT64_C(1) << class) - 1) >> 1);
    for (unsigned fill = 0; fill < FRAMES_FILLS; fill++) {
        uint64_t fitting = lists >> (fill * ORDERS) & large;
        if (fitting != 0) return zone->lists[set][fill * ORDERS + bit_lowest(fitting)];
    }
    return FRAMES_NO_SUPERPAGE;
}

uint32_t frames_list_find_largest(const struct frame_zone *zone, unsigned set, unsigned class) {
    for (unsigned order = ORDERS; order-- > class - 1;) {
        uint64_t fitting = zone->nonempty[set] & EACH_FILL << order;
        if (fitting != 0) return zone->lists[set][bit_highest(fitting)];
    }
    return FRAMES_NO_SUPERPAGE;
}

/* The first set bit of the map in [from, end), or the last; UINT64_MAX: none. */
static uint64_t lowest_free(const struct frame_zone *zone, uint64_t from, uint64_t end) {
    if (from >= end) return UINT64_MAX;
    uint64_t w = from / 64, word = zone->free_map[w] & ~UINT64_C(0) << from % 64, last = (end - 1) / 64;
    while (word == 0) {
        if (++w > last) return UINT64_MAX;
        uint64_t summary = zone->free_summary[w / 64] & ~UINT64_C(0) << w % 64;
        if (summary == 0) {
            w |= 63; /* the next round begins with the next word of the summary */
            continue;
        }
        w = w / 64 * 64 + bit_lowest(summary);
        if (w > last) return UINT64_MAX;
        word = zone->free_map[w];
    }
    uint64_t found = w * 64 + bit_lowest(word);
    return found < end ? found : UINT64_MAX;
}
static uint64_t highest_free(const struct frame_zone *zone, uint64_t from, uint64_t end) {
    if (from >= end) return UINT64_MAX;
    uint64_t w = (end - 1) / 64, word = zone->free_map[w] & ~UINT64_C(0) >> (63 - (end - 1) % 64), first = from / 64;
    while (word == 0) {
        if (w-- <= first) return UINT64_MAX;
        uint64_t summary = zone->free_summary[w / 64] & ~UINT64_C(0) >> (63 - w % 64);
        if (summary == 0) {
            w &= ~UINT64_C(63);
            continue;
        }
        w = w / 64 * 64 + bit_highest(summary);
        if (w < first) return UINT64_MAX;
        word = zone->free_map[w];
    }
    uint64_t found = w * 64 + bit_highest(word);
    return found >= from ? found : UINT64_MAX;
}

static bool is_free(const struct frame_zone *zone, uint64_t number) { return (zone->free_map[number / 64] >> number % 64 & 1) != 0; }

uint64_t frames_free_find(const struct frame_zone *zone, uint64_t from, uint64_t end, uint64_t count, uint64_t align, bool high) {
    if (count == 1 && align == 1) return high ? highest_free(zone, from, end) : lowest_free(zone, from, end);
    while (from < end && end - from >= count) {
        if (high) {
            uint64_t last = highest_free(zone, from, end);
            if (last == UINT64_MAX || last + 1 < from + count) return UINT64_MAX;
            uint64_t start = align_down(last + 1 - count, align), taken = start + count;
            if (start < from) return UINT64_MAX;
            while (taken > start && is_free(zone, taken - 1)) taken--;
            if (taken == start) return start;
            end = taken - 1; /* an aligned run that begins higher would end behind the last free one */
        } else {
            uint64_t first = lowest_free(zone, from, end);
            if (first == UINT64_MAX) return UINT64_MAX;
            uint64_t start = align_up(first, align), good = start;
            if (start + count > end) return UINT64_MAX;
            while (good < start + count && is_free(zone, good)) good++;
            if (good == start + count) return start;
            from = good + 1;
        }
    }
    return UINT64_MAX;
}
