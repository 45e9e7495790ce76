/*
 * model_arena.c - model runner of arena/: one arena and an array of cells, with memory and a source that fail on demand.
 *
 * Every operation compares the status and what came with it; where the contract leaves a choice (instant fit), the choice is
 * checked for being one. Now and then all segments are compared, and arena_check is called.
 */
#include "arena/arena.h"
#include "model.h"
#include "model_arena_reference.h"

static struct arena arena;
static struct model *model;

/* ------------------------------------------------------------------ memory */

static struct {
    struct list blocks; /* in a header of ARENA_BATCH_BYTES before each */
    uint64_t held;
    uint32_t fail_after; /* so many more requests succeed; UINT32_MAX: all */
    bool failed;         /* in the operation under way */
} memory;

static void *memory_get(void *ctx, size_t bytes) {
    void *block = NULL;
    (void)ctx;
    MODEL_EXPECT(model, sim_locks_held() == 0, "memory_get is called with the lock held");
    MODEL_EXPECT(model, is_power_of_two(bytes) && bytes >= ARENA_BATCH_BYTES, "memory_get is asked for %zu bytes", bytes);
    if (memory.fail_after == 0 || posix_memalign(&block, ARENA_BATCH_BYTES, ARENA_BATCH_BYTES + bytes) != 0) {
        memory.failed = true;
        return NULL;
    }
    if (memory.fail_after != UINT32_MAX) memory.fail_after--;
    memset((char *)block + ARENA_BATCH_BYTES, 0xa5, bytes);
    list_push_back(&memory.blocks, block);
    memory.held += bytes;
    return (char *)block + ARENA_BATCH_BYTES;
}

static void free_block(struct list *block) {
    list_remove(block);
    free(block);
}

static void memory_put(void *ctx, void *address, size_t bytes) {
    (void)ctx;
    MODEL_EXPECT(model, sim_locks_held() == 0, "memory_put is called with the lock held");
    memory.held -= bytes;
    free_block((struct list *)(void *)((char *)address - ARENA_BATCH_BYTES));
}

static const struct arena_ops ops = {.memory_get = memory_get, .memory_put = memory_put};

/* ------------------------------------------------------------------ the source */

enum source_mode { SOURCE_GIVES, SOURCE_GIVES_MORE, SOURCE_REFUSES, SOURCE_LIES, SOURCE_MODES };

static struct {
    bool on;
    enum source_mode mode;
    uint64_t calls, gave;  /* in the operation under way */
    uint32_t first, count; /* what it gave last */
    uint64_t released;     /* in the operation under way */
    uint64_t released_start, released_size;
    uint64_t limit; /* in integers */
} source;

/* In integers; what the source may be asked for. */
static bool within_limit(wide size) { return (wide)reference_imported() * ref.quantum + size <= source.limit; }

static enum arena_status source_alloc(void *ctx, uint64_t size, unsigned flags, uint64_t *start, uint64_t *got) {
    (void)ctx;
    (void)flags;
    MODEL_EXPECT(model, sim_locks_held() == 0, "the source is called with the lock held");
    MODEL_EXPECT(model, size % ref.quantum == 0, "the source is asked for %llu, which is not in quanta", (unsigned long long)size);
    source.calls++;
    if (source.mode == SOURCE_REFUSES || size / ref.quantum > ref.cells) return ARENA_NO_SPACE;
    uint32_t count = (uint32_t)(size / ref.quantum) + (source.mode == SOURCE_GIVES_MORE ? 3 : 0);
    for (uint32_t first = 0; first + count <= ref.cells; first++) {
        if (!no_span(first, count)) continue;
        source.gave++;
        source.first = first;
        source.count = count;
        *start = integer_of(first);
        *got = count * ref.quantum - (source.mode == SOURCE_LIES ? ref.quantum : 0);
        if (source.mode == SOURCE_LIES) source.count--;
        return ARENA_OK;
    }
    return ARENA_NO_SPACE;
}

static void source_release(void *ctx, uint64_t start, uint64_t size) {
    (void)ctx;
    MODEL_EXPECT(model, sim_locks_held() == 0, "the source is given a span back with the lock held");
    source.released++;
    source.released_start = start;
    source.released_size = size;
}

