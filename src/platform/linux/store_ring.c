/*
 * store_ring.c - reads and writes of the file behind a paged block that go on while their thread does other things: io_uring through liburing.
 *
 * liburing is loaded by whoever opens the first ring, as the library depends on nothing but the C library: where it is not there, or was not when
 * this was built, there are no rings. Only what its header does in place is compiled in.
 *
 * A ring belongs to one thread. Of what a request did only whole successes are believed: what is short, interrupted, or wrong is done again from
 * there by pread or pwrite (store.c), which says what is wrong. So all errors are theirs. A request that the system did not take stays in liburing's
 * queue, from which it would go with the next one, a second time and perhaps into memory that has gone to another page: so a ring that was refused
 * one is lost. Nothing is submitted to it any more, what is under way is waited for, and it ends with its queue.
 *
 * The program may close our file number: it is looked at before each call, as store.c does with its own. The mappings keep the ring alive, so that
 * what is under way ends, and is waited for by looking. The child of a fork only takes its own mappings and number down. errno is kept.
 */
#define _GNU_SOURCE 1
#include "base/check.h"
#include "platform/linux/linux.h"

#ifdef STRATA_LIBURING

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define LIBURING "liburing.so.2"
#define LOOK_NS 1000000

struct liburing {
    __typeof__(io_uring_queue_init) *queue_init;
    __typeof__(io_uring_queue_exit) *queue_exit;
    __typeof__(io_uring_get_probe_ring) *get_probe_ring;
    __typeof__(io_uring_free_probe) *free_probe;
    __typeof__(io_uring_submit) *submit;
    __typeof__(io_uring_wait_cqes) *wait_cqes;
};

struct platform_store_ring {
    struct io_uring uring;
    struct liburing library;
    uint64_t device, inode; /* of its file number */
    unsigned depth, under_way;
    size_t footprint_bytes;
    bool lost;
};

/*
 * It stays loaded, and has no code that runs by itself. dlopen is looked up, as a program that names it and is wholly static gets one that it can't
 * use, and the linker's warning of it.
 */
static bool load(struct liburing *library) {
    static const char *const names[] = {"io_uring_queue_init", "io_uring_queue_exit", "io_uring_get_probe_ring",
                                        "io_uring_free_probe", "io_uring_submit",     "io_uring_wait_cqes"};
    __typeof__(dlopen) *open = (__typeof__(dlopen) *)(uintptr_t)dlsym(RTLD_DEFAULT, "dlopen");
    void *handle = open != NULL ? open(LIBURING, RTLD_NOW | RTLD_LOCAL) : NULL, *found[ARRAY_LENGTH(names)];
    if (handle == NULL) return false;
    for (unsigned i = 0; i < ARRAY_LENGTH(names); i++)
        if ((found[i] = dlsym(handle, names[i])) == NULL) return false;
    _Static_assert(sizeof found == sizeof *library, "a name for each function");
    memcpy(library, found, sizeof found);
    return true;
}

static bool is_ours(const struct platform_store_ring *ring) { return linux_file_is(ring->uring.ring_fd, ring->device, ring->inode); }

/* An older library of the same name (before 2.3) leaves what our header's functions count by at 0. */
static bool fits_header(const struct platform_store_ring *ring, unsigned depth) { return io_uring_sq_space_left(&ring->uring) >= depth; }

/* Linux 5.6 has the two operations, and this question. */
static bool knows_operations(struct platform_store_ring *ring) {
    struct io_uring_probe *probe = ring->library.get_probe_ring(&ring->uring);
    bool knows = probe != NULL && io_uring_opcode_supported(probe, IORING_OP_READ) && io_uring_opcode_supported(probe, IORING_OP_WRITE);
    if (probe != NULL) ring->library.free_probe(probe);
    return knows;
}

