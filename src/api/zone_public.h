/*
 * zone_public.h - what the public functions of zones share: the zone behind the program's pointer, and how they say what was wrong with an argument.
 */
#ifndef STRATA_API_ZONE_PUBLIC_H
#define STRATA_API_ZONE_PUBLIC_H

#include "page/frames.h"
#include "strata/zone.h"

STRATA_INLINE struct frame_zone *zone_of(struct strata_zone *zone) { return (struct frame_zone *)(void *)zone; }
STRATA_INLINE struct strata_zone *public_zone(struct frame_zone *zone) { return (struct strata_zone *)(void *)zone; }

/* The end of a call that failed: kept with the zone, for strata_zone_explain. */
STRATA_INLINE enum strata_zone_status zone_failed(struct frame_zone *zone, const char *function, enum frames_status status, const char *argument,
                                                  uint64_t value, const char *allowed) {
    frames_complain(zone, function, &(struct frames_complaint){argument, allowed, value});
    return (enum strata_zone_status)status;
}
STRATA_INLINE enum strata_zone_status zone_bad(struct frame_zone *zone, const char *function, const char *argument, uint64_t value,
                                               const char *allowed) {
    return zone_failed(zone, function, FRAMES_BAD_ARGUMENT, argument, value, allowed);
}
/* Of an argument that is NULL; nobody can be told where that is the zone. */
STRATA_INLINE enum strata_zone_status zone_null(struct strata_zone *zone, const char *function, const char *argument) {
    return zone == NULL ? STRATA_ZONE_BAD_ARGUMENT : zone_bad(zone_of(zone), function, argument, 0, "not NULL");
}

#endif
