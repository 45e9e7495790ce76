/*
 * memory.c - address space and pages on Linux: mmap, mprotect, madvise, mremap.
 *
 * Every function keeps errno, so that a slow path of free() never changes it. No locks, no state but the facts of
 * platform_init.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "platform/linux/linux.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24 /* Linux 5.18 */
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4 /* Linux 5.7 */
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000 /* Linux 4.17 */
#endif

/* What the kernel's huge pages, and a page of page tables, cover. */
#define HUGE_BYTES ((size_t)2 * MIB)

static struct platform_info info;

/* Reads a decimal number at the start of a small file; `otherwise` where that fails. */
static uint64_t read_number_file(const char *path, uint64_t otherwise) {
    char text[32];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return otherwise;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0 || text[0] < '0' || text[0] > '9') return otherwise;
    text[length] = 0;
    return linux_number(text);
}

/* The kernel copies its whole CPU mask, whose size bounds every CPU number and concurrency id; no file is read for it. */
static unsigned cpu_bound(void) {
    unsigned long mask[8192 / (8 * sizeof(unsigned long))];
    long bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
    return bytes > 0 ? (unsigned)bytes * 8 : 1024;
}

void platform_init(void) {
    if (info.page_bytes != 0) return;
    int saved = errno;
    struct rlimit limit;
    info.cpus = cpu_bound();
    info.address_limit_bytes = info.data_limit_bytes = UINT64_MAX;
    if (getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) info.data_limit_bytes = limit.rlim_cur;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) info.address_limit_bytes = limit.rlim_cur;
    info.secure = getauxval(AT_SECURE) != 0;
    info.page_bytes = getauxval(AT_PAGESZ);
    info.page_shift = bit_lowest(info.page_bytes);
    linux_cpu_init();
    errno = saved;
}

const struct platform_info *platform_info(void) { return &info; }

uint64_t platform_map_count_limit(void) {
    static uint64_t limit; /* a benign race: every reader computes the same value */
    uint64_t value = __atomic_load_n(&limit, __ATOMIC_RELAXED);
    if (value == 0) {
        int saved = errno;
        value = read_number_file("/proc/sys/vm/max_map_count", 65530);
        errno = saved;
        __atomic_store_n(&limit, value, __ATOMIC_RELAXED);
    }
    return value;
}

/*
 * Without MAP_NORESERVE: address space that is reserved counts for nothing, as it can't be written, and what is committed shall count, so that the
 * system refuses what it could never give (vm.overcommit_memory) in place of killing somebody later.
 */
