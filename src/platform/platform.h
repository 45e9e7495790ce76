/*
 * platform.h - everything that strata asks of an operating system. The only facade of platform/.
 *
 * Two implementations are linked in turn: `linux`, and `sim` (fake memory, faults, clock, virtual CPUs) for tests.
 * Unless a function says otherwise: it is thread-safe, it may be called while any strata lock is held, it is
 * async-signal-safe, it never allocates through malloc, it keeps errno, and a failure changes nothing.
 *
 * Addresses and sizes are multiples of the page size (platform_info()->page_bytes), which is known only at run time.
 */
#ifndef STRATA_PLATFORM_PLATFORM_H
#define STRATA_PLATFORM_PLATFORM_H

#include "base/base.h"
#include "platform/faults.h"

/* ------------------------------------------------------------------ facts */

/* Whether the C library has the malloc family for programs under names of its own, too: __libc_malloc and so on. musl's are for itself. */
#if defined(__GLIBC__)
#define PLATFORM_HAS_LIBC_NAMES 1
#else
#define PLATFORM_HAS_LIBC_NAMES 0
#endif

struct platform_info {
    size_t page_bytes;            /* the operating system's base page: 4, 16 or 64 KiB */
    unsigned page_shift;          /* log2(page_bytes) */
    unsigned cpus;                /* processors that the process may ever run on: the bound of concurrency ids */
    uint64_t address_limit_bytes; /* RLIMIT_AS, UINT64_MAX where there is none */
    uint64_t data_limit_bytes;    /* RLIMIT_DATA, likewise: of all that is committed */
    bool secure;                  /* set-user-id and the like: the environment is not to be trusted with files */
};

/* Reads the facts once. Called before anything else here, by one thread; later calls do nothing. */
void platform_init(void);
const struct platform_info *platform_info(void);
/* Whether there is such a limit now: a program may set one later. Asks the system each time. */
bool platform_data_is_limited(void);
/* How many mappings a process may have. Read from the system at the first call only, as few programs ever need it. */
uint64_t platform_map_count_limit(void);
/*
 * Memory that is committed costs nothing until it is used where neither of these is true. may_lock: the process, which has reserved so much, may have
 * all of its memory locked, which would make it present; charged: the system counts it, though nobody has used it. Each is asked of the system at
 * its first call only: some system calls. The second one leaves address space mapped, closed, for commit_asked to give back, which interrupts the
 * other processors and so is not for whoever waits. All by any thread.
 */
bool platform_may_lock(uint64_t reserved_bytes);
bool platform_commit_is_charged(void);
void platform_commit_asked(void);
/* Whether filters stand between the process and the system (Linux: seccomp): they may end it for a call that its program did not expect. */
bool platform_is_filtered(void);
/* Whether the program has put them there since it began, so that it may have reckoned with the calls of a malloc alone: it is asked for no others. */
bool platform_is_locked_in(void);
/* What the machine has, swap included. A fork is refused where one mapping that can be written to is larger. Read from the system at the first call.
 */
uint64_t platform_memory_bytes(void);

/* ------------------------------------------------------------------ memory */

/* Address space without pages and without access. `hint` is a wish (NULL: none); `align` a power of two >= the page. NULL where there is none. */
void *platform_reserve(void *hint, size_t bytes, size_t align);
/* The same at exactly `address`, never over an existing mapping. */
bool platform_reserve_at(void *address, size_t bytes);
/* Gives address space back, whatever state its pages are in. */
void platform_unreserve(void *address, size_t bytes);
/* Makes reserved space readable and writable; pages read as zeros until written. */
bool platform_commit(void *address, size_t bytes);
/* Hands the pages back to the system and makes committed space as it was when it was reserved: without access. */
bool platform_decommit(void *address, size_t bytes);
/* Hands the pages back to the system; the space stays committed, reads as zeros again. */
bool platform_release(void *address, size_t bytes);
struct platform_range {
    void *address;
    size_t bytes;
};
/* The same for many ranges, by one call where the system has one for that. False: one of them was not released, the others were. */
bool platform_release_all(const struct platform_range *ranges, size_t count);
/* platform_populate of many ranges by one call. False: the system has none for that, or failed in between: then do it one by one. */
bool platform_populate_all(const struct platform_range *ranges, size_t count);
/* Makes pages present and writable now, without changing their contents. */
bool platform_populate(void *address, size_t bytes);
/*
 * Makes whole pages read as zeros, at the lesser cost: what is mostly present is cleared and stays, what is mostly absent is dropped, so that memory
 * which nobody has touched is not made present. For a caller that nobody else sees the pages of.
 */
