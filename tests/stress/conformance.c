/*
 * conformance.c - what programs rely on in glibc's malloc family, each point checked. conformance GROUP runs one group.
 *
 * The suite runs it under glibc as well: a point that does not hold there is not one that programs rely on. What only the C23 manual or
 * newer versions of glibc say is checked where strata is loaded.
 */
#include "stress/support.h"

#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>

/* Hides a value from the compiler, which warns of sizes that no block can have. */
static size_t hidden(size_t value) {
    volatile size_t copy = value;
    return copy;
}

#define PTRDIFF_MORE (hidden((size_t)PTRDIFF_MAX) + 1)

static bool aligned(const void *p, size_t alignment) { return ((uintptr_t)p & (alignment - 1)) == 0; }

static void group_zero(void) {
    enum { COUNT = 1000 };
    static void *blocks[COUNT];
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = i % 3 == 0 ? malloc(0) : i % 3 == 1 ? calloc(hidden(0), 8) : realloc(NULL, 0);
        REQUIRE(blocks[i] != NULL && aligned(blocks[i], 16));
    }
    for (int i = 0; i < COUNT; i++)
        for (int j = 0; j < i; j++) REQUIRE(blocks[i] != blocks[j]);
    for (int i = 0; i < COUNT; i++) free(blocks[i]);
    free(NULL);
    REQUIRE(malloc_usable_size(NULL) == 0);
    void *p = NULL;
    REQUIRE(posix_memalign(&p, 64, 0) == 0 && p != NULL && aligned(p, 64));
    free(p);
    p = calloc(8, hidden(0));
    REQUIRE(p != NULL);
    free(p);
}

static void expect_enomem(void *p) { REQUIRE(p == NULL && errno == ENOMEM); }

static void group_overflow(void) {
#define REFUSED(call)        \
    do {                     \
        errno = 0;           \
        expect_enomem(call); \
    } while (0)
    size_t huge[] = {PTRDIFF_MORE, SIZE_MAX, SIZE_MAX - 15, SIZE_MAX - 4096, SIZE_MAX / 2 + 100};
    for (size_t i = 0; i < sizeof huge / sizeof huge[0]; i++) {
        REFUSED(malloc(huge[i]));
        REFUSED(calloc(1, huge[i]));
        REFUSED(calloc(huge[i], 1));
        REFUSED(aligned_alloc(64, huge[i]));
        REFUSED(memalign(4096, huge[i]));
        REFUSED(valloc(huge[i]));
        REFUSED(pvalloc(huge[i]));
        REFUSED(realloc(NULL, huge[i]));
        void *p = &huge[0];
        REQUIRE(posix_memalign(&p, 64, huge[i]) == ENOMEM && p == &huge[0]);
    }
    REFUSED(malloc(hidden((size_t)PTRDIFF_MAX)));
    size_t half = hidden((size_t)1 << 32);
    REFUSED(calloc(half, half));
    REFUSED(calloc(half, half + 1));
    REFUSED(calloc(hidden(SIZE_MAX / 2), 3));
    REFUSED(reallocarray(NULL, half, half));
    unsigned char *kept = block_new(100, 8, "overflow");
    errno = 0;
    REQUIRE(reallocarray(kept, half, half) == NULL && errno == ENOMEM);
    errno = 0;
    REQUIRE(reallocarray(kept, hidden(SIZE_MAX / 2), 3) == NULL && errno == ENOMEM);
    errno = 0;
    REQUIRE(realloc(kept, PTRDIFF_MORE) == NULL && errno == ENOMEM);
    block_delete(kept, 100, 8, "overflow");
    unsigned char *large = block_new(9 * MIB, 8, "overflow, large");
    errno = 0;
    REQUIRE(realloc(large, hidden((size_t)PTRDIFF_MAX)) == NULL && errno == ENOMEM);
    block_delete(large, 9 * MIB, 8, "overflow, large");
#undef REFUSED
}

