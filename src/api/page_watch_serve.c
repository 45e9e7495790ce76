/*
 * page_watch_serve.c - the threads behind watched pages: one that tells handlers, and where userfaultfd is used one that reads its faults.
 *
 * Whoever meets an untold page is queued: by the reader, or by its own signal handler, in which it then sleeps. The server takes them one by one,
 * calls the handler without a lock, opens the page, and wakes them. Two threads for userfaultfd, as the handler may touch watched pages itself: the
 * reader lets the server pass at once, and so does the signal handler on the server. The reader has a table of files of its own, in which the program
 * can't close userfaultfd's.
 */
#include "api/page_watch.h"

#define READ_MAX 16
/* Between two looks at whether the program's threads have all ended: see platform_thread_is_last. */
#define LAST_LOOK_NS UINT64_C(2000000000)
#define NAP_NS UINT64_C(1000000)

static bool is_server(const struct page_watches *watches, uint32_t thread) { return __atomic_load_n(&watches->server, __ATOMIC_RELAXED) == thread; }

/* ------------------------------------------------------------------ telling */

/* Under the lock, which is let go for the call; the watch may be gone afterwards. */
static void tell(struct page_watches *watches, struct strata_watch *watch, enum strata_watch_kind kind, char *address, size_t bytes) {
    bool away = kind != STRATA_WATCH_ENDED && watch_is_away(watch, address);
    const char *contents = kind == STRATA_WATCH_ENDED ? NULL : away ? watch_shadow_of(watch, address) : address;
    const struct strata_watch_event event = {.watch = watch, .kind = kind, .address = address, .bytes = bytes, .contents = contents};
    if (away) (void)platform_faults_zero(&watches->file, (void *)contents, bytes, NULL); /* for the handler to look at; TAKEN where it has some */
    watches->current = watch;
    watches->looked = watches->written = watches->rearmed = false;
    watches->current_page = kind == STRATA_WATCH_ENDED ? NULL : address;
    watch->writes += kind == STRATA_WATCH_WRITES;
    watch->reads += kind == STRATA_WATCH_READS;
    platform_lock_release(&watches->lock);
    watch->handler(&event, watch->argument);
    platform_lock_acquire(&watches->lock);
    watches->current_page = NULL;
    /* What has come back since was copied, for the handler to go on looking. */
    if (away && !watch_is_away(watch, address)) (void)platform_release((void *)contents, bytes);
    if (!watch->ended && watches->rearmed) {
        if (watch_arm(watches, watch, address, address + bytes) != PLATFORM_FAULTS_OK) watch_end(watches, watch);
    } else if (!watch->ended && kind != STRATA_WATCH_ENDED) {
        watch_open(watches, watch, address);
    }
    watches->current = NULL; /* only now: watch_open and watch_end may let go of the lock */
    __atomic_fetch_add(&watches->runs, 1, __ATOMIC_RELEASE);
    platform_word_wake(&watches->runs);
    if (!watch->gone) return;
    platform_lock_release(&watches->lock); /* what is freed has a lock of a lower rank */
    watch_free(watch);
    platform_lock_acquire(&watches->lock);
}

/*
 * Whether the page is not any more as who met it found it: then that thread only has to look again. One that is neither there nor away was dropped
 * by the program itself, and gets zeros.
 */
static bool is_stale(struct page_watches *watches, const struct strata_watch *watch, const struct platform_fault *fault) {
    bool away = watch_is_away(watch, fault->page);
    if (!watch->by_moves) return !fault->protect;
    if (fault->protect != away) return false;
    if (!away) (void)platform_faults_zero(&watches->file, fault->page, platform_info()->page_bytes, NULL);
    return true;
}

/* Somebody has met a page. Where there is nothing to tell any more, it is open, or is made so. */
static void serve_page(struct page_watches *watches, char *page, bool write) {
    enum strata_watch_kind kind;
    struct strata_watch *watch = watch_of_page(watches, page);
    if (watch == NULL) return;
    if (!watch->told_end && watch_take(watch, page, write, &kind)) /* a watch that is about to go is told nothing */
        tell(watches, watch, kind, page, platform_info()->page_bytes);
    else
        watch_open(watches, watch, page);
}

static struct strata_watch *untold_end(const struct page_watches *watches) {
    struct strata_watch *watch = watches->first;
    while (watch != NULL && (!watch->ended || watch->told_end)) watch = watch->next;
    return watch;
}

