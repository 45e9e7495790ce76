/*
 * model.h - what the model runners share: records to operations, what went wrong to words.
 *
 * A model runner drives one layer and a naive reference of it side by side. Its input is a sequence of records of MODEL_RECORD_BYTES,
 * the first of which sets the stage; each other one is an operation, and all zeros are the operation "nothing", so that a
 * generator can shrink a failure by deleting and zeroing. The runner returns 0, or 1 and a text: what went wrong, and the operations before it.
 *
 * A layer writes three functions, puts them into a struct model_layer, and exports them by MODEL_EXPORT(NAME, layer), which defines
 *     int model_NAME(const uint8_t *records, size_t bytes, char *text, size_t text_bytes)
 *     int model_NAME_random(uint64_t seed, uint64_t operations, char *text, size_t text_bytes)
 * Record i of a random run is splitmix64 of seed and i (model_random_record; conftest.py has the same), so that a failing run can be replayed as
 * records.
 */
#ifndef STRATA_TESTS_MODEL_H
#define STRATA_TESTS_MODEL_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "platform/sim/sim.h"

#define MODEL_RECORD_BYTES 8

struct model_record {
    uint8_t byte[MODEL_RECORD_BYTES];
};

struct model {
    uint64_t operation; /* which is under way; 0: the stage */
    bool failed;        /* the first failure counts; layers stop where they see it */
    bool long_run;      /* no trace, and checks that cost time now and then only */
    bool show;          /* STRATA_MODEL_TRACE is set: operations go to standard error as they come, for runs that crash */
    char what[1024];    /* what went wrong */
    char trace[16384];  /* the last operations, a line each */
    size_t trace_bytes;
};

struct model_layer {
    void (*begin)(struct model *model, const struct model_record *stage); /* a fresh layer, whatever was left of the last run */
    void (*step)(struct model *model, const struct model_record *record);
    void (*end)(struct model *model); /* the last checks, and everything given back */
};

/* ------------------------------------------------------------------ for the functions of a layer */

/* The first thing that went wrong; printf-like. */
static void __attribute__((unused)) STRATA_PRINTF(2, 3) model_fail(struct model *model, const char *format, ...) {
    va_list args;
    if (model->failed) return;
    model->failed = true;
    va_start(args, format);
    int n = snprintf(model->what, sizeof model->what, "operation %llu: ", (unsigned long long)model->operation);
    vsnprintf(model->what + n, sizeof model->what - (size_t)n, format, args);
    va_end(args);
}

#define MODEL_EXPECT(model, condition, ...)               \
    do {                                                  \
        if (!(condition)) model_fail(model, __VA_ARGS__); \
    } while (0)

/* A line about the operation under way. Old lines make way. */
static void __attribute__((unused)) STRATA_PRINTF(2, 3) model_trace(struct model *model, const char *format, ...) {
    va_list args;
    char line[256];
    if (model->long_run) return;
    int n = snprintf(line, sizeof line, "%6llu ", (unsigned long long)model->operation);
    va_start(args, format);
    n += vsnprintf(line + n, sizeof line - (size_t)n, format, args);
    va_end(args);
    size_t bytes = n < (int)sizeof line - 1 ? (size_t)n : sizeof line - 2;
    line[bytes++] = '\n';
    if (model->show) fwrite(line, 1, bytes, stderr);
    if (model->trace_bytes + bytes > sizeof model->trace) {
        size_t kept = sizeof model->trace / 2;
        memmove(model->trace, model->trace + model->trace_bytes - kept, kept);
        model->trace_bytes = kept;
    }
    memcpy(model->trace + model->trace_bytes, line, bytes);
    model->trace_bytes += bytes;
}

/* Operands: bytes `at` and so on of a record, low byte first. */
static inline uint64_t model_bits(const struct model_record *record, unsigned at, unsigned bytes) {
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++) value |= (uint64_t)record->byte[at + i] << (8 * i);
    return value;
}

/* ------------------------------------------------------------------ the run */

static inline struct model_record model_random_record(uint64_t seed, uint64_t i) {
    uint64_t x = seed + (i + 1) * 0x9e3779b97f4a7c15u;
    struct model_record record;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    for (unsigned b = 0; b < MODEL_RECORD_BYTES; b++) record.byte[b] = (uint8_t)(x >> (8 * b));
    return record;
}

struct model_run {
    const struct model_layer *layer;
    const uint8_t *records; /* NULL: random */
    uint64_t count, seed;
    struct model model;
};

static inline struct model_record model_record_at(const struct model_run *run, uint64_t i) {
    struct model_record record;
    if (run->records == NULL) return model_random_record(run->seed, i);
    memcpy(&record, run->records + i * MODEL_RECORD_BYTES, sizeof record);
    return record;
}

static inline void model_run_body(void *argument) {
    struct model_run *run = argument;
    struct model *model = &run->model;
    struct model_record record = {{0}};
    if (run->count != 0) record = model_record_at(run, 0);
    run->layer->begin(model, &record);
    for (uint64_t i = 1; i < run->count && !model->failed; i++) {
        model->operation = i;
        record = model_record_at(run, i);
        run->layer->step(model, &record);
    }
    model->operation = run->count;
    if (!model->failed) run->layer->end(model);
}

static inline int model_run_all(struct model_run *run, char *text, size_t text_bytes) {
    sim_reset(NULL);
    run->model = (struct model){.long_run = run->records == NULL, .show = getenv("STRATA_MODEL_TRACE") != NULL};
    /* A check of the layer itself that does not hold ends the run, not the process. */
    if (sim_dies(model_run_body, run)) model_fail(&run->model, "the layer gave up: %s", sim_output());
    if (!run->model.failed) return 0;
    snprintf(text, text_bytes, "%s\n%.*s", run->model.what, (int)run->model.trace_bytes, run->model.trace);
    return 1;
}

#define MODEL_EXPORT(name, layer_)                                                                                                \
    STRATA_EXPORT int model_##name(const uint8_t *records, size_t bytes, char *text, size_t text_bytes);                          \
    STRATA_EXPORT int model_##name##_random(uint64_t seed, uint64_t operations, char *text, size_t text_bytes);                   \
    int model_##name(const uint8_t *records, size_t bytes, char *text, size_t text_bytes) {                                       \
        static struct model_run run;                                                                                              \
        static const uint8_t none[1];                                                                                             \
        run = (struct model_run){.layer = (layer_), .records = bytes != 0 ? records : none, .count = bytes / MODEL_RECORD_BYTES}; \
        return model_run_all(&run, text, text_bytes);                                                                             \
    }                                                                                                                             \
    int model_##name##_random(uint64_t seed, uint64_t operations, char *text, size_t text_bytes) {                                \
        static struct model_run run;                                                                                              \
        run = (struct model_run){.layer = (layer_), .count = operations, .seed = seed};                                           \
        return model_run_all(&run, text, text_bytes);                                                                             \
    }                                                                                                                             \
    _Static_assert(sizeof(struct model_record) == MODEL_RECORD_BYTES, "records have no padding")

#endif
