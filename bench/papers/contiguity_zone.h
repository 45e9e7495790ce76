/*
 * contiguity_zone.h - a zone of strata/zone.h as the loads of the contiguity paper see it: frames with owners that answer, and the counters that the
 * figures are drawn from. What the loads know of zones is here; contiguity_zone.c is what knows the library.
 *
 * Errors that a load can't go on from end the program with a message. One thread.
 */
#ifndef STRATA_PAPERS_CONTIGUITY_ZONE_H
#define STRATA_PAPERS_CONTIGUITY_ZONE_H

#include <stdbool.h>
#include <stdint.h>

#define PLACE_NONE UINT32_MAX
#define PLACE_FRAME_BYTES 4096u
#define PLACE_SUPERPAGE_ORDER 9u
#define PLACE_SUPERPAGE_FRAMES (1u << PLACE_SUPERPAGE_ORDER)

enum place_mobility { PLACE_UNMOVABLE, PLACE_RECLAIMABLE, PLACE_MOVABLE, PLACE_MOBILITIES };
enum place_reclaim { PLACE_REGULAR, PLACE_LINEAR, PLACE_AREA, PLACE_RECLAIMS };
enum place_answer { PLACE_BUSY, PLACE_DROPPED, PLACE_WRITTEN };

/* Asked with no lock held; `context` is that of place_open. */
struct place_events {
    /* The page `page` is to go from one frame to another, which holds its contents already where the zone copies. False: not now. */
    bool (*move)(void *context, uint64_t page, uint64_t from, uint64_t to);
    /* The page is to leave its frame. */
    enum place_answer (*reclaim)(void *context, uint64_t page, uint64_t frame);
};

struct place_config {
    const char *backend; /* sim, memfd */
    uint64_t frames;
    bool grouping, compaction, capture;
    enum place_reclaim reclaim;
    unsigned reserve_superpages;
};

struct place;

struct place *place_open(const struct place_config *config, const struct place_events *events, void *context);
void place_close(struct place *place);

/* 2^order frames for the page; `wait`: reclaim and compaction may be done for it. PLACE_NONE: none. */
uint32_t place_alloc(struct place *place, unsigned order, enum place_mobility mobility, uint64_t page, bool wait);
void place_free(struct place *place, uint32_t frame, unsigned order);
/* A superpage, by all means that the zone has. */
uint32_t place_alloc_superpage(struct place *place);
uint64_t place_free_frames(const struct place *place);
/* What a background reclaimer does when it is woken: below the low watermark it reclaims up to the high one. */
void place_balance(struct place *place);

/* The first word of a frame, as it is read and written by programs: both make it referenced, writing makes it dirty. */
void place_write(struct place *place, uint32_t frame, uint64_t word);
uint64_t place_read(struct place *place, uint32_t frame);
/* Whether it is as it was written; a read as well. */
bool place_holds(struct place *place, uint32_t frame, uint64_t word);

struct place_counters {
    uint64_t free_frames;
    uint64_t scanned, unmapped, written; /* by reclaim, as the paper counts */
    uint64_t moved, move_failed;         /* by compaction */
    uint64_t fallbacks, retyped;         /* allocations outside of their group, superpages that changed theirs */
    uint64_t captured, races_lost;       /* requests that had a capture; frames emptied for a request that went to others, as the zone counts them */
    double unusable_order_3, unusable_order_9; /* unusable free space index */
};
struct place_counters place_count(struct place *place);

/* How many frames of each mobility (by what they were allocated as), and free, a superpage has; the last is the superpage's group. */
struct place_mix {
    uint16_t allocated[PLACE_MOBILITIES], free;
    uint8_t group;
};
struct place_mix place_superpage(struct place *place, uint64_t superpage);
/* Ends the program where the zone's own check finds something. */
void place_check(struct place *place);

#endif
