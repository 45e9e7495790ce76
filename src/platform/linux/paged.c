/*
 * paged.c - memory whose pages the process brings itself: shared memory that is mapped twice, and userfaultfd on the first of the two mappings.
 *
 * A page is brought by writing it at the second mapping. Until UFFDIO_CONTINUE puts it into the first one's page tables, whoever touches it there
 * waits; MADV_DONTNEED takes it out of these again, and MADV_REMOVE out of memory, through both. The memory has no file number that the program might
 * close, and no size that RLIMIT_FSIZE counts: a mapping is repeated by mremap with an old size of 0. One page more than asked for lies behind the
 * block: touching that one is how a waiting thread is told to stop.
 *
 * Where userfaultfd is forbidden, access rights and SIGSEGV stand in for it (paged_signals.c), on the same two mappings.
 *
 * Neither mapping is inherited by a fork (MADV_DONTFORK), so that no child changes what its parent writes to the file. No locks, no state but the
 * caller's; errno is kept.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <linux/userfaultfd.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "platform/linux/linux.h"
#include "platform/linux/paged_signals.h"

/* What the headers of older systems lack. */
#define REGISTER_MINOR (UINT64_C(1) << 2)     /* Linux 5.13, for shared memory 5.14 */
#define CONTINUE_PROTECTED (UINT64_C(1) << 1) /* Linux 6.4 */
#ifndef UFFDIO_CONTINUE
struct uffdio_continue {
    struct uffdio_range range;
    __u64 mode;
    __s64 mapped;
};
#define UFFDIO_CONTINUE _IOWR(UFFDIO, 0x07, struct uffdio_continue)
#endif

static size_t page_bytes(void) { return platform_info()->page_bytes; }

static enum platform_faults_status serve(struct platform_paged *paged, size_t offset, size_t bytes) {
    struct uffdio_register request = {.range = {.start = (uintptr_t)paged->block + offset, .len = bytes},
                                      .mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP | REGISTER_MINOR};
    if (ioctl(paged->faults.file, (int)UFFDIO_REGISTER, &request) == 0) return PLATFORM_FAULTS_OK;
    return errno == ENOMEM ? PLATFORM_FAULTS_NO_MEMORY : PLATFORM_FAULTS_UNSUPPORTED;
}

/*
 * NULL: none. Without rights: where the program has all locked that it maps from now on (mlockall), none of it comes into memory by that, nor when
 * it is mapped again.
 */
static char *map_shared(size_t bytes, int flags, int file) {
    char *address = mmap(NULL, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE | flags, file, 0);
    return address == MAP_FAILED ? NULL : address;
}
static char *map_again(char *address, size_t bytes) {
    char *again = mremap(address, 0, bytes, MREMAP_MAYMOVE);
    return again == MAP_FAILED ? NULL : again;
}

/* A page behind the end of its file. */
static char *map_nothing(void) {
    int file = memfd_create("strata paging", MFD_CLOEXEC);
    if (file < 0) return NULL;
    char *address = map_shared(page_bytes(), 0, file);
    linux_close(file);
    return address;
}

/* Not inherited; and never huge pages, as memory is counted and given back page by page. */
static bool set_up(char *address, size_t bytes) {
    (void)madvise(address, bytes, MADV_NOHUGEPAGE);
    return madvise(address, bytes, MADV_DONTFORK) == 0 && mprotect(address, bytes, PROT_READ | PROT_WRITE) == 0;
}

/* Both mappings, and the page that is nothing. */
static bool map_all(struct platform_paged *paged, size_t whole) {
    paged->nothing = map_nothing();
    paged->block = map_shared(whole, MAP_ANONYMOUS, -1);
    paged->own = paged->block != NULL ? map_again(paged->block, whole) : NULL;
    return paged->nothing != NULL && paged->own != NULL && set_up(paged->nothing, page_bytes()) && set_up(paged->block, whole) &&
           set_up(paged->own, whole);
}

static enum platform_faults_status open_faults(struct platform_paged *paged, enum platform_paged_way way) {
    if (way == PLATFORM_PAGED_SIGNALS) return PLATFORM_FAULTS_FORBIDDEN;
    return platform_faults_open(&paged->faults, PLATFORM_FAULTS_PROTECT);
}

