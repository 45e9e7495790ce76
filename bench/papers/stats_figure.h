/*
 * stats_figure.h - numbers out of strata's own statistics (strata_stats_json), for programs that are linked to it. No locks; one thread at a time.
 */
#ifndef STRATA_PAPERS_STATS_FIGURE_H
#define STRATA_PAPERS_STATS_FIGURE_H

#include <stdio.h>

/* All figures of this moment, as text in static storage: valid until the next call. Allocates nothing. */
const char *stats_now(void);

/* The figure of that name in the cache for objects of so many bytes. Ends the program where there is none. */
double stats_of_class(const char *stats, size_t object_bytes, const char *name);

#endif
