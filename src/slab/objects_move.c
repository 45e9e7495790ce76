/*
 * objects_move.c - emptying sparse slabs of objects.h: which one, in which order, and where its objects may go.
 *
 * A slab that is apart stands in no list, so that nobody allocates from it; it stays in the hash table, so that its objects are freed and looked
 * up as ever. It goes back to the source only here, whoever frees the last object: whoever moves may look at it until then. Marked slabs stand
 * at the back of their list.
 *
 * With n objects to a slab and f free ones in those that are partly used, a slab can be emptied into the others when f >= n: its own free
 * objects and those of the others are f, its objects in use and its free ones are n.
 */
#include "slab/objects_internal.h"

#include "base/check.h"

/* So many that might be chosen are compared; lists are by the eighth that is free, so that the choice is never far off. */
#define COMPARED_MAX 64

/* Free objects in slabs that are partly used. */
static uint64_t partly_free(const struct object_slabs *slabs) { return (slabs->slabs - slabs->empty) * slabs->capacity - slabs->in_use; }

uint64_t object_slabs_spare(struct object_slabs *slabs) {
    platform_lock_acquire(&slabs->lock);
    uint64_t spare = partly_free(slabs) / slabs->capacity;
    platform_lock_release(&slabs->lock);
    return spare;
}

static struct object_slab *sparsest_of(const struct object_slabs *slabs, const struct list *list) {
    struct object_slab *best = NULL;
    unsigned compared = 0;
    LIST_FOR_EACH(list, node) {
        struct object_slab *slab = CONTAINER_OF(node, struct object_slab, link);
        if (slab->mark != OBJECTS_MOVABLE || slab->free == slabs->capacity) continue;
        if (best == NULL || slab->free > best->free) best = slab;
        if (++compared == COMPARED_MAX) break;
    }
    return best;
}

bool object_slabs_part(struct object_slabs *slabs) {
    struct object_slab *slab = NULL;
    platform_lock_acquire(&slabs->lock);
    if (partly_free(slabs) >= slabs->capacity)
        for (unsigned b = OBJECT_SLABS_BUCKETS; b-- != 0 && slab == NULL;) slab = sparsest_of(slabs, &slabs->buckets[b]);
    if (slab != NULL) list_remove(&slab->link);
    slabs->apart = slab;
    platform_lock_release(&slabs->lock);
    return slab != NULL;
}

void *object_slabs_next(struct object_slabs *slabs, const void *after) {
    void *object = NULL;
    platform_lock_acquire(&slabs->lock);
    const struct object_slab *slab = slabs->apart;
    uint64_t index = after == NULL ? 0 : ((uintptr_t)after - slab->start) / slabs->stride + 1;
    while (index < slabs->capacity && (slab->bits[index / 64] >> index % 64 & 1) != 0) index++;
    if (index < slabs->capacity) object = (void *)(slab->start + index * slabs->stride);
    platform_lock_release(&slabs->lock);
    return object;
}

static struct object_slab *densest(struct object_slabs *slabs) {
    for (unsigned b = 0; b < OBJECT_SLABS_BUCKETS; b++)
        LIST_FOR_EACH(&slabs->buckets[b], node) {
            struct object_slab *slab = CONTAINER_OF(node, struct object_slab, link);
            if (slab->free != slabs->capacity) return slab;
        }
    return NULL;
}

void *object_slabs_alloc_dense(struct object_slabs *slabs) {
    void *object = NULL;
    platform_lock_acquire(&slabs->lock);
    struct object_slab *slab = densest(slabs);
    if (slab != NULL) {
        unsigned taken = objects_take(slabs, slab, &object, 1);
        if (objects_bucket(slabs, slab) != slab->bucket) objects_list_slab(slabs, slab, true);
        slabs->in_use += taken;
        slabs->allocs += taken;
    }
    platform_lock_release(&slabs->lock);
    return object;
}

/* Unlike a free it says nothing about the objects that can't be moved. */
void object_slabs_undo_alloc(struct object_slabs *slabs, void *object) {
    struct object_slab *slab;
    unsigned index;
    platform_lock_acquire(&slabs->lock);
    CHECK(objects_locate(slabs, object, &slab, &index) == OBJECTS_OK && slab != slabs->apart);
    slab->bits[index / 64] |= UINT64_C(1) << index % 64;
    slab->free++;
    slabs->in_use--;
    slabs->allocs--;
    if (slab->free == slabs->capacity) slabs->empty++;
    if (objects_bucket(slabs, slab) != slab->bucket) objects_list_slab(slabs, slab, slab->mark == OBJECTS_MOVABLE);
    platform_lock_release(&slabs->lock);
}

/* Under the lock. */
static struct object_slab *end_apart(struct object_slabs *slabs) {
    struct object_slab *slab = slabs->apart;
    slabs->apart = NULL;
    if (slab != NULL && slab->free == slabs->capacity) slabs->empty++;
    return slab;
}

uint64_t object_slabs_rejoin(struct object_slabs *slabs, enum objects_mark mark) {
    platform_lock_acquire(&slabs->lock);
    struct object_slab *slab = end_apart(slabs);
    bool gone = slab->free == slabs->capacity;
    if (gone) {
        objects_unlink_slab(slabs, slab);
    } else {
        slab->mark = (uint16_t)mark;
        objects_list_slab(slabs, slab, mark == OBJECTS_MOVABLE);
    }
    platform_lock_release(&slabs->lock);
    if (!gone) return 0;
    objects_destroy_slab(slabs, slab);
    return slabs->slab_bytes;
}

void object_slabs_rejoin_child(struct object_slabs *slabs) {
    platform_lock_acquire(&slabs->lock);
    struct object_slab *slab = end_apart(slabs);
    if (slab != NULL) objects_list_slab(slabs, slab, true);
    platform_lock_release(&slabs->lock);
}

void object_slabs_forget_marks(struct object_slabs *slabs) {
    platform_lock_acquire(&slabs->lock);
    for (unsigned b = 0; b < OBJECT_SLABS_BUCKETS; b++)
        LIST_FOR_EACH(&slabs->buckets[b], node) {
            struct object_slab *slab = CONTAINER_OF(node, struct object_slab, link);
            if (slab->mark == OBJECTS_LATER) slab->mark = OBJECTS_MOVABLE;
        }
    platform_lock_release(&slabs->lock);
}
