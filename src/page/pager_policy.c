/*
 * pager_policy.c - the clock of two hands, and the recognition of sequences. See pager_policy.h.
 */
#include "page/pager_policy.h"

enum pager_action pager_clock_next(struct pager_clock *clock, const struct frames *frames, uint32_t *page) {
    uint64_t round = frames->high;
    for (; clock->steps < 3 * round; clock->steps++) {
        if (clock->hand >= frames->high) clock->hand = 0;
        if (!clock->sampled) {
            clock->sampled = true;
            const struct frame *front = &frames->frames[((uint64_t)clock->hand + clock->distance) % round];
            if (front->state == FRAME_MAPPED && !frame_is_busy(front)) {
                *page = front->page;
                return PAGER_SAMPLE;
            }
        }
        const struct frame *frame = &frames->frames[clock->hand++];
        clock->sampled = false;
        bool unused = frame->state == FRAME_HELD || (frame->state == FRAME_MAPPED && clock->steps >= 2 * round);
        if (unused && !frame_is_busy(frame)) {
            *page = frame->page;
            clock->steps = 0;
            return PAGER_EVICT;
        }
    }
    clock->steps = 0;
    return PAGER_NOTHING;
}

static struct pager_stream *find(struct pager_streams *streams, uint32_t page) {
    for (unsigned i = 0; i < PAGER_STREAMS; i++) {
        struct pager_stream *stream = &streams->streams[i];
        if (stream->expected != 0 && page >= stream->expected && page <= stream->end) return stream;
    }
    return NULL;
}

uint32_t pager_streams_note(struct pager_streams *streams, uint32_t page, uint32_t window_pages, uint32_t pages, uint32_t *first) {
    struct pager_stream *stream = find(streams, page);
    if (stream == NULL) {
        streams->streams[streams->oldest] = (struct pager_stream){.expected = page + 1, .end = page + 1};
        streams->oldest = (streams->oldest + 1) % PAGER_STREAMS;
        return 0;
    }
    stream->expected = page + 1;
    if (stream->end < page + 1) stream->end = page + 1;
    if (window_pages == 0 || stream->end - (page + 1) > window_pages / 2) return 0;
    uint32_t end = (uint32_t)min_u64((uint64_t)page + 1 + window_pages, pages);
    if (end <= stream->end) return 0;
    *first = stream->end;
    stream->end = end;
    return end - *first;
}