static void group_alignment(void) {
    for (size_t bytes = 0; bytes < 70000; bytes += bytes < 2000 ? 1 : 577) {
        void *a = malloc(bytes), *b = calloc(1, bytes), *c = realloc(NULL, bytes);
        REQUIRE(a != NULL && b != NULL && c != NULL);
        REQUIRE(aligned(a, 16) && aligned(b, 16) && aligned(c, 16));
        c = realloc(c, bytes * 2 + 1);
        REQUIRE(c != NULL && aligned(c, 16));
        free(a);
        free(b);
        free(c);
    }
    for (size_t bytes = 100000; bytes < 40 * MIB; bytes = bytes * 3 + 7) {
        void *a = malloc(bytes);
        REQUIRE(a != NULL && aligned(a, 16));
        free(a);
    }
}

/* Every alignment with small and large sizes, many blocks at once, so that an alignment is not right by luck. */
static void group_aligned_functions(void) {
    enum { EACH = 3 };
    static const size_t sizes[] = {0, 1, 8, 24, 100, 513, 4096, 5000, 70000, MIB};
    for (size_t alignment = sizeof(void *); alignment <= 4 * MIB; alignment *= 2)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            void *blocks[3 * EACH];
            for (int i = 0; i < EACH; i++) {
                blocks[3 * i] = aligned_alloc(alignment, sizes[s]);
                blocks[3 * i + 1] = memalign(alignment, sizes[s]);
                REQUIRE(posix_memalign(&blocks[3 * i + 2], alignment, sizes[s]) == 0);
            }
            for (int i = 0; i < 3 * EACH; i++) {
                REQUIRE(blocks[i] != NULL && aligned(blocks[i], alignment) && aligned(blocks[i], 16));
                REQUIRE(malloc_usable_size(blocks[i]) >= sizes[s]);
                pattern_fill(blocks[i], sizes[s], alignment);
            }
            for (int i = 0; i < 3 * EACH; i++) {
                if (i % 2 == 0) {
                    block_delete(blocks[i], sizes[s], alignment, "aligned");
                    continue;
                }
                /* The contents go along when the block is resized; the alignment need not. */
                unsigned char *moved = realloc(blocks[i], sizes[s] + 5000);
                REQUIRE(moved != NULL && aligned(moved, 16));
                pattern_check_as(moved, blocks[i], sizes[s], sizes[s], alignment, "aligned, moved");
                free(moved);
            }
        }
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t bytes = 0; bytes < 5 * page; bytes += 777) {
        void *v = valloc(bytes), *p = pvalloc(bytes);
        REQUIRE(v != NULL && p != NULL && aligned(v, page) && aligned(p, page));
        REQUIRE(malloc_usable_size(p) >= (bytes + page - 1) / page * page);
        memset(v, 1, bytes);
        memset(p, 2, (bytes + page - 1) / page * page);
        free(v);
        free(p);
    }
}

static void group_bad_alignment(void) {
    static const size_t bad[] = {0, 1, 2, 3, 4, 5, 7, 9, 12, 24, 48, 100, 4097, SIZE_MAX, SIZE_MAX / 2 + 2};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        void *p = (void *)&bad[i];
        errno = 77;
        REQUIRE(posix_memalign(&p, hidden(bad[i]), 100) == EINVAL);
        REQUIRE(p == (const void *)&bad[i] && errno == 77);
    }
    /* memalign takes the next power of two instead. */
    static const size_t odd[] = {0, 1, 3, 24, 48, 100, 1000};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        size_t power = 1;
        while (power < odd[i]) power *= 2;
        void *p = memalign(hidden(odd[i]), 200);
        REQUIRE(p != NULL && aligned(p, power) && aligned(p, 16));
        free(p);
    }
    errno = 0;
    REQUIRE(memalign(hidden(SIZE_MAX / 2 + 2), 100) == NULL && errno == EINVAL);
    /* Before version 2.38 glibc's aligned_alloc took any alignment. */
    if (!strata_expected()) return;
    static const size_t not_power[] = {0, 3, 24, 100, 4097, SIZE_MAX};
    for (size_t i = 0; i < sizeof not_power / sizeof not_power[0]; i++) {
        errno = 0;
        REQUIRE(aligned_alloc(hidden(not_power[i]), 100) == NULL && errno == EINVAL);
    }
    void *p = aligned_alloc(hidden(1), 100);
    REQUIRE(p != NULL && aligned(p, 16));
    free(p);
}

