/*
 * paged_signals.c - paged memory where userfaultfd is forbidden: a page out of reach lacks access rights, and who touches it waits in the handler of
 * its own SIGSEGV (access.c) until it is woken.
 *
 * A block has a byte for each page: the rights that it has, or that it is nothing (PAGED_BROKEN). They follow the kernel's, which are changed first,
 * so that a handler which looks too early has its thread told, or try, once more; that does no harm. Who waits is queued, told once, and taken out
 * when its page is woken: on its own stack, of which nothing is touched after `done`.
 *
 * Each page in reach may cost two mappings. Where the process has none left, borders go: all of the block is taken out of reach, whose pages come
 * back one by one. Lock: one for all blocks, LOCK_RANK_PLATFORM. In the child of a fork, which has no block, `common` is begun anew.
 */
#define _GNU_SOURCE 1
#include "platform/linux/paged_signals.h"

#include <sys/mman.h>

#include "base/check.h"
#include "platform/linux/linux.h"

/* Of the mappings that the process may have, by so many pages at a time. */
#define MAPPINGS_A_PAGE 4

struct paged_waiter {
    struct paged_waiter *next;
    size_t offset;
    bool write, told;
    uint32_t done; /* atomic, a futex */
};

struct platform_paged_signals {
    struct platform_paged_signals *next;
    char *block;
    size_t bytes, footprint_bytes;
    struct paged_waiter *waiters; /* the last come first */
    bool rung;
    struct platform_event event;
    uint8_t rights[]; /* atomic: enum platform_access, or PAGED_BROKEN, of each page */
};

static struct {
    struct platform_lock lock;
    unsigned process; /* atomic: whose blocks these are; 0: there was none yet */
    struct platform_paged_signals *first;
} common = {.lock = PLATFORM_LOCK_INIT(LOCK_RANK_PLATFORM)};

static size_t page_bytes(void) { return platform_info()->page_bytes; }
static size_t page_number(size_t offset) { return offset >> platform_info()->page_shift; }

static unsigned right_of(const struct platform_paged_signals *signals, size_t offset) {
    return __atomic_load_n(&signals->rights[page_number(offset)], __ATOMIC_RELAXED);
}

void paged_signals_note(struct platform_paged *paged, size_t offset, unsigned right) {
    __atomic_store_n(&paged->signals->rights[page_number(offset)], (uint8_t)right, __ATOMIC_RELAXED);
}

/* ------------------------------------------------------------------ in the signal handler */

/* Under the lock. */
static struct platform_paged_signals *find(const char *page) {
    struct platform_paged_signals *signals = common.first;
    while (signals != NULL && (page < signals->block || page >= signals->block + signals->bytes)) signals = signals->next;
    return signals;
}

/* Whether the page has got since what the thread lacked. Where the system does not say what that was, and it may read, it wants to write. */
static bool has_now(unsigned right, bool *write) {
#if !defined(__x86_64__)
    *write |= right == PLATFORM_ACCESS_READ;
#endif
    return right == PLATFORM_ACCESS_ALL || right == PAGED_BROKEN || (right == PLATFORM_ACCESS_READ && !*write);
}

static bool serve_signal(char *page, bool write) {
    if (__atomic_load_n(&common.process, __ATOMIC_ACQUIRE) != platform_process_id()) return false;
    platform_lock_acquire(&common.lock);
    struct platform_paged_signals *signals = find(page);
    size_t offset = signals != NULL ? (size_t)(page - signals->block) : 0;
    if (signals == NULL || has_now(right_of(signals, offset), &write)) {
        platform_lock_release(&common.lock);
        return signals != NULL;
    }
    struct paged_waiter waiter = {.next = signals->waiters, .offset = offset, .write = write};
    signals->waiters = &waiter;
    platform_event_wake(&signals->event); /* under the lock, as the block may end with it */
    platform_lock_release(&common.lock);
    while (__atomic_load_n(&waiter.done, __ATOMIC_ACQUIRE) == 0) platform_word_wait(&waiter.done, 0);
    return true;
}

/* ------------------------------------------------------------------ the block */

/* In a child the lock may be held by a thread that is not there. */
static void begin_common(void) {
    unsigned process = platform_process_id();
    if (__atomic_load_n(&common.process, __ATOMIC_ACQUIRE) == process) return;
    common.lock = (struct platform_lock)PLATFORM_LOCK_INIT(LOCK_RANK_PLATFORM);
    common.first = NULL;
    __atomic_store_n(&common.process, process, __ATOMIC_RELEASE);
}

