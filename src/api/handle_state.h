/*
 * handle_state.h - the state of one handle in one word, and the steps that it may take. Pure: handle_api.c makes them atomic.
 *
 *   readers   read guards. A move may begin and copy beside them, but changes the place only when there are none
 *   pins      locks. No move begins or ends beside one
 *   WRITER    a write guard; for a moment the mover, when it changes the place
 *   MOVING    the mover copies. Whoever can't have that sets WAITED and sleeps; the mover looks at each frame, and gives up
 *   WAITED    somebody sleeps: whoever changes the state next takes the mark away and wakes all
 *   LIVE      the place is a block's. Generation: of how many blocks it was the place before
 *
 * Invariant: WRITER without MOVING excludes readers and MOVING; MOVING excludes pins.
 */
#ifndef STRATA_API_HANDLE_STATE_H
#define STRATA_API_HANDLE_STATE_H

#include "base/base.h"

#define HANDLE_READER UINT64_C(1)
#define HANDLE_COUNT_MAX UINT64_C(0xfffff)
#define HANDLE_PIN_SHIFT 20
#define HANDLE_PIN (UINT64_C(1) << HANDLE_PIN_SHIFT)
#define HANDLE_WRITER (UINT64_C(1) << 40)
#define HANDLE_MOVING (UINT64_C(1) << 41)
#define HANDLE_WAITED (UINT64_C(1) << 42)
#define HANDLE_LIVE (UINT64_C(1) << 43)
#define HANDLE_GENERATION_SHIFT 44

enum handle_step {
    HANDLE_DONE,
    HANDLE_WAIT, /* then again */
    HANDLE_GONE, /* no such handle */
    HANDLE_FULL, /* as many as can be counted */
    HANDLE_IDLE, /* there is none to end */
    HANDLE_HELD, /* in use, or readers are left */
    HANDLE_GIVE_UP,
};

STRATA_INLINE uint64_t handle_readers(uint64_t state) { return state & HANDLE_COUNT_MAX; }
STRATA_INLINE uint64_t handle_pins(uint64_t state) { return state >> HANDLE_PIN_SHIFT & HANDLE_COUNT_MAX; }
STRATA_INLINE uint64_t handle_generation(uint64_t state) { return state >> HANDLE_GENERATION_SHIFT; }

/* Steps: next is what the state becomes where the answer is DONE, WAIT or GIVE_UP. */
typedef enum handle_step handle_step_function(uint64_t state, uint64_t *next);

STRATA_INLINE enum handle_step handle_wait(uint64_t state, uint64_t *next) {
    *next = state | HANDLE_WAITED;
    return HANDLE_WAIT;
}
/* Without WAITED: who takes it away wakes. */
STRATA_INLINE enum handle_step handle_done(uint64_t state, uint64_t *next) {
    *next = state & ~HANDLE_WAITED;
    return HANDLE_DONE;
}

/* ------------------------------------------------------------------ the program's */

static inline enum handle_step handle_read(uint64_t state, uint64_t *next) {
    if ((state & HANDLE_WRITER) != 0) return handle_wait(state, next);
    if (handle_readers(state) == HANDLE_COUNT_MAX) return HANDLE_FULL;
    *next = state + HANDLE_READER; /* takes nobody's turn: who waits for something goes on waiting */
    return HANDLE_DONE;
}
static inline enum handle_step handle_read_end(uint64_t state, uint64_t *next) {
    return handle_readers(state) == 0 ? HANDLE_IDLE : handle_done(state - HANDLE_READER, next);
}
static inline enum handle_step handle_write(uint64_t state, uint64_t *next) {
    if ((state & (HANDLE_WRITER | HANDLE_MOVING)) != 0 || handle_readers(state) != 0) return handle_wait(state, next);
    *next = state | HANDLE_WRITER;
    return HANDLE_DONE;
}
static inline enum handle_step handle_write_end(uint64_t state, uint64_t *next) {
    return (state & (HANDLE_WRITER | HANDLE_MOVING)) != HANDLE_WRITER ? HANDLE_IDLE : handle_done(state & ~HANDLE_WRITER, next);
}
static inline enum handle_step handle_pin(uint64_t state, uint64_t *next) {
    if ((state & HANDLE_MOVING) != 0) return handle_wait(state, next);
    if (handle_pins(state) == HANDLE_COUNT_MAX) return HANDLE_FULL;
    *next = state + HANDLE_PIN;
    return HANDLE_DONE;
}
static inline enum handle_step handle_unpin(uint64_t state, uint64_t *next) {
    return handle_pins(state) == 0 ? HANDLE_IDLE : handle_done(state - HANDLE_PIN, next);
}
/* Before the block is freed: as a writer, so that nobody else has it. */
static inline enum handle_step handle_free_begin(uint64_t state, uint64_t *next) {
    if ((state & HANDLE_MOVING) != 0) return handle_wait(state, next);
    if ((state & HANDLE_WRITER) != 0 || handle_readers(state) != 0 || handle_pins(state) != 0) return HANDLE_HELD;
    *next = state | HANDLE_WRITER;
    return HANDLE_DONE;
}
static inline enum handle_step handle_free_end(uint64_t state, uint64_t *next) {
    *next = (handle_generation(state) + 1) << HANDLE_GENERATION_SHIFT;
    return HANDLE_DONE;
}

/* ------------------------------------------------------------------ the mover's */

static inline enum handle_step handle_move_begin(uint64_t state, uint64_t *next) {
    if ((state & (HANDLE_WRITER | HANDLE_MOVING | HANDLE_WAITED)) != 0 || handle_pins(state) != 0) return HANDLE_HELD;
    *next = state | HANDLE_MOVING;
    return HANDLE_DONE;
}
/* The copy is done: from here on nobody gets in until handle_move_end. */
static inline enum handle_step handle_move_switch(uint64_t state, uint64_t *next) {
    if ((state & HANDLE_WAITED) != 0) return HANDLE_GIVE_UP;
    if (handle_readers(state) != 0) return HANDLE_HELD;
    *next = state | HANDLE_WRITER;
    return HANDLE_DONE;
}
static inline enum handle_step handle_move_end(uint64_t state, uint64_t *next) { return handle_done(state & ~(HANDLE_WRITER | HANDLE_MOVING), next); }

#endif
