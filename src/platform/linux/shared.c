/*
 * shared.c - memory with a file number, shown at several addresses: memfd, of ordinary or of huge pages. No locks, no state but the caller's.
 *
 * The program may close the number, as daemons do, and have a file of its own under it: so the file is known by device and inode, and looked at
 * before each call that takes the number. The memory stays without it.
 *
 * Ordinary pages are taken by MAP_NORESERVE when they are touched; huge ones are reserved from the system's pool by the first mapping, which fails
 * where it has too few. The file keeps its size for good (seals, where the system has them): whoever else is given its number can't take pages away
 * that are in use here. errno is kept.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "platform/linux/linux.h"

#define HUGE_BYTES ((size_t)2 << 20)
#define HUGE_2MB (21u << 26) /* MFD_HUGE_2MB */
#define POPULATE_WRITE 23    /* MADV_POPULATE_WRITE: Linux 5.14 */

/* Beyond RLIMIT_FSIZE the system also raises SIGXFSZ, which must not end the program: fallocate and ftruncate on memory are no such use. */
static bool set_size(int file, size_t bytes) {
    struct linux_held_signals held;
    linux_signals_hold(&held);
    bool ok = ftruncate(file, (off_t)bytes) == 0;
    linux_signals_drop(&held, !ok);
    return ok;
}

static bool is_ours(const struct platform_shared *shared) { return linux_file_is(shared->file, shared->device, shared->inode); }

enum platform_shared_status platform_shared_open(struct platform_shared *shared, size_t bytes, bool huge, const char *name) {
    int saved = errno;
    enum platform_shared_status status = PLATFORM_SHARED_OK;
    *shared = (struct platform_shared){.bytes = bytes};
    shared->file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB | HUGE_2MB : 0));
    if (shared->file < 0)
        status = errno == ENOSYS || errno == EINVAL || errno == ENOENT || errno == ENODEV ? PLATFORM_SHARED_UNSUPPORTED : PLATFORM_SHARED_NO_MEMORY;
    else if (!linux_file_identify(shared->file, &shared->device, &shared->inode) || !set_size(shared->file, bytes))
        status = PLATFORM_SHARED_NO_MEMORY;
    else if ((shared->base = platform_reserve(NULL, bytes, HUGE_BYTES)) == NULL)
        status = PLATFORM_SHARED_NO_MEMORY;
    else {
        int flags = MAP_SHARED | MAP_FIXED | (huge ? 0 : MAP_NORESERVE);
        if (mmap(shared->base, bytes, PROT_READ | PROT_WRITE, flags, shared->file, 0) == MAP_FAILED)
            status = huge ? PLATFORM_SHARED_NO_HUGE : PLATFORM_SHARED_NO_MEMORY;
    }
    if (status == PLATFORM_SHARED_OK)
        (void)fcntl(shared->file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    else
        platform_shared_close(shared);
    errno = saved;
    return status;
}

void platform_shared_close(struct platform_shared *shared) {
    int saved = errno;
    if (shared->base != NULL) munmap(shared->base, shared->bytes);
    if (is_ours(shared)) linux_close(shared->file);
    *shared = (struct platform_shared){.file = -1};
    errno = saved;
}

/* Without the file: as the memory is at its base, once more. */
static bool show_again(const struct platform_shared *shared, size_t offset, size_t bytes, void *address) {
    char *again = mremap(shared->base + offset, 0, bytes, MREMAP_MAYMOVE);
    if (again == MAP_FAILED) return false;
    if (mremap(again, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, address) == address) return true;
    munmap(again, bytes);
    return false;
}

bool platform_shared_show(const struct platform_shared *shared, size_t offset, size_t bytes, void *address) {
    const int protection = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE, saved = errno;
    bool ok = is_ours(shared) ? mmap(address, bytes, protection, flags, shared->file, (off_t)offset) != MAP_FAILED
                              : show_again(shared, offset, bytes, address);
    errno = saved;
    return ok;
}

bool platform_shared_hide(void *address, size_t bytes) {
    int saved = errno;
    bool ok = mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
    /* Where mappings are used up there is no new one; what is there can be closed, unless it would have to be cut. */
    if (!ok && !(ok = mprotect(address, bytes, PROT_NONE) == 0)) (void)mprotect(address, bytes, PROT_READ | PROT_WRITE);
    errno = saved;
    return ok;
}

bool platform_shared_populate(const struct platform_shared *shared, size_t offset, size_t bytes) {
    int saved = errno;
    bool ok = madvise(shared->base + offset, bytes, POPULATE_WRITE) == 0;
    if (!ok && errno == EINVAL && is_ours(shared)) ok = linux_fallocate(shared->file, 0, (off_t)offset, (off_t)bytes) == 0;
    errno = saved;
    return ok;
}

bool platform_shared_discard(const struct platform_shared *shared, size_t offset, size_t bytes) {
    int saved = errno;
    bool ok = madvise(shared->base + offset, bytes, MADV_REMOVE) == 0;
    errno = saved;
    return ok;
}

bool platform_bind_node(void *address, size_t bytes, unsigned node) {
    int saved = errno;
    unsigned long nodes[16] = {0}; /* 1024 nodes, as many as Linux knows */
    bool ok = false;
    if (node < sizeof nodes * 8) {
        nodes[node / (8 * sizeof nodes[0])] |= 1ul << node % (8 * sizeof nodes[0]);
        ok = syscall(SYS_mbind, address, bytes, 2 /* MPOL_BIND */, nodes, sizeof nodes * 8 + 1, 0) == 0;
    }
    errno = saved;
    return ok;
}
