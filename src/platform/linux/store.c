/*
 * store.c - the file behind a paged block: read and written at offsets, in full or with the reason.
 *
 * The program may close our file number, as daemons do, and have another file of its own under it: what is written is its data, so the file is
 * known by device and inode, and looked at before each call. No locks, no state but the caller's; errno is kept.
 *
 * The calls on the file are cancellation points of the C library. They may be those of a thread of the program's, which writes a block of a zone
 * that is half its own: so none is cancelled there.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/linux/linux.h"

#define FILE_MODE 0600
#define DIRTY_BYTES_MAX (256 * KIB)

/* Growing beyond the limit of the process would also raise SIGXFSZ, on the caller's thread. */
static int grow(int file, uint64_t bytes) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) return EFBIG;
    return bytes > INT64_MAX ? EFBIG : ftruncate(file, (off_t)bytes) == 0 ? 0 : errno;
}

/* Takes over the file number. */
static int keep(struct platform_store *store, int file, uint64_t bytes) {
    struct stat status;
    int mode = fcntl(file, F_GETFL), error = 0;
    if (mode < 0 || fstat(file, &status) != 0)
        error = errno;
    else if (!S_ISREG(status.st_mode) || (mode & O_ACCMODE) != O_RDWR || (mode & O_APPEND) != 0)
        error = EINVAL;
    else if ((uint64_t)status.st_size < bytes)
        error = grow(file, bytes);
    if (error != 0) {
        linux_close(file);
        return error;
    }
    *store = (struct platform_store){.file = file, .device = status.st_dev, .inode = status.st_ino};
    return 0;
}

int platform_store_open(struct platform_store *store, const char *path, int file, uint64_t bytes) {
    int saved = errno, error;
    int own = path != NULL ? linux_open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY, FILE_MODE) : linux_duplicate(file);
    if (own >= 0 && path != NULL) {
        int high = fcntl(own, F_DUPFD_CLOEXEC, FILE_NUMBER_LEAST);
        if (high >= 0) {
            linux_close(own);
            own = high;
        }
    }
    error = own < 0 ? errno : keep(store, own, bytes);
    errno = saved;
    return error;
}

bool platform_store_is_ours(const struct platform_store *store) { return linux_file_is(store->file, store->device, store->inode); }

/*
 * What was read is in the block now, and what was written is on its way to the disk: neither is wanted a second time. Clean pages go at once; of
 * dirty ones some wait until they are worth a call, which waits for the disk, as nothing else would slow down who makes more of them.
 */
void linux_store_passed(struct platform_store *store, bool write, size_t bytes, uint64_t offset) {
    if (!store->passing) return;
    if (!write) {
        (void)posix_fadvise(store->file, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED);
    } else if (__atomic_add_fetch(&store->dirty_bytes, bytes, __ATOMIC_RELAXED) >= DIRTY_BYTES_MAX) {
        __atomic_store_n(&store->dirty_bytes, 0, __ATOMIC_RELAXED);
        /* The system tells of each error once, whoever asks. What wasn't written stays in its cache, if anywhere. */
        if (sync_file_range(store->file, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER) == 0)
            (void)posix_fadvise(store->file, 0, 0, POSIX_FADV_DONTNEED);
        else if (errno != ENOSYS && errno != EPERM && errno != EINVAL) /* of the call itself */
            __atomic_store_n(&store->error, errno, __ATOMIC_RELAXED);
    }
}

void platform_store_pass(struct platform_store *store) {
    int saved = errno;
    store->passing = true;
    (void)posix_fadvise(store->file, 0, 0, POSIX_FADV_RANDOM); /* what is read ahead is the pager's to say */
    errno = saved;
}

/* EFAULT: the system has no memory for a page of ours. */
static int error_of(int error) { return error == EFAULT ? ENOMEM : error; }

int platform_store_read(struct platform_store *store, void *to, size_t bytes, uint64_t offset) {
    int saved = errno, error = platform_store_is_ours(store) ? 0 : EBADF, cancels;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
    for (size_t done = 0; error == 0 && done < bytes;) {
        ssize_t got = pread(store->file, (char *)to + done, bytes - done, (off_t)(offset + done));
        if (got > 0)
            done += (size_t)got;
        else if (got == 0)
            error = PLATFORM_STORE_NO_DATA;
        else if (errno != EINTR)
            error = error_of(errno);
    }
    if (error == 0) linux_store_passed(store, false, bytes, offset);
    pthread_setcancelstate(cancels, NULL);
    errno = saved;
    return error;
}

int platform_store_write(struct platform_store *store, const void *from, size_t bytes, uint64_t offset) {
    int saved = errno, error = platform_store_is_ours(store) ? 0 : EBADF, cancels;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
    for (size_t done = 0; error == 0 && done < bytes;) {
        ssize_t got = pwrite(store->file, (const char *)from + done, bytes - done, (off_t)(offset + done));
        if (got > 0)
            done += (size_t)got;
        else if (got == 0)
            error = EIO;
        else if (errno != EINTR)
            error = error_of(errno);
    }
    if (error == 0) linux_store_passed(store, true, bytes, offset);
    pthread_setcancelstate(cancels, NULL);
    errno = saved;
    return error;
}

int platform_store_sync(struct platform_store *store) {
    int saved = errno, error = EBADF, cancels;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
    if (platform_store_is_ours(store)) {
        error = fdatasync(store->file) == 0 ? 0 : errno;
        int earlier = __atomic_exchange_n(&store->error, 0, __ATOMIC_RELAXED);
        if (error == 0) error = earlier;
    }
    pthread_setcancelstate(cancels, NULL);
    errno = saved;
    return error;
}

void platform_store_close(struct platform_store *store) {
    int saved = errno;
    if (platform_store_is_ours(store)) linux_close(store->file);
    store->file = -1;
    errno = saved;
}
