/*
 * remap.c - pages that change their address without a copy, a fault or clearing (UMPA, section 2).
 *
 * Two uses: a block that outgrows its place takes its pages along (resize.c, move_run.c); and a new block gets pages that are present and free,
 * wherever these are, before it would fault in fresh ones. What moves of page tables cost beside time (cost.h) is mappings: a moved range can't merge
 * with its neighbours until it is reset. So idle pages go one by one where they can, and by page tables as whole superpages. Lock: LOCK_RANK_ZONE.
 */
#include "page/cost.h"
#include "page/zone_internal.h"

/* So many superpages are looked at for the longest run of idle pages, of those that are wholly free and of the others. */
#define SOURCE_LOOKS 16

/* Bits [at, at + count) become bits [to_at, ...) of `target`: by words where they lie alike, as whole page tables do. */
static void copy_bits(const uint64_t *source, unsigned at, uint64_t *target, unsigned to_at, unsigned count) {
    unsigned i = 0;
    if (at == to_at && at % 64 == 0)
        for (; i + 64 <= count; i += 64) target[(to_at + i) / 64] = source[(at + i) / 64];
    for (; i < count; i++) {
        unsigned from = at + i, to = to_at + i;
        uint64_t bit = source[from / 64] >> (from % 64) & 1;
        target[to / 64] = (target[to / 64] & ~(UINT64_C(1) << (to % 64))) | bit << (to % 64);
    }
}

/* Granules [at, at + count) of `source` have moved to [to_at, ...) of `target`: the marks follow the pages, those of the source read as zeros. */
static void marks_follow(struct zone *zone, struct superpage *source, unsigned at, struct superpage *target, unsigned to_at, unsigned count) {
    unsigned source_idle = source->idle, target_idle = target->idle;
    uint64_t dropped = bits_count_range(target->populated, to_at, count);
    copy_bits(source->populated, at, target->populated, to_at, count);
    copy_bits(source->dirty, at, target->dirty, to_at, count);
    bits_clear(source->populated, at, count);
    bits_clear(source->dirty, at, count);
    COUNTER_SUB(zone->counters.populated, dropped);
    zone->counters.released_total += dropped;
    superpage_recount_idle(source); /* what is allocated has not changed */
    superpage_recount_idle(target);
    zone_superpage_relink(zone, source, source_idle);
    if (target != source) zone_superpage_relink(zone, target, target_idle);
}

/* Granules that the marks left, but whose pages are there, as zeros: the source of a copy, that could not be given back. */
static void mark_kept(struct zone *zone, size_t at, size_t granules) {
    for (size_t end = at + granules; at < end;) {
        struct superpage *superpage = &zone->superpages[at / SUPERPAGE_GRANULES];
        unsigned start = (unsigned)(at % SUPERPAGE_GRANULES), count = (unsigned)min_u64(end - at, SUPERPAGE_GRANULES - start);
        unsigned idle_before = superpage->idle;
        bits_set(superpage->populated, start, count);
        COUNTER_ADD(zone->counters.populated, count);
        zone->counters.populated_total += count;
        superpage_recount_idle(superpage);
        zone_superpage_relink(zone, superpage, idle_before);
        at += count;
    }
}

void zone_moved_pages(struct zone *zone, char *from, char *to, size_t granules, size_t kept_bytes) {
    size_t at = zone_granule_of(zone, from), to_at = zone_granule_of(zone, to);
    for (size_t done = 0; done < granules;) {
        unsigned source_at = (unsigned)((at + done) % SUPERPAGE_GRANULES), target_at = (unsigned)((to_at + done) % SUPERPAGE_GRANULES);
        unsigned count = (unsigned)min_u64(granules - done, SUPERPAGE_GRANULES - (source_at > target_at ? source_at : target_at));
        marks_follow(zone, &zone->superpages[(at + done) / SUPERPAGE_GRANULES], source_at, &zone->superpages[(to_at + done) / SUPERPAGE_GRANULES],
                     target_at, count);
        done += count;
    }
    size_t kept = kept_bytes >> GRANULE_SHIFT;
    if (kept != 0) mark_kept(zone, at + granules - kept, kept);
}

