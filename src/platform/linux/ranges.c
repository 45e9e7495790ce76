/*
 * ranges.c - advice on many ranges by one call on Linux: process_madvise on the process itself, which may ask for all that madvise can since
 * Linux 6.13. No locks, no state; errno is kept.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "platform/linux/linux.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

#define RANGES_A_CALL 256 /* the kernel takes 1,024 */

/* Empty ranges aside, the kernel tells how many bytes it came to: it stops where it must, as at the end of memory. */
static bool advise_all(const struct platform_range *ranges, size_t count, int advice) {
    struct iovec vector[RANGES_A_CALL];
    int saved = errno, process = (int)syscall(SYS_pidfd_open, getpid(), 0);
    bool ok = process >= 0;
    for (size_t done = 0; ok && done < count;) {
        size_t some = 0, bytes = 0;
        for (; some < RANGES_A_CALL && done + some < count; some++) {
            vector[some] = (struct iovec){ranges[done + some].address, ranges[done + some].bytes};
            bytes += ranges[done + some].bytes;
        }
        ok = syscall(SYS_process_madvise, process, vector, some, advice, 0) == (long)bytes;
        done += some;
    }
    if (process >= 0) close(process);
    errno = saved;
    return ok;
}

/* One alone needs no descriptor. */
STRATA_COLD bool platform_release_all(const struct platform_range *ranges, size_t count) {
    return count == 1 ? platform_release(ranges->address, ranges->bytes) : advise_all(ranges, count, MADV_DONTNEED);
}
STRATA_COLD bool platform_populate_all(const struct platform_range *ranges, size_t count) {
    return count == 1 ? platform_populate(ranges->address, ranges->bytes) : advise_all(ranges, count, MADV_POPULATE_WRITE);
}