static const struct arena_source source_ops = {source_alloc, source_release};

/* ------------------------------------------------------------------ operations */

static unsigned default_fit; /* what instant fit stands for */
static const char *const fit_names[] = {"instant", "best", "next"};

/* What an import left behind: a new span that the reference has to know, or nothing. */
static void note_import(enum arena_status status) {
    if (source.gave == 0) return;
    if (status == ARENA_OK) {
        MODEL_EXPECT(model, within_limit((wide)source.count * ref.quantum), "an import passed the limit");
        (void)reference_add(source.first, source.count, true);
        find_runs();
        return;
    }
    MODEL_EXPECT(model,
                 source.released == 1 && source.released_start == integer_of(source.first) && source.released_size == source.count * ref.quantum,
                 "an import that came to nothing was not given back as it was");
}

/* can_import: the limit allows it, too. */
static void judge_failure(enum arena_status status, bool fits, bool can_import) {
    switch (status) {
    case ARENA_NO_SPACE:
        MODEL_EXPECT(model, !fits, "no space, though there is some");
        MODEL_EXPECT(model, !can_import || source.calls == 1, "no space, and the source was not asked");
        MODEL_EXPECT(model, source.gave == 0 || !within_limit((wide)source.count * ref.quantum), "no space, though the source gave");
        break;
    case ARENA_NO_TAGS: MODEL_EXPECT(model, memory.failed, "no tags, though memory was never refused"); break;
    case ARENA_BAD_SOURCE: MODEL_EXPECT(model, source.gave == 1 && source.mode == SOURCE_LIES, "bad source, though it was good"); break;
    default: model_fail(model, "refused with \"%s\"", arena_status_text(status));
    }
}

static void judge_place(const struct constraint *constraint, unsigned fit, uint64_t start, uint32_t best, uint32_t next, uint32_t lowest) {
    uint32_t count = (uint32_t)((constraint->size + ref.quantum - 1) / ref.quantum);
    if (!is_cell(start) || !all_free(cell_of(start), count)) {
        model_fail(model, "0x%llx is not free", (unsigned long long)start);
        return;
    }
    MODEL_EXPECT(model, meets(constraint, start, (wide)count * ref.quantum), "0x%llx does not meet the constraints", (unsigned long long)start);
    if (source.gave == 0 && fit == ARENA_BEST_FIT)
        MODEL_EXPECT(model, cell_of(start) == best, "best fit took cell %u, best is %u", cell_of(start), best);
    if (source.gave == 0 && fit == ARENA_NEXT_FIT) {
        uint32_t expected = next != NO_CELL ? next : lowest;
        MODEL_EXPECT(model, cell_of(start) == expected, "next fit took cell %u, next is %u", cell_of(start), expected);
    }
    reference_alloc(cell_of(start), count);
    if (fit == ARENA_NEXT_FIT) ref.rotor = (uint64_t)(start + count * ref.quantum); /* 0 where that is 2^64 */
}

