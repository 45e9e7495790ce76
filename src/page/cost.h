/*
 * cost.h - what it costs to give pages another address, and from where on which way is the cheapest. The one place where that is decided.
 *
 * Measured on two virtual CPUs under Linux 6.18 (docs/decisions.md, 12 and 31), in us: a move of page tables 6 to 8 whatever the size up to 4 MiB,
 * and 0.25 for each superpage beyond, as long as both addresses are the same modulo 2 MiB; a copy 1 for each 4 KiB, with the first touch of the
 * target 3; an exchange takes three moves, or three copies through a buffer.
 */
#ifndef STRATA_PAGE_COST_H
#define STRATA_PAGE_COST_H

/* A block that grows is moved from this size on; below, a copy into a place that waits is cheaper. */
#define ZONE_MOVE_GRANULES_MIN 16
/* Contents change places by page tables from this size on; below, by a copy. */
#define ZONE_SWAP_GRANULES_MIN 6
/* Pages go from one place to another that exists, by page tables from this size on. */
#define ZONE_GIVE_GRANULES_MIN 4

#endif
