/*
 * model_arena_reference.h - arenas done naively: an array with one cell for each quantum, searched from end to end.
 *
 * Cell i stands for the integer base + i * quantum; the model keeps all spans inside the array. Arithmetic is done in 128 bits,
 * so that nothing wraps where the array ends at 2^64.
 */
#ifndef STRATA_TESTS_MODEL_ARENA_REFERENCE_H
#define STRATA_TESTS_MODEL_ARENA_REFERENCE_H

#include "arena/arena.h"

#define CELLS_MAX 2048
#define NO_CELL UINT32_MAX

typedef unsigned __int128 wide;

struct cell {
    uint16_t span;   /* index into spans + 1; 0: no span here */
    uint16_t length; /* of the allocated segment that starts here, in cells; 0: none does */
    bool taken;
};

struct reference_span {
    uint32_t first, count; /* count 0: not in use */
    bool imported;
};

struct reference {
    uint64_t base, quantum;
    uint32_t cells;
    struct cell cell[CELLS_MAX];
    uint16_t run[CELLS_MAX + 1]; /* free cells of one span from here on; made by find_runs */
    struct reference_span spans[CELLS_MAX];
    uint32_t spans_used;                  /* entries of spans that may be in use */
    uint32_t starts[CELLS_MAX], segments; /* cells where allocated segments start, in no order */
    uint32_t free_segments;               /* made by find_runs */
    uint64_t allocated_cells, span_cells;
    wide rotor; /* next fit: the integer behind the last */
};

static struct reference ref;

/* In integers, not cells. */
struct constraint {
    uint64_t size, align, phase, nocross, min, max;
};

static inline uint64_t integer_of(uint32_t cell) { return ref.base + cell * ref.quantum; }
static inline bool is_cell(uint64_t integer) { return integer - ref.base < ref.cells * ref.quantum && (integer - ref.base) % ref.quantum == 0; }
static inline uint32_t cell_of(uint64_t integer) { return (uint32_t)((integer - ref.base) / ref.quantum); }

static inline void find_runs(void) {
    ref.run[ref.cells] = 0;
    ref.free_segments = 0;
    for (uint32_t i = ref.cells; i-- != 0;) {
        const struct cell *cell = &ref.cell[i];
        bool joined = i + 1 < ref.cells && cell[1].span == cell->span;
        ref.run[i] = cell->span == 0 || cell->taken ? 0 : (uint16_t)(1 + (joined ? ref.run[i + 1] : 0));
        if (ref.run[i] != 0 && (i == 0 || cell[-1].span != cell->span || cell[-1].taken)) ref.free_segments++;
    }
}

static inline bool meets(const struct constraint *constraint, wide start, wide size) {
    wide last = start + size - 1;
    if (constraint->align != 0 && start % constraint->align != constraint->phase) return false;
    if (constraint->nocross != 0 && start / constraint->nocross != last / constraint->nocross) return false;
    return start >= constraint->min && (constraint->max == 0 || last < constraint->max);
}

/* Whether the arguments are in order and some integer between min and max could ever do. Alignments are at most 64 quanta. */
static inline bool is_possible(const struct constraint *constraint) {
    uint64_t q = ref.quantum, align = constraint->align != 0 ? constraint->align : q, nocross = constraint->nocross;
    wide size = ((wide)constraint->size + q - 1) / q * q, max = constraint->max != 0 ? constraint->max : (wide)1 << 64;
    if (size == 0 || size >> 64 != 0 || (align & (align - 1)) != 0 || (nocross & (nocross - 1)) != 0) return false;
    if (align % q != 0 || nocross % q != 0 || constraint->phase % q != 0 || constraint->phase >= align) return false;
    if (constraint->min >= max || max - constraint->min < size) return false;
    struct constraint sought = *constraint;
    sought.align = align;
    wide start = ((wide)constraint->min + q - 1) / q * q;
    for (unsigned i = 0; i < 128 && start + size <= (wide)1 << 64; i++, start += q)
        if (meets(&sought, start, size)) return true;
    return false;
}

