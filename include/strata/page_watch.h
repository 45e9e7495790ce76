/*
 * strata/page_watch.h - watched pages: a handler is told before a page of a range is written to, or used at all, for the first time.
 *
 * For programs that want to know what has changed without keeping account of it themselves: incremental snapshots (examples/snapshots.c), write
 * barriers of collectors, checks in tests. The thread that wants to write stops, the handler runs, and then the write is done. From then on the page
 * is as any other, until it is armed again.
 *
 *     static void changed(const struct strata_watch_event *event, void *argument) { mark(argument, event->address); }
 *     ...
 *     struct strata_watch *watch;
 *     if (strata_page_watch(log, 64 << 20, STRATA_WATCH_WRITES, changed, &marks, &watch) != STRATA_WATCH_OK) ...
 *     ...                                                       // marks has the pages that were written to
 *     strata_page_rearm(watch, log, 64 << 20);                  // the next round
 *
 * Two mechanisms, chosen for each watch:
 *   userfaultfd   where the system has it and allows it: for STRATA_WATCH_WRITES alone by write protection (Linux 6.4), for reads by pages that are
 * away (Linux 6.8). Costs no mappings.
 *   signals       for all else, or by the options watch:signals and watch:protect (docs/options.md): the pages lose access rights, and whoever meets
 * one has SIGSEGV, of which a handler in front of the program's takes what is ours and passes on the rest. A program that sets a handler of its own
 * after the first watch without calling the one before, or a thread that blocks SIGSEGV, ends at a watched page. Each border between told and untold
 * pages costs one mapping; where the process has no more, the watch ends (STRATA_WATCH_ENDED), and with it those side by side with it.
 * Where RLIMIT_DATA was set before the watch, its range counts for that once more until strata_page_unwatch; where nothing is left, a write that is
 * told ends the watch.
 * A system call that meets an untold page waits for the handler as a thread does where strata_watch_info says in_kernel (userfaultfd, with privilege
 * or where the system gives it to all), and fails with EFAULT elsewhere: there a program touches what it hands to one.
 *
 * Watches for reads by userfaultfd keep untold pages at a second range of addresses, as large as theirs (RLIMIT_AS counts both). They go by signals
 * where that is not to be had, or a page is pinned for a device. Until such a page is told, a debugger, a core file, and a child that was made
 * without the handlers of fork (_Fork, clone) find zeros in its place: such a child must not look at it. Nor may the program do anything with the
 * pages of a watch by itself: mremap, munmap, madvise.
 *
 * The handler runs on a thread of strata's own, one call at a time for all watches, with all signals but SIGSEGV blocked and no lock held. It may use
 * every function of strata, and read the page that it is told of at event->contents, which lets nobody pass: there are its old contents where the
 * access is a write. Read at its own address, too, the page is as it was, but others may read it then. What else it touches of watched pages is not
 * told, counts as told, and lets other threads do the same at once; so is a write to the page itself. It must not wait for a thread that may be at a
 * watched page.
 *
 * A watch ends by itself when any of its range is freed, released, moved, exchanged, or its block resized by any function of strata or malloc: the
 * whole of it, before pages leave; the handler is told (STRATA_WATCH_ENDED) soon after, and strata_page_unwatch is still to be called. A resize that
 * fails leaves it, unless the system refused to move pages at the last moment. Splitting and joining blocks leaves it as it is; strata_page_commit
 * counts as a write to each page. fork: in the child all watches have ended, and nobody is told.
 *
 * Valid in C11 and C++. Threads: any may call. Signals: not for signal handlers. errno stays as it was. The design follows Douglas, "User Mode Memory
 * Page Allocation" (2011), section 2, 5-ii.
 */
#ifndef STRATA_PAGE_WATCH_H
#define STRATA_PAGE_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <strata/strata.h>

