/*
 * pager_server.c - the thread that answers faults. What it does takes a read of the file at most, and a write or two where room or the dirty
 * limit want it; the program's threads that meet other pages meanwhile wait their turn.
 *
 * Whatever a fault says is looked at anew under the lock, as other threads may have had the same page in the meantime: the state of the page
 * decides, not the fault.
 */
#include "page/pager_internal.h"

#include "base/check.h"

#define FAULTS_AT_ONCE 16
#define BREAK_PAUSE_NS UINT64_C(1000000)

/*
 * Whoever touches a page that has failed is to get SIGBUS. As long as the system refuses the mapping that this takes, its thread is back at once and
 * there is a try for each time that it comes; neither the file nor the handler is asked again. The pause, without the lock, keeps that from being all
 * that a processor does; other faults wait as long.
 */
static void break_page(struct pager *pager, uint32_t page) {
    struct platform_event nobody = {0};
    if (platform_paged_break(&pager->memory, pager_offset(pager, page))) return;
    platform_lock_release(&pager->lock);
    (void)platform_event_wait(&nobody, BREAK_PAUSE_NS);
    platform_lock_acquire(&pager->lock);
}

static void fail_page(struct pager *pager, uint32_t page) {
    frames_set_failed(&pager->frames, page, true);
    break_page(pager, page);
}

/* An absent page. False: look again; true: nothing more is to be done. */
static bool bring(struct pager *pager, uint32_t page) {
    enum pager_room room = pager_make_room(pager, 1);
    if (room == PAGER_ROOM_AGAIN) return false;
    if (room == PAGER_ROOM_NONE && pager->refused) {
        fail_page(pager, page);
        return true;
    }
    pager->counters.beyond_limit += room == PAGER_ROOM_NONE;
    struct frame *frame = frames_enter(&pager->frames, page);
    if (!pager_read_or_decide(pager, page)) {
        platform_paged_drop(&pager->memory, pager_offset(pager, page), pager->page_bytes);
        frames_leave(&pager->frames, frame);
        fail_page(pager, page);
        pager_tell_progress(pager); /* the worker may wait for the frame, and there may be nothing else that tells it */
        return true;
    }
    pager_arrive(pager, frame);
    pager_tell_progress(pager);
    return false;
}

/* A page is about to become dirty. False: room was made among those that are, and the lock let go for it. */
static bool dirty_limit_allows(struct pager *pager) {
    struct frames *frames = &pager->frames;
    if (frames->dirty + frames->writing < pager->config.dirty_limit_pages || pager_is_refused(pager)) return true;
    if (frames->writing != 0)
        pager_wait_progress(pager);
    else
        (void)pager_write(pager, &frames->frames[frames->dirty_first]);
    return false;
}

/* False: look again. */
static bool serve_once(struct pager *pager, uint32_t page, bool write) {
    struct frames *frames = &pager->frames;
    if (frames_failed(frames, page)) {
        break_page(pager, page); /* where it is broken already, that only wakes */
        return true;
    }
    struct frame *frame = frames_find(frames, page);
    if (frame == NULL) return bring(pager, page);
    if (frame->state == FRAME_LOADING) { /* by the worker */
        frame->waited = true;
        return true;
    }
    if ((write || pager->all_dirty) && !frame->dirty) {
        if (!dirty_limit_allows(pager)) return false;
        frames_set_dirty(frames, frame);
        if (frames->dirty > pager->config.dirty_limit_pages / 2) platform_event_wake(&pager->work);
    }
    pager_map(pager, frame);
    if (pager->config.policy.touch != NULL) pager->config.policy.touch(page, pager->config.policy.argument);
    return true;
}

static void serve(struct pager *pager, uint32_t page, bool write) {
    uint32_t first = 0;
    platform_lock_acquire(&pager->lock);
    pager->counters.faults++;
    uint32_t count = pager_streams_note(&pager->streams, page, pager->config.window_pages, pager->pages, &first);
    if (count != 0) pager_queue_ahead(pager, first, count);
    while (!serve_once(pager, page, write)) continue;
    platform_lock_release(&pager->lock);
}

void pager_server(void *argument) {
    struct pager *pager = argument;
    for (;;) {
        struct platform_fault faults[FAULTS_AT_ONCE];
        unsigned count = 0;
        enum platform_faults_status status = platform_paged_wait(&pager->memory, faults, FAULTS_AT_ONCE, &count);
        for (unsigned i = 0; i < count; i++)
            serve(pager, (uint32_t)((size_t)(faults[i].page - pager->memory.block) / pager->page_bytes), faults[i].write);
        if (status != PLATFORM_FAULTS_OK) {
            platform_paged_seal(&pager->memory);
            log_line("strata_paging: the program has closed a file descriptor of strata's: the block at %p can't be used any more",
                     (void *)pager->memory.block);
            break;
        }
        if (count == 0 && __atomic_load_n(&pager->stopping, __ATOMIC_ACQUIRE)) break;
    }
    pager_thread_ends(pager);
}
