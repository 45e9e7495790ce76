/*
 * fault.c - faults that the process serves itself, by userfaultfd.
 *
 * A file for faults of system calls too is tried first; it takes privilege, or a setting of the system. The other one, for faults of user code only,
 * is for everybody, but where containers forbid the call itself. Which features the kernel has is asked of a file of its own, as
 * the question can be put to each file only once.
 *
 * The file belongs to a process that does not know of it and may close it, as daemons do, and have its own under the same number: so it gets a high
 * number, is known by device and inode (since Linux 5.12 each has an inode of its own; before, the worst is a call that another file refuses), and is
 * looked at before each call. Closing takes all ranges off and wakes all who wait: nobody hangs. No locks, no state but the caller's; errno is kept.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "platform/linux/event.h"
#include "platform/linux/linux.h"

/* What the headers of older systems lack. */
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1 /* Linux 5.11 */
#endif
#define FEATURE_PROTECT (UINT64_C(1) << 0)         /* Linux 5.7 */
#define FEATURE_THREAD (UINT64_C(1) << 8)          /* Linux 4.14 */
#define FEATURE_PROTECT_ABSENT (UINT64_C(1) << 13) /* Linux 6.4 */
#define FEATURE_MOVE (UINT64_C(1) << 16)           /* Linux 6.8 */
#define COPY_PROTECTED (UINT64_C(1) << 1)
#define MOVE_ABSENT_TOO (UINT64_C(1) << 1)
struct move_request {
    uint64_t to, from, bytes, mode;
    int64_t moved;
};
#define MOVE_CALL _IOWR(UFFDIO, 0x05, struct move_request)

/* Linux 5.9, of the same number everywhere. */
#define SYS_CLOSE_RANGE 436
#define CLOSE_RANGE_IN_OWN_TABLE 2u

#define NS_PER_MS UINT64_C(1000000)
/* The longest sleep: bounds how late it is seen that the program has closed the file. */
#define POLL_MS_MAX 2000
#define READ_FAULTS 16

/* ------------------------------------------------------------------ the file */

static enum platform_faults_status status_of(int error) {
    switch (error) {
    case EPERM:
    case EACCES: return PLATFORM_FAULTS_FORBIDDEN;
    case ENOMEM:
    case EMFILE:
    case ENFILE: return PLATFORM_FAULTS_NO_MEMORY;
    case EBUSY:
    case EEXIST: return PLATFORM_FAULTS_TAKEN;
    case EBADF: return PLATFORM_FAULTS_GONE;
    case ENOSYS:
    case EOPNOTSUPP: return PLATFORM_FAULTS_UNSUPPORTED;
    default: return PLATFORM_FAULTS_BAD_RANGE;
    }
}

static int open_file(bool in_kernel) { return (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | (in_kernel ? 0 : UFFD_USER_MODE_ONLY)); }

/* -1: errno says why. */
static int open_any(bool *in_kernel) {
    *in_kernel = true;
    int file = open_file(true);
    if (file < 0 && errno == EPERM) {
        *in_kernel = false;
        file = open_file(false);
        if (file < 0 && errno == EINVAL) errno = EPERM; /* before Linux 5.11 there was no such mode: it is the first refusal that counts */
    }
    return file;
}

static bool agree(int file, uint64_t wanted, uint64_t *had) {
    struct uffdio_api api = {.api = UFFD_API, .features = wanted};
    if (ioctl(file, (int)UFFDIO_API, &api) != 0) return false;
    *had = api.features;
    return true;
}

static bool is_ours(const struct platform_faults *faults) { return linux_file_is(faults->file, faults->device, faults->inode); }

/* Takes over an open file that has agreed on its features. */
static bool keep(struct platform_faults *faults, int file) {
    int high = fcntl(file, F_DUPFD_CLOEXEC, FILE_NUMBER_LEAST);
    if (high >= 0) {
        linux_close(file);
        file = high;
    }
    if (!linux_file_identify(file, &faults->device, &faults->inode)) {
        linux_close(file);
        return false;
    }
    faults->file = file;
    return true;
}

static unsigned features_of(uint64_t had, bool in_kernel) {
    return ((had & FEATURE_PROTECT) != 0 ? PLATFORM_FAULTS_PROTECT : 0u) |
           ((had & FEATURE_PROTECT_ABSENT) != 0 ? PLATFORM_FAULTS_PROTECT_ABSENT : 0u) | (in_kernel ? PLATFORM_FAULTS_IN_KERNEL : 0u) |
           ((had & FEATURE_THREAD) != 0 ? PLATFORM_FAULTS_THREAD : 0u) | ((had & FEATURE_MOVE) != 0 ? PLATFORM_FAULTS_MOVE : 0u);
}

