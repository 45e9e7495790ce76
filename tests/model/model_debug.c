/*
 * model_debug.c - model runner of debugged memory: malloc's buffers with features that change while it runs, errors of a known kind at a known place.
 *
 * The reference is a list of the buffers that the program has: address, bytes, which features they got, where they were allocated, and what is wrong
 * with them. Every report has to name the right buffer, kind, offset, bytes and newest transaction, at the call that has to find it, and no other; a
 * call without an error writes nothing. Buffers keep the features that they were allocated with, whatever is set since; stacks are walked where the
 * features of the moment have audit.
 */
#include "model_heap.h"
#include "strata/debug.h"
#include "strata/malloc.h"

#define HELD_MAX 120
#define BYTES_MAX 700
#define NATURAL 16
#define STACKS 200 /* places in the program that allocate and free */

static const char *const settings[] = {"off", "guards", "audit", "audit=3+guards", "default", "audit=1+frames=2+guards+contents=8"};
enum { OFF = 0, AUDIT = 2 }; /* all but these two have guards */
static bool has_guards(unsigned setting) { return setting != OFF && setting != AUDIT; }
static bool has_audit(unsigned setting) { return setting >= AUDIT; }

static struct held {
    unsigned char *address;
    size_t bytes;
    unsigned setting; /* at its allocation */
    unsigned stack;   /* of its allocation */
    bool damaged;     /* the next four say how */
    const char *what;
    int64_t offset;
    unsigned expected, found;
} held[HELD_MAX];
static struct model *model;
static unsigned held_count, setting;

/* ------------------------------------------------------------------ what is expected */

/* From here on everything comes from this place in the program. */
static unsigned come_from(const struct model_record *record) {
    static uintptr_t frames[1];
    unsigned stack = 16 + record->byte[7] % STACKS;
    frames[0] = SIM_MODULE_START + stack;
    sim_stack_set(frames, 1);
    sim_output_clear();
    return stack;
}

static void expect_silence(void) { MODEL_EXPECT(model, *sim_output() == 0, "without an error: %.300s", sim_output()); }

/* The report that begins with this line about `address`, and goes on about the buffer. `last`, `stack`: its newest transaction; 0: no stack. */
static void expect_report(const char *function, const void *address, const struct held *buffer, const char *what, bool in_use, const char *last,
                          unsigned stack) {
    char text[512];
    const char *class = heap.slabs.caches[slab_class_of_size(&heap.slabs, buffer->bytes)].name;
    int length = snprintf(text, sizeof text, "strata: %s(): %p: %s (cache %s)\nstrata:   buffer %p of %zu bytes, %s", function, address, what, class,
                          (void *)buffer->address, buffer->bytes, in_use ? "in use" : "not in use");
    if (buffer->damaged)
        length += snprintf(text + length, sizeof text - (size_t)length, ": at offset %lld, expected 0x%02x, found 0x%02x", (long long)buffer->offset,
                           buffer->expected, buffer->found);
    length += snprintf(text + length, sizeof text - (size_t)length, "\n");
    const char *at = strstr(sim_output(), text);
    MODEL_EXPECT(model, at != NULL, "there is no %s in: %.400s", text, sim_output());
    if (at == NULL) return;
    at += length;
    if (!has_audit(buffer->setting)) {
        MODEL_EXPECT(model, strncmp(at, "strata:     no transactions are kept", 36) == 0, "transactions of a buffer without: %.200s", at);
        return;
    }
    snprintf(text, sizeof text, "strata:     %s by thread ", last);
    MODEL_EXPECT(model, strncmp(at, text, strlen(text)) == 0, "the newest transaction is not %s: %.200s", last, at);
    if (stack == 0) return;
    snprintf(text, sizeof text, "strata:       program+0x%x\n", stack);
    at = strchr(at, '\n');
    MODEL_EXPECT(model, at != NULL && strncmp(at + 1, text, strlen(text)) == 0, "it was %s elsewhere than at 0x%x: %.200s", last, stack, at);
}

static unsigned reports(void) {
    unsigned count = 0;
    for (const char *at = sim_output(); (at = strstr(at, "strata:   buffer ")) != NULL; at++) count++;
    return count;
}

/* ------------------------------------------------------------------ operations */

/* free, of which the compiler knows nothing: errors come after it. */
static void give(void *p) {
    __asm__("" : "+r"(p));
    strata_free(p);
}

static bool see_state(const struct strata_debug_buffer *found, void *argument) {
    *(struct strata_debug_buffer *)argument = *found;
    return false;
}
/* Whether it is a debugged buffer, in use or freed and not yet used again. */
static bool is_known(const struct held *buffer, bool in_use) {
    struct strata_debug_buffer found = {0};
    strata_debug_find(buffer->address, see_state, &found);
    return found.address == buffer->address && found.in_use == in_use;
}