enum platform_faults_status paged_signals_open(struct platform_paged *paged) {
    size_t pages = page_number(paged->bytes), footprint = align_up(sizeof(struct platform_paged_signals) + pages, page_bytes());
    struct platform_paged_signals *signals = linux_map(NULL, footprint, PROT_READ | PROT_WRITE, MAP_NORESERVE);
    if (signals == NULL) return PLATFORM_FAULTS_NO_MEMORY;
    signals->block = paged->block;
    signals->bytes = paged->bytes;
    signals->footprint_bytes = footprint;
    /* And the page behind, which nobody touches: open, it were one mapping with a last page that is, and to close that would take another. */
    bool closed = mprotect(paged->block, paged->bytes + page_bytes(), PROT_NONE) == 0;
    if (!closed || !platform_on_access_fault(serve_signal)) {
        munmap(signals, footprint);
        return closed ? PLATFORM_FAULTS_FORBIDDEN : PLATFORM_FAULTS_NO_MEMORY;
    }
    begin_common();
    platform_lock_acquire(&common.lock);
    signals->next = common.first;
    common.first = signals;
    platform_lock_release(&common.lock);
    paged->signals = signals;
    paged->pages_max = (uint32_t)min_u64(platform_map_count_limit() / MAPPINGS_A_PAGE, UINT32_MAX);
    return PLATFORM_FAULTS_OK;
}

void paged_signals_close(struct platform_paged *paged, bool forked) {
    struct platform_paged_signals *signals = paged->signals;
    if (!forked) {
        platform_lock_acquire(&common.lock);
        struct platform_paged_signals **link = &common.first;
        while (*link != signals) link = &(*link)->next;
        *link = signals->next;
        platform_lock_release(&common.lock);
    }
    munmap(signals, signals->footprint_bytes);
    paged->signals = NULL;
}

/* ------------------------------------------------------------------ waiting */

static unsigned take(struct platform_paged_signals *signals, struct platform_fault *faults, unsigned count) {
    unsigned got = 0;
    for (struct paged_waiter *waiter = signals->waiters; waiter != NULL && got < count; waiter = waiter->next) {
        if (waiter->told) continue;
        waiter->told = true;
        faults[got++] = (struct platform_fault){.page = signals->block + waiter->offset, .write = waiter->write};
    }
    return got;
}

unsigned paged_signals_wait(struct platform_paged *paged, struct platform_fault *faults, unsigned count) {
    struct platform_paged_signals *signals = paged->signals;
    for (;;) {
        platform_lock_acquire(&common.lock);
        unsigned got = take(signals, faults, count);
        bool rung = signals->rung;
        platform_lock_release(&common.lock);
        if (got != 0 || rung) return got;
        (void)platform_event_wait(&signals->event, UINT64_MAX);
    }
}

void paged_signals_ring(struct platform_paged *paged) {
    platform_lock_acquire(&common.lock);
    paged->signals->rung = true;
    platform_event_wake(&paged->signals->event);
    platform_lock_release(&common.lock);
}

void paged_signals_wake(struct platform_paged *paged, size_t offset, size_t bytes) {
    platform_lock_acquire(&common.lock);
    for (struct paged_waiter **link = &paged->signals->waiters, *waiter; (waiter = *link) != NULL;) {
        if (waiter->offset < offset || waiter->offset - offset >= bytes) {
            link = &waiter->next;
            continue;
        }
        *link = waiter->next;
        __atomic_store_n(&waiter->done, 1, __ATOMIC_RELEASE); /* its stack may be gone from here on */
        platform_word_wake(&waiter->done);
    }
    platform_lock_release(&common.lock);
}

/* ------------------------------------------------------------------ rights */

static bool change(struct platform_paged *paged, size_t offset, size_t bytes, enum platform_access access) {
    if (!platform_protect(paged->block + offset, bytes, access)) return false;
    for (size_t done = 0; done < bytes; done += page_bytes()) paged_signals_note(paged, offset + done, access);
    return true;
}

/* From `offset` on, below `end`: how far all pages have the same right. */
static size_t same_right(const struct platform_paged_signals *signals, size_t offset, size_t end) {
    size_t at = offset + page_bytes();
    while (at < end && right_of(signals, at) == right_of(signals, offset)) at += page_bytes();
    return at - offset;
}

/* Stretches as the kernel has them: none is split, so that no mapping is needed. */
static void hide_all(struct platform_paged *paged) {
    for (size_t at = 0, length; at < paged->bytes; at += length) {
        unsigned right = right_of(paged->signals, at);
        length = same_right(paged->signals, at, paged->bytes);
        if (right == PLATFORM_ACCESS_NONE || right == PAGED_BROKEN) continue;
        CHECK(change(paged, at, length, PLATFORM_ACCESS_NONE));
    }
}

bool paged_signals_set(struct platform_paged *paged, size_t offset, size_t bytes, enum platform_access access) {
    if (change(paged, offset, bytes, access)) return true;
    hide_all(paged);
    return change(paged, offset, bytes, access);
}

bool paged_signals_protect(struct platform_paged *paged, size_t offset, size_t bytes) {
    for (size_t at = offset, length; at < offset + bytes; at += length) {
        length = same_right(paged->signals, at, offset + bytes);
        if (right_of(paged->signals, at) != PLATFORM_ACCESS_ALL) continue;
        if (change(paged, at, length, PLATFORM_ACCESS_READ)) continue;
        hide_all(paged);
        return true; /* nobody can write any more */
    }
    return true;
}

void paged_signals_hide(struct platform_paged *paged, size_t offset, size_t bytes) {
    if (!change(paged, offset, bytes, PLATFORM_ACCESS_NONE)) hide_all(paged);
}
