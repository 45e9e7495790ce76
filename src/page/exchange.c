/*
 * exchange.c - contents that change places inside blocks, and pages of blocks that go and come (UMPA, section 2: "swapped without copying").
 *
 * Here pages can go missing from inside a block, which is then said to have holes (holes.c). An exchange goes through address space of its own, of
 * the same place modulo a superpage, so that whole page tables move. The ranges are the caller's: nobody else looks at their contents meanwhile, so
 * copies run without the lock. Lock: LOCK_RANK_ZONE.
 */
#include "base/swap.h"
#include "page/cost.h"
#include "page/zone_internal.h"

/* What is made present between two looks at `progress`. */
#define POPULATE_PIECE_BYTES (8 * SUPERPAGE_BYTES)

static bool is_whole_pages(const struct zone *zone, const void *address, size_t bytes) {
    size_t page = (size_t)zone->page_granules << GRANULE_SHIFT;
    return bytes != 0 && (((uintptr_t)address | bytes) & (page - 1)) == 0 && (uintptr_t)address + bytes > (uintptr_t)address;
}

static bool overlap(const char *a, const char *b, size_t bytes) { return a < b + bytes && b < a + bytes; }

/* Both ranges may be used as wanted; the starts of their blocks. */
static enum zone_status check_ranges(struct zone *zone, char *a, char *b, size_t bytes, char **a_block, char **b_block) {
    struct zone_block_info info;
    if (!is_whole_pages(zone, a, bytes) || !is_whole_pages(zone, b, bytes)) return ZONE_BAD_RANGE;
    enum zone_status status = zone_block_find(zone, a, bytes, &info);
    if (status != ZONE_OK) return status;
    *a_block = info.start;
    status = zone_block_find(zone, b, bytes, &info);
    if (status != ZONE_OK) return status;
    *b_block = info.start;
    return overlap(a, b, bytes) ? ZONE_OVERLAP : ZONE_OK;
}

/* ------------------------------------------------------------------ what is said of blocks */

/* Under the lock, between a check and what it was for, which is the caller's own affair: only misuse can have freed the block since. */
static void note_holes(struct zone *zone, const char *block) {
    if (zone_is_block(zone, block)) block_of(zone, block)->holes = true;
}

/* Under the lock, as above. */
static void end_watches(struct zone *zone, const char *block, char *address, size_t bytes) {
    if (zone_is_block(zone, block)) zone_end_watches(zone, block_of(zone, block), address, bytes);
}

/* ------------------------------------------------------------------ exchange */

/* Where idle ranges change places, these may be what the arena gives first. */
#define SCRATCH_TRIES 6

/* Free superpages that have none in common with both ranges; NULL: none. */
static struct superpage *take_apart(struct zone *zone, size_t count, const char *a, const char *b, size_t bytes) {
    struct superpage *tried[SCRATCH_TRIES], *found = NULL;
    unsigned tries = 0;
    while (found == NULL && tries < SCRATCH_TRIES) {
        struct superpage *first = zone_superpages_take(zone, count, 1), *end = first + count;
        if (first == NULL) break;
        bool meets_a = first <= superpage_of(zone, a + bytes - 1) && superpage_of(zone, a) < end;
        bool meets_b = first <= superpage_of(zone, b + bytes - 1) && superpage_of(zone, b) < end;
        if (meets_a || meets_b)
            tried[tries++] = first;
        else
            found = first;
    }
    while (tries-- != 0) zone_superpages_give(zone, tried[tries], count);
    return found;
}

/* Superpages that stay in the arena's hands but for a moment: with nothing present. NULL: none. */
static struct superpage *take_scratch(struct zone *zone, size_t count, const char *a, const char *b, size_t bytes) {
    struct superpage *first = take_apart(zone, count, a, b, bytes);
    if (first == NULL) return NULL;
    zone_litter_clear(zone, first, count);
    for (size_t i = 0; i < count; i++) {
        if (first[i].idle == 0) continue;
        if (!platform_release(superpage_address(zone, &first[i]), SUPERPAGE_BYTES)) {
            zone_superpages_give(zone, first, count);
            return NULL;
        }
        zone_mark_released(zone, &first[i], 0, SUPERPAGE_GRANULES);
    }
    return first;
}

