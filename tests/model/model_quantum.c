/*
 * model_quantum.c - model runner of arenas with quantum caches (strata/arena.h, from end to end): spans near and far from each other, frees of every
 * wrong kind, platform calls that fail, no address space for windows and regions, caches that are emptied.
 *
 * The reference is a table that says for each quantum of each span whose it is. What is allocated lies in a span, at a multiple of the quantum, and
 * is nobody's; what the program has can be freed, by its size, and by nothing else; sizes add up. An allocation fails for want of memory only after a
 * platform call did; one that fails changes nothing.
 *
 * The stage: quantum, largest cached size, how marks may lie. An operation: what (byte 0), how much (1), which (2, 3), and how it is wrong (4).
 */
#include "model_heap.h"
#include "strata/arena.h"
#include "strata/strata.h"

#define SPANS_MAX 40
#define SPAN_QUANTA 128
#define HELD_MAX 600
#define CPUS 3
#define MS UINT64_C(1000000)

static struct model *model;
static struct strata_arena *arena;
static uint64_t quantum;
static unsigned largest, spans, next_span; /* quanta; how many there are; which one is added next */
static bool failed_once;

static struct held {
    uint64_t start, quanta;
    bool by_xalloc;
} held[HELD_MAX];
static unsigned held_count;
static uint64_t held_quanta;
static uint16_t owners[SPANS_MAX][SPAN_QUANTA]; /* 1 + the place in `held` of whose it is; 0: nobody's */

/* Where span i lies: at 0, at the end of all integers, and at multiples of a large power of two. */
static uint64_t base_of(unsigned i) { return i == 1 ? 0 - SPAN_QUANTA * quantum : (uint64_t)i << 36; }

/* The table's entry; NULL: in no span, or no multiple of the quantum. */
static uint16_t *owner_of(uint64_t start) {
    for (unsigned i = 0; i < spans; i++) {
        uint64_t offset = start - base_of(i);
        if (offset < SPAN_QUANTA * quantum) return offset % quantum == 0 ? &owners[i][offset / quantum] : NULL;
    }
    return NULL;
}

static const char *text(enum strata_arena_status status) { return strata_arena_status_text(status); }

static void own(uint64_t start, uint64_t quanta, bool by_xalloc) {
    held[held_count] = (struct held){start, quanta, by_xalloc};
    held_count++;
    held_quanta += quanta;
    for (uint64_t i = 0; i < quanta && !model->failed; i++) {
        uint16_t *owner = owner_of(start + i * quantum);
        MODEL_EXPECT(model, owner != NULL, "%llx is in no span", (unsigned long long)(start + i * quantum));
        if (owner == NULL) return;
        MODEL_EXPECT(model, *owner == 0, "%llx is somebody's", (unsigned long long)(start + i * quantum));
        *owner = (uint16_t)held_count;
    }
}

static struct held disown(unsigned which) {
    struct held gone = held[which];
    for (uint64_t i = 0; i < gone.quanta; i++) *owner_of(gone.start + i * quantum) = 0;
    held[which] = held[--held_count];
    for (uint64_t i = 0; which < held_count && i < held[which].quanta; i++) *owner_of(held[which].start + i * quantum) = (uint16_t)(which + 1);
    held_quanta -= gone.quanta;
    return gone;
}

/* As it could have been asked for. */
static uint64_t size_of(uint64_t quanta, unsigned choice) { return quanta * quantum - choice % quantum; }

/* ------------------------------------------------------------------ operations */

static void step_alloc(const struct model_record *record) {
    bool by_xalloc = record->byte[0] % 16 == 6;
    uint64_t quanta = 1 + record->byte[1] % (largest + 2), size = size_of(quanta, record->byte[2]), start = 77;
    uint64_t align = by_xalloc ? quantum << record->byte[3] % 4 : 0;
    if (held_count == HELD_MAX) return;
    enum strata_arena_status status = by_xalloc ? strata_arena_xalloc(arena, size, align, 0, 0, 0, 0, record->byte[4] % 3, &start)
                                                : strata_arena_alloc(arena, size, record->byte[4] % 3, &start);
    model_trace(model, "%s of %llu: %s, %llx", by_xalloc ? "xalloc" : "alloc", (unsigned long long)size, text(status), (unsigned long long)start);
    if (status == STRATA_ARENA_OK) {
        MODEL_EXPECT(model, align == 0 || start % align == 0, "%llx is no multiple of %llu", (unsigned long long)start, (unsigned long long)align);
        own(start, quanta, by_xalloc);
        return;
    }
    MODEL_EXPECT(model, status == STRATA_ARENA_NO_SPACE || (status == STRATA_ARENA_NO_MEMORY && failed_once), "status %s", text(status));
    MODEL_EXPECT(model, start == 77, "a request failed and wrote a start");
}