/* The file number is put out of the way of programs that count on low ones. */
static bool begin(struct platform_store_ring *ring, unsigned depth) {
    if (ring->library.queue_init(depth, &ring->uring, 0) != 0) return false; /* forbidden by many containers, and by kernel.io_uring_disabled */
    int high = fcntl(ring->uring.ring_fd, F_DUPFD_CLOEXEC, FILE_NUMBER_LEAST);
    if (high >= 0) {
        linux_close(ring->uring.ring_fd);
        ring->uring.ring_fd = ring->uring.enter_ring_fd = high;
    }
    if (!fits_header(ring, depth) || !knows_operations(ring) || !linux_file_identify(ring->uring.ring_fd, &ring->device, &ring->inode)) {
        ring->library.queue_exit(&ring->uring);
        return false;
    }
    ring->depth = depth;
    return true;
}

struct platform_store_ring *platform_store_ring_open(unsigned depth) {
    if (platform_is_filtered()) return NULL; /* a filter that does not expect such calls may end the process */
    int saved = errno;
    size_t footprint = align_up(sizeof(struct platform_store_ring), platform_info()->page_bytes);
    struct platform_store_ring *ring = linux_map(NULL, footprint, PROT_READ | PROT_WRITE, 0);
    if (ring != NULL && (!load(&ring->library) || !begin(ring, depth))) {
        munmap(ring, footprint);
        ring = NULL;
    }
    if (ring != NULL) ring->footprint_bytes = footprint;
    errno = saved;
    return ring;
}

void platform_store_ring_close(struct platform_store_ring *ring, bool forked) {
    int saved = errno;
    (void)forked; /* mappings and number are the child's own */
    if (!is_ours(ring)) ring->uring.ring_fd = ring->uring.enter_ring_fd = -1;
    ring->library.queue_exit(&ring->uring);
    munmap(ring, ring->footprint_bytes);
    errno = saved;
}

bool platform_store_begin(struct platform_store_ring *ring, struct platform_store_job *job) {
    int saved = errno, done;
    if (ring->lost || ring->under_way == ring->depth || !platform_store_is_ours(job->store)) return false;
    struct io_uring_sqe *request = io_uring_get_sqe(&ring->uring); /* there is room: what was queued before was taken */
    if (job->write)
        io_uring_prep_write(request, job->store->file, job->memory, (unsigned)job->bytes, job->offset);
    else
        io_uring_prep_read(request, job->store->file, job->memory, (unsigned)job->bytes, job->offset);
    io_uring_sqe_set_data(request, job);
    do done = is_ours(ring) ? ring->library.submit(&ring->uring) : -EBADF;
    while (done == -EINTR);
    ring->lost = done != 1;
    ring->under_way += done == 1;
    errno = saved;
    return done == 1;
}

static struct platform_store_job *take(struct platform_store_ring *ring) {
    struct io_uring_cqe *result = NULL;
    unsigned head;
    io_uring_for_each_cqe(&ring->uring, head, result) break;
    if (result == NULL) return NULL;
    struct platform_store_job *job = io_uring_cqe_get_data(result);
    size_t done = result->res > 0 ? (size_t)result->res : 0, rest = job->bytes - done;
    io_uring_cqe_seen(&ring->uring, result);
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
        struct io_uring_cqe *result;
        int status = is_ours(ring) ? ring->library.wait_cqes(&ring->uring, &result, 1, NULL, NULL) : -EBADF; /* submits nothing */
        if (status == 0 || status == -EINTR) continue;
        ring->lost = true; /* results still come, whenever this thread is in the kernel */
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
    errno = saved;
    return job;
}

#else

struct platform_store_ring *platform_store_ring_open(unsigned depth) {
    (void)depth;
    return NULL;
}

/* Without rings nobody calls these. */
void platform_store_ring_close(struct platform_store_ring *ring, bool forked) {
    (void)forked;
    CHECK(ring == NULL);
}
bool platform_store_begin(struct platform_store_ring *ring, struct platform_store_job *job) {
    (void)job;
    CHECK(ring == NULL);
    return false;
}
struct platform_store_job *platform_store_end(struct platform_store_ring *ring, bool wait) {
    (void)wait;
    CHECK(ring == NULL);
    return NULL;
}

#endif