/* The longest run of granules that are present and free, at most `wanted` long; 0: none has `least`, which is seen without a look at each. */
static unsigned longest_present(const struct superpage *superpage, unsigned least, unsigned wanted, unsigned *at) {
    uint64_t idle[SUPERPAGE_WORDS];
    unsigned longest = 0;
    for (unsigned w = 0; w < SUPERPAGE_WORDS; w++) idle[w] = superpage->populated[w] & ~superpage->allocated[w];
    for (unsigned start = bits_find_run(idle, least, 1); start < SUPERPAGE_GRANULES && longest < wanted;) {
        unsigned end = bits_next(idle, start, ~UINT64_C(0));
        if (end - start > longest) {
            longest = end - start;
            *at = start;
        }
        start = bits_next(idle, end, 0);
    }
    return longest < wanted ? longest : wanted;
}

/* What is filled: superpages [first, end), none of which may be a source. */
struct target {
    const struct superpage *first, *end;
    enum zone_fill who;
    unsigned dry[2]; /* no source has so many granules in a row, for a short gap, or a long one: another search would find none, either */
};

/* By which way, and from how many granules in a row on. Page by page to a target that is opened once there is a source. stuck: the system moved
 * nothing. */
struct way {
    bool by_tables, opened, refused, stuck;
    unsigned least;
    char *first;
    size_t bytes;
};

struct source {
    struct superpage *superpage; /* NULL: none */
    unsigned at, count;
};

/*
 * By page tables a run takes nothing from a superpage that earlier moves have cut: each piece of it would be a move by itself, and cost the search
 * for its ends.
 */
static bool needs_uncut(const struct target *target, const struct way *way) { return way->by_tables && target->first->state == SUPERPAGE_RUNS; }

/* Of the first few of a list: a run of all that is wanted, else a longer one than `best`. */
static void look_for_source(const struct list *list, const struct target *target, const struct way *way, unsigned wanted, struct source *best) {
    unsigned looks = 0;
    bool uncut = needs_uncut(target, way);
    LIST_FOR_EACH(list, node) {
        if (best->count == wanted || looks++ == SOURCE_LOOKS) return;
        struct superpage *superpage = CONTAINER_OF(node, struct superpage, idle_link);
        if (superpage >= target->first && superpage < target->end) continue;
        if (wanted < COST_FILL_GRANULES_MIN && superpage->state != SUPERPAGE_FREE && superpage->free < SPARED_FREE_GRANULES) continue;
        if (uncut && superpage->splits != 0) continue;
        if (superpage->huge && (wanted < SUPERPAGE_GRANULES || superpage->idle < SUPERPAGE_GRANULES)) continue; /* it would be broken up: dear */
        if (superpage->young || superpage->idle <= best->count || superpage_kept_idle(superpage, superpage->idle) != 0) continue;
        unsigned start = 0, length = longest_present(superpage, best->count + 1, wanted, &start);
        if (length > best->count) *best = (struct source){superpage, start, length};
    }
}

/* What is wholly free first: holes in superpages that are in use serve where they are, sooner or later. */
static struct source find_source(struct zone *zone, struct target *target, const struct way *way, unsigned wanted) {
    const unsigned least = way->least;
    struct source source = {.count = least - 1};
    unsigned *dry = &target->dry[wanted >= COST_FILL_GRANULES_MIN];
    if (least >= *dry) return source;
    look_for_source(&zone->idle[IDLE_FREE], target, way, wanted, &source);
    look_for_source(&zone->idle[IDLE_HOLES], target, way, wanted, &source);
    if (source.superpage == NULL) *dry = least;
    return source;
}

static bool way_is_open(struct zone *zone, struct way *way) {
    if (way->by_tables) return zone_can_move(zone);
    if (!way->opened) way->refused = !(way->opened = zone_target_ready(zone) && zone_target_open(zone, way->first, way->bytes));
    return way->opened;
}

