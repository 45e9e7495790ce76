/*
 * presence.c - which pages of a range are there, by what the kernel shows of a process's own page tables in /proc/self/pagemap.
 *
 * Frame numbers, which need a privilege, are not looked at. No locks, no state; errno is kept.
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

static int open_pagemap(void) { return open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC); }

static bool read_entries(int file, uintptr_t address, size_t pages, uint8_t *result) {
    uint64_t entries[ENTRIES];
    size_t done = 0;
    while (done < pages) {
        size_t wanted = min_u64(pages - done, ENTRIES);
        ssize_t got = pread(file, entries, wanted * sizeof *entries, (off_t)(((address >> platform_info()->page_shift) + done) * sizeof *entries));
        if (got < (ssize_t)sizeof *entries) return false;
        for (size_t i = 0; i < (size_t)got / sizeof *entries; i++)
            result[done++] = (entries[i] & ENTRY_PRESENT) != 0   ? PLATFORM_PAGE_PRESENT
                             : (entries[i] & ENTRY_SWAPPED) != 0 ? PLATFORM_PAGE_SWAPPED
                                                                 : PLATFORM_PAGE_ABSENT;
    }
    return true;
}

STRATA_COLD bool platform_presence(const void *address, size_t bytes, uint8_t *pages) {
    int saved = errno, file = open_pagemap();
    bool ok = file >= 0 && read_entries(file, (uintptr_t)address, bytes >> platform_info()->page_shift, pages);
    if (file >= 0) close(file);
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
    if (file >= 0) close(file);
    errno = saved;
    return ok;
}
