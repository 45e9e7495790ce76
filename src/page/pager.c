/*
 * pager.c - the life of a pager, and the calls of the program on it. See pager.h.
 */
#include "page/pager_internal.h"

#include "base/check.h"

/* ------------------------------------------------------------------ life */

/* The pager and its tables in one stretch of memory, present where it is used. */
static struct pager *create(const struct pager_config *config) {
    size_t page_bytes = platform_info()->page_bytes;
    uint64_t pages = (config->bytes + page_bytes - 1) / page_bytes;
    size_t head = align_up(sizeof(struct pager), CACHE_LINE_BYTES), map = align_up(pages * sizeof(uint32_t), CACHE_LINE_BYTES);
    size_t footprint = align_up(head + map + pages * sizeof(struct frame), page_bytes);
    char *memory = platform_reserve(NULL, footprint, page_bytes);
    if (memory == NULL) return NULL;
    if (!platform_commit(memory, footprint)) {
        platform_unreserve(memory, footprint);
        return NULL;
    }
    struct pager *pager = (struct pager *)(void *)memory;
    *pager = (struct pager){.config = *config,
                            .pages = (uint32_t)pages,
                            .page_bytes = page_bytes,
                            .footprint_bytes = footprint,
                            .process = platform_process_id(),
                            .lock = PLATFORM_LOCK_INIT(LOCK_RANK_PAGER)};
    list_init(&pager->requests);
    frames_init(&pager->frames, (uint32_t *)(void *)(memory + head), (struct frame *)(void *)(memory + head + map), (uint32_t)pages);
    pager_clock_init(&pager->clock, config->limit_pages);
    return pager;
}

static void destroy(struct pager *pager) { platform_unreserve(pager, pager->footprint_bytes); }

static enum pager_status status_of(enum platform_faults_status status) {
    return status == PLATFORM_FAULTS_NO_MEMORY ? PAGER_NO_MEMORY : PAGER_NO_FAULTS;
}

void pager_thread_ends(struct pager *pager) {
    if (__atomic_sub_fetch(&pager->threads, 1, __ATOMIC_RELEASE) == 0) platform_word_wake(&pager->threads); /* whose memory may be gone by now */
}

static bool start(struct pager *pager, void (*body)(void *)) {
    __atomic_fetch_add(&pager->threads, 1, __ATOMIC_RELAXED);
    if (platform_thread_start(body, pager)) return true;
    __atomic_fetch_sub(&pager->threads, 1, __ATOMIC_RELAXED);
    return false;
}

/* `served`: the server was started. */
static void stop(struct pager *pager, bool served) {
    platform_lock_acquire(&pager->lock);
    __atomic_store_n(&pager->stopping, true, __ATOMIC_RELEASE);
    platform_lock_release(&pager->lock);
    platform_event_wake(&pager->work);
    if (served) platform_paged_ring(&pager->memory);
    for (uint32_t left; (left = __atomic_load_n(&pager->threads, __ATOMIC_ACQUIRE)) != 0;) platform_word_wait(&pager->threads, left);
}

/* Where no more than `most` pages can be in reach, more than that in memory are of no use. Before the threads start. */
static void limit_pages(struct pager *pager, uint32_t most) {
    struct pager_config *config = &pager->config;
    if (config->limit_pages <= most) return;
    config->limit_pages = most;
    config->dirty_limit_pages = (uint32_t)min_u64(config->dirty_limit_pages, most);
    config->window_pages = (uint32_t)min_u64(config->window_pages, most / 4);
    pager_clock_init(&pager->clock, most);
}

