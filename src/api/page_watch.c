/*
 * page_watch.c - watched ranges of blocks (strata/page_watch.h): which there are, which of their pages are armed, and how these are closed and
 * opened.
 *
 * A page that is armed is closed in the kernel, by userfaultfd's protection, by being away (page_watch_away.c), or by lacking access rights; a page
 * that is being told is closed and not armed. All changes of either are made under the lock, so that both agree for whoever has it. Before pages go
 * elsewhere, page/ has the watch ended, under the zone's lock. Lock: LOCK_RANK_WATCHES.
 */
#include "api/page_watch.h"

#include "base/check.h"

#define KINDS (STRATA_WATCH_WRITES | STRATA_WATCH_READS)
#define FEATURES (PLATFORM_FAULTS_PROTECT | PLATFORM_FAULTS_PROTECT_ABSENT | PLATFORM_FAULTS_THREAD)

const char *strata_watch_status_text(enum strata_watch_status status) {
    static const char *const texts[] = {[STRATA_WATCH_OK] = "success",
                                        [STRATA_WATCH_NO_MEMORY] = "no memory",
                                        [STRATA_WATCH_BAD_ARGUMENT] = "bad argument",
                                        [STRATA_WATCH_NO_BLOCK] = "a range that is not inside a block of pages",
                                        [STRATA_WATCH_TAKEN] = "watched already",
                                        [STRATA_WATCH_FORBIDDEN] = "the system does not let pages be watched",
                                        [STRATA_WATCH_GONE] = "the watch has ended"};
    return (unsigned)status < ARRAY_LENGTH(texts) ? texts[status] : "unknown status";
}

/* ------------------------------------------------------------------ pages of a watch */

struct strata_watch *watch_of_page(struct page_watches *watches, const char *page) {
    struct strata_watch *watch = watches->first;
    while (watch != NULL && (watch->ended || page < watch->start || page >= watch->start + watch->bytes)) watch = watch->next;
    return watch;
}

bool watch_take(struct strata_watch *watch, const char *page, bool write, enum strata_watch_kind *kind) {
    size_t index = watch_index(watch, page);
    bool reads = watch_bit(watch->armed_reads, index), writes = watch_bit(watch->armed_writes, index);
    write |= !reads; /* who can read stops at a write only */
    *kind = write ? STRATA_WATCH_WRITES : STRATA_WATCH_READS;
    watch_bit_clear(watch->armed_reads, index);
    if (write) watch_bit_clear(watch->armed_writes, index);
    return reads || (write && writes);
}

/* Closed as it is to be. What is being told can be read only, unless its handler writes to it. */
static enum platform_access access_of(const struct page_watches *watches, const struct strata_watch *watch, const char *page) {
    size_t index = watch_index(watch, page);
    if (watch_bit(watch->armed_reads, index)) return PLATFORM_ACCESS_NONE;
    bool closed = watch_bit(watch->armed_writes, index) || (watch_is_told(watches, watch, page) && !watches->written);
    return closed ? PLATFORM_ACCESS_READ : PLATFORM_ACCESS_ALL;
}

/*
 * Gives the access rights of a watch's pages back. What can be written to counts as data, so under a limit on that (RLIMIT_DATA) others may have used
 * up what closed pages left: their watch gives up what it holds of the limit for this moment. Watches side by side may share a mapping: where none is
 * left for the border between them, those end too, and so on, as without a border to anything none is needed.
 */
static void give_rights(struct page_watches *watches, struct strata_watch *watch) {
    char *start = watch->start, *end = start + watch->bytes;
    if (platform_protect(start, watch->bytes, PLATFORM_ACCESS_ALL)) return;
    watch_shadow_close(watch);
    if (platform_protect(start, watch->bytes, PLATFORM_ACCESS_ALL)) return;
    for (struct strata_watch *other = watches->first; other != NULL;) {
        bool joins = !other->ended && !other->by_faults && other->start <= end && start <= other->start + other->bytes;
        if (joins) {
            other->ended = true;
            watch_shadow_close(other);
            if (other->start < start) start = other->start;
            if (other->start + other->bytes > end) end = other->start + other->bytes;
        }
        other = joins ? watches->first : other->next;
    }
    if (!platform_protect(start, (size_t)(end - start), PLATFORM_ACCESS_ALL))
        fatal("the system keeps %zu watched bytes at %p closed", (size_t)(end - start), (void *)start);
}

