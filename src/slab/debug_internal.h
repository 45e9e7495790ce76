/*
 * debug_internal.h - what the files of debugged buffers share. Private to this folder.
 */
#ifndef STRATA_SLAB_DEBUG_INTERNAL_H
#define STRATA_SLAB_DEBUG_INTERNAL_H

#include "base/check.h"
#include "slab/debug.h"

#define FREE_PATTERN UINT64_C(0xdeadbeefdeadbeef)
#define FRESH_PATTERN UINT64_C(0xbaddcafebaddcafe)
#define REDZONE_PATTERN UINT64_C(0xfeedfacefeedface)
#define SLACK_BYTE 0xbb

/* Who did something, and when, as found before a lock is taken. */
struct debug_event {
    uint64_t time_ns;
    uint32_t thread;
    unsigned frames;
    uintptr_t frame[DEBUG_FRAMES_MAX];
};

/* A buffer, found. */
struct debug_place {
    struct debug_slab *slab;
    struct debug_slot *slot;
    unsigned index;
};

STRATA_INLINE struct debug_slot *slot_at(const struct debug_slab *slab, unsigned index) {
    return (struct debug_slot *)(void *)((char *)slab->slots + (size_t)index * slab->twin->slot_bytes);
}
STRATA_INLINE uintptr_t place_at(const struct debug_slab *slab, unsigned index) { return slab->start + index * slab->twin->stride; }
STRATA_INLINE char *buffer_of(const struct debug_place *place) { return (char *)place_at(place->slab, place->index) + place->slot->offset; }
STRATA_INLINE bool in_window(const struct debug_layer *layer, uintptr_t address) {
    uint64_t bytes = __atomic_load_n(&layer->window_bytes, __ATOMIC_ACQUIRE); /* before the start, which was written before it */
    return bytes != 0 && address - layer->window < bytes;
}

/* ------------------------------------------------------------------ debug_slab.c */

/* A layout for these features, which the cache has room for; NULL: no memory. */
struct debug_twin *debug_twin_create(struct debug_cache *cache, const struct debug_features *features);
/* One that is in no list and has no slabs. */
void debug_twin_destroy(struct debug_twin *twin);
/* A slab that nobody knows yet, its places filled; NULL: no memory. Under no lock. */
struct debug_slab *debug_slab_create(struct debug_twin *twin);
/* It is known from now on, its slots in the queue; or no longer, nor found by an address. Under the cache's lock. */
void debug_slab_link(struct debug_slab *slab);
void debug_slab_unlink(struct debug_slab *slab);
/* Unlinked already. Under no lock. */
void debug_slab_destroy(struct debug_slab *slab);
/* The slab of this cache round an address; NULL: it has none. Under the cache's lock. Constant; with a source of the program's linear in the slabs.
 */
struct debug_slab *debug_slab_of(const struct debug_cache *cache, uintptr_t address);

/* With a firewall: access to a place, which counts towards the zone's limit, and none any more. False: it can't be had now. */
bool debug_place_open(const struct debug_place *place);
void debug_place_close(const struct debug_place *place);

/* ------------------------------------------------------------------ debug_guard.c */

/* What is wrong with a buffer. */
struct debug_damage {
    const char *what; /* NULL: nothing */
    uintptr_t address;
    uint8_t expected, found;
};
/* Writes the redzones, and the fresh pattern; or the free one. */
void debug_guard_fresh(const struct debug_place *place);
void debug_guard_freed(const struct debug_place *place);
/* Only the redzones: what is in between is the program's, or is being mended. */
void debug_guard_redzones(const struct debug_place *place);
bool debug_guard_is_whole(const struct debug_place *place, struct debug_damage *damage);

/* ------------------------------------------------------------------ debug_log.c */

/* Stack, thread and time, as far as the cache or a log wants them. Under no lock. */
void debug_event_take(const struct debug_cache *cache, struct debug_event *event);
/* Keeps it with the buffer. Under the cache's lock. */
void debug_slot_note(const struct debug_twin *twin, struct debug_slot *slot, enum debug_kind kind, const struct debug_event *event);
/* Enters it into the logs that are on. Under no lock. */
void debug_log_enter(struct debug_layer *layer, const char *name, enum debug_kind kind, const void *buffer, uint64_t bytes,
                     const struct debug_event *event);

/* ------------------------------------------------------------------ debug_report.c */

/* Writes the report of an error. damage: NULL where the buffer itself is whole. Under the cache's lock. */
void debug_report(const struct debug_cache *cache, const char *function, const void *address, const char *what, const struct debug_place *place,
                  const struct debug_damage *damage);
/* After a report, under no lock: the process ends, or goes on. */
void debug_report_done(const struct debug_layer *layer);

#endif