static void step_alloc(const struct model_record *record) {
    size_t bytes = 1 + model_bits(record, 1, 2) % (record->byte[3] % 4 == 0 ? BYTES_MAX : 64);
    if (held_count == HELD_MAX) return;
    unsigned stack = come_from(record);
    unsigned char *address = strata_malloc(bytes);
    model_trace(model, "malloc(%zu) with %s = %p", bytes, settings[setting], (void *)address);
    MODEL_EXPECT(model, address != NULL, "no memory");
    if (address == NULL) return;
    expect_silence();
    held[held_count++] = (struct held){.address = address, .bytes = bytes, .setting = setting, .stack = stack};
    MODEL_EXPECT(model, is_known(&held[held_count - 1], true) == (setting != OFF), "%p is debugged where it is not to be, or is not",
                 (void *)address);
    for (size_t i = 0; i < bytes; i++) {
        unsigned fresh = (uint8_t)(STRATA_DEBUG_FRESH_PATTERN >> ((uintptr_t)&address[i] % 8 * 8));
        if (has_guards(setting)) MODEL_EXPECT(model, address[i] == fresh, "byte %zu of a fresh buffer is 0x%02x", i, address[i]);
        address[i] = (unsigned char)(held_count + i);
    }
}

/* One byte in front of a buffer, or after its end, is another one. */
static void step_damage(const struct model_record *record) {
    struct held *buffer = held_count != 0 ? &held[model_bits(record, 1, 2) % held_count] : NULL;
    if (buffer == NULL || !has_guards(buffer->setting) || buffer->damaged) return;
    bool front = record->byte[3] % 2 != 0;
    size_t slack_end = align_up(buffer->bytes, 8);
    buffer->offset = front ? -1 - record->byte[4] % 8 : (int64_t)(buffer->bytes + record->byte[4] % (slack_end + 8 - buffer->bytes));
    unsigned char *at = buffer->address + buffer->offset;
    bool slack = !front && (size_t)buffer->offset < slack_end;
    buffer->expected = slack ? STRATA_DEBUG_SLACK_BYTE : (uint8_t)(STRATA_DEBUG_REDZONE_PATTERN >> ((uintptr_t)at % 8 * 8));
    buffer->found = buffer->expected ^ (1 + record->byte[5] % 255);
    buffer->what = front ? "written in front of it" : "written after its end";
    buffer->damaged = true;
    MODEL_EXPECT(model, *at == buffer->expected, "offset %lld of %p is 0x%02x, not 0x%02x", (long long)buffer->offset, (void *)buffer->address, *at,
                 buffer->expected);
    *at = (unsigned char)buffer->found;
    model_trace(model, "%p of %zu: 0x%02x at offset %lld", (void *)buffer->address, buffer->bytes, buffer->found, (long long)buffer->offset);
}

/* What is wrong with a buffer that has just been freed, while it is known as it was. */
static void misuse_freed(const struct model_record *record, struct held *buffer, unsigned stack) {
    if (!is_known(buffer, false)) return;
    sim_output_clear();
    if (record->byte[4] % 2 != 0) {
        give(buffer->address);
        model_trace(model, "freed again");
        expect_report("free", buffer->address, buffer, "double free", false, "freed", stack);
        MODEL_EXPECT(model, reports() == 1, "%u reports of one double free", reports());
    } else if (has_guards(buffer->setting)) {
        buffer->offset = record->byte[5] % buffer->bytes;
        unsigned char *at = buffer->address + buffer->offset;
        buffer->expected = (uint8_t)(STRATA_DEBUG_FREE_PATTERN >> ((uintptr_t)at % 8 * 8));
        buffer->found = *at = (unsigned char)(buffer->expected ^ 0x11);
        buffer->damaged = true;
        model_trace(model, "written to at offset %lld", (long long)buffer->offset);
        const char *class = heap.slabs.caches[slab_class_of_size(&heap.slabs, buffer->bytes)].name;
        unsigned pending = 1;
        for (unsigned i = 0; i < held_count; i++)
            if (held[i].damaged && strcmp(heap.slabs.caches[slab_class_of_size(&heap.slabs, held[i].bytes)].name, class) == 0) {
                held[i].damaged = false;
                pending++;
            }
        size_t damaged = strata_debug_verify(class);
        MODEL_EXPECT(model, damaged == pending, "%zu of %u were found", damaged, pending);
        expect_report("strata_debug_verify", buffer->address, buffer, "written after it was freed", false, "freed", stack);
    }
}