void platform_zero(void *address, size_t bytes);
/* Asks for (on) or against (off) transparent huge pages. False where the system has none. */
bool platform_advise_huge(void *address, size_t bytes, bool on);
/*
 * Moves the pages of `from` to `to` by changing page tables. Both ranges are committed; the former pages of `to`
 * are dropped; `from` stays committed and reads as zeros. Cheap where both are congruent modulo 2 MiB. May cost two
 * mappings of the process's map count. False: `from` is as it was, `to` is committed still, but may have lost its pages.
 */
bool platform_move(void *from, void *to, size_t bytes);
/*
 * Exchanges the pages of two ranges by changing page tables, by way of a third, all committed and apart; `through` has no pages, and has none
 * afterwards. May cost six mappings. False: nothing has happened.
 */
bool platform_swap(void *a, void *b, void *through, size_t bytes);
enum platform_page {
    PLATFORM_PAGE_ABSENT,  /* reads as zeros, takes no memory */
    PLATFORM_PAGE_PRESENT, /* or can't be told */
    PLATFORM_PAGE_SWAPPED,
};
/* enum platform_page of each page of a committed range. False: can't be found out. Linear in the pages. */
bool platform_presence(const void *address, size_t bytes, uint8_t *pages);
/*
 * The same at less cost: for each page of a committed range 1 where it is in memory, else 0, swapped ones too. False: can't be found out. Linear in
 * the pages, 2 to 4 ns each.
 */
bool platform_resident(const void *address, size_t bytes, uint8_t *pages);
/* Somebody looks often from now on, or no longer: a file is kept open meanwhile. Counted. */
void platform_presence_keep(bool keep);
/* Of a committed range: how many bytes are mapped by huge pages. False: can't be found out. */
bool platform_huge_in(const void *address, size_t bytes, uint64_t *huge_bytes);
/* Drops pages as platform_release does and makes the range one ordinary mapping again, after moves have split it. Stays committed. */
bool platform_reset(void *address, size_t bytes);
/* Bytes of the process's memory that are mapped by huge pages now (a read of /proc: slow; not async-signal-safe). */
uint64_t platform_huge_bytes(void);
/* Resident bytes of the process now, 0 where the system does not say (a read of /proc, some 20 us; async-signal-safe, no cancellation point). */
uint64_t platform_resident_bytes(void);

/* ------------------------------------------------------------------ memory at several addresses */

/*
 * Memory with a file number of its own, which can be shown at several addresses at once, and by other processes. All of it is in reach at `base`.
 * Shared with forked children.
 */
enum platform_shared_status {
    PLATFORM_SHARED_OK,
    PLATFORM_SHARED_NO_MEMORY,
    PLATFORM_SHARED_NO_HUGE, /* the pool of huge pages has too few */
    PLATFORM_SHARED_UNSUPPORTED,
};
struct platform_shared {
    char *base;
    size_t bytes;
    int file;
    uint64_t device, inode; /* of the file: a program may close its number, and have another one under it */
};
/* bytes: a multiple of 2 MiB, as is the base's alignment. huge: of huge pages, taken from the system's pool now; else pages come when they are
 * touched. */
