/*
 * groups.h - the rule by which superpages change their mobility group, the same for the heap's zone (run.c) and zones of frames. Pure.
 */
#ifndef STRATA_PAGE_GROUPS_H
#define STRATA_PAGE_GROUPS_H

#include "base/base.h"

/*
 * Whether a superpage of another group, of which a run is taken, becomes the group's that the run is for (contiguity paper, section 2.1): when at
 * least half of it was free, so that most of it changes hands, but not for movable runs: these can go again, and what is left of the other group
 * would be in the way of a large run for ever. `free`: before the run is taken, out of `whole`.
 */
STRATA_INLINE bool group_changes(unsigned free, unsigned whole, bool movable) { return !movable && free * 2 >= whole; }

#endif
