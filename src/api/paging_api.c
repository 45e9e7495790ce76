/*
 * paging_api.c - the public functions of user-mode paging (strata/paging.h) over page/pager.h.
 *
 * The public struct is the internal one under another name, never defined; decisions and actions are the same numbers, so that functions of the
 * program are called through adapters that change nothing but names. A paging needs no heap: none is built here. No lock of its own.
 */
#include "strata/paging.h"

#include <errno.h>

#include "page/pager.h"

_Static_assert(STRATA_PAGING_GIVE_UP == (int)PAGER_GIVE_UP && STRATA_PAGING_RETRY == (int)PAGER_RETRY && STRATA_PAGING_GO_ON == (int)PAGER_GO_ON,
               "decisions are the same numbers");
_Static_assert(STRATA_PAGING_NOTHING == (int)PAGER_NOTHING && STRATA_PAGING_SAMPLE == (int)PAGER_SAMPLE && STRATA_PAGING_EVICT == (int)PAGER_EVICT,
               "actions are the same numbers");
_Static_assert(STRATA_PAGING_PAGES_MIN == PAGER_LIMIT_MIN, "limits are the same numbers");

#define READ_AHEAD_BYTES (128 * KIB)
#define BOTH_WAYS ((unsigned)STRATA_PAGING_BY_SIGNALS | STRATA_PAGING_NO_SIGNALS)
#define FLAGS ((unsigned)STRATA_PAGING_NO_READ_AHEAD | STRATA_PAGING_NO_IO_URING | BOTH_WAYS)

/* The pager, and what its adapters need of the program. */
struct strata_paging {
    struct pager *pager;
    struct strata_paging_policy policy;
    enum strata_paging_decision (*handler)(const struct strata_paging_error *error, void *argument);
    void *handler_argument;
    size_t bytes;
};

const char *strata_paging_status_text(enum strata_paging_status status) {
    static const char *const texts[] = {[STRATA_PAGING_OK] = "success",
                                        [STRATA_PAGING_BAD_ARGUMENT] = "bad argument",
                                        [STRATA_PAGING_NO_MEMORY] = "no memory, or no threads",
                                        [STRATA_PAGING_NO_FAULTS] = "the system does not let this process serve its own page faults",
                                        [STRATA_PAGING_FILE_ERROR] = "an error of the file",
                                        [STRATA_PAGING_FORKED] = "the paging is the parent's"};
    return (unsigned)status < ARRAY_LENGTH(texts) ? texts[status] : "unknown status";
}

/* ------------------------------------------------------------------ what the program brings along */

static int errno_of(int error) { return error == PLATFORM_STORE_NO_DATA ? ENODATA : error == PLATFORM_STORE_NO_MEMORY ? ENOMEM : error; }

static enum pager_decision ask_handler(const struct pager_trouble *trouble, void *argument) {
    const struct strata_paging *paging = argument;
    const struct strata_paging_error error = {
        .write = trouble->write, .error = errno_of(trouble->error), .offset_bytes = trouble->offset, .bytes = trouble->bytes};
    return (enum pager_decision)paging->handler(&error, paging->handler_argument);
}
static void tell_enter(uint64_t page, void *argument) {
    const struct strata_paging_policy *policy = argument;
    if (policy->enter != NULL) policy->enter(page, policy->argument);
}
static void tell_touch(uint64_t page, void *argument) {
    const struct strata_paging_policy *policy = argument;
    if (policy->touch != NULL) policy->touch(page, policy->argument);
}
static void tell_leave(uint64_t page, void *argument) {
    const struct strata_paging_policy *policy = argument;
    if (policy->leave != NULL) policy->leave(page, policy->argument);
}
static enum pager_action ask_next(uint64_t *page, void *argument) {
    const struct strata_paging_policy *policy = argument;
    return (enum pager_action)policy->next(page, policy->argument);
}

/* ------------------------------------------------------------------ life */

static size_t page_size(void) { return platform_info()->page_bytes; }
static size_t own_bytes(void) { return align_up(sizeof(struct strata_paging), page_size()); }

static struct strata_paging *create(void) {
    struct strata_paging *paging = platform_reserve(NULL, own_bytes(), page_size());
    if (paging == NULL || platform_commit(paging, own_bytes())) return paging;
    platform_unreserve(paging, own_bytes());
    return NULL;
}

