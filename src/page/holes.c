/*
 * holes.c - pages of a block that count as present and are not.
 *
 * Blocks count all their granules as populated, as nobody knows which of them the program touches. Some it may never touch, as of a buffer of a size
 * for all cases; others go missing by exchanges and moves. Such a block is said to have holes, and where it ends the system is asked what is there:
 * what would count as idle and is absent would be moved to other blocks, and handed back in exchange for pages that are wanted, each time at the cost
 * of a system call for nothing. Lock: LOCK_RANK_ZONE.
 */
#include "page/zone_internal.h"

/* Swapped pages count as absent, and come back with what they held: so what may hold something else than zeros is as it was. */
static unsigned mark_absent(struct zone *zone, struct superpage *superpage, const uint64_t absent[SUPERPAGE_WORDS]) {
    unsigned idle_before = superpage->idle, count = 0;
    for (unsigned w = 0; w < SUPERPAGE_WORDS; w++) {
        count += bit_count(superpage->populated[w] & absent[w]);
        superpage->populated[w] &= ~absent[w];
    }
    if (count == 0) return 0;
    superpage_recount_idle(superpage);
    COUNTER_SUB(zone->counters.populated, count);
    zone->counters.released_total += count;
    zone_superpage_relink(zone, superpage, idle_before);
    return count;
}

/* Bit i is byte i of eight bytes, each of which is 0 or 1. */
static uint64_t gather(const uint8_t *bytes) {
    uint64_t eight;
    __builtin_memcpy(&eight, bytes, sizeof eight);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    eight = __builtin_bswap64(eight);
#endif
    return eight * UINT64_C(0x0102040810204080) >> 56;
}

/* Ends of a range in one superpage each. */
static size_t next_border(size_t at, size_t end) { return min_u64(end, align_down(at, SUPERPAGE_GRANULES) + SUPERPAGE_GRANULES); }

static bool give_back(struct zone *zone, char *address, size_t granules) {
    size_t at = zone_granule_of(zone, address), end = at + granules;
    if (!platform_release(address, granules << GRANULE_SHIFT)) return false;
    for (size_t next; at < end; at = next) {
        next = next_border(at, end);
        zone_mark_released(zone, &zone->superpages[at / SUPERPAGE_GRANULES], (unsigned)(at % SUPERPAGE_GRANULES), (unsigned)(next - at));
    }
    return true;
}

/* Of a range in one superpage; returns how many granules are absent. Where all are, what is in swap goes, which nobody would look for later. */
static unsigned look_at_all(struct zone *zone, char *address, size_t granules) {
    uint8_t resident[SUPERPAGE_GRANULES];
    uint64_t absent[SUPERPAGE_WORDS] = {0};
    unsigned start = (unsigned)(zone_granule_of(zone, address) % SUPERPAGE_GRANULES), unit = zone->page_granules;
    __builtin_memset(resident, 1, sizeof resident);
    if (!platform_resident(address, granules << GRANULE_SHIFT, resident + start)) return 0;
    if (__builtin_memchr(resident + start, 1, granules / unit) == NULL) return give_back(zone, address, granules) ? (unsigned)granules : 0;
    for (size_t g = granules; unit > 1 && g-- > 0;) resident[start + g] = resident[start + g / unit];
    for (unsigned i = 0; i < SUPERPAGE_GRANULES; i += 8) absent[i / 64] |= (gather(&resident[i]) ^ 0xFF) << (i % 64);
    return mark_absent(zone, superpage_of(zone, address), absent);
}

size_t zone_mark_holes(struct zone *zone, char *address, size_t granules) {
    size_t absent = 0, at = zone_granule_of(zone, address), end = at + granules;
    for (size_t next; at < end; at = next) {
        next = next_border(at, end);
        absent += look_at_all(zone, zone_address_of(zone, at), next - at);
    }
    return absent;
}

