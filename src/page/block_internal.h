/*
 * block_internal.h - what block.c, move_run.c and resize.c share. Private to page/; all functions run under the zone's lock.
 */
#ifndef STRATA_PAGE_BLOCK_INTERNAL_H
#define STRATA_PAGE_BLOCK_INTERNAL_H

#include "page/zone_internal.h"

/* Beyond this a block gets superpages of its own: address space is cheaper than holes between long runs. */
#define RUN_GRANULES_MAX (SUPERPAGE_GRANULES / 2)
/* A block of more is likely to grow beyond a MiB: it lies with others of its mobility, as behind slabs its first step would be a move. */
#define BLOCK_GROUPED_GRANULES (SUPERPAGE_GRANULES / 4)

/* Whole pages for so many bytes; whole superpages for so many granules. */
STRATA_INLINE size_t block_granules(const struct zone *zone, size_t bytes) {
    return align_up((bytes >> GRANULE_SHIFT) + ((bytes & (GRANULE_BYTES - 1)) != 0), zone->page_granules);
}
STRATA_INLINE size_t block_superpages(size_t granules) { return (granules + SUPERPAGE_GRANULES - 1) / SUPERPAGE_GRANULES; }

/* Marks granules [from, to) of a block of whole superpages allocated, or free. Returns how many were not present. */
uint64_t block_mark_allocated(struct zone *zone, struct superpage *first, size_t from, size_t to, bool *zeroed);
void block_mark_free(struct zone *zone, struct superpage *first, size_t from, size_t to);
/* Superpages [from, to) become part of a block, or are no longer one's. */
void block_adopt(struct zone *zone, struct superpage *first, size_t from, size_t to, enum mobility mobility);
void block_give_up(struct zone *zone, struct superpage *first, size_t from, size_t to);
/* Huge pages for the superpages from `from` on of which a large block uses all; nobody has touched them yet. alike, question: as
 * zone_decide_huge_block. */
void block_decide_huge(struct zone *zone, struct superpage *first, size_t from, size_t granules, bool alike, struct huge_question *question);
/* The address space of a block of superpages, from `old` of them to so many. False: what lies behind is taken. */
bool block_resize_space(struct zone *zone, const char *address, uint64_t old, uint64_t superpages);
/*
 * A run that can't grow where it is goes elsewhere, with its pages, to a run of `granules`. NULL: a copy is the better way, or the only one. The lock
 * may be dropped, once the block is what it will be. align: in bytes, of the new address.
 */
void *block_move_run(struct zone *zone, char *address, const struct block_desc *block, size_t granules, size_t align);
/* What has its granules becomes a block. */
void block_begin(struct zone *zone, char *address, struct block_desc block);
/* It is none any more: its tag goes, and the zone no longer counts it; its granules are as they were. */
void block_uncount(struct zone *zone, char *address, const struct block_desc *block);
/* The block goes; its tag first, so that a second free is seen. */
void block_end(struct zone *zone, void *address);
/* The same of one whose pages have moved, and whose watches have ended: it does not rest, and nobody looks for what is absent. */
void block_end_moved(struct zone *zone, char *address);

#endif
