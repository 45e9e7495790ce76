/*
 * pager_room.c - which pages leave, and how: by the clock or the program's policy. All with the pager's lock held.
 */
#include "page/pager_internal.h"

#include "base/check.h"

/* Answers of a policy that can't be followed, beyond one for each page, before it is taken to have none. */
#define VAIN_MAX 64

void pager_tell_progress(struct pager *pager) {
    __atomic_fetch_add(&pager->progress, 1, __ATOMIC_RELEASE);
    platform_word_wake(&pager->progress);
}

void pager_wait_progress(struct pager *pager) {
    if (pager->jobs_under_way != 0 && __atomic_load_n(&pager->worker, __ATOMIC_RELAXED) == platform_thread_self()) {
        (void)pager_end_job(pager, true); /* nobody else will */
        return;
    }
    uint32_t seen = __atomic_load_n(&pager->progress, __ATOMIC_ACQUIRE); /* under the lock: what the caller waits for has not been told yet */
    platform_lock_release(&pager->lock);
    platform_word_wait(&pager->progress, seen);
    platform_lock_acquire(&pager->lock);
}

void pager_arrive(struct pager *pager, struct frame *frame) {
    const struct pager_policy *policy = &pager->config.policy;
    frames_set_state(&pager->frames, frame, FRAME_HELD);
    if (policy->enter != NULL) policy->enter(frame->page, policy->argument);
}

void pager_hold(struct pager *pager, struct frame *frame) {
    platform_paged_hide(&pager->memory, pager_offset(pager, frame->page), pager->page_bytes);
    frames_set_state(&pager->frames, frame, FRAME_HELD);
}

void pager_evict(struct pager *pager, struct frame *frame) {
    const struct pager_policy *policy = &pager->config.policy;
    uint32_t page = frame->page;
    if (frame->state == FRAME_MAPPED) pager_hold(pager, frame);
    platform_paged_drop(&pager->memory, pager_offset(pager, page), pager->page_bytes);
    frames_leave(&pager->frames, frame);
    pager->counters.evictions++;
    if (policy->leave != NULL) policy->leave(page, policy->argument);
}

static enum pager_action next_action(struct pager *pager, uint32_t *page) {
    const struct pager_policy *policy = &pager->config.policy;
    if (policy->next == NULL) return pager_clock_next(&pager->clock, &pager->frames, page);
    uint64_t wanted = 0;
    enum pager_action action = policy->next(&wanted, policy->argument);
    *page = (uint32_t)wanted;
    return wanted < pager->pages ? action : PAGER_NOTHING;
}

/* One that is dirty is written first, and leaves then unless somebody has used it meanwhile. */
static void write_and_evict(struct pager *pager, struct frame *frame) {
    uint32_t page = frame->page;
    if (frame->state == FRAME_MAPPED) pager_hold(pager, frame);
    (void)pager_write(pager, frame);
    frame = frames_find(&pager->frames, page);
    if (frame != NULL && frame->state == FRAME_HELD && !frame->dirty && !frame_is_busy(frame)) pager_evict(pager, frame);
}

enum pager_room pager_make_room(struct pager *pager, uint32_t pages) {
    bool let_go = false;
    for (unsigned vain = 0; pager->frames.resident + pages > pager->config.limit_pages;) {
        uint32_t page = 0;
        enum pager_action action = vain < VAIN_MAX + pager->frames.resident ? next_action(pager, &page) : PAGER_NOTHING;
        struct frame *frame = action == PAGER_NOTHING ? NULL : frames_find(&pager->frames, page);
        if (action == PAGER_NOTHING) {
            if (let_go) return PAGER_ROOM_AGAIN;
            if (pager->frames.loading + pager->frames.writing == 0) return PAGER_ROOM_NONE;
            pager_wait_progress(pager);
            return PAGER_ROOM_AGAIN;
        }
        if (frame == NULL || frame_is_busy(frame)) {
            vain++;
        } else if (action == PAGER_SAMPLE) {
            if (frame->state == FRAME_MAPPED) {
                pager_hold(pager, frame);
                pager->counters.samples++;
            } else {
                vain++;
            }
        } else if (!frame->dirty) {
            pager_evict(pager, frame);
        } else if (!pager_is_refused(pager)) {
            write_and_evict(pager, frame);
            let_go = true;
        } else {
            vain++;
        }
    }
    return let_go ? PAGER_ROOM_AGAIN : PAGER_ROOM;
}