enum platform_shared_status platform_shared_open(struct platform_shared *shared, size_t bytes, bool huge, const char *name);
void platform_shared_close(struct platform_shared *shared);
/* A part of it in place of reserved space, or of another part. False: no mappings left; the place may show nothing then. */
bool platform_shared_show(const struct platform_shared *shared, size_t offset, size_t bytes, void *address);
/* Nothing there again: reserved space. */
bool platform_shared_hide(void *address, size_t bytes);
/* Memory behind a part is taken now; is given back, and reads as zeros. */
bool platform_shared_populate(const struct platform_shared *shared, size_t offset, size_t bytes);
bool platform_shared_discard(const struct platform_shared *shared, size_t offset, size_t bytes);
/* Of memory that nobody has touched: its pages come from this NUMA node. False: there is none such, or the system can't. */
bool platform_bind_node(void *address, size_t bytes, unsigned node);

/* ------------------------------------------------------------------ time */

/* Monotonic nanoseconds; resolution may be as coarse as 10 ms, cost a few ns. */
uint64_t platform_now_ns(void);
/* The same, when a process begins: without code of the C library that a small one has no other use for. */
uint64_t platform_first_ns(void);
/* The same as exactly as the system can tell, to measure what took microseconds. The two must not be compared with each other. */
uint64_t platform_precise_ns(void);

/* ------------------------------------------------------------------ locks */

/*
 * A mutex of one word, zero when free: a short spin, then a futex. Not recursive. Debug builds check that a thread takes
 * locks in falling layer order: the holder of a lock of rank r takes only locks of a higher number.
 */
enum lock_rank {
    LOCK_RANK_API = 1,                         /* options, fork, maintenance */
    LOCK_RANK_ARENAS,                          /* the list of the program's arenas */
    LOCK_RANK_DEBUG,                           /* api/ which caches are debugged */
    LOCK_RANK_OBJECTS,                         /* cache/ the list of object caches */
    LOCK_RANK_DRAIN,                           /* one drain of CPU caches at a time */
    LOCK_RANK_DEPOT,                           /* cache/ depot, one a cache */
    LOCK_RANK_FRAMES_HIDING = LOCK_RANK_DEPOT, /* page/ pages of windows, one a zone of frames: it knows no cache */
    LOCK_RANK_SLAB,                            /* slab/ lists, one a shard of a cache */
    LOCK_RANK_FRAMES_SLOT = LOCK_RANK_SLAB, /* page/ zones of frames, which know neither slabs nor the heap's zone nor arenas: one a CPU and zone, */
    LOCK_RANK_ZONE,                         /* page/ zone */
    LOCK_RANK_PAGER = LOCK_RANK_ZONE,       /* page/, one a pager: it knows no zone */
    LOCK_RANK_FRAMES = LOCK_RANK_ZONE,      /* then the zone's, */
    LOCK_RANK_ARENA,                        /* arena/, one an arena; an arena never holds it while it calls its source */
    LOCK_RANK_RUN_CACHE = LOCK_RANK_ARENA,  /* page/ runs that blocks have left, one a CPU; nothing is called under it */
    LOCK_RANK_FRAMES_LRU = LOCK_RANK_ARENA, /* then that of its lists of pages by age */
    LOCK_RANK_METADATA,                     /* page/ bootstrap allocator */
    LOCK_RANK_HANDLES = LOCK_RANK_METADATA, /* api/, one a table of handles */
    LOCK_RANK_WATCHES,                      /* ranges of blocks that the program watches */
    LOCK_RANK_PLATFORM,                     /* inside platform/ */
};

/*
 * PLATFORM_LOCK_FORK: held around a fork. Only the thread that forks may take it then, as handlers of others that run between ours may
 * allocate; taken so it is PLATFORM_LOCK_FORK_TAKEN, and its release leads back.
 */
