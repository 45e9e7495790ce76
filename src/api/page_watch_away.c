/*
 * page_watch_away.c - watches for reads by userfaultfd: pages that are armed are away, and come back when they have been told.
 *
 * The kernel tells of a read only where there is no page. So each such watch has a second range of addresses, its shadow, and a page that is armed is
 * moved there; whoever touches it at its own address waits until it is moved back. The handler looks at the shadow meanwhile, which lets nobody pass.
 *
 * A watch that ends must not be able to fail. Both ranges are mapped and registered as long as the watch lasts, and pages are moved one by one
 * (UFFDIO_MOVE), so that the way back takes neither address space nor a mapping. What the kernel won't move, as the child of a fork has it too, is
 * copied, which takes a page: where there is none it is tried again until there is one, as the kernel does for any other touch of an absent page.
 * The file could be closed by the program, and who waits would find nothing: so the reader has it in a table of its own (watch_lose).
 *
 * Memory that devices write to while it is away would be lost by a copy. So none is copied on its way out unless it is protected against writes, and
 * what is pinned can't be moved there: then the watch goes by access rights. All under the lock, LOCK_RANK_WATCHES.
 */
#include "api/page_watch.h"

/* A part of a range in a child of a fork that is worth the two mappings that the change of page tables may cost. */
#define TABLES_PAGES_MIN 512
#define RETRY_NS UINT64_C(1000000)

static size_t page_bytes(void) { return platform_info()->page_bytes; }

/* The end of the pages from `from` on that are away, or are not, as that one is. */
static char *run_end(const struct strata_watch *watch, char *from, const char *to) {
    bool away = watch_is_away(watch, from);
    char *end = from + page_bytes();
    while (end < to && watch_is_away(watch, end) == away) end += page_bytes();
    return end;
}

static void mark(struct strata_watch *watch, const char *from, size_t bytes, bool away) {
    for (size_t i = watch_index(watch, from), end = i + (bytes >> platform_info()->page_shift); i < end; i++)
        if (away)
            watch_bit_set(watch->away, i);
        else
            watch_bit_clear(watch->away, i);
}

/* ------------------------------------------------------------------ the shadow */

/* Of the same place modulo a superpage, where that is of use: huge pages move as they are. */
bool watch_shadow_open(struct strata_watch *watch) {
    bool large = watch->bytes >= SUPERPAGE_BYTES;
    size_t align = large ? SUPERPAGE_BYTES : page_bytes(), offset = (uintptr_t)watch->start & (align - 1),
           bytes = align_up(offset + watch->bytes, page_bytes());
    char *space = platform_reserve(NULL, bytes, align);
    if (space == NULL) return false;
    if (!platform_commit(space, bytes)) {
        platform_unreserve(space, bytes);
        return false;
    }
    watch->shadow_space = space;
    watch->shadow_space_bytes = bytes;
    watch->shadow = space + offset;
    return true;
}

void watch_shadow_close(struct strata_watch *watch) {
    if (watch->shadow_space != NULL) platform_unreserve(watch->shadow_space, watch->shadow_space_bytes);
    watch->shadow_space = NULL;
}

enum platform_faults_status watch_register(struct page_watches *watches, struct strata_watch *watch) {
    if (!watch->by_moves) return platform_faults_register(&watches->file, watch->start, watch->bytes, false, true);
    enum platform_faults_status status = platform_faults_register(&watches->file, watch->shadow, watch->bytes, true, false);
    if (status == PLATFORM_FAULTS_OK) status = platform_faults_register(&watches->file, watch->start, watch->bytes, true, true);
    return status;
}

/* ------------------------------------------------------------------ moves */

/*
 * The kernel moves within one mapping at a time, and says no to more: then less is tried, down to a page. *moved bytes have; where that is not all,
 * the status is of the first that has not.
 */
