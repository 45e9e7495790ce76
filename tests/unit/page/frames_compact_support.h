/*
 * frames_compact_support.h - a small zone without memory, an owner that keeps account of its blocks, and contents that say whose they are.
 */
#ifndef UNIT_PAGE_FRAMES_COMPACT_SUPPORT_H
#define UNIT_PAGE_FRAMES_COMPACT_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "page/frames_compact.h"
#include "platform/sim/sim.h"
#include "unit/page/frames_destroy.h"

enum { SUPERPAGE_FRAMES = 512, BLOCKS_MAX = 32768 };

struct owned {
    uint64_t frame, frames;
    unsigned moves; /* in this pass */
    bool live, pinned;
};
static struct owned owned[BLOCKS_MAX];
static uint64_t owned_count;
static struct frame_zone *zone;
static unsigned owner;
static const char *wrong; /* what a function of the owner found */
static enum frames_answer answer = FRAMES_YES;
static uint64_t asked;
static void (*within)(uint64_t token); /* runs in migrate */

static inline uint64_t next_random(uint64_t *seed) {
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 33;
}

static uint64_t word_of(uint64_t token, uint64_t i) { return (token + 1) << 16 | i; }

static enum frames_answer migrate(struct frame_zone *from_zone, const struct frames_owner *self, uint64_t from, uint64_t to, uint64_t frames,
                                  uint64_t token) {
    (void)self;
    struct owned *block = &owned[token];
    asked++;
    if (!block->live) return FRAMES_LATER; /* freed since it was isolated */
    if (block->frame != from || block->frames != frames) wrong = "the wrong block is moved";
    if (block->pinned) wrong = "a pinned block is moved";
    if (answer != FRAMES_YES) return answer;
    if (++block->moves > 1) wrong = "a block is moved twice in a pass";
    if (to <= from) wrong = "a block is moved down";
    frames_copy(from_zone, from, to, frames);
    block->frame = to;
    if (within != NULL) within(token);
    return FRAMES_YES;
}

static inline void zone_open_with(uint64_t superpages, unsigned flags) {
    const struct frames_config config = {
        .name = "test", .backend = FRAMES_SIM, .bytes = superpages * FRAMES_SUPERPAGE_BYTES, .frame_bytes = 4096, .cpus = 2, .flags = flags};
    const struct frames_owner description = {.name = "owner", .migrate = migrate};
    zone = NULL;
    wrong = NULL;
    answer = FRAMES_YES;
    within = NULL;
    asked = owned_count = 0;
    memset(owned, 0, sizeof owned);
    if (frames_zone_create(&config, &zone) != FRAMES_OK || frames_owner_add(zone, &description, &owner) != FRAMES_OK) fatal("test: no zone");
    frames_set_effort(zone, 0);
}

/* A movable block of the owner. False: no room. */
static inline bool own(uint64_t frames) {
    struct owned *block = &owned[owned_count];
    const struct frames_request request = {.frames = frames, .mobility = FRAMES_MOVABLE, .owner = owner, .token = owned_count};
    if (frames_alloc(zone, &request, &block->frame) != FRAMES_OK) return false;
    block->frames = frames;
    block->live = true;
    for (uint64_t i = 0; i < frames; i++) frames_poke(zone, block->frame + i, word_of(owned_count, i));
    owned_count++;
    return true;
}

/* The block that is in the way of the lowest region. */
static inline uint64_t lowest(void) {
    uint64_t found = 0, frame = UINT64_MAX;
    for (uint64_t i = 0; i < owned_count; i++)
        if (owned[i].live && owned[i].frame < frame) found = i, frame = owned[i].frame;
    return found;
}

static inline void disown(uint64_t token) {
    uint64_t at;
    owned[token].live = false;
    if (frames_free(zone, owned[token].frame, owned[token].frames, &at) != FRAMES_OK) wrong = "a block can't be freed";
}

/* All of the zone in blocks of a frame, of which one in `keep` stays. */
static inline void make_sparse(unsigned keep, uint64_t *seed) {
    while (own(1)) continue;
    for (uint64_t i = 0; i < owned_count; i++)
        if (next_random(seed) % keep != 0) disown(i);
}

static inline uint64_t live_frames(void) {
    uint64_t frames = 0;
    for (uint64_t i = 0; i < owned_count; i++) frames += owned[i].live ? owned[i].frames : 0;
    return frames;
}

/* NULL, or what is wrong with the contents, the zone, or was found before. */
static inline const char *look_over(void) {
    for (uint64_t token = 0; token < owned_count && wrong == NULL; token++) {
        const struct owned *block = &owned[token];
        struct frames_info info;
        for (uint64_t i = 0; block->live && i < block->frames; i++)
            if (frames_peek(zone, block->frame + i) != word_of(token, i)) wrong = "contents were lost";
        if (!block->live) continue;
        if (frames_query(zone, block->frame, &info) != FRAMES_OK || info.first != block->frame || info.frames != block->frames)
            wrong = "a block has other bounds";
        if (info.owner != owner || info.token != token || info.mobility != FRAMES_MOVABLE || info.moving) wrong = "a block is somebody else's";
    }
    if (wrong == NULL) wrong = frames_zone_check(zone);
    return wrong;
}
static inline void check_all(void) {
    const char *text = look_over();
    if (text != NULL) fail_msg("%s", text);
}

static inline void new_pass(void) {
    for (uint64_t i = 0; i < owned_count; i++) owned[i].moves = 0;
}

static inline struct frames_stats stats_now(void) {
    struct frames_stats stats;
    frames_stats_get(zone, &stats);
    return stats;
}

#endif