static enum platform_paged_way way_of(unsigned flags) {
    return (flags & STRATA_PAGING_BY_SIGNALS) != 0   ? PLATFORM_PAGED_SIGNALS
           : (flags & STRATA_PAGING_NO_SIGNALS) != 0 ? PLATFORM_PAGED_FAULTS
                                                     : PLATFORM_PAGED_ANY;
}

/* Each limit is above 0; one above the size of the block stays as it is. */
static struct pager_config config_of(const struct strata_paging_config *config, struct strata_paging *paging) {
    size_t page = page_size();
    uint64_t limit = min_u64(config->resident_limit_bytes / page, PAGER_PAGES_MAX);
    uint64_t dirty = config->dirty_limit_bytes != 0 ? config->dirty_limit_bytes / page : limit / 4;
    uint64_t window = (config->read_ahead_bytes != 0 ? config->read_ahead_bytes : READ_AHEAD_BYTES) / page;
    struct pager_config inner = {.path = config->path,
                                 .file = config->file,
                                 .bytes = config->bytes,
                                 .way = way_of(config->flags),
                                 .wants_ring = (config->flags & STRATA_PAGING_NO_IO_URING) == 0,
                                 .limit_pages = (uint32_t)limit,
                                 .dirty_limit_pages = (uint32_t)max_u64(min_u64(dirty, limit), 1),
                                 .window_pages = (config->flags & STRATA_PAGING_NO_READ_AHEAD) != 0 ? 0 : (uint32_t)min_u64(window, limit / 4),
                                 .trouble = config->handler != NULL ? ask_handler : NULL,
                                 .trouble_argument = paging};
    if (config->policy != NULL)
        inner.policy =
            (struct pager_policy){.enter = tell_enter, .touch = tell_touch, .leave = tell_leave, .next = ask_next, .argument = &paging->policy};
    return inner;
}

static bool is_good(const struct strata_paging_config *config) {
    return config->bytes != 0 && config->bytes <= (uint64_t)PTRDIFF_MAX - page_size() &&
           config->resident_limit_bytes / page_size() >= STRATA_PAGING_PAGES_MIN && (config->flags & ~FLAGS) == 0 &&
           (config->flags & BOTH_WAYS) != BOTH_WAYS && (config->policy == NULL || config->policy->next != NULL) &&
           (config->path != NULL || config->file >= 0);
}

enum strata_paging_status strata_paging_open(const struct strata_paging_config *config, struct strata_paging **out) {
    static const enum strata_paging_status statuses[] = {[PAGER_OK] = STRATA_PAGING_OK,
                                                         [PAGER_NO_MEMORY] = STRATA_PAGING_NO_MEMORY,
                                                         [PAGER_NO_FAULTS] = STRATA_PAGING_NO_FAULTS,
                                                         [PAGER_FILE_ERROR] = STRATA_PAGING_FILE_ERROR,
                                                         [PAGER_BAD_ARGUMENT] = STRATA_PAGING_BAD_ARGUMENT};
    platform_init();
    if (config == NULL || out == NULL || !is_good(config)) return STRATA_PAGING_BAD_ARGUMENT;
    struct strata_paging *paging = create();
    if (paging == NULL) return STRATA_PAGING_NO_MEMORY;
    *paging = (struct strata_paging){.handler = config->handler, .handler_argument = config->handler_argument, .bytes = config->bytes};
    if (config->policy != NULL) paging->policy = *config->policy;
    const struct pager_config inner = config_of(config, paging);
    int error = 0;
    enum pager_status status = pager_open(&inner, &paging->pager, &error);
    if (status != PAGER_OK) {
        platform_unreserve(paging, own_bytes());
        if (status == PAGER_FILE_ERROR) errno = errno_of(error);
        return statuses[status];
    }
    *out = paging;
    return STRATA_PAGING_OK;
}

void *strata_paging_address(const struct strata_paging *paging) { return paging != NULL ? paging->pager->memory.block : NULL; }

enum strata_paging_status strata_paging_close(struct strata_paging *paging, enum strata_paging_end end) {
    if (paging == NULL) return STRATA_PAGING_OK;
    if (end != STRATA_PAGING_SAVE && end != STRATA_PAGING_DISCARD) return STRATA_PAGING_BAD_ARGUMENT;
    if (end == STRATA_PAGING_SAVE && !pager_is_forked(paging->pager)) {
        enum strata_paging_status status = strata_paging_sync(paging, NULL, 0);
        if (status != STRATA_PAGING_OK) return status;
    }
    pager_close(paging->pager);
    platform_unreserve(paging, own_bytes());
    return STRATA_PAGING_OK;
}

