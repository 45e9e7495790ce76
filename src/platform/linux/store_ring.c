/*
 * store_ring.c - reads and writes of the file behind a paged block that go on while their thread does other things: io_uring, by system calls of its
 * own, as the library depends on nothing but the C library and the kernel.
 *
 * A ring belongs to one thread, so its words need no lock; the kernel's side of them is read and written with acquire and release. Of what a request
 * did only whole successes are believed: what is short, interrupted, or wrong is done again from there by pread or pwrite (store.c), which says what
 * is wrong. So all errors are theirs.
 *
 * The program may close our file number: it is looked at before each call, as store.c does with its own. The mappings keep the ring alive, so that
 * what is under way ends, and is waited for by looking; then the ring is given up. Not inherited by a fork. errno is kept.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "platform/linux/linux.h"

#define OPERATIONS 64 /* of those that the kernel may know; ours are below */
#define LOOK_NS 1000000

struct platform_store_ring {
    int file;
    uint64_t device, inode;
    unsigned depth, under_way;
    size_t footprint_bytes, ring_bytes, entries_bytes;
    char *ring; /* both queues */
    struct io_uring_sqe *entries;
    uint32_t *sq_head, *sq_tail, *sq_array, *cq_head, *cq_tail;
    uint32_t sq_mask, cq_mask;
    struct io_uring_cqe *results;
    bool lost;
};

static bool is_ours(const struct platform_store_ring *ring) {
    struct stat status;
    return fstat(ring->file, &status) == 0 && status.st_dev == ring->device && status.st_ino == ring->inode;
}

/* Linux 5.6 has the two operations, and this question. */
static bool knows_operations(int file) {
    _Alignas(struct io_uring_probe) char memory[sizeof(struct io_uring_probe) + OPERATIONS * sizeof(struct io_uring_probe_op)] = {0};
    const struct io_uring_probe *probe = (const struct io_uring_probe *)(const void *)memory;
    if (syscall(SYS_io_uring_register, file, IORING_REGISTER_PROBE, memory, OPERATIONS) != 0) return false;
    return probe->last_op >= IORING_OP_WRITE && (probe->ops[IORING_OP_READ].flags & IO_URING_OP_SUPPORTED) != 0 &&
           (probe->ops[IORING_OP_WRITE].flags & IO_URING_OP_SUPPORTED) != 0;
}

static void *map_ring(int file, size_t bytes, uint64_t offset) {
    void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, (off_t)offset);
    if (address == MAP_FAILED) return NULL;
    (void)madvise(address, bytes, MADV_DONTFORK);
    return address;
}

static bool map_queues(struct platform_store_ring *ring, const struct io_uring_params *parameters) {
    size_t submissions = parameters->sq_off.array + parameters->sq_entries * sizeof(uint32_t);
    size_t completions = parameters->cq_off.cqes + parameters->cq_entries * sizeof(struct io_uring_cqe);
    ring->ring_bytes = submissions > completions ? submissions : completions;
    ring->entries_bytes = parameters->sq_entries * sizeof(struct io_uring_sqe);
    ring->ring = map_ring(ring->file, ring->ring_bytes, IORING_OFF_SQ_RING);
    ring->entries = map_ring(ring->file, ring->entries_bytes, IORING_OFF_SQES);
    if (ring->ring == NULL || ring->entries == NULL) return false;
    ring->sq_head = (uint32_t *)(void *)(ring->ring + parameters->sq_off.head);
    ring->sq_tail = (uint32_t *)(void *)(ring->ring + parameters->sq_off.tail);
    ring->sq_array = (uint32_t *)(void *)(ring->ring + parameters->sq_off.array);
    ring->sq_mask = *(uint32_t *)(void *)(ring->ring + parameters->sq_off.ring_mask);
    ring->cq_head = (uint32_t *)(void *)(ring->ring + parameters->cq_off.head);
    ring->cq_tail = (uint32_t *)(void *)(ring->ring + parameters->cq_off.tail);
    ring->cq_mask = *(uint32_t *)(void *)(ring->ring + parameters->cq_off.ring_mask);
    ring->results = (struct io_uring_cqe *)(void *)(ring->ring + parameters->cq_off.cqes);
    ring->depth = parameters->sq_entries;
    return true;
}

/* Takes over the file number, which is put out of the way of programs that count on low ones. */
static bool begin(struct platform_store_ring *ring, int file, const struct io_uring_params *parameters) {
    struct stat status;
    int high = fcntl(file, F_DUPFD_CLOEXEC, FILE_NUMBER_LEAST);
    if (high >= 0) close(file);
    ring->file = high >= 0 ? high : file;
    if ((parameters->features & IORING_FEAT_SINGLE_MMAP) == 0 || !knows_operations(ring->file) || fstat(ring->file, &status) != 0) return false;
    ring->device = status.st_dev;
    ring->inode = status.st_ino;
    return map_queues(ring, parameters);
}