/* Under the lock. False: there was nothing to do. */
static bool serve_next(struct page_watches *watches) {
    struct watch_waiter *waiter = watches->waiters;
    struct strata_watch *ended;
    if (waiter != NULL) {
        if ((watches->waiters = waiter->next) == NULL) watches->last_waiter = NULL;
        serve_page(watches, waiter->page, waiter->write);
        __atomic_store_n(&waiter->done, 1, __ATOMIC_RELEASE); /* its stack may be gone from here on */
        platform_word_wake(&waiter->done);
    } else if (watches->fault_count != 0) {
        struct platform_fault fault = watches->faults[watches->fault_first];
        watches->fault_first = (watches->fault_first + 1) % WATCH_FAULTS_MAX;
        watches->fault_count--;
        struct strata_watch *watch = watch_of_page(watches, fault.page);
        if (watch != NULL && watch->by_faults && !is_stale(watches, watch, &fault)) serve_page(watches, fault.page, fault.write);
        platform_faults_wake(&watches->file, fault.page, platform_info()->page_bytes);
    } else if ((ended = untold_end(watches)) != NULL) {
        ended->told_end = true;
        tell(watches, ended, STRATA_WATCH_ENDED, ended->start, ended->bytes);
    } else {
        return false;
    }
    return true;
}

static void set_thread(uint32_t *state, enum watch_thread thread) {
    __atomic_store_n(state, thread, __ATOMIC_RELEASE);
    platform_word_wake(state);
}

static void serve(void *argument) {
    struct page_watches *watches = argument;
    __atomic_store_n(&watches->server, platform_thread_self(), __ATOMIC_RELAXED);
    set_thread(&watches->serves, WATCH_THREAD_RUNS);
    platform_hear_access_faults(); /* of the handler, which may touch watched pages */
    for (;;) {
        platform_lock_acquire(&watches->lock);
        while (serve_next(watches)) continue;
        platform_lock_release(&watches->lock);
        if (!platform_event_wait(&watches->event, LAST_LOOK_NS) && platform_thread_is_last(NULL)) return;
    }
}

/* ------------------------------------------------------------------ userfaultfd */

void watch_forget_faults(struct page_watches *watches, const struct strata_watch *armed, const char *from, const char *to) {
    unsigned kept = 0;
    for (unsigned i = 0; i < watches->fault_count; i++) {
        const struct platform_fault fault = watches->faults[(watches->fault_first + i) % WATCH_FAULTS_MAX];
        bool forget = fault.page >= from && fault.page < to;
        if (forget && armed != NULL) {
            size_t index = watch_index(armed, fault.page);
            forget = !watch_bit(armed->armed_reads, index) && !(fault.write && watch_bit(armed->armed_writes, index));
        }
        if (forget)
            platform_faults_wake(&watches->file, fault.page, platform_info()->page_bytes);
        else
            watches->faults[(watches->fault_first + kept++) % WATCH_FAULTS_MAX] = fault;
    }
    watches->fault_count = kept;
}

/*
 * Under the lock. Where no room is left, the thread tries again: by then there may be. A page of nobody that is absent gets zeros: it is of a shadow,
 * where only somebody who reads all memory comes by, or of a range whose watch has ended since, and then it is there.
 */
static void queue_fault(struct page_watches *watches, const struct platform_fault *fault) {
    size_t page_bytes = platform_info()->page_bytes;
    enum strata_watch_kind kind;
    struct strata_watch *watch = watch_of_page(watches, fault->page);
    bool full = watches->fault_count == WATCH_FAULTS_MAX, own = is_server(watches, fault->thread);
    if (watch != NULL && !own && !full) {
        watches->faults[(watches->fault_first + watches->fault_count++) % WATCH_FAULTS_MAX] = *fault;
    } else {
        if (watch == NULL && !fault->protect) (void)platform_faults_zero(&watches->file, fault->page, page_bytes, NULL);
        if (watch != NULL && own && watch->by_faults && !is_stale(watches, watch, fault)) {
            bool looks = fault->page == watches->current_page && !fault->write; /* at what it is told of: a write is still to be told */
            if (!looks) (void)watch_take(watch, fault->page, fault->write, &kind);
            watch_open(watches, watch, fault->page);
        }
        platform_faults_wake(&watches->file, fault->page, page_bytes);
    }
}

/*
 * Reads and queues faults under one lock: a fault that was read is queued for whoever has the lock. A thread may go on before its fault is served, as
 * it is woken with others of the same page; what it does then, to end the watch or arm the page again, finds the fault (watch_forget_faults).
 */
static enum platform_faults_status queue_faults(struct page_watches *watches, unsigned *count) {
    struct platform_fault faults[READ_MAX];
    platform_lock_acquire(&watches->lock);
    enum platform_faults_status status = platform_faults_read(&watches->file, faults, READ_MAX, 0, count);
    for (unsigned i = 0; i < *count; i++) queue_fault(watches, &faults[i]);
    platform_lock_release(&watches->lock);
    if (*count != 0) platform_event_wake(&watches->event);
    return status;
}

/*
 * The program has closed our file. Where the reader shares the program's, the kernel has taken all protection off; where it has its own, it still can
 * bring back what is away. Then it closes that too, and is done.
 */
static void lose_file(struct page_watches *watches) {
    platform_lock_acquire(&watches->lock);
    watch_end_all_by_faults(watches);
    platform_faults_close(&watches->file);
    set_thread(&watches->reader, WATCH_THREAD_NONE);
    __atomic_store_n(&watches->lost, 0, __ATOMIC_RELEASE);
    platform_lock_release(&watches->lock);
}

