/*
 * memory.c - address space and pages on Linux: mmap, mprotect, madvise. What moves them is in move.c.
 *
 * Every function keeps errno, so that a slow path of free() never changes it. No locks, no state but the facts of
 * platform_init.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
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
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000 /* Linux 4.17 */
#endif

static struct platform_info info;
static bool filtered_before; /* filters stood there when the process began: those of a container, or of who started it */

/* The start of a file, as text, and errno as it was. How long it is. */
static STRATA_RARE size_t read_start(const char *path, char *text, size_t bytes) {
    const int saved = errno, file = linux_open(path, O_RDONLY | O_CLOEXEC, 0);
    size_t length = 0;
    if (file >= 0) {
        for (long count; length < bytes - 1 && (count = linux_read(file, text + length, bytes - 1 - length)) > 0;) length += (size_t)count;
        linux_close(file);
    }
    text[length] = 0;
    errno = saved;
    return length;
}

/* Reads a decimal number at the start of a small file; `otherwise` where that fails. */
static uint64_t read_number_file(const char *path, uint64_t otherwise) {
    char text[32];
    return read_start(path, text, sizeof text) != 0 && text[0] >= '0' && text[0] <= '9' ? linux_number(text) : otherwise;
}

/* UINT64_MAX: there is none. */
static uint64_t limit_bytes(int resource) {
    struct rlimit limit;
    int saved = errno;
    bool limited = getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    errno = saved;
    return limited ? limit.rlim_cur : UINT64_MAX;
}
STRATA_SELDOM bool platform_data_is_limited(void) { return limit_bytes(RLIMIT_DATA) != UINT64_MAX; }

/* The kernel copies its whole CPU mask, whose size bounds every CPU number and concurrency id; no file is read for it. */
static unsigned cpu_bound(void) {
    unsigned long mask[8192 / (8 * sizeof(unsigned long))];
    long bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
    return bytes > 0 ? (unsigned)bytes * 8 : 1024;
}

void platform_init(void) {
    if (info.page_bytes != 0) return;
    int saved = errno;
    info.cpus = cpu_bound();
    info.data_limit_bytes = limit_bytes(RLIMIT_DATA);
    info.address_limit_bytes = limit_bytes(RLIMIT_AS);
    info.secure = getauxval(AT_SECURE) != 0;
    info.page_bytes = getauxval(AT_PAGESZ);
    info.page_shift = bit_lowest(info.page_bytes);
    linux_cpu_init();
    linux_lock_init();
    filtered_before = platform_is_filtered();
    errno = saved;
}

const struct platform_info *platform_info(void) { return &info; }

#define MAP_COUNT_USUAL 65530

static STRATA_COLD uint64_t ask_map_count(void) {
    return platform_is_locked_in() ? MAP_COUNT_USUAL : read_number_file("/proc/sys/vm/max_map_count", MAP_COUNT_USUAL);
}

uint64_t platform_map_count_limit(void) {
    static uint64_t limit; /* a benign race: every reader computes the same value */
    uint64_t value = __atomic_load_n(&limit, __ATOMIC_RELAXED);
    if (value == 0) {
        value = ask_map_count();
        __atomic_store_n(&limit, value, __ATOMIC_RELAXED);
    }
    return value;
}

/* Capabilities that the process may have in force: with CAP_IPC_LOCK mlockall asks for no limit, with CAP_SYS_RESOURCE the limit can be lifted. */
static STRATA_COLD bool may_lock_all(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    _Static_assert(CAP_IPC_LOCK / 32 == CAP_SYS_RESOURCE / 32, "one word has both");
    const uint32_t rights = UINT32_C(1) << CAP_IPC_LOCK % 32 | UINT32_C(1) << CAP_SYS_RESOURCE % 32;
    return syscall(SYS_capget, &header, data) != 0 || (data[CAP_IPC_LOCK / 32].permitted & rights) != 0;
}

/* From so much address space on that is in use nobody can lock it all: mlockall counts all of it, whatever the access. UINT64_MAX: never. */
static STRATA_COLD uint64_t unlocked_from(void) {
    struct rlimit limit;
    if (platform_is_locked_in()) return UINT64_MAX;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_max == RLIM_INFINITY || may_lock_all()) return UINT64_MAX;
    return limit.rlim_max + 1;
}

/*
 * Filters come without notice, so each time. One that forbids this question ends the process, and no question is safe from all of them: for the rest
 * there is the size of the heap from which on it is asked.
 */
