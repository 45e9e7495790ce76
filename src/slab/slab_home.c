/*
 * slab_home.c - what is asked about objects without a lock: whether an address is one, and whose slab it is in (slab.h).
 */
#include "slab/slab_internal.h"

bool slab_is_object(const struct slab_layer *slabs, unsigned tag, const void *object) {
    const struct slab_lookup lookup = slab_lookup_of(slabs, &slabs->caches[tag]);
    uint64_t behind;
    const struct slab *slab = slab_look_up(&lookup, object, &behind);
    if (slab == NULL) return false;
    const unsigned number = slab_number_at(&lookup, behind);
    return number < slab->capacity && (uint64_t)number * lookup.object_bytes == behind;
}

unsigned slab_home_of(const struct slab_layer *slabs, unsigned tag, const void *object) {
    const struct slab_lookup lookup = slab_lookup_of(slabs, &slabs->caches[tag]);
    uint64_t behind;
    const struct slab *slab = slab_look_up(&lookup, object, &behind);
    return slab != NULL ? __atomic_load_n(&slab->home, __ATOMIC_RELAXED) : 0;
}

unsigned slab_sort_by_home(const struct slab_layer *slabs, unsigned tag, unsigned home, void **objects, unsigned count) {
    const struct slab_lookup lookup = slab_lookup_of(slabs, &slabs->caches[tag]);
    uintptr_t start = 0;
    uint64_t bytes = 0; /* of the slab of the last one that was looked up: neighbours come after each other */
    unsigned kept = 0;
    bool own = false;
    for (unsigned i = 0; i < count; i++) {
        void *object = objects[i];
        if ((uintptr_t)object - start >= bytes) {
            uint64_t behind = 0;
            const struct slab *slab = slab_look_up(&lookup, object, &behind);
            own = slab != NULL && __atomic_load_n(&slab->home, __ATOMIC_RELAXED) == home;
            start = (uintptr_t)object - behind;
            bytes = slab != NULL ? (uint64_t)slab->capacity * lookup.object_bytes : 1;
        }
        if (!own) continue;
        objects[i] = objects[kept];
        objects[kept++] = object;
    }
    return kept;
}
