/*
 * report_table.c - a snapshot as tables for people, in the manner of a kernel's list of its caches.
 *
 * A section is a table of columns; a cell is made twice, first to measure its column, then to print it, so that columns align whatever the
 * numbers are and nothing is stored. Caches that were never used are left out. Sizes are rounded down, to a unit of 1024.
 */
#include <strata/strata.h>

#include "api/report.h"
#include "base/check.h"

#define CELL_BYTES 48
#define MAX_COLUMNS 12

struct column {
    const char *heading[2]; /* two lines */
    bool left;              /* text stands left, numbers right */
};

struct section {
    const struct column *columns;
    unsigned column_count;
    unsigned rows;
    bool (*is_shown)(const struct report_snapshot *snapshot, unsigned row); /* NULL: every row */
    void (*cell)(const struct report_snapshot *snapshot, unsigned row, unsigned column, char text[CELL_BYTES]);
};

/* ------------------------------------------------------------------ cells */

static void cell_count(char text[CELL_BYTES], uint64_t count) { format_text(text, CELL_BYTES, "%lu", count); }

/* "1023", "1.5K", "12.3M", "640M". */
static void cell_size(char text[CELL_BYTES], uint64_t bytes) {
    unsigned unit = bytes == 0 ? 0 : bit_highest(bytes) / 10;
    if (unit == 0) {
        cell_count(text, bytes);
        return;
    }
    uint64_t whole = bytes >> (10 * unit), tenths = ((bytes >> (10 * (unit - 1))) & 1023) * 10 / 1024;
    char suffix = " KMGTPE"[unit];
    if (whole < 100)
        format_text(text, CELL_BYTES, "%lu.%lu%c", whole, tenths, suffix);
    else
        format_text(text, CELL_BYTES, "%lu%c", whole, suffix);
}

static void cell_limit(char text[CELL_BYTES], uint64_t bytes) {
    if (bytes == 0)
        format_text(text, CELL_BYTES, "none");
    else
        cell_size(text, bytes);
}

/* A name, with '?' for what a terminal should not get. */
static void cell_name(char text[CELL_BYTES], const char *name) {
    size_t length = 0;
    while (*name != 0 && length + 5 < CELL_BYTES) {
        size_t bytes = (unsigned char)*name < 0x20 || *name == 0x7f ? 0 : report_utf8_length(name);
        if (bytes == 0) text[length++] = '?';
        __builtin_memcpy(text + length, name, bytes);
        length += bytes;
        name += bytes != 0 ? bytes : 1;
    }
    text[length] = 0;
}

/* ------------------------------------------------------------------ the engine */

static size_t text_length(const char *text) {
    size_t length = 0;
    while (text[length] != 0) length++;
    return length;
}

