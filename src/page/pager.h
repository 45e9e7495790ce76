/*
 * pager.h - the second facade of page/: blocks whose pages live in a file, read and written by the process itself (user-mode paging).
 *
 * A pager stands apart from the zone: its block, its tables and itself are mappings of their own, so that a program without one has nothing of it.
 * Two threads belong to it. The server answers the faults of the program's threads, one after the other: it reads what is absent, and marks what is
 * written to. The worker reads ahead, writes behind, and does what the calls below ask for, so that no thread of the program ever writes to the
 * file itself. Either makes room by the policy, and neither waits for the other but through pages that are on their way from or to the file; such
 * waits end, as who moves a page waits for nothing meanwhile. (UMPA, section 2, item 7.)
 *
 * Lock: one a pager, LOCK_RANK_PAGER, for tables and policy. No file operation and no handler of the program runs under it; page tables change under
 * it only, so that what the tables say is true whenever it is free.
 */
#ifndef STRATA_PAGE_PAGER_H
#define STRATA_PAGE_PAGER_H

#include "base/base.h"
#include "base/list.h"
#include "page/pager_policy.h"
#include "platform/platform.h"

enum pager_status {
    PAGER_OK,
    PAGER_NO_MEMORY,   /* nor threads, nor mappings */
    PAGER_NO_FAULTS,   /* the system lets nobody serve faults, in the way that is wanted */
    PAGER_FILE_ERROR,  /* *error says which */
    PAGER_BAD_ARGUMENT /* more than PAGER_PAGES_MAX pages */
};

/* What is to be done about an error of the file. */
enum pager_decision { PAGER_GIVE_UP, PAGER_RETRY, PAGER_GO_ON };
struct pager_trouble {
    bool write;
    int error; /* as platform_store_read and _write answer it */
    uint64_t offset;
    size_t bytes;
};

struct pager_config {
    const char *path; /* NULL: `file` */
    int file;
    uint64_t bytes;
    enum platform_paged_way way;
    bool wants_ring;      /* reads ahead and writes behind several at a time, where the system can */
    uint32_t limit_pages; /* PAGER_LIMIT_MIN at least; lowered to what can be in reach at a time */
    uint32_t dirty_limit_pages;
    uint32_t window_pages;                                                               /* read ahead; 0: nothing */
    struct pager_policy policy;                                                          /* next NULL: the clock */
    enum pager_decision (*trouble)(const struct pager_trouble *trouble, void *argument); /* NULL: gives up */
    void *trouble_argument;
};
#define PAGER_LIMIT_MIN 32

struct pager_counters {
    uint64_t faults, reads, ahead, writes, evictions, samples, read_errors, write_errors, beyond_limit;
};

enum pager_wish { PAGER_WISH_SYNC, PAGER_WISH_EVICT };
struct pager_request {
    struct list link;
    enum pager_wish wish;
    uint32_t first, end;
    int error;
    uint32_t done; /* atomic */
};

#define PAGER_AHEAD_QUEUE 32

/* A stretch of pages that the file is reading or writing; count 0: none. */
#define PAGER_JOBS 8
struct pager_job {
    struct platform_store_job inner;
    uint32_t first, count;
};

struct pager {
    struct platform_paged memory;
    struct platform_store store;
    struct pager_config config; /* immutable */
    uint32_t pages;
    size_t page_bytes, footprint_bytes;
    unsigned process;

    struct platform_lock lock; /* LOCK_RANK_PAGER; guards what follows */
    struct frames frames;
    struct pager_clock clock;
    struct pager_streams streams;
    struct pager_counters counters;
    struct list requests; /* of calls that wait, the first come first */
    struct {
        uint32_t first, count;
    } ahead[PAGER_AHEAD_QUEUE]; /* to be read, from ahead_head on */
    unsigned ahead_head, ahead_count;
    uint64_t no_writes_until_ns; /* the file has refused some */
    bool refused;                /* and the handler wants no page beyond the limit for that */
    bool all_dirty;              /* the system maps pages without protection only: who reads one is taken to write */
    bool stopping;

    struct platform_store_ring *ring; /* of the worker; NULL: none */
    struct pager_job jobs[PAGER_JOBS];
    unsigned jobs_under_way;

    uint32_t progress; /* atomic: changes whenever a page has come from, or gone to, the file */
    struct platform_event work;
    uint32_t threads; /* atomic */
    uint32_t worker;  /* atomic: that thread, as platform_thread_self; 0: not yet */
};

/* `error` is written where the status is PAGER_FILE_ERROR. */
enum pager_status pager_open(const struct pager_config *config, struct pager **pager, int *error);
/* Ends the threads and forgets what is dirty. Also in the child of a fork. */
void pager_close(struct pager *pager);
/* All pages of a range that are dirty now, and then the file, are written; or what is in memory of it is written and leaves. Returns 0 or an error.
 */
int pager_ask(struct pager *pager, enum pager_wish wish, uint64_t offset, uint64_t bytes);
/* Asks for pages to be read, as far as they fit into half of the limit. */
void pager_will_need(struct pager *pager, uint64_t offset, uint64_t bytes);

struct pager_figures {
    struct pager_counters counters;
    uint32_t resident, dirty, failed; /* pages; dirty: and those on their way to the file */
};
void pager_figures_get(struct pager *pager, struct pager_figures *figures);
/* NULL, or an invariant that does not hold. Linear in the pages. */
const char *pager_check(struct pager *pager);
/* A child of the process that opened it. */
STRATA_INLINE bool pager_is_forked(const struct pager *pager) { return pager->process != platform_process_id(); }

#endif
