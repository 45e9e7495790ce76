/*
 * zone_fork.c - the zones of the process (strata/zone.h), and what becomes of them where it forks: page/frames_fork.c does it for each.
 *
 * Lock: zones.lock (LOCK_RANK_ARENAS), for the list; held from settle to the end of parent and child, so that one fork at a time settles zones. A
 * zone is in the list from its creation to the moment in which it is found that it goes.
 */
#include "api/zone_fork.h"

static struct {
    struct platform_lock lock;
    struct frame_zone *first; /* atomic for zones_exist */
} zones = {.lock = PLATFORM_LOCK_INIT(LOCK_RANK_ARENAS)};

bool zones_exist(void) { return __atomic_load_n(&zones.first, __ATOMIC_RELAXED) != NULL; }

void zones_enter(struct frame_zone *zone) {
    platform_lock_acquire(&zones.lock);
    *frames_zone_next(zone) = zones.first;
    __atomic_store_n(&zones.first, zone, __ATOMIC_RELAXED);
    platform_lock_release(&zones.lock);
}

static void leave(struct frame_zone *zone) {
    platform_lock_acquire(&zones.lock);
    struct frame_zone **link = &zones.first;
    while (*link != NULL && *link != zone) link = frames_zone_next(*link);
    if (*link == zone) __atomic_store_n(link, *frames_zone_next(zone), __ATOMIC_RELAXED);
    platform_lock_release(&zones.lock);
}

/* It is in the list until it is sure to go, and no longer than its memory is there: the child of a fork meanwhile may go on with one that stays. */
enum frames_status zones_destroy(struct frame_zone *zone) {
    enum frames_status status = frames_zone_end(zone);
    if (status != FRAMES_OK) return status;
    leave(zone);
    frames_zone_free(zone);
    return FRAMES_OK;
}

/* ------------------------------------------------------------------ fork */

void zones_fork_settle(void) {
    platform_lock_hold(&zones.lock);
    for (struct frame_zone *zone = zones.first; zone != NULL; zone = *frames_zone_next(zone)) frames_fork_settle(zone);
}
void zones_fork_prepare(void) {
    for (struct frame_zone *zone = zones.first; zone != NULL; zone = *frames_zone_next(zone)) frames_fork_prepare(zone);
}
void zones_fork_parent(void) {
    for (struct frame_zone *zone = zones.first; zone != NULL; zone = *frames_zone_next(zone)) frames_fork_parent(zone);
    platform_lock_unhold(&zones.lock);
}
void zones_fork_child(void) {
    for (struct frame_zone *zone = zones.first; zone != NULL; zone = *frames_zone_next(zone)) frames_fork_child(zone);
    platform_lock_unhold(&zones.lock);
}
