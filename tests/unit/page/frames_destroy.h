/*
 * frames_destroy.h - the end of a zone as a test wants it: both halves at once.
 */
#ifndef STRATA_TESTS_UNIT_PAGE_FRAMES_DESTROY_H
#define STRATA_TESTS_UNIT_PAGE_FRAMES_DESTROY_H

#include "page/frames.h"

static inline enum frames_status frames_zone_destroy(struct frame_zone *zone) {
    const enum frames_status status = frames_zone_end(zone);
    if (status == FRAMES_OK) frames_zone_free(zone);
    return status;
}

#endif
