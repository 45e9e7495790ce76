/*
 * page_watch.h - what page_watch.c (the watches and their pages), page_watch_away.c (pages that are kept elsewhere), page_watch_serve.c (the threads)
 * and fork.c share. Private to api/.
 *
 * One record for the process, made with the first watch. Its lock (LOCK_RANK_WATCHES, under the zone's) guards all of it but what says otherwise;
 * whoever holds it touches no memory of the program. `current` is what the handler is told right now, which pins that watch.
 */
#ifndef STRATA_API_PAGE_WATCH_H
#define STRATA_API_PAGE_WATCH_H

#include "api/heap.h"
#include "strata/page_watch.h"

typedef void watch_handler(const struct strata_watch_event *event, void *argument);

struct strata_watch {
    struct strata_watch *next;
    char *start;
    size_t bytes;
    unsigned kinds;
    bool by_faults; /* userfaultfd, else signals */
    bool by_moves;  /* then, and armed pages are away: see page_watch_away.c */
    bool ended;
    bool told_end; /* or nobody is to be told */
    bool gone;     /* unwatched by its handler: to be freed after that */
    watch_handler *handler;
    void *argument;
    uint64_t writes, reads;
    /* A bit a page: what is still to be told. */
    uint64_t *armed_writes, *armed_reads;
    uint64_t *away;     /* a bit a page: its contents, if any, are in the shadow */
    char *shadow;       /* of by_moves: where the range's pages are when they are away */
    char *shadow_space; /* address space that it lies in; by access rights under a limit on data, as much of that as the range takes; NULL: none */
    size_t shadow_space_bytes;
};

/* A thread in its signal handler, on whose stack this is. */
struct watch_waiter {
    struct watch_waiter *next;
    char *page;
    bool write;
    uint32_t done; /* atomic, a futex */
};

/* Of the threads that serve watches and read faults. KEEPS: the reader has the file in a table of its own, where the program can't close it. */
enum watch_thread { WATCH_THREAD_NONE, WATCH_THREAD_STARTING, WATCH_THREAD_RUNS, WATCH_THREAD_KEEPS };

#define WATCH_FAULTS_MAX 64
struct page_watches {
    struct platform_lock lock;
    struct strata_watch *first, *current;
    char *current_page;
    bool looked;  /* by signals: the handler has been let at it, to read */
    bool written; /* by signals: the handler has been let at it, to write, and everybody else */
    bool rearmed; /* meanwhile, by another thread: once the handler has returned it is told again, before what it was told for happens */
    struct watch_waiter *waiters, *last_waiter;
    struct platform_fault faults[WATCH_FAULTS_MAX]; /* a ring */
    unsigned fault_first, fault_count;
    struct platform_faults file;
    uint64_t changes;            /* watches that have begun or ended */
    bool forks;                  /* the serving one does, right now */
    uint32_t server;             /* atomic: that thread */
    uint32_t runs;               /* atomic, a futex: handlers that have returned */
    uint32_t reader, serves;     /* atomic, futexes: enum watch_thread */
    uint32_t lost;               /* atomic: the reader is asked to end all that goes by the file; see watch_lose */
    struct platform_event event; /* for the serving thread */
};

/* Under the lock. The watch of a page that has not ended; NULL: none. */
struct strata_watch *watch_of_page(struct page_watches *watches, const char *page);
/*
 * Under the lock. An access happens: false: there is nothing to be told of it. It counts as told then; watch_open lets it and its like pass. write
 * may be false where it is not known.
 */
bool watch_take(struct strata_watch *watch, const char *page, bool write, enum strata_watch_kind *kind);
void watch_open(struct page_watches *watches, struct strata_watch *watch, char *page);
/* Under the lock: arms pages [from, to) and closes them. Not OK: not all of them could be. */
enum platform_faults_status watch_arm(struct page_watches *watches, struct strata_watch *watch, char *from, char *to);
/* Under the lock: it ends; all its pages are as any others. */
void watch_end(struct page_watches *watches, struct strata_watch *watch);
void watch_free(struct strata_watch *watch);

/* Under the lock, by the reader: the same of all that goes by the file, of which others have lost the number. */
void watch_end_all_by_faults(struct page_watches *watches);