/* The advice is the mapping's, and changes places, too: of whole superpages, as with a move. What is left in between has that of `a`. */
static void advice_follows(struct zone *zone, char *a, char *b, char *through, size_t bytes) {
    if ((((uintptr_t)a | (uintptr_t)b) & (SUPERPAGE_BYTES - 1)) != 0) return;
    struct superpage *of_a = superpage_of(zone, a), *of_b = superpage_of(zone, b), *between = superpage_of(zone, through);
    for (size_t i = 0; i < bytes >> SUPERPAGE_SHIFT; i++) {
        bool huge = of_a[i].huge;
        zone_note_advice(zone, &between[i], 1, huge);
        zone_note_advice(zone, &of_a[i], 1, of_b[i].huge);
        zone_note_advice(zone, &of_b[i], 1, huge);
    }
}

bool zone_swap_tables(struct zone *zone, char *a, char *b, size_t bytes, bool tidy) {
    size_t offset = (uintptr_t)a & (SUPERPAGE_BYTES - 1), count = (offset + bytes + SUPERPAGE_BYTES - 1) >> SUPERPAGE_SHIFT;
    if (!zone_can_swap(zone)) return false;
    struct superpage *scratch = take_scratch(zone, count, a, b, bytes);
    if (scratch == NULL) return false;
    char *through = superpage_address(zone, scratch) + offset;
    bool ok = platform_swap(a, b, through, bytes);
    if (ok) {
        zone_exchange_note(zone, a, b, bytes);
        zone_exchange_forget(zone, through, bytes);
        zone_inherit_cuts(zone, a, through, bytes);
        advice_follows(zone, a, b, through, bytes);
    }
    zone_superpages_give(zone, scratch, count);
    if (tidy) zone_join_absent(zone, scratch, count);
    return ok;
}

enum zone_status zone_pages_swap(struct zone *zone, void *a, void *b, size_t bytes) {
    char *a_block, *b_block;
    enum zone_status status = check_ranges(zone, a, b, bytes, &a_block, &b_block);
    if (status != ZONE_OK) return status;
    bool done = false;
    zone_lock(zone);
    end_watches(zone, a_block, a, bytes);
    end_watches(zone, b_block, b, bytes);
    platform_lock_release(&zone->lock);
    if (cost_prefers_tables(bytes >> GRANULE_SHIFT, false)) {
        zone_lock(zone);
        done = zone_swap_tables(zone, a, b, bytes, false);
        if (done && zone_may_lack_pages(block_of(zone, a_block)) != zone_may_lack_pages(block_of(zone, b_block))) {
            note_holes(zone, a_block);
            note_holes(zone, b_block);
        }
        platform_lock_release(&zone->lock);
    }
    if (!done) swap_by_copy(a, b, bytes);
    return ZONE_OK;
}

/* ------------------------------------------------------------------ move */

/* Whether most of a range is not there, as far as its first pages tell, so that a copy would touch it first. */
static bool is_absent(const struct zone *zone, const char *address, size_t granules) {
    const size_t looks = min_u64(granules, 64u * zone->page_granules);
    size_t absent;
    return zone_count_absent(zone, address, looks, &absent) && absent > looks / 2;
}

static bool prefers_tables(const struct zone *zone, size_t granules, const char *to) {
    bool absent = cost_prefers_tables(granules, true) && !cost_prefers_tables(granules, false) && is_absent(zone, to, granules);
    return cost_prefers_tables(granules, absent);
}

bool zone_pages_prefer_move(struct zone *zone, size_t bytes, char *to) {
    const size_t granules = bytes >> GRANULE_SHIFT;
    if (granules < COST_GROW_GRANULES_MIN) return false;
    return granules <= COST_COPY_GRANULES_MAX ? is_absent(zone, to, granules) : prefers_tables(zone, granules, to);
}

