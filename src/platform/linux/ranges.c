/*
 * ranges.c - advice on many ranges by one call on Linux: process_madvise on the process itself, which may ask for all that madvise can since
 * Linux 6.13. No locks, no state; errno is kept.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/base.h"
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

#ifndef PIDFD_SELF
#define PIDFD_SELF -10000 /* Linux 6.14: the calling process, without a descriptor */
#endif

#define RANGES_A_CALL 1024 /* as many as the kernel takes */

_Static_assert(sizeof(struct platform_range) == sizeof(struct iovec) &&
                   offsetof(struct platform_range, address) == offsetof(struct iovec, iov_base) &&
                   offsetof(struct platform_range, bytes) == offsetof(struct iovec, iov_len),
               "the kernel reads ranges as they are");

/* Empty ranges aside, the kernel tells how many bytes it came to: it stops where it must, as at the end of memory. */
static bool advise_by(int process, const struct platform_range *ranges, size_t count, int advice) {
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) bytes += ranges[i].bytes;
    return syscall(SYS_process_madvise, process, ranges, count, advice, 0) == (long)bytes;
}

static bool advise_all(const struct platform_range *ranges, size_t count, int advice) {
    int saved = errno, process = PIDFD_SELF;
    bool ok = true;
    for (size_t done = 0; ok && done < count;) {
        size_t some = min_u64(count - done, RANGES_A_CALL);
        ok = advise_by(process, ranges + done, some, advice);
        if (!ok && process == PIDFD_SELF && errno == EBADF) { /* a kernel that takes it for a number like any other */
            process = (int)syscall(SYS_pidfd_open, getpid(), 0);
            ok = process >= 0 && advise_by(process, ranges + done, some, advice);
        }
        done += some;
    }
    if (process >= 0) linux_close(process);
    errno = saved;
    return ok;
}

/* One alone has its own call. */
STRATA_COLD bool platform_release_all(const struct platform_range *ranges, size_t count) {
    bool ok = true;
    if (count > 1 && advise_all(ranges, count, MADV_DONTNEED)) return true;
    for (size_t i = 0; i < count; i++) ok &= platform_release(ranges[i].address, ranges[i].bytes);
    return ok;
}
STRATA_COLD bool platform_populate_all(const struct platform_range *ranges, size_t count) {
    return count == 1 ? platform_populate(ranges->address, ranges->bytes) : advise_all(ranges, count, MADV_POPULATE_WRITE);
}