STRATA_INLINE size_t watch_index(const struct strata_watch *watch, const char *page) {
    return (size_t)(page - watch->start) >> platform_info()->page_shift;
}
STRATA_INLINE bool watch_bit(const uint64_t *bits, size_t index) { return (bits[index / 64] >> index % 64 & 1) != 0; }
STRATA_INLINE void watch_bit_clear(uint64_t *bits, size_t index) { bits[index / 64] &= ~(UINT64_C(1) << index % 64); }
STRATA_INLINE void watch_bit_set(uint64_t *bits, size_t index) { bits[index / 64] |= UINT64_C(1) << index % 64; }
STRATA_INLINE bool watch_is_away(const struct strata_watch *watch, const char *page) {
    return watch->by_moves && watch_bit(watch->away, watch_index(watch, page));
}
/* Under the lock: whether a handler may be looking at its contents. */
STRATA_INLINE bool watch_is_told(const struct page_watches *watches, const struct strata_watch *watch, const char *page) {
    return watches->current == watch && watches->current_page == page;
}
/* The bits of all its pages, for either of them. */
STRATA_INLINE size_t watch_bitmap_words(size_t bytes) { return ((bytes >> platform_info()->page_shift) + 63) / 64; }

/* page_watch_away.c, of watches by_moves. Address space for pages that are away; false: there is none. With no lock held. */
bool watch_shadow_open(struct strata_watch *watch);
void watch_shadow_close(struct strata_watch *watch);
STRATA_INLINE char *watch_shadow_of(const struct strata_watch *watch, const char *page) { return watch->shadow + (page - watch->start); }
/* Under the lock. Both ends of what is to be moved are registered; what fails leaves that to watch_end. */
enum platform_faults_status watch_register(struct page_watches *watches, struct strata_watch *watch);
/*
 * Under the lock: pages [from, to) that are not away go away, before their bits are armed. Not OK: some have not, as something holds them; GONE: the
 * program has closed the file.
 */
enum platform_faults_status watch_take_away(struct page_watches *watches, struct strata_watch *watch, char *from, char *to);
/* Under the lock: a page comes back, protected against writes or not. OK or GONE. */
enum platform_faults_status watch_bring_back(struct page_watches *watches, struct strata_watch *watch, char *page, bool protect);
/* Under the lock: all pages come back, and neither end is registered any more. OK, GONE; NO_MEMORY: they have come, but are registered. */
enum platform_faults_status watch_bring_all_back(struct page_watches *watches, struct strata_watch *watch);
/* In the child of a fork, which has both ends of the parent, and neither is registered. */
void watch_bring_back_forked(const struct page_watches *watches, struct strata_watch *watch);
/* What a range of blocks takes, of which `pages` says what is there (enum platform_page): with what is away. */
void page_watch_presence(char *address, size_t bytes, uint8_t *pages);

/*
 * page_watch_serve.c. Under the lock, before pages [from, to) are armed, or after their watch has ended: faults of theirs that are queued were met
 * before that. Whoever waits looks again; who does not any more is not told of what comes after. `armed`: the watch that is being armed, of which
 * pages that are armed already against such an access are left out, as who has met one waits; NULL: all pages.
 */
void watch_forget_faults(struct page_watches *watches, const struct strata_watch *armed, const char *from, const char *to);
/* The same file. False: no thread could be had. With no lock held. */
bool watch_start_server(struct page_watches *watches);
/* Says how the reader has begun; NONE: no thread could be had. */
enum watch_thread watch_start_reader(struct page_watches *watches);
/*
 * Under the lock, which is let go meanwhile, so that a watch may be gone unless something pins it. The program has closed our file; the reader, who
 * still has it, ends all that goes by it, and that is done when this returns. False: nothing has happened, as the reader shares the program's files.
 * Not for the reader.
 */
bool watch_lose(struct page_watches *watches);
/* For platform_on_access_fault. */
bool watch_serve_signal(char *page, bool write);

/* fork.c: prepare after all other locks were taken. */
void page_watch_fork_prepare(void);
void page_watch_fork_parent(void);
void page_watch_fork_child(void);

#endif
