/*
 * pager_worker.c - the thread that works ahead and behind: it reads what the program will want, writes what is dirty before that is too much, and
 * does what calls wait for. See pager.h.
 */
#include "page/pager_internal.h"

#include "base/check.h"

/* ------------------------------------------------------------------ reading ahead */

void pager_queue_ahead(struct pager *pager, uint32_t first, uint32_t count) {
    unsigned place = (pager->ahead_head + pager->ahead_count) % PAGER_AHEAD_QUEUE;
    if (pager->ahead_count == PAGER_AHEAD_QUEUE)
        pager->ahead_head = (pager->ahead_head + 1) % PAGER_AHEAD_QUEUE; /* the oldest is the least worth */
    else
        pager->ahead_count++;
    pager->ahead[place].first = first;
    pager->ahead[place].count = count;
    platform_event_wake(&pager->work);
}

/* What was read, or could not be: who waits for it is served, or asks the server again, which then sees to the error. */
static void settle(struct pager *pager, uint32_t page, bool ok) {
    struct frame *frame = frames_find(&pager->frames, page);
    bool waited = frame->waited;
    frame->waited = false;
    if (!ok) {
        platform_paged_drop(&pager->memory, pager_offset(pager, page), pager->page_bytes);
        frames_leave(&pager->frames, frame);
        if (waited) platform_paged_wake(&pager->memory, pager_offset(pager, page), pager->page_bytes);
        return;
    }
    pager_arrive(pager, frame);
    if (!waited) return;
    if (pager->all_dirty)
        platform_paged_wake(&pager->memory, pager_offset(pager, page), pager->page_bytes); /* the server sees to the dirty limit */
    else
        pager_map(pager, frame);
}

static void settle_all(struct pager *pager, uint32_t first, uint32_t count, bool ok) {
    if (ok) pager->counters.ahead += count;
    for (uint32_t i = 0; i < count; i++) settle(pager, first + i, ok);
    pager_tell_progress(pager);
}

void pager_end_read(struct pager *pager, uint32_t first, uint32_t count, int error) {
    if (error == 0)
        pager->counters.reads += count;
    else
        pager->counters.read_errors++;
    settle_all(pager, first, count, error == 0);
}

static bool is_absent(const struct pager *pager, uint32_t page) { return pager->frames.of_page[page] == 0; }

/* A piece of what is first in the queue. */
static void read_ahead(struct pager *pager) {
    uint32_t first = pager->ahead[pager->ahead_head].first, count = pager->ahead[pager->ahead_head].count, piece = 0;
    uint32_t most = (uint32_t)min_u64(min_u64(count, PAGER_PIECE_PAGES), pager->config.limit_pages / 4);
    while (count != 0 && !is_absent(pager, first)) first++, count--;
    while (piece < min_u64(most, count) && is_absent(pager, first + piece)) piece++;
    enum pager_room room = piece == 0 ? PAGER_ROOM_NONE : pager_make_room(pager, piece);
    if (room == PAGER_ROOM_AGAIN) return;
    if (room == PAGER_ROOM_NONE) count = piece = 0; /* nothing is left to do, or no room to do it */
    pager->ahead[pager->ahead_head].first = first + piece;
    pager->ahead[pager->ahead_head].count = count - piece;
    if (count == piece) {
        pager->ahead_head = (pager->ahead_head + 1) % PAGER_AHEAD_QUEUE;
        pager->ahead_count--;
    }
    if (piece == 0) return;
    for (uint32_t i = 0; i < piece; i++) frames_enter(&pager->frames, first + i);
    if (pager_begin_read(pager, first, piece)) return;
    int error = pager_read(pager, first, piece);
    settle_all(pager, first, piece, error == 0);
}

/* ------------------------------------------------------------------ what calls wait for */

/* A frame of the range, none of whose pages is on its way; false: no longer one of it. */
static bool wait_for(struct pager *pager, const struct frame *frame, const struct pager_request *request) {
    for (;;) {
        if (frame->state == FRAME_FREE || frame->page < request->first || frame->page >= request->end) return false;
        if (!frame_is_busy(frame)) return true;
        pager_wait_progress(pager);
    }
}

