/*
 * names.h - the malloc family under the names strata_*, for the programs that are linked to strata: each function is there, does what its
 * plain namesake does, and shares its heap with it.
 */
#ifndef STRATA_TESTS_NAMES_H
#define STRATA_TESTS_NAMES_H

#include "stress/support.h"

#include <malloc.h>
#include <strata/malloc.h>
#include <strata/strata.h>

/* Takes a pointer out of the compiler's sight, which can't know that both families are one. */
static void *plain(void *p) {
    void *volatile copy = p;
    return copy;
}

static void names_run(void) {
    /* Allocated by one family, freed by the other. */
    for (size_t bytes = 0; bytes < 3 * MIB; bytes = bytes < 200 ? bytes + 1 : bytes * 2) {
        free(plain(strata_malloc(bytes)));
        strata_free(plain(malloc(bytes)));
        void *p = plain(realloc(plain(strata_calloc(1, bytes)), bytes + 10));
        p = plain(strata_realloc(p, bytes + 100));
        REQUIRE(p != NULL && strata_malloc_usable_size(p) == malloc_usable_size(p) && malloc_usable_size(p) >= bytes + 100);
        strata_free_sized(p, bytes + 100);
        p = plain(strata_reallocarray(NULL, bytes, 2));
        REQUIRE(p != NULL);
        free(p);
        p = plain(strata_aligned_alloc(256, bytes));
        REQUIRE(p != NULL && ((uintptr_t)p & 255) == 0);
        strata_free_aligned_sized(p, 256, bytes);
        p = plain(strata_memalign(512, bytes));
        REQUIRE(p != NULL && ((uintptr_t)p & 511) == 0);
        free(p);
        void *out = NULL;
        REQUIRE(strata_posix_memalign(&out, 1024, bytes) == 0 && ((uintptr_t)out & 1023) == 0);
        free(plain(out));
        p = plain(strata_valloc(bytes));
        REQUIRE(p != NULL && ((uintptr_t)p & 4095) == 0);
        free(p);
        p = plain(strata_pvalloc(bytes));
        REQUIRE(p != NULL && strata_malloc_usable_size(p) >= ((bytes + 4095) & ~(size_t)4095));
        free(p);
    }
    void *live = plain(malloc(1000));
    struct mallinfo2 theirs = mallinfo2();
    struct strata_mallinfo2 ours = strata_mallinfo2();
    REQUIRE(sizeof theirs == sizeof ours && ours.uordblks > 0 && ours.uordblks == theirs.uordblks);
    REQUIRE(strata_mallinfo().uordblks > 0);
    free(live);
    REQUIRE(strata_mallopt(M_TRIM_THRESHOLD, 100) == 1);
    FILE *out = fopen("/dev/null", "w");
    REQUIRE(out != NULL && strata_malloc_info(0, out) == 0 && fclose(out) == 0);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    REQUIRE(null >= 0 && strata_stats_json(null) == 0 && strata_stats_table(null) == 0);
    errno = 5;
    REQUIRE(strata_stats_json(-1) == EIO && strata_stats_table(-1) == EIO && errno == 5);
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    REQUIRE(full >= 0 && strata_stats_json(full) == EIO);
    close(null);
    close(full);
    free(plain(malloc(20 * MIB)));
    (void)strata_malloc_trim(0);
    REQUIRE(strata_release(0) == 0);
    const char *broken = strata_check();
    if (broken != NULL) fail("strata_check: %s", broken);
}

#endif