/* The caller may hold the zone's lock, which the reader does not want; so it naps rather than sleep on a word. */
bool watch_lose(struct page_watches *watches) {
    struct platform_event nobody = {0};
    if (__atomic_load_n(&watches->reader, __ATOMIC_ACQUIRE) != WATCH_THREAD_KEEPS) return false;
    __atomic_store_n(&watches->lost, 1, __ATOMIC_RELEASE);
    platform_lock_release(&watches->lock);
    while (__atomic_load_n(&watches->lost, __ATOMIC_ACQUIRE) != 0 && __atomic_load_n(&watches->reader, __ATOMIC_ACQUIRE) == WATCH_THREAD_KEEPS)
        (void)platform_event_wait(&nobody, NAP_NS);
    platform_lock_acquire(&watches->lock);
    return true;
}

static void read_faults(void *argument) {
    struct page_watches *watches = argument;
    unsigned count;
    set_thread(&watches->reader, platform_faults_keep(&watches->file) ? WATCH_THREAD_KEEPS : WATCH_THREAD_RUNS);
    for (;;) {
        platform_faults_wait(&watches->file, LAST_LOOK_NS);
        bool gone = queue_faults(watches, &count) != PLATFORM_FAULTS_OK;
        if (gone || __atomic_load_n(&watches->lost, __ATOMIC_ACQUIRE) != 0) {
            lose_file(watches);
            return;
        }
        if (count != 0 || !platform_thread_is_last(NULL)) continue;
        set_thread(&watches->reader, WATCH_THREAD_RUNS); /* nobody is left to wait for it */
        return;
    }
}

/* ------------------------------------------------------------------ signals */

/* On the thread that met the page, in a signal handler; it holds no lock of ours, as whoever does touches no watched memory. */
bool watch_serve_signal(char *page, bool write) {
    struct page_watches *watches = __atomic_load_n(&heap.watches, __ATOMIC_ACQUIRE);
    struct watch_waiter waiter = {.page = page, .write = write};
    enum strata_watch_kind kind;
    platform_lock_acquire(&watches->lock);
    struct strata_watch *watch = watch_of_page(watches, page);
    while (watch == NULL) {
        /* Where a watch has ended since, the page can be written to; where none has come or gone and it can't, this is none of ours. */
        uint64_t changes = watches->changes;
        platform_lock_release(&watches->lock);
        if (!zone_contains(&heap.zone, page)) return false;
        if (platform_populate(page, platform_info()->page_bytes)) return true;
        platform_lock_acquire(&watches->lock);
        watch = watch_of_page(watches, page);
        if (watch != NULL || changes != watches->changes) continue;
        platform_lock_release(&watches->lock);
        return false;
    }
    if (watch->by_faults) { /* since: its pages do not lack rights */
        platform_lock_release(&watches->lock);
        return true;
    }
    if (is_server(watches, platform_thread_self())) {
        /* The handler looks at what it is told of: a write is still to be told. The second time it is one, where the system doesn't say so. */
        bool looks = page == watches->current_page && !write && !watches->looked;
        if (!looks) (void)watch_take(watch, page, write, &kind);
        watches->looked |= looks;
        watches->written |= page == watches->current_page && !looks;
        watch_open(watches, watch, page);
        platform_lock_release(&watches->lock);
        return true;
    }
    if (watches->last_waiter != NULL)
        watches->last_waiter->next = &waiter;
    else
        watches->waiters = &waiter;
    watches->last_waiter = &waiter;
    platform_lock_release(&watches->lock);
    platform_event_wake(&watches->event);
    while (__atomic_load_n(&waiter.done, __ATOMIC_ACQUIRE) == 0) platform_word_wait(&waiter.done, 0);
    return true;
}

/* ------------------------------------------------------------------ starting */

/*
 * Whoever finds a start under way waits for how it ends, which the thread says itself (set_thread); where it fails, the next one tries for itself.
 * Returns what the thread is; NONE: none could be had.
 */
static enum watch_thread start(struct page_watches *watches, uint32_t *state, void (*body)(void *)) {
    for (;;) {
        uint32_t seen = WATCH_THREAD_NONE;
        if (__atomic_compare_exchange_n(state, &seen, WATCH_THREAD_STARTING, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            if (platform_thread_start(body, watches)) continue;
            set_thread(state, WATCH_THREAD_NONE);
            return WATCH_THREAD_NONE;
        }
        if (seen != WATCH_THREAD_STARTING) return (enum watch_thread)seen;
        platform_word_wait(state, seen);
    }
}

bool watch_start_server(struct page_watches *watches) { return start(watches, &watches->serves, serve) != WATCH_THREAD_NONE; }
enum watch_thread watch_start_reader(struct page_watches *watches) { return start(watches, &watches->reader, read_faults); }