/* The page that is being told is away unless its handler touches it: then it can be read only, by all, until the handler is done. */
static enum platform_faults_status open_by_faults(struct page_watches *watches, struct strata_watch *watch, char *page) {
    bool protect = watch->by_moves && (watch_bit(watch->armed_writes, watch_index(watch, page)) || watch_is_told(watches, watch, page));
    if (watch_is_away(watch, page)) return watch_bring_back(watches, watch, page, protect);
    if (watch->by_moves && watch_bit(watch->armed_writes, watch_index(watch, page))) return PLATFORM_FAULTS_OK;
    return platform_faults_protect(&watches->file, page, platform_info()->page_bytes, false);
}

void watch_open(struct page_watches *watches, struct strata_watch *watch, char *page) {
    if (watch->by_faults) {
        if (open_by_faults(watches, watch, page) == PLATFORM_FAULTS_GONE) (void)watch_lose(watches);
    } else if (!platform_protect(page, platform_info()->page_bytes, access_of(watches, watch, page))) {
        watch_end(watches, watch); /* no mapping is left for the border: without borders none is needed */
    }
}

/* Marks it only; what it has closed is as it was. */
static void mark_ended(struct page_watches *watches, struct strata_watch *watch) {
    if (watch->by_faults) watch_forget_faults(watches, NULL, watch->start, watch->start + watch->bytes);
    watch->ended = true;
    watches->changes++;
    if (__atomic_load_n(&watches->serves, __ATOMIC_ACQUIRE) != WATCH_THREAD_NONE) platform_event_wake(&watches->event);
}

/*
 * Watches by moves side by side may share a mapping, and what is registered holds whoever touches an absent page. Where no mapping is left for the
 * border between them, those end too, as of access rights. False: even so it can't be done, or the file is gone.
 */
static bool end_by_moves(struct page_watches *watches, struct strata_watch *watch) {
    char *start = watch->start, *end = start + watch->bytes;
    enum platform_faults_status status = watch_bring_all_back(watches, watch);
    if (status != PLATFORM_FAULTS_NO_MEMORY) return status == PLATFORM_FAULTS_OK;
    for (struct strata_watch *other = watches->first; other != NULL;) {
        bool joins = other != watch && !other->ended && other->by_moves && other->start <= end && start <= other->start + other->bytes;
        if (joins) {
            if (watch_bring_all_back(watches, other) == PLATFORM_FAULTS_GONE) return false;
            mark_ended(watches, other);
            if (other->start < start) start = other->start;
            if (other->start + other->bytes > end) end = other->start + other->bytes;
        }
        other = joins ? watches->first : other->next;
    }
    return platform_faults_unregister(&watches->file, start, (size_t)(end - start), true) == PLATFORM_FAULTS_OK;
}

static bool end_by_faults(struct page_watches *watches, struct strata_watch *watch) {
    if (watch->by_moves) return end_by_moves(watches, watch);
    return platform_faults_unregister(&watches->file, watch->start, watch->bytes, true) != PLATFORM_FAULTS_GONE;
}

void watch_end(struct page_watches *watches, struct strata_watch *watch) {
    if (!watch->by_faults)
        give_rights(watches, watch);
    else if (!end_by_faults(watches, watch) && watch_lose(watches))
        return; /* the reader has ended it; it may be gone */
    mark_ended(watches, watch);
}

void watch_end_all_by_faults(struct page_watches *watches) {
    for (struct strata_watch *watch = watches->first; watch != NULL; watch = watch->next) {
        if (!watch->by_faults || watch->ended) continue;
        (void)end_by_faults(watches, watch); /* what stays registered goes with the file */
        mark_ended(watches, watch);
    }
}

