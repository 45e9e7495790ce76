/*
 * pager_frames.c - see pager_frames.h. Pure: nothing here knows a kernel, a file or a lock.
 */
#include "page/pager_frames.h"

#include "base/check.h"

void frames_init(struct frames *frames, uint32_t *of_page, struct frame *array, uint32_t pages) {
    *frames =
        (struct frames){.of_page = of_page, .frames = array, .pages = pages, .free = FRAME_NIL, .dirty_first = FRAME_NIL, .dirty_last = FRAME_NIL};
}

static uint32_t number_of(const struct frames *frames, const struct frame *frame) { return (uint32_t)(frame - frames->frames); }

struct frame *frames_enter(struct frames *frames, uint32_t page) {
    CHECK(frames->of_page[page] == 0);
    uint32_t number = frames->free;
    if (number != FRAME_NIL)
        frames->free = frames->frames[number].next;
    else
        number = frames->high++;
    frames->frames[number] = (struct frame){.page = page, .next = FRAME_NIL, .prev = FRAME_NIL, .state = FRAME_LOADING};
    frames->of_page[page] = number + 1;
    frames->resident++;
    frames->loading++;
    return &frames->frames[number];
}

void frames_leave(struct frames *frames, struct frame *frame) {
    CHECK(frame->state != FRAME_FREE && !frame->dirty && !frame->writing);
    frames_set_state(frames, frame, FRAME_FREE);
    frames->of_page[frame->page] = 0;
    frames->resident--;
    frame->next = frames->free;
    frames->free = number_of(frames, frame);
}

void frames_set_state(struct frames *frames, struct frame *frame, enum frame_state state) {
    frames->mapped -= frame->state == FRAME_MAPPED;
    frames->loading -= frame->state == FRAME_LOADING;
    frame->state = (uint8_t)state;
    frames->mapped += state == FRAME_MAPPED;
    frames->loading += state == FRAME_LOADING;
}

void frames_set_dirty(struct frames *frames, struct frame *frame) {
    if (frame->dirty) return;
    frame->dirty = true;
    frame->next = FRAME_NIL;
    frame->prev = frames->dirty_last;
    if (frame->prev != FRAME_NIL)
        frames->frames[frame->prev].next = number_of(frames, frame);
    else
        frames->dirty_first = number_of(frames, frame);
    frames->dirty_last = number_of(frames, frame);
    frames->dirty++;
}

void frames_begin_writing(struct frames *frames, struct frame *frame) {
    CHECK(frame->dirty && !frame->writing);
    if (frame->prev != FRAME_NIL)
        frames->frames[frame->prev].next = frame->next;
    else
        frames->dirty_first = frame->next;
    if (frame->next != FRAME_NIL)
        frames->frames[frame->next].prev = frame->prev;
    else
        frames->dirty_last = frame->prev;
    frame->next = frame->prev = FRAME_NIL;
    frame->dirty = false;
    frame->writing = true;
    frames->dirty--;
    frames->writing++;
}

void frames_end_writing(struct frames *frames, struct frame *frame, bool failed) {
    CHECK(frame->writing);
    frame->writing = false;
    frames->writing--;
    if (failed) frames_set_dirty(frames, frame);
}

void frames_set_failed(struct frames *frames, uint32_t page, bool on) {
    CHECK(frames->of_page[page] == (on ? 0 : PAGE_FAILED));
    frames->of_page[page] = on ? PAGE_FAILED : 0;
    frames->failed += on ? 1 : UINT32_MAX;
}

static bool may_be_written(const struct frames *frames, uint32_t page) {
    const struct frame *frame = frames_find(frames, page);
    return frame != NULL && frame->dirty && !frame_is_busy(frame);
}

uint32_t frames_dirty_stretch(const struct frames *frames, const struct frame *frame, uint32_t most, uint32_t *first_page) {
    uint32_t first = frame->page, end = first;
    while (end < frames->pages && end - first < most && may_be_written(frames, end)) end++;
    if (end == first) return 0;
    while (first > 0 && end - first < most && may_be_written(frames, first - 1)) first--;
    *first_page = first;
    return end - first;
}

const char *frames_check(const struct frames *frames) {
    uint32_t resident = 0, mapped = 0, loading = 0, dirty = 0, writing = 0, failed = 0, listed = 0, free_frames = 0;
    for (uint32_t page = 0; page < frames->pages; page++) {
        const struct frame *frame = frames_find(frames, page);
        failed += frames_failed(frames, page);
        if (frame == NULL) continue;
        if (frame->page != page || frame->state == FRAME_FREE || number_of(frames, frame) >= frames->high) return "frames: a page has no frame";
        if (frame->state == FRAME_LOADING && (frame->dirty || frame->writing)) return "frames: a page that is read is dirty";
        resident++;
        mapped += frame->state == FRAME_MAPPED;
        loading += frame->state == FRAME_LOADING;
        dirty += frame->dirty;
        writing += frame->writing;
    }
    for (uint32_t i = frames->dirty_first, before = FRAME_NIL; i != FRAME_NIL; before = i, i = frames->frames[i].next, listed++)
        if (!frames->frames[i].dirty || frames->frames[i].prev != before || listed > frames->high) return "frames: the list of dirty ones is broken";
    for (uint32_t i = frames->free; i != FRAME_NIL; i = frames->frames[i].next, free_frames++)
        if (frames->frames[i].state != FRAME_FREE || free_frames > frames->high) return "frames: the list of free ones is broken";
    if (resident + free_frames != frames->high) return "frames: some are neither used nor free";
    if (resident != frames->resident || mapped != frames->mapped || loading != frames->loading || failed != frames->failed)
        return "frames: a count of pages is wrong";
    if (dirty != frames->dirty || dirty != listed || writing != frames->writing) return "frames: a count of dirty pages is wrong";
    return NULL;
}
