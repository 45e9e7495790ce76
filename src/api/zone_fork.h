/*
 * zone_fork.h - the zones of the process, for fork. Private to api/.
 */
#ifndef STRATA_API_ZONE_FORK_H
#define STRATA_API_ZONE_FORK_H

#include "page/frames.h"

/* A zone that was created; one that shall go, by frames_zone_end and _free. */
void zones_enter(struct frame_zone *zone);
enum frames_status zones_destroy(struct frame_zone *zone);

/* fork.c: settle before any other lock is taken, as it waits; the others while all of them are held. */
void zones_fork_settle(void);
void zones_fork_prepare(void);
void zones_fork_parent(void);
void zones_fork_child(void);
bool zones_exist(void);

#endif
