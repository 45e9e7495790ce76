/*
 * debug_log.c - who did what, when: the transactions that are kept with each buffer, and the logs that all caches share.
 *
 * A log is a ring of entries of one size, in a run of the zone; its lock (LOCK_RANK_SLAB) is taken alone. Stacks are walked before any lock is taken:
 * the unwinder may allocate.
 */
#include "slab/debug_internal.h"

static bool is_on(const struct debug_layer *layer, enum debug_log_name name) {
    return __atomic_load_n(&layer->logs[name].entries, __ATOMIC_ACQUIRE) != NULL;
}

static void take_event(unsigned frames, struct debug_event *event) {
    event->time_ns = platform_precise_ns();
    event->thread = platform_thread_number();
    if (frames != 0) event->frames = platform_stack(event->frame, frames);
}

void debug_event_take(const struct debug_cache *cache, struct debug_event *event) {
    const struct debug_layer *layer = cache->layer;
    uint32_t traced = __atomic_load_n(&cache->traced, __ATOMIC_RELAXED);
    event->frames = 0;
    event->time_ns = 0;
    event->thread = 0;
    if (traced >> 16 != 0 || is_on(layer, DEBUG_LOG_TRANSACTION) || is_on(layer, DEBUG_LOG_FAIL)) take_event(traced & 0xffff, event);
}

static void *part_of(const struct debug_slot *slot, uint64_t offset) { return (char *)(uintptr_t)slot + sizeof *slot + offset; }
static uint64_t transaction_bytes(const struct debug_features *features) {
    return sizeof(struct debug_transaction) + features->frames * sizeof(uintptr_t);
}

void debug_slot_note(const struct debug_twin *twin, struct debug_slot *slot, enum debug_kind kind, const struct debug_event *event) {
    const struct debug_features *features = &twin->features;
    if (features->audit == 0) return;
    slot->newest = (uint8_t)(slot->transactions == 0 ? 0u : (slot->newest + 1u) % features->audit);
    if (slot->transactions < features->audit) slot->transactions++;
    struct debug_transaction *transaction = part_of(slot, slot->newest * transaction_bytes(features));
    *transaction = (struct debug_transaction){.time_ns = event->time_ns,
                                              .bytes = slot->bytes,
                                              .thread = event->thread,
                                              .kind = (uint16_t)kind,
                                              .frames = (uint16_t)min_u64(event->frames, features->frames)};
    for (unsigned i = 0; i < transaction->frames; i++) transaction->frame[i] = event->frame[i];
}

const struct debug_transaction *debug_slot_transaction(const struct debug_slot *slot, const struct debug_features *features, unsigned n) {
    unsigned at = (slot->newest + features->audit - n) % features->audit;
    return part_of(slot, at * transaction_bytes(features));
}

const void *debug_slot_contents(const struct debug_slot *slot, const struct debug_features *features, bool freed) {
    return part_of(slot, features->audit * transaction_bytes(features) + (freed ? 0 : features->contents));
}

/* ------------------------------------------------------------------ logs */

bool debug_log_set(struct debug_layer *layer, enum debug_log_name name, uint64_t bytes) {
    struct debug_log *log = &layer->logs[name];
    struct zone_run run = {.address = NULL};
    unsigned granules = (unsigned)(align_up(bytes, (uint64_t)layer->zone->page_granules << GRANULE_SHIFT) >> GRANULE_SHIFT);
    if (bytes != 0 && !zone_run_alloc(layer->zone, granules, 1, MOBILITY_UNMOVABLE, &run)) return false;
    platform_lock_acquire(&log->lock);
    void *old = log->entries;
    unsigned old_granules = log->granules;
    __atomic_store_n(&log->entries, run.address, __ATOMIC_RELEASE);
    log->granules = granules;
    log->capacity = bytes / sizeof *log->entries;
    log->written = 0;
    platform_lock_release(&log->lock);
    if (old != NULL) zone_run_free(layer->zone, old, old_granules);
    return true;
}

static void enter(struct debug_log *log, const struct debug_log_entry *entry) {
    platform_lock_acquire(&log->lock);
    if (log->entries != NULL) {
        log->entries[log->written % log->capacity] = *entry;
        log->written++;
    }
    platform_lock_release(&log->lock);
}

void debug_log_enter(struct debug_layer *layer, const char *name_of_cache, enum debug_kind kind, const void *buffer, uint64_t bytes,
                     const struct debug_event *event) {
    enum debug_log_name name = kind == DEBUG_KIND_FAILED ? DEBUG_LOG_FAIL : DEBUG_LOG_TRANSACTION;
    if (!is_on(layer, name)) return;
    struct debug_log_entry entry = {.time_ns = event->time_ns,
                                    .bytes = bytes,
                                    .buffer = buffer,
                                    .thread = event->thread,
                                    .kind = (uint16_t)kind,
                                    .frames = (uint16_t)min_u64(event->frames, DEBUG_LOG_FRAMES)};
    format_text(entry.cache, sizeof entry.cache, "%s", name_of_cache);
    for (unsigned i = 0; i < entry.frames; i++) entry.frame[i] = event->frame[i];
    enter(&layer->logs[name], &entry);
}

void debug_log_failure(struct debug_layer *layer, const char *name, uint64_t bytes) {
    struct debug_event event = {.frames = 0};
    if (!is_on(layer, DEBUG_LOG_FAIL)) return;
    take_event(DEBUG_FRAMES_USUAL, &event);
    debug_log_enter(layer, name, DEBUG_KIND_FAILED, NULL, bytes, &event);
}

uint64_t debug_log_copy(struct debug_layer *layer, enum debug_log_name name, struct debug_log_entry *entries, uint64_t capacity) {
    struct debug_log *log = &layer->logs[name];
    platform_lock_acquire(&log->lock);
    uint64_t count = log->entries == NULL ? 0 : min_u64(min_u64(log->written, log->capacity), capacity);
    for (uint64_t i = 0; i < count; i++) entries[i] = log->entries[(log->written - 1 - i) % log->capacity];
    platform_lock_release(&log->lock);
    return count;
}

uint64_t debug_log_written(struct debug_layer *layer, enum debug_log_name name) {
    struct debug_log *log = &layer->logs[name];
    platform_lock_acquire(&log->lock);
    uint64_t written = log->written;
    platform_lock_release(&log->lock);
    return written;
}