enum platform_lock_word {
    PLATFORM_LOCK_FREE,
    PLATFORM_LOCK_HELD,
    PLATFORM_LOCK_WAITED, /* held, perhaps with waiters */
    PLATFORM_LOCK_FORK,
    PLATFORM_LOCK_FORK_TAKEN
};

struct platform_lock {
    uint32_t word; /* enum platform_lock_word; accessed by atomics only */
    uint32_t rank; /* enum lock_rank, immutable */
};
#define PLATFORM_LOCK_INIT(r) {0, (r)}

void platform_lock_acquire_slow(struct platform_lock *lock);
void platform_lock_release_slow(struct platform_lock *lock);
#ifdef STRATA_LOCK_DEBUG
void platform_lock_note_acquire(struct platform_lock *lock);
void platform_lock_note_release(struct platform_lock *lock);
void platform_lock_note_reset(struct platform_lock *lock);
#else
STRATA_INLINE void platform_lock_note_acquire(struct platform_lock *lock) { (void)lock; }
STRATA_INLINE void platform_lock_note_release(struct platform_lock *lock) { (void)lock; }
STRATA_INLINE void platform_lock_note_reset(struct platform_lock *lock) { (void)lock; }
#endif

/*
 * Whether the process surely has one thread, ours included, by the C library's word for it. False where it can't be known, on the simulated
 * platform, and under ThreadSanitizer. Constant.
 */
#if defined(STRATA_SIM) || defined(__SANITIZE_THREAD__)
STRATA_INLINE bool platform_thread_is_alone(void) { return false; }
#else
extern const char *platform_one_thread __attribute__((visibility("hidden"))); /* that word, or one that is 0; immutable after platform_init */
STRATA_INLINE bool platform_thread_is_alone(void) { return __atomic_load_n(platform_one_thread, __ATOMIC_RELAXED) != 0; }
#endif

/*
 * Acquire order on success: what the last holder wrote is visible. A thread that is alone leaves out atomic instructions, some 20 cycles each: no
 * other can hold the lock, nor come while this one does, as whoever makes threads holds none; a handler of its own signals sees its stores in
 * order, and leaves the lock as it found it.
 */
