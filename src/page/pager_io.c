/*
 * pager_io.c - pages from the file and to it. Called with the pager's lock, which is let go while the file works; frames that are LOADING or
 * `writing` are left alone by everybody else.
 */
#include "page/pager_internal.h"

#include "base/check.h"

/* What the file has of these pages: the last page of the block may be only begun there. */
size_t pager_bytes_in_file(const struct pager *pager, uint32_t page, uint32_t count) {
    return min_u64(pager_offset(pager, count), pager->config.bytes - pager_offset(pager, page));
}

enum pager_decision pager_decide(struct pager *pager, bool write, int error, uint32_t page, uint32_t count) {
    const struct pager_trouble trouble = {
        .write = write, .error = error, .offset = pager_offset(pager, page), .bytes = pager_bytes_in_file(pager, page, count)};
    if (pager->config.trouble == NULL) return write ? PAGER_GO_ON : PAGER_GIVE_UP;
    platform_lock_release(&pager->lock);
    enum pager_decision decision = pager->config.trouble(&trouble, pager->config.trouble_argument);
    platform_lock_acquire(&pager->lock);
    return decision == PAGER_RETRY && pager->stopping ? PAGER_GIVE_UP : decision; /* what is still to be written is to be lost */
}

int pager_read(struct pager *pager, uint32_t first_page, uint32_t count) {
    platform_lock_release(&pager->lock);
    size_t offset = pager_offset(pager, first_page);
    int error = platform_store_read(&pager->store, pager->memory.own + offset, pager_bytes_in_file(pager, first_page, count), offset);
    platform_lock_acquire(&pager->lock);
    if (error == 0)
        pager->counters.reads += count;
    else
        pager->counters.read_errors++;
    return error;
}

bool pager_read_or_decide(struct pager *pager, uint32_t page) {
    for (;;) {
        int error = pager_read(pager, page, 1);
        if (error == 0) return true;
        enum pager_decision decision = pager_decide(pager, false, error, page, 1);
        if (decision == PAGER_RETRY) continue;
        if (decision != PAGER_GO_ON) return false;
        platform_paged_drop(&pager->memory, pager_offset(pager, page), pager->page_bytes);
        __builtin_memset(pager->memory.own + pager_offset(pager, page), 0, pager->page_bytes);
        return true;
    }
}

/*
 * The pages are protected first, all by one call, so that whoever changes one from now on is seen to; the mark is put on those that are out of reach
 * too, which does no harm.
 */
bool pager_begin_stretch(struct pager *pager, uint32_t first, uint32_t count) {
    for (uint32_t page = first; page < first + count; page++) frames_begin_writing(&pager->frames, frames_find(&pager->frames, page));
    if (platform_paged_protect(&pager->memory, pager_offset(pager, first), pager_offset(pager, count)) == PLATFORM_FAULTS_OK) return true;
    pager_end_stretch(pager, first, count, PLATFORM_STORE_NO_MEMORY);
    return false;
}

void pager_end_stretch(struct pager *pager, uint32_t first, uint32_t count, int error) {
    for (uint32_t page = first; page < first + count; page++) frames_end_writing(&pager->frames, frames_find(&pager->frames, page), error != 0);
    if (error == 0) {
        pager->counters.writes += count;
        pager->no_writes_until_ns = 0;
        pager->refused = false;
    } else {
        pager->counters.write_errors += error != PAGER_NOT_WRITTEN;
    }
    pager_tell_progress(pager);
}

static int write_stretch(struct pager *pager, uint32_t first, uint32_t count) {
    if (!pager_begin_stretch(pager, first, count)) return PLATFORM_STORE_NO_MEMORY;
    platform_lock_release(&pager->lock);
    size_t offset = pager_offset(pager, first);
    int error = platform_store_write(&pager->store, pager->memory.own + offset, pager_bytes_in_file(pager, first, count), offset);
    platform_lock_acquire(&pager->lock);
    pager_end_stretch(pager, first, count, error);
    return error;
}

int pager_write(struct pager *pager, struct frame *frame) {
    uint32_t page = frame->page;
    for (;;) {
        uint32_t first = page, count = frames_dirty_stretch(&pager->frames, frame, PAGER_PIECE_PAGES, &first);
        CHECK(count != 0);
        int error = write_stretch(pager, first, count);
        if (error == 0) return 0;
        enum pager_decision decision = pager_decide(pager, true, error, first, count);
        if (decision != PAGER_RETRY) {
            pager->refused = decision == PAGER_GIVE_UP;
            pager->no_writes_until_ns = platform_now_ns() + PAGER_REFUSED_NS;
            return error;
        }
        /* While the handler ran, others may have written and evicted it; or they are at it, and what becomes of that counts. */
        while ((frame = frames_find(&pager->frames, page)) != NULL && frame_is_busy(frame)) pager_wait_progress(pager);
        if (frame == NULL || !frame->dirty) return 0;
    }
}