/* ------------------------------------------------------------------ ranges */

/* The offset of a range that is not empty, and inside the block; NULL and 0: all of it. */
static enum strata_paging_status find_range(const struct strata_paging *paging, const void *address, size_t *bytes, uint64_t *offset) {
    if (paging == NULL) return STRATA_PAGING_BAD_ARGUMENT;
    if (pager_is_forked(paging->pager)) return STRATA_PAGING_FORKED;
    *offset = address == NULL ? 0 : (uintptr_t)address - (uintptr_t)paging->pager->memory.block;
    if (address == NULL && *bytes == 0) *bytes = paging->bytes;
    if (address == NULL && *bytes != paging->bytes) return STRATA_PAGING_BAD_ARGUMENT;
    return *bytes != 0 && *offset < paging->bytes && *bytes <= paging->bytes - *offset ? STRATA_PAGING_OK : STRATA_PAGING_BAD_ARGUMENT;
}

static enum strata_paging_status ask(struct strata_paging *paging, enum pager_wish wish, uint64_t offset, size_t bytes) {
    int error = pager_ask(paging->pager, wish, offset, bytes);
    if (error == 0) return STRATA_PAGING_OK;
    errno = errno_of(error);
    return STRATA_PAGING_FILE_ERROR;
}

enum strata_paging_status strata_paging_sync(struct strata_paging *paging, void *address, size_t bytes) {
    uint64_t offset = 0;
    enum strata_paging_status status = find_range(paging, address, &bytes, &offset);
    return status == STRATA_PAGING_OK ? ask(paging, PAGER_WISH_SYNC, offset, bytes) : status;
}

enum strata_paging_status strata_paging_advise(struct strata_paging *paging, void *address, size_t bytes, enum strata_paging_advice advice) {
    uint64_t offset = 0;
    enum strata_paging_status status = find_range(paging, address, &bytes, &offset);
    if (status != STRATA_PAGING_OK) return status;
    switch (advice) {
    case STRATA_PAGING_WILL_NEED: pager_will_need(paging->pager, offset, bytes); return STRATA_PAGING_OK;
    case STRATA_PAGING_DONT_NEED: return ask(paging, PAGER_WISH_EVICT, offset, bytes);
    default: return STRATA_PAGING_BAD_ARGUMENT;
    }
}

/* ------------------------------------------------------------------ looking inside */

enum strata_paging_status strata_paging_stats_get(struct strata_paging *paging, struct strata_paging_stats *stats) {
    if (paging == NULL || stats == NULL) return STRATA_PAGING_BAD_ARGUMENT;
    if (pager_is_forked(paging->pager)) return STRATA_PAGING_FORKED;
    struct pager *pager = paging->pager;
    struct pager_figures figures;
    pager_figures_get(pager, &figures);
    *stats = (struct strata_paging_stats){.pages = pager->pages,
                                          .resident_limit = pager->config.limit_pages,
                                          .dirty_limit = pager->config.dirty_limit_pages,
                                          .resident = figures.resident,
                                          .dirty = figures.dirty,
                                          .failed = figures.failed,
                                          .faults = figures.counters.faults,
                                          .reads = figures.counters.reads,
                                          .read_ahead = figures.counters.ahead,
                                          .writes = figures.counters.writes,
                                          .evictions = figures.counters.evictions,
                                          .samples = figures.counters.samples,
                                          .read_errors = figures.counters.read_errors,
                                          .write_errors = figures.counters.write_errors,
                                          .beyond_limit = figures.counters.beyond_limit,
                                          .page_bytes = pager->page_bytes,
                                          .system_calls = (pager->memory.faults.features & PLATFORM_FAULTS_IN_KERNEL) != 0,
                                          .by_signals = pager->memory.signals != NULL,
                                          .by_io_uring = pager->ring != NULL};
    return STRATA_PAGING_OK;
}

const char *strata_paging_check(struct strata_paging *paging) {
    return paging == NULL || pager_is_forked(paging->pager) ? "paging: not of this process" : pager_check(paging->pager);
}