static void *map(void *address, size_t bytes, int protection, int flags) {
    int saved = errno;
    void *result = mmap(address, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    errno = saved;
    return result == MAP_FAILED ? NULL : result;
}

void *platform_reserve(void *hint, size_t bytes, size_t align) {
    void *address = map(hint, bytes, PROT_NONE, 0);
    if (address == NULL) return NULL;
    if (((uintptr_t)address & (align - 1)) == 0) return address;
    platform_unreserve(address, bytes);
    if (bytes + align < bytes) return NULL;
    char *wide = map(NULL, bytes + align, PROT_NONE, 0);
    if (wide == NULL) return NULL;
    char *aligned = (char *)align_up((uintptr_t)wide, align);
    if (aligned != wide) platform_unreserve(wide, (size_t)(aligned - wide));
    platform_unreserve(aligned + bytes, (size_t)(wide + align - aligned));
    return aligned;
}

bool platform_reserve_at(void *address, size_t bytes) {
    void *result = map(address, bytes, PROT_NONE, MAP_FIXED_NOREPLACE);
    if (result == address) return true;
    if (result != NULL) platform_unreserve(result, bytes); /* a kernel without the flag takes the address as a hint */
    return false;
}

void platform_unreserve(void *address, size_t bytes) {
    int saved = errno;
    if (bytes != 0) munmap(address, bytes);
    errno = saved;
}

bool platform_commit(void *address, size_t bytes) {
    int saved = errno;
    bool ok = mprotect(address, bytes, PROT_READ | PROT_WRITE) == 0;
    errno = saved;
    return ok;
}

bool platform_decommit(void *address, size_t bytes) { return map(address, bytes, PROT_NONE, MAP_FIXED) == address; }

static bool advise(void *address, size_t bytes, int advice) {
    int saved = errno;
    bool ok = madvise(address, bytes, advice) == 0;
    errno = saved;
    return ok;
}

/* What the program has locked in memory (mlock, mlockall) and freed goes back too. */
bool platform_release(void *address, size_t bytes) { return advise(address, bytes, MADV_DONTNEED) || advise(address, bytes, MADV_DONTNEED_LOCKED); }
/* Of more than this all is dropped: pages that were only read look present as well, by the system's page of zeros, and would be cleared by the GiB.
 */
#define ZERO_DROP_BYTES (256 * MIB)

static void drop_or_clear(char *address, size_t bytes) {
    if (bytes != 0 && !platform_release(address, bytes)) memset(address, 0, bytes);
}

/* mincore tells what is present; what is in swap counts as absent, and is dropped too. */
STRATA_COLD void platform_zero(void *address, size_t bytes) {
    enum { STEP_PAGES = 512, STEPS = 8 };
    unsigned char present[STEP_PAGES * STEPS];
    char *at = address, *end = at + bytes, *drop = at; /* [drop, at): mostly absent */
    int saved = errno;
    if (bytes > ZERO_DROP_BYTES) at = end;
    while (at < end) {
        size_t part = min_u64((uint64_t)sizeof present << info.page_shift, (uint64_t)(end - at));
        bool known = mincore(at, part, present) == 0;
        for (size_t step = 0; step < part; step += (size_t)STEP_PAGES << info.page_shift) {
            size_t step_bytes = min_u64((uint64_t)STEP_PAGES << info.page_shift, part - step), pages = step_bytes >> info.page_shift, count = 0;
            for (size_t i = 0; known && i < pages; i++) count += present[(step >> info.page_shift) + i] & 1u;
            if (known && count * 2 < pages) continue;
            char *dense = at + step;
            drop_or_clear(drop, (size_t)(dense - drop));
            memset(dense, 0, step_bytes);
            drop = dense + step_bytes;
        }
        at += part;
    }
    drop_or_clear(drop, (size_t)(end - drop));
    errno = saved;
}

bool platform_populate(void *address, size_t bytes) { return advise(address, bytes, MADV_POPULATE_WRITE); }
bool platform_advise_huge(void *address, size_t bytes, bool on) { return advise(address, bytes, on ? MADV_HUGEPAGE : MADV_NOHUGEPAGE); }

/*
 * Whether a move that needs `bytes` of address space for a moment would pass the limits of the process, which may have come down since the
 * heap was built. Where there are limits, what is taken for a try is the answer.
 */
static bool limits_allow(size_t bytes) {
    struct rlimit space = {.rlim_cur = 0}, data = {.rlim_cur = 0};
    getrlimit(RLIMIT_AS, &space);
    getrlimit(RLIMIT_DATA, &data);
    if (space.rlim_cur == RLIM_INFINITY && data.rlim_cur == RLIM_INFINITY) return true;
    /* What can be written counts as data; what can't is not made present where all is to be locked (mlockall). */
    void *tried = map(NULL, bytes, data.rlim_cur == RLIM_INFINITY ? PROT_NONE : PROT_READ | PROT_WRITE, 0);
    platform_unreserve(tried, tried == NULL ? 0 : bytes);
    return tried != NULL;
}

/* By a wish that can hardly be met, because what follows is taken: the kernel's refusal tells whether the range has a boundary inside. */
static bool is_one_mapping(char *address, size_t bytes) {
    if (mremap(address, bytes, bytes + info.page_bytes, 0) == MAP_FAILED) return errno != EFAULT;
    munmap(address + bytes, info.page_bytes);
    return true;
}

/* The longest part from `address` on that is one mapping. Most end at a multiple of HUGE_BYTES, as advice and moves are given by those. */
static size_t first_mapping(char *address, size_t bytes) {
    if (is_one_mapping(address, bytes)) return bytes;
    /* In units, behind the first multiple of it: `one` is known to be one mapping, `more` is known not to be. */
    size_t step = HUGE_BYTES, first = HUGE_BYTES - ((uintptr_t)address & (HUGE_BYTES - 1));
    if (first >= bytes || !is_one_mapping(address, first)) step = first = info.page_bytes;
    size_t one = 0, more = (bytes - first + step - 1) / step;
    while (more - one > 1) {
        size_t middle = one + (more - one) / 2;
        if (is_one_mapping(address, first + middle * step))
            one = middle;
        else
            more = middle;
    }
    return first + one * step;
}

/* After a call that failed: where the kernel had unmapped the range before, it is mapped again, if nobody else was faster. */
static void restore(char *address, size_t bytes) {
    if (msync(address, bytes, MS_ASYNC) == 0 || map(address, bytes, PROT_READ | PROT_WRITE, MAP_FIXED_NOREPLACE) == address) return;
    fatal("the system took %zu bytes of the heap's address space at %p", bytes, (void *)address);
}

/* Of one mapping. False: nothing has happened. */
static bool move_mapping(char *from, char *to, size_t bytes) {
    if (mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) == to) return true;
    restore(to, bytes);
    return false;
}