enum platform_faults_status platform_paged_open(struct platform_paged *paged, size_t bytes, enum platform_paged_way way) {
    int saved = errno;
    *paged = (struct platform_paged){.bytes = bytes, .faults = PLATFORM_FAULTS_CLOSED, .pages_max = UINT32_MAX};
    size_t whole = bytes + page_bytes();
    enum platform_faults_status status = open_faults(paged, way);
    bool by_signals = way != PLATFORM_PAGED_FAULTS && (status == PLATFORM_FAULTS_FORBIDDEN || status == PLATFORM_FAULTS_UNSUPPORTED);
    if (status == PLATFORM_FAULTS_OK || by_signals) {
        status = !map_all(paged, whole) ? PLATFORM_FAULTS_NO_MEMORY : by_signals ? paged_signals_open(paged) : serve(paged, 0, whole);
        if (status != PLATFORM_FAULTS_OK) platform_paged_close(paged, false);
    }
    errno = saved;
    return status;
}

void platform_paged_close(struct platform_paged *paged, bool forked) {
    int saved = errno;
    size_t whole = paged->bytes + page_bytes();
    platform_faults_close(&paged->faults);
    if (paged->signals != NULL) paged_signals_close(paged, forked);
    if (!forked && paged->block != NULL) munmap(paged->block, whole);
    if (!forked && paged->own != NULL) munmap(paged->own, whole);
    if (!forked && paged->nothing != NULL) munmap(paged->nothing, page_bytes());
    *paged = (struct platform_paged){.faults = PLATFORM_FAULTS_CLOSED};
    errno = saved;
}

/* ------------------------------------------------------------------ waiting */

enum platform_faults_status platform_paged_wait(struct platform_paged *paged, struct platform_fault *faults, unsigned count, unsigned *got) {
    unsigned read = 0, kept = 0;
    if (paged->signals != NULL) {
        *got = paged_signals_wait(paged, faults, count);
        return PLATFORM_FAULTS_OK;
    }
    enum platform_faults_status status = platform_faults_read(&paged->faults, faults, count, UINT64_MAX, &read);
    for (unsigned i = 0; i < read; i++) {
        if (faults[i].page != paged->block + paged->bytes) {
            faults[kept++] = faults[i];
        } else {
            bool writable = true;
            paged->own[paged->bytes] = 1; /* brings the page */
            (void)platform_paged_map(paged, paged->bytes, page_bytes(), &writable);
        }
    }
    *got = kept;
    return status;
}

void platform_paged_ring(struct platform_paged *paged) {
    if (paged->signals != NULL)
        paged_signals_ring(paged);
    else
        (void)*(volatile char *)(paged->block + paged->bytes);
}

void platform_paged_wake(struct platform_paged *paged, size_t offset, size_t bytes) {
    if (paged->signals != NULL)
        paged_signals_wake(paged, offset, bytes);
    else
        platform_faults_wake(&paged->faults, paged->block + offset, bytes);
}

/* ------------------------------------------------------------------ pages */

static int continue_at(struct platform_paged *paged, size_t offset, size_t bytes, bool writable) {
    struct uffdio_continue request = {.range = {.start = (uintptr_t)paged->block + offset, .len = bytes}, .mode = writable ? 0 : CONTINUE_PROTECTED};
    int result;
    do result = ioctl(paged->faults.file, (int)UFFDIO_CONTINUE, &request) == 0 ? 0 : errno;
    while (result == EAGAIN && request.mapped <= 0);
    return result;
}

enum platform_faults_status platform_paged_map(struct platform_paged *paged, size_t offset, size_t bytes, bool *writable) {
    if (paged->signals != NULL) {
        bool mapped = paged_signals_set(paged, offset, bytes, *writable ? PLATFORM_ACCESS_ALL : PLATFORM_ACCESS_READ);
        if (mapped) paged_signals_wake(paged, offset, bytes);
        return mapped ? PLATFORM_FAULTS_OK : PLATFORM_FAULTS_NO_MEMORY;
    }
    int saved = errno;
    int error = continue_at(paged, offset, bytes, *writable);
    if (error == EINVAL && !*writable) {
        *writable = true;
        error = continue_at(paged, offset, bytes, true);
    }
    enum platform_faults_status status = PLATFORM_FAULTS_OK;
    if (error == EEXIST && *writable)
        status = platform_faults_protect(&paged->faults, paged->block + offset, bytes, false);
    else if (error == EEXIST)
        platform_paged_wake(paged, offset, bytes);
    else if (error != 0)
        status = error == ENOMEM ? PLATFORM_FAULTS_NO_MEMORY : PLATFORM_FAULTS_GONE;
    errno = saved;
    return status;
}

