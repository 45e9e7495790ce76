/*
 * move.c - pages that get another address on Linux, by mremap. No locks, no state; errno is kept.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/check.h"
#include "base/swap.h"
#include "platform/linux/linux.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4 /* Linux 5.7 */
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000 /* Linux 4.17 */
#endif

/* What the kernel's huge pages, and a page of page tables, cover. */
#define HUGE_BYTES ((size_t)2 * MIB)

/*
 * Whether a move that needs `bytes` of address space for a moment would pass the limits of the process, which may have come down since the
 * heap was built. Where there are limits, what is taken for a try is the answer.
 */
static bool limits_allow(size_t bytes) {
    struct rlimit space = {.rlim_cur = 0}, data = {.rlim_cur = 0};
    if (!platform_is_locked_in()) {
        getrlimit(RLIMIT_AS, &space);
        getrlimit(RLIMIT_DATA, &data);
    }
    if (space.rlim_cur == RLIM_INFINITY && data.rlim_cur == RLIM_INFINITY) return true;
    /* What can be written counts as data; what can't is not made present where all is to be locked (mlockall). */
    void *tried = linux_map(NULL, bytes, data.rlim_cur == RLIM_INFINITY ? PROT_NONE : PROT_READ | PROT_WRITE, 0);
    platform_unreserve(tried, tried == NULL ? 0 : bytes);
    return tried != NULL;
}

/* By a wish that can hardly be met, because what follows is taken: the kernel's refusal tells whether the range has a boundary inside. */
static bool is_one_mapping(char *address, size_t bytes) {
    if (mremap(address, bytes, bytes + platform_info()->page_bytes, 0) == MAP_FAILED) return errno != EFAULT;
    munmap(address + bytes, platform_info()->page_bytes);
    return true;
}

/* The longest part from `address` on that is one mapping. Most end at a multiple of HUGE_BYTES, as advice and moves are given by those. */
static size_t first_mapping(char *address, size_t bytes) {
    if (is_one_mapping(address, bytes)) return bytes;
    /* In units, behind the first multiple of it: `one` is known to be one mapping, `more` is known not to be. */
    size_t step = HUGE_BYTES, first = HUGE_BYTES - ((uintptr_t)address & (HUGE_BYTES - 1)), end = bytes;
    if (first >= bytes || !is_one_mapping(address, first)) {
        end = min_u64(first, bytes);
        step = first = platform_info()->page_bytes;
    }
    size_t one = 0, more = (end - first + step - 1) / step;
    while (more - one > 1) {
        size_t middle = one + (more - one) / 2;
        if (is_one_mapping(address, first + middle * step))
            one = middle;
        else
            more = middle;
    }
    return first + one * step;
}

bool linux_restore(void *address, size_t bytes) {
    if (linux_msync(address, bytes, MS_ASYNC) == 0) return false;
    if (linux_map(address, bytes, PROT_READ | PROT_WRITE, MAP_FIXED_NOREPLACE) == address) return true;
    fatal("the system took %zu bytes of address space at %p", bytes, address);
}

/* Of one mapping. False: nothing has happened. */
static bool move_mapping(char *from, char *to, size_t bytes) {
    if (mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) == to) return true;
    linux_restore(to, bytes);
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
        linux_drop_or_clear((char *)from + done, part);
    }
    errno = saved;
    return ok;
}

bool platform_reset(void *address, size_t bytes) {
    if (linux_map(address, bytes, PROT_READ | PROT_WRITE, MAP_FIXED) == address) return true;
    int saved = errno;
    linux_restore(address, bytes);
    errno = saved;
    return false;
}

/* Pages that have left for a place where they can't stay. */
static void put_back(char *from, char *to, size_t bytes) {
    if (move_mapping(from, to, bytes)) return;
    memcpy(to, from, bytes);
    linux_drop_or_clear(from, bytes);
}

/* Of one mapping each. False: nothing has happened. */
static bool swap_mappings(char *a, char *b, char *through, size_t bytes) {
    if (!move_mapping(a, through, bytes)) return false;
    bool ok = move_mapping(b, a, bytes);
    put_back(through, ok ? b : a, bytes);
    return ok;
}

/* As platform_move: mapping by mapping, the rest by a copy where a part is done already. */
STRATA_COLD bool platform_swap(void *a, void *b, void *through, size_t bytes) {
    int saved = errno;
    bool ok = limits_allow(bytes);
    for (size_t done = 0, part; ok && done < bytes; done += part) {
        char *a_part = (char *)a + done, *b_part = (char *)b + done, *through_part = (char *)through + done;
        part = first_mapping(b_part, first_mapping(a_part, bytes - done)); /* in between there is what a_part was: one mapping, too */
        if (swap_mappings(a_part, b_part, through_part, part)) continue;
        ok = done != 0;
        if (!ok) break;
        part = bytes - done;
        swap_by_copy(a_part, b_part, part);
    }
    errno = saved;
    return ok;
}