/* Moves into one block that go together. */
struct row {
    const struct zone_pages_move *moves;
    size_t count;
    char *to_block, *from_blocks[ROW_MOVES];
};

/* Whether page tables may be the cheaper way for a move of this size, depending on what is there. */
static bool may_prefer_tables(const struct zone_pages_move *move) { return cost_prefers_tables(move->bytes >> GRANULE_SHIFT, true); }

/* As many as may be, from the first on; where page tables can move, one that may go by them goes alone. None: that is wrong. */
static enum zone_status begin_row(struct zone *zone, struct row *row, const struct zone_pages_move *moves, size_t count, bool tables) {
    *row = (struct row){.moves = moves};
    for (; row->count < count && row->count < ROW_MOVES; row->count++) {
        const struct zone_pages_move *move = &moves[row->count];
        if (tables && row->count != 0 && (may_prefer_tables(move) || may_prefer_tables(&moves[0]))) break;
        char *to_block;
        enum zone_status status = check_ranges(zone, move->from, move->to, move->bytes, &row->from_blocks[row->count], &to_block);
        if (status != ZONE_OK && row->count == 0) return status;
        if (status != ZONE_OK || (row->count != 0 && to_block != row->to_block)) break;
        row->to_block = to_block;
    }
    return ZONE_OK;
}

/* Where page tables can't. A way that is forced is taken where page tables would be. */
static bool prefers_faults(const struct zone *zone, const struct row *row) {
    size_t bytes = 0, absent_bytes = 0;
    for (size_t i = 0; i < row->count; i++) {
        bytes += row->moves[i].bytes;
        if (is_absent(zone, row->moves[i].to, row->moves[i].bytes >> GRANULE_SHIFT)) absent_bytes += row->moves[i].bytes;
    }
    bool absent = absent_bytes > bytes / 2;
    if (zone->config.moves == ZONE_MOVES_UFFD) return cost_prefers_tables(bytes >> GRANULE_SHIFT, absent);
    return zone->config.moves == ZONE_MOVES_AUTO && cost_prefers_faults(bytes >> GRANULE_SHIFT, row->count, absent);
}

static void copy_row(struct zone *zone, const struct row *row) {
    struct platform_range ranges[ROW_MOVES];
    for (size_t i = 0; i < row->count; i++) {
        __builtin_memcpy(row->moves[i].to, row->moves[i].from, row->moves[i].bytes);
        ranges[i] = (struct platform_range){row->moves[i].from, row->moves[i].bytes};
    }
    (void)zone_pages_release_all(zone, ranges, row->count);
}

/* tables: they can move. Then small moves are copies, which are together cheaper than a call for each page. */
static void move_row(struct zone *zone, const struct row *row, bool tables) {
    size_t kept_bytes; /* both ends are of blocks, whose pages count as present whether they are or not */
    bool done = false, wanted = !tables && prefers_faults(zone, row);
    if (tables && may_prefer_tables(row->moves)) wanted = prefers_tables(zone, row->moves->bytes >> GRANULE_SHIFT, row->moves->to);
    zone_lock(zone);
    for (size_t i = 0; i < row->count; i++) {
        end_watches(zone, row->from_blocks[i], row->moves[i].from, row->moves[i].bytes);
        end_watches(zone, row->to_block, row->moves[i].to, row->moves[i].bytes);
    }
    if (wanted)
        done = tables ? zone_move(zone, row->moves->from, row->moves->to, row->moves->bytes, &kept_bytes)
                      : zone_move_one_by_one(zone, row->moves, row->count);
    for (size_t i = 0; done && i < row->count; i++) {
        if (zone_may_lack_pages(block_of(zone, row->from_blocks[i]))) note_holes(zone, row->to_block);
        note_holes(zone, row->from_blocks[i]);
    }
    platform_lock_release(&zone->lock);
    if (!done) copy_row(zone, row);
}

static bool tables_can_move(struct zone *zone) {
    zone_lock(zone);
    bool can = zone_can_move_tables(zone);
    platform_lock_release(&zone->lock);
    return can;
}