STRATA_INLINE bool platform_lock_take_free(struct platform_lock *lock) {
    if (platform_thread_is_alone()) {
        if (STRATA_UNLIKELY(__atomic_load_n(&lock->word, __ATOMIC_RELAXED) != PLATFORM_LOCK_FREE)) return false;
        __atomic_store_n(&lock->word, PLATFORM_LOCK_HELD, __ATOMIC_RELAXED);
        __atomic_signal_fence(__ATOMIC_ACQUIRE);
        return true;
    }
    uint32_t expected = PLATFORM_LOCK_FREE;
    return __atomic_compare_exchange_n(&lock->word, &expected, PLATFORM_LOCK_HELD, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}
/* Release order: pairs with the acquire of the next holder. */
STRATA_INLINE void platform_lock_let_go(struct platform_lock *lock) {
    /* Only the holder makes this value and takes it back: a look without order suffices. */
    if (STRATA_UNLIKELY(__atomic_load_n(&lock->word, __ATOMIC_RELAXED) == PLATFORM_LOCK_FORK_TAKEN))
        __atomic_store_n(&lock->word, PLATFORM_LOCK_FORK, __ATOMIC_RELAXED);
    else if (platform_thread_is_alone())
        __atomic_store_n(&lock->word, PLATFORM_LOCK_FREE, __ATOMIC_RELEASE);
    else if (STRATA_UNLIKELY(__atomic_exchange_n(&lock->word, PLATFORM_LOCK_FREE, __ATOMIC_RELEASE) == PLATFORM_LOCK_WAITED))
        platform_lock_release_slow(lock);
}

/* In place, for the few that malloc and free come to often: */
STRATA_INLINE bool platform_lock_try_here(struct platform_lock *lock) {
    if (!platform_lock_take_free(lock)) return false;
    platform_lock_note_acquire(lock);
    return true;
}
STRATA_INLINE void platform_lock_acquire_here(struct platform_lock *lock) {
    if (STRATA_UNLIKELY(!platform_lock_take_free(lock))) platform_lock_acquire_slow(lock);
    platform_lock_note_acquire(lock);
}
STRATA_INLINE void platform_lock_release_here(struct platform_lock *lock) {
    platform_lock_note_release(lock);
    platform_lock_let_go(lock);
}
/* The same for all others, whose code is the smaller for it. */
bool platform_lock_try(struct platform_lock *lock);
void platform_lock_acquire(struct platform_lock *lock);
void platform_lock_release(struct platform_lock *lock);

/*
 * A second lock of the rank of one that the caller holds, without the check of ranks: tried at any time; waited for only by who takes all of them in
 * one order. Never held while other locks are taken.
 */
STRATA_INLINE bool platform_lock_try_next(struct platform_lock *lock) { return platform_lock_take_free(lock); }
STRATA_INLINE void platform_lock_acquire_next(struct platform_lock *lock) {
    if (!platform_lock_take_free(lock)) platform_lock_acquire_slow(lock);
}
STRATA_INLINE void platform_lock_release_next(struct platform_lock *lock) { platform_lock_let_go(lock); }

/*
 * Around fork, where one thread takes many locks of one rank, in a fixed order: without the check of ranks. Between the first hold and
 * the last unhold, which the child does as well as the parent, the thread calls platform_fork_begin and platform_fork_end.
 */
STRATA_INLINE void platform_lock_hold(struct platform_lock *lock) {
    if (!platform_lock_take_free(lock)) platform_lock_acquire_slow(lock);
    __atomic_store_n(&lock->word, PLATFORM_LOCK_FORK, __ATOMIC_RELAXED);
}
void platform_lock_unhold(struct platform_lock *lock);
void platform_fork_begin(void);
/* Whether the caller is between the two. */
bool platform_fork_is_mine(void);
void platform_fork_end(void);
/* In the child of a fork, where the holder may be gone: free again. */
STRATA_INLINE void platform_lock_reset(struct platform_lock *lock) {
    platform_lock_note_reset(lock);
    __atomic_store_n(&lock->word, PLATFORM_LOCK_FREE, __ATOMIC_RELAXED);
}

/* ------------------------------------------------------------------ processors */

/*
 * How the CPU layer finds its own CPU cache (see platform/cpu_ops.h). Filled by platform_init.
 * In mode PLATFORM_CPU_THREAD every thread carries an id of its own, which cache/ hands out; id 0 means none yet.
 */
enum platform_cpu_mode {
    PLATFORM_CPU_RSEQ_MM_CID, /* rseq, dense concurrency ids */
    PLATFORM_CPU_RSEQ_CPU_ID, /* rseq, CPU numbers */
    PLATFORM_CPU_THREAD,      /* no rseq: per-thread ids */
    PLATFORM_CPU_SIM,         /* virtual CPUs, scripted preemption */
};
enum platform_cpu_mode platform_cpu_mode(void);
/* Forces PLATFORM_CPU_THREAD; only before the first allocation of a thread other than the caller. */
void platform_cpu_force_thread_mode(void);
/*
 * The child of vfork, to which sequences don't apply: from now on it reads the number of CPUs, of which the area is one whose headers stay zeros,
 * until its parent returns from that vfork. Where sequences are restartable; no effect in thread mode, as parent and child are one thread there.
 */
#if defined(__x86_64__) && !defined(STRATA_NO_RSEQ) && !defined(STRATA_SIM)
#define PLATFORM_CPU_CAN_LEAVE 1
void platform_cpu_leave(void);
void platform_cpu_return(void);
bool platform_cpu_has_left(void);
#else
#define PLATFORM_CPU_CAN_LEAVE 0
STRATA_INLINE bool platform_cpu_has_left(void) { return false; }
#endif
/*
 * In thread mode: this thread's id. A non-zero id registers the thread for on_thread_exit. May allocate through malloc: with no lock held. Where
 * there is no memory for that, on_thread_exit is called at once, and the thread has no id.
 */
void platform_thread_set_id(uint32_t id);
uint32_t platform_thread_id(void);
/* True once the exit callback of this thread has run: it must not get an id again, as nobody would take that back. */
bool platform_thread_ended(void);
/* Counts a free of the calling thread's that it made without an id; how many there are now. */
uint32_t platform_thread_count_free(void);
/* The callback that runs when a thread with an id ends, on that thread, with its id already back at 0. To be set before any thread has one. */
void platform_on_thread_exit(void (*callback)(uint32_t id));
/* A number of the calling thread that no other living thread of the process has, in any mode; not 0, below 2^30. A system call. */
uint32_t platform_thread_self(void);
/* A count of the calling thread's own, 0 at its start, for page/: of the program's functions it is in that zones of frames have called. */
uint32_t *platform_thread_asked(void);
/*
 * Returns after every restartable sequence that was under way on any CPU when the call was made has ended or been aborted.
 * False where the kernel can't (then no remote drain). Not under locks of rank >= LOCK_RANK_DEPOT.
 */
bool platform_fence_cpus(void);
/*
 * Thread mode, where nothing can be restarted: returns after every thread of the process has passed a full memory barrier since the call was made;
 * what the caller wrote before is seen by all they read from then on. False where the kernel can't (Linux < 4.14, or a filter of system calls). Not
 * under locks of rank >= LOCK_RANK_DEPOT.
 */
bool platform_fence_threads(void);
/*
 * Thread mode: the calling thread's word that tells whether it is in a sequence (cpu_ops.h). Others may read it, atomically, until the thread's exit
 * callback returns. NULL: that callback won't run, so that nobody may.
 */
const uint64_t *platform_thread_sequence(void);

/* ------------------------------------------------------------------ threads and events */

/* Not in the child of vfork: a thread would end with that, and be missed by its parent. */
bool platform_thread_may_start(void);
/* A detached thread with a small stack and all signals blocked. Allocates through malloc: call it with no lock held. */
bool platform_thread_start(void (*body)(void *), void *argument);

/*
 * For a thread of ours that must not outlive the program's: the C library ends the process with its last thread, and counts ours. The
 * callback runs on the first thread of the process when that ends and others go on (pthread_exit in main). False: the caller isn't the first thread,
 * or it can't be known.
 */
bool platform_on_first_thread_exit(void (*callback)(void));
/* A number of the calling thread, never 0: another one's at the same time is another number, but for chances of one in thousands of millions.
 * Constant. */
uint32_t platform_thread_token(void);
/*
 * Whether the first thread has ended and no thread but our own is left (a read of /proc: slow). Asked by threads of platform_thread_start. *known,
 * unless NULL: whether it can be told; not without /proc, or a file number.
 */
bool platform_thread_is_last(bool *known);

/* One waiter, many wakers; a wake with no waiter is remembered once. Zero-initialised is ready. */
struct platform_event {
    uint32_t word;
};
void platform_event_wake(struct platform_event *event);
/* True when woken, false when timeout_ns passed (UINT64_MAX: never). */
bool platform_event_wait(struct platform_event *event, uint64_t timeout_ns);

/*
 * Many waiters, many wakers, on a word of this process that the caller changes by itself. wait sleeps while *word == seen: it returns at once where
 * the word differs, when woken, and may return for no reason; so its caller looks again. Nothing is lost where the word is changed before wake is
 * called. wake lets all sleepers on the word go. wait: with no lock held; not async-signal-safe.
 */
void platform_word_wait(const uint32_t *word, uint32_t seen);
/* The same, for timeout_ns at most (UINT64_MAX: as above). */
void platform_word_wait_for(const uint32_t *word, uint32_t seen, uint64_t timeout_ns);
void platform_word_wake(const uint32_t *word);

/* For words that are changed without a lock: in the simulation other threads may run here; elsewhere it is nothing. */
#ifdef STRATA_SIM
void platform_interleave(void);
#else
STRATA_INLINE void platform_interleave(void) {}
#endif

/* ------------------------------------------------------------------ stacks, for debugging */

/*
 * stack: the return addresses of the callers, the innermost first, at most `max` of them; functions of libstrata.so are left out where they can be
 * told. Returns how many. Not under locks; not async-signal-safe. Where the unwinder of the C library can't be used (musl; early in the process; in a
 * call that the unwinder itself makes), frame pointers are followed, with every read checked. prepare: loads that unwinder, which may allocate
 * through malloc; with no lock held. Else stack does it, when it first can.
 */
unsigned platform_stack(uintptr_t *frames, unsigned max);
void platform_stack_prepare(void);
/* What of the process an address is in: a file's path, cut to fit, and the offset in it that tools for that file want. False: in none (slow). */
bool platform_module_of(uintptr_t address, char *path, size_t bytes, uintptr_t *offset);
/* The system's number of the calling thread. */
uint32_t platform_thread_number(void);

/* ------------------------------------------------------------------ names of the C library */

struct platform_name {
    const char *name;
    uintptr_t function;
};
/*
 * Whoever looks one of the names up in the C library finds the given function from now on, and not the C library's; names that it doesn't have are
 * passed over. What was bound before stays. False: no memory, or no C library to be found. Thread-safe. Cost: linear in the names; the first time a
 * copy of its symbols, some 70 KiB.
 */
bool platform_libc_lead(const struct platform_name *names, unsigned count);

/* ------------------------------------------------------------------ memory pressure */

/*
 * Where the system says that memory is short: PSI triggers and the events of cgroup v2 and v1, whatever is there.
 * open: false where nothing can be watched. wait: sleeps until `event` is woken, pressure is reported or timeout_ns passed.
 * What costs a process at its end, PSI triggers, is watched some seconds after open; soon: from the next wait on.
 * Used by the maintenance thread only. close is called in a forked child.
 */
enum platform_pressure {
    PLATFORM_PRESSURE_NONE = 0,
    PLATFORM_PRESSURE_SOME = 1,     /* reclaim what is idle */
    PLATFORM_PRESSURE_CRITICAL = 2, /* reclaim all that can be had */
};
bool platform_pressure_open(void);
void platform_pressure_soon(void);
void platform_pressure_close(void);
enum platform_pressure platform_pressure_wait(struct platform_event *event, uint64_t timeout_ns, bool *woken);
/* The tightest memory limit of the process's control groups in bytes, UINT64_MAX where there is none (slow: reads files). */
uint64_t platform_memory_limit_bytes(void);

/* ------------------------------------------------------------------ the outside */

void platform_write_error(const char *text, size_t bytes); /* standard error, whole or not at all */
_Noreturn void platform_die(void);                         /* abort, also where SIGABRT is handled or blocked */
_Noreturn void platform_exit(int status);                  /* at once, without exit handlers */
/*
 * Standard error at the end of a process: programs may have closed theirs by then, as coreutils do in an exit handler. keep: makes a
 * duplicate, at the start. file: the number of standard error where it is open, else of the duplicate, else -1; for platform_file_write.
 */
void platform_error_keep(void);
int platform_error_file(void);
const char *platform_getenv(const char *name);
/* A new file for writing (create, truncate, never following a final symbolic link when secure); -1 on failure. */
int platform_file_create(const char *path);
bool platform_file_write(int file, const char *bytes, size_t count); /* raises no signal, whoever reads or limits files */
void platform_file_close(int file);
unsigned platform_process_id(void);

#endif
