/*
 * debug_walk.h - which caches a walk wants. Private to api/.
 */
#ifndef STRATA_API_DEBUG_WALK_H
#define STRATA_API_DEBUG_WALK_H

#include "api/debug.h"

/* Whether the pattern, the argument, matches; NULL: all do. */
bool debug_match(const struct debug_cache *cache, void *pattern);
/* What walks copy slabs into, a run of the zone. False: no memory. */
bool debug_copy_begin(struct debug_copy *copy);
void debug_copy_end(const struct debug_copy *copy);

#endif