static void allocate(const struct constraint *constraint, unsigned flags, bool plain) {
    unsigned fit = flags == ARENA_INSTANT_FIT ? default_fit : flags;
    wide rounded = ((wide)constraint->size + ref.quantum - 1) / ref.quantum * ref.quantum;
    uint64_t period = max_u64(max_u64(constraint->align, constraint->nocross), ref.quantum);
    bool allowed = within_limit(rounded + period - ref.quantum); /* enough, wherever it lies */
    uint64_t start = 0x5a5a;
    bool possible = is_possible(constraint), bounded = constraint->min != 0 || constraint->max != 0;
    find_runs();
    uint32_t lowest = possible ? find_place(constraint, 0, false) : NO_CELL;
    uint32_t best = possible && fit == ARENA_BEST_FIT ? find_place(constraint, 0, true) : NO_CELL;
    uint32_t next = possible && fit == ARENA_NEXT_FIT ? find_place(constraint, ref.rotor, false) : NO_CELL;
    uint32_t free_segments = ref.free_segments;
    enum arena_status status = plain ? arena_alloc(&arena, constraint->size, flags, &start)
                                     : arena_xalloc(&arena, constraint->size, constraint->align, constraint->phase, constraint->nocross,
                                                    constraint->min, constraint->max, flags, &start);
    model_trace(model, "%s %llu (%s, align %llu phase %llu nocross %llu min 0x%llx max 0x%llx): %s, 0x%llx", plain ? "alloc" : "xalloc",
                (unsigned long long)constraint->size, fit_names[flags], (unsigned long long)constraint->align, (unsigned long long)constraint->phase,
                (unsigned long long)constraint->nocross, (unsigned long long)constraint->min, (unsigned long long)constraint->max,
                arena_status_text(status), (unsigned long long)start);
    if (!possible) {
        MODEL_EXPECT(model, status == ARENA_BAD_ARGUMENT, "impossible, but \"%s\"", arena_status_text(status));
        return;
    }
    MODEL_EXPECT(model, source.calls == 0 || allowed, "the source was asked beyond the limit");
    note_import(status);
    /* Only instant fit may turn to the source while something fits, and only after a long search. */
    if (source.calls != 0)
        MODEL_EXPECT(model, !bounded && source.on && (lowest == NO_CELL || (fit == ARENA_INSTANT_FIT && free_segments > 64)),
                     "the source was asked without need");
    if (status == ARENA_OK) {
        judge_place(constraint, fit, start, best, next, lowest);
    } else {
        MODEL_EXPECT(model, start == 0x5a5a, "a failed request set the start");
        judge_failure(status, lowest != NO_CELL, source.on && !bounded && allowed);
    }
}

static void step_alloc(const struct model_record *record) {
    struct constraint constraint = {.size = 0};
    unsigned byte = record->byte[1];
    uint64_t count = byte < 200 ? 1 + byte % 8 : byte < 250 ? byte % 64 : byte < 252 ? 0 : ref.cells;
    constraint.size = count * ref.quantum;
    if (ref.quantum > 1 && record->byte[2] % 4 == 1) constraint.size -= constraint.size != 0; /* to be rounded up */
    if (byte == 255 && record->byte[2] % 8 == 7) constraint.size = UINT64_MAX - record->byte[3];
    allocate(&constraint, record->byte[2] / 64 % 3, true);
}

static void step_xalloc(const struct model_record *record) {
    struct constraint constraint = {.size = (1 + record->byte[1] % 16) * ref.quantum};
    unsigned kind = record->byte[2], shifts = record->byte[3];
    if ((kind & 1) != 0) constraint.align = ref.quantum << shifts % 7;
    if ((kind & 2) != 0 && constraint.align != 0) constraint.phase = record->byte[4] % (constraint.align / ref.quantum) * ref.quantum;
    if ((kind & 4) != 0) constraint.nocross = ref.quantum << shifts / 7 % 7;
    if ((kind & 8) != 0) constraint.min = integer_of(record->byte[5] * ref.cells / 256) + (shifts == 3 ? 1 : 0);
    if ((kind & 16) != 0) constraint.max = integer_of(record->byte[6] * ref.cells / 256) + (shifts == 4 ? 1 : 0);
    if (shifts == 250) constraint.align += 3;
    if (shifts == 251) constraint.phase = constraint.align;
    if (shifts == 252) constraint.nocross = 12 * ref.quantum;
    allocate(&constraint, record->byte[7] % 3, false);
}

static void free_one(uint32_t pick) {
    uint32_t first = ref.starts[pick], count = ref.cell[first].length, span = ref.cell[first].span - 1u;
    enum arena_status status = (pick & 1) != 0 ? arena_free(&arena, integer_of(first), count * ref.quantum)
                                               : arena_xfree(&arena, integer_of(first), (count - 1) * ref.quantum + 1);
    model_trace(model, "free cells %u + %u: %s", first, count, arena_status_text(status));
    MODEL_EXPECT(model, status == ARENA_OK, "free refused with \"%s\"", arena_status_text(status));
    reference_free(pick);
    const struct reference_span *of = &ref.spans[span];
    bool leaves = of->imported && all_free(of->first, of->count);
    MODEL_EXPECT(model, source.released == (leaves ? 1 : 0), "%llu spans were given back", (unsigned long long)source.released);
    if (!leaves) return;
    MODEL_EXPECT(model, source.released_start == integer_of(of->first) && source.released_size == of->count * ref.quantum,
                 "another span was given back than the one that is free");
    reference_remove(span);
}