static enum platform_faults_status open_with_features(struct platform_faults *faults, unsigned needed) {
    bool in_kernel;
    uint64_t had = 0;
    int asked = open_any(&in_kernel);
    if (asked < 0) return status_of(errno);
    bool ok = agree(asked, 0, &had);
    linux_close(asked);
    if (!ok) return PLATFORM_FAULTS_UNSUPPORTED;
    had &= FEATURE_PROTECT | FEATURE_PROTECT_ABSENT | FEATURE_THREAD | FEATURE_MOVE;
    faults->features = features_of(had, in_kernel);
    if ((needed & ~faults->features) != 0) return PLATFORM_FAULTS_UNSUPPORTED;
    int file = open_any(&in_kernel);
    if (file < 0) return status_of(errno);
    if (!agree(file, had, &had)) {
        linux_close(file);
        return PLATFORM_FAULTS_UNSUPPORTED;
    }
    return keep(faults, file) ? PLATFORM_FAULTS_OK : PLATFORM_FAULTS_NO_MEMORY;
}

enum platform_faults_status platform_faults_open(struct platform_faults *faults, unsigned needed) {
    int saved = errno;
    *faults = (struct platform_faults)PLATFORM_FAULTS_CLOSED;
    enum platform_faults_status status = open_with_features(faults, needed);
    errno = saved;
    return status;
}

bool platform_faults_is_there(const struct platform_faults *faults) {
    int saved = errno;
    bool there = is_ours(faults);
    errno = saved;
    return there;
}

void platform_faults_close(struct platform_faults *faults) {
    int saved = errno;
    if (is_ours(faults)) linux_close(faults->file);
    faults->file = -1;
    errno = saved;
}

/* A table with all that is above closed as it is made; what is below is closed in it then. The program's own files are not touched by either. */
STRATA_SELDOM bool platform_faults_keep(const struct platform_faults *faults) {
    int saved = errno;
    unsigned number = (unsigned)faults->file;
    bool ok = is_ours(faults) && syscall(SYS_CLOSE_RANGE, number + 1, UINT_MAX, CLOSE_RANGE_IN_OWN_TABLE) == 0;
    if (ok) (void)syscall(SYS_CLOSE_RANGE, 0, number - 1, 0); /* always above 0: see FILE_NUMBER_LEAST */
    ok = ok && is_ours(faults);
    errno = saved;
    return ok;
}

/* ------------------------------------------------------------------ ranges */

static enum platform_faults_status control(struct platform_faults *faults, unsigned long request, void *argument) {
    int saved = errno, result;
    enum platform_faults_status status = PLATFORM_FAULTS_GONE;
    if (is_ours(faults)) {
        /* EAGAIN: the process's mappings are being changed by a fork or the like. */
        do result = ioctl(faults->file, (int)request, argument); /* an int to musl; the kernel reads 32 bits */
        while (result != 0 && (errno == EAGAIN || errno == EINTR));
        status = result == 0 ? PLATFORM_FAULTS_OK : status_of(errno);
    }
    errno = saved;
    return status;
}

static struct uffdio_range range_of(const void *address, size_t bytes) { return (struct uffdio_range){.start = (uintptr_t)address, .len = bytes}; }

enum platform_faults_status platform_faults_register(struct platform_faults *faults, void *address, size_t bytes, bool missing, bool protect) {
    struct uffdio_register request = {.range = range_of(address, bytes),
                                      .mode = (missing ? UFFDIO_REGISTER_MODE_MISSING : 0) | (protect ? UFFDIO_REGISTER_MODE_WP : 0)};
    return control(faults, UFFDIO_REGISTER, &request);
}

enum platform_faults_status platform_faults_protect(struct platform_faults *faults, void *address, size_t bytes, bool on) {
    struct uffdio_writeprotect request = {.range = range_of(address, bytes), .mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0};
    return control(faults, UFFDIO_WRITEPROTECT, &request);
}

/* The kernel itself wakes who waits for an absent page, not who waits for a protected one. */
enum platform_faults_status platform_faults_unregister(struct platform_faults *faults, void *address, size_t bytes, bool protect) {
    struct uffdio_range range = range_of(address, bytes);
    if (protect) (void)platform_faults_protect(faults, address, bytes, false);
    enum platform_faults_status status = control(faults, UFFDIO_UNREGISTER, &range);
    if (protect) platform_faults_wake(faults, address, bytes);
    return status;
}

void platform_faults_wake(struct platform_faults *faults, void *address, size_t bytes) {
    struct uffdio_range range = range_of(address, bytes);
    (void)control(faults, UFFDIO_WAKE, &range);
}

/* ------------------------------------------------------------------ pages */

/*
 * What a call has given of `left` bytes is told to it in a field of its argument: a positive number below `left` where it stopped, or an error. It is
 * repeated for the rest, so that the caller sees the reason, not an interruption.
 */
STRATA_SELDOM enum platform_faults_status platform_faults_copy(struct platform_faults *faults, void *to, const void *from, size_t bytes, bool protect,
                                                               size_t *done) {
    enum platform_faults_status status = PLATFORM_FAULTS_OK;
    size_t given = 0;
    int saved = errno;
    while (given < bytes && status == PLATFORM_FAULTS_OK) {
        struct uffdio_copy request = {
            .dst = (uintptr_t)to + given, .src = (uintptr_t)from + given, .len = bytes - given, .mode = protect ? COPY_PROTECTED : 0};
        if (!is_ours(faults))
            status = PLATFORM_FAULTS_GONE;
        else if (ioctl(faults->file, (int)UFFDIO_COPY, &request) != 0 && errno != EAGAIN)
            status = status_of(errno);
        if (request.copy > 0) given += (size_t)request.copy;
    }
    errno = saved;
    if (done != NULL) *done = given;
    return status;
}