static enum platform_faults_status move_some(struct page_watches *watches, char *to, char *from, size_t bytes, size_t *moved) {
    *moved = 0;
    for (size_t piece = bytes, done; *moved < bytes;) {
        enum platform_faults_status status = platform_faults_move(&watches->file, to + *moved, from + *moved, piece, &done);
        *moved += done;
        if (status == PLATFORM_FAULTS_OK || (status == PLATFORM_FAULTS_BAD_RANGE && done != 0))
            piece = bytes - *moved;
        else if (status == PLATFORM_FAULTS_BAD_RANGE && piece > page_bytes())
            piece = align_down(piece / 2, page_bytes());
        else
            return status;
    }
    return PLATFORM_FAULTS_OK;
}

/*
 * A page that can't be moved, as a forked child has it too, becomes this process's own by being made writable; it is there, so that this waits for
 * nobody. One that can be read only is as it will be, and is copied.
 */
static enum platform_faults_status take_held_away(struct page_watches *watches, struct strata_watch *watch, char *page) {
    char *to = watch_shadow_of(watch, page);
    size_t index = watch_index(watch, page), moved;
    bool protect = watch_bit(watch->armed_writes, index) && !watch_bit(watch->armed_reads, index);
    if (!platform_release(to, page_bytes())) return PLATFORM_FAULTS_NO_MEMORY; /* whoever reads all memory has left zeros there */
    if (protect) {
        enum platform_faults_status status = platform_faults_copy(&watches->file, to, page, page_bytes(), false, NULL);
        if (status == PLATFORM_FAULTS_OK && !platform_release(page, page_bytes())) {
            (void)platform_release(to, page_bytes());
            status = PLATFORM_FAULTS_NO_MEMORY;
        }
        return status;
    }
    (void)platform_faults_zero(&watches->file, page, page_bytes(), NULL); /* should the program have dropped it by itself */
    (void)platform_faults_protect(&watches->file, page, page_bytes(), false);
    if (!platform_populate(page, page_bytes())) return PLATFORM_FAULTS_NO_MEMORY;
    return platform_faults_move(&watches->file, to, page, page_bytes(), &moved);
}

enum platform_faults_status watch_take_away(struct page_watches *watches, struct strata_watch *watch, char *from, char *to) {
    enum platform_faults_status status = PLATFORM_FAULTS_OK;
    for (char *end; from < to && status == PLATFORM_FAULTS_OK; from = end) {
        end = run_end(watch, from, to);
        if (watch_is_away(watch, from)) continue;
        while (from < end && status == PLATFORM_FAULTS_OK) {
            size_t moved;
            status = move_some(watches, watch_shadow_of(watch, from), from, (size_t)(end - from), &moved);
            mark(watch, from, moved, true);
            from += moved;
            if (status != PLATFORM_FAULTS_TAKEN) continue;
            status = take_held_away(watches, watch, from);
            if (status == PLATFORM_FAULTS_OK) mark(watch, from, page_bytes(), true), from += page_bytes();
        }
    }
    return status;
}

/* ------------------------------------------------------------------ the way back */

enum platform_faults_status watch_bring_back(struct page_watches *watches, struct strata_watch *watch, char *page, bool protect) {
    char *from = watch_shadow_of(watch, page);
    bool keep = watch_is_told(watches, watch, page);
    /* Something must come, or whoever waits would wait for ever. */
    enum platform_faults_status status = platform_faults_zero(&watches->file, from, page_bytes(), NULL);
    if (status == PLATFORM_FAULTS_GONE) return status;
    status = keep || protect ? PLATFORM_FAULTS_TAKEN : platform_faults_move(&watches->file, page, from, page_bytes(), NULL);
    if (status != PLATFORM_FAULTS_OK && status != PLATFORM_FAULTS_GONE) {
        struct platform_event nobody = {0};
        while ((status = platform_faults_copy(&watches->file, page, from, page_bytes(), protect, NULL)) == PLATFORM_FAULTS_NO_MEMORY)
            (void)platform_event_wait(&nobody, RETRY_NS);
        if (status != PLATFORM_FAULTS_GONE && !keep) (void)platform_release(from, page_bytes());
    }
    if (status == PLATFORM_FAULTS_GONE) return status;
    mark(watch, page, page_bytes(), false); /* other than OK: the program has unmapped it by itself */
    return PLATFORM_FAULTS_OK;
}

