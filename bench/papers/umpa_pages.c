/*
 * umpa_pages.c - experiments: figures 5 to 11 and table 1 of the paper on user mode page allocation. What pages cost from the kernel and from strata.
 *
 *     umpa_pages fault WAY BYTES ROUNDS          a block is allocated, a byte written into each page, the block freed: cycles a page
 *     umpa_pages pair WAY BYTES ROUNDS           the same but that the pages are written once, before: ns for an allocation and its release
 *     umpa_pages ring WAY MEMBERS OPERATIONS     blocks of 4 KiB to 8 MiB in a ring; times by powers of two, in ns a block
 *     umpa_pages resize strata|copy BYTES ROUNDS a block in use doubles its size: ns
 *     umpa_pages double strata|copy BYTES ROUNDS a block in use grows from 1 MiB to BYTES by doubling: ns of each step, in the first round and later
 *     umpa_pages turns strata|copy BYTES ROUNDS  the same of two blocks in turn, which are in each other's way
 *     umpa_pages swap strata|copy BYTES ROUNDS   two blocks in use exchange their contents: ns
 *     umpa_pages aged-double|aged-turns|aged-swap ...     the same in a heap in which other blocks were exchanged before, and freed
 *     umpa_pages privileged-double ...           the same in a process that keeps its right to lock memory; all others give it up
 *
 * WAY: kernel (mmap), populated (mmap with MAP_POPULATE), huge (mmap at a multiple of 2 MiB, with huge pages), populated-huge (the same, populated by
 * one call), strata (strata_page_alloc), malloc (strata's) or libc (the C library's malloc). Every block is checked to hold what was written. One
 * thread.
 */
#include <inttypes.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <strata/page.h>

#include "libc_malloc.h"
#include "load.h"
#include "timing.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#define SMALLEST_SHIFT 12
#define LARGEST_SHIFT 23
#define BINS (LARGEST_SHIFT - SMALLEST_SHIFT)
#define MEMBERS_MAX 512
#define SUPERPAGE ((size_t)2 << 20)

static struct libc_malloc libc; /* set by main */

enum way { KERNEL, POPULATED, HUGE_PAGES, POPULATED_HUGE, STRATA, MALLOC, LIBC, WAYS };
static const char *const way_names[WAYS] = {"kernel", "populated", "huge", "populated-huge", "strata", "malloc", "libc"};

static void *map(size_t bytes, int flags) {
    void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    return block == MAP_FAILED ? NULL : block;
}

/* Room for a multiple of 2 MiB in front; the rest goes back at once. */
static void *map_huge(size_t bytes) {
    char *wide = map(bytes + SUPERPAGE, MAP_NORESERVE);
    if (!wide) return NULL;
    size_t ahead = -(uintptr_t)wide & (SUPERPAGE - 1);
    if (ahead) munmap(wide, ahead);
    munmap(wide + ahead + bytes, SUPERPAGE - ahead);
    madvise(wide + ahead, bytes, MADV_HUGEPAGE);
    return wide + ahead;
}

static void *allocate(enum way way, size_t bytes) {
    void *block = NULL;
    switch (way) {
    case KERNEL: block = map(bytes, 0); break;
    case POPULATED: block = map(bytes, MAP_POPULATE); break;
    case HUGE_PAGES: block = map_huge(bytes); break;
    case POPULATED_HUGE:
        block = map_huge(bytes);
        if (block && madvise(block, bytes, MADV_POPULATE_WRITE)) load_fail("this kernel does not populate what is mapped (before Linux 5.14)");
        break;
    case STRATA:
        if (strata_page_alloc(bytes, 0, &block) != STRATA_PAGE_OK) block = NULL;
        break;
    case MALLOC: block = malloc(bytes); break;
    case LIBC: block = libc.allocate(bytes); break;
    default: break;
    }
    if (!block) load_fail("no memory for a block");
    return block;
}

static void release(enum way way, void *block, size_t bytes) {
    switch (way) {
    case STRATA:
        if (strata_page_free(block) != STRATA_PAGE_OK) load_fail("a block is none");
        break;
    case MALLOC: free(block); break;
    case LIBC: libc.release(block); break;
    default:
        if (munmap(block, bytes)) load_fail("a mapping is none");
    }
}

