/*
 * faults.h - the part of platform.h that is about page faults which the process serves itself: userfaultfd, access rights, memory that is
 * brought page by page, and the file behind it. Included by platform.h alone, whose promises hold here too.
 */
#ifndef STRATA_PLATFORM_FAULTS_H
#define STRATA_PLATFORM_FAULTS_H

#include "base/base.h"

/* ------------------------------------------------------------------ faults that the process serves itself */

/*
 * Ranges of committed memory whose page faults stop the thread that has them until somebody of this process has served them (Linux: userfaultfd).
 * A fault of a page that is absent is served by giving it a page, one of a page that is protected against writes by lifting that. Ranges that get
 * another address, or are unreserved, must be taken off before. A forked child has the memory, and nothing of all this: there platform_faults_close.
 */
enum platform_faults_feature {
    PLATFORM_FAULTS_PROTECT = 1,        /* pages can be protected against writes */
    PLATFORM_FAULTS_PROTECT_ABSENT = 2, /* absent ones too; else only what is present when protected is */
    PLATFORM_FAULTS_IN_KERNEL = 4,      /* system calls that meet such a page wait as well; else they fail with EFAULT */
    PLATFORM_FAULTS_THREAD = 8,         /* faults say which thread has them */
    PLATFORM_FAULTS_MOVE = 16,          /* pages can be moved (Linux 6.8) */
};
enum platform_faults_status {
    PLATFORM_FAULTS_OK,
    PLATFORM_FAULTS_FORBIDDEN,   /* by the system's settings, a container, a seccomp filter */
    PLATFORM_FAULTS_UNSUPPORTED, /* by this system; or it lacks a feature that is needed */
    PLATFORM_FAULTS_NO_MEMORY,   /* nor file numbers */
    PLATFORM_FAULTS_GONE,        /* the program has closed our file */
    PLATFORM_FAULTS_TAKEN,       /* another one serves this range already; of copy and zero: a page is there */
    PLATFORM_FAULTS_BAD_RANGE,   /* not all of it is registered, or can be */
};
struct platform_faults {
    int file;
    unsigned features; /* enum platform_faults_feature, joined by | */
    uint64_t device, inode;
};
#define PLATFORM_FAULTS_CLOSED {.file = -1}
/* With all features that can be had; `needed`: those without which it is of no use. */
enum platform_faults_status platform_faults_open(struct platform_faults *faults, unsigned needed);
/* Whether this process's table of files has it: a child's that was made without the handlers of fork does, too. */
bool platform_faults_is_there(const struct platform_faults *faults);
/* All ranges are taken off, all that wait go on. Of one that is closed: nothing. */
void platform_faults_close(struct platform_faults *faults);
/*
 * For a thread of platform_thread_start: from now on it has a table of files of its own, with this one in it and nothing else, so that nobody closes
 * it there before the thread does or ends. (Linux 5.9.) False: it shares the process's table, as before.
 */
bool platform_faults_keep(const struct platform_faults *faults);
/*
 * From now on faults of absent pages (missing), and of writes to protected ones (protect), are told. Where it fails, they may be of a part of the
 * range, until that is unregistered or the file closed.
 */
enum platform_faults_status platform_faults_register(struct platform_faults *faults, void *address, size_t bytes, bool missing, bool protect);
/* As it was registered: wakes whoever waits there; where pages can be protected, all protection is lifted first. */
enum platform_faults_status platform_faults_unregister(struct platform_faults *faults, void *address, size_t bytes, bool protect);
/* Against writes (on), or lifts that and wakes whoever waits there (off). */
enum platform_faults_status platform_faults_protect(struct platform_faults *faults, void *address, size_t bytes, bool on);
/*
 * Gives absent pages a copy of others, or zeros, all at once for those who look, and wakes whoever waits there. protect: they are protected against
 * writes from the start. PLATFORM_FAULTS_TAKEN: stopped at a page that is there. done (unless NULL): bytes that were given.
 */
enum platform_faults_status platform_faults_copy(struct platform_faults *faults, void *to, const void *from, size_t bytes, bool protect,
                                                 size_t *done);