enum platform_faults_status platform_paged_protect(struct platform_paged *paged, size_t offset, size_t bytes) {
    if (paged->signals != NULL) return paged_signals_protect(paged, offset, bytes) ? PLATFORM_FAULTS_OK : PLATFORM_FAULTS_NO_MEMORY;
    return platform_faults_protect(&paged->faults, paged->block + offset, bytes, true);
}

/* The system takes nothing out of memory that the program has locked: what is paged is locked no longer than until the first page leaves. */
static void take_out(const struct platform_paged *paged, char *mapping, size_t offset, size_t bytes, int advice) {
    if (STRATA_LIKELY(madvise(mapping + offset, bytes, advice) == 0)) return;
    munlock(mapping, paged->bytes + page_bytes());
    CHECK(madvise(mapping + offset, bytes, advice) == 0);
}

void platform_paged_hide(struct platform_paged *paged, size_t offset, size_t bytes) {
    int saved = errno;
    if (paged->signals != NULL)
        paged_signals_hide(paged, offset, bytes);
    else
        take_out(paged, paged->block, offset, bytes, MADV_DONTNEED);
    errno = saved;
}

void platform_paged_drop(struct platform_paged *paged, size_t offset, size_t bytes) {
    int saved = errno;
    take_out(paged, paged->own, offset, bytes, MADV_REMOVE);
    errno = saved;
}

/*
 * Shows a page in another's place. Not by one mremap with an old size of 0: where RLIMIT_AS forbids that, it takes what is there away before it fails
 * (Linux 6.6; not 6.18), and whoever maps memory next may get an address inside of the block.
 */
static bool put(char *from, bool protect, char *page) {
    char *again = map_again(from, page_bytes());
    if (again == NULL) return false;
    bool ready = !protect || mprotect(again, page_bytes(), PROT_NONE) == 0;
    if (ready && mremap(again, page_bytes(), page_bytes(), MREMAP_MAYMOVE | MREMAP_FIXED, page) == page) return true;
    munmap(again, page_bytes());
    return false;
}

static bool put_nothing(struct platform_paged *paged, size_t offset) {
    if (!put(paged->nothing, false, paged->block + offset)) return false;
    if (paged->signals != NULL) paged_signals_note(paged, offset, PAGED_BROKEN);
    return true;
}

bool platform_paged_break(struct platform_paged *paged, size_t offset) {
    int saved = errno;
    bool ok = put_nothing(paged, offset);
    platform_paged_wake(paged, offset, page_bytes());
    errno = saved;
    return ok;
}

/* Without a right to touch it, at first. */
static bool mend_by_signals(struct platform_paged *paged, size_t offset) {
    if (!put(paged->own + offset, true, paged->block + offset)) return false;
    paged_signals_note(paged, offset, PLATFORM_ACCESS_NONE);
    return true;
}

/*
 * The kernel stops threads at memory that is in its place already, and forgets that it does where it moves memory: so the page is there, open, before
 * they are stopped. Who touches it then finds what is right, as it is in memory, and what he wrote is there when nobody can write any more.
 */
static bool mend_by_faults(struct platform_paged *paged, size_t offset, bool *written) {
    char *page = paged->block + offset, *before = linux_map(NULL, page_bytes(), PROT_READ | PROT_WRITE, 0);
    if (before == NULL) return false;
    memcpy(before, paged->own + offset, page_bytes());
    bool ok = put(paged->own + offset, false, page);
    if (ok && serve(paged, offset, page_bytes()) != PLATFORM_FAULTS_OK) {
        ok = false;
        if (!put_nothing(paged, offset)) mprotect(page, page_bytes(), PROT_NONE); /* SIGSEGV, rather than contents that nobody sees to */
    }
    if (ok) {
        platform_paged_hide(paged, offset, page_bytes());
        *written = memcmp(before, paged->own + offset, page_bytes()) != 0;
    }
    munmap(before, page_bytes());
    return ok;
}

bool platform_paged_mend(struct platform_paged *paged, size_t offset, bool *written) {
    int saved = errno;
    *written = false;
    bool ok = paged->signals != NULL ? mend_by_signals(paged, offset) : mend_by_faults(paged, offset, written);
    errno = saved;
    return ok;
}

void platform_paged_seal(struct platform_paged *paged) {
    int saved = errno;
    mprotect(paged->block, paged->bytes, PROT_NONE);
    errno = saved;
}
