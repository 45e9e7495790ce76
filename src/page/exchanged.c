/*
 * exchanged.c - exchanges that are taken back once nobody has the pages any more, so that what they did to the mappings does not outlive them.
 *
 * A range that was exchanged is a mapping of its own: it can't merge with its neighbours, as the kernel knows its pages by where they came from. Who
 * has a range across such borders moves it in pieces, each at the price of a move. The same exchange once more puts all pages back to where they were
 * first touched, and the mappings merge. The program does that itself (the second of two exchanges ends the note of the first), or it is done when
 * both ranges are idle, for the price of one exchange, which keeps their pages present for who comes next.
 *
 * A note is a hint: what it says is only where pages came from. One that is out of date costs an exchange in vain, and never contents, as only
 * idle pages change places. Notes are taken back latest first where ranges overlap. Lock: LOCK_RANK_ZONE.
 */
#include "page/zone_internal.h"

static bool meets(const char *a, size_t a_bytes, const char *b, size_t b_bytes) { return a < b + b_bytes && b < a + a_bytes; }

static bool note_meets(const struct exchange *note, const char *address, size_t bytes) {
    return meets(note->a, note->bytes, address, bytes) || meets(note->b, note->bytes, address, bytes);
}

/* Whether a later note is about some of the same pages, and has to be taken back first. */
static bool is_covered(const struct exchanges *exchanges, unsigned i) {
    const struct exchange *note = &exchanges->notes[i];
    for (unsigned later = i + 1; later < exchanges->count; later++)
        if (note_meets(&exchanges->notes[later], note->a, note->bytes) || note_meets(&exchanges->notes[later], note->b, note->bytes)) return true;
    return false;
}

static void drop_note(struct exchanges *exchanges, unsigned i) {
    __atomic_store_n(&exchanges->count, exchanges->count - 1, __ATOMIC_RELAXED);
    for (; i < exchanges->count; i++) exchanges->notes[i] = exchanges->notes[i + 1];
}

void zone_exchange_note(struct zone *zone, char *a, char *b, size_t bytes) {
    struct exchanges *exchanges = &zone->exchanges;
    for (unsigned i = exchanges->count; i-- != 0;) {
        const struct exchange *note = &exchanges->notes[i];
        bool same = note->bytes == bytes && ((note->a == a && note->b == b) || (note->a == b && note->b == a));
        if (!same || is_covered(exchanges, i)) continue;
        drop_note(exchanges, i);
        zone_forget_cuts(zone, a, bytes);
        zone_forget_cuts(zone, b, bytes);
        return;
    }
    zone_note_cuts(zone, a, bytes);
    zone_note_cuts(zone, b, bytes);
    if (exchanges->count == EXCHANGES_MAX) drop_note(exchanges, 0);
    exchanges->notes[exchanges->count] = (struct exchange){.a = a, .b = b, .bytes = bytes};
    __atomic_store_n(&exchanges->count, exchanges->count + 1, __ATOMIC_RELAXED);
}

bool zone_exchange_meets_slow(const struct zone *zone, const char *address, size_t bytes) {
    for (unsigned i = 0; i < zone->exchanges.count; i++)
        if (note_meets(&zone->exchanges.notes[i], address, bytes)) return true;
    return false;
}

STRATA_COLD void zone_exchange_forget_slow(struct zone *zone, const char *address, size_t bytes) {
    for (unsigned i = zone->exchanges.count; i-- != 0;)
        if (note_meets(&zone->exchanges.notes[i], address, bytes)) drop_note(&zone->exchanges, i);
}

/* All of the range is free and present. */
static bool is_idle(struct zone *zone, const char *address, size_t bytes) {
    size_t at = zone_granule_of(zone, address), end = at + (bytes >> GRANULE_SHIFT);
    while (at < end) {
        const struct superpage *superpage = &zone->superpages[at / SUPERPAGE_GRANULES];
        unsigned start = (unsigned)(at % SUPERPAGE_GRANULES), count = (unsigned)min_u64(end - at, SUPERPAGE_GRANULES - start);
        if (superpage->linked == IDLE_NONE || superpage->young || superpage->apart) return false;
        if (bits_count_range(superpage->allocated, start, count) != 0 || bits_count_range(superpage->populated, start, count) != count) return false;
        at += count;
    }
    return true;
}

/* Which page holds zeros is not followed through: all may be something else. */
static void mark_dirty(struct zone *zone, const char *address, size_t bytes) {
    size_t at = zone_granule_of(zone, address), end = at + (bytes >> GRANULE_SHIFT);
    while (at < end) {
        unsigned start = (unsigned)(at % SUPERPAGE_GRANULES), count = (unsigned)min_u64(end - at, SUPERPAGE_GRANULES - start);
        bits_set(zone->superpages[at / SUPERPAGE_GRANULES].dirty, start, count);
        at += count;
    }
}

STRATA_COLD void zone_exchanges_settle_slow(struct zone *zone) {
    struct exchanges *exchanges = &zone->exchanges;
    if (zone_over_soft_limit(zone) != 0) return; /* the pages go to the system, which joins mappings too */
    for (unsigned i = exchanges->count; i-- != 0;) {
        struct exchange note = exchanges->notes[i];
        if (is_covered(exchanges, i) || !is_idle(zone, note.a, note.bytes) || !is_idle(zone, note.b, note.bytes)) continue;
        mark_dirty(zone, note.a, note.bytes);
        mark_dirty(zone, note.b, note.bytes);
        const unsigned count = exchanges->count;
        if (!zone_swap_tables(zone, note.a, note.b, note.bytes, true) && exchanges->count == count) drop_note(exchanges, i);
        i = exchanges->count; /* those about what it goes through, or makes room with, are gone, too: from the end again, with fewer each time */
    }
}