enum platform_faults_status platform_faults_zero(struct platform_faults *faults, void *to, size_t bytes, size_t *done);
/*
 * Moves the pages of `from`, absent ones too, to a registered range without any, one by one and without a mapping more; `from` reads as zeros then.
 * Both are committed and apart, at any distance. done (unless NULL): bytes from the start that have moved. TAKEN: stopped at a page that is there, or
 * that can't move because something else holds it as well, such as the child of a fork.
 */
enum platform_faults_status platform_faults_move(struct platform_faults *faults, void *to, void *from, size_t bytes, size_t *done);
/* Whoever waits in the range tries again. */
void platform_faults_wake(struct platform_faults *faults, void *address, size_t bytes);
struct platform_fault {
    char *page;
    uint32_t thread; /* as platform_thread_self; 0: not known */
    bool write;
    bool protect; /* the page was there, and protected; else it was absent */
};
/*
 * Sleeps until there are faults, or timeout_ns passed; takes up to `count` of them, *got of which there are then. A fault is told once, until its
 * thread is woken and meets it again. GONE: no fault will be told any more. Several threads may read. Under locks with no time to sleep only.
 */
enum platform_faults_status platform_faults_read(struct platform_faults *faults, struct platform_fault *events, unsigned count, uint64_t timeout_ns,
                                                 unsigned *got);
/* Sleeps until there may be faults to read, the file is gone, or timeout_ns passed. Not under locks. */
void platform_faults_wait(struct platform_faults *faults, uint64_t timeout_ns);

/* The same without such a file, by access rights and the signal of who lacks them. System calls that meet such a page fail with EFAULT. */
enum platform_access { PLATFORM_ACCESS_NONE, PLATFORM_ACCESS_READ, PLATFORM_ACCESS_ALL };
/* Of committed pages. False: no mappings left, which each border costs. */
bool platform_protect(void *address, size_t bytes, enum platform_access access);
/*
 * From now on, in the thread that lacks a right: serve(page, write) returns true once it has it; false: it is none of ours, and the program's own
 * handler is called, or the process ends as it would have. write: it is known to be one. serve is async-signal-safe. For the life of the process, and
 * of its children; of two such functions each is asked. False: the system refuses, or there are two others.
 */
bool platform_on_access_fault(bool (*serve)(char *page, bool write));
/* Around a fork, one at a time: what another thread puts in place meanwhile need not be in the child. */
void platform_access_fork_prepare(void);
void platform_access_fork_child(void);
/* A thread of platform_thread_start, which is deaf to signals: from now on not to this one. */
void platform_hear_access_faults(void);

/* ------------------------------------------------------------------ memory whose pages the process brings itself */

/*
 * A block of pages that live in memory of ours, which shows all of them at a second address. A page that is out of reach in the block, or protected
 * there, stops the thread that touches it until it is mapped. Offsets and sizes are of whole pages. A forked child has neither of the two addresses.
 *
 * By faults that the process serves, or by access rights and signals (see above): then each page in reach may cost two mappings, of which only
 * so many may be in reach at a time.
 */
struct platform_paged {
    char *block; /* the program's */
    char *own;   /* the same pages, always in reach */
    size_t bytes;
    char *nothing; /* one page that can't be touched without SIGBUS, to be put in the place of others */
    struct platform_faults faults;
    struct platform_paged_signals *signals; /* NULL: by faults */
    uint32_t pages_max;                     /* in reach at a time */
};
enum platform_paged_way { PLATFORM_PAGED_ANY, PLATFORM_PAGED_FAULTS, PLATFORM_PAGED_SIGNALS }; /* any: faults where they can be had */
/* Needs PLATFORM_FAULTS_PROTECT. */
enum platform_faults_status platform_paged_open(struct platform_paged *paged, size_t bytes, enum platform_paged_way way);
/* Nobody may wait for faults. In the child of a fork, where only the file is left, forked. */
void platform_paged_close(struct platform_paged *paged, bool forked);
/* Sleeps until there are faults. *got: how many; 0 once after platform_paged_ring, or for no reason. GONE: the program has closed our file. */
enum platform_faults_status platform_paged_wait(struct platform_paged *paged, struct platform_fault *faults, unsigned count, unsigned *got);
/* Ends the wait of another thread, and returns when it has ended. Once. */
void platform_paged_ring(struct platform_paged *paged);
/*
 * Into reach, and wakes whoever waits; what is there already only has its protection lifted. *writable: without protection; the answer is true where
 * the system can't map with it (before Linux 6.4).
 */