static void step_free(const struct model_record *record) {
    if (held_count == 0) return;
    unsigned which = (unsigned)(model_bits(record, 1, 2) % held_count), stack = come_from(record);
    struct held buffer = held[which];
    for (size_t i = 0; i < buffer.bytes; i++)
        MODEL_EXPECT(model, buffer.address[i] == (unsigned char)(buffer.address[0] + i), "byte %zu of %p has changed", i, (void *)buffer.address);
    give(buffer.address);
    model_trace(model, "free(%p) of %zu bytes%s", (void *)buffer.address, buffer.bytes, buffer.damaged ? ", damaged" : "");
    held[which] = held[--held_count];
    if (buffer.damaged) {
        expect_report("free", buffer.address, &buffer, buffer.what, true, "allocated", buffer.stack);
        MODEL_EXPECT(model, reports() == 1, "%u reports of one damage", reports());
        buffer.damaged = false;
    } else {
        expect_silence();
    }
    if (buffer.setting != OFF && record->byte[3] % 4 == 0) misuse_freed(record, &buffer, has_audit(setting) ? stack : 0);
}

static void step_free_inside(const struct model_record *record) {
    const struct held *buffer = held_count != 0 ? &held[model_bits(record, 1, 2) % held_count] : NULL;
    if (buffer == NULL || buffer->setting == OFF || buffer->damaged || buffer->bytes <= NATURAL) return;
    unsigned char *inside = buffer->address + NATURAL;
    come_from(record);
    give(inside);
    model_trace(model, "free(%p), inside", (void *)inside);
    expect_report("free", inside, buffer, "not the start of a buffer", true, "allocated", buffer->stack);
    MODEL_EXPECT(model, reports() == 1, "%u reports of one wrong free", reports());
}

static void step_verify(const struct model_record *record) {
    unsigned pending = 0;
    come_from(record);
    size_t damaged = strata_debug_verify(NULL);
    for (unsigned i = 0; i < held_count; i++) {
        if (!held[i].damaged) continue;
        expect_report("strata_debug_verify", held[i].address, &held[i], held[i].what, true, "allocated", held[i].stack);
        held[i].damaged = false; /* it was mended */
        pending++;
    }
    model_trace(model, "verify: %zu", damaged);
    MODEL_EXPECT(model, damaged == pending && reports() == pending, "%u are damaged: %zu were found, %u told", pending, damaged, reports());
    MODEL_EXPECT(model, strata_debug_verify(NULL) == 0, "what was reported is not mended");
}

static void step_set(const struct model_record *record) {
    come_from(record);
    setting = record->byte[1] % ARRAY_LENGTH(settings);
    model_trace(model, "%s", settings[setting]);
    MODEL_EXPECT(model, strata_debug_set("malloc-*", settings[setting]) == STRATA_DEBUG_OK, "%s was refused", settings[setting]);
    expect_silence();
}

/* ------------------------------------------------------------------ the run */

static void begin(struct model *of, const struct model_record *stage) {
    static const size_t pages[] = {4 * KIB, 4 * KIB, 16 * KIB, 64 * KIB};
    struct sim_config sim = {.page_bytes = pages[stage->byte[0] % 4], .thread_mode = stage->byte[1] % 4 == 1};
    model = of;
    held_count = 0;
    setting = OFF;
    model_new_heap(of, &sim, "background:off,debug_error:continue");
}

static void check_all(void) {
    const char *wrong = heap_check();
    MODEL_EXPECT(model, wrong == NULL, "%s", wrong);
    struct strata_debug_stats stats;
    strata_debug_stats_get(&stats);
    unsigned debugged = 0;
    for (unsigned i = 0; i < held_count; i++) debugged += held[i].setting != OFF;
    MODEL_EXPECT(model, stats.in_use == debugged, "%llu debugged buffers are in use, not %u", (unsigned long long)stats.in_use, debugged);
}

static void step(struct model *of, const struct model_record *record) {
    (void)of;
    switch (record->byte[0] % 16) {
    case 0: break;
    case 1 ... 6: step_alloc(record); break;
    case 7 ... 9: step_free(record); break;
    case 10 ... 12: step_damage(record); break;
    case 13: step_free_inside(record); break;
    case 14: step_verify(record); break;
    default: step_set(record); break;
    }
    MODEL_EXPECT(model, sim_locks_held() == 0, "a lock is still held");
    if (!model->long_run || model->operation % 256 == 0) check_all();
}

static void end(struct model *of) {
    static const struct model_record none;
    (void)of;
    step_verify(&none);
    while (held_count != 0) step_free(&none);
    check_all();
}

static const struct model_layer debug_layer = {begin, step, end};

MODEL_EXPORT(debug, &debug_layer);