static void step_free(const struct model_record *record) {
    uint32_t n = record->byte[3] % 16 == 0 ? 1 + record->byte[4] % 64 : 1;
    for (uint32_t i = 0; i < n && ref.segments != 0 && !model->failed; i++) {
        source.released = 0;
        free_one((uint32_t)(model_bits(record, 1, 2) + 7 * i) % ref.segments);
    }
}

/* Frees, look-ups and resizes of what is not there, or not of that size. */
static void step_misuse(const struct model_record *record) {
    uint32_t cell = (uint32_t)model_bits(record, 1, 2) % ref.cells;
    uint64_t start = integer_of(cell), size = (1 + record->byte[3] % 8) * ref.quantum, found = 0;
    uint32_t length = ref.cell[cell].length;
    enum arena_status expected = length == 0 ? ARENA_NOT_ALLOCATED : ARENA_SIZE_MISMATCH, status;
    if (ref.quantum > 1 && record->byte[4] % 4 == 0) {
        start += 1;
        length = 0;
        expected = ARENA_NOT_ALLOCATED;
    }
    status = arena_lookup(&arena, start, &found);
    MODEL_EXPECT(model, status == (length != 0 ? ARENA_OK : ARENA_NOT_ALLOCATED) && found == length * ref.quantum, "lookup at cell %u: \"%s\", %llu",
                 cell, arena_status_text(status), (unsigned long long)found);
    if (size == length * ref.quantum) size += ref.quantum;
    status = record->byte[4] % 2 != 0 ? arena_free(&arena, start, size) : arena_resize(&arena, start, size, size + ref.quantum);
    model_trace(model, "misuse of cell %u, size %llu: %s", cell, (unsigned long long)size, arena_status_text(status));
    MODEL_EXPECT(model, status == expected, "expected \"%s\", got \"%s\"", arena_status_text(expected), arena_status_text(status));
    status = arena_free(&arena, start, 0);
    MODEL_EXPECT(model, status == ARENA_BAD_ARGUMENT, "free of size 0: \"%s\"", arena_status_text(status));
}

static void step_resize(const struct model_record *record) {
    if (ref.segments == 0) return;
    uint32_t first = ref.starts[model_bits(record, 1, 2) % ref.segments], old = ref.cell[first].length;
    uint32_t new = 1 + record->byte[3] % (record->byte[4] % 4 == 0 ? 64 : 2 * old);
    enum arena_status status = arena_resize(&arena, integer_of(first), old * ref.quantum, (new - 1) * ref.quantum + 1);
    model_trace(model, "resize cells %u + %u to %u: %s", first, old, new, arena_status_text(status));
    bool fits = new <= old || (all_free(first + old, new - old) && ref.cell[first + old].span == ref.cell[first].span);
    if (status == ARENA_OK) {
        MODEL_EXPECT(model, fits, "grown over what is not free");
        if (!fits) return;
        set_taken(first, old, false);
        set_taken(first, new, true);
        ref.cell[first].length = (uint16_t)new;
        return;
    }
    MODEL_EXPECT(model, new > old ? status == ARENA_NO_SPACE && !fits : status == ARENA_NO_TAGS &&memory.failed &&new != old, "refused with \"%s\"",
                 arena_status_text(status));
}

static void step_add(const struct model_record *record) {
    uint32_t first = (uint32_t)model_bits(record, 1, 2) % ref.cells, count = 1 + (uint32_t)record->byte[3] * ref.cells / 512;
    if (count > ref.cells - first) count = ref.cells - first;
    bool extends = record->byte[4] % 2 != 0;
    enum arena_status status = (extends ? arena_extend : arena_add)(&arena, integer_of(first), count * ref.quantum);
    model_trace(model, "%s cells %u + %u: %s", extends ? "extend by" : "add", first, count, arena_status_text(status));
    if (status == ARENA_NO_TAGS) {
        MODEL_EXPECT(model, memory.failed, "no tags, though memory was never refused");
        return;
    }
    MODEL_EXPECT(model, status == (no_span(first, count) ? ARENA_OK : ARENA_OVERLAP), "\"%s\"", arena_status_text(status));
    if (status == ARENA_OK && !(extends && reference_extend(first, count))) (void)reference_add(first, count, false);
    uint64_t bad = UINT64_MAX - ref.quantum + 1;
    status = (extends ? arena_extend : arena_add)(&arena, bad, 2 * ref.quantum);
    /* With a quantum of 2^63, twice that is 0. */
    MODEL_EXPECT(model, status == ARENA_BAD_RANGE || status == ARENA_NO_TAGS, "a span past 2^64: \"%s\"", arena_status_text(status));
}