enum platform_faults_status platform_paged_map(struct platform_paged *paged, size_t offset, size_t bytes, bool *writable);
/* Writes wait from now on. */
enum platform_faults_status platform_paged_protect(struct platform_paged *paged, size_t offset, size_t bytes);
/* Out of reach: the pages stay in memory. */
void platform_paged_hide(struct platform_paged *paged, size_t offset, size_t bytes);
/* Out of memory, and reach; they read as zeros at `own`. */
void platform_paged_drop(struct platform_paged *paged, size_t offset, size_t bytes);
/* Touching the page raises SIGBUS from now on. Wakes whoever waits. May cost two mappings. */
bool platform_paged_break(struct platform_paged *paged, size_t offset);
/*
 * No longer: the page, which has its contents in memory, is out of reach again. On the way there is a moment at which it can be touched. *written:
 * somebody wrote to it then. False: it is as it was.
 */
bool platform_paged_mend(struct platform_paged *paged, size_t offset, bool *written);
void platform_paged_wake(struct platform_paged *paged, size_t offset, size_t bytes);
/* Nobody reaches any page of the block again: for when faults can't be served any more. */
void platform_paged_seal(struct platform_paged *paged);

/*
 * The file behind such a block. All return 0, or the number of the error as errno has it. It may be closed or replaced by a program that closes what
 * it does not know (EBADF then). Writes raise no signal on threads of ours.
 */
struct platform_store {
    int file;
    uint64_t device, inode;
    bool passing;         /* see platform_store_pass */
    uint64_t dirty_bytes; /* of the system's cache, since it was last emptied; changed atomically */
    int error;            /* of writes to the disk that were met when it was; the next sync tells it. Atomic */
};
#define PLATFORM_STORE_NO_DATA (-1)   /* the file ends before what was to be read */
#define PLATFORM_STORE_NO_MEMORY (-2) /* for the tables of the system */
/*
 * path: created where there is none; NULL: `file`, of which a duplicate is kept. Must be a regular file, open for reading and writing, not for
 * appending only (EINVAL). Grown to `bytes` where it is smaller.
 */
int platform_store_open(struct platform_store *store, const char *path, int file, uint64_t bytes);
/*
 * From now on what was read or written does not stay in the system's cache, which counts where the memory of the process's group is limited: it
 * leaves when it was read, and soon after it was written, whose caller waits for the disk then.
 */
void platform_store_pass(struct platform_store *store);
int platform_store_read(struct platform_store *store, void *to, size_t bytes, uint64_t offset);
int platform_store_write(struct platform_store *store, const void *from, size_t bytes, uint64_t offset);
/* What was written is on the disk, and the size of the file too. */
int platform_store_sync(struct platform_store *store);
void platform_store_close(struct platform_store *store);
/* Whether the program has left our file alone so far. */
bool platform_store_is_ours(const struct platform_store *store);

/*
 * Reads and writes of such a file that go on meanwhile (Linux: io_uring). One thread, the same for all calls, has a ring; of a job nothing may be
 * touched from its begin to its end, its memory included.
 */
struct platform_store_ring;
struct platform_store_job {
    struct platform_store *store;
    void *memory;
    size_t bytes;
    uint64_t offset;
    bool write;
    int error; /* at its end, as of platform_store_read and _write */
};
/* For up to `depth` jobs at a time. NULL: the system has none, or forbids it. */
struct platform_store_ring *platform_store_ring_open(unsigned depth);
/* No job is under way. In the child of a fork, whatever was, forked. */
void platform_store_ring_close(struct platform_store_ring *ring, bool forked);
/* False: not begun, as there are too many, or the ring can't be used any more. */
bool platform_store_begin(struct platform_store_ring *ring, struct platform_store_job *job);
/* A job that has ended; NULL: none has, or, to one who waits, none is under way. */
struct platform_store_job *platform_store_end(struct platform_store_ring *ring, bool wait);

#endif
