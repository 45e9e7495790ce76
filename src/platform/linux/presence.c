/*
 * presence.c - which pages of a range are there, by what the kernel shows of a process's own page tables in /proc/self/pagemap.
 *
 * Frame numbers, which need a privilege, are not looked at. To open the file costs more than a look, so that it is kept where somebody looks often
 * (platform_presence_keep). It is a number among those of a process that does not know of it, which may close it, have its own under the same number,
 * and fork: so before each look it is identified by device and inode, and belongs to the process that opened it. Who looks takes it, and others open
 * one for themselves; no locks. A child that is forked in the instant in which it changes hands opens it for each look. errno is kept.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "platform/linux/linux.h"

#define ENTRY_PRESENT (UINT64_C(1) << 63)
#define ENTRY_SWAPPED (UINT64_C(1) << 62)
#define ENTRIES 512

/* The call of Linux 6.7 that tells of huge pages; not in the headers of older C libraries. */
struct scan_region {
    uint64_t start, end, categories;
};
struct scan_request {
    uint64_t bytes, flags, start, end, walk_end, regions, region_count, pages_max;
    uint64_t category_inverted, category_mask, category_any_of_mask, return_mask;
};
#define SCAN_CALL _IOWR('f', 16, struct scan_request)
#define SCAN_PAGE_IS_HUGE (UINT64_C(1) << 6)

/* ------------------------------------------------------------------ the file */

enum { KEPT_NONE, KEPT_CHANGES, KEPT_FIRST /* file number 0, and so on */ };

struct pagemap {
    int number; /* -1: none */
    unsigned process;
    uint64_t device, inode;
};
static struct {
    uint32_t state, keepers; /* atomic: KEPT_*, and who wants it kept */
    struct pagemap pagemap;  /* by who has made it KEPT_CHANGES */
} kept;

static int open_pagemap(void) { return linux_open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0); }

static bool identify(struct pagemap *pagemap) { return linux_file_identify(pagemap->number, &pagemap->device, &pagemap->inode); }

/* The kept one becomes the caller's, unless it is not there, or not what it was any more. */
static bool take_kept(struct pagemap *pagemap) {
    uint32_t state = __atomic_load_n(&kept.state, __ATOMIC_RELAXED);
    if (state < KEPT_FIRST || !__atomic_compare_exchange_n(&kept.state, &state, KEPT_CHANGES, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return false;
    *pagemap = kept.pagemap;
    __atomic_store_n(&kept.state, KEPT_NONE, __ATOMIC_RELEASE);
    if (!linux_file_is(pagemap->number, pagemap->device, pagemap->inode)) return false;
    if (pagemap->process == platform_process_id()) return true;
    linux_close(pagemap->number); /* of the parent's page tables */
    return false;
}

static struct pagemap take_pagemap(void) {
    struct pagemap pagemap;
    if (take_kept(&pagemap)) return pagemap;
    pagemap = (struct pagemap){.number = open_pagemap(), .process = platform_process_id()};
    int high = __atomic_load_n(&kept.keepers, __ATOMIC_RELAXED) != 0 ? fcntl(pagemap.number, F_DUPFD_CLOEXEC, FILE_NUMBER_LEAST) : -1;
    if (high >= 0) {
        linux_close(pagemap.number);
        pagemap.number = high;
    }
    return pagemap;
}

static void put_pagemap(struct pagemap *pagemap) {
    uint32_t none = KEPT_NONE;
    bool keeps = __atomic_load_n(&kept.keepers, __ATOMIC_RELAXED) != 0 && (pagemap->inode != 0 || identify(pagemap));
    if (keeps && __atomic_compare_exchange_n(&kept.state, &none, KEPT_CHANGES, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        kept.pagemap = *pagemap;
        __atomic_store_n(&kept.state, (uint32_t)pagemap->number + KEPT_FIRST, __ATOMIC_RELEASE);
    } else if (pagemap->number >= 0)
        linux_close(pagemap->number);
}

STRATA_COLD void platform_presence_keep(bool keep) {
    int saved = errno;
    struct pagemap pagemap;
    if (keep)
        __atomic_fetch_add(&kept.keepers, 1, __ATOMIC_RELAXED);
    else if (__atomic_sub_fetch(&kept.keepers, 1, __ATOMIC_RELAXED) == 0 && take_kept(&pagemap))
        linux_close(pagemap.number);
    errno = saved;
}

/* ------------------------------------------------------------------ looks */

static bool read_entries(int file, uintptr_t address, size_t pages, uint8_t *result) {
    uint64_t entries[ENTRIES];
    size_t done = 0;
    while (done < pages) {
        size_t wanted = min_u64(pages - done, ENTRIES);
        ssize_t got =
            linux_read_at(file, entries, wanted * sizeof *entries, (off_t)(((address >> platform_info()->page_shift) + done) * sizeof *entries));
        if (got < (ssize_t)sizeof *entries) return false;
        for (size_t i = 0; i < (size_t)got / sizeof *entries; i++)
            result[done++] = (entries[i] & ENTRY_PRESENT) != 0   ? PLATFORM_PAGE_PRESENT
                             : (entries[i] & ENTRY_SWAPPED) != 0 ? PLATFORM_PAGE_SWAPPED
                                                                 : PLATFORM_PAGE_ABSENT;
    }
    return true;
}

STRATA_COLD bool platform_presence(const void *address, size_t bytes, uint8_t *pages) {
    int saved = errno;
    struct pagemap pagemap = take_pagemap();
    bool ok = pagemap.number >= 0 && read_entries(pagemap.number, (uintptr_t)address, bytes >> platform_info()->page_shift, pages);
    put_pagemap(&pagemap);
    errno = saved;
    return ok;
}

STRATA_COLD bool platform_huge_in(const void *address, size_t bytes, uint64_t *huge_bytes) {
    struct scan_region regions[64];
    uintptr_t at = (uintptr_t)address, end = at + bytes;
    int saved = errno, file = open_pagemap();
    bool ok = file >= 0;
    *huge_bytes = 0;
    while (ok && at < end) {
        struct scan_request request = {.bytes = sizeof request,
                                       .start = at,
                                       .end = end,
                                       .regions = (uintptr_t)regions,
                                       .region_count = ARRAY_LENGTH(regions),
                                       .category_mask = SCAN_PAGE_IS_HUGE,
                                       .return_mask = SCAN_PAGE_IS_HUGE};
        int count = ioctl(file, (int)SCAN_CALL, &request);
        ok = count >= 0 && request.walk_end > at;
        for (int i = 0; i < count; i++) *huge_bytes += regions[i].end - regions[i].start;
        at = request.walk_end;
    }
    if (file >= 0) linux_close(file);
    errno = saved;
    return ok;
}
