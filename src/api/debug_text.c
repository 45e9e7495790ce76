/*
 * debug_text.c - reports on debugged caches, buffers in use and logs, as text for a reader: line by line, without malloc.
 */
#include <errno.h>
#include <string.h>

#include "api/debug_walk.h"
#include "base/check.h"
#include "strata/debug.h"

#define LINE_BYTES 512
#define MODULE_BYTES 256

struct output {
    int fd;
    bool ok;
};

static STRATA_PRINTF(2, 3) void line(struct output *output, const char *format, ...) {
    char text[LINE_BYTES];
    va_list args;
    va_start(args, format);
    size_t length = format_text_v(text, sizeof text - 1, format, args);
    va_end(args);
    if (length > sizeof text - 2) length = sizeof text - 2;
    for (size_t i = 0; i < length; i++)
        if (is_control(text[i])) text[i] = '?'; /* of names and paths */
    text[length++] = '\n';
    output->ok = output->ok && platform_file_write(output->fd, text, length);
}

static void frames(struct output *output, const uintptr_t *frame, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        char module[MODULE_BYTES];
        uintptr_t offset;
        if (platform_module_of(frame[i], module, sizeof module, &offset))
            line(output, "    %s+0x%llx", module, (unsigned long long)offset);
        else
            line(output, "    0x%llx", (unsigned long long)frame[i]);
    }
}

static int ended(const struct output *output, int saved) {
    errno = saved;
    return output->ok ? 0 : EIO;
}

/* ------------------------------------------------------------------ caches */

static void cache_line(struct debug_cache *cache, void *argument) {
    char features[LINE_BYTES / 4];
    platform_lock_acquire(&cache->lock);
    const struct debug_cache copy = *cache;
    platform_lock_release(&cache->lock);
    uint64_t bytes = copy.memory_bytes + copy.described_bytes;
    debug_features_show(&copy.features, features, sizeof features);
    if (!copy.active && copy.in_use == 0) return;
    line(argument, "%-31s %10llu %10llu %12llu %12llu %10llu %12llu  %s", copy.name, (unsigned long long)copy.in_use, (unsigned long long)copy.free,
         (unsigned long long)copy.allocs, (unsigned long long)copy.frees, (unsigned long long)copy.injected, (unsigned long long)bytes,
         copy.active ? features : "off");
}

int strata_debug_report(int fd) {
    int saved = errno;
    struct output output = {fd, true};
    struct debug_heap *debug = debug_heap();
    line(&output, "%-31s %10s %10s %12s %12s %10s %12s  %s", "debugged cache", "in use", "freed", "allocs", "frees", "injected", "bytes", "features");
    if (debug != NULL) debug_each(&debug->layer, cache_line, &output);
    return ended(&output, saved);
}

/* ------------------------------------------------------------------ buffers in use, by where they were allocated */

struct place {
    uint64_t buffers, bytes;
    char cache[DEBUG_NAME_BYTES];
    const void *example;
    unsigned frames;
    uintptr_t frame[DEBUG_FRAMES_MAX];
};
#define PLACES_BYTES SUPERPAGE_BYTES
#define PLACES_MAX (PLACES_BYTES / sizeof(struct place))

/* An open hash table; what finds no room in it is counted. */
struct places {
    struct place *table;
    uint64_t used, buffers, bytes, beyond;
};

static bool is_place(const struct place *place, const char *cache, const struct strata_debug_transaction *allocated) {
    unsigned count = allocated != NULL ? allocated->frames : 0;
    if (place->frames != count || strcmp(place->cache, cache) != 0) return false;
    for (unsigned i = 0; i < count; i++)
        if (place->frame[i] != allocated->frame[i]) return false;
    return true;
}