enum zone_status zone_pages_move_all(struct zone *zone, const struct zone_pages_move *moves, size_t count) {
    struct row row = {.count = 0};
    for (size_t at = 0; at < count; at += row.count) {
        bool tables = tables_can_move(zone);
        enum zone_status status = begin_row(zone, &row, moves + at, count - at, tables);
        if (status != ZONE_OK) return status;
        move_row(zone, &row, tables);
    }
    return ZONE_OK;
}

enum zone_status zone_pages_move(struct zone *zone, void *from, void *to, size_t bytes) {
    const struct zone_pages_move move = {from, to, bytes};
    return zone_pages_move_all(zone, &move, 1);
}

/* ------------------------------------------------------------------ presence */

static enum zone_status check_range(struct zone *zone, void *address, size_t bytes, char **block) {
    struct zone_block_info info;
    if (!is_whole_pages(zone, address, bytes)) return ZONE_BAD_RANGE;
    enum zone_status status = zone_block_find(zone, address, bytes, &info);
    *block = info.start;
    return status;
}

enum zone_status zone_pages_check(struct zone *zone, void *address, size_t bytes) {
    char *block;
    return check_range(zone, address, bytes, &block);
}

enum zone_status zone_pages_watch(struct zone *zone, void *address, size_t bytes, void (*watches_end)(char *address, size_t bytes)) {
    char *block;
    enum zone_status status = check_range(zone, address, bytes, &block);
    if (status != ZONE_OK) return status;
    zone_lock(zone);
    zone->end_watches = watches_end;
    if (zone_is_block(zone, block)) block_of(zone, block)->watched = true;
    platform_lock_release(&zone->lock);
    return ZONE_OK;
}

void zone_block_unwatch(struct zone *zone, void *block) {
    const struct block_desc *desc = block_of(zone, block);
    if (STRATA_LIKELY(!desc->watched)) return;
    zone_lock(zone);
    zone_end_watches(zone, desc, block, desc->granules << GRANULE_SHIFT);
    platform_lock_release(&zone->lock);
}

enum zone_status zone_pages_release_all(struct zone *zone, const struct platform_range *ranges, size_t count) {
    char *block;
    for (size_t i = 0; i < count; i++) {
        enum zone_status status = check_range(zone, ranges[i].address, ranges[i].bytes, &block);
        if (status != ZONE_OK) return status;
        zone_lock(zone);
        end_watches(zone, block, ranges[i].address, ranges[i].bytes);
        note_holes(zone, block);
        platform_lock_release(&zone->lock);
    }
    if (platform_release_all(ranges, count)) return ZONE_OK;
    for (size_t i = 0; i < count; i++)
        if (!platform_release(ranges[i].address, ranges[i].bytes)) __builtin_memset(ranges[i].address, 0, ranges[i].bytes);
    return ZONE_OK;
}

enum zone_status zone_pages_release(struct zone *zone, void *address, size_t bytes) {
    const struct platform_range range = {address, bytes};
    return zone_pages_release_all(zone, &range, 1);
}

enum zone_status zone_pages_populate(struct zone *zone, void *address, size_t bytes, bool (*progress)(size_t done, void *argument), void *argument) {
    char *block;
    enum zone_status status = check_range(zone, address, bytes, &block);
    size_t page = (size_t)zone->page_granules << GRANULE_SHIFT;
    for (size_t done = 0, piece; status == ZONE_OK && done < bytes; done += piece) {
        char *at = (char *)address + done;
        /* Pieces end where superpages do, for huge pages to be whole. */
        piece = min_u64(bytes - done, POPULATE_PIECE_BYTES - ((uintptr_t)at & (SUPERPAGE_BYTES - 1)));
        if (!platform_populate(at, piece)) { /* a system without that call, or without memory: as touching would be */
            for (size_t i = 0; i < piece; i += page) {
                char *touched = at + i, seen = 0; /* a write access, whatever it finds: a read first would be told to who watches reads */
                (void)__atomic_compare_exchange_n(touched, &seen, seen, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
            }
        }
        if (progress != NULL && !progress(done + piece, argument)) status = ZONE_CUT_SHORT;
    }
    return status;
}