/* What was to be read ahead of a range that is not needed. */
static void forget_ahead(struct pager *pager, uint32_t first, uint32_t end) {
    for (unsigned i = 0; i < pager->ahead_count; i++) {
        unsigned place = (pager->ahead_head + i) % PAGER_AHEAD_QUEUE;
        uint32_t from = pager->ahead[place].first, to = from + pager->ahead[place].count;
        if (from < end && first < to) pager->ahead[place].count = from < first ? first - from : 0;
    }
}

/*
 * A page that had failed is read anew, and then absent, unless somebody wrote to it on the way. It has no frame meanwhile: nobody else sees to pages
 * that have failed.
 */
static void forgive(struct pager *pager, uint32_t page) {
    size_t offset = pager_offset(pager, page);
    bool written = false;
    bool back = pager_read_or_decide(pager, page) && platform_paged_mend(&pager->memory, offset, &written);
    if (!written) platform_paged_drop(&pager->memory, offset, pager->page_bytes);
    if (!back) return;
    frames_set_failed(&pager->frames, page, false);
    if (!written) return;
    struct frame *frame = frames_enter(&pager->frames, page);
    pager_arrive(pager, frame);
    frames_set_dirty(&pager->frames, frame);
}

static void forgive_all(struct pager *pager, uint32_t first, uint32_t end) {
    for (uint32_t page = first; page < end && pager->frames.failed != 0; page++)
        if (frames_failed(&pager->frames, page)) forgive(pager, page);
}

static int fulfil(struct pager *pager, const struct pager_request *request) {
    if (request->wish == PAGER_WISH_EVICT) {
        forget_ahead(pager, request->first, request->end);
        forgive_all(pager, request->first, request->end);
    }
    for (uint32_t i = 0; i < pager->frames.high; i++) {
        struct frame *frame = &pager->frames.frames[i];
        if (!wait_for(pager, frame, request)) continue;
        if (request->wish == PAGER_WISH_EVICT && frame->state == FRAME_MAPPED) pager_hold(pager, frame);
        int error = frame->dirty ? pager_write(pager, frame) : 0;
        if (error != 0) return error;
        if (request->wish == PAGER_WISH_EVICT && wait_for(pager, frame, request) && frame->state == FRAME_HELD && !frame->dirty)
            pager_evict(pager, frame);
    }
    if (request->wish == PAGER_WISH_EVICT) return 0;
    platform_lock_release(&pager->lock);
    int error = platform_store_sync(&pager->store);
    platform_lock_acquire(&pager->lock);
    return error;
}

static void serve_request(struct pager *pager) {
    struct pager_request *request = CONTAINER_OF(pager->requests.next, struct pager_request, link);
    list_remove(&request->link);
    request->error = fulfil(pager, request);
    __atomic_store_n(&request->done, 1, __ATOMIC_RELEASE);
    platform_word_wake(&request->done); /* which may be gone by now: then nobody sleeps there */
}

/* ------------------------------------------------------------------ the thread */

static bool should_write(const struct pager *pager) {
    return pager->frames.dirty > pager->config.dirty_limit_pages / 2 && !pager->frames.frames[pager->frames.dirty_first].writing;
}

static void write_behind(struct pager *pager) {
    struct frame *frame = &pager->frames.frames[pager->frames.dirty_first];
    uint32_t page = frame->page;
    if (pager_begin_write(pager, frame)) return;
    frame = frames_find(&pager->frames, page); /* the lock may have been let go */
    if (frame != NULL && frame->dirty && !frame_is_busy(frame)) (void)pager_write(pager, frame);
}

void pager_worker(void *argument) {
    struct pager *pager = argument;
    __atomic_store_n(&pager->worker, platform_thread_self(), __ATOMIC_RELAXED);
    platform_lock_acquire(&pager->lock);
    while (!pager->stopping) {
        while (pager_end_job(pager, false)) continue;
        bool refused = pager_is_refused(pager), behind = should_write(pager);
        if (!list_empty(&pager->requests)) {
            serve_request(pager);
        } else if (behind && !refused) {
            write_behind(pager);
        } else if (pager->ahead_count != 0) {
            read_ahead(pager);
        } else if (!pager_end_job(pager, true)) {
            platform_lock_release(&pager->lock);
            (void)platform_event_wait(&pager->work, behind ? PAGER_REFUSED_NS : UINT64_MAX);
            platform_lock_acquire(&pager->lock);
        }
    }
    while (pager_end_job(pager, true)) continue;
    platform_lock_release(&pager->lock);
    pager_thread_ends(pager);
}