static void group_errno(void) {
    static const size_t sizes[] = {1, 100, 5000, 200000, 8 * MIB, 100 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *p = malloc(sizes[i]);
        REQUIRE(p != NULL);
        errno = 123;
        free(p);
        REQUIRE(errno == 123);
    }
    free(NULL);
    REQUIRE(errno == 123);
    void *p = realloc(malloc(10), 0);
    REQUIRE(p == NULL && errno == 123);
    /* Successful allocation: glibc makes no promise, strata does. */
    if (!strata_expected()) return;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        errno = 321;
        p = malloc(sizes[i]);
        REQUIRE(p != NULL && errno == 321);
        p = realloc(p, sizes[i] * 2);
        REQUIRE(p != NULL && errno == 321);
        free(p);
        p = calloc(3, sizes[i]);
        REQUIRE(p != NULL && errno == 321);
        free(p);
        REQUIRE(posix_memalign(&p, 256, sizes[i]) == 0 && errno == 321);
        free(p);
    }
    REQUIRE(posix_memalign(&p, 64, PTRDIFF_MORE) == ENOMEM && errno == 321);
}

static void group_realloc_zero(void) {
    static const size_t sizes[] = {0, 1, 100, 5000, 200000, 8 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *p = malloc(sizes[i]);
        REQUIRE(p != NULL);
        REQUIRE(realloc(p, hidden(0)) == NULL); /* frees */
        p = malloc(sizes[i]);
        REQUIRE(p != NULL);
        REQUIRE(reallocarray(p, hidden(0), 8) == NULL);
    }
    /* It did free: a hundred thousand times would show. */
    size_t before_kib = status_kib("RssAnon:");
    for (int i = 0; i < 20000; i++) {
        void *p = malloc(20000);
        REQUIRE(p != NULL);
        memset(p, 1, 20000);
        REQUIRE(realloc(p, hidden(0)) == NULL);
    }
    REQUIRE(status_kib("RssAnon:") < before_kib + 16 * 1024);
    void *p = realloc(NULL, 100);
    REQUIRE(p != NULL);
    free(p);
    p = reallocarray(NULL, 10, 10);
    REQUIRE(p != NULL);
    free(p);
    p = reallocarray(NULL, hidden(0), 10);
    REQUIRE(p != NULL);
    free(p);
}

static void group_usable(void) {
    for (size_t bytes = 0; bytes < 3 * MIB; bytes = bytes < 1100 ? bytes + 1 : bytes + bytes / 9) {
        unsigned char *a = malloc(bytes), *b = malloc(bytes);
        REQUIRE(a != NULL && b != NULL);
        size_t usable_a = malloc_usable_size(a), usable_b = malloc_usable_size(b);
        REQUIRE(usable_a >= bytes && usable_b >= bytes);
        /* All of it may be written, and belongs to no one else. */
        pattern_fill(a, usable_a, 1);
        pattern_fill(b, usable_b, 2);
        REQUIRE(malloc_usable_size(a) == usable_a);
        pattern_check(a, usable_a, 1, "usable");
        block_delete(b, usable_b, 2, "usable");
        unsigned char *moved = realloc(a, usable_a + 1000);
        REQUIRE(moved != NULL);
        pattern_check_as(moved, a, usable_a, usable_a, 1, "usable, moved");
        free(moved);
    }
}