static void step_remove(const struct model_record *record) {
    if (ref.spans_used == 0) return;
    uint32_t n = (uint32_t)model_bits(record, 1, 2) % ref.spans_used;
    const struct reference_span span = ref.spans[n];
    if (span.count == 0) return;
    uint64_t size = (span.count + (record->byte[3] % 8 == 0 ? 1 : 0)) * ref.quantum;
    enum arena_status status = arena_remove(&arena, integer_of(span.first), size), expected = ARENA_OK;
    model_trace(model, "remove span at cell %u, size %llu: %s", span.first, (unsigned long long)size, arena_status_text(status));
    if (span.imported)
        expected = ARENA_NOT_ALLOCATED;
    else if (size != span.count * ref.quantum)
        expected = ARENA_SIZE_MISMATCH;
    else if (!all_free(span.first, span.count))
        expected = ARENA_BUSY;
    MODEL_EXPECT(model, status == expected, "expected \"%s\", got \"%s\"", arena_status_text(expected), arena_status_text(status));
    if (status == ARENA_OK) reference_remove(n);
}

static void step_failures(const struct model_record *record) {
    static const char *const names[] = {"gives", "gives more", "refuses", "lies"};
    memory.fail_after = record->byte[1] % 2 == 0 ? UINT32_MAX : record->byte[2] % 8u;
    if (record->byte[3] % 2 != 0) source.mode = record->byte[4] % SOURCE_MODES;
    if (record->byte[3] % 4 == 2) {
        source.limit = record->byte[4] % 4 == 0 ? UINT64_MAX : record->byte[4] * ref.quantum;
        arena_set_limit(&arena, source.limit);
    }
    model_trace(model, "memory fails after %u, the source %s, the limit is 0x%llx", memory.fail_after, names[source.mode],
                (unsigned long long)source.limit);
}

/* ------------------------------------------------------------------ comparisons */

static bool compare_segment(const struct arena_segment *segment, void *argument) {
    uint32_t *compared = argument; /* all cells before it are */
    uint32_t first = cell_of(segment->start), count = (uint32_t)(segment->size / ref.quantum);
    if (segment->kind == ARENA_SPAN) {
        uint32_t skipped = *compared;
        while (skipped < first && ref.cell[skipped].span == 0) skipped++;
        const struct reference_span *span = skipped == first && ref.cell[first].span != 0 ? &ref.spans[ref.cell[first].span - 1] : NULL;
        MODEL_EXPECT(model, span != NULL && span->first == first && span->count == count, "the walk shows a span at cell %u + %u", first, count);
    } else {
        bool right = *compared == first && (segment->kind == ARENA_FREE ? ref.run[first] == count : ref.cell[first].length == count);
        MODEL_EXPECT(model, right, "the walk shows a %s segment at cell %u + %u", segment->kind == ARENA_FREE ? "free" : "allocated", first, count);
        first += count;
    }
    *compared = first;
    return !model->failed;
}

static void compare_all(void) {
    uint32_t compared = 0;
    struct arena_stats stats;
    const char *wrong = arena_check(&arena);
    MODEL_EXPECT(model, wrong == NULL, "arena_check: %s", wrong);
    find_runs();
    arena_walk(&arena, ARENA_ALLOCATED | ARENA_FREE | ARENA_SPAN, compare_segment, &compared);
    arena_stats_get(&arena, &stats);
    MODEL_EXPECT(model, stats.imported == reference_imported() * ref.quantum && stats.limit == source.limit, "imported: %llu of %llu",
                 (unsigned long long)stats.imported, (unsigned long long)stats.limit);
    MODEL_EXPECT(model, stats.segments_allocated == ref.segments && stats.segments_free == ref.free_segments, "segments: %llu allocated, %llu free",
                 (unsigned long long)stats.segments_allocated, (unsigned long long)stats.segments_free);
    for (uint32_t i = 0; i < ref.cells; i += 1 + ref.cells / 64)
        MODEL_EXPECT(model, arena_contains(&arena, integer_of(i), ref.quantum) == (ref.cell[i].span != 0), "contains is wrong about cell %u", i);
}