static bool add_buffer(const struct strata_debug_buffer *buffer, void *argument) {
    struct places *places = argument;
    const struct strata_debug_transaction *allocated = buffer->transactions != 0 ? &buffer->transaction[0] : NULL;
    uint64_t hash = 0;
    for (const char *c = buffer->cache; *c != 0; c++) hash = hash * 31 + (unsigned char)*c;
    for (unsigned i = 0; allocated != NULL && i < allocated->frames; i++) hash = (hash ^ allocated->frame[i]) * UINT64_C(0x9e3779b97f4a7c15);
    places->buffers++;
    places->bytes += buffer->bytes;
    uint64_t at = (hash >> 20) % PLACES_MAX, tried = 0;
    while (tried < PLACES_MAX && places->table[at].buffers != 0 && !is_place(&places->table[at], buffer->cache, allocated)) {
        at = (at + 1) % PLACES_MAX;
        tried++;
    }
    if (tried == PLACES_MAX) {
        places->beyond++;
        return true;
    }
    struct place *place = &places->table[at];
    if (place->buffers == 0) {
        places->used++;
        format_text(place->cache, sizeof place->cache, "%s", buffer->cache);
        place->example = buffer->address;
        place->frames = allocated != NULL ? allocated->frames : 0;
        for (unsigned i = 0; i < place->frames; i++) place->frame[i] = allocated->frame[i];
    }
    place->buffers++;
    place->bytes += buffer->bytes;
    return true;
}

/* Most bytes first, by looking for them: reports are rare, and places few. */
static void report_places(struct output *output, const struct places *places) {
    for (uint64_t reported = 0; reported < places->used && output->ok; reported++) {
        struct place *most = NULL;
        for (uint64_t i = 0; i < PLACES_MAX; i++) {
            struct place *place = &places->table[i];
            if (place->buffers != 0 && (most == NULL || place->bytes > most->bytes)) most = place;
        }
        line(output, "%llu bytes in %llu buffers of %s, such as %p, allocated at", (unsigned long long)most->bytes, (unsigned long long)most->buffers,
             most->cache, most->example);
        if (most->frames == 0) line(output, "    (no stack: audit keeps it)");
        frames(output, most->frame, most->frames);
        most->buffers = 0;
    }
    if (places->beyond != 0) line(output, "%llu buffers from further places", (unsigned long long)places->beyond);
    line(output, "%llu bytes in %llu buffers are in use", (unsigned long long)places->bytes, (unsigned long long)places->buffers);
}

int strata_debug_report_in_use(const char *pattern, int fd) {
    int saved = errno;
    struct output output = {fd, true};
    struct places places = {0};
    struct zone_run run;
    if (debug_heap() == NULL) {
        report_places(&output, &places);
        return ended(&output, saved);
    }
    if (!zone_run_alloc(&heap.zone, PLACES_BYTES >> GRANULE_SHIFT, 1, MOBILITY_UNMOVABLE, &run)) return EIO;
    places.table = run.address;
    __builtin_memset(places.table, 0, PLACES_BYTES);
    output.ok = strata_debug_walk(pattern, false, add_buffer, &places);
    report_places(&output, &places);
    zone_run_free(&heap.zone, run.address, PLACES_BYTES >> GRANULE_SHIFT);
    return ended(&output, saved);
}

/* ------------------------------------------------------------------ logs */

static bool log_entry(const struct strata_debug_transaction *transaction, void *argument) {
    static const char *const kinds[] = {[STRATA_DEBUG_ALLOCATED] = "allocated", [STRATA_DEBUG_FREED] = "freed", [STRATA_DEBUG_FAILED] = "failed"};
    struct output *output = argument;
    line(output, "%llu.%09llu thread %u %s %p %llu bytes (cache %s)", (unsigned long long)(transaction->time_ns / 1000000000),
         (unsigned long long)(transaction->time_ns % 1000000000), transaction->thread, kinds[transaction->kind], transaction->buffer,
         (unsigned long long)transaction->bytes, transaction->cache);
    frames(output, transaction->frame, transaction->frames);
    return output->ok;
}

int strata_debug_report_log(enum strata_debug_log log, int fd) {
    int saved = errno;
    struct output output = {fd, true};
    bool walked = strata_debug_log_walk(log, log_entry, &output);
    output.ok = output.ok && walked;
    return ended(&output, saved);
}