static void free_one(unsigned which, unsigned choice) {
    struct held gone = disown(which);
    uint64_t size = size_of(gone.quanta, choice);
    enum strata_arena_status status = (gone.by_xalloc ? strata_arena_xfree : strata_arena_free)(arena, gone.start, size);
    model_trace(model, "%s of %llx, %llu: %s", gone.by_xalloc ? "xfree" : "free", (unsigned long long)gone.start, (unsigned long long)size,
                text(status));
    MODEL_EXPECT(model, status == STRATA_ARENA_OK, "a right free is refused: %s", text(status));
}

static void step_free(const struct model_record *record) {
    if (held_count != 0) free_one((unsigned)model_bits(record, 2, 2) % held_count, record->byte[4]);
}

/* Most that the program has, or all. */
static void step_free_many(const struct model_record *record) {
    unsigned kept = record->byte[1] % 4 == 0 ? 0 : held_count / 4;
    while (held_count > kept && !model->failed) free_one((unsigned)(record->byte[2] * held_count / 256u), record->byte[4]);
}

static void expect_status(const char *what, uint64_t start, uint64_t size, enum strata_arena_status status, enum strata_arena_status expected) {
    model_trace(model, "%s: %llx, %llu: %s", what, (unsigned long long)start, (unsigned long long)size, text(status));
    MODEL_EXPECT(model, status == expected, "%s: %s in place of %s", what, text(status), text(expected));
}

static void step_free_wrongly(const struct model_record *record) {
    uint64_t place = model_bits(record, 2, 2), size = size_of(1 + record->byte[1] % (largest + 2), record->byte[5]);
    if (held_count != 0 && record->byte[4] % 4 == 0) { /* by another size */
        const struct held *of = &held[place % held_count];
        if ((size + quantum - 1) / quantum == of->quanta) size = (of->quanta + 1) * quantum;
        if (record->byte[5] % 16 == 0) size = UINT64_C(1) << 40;
        expect_status("a free by another size", of->start, size, (of->by_xalloc ? strata_arena_xfree : strata_arena_free)(arena, of->start, size),
                      STRATA_ARENA_SIZE_MISMATCH);
        expect_status("a free of nothing", of->start, 0, strata_arena_free(arena, of->start, 0), STRATA_ARENA_BAD_ARGUMENT);
    } else if (held_count != 0 && record->byte[4] % 4 == 1) { /* not where it begins */
        const struct held *of = &held[place % held_count];
        uint64_t inside = of->start + 1 + record->byte[5] % (of->quanta * quantum);
        if (inside - of->start >= of->quanta * quantum) return;
        expect_status("a free in the middle", inside, size, strata_arena_free(arena, inside, size), STRATA_ARENA_NOT_ALLOCATED);
    } else { /* nobody's, in a span or outside of all */
        uint64_t start = base_of(record->byte[6] % spans) + place % (2 * SPAN_QUANTA) * quantum;
        const uint16_t *owner = owner_of(start);
        if (owner != NULL && *owner != 0) return;
        expect_status("a free of what is nobody's", start, size, strata_arena_free(arena, start, size), STRATA_ARENA_NOT_ALLOCATED);
        expect_status("an xfree of what is nobody's", start, size, strata_arena_xfree(arena, start, size), STRATA_ARENA_NOT_ALLOCATED);
    }
}

static void step_add(const struct model_record *record) {
    uint64_t base = base_of(next_span);
    if (next_span == SPANS_MAX) return;
    enum strata_arena_status status = strata_arena_add(arena, base, SPAN_QUANTA * quantum);
    (void)record;
    model_trace(model, "add %llx: %s", (unsigned long long)base, text(status));
    MODEL_EXPECT(model, status == STRATA_ARENA_OK || (status == STRATA_ARENA_NO_MEMORY && failed_once), "add: %s", text(status));
    if (status == STRATA_ARENA_OK) spans = ++next_span;
}