static void touch(char *block, size_t bytes, char with) {
    for (size_t at = 0; at < bytes; at += TOUCH_STEP_BYTES) ((volatile char *)block)[at] = with;
}

#define SAMPLES_MAX 101

static int by_value(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static double median_ns(const struct timing_scale *scale, uint64_t *ticks, uint64_t count) {
    qsort(ticks, count, sizeof *ticks, by_value);
    return timing_mean_ns(scale, ticks[count / 2], 1);
}

/* ------------------------------------------------------------------ figures 5 and 6, table 1 */

static void run_fault(enum way way, size_t bytes, uint64_t rounds) {
    struct timing_scale scale = timing_measure();
    uint64_t allocation = 0, touching = 0, freeing = 0;
    char *first = allocate(way, bytes); /* what it costs is no page's, and what it leaves in the lookaside is there for all that follow */
    touch(first, bytes, 1);
    release(way, first, bytes);
    for (uint64_t i = 0; i < rounds; i++) {
        uint64_t start = timing_ticks();
        char *block = allocate(way, bytes);
        uint64_t allocated = timing_ticks();
        touch(block, bytes, (char)(i + 1));
        uint64_t touched = timing_ticks();
        if (block[0] != (char)(i + 1) || block[(bytes - 1) / TOUCH_STEP_BYTES * TOUCH_STEP_BYTES] != (char)(i + 1)) load_fail("a byte is lost");
        uint64_t before = timing_ticks();
        release(way, block, bytes);
        freeing += timing_ticks() - before;
        allocation += allocated - start;
        touching += touched - allocated;
    }
    double pages = (double)rounds * (double)(bytes / TOUCH_STEP_BYTES);
    printf("{\"cycles_per_page\": %.3f, \"touch_cycles_per_page\": %.3f, \"alloc_free_ns\": %.1f, \"total_ns\": %.1f}\n",
           (double)(allocation + touching + freeing) / pages, (double)touching / pages, timing_mean_ns(&scale, allocation + freeing, rounds),
           timing_mean_ns(&scale, allocation + touching + freeing, rounds));
}

/*
 * What is released and allocated in turn, with its pages as they are. From the kernel they are gone each time, and nobody misses them. The median of
 * batches: one pair of them all may be the one in which the library asks for the limits of the process, some hundred us, once.
 */
#define PAIR_BATCHES 21

static void run_pair(enum way way, size_t bytes, uint64_t rounds) {
    struct timing_scale scale = timing_measure();
    uint64_t ticks[PAIR_BATCHES], pairs = (rounds + PAIR_BATCHES - 1) / PAIR_BATCHES;
    char *block = allocate(way, bytes);
    touch(block, bytes, 1);
    release(way, block, bytes);
    for (unsigned batch = 0; batch < PAIR_BATCHES; batch++) {
        uint64_t start = timing_ticks();
        for (uint64_t i = 0; i < pairs; i++) release(way, allocate(way, bytes), bytes);
        ticks[batch] = timing_ticks() - start;
    }
    printf("{\"alloc_free_ns\": %.1f}\n", median_ns(&scale, ticks, PAIR_BATCHES) / (double)pairs);
}

/* ------------------------------------------------------------------ figures 7 to 10 */

struct member {
    char *block;
    size_t bytes;
    char mark;
};

static void run_ring(enum way way, uint64_t members, uint64_t operations) {
    static struct member ring[MEMBERS_MAX];
    uint64_t ticks[BINS] = {0}, touch_ticks[BINS] = {0}, count[BINS] = {0};
    struct timing_scale scale = timing_measure();
    struct rng rng = rng_seed(11);
    /* The ring is filled and emptied once before: what the lookaside holds then serves all that follow. */
    for (uint64_t i = 0; i < operations + 2 * members; i++) {
        struct member *member = &ring[i % members];
        bool counted = i >= 2 * members;
        uint64_t start = timing_ticks();
        if (member->block) {
            if (member->block[0] != member->mark) load_fail("a block has not kept its contents");
            unsigned bin = 63u - (unsigned)__builtin_clzll(member->bytes) - SMALLEST_SHIFT;
            start = timing_ticks();
            release(way, member->block, member->bytes);
            if (counted) ticks[bin] += timing_ticks() - start;
        }
        member->bytes = rng_doubling(&rng, SMALLEST_SHIFT, LARGEST_SHIFT);
        member->mark = (char)(i | 1);
        unsigned bin = 63u - (unsigned)__builtin_clzll(member->bytes) - SMALLEST_SHIFT;
        start = timing_ticks();
        member->block = allocate(way, member->bytes);
        uint64_t allocated = timing_ticks();
        touch(member->block, member->bytes, member->mark);
        uint64_t touched = timing_ticks();
        if (!counted) continue;
        ticks[bin] += allocated - start;
        touch_ticks[bin] += touched - allocated;
        count[bin]++;
    }
    /* Adjusted for the traversal of pages that are there: what it costs beyond is the allocator's doing. */
    double here[BINS];
    for (unsigned bin = 0; bin < BINS; bin++) {
        size_t bytes = ((size_t)3 << (bin + SMALLEST_SHIFT)) / 2;
        char *block = map(bytes, MAP_POPULATE);
        if (!block) load_fail("no memory for a block");
        touch(block, bytes, 1);
        uint64_t start = timing_ticks();
        for (unsigned i = 0; i < 8; i++) touch(block, bytes, (char)i);
        here[bin] = timing_mean_ns(&scale, timing_ticks() - start, 8);
        munmap(block, bytes);
    }
    for (uint64_t i = 0; i < members; i++)
        if (ring[i].block) release(way, ring[i].block, ring[i].bytes);
    printf("{\"bins\": [");
    for (unsigned bin = 0; bin < BINS; bin++) {
        double alone = timing_mean_ns(&scale, ticks[bin], count[bin]), touched = timing_mean_ns(&scale, touch_ticks[bin], count[bin]);
        double faults = touched > here[bin] ? touched - here[bin] : 0;
        printf("%s{\"bytes\": %zu, \"count\": %" PRIu64 ", \"calls_ns\": %.1f, \"all_ns\": %.1f, \"notraverse_ns\": %.1f}", bin ? ", " : "",
               (size_t)1 << (bin + SMALLEST_SHIFT), count[bin], alone, alone + touched, alone + faults);
    }
    printf("]}\n");
}

/* ------------------------------------------------------------------ a heap with a history */

#define HISTORY_PAIRS 8

/* Pairs of 2 to 5 MiB come, exchange their contents and go. */
static void live_through(void) {
    for (unsigned i = 0; i < HISTORY_PAIRS; i++) {
        size_t bytes = (size_t)(2 + i % 4) << 20;
        char *a = allocate(STRATA, bytes), *b = allocate(STRATA, bytes);
        touch(a, bytes, 1);
        touch(b, bytes, 2);
        if (strata_page_swap(a, b, bytes) != STRATA_PAGE_OK) load_fail("two blocks can't change places");
        for (size_t at = 0; at < bytes; at += TOUCH_STEP_BYTES)
            if (a[at] != 2 || b[at] != 1) load_fail("a byte is lost");
        release(STRATA, a, bytes);
        release(STRATA, b, bytes);
    }
}

/* ------------------------------------------------------------------ figure 11 */

static uint64_t grow(bool by_copy, void **block, size_t bytes) {
    uint64_t start = timing_ticks();
    if (!by_copy) {
        if (strata_page_realloc(block, 2 * bytes, 0) != STRATA_PAGE_OK) load_fail("a block can't grow");
        return timing_ticks() - start;
    }
    void *larger;
    if (strata_page_alloc(2 * bytes, 0, &larger) != STRATA_PAGE_OK) load_fail("no memory for a block");
    memcpy(larger, *block, bytes);
    if (strata_page_free(*block) != STRATA_PAGE_OK) load_fail("a block is none");
    *block = larger;
    return timing_ticks() - start;
}

static void run_resize(bool by_copy, size_t bytes, uint64_t rounds) {
    struct timing_scale scale = timing_measure();
    uint64_t ticks = 0;
    for (uint64_t i = 0; i <= rounds; i++) {
        /* A neighbour behind, so that growth is not a matter of luck. */
        void *block, *behind;
        if (strata_page_alloc(bytes, 0, &block) != STRATA_PAGE_OK || strata_page_alloc(bytes, 0, &behind) != STRATA_PAGE_OK)
            load_fail("no memory for a block");
        touch(block, bytes, (char)(i + 1));
        uint64_t taken = grow(by_copy, &block, bytes);
        if (i) ticks += taken; /* the first fetches pages for all */
        for (size_t at = 0; at < bytes; at += TOUCH_STEP_BYTES)
            if (((char *)block)[at] != (char)(i + 1)) load_fail("a byte is lost");
        if (strata_page_free(block) != STRATA_PAGE_OK || strata_page_free(behind) != STRATA_PAGE_OK) load_fail("a block is none");
    }
    printf("{\"ns\": %.1f}\n", timing_mean_ns(&scale, ticks, rounds));
}

/* ------------------------------------------------------------------ the same from 1 MiB on, step after step */

#define DOUBLING_FROM ((size_t)1 << 20)
#define STEPS_MAX 16
#define IN_TURN 2

/* One step of one block, from `size` on. */
static uint64_t double_once(bool by_copy, void **block, size_t size, char mark) {
    uint64_t taken = grow(by_copy, block, size);
    for (size_t at = 0; at < size; at += TOUCH_STEP_BYTES)
        if (((char *)*block)[at] != mark) load_fail("a byte is lost");
    touch((char *)*block + size, size, mark);
    return taken;
}

static void run_double(bool by_copy, unsigned count, size_t bytes, uint64_t rounds) {
    static uint64_t ticks[STEPS_MAX][SAMPLES_MAX];
    struct timing_scale scale = timing_measure();
    for (uint64_t round = 0; round < rounds; round++) {
        char mark = (char)(round + 1);
        void *blocks[IN_TURN];
        for (unsigned i = 0; i < count; i++) {
            if (strata_page_alloc(DOUBLING_FROM, 0, &blocks[i]) != STRATA_PAGE_OK) load_fail("no memory for a block");
            touch(blocks[i], DOUBLING_FROM, mark);
        }
        unsigned step = 0;
        for (size_t size = DOUBLING_FROM; size < bytes; size *= 2, step++) {
            ticks[step][round] = 0;
            for (unsigned i = 0; i < count; i++) { /* the dearer one counts */
                uint64_t taken = double_once(by_copy, &blocks[i], size, mark);
                if (taken > ticks[step][round]) ticks[step][round] = taken;
            }
        }
        for (unsigned i = 0; i < count; i++)
            if (strata_page_free(blocks[i]) != STRATA_PAGE_OK) load_fail("a block is none");
    }
    printf("{\"steps\": [");
    unsigned step = 0;
    for (size_t size = DOUBLING_FROM; size < bytes; size *= 2, step++) {
        double first = timing_mean_ns(&scale, ticks[step][0], 1), later = rounds > 1 ? median_ns(&scale, ticks[step] + 1, rounds - 1) : first;
        printf("%s{\"bytes\": %zu, \"first_ns\": %.1f, \"later_ns\": %.1f}", step ? ", " : "", 2 * size, first, later);
    }
    printf("]}\n");
}

/* ------------------------------------------------------------------ exchange */

static void swap_by_copy(char *a, char *b, size_t bytes) {
    static char buffer[64 << 10];
    for (size_t at = 0, part; at < bytes; at += part) {
        part = bytes - at < sizeof buffer ? bytes - at : sizeof buffer;
        memcpy(buffer, a + at, part);
        memcpy(a + at, b + at, part);
        memcpy(b + at, buffer, part);
    }
}

static void run_swap(bool by_copy, size_t bytes, uint64_t rounds) {
    static uint64_t ticks[SAMPLES_MAX];
    struct timing_scale scale = timing_measure();
    void *blocks[2];
    for (unsigned i = 0; i < 2; i++) {
        if (strata_page_alloc(bytes, 0, &blocks[i]) != STRATA_PAGE_OK) load_fail("no memory for a block");
        touch(blocks[i], bytes, (char)(i + 1));
    }
    for (uint64_t round = 0; round < rounds; round++) {
        uint64_t start = timing_ticks();
        if (by_copy)
            swap_by_copy(blocks[0], blocks[1], bytes);
        else if (strata_page_swap(blocks[0], blocks[1], bytes) != STRATA_PAGE_OK)
            load_fail("two blocks can't change places");
        ticks[round] = timing_ticks() - start;
        for (unsigned i = 0; i < 2; i++)
            for (size_t at = 0; at < bytes; at += TOUCH_STEP_BYTES)
                if (((char *)blocks[i])[at] != (char)(1 + (i + round + 1) % 2)) load_fail("a byte is lost");
    }
    for (unsigned i = 0; i < 2; i++)
        if (strata_page_free(blocks[i]) != STRATA_PAGE_OK) load_fail("a block is none");
    printf("{\"ns\": %.1f}\n", median_ns(&scale, ticks, rounds));
}

/* As most processes are: who may have all of its memory locked, which makes it present, has less of it committed ahead by strata. */
static void become_ordinary(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    if (syscall(SYS_capget, &header, data)) return;
    data[CAP_IPC_LOCK / 32].effective &= ~(1U << CAP_IPC_LOCK % 32);
    data[CAP_IPC_LOCK / 32].permitted &= ~(1U << CAP_IPC_LOCK % 32);
    if (syscall(SYS_capset, &header, data)) load_fail("the right to lock memory can't be given up");
}

int main(int argc, char **argv) {
    uint64_t first = argc == 5 ? strtoull(argv[3], NULL, 10) : 0, second = argc == 5 ? strtoull(argv[4], NULL, 10) : 0;
    enum way way = KERNEL;
    if (!first || !second)
        load_fail("usage: umpa_pages fault|pair|ring|resize|[aged-|privileged-]double|[aged-]turns|[aged-]swap WAY BYTES|MEMBERS ROUNDS|OPERATIONS");
    libc = libc_malloc_find();
    timing_pin(0);
    if (!strcmp(argv[1], "privileged-double"))
        argv[1] += strlen("privileged-");
    else
        become_ordinary();
    while (way < WAYS && strcmp(argv[2], way_names[way])) way++;
    if (!strcmp(argv[1], "aged-double") || !strcmp(argv[1], "aged-turns") || !strcmp(argv[1], "aged-swap")) {
        live_through();
        argv[1] += strlen("aged-");
    }
    if (!strcmp(argv[1], "fault") && way < WAYS && first % TOUCH_STEP_BYTES == 0)
        run_fault(way, first, second);
    else if (!strcmp(argv[1], "pair") && way < WAYS)
        run_pair(way, first, second);
    else if (!strcmp(argv[1], "ring") && way < WAYS && first <= MEMBERS_MAX)
        run_ring(way, first, second);
    else if (!strcmp(argv[1], "resize") && (way == STRATA || !strcmp(argv[2], "copy")))
        run_resize(way != STRATA, first, second);
    else if ((!strcmp(argv[1], "double") || !strcmp(argv[1], "turns")) && (way == STRATA || !strcmp(argv[2], "copy")) && first > DOUBLING_FROM &&
             first >> STEPS_MAX <= DOUBLING_FROM && (first & (first - 1)) == 0 && second <= SAMPLES_MAX)
        run_double(way != STRATA, strcmp(argv[1], "turns") ? 1 : IN_TURN, first, second);
    else if (!strcmp(argv[1], "swap") && (way == STRATA || !strcmp(argv[2], "copy")) && first % TOUCH_STEP_BYTES == 0 && second <= SAMPLES_MAX)
        run_swap(way != STRATA, first, second);
    else
        load_fail(
            "usage: umpa_pages fault|pair|ring WAY ... | resize|double|turns|swap strata|copy ...; bytes in whole pages, a ring of at most 512, "
            "at most 101 rounds of double, turns and swap, double and turns to a power of two from 2 MiB to 64 GiB");
    return fflush(stdout) ? 2 : 0;
}
