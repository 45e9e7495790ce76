/*
 * frames_window_move.h - isolated blocks that are in windows: writers wait while they are copied, readers go on. Private to page/.
 */
#ifndef STRATA_PAGE_FRAMES_WINDOW_MOVE_H
#define STRATA_PAGE_FRAMES_WINDOW_MOVE_H

#include "page/frames_internal.h"

/* Writes to the pages that show the block wait from here on. False: this system can't; nothing has changed. */
bool frames_window_hold(struct frame_zone *zone, const struct frames_block *block);
/* Writes go on, to the same frames. */
void frames_window_let_go(struct frame_zone *zone, const struct frames_block *block);
/* The pages show `to` from here on, and writes go on there. The notes of both follow. False: no mappings left; nothing has changed, they still wait.
 */
bool frames_window_switch(struct frame_zone *zone, const struct frames_block *block, uint64_t to);

#endif
