/*
 * frames_used.c - which frames were used since somebody looked, and which may be dirty.
 *
 * Two bits a frame. On a zone without memory everything that reads or writes goes through frames_touch, so that both are exact. Memory is another
 * matter. Used: the processor's notes are in the page tables, where a program can't read them; but whether a page is in the tables it can (presence).
 * So a look takes the pages of a block out of them, which loses nothing, and whoever uses one brings it back by a small fault: what is there at the
 * next look was used. (A read brings up to 15 neighbours back as well, unless a userfaultfd watches the memory: frames_reclaimer.c sees to that.)
 * Private memory can't be taken out without losing it, and huge pages would cost a fault of 2 MiB: there only frames_touch tells. It is a guess,
 * which the kernel may spoil as it takes pages out as well, and a look too late may take those of the next user: then a block seems older than it is.
 *
 * Dirty: that can't be a guess, as what is clean is dropped without being written. And nothing tells of all who write to memory: windows and other
 * mappings of the file, a forked child's tables, pwrite, a device that had a pin; of those who do it at our address the kernel forgets, when it takes
 * a page out by itself. So memory is dirty, all of it, always; an owner who knows better says so by its answer. Soft-dirty bits, userfaultfd's write
 * protection and its log (PAGEMAP_SCAN) would know of one mapping each, and of nothing else in this list.
 */
#include "page/frames_reclaim_internal.h"

/* Bits of frames [first, first + frames) in the word of `frame`. */
static uint64_t bits_in_word(uint64_t frame, uint64_t end) {
    uint64_t low = frame % 64, high = min_u64(64, low + (end - frame));
    return (high == 64 ? ~UINT64_C(0) : (UINT64_C(1) << high) - 1) & ~UINT64_C(0) << low;
}

/* Clears them, and tells whether any was set. */
static bool take_bits(uint64_t *bits, uint64_t first, uint64_t frames) {
    bool any = false;
    for (uint64_t at = first, end = first + frames; at < end; at = at / 64 * 64 + 64) {
        uint64_t mask = bits_in_word(at, end), *word = frames_used_word(bits, at);
        if ((__atomic_load_n(word, __ATOMIC_RELAXED) & mask) == 0) continue;
        any |= (__atomic_fetch_and(word, ~mask, __ATOMIC_RELAXED) & mask) != 0;
    }
    return any;
}

static bool any_bit(uint64_t *bits, uint64_t first, uint64_t frames) {
    for (uint64_t at = first, end = first + frames; at < end; at = at / 64 * 64 + 64)
        if ((__atomic_load_n(frames_used_word(bits, at), __ATOMIC_RELAXED) & bits_in_word(at, end)) != 0) return true;
    return false;
}

/* What the page tables tell becomes bits. Where nobody can tell, as without /proc, nothing was used: else no block would ever be old. */
static void look_at_tables(struct frame_zone *zone, uint64_t first, uint64_t frames) {
    enum { PAGES = 512 };
    uint8_t present[PAGES];
    unsigned pages_shift = zone->frame_shift - platform_info()->page_shift;
    uint64_t piece = PAGES >> pages_shift;
    bool any = false;
    for (uint64_t done = 0; done < frames; done += piece) {
        uint64_t count = min_u64(piece, frames - done);
        if (!platform_presence(zone->base + ((first + done) << zone->frame_shift), count << zone->frame_shift, present)) return;
        for (uint64_t page = 0; page < count << pages_shift; page++) {
            if (present[page] == PLATFORM_PAGE_ABSENT) continue;
            frames_touch(zone, first + done + (page >> pages_shift), false);
            any = true;
        }
    }
    if (any) (void)platform_release(zone->base + (first << zone->frame_shift), frames << zone->frame_shift);
}

bool frames_used_take(struct frame_zone *zone, uint64_t first, uint64_t frames) {
    if (zone->kind == FRAMES_MEMFD) look_at_tables(zone, first, frames);
    return take_bits(zone->referenced, first, frames);
}

bool frames_used_dirty(const struct frame_zone *zone, uint64_t first, uint64_t frames) {
    return zone->kind != FRAMES_SIM || any_bit(zone->dirty, first, frames);
}

void frames_used_forget(struct frame_zone *zone, uint64_t first, uint64_t frames) {
    (void)take_bits(zone->referenced, first, frames);
    (void)take_bits(zone->dirty, first, frames);
}

void frames_used_move(struct frame_zone *zone, uint64_t from, uint64_t to, uint64_t frames) {
    /* The copy used both; what it wrote is as clean as what it read. */
    bool dirty = take_bits(zone->dirty, from, frames);
    (void)take_bits(zone->referenced, from, frames);
    frames_used_forget(zone, to, frames);
    for (uint64_t i = 0; dirty && i < frames; i++) frames_touch(zone, to + i, true);
    (void)take_bits(zone->referenced, to, frames);
}
