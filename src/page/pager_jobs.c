/*
 * pager_jobs.c - what the worker has the file do meanwhile: stretches of pages that are read ahead or written behind, several at a time, where the
 * system can do that. All on the worker's thread, with the pager's lock held.
 *
 * The frames of a job are LOADING or `writing` until it has ended, as they are while a thread reads or writes them itself. Whoever waits for one of
 * them waits for the worker; the worker, when it waits, for its own jobs: pager_wait_progress knows it by its number. A job that fails is seen to as
 * the same read or write without a job is.
 */
#include "page/pager_internal.h"

#include "base/check.h"

static struct pager_job *free_job(struct pager *pager) {
    if (pager->ring == NULL) return NULL;
    for (unsigned i = 0; i < PAGER_JOBS; i++)
        if (pager->jobs[i].count == 0) return &pager->jobs[i];
    return NULL;
}

/* False: nothing has begun. */
static bool begin(struct pager *pager, bool write, uint32_t first, uint32_t count) {
    struct pager_job *job = free_job(pager);
    if (job == NULL) return false;
    size_t offset = pager_offset(pager, first);
    job->inner = (struct platform_store_job){.store = &pager->store,
                                             .memory = pager->memory.own + offset,
                                             .bytes = pager_bytes_in_file(pager, first, count),
                                             .offset = offset,
                                             .write = write};
    platform_lock_release(&pager->lock); /* what the system has in its cache is copied now */
    bool begun = platform_store_begin(pager->ring, &job->inner);
    platform_lock_acquire(&pager->lock);
    if (!begun) return false;
    job->first = first;
    job->count = count;
    pager->jobs_under_way++;
    return true;
}

bool pager_begin_read(struct pager *pager, uint32_t first, uint32_t count) { return begin(pager, false, first, count); }

bool pager_begin_write(struct pager *pager, struct frame *frame) {
    uint32_t first = frame->page, count = frames_dirty_stretch(&pager->frames, frame, PAGER_PIECE_PAGES, &first);
    if (count == 0 || free_job(pager) == NULL || !pager_begin_stretch(pager, first, count)) return false;
    if (begin(pager, true, first, count)) return true;
    pager_end_stretch(pager, first, count, PAGER_NOT_WRITTEN);
    return false;
}

/* One of the pages is written once more, by itself, which asks the handler. */
static void write_again(struct pager *pager, uint32_t first, uint32_t count) {
    for (uint32_t page = first; page < first + count; page++) {
        struct frame *frame = frames_find(&pager->frames, page);
        if (frame == NULL || !frame->dirty || frame_is_busy(frame)) continue;
        (void)pager_write(pager, frame);
        return;
    }
}

bool pager_end_job(struct pager *pager, bool wait) {
    if (pager->jobs_under_way == 0) return false;
    platform_lock_release(&pager->lock);
    struct platform_store_job *inner = platform_store_end(pager->ring, wait);
    platform_lock_acquire(&pager->lock);
    if (inner == NULL) return false;
    struct pager_job *job = CONTAINER_OF(inner, struct pager_job, inner);
    uint32_t first = job->first, count = job->count;
    job->count = 0;
    pager->jobs_under_way--;
    if (!inner->write) {
        pager_end_read(pager, first, count, inner->error);
    } else {
        pager_end_stretch(pager, first, count, inner->error);
        if (inner->error != 0) write_again(pager, first, count);
    }
    return true;
}
