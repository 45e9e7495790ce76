/*
 * pager_internal.h - what the files of the pager share. Private to page/.
 */
#ifndef STRATA_PAGE_PAGER_INTERNAL_H
#define STRATA_PAGE_PAGER_INTERNAL_H

#include <limits.h>

#include "page/pager.h"

/* How many pages are written, and read ahead, by one call. */
#define PAGER_PIECE_PAGES 32
/* How long write-behind and eviction leave a file alone that has refused a write. */
#define PAGER_REFUSED_NS UINT64_C(100000000)

STRATA_INLINE size_t pager_offset(const struct pager *pager, uint32_t page) { return (size_t)page * pager->page_bytes; }

/* ------------------------------------------------------------------ pager_room.c; all with the lock held */

enum pager_room {
    PAGER_ROOM,       /* for what was asked, and the lock was never let go */
    PAGER_ROOM_AGAIN, /* it was: the caller looks again at everything */
    PAGER_ROOM_NONE,  /* no page can leave: the caller decides whether to go beyond the limit */
};
enum pager_room pager_make_room(struct pager *pager, uint32_t pages);
/* Lets go of the lock until a page that is on its way has arrived. */
void pager_wait_progress(struct pager *pager);
void pager_tell_progress(struct pager *pager);
/* What was LOADING is in memory: HELD, and the policy knows of it. */
void pager_arrive(struct pager *pager, struct frame *frame);
/* Out of reach, and gone. The page is not dirty and not busy. */
void pager_hold(struct pager *pager, struct frame *frame);
void pager_evict(struct pager *pager, struct frame *frame);
STRATA_INLINE bool pager_is_refused(const struct pager *pager) {
    return pager->no_writes_until_ns != 0 && platform_now_ns() < pager->no_writes_until_ns;
}

/* ------------------------------------------------------------------ pager_io.c; lets go of the lock meanwhile */

/*
 * Writes the stretch of dirty pages round one that is dirty and not busy. Returns 0 or the error; what was not written is dirty again. The frame may
 * have gone when it returns.
 */
int pager_write(struct pager *pager, struct frame *frame);
/* Reads neighbouring pages that nobody else sees to: LOADING ones. Returns 0 or the error. Asks no handler. */
int pager_read(struct pager *pager, uint32_t first_page, uint32_t count);
/* One, with what the handler says to errors: the page has its contents, or zeros. False: it is given up, and may be in memory in part. */
bool pager_read_or_decide(struct pager *pager, uint32_t page);
/* Both halves of a write of a stretch of dirty pages, by whoever writes between them. False: not begun, and pager_end_stretch was called. */
bool pager_begin_stretch(struct pager *pager, uint32_t first, uint32_t count);
#define PAGER_NOT_WRITTEN INT_MIN /* as error: it was not tried */
void pager_end_stretch(struct pager *pager, uint32_t first, uint32_t count, int error);
size_t pager_bytes_in_file(const struct pager *pager, uint32_t page, uint32_t count);
enum pager_decision pager_decide(struct pager *pager, bool write, int error, uint32_t page, uint32_t count);

/* ------------------------------------------------------------------ pager_jobs.c; on the worker's thread, lets go of the lock */

/* Reads the pages of LOADING frames, or writes a stretch as pager_write does, meanwhile. False: not begun; it is to be done in the other way. */
bool pager_begin_read(struct pager *pager, uint32_t first, uint32_t count);
bool pager_begin_write(struct pager *pager, struct frame *frame);
/* Sees to a job that has ended. False: none has, or is under way. */
bool pager_end_job(struct pager *pager, bool wait);
/* pager_worker.c: what was read ahead, or could not be. */
void pager_end_read(struct pager *pager, uint32_t first, uint32_t count, int error);

/* ------------------------------------------------------------------ threads */

/* Into reach, writable if dirty, and wakes who waits for it. Under the lock. */
void pager_map(struct pager *pager, struct frame *frame);
/* Pages for the worker to read. Under the lock. */
void pager_queue_ahead(struct pager *pager, uint32_t first, uint32_t count);
void pager_thread_ends(struct pager *pager);
void pager_server(void *pager);
void pager_worker(void *pager);

#endif
