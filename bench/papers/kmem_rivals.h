/*
 * kmem_rivals.h - the allocators that the kmem paper measures its own against, each made parallel in the naive way: one lock round everything.
 *
 * Written here from their descriptions, for comparison only. They serve blocks of up to RIVAL_BLOCK_BYTES_MAX from a reservation of fixed size.
 */
#ifndef STRATA_PAPERS_KMEM_RIVALS_H
#define STRATA_PAPERS_KMEM_RIVALS_H

#include <stddef.h>

#define RIVAL_BLOCK_BYTES_MAX ((size_t)4096)

/* McKusick, Karels: a free list for each power of two; the size is known from the page that a block lies in. */
void *mk_malloc(size_t size_bytes);
void mk_free(void *block);

/* First fit along a list of free blocks in the order of their addresses; neighbours are joined when a block is freed. */
void *first_fit_malloc(size_t size_bytes);
void first_fit_free(void *block);

#endif