struct platform_store_ring *platform_store_ring_open(unsigned depth) {
    int saved = errno;
    struct io_uring_params parameters = {0};
    size_t footprint = align_up(sizeof(struct platform_store_ring), platform_info()->page_bytes);
    int file = (int)syscall(SYS_io_uring_setup, depth, &parameters); /* forbidden by many containers, and by kernel.io_uring_disabled */
    struct platform_store_ring *ring = file >= 0 ? linux_map(NULL, footprint, PROT_READ | PROT_WRITE, 0) : NULL;
    if (file >= 0 && ring == NULL) close(file);
    if (ring != NULL) {
        *ring = (struct platform_store_ring){.footprint_bytes = footprint};
        if (!begin(ring, file, &parameters)) {
            platform_store_ring_close(ring, false);
            ring = NULL;
        }
    }
    errno = saved;
    return ring;
}

void platform_store_ring_close(struct platform_store_ring *ring, bool forked) {
    int saved = errno;
    if (ring->ring == NULL || is_ours(ring)) close(ring->file);
    if (!forked && ring->entries != NULL) munmap(ring->entries, ring->entries_bytes);
    if (!forked && ring->ring != NULL) munmap(ring->ring, ring->ring_bytes);
    munmap(ring, ring->footprint_bytes);
    errno = saved;
}

/* Submits what is queued (0 or 1), and waits for `least` results. Returns what the call does, or a negative error. */
static int enter(struct platform_store_ring *ring, unsigned queued, unsigned least) {
    if (!is_ours(ring)) return -EBADF;
    int done = (int)syscall(SYS_io_uring_enter, ring->file, queued, least, least != 0 ? IORING_ENTER_GETEVENTS : 0, NULL, 0);
    return done >= 0 ? done : -errno;
}

bool platform_store_begin(struct platform_store_ring *ring, struct platform_store_job *job) {
    int saved = errno;
    if (ring->lost || ring->under_way == ring->depth) return false;
    uint32_t tail = *ring->sq_tail, place = tail & ring->sq_mask;
    ring->entries[place] = (struct io_uring_sqe){.opcode = job->write ? IORING_OP_WRITE : IORING_OP_READ,
                                                 .fd = job->store->file,
                                                 .addr = (uintptr_t)job->memory,
                                                 .len = (uint32_t)job->bytes,
                                                 .off = job->offset,
                                                 .user_data = (uintptr_t)job};
    ring->sq_array[place] = place;
    bool ok = platform_store_is_ours(job->store);
    if (ok) {
        __atomic_store_n(ring->sq_tail, tail + 1, __ATOMIC_RELEASE);
        int done;
        do done = enter(ring, 1, 0);
        while (done == -EINTR);
        ok = __atomic_load_n(ring->sq_head, __ATOMIC_ACQUIRE) == tail + 1; /* the kernel has taken it */
        if (!ok) __atomic_store_n(ring->sq_tail, tail, __ATOMIC_RELEASE);
        ring->lost |= done == -EBADF;
        ring->under_way += ok;
    }
    errno = saved;
    return ok;
}

static struct platform_store_job *take(struct platform_store_ring *ring) {
    uint32_t head = *ring->cq_head;
    if (head == __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE)) return NULL;
    struct io_uring_cqe result = ring->results[head & ring->cq_mask];
    __atomic_store_n(ring->cq_head, head + 1, __ATOMIC_RELEASE);
    struct platform_store_job *job = (struct platform_store_job *)(uintptr_t)result.user_data;
    size_t done = result.res > 0 ? (size_t)result.res : 0, rest = job->bytes - done;
    char *memory = (char *)job->memory + done;
    ring->under_way--;
    if (done != 0) linux_store_passed(job->store, job->write, done, job->offset);
    job->error = rest == 0    ? 0
                 : job->write ? platform_store_write(job->store, memory, rest, job->offset + done)
                              : platform_store_read(job->store, memory, rest, job->offset + done);
    return job;
}

struct platform_store_job *platform_store_end(struct platform_store_ring *ring, bool wait) {
    int saved = errno;
    struct platform_store_job *job;
    while ((job = take(ring)) == NULL && wait && ring->under_way != 0) {
        int done = enter(ring, 0, 1);
        if (done >= 0 || done == -EINTR) continue;
        ring->lost = true; /* results still come, whenever this thread is in the kernel */
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
    errno = saved;
    return job;
}
