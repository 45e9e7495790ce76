/*
 * batch_api.h - what the files of batches share: one element, and groups of small ones. Private to api/.
 */
#ifndef STRATA_API_BATCH_API_H
#define STRATA_API_BATCH_API_H

#include "api/heap.h"
#include "strata/batch.h"

/* What an element asks for, looked at already. */
struct batch_request {
    size_t bytes;         /* above 0 */
    size_t align;         /* a power of two, NATURAL at least */
    size_t reserve_bytes; /* 0: none */
    unsigned flags;       /* enum strata_batch_flags */
};

/* Makes a request out of arguments; 0, or the error of the element. */
int batch_check(size_t bytes, size_t align, size_t reserve, uintmax_t flags, struct batch_request *request);

/* The size class that serves a request; 0: it wants a block of its own. The heap stands. */
unsigned batch_class(const struct batch_request *request);
/* Objects of a class, or addresses of a class, in groups: how many there are. */
size_t batch_alloc_small(unsigned cache, void **objects, size_t count, unsigned flags);
void batch_free_small(unsigned cache, void *const *objects, size_t count, unsigned flags);

/* The tag of the granule where an object or block may start; TAG_NONE: none does. */
unsigned batch_tag(const void *address);
STRATA_INLINE bool batch_tag_is_small(unsigned tag) { return tag >= SLAB_CACHE_FIRST && tag < SLAB_CACHE_MAGAZINES; }

/* [from, to) of an object or block reads as zeros; whole pages by what zeroes them best. */
void batch_clear(char *address, size_t from, size_t to);
/* One element; 0 or its error. What may be used then is in *usable, and up to where it can grow in *capacity (may be NULL). */
int batch_alloc_block(const struct batch_request *request, void **block, size_t *usable, size_t *capacity);
int batch_resize(const struct batch_request *request, void **block, size_t *usable, size_t *capacity);
/* An address with a tag that is not small. */
int batch_free_block(unsigned tag, void *block, unsigned flags);

#endif