/*
 * The kernel's own move is not all or nothing: it unmaps the target before it looks at limits, and a source of several mappings fails
 * (before Linux 6.17) or may stop in between (since). So limits are looked at first, each mapping is moved alone, and once a part has moved
 * the rest follows by a copy where it must.
 */
STRATA_COLD bool platform_move(void *from, void *to, size_t bytes) {
    int saved = errno;
    bool ok = limits_allow(bytes);
    for (size_t done = 0, part; ok && done < bytes; done += part) {
        part = first_mapping((char *)from + done, bytes - done);
        if (move_mapping((char *)from + done, (char *)to + done, part)) continue;
        ok = done != 0;
        if (!ok) break;
        part = bytes - done;
        memcpy((char *)to + done, (char *)from + done, part);
        platform_release((char *)from + done, part);
    }
    errno = saved;
    return ok;
}

bool platform_reset(void *address, size_t bytes) {
    if (map(address, bytes, PROT_READ | PROT_WRITE, MAP_FIXED) == address) return true;
    int saved = errno;
    restore(address, bytes);
    errno = saved;
    return false;
}

/* The number of kB behind `key` in a /proc file, as bytes. */
static uint64_t read_kb_field(const char *path, const char *key) {
    char text[4096];
    int saved = errno;
    uint64_t bytes = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        size_t length = 0;
        ssize_t count;
        while (length < sizeof text - 1 && (count = read(file, text + length, sizeof text - 1 - length)) > 0) length += (size_t)count;
        text[length] = 0;
        close(file);
        for (const char *line = text; *line != 0;) {
            size_t k = 0;
            while (key[k] != 0 && line[k] == key[k]) k++;
            if (key[k] == 0) {
                bytes = linux_number(line + k);
                break;
            }
            while (*line != 0 && *line != '\n') line++;
            if (*line == '\n') line++;
        }
    }
    errno = saved;
    return bytes * 1024;
}

uint64_t platform_huge_bytes(void) { return read_kb_field("/proc/thread-self/smaps_rollup", "AnonHugePages:"); }
uint64_t platform_resident_bytes(void) { return read_kb_field("/proc/thread-self/status", "VmRSS:"); }

static uint64_t read_clock(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
uint64_t platform_now_ns(void) { return read_clock(CLOCK_MONOTONIC_COARSE); }
uint64_t platform_precise_ns(void) { return read_clock(CLOCK_MONOTONIC); }