/* Absent granules [at, end) of a superpage get present pages. Returns where that ended: there are no more of them, or the system refuses. */
static unsigned fill(struct zone *zone, struct target *target, struct superpage *superpage, unsigned at, unsigned end, struct way *way) {
    while (end - at >= way->least) {
        struct source source = find_source(zone, target, way, end - at);
        if (source.superpage == NULL || !way_is_open(zone, way)) break;
        char *from = superpage_address(zone, source.superpage) + ((size_t)source.at << GRANULE_SHIFT);
        char *to = superpage_address(zone, superpage) + ((size_t)at << GRANULE_SHIFT);
        size_t moved = (size_t)source.count << GRANULE_SHIFT, kept_bytes = 0;
        if (!way->by_tables)
            moved = zone_target_move(zone, from, to, moved, (size_t)way->least << GRANULE_SHIFT);
        else if (!zone_move(zone, from, to, moved, &kept_bytes))
            moved = 0;
        way->stuck = moved == 0;
        if (way->stuck) break;
        zone_moved_pages(zone, from, to, moved >> GRANULE_SHIFT, kept_bytes);
        at += (unsigned)(moved >> GRANULE_SHIFT);
    }
    return at;
}

/*
 * The same of all that is absent of granules [start, end): page by page, which cuts no mappings, where that can be had. False: a long gap stays, or
 * nothing moves. What a short one does not get may be there for the long ones behind it, for which nothing is spared.
 */
static bool fill_superpage(struct zone *zone, struct target *target, struct superpage *superpage, unsigned start, unsigned end) {
    struct way tables = {.by_tables = true, .least = COST_FILL_GRANULES_MIN};
    struct way pages = {.least = (unsigned)max_u64(COST_FILL_PAGES_MIN, zone->page_granules)};
    bool more = true;
    pages.refused = target->who == FILL_GROWTH; /* whose step shall be short */
    for (unsigned at = start, absent; more && at < end;) {
        absent = bits_next_gap(superpage->populated, at, end, &at);
        if (!pages.opened) {
            pages.first = superpage_address(zone, superpage) + ((size_t)absent << GRANULE_SHIFT);
            pages.bytes = (size_t)(end - absent) << GRANULE_SHIFT;
        }
        if (!pages.refused) absent = fill(zone, target, superpage, absent, at, &pages);
        if (pages.refused && target->who != FILL_AHEAD) absent = fill(zone, target, superpage, absent, at, &tables);
        more = !pages.stuck && at - absent < COST_FILL_GRANULES_MIN;
    }
    if (pages.opened) zone_target_close(zone, pages.first, pages.bytes);
    return more;
}

/* How many superpages from this one on, up to `wanted`, are wholly free and present, with the same advice. */
static size_t present_row(const struct zone *zone, const struct target *target, const struct superpage *first, size_t wanted) {
    size_t count = 0, left = zone->used_superpages - (size_t)(first - zone->superpages);
    for (const struct superpage *at = first; count < wanted && count < left; count++, at++) {
        if (at >= target->first && at < target->end) break;
        if (at->linked != IDLE_FREE || at->idle != SUPERPAGE_GRANULES || at->young || at->huge != first->huge) break;
    }
    return count;
}

/*
 * Whole superpages by one move, of the `wanted` from `superpage` on of which nothing is present: by page tables, as the borders that they leave cost
 * less than a page at a time. Returns how many; 0: none.
 */
static size_t fill_row(struct zone *zone, const struct target *target, struct superpage *superpage, size_t wanted) {
    struct superpage *source = NULL;
    size_t longest = 0, kept_bytes;
    unsigned looks = 0;
    LIST_FOR_EACH(&zone->idle[IDLE_FREE], node) {
        if (longest == wanted || looks++ == SOURCE_LOOKS) break;
        struct superpage *first = CONTAINER_OF(node, struct superpage, idle_link);
        size_t row = present_row(zone, target, first, wanted);
        if (row <= longest) continue;
        longest = row;
        source = first;
    }
    if (source == NULL || !zone_can_move(zone)) return 0;
    char *from = superpage_address(zone, source), *to = superpage_address(zone, superpage);
    if (!zone_move(zone, from, to, longest << SUPERPAGE_SHIFT, &kept_bytes)) return 0;
    zone_moved_pages(zone, from, to, longest * SUPERPAGE_GRANULES, kept_bytes);
    return longest;
}

