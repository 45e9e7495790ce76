/*
 * frames_support.h - what the tests of placing and freeing frames share: one zone on a fresh simulated machine, sound when it is closed.
 */
#ifndef STRATA_TESTS_UNIT_PAGE_FRAMES_SUPPORT_H
#define STRATA_TESTS_UNIT_PAGE_FRAMES_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "page/frames_internal.h"
#include "platform/sim/sim.h"
#include "unit/page/frames_destroy.h"

enum { SUPERPAGE = 512 };
static struct frame_zone *zone;

static inline void open_with(uint64_t superpages, uint64_t reserve, uint64_t partition, unsigned flags) {
    const struct frames_config config = {.name = "test",
                                         .backend = FRAMES_SIM,
                                         .bytes = superpages * FRAMES_SUPERPAGE_BYTES,
                                         .reserve_bytes = reserve * FRAMES_SUPERPAGE_BYTES,
                                         .partition_bytes = partition * FRAMES_SUPERPAGE_BYTES,
                                         .frame_bytes = 4096,
                                         .cpus = 2,
                                         .flags = flags};
    sim_reset(NULL);
    assert_int_equal(frames_zone_create(&config, &zone), FRAMES_OK);
}
static inline void close_zone(void) {
    assert_null(frames_zone_check(zone));
    assert_int_equal(frames_zone_destroy(zone), FRAMES_OK);
    assert_int_equal(sim_reserved_bytes(), 0);
}
static inline uint64_t alloc_flags(uint64_t frames, enum frames_mobility mobility, unsigned flags) {
    const struct frames_request request = {.frames = frames, .mobility = mobility, .flags = flags};
    uint64_t frame;
    return frames_alloc(zone, &request, &frame) == FRAMES_OK ? frame : FRAMES_NONE;
}
static inline uint64_t alloc(uint64_t frames, enum frames_mobility mobility) { return alloc_flags(frames, mobility, 0); }
static inline void release(uint64_t frame, uint64_t frames) {
    uint64_t at;
    assert_int_equal(frames_free(zone, frame, frames, &at), FRAMES_OK);
}

#endif