enum platform_faults_status watch_arm(struct page_watches *watches, struct strata_watch *watch, char *from, char *to) {
    enum platform_faults_status status = PLATFORM_FAULTS_OK;
    if (from >= to) return status;
    if (watch->by_faults) watch_forget_faults(watches, watch, from, to);
    if (watch->by_moves) status = watch_take_away(watches, watch, from, to);
    for (size_t i = watch_index(watch, from); i < watch_index(watch, to) && status == PLATFORM_FAULTS_OK; i++) {
        if ((watch->kinds & STRATA_WATCH_WRITES) != 0) watch_bit_set(watch->armed_writes, i);
        if ((watch->kinds & STRATA_WATCH_READS) != 0) watch_bit_set(watch->armed_reads, i);
    }
    if (watch->by_moves) return status;
    if (watch->by_faults) return platform_faults_protect(&watches->file, from, (size_t)(to - from), true);
    bool closed = platform_protect(from, (size_t)(to - from), (watch->kinds & STRATA_WATCH_READS) != 0 ? PLATFORM_ACCESS_NONE : PLATFORM_ACCESS_READ);
    return closed ? PLATFORM_FAULTS_OK : PLATFORM_FAULTS_NO_MEMORY;
}

/* From page/, under the zone's lock: what is in the range goes elsewhere. */
static void end_watches(char *address, size_t bytes) {
    struct page_watches *watches = heap.watches;
    platform_lock_acquire(&watches->lock);
    for (struct strata_watch *watch = watches->first; watch != NULL;) {
        bool ends = !watch->ended && watch->start < address + bytes && address < watch->start + watch->bytes;
        if (ends) watch_end(watches, watch);
        watch = ends ? watches->first : watch->next; /* the list may be another one: see watch_lose */
    }
    platform_lock_release(&watches->lock);
}

/* ------------------------------------------------------------------ the record, and watches */

static struct page_watches *watches_of_process(void) {
    platform_lock_acquire(&heap.lock);
    struct page_watches *watches = heap.watches;
    if (watches == NULL && (watches = zone_metadata_alloc(&heap.zone, sizeof *watches)) != NULL) {
        *watches = (struct page_watches){.lock = PLATFORM_LOCK_INIT(LOCK_RANK_WATCHES), .file = PLATFORM_FAULTS_CLOSED};
        __atomic_store_n(&heap.watches, watches, __ATOMIC_RELEASE);
    }
    platform_lock_release(&heap.lock);
    return watches;
}

static size_t watch_bytes(size_t bytes) { return sizeof(struct strata_watch) + 3 * sizeof(uint64_t) * watch_bitmap_words(bytes); }

static struct strata_watch *new_watch(const struct strata_watch *wanted) {
    size_t words = watch_bitmap_words(wanted->bytes);
    struct strata_watch *watch = zone_metadata_alloc(&heap.zone, watch_bytes(wanted->bytes));
    if (watch == NULL) return NULL;
    *watch = *wanted;
    watch->armed_writes = (uint64_t *)(watch + 1);
    watch->armed_reads = watch->armed_writes + words;
    watch->away = watch->armed_reads + words;
    __builtin_memset(watch->armed_writes, 0, 3 * words * sizeof(uint64_t));
    bool shadowed = watch->by_moves || (!watch->by_faults && platform_data_is_limited()); /* see give_rights */
    if (!shadowed || watch_shadow_open(watch)) return watch;
    watch_free(watch);
    return NULL;
}

void watch_free(struct strata_watch *watch) {
    watch_shadow_close(watch);
    zone_metadata_free(&heap.zone, watch, watch_bytes(watch->bytes));
}

/* By userfaultfd, where that can be had and serves the purpose. For reads pages must be able to move, and the file must be safe from the program. */
static bool use_faults(struct page_watches *watches, unsigned kinds) {
    bool reads = (kinds & STRATA_WATCH_READS) != 0;
    if (heap.options.watch == OPTION_WATCH_SIGNALS || (reads && heap.options.watch == OPTION_WATCH_PROTECT)) return false;
    platform_lock_acquire(&watches->lock);
    bool open = watches->file.file >= 0 || platform_faults_open(&watches->file, FEATURES) == PLATFORM_FAULTS_OK;
    if (open && reads) open = (watches->file.features & PLATFORM_FAULTS_MOVE) != 0;
    platform_lock_release(&watches->lock);
    if (!open) return false;
    enum watch_thread reader = watch_start_reader(watches);
    return reader == WATCH_THREAD_KEEPS || (reader == WATCH_THREAD_RUNS && !reads);
}

