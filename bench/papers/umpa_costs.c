/*
 * umpa_costs.c - what the ways to give pages another address cost on this machine: the figures behind src/page/cost.h, and the sizes that follow.
 *
 *     umpa_costs ROUNDS
 *
 * Medians in ns: a first touch, a copy into a page that is present, a move of page tables (mremap) and what each page and superpage adds, and a move
 * page by page (userfaultfd; 0 where the system has or allows none) with what each page adds. Every page is checked to hold what was written. One
 * thread.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <linux/userfaultfd.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "load.h"
#include "timing.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#define PAGE ((size_t)4096)
#define SUPERPAGE ((size_t)2 << 20)
#define FEW_PAGES 1
#define MANY_PAGES 256
#define MANY_SUPERPAGES 64
#define ROUNDS_MAX 1001

struct move {
    uint64_t to, from, bytes, mode;
    int64_t moved;
};
#define MOVE_CALL _IOWR(0xAA, 0x05, struct move)

static char *a, *b; /* two ranges, each at a multiple of 2 MiB */

static void map_at(char *address, size_t bytes) {
    if (mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != address) load_fail("no memory");
    madvise(address, bytes, MADV_NOHUGEPAGE);
}

static void write_pages(char *address, size_t pages, uint64_t with) {
    for (size_t i = 0; i < pages; i++) ((volatile char *)address)[i * PAGE] = (char)(with + i);
}
static void check_pages(const char *address, size_t pages, uint64_t with) {
    for (size_t i = 0; i < pages; i++)
        if (address[i * PAGE] != (char)(with + i)) load_fail("a page is lost");
}

static int compare(const void *x, const void *y) {
    return *(const uint64_t *)x < *(const uint64_t *)y ? -1 : *(const uint64_t *)x > *(const uint64_t *)y;
}

/* One round of something, in ticks. */
typedef uint64_t (*round_function)(size_t pages, uint64_t round);

static double median_ns(round_function one, size_t pages, uint64_t rounds, const struct timing_scale *scale) {
    static uint64_t ticks[ROUNDS_MAX];
    map_at(a, MANY_SUPERPAGES * SUPERPAGE);
    map_at(b, MANY_SUPERPAGES * SUPERPAGE);
    for (uint64_t i = 0; i < rounds; i++) ticks[i] = one(pages, i + 1);
    qsort(ticks, rounds, sizeof ticks[0], compare);
    return timing_mean_ns(scale, ticks[rounds / 2], 1);
}

static uint64_t touch_round(size_t pages, uint64_t round) {
    madvise(a, pages * PAGE, MADV_DONTNEED);
    uint64_t start = timing_ticks();
    write_pages(a, pages, round);
    return timing_ticks() - start;
}

static uint64_t copy_round(size_t pages, uint64_t round) {
    write_pages(a, pages, round);
    write_pages(b, pages, 0);
    uint64_t start = timing_ticks();
    memcpy(b, a, pages * PAGE);
    uint64_t taken = timing_ticks() - start;
    check_pages(b, pages, round);
    return taken;
}

static uint64_t tables_round(size_t pages, uint64_t round) {
    write_pages(a, pages, round);
    uint64_t start = timing_ticks();
    if (mremap(a, pages * PAGE, pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, b) != b) load_fail("mremap refuses");
    uint64_t taken = timing_ticks() - start;
    check_pages(b, pages, round);
    map_at(a, pages * PAGE);
    map_at(b, pages * PAGE);
    return taken;
}

static int faults = -1;

static uint64_t pages_round(size_t pages, uint64_t round) {
    struct uffdio_register to = {.range = {(uintptr_t)b, pages * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    struct move move = {.to = (uintptr_t)b, .from = (uintptr_t)a, .bytes = pages * PAGE};
    write_pages(a, pages, round);
    madvise(b, pages * PAGE, MADV_DONTNEED);
    uint64_t start = timing_ticks();
    if (ioctl(faults, UFFDIO_REGISTER, &to) || ioctl(faults, MOVE_CALL, &move) || ioctl(faults, UFFDIO_UNREGISTER, &to.range)) load_fail("no move");
    uint64_t taken = timing_ticks() - start;
    check_pages(b, pages, round);
    return taken;
}

/* Whether this system moves pages one by one. */
static bool open_faults(void) {
    struct uffdio_api api = {.api = UFFD_API};
    faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    return faults >= 0 && !ioctl(faults, UFFDIO_API, &api) && api.features >> 16 & 1;
}

int main(int argc, char **argv) {
    uint64_t rounds = argc == 2 ? strtoull(argv[1], NULL, 10) : 0;
    if (!rounds || rounds > ROUNDS_MAX) load_fail("usage: umpa_costs ROUNDS; at most 1001");
    timing_pin(0);
    char *all = mmap(NULL, (2 * MANY_SUPERPAGES + 1) * SUPERPAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) load_fail("no address space");
    a = all + (-(uintptr_t)all & (SUPERPAGE - 1));
    b = a + MANY_SUPERPAGES * SUPERPAGE;
    struct timing_scale scale = timing_measure();
    const struct timing_scale *s = &scale;
    double touch = median_ns(touch_round, MANY_PAGES, rounds, s) / MANY_PAGES, copy = median_ns(copy_round, MANY_PAGES, rounds, s) / MANY_PAGES;
    double tables = median_ns(tables_round, FEW_PAGES, rounds, s);
    double table_page = (median_ns(tables_round, MANY_PAGES, rounds, s) - tables) / (MANY_PAGES - FEW_PAGES);
    double superpage = (median_ns(tables_round, MANY_SUPERPAGES * SUPERPAGE / PAGE, rounds, s) - tables) / MANY_SUPERPAGES;
    double pages = 0, page = 0;
    if (open_faults()) {
        pages = median_ns(pages_round, FEW_PAGES, rounds, s);
        page = (median_ns(pages_round, MANY_PAGES, rounds, s) - pages) / (MANY_PAGES - FEW_PAGES);
    }
    printf("{\"touch_page_ns\": %.0f, \"copy_page_ns\": %.0f, \"tables_ns\": %.0f, \"tables_page_ns\": %.0f, \"tables_superpage_ns\": %.0f, "
           "\"pages_ns\": %.0f, \"pages_page_ns\": %.0f, \"tables_before_copy_pages\": %.0f, \"tables_before_copy_and_touch_pages\": %.0f, "
           "\"swap_before_copy_pages\": %.0f}\n",
           touch, copy, tables, table_page, superpage, pages, page, tables / (copy - table_page), tables / (copy + touch - table_page),
           tables / (copy - table_page));
    return fflush(stdout) ? 2 : 0;
}