/* Superpages from this one on of which nothing is present, up to `wanted`. */
static size_t absent_row(const struct superpage *first, size_t wanted) {
    size_t count = 0;
    while (count < wanted && bits_count(first[count].populated) == 0) count++;
    return count;
}

void zone_fill_from_idle(struct zone *zone, struct superpage *first, size_t from, size_t to, enum zone_fill who) {
    if (who != FILL_AHEAD && who != FILL_HEAD && zone_is_sparse(zone, first->state == SUPERPAGE_BLOCK)) return;
    if (first->littered) return; /* pages may be there already */
    struct target target = {.first = first,
                            .end = first + (to + SUPERPAGE_GRANULES - 1) / SUPERPAGE_GRANULES,
                            .who = who,
                            .dry = {SUPERPAGE_GRANULES + 1, SUPERPAGE_GRANULES + 1}};
    while (from < to && zone->counters.idle >= COST_FILL_PAGES_MIN) {
        struct superpage *superpage = &first[from / SUPERPAGE_GRANULES];
        unsigned start = (unsigned)(from % SUPERPAGE_GRANULES), end = (unsigned)min_u64(SUPERPAGE_GRANULES, start + (to - from));
        if (start == 0 && to - from >= SUPERPAGE_GRANULES && zone->counters.idle >= SUPERPAGE_GRANULES) {
            size_t row = absent_row(superpage, (to - from) / SUPERPAGE_GRANULES), filled = row != 0 ? fill_row(zone, &target, superpage, row) : 0;
            from += filled * SUPERPAGE_GRANULES;
            if (filled != 0) continue;
        }
        /* Asked for what is wanted alone: each question counts. */
        const bool absent = bits_count_range(superpage->populated, start, end - start) != end - start;
        const bool stays = absent && who != FILL_GROWTH && !zone_one_thread_moves(zone);
        if (absent && !stays && !fill_superpage(zone, &target, superpage, start, end)) return;
        from += end - start;
    }
}

/* How many superpages from this one on, up to `wanted`, are wholly present. */
static size_t whole_row(const struct superpage *first, size_t wanted) {
    size_t count = 0;
    while (count < wanted && bits_count(first[count].populated) == SUPERPAGE_GRANULES) count++;
    return count;
}

/* What moves is wholly present: where the system copies in place of moving, what is absent would be present behind the copy. */
void zone_clear_way(struct zone *zone, struct superpage *first, size_t to, size_t count) {
    size_t end = (to + SUPERPAGE_GRANULES - 1) / SUPERPAGE_GRANULES, place = end, kept_bytes;
    for (size_t i = 0, row; i < end; i += row) {
        unsigned limit = (unsigned)min_u64(SUPERPAGE_GRANULES, to - i * SUPERPAGE_GRANULES), at = 0;
        row = 1;
        size_t granules = longest_present(&first[i], COST_CLEAR_GRANULES_MIN, SUPERPAGE_GRANULES, &at);
        granules = at < limit ? min_u64(granules, limit - at) : 0;
        if (granules < COST_CLEAR_GRANULES_MIN) continue;
        while (place < count && bits_count(first[place].populated) != 0) place++;
        if (place == count || !zone_can_move(zone)) return;
        if (granules == SUPERPAGE_GRANULES) {
            row = absent_row(&first[place], min_u64(whole_row(&first[i], to / SUPERPAGE_GRANULES - i), count - place));
            granules = row * SUPERPAGE_GRANULES;
        }
        char *from_address = superpage_address(zone, &first[i]) + ((size_t)at << GRANULE_SHIFT);
        char *to_address = superpage_address(zone, &first[place]) + ((size_t)at << GRANULE_SHIFT);
        if (!zone_move(zone, from_address, to_address, granules << GRANULE_SHIFT, &kept_bytes)) return;
        zone_moved_pages(zone, from_address, to_address, granules, kept_bytes);
        place += row;
    }
}