static void group_calloc_zero(void) {
    enum { EACH = 20 };
    for (size_t bytes = 1; bytes < 6 * MIB; bytes = bytes * 5 / 3 + 1) {
        unsigned char *blocks[EACH];
        for (int round = 0; round < 3; round++) {
            size_t each = bytes > 200000 ? 3 : EACH;
            for (size_t i = 0; i < each; i++) {
                blocks[i] = calloc(1, bytes);
                REQUIRE(blocks[i] != NULL);
                for (size_t k = 0; k < bytes; k++)
                    if (blocks[i][k] != 0) fail("calloc(1, %zu): byte %zu is %d in round %d", bytes, k, blocks[i][k], round);
                memset(blocks[i], 0xee, malloc_usable_size(blocks[i]));
            }
            for (size_t i = 0; i < each; i++) free(blocks[i]);
            if (round == 1) malloc_trim(0);
        }
    }
    /* Large memory that was used in small pieces before, and the other way round. */
    enum { PIECES = 20000 };
    static unsigned char *pieces[PIECES];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < PIECES; i++) {
            pieces[i] = calloc(1, 400);
            REQUIRE(pieces[i] != NULL);
            for (int k = 0; k < 400; k++) REQUIRE(pieces[i][k] == 0);
            memset(pieces[i], 0xdd, 400);
        }
        for (int i = 0; i < PIECES; i++) free(pieces[i]);
        unsigned char *large = calloc(6, MIB);
        REQUIRE(large != NULL);
        for (size_t k = 0; k < 6 * MIB; k++)
            if (large[k] != 0) fail("calloc of 6 MiB: byte %zu is %d", k, large[k]);
        memset(large, 0xcc, 6 * MIB);
        free(large);
    }
}

static void group_information(void) {
    /* What was taken shows, what was freed goes. */
    enum { COUNT = 4000 };
    static void *blocks[COUNT];
    struct mallinfo2 before = mallinfo2();
    for (int i = 0; i < COUNT; i++) blocks[i] = block_new(4000, 1, "information");
    void *large = block_new(32 * MIB, 1, "information");
    struct mallinfo2 full = mallinfo2();
    REQUIRE(full.uordblks + full.hblkhd >= before.uordblks + before.hblkhd + COUNT * 4000ul + 32 * MIB);
    for (int i = 0; i < COUNT; i++) block_delete(blocks[i], 4000, 1, "information");
    block_delete(large, 32 * MIB, 1, "information");
    struct mallinfo2 after = mallinfo2();
    REQUIRE(after.uordblks + after.hblkhd <= full.uordblks + full.hblkhd - COUNT * 3900ul - 32 * MIB);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    struct mallinfo old = mallinfo();
#pragma GCC diagnostic pop
    REQUIRE(old.uordblks >= 0 && old.arena >= 0);
    errno = 7;
    REQUIRE(malloc_info(hidden(1) == 1, stdout) == EINVAL && errno == 7);
    REQUIRE(malloc_info(0, stdout) == 0); /* the suite parses it */
    fflush(stdout);
    malloc_stats(); /* to stderr: the suite wants to see something there */
    REQUIRE(mallopt(M_MMAP_THRESHOLD, 1 << 20) == 1);
    REQUIRE(mallopt(M_TRIM_THRESHOLD, 1 << 20) == 1);
    REQUIRE(mallopt(M_ARENA_MAX, 1) == 1);
    REQUIRE(mallopt(M_NLBLKS, 1) == 1 && mallopt(M_GRAIN, 1) == 1 && mallopt(M_KEEP, 1) == 1); /* System V's, of no use to anybody */
    REQUIRE(mallopt(M_MXFAST, 0) == 1 && mallopt(M_MXFAST, 160) == 1);
    REQUIRE(mallopt(M_MXFAST, -1) == 0 && mallopt(M_MXFAST, 161) == 0 && mallopt(M_MXFAST, 1000000000) == 0);
    int trimmed = malloc_trim(0);
    REQUIRE(trimmed == 0 || trimmed == 1);
    if (!strata_expected()) return;
    /* Where there is something to trim it says so, and then not again. */
    for (int i = 0; i < COUNT; i++) blocks[i] = block_new(4000, 1, "trim");
    for (int i = 0; i < COUNT; i++) block_delete(blocks[i], 4000, 1, "trim");
    REQUIRE(malloc_trim(0) == 1);
    REQUIRE(malloc_trim(0) == 0);
}