bool platform_is_filtered(void) {
    int saved = errno;
    bool filtered = syscall(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0) > 0;
    errno = saved;
    return filtered;
}

STRATA_RARE bool platform_is_locked_in(void) { return !filtered_before && platform_is_filtered(); }

STRATA_COLD bool platform_may_lock(uint64_t reserved_bytes) {
    static uint64_t from; /* 0: not asked yet. A benign race: every reader computes the same value */
    uint64_t value = __atomic_load_n(&from, __ATOMIC_RELAXED);
    if (value == 0) {
        int saved = errno;
        value = unlocked_from();
        errno = saved;
        __atomic_store_n(&from, value, __ATOMIC_RELAXED);
    }
    return reserved_bytes < value;
}

static bool protect(void *address, size_t bytes, int protection) {
    int saved = errno;
    bool ok = mprotect(address, bytes, protection) == 0;
    errno = saved;
    return ok;
}

/*
 * Who charges ignores MAP_NORESERVE (vm.overcommit_memory = 2), and refuses what no machine has. Without any right to lock memory nothing of it can
 * be present. What was mapped for the answer stays for commit_asked, closed, so that no limit on data counts it and no neighbour becomes one with it:
 * where a mapping has entries of the topmost page table to itself, munmap waits until every processor that the process has run on has dropped its
 * translations, 20 to 50 us (docs/decisions.md, 156).
 */
#define MORE_THAN_ANY_BYTES ((size_t)1 << 44)
static void *commit_probe; /* taken by an exchange */

static void probe_drop(void *probe) { platform_unreserve(probe, probe != NULL ? MORE_THAN_ANY_BYTES : 0); }

STRATA_COLD bool platform_commit_is_charged(void) {
    enum { UNKNOWN, CHARGED, NOT_CHARGED };
    static uint32_t known; /* a benign race: every reader finds the same */
    if (__atomic_load_n(&known, __ATOMIC_RELAXED) == UNKNOWN) {
        void *probe = linux_map(NULL, MORE_THAN_ANY_BYTES, PROT_READ | PROT_WRITE, MAP_NORESERVE);
        __atomic_store_n(&known, probe == NULL ? CHARGED : NOT_CHARGED, __ATOMIC_RELAXED);
        if (probe != NULL && !protect(probe, MORE_THAN_ANY_BYTES, PROT_NONE)) {
            probe_drop(probe);
            probe = NULL;
        }
        probe_drop(__atomic_exchange_n(&commit_probe, probe, __ATOMIC_RELAXED)); /* of a thread that asked at the same time */
    }
    return __atomic_load_n(&known, __ATOMIC_RELAXED) == CHARGED;
}

STRATA_COLD void platform_commit_asked(void) { probe_drop(__atomic_exchange_n(&commit_probe, NULL, __ATOMIC_RELAXED)); }

STRATA_COLD uint64_t platform_memory_bytes(void) {
    static uint64_t bytes; /* 0: not asked yet. A benign race: every reader computes nearly the same value */
    uint64_t value = __atomic_load_n(&bytes, __ATOMIC_RELAXED);
    struct sysinfo now;
    if (value != 0) return value;
    if (platform_is_locked_in()) return 1;
    int saved = errno;
    value = sysinfo(&now) == 0 ? ((uint64_t)now.totalram + now.totalswap) * now.mem_unit : 1;
    errno = saved;
    __atomic_store_n(&bytes, value, __ATOMIC_RELAXED);
    return value;
}

/*
 * Without MAP_NORESERVE: address space that is reserved counts for nothing, as it can't be written, and what is committed shall count, so that the
 * system refuses what it could never give (vm.overcommit_memory) in place of killing somebody later.
 */
