/*
 * test_linux_store.c - the file behind paged blocks on Linux: what of it stays in the system's cache, by default and after platform_store_pass; and
 * in a process that may have few files.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cmocka.h>

#include "platform/platform.h"

#define FILE_BYTES (2 * MIB)
#define PAGES (FILE_BYTES / 4096)
#define TMPFS 0x01021994

static char path[64];
static char contents[FILE_BYTES];

/* How many pages of the file the system keeps. */
static size_t cached(const struct platform_store *store) {
    static unsigned char present[PAGES];
    void *view = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, store->file, 0);
    assert_true(view != MAP_FAILED);
    assert_int_equal(mincore(view, FILE_BYTES, present), 0);
    munmap(view, FILE_BYTES);
    size_t count = 0;
    for (size_t i = 0; i < FILE_BYTES / platform_info()->page_bytes; i++) count += present[i] & 1u;
    return count;
}

/* In the folder of the test, as files in memory have nowhere else to be. */
static bool open_store(struct platform_store *store) {
    struct statfs system;
    snprintf(path, sizeof path, "test_linux_store.%d", (int)getpid());
    assert_int_equal(platform_store_open(store, path, -1, FILE_BYTES), 0);
    assert_int_equal(unlink(path), 0);
    return fstatfs(store->file, &system) == 0 && system.f_type != TMPFS;
}

static void write_and_read(struct platform_store *store, struct platform_store_ring *ring) {
    enum { PART = 64 << 10 };
    static char back[PART];
    for (size_t i = 0; i < FILE_BYTES; i++) contents[i] = (char)(i * 31 >> 7);
    for (int write = 1; write >= 0; write--)
        for (size_t at = 0; at < FILE_BYTES; at += PART) {
            struct platform_store_job job = {
                .store = store, .memory = write ? contents + at : back, .bytes = PART, .offset = at, .write = write != 0, .error = -7};
            if (ring != NULL && platform_store_begin(ring, &job))
                assert_ptr_equal(platform_store_end(ring, true), &job);
            else
                job.error = write ? platform_store_write(store, contents + at, PART, at) : platform_store_read(store, back, PART, at);
            assert_int_equal(job.error, 0);
            if (!write) assert_memory_equal(back, contents + at, PART);
        }
}

static void what_passes_does_not_stay(void **state) {
    (void)state;
    for (int by_ring = 0; by_ring < 2; by_ring++) {
        struct platform_store store;
        struct platform_store_ring *ring = by_ring ? platform_store_ring_open(2) : NULL;
        if (by_ring && ring == NULL) break; /* forbidden here */
        bool on_disk = open_store(&store);
        write_and_read(&store, ring);
        assert_int_equal(cached(&store), FILE_BYTES / platform_info()->page_bytes);
        platform_store_close(&store);
        if (on_disk) {
            (void)open_store(&store);
            platform_store_pass(&store);
            write_and_read(&store, ring);
            assert_true(cached(&store) <= 256 * KIB / platform_info()->page_bytes); /* what was written last may wait */
            assert_int_equal(platform_store_sync(&store), 0);
            platform_store_close(&store);
        } else {
            print_message("the folder is in memory: only the default was tested\n");
        }
        if (ring != NULL) platform_store_ring_close(ring, false);
    }
}

/* Whose numbers are all below those that our files get. */
static void few_numbers_are_enough(void **state) {
    (void)state;
    struct platform_store store;
    struct rlimit limit, low;
    snprintf(path, sizeof path, "test_linux_store.%d", (int)getpid());
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = (rlim_t)file + 8;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    assert_int_equal(platform_store_open(&store, NULL, file, FILE_BYTES), 0);
    assert_true(store.file != file);
    platform_store_close(&store);
    assert_int_equal(platform_store_open(&store, NULL, file + 1, FILE_BYTES), EBADF);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    close(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_passes_does_not_stay), cmocka_unit_test(few_numbers_are_enough)};
    platform_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
