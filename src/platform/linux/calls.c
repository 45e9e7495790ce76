/*
 * calls.c - system calls that are no cancellation points: see linux.h. syscall(2) is none. errno is theirs.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "platform/linux/linux.h"

int linux_open(const char *path, int flags, unsigned mode) { return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode); }
void linux_close(int file) { (void)syscall(SYS_close, file); }
ssize_t linux_read(int file, void *to, size_t bytes) { return syscall(SYS_read, file, to, bytes); }
ssize_t linux_read_at(int file, void *to, size_t bytes, off_t offset) { return syscall(SYS_pread64, file, to, bytes, offset); }
ssize_t linux_write(int file, const void *from, size_t bytes) { return syscall(SYS_write, file, from, bytes); }
void linux_send(int socket, const void *from, size_t bytes, int flags) { (void)syscall(SYS_sendto, socket, from, bytes, flags, NULL, 0); }
int linux_msync(void *address, size_t bytes, int flags) { return (int)syscall(SYS_msync, address, bytes, flags); }
int linux_fallocate(int file, int mode, off_t offset, off_t bytes) { return (int)syscall(SYS_fallocate, file, mode, offset, bytes); }

bool linux_file_identify(int file, uint64_t *device, uint64_t *inode) {
    struct stat status;
    if (file < 0 || fstat(file, &status) != 0) return false;
    *device = status.st_dev;
    *inode = status.st_ino;
    return true;
}
bool linux_file_is(int file, uint64_t device, uint64_t inode) {
    uint64_t own_device, own_inode;
    return linux_file_identify(file, &own_device, &own_inode) && own_device == device && own_inode == inode;
}

int linux_duplicate(int file) {
    const int high = fcntl(file, F_DUPFD_CLOEXEC, FILE_NUMBER_LEAST);
    return high < 0 && errno == EINVAL ? fcntl(file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1) : high; /* RLIMIT_NOFILE ends below that */
}

/* What was not blocked before can't be pending: filters of system calls seldom allow the question. Some don't allow to block either, but to set. */
void linux_signals_hold(struct linux_held_signals *held) {
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGPIPE);
    sigaddset(&blocked, SIGXFSZ);
    sigemptyset(&held->pending);
    held->held = pthread_sigmask(SIG_BLOCK, &blocked, &held->before) == 0;
    if (!held->held) return; /* there is no mask before to put back */
    if (sigismember(&held->before, SIGPIPE) == 1 || sigismember(&held->before, SIGXFSZ) == 1) sigpending(&held->pending);
}

void linux_signals_drop(const struct linux_held_signals *held, bool failed) {
    if (!held->held) return;
    const int saved = errno, number = !failed ? 0 : saved == EPIPE ? SIGPIPE : saved == EFBIG ? SIGXFSZ : 0;
    const struct timespec now = {0};
    if (number != 0 && sigismember(&held->pending, number) == 0) {
        const uint64_t set = UINT64_C(1) << (number - 1); /* as the kernel has it */
        (void)syscall(SYS_rt_sigtimedwait, &set, NULL, &now, sizeof set);
    }
    pthread_sigmask(SIG_SETMASK, &held->before, NULL);
    errno = saved;
}