static FILE *written;
static sem_t is_locked;

static void *write_information(void *unused) {
    (void)unused;
    sem_wait(&is_locked);
    REQUIRE(malloc_info(0, written) == 0);
    return NULL;
}
/* One thread has the stream for several calls, as for a report of its own, and another one writes to it meanwhile. */
static void group_stream(void) {
    pthread_t other;
    alarm(20);
    REQUIRE((written = fopen("/dev/null", "w")) != NULL && sem_init(&is_locked, 0, 0) == 0);
    REQUIRE(pthread_create(&other, NULL, write_information, NULL) == 0);
    flockfile(written);
    sem_post(&is_locked);
    sleep_ms(100);
    fputs("the heap:\n", written);
    REQUIRE(malloc_info(0, written) == 0);
    funlockfile(written);
    REQUIRE(pthread_join(other, NULL) == 0);
    fclose(written);
}

/* C23, looked up by name, as older C libraries have neither. */
static void group_sized(void) {
    void (*sized)(void *, size_t);
    void (*aligned_sized)(void *, size_t, size_t);
    void *found = strata_function("free_sized"), *found_aligned = strata_function("free_aligned_sized");
    if (found == NULL || found_aligned == NULL) return;
    memcpy(&sized, &found, sizeof sized);
    memcpy(&aligned_sized, &found_aligned, sizeof aligned_sized);
    for (size_t bytes = 0; bytes < 8 * MIB; bytes = bytes < 300 ? bytes + 1 : bytes * 4 / 3) {
        sized(malloc(bytes), bytes);
        sized(calloc(1, bytes), bytes);
        sized(realloc(malloc(10), bytes + 1), bytes + 1);
        for (size_t alignment = 16; alignment <= 65536; alignment *= 8) aligned_sized(aligned_alloc(alignment, bytes), alignment, bytes);
    }
    sized(NULL, 0);
    aligned_sized(NULL, 64, 64);
}

/* glibc's own names of its functions: what one family gives the other takes. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void *__libc_valloc(size_t size);
void *__libc_pvalloc(size_t size);
void __libc_free(void *p);

static void group_glibc_names(void) {
    for (size_t bytes = 1; bytes < 4 * MIB; bytes = bytes * 3 / 2 + 1) {
        void *blocks[] = {__libc_malloc(bytes), __libc_calloc(1, bytes), __libc_realloc(malloc(bytes), bytes + 1),
                          realloc(__libc_malloc(bytes), bytes + 1)};
        void *apart[] = {__libc_memalign(256, bytes), __libc_valloc(bytes), __libc_pvalloc(bytes)};
        for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
            REQUIRE(malloc_usable_size(blocks[i]) >= bytes);
            free(blocks[i]);
        }
        for (size_t i = 0; i < sizeof apart / sizeof apart[0]; i++) {
            REQUIRE(aligned(apart[i], i == 0 ? 256 : 4096) && malloc_usable_size(apart[i]) >= bytes);
            free(apart[i]);
        }
        __libc_free(malloc(bytes));
        __libc_free(aligned_alloc(64, bytes));
    }
    __libc_free(NULL);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } groups[] = {
        {"zero", group_zero},
        {"overflow", group_overflow},
        {"alignment", group_alignment},
        {"aligned_functions", group_aligned_functions},
        {"bad_alignment", group_bad_alignment},
        {"errno", group_errno},
        {"realloc_zero", group_realloc_zero},
        {"usable", group_usable},
        {"calloc_zero", group_calloc_zero},
        {"information", group_information},
        {"stream", group_stream},
        {"sized", group_sized},
        {"glibc_names", group_glibc_names},
    };
    for (size_t i = 0; argc == 2 && i < sizeof groups / sizeof groups[0]; i++) {
        if (strcmp(groups[i].name, argv[1]) != 0) continue;
        groups[i].run();
        heap_check("at the end");
        return 0;
    }
    fail("usage: conformance GROUP");
}
