/*
 * strata/paging.h - blocks larger than memory: their pages live in a file of the program's choice, read and written by the process itself.
 *
 * A paging is a block of addresses and a file of the same size. A page that is touched is read; when as many pages as the limit allows are in
 * memory, others leave, and those that were written to go to the file first. Which ones leave, how much is read ahead, what becomes of an error of
 * the file: the program decides, not the system.
 *
 *     struct strata_paging_config config = {.path = "table", .bytes = 64ull << 30, .resident_limit_bytes = 1 << 30};
 *     struct strata_paging *paging;
 *     if (strata_paging_open(&config, &paging) != STRATA_PAGING_OK) ...
 *     struct row *rows = strata_paging_address(paging);              // 64 GiB in 1 GiB of memory
 *     rows[n].count++;                                               // any code, on any thread
 *     if (strata_paging_sync(paging, NULL, 0) != STRATA_PAGING_OK) ...
 *     strata_paging_close(paging, STRATA_PAGING_SAVE);
 *
 * What is on the disk. After strata_paging_sync: what the program had written there before the call, or newer contents that it has written since.
 * Between two calls each page is written when the dirty limit, room or the program wants it, in no order: after the process is killed, each page of
 * the file is what it was at some time since the last sync, not all of them at the same time. Pages that were not written to since are as the sync
 * left them. When the system itself ends, the file system adds what it has lost itself. Programs that need more keep a log beside it.
 *
 * Linux 5.19 with userfaultfd serves a paging best; before 6.4 pages that were read count as dirty. Without privilege (CAP_SYS_PTRACE, or
 * vm.unprivileged_userfaultfd) a system call that is given an address whose page is out of reach, as read(2) into the block, fails with EFAULT: see
 * `system_calls` of the figures.
 *
 * Where userfaultfd can't be had, as in containers that forbid it, access rights and SIGSEGV stand in for it (`by_signals` of the figures). Then
 *   - a page in memory may take two mappings, of which the process has vm.max_map_count: the resident limit is lowered to a quarter of that number of
 *     pages (16,382; 64 MiB of pages of 4 KiB). Where the program has used up the rest, paging goes on, more slowly;
 *   - system calls fail with EFAULT as above, always;
 *   - our handler of SIGSEGV comes in front of the program's, which still gets what is not ours. A program that sets one of its own later has to call
 *     the one that it finds, or not touch the block; a thread that blocks SIGSEGV must not touch it. Who waits for a page is within that handler;
 *   - on processors other than x86-64, a page that two threads touch at a time may count as written to.
 * STRATA_PAGING_NO_SIGNALS asks for STRATA_PAGING_NO_FAULTS in place of all this.
 *
 * Valid in C11 and C++. For all functions, where nothing else is said:
 *   - any thread may use the block, and call these functions, at any time, but for strata_paging_close, after which there is no block;
 *   - fork: a child does not have the block: touching it is SIGSEGV there, and the functions answer STRATA_PAGING_FORKED, but
 *     strata_paging_close, which gives back what the child has of it. The parent is not concerned;
 *   - signals: not async-signal-safe. A thread that waits for a page may run its handlers meanwhile;
 *   - two threads of strata serve each paging, with all signals blocked: they end with strata_paging_close, and keep a process alive whose own
 *     threads have all ended by pthread_exit;
 *   - the block can't be locked in memory: what mlock or mlockall have locked of it is so no longer than until a page leaves;
 *   - two file descriptors serve each paging, or one by signals. A program that closes what it does not know, as by closefrom, must not do so
 * meanwhile: when that is noticed, at the next fault or within two seconds, the block goes out of reach (SIGSEGV); who waits at that moment may see
 * zeros;
 *   - handlers and policies run on threads of strata: they must not touch the block, nor call functions of this header, nor wait for a thread
 *     that may touch it.
 *
 * The idea is item 7 of section 2 in Douglas, "User Mode Memory Page Allocation" (2011).
 */
#ifndef STRATA_PAGING_PUBLIC_H
#define STRATA_PAGING_PUBLIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <strata/strata.h>