#ifdef __cplusplus
extern "C" {
#endif

struct strata_watch;

enum strata_watch_status {
    STRATA_WATCH_OK = 0,
    STRATA_WATCH_NO_MEMORY,    /* for the watch, its threads, or mappings for its borders */
    STRATA_WATCH_BAD_ARGUMENT, /* NULL, no whole pages, no kinds or unknown ones, a range outside of the watch */
    STRATA_WATCH_NO_BLOCK,     /* the range is not inside one block */
    STRATA_WATCH_TAKEN,        /* part of it is watched already */
    STRATA_WATCH_FORBIDDEN,    /* the system allows neither mechanism */
    STRATA_WATCH_GONE,         /* the watch has ended */
};
/* A short English text, never NULL; also for values that are none. Async-signal-safe. */
STRATA_API const char *strata_watch_status_text(enum strata_watch_status status) STRATA_NOEXCEPT;

/*
 * What is told. A watch for both tells the first access of a page, and where that was a read, the first write too. One for reads alone tells the
 * first access of each page, whatever it is. Pages that are absent make no difference.
 */
enum strata_watch_kind {
    STRATA_WATCH_WRITES = 1,
    STRATA_WATCH_READS = 2,
    STRATA_WATCH_ENDED = 4, /* told only: the watch has ended, and nothing of it is told any more */
};

struct strata_watch_event {
    struct strata_watch *watch;
    enum strata_watch_kind kind;
    void *address; /* the page; of STRATA_WATCH_ENDED the range */
    size_t bytes;
    const void *contents; /* the page as it is before the access, to be read until the handler returns; of STRATA_WATCH_ENDED NULL */
};

/*
 * strata_page_watch - tells `handler` of accesses to a range.
 *
 * address, bytes: whole pages inside one block of strata/page.h, or of malloc where it is large. kinds: of enum strata_watch_kind, joined by |.
 * argument: passed to the handler. watch: receives the watch, on success only. Returns all but STRATA_WATCH_GONE; a failure has changed nothing.
 * Cost: linear in the pages that are present, up to 0.5 us each. An access that is told: 4 to 30 us, two changes of threads there and back. Both look
 * for the watch among all that there are, some 10 ns each: 0.1 ms for an access beside some thousand. The first watch of a process starts one thread,
 * the first by userfaultfd another, which has a table of files of its own. Watches for reads by userfaultfd take as much address space again, until
 * strata_page_unwatch.
 */
STRATA_API enum strata_watch_status strata_page_watch(void *address, size_t bytes, unsigned kinds,
                                                      void (*handler)(const struct strata_watch_event *event, void *argument), void *argument,
                                                      struct strata_watch **watch) STRATA_NOEXCEPT;

/*
 * strata_page_rearm - pages that were told are told again at their next access; those that were not stay as they are.
 *
 * address, bytes: whole pages of the watch. The page of which the handler is told right now is left out by the handler itself; if another thread
 * calls, it is told again once the handler has returned, before what it was told of happens. STRATA_WATCH_GONE, STRATA_WATCH_BAD_ARGUMENT;
 * STRATA_WATCH_NO_MEMORY: the watch has ended, for want of memory or mappings, as a page is pinned for a device now, or as the program has closed
 * userfaultfd's file (then within 2 s). Who copies what has changed rearms first and copies then: what is written meanwhile is told.
 * Cost: one system call or two, linear in the pages.
 */
STRATA_API enum strata_watch_status strata_page_rearm(struct strata_watch *watch, void *address, size_t bytes) STRATA_NOEXCEPT;

/*
 * strata_page_unwatch - nothing of the watch is told any more, and it is gone. Waits for the handler where it is running for this watch, unless it is
 * the handler itself that calls: the caller must not be at odds with it over a lock. NULL: nothing. Cost: as of strata_page_watch.
 */
STRATA_API void strata_page_unwatch(struct strata_watch *watch) STRATA_NOEXCEPT;

struct strata_watch_info {
    void *address;
    size_t bytes;
    unsigned kinds;
    bool userfaultfd; /* else by signals */
    bool in_kernel;   /* system calls wait for the handler */
    bool ended;
    uint64_t writes, reads; /* that were told */
};
/* strata_page_watch_info - watch, info: not NULL. */
STRATA_API void strata_page_watch_info(struct strata_watch *watch, struct strata_watch_info *info) STRATA_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