STRATA_SELDOM enum platform_faults_status platform_faults_zero(struct platform_faults *faults, void *to, size_t bytes, size_t *done) {
    enum platform_faults_status status = PLATFORM_FAULTS_OK;
    size_t given = 0;
    int saved = errno;
    while (given < bytes && status == PLATFORM_FAULTS_OK) {
        struct uffdio_zeropage request = {.range = range_of((const char *)to + given, bytes - given)};
        if (!is_ours(faults))
            status = PLATFORM_FAULTS_GONE;
        else if (ioctl(faults->file, (int)UFFDIO_ZEROPAGE, &request) != 0 && errno != EAGAIN)
            status = status_of(errno);
        if (request.zeropage > 0) given += (size_t)request.zeropage;
    }
    errno = saved;
    if (done != NULL) *done = given;
    return status;
}

enum platform_faults_status platform_faults_move(struct platform_faults *faults, void *to, void *from, size_t bytes, size_t *done) {
    enum platform_faults_status status = PLATFORM_FAULTS_OK;
    size_t moved = 0;
    int saved = errno;
    while (moved < bytes && status == PLATFORM_FAULTS_OK) {
        struct move_request request = {.to = (uintptr_t)to + moved, .from = (uintptr_t)from + moved, .bytes = bytes - moved, .mode = MOVE_ABSENT_TOO};
        if (!is_ours(faults))
            status = PLATFORM_FAULTS_GONE;
        else if (ioctl(faults->file, (int)MOVE_CALL, &request) != 0 && errno != EAGAIN)
            status = status_of(errno);
        if (request.moved > 0) moved += (size_t)request.moved;
    }
    errno = saved;
    if (done != NULL) *done = moved;
    return status;
}

/* ------------------------------------------------------------------ events */

static struct platform_fault fault_of(const struct platform_faults *faults, const struct uffd_msg *message) {
    uintptr_t page_bytes = platform_info()->page_bytes;
    uint64_t flags = message->arg.pagefault.flags;
    return (struct platform_fault){.page = (char *)((uintptr_t)message->arg.pagefault.address & ~(page_bytes - 1)),
                                   .thread = (faults->features & PLATFORM_FAULTS_THREAD) != 0 ? message->arg.pagefault.feat.ptid : 0,
                                   .write = (flags & (UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP)) != 0,
                                   .protect = (flags & UFFD_PAGEFAULT_FLAG_WP) != 0};
}

/* Of all that can be told only faults are asked for. */
static enum platform_faults_status take(const struct platform_faults *faults, struct platform_fault *events, unsigned count, unsigned *got) {
    struct uffd_msg messages[READ_FAULTS];
    ssize_t bytes = linux_read(faults->file, messages, sizeof messages[0] * (count < READ_FAULTS ? count : READ_FAULTS));
    if (bytes < 0) return errno == EAGAIN || errno == EINTR ? PLATFORM_FAULTS_OK : PLATFORM_FAULTS_GONE;
    for (size_t i = 0; i < (size_t)bytes / sizeof messages[0]; i++)
        if (messages[i].event == UFFD_EVENT_PAGEFAULT) events[(*got)++] = fault_of(faults, &messages[i]);
    return PLATFORM_FAULTS_OK;
}

/* Or for POLL_MS_MAX: nobody tells that the program has closed the file. */
static void poll_file(const struct platform_faults *faults, uint64_t timeout_ns) {
    struct pollfd polled = {.fd = faults->file, .events = POLLIN};
    (void)poll(&polled, 1, (int)min_u64(timeout_ns / NS_PER_MS + (timeout_ns % NS_PER_MS != 0), POLL_MS_MAX));
}

void platform_faults_wait(struct platform_faults *faults, uint64_t timeout_ns) {
    int saved = errno;
    poll_file(faults, timeout_ns);
    errno = saved;
}

STRATA_SELDOM enum platform_faults_status platform_faults_read(struct platform_faults *faults, struct platform_fault *events, unsigned count,
                                                               uint64_t timeout_ns, unsigned *got) {
    int saved = errno;
    uint64_t now_ns = platform_precise_ns(), deadline_ns = timeout_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + timeout_ns;
    enum platform_faults_status status = PLATFORM_FAULTS_OK;
    *got = 0;
    for (;;) {
        if (!is_ours(faults)) status = PLATFORM_FAULTS_GONE;
        if (status == PLATFORM_FAULTS_OK) status = take(faults, events, count, got);
        now_ns = platform_precise_ns();
        if (status != PLATFORM_FAULTS_OK || *got != 0 || now_ns >= deadline_ns) break;
        poll_file(faults, deadline_ns - now_ns);
    }
    errno = saved;
    return status;
}
