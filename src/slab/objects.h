/*
 * objects.h - the second facade of slab/: slabs of objects from any source, for object caches.
 *
 * A source gives ranges of one size at multiples of a power of two; each becomes a slab, cut into objects at equal distances and described by
 * a structure outside it, so that constructed objects stay as they are and that what is cached need not be memory. An object leads to its
 * slab through a hash table of where slabs start. Slabs with free objects stand in lists by the share that is free; objects are taken
 * from the fullest, lowest first. Empty slabs wait, up to a share of all, and then go back to the source.
 *
 * One slab at a time may stand apart while its objects are moved into fuller ones (objects_move.c): in no list, so that nothing is allocated from it.
 *
 * Invariants (object_slabs_check): free = popcount(bits); a slab is in the list of its share, but for the one apart, and in the hash table, once;
 * in_use = capacity of all slabs - sum of free. Lock: LOCK_RANK_SLAB; never held while the source is called.
 */
#ifndef STRATA_SLAB_OBJECTS_H
#define STRATA_SLAB_OBJECTS_H

#include "base/list.h"
#include "page/page.h"

/* Called with no lock held. */
struct slab_source {
    /* A range of `bytes` that starts at a multiple of `align`, a power of two; false: there is none. */
    bool (*alloc)(void *context, uint64_t bytes, uint64_t align, uintptr_t *start);
    void (*free)(void *context, uintptr_t start, uint64_t bytes);
};
/* The source that is a zone, the context: runs of whole pages, up to a superpage. */
extern const struct slab_source slab_source_zone;

#define OBJECT_SLABS_BUCKETS 8

struct object_slab;
struct object_slabs {
    struct platform_lock lock;
    struct zone *zone; /* immutable, as are the next six; descriptors and hash table are its metadata */
    const struct slab_source *source;
    void *source_context;
    uint64_t stride; /* from object to object, in bytes where they are memory */
    uint64_t slab_bytes, slab_align;
    uint32_t capacity;                         /* objects in a slab */
    struct list buckets[OBJECT_SLABS_BUCKETS]; /* by the share that is free, the last one: all of it */
    struct list full;
    struct object_slab **hash; /* by start / slab_align; NULL before the first slab */
    uint64_t hash_count;       /* a power of two */
    uint64_t slabs;            /* atomic */
    uint64_t empty;            /* of these, wholly free; without the one apart */
    uint64_t in_use, allocs;   /* objects; less in_use, allocs are those that came back */
    uint64_t slabs_created, slabs_released;
    struct object_slab *apart; /* its objects are being moved; NULL: none */
};

/* The largest object of a zone's slabs: half a superpage. */
#define OBJECT_BYTES_MAX (SUPERPAGE_BYTES / 2)

/* Of a slab that suits objects at this distance: a multiple of the unit, a power of two. */
uint64_t object_slab_bytes(uint64_t stride, uint64_t unit);
/*
 * `bytes` and `align` (a power of two) of an object are > 0; slab_bytes is what the source is asked for, 0: as suits the object, in
 * pages. False: no slab can hold one.
 */
bool object_slabs_init(struct object_slabs *slabs, struct zone *zone, uint64_t bytes, uint64_t align, uint64_t slab_bytes,
                       const struct slab_source *source, void *source_context);

/* Up to `count` objects, ascending in each slab; fewer only where source or metadata end. Constant time an object. */
unsigned object_slabs_alloc(struct object_slabs *slabs, void **objects, unsigned count);

enum object_slabs_error {
    OBJECTS_OK,
    OBJECTS_FOREIGN,  /* in no slab of these */
    OBJECTS_NO_START, /* in a slab, but not the start of an object */
    OBJECTS_TWICE,    /* free already */
};
/* Takes objects back, up to the first that can't be one; *done: how many. Constant time an object. */
enum object_slabs_error object_slabs_free(struct object_slabs *slabs, void *const *objects, unsigned count, unsigned *done);
/* Whether it is the start of an object that is in use (or in a cache above). */
enum object_slabs_error object_slabs_look_up(struct object_slabs *slabs, const void *object);

/* Gives empty slabs back to the source; returns how many. */
uint64_t object_slabs_reap(struct object_slabs *slabs);
/* All of it back, also slabs with objects in use; returns how many objects those were. Nobody else uses it any more. */
uint64_t object_slabs_destroy(struct object_slabs *slabs);

/*
 * Calls visit for each object that is in use, or in a cache above, in no order, with no lock held; it returns false to end the walk. Objects that
 * come or go meanwhile may be visited or not. False: no memory for the list of slabs.
 */
bool object_slabs_walk(struct object_slabs *slabs, bool (*visit)(void *object, void *argument), void *argument);

/*
 * Emptying sparse slabs. One thread at a time moves the objects of these slabs; all others may do what they always do.
 *
 * spare: how many slabs could go if all objects in partly used slabs stood close together. part: puts the sparsest slab apart whose objects find room
 * in the other partly used ones, and that isn't marked; false: there is none. next: its first object in use behind `after` (NULL: from the start),
 * NULL: no more. alloc_dense: an object of the fullest slab with room that isn't wholly free; NULL: none. undo_alloc: takes it back, as though it
 * had never been allocated. rejoin: ends what part began. A slab that
 * is wholly free by then goes back to the source, and its size is returned; others return to the lists, with a mark, and are not put apart again
 * before forget_marks (LATER), or before an object of theirs is freed (FIXED). Linear in the slabs of one list: part, forget_marks. rejoin_child: in
 * the child of a fork, where who moved is gone: it keeps the slab, also where it is empty.
 */
enum objects_mark { OBJECTS_MOVABLE, OBJECTS_LATER, OBJECTS_FIXED };
uint64_t object_slabs_spare(struct object_slabs *slabs);
bool object_slabs_part(struct object_slabs *slabs);
void *object_slabs_next(struct object_slabs *slabs, const void *after);
void *object_slabs_alloc_dense(struct object_slabs *slabs);
void object_slabs_undo_alloc(struct object_slabs *slabs, void *object);
uint64_t object_slabs_rejoin(struct object_slabs *slabs, enum objects_mark mark);
void object_slabs_forget_marks(struct object_slabs *slabs);
void object_slabs_rejoin_child(struct object_slabs *slabs);

struct object_slabs_stats {
    uint64_t slabs, total, in_use, memory_bytes, allocs, frees, slabs_created, slabs_released;
};
void object_slabs_stats_get(struct object_slabs *slabs, struct object_slabs_stats *stats);
const char *object_slabs_check(struct object_slabs *slabs);

#endif
