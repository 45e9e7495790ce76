/*
 * metadata.c - the bootstrap allocator: memory for strata's own structures, straight from the platform.
 *
 * Bump allocation from a reserved region that is committed in steps; what comes back is kept by power-of-two size and
 * handed out again. Used for boundary tags and hash tables, never for the program's objects. Lock: LOCK_RANK_METADATA.
 */
#include "base/check.h"
#include "page/zone_internal.h"

#define METADATA_STEP_BYTES (64 * KIB)

static unsigned size_order(size_t bytes) { return bytes <= 16 ? 4 : bit_highest(bytes - 1) + 1; }

void *zone_metadata_alloc(struct zone *zone, size_t bytes) {
    struct metadata *metadata = &zone->metadata;
    unsigned order = size_order(bytes);
    size_t rounded = (size_t)1 << order;
    size_t align = rounded < 4096 ? rounded : 4096;
    char *memory = NULL;
    if (order >= ARRAY_LENGTH(metadata->spare)) return NULL;
    platform_lock_acquire(&metadata->lock);
    if (metadata->spare[order] != NULL) {
        memory = metadata->spare[order];
        metadata->spare[order] = *(void **)(void *)memory;
        metadata->bytes += rounded;
        platform_lock_release(&metadata->lock);
        __builtin_memset(memory, 0, rounded);
        return memory;
    }
    char *start = (char *)align_up((uintptr_t)metadata->next, align);
    if (start <= metadata->end && rounded <= (size_t)(metadata->end - start)) {
        bool ok = true;
        if (start + rounded > metadata->committed) {
            size_t room = (size_t)(metadata->end - metadata->committed);
            size_t step = align_up((size_t)(start + rounded - metadata->committed), METADATA_STEP_BYTES);
            if (step > room) step = room;
            ok = platform_commit(metadata->committed, step);
            if (ok) metadata->committed += step;
        }
        if (ok) {
            memory = start;
            metadata->next = start + rounded;
            metadata->bytes += rounded;
        }
    }
    platform_lock_release(&metadata->lock);
    return memory;
}

STRATA_COLD void zone_metadata_free(struct zone *zone, void *memory, size_t bytes) {
    struct metadata *metadata = &zone->metadata;
    unsigned order = size_order(bytes);
    platform_lock_acquire(&metadata->lock);
    *(void **)memory = metadata->spare[order];
    metadata->spare[order] = memory;
    metadata->bytes -= (size_t)1 << order;
    platform_lock_release(&metadata->lock);
}