/* All of it is away. The page that is being told is copied, others are moved while they can be. */
static enum platform_faults_status bring_run_back(struct page_watches *watches, struct strata_watch *watch, char *from, char *end) {
    enum platform_faults_status status = PLATFORM_FAULTS_OK;
    char *told = watches->current == watch ? watches->current_page : NULL;
    while (from < end && status != PLATFORM_FAULTS_GONE) {
        size_t moved = 0;
        char *stop = told != NULL && told >= from && told < end ? told : end;
        if (stop > from) status = move_some(watches, from, watch_shadow_of(watch, from), (size_t)(stop - from), &moved);
        mark(watch, from, moved, false);
        from += moved;
        if (status == PLATFORM_FAULTS_GONE || from == end) break;
        status = watch_bring_back(watches, watch, from, false);
        from += page_bytes();
    }
    return status;
}

enum platform_faults_status watch_bring_all_back(struct page_watches *watches, struct strata_watch *watch) {
    char *to = watch->start + watch->bytes;
    enum platform_faults_status status = PLATFORM_FAULTS_OK;
    for (char *from = watch->start, *end; from < to && status != PLATFORM_FAULTS_GONE; from = end) {
        end = run_end(watch, from, to);
        if (watch_is_away(watch, from)) status = bring_run_back(watches, watch, from, end);
    }
    if (status == PLATFORM_FAULTS_GONE) return status;
    (void)platform_faults_unregister(&watches->file, watch->shadow, watch->bytes, false); /* else it goes with its address space */
    return platform_faults_unregister(&watches->file, watch->start, watch->bytes, true);
}

/* Of pages, all away. What is absent stays so. */
static void copy_back(struct strata_watch *watch, char *from, const char *end, bool keep) {
    uint8_t presence[256];
    for (size_t pages; from < end; from += pages * page_bytes()) {
        pages = min_u64((size_t)(end - from) / page_bytes(), sizeof presence);
        bool known = platform_presence(watch_shadow_of(watch, from), pages * page_bytes(), presence);
        for (size_t i = 0; i < pages; i++) {
            char *page = from + i * page_bytes(), *copied = watch_shadow_of(watch, page);
            if (known && presence[i] == PLATFORM_PAGE_ABSENT) continue;
            __builtin_memcpy(page, copied, page_bytes());
            if (!keep) (void)platform_release(copied, page_bytes());
        }
    }
}

void watch_bring_back_forked(const struct page_watches *watches, struct strata_watch *watch) {
    char *to = watch->start + watch->bytes;
    for (char *from = watch->start, *end; from < to; from = end) {
        end = run_end(watch, from, to);
        if (!watch_is_away(watch, from)) continue;
        size_t bytes = (size_t)(end - from);
        bool told = watches->current == watch && watches->current_page >= from && watches->current_page < end;
        bool tables = !told && bytes >= TABLES_PAGES_MIN * page_bytes() && platform_move(watch_shadow_of(watch, from), from, bytes);
        if (!tables) copy_back(watch, from, end, told);
        mark(watch, from, bytes, false);
    }
}

/* ------------------------------------------------------------------ looking */

void page_watch_presence(char *address, size_t bytes, uint8_t *pages) {
    struct page_watches *watches = __atomic_load_n(&heap.watches, __ATOMIC_ACQUIRE);
    if (watches == NULL) return;
    platform_lock_acquire(&watches->lock);
    for (const struct strata_watch *watch = watches->first; watch != NULL; watch = watch->next) {
        char *from = address > watch->start ? address : watch->start, *to = watch->start + watch->bytes;
        if (to > address + bytes) to = address + bytes;
        for (char *end; !watch->ended && watch->by_moves && from < to; from = end) {
            end = run_end(watch, from, to);
            uint8_t *first = &pages[(size_t)(from - address) >> platform_info()->page_shift];
            if (watch_is_away(watch, from)) (void)platform_presence(watch_shadow_of(watch, from), (size_t)(end - from), first);
        }
    }
    platform_lock_release(&watches->lock);
}
