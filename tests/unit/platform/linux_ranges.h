/*
 * linux_ranges.h - what the tests of pages on Linux share: ranges with contents that are known, in as many mappings as wanted, and a process that has
 * used up its mappings.
 *
 * Each range lies in the midst of one that is like it, so that a move has to split mappings, as in the heap.
 */
#ifndef STRATA_TESTS_UNIT_PLATFORM_LINUX_RANGES_H
#define STRATA_TESTS_UNIT_PLATFORM_LINUX_RANGES_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "linux_test.h"

#define PAGES ((size_t)96)
#define PIECES_MAX 64
#define EVERY 256u

static size_t page_bytes, range_bytes;

/* A committed range of PAGES pages, with as many around it on both sides. */
static inline char *new_range(void) {
    char *wide = platform_reserve(NULL, 3 * range_bytes, page_bytes);
    if (wide == NULL || !platform_commit(wide, 3 * range_bytes)) return NULL;
    return wide + range_bytes;
}

static inline void fill(char *range, char seed) {
    for (size_t i = 0; i < range_bytes; i += EVERY) range[i] = (char)(seed + (char)(i / page_bytes) % 50);
}

static inline bool holds(const char *range, char seed) {
    for (size_t i = 0; i < range_bytes; i += EVERY)
        if (range[i] != (char)(seed + (char)(i / page_bytes) % 50)) return false;
    return true;
}

static inline bool is_zero(const char *range) {
    for (size_t i = 0; i < range_bytes; i++)
        if (range[i] != 0) return false;
    return true;
}

static inline bool is_writable(char *range) {
    for (size_t i = 0; i < range_bytes; i += page_bytes) {
        char before = range[i];
        range[i] = (char)(before + 1);
        if (range[i] != (char)(before + 1)) return false;
        range[i] = before;
    }
    return true;
}

/* How many mappings a range consists of, from the kernel's own list. */
static inline unsigned count_mappings(const char *range) {
    char line[512];
    unsigned count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    if (maps == NULL) return 0;
    while (fgets(line, sizeof line, maps) != NULL) {
        char *rest;
        uintptr_t start = strtoul(line, &rest, 16), end = strtoul(rest + 1, NULL, 16);
        count += start < (uintptr_t)range + range_bytes && end > (uintptr_t)range;
    }
    fclose(maps);
    return count;
}

/* Into mappings of three kinds; a kernel without huge pages has but two. */
static inline void split(char *range) {
    platform_advise_huge(range + 5 * page_bytes, 9 * page_bytes, true);
    madvise(range + 20 * page_bytes, page_bytes, MADV_DONTDUMP);
    madvise(range + 21 * page_bytes, 30 * page_bytes, MADV_DONTDUMP);
    platform_advise_huge(range + 60 * page_bytes, 2 * page_bytes, true);
    madvise(range + 80 * page_bytes, 10 * page_bytes, MADV_DONTDUMP);
}

static inline void ranges_init(void) {
    platform_init();
    page_bytes = platform_info()->page_bytes;
    range_bytes = PAGES * page_bytes;
}

/* ------------------------------------------------------------------ hardly a mapping left */

static char *crowd;
static size_t crowd_pairs, crowd_bytes;

/* Uses up the mappings of the process: every second page of one range is of another kind. */
static inline bool use_up_mappings(void) {
    size_t most = (size_t)1 << 21;
    crowd_bytes = most * 2 * page_bytes;
    crowd = platform_reserve(NULL, crowd_bytes, page_bytes);
    if (crowd == NULL) return false;
    while (crowd_pairs < most && mprotect(crowd + 2 * crowd_pairs * page_bytes, page_bytes, PROT_READ) == 0) crowd_pairs++;
    return crowd_pairs < most;
}

static inline bool give_back_one(void) { return crowd_pairs != 0 && mprotect(crowd + 2 * --crowd_pairs * page_bytes, page_bytes, PROT_NONE) == 0; }

#endif
