/*
 * page_watch.h - what page_watch.c (the watches and their pages), page_watch_serve.c (the threads) and fork.c share. Private to api/.
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
    bool ended;
    bool told_end; /* or nobody is to be told */
    bool gone;     /* unwatched by its handler: to be freed after that */
    watch_handler *handler;
    void *argument;
    uint64_t writes, reads;
    /* A bit a page: what is still to be told. */
    uint64_t *armed_writes, *armed_reads;
};

/* A thread in its signal handler, on whose stack this is. */
struct watch_waiter {
    struct watch_waiter *next;
    char *page;
    bool write;
    uint32_t done; /* atomic, a futex */
};

#define WATCH_FAULTS_MAX 64
struct page_watches {
    struct platform_lock lock;
    struct strata_watch *first, *current;
    char *current_page;
    struct watch_waiter *waiters, *last_waiter;
    struct platform_fault faults[WATCH_FAULTS_MAX]; /* a ring */
    unsigned fault_first, fault_count;
    struct platform_faults file;
    uint64_t changes;            /* watches that have begun or ended */
    bool serves, reads_file;     /* the threads were started */
    bool forks;                  /* the serving one does, right now */
    uint32_t server;             /* atomic: that thread */
    uint32_t runs;               /* atomic, a futex: handlers that have returned */
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
/* Under the lock: it ends; all its pages are as any others. */
void watch_end(struct page_watches *watches, struct strata_watch *watch);
void watch_free(struct strata_watch *watch);

/* page_watch_serve.c. False: no thread could be had. With no lock held. */
bool watch_start_server(struct page_watches *watches);
bool watch_start_reader(struct page_watches *watches);
/* For platform_on_access_fault. */
bool watch_serve_signal(char *page, bool write);

/* fork.c: prepare after all other locks were taken. */
void page_watch_fork_prepare(void);
void page_watch_fork_parent(void);
void page_watch_fork_child(void);

#endif