bool zone_count_absent(const struct zone *zone, const char *address, size_t granules, size_t *absent) {
    uint8_t resident[SUPERPAGE_GRANULES];
    *absent = 0;
    if (!platform_resident(address, granules << GRANULE_SHIFT, resident)) return false;
    for (size_t page = 0; page < granules / zone->page_granules; page++) *absent += resident[page] == 0 ? zone->page_granules : 0;
    return true;
}

/* Of so many pages, in the middles of equal parts. */
#define SAMPLES 8
#define SAMPLES_SPARSE 1 /* up to so many there: nobody uses such a block as a whole */

/* Of blocks that are as sparse as others before them the first three tell. */
static unsigned count_samples(const struct zone *zone, const char *address, size_t granules) {
    static const uint8_t parts[SAMPLES] = {1, 4, 6, 0, 2, 3, 5, 7};
    unsigned hits = 0;
    for (unsigned i = 0; i < SAMPLES && !(i == 3 && hits == 0 && zone_is_sparse(zone, true)); i++) {
        uint8_t resident;
        size_t granule = align_down(granules * (2u * parts[i] + 1) / (2 * SAMPLES), zone->page_granules);
        hits += !platform_resident(address + (granule << GRANULE_SHIFT), platform_info()->page_bytes, &resident) || resident != 0;
    }
    return hits;
}

/*
 * What the last ones of one kind tell counts a quarter. Nothing is told by a block whose pages went missing otherwise, and by a tail that is the
 * smaller part of one.
 */
void zone_learn_untouched(struct zone *zone, const struct block_desc *block, size_t granules, size_t absent) {
    unsigned *untouched = &zone->untouched[block->superpages != 0];
    size_t fresh = min_u64(block->fresh, granules);
    if (fresh == 0 || block->holes || granules < block->granules / 2) return;
    __atomic_store_n(untouched, (unsigned)(*untouched - *untouched / 4 + 256 / 4 * min_u64(absent, fresh) / fresh), __ATOMIC_RELAXED);
}

/* How much of a block is there from its start on, as the marks have it. */
static size_t head_of(struct zone *zone, const char *address, size_t granules) {
    const struct superpage *superpage = superpage_of(zone, address);
    size_t head = 0;
    for (unsigned here, absent; head < granules; head += here, superpage++) {
        here = (unsigned)min_u64(granules - head, SUPERPAGE_GRANULES);
        absent = bits_next(superpage->populated, 0, ~UINT64_C(0));
        if (absent < here) return head + absent;
    }
    return head;
}

/* How much of a block of superpages is used, from its start on: as above; after one that was hardly used nothing is known. */
static void learn_head(struct zone *zone, char *address, size_t granules, unsigned hits) {
    if (hits <= SAMPLES_SPARSE) {
        zone->tail = 256;
        return;
    }
    const size_t head = hits == SAMPLES ? granules : head_of(zone, address, granules);
    zone->tail = zone->tail - zone->tail / 4 + (unsigned)(256 / 4 * (granules - head) / granules);
}

/*
 * A look at each page of a large block would cost what a hundred of its pages are worth: a few tell whether it was used. One that was not goes back
 * whole, which costs no more than to find out what is there. (To keep its start, which the next one uses: docs/decisions.md, 127.)
 */
void zone_settle_holes(struct zone *zone, const struct block_desc *block, char *address, size_t granules) {
    if (platform_is_filtered()) return; /* the call may be the end of the program: all counts as present */
    unsigned hits = granules > SUPERPAGE_GRANULES ? count_samples(zone, address, granules) : SAMPLES / 2;
    size_t absent = 0;
    if (hits <= SAMPLES_SPARSE) {
        absent = give_back(zone, address, granules) ? granules : 0;
    } else if (block->holes || hits != SAMPLES) {
        absent = zone_mark_holes(zone, address, granules);
    }
    zone_learn_untouched(zone, block, granules, absent);
    if (block->superpages != 0 && granules == block->granules && !block->holes) learn_head(zone, address, granules, hits);
}
