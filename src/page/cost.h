/*
 * cost.h - what it costs to give pages another address, and from where on which way is the cheapest. The one place where that is decided.
 *
 * Measured by bench/papers/umpa_costs on two virtual CPUs under Linux 6.18 (docs/decisions.md, 12, 31 and 37), in ns of a granule of 4 KiB:
 * constants, not a measurement in each process, as that would cost what it decides about, and machines differ by less than the ways do: all are made
 * of system calls, faults and copies. The option page_moves forces a way. An exchange is three moves, or three copies, and so has the bounds of one.
 */
#ifndef STRATA_PAGE_COST_H
#define STRATA_PAGE_COST_H

#include "base/base.h"

#define COST_TABLES_NS 7000       /* a move of page tables, with the looks at limits and borders of mappings */
#define COST_TABLES_GRANULE_NS 40 /* of a table that does not move as a whole */
#define COST_COPY_GRANULE_NS 120  /* into a page that is present, both in the caches of the processor */
#define COST_TOUCH_GRANULE_NS 1500

/* Pages one by one: the target is registered for the moment, and emptied; each range of a row that goes by one registration is a call more. */
#define COST_FAULTS_NS 7000
#define COST_FAULTS_CALL_NS 1000
#define COST_FAULTS_GRANULE_NS 120

/* Whether page tables move so many granules in less time than a copy does, to pages that are present, or absent. From 88 on, or 5. */
STRATA_INLINE bool cost_prefers_tables(size_t granules, bool absent) {
    size_t copy_ns = COST_COPY_GRANULE_NS + (absent ? COST_TOUCH_GRANULE_NS : 0);
    return granules > COST_TABLES_NS / (copy_ns - COST_TABLES_GRANULE_NS);
}

/* The same of pages that go one by one, where no page tables can: in `ranges` pieces. Never to pages that are present; else from 6 on. */
STRATA_INLINE bool cost_prefers_faults(size_t granules, size_t ranges, bool absent) {
    size_t copy_ns = COST_COPY_GRANULE_NS + (absent ? COST_TOUCH_GRANULE_NS : 0);
    return granules * copy_ns > COST_FAULTS_NS + ranges * COST_FAULTS_CALL_NS + granules * COST_FAULTS_GRANULE_NS;
}

/*
 * Up to so many granules are copied to where pages are present, though tables may move them in less time: what has moved leaves absent pages behind,
 * which the next block has to touch; larger ones get theirs back as whole superpages. Of a block that grows, steps of a share of it at least, as
 * small ones would copy it again and again; and where no more than a share of it is absent, which would be present behind a copy.
 */
#define COST_COPY_GRANULES_MAX SUPERPAGE_GRANULES
#define COST_COPY_STEP_SHARE 4
#define COST_COPY_ABSENT_SHARE 8

/*
 * A block that gets another size is never moved to superpages of its own below this one, whatever is absent: what it leaves behind when it ends would
 * serve no run. From run to run its pages go one by one, if at all: move_run.c.
 */
#define COST_GROW_GRANULES_MIN 64
/* Absent granules in a row that a new block gets from elsewhere: three moves' worth of first touches at least, as the search and the cuts cost too.
 */
#define COST_FILL_GRANULES_MIN 64

/* The same where pages go one by one, to a target that is open: twice a call. */
#define COST_FILL_PAGES_MIN 4

/* So many present granules of a superpage in the way of others are moved away; fewer are dropped, as a move is dearer than their next touches. */
#define COST_CLEAR_GRANULES_MIN 16

/*
 * A block of so many superpages whose page tables are to move as one takes no present pages from elsewhere, or behind borders of mappings, unless
 * they are half of it: each piece is three moves more in every exchange, a quarter of what the whole costs.
 */
#define COST_WHOLE_SUPERPAGES 16

#endif