/* Characters, not bytes: continuation bytes take no column. */
static unsigned text_width(const char *text) {
    unsigned width = 0;
    for (; *text != 0; text++) width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static void put_repeated(struct report_writer *writer, char c, unsigned count) {
    while (count-- != 0) report_put(writer, &c, 1);
}

/* Spaces wait in *spaces until text follows, so that no line ends in one. */
static void put_cell(struct report_writer *writer, unsigned *spaces, const char *text, unsigned width, bool left) {
    unsigned padding = width - text_width(text);
    if (!left) *spaces += padding;
    if (*text != 0) {
        put_repeated(writer, ' ', *spaces);
        report_put(writer, text, text_length(text));
        *spaces = 0;
    }
    *spaces += (left ? padding : 0) + 2;
}

static bool row_is_shown(const struct report_snapshot *snapshot, const struct section *section, unsigned row) {
    return section->is_shown == NULL || section->is_shown(snapshot, row);
}

/* Sets the width of every column; false where no row is shown. */
static bool section_measure(const struct report_snapshot *snapshot, const struct section *section, unsigned widths[MAX_COLUMNS]) {
    char text[CELL_BYTES];
    bool any = false;
    for (unsigned c = 0; c < section->column_count; c++) {
        const struct column *column = &section->columns[c];
        widths[c] = (unsigned)max_u64(text_width(column->heading[0]), text_width(column->heading[1]));
        for (unsigned row = 0; row < section->rows; row++) {
            if (!row_is_shown(snapshot, section, row)) continue;
            any = true;
            section->cell(snapshot, row, c, text);
            widths[c] = (unsigned)max_u64(widths[c], text_width(text));
        }
    }
    return any;
}

/* A section with no row to show is left out whole. */
static void put_section(struct report_writer *writer, const struct report_snapshot *snapshot, const struct section *section) {
    unsigned widths[MAX_COLUMNS];
    char text[CELL_BYTES];
    CHECK(section->column_count <= MAX_COLUMNS);
    if (!section_measure(snapshot, section, widths)) return;
    report_put(writer, "\n", 1);
    for (unsigned line = 0; line < 2; line++) {
        unsigned spaces = 0;
        for (unsigned c = 0; c < section->column_count; c++)
            put_cell(writer, &spaces, section->columns[c].heading[line], widths[c], section->columns[c].left);
        report_put(writer, "\n", 1);
    }
    for (unsigned c = 0; c < section->column_count; c++) {
        if (c != 0) put_repeated(writer, ' ', 2);
        put_repeated(writer, '-', widths[c]);
    }
    report_put(writer, "\n", 1);
    for (unsigned row = 0; row < section->rows; row++) {
        if (!row_is_shown(snapshot, section, row)) continue;
        unsigned spaces = 0;
        for (unsigned c = 0; c < section->column_count; c++) {
            section->cell(snapshot, row, c, text);
            put_cell(writer, &spaces, text, widths[c], section->columns[c].left);
        }
        report_put(writer, "\n", 1);
    }
}

/* ------------------------------------------------------------------ caches */

/* clang-format off: one column a line */
static const struct column cache_columns[] = {
    {{"cache", "name"}, true},     {{"object", "size"}, false},   {{"objects", "in use"}, false},    {{"objects", "cached"}, false},
    {{"objects", "total"}, false}, {{"", "memory"}, false},       {{"allocs", "from depot"}, false}, {{"allocs", "from slabs"}, false},
    {{"", "slabs"}, false},        {{"magazine", "size"}, false}, {{"depot", "contention"}, false},
};
/* clang-format on */

/* Every allocation takes its first object from a slab, so a cache that never did was never used. */
static bool cache_is_shown(const struct report_snapshot *snapshot, unsigned row) {
    const struct report_cache *cache = &snapshot->caches[row];
    return (cache->in_use | cache->slabs | cache->slab_allocs | cache->depot_allocs) != 0;
}

static void cache_cell(const struct report_snapshot *snapshot, unsigned row, unsigned column, char text[CELL_BYTES]) {
    const struct report_cache *cache = &snapshot->caches[row];
    switch (column) {
    case 0: cell_name(text, cache->name); break;
    case 1: cell_count(text, cache->object_bytes); break;
    case 2: cell_count(text, cache->in_use); break;
    case 3: cell_count(text, cache->cached); break;
    case 4: cell_count(text, cache->total); break;
    case 5: cell_size(text, cache->memory_bytes); break;
    case 6: cell_count(text, cache->depot_allocs); break;
    case 7: cell_count(text, cache->slab_allocs); break;
    case 8: cell_count(text, cache->slabs); break;
    case 9: cell_count(text, cache->magazine_rounds); break;
    default: cell_count(text, cache->contention); break;
    }
}

/* ------------------------------------------------------------------ arenas */

/* clang-format off: one column a line */
static const struct column arena_columns[] = {
    {{"arena", "name"}, true}, {{"", "quantum"}, false}, {{"", "in use"}, false}, {{"", "total"}, false},
    {{"", "segments"}, false}, {{"", "allocs"}, false},  {{"", "frees"}, false},  {{"allocs", "failed"}, false},
};
/* clang-format on */

/* The heap's integers are addresses; those of programs can be anything, and so are shown as they are. */
static void cell_integers(char text[CELL_BYTES], const struct report_arena *arena, uint64_t integers) {
    if (arena->of_program)
        cell_count(text, integers);
    else
        cell_size(text, integers);
}

static void arena_cell(const struct report_snapshot *snapshot, unsigned row, unsigned column, char text[CELL_BYTES]) {
    const struct report_arena *arena = &snapshot->arenas[row];
    switch (column) {
    case 0: cell_name(text, arena->name); break;
    case 1: cell_integers(text, arena, arena->quantum); break;
    case 2: cell_integers(text, arena, arena->in_use); break;
    case 3: cell_integers(text, arena, arena->total); break;
    case 4: cell_count(text, arena->segments); break;
    case 5: cell_count(text, arena->allocs); break;
    case 6: cell_count(text, arena->frees); break;
    default: cell_count(text, arena->failures); break;
    }
}

/* ------------------------------------------------------------------ mobility groups */

/* clang-format off: one column a line */
static const struct column group_columns[] = {
    {{"mobility", "group"}, true},   {{"superpages", "total"}, false}, {{"superpages", "partly free"}, false}, {{"superpages", "huge"}, false},
    {{"pages", "allocated"}, false}, {{"pages", "populated"}, false},  {{"of these", "free"}, false},
};
/* clang-format on */

static void group_cell(const struct report_snapshot *snapshot, unsigned row, unsigned column, char text[CELL_BYTES]) {
    const struct report_group *group = &snapshot->groups[row];
    switch (column) {
    case 0: cell_name(text, group->name); break;
    case 1: cell_count(text, group->superpages); break;
    case 2: cell_count(text, group->partial_superpages); break;
    case 3: cell_count(text, group->huge_superpages); break;
    case 4: cell_count(text, group->allocated_pages); break;
    case 5: cell_count(text, group->populated_pages); break;
    default: cell_count(text, group->free_populated_pages); break;
    }
}

/* ------------------------------------------------------------------ free blocks */

/* clang-format off: one column a line */
static const struct column order_columns[] = {
    {{"free", "blocks of"}, true}, {{"", "unmovable"}, false},           {{"", "reclaimable"}, false},        {{"", "movable"}, false},
    {{"", "unused"}, false},       {{"free memory", "unusable"}, false}, {{"fragmentation", "index"}, false},
};
/* clang-format on */

static void order_cell(const struct report_snapshot *snapshot, unsigned row, unsigned column, char text[CELL_BYTES]) {
    const struct report_order *order = &snapshot->orders[row];
    switch (column) {
    case 0: cell_size(text, order->block_bytes); break;
    case 1: cell_count(text, order->unmovable); break;
    case 2: cell_count(text, order->reclaimable); break;
    case 3: cell_count(text, order->movable); break;
    case 4: cell_count(text, order->unused); break;
    case 5: format_text(text, CELL_BYTES, "%lu.%lu%%", order->unusable_permille / 10, order->unusable_permille % 10); break;
    default: format_text(text, CELL_BYTES, "%lu.%03lu", order->fragmentation_permille / 1000, order->fragmentation_permille % 1000); break;
    }
}

/* ------------------------------------------------------------------ totals */

static const struct column total_columns[] = {
    {{"heap", "total"}, true},
    {{"", "amount"}, false},
};

enum total {
    TOTAL_IN_USE,
    TOTAL_POPULATED,
    TOTAL_LOOKASIDE,
    TOTAL_METADATA,
    TOTAL_RESERVED,
    TOTAL_LARGE_BLOCKS,
    TOTAL_LARGE,
    TOTAL_RESIDENT,
    TOTAL_HUGE,
    TOTAL_HEAP_HUGE,
    TOTAL_TAKEN,
    TOTAL_RELEASED,
    TOTAL_MOVES,
    TOTAL_MAPPINGS,
    TOTAL_PRESSURE,
    TOTAL_HANDLERS,
    TOTAL_SOFT_LIMIT,
    TOTAL_HARD_LIMIT,
    TOTALS
};

static const char *const total_names[TOTALS] = {
    [TOTAL_IN_USE] = "in use",
    [TOTAL_POPULATED] = "populated",
    [TOTAL_LOOKASIDE] = "idle, populated",
    [TOTAL_METADATA] = "metadata",
    [TOTAL_RESERVED] = "address space",
    [TOTAL_LARGE_BLOCKS] = "large blocks",
    [TOTAL_LARGE] = "in large blocks",
    [TOTAL_RESIDENT] = "process, resident",
    [TOTAL_HUGE] = "process, huge pages",
    [TOTAL_HEAP_HUGE] = "heap, huge pages",
    [TOTAL_TAKEN] = "taken from the system",
    [TOTAL_RELEASED] = "handed back",
    [TOTAL_MOVES] = "page moves",
    [TOTAL_MAPPINGS] = "mappings",
    [TOTAL_PRESSURE] = "pressure events",
    [TOTAL_HANDLERS] = "freed by handlers",
    [TOTAL_SOFT_LIMIT] = "soft limit",
    [TOTAL_HARD_LIMIT] = "hard limit",
};

static void total_cell(const struct report_snapshot *snapshot, unsigned row, unsigned column, char text[CELL_BYTES]) {
    const struct report_heap *heap = &snapshot->heap;
    if (column == 0) {
        cell_name(text, total_names[row]);
        return;
    }
    switch ((enum total)row) {
    case TOTAL_IN_USE: cell_size(text, heap->in_use_bytes); break;
    case TOTAL_POPULATED: cell_size(text, heap->populated_bytes); break;
    case TOTAL_LOOKASIDE: cell_size(text, heap->lookaside_bytes); break;
    case TOTAL_METADATA: cell_size(text, heap->metadata_bytes); break;
    case TOTAL_RESERVED: cell_size(text, heap->reserved_bytes); break;
    case TOTAL_LARGE_BLOCKS: cell_count(text, heap->large_blocks); break;
    case TOTAL_LARGE: cell_size(text, heap->large_bytes); break;
    case TOTAL_RESIDENT: cell_size(text, heap->resident_bytes); break;
    case TOTAL_HUGE: cell_size(text, heap->huge_bytes); break;
    case TOTAL_HEAP_HUGE: cell_size(text, heap->heap_huge_bytes); break;
    case TOTAL_TAKEN: cell_size(text, heap->populated_bytes_total); break;
    case TOTAL_RELEASED: cell_size(text, heap->released_bytes_total); break;
    case TOTAL_MOVES: cell_count(text, heap->moves); break;
    case TOTAL_MAPPINGS: format_text(text, CELL_BYTES, "%lu of %lu", heap->mappings, heap->mappings_limit); break;
    case TOTAL_PRESSURE: cell_count(text, heap->pressure_events); break;
    case TOTAL_HANDLERS: cell_size(text, heap->handler_freed_bytes); break;
    case TOTAL_SOFT_LIMIT: cell_limit(text, heap->soft_limit); break;
    case TOTAL_HARD_LIMIT: cell_limit(text, heap->hard_limit); break;
    case TOTALS: text[0] = 0; break;
    }
}

bool report_table(const struct report_snapshot *snapshot, struct report_writer *writer) {
    const struct section sections[] = {
        {cache_columns, ARRAY_LENGTH(cache_columns), snapshot->cache_count, cache_is_shown, cache_cell},
        {arena_columns, ARRAY_LENGTH(arena_columns), snapshot->arena_count, NULL, arena_cell},
        {group_columns, ARRAY_LENGTH(group_columns), snapshot->group_count, NULL, group_cell},
        {order_columns, ARRAY_LENGTH(order_columns), snapshot->order_count, NULL, order_cell},
        {total_columns, ARRAY_LENGTH(total_columns), TOTALS, NULL, total_cell},
    };
    report_format(writer, "strata %s, process %lu, mode %s, up %lu.%03lu s\n", STRATA_VERSION, snapshot->pid, snapshot->mode,
                  snapshot->uptime_ns / 1000000000, snapshot->uptime_ns / 1000000 % 1000);
    for (unsigned i = 0; i < ARRAY_LENGTH(sections); i++) put_section(writer, snapshot, &sections[i]);
    return report_writer_flush(writer);
}