static bool is_taken(const struct page_watches *watches, const char *start, size_t bytes) {
    for (const struct strata_watch *watch = watches->first; watch != NULL; watch = watch->next)
        if (!watch->ended && watch->start < start + bytes && start < watch->start + watch->bytes) return true;
    return false;
}

static void unlink_watch(struct page_watches *watches, const struct strata_watch *watch) {
    for (struct strata_watch **link = &watches->first; *link != NULL; link = &(*link)->next) {
        if (*link != watch) continue;
        *link = watch->next;
        return;
    }
}

/* Nobody is told of its end before it has begun. */
static enum strata_watch_status begin_watch(struct page_watches *watches, struct strata_watch *watch) {
    enum platform_faults_status status = PLATFORM_FAULTS_OK;
    platform_lock_acquire(&watches->lock);
    bool taken = is_taken(watches, watch->start, watch->bytes);
    if (!taken) {
        watches->changes++;
        watch->told_end = true;
        watch->next = watches->first;
        watches->first = watch;
        if (watch->by_faults) status = watch_register(watches, watch);
        if (status == PLATFORM_FAULTS_OK) status = watch_arm(watches, watch, watch->start, watch->start + watch->bytes);
        if (status == PLATFORM_FAULTS_OK) {
            watch->told_end = false;
        } else {
            watch_end(watches, watch);
            unlink_watch(watches, watch);
        }
    }
    platform_lock_release(&watches->lock);
    return taken ? STRATA_WATCH_TAKEN : status == PLATFORM_FAULTS_OK ? STRATA_WATCH_OK : STRATA_WATCH_NO_MEMORY;
}

/* By one way. *watch: on success. */
static enum strata_watch_status try_watch(struct page_watches *watches, const struct strata_watch *wanted, struct strata_watch **watch) {
    if (!wanted->by_faults && !platform_on_access_fault(watch_serve_signal)) return STRATA_WATCH_FORBIDDEN;
    struct strata_watch *made = new_watch(wanted);
    if (made == NULL) return STRATA_WATCH_NO_MEMORY;
    enum strata_watch_status status = STRATA_WATCH_NO_BLOCK;
    if (zone_pages_watch(&heap.zone, made->start, made->bytes, end_watches) == ZONE_OK) status = begin_watch(watches, made);
    if (status == STRATA_WATCH_OK)
        *watch = made;
    else
        watch_free(made);
    return status;
}

enum strata_watch_status strata_page_watch(void *address, size_t bytes, unsigned kinds, watch_handler *handler, void *argument,
                                           struct strata_watch **watch) {
    if (handler == NULL || watch == NULL || kinds == 0 || (kinds & ~(unsigned)KINDS) != 0) return STRATA_WATCH_BAD_ARGUMENT;
    if (!heap_init() || __atomic_load_n(&heap.dying, __ATOMIC_RELAXED)) return STRATA_WATCH_NO_BLOCK;
    enum zone_status range = zone_pages_check(&heap.zone, address, bytes);
    if (range != ZONE_OK) return range == ZONE_BAD_RANGE ? STRATA_WATCH_BAD_ARGUMENT : STRATA_WATCH_NO_BLOCK;
    struct page_watches *watches = watches_of_process();
    if (watches == NULL || !watch_start_server(watches)) return STRATA_WATCH_NO_MEMORY;
    struct strata_watch wanted = {.start = address, .bytes = bytes, .kinds = kinds, .handler = handler, .argument = argument};
    wanted.by_faults = use_faults(watches, kinds);
    wanted.by_moves = wanted.by_faults && (kinds & STRATA_WATCH_READS) != 0;
    enum strata_watch_status status = try_watch(watches, &wanted, watch);
    if (!wanted.by_moves || status != STRATA_WATCH_NO_MEMORY) return status;
    wanted.by_faults = wanted.by_moves = false; /* access rights take neither address space nor pages that can move */
    return try_watch(watches, &wanted, watch);
}