static void compare_sizes(void) {
    uint64_t allocated = arena_size(&arena, ARENA_ALLOCATED), total = arena_size(&arena, ARENA_ALLOCATED | ARENA_FREE);
    MODEL_EXPECT(model, allocated == ref.allocated_cells * ref.quantum && total == ref.span_cells * ref.quantum, "sizes: %llu of %llu allocated",
                 (unsigned long long)allocated, (unsigned long long)total);
    MODEL_EXPECT(model, sim_locks_held() == 0, "a lock is still held");
}

/* ------------------------------------------------------------------ the run */

static void begin(struct model *of, const struct model_record *stage) {
    static const uint8_t quantum_shifts[] = {0, 4, 12, 21, 52};
    static const uint32_t cells[] = {64, 512, 300, CELLS_MAX};
    model = of;
    memset(&ref, 0, sizeof ref);
    if (memory.blocks.next != NULL)
        while (!list_empty(&memory.blocks)) free_block(memory.blocks.next); /* of a run that failed */
    memset(&memory, 0, sizeof memory);
    list_init(&memory.blocks);
    memory.fail_after = UINT32_MAX;
    memset(&source, 0, sizeof source);
    source.limit = UINT64_MAX;
    ref.quantum = (uint64_t)1 << quantum_shifts[stage->byte[0] % 5];
    ref.cells = cells[stage->byte[1] % 4];
    uint64_t top = 0 - ref.cells * ref.quantum;
    ref.base = stage->byte[2] % 3 == 0 ? 0 : stage->byte[2] % 3 == 1 ? top : top / 2 / ref.quantum * ref.quantum;
    source.on = stage->byte[3] % 2 != 0;
    default_fit = stage->byte[4] % 4 == 1 ? ARENA_BEST_FIT : ARENA_INSTANT_FIT;
    model_trace(model, "quantum 0x%llx, %u cells from 0x%llx, %s fit%s", (unsigned long long)ref.quantum, ref.cells, (unsigned long long)ref.base,
                fit_names[default_fit], source.on ? ", a source" : "");
    MODEL_EXPECT(model, arena_init(&arena, "model", ref.quantum, &ops, NULL, default_fit) == ARENA_OK, "init failed");
    if (source.on) arena_set_source(&arena, &source_ops, NULL);
    /* Something to allocate from, so that short runs have a purpose. */
    if (stage->byte[5] % 4 != 3 && arena_add(&arena, integer_of(2), ref.cells / 2 * ref.quantum) == ARENA_OK)
        (void)reference_add(2, ref.cells / 2, false);
}

static void step(struct model *of, const struct model_record *record) {
    (void)of;
    source.calls = source.gave = source.released = 0;
    memory.failed = false;
    switch (record->byte[0] % 32) {
    case 0: break;
    case 1 ... 11: step_alloc(record); break;
    case 12 ... 15: step_xalloc(record); break;
    case 16 ... 24: step_free(record); break;
    case 25: step_misuse(record); break;
    case 26 ... 27: step_resize(record); break;
    case 28: step_add(record); break;
    case 29: step_remove(record); break;
    case 30: step_failures(record); break;
    default: compare_all(); break;
    }
    compare_sizes();
    if (!model->long_run) compare_all();
}

static void end(struct model *of) {
    (void)of;
    compare_all();
    while (ref.segments != 0 && !model->failed) {
        source.released = 0;
        free_one(ref.segments / 2);
    }
    if (!model->failed) compare_all();
    enum arena_status status = model->failed ? ARENA_OK : arena_destroy(&arena);
    MODEL_EXPECT(model, status == ARENA_OK, "destroy: \"%s\"", arena_status_text(status));
    MODEL_EXPECT(model, model->failed || memory.held == 0, "%llu bytes are left after destroy", (unsigned long long)memory.held);
}

static const struct model_layer arena_layer = {begin, step, end};

MODEL_EXPORT(arena, &arena_layer);