enum pager_status pager_open(const struct pager_config *config, struct pager **out, int *error) {
    if ((config->bytes - 1) / platform_info()->page_bytes >= PAGER_PAGES_MAX) return PAGER_BAD_ARGUMENT;
    struct pager *pager = create(config);
    if (pager == NULL) return PAGER_NO_MEMORY;
    enum platform_faults_status faults = platform_paged_open(&pager->memory, pager_offset(pager, pager->pages), config->way);
    if (faults == PLATFORM_FAULTS_OK && pager->memory.pages_max < PAGER_LIMIT_MIN) {
        platform_paged_close(&pager->memory, false);
        faults = PLATFORM_FAULTS_NO_MEMORY;
    }
    if (faults != PLATFORM_FAULTS_OK) {
        destroy(pager);
        return status_of(faults);
    }
    *error = platform_store_open(&pager->store, config->path, config->file, config->bytes);
    if (*error != 0) {
        platform_paged_close(&pager->memory, false);
        destroy(pager);
        return PAGER_FILE_ERROR;
    }
    pager->config.path = NULL; /* the caller's */
    limit_pages(pager, pager->memory.pages_max);
    /* A group that can't hold the file beside the pages would be short of memory for what nobody wants twice, and its processes killed for it. */
    uint32_t most = (uint32_t)min_u64(pager->config.limit_pages, pager->pages);
    if (platform_memory_limit_bytes() < config->bytes + pager_offset(pager, most)) platform_store_pass(&pager->store);
    if (config->wants_ring) pager->ring = platform_store_ring_open(PAGER_JOBS);
    bool served = start(pager, pager_server);
    if (!served || !start(pager, pager_worker)) {
        stop(pager, served);
        if (pager->ring != NULL) platform_store_ring_close(pager->ring, false);
        platform_store_close(&pager->store);
        platform_paged_close(&pager->memory, false);
        destroy(pager);
        return PAGER_NO_MEMORY;
    }
    *out = pager;
    return PAGER_OK;
}

void pager_close(struct pager *pager) {
    bool forked = pager_is_forked(pager);
    if (!forked) stop(pager, true);
    if (pager->ring != NULL) platform_store_ring_close(pager->ring, forked);
    platform_store_close(&pager->store);
    platform_paged_close(&pager->memory, forked);
    destroy(pager);
}

/* ------------------------------------------------------------------ pages */

void pager_map(struct pager *pager, struct frame *frame) {
    bool writable = frame->dirty;
    size_t offset = pager_offset(pager, frame->page);
    if (platform_paged_map(&pager->memory, offset, pager->page_bytes, &writable) == PLATFORM_FAULTS_OK) {
        frames_set_state(&pager->frames, frame, FRAME_MAPPED);
        if (writable && !frame->dirty) { /* the system could not protect it: nobody will tell when it is written to */
            pager->all_dirty = true;
            frames_set_dirty(&pager->frames, frame);
        }
    } else {
        platform_paged_wake(&pager->memory, offset, pager->page_bytes); /* no memory for page tables: the thread asks again */
    }
}

/* ------------------------------------------------------------------ calls of the program */

int pager_ask(struct pager *pager, enum pager_wish wish, uint64_t offset, uint64_t bytes) {
    struct pager_request request = {.wish = wish,
                                    .first = (uint32_t)(offset / pager->page_bytes),
                                    .end = (uint32_t)((offset + bytes + pager->page_bytes - 1) / pager->page_bytes)};
    platform_lock_acquire(&pager->lock);
    list_push_back(&pager->requests, &request.link);
    platform_lock_release(&pager->lock);
    platform_event_wake(&pager->work);
    while (__atomic_load_n(&request.done, __ATOMIC_ACQUIRE) == 0) platform_word_wait(&request.done, 0);
    return request.error;
}

void pager_will_need(struct pager *pager, uint64_t offset, uint64_t bytes) {
    uint32_t first = (uint32_t)(offset / pager->page_bytes), end = (uint32_t)((offset + bytes + pager->page_bytes - 1) / pager->page_bytes);
    platform_lock_acquire(&pager->lock);
    pager_queue_ahead(pager, first, (uint32_t)min_u64(end - first, pager->config.limit_pages / 2));
    platform_lock_release(&pager->lock);
}

void pager_figures_get(struct pager *pager, struct pager_figures *figures) {
    platform_lock_acquire(&pager->lock);
    *figures = (struct pager_figures){.counters = pager->counters,
                                      .resident = pager->frames.resident,
                                      .dirty = pager->frames.dirty + pager->frames.writing,
                                      .failed = pager->frames.failed};
    platform_lock_release(&pager->lock);
}

const char *pager_check(struct pager *pager) {
    platform_lock_acquire(&pager->lock);
    const char *broken = frames_check(&pager->frames);
    platform_lock_release(&pager->lock);
    return broken;
}