#ifdef __cplusplus
extern "C" {
#endif

struct strata_paging;

enum strata_paging_status {
    STRATA_PAGING_OK = 0,
    STRATA_PAGING_BAD_ARGUMENT, /* NULL, 0 bytes, 2^32 - 2 pages or more, a limit too small, a range that is not inside the block, unknown flags, or
                                   flags that exclude each other */
    STRATA_PAGING_NO_MEMORY,    /* address space, mappings, file descriptors, or threads */
    STRATA_PAGING_NO_FAULTS,    /* the system does not let this process serve its own page faults, by what the flags allow */
    STRATA_PAGING_FILE_ERROR,   /* of the file: errno says which */
    STRATA_PAGING_FORKED,       /* the paging is the parent's */
};
/* A short English text, never NULL; also for values that are none. Async-signal-safe. */
STRATA_API const char *strata_paging_status_text(enum strata_paging_status status) STRATA_NOEXCEPT;

/* ------------------------------------------------------------------ errors of the file */

struct strata_paging_error {
    bool write; /* else it was a read, for a thread that waits */
    int error;  /* as errno has it: EIO, ENOSPC, EFBIG; ENODATA: the file has become shorter */
    uint64_t offset_bytes;
    size_t bytes;
};
enum strata_paging_decision {
    /*
     * A read: the page can't be had. Whoever touches it gets SIGBUS, until strata_paging_advise has STRATA_PAGING_DONT_NEED for it. That takes a
     * mapping: while the system refuses one (vm.max_map_count, RLIMIT_AS), whoever touches the page waits.
     * A write: it stays in memory; and while no page can leave for that reason, one that would need its room can't be had, as above.
     */
    STRATA_PAGING_GIVE_UP = 0,
    STRATA_PAGING_RETRY, /* at once: the handler waits itself, if there is something to wait for. Once a close has nothing to save: GIVE_UP */
    STRATA_PAGING_GO_ON, /* a read: the page reads as zeros, which before Linux 6.4 go to the file. A write: it stays in memory, beyond the limit if
                            need be, and is tried again later */
};

/* ------------------------------------------------------------------ eviction */

enum strata_paging_action {
    STRATA_PAGING_NOTHING, /* no page shall leave */
    STRATA_PAGING_SAMPLE,  /* the page is put out of reach, but stays: when it is used again, `touch` tells */
    STRATA_PAGING_EVICT,   /* the page leaves; written first, if it is dirty */
};
/*
 * Which page leaves. Pages are numbered from the start of the block. All run under the lock of the paging, one at a time: they should take
 * microseconds. What is NULL is not called, but `next` must be there.
 */
struct strata_paging_policy {
    void (*enter)(uint64_t page, void *argument); /* is in memory now */
    void (*touch)(uint64_t page, void *argument); /* was used: for the first time, since it was sampled, or by the first write since it was clean */
    void (*leave)(uint64_t page, void *argument); /* is not in memory any more */
    /*
     * Room is wanted: *page is to be sampled or evicted. Asked until there is room. Pages that are on their way, or can't be written now, or are not
     * in memory, can't be followed; after one such answer for each resident page the limit is exceeded.
     */
    enum strata_paging_action (*next)(uint64_t *page, void *argument);
    void *argument;
};

/* ------------------------------------------------------------------ life */

/* The least limit of resident pages: an instruction may need several at a time, and so may each thread. */
#define STRATA_PAGING_PAGES_MIN 32

/* Zero what isn't needed, but for bytes, resident_limit_bytes, and path or file. */
struct strata_paging_config {
    const char *path; /* a regular file, created (mode 0600) where there is none; NULL: `file` */
    int file;         /* open for reading and writing, without O_APPEND; a duplicate is kept, by which reading ahead may end for both */
    unsigned flags;   /* enum strata_paging_flags */
    uint64_t bytes;   /* of block and file. A file that is shorter grows, and reads as zeros there; of one that is longer, the start is used */
    size_t resident_limit_bytes;               /* of pages in memory: STRATA_PAGING_PAGES_MIN pages at least */
    size_t dirty_limit_bytes;                  /* of pages that the file has older contents of; 0: a quarter of the resident limit */
    size_t read_ahead_bytes;                   /* once faults follow each other; 0: 128 KiB. At most a quarter of the resident limit is used */
    const struct strata_paging_policy *policy; /* NULL: a clock with two hands */
    enum strata_paging_decision (*handler)(const struct strata_paging_error *error, void *argument); /* NULL: reads give up, writes go on */
    void *handler_argument;
};
enum strata_paging_flags {
    STRATA_PAGING_NO_READ_AHEAD = 1,
    STRATA_PAGING_BY_SIGNALS = 2, /* even where there is userfaultfd */
    STRATA_PAGING_NO_SIGNALS = 4, /* even where there is none; not both */
    /*
     * Read-ahead and write-behind by pread and pwrite, one after the other, also where io_uring could have up to 8 stretches under way: through
     * liburing, where that is installed (liburing.so.2) and was when the library was built, the system has it (Linux 5.6) and allows it, and no
     * filter of system calls (seccomp) is set. That takes one more file descriptor, and spares a program that names in advance many places of a file
     * that the system has not in its memory a tenth of the time; a sort it spares none. Errors are the same.
     */
    STRATA_PAGING_NO_IO_URING = 8,
};

/*
 * strata_paging_open - a block of config->bytes, backed by a file.
 *
 * config: copied, and the policy. paging: receives it, on success only. Two pagings of one file must not overlap in time. Returns STRATA_PAGING_OK;
 * STRATA_PAGING_BAD_ARGUMENT; STRATA_PAGING_NO_FAULTS; STRATA_PAGING_NO_MEMORY; STRATA_PAGING_FILE_ERROR with errno: of open(2) or ftruncate(2);
 * EINVAL where it is not a regular file or opened in another way; EFBIG beyond RLIMIT_FSIZE. Then a file that did not exist before may exist. Cost:
 * two threads. Memory: the resident limit, 20 bytes for each page that is resident, 4 for each that ever was; address space: the block twice. The
 * file's own pages in the system's cache come on top, which the system gives up when it needs memory; in a control group whose limit can't hold the
 * file beside the resident pages, where the system may end processes rather, they are given up at once, and the worker waits for the disk instead.
 */
STRATA_API enum strata_paging_status strata_paging_open(const struct strata_paging_config *config, struct strata_paging **paging) STRATA_NOEXCEPT;

/* strata_paging_address - the start of the block: a multiple of a page. NULL for NULL. Does not change. */
STRATA_API void *strata_paging_address(const struct strata_paging *paging) STRATA_NOEXCEPT;

/*
 * strata_paging_sync - writes what is dirty, and waits until the disk has it.
 *
 * address, bytes: a range inside the block, taken in whole pages; NULL and 0: all of it. Returns STRATA_PAGING_OK; STRATA_PAGING_FILE_ERROR with
 * errno: the handler was asked before, and what could not be written is still in memory, and dirty (but where the disk itself, in fdatasync(2),
 * reports that it lost what it had taken); STRATA_PAGING_BAD_ARGUMENT; STRATA_PAGING_FORKED. Cost: a look at each resident page, one write for each
 * stretch of up to 32 pages, one fdatasync.
 */
STRATA_API enum strata_paging_status strata_paging_sync(struct strata_paging *paging, void *address, size_t bytes) STRATA_NOEXCEPT;

enum strata_paging_advice {
    STRATA_PAGING_WILL_NEED, /* read ahead, as far as it fits into half of the resident limit. Does not wait, and errors are not told */
    STRATA_PAGING_DONT_NEED, /* written where dirty, and out of memory when the call returns. Pages that had failed are read anew, once; they fail
                                again where that does */
};
/* strata_paging_advise - what will become of a range. Range, results and cost as of strata_paging_sync, without fdatasync. */
STRATA_API enum strata_paging_status strata_paging_advise(struct strata_paging *paging, void *address, size_t bytes,
                                                          enum strata_paging_advice advice) STRATA_NOEXCEPT;

enum strata_paging_end {
    STRATA_PAGING_SAVE,    /* as after strata_paging_sync of all; where that fails, nothing is closed */
    STRATA_PAGING_DISCARD, /* what was not written yet is lost */
};
/* strata_paging_close - no thread may use the block any more. NULL: nothing. Returns as strata_paging_sync, and in a forked child STRATA_PAGING_OK.
 */
STRATA_API enum strata_paging_status strata_paging_close(struct strata_paging *paging, enum strata_paging_end end) STRATA_NOEXCEPT;

/* Pages, and counts of them since the start, unless another thing is said. */
struct strata_paging_stats {
    uint64_t pages, resident_limit, dirty_limit;
    uint64_t resident, dirty; /* now */
    uint64_t failed;          /* now: touching them raises SIGBUS */
    uint64_t faults;          /* that threads waited for */
    uint64_t reads;
    uint64_t read_ahead; /* of reads: before they were wanted */
    uint64_t writes;
    uint64_t evictions;
    uint64_t samples;                   /* put out of reach to see whether they are used */
    uint64_t read_errors, write_errors; /* calls that failed, retries too */
    uint64_t beyond_limit;              /* taken in although the limit was reached, as no page could leave */
    size_t page_bytes;
    bool system_calls; /* may be given any address of the block; else EFAULT, see above */
    bool by_io_uring;  /* see STRATA_PAGING_NO_IO_URING */
    bool by_signals;   /* pages are reached by access rights and SIGSEGV, see above */
};
/* strata_paging_stats_get - figures of one moment. STRATA_PAGING_BAD_ARGUMENT, STRATA_PAGING_FORKED. Cost: constant. */
STRATA_API enum strata_paging_status strata_paging_stats_get(struct strata_paging *paging, struct strata_paging_stats *stats) STRATA_NOEXCEPT;

/* strata_paging_check - NULL, or which invariant of a paging does not hold: strata has a bug. Cost: linear in its pages. */
STRATA_API const char *strata_paging_check(struct strata_paging *paging) STRATA_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