/* The lowest cell >= from where the request fits; with `best`, in the smallest free segment that can hold it. find_runs came before. */
static inline uint32_t find_place(const struct constraint *constraint, wide from, bool best) {
    uint32_t count = (uint32_t)((constraint->size + ref.quantum - 1) / ref.quantum), found = NO_CELL, found_size = UINT32_MAX, segment_size = 0;
    for (uint32_t i = 0; i < ref.cells; i++) {
        bool begins = ref.run[i] != 0 && (i == 0 || ref.run[i - 1] != ref.run[i] + 1 || ref.cell[i - 1].span != ref.cell[i].span);
        if (begins) segment_size = ref.run[i];
        if (ref.run[i] < count || (best && segment_size >= found_size) || integer_of(i) < from) continue;
        if (!meets(constraint, integer_of(i), (wide)count * ref.quantum)) continue;
        found = i;
        found_size = segment_size;
        if (!best) break;
    }
    return found;
}

static inline void set_taken(uint32_t first, uint32_t count, bool taken) {
    for (uint32_t i = first; i < first + count; i++) ref.cell[i].taken = taken;
    ref.allocated_cells += taken ? count : -(uint64_t)count;
}

static inline bool all_free(uint32_t first, uint32_t count) {
    if (count == 0 || first >= ref.cells || count > ref.cells - first) return false;
    for (uint32_t i = first; i < first + count; i++)
        if (ref.cell[i].span == 0 || ref.cell[i].taken || ref.cell[i].span != ref.cell[first].span) return false;
    return true;
}

static inline void reference_alloc(uint32_t first, uint32_t count) {
    set_taken(first, count, true);
    ref.cell[first].length = (uint16_t)count;
    ref.starts[ref.segments++] = first;
}

/* pick: index into starts. */
static inline void reference_free(uint32_t pick) {
    uint32_t first = ref.starts[pick];
    set_taken(first, ref.cell[first].length, false);
    ref.cell[first].length = 0;
    ref.starts[pick] = ref.starts[--ref.segments];
}

static inline bool no_span(uint32_t first, uint32_t count) {
    if (count == 0 || first >= ref.cells || count > ref.cells - first) return false;
    for (uint32_t i = first; i < first + count; i++)
        if (ref.cell[i].span != 0) return false;
    return true;
}

static inline uint32_t reference_add(uint32_t first, uint32_t count, bool imported) {
    uint32_t n = 0;
    while (n < ref.spans_used && ref.spans[n].count != 0) n++;
    if (n == ref.spans_used) ref.spans_used++;
    ref.spans[n] = (struct reference_span){first, count, imported};
    for (uint32_t i = first; i < first + count; i++) ref.cell[i].span = (uint16_t)(n + 1);
    ref.span_cells += count;
    return n;
}

/* The added span that ends in front of the cells gets them; false: there is none. */
static inline bool reference_extend(uint32_t first, uint32_t count) {
    uint16_t span = first != 0 ? ref.cell[first - 1].span : 0;
    if (span == 0 || ref.spans[span - 1].imported) return false;
    ref.spans[span - 1].count += count;
    for (uint32_t i = first; i < first + count; i++) ref.cell[i].span = span;
    ref.span_cells += count;
    return true;
}

/* Cells of imported spans. */
static inline uint64_t reference_imported(void) {
    uint64_t cells = 0;
    for (uint32_t n = 0; n < ref.spans_used; n++) cells += ref.spans[n].imported ? ref.spans[n].count : 0;
    return cells;
}

static inline void reference_remove(uint32_t n) {
    for (uint32_t i = ref.spans[n].first; i < ref.spans[n].first + ref.spans[n].count; i++) ref.cell[i].span = 0;
    ref.span_cells -= ref.spans[n].count;
    ref.spans[n].count = 0;
}

#endif