enum strata_watch_status strata_page_rearm(struct strata_watch *watch, void *address, size_t bytes) {
    size_t page_bytes = platform_info()->page_bytes;
    char *from = address;
    if (watch == NULL || bytes == 0 || (((uintptr_t)address | bytes) & (page_bytes - 1)) != 0 || from < watch->start || bytes > watch->bytes ||
        (size_t)(from - watch->start) > watch->bytes - bytes)
        return STRATA_WATCH_BAD_ARGUMENT;
    struct page_watches *watches = heap.watches;
    enum strata_watch_status status = STRATA_WATCH_OK;
    platform_lock_acquire(&watches->lock);
    if (watch->ended) {
        status = STRATA_WATCH_GONE;
    } else {
        char *told = watches->current_page, *to = from + bytes;
        bool within = told != NULL && told >= from && told < to;
        bool armed = watch_arm(watches, watch, from, within ? told : to) == PLATFORM_FAULTS_OK;
        if (armed && within) armed = watch_arm(watches, watch, told + page_bytes, to) == PLATFORM_FAULTS_OK;
        watches->rearmed |= within && __atomic_load_n(&watches->server, __ATOMIC_RELAXED) != platform_thread_self();
        if (!armed) {
            watch_end(watches, watch);
            status = STRATA_WATCH_NO_MEMORY;
        }
    }
    platform_lock_release(&watches->lock);
    return status;
}

void strata_page_unwatch(struct strata_watch *watch) {
    if (watch == NULL) return;
    struct page_watches *watches = heap.watches;
    platform_lock_acquire(&watches->lock);
    watch->told_end = true; /* nobody is to be told, not even while we wait here, or watch_lose does */
    bool by_itself = watches->current == watch && __atomic_load_n(&watches->server, __ATOMIC_RELAXED) == platform_thread_self();
    while (!by_itself && watches->current == watch) { /* what its handler looks at stays as it is until it returns */
        uint32_t seen = __atomic_load_n(&watches->runs, __ATOMIC_ACQUIRE);
        platform_lock_release(&watches->lock);
        platform_word_wait(&watches->runs, seen);
        platform_lock_acquire(&watches->lock);
    }
    if (!watch->ended) watch_end(watches, watch);
    unlink_watch(watches, watch);
    watch->gone = by_itself;
    platform_lock_release(&watches->lock);
    if (!by_itself) watch_free(watch);
}

void strata_page_watch_info(struct strata_watch *watch, struct strata_watch_info *info) {
    struct page_watches *watches = heap.watches;
    platform_lock_acquire(&watches->lock);
    *info = (struct strata_watch_info){.address = watch->start,
                                       .bytes = watch->bytes,
                                       .kinds = watch->kinds,
                                       .userfaultfd = watch->by_faults,
                                       .in_kernel = watch->by_faults && (watches->file.features & PLATFORM_FAULTS_IN_KERNEL) != 0,
                                       .ended = watch->ended,
                                       .writes = watch->writes,
                                       .reads = watch->reads};
    platform_lock_release(&watches->lock);
}

/* ------------------------------------------------------------------ fork */

void page_watch_fork_prepare(void) {
    struct page_watches *watches = heap.watches;
    if (watches == NULL) return;
    platform_lock_hold(&watches->lock);
    watches->forks = __atomic_load_n(&watches->server, __ATOMIC_RELAXED) == platform_thread_self();
}

void page_watch_fork_parent(void) {
    if (heap.watches != NULL) platform_lock_unhold(&heap.watches->lock);
}

/* The kernel has taken off what userfaultfd watched; access rights have come along, and what was away is. */
void page_watch_fork_child(void) {
    struct page_watches *watches = heap.watches;
    if (watches == NULL) return;
    for (struct strata_watch *watch = watches->first; watch != NULL; watch = watch->next) {
        bool closed = !watch->ended;
        watch->ended = watch->told_end = true;
        if (closed && watch->by_moves) watch_bring_back_forked(watches, watch);
        if (closed && !watch->by_faults) give_rights(watches, watch);
    }
    platform_faults_close(&watches->file);
    watches->waiters = watches->last_waiter = NULL;
    watches->fault_count = 0;
    watches->event = (struct platform_event){0};
    watches->reader = WATCH_THREAD_NONE;
    watches->lost = 0;
    watches->serves = watches->forks ? WATCH_THREAD_RUNS : WATCH_THREAD_NONE; /* a handler that forks goes on, as a thread of another number */
    __atomic_store_n(&watches->server, watches->forks ? platform_thread_self() : 0, __ATOMIC_RELAXED);
    if (!watches->forks) watches->current = NULL, watches->current_page = NULL;
    platform_lock_unhold(&watches->lock);
}
