/*
 * debug_walk.c - walks over debugged buffers and logs, for programs. What a visitor sees is a copy, and no lock is held while it looks.
 */
#include "api/debug_walk.h"

#include "api/heap.h"
#include "base/check.h"
#include "strata/debug.h"

_Static_assert((int)STRATA_DEBUG_ALLOCATED == DEBUG_KIND_ALLOCATED && (int)STRATA_DEBUG_FREED == DEBUG_KIND_FREED &&
                   (int)STRATA_DEBUG_FAILED == DEBUG_KIND_FAILED,
               "kinds go out as they are");
_Static_assert((int)STRATA_DEBUG_LOG_TRANSACTION == DEBUG_LOG_TRANSACTION && (int)STRATA_DEBUG_LOG_FAIL == DEBUG_LOG_FAIL, "names of logs, too");

bool debug_match(const struct debug_cache *cache, void *pattern) { return pattern == NULL || debug_pattern_matches(pattern, cache->name); }

bool debug_copy_begin(struct debug_copy *copy) {
    struct zone_run run;
    if (!zone_run_alloc(&heap.zone, DEBUG_COPY_BYTES >> GRANULE_SHIFT, 1, MOBILITY_UNMOVABLE, &run)) return false;
    copy->slab = run.address;
    return true;
}
void debug_copy_end(const struct debug_copy *copy) { zone_run_free(&heap.zone, copy->slab, DEBUG_COPY_BYTES >> GRANULE_SHIFT); }

typedef bool visit_buffer(const struct strata_debug_buffer *buffer, void *argument);

/* One slot of a copy, as the program sees it. */
static bool visit_slot(const struct debug_copy *copy, unsigned index, visit_buffer *visit, void *argument) {
    struct strata_debug_transaction transactions[STRATA_DEBUG_AUDIT_MAX];
    const struct debug_slot *slot = debug_copy_slot(copy, index);
    for (unsigned n = 0; n < slot->transactions; n++) {
        const struct debug_transaction *from = debug_slot_transaction(slot, &copy->features, n);
        transactions[n] = (struct strata_debug_transaction){.kind = (enum strata_debug_kind)from->kind,
                                                            .thread = from->thread,
                                                            .time_ns = from->time_ns,
                                                            .cache = copy->name,
                                                            .buffer = (const void *)debug_copy_address(copy, index),
                                                            .bytes = from->bytes,
                                                            .frames = from->frames,
                                                            .frame = from->frame};
    }
    const struct strata_debug_buffer buffer = {.cache = copy->name,
                                               .address = (void *)debug_copy_address(copy, index),
                                               .bytes = slot->bytes,
                                               .in_use = slot->state == DEBUG_STATE_IN_USE,
                                               .transactions = slot->transactions,
                                               .transaction = transactions,
                                               .freed_bytes = slot->freed_bytes,
                                               .allocated_bytes = slot->allocated_bytes,
                                               .freed_contents = debug_slot_contents(slot, &copy->features, true),
                                               .allocated_contents = debug_slot_contents(slot, &copy->features, false)};
    return visit(&buffer, argument);
}

bool strata_debug_walk(const char *pattern, bool freed, visit_buffer *visit, void *argument) {
    struct debug_heap *debug = debug_heap();
    struct debug_cursor cursor = {0};
    struct debug_copy copy;
    if (visit == NULL) fatal("strata_debug_walk(): visit is NULL");
    if (debug == NULL) return true;
    if (!debug_copy_begin(&copy)) return false;
    bool going = true;
    while (going && debug_copy_next(&debug->layer, &cursor, debug_match, (void *)(uintptr_t)pattern, &copy))
        for (unsigned i = 0; i < copy.capacity && going; i++) {
            const struct debug_slot *slot = debug_copy_slot(&copy, i);
            if (slot->state == DEBUG_STATE_IN_USE || (freed && slot->was_used)) going = visit_slot(&copy, i, visit, argument);
        }
    debug_copy_end(&copy);
    return true;
}

bool strata_debug_find(const void *address, visit_buffer *visit, void *argument) {
    struct debug_heap *debug = debug_heap();
    struct debug_copy copy;
    unsigned index;
    if (visit == NULL) fatal("strata_debug_find(): visit is NULL");
    if (debug == NULL || !debug_copy_begin(&copy)) return false;
    bool found = debug_copy_of(&debug->layer, address, &copy, &index) && debug_copy_slot(&copy, index)->was_used;
    if (found) visit_slot(&copy, index, visit, argument);
    debug_copy_end(&copy);
    return found;
}

static bool match_one(const struct debug_cache *cache, void *wanted) { return cache == wanted; }

bool debug_cache_walk(struct debug_cache *cache, bool (*visit)(void *object, void *argument), void *argument, bool *going) {
    struct debug_cursor cursor = {0};
    struct debug_copy copy;
    if (!debug_cache_is_used(cache)) return true;
    if (!debug_copy_begin(&copy)) return false;
    while (*going && debug_copy_next(cache->layer, &cursor, match_one, cache, &copy))
        for (unsigned i = 0; i < copy.capacity && *going; i++)
            if (debug_copy_slot(&copy, i)->state == DEBUG_STATE_IN_USE) *going = visit((void *)debug_copy_address(&copy, i), argument);
    debug_copy_end(&copy);
    return true;
}

bool strata_debug_log_walk(enum strata_debug_log log, bool (*visit)(const struct strata_debug_transaction *transaction, void *argument),
                           void *argument) {
    struct debug_heap *debug = debug_heap();
    struct debug_copy copy;
    if (visit == NULL) fatal("strata_debug_log_walk(): visit is NULL");
    if (log != STRATA_DEBUG_LOG_TRANSACTION && log != STRATA_DEBUG_LOG_FAIL) return false;
    if (debug == NULL) return true;
    if (!debug_copy_begin(&copy)) return false;
    struct debug_log_entry *entries = (struct debug_log_entry *)(void *)copy.slab;
    uint64_t count = debug_log_copy(&debug->layer, (enum debug_log_name)log, entries, DEBUG_COPY_BYTES / sizeof *entries);
    bool going = true;
    for (uint64_t i = 0; i < count && going; i++) {
        const struct strata_debug_transaction transaction = {.kind = (enum strata_debug_kind)entries[i].kind,
                                                             .thread = entries[i].thread,
                                                             .time_ns = entries[i].time_ns,
                                                             .cache = entries[i].cache,
                                                             .buffer = entries[i].buffer,
                                                             .bytes = entries[i].bytes,
                                                             .frames = entries[i].frames,
                                                             .frame = entries[i].frame};
        going = visit(&transaction, argument);
    }
    debug_copy_end(&copy);
    return true;
}
