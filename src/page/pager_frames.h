/*
 * pager_frames.h - which pages of a paged block are in memory, and in what state: the book-keeping of the pager, without kernel or file.
 *
 * A page is absent, failed, or has a frame. A frame is LOADING while its page is read, HELD when the page is in memory and nobody can reach it,
 * MAPPED when the program can. Its page is dirty when the file has older contents; `writing`, when these are on their way; both, when it changed
 * meanwhile. Only dirty mapped pages can be written to without a fault.
 *
 * The tables are as large as the block has pages, in address space that takes memory where it is used; all functions but enter and oldest's
 * search take constant time. Invariants: frames_check. Guarded by the pager's lock.
 */
#ifndef STRATA_PAGE_PAGER_FRAMES_H
#define STRATA_PAGE_PAGER_FRAMES_H

#include "base/base.h"

#define FRAME_NIL UINT32_MAX
#define PAGER_PAGES_MAX (UINT32_MAX - 2)

enum frame_state { FRAME_FREE, FRAME_LOADING, FRAME_HELD, FRAME_MAPPED };

struct frame {
    uint32_t page;
    uint32_t next, prev; /* dirty: by the time it became so; free: next only */
    uint8_t state;       /* enum frame_state */
    bool dirty, writing;
    bool waited; /* LOADING: a thread waits for it, who must be woken */
};

struct frames {
    uint32_t *of_page; /* frame + 1; 0: absent; PAGE_FAILED */
    struct frame *frames;
    uint32_t pages;
    uint32_t high; /* frames from here on were never used */
    uint32_t free; /* the last that was given back, linked by next */
    uint32_t dirty_first, dirty_last;
    uint32_t resident, mapped, loading, dirty, writing, failed; /* how many */
};
#define PAGE_FAILED UINT32_MAX

/* Both arrays of `pages` elements, of zeros. */
void frames_init(struct frames *frames, uint32_t *of_page, struct frame *array, uint32_t pages);

STRATA_INLINE bool frames_failed(const struct frames *frames, uint32_t page) { return frames->of_page[page] == PAGE_FAILED; }
/* NULL: absent or failed. */
STRATA_INLINE struct frame *frames_find(const struct frames *frames, uint32_t page) {
    uint32_t number = frames->of_page[page];
    return number == 0 || number == PAGE_FAILED ? NULL : &frames->frames[number - 1];
}
STRATA_INLINE bool frame_is_busy(const struct frame *frame) { return frame->state == FRAME_LOADING || frame->writing; }

/* An absent page gets a frame, LOADING. */
struct frame *frames_enter(struct frames *frames, uint32_t page);
/* A page that is neither dirty nor being written is absent again. */
void frames_leave(struct frames *frames, struct frame *frame);
void frames_set_state(struct frames *frames, struct frame *frame, enum frame_state state);
/* Becomes the youngest of the dirty ones; of one that is: nothing. */
void frames_set_dirty(struct frames *frames, struct frame *frame);
/* Dirty pages on their way to the file, and where that ends; failed: dirty again. */
void frames_begin_writing(struct frames *frames, struct frame *frame);
void frames_end_writing(struct frames *frames, struct frame *frame, bool failed);
/* An absent page can't be had (on), or may be asked for again (off). */
void frames_set_failed(struct frames *frames, uint32_t page, bool on);
/* The stretch of at most `most` neighbouring pages round one that are dirty and not busy. Returns their number, 0 where the one is not. */
uint32_t frames_dirty_stretch(const struct frames *frames, const struct frame *frame, uint32_t most, uint32_t *first_page);

/* NULL, or the invariant that does not hold. Linear in the pages. */
const char *frames_check(const struct frames *frames);

#endif