static void step_fail(const struct model_record *record) {
    static const uint64_t kinds[] = {SIM_FAIL_ALL, UINT64_C(1) << SIM_COMMIT, UINT64_C(1) << SIM_RESERVE};
    uint64_t n = record->byte[1] % 8;
    model_trace(model, "call %llu fails", (unsigned long long)n);
    sim_fail_only(kinds[record->byte[2] % ARRAY_LENGTH(kinds)]);
    sim_fail_call(n, 1 + record->byte[3] % 4);
    failed_once |= n != 0;
}

static void step_time(const struct model_record *record) {
    sim_cpu_set(record->byte[2] % CPUS);
    if (record->byte[1] % 2 == 0) sim_clock_advance((1 + record->byte[1] % 8u) * 200 * MS);
    if (record->byte[3] % 4 == 0) (void)strata_release(0);
    model_trace(model, "on CPU %u%s", record->byte[2] % CPUS, record->byte[3] % 4 == 0 ? ", release" : "");
}

static void step_destroy(void) {
    if (held_count == 0) return;
    expect_status("destroy", 0, 0, strata_arena_destroy(arena), STRATA_ARENA_BUSY);
}

static void compare_all(void) {
    uint64_t allocated = 0, rest = 0;
    const char *wrong = strata_check();
    MODEL_EXPECT(model, wrong == NULL, "strata_check: %s", wrong);
    (void)strata_arena_size(arena, STRATA_ARENA_ALLOCATED, &allocated);
    (void)strata_arena_size(arena, STRATA_ARENA_FREE, &rest);
    MODEL_EXPECT(model, allocated + rest == spans * SPAN_QUANTA * quantum, "allocated and free are not what there is");
    MODEL_EXPECT(model, allocated >= held_quanta * quantum, "less is allocated than the program has");
}

/* ------------------------------------------------------------------ the run */

static void begin(struct model *of, const struct model_record *stage) {
    static const uint64_t quanta[] = {1, 1, 8, 4096};
    model = of;
    model_new_heap(of, &(struct sim_config){.cpus = CPUS}, "thp:never,background:off");
    quantum = quanta[stage->byte[0] % ARRAY_LENGTH(quanta)];
    largest = 1 + stage->byte[1] % STRATA_ARENA_QUANTUM_CACHES_MAX;
    held_count = 0;
    held_quanta = 0;
    failed_once = false;
    memset(owners, 0, sizeof owners);
    spans = next_span = 1;
    model_trace(model, "quantum %llu, caches up to %u of them", (unsigned long long)quantum, largest);
    MODEL_EXPECT(model, strata_arena_create("model", 0, SPAN_QUANTA * quantum, quantum, stage->byte[2] % 3, &arena) == STRATA_ARENA_OK, "create");
    MODEL_EXPECT(model, strata_arena_set_quantum_caches(arena, largest * quantum) == STRATA_ARENA_OK, "set_quantum_caches");
    if (stage->byte[3] % 4 == 1) { /* marks lie in plots alone */
        sim_fail_only(UINT64_C(1) << SIM_RESERVE);
        sim_fail_call(1, SIM_FOREVER);
        failed_once = true;
    }
}

static void step(struct model *of, const struct model_record *record) {
    (void)of;
    switch (record->byte[0] % 16) {
    case 0: break;
    case 1 ... 6: step_alloc(record); break;
    case 7 ... 10: step_free(record); break;
    case 11 ... 12: step_free_wrongly(record); break;
    case 13:
        if (record->byte[1] % 8 == 0)
            step_free_many(record);
        else
            step_add(record);
        break;
    case 14:
        if (record->byte[5] % 64 == 0)
            step_destroy();
        else if (record->byte[5] % 8 == 0)
            step_fail(record);
        break;
    default: step_time(record); break;
    }
    MODEL_EXPECT(model, sim_locks_held() == 0, "a lock is still held");
    if (!model->long_run ? model->operation % 4 == 0 : model->operation % 1024 == 0) compare_all();
}

static void end(struct model *of) {
    (void)of;
    sim_fail_call(0, 0);
    compare_all();
    while (held_count != 0 && !model->failed) free_one(held_count - 1, 0);
    if (model->failed) return;
    compare_all();
    MODEL_EXPECT(model, strata_arena_destroy(arena) == STRATA_ARENA_OK, "an arena of which nothing is in use can't be destroyed");
    const char *wrong = strata_check();
    MODEL_EXPECT(model, wrong == NULL, "strata_check: %s", wrong);
}

static const struct model_layer quantum_layer = {begin, step, end};

MODEL_EXPORT(quantum, &quantum_layer);