void *linux_map(void *address, size_t bytes, int protection, int flags) {
    int saved = errno;
    void *result = mmap(address, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    errno = saved;
    return result == MAP_FAILED ? NULL : result;
}

void *platform_reserve(void *hint, size_t bytes, size_t align) {
    void *address = linux_map(hint, bytes, PROT_NONE, 0);
    if (address == NULL) return NULL;
    if (((uintptr_t)address & (align - 1)) == 0) return address;
    platform_unreserve(address, bytes);
    if (bytes + align < bytes) return NULL;
    char *wide = linux_map(NULL, bytes + align, PROT_NONE, 0);
    if (wide == NULL) return NULL;
    char *aligned = (char *)align_up((uintptr_t)wide, align);
    if (aligned != wide) platform_unreserve(wide, (size_t)(aligned - wide));
    platform_unreserve(aligned + bytes, (size_t)(wide + align - aligned));
    return aligned;
}

bool platform_reserve_at(void *address, size_t bytes) {
    void *result = linux_map(address, bytes, PROT_NONE, MAP_FIXED_NOREPLACE);
    if (result == address) return true;
    if (result != NULL) platform_unreserve(result, bytes); /* a kernel without the flag takes the address as a hint */
    return false;
}

void platform_unreserve(void *address, size_t bytes) {
    int saved = errno;
    if (bytes != 0) munmap(address, bytes);
    errno = saved;
}

bool platform_commit(void *address, size_t bytes) { return protect(address, bytes, PROT_READ | PROT_WRITE); }

bool platform_decommit(void *address, size_t bytes) { return linux_map(address, bytes, PROT_NONE, MAP_FIXED) == address; }

static bool advise(void *address, size_t bytes, int advice) {
    int saved = errno;
    bool ok = madvise(address, bytes, advice) == 0;
    errno = saved;
    return ok;
}

/* What the program has locked in memory (mlock, mlockall) and freed goes back too. */
bool platform_release(void *address, size_t bytes) { return advise(address, bytes, MADV_DONTNEED) || advise(address, bytes, MADV_DONTNEED_LOCKED); }
STRATA_COLD void linux_drop_or_clear(void *address, size_t bytes) {
    if (bytes != 0 && !platform_release(address, bytes)) memset(address, 0, bytes);
}
bool platform_resident(const void *address, size_t bytes, uint8_t *pages) {
    int saved = errno;
    bool ok = mincore((void *)(uintptr_t)address, bytes, pages) == 0;
    errno = saved;
    for (size_t i = 0, count = ok ? bytes >> info.page_shift : 0; i < count; i++) pages[i] &= 1u; /* the other bits have no meaning yet */
    return ok;
}

/* Of more than this all is dropped: pages that were only read look present as well, by the system's page of zeros, and would be cleared by the GiB.
 */
#define ZERO_DROP_BYTES (256 * MIB)

/* mincore tells what is present; what is in swap counts as absent, and is dropped too. */
STRATA_COLD void platform_zero(void *address, size_t bytes) {
    enum { STEP_PAGES = 512, STEPS = 8 };
    unsigned char present[STEP_PAGES * STEPS];
    char *at = address, *end = at + bytes, *drop = at; /* [drop, at): mostly absent */
    int saved = errno;
    if (bytes > ZERO_DROP_BYTES) at = end;
    while (at < end) {
        size_t part = min_u64((uint64_t)sizeof present << info.page_shift, (uint64_t)(end - at));
        bool known = platform_resident(at, part, present);
        for (size_t step = 0; step < part; step += (size_t)STEP_PAGES << info.page_shift) {
            size_t step_bytes = min_u64((uint64_t)STEP_PAGES << info.page_shift, part - step), pages = step_bytes >> info.page_shift, count = 0;
            for (size_t i = 0; known && i < pages; i++) count += present[(step >> info.page_shift) + i];
            if (known && count * 2 < pages) continue;
            char *dense = at + step;
            linux_drop_or_clear(drop, (size_t)(dense - drop));
            memset(dense, 0, step_bytes);
            drop = dense + step_bytes;
        }
        at += part;
    }
    linux_drop_or_clear(drop, (size_t)(end - drop));
    errno = saved;
}

bool platform_populate(void *address, size_t bytes) { return advise(address, bytes, MADV_POPULATE_WRITE); }
bool platform_advise_huge(void *address, size_t bytes, bool on) { return advise(address, bytes, on ? MADV_HUGEPAGE : MADV_NOHUGEPAGE); }

STRATA_SELDOM uint64_t platform_huge_bytes(void) {
    static const char key[] = "AnonHugePages:";
    char text[4096];
    (void)read_start("/proc/thread-self/smaps_rollup", text, sizeof text);
    for (const char *line = text; *line != 0;) {
        size_t k = 0;
        while (key[k] != 0 && line[k] == key[k]) k++;
        if (key[k] == 0) return linux_number(line + k) * 1024;
        while (*line != 0 && *line != '\n') line++;
        if (*line == '\n') line++;
    }
    return 0;
}

/* The second number of the file, in pages. */
STRATA_RARE uint64_t platform_resident_bytes(void) {
    char text[64];
    const char *at = text;
    (void)read_start("/proc/thread-self/statm", text, sizeof text);
    while (*at >= '0' && *at <= '9') at++;
    return linux_number(at) << info.page_shift;
}
