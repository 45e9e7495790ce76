/*
 * objects_internal.h - the slab of objects.h, for the files that work on it: objects.c, and objects_move.c, which empties sparse ones. Private to
 * this folder. All of it under the lock of the slabs, where nothing else is said.
 */
#ifndef STRATA_SLAB_OBJECTS_INTERNAL_H
#define STRATA_SLAB_OBJECTS_INTERNAL_H

#include "slab/objects.h"

struct object_slab {
    struct list link;          /* of its bucket, or of the full ones; empty while it is apart */
    struct object_slab *chain; /* of the hash table */
    uintptr_t start;
    uint32_t free;
    uint16_t bucket; /* OBJECT_SLABS_BUCKETS: full; while it is apart: as it was before */
    uint16_t mark;   /* enum objects_mark */
    uint64_t bits[]; /* set: free */
};

STRATA_INLINE unsigned objects_words(const struct object_slabs *slabs) { return (slabs->capacity + 63) / 64; }

STRATA_INLINE unsigned objects_bucket(const struct object_slabs *slabs, const struct object_slab *slab) {
    if (slab->free == 0) return OBJECT_SLABS_BUCKETS;
    if (slab->free == slabs->capacity) return OBJECT_SLABS_BUCKETS - 1;
    return (slab->free - 1) * OBJECT_SLABS_BUCKETS / slabs->capacity;
}

/* Into the list of its share, at the front or at the back. */
void objects_list_slab(struct object_slabs *slabs, struct object_slab *slab, bool front);
/* The lowest free objects of a slab, at most `count`; returns how many. It may be in the wrong list then. */
unsigned objects_take(const struct object_slabs *slabs, struct object_slab *slab, void **objects, unsigned count);
/* Whose object it is, and which of them; OBJECTS_OK: in use. */
enum object_slabs_error objects_locate(const struct object_slabs *slabs, const void *object, struct object_slab **slab, unsigned *index);
/* Nobody finds the slab any more. */
void objects_unlink_slab(struct object_slabs *slabs, struct object_slab *slab);
/* One that is unlinked goes back to its source. With no lock held. */
void objects_destroy_slab(struct object_slabs *slabs, struct object_slab *slab);

#endif
